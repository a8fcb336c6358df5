//! Malformed, mutated and split requests from a seeded generator.
//!
//! `VLLM_PINGORA_FUZZ_SEED` replays a run, `VLLM_PINGORA_FUZZ_CASES` says how many cases it has.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::*;

/// Cases between two honest requests.
const BATCH: usize = 20;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// Panics of the code under test, on whatever thread. A panicking task is otherwise seen by nobody.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static HOOK: OnceLock<()> = OnceLock::new();
    HOOK.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map_or("", |place| place.file());
            // What fails in a test's own code fails that test.
            if !file.contains("tests/") {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(panic);
        }));
    });
}

/// What a case sends, piece by piece, and how it ends.
#[derive(Debug)]
struct Case {
    pieces: Vec<Vec<u8>>,
    /// How many requests the bytes hold at the very most, by any reading of them.
    most: usize,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Read,
    HalfClose,
    Close,
    Reset,
}

struct Generator(StdRng);

impl Generator {
    fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// A request that is good, or nearly so.
    fn request(&mut self) -> Vec<u8> {
        let bodies: [&[u8]; 8] = [
            br#"{"model":"m","messages":[]}"#,
            br#"{"model":"m","stream":true}"#,
            br#"{"model":"nobody"}"#,
            br#"{"model":1}"#,
            br#"{"model":"m""#,
            b"{}",
            b"",
            b"\xff\0",
        ];
        let paths = [
            "/v1/chat/completions",
            "/v1/chat/completions",
            "/v1/completions?x=%2F",
            "/v1/models",
            "/health",
            "/sleep",
            "http://e/v1/completions",
            "*",
        ];
        let methods = ["POST", "POST", "POST", "GET", "HEAD", "OPTIONS", "PUT"];
        let mut request =
            Request::new(self.pick(&methods), self.pick(&paths)).body(self.pick(&bodies));
        if self.one_in(3) {
            let sizes: Vec<usize> = (0..3).map(|_| 1 + self.below(12)).collect();
            request = request.chunked(sizes);
        }
        for _ in 0..self.below(3) {
            let (name, value) = [
                ("Connection", "close"),
                ("Connection", "keep-alive, X-Case"),
                ("Expect", "100-continue"),
                ("Upgrade", "websocket"),
                ("Content-Length", "3"),
                ("Transfer-Encoding", "chunked"),
                ("Transfer-Encoding", "identity"),
                ("Host", "other"),
                ("X-Request-Id", "\u{e9}"),
                ("TE", "trailers"),
                ("X-Large", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"),
            ][self.below(11)];
            request = request.header(name, value);
        }
        request.to_bytes()
    }

    /// Changes a few bytes.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let spice: [&[u8]; 16] = [
            b"\r\n",
            b"\n",
            b"\r",
            b"\0",
            b" ",
            b"\t",
            b":",
            b",",
            b";",
            b"\r\n\r\n",
            b"0\r\n\r\n",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"\x80",
            b"\x0b",
            b"-1",
        ];
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            let end = bytes.len().min(at + 1 + self.below(6));
            match self.below(4) {
                0 => drop(bytes.splice(at..at, self.pick(&spice).iter().copied())),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let copy = bytes[at..end].to_vec();
                    drop(bytes.splice(at..at, copy));
                }
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = self.0.random();
                    }
                }
            }
        }
    }

    fn case(&mut self) -> Case {
        let mut bytes = Vec::new();
        let count = 1 + self.below(3);
        for _ in 0..count {
            let mut request = self.request();
            if self.one_in(2) {
                self.mutate(&mut request);
            }
            bytes.extend(request);
        }
        if self.one_in(8) {
            bytes = (0..self.below(200)).map(|_| self.0.random()).collect();
        }
        if self.one_in(6) {
            let kept = self.below(bytes.len() + 1);
            bytes.truncate(kept);
        }
        let mut pieces = Vec::new();
        while self.one_in(2) && bytes.len() > 1 && pieces.len() < 4 {
            let rest = bytes.split_off(1 + self.below(bytes.len() - 1));
            pieces.push(std::mem::replace(&mut bytes, rest));
        }
        pieces.push(bytes);
        let end = [End::Read, End::Read, End::HalfClose, End::Close, End::Reset][self.below(5)];
        Case {
            pieces,
            most: count,
            end,
        }
    }

    /// What an engine does with a request, well or not.
    fn reply(&mut self) -> Reply {
        match self.below(12) {
            0 => status(503),
            1 => sse(2, ms(1)),
            2 => ok("{}").close(),
            3 => ok("{}").chunked(),
            4 => fin_at(Point::Request),
            5 => rst_at(Point::Request),
            6 => status(204),
            7 => ok("0123456789").fin_at(Point::BodyBytes(4)),
            8 => raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").then_close(),
            9 => ok("{}").informational(103, "Early Hints"),
            _ => ok("{}"),
        }
    }
}

