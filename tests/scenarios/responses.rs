//! Responses are kept by the engine that made them: whoever asks for one, cancels it or goes on
//! from it is sent there.

use crate::support::*;

/// An engine that makes the response `id` and has that one only.
async fn maker(id: &str) -> ScriptedEngine {
    let made = ok(format!(
        r#"{{"object":"response","id":"{id}","status":"queued"}}"#
    ));
    let missing = status(404).body(r#"{"error":{"code":404}}"#);
    let has = ok(format!(r#"{{"id":"{id}","status":"completed"}}"#));
    let mut all = script(missing).on("/v1/responses", made);
    for path in [
        format!("/v1/responses/{id}"),
        format!("/v1/responses/{id}/cancel"),
    ] {
        all = all.on(&path, has.clone());
    }
    ScriptedEngine::start(all).await
}

fn create(more: &str) -> Request {
    post("/v1/responses").body(format!(r#"{{"model":"m","input":"i"{more}}}"#))
}

fn read(id: &str) -> Request {
    Request::new("GET", &format!("/v1/responses/{id}"))
}

async fn id_of(edge: &TestEdge) -> String {
    edge.ask(&create("")).await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_response_is_read_and_cancelled_at_the_engine_that_made_it() {
    let engines = [
        maker("resp_a").await,
        maker("resp_b").await,
        maker("resp_c").await,
    ];
    let edge = edge("").engines(&engines).start().await;
    for _ in 0..3 {
        let id = id_of(&edge).await;
        for _ in 0..4 {
            assert_eq!(edge.ask(&read(&id)).await.json()["id"], *id);
            let cancel = post(&format!("/v1/responses/{id}/cancel")).body("");
            assert_eq!(edge.ask(&cancel).await.json()["id"], *id);
        }
    }
    for engine in &engines {
        assert_eq!(
            engine.seen(),
            0,
            "nobody was asked for what it does not have"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_goes_on_from_a_response_goes_to_its_engine() {
    let engines = [
        maker("resp_a").await,
        maker("resp_b").await,
        maker("resp_c").await,
    ];
    let edge = edge("").engines(&engines).start().await;
    let first = id_of(&edge).await;
    for _ in 0..6 {
        let on = create(&format!(r#","previous_response_id":"{first}""#));
        assert_eq!(edge.ask(&on).await.json()["id"], *first);
    }
}

#[tokio::test(start_paused = true)]
async fn only_responses_that_were_made_are_remembered() {
    let other = ScriptedEngine::start(status(404)).await;
    let engine = ScriptedEngine::start(script([
        ok(r#"{"id":"resp_other"}"#),
        status(400).body(r#"{"id":"resp_other"}"#),
        status(404),
    ]))
    .await;
    let edge = edge("")
        .engine(&engine, &["m"])
        .engine(&other, &["x"])
        .start()
        .await;
    // The answer of another route, and one that is no success.
    edge.ask(&req_n()).await;
    edge.ask(&create("")).await;
    assert_eq!(edge.ask(&read("resp_other")).await.status, 404);
    assert_eq!(other.seen(), 1, "everybody was asked");
}

#[tokio::test(start_paused = true)]
async fn the_engine_of_a_streamed_response_is_remembered_too() {
    let event = "event: response.created\ndata: {\"type\":\"response.created\",\
                 \"response\":{\"id\":\"resp_s\",\"object\":\"response\"}}\n\n";
    let stream = ok(event).header("Content-Type", "text/event-stream");
    let has = ok("here");
    let other = ScriptedEngine::start(status(404)).await;
    let maker = ScriptedEngine::start(
        script(status(404))
            .on("/v1/responses", stream)
            .on("/v1/responses/resp_s", has),
    )
    .await;
    let edge = edge("")
        .engine_with(&maker, "id: maker")
        .engines([&other])
        .start()
        .await;
    edge.ask(&create("")).await;
    for _ in 0..4 {
        assert_eq!(edge.ask(&read("resp_s")).await.text(), "here");
    }
    assert_eq!(other.seen(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_remembered_is_looked_for_once() {
    let engines = [maker("resp_a").await, maker("resp_b").await];
    // A router that has just been started.
    let edge = edge("").engines(&engines).start().await;
    for _ in 0..5 {
        assert_eq!(edge.ask(&read("resp_b")).await.json()["id"], "resp_b");
    }
    assert_eq!(engines[0].seen(), 1, "asked once, and never again");
    let on = create(r#","previous_response_id":"resp_a""#);
    assert_eq!(edge.ask(&on).await.json()["id"], "resp_a");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_nobody_has_is_a_404() {
    let engines = [maker("resp_a").await, maker("resp_b").await];
    let edge = edge(RETRIES).engines(&engines).start().await;
    let response = edge.ask(&read("resp_x")).await;
    assert_eq!(response.status, 404);
    assert_eq!(response.json()["error"]["code"], "response_not_found");
    // Going on from one is the engine's to refuse, and an odd id never becomes a path.
    for id in ["resp_x", "../../sleep", "a b", ""] {
        let on = create(&format!(r#","previous_response_id":"{id}""#));
        assert_eq!(edge.ask(&on).await.status, 200, "{id}");
    }
    for engine in &engines {
        let asked = engine.deliveries();
        assert!(
            asked
                .iter()
                .all(|delivery| delivery.path() == "/v1/responses/resp_x")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_of_a_response_that_is_down_is_not_replaced() {
    let engines = [maker("resp_a").await, maker("resp_b").await];
    let edge = edge(RETRIES).engines(&engines).start().await;
    let id = id_of(&edge).await;
    engines[0].stop().await;
    let response = edge.ask(&read(&id)).await;
    assert_eq!(
        (id.as_str(), response.status, response.attempts()),
        ("resp_a", 502, 5)
    );
    assert_eq!(engines[1].seen(), 0);
}
