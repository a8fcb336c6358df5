//! Request bodies of every size and framing are replayed whole: C11.

use crate::support::*;

/// A route that takes any body, beside those that want a model.
const ANY_BODY: &str = "extra_routes: [{method: POST, path: /any, model: any, resend: always}]\n";

/// Chunk sizes with nothing even about them.
pub const ODD: [usize; 5] = [1, 4097, 7, 65_535, 333];

/// Bytes that tell where in the body they are, so that a shift, a gap or a mix shows.
pub fn bytes(size: usize) -> Vec<u8> {
    let word = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..size.div_ceil(8)).flat_map(word).take(size).collect()
}

/// A chat completion of exactly this many bytes.
pub fn prompt(size: usize) -> Vec<u8> {
    let (start, end) = (r#"{"model":"m","prompt":""#, r#""}"#);
    let filler = size - start.len() - end.len();
    // Repeated at no even distance, so that a shift by a buffer shows.
    let block: Vec<u8> = (0..65_521_u32)
        .map(|i| b'a' + (i.wrapping_mul(i) % 23) as u8)
        .collect();
    let mut body = Vec::with_capacity(size + block.len());
    body.extend_from_slice(start.as_bytes());
    while body.len() < start.len() + filler {
        body.extend_from_slice(&block);
    }
    body.truncate(start.len() + filler);
    body.extend_from_slice(end.as_bytes());
    body
}

/// Every request an engine got has this body, framed once and by its length.
#[track_caller]
pub fn assert_delivered(engine: &ScriptedEngine, body: &[u8], times: usize, case: &str) {
    let deliveries = engine.deliveries();
    assert_eq!(deliveries.len(), times, "{case}");
    for delivery in deliveries {
        let length = Framing::Length(body.len() as u64);
        assert_eq!(delivery.framing, length, "{case}");
        assert_eq!(delivery.body_hash, body_hash(body), "{case}");
    }
    engine.assert_clean();
}

fn with_any_body(yaml: &str) -> String {
    format!("{yaml}{ANY_BODY}")
}

#[derive(Clone, Copy, Debug)]
enum Failing {
    ResetAfterRequest,
    ClosedAfterHeaders,
    Status503,
    Refusing,
}

/// An engine that fails so, and how many whole requests it gets to see.
async fn failing(how: Failing) -> (ScriptedEngine, usize) {
    match how {
        Failing::ResetAfterRequest => (ScriptedEngine::start(rst_at(Point::Request)).await, 1),
        Failing::ClosedAfterHeaders => (ScriptedEngine::start(fin_at(Point::Headers)).await, 0),
        Failing::Status503 => (ScriptedEngine::start(status(503)).await, 1),
        Failing::Refusing => (ScriptedEngine::refusing().await, 0),
    }
}

/// Sends bodies of these sizes to a pair of engines of which the first fails.
async fn replays(how: Failing, sizes: &[usize], slowly: bool) {
    for &size in sizes {
        for chunks in [None, Some(ODD)] {
            let case = format!("{how:?}, {size} bytes, chunks {chunks:?}, slowly {slowly}");
            let (failing, seen) = failing(how).await;
            let healthy = ScriptedEngine::start(ok("good")).await;
            let edge = edge(&with_any_body(RETRIES));
            let edge = edge.engines([&failing, &healthy]).start().await;
            let body = bytes(size);
            let request = post("/any").body(&body);
            let request = match chunks {
                Some(sizes) => request.chunked(sizes),
                None => request,
            };
            let mut client = Client::connect(edge.addr()).await;
            let response = if slowly {
                client.send_slowly(request.to_bytes(), 1024, ms(1)).await;
                client.read_response().await
            } else {
                client.ask(&request).await
            };
            assert_eq!((response.status, response.text()), (200, "good"), "{case}");
            let attempts = response.headers.get("x-vllm-pingora-attempts");
            assert_eq!(attempts, Some("2"), "{case}");
            assert_delivered(&failing, &body, seen, &case);
            assert_delivered(&healthy, &body, 1, &case);
            // The client's connection is still in step.
            assert_eq!(client.ask(&req_n()).await.text(), "good", "{case}");
        }
    }
}

// While a MiB is on its way, a busy machine looks idle at times, and a paused clock would run on to
// the next timeout; so scenarios with large bodies run in real time.

/// Both sides of every size at which a buffer might end.
const SIZES: [usize; 7] = [0, 1, 65_535, 65_536, 65_537, 131_073, 1 << 20];

#[tokio::test]
async fn c11_bodies_of_every_size_and_framing_are_replayed_after_a_reset() {
    replays(Failing::ResetAfterRequest, &SIZES, false).await;
}

#[tokio::test]
async fn c11_bodies_of_every_size_and_framing_are_replayed_after_a_close_before_they_were_read() {
    replays(Failing::ClosedAfterHeaders, &SIZES, false).await;
}

#[tokio::test]
async fn c11_bodies_of_every_size_and_framing_are_replayed_after_a_503() {
    replays(Failing::Status503, &SIZES, false).await;
}

#[tokio::test]
async fn c11_bodies_of_every_size_and_framing_are_sent_after_a_refused_connection() {
    replays(Failing::Refusing, &SIZES, false).await;
}

#[tokio::test(start_paused = true)]
async fn c11_bodies_that_trickle_in_are_replayed_as_well() {
    for how in [
        Failing::ResetAfterRequest,
        Failing::ClosedAfterHeaders,
        Failing::Status503,
        Failing::Refusing,
    ] {
        replays(how, &[1, 65_537, 131_073], true).await;
    }
    replays(Failing::Status503, &[1 << 20], true).await;
}

#[tokio::test]
async fn c11_a_body_of_20_mib_is_the_same_on_every_attempt() {
    let body = prompt(20 << 20);
    for chunks in [None, Some(vec![1_000_003, 17])] {
        let replies = [
            rst_at(Point::Request),
            fin_at(Point::Headers),
            status(503),
            ok("good"),
        ];
        let engine = ScriptedEngine::start(script(replies).forget_bodies()).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let request = post("/v1/chat/completions").body(&body);
        let request = match chunks {
            Some(sizes) => request.chunked(sizes),
            None => request,
        };
        let response = edge.ask(&request).await;
        assert_eq!((response.status, response.text()), (200, "good"));
        assert_eq!(engine.begun(), 4);
        assert_delivered(&engine, &body, 3, "20 MiB");
    }
}

#[tokio::test]
async fn c11_many_large_bodies_at_once_are_not_mixed_up() {
    const CLIENTS: usize = 8;
    let failing = ScriptedEngine::start(status(503)).await;
    let healthy = ScriptedEngine::start(ok("good")).await;
    let edge = edge(RETRIES).engines([&failing, &healthy]).start().await;
    let mut asking = tokio::task::JoinSet::new();
    let mut expected = Vec::new();
    for i in 0..CLIENTS {
        let body = prompt((1 << 20) + i * 4099);
        let request = post("/v1/chat/completions").body(&body);
        let request = if i % 2 == 0 {
            request.chunked(ODD)
        } else {
            request
        };
        expected.push((request.case().to_owned(), body_hash(&body)));
        let addr = edge.addr();
        asking.spawn(async move { Client::connect(addr).await.ask(&request).await });
    }
    for response in asking.join_all().await {
        assert_eq!((response.status, response.text()), (200, "good"));
    }
    let mut delivered: Vec<_> = healthy.deliveries();
    delivered.extend(failing.deliveries());
    for delivery in &delivered {
        let of_its_client = (delivery.case().to_owned(), delivery.body_hash);
        assert!(expected.contains(&of_its_client), "{}", delivery.case());
    }
    assert_eq!(healthy.seen(), CLIENTS);
    healthy.assert_clean();
    failing.assert_clean();
}
