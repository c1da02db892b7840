//! Rows of a grouped product that are looked up where another rule has its group begin: of the scales of a, or of its codes, in an array whose groups
//! stand one after the other, or each padded to a multiple of rows.
//!
//! ```text
//! row i of group e:  array[p(e) + i − o(e)]        o(e): where the group begins in the result;  w(e): where it stands in the array, Σ ⌈n/u⌉·u of the
//!                                                  groups before it; a right kernel: p = w.  Padding and what is behind the end: code 0
//! ```

use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use std::sync::Arc;

/// Multiples of rows.
const UNITS: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
/// Elements of a group that decide, and how many there are at least of one that moved.
const LOOKS: usize = 48;
const LEAST: usize = 8;
/// Numbers that are read from elsewhere, at least.
const NUMBERS: usize = 8;
/// Multiply-adds of the search.
const WORK: usize = 1 << 28;

/// What is looked up: scales, these ones, or codes.
#[derive(Clone)]
enum What {
    Scales(Arc<Vec<f64>>),
    Codes,
}

/// An array that is padded to a multiple, in which every group begins somewhere.
struct Array {
    unit: usize,
    /// Row of a at each place of the array.
    rows: Arc<Vec<Option<usize>>>,
    /// Where each group stands.
    stands: Vec<usize>,
}

impl Array {
    fn of(s: &System, unit: usize) -> Self {
        let (mut rows, mut stands) = (Vec::new(), Vec::new());
        for p in &s.parts {
            stands.push(rows.len());
            rows.extend(p.rows.clone().map(|i| Some(p.a + i - p.rows.start)));
            rows.resize(rows.len().next_multiple_of(unit), None);
        }
        Self { unit, rows: Arc::new(rows), stands }
    }
    fn words(&self) -> String {
        if self.unit == 1 {
            String::new()
        } else {
            format!(", where every group is padded to a multiple of {} rows", self.unit)
        }
    }
}

/// Of grouped products whose rows have groups of their own.
pub fn theories(s: &System) -> Vec<Theory> {
    let g = &s.a;
    if s.parts.len() < 2 || s.alone || s.parts.iter().any(|p| p.k.len() != s.k || p.rows.start != p.a) {
        return Vec::new();
    }
    let mut all = Vec::new();
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * g.global).collect());
    let each_row = g.tile.0 == 1 && g.grid.0 == g.rows && g.zero.is_none();
    for what in [What::Scales(scales), What::Codes] {
        if g.q.is_none() || matches!(what, What::Scales(_)) && !each_row {
            continue;
        }
        let arrays: Vec<Array> = std::iter::once(1).chain(UNITS).map(|u| Array::of(s, u)).collect();
        let mut of: Vec<Theory> = arrays.iter().flat_map(|a| rules(s, &what, a)).filter(|t| s.explains(t)).collect();
        if of.is_empty() {
            of.extend(arrays.iter().find_map(|a| solved(s, &what, a)));
        }
        all.extend(of);
    }
    all
}

/// Every rule for where the groups begin: in words, of group e that begins at row o of the result.
fn rules(s: &System, what: &What, array: &Array) -> Vec<Theory> {
    let n = s.parts.len();
    let begins: Vec<usize> = s.parts.iter().map(|p| p.rows.start).collect();
    let most = s.parts.iter().map(|p| p.rows.len()).max().unwrap_or(0);
    let mut all = Vec::new();
    let mut add = |words: String, bits: f64, at: &dyn Fn(usize) -> usize| {
        let starts: Vec<usize> = (0..n).map(at).collect();
        let words = format!("{words} for group e that begins at row o");
        all.extend(theory(s, what, array, &starts, words, 6.0 + cost(array.unit) + bits, 0));
    };
    if array.unit > 1 {
        add("o".into(), 0.0, &|e| begins[e]);
    }
    for u in UNITS {
        let up = |x: usize| x.next_multiple_of(u);
        let more = if u == array.unit { 0.0 } else { cost(u) };
        add(format!("⌊(o + {}·e) / {u}⌋·{u}", u - 1), more, &|e| (begins[e] + (u - 1) * e) / u * u);
        add(format!("⌊(o + {u}·e) / {u}⌋·{u}"), more, &|e| (begins[e] + u * e) / u * u);
        add(format!("⌈o / {u}⌉·{u}"), more, &|e| up(begins[e]));
        add(format!("⌊o / {u}⌋·{u}"), more, &|e| begins[e] / u * u);
        add(format!("o + {u}·e"), more + 1.0, &|e| begins[e] + u * e);
        add(format!("{}·e (the longest group, to a multiple of {u})", up(most)), more + 1.0, &|e| up(most) * e);
        let sums = Array::of(s, u).stands;
        add(format!("the sum of the lengths before it, each to a multiple of {u},"), more + 1.0, &|e| sums[e]);
    }
    all
}

