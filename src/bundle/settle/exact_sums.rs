//! Integers whose sums have the bits of int32 all over the result, but for a few elements.
//!
//! What says nothing of its arithmetic may sum what it dequantized in f32, whose bound is wide: a product that one row leaves out hides in
//! it. Yet sums of scaled factors are not exact: hardly two in three of them, and fewer of the elements that two roundings by scales take
//! from the rounded ideal, have the bits of exact sums. Where [`SHARE`] of all elements have these bits, and [`CARRIERS`] of those are not the
//! rounded ideal, the kernel sums codes exactly: in int32, or in f32, which is exact too in every order where the products' magnitudes add
//! up to less than 2²⁴. What may differ there is how scales are applied, and that [`PARTS`] parts of K are scaled before f32 adds them, as in
//! the tiles that a persistent kernel splits. An element that is further off is wrong.

use super::search::{Case, Way};
use crate::Result;
use crate::compare::{Bound, digits};
use crate::model::product::{FactorRows, Problem};

/// Elements with these bits that are not the rounded ideal, at least.
const CARRIERS: usize = 256;
/// One of so many elements may have other bits.
const SHARE: usize = 32;
/// Parts of K, scaled and added in f32, that a right kernel may have in a tile.
const PARTS: usize = 64;
/// Whole numbers below it are numbers of f32.
const EXACT: f64 = (1 << 24) as f64;

/// What was found. `bound` is that of f32 sums in any order, `own` that of sums in int32; `way` sums in int32, and scales along K do not change.
pub fn find(case: &Case, way: &Way, bound: &Bound, own: &Bound) -> Result<Option<String>> {
    let (rounded, out, cols) = (bound.rounded_ideal(), bound.out(), case.plan.cols);
    let model = case.values(way)?;
    let bits = |i: usize| case.store.bits(model[i], false);
    let others: Vec<usize> = (0..model.len()).filter(|i| bits(*i) != case.bits[*i]).collect();
    if others.is_empty() || others.len() * SHARE > model.len() {
        return Ok(None);
    }
    let carries = |i: &usize| bits(*i) == case.bits[*i] && case.store.value(bits(*i)) != rounded[*i];
    if (0..model.len()).filter(carries).take(CARRIERS).count() < CARRIERS {
        return Ok(None);
    }
    let parts = (PARTS as f64 / case.k().max(1) as f64).min(1.0);
    let far = |i: usize| {
        let error = (case.store.value(case.bits[i]) - bound.ideal()[i]).abs();
        let stored = out.spacing(i, bound.ideal()[i]);
        !(error <= own.certain()[i] + parts * bound.certain()[i] + stored)
    };
    let same = model.len() - others.len();
    let wrong: Vec<usize> = others.into_iter().filter(|i| far(*i) && magnitude(case, *i) < EXACT).collect();
    Ok(wrong.first().map(|i| {
        let [found, right] = digits::apart([case.store.value(case.bits[*i]), case.store.value(bits(*i))]);
        format!(
            "({}, {}): found {found}, but {same} of {} elements have the bits of {}, which gives {right} here; {} such elements",
            i / cols,
            i % cols,
            model.len(),
            way.words(),
            wrong.len()
        )
    }))
}

/// Σ|a||b| of the codes of element `i`, and of their zero points; infinite where no sum makes it.
fn magnitude(case: &Case, i: usize) -> f64 {
    let (row, col) = (i / case.plan.cols, i % case.plan.cols);
    let codes = |side: &FactorRows, line: usize| -> Vec<f64> {
        let zero = f64::from(side.zero(line, 0)).abs();
        side.factors(line, 0..side.k).into_iter().map(|x| f64::from(x).abs() + zero).collect()
    };
    let of = |p: Problem| -> f64 {
        let (a, b) = (codes(p.a, row - p.out_row + p.a_rows.start), codes(p.b, col + p.b_rows.start));
        a.iter().zip(&b).map(|(a, b)| a * b).sum()
    };
    let holds = |p: &Problem| (p.out_row..p.out_row + p.a_rows.len()).contains(&row);
    case.problems().into_iter().find(holds).map_or(f64::INFINITY, of)
}

#[cfg(test)]
mod tests {
    use super::super::super::assay::{Answer, assay};
    use super::super::super::{Bundle, Writer};
    use super::super::emulated::Random;
    use crate::compare::Verdict;
    use safetensors::Dtype;
    use std::path::Path;

