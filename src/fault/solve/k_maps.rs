//! A map of K within a period: one operand is read at another k inside every P of K. Solved from what was written, and told by a formula where there is one.
//!
//! ```text
//! out[i, j] = Σ_r Σ_s T[r, s] · Σ_w o(P·w + r) · x(P·w + s)          T[r, s] = 1 where lane r of x is read at s; a row of zeros: never
//! ```
//!
//! Each T[r, s] is a correlation of what was written with the sums of that pair of lanes. The clear ones are taken off, and those left are asked again: P² is
//! more than there are elements, where K is short. Lanes may be vectors of codes that stay together: periods are longer then.

use super::lane_orders::{self, Map};
use super::maps::cost;
use super::segment::spread_where;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use crate::parallel;
use crate::quant::Level;
use crate::{QTensor, Zero};
use std::sync::Arc;

/// Periods, the shortest first.
const PERIODS: [usize; 14] = [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64];
/// The vectors that stay together in longer ones: of so many codes, and so many of them.
const VECTORS: [usize; 4] = [8, 16, 32, 64];
const OF_VECTORS: [usize; 4] = [2, 4, 8, 16];
/// Elements for each lane of a period: the chance of T's entries is √(1 / EACH) of one, and the least that is worth it.
const EACH: usize = 40;
const LEAST: usize = 12;
/// Standard deviations that one entry of T is clear by, and how near to 1 it is.
const CLEAR: f64 = 4.5;
const NEAR: f64 = 0.5;
/// Part of what was written that the whole map leaves, at most.
const LEFT: f64 = 0.02;
/// Multiply-adds of all elements of one period.
const WORK: usize = 1 << 28;

/// The maps of the shortest period that has one, of either operand.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.a.q.is_none() && s.b.q.is_none() || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let is = |at: &usize| s.is_wrong[*at] && s.actual[*at].is_finite();
    let places = spread_where(s.is_wrong.len(), &is, EACH * PERIODS[PERIODS.len() - 1]);
    let single = PERIODS.into_iter().map(|p| Period { lanes: p, wide: 1 });
    let longest = PERIODS[PERIODS.len() - 1];
    let vectors = OF_VECTORS.into_iter().flat_map(|lanes| VECTORS.map(|wide| Period { lanes, wide }));
    let all = single.chain(vectors.filter(|p| p.len() > longest));
    let periods = all.filter(|p| p.len() < s.k && (p.wide > 1 || 2 * p.len() <= s.k) && places.len() >= LEAST * p.lanes);
    periods.map(|p| of_period(s, &places, p)).find(|t| !t.is_empty()).unwrap_or_default()
}

/// So many lanes, each of so many codes side by side.
#[derive(Clone, Copy)]
struct Period {
    lanes: usize,
    wide: usize,
}

impl Period {
    fn len(self) -> usize {
        self.lanes * self.wide
    }
}

/// What was written for an element, and the sums of each pair of lanes, over the size of the right sum.
struct Look {
    y: f64,
    pairs: Vec<f64>,
}

fn looks(s: &System, places: &[usize], period: Period) -> Vec<Look> {
    let lanes = period.lanes;
    let most = (EACH * lanes).min(WORK / (s.k * lanes)).min(places.len());
    let one = |at: &usize| -> Option<Look> {
        let (i, j) = (at / s.cols, at % s.cols);
        let (a, b, _) = s.lines(i, j)?;
        let (a, b) = (&s.a.values[a * s.k..(a + 1) * s.k], &s.b.values[b * s.k..(b + 1) * s.k]);
        // Not by its bound: that of an exact sum is as small as the sum is.
        let size: f64 = a.iter().zip(b).map(|(x, y)| (x * y).abs()).sum();
        let (y, _) = s.written(i, j, s.magnitude(*at))?;
        (size > 0.0 && size.is_finite()).then_some(())?;
        let mut pairs = vec![0.0; lanes * lanes];
        for (a, b) in a.chunks(period.len()).zip(b.chunks(period.len())) {
            for (x, row) in a.chunks(period.wide).zip(pairs.chunks_mut(lanes)) {
                let dot = |y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
                row.iter_mut().zip(b.chunks(period.wide)).for_each(|(sum, y)| *sum += dot(y));
            }
        }
        pairs.iter_mut().for_each(|x| *x /= size);
        Some(Look { y: y / size, pairs })
    };
    parallel::flat(&places[..most], one)
}

