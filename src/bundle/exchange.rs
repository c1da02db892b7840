//! Products whose weights come first: D = A·Bᵀ with the codes in A and the activations in B is judged as Dᵀ = B·Aᵀ, which is the same
//! sums, and told as D: rows and columns, operands and errors are the bundle's own.

use super::arithmetic::Arithmetic;
use super::assay::Judged;
use super::operand::{BundleOperand, Codes};
use super::{Bundle, Out};
use crate::assay::{Assayed, Built, Judgement, evidence, product};
use crate::compare::{self, Bound, CaseEvidence, Check, OutFormat};
use crate::fault::{Diagnosis, locate};
use crate::job::{Data, OutSpec, Output};
use crate::model::Accumulator;
use crate::op::{Defined, Op};
use crate::{Format, Granularity, QTensor, Result};
use std::sync::Arc;

/// Whether the operands stand the other way round than kernels of ours take them: codes times values, integers times floats, int4 (or
/// groups along K) times int8.
fn needed(bundle: &Bundle) -> bool {
    let codes = |s: &BundleOperand| match &s.codes {
        Some(Codes::Whole(q)) => Some(q.clone()),
        _ => None,
    };
    let Some(a) = codes(&bundle.a).filter(|_| bundle.meta.op == Op::Gemm) else { return false };
    let token = |q: &QTensor| q.format() == Format::Int8 && matches!(q.granularity(), Granularity::Tensor | Granularity::Row);
    match codes(&bundle.b) {
        None => bundle.b.codes.is_none(),
        Some(b) if b.format().is_float() => !a.format().is_float(),
        Some(b) => a.format().is_integer() && !token(&a) && token(&b),
    }
}

/// The bundle of Dᵀ, without its bias; `None` where the operands stand as they should. Errors: none that a read bundle has.
pub(super) fn turned(bundle: &Bundle) -> Result<Option<Bundle>> {
    if !needed(bundle) {
        return Ok(None);
    }
    let mut other = bundle.clone();
    std::mem::swap(&mut other.a, &mut other.b);
    std::mem::swap(&mut other.meta.a, &mut other.meta.b);
    other.meta.recipe = other.meta.recipe.map(|(a, b)| (b, a));
    other.out = Out { d: transposed(&bundle.out.d)?, ..other.out };
    other.bias = None;
    Ok(Some(other))
}

fn transposed(d: &Data) -> Result<Data> {
    Ok(match d {
        Data::High(t) => Data::High(t.transposed()),
        Data::Quantized(q) => Data::Quantized(q.transposed()?),
    })
}

/// A bias, one a row of Dᵀ, added to references that lack it.
pub(super) fn add_bias(built: &mut Built, bias: &[f32]) {
    for defined in built.exact.iter_mut().chain(&mut built.ideal) {
        for (i, b) in bias.iter().map(|b| f64::from(*b)).enumerate() {
            Arc::make_mut(defined).d.row_mut(i).mapv_inplace(|d| d + b);
        }
    }
}

/// Judges Dᵀ with a bias along its rows: by the bound of the sums and one more rounding,
///
/// ```text
/// y = RN32(P + bias) or fma:   |y − (d + b)| ≤ β + u·(|d + b| + β) + 2⁻¹⁵⁰,  |P − d| ≤ β
/// ```
///
/// Bits are not looked for: the models of products have a bias along the other axis. Errors: those of the bound.
pub(super) fn by_bound(bundle: &Bundle, built: &mut Built, output: Output, bias: &[f32]) -> Result<Judged> {
    let arithmetic = Arithmetic::of(&bundle.meta, &built.job)?;
    let accumulator = arithmetic.declared.unwrap_or(Accumulator::new(arithmetic.bound));
    built.job.accumulator = Some(accumulator);
    let out = match (&built.job.out, &output.parts[0].d) {
        (_, Data::Quantized(q)) => OutFormat::quantized(q, bundle.out.scale.as_ref().map(std::slice::from_ref)),
        (OutSpec::High(f), _) => OutFormat::high(*f),
        (_, Data::High(t)) => OutFormat::high(t.dtype()),
    };
    let (cols, actual) = (built.ideal[0].d.ncols(), evidence::values(&output.parts[0].d));
    let with_bias = |sums: &Bound| -> Result<Bound> {
        let ideal: Vec<f64> = sums.ideal().iter().enumerate().map(|(i, d)| d + f64::from(bias[i / cols])).collect();
        let (u, half) = (2f64.powi(-24), 2f64.powi(-150));
        let after =
            |radii: &[f64]| -> Vec<f64> { radii.iter().zip(&ideal).map(|(r, d)| r + u * (d.abs() + r) + half).collect() };
        let radii = (after(sums.certain()), after(sums.probable()));
        let open = |r: Vec<f64>| r.into_iter().map(|r| if r.is_nan() { f64::INFINITY } else { r }).collect::<Vec<f64>>();
        Bound::from_radii(ideal, open(radii.0), open(radii.1), &out)
    };
    let misses = |sums: &Bound| product::misses(&with_bias(sums)?, &actual, output.parts[0].amax);
    let bound = with_bias(&product::nearest(&built.job, &built.ideal[0], &out, false, &misses)?)?;
    add_bias(built, bias);
    let mut checks = Vec::new();
    if let Some(amax) = output.parts[0].amax {
        checks.push(Check::amax(&bound, amax)?);
    }
    let exact: Option<Vec<f64>> = built.exact.first().map(|e| e.d.iter().copied().collect());
    let comparison = compare::judge(&CaseEvidence {
        cols,
        exact: exact.as_deref(),
        bound: &bound,
        actual: &actual,
        mismatches: None,
        checks: &checks,
        bit_exact: false,
        k: Some(product::inner(&built.job)),
        groups: product::groups(&built.job),
        scales: &[],
        zero_points: &[],
    })?;
    let text = format!("{accumulator}: {}; judged by the bound, the bias after it", arithmetic.why);
    Ok(Judged::of(output, None, vec![Judgement { cols, bound, actual, comparison }], text))
}

