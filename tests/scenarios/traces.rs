//! Traces: what a collector is told of requests and attempts, and engines of their parents.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tokio::time::Instant;

use crate::support::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

/// A client's `traceparent`, with these flags.
fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{CLIENT}-{flags}")
}

fn traceparent(delivery: &Delivery) -> String {
    let value = delivery.headers.get("traceparent");
    value.expect("a traceparent").to_owned()
}

/// Trace, span and flags that an engine was told.
fn told(delivery: &Delivery) -> (String, String, String) {
    let value = traceparent(delivery);
    let parts: Vec<_> = value.split('-').map(str::to_owned).collect();
    let [version, trace, span, flags] = parts.try_into().unwrap();
    assert_eq!(version, "00");
    (trace, span, flags)
}

/// A router of these settings that sends its spans to `collector`.
async fn traced(settings: &str, collector: &Collector, engines: &[&ScriptedEngine]) -> TestEdge {
    let settings = format!("{settings}{}", collector.settings());
    edge(&settings)
        .engines(engines.iter().copied())
        .start()
        .await
}

/// The spans of the only request: its own and those of its attempts.
async fn spans_of_one(collector: &Collector, attempts: usize) -> (Span, Vec<Span>) {
    let mut spans = collector.wait_for_spans(1 + attempts).await;
    assert_eq!(spans.len(), 1 + attempts, "{spans:#?}");
    let request = spans.remove(0);
    assert_eq!(request.kind, SpanKind::Server);
    for span in &spans {
        assert_eq!(span.kind, SpanKind::Client);
        assert_eq!((&span.trace, &span.parent), (&request.trace, &request.id));
        assert!(
            request.start <= span.start && span.end <= request.end,
            "{span:?}"
        );
    }
    (request, spans)
}

