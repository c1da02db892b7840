//! One error type. Every variant names the facts: what was found, what was expected, what to do.

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
    /// A name is not in its registry.
    #[error("unknown {kind} `{name}`; known: {known}")]
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
    /// An unknown name, with the names that are known.
    pub fn unknown<'a>(kind: &'static str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Error::Unknown { kind, name: name.to_string(), known: known.into_iter().collect::<Vec<_>>().join(", ") }
    }
    /// An input or output failure on `path`.
    pub fn io(path: impl Into<PathBuf>, cause: std::io::Error, remedy: &'static str) -> Self {
        Error::Io { path: path.into(), cause, remedy }
    }
}