fn of_period(s: &System, places: &[usize], period: Period) -> Vec<Theory> {
    let looks = looks(s, places, period);
    if looks.len() < LEAST * period.lanes || !looks.iter().all(|l| l.y.is_finite() && l.pairs.iter().all(|x| x.is_finite())) {
        return Vec::new();
    }
    let sides = s.sides().iter().rev().copied().filter(|side| s.given(*side).q.is_some());
    sides.filter_map(|side| Some(theory(s, side, solved(&looks, period.lanes, side == Which::B)?, period.wide))).collect()
}

/// For each lane the lane that is read in its place. `reads_b`: a pair is (lane, read lane). `None`: no map makes what was written, or each reads its own.
fn solved(looks: &[Look], period: usize, reads_b: bool) -> Option<Map> {
    let pair = |lane: usize, read: usize| if reads_b { lane * period + read } else { read * period + lane };
    let mut rest: Vec<f64> = looks.iter().map(|l| l.y).collect();
    let energy = |rest: &[f64]| rest.iter().map(|x| x * x).sum::<f64>();
    let whole = energy(&rest);
    let mut map: Map = vec![None; period];
    let n = period * period;
    let mut sizes = vec![0.0; n];
    looks.iter().for_each(|l| sizes.iter_mut().zip(&l.pairs).for_each(|(sum, x)| *sum += x * x));
    for round in 0..2 * period {
        let mut with = vec![0.0; n];
        for (l, y) in looks.iter().zip(&rest) {
            with.iter_mut().zip(&l.pairs).for_each(|(sum, x)| *sum += x * y);
        }
        let noise = (energy(&rest) / rest.len() as f64).sqrt();
        // The clearest read of each lane that has none.
        let clearest = |lane: usize| {
            let reads = (0..period).map(|read| (read, pair(lane, read))).filter(|(_, at)| sizes[*at] > 0.0);
            let told = reads.map(|(read, at)| (read, with[at] / sizes[at], with[at] / sizes[at].sqrt() / noise.max(1e-300)));
            told.max_by(|x, y| x.2.total_cmp(&y.2))
        };
        let mut clear: Vec<(usize, usize, f64)> = (0..period)
            .filter(|lane| map[*lane].is_none())
            .filter_map(|lane| clearest(lane).map(|(read, c, sigmas)| (lane, read, c, sigmas)))
            .filter(|(.., c, sigmas)| (c - 1.0).abs() < NEAR && *sigmas > CLEAR)
            .map(|(lane, read, _, sigmas)| (lane, read, sigmas))
            .collect();
        // What is far clearer than the others first: means of codes are in all pairs.
        let most = clear.iter().map(|x| x.2).fold(0.0, f64::max);
        clear.retain(|x| x.2 >= 0.5 * most);
        if clear.is_empty() {
            break;
        }
        for (lane, read, _) in clear {
            map[lane] = Some(read);
            rest.iter_mut().zip(looks).for_each(|(y, l)| *y -= l.pairs[pair(lane, read)]);
        }
        // A map has told most of it by then.
        if round == period && energy(&rest) > 0.5 * whole {
            return None;
        }
    }
    let moved = (0..period).any(|lane| map[lane] != Some(lane));
    (moved && energy(&rest) <= LEFT * whole).then_some(map)
}

