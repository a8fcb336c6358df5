//! The command line: what it accepts, and what it asks for.
//!
//! The flags are made from the table of settings, and their values are left as text: it is
//! [`config::load`] that judges them, together with the environment and the
//! file, so that one report names every mistake.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::config::keys::{GONE, KEYS, Key, Kind};
use crate::config::{self, ConfigErrors, Inputs, Loaded};
use crate::server::Start;

const CONFIG: &str = "config-file";
const CHECK: &str = "check";
const PRINT_CONFIG: &str = "print-config";
const UPGRADE: &str = "upgrade";
const WATCH: &str = "watch";

/// The exit status after a mistake in the configuration, as after one in the flags.
pub const USAGE: u8 = 2;

/// What the command line asks for, once everything is read and checked.
pub enum Task {
    /// Serve with these settings.
    Serve(Box<Loaded>, Start),
    /// Print the text, which ends in a line feed, and exit with 0.
    Print {
        /// For the standard output.
        text: String,
        /// For the standard error.
        warnings: Vec<String>,
    },
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Serve(loaded, _) => f.debug_tuple("Serve").field(loaded).finish(),
            Self::Print { text, warnings } => f
                .debug_struct("Print")
                .field("text", text)
                .field("warnings", warnings)
                .finish(),
        }
    }
}

/// The command with all its flags.
pub fn command() -> Command {
    let command = Command::new("vllm-pingora")
        .version(env!("CARGO_PKG_VERSION"))
        .about("An edge proxy for fleets of vLLM engines: one OpenAI API in front, transient failures hidden behind it")
        .after_help(AFTER_HELP)
        .args_override_self(true)
        .args_conflicts_with_subcommands(true)
        .max_term_width(100)
        .arg(
            Arg::new(CONFIG)
                .short('c')
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Read settings from this YAML file"),
        )
        .arg(
            Arg::new(CHECK)
                .long(CHECK)
                .action(ArgAction::SetTrue)
                .help("Read everything, print what is wrong or ok, and exit"),
        )
        .arg(
            Arg::new(PRINT_CONFIG)
                .long(PRINT_CONFIG)
                .action(ArgAction::SetTrue)
                .help("Print the configuration in force as YAML, secrets as ***, and exit"),
        )
        .arg(
            Arg::new(WATCH)
                .long(WATCH)
                .action(ArgAction::SetTrue)
                .requires(CONFIG)
                .help("Read the file again when it has changed, as after SIGHUP"),
        )
        .arg(
            Arg::new(UPGRADE)
                .long(UPGRADE)
                .action(ArgAction::SetTrue)
                .help("Take the listeners over, at upgrade_sock, from the process that has them"),
        )
        // Known, so that it can be answered with advice.
        .arg(text_arg(GONE, GONE.replace('_', "-")).hide(true));
    KEYS.iter()
        .filter(|key| key.is_typed())
        .fold(command, |command, key| command.arg(flag(key)))
}

const NO_SOCKET: &str = "--upgrade: it needs upgrade_sock, the same as of the process that runs";

const AFTER_HELP: &str = "\
Every flag is also a variable of the environment, VLLM_PINGORA_ and its name in capitals, and, \
unless its default is none, a key of the file, with _ for -. A flag beats the environment, which \
beats the file, which beats the default. Engines with several models, aliases and extra routes \
have keys of their own in the file: engines, aliases, extra_routes, api_keys.";

fn flag(key: &Key) -> Arg {
    let arg = text_arg(key.name, key.flag())
        .value_name(key.value_name())
        .help(help(key))
        .help_heading(key.group.heading());
    match key.kind {
        Kind::Switch => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        Kind::List("KEY") => arg.action(ArgAction::Append),
        _ => arg,
    }
}

/// A flag whose value is any text: `-1` is for the settings to refuse.
fn text_arg(id: &'static str, long: String) -> Arg {
    Arg::new(id)
        .long(long)
        .num_args(1)
        .allow_hyphen_values(true)
}

