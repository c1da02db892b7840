//! Theories of an accumulator that still holds another element: the tile before, once or all of them.

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Elements that have to agree.
const LOOKS: usize = 24;
/// Offsets that are tried, at most.
const MOST: usize = 64;

/// Every offset (di, dj) whose right elements are what the wrong ones hold too much.
pub fn theories(s: &System) -> Vec<Theory> {
    let finite = |at: usize| s.actual[at].is_finite() && s.ideal[at].is_finite();
    let wrong = |(i, j): &&(usize, usize)| s.is_wrong[i * s.cols + j] && finite(i * s.cols + j);
    let probes: Vec<(usize, usize)> = s.probes.iter().filter(wrong).take(LOOKS).copied().collect();
    if s.alone || probes.len() < 4 {
        return Vec::new();
    }
    let ideal: Arc<Vec<f64>> = Arc::new((0..s.ideal.len()).map(|at| s.ideal[at] - s.bias[at % s.cols]).collect());
    let (i0, j0) = probes[0];
    let first = i0 * s.cols + j0;
    let rest = s.actual[first] - s.ideal[first];
    let (rows, cols) = (s.rows as i64, s.cols as i64);
    let mut found: Vec<Theory> = Vec::new();
    // All that fits the first probe: where the right value is the rest, or the rest less what stands as far behind it again.
    for at in 0..s.ideal.len() {
        let (di, dj) = ((at / s.cols) as i64 - i0 as i64, (at % s.cols) as i64 - j0 as i64);
        if (di, dj) == (0, 0) || !ideal[at].is_finite() {
            continue;
        }
        for all in [false, true] {
            let ideal = ideal.clone();
            let held = move |i: usize, j: usize| -> f64 {
                let (mut sum, mut x, mut y) = (0.0, i as i64 + di, j as i64 + dj);
                while (0..rows).contains(&x) && (0..cols).contains(&y) {
                    sum += ideal[(x * cols + y) as usize];
                    if !all {
                        break;
                    }
                    (x, y) = (x + di, y + dj);
                }
                sum
            };
            let more = held(i0, j0);
            let slack = 2.0 * (s.certain(first) + s.certain(at)) + s.out.spacing(first, s.actual[first]);
            if !((more - rest).abs() <= slack) {
                continue;
            }
            let how = if all { "and all those before" } else { "as well" };
            let words = format!(
                "the accumulator is not cleared between tiles: element (i, j) holds that of (i {}, j {}) {how}",
                offset(di),
                offset(dj)
            );
            let bias = s.bias.clone();
            let mut t = Theory::new(Class::AccState, "out", "out.carried", words)
                .bits(6.0 + cost(di.unsigned_abs() as usize) + cost(dj.unsigned_abs() as usize) + if all { 1.0 } else { 0.0 });
            t.finish = Some(Arc::new(move |i, j, v| v + held(i, j) + bias[j]));
            if probes.iter().all(|(i, j)| s.fits(&t, *i, *j)) {
                found.push(t);
            }
            if found.len() >= MOST {
                return found;
            }
        }
    }
    found
}

/// Part of K of another element: what a split of K was added to, one tile aside, wrapped.
pub fn aside(s: &System) -> Vec<Theory> {
    let inside = |p: &&(usize, usize)| s.region.as_ref().is_none_or(|r| r.has(p.0, p.1));
    let probes: Vec<(usize, usize)> = s.probes.iter().filter(inside).take(LOOKS).copied().collect();
    if s.alone || s.parts.len() != 1 || probes.len() < 8 || !probes.iter().any(|(i, j)| s.is_wrong[i * s.cols + j]) {
        return Vec::new();
    }
    let (a, b) = (s.a.values.clone(), s.b.values.clone());
    let (rows, cols, k) = (s.rows, s.cols, s.k);
    let mut found = Vec::new();
    for by_row in [false, true] {
        let n = if by_row { rows } else { cols };
        for d in [8usize, 16, 32, 64, 128, 256].into_iter().filter(|d| *d < n).flat_map(|d| [d, n - d]) {
            let other = move |i: usize, j: usize| if by_row { ((i + d) % n, j) } else { (i, (j + d) % n) };
            for (words, bits, is_part) in parts_of_k(k) {
                let (a, b, bias) = (a.clone(), b.clone(), s.bias.clone());
                let moved = move |i: usize, j: usize| -> f64 {
                    let sum = |i: usize, j: usize| -> f64 {
                        (0..k).filter(|k| is_part(*k)).map(|x| a[i * k + x] * b[j * k + x]).sum()
                    };
                    let (x, y) = other(i, j);
                    sum(x, y) - sum(i, j)
                };
                let far = if 2 * d > n { format!("− {}", n - d) } else { format!("+ {d}") };
                let line = if by_row { "row i" } else { "column j" };
                let words = format!("{words} of an element is that of {line} {far}, wrapped");
                let mut t = Theory::new(Class::AccState, "out", "out.part_aside", words).bits(8.0 + cost(d.min(n - d)) + bits);
                t.finish = Some(Arc::new(move |i, j, v| v + moved(i, j) + bias[j]));
                if probes.iter().all(|(i, j)| s.fits(&t, *i, *j)) {
                    found.push(t);
                }
            }
        }
    }
    found
}

/// Whether k is in a part.
type Part = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// Parts of K that one unit of a kernel sums: from or up to a step of 16, or one warp's slices of every tile.
fn parts_of_k(k: usize) -> Vec<(String, f64, Part)> {
    let mut all: Vec<(String, f64, Part)> = Vec::new();
    for from in (16..k).step_by(16) {
        all.push((format!("K {from} … {}", k - 1), cost(from), Arc::new(move |x| x >= from)));
        all.push((format!("K 0 … {}", from - 1), cost(from), Arc::new(move |x| x < from)));
    }
    for width in [8usize, 16, 32, 64] {
        for of in [2usize, 4, 8].into_iter().filter(|of| of * width <= k) {
            for which in 0..of {
                let words = format!("slice {which} of {of}, {width} wide, in every {} of K", of * width);
                all.push((words, cost(width) + cost(of) + cost(which), Arc::new(move |x| x / width % of == which)));
            }
        }
    }
    all
}

fn offset(d: i64) -> String {
    match d {
        0 => "+ 0".into(),
        d if d < 0 => format!("− {}", -d),
        d => format!("+ {d}"),
    }
}
