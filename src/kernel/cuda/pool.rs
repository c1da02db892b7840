//! Device memory that was freed, kept for the next buffer of its size: the driver takes longer to map memory than a small kernel runs, waits for
//! all that runs before it unmaps any, and the cases of a table need the same sizes again and again.

use cudarc::driver::{DriverError, result};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Larger ones are kept where there is room for them; the others, so much together.
const LARGE: usize = 16 << 20;
const MOST: usize = 512 << 20;

/// Buffers by their size. A process has one GPU, so one pool.
#[derive(Default)]
struct Pool {
    /// Of small ones and of large ones.
    bytes: [usize; 2],
    by_size: BTreeMap<usize, Vec<u64>>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { bytes: [0; 2], by_size: BTreeMap::new() });

/// What is allocated for `size` bytes: large ones have eight sizes between a power of two and the next, so that they come back to others.
fn allocated(size: usize) -> usize {
    if size <= LARGE { size } else { size.next_multiple_of(size.next_power_of_two() / 16) }
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// One that was kept, of exactly so many bytes.
    fn kept(&mut self, size: usize) -> Option<u64> {
        let base = self.by_size.get_mut(&size)?.pop()?;
        self.bytes[usize::from(size > LARGE)] -= size;
        Some(base)
    }

    /// Whether one of `size` bytes is kept instead of freed; of large ones, `room` bytes together.
    fn keep(&mut self, size: usize, base: u64, room: usize) -> bool {
        let (bytes, most) = if size > LARGE { (&mut self.bytes[1], room) } else { (&mut self.bytes[0], MOST) };
        let fits = *bytes + size <= most;
        if fits {
            *bytes += size;
            self.by_size.entry(size).or_default().push(base);
        }
        fits
    }
}

/// `size` bytes of any content, and whether they are what another buffer of exactly this size left. Errors: out of memory, also when all that was
/// kept is freed.
///
/// # Safety
/// The context is current.
pub unsafe fn take(size: usize) -> Result<(u64, bool), DriverError> {
    let exact = size <= LARGE;
    let size = allocated(size);
    if let Some(base) = pool().kept(size) {
        return Ok((base, exact));
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

/// Gives back what [`take`] gave; of large ones, `room` bytes are kept. What was started is done with it: launches, copies and fills are waited
/// for, and who enqueues keeps its buffers ([`super::launch::Gpu::enqueue`]).
///
/// # Safety
/// `base` is of `size` bytes and given back once; nothing uses it any more.
pub unsafe fn give_back(base: u64, size: usize, room: usize) {
    if !pool().keep(allocated(size), base, room) {
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
        assert!(pool.keep(4096, 77, 0) && pool.kept(4095).is_none());
        assert_eq!((pool.kept(4096), pool.kept(4096)), (Some(77), None));
        assert!(!pool.keep(LARGE + 1, 78, LARGE), "large");
        assert!(
            (0..MOST / LARGE).all(|i| pool.keep(LARGE, i as u64, 0)) && !pool.keep(1, 79, 0),
            "no more than so much together"
        );
        assert!(
            pool.keep(2 * LARGE, 80, 3 * LARGE) && !pool.keep(2 * LARGE, 81, 3 * LARGE),
            "large ones have room of their own"
        );
        assert!((0..MOST / LARGE).all(|_| pool.kept(LARGE).is_some()) && pool.keep(1, 79, 0) && pool.kept(1) == Some(79));
        assert_eq!((pool.kept(2 * LARGE), pool.bytes), (Some(80), [0, 0]));
    }

    #[test]
    fn large_ones_come_in_few_sizes_that_hold_them() {
        assert_eq!([1, 4097, LARGE].map(allocated), [1, 4097, LARGE]);
        assert_eq!(allocated(LARGE + 1), LARGE / 8 * 9);
        assert_eq!(allocated((100 << 20) + 2048), 104 << 20);
        for size in (LARGE + 1..16 * LARGE).step_by(777_777) {
            let all = allocated(size);
            assert!(all >= size && all - size <= size / 8 && allocated(all) == all, "{size}: {all}");
        }
    }
}
