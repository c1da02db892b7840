//! Whether a result has anything to do with the right one, or with what a theory says: correlations over many elements, in units of what each may sum.
//!
//! Scales, zero points, lost parts of K and roundings leave a good part of the right sums in a result; another order of codes and another place leave
//! none. Where the correlation is certainly small, what would leave more of it is not searched for.
//!
//! An upper limit is four standard deviations of chance above what is found: a mechanism that leaves a correlation of [`LEAST`] is missed once in
//! thirty thousand.

use super::system::{System, Theory};

/// Elements that a correlation is taken of, at most.
const LOOKS: usize = 4096;
/// Standard deviations of an upper limit.
const SIGMAS: f64 = 4.0;
/// What every mechanism that keeps the right sums leaves of their correlation.
const LEAST: f64 = 0.25;
/// A number counts as so many times the median at most: a few that are far off do not hide the others.
const MOST: f64 = 4.0;

/// The largest correlation that pairs of numbers may have; 1 where they are too few to say.
pub fn at_most(mut x: Vec<f64>, mut y: Vec<f64>) -> f64 {
    let n = x.len() as f64;
    if n < 8.0 || !clamp(&mut x) || !clamp(&mut y) {
        return 1.0;
    }
    let r = super::pairs::correlation(&x, &y).abs().min(1.0);
    (r.atanh() + SIGMAS / (n - 3.0).sqrt()).tanh()
}

/// Clamps numbers to [`MOST`] of their median magnitude. `false`: there is none, or something is no number.
fn clamp(x: &mut [f64]) -> bool {
    let mut sizes: Vec<f64> = x.iter().map(|x| x.abs()).collect();
    if sizes.iter().any(|x| x.is_nan()) {
        return false;
    }
    let (_, median, _) = sizes.select_nth_unstable_by(x.len() / 2, f64::total_cmp);
    let most = MOST * *median;
    let is_number = most > 0.0 && most.is_finite();
    if is_number {
        x.iter_mut().for_each(|x| *x = x.clamp(-most, most));
    }
    is_number
}

/// Whether the wrong elements have nothing to do with the right ones.
pub fn is_unlike(s: &System) -> bool {
    let wrong = |at: usize| s.is_wrong[at] && s.actual[at].is_finite() && s.ideal[at].is_finite();
    let count = (0..s.is_wrong.len()).filter(|at| wrong(*at)).count();
    // An odd step meets all columns.
    let step = (count / LOOKS).max(1);
    let some: Vec<usize> = (0..s.is_wrong.len()).filter(|at| wrong(*at)).step_by(step | usize::from(step > 1)).collect();
    let unit = units(s, &some);
    let of = |of: &[f64]| some.iter().zip(&unit).map(|(at, u)| (of[*at] - s.bias.at(at / s.cols, at % s.cols)) / u).collect();
    at_most(of(s.actual), of(&s.ideal)) < LEAST
}

/// What each element may sum; 1 where sums are exact.
fn units(s: &System, places: &[usize]) -> Vec<f64> {
    let all: Vec<f64> = places.iter().map(|at| s.certain(*at)).collect();
    if all.iter().all(|u| *u > 0.0 && u.is_finite()) { all } else { vec![1.0; all.len()] }
}

/// Whether a theory leaves each code where it is, with about the value that it has: what it says is like the right result.
pub fn keeps(t: &Theory) -> bool {
    let side = |x: &super::given::Side| x.code.is_none() && x.table.is_none() && x.value.is_none();
    side(&t.a)
        && side(&t.b)
        && t.from.is_none()
        && t.expert.is_none()
        && t.finish.is_none()
        && t.k.is_none()
        && t.patch.is_none()
}

