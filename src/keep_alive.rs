//! Notices that the other end of a connection has vanished without a word: its machine lost power,
//! or a firewall forgot the connection.
//!
//! Nothing is asked of a request here; a connection is told once, when it begins.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

/// The silence after which the other end is asked whether it is there.
const IDLE: Duration = Duration::from_secs(30);
/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// Questions without an answer after which it is not there.
const PROBES: u32 = 3;
/// How long sent bytes may go without being taken. While there are any, no question is asked.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// May take its time over an answer: what was sent to it may wait for ever.
    Client,
    /// Takes a request at once, or is not there.
    Engine,
}

/// Has the system end the connection about a minute after its other end was last heard of.
pub(crate) fn keep_alive(socket: &impl AsFd, peer: Peer, address: SocketAddr) {
    if let Err(error) = set(socket, peer) {
        log::debug!("{address}: keep-alive stays the system's: {error}");
    }
}

fn set(socket: &impl AsFd, peer: Peer) -> nix::Result<()> {
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    // Elsewhere some of these have other names, or none.
    #[cfg(target_os = "linux")]
    {
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        setsockopt(socket, sockopt::TcpKeepIdle, &seconds(IDLE))?;
        setsockopt(socket, sockopt::TcpKeepInterval, &seconds(INTERVAL))?;
        setsockopt(socket, sockopt::TcpKeepCount, &PROBES)?;
        if peer == Peer::Engine {
            let millis = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
            setsockopt(socket, sockopt::TcpUserTimeout, &millis)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
pub(crate) mod tests {
    use nix::sys::socket::getsockopt;

    use super::*;

    /// Kept alive, idle, interval, probes, milliseconds unacknowledged.
    type Settings = (bool, u32, u32, u32, u32);

    /// Those of a connection to an engine, and of one from a client.
    pub(crate) const ENGINES: Settings = (true, 30, 10, 3, 60_000);
    pub(crate) const CLIENTS: Settings = (true, 30, 10, 3, 0);

    pub(crate) fn settings(socket: &impl AsFd) -> nix::Result<Settings> {
        Ok((
            getsockopt(socket, sockopt::KeepAlive)?,
            getsockopt(socket, sockopt::TcpKeepIdle)?,
            getsockopt(socket, sockopt::TcpKeepInterval)?,
            getsockopt(socket, sockopt::TcpKeepCount)?,
            getsockopt(socket, sockopt::TcpUserTimeout)?,
        ))
    }
}
