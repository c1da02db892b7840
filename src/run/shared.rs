//! Several cases at a time in one process: its GPU is opened once, its kernels are loaded once, and what one case computes on the CPU runs while
//! another has the GPU.
//!
//! Only what passes is taken from such a process. A fault of one case (an illegal address) ends the context of all, and a write beside its
//! buffers may lie in another's. So each case with any other answer, or with none, is run again in a process that has one case at a time
//! ([`super::worker::Seat`]), and that answer counts. Where this happened [`CHANCES`] times, no more cases share a process.

use super::worker::{self, STARTUP, Workers};
use crate::compare::Verdict;
use crate::external::process::Process;
use crate::stage::traced;
use crate::sweep::Case;
use crate::sweep::assay::Ran;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Processes that may end or be given up.
const CHANCES: usize = 3;

/// The process of one GPU, started anew when it was given up.
pub struct Shared<'a> {
    workers: &'a Workers,
    index: usize,
    /// Threads for its parallel loops, and cases at a time.
    threads: usize,
    together: usize,
    state: Mutex<State>,
}

struct State {
    crew: Option<Arc<Crew>>,
    chances: usize,
}

/// A running process and those who wait for its answers.
struct Crew {
    process: Mutex<Option<Process>>,
    waiting: Arc<Mutex<Waiting>>,
}

/// Who gets the cells of an answer, by request. `None`: no answer will come any more.
type Waiting = Option<HashMap<String, Sender<Vec<String>>>>;

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Shared<'a> {
    pub fn new(workers: &'a Workers, index: usize, threads: usize, together: usize) -> Self {
        Self { workers, index, threads, together, state: Mutex::new(State { crew: None, chances: CHANCES }) }
    }

    /// Starts its process, which gets ready while this one does other things. One that cannot be started is found out when it is needed.
    pub fn start_ahead(&self) {
        if let Ok(process) = self.workers.start(self.index, self.threads, self.together) {
            locked(&self.workers.ahead).insert(self.index, process);
        }
    }

    /// The row of a case that passes or is skipped; `None` where it has to be run by itself.
    pub fn ran(&self, case: &Case) -> Option<Ran> {
        let crew = self.crew()?;
        let ran = crew.ask(&worker::request(case), self.workers).and_then(|cells| worker::read(case, cells).ok());
        let verdict = ran.as_ref().map(|ran| ran.row.verdict);
        if matches!(verdict, None | Some(Verdict::Error)) {
            self.give_up(&crew);
        }
        ran.filter(|ran| matches!(ran.row.verdict, Verdict::Pass | Verdict::NoPower | Verdict::Skipped))
    }

    /// The process that runs, or a new one.
    fn crew(&self) -> Option<Arc<Crew>> {
        let mut state = locked(&self.state);
        if state.crew.is_none() && state.chances > 0 {
            match traced("worker", || Crew::start(self.workers, self.index, self.threads, self.together)) {
                Ok(crew) => state.crew = Some(Arc::new(crew)),
                Err(why) => {
                    tracing::warn!("cases do not share a process: {why}");
                    state.chances = 0;
                }
            }
        }
        state.crew.clone()
    }

    /// No new case for it. Those that it has may still be answered.
    fn give_up(&self, crew: &Arc<Crew>) {
        let mut state = locked(&self.state);
        if state.crew.as_ref().is_some_and(|now| Arc::ptr_eq(now, crew)) {
            state.crew = None;
            state.chances -= 1;
        }
    }
}

impl Crew {
    fn start(workers: &Workers, index: usize, threads: usize, together: usize) -> Result<Self, String> {
        let ahead = locked(&workers.ahead).remove(&index);
        let mut process = ahead.map_or_else(|| workers.start(index, threads, together), Ok).map_err(|e| e.to_string())?;
        worker::ready(&mut process, STARTUP)?;
        let (lines, waiting) = (process.listen(), Arc::new(Mutex::new(Some(HashMap::new()))));
        let held = Arc::clone(&waiting);
        std::thread::spawn(move || hand_out(&lines, &held));
        Ok(Self { process: Mutex::new(Some(process)), waiting })
    }

    /// The answer's cells; `None` where none comes. One that is late ends the process, since any of its cases may be what it hangs on.
    fn ask(&self, request: &str, workers: &Workers) -> Option<Vec<String>> {
        let (sender, answer) = mpsc::channel();
        // A case that is asked for twice at a time would have one answer.
        match locked(&self.waiting).as_mut()?.entry(request.to_string()) {
            Entry::Vacant(place) => drop(place.insert(sender)),
            Entry::Occupied(_) => return None,
        }
        locked(&self.process).as_mut()?.tell(request);
        let Some(limit) = workers.timeout else { return answer.recv().ok() };
        let answer = answer.recv_timeout(limit);
        if matches!(answer, Err(mpsc::RecvTimeoutError::Timeout)) {
            drop(locked(&self.process).take());
        }
        answer.ok()
    }
}

