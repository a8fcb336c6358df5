//! WebSockets on `/v1/realtime`: upgraded, piped both ways, failed over only before the upgrade.

use crate::support::*;

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// What an engine breaks the conversation off at.
const BREAK: &[u8] = b"break";

fn upgrade(id: &str) -> Request {
    Request::new("GET", "/v1/realtime?model=m")
        .set("X-Request-Id", id)
        .set("Connection", "Upgrade")
        .set("Upgrade", "websocket")
        .set("Sec-WebSocket-Version", "13")
        .set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

/// An engine that upgrades, says hello, and repeats what it hears.
mod echo {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    pub struct Echo {
        pub url: String,
        pub heads: tokio::sync::mpsc::UnboundedReceiver<String>,
        pub ended: tokio::sync::mpsc::UnboundedReceiver<()>,
    }

    pub async fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (head, heads) = tokio::sync::mpsc::unbounded_channel();
        let (end, ended) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (head, end) = (head.clone(), end.clone());
                tokio::spawn(async move {
                    let _ = serve(stream, head).await;
                    let _ = end.send(());
                });
            }
        });
        Echo { url, heads, ended }
    }

    async fn serve(
        mut stream: TcpStream,
        head: tokio::sync::mpsc::UnboundedSender<String>,
    ) -> std::io::Result<()> {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n") {
            let byte = stream.read_u8().await?;
            read.push(byte);
        }
        let _ = head.send(String::from_utf8_lossy(&read).into_owned());
        stream.write_all(super::SWITCHED.as_bytes()).await?;
        stream.write_all(b"hello").await?;
        let mut buffer = [0; 1024];
        loop {
            match stream.read(&mut buffer).await? {
                0 => return Ok(()),
                n if buffer[..n] == *super::BREAK => return stream.set_zero_linger(),
                n => stream.write_all(&buffer[..n]).await?,
            }
        }
    }
}

/// Reads from a raw client until `text` has come.
async fn read_until(stream: &mut tokio::net::TcpStream, text: &str) -> String {
    use tokio::io::AsyncReadExt;
    let mut seen = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&seen).ends_with(text) {
            let mut buffer = [0; 1024];
            let n = stream.read(&mut buffer).await.unwrap();
            assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&buffer[..n]);
        }
    };
    within(PATIENCE, || format!("{text:?} did not come"), read).await;
    String::from_utf8(seen).unwrap()
}

async fn talk(edge: &TestEdge, id: &str) -> tokio::net::TcpStream {
    use tokio::io::AsyncWriteExt;
    let mut stream = tokio::net::TcpStream::connect(edge.addr()).await.unwrap();
    stream.write_all(&upgrade(id).to_bytes()).await.unwrap();
    let head = read_until(&mut stream, "hello").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for message in ["one", "two", "three"] {
        stream.write_all(message.as_bytes()).await.unwrap();
        assert_eq!(read_until(&mut stream, message).await, message);
    }
    stream
}

#[tokio::test(start_paused = true)]
async fn a_websocket_is_upgraded_and_piped_both_ways() {
    let mut engine = echo::start().await;
    let yaml = format!("{RETRIES}first_byte_timeout_ms: 1000\nstream_idle_timeout_ms: 1000\n");
    let edge = edge(&yaml).url(&engine.url, &["m"]).start().await;
    let mut stream = talk(&edge, "talk-1").await;
    let head = engine.heads.recv().await.unwrap().to_ascii_lowercase();
    assert!(
        head.starts_with("get /v1/realtime?model=m http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains("upgrade: websocket\r\n") && head.contains("connection: upgrade\r\n"),
        "{head}"
    );
    // Silence is not an engine's failure here.
    tokio::time::sleep(secs(60)).await;
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"late")
        .await
        .unwrap();
    assert_eq!(read_until(&mut stream, "late").await, "late");
    drop(stream);
    within(
        PATIENCE,
        || "the engine's end stays open".to_owned(),
        engine.ended.recv(),
    )
    .await;
    edge.wait_until_idle().await;
    let routes = [("route", "/v1/realtime"), ("status", "101")];
    assert_eq!(edge.metric("vllm_pingora_requests_total", &routes), 1.0);
    let line = edge.access_line("talk-1").await;
    let ended = " status=101 outcome=answered reason=answered ";
    assert!(line.contains(ended), "{line}");
    // What both said, without the heads.
    assert!(line.contains(" bytes_in=15 bytes_out=20 "), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_its_engine_breaks_off_is_cut_and_not_begun_again() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut engine = echo::start().await;
    let other = ScriptedEngine::start(ok("")).await;
    let edge = edge(RETRIES)
        .url(&engine.url, &["m"])
        .engines([&other])
        .start()
        .await;
    let mut stream = talk(&edge, "talk-4").await;
    stream.write_all(BREAK).await.unwrap();
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    let _ = within(PATIENCE, || "the client is left waiting".to_owned(), read).await;
    assert!(rest.is_empty(), "{rest:?}");
    assert!(engine.ended.recv().await.is_some());
    let line = edge.access_line("talk-4").await;
    let ended = " status=101 outcome=cut reason=committed ";
    assert!(line.contains(ended), "{line}");
    assert!(line.contains(" bytes_in=16 bytes_out=16 "), "{line}");
    assert_eq!(other.seen(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_failed_over_until_an_engine_accepts_it() {
    let (dead, busy) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(status(503)).await,
    );
    let engine = echo::start().await;
    let edge = edge(RETRIES)
        .engines([&dead, &busy])
        .url(&engine.url, &["m"])
        .start()
        .await;
    talk(&edge, "talk-2").await;
    assert_eq!(busy.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_is_declined_is_an_answer_and_ends_the_connection() {
    let engine = ScriptedEngine::start(status(403).body("no")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let mut bytes = upgrade("talk-3").to_bytes();
    bytes.extend_from_slice(b"GET /v1/models HTTP/1.1\r\nHost: e\r\n\r\n");
    client.send(bytes).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.text()), (403, "no"));
    assert_eq!(response.headers.get("connection"), Some("close"));
    client.expect_eof().await;
    assert_eq!(engine.begun(), 1);
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_websocket_for_an_unknown_model_is_refused() {
    let engine = ScriptedEngine::start(ok("")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let request = Request::new("GET", "/v1/realtime?model=no%2Fpe")
        .set("Connection", "Upgrade")
        .set("Upgrade", "websocket");
    let response = edge.ask(&request).await;
    assert_eq!(response.status, 404);
    assert!(response.text().contains("no/pe"), "{}", response.text());
    assert_eq!(engine.begun(), 0);
}
