//! Exact nearest-rank quantiles of numbers that are computed anew each time they are asked for: nothing of the sample's length is
//! stored.
//!
//! A few numbers, drawn at even distances, say between which two the wanted rank is likely to lie; one pass over all counts what is below
//! and gathers what is between. Where the rank was not between them, they are moved apart. Counts are added and what is gathered is put in
//! order, so the result does not depend on threads, on bands, or on what was drawn.

use super::judged::{LANES, bands};
use crate::format::simd::best;
use std::ops::Range;

/// A sample that can be gone through again and again: `visit(range, see)` hands the numbers of these places to `see`, some at a time, none
/// negative; a NaN is no number.
pub trait Sample: Sync {
    fn places(&self) -> usize;
    fn visit(&self, range: Range<usize>, see: impl FnMut(&[f64]));
}

/// Numbers that are drawn at least; as many or fewer are all put in order.
pub(crate) const FEW: usize = 1 << 12;

/// How many of `places` are drawn, a multiple of [`LANES`]: more cost more to put in order, fewer leave more between the two numbers.
pub(crate) fn drawn_of(places: usize) -> usize {
    (places / 16).next_multiple_of(LANES).clamp(FEW, 1 << 16)
}

/// Nearest-rank quantiles 0.5, 0.99, 0.999 and the maximum of the `count` numbers of each of two samples of the same places, gone through
/// together; zeros for an empty one.
pub fn quantiles<A: Sample, B: Sample>((a, of_a): (&A, usize), (b, of_b): (&B, usize)) -> ([f64; 4], [f64; 4]) {
    let (mut first, mut second) = (Search::of(a, of_a), Search::of(b, of_b));
    loop {
        if let (Some(first), Some(second)) = (first.answer(), second.answer()) {
            return (first, second);
        }
        let (seen, seen_too) = pass(a, b, &first.between(), &second.between());
        first.take(seen);
        second.take(seen_too);
    }
}

/// What is known of the quantiles of a sample.
pub(crate) struct Search {
    count: usize,
    drawn: Vec<f64>,
    deviations: f64,
    found: [Option<f64>; 3],
    largest: f64,
}

impl Search {
    fn of(sample: &impl Sample, count: usize) -> Self {
        let drawn = if count == 0 { Vec::new() } else { draw(sample) };
        Self { count, drawn, deviations: 4.0, found: [None; 3], largest: 0.0 }
    }
    /// Of `count` numbers, of which these were drawn; NaN is no number.
    pub(crate) fn drawn(count: usize, mut drawn: Vec<f64>) -> Self {
        drawn.retain(|x| !x.is_nan());
        drawn.sort_unstable_by(f64::total_cmp);
        Self { count, drawn, deviations: 4.0, found: [None; 3], largest: 0.0 }
    }
    fn ranks(&self) -> [usize; 3] {
        [500, 990, 999].map(|per_mille| (self.count * per_mille).div_ceil(1000) - 1)
    }
    /// Between which two numbers each rank is looked for next.
    pub(crate) fn between(&self) -> [(f64, f64); 3] {
        if self.answer().is_some() {
            return [(0.0, 0.0); 3];
        }
        self.ranks().map(|rank| around(&self.drawn, rank as f64 / self.count as f64, self.deviations))
    }
    /// What a pass saw there.
    pub(crate) fn take(&mut self, (largest, between): Seen) {
        if self.answer().is_some() {
            return;
        }
        self.largest = largest;
        let ranks = self.ranks();
        for ((slot, rank), between) in self.found.iter_mut().zip(ranks).zip(between) {
            *slot = slot.or_else(|| between.at(rank));
        }
        self.deviations *= 16.0;
    }
    pub(crate) fn answer(&self) -> Option<[f64; 4]> {
        match self.found {
            _ if self.count == 0 => Some([0.0; 4]),
            [Some(a), Some(b), Some(c)] => Some([a, b, c, self.largest]),
            _ => None,
        }
    }
}

/// Numbers at even distances, in order.
fn draw(sample: &impl Sample) -> Vec<f64> {
    let n = sample.places();
    let mut drawn = Vec::new();
    let mut see = |numbers: &[f64]| drawn.extend(numbers.iter().filter(|x| !x.is_nan()));
    if n <= FEW {
        sample.visit(0..n, &mut see);
    } else {
        let pieces = drawn_of(n) / LANES;
        (0..pieces).map(|i| i * (n - LANES) / (pieces - 1)).for_each(|from| sample.visit(from..from + LANES, &mut see));
    }
    drawn.sort_unstable_by(f64::total_cmp);
    drawn
}

