//! Scales and zero points of a cast that stand at other places of their grid than their own, all over or in some rows and groups: told by which
//! of them could have made the codes of which group.
//!
//! ```text
//! fits(p, g): what is stored at place p could have made the codes of group g           wrong: the p that do not fit themselves
//! a way of the grid:  fits(p, way(p)) of every wrong p: it is stored at the wrong place      fits(way(g), g): it is read from the wrong place
//! ```

use super::casts::{Cast, NEAR, Named, Range, center, holds};
use super::encoders;
use crate::fault::Class;
use crate::fault::moved::Places;

/// How often a zero point may go around its range, at most.
const AROUND: u32 = 8;
/// The share of groups that have to be as the rule makes them.
const SHARE: f64 = 0.9;

impl Cast<'_> {
    /// Scales at places that a way of the grid leads to, in some rows and groups or all over.
    pub fn moved(&self, ranges: &[Range]) -> Option<Named> {
        let max = self.q.format().max_finite();
        let known: Vec<usize> = (0..ranges.len())
            .filter(|g| ranges[*g].0 > 0.0 && ranges[*g].1.is_finite() && !holds(ranges[*g], self.stored[*g]))
            .collect();
        // Scales of few bits are off by their rounding.
        let near = if self.is_pow2() { 2.0 } else { 1.0 + 0.5f64.powi(self.q.scale_format().spec().mantissa.min(9) as i32) };
        let own = |g: &&usize| {
            let by = center(ranges[**g]) * max / self.amax[**g];
            (1.0 / near..=near).contains(&by)
        };
        let right = known.iter().filter(own).count() as f64 >= SHARE * known.len() as f64;
        let fits = |p: usize, g: usize| holds(ranges[g], self.stored[p]);
        Places { what: "scale_inv", grid: self.grid, fits: &fits, right }.find()
    }
}

