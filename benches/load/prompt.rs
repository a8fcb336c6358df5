//! Requests, as bytes that are made once and sent many times.

use std::fmt::Write as _;
use std::net::SocketAddr;

/// A chat completion with a prompt of this many bytes. Each number is another conversation, whose
/// prompts have no beginning in common with those of others.
pub fn chat(to: SocketAddr, number: usize, prompt: usize, stream: bool) -> Vec<u8> {
    let mut text = format!("Conversation {number}:");
    let mut word = number;
    while text.len() < prompt {
        // Any words do, as long as they are not all the same.
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let _ = write!(text, " {}", WORDS[(word >> 33) % WORDS.len()]);
    }
    text.truncate(prompt);
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}],"temperature":0.7,"max_tokens":256,"stream":{stream}}}"#
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {to}\r\nuser-agent: compare\r\naccept: */*\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

const WORDS: [&str; 16] = [
    "the", "engine", "of", "a", "fleet", "answers", "every", "question", "with", "tokens", "that",
    "come", "one", "by", "another", "in turn",
];
