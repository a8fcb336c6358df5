//! A request body, kept for every attempt.

use bytes::Bytes;

use crate::body_buffer::BodyBuffer;

/// The longest body that gets its room at once. What is not filled costs no memory, only addresses.
const MOST: usize = 1 << 30;

/// Where a body of this length is collected.
pub(super) fn room_for(length: usize) -> BodyBuffer {
    BodyBuffer::with_capacity(length.min(MOST))
}

/// The request body as read so far.
#[derive(Debug, Default)]
pub(super) enum SavedBody {
    #[default]
    Empty,
    /// One read brought it; most prompts fit here, uncopied.
    One(Bytes),
    Many(BodyBuffer),
    /// Complete, in one piece.
    Whole(Bytes),
}

impl SavedBody {
    /// Adds what has been read; `declared` is how long the whole body will be, where that is known.
    pub(super) fn push(&mut self, data: &Bytes, declared: Option<usize>) {
        *self = match std::mem::take(self) {
            Self::Empty => Self::One(data.clone()),
            Self::One(first) | Self::Whole(first) => {
                let so_far = first.len() + data.len();
                let declared = declared.filter(|length| (so_far..=MOST).contains(length));
                let mut all = BodyBuffer::with_capacity(declared.unwrap_or(2 * so_far));
                all.extend_from_slice(&first);
                all.extend_from_slice(data);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.extend_from_slice(data);
                Self::Many(all)
            }
        };
    }

    pub(super) fn end(&mut self) {
        *self = match std::mem::take(self) {
            Self::Empty => Self::Empty,
            Self::One(body) | Self::Whole(body) => Self::Whole(body),
            Self::Many(all) => Self::Whole(all.freeze()),
        };
    }

    pub(super) fn whole(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(body) => Some(body),
            _ => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_declared_length_is_never_moved() {
        let mut body = SavedBody::default();
        body.push(&Bytes::from_static(b"12"), Some(100));
        body.push(&Bytes::from_static(b"34"), Some(100));
        let SavedBody::Many(all) = &body else {
            panic!("{body:?}")
        };
        let (place, room) = (all.as_ref().as_ptr(), all.capacity());
        assert!((100..200).contains(&room), "{room}");
        body.push(&Bytes::from(vec![b'5'; 96]), Some(100));
        body.end();
        assert_eq!(body.whole().map(|whole| whole.as_ptr()), Some(place));
    }

    #[test]
    fn pieces_of_any_number_make_one_body() {
        let all = [&[][..], &["one"], &["one", "two"], &["a", "b", "c", "d"]];
        // What is declared decides about memory only.
        let declared = [None, Some(0), Some(4), Some(usize::MAX)];
        for (pieces, declared) in all.into_iter().flat_map(|it| declared.map(|at| (it, at))) {
            let mut body = SavedBody::default();
            for piece in pieces {
                body.push(&Bytes::from_static(piece.as_bytes()), declared);
                assert_eq!(body.whole(), None, "it has not ended");
            }
            body.end();
            let expected = (!pieces.is_empty()).then(|| Bytes::from(pieces.concat()));
            assert_eq!(body.whole(), expected.as_ref());
            assert_eq!(body.is_empty(), pieces.is_empty());
        }
    }
}
