//! Two faults of a product whose rows have weights, as a router gives them: an operand is read otherwise, and each row is multiplied by another weight
//! than its own.
//!
//! ```text
//! out[i, j] = w'(i) · Σ_k a(i, k)·b(j, k)       as the first fault reads a and b; w'(i): what all elements of row i allow
//! w'(i) = 1, w(i)², 1/w(i), w(index(i)); the weight of some other row each, told by more than chance
//! ```

use super::gathered;
use super::maps::{cost, shortest_ways};
use super::pairs::affordable;
use super::segment::spread_of;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::sync::Arc;

/// Rows that a first fault is tried on before all are; columns of a row, at least and at most.
const FEW: usize = 4;
const LEAST: usize = 3;
const LOOKS: usize = 8;
/// Columns that these are the largest of.
const OF: usize = 32;
/// Rows whose weight is known, at least, and how well one has to be, relative.
const ROWS: usize = 8;
const KNOWN: f64 = 1.0 / 64.0;
/// Weights that are seen at other places, at least, and the bits that rows tell which have each another row's.
const DIFFERENT: usize = 4;
const BITS: f64 = 64.0;
/// Multiply-adds of the first look at all theories.
const WORK: usize = 1 << 27;

/// What all elements of a row allow for the factor of its sums: the least and the most.
type Range = (f64, f64);

/// Another weight of a row.
type Other = Box<dyn Fn(usize) -> f64 + Send + Sync>;

/// Both faults, for every first one that leaves each row one factor.
pub fn theories(s: &System, all: &[Theory]) -> Vec<Theory> {
    let Some(w) = gathered::weights(s, Which::A).filter(|w| w.len() == s.rows) else { return Vec::new() };
    if s.alone || s.bias.any() || s.region.is_some() || s.a.rows != s.rows || w.iter().all(|x| *x == w[0]) {
        return Vec::new();
    }
    let reads = |t: &&Theory| {
        let plain = t.finish.is_none() && t.from.is_none() && t.region.is_none() && t.patch.is_none();
        plain && !t.sums_right() && !t.fitted && t.freedom == 0
    };
    let some: Vec<Theory> = all.iter().filter(reads).cloned().collect();
    let some = affordable(&some, WORK / (4 * s.k).max(1));
    let rows: Vec<usize> = (0..s.rows).filter(|i| s.part[*i].is_some() && w[*i] != 0.0).collect();
    let looks: Vec<(usize, Vec<usize>)> = rows.iter().map(|i| (*i, largest(s, *i))).collect();
    let few: Vec<&(usize, Vec<usize>)> = spread_of(looks.len(), FEW).into_iter().map(|n| &looks[n]).collect();
    parallel::flat(&some, |t| {
        few.iter().all(|(i, js)| factor(s, t, *i, js).is_some()).then_some(())?;
        let all: Vec<(usize, Option<Range>)> =
            looks.iter().map(|(i, js)| Some((*i, factor(s, t, *i, js)?))).collect::<Option<_>>()?;
        let known: Vec<(usize, Range)> =
            all.into_iter().filter_map(|(i, r)| r.map(|(x, y)| (i, (x * w[i], y * w[i])))).collect();
        named(s, t, &w, &known)
    })
}

/// The columns of a row that hold the largest of some of its numbers.
fn largest(s: &System, i: usize) -> Vec<usize> {
    let size = |j: usize| Some(s.actual[i * s.cols + j].abs()).filter(|x| x.is_finite()).unwrap_or(0.0);
    let mut some: Vec<usize> = spread_of(s.cols, OF);
    some.sort_by(|x, y| size(*y).total_cmp(&size(*x)));
    some.truncate(LOOKS);
    some
}

/// The factor of a row's sums. `None`: its elements contradict each other; `Some(None)`: they say too little.
fn factor(s: &System, t: &Theory, i: usize, columns: &[usize]) -> Option<Option<Range>> {
    let (mut low, mut high, mut n) = (f64::NEG_INFINITY, f64::INFINITY, 0);
    for j in columns {
        let at = i * s.cols + j;
        let x = s.actual[at];
        let (v, size) = s.sum(t, i, *j);
        let r = s.relative * size;
        if !x.is_finite() || !(v.abs() > 8.0 * r) || s.out.is_quantized() && s.out.is_saturated(at, x) {
            continue;
        }
        let (from, to) = s.out.cell(at, x);
        let slack = r * (x / v).abs().max(1.0) + x.abs() * 2f64.powi(-22);
        let ends = [(from - slack) / v, (to + slack) / v];
        (low, high) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
        n += 1;
        (low <= high).then_some(())?;
    }
    Some((n >= LEAST && high - low <= 2.0 * KNOWN * low.abs().max(high.abs())).then_some((low, high)))
}

