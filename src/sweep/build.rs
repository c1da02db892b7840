//! A case's operands and job: `Case → Inputs → Operands`.

use super::case::{Case, OperandRecipe, OutKind, ZeroMode};
use super::memo::Memo;
use crate::assay::Built;
use crate::fault::power::Ground;
use crate::input::{Drawer, Source};
use crate::job::{Dynamic, Job, Operand, Operands, OutSpec};
use crate::kernel::{Factors, Referrer};
use crate::op::{self, Accelerator, Args64, Defined, Op, Params};
use crate::quant::{QTensor, QTensorParts, Zero};
use crate::recipe::Recipe;
use crate::stage::timed;
use crate::tensor::round_to;
use crate::{Error, Format, Result, Tensor};
use ndarray::Array2;
use std::sync::{Arc, Mutex, PoisonError};

/// The unquantized operands, each role as [`Args64`] says.
pub struct Inputs {
    /// One tensor, or the parts of a multi_cast_transpose, or the groups of a grouped wgrad.
    pub a: Vec<Tensor>,
    pub b: Vec<Tensor>,
    pub bias: Option<Tensor>,
    pub gamma: Option<Tensor>,
    pub beta: Option<Tensor>,
    pub offs: Option<Vec<usize>>,
}

/// Streams of the generator: which random numbers are whose.
mod stream {
    pub const A: u32 = 0;
    pub const B: u32 = 1;
    pub const BIAS: u32 = 2;
    pub const GAMMA: u32 = 3;
    pub const BETA: u32 = 4;
    /// Parts of a multi_cast_transpose: this plus the part.
    pub const PARTS: u32 = 16;
}

/// What does large work in place of the CPU, to the same bits.
#[derive(Clone, Copy, Default)]
pub struct Helpers {
    pub product: Option<Accelerator>,
    /// Dense products of operands as they are: tried before `product`.
    pub refer: Option<Referrer>,
    pub draw: Option<Drawer>,
    /// What was drawn and defined is kept for the next cases, as a run asks for it.
    pub keeps: bool,
}

/// Multiply-adds of a product from which its references are asked for elsewhere.
pub const LARGE: usize = 1 << 24;

/// Elements from which a tensor keeps its codes.
const LARGE_TENSOR: usize = 1 << 21;

/// Tensors and references of the last cases, by what they are made from. Four distributions of an operand of 2^20 elements, and products of them.
static DRAWN: Memo<Tensor> = Memo::new(96 << 20);
static EXACT: Memo<Vec<Arc<Defined>>> = Memo::new(32 << 20);

/// Lets the cases of this process keep `bytes` of tensors: a table's rows of tokens share the weights of their layer.
pub fn keep(bytes: usize) {
    DRAWN.grow(bytes);
}

/// What a recipe makes of a tensor: a large one keeps what the last recipe made of it, its codes on a device and what was found of them too.
fn quantized_once(recipe: &Recipe, x: &Tensor) -> Result<QTensor> {
    if x.count() < LARGE_TENSOR {
        return Ok(recipe.quantize(x)?.q);
    }
    let last: Arc<Mutex<Option<(Recipe, QTensor)>>> = x.made().or_make(|| Ok(Mutex::default()))?;
    // One thread makes them for all, but none waits that computes for others.
    let waits = rayon::current_thread_index().is_none();
    let last = if waits { Some(last.lock().unwrap_or_else(PoisonError::into_inner)) } else { last.try_lock().ok() };
    let Some(mut last) = last else { return Ok(recipe.quantize(x)?.q) };
    if let Some((_, q)) = last.as_ref().filter(|(r, _)| r == recipe) {
        return Ok(q.clone());
    }
    let q = recipe.quantize(x)?.q;
    *last = Some((recipe.clone(), q.clone()));
    Ok(q)
}

/// Draws the case's values.
pub fn inputs(case: &Case) -> Result<Inputs> {
    inputs_by(case, Helpers::default())
}

