//! Launching: modules compiled once, device buffers with guard bands, arguments, and errors that name the kernel.

use super::contract::Map;
use super::source::{CudaSource, SOURCES};
use super::staging::{Staging, at_once, own_stream};
use super::{device, nvrtc, pool};
use crate::stage::traced;
use crate::{Error, Result, parallel};
use cudarc::driver::{CudaContext, DriverError, result, sys};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes before and after every output that a kernel must leave alone.
const GUARD: usize = 1024;
const GUARD_BYTE: u8 = 0xa5;
/// Bytes of a buffer that come back with the bands around them.
const TOGETHER: usize = 1 << 16;
/// What outputs hold before: NaN in every float format. No kernel writes a NaN with all bits set (hardware gives 7f…).
const POISON: u8 = 0xff;

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
    staging: Staging,
}

/// The GPU that [`gpu`] will open; without effect once it has. Workers see one GPU only and leave it at the first.
pub fn choose(ordinal: usize) {
    ORDINAL.store(ordinal, std::sync::atomic::Ordering::Relaxed);
}

/// Guard bands of buffers that are used again are not written again from now on: threads of one context wait for each other in every call of the
/// driver. A kernel's stray write may then be told of a later buffer: for a process whose cases are run again by themselves unless they pass.
pub fn leave_bands() {
    BANDS_STAY.store(true, std::sync::atomic::Ordering::Relaxed);
}

static BANDS_STAY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

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
}

impl LaunchShape {
    /// Blocks of `threads`, without dynamic shared memory.
    pub fn new(blocks: usize, threads: usize) -> Self {
        Self::of([blocks, 1], threads)
    }
    /// The same, `[x, y]` blocks.
    pub fn of([x, y]: [usize; 2], threads: usize) -> Self {
        Self { grid: (x as u32, y as u32, 1), block: (threads as u32, 1, 1), shared: 0 }
    }
    /// With dynamic shared memory.
    pub fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes as u32, ..self }
    }
}

/// Starts a function and does not wait.
///
/// # Safety
/// The arguments must be those of the function: types, order, and buffers as large as it says.
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
    // SAFETY: the driver copies the arguments during the call; they are the function's by this one's own condition.
    unsafe { result::launch_kernel(f, shape.grid, shape.block, shape.shared, stream, &mut pointers) }
        .map_err(|e| failed(what, e))
}

