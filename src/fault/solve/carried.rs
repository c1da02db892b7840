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

/// One part of K is all that is summed: of the splits of K, or of the warps that share it, one partial sum is stored and the others are lost.
pub fn alone(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let theory = |(words, bits, is_part): (String, f64, Part)| {
        let mut t =
            Theory::new(Class::AccState, "out", "k.part_only", format!("only {words} is kept, the other parts are lost"));
        t.bits = 6.0 + bits;
        t.k = Some(Arc::new((0..s.k).map(|k| f64::from(u8::from(is_part(k)))).collect()));
        t
    };
    parts_of_k(s.k).into_iter().filter(|p| p.0.starts_with("slice")).map(theory).collect()
}

/// Part of K that is of another row of every tile: partial sums that are stored in batches, each with the registers of one.
pub fn batches(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let inside = |p: &&(usize, usize)| s.region.as_ref().is_none_or(|r| r.has(p.0, p.1));
    let probes: Vec<(usize, usize, f64, f64)> = s
        .probes
        .iter()
        .filter(inside)
        .filter_map(|(i, j)| s.written(*i, *j, 0.0).map(|(y, half)| (*i, *j, y, half + s.certain(i * s.cols + j))))
        .take(LOOKS)
        .collect();
    if probes.len() < 8 || probes.iter().filter(|p| s.is_wrong[p.0 * s.cols + p.1]).count() < 6 {
        return Vec::new();
    }
    let (a, b, k_all, n_rows, n_cols) = (s.a.values.clone(), s.b.values.clone(), s.k, s.rows, s.cols);
    let sums = |i: usize, j: usize| -> Vec<f64> {
        let mut sum = 0.0;
        let next = |k: usize| {
            sum += a[i * k_all + k] * b[j * k_all + k];
            sum
        };
        std::iter::once(0.0).chain((0..k_all).map(next)).collect()
    };
    let own: Vec<Vec<f64>> = probes.iter().map(|(i, j, ..)| sums(*i, *j)).collect();
    let mut found = Vec::new();
    let tiles = [256usize, 128, 64, 32, 16];
    for by_row in [true, false] {
        let n = if by_row { n_rows } else { n_cols };
        for tile in tiles.into_iter().filter(|t| *t < 2 * n) {
            for (batch, which) in
                [64usize, 32, 16, 8, 4].into_iter().filter(|b| *b < tile).flat_map(|b| [(b, 0), (b, tile - b)])
            {
                let from = move |x: usize| x / tile * tile + which + x % batch;
                let other = move |i: usize, j: usize| if by_row { (from(i), j) } else { (i, from(j)) };
                // Every end of K that the elements before allow, for what is before it or behind it.
                let mut left: Vec<(usize, bool)> = (0..=k_all).step_by(8).flat_map(|k| [(k, true), (k, false)]).collect();
                for ((i, j, y, r), own) in probes.iter().zip(&own) {
                    let (x, z) = other(*i, *j);
                    if x >= n_rows || z >= n_cols {
                        left.clear();
                        break;
                    }
                    let theirs = if (x, z) == (*i, *j) { own.clone() } else { sums(x, z) };
                    let r = r + s.certain(x * n_cols + z);
                    left.retain(|(k, before)| {
                        let v = if *before { theirs[*k] + own[k_all] - own[*k] } else { own[*k] + theirs[k_all] - theirs[*k] };
                        (v - y).abs() <= r
                    });
                    if left.is_empty() {
                        break;
                    }
                }
                for (k0, before) in left.into_iter().take(4) {
                    let (line, what) = if by_row { ("row", "i") } else { ("column", "j") };
                    let ks = if before { 0..k0 } else { k0..k_all };
                    let words = format!(
                        "the partial sum of K {} … {} is stored in batches of {batch} {line}s that all hold the {} of every tile of {tile}: {line} {what} has that of {line} {what} mod {batch} there",
                        ks.start,
                        ks.end.max(1) - 1,
                        if which == 0 { "first" } else { "last" }
                    );
                    let mut t = Theory::new(Class::AccState, "out", "out.batch_repeated", words)
                        .bits(8.0 + cost(tile) + cost(batch) + cost(k0) + f64::from(u8::from(which > 0)));
                    let (a, b, bias) = (a.clone(), b.clone(), s.bias.clone());
                    t.finish = Some(Arc::new(move |i, j, v| {
                        let (x, z) = other(i, j);
                        let one = |k: usize| a[x * k_all + k] * b[z * k_all + k] - a[i * k_all + k] * b[j * k_all + k];
                        v + ks.clone().map(one).sum::<f64>() + bias[j]
                    }));
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
