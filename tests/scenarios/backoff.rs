//! The waits between attempts, to the millisecond: C08.

use crate::support::*;

/// Retries with this schedule: initial wait, multiplier, cap, jitter, attempts.
fn schedule(initial: u64, multiplier: f64, max: u64, jitter: f64, attempts: u32) -> String {
    format!(
        "enable_retries: true\n\
         initial_backoff_ms: {initial}\n\
         backoff_multiplier: {multiplier:?}\n\
         max_backoff_ms: {max}\n\
         jitter_factor: {jitter:?}\n\
         max_retries: {attempts}\n"
    )
}

#[tokio::test(start_paused = true)]
async fn c08_a_wait_grows_to_its_cap_and_stays_there() {
    let engine = ScriptedEngine::start(status(503)).await;
    let edge = edge(&schedule(10, 10.0, 50, 0.0, 8))
        .engines([&engine])
        .start()
        .await;
    assert_eq!(edge.ask(&req_n()).await.status, 503);
    assert_eq!(millis(&engine.gaps()), [10, 50, 50, 50, 50, 50, 50]);
}

#[tokio::test(start_paused = true)]
async fn c08_growth_beyond_every_number_is_harmless() {
    let engine = ScriptedEngine::start(status(503)).await;
    let edge = edge(&schedule(1, 1e9, 2, 0.5, 12))
        .engines([&engine])
        .start()
        .await;
    assert_eq!(edge.ask(&req_n()).await.status, 503);
    assert_eq!(engine.seen(), 12);
    // The clock's own steps are a millisecond each.
    let longest = engine.gaps().into_iter().max();
    assert!(longest <= Some(ms(4)), "{longest:?}");
    assert_eq!(edge.ask(&req_n()).await.status, 503);
}

#[tokio::test(start_paused = true)]
async fn c08_jitter_spreads_the_waits_over_its_whole_range() {
    let engine = ScriptedEngine::start(status(503)).await;
    let edge = edge(&schedule(100, 1.0, 100, 0.5, 2))
        .engines([&engine])
        .start()
        .await;
    let mut client = Client::connect(edge.addr()).await;
    for _ in 0..300 {
        assert_eq!(client.ask(&req_n()).await.status, 503);
    }
    // Every second gap is a backoff, the others lie between two requests.
    let gaps: Vec<u128> = millis(&engine.gaps()).into_iter().step_by(2).collect();
    assert_eq!(gaps.len(), 300);
    assert!(gaps.iter().all(|gap| (50..=151).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap < 70), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap > 130), "{gaps:?}");
    let mean = gaps.iter().sum::<u128>() as f64 / 300.0;
    assert!((90.0..=110.0).contains(&mean), "{mean}");
}

#[tokio::test(start_paused = true)]
async fn c08_without_jitter_all_waits_are_equal() {
    let engine = ScriptedEngine::start(status(503)).await;
    let edge = edge(&schedule(100, 1.0, 100, 0.0, 20))
        .engines([&engine])
        .start()
        .await;
    edge.ask(&req_n()).await;
    assert_eq!(millis(&engine.gaps()), [100; 19]);
}

#[tokio::test(start_paused = true)]
async fn c08_whole_jitter_neither_turns_negative_nor_spins() {
    let engine = ScriptedEngine::start(status(503)).await;
    let edge = edge(&schedule(100, 1.0, 100, 1.0, 100))
        .engines([&engine])
        .start()
        .await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.attempts()), (503, 100));
    let gaps = millis(&engine.gaps());
    assert!(gaps.iter().all(|gap| *gap <= 201), "{gaps:?}");
    let mean = gaps.iter().sum::<u128>() as f64 / 99.0;
    assert!((60.0..=140.0).contains(&mean), "{mean}");
}

#[tokio::test(start_paused = true)]
async fn the_default_schedule_is_50_75_112_and_168_milliseconds_give_or_take_a_fifth() {
    let engine = ScriptedEngine::start(status(503)).await;
    let edge = edge("enable_retries: true")
        .engines([&engine])
        .start()
        .await;
    edge.ask(&req_n()).await;
    let gaps = millis(&engine.gaps());
    assert_eq!(gaps.len(), 4);
    for (gap, ideal) in gaps.into_iter().zip([50.0, 75.0, 112.5, 168.75]) {
        let range = ideal * 0.8 - 1.0..=ideal * 1.2 + 1.0;
        assert!(range.contains(&(gap as f64)), "{gap} for {ideal}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_40_is_40_attempts() {
    let (busy, dead) = (
        ScriptedEngine::start(status(503)).await,
        ScriptedEngine::refusing().await,
    );
    for engine in [&busy, &dead] {
        let edge = edge(&schedule(10, 1.0, 10, 0.0, 40))
            .engines([engine])
            .start()
            .await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.attempts(), 40);
        assert_eq!(response.waited().as_millis(), 390);
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_on(engine), 40.0);
    }
    assert_eq!(busy.seen(), 40);
}
