use super::*;

fn routes() -> Routes {
    Routes::new([Route {
        method: Method::POST,
        path: "/v1/load_lora_adapter".into(),
        body: BodyKind::Unknown,
        action: Action::Forward {
            model: ModelSource::Any,
            resend: Resend::ConnectOnly,
        },
        is_extra: true,
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
        "/v1/responses/",
        "/v1/responses/a/b",
        "/v1/responses/a%62",
        "/v1/responses/a.b",
        "/v1/responses//cancel",
        "/v1/responses/a/cancel/",
        "/v1/responses/a/../cancel",
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

#[test]
fn a_parameter_is_one_word_of_an_id_or_the_whole_name_of_a_model() {
    let routes = routes();
    let found = |method, path: &'static str| match routes.find(&method, path) {
        Found::Route(route) => (route.path.to_string(), route.parameter(path).unwrap()),
        other => panic!("{path}: {other:?}"),
    };
    let (get, post) = (Method::GET, Method::POST);
    for (method, path, pattern, parameter) in [
        (
            &get,
            "/v1/responses/resp_1-aZ",
            "/v1/responses/{id}",
            "resp_1-aZ",
        ),
        (
            &post,
            "/v1/responses/resp_1/cancel",
            "/v1/responses/{id}/cancel",
            "resp_1",
        ),
        (&get, "/v1/models/m", "/v1/models/{id}", "m"),
        (&get, "/v1/models/org/model", "/v1/models/{id}", "org/model"),
        (&get, "/v1/models//data/m", "/v1/models/{id}", "/data/m"),
        (
            &get,
            "/v1/models/org%2Fmodel",
            "/v1/models/{id}",
            "org%2Fmodel",
        ),
    ] {
        assert_eq!(found(method.clone(), path), (pattern.to_owned(), parameter));
    }
    // A whole path comes before one with a parameter.
    let render = routes.find(&Method::POST, "/v1/responses/render");
    assert!(matches!(render, Found::Route(route) if &*route.path == "/v1/responses/render"));
    for (method, path, allow) in [
        (Method::GET, "/v1/responses/render", "POST"),
        (Method::GET, "/v1/responses/a/cancel", "POST"),
        (Method::POST, "/v1/responses/a", "GET"),
        (Method::HEAD, "/v1/responses/a", "GET"),
        (Method::DELETE, "/v1/models/m", "GET, HEAD"),
        (Method::PUT, "/ping", "GET, HEAD, POST"),
    ] {
        assert_eq!(
            routes.find(&method, path),
            Found::OtherMethod(allow),
            "{path}"
        );
    }
}

#[test]
fn only_probes_need_no_key() {
    let open: Vec<_> = [
        "/health",
        "/ping",
        "/version",
        "/v1/models",
        "/invocations",
        "/nope",
    ]
    .into_iter()
    .filter(|path| routes().is_open(path))
    .collect();
    assert_eq!(open, ["/health", "/ping"]);
    // A route of the configuration takes the key with it.
    let taken = ExtraRoute {
        method: Method::GET,
        path: "/ping".to_owned(),
        model: ModelSource::Any,
        resend: Resend::Always,
    };
    assert!(!Routes::new([Route::from(&taken)]).is_open("/ping"));
}
