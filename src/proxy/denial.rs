//! Looks at a 404 of an engine that was thought to serve the model, whether it denies just that.
//!
//! What an engine serves is asked every few seconds, and changes in between: an adapter is
//! unloaded, another model comes up at the same place. The client asked for a model that is
//! listed, and should not see that the list was out of date.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use pingora_http::ResponseHeader;
use tokio::time::Instant;

use super::Router;
use super::context::{Context, Forward};
use crate::retry::{NOT_SERVED, Outcome};

/// The longest body that is looked at; a vLLM server's is far shorter.
const LONGEST: usize = 16 * 1024;

/// What the bytes so far say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// They may still deny the model.
    Undecided,
    /// They do.
    Denied,
    /// They say something else.
    Other,
}

/// The body of a 404, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Denial(BytesMut);

#[derive(serde::Deserialize)]
struct Body {
    error: ErrorObject,
}

#[derive(serde::Deserialize)]
struct ErrorObject {
    message: String,
}

impl Denial {
    /// The search for a denial in an answer with this head; `None` where it can hold none. Where
    /// the configuration says what the engine serves, that is not asked, and its word is final.
    pub(super) fn search(forward: &Forward, head: &ResponseHeader) -> Option<Self> {
        let running = forward.running.as_ref()?;
        let is_asked = !running.engine.declares_models() && !forward.pool.model().is_empty();
        let json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
        let may_hold = head.status == StatusCode::NOT_FOUND
            && head.headers.get(CONTENT_TYPE).is_some_and(json)
            && !head.headers.contains_key(CONTENT_ENCODING);
        (is_asked && may_hold).then(Self::default)
    }

    /// Takes the next bytes; `end` says that no more will come.
    fn push(&mut self, data: &[u8], end: bool, model: &str) -> Verdict {
        self.0.extend_from_slice(data);
        if !end && !self.0.trim_ascii_end().ends_with(b"}") {
            return if self.0.len() > LONGEST {
                Verdict::Other
            } else {
                Verdict::Undecided
            };
        }
        match serde_json::from_slice::<Body>(&self.0) {
            Ok(body) if denies(&body.error.message, model) => Verdict::Denied,
            // A brace may end an inner object.
            Err(error) if error.is_eof() && !end && self.0.len() <= LONGEST => Verdict::Undecided,
            Ok(_) | Err(_) => Verdict::Other,
        }
    }
}

/// Whether this is how a vLLM server says that it does not serve `model`.
fn denies(message: &str, model: &str) -> bool {
    let rest = message.strip_prefix("The model `");
    let rest = rest.and_then(|rest| rest.strip_prefix(model));
    rest.is_some_and(|rest| rest.starts_with("` does not exist"))
}

impl Router {
    /// Looks at the next bytes of an answer; whether it denies the model, and another engine is
    /// asked instead. With retries on, the bytes are kept back until that is known.
    pub(super) fn is_denied(&self, ctx: &mut Context, body: &mut Option<Bytes>, end: bool) -> bool {
        let keeps = ctx.plan.retry.is_some();
        let Some(forward) = &mut ctx.forward else {
            return false;
        };
        let (Some(denial), Some(running)) = (&mut forward.denial, &forward.running) else {
            return false;
        };
        let data = body.as_deref().unwrap_or_default();
        let verdict = denial.push(data, end, forward.pool.model());
        if verdict == Verdict::Undecided {
            if keeps {
                *body = None;
            }
            return false;
        }
        if verdict == Verdict::Denied {
            self.catalog.doubt(&running.engine);
        }
        let kept = forward.denial.take();
        if verdict == Verdict::Denied && self.follows(ctx, Outcome::NotServed) {
            self.end_attempt(ctx, NOT_SERVED, Instant::now);
            return true;
        }
        if keeps {
            *body = kept.map(|kept| kept.0.freeze());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIAL: &str = r#"{"error":{"message":"The model `org/m` does not exist. Valid aliases: tiny.","type":"NotFoundError","param":"model","code":404}}"#;

    #[test]
    fn a_vllm_servers_own_words_are_a_denial_however_they_are_split() {
        for at in 0..=DENIAL.len() {
            let (one, two) = DENIAL.as_bytes().split_at(at);
            let mut denial = Denial::default();
            let mut verdict = denial.push(one, false, "org/m");
            if verdict == Verdict::Undecided {
                verdict = denial.push(two, false, "org/m");
            }
            assert_eq!(verdict, Verdict::Denied, "split at {at}");
        }
        let messages = r#"{"type":"error","error":{"type":"NotFoundError","message":"The model `org/m` does not exist."}} "#;
        let mut denial = Denial::default();
        assert_eq!(
            denial.push(messages.as_bytes(), true, "org/m"),
            Verdict::Denied
        );
    }

    #[test]
    fn what_denies_something_else_is_passed_on() {
        for text in [
            "",
            "{",
            r#"{"detail":"Not Found"}"#,
            r#"{"error":"The model `m` does not exist."}"#,
            r#"{"error":{"message":"The model `other` does not exist."}}"#,
            r#"{"error":{"message":"The model `m2` does not exist."}}"#,
            r#"{"error":{"message":"Why, the model `m` does not exist."}}"#,
            r#"{"error":{"message":"Response with id 'resp_1' not found."}}"#,
            r#"{"error":{"message":"The model `m` does not exist."}"#,
            r#"{"error":{"message":"The model `m` does not exist."}}}"#,
        ] {
            let verdict = Denial::default().push(text.as_bytes(), true, "m");
            assert_eq!(verdict, Verdict::Other, "{text}");
        }
    }

    #[test]
    fn waiting_has_an_end() {
        for brace in [b' ', b'}'] {
            let mut denial = Denial::default();
            let begin = br#"{"error":{"message":""#;
            assert_eq!(denial.push(begin, false, "m"), Verdict::Undecided);
            let mut rest = vec![b'x'; LONGEST];
            rest.push(brace);
            assert_eq!(denial.push(&rest, false, "m"), Verdict::Other);
            assert_eq!(denial.0.len(), begin.len() + rest.len());
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let mut denial = Denial::default();
            denial.push(DENIAL.as_bytes().split_at(20).0, false, "org/m");
            denial.push(&bytes, false, "org/m");
            denial.push(&bytes, true, "org/m");
        }
    }
}
