//! `/v1/responses`: made, kept in the engine's own memory, read and cancelled.
//!
//! The text of a response is the [echo](super::echo) of its input. Responses come whole and at
//! once: speed, places and faults are those of the other inference routes. A stream is its first
//! and its last event.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::hash;
use super::ask;
use super::connection::Request;
use super::engine::Engine;
use super::reply::{Extra, Reply};
use super::route::served_model;

/// How many are kept. A vLLM server keeps all.
const KEPT: usize = 10_000;

/// The path on which they are made, and below which each has its own.
pub(super) const PATH: &str = "/v1/responses";

/// The responses of an engine.
#[derive(Debug)]
pub(super) struct Responses {
    made: Mutex<LruCache<String, Response>>,
    count: AtomicU64,
}

/// One response.
#[derive(Clone, Debug)]
struct Response {
    id: String,
    created: u64,
    /// As JSON text without quotes.
    model: String,
    previous: Option<String>,
    text: String,
    background: bool,
}

#[derive(Deserialize)]
struct Create<'b> {
    model: Option<String>,
    #[serde(borrow)]
    input: Option<&'b RawValue>,
    stream: Option<bool>,
    background: Option<bool>,
    store: Option<bool>,
    previous_response_id: Option<String>,
    request_id: Option<String>,
}

impl Default for Responses {
    fn default() -> Self {
        Self {
            made: Mutex::new(LruCache::unbounded()),
            count: AtomicU64::new(0),
        }
    }
}

/// The answer of a path at or below [`PATH`]; `None` for any other path. `now` is in seconds since
/// 1970.
pub(super) fn answer(engine: &Engine, request: &Request, now: u64) -> Option<Reply> {
    let below = request.head.path.strip_prefix(PATH)?;
    let method = request.head.method.as_str();
    let (id, allowed, cancels) = if below.is_empty() {
        ("", "POST", false)
    } else {
        let id = below.strip_prefix('/')?;
        match id.strip_suffix("/cancel") {
            Some(id) => (id, "POST", true),
            None => (id, "GET", false),
        }
    };
    if id.contains('/') || (id.is_empty() && !below.is_empty()) {
        return None;
    }
    if method != allowed {
        let mut reply = Reply::detail(405, "Method Not Allowed");
        reply.extra = Extra::Allow(allowed);
        return Some(reply);
    }
    let responses = &engine.responses;
    let reply = match (below, cancels) {
        ("", _) => responses.create(engine, request, now),
        (_, true) => responses.cancel(id),
        (_, false) => responses.find(id).map(|it| whole(&it, "completed")),
    };
    Some(reply.unwrap_or_else(|refusal| refusal))
}

impl Responses {
    fn create(&self, engine: &Engine, request: &Request, now: u64) -> Result<Reply, Reply> {
        let body: Create<'_> = ask::read_json(request)?;
        let input = body.input.ok_or_else(|| ask::missing("input"))?;
        let model = served_model(engine, body.model.as_deref())?;
        if let Some(previous) = &body.previous_response_id {
            self.find(previous)?;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let own = || {
            let seed = format!("{}-{number}", engine.port);
            format!("resp_{:016x}", hash(seed.as_bytes()))
        };
        let response = Response {
            id: body.request_id.unwrap_or_else(own),
            created: now,
            model: model.to_string(),
            previous: body.previous_response_id,
            text: super::echo(input.get()),
            background: body.background.unwrap_or(false),
        };
        let reply = if body.stream.unwrap_or(false) {
            stream(&response)
        } else if response.background {
            whole(&response, "queued")
        } else {
            whole(&response, "completed")
        };
        if body.store.unwrap_or(true) {
            let mut made = self.lock();
            made.put(response.id.clone(), response);
            if made.len() > KEPT {
                made.pop_lru();
            }
        }
        Ok(reply)
    }

    fn find(&self, id: &str) -> Result<Response, Reply> {
        self.lock().get(id).cloned().ok_or_else(|| {
            let text = format!("Response with id '{id}' not found.");
            Reply::error(404, "invalid_request_error", Some("response_id"), &text)
        })
    }

    fn cancel(&self, id: &str) -> Result<Reply, Reply> {
        let response = self.find(id)?;
        if response.background {
            return Ok(whole(&response, "cancelled"));
        }
        let text = "Cannot cancel a synchronous response.";
        let param = Some("response_id");
        Err(Reply::error(400, "invalid_request_error", param, text))
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<String, Response>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn whole(response: &Response, status: &str) -> Reply {
    Reply::json(200, object(response, status))
}

fn stream(response: &Response) -> Reply {
    let event = |(sequence, name, status)| {
        let response = object(response, status);
        format!(
            "event: {name}\ndata: {{\"response\":{response},\"sequence_number\":{sequence},\"type\":\"{name}\"}}\n\n"
        )
    };
    let events = [
        (0, "response.created", "in_progress"),
        (1, "response.completed", "completed"),
    ];
    let body = events.map(event).concat();
    Reply::text(200, "text/event-stream; charset=utf-8", body)
}

fn object(response: &Response, status: &str) -> String {
    let Response { created, model, .. } = response;
    let (id, text) = (Value::from(&*response.id), Value::from(&*response.text));
    let output = if status == "completed" {
        format!(
            r#"[{{"id":"msg_{:016x}","content":[{{"annotations":[],"text":{text},"type":"output_text","logprobs":null}}],"role":"assistant","status":"completed","type":"message","phase":null}}]"#,
            hash(response.id.as_bytes())
        )
    } else {
        "[]".to_owned()
    };
    let previous = Value::from(response.previous.as_deref());
    let background = response.background;
    format!(
        r#"{{"id":{id},"created_at":{created},"incomplete_details":null,"instructions":null,"metadata":null,"model":"{model}","object":"response","output":{output},"background":{background},"previous_response_id":{previous},"status":"{status}","usage":null}}"#
    )
}
