//! `routing_logic: prefixaware` from outside: who gets the next turn of a conversation.

use crate::support::*;

const PREFIX_AWARE: &str = "routing_logic: prefixaware\nengine_stats_interval: 0";

/// A conversation with some engines.
struct Talk(Vec<(&'static str, String)>);

impl Talk {
    /// One that begins unlike those of other names.
    fn new(name: &str) -> Self {
        let mut talk = Self(Vec::new());
        talk.say(name);
        talk
    }

    fn say(&mut self, text: &str) {
        self.0.push(("user", text.repeat(2000 / text.len())));
    }

    fn body(&self) -> String {
        let messages: Vec<_> = self
            .0
            .iter()
            .map(|(role, text)| serde_json::json!({"role": role, "content": text}))
            .collect();
        serde_json::json!({"model": "m", "messages": messages}).to_string()
    }

    fn request(&self) -> Request {
        post("/v1/chat/completions").body(self.body())
    }

    /// Asks for an answer, and keeps it; says who gave it.
    async fn turn(&mut self, edge: &TestEdge) -> String {
        let response = edge.ask(&self.request()).await;
        assert_eq!(response.status, 200);
        let answer = response.text().to_owned();
        self.0.push(("assistant", answer.clone()));
        self.say("and then?");
        answer
    }
}

/// Engines that answer with their numbers.
async fn engines(count: usize) -> Vec<ScriptedEngine> {
    let mut engines = Vec::new();
    for n in 0..count {
        engines.push(ScriptedEngine::start(ok(n.to_string())).await);
    }
    engines
}

fn number(answer: &str) -> usize {
    answer.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_conversation_stays_with_its_engine() {
    let engines = engines(6).await;
    let edge = edge(PREFIX_AWARE).engines(&engines).start().await;
    for name in ["one", "two", "three", "four"] {
        let mut talk = Talk::new(name);
        let home = talk.turn(&edge).await;
        for _ in 0..5 {
            assert_eq!(talk.turn(&edge).await, home, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn conversations_spread_over_engines_that_are_busy() {
    let engines = [
        ScriptedEngine::start(ok("0").delay(secs(1))).await,
        ScriptedEngine::start(ok("1").delay(secs(1))).await,
    ];
    let edge = edge(PREFIX_AWARE).engines(&engines).start().await;
    for n in 0..10 {
        // Both run at the same time, so the second finds the first one's engine busy.
        let (mut one, mut other) = (Talk::new(&format!("a{n}")), Talk::new(&format!("b{n}")));
        let (first, second) = tokio::join!(one.turn(&edge), other.turn(&edge));
        assert_ne!(first, second);
    }
}

#[tokio::test(start_paused = true)]
async fn the_body_may_be_compressed_and_the_model_an_alias() {
    use std::io::Write as _;
    let engines = engines(6).await;
    let yaml = format!("{PREFIX_AWARE}\naliases: {{nick: m}}");
    let edge = edge(&yaml).engines(&engines).start().await;
    for name in ["one", "two", "three", "four"] {
        let mut talk = Talk::new(name);
        let home = talk.turn(&edge).await;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(talk.body().as_bytes()).unwrap();
        let coded = post("/v1/chat/completions")
            .header("content-encoding", "gzip")
            .body(gzip.finish().unwrap());
        assert_eq!(edge.ask(&coded).await.text(), home);
        let renamed = talk.body().replace("\"model\":\"m\"", "\"model\":\"nick\"");
        let renamed = post("/v1/chat/completions").body(renamed);
        assert_eq!(edge.ask(&renamed).await.text(), home);
    }
}

#[tokio::test(start_paused = true)]
async fn the_conversations_of_an_engine_that_refuses_move_and_stay_away() {
    let engines = engines(3).await;
    let yaml = format!("{RETRIES}\n{PREFIX_AWARE}");
    let edge = edge(&yaml).engines(&engines).start().await;
    let mut talk = Talk::new("hello");
    let home = number(&talk.turn(&edge).await);
    engines[home].stop().await;
    let next = talk.turn(&edge).await;
    assert_ne!(number(&next), home);
    for _ in 0..5 {
        assert_eq!(talk.turn(&edge).await, next);
    }
    // It comes back with nothing in its cache.
    engines[home].restart(ok("back")).await;
    for _ in 0..5 {
        assert_eq!(talk.turn(&edge).await, next);
    }
    edge.wait_until_idle().await;
    assert_eq!(
        edge.attempts_on(&engines[home]),
        2.0,
        "one answer, one refusal"
    );
}

/// What an engine says of itself.
fn gauges(running: u32, started: u32) -> Reply {
    ok(format!(
        "vllm:num_requests_running{{}} {running}\nvllm:num_requests_waiting{{}} 0\n\
         process_start_time_seconds {started}\n"
    ))
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_was_started_anew_has_lost_its_conversations() {
    let engines = engines(2).await;
    let yaml = "routing_logic: prefixaware";
    let play = |n: usize, reply| {
        let says = script(ok(n.to_string())).on("/metrics", reply);
        engines[n].play(says);
    };
    play(0, gauges(0, 1));
    play(1, gauges(0, 1));
    let edge = edge(yaml).engines(&engines).start().await;
    let mut talk = Talk::new("hello");
    let home = number(&talk.turn(&edge).await);
    // It is the busier one, which alone is no reason to leave it.
    play(home, gauges(1, 1));
    edge.look_again().await;
    assert_eq!(number(&talk.turn(&edge).await), home);
    play(home, gauges(1, 2));
    edge.look_again().await;
    assert_ne!(number(&talk.turn(&edge).await), home);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_tried_where_it_was_refused_and_the_record_of_it_is_not_kept() {
    let engine = ScriptedEngine::refusing().await;
    let sound = ScriptedEngine::start(ok("sound")).await;
    let yaml = format!("{RETRIES}\n{PREFIX_AWARE}");
    let edge = edge(&yaml).engines([&engine, &sound]).start().await;
    // Whoever is drawn first, every prompt ends with the one that answers.
    for name in ["one", "two", "three", "four", "five"] {
        let mut talk = Talk::new(name);
        talk.turn(&edge).await;
        edge.wait_until_idle().await;
        let refused = edge.attempts_on(&engine);
        talk.turn(&edge).await;
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_on(&engine), refused);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_prompt_are_served() {
    let engines = engines(2).await;
    let edge = edge(PREFIX_AWARE).engines(&engines).start().await;
    for body in [
        r#"{"model":"m"}"#,
        r#"{"model":"m","messages":null}"#,
        r#"{"model":"m","messages":{"a":[1]}}"#,
        r#"{"model":"m","messages":[{"content":"\ud800"}],"prompt":7}"#,
    ] {
        let request = post("/v1/chat/completions").body(body);
        assert_eq!(edge.ask(&request).await.status, 200, "{body}");
    }
}
