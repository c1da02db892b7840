//! Copies between host and device through page-locked memory: the driver copies one piece while threads of their own fill or empty another, several
//! times as fast as it copies memory that may be paged.
//!
//! Nothing here waits for a kernel, nor for the loops of other cases: each copy has a lane, lanes have streams that the default stream does not
//! wait for, and what fills pieces is not the pool that computes. A copy has ended when its call returns, and begins when what it reads is there:
//! fills and launches are waited for, too.

use cudarc::driver::sys::CUstream;
use cudarc::driver::{DriverError, result};
use rayon::prelude::*;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// Bytes of each of a lane's two pieces; copies of fewer than `SMALL` go the plain way.
const PIECE: usize = 8 << 20;
const SMALL: usize = 1 << 20;
/// Copies at a time, and threads that fill or empty pieces.
const LANES: usize = 4;
const THREADS: usize = 8;
/// Bytes that one of them takes at a time.
const BAND: usize = 256 << 10;

/// The lanes that were made, each at the first copy that found none free.
#[derive(Default)]
pub struct Staging {
    lanes: Mutex<Lanes>,
    freed: Condvar,
}

#[derive(Default)]
struct Lanes {
    free: Vec<[Piece; 2]>,
    made: usize,
}

struct Piece {
    memory: usize,
    stream: usize,
}

/// A stream that waits for no other, nor others for it.
fn stream() -> Result<usize, DriverError> {
    Ok(result::stream::create(result::stream::StreamKind::NonBlocking)? as usize)
}

impl Piece {
    fn new() -> Result<Self, DriverError> {
        // SAFETY: plain allocation; it lives as long as the process.
        let memory = unsafe { result::malloc_host(PIECE, 0) }? as usize;
        Ok(Self { memory, stream: stream()? })
    }
    /// Its first bytes.
    ///
    /// # Safety
    /// Nothing else touches them meanwhile.
    #[allow(clippy::mut_from_ref)] // The memory is the driver's.
    unsafe fn bytes(&self, count: usize) -> &mut [u8] {
        // SAFETY: the allocation is of PIECE bytes, count at most.
        unsafe { std::slice::from_raw_parts_mut(self.memory as *mut c_void as *mut u8, count) }
    }
    fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream was created with the piece.
        unsafe { result::stream::synchronize(self.stream as _) }
    }
}

/// `each` of so many of `to` and what they are made of, by threads that do nothing else; by this one where there are none.
fn each<T: Send>(to: &mut [T], from: &[u8], band: usize, each: impl Fn(&mut [T], &[u8]) + Sync) {
    static POOL: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
    let threads = || THREADS.min(rayon::current_num_threads());
    let pool = POOL.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(threads()).build().ok());
    match pool {
        Some(pool) if threads() > 1 => pool.install(|| {
            let bands = to.par_chunks_mut(band).zip(from.par_chunks(BAND));
            bands.for_each(|(to, from)| each(to, from));
        }),
        _ => each(to, from),
    }
}

fn copy(to: &mut [u8], from: &[u8]) {
    each(to, from, BAND, |to, from| to.copy_from_slice(from));
}

/// The bits of f32 from those of bf16.
fn widen(to: &mut [u32], from: &[u8]) {
    each(to, from, BAND / 2, |to, from| {
        to.iter_mut().zip(from.as_chunks::<2>().0).for_each(|(to, half)| *to = u32::from(u16::from_le_bytes(*half)) << 16);
    });
}

/// A stream of this thread, for what is short; the next thread gets it when this one ends.
struct Own(Cell<Option<usize>>);

static LEFT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl Drop for Own {
    fn drop(&mut self) {
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).extend(self.0.take());
    }
}

/// The stream of this thread, made at its first use. Errors: the driver's.
pub fn own_stream() -> Result<CUstream, DriverError> {
    thread_local! {
        static OWN: Own = const { Own(Cell::new(None)) };
    }
    OWN.with(|own| {
        let left = || LEFT.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let stream = own.0.get().or_else(left).map_or_else(stream, Ok)?;
        own.0.set(Some(stream));
        Ok(stream as CUstream)
    })
}

/// Starts something on the stream of this thread and waits for it. Errors: those of `start`; the driver's.
///
/// # Safety
/// The context is current, always the same one.
pub unsafe fn at_once(start: impl FnOnce(CUstream) -> Result<(), DriverError>) -> Result<(), DriverError> {
    let own = own_stream()?;
    // SAFETY: streams live as long as the process.
    start(own).and_then(|()| unsafe { result::stream::synchronize(own) })
}

