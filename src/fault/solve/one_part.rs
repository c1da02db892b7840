//! Parts of K that are stored over each other: every tile of the result holds the sum of one part alone, the one that was written last.
//!
//! ```text
//! out[i, j] = Σ_{k in part p} A(i, k)·B(j, k)            p = p(i / h, j / w); all parts in a right kernel
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::order::Order as _;
use crate::parallel;

/// Parts of K, and the tiles that they are made of: 1 cuts it evenly.
const PARTS: [usize; 8] = [2, 3, 4, 5, 6, 7, 8, 16];
const UNITS: [usize; 5] = [1, 128, 64, 32, 16];
/// Sides of a tile of the result.
const SIDES: [usize; 5] = [256, 128, 64, 32, 16];
/// Elements that refuse most cuts, and multiply-adds for all.
const LOOKS: usize = 16;
const WORK: usize = 1 << 28;

/// A part that each element may hold: its sums and their magnitudes, one a part.
struct Sums {
    parts: Vec<(f64, f64)>,
}

/// The first cut of which every tile holds one part, not all the same.
pub fn theories(s: &System) -> Vec<Theory> {
    let work = s.rows.saturating_mul(s.cols).saturating_mul(s.k);
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k || work > WORK {
        return Vec::new();
    }
    let looks: Vec<(usize, usize)> = s.probes.iter().copied().filter(|(i, j)| s.is_wrong[i * s.cols + j]).take(LOOKS).collect();
    if looks.len() < LOOKS {
        return Vec::new();
    }
    let may = |ends: &[usize]| looks.iter().all(|(i, j)| mask(s, *i, *j, &sums(s, *i, *j, ends)) != 0);
    let mut seen = Vec::new();
    for (parts, unit) in PARTS.into_iter().flat_map(|p| UNITS.map(|u| (p, u))) {
        let ends = ends(s.k, parts, unit);
        if ends.len() < 2 || seen.contains(&ends) {
            continue;
        }
        if may(&ends)
            && let Some(t) = of(s, &ends)
        {
            return vec![t];
        }
        seen.push(ends);
    }
    Vec::new()
}

/// Where the parts of K end: each of as many whole tiles.
pub fn ends(k: usize, parts: usize, unit: usize) -> Vec<usize> {
    let each = k.div_ceil(unit).div_ceil(parts) * unit;
    (1..=parts).map(|p| (p * each).min(k)).scan(0, |last, end| (end > std::mem::replace(last, end)).then_some(end)).collect()
}

fn sums(s: &System, i: usize, j: usize, ends: &[usize]) -> Sums {
    let (a, b) = (&s.a.values[i * s.k..(i + 1) * s.k], &s.b.values[j * s.k..(j + 1) * s.k]);
    let mut from = 0;
    let of = |to: &usize| {
        let products = a[from..*to].iter().zip(&b[from..*to]).map(|(a, b)| a * b);
        from = *to;
        products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()))
    };
    Sums { parts: ends.iter().map(of).collect() }
}

/// The parts that an element may hold, a bit each; all of them where it is no number.
fn mask(s: &System, i: usize, j: usize, sums: &Sums) -> u32 {
    if !s.actual[i * s.cols + j].is_finite() {
        return u32::MAX;
    }
    let bit = |(p, (sum, size)): (usize, &(f64, f64))| u32::from(s.may(i, j, *sum, *size)) << p;
    sums.parts.iter().enumerate().map(bit).fold(0, |m, b| m | b)
}

fn of(s: &System, ends: &[usize]) -> Option<Theory> {
    let all: Vec<Sums> = parallel::collect(s.rows * s.cols, |at| sums(s, at / s.cols, at % s.cols, ends));
    let masks: Vec<u32> = (0..all.len()).map(|at| mask(s, at / s.cols, at % s.cols, &all[at])).collect();
    let of_tiles = |high: usize, wide: usize| -> Option<Vec<usize>> {
        let (m, n) = (s.rows.div_ceil(high), s.cols.div_ceil(wide));
        let mut tiles = vec![u32::MAX; m * n];
        masks.iter().enumerate().for_each(|(at, x)| tiles[at / s.cols / high * n + at % s.cols / wide] &= x);
        (m * n > 1 && tiles.iter().all(|t| *t != 0)).then(|| tiles.iter().map(|t| t.trailing_zeros() as usize).collect())
    };
    let mut sizes: Vec<(usize, usize)> = SIDES.into_iter().flat_map(|h| SIDES.map(|w| (h, w))).collect();
    sizes.order_by_key(|(h, w)| std::cmp::Reverse(h * w));
    let (high, wide, part) = sizes.into_iter().find_map(|(h, w)| Some((h, w, of_tiles(h, w)?)))?;
    // One part for all is a range of K that is summed alone.
    (part.iter().any(|p| *p != part[0])).then_some(())?;
    let n = s.cols.div_ceil(wide);
    let some: Vec<String> = part.iter().enumerate().take(4).map(|(t, p)| format!("({}, {}) part {p}", t / n, t % n)).collect();
    let words = format!(
        "K is summed in {} parts (0 … {}, …) that are stored over each other instead of added: each {high}×{wide} tile of the result holds \
         one of them, {}{}",
        ends.len(),
        ends[0] - 1,
        some.join(", "),
        if part.len() > 4 { ", …" } else { "" }
    );
    let choice = (ends.len() as f64).log2() * part.len() as f64;
    let mut t = Theory::new(Class::AccState, "k", "k.part_of_tile", words).bits(6.0 + cost(ends.len()) + choice);
    t.freedom = part.len();
    let own: Vec<(f64, f64)> =
        (0..all.len()).map(|at| all[at].parts[part[at / s.cols / high * n + at % s.cols / wide].min(ends.len() - 1)]).collect();
    let (cols, bias) = (s.cols, s.bias.clone());
    t.sums(s.right_sums(), cols, move |i, j| {
        let (sum, size) = own[i * cols + j];
        (sum + bias.at(i, j), size)
    });
    Some(t)
}

#[cfg(test)]
mod tests {
    use super::ends;
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn parts_end_at_whole_tiles() {
        assert_eq!(ends(300, 3, 1), [100, 200, 300]);
        assert_eq!(ends(300, 2, 64), [192, 300]);
        assert_eq!(ends(130, 4, 64), [64, 128, 130]);
        assert_eq!(ends(100, 2, 128), [100], "one part is no cut");
    }

    #[test]
    fn tiles_that_hold_one_part_of_k_are_told() {
        let k_all = 192;
        let (a, b) = (wide(M, k_all), codes(Format::Int8, N, k_all, k_all, false, 29));
        let (x, y) = (a.to_f64(), b.dequantize());
        // Which part is the last differs from tile to tile.
        let part = |i: usize, j: usize| (i / 16 * 2 + j / 32) % 3;
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            sum(k_all, |k| if k / 64 == part(i, j) { x[[i, k]] * y[[j, k]] } else { 0.0 })
        });
        assert_eq!(got.0, "acc_state:k.part_of_tile", "{}", got.1);
        assert!(got.1.contains("3 parts (0 … 63, …)"), "{}", got.1);
    }
}
