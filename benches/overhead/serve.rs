//! The router as another role of this program, with its books or without.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use vllm_pingora::config::Settings;
use vllm_pingora::server::{Drain, Listener, Parts};

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Without,
    With,
    /// Without books, a second time.
    Control,
}

impl Subject {
    pub const ALL: [Self; 3] = [Self::Without, Self::With, Self::Control];

    /// The subcommand for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Without => "router-without-books",
            Self::With => "router-with-books",
            Self::Control => "router-without-books-again",
        }
    }

    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.word() == word)
    }

    /// The command that makes this program one.
    pub fn command(self, port: u16, engines: &[SocketAddr]) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args([self.word(), &format!("127.0.0.1:{port}")])
            .args(engines.iter().map(ToString::to_string));
        command
    }
}

/// Is that router, until it is killed. The arguments are where to listen, and the engines.
pub fn serve(subject: Subject, mut arguments: impl Iterator<Item = String>) -> ! {
    let listen = arguments.next().expect("an address");
    let mut yaml = "enable_retries: true\naccess_log: false\nthreads: 1\nengines:\n".to_owned();
    for engine in arguments {
        let _ = writeln!(yaml, "  - {{url: \"http://{engine}\", models: [m]}}");
    }
    let settings = Settings::from_yaml(&yaml).expect("settings");
    // One worker, as the router would have with these settings.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let drain = Drain::default();
        let parts = match subject {
            Subject::With => Parts::new(&settings, &drain),
            Subject::Without | Subject::Control => Parts::without_books(&settings, &drain),
        };
        let parts = parts.expect("a router");
        parts.upkeep.round().await;
        let socket = TcpListener::bind(listen).expect("an address that is free");
        socket.set_nonblocking(true).expect("a socket");
        let mut public = Listener::new("public", socket, parts.edge, drain, None);
        let served = tokio::spawn(async move { public.serve().await });
        served.await.expect("no panic");
    });
    std::process::exit(0)
}
