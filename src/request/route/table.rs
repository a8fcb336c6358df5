//! The built-in routes: every inference and read route of vLLM, and the router's own answers.
//!
//! From vLLM 0.32's own routers; speech, voices and images are those of its omni-modal sibling.
//! What changes an engine's state is not here: that is on the admin port.

use http::Method;

use super::{Action, BodyKind, ModelSource, Route};
use crate::retry::Resend;

/// One row: a method, a path, what the body holds, and what happens.
struct Row(Method, &'static str, BodyKind, Action);

/// Forwarded, and safe to ask twice.
const fn ask(model: ModelSource) -> Action {
    Action::Forward {
        model,
        resend: Resend::Always,
    }
}

/// Inference: a JSON body that names its model.
const fn json(path: &'static str) -> Row {
    Row(Method::POST, path, BodyKind::Json, ask(ModelSource::Body))
}

/// Inference that takes a file beside its model, in a multipart form.
const fn form(path: &'static str) -> Row {
    Row(Method::POST, path, BodyKind::Form, ask(ModelSource::Form))
}

/// Something to read that may differ from model to model.
const fn read(path: &'static str) -> Row {
    Row(
        Method::GET,
        path,
        BodyKind::Nothing,
        ask(ModelSource::Query),
    )
}

/// Answered by the router itself.
const fn own(method: Method, path: &'static str, action: Action) -> Row {
    Row(method, path, BodyKind::Nothing, action)
}

const TABLE: &[Row] = &[
    json("/v1/chat/completions"),
    json("/v1/chat/completions/batch"),
    json("/v1/chat/completions/render"),
    json("/v1/chat/completions/derender"),
    json("/v1/completions"),
    json("/v1/completions/render"),
    json("/v1/completions/derender"),
    json(super::RESPONSES),
    json("/v1/responses/render"),
    // An engine keeps its responses in its own memory, so only the one that made a response can
    // show or cancel it.
    Row(
        Method::GET,
        "/v1/responses/{id}",
        BodyKind::Nothing,
        ask(ModelSource::Response),
    ),
    Row(
        Method::POST,
        "/v1/responses/{id}/cancel",
        BodyKind::Nothing,
        Action::Forward {
            model: ModelSource::Response,
            resend: Resend::ConnectOnly,
        },
    ),
    json("/v1/messages"),
    json("/v1/messages/count_tokens"),
    json("/v1/messages/render"),
    json("/cohere/v2/chat"),
    json("/cohere/v2/chat/render"),
    json("/inference/v1/generate"),
    // vLLM serves this one without a key; here it asks for one, as all inference does.
    json("/invocations"),
    json("/v1/embeddings"),
    json("/v2/embed"),
    json("/pooling"),
    json("/classify"),
    json("/score"),
    json("/v1/score"),
    json("/generative_scoring"),
    json("/rerank"),
    json("/v1/rerank"),
    json("/v2/rerank"),
    json("/v1/systemone"),
    json("/tokenize"),
    json("/detokenize"),
    read("/tokenizer_info"),
    form("/v1/audio/transcriptions"),
    form("/v1/audio/translations"),
    json("/v1/audio/speech"),
    read("/v1/audio/voices"),
    json("/v1/images/generations"),
    form("/v1/images/edits"),
    Row(
        Method::GET,
        "/v1/realtime",
        BodyKind::WebSocket,
        ask(ModelSource::Query),
    ),
    own(Method::GET, "/v1/models", Action::ListModels),
    own(Method::GET, "/v1/models/{id}", Action::ShowModel),
    own(Method::GET, "/version", Action::Version),
    own(Method::GET, "/health", Action::Health),
    own(Method::GET, "/ping", Action::Health),
    own(Method::POST, "/ping", Action::Health),
];

/// All of them, in the order of the table.
pub(super) fn built_in() -> impl Iterator<Item = Route> {
    TABLE.iter().map(|Row(method, path, body, action)| Route {
        method: method.clone(),
        path: (*path).into(),
        body: *body,
        action: *action,
        is_extra: false,
    })
}
