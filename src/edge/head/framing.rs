//! What a request's head says of its body, and of its host.

use super::Minor;
use super::spelling::trim_spaces;
use crate::api_error::ApiError;

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// By its length; zero where there is no body.
    Length(u64),
    /// By chunks.
    Chunked,
}

/// What the fields say of the message's length and of its host.
#[derive(Default)]
pub(super) struct Framing {
    length: Option<u64>,
    chunked: bool,
    hosts: usize,
}

impl Framing {
    /// Takes a field's name and value into account.
    pub(super) fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), ApiError> {
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = one_length(value)?;
            if self
                .length
                .replace(length)
                .is_some_and(|before| before != length)
            {
                return Err(ApiError::invalid_request("Content-Length is given twice"));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(ApiError::invalid_request(
                    "the only Transfer-Encoding accepted is `chunked`, once",
                ));
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"host") {
            if value.is_empty() {
                return Err(ApiError::invalid_request("the Host field is empty"));
            }
            self.hosts += 1;
        }
        Ok(())
    }

    /// How the body is delimited, now that all fields are known.
    pub(super) fn check(&self, version: Minor) -> Result<BodyFraming, ApiError> {
        if self.chunked && self.length.is_some() {
            return Err(ApiError::invalid_request(
                "Content-Length and Transfer-Encoding exclude each other",
            ));
        }
        if self.chunked && version == Minor::Zero {
            return Err(ApiError::invalid_request(
                "HTTP/1.0 has no Transfer-Encoding",
            ));
        }
        match (self.hosts, version) {
            (1, _) | (0, Minor::Zero) => {}
            (0, Minor::One) => return Err(ApiError::invalid_request("the Host field is missing")),
            _ => return Err(ApiError::invalid_request("the Host field is given twice")),
        }
        Ok(match self.length {
            _ if self.chunked => BodyFraming::Chunked,
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Length(0),
        })
    }
}

/// The one length that a field, or a list of equal ones, declares.
fn one_length(value: &[u8]) -> Result<u64, ApiError> {
    let refuse = || ApiError::invalid_request("Content-Length is not one decimal number");
    let mut lengths = value.split(|byte| *byte == b',').map(trim_spaces);
    let first = lengths.next().ok_or_else(refuse)?;
    if !first.iter().all(u8::is_ascii_digit) || lengths.any(|other| other != first) {
        return Err(refuse());
    }
    let length = std::str::from_utf8(first)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    // Pingora keeps lengths in a signed word.
    length
        .filter(|length| i64::try_from(*length).is_ok())
        .ok_or_else(refuse)
}
