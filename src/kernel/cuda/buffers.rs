//! Device buffers between guard bands: what is sent to them, and what comes back of them.

use super::launch::{Gpu, failed, gpu};
use super::pool;
use super::staging::at_once;
use crate::stage::traced;
use crate::{Error, Result, parallel};
use cudarc::driver::result;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes before and after every output that a kernel must leave alone.
const GUARD: usize = 1024;
const GUARD_BYTE: u8 = 0xa5;
/// Bytes of a buffer that come back with the bands around them.
const TOGETHER: usize = 1 << 16;
/// What outputs hold before: NaN in every float format. No kernel writes a NaN with all bits set (hardware gives 7f…).
const POISON: u8 = 0xff;

/// Guard bands of buffers that are used again are not written again from now on: threads of one context wait for each other in every call of the
/// driver. A kernel's stray write may then be told of a later buffer: for a process whose cases are run again by themselves unless they pass.
pub fn leave_bands() {
    BANDS_STAY.store(true, Ordering::Relaxed);
}

static BANDS_STAY: AtomicBool = AtomicBool::new(false);

impl Gpu {
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
            let kept = kept && BANDS_STAY.load(Ordering::Relaxed);
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

// SAFETY: as above.
unsafe impl Plain for [u32; 256] {}

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
        let gpu = gpu().inspect(|gpu| drop(gpu.enter()));
        // A process that shares the GPU with others leaves them its memory.
        let memory = gpu.ok().filter(|_| BANDS_STAY.load(Ordering::Relaxed)).map_or(0, |gpu| gpu.info.memory);
        // SAFETY: the address is of so many bytes and comes back once.
        traced("free", || unsafe { pool::give_back(self.base, self.bytes + 2 * GUARD, memory / 4) });
    }
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
