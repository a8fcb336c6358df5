//! What a setting is: its name, where it may be given, what it accepts, and how to explain it.
//!
//! The settings themselves are listed once, in `table.rs`; the flags, the environment variables,
//! the keys of the file, `--help` and `--print-config` all follow from that list.

mod table;

pub use table::KEYS;
pub(super) use table::*;

/// Start of the name of every environment variable of ours.
pub const ENV_PREFIX: &str = "VLLM_PINGORA_";

/// A setting that the vLLM production-stack router has and this proxy answers with advice.
pub const GONE: &str = "max_instance_failover_reroute_attempts";

/// The longest accepted time, except for backoffs: one day, in milliseconds.
pub const DAY_MS: u64 = 86_400_000;

/// Where a setting may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// As a flag, in the environment, and in the file.
    Anywhere,
    /// In the file only: the value has parts.
    File,
    /// As a flag and in the environment only: a short form of the named key of the file.
    Typed(&'static str),
}

/// What a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// An IP address or a name, without a port.
    Host,
    /// A whole number within bounds, both accepted.
    Whole(u64, u64),
    /// Milliseconds within bounds, both accepted.
    Millis(u64, u64),
    /// A number, fractions allowed; its owner checks the range.
    Number,
    /// `true` or `false`.
    Switch,
    /// One of a few words; those of the second list are known but not available yet.
    Choice(&'static [&'static str], &'static [&'static str]),
    /// Any text.
    Text,
    /// The path of a file.
    Path,
    /// Text that is never shown.
    Secret,
    /// Several values; the text shows their form on the command line.
    List(&'static str),
}

/// The heading of `--help` under which a setting is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Addresses, ports and threads.
    Listening,
    /// The engines and the names of their models.
    Engines,
    /// Engines that are not listed, and how names are looked up.
    Discovery,
    /// How an engine is chosen for a request.
    Routing,
    /// Which engines are out, and how that is found out.
    Health,
    /// The retry policy.
    Retries,
    /// Times and sizes that bound a request.
    Limits,
    /// API keys, in and out.
    Keys,
    /// Logs and the end of the process.
    Running,
    /// Spans of requests, and where they go.
    Traces,
}

impl Group {
    /// The heading as printed.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Listening => "Listening",
            Self::Engines => "Engines",
            Self::Discovery => "Discovery",
            Self::Routing => "Routing",
            Self::Health => "Health",
            Self::Retries => "Retries",
            Self::Limits => "Timeouts and limits",
            Self::Keys => "API keys",
            Self::Running => "Running",
            Self::Traces => "Traces",
        }
    }
}

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// The name in the file, in `snake_case`.
    pub name: &'static str,
    /// Where it may be given.
    pub from: Source,
    /// What it accepts.
    pub kind: Kind,
    /// The default, as it would stand in the file.
    pub default: &'static str,
    /// The heading it is listed under.
    pub group: Group,
    /// Meaning, unit, and what off looks like.
    pub help: &'static str,
}

impl Key {
    /// The flag without its leading dashes: the name with `-` for `_`.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The environment variable.
    pub fn env(&self) -> String {
        format!("{ENV_PREFIX}{}", self.name.to_ascii_uppercase())
    }

    /// Whether it is a flag and an environment variable.
    pub fn is_typed(&self) -> bool {
        self.from != Source::File
    }

    /// Whether it is a key of the file.
    pub fn is_in_file(&self) -> bool {
        !matches!(self.from, Source::Typed(_))
    }

    /// What stands for the value in `--help`.
    pub fn value_name(&self) -> String {
        match self.kind {
            Kind::Host => "HOST".into(),
            Kind::Whole(..) => "N".into(),
            Kind::Millis(..) => "MS".into(),
            Kind::Number => "X".into(),
            Kind::Switch => "true|false".into(),
            Kind::Choice(words, _) => words.join("|"),
            Kind::Text => "TEXT".into(),
            Kind::Path => "FILE".into(),
            Kind::Secret => "KEY".into(),
            Kind::List(form) => form.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_listed_once() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(
                KEYS[..at].iter().all(|earlier| earlier.name != key.name),
                "{}",
                key.name
            );
        }
    }

    #[test]
    fn a_short_form_stands_for_a_key_of_the_file() {
        for key in KEYS {
            if let Source::Typed(long) = key.from {
                assert!(
                    KEYS.iter()
                        .any(|other| other.name == long && other.is_in_file()),
                    "{long}"
                );
            }
        }
    }
}
