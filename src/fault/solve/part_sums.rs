//! Partial sums that are another line's: from some K on, or up to there, a row (or column) holds what was summed for another.
//!
//! ```text
//! out[i, j] = Σ_{k < K₀} A(i, k)·B(j, k) + Σ_{k ≥ K₀} A(source(i), k)·B(j, k)          or the other way round; columns alike
//! ```
//!
//! What is stored is a sum of values, one of codes that then meets the scale of its new line, or one that is rounded to the type of the result.

use super::maps::cost;
use super::segment::{lines, spread};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::Order as _;
use std::sync::Arc;

/// Lines of the other operand that tell a source.
const LOOKS: usize = 8;
/// Where K may be cut: multiples of these, a multiple of K's own parts.
const STEPS: [usize; 2] = [64, 8];
const PARTS: [usize; 7] = [2, 3, 4, 5, 6, 8, 16];
/// Lines at most; multiply-adds.
const LINES: usize = 512;
const WORK: usize = 1 << 27;

/// Of rows, else of columns.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let stored = [Stored::Values, Stored::Codes, Stored::Rounded];
    let mut ways = stored.into_iter().flat_map(|how| [Which::A, Which::B].map(|side| (side, how)));
    ways.find_map(|(side, how)| of(s, side, how)).into_iter().collect()
}

/// What a partial sum is when it is stored.
#[derive(Clone, Copy, PartialEq)]
enum Stored {
    Values,
    Codes,
    Rounded,
}

