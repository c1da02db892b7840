//! A place in memory as a sum over digits of an index, solved from a few indices whose places are known, or nearly.
//!
//! ```text
//! place(x) = first + Σ by · (x / from mod size)          one digit: a stride; two: x mod d and x / d; else runs of the bits of x
//! ```

use super::super::maps::cost;

/// Candidates of one index that are looked at, at most.
pub const CANDIDATES: usize = 16;
/// Bits that the indices have to tell beyond those of the digits.
const MARGIN: f64 = 10.0;
/// Indices beyond the unknowns, at least.
const MORE: usize = 3;
/// Longest index whose digits may be split anywhere.
const LONGEST: usize = 4096;

/// Part of an index: `x / from mod size`; size 0: all that is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Digit {
    pub from: usize,
    pub size: usize,
    pub by: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DigitMap {
    pub first: i64,
    pub digits: Vec<Digit>,
}

/// An index and the places that it may have.
pub type Known = (usize, Vec<i64>);

impl DigitMap {
    pub fn none() -> Self {
        Self { first: 0, digits: Vec::new() }
    }

    pub fn at(&self, x: usize) -> i64 {
        let of = |d: &Digit| {
            let y = x / d.from;
            d.by * (if d.size == 0 { y } else { y % d.size }) as i64
        };
        self.first + self.digits.iter().map(of).sum::<i64>()
    }

    /// The digits that count, `x` in words.
    pub fn words(&self, x: &str) -> Vec<String> {
        let one = |d: &Digit| {
            let part = match (d.from, d.size) {
                (1, 0) => x.to_string(),
                (1, size) => format!("({x} mod {size})"),
                (from, 0) => format!("({x} / {from})"),
                (from, size) => format!("({x} / {from} mod {size})"),
            };
            if d.by == 1 { part } else { format!("{}·{part}", d.by) }
        };
        self.digits.iter().filter(|d| d.by != 0).map(one).collect()
    }

    pub fn bits(&self) -> f64 {
        let of = |d: &Digit| cost(d.by.unsigned_abs() as usize) + if d.size == 0 { 0.0 } else { cost(d.size) };
        self.digits.iter().filter(|d| d.by != 0).map(of).sum::<f64>() + if self.first == 0 { 0.0 } else { 4.0 }
    }
}

/// The simplest digits that give every index one of its places; `span`: how many places there are.
pub fn solve(known: &[Known], span: usize) -> Option<DigitMap> {
    let mut known: Vec<&Known> = known.iter().filter(|k| (1..=CANDIDATES).contains(&k.1.len())).collect();
    // What says most is asked first.
    known.sort_by_key(|k| (k.1.len(), k.0));
    let told: f64 = known.iter().map(|k| (span as f64 / k.1.len() as f64).log2().max(0.0)).sum();
    let longest = known.iter().map(|k| k.0).max()?;
    let may = |m: &DigitMap| {
        let unknowns = 1 + m.digits.iter().filter(|d| d.by != 0).count();
        let first = (span as f64).log2();
        known.len() >= unknowns + MORE && known.iter().all(|k| k.1.contains(&m.at(k.0))) && told >= first + m.bits() + MARGIN
    };
    let one = || split(&known, 0).into_iter().find(&may);
    let two = || (2..=longest.min(LONGEST)).find_map(|d| split(&known, d).into_iter().find(&may));
    one().or_else(two).or_else(|| of_bits(&known, longest).filter(may))
}

