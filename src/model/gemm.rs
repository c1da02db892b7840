//! What each GEMM kernel must return, to the bit: sums by [`super::accumulate`], then scales, zero points and bias in f32, one rounding
//! after the other.
//!
//! P is the accumulator's sum over one block of K (the whole of K where no scale changes along it), s the scale_inv.
//!
//! | product | value before the output rounding |
//! |---|---|
//! | scaled, both per tensor | `RN32(P·RN32(s_a·s_b))` |
//! | scaled, per row or mixed | `RN32(RN32(P·s_a)·s_b)` |
//! | scaled, groups or blocks on either side | `y ← fma(RN32(P·s_a), s_b, y)` block by block from +0; b first when only A's blocks span rows; `y ← fma(P, RN32(s_a·s_b), y)` when both do, or with [`ScaleOrder::ScalesFirst`] |
//! | … with global scales | `RN32(y·RN32(g_a·g_b))` |
//! | integer, one scale a channel | `RN32(RN32(RN32(I)·s_x)·s_w)`, then always `RN32(· + bias)`, bias 0 where there is none |
//! | integer, groups along K | `t ← fma(s_w, RN32(I), t)` from +0, then `RN32(t·s_x)`, then the bias as above |
//! | mixed | `P` with weights of [`super::product::dequantized_weights`]; `RN32(P·s_a)` for fp8 activations |
//! | bias, where given | `RN32(y + bias)` |
//!
//! `I = Σ x·w − z_w·Σx − z_x·Σw + n·z_x·z_w` over a block of n, in int32 (wrapping). FP8 outputs: amax of the value, code
//! `Q(RN32(value·scale))` saturating, scale_inv `RN32(1/scale)`.
//!
//! Sources: TransformerEngine `blockwise_fp8_gemm_reference.py`; DeepGEMM `sm90_fp8_gemm_1d2d.cuh`; PyTorch `ScaledGroupMM.cu`;
//! torchao `s8s4_linear_cutlass.cu`; CUTLASS mixed-input collectives. MX and NVFP4 blocks are modelled like other blocks along K: the sum of one
//! block, then its two scales; hardware that takes the scales' exponents into the sum differs.

use super::ScaleOrder;
use super::accumulate::{accumulate, canonical, int32};
use super::product::{Kind, Plan, Problem};
use crate::job::{Data, Job, OutSpec, Output, Part};
use crate::quant::QTensorParts;
use crate::{Format, Granularity, Overflow, QTensor, Result, Rounding, Tensor, Zero, parallel};

/// How sums of blocks become the value of an element.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue {
    kind: Kind,
    blocked: bool,
    whole: bool,
    scaled: bool,
    order: Order,
    global: Option<f32>,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    AFirst,
    BFirst,
    Both,
}

impl Epilogue {
    pub fn of(plan: &Plan, p: &Problem) -> Self {
        let order = match (plan.accumulator.scale_order, p.a.is_two_dimensional(), p.b.is_two_dimensional()) {
            (ScaleOrder::ScalesFirst, ..) | (_, true, true) => Order::Both,
            (_, true, false) => Order::BFirst,
            _ => Order::AFirst,
        };
        let (ga, gb) = (p.a.over_row(p.a_rows.start), p.b.over_row(p.b_rows.start));
        Self {
            kind: plan.kind,
            blocked: match plan.kind {
                Kind::Scaled => p.a.has_blocks() || p.b.has_blocks(),
                _ => p.blocks().len() > 1,
            },
            whole: p.a.is_whole() && p.b.is_whole(),
            scaled: p.a.scales().is_some() || p.b.scales().is_some(),
            order,
            global: (ga.is_some() || gb.is_some()).then(|| ga.unwrap_or(1.0) * gb.unwrap_or(1.0)),
        }
    }

    /// How [`Epilogue::add`] goes for narrow floats, as `kernels/model_wgmma.cu` numbers it; `None` for other products.
    pub fn number(&self) -> Option<usize> {
        (self.kind == Kind::Scaled).then_some(match (self.blocked, self.whole, self.order) {
            (false, true, _) => 0,
            (false, false, _) => 1,
            (true, _, Order::AFirst) => 2,
            (true, _, Order::BFirst) => 3,
            (true, _, Order::Both) => 4,
        })
    }

    /// y after the sum of one more block (int32 sums converted to f32 before).
    pub fn add(&self, y: f32, sum: f32, s_a: f32, s_b: f32) -> f32 {
        match (self.kind, self.blocked) {
            (Kind::Integer, false) => sum * s_a * s_b,
            (Kind::Integer, true) => s_b.mul_add(sum, y),
            (Kind::Mixed, _) => {
                if self.scaled {
                    sum * s_a
                } else {
                    sum
                }
            }
            (Kind::Scaled, false) if self.whole => sum * (s_a * s_b),
            (Kind::Scaled, false) => sum * s_a * s_b,
            (Kind::Scaled, true) => match self.order {
                Order::AFirst => (sum * s_a).mul_add(s_b, y),
                Order::BFirst => (sum * s_b).mul_add(s_a, y),
                Order::Both => (s_a * s_b).mul_add(sum, y),
            },
        }
    }

    /// The value of an element after its last block.
    pub fn finish(&self, y: f32, s_a: f32, bias: Option<f32>) -> f32 {
        let y = if self.kind == Kind::Integer && self.blocked { y * s_a } else { y };
        let y = self.global.map_or(y, |g| y * g);
        canonical(match bias {
            None if self.kind == Kind::Integer => y + 0.0,
            None => y,
            Some(bias) => y + bias,
        })
    }
}

