//! Follows the chunked coding of a request body, byte by byte, and accepts one reading of it only.
//!
//! RFC 9112 section 7.1, without the blanks it lets recipients tolerate: what two parsers could
//! read differently is how one request is smuggled behind another.

/// The most digits of a chunk size that fit 64 bits.
const MAX_SIZE_DIGITS: u8 = 15;
/// The longest extension of a chunk.
const MAX_EXTENSION: usize = 4096;
/// The longest trailer section.
const MAX_TRAILERS: usize = 16 * 1024;

/// Why a body is not acceptable; there is nothing to tell but that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// How far a body has been followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    state: State,
    size: u64,
    digits: u8,
    /// Bytes of the extension, or of all trailers, so far.
    length: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    End,
}

impl Chunks {
    /// Follows `bytes`, and returns how many of them belong to the body: all, or fewer at its end.
    /// What the chunks carry goes to `data`, piece by piece.
    pub(super) fn follow(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
    ) -> Result<usize, Malformed> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if self.state == State::End {
                break;
            }
            at += if self.state == State::Data {
                let taken = self.take_data(rest.len());
                data(rest.get(..taken).unwrap_or_default());
                taken
            } else {
                self.step(rest.first().copied().unwrap_or_default())?;
                1
            };
        }
        Ok(at)
    }

    /// Whether the body has ended.
    pub(super) fn ended(&self) -> bool {
        self.state == State::End
    }

    fn take_data(&mut self, available: usize) -> usize {
        let taken = usize::try_from(self.size)
            .unwrap_or(usize::MAX)
            .min(available);
        self.size -= taken as u64;
        if self.size == 0 {
            self.state = State::DataCr;
        }
        taken
    }

    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => self.digit(byte)?,
            (State::Size, b'\r') if self.digits > 0 => State::SizeLf,
            (State::Size, b';') if self.digits > 0 => State::Extension,
            (State::Extension, b'\r') => State::SizeLf,
            (State::Extension, b'\t' | b' '..=b'~') => {
                self.count(MAX_EXTENSION, State::Extension)?
            }
            (State::SizeLf, b'\n') => self.after_size(),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size,
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerStart | State::TrailerName, byte)
                if super::head::is_token_byte(byte) =>
            {
                self.count(MAX_TRAILERS, State::TrailerName)?
            }
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, byte) if !super::head::is_forbidden_in_value(byte) => {
                self.count(MAX_TRAILERS, State::TrailerValue)?
            }
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::EndLf, b'\n') => State::End,
            _ => return Err(Malformed),
        };
        Ok(())
    }

    fn digit(&mut self, byte: u8) -> Result<State, Malformed> {
        self.digits += 1;
        if self.digits > MAX_SIZE_DIGITS {
            return Err(Malformed);
        }
        let value = char::from(byte).to_digit(16).ok_or(Malformed)?;
        self.size = self.size * 16 + u64::from(value);
        Ok(State::Size)
    }

    fn after_size(&mut self) -> State {
        self.digits = 0;
        self.length = 0;
        if self.size == 0 {
            State::TrailerStart
        } else {
            State::Data
        }
    }

    fn count(&mut self, limit: usize, state: State) -> Result<State, Malformed> {
        self.length += 1;
        if self.length > limit {
            Err(Malformed)
        } else {
            Ok(state)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(body: &str) -> Result<(usize, bool), Malformed> {
        let mut chunks = Chunks::default();
        let taken = chunks.follow(body.as_bytes(), |_| {})?;
        Ok((taken, chunks.ended()))
    }

    /// Bodies, and what they carry.
    const GOOD: [(&str, &str); 8] = [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        (
            "1A\r\nabcdefghijklmnopqrstuvwxyz\r\n000\r\n\r\n",
            "abcdefghijklmnopqrstuvwxyz",
        ),
        (
            "5;name=value;other=\"quoted\"\r\nhello\r\n0;x\r\n\r\n",
            "hello",
        ),
        ("5\r\nhel\r\n\r\n0\r\n\r\n", "hel\r\n"),
        ("0\r\nX-Trailer: a b\r\nY:\r\n\r\n", ""),
        ("000000000000005\r\nhello\r\n0\r\n\r\n", "hello"),
        ("2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "hello"),
    ];

    #[test]
    fn a_good_body_is_followed_to_its_end_and_no_further() {
        for (body, _) in GOOD {
            assert_eq!(follow(body), Ok((body.len(), true)), "{body:?}");
            let more = format!("{body}GET / HTTP/1.1\r\n");
            assert_eq!(follow(&more), Ok((body.len(), true)), "{body:?}");
        }
    }

    #[test]
    fn the_answer_is_the_same_however_the_body_is_split() {
        for (body, carried) in GOOD {
            for at in 0..body.len() {
                let (one, two) = body.as_bytes().split_at(at);
                let mut chunks = Chunks::default();
                let mut data = Vec::new();
                let mut keep = |piece: &[u8]| data.extend_from_slice(piece);
                assert_eq!(chunks.follow(one, &mut keep), Ok(one.len()));
                assert!(!chunks.ended());
                assert_eq!(chunks.follow(two, &mut keep), Ok(two.len()));
                assert!(chunks.ended());
                assert_eq!(data, carried.as_bytes(), "{body:?}");
            }
        }
    }

    #[test]
    fn what_others_could_read_otherwise_is_refused() {
        for body in [
            "5 \r\nhello\r\n",
            "5\t\r\nhello\r\n",
            " 5\r\nhello\r\n",
            "0x5\r\nhello\r\n",
            "+5\r\nhello\r\n",
            "-5\r\nhello\r\n",
            "\r\nhello\r\n",
            ";x\r\n",
            "5\nhello\r\n",
            "5\rhello\r\n",
            "5;x\nhello\r\n",
            "5;x\0\r\nhello\r\n",
            "5\r\nhello0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello!\r\n",
            "g\r\n",
            "ffffffffffffffff\r\n",
            "00000000000000005\r\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\n folded: x\r\n\r\n",
            "0\r\nX: a\nY: b\r\n\r\n",
            "0\r\n: x\r\n\r\n",
            "0\r\n\n",
            "0\n\r\n",
        ] {
            assert_eq!(follow(body), Err(Malformed), "{body:?}");
        }
    }

    #[test]
    fn extensions_and_trailers_have_an_end() {
        assert_eq!(
            follow(&format!("5;{}\r\n", "x".repeat(MAX_EXTENSION + 1))),
            Err(Malformed)
        );
        let trailers = "X: y\r\n".repeat(MAX_TRAILERS / 2);
        assert_eq!(follow(&format!("0\r\n{trailers}\r\n")), Err(Malformed));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_run_ahead(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            if let Ok(taken) = Chunks::default().follow(&bytes, |_| {}) {
                proptest::prop_assert!(taken <= bytes.len());
            }
        }
    }
}
