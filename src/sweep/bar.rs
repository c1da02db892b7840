//! Progress of whatever takes longer than two seconds: on standard error when that is a terminal, in whole lines in a notebook, and nowhere
//! else.

use std::io::Write;
use std::time::{Duration, Instant};

/// Nothing is said before, and a notebook's lines are this far apart.
const QUIET: Duration = Duration::from_secs(2);

#[cfg(feature = "cli")]
pub use terminal::{Progress, counting, doing};

#[cfg(feature = "cli")]
mod terminal {
    use super::QUIET;
    use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
    use std::sync::mpsc::{self, RecvTimeoutError, Sender};
    use std::thread::JoinHandle;
    use std::time::Duration;

    /// A bar that shows itself after [`QUIET`], where standard error is a terminal, until it is dropped.
    pub struct Progress {
        bar: ProgressBar,
        done: Option<Sender<()>>,
        thread: Option<JoinHandle<()>>,
    }

    /// Says `what` is being done, and since when.
    pub fn doing(what: String) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what);
        Progress::of(bar, "{spinner} {msg}, {elapsed}", false)
    }

    /// Says how many of `all` are done, in units of `what`.
    pub fn counting(all: usize, what: &'static str, hidden: bool) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(all as u64), ProgressDrawTarget::hidden()).with_message(what);
        Progress::of(bar, "{bar:40} {pos}/{len} {msg}  {per_sec}  {eta} left", hidden)
    }

    impl Progress {
        fn of(bar: ProgressBar, template: &str, hidden: bool) -> Progress {
            bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
            if hidden {
                return Progress { bar, done: None, thread: None };
            }
            let (done, waiting) = mpsc::channel();
            let shown = bar.clone();
            let thread = std::thread::spawn(move || {
                if waiting.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
                    shown.set_draw_target(ProgressDrawTarget::stderr());
                    shown.enable_steady_tick(Duration::from_millis(100));
                    // Until the other end is dropped.
                    let _ = waiting.recv();
                    shown.finish_and_clear();
                }
            });
            Progress { bar, done: Some(done), thread: Some(thread) }
        }

        /// One more is done.
        pub fn step(&self) {
            self.bar.inc(1);
        }

        /// Writes lines while the bar is away.
        pub fn beside(&self, write: impl FnOnce()) {
            self.bar.suspend(write);
        }
    }

    impl Drop for Progress {
        fn drop(&mut self) {
            drop(self.done.take());
            if let Some(thread) = self.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// How far a run of the library has come.
pub struct Bar<W: Write> {
    #[cfg(feature = "cli")]
    terminal: Option<Progress>,
    lines: Option<Lines<W>>,
}

impl Bar<std::io::Stderr> {
    /// In the form that suits standard error.
    pub fn new(all: usize, quiet: bool) -> Self {
        // evcxr passes on whole lines, and nothing before their end.
        let notebook = std::env::var_os("EVCXR_IS_RUNTIME").is_some();
        Bar {
            #[cfg(feature = "cli")]
            terminal: (!quiet && !notebook).then(|| counting(all, "cases", false)),
            lines: (!quiet && notebook && all > 0).then(|| Lines::new(std::io::stderr(), QUIET, all)),
        }
    }
}

impl<W: Write> Bar<W> {
    /// One more is done.
    pub fn step(&mut self) {
        #[cfg(feature = "cli")]
        self.terminal.iter().for_each(Progress::step);
        self.lines.iter_mut().for_each(Lines::step);
    }
}

/// A longer bar each time, as a line.
struct Lines<W: Write> {
    to: W,
    pace: Duration,
    all: usize,
    done: usize,
    shown: usize,
    last: Instant,
}

impl<W: Write> Lines<W> {
    fn new(to: W, pace: Duration, all: usize) -> Self {
        Self { to, pace, all, done: 0, shown: 0, last: Instant::now() }
    }
    fn step(&mut self) {
        self.done += 1;
        let filled = 40 * self.done / self.all;
        if filled != self.shown && self.last.elapsed() >= self.pace {
            (self.shown, self.last) = (filled, Instant::now());
            let text = format!("{}{} {} of {} cases\n", "█".repeat(filled), "░".repeat(40 - filled), self.done, self.all);
            // Progress that cannot be shown is not worth an error.
            let _ = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notebook_gets_whole_lines() {
        let shown = |pace| {
            let mut lines = Lines::new(Vec::new(), pace, 80);
            (0..80).for_each(|_| lines.step());
            String::from_utf8(lines.to).unwrap()
        };
        let lines = shown(Duration::ZERO);
        assert!(lines.ends_with(" 80 of 80 cases\n") && !lines.contains(['\r', '\u{1b}']), "{lines}");
        assert_eq!(lines.lines().count(), 40, "a line where the bar is longer");
        assert_eq!(shown(Duration::from_secs(3600)), "", "a short run shows nothing");
    }

    #[test]
    #[cfg(feature = "cli")]
    fn it_ends_with_what_it_is_about() {
        let started = Instant::now();
        drop(doing("nothing".into()));
        let bar = counting(9, "cases", false);
        (0..9).for_each(|_| bar.step());
        drop(bar);
        assert!(started.elapsed() < QUIET, "what is short waits for nothing");
    }
}
