//! Finds the id of a response in the answer that brings it, while the answer passes.
//!
//! It is the top-level `id` of a JSON answer, and `response.id` of the first event of a stream:
//! `event: response.created`, `data: {"response":{"id":"resp_…",…},…}`. Nothing is kept but the
//! place in the text, and nothing is held back or changed.

use super::scan::{Scan, Scanned};

/// How much of an answer is looked at; ids come first.
const LOOKED_AT: usize = 64 * 1024;

/// A search for the id, as far as the answer has come.
#[derive(Debug)]
pub(super) struct ResponseId {
    state: State,
    left: usize,
}

#[derive(Debug)]
enum State {
    /// In the JSON text.
    Json(Scan),
    /// In a line of an event stream; so much of it has been `data:` so far.
    Line(usize),
    /// In a line of an event stream that is not data.
    OtherLine,
    /// In the data of the first event.
    Data(Scan),
    /// Found, or given up.
    Over,
}

impl ResponseId {
    /// A search in a JSON answer.
    pub(super) fn in_json() -> Self {
        Self::from(State::Json(Scan::new(&["id"])))
    }

    /// A search in an event stream.
    pub(super) fn in_stream() -> Self {
        Self::from(State::Line(0))
    }

    fn from(state: State) -> Self {
        Self {
            state,
            left: LOOKED_AT,
        }
    }

    /// Takes the next bytes of the answer, and gives the id if it ends in them: once.
    pub(super) fn push(&mut self, data: &[u8]) -> Option<String> {
        for byte in data {
            if matches!(self.state, State::Over) {
                return None;
            }
            let Some(left) = self.left.checked_sub(1) else {
                self.state = State::Over;
                return None;
            };
            self.left = left;
            if let Some(found) = self.state.step(*byte) {
                self.state = State::Over;
                return Some(found);
            }
        }
        None
    }
}

impl State {
    /// Goes on by one byte.
    fn step(&mut self, byte: u8) -> Option<String> {
        const DATA: &[u8] = b"data:";
        let ends_line = matches!(byte, b'\n' | b'\r');
        match self {
            Self::OtherLine | Self::Line(_) if ends_line => *self = Self::Line(0),
            Self::Over | Self::OtherLine => {}
            Self::Line(seen) if DATA.get(*seen) == Some(&byte) => {
                *seen += 1;
                if *seen == DATA.len() {
                    *self = Self::Data(Scan::new(&["response", "id"]));
                }
            }
            Self::Line(_) => *self = Self::OtherLine,
            // Only the first event is asked.
            Self::Data(_) if ends_line => *self = Self::Over,
            Self::Json(scan) | Self::Data(scan) => match scan.step(byte) {
                Scanned::More => {}
                Scanned::Found(id) => return Some(id),
                Scanned::Nothing => *self = Self::Over,
            },
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#" {"created_at":1,"tools":[{"id":"no"},["id"]],"metadata":{"id":"no","a":{}},"text":"\"id\":\"no\" }\\","id" : "resp_1-aZ","output":[]}"#;
    const STREAM: &str = "event: response.created\r\ndata: {\"id\":\"no\",\"response\":{\"usage\":{\"id\":1},\"id\":\"resp_2\"},\"type\":\"response.created\"}\r\n\r\ndata: {\"response\":{\"id\":\"resp_3\"}}\n\n";

    fn search(mut id: ResponseId, pieces: &[&[u8]]) -> Option<String> {
        let found: Vec<_> = pieces.iter().filter_map(|piece| id.push(piece)).collect();
        assert!(found.len() <= 1, "{found:?}");
        found.into_iter().next()
    }

    fn in_json(text: &str) -> Option<String> {
        search(ResponseId::in_json(), &[text.as_bytes()])
    }

    fn in_stream(text: &str) -> Option<String> {
        search(ResponseId::in_stream(), &[text.as_bytes()])
    }

    #[test]
    fn the_id_is_found_however_the_answer_is_split() {
        for (begin, text, id) in [
            (ResponseId::in_json as fn() -> ResponseId, JSON, "resp_1-aZ"),
            (ResponseId::in_stream, STREAM, "resp_2"),
        ] {
            assert_eq!(search(begin(), &[text.as_bytes()]).as_deref(), Some(id));
            for at in 0..=text.len() {
                let (one, two) = text.as_bytes().split_at(at);
                let found = search(begin(), &[one, two]);
                assert_eq!(found.as_deref(), Some(id), "split at {at}");
            }
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(search(begin(), &bytes).as_deref(), Some(id));
        }
    }

    #[test]
    fn an_answer_without_an_id_has_none() {
        for text in [
            "",
            "{}",
            "[]",
            "null",
            "\"id\"",
            "not JSON",
            "\u{feff}{",
            r#"{"id":5}"#,
            r#"{"id":null}"#,
            r#"{"id":["a"]}"#,
            r#"{"id":{"id":"a"}}"#,
            r#"{"id":""}"#,
            r#"{"id":"a/b"}"#,
            r#"{"id":"\u0061"}"#,
            r#"{"\u0069d":"a"}"#,
            r#"{"id":"a"#,
            r#"{"error":{"id":"a"}}"#,
            r#"{"x":1}{"id":"a"}"#,
            r#"[{"id":"a"}]"#,
            r#"{"a":"id","b":"c"}"#,
        ] {
            assert_eq!(in_json(text), None, "{text}");
        }
        for text in [
            "",
            "data: [DONE]\n\n",
            "data:\n\ndata: {\"response\":{\"id\":\"a\"}}\n\n",
            "data: {\"response\":[{\"id\":\"a\"}]}\n\n",
            "data: {\"response\":\"id\",\"id\":\"a\"}\n\n",
            "data: {\"response\":{}}\n\n",
            "data: {\"response\":{},\"id\":\"a\"}\n\n",
            "xdata: {\"response\":{\"id\":\"a\"}}\n\n",
        ] {
            assert_eq!(in_stream(text), None, "{text}");
        }
    }

    #[test]
    fn lines_before_the_first_data_are_passed_over() {
        let event = "data:{\"response\":{\"id\":\"a\"}}\n\n";
        for before in [
            "",
            ": hello\n\n",
            "event: response.created\n",
            "dat\n",
            "\r\n",
        ] {
            assert_eq!(in_stream(&format!("{before}{event}")).as_deref(), Some("a"));
        }
    }

    #[test]
    fn looking_has_an_end() {
        let far = |blanks: usize| format!("{{{}\"id\":\"a\"}}", " ".repeat(blanks));
        assert_eq!(in_json(&far(LOOKED_AT - 9)).as_deref(), Some("a"));
        assert_eq!(in_json(&far(LOOKED_AT)), None);
        let long = format!("{{\"id\":\"{}\"}}", "a".repeat(1000));
        assert_eq!(in_json(&long), None);
        let deep = format!("{{\"a\":{},\"id\":\"a\"}}", "[".repeat(60_000));
        assert_eq!(in_json(&deep), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            ResponseId::in_json().push(&bytes);
            ResponseId::in_stream().push(&bytes);
        }

        #[test]
        fn it_agrees_with_a_parser(value in "[a-zA-Z0-9_-]{1,20}", before in "\\PC{0,30}", nested in "[a-z\"\\\\{}\\[\\],:]{0,20}") {
            let text = serde_json::json!({"a": {"id": nested}, "b": [before], "id": value}).to_string();
            proptest::prop_assert_eq!(in_json(&text), Some(value));
        }
    }
}