fn theory(s: &System, side: Which, map: Map, wide: usize) -> Theory {
    let (g, name, period) = (s.given(side), side.name(), map.len() * wide);
    let (how, bits, freedom) = lane_orders::in_words(&map);
    let lanes = if wide == 1 { String::new() } else { format!("lanes of {wide}, ") };
    let words = format!("{name} is read at another k within every {period} of K: {lanes}{how}");
    let mut t = Theory::new(Class::PackPermute, name, format!("{name}.k_map"), words).bits(8.0 + cost(period) + bits);
    t.freedom = freedom;
    let k_all = g.k;
    let from = move |i: usize, k: usize| -> Option<usize> {
        let at = k / period * period + map[k % period / wide]? * wide + k % wide;
        (at < k_all).then_some(i * k_all + at)
    };
    // Codes by the scale of their new place where both are one.
    if g.q.is_some() && g.zero.is_none() && (g.grid.1 == 1 || g.tile.1.is_multiple_of(period)) {
        t.side(side).code = Some(Arc::new(from));
    } else {
        let values = g.values.clone();
        t.side(side).value = Some(Arc::new(move |i, k| from(i, k).map_or(0.0, |at| values[at])));
    }
    t
}

/// Squares of rows and K whose blocks may be turned.
const SQUARES: [usize; 5] = [2, 4, 8, 16, 32];

/// Codes of groups that were quantized each by itself, as numbers, and the scale of each. `None`: it has none, or zero points.
fn of_groups(s: &System, side: Which) -> Option<(Vec<f64>, Vec<f64>)> {
    let Operand::Groups(groups) = operand(s.scene.evidence.job, side)?.given() else { return None };
    groups.iter().all(|q| matches!(q.zero(), Zero::None) && q.level().is_none_or(Level::is_whole)).then_some(())?;
    let g = s.given(side);
    let (mut codes, mut steps) = (vec![0.0; g.rows * g.k], vec![0.0; g.rows * g.k]);
    let mut from = 0;
    for q in groups {
        let (tile, grid) = (q.granularity().tile(q.rows(), q.cols()), q.granularity().grid(q.rows(), q.cols()));
        let whole = q.global_scale_inv().map_or(1.0, f64::from);
        for (at, c) in q.codes().iter().enumerate() {
            let (i, k) = (at / q.cols(), at % q.cols());
            let to = i * g.k + from + k;
            codes[to] = q.format().decode(u32::from(*c));
            steps[to] = f64::from(q.scale_inv()[i / tile.0 * grid.1 + k / tile.1]) * whole;
        }
        from += q.cols();
    }
    Some((codes, steps))
}

