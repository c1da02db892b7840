//! A product job taken apart: which factors are multiplied, where their scales change, which rows meet.

use super::Accumulator;
use crate::job::{Job, Operand, OutSpec};
use crate::op::Op;
use crate::op::grouped::check_offs;
use crate::parallel;
use crate::quant::Level;
use crate::tensor::round_to;
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero};
use std::borrow::Cow;
use std::ops::Range;

/// What kind of product the operands make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Narrow floats on both sides, scales applied to f32 sums: FP8, MX, NVFP4.
    Scaled,
    /// int8 × int8, int4 or uint4 in integers: W4A8.
    Integer,
    /// f16 or bf16 on both sides; integer weights are dequantized to it before they are multiplied.
    Mixed,
}

/// One operand of a product.
#[derive(Clone, Debug)]
pub struct FactorRows<'a> {
    /// Format of the factors.
    pub format: Format,
    pub rows: usize,
    pub k: usize,
    source: FactorSource<'a>,
}

#[derive(Clone, Debug)]
enum FactorSource<'a> {
    /// Factors are decoded codes; scales come later. The table holds the value of every code.
    Codes(Cow<'a, QTensor>, Box<[f32; 256]>),
    /// Factors themselves, row-major, and what is left to be multiplied with sums.
    Values(Cow<'a, [f32]>, Option<Cow<'a, QTensor>>),
}

impl<'a> FactorRows<'a> {
    /// Factors that are decoded codes.
    pub fn codes(q: Cow<'a, QTensor>) -> Self {
        let mut table = Box::new([0.0; 256]);
        for (code, value) in table.iter_mut().enumerate() {
            *value = q.format().decode(code as u32) as f32;
        }
        Self { format: q.format(), rows: q.rows(), k: q.cols(), source: FactorSource::Codes(q, table) }
    }
    /// Factors of a high-precision tensor, read as `format`.
    pub fn values(format: Format, t: &'a Tensor) -> Self {
        Self { format, rows: t.rows(), k: t.cols(), source: FactorSource::Values(Cow::Borrowed(t.data()), None) }
    }
    /// Factors `k` of a row.
    pub fn fill(&self, row: usize, k: Range<usize>, out: &mut [f32]) {
        let at = row * self.k + k.start..row * self.k + k.end;
        match &self.source {
            FactorSource::Codes(q, table) => {
                out.iter_mut().zip(&q.codes()[at]).for_each(|(out, code)| *out = table[usize::from(*code)]);
            }
            FactorSource::Values(v, _) => out.copy_from_slice(&v[at]),
        }
    }
    /// Factors `k` of a row.
    pub fn factors(&self, row: usize, k: Range<usize>) -> Vec<f32> {
        let mut out = vec![0.0; k.len()];
        self.fill(row, k, &mut out);
        out
    }
    /// The tensor whose scales are still to be applied to sums.
    pub fn scales(&self) -> Option<&QTensor> {
        match &self.source {
            FactorSource::Codes(q, _) => Some(q),
            FactorSource::Values(_, q) => q.as_deref(),
        }
    }
    /// The scale_inv of an element, 1 where none is left.
    pub fn scale_inv(&self, row: usize, k: usize) -> f32 {
        self.scales().map_or(1.0, |q| q.scale_inv()[q.scale_index(row, k)])
    }
    /// The second level's scale_inv of a row, where there is one.
    pub fn over_row(&self, row: usize) -> Option<f32> {
        self.scales().filter(|q| row < q.rows()).and_then(|q| q.over_row(row))
    }
    /// The integer zero point of an element.
    pub fn zero(&self, row: usize, k: usize) -> i32 {
        match self.scales().map(|q| (q, q.zero())) {
            Some((q, Zero::Integer(z))) => z[q.scale_index(row, k)],
            _ => 0,
        }
    }
    /// Over how many k one scale reaches.
    fn reach(&self) -> usize {
        match self.scales().map(QTensor::granularity) {
            Some(Granularity::Group(g)) => g,
            Some(Granularity::Block { cols, .. }) => cols,
            _ => usize::MAX,
        }
    }
    /// Scales that change along K (or could: a group as long as K counts).
    pub fn has_blocks(&self) -> bool {
        matches!(self.scales().map(QTensor::granularity), Some(Granularity::Group(_) | Granularity::Block { .. }))
    }
    /// One scale for the whole tensor, or none.
    pub fn is_whole(&self) -> bool {
        self.scales().is_none_or(|q| q.granularity() == Granularity::Tensor)
    }
    /// Blocks that span rows.
    pub fn is_two_dimensional(&self) -> bool {
        matches!(self.scales().map(QTensor::granularity), Some(Granularity::Block { rows, .. }) if rows > 1)
    }
}