fn inputs_by(case: &Case, helpers: Helpers) -> Result<Inputs> {
    let draw = |source: &Source, rows, cols, stream| {
        let make = || source.tensor_by(helpers.draw, case.dtype, rows, cols, case.seed, stream);
        let key = || format!("{source} {} {rows} {cols} {} {stream}", case.dtype, case.seed);
        if helpers.keeps { DRAWN.get(key(), make, |t| 5 * t.count()) } else { make() }
    };
    let (m, n, k, e) = (case.total_rows(), case.n, case.k, case.rows.len());
    let mut inputs = Inputs { a: Vec::new(), b: Vec::new(), bias: None, gamma: None, beta: None, offs: None };
    match case.op {
        Op::MultiCastTranspose => {
            for (i, rows) in case.rows.iter().enumerate() {
                inputs.a.push(draw(&case.dist_a, *rows, n, stream::PARTS + i as u32)?);
            }
        }
        Op::Gated => inputs.a.push(draw(&case.dist_a, m, 2 * n, stream::A)?),
        Op::DgatedCastTranspose => {
            inputs.a.push(draw(&case.dist_a, m, n, stream::A)?);
            inputs.b.push(draw(&case.dist_b, m, 2 * n, stream::B)?);
        }
        Op::ActivationGrad | Op::CastTransposeDbiasDact => {
            inputs.a.push(draw(&case.dist_a, m, n, stream::A)?);
            inputs.b.push(draw(&case.dist_b, m, n, stream::B)?);
        }
        Op::Layernorm | Op::Rmsnorm => {
            inputs.a.push(draw(&case.dist_a, m, n, stream::A)?);
            inputs.gamma = Some(gamma(case, n)?);
            inputs.beta = (case.op == Op::Layernorm).then(|| vector(case, "norm_beta", n, stream::BETA)).transpose()?;
        }
        Op::Gemm => {
            inputs.a.push(draw(&case.dist_a, m, k, stream::A)?);
            inputs.b.push(shift(draw(&case.dist_b, n, k, stream::B)?, case.offset)?);
            inputs.bias = case.bias.then(|| vector(case, "bias", n, stream::BIAS)).transpose()?;
        }
        Op::GroupedGemm => {
            inputs.a.push(draw(&case.dist_a, m, k, stream::A)?);
            inputs.b.push(draw(&case.dist_b, e * n, k, stream::B)?);
        }
        // dY[M,N] times B[e] as [K,N]: `n` and `k` name the forward product's.
        Op::GroupedGemmDgrad => {
            inputs.a.push(draw(&case.dist_a, m, n, stream::A)?);
            inputs.b.push(draw(&case.dist_b, e * k, n, stream::B)?);
        }
        // dYᵀ[N,tokens] and Aᵀ[K,tokens] of each group: its tokens are the inner dimension.
        Op::GroupedGemmWgrad => {
            let (dy, x) = (draw(&case.dist_a, m, n, stream::A)?, draw(&case.dist_b, m, k, stream::B)?);
            inputs.a.push(dy.transposed());
            inputs.b.push(x.transposed());
        }
        _ => inputs.a.push(shift(draw(&case.dist_a, m, n, stream::A)?, case.offset)?),
    }
    if e > 0 && case.op != Op::MultiCastTranspose {
        let ends = case.rows.iter().scan(0, |end, rows| {
            *end += rows;
            Some(*end)
        });
        inputs.offs = Some(ends.collect());
    }
    Ok(inputs)
}

/// Adds `offset` root mean squares to every element.
fn shift(t: Tensor, offset: f64) -> Result<Tensor> {
    if offset == 0.0 {
        return Ok(t);
    }
    let squares: f64 = t.data().iter().filter(|x| x.is_finite()).map(|x| f64::from(*x) * f64::from(*x)).sum();
    let by = offset * (squares / t.data().len().max(1) as f64).sqrt();
    let data = t.data().iter().map(|x| (f64::from(*x) + by) as f32).collect();
    Tensor::rounded(t.dtype(), t.rows(), t.cols(), data)
}

/// A bias, gamma or beta: the real one that belongs to a real operand, else a draw.
fn vector(case: &Case, what: &str, n: usize, stream: u32) -> Result<Tensor> {
    let name = case.dist_b.to_string();
    let real = match what {
        "bias" => name.strip_suffix("_weight").map(|s| format!("{s}_bias")),
        _ => name.strip_suffix("norm_input").map(|s| format!("{s}{what}")),
    };
    let source: Source = match real.filter(|_| matches!(*case.dist_b, Source::Real(_))) {
        Some(name) => name.parse()?,
        None => "normal".parse()?,
    };
    source.tensor(case.dtype, 1, n, case.seed, stream)
}

/// Gamma around one (around zero where it is stored minus one), so that no weight is special.
fn gamma(case: &Case, n: usize) -> Result<Tensor> {
    let drawn = vector(case, "norm_gamma", n, stream::GAMMA)?;
    let (scale, shift) = match (&*case.dist_b, case.zero_centered_gamma) {
        (Source::Real(_), false) => (1.0, 0.0),
        (Source::Real(_), true) => (1.0, -1.0),
        (_, false) => (0.25, 1.0),
        (_, true) => (0.25, 0.0),
    };
    let data = drawn.data().iter().map(|x| x * scale + shift).collect();
    Tensor::rounded(drawn.dtype(), 1, n, data)
}

