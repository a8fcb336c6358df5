//! A limit of connections per client address.

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_client_with_too_many_connections_is_told_so_until_one_closes() {
    let engine = ScriptedEngine::start(ok("fine")).await;
    let edge = edge("max_connections_per_client: 2\n")
        .engines([&engine])
        .start()
        .await;
    let mut first = Client::connect(edge.addr()).await;
    let mut second = Client::connect(edge.addr()).await;
    assert_eq!(first.ask(&req_n()).await.status, 200);
    assert_eq!(second.ask(&req_n()).await.status, 200);
    let mut third = Client::connect(edge.addr()).await;
    let refused = third.ask(&req_n()).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["code"], "too_many_connections");
    third.expect_eof().await;
    assert_eq!(engine.seen(), 2);
    first.close();
    let served = async {
        while Client::connect(edge.addr())
            .await
            .ask(&req_n())
            .await
            .status
            != 200
        {
            tokio::time::sleep(ms(1)).await;
        }
    };
    within(
        PATIENCE,
        || "the place is not free again".to_owned(),
        served,
    )
    .await;
}

#[tokio::test]
async fn connections_above_the_limit_do_not_last() {
    const CROWD: usize = 100;
    let engine = ScriptedEngine::start(ok("fine")).await;
    let router = Process::start(&engine, &["--max-connections-per-client", "1"], &[]).await;
    let mut first = Client::connect(router.addr).await;
    assert_eq!(first.ask(&req_n()).await.status, 200);
    let idle = router.descriptors();
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(Client::connect(router.addr).await);
    }
    for client in &mut crowd {
        assert_eq!(client.read_response().await.status, 429);
    }
    let closed = async {
        while router.descriptors() > idle + CROWD / 20 {
            // They are not even silent.
            for client in &mut crowd {
                let _ = client.try_send(b"x").await;
            }
            tokio::time::sleep(ms(50)).await;
        }
    };
    let complaint = || format!("{} of {idle} descriptors are open", router.descriptors());
    within(PATIENCE, complaint, closed).await;
    assert_eq!(first.ask(&req_n()).await.status, 200);
}
