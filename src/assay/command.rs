//! Words of a command line, as a shell reads them.

/// `s` in single quotes for a POSIX shell.
pub(crate) fn shell_quoted(s: &str) -> String {
    format!("'{}'", s.replace('\'', r"'\''"))
}

/// Quoted only where a shell would read it otherwise.
pub(crate) fn shell_word(s: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+,:@%".contains(c);
    if !s.is_empty() && s.chars().all(plain) { s.to_string() } else { shell_quoted(s) }
}
