//! Words of a command line, as a shell reads them.

/// Quoted where a shell would read it otherwise. A NUL, which no argument has, is left out.
pub(crate) fn shell_word(s: &str) -> String {
    let word = s.replace('\0', "");
    shlex::try_quote(&word).map_or_else(|_| word.clone(), std::borrow::Cow::into_owned)
}
