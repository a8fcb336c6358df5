//! Reads one string out of a JSON text that comes in pieces, without keeping the text.
//!
//! No validator: it follows strings and brackets, which is all that is needed to tell a key of
//! the wanted object from the same word elsewhere. A text that is not JSON leads to nothing, or to
//! a string that is not what it seems; whoever asks must be able to bear that.

use crate::engines::LONGEST_ID;
use crate::request::route::is_response_id;

/// The longest key or value that is kept.
const LONGEST: usize = LONGEST_ID;

/// What a further byte brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// Nothing yet.
    More,
    /// The string, if it looks like an id.
    Found(String),
    /// There is none, or nothing that looks like one.
    Nothing,
}

/// A walk through the text to one string.
#[derive(Debug)]
pub(super) struct Scan {
    /// The keys that lead there, from the outermost object inwards.
    path: &'static [&'static str],
    /// How many of them have been followed into the object behind them.
    followed: usize,
    /// How many brackets are open.
    depth: usize,
    at: At,
    /// The string that is being read, where it may matter.
    text: Vec<u8>,
}

/// What comes next in the innermost object that may matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The text's first bracket.
    Begin,
    /// A key, or a comma or the end before or after one.
    Key,
    /// In a key.
    InKey,
    /// The colon behind a key; whether it is the wanted one.
    Colon(bool),
    /// The value of a wanted key.
    Value,
    /// In the wanted string.
    InValue,
    /// Anything, up to the next comma of this object.
    Skip,
    /// In a string that does not matter; whether a backslash was just read.
    InSkipped(bool),
}

impl Scan {
    /// A walk along these keys.
    pub(super) fn new(path: &'static [&'static str]) -> Self {
        Self {
            path,
            followed: 0,
            depth: 0,
            at: At::Begin,
            text: Vec::new(),
        }
    }

    /// Goes on by one byte.
    pub(super) fn step(&mut self, byte: u8) -> Scanned {
        let is_blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.at {
            At::InKey | At::InValue => return self.in_string(byte),
            At::InSkipped(escaped) => self.in_skipped(byte, escaped),
            _ if is_blank => {}
            At::Begin | At::Value if byte == b'{' => return self.enter(),
            At::Key => match byte {
                b'"' => self.begin_string(At::InKey),
                b',' => {}
                // The object ends without it.
                _ => return Scanned::Nothing,
            },
            At::Colon(wanted) if byte == b':' => {
                self.at = if wanted { At::Value } else { At::Skip };
            }
            At::Begin | At::Colon(_) => return Scanned::Nothing,
            At::Value if byte == b'"' && self.is_last() => self.begin_string(At::InValue),
            At::Value => {
                self.at = At::Skip;
                return self.skip(byte);
            }
            At::Skip => return self.skip(byte),
        }
        Scanned::More
    }

    /// The object whose key is looked for is the innermost open one.
    fn is_home(&self) -> bool {
        self.depth == self.followed + 1
    }

    /// The key that is looked for is that of the string itself.
    fn is_last(&self) -> bool {
        self.followed + 1 == self.path.len()
    }

    fn enter(&mut self) -> Scanned {
        if self.at == At::Value {
            if self.is_last() {
                return Scanned::Nothing;
            }
            self.followed += 1;
        }
        self.depth += 1;
        self.at = At::Key;
        Scanned::More
    }

    fn begin_string(&mut self, at: At) {
        self.text.clear();
        self.at = at;
    }

    fn in_string(&mut self, byte: u8) -> Scanned {
        match (byte, self.at) {
            (b'"', At::InKey) => {
                let wanted = self.path.get(self.followed);
                self.at = At::Colon(wanted.is_some_and(|key| key.as_bytes() == self.text));
            }
            (b'"', _) => return found(&self.text),
            // Neither key nor id is ever written with one.
            (b'\\', At::InValue) => return Scanned::Nothing,
            _ if self.text.len() == LONGEST && self.at == At::InValue => return Scanned::Nothing,
            _ => {
                // A key with an escape is cut short of the wanted one by its backslash.
                if self.text.len() < LONGEST {
                    self.text.push(byte);
                }
                if byte == b'\\' {
                    self.at = At::InSkipped(true);
                }
            }
        }
        Scanned::More
    }

    fn in_skipped(&mut self, byte: u8, escaped: bool) {
        self.at = match byte {
            b'\\' if !escaped => At::InSkipped(true),
            b'"' if !escaped => At::Skip,
            _ => At::InSkipped(false),
        };
    }

    fn skip(&mut self, byte: u8) -> Scanned {
        match byte {
            b'"' => self.at = At::InSkipped(false),
            b',' if self.is_home() => self.at = At::Key,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' if self.is_home() => return Scanned::Nothing,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        Scanned::More
    }
}

fn found(text: &[u8]) -> Scanned {
    match str::from_utf8(text) {
        Ok(id) if is_response_id(id) => Scanned::Found(id.to_owned()),
        _ => Scanned::Nothing,
    }
}
