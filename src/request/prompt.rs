//! The prompt of a JSON body as one text, so that two prompts an engine would begin alike begin
//! alike here.
//!
//! An engine puts tools before the messages and the messages in a row, so does the text; what
//! only changes how the answer is made, such as `temperature`, is no part of it. Strings are
//! decoded, fields of a message have one order, and a text is the same whether it comes as a string
//! or as the only part of a list. Bytes that are no UTF-8 stand between, so that nothing a client
//! writes looks like the end of a message.
//!
//! Nothing here can fail: an odd shape counts by its bytes, or not at all.

mod shapes;

use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_128;

use self::shapes::{Field, fields, items, string};
use crate::routing::Blocks;

/// The top-level fields that are part of a prompt, in the order in which engines put them.
const SOURCES: [&str; 6] = [
    "tools",
    "system",
    "instructions",
    "messages",
    "prompt",
    "input",
];
/// Fields that clients move from one message to the next, and that no engine shows to its model.
const NO_CONTENT: &str = "cache_control";
/// Fields whose strings are media, or say where they are.
const MEDIA: [&str; 6] = [
    "url",
    "data",
    "file_data",
    "image_url",
    "audio_url",
    "video_url",
];
/// How much text longer media stand for: a picture is some hundred tokens however many bytes it
/// has.
const MEDIA_BYTES: usize = 2048;
/// How deep the fields of a part are put in order; what is deeper counts by its bytes.
const DEPTH: usize = 2;

/// What a separator stands before, or behind.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Mark {
    Source = b's',
    Message = b'm',
    Content = b'c',
    Part = b'p',
    Key = b'k',
    Value = b'v',
    End = b'e',
}

/// The parts of a body that make its prompt.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources<'a>([Option<&'a RawValue>; SOURCES.len()]);

impl<'a> Sources<'a> {
    /// Where the value of a top-level field belongs, if it is part of the prompt.
    pub(super) fn slot(&mut self, key: &str) -> Option<&mut Option<&'a RawValue>> {
        let place = SOURCES.iter().position(|source| *source == key)?;
        self.0.get_mut(place)
    }

    /// The text, as far as routing looks at it; `None` where there is none.
    pub(super) fn text(&self) -> Option<Vec<u8>> {
        let mut text = Text::default();
        for (source, raw) in SOURCES.iter().zip(self.0) {
            let Some(raw) = raw.filter(|raw| raw.get() != "null") else {
                continue;
            };
            text.mark(Mark::Source);
            match *source {
                "tools" => text.put(raw.get()),
                "system" | "instructions" => text.content(raw),
                _ => text.messages(raw),
            }
        }
        (!text.0.is_empty()).then_some(text.0)
    }
}

#[derive(Default)]
struct Text(Vec<u8>);

impl Text {
    fn is_full(&self) -> bool {
        self.0.len() >= Blocks::MOST_BYTES
    }

    fn put(&mut self, text: impl AsRef<[u8]>) {
        let room = Blocks::MOST_BYTES.saturating_sub(self.0.len());
        let text = text.as_ref();
        self.0.extend_from_slice(text.get(..room).unwrap_or(text));
    }

    fn mark(&mut self, mark: Mark) {
        self.put([0xFF, mark as u8]);
    }

    /// A list of messages, or of texts or tokens, or one of them.
    fn messages(&mut self, raw: &RawValue) {
        let is_list = items(raw, |item| {
            self.message(item);
            !self.is_full()
        });
        if !is_list {
            self.message(raw);
        }
    }

    fn message(&mut self, raw: &RawValue) {
        self.mark(Mark::Message);
        let Some(fields) = fields(raw) else {
            return self.value(raw);
        };
        let of = |key: &str| fields.iter().find(|field| field.key == key);
        if let Some(role) = of("role") {
            self.value(role.raw);
        }
        if let Some(content) = of("content") {
            self.mark(Mark::Content);
            self.content(content.raw);
        }
        let others = fields
            .iter()
            .filter(|field| !["role", "content"].contains(&&*field.key));
        self.fields(others, 0);
    }

    /// A string, or parts.
    fn content(&mut self, raw: &RawValue) {
        let mut is_first = true;
        let is_list = items(raw, |item| {
            self.part(item, std::mem::take(&mut is_first));
            !self.is_full()
        });
        if !is_list {
            self.value(raw);
        }
    }

    fn part(&mut self, raw: &RawValue, is_first: bool) {
        let fields = fields(raw).unwrap_or_default();
        let of = |key: &str| fields.iter().find(|field| field.key == key);
        let kind = of("type").and_then(|kind| string(kind.raw));
        let is_text = kind.is_none_or(|kind| kind.ends_with("text"));
        let text = of("text").filter(|_| is_text).map_or(raw, |text| text.raw);
        if let Some(text) = string(text) {
            if !is_first {
                self.mark(Mark::Part);
            }
            return self.put(&*text);
        }
        self.mark(Mark::Part);
        if fields.is_empty() {
            self.value(raw);
        } else {
            self.fields(fields.iter(), DEPTH);
        }
    }

    fn fields<'f, 'a: 'f>(&mut self, fields: impl Iterator<Item = &'f Field<'a>>, depth: usize) {
        for field in fields.filter(|field| field.key != NO_CONTENT && field.raw.get() != "null") {
            self.mark(Mark::Key);
            self.put(&*field.key);
            self.mark(Mark::Value);
            let inner = fields_within(field.raw, depth);
            match inner {
                Some(inner) => {
                    self.fields(inner.iter(), depth - 1);
                    self.mark(Mark::End);
                }
                None if depth > 0 && MEDIA.contains(&&*field.key) => self.media(field.raw),
                None => self.value(field.raw),
            }
        }
    }

    /// A string by what it says, anything else by its bytes.
    fn value(&mut self, raw: &RawValue) {
        match string(raw) {
            Some(text) => self.put(&*text),
            None if raw.get() == "null" => {}
            None => self.put(raw.get()),
        }
    }

    /// Media by their hash, where they are long.
    fn media(&mut self, raw: &RawValue) {
        if raw.get().len() <= MEDIA_BYTES {
            return self.value(raw);
        }
        let hash = xxh3_128(raw.get().as_bytes()).to_le_bytes();
        self.put(hash.repeat(MEDIA_BYTES / hash.len()));
    }
}

fn fields_within(raw: &RawValue, depth: usize) -> Option<Vec<Field<'_>>> {
    if depth == 0 { None } else { fields(raw) }
}

#[cfg(test)]
mod tests;
