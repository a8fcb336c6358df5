//! What a model is for, and the smallest piece of work of that kind.

use serde_json::{Value, json};

/// A gray picture of 32 by 32 dots.
const PICTURE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAFklEQVR42mNoIAAYRhWMKhhVMFIVAABCAAAfN5c2AAAAAABJRU5ErkJggg==";
/// Ends the parts of a form; it is in none of them.
const BOUNDARY: &str = "vllm-pingora-probe";
/// Samples of silence: a tenth of a second.
const SAMPLES: u32 = 1600;

/// What a model is for, as far as it takes another request to make it work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelType {
    /// Chat. It needs a template, which not every model has.
    Chat,
    /// Text that is gone on with: all that generates text can do that.
    #[default]
    Completion,
    /// Embeddings of texts.
    Embeddings,
    /// The order of documents.
    Rerank,
    /// How alike two texts are.
    Score,
    /// Text from speech.
    Transcription,
    /// Chat about pictures.
    Vision,
    /// Chat in Anthropic's form.
    Messages,
}

/// The smallest request that makes a model work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its path; the method is `POST`.
    pub path: &'static str,
    /// The value of `Content-Type`.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
}

impl ModelType {
    /// Every type by its word in the configuration.
    pub const WORDS: [(&'static str, Self); 8] = [
        ("chat", Self::Chat),
        ("completion", Self::Completion),
        ("embeddings", Self::Embeddings),
        ("rerank", Self::Rerank),
        ("score", Self::Score),
        ("transcription", Self::Transcription),
        ("vision", Self::Vision),
        ("messages", Self::Messages),
    ];

    /// The type with this word.
    pub fn named(word: &str) -> Option<Self> {
        let known = Self::WORDS.iter().find(|(known, _)| *known == word);
        known.map(|(_, kind)| *kind)
    }

    /// The word in the configuration.
    pub fn word(self) -> &'static str {
        let known = Self::WORDS.iter().find(|(_, kind)| *kind == self);
        known.map_or("", |(word, _)| word)
    }

    /// The smallest request that makes `model` work: of one token, where it generates text.
    pub fn sample(self, model: &str) -> Sample {
        let chat = |content: Value| {
            let messages = json!([{"role": "user", "content": content}]);
            json!({"model": model, "messages": messages, "max_tokens": 1})
        };
        let (path, body) = match self {
            Self::Chat => ("/v1/chat/completions", chat("Hi".into())),
            Self::Messages => ("/v1/messages", chat("Hi".into())),
            Self::Vision => {
                let picture = json!([{"type": "image_url", "image_url": {"url": PICTURE}}]);
                ("/v1/chat/completions", chat(picture))
            }
            Self::Completion => {
                let body = json!({"model": model, "prompt": "Hi", "max_tokens": 1});
                ("/v1/completions", body)
            }
            Self::Embeddings => ("/v1/embeddings", json!({"model": model, "input": "Hi"})),
            Self::Rerank => {
                let body = json!({"model": model, "query": "Hi", "documents": ["Hi"]});
                ("/v1/rerank", body)
            }
            Self::Score => {
                let body = json!({"model": model, "text_1": "Hi", "text_2": "Hi"});
                ("/v1/score", body)
            }
            Self::Transcription => {
                return Sample {
                    path: "/v1/audio/transcriptions",
                    content_type: format!("multipart/form-data; boundary={BOUNDARY}"),
                    body: form(model),
                };
            }
        };
        Sample {
            path,
            content_type: "application/json".to_owned(),
            body: body.to_string().into_bytes(),
        }
    }
}

fn form(model: &str) -> Vec<u8> {
    let mut form = Vec::new();
    let mut part = |head: &str, value: &[u8]| {
        let begin = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n");
        form.extend_from_slice(begin.as_bytes());
        form.extend_from_slice(value);
        form.extend_from_slice(b"\r\n");
    };
    part("name=\"model\"", model.as_bytes());
    part("name=\"max_completion_tokens\"", b"1");
    let file = "name=\"file\"; filename=\"silence.wav\"\r\nContent-Type: audio/wav";
    part(file, &silence());
    form.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    form
}

/// Silence as a WAV file: one channel of 16 bits at 16 kHz.
fn silence() -> Vec<u8> {
    const RATE: u32 = 16_000;
    const WIDTH: u16 = 2;
    let data = SAMPLES * u32::from(WIDTH);
    let mut wav = Vec::new();
    wav.extend_from_slice(b"RIFF");
    wav.extend_from_slice(&(36 + data).to_le_bytes());
    wav.extend_from_slice(b"WAVEfmt ");
    wav.extend_from_slice(&16u32.to_le_bytes());
    for field in [1u16, 1] {
        wav.extend_from_slice(&field.to_le_bytes()); // plain samples, one channel
    }
    wav.extend_from_slice(&RATE.to_le_bytes());
    wav.extend_from_slice(&(RATE * u32::from(WIDTH)).to_le_bytes());
    for field in [WIDTH, WIDTH * 8] {
        wav.extend_from_slice(&field.to_le_bytes());
    }
    wav.extend_from_slice(b"data");
    wav.extend_from_slice(&data.to_le_bytes());
    wav.extend((0..data).map(|_| 0));
    wav
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::route::{BodyKind, Found, Routes};

    #[test]
    fn every_type_has_a_word_and_a_sample_that_this_router_would_route() {
        let routes = Routes::new([]);
        for (word, kind) in ModelType::WORDS {
            assert_eq!((ModelType::named(word), kind.word()), (Some(kind), word));
            let sample = kind.sample("org/\"m\"");
            let Found::Route(route) = routes.find(&http::Method::POST, sample.path) else {
                panic!("{} is not served", sample.path);
            };
            if kind == ModelType::Transcription {
                assert_eq!(route.body, BodyKind::Form);
                continue;
            }
            let body: Value = serde_json::from_slice(&sample.body).unwrap();
            assert_eq!(body["model"], "org/\"m\"");
            let generates = body.get("messages").or(body.get("prompt")).is_some();
            assert_eq!(body.get("max_tokens"), generates.then_some(&json!(1)));
        }
        assert_eq!(ModelType::named("Chat"), None);
    }

    #[test]
    fn a_form_holds_the_model_and_a_tenth_of_a_second_of_silence() {
        let sample = ModelType::Transcription.sample("whisper");
        let text = String::from_utf8_lossy(&sample.body);
        assert!(text.contains("form-data; name=\"model\"\r\n\r\nwhisper\r\n"));
        assert!(text.ends_with("\r\n--vllm-pingora-probe--\r\n"));
        let wav = silence();
        assert_eq!(wav.len(), 44 + 3200);
        let number = |at: usize| u32::from_le_bytes(wav[at..at + 4].try_into().unwrap());
        assert_eq!(
            (number(4), number(24), number(28), number(40)),
            (3236, 16_000, 32_000, 3200)
        );
    }
}
