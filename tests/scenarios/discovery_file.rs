//! Engines in a file, changed in every way that people and programs change files.

use std::fs;
use std::path::Path;

use crate::support::*;

const NO_PROBES: &str = "health_check_interval_ms: 0\n";

async fn engine(text: &str) -> ScriptedEngine {
    ScriptedEngine::start(ok(text)).await
}

/// The list of these engines, all of which serve `m`.
fn list<'a>(engines: impl IntoIterator<Item = &'a ScriptedEngine>) -> String {
    let entry = |engine: &ScriptedEngine| format!("- {{url: \"{}\", models: [m]}}\n", engine.url());
    engines.into_iter().map(entry).collect()
}

async fn router(path: &Path) -> TestEdge {
    let settings =
        format!("{RETRIES}{NO_PROBES}service_discovery: file\ndiscovery_file: {path:?}\n");
    edge(&settings).start_kept_up().await
}

async fn texts(edge: &TestEdge, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..count {
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 200, "{}", response.text());
        texts.push(response.text().to_owned());
    }
    texts.sort_unstable();
    texts
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_is_noticed_however_it_is_changed() {
    let scratch = Scratch::new();
    let (a, b, c, d) = (
        engine("a").await,
        engine("b").await,
        engine("c").await,
        engine("d").await,
    );
    // As Kubernetes mounts a ConfigMap: the file is a link into a folder that is a link.
    fs::create_dir(scratch.path("one")).unwrap();
    fs::create_dir(scratch.path("two")).unwrap();
    scratch.write("one/engines", &list([&a]));
    scratch.write("two/engines", &list([&d]));
    std::os::unix::fs::symlink("one", scratch.path("data")).unwrap();
    std::os::unix::fs::symlink("data/engines", scratch.path("engines")).unwrap();
    let edge = router(&scratch.path("engines")).await;
    assert_eq!(edge.engines(), [a.url()]);
    assert_eq!(texts(&edge, 1).await, ["a"]);
    // Written in place.
    scratch.write("one/engines", &list([&a, &b]));
    edge.wait_for_engines([&*a.url(), &*b.url()]).await;
    // Renamed over, as editors do, in JSON this time.
    let json = serde_json::json!([{"url": c.url(), "models": ["m"], "weight": 2, "id": "c"}]);
    let new = scratch.write("new", &json.to_string());
    fs::rename(new, scratch.path("one/engines")).unwrap();
    edge.wait_for_engines([&*c.url()]).await;
    assert_eq!(texts(&edge, 2).await, ["c", "c"]);
    // The link above is swapped.
    std::os::unix::fs::symlink("two", scratch.path("data.new")).unwrap();
    fs::rename(scratch.path("data.new"), scratch.path("data")).unwrap();
    edge.wait_for_engines([&*d.url()]).await;
    assert_eq!(texts(&edge, 2).await, ["d", "d"]);
    assert_eq!((a.seen(), b.seen(), c.seen()), (1, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_gone_finishes_what_runs_on_it_and_gets_nothing_new() {
    let scratch = Scratch::new();
    let goes = ScriptedEngine::start(script([ok("goes"), sse(4, secs(1)), status(503)])).await;
    let comes = engine("comes").await;
    let path = scratch.write("engines", &list([&goes]));
    let edge = router(&path).await;
    assert_eq!(texts(&edge, 1).await, ["goes"]);
    let mut streaming = Client::connect(edge.addr()).await;
    streaming.send_request(&req_s()).await;
    let mut response = streaming.read_head().await;
    streaming.read_events(&mut response, 1).await;
    // A third request waits for its second attempt when the engine goes.
    let mut waiting = Client::connect(edge.addr()).await;
    waiting.send_request(&req_n()).await;
    goes.wait_for_answered(2).await;
    goes.wait_for_deliveries(3).await;
    scratch.write("engines", &list([&comes]));
    edge.wait_for_engines([&*comes.url()]).await;
    let seen = goes.seen();
    let answer = waiting.read_response().await;
    assert_eq!((answer.status, answer.text()), (200, "comes"));
    streaming.finish(&mut response).await;
    assert_eq!((response.complete, response.body), (true, sse_body(4)));
    assert_eq!(texts(&edge, 3).await, ["comes", "comes", "comes"]);
    assert_eq!(goes.seen(), seen);
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_file_changes_nothing_and_all_its_mistakes_are_told_once() {
    let scratch = Scratch::new();
    let (a, b) = (engine("a").await, engine("b").await);
    let path = scratch.write("engines", &list([&a]));
    let edge = router(&path).await;
    let told = |line: &str| lines_with(&format!("{}{line}", path.display())).len();
    for (broken, mistakes) in [
        (
            "- url: ftp://x\n- models: [m]\n",
            &[
                ":1: [0].url: ftp://x: the scheme ftp is not accepted",
                ":2: [1]: has no url",
            ][..],
        ),
        ("- {url: [", &[":2: not valid YAML"]),
        ("", &[": holds nothing; a list without engines is []"]),
        ("engines: []", &[": a mapping is not a list of engines"]),
    ] {
        scratch.write("engines", broken);
        // Twice as long as it takes to be noticed.
        tokio::time::sleep(secs(2)).await;
        assert_eq!(texts(&edge, 2).await, ["a", "a"], "{broken:?}");
        for mistake in mistakes {
            assert_eq!(told(mistake), 1, "{mistake}");
        }
    }
    fs::remove_file(&path).unwrap();
    tokio::time::sleep(secs(2)).await;
    assert_eq!(texts(&edge, 1).await, ["a"]);
    assert_eq!(told(": cannot be read"), 1);
    scratch.write("engines", &list([&b]));
    edge.wait_for_engines([&*b.url()]).await;
    assert_eq!(texts(&edge, 1).await, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_is_meant_where_it_is_written_down() {
    let scratch = Scratch::new();
    let a = engine("a").await;
    let path = scratch.write("engines", &list([&a]));
    let edge = router(&path).await;
    assert_eq!(texts(&edge, 1).await, ["a"]);
    scratch.write("engines", "[]");
    edge.wait_for_engines([]).await;
    let response = edge.ask(&req_n()).await;
    assert_eq!(response.status, 503, "the model is known");
    assert_eq!(response.json()["error"]["code"], "no_engine_available");
    scratch.write("engines", &list([&a]));
    edge.wait_for_engines([&*a.url()]).await;
    assert_eq!(texts(&edge, 1).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_router_starts_without_its_file_and_serves_once_it_is_there() {
    let scratch = Scratch::new();
    let a = engine("a").await;
    let began = tokio::time::Instant::now();
    let edge = router(&scratch.path("engines")).await;
    assert!(began.elapsed() < secs(6), "{:?}", began.elapsed());
    let response = edge.ask(&req_n()).await;
    assert_eq!(response.status, 503, "nothing has been heard of any model");
    scratch.write("engines", &list([&a]));
    edge.wait_for_engines([&*a.url()]).await;
    assert_eq!(texts(&edge, 1).await, ["a"]);
}
