//! Streams: cut where the engine cut them, passed on as they come, held back by slow readers:
//! C19, C20, C23, C24.

use std::time::Duration;

use bytes::Bytes;

use crate::support::*;

// Cuts

/// Three events, without any end.
fn three_events() -> Reply {
    let gap = ms(10);
    chunks([(gap, event(0)), (gap, event(1)), (gap, event(2))])
        .header("Content-Type", "text/event-stream")
}

/// Asks for an answer that is cut after `sent`, and sees that it is cut for the client as well.
async fn is_cut_visibly(reply: Reply, sent: &[u8], case: &str) {
    let cutting = ScriptedEngine::start(reply.cut_after(ms(10))).await;
    let healthy = ScriptedEngine::start(ok("another answer")).await;
    let edge = edge(RETRIES).engines([&cutting, &healthy]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let id = format!("c19-{case}");
    let response = client.ask(&req_s().header("X-Request-Id", &id)).await;
    assert_eq!(response.status, 200, "{case}");
    assert_eq!(response.body, sent, "{case}");
    assert!(!response.complete, "{case}: it looks complete");
    assert!(response.cut.is_some(), "{case}: the connection is open");
    assert!(
        !response.raw.ends_with(b"0\r\n\r\n"),
        "{case}: a terminator"
    );
    let line = edge.access_line(&id).await;
    assert!(line.contains("status=200 outcome=cut"), "{case}: {line}");
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("cut"), 1.0, "{case}");
    assert_eq!(
        edge.metric("vllm_pingora_retries_total", &[]),
        0.0,
        "{case}"
    );
    assert_eq!((cutting.seen(), healthy.accepted()), (1, 0), "{case}");
}

#[tokio::test(start_paused = true)]
async fn c19_a_stream_that_ends_without_a_terminator_is_cut_for_the_client_too() {
    let sent: Vec<u8> = (0..3).flat_map(event).collect();
    is_cut_visibly(three_events().fin_at(Point::BodyEnd), &sent, "fin").await;
}

#[tokio::test(start_paused = true)]
async fn c19_a_stream_that_is_reset_is_cut_for_the_client_too() {
    let sent: Vec<u8> = (0..3).flat_map(event).collect();
    is_cut_visibly(three_events().rst_at(Point::BodyEnd), &sent, "reset").await;
}

#[tokio::test(start_paused = true)]
async fn c19_a_stream_that_ends_inside_a_chunk_is_cut_for_the_client_too() {
    let mut sent: Vec<u8> = (0..3).flat_map(event).collect();
    sent.truncate(sent.len() - event(2).len().div_ceil(2));
    is_cut_visibly(three_events().fin_at(Point::InsideChunk), &sent, "inside").await;
}

#[tokio::test(start_paused = true)]
async fn c19_a_stream_that_ends_inside_its_terminator_is_cut_for_the_client_too() {
    let sent: Vec<u8> = (0..3).flat_map(event).collect();
    let reply = three_events().fin_at(Point::BeforeFinalCrlf);
    is_cut_visibly(reply, &sent, "terminator").await;
}

#[tokio::test(start_paused = true)]
async fn c19_a_body_shorter_than_announced_is_cut_for_the_client_too() {
    let body = [b'x'; 1000];
    let reply = ok(body).fin_at(Point::BodyBytes(400));
    is_cut_visibly(reply, &body[..400], "length").await;
    let reply = ok(body).rst_at(Point::BodyBytes(400));
    is_cut_visibly(reply, &body[..400], "length-reset").await;
}

#[tokio::test(start_paused = true)]
async fn c19_a_stream_without_done_but_with_its_terminator_is_complete() {
    let sent: Vec<u8> = (0..3).flat_map(event).collect();
    passes_as_it_is(three_events(), &sent).await;
}

#[tokio::test(start_paused = true)]
async fn c19_an_error_event_in_mid_stream_passes_as_it_is() {
    let error = b"data: {\"error\":{\"message\":\"dead\",\"code\":500}}\n\n".to_vec();
    let sent = [event(0), error.clone()].concat();
    let reply = chunks([(ms(10), event(0)), (ms(10), error)]);
    passes_as_it_is(reply.header("Content-Type", "text/event-stream"), &sent).await;
}

async fn passes_as_it_is(reply: Reply, sent: &[u8]) {
    let engine = ScriptedEngine::start(reply).await;
    let other = ScriptedEngine::start(ok("another answer")).await;
    let edge = edge(RETRIES).engines([&engine, &other]).start().await;
    let response = edge.ask(&req_s()).await;
    assert_eq!(response.body, sent);
    assert!(response.complete);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("answered"), 1.0);
    assert_eq!((engine.seen(), other.seen()), (1, 0));
}

