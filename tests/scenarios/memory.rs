//! What bodies and slow readers cost in memory, and clients that vanish in time of the processor,
//! seen from outside a router in a process of its own: C11, C15, C18, C24.

use std::time::Duration;

use crate::support::*;

const MIB: usize = 1 << 20;

/// Among many clients, one may be met by the failures meant for others.
const RETRYING: [&str; 3] = ["--enable-retries", "--max-retries", "1000"];

fn prompt(size: usize) -> Request {
    let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(size));
    post("/v1/chat/completions").body(body)
}

/// Larger than what the allocator keeps for itself once it is free.
const LARGE: usize = 48 * MIB;

#[tokio::test]
async fn c11_a_body_is_let_go_once_its_answer_has_begun_or_its_client_has_left() {
    let begun = chunks([(Duration::ZERO, event(0)), (secs(3600), event(1))]);
    let begun = begun.header("Content-Type", "text/event-stream");
    let script = script([ok("warm"), hang(), begun]).forget_bodies();
    let engine = ScriptedEngine::start(script).await;
    let router = Process::start(&engine, &RETRYING, &[]).await;
    let ask = || async { Client::connect(router.addr).await };
    assert_eq!(ask().await.ask(&req_n()).await.text(), "warm");
    let idle = router.memory();

    let mut waiting = ask().await;
    waiting.send_request(&prompt(LARGE)).await;
    engine.wait_for_deliveries(2).await;
    let held = router.memory();
    assert!(held > idle + LARGE, "{held} bytes cannot hold the body");
    assert!(held < idle + LARGE * 3 / 2, "{held} bytes hold it twice");
    waiting.close();
    router.wait_for_memory_below(idle + LARGE / 4).await;

    let mut streaming = ask().await;
    streaming.send_request(&prompt(LARGE)).await;
    let mut response = streaming.read_head().await;
    streaming.read_events(&mut response, 1).await;
    router.wait_for_memory_below(idle + LARGE / 4).await;
    assert!(!response.complete);
}

#[tokio::test]
async fn c11_many_waiting_bodies_cost_little_more_than_their_bytes() {
    const CLIENTS: usize = 64;
    const SIZE: usize = MIB;
    // The first attempt of each is in vain.
    let mut replies = vec![ok("warm")];
    replies.extend(vec![status(503); CLIENTS]);
    replies.push(hang());
    let script = script(replies).forget_bodies();
    let engine = ScriptedEngine::start(script).await;
    // A busy machine takes a while over so many bytes.
    engine.set_patience(secs(60));
    let router = Process::start(&engine, &RETRYING, &[]).await;
    let mut client = Client::connect(router.addr).await;
    assert_eq!(client.ask(&req_n()).await.text(), "warm");
    let idle = router.memory();
    let request = prompt(SIZE);
    let mut waiting = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(router.addr).await;
        client.send_request(&request).await;
        waiting.push(client);
    }
    let delivered = engine.wait_for_deliveries(1 + 2 * CLIENTS).await;
    let hash = body_hash(request.body_bytes());
    assert!(delivered[1..].iter().all(|d| d.body_hash == hash));
    let held = router.memory() - idle;
    assert!(held > CLIENTS * SIZE, "{held} bytes cannot hold the bodies");
    assert!(held < CLIENTS * SIZE * 2, "{held} bytes are in use");
}

