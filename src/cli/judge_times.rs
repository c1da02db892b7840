//! What each judge of `qassay power` takes for one right result.

use crate::Result;
use crate::assay::evidence;
use crate::compare::Verdict;
use crate::compare::gates::GATES;
use crate::fault::power::Ground;
use crate::fault::tally::judges;
use crate::kernel::{self, Backend};
use crate::sweep::{Case, build};
use std::hint::black_box;
use std::time::Instant;

/// Cases that are timed, one after the other, so that none waits for another.
const CASES: usize = 16;
/// Times that each is repeated; the shortest counts.
const REPEATS: usize = 3;

/// The median over cases, in seconds, in the order of [`judges`]. It leaves out the f64 reference, which all of them need; the device
/// model's time has the model's own result. Errors: a kernel's.
pub fn medians(cases: &[&Case]) -> Result<Vec<f64>> {
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); judges().len()];
    for i in 0..CASES.min(cases.len()) {
        let ground = match build::ground(cases[i * cases.len() / CASES.min(cases.len())]) {
            Ok(ground) if ground.verdict == Verdict::Pass => ground,
            Ok(_) | Err(crate::Error::Unsupported { .. }) => continue,
            Err(e) => return Err(e),
        };
        all.iter_mut().zip(times(&ground)?).for_each(|(of, time)| of.push(time));
    }
    Ok(all.into_iter().map(median).collect())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}

fn times(ground: &Ground) -> Result<Vec<f64>> {
    let Ground { built, right, .. } = ground;
    let kernel = kernel::find(kernel::cpu::KERNELS, &built.job, Backend::Cpu)?;
    let judged = evidence::judge(built, Backend::Cpu, right, None)?;
    let mut all = vec![
        shortest(|| {
            let model = kernel.predict(&built.job)?;
            evidence::judge(built, Backend::Cpu, right, model.as_ref())
        })?,
        shortest(|| evidence::judge(built, Backend::Cpu, right, None))?,
    ];
    for gate in GATES {
        all.push(shortest(|| Ok(judged.iter().all(|j| (gate.passes)(j.bound.ideal(), &j.actual))))?);
    }
    Ok(all)
}

fn shortest<T>(mut f: impl FnMut() -> Result<T>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..REPEATS {
        let begun = Instant::now();
        black_box(f()?);
        least = least.min(begun.elapsed().as_secs_f64());
    }
    Ok(least)
}
