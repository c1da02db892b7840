//! cuBLASLt: descriptors, the algorithm its heuristic chooses, the call.
//!
//! cuBLASLt's matrices are column-major: `D[m,n] = A[m,k]·B[n,k]ᵀ` row-major is its `Dᵀ = op(B)·A`, so its first operand is our B.

use crate::kernel::cuda::launch::{Buffer, Gpu, gpu};
use crate::{Error, Format, Result};
use cudarc::cublaslt::{result, sys};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};
use sys::cublasLtMatmulAlgoConfigAttributes_t as Config;
use sys::cublasLtMatmulDescAttributes_t as Desc;
use sys::cublasLtMatmulMatrixScale_t as Mode;
use sys::cudaDataType_t as Type;

/// Workspace offered to the library: what PyTorch offers on Hopper, 32 MiB.
const WORKSPACE: usize = 32 << 20;
/// Algorithms asked for when one with a given split is wanted.
const MANY: usize = 100;

/// How an operand's scales lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LtScales {
    /// f16, bf16, int8: none.
    None,
    Tensor,
    /// One a row of the operand.
    Row,
    /// One for 128 elements of a row, block by block, rows inside: `[K/128][rows to 4]`.
    Line,
    /// One for 128×128, `[rows/128][K/128 to 4]`.
    Square,
}

/// What the library writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Out {
    Float(Format),
    Int32,
}

/// A product, as far as the choice of the algorithm goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Formats of A and B.
    pub a: Format,
    pub b: Format,
    pub scales: (LtScales, LtScales),
    pub out: Out,
    /// FP8: sums stay in the tensor core's accumulator; without, they are added to f32 registers every so often.
    pub fast: bool,
    pub bias: Option<Format>,
    /// FP8 outputs: writes amax.
    pub amax: bool,
    /// Takes the first algorithm with this many splits of K; `None` the heuristic's first.
    pub split_k: Option<usize>,
}

/// Addresses on the device; 0 where there is none.
#[derive(Clone, Copy, Default)]
pub struct Pointers {
    pub a: u64,
    pub b: u64,
    pub d: u64,
    pub scale_a: u64,
    pub scale_b: u64,
    pub bias: u64,
    pub scale_d: u64,
    pub amax: u64,
}

/// What the heuristic chose, in the library's own numbers (`cublasLtMatmulAlgoConfigAttributes_t`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Algorithm {
    pub id: u32,
    pub tile: u32,
    pub stages: u32,
    pub split_k: u32,
    /// 0 none, 1 in place, 2 in the compute type, 4 in the output type.
    pub reduction: u32,
    pub swizzle: u32,
    pub custom: u32,
    pub inner: u32,
    pub cluster: u32,
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, tile, stages, split_k, reduction, swizzle, custom, inner, cluster } = self;
        write!(
            f,
            "id={id} tile={tile} stages={stages} split_k={split_k} reduction={reduction} swizzle={swizzle} custom={custom} \
             inner={inner} cluster={cluster}"
        )
    }
}

impl std::str::FromStr for Algorithm {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let bad = || Error::value("algorithm of cuBLASLt", s, Self::default());
        let mut a = Self::default();
        for word in s.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(bad)?;
            let field = match name {
                "id" => &mut a.id,
                "tile" => &mut a.tile,
                "stages" => &mut a.stages,
                "split_k" => &mut a.split_k,
                "reduction" => &mut a.reduction,
                "swizzle" => &mut a.swizzle,
                "custom" => &mut a.custom,
                "inner" => &mut a.inner,
                "cluster" => &mut a.cluster,
                _ => return Err(bad()),
            };
            *field = value.parse().map_err(|_| bad())?;
        }
        Ok(a)
    }
}

/// An algorithm that can be called.
#[derive(Clone)]
pub struct Chosen {
    pub algorithm: Algorithm,
    raw: sys::cublasLtMatmulAlgo_t,
}

/// The library, opened once.
pub struct Library {
    /// `cublasLtHandle_t`; lives as long as the process.
    handle: usize,
    /// `13.1.0` as 130100.
    pub version: usize,
    workspace: Buffer,
    chosen: Mutex<HashMap<Problem, Chosen>>,
}

fn failed(what: &str, e: result::CublasError) -> Error {
    Error::value(what, format!("{:?}", e.0), "CUBLAS_STATUS_SUCCESS")
}

