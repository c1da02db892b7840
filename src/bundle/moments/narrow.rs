//! Sums of squares of which every step is rounded to 16 bits: how lanes share a row, how squares are loaded, how lanes are joined.

use super::{Add, Known, NEAR};
use crate::order::Order as _;
use crate::tensor::round_to;
use crate::{Format, Overflow, Rounding};

/// Rows that a sum is tried on before all are.
const FEW: usize = 4;
/// Rows that a mean is told by, at least.
const LEAST: usize = 8;

/// How a sum of squares is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    pub format: Format,
    /// Cut toward zero, not rounded to nearest.
    pub cut: bool,
    /// Neighbouring squares that are summed before they are rounded.
    pub load: usize,
    pub lanes: usize,
    /// A lane has a run of columns, and not every so many loads.
    pub runs: bool,
    /// Lanes are added one after the other, and not in pairs.
    pub in_order: bool,
    /// A square is rounded before it is added.
    pub square: bool,
    /// Lanes are joined in f32.
    pub wide: bool,
}

impl Way {
    /// The ways that kernels take, the usual ones first.
    pub fn all(n: usize) -> Vec<Way> {
        let mut all = Vec::new();
        for cut in [false, true] {
            for (format, load) in
                [Format::Bf16, Format::F16].into_iter().flat_map(|f| [1usize, 2, 4, 8, 16].map(|load| (f, load)))
            {
                for lanes in [1usize, 2, 4, 8, 16, 32, 64, 128, 256].into_iter().filter(|l| l * load <= n.max(1)) {
                    let way = Way { format, cut, load, lanes, runs: false, in_order: false, square: true, wide: false };
                    all.push(way);
                    for square in [true, false] {
                        all.push(Way { square, in_order: true, ..way });
                        all.push(Way { square, runs: true, ..way });
                        all.push(Way { square, runs: true, in_order: true, ..way });
                        all.push(Way { square, ..way });
                        all.push(Way { square, wide: true, ..way });
                        all.push(Way { square, runs: true, wide: true, ..way });
                    }
                }
            }
        }
        let mut seen: Vec<Way> = Vec::new();
        for way in all {
            // Of one lane there is nothing to share and to join.
            if !seen.contains(&way) && (way.lanes > 1 || !way.runs && !way.in_order && !way.wide) {
                seen.push(way);
            }
        }
        seen.order_by_key(|w| (w.cut, w.wide, w.runs, w.in_order, !w.square));
        seen
    }

    pub fn words(&self) -> String {
        let Way { format, load, .. } = self;
        let what = if *load == 1 { "squares".to_string() } else { format!("sums of {load} neighbouring squares") };
        let both = if self.square { format!("{what} and their sum are") } else { format!("the sum of {what} is") };
        let how = if self.cut { "cut" } else { "rounded" };
        format!("{both} {how} to {format} at every step{}", self.shared())
    }

    /// How lanes share a row, in words.
    pub fn shared(&self) -> String {
        let runs = if self.runs { " with a run of columns each" } else { "" };
        let join = if self.in_order { ", added in order" } else { "" };
        let wide = if self.wide { ", joined in f32" } else { "" };
        if self.lanes == 1 { String::new() } else { format!(", by {} lanes{runs}{join}{wide}", self.lanes) }
    }

    /// The sum of squares of a row about `shift`.
    pub fn sum(&self, x: &[f64], shift: f64) -> f64 {
        self.total(x, &|x| (x - shift).powi(2))
    }

    /// The sum of what a value becomes, over a row.
    pub fn total(&self, x: &[f64], term: &dyn Fn(f64) -> f64) -> f64 {
        let round = |x: f64| {
            if self.cut {
                self.format.decode(self.format.encode(x, Rounding::TowardZero, Overflow::Saturate))
            } else {
                f64::from(round_to(self.format, x as f32))
            }
        };
        let join = |x: f64| if self.wide { x } else { round(x) };
        let mut sums = vec![0.0; self.lanes];
        let loads = x.len().div_ceil(self.load);
        let run = loads.div_ceil(self.lanes).max(1);
        for (n, some) in x.chunks(self.load).enumerate() {
            let of: f64 = some.iter().map(|x| term(*x)).sum();
            let lane = &mut sums[if self.runs { n / run } else { n % self.lanes }];
            *lane = round(*lane + if self.square { round(of) } else { of });
        }
        if self.in_order {
            return sums.iter().fold(0.0, |all, x| join(all + x));
        }
        while sums.len() > 1 {
            let half = sums.len() / 2;
            sums = (0..half).map(|l| join(sums[l] + sums[l + half])).collect();
        }
        sums[0]
    }
}

