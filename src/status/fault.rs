//! Whose fault it is that a request failed: what an operator asks first.

use std::borrow::Cow;

use crate::record::Record;

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The engines': none answered, or one with an error of its own, or not to the end.
    Fleet,
    /// The router's own.
    Router,
    /// The client's: its request was refused.
    Client,
}

impl Fault {
    /// Whose fault the end of a request is; `None` where it is nobody's. A client that leaves is
    /// nobody's fault.
    pub fn of(record: &Record<'_>) -> Option<Self> {
        match record.outcome {
            "client_gone" => None,
            "cut"
                if record
                    .attempts
                    .last()
                    .is_some_and(|it| it.outcome == "internal") =>
            {
                Some(Self::Router)
            }
            "cut" | "exhausted" => Some(Self::Fleet),
            "own_error" if is_about_engines(record.reason) => Some(Self::Fleet),
            "own_error" if is_about_the_router(record.reason) => Some(Self::Router),
            "own_error" => Some(Self::Client),
            _ => match record.status {
                // That it is busy, or has lost patience, is the engine's word on itself.
                408 | 429 | 500.. => Some(Self::Fleet),
                400.. => Some(Self::Client),
                _ => None,
            },
        }
    }
}

/// What went wrong, in a word: the code of our own error, the status an engine answered, or `cut`.
pub(super) fn error<'a>(record: &'a Record<'_>) -> Cow<'a, str> {
    match record.outcome {
        "own_error" => Cow::Borrowed(record.reason),
        "cut" => Cow::Borrowed("cut"),
        _ => Cow::Owned(record.status.to_string()),
    }
}

fn is_about_engines(code: &str) -> bool {
    matches!(
        code,
        "engine_unreachable" | "engine_timeout" | "no_engine_available"
    )
}

fn is_about_the_router(code: &str) -> bool {
    matches!(code, "internal_error" | "overloaded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_error::ApiError;
    use crate::status::testing::{attempt, record};

    fn of(outcome: &'static str, reason: &str, status: u16) -> Option<Fault> {
        Fault::of(&Record {
            status,
            outcome,
            reason,
            ..record(&[])
        })
    }

    #[test]
    fn an_answer_that_is_no_error_is_nobodys_fault() {
        for status in [200, 204, 304] {
            assert_eq!(of("answered", "answered", status), None);
        }
        for status in [0, 200] {
            assert_eq!(of("client_gone", "client_gone", status), None);
        }
    }

    #[test]
    fn what_engines_answer_tells_a_bad_request_from_a_bad_engine() {
        for status in [400, 401, 404, 422] {
            assert_eq!(of("answered", "answered", status), Some(Fault::Client));
        }
        for status in [408, 429, 500, 501, 503, 529] {
            assert_eq!(of("answered", "retries_off", status), Some(Fault::Fleet));
        }
        assert_eq!(of("exhausted", "budget_spent", 503), Some(Fault::Fleet));
    }

    #[test]
    fn every_error_of_our_own_has_an_owner() {
        for refusal in [
            ApiError::invalid_request(""),
            ApiError::invalid_api_key(),
            ApiError::not_found(""),
            ApiError::model_not_found(""),
            ApiError::response_not_found(""),
            ApiError::engine_not_found("", ""),
            ApiError::pin_not_allowed(),
            ApiError::method_not_allowed("", ""),
            ApiError::request_timeout(""),
            ApiError::request_too_large(0),
            ApiError::uri_too_long(0),
            ApiError::unsupported_media_type(""),
            ApiError::too_many_connections(0),
            ApiError::headers_too_large(""),
            ApiError::internal(),
            ApiError::overloaded(),
            ApiError::engine_unreachable(1),
            ApiError::no_engine_available(""),
            ApiError::no_engines_available(),
            ApiError::engine_timeout(1),
        ] {
            let expected = match refusal.status() {
                _ if refusal == ApiError::overloaded() => Fault::Router,
                500 => Fault::Router,
                501.. => Fault::Fleet,
                _ => Fault::Client,
            };
            let found = of("own_error", refusal.code(), refusal.status());
            assert_eq!(found, Some(expected), "{refusal}");
            // The client that is to be told may have left.
            assert_eq!(of("own_error", refusal.code(), 0), Some(expected));
        }
    }

    #[test]
    fn an_answer_that_broke_off_is_the_engines_fault_unless_the_router_broke_it() {
        for (last, expected) in [("cut", Fault::Fleet), ("internal", Fault::Router)] {
            let attempts = [attempt("http://a", last, Some(200))];
            let found = Fault::of(&Record {
                outcome: "cut",
                reason: "committed",
                ..record(&attempts)
            });
            assert_eq!(found, Some(expected), "{last}");
        }
    }
}
