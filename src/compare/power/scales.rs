//! What the scales and zero points of a case let a verdict see: swaps, shifts, and values that hide every wrong index.

use super::super::digits::apart;
use super::{Element, NoPower, PowerInput};

/// Which elements of the result a scale multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spans {
    /// One scale a row, a column.
    Rows,
    Columns,
    /// All of it, or a share of each sum (K-groups, blocks).
    Other,
}

/// The scales of one operand, or of the output, of a case.
#[derive(Clone, Copy, Debug)]
pub struct Scales<'a> {
    /// `a.scale_inv`, `b.scale_inv`, `out.scale`, …
    pub name: &'a str,
    pub values: &'a [f32],
    pub spans: Spans,
}

/// Integer or additive zero points of an operand, one for each of its `lines` (rows of b: columns of the result; rows of a: rows of the
/// result) and `groups` along K.
#[derive(Clone, Copy, Debug)]
pub struct ZeroPoints<'a> {
    pub name: &'a str,
    /// `[lines, groups]`.
    pub values: &'a [f64],
    /// What one step of the zero point changes in the operand's value: scale_inv for integer ones. `[lines, groups]`.
    pub step: &'a [f64],
    /// `Σ_{k∈g}` of the other operand's values. `[other lines, groups]`.
    pub sums: &'a [f64],
    pub groups: usize,
    /// Whether lines are columns of the result (zero points of b) or rows (of a).
    pub columns: bool,
}

/// A swap of the scales r and s of two lines is a gain of s/r on one and of r/s on the other; the larger of them is looked for.
pub fn swap_share(scales: &[Scales], rows: &[Option<f64>], columns: &[Option<f64>]) -> Option<f64> {
    let (mut caught, mut count) = (0usize, 0usize);
    for s in scales {
        let gains = match s.spans {
            Spans::Rows => rows,
            Spans::Columns => columns,
            Spans::Other => continue,
        };
        for (scales, gains) in s.values.windows(2).zip(gains.windows(2)) {
            let ratio = f64::from(scales[1].abs()) / f64::from(scales[0].abs());
            let (ratio, gain) = if ratio >= 1.0 { (ratio, gains[0]) } else { (1.0 / ratio, gains[1]) };
            count += 1;
            caught += usize::from(gain.is_some_and(|g| ratio >= g));
        }
    }
    (count > 0).then(|| caught as f64 / count as f64)
}

pub fn zero_shift_share(input: &PowerInput) -> Option<f64> {
    let (mut caught, mut count) = (0usize, 0usize);
    let (rows, cols) = (input.actual.len().checked_div(input.cols)?, input.cols);
    for z in input.zero_points {
        let (lines, others) = if z.columns { (cols, rows) } else { (rows, cols) };
        assert_eq!(
            (z.values.len(), z.sums.len()),
            (lines * z.groups, others * z.groups),
            "{}: one zero point a line and group",
            z.name
        );
        for line in 0..lines {
            for g in 0..z.groups {
                let seen = |sign: f64| {
                    (0..others).any(|other| {
                        let delta = sign * z.step[line * z.groups + g] * z.sums[other * z.groups + g];
                        let index = if z.columns { other * cols + line } else { line * cols + other };
                        let (up, down) = Element::of(input, index).needs();
                        delta >= up || -delta >= down
                    })
                };
                count += 1;
                caught += usize::from(seen(1.0) && seen(-1.0));
            }
        }
    }
    (count > 0).then(|| caught as f64 / count as f64)
}

/// By how much scales differ from 1 and from each other, whichever is less.
pub fn contrast(s: &Scales) -> f64 {
    let (smallest, largest) = extremes(s);
    match s.values.len() {
        0 => f64::INFINITY,
        1 => from_one((smallest, largest)),
        _ => from_one((smallest, largest)).min(largest / smallest),
    }
}

/// The smallest and the largest scale that is a positive number.
fn extremes(s: &Scales) -> (f64, f64) {
    let usable = || s.values.iter().map(|v| f64::from(v.abs())).filter(|v| v.is_finite() && *v > 0.0);
    (usable().fold(f64::INFINITY, f64::min), usable().fold(0.0, f64::max))
}

fn from_one((smallest, largest): (f64, f64)) -> f64 {
    smallest.max(1.0 / smallest).max(largest).max(1.0 / largest)
}

/// Scales that hide the faults of scales: one that is 1 to within the smallest gain seen, or many that are equal to within it.
pub fn scale_blindness(s: &Scales, gain: f64) -> Option<NoPower> {
    let name = s.name;
    let (smallest, largest) = extremes(s);
    if s.values.is_empty() {
        return None;
    }
    if largest == 0.0 {
        let reason = format!("{name}: no scale is a positive number");
        return Some(NoPower::new(reason, "operands whose amax is neither zero nor infinite"));
    }
    if from_one((smallest, largest)) < gain {
        let reason = format!("{name} is 1: a scale that is omitted, doubled or inverted would not show (gain ×{gain:.6})");
        return Some(NoPower::new(reason, "scales that are not 1"));
    }
    if s.values.len() > 1 && largest / smallest < gain {
        let (n, spread) = (s.values.len(), largest / smallest);
        let reason = if s.values.iter().all(|v| *v == s.values[0]) {
            let [scale] = apart([s.values[0].into()]);
            format!("{name}: all {n} scales are {scale}: a wrong index would not show")
        } else {
            format!("{name}: {n} scales within ×{spread:.6} of each other: a wrong index would not show (gain ×{gain:.6})")
        };
        return Some(NoPower::new(reason, "rows, groups or blocks of different amax"));
    }
    None
}

pub fn zero_blindness(z: &ZeroPoints) -> Option<NoPower> {
    let first = z.values.first()?;
    if z.values.iter().all(|v| *v == 0.0) {
        let reason = format!("{}: every zero point is 0: a missing correction changes nothing", z.name);
        return Some(NoPower::new(reason, "data whose range is not symmetric about zero"));
    }
    if z.values.len() > 1 && z.values.iter().all(|v| v == first) {
        let reason = format!("{}: all {} zero points are {first}: a wrong index changes nothing", z.name, z.values.len());
        return Some(NoPower::new(reason, "groups whose ranges differ"));
    }
    None
}