fn of(s: &System, side: Which, how: Stored) -> Option<Theory> {
    let (codes, rounded) = (how == Stored::Codes, how == Stored::Rounded);
    let (g, other) = (s.given(side), s.given(side.other()));
    let (n, m) = (g.rows, other.rows);
    // Codes alone can be summed where a line has one scale.
    let has_codes = g.q.is_some() && g.zero.is_none() && g.rounded.is_none() && g.grid.1 == 1 && g.grid.0 > 1;
    (!codes || has_codes).then_some(())?;
    (!rounded || !s.out.is_quantized() && s.out.spacing(0, 1.0) > 2f64.powi(-20)).then_some(())?;
    let out = s.out.clone();
    let round = move |x: f64| if rounded { out.round(0, x) } else { x };
    // One step of a rounding more or less.
    let steps_of = |x: f64| if rounded { s.out.spacing(0, x) / s.relative.max(1e-300) } else { 0.0 };
    let steps: Vec<f64> = (0..n).map(|x| if codes { g.step(x, 0) } else { 1.0 }).collect();
    (steps.iter().all(|x| *x != 0.0)).then_some(())?;
    ((4..=LINES).contains(&n) && m >= LOOKS).then_some(())?;
    let at = |x: usize, y: usize| if side == Which::A { (x, y) } else { (y, x) };
    // A tile may be all that is wrong: lines that do not cross it say nothing.
    let crosses = |y: &usize| (0..n).any(|x| s.is_wrong[at(x, *y).0 * s.cols + at(x, *y).1]);
    let mut looks: Vec<usize> = (0..m).filter(crosses).collect();
    (looks.len() >= LOOKS).then_some(())?;
    spread(&mut looks, LOOKS);
    let wrong: Vec<usize> = (0..n).filter(|x| looks.iter().any(|y| s.is_wrong[at(*x, *y).0 * s.cols + at(*x, *y).1])).collect();
    // Some lines have their own sums: of those that are all wrong other theories know. Roundings may make all lines wrong.
    (wrong.len() >= 2 && (rounded || wrong.len() < n)).then_some(())?;
    let wrong: Vec<usize> = if rounded { (0..n).collect() } else { wrong };
    let mut cuts: Vec<usize> = STEPS.iter().flat_map(|w| (1..s.k.div_ceil(*w)).map(move |c| c * w)).collect();
    cuts.extend(PARTS.iter().flat_map(|p| (1..*p).map(move |c| (s.k * c).div_ceil(*p))));
    cuts.sort_unstable();
    cuts.dedup();
    (n * LOOKS * s.k + cuts.len() * n * LOOKS <= WORK).then_some(())?;
    // Sums up to every cut, with their magnitudes.
    let prefix = |x: usize, y: usize| -> (Vec<f64>, Vec<f64>) {
        let (a, b) = (&g.values[x * s.k..(x + 1) * s.k], &other.values[y * s.k..(y + 1) * s.k]);
        let (mut sum, mut size, mut from) = (0.0, 0.0, 0);
        let mut all = (Vec::with_capacity(cuts.len() + 1), Vec::with_capacity(cuts.len() + 1));
        for to in cuts.iter().copied().chain([s.k]) {
            a[from..to].iter().zip(&b[from..to]).for_each(|(a, b)| (sum, size) = (sum + a * b, size + (a * b).abs()));
            all.0.push(sum);
            all.1.push(size);
            from = to;
        }
        all
    };
    let sums: Vec<Vec<(Vec<f64>, Vec<f64>)>> = (0..n).map(|x| looks.iter().map(|y| prefix(x, *y)).collect()).collect();
    let whole = cuts.len();
    let fits = |x: usize, from: usize, cut: usize, last: bool| {
        looks.iter().enumerate().all(|(l, y)| {
            let ((own, size), (theirs, other)) = (&sums[x][l], &sums[from][l]);
            let by = steps[x] / steps[from];
            let of_theirs = by * if last { theirs[whole] - theirs[cut] } else { theirs[cut] };
            let of_own = if last { own[cut] } else { own[whole] - own[cut] };
            let (i, j) = at(x, *y);
            let size = size[whole].max(by.abs() * other[whole]) + steps_of(of_theirs) + steps_of(of_own);
            s.may(i, j, round(of_theirs) + round(of_own), size)
        })
    };
    let found = (0..cuts.len()).flat_map(|c| [(c, true), (c, false)]).find_map(|(c, last)| {
        // Every wrong line has a source, the nearest first; the first few refuse most cuts.
        let source = |x: usize| {
            let mut order: Vec<usize> = (0..n).filter(|from| rounded || *from != x).collect();
            order.order_by_key(|from| from.abs_diff(x));
            order.into_iter().find(|from| fits(x, *from, c, last))
        };
        let sources: Option<Vec<usize>> = wrong.iter().map(|x| source(*x)).collect();
        sources.map(|v| (cuts[c], last, v))
    });
    let (cut, last, sources) = found?;
    let own = wrong.iter().zip(&sources).filter(|(x, from)| x == from).count();
    (!rounded || own > 0 && own < n).then_some(())?;
    let name = side.name();
    let mut from: Vec<usize> = (0..n).collect();
    wrong.iter().zip(&sources).for_each(|(x, y)| from[*x] = *y);
    let place = if last { format!("from k = {cut} on") } else { format!("for k = 0 … {}", cut - 1) };
    let (what, letter) = if side == Which::A { ("rows", "i") } else { ("columns", "j") };
    let is: Vec<bool> = (0..n).map(|x| from[x] != x).collect();
    let (rule, bits) = formula(&from, letter).unwrap_or_else(|| {
        let some: Vec<String> = wrong.iter().take(4).map(|x| format!("{x} ← {}", from[*x])).collect();
        (format!("others ({})", some.join(", ")), 3.0 * wrong.len() as f64)
    });
    let unscaled = match how {
        Stored::Values => "",
        Stored::Codes => ", without their scales,",
        Stored::Rounded => ", rounded to the type of the result,",
    };
    let words = format!(
        "{place} the sums{unscaled} of {what} {} of the result are those of {rule}: a partial sum is stored, or fetched, at another place",
        lines(&is)
    );
    let mut t = Theory::new(Class::AccState, name, format!("{name}.part_sums"), words).bits(10.0 + cost(cut) + bits);
    t.freedom = if bits > 24.0 { wrong.len() } else { 1 };
    let k_all = s.k;
    if rounded {
        let (a, b, bias) = (g.values.clone(), other.values.clone(), s.bias.clone());
        let part = move |x: usize, y: usize, ks: std::ops::Range<usize>| -> f64 {
            ks.map(|k| a[x * k_all + k] * b[y * k_all + k]).sum()
        };
        let both = move |i: usize, j: usize| {
            let (x, y) = if side == Which::A { (i, j) } else { (j, i) };
            let (first, second) = if last { (x, from[x]) } else { (from[x], x) };
            [part(first, y, 0..cut), part(second, y, cut..k_all)]
        };
        let (out, relative, magnitude) =
            (s.out.clone(), s.relative.max(1e-300), (0..s.rows * s.cols).map(|at| s.magnitude(at)).collect::<Vec<f64>>());
        let cols = s.cols;
        t.sums(s.right_sums(), cols, move |i, j| {
            let both = both(i, j);
            let steps = both.into_iter().map(|x| out.spacing(0, x) / relative).sum::<f64>();
            (both.into_iter().map(&round).sum::<f64>() + bias.at(i, j), magnitude[i * cols + j] + steps)
        });
        return Some(t);
    }
    t.side(side).code = Some(Arc::new(move |i, k| Some(if (k >= cut) == last { from[i] } else { i } * k_all + k)));
    if g.q.is_some() {
        // Values with their own scales.
        let (values, to) = (g.values.clone(), t.side(side).code.take()?);
        let value = move |i: usize, k| to(i, k).map_or(0.0, |at| values[at] * steps[i] / steps[at / k_all]);
        t.side(side).value = Some(Arc::new(value));
    }
    Some(t)
}

