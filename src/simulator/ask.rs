//! What an inference request asks for: model, prompt, length, stream; and why it may be refused.
//!
//! Given: the body. The prompt is kept as the exact bytes the client sent. The rules and the error
//! texts are those of a vLLM server: unknown fields pass, a key given twice counts the last time.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::connection::Request;
use super::reply::Reply;

/// The inference endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Completion,
    Embedding,
}

/// What a request asks for.
#[derive(Debug)]
pub(super) struct Ask<'b> {
    pub(super) kind: Kind,
    pub(super) model: Option<String>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) max_tokens: Option<u32>,
    pub(super) ignore_eos: bool,
    /// `messages`, `prompt` or `input`, as sent.
    pub(super) prompt: &'b str,
    pub(super) prompt_tokens: u32,
}

/// The fields of a body that matter here.
#[derive(Debug, Default)]
struct Fields<'b> {
    model: Option<String>,
    stream: bool,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    ignore_eos: bool,
    messages: Option<&'b RawValue>,
    prompt: Option<&'b RawValue>,
    input: Option<&'b RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Name {
    Model,
    Stream,
    StreamOptions,
    MaxTokens,
    MaxCompletionTokens,
    IgnoreEos,
    Messages,
    Prompt,
    Input,
    #[serde(other)]
    Other,
}

/// Reads the body of an inference request.
///
/// # Errors
/// The answer a vLLM server gives: status 400 for anything that is not a usable request.
pub(super) fn read(kind: Kind, body: &[u8], max_model_len: u32) -> Result<Ask<'_>, Reply> {
    let text = utf8(body)?;
    let fields: Fields<'_> = serde_json::from_str(text).map_err(|error| not_valid(text, &error))?;
    let (name, prompt) = match kind {
        Kind::Chat => ("messages", fields.messages),
        Kind::Completion => ("prompt", fields.prompt),
        Kind::Embedding => ("input", fields.input.or(fields.messages)),
    };
    let prompt = prompt.map(RawValue::get).ok_or_else(|| missing(name))?;
    let first = prompt.as_bytes().first();
    let fits = first == Some(&b'[') || (kind != Kind::Chat && first == Some(&b'"'));
    if !fits {
        return Err(mistyped(name));
    }
    if fields.stream_options.is_some() && !fields.stream {
        let message = "Stream options can only be defined when `stream=True`.";
        return Err(bad_value("stream_options", message));
    }
    let max_tokens = fields.max_completion_tokens.or(fields.max_tokens);
    let max_tokens = match max_tokens {
        None => None,
        Some(most) if most < 1 => {
            let message = format!("max_tokens must be at least 1, got {most}.");
            return Err(bad_value("max_tokens", &message));
        }
        Some(most) => match u32::try_from(most) {
            Ok(most) if most <= max_model_len => Some(most),
            _ => {
                let message = format!(
                    "max_tokens={most} cannot be greater than max_model_len={max_model_len}. \
                     Please request fewer output tokens."
                );
                return Err(bad_value("max_tokens", &message));
            }
        },
    };
    let prompt_tokens = count_tokens(prompt);
    if prompt_tokens > max_model_len {
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt \
             contains at least {prompt_tokens} input tokens. Please reduce the length of the \
             input prompt. (parameter=input_tokens, value={prompt_tokens})"
        );
        return Err(bad_value("input_tokens", &message));
    }
    Ok(Ask {
        kind,
        model: fields.model,
        stream: fields.stream && kind != Kind::Embedding,
        include_usage: fields
            .stream_options
            .and_then(|options| options.include_usage)
            .unwrap_or(false),
        max_tokens,
        ignore_eos: fields.ignore_eos,
        prompt,
        prompt_tokens,
    })
}

/// Reads the whole JSON body of a request that is not one for inference.
///
/// # Errors
/// As [`read`].
pub(super) fn read_json<'r, T: Deserialize<'r>>(request: &'r Request) -> Result<T, Reply> {
    if !request.head.json {
        return Err(not_json());
    }
    let text = utf8(&request.body)?;
    serde_json::from_str(text).map_err(|error| not_valid(text, &error))
}

/// The tokens of a prompt as sent: four bytes of text each, or the ids of a list of token ids.
pub(super) fn count_tokens(raw: &str) -> u32 {
    let inner = raw.trim_matches(['[', ']']);
    let is_ids =
        raw.starts_with('[') && inner.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let tokens = if is_ids {
        inner.bytes().filter(|byte| *byte == b',').count() + 1
    } else {
        inner.len().saturating_sub(2).div_ceil(4).max(1)
    };
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// The body as text, without a byte order mark.
pub(super) fn utf8(body: &[u8]) -> Result<&str, Reply> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Reply::detail(400, "There was an error parsing the body"))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// 400 for a body that is not JSON, or whose fields have wrong types.
pub(super) fn not_valid(text: &str, error: &serde_json::Error) -> Reply {
    if error.classify() == serde_json::error::Category::Data {
        return validation("dict_type", "body", &error.to_string().replace('\'', "`"));
    }
    let before: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let place = format!("body.{}", before + error.column().saturating_sub(1));
    validation("json_invalid", &place, "JSON decode error")
}

