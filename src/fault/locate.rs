//! Where an error lives: rows, columns, tiles, slices of K, magnitudes and signs. Words for the reason, numbers for figures.

use super::edit::{Which, operand};
use super::predict::Scene;
use crate::assay::Judgement;
use crate::job::{Data, Operand};
use crate::op::Op;
use crate::order::Order as _;
use crate::{Overflow, Rounding, Zero};

/// Where an error lives.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Location {
    /// In a sentence.
    pub words: String,
    /// Which rows, columns or tiles, for a card; empty where it is everything, or where no element is outside its bound.
    #[serde(skip)]
    pub place: String,
    /// The share of wrong elements in each of up to 64 bands of rows, and of columns.
    pub rows: Vec<f64>,
    pub cols: Vec<f64>,
    /// Squared correlation of the error with the partial sum of each slice of K (products).
    pub k: Vec<f64>,
    /// The share of wrong elements by magnitude of the right value: eighths of the elements, smallest first.
    pub magnitudes: Vec<f64>,
    /// The share of wrong elements by the right code, codes in order, sixteenths of those a format has (quantized results).
    pub codes: Vec<f64>,
    /// The share of wrong elements among the negative and the positive right values.
    pub signs: [f64; 2],
    /// Height and width of the largest tiles that are wrong as a whole, how many are, and of how many.
    pub tiles: Option<(usize, usize, usize, usize)>,
    /// The mean sign of (actual − right)·right of the wrong elements: −1 all too small, 1 all too large.
    pub outward: f64,
}

/// Tiles that kernels compute or store by, largest first.
const TILES: [(usize, usize); 8] = [(128, 128), (64, 64), (128, 32), (32, 32), (16, 64), (16, 32), (8, 32), (16, 16)];

/// Slices of K that are told apart.
const SLICES: usize = 16;

/// Where the first part of the result is wrong: outside its bound, or (where all are inside) not as rounded.
pub fn locate(scene: &Scene) -> Location {
    let Some(j) = scene.evidence.judged.first() else { return Location::default() };
    let by_slice = |j: &Judgement| by_slice(scene, &j.actual, j.bound.ideal()).unwrap_or_default();
    of(j, by_slice, |is_wrong| by_code(scene, is_wrong))
}

/// The same error of a result that was turned since it was located.
pub fn again(j: &Judgement, before: &Location) -> Location {
    of(j, |_| before.k.clone(), |_| before.codes.clone())
}

fn of(j: &Judgement, by_slice: impl Fn(&Judgement) -> Vec<f64>, by_code: impl Fn(&[bool]) -> Vec<f64>) -> Location {
    let (n, cols) = (j.actual.len(), j.cols.max(1));
    let ideal = j.bound.ideal();
    let Ok(ratios) = j.bound.ratios(&j.actual) else { return Location::default() };
    let mut wrong: Vec<usize> = (0..n).filter(|i| !(ratios[*i] <= 1.0)).collect();
    let outside = !wrong.is_empty();
    if !outside {
        wrong = (0..n).filter(|i| j.actual[*i] != j.bound.out().round(*i, ideal[*i])).collect();
    }
    if wrong.is_empty() {
        return Location { words: "the result is right; a side output is not".into(), ..Location::default() };
    }
    let rows = n / cols;
    let share = |count: usize, line: &dyn Fn(usize) -> usize| -> Vec<f64> {
        let bands = count.clamp(1, 64);
        let mut v = vec![0.0; bands];
        wrong.iter().for_each(|i| v[line(*i) * bands / count.max(1)] += 1.0);
        let size = n as f64 / bands as f64;
        v.into_iter().map(|x: f64| (x / size).min(1.0)).collect()
    };
    // Of a large result every so many: shares, no counts.
    let mut order: Vec<usize> = (0..n).step_by((n >> 20).max(1) | 1).collect();
    let m = order.len();
    order.order_by(|a, b| ideal[*a].abs().total_cmp(&ideal[*b].abs()));
    let mut is_wrong = vec![false; n];
    wrong.iter().for_each(|i| is_wrong[*i] = true);
    let magnitudes: Vec<f64> = (0..8)
        .map(|e| {
            let part = &order[e * m / 8..(e + 1) * m / 8];
            part.iter().filter(|i| is_wrong[**i]).count() as f64 / part.len().max(1) as f64
        })
        .collect();
    let signs = wrong.iter().map(|i| (j.actual[*i] - ideal[*i]) * ideal[*i]).filter(|x| !x.is_nan() && *x != 0.0);
    let (count, sum) = signs.fold((0usize, 0.0), |(c, s), x| (c + 1, s + x.signum()));
    let outward = if count > 0 { sum / count as f64 } else { 0.0 };
    let signs = [-1.0, 1.0].map(|sign| {
        let of: Vec<usize> = (0..n).filter(|i| ideal[*i] * sign > 0.0).collect();
        of.iter().filter(|i| is_wrong[**i]).count() as f64 / of.len().max(1) as f64
    });
    let mut location = Location {
        words: String::new(),
        place: String::new(),
        signs,
        codes: by_code(&is_wrong),
        tiles: TILES.iter().find_map(|(h, w)| whole_tiles(&is_wrong, rows, cols, *h, *w)),
        rows: share(rows, &|i| i / cols),
        cols: share(cols, &|i| i % cols),
        k: by_slice(j),
        magnitudes,
        outward,
    };
    location.words = words(&location, &wrong, rows, cols, &j.actual, outside);
    if outside {
        location.place = place(&wrong, (rows, cols), location.tiles);
    }
    location
}

