//! What clients do that must be refused.

use rand::RngExt as _;

use super::answer::NoAnswer;
use super::clients::Client;
use super::judge;
use super::ordinary::{head, in_chunks, status_on, with_length};
use super::prompt::Wish;
use super::router::{KEY, MAX_BODY};
use super::wire::Reading;

async fn refused(
    client: &mut Client,
    kind: &'static str,
    id: &str,
    bytes: &[u8],
    expected: &[u16],
) {
    let Some((line, _)) = client.line(kind).await else {
        return;
    };
    status_on(client, kind, line, id, bytes, expected).await;
}

fn too_much(client: &mut Client) -> Wish {
    Wish {
        size: MAX_BODY + client.rng.random_range(0..1 << 20),
        ..Wish::ordinary(&mut client.rng)
    }
}

/// A body whose declared length is over the limit.
pub async fn over_limit(client: &mut Client, kind: &'static str) {
    let wish = too_much(client);
    let ask = client.ask(&wish);
    refused(client, kind, &ask.id, &with_length(&ask), &[413]).await;
}

/// A body that turns out to be over the limit.
pub async fn over_limit_chunked(client: &mut Client, kind: &'static str) {
    let wish = too_much(client);
    let ask = client.ask(&wish);
    let bytes = in_chunks(&ask, 100_000).concat();
    refused(client, kind, &ask.id, &bytes, &[413]).await;
}

/// A key that opens nothing.
pub async fn wrong_key(client: &mut Client, kind: &'static str) {
    let ask = client.ordinary();
    let bytes = String::from_utf8(with_length(&ask)).expect("text");
    let bytes = bytes.replacen(KEY, "other-key", 1);
    refused(client, kind, &ask.id, bytes.as_bytes(), &[401]).await;
}

/// A model nobody serves.
pub async fn unknown_model(client: &mut Client, kind: &'static str) {
    let wish = Wish {
        model: "nobody",
        ..Wish::ordinary(&mut client.rng)
    };
    let ask = client.ask(&wish);
    refused(client, kind, &ask.id, &with_length(&ask), &[404]).await;
}

/// A body that breaks off.
pub async fn broken_json(client: &mut Client, kind: &'static str) {
    let mut ask = client.ordinary();
    ask.body.truncate(ask.body.len() - 1);
    refused(client, kind, &ask.id, &with_length(&ask), &[400]).await;
}

/// A head, or the framing of a body, that means nothing or two things.
pub async fn malformed(client: &mut Client, kind: &'static str) {
    let id = client.next_id();
    let post =
        |fields: &str, body: &str| head("POST", "/v1/completions", "1.1", &id, fields) + body;
    let bytes = match client.rng.random_range(0..10) {
        0 => post(
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
        ),
        1 => head("GET", "/v1/models", "1.1", &id, "").replace("\r\n", "\n"),
        2 => "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\r\n\r\n".to_owned(),
        3 => format!("GET /v1/models HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\n\r\n"),
        4 => post(&format!("X-Long: {}\r\n", "x".repeat(300_000)), ""),
        5 => post("Content-Length: 4\r\nContent-Length: 5\r\n", "12345"),
        6 => post(
            "Transfer-Encoding: chunked\r\n",
            "zz\r\nno chunk\r\n0\r\n\r\n",
        ),
        7 => post("Content-Length: -1\r\n", ""),
        8 => post("Bad Name: 1\r\nContent-Length: 0\r\n", ""),
        _ => post("Transfer-Encoding: gzip, chunked, chunked\r\n", "0\r\n\r\n"),
    };
    let Some(mut line) = client.connect(kind).await else {
        return;
    };
    let _ = line.send(bytes.as_bytes()).await;
    match line.answer(Reading::Fast).await {
        Ok(answer) => {
            let result = judge::status(&answer, &[400, 414, 431, 501]);
            client.judged(kind, &id, result).await;
            if answer.keeps {
                let shown: String = bytes.chars().take(300).collect();
                client
                    .world
                    .wrong(
                        kind,
                        &id,
                        &format!("the connection stays open after {shown:?}"),
                    )
                    .await;
            }
        }
        Err(why) => client.unanswered(kind, &id, why).await,
    }
}

/// A head that never ends.
pub async fn stalled_head(client: &mut Client, kind: &'static str) {
    let ask = client.ordinary();
    let bytes = with_length(&ask);
    let part = client.rng.random_range(1..100);
    stalled(client, kind, &ask.id, &bytes[..part]).await;
}

/// A body that never ends.
pub async fn stalled_upload(client: &mut Client, kind: &'static str) {
    let ask = client.ordinary();
    let bytes = with_length(&ask);
    let part = bytes.len() - client.rng.random_range(1..100);
    stalled(client, kind, &ask.id, &bytes[..part]).await;
}

async fn stalled(client: &mut Client, kind: &'static str, id: &str, bytes: &[u8]) {
    let Some(mut line) = client.connect(kind).await else {
        return;
    };
    let _ = line.send(bytes).await;
    match line.answer(Reading::Fast).await {
        Ok(answer) => {
            let result = judge::status(&answer, &[408]);
            client.judged(kind, id, result).await;
        }
        Err(NoAnswer::Closed(_)) => client.world.tally.count(kind, "closed"),
        Err(why) => client.unanswered(kind, id, why).await,
    }
}