/// One dense product inside a job: rows `a` of A times rows `b` of B; its first row in the output.
#[derive(Clone, Debug)]
pub struct Problem<'s> {
    pub a: &'s FactorRows<'s>,
    pub b: &'s FactorRows<'s>,
    pub a_rows: Range<usize>,
    pub b_rows: Range<usize>,
    pub out_row: usize,
}

impl Problem<'_> {
    /// Where along K a scale changes: consecutive ranges over which both operands have one scale a row. One, or more.
    pub fn blocks(&self) -> Vec<Range<usize>> {
        let (k, reach_a, reach_b) = (self.a.k, self.a.reach(), self.b.reach());
        let next = |from: usize, reach: usize| if reach >= k { k } else { (from / reach + 1) * reach };
        let mut blocks = Vec::new();
        let mut from = 0;
        while from < k {
            let to = next(from, reach_a).min(next(from, reach_b)).min(k);
            blocks.push(from..to);
            from = to;
        }
        blocks
    }
}

/// A job of products, checked.
#[derive(Debug)]
pub struct Plan<'a> {
    pub kind: Kind,
    pub accumulator: Accumulator,
    a: Vec<FactorRows<'a>>,
    b: Vec<FactorRows<'a>>,
    /// Groups: (side, rows of a, rows of b, first output row).
    parts: Vec<(usize, Range<usize>, Range<usize>, usize)>,
    /// Rows and columns of the output.
    pub rows: usize,
    pub cols: usize,
    /// What is added to sums with each row of b: `[N]`, of a grouped product `[E·N]`.
    pub bias: Option<&'a [f32]>,
}

fn dims(q: &FactorRows) -> String {
    format!("{}×{}", q.rows, q.k)
}

impl<'a> Plan<'a> {
    /// Takes a job apart. Errors: operands missing, of shapes that do not fit or in a combination no kernel takes; scales or zero
    /// points that the kind has no place for; `offs` that do not ascend; an accumulator that does not take the formats; an
    /// output that cannot be.
    pub fn of(job: &'a Job) -> Result<Self> {
        Self::planned(job, true)
    }

    /// [`Plan::of`] for what asks for shapes, kind and errors only: weights that are dequantized are all 0.
    pub fn without_weights(job: &'a Job) -> Result<Self> {
        Self::planned(job, false)
    }

