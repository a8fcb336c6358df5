//! Finds what an engine says of the tokens of a request, while its answer passes.
//!
//! `"usage":{"prompt_tokens":5,…}` stands at the top of a JSON answer, in the last event of a stream
//! that was asked for it (`include_usage`), or in every event of one (`continuous_usage_stats`): the
//! last one says what counts. `/v1/responses` and `/v1/messages` call the same `input_tokens` and
//! `output_tokens`, and say them in several events, each a part.
//!
//! An answer may be megabytes and a stream thousands of events, so nothing is parsed but the object
//! itself, nothing is kept but a part of the word that is looked for, and nothing is held back. In
//! JSON a quote inside a string has a backslash before it, which tells the key from the same letters
//! in a text.

mod told;

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::record::Usage;

const KEY: &[u8] = b"\"usage\"";

/// The longest object that is read; a real one has some hundred bytes.
const LONGEST: usize = 4096;

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(KEY));

/// The search, as far as the answer has come.
#[derive(Debug, Default)]
pub(super) struct UsageSearch {
    state: State,
    /// The byte before what comes next.
    before: u8,
    /// The object that is being read.
    object: Vec<u8>,
    /// What the first one said.
    first: Option<Usage>,
    /// The last one after that. Of the thousand that `continuous_usage_stats` brings, it alone is
    /// parsed.
    last: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// So many bytes of the key have come.
    Key(usize),
    /// The key has come; the colon may have.
    Value { colon: bool },
    /// In the object, inside so many braces.
    Object(usize),
}

impl Default for State {
    fn default() -> Self {
        Self::Key(0)
    }
}

impl UsageSearch {
    /// Takes the next bytes of the answer.
    pub(super) fn push(&mut self, data: &[u8]) {
        let mut rest = data;
        while !rest.is_empty() {
            let read = match self.state {
                State::Key(0) => self.seek(rest),
                State::Key(seen) => self.go_on(rest, seen),
                State::Value { colon } => self.value(rest, colon),
                State::Object(depth) => self.object(rest, depth),
            };
            if let Some(last) = read.checked_sub(1).and_then(|last| rest.get(last)) {
                self.before = *last;
            }
            rest = rest.get(read..).unwrap_or_default();
        }
    }

    /// What has been found so far: the last word on each number, be it in the last object or the
    /// first.
    pub(super) fn found(&self) -> Usage {
        let first = self.first.unwrap_or_default();
        if self.last.is_empty() {
            return first;
        }
        let last = told::read(&self.last);
        Usage {
            prompt: last.prompt.or(first.prompt),
            cached: last.cached.or(first.cached),
            completion: last.completion.or(first.completion),
        }
    }

    /// Looks for the key; gives how many bytes were read, as all of these do.
    fn seek(&mut self, data: &[u8]) -> usize {
        if let Some(at) = FINDER.find(data) {
            let before = at.checked_sub(1).and_then(|at| data.get(at));
            if before.copied().unwrap_or(self.before) != b'\\' {
                self.state = State::Value { colon: false };
            }
            return at + KEY.len();
        }
        // Its first bytes may be the last ones here, but hardly ever are: an event ends in line feeds.
        self.state = State::Key(0);
        if !data.last().is_some_and(|last| KEY.contains(last)) {
            return data.len();
        }
        // They hold one quote, so there is one place.
        let from = data.len().saturating_sub(KEY.len() - 1);
        let end = data.get(from..).unwrap_or_default();
        let begun = memchr::memrchr(b'"', end).and_then(|at| {
            let part = end.get(at..)?;
            let before = (from + at).checked_sub(1).and_then(|at| data.get(at));
            let is_key = KEY.starts_with(part);
            (is_key && before.copied().unwrap_or(self.before) != b'\\').then_some(part.len())
        });
        self.state = State::Key(begun.unwrap_or(0));
        data.len()
    }

    fn go_on(&mut self, data: &[u8], seen: usize) -> usize {
        let wanted = KEY.get(seen..).unwrap_or_default();
        let common = wanted.len().min(data.len());
        if data.get(..common) != wanted.get(..common) {
            self.state = State::Key(0);
            return 0;
        }
        self.state = if common == wanted.len() {
            State::Value { colon: false }
        } else {
            State::Key(seen + common)
        };
        common
    }

