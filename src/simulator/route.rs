//! From a request to its endpoint: keys, paths, methods and models.

use std::sync::Arc;

use serde_json::{Value, json};

use super::answer;
use super::ask::{self, Kind};
use super::connection::{Connection, Gone, Request};
use super::engine::Engine;
use super::generate::Generation;
use super::ledger::{Ending, Line};
use super::metrics;
use super::reply::Reply;
use super::{control, responses, tokens};

/// What the connection does after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Keep,
    Close,
    Reset,
}

/// Every path and the methods it answers.
const PATHS: [(&str, &str); 17] = [
    ("/v1/chat/completions", "POST"),
    ("/v1/completions", "POST"),
    ("/v1/embeddings", "POST"),
    ("/v1/models", "GET"),
    ("/health", "GET"),
    ("/ping", "GET, POST"),
    ("/version", "GET"),
    ("/load", "GET"),
    ("/metrics", "GET"),
    ("/tokenize", "POST"),
    ("/detokenize", "POST"),
    ("/sleep", "POST"),
    ("/wake_up", "POST"),
    ("/is_sleeping", "GET"),
    ("/v1/load_lora_adapter", "POST"),
    ("/v1/unload_lora_adapter", "POST"),
    ("/sim", "GET, POST"),
];

/// Answers one request.
pub(super) async fn answer(
    engine: &Engine,
    connection: &mut Connection,
    request: &Request,
) -> Flow {
    let head = &request.head;
    let watched = matches!(
        head.path.as_str(),
        "/health" | "/ping" | "/metrics" | "/load" | "/is_sleeping"
    ) || head.path.starts_with("/sim");
    if watched {
        let reply = direct(engine, connection, request);
        let sent = reply
            .send(connection, head.close, head.method == "HEAD")
            .await;
        return after(&sent.map(|()| Ending::Complete), head.close);
    }
    let body_hash = answer::hash(&request.body);
    let line = engine.ledger.receive(
        &head.method,
        &head.path,
        head.request_id.as_deref(),
        (request.body.len(), body_hash),
    );
    let mut said = Said::default();
    let result = enter(engine, connection, request, line, &mut said).await;
    let ending = *result.as_ref().unwrap_or(&Ending::Aborted);
    engine.ledger.end(line, ending);
    log::info!(
        "engine={} request_id={} method={} path={} model={} stream={} bytes={} {}",
        engine.port,
        head.request_id.as_deref().unwrap_or("-"),
        head.method,
        head.path,
        said.model.as_deref().unwrap_or("-"),
        said.stream,
        request.body.len(),
        engine.ledger.outcome(line),
    );
    after(&result, head.close)
}

/// What a request said, for its log line.
#[derive(Debug, Default)]
struct Said {
    model: Option<String>,
    stream: bool,
}

fn after(result: &Result<Ending, Gone>, close: bool) -> Flow {
    match result {
        Ok(Ending::Reset) => Flow::Reset,
        Ok(Ending::Complete | Ending::EngineError) if !close => Flow::Keep,
        _ => Flow::Close,
    }
}

/// Answers a request that is entered in the ledger.
async fn enter(
    engine: &Engine,
    connection: &mut Connection,
    request: &Request,
    line: Line,
    said: &mut Said,
) -> Result<Ending, Gone> {
    let head = &request.head;
    let kind = match head.path.as_str() {
        "/v1/chat/completions" => Some(Kind::Chat),
        "/v1/completions" => Some(Kind::Completion),
        "/v1/embeddings" => Some(Kind::Embedding),
        _ => None,
    };
    let reply = match kind {
        Some(kind) if head.method == "POST" && may_enter(engine, request) => {
            match accept(engine, kind, request, said) {
                Ok((ask, model)) => {
                    if engine.sleep.is_on() {
                        connection.until(engine.sleep.over()).await?;
                    }
                    let generation = Generation {
                        engine,
                        connection,
                        ask,
                        model,
                        request_id: head.request_id.as_deref(),
                        line,
                        close: head.close,
                    };
                    return generation.run().await;
                }
                Err(reply) => reply,
            }
        }
        _ => {
            let makes = head.path == responses::PATH && head.method == "POST";
            if makes && engine.sleep.is_on() {
                connection.until(engine.sleep.over()).await?;
            }
            direct(engine, connection, request)
        }
    };
    engine.ledger.head(line, reply.status);
    reply
        .send(connection, head.close, head.method == "HEAD")
        .await?;
    Ok(Ending::Complete)
}

/// The request's wishes and the place of its model, or why it is refused.
fn accept<'r>(
    engine: &Engine,
    kind: Kind,
    request: &'r Request,
    said: &mut Said,
) -> Result<(ask::Ask<'r>, Arc<str>), Reply> {
    if !request.head.json {
        return Err(ask::not_json());
    }
    let ask = ask::read(kind, &request.body, engine.config.max_model_len)?;
    said.stream = ask.stream;
    said.model.clone_from(&ask.model);
    let model = served_model(engine, ask.model.as_deref())?;
    Ok((ask, model))
}