    fn planned(job: &'a Job, weights: bool) -> Result<Self> {
        let (op, o) = (job.op.name(), &job.operands);
        let (a, b) = match (o.tensors(), o.b()) {
            ([a], Some(b)) => (a, b),
            (a, b) => {
                let found = format!("{} and {}", a.len(), usize::from(b.is_some()));
                return Err(Error::shape(format!("operands a and b of {op}"), found, "one of each"));
            }
        };
        let (kind, a, b) = sides(op, a, b, weights)?;
        let grouped = !matches!(job.op, Op::Gemm);
        if grouped && kind != Kind::Scaled {
            return Err(Error::unsupported(op, "grouped products are of narrow floats"));
        }
        if o.bias.is_some() && (job.op == Op::GroupedGemmWgrad || o.row_weights.is_some()) {
            return Err(Error::unsupported(op, "no kernel adds a bias before weights of rows, or to groups of columns"));
        }
        let mut plan = Self {
            kind,
            accumulator: accumulator(kind, job, &a[0], &b[0])?,
            a,
            b,
            parts: Vec::new(),
            rows: 0,
            cols: 0,
            bias: o.bias.as_ref().map(Tensor::data),
        };
        plan.lay_out(job)?;
        for (a, b) in plan.a.iter().zip(&plan.b) {
            if a.k != b.k {
                return Err(Error::shape(format!("operand b of {op}"), dims(b), format!("K = {} as in a", a.k)));
            }
        }
        if plan.a[0].k == 0 && job.op != Op::GroupedGemmWgrad {
            return Err(Error::shape(format!("operand a of {op}"), dims(&plan.a[0]), "K of at least 1"));
        }
        if let Some(bias) = plan.bias.filter(|bias| bias.len() != plan.b[0].rows) {
            let found = format!("{} values", bias.len());
            return Err(Error::shape(format!("bias of {op}"), found, format!("{}, one a row of b", plan.b[0].rows)));
        }
        match &job.out {
            OutSpec::High(f) if f.is_high() => {}
            OutSpec::High(f) => return Err(Error::value("high-precision output", f, "f16, bf16 or f32")),
            OutSpec::Scaled { format, scale } if kind == Kind::Scaled && !grouped => {
                if !format.is_fp8() || scale.len() != 1 {
                    let found = format!("{format} with {} scales", scale.len());
                    return Err(Error::value("scaled output", found, "an fp8 format with one scale"));
                }
            }
            _ => return Err(Error::unsupported(op, "it writes f16, bf16 or f32, or (fp8_gemm) FP8 by a given scale")),
        }
        Ok(plan)
    }

    /// Shape of the output and which rows meet.
    fn lay_out(&mut self, job: &Job) -> Result<()> {
        let op = job.op.name();
        let offs = job.operands.offs.as_deref();
        let (a, b) = (&self.a[0], &self.b[0]);
        match job.op {
            Op::Gemm => {
                (self.rows, self.cols) = (a.rows, b.rows);
                self.parts.push((0, 0..a.rows, 0..b.rows, 0));
            }
            Op::GroupedGemm | Op::GroupedGemmDgrad => {
                let offs = check_offs(offs, a.rows)?;
                let n = b.rows / offs.len();
                if n * offs.len() != b.rows {
                    let expected = format!("{}·N × {}", offs.len(), a.k);
                    return Err(Error::shape(format!("operand b of {op}"), dims(b), expected));
                }
                let spans = |s: &FactorRows| s.scales().map_or(1, |q| q.granularity().tile(q.rows(), q.cols()).0);
                if !a.is_whole() && spans(a) > 1 {
                    return Err(Error::unsupported(op, "a block of a's scales that spans rows can span groups"));
                }
                if !b.is_whole() && n % spans(b) != 0 {
                    let why = format!("blocks of {} rows span experts of {n} rows", spans(b));
                    return Err(Error::unsupported(op, why));
                }
                (self.rows, self.cols) = (a.rows, n);
                let mut from = 0;
                for (e, &to) in offs.iter().enumerate() {
                    self.parts.push((0, from..to, e * n..(e + 1) * n, from));
                    from = to;
                }
            }
            Op::GroupedGemmWgrad => {
                let total: usize = self.a.iter().map(|g| g.k).sum();
                let offs = check_offs(offs, total)?;
                let ends = |sides: &[FactorRows]| -> Vec<usize> {
                    let end = |sum: &mut usize, s: &FactorRows| {
                        *sum += s.k;
                        Some(*sum)
                    };
                    sides.iter().scan(0, end).collect()
                };
                for (what, sides) in [("a", &self.a), ("b", &self.b)] {
                    if ends(sides) != offs {
                        let found = format!("groups that end at {:?}", ends(sides));
                        return Err(Error::shape(format!("operand {what} of {op}"), found, format!("{offs:?}, the offs")));
                    }
                    if sides.iter().any(|s| s.rows != sides[0].rows || s.format != sides[0].format) {
                        let found = "groups of different rows or formats";
                        return Err(Error::shape(format!("operand {what} of {op}"), found, "the same in all"));
                    }
                }
                (self.rows, self.cols) = (offs.len() * a.rows, b.rows);
                self.parts.extend((0..offs.len()).map(|e| (e, 0..a.rows, 0..b.rows, e * a.rows)));
            }
            _ => return Err(Error::unsupported(op, "it is not a product")),
        }
        // A sum meets one number of the second level.
        let one = |s: &FactorRows, rows: &Range<usize>| {
            s.scales().is_none_or(|q| q.level().is_none_or(Level::is_whole))
                || rows.clone().all(|i| s.over_row(i) == s.over_row(rows.start))
        };
        if self.parts.iter().any(|(e, a, b, _)| !one(&self.a[*e], a) || !one(&self.b[*e], b)) {
            return Err(Error::unsupported(op, "its second level of scales is one number for the tensor, or one an expert"));
        }
        Ok(())
    }