/// The sources of all lines as one formula.
pub fn formula(from: &[usize], x: &str) -> Option<(String, f64)> {
    let n = from.len();
    for tile in (2..=n).rev() {
        for batch in 1..tile {
            if (0..n).all(|i| from[i] == i / tile * tile + i % tile % batch) {
                let place = if batch == 1 { String::new() } else { format!(" + {x} mod {tile} mod {batch}") };
                return Some((format!("({x} / {tile})·{tile}{place}"), cost(tile) + cost(batch)));
            }
        }
    }
    for d in 1..n {
        if (0..n).all(|i| from[i] == i || from[i] == i + d) {
            return Some((format!("{x} + {d}"), cost(d)));
        }
        if (0..n).all(|i| from[i] == i || from[i] + d == i) {
            return Some((format!("{x} − {d}"), cost(d)));
        }
        if (0..n).all(|i| from[i] == i || from[i] == i ^ d) {
            return Some((format!("{x} xor {d}"), cost(d)));
        }
        if (0..n).all(|i| from[i] == i || from[i] == i % d) {
            return Some((format!("{x} mod {d}"), cost(d)));
        }
    }
    for tile in (2..=n).filter(|t| n.is_multiple_of(*t) || *t % 8 == 0) {
        for d in 1..tile {
            if (0..n).all(|i| from[i] == i || from[i] == i / tile * tile + (i + d) % tile) {
                let step = if 2 * d > tile { format!("− {}", tile - d) } else { format!("+ {d}") };
                return Some((format!("{x} {step}, wrapped within {tile}"), cost(tile) + cost(d.min(tile - d))));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{N, codes, found, sum, wide};

    #[test]
    fn batches_of_a_tile_that_all_hold_the_first_ones_part_are_told() {
        let (m, k_all) = (96, 128);
        let (a, b) = (wide(m, k_all), codes(Format::E4m3, N, k_all, k_all, false, 61));
        let (x, y) = (a.to_f64(), b.dequantize());
        let from = |i: usize| i / 48 * 48 + i % 48 % 16;
        let got =
            found(&a, &b, None, Format::Bf16, |i, j, _| sum(k_all, |k| x[[if k >= 64 { from(i) } else { i }, k]] * y[[j, k]]));
        assert_eq!(got.0, "acc_state:a.part_sums", "{}", got.1);
        assert!(got.1.starts_with("from k = 64 on") && got.1.contains("mod 48 mod 16"), "{}", got.1);
    }

    /// Two halves of K that are added in f16: odd columns get the second half of the column before.
    #[test]
    fn parts_in_16_bits_that_land_in_another_column_are_told() {
        let (m, k_all) = (48, 128);
        let (a, b) = (wide(m, k_all), codes(Format::E4m3, N, k_all, 32, false, 64));
        let (x, y) = (a.to_f64(), b.dequantize());
        let half = |x: f64| f64::from(crate::tensor::round_to(Format::F16, x as f32));
        let got = found(&a, &b, None, Format::F16, |i, j, _| {
            let part = |j: usize, from: usize| half(sum(64, |k| x[[i, from + k]] * y[[j, from + k]]));
            part(j, 0) + part(j / 2 * 2, 64)
        });
        assert_eq!(got.0, "acc_state:b.part_sums", "{}", got.1);
        assert!(got.1.starts_with("from k = 64 on the sums, rounded to the type of the result, of columns 1, 3"), "{}", got.1);
        assert!(got.1.contains("are those of (j / 2)·2:"), "{}", got.1);
    }

    /// One tile's second part is added to other rows of it.
    #[test]
    fn parts_of_a_tile_that_land_in_its_other_rows_are_told() {
        let (m, k_all) = (96, 128);
        let (a, b) = (wide(m, k_all), codes(Format::E4m3, N, k_all, k_all, false, 65));
        let (x, y) = (a.to_f64(), b.dequantize());
        let from = |i: usize, j: usize| if i / 32 == 1 && j >= 16 { 32 + (i + 5) % 32 } else { i };
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            sum(k_all, |k| x[[if k >= 64 { from(i, j) } else { i }, k]] * y[[j, k]])
        });
        assert_eq!(got.0, "acc_state:a.part_sums", "{}", got.1);
        assert!(got.1.contains("are those of i + 5, wrapped within 32:") && got.1.contains("in rows 32"), "{}", got.1);
    }

    /// The sums of codes of the first rows, by the scales of the rows that fetch them.
    #[test]
    fn partial_sums_of_codes_meet_the_scales_of_the_rows_that_fetch_them() {
        let (m, k_all) = (96, 128);
        let (a, b) = (codes(Format::Int8, m, k_all, k_all, false, 62), codes(Format::Int8, N, k_all, k_all, false, 63));
        let (x, y) = (a.dequantize(), b.dequantize());
        let scale = |i: usize| f64::from(a.scale_inv()[i]);
        let from = |i: usize| i / 64 * 64 + i % 64 % 16;
        let value = |i: usize, k: usize| if k < 64 { x[[i, k]] } else { x[[from(i), k]] * scale(i) / scale(from(i)) };
        let a = crate::job::Operand::Quantized(a.clone());
        let got = found(&a, &b, None, Format::F16, |i, j, _| sum(k_all, |k| value(i, k) * y[[j, k]]));
        assert_eq!(got.0, "acc_state:a.part_sums", "{}", got.1);
        assert!(got.1.starts_with("from k = 64 on the sums, without their scales, of rows"), "{}", got.1);
        assert!(got.1.contains("mod 64 mod 16"), "{}", got.1);
    }
}
