//! Effective scales that follow the stored ones: by a rule, in a line, as whole numbers, up to a limit.

use super::linear::Normal;
use super::output;
use super::scales;
use super::solved::{Gains, LINE};
use super::system::Theory;
use crate::fault::Class;

impl Gains<'_> {
    /// Whether the effective scales rise with the stored ones in a line, to a share of their spread.
    fn correlates(&self, least: f64) -> bool {
        let n = self.changed.len() as f64;
        let mean = |v: &[f64]| self.changed.iter().map(|c| v[*c]).sum::<f64>() / n;
        let (mx, my) = (mean(&self.stored), mean(&self.effective));
        let sum = |f: &dyn Fn(f64, f64) -> f64| {
            self.changed.iter().map(|c| f(self.stored[*c] - mx, self.effective[*c] - my)).sum::<f64>()
        };
        let (xx, yy, xy) = (sum(&|x, _| x * x), sum(&|_, y| y * y), sum(&|x, y| x * y));
        xx > n * (0.02 * mx).powi(2) && xy > least * (xx * yy).sqrt()
    }

    /// Whole numbers over one, that follow the stored scales: scales quantized to 8 bits whose own scale and offset are not applied.
    pub fn whole(&self, values: &mut [f64]) -> Option<Theory> {
        let who = self.grid.side.name();
        (self.changed.len() >= 8 && self.correlates(0.98)).then_some(())?;
        for over in [127.0, 128.0, 255.0, 256.0, 1.0, 15.0, 63.0, 7.0] {
            let n = |c: usize| self.effective[c] * over / self.g.global;
            let known: Vec<usize> = self.changed.iter().copied().filter(|c| self.within(*c) * n(*c).abs() < 0.2).collect();
            let is = |c: &usize| {
                let x = n(*c);
                x.abs() <= 256.0 && (x - x.round()).abs() <= self.within(*c) * x.abs() + 1e-4
            };
            // The others are near a whole number by chance.
            if known.len() < 8 || known.len() * 10 < self.changed.len() * 8 || !known.iter().all(is) {
                continue;
            }
            self.changed.iter().for_each(|c| values[*c] = n(*c).round() / over * self.g.global);
            let words = format!(
                "the scales of {who} are whole numbers over {over} that follow the stored ones: 8-bit scales without their own scale and offset"
            );
            return Some(self.theory(Class::ScaleOmitted, "second_level", words, 24.0));
        }
        None
    }

    /// One line through all cells: effective = α·stored + β.
    pub fn affine(&self, values: &mut [f64]) -> Option<Theory> {
        let who = self.grid.side.name();
        // Two numbers are always in a line.
        let mut stored: Vec<u64> = self.changed.iter().map(|c| self.stored[*c].to_bits()).collect();
        stored.sort_unstable();
        stored.dedup();
        (stored.len() > 2 && self.changed.len() >= 8 && self.correlates(0.999)).then_some(())?;
        let mut line = Normal::new(2);
        for c in &self.changed {
            let r = self.within(*c) * self.effective[*c].abs();
            line.add(&[self.stored[*c], 1.0], self.effective[*c], 1.0 / (r * r).max(1e-300));
        }
        let v = line.solve()?;
        let (mut by, mut plus) = (v[0], v[1]);
        let holds = |by: f64, plus: f64| {
            (0..self.stored.len()).filter(|c| self.cells.within[*c].is_finite()).all(|c| {
                (self.stored[c] * by + plus - self.effective[c]).abs() <= (self.within(c) + 1e-6) * self.effective[c].abs()
            })
        };
        // An offset that is a mean of the stored ones, or none beside a factor.
        let mean = self.stored.iter().sum::<f64>() / self.stored.len() as f64;
        let what = if holds(1.0, -mean) {
            (by, plus) = (1.0, -mean);
            "lack their mean".to_string()
        } else if holds(1.0, plus) {
            by = 1.0;
            format!("have {plus:.6e} added")
        } else if holds(by, plus) && plus != 0.0 {
            format!("are {by:.6} times the stored ones plus {plus:.6e}")
        } else {
            return None;
        };
        // One factor alone is no line.
        (plus.abs() > 0.02 * self.changed.iter().map(|c| self.effective[*c].abs()).fold(0.0, f64::max)).then_some(())?;
        (0..values.len()).for_each(|c| values[c] = by * self.stored[c] + plus);
        let words = format!("the scales of {who} {what}: an offset and a scale of scales that are not those stored");
        let mut t = self.theory(Class::ScaleOmitted, "offset", words, 30.0);
        t.fitted = plus != -mean;
        t.slack = if t.fitted { LINE } else { 0.0 };
        Some(t)
    }

    /// One limit for all scales: those beyond it have it, and the others are right.
    pub fn clamped(&self, values: &mut [f64]) -> Option<Theory> {
        let who = self.grid.side.name();
        (self.changed.len() >= 3 && self.changed.len() < self.stored.len()).then_some(())?;
        let (low, high) = self.factor_of(&|_| 1.0, &self.changed)?;
        let limit = output::roundest(low, high);
        let spread = self.changed.iter().any(|c| (self.stored[*c] - limit).abs() > 0.1 * limit.abs());
        let near = 2f64.powi(-7) * limit.abs();
        let is_changed = |c: usize| self.cells.value[c] != 1.0;
        let side = |above: bool| {
            (0..self.stored.len()).all(|c| {
                let d = if above { self.stored[c] - limit } else { limit - self.stored[c] };
                if is_changed(c) { d > -near } else { d < near }
            })
        };
        let (above, below) = (side(true), side(false));
        (limit > 0.0 && spread && above != below).then_some(())?;
        let what = if above { "above" } else { "below" };
        for v in values.iter_mut() {
            *v = if above { v.min(limit) } else { v.max(limit) };
        }
        let words = format!("the scales of {who} are clamped from {what} at {}", output::short(limit, high - low));
        let mut t = self.theory(Class::RangeRule, "clamped", words, 20.0);
        (t.fitted, t.slack) = (true, (high - low) / limit);
        Some(t)
    }

    /// A rule of all scales, and one factor beside it.
    pub fn rule(&self, values: &mut [f64]) -> Option<Theory> {
        let who = self.grid.side.name();
        let global = self.g.global;
        for rule in scales::RULES.iter().filter(|r| scales::applies(r, self.g)) {
            let by = |c: usize| (rule.4)(self.stored[c] / global) * global;
            let Some((low, high)) = self.factor(&by) else { continue };
            let one = low <= 1.0 && 1.0 <= high;
            // One factor behind a rule needs numbers that differ.
            let spread = self.changed.iter().any(|c| (by(*c) - by(self.changed[0])).abs() > 0.01 * by(*c).abs());
            let told = spread || self.stored.iter().any(|s| (s - self.stored[0]).abs() > 0.1 * s.abs());
            if !one && (!told || self.changed.len() < 3) {
                continue;
            }
            // A rare rule and a factor beside it are two numbers taken from the result, as is a factor that leaves nothing.
            if !one && (rule.3 >= 3.0 || !(1e-6..1e6).contains(&high.abs()) || high - low > 0.05 * high.abs()) {
                continue;
            }
            // One number for all that is stored is the scale of one place, which maps name; half or twice of one is that beside codes of another bias.
            let flat = self.changed.iter().all(|c| by(*c) == by(self.changed[0]));
            let is = |x: f64| (low..=high).contains(&(x / by(self.changed[0])));
            if !one && flat && self.stored.iter().any(|s| [0.5, 1.0, 2.0].iter().any(|x| is(x * s))) {
                continue;
            }
            let by_all = if one { 1.0 } else { output::roundest(low, high) };
            (0..values.len()).for_each(|c| values[c] = by(c) * by_all);
            let mut t = self.theory(rule.0, rule.1, format!("the scales of {who} are {}", rule.2), rule.3 + 4.0);
            if !one {
                t.variant = format!("{} + {}:out.gain", t.variant, Class::StaleState.name());
                t.detail = format!("{}; and everything is multiplied by {}", t.detail, output::short(by_all, high - low));
                (t.fitted, t.slack) = (true, (high - low) / by_all.abs());
                t.bits += 22.0;
            }
            return Some(t);
        }
        None
    }
}
