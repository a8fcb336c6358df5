//! What is logged of an error of Pingora's.

use std::fmt;

use pingora_core::Error;

/// Shows whose an error is and of what kind, and no more: what else an error tells may hold the
/// bytes that were read, such as a client's key or an engine's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure<'a>(pub(crate) &'a Error);

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error) = self;
        let source = error.esource.as_str();
        if !source.is_empty() {
            write!(f, "{source} ")?;
        }
        f.write_str(error.etype.as_str())
    }
}

#[cfg(test)]
mod tests {
    use pingora_core::ErrorType;

    use super::*;

    #[test]
    fn neither_context_nor_cause_is_shown() {
        let cause = Error::explain(ErrorType::InvalidHTTPHeader, "buf: secret");
        let mut error = Error::because(ErrorType::ReadError, "buf: secret", cause);
        assert_eq!(Failure(&error).to_string(), "ReadError");
        error.as_up();
        assert_eq!(Failure(&error).to_string(), "Upstream ReadError");
    }
}
