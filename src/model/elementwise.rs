//! What a kernel that casts must return: the rounding order of TransformerEngine's kernels with FP8 output, element by
//! element, in f32 and with the slow codec.
//!
//! v = f(inputs) in f32; amax = max(amax, |v|) from 0, before scaling and rounding, NaN dropped (`fmaxf`);
//! code = Q(RN32(v·scale)) with saturation; scale_inv = RN32(1/scale); a null scale is 1. A high-precision output is v rounded
//! to its format. A recipe quantizes v rounded to the input's dtype. dbias sums the unrounded v.
//!
//! An empty tensor still gets its scale_inv and amax 0: TransformerEngine launches nothing there and leaves both undefined.

use super::{act, norm};
use crate::job::{Data, Job, Operand, OutSpec, Output, Part};
use crate::op::{Act, Op, Sizes};
use crate::quant::QTensorParts;
use crate::tensor::round_to;
use crate::{Error, Format, Granularity, Overflow, QTensor, Result, Rounding, Tensor, Zero};

/// Rows of a band of the column sums: each band is summed in order from +0, then the bands in order from +0, all in f32.
pub const DBIAS_BAND: usize = 64;

/// The high-precision tensor of an operand.
pub fn high<'a>(operand: &'a Operand, what: &str) -> Result<&'a Tensor> {
    match operand {
        Operand::High(t) => Ok(t),
        Operand::Quantized(q) => Err(Error::unsupported(what, format!("it reads f16, bf16 or f32, not {}", q.format()))),
        Operand::Weighted(_) | Operand::Groups(_) | Operand::Dynamic(_) => {
            Err(Error::unsupported(what, "such an operand belongs to a product"))
        }
    }
}

/// The activation of an op that needs one. A clamped one multiplies a gate: other ops do not have it.
pub fn activation(job: &Job) -> Result<Act> {
    if let Some(act) = job.params.act.filter(|a| a.clamp().is_some() && job.op != Op::Gated) {
        return Err(Error::unsupported(job.op.name(), format!("it has no {}", act.name())));
    }
    job.params.act.ok_or_else(|| {
        Error::value(format!("activation of {}", job.op.name()), "none", "gelu, silu, relu, qgelu, srelu or gelu_erf")
    })
}

/// Whether the job is whole: the operands its op needs, shapes that fit, an output its op can have.
pub fn check(job: &Job) -> Result<()> {
    use Op::*;
    let (op, o) = (job.op.name(), &job.operands);
    let parts = o.tensors().len();
    if parts == 0 || (parts > 1 && job.op != MultiCastTranspose) {
        return Err(Error::shape(format!("operand a of {op}"), format!("{parts} tensors"), "1 tensor"));
    }
    let (rows, cols) = (o.a().rows(), o.a().cols());
    if job.op == Dequantize {
        let Operand::Quantized(_) = o.a() else {
            return Err(Error::unsupported(op, "its operand is not quantized"));
        };
        let OutSpec::High(_) = job.out else {
            return Err(Error::unsupported(op, "it writes f16, bf16 or f32 only"));
        };
        return Ok(());
    }
    for a in o.tensors() {
        high(a, op)?;
    }
    let spec = job.op.spec();
    let sizes = Sizes::of(spec, &[[rows, cols]], 1);
    if let Some(role) = spec.operands.get(1).filter(|_| !job.op.is_product()) {
        let what = || format!("{} of {op}", role.what);
        let [rows, want] = sizes.shape(role.shape);
        let b = o.b().ok_or_else(|| Error::shape(what(), "none", format!("{rows}×{want}")))?;
        high(b, op)?;
        if (b.rows(), b.cols()) != (rows, want) {
            let found = format!("{}×{}", b.rows(), b.cols());
            return Err(Error::shape(what(), found, format!("{rows}×{want}")));
        }
    }
    match job.op {
        CastTransposeDbiasDact | DgatedCastTranspose | Activation | ActivationGrad => {
            activation(job)?;
        }
        Gated if cols % 2 != 0 => {
            return Err(Error::shape("gated input", format!("{cols} columns"), "an even number: [a | b]"));
        }
        Gated => {
            activation(job)?;
        }
        Layernorm | Rmsnorm => {
            let gamma = o.gamma.as_ref().ok_or_else(|| Error::shape("gamma", "none", format!("{cols} values")))?;
            for (what, t) in [("gamma", Some(gamma)), ("beta", o.beta.as_ref())] {
                if let Some(t) = t.filter(|t| t.data().len() != cols) {
                    return Err(Error::shape(what, format!("{} values", t.data().len()), format!("{cols} values")));
                }
            }
        }
        Cast | CastTranspose | MultiCastTranspose | CastTransposeDbias => {}
        _ => return Err(Error::unsupported(op, "it is not an elementwise op")),
    }
    match &job.out {
        OutSpec::High(f) if !f.is_high() => Err(Error::value("high-precision output", f, "f16, bf16 or f32")),
        OutSpec::High(_)
            if matches!(job.op, CastTranspose | MultiCastTranspose | CastTransposeDbias | CastTransposeDbiasDact) =>
        {
            Err(Error::unsupported(op, "its transposed copy is a quantized one; use a scaled or recipe output"))
        }
        OutSpec::Scaled { format, .. } if !format.is_fp8() => Err(Error::value("scaled output", format, "an fp8 format")),
        OutSpec::Scaled { scale, .. } if scale.len() != parts => {
            Err(Error::shape("scale", format!("{} scales", scale.len()), format!("{parts}, one a tensor")))
        }
        OutSpec::Recipe(r) => r.spec().map(drop),
        _ => Ok(()),
    }
}