#[tokio::test(start_paused = true)]
async fn a_request_and_its_attempt_are_told_over_both_protocols() {
    for collector in [Collector::grpc().await, Collector::http().await] {
        let engine = ScriptedEngine::start(ok("ok").delay(ms(30))).await;
        let mut edge = traced("", &collector, &[&engine]).await;
        let response = edge.ask(&req_n().header("X-Request-Id", "traced-1")).await;
        assert_eq!(response.status, 200);
        assert!(
            !response.headers.has("traceparent"),
            "it is told to engines only"
        );

        let (request, attempts) = spans_of_one(&collector, 1).await;
        let port = engine.addr().port().to_string();
        assert_eq!(request.name, "POST /v1/chat/completions");
        assert_eq!(request.parent, "", "the trace begins here");
        assert!(request.is_sampled && !request.is_error);
        assert!(request.took() >= ms(30), "{request:?}");
        request.assert_says([
            ("http.request.method", "POST"),
            ("http.route", "/v1/chat/completions"),
            ("url.path", "/v1/chat/completions"),
            ("http.response.status_code", "200"),
            ("client.address", "127.0.0.1"),
            ("gen_ai.request.model", "m"),
            ("vllm_pingora.request_id", "traced-1"),
            ("vllm_pingora.outcome", "answered"),
            ("vllm_pingora.attempts", "1"),
            ("error.type", ""),
        ]);
        let resource = |key: &str| request.resource.get(key).map(String::as_str);
        assert_eq!(resource("service.name"), Some("vllm-pingora"));
        assert_eq!(resource("service.version"), Some(env!("CARGO_PKG_VERSION")));
        attempts[0].assert_says([
            ("server.address", "127.0.0.1"),
            ("server.port", &port),
            ("url.full", &format!("{}/v1/chat/completions", engine.url())),
            ("http.response.status_code", "200"),
            ("http.request.resend_count", ""),
            ("vllm_pingora.outcome", "answered"),
            ("error.type", ""),
        ]);

        let (trace, span, flags) = told(&engine.deliveries()[0]);
        assert_eq!((trace, span), (request.trace, attempts[0].id.clone()));
        assert_eq!(flags, "01");
        edge.end_traces().await;
        assert_eq!(
            edge.metric("vllm_pingora_spans_total", &[("outcome", "sent")]),
            2.0
        );
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_and_each_wait_is_told_with_its_times() {
    let collector = Collector::grpc().await;
    let engine = ScriptedEngine::start(script([
        status(503),
        status(429).delay(ms(40)),
        ok("ok").delay(ms(70)),
    ]))
    .await;
    let edge = traced(RETRIES, &collector, &[&engine]).await;
    assert_eq!(edge.ask(&req_n()).await.attempts(), 3);

    let (request, attempts) = spans_of_one(&collector, 3).await;
    request.assert_says([
        ("http.response.status_code", "200"),
        ("vllm_pingora.attempts", "3"),
        ("error.type", ""),
    ]);
    let waits: Vec<_> = request
        .events
        .iter()
        .filter(|event| event.name == "backoff")
        .collect();
    assert_eq!(waits.len(), 2);
    for (n, (delay, reason)) in [(200, "503"), (400, "429")].into_iter().enumerate() {
        let wait = waits[n];
        assert_eq!(wait.attributes["vllm_pingora.delay_ms"], delay.to_string());
        assert_eq!(wait.attributes["vllm_pingora.reason"], reason);
        // It lies between the two attempts, and fills the time there.
        let (before, after) = (&attempts[n], &attempts[n + 1]);
        assert!(before.end <= wait.at, "{request:#?} {attempts:#?}");
        let due = wait.at + ms(delay);
        let in_time = due..=due + ms(5);
        assert!(in_time.contains(&after.start), "{request:#?} {after:#?}");
        before.assert_says([
            ("http.response.status_code", reason),
            ("error.type", reason),
            ("vllm_pingora.outcome", "retryable_status"),
        ]);
        assert!(before.is_error);
        after.assert_says([
            ("vllm_pingora.retry_reason", reason),
            ("http.request.resend_count", &(n + 1).to_string()),
        ]);
    }
    assert!(!attempts[2].is_error && !request.is_error);
    assert!(attempts[1].took() >= ms(40) && attempts[2].took() >= ms(70));
    let first = request
        .events
        .iter()
        .find(|event| event.name == "first_byte");
    assert!(first.unwrap().at >= request.start + ms(200 + 40 + 400 + 70));

    // Each attempt told the engine of its own span.
    let parents: Vec<_> = engine
        .deliveries()
        .iter()
        .map(|delivery| told(delivery).1)
        .collect();
    let ids: Vec<_> = attempts.iter().map(|span| span.id.clone()).collect();
    assert_eq!(parents, ids);
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
}

#[tokio::test(start_paused = true)]
async fn a_failover_is_two_attempts_without_a_wait() {
    let collector = Collector::http().await;
    let (dead, alive) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(ok("ok")).await,
    );
    let edge = traced(RETRIES, &collector, &[&dead, &alive]).await;
    assert_eq!(edge.ask(&req_n()).await.attempts(), 2);
    let (request, attempts) = spans_of_one(&collector, 2).await;
    assert!(request.events.iter().all(|event| event.name != "backoff"));
    let port = |engine: &ScriptedEngine| engine.addr().port().to_string();
    attempts[0].assert_says([
        ("server.port", &port(&dead)),
        ("vllm_pingora.outcome", "connect"),
        ("error.type", "connect"),
        ("http.response.status_code", ""),
    ]);
    attempts[1].assert_says([
        ("server.port", &port(&alive)),
        ("vllm_pingora.outcome", "answered"),
        ("vllm_pingora.retry_reason", "connect"),
    ]);
    assert_eq!(told(&alive.deliveries()[0]).1, attempts[1].id);
    assert!(attempts[0].is_error && !attempts[1].is_error && !request.is_error);
}

#[tokio::test(start_paused = true)]
async fn errors_of_our_own_and_cuts_are_failures() {
    let collector = Collector::grpc().await;
    let engine = ScriptedEngine::refusing().await;
    let edge = traced(NOBODY_OUT, &collector, &[&engine]).await;
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    let (request, _) = spans_of_one(&collector, 1).await;
    assert!(request.is_error);
    request.assert_says([
        ("http.response.status_code", "502"),
        ("vllm_pingora.outcome", "own_error"),
        ("error.type", "engine_unreachable"),
    ]);

    engine
        .listen_with(sse(3, ms(10)).fin_at(Point::Pieces(1)).cut_after(ms(10)))
        .await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_s()).await;
    assert_eq!(client.read_head().await.status, 200);
    client.read_to_end().await;
    let spans = collector.wait_for_spans(4).await;
    let (request, attempt) = (&spans[2], &spans[3]);
    request.assert_says([
        ("http.response.status_code", "200"),
        ("vllm_pingora.outcome", "cut"),
        ("vllm_pingora.stream", "true"),
        ("error.type", "cut"),
    ]);
    assert!(request.is_error && attempt.is_error);
    assert!(
        request
            .events
            .iter()
            .any(|event| event.name == "first_byte")
    );
    attempt.assert_says([("vllm_pingora.outcome", "cut"), ("error.type", "cut")]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_its_backoff_is_told_of_with_that_wait() {
    let collector = Collector::http().await;
    let engine = ScriptedEngine::start(status(503)).await;
    let settings = "enable_retries: true\ninitial_backoff_ms: 5000\njitter_factor: 0\n";
    let edge = traced(settings, &collector, &[&engine]).await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_n()).await;
    engine.wait_for_answered(1).await;
    tokio::time::sleep(ms(500)).await;
    client.close();
    let (request, attempts) = spans_of_one(&collector, 1).await;
    request.assert_says([
        ("http.response.status_code", ""),
        ("vllm_pingora.outcome", "client_gone"),
        ("error.type", ""),
    ]);
    assert!(!request.is_error, "it is nobody's failure");
    let [wait] = request.events.as_slice() else {
        panic!("{:?}", request.events);
    };
    assert_eq!(wait.attributes["vllm_pingora.delay_ms"], "5000");
    assert!(attempts[0].end <= wait.at && wait.at + secs(2) > request.end);
    assert_eq!(engine.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_that_reach_no_engine_are_told_by_themselves() {
    let collector = Collector::grpc().await;
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = traced("", &collector, &[&engine]).await;
    assert_eq!(
        edge.ask(&Request::new("GET", "/no/such/path")).await.status,
        404
    );
    assert_eq!(edge.ask(&Request::new("GET", "/version")).await.status, 200);
    let spans = collector.wait_for_spans(2).await;
    assert_eq!(spans[0].name, "GET");
    spans[0].assert_says([
        ("http.route", ""),
        ("url.path", "/no/such/path"),
        ("http.response.status_code", "404"),
        ("vllm_pingora.reason", "not_found"),
        ("vllm_pingora.attempts", "0"),
    ]);
    assert!(!spans[0].is_error, "the fault is the client's");
    assert_eq!(spans[1].name, "GET /version");
}

#[tokio::test(start_paused = true)]
async fn a_clients_trace_goes_on_to_the_engine() {
    let collector = Collector::grpc().await;
    let engine = ScriptedEngine::start(script([status(503), ok("ok")])).await;
    // A client that has decided is not asked again by a share.
    let settings = format!("{RETRIES}otel_sampling_ratio: 0\n");
    let edge = traced(&settings, &collector, &[&engine]).await;
    let request = req_n()
        .header("traceparent", parent("01"))
        .header("tracestate", "vendor=abc")
        .header("tracestate", "other=1")
        .header("X-Request-Id", "traced-line");
    assert_eq!(edge.ask(&request).await.status, 200);
    let line = edge.access_line("traced-line").await;
    assert!(line.ends_with(&format!(" trace={TRACE}")), "{line}");
    let (request, attempts) = spans_of_one(&collector, 2).await;
    assert_eq!((&*request.trace, &*request.parent), (TRACE, CLIENT));
    assert_eq!(request.state, "vendor=abc,other=1");
    for (delivery, attempt) in engine.deliveries().iter().zip(&attempts) {
        let expected = (TRACE.to_owned(), attempt.id.clone(), "01".to_owned());
        assert_eq!(told(delivery), expected);
        assert_eq!(
            delivery.headers.all("tracestate"),
            ["vendor=abc", "other=1"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_sampled_is_not_told_and_engines_know_it() {
    let collector = Collector::http().await;
    let engine = ScriptedEngine::start(ok("ok")).await;
    let none = traced("otel_sampling_ratio: 0\n", &collector, &[&engine]).await;
    let all = traced("", &collector, &[&engine]).await;
    let unsampled = req_n().header("traceparent", parent("00"));
    assert_eq!(all.ask(&unsampled).await.status, 200);
    assert_eq!(none.ask(&req_n()).await.status, 200);
    for edge in [&all, &none] {
        edge.wait_until_idle().await;
    }
    let deliveries = engine.deliveries();
    let flags: Vec<_> = deliveries.iter().map(|delivery| told(delivery).2).collect();
    assert_eq!(flags, ["00", "00"]);
    assert_eq!(
        told(&deliveries[0]).0,
        TRACE,
        "it is the client's trace all the same"
    );
    assert_ne!(told(&deliveries[1]).0, TRACE);
    // One that is sampled comes, and nothing before it.
    assert_eq!(all.ask(&req_n()).await.status, 200);
    let spans = collector.wait_for_spans(2).await;
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0].trace, told(&engine.deliveries()[2]).0);
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_cannot_be_read_is_replaced() {
    let collector = Collector::grpc().await;
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = traced("", &collector, &[&engine]).await;
    let zeros = format!("00-{}-{CLIENT}-01", "0".repeat(32));
    let twice = [parent("01"), parent("01")];
    for (n, parents) in [&["nonsense".to_owned()][..], &[zeros], &twice]
        .iter()
        .enumerate()
    {
        let request = parents.iter().fold(req_n(), |request, parent| {
            request.header("traceparent", parent)
        });
        let request = request.header("tracestate", "vendor=abc");
        assert_eq!(edge.ask(&request).await.status, 200);
        let spans = collector.wait_for_spans(2 * (n + 1)).await;
        let delivery = &engine.deliveries()[n];
        let (trace, span, flags) = told(delivery);
        assert_eq!((&trace, &span), (&spans[2 * n].trace, &spans[2 * n + 1].id));
        assert_eq!((spans[2 * n].parent.as_str(), flags.as_str()), ("", "01"));
        assert_ne!(trace, TRACE);
        assert!(
            !delivery.headers.has("tracestate"),
            "it belonged to another trace"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_connection_is_not_an_attempt_of_its_own() {
    let collector = Collector::grpc().await;
    let engine = ScriptedEngine::start(connections([
        vec![ok("first"), fin_at(Point::Request)],
        vec![ok("fresh")],
    ]))
    .await;
    let edge = traced(RETRIES, &collector, &[&engine]).await;
    assert_eq!(edge.ask(&req_n()).await.text(), "first");
    assert_eq!(edge.ask(&req_n()).await.text(), "fresh");
    let spans = collector.wait_for_spans(4).await;
    assert_eq!(spans.len(), 4, "one attempt each");
    let deliveries = engine.deliveries();
    assert_eq!(deliveries.len(), 3);
    for delivery in &deliveries[1..] {
        assert_eq!(told(delivery).1, spans[3].id);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_collector_what_clients_say_passes_unchanged() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let odd = req_n()
        .header("traceparent", "anything at all")
        .header("tracestate", "A=1");
    let good = req_n().header("traceparent", parent("01"));
    for request in [req_n(), odd, good] {
        assert_eq!(edge.ask(&request).await.status, 200);
    }
    let seen: Vec<_> = engine
        .deliveries()
        .iter()
        .map(|delivery| {
            let get = |name| delivery.headers.get(name).map(str::to_owned);
            (get("traceparent"), get("tracestate"))
        })
        .collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        seen,
        [
            (None, None),
            (some("anything at all"), some("A=1")),
            (Some(parent("01")), None),
        ]
    );
    assert_eq!(edge.metric("vllm_pingora_spans_total", &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_gone_costs_requests_nothing() {
    let (refusing, full) = (ScriptedEngine::refusing().await, Full::listen().await);
    for url in [refusing.url(), full.url()] {
        for protocol in ["grpc", "http"] {
            let engine = ScriptedEngine::start(ok("ok")).await;
            let settings = format!("otel_endpoint: {url}\notel_protocol: {protocol}\n");
            let mut edge = edge(&settings).engines([&engine]).start().await;
            // More than the queue holds, since none leaves it.
            let mut client = Client::connect(edge.addr()).await;
            for _ in 0..30 {
                let response = client.ask(&req_n()).await;
                assert_eq!(response.status, 200);
                assert!(response.waited() < ms(100), "{:?}", response.waited());
            }
            let begun = Instant::now();
            edge.end_traces().await;
            assert!(begun.elapsed() <= secs(4), "{:?}", begun.elapsed());
            assert_eq!(
                edge.metric("vllm_pingora_spans_total", &[("outcome", "sent")]),
                0.0
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn spans_that_wait_are_sent_at_the_end() {
    for collector in [Collector::grpc().await, Collector::http().await] {
        let engine = ScriptedEngine::start(ok("ok")).await;
        let mut edge = traced("", &collector, &[&engine]).await;
        for _ in 0..3 {
            assert_eq!(edge.ask(&req_n()).await.status, 200);
        }
        edge.wait_until_idle().await;
        edge.end_traces().await;
        assert_eq!(collector.spans().len(), 6);
    }
}

/// A file of this test's own, gone at its end.
struct File(std::path::PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_collector_behind_tls_is_known_by_its_certificate() {
    let named = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let name = format!("vllm-pingora-collector-{}.pem", std::process::id());
    let file = File(std::env::temp_dir().join(name));
    std::fs::write(&file.0, named.cert.pem()).unwrap();
    let trusted = [("SSL_CERT_FILE", file.0.to_str().unwrap())];
    let engine = ScriptedEngine::start(ok("ok")).await;
    for (certificate, is_known) in [(&named, true), (&stranger, false)] {
        for collector in Collector::both_over_tls(certificate).await {
            let endpoint = format!("https://{}", collector.authority());
            let flags = [
                "--otel-endpoint",
                &endpoint,
                "--otel-protocol",
                collector.protocol(),
            ];
            let router = Process::start(&engine, &flags, &trusted).await;
            let mut client = Client::connect(router.addr).await;
            assert_eq!(client.ask(&req_n()).await.status, 200);
            client.close();
            if is_known {
                collector.wait_for_spans(2).await;
            }
            let (status, log) = router.terminate().await;
            assert!(status.success(), "{status} {log:#?}");
            assert_eq!(tells_of_losses(&log), !is_known, "{log:#?}");
            assert_eq!(collector.spans().len(), if is_known { 2 } else { 0 });
        }
    }
}

/// Whether a router that has ended says that spans did not arrive.
fn tells_of_losses(log: &[String]) -> bool {
    log.iter()
        .any(|line| line.contains("WARN") && line.contains("traces: "))
}

#[tokio::test]
async fn the_process_ends_in_time_whatever_the_collector_does() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let (refusing, full) = (ScriptedEngine::refusing().await, Full::listen().await);
    for url in [refusing.url(), full.url()] {
        // As the environment gives it.
        let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str())];
        let router = Process::start(&engine, &[], &env).await;
        let mut client = Client::connect(router.addr).await;
        assert_eq!(client.ask(&req_n()).await.status, 200);
        client.close();
        let (status, log) = router.terminate().await;
        assert!(status.success(), "{status} {log:#?}");
        assert!(tells_of_losses(&log), "{log:#?}");
    }
}