/// Whether a theory that only moves the result makes something that what was written may be a part of, or a multiple.
pub fn may_be_moved(s: &System, t: &Theory) -> bool {
    const PLACES: usize = 640;
    let Some(from) = t.from.as_ref().filter(|_| t.sums_right() && t.finish.is_none() && t.region.is_none()) else {
        return true;
    };
    let n = s.is_wrong.len();
    let step = (n / PLACES).max(1) | 1;
    let (mut x, mut y) = (Vec::with_capacity(PLACES + 1), Vec::with_capacity(PLACES + 1));
    for at in (0..n).step_by(step).filter(|at| s.is_wrong[*at]) {
        let Some((i, j)) = from(at / s.cols, at % s.cols).filter(|(i, j)| *i < s.rows && *j < s.cols) else { continue };
        let to = i * s.cols + j;
        let (written, right, unit) =
            (s.actual[at] - s.bias.at(at / s.cols, at % s.cols), s.ideal[to] - s.bias.at(i, j), s.certain(to));
        let unit = if unit > 0.0 { unit } else { 1.0 };
        if written.is_finite() && right.is_finite() {
            x.push(written / unit);
            y.push(right / unit);
        }
    }
    at_most(x, y) >= LEAST
}

/// Elements that theories are compared with the right result on, and how much more of what was written they may leave than it.
const FEW: usize = 12;
const LEAVES: f64 = 8.0;

/// What the right result leaves of a few elements, times one number: what theories are held against. A first fault, on top of which the whole or lines
/// of it have another gain, leaves no more than the right result: both lack the gains, that one lacks the first fault too. Of twelve elements eight
/// times as much is left by chance once in two thousand.
pub struct Few {
    /// Places, what was written, and the unit of each.
    written: Vec<(usize, usize, f64, f64)>,
    most: f64,
}

impl Few {
    pub fn of(s: &System) -> Self {
        let place = |(i, j): &(usize, usize)| {
            let at = i * s.cols + j;
            let unit = units(s, &[at])[0];
            (*i, *j, (s.actual[at] - s.bias.at(*i, *j)) / unit, unit)
        };
        let written: Vec<_> = s.wrong_probes(FEW).iter().map(place).collect();
        let mut few = Self { written, most: 1.0 };
        few.most = LEAVES * few.left(s, &Theory::right());
        few
    }

    /// The share of what was written that a theory leaves, times the best number.
    fn left(&self, s: &System, t: &Theory) -> f64 {
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for (i, j, y, unit) in &self.written {
            let x = s.value(t, *i, *j).map_or(0.0, |v| (v.0 - s.bias.at(*i, *j)) / unit);
            (xx, xy, yy) = (xx + x * x, xy + x * y, yy + y * y);
        }
        if xx > 0.0 && yy > 0.0 { 1.0 - xy * xy / (xx * yy) } else { 1.0 }
    }

    /// Whether a theory may be a first fault.
    pub fn may_be_first(&self, s: &System, t: &Theory) -> bool {
        self.written.len() < FEW || self.most >= 1.0 || !(self.left(s, t) > self.most)
    }
}

/// Whether positive gains of parts of what a theory sums may have made what was written: they leave half of the correlation at least. Of the first
/// elements; one in two hundred is missed.
pub fn may_have_gains(s: &System, t: &Theory) -> bool {
    const LOOKS: usize = 48;
    let places: Vec<usize> = s.wrong_probes(LOOKS).iter().map(|(i, j)| i * s.cols + j).collect();
    let unit = units(s, &places);
    let numbers = |of: &dyn Fn(usize) -> f64| -> Vec<f64> {
        places.iter().zip(&unit).map(|(at, unit)| (of(*at) - s.bias.at(at / s.cols, at % s.cols)) / unit).collect()
    };
    let mut x = numbers(&|at| s.actual[at]);
    let mut y = numbers(&|at| s.value(t, at / s.cols, at % s.cols).map_or(0.0, |v| v.0));
    if x.len() < LOOKS / 2 || !clamp(&mut x) || !clamp(&mut y) {
        return true;
    }
    super::pairs::correlation(&x, &y).min(1.0 - 1e-12).atanh() * (x.len() as f64 - 3.0).sqrt() > 1.0
}

