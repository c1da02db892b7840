//! Products whose rows have another weight than a router gave them, in all rows or in some.
//!
//! ```text
//! right row i = w[i]·(sums of row i)      written row i = w'·(sums of row i)      w' of every wrong row: 1, w[i]², 1/w[i], w[index(i)]
//! ```

use super::Bundle;
use crate::assay::Judgement;
use crate::fault::solve::maps::shortest_ways;
use crate::fault::solve::reread::{doubled, floats, halves};
use crate::fault::solve::segment::where_not_all;
use crate::fault::{Class, Finding};
use crate::op::Op;
use crate::{Format, Overflow, Rounding};

/// Wrong rows, at least; weights that are seen in them where they stand at other places.
const LEAST: usize = 2;
const DIFFERENT: usize = 3;
/// Wrong rows whose weight is known, where others read what lies behind all weights: so many, and a third of them.
const KNOWN: usize = 4;
/// Bits that rows tell which have each another row's weight.
const BITS: f64 = 64.0;
/// The share of a row's energy that is not its sums by one number, at most.
const NOISE: f64 = 1.0 / 16384.0;
/// How near a solved weight has to be to a stored one, relative: a row of one large element has the rounding of bf16.
const NEAR: f64 = 1.0 / 256.0;
/// Rows that groups may be padded to.
const PADDED: [usize; 5] = [8, 16, 32, 64, 128];

/// Another weight of row i of group e, which begins at row `start`; `None`: nothing is known of it.
type Other<'w> = Box<dyn Fn(usize, (usize, usize)) -> Option<f64> + 'w>;

struct Way<'w> {
    words: String,
    class: Class,
    /// Whether it takes weights from other places.
    moved: bool,
    /// Rows of which nothing is known read what lies behind the weights.
    behind: bool,
    weight: Other<'w>,
}

fn ways<'w>(w: &'w [f64], starts: &'w [usize]) -> Vec<Way<'w>> {
    let mut all: Vec<Way> = Vec::new();
    let way = |class, moved, words: &str, weight: Other<'w>| Way { words: words.into(), class, moved, behind: false, weight };
    let mut add = |class, moved, words: &str, weight: Other<'w>| all.push(way(class, moved, words, weight));
    add(Class::SilentSkip, false, "row_weights are left out", Box::new(|_, _| Some(1.0)));
    add(Class::ScaleDoubledInverted, false, "row_weights are multiplied twice", Box::new(|i, _| Some(w[i] * w[i])));
    add(Class::ScaleDoubledInverted, false, "rows are divided by row_weights", Box::new(|i, _| Some(1.0 / w[i])));
    let at = |i: usize| w.get(i).copied();
    let index = Class::ScaleIndex;
    let words = "row_weights are read at the row's number within its group, not within the tensor";
    add(index, true, words, Box::new(move |i, (_, start)| at(i - start)));
    for n in PADDED {
        let words =
            format!("row_weights are read at the row's number within its tile of {n} rows of its group, not within the tensor");
        add(index, true, &words, Box::new(move |i, (_, start)| at((i - start) % n)));
    }
    add(index, true, "row_weights are read at the number of the group", Box::new(move |_, (e, _)| at(e)));
    for n in PADDED {
        let words = format!("row_weights are read as if each group began at a multiple of {n}");
        let padded = move |e: usize| (0..e).map(|e| (starts[e + 1] - starts[e]).next_multiple_of(n)).sum::<usize>();
        add(index, true, &words, Box::new(move |i, (e, start)| at(padded(e) + i - start)));
    }
    for f in [Format::E4m3, Format::E4m3Fnuz, Format::E5m2] {
        let rounded = move |x: f64| f.decode(f.encode(x, Rounding::NearestEven, Overflow::Saturate));
        add(Class::RoundOrder, false, &format!("row_weights are rounded to {f}"), Box::new(move |i, _| at(i).map(rounded)));
    }
    for (words, read) in floats(w).into_iter().chain(halves(w)) {
        add(Class::BitsReinterpreted, true, &format!("row_weights are {words}"), Box::new(move |i, _| read.get(i).copied()));
    }
    // Of 16 bits read as 32 the first half alone is there.
    for (words, read) in doubled(w) {
        let (words, there) = (format!("row_weights are {words}"), w.len() / 2);
        let weight: Other = Box::new(move |i, _| read.get(i).copied().filter(|_| i < there));
        all.push(Way { behind: true, ..way(Class::BitsReinterpreted, true, &words, weight) });
    }
    for by in shortest_ways(w.len(), 1) {
        let words = format!("the weight of row r is that of {}", by.words);
        all.push(way(index, true, &words, Box::new(move |i, _| at((by.map)(i, 0)))));
    }
    all
}

