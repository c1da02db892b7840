//! Accumulators that elements of a tile share, whichever they are: an element also holds the sum of the one so many rows and columns away, where there
//! is one. The steps are found by correlation, the rows and columns that take them by their place in a tile, the part of K by least squares.
//!
//! ```text
//! out[m, n] = Σ_{K} a·b of (m, n)  +  Σ_{steps (p, q) of (m, n)}  w(m, n) / w(m + p, n + q) · Σ_{k in slice} a·b of (m + p, n + q)
//! ```
//!
//! w: what multiplies an accumulator last (a scale of the row or of the column, the weight of a row), or 1. Of a grouped product rows are counted from
//! the start of their group, and what lies in another group is 0.

use super::gathered;
use super::given::Given;
use super::linear::Normal;
use super::maps::cost;
use super::segment::{lines, spread_of, spread_where};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::Order as _;
use crate::parallel;
use std::ops::Range;
use std::sync::Arc;

/// How far a step may go.
const ROWS: i64 = 32;
const COLS: i64 = 64;
/// Elements that steps are told by: all of them on a few, the best of these on more.
const FEW: usize = 640;
const MANY: usize = 4096;
/// Standard deviations of chance: what the few have to show, and the many.
const MAYBE: f64 = 3.0;
const CLEAR: f64 = 7.0;
/// Steps at most, and those that are looked at again.
const STEPS: usize = 8;
const AGAIN: usize = 64;
/// Periods of rows and columns that take a step.
const PERIODS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The coefficient of lines that take a step, over the largest: a slice of K may be more of some sums than of others.
const SHARE: f64 = 0.15;
/// Wrong elements that decide, at least and at most, and right ones.
const LEAST: usize = 12;
const LOOKS: usize = 32;
/// Widths of slices of K, the widest first; slices at most; how far a coefficient may be from 0 or 1.
const SLICES: [usize; 6] = [256, 128, 64, 32, 16, 8];
const MOST: usize = 32;
const NEAR: f64 = 0.2;

/// The lines that take a step: their places within a period.
#[derive(Clone)]
struct Lines {
    period: usize,
    is: Vec<bool>,
}

impl Lines {
    fn has(&self, x: usize) -> bool {
        self.is[x % self.period]
    }

    /// `, m mod 8 = 0 … 3`; nothing where it is all of them.
    fn words(&self, letter: char) -> Option<String> {
        self.is.contains(&false).then(|| format!("{letter} mod {} = {}", self.period, lines(&self.is)))
    }
}

#[derive(Clone)]
struct Step {
    by: (i64, i64),
    rows: Lines,
    cols: Lines,
}

/// What multiplies an accumulator last.
#[derive(Clone)]
struct Last {
    row: Option<Arc<Vec<f64>>>,
    col: Option<Arc<Vec<f64>>>,
    words: String,
}

/// All that the kernel did.
struct Way {
    steps: Vec<Step>,
    last: Last,
    /// Of K; `None`: all of it.
    slice: Option<Range<usize>>,
}

/// The one way that makes every wrong element.
pub fn theories(s: &System) -> Vec<Theory> {
    of(s).into_iter().collect()
}

fn of(s: &System) -> Option<Theory> {
    (!s.alone && s.rows * s.cols >= FEW / 2).then_some(())?;
    let mut looks = s.wrong_probes(LOOKS);
    (looks.len() >= LEAST).then_some(())?;
    let right = s.probes.iter().filter(|(i, j)| !s.is_wrong[i * s.cols + j] && s.actual[i * s.cols + j].is_finite());
    looks.extend(right.take(LOOKS / 2));
    let is = |at: &usize| s.actual[*at].is_finite() && s.ideal[*at].is_finite() && s.part[at / s.cols].is_some();
    let places = spread_where(s.rows * s.cols, &is, MANY);
    let units = Units::of(s);
    let steps = steps(s, &places, &units);
    if steps.is_empty() {
        return None;
    }
    for last in lasts(s, &steps) {
        let rows: Vec<Vec<Lines>> =
            steps.iter().map(|by| PERIODS.map(|p| taking(s, &places, &units, (&last, *by), (p, true))).into()).collect();
        let cols: Vec<Vec<Lines>> =
            steps.iter().map(|by| PERIODS.map(|p| taking(s, &places, &units, (&last, *by), (p, false))).into()).collect();
        let mut periods: Vec<(usize, usize)> =
            (0..PERIODS.len()).flat_map(|p| (0..PERIODS.len()).map(move |q| (p, q))).collect();
        periods.sort_by_key(|(p, q)| p + q);
        for (p, q) in periods {
            let step = |n: usize| Step { by: steps[n], rows: rows[n][p].clone(), cols: cols[n][q].clone() };
            let mut way = Way { steps: (0..steps.len()).map(step).collect(), last: last.clone(), slice: None };
            let fits = |way: &Way| looks.iter().all(|(i, j)| made(s, way, *i, *j).is_some_and(|(v, r)| s.may(*i, *j, v, r)));
            if fits(&way) {
                return Some(theory(s, way));
            }
            // A part of K alone: asked of the periods that leave the others out.
            way.slice = slice(s, &places, &units, &way);
            if way.slice.is_some() && fits(&way) {
                return Some(theory(s, way));
            }
        }
    }
    None
}