/// The integer of one block: products with the zero points' three terms, modulo 2³².
pub fn corrected(sum: i32, x: i32, w: i32, n: usize, zx: i32, zw: i32) -> i32 {
    let m = i32::wrapping_mul;
    sum.wrapping_sub(m(zw, x)).wrapping_sub(m(zx, w)).wrapping_add(m(m(n as i32, zx), zw))
}

/// The value of element (i, j) of a problem (rows of A and B), before the output rounding.
fn element(plan: &Plan, p: &Problem, i: usize, j: usize, bias: Option<f32>) -> Result<f32> {
    let epilogue = Epilogue::of(plan, p);
    let mut y = 0.0f32;
    for k in p.blocks() {
        let (a, b) = (p.a.factors(i, k.clone()), p.b.factors(j, k.clone()));
        let sum = match plan.kind {
            Kind::Integer => {
                let total = |x: &[f32]| x.iter().fold(0i32, |sum, x| sum.wrapping_add(*x as i32));
                let (zx, zw) = (p.a.zero(i, k.start), p.b.zero(j, k.start));
                corrected(int32(&a, &b), total(&a), total(&b), k.len(), zx, zw) as f32
            }
            _ => accumulate(&plan.accumulator, p.a.format, p.b.format, &a, &b)?,
        };
        y = epilogue.add(y, sum, p.a.scale_inv(i, k.start), p.b.scale_inv(j, k.start));
    }
    Ok(epilogue.finish(y, p.a.scale_inv(i, 0), bias))
}

/// Everything a GEMM kernel must write for `job`, element by element. Errors: those of [`Plan::of`].
pub fn predict(job: &Job) -> Result<Output> {
    let plan = Plan::of(job)?;
    let mut values = vec![0.0f32; plan.rows * plan.cols];
    for p in plan.problems().filter(|p| p.a.k > 0) {
        let rows = &mut values[p.out_row * plan.cols..][..p.a_rows.len() * plan.cols];
        let done = parallel::map_chunks(rows, plan.cols, |i, values| {
            let row = p.a_rows.start + i;
            for (col, value) in p.b_rows.clone().zip(values) {
                *value = element(&plan, &p, row, col, plan.bias.map(|bias| bias[col]))?;
            }
            Ok(())
        });
        done.into_iter().collect::<Result<()>>()?;
    }
    store(job, &plan, values)
}

/// Some elements (row and column) of what a GEMM kernel must write for `job`, in one row; its amax is that of these elements. Errors: those
/// of [`Plan::of`].
pub fn predict_at(job: &Job, plan: &Plan, elements: &[(usize, usize)]) -> Result<Part> {
    let value = |(i, j): &(usize, usize)| -> Result<f32> {
        let owner = plan.problems().find(|p| p.a.k > 0 && (p.out_row..p.out_row + p.a_rows.len()).contains(i));
        // A row of no product is zero.
        let Some(p) = owner else { return Ok(0.0) };
        let col = p.b_rows.start + j;
        element(plan, &p, p.a_rows.start + i - p.out_row, col, plan.bias.map(|bias| bias[col]))
    };
    let values = parallel::collect(elements.len(), |n| value(&elements[n])).into_iter().collect::<Result<Vec<f32>>>()?;
    Ok(stored(job, 1, values.len(), values)?.parts.remove(0))
}

/// The output of f32 values: rounded, or quantized with amax and scale_inv.
pub fn store(job: &Job, plan: &Plan, values: Vec<f32>) -> Result<Output> {
    stored(job, plan.rows, plan.cols, values)
}

fn stored(job: &Job, rows: usize, cols: usize, values: Vec<f32>) -> Result<Output> {
    let part = match &job.out {
        OutSpec::Scaled { format, scale } => {
            let scale = scale[0].unwrap_or(1.0);
            let code = |v: &f32| format.encode(f64::from(v * scale), Rounding::NearestEven, Overflow::Saturate) as u8;
            // fmaxf drops NaN.
            let amax = parallel::largest(&values, 0.0, |v| v.abs());
            let q = QTensor::new(QTensorParts {
                format: *format,
                rows,
                cols,
                codes: parallel::map(&values, code),
                granularity: Granularity::Tensor,
                scale_format: Format::F32,
                scale_inv: vec![1.0 / scale],
                zero: Zero::None,
                level: None,
            })?;
            Part { d: Data::Quantized(q), transpose: None, amax: Some(amax) }
        }
        OutSpec::High(format) => Part::plain(Data::High(Tensor::rounded(*format, rows, cols, values)?)),
        OutSpec::Recipe(_) => unreachable!("refused by Plan::of"),
    };
    Ok(Output::of(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `model_scaled` of kernels/model_wgmma.cu, by the number it is given.
    #[test]
    fn numbers_are_those_of_the_formulas_on_the_gpu() {
        let (y, p, a, b) = (1.1f32, 3.3f32, 0.7f32, 1.9f32);
        let formulas = [p * (a * b), p * a * b, (p * a).mul_add(b, y), (p * b).mul_add(a, y), (a * b).mul_add(p, y)];
        let mut seen = [0; 5];
        for (kind, blocked, whole, order) in itertools::iproduct!(
            [Kind::Scaled, Kind::Integer, Kind::Mixed],
            [false, true],
            [false, true],
            [Order::AFirst, Order::BFirst, Order::Both]
        ) {
            let by = Epilogue { kind, blocked, whole, scaled: true, order, global: None };
            assert_eq!(by.number().is_some(), kind == Kind::Scaled, "{by:?}");
            if let Some(n) = by.number() {
                assert_eq!(by.add(y, p, a, b), formulas[n], "{by:?}");
                seen[n] += 1;
            }
        }
        assert!(!seen.contains(&0), "{seen:?}");
    }
}
