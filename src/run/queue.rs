//! Which case is run next. In their order; on GPUs the dearest of the next few first, so that none of them ends long after the others, and those of
//! one weight on one GPU, which has it.

use super::plan;
use crate::sweep::Case;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Cases that nobody has taken.
pub struct Queue {
    /// What each costs, and the first case of its weights.
    cases: Vec<(f64, Option<usize>)>,
    /// How far a case may be taken before the first that nobody has: rows are written in their order, so that a run that is stopped loses no more.
    window: usize,
    state: Mutex<State>,
}

struct State {
    taken: Vec<bool>,
    first: usize,
    /// The GPU that has the weights of a case.
    homes: HashMap<usize, usize>,
}

/// What the weights of a product are drawn from.
fn weights(case: &Case) -> Option<String> {
    case.op.is_product().then(|| format!("{} {} {}×{} {}", case.dist_b, case.dtype, case.n, case.k, case.seed))
}

impl Queue {
    /// Those from `first` on.
    pub fn new(cases: &[&Case], first: usize, window: usize) -> Self {
        let taken = (0..cases.len()).map(|i| i < first).collect();
        let mut firsts = HashMap::new();
        let one = |(i, case): (usize, &&Case)| (plan::seconds(case), weights(case).map(|w| *firsts.entry(w).or_insert(i)));
        let cases = cases.iter().enumerate().map(one).collect();
        Self { cases, window: window.max(1), state: Mutex::new(State { taken, first, homes: HashMap::new() }) }
    }

    /// The next case of a GPU (0 where there is none or one).
    pub fn next(&self, device: usize) -> Option<usize> {
        let State { taken, first, homes } = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.cases.len().min(*first + self.window);
        let free = (*first..end).filter(|i| !taken[*i]);
        // Of equals the first.
        let rank = |i: usize| {
            let (seconds, weights) = self.cases[i];
            (weights.and_then(|w| homes.get(&w)).is_none_or(|home| *home == device), seconds)
        };
        let better = |a: (usize, (bool, f64)), b: (usize, (bool, f64))| if b.1 > a.1 { b } else { a };
        let (i, _) = free.map(|i| (i, rank(i))).reduce(better)?;
        taken[i] = true;
        if let Some(weights) = self.cases[i].1 {
            homes.entry(weights).or_insert(device);
        }
        while taken.get(*first) == Some(&true) {
            *first += 1;
        }
        Some(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Sweep;
    use std::path::Path;

    fn cases() -> Sweep {
        let text = "about = \"x\"\n[[cases]]\nname = \"x\"\nop = [\"gemm\"]\nrecipe = [\"te_current\"]\nout = [\"bf16\"]\n\
            accumulator = [\"hopper_wgmma\"]\nshape = [\"16x64x64\", \"512x64x64\", \"16x96x64\", \"256x96x64\", \"32x128x64\"]\n";
        Sweep::parse(Path::new("x.toml"), text, 0).unwrap()
    }

    #[test]
    fn a_window_of_one_keeps_the_order() {
        let sweep = cases();
        let cases: Vec<&Case> = sweep.cases.iter().collect();
        let queue = Queue::new(&cases, 1, 1);
        assert_eq!(std::iter::from_fn(|| queue.next(0)).collect::<Vec<_>>(), (1..cases.len()).collect::<Vec<_>>());
    }

    #[test]
    fn the_dearest_come_first_and_weights_stay_on_their_gpu() {
        let sweep = cases();
        let cases: Vec<&Case> = sweep.cases.iter().collect();
        assert_eq!(cases.len(), 5);
        let queue = Queue::new(&cases, 0, 5);
        // 512 rows of the first weight, 256 of the second; then each GPU what it has, and the third weight; what is left is for all.
        let taken = [0, 1, 0, 1, 1, 0].map(|device| queue.next(device));
        assert_eq!(taken, [Some(1), Some(3), Some(4), Some(2), Some(0), None]);
    }

    #[test]
    fn nothing_is_taken_far_before_the_first_that_is_left() {
        let sweep = cases();
        let cases: Vec<&Case> = sweep.cases.iter().collect();
        let queue = Queue::new(&cases, 0, 3);
        assert_eq!([queue.next(0), queue.next(0), queue.next(0)], [Some(1), Some(2), Some(0)]);
    }
}
