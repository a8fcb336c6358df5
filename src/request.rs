//! What routing may know of a request: which route it takes, which model it names.

pub mod json;
pub mod route;
