//! Requests at a fixed rate: each is due at its time, whether those before it have been answered
//! or not, and its wait counts from then on. So a proxy that stops for a while is charged for all
//! requests of that while, not for the one that met it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use super::plan::RATE;
use crate::load::client::Client;
use crate::load::closed::{Question, Window, nanos};
use crate::load::prompt;

/// How long the last answers may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests at the beginning that do not count: they open connections.
const WARM_UP: u32 = RATE / 5;

/// Asks for some time.
pub async fn run(to: SocketAddr, question: Question, time: Duration) -> Window {
    let conversations: Vec<_> = (0..question.clients)
        .map(|number| Arc::new(prompt::chat(to, number, question.prompt, false)))
        .collect();
    let unused = Arc::new(Mutex::new(Vec::new()));
    let counted = time.as_secs() as u32 * RATE + time.subsec_millis() * RATE / 1000;
    let start = Instant::now();
    let mut asked = JoinSet::new();
    for nth in 0..WARM_UP + counted {
        let due = start + Duration::from_secs(1) * nth / RATE;
        // Timers are too coarse. This polls the sockets, too.
        while Instant::now() < due {
            yield_now().await;
        }
        let request = Arc::clone(&conversations[nth as usize % conversations.len()]);
        let unused = Arc::clone(&unused);
        asked.spawn(async move {
            let kept = unused.lock().expect("no panic").pop();
            let mut client = kept.unwrap_or_else(|| Client::new(to));
            let answer = client.ask(&request).await;
            let wait = due.elapsed();
            let right = matches!(answer, Ok(answer) if answer.status == 200);
            if answer.is_ok() {
                unused.lock().expect("no panic").push(client);
            }
            (nth >= WARM_UP).then_some((wait, right))
        });
    }
    let mut window = Window {
        seconds: time.as_secs_f64(),
        ..Window::default()
    };
    let all = async {
        while let Some(asked) = asked.join_next().await {
            let Some((wait, right)) = asked.expect("no panic") else {
                continue;
            };
            window.answers += 1;
            window.wrong += u64::from(!right);
            window.whole.push(nanos(wait));
        }
    };
    let _ = timeout(PATIENCE, all).await;
    // Those without an answer have waited at least so long.
    let unanswered = u64::from(counted) - window.answers;
    window.answers += unanswered;
    window.wrong += unanswered;
    let longest = nanos(PATIENCE);
    window.whole.extend((0..unanswered).map(|_| longest));
    window
}