/// Gives every line to the one who waits for it. When no more come, nobody is to wait.
fn hand_out(lines: &Receiver<String>, waiting: &Mutex<Waiting>) {
    for line in lines {
        let asker = |cells: &Vec<String>| locked(waiting).as_mut()?.remove(cells.first()?);
        match worker::cells(&line).and_then(|cells| Some((asker(&cells)?, cells))) {
            // One who waits no longer has no use for it.
            Some((asker, cells)) => drop(asker.send(cells)),
            None => tracing::warn!("worker: {line}"),
        }
    }
    locked(waiting).take();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assay::row::Row;
    use crate::assay::table::Line;
    use crate::kernel::{Backend, cpu::KERNELS};
    use crate::run::plan::Selection;
    use crate::sweep::{Sweep, assay};
    use std::time::{Duration, Instant};

    fn smoke() -> Vec<Sweep> {
        Selection { sweeps: vec!["smoke".into()], ..Selection::default() }.load().unwrap()
    }

    fn row(case: &Case) -> Row {
        assay::assay(case, KERNELS, Backend::Cpu, 0)
    }

    /// A worker that answers each case with what the shell does for it. `$n` is the number of processes so far.
    fn workers(dir: &std::path::Path, cases: &[(&Case, String)], timeout: Duration) -> Workers {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let arms: String = cases.iter().map(|(case, does)| format!("{}) {does};;\n", quoted(&worker::request(case)))).collect();
        let count = dir.join("started").display().to_string();
        let script = format!(
            "echo x >> {count}; n=$(wc -l < {count}); echo noise; echo '[]'\nwhile read -r l; do case \"$l\" in\n{arms}esac; done\n"
        );
        let path = dir.join("worker.sh");
        std::fs::write(&path, script).unwrap();
        let arguments = vec![path.display().to_string()];
        Workers {
            program: "sh".into(),
            arguments,
            devices: Vec::new(),
            timeout: Some(timeout),
            share: true,
            trace: None,
            ahead: Mutex::default(),
        }
    }

    fn says(case: &Case, row: &Row) -> String {
        let mut cells = vec![worker::request(case)];
        cells.extend(row.cells());
        cells.extend([String::new(), "kernel=0.5".to_string()]);
        format!("cat <<'END'\n{}\nEND\n", serde_json::to_string(&cells).unwrap())
    }

    const LATE: Duration = Duration::from_secs(20);

    #[test]
    fn what_passes_is_taken_and_what_fails_is_not() {
        let (sweeps, dir) = (smoke(), tempfile::tempdir().unwrap());
        let (good, bad) = (&sweeps[0].cases[0], &sweeps[0].cases[1]);
        let failed = Row { verdict: Verdict::Fail, ..row(bad) };
        // The first answer comes when the second was asked for: they run together.
        let held = format!("{}\n", says(bad, &failed));
        let workers =
            workers(dir.path(), &[(good, "first=1".into()), (bad, format!("{held}{}", says(good, &row(good))))], LATE);
        let shared = Shared::new(&workers, 0, 1, 2);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| shared.ran(good));
            while locked(&shared.state).crew.as_ref().is_none_or(|c| locked(&c.waiting).as_ref().unwrap().is_empty()) {
                std::thread::yield_now();
            }
            assert_eq!(shared.ran(bad), None);
            let ran = first.join().unwrap().unwrap();
            assert_eq!((ran.row.cells(), ran.stages), (row(good).cells(), vec![("kernel".to_string(), 0.5)]));
        });
        assert_eq!(locked(&shared.state).chances, CHANCES, "a failure is no fault of the process");
    }

    #[test]
    fn a_process_that_ends_or_errs_is_replaced_and_not_for_ever() {
        let (sweeps, dir) = (smoke(), tempfile::tempdir().unwrap());
        let [good, crash, error] = [0, 1, 2].map(|i| &sweeps[0].cases[i]);
        let broken = Row { verdict: Verdict::Error, ..row(error) };
        let does = [(good, says(good, &row(good))), (crash, "kill -9 $$".into()), (error, says(error, &broken))];
        let workers = workers(dir.path(), &does, LATE);
        let shared = Shared::new(&workers, 0, 1, 2);
        for (case, left) in [(crash, 2), (error, 1), (crash, 0)] {
            assert!(shared.ran(good).is_some());
            assert_eq!(shared.ran(case), None);
            assert_eq!(locked(&shared.state).chances, left);
        }
        assert_eq!(shared.ran(good), None, "each has a process of its own from now on");
        assert_eq!(std::fs::read_to_string(dir.path().join("started")).unwrap().lines().count(), 3);
    }

    #[test]
    fn one_that_is_late_ends_the_process_for_all() {
        let (sweeps, dir) = (smoke(), tempfile::tempdir().unwrap());
        let (slow, waits) = (&sweeps[0].cases[0], &sweeps[0].cases[1]);
        let workers = workers(dir.path(), &[(slow, "sleep 100".into())], Duration::from_millis(400));
        let shared = Shared::new(&workers, 0, 1, 2);
        let (begun, crew) = (Instant::now(), shared.crew().unwrap());
        std::thread::scope(|scope| {
            let both = [slow, waits].map(|case| scope.spawn(|| shared.ran(case)));
            assert!(both.into_iter().all(|b| b.join().unwrap().is_none()));
        });
        assert!(begun.elapsed() < LATE, "{:?}", begun.elapsed());
        assert!(
            locked(&crew.process).is_none() && locked(&shared.state).crew.is_none(),
            "it was killed, and is not asked again"
        );
    }

    #[test]
    fn where_none_starts_each_has_its_own() {
        let (sweeps, dir) = (smoke(), tempfile::tempdir().unwrap());
        let mut workers = workers(dir.path(), &[], LATE);
        workers.program = dir.path().join("none");
        let shared = Shared::new(&workers, 0, 1, 2);
        assert_eq!(shared.ran(&sweeps[0].cases[0]), None);
        assert_eq!(locked(&shared.state).chances, 0);
    }
}
