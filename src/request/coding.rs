//! Undoes the content codings of a request body, so that it can be routed.
//!
//! Only routing reads the result: the body goes to the engine as it came.

use std::io::{self, Read};

use bytes::Bytes;

use crate::body_buffer::BodyBuffer;

/// The most codings that are undone, one inside the other.
const MOST_CODINGS: usize = 3;
/// The largest window a zstd frame may ask for, as a power of two: 8 MiB, what its
/// specification asks decoders to support.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Why a body could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// A coding nobody here knows.
    #[error("the content coding `{0}` is not supported; accepted are gzip, deflate, br and zstd")]
    Unsupported(String),
    /// More codings than anybody needs.
    #[error("the request body has more than {MOST_CODINGS} content codings")]
    TooMany,
    /// Not what its coding says, or cut short.
    #[error("the request body is not valid {0}")]
    Corrupt(&'static str),
    /// It grows beyond the limit.
    #[error("the decoded request body is larger than the limit of {0} bytes")]
    TooLarge(usize),
}

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, or RFC 1951 as some clients send it.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// The codings a `Content-Encoding` names, in the order they were applied; `identity` is none.
    ///
    /// # Errors
    /// One is unknown, or there are too many.
    pub fn list(field: &str) -> Result<Vec<Self>, CodingError> {
        let names = field
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let codings = names.filter_map(|name| match &*name.to_ascii_lowercase() {
            "identity" => None,
            "gzip" | "x-gzip" => Some(Ok(Self::Gzip)),
            "deflate" => Some(Ok(Self::Deflate)),
            "br" => Some(Ok(Self::Brotli)),
            "zstd" => Some(Ok(Self::Zstd)),
            _ => Some(Err(CodingError::Unsupported(
                name.chars().take(32).collect(),
            ))),
        });
        let codings: Vec<_> = codings.collect::<Result<_, _>>()?;
        if codings.len() > MOST_CODINGS {
            return Err(CodingError::TooMany);
        }
        Ok(codings)
    }

    fn undo(self, body: &[u8], limit: usize) -> Result<Bytes, CodingError> {
        match self {
            Self::Gzip => read(flate2::read::MultiGzDecoder::new(body), limit, "gzip"),
            Self::Deflate if is_zlib(body) => {
                read(flate2::read::ZlibDecoder::new(body), limit, "deflate")
            }
            Self::Deflate => read(flate2::read::DeflateDecoder::new(body), limit, "deflate"),
            Self::Brotli => read(brotli::Decompressor::new(body, 4096), limit, "brotli"),
            Self::Zstd => {
                let corrupt = |_| CodingError::Corrupt("zstd");
                let mut decoder = zstd::Decoder::with_buffer(body).map_err(corrupt)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(corrupt)?;
                read(decoder, limit, "zstd")
            }
        }
    }
}

/// Undoes `codings`, the last one first. Neither the result nor anything between may be larger
/// than `limit` bytes.
///
/// # Errors
/// The body is corrupt, cut short or too large.
pub fn decode(body: &Bytes, codings: &[Coding], limit: usize) -> Result<Bytes, CodingError> {
    let mut decoded = body.clone();
    for coding in codings.iter().rev() {
        decoded = coding.undo(&decoded, limit)?;
    }
    Ok(decoded)
}

fn read(source: impl Read, limit: usize, name: &'static str) -> Result<Bytes, CodingError> {
    let mut decoded = BodyBuffer::default();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    io::copy(&mut source.take(most), &mut decoded).map_err(|_| CodingError::Corrupt(name))?;
    if decoded.len() > limit {
        return Err(CodingError::TooLarge(limit));
    }
    Ok(decoded.freeze())
}

/// Whether the bytes start with a zlib header (RFC 1950 section 2.2).
fn is_zlib(body: &[u8]) -> bool {
    match body {
        [method, flags, ..] => {
            method & 0x0f == 8 && (u16::from(*method) * 256 + u16::from(*flags)).is_multiple_of(31)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] =
        br#"{"model":"m","prompt":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn encoded(coding: Coding) -> Vec<Vec<u8>> {
        match coding {
            Coding::Gzip => vec![gzip(TEXT)],
            Coding::Deflate => {
                let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
                let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
                zlib.write_all(TEXT).unwrap();
                raw.write_all(TEXT).unwrap();
                vec![zlib.finish().unwrap(), raw.finish().unwrap()]
            }
            Coding::Brotli => {
                let mut out = Vec::new();
                brotli::CompressorWriter::new(&mut out, 4096, 5, 20)
                    .write_all(TEXT)
                    .unwrap();
                vec![out]
            }
            Coding::Zstd => vec![zstd::encode_all(TEXT, 3).unwrap()],
        }
    }

    const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

    #[test]
    fn every_coding_is_undone() {
        for coding in ALL {
            for body in encoded(coding) {
                assert_eq!(
                    decode(&body.into(), &[coding], 1000).as_deref(),
                    Ok(TEXT),
                    "{coding:?}"
                );
            }
        }
    }

    #[test]
    fn a_body_cut_short_is_corrupt() {
        for coding in ALL {
            for body in encoded(coding) {
                let cut = Bytes::from(body[..body.len() - 5].to_vec());
                let result = decode(&cut, &[coding], 1000);
                assert!(
                    matches!(result, Err(CodingError::Corrupt(_))),
                    "{coding:?}: {result:?}"
                );
            }
        }
    }

    #[test]
    fn codings_are_undone_from_the_last_to_the_first() {
        let twice = gzip(&gzip(TEXT));
        let codings = Coding::list("gzip, gzip").unwrap();
        assert_eq!(decode(&twice.into(), &codings, 1000).as_deref(), Ok(TEXT));
        let mixed = zstd::encode_all(&*gzip(TEXT), 3).unwrap();
        let codings = Coding::list("gzip,zstd").unwrap();
        assert_eq!(decode(&mixed.into(), &codings, 1000).as_deref(), Ok(TEXT));
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let bomb: Bytes = gzip(&vec![b' '; 10_000_000]).into();
        assert!(bomb.len() < 20_000);
        assert_eq!(
            decode(&bomb, &[Coding::Gzip], 1_000_000),
            Err(CodingError::TooLarge(1_000_000))
        );
        assert!(decode(&bomb, &[Coding::Gzip], 10_000_000).is_ok());
    }

    #[test]
    fn fields_are_read_in_any_case_and_unknown_codings_named() {
        assert_eq!(
            Coding::list("GZip , BR").unwrap(),
            [Coding::Gzip, Coding::Brotli]
        );
        assert_eq!(Coding::list("identity").unwrap(), []);
        assert_eq!(
            Coding::list("lzma"),
            Err(CodingError::Unsupported("lzma".to_owned()))
        );
        assert_eq!(
            Coding::list("gzip,gzip,gzip,gzip"),
            Err(CodingError::TooMany)
        );
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_grow(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            for coding in ALL {
                if let Ok(decoded) = decode(&bytes.clone().into(), &[coding], 4096) {
                    proptest::prop_assert!(decoded.len() <= 4096);
                }
            }
        }
    }
}
