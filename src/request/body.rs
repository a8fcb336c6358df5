//! A request body as far as routing reads it, whatever its format and coding.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::coding::{Coding, CodingError, decode};
use super::form::{FormError, FormModel};
use super::json::{BodyError, Fields, Wanted};

/// The format in which a body names its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A JSON object.
    Json,
    /// `multipart/form-data`.
    Form,
}

/// Why a body cannot be routed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unroutable {
    /// Its content coding cannot be undone.
    #[error(transparent)]
    Coding(#[from] CodingError),
    /// It is not the JSON routing needs.
    #[error(transparent)]
    Json(#[from] BodyError),
    /// It is not the form routing needs.
    #[error(transparent)]
    Form(#[from] FormError),
}

impl Unroutable {
    /// Whether nothing is wrong with the body but that it names no model.
    pub fn is_missing_model(&self) -> bool {
        matches!(
            self,
            Self::Json(BodyError::MissingModel) | Self::Form(FormError::MissingModel)
        )
    }
}

/// What routing has read of a body.
#[derive(Clone, Debug)]
pub struct Reading {
    names: Names,
    /// The body without its content coding, where it has one.
    decoded: Option<Bytes>,
}

#[derive(Clone, Debug)]
enum Names {
    Json(Fields),
    Form(FormModel),
}

/// A body with another model in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The whole body.
    pub body: Bytes,
    /// It had a content coding and is without one now.
    pub decoded: bool,
}

/// The content codings of a body.
///
/// # Errors
/// One of them is unknown.
pub fn codings(fields: &HeaderMap) -> Result<Vec<Coding>, CodingError> {
    let mut codings = Vec::new();
    for field in fields.get_all(CONTENT_ENCODING) {
        codings.extend(Coding::list(&String::from_utf8_lossy(field.as_bytes()))?);
    }
    Ok(codings)
}

impl Reading {
    /// Reads a body of this format. A coded one may grow to `limit` bytes.
    ///
    /// # Errors
    /// It cannot be decoded, or does not name its model.
    pub fn of(
        format: Format,
        fields: &HeaderMap,
        codings: &[Coding],
        body: &Bytes,
        limit: usize,
        wanted: &Wanted,
    ) -> Result<Self, Unroutable> {
        let decoded = match codings {
            [] => None,
            codings => Some(decode(body, codings, limit)?),
        };
        let text = decoded.as_ref().unwrap_or(body);
        let names = match format {
            Format::Json => Names::Json(Fields::read(text, wanted)?),
            Format::Form => {
                let kind = fields
                    .get(CONTENT_TYPE)
                    .and_then(|value| value.to_str().ok());
                Names::Form(FormModel::read(kind.unwrap_or_default(), text)?)
            }
        };
        Ok(Self { names, decoded })
    }

    /// The model the request names.
    ///
    /// # Errors
    /// There is none.
    pub fn model(&self) -> Result<&str, Unroutable> {
        match &self.names {
            Names::Json(fields) => Ok(fields.model()?),
            Names::Form(model) => Ok(model.name()?),
        }
    }

    /// The session the body names, where that was wanted.
    pub fn session(&self) -> Option<&str> {
        match &self.names {
            Names::Json(fields) => fields.session(),
            Names::Form(_) => None,
        }
    }

    /// The prompt as routing compares it, where that was wanted and there is one.
    pub fn prompt(&self) -> Option<&[u8]> {
        match &self.names {
            Names::Json(fields) => fields.prompt(),
            Names::Form(_) => None,
        }
    }

    /// Whether the answer is asked for as a stream.
    pub fn stream(&self) -> bool {
        matches!(&self.names, Names::Json(fields) if fields.stream())
    }

    /// The response this one goes on from, where the body names one.
    pub fn previous_response_id(&self) -> Option<&str> {
        match &self.names {
            Names::Json(fields) => fields.previous_response_id(),
            Names::Form(_) => None,
        }
    }

    /// The body with `name` in the place of its model, or in addition where it has none, every
    /// other byte as it was; without its
    /// content coding, since nobody can change a byte inside of one.
    pub fn renamed(&self, body: &Bytes, name: &str) -> Renamed {
        let text = self.decoded.as_ref().unwrap_or(body);
        let body = match &self.names {
            Names::Json(fields) => fields.with_model(text, name),
            Names::Form(model) => model.with_model(text, name),
        };
        Renamed {
            body,
            decoded: self.decoded.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn gzip(text: &[u8]) -> Bytes {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap().into()
    }

    #[test]
    fn a_coded_body_is_read_and_loses_its_coding_only_where_it_must_change() {
        let text = br#"{"model":"alias","stream":true}"#;
        let body = gzip(text);
        let fields = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        let codings = codings(&fields).unwrap();
        let reading = Reading::of(
            Format::Json,
            &fields,
            &codings,
            &body,
            1000,
            &Wanted::default(),
        )
        .unwrap();
        assert_eq!(reading.model(), Ok("alias"));
        assert!(reading.stream());
        let renamed = reading.renamed(&body, "m");
        assert_eq!(renamed.body, r#"{"model":"m","stream":true}"#);
        assert!(renamed.decoded);
    }

    #[test]
    fn codings_of_several_fields_are_one_list() {
        let mut fields = HeaderMap::new();
        fields.append(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        fields.append(CONTENT_ENCODING, HeaderValue::from_static("br"));
        assert_eq!(codings(&fields).unwrap(), [Coding::Gzip, Coding::Brotli]);
        fields.append(CONTENT_ENCODING, HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(codings(&fields).is_err());
    }

    #[test]
    fn a_form_without_a_content_type_is_no_form() {
        let body = Bytes::from_static(b"--X\r\n\r\n\r\n--X--");
        let reading = Reading::of(
            Format::Form,
            &HeaderMap::new(),
            &[],
            &body,
            1000,
            &Wanted::default(),
        );
        assert_eq!(reading.unwrap_err(), Unroutable::Form(FormError::NotAForm));
    }
}