// Each event at once

const GAP: Duration = ms(200);

/// Events whose characters are split between chunks, at most 30 bytes each.
fn split_events() -> Vec<(Duration, Vec<u8>)> {
    let mut pieces = Vec::new();
    for i in 0..20 {
        let event = format!("data: {{\"n\":{i},\"text\":\"grüße 世界 \u{1f600}\u{1f680}\"}}\n\n");
        for (n, part) in event.as_bytes().chunks(23).enumerate() {
            pieces.push((if n == 0 { GAP } else { Duration::ZERO }, part.to_vec()));
        }
    }
    pieces.push((Duration::ZERO, b"data: [DONE]\n\n".to_vec()));
    pieces
}

async fn each_event_comes_at_once(yaml: &str, refusals: u32) {
    let pieces = split_events();
    let body: Vec<u8> = pieces.iter().flat_map(|(_, piece)| piece.clone()).collect();
    let stream = chunks(pieces)
        .header("Content-Type", "text/event-stream; charset=utf-8")
        .header("Cache-Control", "no-cache");
    let mut replies = vec![status(503); refusals as usize];
    replies.push(stream);
    let engine = ScriptedEngine::start(replies).await;
    let edge = edge(yaml).engines([&engine]).start().await;
    let request = req_s().header("Accept-Encoding", "gzip, br, zstd");
    let response = edge.ask(&request).await;
    assert_eq!(response.body, body);
    assert!(response.complete);
    let headers = &response.headers;
    let kind = headers.get("content-type");
    assert_eq!(kind, Some("text/event-stream; charset=utf-8"));
    assert_eq!(headers.get("cache-control"), Some("no-cache"));
    assert_eq!(headers.get("content-encoding"), None);
    assert_eq!(headers.get("transfer-encoding"), Some("chunked"));
    let deliveries = engine.deliveries();
    assert_eq!(deliveries.len(), 1 + refusals as usize);
    let accepted = deliveries[0].headers.get("accept-encoding");
    assert_eq!(accepted, Some("gzip, br, zstd"));
    let sent_from = deliveries[refusals as usize].at;
    for (i, event) in response.events()[..20].iter().enumerate() {
        assert_eq!(event.at - sent_from, GAP * (i as u32 + 1), "event {i}");
    }
}

#[tokio::test(start_paused = true)]
async fn c20_each_event_comes_at_once_with_retries_off() {
    each_event_comes_at_once("", 0).await;
}

#[tokio::test(start_paused = true)]
async fn c20_each_event_comes_at_once_with_retries_on() {
    each_event_comes_at_once(RETRIES, 0).await;
}

#[tokio::test(start_paused = true)]
async fn c20_each_event_comes_at_once_after_a_503() {
    each_event_comes_at_once(RETRIES, 1).await;
}

