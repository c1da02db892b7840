//! What theories sum for an element, kept: the searches ask the same theories for the same elements, whatever bound they are held to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// Elements that sums are kept for, at most, and numbers of all of them.
const PLACES: usize = 96;
const ROOM: usize = 1 << 22;

type Cells = Arc<Vec<[AtomicU64; 2]>>;

/// Sum and magnitude of the theories numbered from 1 on, for elements in the order in which they are asked for first.
#[derive(Default)]
pub struct Memo {
    theories: usize,
    places: RwLock<HashMap<(usize, usize), Cells>>,
    /// Magnitudes of right sums; of a large result none.
    sizes: Vec<AtomicU64>,
}

impl Memo {
    /// Of so many theories, and of a result of so many elements.
    pub fn of(theories: usize, elements: usize) -> Self {
        let sizes = if elements <= ROOM { (0..elements).map(|_| AtomicU64::new(0)).collect() } else { Vec::new() };
        Self { theories, places: RwLock::default(), sizes }
    }

    /// The magnitude of the right sum of element `at`.
    pub fn size(&self, at: usize, size: impl FnOnce() -> f64) -> f64 {
        let Some(cell) = self.sizes.get(at) else { return size() };
        let kept = cell.load(Ordering::Relaxed);
        if kept != 0 {
            return f64::from_bits(!kept);
        }
        let found = size();
        cell.store(!found.to_bits(), Ordering::Relaxed);
        found
    }

    fn cells(&self, place: (usize, usize)) -> Option<Cells> {
        let most = PLACES.min(ROOM / self.theories.max(1));
        {
            let places = self.places.read().ok()?;
            if let Some(cells) = places.get(&place) {
                return Some(cells.clone());
            }
            (places.len() < most).then_some(())?;
        }
        let mut places = self.places.write().ok()?;
        let room = places.len() < most || places.contains_key(&place);
        room.then(|| {
            let fresh = || Arc::new((0..self.theories).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect());
            places.entry(place).or_insert_with(fresh).clone()
        })
    }

    /// What theory `id` sums there: as it was kept, else as `sum` says.
    pub fn get(&self, id: usize, place: (usize, usize), sum: impl FnOnce() -> (f64, f64)) -> (f64, f64) {
        let Some(cells) = (1..=self.theories).contains(&id).then(|| self.cells(place)).flatten() else { return sum() };
        let [value, size] = &cells[id - 1];
        // The bits of a magnitude, turned round: 0 is none. Whoever else writes it writes the same.
        let kept = size.load(Ordering::Acquire);
        if kept != 0 {
            return (f64::from_bits(value.load(Ordering::Relaxed)), f64::from_bits(!kept));
        }
        let found = sum();
        value.store(found.0.to_bits(), Ordering::Relaxed);
        size.store(!found.1.to_bits(), Ordering::Release);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_asked_for_once_an_element_and_theory() {
        let memo = Memo::of(3, 10);
        let asked = std::cell::Cell::new(0);
        let sum = |x: f64| {
            asked.set(asked.get() + 1);
            (x, x.abs())
        };
        for _ in 0..2 {
            assert_eq!(memo.get(1, (0, 5), || sum(-1.5)), (-1.5, 1.5));
            assert_eq!(memo.get(3, (0, 5), || sum(0.0)), (0.0, 0.0));
            assert_eq!(memo.get(1, (5, 0), || sum(2.0)), (2.0, 2.0));
        }
        assert_eq!(asked.get(), 3);
        // What has no number is never kept.
        for id in [0, 4] {
            assert_eq!(memo.get(id, (0, 5), || sum(7.0)), (7.0, 7.0));
        }
        assert_eq!(asked.get(), 5);
        for _ in 0..2 {
            assert_eq!(memo.size(9, || sum(-4.0).1), 4.0);
        }
        assert_eq!(memo.size(10, || sum(-3.0).1), 3.0);
        assert_eq!(asked.get(), 7);
    }
}
