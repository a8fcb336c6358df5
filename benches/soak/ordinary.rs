//! What well-behaved clients do.

use std::time::Duration;

use rand::RngExt as _;

use super::clients::Client;
use super::judge::{self, TROUBLE};
use super::prompt::{Ask, Wish};
use super::router::KEY;
use super::wire::{Line, Reading};

/// The head of a request; `fields` end in CR LF each.
pub fn head(method: &str, path: &str, version: &str, id: &str, fields: &str) -> String {
    format!(
        "{method} {path} HTTP/{version}\r\nHost: router\r\nAuthorization: Bearer {KEY}\r\n\
         X-Request-Id: {id}\r\n{fields}\r\n"
    )
}

/// The request with its length declared.
pub fn with_length(ask: &Ask) -> Vec<u8> {
    let fields = format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\n",
        ask.body.len()
    );
    let mut bytes = head("POST", ask.path, "1.1", &ask.id, &fields).into_bytes();
    bytes.extend_from_slice(&ask.body);
    bytes
}

/// The head of the request without a length, and its body in chunks of about `size` bytes.
pub fn in_chunks(ask: &Ask, size: usize) -> Vec<Vec<u8>> {
    let fields = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    let mut parts = vec![head("POST", ask.path, "1.1", &ask.id, fields).into_bytes()];
    for chunk in ask.body.chunks(size) {
        let mut part = format!("{:x}\r\n", chunk.len()).into_bytes();
        part.extend_from_slice(chunk);
        part.extend_from_slice(b"\r\n");
        parts.push(part);
    }
    parts.push(b"0\r\n\r\n".to_vec());
    parts
}

/// Sends the parts, takes the answer, judges it, and keeps the connection if it stays open.
async fn exchange(
    client: &mut Client,
    kind: &'static str,
    mut line: Line,
    ask: &Ask,
    parts: &[Vec<u8>],
    reading: Reading,
) {
    for part in parts {
        // What went wrong is told by the answer, if there is one.
        if line.send(part).await.is_err() {
            break;
        }
    }
    match line.answer(reading).await {
        Ok(answer) => {
            let result = judge::completion(ask, &answer);
            client.judged(kind, &ask.id, result).await;
            if answer.keeps {
                client.keep(line);
            }
        }
        Err(why) => client.unanswered(kind, &ask.id, why).await,
    }
}

async fn on_any_line(client: &mut Client, kind: &'static str, ask: Ask, parts: Vec<Vec<u8>>) {
    let Some((line, reused)) = client.line(kind).await else {
        return;
    };
    client.world.tally.reused(reused);
    exchange(client, kind, line, &ask, &parts, Reading::Fast).await;
}

/// A completion, plain or streamed, its head at times in two pieces.
pub async fn completion(client: &mut Client, kind: &'static str) {
    let ask = client.ordinary();
    let mut bytes = with_length(&ask);
    let parts = if client.rng.random_bool(0.2) {
        let rest = bytes.split_off(client.rng.random_range(1..bytes.len()));
        vec![bytes, rest]
    } else {
        vec![bytes]
    };
    on_any_line(client, kind, ask, parts).await;
}

/// A completion whose body comes in chunks.
pub async fn chunked(client: &mut Client, kind: &'static str) {
    let ask = client.ordinary();
    let parts = in_chunks(&ask, client.rng.random_range(1..2_000));
    on_any_line(client, kind, ask, vec![parts.concat()]).await;
}

fn large_wish(client: &mut Client) -> Wish {
    // Small ones are more frequent.
    let share: f64 = client.rng.random::<f64>().powi(3);
    let most = f64::from(3 << 20);
    Wish {
        // A whole number of bytes within the limit.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        size: 32_000 + (share * (most - 32_000.0)) as usize,
        ..Wish::ordinary(&mut client.rng)
    }
}

/// A prompt of up to 3 MiB.
pub async fn large(client: &mut Client, kind: &'static str) {
    let wish = large_wish(client);
    let ask = client.ask(&wish);
    let parts = vec![with_length(&ask)];
    on_any_line(client, kind, ask, parts).await;
}

/// A prompt of up to 3 MiB in chunks.
pub async fn large_chunked(client: &mut Client, kind: &'static str) {
    let wish = large_wish(client);
    let ask = client.ask(&wish);
    let parts = in_chunks(&ask, client.rng.random_range(10_000..200_000));
    on_any_line(client, kind, ask, parts).await;
}

fn long_wish(client: &mut Client) -> Wish {
    Wish {
        stream: true,
        tokens: Some(client.rng.random_range(300..900)),
        ..Wish::ordinary(&mut client.rng)
    }
}

/// A stream of some hundred tokens.
pub async fn long_answer(client: &mut Client, kind: &'static str) {
    let wish = long_wish(client);
    let ask = client.ask(&wish);
    let parts = vec![with_length(&ask)];
    on_any_line(client, kind, ask, parts).await;
}