/// The dtype of operand a: what dbias is written in and what v is rounded to before a recipe.
pub fn input_dtype(job: &Job) -> Format {
    match job.operands.a() {
        Operand::High(t) => t.dtype(),
        _ => Format::F32,
    }
}

/// v of one part in f32.
struct Values {
    rows: usize,
    cols: usize,
    /// Row-major.
    v: Vec<f32>,
    /// Norms: (mean, rsigma) of each row.
    stats: Vec<(f32, f32)>,
}

fn values(job: &Job, part: usize) -> Result<Values> {
    let a = high(&job.operands.tensors()[part], job.op.name())?;
    let (rows, cols) = (a.rows(), a.cols());
    let b = job.operands.b().map(|b| high(b, job.op.name())).transpose()?;
    let f = job.params.act.unwrap_or(Act::Relu);
    let (mut v, mut stats) = (Vec::new(), Vec::new());
    let spec = job.op.spec();
    let [_, out_cols] = Sizes::of(spec, &[[rows, cols]], 1).shape(spec.result);
    for i in 0..rows {
        let (x, b) = (a.row(i), b.map_or(&[][..], |b| b.row(i)));
        let (mean, rsigma) = match job.op {
            Op::Layernorm => norm::layernorm_stats(x, job.params.eps),
            Op::Rmsnorm => (0.0, norm::rmsnorm_rsigma(x, job.params.eps)),
            _ => (0.0, 0.0),
        };
        stats.push((mean, rsigma));
        let weight =
            |j: usize| job.operands.gamma.as_ref().map_or(0.0, |g| norm::weight(g.data()[j], job.params.zero_centered_gamma));
        let beta = |j: usize| job.operands.beta.as_ref().map_or(0.0, |b| b.data()[j]);
        for j in 0..out_cols {
            v.push(match job.op {
                Op::Layernorm => norm::layernorm_value(x[j], mean, rsigma, weight(j), Some(beta(j))),
                Op::Rmsnorm => norm::rmsnorm_value(x[j], rsigma, weight(j)),
                op => act::value(op, f, act::act, x, b, j),
            });
        }
    }
    Ok(Values { rows, cols: out_cols, v, stats })
}

/// The largest magnitude, NaN dropped; 0 of nothing.
pub fn amax(v: &[f32]) -> f32 {
    v.iter().fold(0.0, |m: f32, v| m.max(v.abs()))
}

/// Whether the transposed copy of a recipe has the codes of the first (one scale a tensor, or square tiles); if not it is
/// quantized again from high precision along the other axis, as TransformerEngine does.
pub fn shares_codes(q: &QTensor) -> bool {
    match q.granularity() {
        Granularity::Tensor => true,
        Granularity::Block { rows, cols } => rows == cols,
        _ => false,
    }
}

