//! Scales and zero points whose address has the line of the other operand in it as well: a stride of batches that should be 0, a column that carries into
//! the row.
//!
//! ```text
//! out[i, j] = Σ_u number[first + f(x) + g(y) + place(u)] · Σ_{k in u} code·other        x: the line, y: that of the other operand
//! ```
//!
//! f is solved on the elements of one y by value, and told by digits; then how much further on each other y reads, and that by digits.

use super::super::segment::spread;
use super::super::system::{System, Theory};
use super::digits::{CANDIDATES, DigitMap, Known, solve};
use super::units::{Memory, Units, What, coefficients, memories, units};
use super::{address, stepped};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::sync::Arc;

/// Multiply-adds of one line of elements.
const WORK: usize = 1 << 25;
/// Lines of each operand that are looked at, and those of a y that say how far on it reads.
const LINES: usize = 40;
const LOOKS: usize = 8;
const LEAST: usize = 5;

/// Of both operands of a product that sums all of K.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    s.sides().iter().flat_map(|side| of(s, *side)).collect()
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let n = g.grid.1;
    let plain = |m: &Memory| m.plain && m.p.len() * n * LINES <= WORK;
    // Zero points with their scales first: what reads both explains what either does.
    memories(g, s.experts(side)).into_iter().filter(plain).flat_map(|m| Search { s, side, memory: m }.theories()).collect()
}

/// Low numbers and powers of two, which tell digits, and others below n.
fn some(n: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..n).collect();
    spread(&mut all, LINES / 2);
    all.extend((0..n.min(LINES / 4)).chain((0..16).map(|b| 1usize << b).filter(|x| *x < n)));
    all.sort_unstable();
    all.dedup();
    all
}

struct Search<'s> {
    s: &'s System<'s>,
    side: Which,
    memory: Memory,
}

