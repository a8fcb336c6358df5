//! Starts a subject, and waits until it forwards.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::subject::{Setting, Subject, Tools};
use crate::load::child::{Running, free_port};
use crate::load::client::Client;
use crate::load::engine::Engines;
use crate::load::prompt;
use crate::load::script::Script;

/// How long a subject may take to forward its first request.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where subjects run.
#[derive(Debug)]
pub struct Place {
    /// The core of the proxy, and that of clients and engines.
    pub proxy: usize,
    pub home: usize,
    /// A folder for what they write, which goes with this.
    pub dir: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A subject that forwards.
#[derive(Debug)]
pub struct Started {
    pub subject: Subject,
    pub address: SocketAddr,
    pub proxy: Option<Running>,
    /// From the start of the process to the first answer.
    pub took: Option<Duration>,
}

/// Starts it.
///
/// # Errors
/// It is not installed, or does not forward.
pub async fn start(
    subject: Subject,
    place: &Place,
    tools: &Tools,
    engines: &Engines,
) -> Result<Started, String> {
    engines.play(Script::Answer);
    let dir = place.dir.join(subject.word());
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    let [port, spare] = [free_port(), free_port()].map(|port| port.expect("a port"));
    let setting = Setting {
        port,
        spare,
        engines: &engines.addresses,
        dir: &dir,
        tools,
    };
    let Some(command) = subject.command(&setting)? else {
        return Ok(Started {
            subject,
            address: engines.addresses[0],
            proxy: None,
            took: None,
        });
    };
    let log = dir.join("log");
    let mut proxy = Running::start(command, place.proxy, place.home, &log)
        .map_err(|error| format!("cannot be started: {error}"))?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let request = prompt::chat(address, 0, 1 << 10, false);
        let answer = Client::new(address).ask(&request).await;
        if matches!(answer, Ok(answer) if answer.status == 200) {
            break;
        }
        if !proxy.is_running() || Instant::now() > deadline {
            return Err(format!(
                "does not forward ({answer:?}): {}",
                proxy.last_words()
            ));
        }
        sleep(Duration::from_millis(1)).await;
    }
    let took = proxy.since.elapsed();
    Ok(Started {
        subject,
        address,
        proxy: Some(proxy),
        took: Some(took),
    })
}
