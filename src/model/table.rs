//! The table of device models: which block step each tensor-core instruction takes, by operand format.
//!
//! Parameters: W products a step, F fraction bits kept below the largest exponent, and the rounding of the result
//! ([`super::mma`] has the algorithm). Checked on hardware where `evidence` says so: Khattak and Mikaitis, "Accurate Models of
//! NVIDIA Tensor Cores" (arXiv 2512.07004) with their 5000 published vectors a row ("vectors"); an H200 run of 1.1 million
//! outputs an instruction ("H200"); Microsoft's MMA-Sim (arXiv 2511.10909).

use super::mma::{Dest, Step};
use crate::{Error, Format, Result};

/// How an instruction accumulates products of one pair of formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The block step, chained over consecutive k.
    Step(Step),
    /// fp8 `mma.sync` that ptxas lowers to f16 instructions ([`super::lowered`]), with this step for the halves.
    Lowered(Step),
}

/// One instruction of one architecture.
#[derive(Debug)]
pub struct DeviceModel {
    /// As sweeps, bundles and reports spell it; `_f16` ends the names of the f16 accumulators.
    pub name: &'static str,
    pub help: &'static str,
    pub evidence: &'static str,
    /// The first row whose formats hold both operands applies.
    rows: &'static [(&'static [Format], Unit)],
}

const FP8: &[Format] = &[Format::E4m3, Format::E5m2];
const NARROW: &[Format] = &[Format::E4m3, Format::E5m2, Format::E2m3, Format::E3m2, Format::E2m1];
const HALF: &[Format] = &[Format::F16];
const BHALF: &[Format] = &[Format::Bf16];
const TF32: &[Format] = &[Format::Tf32];

/// What the instructions of one generation of tensor cores share.
struct Generation {
    f: u32,
    /// The smallest exponent that a quantum is taken from: with f32 results, and with f16 results. Hopper's was measured on an H200, the others are
    /// MMA-Sim 2.1.1's (`e_zero`).
    floors: (i32, i32),
}
const VOLTA: Generation = Generation { f: 23, floors: (-131, -19) };
const AMPERE: Generation = Generation { f: 24, floors: (-132, -20) };
const HOPPER: Generation = Generation { f: 25, floors: (-133, -21) };

impl Generation {
    const fn f32(self, w: usize) -> Unit {
        Unit::Step(Step { w, f: self.f, dest: Dest::F32 { fraction: 23 }, floor: self.floors.0 })
    }
    const fn f16(self, w: usize) -> Unit {
        Unit::Step(Step { w, f: self.f, dest: Dest::F16, floor: self.floors.1 })
    }
    /// FP8 instructions that keep 13 bits.
    const fn short(self, w: usize) -> Unit {
        Unit::Step(Step { w, f: 13, dest: Dest::F32 { fraction: 13 }, floor: self.floors.0 })
    }
    const fn short_f16(self, w: usize) -> Unit {
        Unit::Step(Step { w, f: 13, dest: Dest::F16, floor: self.floors.1 })
    }
    /// FP8 in halves of 16 products, read as f16.
    const fn lowered(self, dest: Dest) -> Unit {
        let floor = if let Dest::F16 = dest { self.floors.1 } else { self.floors.0 };
        Unit::Lowered(Step { w: 16, f: self.f, dest, floor })
    }
}

/// Whether an instruction of this model takes e8m0 scales (`mxf8f6f4`): their exponents are added to those of the products before a step looks for
/// the largest. For other data its step is the same (MMA-Sim, arXiv 2511.10909).
pub fn takes_scales(name: &str) -> bool {
    name.starts_with("blackwell")
}