    /// The dense products.
    pub fn problems(&self) -> impl Iterator<Item = Problem<'_>> {
        self.parts.iter().map(|(side, a_rows, b_rows, out_row)| Problem {
            a: &self.a[*side],
            b: &self.b[*side],
            a_rows: a_rows.clone(),
            b_rows: b_rows.clone(),
            out_row: *out_row,
        })
    }
}

fn accumulator(kind: Kind, job: &Job, a: &FactorRows, b: &FactorRows) -> Result<Accumulator> {
    let int32 = Accumulator::new(super::Inner::Int32);
    let acc = match (kind, job.accumulator) {
        (Kind::Integer, None) => int32,
        (Kind::Integer, Some(acc)) if acc.inner != super::Inner::Int32 => {
            return Err(Error::unsupported("an integer product", format!("it accumulates in int32, not {acc}")));
        }
        (_, Some(acc)) => acc,
        (_, None) => return Err(Error::value("accumulator of a product", "none", "one of Accumulator::names()")),
    };
    acc.check(a.format, b.format)?;
    Ok(acc)
}

/// Kind and operands, weights dequantized where the kind does that; without `weights` they are all 0.
fn sides<'a>(
    op: &str,
    a: &'a Operand,
    b: &'a Operand,
    weights: bool,
) -> Result<(Kind, Vec<FactorRows<'a>>, Vec<FactorRows<'a>>)> {
    let narrow = |q: &QTensor| q.format().is_float() && q.format() != Format::E8m0;
    let borrow = |q: &'a QTensor| FactorRows::codes(Cow::Borrowed(q));
    let refuse = |why: String| Err(Error::unsupported(op, why));
    // What a kernel quantizes itself into narrow floats is multiplied as such.
    let floats = |o: &'a Operand| match o {
        Operand::Dynamic(d) if d.recipe().format.is_fp8() => d.quantized(),
        other => other,
    };
    match (floats(a), floats(b)) {
        (Operand::Groups(a), Operand::Groups(b)) if !a.is_empty() && a.len() == b.len() && a.iter().chain(b).all(narrow) => {
            a.iter().chain(b).try_for_each(plain_scales)?;
            Ok((Kind::Scaled, a.iter().map(borrow).collect(), b.iter().map(borrow).collect()))
        }
        (Operand::Quantized(a), Operand::Quantized(b)) if narrow(a) && narrow(b) => {
            [a, b].into_iter().try_for_each(plain_scales)?;
            Ok((Kind::Scaled, vec![borrow(a)], vec![borrow(b)]))
        }
        (Operand::Quantized(_) | Operand::Dynamic(_), Operand::Quantized(w)) if !w.format().is_float() => {
            let x = match a {
                Operand::Dynamic(d) => Cow::Owned(d.recipe().quantize(d.x())?.q),
                Operand::Quantized(q) => Cow::Borrowed(q),
                _ => unreachable!("matched above"),
            };
            if x.format().is_fp8() {
                return mixed(op, Some(x), None, w, weights);
            }
            if x.format() != Format::Int8 || !w.format().is_integer() {
                return refuse(format!(
                    "activations are f16, bf16, e4m3 or e5m2 with weights that are decoded first, or int8 with integer ones, not {} with {}",
                    x.format(),
                    w.format()
                ));
            }
            if !matches!(x.granularity(), Granularity::Tensor | Granularity::Row) {
                return refuse(format!("int8 activations have one scale a row, not {}", x.granularity()));
            }
            if [&*x, w].iter().any(|q| matches!(q.zero(), Zero::Additive { .. }) || q.level().is_some()) {
                return refuse("an integer product has integer zero points and one level of scales".into());
            }
            Ok((Kind::Integer, vec![FactorRows::codes(x)], vec![borrow(w)]))
        }
        (Operand::High(x), Operand::Quantized(w)) => mixed(op, None, Some(x), w, weights),
        (Operand::High(x), Operand::High(w)) if x.dtype() == w.dtype() && matches!(x.dtype(), Format::F16 | Format::Bf16) => {
            Ok((Kind::Mixed, vec![FactorRows::values(x.dtype(), x)], vec![FactorRows::values(w.dtype(), w)]))
        }
        _ => refuse(
            "no kernel multiplies these operands: give two narrow floats, two of f16 or bf16, or weights in codes beside them"
                .into(),
        ),
    }
}

