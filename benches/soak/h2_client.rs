//! HTTP/2 with prior knowledge: several streams on one connection, some of them reset.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use rand::RngExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::answer::{Answer, End};
use super::clients::{Client, World};
use super::judge;
use super::prompt::{Ask, Wish};
use super::router::{KEY, MAX_BODY};

/// What becomes of one stream.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// It is answered.
    Stay,
    /// It is answered with this status.
    Refused(u16),
    /// It is reset after this time, unless it was answered.
    ResetAfter(Duration),
    /// It is reset after this many bytes of the answer.
    ResetAt(usize),
}

/// A connection with some streams; at times it is dropped with all of them.
pub async fn streams(client: &mut Client, kind: &'static str) {
    let dropped = client.rng.random_bool(0.1);
    let count = client.rng.random_range(1..7);
    let todo: Vec<(Ask, Plan)> = (0..count).map(|_| draw(client)).collect();
    let Ok(socket) = TcpStream::connect(client.world.router).await else {
        client.world.tally.wrong(format!("{kind}: no connection"));
        return;
    };
    let (send, connection) = match h2::client::handshake(socket).await {
        Ok(pair) => pair,
        Err(error) => {
            client.world.tally.wrong(format!("{kind}: {error}"));
            return;
        }
    };
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        let _ = connection.await;
    });
    let mut tasks = JoinSet::new();
    for (ask, plan) in todo {
        tasks.spawn(stream(
            Arc::clone(&client.world),
            kind,
            send.clone(),
            ask,
            plan,
        ));
    }
    drop(send);
    if dropped {
        let patience = Duration::from_millis(client.rng.random_range(0..200));
        let all = timeout(patience, async {
            while tasks.join_next().await.is_some() {}
        });
        let _ = all.await;
        let left = tasks.len();
        // They end before their connection does, so that none takes its end for a fault.
        tasks.shutdown().await;
        for _ in 0..left {
            client.world.tally.count(kind, "left");
        }
        return;
    }
    while tasks.join_next().await.is_some() {}
}

fn draw(client: &mut Client) -> (Ask, Plan) {
    let mut wish = Wish::ordinary(&mut client.rng);
    let plan = match client.rng.random_range(0..100) {
        0..70 => Plan::Stay,
        70..80 => Plan::ResetAfter(Duration::from_millis(client.rng.random_range(0..200))),
        80..90 => Plan::ResetAt(client.rng.random_range(1..5_000)),
        90..97 => {
            wish.size = client.rng.random_range(60_000..600_000);
            Plan::Stay
        }
        97..99 => {
            wish.model = "nobody";
            Plan::Refused(404)
        }
        _ => {
            wish.size = MAX_BODY + 1;
            Plan::Refused(413)
        }
    };
    (client.ask(&wish), plan)
}

async fn stream(
    world: Arc<World>,
    kind: &'static str,
    send: SendRequest<Bytes>,
    ask: Ask,
    plan: Plan,
) {
    let result = match answer(send, &ask, plan).await {
        Ok(Some(answer)) => match plan {
            Plan::Refused(status) => judge::status(&answer, &[status]),
            _ => judge::completion(&ask, &answer),
        },
        Ok(None) => Ok("left".to_owned()),
        Err(error) => Err(format!("no answer: {error}")),
    };
    match result {
        Ok(result) => world.tally.count(kind, &result),
        Err(what) => {
            world.tally.count(kind, "WRONG");
            world.wrong(kind, &ask.id, &what).await;
        }
    }
}

/// Sends the request and takes its answer; `None` when the client reset it first.
async fn answer(
    send: SendRequest<Bytes>,
    ask: &Ask,
    plan: Plan,
) -> Result<Option<Answer>, h2::Error> {
    let request = http::Request::post(format!("http://router{}", ask.path))
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/json")
        .header("x-request-id", &ask.id)
        .body(())
        .expect("a request");
    let mut send = send.ready().await?;
    let (response, mut upload) = send.send_request(request, false)?;
    let whole = async {
        // The answer may come before the body is sent.
        let _ = upload_body(&mut upload, &ask.body).await;
        let response = response.await?;
        let status = response.status().as_u16();
        let (body, end) = download(response.into_body(), plan).await;
        Ok(Answer {
            status,
            keeps: true,
            body,
            end,
        })
    };
    let answer = match plan {
        Plan::ResetAfter(patience) => tokio::select! {
            answer = whole => answer.map(Some),
            () = sleep(patience) => Ok(None),
        },
        _ => whole.await.map(Some),
    };
    if matches!(answer, Ok(None | Some(Answer { end: End::Left, .. }))) {
        upload.send_reset(Reason::CANCEL);
    }
    answer
}

async fn upload_body(upload: &mut SendStream<Bytes>, body: &[u8]) -> Result<(), h2::Error> {
    let mut rest = Bytes::copy_from_slice(body);
    while !rest.is_empty() {
        upload.reserve_capacity(rest.len());
        let Some(room) = std::future::poll_fn(|cx| upload.poll_capacity(cx)).await else {
            return Ok(());
        };
        let part = rest.split_to(room?.min(rest.len()));
        upload.send_data(part, rest.is_empty())?;
    }
    Ok(())
}

async fn download(mut stream: RecvStream, plan: Plan) -> (Vec<u8>, End) {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let Ok(data) = data else {
            return (body, End::Cut);
        };
        let _ = stream.flow_control().release_capacity(data.len());
        body.extend_from_slice(&data);
        if matches!(plan, Plan::ResetAt(enough) if body.len() >= enough) {
            return (body, End::Left);
        }
    }
    (body, End::Complete)
}
