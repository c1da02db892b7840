//! Where the time of a case goes: the thread that runs it names what it does, and the seconds of each name add up until they are taken. With a trace, what
//! every thread of every process of a run does is a line of one file.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

thread_local! {
    static SPENT: RefCell<Vec<(&'static str, f64)>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` and counts its time under `name`. A stage inside another counts twice: do not nest them.
pub fn timed<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let made = traced(name, work);
    let seconds = begun.elapsed().as_secs_f64();
    SPENT.with_borrow_mut(|all| match all.iter_mut().find(|s| s.0 == name) {
        Some(stage) => stage.1 += seconds,
        None => all.push((name, seconds)),
    });
    made
}

/// What this thread spent since it was last asked, in the order in which the stages began.
pub fn take() -> Vec<(&'static str, f64)> {
    SPENT.take()
}

/// Names the file that every process of a run adds to.
pub const TRACE: &str = "QASSAY_TRACE";

/// What spans are added to: a file that this process or the one that started it began.
static FILE: OnceLock<Option<File>> = OnceLock::new();

fn file() -> Option<&'static File> {
    let named = || OpenOptions::new().append(true).open(std::env::var_os(TRACE).filter(|name| !name.is_empty())?).ok();
    FILE.get_or_init(named).as_ref()
}

/// Begins a trace: from now on what is [`traced`] here is added to it. Errors: it cannot be written.
pub fn trace_to(path: &Path) -> std::io::Result<()> {
    File::create(path)?.write_all(b"[\n")?;
    let file = OpenOptions::new().append(true).open(path)?;
    // One that was begun stays.
    drop(FILE.set(Some(file)));
    Ok(())
}

/// Whether there is a trace.
pub fn tracing() -> bool {
    file().is_some()
}

/// Runs `work`. In a trace it is a span of this thread; spans may be nested.
pub fn traced<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let Some(mut file) = file() else { return work() };
    let (at, begun, cpu) = (SystemTime::now(), Instant::now(), cpu());
    let made = work();
    let lasted = begun.elapsed();
    // One write: lines of several threads do not mix. A trace that cannot be written ends no run.
    drop(file.write_all(span(name, at, lasted.as_secs_f64(), self::cpu() - cpu).as_bytes()));
    made
}

/// A complete event of the format that browsers' viewers of traces read; times in microseconds.
fn span(name: &str, at: SystemTime, seconds: f64, cpu: f64) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
    let (process, name) = (std::process::id(), serde_json::to_string(name).expect("texts are JSON"));
    format!(
        "{{\"name\":{name},\"ph\":\"X\",\"pid\":{process},\"tid\":{},\"ts\":{since},\"dur\":{:.0},\"args\":{{\"cpu_us\":{:.0}}}}},\n",
        thread(),
        seconds * 1e6,
        cpu * 1e6
    )
}

/// A number of this thread, from 1.
fn thread() -> u32 {
    static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    thread_local! {
        static OWN: u32 = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
    }
    OWN.with(|own| *own)
}

/// Seconds that this thread has computed, where the system says.
fn cpu() -> f64 {
    #[cfg(target_os = "linux")]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the struct during the call.
        if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } == 0 {
            return time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_one_name_add_up_and_are_taken_once() {
        take();
        let pause = || std::thread::sleep(std::time::Duration::from_millis(3));
        assert_eq!(timed("a", || 7), 7);
        timed("b", pause);
        timed("a", pause);
        let all = take();
        assert_eq!(all.iter().map(|s| s.0).collect::<Vec<_>>(), ["a", "b"]);
        assert!(all.iter().all(|s| s.1 >= 0.003 && s.1 < 3.0), "{all:?}");
        assert!(take().is_empty());
    }

    #[test]
    fn a_span_is_an_event_of_its_process_and_thread() {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_micros(1_700_000_000_000_123);
        let line = span("a \"b\"", at, 0.25, 0.125);
        let event: serde_json::Value = serde_json::from_str(line.strip_suffix(",\n").unwrap()).unwrap();
        let of = |key: &str| event[key].as_u64().unwrap();
        assert_eq!((of("ts"), of("dur"), event["args"]["cpu_us"].as_u64()), (1_700_000_000_000_123, 250_000, Some(125_000)));
        assert_eq!((event["name"].as_str(), event["ph"].as_str()), (Some("a \"b\""), Some("X")));
        assert_eq!(of("pid"), u64::from(std::process::id()));
        assert_ne!(std::thread::spawn(thread).join().unwrap(), thread(), "threads have numbers of their own");
    }
}
