//! Device memory that was freed, kept for the next buffer of its size: the driver takes longer to map memory than a small kernel runs, and the
//! cases of a table need the same sizes again and again.

use cudarc::driver::{DriverError, result};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Larger ones go back to the driver, and all beyond so much together.
const LARGE: usize = 16 << 20;
const MOST: usize = 512 << 20;

/// Buffers by their size. A process has one GPU, so one pool.
#[derive(Default)]
struct Pool {
    bytes: usize,
    by_size: BTreeMap<usize, Vec<u64>>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { bytes: 0, by_size: BTreeMap::new() });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// One that was kept, of exactly so many bytes.
    fn kept(&mut self, size: usize) -> Option<u64> {
        let base = self.by_size.get_mut(&size)?.pop()?;
        self.bytes -= size;
        Some(base)
    }

    /// Whether one of `size` bytes is kept instead of freed.
    fn keep(&mut self, size: usize, base: u64) -> bool {
        let fits = size <= LARGE && self.bytes + size <= MOST;
        if fits {
            self.by_size.entry(size).or_default().push(base);
            self.bytes += size;
        }
        fits
    }
}

/// `size` bytes of any content, and whether they are what another buffer of this size left. Errors: out of memory, also when all that was kept is
/// freed.
///
/// # Safety
/// The context is current.
pub unsafe fn take(size: usize) -> Result<(u64, bool), DriverError> {
    if let Some(base) = pool().kept(size) {
        return Ok((base, true));
    }
    // SAFETY: plain allocations; what is freed is used by nothing.
    let fresh = unsafe {
        result::malloc_sync(size).or_else(|_| {
            let all = std::mem::take(&mut *pool()).by_size;
            all.into_values().flatten().for_each(|base| {
                let _ = result::free_sync(base);
            });
            result::malloc_sync(size)
        })
    };
    fresh.map(|base| (base, false))
}

/// Gives back what [`take`] gave. What was started is done with it: launches, copies and fills are waited for, and who enqueues keeps its buffers
/// ([`super::launch::Gpu::enqueue`]).
///
/// # Safety
/// `base` is of `size` bytes and given back once; nothing uses it any more.
pub unsafe fn give_back(base: u64, size: usize) {
    if !pool().keep(size, base) {
        // SAFETY: this function's own condition.
        let _ = unsafe { result::free_sync(base) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_for_its_own_size_only() {
        let mut pool = Pool::default();
        assert!(pool.keep(4096, 77) && pool.kept(4095).is_none());
        assert_eq!((pool.kept(4096), pool.kept(4096)), (Some(77), None));
        assert!(!pool.keep(LARGE + 1, 78), "large");
        assert!((0..MOST / LARGE).all(|i| pool.keep(LARGE, i as u64)) && !pool.keep(1, 79), "no more than so much together");
        assert!((0..MOST / LARGE).all(|_| pool.kept(LARGE).is_some()) && pool.keep(1, 79) && pool.kept(1) == Some(79));
    }
}
