//! What slow and oversized heads cost the router and its other clients, seen from outside a router
//! in a process of its own: C39.

use std::time::Duration;

use crate::support::*;

const KIB: usize = 1 << 10;

async fn served(flags: &[&str]) -> (ScriptedEngine, Process) {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let router = Process::start(&engine, flags, &[]).await;
    let mut client = Client::connect(router.addr).await;
    assert_eq!(client.ask(&req_n()).await.status, 200);
    (engine, router)
}

/// How long the client waits for an answer, on the real clock.
async fn waits(router: &Process) -> Duration {
    let begun = std::time::Instant::now();
    let mut client = Client::connect(router.addr).await;
    assert_eq!(client.ask(&req_n()).await.status, 200);
    begun.elapsed()
}

#[tokio::test]
async fn c39_two_thousand_slow_heads_cost_little_and_hold_up_nobody() {
    const CLIENTS: usize = 2000;
    let (_engine, router) = served(&["--header-timeout-ms=600000"]).await;
    let (idle, open) = (router.memory(), router.descriptors());
    let request = req_n();
    let (start, rest) = (request.head_bytes(), request.framed_body());
    let (start, rest) = (&start[..40], [&start[40..], &rest].concat());
    let mut slow = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(router.addr).await;
        client.send(start).await;
        slow.push(client);
    }
    let mut latencies = Vec::new();
    for byte in &rest[..20] {
        for client in &mut slow {
            client.send([*byte]).await;
        }
        latencies.push(waits(&router).await);
        latencies.push(waits(&router).await);
    }
    // One of them may meet a moment in which the machine is busy.
    latencies.sort_unstable();
    let median = latencies[latencies.len() / 2];
    assert!(median < ms(200), "{latencies:?}");
    let each = router.memory().saturating_sub(idle) / CLIENTS;
    assert!(each < 16 * KIB, "{each} bytes for each head");
    assert!(!slow.iter_mut().any(Client::has_something_to_read));
    // Whoever comes to an end is served, and the others leave nothing behind.
    for client in &mut slow[..20] {
        client.send(&rest[20..]).await;
        assert_eq!(client.read_response().await.status, 200);
    }
    drop(slow);
    let closed = async {
        // One to the engine may be kept.
        while router.descriptors() > open + 1 {
            tokio::time::sleep(ms(5)).await;
        }
    };
    let complaint = || format!("{} of {open} descriptors", router.descriptors());
    within(PATIENCE, complaint, closed).await;
}

#[tokio::test]
async fn c39_large_heads_cost_no_more_than_the_limit_lets_in() {
    const CLIENTS: usize = 64;
    let (engine, router) = served(&[]).await;
    let idle = router.memory();
    let unfinished = format!("GET /health HTTP/1.1\r\nX-Large: {}", "x".repeat(60 * KIB));
    let mut held = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(router.addr).await;
        client.send(&unfinished).await;
        held.push(client);
    }
    waits(&router).await;
    let each = router.memory().saturating_sub(idle) / CLIENTS;
    assert!(each < 192 * KIB, "{each} bytes for each head");
    drop(held);
    // Of what is beyond the limit nothing is kept.
    let (before, seen) = (router.peak_memory(), engine.begun());
    let large = format!("{unfinished}{}", "x".repeat(4096 * KIB));
    let ask = async || {
        let mut client = Client::connect(router.addr).await;
        // It is refused while it is being sent.
        let _ = client.try_send(&large).await;
        client.read_response().await.status
    };
    let answers = futures::future::join_all((0..CLIENTS).map(|_| ask())).await;
    assert_eq!(answers, [431; CLIENTS]);
    let each = (router.peak_memory() - before) / CLIENTS;
    assert!(each < 256 * KIB, "{each} bytes for each head");
    assert_eq!(engine.begun(), seen);
    assert!(waits(&router).await < secs(2));
}