/// `starts`: where the rows of each group are looked up. `None`: as it should be.
fn theory(s: &System, what: &What, array: &Array, starts: &[usize], at: String, bits: f64, freedom: usize) -> Option<Theory> {
    let filled = |e: &usize| !s.parts[*e].rows.is_empty();
    let g = &s.a;
    let moved = (0..starts.len()).filter(filled).filter(|e| starts[*e] != array.stands[*e]);
    let rows: usize = moved.map(|e| s.parts[e].rows.len()).sum();
    // Few powers of two are alike by chance.
    let told = rows * if matches!(what, What::Scales(_)) { g.grid.1 } else { g.k };
    (told >= NUMBERS).then_some(())?;
    let (word, variant, class) = match what {
        What::Scales(_) => ("scales", "group_rows", Class::ScaleIndex),
        What::Codes => ("codes", "group_rows_of_codes", Class::GroupBoundary),
    };
    let words = format!("rows of {word} of a are looked up from row {at}{}; code 0 where nothing is stored", array.words());
    let mut t = Theory::new(class, "a", format!("a.{variant}"), words).bits(bits);
    t.freedom = freedom;
    let rows = array.rows.clone();
    // Of each row of a, the one that is read.
    let mut from: Vec<Option<usize>> = (0..g.rows).map(Some).collect();
    for (e, p) in s.parts.iter().enumerate() {
        for i in p.rows.clone() {
            from[p.a + i - p.rows.start] = rows.get(starts[e] + i - p.rows.start).copied().flatten();
        }
    }
    let (k_all, every, cols) = (g.k, g.tile.1, g.grid.1);
    match what {
        What::Codes => t.a.code = Some(Arc::new(move |i, k| from[i].map(|i| i * k_all + k))),
        What::Scales(scales) => {
            let none = if g.q.as_ref().is_some_and(|q| q.scale_format() == Format::E8m0) { 2f64.powi(-127) } else { 0.0 };
            let scales = scales.clone();
            t.a.scaled(every, Arc::new(move |i, k| from[i].map_or(none, |i| scales[i * cols + k / every])));
        }
    }
    Some(t)
}