fn part(job: &Job, index: usize, rows: usize, cols: usize, v: Vec<f32>) -> Result<Part> {
    let transposes = job.op.spec().transposes;
    match &job.out {
        OutSpec::High(format) => Ok(Part::plain(Data::High(Tensor::rounded(*format, rows, cols, v)?))),
        OutSpec::Scaled { format, scale } => {
            let scale = scale[index].unwrap_or(1.0);
            let code = |v: &f32| format.encode(f64::from(v * scale), Rounding::NearestEven, Overflow::Saturate) as u8;
            let q = QTensor::new(QTensorParts {
                format: *format,
                rows,
                cols,
                codes: v.iter().map(code).collect(),
                granularity: Granularity::Tensor,
                scale_format: Format::F32,
                scale_inv: vec![1.0 / scale],
                zero: Zero::None,
                level: None,
            })?;
            let transpose = if transposes { Some(q.transposed()?) } else { None };
            Ok(Part { d: Data::Quantized(q), transpose, amax: Some(amax(&v)) })
        }
        OutSpec::Recipe(recipe) => {
            let x = Tensor::rounded(input_dtype(job), rows, cols, v)?;
            let quantized = recipe.quantize(&x)?;
            let transpose = match transposes {
                true if shares_codes(&quantized.q) => Some(quantized.q.transposed()?),
                true => Some(recipe.quantize(&x.transposed())?.q),
                false => None,
            };
            let amax = (quantized.q.granularity() == Granularity::Tensor).then(|| amax(&quantized.amax));
            Ok(Part { d: Data::Quantized(quantized.q), transpose, amax })
        }
    }
}

/// The column sums of v in f32, in bands of [`DBIAS_BAND`] rows.
pub fn column_sums(v: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    let mut total = vec![0.0f32; cols];
    for band in (0..rows).step_by(DBIAS_BAND) {
        for (j, total) in total.iter_mut().enumerate() {
            let mut sum = 0.0f32;
            for i in band..rows.min(band + DBIAS_BAND) {
                sum += v[i * cols + j];
            }
            *total += sum;
        }
    }
    total
}

/// One dequantized element: RN(RN32(t·σ)) with t the exact code minus an integer zero; σ = RN32(scale_inv·second level). An
/// additive zero is added after that rounding and rounded again (torchao works in the output dtype).
fn dequantized(q: &QTensor, i: usize, j: usize, out: Format) -> f32 {
    let s = q.scale_index(i, j);
    let code = q.format().decode(u32::from(q.codes()[i * q.cols() + j])) as f32;
    let (sigma, plus) = q.steps(s);
    match q.zero() {
        Zero::None => round_to(out, code * sigma),
        Zero::Integer(z) => round_to(out, (code as i32).wrapping_sub(z[s]) as f32 * sigma),
        Zero::Additive { mid, .. } => round_to(out, round_to(out, (code - *mid as f32) * sigma) + plus),
    }
}

/// Everything the kernel must write for `job`. Activations and norms are the f32 evaluation with [`super::libm`]; a kernel
/// with another libm or summation order is judged by [`super::boundary`] instead.
pub fn predict(job: &Job) -> Result<Output> {
    check(job)?;
    if let (Op::Dequantize, Operand::Quantized(q), OutSpec::High(format)) = (job.op, job.operands.a(), &job.out) {
        let v = (0..q.rows()).flat_map(|i| (0..q.cols()).map(move |j| dequantized(q, i, j, *format))).collect();
        let d = Data::High(Tensor::rounded(*format, q.rows(), q.cols(), v)?);
        return Ok(Output::of(Part::plain(d)));
    }
    let mut out = Output { parts: Vec::new(), dbias: None, mean: None, rsigma: None };
    for index in 0..job.operands.tensors().len() {
        let Values { rows, cols, v, stats } = values(job, index)?;
        if job.op.spec().dbias {
            out.dbias = Some(Tensor::rounded(input_dtype(job), 1, cols, column_sums(&v, rows, cols))?);
        }
        if matches!(job.op, Op::Layernorm) {
            out.mean = Some(stats.iter().map(|s| s.0).collect());
        }
        if job.op.is_norm() {
            out.rsigma = Some(stats.iter().map(|s| s.1).collect());
        }
        out.parts.push(part(job, index, rows, cols, v)?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transposed copy has the same codes where a scale is of a whole tensor or of a square.
    #[test]
    fn a_copy_shares_codes_where_scales_are_of_squares() {
        let of = |granularity: Granularity, count: usize| {
            let parts = crate::quant::QTensorParts {
                format: crate::Format::E4m3,
                rows: 4,
                cols: 4,
                codes: vec![0; 16],
                granularity,
                scale_format: crate::Format::F32,
                scale_inv: vec![1.0; count],
                zero: crate::Zero::None,
                level: None,
            };
            shares_codes(&QTensor::new(parts).unwrap())
        };
        assert!(of(Granularity::Tensor, 1) && of(Granularity::Block { rows: 2, cols: 2 }, 4));
        assert!(!of(Granularity::Block { rows: 4, cols: 1 }, 4) && !of(Granularity::Row, 4) && !of(Granularity::Group(2), 8));
    }
}