/// Rows and columns of the rectangle that holds all that is wrong; tiles where these are everything.
fn place(wrong: &[usize], (rows, cols): (usize, usize), tiles: Option<(usize, usize, usize, usize)>) -> String {
    let line = |what: &str, count: usize, of: &dyn Fn(usize) -> usize| {
        let ends = wrong.iter().map(|i| of(*i)).fold((usize::MAX, 0), |(from, to), x| (from.min(x), to.max(x)));
        match ends {
            (0, to) if to + 1 == count => format!("every {what}"),
            (from, to) if from == to => format!("{what} {from}"),
            (from, to) => format!("{what}s {from} … {to}"),
        }
    };
    let (row, column) = (line("row", rows, &|i| i / cols), line("column", cols, &|i| i % cols));
    match (row.as_str(), column.as_str(), tiles) {
        ("every row", "every column", Some((h, w, wrong, all))) => format!("{wrong} of {all} tiles of {h}×{w}"),
        ("every row", "every column", None) => String::new(),
        _ => format!("{row}, {column}"),
    }
}

fn words(l: &Location, wrong: &[usize], rows: usize, cols: usize, actual: &[f64], outside: bool) -> String {
    let n = rows * cols;
    let (first, last) = (
        |v: &dyn Fn(usize) -> usize| wrong.iter().map(|i| v(*i)).min().unwrap_or(0),
        |v: &dyn Fn(usize) -> usize| wrong.iter().map(|i| v(*i)).max().unwrap_or(0),
    );
    let (r0, r1, c0, c1) = (first(&|i| i / cols), last(&|i| i / cols), first(&|i| i % cols), last(&|i| i % cols));
    let what = if outside { "outside the bound" } else { "not as rounded" };
    let mut text = vec![format!("{} of {n} elements {what}", wrong.len())];
    let within = (r1 - r0 + 1) * (c1 - c0 + 1);
    if within < n {
        let dense = wrong.len() as f64 / within as f64;
        text.push(format!("all in rows {r0}…{r1}, columns {c0}…{c1} ({:.0} % of that rectangle)", 100.0 * dense));
    } else {
        text.push(format!("spread over all rows and columns ({:.2} %)", 100.0 * wrong.len() as f64 / n as f64));
    }
    let nan = wrong.iter().filter(|i| !actual[**i].is_finite()).count();
    if nan > 0 {
        text.push(format!("{nan} of them NaN or Inf"));
    }
    if let Some((slice, r2)) = l.k.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, r2)| *r2 > 0.5) {
        text.push(format!("{:.0} % of the error is the partial sum of slice {} of {} of K", 100.0 * r2, slice + 1, l.k.len()));
    }
    let (small, large) = (l.magnitudes[0], l.magnitudes[7]);
    if large > 4.0 * small + 0.01 {
        text.push("mostly large values".into());
    } else if small > 4.0 * large + 0.01 {
        text.push("mostly small values".into());
    }
    if let Some((h, w, wrong, all)) = l.tiles {
        text.push(format!("{wrong} of {all} tiles of {h}×{w} wrong as a whole, nothing else"));
    }
    match l.signs {
        [0.0, positive] if positive > 0.0 => text.push("no negative value".into()),
        [negative, 0.0] if negative > 0.0 => text.push("no positive value".into()),
        _ => {}
    }
    let hit = l.codes.iter().filter(|c| **c > 0.0).count();
    if (1..=4).contains(&hit) {
        let which: Vec<String> = (0..l.codes.len()).filter(|c| l.codes[*c] > 0.0).map(|c| (c + 1).to_string()).collect();
        text.push(format!("only codes of sixteenth {} of the format's", which.join(", ")));
    }
    if l.outward.abs() > 0.9 {
        text.push(if l.outward > 0.0 { "too large in magnitude" } else { "too small in magnitude" }.into());
    }
    text.join(", ")
}

