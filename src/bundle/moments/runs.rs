//! Sums of a row that count some columns another number of times than once: one run of them, or chunks by whole numbers that are solved.
//!
//! ```text
//! the sum of every row = Σ_c w_c·S_c, S_c that of chunk c          rows more than chunks: w by least squares, whole numbers, held against all rows
//! ```

use crate::fault::solve::linear::Normal;

/// Rows that a run has to be told by, at least, and how many more than chunks.
const LEAST: usize = 8;
const MORE: usize = 4;
/// Places where a run may begin or end, at most, and runs that fit, at most.
const PLACES: usize = 512;
const SEVERAL: usize = 6;
/// How far a solved weight may be from a whole number, and the largest.
const WHOLE: f64 = 0.2;
const TIMES: f64 = 4.0;
/// Chunks of a row.
const CHUNKS: std::ops::RangeInclusive<usize> = 3..=16;

/// A row and what its sum lies between.
type Known = (usize, (f64, f64));

/// Words, and the sum of every row.
type Counted = (String, Vec<f64>);

/// What makes the known sums, by the prefix sums of every row. The words go on from a subject: "lacks columns 3 … 7".
pub fn find(prefix: &[Vec<f64>], known: &[Known]) -> Option<Counted> {
    let n = prefix.first()?.len() - 1;
    let whole = |i: usize| prefix[i][n];
    // Where the whole sum is right nothing is to be found.
    let told = known.iter().filter(|(i, (low, high))| !(*low <= whole(*i) && whole(*i) <= *high)).count();
    (n >= 8 && 2 * told > known.len()).then_some(())?;
    chunks(prefix, known, n).or_else(|| run(prefix, known, n))
}

fn fits(known: &[Known], of: impl Fn(usize) -> f64) -> bool {
    known.iter().all(|(i, (low, high))| {
        let sum = of(*i);
        *low <= sum && sum <= *high
    })
}

/// One run of columns that is missing, or there twice; of several that fit the one with the roundest ends.
fn run(prefix: &[Vec<f64>], known: &[Known], n: usize) -> Option<Counted> {
    (known.len() >= LEAST).then_some(())?;
    let step = n.div_ceil(PLACES).next_power_of_two();
    let mut found: Vec<(f64, usize, usize)> = Vec::new();
    for sign in [-1.0, 1.0] {
        for from in (0..n).step_by(step) {
            for to in (from + step..=n).step_by(step).filter(|to| to - from < n) {
                let of = |i: usize| prefix[i][n] + sign * (prefix[i][to] - prefix[i][from]);
                if fits(&known[..1], of) && fits(known, of) {
                    found.push((sign, from, to));
                    if found.len() > SEVERAL {
                        return None;
                    }
                }
            }
        }
    }
    let round = |(_, from, to): &(f64, usize, usize)| from.trailing_zeros().min(8) + to.trailing_zeros().min(8);
    let (sign, from, to) = found.into_iter().max_by_key(round)?;
    let times = if sign < 0.0 { 0.0 } else { 2.0 };
    let of = prefix.iter().map(|p| p[n] + sign * (p[to] - p[from])).collect();
    Some((words(&[(from, to, times)]), of))
}

