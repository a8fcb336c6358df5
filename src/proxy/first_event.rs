//! Looks at the very first event of a stream, before anything of it goes out.
//!
//! A vLLM server sends its `200` before the first token. When its engine dies or refuses after
//! that, the stream's first event is an error object with the status it would have had:
//! `data: {"error": {…, "code": 503}}`. Such a stream counts as an answer with that status.

use bytes::{Bytes, BytesMut};

/// The longest first event that is waited for; an error object is far shorter.
const LONGEST: usize = 64 * 1024;

/// What the bytes so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The event may still be an error; its bytes are kept back.
    Undecided,
    /// The stream starts with an error object that carries this status.
    Status(u16),
    /// The stream is what it looks like.
    Ordinary,
}

/// The first event of a stream, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct FirstEvent(BytesMut);

impl FirstEvent {
    /// Takes the next bytes; `end` says that no more will come.
    pub(super) fn push(&mut self, data: &[u8], end: bool) -> Verdict {
        self.0.extend_from_slice(data);
        match judge(&self.0) {
            Verdict::Undecided if end || self.0.len() > LONGEST => Verdict::Ordinary,
            verdict => verdict,
        }
    }

    /// The bytes kept back.
    pub(super) fn into_bytes(self) -> Bytes {
        self.0.freeze()
    }
}

fn judge(bytes: &[u8]) -> Verdict {
    let mut rest = bytes;
    for expected in [&b"data:"[..], b"{", b"\"error\"", b":"] {
        rest = skip_blanks(rest);
        if let Some(after) = rest.strip_prefix(expected) {
            rest = after;
        } else if expected.starts_with(rest) {
            return Verdict::Undecided;
        } else {
            return Verdict::Ordinary;
        }
    }
    let Some(event) = first_line(bytes) else {
        return Verdict::Undecided;
    };
    let json = event.strip_prefix(b"data:").unwrap_or(event);
    match serde_json::from_slice::<ErrorEvent>(json) {
        Ok(event) => Verdict::Status(event.error.code),
        Err(_) => Verdict::Ordinary,
    }
}

#[derive(serde::Deserialize)]
struct ErrorEvent {
    error: ErrorObject,
}

#[derive(serde::Deserialize)]
struct ErrorObject {
    code: u16,
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count();
    bytes.get(blanks..).unwrap_or_default()
}

fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr2(b'\n', b'\r', bytes)?;
    bytes.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: &str = "data: {\"error\": {\"message\": \"EngineCore encountered an issue.\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\n";

    fn judge_whole(text: &str) -> Verdict {
        FirstEvent::default().push(text.as_bytes(), false)
    }

    #[test]
    fn an_error_object_counts_as_its_code() {
        assert_eq!(judge_whole(ERROR), Verdict::Status(500));
        assert_eq!(
            judge_whole("data:{\"error\":{\"code\":503}}\r\n\r\n"),
            Verdict::Status(503)
        );
    }

    #[test]
    fn the_answer_is_the_same_however_the_event_is_split() {
        for at in 1..ERROR.len() {
            let (one, two) = ERROR.as_bytes().split_at(at);
            let mut event = FirstEvent::default();
            let verdict = match event.push(one, false) {
                Verdict::Undecided => event.push(two, false),
                verdict => verdict,
            };
            assert_eq!(verdict, Verdict::Status(500), "split at {at}");
        }
    }

    #[test]
    fn ordinary_streams_are_known_by_their_first_bytes() {
        for text in [
            "data: {\"id\":\"cmpl-1\"",
            "data: [DONE]",
            ": comment",
            "event: response.created\n",
            "{\"error\":",
            "data: {\"errors\":1",
            "\n",
        ] {
            assert_eq!(judge_whole(text), Verdict::Ordinary, "{text:?}");
        }
    }

    #[test]
    fn an_error_without_a_numeric_code_is_passed_on() {
        for text in [
            "data: {\"error\": \"no object\"}\n\n",
            "data: {\"error\": {\"code\": \"x\"}}\n\n",
            "data: {\"error\": {\"code\": 503\n\n",
        ] {
            assert_eq!(judge_whole(text), Verdict::Ordinary, "{text:?}");
        }
    }

    #[test]
    fn waiting_has_an_end() {
        let mut event = FirstEvent::default();
        assert_eq!(
            event.push(b"data: {\"error\": {", false),
            Verdict::Undecided
        );
        assert_eq!(event.push(&vec![b' '; LONGEST], false), Verdict::Ordinary);
        assert!(event.into_bytes().starts_with(b"data: {\"error\": { "));
        assert_eq!(
            FirstEvent::default().push(b"data: {\"err", true),
            Verdict::Ordinary
        );
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let mut prefixed = b"data: {\"error\":".to_vec();
            prefixed.extend_from_slice(&bytes);
            FirstEvent::default().push(&prefixed, false);
            FirstEvent::default().push(&bytes, true);
        }
    }
}
