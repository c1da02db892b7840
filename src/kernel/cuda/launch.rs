//! Launching: modules compiled once, arguments, and errors that name the kernel.

pub use super::buffers::Buffer;
use super::contract::Map;
use super::source::{CudaSource, SOURCES};
use super::staging::{Staging, own_stream};
use super::{device, nvrtc};
use crate::stage::traced;
use crate::{Error, Result};
use cudarc::driver::{CudaContext, DriverError, result, sys};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, OnceLock};

/// The GPU of this process, with the kernels it has loaded.
pub struct Gpu {
    context: Arc<CudaContext>,
    pub info: device::DeviceInfo,
    /// `CUfunction` by source, options and entry, and the dynamic shared memory that its launches may have. Functions live as long as the process.
    functions: Mutex<HashMap<String, (usize, u32)>>,
    /// One at a time of what runs on the default stream.
    turn: Mutex<()>,
    /// `CUstream` of what is enqueued: not the default one, which cannot be captured.
    stream: usize,
    pub(super) staging: Staging,
}

/// The GPU that [`gpu`] will open; without effect once it has. Workers see one GPU only and leave it at the first.
pub fn choose(ordinal: usize) {
    ORDINAL.store(ordinal, std::sync::atomic::Ordering::Relaxed);
}

/// The GPU that [`gpu`] opens.
pub fn chosen() -> usize {
    ORDINAL.load(std::sync::atomic::Ordering::Relaxed)
}

static ORDINAL: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// The chosen GPU, the first visible one (`CUDA_VISIBLE_DEVICES`) unless chosen, opened once. Errors: what is missing.
pub fn gpu() -> Result<&'static Gpu> {
    static GPU: OnceLock<std::result::Result<Gpu, String>> = OnceLock::new();
    let opened = GPU.get_or_init(|| {
        let open = || -> Result<Gpu> {
            let (context, info) = (device::open(chosen())?, device::info(chosen())?);
            context.bind_to_thread().map_err(|e| failed("cuCtxSetCurrent", e))?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
            let stream = stream.map_err(|e| failed("cuStreamCreate", e))? as usize;
            Ok(Gpu { context, info, functions: Mutex::default(), turn: Mutex::default(), stream, staging: Staging::default() })
        };
        traced("open", open).map_err(|e| match e {
            Error::Unsupported { what, why } if what == "this machine" => why,
            e => e.to_string(),
        })
    });
    opened.as_ref().map_err(|why| Error::unsupported("backend cuda", why.clone()))
}

/// An argument of a kernel.
pub enum Arg {
    Pointer(u64),
    Int(i32),
    Long(i64),
    Float(f32),
    Map(Map),
    /// A struct by value.
    Struct(Box<[u64]>),
}

/// A start of a kernel of `kernels/<source>`, made by [`super::contract::Contract::launch`].
pub struct Launch<'a> {
    pub source: &'static str,
    pub entry: &'static str,
    /// `-DNAME=VALUE`.
    pub defines: &'a [String],
    pub shape: LaunchShape,
    pub args: Vec<Arg>,
}

/// An error of the driver while doing `what`.
pub(super) fn failed(what: &str, e: DriverError) -> Error {
    let name = e.error_name().map_or_else(|_| format!("{:?}", e.0), |n| n.to_string_lossy().into_owned());
    Error::value(what, name, "CUDA_SUCCESS; a context does not recover from a fault inside a kernel")
}

/// Lets the next launch of `f` have so much dynamic shared memory: it is not the same in every launch.
fn allow(f: sys::CUfunction, shared: u32) -> std::result::Result<sys::CUfunction, DriverError> {
    let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: functions are never unloaded.
    unsafe { result::function::set_function_attribute(f, attribute, shared as i32) }.map(|()| f)
}

/// An entry of a module that [`Gpu::load`] loaded; lives as long as the process.
pub struct Function(usize);

/// Blocks, threads of a block, bytes of dynamic shared memory.
#[derive(Clone, Copy)]
pub struct LaunchShape {
    pub grid: (u32, u32, u32),
    pub block: (u32, u32, u32),
    pub shared: u32,
    /// Programmatically dependent on what was started before it: it may begin while that ends, and waits for it in itself
    /// (`griddepcontrol`, sm_90).
    pub dependent: bool,
}

impl LaunchShape {
    /// Blocks of `threads`, without dynamic shared memory.
    pub fn new(blocks: usize, threads: usize) -> Self {
        Self::of([blocks, 1], threads)
    }
    /// The same, `[x, y]` blocks.
    pub fn of([x, y]: [usize; 2], threads: usize) -> Self {
        Self { grid: (x as u32, y as u32, 1), block: (threads as u32, 1, 1), shared: 0, dependent: false }
    }
    /// With dynamic shared memory.
    pub fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes as u32, ..self }
    }
}