/// A stride of x (`d` 0), or one of x mod d and one of x / d: of the first indices that tell them.
fn split(known: &[&Known], d: usize) -> Vec<DigitMap> {
    let mut all = Vec::new();
    let Some((x0, places)) = known.first().map(|k| (k.0, &k.1)) else { return all };
    let parts = |x: usize| if d == 0 { (x, 0) } else { (x % d, x / d) };
    let (low0, high0) = parts(x0);
    let others = |same: &dyn Fn(usize, usize) -> bool| {
        known.iter().find(|k| k.0 != x0 && same(parts(k.0).0, parts(k.0).1)).map(|k| (k.0, &k.1))
    };
    let step = |x: Option<(usize, &Vec<i64>)>, p0: i64, of: &dyn Fn(usize) -> i64| -> Vec<i64> {
        let Some((x, places)) = x else { return vec![0] };
        let far = of(x);
        places.iter().filter(|p| (*p - p0) % far == 0).map(|p| (p - p0) / far).collect()
    };
    let (beside, beyond) = (others(&|_, high| high == high0), others(&|low, high| low == low0 && high != high0));
    if d > 0 && (beside.is_none() || beyond.is_none()) {
        return all;
    }
    for p0 in places {
        for low in step(beside, *p0, &|x| parts(x).0 as i64 - low0 as i64) {
            for high in if d == 0 { vec![0] } else { step(beyond, *p0, &|x| parts(x).1 as i64 - high0 as i64) } {
                let first = p0 - low * low0 as i64 - high * high0 as i64;
                let digits = match d {
                    0 => vec![Digit { from: 1, size: 0, by: low }],
                    d => vec![Digit { from: d, size: 0, by: high }, Digit { from: 1, size: d, by: low }],
                };
                all.push(DigitMap { first, digits });
            }
        }
    }
    all
}

/// A weight for each bit, runs of bits of one stride as one digit.
fn of_bits(known: &[&Known], longest: usize) -> Option<DigitMap> {
    let bits = usize::BITS - longest.leading_zeros();
    let sure = || known.iter().filter(|k| k.1.len() == 1);
    let weight = |b: u32| {
        let pair = |k: &&&Known| {
            let with = sure().find(|o| o.0 == k.0 | 1 << b)?;
            (k.0 >> b & 1 == 0).then(|| with.1[0] - k.1[0])
        };
        sure().find_map(|k| pair(&k))
    };
    let weights: Vec<i64> = (0..bits).map(weight).collect::<Option<_>>()?;
    (known.len() >= bits as usize + MORE).then_some(())?;
    let mut digits: Vec<Digit> = Vec::new();
    let mut b = 0;
    while b < weights.len() {
        let mut end = b + 1;
        while end < weights.len() && weights[end] == 2 * weights[end - 1] {
            end += 1;
        }
        let size = if end == weights.len() { 0 } else { 1 << (end - b) };
        digits.push(Digit { from: 1 << b, size, by: weights[b] });
        b = end;
    }
    digits.reverse();
    let (x0, p0) = sure().next().map(|k| (k.0, k.1[0]))?;
    let mut map = DigitMap { first: 0, digits };
    map.first = p0 - map.at(x0);
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(of: impl Fn(usize) -> i64, n: usize) -> Vec<Known> {
        // Every third index has a place by chance as well.
        (0..n).map(|x| (x, if x % 3 == 1 { vec![of(x), (x as i64 * 7919 + 13) % 900] } else { vec![of(x)] })).collect()
    }

    #[test]
    fn digits_are_solved_and_told() {
        let of = |f: &dyn Fn(usize) -> usize, n| {
            let m = solve(&known(|x| f(x) as i64, n), 1000).unwrap();
            assert!((0..n).all(|x| m.at(x) == f(x) as i64), "{m:?}");
            m.words("n").join(" + ")
        };
        assert_eq!(of(&|x| 6 * x + 40, 30), "6·n");
        assert_eq!(of(&|x| 16 * (x % 8) + x / 8, 40), "(n / 8) + 16·(n mod 8)");
        assert_eq!(of(&|x| x / 12, 60), "(n / 12)");
        assert_eq!(of(&|x| x / 64 * 64 + x % 32, 100), "64·(n / 64) + (n mod 32)");
    }

    #[test]
    fn places_without_digits_have_none() {
        assert!(solve(&known(|x| (x as i64 * x as i64 * 37 + 11) % 500, 40), 1000).is_none());
        // Five indices that a line of any stride would meet tell too little.
        let loose: Vec<Known> = (0..5).map(|x| (x, (0..16).collect())).collect();
        assert!(solve(&loose, 16).is_none());
    }
}
