//! Engines that are out: who is, for how long, and how they come back. C28 and C29.

use crate::support::*;

/// Pauses of one, two, four seconds and so on, give or take a fifth.
const HEALTH: &str = "eject_pause_ms: 1000\neject_longest_pause_ms: 8000\n";

/// What an engine plays that works, until it is stopped.
fn mortal() -> Script {
    script(ok("mortal"))
        .on("/health", ok(""))
        .on("/is_sleeping", status(404))
}

/// Ends engines that play [`mortal`] once they are known to have worked: others would be starting.
async fn end<'a>(edge: &TestEdge, engines: impl IntoIterator<Item = &'a ScriptedEngine>) {
    edge.probe().await;
    for engine in engines {
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn c28_a_dead_engine_is_out_after_three_failures_and_tried_after_each_pause() {
    let dead = ScriptedEngine::start(mortal()).await;
    let [b, c] = [
        ScriptedEngine::start(ok("b")).await,
        ScriptedEngine::start(ok("c")).await,
    ];
    let edge = edge(&format!("{RETRIES}{HEALTH}"))
        .engines([&dead, &b, &c])
        .start()
        .await;
    end(&edge, [&dead]).await;
    for _ in 0..100 {
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.waited().as_millis()), (200, 0));
    }
    edge.wait_until_idle().await;
    assert_eq!(edge.attempts_on(&dead), 3.0);
    assert_eq!(edge.condition(0).await, words("ejected", "connect"));
    assert_eq!(
        edge.metric("vllm_pingora_engine_up", &[("engine", &dead.url())]),
        0.0
    );
    // One request tries it after each pause, and finds another engine at once.
    for (pause, tried) in [(1200, 4.0), (2400, 5.0), (4800, 6.0)] {
        tokio::time::sleep(ms(pause)).await;
        for _ in 0..30 {
            let response = edge.ask(&req_n()).await;
            assert_eq!((response.status, response.waited().as_millis()), (200, 0));
        }
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_on(&dead), tried);
    }
    // It comes back with the next try, to its full share.
    dead.listen_with(ok("back")).await;
    tokio::time::sleep(ms(9600)).await;
    for _ in 0..30 {
        edge.ask(&req_n()).await;
    }
    assert_eq!(dead.seen(), 10);
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    let changes = |condition| {
        let labels =
            [("engine", &*dead.url()), ("condition", condition)].map(|(k, v)| (k, v.to_owned()));
        let labels: Vec<_> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
        edge.metric("vllm_pingora_engine_condition_changes_total", &labels)
    };
    assert_eq!((changes("ejected"), changes("up")), (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_passes_lets_an_engine_back_in_that_refused() {
    let dead = ScriptedEngine::start(mortal()).await;
    let [b, c] = [
        ScriptedEngine::start(ok("b")).await,
        ScriptedEngine::start(ok("c")).await,
    ];
    let edge = edge(&format!("{RETRIES}eject_pause_ms: 60000\n"))
        .engines([&dead, &b, &c])
        .start()
        .await;
    end(&edge, [&dead]).await;
    for _ in 0..20 {
        edge.ask(&req_n()).await;
    }
    dead.listen_with(mortal()).await;
    edge.ask(&req_n()).await;
    assert_eq!(dead.seen(), 0, "it is out still");
    edge.probe().await;
    for _ in 0..3 {
        edge.ask(&req_n()).await;
    }
    assert_eq!(dead.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn probes_take_an_engine_out_that_nobody_asks_and_let_it_back_in() {
    let sick = || script(ok("a")).on("/health", status(503));
    let well = || script(ok("a")).on("/health", ok(""));
    let a = ScriptedEngine::start(sick()).await;
    let [b, c] = [
        ScriptedEngine::start(ok("b")).await,
        ScriptedEngine::start(ok("c")).await,
    ];
    let edge = edge("health_check_fall: 2\nhealth_check_rise: 2")
        .engines([&a, &b, &c])
        .start()
        .await;
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("down", "probe"));
    for _ in 0..12 {
        assert_ne!(edge.ask(&req_n()).await.text(), "a");
    }
    a.play(well());
    edge.probe().await;
    assert_eq!(edge.condition(0).await.0, "down");
    edge.probe().await;
    assert_eq!(edge.condition(0).await.0, "up");
    assert_eq!(a.deliveries_to("/health").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn c29_an_engine_that_answers_requests_may_be_slow_to_answer_probes() {
    let a = ScriptedEngine::start(script(ok("a")).on("/health", hang())).await;
    let [b, c] = [
        ScriptedEngine::start(ok("b")).await,
        ScriptedEngine::start(ok("c")).await,
    ];
    let edge = edge("health_check_fall: 1")
        .engines([&a, &b, &c])
        .start()
        .await;
    for _ in 0..5 {
        for _ in 0..3 {
            edge.ask(&req_n()).await;
        }
        edge.probe().await;
    }
    assert_eq!(
        (a.seen(), edge.condition(0).await),
        (5, words("up", "answers"))
    );
    // Silent altogether, it is out.
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("down", "probe"));
}

#[tokio::test(start_paused = true)]
async fn c29_a_frozen_engine_is_found_by_its_silence_and_not_let_in_by_its_probes() {
    // As vLLM does: the head comes, and then nothing.
    let frozen = chunks([(secs(3600), "never")]);
    let frozen = script(frozen)
        .on("/health", ok(""))
        .on("/is_sleeping", status(404));
    let a = ScriptedEngine::start(frozen).await;
    let [b, c] = [
        ScriptedEngine::start(ok("b")).await,
        ScriptedEngine::start(ok("c")).await,
    ];
    let settings = format!("{RETRIES}{HEALTH}first_byte_timeout_ms: 500\n");
    let edge = edge(&settings).engines([&a, &b, &c]).start().await;
    let mut slow = 0;
    for _ in 0..30 {
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 200);
        slow += usize::from(response.waited() >= ms(500));
        edge.probe().await;
    }
    // Three that found out, and one try after each pause.
    assert!((3..=5).contains(&slow), "{slow}");
    assert_eq!(
        edge.condition(0).await,
        words("ejected", "first_byte_timeout")
    );
}

#[tokio::test(start_paused = true)]
async fn c28_no_status_takes_an_engine_out() {
    for code in [400, 429, 503] {
        let a = ScriptedEngine::start(status(code)).await;
        let edge = edge("").engines([&a]).start().await;
        for _ in 0..50 {
            assert_eq!(edge.ask(&req_n()).await.status, code);
        }
        a.play(ok("well"));
        assert_eq!(edge.ask(&req_n()).await.text(), "well");
        assert_eq!(edge.condition(0).await, words("up", "answers"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_says_nothing_but_500_is_picked_last_for_a_while() {
    let draining = ScriptedEngine::start(status(500)).await;
    let well = ScriptedEngine::start(ok("well")).await;
    let edge = edge(HEALTH).engines([&draining, &well]).start().await;
    for _ in 0..10 {
        edge.ask(&req_n()).await;
    }
    assert_eq!(edge.condition(0).await, words("erring", "status_500"));
    for _ in 0..20 {
        assert_eq!(edge.ask(&req_n()).await.text(), "well");
    }
    assert_eq!(draining.seen(), 5);
    // Where there is no other it is asked.
    well.stop().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!(response.status, 502, "its turn, and retries are off");
}

#[tokio::test(start_paused = true)]
async fn with_most_engines_out_health_is_ignored() {
    for (most_out, tries) in [("0.5", 20.0), ("1", 3.0)] {
        let [a, b] = [
            ScriptedEngine::start(mortal()).await,
            ScriptedEngine::start(mortal()).await,
        ];
        let sound = ScriptedEngine::start(ok("sound")).await;
        let settings = format!("{RETRIES}{HEALTH}most_engines_out: {most_out}\n");
        let edge = edge(&settings).engines([&a, &b, &sound]).start().await;
        end(&edge, [&a, &b]).await;
        for _ in 0..60 {
            assert_eq!(edge.ask(&req_n()).await.text(), "sound");
        }
        edge.wait_until_idle().await;
        // Two of three are out; each is asked in its turn, or not at all.
        for engine in [&a, &b] {
            let made = edge.attempts_on(engine);
            assert!((made >= 20.0) == (tries >= 20.0), "{most_out}: {made}");
            assert!(made >= tries, "{most_out}: {made}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn with_all_engines_out_they_are_asked_all_the_same() {
    let [a, b] = [
        ScriptedEngine::refusing().await,
        ScriptedEngine::refusing().await,
    ];
    let edge = edge("").engines([&a, &b]).start().await;
    for _ in 0..10 {
        assert_eq!(edge.ask(&req_n()).await.status, 502);
    }
    // The one that comes back is the only one from then on.
    a.listen_with(ok("a")).await;
    for _ in 0..4 {
        assert_eq!(edge.ask(&req_n()).await.text(), "a");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_comes_back_gets_its_share_little_by_little() {
    let late = ScriptedEngine::start(mortal()).await;
    let [b, c] = [
        ScriptedEngine::start(ok("b")).await,
        ScriptedEngine::start(ok("c")).await,
    ];
    let settings = format!("{RETRIES}{HEALTH}slow_start_ms: 100000\n");
    let edge = edge(&settings).engines([&late, &b, &c]).start().await;
    end(&edge, [&late]).await;
    for _ in 0..12 {
        edge.ask(&req_n()).await;
    }
    late.listen_with(ok("late")).await;
    tokio::time::sleep(secs(9)).await;
    let share = async |requests: usize| {
        let before = late.seen();
        for _ in 0..requests {
            edge.ask(&req_n()).await;
        }
        late.seen() - before
    };
    // So many that chance has no say.
    let cold = share(900).await;
    assert!((8..80).contains(&cold), "a tenth of a third: {cold}");
    tokio::time::sleep(secs(100)).await;
    assert_eq!(share(300).await, 100);
}
