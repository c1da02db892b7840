//! Maps of the lanes of a period in words: strides, rotations, bits that are exchanged, pairs that changed places; else the list.

use super::maps::cost;

/// For each lane the one that is read in its place; none is read for some.
pub type Map = Vec<Option<usize>>;

/// Lanes of a list in words, and pairs that changed places, at most.
const LISTED: usize = 64;
const PAIRS: usize = 2;

/// A map in words, the bits of its parameters, and places that were found one by one.
pub fn in_words(map: &Map) -> (String, f64, usize) {
    let (words, bits, freedom) = formula(map).map_or_else(
        || {
            let some: Vec<String> = map.iter().take(LISTED).map(|x| x.map_or("none".into(), |x| x.to_string())).collect();
            let moved = (0..map.len()).filter(|r| map[*r] != Some(*r)).count();
            let more = if map.len() > LISTED { ", …" } else { "" };
            (format!("as {}{more}", some.join(", ")), moved as f64 * (map.len() as f64).log2(), moved)
        },
        |(words, bits)| (words, bits, 0),
    );
    let unread: Vec<bool> = (0..map.len()).map(|x| !map.contains(&Some(x))).collect();
    if unread.contains(&true) {
        return (format!("{words}; {} are never read", super::segment::lines(&unread)), bits, freedom);
    }
    (words, bits, freedom)
}

fn formula(map: &Map) -> Option<(String, f64)> {
    let n = map.len();
    let is = |of: &dyn Fn(usize) -> Option<usize>| (0..n).all(|r| map[r] == of(r));
    let within = |x: usize| Some(x).filter(|x| *x < n);
    for m in 1..n {
        if is(&|r| within(r ^ m)) {
            return Some((format!("at its lane xor {m}"), cost(m)));
        }
    }
    for m in 1..n {
        if is(&|r| Some((r + m) % n)) {
            return Some((format!("{m} lanes on, wrapped"), cost(m) + 1.0));
        }
        if is(&|r| within(r + m)) {
            return Some((format!("{m} lanes on, and nothing behind the last"), cost(m) + 1.0));
        }
        if is(&|r| r.checked_sub(m)) {
            return Some((format!("{m} lanes before, and nothing before the first"), cost(m) + 1.0));
        }
    }
    if is(&|r| Some(n - 1 - r)) {
        return Some(("backwards".into(), 1.0));
    }
    // Vectors of v lanes at another stride.
    for v in (1..n).filter(|v| n.is_multiple_of(*v)) {
        for stride in (0..=n).filter(|stride| *stride != v) {
            if is(&|r| within(r / v * stride + r % v)) {
                let words = format!("at {stride}·t + v instead of {v}·t + v (v < {v})");
                return Some((words, cost(v) + cost(stride)));
            }
        }
    }
    for p in (2..n).filter(|p| n.is_multiple_of(*p)) {
        let q = n / p;
        if is(&|r| Some(r % q * p + r / q)) {
            let words = format!("at (x mod {q})·{p} + x / {q}, x the lane");
            return Some((words, cost(p) + cost(q)));
        }
    }
    if n.is_power_of_two() {
        for high in 1..n.trailing_zeros() {
            for low in 0..high {
                let exchanged = |r: usize| {
                    let differ = (r >> high ^ r >> low) & 1;
                    r ^ (differ << high | differ << low)
                };
                if is(&|r| Some(exchanged(r))) {
                    return Some((format!("bits {low} and {high} of the lane are exchanged"), 3.0 + f64::from(high)));
                }
            }
        }
    }
    // A few pairs.
    let moved: Vec<usize> = (0..n).filter(|r| map[*r] != Some(*r)).collect();
    let pairs: Vec<(usize, usize)> =
        moved.iter().filter_map(|r| Some((*r, map[*r]?))).filter(|(x, y)| x < y && map[*y] == Some(*x)).collect();
    if !pairs.is_empty() && pairs.len() <= PAIRS && 2 * pairs.len() == moved.len() {
        let words: Vec<String> = pairs.iter().map(|(x, y)| format!("{x} and {y} are exchanged")).collect();
        return Some((words.join(", "), pairs.len() as f64 * 2.0 * (n as f64).log2()));
    }
    // Lanes that nobody reads, and no others.
    if moved.iter().all(|r| map[*r].is_none()) {
        return Some((String::from("each at its own, without some"), moved.len() as f64));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_have_their_formula() {
        let of = |n: usize, f: &dyn Fn(usize) -> Option<usize>| in_words(&(0..n).map(f).collect());
        assert_eq!(of(8, &|r| Some(r ^ 3)).0, "at its lane xor 3");
        assert_eq!(of(6, &|r| Some((r + 2) % 6)).0, "2 lanes on, wrapped");
        assert_eq!(of(4, &|r| r.checked_sub(1)).0, "1 lanes before, and nothing before the first; 3 are never read");
        assert_eq!(of(12, &|r| Some(11 - r)).0, "backwards");
        assert_eq!(of(16, &|r| Some(r / 8 * 4 + r % 8)).0, "at 4·t + v instead of 8·t + v (v < 8); 12 … 15 are never read");
        assert_eq!(of(12, &|r| Some(r % 4 * 3 + r / 4)).0, "at (x mod 4)·3 + x / 4, x the lane");
        assert_eq!(of(16, &|r| Some(r & 5 | r >> 2 & 2 | r << 2 & 8)).0, "bits 1 and 3 of the lane are exchanged");
        assert_eq!(of(8, &|r| Some([0, 5, 2, 3, 4, 1, 6, 7][r])).0, "1 and 5 are exchanged");
        let list = of(5, &|r| [Some(2), Some(0), None, Some(1), Some(4)][r]);
        assert_eq!((list.0.as_str(), list.2), ("as 2, 0, none, 1, 4; 3 are never read", 4));
    }
}