impl Staging {
    /// `from` to the device.
    ///
    /// # Safety
    /// So many bytes are allocated there; the context is current; nothing that runs uses them.
    pub unsafe fn up(&self, to: u64, from: &[u8]) -> Result<(), DriverError> {
        if from.len() < SMALL {
            // SAFETY: this function's own condition.
            return unsafe { at_once(|stream| result::memcpy_htod_async(to, from, stream)) };
        }
        self.both(|pieces| {
            for (i, part) in from.chunks(PIECE).enumerate() {
                let piece = &pieces[i % 2];
                piece.wait()?;
                // SAFETY: the piece's stream is idle; the part has its place in the allocation.
                unsafe {
                    let bytes = piece.bytes(part.len());
                    copy(bytes, part);
                    result::memcpy_htod_async(to + (i * PIECE) as u64, bytes, piece.stream as _)?;
                }
            }
            Ok(())
        })
    }

    /// The device's bytes into `to`.
    ///
    /// # Safety
    /// As [`Staging::up`].
    pub unsafe fn down(&self, to: &mut [u8], from: u64) -> Result<(), DriverError> {
        if to.len() < SMALL {
            // SAFETY: this function's own condition.
            return unsafe { at_once(|stream| result::memcpy_dtoh_async(to, from, stream)) };
        }
        // SAFETY: this function's own condition.
        unsafe { self.parts(to, PIECE, from, copy) }
    }

    /// The device's bf16 numbers as the bits of f32 into `to`.
    ///
    /// # Safety
    /// As [`Staging::up`].
    pub unsafe fn down_halves(&self, to: &mut [u32], from: u64) -> Result<(), DriverError> {
        // SAFETY: this function's own condition.
        unsafe { self.parts(to, PIECE / 2, from, widen) }
    }

    /// What lies on the device in pieces, `room` elements of `to` each, of which `take` makes them.
    ///
    /// # Safety
    /// As [`Staging::up`].
    unsafe fn parts<T>(&self, to: &mut [T], room: usize, from: u64, take: impl Fn(&mut [T], &[u8])) -> Result<(), DriverError> {
        let each = PIECE / room;
        self.both(|pieces| {
            let parts: Vec<&mut [T]> = to.chunks_mut(room).collect();
            // SAFETY: a piece is filled when its stream is idle and its last part was taken out.
            let begin = |i: usize, count: usize| unsafe {
                result::memcpy_dtoh_async(pieces[i % 2].bytes(count), from + (i * PIECE) as u64, pieces[i % 2].stream as _)
            };
            let counts: Vec<usize> = parts.iter().map(|p| p.len() * each).collect();
            if let Some(count) = counts.first() {
                begin(0, *count)?;
            }
            for (i, part) in parts.into_iter().enumerate() {
                if let Some(count) = counts.get(i + 1) {
                    begin(i + 1, *count)?;
                }
                pieces[i % 2].wait()?;
                // SAFETY: the copy into this piece has ended.
                take(part, unsafe { pieces[i % 2].bytes(counts[i]) });
            }
            Ok(())
        })
    }

    /// `work` with a lane, whose copies have ended when it is given back.
    fn both(&self, work: impl FnOnce(&[Piece; 2]) -> Result<(), DriverError>) -> Result<(), DriverError> {
        let lane = self.lane()?;
        let done = work(&lane);
        let ended = lane.iter().map(Piece::wait).fold(done, |all, one| all.and(one));
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).free.push(lane);
        self.freed.notify_one();
        ended
    }

    /// A free lane, or a new one while there are few.
    fn lane(&self) -> Result<[Piece; 2], DriverError> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(lane) = lanes.free.pop() {
                return Ok(lane);
            }
            if lanes.made < LANES {
                lanes.made += 1;
                break;
            }
            lanes = self.freed.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
        drop(lanes);
        let made = Piece::new().and_then(|first| Ok([first, Piece::new()?]));
        if made.is_err() {
            self.lanes.lock().unwrap_or_else(PoisonError::into_inner).made -= 1;
            self.freed.notify_one();
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::widen;

    #[test]
    fn halves_are_widened_in_their_order() {
        let halves: Vec<u16> = (0..3 * super::BAND / 2 + 7).map(|i| (i * 40_503) as u16).collect();
        let bytes: Vec<u8> = halves.iter().flat_map(|h| h.to_le_bytes()).collect();
        let mut wide = vec![0u32; halves.len()];
        widen(&mut wide, &bytes);
        assert!(wide.iter().zip(&halves).all(|(w, h)| *w == u32::from(*h) << 16));
    }
}