/// How large right sums are, by row and by column: in units of it lines of large numbers do not decide alone.
struct Units {
    rows: Vec<f64>,
    cols: Vec<f64>,
}

impl Units {
    /// Of some elements of each line.
    fn of(s: &System) -> Self {
        const EACH: usize = 32;
        let (rows, cols) = (spread_of(s.rows, EACH), spread_of(s.cols, EACH));
        let size = |all: &mut dyn Iterator<Item = f64>| {
            let (sum, n) = all.filter(|x| x.is_finite()).fold((0.0, 0.0), |m, x| (m.0 + x * x, m.1 + 1.0));
            if sum > 0.0 { f64::sqrt(sum / n) } else { 1.0 }
        };
        let rows_of: Vec<f64> = (0..s.rows).map(|i| size(&mut cols.iter().map(|j| right(s, (i, *j))))).collect();
        let cols_of = (0..s.cols).map(|j| size(&mut rows.iter().map(|i| right(s, (*i, j)) / rows_of[*i]))).collect();
        Self { cols: cols_of, rows: rows_of }
    }

    fn at(&self, (i, j): (usize, usize)) -> f64 {
        self.rows[i] * self.cols[j]
    }
}

/// The element a step away, in the same group.
fn partner(s: &System, (i, j): (usize, usize), (p, q): (i64, i64)) -> Option<(usize, usize)> {
    let (x, y) = (i.checked_add_signed(p as isize)?, j.checked_add_signed(q as isize)?);
    (x < s.rows && y < s.cols && s.part[x] == s.part[i]).then_some((x, y))
}

fn right(s: &System, (i, j): (usize, usize)) -> f64 {
    s.ideal[i * s.cols + j] - s.bias.at(i, j)
}

/// The steps whose right sums are in what is wrong, the clearest first.
fn steps(s: &System, places: &[usize], units: &Units) -> Vec<(i64, i64)> {
    let told = |at: &usize| {
        let own = (at / s.cols, at % s.cols);
        (own.0, own.1, (s.actual[*at] - s.ideal[*at]) / units.at(own))
    };
    let told: Vec<(usize, usize, f64)> = places.iter().map(told).filter(|t| t.2.is_finite()).collect();
    let clear = |by: (i64, i64), most: usize| -> f64 {
        let (mut sum, mut squares) = (0.0, 0.0);
        for (i, j, y) in told.iter().take(most).filter(|t| t.2 != 0.0) {
            let Some((x, z)) = partner(s, (*i, *j), by) else { continue };
            let p = y * right(s, (x, z)) / units.at((x, z));
            (sum, squares) = (sum + p, squares + p * p);
        }
        if squares > 0.0 { sum / squares.sqrt() } else { 0.0 }
    };
    let ahead = |n: usize| -> Vec<(f64, (i64, i64))> {
        let p = n as i64 - ROWS;
        let all = (-COLS..=COLS).map(|q| (p, q)).filter(|by| *by != (0, 0));
        all.map(|by| (clear(by, FEW), by)).filter(|x| x.0 > MAYBE).collect()
    };
    let mut few: Vec<(f64, (i64, i64))> = parallel::collect(2 * ROWS as usize + 1, ahead).concat();
    few.order_by(|x, y| y.0.total_cmp(&x.0));
    let mut all: Vec<(f64, (i64, i64))> =
        few.iter().take(AGAIN).map(|(_, by)| (clear(*by, MANY), *by)).filter(|x| x.0 > CLEAR).collect();
    all.order_by(|x, y| y.0.total_cmp(&x.0));
    // What is like everything, as a mean of all sums is, is no step.
    if all.len() > STEPS { Vec::new() } else { all.into_iter().map(|x| x.1).collect() }
}

