//! Hostile input: a counting allocator that refuses what no reader of a small file may take, and files that were right, spoiled.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is allocated, and fails an allocation that would take more than any reader of a small file may.
pub struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
const MOST: usize = 512 << 20;

// SAFETY: hands every request to the system allocator, or refuses it with null, as the contract allows.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size() > MOST {
            HELD.fetch_sub(layout.size(), Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's own layout.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: came from `alloc` above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// A small generator: the same files in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// What parsers fear.
pub const FEARED: [&[u8]; 20] = [
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\0\0\0\0\0\0\0\0",
    b"18446744073709551615",
    b"-1",
    b"1e999",
    b"NaN",
    b"\"",
    b"\n",
    b"\r",
    b",",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"4294967296",
    b"seeds = 99999999999",
    b"65536x65536x65536",
    b"x",
    b"|",
    b"\xe2\x80\xae",
];

/// `whole` with one to eight changes.
pub fn spoiled(whole: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=dice.below(8) {
        let at = dice.below(bytes.len() + 1);
        match dice.below(7) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            2 if at < bytes.len() => bytes[at] = dice.below(256) as u8,
            3 => {
                let feared = FEARED[dice.below(FEARED.len())];
                bytes.splice(at..at, feared.iter().copied());
            }
            4 => {
                let feared = FEARED[dice.below(FEARED.len())];
                let end = (at + feared.len()).min(bytes.len());
                bytes.splice(at..end, feared.iter().copied());
            }
            5 => {
                let (from, n) = (dice.below(bytes.len() + 1), dice.below(200));
                let part = bytes[from..(from + n).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let end = (at + dice.below(100)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

/// How many inputs each reader gets: `QASSAY_FUZZ`, a few thousand unless it says otherwise.
pub fn count() -> usize {
    std::env::var("QASSAY_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(2000)
}
