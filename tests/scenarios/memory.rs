//! What bodies cost in memory, seen from outside a router in a process of its own: C11.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::*;

const MIB: usize = 1 << 20;

/// A router in a process of its own, which ends with this.
struct Process {
    child: Child,
    addr: SocketAddr,
}

impl Process {
    async fn start(engine: &ScriptedEngine) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vllm-pingora"))
            .args(["--host", "127.0.0.1", "--port", "0", "--admin-port", "0"])
            .args([
                "--threads",
                "1",
                "--static-models",
                "m",
                "--static-backends",
            ])
            .args([&engine.url(), "--enable-retries"])
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the router starts");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                let after = line.split("listening on ").nth(1);
                if let Some(addr) = after.and_then(|rest| rest.split(',').next()) {
                    return addr.parse().expect("an address");
                }
            }
            panic!("the router ended");
        };
        let complaint = || "the router does not say where it listens".to_owned();
        let addr = within(PATIENCE, complaint, listening).await;
        // A pipe that nobody reads would stop the router.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, addr }
    }

    /// Resident memory, in bytes.
    fn memory(&self) -> usize {
        let process = self.child.id().expect("a running process");
        let pages = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    }

    /// Waits until no more memory than this is in use.
    async fn wait_for_memory_below(&self, most: usize) {
        let below = async {
            while self.memory() > most {
                tokio::time::sleep(ms(5)).await;
            }
        };
        let complaint = || format!("{} of {most} bytes are in use", self.memory());
        within(PATIENCE, complaint, below).await;
    }
}

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
    let router = Process::start(&engine).await;
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
    const CLIENTS: usize = 24;
    const SIZE: usize = 4 * MIB;
    let script = script([ok("warm"), hang()]).forget_bodies();
    let engine = ScriptedEngine::start(script).await;
    let router = Process::start(&engine).await;
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
    engine.wait_for_deliveries(1 + CLIENTS).await;
    let held = router.memory() - idle;
    assert!(held > CLIENTS * SIZE, "{held} bytes cannot hold the bodies");
    assert!(held < CLIENTS * SIZE * 2, "{held} bytes are in use");
}
