//! Whole answers, and the error answers of a vLLM server to the letter.

use std::io::Write as _;

use super::connection::{Connection, Gone};

/// The media type of every JSON answer.
pub(super) const JSON: &str = "application/json";

/// An answer that is not a stream.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) content_type: Option<&'static str>,
    pub(super) body: Vec<u8>,
    pub(super) extra: Extra,
}

/// The one header an answer may have beyond the usual ones.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Extra {
    #[default]
    None,
    Allow(&'static str),
    Location(String),
    RetryAfter(String),
}

// === impl Reply ===

impl Reply {
    pub(super) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            content_type: Some(JSON),
            body: body.into(),
            extra: Extra::None,
        }
    }

    /// An empty answer, as `/health` gives.
    pub(super) fn empty(status: u16) -> Self {
        Self {
            content_type: None,
            ..Self::json(status, "")
        }
    }

    pub(super) fn text(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            content_type: Some(content_type),
            ..Self::json(status, body)
        }
    }

    /// An error outside the `OpenAI` form: `{"detail":"Not Found"}`.
    pub(super) fn detail(status: u16, text: &str) -> Self {
        Self::json(status, format!(r#"{{"detail":"{text}"}}"#))
    }

    /// An error in the `OpenAI` form.
    pub(super) fn error(status: u16, kind: &str, param: Option<&str>, message: &str) -> Self {
        Self::json(status, error_body(status, kind, param, message))
    }

    pub(super) fn retry_after(mut self, after: Option<&str>) -> Self {
        if let Some(after) = after {
            self.extra = Extra::RetryAfter(after.to_owned());
        }
        self
    }

    /// 401, where `error` is a string.
    pub(super) fn unauthorized() -> Self {
        Self::json(401, r#"{"error":"Unauthorized"}"#)
    }

    pub(super) fn no_such_model(model: &str, aliases: &str) -> Self {
        let message = format!("The model `{model}` does not exist. Valid aliases: {aliases}.");
        Self::error(404, "NotFoundError", Some("model"), &message)
    }

    /// What an engine answers with this status when it is in trouble.
    pub(super) fn trouble(status: u16) -> Self {
        let (kind, message) = match status {
            503 => (
                "Service Unavailable",
                "The engine is currently busy and cannot accept new requests. \
                 Please try again later or on a different instance.",
            ),
            500 => ("InternalServerError", ENGINE_DEAD),
            429 => ("Too Many Requests", "Rate limit exceeded."),
            408 => ("Request Timeout", "The request timed out."),
            502 => ("Bad Gateway", "Bad gateway."),
            504 => ("Gateway Timeout", "Gateway timeout."),
            401 => return Self::unauthorized(),
            404 => ("NotFoundError", "The requested thing does not exist."),
            400..=499 => ("BadRequestError", "A simulated client error."),
            _ => ("InternalServerError", "A simulated server error."),
        };
        Self::error(status, kind, None, message)
    }

    /// Sends the answer.
    pub(super) async fn send(
        &self,
        connection: &mut Connection,
        close: bool,
        head_only: bool,
    ) -> Result<(), Gone> {
        self.write_head(connection, close);
        if !head_only {
            connection.out.extend_from_slice(&self.body);
        }
        connection.flush().await
    }

    /// Puts the head alone into the connection's `out`.
    pub(super) fn write_head(&self, connection: &mut Connection, close: bool) {
        start_head(connection, self.status);
        let out = &mut connection.out;
        drop(write!(out, "content-length: {}\r\n", self.body.len()));
        if let Some(kind) = self.content_type {
            drop(write!(out, "content-type: {kind}\r\n"));
        }
        let _ = match &self.extra {
            Extra::None => Ok(()),
            Extra::Allow(methods) => write!(out, "allow: {methods}\r\n"),
            Extra::Location(url) => write!(out, "location: {url}\r\n"),
            Extra::RetryAfter(after) => write!(out, "retry-after: {after}\r\n"),
        };
        end_head(out, close, self.status != 401);
    }
}

/// What a dead engine core tells its clients, in a 500 or as an event in a stream.
pub(super) const ENGINE_DEAD: &str =
    "EngineCore encountered an issue. See stack trace (above) for the root cause.";

/// The event that ends a stream whose engine core died.
pub(super) const ENGINE_DEAD_EVENT: &str = concat!(
    r#"data: {"error": {"message": "EngineCore encountered an issue. "#,
    r#"See stack trace (above) for the root cause.", "type": "InternalServerError", "#,
    r#""param": null, "code": 500}}"#,
    "\n\n"
);

/// Puts the head of a stream into the connection's `out`.
pub(super) fn write_stream_head(connection: &mut Connection, close: bool) {
    start_head(connection, 200);
    let out = &mut connection.out;
    out.extend_from_slice(
        b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n",
    );
    end_head(out, close, true);
}

fn start_head(connection: &mut Connection, status: u16) {
    let reason = http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("");
    let mut out = std::mem::take(&mut connection.out);
    let (_, date) = connection.date();
    drop(write!(
        out,
        "HTTP/1.1 {status} {reason}\r\ndate: {date}\r\nserver: uvicorn\r\n"
    ));
    connection.out = out;
}

fn end_head(out: &mut Vec<u8>, close: bool, vary: bool) {
    if vary {
        out.extend_from_slice(b"vary: Origin\r\n");
    }
    if close {
        out.extend_from_slice(b"connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

fn error_body(status: u16, kind: &str, param: Option<&str>, message: &str) -> String {
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    let param = param.map_or("null".to_owned(), quote);
    format!(
        r#"{{"error":{{"message":{},"type":{},"param":{param},"code":{status}}}}}"#,
        quote(message),
        quote(kind),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_bytes_of_a_real_engine() {
        let body = |reply: Reply| String::from_utf8(reply.body).unwrap();
        assert_eq!(
            body(Reply::no_such_model("nope", "tiny")),
            r#"{"error":{"message":"The model `nope` does not exist. Valid aliases: tiny.","type":"NotFoundError","param":"model","code":404}}"#
        );
        assert_eq!(
            body(Reply::trouble(503)),
            r#"{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.","type":"Service Unavailable","param":null,"code":503}}"#
        );
        assert_eq!(
            body(Reply::detail(404, "Not Found")),
            r#"{"detail":"Not Found"}"#
        );
        assert!(ENGINE_DEAD_EVENT.contains(ENGINE_DEAD));
    }
}