/// The weights that all wrong rows have instead of their own: every row is its right sums by one number.
pub fn explain(bundle: &Bundle, judged: &Judgement) -> Option<Finding> {
    let weights = bundle.a.weights.as_ref().filter(|_| bundle.meta.op == Op::GroupedGemm)?;
    let ends = bundle.offs.as_ref()?;
    let w: Vec<f64> = weights.iter().map(|w| f64::from(*w)).collect();
    let rows = *ends.last()?;
    let solved = solved(judged, &w, rows)?;
    let is = |i: usize, weight: f64| solved[i].is_none_or(|by| near(by, weight));
    let wrong: Vec<usize> = (0..rows).filter(|i| !is(*i, w[*i])).collect();
    (wrong.len() >= LEAST).then_some(())?;
    let starts: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let group = |i: usize| {
        let e = ends.partition_point(|end| *end <= i);
        (e, starts[e])
    };
    let way = ways(&w, &starts).into_iter().find(|way| {
        let mut seen: Vec<u64> = Vec::new();
        let mut known = 0;
        let all = wrong.iter().all(|i| match (way.weight)(*i, group(*i)) {
            Some(weight) => {
                seen.push(weight.to_bits());
                known += 1;
                is(*i, weight)
            }
            None => way.behind,
        });
        seen.sort_unstable();
        seen.dedup();
        all && (!way.moved || seen.len() >= DIFFERENT) && (!way.behind || known >= KNOWN && 3 * known >= wrong.len())
    });
    let (class, words) = match way {
        None => {
            let from = other_rows(&solved, &w, &wrong)?;
            let shown: Vec<String> = wrong.iter().zip(&from).take(4).map(|(i, j)| format!("{i} ← {j}")).collect();
            let words = format!("the weights of {} rows are those of other rows ({} …)", wrong.len(), shown.join(", "));
            (Class::ScaleIndex, words)
        }
        Some(way) => {
            // Rows that the way leaves as they are belong to it.
            let follows = |i: usize| i >= rows || (way.weight)(i, group(i)).map_or(way.behind, |weight| is(i, weight));
            let is_row = widened(&wrong, (0..w.len()).map(follows).collect());
            let behind = match way.behind {
                true => format!(", and rows from {} on read what lies behind them", w.len() / 2),
                false => String::new(),
            };
            (way.class, format!("{}{behind}{}", way.words, where_not_all("rows", &is_row)))
        }
    };
    Some(Finding::solved(class, "row_weights", words))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= NEAR * b.abs()
}

/// What each row's right sums are multiplied by, by least squares; `None` of a row of zeros. Nothing where a row is not its sums by one number.
fn solved(judged: &Judgement, w: &[f64], rows: usize) -> Option<Vec<Option<f64>>> {
    let (ideal, cols) = (judged.bound.ideal(), judged.cols);
    (cols > 0 && rows <= w.len() && rows * cols <= judged.actual.len() && judged.actual.len() == ideal.len()).then_some(())?;
    let row = |i: usize| {
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        let row = i * cols..(i + 1) * cols;
        for (x, y) in ideal[row.clone()].iter().zip(&judged.actual[row]) {
            let x = x / w[i];
            (xx, xy, yy) = (xx + x * x, xy + x * y, yy + y * y);
        }
        match xx == 0.0 || w[i] == 0.0 {
            true => Some(None),
            false => (xy * xy >= (1.0 - NOISE) * xx * yy).then_some(Some(xy / xx)),
        }
    };
    (0..rows).map(row).collect()
}

/// The row whose weight each wrong one has, where no index is known. `None`: some have none, or as many would by chance.
fn other_rows(solved: &[Option<f64>], w: &[f64], wrong: &[usize]) -> Option<Vec<usize>> {
    let spread = w.iter().fold(0.0f64, |m, w| m.max(*w)) - w.iter().fold(f64::INFINITY, |m, w| m.min(*w));
    // As often as a number between the least and the largest lies so near one of them.
    let share = (w.iter().map(|w| 2.0 * NEAR * w.abs()).sum::<f64>() / spread).min(1.0);
    (-share.log2() * wrong.len() as f64 >= BITS).then_some(())?;
    let distance = |i: usize, j: usize| solved[i].map_or(f64::INFINITY, |by| (by - w[j]).abs());
    let from = |i: &usize| {
        let nearest = (0..w.len()).min_by(|j, k| distance(*i, *j).total_cmp(&distance(*i, *k)))?;
        solved[*i].filter(|by| near(*by, w[nearest])).map(|_| nearest)
    };
    wrong.iter().map(from).collect()
}

