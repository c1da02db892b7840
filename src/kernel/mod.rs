//! Who computes it: the kernel trait.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub(crate) mod exhaust;
#[cfg(feature = "cuda")]
pub mod vendor;

use crate::compare::{Accumulation, ErrorSize, Measured, OutFormat, ProductArithmetic};
use crate::input::Drawer;
use crate::job::{Accumulator, Job, Operands, Output, Part};
use crate::model::SumBound;
use crate::op::{Accelerator, Op};
use crate::stage::timed;
use crate::{Error, QTensor, Result, Tensor};
use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    Cpu,
    Cuda,
    Vendor,
    External,
}

/// What a backend's bits hang on beside its operands, by name: `kernels` (digest of their source), `compiler`, `driver`. What is not known
/// is left out.
pub(crate) fn made_of(backend: Backend) -> Vec<(&'static str, String)> {
    match backend {
        Backend::Cpu => vec![("kernels", crate::data::kernels().into()), ("compiler", crate::data::compiler().into())],
        #[cfg(feature = "cuda")]
        Backend::Cuda => {
            let compiler = cuda::nvrtc::version().ok().map(|v| ("compiler", format!("NVRTC {v}")));
            [("kernels", cuda::source::digest())].into_iter().chain(compiler).chain(cuda::device::driver()).collect()
        }
        #[cfg(feature = "cuda")]
        Backend::Vendor => cuda::device::driver().into_iter().collect(),
        _ => Vec::new(),
    }
}

/// What a kernel is.
pub struct KernelSpec {
    /// `cpu/cast`, `cuda/fp8_gemm`, …
    pub name: &'static str,
    pub backend: Backend,
    pub ops: &'static [Op],
    pub help: &'static str,
    /// Where its numerics are written down.
    pub source: &'static str,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct KernelAnswer {
    pub output: Output,
    /// What the kernel's arithmetic must return, where that is known.
    pub model: Option<Output>,
    /// Where the model was computed apart from the kernel; `None`: everywhere.
    pub drawn: Option<cpu::drawn::Drawn>,
    /// How a product was accumulated.
    pub accumulator: Option<Accumulator>,
    /// See [`Kernel::algorithm`].
    pub algorithm: Option<String>,
    /// How large the errors are, where no bits decide.
    pub size: Option<ErrorSize>,
}

/// The device model of a product, whose sums [`crate::model`] has.
pub struct Modelled<'a> {
    /// What is multiplied.
    pub job: Cow<'a, Job>,
    /// `None`: as [`crate::model::gemm`] says.
    pub splits: Option<Splits>,
}

/// How a library cuts and joins the sums of a product.
pub struct Splits {
    /// The K of each split; their sums are added in f32, one after the other.
    pub of_k: Vec<Range<usize>>,
    /// How sums are scaled, as model_scaled of `kernels/model_wgmma.cu` numbers it.
    pub order: usize,
}

impl<'a> Modelled<'a> {
    /// As [`crate::model::gemm`] says.
    pub fn of(job: &'a Job) -> Self {
        Self { job: Cow::Borrowed(job), splits: None }
    }
}

/// What an output is held to, bit for bit.
pub struct Held {
    /// `None` where nothing is predictable.
    pub model: Option<Output>,
    /// The rows and columns that the model was computed for; `None`: all.
    pub drawn: Option<cpu::drawn::Drawn>,
}

/// A kernel: something that turns a job into bits.
pub trait Kernel: Sync {
    fn spec(&self) -> &KernelSpec;
    /// Whether it can run this job; [`Error::Unsupported`] with the reason if not.
    fn check(&self, job: &Job) -> Result<()>;
    /// Runs it.
    fn run(&self, job: &Job) -> Result<Output>;
    /// What its arithmetic must return, to the bit, computed by the obvious definition; `None` where it is not predictable
    /// (libm in activations and norms).
    fn predict(&self, job: &Job) -> Result<Option<Output>>;
    /// Where that is a device model of a product: of what, and how its sums are joined.
    fn modelled<'a>(&self, _job: &'a Job) -> Result<Option<Modelled<'a>>> {
        Ok(None)
    }
    /// What `output` is held to: its prediction, all of it or, where that takes too long, at some places.
    fn hold(&self, job: &Job, _output: &Output) -> Result<Held> {
        Ok(Held { model: self.predict(job)?, drawn: None })
    }
    /// Which of a library's algorithms runs this job; `None` where there is only one.
    fn algorithm(&self, _job: &Job) -> Result<Option<String>> {
        Ok(None)
    }
    /// Runs it and says by what it is to be judged: the job's accumulator and its own prediction, unless only its run can say.
    fn answer(&self, job: &Job) -> Result<KernelAnswer> {
        answered(job, &|| self.algorithm(job), &|| self.run(job), &|output| self.hold(job, output))
    }
    /// The words of the command line that choose it, where the backend's name does not.
    fn words(&self) -> Option<String> {
        None
    }
}