/// Errors: zero points; a second level that changes along a row.
fn plain_scales(q: &QTensor) -> Result<()> {
    let refuse = |why: &str| Err(Error::unsupported("a product of narrow floats", why));
    match q.zero() {
        Zero::None if q.level().is_none() || q.over_row(0).is_some() => Ok(()),
        Zero::None => refuse("its second level of scales is one number for the tensor, or one an expert"),
        _ => refuse("it has no zero points"),
    }
}

/// Activations in f16 or bf16, or FP8 widened to f16 (exact), times weights dequantized to that format.
fn mixed<'a>(
    op: &str,
    narrow: Option<Cow<'a, QTensor>>,
    high: Option<&'a Tensor>,
    w: &QTensor,
    weights: bool,
) -> Result<(Kind, Vec<FactorRows<'a>>, Vec<FactorRows<'a>>)> {
    let a = match (narrow, high) {
        (Some(q), _) => {
            plain_scales(&q)?;
            if !matches!(q.granularity(), Granularity::Tensor | Granularity::Row) || q.level().is_some() {
                return Err(Error::unsupported(op, "fp8 activations have one scale, or one a row, with integer weights"));
            }
            if !matches!(q.format(), Format::E4m3 | Format::E5m2) {
                return Err(Error::unsupported(op, format!("{} activations with integer weights", q.format())));
            }
            let values: Vec<f32> = q.codes().iter().map(|c| q.format().decode(u32::from(*c)) as f32).collect();
            let source = FactorSource::Values(Cow::Owned(values), Some(q.clone()));
            FactorRows { format: Format::F16, rows: q.rows(), k: q.cols(), source }
        }
        (None, Some(t)) if matches!(t.dtype(), Format::F16 | Format::Bf16) => FactorRows::values(t.dtype(), t),
        (_, t) => {
            let found = t.map_or("none".into(), |t| t.dtype().to_string());
            return Err(Error::value(format!("activations of {op} with integer weights"), found, "f16 or bf16"));
        }
    };
    let values = if weights { dequantized_weights(w, a.format) } else { vec![0.0; w.codes().len()] };
    let b =
        FactorRows { format: a.format, rows: w.rows(), k: w.cols(), source: FactorSource::Values(Cow::Owned(values), None) };
    Ok((Kind::Mixed, vec![a], vec![b]))
}

/// Codes of 4 bits.
const FEW: usize = 16;

