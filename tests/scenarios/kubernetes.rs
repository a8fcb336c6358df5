//! Engines behind a Kubernetes Service, as an API server tells of its endpoints.

use serde_json::json;

use crate::support::*;

const NO_PROBES: &str = "health_check_interval_ms: 0\n";

async fn engine(text: &str) -> ScriptedEngine {
    ScriptedEngine::start(serving_m(ok(text))).await
}

async fn router(api: &KubeApi) -> TestEdge {
    edge(&format!("{RETRIES}{NO_PROBES}{}", api.settings()))
        .start_kept_up()
        .await
}

async fn texts(edge: &TestEdge, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..count {
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 200, "{}", response.text());
        assert!(response.waited() < ms(200), "{:?}", response.waited());
        texts.push(response.text().to_owned());
    }
    texts.sort_unstable();
    texts
}

#[tokio::test(start_paused = true)]
async fn the_ready_pods_of_a_service_are_the_engines() {
    let api = KubeApi::start().await;
    let (a, b, c) = (engine("a").await, engine("b").await, engine("c").await);
    api.apply_engine("vllm-0", &a);
    api.apply_engine("vllm-1", &b);
    let edge = router(&api).await;
    edge.wait_for_engines([&*a.url(), &*b.url()]).await;
    assert_eq!(texts(&edge, 4).await, ["a", "a", "b", "b"]);
    let names = edge.admin("/engines").await.json();
    let names: Vec<_> = names["engines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["id"])
        .collect();
    assert_eq!(names, ["vllm-0", "vllm-1"]);
    // One is added, one is about to end, and one is gone.
    api.apply_engine("vllm-2", &c);
    edge.wait_for_engines([&*a.url(), &*b.url(), &*c.url()])
        .await;
    api.apply(pods(
        "vllm-0",
        a.addr().port(),
        &[("vllm-0", "127.0.0.1", false)],
    ));
    edge.wait_for_engines([&*b.url(), &*c.url()]).await;
    api.delete("vllm-1");
    edge.wait_for_engines([&*c.url()]).await;
    assert_eq!(texts(&edge, 3).await, ["c", "c", "c"]);
    assert_eq!(
        (a.seen(), b.seen()),
        (2, 2),
        "pooled connections are left alone"
    );
    // On this clock a watch may reach its end, and is taken up again; nothing is listed anew.
    assert_eq!(api.lists().len(), 1);
    for question in api.lists().iter().chain(&api.watches()) {
        assert!(
            question.contains("labelSelector=kubernetes.io%2Fservice-name%3Dvllm"),
            "{question}"
        );
    }
    api.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn the_server_is_spoken_to_over_tls_and_only_with_its_own_certificate() {
    let (api, other) = (
        KubeApi::start_over_tls().await,
        KubeApi::start_over_tls().await,
    );
    let a = engine("a").await;
    api.apply_engine("vllm-0", &a);
    let edge = router(&api).await;
    edge.wait_for_engines([&*a.url()]).await;
    assert_eq!(texts(&edge, 1).await, ["a"]);
    api.assert_clean();
    // Reached with the certificate of another one, it is not trusted with the token.
    let asked = api.lists().len();
    let config = std::fs::read_to_string(other.kubeconfig()).unwrap();
    let config = config.replace(&other.authority(), &api.authority());
    let scratch = Scratch::new();
    let path = scratch.write("kubeconfig", &config);
    let path_of = |path: &std::path::Path| path.display().to_string();
    let settings = api
        .settings()
        .replace(&path_of(api.kubeconfig()), &path_of(&path));
    let stranger = crate::support::edge(&settings).start_kept_up().await;
    assert_eq!(stranger.ask(&req_n()).await.status, 503);
    assert_eq!(api.lists().len(), asked);
    let told = lines_with("invalid peer certificate");
    assert!(
        told[0].starts_with("k8s: endpoints are not heard of"),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_on_a_pod_that_goes_is_finished() {
    let api = KubeApi::start().await;
    let goes = ScriptedEngine::start(serving_m(sse(4, secs(1)))).await;
    let comes = engine("comes").await;
    api.apply_engine("vllm-0", &goes);
    let edge = router(&api).await;
    edge.wait_for_engines([&*goes.url()]).await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    client.read_events(&mut response, 1).await;
    api.apply_engine("vllm-1", &comes);
    api.delete("vllm-0");
    edge.wait_for_engines([&*comes.url()]).await;
    client.finish(&mut response).await;
    assert_eq!((response.complete, response.body), (true, sse_body(4)));
    assert_eq!(goes.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_gets_the_address_of_another_one_is_another_engine() {
    let api = KubeApi::start().await;
    let engine = engine("m").await;
    api.apply_engine("vllm-0", &engine);
    let edge = router(&api).await;
    edge.wait_for_engines([&*engine.url()]).await;
    let id = || edge.fleet().engines()[0].id();
    let before = id();
    let addr = engine.addr();
    api.apply(pods(
        "vllm-0",
        addr.port(),
        &[("vllm-7", "127.0.0.1", true)],
    ));
    let mut changes = edge.fleet().watch();
    while id() == before {
        within(PATIENCE, || "nothing changes".to_owned(), changes.changed())
            .await
            .unwrap();
    }
    assert_eq!(edge.fleet().engines()[0].name(), "vllm-7");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_or_breaks_is_taken_up_where_it_was() {
    let api = KubeApi::start().await;
    let (a, b, c) = (engine("a").await, engine("b").await, engine("c").await);
    api.apply_engine("vllm-0", &a);
    let edge = router(&api).await;
    edge.wait_for_engines([&*a.url()]).await;
    api.wait_for(1, 1).await;
    api.break_watches();
    api.apply_engine("vllm-1", &b);
    assert_eq!(texts(&edge, 1).await, ["a"], "what was known stays");
    edge.wait_for_engines([&*a.url(), &*b.url()]).await;
    // Time passes, of which a bookmark tells; from there the watch goes on.
    let version = api.bookmark();
    api.end_watches();
    api.wait_for_watch(&format!("resourceVersion={version}"))
        .await;
    api.apply_engine("vllm-2", &c);
    edge.wait_for_engines([&*a.url(), &*b.url(), &*c.url()])
        .await;
    assert_eq!(api.lists().len(), 1);
    api.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_forgotten_where_we_were_is_asked_for_a_list() {
    for how in [Gone::InTheWatch, Gone::AtOnce] {
        let api = KubeApi::start().await;
        let (a, b) = (engine("a").await, engine("b").await);
        api.apply_engine("vllm-0", &a);
        let edge = router(&api).await;
        edge.wait_for_engines([&*a.url()]).await;
        api.wait_for(1, 1).await;
        // What happens now is told in no watch.
        api.break_watches();
        api.delete("vllm-0");
        api.apply_engine("vllm-1", &b);
        api.forget(how);
        assert_eq!(texts(&edge, 1).await, ["a"], "what was known stays");
        edge.wait_for_engines([&*b.url()]).await;
        // A paused clock may run to the end of the next watch, too, before anything has come.
        assert!(api.lists().len() >= 2, "{:?}", api.lists());
        assert_eq!(texts(&edge, 1).await, ["b"]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_server_what_was_known_stays_and_the_router_starts() {
    for status in [403, 500] {
        let api = KubeApi::start().await;
        let (a, b) = (engine("a").await, engine("b").await);
        api.refuse(status);
        let began = tokio::time::Instant::now();
        let edge = router(&api).await;
        assert!(began.elapsed() < secs(6), "{:?}", began.elapsed());
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 503, "nothing has been heard of any model");
        api.serve_again();
        api.apply_engine("vllm-0", &a);
        edge.wait_for_engines([&*a.url()]).await;
        api.wait_for(1, 1).await;
        let watches = api.watches().len();
        api.refuse(status);
        api.wait_for(1, watches + 3).await;
        assert_eq!(texts(&edge, 2).await, ["a", "a"]);
        api.serve_again();
        api.apply_engine("vllm-1", &b);
        edge.wait_for_engines([&*a.url(), &*b.url()]).await;
        api.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_cannot_be_read_is_told_once_and_read_when_it_can() {
    let api = KubeApi::start().await;
    let a = engine("a").await;
    api.apply_engine("vllm-0", &a);
    let scratch = Scratch::new();
    let path = scratch.path("later");
    let edge = edge(&format!(
        "{NO_PROBES}service_discovery: kubernetes\nk8s_service_name: vllm\nk8s_port: http\nk8s_kubeconfig: \"{}\"\n",
        path.display()
    ))
    .start_kept_up()
    .await;
    assert_eq!(edge.ask(&req_n()).await.status, 503);
    tokio::time::sleep(secs(10)).await;
    let shown = path.display().to_string();
    let told = lines_with(&shown);
    let told: Vec<_> = told.iter().filter(|line| !line.contains("still")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    std::fs::copy(api.kubeconfig(), &path).unwrap();
    edge.wait_for_engines([&*a.url()]).await;
}

#[tokio::test(start_paused = true)]
async fn pods_without_the_port_are_no_engines_and_are_told_of_once() {
    let api = KubeApi::start().await;
    let a = engine("a").await;
    let mut other = pods("portless-slice", 1, &[("vllm-1", "127.0.0.1", true)]);
    other["ports"] = json!([{"name": "grpc", "port": 1}]);
    api.apply(other);
    api.apply_engine("vllm-0", &a);
    let edge = router(&api).await;
    edge.wait_for_engines([&*a.url()]).await;
    let told = lines_with("portless-slice");
    assert_eq!(told, ["k8s: no port is called http in portless-slice"]);
}