/// Opens the library on the GPU of this process. Errors: what is missing.
pub fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    let opened = LIBRARY.get_or_init(|| {
        let open = || -> Result<Library> {
            let workspace = gpu()?.upload(&vec![0; WORKSPACE])?;
            // SAFETY: asks the dynamic loader; the calls below are made only when it is there.
            if !unsafe { sys::is_culib_present() } {
                let why = "there is no libcublasLt; install CUDA's cuBLAS, or name its folder in LD_LIBRARY_PATH";
                return Err(Error::unsupported("this machine", why));
            }
            let handle = result::create_handle().map_err(|e| failed("cublasLtCreate", e))? as usize;
            // SAFETY: takes nothing.
            let version = unsafe { sys::cublasLtGetVersion() };
            Ok(Library { handle, version, workspace, chosen: Mutex::default() })
        };
        open().map_err(|e| match e {
            Error::Unsupported { what, why } if what == "this machine" || what == "backend cuda" => why,
            e => e.to_string(),
        })
    });
    opened.as_ref().map_err(|why| Error::unsupported("backend vendor", why.clone()))
}

fn data_type(format: Format) -> Result<Type> {
    Ok(match format {
        Format::E4m3 => Type::CUDA_R_8F_E4M3,
        Format::E5m2 => Type::CUDA_R_8F_E5M2,
        Format::F16 => Type::CUDA_R_16F,
        Format::Bf16 => Type::CUDA_R_16BF,
        Format::F32 => Type::CUDA_R_32F,
        Format::Int8 => Type::CUDA_R_8I,
        other => return Err(Error::unsupported("cuBLASLt", format!("it has no {other} here"))),
    })
}

fn mode(scales: LtScales) -> Mode {
    match scales {
        LtScales::None | LtScales::Tensor => Mode::CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
        LtScales::Row => Mode::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
        LtScales::Line => Mode::CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
        LtScales::Square => Mode::CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
    }
}

/// Descriptors of one call, destroyed when dropped.
struct Descriptors {
    desc: sys::cublasLtMatmulDesc_t,
    /// Of the library's A (our B), B (our A), C, D.
    layouts: [sys::cublasLtMatrixLayout_t; 4],
    integer: bool,
}

impl Descriptors {
    fn new(p: &Problem, at: &Pointers) -> Result<Self> {
        let (integer, d) = match p.out {
            Out::Float(f) => (false, data_type(f)?),
            Out::Int32 => (true, Type::CUDA_R_32I),
        };
        let (compute, scale) = match integer {
            true => (sys::cublasComputeType_t::CUBLAS_COMPUTE_32I, Type::CUDA_R_32I),
            false => (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, Type::CUDA_R_32F),
        };
        let narrow_out = matches!(p.out, Out::Float(f) if f.is_fp8());
        let c = if narrow_out { Type::CUDA_R_16BF } else { d };
        let desc = result::create_matmul_desc(compute, scale).map_err(|e| failed("cublasLtMatmulDescCreate", e))?;
        let mut made = Self { desc, layouts: [std::ptr::null_mut(); 4], integer };
        let (m, n, k) = (p.m as u64, p.n as u64, p.k as u64);
        let shapes = [(data_type(p.b)?, k, n), (data_type(p.a)?, k, m), (c, n, m), (d, n, m)];
        for (layout, (kind, rows, cols)) in made.layouts.iter_mut().zip(shapes) {
            *layout = result::create_matrix_layout(kind, rows, cols, rows as i64)
                .map_err(|e| failed("cublasLtMatrixLayoutCreate", e))?;
        }
        made.set(Desc::CUBLASLT_MATMUL_DESC_TRANSA, &1i32)?;
        made.set(Desc::CUBLASLT_MATMUL_DESC_TRANSB, &0i32)?;
        if p.a.is_fp8() {
            made.set(Desc::CUBLASLT_MATMUL_DESC_FAST_ACCUM, &i8::from(p.fast))?;
            made.set(Desc::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &at.scale_b)?;
            made.set(Desc::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &at.scale_a)?;
            made.set(Desc::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &(mode(p.scales.1) as i32))?;
            made.set(Desc::CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &(mode(p.scales.0) as i32))?;
        }
        if narrow_out {
            made.set(Desc::CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, &at.scale_d)?;
        }
        if p.amax {
            made.set(Desc::CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, &at.amax)?;
        }
        if let Some(bias) = p.bias {
            made.set(Desc::CUBLASLT_MATMUL_DESC_EPILOGUE, &(sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as i32))?;
            made.set(Desc::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &(data_type(bias)? as i32))?;
            made.set(Desc::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at.bias)?;
        }
        Ok(made)
    }

