//! Limits of the system that are too narrow for a proxy as they come.

use std::net::TcpListener;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Backlog, listen};

/// Connections that may wait to be accepted; the system may have a lower limit of its own.
const BACKLOG: i32 = 4096;

/// Lets a burst of connects wait in the queue instead of timing out before it.
pub(super) fn widen_backlog(listener: &TcpListener) {
    // A socket that listens already takes the new length over.
    let widened = Backlog::new(BACKLOG).and_then(|backlog| listen(listener, backlog));
    if let Err(error) = widened {
        log::warn!("the queue of connections stays short: {error}");
    }
}

/// Raises the limit of open files as far as the process may: each request takes two.
pub(super) fn raise_open_files() {
    let raise = || {
        let (now, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        Ok::<_, nix::Error>((now, most))
    };
    match raise() {
        Ok((now, most)) => log::debug!("limit of open files raised from {now} to {most}"),
        Err(error) => log::warn!("the limit of open files stays as it is: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_the_process_may_open_can_be_opened() {
        raise_open_files();
        let (now, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(now, most);
    }

    #[test]
    fn a_listener_accepts_after_its_queue_was_widened() {
        assert!(Backlog::new(BACKLOG).is_ok());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        widen_backlog(&listener);
        let address = listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
    }
}
