//! Keys, request ids and forwarding fields: C35.

use crate::support::*;

const EDGE_KEY: &str = "sk-edge-41c7d0";
const ENGINE_KEY: &str = "sk-engine-9be2a6";
const OTHER_KEY: &str = "sk-other-d5f803";
/// In an engine's answer.
const ANSWERED: &str = "sk-answered-7f3b1c";

const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#;

/// Answers 503 and then 200 for ever; lists its models.
async fn hesitant() -> ScriptedEngine {
    let script = script([status(503), ok("{}")]).cycle();
    ScriptedEngine::start(script.on("/v1/models", ok(MODELS))).await
}

fn keys(edge_key: bool, engine_key: bool) -> String {
    let ours = format!("api_keys: [unused-key, {EDGE_KEY}]\n");
    let engines = format!("engine_api_key: {ENGINE_KEY}\n");
    let given = |given: bool, line: String| if given { line } else { String::new() };
    [
        RETRIES.to_owned(),
        given(edge_key, ours),
        given(engine_key, engines),
    ]
    .concat()
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

// Keys

#[tokio::test(start_paused = true)]
async fn c35_the_engine_sees_the_key_meant_for_it_on_every_attempt_and_path() {
    for (edge_key, engine_key) in [(false, false), (false, true), (true, false), (true, true)] {
        let engine = hesitant().await;
        let edge = edge(&keys(edge_key, engine_key))
            .engines([&engine])
            .start()
            .await;
        let sent = bearer(EDGE_KEY);
        let own = bearer(ENGINE_KEY);
        let expected = match (edge_key, engine_key) {
            (_, true) => Some(&*own),
            (false, false) => Some(&*sent),
            (true, false) => None,
        };
        let seen = |path: &str| {
            let deliveries = engine.deliveries_to(path);
            for delivery in &deliveries {
                let case = format!("{path} edge={edge_key} engine={engine_key}");
                assert_eq!(delivery.headers.get("authorization"), expected, "{case}");
                let head = String::from_utf8_lossy(&delivery.head).into_owned();
                let known = expected.is_some_and(|value| value == sent);
                assert_eq!(head.contains(EDGE_KEY), known, "{case}: {head}");
            }
            deliveries.len()
        };
        let response = edge.ask(&req_n().set("Authorization", &sent)).await;
        assert_eq!(response.status, 200);
        assert_eq!(seen("/v1/chat/completions"), 2);
        let form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n";
        let upload = post("/v1/audio/transcriptions")
            .set("Content-Type", "multipart/form-data; boundary=b")
            .set("Authorization", &sent)
            .body(form);
        assert_eq!(edge.ask(&upload).await.status, 200);
        assert_eq!(seen("/v1/audio/transcriptions"), 2);
        let list = Request::new("GET", "/v1/models").set("Authorization", &sent);
        let response = edge.ask(&list).await;
        assert_eq!((response.status, response.text()), (200, MODELS));
        // A list that took long by the clock of this test may have been asked for again.
        assert!(seen("/v1/models") >= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c35_probes_carry_the_engines_key_and_never_a_clients() {
    for (edge_key, engine_key) in [(false, false), (false, true), (true, false), (true, true)] {
        let script = serving_m(ok("{}"))
            .on("/is_sleeping", ok(r#"{"is_sleeping":false}"#))
            .on("/metrics", ok("vllm:num_requests_running 0\n"));
        let engine = ScriptedEngine::start(script).await;
        let yaml = format!("routing_logic: leastload\n{}", keys(edge_key, engine_key));
        let edge = edge(&yaml).engine(&engine, &["m"]).start().await;
        let own = bearer(ENGINE_KEY);
        let looks = async |expected: Option<&str>, count: usize| {
            edge.probe().await;
            edge.look_again().await;
            for path in ["/health", "/is_sleeping", "/metrics"] {
                let asked = engine.deliveries_to(path);
                assert!(asked.len() >= count, "{path}: {} times", asked.len());
                let key = asked.last().unwrap().headers.get("authorization");
                assert_eq!(key, expected, "{path} edge={edge_key} engine={engine_key}");
                let text = format!("{asked:?}");
                assert!(
                    !text.contains(EDGE_KEY) && !text.contains(OTHER_KEY),
                    "{text}"
                );
            }
        };
        let expected = engine_key.then_some(&*own);
        looks(expected, 1).await;
        // A client's key may go to the engine, but with its request only.
        let key = if edge_key { EDGE_KEY } else { OTHER_KEY };
        let request = req_n().set("Authorization", &bearer(key));
        assert_eq!(edge.ask(&request).await.status, 200);
        looks(expected, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c35_without_keys_a_request_without_one_passes_as_it_is() {
    let engine = hesitant().await;
    let edge = edge(&keys(false, false)).engines([&engine]).start().await;
    let anonymous = req_n().without("Authorization");
    assert_eq!(edge.ask(&anonymous).await.status, 200);
    for scheme in ["Basic eDp5", "Digest a=\"b\", c=d", "token"] {
        let request = req_n().set("Authorization", scheme);
        assert_eq!(edge.ask(&request).await.status, 200);
        let delivery = engine.deliveries().pop().unwrap();
        assert_eq!(delivery.headers.get("authorization"), Some(scheme));
    }
    assert!(!engine.deliveries()[0].headers.has("authorization"));
}

#[tokio::test(start_paused = true)]
async fn c35_a_wrong_key_is_refused_before_any_engine_hears_of_it() {
    let engine = hesitant().await;
    let edge = edge(&keys(true, true)).engines([&engine]).start().await;
    let upper = EDGE_KEY.to_uppercase();
    let mut refused: Vec<Request> = [
        String::new(),
        EDGE_KEY.to_owned(),
        bearer(""),
        bearer(OTHER_KEY),
        bearer(ENGINE_KEY),
        bearer(&upper),
        bearer(&EDGE_KEY[..EDGE_KEY.len() - 1]),
        bearer(&EDGE_KEY[1..]),
        bearer(&format!("{EDGE_KEY}0")),
        bearer(&format!(" {EDGE_KEY}")),
        bearer(&format!("{EDGE_KEY},{EDGE_KEY}")),
        bearer(&format!("unused-key, {EDGE_KEY}")),
        bearer(&format!("\"{EDGE_KEY}\"")),
        bearer("unused-key sk-edge-41c7d0"),
        bearer("unused-key,sk-edge-41c7d0"),
        format!("Bearer\t{EDGE_KEY}"),
        format!("Basic {EDGE_KEY}"),
        format!("Bearer{EDGE_KEY}"),
        bearer("*"),
        bearer(&"a".repeat(20_000)),
    ]
    .iter()
    .map(|value| req_n().set("Authorization", value))
    .collect();
    refused.push(req_n().without("Authorization"));
    refused.push(
        req_n()
            .set("Authorization", &bearer(EDGE_KEY))
            .header("Authorization", bearer(EDGE_KEY)),
    );
    refused.push(
        req_n()
            .set("Authorization", &bearer(EDGE_KEY))
            .header("Authorization", bearer(OTHER_KEY)),
    );
    refused.push(
        req_n()
            .set("Authorization", "x")
            .without("Authorization")
            .header("X-Api-Key", EDGE_KEY),
    );
    refused.push(
        req_n()
            .without("Authorization")
            .header("Proxy-Authorization", bearer(EDGE_KEY)),
    );
    for (count, request) in refused.iter().enumerate() {
        let response = edge.ask(request).await;
        assert_eq!(response.status, 401, "{request:?}");
        assert_eq!(response.json()["error"]["code"], "invalid_api_key");
        assert_eq!(response.headers.get("www-authenticate"), Some("Bearer"));
        assert!(!response.text().contains("sk-"), "{}", response.text());
        assert_eq!(edge.requests("own_error"), (count + 1) as f64);
    }
    assert_eq!((engine.begun(), engine.accepted()), (0, 0));
    assert_eq!(edge.attempts_on(&engine), 0.0);
    let good = req_n().set("Authorization", &format!("bearer {EDGE_KEY}"));
    assert_eq!(edge.ask(&good).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn c35_the_list_of_models_asks_for_a_key_too() {
    let engine = hesitant().await;
    let edge = edge(&keys(true, false)).engines([&engine]).start().await;
    for request in [
        Request::new("GET", "/v1/models"),
        Request::new("HEAD", "/v1/models"),
        Request::new("GET", "/v1/models").without("Authorization"),
    ] {
        let mut client = Client::connect(edge.addr()).await;
        assert_eq!(client.ask(&request).await.status, 401);
    }
    assert_eq!(engine.deliveries_to("/v1/models").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn c35_a_list_asked_with_one_clients_key_is_not_shown_to_another() {
    let by_key = answer(|request| {
        let own = request.headers.get("authorization") == Some("Bearer one");
        let root = if own { "secret" } else { "common" };
        ok(format!(r#"{{"data":[{{"id":"m","root":"{root}"}}]}}"#))
    });
    let engine = ScriptedEngine::start(script(ok("{}")).on("/v1/models", by_key)).await;
    let edge = edge("").engines([&engine]).start().await;
    for (key, visible) in [("one", true), ("two", false), ("one", true)] {
        let list = Request::new("GET", "/v1/models").set("Authorization", &bearer(key));
        assert_eq!(edge.ask(&list).await.text().contains("secret"), visible);
    }
    let anonymous = Request::new("GET", "/v1/models").without("Authorization");
    assert!(!edge.ask(&anonymous).await.text().contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn c35_no_key_is_in_any_log_line_however_much_is_logged() {
    let traced = trace(&[EDGE_KEY, ENGINE_KEY, OTHER_KEY, ANSWERED, "traced-id-1"]);
    let engine = hesitant().await;
    let garbled = format!("HTTP/1.1 200 OK\r\n{ANSWERED} no field\r\n\r\n");
    let garbled = ScriptedEngine::start(raw(garbled)).await;
    let gone = ScriptedEngine::start(rst_at(Point::Request)).await;
    for (edge_key, engine_key) in [(false, false), (false, true), (true, false), (true, true)] {
        let edge = edge(&keys(edge_key, engine_key))
            .engines([&gone, &garbled, &engine])
            .start()
            .await;
        let good = bearer(EDGE_KEY);
        for request in [
            req_n().set("Authorization", &good),
            req_n().set("Authorization", &good).chunked([5]),
            req_n().set("Authorization", &bearer(OTHER_KEY)),
            req_n().header("Authorization", &good),
            req_n().set("Authorization", &good).without("Host"),
            req_n().set("Authorization", &good).header("Bad Name", "x"),
            req_n()
                .set("Authorization", &good)
                .header("Connection", "authorization"),
            req_n().set("Authorization", &good).header("X-Bad", b"\x01"),
            post("http://other.test/v1/chat/completions")
                .set("Authorization", &good)
                .body(req_n().body_bytes()),
            Request::new("GET", "/v1/models").set("Authorization", &good),
            post("/sleep").set("Authorization", &good),
            req_n().header("Proxy-Authorization", &good),
            post("/v1/<chat>").set("Authorization", &good),
            post("http:///v1/completions").set("Authorization", &good),
            post("/v1/completions")
                .set("Authorization", &good)
                .body("{"),
        ] {
            edge.ask(&request.set("X-Request-Id", "traced-id-1")).await;
        }
        edge.wait_until_idle().await;
    }
    let heard = traced.lines();
    assert!(
        heard.iter().any(|line| line.contains("traced-id-1")),
        "the log is heard"
    );
    assert!(garbled.seen() > 0, "a malformed head was met");
    let leaks: Vec<_> = heard.iter().filter(|line| line.contains("sk-")).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

// Request ids

#[tokio::test(start_paused = true)]
async fn c35_one_id_names_a_request_to_engines_to_the_client_and_in_the_log() {
    let first = hesitant().await;
    let second = hesitant().await;
    let edge = edge(RETRIES).engines([&first, &second]).start().await;
    let longest = "x".repeat(128);
    for given in [Some("trace-7/a:b"), Some(&*longest), None] {
        let mut request = req_n();
        if let Some(id) = given {
            request = request.header("X-Request-Id", id);
        }
        let (a, b) = (first.seen(), second.seen());
        let response = edge.ask(&request).await;
        let id = response.headers.get("x-request-id").unwrap();
        if let Some(given) = given {
            assert_eq!(id, given);
        }
        let attempts: Vec<_> = first.deliveries()[a..]
            .iter()
            .chain(&second.deliveries()[b..])
            .cloned()
            .collect();
        let expected = response.headers.get("x-vllm-pingora-attempts").unwrap();
        assert_eq!(attempts.len().to_string(), expected);
        for attempt in &attempts {
            assert_eq!(attempt.headers.get("x-request-id"), Some(id));
        }
        let line = edge.access_line(id).await;
        assert!(line.contains("status=200"), "{line}");
    }
    assert!(first.seen() + second.seen() > 3, "some were asked again");
}

#[tokio::test(start_paused = true)]
async fn c35_a_hostile_id_is_replaced() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge("").engines([&engine]).start().await;
    let long = "y".repeat(129);
    let huge = "z".repeat(60 * 1024);
    let hostile: [&[u8]; 9] = [
        b"",
        b"a b",
        b"caf\xc3\xa9",
        b"a\xff",
        b"a\tid=b",
        b"a id=b status=200",
        long.as_bytes(),
        huge.as_bytes(),
        b"\xe2\x80\xa8",
    ];
    for given in hostile {
        let response = edge.ask(&req_n().header("X-Request-Id", given)).await;
        assert_eq!(response.status, 200);
        let id = response.headers.get("x-request-id").unwrap();
        assert!(is_fresh(id), "{id}");
        let delivery = engine.deliveries().pop().unwrap();
        assert_eq!(delivery.headers.get("x-request-id"), Some(id));
        edge.access_line(id).await;
    }
    let twice = req_n()
        .header("X-Request-Id", "a")
        .header("X-Request-Id", "a");
    let response = edge.ask(&twice).await;
    assert!(is_fresh(response.headers.get("x-request-id").unwrap()));
    let delivery = engine.deliveries().pop().unwrap();
    assert_eq!(delivery.headers.all("x-request-id").len(), 1);
    engine.assert_clean();
}

fn is_fresh(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[tokio::test(start_paused = true)]
async fn c35_an_id_with_control_bytes_is_no_request_at_all() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge("").engines([&engine]).start().await;
    for given in [
        &b"\x1b[2J"[..],
        b"a\x01",
        b"a\nid=b",
        b"a\rid=b",
        b"a\0",
        b"a\x7f",
    ] {
        let response = edge.ask(&req_n().header("X-Request-Id", given)).await;
        assert_eq!(response.status, 400);
    }
    assert_eq!(engine.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn c35_our_own_answers_carry_an_id_as_well() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge(&keys(true, false)).engines([&engine]).start().await;
    let key = bearer(EDGE_KEY);
    for (request, status) in [
        (req_n(), 401),
        (post("/nowhere").set("Authorization", &key), 404),
        (post("/v1/models").set("Authorization", &key), 405),
        (post("/v1/completions").set("Authorization", &key), 400),
        (Request::new("GET", "/health"), 200),
    ] {
        let id = format!("own-{status}");
        let response = edge.ask(&request.header("X-Request-Id", &id)).await;
        assert_eq!(response.status, status);
        assert_eq!(response.headers.get("x-request-id"), Some(&*id));
        edge.access_line(&id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c35_answers_to_what_is_no_request_carry_the_id_of_the_log_as_well() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge("max_connections_per_client: 1\n")
        .engines([&engine])
        .start()
        .await;
    for (request, status) in [
        (req_n().header("Bad Name", "x").to_bytes(), 400),
        (Request::new("CONNECT", "a:443").to_bytes(), 405),
        (b"POST /v1/chat".to_vec(), 408),
        (post(&format!("/{}", "a".repeat(20_000))).to_bytes(), 414),
        (req_n().header("X-Big", "a".repeat(70_000)).to_bytes(), 431),
    ] {
        let mut client = Client::connect(edge.addr()).await;
        client.send(request).await;
        carries_the_id_of_the_log(&edge, &client.read_response().await, status).await;
        client.close();
        let closed = async {
            while edge.open() > 0 {
                tokio::time::sleep(ms(1)).await;
            }
        };
        within(PATIENCE, || "it stays open".to_owned(), closed).await;
    }
    let mut first = Client::connect(edge.addr()).await;
    assert_eq!(first.ask(&req_n()).await.status, 200);
    let refused = edge.ask(&req_n()).await;
    carries_the_id_of_the_log(&edge, &refused, 429).await;
}

async fn carries_the_id_of_the_log(edge: &TestEdge, response: &Response, status: u16) {
    assert_eq!(response.status, status);
    let id = response.headers.get("x-request-id").unwrap();
    assert!(is_fresh(id), "{id}");
    let line = edge.access_line(id).await;
    assert!(line.contains(&format!(" status={status} ")), "{line}");
}

#[tokio::test(start_paused = true)]
async fn c35_an_engines_own_id_does_not_replace_the_requests() {
    let engine = ScriptedEngine::start(ok("{}").header("X-Request-Id", "engines")).await;
    let edge = edge("").engines([&engine]).start().await;
    let response = edge.ask(&req_n().header("X-Request-Id", "clients")).await;
    assert_eq!(response.headers.get("x-request-id"), Some("clients"));
}

// Forwarding fields

#[tokio::test(start_paused = true)]
async fn c35_the_peers_address_is_appended_to_the_clients_chain() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge("").engines([&engine]).start().await;
    for (given, expected) in [
        (&[][..], "127.0.0.1"),
        (&["1.2.3.4"], "1.2.3.4, 127.0.0.1"),
        (&["1.2.3.4, 5.6.7.8"], "1.2.3.4, 5.6.7.8, 127.0.0.1"),
        (&["1.2.3.4", "5.6.7.8"], "1.2.3.4, 5.6.7.8, 127.0.0.1"),
    ] {
        let request = given.iter().fold(req_n(), |request, value| {
            request.header("X-Forwarded-For", value)
        });
        let request = request
            .header("X-Forwarded-Proto", "https")
            .header("X-Forwarded-Host", "forged.test");
        assert_eq!(edge.ask(&request).await.status, 200);
        let delivery = engine.deliveries().pop().unwrap();
        let get = |name| delivery.headers.get(name);
        assert_eq!(get("x-forwarded-for"), Some(expected));
        assert_eq!(get("x-forwarded-host"), Some("edge.test"));
        assert_eq!(get("x-forwarded-proto"), Some("http"));
    }
}

#[tokio::test(start_paused = true)]
async fn c35_the_chain_is_the_same_on_every_attempt() {
    let engine = hesitant().await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    edge.ask(&req_n().header("X-Forwarded-For", "1.2.3.4"))
        .await;
    let deliveries = engine.deliveries();
    assert_eq!(deliveries.len(), 2);
    for delivery in deliveries {
        let chain = delivery.headers.get("x-forwarded-for");
        assert_eq!(chain, Some("1.2.3.4, 127.0.0.1"));
    }
}
