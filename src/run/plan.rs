//! What a command line selects, and what it will cost, before anything runs.

use super::shard::{self, Shard};
use crate::Result;
use crate::sweep::{Case, Sweep};

/// The words of a command line that select cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Names or paths of sweeps.
    pub sweeps: Vec<String>,
    /// Texts that must all occur in the case's name or in the name of its family.
    pub filter: Vec<String>,
    /// The one case of exactly this name.
    pub case: Option<String>,
    /// Added to every case's draw.
    pub seed: u64,
    /// The part of the cases that is run.
    pub shard: Option<Shard>,
}

impl Selection {
    /// The sweeps with the cases that are selected, in their order. Errors: those of [`Sweep::load`].
    pub fn load(&self) -> Result<Vec<Sweep>> {
        let mut sweeps = self.sweeps.iter().map(|s| Sweep::load(s, self.seed)).collect::<Result<Vec<_>>>()?;
        for sweep in &mut sweeps {
            sweep.cases.retain(|c| {
                let id = c.id();
                self.filter.iter().all(|f| id.contains(f.as_str()) || c.family.contains(f.as_str()))
                    && self.case.as_ref().is_none_or(|c| *c == id)
            });
        }
        if let Some(shard) = self.shard {
            let costs: Vec<f64> = sweeps.iter().flat_map(|s| &s.cases).map(seconds).collect();
            let mut parts = shard::split(&costs, shard.count).into_iter();
            for sweep in &mut sweeps {
                sweep.cases.retain(|_| parts.next() == Some(shard.index));
            }
        }
        Ok(sweeps)
    }
}

/// Seconds that a case takes one core, about: what shards are balanced by. A fixed cost, one for each element that is drawn,
/// quantized, compared and digested, and for products one for each multiply-add of the reference, the bound and the kernel: a
/// tensor core's block step is emulated, which costs more than a sum in f32 or int32.
pub fn seconds(case: &Case) -> f64 {
    let (m, n, k) = (case.total_rows() as f64, case.n as f64, case.k as f64);
    if case.skip.is_some() {
        return FIXED;
    }
    if !case.op.is_product() {
        return FIXED + m * n * PER_ELEMENT;
    }
    let plain = case.accumulator.is_none_or(|a| ["f32", "int32", "exact"].iter().any(|p| a.to_string().starts_with(p)));
    let operands = (m + case.rows.len().max(1) as f64 * n) * k;
    let each = if plain { PER_PLAIN_STEP } else { PER_BLOCK_STEP };
    FIXED + operands * PER_OPERAND + m * n * PER_RESULT + m * n * k * each
}

// Seconds; least squares of the logarithms over `standard` on one core of a server that others used too. `qassay plan
// --measured RUN` holds them against a run.
const FIXED: f64 = 1e-4;
const PER_ELEMENT: f64 = 9e-7;
const PER_OPERAND: f64 = 9e-8;
const PER_RESULT: f64 = 8e-7;
const PER_BLOCK_STEP: f64 = 4.4e-8;
const PER_PLAIN_STEP: f64 = 2.4e-9;

/// Bytes that a case holds at most, about: the operands in f32, f64 and codes, the results in f64 several times.
pub fn bytes(case: &Case) -> u64 {
    let (m, n, k) = (case.total_rows() as u64, case.n as u64, case.k.max(1) as u64);
    let experts = case.rows.len().max(1) as u64;
    if case.op.is_product() { 40 * (m * k + experts * n * k) + 120 * m * n.max(1) } else { 160 * m * n }
}