/// Elements that a first fault of two is checked on, which it was not found by: at first, and where these leave it open; standard deviations that it
/// has to be beyond the right result, and below which it is refused at once. Of the few theories that chance brings nearest one in a thousand passes; a
/// first fault that makes a tenth of the error is missed once in three, one that makes a fifth never.
const FRESH: usize = 512;
const MORE: usize = 4096;
const BEYOND: f64 = 3.0;
const HOPELESS: f64 = 1.0;

/// Whether what was written is more like what a theory says than like the right result: on elements that the theory was not chosen by. How near it is
/// says less: to numbers that are like neither, smaller ones are nearer.
pub fn is_better(s: &System, t: &Theory, fresh: &[usize]) -> bool {
    // Too few to say.
    if fresh.len() < FRESH / 4 {
        return true;
    }
    let mut made = Made::default();
    for range in [0..fresh.len().min(FRESH), fresh.len().min(FRESH)..fresh.len().min(MORE)] {
        made.add(s, t, &fresh[range]);
        let z = made.beyond();
        // Of a NaN neither is said.
        let (beyond, hopeless) = (z > BEYOND, z < HOPELESS);
        if beyond || hopeless {
            return beyond;
        }
    }
    false
}

/// The wrong elements that a first fault is checked on: none that it was found by.
pub fn fresh(s: &System) -> Vec<usize> {
    let probes: std::collections::HashSet<usize> = s.probes.iter().map(|(i, j)| i * s.cols + j).collect();
    let wrong = |at: &usize| s.is_wrong[*at] && s.actual[*at].is_finite();
    let mut fresh = super::segment::spread_where(s.is_wrong.len(), &wrong, MORE + probes.len());
    fresh.retain(|at| !probes.contains(at));
    fresh
}

/// What was written, what is right and what a theory says of some elements, in units of what each may sum.
#[derive(Default)]
struct Made {
    written: Vec<f64>,
    right: Vec<f64>,
    made: Vec<f64>,
}

impl Made {
    fn add(&mut self, s: &System, t: &Theory, places: &[usize]) {
        for (at, unit) in places.iter().zip(units(s, places)) {
            let (i, j) = (at / s.cols, at % s.cols);
            let number = |x: f64| if x.is_finite() { (x - s.bias.at(i, j)) / unit } else { 0.0 };
            self.written.push(number(s.actual[*at]));
            self.right.push(number(s.ideal[*at]));
            self.made.push(s.value(t, i, j).map_or(0.0, |v| number(v.0)));
        }
    }

    /// How much more like a theory it is than like the right result, in standard deviations of no correlation.
    fn beyond(&self) -> f64 {
        let like = |x: &[f64]| -> f64 {
            let (mut x, mut y) = (x.to_vec(), self.written.clone());
            let clamped = clamp(&mut x) && clamp(&mut y);
            if clamped { super::pairs::correlation(&x, &y).abs().min(1.0 - 1e-12).atanh() } else { 0.0 }
        };
        (like(&self.made) - like(&self.right)) * (self.made.len() as f64 - 3.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, of_system, sum, wide};

    /// Numbers without order, of a variance of one.
    fn wild(n: usize, seed: u64) -> Vec<f64> {
        let one = |at: usize| {
            let mut x =
                (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed.wrapping_mul(0xD1B5_4A32_D192_ED03));
            let mut next = || {
                x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) ^ (x >> 31);
                x as f64 / u64::MAX as f64 - 0.5
            };
            (0..12).map(|_| next()).sum()
        };
        (0..n).map(one).collect()
    }