/// What may multiply accumulators last, nothing first; of a step along one side the other one says nothing.
fn lasts(s: &System, steps: &[(i64, i64)]) -> Vec<Last> {
    let of = |g: &Given, row: &dyn Fn(usize) -> usize, n: usize| -> Option<Arc<Vec<f64>>> {
        let one = g.q.is_some() && g.grid.1 == 1 && g.grid.0 > 1;
        one.then(|| Arc::new((0..n).map(|x| g.step(row(x), 0)).collect()))
    };
    let row_of = |i: usize| s.part[i].map_or(0, |p| s.parts[p].a + i - s.parts[p].rows.start);
    let mut rows: Vec<(Option<Arc<Vec<f64>>>, &str)> = vec![(None, "")];
    if steps.iter().any(|x| x.0 != 0) {
        rows.extend(of(&s.a, &row_of, s.rows).map(|x| (Some(x), "the scale of its own row")));
        let weights = gathered::weights(s, Which::A).filter(|w| w.len() == s.rows && w.iter().all(|w| *w != 0.0));
        rows.extend(weights.map(|w| (Some(Arc::new(w)), "its own row_weight")));
    }
    let mut cols: Vec<(Option<Arc<Vec<f64>>>, &str)> = vec![(None, "")];
    // Columns of several groups have scales of their own: those of one row are of one group.
    if steps.iter().any(|x| x.1 != 0) && s.parts.len() == 1 {
        cols.extend(of(&s.b, &|j| j, s.cols).map(|x| (Some(x), "the scale of its own column")));
    }
    let mut all = Vec::new();
    for (row, of_row) in &rows {
        for (col, of_col) in &cols {
            let words: Vec<&str> = [*of_row, *of_col].into_iter().filter(|w| !w.is_empty()).collect();
            all.push(Last { row: row.clone(), col: col.clone(), words: words.join(" and ") });
        }
    }
    all
}

/// What the sum of `from` is multiplied by in the accumulator of `to`.
fn factor(last: &Last, to: (usize, usize), from: (usize, usize)) -> f64 {
    let one = |of: &Option<Arc<Vec<f64>>>, to: usize, from: usize| of.as_ref().map_or(1.0, |w| w[to] / w[from]);
    one(&last.row, to.0, from.0) * one(&last.col, to.1, from.1)
}

/// Place of a row in its group.
fn place(s: &System, i: usize) -> usize {
    s.part[i].map_or(i, |p| i - s.parts[p].rows.start)
}

/// The rows, or columns, of a period whose elements hold what lies a step away: those whose coefficient is beyond chance, and
/// a part of the largest.
fn taking(
    s: &System,
    places: &[usize],
    units: &Units,
    (last, by): (&Last, (i64, i64)),
    (period, of_rows): (usize, bool),
) -> Lines {
    // Σ x·y, Σ x², Σ (x·y)² of each.
    let mut sums = vec![(0.0, 0.0, 0.0); period];
    for at in places {
        let own = (at / s.cols, at % s.cols);
        let Some(from) = partner(s, own, by) else { continue };
        let unit = units.at(own);
        let (x, y) = (right(s, from) * factor(last, own, from) / unit, (s.actual[*at] - s.ideal[*at]) / unit);
        let sum = &mut sums[if of_rows { place(s, own.0) } else { own.1 } % period];
        *sum = (sum.0 + x * y, sum.1 + x * x, sum.2 + (x * y).powi(2));
    }
    let most = sums.iter().filter(|s| s.1 > 0.0).fold(0.0f64, |m, s| m.max(s.0 / s.1));
    let is = |s: &(f64, f64, f64)| s.0 > SHARE * most * s.1 && s.0 > MAYBE * s.2.sqrt();
    Lines { period, is: sums.iter().map(is).collect() }
}

