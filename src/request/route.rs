//! The routes the public port serves: an allow-list, and all there is to know of each.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;

use crate::config::ExtraRoute;
use crate::retry::Resend;

/// Where a request's model comes from, and with it the engines that may serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// The top-level `model` of a JSON body.
    Body,
    /// The `model` part of a multipart form.
    Form,
    /// The `model` of the query; any engine where there is none.
    Query,
    /// Any engine will do.
    Any,
}

impl ModelSource {
    /// Every source, and the word for it in the configuration.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("any", Self::Any),
        ("body", Self::Body),
        ("form", Self::Form),
        ("query", Self::Query),
    ];

    /// Whether requests may turn into WebSockets: those have no body to name a model in.
    pub fn may_upgrade(self) -> bool {
        self == Self::Query
    }

    /// The word for it in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Body => "body",
            Self::Form => "form",
            Self::Query => "query",
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
    /// The router says that it serves.
    Health,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method it is served under.
    pub method: Method,
    /// Its path, compared byte for byte.
    pub path: Arc<str>,
    /// What happens to requests on it.
    pub action: Action,
}

/// Inference routes of vLLM: JSON bodies that name their model, safe to ask twice.
const INFERENCE: &[&str] = &[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/score",
    "/score",
    "/v2/embed",
    "/pooling",
    "/classify",
    "/tokenize",
    "/detokenize",
    "/inference/v1/generate",
    "/v1/audio/speech",
    "/v1/images/generations",
];

/// Inference routes of vLLM that take a file beside their model, in a multipart form.
const UPLOADS: &[&str] = &[
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/images/edits",
];

/// Talks over a WebSocket.
const REALTIME: &str = "/v1/realtime";

/// The path of the router's own liveness answer, the only one that asks for no key.
pub const HEALTH: &str = "/health";

fn built_in() -> impl Iterator<Item = Route> {
    let own = |path: &str, action| Route {
        method: Method::GET,
        path: path.into(),
        action,
    };
    let forward = |model| Action::Forward {
        model,
        resend: Resend::Always,
    };
    let post = move |path: &&str, model| Route {
        method: Method::POST,
        path: (*path).into(),
        action: forward(model),
    };
    let inference = INFERENCE
        .iter()
        .map(move |path| post(path, ModelSource::Body));
    let uploads = UPLOADS
        .iter()
        .map(move |path| post(path, ModelSource::Form));
    inference.chain(uploads).chain([
        own(REALTIME, forward(ModelSource::Query)),
        own("/v1/models", Action::ListModels),
        own(HEALTH, Action::Health),
    ])
}

impl From<&ExtraRoute> for Route {
    fn from(extra: &ExtraRoute) -> Self {
        Self {
            method: extra.method.clone(),
            path: extra.path.as_str().into(),
            action: Action::Forward {
                model: extra.model,
                resend: extra.resend,
            },
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
pub struct Routes(HashMap<Arc<str>, Vec<Route>>);

impl Routes {
    /// The built-in routes and `extra` ones; an extra one takes the place of a built-in one with
    /// the same method and path.
    pub fn new(extra: impl IntoIterator<Item = Route>) -> Self {
        let mut by_path: HashMap<Arc<str>, Vec<Route>> = HashMap::new();
        for route in built_in().chain(extra) {
            let same_path = by_path.entry(Arc::clone(&route.path)).or_default();
            same_path.retain(|other| other.method != route.method);
            same_path.push(route);
        }
        Self(by_path)
    }

    /// The route of a request. `HEAD` is served where `GET` is answered by the router itself.
    pub fn find(&self, method: &Method, path: &str) -> Found<'_> {
        let Some(routes) = self.0.get(path) else {
            return Found::Nothing;
        };
        let own = |route: &&Route| !matches!(route.action, Action::Forward { .. });
        let found = routes
            .iter()
            .find(|route| route.method == *method)
            .or_else(|| {
                let head = method == Method::HEAD;
                routes.iter().filter(|_| head).find(own)
            });
        match (found, routes.first()) {
            (Some(route), _) => Found::Route(route),
            (None, Some(route)) if route.method == Method::POST => Found::OtherMethod("POST"),
            (None, Some(route)) if own(&route) => Found::OtherMethod("GET, HEAD"),
            (None, _) => Found::OtherMethod("GET"),
        }
    }

    /// Every route, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        Routes::new([Route {
            method: Method::POST,
            path: "/v1/load_lora_adapter".into(),
            action: Action::Forward {
                model: ModelSource::Any,
                resend: Resend::ConnectOnly,
            },
        }])
    }

    #[test]
    fn only_the_exact_spelling_of_a_path_is_served() {
        let routes = routes();
        for path in [
            "//v1/models",
            "/v1//models",
            "/v1/models/",
            "/V1/models",
            "/v1/../sleep",
            "/v1/%6dodels",
            "/v1/chat/completions%00",
            "/health/../sleep",
            "/sleep",
            "/metrics",
            "/invocations",
            "*",
            "",
        ] {
            assert_eq!(routes.find(&Method::GET, path), Found::Nothing, "{path}");
            assert_eq!(routes.find(&Method::POST, path), Found::Nothing, "{path}");
        }
    }

    #[test]
    fn a_wrong_method_is_told_the_right_one() {
        let routes = routes();
        let find = |method, path| routes.find(&method, path);
        assert_eq!(
            find(Method::GET, "/v1/completions"),
            Found::OtherMethod("POST")
        );
        assert_eq!(
            find(Method::HEAD, "/v1/completions"),
            Found::OtherMethod("POST")
        );
        assert_eq!(
            find(Method::POST, "/v1/models"),
            Found::OtherMethod("GET, HEAD")
        );
        assert!(matches!(find(Method::HEAD, "/health"), Found::Route(_)));
    }

    #[test]
    fn extra_routes_are_served_by_their_own_rules() {
        let routes = routes();
        let Found::Route(route) = routes.find(&Method::POST, "/v1/load_lora_adapter") else {
            panic!("the extra route is missing");
        };
        assert_eq!(
            route.action,
            Action::Forward {
                model: ModelSource::Any,
                resend: Resend::ConnectOnly
            }
        );
    }
}