/// Squares of so many rows and so many of K that are transposed: codes, by the scales of their new place or by their own.
pub fn squares(s: &System) -> Vec<Theory> {
    if s.alone {
        return Vec::new();
    }
    let mut all = Vec::new();
    for side in s.sides().iter().copied() {
        let (g, name) = (s.given(side), side.name());
        let (rows, k_all) = (g.rows, g.k);
        let groups = of_groups(s, side).map(Arc::new);
        let coded = g.q.is_some() || groups.is_some();
        let bits_of_code = match operand(s.scene.evidence.job, side).map(Operand::given) {
            Some(Operand::Groups(groups)) => groups.first().map(QTensor::format),
            _ => g.format(),
        }
        .map_or(0, |f| f.bits());
        for wide in SQUARES.into_iter().filter(|w| *w <= rows && *w <= k_all) {
            let from = move |i: usize, k: usize| {
                let (r, c) = (i / wide * wide + k % wide, k / wide * wide + i % wide);
                // What is no whole square stays.
                if i / wide * wide + wide <= rows && k / wide * wide + wide <= k_all { r * k_all + c } else { i * k_all + k }
            };
            let scales: &[bool] = if groups.is_some() || g.q.is_some() && g.grid != (1, 1) { &[false, true] } else { &[false] };
            for with_scales in scales {
                let what = match (coded, with_scales) {
                    (true, false) => "codes",
                    (true, true) => "codes and their scales",
                    _ => "values",
                };
                let bytes = if wide == 2 && bits_of_code == 8 {
                    ", as a transposed load of 16 bits leaves pairs of bytes that nobody splits"
                } else {
                    ""
                };
                let words = format!(
                    "{what} of {name} in every {wide} rows × {wide} of K are transposed: ({wide}i + p, {wide}j + q) is read as ({wide}i + q, {wide}j + p){bytes}"
                );
                let bits = 4.0 + cost(wide) + f64::from(u8::from(*with_scales));
                let mut t = Theory::new(Class::PackPermute, name, format!("{name}.squares"), words).bits(bits);
                if let Some(groups) = groups.clone().filter(|_| !with_scales) {
                    t.side(side).value = Some(Arc::new(move |i, k| groups.0[from(i, k)] * groups.1[i * k_all + k]));
                } else if *with_scales || g.q.is_none() {
                    let values = g.values.clone();
                    t.side(side).value = Some(Arc::new(move |i, k| values[from(i, k)]));
                } else {
                    t.side(side).code = Some(Arc::new(move |i, k| Some(from(i, k))));
                }
                all.push(t);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::QTensor;
    use crate::fault::solve::tests::{codes, found, groups_found, noise, sum, wide};
    use crate::job::Operand;

    const M: usize = 40;
    const N: usize = 56;

    /// What is found where b is read at these places of every `period` of K.
    fn of(k_all: usize, period: usize, map: &dyn Fn(usize, usize) -> Option<usize>) -> (String, String) {
        let (a, b) = (wide(M, k_all), codes(Format::Int8, N, k_all, k_all, false, 51));
        let (x, y) = (a.to_f64(), b.dequantize());
        found(&a, &b, None, Format::Bf16, |i, j, _| {
            let read = |k: usize| map(j, k % period).map(|from| k / period * period + from).filter(|k| *k < k_all);
            sum(k_all, |k| read(k).map_or(0.0, |from| x[[i, k]] * y[[j, from]]))
        })
    }

    #[test]
    fn strides_of_lanes_are_told() {
        let got = of(160, 32, &|_, x| Some(x / 8 * 4 + x % 8));
        assert_eq!(got.0, "pack_permute:b.k_map", "{}", got.1);
        let words =
            "b is read at another k within every 32 of K: at 4·t + v instead of 8·t + v (v < 8); 20 … 31 are never read";
        assert_eq!(got.1, words);
        // K ends within a period: what is behind it is 0.
        let got = of(152, 24, &|_, x| Some((x * 7 + 5) % 24));
        assert_eq!(got.0, "pack_permute:b.k_map", "{}", got.1);
        assert!(got.1.contains("within every 24 of K: as 5, 12, 19, 2, 9, 16, 23, 6"), "{}", got.1);
        // Vectors of two instructions on one side, of one on the other.
        let got = of(192, 48, &|_, x| Some((x / 8 % 2 * 3 + x / 16) * 8 + x % 8));
        assert_eq!(got.0, "pack_permute:b.k_map", "{}", got.1);
        assert!(got.1.contains("within every 48 of K: as 0, 1, 2, 3, 4, 5, 6, 7, 24"), "{}", got.1);
    }

    /// The slice behind it, around a tile of 128; of columns 16 … 31 of every 32. K ends within a tile.
    #[test]
    fn vectors_that_stay_together_are_lanes_of_longer_periods() {
        let (k_all, n) = (224, 96);
        let (a, b) = (codes(Format::Int8, M, k_all, k_all, false, 53), codes(Format::E4m3, n, k_all, k_all, false, 54));
        let (x, y) = (a.dequantize(), b.dequantize());
        let of = |next: &dyn Fn(usize, usize) -> usize| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::F16, |i, j, right| {
                let from = |k: usize| k / 128 * 128 + next(j, k % 128);
                let read = |k: usize| if from(k) < k_all { x[[i, k]] * y[[j, from(k)]] } else { 0.0 };
                if j % 32 < 16 { right[i * n + j] } else { sum(k_all, read) }
            })
        };
        let got = of(&|_, k| (k + 32) % 128);
        assert_eq!(got.0, "pack_permute:b.k_map", "{}", got.1);
        let words = "b is read at another k within every 128 of K: lanes of 32, 1 lanes on, wrapped, in columns";
        assert!(got.1.starts_with(words), "{}", got.1);
        // Of each column another slice.
        let got = of(&|j, k| (k + 32 * (1 + (3.0 * noise(j + 9)) as usize)) % 128);
        assert!(!got.0.contains("k_map"), "{} {}", got.0, got.1);
    }

    /// Sums that are exact: their bound is as small as they are, and says nothing of how large a sum of other products is.
    #[test]
    fn maps_of_exact_sums_are_told() {
        let (m, n, k_all) = (36, 60, 176);
        let (a, b) = (codes(Format::Int8, m, k_all, k_all, false, 55), codes(Format::Int8, n, k_all, k_all, false, 56));
        let (x, y) = (a.dequantize(), b.dequantize());
        let from = |k: usize| k / 32 * 32 + k % 16 / 4 * 8 + k % 32 / 16 * 4 + k % 4;
        let got = found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
            sum(k_all, |k| if from(k) < k_all { x[[i, k]] * y[[j, from(k)]] } else { 0.0 })
        });
        assert_eq!(got.0, "pack_permute:b.k_map", "{}", got.1);
        assert!(got.1.contains("within every 32 of K: as 0, 1, 2, 3, 8, 9, 10, 11, 16"), "{}", got.1);
    }

    #[test]
    fn a_map_of_each_row_has_no_such_name() {
        // Each row of b in an order of its own.
        let got = of(160, 32, &|j, x| Some((x + 3 + (29.0 * noise(j + 500)) as usize) % 32));
        assert!(!got.0.contains("k_map"), "{} {}", got.0, got.1);
    }

    /// Each group of a gradient has scales of its own.
    #[test]
    fn squares_of_groups_are_told() {
        let (k_all, ends) = (100, [30, 72, 100]);
        let groups: Vec<QTensor> = [30, 42, 28].iter().map(|n| codes(Format::E4m3, 24, *n, *n, false, 52 + n)).collect();
        let of_b = [30, 42, 28].iter().map(|n| codes(Format::E4m3, 20, *n, *n, false, 3 + n)).collect();
        let value = |groups: &[QTensor], i: usize, k: usize| {
            let e = ends.iter().position(|x| k < *x).unwrap();
            let q = &groups[e];
            let at = i * q.cols() + k - if e == 0 { 0 } else { ends[e - 1] };
            (Format::E4m3.decode(u32::from(q.codes()[at])), f64::from(q.scale_inv()[i]))
        };
        let y = |of_b: &Vec<QTensor>, j: usize, k: usize| {
            let (c, s) = value(of_b, j, k);
            c * s
        };
        let of = |place: &dyn Fn(usize, usize) -> (usize, usize)| {
            let b: &Vec<QTensor> = &of_b;
            groups_found(&groups, b, &ends, |row, j| {
                let (e, i) = (row / 24, row % 24);
                let from = if e == 0 { 0 } else { ends[e - 1] };
                let one = |k: usize| {
                    let (r, c) = place(i, k);
                    value(&groups, r, c).0 * value(&groups, i, k).1 * y(b, j, k)
                };
                (from..ends[e]).map(one).sum()
            })
        };
        assert_eq!(k_all, ends[2]);
        let got = of(&|i, k| (i / 2 * 2 + k % 2, k / 2 * 2 + i % 2));
        assert_eq!(got.0, "pack_permute:a.squares", "{}", got.1);
        let words = "codes of a in every 2 rows × 2 of K are transposed: (2i + p, 2j + q) is read as (2i + q, 2j + p), as a transposed load of 16 bits";
        assert!(got.1.starts_with(words), "{}", got.1);
        // Turned by a quarter is not transposed.
        let got = of(&|i, k| (i / 2 * 2 + k % 2, k / 2 * 2 + 1 - i % 2));
        assert!(!got.0.contains("squares"), "{} {}", got.0, got.1);
    }
}