impl encoders::Cast<'_> {
    /// The finite elements of a group.
    fn members(&self, g: usize) -> impl Iterator<Item = usize> {
        let (rows, cols) = (self.q.rows(), self.q.cols());
        let ((high, wide), across) = (self.q.granularity().tile(rows, cols), self.q.granularity().grid(rows, cols).1);
        let (top, left) = (g / across * high, g % across * wide);
        let all = (top..rows.min(top + high)).flat_map(move |i| (left..cols.min(left + wide)).map(move |j| i * cols + j));
        all.filter(|at| self.element(*at).x.is_finite())
    }

    /// Scales that stand at, or are taken from, other places than their own together with their zero points.
    pub fn both_places(&self) -> Option<encoders::Named> {
        let f = self.q.format();
        (self.zero.len() > 1 && f.is_integer()).then_some(())?;
        let fits = |p: usize, g: usize| {
            let (unit, zero) = (self.q.affine(p).unit, self.zero[p]);
            self.members(g).all(|at| {
                let y = self.element(at).x / unit;
                [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|n| encoders::nearest(f, y * n + zero) == self.value(at))
            })
        };
        // The first group that is wrong is some place's, or places are not what is wrong.
        let n = self.zero.len();
        let first = (0..n).find(|g| !fits(*g, *g))?;
        (0..n).any(|p| fits(p, first) || fits(first, p)).then_some(())?;
        // Codes that reach both ends of their range, as the rule has it.
        let spans = |g: &usize| {
            let ends = (f64::INFINITY, f64::NEG_INFINITY);
            let (low, high) =
                self.members(*g).fold(ends, |(low, high), at| (low.min(self.value(at)), high.max(self.value(at))));
            low <= f.min_finite() + 2.0 && high >= f.max_finite() - 2.0
        };
        let right = (0..n).filter(spans).count() as f64 >= SHARE * n as f64;
        let grid = self.q.granularity().grid(self.q.rows(), self.q.cols());
        let (class, variant, words) = Places { what: "scale and zero point", grid, fits: &fits, right }.find()?;
        Some((class, format!("{variant}_of_both"), words))
    }

    /// Zero points that are stored in fewer bits than codes were made with: they wrap, in all codes of a group alike.
    pub fn zero_wrapped(&self) -> Option<encoders::Named> {
        let f = self.q.format();
        (!self.zero.is_empty() && f.is_integer()).then_some(())?;
        let groups = self.zero.len();
        let (mut wrapped, mut elements): (Vec<(usize, f64)>, usize) = (Vec::new(), 0);
        // Once around or several times.
        let span = f64::from(1u32 << f.bits());
        let spans: Vec<f64> = (1..=AROUND).flat_map(|k| [f64::from(k) * span, -f64::from(k) * span]).collect();
        let is = |at: usize, more: f64| {
            let e = self.element(at);
            let y = e.y();
            [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|n| encoders::nearest(f, y * n + e.zero + more) == self.value(at))
        };
        for g in 0..groups {
            if self.members(g).all(|at| is(at, 0.0)) {
                continue;
            }
            // Codes that wrap one by one are right where they do not.
            let by = spans.iter().copied().find(|by| self.members(g).all(|at| is(at, *by)))?;
            let wrong: Vec<usize> = self.members(g).filter(|at| !is(*at, 0.0)).collect();
            (10 * wrong.len() >= 9 * self.members(g).count()).then_some(())?;
            // Codes at an end are those of any zero point that is far enough off.
            let inside = |at: &&usize| self.value(**at) > f.min_finite() && self.value(**at) < f.max_finite();
            match wrong.iter().filter(inside).count() {
                0 => {}
                more => {
                    elements += more;
                    wrapped.push((g, by));
                }
            }
        }
        let (g, by) = *wrapped.first()?;
        // A zero point that wraps is beyond what its bits hold.
        let beyond = |(g, by): &(usize, f64)| (self.zero[*g] + by).abs() >= 0.5 * by.abs();
        (elements >= encoders::LEAST && wrapped.iter().all(beyond)).then_some(())?;
        let mut sizes: Vec<u64> = wrapped.iter().map(|(g, by)| (self.zero[*g] + by).to_bits()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        (sizes.len() > 1 || wrapped.len() == groups).then_some(())?;
        let stored = self.zero[g];
        let words = format!(
            "{} of {} zero points wrap in {} bits when they are stored, the codes were made with those before: {} became {stored}",
            wrapped.len(),
            groups,
            f.bits(),
            stored + by
        );
        Some((Class::OverflowWrap, "out.zero_wrapped".into(), words))
    }

    /// Zero points that stand at, or are taken from, other places than their own: by which of them make the codes beside the stored scales.
    pub fn zero_places(&self) -> Option<encoders::Named> {
        let f = self.q.format();
        (!self.zero.is_empty() && f.is_integer()).then_some(())?;
        let (rows, cols) = (self.q.rows(), self.q.cols());
        let n = self.zero.len();
        let (mut ranges, mut least): (Vec<Range>, _) = (vec![(f64::NEG_INFINITY, f64::INFINITY); n], vec![0.0f64; n]);
        for at in self.finite() {
            let (g, e, v) = (self.q.scale_index(at / cols, at % cols), self.element(at), self.value(at));
            // A tie, and what a division and a sum are off.
            let (by, near) = (v - e.y(), 0.5 + 1e-5 * (1.0 + e.y().abs()));
            least[g] = least[g].min(e.y());
            let (low, high) = &mut ranges[g];
            if v > f.min_finite() {
                *low = low.max(by - near);
            }
            if v < f.max_finite() {
                *high = high.min(by + near);
            }
        }
        ranges.iter().all(|(low, high)| low <= high).then_some(())?;
        let holds = |g: usize, z: f64| ranges[g].0 <= z && z <= ranges[g].1;
        let fits = |p: usize, g: usize| holds(g, self.zero[p]);
        // By the rule the smallest value is the smallest code.
        let by_rule = |g: &usize| (-1..=1).any(|d| holds(*g, (f.min_finite() - least[*g]).round() + f64::from(d)));
        let share = |all: Vec<usize>| all.iter().filter(|g| by_rule(g)).count() as f64 / all.len().max(1) as f64;
        let (wrong, others): (Vec<usize>, Vec<usize>) = (0..n).partition(|g| !fits(*g, *g));
        let right = 2.0 * share(wrong) >= share(others);
        let grid = self.q.granularity().grid(rows, cols);
        let (class, variant, words) = Places { what: "zero point", grid, fits: &fits, right }.find()?;
        Some((class, format!("{variant}_of_zero"), words))
    }
}
