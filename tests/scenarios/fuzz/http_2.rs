//! HTTP/2 with prior knowledge: frames out of place, too many, too large, or split.

use std::collections::HashMap;
use std::time::Duration;

use super::frames::{Case, Generator};
use super::ledger::Ledger;
use super::reading::Reading;
use super::requests::ANY_BODY;
use super::{Run, count_panics, echo, let_go, playing, settle};
use crate::h2_requests::DATA;
use crate::support::*;

/// How long a client waits for what else may come.
const LOOKS_FOR: Duration = Duration::from_millis(700);

/// Plays a case; what came back as data, by stream.
async fn play(edge: &TestEdge, case: &Case) -> HashMap<u32, Vec<u8>> {
    let mut client = Client::connect(edge.addr()).await;
    for (i, piece) in case.pieces.iter().enumerate() {
        if i > 0 {
            tokio::time::sleep(Duration::from_micros(1)).await;
        }
        if client.try_send(piece).await.is_err() {
            break;
        }
    }
    if case.leaves {
        client.close();
        return HashMap::new();
    }
    let mut received = Vec::new();
    loop {
        let data = data(&received);
        let done = |(stream, reading): &(u32, Reading)| {
            data.get(stream)
                .is_some_and(|d| d.len() >= reading.told().len())
        };
        if case.sound && case.readings.iter().all(done) {
            return data;
        }
        // A sound one is waited for as long as it takes.
        let limit = if case.sound { secs(3600) } else { LOOKS_FOR };
        let more = tokio::time::timeout(limit, client.read_some()).await;
        match more {
            Ok(more) if !more.is_empty() => received.extend(more),
            _ => return data,
        }
    }
}

/// What the DATA frames among these bytes carry, by stream.
fn data(mut bytes: &[u8]) -> HashMap<u32, Vec<u8>> {
    let mut data: HashMap<u32, Vec<u8>> = HashMap::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let Some(payload) = rest.get(..length) else {
            break;
        };
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        if header[3] == DATA {
            data.entry(stream).or_default().extend(payload);
        }
        bytes = &rest[length..];
    }
    data
}

#[tokio::test(start_paused = true)]
async fn no_frames_of_a_client_confuse_the_router() {
    let panics = count_panics();
    let run = Run::of(200);
    let mut generator = Generator::new(run.dice());
    let quick = "h2c: true\nheader_timeout_ms: 1000\nbody_timeout_ms: 500\n";
    let settings = format!("{quick}client_keepalive_ms: 1000\n{ANY_BODY}{NOBODY_OUT}");
    let engine = ScriptedEngine::start(playing(echo(ok))).await;
    let edge = edge(&settings).engines([&engine]).start().await;
    let mut ledger = Ledger::default();
    for number in 0..run.cases {
        let case = generator.case();
        let told = || format!("case {number} of seed {}: {case:?}", run.seed);
        for (_, reading) in &case.readings {
            ledger.meant(reading, 1);
        }
        let data = play(&edge, &case).await;
        settle(&edge).await;
        for (stream, data) in &data {
            let said = String::from_utf8_lossy(data);
            let mut own = case.readings.iter().filter(|(of, _)| of == stream);
            assert!(
                !said.starts_with("of ") || own.any(|(_, reading)| reading.told() == said),
                "stream {stream} was told {said}: {}",
                told()
            );
        }
        let found = ledger.settle(&engine);
        let delivered = found.unwrap_or_else(|e| panic!("{e}: {}", told()));
        if case.sound {
            for (stream, reading) in &case.readings {
                let answer = data.get(stream).map(|data| String::from_utf8_lossy(data));
                assert_eq!(answer.as_deref(), Some(&*reading.told()), "{}", told());
                assert!(delivered.contains(reading), "{reading:?}: {}", told());
            }
        }
        assert_eq!(count_panics(), panics, "{}", told());
    }
    settle(&edge).await;
    let_go(&engine).await;
    edge.wait_until_idle().await;
}