/// Squared correlation of the error with the partial sums of slices of K, over the sampled elements.
fn by_slice(scene: &Scene, actual: &[f64], ideal: &[f64]) -> Option<Vec<f64>> {
    let job = scene.evidence.job;
    (job.op == Op::Gemm).then_some(())?;
    let (a, b) = (operand(job, Which::A)?, operand(job, Which::B)?);
    matches!(a, Operand::High(_) | Operand::Quantized(_) | Operand::Dynamic(_)).then_some(())?;
    let k = a.cols();
    let (a, b) = (a.to_f64(), b.to_f64());
    let cols = scene.shape.cols;
    let slices = SLICES.min(k);
    let mut sums = vec![(0.0f64, 0.0f64); slices];
    let mut energy = 0.0;
    for i in &scene.sample.rows {
        for j in &scene.sample.cols {
            let e = actual[i * cols + j] - ideal[i * cols + j];
            if !e.is_finite() {
                continue;
            }
            energy += e * e;
            for (s, (dot, size)) in sums.iter_mut().enumerate() {
                let range = ndarray::s![s * k / slices..(s + 1) * k / slices];
                let p = a.row(*i).slice(range).dot(&b.row(*j).slice(range));
                *dot += p * e;
                *size += p * p;
            }
        }
    }
    Some(sums.into_iter().map(|(dot, size)| if size * energy > 0.0 { dot * dot / (size * energy) } else { 0.0 }).collect())
}

/// The share of wrong elements by the code that is right, in sixteenths of the codes of the format; none where the result has no codes.
fn by_code(scene: &Scene, is_wrong: &[bool]) -> Vec<f64> {
    let (Some(j), Some(part)) = (scene.evidence.judged.first(), scene.evidence.output.parts.first()) else { return Vec::new() };
    let Data::Quantized(q) = &part.d else { return Vec::new() };
    if !matches!(q.zero(), Zero::None) {
        return Vec::new();
    }
    let (mut wrong, mut all) = ([0usize; 16], [0usize; 16]);
    for (i, is_wrong) in is_wrong.iter().enumerate() {
        let scale = q.affine(q.scale_index(i / q.cols(), i % q.cols())).unit;
        let code =
            q.format().encode(j.bound.out().round(i, j.bound.ideal()[i]) / scale, Rounding::NearestEven, Overflow::Saturate);
        let group = (code as usize * 16) >> q.format().bits();
        all[group] += 1;
        wrong[group] += usize::from(*is_wrong);
    }
    wrong.iter().zip(all).map(|(w, n)| *w as f64 / n.max(1) as f64).collect()
}

/// Tiles of h×w that are wrong as a whole when all that is wrong is in such tiles: (h, w, how many, of how many).
fn whole_tiles(is_wrong: &[bool], rows: usize, cols: usize, h: usize, w: usize) -> Option<(usize, usize, usize, usize)> {
    let (down, across) = (rows.div_ceil(h), cols.div_ceil(w));
    (down * across > 1).then_some(())?;
    let mut counts = vec![(0usize, 0usize); down * across];
    for (i, is_wrong) in is_wrong.iter().enumerate() {
        let tile = &mut counts[i / cols / h * across + i % cols / w];
        *tile = (tile.0 + usize::from(*is_wrong), tile.1 + 1);
    }
    let hit: Vec<&(usize, usize)> = counts.iter().filter(|(wrong, _)| *wrong > 0).collect();
    let whole = hit.iter().all(|(wrong, n)| *wrong as f64 > 0.9 * *n as f64);
    (whole && hit.len() < counts.len()).then_some((h, w, hit.len(), counts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_rectangle_or_tiles_or_nothing() {
        let cols = 8;
        let of = |some: &dyn Fn(usize, usize) -> bool, tiles| {
            let wrong: Vec<usize> = (0..4 * cols).filter(|i| some(i / cols, i % cols)).collect();
            place(&wrong, (4, cols), tiles)
        };
        assert_eq!(of(&|_, j| j > 0, None), "every row, columns 1 … 7");
        assert_eq!(of(&|i, j| i == 2 && j == 5, None), "row 2, column 5");
        assert_eq!(of(&|i, _| i < 2, None), "rows 0 … 1, every column");
        assert_eq!(of(&|_, _| true, None), "");
        assert_eq!(of(&|i, j| i == j || i + 4 == j, Some((2, 2, 4, 8))), "4 of 8 tiles of 2×2");
        assert_eq!(of(&|_, j| j < 2, Some((2, 2, 2, 8))), "every row, columns 0 … 1");
    }
}
