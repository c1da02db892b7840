//! Which arithmetics a product in a bundle may have had: the declared device model, those of the device, or all that there are.

use super::Meta;
use super::settle::ways::{Chain, Promote};
use crate::job::{Job, Operand};
use crate::model::product::Plan;
use crate::model::table::{self, Unit};
use crate::model::{Accumulator, Inner, MmaModel};
use crate::{Format, Result};

/// What is known of how a product was accumulated.
#[derive(Clone, Debug)]
pub struct Arithmetic {
    /// The one whose bits the result must have.
    pub declared: Option<Accumulator>,
    /// How products may have been summed where nothing is declared, the likeliest first.
    pub chains: Vec<Chain>,
    /// `promote_every`, where it is given.
    pub promote_every: Option<usize>,
    /// What the bound is derived from where no bits are found.
    pub bound: Inner,
    /// Why these.
    pub why: String,
}

/// Elements of K between promotions that kernels make (128: CUTLASS, DeepGEMM, cuBLASLt without fast accumulation).
const PROMOTIONS: [usize; 8] = [128, 64, 256, 512, 32, 1024, 2048, 4096];
/// Of chains that round to f32 anyway.
const TILES: [usize; 4] = [32, 64, 128, 16];

impl Arithmetic {
    /// Of a product. Errors: a declared model that does not take the operands' formats.
    pub fn of(meta: &Meta, job: &Job) -> Result<Arithmetic> {
        let (fa, fb) = (format(job.operands.a()), job.operands.b().map_or(Format::F32, format));
        if let Some(model) = meta.model {
            let accumulator = Accumulator { promote_every: meta.promote_every, ..Accumulator::new(model.inner) };
            accumulator.check(fa, fb)?;
            return Ok(Arithmetic {
                declared: Some(accumulator),
                chains: Vec::new(),
                promote_every: meta.promote_every,
                bound: model.inner,
                why: "declared by `device_model`".into(),
            });
        }
        let promote_every = meta.promote_every;
        if fa.is_integer() && fb.is_integer() {
            let why = "integer operands: exact sums or f32 ones of dequantized values, scales in any order; bits alone are judged with \
                       `device_model` = int32";
            let (chains, bound) = (vec![Chain::Int32], Inner::AnyOrder);
            return Ok(Arithmetic { declared: None, chains, promote_every, bound, why: why.into() });
        }
        // The factors that meet: weights are dequantized to the format of the activations.
        let plan = Plan::of(job);
        let planned = plan.ok().and_then(|p| p.problems().next().map(|p| (p.a.format, p.b.format)));
        let (fa, fb) = planned.unwrap_or_else(|| met(fa, fb));
        let known = meta.device.as_deref().and_then(|d| Some((d, architecture(d)?)));
        let every: Vec<&'static str> = table::MODELS.iter().map(|m| m.name).filter(|n| !n.ends_with("_f16")).collect();
        let names: &[&'static str] = known.map_or(&every, |k| k.1);
        let (chains, first) = chains(names, fa, fb);
        let (bound, why) = match (known, first) {
            (Some((device, _)), Some(name)) => {
                (Inner::AnyOf(MmaModel { name }), format!("assumed from the device `{device}` and the formats {fa}, {fb}"))
            }
            _ => {
                let device = meta.device.as_deref().map_or("no `device`".to_string(), |d| format!("device `{d}`"));
                let bound = if first.is_some() || chains.len() > F32.len() { Inner::AnyUnit } else { Inner::AnyOrder };
                (bound, format!("assumed: any unit that takes the formats {fa}, {fb} ({device} and no `device_model` given)"))
            }
        };
        Ok(Arithmetic { declared: None, chains, promote_every, bound, why })
    }

    /// Every chain with every promotion that kernels make of sums of `k` products.
    pub fn promoted(&self, k: usize) -> Vec<(Chain, Option<Promote>)> {
        let mut all = Vec::new();
        let of = |chain: &Chain| match (self.promote_every, chain) {
            (_, Chain::Int32 | Chain::Exact) => vec![None],
            (Some(n), Chain::Unit(_) | Chain::Widened(..)) => vec![Some(Promote::f32(n))],
            (_, Chain::Unit(_) | Chain::Widened(..)) => promotions(&PROMOTIONS, k),
            _ => promotions(&TILES, k),
        };
        // Every chain as it is, and as it usually is, before what is rare.
        let each: Vec<(Chain, Vec<Option<Promote>>)> = self.chains.iter().map(|c| (*c, of(c))).collect();
        for nth in 0..=PROMOTIONS.len() {
            all.extend(each.iter().filter_map(|(chain, promotions)| Some((*chain, *promotions.get(nth)?))));
        }
        all
    }
}

fn promotions(every: &[usize], k: usize) -> Vec<Option<Promote>> {
    std::iter::once(None).chain(every.iter().filter(|n| **n < k).map(|n| Some(Promote::f32(*n)))).collect()
}

/// The factors that meet where no kernel of ours multiplies: a tensor core takes both in the 16 bits of one.
fn met(fa: Format, fb: Format) -> (Format, Format) {
    match (fa, fb) {
        (wide @ (Format::F16 | Format::Bf16), narrow) | (narrow, wide @ (Format::F16 | Format::Bf16)) if narrow.bits() < 16 => {
            (wide, wide)
        }
        formats => formats,
    }
}

/// f32 without a tensor core.
const F32: [Chain; 3] = [Chain::Sequential, Chain::Pairwise, Chain::Exact];

/// The chains of these instructions and those of f32; the first instruction that takes the formats as they are.
fn chains(names: &[&'static str], fa: Format, fb: Format) -> (Vec<Chain>, Option<&'static str>) {
    let mut units: Vec<Unit> = Vec::new();
    let mut chains = Vec::new();
    let mut first = None;
    for name in names {
        if let Ok(unit) = table::find(name).and_then(|m| m.unit(fa, fb)) {
            first = first.or(Some(*name));
            if !units.contains(&unit) {
                units.push(unit);
                chains.push(Chain::Unit(name));
            }
        }
    }
    // FP8 values are f16 values: an f16 instruction takes them widened.
    if fa.is_fp8() && fb.is_fp8() {
        let mut widened: Vec<Unit> = Vec::new();
        for name in names {
            if let Ok(unit) = table::find(name).and_then(|m| m.unit(Format::F16, Format::F16))
                && !widened.contains(&unit)
            {
                widened.push(unit);
                chains.push(Chain::Widened(name, Format::F16));
            }
        }
    }
    chains.extend(F32);
    (chains, first)
}

fn format(operand: &Operand) -> Format {
    match operand {
        Operand::High(t) => t.dtype(),
        Operand::Weighted(w) => w.x().dtype(),
        Operand::Quantized(q) => q.format(),
        Operand::Groups(g) => g.first().map_or(Format::F32, |q| q.format()),
        Operand::Dynamic(d) => d.recipe().format,
    }
}

/// The instructions of a GPU that is named as its driver names it, the one with the widest bound first.
fn architecture(device: &str) -> Option<&'static [&'static str]> {
    let device = device.to_ascii_uppercase();
    let words: Vec<&str> = device.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let any = |names: &[&str]| words.iter().any(|w| names.contains(w));
    // GeForce: RTX and a number of its generation; `RTX 2000 Ada` is none of these.
    let geforce = |series: &str| {
        let number = |w: &&str| w.len() >= 4 && w.starts_with(series) && w[..4].bytes().all(|c| c.is_ascii_digit());
        any(&["RTX"]) && !any(&["ADA", "BLACKWELL", "QUADRO", "PRO"]) && words.iter().any(number)
    };
    const HOPPER: &[&str] = &["hopper_wgmma", "hopper_mma"];
    if any(&["H100", "H200", "H800", "H20", "GH200", "HOPPER", "SM_90", "SM_90A"]) {
        return Some(HOPPER);
    }
    if any(&["L4", "L40", "L40S", "L20", "ADA", "SM_89"]) || geforce("40") {
        return Some(&["ada_mma"]);
    }
    if any(&["B200", "B100", "GB200", "B300", "GB300", "SM_100", "SM_100A", "SM_103", "SM_103A"]) {
        return Some(&["blackwell_tcgen05", "hopper_mma"]);
    }
    if any(&["SM_120", "SM_120A"]) || geforce("50") || (any(&["RTX"]) && any(&["BLACKWELL"])) {
        return Some(&["blackwell_mma"]);
    }
    if any(&["A100", "A800", "A10", "A10G", "A30", "A40", "A16", "A2", "A4000", "A4500", "A5000", "A5500", "A6000", "AMPERE"])
        || any(&["SM_80", "SM_86", "SM_87"])
        || geforce("30")
    {
        return Some(&["ampere_mma"]);
    }
    if any(&["T4", "TURING", "SM_75"]) || geforce("20") || any(&["QUADRO"]) && any(&["RTX"]) {
        return Some(&["turing_mma"]);
    }
    if any(&["V100", "V100S", "GV100", "VOLTA", "SM_70"]) {
        return Some(&["volta_mma"]);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_by_the_names_of_their_drivers() {
        for (device, model) in [
            ("NVIDIA H200", Some("hopper_wgmma")),
            ("NVIDIA H100 80GB HBM3", Some("hopper_wgmma")),
            ("NVIDIA GH200 480GB", Some("hopper_wgmma")),
            ("sm_90a", Some("hopper_wgmma")),
            ("NVIDIA L40S", Some("ada_mma")),
            ("NVIDIA L4", Some("ada_mma")),
            ("NVIDIA RTX 6000 Ada Generation", Some("ada_mma")),
            ("NVIDIA GeForce RTX 4090", Some("ada_mma")),
            ("NVIDIA GeForce RTX 3090", Some("ampere_mma")),
            ("NVIDIA A100-SXM4-40GB", Some("ampere_mma")),
            ("NVIDIA A10G", Some("ampere_mma")),
            ("NVIDIA RTX A6000", Some("ampere_mma")),
            ("Tesla T4", Some("turing_mma")),
            ("NVIDIA GeForce RTX 2080 Ti", Some("turing_mma")),
            ("Quadro RTX 5000", Some("turing_mma")),
            ("Tesla V100-SXM2-16GB", Some("volta_mma")),
            ("NVIDIA B200", Some("blackwell_tcgen05")),
            ("NVIDIA GeForce RTX 5090", Some("blackwell_mma")),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", Some("blackwell_mma")),
            ("Intel(R) Xeon(R) Platinum", None),
            ("AMD Instinct MI300X", None),
            ("", None),
        ] {
            assert_eq!(architecture(device).map(|a| a[0]), model, "{device}");
        }
    }

    #[test]
    fn chains_are_those_that_take_the_formats() {
        let of = |names: &[&'static str], f| chains(names, f, f);
        let (fp8, first) = of(&["hopper_wgmma", "hopper_mma"], Format::E4m3);
        assert_eq!(first, Some("hopper_wgmma"));
        // mma.sync reads f16 as wgmma does.
        assert_eq!(
            fp8[..3],
            [Chain::Unit("hopper_wgmma"), Chain::Unit("hopper_mma"), Chain::Widened("hopper_wgmma", Format::F16)]
        );
        let (fp8, first) = of(&["ampere_mma"], Format::E5m2);
        assert_eq!((fp8[0], first), (Chain::Widened("ampere_mma", Format::F16), None));
        let (f16, _) = of(&["volta_mma"], Format::F16);
        assert_eq!(f16, [&[Chain::Unit("volta_mma")][..], &F32].concat());
        assert_eq!(of(&["volta_mma"], Format::Bf16), (F32.to_vec(), None));
    }

    #[test]
    fn a_tensor_core_takes_both_operands_in_the_sixteen_bits_of_one() {
        let (f16, bf16, e4m3) = (Format::F16, Format::Bf16, Format::E4m3);
        assert_eq!([met(f16, e4m3), met(e4m3, bf16)], [(f16, f16), (bf16, bf16)]);
        assert_eq!([met(f16, bf16), met(e4m3, Format::E5m2)], [(f16, bf16), (e4m3, Format::E5m2)]);
        assert_eq!(met(f16, Format::F32), (f16, Format::F32));
    }

    #[test]
    fn promotions_are_shorter_than_k() {
        let of = |k: usize| promotions(&[128, 256, 512], k).into_iter().flatten().count();
        assert_eq!([of(128), of(129), of(256), of(257), of(513)], [0, 1, 1, 2, 3]);
        assert_eq!(promotions(&[128], 64), [None]);
    }
}
