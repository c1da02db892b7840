//! What takes longer than two seconds says so, and for how long: on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Nothing is said before.
const QUIET: Duration = Duration::from_secs(2);

/// Ends what is said when it is dropped.
pub struct Doing {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Says `what` is being done until the result is dropped.
pub fn doing(what: String) -> Doing {
    let (done, waiting) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        if waiting.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
            let bar = ProgressBar::new_spinner().with_message(what);
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}, {elapsed}").expect("a valid template"));
            bar.enable_steady_tick(Duration::from_millis(100));
            // Until the other end is dropped.
            let _ = waiting.recv();
            bar.finish_and_clear();
        }
    });
    Doing { done: Some(done), thread: Some(thread) }
}

impl Drop for Doing {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_ends_with_what_it_is_about() {
        let started = Instant::now();
        drop(doing("nothing".into()));
        assert!(started.elapsed() < QUIET, "what is short waits for nothing");
    }
}
