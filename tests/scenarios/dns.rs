//! Engines by names, which move: C30.

use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;
use vllm_pingora::discovery::{DnsSettings, Families, Question, Resolver, Unresolved};

use crate::support::*;

const DNS: &str = "service_discovery: dns\n";

/// Settings for a router that finds its engines by this name.
fn by_name(dns: &DnsServer, name: &str) -> String {
    format!("{DNS}dns_names: [\"{name}\"]\n{}", dns.settings())
}

fn url(engine: &ScriptedEngine) -> String {
    engine.url()
}

/// The name with the port of this engine.
fn at_port(name: &str, engine: &ScriptedEngine) -> String {
    format!("{name}:{}", engine.addr().port())
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
async fn c30_an_engine_that_moves_gets_nothing_at_its_old_address() {
    // Refused there, or taken by somebody else.
    for somebody_else in [false, true] {
        let dns = DnsServer::start().await;
        dns.set("moves.test.", addresses(1, &["127.0.0.1"]));
        let old = ScriptedEngine::start(ok("old")).await;
        let new = old.beside("127.0.0.2", ok("new")).await;
        let edge = edge(&format!("{}health_check_interval_ms: 0\n", dns.settings()))
            .url(&format!("http://{}", at_port("moves.test.", &old)), &["m"])
            .start_kept_up()
            .await;
        assert_eq!(texts(&edge, 2).await, ["old", "old"]);
        assert_eq!(old.accepted(), 1, "a pooled connection is there");
        dns.set("moves.test.", addresses(1, &["127.0.0.2"]));
        if somebody_else {
            old.play(ok("a foreign body"));
        } else {
            old.stop().await;
        }
        tokio::time::sleep(secs(2)).await;
        assert_eq!(texts(&edge, 3).await, ["new", "new", "new"]);
        assert_eq!((old.seen(), old.accepted()), (2, 1));
        assert_eq!(new.accepted(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c30_each_address_of_a_name_is_an_engine_for_as_long_as_it_is_there() {
    let dns = DnsServer::start().await;
    dns.set("comes.test.", addresses(1, &["127.0.0.1", "127.0.0.2"]));
    let stays = ScriptedEngine::start(serving_m(ok("stays"))).await;
    let goes = stays.beside("127.0.0.2", serving_m(sse(4, secs(1)))).await;
    let edge = edge(&by_name(&dns, &at_port("comes.test.", &stays)))
        .start_kept_up()
        .await;
    edge.wait_for_engines([&*url(&stays), &*url(&goes)]).await;
    // One stream runs there when the engine goes, and an unused connection is left.
    let (mut streaming, mut idle) = (
        Client::connect(edge.addr()).await,
        Client::connect(edge.addr()).await,
    );
    let mut begun = Vec::new();
    for client in [&mut streaming, &mut idle] {
        assert_eq!(edge.ask(&req_n()).await.text(), "stays");
        client.send_request(&req_s()).await;
        begun.push(client.read_head().await);
        goes.wait_for_begun(begun.len()).await;
        if begun.len() == 1 {
            client.read_events(&mut begun[0], 1).await;
        }
    }
    let comes = stays.beside("127.0.0.3", serving_m(ok("comes"))).await;
    dns.set("comes.test.", addresses(1, &["127.0.0.1", "127.0.0.3"]));
    edge.wait_for_engines([&*url(&stays), &*url(&comes)]).await;
    for (client, response) in [&mut streaming, &mut idle].into_iter().zip(&mut begun) {
        client.finish(response).await;
        assert!(response.complete);
        assert_eq!(response.body, sse_body(4));
    }
    assert_eq!(
        texts(&edge, 4).await,
        ["comes", "comes", "stays", "stays"],
        "pooled connections to the one that is gone are left alone"
    );
    assert_eq!(goes.deliveries_to("/v1/chat/completions").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn c30_whatever_fails_the_last_good_addresses_stay_and_nobody_waits() {
    let failures = [
        ("servfail.test.", Zone::Code(ResponseCode::ServFail)),
        ("refused.test.", Zone::Code(ResponseCode::Refused)),
        ("nxdomain.test.", Zone::Code(ResponseCode::NXDomain)),
        ("empty.test.", Zone::Records(Vec::new())),
        ("silent.test.", Zone::Silent),
    ];
    for (name, failure) in failures {
        let dns = DnsServer::start().await;
        dns.set(name, addresses(1, &["127.0.0.1"]));
        let old = ScriptedEngine::start(serving_m(ok("old"))).await;
        let new = old.beside("127.0.0.2", serving_m(ok("new"))).await;
        let edge = edge(&by_name(&dns, &at_port(name, &old)))
            .start_kept_up()
            .await;
        edge.wait_for_engines([&*url(&old)]).await;
        let told = |what: &str| lines_with(&format!("{name} is {what}")).len();
        dns.set(name, failure);
        // Long enough for several failures in a row.
        tokio::time::sleep(secs(60)).await;
        assert_eq!(told("not resolved"), 1, "{name}");
        assert!(told("still not resolved") > 1, "{name}");
        assert_eq!(texts(&edge, 3).await, ["old"; 3], "{name}");
        dns.set(name, addresses(1, &["127.0.0.2"]));
        edge.wait_for_engines([&*url(&new)]).await;
        assert_eq!(texts(&edge, 3).await, ["new"; 3], "{name}");
        assert_eq!(told("resolved again"), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_looked_up_again_when_its_time_is_over_and_not_before() {
    // Time to live and upper bound, in seconds, and what comes of them.
    for (ttl, longest, expected) in [(7, 300, 7), (0, 300, 1), (86_400, 20, 20)] {
        let dns = DnsServer::start().await;
        dns.set("timed.test.", addresses(ttl, &["127.0.0.1"]));
        let engine = ScriptedEngine::start(serving_m(ok("m"))).await;
        let name = at_port("timed.test.", &engine);
        let settings = format!("{}dns_longest_ttl_ms: {longest}000\n", by_name(&dns, &name));
        let edge = edge(&settings).start_kept_up().await;
        dns.wait_until_asked("timed.test.", 4).await;
        let asked = dns.asked("timed.test.", RecordType::A);
        for pair in asked.windows(2) {
            let gap = pair[1] - pair[0];
            let expected = secs(expected);
            assert!((expected..expected + ms(200)).contains(&gap), "{gap:?}");
        }
        assert_eq!(edge.engines(), [url(&engine)]);
    }
}

#[tokio::test(start_paused = true)]
async fn c30_of_two_addresses_one_may_be_dead() {
    for listed in [true, false] {
        let dns = DnsServer::start().await;
        dns.set("half.test.", addresses(60, &["127.0.0.1", "127.0.0.2"]));
        let alive = ScriptedEngine::start(serving_m(ok("alive"))).await;
        let dead = alive.beside("127.0.0.2", serving_m(ok("dead"))).await;
        let name = at_port("half.test.", &alive);
        let edge = if listed {
            let settings = format!("{RETRIES}{}", dns.settings());
            edge(&settings).url(&format!("http://{name}"), &["m"])
        } else {
            edge(&format!("{RETRIES}{}", by_name(&dns, &name)))
        };
        let edge = edge.start_kept_up().await;
        dead.stop().await;
        assert_eq!(texts(&edge, 4).await, ["alive"; 4]);
    }
}

#[tokio::test(start_paused = true)]
async fn c30_a_router_starts_without_its_engines_and_serves_once_they_are_found() {
    for failure in [
        Zone::Silent,
        Zone::Code(ResponseCode::ServFail),
        Zone::Code(ResponseCode::NXDomain),
    ] {
        let dns = DnsServer::start().await;
        dns.set("late.test.", failure);
        let engine = ScriptedEngine::start(serving_m(ok("here"))).await;
        let began = tokio::time::Instant::now();
        let edge = edge(&by_name(&dns, &at_port("late.test.", &engine)))
            .start_kept_up()
            .await;
        assert!(began.elapsed() < secs(6), "{:?}", began.elapsed());
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 503, "nothing has been heard of any model");
        assert_eq!(response.json()["error"]["code"], "no_engine_available");
        assert!(response.waited() < ms(200), "{:?}", response.waited());
        dns.set("late.test.", addresses(60, &["127.0.0.1"]));
        edge.wait_for_engines([&*url(&engine)]).await;
        assert_eq!(texts(&edge, 1).await, ["here"]);
        let unknown = post("/v1/chat/completions").body(r#"{"model":"nope"}"#);
        assert_eq!(edge.ask(&unknown).await.status, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_listed_by_a_name_that_is_not_resolved_is_not_reached_until_it_is() {
    let dns = DnsServer::start().await;
    dns.set("listed.test.", Zone::Code(ResponseCode::ServFail));
    let engine = ScriptedEngine::start(ok("here")).await;
    let edge = edge(&dns.settings())
        .url(
            &format!("http://{}", at_port("listed.test.", &engine)),
            &["m"],
        )
        .start_kept_up()
        .await;
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    dns.set("listed.test.", addresses(60, &["127.0.0.1"]));
    while edge.ask(&req_n()).await.status != 200 {
        tokio::time::sleep(ms(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn services_say_where_engines_are_and_how_much_they_can_take() {
    let dns = DnsServer::start().await;
    let (large, small, spare) = (
        ScriptedEngine::start(serving_m(ok("large"))).await,
        ScriptedEngine::start(serving_m(ok("small"))).await,
        ScriptedEngine::start(serving_m(ok("spare"))).await,
    );
    let port = |engine: &ScriptedEngine| engine.addr().port();
    dns.set("pod.test.", addresses(60, &["127.0.0.1"]));
    let records = services(
        1,
        &[
            (10, 3, port(&large), "pod.test."),
            (10, 0, port(&small), "pod.test."),
            (20, 9, port(&spare), "pod.test."),
            (10, 9, port(&spare), "gone.test."),
        ],
    );
    // More of them than fit into a datagram.
    for zone in [Zone::Records(records.clone()), Zone::OverTcp(records)] {
        dns.set("_http._tcp.test.", zone);
        let edge = edge(&by_name(&dns, "_http._tcp.test."))
            .start_kept_up()
            .await;
        edge.wait_for_engines([&*url(&large), &*url(&small)]).await;
        assert_eq!(
            texts(&edge, 8).await,
            [
                "large", "large", "large", "large", "large", "large", "small", "small"
            ]
        );
    }
    assert_eq!(spare.accepted(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_of_both_families_counts_once_unless_its_addresses_are_ways_to_one_engine() {
    let dns = DnsServer::start().await;
    dns.set("both.test.", addresses(60, &["::1", "127.0.0.1"]));
    dns.set("v6.test.", addresses(60, &["::1"]));
    let resolver = Resolver::new(DnsSettings {
        servers: vec![dns.addr()],
        longest_ttl: secs(300),
    });
    let ask = async |host: &str, families| {
        let question = Question::Addresses {
            host: host.to_owned(),
            port: 1,
            families,
        };
        let answer = resolver.ask(&question).await?;
        let places = answer.places.iter();
        Ok(places.map(|place| place.address.to_string()).collect())
    };
    let found = |all: &[&str]| Ok(all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
    assert_eq!(
        ask("both.test.", Families::One).await,
        found(&["127.0.0.1:1"])
    );
    assert_eq!(ask("v6.test.", Families::One).await, found(&["[::1]:1"]));
    let both = ask("both.test.", Families::Both).await;
    assert_eq!(both, found(&["127.0.0.1:1", "[::1]:1"]));
    assert_eq!(ask("v6.test.", Families::Both).await, found(&["[::1]:1"]));
    assert_eq!(
        ask("none.test.", Families::Both).await,
        Err(Unresolved::Nothing)
    );
    // A failure of the one family is not taken for there being the other only.
    dns.set("both.test.", Zone::Code(ResponseCode::ServFail));
    let failed = ask("both.test.", Families::One).await;
    assert!(matches!(failed, Err(Unresolved::Failed(_))), "{failed:?}");
    assert_eq!(dns.asked("both.test.", RecordType::AAAA).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn changed_names_are_gone_by_at_once_and_engines_stay_until_others_are_found() {
    let dns = DnsServer::start().await;
    dns.set("one.test.", addresses(60, &["127.0.0.1"]));
    dns.set("two.test.", Zone::Silent);
    let one = ScriptedEngine::start(serving_m(ok("one"))).await;
    let two = one.beside("127.0.0.2", serving_m(ok("two"))).await;
    let (first, second) = (at_port("one.test.", &one), at_port("two.test.", &one));
    let edge = edge(&by_name(&dns, &first)).start_kept_up().await;
    edge.wait_for_engines([&*url(&one)]).await;
    let asked = dns.asked("one.test.", RecordType::A).len();
    // Another setting changes; the names are not asked for again.
    assert!(edge.reload(&crate::support::edge(&format!(
        "{}max_request_body_bytes: 1000\n",
        by_name(&dns, &first)
    ))));
    assert_eq!(texts(&edge, 1).await, ["one"]);
    assert_eq!(dns.asked("one.test.", RecordType::A).len(), asked);
    assert!(edge.reload(&crate::support::edge(&by_name(&dns, &second))));
    dns.wait_until_asked("two.test.", 1).await;
    assert_eq!(texts(&edge, 1).await, ["one"], "nothing else is known yet");
    dns.set("two.test.", addresses(60, &["127.0.0.2"]));
    edge.wait_for_engines([&*url(&two)]).await;
    assert_eq!(texts(&edge, 2).await, ["two", "two"]);
    // From names to a list.
    assert!(edge.reload(&crate::support::edge("").engines([&one])));
    assert_eq!(edge.engines(), [url(&one)]);
    assert_eq!(texts(&edge, 1).await, ["one"]);
}
