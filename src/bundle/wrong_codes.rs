//! Codes of a cast that no rounding of the values makes: other zero points than those stored, a draw, and what becomes of NaN and Inf.

use super::encoders::{Cast, LEAST, Named, SHARE, nearest};
use crate::fault::Class;
use crate::fault::solve::segment::where_not_all;
use crate::fault::whereabouts::place;
use crate::order::Order as _;
use crate::{Overflow, Rounding};
use std::collections::HashMap;

/// How far a share may be from what it is of, in standard deviations.
const SIGMAS: f64 = 5.0;
/// Elements between two codes, at least, for a draw to show.
const BETWEEN: usize = 64;

impl Cast<'_> {
    /// Codes by zero points that are all off by one number.
    pub fn offset(&self) -> Option<Named> {
        (!self.zero.is_empty()).then_some(())?;
        let finite = self.finite();
        let off = |at: &usize| {
            let e = self.element(*at);
            (self.value(*at) - e.y() - e.zero).round()
        };
        let inside = |at: &&usize| self.value(**at).abs() < 0.9 * self.element(**at).format.max_finite();
        let mut offs: Vec<f64> = finite.iter().filter(inside).map(off).collect();
        (offs.len() >= LEAST).then_some(())?;
        offs.sort_by(f64::total_cmp);
        let by = offs[offs.len() / 2];
        (by != 0.0).then_some(())?;
        let made = |at: &&usize| {
            let e = self.element(**at);
            [-1e-6, 0.0, 1e-6].iter().any(|n| nearest(e.format, e.y() * (1.0 + n) + e.zero + by) == self.value(**at))
        };
        let share = finite.iter().filter(made).count() as f64 / finite.len() as f64;
        (share >= SHARE).then(|| {
            let words = format!("codes were made with zero points {by:+} off those stored beside them");
            (Class::ZpOffset, "out.zero_point".into(), words)
        })
    }

    /// Codes that are the one below or the one above by chance: above as often as the value lies far from the one below.
    pub fn drawn(&self) -> Option<Named> {
        let f = self.q.format();
        let finite = self.finite();
        let (mut n, mut outside, mut above, mut expected, mut variance, mut far) = (0usize, 0usize, 0.0, 0.0, 0.0, 0usize);
        for at in finite {
            let e = self.element(at);
            let y = e.y() + e.zero;
            if y.abs() >= f.max_finite() {
                continue;
            }
            let down = f.decode(f.encode(y, Rounding::TowardZero, Overflow::Saturate));
            if (y - down).abs() < 1e-6 * y.abs() {
                continue;
            }
            // The next one away from zero: just above what rounds up to it.
            let up = self.values.get(self.values.partition_point(|v| *v <= down.abs())).copied()? * y.signum();
            let part = (y - down) / (up - down);
            let v = self.value(at);
            n += 1;
            outside += usize::from(v != down && v != up);
            above += f64::from(u8::from(v == up));
            expected += part;
            variance += part * (1.0 - part);
            // Not the nearest, and not near a tie.
            far += usize::from((part < 0.4 && v == up) || (part > 0.6 && v == down));
        }
        let is = n >= BETWEEN && outside * 200 <= n && (above - expected).abs() <= SIGMAS * variance.sqrt();
        // A draw is wrong by a part of 0.2 in the mean where nearest is never.
        (is && far * 10 > n).then(|| {
            let words = format!(
                "codes are rounded up or down by chance, up as often as the value lies near the upper one ({above:.0} of {n} where {expected:.0} \
                 are expected): stochastic rounding"
            );
            (Class::SrBroken, "out.stochastic".into(), words)
        })
    }

    /// Codes that are some function of the scaled value, whichever: in the order of the values they change no more often than codes do.
    pub fn stepped(&self) -> Option<Named> {
        self.zero.is_empty().then_some(())?;
        let cols = self.q.cols();
        let finite = self.finite();
        let (mut is_row, mut is_col) = (vec![false; self.q.rows()], vec![false; cols]);
        finite.iter().filter(|at| !self.right(**at)).for_each(|at| (is_row[at / cols], is_col[at % cols]) = (true, true));
        // Value and code of the magnitude, the element's sign taken off. What is right in one of the ways to scale is right.
        let mut all: Vec<(f64, f64, f64)> = finite
            .iter()
            .filter(|at| is_row[*at / cols] && is_col[*at % cols] && self.element(**at).x != 0.0)
            .map(|at| {
                let (e, value) = (self.element(*at), self.value(*at));
                let sign = e.x.signum();
                let right = if self.right(*at) { value } else { nearest(e.format, e.y()) };
                // No −0.
                (e.y().abs(), value * sign + 0.0, right * sign + 0.0)
            })
            .collect();
        all.order_by(|a, b| a.0.total_cmp(&b.0));
        let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
        let runs = 1 + all.windows(2).filter(|w| !same(w[0].1, w[1].1)).count();
        let codes = 1 + all.windows(2).filter(|w| !same(w[0].2, w[1].2)).count();
        (all.len() >= 8 * codes && runs <= 2 * codes + all.len() / 50).then_some(())?;
        // One code nearly everywhere is a place that was not written.
        let mut made: HashMap<u64, usize> = HashMap::new();
        all.iter().for_each(|e| *made.entry(e.1.to_bits()).or_default() += 1);
        (made.into_values().max()? * 10 <= all.len() * 9).then_some(())?;
        // Ranges of wrong codes, each with the elements in it.
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for (n, e) in all.iter().enumerate().filter(|(_, e)| !same(e.1, e.2)) {
            match ranges.last_mut() {
                Some((from, to)) if *to == n && same(all[*from].1, e.1) && same(all[*from].2, e.2) => *to = n + 1,
                _ => ranges.push((n, n + 1)),
            }
        }
        let wrong: usize = ranges.iter().map(|(from, to)| to - from).sum();
        (wrong >= LEAST && wrong >= 2 * ranges.len()).then_some(())?;
        ranges.order_by_key(|(from, to)| std::cmp::Reverse(to - from));
        let f = self.q.format();
        let edge = |e: &(f64, f64, f64)| e.0 < 2.0 * super::encoders::normal(f) || e.0 > 0.5 * f.max_finite();
        let edges = all.iter().filter(|e| !same(e.1, e.2)).all(edge);
        let shown: Vec<String> = ranges
            .iter()
            .take(3)
            .map(|(from, to)| {
                let [low, high] = crate::compare::digits::apart([all[*from].0, all[to - 1].0]);
                format!("values of {low} … {high} scales become {} instead of {}", all[*from].1, all[*from].2)
            })
            .collect();
        let place = where_not_all("rows", &is_row) + &where_not_all("columns", &is_col);
        let words = format!("codes are another function of the scaled value: {}{place}", shown.join(", "));
        Some((if edges { Class::CodecEdge } else { Class::Rounding }, "out.steps".into(), words))
    }

    /// One code everywhere.
    pub fn constant(&self) -> Option<Named> {
        let codes = self.q.codes();
        let first = *codes.first()?;
        let wrong = || self.finite().into_iter().filter(|at| !self.right(*at)).count();
        (codes.iter().all(|c| *c == first) && wrong() >= LEAST).then(|| {
            let words = format!("every code is {first:#x}, which is {}: no codes were written", self.value(0));
            (Class::SilentSkip, "out.codes_unwritten".into(), words)
        })
    }

    /// What NaN and Inf became, where all else is right.
    pub fn specials(&self) -> Option<Named> {
        let finite = self.finite();
        finite.iter().all(|at| self.right(*at)).then_some(())?;
        for (what, is) in [("NaN", (|x: f64| x.is_nan()) as fn(f64) -> bool), ("Inf", |x: f64| x.is_infinite())] {
            let places: Vec<usize> = (0..self.q.codes().len()).filter(|at| is(self.element(*at).x)).collect();
            let max = self.q.format().max_finite();
            let is_right = |v: f64| if what == "NaN" { v.is_nan() } else { v.is_infinite() || v == max };
            let (hidden, shows): (Vec<usize>, Vec<usize>) = places.into_iter().partition(|at| is_right(self.value(*at).abs()));
            let Some(first) = shows.first() else { continue };
            let v = self.value(*first).abs();
            if !shows.iter().all(|at| self.value(*at).abs() == v) {
                continue;
            }
            if let Some(place) = place((self.q.rows(), self.q.cols()), ["rows", "columns"], &shows, &hidden) {
                return Some((Class::CodecEdge, "out.special".into(), format!("{what} becomes {v}{place}")));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, QTensor, Tensor, Zero};

    const ROWS: usize = 40;
    const COLS: usize = 50;

    /// A cast to `format` by a scale of 1 and these zero points of its rows, of these values.
    fn with<R>(format: Format, x: Vec<f32>, zero: &[i32], code: impl Fn(usize) -> u8, see: impl FnOnce(&Cast) -> R) -> R {
        let x = Tensor::new(Format::F32, ROWS, COLS, x).unwrap();
        let parts = QTensorParts {
            format,
            rows: ROWS,
            cols: COLS,
            codes: (0..ROWS * COLS).map(code).collect(),
            granularity: Granularity::Row,
            scale_format: Format::F32,
            scale_inv: vec![1.0; ROWS],
            zero: if zero.is_empty() { Zero::None } else { Zero::Integer(zero.to_vec()) },
            level: None,
        };
        let q = QTensor::new(parts).unwrap();
        see(&Cast::of(&x, &q).unwrap())
    }

    fn e4m3(y: f64, rounding: Rounding) -> u8 {
        Format::E4m3.encode(y, rounding, Overflow::Saturate) as u8
    }

    /// Of both signs, from 0.02 to 428, neighbours in size anywhere in the tensor.
    fn spread() -> Vec<f32> {
        let one = |at: usize| (0.02 * 1.005f64.powi((at * 173 % (ROWS * COLS)) as i32)) as f32;
        (0..ROWS * COLS).map(|at| if at % 3 == 0 { -one(at) } else { one(at) }).collect()
    }

    #[test]
    fn codes_up_or_down_by_chance_are_told_with_their_numbers() {
        let x = spread();
        // Magnitudes of codes: the one below and the one above.
        let all: Vec<f64> = (0..127u8).map(|c| f64::from(float8::F8E4M3::from_bits(c).to_f32())).collect();
        let between = |at: usize| {
            let y = f64::from(x[at].abs());
            let n = all.partition_point(|v| *v <= y);
            (all[n - 1], all[n], (y - all[n - 1]) / (all[n] - all[n - 1]))
        };
        let chance = |at: usize| (at as f64 * 0.618_033_988_749).fract();
        // By chances of so many steps out of place, and how many are elsewhere.
        let of = |bias: f64, outside: usize| {
            let code = |at: usize| {
                let (low, high, part) = between(at);
                let v = if chance(at) < part + bias { high } else { low };
                let v = if at < outside { 4.0 * low } else { v };
                e4m3(v.copysign(f64::from(x[at])), Rounding::NearestEven)
            };
            with(Format::E4m3, x.clone(), &[], code, |cast| cast.drawn())
        };
        let parts: Vec<f64> = (0..x.len()).map(|at| between(at).2).filter(|p| *p > 0.0).collect();
        let above = (0..x.len()).filter(|at| chance(*at) < between(*at).2).count();
        let words =
            format!("({above} of {} where {:.0} are expected): stochastic rounding", parts.len(), parts.iter().sum::<f64>());
        let found = of(0.0, 0).unwrap();
        assert!((found.0, found.1.as_str()) == (Class::SrBroken, "out.stochastic") && found.2.ends_with(&words), "{found:?}");
        // One in 200 may be elsewhere: ten of 2000.
        assert_eq!([of(0.0, 9).is_some(), of(0.0, 12).is_some()], [true, false]);
        // The deviation of 2000 draws is at most 22, of which five are 5.6 %.
        assert_eq!([0.03, -0.03, 0.1, -0.1].map(|b| of(b, 0).is_some()), [true, true, false, false]);
        let rounded = |by| with(Format::E4m3, x.clone(), &[], |at| e4m3(f64::from(x[at]), by), |cast| cast.drawn());
        assert_eq!([Rounding::NearestEven, Rounding::TowardZero].map(rounded), [None, None]);
    }

    #[test]
    fn codes_of_another_function_are_told_by_its_longest_steps() {
        let x = spread();
        let of = |change: &dyn Fn(usize, f64) -> Option<f64>| {
            let code = |at: usize| {
                let y = f64::from(x[at]);
                e4m3(change(at, y.abs()).map_or(y, |v| v.copysign(y)), Rounding::NearestEven)
            };
            with(Format::E4m3, x.clone(), &[], code, |cast| cast.stepped())
        };
        let (class, variant, words) = of(&|_, y| (8.0..15.5).contains(&y).then_some(8.0)).unwrap();
        assert_eq!((class, variant.as_str()), (Class::Rounding, "out.steps"));
        let steps: Vec<&str> = words.split(" become ").skip(1).map(|w| w.split(',').next().unwrap()).collect();
        assert_eq!(steps, ["8 instead of 9", "8 instead of 10", "8 instead of 11"], "{words}");
        assert!(
            words.starts_with("codes are another function of the scaled value: values of 8.5") && !words.contains(" in "),
            "{words}"
        );
        // All of it below twice the smallest normal number, or in the upper half of the range.
        for (low, high, class) in [
            (0.0, 0.03, Class::CodecEdge),
            (0.0, 0.04, Class::Rounding),
            (250.0, 500.0, Class::CodecEdge),
            (200.0, 500.0, Class::Rounding),
        ] {
            let to = if low > 0.0 { 300.0 } else { 0.0 };
            let other = |y: f64| if y < 0.5 { to + y / 2.0 } else { to - y / 10.0 };
            let found = of(&|_, y| (low..high).contains(&y).then(|| other(y))).unwrap();
            assert_eq!(found.0, class, "{low} … {high}: {found:?}");
        }
        // Wrong here and there: their neighbours are right.
        assert_eq!(of(&|at, y| (at % 33 == 0 && at < 33 * 60).then_some(2.0 * y)), None);
        assert_eq!(of(&|_, _| None), None);
        // Nearly all is one code: it was not written.
        assert_eq!(of(&|at, y| (at % 40 > 0 || y > 1.0).then_some(0.5)), None);
    }

    #[test]
    fn what_nan_and_infinity_become_is_told_beside_right_codes() {
        let of = |special: f32, codes: [u8; 2], wrong: bool| {
            let mut x = spread();
            (x[77], x[1234]) = (special, special);
            let code = |at: usize| match at {
                77 => codes[0],
                1234 => codes[1],
                5 if wrong => 0x38,
                _ => e4m3(f64::from(x[at]), Rounding::NearestEven),
            };
            with(Format::E4m3, x.clone(), &[], code, |cast| cast.specials())
        };
        let words = |what: &str| Some((Class::CodecEdge, "out.special".to_string(), what.to_string()));
        assert_eq!(of(f32::NAN, [0x38; 2], false), words("NaN becomes 1"));
        assert_eq!(of(f32::NAN, [0x7f; 2], false), None);
        assert_eq!(of(f32::INFINITY, [0x38; 2], false), words("Inf becomes 1"));
        // Saturated.
        assert_eq!(of(f32::INFINITY, [0x7e; 2], false), None);
        assert_eq!(of(f32::NAN, [0x38, 0x39], false), None, "two codes of it");
        assert_eq!(of(f32::NAN, [0x38; 2], true), None, "something else is wrong too");
    }

    #[test]
    fn zero_points_that_are_all_off_by_one_number_are_told() {
        let x: Vec<f32> = (0..ROWS * COLS).map(|at| (at * 37 % 151) as f32 - 75.25).collect();
        let zero: Vec<i32> = (0..ROWS as i32).map(|i| i % 9 - 4).collect();
        let of = |by: &dyn Fn(usize) -> i32| {
            let code = |at: usize| (x[at].round_ties_even() as i32 + zero[at / COLS] + by(at)) as i8 as u8;
            with(Format::Int8, x.clone(), &zero, code, |cast| cast.offset())
        };
        for n in [-7, -1, 3] {
            let words = format!("codes were made with zero points {n:+} off those stored beside them");
            assert_eq!(of(&|_| n), Some((Class::ZpOffset, "out.zero_point".into(), words)));
        }
        assert_eq!(of(&|_| 0), None);
        // 39 of 2000 may be others, 41 may not.
        assert_eq!([39, 41].map(|n| of(&|at| if at < n { 9 } else { 3 }).is_some()), [true, false]);
    }
}
