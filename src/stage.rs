//! Where the time of a case goes: the thread that runs it names what it does, and the seconds of each name add up until they are taken.

use std::cell::RefCell;
use std::time::Instant;

thread_local! {
    static SPENT: RefCell<Vec<(&'static str, f64)>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` and counts its time under `name`. A stage inside another counts twice: do not nest them.
pub fn timed<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let made = work();
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
}
