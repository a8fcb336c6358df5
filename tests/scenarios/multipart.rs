//! Uploads in multipart forms: C16.

use crate::support::*;

const BOUNDARY: &str = "----edge7MA4YWxk";

fn part(disposition: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), format!("--{BOUNDARY}--\r\n").into_bytes()].concat()
}

fn file(content: &[u8]) -> Vec<u8> {
    part("name=\"file\"; filename=\"speech.wav\"", content)
}

fn model(name: &str) -> Vec<u8> {
    part("name=\"model\"", name.as_bytes())
}

fn upload(content_type: &str, body: &[u8]) -> Request {
    post("/v1/audio/transcriptions")
        .set("Content-Type", content_type)
        .set("Authorization", "Bearer client-key")
        .body(body)
}

fn unquoted() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

#[tokio::test(start_paused = true)]
async fn c16_an_upload_is_routed_by_its_model_part_and_replayed_byte_for_byte() {
    let audio: Vec<u8> = (0..3 * 1024 * 1024u32).map(|n| (n % 251) as u8).collect();
    let sly = format!(
        "name=\"model\"\r\n\r\nm\r\n--{BOUNDAR}\r\n",
        BOUNDAR = &BOUNDARY[..8]
    );
    let quoted = format!("multipart/form-data; boundary=\"{BOUNDARY}\"");
    for (content_type, body) in [
        (unquoted(), form(&[model("w"), file(b"RIFF")])),
        (unquoted(), form(&[file(&audio), model("w")])),
        (unquoted(), form(&[file(sly.as_bytes()), model("w")])),
        (quoted, form(&[model("w"), file(b"RIFF")])),
    ] {
        let (a, b) = (
            ScriptedEngine::start([status(503), ok("text")]).await,
            ScriptedEngine::start(ok("wrong")).await,
        );
        let edge = edge(RETRIES)
            .engine(&a, &["w"])
            .engine(&b, &["m"])
            .start()
            .await;
        let response = edge.ask(&upload(&content_type, &body)).await;
        assert_eq!((response.status, response.text()), (200, "text"));
        assert_eq!((a.seen(), b.seen()), (2, 0));
        for delivery in a.deliveries() {
            assert_eq!(delivery.body, body);
            assert_eq!(
                delivery.headers.get("content-type"),
                Some(content_type.as_str())
            );
            assert_eq!(
                delivery.headers.get("authorization"),
                Some("Bearer client-key")
            );
        }
        a.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn c16_an_upload_without_a_usable_model_is_refused() {
    let a = ScriptedEngine::start(ok("text")).await;
    let edge = edge(RETRIES).engine(&a, &["w"]).start().await;
    for (content_type, body, expected) in [
        (unquoted(), form(&[file(b"RIFF")]), 400),
        (unquoted(), b"no form".to_vec(), 400),
        (
            "application/json".to_owned(),
            br#"{"model":"w"}"#.to_vec(),
            400,
        ),
        ("multipart/form-data".to_owned(), form(&[model("w")]), 400),
        (unquoted(), form(&[model("nope")]), 404),
    ] {
        let response = edge.ask(&upload(&content_type, &body)).await;
        assert_eq!(response.status, expected, "{content_type}");
    }
    assert_eq!(a.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_alias_in_a_form_changes_the_bytes_of_the_model_only() {
    let a = ScriptedEngine::start([status(503), ok("text")]).await;
    let yaml = format!("{RETRIES}aliases: {{whisper-1: openai/whisper-large-v3}}\n");
    let edge = edge(&yaml)
        .engine(&a, &["openai/whisper-large-v3"])
        .start()
        .await;
    let body = |name: &str| {
        form(&[
            file(b"whisper-1"),
            model(name),
            part("name=\"language\"", b"de"),
        ])
    };
    assert_eq!(
        edge.ask(&upload(&unquoted(), &body("whisper-1")))
            .await
            .status,
        200
    );
    for delivery in a.deliveries() {
        assert_eq!(delivery.body, body("openai/whisper-large-v3"));
    }
    a.assert_clean();
}