/// Integer zero points as additive ones: z′ = RN16(−z · scale_inv), the form of the mixed-input kernels.
fn additive(q: QTensor) -> Result<QTensor> {
    let Zero::Integer(z) = q.zero().clone() else {
        return Err(Error::unsupported("additive zero points", format!("{} has no integer zero points", q.format())));
    };
    let zero = z.iter().zip(q.scale_inv()).map(|(z, s)| round_to(Format::F16, -(*z as f32) * s)).collect();
    QTensor::new(QTensorParts { zero: Zero::Additive { zero, mid: 0 }, ..q.into_parts() })
}

/// What the right kernel makes of a case. Errors: unsupported for a case that is skipped; those of [`build`] and [`Ground::of`].
pub fn ground(case: &Case) -> Result<Ground> {
    match &case.skip {
        Some(why) => Err(Error::unsupported(case.id(), why.to_string())),
        None => Ground::of(build(case)?),
    }
}

/// Draws, quantizes, defines.
pub fn build(case: &Case) -> Result<Built> {
    build_by(case, Helpers::default())
}

/// [`build`] with its large inputs and products by `helpers`.
pub fn build_by(case: &Case, helpers: Helpers) -> Result<Built> {
    Prepared::of(case, helpers)?.define(case, helpers)
}

/// A case's operands, of which nothing is defined yet.
pub struct Prepared {
    pub x: Inputs,
    a: Vec<Operand>,
    b: Vec<Operand>,
    /// The quantized operands with the values they came from.
    pub quantized: Vec<(QTensor, Tensor)>,
}

impl Prepared {
    /// Draws and quantizes.
    pub fn of(case: &Case, helpers: Helpers) -> Result<Self> {
        let x = timed("inputs", || inputs_by(case, helpers))?;
        let mut quantized = Vec::new();
        let mut operand = |recipe: &OperandRecipe, x: &Tensor, zero: ZeroMode| -> Result<Operand> {
            match recipe {
                OperandRecipe::None => Ok(Operand::High(x.clone())),
                OperandRecipe::Fused(r) => {
                    let d = Dynamic::new(x.clone(), r.clone())?;
                    if let Operand::Quantized(q) = d.quantized() {
                        quantized.push((q.clone(), x.clone()));
                    }
                    Ok(Operand::Dynamic(d))
                }
                OperandRecipe::Quantized(r) => {
                    let q = quantized_once(r, x)?;
                    let q = if zero == ZeroMode::Additive { additive(q)? } else { q };
                    quantized.push((q.clone(), x.clone()));
                    Ok(Operand::Quantized(q))
                }
            }
        };
        let wgrad = x.offs.as_ref().filter(|_| case.op == Op::GroupedGemmWgrad);
        let mut side = |recipe: &OperandRecipe, tensors: &[Tensor], zero: ZeroMode| -> Result<Vec<Operand>> {
            match (wgrad, recipe) {
                (Some(offs), OperandRecipe::Quantized(r)) => tensors.iter().map(|t| Operand::by_groups(t, offs, r)).collect(),
                (Some(offs), OperandRecipe::Fused(r)) => {
                    let dynamic = |t: &Tensor| Dynamic::by_groups(t.clone(), offs, r.clone()).map(Operand::Dynamic);
                    tensors.iter().map(dynamic).collect()
                }
                _ => tensors.iter().map(|t| operand(recipe, t, zero)).collect(),
            }
        };
        let (a, b) =
            timed("quantize", || Ok::<_, Error>((side(&case.a, &x.a, ZeroMode::Recipe)?, side(&case.b, &x.b, case.zero)?)))?;
        Ok(Self { x, a, b, quantized })
    }

    /// The job of a case. `largest` are the largest finite magnitudes of its parts' references; `None` when the output needs them and they are
    /// not given. The operands are shared, not copied.
    pub fn job(&self, case: &Case, largest: &[f64]) -> Option<Job> {
        if matches!(&*case.out, OutKind::Scaled { .. }) && largest.is_empty() {
            return None;
        }
        let out = out_spec(case, largest);
        let x = &self.x;
        let given = Operands::several(self.a.clone(), self.b.first().cloned());
        let (bias, gamma, beta, offs) = (x.bias.clone(), x.gamma.clone(), x.beta.clone(), x.offs.clone());
        let operands = Operands { bias, gamma, beta, offs, ..given };
        Some(Job { op: case.op, params: params(case), operands, out, accumulator: case.accumulator })
    }