/// The elements that share the accumulator of an element, beside itself.
fn others<'w>(s: &'w System, way: &'w Way, own: (usize, usize)) -> impl Iterator<Item = (usize, usize)> + 'w {
    let taken = move |step: &&Step| step.rows.has(place(s, own.0)) && step.cols.has(own.1);
    way.steps.iter().filter(taken).filter_map(move |step| partner(s, own, step.by))
}

/// The part of the sum of an element over a range of K, and its magnitude.
fn part(a: &[f64], b: &[f64]) -> (f64, f64) {
    a.iter().zip(b).fold((0.0, 0.0), |m, (x, y)| (m.0 + x * y, m.1 + (x * y).abs()))
}

/// What an element holds, and its magnitude.
fn made(s: &System, way: &Way, i: usize, j: usize) -> Option<(f64, f64)> {
    let (mut sum, mut size) = (right(s, (i, j)), s.magnitude(i * s.cols + j));
    for from in others(s, way, (i, j)) {
        let (v, r) = match &way.slice {
            None => (right(s, from), s.magnitude(from.0 * s.cols + from.1)),
            Some(ks) => {
                let (a, b, _) = s.lines(from.0, from.1)?;
                part(&s.a.values[a * s.k..][ks.clone()], &s.b.values[b * s.k..][ks.clone()])
            }
        };
        let by = factor(&way.last, (i, j), from);
        (sum, size) = (sum + v * by, size + r * by.abs());
    }
    sum.is_finite().then_some((sum, size))
}

/// The slice of K that is in what is wrong, the widest that has one coefficient: 1 there and 0 elsewhere.
fn slice(s: &System, places: &[usize], units: &Units, way: &Way) -> Option<Range<usize>> {
    s.parts.iter().all(|p| p.k.len() == s.k).then_some(())?;
    let taken: Vec<usize> =
        places.iter().copied().filter(|at| others(s, way, (at / s.cols, at % s.cols)).next().is_some()).collect();
    SLICES.into_iter().filter(|w| (2..=MOST).contains(&s.k.div_ceil(*w))).find_map(|width| {
        let n = s.k.div_ceil(width);
        let most = 4 * n + 32;
        (taken.len() >= 3 * n).then_some(())?;
        let mut system = Normal::new(n);
        for at in taken.iter().take(most) {
            let own = (at / s.cols, at % s.cols);
            let mut row = vec![0.0; n];
            for from in others(s, way, own) {
                let (a, b, _) = s.lines(from.0, from.1)?;
                let by = factor(&way.last, own, from);
                let (a, b) = (&s.a.values[a * s.k..(a + 1) * s.k], &s.b.values[b * s.k..(b + 1) * s.k]);
                for (x, (a, b)) in row.iter_mut().zip(a.chunks(width).zip(b.chunks(width))) {
                    *x += part(a, b).0 * by;
                }
            }
            let unit = units.at(own);
            system.add(&row, s.actual[*at] - s.ideal[*at], 1.0 / (unit * unit));
        }
        let c = system.solve()?;
        c.iter().all(|c| c.abs() < NEAR || (c - 1.0).abs() < NEAR).then_some(())?;
        let is: Vec<bool> = c.iter().map(|c| *c > 0.5).collect();
        let (from, to) = (is.iter().position(|x| *x)?, is.iter().rposition(|x| *x)? + 1);
        (is[from..to].iter().all(|x| *x) && to - from < n).then(|| from * width..(to * width).min(s.k))
    })
}

/// `m + 3`, `n − 4`.
fn moved(letter: char, by: i64) -> String {
    match by {
        0 => letter.to_string(),
        1.. => format!("{letter} + {by}"),
        _ => format!("{letter} − {}", -by),
    }
}