    fn value(&mut self, data: &[u8], mut colon: bool) -> usize {
        for (at, byte) in data.iter().enumerate() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => {}
                b':' if !colon => colon = true,
                b'{' if colon => {
                    self.object.clear();
                    self.state = State::Object(0);
                    return at;
                }
                // Another value, such as null, or no key at all.
                _ => {
                    self.state = State::Key(0);
                    return at;
                }
            }
        }
        self.state = State::Value { colon };
        data.len()
    }

    fn object(&mut self, data: &[u8], mut depth: usize) -> usize {
        for at in memchr::memchr2_iter(b'{', b'}', data) {
            match data.get(at) {
                Some(b'{') => depth += 1,
                _ => depth -= 1,
            }
            if depth == 0 {
                let end = at + 1;
                self.keep_object(data.get(..end).unwrap_or_default());
                self.state = State::Key(0);
                return end;
            }
        }
        self.object.extend_from_slice(data);
        self.state = if self.object.len() > LONGEST {
            State::Key(0)
        } else {
            State::Object(depth)
        };
        data.len()
    }

    /// Keeps the object that ends in `rest`; it is copied only where it came in pieces, or may be
    /// followed by another.
    fn keep_object(&mut self, rest: &[u8]) {
        if self.first.is_none() && self.object.is_empty() {
            self.first = Some(told::read(rest));
            return;
        }
        self.object.extend_from_slice(rest);
        if self.first.is_none() {
            self.first = Some(told::read(&self.object));
        } else {
            std::mem::swap(&mut self.last, &mut self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"id":"c","choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":9} and \"usage"}}],"usage" : {"prompt_tokens":5,"total_tokens":12,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":3}},"prompt_logprobs":null}"#;
    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\ndata: [DONE]\n\n";
    const RESPONSES: &str = "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":5,\"input_tokens_details\":{\"cached_tokens\":3},\"output_tokens\":7,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":12}}}\n\n";
    const MESSAGES: &str = "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":0,\"cache_read_input_tokens\":3}}}\n\nevent: message_delta\ndata: {\"usage\":{\"output_tokens\":7}}\n\n";

    fn found_in<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Usage {
        let mut search = UsageSearch::default();
        pieces.into_iter().for_each(|piece| search.push(piece));
        search.found()
    }

    fn usage(prompt: u64, cached: u64, completion: u64) -> Usage {
        Usage {
            prompt: Some(prompt),
            cached: Some(cached),
            completion: Some(completion),
        }
    }

    #[test]
    fn the_last_one_is_found_however_the_answer_is_split() {
        for text in [JSON, STREAM, RESPONSES, MESSAGES] {
            let bytes = text.as_bytes();
            assert_eq!(found_in([bytes]), usage(5, 3, 7), "{text}");
            assert_eq!(found_in(bytes.chunks(1)), usage(5, 3, 7), "{text}");
            for at in 0..=bytes.len() {
                let (one, two) = bytes.split_at(at);
                assert_eq!(
                    found_in([one, &b""[..], two]),
                    usage(5, 3, 7),
                    "split at {at}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_told_is_not_known() {
        for text in [
            "",
            "{}",
            "usage",
            r#"{"usage":null}"#,
            r#"{"usage":5}"#,
            r#"{"usage":{}}"#,
            r#"{"usage":[{"prompt_tokens":5}]}"#,
            r#"{"usage":{"prompt_tokens":"5"}}"#,
            r#"{"usage":{"prompt_tokens":-5}}"#,
            r#"{"usage":{"prompt_tokens":5"#,
            r#"{"usage","prompt_tokens":5}"#,
            r#"{"usage"::{"prompt_tokens":5}}"#,
            r#"{"usages":{"prompt_tokens":5}}"#,
            r#"{"text":"\"usage\":{\"prompt_tokens\":5}"}"#,
            r#"{"usage":{"type":"duration","seconds":3}}"#,
        ] {
            assert_eq!(found_in([text.as_bytes()]), Usage::default(), "{text}");
            let bytes = text.as_bytes().chunks(1);
            assert_eq!(found_in(bytes), Usage::default(), "{text}");
        }
    }

    #[test]
    fn a_search_goes_on_after_what_was_no_usage() {
        for before in [
            "{\"usage\":null,",
            "{\"usage\",\"usage\" ",
            "{\"usa\"usage\":[",
            "\"usage\":{\"prompt_tokens\":\"x\"},",
            "\"usage\":{\"prompt_tokens\":1},\"usage\":{\"prompt_tokens\":2},",
        ] {
            let text = format!("{before}\"usage\":{{\"prompt_tokens\":4}}");
            let found = found_in([text.as_bytes()]);
            assert_eq!(found.prompt, Some(4), "{text}");
            assert_eq!(found_in(text.as_bytes().chunks(1)), found, "{text}");
        }
    }

    #[test]
    fn an_object_without_an_end_is_given_up() {
        let mut search = UsageSearch::default();
        search.push(b"\"usage\":{");
        for _ in 0..100 {
            search.push(&[b' '; 100]);
        }
        assert!(search.object.len() <= LONGEST + 100);
        search.push(b"} \"usage\":{\"completion_tokens\":1}");
        assert_eq!(search.found().completion, Some(1));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let mut after_key = b"\"usage\":{".to_vec();
            after_key.extend_from_slice(&bytes);
            found_in([&bytes[..], &after_key]);
        }

        #[test]
        fn no_text_is_taken_for_it(text in "[usage\"\\\\:{} ]{0,40}") {
            let answer = serde_json::json!({"content": text, "usage": {"prompt_tokens": 1}, "z": text});
            let found = found_in([answer.to_string().as_bytes()]);
            proptest::prop_assert_eq!(found.prompt, Some(1));
        }
    }
}