/// What was found of Dᵀ, told of D.
pub(super) fn back(assayed: &mut Assayed, diagnosis: &mut Option<Diagnosis>) -> Result<()> {
    assayed.built.job.operands.by_role.reverse();
    assayed.built.quantized.reverse();
    for defined in assayed.built.exact.iter_mut().chain(&mut assayed.built.ideal) {
        *defined = Arc::new(Defined {
            magnitude: defined.magnitude.as_ref().map(|m| m.t().as_standard_layout().into_owned()),
            accelerator: defined.accelerator,
            ..Defined::plain(defined.d.t().as_standard_layout().into_owned())
        });
    }
    for output in std::iter::once(&mut assayed.output).chain(&mut assayed.model) {
        output.parts[0].d = transposed(&output.parts[0].d)?;
    }
    for j in &mut assayed.judgements {
        let (cols, rows) = (j.cols, j.actual.len() / j.cols.max(1));
        let turn = |v: &[f64]| -> Vec<f64> { (0..rows * cols).map(|i| v[i % rows * cols + i / rows]).collect() };
        let (ideal, certain, probable) = (turn(j.bound.ideal()), turn(j.bound.certain()), turn(j.bound.probable()));
        let actual = turn(&j.actual);
        j.bound = Bound::from_radii(ideal, certain, probable, j.bound.out())?;
        (j.actual, j.cols) = (actual, rows);
        j.comparison.worst = j.comparison.worst.map(|(r, c)| (c, r));
        j.comparison.reason = positions(&j.comparison.reason);
    }
    if let (Some(d), Some(j)) = (diagnosis.as_mut(), assayed.judgements.first()) {
        d.location = locate::again(j, &d.location);
    }
    for finding in diagnosis.iter_mut().flat_map(|d| d.findings.iter_mut().chain(&mut d.runner_up)) {
        finding.operand = match finding.operand {
            "a" => "b",
            "b" => "a",
            other => other,
        };
        for name in [&mut finding.fault, &mut finding.variant] {
            *name = names(name);
        }
        finding.detail = regions(&operands(&finding.detail));
    }
    Ok(())
}

/// `a.` for `b.` and the other way about, at the start of a variant.
fn names(text: &str) -> String {
    let one = |part: &str| {
        let (class, variant) = part.split_once(':').map_or(("", part), |(c, v)| (c, v));
        let variant = match variant.split_at_checked(2) {
            Some(("a.", rest)) => format!("b.{rest}"),
            Some(("b.", rest)) => format!("a.{rest}"),
            _ => variant.to_string(),
        };
        if class.is_empty() { variant } else { format!("{class}:{variant}") }
    };
    text.split(" + ").map(one).collect::<Vec<_>>().join(" + ")
}

/// What a sentence may go on with behind an operand's name; behind an article stands a noun.
const BEHIND: [&str; 15] =
    ["are", "is", "at", "and", "by", "times", "that", "as", "keeps", "of", "in", "with", "under", "over", "before"];

