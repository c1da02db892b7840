//! A result that was judged where it lies, on the GPU: only counts, extremes and sums come back.

use super::power::{Facts, Faults, Line, Seen};
use super::verdict::settled;
use super::{Comparison, ErrorStats, Judged, Power, Scales};

/// What was counted of a result of which nothing is wrong: every element is a number inside its bounds, with the bits of the device model.
pub struct Measured {
    pub judged: Judged,
    /// ideal − exact, actual − ideal, actual − exact.
    pub quantization: ErrorStats,
    pub kernel: ErrorStats,
    pub total: ErrorStats,
    pub(crate) seen: Seen,
    pub(crate) facts: Facts,
    /// Elements that are not the ideal rounded to the output.
    pub differing: usize,
    /// See [`Bound::ulp_histogram`](super::Bound::ulp_histogram).
    pub histogram: [usize; 9],
    /// See [`Bound::largest_ratios`](super::Bound::largest_ratios).
    pub ratios: Vec<Vec<f64>>,
}

/// The smallest gain of a line as bits that began with all of them set; a line of zeros has none.
pub(crate) fn line(bits: u64) -> Line {
    Line { gain: f64::from_bits(bits), there: bits != u64::MAX }
}

impl Measured {
    /// The judgement: it passes, or has no power. `k` and `groups`: the length of a sum, and its groups with scales of their own.
    pub fn comparison(&mut self, k: Option<usize>, groups: usize, scales: &[Scales]) -> Comparison {
        let faults = Faults { k, groups, scales, zero_points: &[] };
        let power = Power::of_seen(std::mem::take(&mut self.seen), &self.facts, &faults, None);
        let (verdict, reason) = settled(&self.judged, &power);
        Comparison {
            quantization: Some(self.quantization.clone()),
            kernel: self.kernel.clone(),
            total: Some(self.total.clone()),
            mismatches: Some(0),
            bound_ratio_certain: self.judged.ratio_certain,
            bound_ratio_probable: self.judged.ratio_probable,
            worst: None,
            judged: self.judged.clone(),
            power,
            verdict,
            reason,
        }
    }
}