/// Starts a function and does not wait.
///
/// # Safety
/// The arguments must be those of the function: types, order, and buffers as large as it says. One that is [`dependent`](LaunchShape::dependent)
/// waits in itself for what was started before it, before it reads or writes what that does.
unsafe fn begin(what: &str, f: sys::CUfunction, shape: &LaunchShape, args: &mut [Arg], stream: sys::CUstream) -> Result<()> {
    let pointer = |arg: &mut Arg| -> *mut c_void {
        match arg {
            Arg::Pointer(p) => (p as *mut u64).cast(),
            Arg::Int(i) => (i as *mut i32).cast(),
            Arg::Long(i) => (i as *mut i64).cast(),
            Arg::Float(x) => (x as *mut f32).cast(),
            Arg::Map(map) => (&mut **map as *mut sys::CUtensorMap).cast(),
            Arg::Struct(words) => words.as_mut_ptr().cast(),
        }
    };
    let mut pointers: Vec<*mut c_void> = args.iter_mut().map(pointer).collect();
    if shape.dependent {
        let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let value = sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 };
        let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let config = sys::CUlaunchConfig {
            gridDimX: shape.grid.0,
            gridDimY: shape.grid.1,
            gridDimZ: shape.grid.2,
            blockDimX: shape.block.0,
            blockDimY: shape.block.1,
            blockDimZ: shape.block.2,
            sharedMemBytes: shape.shared,
            hStream: stream,
            attrs: &mut attribute,
            numAttrs: 1,
        };
        // SAFETY: as below; the driver reads the configuration during the call.
        return unsafe { sys::cuLaunchKernelEx(&config, f, pointers.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
            .map_err(|e| failed(what, e));
    }
    // SAFETY: the driver copies the arguments during the call; they are the function's by this one's own condition.
    unsafe { result::launch_kernel(f, shape.grid, shape.block, shape.shared, stream, &mut pointers) }
        .map_err(|e| failed(what, e))
}

impl Gpu {
    /// Makes the context current on this thread.
    pub(super) fn enter(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(|e| failed("cuCtxSetCurrent", e))
    }

    fn function(&self, launch: &Launch) -> Result<sys::CUfunction> {
        self.made(launch.source, launch.entry, launch.defines, launch.shape.shared)
    }

    /// Compiles and loads what will be launched. Errors: it does not compile; the driver's.
    pub fn prepare(&self, source: &'static str, entry: &'static str, defines: &[String]) -> Result<()> {
        self.enter()?;
        self.made(source, entry, defines, 0).map(drop)
    }

    /// Compiled and loaded at its first use, several at a time; two threads that need the same one at once both make it.
    fn made(&self, source: &str, entry: &str, defines: &[String], shared: u32) -> Result<sys::CUfunction> {
        let key = format!("{source} {} {entry}", defines.join(" "));
        let functions = || self.functions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Raised, never lowered: another thread may be about to launch it with more.
        let ready = |made: Option<usize>| -> Result<Option<sys::CUfunction>> {
            let mut functions = functions();
            if let Some(f) = made {
                functions.entry(key.clone()).or_insert((f, 0));
            }
            let Some((f, allowed)) = functions.get_mut(&key) else { return Ok(None) };
            let f = *f as sys::CUfunction;
            if shared > *allowed {
                allow(f, shared).map_err(|e| failed(&key, e))?;
                *allowed = shared;
            }
            Ok(Some(f))
        };
        if let Some(f) = ready(None)? {
            return Ok(f);
        }
        let known = || SOURCES.iter().map(|s| s.name);
        let found: &CudaSource =
            SOURCES.iter().find(|s| s.name == source).ok_or_else(|| Error::unknown("CUDA source", source, known()))?;
        found.knows(defines)?;
        let compile = || nvrtc::compile(found, Some(entry), &self.info.arch(), defines);
        let cubin = traced(&format!("compile {entry} of kernels/{source}"), compile)?.cubin;
        let f = traced("load", || self.load(&key, &cubin, entry))?.0;
        Ok(ready(Some(f))?.expect("made just now"))
    }

    /// An entry of a whole cubin. Errors, as `what`'s: it was made for another device, it has no such entry.
    pub fn load(&self, what: &str, cubin: &[u8], entry: &str) -> Result<Function> {
        self.enter()?;
        let bad = || Error::value(what, "a NUL byte in the entry's name", "a name");
        let entry = CString::new(entry).map_err(|_| bad())?;
        // SAFETY: the image is a whole cubin, read during the call only; the module is never unloaded, so its functions stay valid.
        unsafe {
            let module = result::module::load_data(cubin.as_ptr().cast()).map_err(|e| failed(what, e))?;
            result::module::get_function(module, entry).map(|f| Function(f as usize)).map_err(|e| failed(what, e))
        }
    }

    /// Runs a loaded function and waits for it. Errors, as `what`'s: it cannot start (resources), or faults (illegal address, …).
    ///
    /// # Safety
    /// As [`Self::launch`].
    pub unsafe fn call(&self, what: &str, f: &Function, shape: &LaunchShape, args: &mut [Arg]) -> Result<()> {
        self.enter()?;
        let f = allow(f.0 as sys::CUfunction, shape.shared).map_err(|e| failed(what, e))?;
        // SAFETY: this function's own condition.
        self.exclusive(what, || unsafe { begin(what, f, shape, args, std::ptr::null_mut()) })
    }

    /// Runs a kernel on a stream of this thread and waits for it, while other threads' kernels run beside it. A fault ends the context for all of
    /// them, and each is told of it: a case that fails beside others is run again by itself. Errors: it does not compile, cannot start
    /// (resources), or faults (illegal address, …).
    ///
    /// # Safety
    /// Buffers must be as large as the entry's contract says; an entry that is launched [`dependent`](LaunchShape::dependent) waits in itself.
    pub unsafe fn launch(&self, launch: Launch) -> Result<()> {
        self.enter()?;
        self.function(&launch)?;
        let what = format!("kernel {} of kernels/{}", launch.entry, launch.source);
        let stream = own_stream().map_err(|e| failed("cuStreamCreate", e))?;
        // SAFETY: this function's own condition; the stream is this thread's.
        traced(&what, || unsafe {
            self.start(launch, stream)?;
            result::stream::synchronize(stream).map_err(|e| failed(&what, e))
        })
    }

    /// Runs what `start` starts on the default stream and waits for it, no other call of this function meanwhile. Errors: `start`'s; a fault of
    /// what ran, reported as `what`'s.
    pub fn exclusive(&self, what: &str, start: impl FnOnce() -> Result<()>) -> Result<()> {
        let _turn = traced("turn", || self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.enter()?;
        // Copies of others run meanwhile: they are on streams of their own.
        // SAFETY: the default stream.
        traced(what, || {
            start().and_then(|()| unsafe { result::stream::synchronize(std::ptr::null_mut()) }.map_err(|e| failed(what, e)))
        })
    }

    /// Starts a kernel on [`Self::stream`] and does not wait: what [`super::timed`] times. Errors: it does not compile or cannot
    /// start; a fault shows at the next [`Self::synchronize`].
    ///
    /// # Safety
    /// As [`Self::launch`]; the buffers must live until the stream has come past the kernel.
    pub unsafe fn enqueue(&self, launch: Launch) -> Result<()> {
        // SAFETY: this function's own condition.
        unsafe { self.start(launch, self.stream()) }
    }

    /// Starts a copy of a whole buffer on [`Self::stream`]. Errors: lengths differ; the driver's.
    pub fn enqueue_copy(&self, to: &Buffer, from: &Buffer) -> Result<()> {
        if to.bytes() != from.bytes() {
            return Err(Error::value("bytes to copy", from.bytes(), to.bytes()));
        }
        self.enter()?;
        // SAFETY: both buffers have this length.
        unsafe { result::memcpy_dtod_async(to.pointer(), from.pointer(), to.bytes(), self.stream()) }
            .map_err(|e| failed("cuMemcpyDtoDAsync", e))
    }

    /// The highest clock of the multiprocessors, Hz. Errors: the driver's.
    pub fn clock(&self) -> Result<f64> {
        let khz = self.context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
        khz.map(|khz| f64::from(khz) * 1e3).map_err(|e| failed("cuDeviceGetAttribute", e))
    }

    /// The stream of [`Self::enqueue`]; it does not wait for the default stream, nor that for it.
    pub fn stream(&self) -> sys::CUstream {
        self.stream as sys::CUstream
    }

    /// Waits for everything started. Errors: a fault of what ran, reported as `what`'s.
    pub fn synchronize(&self, what: &str) -> Result<()> {
        self.enter()?;
        result::ctx::synchronize().map_err(|e| failed(what, e))
    }

    /// Starts a kernel on `stream` and does not wait.
    ///
    /// # Safety
    /// As [`Self::enqueue`]; the stream is alive.
    pub(crate) unsafe fn start(&self, mut launch: Launch, stream: sys::CUstream) -> Result<()> {
        self.enter()?;
        let f = self.function(&launch)?;
        let what = format!("start of kernel {} of kernels/{}", launch.entry, launch.source);
        // SAFETY: this function's own condition; types and order are the contract's, held to the source by its test.
        unsafe { begin(&what, f, &launch.shape, &mut launch.args, stream) }
    }
}

/// A tensor map of a row-major matrix of bytes for TMA: `rows` rows of `cols`, `pitch` bytes apart, read in boxes of 128 columns and
/// `box_rows` rows, swizzled by 128 bytes, zeros outside. Errors: a base or pitch that is no multiple of 16.
pub fn tensor_map(buffer: &Buffer, rows: usize, cols: usize, pitch: usize, box_rows: u32) -> Result<Map> {
    if !pitch.is_multiple_of(16) || pitch < cols {
        return Err(Error::value("row pitch", pitch, "a multiple of 16 bytes that holds a row: TMA's rule"));
    }
    let mut map = Box::new(sys::CUtensorMap { opaque: [0; 16] });
    // SAFETY: all arrays have the rank's length; the map is written during the call; the address is the buffer's.
    let status = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut *map,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            2,
            buffer.pointer() as *mut c_void,
            [cols as u64, rows as u64].as_ptr(),
            [pitch as u64].as_ptr(),
            [128, box_rows].as_ptr(),
            [1, 1].as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    status.result().map_err(|e| failed("cuTensorMapEncodeTiled", e))?;
    Ok(map)
}
