//! Loops on all cores. Those over plain elements go band by band, and few elements stay on the thread that has them; those over things that
//! take long each (`collect` and what is made of it) go one by one.
//!
//! They call what they are given through a pointer, so that the program holds rayon's schedule once: a parallel iterator of its own for each
//! loop added 10 kB a loop.

use rayon::prelude::*;
use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements that one thread takes at a time; fewer are not worth a second thread.
pub const BAND: usize = 1 << 15;

/// `f` of every element, in order.
pub fn map<A: Sync, B: Send + Copy>(from: &[A], f: impl Fn(&A) -> B + Sync) -> Vec<B> {
    write(from.len(), |range, out| {
        for (to, x) in out.iter_mut().zip(&from[range]) {
            to.write(f(x));
        }
    })
}

/// A copy.
pub fn copy<T: Copy + Send + Sync>(from: &[T]) -> Vec<T> {
    map(from, |x| *x)
}

/// Copies what is borrowed, and returns what is owned as it is.
pub fn owned<T: Copy + Send + Sync>(all: Cow<[T]>) -> Vec<T> {
    match all {
        Cow::Borrowed(all) => copy(all),
        Cow::Owned(all) => all,
    }
}

/// `f` of every number below `n`, in order, for what is quick.
pub fn numbers<B: Send + Copy>(n: usize, f: impl Fn(usize) -> B + Sync) -> Vec<B> {
    write(n, |range, out| out.iter_mut().zip(range).for_each(|(to, i)| _ = to.write(f(i))))
}

/// `n` elements, made band by band: `f(range, place)` writes every element of its range.
fn write<B: Send + Copy>(n: usize, f: impl Fn(Range<usize>, &mut [MaybeUninit<B>]) + Sync) -> Vec<B> {
    let mut all: Vec<B> = Vec::with_capacity(n);
    let room = &mut all.spare_capacity_mut()[..n];
    change(room, |first, room| f(first..first + room.len(), room));
    // SAFETY: the callers above write every element of their room; what is written needs no drop.
    unsafe { all.set_len(n) };
    all
}

/// Changes every element in its place: `f(first, elements)` on runs of them.
pub fn change<T: Send>(all: &mut [T], f: impl Fn(usize, &mut [T]) + Sync) {
    if all.len() <= BAND {
        f(0, all);
    } else {
        chunks(all, BAND, |band, some| f(band * BAND, some));
    }
}

/// Changes chunks of `width` elements in their places, the last may be shorter: `f(number of the chunk, elements)`.
pub fn chunks<T: Send>(all: &mut [T], width: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    map_chunks(all, width, f);
}

/// The same, with what `f` gives of each.
pub fn map_chunks<T: Send, R: Send>(all: &mut [T], width: usize, f: impl Fn(usize, &mut [T]) -> R + Sync) -> Vec<R> {
    let (n, width, places) = (all.len(), width.max(1), Places(all.as_mut_ptr()));
    collect(n.div_ceil(width), |i| {
        let from = i * width;
        // SAFETY: chunks lie within the slice and apart from each other, and every number is given out once.
        f(i, unsafe { places.some(from, width.min(n - from)) })
    })
}

/// Changes chunks of two slices of one length, side by side.
pub fn chunks_of_both<T: Send>(a: &mut [T], b: &mut [T], width: usize, f: impl Fn(usize, &mut [T], &mut [T]) + Sync) {
    assert_eq!(a.len(), b.len());
    let (n, width, places) = (b.len(), width.max(1), Places(b.as_mut_ptr()));
    chunks(a, width, |i, a| {
        let from = i * width;
        // SAFETY: as above.
        f(i, a, unsafe { places.some(from, width.min(n - from)) })
    });
}

/// The first element of which `f` holds.
pub fn first<T: Sync>(all: &[T], f: impl Fn(&T) -> bool + Sync) -> Option<usize> {
    if all.len() <= BAND {
        return all.iter().position(f);
    }
    let bands: Vec<&[T]> = all.chunks(BAND).collect();
    let band = position(bands.len(), &|band| bands[band].iter().any(&f))?;
    bands[band].iter().position(f).map(|i| band * BAND + i)
}

/// `of` every band, in order, joined from `none` on.
pub fn bands<T: Sync, R: Send>(all: &[T], of: impl Fn(&[T]) -> R + Sync, none: R, join: impl Fn(R, R) -> R) -> R {
    if all.len() <= BAND {
        return of(all);
    }
    let some = |band: usize| of(&all[band * BAND..all.len().min((band + 1) * BAND)]);
    collect(all.len().div_ceil(BAND), some).into_iter().fold(none, join)
}