impl Gpu {
    /// Makes the context current on this thread.
    fn enter(&self) -> Result<()> {
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
    /// Buffers must be as large as the entry's contract says.
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
        if to.bytes != from.bytes {
            return Err(Error::value("bytes to copy", from.bytes, to.bytes));
        }
        self.enter()?;
        // SAFETY: both buffers have this length.
        unsafe { result::memcpy_dtod_async(to.pointer(), from.pointer(), to.bytes, self.stream()) }
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

    /// A buffer that holds `bytes`. Errors: out of memory.
    pub fn upload(&self, bytes: &[u8]) -> Result<Buffer> {
        let buffer = self.allocate(bytes.len(), None)?;
        if !bytes.is_empty() {
            // SAFETY: the allocation holds at least this many bytes.
            traced("upload", || unsafe { self.staging.up(buffer.pointer(), bytes) }).map_err(|e| failed("cuMemcpyHtoD", e))?;
        }
        Ok(buffer)
    }

    /// Numbers on the device, as they lie in memory.
    pub fn upload_all<T: Plain>(&self, values: &[T]) -> Result<Buffer> {
        // SAFETY: plain numbers have no padding, and every byte of them may be read.
        self.upload(unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) })
    }

    /// A buffer that holds what another does. Errors: out of memory; the driver's.
    pub fn copied(&self, from: &Buffer) -> Result<Buffer> {
        let buffer = self.allocate(from.bytes, None)?;
        // SAFETY: both hold so many bytes, and what wrote them has ended.
        let copy =
            || unsafe { at_once(|stream| result::memcpy_dtod_async(buffer.pointer(), from.pointer(), from.bytes, stream)) };
        traced("copy", copy).map_err(|e| failed("cuMemcpyDtoD", e)).map(|()| buffer)
    }

    /// f32 values on the device.
    pub fn upload_f32(&self, values: &[f32]) -> Result<Buffer> {
        self.upload_all(values)
    }

    /// i32 values on the device.
    pub fn upload_i32(&self, values: &[i32]) -> Result<Buffer> {
        self.upload_all(values)
    }

    /// A poisoned output of `bytes`.
    pub fn output(&self, bytes: usize) -> Result<Buffer> {
        self.filled(bytes, POISON)
    }

    /// An output of `bytes` that holds `fill` before: of two runs that differ in it, what differs was never written. For outputs of
    /// which every bit pattern is a result ([`Gpu::download_any`]).
    pub fn filled(&self, bytes: usize, fill: u8) -> Result<Buffer> {
        self.allocate(bytes, Some(fill))
    }

    /// `fill` all through, or whatever was there.
    fn allocate(&self, bytes: usize, fill: Option<u8>) -> Result<Buffer> {
        self.enter()?;
        // SAFETY: plain allocation; the fills stay inside it.
        unsafe {
            let what = format!("allocation of {bytes} bytes on {}", self.info.name);
            let (base, kept) = traced("allocate", || pool::take(bytes + 2 * GUARD)).map_err(|e| failed(&what, e))?;
            let buffer = Buffer { base, bytes };
            let fill = fill.filter(|_| bytes > 0);
            let kept = kept && BANDS_STAY.load(std::sync::atomic::Ordering::Relaxed);
            if kept && fill.is_none() {
                return Ok(buffer);
            }
            let filled = at_once(|stream| {
                if !kept {
                    result::memset_d8_async(base, GUARD_BYTE, GUARD, stream)?;
                    result::memset_d8_async(buffer.pointer() + bytes as u64, GUARD_BYTE, GUARD, stream)?;
                }
                match fill {
                    Some(fill) => result::memset_d8_async(buffer.pointer(), fill, bytes, stream),
                    None => Ok(()),
                }
            });
            filled.map_err(|e| failed("cuMemset", e)).map(|()| buffer)
        }
    }

    /// What a kernel wrote, elements of `size` bytes. Errors: an element was never written, or something beside the buffer was.
    pub fn download(&self, what: &str, buffer: &Buffer, size: usize) -> Result<Vec<u8>> {
        let inside: Vec<u8> = self.fetch(what, buffer)?;
        written(what, &inside, size)?;
        Ok(inside)
    }

    /// The same, as numbers.
    pub fn download_all<T: Plain>(&self, what: &str, buffer: &Buffer) -> Result<Vec<T>> {
        let inside: Vec<T> = self.fetch(what, buffer)?;
        let size = std::mem::size_of::<T>();
        // SAFETY: as in `upload_all`.
        let bytes = unsafe { std::slice::from_raw_parts(inside.as_ptr().cast(), inside.len() * size) };
        written(what, bytes, size)?;
        Ok(inside)
    }

    /// Numbers of which all bits set may be one. Errors: something beside the buffer was written.
    pub fn download_whole<T: Plain>(&self, what: &str, buffer: &Buffer) -> Result<Vec<T>> {
        self.fetch(what, buffer)
    }

    /// `count` numbers of a buffer from number `from` on. Errors: they are not there; the driver's.
    pub fn download_some<T: Plain>(&self, what: &str, buffer: &Buffer, from: usize, count: usize) -> Result<Vec<T>> {
        self.enter()?;
        let (size, all) = (std::mem::size_of::<T>(), buffer.bytes / std::mem::size_of::<T>());
        if from + count > all {
            return Err(Error::shape(what, format!("{count} numbers from {from} on"), format!("{all} in all")));
        }
        let mut some: Vec<T> = Vec::with_capacity(count);
        // SAFETY: the buffer holds them, the vector has room for them, and any bits are numbers.
        unsafe {
            if count > 0 {
                let room = std::slice::from_raw_parts_mut(some.as_mut_ptr().cast(), count * size);
                self.staging.down(room, buffer.pointer() + (from * size) as u64).map_err(|e| failed("cuMemcpyDtoH", e))?;
            }
            some.set_len(count);
        }
        Ok(some)
    }

    /// Device memory that is not a [`Buffer`], into `room`. Errors: the driver's.
    ///
    /// # Safety
    /// So many bytes are there, and nothing writes them meanwhile.
    pub unsafe fn download_from(&self, room: &mut [u8], from: u64) -> Result<()> {
        self.enter()?;
        // SAFETY: this function's own condition.
        unsafe { self.staging.down(room, from) }.map_err(|e| failed("cuMemcpyDtoH", e))
    }

    /// What a kernel wrote where all bits set is a result. Errors: something beside the buffer was written.
    pub fn download_any(&self, what: &str, buffer: &Buffer) -> Result<Vec<u8>> {
        self.fetch(what, buffer)
    }

    /// bf16 numbers as f32. Errors: something beside the buffer was written.
    pub fn download_halves(&self, what: &str, buffer: &Buffer) -> Result<Vec<f32>> {
        self.enter()?;
        let count = buffer.bytes / 2;
        let mut inside: Vec<f32> = Vec::with_capacity(count);
        let bands = self.bands(buffer)?;
        // SAFETY: the vector has room for as many as the buffer holds, and any bits are numbers.
        unsafe {
            let room = std::slice::from_raw_parts_mut(inside.as_mut_ptr().cast(), count);
            traced("download", || self.staging.down_halves(room, buffer.pointer())).map_err(|e| failed("cuMemcpyDtoH", e))?;
            inside.set_len(count);
        }
        unharmed(what, &bands)?;
        Ok(inside)
    }

    /// The guard bands of a buffer, one after the other.
    fn bands(&self, buffer: &Buffer) -> Result<[u8; 2 * GUARD]> {
        let mut bands = [0u8; 2 * GUARD];
        let (before, after) = bands.split_at_mut(GUARD);
        // SAFETY: the allocation has a band, the interior and a band.
        let copied = unsafe {
            at_once(|stream| {
                result::memcpy_dtoh_async(before, buffer.base, stream)?;
                result::memcpy_dtoh_async(after, buffer.pointer() + buffer.bytes as u64, stream)
            })
        };
        copied.map_err(|e| failed("cuMemcpyDtoH", e)).map(|()| bands)
    }

    /// What a buffer holds. Errors: a byte of its guard bands changed; a length that is no multiple of an element's.
    fn fetch<T: Plain>(&self, what: &str, buffer: &Buffer) -> Result<Vec<T>> {
        self.enter()?;
        let size = std::mem::size_of::<T>();
        if !buffer.bytes.is_multiple_of(size) {
            return Err(Error::shape(what, format!("{} bytes", buffer.bytes), format!("elements of {size} bytes")));
        }
        let mut inside: Vec<T> = Vec::with_capacity(buffer.bytes / size);
        if buffer.bytes <= TOGETHER {
            // With its bands, which lie beside it: one call for three.
            let mut all: Vec<u8> = Vec::with_capacity(buffer.bytes + 2 * GUARD);
            // SAFETY: the vectors have room for the allocation and for its interior, of which any bits are numbers.
            unsafe {
                let room = std::slice::from_raw_parts_mut(all.as_mut_ptr(), buffer.bytes + 2 * GUARD);
                let copy = || at_once(|stream| result::memcpy_dtoh_async(room, buffer.base, stream));
                traced("download", copy).map_err(|e| failed("cuMemcpyDtoH", e))?;
                all.set_len(buffer.bytes + 2 * GUARD);
                std::ptr::copy_nonoverlapping(all[GUARD..].as_ptr(), inside.as_mut_ptr().cast(), buffer.bytes);
                inside.set_len(buffer.bytes / size);
            }
            let mut bands = [0u8; 2 * GUARD];
            bands[..GUARD].copy_from_slice(&all[..GUARD]);
            bands[GUARD..].copy_from_slice(&all[GUARD + buffer.bytes..]);
            unharmed(what, &bands)?;
            return Ok(inside);
        }
        let bands = self.bands(buffer)?;
        // SAFETY: the vector has room for the interior, of which any bits are numbers.
        unsafe {
            if buffer.bytes > 0 {
                let room = std::slice::from_raw_parts_mut(inside.as_mut_ptr().cast(), buffer.bytes);
                traced("download", || self.staging.down(room, buffer.pointer())).map_err(|e| failed("cuMemcpyDtoH", e))?;
            }
            inside.set_len(buffer.bytes / size);
        }
        unharmed(what, &bands)?;
        Ok(inside)
    }
}