/// Every device model.
pub const MODELS: &[DeviceModel] = &[
    DeviceModel {
        name: "volta_mma",
        help: "V100 mma m8n8k4, f32 accumulator",
        evidence: "vectors; MMA-Sim; Fasi et al. 2021",
        rows: &[(HALF, VOLTA.f32(4))],
    },
    DeviceModel {
        name: "volta_mma_f16",
        help: "V100 mma m8n8k4, f16 accumulator",
        evidence: "vectors; MMA-Sim",
        rows: &[(HALF, VOLTA.f16(4))],
    },
    DeviceModel {
        name: "turing_mma",
        help: "T4 mma m16n8k8, f32 accumulator",
        evidence: "MMA-Sim",
        rows: &[(HALF, AMPERE.f32(8))],
    },
    DeviceModel {
        name: "turing_mma_f16",
        help: "T4 mma m16n8k8, f16 accumulator",
        evidence: "MMA-Sim",
        rows: &[(HALF, AMPERE.f16(8))],
    },
    DeviceModel {
        name: "ampere_mma",
        help: "A100 mma.sync (k16 is two steps), f32 accumulator",
        evidence: "vectors; MMA-Sim",
        rows: &[(HALF, AMPERE.f32(8)), (BHALF, AMPERE.f32(8)), (TF32, AMPERE.f32(4))],
    },
    DeviceModel {
        name: "ampere_mma_f16",
        help: "A100 mma.sync, f16 accumulator",
        evidence: "vectors; MMA-Sim",
        rows: &[(HALF, AMPERE.f16(8))],
    },
    DeviceModel {
        name: "ada_mma",
        help: "Ada mma.sync (fp8: QMMA m16n8k32 as two halves), f32 accumulator",
        evidence: "vectors",
        rows: &[(FP8, AMPERE.short(16)), (HALF, AMPERE.f32(8)), (BHALF, AMPERE.f32(8)), (TF32, AMPERE.f32(4))],
    },
    DeviceModel {
        name: "ada_mma_f16",
        help: "Ada mma.sync, f16 accumulator",
        evidence: "vectors",
        rows: &[(FP8, AMPERE.short_f16(16)), (HALF, AMPERE.f16(8))],
    },
    DeviceModel {
        name: "hopper_wgmma",
        help: "Hopper wgmma (fp8: QGMMA m64nNk32), f32 accumulator",
        evidence: "H200",
        rows: &[(FP8, HOPPER.short(32)), (HALF, HOPPER.f32(16)), (BHALF, HOPPER.f32(16)), (TF32, HOPPER.f32(8))],
    },
    DeviceModel {
        name: "hopper_wgmma_f16",
        help: "Hopper wgmma, f16 accumulator",
        evidence: "H200",
        rows: &[(FP8, HOPPER.short_f16(32)), (HALF, HOPPER.f16(16))],
    },
    DeviceModel {
        name: "hopper_mma",
        help: "Hopper mma.sync (fp8 m16n8k32 is lowered to f16), f32 accumulator; sm_100 lowers fp8 the same way",
        evidence: "H200; SASS",
        rows: &[
            (FP8, HOPPER.lowered(Dest::F32 { fraction: 23 })),
            (HALF, HOPPER.f32(16)),
            (BHALF, HOPPER.f32(16)),
            (TF32, HOPPER.f32(8)),
        ],
    },
    DeviceModel {
        name: "hopper_mma_f16",
        help: "Hopper mma.sync, f16 accumulator (fp8 differs on hardware where an intermediate overflows f16)",
        evidence: "H200; vectors",
        rows: &[(FP8, HOPPER.lowered(Dest::F16)), (HALF, HOPPER.f16(16))],
    },
    DeviceModel {
        name: "blackwell_tcgen05",
        help: "B200 tcgen05.mma without block scales, f32 accumulator",
        evidence: "MMA-Sim",
        rows: &[(NARROW, HOPPER.f32(32)), (HALF, HOPPER.f32(16)), (BHALF, HOPPER.f32(16)), (TF32, HOPPER.f32(8))],
    },
    DeviceModel {
        name: "blackwell_mma",
        help: "RTX Blackwell (sm_120) mma.sync: QMMA k32, HMMA k16, f32 accumulator",
        evidence: "MMA-Sim; native QMMA seen in SASS",
        rows: &[(NARROW, HOPPER.f32(32)), (HALF, HOPPER.f32(16)), (BHALF, HOPPER.f32(16)), (TF32, HOPPER.f32(8))],
    },
];

/// The model of a name. Errors with the known ones.
pub fn find(name: &str) -> Result<&'static DeviceModel> {
    let known = || MODELS.iter().map(|m| m.name);
    MODELS.iter().find(|m| m.name == name).ok_or_else(|| Error::unknown("device model", name, known()))
}

impl DeviceModel {
    /// What it does with products of `a` and `b`. Errors for formats the instruction does not take.
    pub fn unit(&self, a: Format, b: Format) -> Result<Unit> {
        let row = self.rows.iter().find(|(formats, _)| formats.contains(&a) && formats.contains(&b));
        row.map(|(_, unit)| *unit).ok_or_else(|| {
            let known: Vec<_> = self.rows.iter().flat_map(|(f, _)| f.iter().map(|f| f.name())).collect();
            Error::unsupported(self.name, format!("it has no {a} × {b} instruction; it takes {}", known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::mma::step;

    /// 2^-25 is half of f16's smallest number: a product beside it decides, where it is not below the quantum, 2^-42, 2^-44, 2^-46.
    #[test]
    fn the_quantum_of_each_generation_ends_at_its_floor() {
        let two = |e: i32| 2f32.powi(e);
        for (name, kept, lost) in [("volta_mma_f16", 42, 43), ("ampere_mma_f16", 44, 45), ("hopper_mma_f16", 46, 47)] {
            let Ok(Unit::Step(s)) = find(name).unwrap().unit(Format::F16, Format::F16) else { panic!("{name}") };
            let with = |e: i32| step(s, Format::F16, Format::F16, &[two(-12), two(-23)], &[two(-13), two(23 - e)], 0.0);
            assert_eq!((with(kept), with(lost)), (two(-24), 0.0), "{name}");
        }
    }
}
