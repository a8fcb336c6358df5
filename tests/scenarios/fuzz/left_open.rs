//! In a process of its own: nothing that clients do leaves a descriptor open, or a panic in the log.

use super::requests::Generator;
use super::{Run, echo, playing};
use crate::support::*;

#[tokio::test]
async fn no_bytes_of_a_client_leave_anything_open() {
    let run = Run::of(300);
    let engine = ScriptedEngine::start(playing(echo(ok))).await;
    let flags = [
        "--header-timeout-ms=200",
        "--body-timeout-ms=200",
        "--client-keepalive-ms=200",
        "--engine-keepalive-ms=200",
        "--h2c",
    ];
    let router = Process::start(&engine, &flags, &[]).await;
    let before = router.descriptors();
    let mut generator = Generator::new(run.dice(), "open");
    let cases: Vec<_> = (0..run.cases).map(|_| generator.case()).collect();
    for cases in cases.chunks(50) {
        let addr = router.addr;
        let play = async |case| super::http_1::play(addr, case).await;
        futures::future::join_all(cases.iter().map(play)).await;
    }
    let closed = async {
        while router.descriptors() > before {
            tokio::time::sleep(ms(5)).await;
        }
    };
    let complaint = || format!("{} of {before} descriptors", router.descriptors());
    within(PATIENCE, complaint, closed).await;
    let (status, log) = router.terminate().await;
    assert!(status.success(), "{status}");
    let panicked = log.iter().find(|line| line.contains("panicked"));
    assert_eq!(panicked, None);
}
