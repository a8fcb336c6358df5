//! An edge proxy for fleets of vLLM engines: one OpenAI API in front of many, their transient
//! failures hidden behind it.
//!
//! The life of a request, and the room in which each step is to be found:
//!
//! 1. [`edge`] accepts the connection, reads the head strictly, and keeps the body for every
//!    attempt;
//! 2. [`proxy`] checks the key, finds the [route](request::route) and reads the model
//!    ([`request`]);
//! 3. [`engines`] says who serves that model ([`discovery`] who there is), [`routing`] picks one
//!    of them;
//! 4. the engine answers, refuses or dies; [`retry`] decides what follows;
//! 5. [`edge`] lets the answer through from its first body byte on;
//! 6. a [`record`] of how it ended goes to [`metrics`], the [`status`] page, the [`access_log`] and
//!    [`traces`], once.
//!
//! Around it: [`config`] and [`cli`] make the settings, [`server`] starts and stops everything,
//! [`admin`] shows it, [`logging`] writes it down, [`api_error`] words our own refusals, and
//! [`watched_file`] says when a file was changed, [`body_buffer`] keeps bodies, and
//! [`simulator`] is an engine to try it all on.
//!
//! What decides (`retry`, `routing`, `request`, `config`) knows no socket, clock or dice; what
//! acts (`proxy`, `edge`, `server`) translates between Pingora and those.

pub mod access_log;
pub mod admin;
pub mod api_error;
pub mod body_buffer;
pub mod cli;
pub mod config;
pub mod discovery;
pub mod edge;
pub mod engines;
mod keep_alive;
pub mod logging;
pub mod metrics;
pub mod proxy;
pub mod record;
pub mod request;
pub mod retry;
pub mod routing;
pub mod server;
pub mod simulator;
pub mod status;
pub mod traces;
pub mod watched_file;
mod words;
