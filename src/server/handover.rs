//! Hands the listeners of a running process over to a new one, so that no connection is refused
//! while the binary is replaced.
//!
//! The new process waits at a socket in the file system, the old one connects to it and sends the
//! listeners with their names, in the form of Pingora's own upgrades. Both deal only with a
//! process of the same user, or of root.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt::socket_peercred,
};
use rustix::process::geteuid;

/// How long a new process waits for the listeners.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether they come.
const LOOK: Duration = Duration::from_millis(20);
/// How long the other process may take over one step.
const STEP: Duration = Duration::from_secs(5);
/// The longest list of names, in bytes.
const MAX_NAMES: usize = 2048;
/// Room for the most listeners: Pingora sends up to 32.
const ROOM: usize = rustix::cmsg_space!(ScmRights(32));

/// The listeners of a process, and where it hands them over.
#[derive(Debug)]
pub struct Handover {
    socket: PathBuf,
    listeners: Vec<(&'static str, OwnedFd)>,
}

impl Handover {
    /// Will hand over these listeners, by their names, to a process that waits at `socket`.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(socket: &Path, listeners: &[(&'static str, &TcpListener)]) -> io::Result<Self> {
        let own = |(name, listener): &(&'static str, &TcpListener)| {
            Ok((*name, OwnedFd::from(listener.try_clone()?)))
        };
        Ok(Self {
            socket: socket.to_owned(),
            listeners: listeners.iter().map(own).collect::<io::Result<_>>()?,
        })
    }

    /// Hands them over; blocks for a few seconds at most.
    ///
    /// # Errors
    /// No process of ours waits there.
    pub fn send(&self) -> io::Result<()> {
        let mut stream = UnixStream::connect(&self.socket)?;
        check_peer(&stream)?;
        stream.set_write_timeout(Some(STEP))?;
        stream.set_read_timeout(Some(STEP))?;
        let names: Vec<_> = self.listeners.iter().map(|(name, _)| *name).collect();
        let fds: Vec<_> = self.listeners.iter().map(|(_, fd)| fd.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); ROOM];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("there are too many listeners"));
        }
        let names = names.join(" ");
        let names = [IoSlice::new(names.as_bytes())];
        sendmsg(&stream, &names, &mut control, SendFlags::empty())?;
        // It closes the connection once it has them; where it is cut instead, nobody has.
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    }
}

/// The listeners of another process, by their names.
#[derive(Debug)]
pub struct Inherited(Vec<(String, OwnedFd)>);

impl Inherited {
    /// Waits at `socket` until they are handed over.
    ///
    /// # Errors
    /// The socket cannot be made, or nobody of ours came within a minute.
    pub fn receive(socket: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket()) {
            // One that a process left behind.
            fs::remove_file(socket)?;
        }
        let listener = UnixListener::bind(socket)?;
        let received = Self::receive_at(&listener, socket);
        let _ = fs::remove_file(socket);
        received
    }

    fn receive_at(listener: &UnixListener, socket: &Path) -> io::Result<Self> {
        fs::set_permissions(socket, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let begun = Instant::now();
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => match check_peer(&stream) {
                    Ok(()) => break stream,
                    Err(error) => log::warn!("a handover was refused: {error}"),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(LOOK),
                Err(error) => return Err(error),
            }
            if begun.elapsed() > PATIENCE {
                let what = format!("no process handed its listeners over within {PATIENCE:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, what));
            }
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STEP))?;
        let mut names = [0; MAX_NAMES];
        let mut space = [MaybeUninit::uninit(); ROOM];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut names)];
        let read = recvmsg(&stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        let fds: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        let names = String::from_utf8_lossy(names.get(..read).unwrap_or_default());
        let names: Vec<_> = names.split_ascii_whitespace().map(str::to_owned).collect();
        if names.is_empty() || names.len() != fds.len() {
            return Err(io::Error::other("the handover was broken off"));
        }
        Ok(Self(names.into_iter().zip(fds).collect()))
    }

    /// The listener of this name, if there is one.
    pub fn take(&mut self, name: &str) -> Option<TcpListener> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(place).1.into())
    }
}

/// Whether the process at the other end may have listeners of ours, or give us any.
fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = socket_peercred(stream)?.uid;
    if peer == geteuid() || peer.is_root() {
        return Ok(());
    }
    let what = format!("the other process belongs to the user {}", peer.as_raw());
    Err(io::Error::new(ErrorKind::PermissionDenied, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("vllm-pingora-{}-{name}.sock", std::process::id()))
    }

    #[test]
    fn listeners_are_handed_over_by_name_and_go_on_listening() {
        let socket = socket("both");
        let waiting = std::thread::spawn({
            let socket = socket.clone();
            move || Inherited::receive(&socket)
        });
        let [one, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let handover = Handover::new(&socket, &[("one", &one), ("other", &other)]).unwrap();
        while let Err(error) = handover.send() {
            let early = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
            assert!(early.contains(&error.kind()), "{error}");
            std::thread::yield_now();
        }
        let mut inherited = waiting.join().unwrap().unwrap();
        let addresses = [&one, &other].map(|listener| listener.local_addr().unwrap());
        drop((one, other, handover));
        for (name, address) in ["one", "other"].into_iter().zip(addresses) {
            let listener = inherited.take(name).unwrap();
            assert_eq!(listener.local_addr().unwrap(), address);
            let _client = std::net::TcpStream::connect(address).unwrap();
            assert!(listener.accept().is_ok());
        }
        assert!(inherited.take("one").is_none());
        assert!(!socket.exists());
    }

    #[test]
    fn without_a_process_that_waits_nothing_is_handed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let handover = Handover::new(&socket("nobody"), &[("one", &listener)]).unwrap();
        assert_eq!(handover.send().unwrap_err().kind(), ErrorKind::NotFound);
    }
}
