//! `qassay exhaust`: every cast on every pattern.

use super::run::Who;
use super::{print, status, table};
use crate::kernel::exhaust::{self, Line};
use crate::sweep::bar::doing;
use anyhow::Result;
use std::collections::BTreeMap;

/// Compare every cast with its definition, bit for bit: on all f16 and bf16 values, within 2 f32 ulp of each boundary between codes,
/// and on random data. Exit status 1 when a bit differs.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  qassay exhaust\n  qassay exhaust --backend cuda --elements 200000000")]
pub struct Args {
    /// Whose kernels run.
    #[arg(long, value_enum, default_value_t = Who::Cpu)]
    backend: Who,
    /// About how many random elements in total.
    #[arg(long, default_value_t = 10_000_000)]
    elements: usize,
    /// Print a line for each kernel, output, dtype and input, not only for each kernel and input.
    #[arg(long)]
    all: bool,
}

pub fn run(args: Args) -> Result<u8> {
    let (backend, kernels, device) = args.backend.choose()?;
    let show = |l: &Line| {
        let what = format!("{} {}, {} {}, {}", l.kernel, l.op.name(), l.out, l.dtype, l.input);
        format!("{what}: {} of {} elements differ\n", l.mismatches, l.elements)
    };
    print(&format!("{device}\n"));
    let bar = doing("running every cast".into());
    let lines = exhaust::run(kernels, backend, exhaust::OPS, args.elements, |line| {
        if args.all || line.mismatches > 0 {
            bar.beside(|| print(&show(line)));
        }
    })?;
    drop(bar);
    let mut sums: BTreeMap<_, [usize; 4]> = BTreeMap::new();
    for line in &lines {
        let key = (line.kernel, line.op.name(), line.dtype.to_string(), line.input);
        let sum = sums.entry(key).or_default();
        for (sum, n) in sum.iter_mut().zip([1, line.elements, line.compared, line.mismatches]) {
            *sum += n;
        }
    }
    let rows: Vec<Vec<String>> = sums
        .iter()
        .map(|((kernel, op, dtype, input), counts)| {
            let names = [kernel.to_string(), op.to_string(), dtype.clone(), input.to_string()];
            names.into_iter().chain(counts.iter().map(ToString::to_string)).collect()
        })
        .collect();
    let head = ["kernel", "op", "dtype", "input", "outputs", "elements", "compared", "mismatches"];
    let mut table = "\n".to_string() + &table::text(&head, &rows);
    let total = |f: fn(&Line) -> usize| lines.iter().map(f).sum::<usize>();
    let wrong = total(|l| l.mismatches);
    table += &format!("{} elements, {} results compared, {wrong} mismatches\n", total(|l| l.elements), total(|l| l.compared));
    print(&table);
    Ok(if wrong > 0 { status::FAILED } else { status::PASSED })
}
