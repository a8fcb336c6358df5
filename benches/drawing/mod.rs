//! Pictures of what a bench found out.

#![allow(dead_code, reason = "each bench draws what it needs")]

pub mod panel;
pub mod svg;