/// Means whose sum is made in few bits: words, and the mean of every row. `known`: what the sums of some rows may be.
pub fn means(rows: &[Vec<f64>], known: &[Known]) -> Option<(String, Vec<f64>)> {
    let n = rows[0].len();
    (known.len() >= LEAST).then_some(())?;
    let way = Way::all(n).into_iter().filter(|w| w.square).find(|way| {
        let is = |(i, (low, high)): &Known| {
            let sum = way.total(&rows[*i], &|x| x);
            *low <= sum && sum <= *high
        };
        known[..FEW].iter().all(is) && known.iter().all(is)
    })?;
    let how = if way.cut { "cut" } else { "rounded" };
    let values = if way.load == 1 { String::new() } else { format!(" of sums of {} neighbours", way.load) };
    let words = format!("the sum of the mean{values} is {how} to {} at every step{}", way.format, way.shared());
    Some((words, rows.iter().map(|x| way.total(x, &|x| x) / n as f64).collect()))
}

/// Sums of squares in few bits, of rows about these shifts; `known`: what the mean square of wrong rows may be.
pub fn sums(rows: &[Vec<f64>], shift: &dyn Fn(usize) -> f64, known: &[Known], add: &mut Add) {
    let n = rows[0].len();
    let few: Vec<&Known> = known.iter().step_by(known.len().div_ceil(FEW).max(1)).collect();
    for way in Way::all(n) {
        let of = |i: usize| way.sum(&rows[i], shift(i)) / n as f64;
        let is = |(i, (low, high)): &&Known| {
            let of = of(*i);
            low - NEAR * of <= of && of <= high + NEAR * of
        };
        if few.iter().any(is) {
            add(way.words(), &of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_narrow_sum_by_hand() {
        let way = |lanes: usize| Way {
            format: Format::Bf16,
            cut: false,
            load: 1,
            lanes,
            runs: false,
            in_order: false,
            square: true,
            wide: false,
        };
        // 256 and three times 1: each 1 is lost on the way to the nearest of 256 and 258.
        let x = [16.0, 1.0, 1.0, 1.0];
        assert_eq!(way(1).sum(&x, 0.0), 256.0);
        // Lanes 256 + 1 and 1 + 1; runs of two are the same columns 0, 1 and 2, 3.
        assert_eq!(way(2).sum(&x, 0.0), 258.0);
        assert_eq!(Way { runs: true, ..way(2) }.sum(&x, 0.0), 258.0);
        // 257.5 lies between 256 and 258.
        let x = [16.0, 1.5f64.sqrt()];
        assert_eq!([false, true].map(|cut| Way { cut, ..way(1) }.sum(&x, 0.0)), [258.0, 256.0]);
        // Four lanes in order: 1 + 1 + 1 + 256, and 1 + 256 in pairs first.
        let x = [1.0, 1.0, 1.0, 16.0];
        assert_eq!([false, true].map(|in_order| Way { in_order, ..way(4) }.sum(&x, 0.0)), [258.0, 260.0]);
        // A square that is not rounded itself: 1.00390625² is 1.0078… and not 1.0.
        let x = [1.00390625];
        assert_eq!([true, false].map(|square| Way { square, ..way(1) }.sum(&x, 0.0)), [1.0078125; 2]);
        assert_eq!(Way { load: 2, ..way(1) }.sum(&[15.0, 31f64.sqrt(), 1.0, 1.0], 0.0), 258.0);
        assert!(way(1).words() == "squares and their sum are rounded to bf16 at every step", "{}", way(1).words());
        let cut = Way { cut: true, in_order: true, ..way(16) };
        assert_eq!(cut.words(), "squares and their sum are cut to bf16 at every step, by 16 lanes, added in order");
    }

    #[test]
    fn every_way_is_there_once() {
        let all = Way::all(4096);
        assert!((0..all.len()).all(|i| all[..i].iter().all(|w| *w != all[i])));
        // Two roundings, formats, five loads; one lane with and without a rounded square, eight of each way to share.
        assert_eq!(all.len(), 2 * 2 * 5 * (2 + 8 * 12));
        let mut words: Vec<String> = all.iter().map(Way::words).collect();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), all.len());
    }
}
