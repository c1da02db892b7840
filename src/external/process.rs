//! A child process that is asked line by line: started in a process group of its own, killed with it.
//!
//! What it prints is read into memory that is bounded: a line of more than [`LONGEST`] bytes ends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Bytes of a line; more is no answer.
pub const LONGEST: u64 = 1 << 20;

/// A running child. Dropped, it is killed with its process group.
pub struct Process {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    /// It printed a line that is longer than any answer.
    endless: Arc<AtomicBool>,
    /// A line on its standard error since it was asked.
    said: Arc<Mutex<String>>,
    listener: Option<std::thread::JoinHandle<()>>,
    /// Waited for: its number may be another process's by now.
    reaped: bool,
}

/// Which line on standard error says why a child ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// What an abort or a panic of a Rust program begins with.
    First,
    /// What a traceback of Python ends with.
    Last,
}

/// Process groups of the children that live.
static GROUPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Kills every child with its process group: for a program that ends at once.
pub fn kill_all() {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    groups.iter().for_each(|group| kill_group(*group));
}

fn kill_group(group: u32) {
    // SAFETY: a plain system call; the group is one that this process made and has not waited for yet.
    unsafe { libc::kill(-(group as libc::pid_t), libc::SIGKILL) };
}

/// Starts a child from a thread that never ends. One that asks to end with its parent (`PR_SET_PDEATHSIG`, as workers do) ends with the thread that
/// started it, and the thread that needs it first may have done its part long before others.
fn spawn(command: &mut Command) -> std::io::Result<Child> {
    type Task = Box<dyn FnOnce() + Send>;
    static KEEPER: OnceLock<Sender<Task>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (sender, tasks) = mpsc::channel::<Task>();
        std::thread::spawn(move || tasks.into_iter().for_each(|task| task()));
        sender
    });
    let (done, child) = mpsc::channel();
    let mut command = std::mem::replace(command, Command::new("true"));
    // Both ends live: the keeper as long as the process, and this one waits.
    drop(keeper.send(Box::new(move || drop(done.send(command.spawn())))));
    child.recv().unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts processes is gone")))
}

impl Process {
    /// Starts it with its three streams piped. Errors: the system's.
    pub fn start(command: &mut Command, why: Why) -> std::io::Result<Self> {
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(command)?;
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).push(child.id());
        let (requests, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // Few lines wait: a child that prints without end has to wait for its reader.
        let (sender, answers) = mpsc::sync_channel(4);
        let endless = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&endless);
        std::thread::spawn(move || {
            let mut output = BufReader::new(output.expect("piped"));
            while let Some(line) = line(&mut output, &seen) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        let listener = std::thread::spawn(move || {
            let mut errors = BufReader::new(errors.expect("piped"));
            while let Some(line) = line(&mut errors, &AtomicBool::new(false)) {
                tracing::info!("child: {line}");
                let mut said = heard.lock().unwrap_or_else(PoisonError::into_inner);
                if !line.trim().is_empty() && (why == Why::Last || said.is_empty()) {
                    *said = line;
                }
            }
        });
        Ok(Self { child, requests: requests.expect("piped"), answers, endless, said, listener: Some(listener), reaped: false })
    }

    /// Writes a line and waits for one. Errors: how it ended, or that it was late; it is of no more use then.
    pub fn ask(&mut self, request: &str, limit: Option<Duration>) -> Result<String, String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.tell(request);
        self.answer(limit)
    }

    /// Writes a line. One that ended before is found out by its answer that never comes.
    pub fn tell(&mut self, request: &str) {
        let _ = self.requests.write_all(format!("{request}\n").as_bytes()).and_then(|()| self.requests.flush());
    }

    /// All that it writes from now on, until it ends; [`Process::answer`] has no more of it.
    pub fn listen(&mut self) -> Receiver<String> {
        std::mem::replace(&mut self.answers, mpsc::channel().1)
    }

    /// Waits for a line that it writes; without a limit until it ends. Errors: those of [`Process::ask`].
    pub fn answer(&mut self, limit: Option<Duration>) -> Result<String, String> {
        let Some(limit) = limit else { return self.answers.recv().map_err(|_| self.ending()) };
        self.answers.recv_timeout(limit).map_err(|e| match e {
            RecvTimeoutError::Timeout => format!("it took longer than --timeout {}s and was killed", limit.as_secs_f64()),
            RecvTimeoutError::Disconnected => self.ending(),
        })
    }

