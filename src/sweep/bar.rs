//! How far a run has come, for whoever waits at a terminal or in a notebook.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How a bar grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// In place; erased at the end.
    Terminal,
    /// A line each time: evcxr passes on whole lines, and nothing before their end.
    Lines,
    /// Nobody waits: a log, a test.
    Nothing,
}

/// Lines of a notebook are this far apart: a short run shows none.
const PACE: Duration = Duration::from_secs(2);

pub struct Bar<W: Write> {
    form: Form,
    to: W,
    pace: Duration,
    all: usize,
    done: usize,
    shown: usize,
    last: Instant,
}

impl Bar<std::io::Stderr> {
    /// On standard error, in the form that suits it.
    pub fn new(all: usize, quiet: bool) -> Self {
        let to = std::io::stderr();
        let form = match quiet || all < 8 {
            true => Form::Nothing,
            false if to.is_terminal() => Form::Terminal,
            false if std::env::var_os("EVCXR_IS_RUNTIME").is_some() => Form::Lines,
            false => Form::Nothing,
        };
        Bar { form, to, pace: PACE, all, done: 0, shown: 0, last: Instant::now() }
    }
}

impl<W: Write> Bar<W> {
    /// One more is done.
    pub fn step(&mut self) {
        self.done += 1;
        let filled = 40 * self.done / self.all;
        let text = format!("{}{} {} of {} cases", "█".repeat(filled), "░".repeat(40 - filled), self.done, self.all);
        let text = match self.form {
            Form::Terminal if self.done == self.all => format!("\r{:80}\r", ""),
            Form::Terminal if filled != self.shown => format!("\r{text}"),
            Form::Lines if filled != self.shown && self.last.elapsed() >= self.pace => format!("{text}\n"),
            _ => return,
        };
        (self.shown, self.last) = (filled, Instant::now());
        // Progress that cannot be shown is not worth an error.
        let _ = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(form: Form, pace: Duration) -> String {
        let mut bar = Bar { form, to: Vec::new(), pace, all: 80, done: 0, shown: 0, last: Instant::now() };
        (0..80).for_each(|_| bar.step());
        String::from_utf8(bar.to).unwrap()
    }

    #[test]
    fn a_notebook_gets_whole_lines_a_terminal_one_line_and_a_log_none() {
        let lines = shown(Form::Lines, Duration::ZERO);
        assert!(lines.ends_with(" 80 of 80 cases\n") && !lines.contains('\r'), "{lines}");
        assert_eq!(lines.lines().count(), 40, "a line where the bar is longer");
        assert_eq!(shown(Form::Lines, Duration::from_secs(3600)), "", "a short run shows nothing");
        let place = shown(Form::Terminal, PACE);
        assert!(place.starts_with('\r') && place.ends_with(&format!("\r{:80}\r", "")) && !place.contains('\n'), "{place}");
        assert_eq!(shown(Form::Nothing, Duration::ZERO), "");
    }
}
