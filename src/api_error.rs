//! The answers of our own: OpenAI-shaped errors.
//!
//! The one place that words them. None ever names an engine or a key.

use bytes::Bytes;
use serde_json::json;

/// An error the router answers itself, in the shape OpenAI clients parse:
/// `{"error":{"message":…,"type":…,"param":null,"code":…}}`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status} {code}: {message}")]
pub struct ApiError {
    status: u16,
    code: &'static str,
    message: String,
    allow: Option<&'static str>,
}

impl ApiError {
    fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            allow: None,
        }
    }

    /// 400: malformed JSON, a missing model, ambiguous framing.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", message)
    }

    /// 401: no key, or a wrong one.
    pub fn invalid_api_key() -> Self {
        Self::new(
            401,
            "invalid_api_key",
            "a valid API key is required: send it as `Authorization: Bearer KEY`",
        )
    }

    /// 403: a page of another site made a browser send a control call, or ask for a stream.
    pub fn foreign_origin() -> Self {
        Self::new(
            403,
            "foreign_origin",
            "control calls and streams are not accepted from pages of other sites",
        )
    }

    /// 403: a client chose an engine, and may not.
    pub fn pin_not_allowed() -> Self {
        Self::new(
            403,
            "pin_not_allowed",
            "this client may not choose the engine: leave out ?id= and x-vllm-pingora-engine",
        )
    }

    /// 404: a client chose an engine that is not there, or does not serve the model.
    pub fn engine_not_found(engine: &str, model: &str) -> Self {
        let engine = shown(engine);
        let message = if model.is_empty() {
            format!("there is no engine `{engine}`")
        } else {
            format!("no engine `{engine}` serves the model `{}`", shown(model))
        };
        Self::new(404, "engine_not_found", message)
    }

    /// 404: a path that is not served.
    pub fn not_found(path: &str) -> Self {
        Self::new(
            404,
            "not_found",
            format!("`{}` is not served here", shown(path)),
        )
    }

    /// 404: a model nobody serves.
    pub fn model_not_found(model: &str) -> Self {
        Self::new(
            404,
            "model_not_found",
            format!(
                "the model `{}` does not exist; the available ones are listed at /v1/models",
                shown(model)
            ),
        )
    }

    /// 404: an engine there is not; for the admin port only.
    pub fn unknown_engine(name: &str) -> Self {
        Self::new(
            404,
            "engine_not_found",
            format!(
                "there is no engine `{}`; they are listed at /engines",
                shown(name)
            ),
        )
    }

    /// 404: a response no engine is known to have.
    pub fn response_not_found(id: &str) -> Self {
        Self::new(
            404,
            "response_not_found",
            format!(
                "the response `{}` is not known here: it was not made through this router, or too long ago",
                shown(id)
            ),
        )
    }

    /// 405: a path that is served, under another method; `allow` names it.
    pub fn method_not_allowed(method: &str, allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(
                405,
                "method_not_allowed",
                format!("the method `{}` is not allowed here", shown(method)),
            )
        }
    }

    /// 408: the client sends its request too slowly.
    pub fn request_timeout(message: impl Into<String>) -> Self {
        Self::new(408, "request_timeout", message)
    }

    /// 413: a body above `limit` bytes.
    pub fn request_too_large(limit: usize) -> Self {
        Self::new(
            413,
            "request_too_large",
            format!("the request body is larger than the limit of {limit} bytes"),
        )
    }

    /// 414: a request line above `limit` bytes.
    pub fn uri_too_long(limit: usize) -> Self {
        Self::new(
            414,
            "uri_too_long",
            format!("the request line is longer than the limit of {limit} bytes"),
        )
    }

    /// 415: a body in a coding or format that cannot be routed.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "unsupported_media_type", message)
    }

    /// 429: a client with too many connections open.
    pub fn too_many_connections(limit: usize) -> Self {
        Self::new(
            429,
            "too_many_connections",
            format!("more than {limit} connections are open from this address"),
        )
    }

    /// 431: too many header fields, or too large ones.
    pub fn headers_too_large(message: impl Into<String>) -> Self {
        Self::new(431, "headers_too_large", message)
    }

    /// 500: a fault of ours.
    pub fn internal() -> Self {
        Self::new(
            500,
            "internal_error",
            "the router failed to handle the request",
        )
    }

    /// 502: the last attempt ended in a transport failure.
    pub fn engine_unreachable(attempts: u32) -> Self {
        Self::new(
            502,
            "engine_unreachable",
            format!("no engine could be reached ({})", counted(attempts)),
        )
    }

    /// 504: the last attempt ran out of time.
    pub fn engine_timeout(attempts: u32) -> Self {
        Self::new(
            504,
            "engine_timeout",
            format!("no engine answered in time ({})", counted(attempts)),
        )
    }

    /// 503: the model is known, and no engine that serves it is up.
    pub fn no_engine_available(model: &str) -> Self {
        Self::new(
            503,
            "no_engine_available",
            format!(
                "no engine for the model `{}` is available; try again later",
                shown(model)
            ),
        )
    }

    /// 503: no engine at all is up.
    pub fn no_engines_available() -> Self {
        Self::new(
            503,
            "no_engine_available",
            "no engine is available; try again later",
        )
    }

    /// 503: the request bodies that are kept take all the memory they may.
    pub fn overloaded() -> Self {
        Self::new(
            503,
            "overloaded",
            "too many request bodies are being held; try again later",
        )
    }

    /// 503: more than `limit` streams of the status page; for the admin port only.
    pub fn too_many_streams(limit: usize) -> Self {
        Self::new(
            503,
            "too_many_streams",
            format!("there are {limit} streams of events; ask for /status instead"),
        )
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The machine-readable name of the error.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The methods to name in `Allow`, where the status asks for it.
    pub fn allow(&self) -> Option<&'static str> {
        self.allow
    }

    /// Seconds for `Retry-After`, where waiting helps.
    pub fn retry_after(&self) -> Option<u32> {
        (self.status == 503).then_some(1)
    }

    /// The JSON body.
    pub fn body(&self) -> Bytes {
        let kind = if self.status < 500 {
            "invalid_request_error"
        } else {
            "server_error"
        };
        let error =
            json!({"message": self.message, "type": kind, "param": null, "code": self.code});
        Bytes::from(json!({ "error": error }).to_string())
    }
}

/// What a client sent, short enough to repeat to it.
fn shown(text: &str) -> String {
    const LONGEST: usize = 128;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn counted(attempts: u32) -> String {
    match attempts {
        1 => "1 attempt was made".to_owned(),
        n => format!("{n} attempts were made"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_the_openai_error_object() {
        let body: serde_json::Value =
            serde_json::from_slice(&ApiError::model_not_found("no\"pe").body()).unwrap();
        assert_eq!(body["error"]["code"], "model_not_found");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert!(body["error"]["param"].is_null());
        assert!(
            body["error"]["message"]
                .as_str()
                .unwrap()
                .contains("no\"pe")
        );
    }

    #[test]
    fn a_long_name_is_cut_at_a_character_boundary() {
        let long = "é".repeat(1000);
        assert!(ApiError::model_not_found(&long).body().len() < 600);
    }

    #[test]
    fn only_what_passes_by_itself_asks_to_come_back() {
        assert_eq!(ApiError::no_engine_available("m").retry_after(), Some(1));
        assert_eq!(ApiError::overloaded().retry_after(), Some(1));
        assert_eq!(ApiError::engine_unreachable(2).retry_after(), None);
    }
}
