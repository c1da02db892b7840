//! Sorting of short lists by many orders: one sort in the program for all of them. `slice::sort_by` is compiled for each order that it is given, eight
//! kilobytes each time.

use std::cmp::Ordering;

/// `first`, `second`, `third`, `4th`, … `21st`.
pub fn nth(n: usize) -> String {
    match (n, n % 100 / 10, n % 10) {
        (1, ..) => "first".into(),
        (2, ..) => "second".into(),
        (3, ..) => "third".into(),
        (_, 1, _) => format!("{n}th"),
        (.., 1) => format!("{n}st"),
        (.., 2) => format!("{n}nd"),
        (.., 3) => format!("{n}rd"),
        _ => format!("{n}th"),
    }
}

/// Stable sorts of lists that are short or sorted seldom.
pub trait Order<T> {
    /// As `sort_by`.
    fn order_by(&mut self, by: impl Fn(&T, &T) -> Ordering);

    /// As `sort_by_cached_key`.
    fn order_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K);
}

impl<T> Order<T> for [T] {
    fn order_by(&mut self, by: impl Fn(&T, &T) -> Ordering) {
        let from = sources(self.len(), &|a, b| by(&self[a], &self[b]));
        arrange(self.len(), from, &mut |a, b| self.swap(a, b));
    }

    fn order_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        let keys: Vec<K> = self.iter().map(key).collect();
        let from = sources(self.len(), &|a, b| keys[a].cmp(&keys[b]));
        arrange(self.len(), from, &mut |a, b| self.swap(a, b));
    }
}

/// Which element comes to each place.
fn sources(n: usize, by: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut from: Vec<usize> = (0..n).collect();
    from.sort_by(|a, b| by(*a, *b));
    from
}

/// Brings every element to its place, cycle by cycle.
fn arrange(n: usize, mut from: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..n {
        let mut to = start;
        while from[to] != start {
            let next = from[to];
            swap(to, next);
            from[to] = to;
            to = next;
        }
        from[to] = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_end_as_they_are_said() {
        let said = [1, 2, 3, 4, 11, 12, 21, 22, 23, 112, 121].map(nth);
        assert_eq!(said, ["first", "second", "third", "4th", "11th", "12th", "21st", "22nd", "23rd", "112th", "121st"]);
    }

    #[test]
    fn lists_are_as_the_sort_of_the_standard_library_leaves_them() {
        for n in [0, 1, 2, 3, 20, 21, 1000] {
            // Few keys, so that the order of equal ones shows.
            let all: Vec<(usize, usize)> = (0..n).map(|i| ((i * 7919 + i * i * 31) % 11, i)).collect();
            let (mut by, mut by_key, mut right) = (all.clone(), all.clone(), all);
            right.sort_by_key(|x| std::cmp::Reverse(x.0));
            by.order_by(|a, b| b.0.cmp(&a.0));
            by_key.order_by_key(|x| std::cmp::Reverse(x.0));
            assert_eq!((&by, &by_key), (&right, &right));
        }
    }
}
