//! Codes of a cast that no rounding of the values makes: other zero points than those stored, a draw, and what becomes of NaN and Inf.

use super::encoders::{Cast, LEAST, Named, SHARE, nearest};
use crate::fault::Class;
use crate::fault::solve::segment::where_not_all;
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
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
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
        ranges.sort_by_key(|(from, to)| std::cmp::Reverse(to - from));
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

    /// What NaN and Inf became, where all else is right.
    pub fn specials(&self) -> Option<Named> {
        let finite = self.finite();
        finite.iter().all(|at| self.right(*at)).then_some(())?;
        for (what, is) in [("NaN", (|x: f64| x.is_nan()) as fn(f64) -> bool), ("Inf", |x: f64| x.is_infinite())] {
            let places: Vec<usize> = (0..self.q.codes().len()).filter(|at| is(self.element(*at).x)).collect();
            let Some(first) = places.first() else { continue };
            let v = self.value(*first).abs();
            let right = if what == "NaN" { v.is_nan() } else { v.is_infinite() || v == self.q.format().max_finite() };
            if !right && places.iter().all(|at| self.value(*at).abs() == v) {
                return Some((Class::CodecEdge, "out.special".into(), format!("{what} becomes {v}")));
            }
        }
        None
    }
}
