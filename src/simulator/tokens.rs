//! `/tokenize` and `/detokenize` with a tokenizer anyone can compute: a token is up to four bytes
//! of text, and its id is those bytes as a little-endian number.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ask;
use super::connection::Request;
use super::engine::Engine;
use super::reply::Reply;
use super::route::served_model;

#[derive(Deserialize)]
struct Tokenize<'b> {
    model: Option<String>,
    prompt: Option<String>,
    #[serde(borrow)]
    messages: Option<&'b RawValue>,
    return_token_strs: Option<bool>,
}

#[derive(Deserialize)]
struct Detokenize {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// `{"count":…,"max_model_len":…,"tokens":[…],"token_strs":null}` for a prompt or messages.
pub(super) fn tokenize(engine: &Engine, request: &Request) -> Result<Reply, Reply> {
    let body: Tokenize<'_> = ask::read_json(request)?;
    served_model(engine, body.model.as_deref())?;
    let text = match (&body.prompt, body.messages) {
        (Some(prompt), _) => prompt.as_str(),
        (None, Some(messages)) => messages.get(),
        (None, None) => return Err(ask::missing("prompt")),
    };
    let pieces = || text.as_bytes().chunks(4);
    let tokens: Vec<u32> = pieces()
        .map(|piece| {
            piece
                .iter()
                .rev()
                .fold(0, |id, byte| id << 8 | u32::from(*byte))
        })
        .collect();
    let strings = body.return_token_strs.unwrap_or(false).then(|| {
        let strings = pieces().map(|piece| Value::from(String::from_utf8_lossy(piece)));
        strings.collect::<Vec<_>>()
    });
    let answer = json!({
        "count": tokens.len(), "max_model_len": engine.config.max_model_len,
        "tokens": tokens, "token_strs": strings,
    });
    Ok(Reply::json(200, answer.to_string()))
}

/// `{"prompt":…}` for a list of token ids.
pub(super) fn detokenize(engine: &Engine, request: &Request) -> Result<Reply, Reply> {
    let body: Detokenize = ask::read_json(request)?;
    served_model(engine, body.model.as_deref())?;
    let mut bytes = Vec::with_capacity(4 * body.tokens.len());
    for token in &body.tokens {
        let piece = token.to_le_bytes();
        let length = piece
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(1, |last| last + 1);
        bytes.extend(piece.iter().take(length));
    }
    let answer = json!({"prompt": String::from_utf8_lossy(&bytes)});
    Ok(Reply::json(200, answer.to_string()))
}