fn in_words(s: &System, way: &Way) -> String {
    let one = |step: &Step| {
        let place: Vec<String> = [step.rows.words('m'), step.cols.words('n')].into_iter().flatten().collect();
        let place = if place.is_empty() { String::new() } else { format!(" where {}", place.join(" and ")) };
        format!("of ({}, {}){place}", moved('m', step.by.0), moved('n', step.by.1))
    };
    let steps: Vec<String> = way.steps.iter().map(one).collect();
    let what = match &way.slice {
        None => "hold their own sum and that".to_string(),
        Some(ks) if ks.start == 0 => format!("start from the finished sum over k = 0 … {}", ks.end - 1),
        Some(ks) => format!("hold their own sum and that over k = {} … {}", ks.start, ks.end - 1),
    };
    let last = if way.last.words.is_empty() { String::new() } else { format!(", each times {}", way.last.words) };
    let counted = if s.parts.len() > 1 { "; m is counted from the first row of a group" } else { "" };
    // One row on and so many columns back: what an index m·S + n, of rows that are longer than S, has in common.
    let stride = match way.steps.iter().map(|x| x.by).find(|by| by.0 == 1 && by.1 < 0) {
        Some((_, q)) if way.steps.iter().all(|x| x.by.1 == x.by.0 * q) => {
            format!("; as by an index m·{} + n of rows that are longer than {}", -q, -q)
        }
        _ => String::new(),
    };
    format!("accumulators are shared: elements (m, n) {what} {}{last}{counted}{stride}", steps.join(" and "))
}

