//! Products whose rows have another weight than a router gave them, in all rows or in some.
//!
//! ```text
//! right row i = w[i]·(sums of row i)      written row i = w'·(sums of row i)      w' of every wrong row: 1, w[i]², 1/w[i], w[index(i)]
//! ```

use super::Bundle;
use crate::assay::Judgement;
use crate::fault::solve::maps::shortest_ways;
use crate::fault::solve::segment::where_not_all;
use crate::fault::{Class, Finding};
use crate::tensor::round_to;
use crate::{Format, op::Op};

/// Wrong rows, at least; weights that are seen in them where they stand at other places.
const LEAST: usize = 2;
const DIFFERENT: usize = 3;
/// Bits that rows tell which have each another row's weight.
const BITS: f64 = 64.0;
/// How near a solved weight has to be to a stored one, relative.
const NEAR: f64 = 1.0 / 512.0;
/// Rows that groups may be padded to.
const PADDED: [usize; 5] = [8, 16, 32, 64, 128];

/// Another weight of row i of group e, which begins at row `start`; `None`: nothing is known of it.
type Other<'w> = Box<dyn Fn(usize, (usize, usize)) -> Option<f64> + 'w>;

struct Way<'w> {
    words: String,
    class: Class,
    /// Whether it takes weights from other places.
    moved: bool,
    weight: Other<'w>,
}

fn ways<'w>(w: &'w [f64], starts: &'w [usize]) -> Vec<Way<'w>> {
    let mut all: Vec<Way> = Vec::new();
    let mut add = |class, moved, words: &str, weight: Other<'w>| all.push(Way { words: words.into(), class, moved, weight });
    add(Class::SilentSkip, false, "row_weights are left out", Box::new(|_, _| Some(1.0)));
    add(Class::ScaleDoubledInverted, false, "row_weights are multiplied twice", Box::new(|i, _| Some(w[i] * w[i])));
    add(Class::ScaleDoubledInverted, false, "rows are divided by row_weights", Box::new(|i, _| Some(1.0 / w[i])));
    for f in [Format::Bf16, Format::F16] {
        let words = format!("row_weights are rounded to {f}");
        add(Class::RoundOrder, false, &words, Box::new(move |i, _| Some(f64::from(round_to(f, w[i] as f32)))));
    }
    let at = |i: usize| w.get(i).copied();
    let index = Class::ScaleIndex;
    let words = "row_weights are read at the row's number within its group, not within the tensor";
    add(index, true, words, Box::new(move |i, (_, start)| at(i - start)));
    add(index, true, "row_weights are read at the number of the group", Box::new(move |_, (e, _)| at(e)));
    for n in PADDED {
        let words = format!("row_weights are read as if each group began at a multiple of {n}");
        let padded = move |e: usize| (0..e).map(|e| (starts[e + 1] - starts[e]).next_multiple_of(n)).sum::<usize>();
        add(index, true, &words, Box::new(move |i, (e, start)| at(padded(e) + i - start)));
    }
    for way in shortest_ways(w.len(), 1) {
        let words = format!("the weight of row r is that of {}", way.words);
        add(index, true, &words, Box::new(move |i, _| at((way.map)(i, 0))));
    }
    all
}

/// The weights that all wrong rows have instead of their own.
pub fn explain(bundle: &Bundle, judged: &Judgement) -> Option<Finding> {
    let weights = bundle.a.weights.as_ref().filter(|_| bundle.meta.op == Op::GroupedGemm)?;
    let (ends, cols) = (bundle.offs.as_ref()?, judged.cols);
    let w: Vec<f64> = weights.iter().map(|w| f64::from(*w)).collect();
    let (bound, rows) = (&judged.bound, *ends.last()?);
    (cols > 0 && rows <= w.len() && rows * cols <= judged.actual.len()).then_some(())?;
    // Each row by a weight: the right sums, within what they may err by, give the cells of what is written.
    let is = |i: usize, weight: f64| {
        let by = weight / w[i];
        by.is_finite()
            && (i * cols..(i + 1) * cols).all(|at| {
                let (d, radius) = (bound.ideal()[at] * by, bound.certain()[at] * by.abs());
                let (low, high) = bound.out().cell(at, judged.actual[at]);
                d - radius <= high && low <= d + radius
            })
    };
    let wrong: Vec<usize> = (0..rows).filter(|i| w[*i] != 0.0 && !is(*i, w[*i])).collect();
    (wrong.len() >= LEAST).then_some(())?;
    let starts: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let group = |i: usize| {
        let e = ends.partition_point(|end| *end <= i);
        (e, starts[e])
    };
    let found = ways(&w, &starts).into_iter().find(|way| {
        let mut seen: Vec<u64> = Vec::new();
        let all = wrong.iter().all(|i| {
            (way.weight)(*i, group(*i)).is_some_and(|weight| {
                seen.push(weight.to_bits());
                is(*i, weight)
            })
        });
        seen.sort_unstable();
        seen.dedup();
        all && (!way.moved || seen.len() >= DIFFERENT)
    });
    let Some(way) = found else {
        let words = other_rows(judged, &w, &wrong)?;
        return Some(Finding::solved(Class::ScaleIndex, "row_weights", words));
    };
    // Rows that the way leaves as they are belong to it.
    let follows = |i: usize| w[i] == 0.0 || (way.weight)(i, group(i)).is_some_and(|weight| is(i, weight));
    let follow: Vec<bool> = (0..w.len()).map(|i| i >= rows || follows(i)).collect();
    let (mut first, mut last) = (wrong[0], wrong[wrong.len() - 1]);
    let mut is: Vec<bool> = (0..w.len()).map(|i| wrong.contains(&i)).collect();
    if follow[first..=last].iter().all(|x| *x) {
        while first > 0 && follow[first - 1] {
            first -= 1;
        }
        while last + 1 < w.len() && follow[last + 1] {
            last += 1;
        }
        (first..=last).for_each(|i| is[i] = true);
    }
    let place = where_not_all("rows", &is);
    Some(Finding::solved(way.class, "row_weights", format!("{}{place}", way.words)))
}

/// Rows that have each the weight of some other row, of which no index is known: by least squares over the right sums.
fn other_rows(judged: &Judgement, w: &[f64], wrong: &[usize]) -> Option<String> {
    let (ideal, cols) = (judged.bound.ideal(), judged.cols);
    let spread = w.iter().fold(0.0f64, |m, w| m.max(*w)) - w.iter().fold(f64::INFINITY, |m, w| m.min(*w));
    let near = |by: f64, j: usize| (by - w[j]).abs() <= NEAR * w[j].abs();
    // As often as a number between the least and the largest lies so near one of them.
    let share = (w.iter().map(|w| 2.0 * NEAR * w.abs()).sum::<f64>() / spread).min(1.0);
    let mut shown = Vec::new();
    for i in wrong {
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for at in i * cols..(i + 1) * cols {
            let (x, y) = (ideal[at] / w[*i], judged.actual[at]);
            (xx, xy, yy) = (xx + x * x, xy + x * y, yy + y * y);
        }
        // All of the row but rounding is the sums by one number.
        (xy * xy >= (1.0 - NEAR) * xx * yy && xx > 0.0).then_some(())?;
        let from = (0..w.len()).filter(|j| j != i).find(|j| near(xy / xx, *j))?;
        shown.push(format!("{i} ← {from}"));
    }
    shown.truncate(4);
    (-share.log2() * wrong.len() as f64 >= BITS)
        .then(|| format!("the weights of {} rows are those of other rows ({} …)", wrong.len(), shown.join(", ")))
}