/// Chunks that are counted a whole number of times each.
fn chunks(prefix: &[Vec<f64>], known: &[Known], n: usize) -> Option<Counted> {
    let mut widths: Vec<usize> = CHUNKS.filter(|k| n.is_multiple_of(*k)).map(|k| n / k).collect();
    widths.extend((4..12).map(|p| 1usize << p).filter(|w| CHUNKS.contains(&n.div_ceil(*w))));
    widths.sort_unstable();
    widths.dedup();
    widths.into_iter().rev().find_map(|width| {
        let count = n.div_ceil(width);
        (known.len() >= LEAST.max(count + MORE)).then_some(())?;
        let part = |i: usize, c: usize| prefix[i][((c + 1) * width).min(n)] - prefix[i][c * width];
        let mut line = Normal::new(count);
        for (i, (low, high)) in known {
            let x: Vec<f64> = (0..count).map(|c| part(*i, c)).collect();
            line.add(&x, 0.5 * (low + high), (high - low).max(1e-150).powi(-2));
        }
        let times: Vec<f64> = line.solve()?;
        let is_whole = |w: &f64| (w - w.round()).abs() < WHOLE && (0.0..=TIMES).contains(&w.round());
        // All of them none times or twice is no matter of columns.
        let alike = times.iter().all(|w| w.round() == times[0].round());
        (times.iter().all(is_whole) && !alike).then_some(())?;
        let of = |i: usize| (0..count).map(|c| times[c].round() * part(i, c)).sum::<f64>();
        fits(known, of).then_some(())?;
        // Neighbours that are counted alike are one run.
        let mut runs: Vec<(usize, usize, f64)> = Vec::new();
        for (c, w) in times.iter().enumerate() {
            let (from, to) = (c * width, ((c + 1) * width).min(n));
            match runs.last_mut() {
                Some(last) if last.2 == w.round() => last.1 = to,
                _ => runs.push((from, to, w.round())),
            }
        }
        runs.retain(|r| r.2 != 1.0);
        Some((words(&runs), (0..prefix.len()).map(of).collect()))
    })
}

fn words(runs: &[(usize, usize, f64)]) -> String {
    let one = |(from, to, times): &(usize, usize, f64)| {
        let columns = format!("columns {from} … {}", to - 1);
        match times {
            0.0 => format!("lacks {columns}"),
            2.0 => format!("counts {columns} twice"),
            times => format!("counts {columns} {times} times"),
        }
    };
    runs.iter().map(one).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 96;

    /// Prefix sums of rows of positive numbers.
    fn rows() -> Vec<Vec<f64>> {
        let value = |i: usize, j: usize| 0.1 + ((i * N + j) * 7919 % 1009) as f64 / 1009.0;
        let one = |i: usize| {
            let sums = (0..N).scan(0.0, move |sum, j| {
                *sum += value(i, j);
                Some(*sum)
            });
            std::iter::once(0.0).chain(sums).collect()
        };
        (0..30).map(one).collect()
    }

    fn said(times: &dyn Fn(usize) -> f64) -> String {
        let rows = rows();
        let sum = |p: &Vec<f64>| (0..N).map(|j| times(j) * (p[j + 1] - p[j])).sum::<f64>();
        let known: Vec<Known> = rows.iter().enumerate().map(|(i, p)| (i, (sum(p) - 1e-5, sum(p) + 1e-5))).collect();
        let found = find(&rows, &known);
        if let Some((_, all)) = &found {
            assert!(all.iter().zip(&rows).all(|(x, p)| (x - sum(p)).abs() < 1e-5));
        }
        found.map(|f| f.0).unwrap_or_default()
    }

    #[test]
    fn columns_that_are_not_counted_once_are_told() {
        assert_eq!(said(&|j| if (52..64).contains(&j) { 0.0 } else { 1.0 }), "lacks columns 52 … 63");
        assert_eq!(said(&|j| if (37..41).contains(&j) { 2.0 } else { 1.0 }), "counts columns 37 … 40 twice");
        let staged = |j: usize| [2.0, 2.0, 1.0, 1.0, 0.0, 0.0][j / 16];
        assert_eq!(said(&staged), "counts columns 0 … 31 twice and lacks columns 64 … 95");
        let thrice = |j: usize| [1.0, 3.0, 0.0, 1.0][j / 24];
        assert_eq!(said(&thrice), "counts columns 24 … 47 3 times and lacks columns 48 … 71");
    }

    #[test]
    fn what_is_no_whole_number_of_columns_is_not_told() {
        assert_eq!(said(&|_| 1.0), "");
        assert_eq!(said(&|j| 1.0 + (j * 5 % 7) as f64 / 7.0), "");
        assert_eq!(said(&|j| [1.0, 1.5, 0.5, 1.0][j / 24]), "");
    }
}
