//! Uploads that break off, fall silent or are malformed: C18.

use crate::support::*;

/// What a client does in the middle of its upload.
enum Leaves {
    Reset,
    Close,
}

async fn leaves_mid_upload(sent: &[u8], chunked: bool, how: Leaves) {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let request = post("/v1/chat/completions");
    let request = if chunked {
        request.header("Transfer-Encoding", "chunked")
    } else {
        request.header("Content-Length", "1048576")
    };
    let mut client = Client::connect(edge.addr()).await;
    client.send(request.head_bytes()).await;
    client.send(sent).await;
    match how {
        Leaves::Reset => client.reset(),
        Leaves::Close => client.close(),
    }
    edge.wait_for_requests("client_gone", 1).await;
    nothing_is_left_of_it(&engine, edge).await;
}

/// No engine heard of the request, no 5xx is counted, and the router serves on.
async fn nothing_is_left_of_it(engine: &ScriptedEngine, edge: TestEdge) {
    edge.wait_until_idle().await;
    assert_eq!((engine.begun(), engine.accepted()), (0, 0));
    let mut client = Client::connect(edge.addr()).await;
    for _ in 0..100 {
        assert_eq!(client.ask(&req_n()).await.text(), "good");
    }
    client.close();
    for line in edge.exposition().lines() {
        assert!(!line.contains("status=\"5"), "{line}");
    }
    engine.assert_clean();
    let closed = edge.drain().finished();
    within(PATIENCE, || "a connection is left open".into(), closed).await;
}

#[tokio::test]
async fn c18_a_client_that_resets_its_upload_is_gone_and_nobody_failed() {
    leaves_mid_upload(&[b' '; 10_240], false, Leaves::Reset).await;
}

#[tokio::test]
async fn c18_a_client_that_closes_in_mid_upload_is_gone_and_nobody_failed() {
    leaves_mid_upload(&[b' '; 10_240], false, Leaves::Close).await;
}

#[tokio::test]
async fn c18_a_client_that_closes_inside_a_chunk_size_is_gone_and_nobody_failed() {
    leaves_mid_upload(b"4\r", true, Leaves::Close).await;
}

#[tokio::test]
async fn c18_a_client_that_closes_inside_a_chunk_is_gone_and_nobody_failed() {
    leaves_mid_upload(b"5\r\nab", true, Leaves::Close).await;
}

// Pingora's read timeout runs in real time, whatever tokio's clock says.
#[tokio::test]
async fn c18_an_upload_that_falls_silent_is_answered_408_when_its_time_is_up() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let yaml = format!("{RETRIES}body_timeout_ms: 100");
    let edge = edge(&yaml).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").header("Content-Length", "1048576");
    client.send(request.head_bytes()).await;
    client.send(vec![b' '; 10_240]).await;
    let silent_from = std::time::Instant::now();
    let response = client.read_response().await;
    assert!(
        silent_from.elapsed() > ms(50),
        "{:?}",
        silent_from.elapsed()
    );
    assert_eq!(response.status, 408);
    assert_eq!(response.json()["error"]["code"], "request_timeout");
    client.expect_eof().await;
    client.close();
    nothing_is_left_of_it(&engine, edge).await;
}

#[tokio::test]
async fn c18_malformed_chunks_are_answered_400_and_the_connection_is_closed() {
    for wrong in [
        "zz\r\n",
        "-1\r\n",
        "5\r\nabcdefgh\r\n",
        "ffffffffffffffffff\r\nab",
    ] {
        let engine = ScriptedEngine::start(ok("good")).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        let request = post("/v1/chat/completions").header("Transfer-Encoding", "chunked");
        client.send(request.head_bytes()).await;
        client.send(wrong).await;
        let response = client.read_response().await;
        assert_eq!(response.status, 400, "{wrong:?}");
        assert_eq!(response.json()["error"]["code"], "invalid_request");
        assert_eq!(response.headers.get("connection"), Some("close"));
        client.expect_eof().await;
        client.close();
        nothing_is_left_of_it(&engine, edge).await;
    }
}

#[tokio::test]
async fn c18_a_client_that_goes_on_sending_after_a_malformed_chunk_can_read_the_400() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").header("Transfer-Encoding", "chunked");
    client.send(request.head_bytes()).await;
    client.send("zz\r\n").await;
    // A request of its own, were the connection taken to be in step; and far more than one read.
    client.send(req_n().to_bytes()).await;
    client.send(vec![b'x'; 1 << 20]).await;
    let response = client.read_response().await;
    assert_eq!(response.status, 400);
    client.expect_eof().await;
    client.close();
    nothing_is_left_of_it(&engine, edge).await;
}
