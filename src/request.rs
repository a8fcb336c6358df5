//! What routing may know of a request: which route it takes, which model it names.

pub mod body;
pub mod coding;
pub mod form;
pub mod json;
mod prompt;
pub mod route;
