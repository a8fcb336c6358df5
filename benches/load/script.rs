//! What an engine says.

use std::time::Duration;

/// The bytes of an answer that is no stream.
pub const ANSWER: usize = 416;
/// What a stream ends with, as one more event.
const DONE: &str = "data: [DONE]\n\n";

/// What engines do with an inference request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Answer at once, with [`ANSWER`] bytes of JSON.
    Answer,
    /// The same, but every fifth request of all gets vLLM's 503.
    OneInFive,
    /// Stream this many events, the first at once and each next one after this time.
    Stream {
        /// All events of the answer, the end mark included.
        events: u64,
        /// From one to the next.
        every: Duration,
    },
    /// Send one event and keep the stream open; more come when it is told to say more.
    Hold,
}

/// A whole response with a body of this length.
pub fn whole(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nserver: uvicorn\r\ncontent-length: {}\r\ncontent-type: {content_type}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A chat completion.
pub fn answer() -> Vec<u8> {
    let around = |content: &str| {
        format!(
            r#"{{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1790000000,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{content}"}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":256,"completion_tokens":16,"total_tokens":272}}}}"#
        )
    };
    let content = "x".repeat(ANSWER - around("").len());
    whole("200 OK", "application/json", &around(&content))
}

/// vLLM's refusal when its queue is full.
pub fn refusal() -> Vec<u8> {
    let body = r#"{"error":{"message":"The engine is currently busy and cannot accept new requests.","type":"Service Unavailable","param":null,"code":503}}"#;
    whole("503 Service Unavailable", "application/json", body)
}

/// The head of a stream.
pub fn stream_head() -> &'static [u8] {
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
}

/// One event with a token, as one chunk.
pub fn event() -> Vec<u8> {
    chunk(concat!(
        r#"data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1790000000,"#,
        r#""model":"m","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}"#,
        "\n\n"
    ))
}

/// The end mark, and the end of the body.
pub fn done() -> Vec<u8> {
    [chunk(DONE), b"0\r\n\r\n".to_vec()].concat()
}

fn chunk(event: &str) -> Vec<u8> {
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

/// What `GET` is answered: enough for every router to take the engine for a vLLM that works.
pub fn page(path: &str) -> Vec<u8> {
    match path {
        "/health" | "/ping" => whole("200 OK", "application/json", ""),
        "/v1/models" => whole(
            "200 OK",
            "application/json",
            r#"{"object":"list","data":[{"id":"m","object":"model","created":1790000000,"owned_by":"vllm","root":"m","parent":null,"max_model_len":131072}]}"#,
        ),
        "/version" => whole("200 OK", "application/json", r#"{"version":"0.32.0"}"#),
        "/metrics" => whole(
            "200 OK",
            "text/plain; version=0.0.4; charset=utf-8",
            "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 8.0\n\
             vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0.0\n\
             vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\n\
             process_start_time_seconds 1790000000.0\n",
        ),
        _ => whole(
            "404 Not Found",
            "application/json",
            r#"{"detail":"Not Found"}"#,
        ),
    }
}
