//! A range of K of one operand whose numbers are others: those of an earlier step, or of memory that was not loaded yet. What they are is
//! solved, line by line, and has to fit more elements than there are numbers.
//!
//! ```text
//! out[i, j] − right = Σ_{k in range} d(i, k) · B(j, k)            d: what is there, less what belongs there; the same with a and b exchanged
//! ```
//!
//! Numbers that are the operand's own of another k, the same one in every line, are no others: codes were unpacked in another order there.

use super::linear::Normal;
use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::ops::Range;
use std::sync::Arc;

/// Widths of tiles of K, the narrowest first.
const WIDTHS: [usize; 6] = [8, 16, 32, 64, 128, 256];
/// Equations beyond the unknowns of a line, at least, and of all lines together.
const MORE: usize = 4;
const SURPLUS: usize = 96;
/// Errors over what an element may be off: less tells nothing.
const TELLS: f64 = 8.0;
/// Lines that refuse a range before all are solved; multiply-adds at most.
const FIRST: usize = 3;
const WORK: usize = 1 << 30;
/// Lines that say which k stands at another.
const TOLD: usize = 32;

/// The narrowest range of either operand that fits every element.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k || !tells(s) {
        return Vec::new();
    }
    [Which::A, Which::B].into_iter().filter_map(|side| of(s, side)).collect()
}

/// Whether most wrong elements are far outside what they may be.
fn tells(s: &System) -> bool {
    let wrong = || s.probes.iter().map(|(i, j)| i * s.cols + j).filter(|at| s.is_wrong[*at]);
    let far = |at: &usize| {
        let half = s.certain(*at) + s.out.spacing(*at, s.actual[*at]);
        (s.actual[*at] - s.ideal[*at]).abs() > TELLS * half
    };
    2 * wrong().filter(far).count() > wrong().count()
}

fn of(s: &System, side: Which) -> Option<Theory> {
    let other = s.given(side.other());
    let lines = if side == Which::A { s.rows } else { s.cols };
    let wrong: Vec<usize> = (0..lines)
        .filter(|x| (0..other.rows).any(|y| s.is_wrong[if side == Which::A { x * s.cols + y } else { y * s.cols + x }]))
        .collect();
    (wrong.len() >= 2).then_some(())?;
    // Lines of the other operand that are right all along say nothing of what a part of the result met.
    let across: Vec<usize> = (0..other.rows).filter(|y| meets(s, side, *y)).collect();
    let fits = |from: usize, to: usize| {
        let width = to - from;
        let enough = across.len() >= width + MORE && wrong.len() * (across.len() - width) >= SURPLUS && 2 * width <= s.k;
        let equations = across.len().min(3 * width + 32);
        let cheap = wrong.len().saturating_mul(equations * width * width / 2 + width.pow(3) / 3) <= WORK;
        let few = || (0..FIRST).map(|n| wrong[n * (wrong.len() - 1) / (FIRST - 1)]);
        enough && cheap && few().all(|x| line(s, side, x, from..to, &across).is_some())
    };
    let tiles = |w: usize| (0..s.k.div_ceil(w)).map(move |t| (t * w, ((t + 1) * w).min(s.k)));
    let (from, to) = WIDTHS.into_iter().flat_map(tiles).find(|(from, to)| fits(*from, *to))?;
    let all = |ks: Range<usize>| -> Option<Vec<Vec<f64>>> {
        parallel::every(wrong.len(), |n| line(s, side, wrong[n], ks.clone(), &across))
    };
    let mut solved = all(from..to)?;
    let (mut from, mut to) = (from, to);
    // A range that ends within a tile: what is solved beside it is next to nothing.
    let inside = trimmed(&solved, from);
    if inside != (from..to)
        && let Some(fewer) = all(inside.clone())
    {
        (from, to, solved) = (inside.start, inside.end, fewer);
    }
    let name = side.name();
    let part = s.region.as_ref().filter(|_| across.len() < other.rows);
    if let Some(mut moved) = moved(s, side, from..to, &wrong, &solved) {
        moved.region = part.cloned();
        return Some(moved);
    }
    let what = match results(s, side, from..to, &wrong, &solved) {
        Some(words) => words,
        None => "those of an earlier step, or of a load that is not waited for".into(),
    };
    let place = part.map_or(String::new(), |r| format!(", for {}", r.words));
    let words = format!(
        "k = {from} … {} of {name} hold other numbers than those given, in each of {} rows{place}: {what}",
        to - 1,
        wrong.len()
    );
    let mut t = Theory::new(Class::Race, name, format!("{name}.k_foreign"), words).bits(64.0 + cost(from) + cost(to - from));
    (t.fitted, t.freedom, t.region) = (true, (to - from) * wrong.len(), part.cloned());
    let mut change: Vec<Option<Vec<f64>>> = vec![None; s.given(side).rows];
    wrong.iter().zip(solved).for_each(|(x, v)| change[*x] = Some(v));
    let (values, k_all) = (s.given(side).values.clone(), s.k);
    t.side(side).value = Some(Arc::new(move |i, k| {
        let d = change[i].as_ref().filter(|_| (from..to).contains(&k)).map_or(0.0, |v| v[k - from]);
        values[i * k_all + k] + d
    }));
    // Solved numbers err as what was written is rounded.
    let near: Vec<f64> = (0..s.rows * s.cols)
        .map(|at| s.written(at / s.cols, at % s.cols, 0.0).map_or(0.0, |w| 2.0 * (w.1 + s.certain(at))))
        .collect();
    let widest = near.iter().zip(&*s.ideal).map(|(n, x)| n / x.abs().max(1e-300));
    let mut widest: Vec<f64> = widest.filter(|x| x.is_finite()).collect();
    widest.sort_by(f64::total_cmp);
    t.slack = widest.get(widest.len() / 2).copied().unwrap_or(0.0).min(0.02);
    Some(t)
}

