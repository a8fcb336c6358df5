//! Collects what is wrong, so that one run tells all of it.

use std::fmt;
use std::path::{Path, PathBuf};

use super::keys::Key;
use super::locate;

/// Everything that is wrong with a configuration: one line each, never a secret among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<String>);

impl ConfigErrors {
    /// A report of a single mistake.
    pub fn of(line: String) -> Self {
        Self(vec![line])
    }

    /// The mistakes: flags first, then the environment, then the file from top to bottom.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

/// Where a value was given.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    Flag(String),
    Env(String),
    File {
        /// The way down to the value; see [`locate::line`].
        path: Vec<usize>,
        /// The same way in words, such as `engines[0].url`.
        label: String,
    },
    /// Nobody gave it: the default, or something that is missing.
    Nowhere(&'static str),
}

impl Place {
    pub(super) fn flag(key: &Key) -> Self {
        Self::Flag(format!("--{}", key.flag()))
    }

    pub(super) fn env(key: &Key) -> Self {
        Self::Env(key.env())
    }

    /// The entry of this mapping that stands at `index` under `key`.
    pub(super) fn entry(&self, index: usize, key: &str) -> Self {
        self.below(
            index,
            &if self.is_top() {
                key.to_owned()
            } else {
                format!(".{key}")
            },
        )
    }

    /// The item of this list at `index`.
    pub(super) fn item(&self, index: usize) -> Self {
        self.below(index, &format!("[{index}]"))
    }

    /// The top of the file.
    pub(super) fn top() -> Self {
        Self::File {
            path: Vec::new(),
            label: String::new(),
        }
    }

    fn is_top(&self) -> bool {
        matches!(self, Self::File { path, .. } if path.is_empty())
    }

    fn below(&self, index: usize, step: &str) -> Self {
        match self {
            Self::File { path, label } => {
                let mut path = path.clone();
                path.push(index);
                Self::File {
                    path,
                    label: format!("{label}{step}"),
                }
            }
            elsewhere => elsewhere.clone(),
        }
    }

    /// Whether someone gave the value, as opposed to the default.
    pub(super) fn is_given(&self) -> bool {
        !matches!(self, Self::Nowhere(_))
    }
}

/// Mistakes and warnings found so far.
#[derive(Debug)]
pub(super) struct Report<'a> {
    file: Option<(PathBuf, &'a str)>,
    /// Sorted before they are shown: by source, then by line.
    mistakes: Vec<((u8, usize), String)>,
    pub(super) warnings: Vec<String>,
}

impl<'a> Report<'a> {
    pub(super) fn new(file: Option<(&Path, &'a str)>) -> Self {
        Self {
            file: file.map(|(path, text)| (path.to_owned(), text)),
            mistakes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Notes a mistake: what was found and what is accepted.
    pub(super) fn mistake(&mut self, place: &Place, what: impl fmt::Display) {
        let (source, line) = match place {
            Place::Flag(_) => (0, 0),
            Place::Env(_) => (1, 0),
            Place::File { path, .. } => (2, self.line(path).unwrap_or(0)),
            Place::Nowhere(_) => (3, 0),
        };
        let text = match place {
            Place::Flag(name) | Place::Env(name) => format!("{name}: {what}"),
            Place::Nowhere(name) => format!("{name}: {what}"),
            Place::File { label, .. } if label.is_empty() => {
                format!("{}: {what}", self.file_line(None))
            }
            Place::File { label, .. } => {
                format!(
                    "{}: {label}: {what}",
                    self.file_line(Some(line).filter(|line| *line > 0))
                )
            }
        };
        self.mistakes.push(((source, line), text));
    }

    /// Notes that the file cannot be read as YAML.
    pub(super) fn not_yaml(&mut self, line: Option<usize>, why: &str) {
        let text = format!("{}: not valid YAML: {why}", self.file_line(line));
        self.mistakes.push(((2, line.unwrap_or(0)), text));
    }

    /// How many mistakes were noted so far.
    pub(super) fn count(&self) -> usize {
        self.mistakes.len()
    }

    /// The value, if nothing is wrong.
    pub(super) fn finish<T>(mut self, value: T) -> Result<(T, Vec<String>), ConfigErrors> {
        if self.mistakes.is_empty() {
            return Ok((value, self.warnings));
        }
        self.mistakes.sort_by_key(|(order, _)| *order);
        Err(ConfigErrors(
            self.mistakes.into_iter().map(|(_, text)| text).collect(),
        ))
    }

    fn line(&self, path: &[usize]) -> Option<usize> {
        self.file
            .as_ref()
            .and_then(|(_, text)| locate::line(text, path))
    }

    fn file_line(&self, line: Option<usize>) -> String {
        let name = self
            .file
            .as_ref()
            .map_or_else(String::new, |(path, _)| path.display().to_string());
        line.map_or_else(|| name.clone(), |line| format!("{name}:{line}"))
    }
}

/// A value as a message shows it: as typed, but quoted where the eye could not tell its ends, and
/// cut where it is long.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    let plain = !short.is_empty() && short.chars().all(|c| !c.is_whitespace() && !c.is_control());
    if plain { short } else { format!("{short:?}") }
}
