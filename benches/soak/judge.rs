//! Decides whether an answer is one that its request can have.

use super::answer::{Answer, End};
use super::prompt::Ask;

/// What an engine in trouble, or a router that reaches none, may say to any request.
pub const TROUBLE: [u16; 5] = [429, 500, 502, 503, 504];

const DONE: &[u8] = b"data: [DONE]\n\n";

/// The result of a completion, in a word.
///
/// # Errors
/// What is wrong with the answer.
pub fn completion(ask: &Ask, answer: &Answer) -> Result<String, String> {
    let text = String::from_utf8_lossy(&answer.body);
    let shown = || -> String { text.chars().take(300).collect() };
    if answer.status != 200 {
        return status(answer, &TROUBLE);
    }
    // Whatever came is the client's own, even where it broke off.
    for (at, _) in text.match_indices("echo-") {
        let echo = text.get(at..at + ask.echo.len());
        if echo.is_some_and(|echo| echo != ask.echo) {
            return Err(format!("another client's answer: {}", shown()));
        }
    }
    let echoes = text.matches(ask.echo.as_str()).count();
    if echoes > 1 {
        return Err(format!("two answers in one: {}", shown()));
    }
    let done = answer.body.ends_with(DONE);
    let failed = text.contains(r#"data: {"error""#);
    match answer.end {
        End::Left => return Ok("left".to_owned()),
        End::Cut => return Ok("cut".to_owned()),
        // Nothing but `[DONE]` tells the end of such a stream.
        End::WithConnection if ask.stream && !done => return Ok("cut".to_owned()),
        End::WithConnection | End::Complete => {}
    }
    if ask.stream && !done {
        let end = text.len().saturating_sub(200);
        let tail = String::from_utf8_lossy(&answer.body[end.min(answer.body.len())..]);
        return Err(format!("a clean end without [DONE]: …{tail}"));
    }
    if ask.stream && failed {
        return Ok("200, then the engine's error".to_owned());
    }
    if echoes == 0 {
        return Err(format!("an answer without the prompt's hash: {}", shown()));
    }
    if !ask.stream && serde_json::from_str::<serde_json::Value>(&text).is_err() {
        return Err(format!("an answer that is not JSON: {}", shown()));
    }
    Ok("200".to_owned())
}

/// The result of a request whose status is all that matters, in a word.
///
/// # Errors
/// The status is not among the expected ones, or the answer is not whole.
pub fn status(answer: &Answer, expected: &[u16]) -> Result<String, String> {
    let text = String::from_utf8_lossy(&answer.body);
    let shown: String = text.chars().take(300).collect();
    if !expected.contains(&answer.status) {
        return Err(format!("status {}: {shown}", answer.status));
    }
    if text.contains("internal_error") {
        return Err(format!("the router's own fault: {shown}"));
    }
    Ok(match answer.end {
        End::Cut => "cut".to_owned(),
        End::Left => "left".to_owned(),
        End::Complete | End::WithConnection => answer.status.to_string(),
    })
}
