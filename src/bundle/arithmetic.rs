//! Which arithmetic a product in a bundle is held to: the declared device model, the one of the device, or f32 in any order.

use super::Meta;
use crate::job::{Data, Job, Operand, OutSpec, Output};
use crate::kernel::cpu::product;
use crate::model::gemm::store;
use crate::model::product::{Kind, Plan};
use crate::model::{Accumulator, Inner, MmaModel, ScaleOrder};
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::{Format, Granularity, QTensor, Result};

/// What is known of how a product was accumulated.
#[derive(Clone, Debug)]
pub struct Arithmetic {
    /// All that are possible, the likeliest first: one of them must be the kernel's.
    pub candidates: Vec<Accumulator>,
    /// Whether results have to be one of theirs to the bit. Without: the first is what the bound is derived from.
    pub bits: bool,
    /// Why these.
    pub why: String,
}

/// Elements of K between the promotions that kernels on Hopper make: CUTLASS's default, DeepGEMM, cuBLASLt without fast accumulation.
const PROMOTION: usize = 128;

impl Arithmetic {
    /// Of a product. Errors: a declared model that does not take the operands' formats.
    pub fn of(meta: &Meta, job: &Job) -> Result<Arithmetic> {
        let (fa, fb) = (format(&job.operands.a[0]), job.operands.b.as_ref().map_or(Format::F32, format));
        let promoted = |inner, every: Option<usize>| Accumulator { promote_every: every, ..Accumulator::new(inner) };
        if let Some(model) = meta.model {
            let accumulator = promoted(model.inner, meta.promote_every);
            accumulator.check(fa, fb)?;
            return Ok(Arithmetic { candidates: vec![accumulator], bits: true, why: "declared by `device_model`".into() });
        }
        if fa.is_integer() && fb.is_integer() {
            let why = "integer operands: exact sums, scales in any order; bits are judged with `device_model` = int32".into();
            return Ok(Arithmetic { candidates: vec![Accumulator::new(Inner::Int32)], bits: false, why });
        }
        let known = meta.device.as_deref().and_then(|d| Some((d, architecture(d)?)));
        let ocp = |f| matches!(f, Format::E4m3 | Format::E5m2);
        if let (Some((device, architecture)), true) = (known, ocp(fa) && ocp(fb)) {
            let inner = Inner::Mma(MmaModel { name: architecture });
            let candidates = match meta.promote_every {
                Some(n) => vec![promoted(inner, Some(n))],
                None => vec![promoted(inner, None), promoted(inner, Some(PROMOTION))],
            };
            return Ok(Arithmetic {
                candidates,
                bits: true,
                why: format!("assumed from the device `{device}` and the formats {fa}, {fb}"),
            });
        }
        let device = meta.device.as_deref().map_or("no `device`".to_string(), |d| format!("device `{d}`"));
        let why = format!("assumed: f32 in any order ({device}, formats {fa}, {fb}, no `device_model`)");
        Ok(Arithmetic { candidates: vec![promoted(Inner::F32Sequential, meta.promote_every)], bits: false, why })
    }
}

/// One way in which the arithmetic may have gone: its name, and the bits it gives.
pub struct Variant {
    pub accumulator: Accumulator,
    /// `hopper_wgmma@128, b first`.
    pub name: String,
    pub output: Output,
}

/// The value of a sum and the scales of a and b.
type Scaling = fn(f32, f32, f32) -> f32;

/// The orders in which scales meet a sum that has one scale of each side.
const ORDERS: [(&str, Scaling); 3] =
    [("", |p, a, b| p * a * b), (", b first", |p, a, b| p * b * a), (", scales first", |p, a, b| p * (a * b))];