fn theory(s: &System, mut way: Way) -> Theory {
    way.steps.order_by(|x, y| x.by.cmp(&y.by));
    let of_lines = |x: &Lines| if x.is.contains(&false) { cost(x.period) + 2.0 } else { 0.0 };
    let of_step = |x: &Step| {
        cost(x.by.0.unsigned_abs() as usize) + cost(x.by.1.unsigned_abs() as usize) + of_lines(&x.rows) + of_lines(&x.cols)
    };
    let bits = 6.0
        + way.steps.iter().map(of_step).sum::<f64>()
        + way.slice.as_ref().map_or(0.0, |ks| cost(ks.start) + cost(ks.end))
        + if way.last.words.is_empty() { 0.0 } else { 1.0 };
    let mut t = Theory::new(Class::AccState, "out", "out.shared_sums", in_words(s, &way)).bits(bits);
    let (cols, n) = (s.cols, s.rows * s.cols);
    // Who shares with whom, of every row: partners of its columns follow from the steps.
    let places: Vec<usize> = (0..s.rows).map(|i| place(s, i)).collect();
    let (part_of, all_rows) = (s.part.clone(), s.rows);
    let of_lines: Vec<Option<(usize, usize)>> = (0..s.rows).map(|i| s.lines(i, 0).map(|x| (x.0, x.1))).collect();
    let (a, b, bias, right) = (s.a.clone(), s.b.clone(), s.bias.clone(), s.right_sums());
    let sizes = parallel::numbers(n, |at| s.magnitude(at));
    let sums = right.clone();
    t.sums(right, cols, move |i, j| {
        let (mut sum, mut size) = (sums[i * cols + j], sizes[i * cols + j]);
        for step in way.steps.iter().filter(|x| x.rows.has(places[i]) && x.cols.has(j)) {
            let (x, y) = (i as i64 + step.by.0, j as i64 + step.by.1);
            if x < 0 || y < 0 || x >= all_rows as i64 || y >= cols as i64 {
                continue;
            }
            let (x, y) = (x as usize, y as usize);
            if part_of[x] != part_of[i] {
                continue;
            }
            let (v, r) = match (&way.slice, of_lines[x]) {
                (Some(ks), Some((ra, rb))) => part(&a.values[ra * a.k..][ks.clone()], &b.values[(rb + y) * b.k..][ks.clone()]),
                _ => (sums[x * cols + y], sizes[x * cols + y]),
            };
            let by = factor(&way.last, (i, j), (x, y));
            (sum, size) = (sum + v * by, size + r * by.abs());
        }
        (sum + bias.at(i, j), size)
    });
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, grouped_found, noise, sum, wide};
    use crate::job::Operand;

    const K: usize = 96;

    /// An index 8·i + j of rows of 16: up to two elements of a tile of 2 × 16 have one.
    #[test]
    fn elements_whose_index_is_the_same_share_an_accumulator() {
        let (m, n) = (30, 70);
        let (a, b) = (codes(Format::Int8, m, K, K, false, 61), codes(Format::Int8, n, K, K, false, 62));
        let of = |by: &dyn Fn(usize, usize) -> f64| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::F16, |i, j, right| {
                let same = |x: usize, y: usize| x / 2 == i / 2 && y / 16 == j / 16 && x % 2 * 8 + y % 16 == i % 2 * 8 + j % 16;
                let all = (0..m).flat_map(|x| (0..n).map(move |y| (x, y))).filter(|(x, y)| same(*x, *y));
                all.map(|(x, y)| right[x * n + y] * if (x, y) == (i, j) { 1.0 } else { by(i, j) / by(x, y) }).sum()
            })
        };
        let (sa, sb) = (a.scale_inv(), b.scale_inv());
        let got = of(&|i, j| f64::from(sa[i]) * f64::from(sb[j]));
        assert_eq!(got.0, "acc_state:out.shared_sums", "{}", got.1);
        for words in [
            "(m − 1, n + 8) where m mod 2 = 1 and n mod 16 = 0 … 7",
            "(m + 1, n − 8) where m mod 2 = 0 and n mod 16 = 8 … 15",
            "each times the scale of its own row and the scale of its own column",
            "as by an index m·8 + n",
        ] {
            assert!(got.1.contains(words), "{}", got.1);
        }
        // By numbers of nobody's it is no accumulator.
        let got = of(&|i, j| 1.0 + 3.0 * noise(i * n + j));
        assert!(!got.0.contains("shared_sums"), "{} {}", got.0, got.1);
    }

    /// Tokens of a group in fours whose halves have the same accumulators; counted from the first of the group.
    #[test]
    fn rows_of_a_group_that_share_an_accumulator_are_told() {
        let (n, ends) = (40, [18usize, 23, 48]);
        let (a, b) = (wide(48, K), codes(Format::E4m3, 3 * n, K, K, false, 63));
        let (x, y) = (a.to_f64(), b.dequantize());
        let start = |i: usize| ends.iter().rfind(|end| **end <= i).copied().unwrap_or(0);
        let end = |i: usize| *ends.iter().find(|end| **end > i).unwrap();
        let of = |with: &dyn Fn(usize) -> Option<usize>| {
            grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
                let e = ends.iter().filter(|end| **end <= i).count();
                let one = |i: usize| sum(K, |k| x[[i, k]] * y[[e * n + j, k]]);
                one(i) + with(i).filter(|x| start(i) <= *x && *x < end(i)).map_or(0.0, one)
            })
        };
        let got = of(&|i| Some(start(i) + ((i - start(i)) ^ 2)));
        assert_eq!(got.0, "acc_state:out.shared_sums", "{}", got.1);
        assert!(got.1.contains("(m − 2, n) where m mod 4 = 2 … 3 and of (m + 2, n) where m mod 4 = 0 … 1"), "{}", got.1);
        assert!(got.1.contains("counted from the first row of a group"), "{}", got.1);
        // Another row each is none.
        let got = of(&|i| Some(start(i) + (noise(i) * (end(i) - start(i)) as f64) as usize));
        assert!(!got.0.contains("shared_sums"), "{} {}", got.0, got.1);
    }

    /// The second K slice of some rows starts from what the rows before them made of it.
    #[test]
    fn a_slice_of_other_rows_is_told() {
        let (m, n) = (48, 64);
        let (a, b) = (codes(Format::E4m3, m, K, K, false, 64), codes(Format::E4m3, n, K, K, false, 65));
        let (x, y) = (a.dequantize(), b.dequantize());
        let sa = a.scale_inv();
        let of = |from: usize, to: usize| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, right| {
                let more = sum(K, |k| if (from..to).contains(&k) && i % 8 >= 4 { x[[i - 4, k]] * y[[j, k]] } else { 0.0 });
                let by = if i % 8 >= 4 { f64::from(sa[i]) / f64::from(sa[i - 4]) } else { 1.0 };
                right[i * n + j] + more * by
            })
        };
        let got = of(0, 32);
        assert_eq!(got.0, "acc_state:out.shared_sums", "{}", got.1);
        let words = "start from the finished sum over k = 0 … 31 of (m − 4, n) where m mod 8 = 4 … 7, each times the scale of its own row";
        assert!(got.1.contains(words), "{}", got.1);
        let got = of(64, 96);
        assert!(got.1.contains("that over k = 64 … 95 of (m − 4, n) where m mod 8 = 4 … 7"), "{} {}", got.0, got.1);
    }
}