/// [`Kernel::answer`], compiled once and not for each kernel.
fn answered(
    job: &Job,
    algorithm: &dyn Fn() -> Result<Option<String>>,
    run: &dyn Fn() -> Result<Output>,
    hold: &dyn Fn(&Output) -> Result<Held>,
) -> Result<KernelAnswer> {
    let (algorithm, output) = (algorithm()?, timed("kernel", run)?);
    let Held { model, drawn } = timed("model", || hold(&output))?;
    Ok(KernelAnswer { output, model, drawn, accumulator: job.accumulator, algorithm, size: None })
}

/// The operands of a product of codes, whose references are too large to be moved about.
#[derive(Clone, Copy)]
pub struct LargeOperands<'a> {
    pub op: Op,
    /// Quantized; the bias.
    pub operands: &'a Operands,
    /// Unquantized a and b, where they are known.
    pub sources: Option<[&'a Tensor; 2]>,
}

/// Kinds of work on a case that kernels of the judge do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ahead {
    /// Synthetic values.
    Inputs,
    /// The f64 references of a product.
    References,
    /// The device model of a product.
    Model(Accumulator),
    /// The judgement of a cast by a recipe, of a product.
    Cast,
    Product,
}

/// The factors of a dense product: as they are, or the codes that stand for them.
#[derive(Clone, Copy)]
pub enum Factors<'a> {
    Values([&'a Tensor; 2]),
    Codes([&'a QTensor; 2]),
}

/// The sums of a dense product with its bias, and their magnitudes, to the bits of [`crate::op::define`]'s: of factors that nobody has to widen to
/// f64 first. Errors: factors that it does not take; no GPU; out of device memory; bits that are not the CPU's.
pub type Referrer = fn(Factors, Option<&Tensor>) -> Result<(Vec<f64>, Vec<f64>)>;

/// The f64 references of a product, where they lie.
pub struct LargeReferences {
    /// The largest finite magnitude of op(dequantize(q)).
    pub largest: f64,
    /// Who made them knows what this is.
    pub there: Box<dyn Any>,
}

/// The error of the sums of a large product.
pub enum LargeSums<'a> {
    /// From what is known of each row and column.
    Each(SumBound<'a>),
    /// Relative to Σ|ab|.
    Relative(Accumulation),
}

/// Such a product and what a kernel made of it.
pub struct LargeProduct<'a> {
    pub of: LargeOperands<'a>,
    pub model: &'a Modelled<'a>,
    /// What bounds it, without the bias.
    pub arithmetic: &'a ProductArithmetic<'a>,
    pub sums: &'a LargeSums<'a>,
    /// How it is stored, and what the kernel wrote.
    pub out: &'a OutFormat,
    pub actual: &'a Part,
    /// Rows and columns of a tile of the error's map.
    pub map: (usize, usize),
}

/// Judges large products where they lie.
#[derive(Clone, Copy)]
pub struct ProductJudge {
    pub references: fn(&LargeOperands) -> Result<LargeReferences>,
    /// Of a product that has the bits of its device model, by its references, which are made where there are none yet, and its bounds. `None`:
    /// something is wrong, or is to be judged on the CPU.
    pub judge: fn(&LargeProduct, Option<LargeReferences>) -> Result<Option<Measured>>,
}

/// A cast that has the codes and scales of its recipe's definition.
pub struct LargeCast<'a> {
    pub source: &'a Tensor,
    pub codes: &'a QTensor,
    /// Rows and columns of a tile of the error's map.
    pub map: (usize, usize),
}

/// Judges how large the errors of a cast are, where they lie. `None`: it is to be judged on the CPU.
pub type CastJudge = fn(&LargeCast) -> Result<Option<Measured>>;

/// Refuses a bias of a grouped product, which no kernel of ours adds.
pub(crate) fn without_bias(spec: &KernelSpec, job: &Job) -> Result<()> {
    match job.operands.bias {
        None => Ok(()),
        Some(_) => Err(Error::unsupported(spec.name, "it multiplies groups without bias")),
    }
}

/// The kernel that runs `job` on `backend`: the first that accepts it. Errors with every refusal when none does.
pub fn find(kernels: &[&'static dyn Kernel], job: &Job, backend: Backend) -> Result<&'static dyn Kernel> {
    let mut reasons = Vec::new();
    for kernel in kernels.iter().filter(|k| k.spec().backend == backend && k.spec().ops.contains(&job.op)) {
        match kernel.check(job) {
            Ok(()) => return Ok(*kernel),
            Err(Error::Unsupported { what, why }) if what == kernel.spec().name => reasons.push(format!("{what}: {why}")),
            Err(e) => reasons.push(format!("{}: {e}", kernel.spec().name)),
        }
    }
    let why = if reasons.is_empty() { format!("no kernel for {}", job.op.name()) } else { reasons.join("; ") };
    Err(Error::unsupported(format!("backend {}", backend.name()), why))
}

/// Has everything but the kernels themselves run on the CPU from now on: inputs, references, device models.
pub fn judge_on_cpu() {
    ON_CPU.store(true, Ordering::Relaxed);
}

/// Whether the GPU does the large work of judging its kernels, to the same bits.
pub fn judges_on_gpu() -> bool {
    !ON_CPU.load(Ordering::Relaxed)
}

/// What computes large f64 products on the GPU of this machine, which is opened for it; `None` where there is none.
pub fn of_this_machine() -> Option<Accelerator> {
    #[cfg(feature = "cuda")]
    if judges_on_gpu() && cuda::launch::gpu().is_ok() {
        return Backend::Cuda.accelerator();
    }
    None
}

/// Device memory of another process.
pub struct Elsewhere {
    /// What `cuIpcGetMemHandle` says of its allocation, and where it begins in that.
    pub handle: [u8; 64],
    pub offset: u64,
    /// The id of its GPU.
    pub gpu: [u8; 16],
}

/// Fills `into` from it. Errors: there is no GPU here, or another one; the driver's.
pub fn read_elsewhere(from: &Elsewhere, into: &mut [u8]) -> Result<()> {
    #[cfg(feature = "cuda")]
    return cuda::ipc::read(cuda::launch::gpu()?, from, into);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (from, into);
        Err(Error::unsupported("memory of a GPU", "this program was built without feature `cuda`"))
    }
}

static ON_CPU: AtomicBool = AtomicBool::new(false);

impl Backend {
    pub const ALL: [Backend; 4] = [Backend::Cpu, Backend::Cuda, Backend::Vendor, Backend::External];

    /// What computes the large products of the references beside kernels of this backend.
    pub fn accelerator(self) -> Option<Accelerator> {
        match self {
            _ if !judges_on_gpu() => None,
            #[cfg(feature = "cuda")]
            Backend::Cuda | Backend::Vendor | Backend::External => Some(cuda::gemm_f64::product),
            _ => None,
        }
    }
    /// Has what judging cases of these kinds launches made ready, beside what is done meanwhile.
    pub fn begin(self, what: &[Ahead]) {
        #[cfg(feature = "cuda")]
        if judges_on_gpu() && matches!(self, Backend::Cuda | Backend::Vendor) {
            cuda::ahead::begin(what);
        }
        #[cfg(not(feature = "cuda"))]
        let _ = what;
    }
    /// What computes the references of large dense products for kernels of this backend.
    pub fn referrer(self) -> Option<Referrer> {
        match self {
            _ if !judges_on_gpu() => None,
            #[cfg(feature = "cuda")]
            Backend::Cuda | Backend::Vendor | Backend::External => Some(cuda::judge::references::dense_product),
            _ => None,
        }
    }
    /// What judges large products of this backend.
    pub fn product_judge(self) -> Option<ProductJudge> {
        match self {
            _ if !judges_on_gpu() => None,
            #[cfg(feature = "cuda")]
            Backend::Cuda | Backend::Vendor => Some(cuda::judge::product::JUDGE),
            _ => None,
        }
    }
    /// What judges large casts of this backend.
    pub fn cast_judge(self) -> Option<CastJudge> {
        match self {
            _ if !judges_on_gpu() => None,
            #[cfg(feature = "cuda")]
            Backend::Cuda => Some(cuda::judge::cast::cast),
            _ => None,
        }
    }
    /// What makes large synthetic inputs for kernels of this backend.
    pub fn drawer(self) -> Option<Drawer> {
        match self {
            _ if !judges_on_gpu() => None,
            #[cfg(feature = "cuda")]
            Backend::Cuda | Backend::Vendor | Backend::External => Some(cuda::inputs::draw),
            _ => None,
        }
    }
    pub fn name(self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            Backend::Cuda => "cuda",
            Backend::Vendor => "vendor",
            Backend::External => "external",
        }
    }
}

impl std::str::FromStr for Backend {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let found = Backend::ALL.into_iter().find(|b| b.name() == s);
        found.ok_or_else(|| Error::unknown("backend", s, Backend::ALL.map(Backend::name)))
    }
}
