//! `qassay bench`: how fast the pieces are on this machine.

use super::run::Who;
use super::{print, status};
use anyhow::Result;
use std::path::PathBuf;

/// Time the GPU kernels beside a copy and cuBLASLt; or the codecs, the device models or the judge.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  qassay bench                          every GPU kernel, ours and cuBLASLt, into reports/bench-<n>/\n  \
qassay bench --filter 'fp8 gemm'      some of them\n  qassay bench codec                    no GPU needed\n  \
qassay bench judge                    what judging costs here\n  \
qassay bench --op gemm --recipe te_current --shape 4096x14336x4096 --against vendor"
)]
pub struct Args {
    /// What to time; the GPU's kernels unless given.
    what: Option<What>,
    /// Whose GPU kernels: cuda (ours), vendor (cuBLASLt); both by default. With `model`: cuda for the model of wgmma on the GPU.
    #[arg(long, value_enum, value_delimiter = ',')]
    backend: Vec<Who>,
    /// Time this product, of `--recipe` at `--shape`, instead of the fixed list.
    #[arg(long, value_name = "OP", value_parser = ["gemm"], requires = "shape")]
    op: Option<String>,
    /// How its operands are quantized: te_current, int8_token_sym+affine_sym:int4:g128, or none (bf16).
    #[arg(long, value_name = "RECIPE", default_value = "te_current", requires = "op")]
    recipe: String,
    /// M×N×K of the products, `4096x14336x4096`.
    #[arg(long, value_name = "SHAPE", value_delimiter = ',', value_parser = shape, requires = "op")]
    shape: Vec<[usize; 3]>,
    /// Also time this at `--shape`: `vendor` is cuBLASLt.
    #[arg(long, value_name = "WHO", value_parser = ["vendor"], requires = "op")]
    against: Option<String>,
    /// Only groups whose name contains this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Folder to write bench.csv, provenance.txt, roofline.svg, shares.svg and index.html into; reports/bench-<n> by default.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Bulk encode and decode of every format, one core.
    Codec,
    /// What judging costs on the CPU, by op: elements and products a second, bytes an element.
    Judge,
    /// Device models in bulk: on all cores, beside their definition; or on a GPU, beside what its tensor cores return.
    Model,
}

pub fn run(args: Args) -> Result<u8> {
    match args.what {
        Some(What::Judge) => {
            let rows = crate::sweep::bench::bench_judge(&args.filter, &|row| {
                eprintln!("{:<24} {:>16} {:>8.3} s", row.name, row.shape, row.judge() + row.kernel);
            })?;
            print(&crate::sweep::bench::table(&rows));
        }
        Some(What::Codec) => print(&crate::format::bench::table(&crate::format::bench::bench_codec()?)),
        #[cfg(feature = "cuda")]
        Some(What::Model) if args.backend.iter().any(|b| matches!(b, Who::Cuda)) => {
            print(&crate::bench::model_gpu::table(&crate::bench::model_gpu::bench_model()?))
        }
        Some(What::Model) => print(&crate::model::bench::table(&crate::model::bench::bench_model()?)),
        None => gpu(&args)?,
    }
    Ok(status::PASSED)
}

#[cfg(feature = "cuda")]
fn gpu(args: &Args) -> Result<()> {
    use crate::bench;
    use crate::kernel::Backend;
    let who = |w: &Who| match w {
        Who::Cpu => {
            anyhow::bail!("CPU kernels are not timed; `qassay bench codec` and `qassay bench model` time what runs on the CPU")
        }
        Who::Cuda => Ok(Backend::Cuda),
        Who::Vendor => Ok(Backend::Vendor),
    };
    let mut backends = args.backend.iter().map(who).collect::<Result<Vec<Backend>>>()?;
    if backends.is_empty() {
        backends = vec![Backend::Cuda, Backend::Vendor];
        // A bf16 product has no kernel of ours.
        if args.op.is_some() && args.against.is_none() && args.recipe != "none" {
            backends.pop();
        }
    }
    let products = args.op.as_ref().map(|_| bench::products(&args.recipe, &args.shape)).transpose()?;
    let entries = products.as_deref().unwrap_or(bench::ENTRIES);
    let gpu = crate::kernel::cuda::launch::gpu()?;
    let measured = bench::run(gpu, entries, &backends, &args.filter, &|row| {
        eprintln!("{:<60} {:<7} {:>10.2} µs", row.group, row.backend, row.time.median * 1e6);
    })?;
    let out = args.out.clone().unwrap_or_else(|| {
        let folder = |n| PathBuf::from("reports").join(format!("bench-{n}"));
        (1..).map(folder).find(|p| !p.exists()).expect("a free number exists")
    });
    let page = crate::report::bench::write(&out, &measured)?;
    print(&bench::terminal(&measured));
    print(&format!("report: {}\n", page.display()));
    Ok(())
}

/// `4096x14336x4096`.
fn shape(s: &str) -> Result<[usize; 3], String> {
    let sizes: Option<Vec<usize>> = s.split('x').map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
    sizes.and_then(|s| s.try_into().ok()).ok_or_else(|| "expected M×N×K such as 4096x14336x4096".into())
}

#[cfg(not(feature = "cuda"))]
fn gpu(_args: &Args) -> Result<()> {
    anyhow::bail!("this program was built without the feature cuda; `qassay bench codec` and `qassay bench model` need no GPU")
}