/// The name of a served model or adapter as JSON text without quotes; the first stands in for none.
pub(super) fn served_model(engine: &Engine, model: Option<&str>) -> Result<Arc<str>, Reply> {
    let models = &engine.config.models;
    let place = match model {
        None => Some(0),
        Some(model) => models.iter().position(|served| served == model),
    };
    let served = place.and_then(|place| engine.model_json.get(place).cloned());
    let adapter = || model.and_then(|name| engine.adapters.find(name));
    served
        .or_else(adapter)
        .ok_or_else(|| Reply::no_such_model(model.unwrap_or_default(), &models.join(", ")))
}

/// Whether the request has the key its path asks for.
fn may_enter(engine: &Engine, request: &Request) -> bool {
    let Some(key) = &engine.config.api_key else {
        return true;
    };
    let head = &request.head;
    let guarded = ["/v1", "/v2", "/inference", "/cohere"]
        .iter()
        .any(|prefix| head.path.starts_with(prefix));
    let given = head
        .authorization
        .as_deref()
        .and_then(|it| it.split_once(' '));
    !guarded
        || head.method == "OPTIONS"
        || given
            .is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case("bearer") && given == key)
}

/// The answer of every path that generates nothing, and of those that do not exist.
fn direct(engine: &Engine, connection: &mut Connection, request: &Request) -> Reply {
    if !may_enter(engine, request) {
        return Reply::unauthorized();
    }
    let head = &request.head;
    let (path, method) = (head.path.as_str(), head.method.as_str());
    if path == "/sim/requests" && method == "GET" {
        return control::requests(engine, &head.query);
    }
    if let Some(reply) = responses::answer(engine, request, connection.date().0) {
        return reply;
    }
    let Some((_, methods)) = PATHS.iter().find(|(known, _)| *known == path) else {
        return redirect(request).unwrap_or_else(|| Reply::detail(404, "Not Found"));
    };
    if !methods.split(", ").any(|known| known == method) {
        let mut reply = Reply::detail(405, "Method Not Allowed");
        reply.extra = super::reply::Extra::Allow(methods);
        return reply;
    }
    match (path, method) {
        ("/health" | "/ping", _) => Reply::empty(engine.behaviour().health_status),
        ("/version", _) => Reply::json(200, r#"{"version":"0.32.0"}"#),
        ("/load", _) => Reply::json(200, r#"{"server_load":0}"#),
        ("/metrics", _) => {
            let model = engine.config.models.first().map_or("", String::as_str);
            let page = engine.metrics.render(model, engine.gauges());
            Reply::text(200, metrics::CONTENT_TYPE, page)
        }
        ("/sleep", _) => engine.sleep.fall(&head.query),
        ("/wake_up", _) => engine.sleep.wake(&head.query),
        ("/is_sleeping", _) => engine.sleep.tell(),
        ("/v1/load_lora_adapter", _) => {
            let loaded = engine.adapters.load(&engine.config.models, request);
            loaded.unwrap_or_else(|refusal| refusal)
        }
        ("/v1/unload_lora_adapter", _) => {
            let unloaded = engine.adapters.unload(request);
            unloaded.unwrap_or_else(|refusal| refusal)
        }
        ("/v1/models", _) => models(engine, connection.date().0),
        ("/tokenize", _) => tokens::tokenize(engine, request).unwrap_or_else(|refusal| refusal),
        ("/detokenize", _) => tokens::detokenize(engine, request).unwrap_or_else(|refusal| refusal),
        ("/sim", "GET") => Reply::json(200, engine.status().to_string()),
        ("/sim", _) => control::change(engine, &request.body),
        _ => Reply::detail(404, "Not Found"),
    }
}

/// A known path with a slash too many is sent to the right one, with an absolute address.
fn redirect(request: &Request) -> Option<Reply> {
    let right = request.head.path.strip_suffix('/')?;
    PATHS.iter().find(|(known, _)| *known == right)?;
    let host = request.head.host.as_deref().unwrap_or("localhost");
    let mut reply = Reply::empty(307);
    reply.extra = super::reply::Extra::Location(format!("http://{host}{right}"));
    Some(reply)
}

fn models(engine: &Engine, created: u64) -> Reply {
    let base = engine.config.models.first();
    let card = |model: &str, root: Option<&String>, parent: Option<&String>| {
        let length = parent.is_none().then_some(engine.config.max_model_len);
        json!({
            "id": model, "object": "model", "created": created, "owned_by": "vllm",
            "root": root, "parent": parent, "max_model_len": length,
            "permission": [{
                "id": format!("modelperm-{:016x}", answer::hash(model.as_bytes())),
                "object": "model_permission", "created": created,
                "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
                "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false,
                "organization": "*", "group": null, "is_blocking": false,
            }],
        })
    };
    let models = engine.config.models.iter();
    let mut data: Vec<Value> = models.map(|model| card(model, base, None)).collect();
    let adapters = engine.adapters.all();
    let cards = adapters
        .iter()
        .map(|it| card(&it.name, Some(&it.path), base));
    data.extend(cards);
    Reply::json(200, json!({"object": "list", "data": data}).to_string())
}
