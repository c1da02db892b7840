//! What the last cases drew and defined, kept for the next: cases of a table differ in their recipes more often than in their data.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// The latest values made, up to so many bytes of them together.
pub struct Memo<V> {
    most: AtomicUsize,
    kept: LazyLock<Mutex<Kept<V>>>,
}

struct Kept<V> {
    bytes: usize,
    /// The last used at the end.
    entries: VecDeque<(String, usize, V)>,
    making: HashMap<String, Arc<Making<V>>>,
}

/// What one thread makes and others wait for.
struct Making<V> {
    ended: Condvar,
    /// The value, or none where it was not made.
    value: Mutex<Option<Option<V>>>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<V: Clone> Making<V> {
    fn wait(&self) -> Option<V> {
        let mut value = locked(&self.value);
        loop {
            match &*value {
                Some(made) => return made.clone(),
                None => value = self.ended.wait(value).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Tells those who wait, also where making ended in a panic.
struct Maker<'a, V: Clone> {
    memo: &'a Memo<V>,
    key: String,
    making: Arc<Making<V>>,
    made: Option<V>,
}

impl<V: Clone> Drop for Maker<'_, V> {
    fn drop(&mut self) {
        locked(&self.memo.kept).making.remove(&self.key);
        *locked(&self.making.value) = Some(self.made.take());
        self.making.ended.notify_all();
    }
}

impl<V: Clone> Memo<V> {
    pub const fn new(most: usize) -> Self {
        let none = || Mutex::new(Kept { bytes: 0, entries: VecDeque::new(), making: HashMap::new() });
        Self { most: AtomicUsize::new(most), kept: LazyLock::new(none) }
    }

    /// Keeps up to `bytes` from now on, where that is more.
    pub fn grow(&self, bytes: usize) {
        self.most.fetch_max(bytes, Ordering::Relaxed);
    }

    /// What was kept under `key`, else what `make` returns, which is kept where `bytes` of it fit. Of threads that need the same one at once, one
    /// makes it. Errors: `make`'s.
    pub fn get<E>(&self, key: String, make: impl FnOnce() -> Result<V, E>, bytes: impl FnOnce(&V) -> usize) -> Result<V, E> {
        let mut maker = loop {
            let mut kept = locked(&self.kept);
            let entries = &mut kept.entries;
            if let Some(at) = entries.iter().position(|(k, ..)| *k == key) {
                let entry = entries.remove(at).expect("found there");
                let value = entry.2.clone();
                entries.push_back(entry);
                return Ok(value);
            }
            match kept.making.get(&key).cloned() {
                // A thread that computes for others may hold what it would wait for.
                Some(_) if rayon::current_thread_index().is_some() => break None,
                Some(making) => {
                    drop(kept);
                    if let Some(value) = making.wait() {
                        return Ok(value);
                    }
                }
                None => {
                    let making = Arc::new(Making { ended: Condvar::new(), value: Mutex::new(None) });
                    kept.making.insert(key.clone(), Arc::clone(&making));
                    break Some(Maker { memo: self, key: key.clone(), making, made: None });
                }
            }
        };
        let value = make()?;
        let (size, most) = (bytes(&value), self.most.load(Ordering::Relaxed));
        {
            let kept = &mut *locked(&self.kept);
            if size <= most && kept.entries.iter().all(|(k, ..)| *k != key) {
                kept.entries.push_back((key, size, value.clone()));
                kept.bytes += size;
                while kept.bytes > most {
                    kept.bytes -= kept.entries.pop_front().map_or(0, |(_, size, _)| size);
                }
            }
        }
        if let Some(maker) = &mut maker {
            maker.made = Some(value.clone());
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_last_used_are_kept_as_far_as_they_fit() {
        let (memo, made) = (Memo::new(10), Cell::new(0));
        let get = |key: &str, size: usize| {
            let make = || {
                made.set(made.get() + 1);
                Ok::<_, ()>(format!("{key}!"))
            };
            assert_eq!(memo.get(key.into(), make, |_| size), Ok(format!("{key}!")));
            made.get()
        };
        assert_eq!([get("a", 4), get("b", 4), get("a", 4)], [1, 2, 2]);
        // c drives out b, which was used before a.
        assert_eq!([get("c", 4), get("a", 4), get("b", 4)], [3, 3, 4]);
        assert_eq!([get("huge", 11), get("huge", 11)], [5, 6], "what does not fit is not kept");
        assert_eq!(memo.get("d".into(), || Err("no"), |_: &String| 1), Err("no"));
        assert_eq!(get("d", 1), 7, "an error is not kept");
        memo.grow(20);
        memo.grow(5);
        assert_eq!([get("huge", 11), get("huge", 11), get("d", 1)], [8, 8, 8], "it fits now, beside what is there");
    }

    #[test]
    fn of_threads_at_once_one_makes_it_and_a_failure_is_nobodys_else() {
        let (memo, made) = (Memo::new(0), AtomicUsize::new(0));
        let (inside, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        let get = |fails: bool| {
            let make = || {
                made.fetch_add(1, Ordering::Relaxed);
                if fails {
                    inside.wait();
                    go.wait();
                    return Err("no");
                }
                Ok(7)
            };
            memo.get("a".into(), make, |_| 1)
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| get(true));
            inside.wait();
            // They wait for what fails; then one of them makes it, or each in its turn.
            let others: Vec<_> = (0..4).map(|_| scope.spawn(|| get(false))).collect();
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(made.load(Ordering::Relaxed), 1, "nobody else makes it meanwhile");
            go.wait();
            assert_eq!(first.join().unwrap(), Err("no"));
            assert!(others.into_iter().all(|o| o.join().unwrap() == Ok(7)));
        });
        let slow = |memo: &Memo<i32>, count: &AtomicUsize| {
            let make = || {
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(200));
                Ok::<_, ()>(8)
            };
            memo.get("b".into(), make, |_| 1)
        };
        let (kept, count) = (Memo::new(9), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| slow(&kept, &count))).collect();
            assert!(all.into_iter().all(|one| one.join().unwrap() == Ok(8)));
        });
        assert_eq!(count.load(Ordering::Relaxed), 1, "one makes it for all");
    }
}