/// A long stream that is read a little at a time, with a pause.
pub async fn slow_reader(client: &mut Client, kind: &'static str) {
    let wish = long_wish(client);
    let ask = client.ask(&wish);
    let Ok(line) = Line::connect_narrow(client.world.router).await else {
        client.world.tally.wrong(format!("{kind}: no connection"));
        return;
    };
    let pause = Duration::from_millis(client.rng.random_range(500..2_500));
    let reading = Reading::Slow(client.rng.random_range(1..30_000), pause);
    let parts = [with_length(&ask)];
    exchange(client, kind, line, &ask, &parts, reading).await;
}

/// Several requests at once on one connection, answered in order.
pub async fn pipelined(client: &mut Client, kind: &'static str) {
    let asks: Vec<Ask> = (0..client.rng.random_range(2..5))
        .map(|_| client.ordinary())
        .collect();
    let Some((mut line, _)) = client.line(kind).await else {
        return;
    };
    let bytes: Vec<u8> = asks.iter().flat_map(with_length).collect();
    let _ = line.send(&bytes).await;
    for (n, ask) in asks.iter().enumerate() {
        let answer = match line.answer(Reading::Fast).await {
            Ok(answer) => answer,
            Err(why) => return client.unanswered(kind, &ask.id, why).await,
        };
        let result = judge::completion(ask, &answer);
        client.judged(kind, &ask.id, result).await;
        if !answer.keeps {
            for _ in &asks[n + 1..] {
                client.world.tally.count(kind, "closed before");
            }
            return;
        }
    }
    client.keep(line);
}

/// A client that knows no chunks.
pub async fn http_1_0(client: &mut Client, kind: &'static str) {
    let ask = client.ordinary();
    let Some(mut line) = client.connect(kind).await else {
        return;
    };
    let keep = if client.rng.random_bool(0.3) {
        "Connection: keep-alive\r\n"
    } else {
        ""
    };
    let fields = format!(
        "{keep}Content-Type: application/json\r\nContent-Length: {}\r\n",
        ask.body.len()
    );
    let mut bytes = head("POST", ask.path, "1.0", &ask.id, &fields).into_bytes();
    bytes.extend_from_slice(&ask.body);
    let _ = line.send(&bytes).await;
    match line.answer(Reading::Fast).await {
        Ok(answer) => {
            let result = judge::completion(&ask, &answer);
            client.judged(kind, &ask.id, result).await;
        }
        Err(why) => client.unanswered(kind, &ask.id, why).await,
    }
}

fn compressed(ask: &Ask) -> Vec<u8> {
    let body = ask.gzipped();
    let fields = format!(
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n",
        body.len()
    );
    let mut bytes = head("POST", ask.path, "1.1", &ask.id, &fields).into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}

/// A compressed body that names an alias, so that the router has to open it.
pub async fn gzip_renamed(client: &mut Client, kind: &'static str) {
    let wish = Wish {
        model: "nick",
        ..Wish::ordinary(&mut client.rng)
    };
    let ask = client.ask(&wish);
    let parts = vec![compressed(&ask)];
    on_any_line(client, kind, ask, parts).await;
}

/// A compressed body that goes on as it is, to engines that cannot read it.
pub async fn gzip(client: &mut Client, kind: &'static str) {
    let ask = client.ordinary();
    let bytes = compressed(&ask);
    for_status(client, kind, &ask.id, &bytes, &[400, 415, 422]).await;
}

/// A form, for which the engines have no route.
pub async fn multipart(client: &mut Client, kind: &'static str) {
    let id = client.next_id();
    let file = "x".repeat(client.rng.random_range(100..100_000));
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{file}\r\n\
         --b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n"
    );
    let fields = format!(
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n",
        body.len()
    );
    let head = head("POST", "/v1/audio/transcriptions", "1.1", &id, &fields);
    for_status(client, kind, &id, (head + &body).as_bytes(), &[404]).await;
}

/// The router's own liveness.
pub async fn health(client: &mut Client, kind: &'static str) {
    let id = client.next_id();
    let bytes = head("GET", "/health", "1.1", &id, "");
    let Some((line, _)) = client.line(kind).await else {
        return;
    };
    status_on(client, kind, line, &id, bytes.as_bytes(), &[200]).await;
}

/// Sends a request that goes to an engine, of which only the status matters.
async fn for_status(client: &mut Client, kind: &'static str, id: &str, bytes: &[u8], good: &[u16]) {
    let expected = [good, &TROUBLE].concat();
    let Some((line, _)) = client.line(kind).await else {
        return;
    };
    status_on(client, kind, line, id, bytes, &expected).await;
}

/// Sends a request of which only the status matters.
pub async fn status_on(
    client: &mut Client,
    kind: &'static str,
    mut line: Line,
    id: &str,
    bytes: &[u8],
    expected: &[u16],
) {
    let _ = line.send(bytes).await;
    match line.answer(Reading::Fast).await {
        Ok(answer) => {
            let result = judge::status(&answer, expected);
            client.judged(kind, id, result).await;
            if answer.keeps {
                client.keep(line);
            }
        }
        Err(why) => client.unanswered(kind, id, why).await,
    }
}
