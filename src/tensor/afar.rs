//! Numbers that lie elsewhere, on a device, until somebody here asks for them; and a tensor's work that is done where it lies.

use super::{Mark, There};
use crate::{Format, Result};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Brings some of the numbers here, in their order.
pub(crate) type Fetch<T> = Box<dyn Fn(Range<usize>) -> Result<Vec<T>> + Send + Sync>;

/// Numbers that are here, or elsewhere until all of them are asked for.
pub(crate) struct Numbers<T> {
    count: usize,
    here: OnceLock<Vec<T>>,
    fetch: Option<Fetch<T>>,
}

impl<T: Clone + Send + Sync> Numbers<T> {
    pub fn here(all: Vec<T>) -> Self {
        Self { count: all.len(), here: OnceLock::from(all), fetch: None }
    }
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub fn elsewhere(count: usize, fetch: Fetch<T>) -> Self {
        Self { count, here: OnceLock::new(), fetch: Some(fetch) }
    }
    pub fn count(&self) -> usize {
        self.count
    }
    /// All of them, brought here by the first who asks while others wait. Panics where that fails: the case ends with the reason.
    pub fn all(&self) -> &[T] {
        // By a thread of its own: one of rayon's that waits for a copy takes up other work, which may ask for the same numbers.
        let apart = || std::thread::scope(|scope| scope.spawn(|| self.brought(0..self.count)).join());
        self.here.get_or_init(|| apart().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
    /// Some of them; the others stay where they are. Panics as [`Numbers::all`].
    pub fn some(&self, range: Range<usize>) -> Cow<'_, [T]> {
        match self.here.get() {
            Some(all) => Cow::Borrowed(&all[range]),
            None => Cow::Owned(self.brought(range)),
        }
    }
    fn brought(&self, range: Range<usize>) -> Vec<T> {
        let count = range.len();
        let fetch = self.fetch.as_ref().expect("numbers that are not here lie elsewhere");
        match fetch(range) {
            Ok(some) if some.len() == count => some,
            Ok(some) => panic!("{} numbers came from a device where {count} lie", some.len()),
            Err(e) => panic!("numbers could not be brought from a device: {e}"),
        }
    }
    pub fn into_all(self) -> Vec<T> {
        self.all();
        self.here.into_inner().expect("brought above")
    }
}

impl<T: Clone + Send + Sync> Clone for Numbers<T> {
    fn clone(&self) -> Self {
        Self::here(self.all().to_vec())
    }
}

impl<T: Clone + Send + Sync + PartialEq> PartialEq for Numbers<T> {
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl<T: Clone + Send + Sync + std::fmt::Debug> std::fmt::Debug for Numbers<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.all().fmt(f)
    }
}

/// A tensor that lies elsewhere: what a recipe asks of it there. Tiles are row-major, of so many rows and columns, the last ones of what is left.
pub(crate) trait Afar: Send + Sync {
    /// The bits of the largest magnitude of each tile; `None`: a value is not finite.
    fn amax(&self, tile: (usize, usize)) -> Result<Option<Vec<u32>>>;
    /// The codes of RN32(x · scale of its tile) in a narrow float, nearest even, saturating; `scale_inv` of each tile tells which values are ties.
    /// `None`: a format that it does not have.
    fn encode(&self, format: Format, tile: (usize, usize), scale: &[f32], scale_inv: &[f32]) -> Result<Option<FarCodes>>;
}

/// Codes that were made where their values lie.
pub(crate) struct FarCodes {
    pub codes: Numbers<u8>,
    pub there: There,
    /// [`Seen::rows`] and [`Seen::ties`].
    pub rows: Vec<[u32; 256]>,
    pub ties: u64,
}

/// What occurs among the codes of a tensor.
pub(crate) struct Seen {
    /// Whose codes they are.
    pub of: Mark,
    /// How often each code occurs in each row.
    pub rows: Vec<[u32; 256]>,
    /// Values of what they were made of that lay half-way between two codes, by value / scale_inv in f64.
    pub ties: u64,
}

impl Seen {
    /// Which codes occur.
    pub fn present(&self) -> [bool; 256] {
        let mut present = [false; 256];
        for counts in &self.rows {
            present.iter_mut().zip(counts).for_each(|(present, n)| *present |= *n > 0);
        }
        present
    }
}

/// How often each code occurs. Neighbours are counted apart, since one that follows itself would wait for its own count.
pub(crate) fn counts(row: &[u8]) -> [u32; 256] {
    let mut apart = [[0u32; 256]; 4];
    let (fours, rest) = row.as_chunks::<4>();
    for four in fours {
        four.iter().zip(&mut apart).for_each(|(c, counts)| counts[usize::from(*c)] += 1);
    }
    rest.iter().for_each(|c| apart[0][usize::from(*c)] += 1);
    std::array::from_fn(|c| apart.iter().map(|counts| counts[c]).sum())
}

/// So many rows at most, from the first to the last: those that the CPU looks at of what was made elsewhere.
pub(crate) fn looked_at(rows: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = rows.min(most);
    (0..count).map(move |r| r * (rows - 1) / (count - 1).max(1))
}

/// No part of a tensor's value.
pub(crate) struct Beside<T: ?Sized>(pub Option<Arc<T>>);

impl<T: ?Sized> Clone for Beside<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> PartialEq for Beside<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T: ?Sized> std::fmt::Debug for Beside<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "afar" } else { "here" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn numbers_are_brought_once_and_some_of_them_without_the_others() {
        static FETCHED: AtomicUsize = AtomicUsize::new(0);
        let fetch = |range: Range<usize>| {
            FETCHED.fetch_add(range.len(), Ordering::Relaxed);
            Ok(range.map(|i| i as u8 * 3).collect())
        };
        let far = Numbers::elsewhere(9, Box::new(fetch));
        assert_eq!((far.count(), &*far.some(2..4)), (9, &[6, 9][..]));
        assert_eq!(FETCHED.load(Ordering::Relaxed), 2);
        assert_eq!(far.all()[8], 24);
        assert_eq!((far.all().len(), &*far.some(0..1)), (9, &[0][..]));
        assert_eq!(FETCHED.load(Ordering::Relaxed), 11, "all were brought once");
        assert_eq!(far, Numbers::here((0..9).map(|i| i * 3).collect()));
    }

    #[test]
    fn of_threads_that_need_them_at_once_one_brings_them() {
        static FETCHED: AtomicUsize = AtomicUsize::new(0);
        let fetch = |range: Range<usize>| {
            FETCHED.fetch_add(1, Ordering::Relaxed);
            // As a copy does: it waits for threads that do nothing else.
            rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(std::thread::yield_now);
            Ok(range.map(|i| i as u8).collect())
        };
        let far = Numbers::elsewhere(200, Box::new(fetch));
        let seen = crate::parallel::collect(1000, |i| far.all()[i % 200]);
        assert!(seen.iter().enumerate().all(|(i, x)| usize::from(*x) == i % 200));
        assert_eq!(FETCHED.load(Ordering::Relaxed), 1);
    }

    #[test]
    #[should_panic(expected = "2 numbers came from a device where 3 lie")]
    fn numbers_that_are_missing_end_the_case() {
        Numbers::elsewhere(3, Box::new(|_| Ok(vec![1u8, 2]))).all();
    }
}