/// The numbers among those drawn that this share lies between but for so many deviations of a draw: 0 and ∞ beyond their ends.
fn around(drawn: &[f64], share: f64, deviations: f64) -> (f64, f64) {
    let n = drawn.len() as f64;
    let (middle, reach) = (share * n, deviations * (n * share * (1.0 - share)).sqrt() + 8.0);
    let low = if middle - reach < 0.0 { 0.0 } else { drawn[(middle - reach) as usize] };
    (low, drawn.get((middle + reach) as usize).copied().unwrap_or(f64::INFINITY))
}

/// What lies below and at two numbers, and what between them.
#[derive(Default)]
pub(crate) struct Between {
    pub low: f64,
    pub high: f64,
    pub below: usize,
    pub at_low: usize,
    pub at_high: usize,
    pub inside: Vec<f64>,
}

impl Between {
    fn see(&mut self, numbers: &[f64]) {
        let Counts { below, at_low, at_high, inside } = count(numbers, self.low, self.high);
        self.below += below as usize;
        self.at_low += at_low as usize;
        self.at_high += at_high as usize;
        if inside > 0 {
            // Every number is put down, and kept where it belongs: no branch on values.
            let from = self.inside.len();
            self.inside.resize(from + numbers.len(), 0.0);
            let (place, mut kept) = (&mut self.inside[from..], 0);
            for x in numbers {
                place[kept] = *x;
                kept += usize::from((self.low < *x) & (*x < self.high));
            }
            self.inside.truncate(from + inside as usize);
        }
    }
    fn and(mut self, mut other: Self) -> Self {
        self.below += other.below;
        self.at_low += other.at_low;
        self.at_high += other.at_high;
        self.inside.append(&mut other.inside);
        self
    }
    /// The number at this rank, where it is one of these.
    fn at(mut self, rank: usize) -> Option<f64> {
        let rank = rank.checked_sub(self.below)?;
        let Some(rank) = rank.checked_sub(self.at_low) else { return Some(self.low) };
        match rank.checked_sub(self.inside.len()) {
            None => Some(*self.inside.select_nth_unstable_by(rank, f64::total_cmp).1),
            Some(rank) => (rank < self.at_high).then_some(self.high),
        }
    }
}

#[derive(Default)]
struct Counts {
    below: u64,
    at_low: u64,
    at_high: u64,
    inside: u64,
}

best! {
    fn count(numbers: &[f64], low: f64, high: f64) -> Counts => count_each;
}

#[inline(always)]
fn count_each(numbers: &[f64], low: f64, high: f64) -> Counts {
    let mut c = Counts::default();
    for x in numbers {
        c.below += u64::from(*x < low);
        c.at_low += u64::from(*x == low);
        c.at_high += u64::from((*x == high) & (low < high));
        c.inside += u64::from((low < *x) & (*x < high));
    }
    c
}

/// The largest number, and what lies between each two.
pub(crate) type Seen = (f64, [Between; 3]);

