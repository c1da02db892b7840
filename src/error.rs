//! One error type. Every variant names the facts: what was found, what was expected, what to do.

use crate::order::Order as _;
use std::path::PathBuf;

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the facts a reader needs to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {cause}; {remedy}")]
    Io { path: PathBuf, cause: std::io::Error, remedy: &'static str },
    /// A file's content is not what its format promises.
    #[error("{path}: found {found}, expected {expected}")]
    BadFile { path: PathBuf, found: String, expected: String },
    /// A text file has a mistake at a place.
    #[error("{path}:{line}: {what}")]
    BadLine { path: PathBuf, line: usize, what: String },
    /// Shapes do not fit together.
    #[error("{what}: found shape {found}, expected {expected}")]
    Shape { what: String, found: String, expected: String },
    /// A value is outside what is allowed.
    #[error("{what}: found {found}, expected {expected}")]
    Value { what: String, found: String, expected: String },
    /// A process that computes for us ended, was late, or said too much.
    #[error("{what}: {why}; expected {expected}")]
    Process { what: String, why: String, expected: &'static str },
    /// A name is not in its registry.
    #[error("unknown {kind} `{name}`; {known}")]
    Unknown { kind: &'static str, name: String, known: String },
    /// A result that is wrong, or data that could not have shown it: the failure's card.
    #[error("{card}")]
    Verdict { card: String },
    /// The parts are each valid but cannot be combined; a sweep lists such a case as skipped, with this reason.
    #[error("{what} cannot do this: {why}")]
    Unsupported { what: String, why: String },
}

impl Error {
    /// A shape error in one line.
    pub fn shape(what: impl Into<String>, found: impl ToString, expected: impl ToString) -> Self {
        Error::Shape { what: what.into(), found: found.to_string(), expected: expected.to_string() }
    }
    /// A value error in one line.
    pub fn value(what: impl Into<String>, found: impl ToString, expected: impl ToString) -> Self {
        Error::Value { what: what.into(), found: found.to_string(), expected: expected.to_string() }
    }
    /// An impossible combination, with its reason.
    pub fn unsupported(what: impl Into<String>, why: impl Into<String>) -> Self {
        Error::Unsupported { what: what.into(), why: why.into() }
    }
    /// An unknown name, with the one that was probably meant and the names that are known.
    pub fn unknown<'a>(kind: &'static str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let mut known: Vec<&str> = known.into_iter().collect();
        let meant = meant(name, known.iter().copied()).map_or_else(String::new, |m| format!("did you mean `{m}`? "));
        if known.len() > SHOWN {
            known.order_by(|a, b| like(name, b).total_cmp(&like(name, a)));
        }
        let count = if known.len() > SHOWN { FEW } else { SHOWN };
        let shown = known.iter().take(count).copied().collect::<Vec<_>>().join(", ");
        let list = if LISTED.contains(&kind) { format!("; `qassay list {kind}s` prints all") } else { String::new() };
        let more = if known.len() > SHOWN { format!(" and {} more{list}", known.len() - count) } else { String::new() };
        Error::Unknown { kind, name: name.to_string(), known: format!("{meant}known: {shown}{more}") }
    }
    /// An input or output failure on `path`.
    pub fn io(path: impl Into<PathBuf>, cause: std::io::Error, remedy: &'static str) -> Self {
        Error::Io { path: path.into(), cause, remedy }
    }
}

/// Names that an error lists all of; of more it lists the likest few.
const SHOWN: usize = 30;
const FEW: usize = 8;

/// Kinds that `qassay list` prints, where there may be many.
const LISTED: [&str; 6] = ["fault", "scenario", "recipe", "distribution", "gate", "column"];

/// Likeness, 0 to 1, from which a name may be what was meant.
const ALIKE: f64 = 0.8;

/// How like two names are, whatever their case.
fn like(a: &str, b: &str) -> f64 {
    strsim::jaro_winkler(&a.to_lowercase(), &b.to_lowercase())
}

/// The name that was probably meant by `name`: the likest, where one is alike.
pub(crate) fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known.into_iter().map(|k| (like(name, k), k)).filter(|l| l.0 >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|l| l.1)
}

/// `; did you mean …?` after a list of what is expected; empty where no name is alike.
pub(crate) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    meant(name, known).map_or_else(String::new, |m| format!("; did you mean `{m}`?"))
}

/// What a reader of TOML says, with the key that was probably meant where it did not know one.
pub(crate) fn of_key(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let wrong = names.next().filter(|_| message.starts_with("unknown field `"));
    message.to_string() + &wrong.map_or_else(String::new, |name| hint(name, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_nearly_right_is_offered() {
        let said = "unknown field `recipes`, expected one of `name`, `recipe`";
        assert_eq!(of_key(said), format!("{said}; did you mean `recipe`?"));
        for other in
            ["unknown field `xyz`, expected `about` or `cases`", "missing field `name`", "found `name`, expected `names`"]
        {
            assert_eq!(of_key(other), other);
        }
    }

    #[test]
    fn a_name_that_is_nearly_right_is_offered() {
        let said = |name: &str| Error::unknown("sweep", name, ["smoke", "standard", "origins"]).to_string();
        assert_eq!(said("smoek"), "unknown sweep `smoek`; did you mean `smoke`? known: smoke, standard, origins");
        assert_eq!(said("Standrad"), "unknown sweep `Standrad`; did you mean `standard`? known: smoke, standard, origins");
        assert_eq!(said("xyz"), "unknown sweep `xyz`; known: smoke, standard, origins");
    }

    #[test]
    fn a_long_list_is_cut() {
        let names: Vec<String> = (0..100).map(|i| format!("n{i}")).collect();
        let said = Error::unknown("fault", "other", names.iter().map(String::as_str)).to_string();
        assert!(said.ends_with("n6, n7 and 92 more; `qassay list faults` prints all"), "{said}");
    }
}