/// The part of a range from the first to the last eight of K that have numbers of the size that the whole has.
fn trimmed(solved: &[Vec<f64>], from: usize) -> Range<usize> {
    const TILE: usize = 8;
    const SMALL: f64 = 1.0 / 16.0;
    let width = solved.first().map_or(0, Vec::len);
    let energy: Vec<f64> = (0..width).map(|k| solved.iter().map(|line| line[k] * line[k]).sum()).collect();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let held: Vec<bool> = energy.chunks(TILE).map(|part| mean(part) > SMALL * mean(&energy)).collect();
    match (held.iter().position(|x| *x), held.iter().rposition(|x| *x)) {
        (Some(first), Some(last)) => from + first * TILE..from + width.min((last + 1) * TILE),
        _ => from..from + width,
    }
}

/// Whether a line of the other operand makes elements of the wrong region.
fn meets(s: &System, side: Which, y: usize) -> bool {
    let of = |r: &super::system::Region| if side == Which::A { r.cols[y] } else { r.rows[y] };
    s.region.as_ref().filter(|r| r.tiles.is_empty()).is_none_or(|r| of(r))
}

/// Results that stand in the range, side by side in a row: an epilogue that stores them over a tile that others still read. In words.
fn results(s: &System, side: Which, ks: Range<usize>, wrong: &[usize], solved: &[Vec<f64>]) -> Option<String> {
    const TOLD: usize = 3;
    (wrong.len() >= TOLD).then_some(())?;
    let values = &s.given(side).values;
    let places = (0..TOLD).map(|n| {
        let line: Vec<f64> = ks.clone().map(|k| values[wrong[n] * s.k + k] + solved[n][k - ks.start]).collect();
        // Of all numbers of the line: an outlier alone would let it be any other. Zeros are those of any line.
        let size = (line.iter().map(|x| x * x).sum::<f64>() / line.len() as f64).sqrt();
        (size > 0.0).then_some(())?;
        let at =
            |i: usize, j: usize| line.iter().enumerate().all(|(x, v)| (v - s.actual[i * s.cols + j + x]).abs() <= size / 16.0);
        let all = (0..s.rows).flat_map(|i| (0..(s.cols + 1).saturating_sub(ks.len())).map(move |j| (i, j)));
        all.into_iter().find(|(i, j)| at(*i, *j)).map(|(i, j)| (wrong[n], i, j))
    });
    let places: Vec<(usize, usize, usize)> = places.collect::<Option<_>>()?;
    // A tile that lies over another has them as far apart as the lines are, all the same.
    let step = |n: usize| {
        let ((x, i, j), (y, k, l)) = (places[n], places[n + 1]);
        ((k * s.cols + l) as i64 - (i * s.cols + j) as i64, (y - x) as i64)
    };
    let (first, second) = (step(0), step(1));
    (first.0 != 0 && first.0 * second.1 == second.0 * first.1).then_some(())?;
    let some: Vec<String> = places.iter().map(|(x, i, j)| format!("row {x} has those of row {i} from column {j} on")).collect();
    Some(format!("results, {}: they are stored over the tile of {} while others still read it", some.join(", "), side.name()))
}

