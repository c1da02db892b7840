//! One stored scale of an operand, by which a kernel multiplies runs of its lines with a number of each run's own: parts of a fused weight that
//! were quantized together and are dequantized each by itself.

use super::solved::Gains;
use super::system::Theory;
use crate::fault::Class;
use crate::fault::solve::output::roundest;
use std::ops::Range;

/// Runs that are not right, and lines of a run.
const RUNS: Range<usize> = 2..9;
const LINES: usize = 8;
/// Bits of a run: where it begins, and its number.
const BITS: f64 = 24.0;

/// The runs and their factors. `None`: each line has a scale of its own, or a run has no one factor.
pub fn of(x: &Gains, values: &mut [f64]) -> Option<Theory> {
    let n = x.stored.len();
    (x.g.grid == (1, 1) && x.grid.cols == 1 && x.grid.tile.0 == 1 && n == x.grid.rows).then_some(())?;
    let range = |c: usize| {
        let (value, within) = (x.cells.value[c], x.within(c) * x.cells.value[c].abs());
        if value == 1.0 { (1.0, 1.0) } else { (value - within, value + within) }
    };
    let mut runs: Vec<(Range<usize>, (f64, f64))> = Vec::new();
    for c in 0..n {
        let (low, high) = range(c);
        match runs.last_mut() {
            Some((lines, r)) if r.0.max(low) <= r.1.min(high) => (lines.end, *r) = (c + 1, (r.0.max(low), r.1.min(high))),
            _ => runs.push((c..c + 1, (low, high))),
        }
    }
    let wrong: Vec<(Range<usize>, f64)> =
        (runs.iter().filter(|(_, r)| *r != (1.0, 1.0))).map(|(lines, r)| (lines.clone(), roundest(r.0, r.1))).collect();
    (RUNS.contains(&wrong.len()) && runs.iter().all(|(lines, _)| lines.len() >= LINES)).then_some(())?;
    wrong.iter().for_each(|(lines, by)| lines.clone().for_each(|c| values[c] = x.stored[c] * by));
    let who = x.grid.side.name();
    let said: Vec<String> =
        wrong.iter().map(|(lines, by)| format!("{by:.6} in rows {} … {}", lines.start, lines.end - 1)).collect();
    let words = format!(
        "the scale of {who} is times {}: numbers that are stored nowhere, one for each part of a weight that has one scale",
        said.join(", ")
    );
    let mut t = x.theory(Class::StaleState, "parts", words, BITS * wrong.len() as f64);
    t.fitted = true;
    t.slack = x.changed.iter().map(|c| x.within(*c)).fold(0.0, f64::max);
    Some(t)
}