    fn set<T>(&self, attribute: Desc, value: &T) -> Result<()> {
        // SAFETY: the descriptor is alive; the value has the attribute's size.
        unsafe { result::set_matmul_desc_attribute(self.desc, attribute, (value as *const T).cast(), size_of::<T>()) }
            .map_err(|e| failed(&format!("{attribute:?}"), e))
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once; a layout that was not made is null.
        unsafe {
            for layout in self.layouts.iter().filter(|l| !l.is_null()) {
                let _ = result::destroy_matrix_layout(*layout);
            }
            let _ = result::destroy_matmul_desc(self.desc);
        }
    }
}

impl Library {
    fn handle(&self) -> sys::cublasLtHandle_t {
        self.handle as sys::cublasLtHandle_t
    }

    /// The algorithm for a problem: the heuristic's first, or its first that has, or can be told to have, `split_k` splits. Errors: the library takes no such
    /// product, with its status.
    pub fn choose(&self, p: &Problem) -> Result<Chosen> {
        let lock = || self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chosen) = lock().get(p) {
            return Ok(chosen.clone());
        }
        // The heuristic asks whether there are pointers, not what is there.
        let some = self.workspace.pointer();
        let all = Pointers { a: some, b: some, d: some, scale_a: some, scale_b: some, bias: some, scale_d: some, amax: some };
        let of = Descriptors::new(p, &all)?;
        let refused = |status: String| {
            let what = format!("{}x{}x{} {}×{} {:?} to {:?}, fast {}", p.m, p.n, p.k, p.a, p.b, p.scales, p.out, p.fast);
            Err(Error::unsupported(
                "vendor/cublaslt",
                format!("cuBLASLt {} has no algorithm for {what}: {status}", self.version),
            ))
        };
        let found = match self.heuristics(&of, if p.split_k.is_some() { MANY } else { 1 }) {
            Ok(found) => found,
            Err(e) => return refused(format!("{:?}", e.0)),
        };
        let mut candidates = found.iter().map(|raw| Chosen { algorithm: describe(raw), raw: *raw });
        let chosen = match p.split_k {
            None => candidates.next(),
            Some(split) => candidates.find(|c| c.algorithm.split_k as usize == split).or_else(|| self.told(&of, &found, split)),
        };
        match chosen {
            Some(chosen) => {
                lock().insert(p.clone(), chosen.clone());
                Ok(chosen)
            }
            None => refused(p.split_k.map_or("none found".into(), |s| format!("none of {} splits K by {s}", found.len()))),
        }
    }

    /// The first of `found` that can be told to split K by `split`, partial sums in the compute type.
    fn told(&self, of: &Descriptors, found: &[sys::cublasLtMatmulAlgo_t], split: usize) -> Option<Chosen> {
        let (split, reduction) = (split as u32, sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32);
        let try_one = |raw: &sys::cublasLtMatmulAlgo_t| {
            let mut raw = *raw;
            let [a, b, c, d] = of.layouts;
            let set = |raw: &mut sys::cublasLtMatmulAlgo_t, attribute: Config, value: u32| {
                // SAFETY: the algorithm is whole; both attributes are 32 bits.
                unsafe { sys::cublasLtMatmulAlgoConfigSetAttribute(raw, attribute, (&raw const value).cast(), 4) }.result()
            };
            set(&mut raw, Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, split).ok()?;
            set(&mut raw, Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, if split > 1 { reduction } else { 0 }).ok()?;
            let mut checked = std::mem::MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed();
            // SAFETY: descriptors are alive; the result is plain numbers, zero before.
            let need = unsafe {
                sys::cublasLtMatmulAlgoCheck(self.handle(), of.desc, a, b, c, d, &raw, checked.as_mut_ptr()).result().ok()?;
                checked.assume_init().workspaceSize
            };
            (need <= WORKSPACE).then(|| Chosen { algorithm: describe(&raw), raw })
        };
        found.iter().find_map(try_one)
    }

    fn heuristics(
        &self,
        of: &Descriptors,
        count: usize,
    ) -> std::result::Result<Vec<sys::cublasLtMatmulAlgo_t>, result::CublasError> {
        let preference = result::create_matmul_pref()?;
        let mut found: Vec<sys::cublasLtMatmulHeuristicResult_t> = Vec::with_capacity(count);
        let mut returned = 0;
        // SAFETY: descriptors and preference are alive; the array holds `count`; the library fills the first `returned`.
        let status = unsafe {
            let bytes = WORKSPACE;
            let limit = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let set = result::set_matmul_pref_attribute(preference, limit, (&raw const bytes).cast(), size_of::<usize>());
            let [a, b, c, d] = of.layouts;
            let asked = set.and_then(|()| {
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.handle(),
                    of.desc,
                    a,
                    b,
                    c,
                    d,
                    preference,
                    count as i32,
                    found.as_mut_ptr(),
                    &mut returned,
                )
                .result()
            });
            if asked.is_ok() {
                found.set_len(returned as usize);
            }
            let _ = result::destroy_matmul_pref(preference);
            asked
        };
        status?;
        Ok(found.iter().filter(|f| f.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS).map(|f| f.algo).collect())
    }

    /// Starts the product on `stream`, without waiting. Errors: the library's status.
    ///
    /// # Safety
    /// The addresses hold matrices of the problem's shapes and formats, and live until the stream has come past the call.
    pub unsafe fn enqueue(&self, p: &Problem, chosen: &Chosen, at: &Pointers, stream: sys::cudaStream_t) -> Result<()> {
        let of = Descriptors::new(p, at)?;
        let (one, zero) = if of.integer { (1u32, 0u32) } else { (1f32.to_bits(), 0f32.to_bits()) };
        let [a, b, c, d] = of.layouts;
        // C is not read (beta is 0); where D is FP8 it has another type, so that it cannot be D.
        let in_c = if matches!(p.out, Out::Float(f) if f.is_fp8()) { 0 } else { at.d };
        // SAFETY: this function's own condition; alpha and beta are read during the call; the workspace is as large as the heuristic
        // was told.
        unsafe {
            result::matmul(
                self.handle(),
                of.desc,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                at.b as *const c_void,
                a,
                at.a as *const c_void,
                b,
                in_c as *const c_void,
                c,
                at.d as *mut c_void,
                d,
                &chosen.raw,
                self.workspace.pointer() as *mut c_void,
                WORKSPACE,
                stream,
            )
        }
        .map_err(|e| failed("cublasLtMatmul", e))
    }

    /// Runs the product and waits for it.
    ///
    /// # Safety
    /// As [`Self::enqueue`].
    pub unsafe fn run(&self, gpu: &Gpu, p: &Problem, chosen: &Chosen, at: &Pointers) -> Result<()> {
        // SAFETY: this function's own condition. The default stream comes after the uploads.
        gpu.exclusive("cublasLtMatmul", || unsafe { self.enqueue(p, chosen, at, std::ptr::null_mut()) })
    }
}

