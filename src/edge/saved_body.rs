//! A request body, kept for every attempt.

use bytes::{Bytes, BytesMut};

/// The request body as read so far.
#[derive(Debug, Default)]
pub(super) enum SavedBody {
    #[default]
    Empty,
    /// One read brought it; most prompts fit here, uncopied.
    One(Bytes),
    Many(BytesMut),
    /// Complete, in one piece.
    Whole(Bytes),
}

impl SavedBody {
    pub(super) fn push(&mut self, data: &Bytes) {
        *self = match std::mem::take(self) {
            Self::Empty => Self::One(data.clone()),
            Self::One(first) | Self::Whole(first) => {
                let mut all = BytesMut::with_capacity(2 * (first.len() + data.len()));
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
    fn pieces_of_any_number_make_one_body() {
        for pieces in [&[][..], &["one"], &["one", "two"], &["a", "b", "c", "d"]] {
            let mut body = SavedBody::default();
            for piece in pieces {
                body.push(&Bytes::from_static(piece.as_bytes()));
                assert_eq!(body.whole(), None, "it has not ended");
            }
            body.end();
            let expected = (!pieces.is_empty()).then(|| Bytes::from(pieces.concat()));
            assert_eq!(body.whole(), expected.as_ref());
            assert_eq!(body.is_empty(), pieces.is_empty());
        }
    }
}