/// The bits that `f` of any element has.
pub fn or<T: Sync>(all: &[T], f: impl Fn(&T) -> u32 + Sync) -> u32 {
    bands(all, |some| some.iter().fold(0, |bits, x| bits | f(x)), 0, |a, b| a | b)
}

/// The largest value of `f`, and at least `least`. A maximum is the same in any order.
pub fn largest<T: Sync>(all: &[T], least: f32, f: impl Fn(&T) -> f32 + Sync) -> f32 {
    bands(all, |some| some.iter().fold(least, |m, x| m.max(f(x))), least, f32::max)
}

/// Calls `f` with every number below `n`, on all cores.
pub fn for_each(n: usize, f: &(dyn Fn(usize) + Sync)) {
    (0..n).into_par_iter().for_each(f);
}

/// Whether `f` holds of a number below `n`; stops at the first that is seen.
pub fn any(n: usize, f: &(dyn Fn(usize) -> bool + Sync)) -> bool {
    (0..n).into_par_iter().any(f)
}

/// The smallest number below `n` of which `f` holds.
fn position(n: usize, f: &(dyn Fn(usize) -> bool + Sync)) -> Option<usize> {
    (0..n).into_par_iter().find_first(|i| f(*i))
}

/// Where the threads of [`collect`] and [`chunks`] write: every place once.
struct Places<T>(*mut T);

// SAFETY: each place is one thread's, and read by none other before all have ended.
unsafe impl<T: Send> Sync for Places<T> {}

impl<T> Places<T> {
    /// # Safety
    /// `i` is within the room that was reserved, and no other thread writes there.
    unsafe fn put(&self, i: usize, x: T) {
        unsafe { self.0.add(i).write(x) }
    }

    /// # Safety
    /// The elements from `from` on are within the slice, and no other thread has one of them.
    #[allow(clippy::mut_from_ref)]
    unsafe fn some(&self, from: usize, count: usize) -> &mut [T] {
        unsafe { std::slice::from_raw_parts_mut(self.0.add(from), count) }
    }
}

/// `f` of every number below `n`, in order.
pub fn collect<T: Send>(n: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut all: Vec<T> = Vec::with_capacity(n);
    let places = Places(all.as_mut_ptr());
    // SAFETY: room for `n` is reserved, and every number is given out once.
    for_each(n, &|i| unsafe { places.put(i, f(i)) });
    // SAFETY: all are written. A panic in `f` does not come here: what was made is lost then, not dropped.
    unsafe { all.set_len(n) };
    all
}

/// `f` of every number below `n`, in order; `None` where it is `None` of one, and soon.
pub fn every<T: Send>(n: usize, f: impl Fn(usize) -> Option<T> + Sync) -> Option<Vec<T>> {
    let stopped = AtomicBool::new(false);
    let one = |i: usize| {
        if stopped.load(Ordering::Relaxed) {
            return None;
        }
        let x = f(i);
        if x.is_none() {
            stopped.store(true, Ordering::Relaxed);
        }
        x
    };
    collect(n, one).into_iter().collect()
}

/// Runs of [`flat`]: enough that one that takes long holds nobody up.
const RUNS: usize = 256;

/// All that `f` gives of every element, in order: of those that it gives nothing of nothing is kept.
pub fn flat<A: Sync, T: Send, I: IntoIterator<Item = T>>(from: &[A], f: impl Fn(&A) -> I + Sync) -> Vec<T> {
    let run = from.len().div_ceil(RUNS).max(1);
    let of = |n: usize| -> Vec<T> { from[n * run..from.len().min((n + 1) * run)].iter().flat_map(&f).collect() };
    let mut all = collect(from.len().div_ceil(run), of);
    if all.len() == 1 { all.remove(0) } else { all.into_iter().flatten().collect() }
}