fn pass<A: Sample, B: Sample>(a: &A, b: &B, of_a: &[(f64, f64); 3], of_b: &[(f64, f64); 3]) -> (Seen, Seen) {
    let nothing = |between: &[(f64, f64); 3]| (0.0, between.map(|(low, high)| Between { low, high, ..Between::default() }));
    fn see(sample: &impl Sample, range: Range<usize>, (mut largest, mut all): Seen) -> Seen {
        sample.visit(range, |numbers| {
            largest = numbers.iter().fold(largest, |m, x| m.max(*x));
            all.iter_mut().for_each(|b| b.see(numbers));
        });
        (largest, all)
    }
    let both = |(x, a): Seen, (y, b): Seen| {
        let mut b = b.into_iter();
        (x.max(y), a.map(|a| a.and(b.next().expect("as many"))))
    };
    let empty = || (nothing(of_a), nothing(of_b));
    let band = |range: Range<usize>| (see(a, range.clone(), nothing(of_a)), see(b, range, nothing(of_b)));
    bands(a.places(), band).into_iter().fold(empty(), |x, y| (both(x.0, y.0), both(x.1, y.1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::philox::Stream;

    struct Pieces<'a>(&'a [f64], usize);
    impl Sample for Pieces<'_> {
        fn places(&self) -> usize {
            self.0.len()
        }
        fn visit(&self, range: Range<usize>, see: impl FnMut(&[f64])) {
            self.0[range].chunks(self.1).for_each(see);
        }
    }

    #[test]
    fn they_are_those_of_the_sorted_sample() {
        let stream = Stream::new(5, 5);
        let random =
            |i: usize| f64::from(stream.words(0, i as u64)[0]) * 2f64.powi(-(stream.words(1, i as u64)[0] as i32 & 63));
        let kinds: [&dyn Fn(usize) -> f64; 6] = [
            &random,
            // Nearly all equal, or all.
            &|i| if i % 1000 == 0 { random(i) } else { 0.25 },
            &|_| 0.0,
            &|i| if i % 7 == 0 { f64::INFINITY } else { (i % 5) as f64 },
            &|i| if i % 400 == 3 { f64::NAN } else { 1.0 + i as f64 * f64::EPSILON },
            // What is drawn at even distances says nothing of the rest.
            &|i| if (i / LANES).is_multiple_of(3) { random(i) } else { 1e300 - 1e290 * i as f64 },
        ];
        for n in [0usize, 1, 2, 999, 1000, 1001, 70_000, 300_000] {
            for kind in kinds {
                let v: Vec<f64> = (0..n).map(kind).collect();
                let mut sorted: Vec<f64> = v.iter().copied().filter(|x| !x.is_nan()).collect();
                sorted.sort_by(f64::total_cmp);
                let n = sorted.len();
                let want = [500, 990, 999, 1000].map(|p| (n * p).div_ceil(1000).checked_sub(1).map_or(0.0, |i| sorted[i]));
                for piece in [257, 65_536, 1 << 20] {
                    let sample = Pieces(&v, piece);
                    let bits = |all: [f64; 4]| all.map(f64::to_bits);
                    // Beside itself, and beside nothing.
                    let (first, second) = quantiles((&sample, n), (&sample, n));
                    assert_eq!((bits(first), bits(second)), (bits(want), bits(want)), "{n} in pieces of {piece}");
                    assert_eq!(bits(quantiles((&sample, n), (&sample, 0)).0), bits(want), "{n} in pieces of {piece}");
                }
            }
        }
    }

    /// 4 standard deviations of a draw and 8 places more to both sides, here 71 and 12 places.
    #[test]
    fn a_share_lies_between_two_of_those_drawn() {
        let drawn: Vec<f64> = (0..1000).map(f64::from).collect();
        assert_eq!(around(&drawn, 0.5, 4.0), (428.0, 571.0));
        assert_eq!(around(&drawn, 0.001, 4.0), (0.0, 12.0));
        assert_eq!(around(&drawn, 0.999, 4.0), (987.0, f64::INFINITY));
        assert_eq!(around(&drawn[500..], 0.001, 4.0).0, 0.0);
    }

    /// What was drawn is wrong about all the rest: the two numbers are moved apart until the rank is between them.
    #[test]
    fn a_rank_beside_what_was_drawn_is_found() {
        struct Odd(usize);
        impl Sample for Odd {
            fn places(&self) -> usize {
                self.0
            }
            fn visit(&self, range: Range<usize>, mut see: impl FnMut(&[f64])) {
                // A draw asks for few places at a time.
                let drawing = range.len() == LANES;
                range.for_each(|i| see(&[if drawing { 1e-9 * i as f64 } else { i as f64 }]));
            }
        }
        let n = 200_000;
        assert_eq!(quantiles((&Odd(n), n), (&Odd(n), 0)).0, [99_999.0, 197_999.0, 199_799.0, 199_999.0]);
    }

    #[test]
    fn nan_is_not_among_those_drawn() {
        let search = Search::drawn(5, vec![3.0, f64::NAN, 1.0, -f64::NAN, 2.0]);
        assert_eq!(search.drawn, [1.0, 2.0, 3.0]);
    }

    /// One in sixteen, in whole loops over lanes: 4096 at least and 65,536 at most.
    #[test]
    fn as_many_are_drawn_as_are_needed() {
        let drawn = [1, 16 * 4096, 16 * 4097, 16 * 5000, 1 << 20, (1 << 20) + 16, 1 << 30].map(drawn_of);
        assert_eq!(drawn, [4096, 4096, 4352, 5120, 1 << 16, 1 << 16, 1 << 16]);
    }

    /// From the first to the last place, at even distances, in order.
    #[test]
    fn what_is_drawn_is_spread_over_all_places() {
        let of = |n: usize| {
            let v: Vec<f64> = (0..n).map(|i| (n - i) as f64).collect();
            draw(&Pieces(&v, 100))
        };
        assert_eq!(of(3), [1.0, 2.0, 3.0]);
        assert_eq!(of(FEW).len(), FEW);
        let n = 100_000;
        let drawn = of(n);
        let place = |i: usize| i * (n - LANES) / 24;
        let expected = (0..25).rev().flat_map(|i| (0..LANES).rev().map(move |j| (n - place(i) - j) as f64));
        assert_eq!(drawn.len(), 25 * LANES);
        assert!(drawn.iter().copied().eq(expected));
        // A NaN is no number.
        assert_eq!(draw(&Pieces(&[2.0, f64::NAN, 1.0], 2)), [1.0, 2.0]);
    }

    /// Below, at and between two numbers; where both are one, it is counted once.
    #[test]
    fn a_rank_is_below_at_or_between_two_numbers() {
        let between = |low: f64, high: f64| {
            let mut b = Between { low, high, ..Between::default() };
            [&[0.5, 1.0, 2.5, 3.0][..], &[1.0, 2.0, 4.0, f64::NAN]].iter().for_each(|x| b.see(x));
            b
        };
        let b = between(1.0, 3.0);
        assert_eq!((b.below, b.at_low, b.at_high, &b.inside), (1, 2, 1, &vec![2.5, 2.0]));
        let at = |rank: usize| between(1.0, 3.0).at(rank);
        let all = [None, Some(1.0), Some(1.0), Some(2.0), Some(2.5), Some(3.0), None];
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(at), all);
        let one = between(1.0, 1.0);
        assert_eq!((one.below, one.at_low, one.at_high, one.inside.len()), (1, 2, 0, 0));
        let both = between(1.0, 3.0).and(between(1.0, 3.0));
        assert_eq!((both.below, both.at_low, both.at_high, both.inside), (2, 4, 2, vec![2.5, 2.0, 2.5, 2.0]));
    }

    /// Ranks are from 0: ⌈count·share⌉ − 1.
    #[test]
    fn what_is_not_found_is_looked_for_further_apart() {
        let mut search = Search::drawn(1000, (0..100).map(f64::from).collect());
        assert_eq!(search.ranks(), [499, 989, 998]);
        assert_eq!(Search::drawn(1001, Vec::new()).ranks(), [500, 990, 999]);
        let reach = |share: f64, deviations: f64| deviations * (100.0 * share * (1.0 - share)).sqrt() + 8.0;
        let first = search.between();
        assert_eq!(first[0], ((49.9 - reach(0.499, 4.0)).floor(), (49.9 + reach(0.499, 4.0)).floor()));
        // Two of three are found: the next look is for the third alone.
        let at = |low: f64, below: usize, at_low: usize| Between { low, high: low, below, at_low, ..Between::default() };
        search.take((7.0, [at(5.0, 490, 20), at(6.0, 900, 10), at(7.0, 998, 1)]));
        assert_eq!((search.answer(), search.found), (None, [Some(5.0), None, Some(7.0)]));
        assert_eq!(search.between()[0], (0.0, f64::INFINITY), "sixteen times as far");
        search.take((9.0, [at(1.0, 0, 1000), at(6.0, 980, 10), at(8.0, 0, 1000)]));
        assert_eq!(search.answer(), Some([5.0, 6.0, 7.0, 9.0]));
        // What is answered is not asked again.
        search.take((11.0, [at(1.0, 0, 1000), at(1.0, 0, 1000), at(1.0, 0, 1000)]));
        assert_eq!((search.answer(), search.between()), (Some([5.0, 6.0, 7.0, 9.0]), [(0.0, 0.0); 3]));
        assert_eq!(Search::drawn(0, Vec::new()).answer(), Some([0.0; 4]));
    }
}