/// 400 for a field that must be there.
pub(super) fn missing(name: &str) -> Reply {
    validation("missing", &format!("body.{name}"), "Field required")
}

fn mistyped(name: &str) -> Reply {
    validation(
        "list_type",
        &format!("body.{name}"),
        "Input should be a valid list",
    )
}

/// 400 for a body that is not sent as JSON.
pub(super) fn not_json() -> Reply {
    let message = "Unsupported Media Type: Only 'application/json' is allowed";
    Reply::error(400, "Bad Request", None, message)
}

fn validation(kind: &str, place: &str, message: &str) -> Reply {
    let text = format!(
        "1 validation error:\n  {{'type': '{kind}', 'loc': '{place}', 'msg': '{message}'}}"
    );
    Reply::error(400, "Bad Request", Some(place), &text)
}

fn bad_value(param: &str, message: &str) -> Reply {
    Reply::error(400, "BadRequestError", Some(param), message)
}

// === impl Fields ===

impl<'de: 'b, 'b> Deserialize<'de> for Fields<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Fields::default();
                while let Some(name) = map.next_key()? {
                    match name {
                        Name::Model => fields.model = map.next_value()?,
                        Name::Stream => {
                            fields.stream = map.next_value::<Option<_>>()?.unwrap_or(false);
                        }
                        Name::StreamOptions => fields.stream_options = map.next_value()?,
                        Name::MaxTokens => fields.max_tokens = map.next_value()?,
                        Name::MaxCompletionTokens => {
                            fields.max_completion_tokens = map.next_value()?;
                        }
                        Name::IgnoreEos => {
                            fields.ignore_eos = map.next_value::<Option<_>>()?.unwrap_or(false);
                        }
                        Name::Messages => fields.messages = Some(map.next_value()?),
                        Name::Prompt => fields.prompt = Some(map.next_value()?),
                        Name::Input => fields.input = Some(map.next_value()?),
                        Name::Other => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &[u8]) -> (u16, String) {
        let reply = read(Kind::Completion, body, 512).unwrap_err();
        (reply.status, String::from_utf8(reply.body).unwrap())
    }

    #[test]
    fn the_last_of_two_equal_keys_counts_and_unknown_ones_pass() {
        let body = br#"{"model":"a","x":{"y":[1]},"model":"b","prompt":"hi there","stream":null}"#;
        let ask = read(Kind::Completion, body, 512).unwrap();
        assert_eq!(ask.model.as_deref(), Some("b"));
        assert_eq!(ask.prompt, "\"hi there\"");
        assert_eq!((ask.prompt_tokens, ask.stream), (2, false));
    }

    #[test]
    fn token_lists_are_counted_by_their_ids() {
        assert_eq!(count_tokens("[1, 2,3]"), 3);
        assert_eq!(count_tokens("\"12345678\""), 2);
        assert_eq!(count_tokens("\"\""), 1);
    }

    #[test]
    fn unusable_bodies_are_refused_as_a_vllm_server_does() {
        for (body, part) in [
            (
                r#"{"model":"tiny","prompt": "#,
                "'type': 'json_invalid', 'loc': 'body.2",
            ),
            ("", "json_invalid"),
            ("[]", "a JSON object"),
            (r#"{"model":3,"prompt":"x"}"#, "invalid type"),
            (
                r#"{"model":"m"}"#,
                "'loc': 'body.prompt', 'msg': 'Field required'",
            ),
            (r#"{"prompt":3}"#, "body.prompt"),
            (r#"{"prompt":"x","max_tokens":0}"#, "BadRequestError"),
            (
                r#"{"prompt":"x","max_tokens":600}"#,
                "max_tokens=600 cannot be greater than max_model_len=512.",
            ),
            (r#"{"prompt":"x","stream_options":{}}"#, "Stream options"),
        ] {
            let (status, text) = refused(body.as_bytes());
            assert_eq!(status, 400, "{body}");
            assert!(text.contains(part), "{body}: {text}");
        }
        assert_eq!(
            refused(b"{\"prompt\":\"\xff\"}").1,
            r#"{"detail":"There was an error parsing the body"}"#
        );
        let long = format!(r#"{{"prompt":"{}"}}"#, "a".repeat(4 * 512 + 1));
        assert!(refused(long.as_bytes()).1.contains("value=513)"));
    }
}
