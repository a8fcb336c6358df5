//! Finds the `model` part of a multipart form, and changes at most that.
//!
//! The form goes to the engine byte for byte; nothing is parsed but the heads of its parts. See
//! RFC 2046 section 5.1 for the framing and RFC 7578 for the names.

use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;

use crate::body_buffer::BodyBuffer;

/// The most fields in the head of a part.
const MAX_PART_FIELDS: usize = 16;
/// The longest model name that is read.
const MAX_MODEL: usize = 4096;

/// Why a form cannot be routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// The content type says something else, or has no boundary.
    #[error("the request must be multipart/form-data with a boundary")]
    NotAForm,
    /// The parts are not framed as the boundary says.
    #[error("the multipart form is malformed")]
    Malformed,
    /// There is no `model` part.
    #[error("the multipart form has no `model` part")]
    MissingModel,
    /// The `model` part is no text, or too long.
    #[error("the `model` part must be a short text")]
    ModelNotText,
}

/// Where the model stands in a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormModel {
    name: Option<String>,
    /// The content of its part; where there is none, the place before the first one.
    place: Range<usize>,
    boundary: Vec<u8>,
}

impl FormModel {
    /// Reads a form. Of two `model` parts the last one counts, as engines read it.
    ///
    /// # Errors
    /// It is malformed, or its `model` part is not usable.
    pub fn read(content_type: &str, body: &[u8]) -> Result<Self, FormError> {
        let boundary = boundary(content_type)?;
        let mut found = None;
        let parts = Parts::new(body, &boundary)?;
        let start = parts.at.saturating_sub(b"--".len() + boundary.len());
        for part in parts {
            let part = part?;
            if part_name(body.get(part.head.clone()).unwrap_or_default())?.as_deref()
                == Some("model")
            {
                found = Some(part.content);
            }
        }
        let Some(place) = found else {
            return Ok(Self {
                name: None,
                place: start..start,
                boundary,
            });
        };
        let text = body
            .get(place.clone())
            .filter(|text| text.len() <= MAX_MODEL);
        let name = text.and_then(|text| std::str::from_utf8(text).ok());
        let name = name.ok_or(FormError::ModelNotText)?.to_owned();
        Ok(Self {
            name: Some(name),
            place,
            boundary,
        })
    }

    /// The model the form names.
    ///
    /// # Errors
    /// There is no `model` part.
    pub fn name(&self) -> Result<&str, FormError> {
        self.name.as_deref().ok_or(FormError::MissingModel)
    }

    /// The form with `name` in the place of its model, or as a part before all others where it
    /// has none; every other byte as it was.
    pub fn with_model(&self, body: &Bytes, name: &str) -> Bytes {
        let mut changed = BodyBuffer::with_capacity(body.len() + name.len() + 256);
        changed.extend_from_slice(body.get(..self.place.start).unwrap_or_default());
        if self.name.is_none() {
            changed.extend_from_slice(b"--");
            changed.extend_from_slice(&self.boundary);
            changed
                .extend_from_slice(b"\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n");
        }
        changed.extend_from_slice(name.as_bytes());
        if self.name.is_none() {
            changed.extend_from_slice(b"\r\n");
        }
        changed.extend_from_slice(body.get(self.place.end..).unwrap_or_default());
        changed.freeze()
    }
}

/// The boundary a content type declares, with or without quotes around it.
fn boundary(content_type: &str) -> Result<Vec<u8>, FormError> {
    let kind: mime::Mime = content_type.parse().map_err(|_| FormError::NotAForm)?;
    if kind.essence_str() != "multipart/form-data" {
        return Err(FormError::NotAForm);
    }
    let boundary = kind.get_param(mime::BOUNDARY).ok_or(FormError::NotAForm)?;
    // RFC 2046 section 5.1.1 allows 1 to 70 characters.
    match boundary.as_str().len() {
        1..=70 => Ok(boundary.as_str().as_bytes().to_vec()),
        _ => Err(FormError::NotAForm),
    }
}

/// One part: where its head and its content stand in the form.
#[derive(Debug)]
struct Part {
    head: Range<usize>,
    content: Range<usize>,
}

/// The parts of a form, one after the other.
struct Parts<'a> {
    body: &'a [u8],
    /// CR LF, two hyphens and the boundary.
    delimiter: memmem::Finder<'static>,
    /// Behind the delimiter before the next part.
    at: usize,
    ended: bool,
}

impl<'a> Parts<'a> {
    fn new(body: &'a [u8], boundary: &[u8]) -> Result<Self, FormError> {
        let delimiter = [b"\r\n--", boundary].concat();
        // The first delimiter may stand at the very beginning.
        let first = delimiter.get(2..).unwrap_or_default();
        let finder = memmem::Finder::new(&delimiter).into_owned();
        let at = if body.starts_with(first) {
            first.len()
        } else {
            finder.find(body).ok_or(FormError::Malformed)? + delimiter.len()
        };
        Ok(Self {
            body,
            delimiter: finder,
            at,
            ended: false,
        })
    }

    /// The part that follows the delimiter; `None` at the closing one.
    fn part(&mut self) -> Result<Option<Part>, FormError> {
        let rest = self.body.get(self.at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(None);
        }
        // Blanks may follow a delimiter on its line.
        let blanks = rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count();
        let start = self.at + blanks;
        let lines = self.body.get(start..).unwrap_or_default();
        if !lines.starts_with(b"\r\n") {
            return Err(FormError::Malformed);
        }
        // A part without fields starts with an empty line at once.
        let end = memmem::find(lines, b"\r\n\r\n").ok_or(FormError::Malformed)?;
        let head = start + 2..start + end + 2;
        let content = start + end + 4;
        let length = self
            .delimiter
            .find(self.body.get(content..).unwrap_or_default());
        let content = content..content + length.ok_or(FormError::Malformed)?;
        self.at = content.end + self.delimiter.needle().len();
        Ok(Some(Part { head, content }))
    }
}

impl Iterator for Parts<'_> {
    type Item = Result<Part, FormError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let part = self.part().transpose();
        self.ended = !matches!(part, Some(Ok(_)));
        part
    }
}

/// The name a part's head gives it.
fn part_name(head: &[u8]) -> Result<Option<String>, FormError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_PART_FIELDS];
    let head = [head, b"\r\n"].concat();
    let parsed = httparse::parse_headers(&head, &mut fields);
    let Ok(httparse::Status::Complete((_, fields))) = parsed else {
        return Err(FormError::Malformed);
    };
    let disposition = fields
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("content-disposition"));
    let Some(disposition) = disposition.and_then(|field| std::str::from_utf8(field.value).ok())
    else {
        return Ok(None);
    };
    Ok(parameter(disposition, "name"))
}

/// The value of a parameter, its quotes and escapes undone.
fn parameter(field: &str, wanted: &str) -> Option<String> {
    let mut rest = field.split_once(';')?.1;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, after) = if let Some(quoted) = after.strip_prefix('"') {
            unquote(quoted)?
        } else {
            let end = after.find(';').unwrap_or(after.len());
            let (value, after) = after.split_at(end);
            (value.trim().to_owned(), after)
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = after.split_once(';')?.1;
    }
}

/// A quoted string behind its opening quote, and what follows its closing one.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests;