/// Where each group is looked up, by itself: its own place where it may be, else the only one that makes its elements.
fn solved(s: &System, what: &What, array: &Array) -> Option<Theory> {
    let n = s.parts.len();
    let mut starts = array.stands.clone();
    let far = 2 * array.unit.max(4) * n;
    ((2 * far + 1) * n * (s.k + s.a.rows + s.a.scales().len()) <= WORK).then_some(())?;
    let mut moved = Vec::new();
    for (e, p) in s.parts.iter().enumerate().filter(|(_, p)| !p.rows.is_empty()) {
        let mut places: Vec<(usize, usize)> = p.rows.clone().flat_map(|i| (0..s.cols).map(move |j| (i, j))).collect();
        spread(&mut places, LOOKS);
        let own = array.stands[e];
        let fits = |start: usize| {
            let mut of = array.stands.clone();
            of[e] = start;
            match theory(s, what, array, &of, String::new(), 0.0, 0) {
                Some(t) => places.iter().all(|(i, j)| s.fits(&t, *i, *j)),
                None => places.iter().all(|(i, j)| s.fits(&Theory::right(), *i, *j)),
            }
        };
        if fits(own) {
            continue;
        }
        (places.len() >= LEAST).then_some(())?;
        let near: Vec<usize> = (own.saturating_sub(far)..=own + far).filter(|x| *x != own && fits(*x)).collect();
        // Places that are told apart by no element may be any: the nearest.
        starts[e] = near.into_iter().min_by_key(|x| x.abs_diff(own))?;
        moved.push(e);
    }
    // One alone is no rule of groups.
    (moved.len() > 1).then_some(())?;
    let some: Vec<String> =
        moved.iter().take(6).map(|e| format!("{} for group {e} instead of {}", starts[*e], array.stands[*e])).collect();
    let bits = 8.0 + cost(array.unit) + 8.0 * moved.len() as f64;
    theory(s, what, array, &starts, some.join(", "), bits, moved.len())
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, grouped_found, sum};
    use crate::job::Operand;
    use crate::{Format, QTensor};

    const N: usize = 16;
    const K: usize = 64;
    /// Groups that are no multiple of 4 rows, and one that is empty.
    const ENDS: [usize; 6] = [7, 20, 20, 37, 46, 69];

    fn begin(e: usize) -> usize {
        if e == 0 { 0 } else { ENDS[e - 1] }
    }
    fn expert(i: usize) -> usize {
        ENDS.iter().filter(|end| **end <= i).count()
    }
    /// The row of a at a place of an array where every group is padded to 4 rows.
    fn row(at: usize) -> Option<usize> {
        let stands = |e: usize| (0..e).map(|x| (ENDS[x] - begin(x)).next_multiple_of(4)).sum::<usize>();
        (0..69).find(|i| stands(expert(*i)) + i - begin(expert(*i)) == at)
    }
    fn operands() -> (QTensor, QTensor) {
        (codes(Format::E4m3, 69, K, 16, false, 31), codes(Format::E4m3, 6 * N, K, K, false, 32))
    }
    /// Row i of a by the scales of one row and the codes of another; 0 of none.
    fn found(scales: impl Fn(usize) -> Option<usize>, of: impl Fn(usize) -> Option<usize>) -> (String, String) {
        let (a, b) = operands();
        let (x, y) = (a.clone(), b.dequantize());
        grouped_found(&Operand::Quantized(a), &b, &ENDS, Format::Bf16, |i, j| {
            let (Some(s), Some(c)) = (scales(i), of(i)) else { return 0.0 };
            sum(K, |k| {
                let code = Format::E4m3.decode(u32::from(x.codes()[c * K + k]));
                code * f64::from(x.scale_inv()[s * 4 + k / 16]) * y[[expert(i) * N + j, k]]
            })
        })
    }

    #[test]
    fn scales_of_groups_that_begin_by_another_rounding_are_told() {
        let got = found(|i| row((begin(expert(i)) + 3 * expert(i)) / 4 * 4 + i - begin(expert(i))), Some);
        assert_eq!(got.0, "scale_index:a.group_rows", "{}", got.1);
        assert!(got.1.contains("row ⌊(o + 3·e) / 4⌋·4 for group e"), "{}", got.1);
        assert!(got.1.contains("every group is padded to a multiple of 4 rows"), "{}", got.1);
    }

    #[test]
    fn scales_of_groups_that_begin_by_no_rule_are_told_one_by_one() {
        let starts = [0, 11, 0, 27, 44, 53];
        let got = found(|i| row(starts[expert(i)] + i - begin(expert(i))), Some);
        assert_eq!(got.0, "scale_index:a.group_rows", "{}", got.1);
        assert!(got.1.contains("row 11 for group 1 instead of 8, 27 for group 3 instead of 24"), "{}", got.1);
    }

    #[test]
    fn codes_of_groups_that_begin_at_a_multiple_are_told_and_their_scales_are_right() {
        let from = |i: usize| Some(begin(expert(i)).next_multiple_of(8) + i - begin(expert(i))).filter(|r| *r < 69);
        let got = found(Some, from);
        assert_eq!(got.0, "group_boundary:a.group_rows_of_codes", "{}", got.1);
        assert!(got.1.contains("row ⌈o / 8⌉·8 for group e"), "{}", got.1);
    }
}
