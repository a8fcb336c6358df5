//! Requests for completions, each with a prompt of its own, and the echo that must come back.

use std::io::Write as _;

use rand::RngExt as _;
use rand::rngs::StdRng;
use vllm_pingora::simulator::echo;

/// What a completion is asked for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Whether the answer is to come token by token.
    pub stream: bool,
    /// The model.
    pub model: &'static str,
    /// About how long the prompt is, in bytes.
    pub size: usize,
    /// How many tokens the answer has; `None` leaves it to the engine.
    pub tokens: Option<u32>,
}

/// A request for a completion.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The path it goes to.
    pub path: &'static str,
    /// Its JSON body.
    pub body: Vec<u8>,
    /// The hash of its prompt, as the answer carries it.
    pub echo: String,
    /// Whether the answer comes token by token.
    pub stream: bool,
    /// Its request id.
    pub id: String,
}

impl Wish {
    /// A wish like most: a short prompt for a model that every engine serves.
    pub fn ordinary(rng: &mut StdRng) -> Self {
        Self {
            stream: rng.random_bool(0.5),
            model: if rng.random_bool(0.1) { "solo" } else { "m" },
            size: rng.random_range(100..4_000),
            tokens: None,
        }
    }
}

impl Ask {
    /// A request whose prompt nobody else has.
    pub fn new(id: String, wish: &Wish, rng: &mut StdRng) -> Self {
        let letter = char::from(b'a' + rng.random_range(0..26));
        let text = format!("{id} {}", letter.to_string().repeat(wish.size));
        let (path, key, prompt) = if rng.random_bool(0.3) {
            let messages = format!(r#"[{{"role":"user","content":"{text}"}}]"#);
            ("/v1/chat/completions", "messages", messages)
        } else {
            ("/v1/completions", "prompt", format!("\"{text}\""))
        };
        let tokens = wish.tokens.map_or(String::new(), |tokens| {
            format!(r#","max_tokens":{tokens},"ignore_eos":true"#)
        });
        let Wish { stream, model, .. } = wish;
        // The model comes after the prompt at times, so that all of the body has to be read.
        let body = if rng.random_bool(0.5) {
            format!(r#"{{"model":"{model}","stream":{stream}{tokens},"{key}":{prompt}}}"#)
        } else {
            format!(r#"{{"{key}":{prompt},"stream":{stream}{tokens},"model":"{model}"}}"#)
        };
        Self {
            path,
            body: body.into_bytes(),
            echo: echo(&prompt),
            stream: wish.stream,
            id,
        }
    }

    /// The same request, its body compressed.
    pub fn gzipped(&self) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&self.body).expect("memory");
        gzip.finish().expect("memory")
    }
}
