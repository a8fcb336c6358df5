//! Connecting to engines that do not answer: C29.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::*;

/// An address where connects are neither accepted nor refused: its queue is full.
struct Silent {
    address: SocketAddr,
    _held: (TcpListener, Vec<TcpStream>),
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
            _held: (listener, queued),
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

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_an_engine_is_connected_to_ends_the_request() {
    let (silent, engine) = (Silent::start().await, ScriptedEngine::start(ok("b")).await);
    let edge = edge(RETRIES)
        .url(&silent.url(), &["m"])
        .engines([&engine])
        .start()
        .await;
    let mut client = Client::connect(edge.addr()).await;
    let started = tokio::time::Instant::now();
    client.send_request(&req_n()).await;
    tokio::time::sleep(ms(100)).await;
    client.close();
    edge.wait_for_requests("client_gone", 1).await;
    assert!(
        started.elapsed() < secs(1),
        "noticed after {:?}",
        started.elapsed()
    );
    edge.wait_until_idle().await;
    assert_eq!(engine.begun(), 0);
}