/// `f` of the first element of which it is `Some`.
pub fn find<A: Sync, T: Send>(from: &[A], f: impl Fn(&A) -> Option<T> + Sync) -> Option<T> {
    let first: Mutex<Option<(usize, T)>> = Mutex::new(None);
    position(from.len(), &|i| {
        let Some(x) = f(&from[i]) else { return false };
        let mut first = first.lock().unwrap_or_else(|e| e.into_inner());
        if first.as_ref().is_none_or(|(n, _)| i < *n) {
            *first = Some((i, x));
        }
        true
    })?;
    first.into_inner().unwrap_or_else(|e| e.into_inner()).map(|(_, x)| x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_leave_no_trace() {
        for n in [0, 1, BAND - 1, BAND, BAND + 1, 3 * BAND + 7] {
            let all: Vec<u32> = (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
            assert_eq!(map(&all, |x| x / 3), all.iter().map(|x| x / 3).collect::<Vec<_>>());
            assert_eq!(copy(&all), all);
            assert_eq!(numbers(n, |i| all[i] ^ i as u32), all.iter().zip(0u32..).map(|(x, i)| x ^ i).collect::<Vec<_>>());
            let mut rows = all.clone();
            chunks(&mut rows, 1000, |row, some| some.iter_mut().for_each(|x| *x = row as u32));
            assert!(rows.iter().enumerate().all(|(i, x)| *x == (i / 1000) as u32));
            let (mut others, lengths) = (all.clone(), map_chunks(&mut rows, 1000, |_, some| some.len()));
            assert_eq!(lengths, all.chunks(1000).map(<[u32]>::len).collect::<Vec<_>>());
            chunks_of_both(&mut rows, &mut others, 1000, |row, some, other| {
                assert!(some.iter().all(|x| *x == row as u32));
                some.swap_with_slice(other);
            });
            assert_eq!(rows, all);
            assert!(others.iter().enumerate().all(|(i, x)| *x == (i / 1000) as u32));
            let mut changed = all.clone();
            change(&mut changed, |first, some| some.iter_mut().enumerate().for_each(|(i, x)| *x ^= (first + i) as u32));
            assert!(changed.iter().zip(&all).enumerate().all(|(i, (c, x))| *c == x ^ i as u32));
            assert_eq!(first(&all, |x| *x % 1009 == 1008), all.iter().position(|x| *x % 1009 == 1008));
            assert_eq!(or(&all, |x| *x), all.iter().fold(0, |bits, x| bits | x));
            assert_eq!(largest(&all, 0.0, |x| *x as f32), all.iter().fold(0.0, |m: f32, x| m.max(*x as f32)));
        }
    }

    #[test]
    fn one_by_one_all_are_there_in_order() {
        for n in [0, 1, 7, RUNS, RUNS + 1, 10 * RUNS + 3] {
            let all: Vec<usize> = (0..n).map(|i| i * 7 % 31).collect();
            let text = |i: usize| all[i].to_string();
            assert_eq!(collect(n, text), (0..n).map(text).collect::<Vec<_>>());
            let times = |x: &usize| vec![*x; x % 4];
            assert_eq!(flat(&all, times), all.iter().flat_map(times).collect::<Vec<_>>());
            for limit in [5, 100] {
                let below = |i: usize| (all[i] < limit).then(|| text(i));
                assert_eq!(every(n, below), (0..n).map(below).collect::<Option<Vec<_>>>());
                let above = |x: &usize| (*x >= limit).then(|| x.to_string());
                assert_eq!(find(&all, above), all.iter().find_map(above));
                assert_eq!(any(n, &|i| all[i] >= limit), all.iter().any(|x| *x >= limit));
            }
        }
    }

    #[test]
    fn the_first_is_found_however_long_it_takes() {
        let late = |x: &u64| {
            std::thread::sleep(std::time::Duration::from_millis(*x));
            Some(*x)
        };
        // On two threads the second half is found long before the first.
        assert_eq!(find(&[200, 0], late), Some(200));
    }

    #[test]
    fn what_is_dropped_is_dropped_once() {
        let one = std::sync::Arc::new(());
        let all: Vec<std::sync::Arc<()>> = (0..1000).map(|_| one.clone()).collect();
        let held = |n: usize| all[n].clone();
        drop((collect(1000, held), every(1000, |n| (n < 900).then(|| held(n))), flat(&all, |x| Some(x.clone()))));
        drop(find(&all, |x| Some(x.clone())));
        assert_eq!(std::sync::Arc::strong_count(&one), 1001);
    }

    #[test]
    fn a_panic_goes_on_to_the_caller() {
        let of = |n: usize| if n == 77 { panic!("at 77") } else { n };
        assert!(std::panic::catch_unwind(|| collect(100, of)).is_err());
    }
}
