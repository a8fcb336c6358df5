//! The bytes of an answer: bodies, events and usage as a vLLM server writes them.
//!
//! What does not change from token to token is written once per request; a token is then a few
//! copies into the send buffer.
//!
//! The first token of every answer is an **echo**, `echo-` and 16 hex digits: the FNV-1a hash
//! of the prompt as sent (the JSON bytes of `messages`, `prompt` or `input`). A client that knows
//! its prompt so knows its own answer; [`echo`] computes it.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::value::RawValue;

use super::ask::{Ask, Kind};

const WORDS: [&str; 16] = [
    " the", " edge", " of", " a", " fleet", " is", " where", " every", " answer", " begins",
    " and", " each", " token", " finds", " its", " way",
];
const FINGERPRINT: &str = "vllm-0.32.0-sim";

/// The hash behind an echo: 64-bit FNV-1a.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The first token of the answer to a prompt, given as its JSON bytes: `"hi"` with the quotes.
///
/// ```
/// assert_eq!(vllm_pingora::simulator::echo(r#""hi""#), "echo-94e12d83d4ec08a8");
/// ```
pub fn echo(prompt_json: &str) -> String {
    format!("echo-{:016x}", hash(prompt_json.as_bytes()))
}

/// Everything about one answer that is settled before its first token.
#[derive(Debug)]
pub(super) struct Answer {
    kind: Kind,
    /// `"id":…,"object":…,"created":…,"model":…,` of a stream's events.
    common: String,
    /// As `common`, for a body.
    whole: String,
    hash: u64,
    /// The hash of each input of an embeddings request.
    inputs: Vec<u64>,
    prompt_tokens: u32,
    tokens: u32,
    finish: &'static str,
}

// === impl Answer ===

impl Answer {
    /// `id` is what follows `chatcmpl-`, `cmpl-` or `embd-`, and `model` the name, both as JSON
    /// text without quotes. `created` is in seconds since 1970.
    pub(super) fn new(
        ask: &Ask<'_>,
        id: &str,
        model: &str,
        created: u64,
        (tokens, finish): (u32, &'static str),
    ) -> Self {
        let (prefix, event, object) = match ask.kind {
            Kind::Chat => ("chatcmpl", "chat.completion.chunk", "chat.completion"),
            Kind::Completion => ("cmpl", "text_completion", "text_completion"),
            Kind::Embedding => ("embd", "list", "list"),
        };
        let common = |object| {
            format!(
                r#""id":"{prefix}-{id}","object":"{object}","created":{created},"model":"{model}","#
            )
        };
        Self {
            kind: ask.kind,
            common: if ask.stream {
                common(event)
            } else {
                String::new()
            },
            whole: if ask.stream {
                String::new()
            } else {
                common(object)
            },
            hash: hash(ask.prompt.as_bytes()),
            inputs: if ask.kind == Kind::Embedding {
                inputs(ask.prompt)
            } else {
                Vec::new()
            },
            prompt_tokens: ask.prompt_tokens,
            tokens,
            finish,
        }
    }

    pub(super) fn tokens(&self) -> u32 {
        self.tokens
    }

    pub(super) fn finish(&self) -> &'static str {
        self.finish
    }

    fn push_token(&self, text: &mut String, n: u32) {
        if n == 0 {
            let _ = write!(text, "echo-{:016x}", self.hash);
        } else {
            let word = (self.hash.wrapping_add(u64::from(n))) % 16;
            let word = usize::try_from(word).ok().and_then(|word| WORDS.get(word));
            text.push_str(word.copied().unwrap_or(" the"));
        }
    }

    /// The event before the first token: only chat has one.
    pub(super) fn write_opening(&self, out: &mut Vec<u8>) {
        if self.kind == Kind::Chat {
            let choice = r#""choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}"#;
            chunk(out, &["data: {", &self.common, choice, "\n\n"]);
        }
    }

    /// The event of token number `n`, counted from 0; the last one says why the answer ends.
    pub(super) fn write_token(&self, out: &mut Vec<u8>, scratch: &mut String, n: u32) {
        scratch.clear();
        self.push_token(scratch, n);
        let before = match self.kind {
            Kind::Chat => r#""choices":[{"index":0,"delta":{"content":""#,
            _ => r#""choices":[{"index":0,"text":""#,
        };
        let after = match self.kind {
            Kind::Chat => r#""},"logprobs":null,"finish_reason":"#,
            _ => r#"","logprobs":null,"finish_reason":"#,
        };
        let (quote, reason) = if n + 1 == self.tokens {
            ("\"", self.finish)
        } else {
            ("", "null")
        };
        chunk(
            out,
            &[
                "data: {",
                &self.common,
                before,
                scratch,
                after,
                quote,
                reason,
                quote,
                r#","stop_reason":null,"token_ids":null}]}"#,
                "\n\n",
            ],
        );
    }