/// The rows from the first wrong one to the last, and those beside them that follow, where all between do; else the wrong ones.
fn widened(wrong: &[usize], follows: Vec<bool>) -> Vec<bool> {
    let (mut first, mut last) = (wrong[0], wrong[wrong.len() - 1]);
    if !follows[first..=last].iter().all(|x| *x) {
        return (0..follows.len()).map(|i| wrong.contains(&i)).collect();
    }
    while first > 0 && follows[first - 1] {
        first -= 1;
    }
    while last + 1 < follows.len() && follows[last + 1] {
        last += 1;
    }
    (0..follows.len()).map(|i| (first..=last).contains(&i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of 3, 11 and 6 rows. Row 12 is the tenth of group 1, the second of its second tile of 8; padded to 8, group 1 begins at row 8 and
    /// group 2 at row 24.
    #[test]
    fn weights_are_read_at_places_within_groups() {
        let w: Vec<f64> = (0..40).map(f64::from).collect();
        let all = ways(&w, &[0, 3, 14, 20]);
        let of = |words: &str| {
            let way = all.iter().find(|way| way.words.contains(words)).unwrap_or_else(|| panic!("{words}"));
            [(2, (0, 0)), (12, (1, 3)), (15, (2, 14))].map(|(i, group)| (way.weight)(i, group))
        };
        let places = |p: [f64; 3]| p.map(Some);
        assert_eq!(of("within its group, not"), places([2.0, 9.0, 1.0]));
        assert_eq!(of("within its tile of 8 rows"), places([2.0, 1.0, 1.0]));
        assert_eq!(of("at the number of the group"), places([0.0, 1.0, 2.0]));
        assert_eq!(of("began at a multiple of 8"), places([2.0, 17.0, 25.0]));
        assert_eq!(of("began at a multiple of 16"), places([2.0, 25.0, 33.0]));
        assert_eq!(of("began at a multiple of 32"), [Some(2.0), None, None], "beyond the last weight");
        assert_eq!(of("left out"), places([1.0; 3]));
        assert_eq!(of("multiplied twice"), places([4.0, 144.0, 225.0]));
        assert_eq!(of("divided by"), places([0.5, 1.0 / 12.0, 1.0 / 15.0]));
        // e5m2 has 14 and 16 beside 15; of these 16 is even.
        assert_eq!(of("rounded to e5m2"), places([2.0, 12.0, 16.0]));
    }

    #[test]
    fn wrong_rows_grow_over_those_that_follow() {
        let of = |wrong: &[usize], follows: [u8; 6]| {
            widened(wrong, follows.map(|f| f == 1).to_vec()).iter().map(|x| u8::from(*x)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[2, 3], [0, 1, 1, 1, 1, 0]), [0, 1, 1, 1, 1, 0]);
        assert_eq!(of(&[2, 3], [1; 6]), [1; 6], "to both ends");
        assert_eq!(of(&[2, 3], [1, 0, 1, 1, 0, 1]), [0, 0, 1, 1, 0, 0]);
        assert_eq!(of(&[1, 4], [0, 1, 1, 1, 1, 0]), [0, 1, 1, 1, 1, 0]);
        assert_eq!(of(&[1, 4], [1, 1, 0, 1, 1, 1]), [0, 1, 0, 0, 1, 0], "one between does not follow");
    }

    /// Each of eight rows of six is its sums by one number; of more rows than there are results or weights nothing is solved.
    #[test]
    fn rows_without_results_or_weights_are_not_solved() {
        use crate::bundle::named_tests::{dot, gemm, quantized, scaled};
        let (a, b) = (quantized("te_current", 8, 64, 1), quantized("te_current", 6, 64, 2));
        let of = |q: &crate::QTensor| scaled(q, |g| q.scale_inv()[g]);
        let (x, y) = (of(&a), of(&b));
        let w = gemm(&a, &b, Format::F32, |i, j| dot(&x, &y, i, j));
        let bundle = Bundle::parse(std::path::Path::new("x"), &w.to_bytes().unwrap()).unwrap();
        let found = crate::bundle::assay::assay(&bundle).unwrap();
        let of = |weights: usize, rows: usize| solved(found.judgement(), &vec![2.0; weights], rows);
        let all = of(8, 8).unwrap();
        assert!(all.len() == 8 && all.iter().all(|by| by.is_some_and(|by| near(by, 2.0))), "{all:?}");
        assert!(of(9, 9).is_none() && of(7, 8).is_none() && of(9, 8).is_some());
    }
}