/// The first fault with the weights that the rows have.
fn named(s: &System, t: &Theory, w: &[f64], known: &[(usize, Range)]) -> Option<Theory> {
    let is = |(low, high): Range, x: f64| {
        let (low, high) = (low.min(high), low.max(high));
        low - 1e-6 * low.abs() <= x && x <= high + 1e-6 * high.abs()
    };
    let moved: Vec<&(usize, Range)> = known.iter().filter(|(i, r)| !is(*r, w[*i])).collect();
    (known.len() >= ROWS && moved.len() >= DIFFERENT && 3 * known.len() >= 2 * s.rows).then_some(())?;
    let all = |of: &dyn Fn(usize) -> f64| known.iter().all(|(i, r)| is(*r, of(*i)));
    let own = |f: fn(f64) -> f64| -> Other {
        let w = w.to_vec();
        Box::new(move |i| f(w[i]))
    };
    let of_row = [
        (Class::SilentSkip, "row_weights are left out", own(|_| 1.0)),
        (Class::ScaleDoubledInverted, "row_weights are multiplied twice", own(|x| x * x)),
        (Class::ScaleDoubledInverted, "rows are divided by row_weights", own(|x| 1.0 / x)),
    ];
    let by_row = of_row.into_iter().find(|(_, _, of)| all(of)).map(|(class, words, of)| (class, words.to_string(), 3.0, 0, of));
    let by_index = || {
        let way = shortest_ways(w.len(), 1).into_iter().find(|way| all(&|i| w[(way.map)(i, 0)]))?;
        let (w, map) = (w.to_vec(), way.map);
        let words = format!("the weight of row r is that of {}", way.words);
        Some((Class::ScaleIndex, words, 3.0 + way.bits, 0, Box::new(move |i| w[map(i, 0)]) as Other))
    };
    let (class, words, bits, freedom, of) = by_row.or_else(by_index).or_else(|| other_rows(w, known, moved.len()))?;
    let mut both = t.clone();
    both.id = 0;
    both.detail = format!("{}; and {words}", t.detail);
    both.variant = format!("{} + {}:row_weights", t.variant, class.name());
    both.bits += 4.0 + bits;
    both.freedom = freedom;
    let w = Arc::new(w.to_vec());
    both.finish = Some(Arc::new(move |i, _, v| if w[i] == 0.0 { v } else { v / w[i] * of(i) }));
    Some(both)
}

/// The weight of another row each, by no rule. `None`: some have none, or as many would by chance.
fn other_rows(w: &[f64], known: &[(usize, Range)], moved: usize) -> Option<(Class, String, f64, usize, Other)> {
    let ends = w.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |m, x| (m.0.min(*x), m.1.max(*x)));
    let mut from: Vec<usize> = (0..w.len()).collect();
    let mut bits = 0.0;
    for (i, (x, y)) in known {
        let (low, high) = (x.min(*y), x.max(*y));
        let middle = 0.5 * (low + high);
        let nearest = (0..w.len()).min_by(|a, b| (w[*a] - middle).abs().total_cmp(&(w[*b] - middle).abs()))?;
        let slack = 1e-6 * middle.abs();
        (low - slack <= w[nearest] && w[nearest] <= high + slack).then_some(())?;
        // As often as a number between the least and the largest lies so near one of them.
        bits -= (w.len() as f64 * (high - low + 2.0 * slack) / (ends.1 - ends.0)).min(1.0).log2();
        from[*i] = if low - slack <= w[*i] && w[*i] <= high + slack { *i } else { nearest };
    }
    (bits >= BITS).then_some(())?;
    let shown: Vec<String> = (0..w.len()).filter(|i| from[*i] != *i).take(4).map(|i| format!("{i} ← {}", from[i])).collect();
    let words = format!("the weights of {moved} rows are those of other rows ({}, …)", shown.join(", "));
    let (w, n) = (w.to_vec(), w.len());
    Some((Class::ScaleIndex, words, cost(n) * moved as f64, moved, Box::new(move |i| w[from[i]])))
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, grouped_found, sum};
    use crate::job::Operand;
    use crate::quant::{Level, QTensorParts};
    use crate::{Format, Granularity, QTensor};

    const ROWS: usize = 30;
    const N: usize = 40;
    const K: usize = 96;
    const ENDS: [usize; 3] = [8, 19, 30];

    fn own(i: usize) -> f64 {
        f64::from(0.25 + (i * 17 % 53) as f32 / 61.0)
    }

    /// Rows have their weights as a second level of scales, and are multiplied by these; scales of b are those of this place of each expert's.
    fn said(weight: &dyn Fn(usize) -> f64, place: &dyn Fn(usize, usize) -> usize) -> (String, String) {
        let level = Level {
            granularity: Granularity::Block { rows: 1, cols: 1 },
            format: Format::F32,
            scale_inv: (0..ROWS).map(|i| own(i) as f32).collect(),
            zero: None,
        };
        let q = codes(Format::E4m3, ROWS, K, K, false, 501);
        let a = QTensor::new(QTensorParts { level: Some(level), ..q.clone().into_parts() }).unwrap();
        let (x, b) = (q.dequantize(), codes(Format::Int8, 3 * N, K, 16, false, 502));
        grouped_found(&Operand::Quantized(a), &b, &ENDS, Format::F16, |i, j| {
            let e = ENDS.iter().filter(|end| **end <= i).count();
            let value = |k: usize| {
                let code = f64::from(b.codes()[(e * N + j) * K + k] as i8);
                code * f64::from(b.scale_inv()[(e * N * 6 + place(j, k / 16)).min(3 * N * 6 - 1)])
            };
            weight(i) * sum(K, |k| x[[i, k]] * value(k))
        })
    }

    #[test]
    fn weights_of_other_rows_beside_scales_of_other_places_are_told() {
        let from = |i: usize| (i * 7 + i * i % 5 + 3) % ROWS;
        let got = said(&|i| own(from(i)), &|j, g| j + g);
        assert!(got.0.contains(" + scale_index:row_weights"), "{} {}", got.0, got.1);
        assert!(got.1.contains("e·240 + r·1 + c") && got.1.contains("0 ← 3, 1 ← 11"), "{}", got.1);
        // Left out of all rows.
        let got = said(&|_| 1.0, &|j, g| j + g);
        assert!(got.0.contains("silent_skip") && got.1.contains("row_weights are left out"), "{} {}", got.0, got.1);
        // Numbers of nobody's are no weights of other rows.
        let got = said(&|i| 0.2 + crate::fault::solve::tests::noise(i + 77), &|j, g| j + g);
        assert!(!got.0.contains("row_weights"), "{} {}", got.0, got.1);
    }
}