/// The k whose own numbers stand at each k of the range, where every line agrees on it. What it makes is replayed: a wrong one is refuted.
fn moved(s: &System, side: Which, ks: Range<usize>, wrong: &[usize], solved: &[Vec<f64>]) -> Option<Theory> {
    let values = s.given(side).values.clone();
    let (from, width, k_all) = (ks.start, ks.len(), s.k);
    let is = |x: usize, k: usize| values[wrong[x] * k_all + k] + solved[x][k - from];
    let mut some: Vec<usize> = (0..wrong.len()).collect();
    spread(&mut some, TOLD);
    let apart =
        |k: usize, other: usize| some.iter().map(|x| (is(*x, k) - values[wrong[*x] * k_all + other]).powi(2)).sum::<f64>();
    // Within the range first: a tile is loaded whole.
    let nearest = |k: usize| {
        let of = |range: Range<usize>| range.map(|o| (apart(k, o), o)).min_by(|x, y| x.0.total_cmp(&y.0));
        let size = some.iter().map(|x| is(*x, k).powi(2)).sum::<f64>();
        [ks.clone(), 0..k_all].into_iter().filter_map(of).find(|(d, _)| *d <= size / 64.0).map(|(_, o)| o)
    };
    let to: Vec<usize> = ks.clone().map(nearest).collect::<Option<_>>()?;
    let mut seen = to.clone();
    seen.sort_unstable();
    seen.dedup();
    // A constant stands anywhere.
    (seen.len() == width).then_some(())?;
    let differ: Vec<usize> = (0..width).filter(|x| to[*x] != from + x).collect();
    let first = *differ.first()?;
    let (mask, shift) = (to[first] ^ (from + first), to[first] as i64 - (from + first) as i64);
    let whole = |of: &dyn Fn(usize) -> bool| (0..width).all(of);
    let rule = if whole(&|x| to[x] == (from + x) ^ mask) {
        format!("k xor {mask}")
    } else if whole(&|x| to[x] as i64 == (from + x) as i64 + shift) {
        format!("k {} {}", if shift < 0 { '−' } else { '+' }, shift.abs())
    } else if whole(&|x| to[x] == from + width - 1 - x) {
        "the range from its end".into()
    } else {
        let some = differ.iter().take(6).map(|x| format!("{} ← {}", from + x, to[*x])).collect::<Vec<_>>();
        format!("another place ({}{})", some.join(", "), if differ.len() > 6 { ", …" } else { "" })
    };
    let name = side.name();
    let words = format!(
        "for k = {from} … {} of {name} stand the numbers of {rule} (or those of {} the other way about): codes are unpacked in another order there",
        from + width - 1,
        side.other().name()
    );
    let mut t = Theory::new(Class::PackPermute, name, format!("{name}.k_order"), words);
    t = t.bits(20.0 + cost(from) + cost(width));
    t.freedom = if rule.starts_with("another") { differ.len() } else { 0 };
    t.side(side).value = Some(Arc::new(move |i, k| {
        let k = if (from..from + width).contains(&k) { to[k - from] } else { k };
        values[i * k_all + k]
    }));
    Some(t)
}