    /// With the references.
    pub fn define(self, case: &Case, helpers: Helpers) -> Result<Built> {
        let Self { x, a, b, quantized } = self;
        let (accelerator, params) = (helpers.product, params(case));
        let defined = |a: ndarray::Array2<f64>, b: Option<ndarray::Array2<f64>>| {
            let vector = |t: &Option<Tensor>| t.as_ref().map(|t| t.data().iter().map(|x| f64::from(*x)).collect());
            let (bias, gamma, beta) = (vector(&x.bias), vector(&x.gamma), vector(&x.beta));
            let args = Args64 { a, b, bias, row_weights: None, gamma, beta, offs: x.offs.clone(), accelerator };
            op::define(case.op, &params, &args)
        };
        let second = |v: &[Operand]| v.first().map(Operand::to_f64);
        // Without the operands in f64, which have eight bytes a value.
        let (m, n) = (case.total_rows(), case.n);
        let refer = helpers.refer.filter(|_| case.op == Op::Gemm && m * n * case.k >= LARGE);
        let referred = |of: Factors| match refer?(of, x.bias.as_ref()) {
            Ok((d, magnitude)) => {
                let shaped = |v| Array2::from_shape_vec((m, n), v).expect("a reference is m × n");
                Some(Defined { magnitude: Some(shaped(magnitude)), accelerator, ..Defined::plain(shaped(d)) })
            }
            Err(Error::Unsupported { .. }) => None,
            Err(e) => {
                tracing::warn!("{}: references by the CPU's operands: {e}", case.id());
                None
            }
        };
        let of_values = |a: &Tensor| match x.b.first().and_then(|b| referred(Factors::Values([a, b]))) {
            Some(made) => Ok(made),
            None => defined(a.to_f64(), x.b.first().map(Tensor::to_f64)),
        };
        let of_operands = |o: &Operand| match (o, b.first()) {
            (Operand::Quantized(a), Some(Operand::Quantized(b))) => referred(Factors::Codes([a, b])),
            _ => None,
        };
        let exact = || {
            let make = || x.a.iter().map(|a| of_values(a).map(Arc::new)).collect::<Result<Vec<_>>>();
            if case.op != Op::Gemm || !helpers.keeps {
                return make();
            }
            let (m, n, k, to) = (case.total_rows(), case.n, case.k, case.offset);
            let key = format!("{m}×{n}×{k} {} {} {} {} {to} {}", case.dist_a, case.dist_b, case.dtype, case.seed, case.bias);
            // d and its magnitude.
            let bytes = |all: &Vec<Arc<Defined>>| all.iter().map(|d| 16 * d.d.len()).sum();
            EXACT.get(key, make, bytes)
        };
        let of_code = |o: &Operand| of_operands(o).map_or_else(|| defined(o.to_f64(), second(&b)), Ok).map(Arc::new);
        let of_codes = || a.iter().map(of_code).collect::<Result<Vec<_>>>();
        let (exact, ideal) = timed("references", || match case.op.reads_codes() {
            true => Ok::<_, Error>((exact()?, of_codes()?)),
            false => exact().map(|exact| (exact.clone(), exact)),
        })?;
        let largest = |d: &Defined| d.d.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
        let scaled = matches!(&*case.out, OutKind::Scaled { .. });
        let largest = timed("out", || if scaled { ideal.iter().map(|d| largest(d)).collect() } else { Vec::new() });
        let out = out_spec(case, &largest);
        let source = if matches!(case.op, Op::Cast | Op::CastTranspose) { x.a.first().cloned() } else { None };
        let given = Operands::several(a, b.into_iter().next());
        let operands = Operands { bias: x.bias, gamma: x.gamma, beta: x.beta, offs: x.offs, ..given };
        Ok(Built {
            job: Job { op: case.op, params, operands, out, accumulator: case.accumulator },
            exact,
            ideal,
            quantized,
            source,
        })
    }
}

fn params(case: &Case) -> Params {
    Params { act: case.act, zero_centered_gamma: case.zero_centered_gamma, ..Params::default() }
}

/// What the kernel is to write. A given scale comes from a past step, as in delayed scaling: the largest magnitude of this
/// step times 1.0734, or half of it for data that is to saturate; never a power of two.
fn out_spec(case: &Case, largest: &[f64]) -> OutSpec {
    match &*case.out {
        OutKind::High(f) => OutSpec::High(*f),
        OutKind::Recipe(r) => OutSpec::Recipe(r.clone()),
        OutKind::Scaled { format, null } => {
            let past = if case.dist_a.to_string().starts_with("saturating") { 0.5 } else { 1.0734 };
            let scale = |amax: &f64| {
                let scale = (format.max_finite() / (*amax * past)) as f32;
                // A scale near one would hide that it is omitted.
                let scale = if (0.8..1.25).contains(&scale) { scale * 0.6871 } else { scale };
                if *null { None } else { Some(if scale.is_finite() { scale } else { 1.37 }) }
            };
            OutSpec::Scaled { format: *format, scale: largest.iter().map(scale).collect() }
        }
    }
}