#[tokio::test(start_paused = true)]
async fn c20_a_compressed_stream_stays_as_the_engine_compressed_it() {
    // What matters is that these bytes are none of the router's business.
    let flushes: Vec<_> = (0..10u8)
        .map(|i| (GAP, vec![0x1f, 0x8b, 8, i, 0xff, i]))
        .collect();
    let body: Vec<u8> = flushes
        .iter()
        .flat_map(|(_, flush)| flush.clone())
        .collect();
    let reply = chunks(flushes)
        .header("Content-Type", "text/event-stream")
        .header("Content-Encoding", "gzip");
    for yaml in ["", RETRIES] {
        let engine = ScriptedEngine::start(reply.clone()).await;
        let edge = edge(yaml).engines([&engine]).start().await;
        let response = edge.ask(&req_s().header("Accept-Encoding", "gzip")).await;
        assert_eq!(response.body, body);
        assert_eq!(response.headers.get("content-encoding"), Some("gzip"));
        let sent_from = engine.deliveries()[0].at;
        let late: Vec<_> = response
            .arrivals
            .iter()
            .map(|(at, _)| *at - sent_from)
            .collect();
        let expected: Vec<_> = (1..=10).map(|i| GAP * i).collect();
        assert_eq!(late, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn with_retries_off_the_head_does_not_wait_for_the_first_event() {
    let late = chunks([(secs(5), event(0))]).header("Content-Type", "text/event-stream");
    let engine = ScriptedEngine::start(late).await;
    for (yaml, waited) in [("", Duration::ZERO), (RETRIES, secs(5))] {
        let edge = edge(yaml).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!((response.status, response.waited()), (200, waited));
        assert_eq!(response.body, event(0));
    }
}

// Silence

#[tokio::test(start_paused = true)]
async fn c23_by_default_130_seconds_of_silence_are_waited_out() {
    for yaml in ["", RETRIES] {
        let engine = ScriptedEngine::start(ok("at last").delay(secs(130))).await;
        let edge = edge(yaml).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "at last"));
        assert_eq!(response.waited(), secs(130));
        assert_eq!(engine.seen(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c23_by_default_a_stream_may_pause_for_130_seconds() {
    let engine = ScriptedEngine::start(sse(3, secs(130))).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let response = edge.ask(&req_s()).await;
    assert_eq!(response.body, sse_body(3));
    assert!(response.complete);
}

#[tokio::test(start_paused = true)]
async fn c23_an_idle_timeout_lets_a_slow_but_steady_stream_finish() {
    let engine = ScriptedEngine::start(sse(20, ms(1500))).await;
    let yaml = format!("{RETRIES}stream_idle_timeout_ms: 2000");
    let edge = edge(&yaml).engines([&engine]).start().await;
    let response = edge.ask(&req_s()).await;
    assert_eq!(response.body, sse_body(20));
    assert!(response.complete);
    assert_eq!(response.ended_at.unwrap() - response.head_at, ms(19 * 1500));
}

#[tokio::test(start_paused = true)]
async fn c23_an_idle_timeout_cuts_a_stream_that_falls_silent_and_asks_nobody_else() {
    for yaml in ["", RETRIES] {
        let short = ms(100);
        let pauses = [short, short, short, secs(3), short];
        let pieces = pauses.iter().enumerate().map(|(i, p)| (*p, event(i)));
        let reply = chunks(pieces).header("Content-Type", "text/event-stream");
        let silent = ScriptedEngine::start(reply).await;
        let other = ScriptedEngine::start(ok("another answer")).await;
        let yaml = format!("{yaml}stream_idle_timeout_ms: 2000");
        let edge = edge(&yaml).engines([&silent, &other]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!(response.body, (0..3).flat_map(event).collect::<Vec<_>>());
        assert!(!response.complete && response.cut.is_some());
        let third = response.events()[2].at;
        assert_eq!(response.ended_at.unwrap() - third, secs(2));
        let (_, closed_at) = silent.wait_for_peer_close(0).await;
        assert!(closed_at - third < ms(2100));
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("cut"), 1.0);
        assert_eq!(other.seen(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn c23_a_first_byte_timeout_moves_on_to_another_engine() {
    let silent = ScriptedEngine::start(hang()).await;
    let healthy = ScriptedEngine::start(ok("good")).await;
    let yaml = format!("{RETRIES}first_byte_timeout_ms: 2000");
    let edge = edge(&yaml).engines([&silent, &healthy]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.text()), (200, "good"));
    assert_eq!(response.waited(), secs(2));
    assert_eq!(response.headers.get("x-vllm-pingora-attempts"), Some("2"));
    silent.wait_for_peer_close(0).await;
    let reason = &[("reason", "first_byte_timeout")];
    assert_eq!(edge.metric("vllm_pingora_retries_total", reason), 1.0);
}

#[tokio::test(start_paused = true)]
async fn c23_a_head_without_a_body_byte_does_not_stop_the_first_byte_clock() {
    let reply = chunks([(secs(60), event(0))]).header("Content-Type", "text/event-stream");
    let silent = ScriptedEngine::start(reply).await;
    let healthy = ScriptedEngine::start(sse(2, ms(10))).await;
    let yaml = format!("{RETRIES}first_byte_timeout_ms: 2000");
    let edge = edge(&yaml).engines([&silent, &healthy]).start().await;
    let response = edge.ask(&req_s()).await;
    assert_eq!(response.body, sse_body(2));
    assert_eq!(response.waited(), secs(2));
}

#[tokio::test(start_paused = true)]
async fn c23_a_first_byte_timeout_with_retries_off_is_a_504() {
    let silent = ScriptedEngine::start(hang()).await;
    let other = ScriptedEngine::start(ok("good")).await;
    let edge = edge("first_byte_timeout_ms: 2000");
    let edge = edge.engines([&silent, &other]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.waited()), (504, secs(2)));
    assert_eq!(response.json()["error"]["code"], "engine_timeout");
    silent.wait_for_peer_close(0).await;
    assert_eq!(other.seen(), 0);
}

#[tokio::test(start_paused = true)]
async fn c23_no_timeout_of_the_engine_runs_while_the_client_is_the_slow_side() {
    const TOTAL: usize = 40 << 20;
    let engine = ScriptedEngine::start(flood(TOTAL)).await;
    let yaml = format!("{RETRIES}stream_idle_timeout_ms: 2000\nfirst_byte_timeout_ms: 2000");
    let edge = edge(&yaml).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await.forgetting_bodies();
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    tokio::time::sleep(secs(30)).await;
    client.finish(&mut response).await;
    assert!(response.complete, "cut after {} bytes", response.body_len());
    assert_eq!(response.body_len(), TOTAL as u64);
}

// Slow readers

/// More than the sockets on the way can hold, as far as the system lets them grow.
const FLOOD: usize = 40 << 20;
/// What may be on the way: two connections with buffers of up to 4 and 6 MiB at their ends, and
/// little in between.
const HELD: u64 = 2 * (10 << 20) + (4 << 20);

#[tokio::test(start_paused = true)]
async fn c24_a_client_that_does_not_read_holds_its_engine_back_and_nobody_else() {
    let flooding = ScriptedEngine::start(flood(FLOOD)).await;
    let quick = ScriptedEngine::start(ok("quick")).await;
    let edge = edge(RETRIES)
        .engine(&flooding, &["m"])
        .engine(&quick, &["q"]);
    let edge = edge.start().await;
    let mut stalled = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(edge.addr()).await.forgetting_bodies();
        client.send_request(&req_s()).await;
        let response = client.read_head().await;
        stalled.push((client, response));
    }
    // On the paused clock this ends when nothing moves any more.
    tokio::time::sleep(secs(15)).await;
    for connection in flooding.connections() {
        let sent = connection.bytes_sent;
        assert!(sent < HELD, "the engine could send {sent} bytes to nobody");
    }
    // Others are served as ever.
    let other = post("/v1/chat/completions").body(r#"{"model":"q"}"#);
    for _ in 0..20 {
        let response = edge.ask(&other).await;
        assert_eq!(
            (response.text(), response.waited()),
            ("quick", Duration::ZERO)
        );
    }
    let mut whole = Client::connect(flooding.addr()).await.forgetting_bodies();
    let whole = whole.ask(&req_s()).await.body_hash();
    for (mut client, mut response) in stalled {
        client.finish(&mut response).await;
        assert!(response.complete);
        assert_eq!(response.body_len(), FLOOD as u64);
        assert_eq!(response.body_hash(), whole);
    }
}

#[tokio::test(start_paused = true)]
async fn c24_the_time_a_client_does_not_read_is_not_booked_as_the_engines() {
    let engine = ScriptedEngine::start(flood(FLOOD)).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await.forgetting_bodies();
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    tokio::time::sleep(secs(15)).await;
    client.finish(&mut response).await;
    assert!(response.complete);
    edge.wait_until_idle().await;
    let pace = |part: &str| {
        let name = format!("vllm_pingora_inter_token_latency_seconds_{part}");
        edge.metric(&name, &[])
    };
    assert!(pace("count") > 10.0, "it was a stream of many pieces");
    assert!(pace("sum") < 1.0, "{} s between its pieces", pace("sum"));
}

#[tokio::test(start_paused = true)]
async fn c24_an_event_without_an_end_is_not_collected() {
    let mut start = b"data: {\"error\":{\"message\":\"".to_vec();
    start.resize(64 * 1024, b'x');
    let pieces = std::iter::once(Bytes::from(start));
    let more = Bytes::from(vec![b'x'; 64 * 1024]);
    let pieces = pieces.chain((1..FLOOD >> 16).map(|_| more.clone()));
    let endless = chunks(pieces.map(|piece| (Duration::ZERO, piece)));
    let endless = endless.header("Content-Type", "text/event-stream");
    let engine = ScriptedEngine::start(endless).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await.forgetting_bodies();
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    tokio::time::sleep(secs(15)).await;
    let sent = engine.connections()[0].bytes_sent;
    assert!(sent < HELD, "{sent} bytes are held somewhere");
    client.finish(&mut response).await;
    assert!(response.complete);
    assert_eq!(response.body_len(), FLOOD as u64);
}

#[tokio::test(start_paused = true)]
async fn a_head_of_known_length_does_not_wait_for_its_body_with_retries_off() {
    let slow = raw_pieces([
        (ms(0), "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"),
        (secs(5), "late"),
    ]);
    let engine = ScriptedEngine::start(slow).await;
    let edge = edge("").engines([&engine]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.text()), (200, "late"));
    assert!(response.waited() < secs(1), "{:?}", response.waited());
    assert!(response.complete);
}