    /// The usage event, if asked for, then `[DONE]` and the last chunk.
    pub(super) fn write_closing(&self, out: &mut Vec<u8>, include_usage: bool) {
        if include_usage {
            let usage = format!(
                r#""choices":[],"system_fingerprint":"{FINGERPRINT}","usage":{}}}"#,
                self.usage()
            );
            chunk(out, &["data: {", &self.common, &usage, "\n\n"]);
        }
        write_done(out);
    }

    fn usage(&self) -> String {
        let (prompt, tokens) = (self.prompt_tokens, self.tokens);
        format!(
            r#"{{"prompt_tokens":{prompt},"total_tokens":{},"completion_tokens":{tokens},"prompt_tokens_details":null}}"#,
            u64::from(prompt) + u64::from(tokens)
        )
    }

    /// The body of an answer that is not a stream.
    pub(super) fn body(&self) -> String {
        let mut body = String::with_capacity(768 + 8 * usize::try_from(self.tokens).unwrap_or(0));
        body.push('{');
        body.push_str(&self.whole);
        match self.kind {
            Kind::Chat => {
                body.push_str(r#""choices":[{"index":0,"message":{"role":"assistant","content":""#);
                self.push_text(&mut body);
                body.push_str(r#"","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning":null},"logprobs":null,"finish_reason":""#);
                body.push_str(self.finish);
                body.push_str(r#"","stop_reason":null,"token_ids":null,"routed_experts":null}],"#);
            }
            Kind::Completion => {
                body.push_str(r#""choices":[{"index":0,"text":""#);
                self.push_text(&mut body);
                body.push_str(r#"","logprobs":null,"finish_reason":""#);
                body.push_str(self.finish);
                body.push_str(r#"","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}],"#);
            }
            Kind::Embedding => {
                body.push_str(r#""data":["#);
                for (index, hash) in self.inputs.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    let vector = vector(*hash);
                    let _ = write!(
                        body,
                        r#"{comma}{{"index":{index},"object":"embedding","embedding":{vector}}}"#
                    );
                }
                let _ = write!(body, r#"],"usage":{}}}"#, self.usage());
                return body;
            }
        }
        let _ = write!(
            body,
            r#""service_tier":null,"system_fingerprint":"{FINGERPRINT}","usage":{}"#,
            self.usage()
        );
        if self.kind == Kind::Chat {
            body.push_str(r#","prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null"#);
        }
        body.push_str(r#","kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}"#);
        body
    }

    fn push_text(&self, body: &mut String) {
        for n in 0..self.tokens {
            self.push_token(body, n);
        }
    }
}

/// `[DONE]` and the chunk that ends a stream.
pub(super) fn write_done(out: &mut Vec<u8>) {
    chunk(out, &["data: [DONE]\n\n"]);
    out.extend_from_slice(b"0\r\n\r\n");
}

/// One HTTP chunk made of these parts.
pub(super) fn chunk(out: &mut Vec<u8>, parts: &[&str]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let _ = write!(out, "{length:x}\r\n");
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// The hashes of the inputs of an embeddings request: one text, a list of texts, one list of token
/// ids, or a list of such lists.
fn inputs(raw: &str) -> Vec<u64> {
    let several = match serde_json::from_str::<Vec<&RawValue>>(raw) {
        Ok(items)
            if items
                .iter()
                .all(|item| item.get().starts_with(['"', '[', '{'])) =>
        {
            items
        }
        _ => return vec![hash(raw.as_bytes())],
    };
    several
        .iter()
        .map(|item| hash(item.get().as_bytes()))
        .collect()
}

/// Sixteen numbers that depend on the input alone.
fn vector(hash: u64) -> String {
    let digits = (0..16).map(|place| (hash >> (4 * place)) & 0xf);
    let numbers: Vec<String> = digits
        .map(|digit| {
            format!(
                "{}",
                (f64::from(u8::try_from(digit).unwrap_or(0)) - 7.5) / 32.0
            )
        })
        .collect();
    format!("[{}]", numbers.join(","))
}
