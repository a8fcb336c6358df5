//! Clients that go away before they have their answer.

use std::time::Duration;

use rand::RngExt as _;
use tokio::time::timeout;

use super::answer::NoAnswer;
use super::clients::Client;
use super::judge;
use super::ordinary::{in_chunks, with_length};
use super::prompt::Wish;
use super::wire::{Line, Reading};

/// Goes away, politely or not.
fn leave(client: &mut Client, line: Line) {
    if client.rng.random_bool(0.5) {
        line.reset();
    }
}

/// A client that sends only a part of its body.
pub async fn in_upload(client: &mut Client, kind: &'static str) {
    let wish = Wish {
        size: client.rng.random_range(1_000..300_000),
        ..Wish::ordinary(&mut client.rng)
    };
    let ask = client.ask(&wish);
    let bytes = if client.rng.random_bool(0.5) {
        with_length(&ask)
    } else {
        in_chunks(&ask, 5_000).concat()
    };
    let part = client.rng.random_range(1..bytes.len() - 10);
    let Some(mut line) = client.connect(kind).await else {
        return;
    };
    let _ = line.send(&bytes[..part]).await;
    client.think(100).await;
    leave(client, line);
    client.world.tally.count(kind, "left");
}

/// A client that has no patience: it leaves before the first byte, during an attempt or between
/// two.
pub async fn while_waiting(client: &mut Client, kind: &'static str) {
    let ask = client.ordinary();
    let Some((mut line, _)) = client.line(kind).await else {
        return;
    };
    let _ = line.send(&with_length(&ask)).await;
    let patience = Duration::from_millis(client.rng.random_range(0..200));
    let answer = timeout(patience, line.answer(Reading::Leave(0))).await;
    let result = match answer {
        Err(_) => Ok("left".to_owned()),
        Ok(Ok(answer)) => judge::completion(&ask, &answer),
        Ok(Err(why)) => return client.unanswered(kind, &ask.id, why).await,
    };
    leave(client, line);
    client.judged(kind, &ask.id, result).await;
}

/// A client that has read enough.
pub async fn in_answer(client: &mut Client, kind: &'static str) {
    let wish = Wish {
        tokens: Some(client.rng.random_range(50..500)),
        ..Wish::ordinary(&mut client.rng)
    };
    let ask = client.ask(&wish);
    let Some((mut line, _)) = client.line(kind).await else {
        return;
    };
    let _ = line.send(&with_length(&ask)).await;
    let enough = client.rng.random_range(1..20_000);
    match line.answer(Reading::Leave(enough)).await {
        Ok(answer) => {
            let result = judge::completion(&ask, &answer);
            leave(client, line);
            client.judged(kind, &ask.id, result).await;
        }
        Err(why) => client.unanswered(kind, &ask.id, why).await,
    }
}

/// A client that ends its own side at once: it may be answered, or taken for one that has left.
pub async fn half_close(client: &mut Client, kind: &'static str) {
    let ask = client.ordinary();
    let Some(mut line) = client.connect(kind).await else {
        return;
    };
    let _ = line.send(&with_length(&ask)).await;
    line.half_close().await;
    match line.answer(Reading::Fast).await {
        Ok(answer) => {
            let result = judge::completion(&ask, &answer);
            client.judged(kind, &ask.id, result).await;
        }
        Err(NoAnswer::Closed(_)) => client.world.tally.count(kind, "closed"),
        Err(why) => client.unanswered(kind, &ask.id, why).await,
    }
}
