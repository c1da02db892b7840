//! Effective scales that are stored numbers of another place: lines of the grid, single cells, the other operand's, products with them.

use super::segment::spread_of;
use super::solved::{Gains, INDEX};
use super::system::Theory;
use crate::fault::Class;
use crate::order::Order as _;
use crate::{Format, Overflow, Rounding};

/// Lines of two numbers that tell, at least, and of so many at most.
const MANY: usize = 8;
const LOOKS: usize = 64;
/// Factors to numbers that a scale is not, where its format holds any: what fits those too fits by chance.
pub const BESIDE: [f64; 4] = [0.87, 0.94, 1.07, 1.16];

/// A stored scale to another number.
type Beside = Box<dyn Fn(f64) -> f64>;

impl Gains<'_> {
    /// The ways to numbers beside a stored scale that its format holds: all scales are of a lattice in 8 bits, and numbers between are those of
    /// none.
    fn beside(&self) -> Vec<Beside> {
        let (format, global) = (self.g.q.as_ref().map(|q| q.scale_format()), self.g.global);
        match format {
            Some(Format::E8m0) => [0.5, 2.0].map(|by| -> Beside { Box::new(move |x| by * x) }).into(),
            Some(f) if f.bits() == 8 => [-1i64, 1]
                .map(|d| -> Beside {
                    Box::new(move |x| {
                        let code = i64::from(f.encode(x / global, Rounding::NearestEven, Overflow::Saturate)) + d;
                        u32::try_from(code).map_or(f64::NAN, |c| f.decode(c & 0xff) * global)
                    })
                })
                .into(),
            _ => BESIDE.map(|by| -> Beside { Box::new(move |x| by * x) }).into(),
        }
    }

    /// For every changed cell the place of a stored number that `wanted` is, the cell's own before another. `None`: some have none, or as
    /// many are near as not.
    fn places(&self, numbers: &[f64], wanted: &dyn Fn(usize) -> f64) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..numbers.len()).collect();
        order.order_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
        let mut choices = 0;
        let mut all = Vec::new();
        for c in &self.changed {
            let (x, r) = (wanted(*c), self.within(*c) * wanted(*c).abs());
            let from = order.partition_point(|n| numbers[*n] < x - r);
            let near: Vec<usize> = order[from..].iter().copied().take_while(|n| numbers[*n] <= x + r).collect();
            // Equal numbers are one.
            let mut distinct: Vec<u64> = near.iter().map(|n| numbers[*n].to_bits()).collect();
            distinct.dedup();
            choices += distinct.len();
            let best = |a: &usize, b: &usize| (numbers[*a] - x).abs().total_cmp(&(numbers[*b] - x).abs());
            all.push(near.into_iter().min_by(best)?);
        }
        (choices <= all.len() + all.len() / 2).then_some(all)
    }

    /// Every wrong column of the grid has the scales of one other column, or every wrong row those of one other row: lines decide where
    /// single cells do not.
    pub fn lines_elsewhere(&self, values: &mut [f64]) -> Option<Theory> {
        let (rows, cols) = (self.grid.rows, self.grid.cols);
        (self.g.grid == (rows, cols) && rows > 1 && cols > 1).then_some(())?;
        let who = self.grid.side.name();
        for along_k in [true, false] {
            let (lines, length) = if along_k { (cols, rows) } else { (rows, cols) };
            let cell = |line: usize, x: usize| if along_k { x * cols + line } else { line * cols + x };
            let known = |line: usize| (0..length).filter(move |x| self.cells.within[cell(line, *x)].is_finite());
            let near = |line: usize, from: usize, of: &dyn Fn(f64) -> f64| {
                known(line).all(|x| {
                    let (c, e) = (cell(line, x), of(self.stored[cell(from, x)]));
                    (self.effective[c] - e).abs() <= (self.within(c) + 1e-6) * self.effective[c].abs()
                })
            };
            let is = |line: usize, from: usize| near(line, from, &|x| x);
            let changed = |line: usize| (0..length).filter(|x| self.cells.value[cell(line, *x)] != 1.0).count();
            // Lines of two numbers say something together: where the numbers beside them are those of no line.
            let told = || {
                let thin: Vec<usize> = (0..lines).filter(|l| (1..=2).contains(&changed(*l)) && known(*l).count() > 1).collect();
                let (looks, beside) = (spread_of(thin.len(), LOOKS), self.beside());
                let by_chance = |n: &usize| beside.iter().filter(|of| (0..lines).any(|from| near(thin[*n], from, *of))).count();
                let hits = looks.iter().map(by_chance).sum::<usize>();
                thin.len() >= MANY && 4 * hits <= looks.len() * beside.len()
            };
            let source = |line: usize| -> Option<usize> {
                if changed(line) == 0 {
                    return Some(line);
                }
                // Two lines that fit say nothing.
                let mut fit = (0..lines).filter(|from| *from != line && is(line, *from));
                let from = fit.next()?;
                fit.next().is_none().then_some(from)
            };
            let Some(from) = (0..lines).map(source).collect::<Option<Vec<usize>>>() else { continue };
            if (0..lines).any(|l| (1..=2).contains(&changed(l))) && !told() {
                continue;
            }
            let moved: Vec<usize> = (0..lines).filter(|l| from[*l] != *l).collect();
            for line in &moved {
                (0..length).for_each(|x| values[cell(*line, x)] = self.stored[cell(from[*line], x)]);
            }
            let some: Vec<String> = moved.iter().take(4).map(|l| format!("{l} ← {}", from[*l])).collect();
            let mut sources = from.clone();
            sources.sort_unstable();
            sources.dedup();
            // Where every line serves one it is the order that is wrong.
            let permuted = sources.len() == lines && moved.len() > 2;
            let (what, class) = match (along_k, permuted) {
                (true, _) => ("K group", Class::ScaleIndex),
                (false, true) => ("row", Class::ScaleLayout),
                (false, false) => ("row", Class::ScaleShared),
            };
            let within = [8usize, 16, 32, 64, 128, 256].into_iter().find(|n| (0..lines).all(|l| l / n == from[l] / n));
            let order = match (permuted, within.filter(|n| *n < lines)) {
                (true, Some(n)) => format!("stand in another order within every {n} {what}s"),
                (true, None) => format!("stand in another order of {what}s"),
                (false, _) => format!("are taken from another {what}"),
            };
            // Tokens that go to several experts have a row for each, and may have one scale for all of them.
            let served = |l: usize| from.iter().filter(|x| **x == l).count();
            let times = served(from[0]);
            let each = !along_k && times > 1 && sources.iter().all(|l| served(*l) == times);
            let rule = match each {
                true => format!(
                    "; each of {} rows serves {times}, as where they are looked up by the token and not by its copy",
                    sources.len()
                ),
                false => String::new(),
            };
            let words = format!("scales of {who} {order} ({}){rule}", some.join(", "));
            let bits = 6.0 + moved.len() as f64 * INDEX.max((lines as f64).log2());
            return Some(self.theory(class, "lines", words, bits));
        }
        None
    }

    /// One row's scales for all rows, or one K group's, and FP8 codes that are read as those of the sibling whose bias is one more or less: the
    /// factor of two beside a stored number.
    pub fn shared_by_sibling(&self, values: &mut [f64]) -> Option<Theory> {
        let who = self.grid.side.name();
        let (rows, cols) = (self.grid.rows, self.grid.cols);
        let (other, by) = match self.g.format()? {
            Format::E4m3Fnuz => (Format::E4m3, 2.0),
            Format::E5m2Fnuz => (Format::E5m2, 2.0),
            Format::E4m3 => (Format::E4m3Fnuz, 0.5),
            Format::E5m2 => (Format::E5m2Fnuz, 0.5),
            _ => return None,
        };
        (self.g.grid == (rows, cols) && self.changed.len() >= 3).then_some(())?;
        for (lines, class, what) in [(rows, Class::ScaleShared, "row"), (cols, Class::ScaleIndex, "K group")] {
            let from = |c: usize| if what == "row" { c % cols } else { c / cols * cols };
            let of_all = (0..self.stored.len()).filter(|c| self.cells.within[*c].is_finite()).all(|c| {
                let x = by * self.stored[from(c)];
                (self.effective[c] - x).abs() <= (self.within(c) + 1e-6) * self.effective[c].abs()
            });
            if lines < 2 || !of_all {
                continue;
            }
            (0..values.len()).for_each(|c| values[c] = by * self.stored[from(c)]);
            let words = format!(
                "scales of {who} are those of {what} 0 for all; and codes of {who} are read as {other}: all is times {by} of that"
            );
            let mut t = self.theory(class, "first", words, 12.0);
            t.variant = format!("{} + {}:{who}.sibling", t.variant, Class::BitsReinterpreted.name());
            return Some(t);
        }
        None
    }

    /// Powers of two in one or two cells, all scales being powers of two: such a number is stored at some place or other, which says nothing.
    pub fn exponents(&self, values: &mut [f64]) -> Option<Theory> {
        let power = |x: f64| x > 0.0 && x.log2().fract() == 0.0;
        let own = self.g.grid == (self.grid.rows, self.grid.cols) && self.grid.rows > 1;
        (own && self.changed.len() <= 2 && self.stored.iter().all(|s| power(*s))).then_some(())?;
        let off = |c: &usize| {
            let n = self.cells.value[*c].log2().round();
            ((self.cells.value[*c] / n.exp2() - 1.0).abs() <= self.within(*c) && n != 0.0).then_some(n)
        };
        let all: Vec<f64> = self.changed.iter().map(off).collect::<Option<_>>()?;
        self.changed.iter().zip(&all).for_each(|(c, n)| values[*c] = self.stored[*c] * n.exp2());
        let of = |(c, n): (&usize, &f64)| {
            let (row, group) = (c / self.grid.cols, c % self.grid.cols);
            format!("at row {row}, group {group} by {} too {}", n.abs(), if *n > 0.0 { "large" } else { "small" })
        };
        let places: Vec<String> = self.changed.iter().zip(&all).map(of).collect();
        let words = format!("the exponent of a scale of {} is wrong: {}", self.grid.side.name(), places.join("; "));
        Some(self.theory(Class::ScaleRerounded, "exponent", words, all.len() as f64))
    }

    /// Stored scales of other places, of this operand or of the other.
    pub fn elsewhere(&self, values: &mut [f64]) -> Option<Theory> {
        let (who, they) = (self.grid.side.name(), self.grid.side.other().name());
        let own = self.g.grid == (self.grid.rows, self.grid.cols);
        if own
            && self.stored.len() > 1
            && let Some(from) = self.places(&self.stored, &|c| self.effective[c])
        {
            let moved: Vec<(usize, usize)> = self.changed.iter().copied().zip(from).collect();
            let cols = self.grid.cols;
            let same_row = moved.iter().all(|(c, f)| c / cols == f / cols);
            let same_col = moved.iter().all(|(c, f)| c % cols == f % cols);
            let mut sources: Vec<usize> = moved.iter().map(|(_, f)| *f).collect();
            sources.sort_unstable();
            sources.dedup();
            let shared = 4 * sources.len() < 3 * moved.len();
            let class = match (same_row, same_col) {
                _ if sources.len() == 1 && moved.len() > 1 => Class::ScaleShared,
                (true, false) => Class::ScaleIndex,
                (false, true) if shared => Class::ScaleShared,
                _ => Class::ScaleLayout,
            };
            moved.iter().for_each(|(c, f)| values[*c] = self.stored[*f]);
            let place = |c: usize| if cols == 1 { format!("{c}") } else { format!("({}, {})", c / cols, c % cols) };
            let first: Vec<String> = moved.iter().take(4).map(|(c, f)| format!("{} ← {}", place(*c), place(*f))).collect();
            let words = format!("scales of {who} are taken from other places ({})", first.join(", "));
            let bits = 8.0 + moved.len() as f64 * INDEX.max((self.stored.len() as f64).log2());
            return Some(self.theory(class, "index", words, bits));
        }
        let theirs = self.theirs();
        if theirs.len() > 1
            && let Some(from) = self.places(&theirs, &|c| self.effective[c] / self.g.global)
        {
            self.changed.iter().zip(&from).for_each(|(c, f)| values[*c] = theirs[*f] * self.g.global);
            let bits = 8.0 + self.changed.len() as f64 * INDEX.max((theirs.len() as f64).log2());
            let words = format!("scales of {they} are used for {who}");
            return Some(self.theory(Class::ScaleLayout, &format!("of_{they}"), words, bits));
        }
        None
    }

    fn theirs(&self) -> Vec<f64> {
        let other = self.s.given(self.grid.side.other());
        other.scales().iter().map(|x| f64::from(*x)).collect()
    }

    /// The right scale, times or over another stored number.
    pub fn product(&self, values: &mut [f64]) -> Option<Theory> {
        let (who, they) = (self.grid.side.name(), self.grid.side.other().name());
        let own: Vec<f64> = self.g.scales().iter().map(|x| f64::from(*x)).collect();
        let theirs = self.theirs();
        // What has neither scale: the effective one is the other's reciprocal.
        if self.changed.len() > 1
            && let Some(from) = self.places(&theirs, &|c| 1.0 / self.effective[c])
        {
            self.changed.iter().zip(&from).for_each(|(c, f)| values[*c] = 1.0 / theirs[*f]);
            let bits = 9.0 + self.changed.len() as f64;
            return Some(self.theory(Class::ScaleOmitted, "neither", "neither scale is applied to it".into(), bits));
        }
        for (numbers, whose) in [(&own, who), (&theirs, they)] {
            for (over, word) in [(false, "multiplied by"), (true, "divided by")] {
                let wanted = |c: usize| if over { 1.0 / self.cells.value[c] } else { self.cells.value[c] };
                if numbers.len() < 2 || self.changed.len() < 2 {
                    continue;
                }
                let Some(from) = self.places(numbers, &wanted) else { continue };
                for (c, f) in self.changed.iter().zip(&from) {
                    values[*c] *= if over { 1.0 / numbers[*f] } else { numbers[*f] };
                }
                let words = format!("what has its scale of {who} is {word} a scale of {whose} too");
                let bits = 9.0 + self.changed.len() as f64 * INDEX.max((numbers.len() as f64).log2());
                return Some(self.theory(
                    Class::ScaleDoubledInverted,
                    &format!("{}_{whose}", if over { "over" } else { "times" }),
                    words,
                    bits,
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, found, noise, sum};
    use crate::job::Operand;
    use crate::{Format, QTensor};

    /// Rows of tokens that go to two experts, in the order of experts: each pair takes the scales of one row.
    #[test]
    fn scales_by_the_token_and_not_by_its_copy_are_told() {
        let (m, n, k_all) = (40, 48, 64);
        let (a, b) = (codes(Format::E4m3, m, k_all, 32, false, 111), codes(Format::E4m3, n, k_all, k_all, false, 112));
        let y = b.dequantize();
        let from = |i: usize| 7 * i % m / 2;
        let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
            let scale = |k: usize| f64::from(a.scale_inv()[from(i) * 2 + k / 32]);
            sum(k_all, |k| Format::E4m3.decode(u32::from(a.codes()[i * k_all + k])) * scale(k) * y[[j, k]])
        });
        assert_eq!(got.0, "scale_shared:a.lines", "{}", got.1);
        assert!(got.1.contains("each of 20 rows serves 2, as where they are looked up by the token"), "{}", got.1);
    }

    /// Powers of two: there are so few that another one is stored for nearly every line of two.
    #[test]
    fn numbers_of_a_lattice_are_those_of_another_line_by_chance() {
        let (m, n, k_all) = (64, 64, 64);
        let mut p = codes(Format::E4m3, m, k_all, 32, false, 111).into_parts();
        // Every pair of eight exponents is stored once: whatever a row took is stored for one.
        let stored = |x: usize| if x.is_multiple_of(2) { x / 16 } else { x / 2 % 8 } as f64 - 10.0;
        let exponent = |x: usize| (8.0 * noise(31 * x + 7)).floor() - 10.0;
        p.scale_inv = (0..2 * m).map(|x| stored(x).exp2() as f32).collect();
        p.scale_format = Format::E8m0;
        let (a, b) = (QTensor::new(p).unwrap(), codes(Format::E4m3, n, k_all, k_all, false, 112));
        let y = b.dequantize();
        // Exponents that nobody stored for these rows.
        let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
            let scale = |k: usize| exponent(5000 + 2 * i + k / 32).exp2();
            sum(k_all, |k| Format::E4m3.decode(u32::from(a.codes()[i * k_all + k])) * scale(k) * y[[j, k]])
        });
        assert!(!got.0.ends_with("a.lines"), "{} {}", got.0, got.1);
    }
}