/// Operands a and b of a sentence exchanged: the names, not the article.
fn operands(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let one = |at: usize| {
        let word = words[at];
        let (name, mark) = word.split_at(word.trim_end_matches([',', ';', ':', '.']).len());
        let goes_on = !mark.is_empty() || words.get(at + 1).is_none_or(|w| BEHIND.contains(w) || w.starts_with('('));
        match name {
            "b" => format!("a{mark}"),
            "a" if goes_on => format!("b{mark}"),
            _ => word.to_string(),
        }
    };
    (0..words.len()).map(one).collect::<Vec<_>>().join(" ")
}

/// Rows for columns in the places of a sentence: from `, in rows` or `, in columns` to its end.
fn regions(text: &str) -> String {
    let turned = |part: &str| match part.find(", in rows ").or_else(|| part.find(", in columns ")) {
        Some(at) => {
            let place = part[at..].replace("rows ", "\0").replace("columns ", "rows ").replace('\0', "columns ");
            format!("{}{place}", &part[..at])
        }
        None => part.to_string(),
    };
    text.split("; and ").map(turned).collect::<Vec<_>>().join("; and ")
}

/// Every `(row, column)` of a sentence turned round.
fn positions(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('(') {
        out += &rest[..=at];
        rest = &rest[at + 1..];
        let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if let Some((inside, after)) = rest.split_once(')')
            && let Some((row, col)) = inside.split_once(", ").filter(|(r, c)| number(r) && number(c))
        {
            out += &format!("{col}, {row})");
            rest = after;
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::{Data, names, needed, operands, positions, regions, turned};
    use crate::bundle::settle::emulated::read;
    use crate::bundle::{Bundle, Writer};
    use crate::{Format, Tensor};

    /// A product of 3 rows by 4, of values or of codes by a recipe.
    fn product(a: &str, b: &str) -> Bundle {
        let mut w = Writer::new("gemm");
        for (name, recipe, rows) in [("a", a, 3), ("b", b, 4)] {
            let data = (0..rows * 32).map(|at| ((at * 37 + rows) % 101) as f32 / 10.0 - 5.0).collect();
            let x = Tensor::rounded(Format::Bf16, rows, 32, data).unwrap();
            match recipe {
                "" => w.values(name, &[rows, 32], &x),
                _ => w
                    .codes(name, &recipe.parse::<crate::recipe::Recipe>().unwrap().quantize(&x).unwrap().q, None, None)
                    .unwrap(),
            };
        }
        read(w.f32s("out", &[3, 4], &(0..12).map(|n| n as f32).collect::<Vec<_>>()))
    }

    #[test]
    fn operands_are_turned_where_the_weights_come_first() {
        let (four, token, grouped, float) = ("affine_sym:int4:g16", "int8_token_sym", "affine_sym:int8:g16", "float8_rowwise");
        for (a, b, is) in [
            (four, "", true),
            (token, "", true),
            ("", four, false),
            ("", "", false),
            (four, float, true),
            (float, four, false),
            (float, float, false),
            (four, token, true),
            (grouped, token, true),
            (token, four, false),
            (token, token, false),
        ] {
            let bundle = product(a, b);
            assert_eq!(needed(&bundle), is, "{a} {b}");
            let other = turned(&bundle).unwrap();
            assert_eq!(other.is_some(), is, "{a} {b}");
            if let Some(other) = other {
                assert_eq!((other.a.shape(), other.b.shape()), (Some((4, 32)), Some((3, 32))));
                let Data::High(out) = &other.out.d else { panic!("values") };
                assert_eq!(out.data(), [0.0, 4.0, 8.0, 1.0, 5.0, 9.0, 2.0, 6.0, 10.0, 3.0, 7.0, 11.0]);
            }
        }
    }

    #[test]
    fn what_was_found_is_told_of_the_operands_that_were_given() {
        assert_eq!(names("zp_offset:b.lane_offset + addressing:out.rows"), "zp_offset:a.lane_offset + addressing:out.rows");
        assert_eq!(names("a.scale"), "b.scale");
        let text =
            "of b, every second code of a pair is 8 too large; and values of a are read late, in rows 0 … 3, columns 8 … 9";
        let told =
            "of a, every second code of a pair is 8 too large; and values of b are read late, in columns 0 … 3, rows 8 … 9";
        assert_eq!(regions(&operands(text)), told);
        assert_eq!(operands("a is times 2^4"), "b is times 2^4");
        assert_eq!(operands("a code of b is lost: a tile"), "a code of a is lost: a tile");
    }

    #[test]
    fn positions_are_those_of_the_result() {
        let text = "(3, 17): found 1e0, ideal (about) 2, ±f(x, 3); (0, 1): found";
        assert_eq!(positions(text), "(17, 3): found 1e0, ideal (about) 2, ±f(x, 3); (1, 0): found");
    }
}