/// What an accumulator gives, with the scales in every order (in that of its own where it is `ordered`), handed to `see` one by one
/// until it returns true. Errors: those of the device model (operands it has no kernel for).
pub fn variants(
    job: &Job,
    accumulator: Accumulator,
    ordered: bool,
    see: &mut dyn FnMut(Variant) -> Result<bool>,
) -> Result<bool> {
    let job = Job { accumulator: Some(accumulator), ..job.clone() };
    let plan = Plan::of(&job)?;
    let first = plan.problems().next();
    let scales = |o: &Operand| matches!(o, Operand::Quantized(q) if q.global_scale_inv().is_none());
    let unblocked = first.is_some_and(|p| !p.a.has_blocks() && !p.b.has_blocks());
    let simple = job.op == Op::Gemm && plan.kind == Kind::Scaled && unblocked && scales(&job.operands.a[0]);
    if !simple || !job.operands.b.as_ref().is_some_and(scales) {
        // Scales meet sums block by block, in either order; elsewhere the model has one.
        let orders = [(ScaleOrder::SumFirst, ""), (ScaleOrder::ScalesFirst, ", scales first")];
        let all = &orders[..if unblocked { 1 } else { 2 }];
        for (scale_order, label) in all.iter().filter(|o| !ordered || unblocked || o.0 == accumulator.scale_order) {
            let ordered = Accumulator { scale_order: *scale_order, ..accumulator };
            let output = product::run(&Job { accumulator: Some(ordered), ..job.clone() })?;
            if see(Variant { accumulator: ordered, name: format!("{}{label}", plain(accumulator)), output })? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    // The sums once, then every order of the two scales.
    let sums = match product::run(&unscaled(&job)?)?.parts.remove(0).d {
        Data::High(t) => t,
        Data::Quantized(_) => unreachable!("asked for f32"),
    };
    let p = plan.problems().next().expect("a gemm is one problem");
    for (label, order) in ORDERS {
        let value = |i: usize| {
            let (row, col) = (i / plan.cols, i % plan.cols);
            let y = order(sums.data()[i], p.a.scale_inv(row, 0), p.b.scale_inv(col, 0));
            crate::model::accumulate::canonical(plan.bias.map_or(y, |bias| y + bias[col]))
        };
        let output = store(&job, &plan, (0..plan.rows * plan.cols).map(value).collect())?;
        if see(Variant { accumulator, name: format!("{accumulator}{label}"), output })? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// In the order that needs no name.
fn plain(accumulator: Accumulator) -> Accumulator {
    Accumulator { scale_order: ScaleOrder::SumFirst, ..accumulator }
}

/// The same product with every scale 1, in f32, without bias.
fn unscaled(job: &Job) -> Result<Job> {
    let plain = |o: &Operand| match o {
        Operand::Quantized(q) => {
            let parts = q.clone().into_parts();
            let tensor =
                QTensorParts { granularity: Granularity::Tensor, scale_format: Format::F32, scale_inv: vec![1.0], ..parts };
            QTensor::new(tensor).map(Operand::Quantized)
        }
        other => Ok(other.clone()),
    };
    let mut job = job.clone();
    job.operands.a = job.operands.a.iter().map(plain).collect::<Result<_>>()?;
    job.operands.b = job.operands.b.as_ref().map(plain).transpose()?;
    job.operands.bias = None;
    job.out = OutSpec::High(Format::F32);
    Ok(job)
}

fn format(operand: &Operand) -> Format {
    match operand {
        Operand::High(t) => t.dtype(),
        Operand::Quantized(q) => q.format(),
        Operand::Groups(g) => g.first().map_or(Format::F32, |q| q.format()),
        Operand::Dynamic(d) => d.recipe().format,
    }
}

/// The device model of FP8 products on a GPU that is named as its driver names it: those that were checked on hardware.
fn architecture(device: &str) -> Option<&'static str> {
    let device = device.to_ascii_uppercase();
    let words: Vec<&str> = device.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let any = |names: &[&str]| words.iter().any(|w| names.contains(w));
    if any(&["H100", "H200", "H800", "H20", "GH200", "HOPPER", "SM_90", "SM_90A"]) {
        return Some("hopper_wgmma");
    }
    let rtx40 = words.iter().any(|w| w.len() >= 4 && w.starts_with("40") && w[..4].chars().all(|c| c.is_ascii_digit()));
    if any(&["L4", "L40", "L40S", "ADA", "SM_89"]) || (any(&["RTX"]) && rtx40) {
        return Some("ada_mma");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::architecture;

    #[test]
    fn devices_by_the_names_of_their_drivers() {
        for (device, model) in [
            ("NVIDIA H200", Some("hopper_wgmma")),
            ("NVIDIA H100 80GB HBM3", Some("hopper_wgmma")),
            ("NVIDIA GH200 480GB", Some("hopper_wgmma")),
            ("sm_90a", Some("hopper_wgmma")),
            ("NVIDIA L40S", Some("ada_mma")),
            ("NVIDIA RTX 6000 Ada Generation", Some("ada_mma")),
            ("NVIDIA GeForce RTX 4090", Some("ada_mma")),
            ("NVIDIA GeForce RTX 3090", None),
            ("NVIDIA A100-SXM4-40GB", None),
            ("NVIDIA B200", None),
            ("Intel(R) Xeon(R) Platinum", None),
            ("", None),
        ] {
            assert_eq!(architecture(device), model, "{device}");
        }
    }
}
