//! The routes the public port serves: an allow-list, and all there is to know of each.

mod table;

use std::sync::Arc;

use http::Method;

use crate::config::ExtraRoute;
use crate::retry::Resend;
use crate::words::Words;

/// Where a request's model comes from, and with it the engines that may serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// The top-level `model` of a JSON body.
    Body,
    /// The `model` part of a multipart form.
    Form,
    /// The `model` of the query; any engine where there is none.
    Query,
    /// The response whose id is in the path: the engine that made it, whatever its model.
    Response,
    /// Any engine will do.
    Any,
}

impl ModelSource {
    /// Every source a route of the configuration may have, and the word for it there.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("any", Self::Any),
        ("body", Self::Body),
        ("form", Self::Form),
        ("query", Self::Query),
    ];

    /// The word for it, in the configuration and in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Body => "body",
            Self::Form => "form",
            Self::Query => "query",
            Self::Response => "response",
        }
    }
}

/// What a request's body holds, where that is known. It is forwarded as it is all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A JSON object.
    Json,
    /// `multipart/form-data`.
    Form,
    /// None is expected.
    Nothing,
    /// None; the connection may turn into a WebSocket.
    WebSocket,
    /// Nobody said.
    Unknown,
}

impl BodyKind {
    /// The word for it in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Form => "multipart",
            Self::Nothing => "none",
            Self::WebSocket => "WebSocket",
            Self::Unknown => "any",
        }
    }
}

/// What happens to a request on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes to an engine.
    Forward {
        /// How the engines that may serve it are found.
        model: ModelSource,
        /// Whether it may be sent again after it may have been delivered.
        resend: Resend,
    },
    /// The router lists the models of its engines.
    ListModels,
    /// The router describes the model whose name is in the path.
    ShowModel,
    /// The router says which version it is.
    Version,
    /// The router says that it serves.
    Health,
}

/// Stands in a path for what differs from request to request.
const PARAMETER: &str = "{id}";

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method it is served under.
    pub method: Method,
    /// Its path, compared byte for byte; `{id}` in a built-in one stands for a parameter.
    pub path: Arc<str>,
    /// What its requests carry.
    pub body: BodyKind,
    /// What happens to requests on it.
    pub action: Action,
    /// The configuration added it, so what its query means is not known here.
    pub is_extra: bool,
}

impl Route {
    /// The part of `path` that stands where the route has its parameter; `None` where the route
    /// has none, or the path is of another one.
    pub fn parameter<'p>(&self, path: &'p str) -> Option<&'p str> {
        let (before, after) = self.path.split_once(PARAMETER)?;
        let parameter = path.strip_prefix(before)?.strip_suffix(after)?;
        let fits = match self.action {
            // Names of models may hold slashes, and much else.
            Action::ShowModel => !parameter.is_empty(),
            _ => is_response_id(parameter),
        };
        fits.then_some(parameter)
    }

    fn is_own(&self) -> bool {
        !matches!(self.action, Action::Forward { .. })
    }
}

/// Whether this can be the id of a response, as one segment of a path.
pub fn is_response_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.bytes().all(fits)
}

/// The path on which responses are made, which their engine then remembers.
pub const RESPONSES: &str = "/v1/responses";

impl From<&ExtraRoute> for Route {
    fn from(extra: &ExtraRoute) -> Self {
        Self {
            method: extra.method.clone(),
            path: extra.path.as_str().into(),
            body: match extra.model {
                ModelSource::Body => BodyKind::Json,
                ModelSource::Form => BodyKind::Form,
                ModelSource::Query => BodyKind::WebSocket,
                ModelSource::Response | ModelSource::Any => BodyKind::Unknown,
            },
            action: Action::Forward {
                model: extra.model,
                resend: extra.resend,
            },
            is_extra: true,
        }
    }
}

/// What a method and a path lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The route.
    Route(&'a Route),
    /// The path is served under these methods only.
    OtherMethod(&'static str),
    /// The path is not served.
    Nothing,
}

/// All routes of a router.
#[derive(Clone, Debug)]
pub struct Routes {
    by_path: Words<Vec<Route>>,
    /// Those whose paths have a parameter.
    patterns: Vec<Route>,
}

impl Routes {
    /// The built-in routes and `extra` ones; an extra one takes the place of a built-in one with
    /// the same method and path.
    pub fn new(extra: impl IntoIterator<Item = Route>) -> Self {
        let (patterns, plain): (Vec<_>, Vec<_>) =
            table::built_in().partition(|route| route.path.contains(PARAMETER));
        let mut by_path = Words::<Vec<Route>>::default();
        for route in plain.into_iter().chain(extra) {
            let same_path = by_path.entry(Arc::clone(&route.path)).or_default();
            same_path.retain(|other| other.method != route.method);
            same_path.push(route);
        }
        Self { by_path, patterns }
    }

    /// Whether no key is asked for on this path: probes have none, and learn nothing but that
    /// the router serves.
    pub fn is_open(&self, path: &str) -> bool {
        let routes = self.by_path.get(path);
        routes.is_some_and(|routes| routes.iter().all(|route| route.action == Action::Health))
    }

    /// The route of a request. `HEAD` is served where `GET` is answered by the router itself.
    pub fn find(&self, method: &Method, path: &str) -> Found<'_> {
        let pattern = || {
            let mut patterns = self.patterns.iter();
            patterns.find(|route| route.parameter(path).is_some())
        };
        let routes = match self.by_path.get(path) {
            Some(routes) => routes.as_slice(),
            None => pattern().map(std::slice::from_ref).unwrap_or_default(),
        };
        if routes.is_empty() {
            return Found::Nothing;
        }
        let of = |method: &Method| routes.iter().find(|route| route.method == *method);
        let head = || of(&Method::GET).filter(|route| *method == Method::HEAD && route.is_own());
        match of(method).or_else(head) {
            Some(route) => Found::Route(route),
            None => Found::OtherMethod(allowed(
                of(&Method::GET).map(Route::is_own),
                of(&Method::POST).is_some(),
            )),
        }
    }

    /// Every route, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.by_path.values().flatten().chain(&self.patterns)
    }
}

/// The methods to tell a client of: whether `GET` is served, by the router itself, and `POST`.
fn allowed(get: Option<bool>, post: bool) -> &'static str {
    match (get, post) {
        (Some(true), true) => "GET, HEAD, POST",
        (Some(true), false) => "GET, HEAD",
        (Some(false), true) => "GET, POST",
        (None, true) => "POST",
        (Some(false) | None, false) => "GET",
    }
}

#[cfg(test)]
mod tests;
