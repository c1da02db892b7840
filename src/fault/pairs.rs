//! Faults of integer dot products whose pairs of terms are added in 16 bits, as `vpmaddubsw` does: saturated or wrapped, with a as it is or
//! shifted to unsigned and the shift taken off again.

use super::sums::biased;
use super::{Class, Fault, How, On, plain};
use crate::job::{Job, Operand};
use crate::model::product::{Kind, Plan};
use crate::op::Op;
use crate::{Result, Zero};

macro_rules! pairs {
    ($variant:literal, $help:literal, $shift:expr, $wrap:expr) => {
        Fault {
            class: Class::OverflowWrap,
            variant: $variant,
            on: On::Out,
            help: $help,
            how: How::Sums { values: |j, _| pairs(j, $shift, $wrap), ulp: 0.0 },
            settings: plain,
        }
    };
}

#[rustfmt::skip]
pub const FAULTS: &[Fault] = &[
    pairs!("pairs.i16_saturated", "two products at a time are added in 16 bits, which saturate", 0, false),
    pairs!("pairs.i16_saturated_u8", "a is shifted by 128 to unsigned, two products at a time are added in 16 bits, which saturate", 128, false),
    pairs!("pairs.i16_wrapped", "two products at a time are added in 16 bits, which wrap", 0, true),
];

/// Whether an operand has zero points: the sums here are those of codes alone, which would be a fault of its own.
fn has_zeros(job: &Job) -> bool {
    let zeros = |o: &Operand| matches!(o, Operand::Quantized(q) if !matches!(q.zero(), Zero::None));
    job.operands.get(0).is_some_and(zeros) || job.operands.b().is_some_and(zeros)
}

/// v where pairs along K pass through 16 bits. `None`: no product of integers with a scale a row.
fn pairs(job: &Job, shift: i64, wrap: bool) -> Result<Option<Vec<f32>>> {
    let Ok(plan) = Plan::of(job) else { return Ok(None) };
    if plan.kind != Kind::Integer || job.op == Op::GroupedGemmWgrad || has_zeros(job) {
        return Ok(None);
    }
    let narrow = |x: i64| if wrap { i64::from(x as i16) } else { x.clamp(-32768, 32767) };
    let mut sums = vec![0.0; plan.rows * plan.cols];
    for p in plan.problems() {
        let codes = |side: &crate::model::product::FactorRows, row: usize| -> Vec<i64> {
            side.factors(row, 0..side.k).into_iter().map(|x| x as i64).collect()
        };
        let b: Vec<Vec<i64>> = p.b_rows.clone().map(|row| codes(p.b, row)).collect();
        for (i, row) in p.a_rows.clone().enumerate() {
            let a = codes(p.a, row);
            for (j, y) in b.iter().enumerate() {
                let col = p.b_rows.start + j;
                let mut sum = 0.0;
                for k in (0..a.len()).step_by(2) {
                    let to = (k + 2).min(a.len());
                    let pair: i64 = (k..to).map(|k| (a[k] + shift) * y[k]).sum();
                    let off: i64 = (k..to).map(|k| shift * y[k]).sum();
                    sum += (narrow(pair) - off) as f64 * f64::from(p.a.scale_inv(row, k)) * f64::from(p.b.scale_inv(col, k));
                }
                sums[(p.out_row + i) * plan.cols + j] = sum;
            }
        }
    }
    Ok(Some(biased(job, sums)))
}
