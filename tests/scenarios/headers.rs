//! Header fields on the way to engines and back, and how answers are framed: C34.

use crate::support::*;

/// What a proxy adds or replaces on the way to an engine.
const OURS: [&str; 6] = [
    "host",
    "authorization",
    "x-request-id",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// The header lines an engine saw but for those of the proxy and of the framing.
fn ordinary(delivery: &Delivery) -> Vec<(String, String)> {
    let skip = |name: &str| {
        let name = name.to_ascii_lowercase();
        OURS.contains(&&*name) || matches!(&*name, "content-length" | "content-type" | "x-case")
    };
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    delivery
        .headers
        .iter()
        .filter(|(name, _)| !skip(name))
        .map(|(name, value)| (name.to_owned(), text(value)))
        .collect()
}

async fn served() -> (ScriptedEngine, TestEdge) {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge("").engines([&engine]).start().await;
    (engine, edge)
}

/// An edge with a GET and a HEAD route to any engine.
const READ_ROUTES: &str = "extra_routes:\n  - {method: GET, path: /v1/read, resend: always}\n  - \
                           {method: HEAD, path: /v1/read, resend: always}\n";

// Requests

#[tokio::test(start_paused = true)]
async fn c34_hop_by_hop_fields_of_the_client_stay_with_the_client() {
    let (engine, edge) = served().await;
    for fields in [
        &[("Connection", "close, X-Hop"), ("X-Hop", "1")][..],
        &[
            ("Connection", "X-Hop"),
            ("Connection", "X-Hop2"),
            ("X-Hop", "1"),
            ("X-Hop2", "2"),
        ],
        &[("Keep-Alive", "5")],
        &[("Proxy-Connection", "keep-alive")],
        &[("Proxy-Authorization", "Basic eDp5")],
        &[("TE", "trailers")],
        &[("Trailer", "X")],
        &[
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
            ("Connection", "Upgrade, HTTP2-Settings"),
        ],
        &[("Upgrade", "h2c"), ("Connection", "Upgrade")],
        &[("Upgrade", "TLS/1.0, foo/2")],
    ] {
        let request = fields.iter().fold(req_n(), |request, (name, value)| {
            request.header(name, value)
        });
        let response = edge.ask(&request).await;
        assert_eq!(
            (response.status, response.text()),
            (200, "{}"),
            "{fields:?}"
        );
        assert_eq!(response.version, "HTTP/1.1");
        let delivery = engine.deliveries().pop().unwrap();
        assert_eq!(ordinary(&delivery), [], "{fields:?}");
        assert_eq!(delivery.case(), request.case());
        assert_eq!(delivery.body, request.body_bytes());
    }
    assert_eq!(engine.accepted(), 1, "the engine's connection is reused");
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn c34_ordinary_fields_arrive_as_they_were_sent() {
    let (engine, edge) = served().await;
    let sent = [
        ("X-First", "1"),
        ("Accept", "application/json, text/event-stream"),
        ("x-lower", "a, b"),
        ("X-Twice", "one"),
        ("X-Empty", ""),
        ("X-Twice", "two"),
        ("Accept-Encoding", "gzip, br"),
        ("X-Tab", "a\tb"),
        ("Cookie", "a=b; c=\"d\""),
        ("X-Twice", "one"),
        ("Forwarded", "for=192.0.2.1"),
        ("X-Model-Te", "not TE"),
    ];
    let request = sent.iter().fold(req_n(), |request, (name, value)| {
        request.header(name, value)
    });
    assert_eq!(edge.ask(&request).await.status, 200);
    let delivery = engine.deliveries().pop().unwrap();
    let mut seen = ordinary(&delivery);
    let of = |name: &str| -> Vec<String> {
        seen.iter()
            .filter(|(seen, _)| seen.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.clone())
            .collect()
    };
    assert_eq!(of("X-Twice"), ["one", "two", "one"]);
    let mut sent = sent.map(|(name, value)| (name.to_owned(), value.to_owned()));
    // Lines of one name keep their order; between names it has no meaning.
    seen.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    sent.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    assert_eq!(seen, sent);
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn c34_a_value_that_is_not_text_arrives_byte_for_byte() {
    let (engine, edge) = served().await;
    let request = req_n().header("X-Latin", b"caf\xe9\xff");
    assert_eq!(edge.ask(&request).await.status, 200);
    let delivery = engine.deliveries().pop().unwrap();
    let value = delivery.headers.iter().find(|(name, _)| *name == "X-Latin");
    assert_eq!(value.unwrap().1, b"caf\xe9\xff");
}

#[tokio::test(start_paused = true)]
async fn c34_every_engine_is_called_by_its_own_name() {
    let first = ScriptedEngine::start(rst_at(Point::Request)).await;
    let second = ScriptedEngine::start(ok("{}")).await;
    let by_name = format!("http://localhost:{}", second.addr().port());
    let edge = edge(RETRIES)
        .engine(&first, &["m"])
        .url(&by_name, &["m"])
        .start()
        .await;
    let response = edge.ask(&req_n().header("Connection", "close")).await;
    assert_eq!(response.status, 200);
    let host = |engine: &ScriptedEngine| {
        let delivery = engine.deliveries().pop().unwrap();
        assert_eq!(delivery.headers.get("x-forwarded-host"), Some("edge.test"));
        delivery.headers.get("host").map(str::to_owned)
    };
    assert_eq!(host(&first), Some(first.addr().to_string()));
    let name = format!("localhost:{}", second.addr().port());
    assert_eq!(host(&second), Some(name));
}

#[tokio::test(start_paused = true)]
async fn c34_nominating_host_or_forwarding_fields_is_refused() {
    let (engine, edge) = served().await;
    for nominated in [
        "Host",
        "close, host",
        "X-Forwarded-For",
        "x-forwarded-host",
        "close,X-FORWARDED-PROTO",
        "X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto",
    ] {
        let response = edge.ask(&nominating(nominated)).await;
        assert_eq!(response.status, 400, "{nominated}");
        let code = &response.json()["error"]["code"];
        assert_eq!(code, "invalid_request", "{nominated}");
    }
    assert_eq!(engine.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_nomination_is_refused_before_there_is_an_attempt() {
    let many = ["x"; 10].join(",");
    let bad = [
        "Host",
        "close, two words",
        "\"x-mine\"",
        ":authority",
        &many,
    ];
    for settings in ["", RETRIES] {
        let engine = ScriptedEngine::start(ok("ok")).await;
        let edge = edge(settings).engines([&engine]).start().await;
        for nominated in bad {
            let response = edge.ask(&nominating(nominated)).await;
            assert_eq!(response.status, 400, "{nominated}");
            assert_eq!(response.json()["error"]["code"], "invalid_request");
        }
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("own_error"), bad.len() as f64);
        // The client has not gone, and no engine was asked.
        assert_eq!(edge.metric("vllm_pingora_requests_total", &[]), 5.0);
        assert_eq!(edge.metric("vllm_pingora_attempts_total", &[]), 0.0);
        assert_eq!(engine.accepted(), 0);
        // As many as may be, and an empty one, pass.
        let most = ["x,", "x"].join(&"y,".repeat(7));
        assert_eq!(edge.ask(&nominating(&most)).await.status, 200);
        assert_eq!(edge.attempts_ended("answered"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_nomination_of_an_engine_costs_its_answer_nothing() {
    for nominated in [
        "two words",
        "\"x-mine\"",
        ":authority",
        "content-length",
        ",,",
    ] {
        for settings in ["", RETRIES] {
            let engine = ScriptedEngine::start(ok("ok").header("Connection", nominated)).await;
            let edge = edge(settings).engines([&engine]).start().await;
            let response = edge.ask(&req_n()).await;
            assert_eq!(
                (response.status, response.text()),
                (200, "ok"),
                "{nominated}"
            );
            assert_ne!(response.headers.get("connection"), Some(nominated));
            edge.wait_until_idle().await;
            assert_eq!(edge.attempts_ended("answered"), 1.0, "{nominated}");
            assert_eq!(edge.metric("vllm_pingora_attempts_total", &[]), 1.0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c34_nominating_fields_the_router_writes_itself_drops_none_of_them() {
    let (engine, edge) = served().await;
    for nominated in [
        "X-Request-Id",
        "Authorization",
        "Content-Length",
        "Content-Type, Content-Length, Transfer-Encoding",
    ] {
        let request = nominating(nominated);
        assert_eq!(edge.ask(&request).await.status, 200, "{nominated}");
        let delivery = engine.deliveries().pop().unwrap();
        for (name, expected) in [
            ("host", &*engine.addr().to_string()),
            ("x-forwarded-for", "1.2.3.4, 127.0.0.1"),
            ("x-forwarded-host", "edge.test"),
            ("x-forwarded-proto", "http"),
            ("x-request-id", "kept-1"),
            ("content-length", &*request.body_bytes().len().to_string()),
        ] {
            let values = delivery.headers.all(name);
            assert_eq!(values, [expected], "{nominated}: {name}");
        }
        assert_eq!(delivery.body, request.body_bytes(), "{nominated}");
    }
    engine.assert_clean();
}

fn nominating(names: &str) -> Request {
    req_n()
        .header("X-Request-Id", "kept-1")
        .header("X-Forwarded-For", "1.2.3.4")
        .header("Connection", names)
}

#[tokio::test(start_paused = true)]
async fn c34_an_absolute_target_is_forwarded_as_a_path() {
    let (engine, edge) = served().await;
    let target = "http://edge.test/v1/chat/completions?a=%2F";
    let request = post(target).body(req_n().body_bytes());
    assert_eq!(edge.ask(&request).await.status, 200);
    let delivery = engine.deliveries().pop().unwrap();
    assert_eq!(delivery.target, "/v1/chat/completions?a=%2F");
    let host = engine.addr().to_string();
    assert_eq!(delivery.headers.get("host"), Some(&*host));
    assert_eq!(delivery.headers.get("x-forwarded-host"), Some("edge.test"));
}

#[tokio::test(start_paused = true)]
async fn c34_a_target_that_contradicts_the_host_field_is_refused() {
    let (engine, edge) = served().await;
    for target in [
        "http://other.test/v1/chat/completions",
        "http://edge.test:81/v1/chat/completions",
        "http://user@edge.test/v1/chat/completions",
    ] {
        let request = post(target).body(req_n().body_bytes());
        let response = edge.ask(&request).await;
        assert_eq!(response.status, 400, "{target}");
        assert_eq!(response.json()["error"]["code"], "invalid_request");
    }
    assert_eq!(engine.begun(), 0);
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c34_a_missing_double_or_empty_host_is_refused() {
    let (engine, edge) = served().await;
    for request in [
        req_n().without("Host"),
        req_n().header("Host", "edge.test"),
        req_n().header("Host", "other.test"),
        req_n().set("Host", ""),
        req_n().set("Host", "  "),
    ] {
        let mut client = Client::connect(edge.addr()).await;
        let response = client.ask(&request).await;
        assert_eq!(response.status, 400);
        assert_eq!(response.json()["error"]["code"], "invalid_request");
        client.expect_eof().await;
    }
    assert_eq!(engine.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_prefix_of_an_engine_goes_before_the_path_and_nothing_else_changes() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    for prefix in ["", "/", "/tenant/a", "/tenant/a/"] {
        let edge = edge("")
            .url(&format!("{}{prefix}", engine.url()), &["m"])
            .start()
            .await;
        for query in [
            "",
            "?",
            "?a=%2F&b=+",
            r"?x=%zz&&=;'|{}[]\^`",
            "?a?b/../c//d",
        ] {
            let target = format!("/v1/chat/completions{query}");
            let request = post(&target).body(req_n().body_bytes());
            assert_eq!(edge.ask(&request).await.status, 200, "{target}");
            let seen = engine.deliveries().pop().unwrap().target;
            assert_eq!(seen, format!("{}{target}", prefix.trim_end_matches('/')));
        }
    }
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_chunked_upload_arrives_with_one_framing() {
    let (engine, edge) = served().await;
    let request = req_n().chunked([1, 7, 30]);
    let mut bytes = request.head_bytes();
    let body = request.framed_body();
    bytes.extend_from_slice(body.strip_suffix(b"\r\n").unwrap());
    bytes.extend_from_slice(b"X-Trailer: 1\r\nContent-Length: 3\r\n\r\n");
    let mut client = Client::connect(edge.addr()).await;
    client.send(bytes).await;
    assert_eq!(client.read_response().await.status, 200);
    let delivery = engine.deliveries().pop().unwrap();
    assert_eq!(delivery.body, request.body_bytes());
    assert_eq!(ordinary(&delivery), []);
    engine.assert_clean();
}

// Responses

#[tokio::test(start_paused = true)]
async fn c34_hop_by_hop_fields_of_the_engine_stay_with_the_engine() {
    for settings in ["", RETRIES] {
        let reply = ok("{}")
            .header("Connection", "X-Y, keep-alive")
            .header("X-Y", "1")
            .header("Keep-Alive", "timeout=5")
            .header("Proxy-Authenticate", "Basic")
            .header("Proxy-Connection", "keep-alive")
            .header("Trailer", "X")
            .header("Upgrade", "h2c")
            .header("X-Kept", "one")
            .header("X-Kept", "two");
        let engine = ScriptedEngine::start(reply).await;
        let edge = edge(settings).engines([&engine]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        for _ in 0..2 {
            let response = client.ask(&req_n()).await;
            assert_eq!((response.status, response.text()), (200, "{}"));
            for hop in [
                "x-y",
                "keep-alive",
                "proxy-authenticate",
                "proxy-connection",
                "trailer",
                "upgrade",
            ] {
                assert!(
                    !response.headers.has(hop),
                    "{hop} in {:?}",
                    response.headers
                );
            }
            assert_eq!(response.headers.all("x-kept"), ["one", "two"]);
            let connection = response.headers.get("connection");
            assert!(
                matches!(connection, None | Some("keep-alive")),
                "{connection:?}"
            );
        }
        assert_eq!(engine.accepted(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c34_an_engine_that_closes_does_not_close_the_client() {
    let engine = ScriptedEngine::start(ok("{}").close()).await;
    let edge = edge("").engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    for _ in 0..2 {
        let response = client.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "{}"));
        assert_ne!(response.headers.get("connection"), Some("close"));
    }
    assert_eq!(engine.accepted(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_response_without_a_body_is_not_waited_for() {
    for settings in ["", RETRIES] {
        for head in [
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ] {
            let engine = ScriptedEngine::start(raw(head)).await;
            let edge = edge(settings).engines([&engine]).start().await;
            let mut client = Client::connect(edge.addr()).await;
            for _ in 0..2 {
                let response = client.ask(&req_n()).await;
                assert_eq!(response.status, head[9..12].parse::<u16>().unwrap());
                assert_eq!(response.body, b"");
                assert!(response.complete && response.cut.is_none(), "{head:?}");
            }
            assert!(client.surplus().is_empty());
            edge.wait_until_idle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_head_has_the_length_and_not_the_body() {
    for settings in ["", RETRIES] {
        for reply in [ok("{\"a\":1}"), ok("{\"a\":1}").chunked()] {
            let engine = ScriptedEngine::start(reply).await;
            let edge = edge(&format!("{settings}{READ_ROUTES}"))
                .engines([&engine])
                .start()
                .await;
            let mut client = Client::connect(edge.addr()).await;
            for method in ["HEAD", "GET", "HEAD"] {
                let response = client.ask(&Request::new(method, "/v1/read")).await;
                assert_eq!(response.status, 200);
                let body = if method == "GET" { "{\"a\":1}" } else { "" };
                assert_eq!(response.text(), body);
                if let Some(length) = response.headers.get("content-length") {
                    assert_eq!(length, "7");
                }
            }
            assert!(client.surplus().is_empty());
            assert_eq!(engine.accepted(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn our_own_answers_to_head_have_no_body() {
    let (engine, edge) = served().await;
    let mut client = Client::connect(edge.addr()).await;
    for path in ["/health", "/v1/models", "/nowhere", "/v1/completions"] {
        client.ask(&Request::new("HEAD", path)).await;
        assert!(client.surplus().is_empty(), "{path}");
    }
    assert_eq!(client.ask(&req_n()).await.text(), "{}");
    assert_eq!(engine.seen(), 2, "the model list, and the last one");
}

/// The standard request of an HTTP/1.0 client.
fn http_1_0(fields: &str) -> Vec<u8> {
    let body = req_n().body_bytes().to_vec();
    let mut bytes = format!(
        "POST /v1/chat/completions HTTP/1.0\r\nX-Case: old\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

#[tokio::test(start_paused = true)]
async fn an_http_1_0_client_reads_a_stream_to_the_end_of_the_connection() {
    for settings in ["", RETRIES] {
        for reply in [sse(3, ms(20)), sse(3, ms(20)).until_close()] {
            for fields in ["", "Connection: keep-alive\r\n"] {
                let engine = ScriptedEngine::start(reply.clone()).await;
                let edge = edge(settings).engines([&engine]).start().await;
                let mut client = Client::connect(edge.addr()).await;
                client.send(http_1_0(fields)).await;
                let response = client.read_response().await;
                assert_eq!(response.status, 200);
                assert_eq!(response.framing, Framing::UntilClose);
                assert_ne!(response.headers.get("connection"), Some("keep-alive"));
                assert_eq!(response.body, sse_body(3));
                assert_eq!(response.cut, Some(Close::Fin));
                let delivery = engine.deliveries().pop().unwrap();
                assert_eq!(delivery.version, "HTTP/1.1");
                engine.assert_clean();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_http_1_0_client_reads_an_answer_of_known_length() {
    let (engine, edge) = served().await;
    let mut client = Client::connect(edge.addr()).await;
    client.send(http_1_0("")).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.text()), (200, "{}"));
    client.expect_eof().await;
    assert_eq!(engine.seen(), 1);
}

// Informational responses

#[tokio::test(start_paused = true)]
async fn an_interim_response_of_an_engine_is_never_the_answer() {
    for settings in ["", RETRIES] {
        for (status, reason) in [(100, "Continue"), (102, "Processing"), (103, "Early Hints")] {
            let reply = ok("{}").informational(status, reason);
            let engine = ScriptedEngine::start(reply.informational(status, reason)).await;
            let edge = edge(settings).engines([&engine]).start().await;
            let mut client = Client::connect(edge.addr()).await;
            for _ in 0..2 {
                let response = client.ask(&req_n()).await;
                assert_eq!((response.status, response.text()), (200, "{}"));
                assert!(response.informational.iter().all(|i| i.status == status));
            }
            assert_eq!((engine.seen(), engine.accepted()), (2, 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_interim_response_does_not_commit_to_the_engine_that_sent_it() {
    let first = ScriptedEngine::start([
        ok("{}")
            .informational(103, "Early Hints")
            .fin_at(Point::ResponseHead),
        raw("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").then_close(),
        status(503).informational(100, "Continue"),
    ])
    .await;
    let second = ScriptedEngine::start(ok("second")).await;
    let edge = edge(RETRIES).engines([&first, &second]).start().await;
    let mut answers = 0;
    while first.seen() < 3 {
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "second"));
        assert_eq!(response.informational, []);
        answers += 1;
    }
    assert_eq!(second.seen(), answers);
}

#[tokio::test(start_paused = true)]
async fn an_http_1_0_client_never_sees_an_interim_response() {
    for settings in ["", RETRIES] {
        let engine = ScriptedEngine::start(ok("{}").informational(103, "Early Hints")).await;
        let edge = edge(settings).engines([&engine]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        client.send(http_1_0("Expect: 100-continue\r\n")).await;
        let response = client.read_response().await;
        assert_eq!((response.status, response.text()), (200, "{}"));
        assert_eq!(response.informational, []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_leave_gets_it_once_and_the_engine_is_not_asked() {
    for settings in ["", RETRIES] {
        let engine = ScriptedEngine::start(ok("{}")).await;
        let edge = edge(settings).engines([&engine]).start().await;
        let request = req_n().header("Expect", "100-continue");
        let mut client = Client::connect(edge.addr()).await;
        client.send(request.head_bytes()).await;
        let mut leave = Vec::new();
        while !leave.ends_with(b"\r\n\r\n") {
            leave.extend(client.read_some().await);
        }
        assert!(leave.starts_with(b"HTTP/1.1 100 "), "{leave:?}");
        client.send(request.framed_body()).await;
        let response = client.read_response().await;
        assert_eq!((response.status, response.text()), (200, "{}"));
        assert_eq!(response.informational, []);
        let delivery = engine.deliveries().pop().unwrap();
        assert!(!delivery.headers.has("expect"));
    }
}
