//! Connecting to engines that do not answer: C21, C29.

use std::net::SocketAddr;

use ::h2::Reason;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::h2::{H2C, H2Client};
use crate::support::*;

/// An address where connects are neither accepted nor refused: its queue is full.
struct Silent {
    address: SocketAddr,
    held: (TcpListener, Vec<TcpStream>),
}

impl Silent {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        // A queue of one holds two.
        let mut queued = Vec::new();
        for _ in 0..2 {
            queued.push(TcpStream::connect(address).await.unwrap());
        }
        Self {
            address,
            held: (listener, queued),
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

const CONNECT_1S: &str = "connect_timeout_ms: 1000\n";

#[tokio::test(start_paused = true)]
async fn c29_a_connect_timeout_is_failed_over_at_once() {
    let (silent, engine) = (Silent::start().await, ScriptedEngine::start(ok("b")).await);
    let yaml = format!("{RETRIES}{CONNECT_1S}");
    let edge = edge(&yaml)
        .url(&silent.url(), &["m"])
        .engines([&engine])
        .start()
        .await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.text()), (200, "b"));
    assert_eq!(response.waited().as_millis(), 1000);
    assert_eq!(response.headers.get("x-vllm-pingora-attempts"), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn c29_a_connect_timeout_is_504_with_retries_off() {
    let silent = Silent::start().await;
    let edge = edge(CONNECT_1S).url(&silent.url(), &["m"]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!(response.status, 504);
    assert_eq!(response.json()["error"]["code"], "engine_timeout");
    assert_eq!(response.waited().as_millis(), 1000);
}

/// The request named `id` is over within a second of `left`, and it is nobody's failure.
async fn is_over_soon(edge: &TestEdge, id: &str, left: Instant) {
    let line = edge.access_line(id).await;
    let noticed = left.elapsed();
    assert!(noticed < secs(1), "noticed after {noticed:?}");
    assert!(
        line.contains("outcome=client_gone reason=client_gone"),
        "{line}"
    );
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("client_gone"), 1.0);
    assert_eq!(edge.attempts_ended("client_gone"), 1.0);
    assert_eq!(edge.attempts_ended("connect_timeout"), 0.0);
    assert_eq!(edge.condition(0).await.0, "up");
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_leaves_while_an_engine_is_connected_to_ends_the_request() {
    for retries in ["", RETRIES] {
        for ahead in [&b""[..], b"GET /v1/models HT"] {
            let (silent, engine) = (Silent::start().await, ScriptedEngine::start(ok("b")).await);
            let edge = edge(retries)
                .url(&silent.url(), &["m"])
                .engines([&engine])
                .start()
                .await;
            let mut client = Client::connect(edge.addr()).await;
            let request = req_n();
            let id = format!("leaves-{}", request.case());
            client.send_request(&request.set("X-Request-Id", &id)).await;
            client.send(ahead).await;
            tokio::time::sleep(ms(600)).await;
            client.close();
            is_over_soon(&edge, &id, Instant::now()).await;
            assert_eq!(engine.accepted(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_stream_reset_while_an_engine_is_connected_to_ends_its_request() {
    for retries in ["", RETRIES] {
        let (silent, engine) = (Silent::start().await, ScriptedEngine::start(ok("b")).await);
        let edge = edge(&format!("{H2C}{retries}"))
            .url(&silent.url(), &["m"])
            .engines([&engine])
            .start()
            .await;
        let mut client = H2Client::connect(&edge).await;
        let id = format!("resets-{}", req_n().case());
        let mut asked = client.chat_as(&id).await;
        tokio::time::sleep(ms(600)).await;
        asked.body.send_reset(Reason::CANCEL);
        is_over_soon(&edge, &id, Instant::now()).await;
        assert_eq!(engine.accepted(), 0);
        // The connection is still good.
        assert_eq!(client.chat().await.answer().await.text(), "b");
    }
}

#[tokio::test(start_paused = true)]
async fn c21_an_h2_connection_that_ends_while_an_engine_is_connected_to_ends_its_requests() {
    let silent = Silent::start().await;
    let edge = edge(H2C).url(&silent.url(), &["m"]).start().await;
    let mut client = H2Client::connect(&edge).await;
    let id = format!("ends-{}", req_n().case());
    let _asked = client.chat_as(&id).await;
    tokio::time::sleep(ms(600)).await;
    client.leave();
    is_over_soon(&edge, &id, Instant::now()).await;
}

/// On the real clock: it is the system that asks again, after a second.
#[tokio::test]
async fn a_connect_that_takes_its_time_comes_off_and_its_connection_is_kept() {
    let silent = Silent::start().await;
    let edge = edge("").url(&silent.url(), &["m"]).start().await;
    let served = async {
        tokio::time::sleep(ms(500)).await;
        let (listener, queued) = silent.held;
        drop(queued);
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = BytesMut::new();
            for _ in 0..2 {
                while !request.ends_with(req_n().body_bytes()) {
                    if stream.read_buf(&mut request).await.unwrap() == 0 {
                        break;
                    }
                }
                if std::mem::take(&mut request).is_empty() {
                    break;
                }
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate";
                stream.write_all(answer).await.unwrap();
            }
        }
    };
    let asked = async {
        for waits in [true, false] {
            let response = edge.ask(&req_n()).await;
            assert_eq!((response.status, response.text()), (200, "late"));
            let waited = response.waited();
            assert_eq!(waited > ms(300), waits, "{waited:?}");
        }
        let line = |reused| {
            edge.metric(
                "vllm_pingora_engine_connections_total",
                &[("reused", reused)],
            )
        };
        assert_eq!((line("false"), line("true")), (1.0, 1.0));
    };
    tokio::select! {
        () = served => unreachable!("it serves for ever"),
        () = asked => {}
    }
}

/// Asks a hundred times at once; the answers in the order they were asked for.
async fn a_hundred_at_once(edge: &TestEdge) -> Vec<Response> {
    let request = req_n();
    let ask = async || {
        let client = Client::connect(edge.addr()).await;
        client.patient(secs(60)).ask(&request).await
    };
    futures::future::join_all((0..100).map(|_| ask())).await
}

/// Half of a hundred requests begin with the engine at `url`, which costs them `wait`; the others
/// must not notice.
async fn holds_up_nobody_else(url: &str, settings: &str, wait: std::time::Duration) {
    for retries in ["", RETRIES] {
        let sound = ScriptedEngine::start(ok("sound")).await;
        let edge = edge(&format!("{retries}{settings}"))
            .url(url, &["m"])
            .engines([&sound])
            .start()
            .await;
        let answers = a_hundred_at_once(&edge).await;
        let (quick, slow): (Vec<_>, Vec<_>) = answers
            .iter()
            .partition(|response| response.waited() < ms(200));
        assert_eq!((quick.len(), slow.len()), (50, 50));
        assert!(quick.iter().all(|response| response.text() == "sound"));
        for response in slow {
            let waited = response.waited();
            assert!((wait..wait + ms(200)).contains(&waited), "{waited:?}");
            if retries.is_empty() {
                assert_eq!(response.status, 504);
                assert_eq!(response.json()["error"]["code"], "engine_timeout");
            } else {
                assert_eq!((response.status, response.text()), (200, "sound"));
            }
        }
        edge.wait_until_idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn c29_an_engine_that_takes_no_connection_holds_up_nobody_else() {
    let silent = Silent::start().await;
    holds_up_nobody_else(&silent.url(), CONNECT_1S, secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn c29_an_engine_that_does_not_answer_holds_up_nobody_else() {
    let hanging = ScriptedEngine::start(hang()).await;
    let settings = "first_byte_timeout_ms: 2000\n";
    holds_up_nobody_else(&hanging.url(), settings, secs(2)).await;
}

#[tokio::test(start_paused = true)]
async fn c29_with_all_engines_down_answers_are_quick_and_good_ones_return_with_the_engines() {
    for settings in ["", "enable_retries: true\njitter_factor: 0\n"] {
        let engines = [
            ScriptedEngine::start(ok("a")).await,
            ScriptedEngine::start(ok("b")).await,
        ];
        let edge = edge(settings).engines(&engines).start().await;
        assert_eq!(edge.ask(&req_n()).await.status, 200);
        for engine in &engines {
            engine.stop().await;
        }
        for response in a_hundred_at_once(&edge).await {
            assert_eq!(response.status, 502);
            assert_eq!(response.json()["error"]["code"], "engine_unreachable");
            assert!(response.waited() < ms(500), "{:?}", response.waited());
        }
        tokio::time::sleep(secs(10)).await;
        for engine in &engines {
            engine.listen_with(ok("back")).await;
        }
        for response in a_hundred_at_once(&edge).await {
            assert_eq!((response.status, response.text()), (200, "back"));
        }
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("answered"), 101.0);
    }
}

#[tokio::test(start_paused = true)]
async fn c29_an_engine_too_busy_to_be_looked_at_goes_on_serving() {
    let models = ok(r#"{"object":"list","data":[{"id":"m"}]}"#);
    let busy = script(sse(10, secs(3))).on("/v1/models", [models, hang()]);
    let engine = ScriptedEngine::start(busy.on("/health", hang())).await;
    let edge = edge(RETRIES).engine(&engine, &[]).start().await;
    let request = req_s();
    let looking = async {
        for _ in 0..3 {
            edge.look_again().await;
        }
    };
    let (response, ()) = tokio::join!(edge.ask(&request), looking);
    assert_eq!((response.complete, response.body), (true, sse_body(10)));
    let response = edge.ask(&request).await;
    assert_eq!((response.complete, response.attempts()), (true, 1));
    assert_eq!(engine.deliveries_to("/health").len(), 0);
}