/// Numbers that are nothing but their bytes.
///
/// # Safety
/// No padding; any bits are a value.
pub unsafe trait Plain: Copy + Send + Sync {}
// SAFETY: numbers.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}

/// Both guard bands, one after the other. Errors: a byte of them changed.
fn unharmed(what: &str, bands: &[u8; 2 * GUARD]) -> Result<()> {
    let (before, after) = bands.split_at(GUARD);
    if let Some(i) = before.iter().rposition(|b| *b != GUARD_BYTE) {
        return Err(Error::value(what, format!("a write {} bytes before its start", GUARD - i), "writes inside only"));
    }
    if let Some(i) = after.iter().position(|b| *b != GUARD_BYTE) {
        return Err(Error::value(what, format!("a write {i} bytes past its end"), "writes inside only"));
    }
    Ok(())
}

/// Elements of `size` bytes. Errors: one is still poison.
fn written(what: &str, inside: &[u8], size: usize) -> Result<()> {
    let band = parallel::BAND / size.max(1) * size.max(1);
    let unwritten = |e: &[u8]| e.iter().all(|b| *b == POISON);
    let of_band = |(i, band_of): (usize, &[u8])| band_of.chunks(size).position(unwritten).map(|at| i * (band / size) + at);
    match inside.par_chunks(band).enumerate().find_map_first(of_band) {
        Some(i) => Err(Error::value(what, format!("element {i} was never written"), "every element written")),
        None => Ok(()),
    }
}

