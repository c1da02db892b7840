//! The sums of one of several warps that share K in turns, added to other columns (or rows) than they were summed for.
//!
//! ```text
//! out[i, j] = Σ_{k not in slice} A(i, k)·B(j, k) + Σ_{k in slice} A(i, k)·B(source(j), k)            slice: k / w mod n = x
//! ```

use super::maps::cost;
use super::part_sums::formula;
use super::segment::{lines, spread};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::Order as _;

/// Widths of a slice, and how many share K; products of so many of K are summed once.
const WIDTHS: [usize; 4] = [8, 16, 32, 64];
const SHARES: [usize; 3] = [2, 4, 8];
const UNIT: usize = 8;
/// How far partial sums that are added up may be off, and what no rounding is, over the magnitude.
const SLACK: f64 = 1.0 / (1u64 << 20) as f64;
const FAR: f64 = 1.0 / (1u64 << 14) as f64;
/// Lines of the other operand that tell a source; lines at most; multiply-adds.
const LOOKS: usize = 8;
const LINES: usize = 512;
const WORK: usize = 1 << 27;

/// Of columns, else of rows.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k || s.k < 2 * UNIT {
        return Vec::new();
    }
    [Which::B, Which::A].into_iter().find_map(|side| of(s, side)).into_iter().collect()
}

fn of(s: &System, side: Which) -> Option<Theory> {
    let (g, other) = (s.given(side), s.given(side.other()));
    let (n, m) = (g.rows, other.rows);
    ((4..=LINES).contains(&n) && m >= LOOKS && n * LOOKS * s.k <= WORK).then_some(())?;
    let at = |x: usize, y: usize| if side == Which::A { (x, y) } else { (y, x) };
    // Partial sums are rounded one by one: what is a little outside the bound is that.
    let is_wrong = |x: usize, y: usize| {
        let at = at(x, y).0 * s.cols + at(x, y).1;
        s.is_wrong[at] && !((s.actual[at] - s.ideal[at]).abs() <= FAR * s.magnitude(at))
    };
    let mut looks: Vec<usize> = (0..m).filter(|y| (0..n).any(|x| is_wrong(x, *y))).collect();
    (looks.len() >= LOOKS).then_some(())?;
    spread(&mut looks, LOOKS);
    // A few right elements of a line are chance; of a right line none is far off.
    let far = |x: usize| looks.iter().filter(|y| is_wrong(x, **y)).count();
    let wrong: Vec<usize> = (0..n).filter(|x| 2 * far(*x) > looks.len()).collect();
    (wrong.len() >= 2 && wrong.len() < n).then_some(())?;
    // Sums of every unit of K, with their magnitudes.
    let units = |x: usize, y: usize| -> Vec<(f64, f64)> {
        let (a, b) = (&g.values[x * s.k..(x + 1) * s.k], &other.values[y * s.k..(y + 1) * s.k]);
        let one = |(a, b): (&[f64], &[f64])| {
            a.iter().zip(b).fold((0.0, 0.0), |(sum, size), (a, b)| (sum + a * b, size + (a * b).abs()))
        };
        a.chunks(UNIT).zip(b.chunks(UNIT)).map(one).collect()
    };
    let sums: Vec<Vec<Vec<(f64, f64)>>> = (0..n).map(|x| looks.iter().map(|y| units(x, *y)).collect()).collect();
    let all = |some: &mut dyn Iterator<Item = &(f64, f64)>| some.fold((0.0, 0.0), |(sum, size), p| (sum + p.0, size + p.1));
    let whole: Vec<Vec<(f64, f64)>> = sums.iter().map(|x| x.iter().map(|u| all(&mut u.iter())).collect()).collect();
    let slices: Vec<(usize, usize, usize)> = WIDTHS
        .into_iter()
        .flat_map(|w| SHARES.map(|of| (w, of)))
        .filter(|(w, of)| w * of <= s.k)
        .flat_map(|(w, of)| (0..of).map(move |x| (w, of, x)))
        .collect();
    let found = slices.into_iter().find_map(|(width, of, which)| {
        let inside = |u: usize| u * UNIT / width % of == which;
        // Once for each line: every line is asked for as the source of every other.
        let part = |units: &Vec<(f64, f64)>| all(&mut units.iter().enumerate().filter(|(u, _)| inside(*u)).map(|(_, p)| p));
        let parts: Vec<Vec<(f64, f64)>> = sums.iter().map(|x| x.iter().map(part).collect()).collect();
        let fits = |x: usize, from: usize| {
            looks.iter().enumerate().all(|(l, y)| {
                let (all, own, theirs) = (whole[x][l], parts[x][l], parts[from][l]);
                // As far off as the theory may be.
                let size = (all.1 - own.1 + theirs.1) * (1.0 + SLACK / s.relative.max(1e-300));
                s.may(at(x, *y).0, at(x, *y).1, all.0 - own.0 + theirs.0, size)
            })
        };
        let source = |x: &usize| {
            let mut order: Vec<usize> = (0..n).filter(|from| from != x).collect();
            order.order_by_key(|from| from.abs_diff(*x));
            order.into_iter().find(|from| fits(*x, *from))
        };
        let sources: Vec<usize> = wrong.iter().map(source).collect::<Option<_>>()?;
        Some((width, of, which, sources))
    });
    let (width, of, which, sources) = found?;
    let mut from: Vec<usize> = (0..n).collect();
    wrong.iter().zip(&sources).for_each(|(x, y)| from[*x] = *y);
    let (what, letter) = if side == Which::A { ("rows", "i") } else { ("columns", "j") };
    let is: Vec<bool> = (0..n).map(|x| from[x] != x).collect();
    let (rule, bits) = formula(&from, letter).unwrap_or_else(|| {
        let some: Vec<String> = wrong.iter().take(4).map(|x| format!("{x} ← {}", from[*x])).collect();
        (format!("others ({})", some.join(", ")), 3.0 * wrong.len() as f64)
    });
    let words = format!(
        "of K, which {of} warps sum in turns of {width}, the sums of warp {which} of {what} {} of the result are those of {rule}: the buffer that they are \
         added through is not written again",
        lines(&is)
    );
    let name = side.name();
    let mut t =
        Theory::new(Class::AccState, name, format!("{name}.slice_sums"), words).bits(10.0 + cost(width) + cost(of) + bits);
    t.slack = SLACK;
    t.freedom = if bits > 24.0 { wrong.len() } else { 1 };
    let (values, k_all) = (g.values.clone(), s.k);
    let value = move |i: usize, k: usize| values[if k / width % of == which { from[i] } else { i } * k_all + k];
    t.side(side).value = Some(std::sync::Arc::new(value));
    Some(t)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, sum, wide};

    /// The second warp's sums of the first third of every tile are there three times.
    #[test]
    fn sums_of_one_warp_that_land_in_other_columns_are_told() {
        let (n, k_all) = (96, 128);
        let (a, b) = (wide(M, k_all), codes(Format::Int8, n, k_all, k_all, false, 99));
        let (x, y) = (a.to_f64(), b.dequantize());
        let from = |j: usize, k: usize| if k / 16 % 2 == 1 { j / 48 * 48 + j % 48 % 16 } else { j };
        let got = found(&a, &b, None, Format::F32, |i, j, _| sum(k_all, |k| x[[i, k]] * y[[from(j, k), k]]));
        assert_eq!(got.0, "acc_state:b.slice_sums", "{}", got.1);
        assert!(got.1.contains("2 warps sum in turns of 16, the sums of warp 1"), "{}", got.1);
        assert!(got.1.contains("(j / 48)·48 + j mod 48 mod 16"), "{}", got.1);
    }
}
