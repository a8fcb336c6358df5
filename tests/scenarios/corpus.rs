//! Known shapes of smuggled requests, one to a file of `tests/corpus`: C37.
//!
//! A file says why it is there, what is to be expected, and, behind an empty line, what a client
//! sends: line ends of the file are left out, `\r`, `\n`, `\t`, `\0` and `\xNN` stand for bytes, and
//! `{hidden}` for a request that nobody may see.

use std::path::Path;

use crate::support::*;

const BODY: &str = r#"{"model":"m","messages":[]}"#;

struct Shape {
    name: String,
    verdict: Verdict,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// One answer with this status, and the connection closes; no engine hears of it.
    Refused(u16),
    /// One engine is asked, once, with [`BODY`], whatever else there is.
    Delivered,
}

impl Shape {
    fn read(path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(path).unwrap();
        let (head, request) = text.split_once("\n\n").expect("a head and a request");
        let (why, verdict) = head.split_once('\n').expect("a reason and a verdict");
        assert!(why.starts_with("# "), "{name} does not say why");
        let verdict = match verdict.split(' ').collect::<Vec<_>>()[..] {
            ["expect:", "refused", status] => Verdict::Refused(status.parse().unwrap()),
            ["expect:", "delivered"] => Verdict::Delivered,
            _ => panic!("{name}: {verdict}"),
        };
        let bytes = unescaped(&request.replace('\n', ""));
        Self {
            name,
            verdict,
            bytes,
        }
    }
}

fn unescaped(text: &str) -> Vec<u8> {
    let hidden = post("/v1/chat/completions")
        .body(BODY)
        .set("X-Case", "hidden");
    let hidden = String::from_utf8(hidden.to_bytes()).unwrap();
    let text = text.replace("{hidden}", &hidden);
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let [kind, after @ ..] = rest else {
            panic!("a backslash at the end of {text:?}");
        };
        rest = after;
        bytes.push(match kind {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'0' => 0,
            b'x' => {
                let (digits, after) = rest.split_at(2);
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            }
            other => panic!("\\{} in {text:?}", char::from(*other)),
        });
    }
    bytes
}

fn corpus() -> Vec<Shape> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let files = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| Shape::read(path)).collect()
}

/// Reads answers until the connection ends.
async fn answers(client: &mut Client) -> Vec<Response> {
    let mut answers = Vec::new();
    while let Ok(response) = client.try_read_response().await {
        answers.push(response);
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn c37_each_known_shape_of_a_smuggled_request_is_refused_or_delivered_once() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let quick = "client_keepalive_ms: 500\nbody_timeout_ms: 500\nheader_timeout_ms: 500\n";
    let edge = edge(quick).engines([&engine]).start().await;
    let shapes = corpus();
    assert!(shapes.len() > 70, "{} files", shapes.len());
    for Shape {
        name,
        verdict,
        bytes,
    } in shapes
    {
        // Whole, and byte by byte, as no reader may depend on how it comes.
        for piece in [bytes.len(), 1] {
            let (seen, begun) = (engine.seen(), engine.begun());
            let mut client = Client::connect(edge.addr()).await;
            for piece in bytes.chunks(piece) {
                if client.try_send(piece).await.is_err() {
                    break;
                }
            }
            let answers = answers(&mut client).await;
            edge.wait_until_idle().await;
            let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
            let delivered = engine.deliveries().split_off(seen);
            match verdict {
                Verdict::Refused(status) => {
                    assert_eq!(statuses, [status], "{name}");
                    assert_eq!(engine.begun(), begun, "{name}: {delivered:?}");
                }
                Verdict::Delivered => {
                    assert_eq!(statuses, [200], "{name}");
                    assert_eq!(delivered.len(), 1, "{name}: {delivered:?}");
                    assert_eq!(delivered[0].text(), BODY, "{name}");
                    assert_ne!(delivered[0].headers.get("x-case"), Some("hidden"), "{name}");
                    assert_eq!(delivered[0].framing, Framing::Length(BODY.len() as u64));
                }
            }
        }
    }
    engine.assert_clean();
    assert_eq!(edge.ask(&req_n()).await.status, 200);
}