/// Device memory between guard bands, freed when dropped.
pub struct Buffer {
    base: u64,
    bytes: usize,
}

impl Buffer {
    /// Address of the first byte: a multiple of 256.
    pub fn pointer(&self) -> u64 {
        self.base + GUARD as u64
    }
    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // One that a tensor keeps may end on any thread.
        drop(gpu().map(Gpu::enter));
        // SAFETY: the address is of so many bytes and comes back once.
        traced("free", || unsafe { pool::give_back(self.base, self.bytes + 2 * GUARD) });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stray_and_missing_writes_are_seen() {
        assert!(written("d", &[1, 0xff, 3, 4], 2).is_ok());
        let missing = written("d", &[1, 2, 0xff, 0xff], 2).unwrap_err().to_string();
        assert!(missing.contains("element 1 was never written"), "{missing}");
        let mut large = vec![7u8; 3 * parallel::BAND];
        large[parallel::BAND + 5] = POISON;
        let missing = written("d", &large, 1).unwrap_err().to_string();
        assert!(missing.contains(&format!("element {} was never written", parallel::BAND + 5)), "{missing}");
        let bands = [GUARD_BYTE; 2 * GUARD];
        assert!(unharmed("d", &bands).is_ok());
        let mut stray = bands;
        stray[GUARD + 5] = 0;
        let past = unharmed("d", &stray).unwrap_err().to_string();
        assert!(past.contains("5 bytes past its end"), "{past}");
        let mut stray = bands;
        stray[GUARD - 3] = 0;
        let before = unharmed("d", &stray).unwrap_err().to_string();
        assert!(before.contains("3 bytes before its start"), "{before}");
    }
}
