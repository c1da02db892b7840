//! Exact nearest-rank quantiles of numbers that are computed anew each time they are asked for: nothing as long as the sample is kept.
//!
//! The bits of a non-negative f64 ascend with its value. A pass counts the numbers by the first 16 bits that are not settled yet; the
//! bucket of a wanted rank is counted by the next 16, until what is left is short enough to be gathered and sorted out. Counts are
//! added, so the result does not depend on threads or on how the numbers are cut into bands.

use rayon::prelude::*;

/// A sample that can be gone through again and again: `visit(band, see)` hands every number of a band, none negative, to `see`.
pub trait Sample: Sync {
    fn bands(&self) -> usize;
    fn visit(&self, band: usize, see: impl FnMut(f64));
}

/// Numbers that are gathered rather than counted once more.
const FEW: usize = 1 << 16;
/// Bits a pass settles.
const DIGIT: u32 = 16;

/// Nearest-rank quantiles 0.5, 0.99, 0.999 and the maximum of `count` numbers; zeros for an empty sample. A NaN is above ∞.
pub fn quantiles(sample: &impl Sample, count: usize) -> [f64; 4] {
    let ranks: Vec<usize> =
        [500, 990, 999, 1000].iter().filter_map(|per_mille| (count * per_mille).div_ceil(1000).checked_sub(1)).collect();
    let mut result = [0.0; 4];
    for (slot, found) in result.iter_mut().zip(select(sample, Bucket { prefix: 0, settled: 0, count }, &ranks)) {
        *slot = found;
    }
    result
}

/// The numbers whose first `settled` bits are `prefix`.
#[derive(Clone, Copy)]
struct Bucket {
    prefix: u64,
    settled: u32,
    count: usize,
}

impl Bucket {
    fn holds(self, bits: u64) -> bool {
        self.settled == 0 || bits >> (64 - self.settled) == self.prefix
    }
}

/// The numbers of a bucket at these ascending ranks.
fn select(sample: &impl Sample, bucket: Bucket, ranks: &[usize]) -> Vec<f64> {
    if ranks.is_empty() {
        return Vec::new();
    }
    if bucket.settled == 64 {
        return vec![f64::from_bits(bucket.prefix); ranks.len()];
    }
    if bucket.count <= FEW {
        return gathered(sample, bucket, ranks);
    }
    let counts = counted(sample, bucket);
    let (mut found, mut before, mut next) = (Vec::with_capacity(ranks.len()), 0, 0);
    for (digit, count) in counts.into_iter().enumerate() {
        let within: Vec<usize> = ranks[next..].iter().map_while(|r| r.checked_sub(before).filter(|r| *r < count)).collect();
        next += within.len();
        before += count;
        let prefix = bucket.prefix << DIGIT | digit as u64;
        found.extend(select(sample, Bucket { prefix, settled: bucket.settled + DIGIT, count }, &within));
    }
    found
}

/// How many numbers of a bucket have each next digit.
fn counted(sample: &impl Sample, bucket: Bucket) -> Vec<usize> {
    let empty = || vec![0usize; 1 << DIGIT];
    let shift = 64 - bucket.settled - DIGIT;
    let band = |mut counts: Vec<usize>, band: usize| {
        sample.visit(band, |x| {
            let bits = x.to_bits();
            if bucket.holds(bits) {
                counts[(bits >> shift & 0xffff) as usize] += 1;
            }
        });
        counts
    };
    let both = |mut a: Vec<usize>, b: Vec<usize>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    };
    (0..sample.bands())
        .into_par_iter()
        .with_min_len(sample.bands().div_ceil(2 * rayon::current_num_threads()))
        .fold(empty, band)
        .reduce(empty, both)
}

fn gathered(sample: &impl Sample, bucket: Bucket, ranks: &[usize]) -> Vec<f64> {
    let band = |mut few: Vec<f64>, band: usize| {
        sample.visit(band, |x| {
            if bucket.holds(x.to_bits()) {
                few.push(x);
            }
        });
        few
    };
    let both = |mut a: Vec<f64>, mut b: Vec<f64>| {
        a.append(&mut b);
        a
    };
    let mut few = (0..sample.bands()).into_par_iter().fold(Vec::new, band).reduce(Vec::new, both);
    let mut from = 0;
    let one = |rank: &usize| {
        // What a previous selection left below its rank is not larger: search only above it.
        let (_, found, _) = few[from..].select_nth_unstable_by(rank - from, f64::total_cmp);
        from = *rank;
        *found
    };
    ranks.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::philox::Stream;

    struct Bands<'a>(&'a [f64], usize);
    impl Sample for Bands<'_> {
        fn bands(&self) -> usize {
            self.0.len().div_ceil(self.1)
        }
        fn visit(&self, band: usize, mut see: impl FnMut(f64)) {
            self.0.chunks(self.1).nth(band).expect("a band").iter().for_each(|x| see(*x));
        }
    }

    #[test]
    fn they_are_those_of_the_sorted_sample() {
        let stream = Stream::new(5, 5);
        let random =
            |i: usize| f64::from(stream.words(0, i as u64)[0]) * 2f64.powi(-(stream.words(1, i as u64)[0] as i32 & 63));
        let kinds: [&dyn Fn(usize) -> f64; 5] = [
            &random,
            // Nearly all equal, or all: buckets that never become few.
            &|i| if i % 1000 == 0 { random(i) } else { 0.25 },
            &|_| 0.0,
            &|i| if i % 7 == 0 { f64::INFINITY } else { (i % 5) as f64 },
            &|i| if i % 400 == 3 { f64::NAN } else { 1.0 + i as f64 * f64::EPSILON },
        ];
        for n in [0usize, 1, 2, 999, 1000, 1001, 70_000, 300_000] {
            for kind in kinds {
                let v: Vec<f64> = (0..n).map(kind).collect();
                let mut sorted = v.clone();
                sorted.sort_by(f64::total_cmp);
                let want = [500, 990, 999, 1000].map(|p| (n * p).div_ceil(1000).checked_sub(1).map_or(0.0, |i| sorted[i]));
                for band in [257, 65_536, 1 << 20] {
                    assert_eq!(
                        quantiles(&Bands(&v, band), n).map(f64::to_bits),
                        want.map(f64::to_bits),
                        "{n} in bands of {band}"
                    );
                }
            }
        }
    }
}
