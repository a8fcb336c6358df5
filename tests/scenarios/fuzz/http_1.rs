//! HTTP/1: what engines are given, and what clients are answered, is what was asked for.

use std::net::SocketAddr;
use std::time::Duration;

use super::ledger::Ledger;
use super::reading::{self, Reading};
use super::requests::{ANY_BODY, Case, End, Generator};
use super::{Run, count_panics, echo, let_go, playing, settle};
use crate::support::*;

/// Sends a case; the client where it goes on, else `None`.
async fn send(edge: SocketAddr, case: &Case) -> Option<Client> {
    let mut client = Client::connect(edge).await;
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
        End::Read => Some(client),
        End::HalfClose => {
            client.shutdown_write().await;
            Some(client)
        }
        End::Close => {
            client.close();
            None
        }
        End::Reset => {
            client.reset();
            None
        }
    }
}

/// Reads the answers to these requests, and to what comes behind them.
async fn answers(client: &mut Client, readings: &[Reading]) -> Vec<Response> {
    for reading in readings {
        client.expect_answer_to(&reading.method);
    }
    let mut answers = Vec::new();
    while let Ok(response) = client.try_read_response().await {
        let last = !response.complete || response.headers.all("connection").contains(&"close");
        answers.push(response);
        if last {
            break;
        }
    }
    client.read_to_end().await;
    answers
}

/// Plays a case; what comes back is not looked at.
pub async fn play(edge: SocketAddr, case: &Case) {
    if let Some(mut client) = send(edge, case).await {
        client.read_to_end().await;
    }
}

/// Whether each answer that tells its request is one to the request at its place.
fn are_in_order(answers: &[Response], readings: &[Reading]) -> Result<(), String> {
    // What is no request is answered once, and ends the connection.
    if answers.len() > readings.len() + 1 {
        return Err(format!("{} answers", answers.len()));
    }
    for (i, answer) in answers.iter().enumerate() {
        let told = String::from_utf8_lossy(&answer.body);
        let expected = readings.get(i).map(Reading::told);
        if told.starts_with("of ") && !expected.is_some_and(|e| e.starts_with(&*told)) {
            return Err(format!("answer {i} is {told}"));
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn no_bytes_of_a_client_confuse_the_router() {
    let panics = count_panics();
    let run = Run::of(200);
    let mut generator = Generator::new(run.dice(), "h1");
    let quick = "header_timeout_ms: 1000\nbody_timeout_ms: 500\nclient_keepalive_ms: 1000\n";
    let settings = [
        format!("{quick}{ANY_BODY}{NOBODY_OUT}"),
        // One backoff is all that a request needs here.
        format!("{quick}{ANY_BODY}{NOBODY_OUT}{}", retries(2)),
    ];
    let engines = [
        ScriptedEngine::start(playing(echo(ok))).await,
        ScriptedEngine::start(playing(echo(ok))).await,
    ];
    let mut edges = Vec::new();
    for settings in &settings {
        edges.push(edge(settings).engines(&engines).start().await);
    }
    let mut ledger = Ledger::default();
    for number in 0..run.cases {
        let with_retries = generator.dice.below(2);
        let edge = &edges[with_retries];
        let case = generator.case();
        let bytes = case.pieces.concat();
        let told = || {
            let bytes = bytes.escape_ascii();
            format!("case {number} of seed {}: {bytes}\n{case:?}", run.seed)
        };
        let replies: Vec<Reply> = (0..4).map(|_| generator.dice.reply()).collect();
        for engine in &engines {
            engine.play(match case.sound {
                Some(_) => playing(echo(ok)),
                None => playing(replies.clone()).cycle(),
            });
        }
        let readings = reading::requests(&bytes);
        // An attempt may meet a stale connection, and is made once more then.
        let times = match case.sound {
            Some(_) => 1,
            None => 2 + 2 * with_retries,
        };
        for reading in &readings {
            ledger.meant(reading, times);
        }
        let heads = || engines[0].begun() + engines[1].begun();
        let before = heads();
        let mut answered = Vec::new();
        if let Some(mut client) = send(edge.addr(), &case).await {
            answered = answers(&mut client, &readings).await;
        }
        settle(edge).await;
        let began = heads() - before;
        // Some of the case before may come late, where its client did not wait.
        assert!(began <= (readings.len() + 4) * times, "{began}: {}", told());
        if let Err(wrong) = are_in_order(&answered, &readings) {
            panic!("{wrong}: {}", told());
        }
        let mut delivered = Vec::new();
        for engine in &engines {
            let found = ledger.settle(engine);
            delivered.extend(found.unwrap_or_else(|e| panic!("{e}: {}", told())));
        }
        if let Some(sound) = &case.sound {
            assert_eq!(sound, &readings, "{}", told());
            let bodies: Vec<_> = answered.iter().map(Response::text).collect();
            let expected: Vec<_> = sound.iter().map(Reading::told).collect();
            assert_eq!(bodies, expected, "{}", told());
            for reading in sound {
                assert!(delivered.contains(reading), "{reading:?}: {}", told());
            }
        }
        assert_eq!(count_panics(), panics, "{}", told());
    }
    for edge in &edges {
        settle(edge).await;
    }
    for engine in &engines {
        let_go(engine).await;
    }
}