#[tokio::test]
async fn c24_twenty_clients_that_do_not_read_cost_little_memory_and_lose_nothing() {
    const CLIENTS: usize = 20;
    const EACH: usize = 12 * MIB;
    // Half of them are sent events, the others one event without an end.
    let endless = ok("").header("Content-Type", "text/event-stream");
    let endless = endless.body(vec![b'x'; EACH]).chunked();
    let mut replies = vec![ok("warm")];
    replies.extend(vec![flood(EACH); CLIENTS / 2]);
    replies.extend(vec![endless; CLIENTS / 2]);
    replies.push(ok("quick"));
    let engine = ScriptedEngine::start(replies).await;
    let router = Process::start(&engine, &RETRYING, &[]).await;
    let mut client = Client::connect(router.addr).await;
    assert_eq!(client.ask(&req_n()).await.text(), "warm");
    let idle = router.memory();
    let mut stalled = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(router.addr).await.forgetting_bodies();
        client.send_request(&req_s()).await;
        let response = client.read_head().await;
        stalled.push((client, response));
    }
    let mut sent = 0;
    let settled = async {
        loop {
            tokio::time::sleep(ms(300)).await;
            let before = sent;
            sent = engine.connections().iter().map(|c| c.bytes_sent).sum();
            if sent == before {
                break;
            }
        }
    };
    within(PATIENCE, || "the engine goes on sending".into(), settled).await;
    assert!(sent < (CLIENTS * EACH) as u64, "nothing held the engine up");
    let held = router.memory().saturating_sub(idle);
    assert!(held < CLIENTS * 4 * MIB, "{held} bytes are in use");
    assert_eq!(client.ask(&req_n()).await.text(), "quick");
    for (client, response) in &mut stalled {
        client.finish(response).await;
        assert!(response.complete);
        assert_eq!(response.body_len(), EACH as u64);
    }
    let held = router.memory().saturating_sub(idle);
    assert!(held < CLIENTS * 4 * MIB, "{held} bytes are in use");
}

#[tokio::test]
async fn c15_many_bodies_that_grow_when_they_are_read_are_read_a_few_at_a_time() {
    const CLIENTS: usize = 64;
    const LIMIT: usize = 16 * MIB;
    let engine = ScriptedEngine::start(ok("warm")).await;
    let limit = LIMIT.to_string();
    let flags = ["--max-request-body-bytes", &limit, "--threads", "4"];
    let router = Process::start(&engine, &flags, &[]).await;
    let mut client = Client::connect(router.addr).await;
    assert_eq!(client.ask(&req_n()).await.text(), "warm");
    let idle = router.peak_memory();
    let bomb = zstd::encode_all(&vec![b' '; LIMIT + 1][..], 1).unwrap();
    assert!(bomb.len() < LIMIT / 1000, "{} bytes", bomb.len());
    let bomb = req_n().set("Content-Encoding", "zstd").body(bomb);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(router.addr).await.patient(secs(60));
        client.send_request(&bomb).await;
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.read_response().await.status, 413);
    }
    let cores = std::thread::available_parallelism().unwrap().get();
    let used = router.peak_memory() - idle;
    assert!(used > LIMIT / 2, "{used} bytes cannot hold a body");
    // A buffer that grows is there twice for a moment.
    assert!(used < cores * 3 * LIMIT, "{used} bytes were in use");
    assert_eq!(engine.seen(), 1);
}

#[tokio::test]
async fn c18_clients_that_vanish_in_their_upload_keep_no_core_busy() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let router = Process::start(&engine, &RETRYING, &[]).await;
    let declared = ("Content-Length", "1048576");
    let chunked = ("Transfer-Encoding", "chunked");
    for (framing, part) in [
        (declared, &[b' '; 10_240][..]),
        (chunked, b"4\r"),
        (chunked, b"5\r\nab"),
        (chunked, b"zz\r\n"),
    ] {
        for reset in [true, false] {
            let request = post("/v1/chat/completions").header(framing.0, framing.1);
            let mut client = Client::connect(router.addr).await;
            client.send(request.head_bytes()).await;
            client.send(part).await;
            if reset {
                client.reset();
            } else {
                client.close();
            }
        }
    }
    let mut client = Client::connect(router.addr).await;
    assert_eq!(client.ask(&req_n()).await.text(), "good");
    tokio::time::sleep(ms(200)).await;
    let before = router.ticks();
    tokio::time::sleep(secs(1)).await;
    let spent = router.ticks() - before;
    assert!(spent <= 5, "{spent} % of a core");
    assert_eq!(engine.seen(), 1);
}
