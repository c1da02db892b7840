//! What the last cases drew and defined, kept for the next: cases of a table differ in their recipes more often than in their data.

use std::collections::VecDeque;
use std::sync::Mutex;

/// The latest values made, up to so many bytes of them together.
pub struct Memo<V> {
    most: usize,
    kept: Mutex<Kept<V>>,
}

struct Kept<V> {
    bytes: usize,
    /// The last used at the end.
    entries: VecDeque<(String, usize, V)>,
}

impl<V: Clone> Memo<V> {
    pub const fn new(most: usize) -> Self {
        Self { most, kept: Mutex::new(Kept { bytes: 0, entries: VecDeque::new() }) }
    }

    /// What was kept under `key`, else what `make` returns, which is kept where `bytes` of it fit. Two threads that need the same one at
    /// once both make it. Errors: `make`'s.
    pub fn get<E>(&self, key: String, make: impl FnOnce() -> Result<V, E>, bytes: impl FnOnce(&V) -> usize) -> Result<V, E> {
        let lock = || self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        {
            let entries = &mut lock().entries;
            if let Some(at) = entries.iter().position(|(k, ..)| *k == key) {
                let entry = entries.remove(at).expect("found there");
                let value = entry.2.clone();
                entries.push_back(entry);
                return Ok(value);
            }
        }
        let value = make()?;
        let size = bytes(&value);
        let kept = &mut *lock();
        if size <= self.most && kept.entries.iter().all(|(k, ..)| *k != key) {
            kept.entries.push_back((key, size, value.clone()));
            kept.bytes += size;
            while kept.bytes > self.most {
                kept.bytes -= kept.entries.pop_front().map_or(0, |(_, size, _)| size);
            }
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
    }
}