    /// How it ended that closed its output.
    fn ending(&mut self) -> String {
        if self.endless.load(Ordering::SeqCst) {
            return format!("it printed a line of more than {LONGEST} bytes and was killed");
        }
        // What closed its output ends soon; what does not is killed when it is dropped.
        let status = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            self.child.try_wait().ok().flatten()
        });
        let Some(status) = status else { return "it closed its output and was killed".into() };
        // What it started may live on; the group does until the last of it ends.
        kill_group(self.child.id());
        self.reaped = true;
        let status = status.to_string();
        if let Some(listener) = self.listener.take() {
            // Ends with the pipe; a panic there has nothing more to say.
            let _ = listener.join();
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let hint = if status.contains("SIGKILL") { " (the system does that when memory runs out)" } else { "" };
        let said = if said.is_empty() { String::new() } else { format!(": {}", said.chars().take(300).collect::<String>()) };
        format!("it ended, {status}{hint}{said}")
    }
}

/// The next line without its end; `None` at the end of the stream, or where a line is too long, which is then said in `endless`.
fn line(stream: &mut impl BufRead, endless: &AtomicBool) -> Option<String> {
    let mut bytes = Vec::new();
    let read = stream.take(LONGEST).read_until(b'\n', &mut bytes).ok()?;
    if bytes.last() != Some(&b'\n') && read as u64 == LONGEST {
        endless.store(true, Ordering::SeqCst);
        return None;
    }
    if read == 0 {
        return None;
    }
    Some(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_string())
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|g| *g != self.child.id());
        if !self.reaped {
            kill_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script]), Why::Last).unwrap()
    }
    const SOON: Duration = Duration::from_millis(300);
    const LATE: Duration = Duration::from_secs(20);

    #[test]
    fn lines_are_answered_until_it_ends_and_the_end_says_why() {
        let mut p = shell("read a; echo got $a; read b; echo no such kernel >&2; exit 3");
        assert_eq!(p.ask("one", Some(LATE)).unwrap(), "got one");
        let e = p.ask("two", None).unwrap_err();
        assert!(e.contains("exit status: 3") && e.contains("no such kernel"), "{e}");
        let abort = "read a; echo why >&2; echo a backtrace >&2; exit 4";
        for (why, line) in [(Why::First, ": why"), (Why::Last, ": a backtrace")] {
            let e = Process::start(Command::new("sh").args(["-c", abort]), why).unwrap().ask("x", Some(LATE)).unwrap_err();
            assert!(e.ends_with(line), "{e}");
        }
    }

    #[test]
    fn what_is_late_is_killed_with_all_it_started() {
        let mut p = shell("sleep 100 & echo $!; read a; wait");
        let child: i32 = p.answers.recv_timeout(LATE).unwrap().parse().unwrap();
        let e = p.ask("x", Some(SOON)).unwrap_err();
        assert!(e.contains("took longer than --timeout 0.3s"), "{e}");
        drop(p);
        // SAFETY: signal 0 only asks whether the process is there. Orphans of the group are reaped by init, so ask for a while.
        let gone = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z")
        });
        assert!(gone, "{child}");
    }

    #[test]
    fn a_child_outlives_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo here; read a; echo got $a"]);
            // SAFETY: a plain system call that takes a signal number.
            let ends_with_its_parent = || {
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                Ok(())
            };
            // SAFETY: the closure allocates nothing.
            unsafe { command.pre_exec(ends_with_its_parent) };
            let mut p = Process::start(&mut command, Why::Last).unwrap();
            assert_eq!(p.answer(Some(LATE)).unwrap(), "here");
            p
        };
        let mut p = std::thread::spawn(start).join().unwrap();
        // The signal comes when the thread has ended, which may be after it was joined.
        std::thread::sleep(SOON);
        assert_eq!(p.ask("one", Some(LATE)), Ok("got one".into()));
    }

    #[test]
    fn output_without_end_takes_no_memory_without_end() {
        let mut p = shell("read a; yes | tr -d '\\n'");
        let e = p.ask("x", Some(LATE)).unwrap_err();
        assert!(e.contains("a line of more than 1048576 bytes"), "{e}");
        let mut p = shell("read a; yes");
        assert_eq!(p.ask("x", Some(LATE)).unwrap(), "y");
    }
}