/// Plays a case; what goes wrong for the client is not looked at.
async fn play(edge: &TestEdge, case: &Case) {
    let mut client = Client::connect(edge.addr()).await;
    for (i, piece) in case.pieces.iter().enumerate() {
        if i > 0 {
            tokio::time::sleep(Duration::from_micros(1)).await;
        }
        if client.try_send(piece).await.is_err() {
            break;
        }
    }
    match case.end {
        // What the bytes left open ends when a timeout of the router does it.
        End::Read => {}
        End::HalfClose => client.shutdown_write().await,
        End::Close => return client.close(),
        End::Reset => return client.reset(),
    }
    while !client.read_some().await.is_empty() {}
}

#[tokio::test(start_paused = true)]
async fn no_bytes_of_a_client_confuse_the_router() {
    count_panics();
    let seed = number("VLLM_PINGORA_FUZZ_SEED").unwrap_or(0x5eed);
    let cases = number("VLLM_PINGORA_FUZZ_CASES").unwrap_or(200) as usize;
    println!("VLLM_PINGORA_FUZZ_SEED={seed} VLLM_PINGORA_FUZZ_CASES={cases}");
    let mut generator = Generator(StdRng::seed_from_u64(seed));
    let quick = "header_timeout_ms: 1000\nbody_timeout_ms: 5\nclient_keepalive_ms: 1000\n";
    let settings = [
        quick.to_owned(),
        // One backoff is all that a request needs here.
        format!("{quick}{RETRIES}max_retries: 2\n"),
    ];
    let models = ok(r#"{"data":[{"id":"m"}]}"#);
    let (a, b) = (
        ScriptedEngine::start(ok("{}")).await,
        ScriptedEngine::start(ok("{}")).await,
    );
    let mut edges = Vec::new();
    for settings in &settings {
        edges.push((
            edge(settings).engines([&a, &b]).start().await,
            settings.contains("max_retries"),
        ));
    }
    let panics = PANICS.load(Ordering::SeqCst);
    // What a client that left at once may still set off after its case.
    let mut behind = 0;
    for number in 0..cases {
        let (edge, retries) = &edges[generator.below(2)];
        let replies: Vec<Reply> = (0..4).map(|_| generator.reply()).collect();
        for engine in [&a, &b] {
            engine.play(
                script(replies.clone())
                    .cycle()
                    .on("/v1/models", models.clone()),
            );
        }
        let case = generator.case();
        let before = a.begun() + b.begun();
        play(edge, &case).await;
        edge.wait_until_idle().await;
        // Each attempt may meet a stale connection, and is made once more then.
        let attempts = if *retries { 4 } else { 2 };
        let began = a.begun() + b.begun() - before;
        let told = || {
            let bytes = case.pieces.concat();
            format!(
                "case {number} of seed {seed}: {case:?}: {:?}",
                String::from_utf8_lossy(&bytes)
            )
        };
        assert!(
            began <= case.most * attempts + behind,
            "{began} requests from {}",
            told()
        );
        behind = match case.end {
            End::Close | End::Reset => case.most * 4,
            End::Read | End::HalfClose => 0,
        };
        for engine in [&a, &b] {
            let errors = engine.protocol_errors();
            assert!(errors.is_empty(), "{errors:?} from {}", told());
        }
        assert_eq!(PANICS.load(Ordering::SeqCst), panics, "{}", told());
        if number % BATCH == BATCH - 1 {
            for engine in [&a, &b] {
                engine.play(script(ok("honest")).on("/v1/models", models.clone()));
            }
            for (edge, _) in &edges {
                let request = req_n();
                let response = edge.ask(&request).await;
                assert_eq!(
                    (response.status, response.text()),
                    (200, "honest"),
                    "{}",
                    told()
                );
                let deliveries = [a.deliveries(), b.deliveries()].concat();
                let delivery = deliveries.iter().rfind(|d| {
                    d.headers
                        .iter()
                        .any(|(_, value)| value == request.case().as_bytes())
                });
                assert_eq!(delivery.unwrap().body, request.body_bytes(), "{}", told());
            }
        }
    }
}