    /// int8 with a scale a row on both sides, whose element (i, j) is `of(a, b, sa, sb)` of its rows, in f32.
    fn judged(k: usize, of: impl Fn(usize, usize, &[f32], &[f32], f32, f32) -> f32) -> Answer {
        let (m, n) = (40, 96);
        let mut r = Random(77);
        let mut codes = |count: usize| (0..count).map(|_| (r.normal() * 30.0) as i8).collect::<Vec<_>>();
        let (mut a, mut b) = (codes(m * k), codes(n * k));
        // The last product of a row is small: f32 sums may be that far off.
        a[17 * k + k - 1] = 1;
        (0..n).for_each(|j| b[j * k + k - 1] = if j % 2 == 0 { 2 } else { -2 });
        if k > 300 {
            // Sums of one row grow beyond 2²⁴, and each addition there errs to the same side.
            a[17 * k..18 * k].fill(127);
            (0..n).for_each(|j| b[j * k..(j + 1) * k].fill(if j % 2 == 0 { 127 } else { -127 }));
        }
        let mut scale = |count: usize| (0..count).map(|_| (0.01 * (1.2 + r.normal().abs())) as f32).collect::<Vec<f32>>();
        let (sa, sb) = (scale(m), scale(n));
        let row = |x: &[i8], i: usize| x[i * k..(i + 1) * k].iter().map(|c| f32::from(*c)).collect::<Vec<f32>>();
        let out: Vec<f32> =
            (0..m * n).map(|at| (at / n, at % n)).map(|(i, j)| of(i, j, &row(&a, i), &row(&b, j), sa[i], sb[j])).collect();
        let bytes = |codes: &[i8]| codes.iter().map(|c| *c as u8).collect::<Vec<_>>();
        let mut w = Writer::new("gemm");
        w.raw("a.codes", Dtype::I8, &[m, k], bytes(&a)).f32s("a.scale_inv", &[m], &sa).meta("a.granularity", "row");
        w.raw("b.codes", Dtype::I8, &[n, k], bytes(&b)).f32s("b.scale_inv", &[n], &sb).meta("b.granularity", "row");
        w.f32s("out", &[m, n], &out);
        assay(&Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap()
    }

    fn sum(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    /// A tile whose parts of K are scaled before they are added, and a row that is dequantized first, stand beside exact sums.
    #[test]
    fn right_sums_of_another_kind_may_stand_in_a_tile() {
        let split = judged(300, |i, j, a, b, sa, sb| match (i < 16 && j < 4, a.len() / 4) {
            (false, _) => sum(a, b) * sa * sb,
            (true, part) => a.chunks(part).zip(b.chunks(part)).map(|(a, b)| sum(a, b) * sa * sb).sum(),
        });
        assert_eq!(split.verdict, Verdict::Pass, "{}", split.reason);
        let row = judged(300, |i, _, a, b, sa, sb| {
            let dequantized = || a.iter().zip(b).fold(0.0, |s, (x, y)| (x * sa).mul_add(y * sb, s));
            if i == 39 { dequantized() } else { sum(a, b) * sa * sb }
        });
        assert_eq!(row.verdict, Verdict::Pass, "{}", row.reason);
        let large = judged(2048, |_, _, a, b, sa, sb| sum(a, b) * sa * sb);
        assert_ne!(large.verdict, Verdict::Fail, "{}: {}", large.model, large.reason);
        assert!(large.comparison().mismatches.is_none(), "not to the bit: {}", large.model);
    }

    /// One row leaves out its last product.
    #[test]
    fn a_product_that_one_row_leaves_out_fails() {
        let found = judged(300, |i, _, a, b, sa, sb| {
            let k = if i == 17 { 299 } else { 300 };
            sum(&a[..k], &b[..k]) * sa * sb
        });
        assert_eq!(found.verdict, Verdict::Fail, "{}", found.model);
        assert!(found.model.contains("elements have the bits of int32") && found.model.contains("(17, "), "{}", found.model);
        // Another order of scales is right beside it.
        let other = judged(300, |i, _, a, b, sa, sb| if i == 17 { sum(a, b) * (sa * sb) } else { sum(a, b) * sa * sb });
        assert_eq!(other.verdict, Verdict::Pass, "{}: {}", other.model, other.reason);
    }

    /// Where more than one in 32 elements has other bits, as three of 40 rows have, no arithmetic is proven.
    #[test]
    fn other_bits_in_many_rows_prove_no_exact_sums() {
        let found = judged(300, |i, _, a, b, sa, sb| {
            let k = if i == 17 { 299 } else { 300 };
            let dequantized = || a.iter().zip(b).fold(0.0, |s, (x, y)| (x * sa).mul_add(y * sb, s));
            if i > 36 { dequantized() } else { sum(&a[..k], &b[..k]) * sa * sb }
        });
        assert!(!found.model.contains("elements have the bits of int32"), "{}", found.model);
    }
}
