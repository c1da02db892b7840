//! Copies between host and device through page-locked memory: the driver copies one piece while all cores fill or empty another, several
//! times as fast as it copies memory that may be paged.

use crate::parallel;
use cudarc::driver::{DriverError, result};
use rayon::prelude::*;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// Bytes of each of the two pieces; copies of fewer go the plain way.
const PIECE: usize = 16 << 20;
const SMALL: usize = 1 << 20;

/// Both pieces and their streams, made at the first large copy. A copy waits for what the default stream began before, and that for it.
#[derive(Default)]
pub struct Staging(Mutex<Option<[Piece; 2]>>);

struct Piece {
    memory: usize,
    stream: usize,
}

impl Piece {
    fn new() -> Result<Self, DriverError> {
        // SAFETY: plain allocation; it lives as long as the process.
        let memory = unsafe { result::malloc_host(PIECE, 0) }? as usize;
        Ok(Self { memory, stream: result::stream::create(result::stream::StreamKind::Default)? as usize })
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

/// On all cores.
fn copy(to: &mut [u8], from: &[u8]) {
    let bands = to.par_chunks_mut(parallel::BAND * 8).zip(from.par_chunks(parallel::BAND * 8));
    bands.for_each(|(to, from)| to.copy_from_slice(from));
}

impl Staging {
    /// `from` to the device.
    ///
    /// # Safety
    /// So many bytes are allocated there; the context is current; nothing that runs uses them.
    pub unsafe fn up(&self, to: u64, from: &[u8]) -> Result<(), DriverError> {
        if from.len() < SMALL {
            // SAFETY: this function's own condition.
            return unsafe { result::memcpy_htod_sync(to, from) };
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
            pieces.iter().try_for_each(Piece::wait)
        })
    }

    /// The device's bytes into `to`.
    ///
    /// # Safety
    /// As [`Staging::up`].
    pub unsafe fn down(&self, to: &mut [u8], from: u64) -> Result<(), DriverError> {
        if to.len() < SMALL {
            // SAFETY: this function's own condition.
            return unsafe { result::memcpy_dtoh_sync(to, from) };
        }
        self.both(|pieces| {
            let parts: Vec<&mut [u8]> = to.chunks_mut(PIECE).collect();
            // SAFETY: a piece is filled when its stream is idle and its last part was taken out.
            let begin = |i: usize, count: usize| unsafe {
                result::memcpy_dtoh_async(pieces[i % 2].bytes(count), from + (i * PIECE) as u64, pieces[i % 2].stream as _)
            };
            let counts: Vec<usize> = parts.iter().map(|p| p.len()).collect();
            begin(0, counts[0])?;
            for (i, part) in parts.into_iter().enumerate() {
                if let Some(count) = counts.get(i + 1) {
                    begin(i + 1, *count)?;
                }
                pieces[i % 2].wait()?;
                // SAFETY: the copy into this piece has ended.
                copy(part, unsafe { pieces[i % 2].bytes(counts[i]) });
            }
            Ok(())
        })
    }

    fn both(&self, work: impl FnOnce(&[Piece; 2]) -> Result<(), DriverError>) -> Result<(), DriverError> {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.is_none() {
            *pieces = Some([Piece::new()?, Piece::new()?]);
        }
        pieces.as_ref().map_or(Ok(()), work)
    }
}