    #[test]
    fn a_part_of_the_right_result_is_never_taken_for_none() {
        let mut refused = 0;
        for seed in 0..400 {
            let (x, y) = (wild(1000, 2 * seed), wild(1000, 2 * seed + 1));
            // A correlation of a third.
            let part: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x / 3.0 + y * (8.0f64 / 9.0).sqrt()).collect();
            assert!(at_most(x.clone(), part) >= LEAST, "{seed}");
            refused += usize::from(at_most(x, y) < LEAST);
        }
        assert!(refused > 390, "{refused} of 400");
    }

    #[test]
    fn a_product_of_other_weights_is_unlike_and_one_of_other_scales_is_not() {
        let (a, b, other) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 5), codes(Format::E4m3, N, 64, 64, false, 905));
        let (x, y, z) = (a.to_f64(), b.dequantize(), other.dequantize());
        let of_others = |i: usize, j: usize| sum(64, |k| x[[i, k]] * z[[j, k]]);
        assert!(of_system(&a, &b, Format::Bf16, |i, j, _| of_others(i, j), is_unlike));
        let step = |j: usize| f64::from(b.scale_inv()[j]);
        let shifted = |i: usize, j: usize| sum(64, |k| x[[i, k]] * y[[j, k]]) * step((j + 5) % N) / step(j);
        assert!(!of_system(&a, &b, Format::Bf16, |i, j, _| shifted(i, j), is_unlike));
    }

    #[test]
    fn a_first_fault_is_told_from_what_leaves_more_than_the_right_result() {
        let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 6));
        let (x, y) = (a.to_f64(), b.dequantize());
        let step = |j: usize| f64::from(b.scale_inv()[j]);
        // Scales of five columns on, and a gain of the whole.
        let wrong = |i: usize, j: usize| 1.3 * sum(64, |k| x[[i, k]] * y[[j, k]]) * step((j + 5) % N) / step(j);
        let steps: Vec<f64> = (0..N).map(step).collect();
        let (first, moved) = of_system(
            &a,
            &b,
            Format::Bf16,
            |i, j, _| wrong(i, j),
            |s| {
                let theory = || Theory::new(crate::fault::Class::ScaleShared, "b", "b", "");
                let (mut first, mut moved) = (theory(), theory());
                first.b.scaled(64, std::sync::Arc::new(move |j, _| steps[(j + 5) % N]));
                moved.from = Some(std::sync::Arc::new(|i, j| Some(((i + 3) % M, (j + 7) % N))));
                let few = Few::of(s);
                let of = |t: &Theory| {
                    [few.may_be_first(s, t), may_have_gains(s, t), may_be_moved(s, t), is_better(s, t, &fresh(s)), keeps(t)]
                };
                (of(&first), of(&moved))
            },
        );
        assert_eq!(first, [true, true, true, true, true]);
        assert_eq!(moved[2..], [false, false, false]);
    }

    #[test]
    fn what_is_smaller_is_no_more_like() {
        let (written, right, other) = (wild(600, 1), wild(600, 2), wild(600, 3));
        let small = |x: &[f64]| x.iter().map(|x| 0.01 * x).collect::<Vec<f64>>();
        let mut made = Made { written: written.clone(), right: right.clone(), made: small(&right) };
        assert!(made.beyond().abs() < 1e-6);
        made.made = small(&other);
        assert!(made.beyond() < BEYOND);
        made.made = written.iter().zip(&other).map(|(x, y)| x + 2.0 * y).collect();
        assert!(made.beyond() > BEYOND);
    }

    #[test]
    fn a_few_numbers_far_off_do_not_hide_the_others() {
        let (x, mut y) = (wild(1000, 5), wild(1000, 5));
        (0..20).for_each(|n| y[n * 50] = if n % 2 == 0 { 1e30 } else { -1e30 });
        assert!(at_most(x.clone(), y.clone()) > 0.9);
        assert!(at_most(x[..4].to_vec(), wild(4, 9)) == 1.0, "too few to say");
        y[7] = f64::NAN;
        assert!(at_most(x, y) == 1.0, "no number");
    }
}
