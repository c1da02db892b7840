//! Plain loops over many elements on all cores; few elements stay on the thread that has them.

use rayon::prelude::*;
use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ops::Range;

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

/// `n` elements, made band by band: `f(range, place)` writes every element of its range.
fn write<B: Send + Copy>(n: usize, f: impl Fn(Range<usize>, &mut [MaybeUninit<B>]) + Sync) -> Vec<B> {
    let mut all: Vec<B> = Vec::with_capacity(n);
    let room = &mut all.spare_capacity_mut()[..n];
    if n <= BAND {
        f(0..n, room);
    } else {
        let bands = room.par_chunks_mut(BAND).enumerate();
        bands.for_each(|(band, room)| f(band * BAND..band * BAND + room.len(), room));
    }
    // SAFETY: the callers above write every element of their room; what is written needs no drop.
    unsafe { all.set_len(n) };
    all
}

/// Changes every element in its place: `f(first, elements)` on runs of them.
pub fn change<T: Send>(all: &mut [T], f: impl Fn(usize, &mut [T]) + Sync) {
    if all.len() <= BAND {
        f(0, all);
    } else {
        all.par_chunks_mut(BAND).enumerate().for_each(|(band, some)| f(band * BAND, some));
    }
}

/// The first element of which `f` holds.
pub fn first<T: Sync>(all: &[T], f: impl Fn(&T) -> bool + Sync) -> Option<usize> {
    if all.len() <= BAND {
        return all.iter().position(f);
    }
    let of_band = |(band, some): (usize, &[T])| some.iter().position(&f).map(|i| band * BAND + i);
    all.par_chunks(BAND).enumerate().find_map_first(of_band)
}

/// The bits that `f` of any element has.
pub fn or<T: Sync>(all: &[T], f: impl Fn(&T) -> u32 + Sync) -> u32 {
    let of = |some: &[T]| some.iter().fold(0, |bits, x| bits | f(x));
    if all.len() <= BAND { of(all) } else { all.par_chunks(BAND).map(of).reduce(|| 0, |a, b| a | b) }
}

/// The largest value of `f`, and at least `least`. A maximum is the same in any order.
pub fn largest<T: Sync>(all: &[T], least: f32, f: impl Fn(&T) -> f32 + Sync) -> f32 {
    let of = |some: &[T]| some.iter().fold(least, |m, x| m.max(f(x)));
    if all.len() <= BAND { of(all) } else { all.par_chunks(BAND).map(of).reduce(|| least, f32::max) }
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
            let mut changed = all.clone();
            change(&mut changed, |first, some| some.iter_mut().enumerate().for_each(|(i, x)| *x ^= (first + i) as u32));
            assert!(changed.iter().zip(&all).enumerate().all(|(i, (c, x))| *c == x ^ i as u32));
            assert_eq!(first(&all, |x| *x % 1009 == 1008), all.iter().position(|x| *x % 1009 == 1008));
            assert_eq!(or(&all, |x| *x), all.iter().fold(0, |bits, x| bits | x));
            assert_eq!(largest(&all, 0.0, |x| *x as f32), all.iter().fold(0.0, |m: f32, x| m.max(*x as f32)));
        }
    }
}