/// What one line's range differs by. `None`: too few equations, or they contradict each other.
fn line(s: &System, side: Which, line: usize, ks: Range<usize>, across: &[usize]) -> Option<Vec<f64>> {
    let other = s.given(side.other());
    let mut places: Vec<usize> = across.to_vec();
    spread(&mut places, 3 * ks.len() + 32);
    let mut system = Normal::new(ks.len());
    let mut rows: Vec<(&[f64], f64, f64)> = Vec::new();
    for y in places {
        let (i, j) = if side == Which::A { (line, y) } else { (y, line) };
        let at = i * s.cols + j;
        let Some((written, half)) = s.written(i, j, 0.0) else { continue };
        let half = half + s.certain(at);
        let x = &other.values[y * s.k + ks.start..y * s.k + ks.end];
        // A row of zeros says nothing of what it meets.
        if x.iter().all(|x| *x == 0.0) {
            continue;
        }
        let more = written - (s.ideal[at] - s.bias.at(i, j));
        system.add(x, more, 1.0 / (half * half));
        rows.push((x, more, half));
    }
    (rows.len() >= ks.len() + MORE).then_some(())?;
    let v = system.solve()?;
    let fits = |(x, y, half): &(&[f64], f64, f64)| {
        let sum: f64 = x.iter().zip(&v).map(|(x, v)| x * v).sum();
        (sum - y).abs() <= 1.5 * half
    };
    rows.iter().all(fits).then_some(v)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::edit::Which;
    use crate::fault::solve::tests::{M, codes, found, of_system, sum, wide};

    /// Rows from 16 on whose tile of K holds the results of others, a little off as what is solved is.
    #[test]
    fn results_that_are_stored_over_a_tile_of_an_operand_are_told() {
        let (n, k_all) = (80, 128);
        let (a, b) = (wide(M, k_all), codes(Format::Int8, n, k_all, k_all, false, 25));
        let of = |from: &dyn Fn(usize) -> usize, off: f64| {
            let wrong = |i: usize, j: usize, right: &[f64]| right[i * n + j] + if i >= 16 { 9.0 } else { 0.0 };
            of_system(&a, &b, Format::Bf16, wrong, |s| {
                let lines: Vec<usize> = (16..M).collect();
                let size = s.actual[..16 * n].iter().map(|x| x * x).sum::<f64>() / (16 * n) as f64;
                let held = |i: usize, k: usize| {
                    s.actual[from(i) * n + k - 32] + off * size.sqrt() * if k.is_multiple_of(3) { 1.0 } else { -1.0 }
                };
                let line = |i: &usize| (32..64).map(|k| held(*i, k) - s.a.values[i * k_all + k]).collect();
                super::results(s, Which::A, 32..64, &lines, &lines.iter().map(line).collect::<Vec<Vec<f64>>>())
            })
        };
        let words = of(&|i| i - 16, 0.02).unwrap();
        assert!(words.contains("row 16 has those of row 0 from column 0 on, row 17 has those of row 1"), "{words}");
        assert!(words.contains("they are stored over the tile of a while others still read it"), "{words}");
        // Rows in no order are no tile that lies over another; numbers as far off as this are others.
        assert_eq!(of(&|i| (i - 16) ^ 5, 0.0), None);
        assert_eq!(of(&|i| i - 16, 0.2), None);
    }

    #[test]
    fn a_tile_of_k_that_is_of_an_earlier_step_is_told() {
        let (n, k_all) = (80, 128);
        let (a, old, b) = (wide(M, k_all), wide(2 * M, k_all), codes(Format::Int8, n, k_all, k_all, false, 23));
        let (x, z, y) = (a.to_f64(), old.to_f64(), b.dequantize());
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            sum(k_all, |k| if (32..64).contains(&k) { z[[M + i, (k + 7) % k_all]] } else { x[[i, k]] } * y[[j, k]])
        });
        assert_eq!(got.0, "race:a.k_foreign", "{}", got.1);
        assert!(got.1.contains("k = 32 … 63 of a") && !got.1.contains("stored over"), "{}", got.1);
        // Its own numbers in another order: nibbles of a tail that are exchanged.
        let got =
            found(&a, &b, None, Format::Bf16, |i, j, _| sum(k_all, |k| x[[i, if k >= 96 { k ^ 1 } else { k }]] * y[[j, k]]));
        assert!(
            got.0.ends_with(".k_order") && got.1.contains("k = 96 … 127") && got.1.contains("k xor 1"),
            "{} {}",
            got.0,
            got.1
        );
        // Of 48 columns only 32 meet it: as many numbers as equations fit anything.
        let (n, k_all) = (48, 128);
        let mut parts = codes(Format::Int8, n, k_all, k_all, false, 23).into_parts();
        let zeros = |at: &usize| at / k_all >= 32 && (32..64).contains(&(at % k_all));
        (0..n * k_all).filter(zeros).for_each(|at| parts.codes[at] = 0);
        let b = crate::QTensor::new(parts).unwrap();
        let (x, y) = (a.to_f64(), b.dequantize());
        let noise = |i: usize, j: usize| crate::fault::solve::tests::noise(977 * i + 31 * j) * 9.0;
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            sum(k_all, |k| x[[i, k]] * y[[j, k]]) + if j < 32 { noise(i, j) } else { 0.0 }
        });
        assert!(!got.0.contains("foreign"), "{}: {}", got.0, got.1);
    }
}