fn help(key: &Key) -> StyledStr {
    let default = if key.default == "null" {
        "none"
    } else {
        key.default
    };
    format!("{} [default: {default}]", key.help).into()
}

/// Reads the file that the flags name, and checks it together with them and the environment.
///
/// # Errors
/// Every mistake, one line each; or the file that cannot be read, and why.
pub fn task(matches: &ArgMatches, env: BTreeMap<String, String>) -> Result<Task, ConfigErrors> {
    let path = matches.get_one::<PathBuf>(CONFIG).cloned();
    let flags = flags(matches);
    let file = path.clone();
    let load = move || {
        let path = file.as_deref();
        let text = path.map(read).transpose()?;
        config::load(Inputs {
            flags: &flags,
            env: &env,
            file: path.zip(text.as_deref()),
        })
    };
    let loaded = load()?;
    let text = if matches.get_flag(PRINT_CONFIG) {
        loaded.settings.to_yaml()
    } else if matches.get_flag(CHECK) {
        "ok\n".to_owned()
    } else {
        let upgrade = matches.get_flag(UPGRADE);
        if upgrade && loaded.settings.upgrade_sock.is_none() {
            return Err(ConfigErrors::of(NO_SOCKET.to_owned()));
        }
        let watched = matches.get_flag(WATCH).then_some(path).flatten();
        let load = Box::new(load);
        let start = Start {
            load,
            watched,
            upgrade,
        };
        return Ok(Task::Serve(Box::new(loaded), start));
    };
    Ok(Task::Print {
        text,
        warnings: loaded.warnings,
    })
}

fn read(path: &Path) -> Result<String, ConfigErrors> {
    fs::read_to_string(path)
        .map_err(|error| ConfigErrors::of(format!("{}: cannot be read: {error}", path.display())))
}

/// The flags that were given, by the name of their key; several values of one are separated by
/// commas.
pub fn flags(matches: &ArgMatches) -> BTreeMap<String, String> {
    let names = KEYS
        .iter()
        .filter(|key| key.is_typed())
        .map(|key| key.name)
        .chain([GONE]);
    let given = names.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
    given
        .map(|name| {
            let values = matches.get_many::<String>(name).unwrap_or_default();
            (
                name.to_owned(),
                values.map(String::as_str).collect::<Vec<_>>().join(","),
            )
        })
        .collect()
}

/// The environment as text. What is not Unicode is kept in a form that no setting accepts silently.
pub fn environment(vars: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    vars.map(|(name, value)| {
        (
            name.to_string_lossy().into_owned(),
            value.to_string_lossy().into_owned(),
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        command().debug_assert();
        command().subcommand(Command::new("other")).debug_assert();
    }

    #[test]
    fn a_subcommand_stands_beside_the_flags() {
        let command = || command().subcommand(Command::new("other"));
        let matches = command()
            .try_get_matches_from(["vllm-pingora", "other"])
            .unwrap();
        assert_eq!(matches.subcommand_name(), Some("other"));
        let matches = command()
            .try_get_matches_from(["vllm-pingora", "--port", "1"])
            .unwrap();
        assert_eq!(matches.subcommand_name(), None);
        assert!(
            command()
                .try_get_matches_from(["vllm-pingora", "--port", "1", "other"])
                .is_err()
        );
    }

    #[test]
    fn flags_are_kept_as_text() {
        let args = [
            "x",
            "--max-retries",
            "-1",
            "--h2c",
            "--port",
            "1",
            "--port=2",
        ];
        let args =
            args.into_iter()
                .chain(["--api-key", "a", "--api-key=b,c", "--enable-retries=no"]);
        let flags = flags(&command().try_get_matches_from(args).unwrap());
        let flags: Vec<_> = flags
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            flags,
            [
                ("api_key", "a,b,c"),
                ("enable_retries", "no"),
                ("h2c", "true"),
                ("max_retries", "-1"),
                ("port", "2"),
            ],
        );
    }
}