fn describe(raw: &sys::cublasLtMatmulAlgo_t) -> Algorithm {
    let get = |attribute: Config| {
        let (mut value, mut written) = (0u32, 0usize);
        // SAFETY: the algorithm is whole; every attribute here is at most 32 bits, the shorter ones fill the low bytes.
        unsafe {
            sys::cublasLtMatmulAlgoConfigGetAttribute(raw, attribute, (&raw mut value).cast(), size(attribute), &mut written);
        }
        value
    };
    Algorithm {
        id: get(Config::CUBLASLT_ALGO_CONFIG_ID),
        tile: get(Config::CUBLASLT_ALGO_CONFIG_TILE_ID),
        stages: get(Config::CUBLASLT_ALGO_CONFIG_STAGES_ID),
        split_k: get(Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
        reduction: get(Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
        swizzle: get(Config::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
        custom: get(Config::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
        inner: get(Config::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
        cluster: get(Config::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
    }
}

/// Bytes of an attribute, as `cublasLt.h` says.
fn size(attribute: Config) -> usize {
    match attribute {
        Config::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID | Config::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID => 2,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_read_back() {
        let a =
            Algorithm { id: 66, tile: 1, stages: 35, split_k: 4, reduction: 2, swizzle: 1, custom: 7, inner: 3, cluster: 9 };
        assert_eq!(a.to_string().parse::<Algorithm>().unwrap(), a);
        assert!("id=1 speed=3".parse::<Algorithm>().is_err());
        assert!("id=fast".parse::<Algorithm>().is_err());
    }
}