/// Weights as the tensor core reads them, in `to` (f16 or bf16). With T the scales' own type (f16, bf16, else f32):
///
/// ```text
/// none, integer zero:  RN_to( RN_T((code − z)·scale_inv) )
/// additive zero:       RN_to( RN_T( RN_T((code − mid)·scale_inv) + zero ) )
/// ```
///
/// so one rounding when the scales have the type of the product, two with an additive zero. Source: CUTLASS
/// `mixed_input_utils.hpp` (`a·scale + zero`, multiplied and added in the scales' type, then converted).
pub fn dequantized_weights(w: &QTensor, to: Format) -> Vec<f32> {
    let t = w.scale_format();
    let one = |code: f32, s: usize| {
        let (scale, plus) = w.steps(s);
        let value = match w.zero() {
            Zero::None => round_to(t, code * scale),
            Zero::Integer(z) => round_to(t, (code - z[s] as f32) * scale),
            Zero::Additive { mid, .. } => round_to(t, round_to(t, (code - *mid as f32) * scale) + plus),
        };
        round_to(to, value)
    };
    let decoded: Vec<f32> = (0..1u32 << w.format().bits()).map(|c| w.format().decode(c) as f32).collect();
    let mut values = vec![0.0; w.codes().len()];
    let cols = w.cols().max(1);
    let (tile_rows, tile_cols) = w.granularity().tile(w.rows(), w.cols());
    let (_, grid_cols) = w.granularity().grid(w.rows(), w.cols());
    parallel::chunks(&mut values, cols, |i, values| {
        let codes = &w.codes()[i * cols..][..values.len()];
        for (tile, (values, codes)) in values.chunks_mut(tile_cols).zip(codes.chunks(tile_cols)).enumerate() {
            let s = i / tile_rows * grid_cols + tile;
            if decoded.len() > FEW || codes.len() < FEW {
                values.iter_mut().zip(codes).for_each(|(x, code)| *x = one(decoded[usize::from(*code)], s));
                continue;
            }
            // Few codes are decoded once a scale.
            let mut table = [0.0; FEW];
            table.iter_mut().zip(&decoded).for_each(|(x, code)| *x = one(*code, s));
            values.iter_mut().zip(codes).for_each(|(x, code)| *x = table[usize::from(*code)]);
        }
    });
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Operands;
    use crate::op::Params;
    use crate::recipe::Recipe;

    /// A product of 4 rows by 6 of these recipes, and what is said of it.
    fn planned(recipe: &str, accumulator: &str, out: OutSpec) -> std::result::Result<(usize, usize), String> {
        let operand = |rows: usize| {
            let x = Tensor::rounded(Format::Bf16, rows, 32, (0..rows * 32).map(|n| n as f32 - 50.0).collect()).unwrap();
            Operand::Quantized(recipe.parse::<Recipe>().unwrap().quantize(&x).unwrap().q)
        };
        let operands = Operands::of(operand(4), Some(operand(6)));
        let accumulator = Some(accumulator.parse().unwrap());
        let job = Job { op: Op::Gemm, params: Params::default(), operands, out, accumulator };
        Plan::of(&job).map(|plan| (plan.rows, plan.cols)).map_err(|e| e.to_string())
    }

    #[test]
    fn a_product_writes_values_of_high_formats_or_fp8_by_one_scale() {
        let of = |out: OutSpec| planned("float8_rowwise", "f32_any_order", out);
        for f in [Format::F32, Format::Bf16, Format::F16] {
            assert_eq!(of(OutSpec::High(f)), Ok((4, 6)));
        }
        for f in [Format::E4m3, Format::Int8, Format::E8m0] {
            let told = of(OutSpec::High(f)).unwrap_err();
            assert!(told.contains("high-precision output") && told.contains("f16, bf16 or f32"), "{f}: {told}");
        }
        let scaled = |format: Format, scales: usize| OutSpec::Scaled { format, scale: vec![Some(2.0); scales] };
        assert_eq!([Format::E4m3, Format::E5m2].map(|f| of(scaled(f, 1))), [Ok((4, 6)), Ok((4, 6))]);
        for (f, scales) in [(Format::Int8, 1), (Format::Bf16, 1), (Format::E4m3, 0), (Format::E4m3, 2)] {
            let told = of(scaled(f, scales)).unwrap_err();
            assert!(told.contains(&format!("{f} with {scales} scales")), "{told}");
        }
        let integer = |out: OutSpec| planned("int8_token_sym", "int32", out);
        assert_eq!(integer(OutSpec::High(Format::Bf16)), Ok((4, 6)));
        assert!(integer(scaled(Format::E4m3, 1)).unwrap_err().contains("it writes f16, bf16 or f32"));
        assert!(of(OutSpec::Recipe("te_current".parse().unwrap())).is_err());
    }
}
