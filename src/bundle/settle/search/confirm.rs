//! Whether one of some ways gives every bit of a result, all elements looked at.

use super::{Case, FIRST, Place, Region, Way, bands};
use crate::Result;
use crate::parallel;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What a look at all elements said of some ways.
pub(super) enum Confirmed {
    By(Way),
    /// None; one of them has another bit here.
    RefutedAt(usize),
    /// One that has every bit and another amax, and where its largest magnitude is.
    ButForAmax(Way, usize),
    No,
}

impl Case<'_> {
    /// The first of `ways`, which have one chain and one cut, that gives every bit (of at most about `most` elements).
    pub(super) fn confirm(&self, ways: Vec<Way>, most: usize) -> Result<Confirmed> {
        let refuted = AtomicUsize::new(usize::MAX);
        let regions = self.regions();
        let alive: Vec<AtomicBool> = ways.iter().map(|_| AtomicBool::new(true)).collect();
        // The largest magnitude, behind whose bits stands where it is.
        let peak: Vec<AtomicU64> = ways.iter().map(|_| AtomicU64::new(0)).collect();
        let look = |(p, rows, cols): Place| -> Result<()> {
            if !alive.iter().any(|a| a.load(Relaxed)) {
                return Ok(());
            }
            let mut region = Region::new(&self.plan, p, rows, cols);
            for (w, way) in ways.iter().enumerate().filter(|(w, _)| alive[*w].load(Relaxed)) {
                let mut largest = 0;
                let same = self.each(&mut region, way, |at, value| {
                    if !value.is_nan() {
                        largest = largest.max(u64::from(value.abs().to_bits()) << 32 | at as u64);
                    }
                    let same = self.store.bits(value, way.ending.extra.truncated) == self.bits[at];
                    if !same {
                        refuted.fetch_min(at, Relaxed);
                    }
                    same
                })?;
                peak[w].fetch_max(largest, Relaxed);
                if !same {
                    alive[w].store(false, Relaxed);
                }
            }
            Ok(())
        };
        if let Some((p, rows, cols)) = regions.first().cloned() {
            let small = |r: &Range<usize>, n: usize| r.start..r.end.min(r.start + n);
            let (rows, cols) = (small(&rows, FIRST.0), small(&cols, FIRST.1));
            look((p, rows, cols))?;
        }
        let enough = self.enough(most);
        let whole = enough.len() == regions.len();
        // A result of few tiles is shared out by its rows.
        let threads = rayon::current_num_threads();
        let (first, rest) = match enough.len() < threads {
            true => (Vec::new(), enough.iter().flat_map(|place| bands(place, threads)).collect()),
            false => (enough[..1].to_vec(), enough[1..].to_vec()),
        };
        first.into_iter().try_for_each(look)?;
        parallel::collect(rest.len(), |r| look(rest[r].clone())).into_iter().collect::<Result<()>>()?;
        let peak = |w: usize| peak[w].load(Relaxed);
        let right_amax = |w: usize| !whole || self.amax.is_none_or(|a| u64::from(a.to_bits()) == peak(w) >> 32);
        let all_bits = || (0..ways.len()).filter(|w| alive[*w].load(Relaxed) && self.empty_is_zero);
        let found = all_bits().find(|w| right_amax(*w));
        Ok(match (found, all_bits().next(), refuted.load(Relaxed)) {
            (Some(w), ..) => Confirmed::By(ways[w].clone()),
            (None, Some(w), _) => Confirmed::ButForAmax(ways[w].clone(), peak(w) as u32 as usize),
            (None, None, usize::MAX) => Confirmed::No,
            (None, None, at) => Confirmed::RefutedAt(at),
        })
    }
}