impl Search<'_> {
    /// Lines of the operand, and of the other, in a group.
    fn sizes(&self, e: usize) -> (usize, usize) {
        let rows = self.s.parts[e].rows.len();
        if self.side == Which::A { (rows, self.s.cols) } else { (self.s.cols, rows) }
    }

    fn place(&self, e: usize, x: usize, y: usize) -> (usize, usize) {
        let first = self.s.parts[e].rows.start;
        if self.side == Which::A { (first + x, y) } else { (first + y, x) }
    }

    fn units(&self, at: (usize, usize)) -> Option<Units> {
        units(self.s, self.side, self.memory.what, self.s.given(self.side).tile.1, at)
    }

    fn places(&self) -> Vec<i64> {
        (0..self.s.given(self.side).grid.1 as i64).collect()
    }

    /// The places inside that may make one element.
    fn bases(&self, at: (usize, usize)) -> Vec<i64> {
        let places = self.places();
        let last = self.memory.p.len() - places.len();
        let Some(e) = self.units(at) else { return Vec::new() };
        (0..=last as i64).filter(|b| self.memory.fits(&e, *b, &places, self.s.relative)).take(CANDIDATES + 1).collect()
    }

    fn known(&self, e: usize, y: usize) -> Vec<Known> {
        let which = some(self.sizes(e).0);
        let of = |n: usize| (which[n], self.bases(self.place(e, which[n], y)));
        parallel::collect(which.len(), of).into_iter().filter(|k| (1..=CANDIDATES).contains(&k.1.len())).collect()
    }

    /// How much further on a line of the other operand reads than the map of this one says: the only place for all looks.
    fn further(&self, e: usize, y: usize, map: &DigitMap) -> Option<i64> {
        let (places, span) = (self.places(), self.memory.p.len() as i64);
        let mut which: Vec<usize> = (0..self.sizes(e).0).collect();
        spread(&mut which, LOOKS);
        let looks: Vec<(i64, Units)> =
            which.iter().filter_map(|x| Some((map.at(*x), self.units(self.place(e, *x, y))?))).collect();
        (looks.len() >= LEAST.min(which.len())).then_some(())?;
        // What lies outside, whole or in part, says nothing.
        let inside = |at: i64| at >= 0 && at + places.len() as i64 <= span;
        let fits = |t: &i64| {
            let mut seen = 0;
            let all = looks.iter().all(|(at, e)| {
                let told = inside(at + t);
                seen += usize::from(told);
                !told || self.memory.fits(e, at + t, &places, self.s.relative)
            });
            all && seen >= LEAST.min(looks.len())
        };
        let mut all = (-span..span).filter(fits);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    }

    /// What lies behind the end is 0, or nobody knows it.
    fn theories(&self) -> Vec<Theory> {
        let Some((f, g, steps, e)) = self.solved() else { return Vec::new() };
        [false, true].map(|unseen| self.told(&f, &g, &steps, e, unseen)).into()
    }

    fn solved(&self) -> Option<(DigitMap, DigitMap, Vec<i64>, usize)> {
        let (s, span) = (self.s, self.memory.p.len());
        let e = (0..s.parts.len()).max_by_key(|e| (self.sizes(*e).0, usize::MAX - e))?;
        (span >= self.places().len()).then_some(())?;
        let (lines, breadth) = self.sizes(e);
        (lines > LEAST && breadth > 2).then_some(())?;
        // The y with the most wrong elements.
        let wrong = |y: &usize| {
            let is = |x: &usize| {
                let (i, j) = self.place(e, *x, *y);
                s.is_wrong[i * s.cols + j]
            };
            ((0..lines).filter(is).count(), usize::MAX - y)
        };
        let y0 = some(breadth).into_iter().max_by_key(wrong)?;
        let f = solve(&self.known(e, y0), span)?;
        // How far on the others read.
        let ys = some(breadth);
        let shifts = parallel::collect(ys.len(), |n| self.further(e, ys[n], &f));
        let known: Vec<Known> = ys.iter().zip(&shifts).filter_map(|(y, t)| Some((*y, vec![(*t)?]))).collect();
        let g = solve(&known, span)?;
        // One address for all y is told elsewhere.
        (0..breadth).any(|y| g.at(y) != g.at(y0)).then_some(())?;
        let of_group = |other: usize| -> Option<(usize, i64)> {
            let (lines, breadth) = self.sizes(other);
            (other != e && lines > LEAST && breadth > 0).then_some(())?;
            Some((other, self.further(other, 0, &f)? - g.at(0)))
        };
        let shifts: Vec<(usize, i64)> = (0..s.parts.len()).filter_map(of_group).collect();
        let starts: Vec<i64> = s.parts.iter().map(|p| if self.side == Which::A { p.a } else { p.b } as i64).collect();
        let steps = stepped(&shifts, e, &starts, span, s.parts.len())?;
        Some((f, g, steps, e))
    }

    fn told(&self, f: &DigitMap, g: &DigitMap, steps: &[i64], solved: usize, unseen: bool) -> Theory {
        let (s, side, memory) = (self.s, self.side, self.memory.clone());
        let (given, name, long) = (s.given(side).clone(), side.name(), s.given(side).tile.1);
        let (line, other, they) = if side == Which::A { ("m", "n", "b") } else { ("n", "m", "a") };
        let (what, class) = match memory.what {
            What::Scale => ("scales", Class::ScaleIndex),
            What::Zero => ("zero points", Class::ZpCorrection),
            What::Both => ("scales and zero points", Class::ScaleIndex),
        };
        let first = f.first + g.first - steps[solved];
        let mut more = g.words(other);
        if given.grid.1 > 1 {
            more.push(format!("(k / {long})"));
        }
        let words = format!(
            "{what} of {name}: the address has the row of {they} in it: that of ({line}, k) for row {other} of {they} is number {} of the tensor{}; {}",
            address(&DigitMap { first, ..f.clone() }, line, steps, more),
            if s.parts.len() > 1 { ", rows counted within their group" } else { "" },
            if unseen { "what lies behind the end is not known" } else { "0 behind the end" }
        );
        let bits = 12.0 + f.bits() + g.bits() + if unseen { 2.0 } else { 0.0 };
        // Rows of both operands of each row of the result, and its group.
        let parts = s.parts.clone();
        let part = s.part.clone();
        let (across, bias, cols) = (s.given(side.other()).clone(), s.bias.clone(), s.cols);
        let (n, span) = (given.grid.1 as i64, memory.p.len() as i64);
        let base = {
            let (parts, part, steps, f, g) = (parts.clone(), part.clone(), steps.to_vec(), f.clone(), g.clone());
            move |i: usize, j: usize| -> Option<i64> {
                let e = part[i]?;
                let m = i - parts[e].rows.start;
                let (x, y) = if side == Which::A { (m, j) } else { (j, m) };
                Some(steps[e] + first + f.at(x) + g.at(y) - g.first - f.first)
            }
        };
        let base = Arc::new(base);
        let mut t = Theory::new(class, name, format!("{name}.cross_address"), words).bits(bits);
        let of = base.clone();
        if unseen {
            t.unseen = Some(Arc::new(move |i, j| of(i, j).is_some_and(|b| b < 0 || b + n > span)));
        }
        let places = self.places();
        t.sums(s.right_sums(), cols, move |i, j| {
            let Some((b, e)) = base(i, j).zip(part[i]) else { return (0.0, 0.0) };
            let (ra, rb) = (parts[e].a + i - parts[e].rows.start, parts[e].b + j);
            let lines = if side == Which::A { (ra, rb) } else { (rb, ra) };
            match coefficients(&given, &across, memory.what, long, lines) {
                Some(e) => (e.rest + memory.sum(&e, b, &places) + bias.at(i, j), memory.size(&e, b, &places) + e.rest.abs()),
                None => (0.0, 0.0),
            }
        });
        t
    }
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, found, grouped_found, noise, sum, wide};
    use crate::job::Operand;
    use crate::{Format, Zero};

    /// The host hands the stride of a row over as that of a batch: row m of a reads the scales and zero points of row n + 2·m.
    #[test]
    fn a_stride_of_batches_that_should_be_0_is_told() {
        let (m, n, k_all) = (7, 60, 128);
        let (a, b) = (wide(m, k_all), codes(Format::Uint4, n, k_all, 32, true, 141));
        let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        let of = |row: &dyn Fn(usize, usize) -> usize| {
            found(&a, &b, None, Format::F16, |i, j, _| {
                let cell = |k: usize| row(i, j) * 4 + k / 32;
                // Behind the last row lies something else.
                let scale = |k: usize| b.scale_inv().get(cell(k)).map_or(0.03 + noise(cell(k)), |s| f64::from(*s));
                let zero = |k: usize| z.get(cell(k)).map_or(5.0, |z| f64::from(*z));
                sum(k_all, |k| x[[i, k]] * (f64::from(b.codes()[j * k_all + k]) - zero(k)) * scale(k))
            })
        };
        let got = of(&|i, j| j + i);
        assert_eq!(got.0, "scale_index:b.cross_address", "{}", got.1);
        let words = "scales and zero points of b: the address has the row of a in it: that of (n, k) for row m of a is number 4·n + 4·m + (k / 32)";
        assert!(got.1.contains(words) && got.1.ends_with("what lies behind the end is not known"), "{}", got.1);
        // Rows in no order.
        let got = of(&|i, j| (noise(31 * i + 7 * j) * 59.0) as usize);
        assert!(!got.0.contains("address"), "{got:?}");
    }

    /// The rows of a tile's second half take the scales of its first, and columns carry into the row.
    #[test]
    fn scales_by_row_and_column_in_each_group_are_told() {
        let (n, k_all, ends) = (40, 64, [50usize, 61, 96]);
        let (a, b) = (codes(Format::E4m3, 96, k_all, k_all, false, 143), codes(Format::E4m3, 3 * n, k_all, k_all, false, 144));
        let (x, y) = (a.dequantize(), b.dequantize());
        let got = grouped_found(&Operand::Quantized(a.clone()), &b, &ends, Format::F16, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            let start = if e == 0 { 0 } else { ends[e - 1] };
            let row = i - start;
            let at = start + row / 32 * 32 + row % 16 + j % 4;
            let scale = a.scale_inv().get(at).map_or(0.0, |s| f64::from(*s));
            sum(k_all, |k| x[[i, k]] * y[[e * n + j, k]]) / f64::from(a.scale_inv()[i]) * scale
        });
        assert_eq!(got.0, "scale_index:a.cross_address", "{}", got.1);
        let words = "number the first row of the group + 32·(m / 32) + (m mod 16) + (n mod 4) of the tensor";
        assert!(got.1.contains(words), "{}", got.1);
    }
}
