//! Finds what a wrong dequantization did with codes and scales: solves a table of values by code, a table of scales by their codes, a
//! scale and a zero point for every group.
//!
//! ```text
//! result / scale ──► the values that a code may have had ──► their intersection over all elements of it: the table
//! result / value ──► the scales that a group may have had ──► the same over all groups of one stored scale: its table
//! ```

use super::assay::Answer;
use super::{
    Bundle, bit_layouts, cut_scales, decoded_words, misread_groups, over_places, packed_scales, scale_offset, scale_steps,
    struct_strides, swizzled, widened, zero_index,
};
use crate::compare::digits;
use crate::fault::solve::maps::shortest_ways;
use crate::fault::solve::segment::lines;
use crate::fault::{Class, Finding};
use crate::format::FORMATS;
use crate::job::Operand;
use crate::op::Op;
use crate::{Format, QTensor, Zero};

/// What products in f32 and their rounding may be off, relative.
const NEAR: f64 = 1.0 / (1u64 << 21) as f64;
/// The share of elements that a table has to make.
const SHARE: f64 = 0.98;
/// Wrong elements, and elements that could have contradicted a table, at least.
const LEAST: usize = 8;
/// Entries that are shown.
const SHOWN: usize = 3;

/// A name: class, variant, words.
type Named = (Class, &'static str, String);

/// What is known of one entry of a table.
#[derive(Clone, Copy, Debug)]
struct Entry {
    low: f64,
    high: f64,
    /// Elements: finite ones, NaN, Inf.
    finite: usize,
    nan: usize,
    inf: usize,
    contradictions: usize,
}

impl Entry {
    const NONE: Entry = Entry { low: f64::NEG_INFINITY, high: f64::INFINITY, finite: 0, nan: 0, inf: 0, contradictions: 0 };

    fn count(&self) -> usize {
        self.finite + self.nan + self.inf
    }
    fn take(&mut self, (low, high): (f64, f64)) {
        self.finite += 1;
        let (l, h) = (self.low.max(low), self.high.min(high));
        if l <= h { (self.low, self.high) = (l, h) } else { self.contradictions += 1 }
    }
    /// Elements that are not what the others of their entry are.
    fn against(&self) -> usize {
        let most = (self.finite - self.contradictions).max(self.nan).max(self.inf);
        self.count() - most
    }
    fn is_nan(&self) -> bool {
        self.nan > self.finite.max(self.inf)
    }
    fn is_inf(&self) -> bool {
        self.inf > self.finite.max(self.nan)
    }
    fn holds(&self, x: f64) -> bool {
        match (self.is_nan(), self.is_inf()) {
            (true, _) => x.is_nan(),
            (_, true) => x.is_infinite(),
            _ => self.low <= x && x <= self.high,
        }
    }
    fn words(&self) -> String {
        match (self.is_nan(), self.is_inf()) {
            (true, _) => "NaN".into(),
            (_, true) => "Inf".into(),
            _ => {
                let x = if self.low <= 0.0 && self.high >= 0.0 {
                    0.0
                } else {
                    crate::fault::solve::output::roundest(self.low, self.high)
                };
                digits::apart([x])[0].clone()
            }
        }
    }
}

struct Decoded<'b> {
    q: &'b QTensor,
    actual: &'b [f64],
    cells: Vec<(f64, f64)>,
    wrong: Vec<usize>,
    zero: Vec<f64>,
}

/// What explains a dequantization that failed. `None`: another op, or nothing known.
pub fn explain(bundle: &Bundle, found: &Answer) -> Option<Finding> {
    (bundle.meta.op == Op::Dequantize).then_some(())?;
    let Operand::Quantized(q) = found.assayed.built.job.operands.a() else { return None };
    let part = found.judgement();
    (part.actual.len() == q.codes().len()).then_some(())?;
    let (out, certain) = (part.bound.out(), part.bound.certain());
    let cell = |at: usize| {
        let (low, high) = out.cell(at, part.actual[at]);
        let slack = NEAR * part.actual[at].abs() + if certain[at].is_finite() { certain[at] } else { 0.0 };
        (low - slack, high + slack)
    };
    let cells: Vec<(f64, f64)> = (0..part.actual.len()).map(cell).collect();
    let zero = match q.zero() {
        Zero::Additive { zero, .. } => zero.iter().map(|z| f64::from(*z)).collect(),
        _ => Vec::new(),
    };
    let mut this = Decoded { q, actual: &part.actual, cells, wrong: Vec::new(), zero };
    this.wrong = (0..part.actual.len()).filter(|at| !this.is(*at, this.right(*at))).collect();
    (this.wrong.len() >= LEAST).then_some(())?;
    let named = this.levels().or_else(|| this.zero_points()).or_else(|| this.table()).or_else(|| this.scales());
    let named = named.or_else(|| this.of_words());
    let elsewhere =
        |at: usize, from: usize, scale: usize| this.is(at, this.q.affine(this.group(scale)).value(this.value(from)));
    let of_group = |at: usize, g: usize| this.is(at, this.q.affine(g).value(this.value(at)));
    let named = named.or_else(|| scale_steps::explain(q, &of_group, &this.wrong));
    let named = named.or_else(|| decoded_words::explain(q, &elsewhere, &this.wrong));
    let named = named.or_else(|| this.of_layouts());
    let near = |at: usize, y: f64, off: f64| this.is(at, y) || this.cells[at].0 - off <= y && y <= this.cells[at].1 + off;
    let named = named.or_else(|| misread_groups::explain(q, &near, &this.wrong));
    let (class, variant, words) = named.or_else(|| struct_strides::explain(q, &|at, y| this.is(at, y), &this.wrong))?;
    let mut found = Finding::solved(class, variant, words);
    found.operand = "a";
    Some(found)
}

impl Decoded<'_> {
    fn code(&self, at: usize) -> usize {
        usize::from(self.q.codes()[at])
    }
    fn group(&self, at: usize) -> usize {
        self.q.scale_index(at / self.q.cols(), at % self.q.cols())
    }
    fn value(&self, at: usize) -> f64 {
        self.q.format().decode(self.code(at) as u32)
    }
    fn right(&self, at: usize) -> f64 {
        self.q.affine(self.group(at)).value(self.value(at))
    }
    fn is(&self, at: usize, y: f64) -> bool {
        let (low, high) = self.cells[at];
        let x = self.actual[at];
        y == x || (y.is_nan() && x.is_nan()) || (low <= y && y <= high)
    }

    /// The elements of the rows or columns that are wrong, and where that is in words.
    fn place(&self) -> (Vec<usize>, String) {
        let (rows, cols) = (self.q.rows(), self.q.cols());
        let (mut is_row, mut is_col) = (vec![false; rows], vec![false; cols]);
        self.wrong.iter().for_each(|at| (is_row[at / cols], is_col[at % cols]) = (true, true));
        // Lines that make no range are where the wrong codes happen to stand.
        for lines in [&mut is_row, &mut is_col] {
            let first = lines.iter().position(|x| *x).unwrap_or(0);
            let last = lines.iter().rposition(|x| *x).unwrap_or(0);
            if lines[first..=last].contains(&false) {
                lines.fill(true);
            }
        }
        let all = (0..rows * cols).filter(|at| is_row[at / cols] && is_col[at % cols]).collect();
        let words = match (is_row.contains(&false), is_col.contains(&false)) {
            (false, false) => String::new(),
            (true, false) => format!(", in rows {}", lines(&is_row)),
            (false, true) => format!(", in columns {}", lines(&is_col)),
            _ => format!(", in rows {}, columns {}", lines(&is_row), lines(&is_col)),
        };
        (all, words)
    }

    /// Both levels of scales and zero points, taken for each other or left out.
    fn levels(&self) -> Option<Named> {
        (!self.zero.is_empty() && self.q.level().is_some()).then_some(())?;
        let (inside, place) = self.place();
        let of = |at: &usize| {
            let g = self.group(*at);
            let (over, zero_over) = self.q.over(g);
            let minus = self.q.affine(g).minus;
            (self.value(*at) - minus, f64::from(self.q.scale_inv()[g]), f64::from(over), self.zero[g], f64::from(zero_over))
        };
        type Way = fn((f64, f64, f64, f64, f64)) -> f64;
        let ways: [(Class, &str, Way); 10] = [
            (
                Class::ScaleLayout,
                "the second levels of scales and zero points are exchanged: scales are multiplied by global_zero_point, zero points by \
                 global_scale_inv",
                |(c, s, o, z, p)| c * s * p + z * o,
            ),
            (
                Class::ScaleLayout,
                "the second levels of scales and zero points are exchanged, but for their signs",
                |(c, s, o, z, p)| c * s * p.abs() * o.signum() + z * o.abs() * p.signum(),
            ),
            (Class::ScaleLayout, "scales and zero points are exchanged", |(c, s, o, z, p)| c * z * p + s * o),
            (Class::ScaleLayout, "the codes of scales and zero points are exchanged", |(c, s, o, z, p)| c * z * o + s * p),
            (Class::ScaleShared, "zero points are multiplied by global_scale_inv too", |(c, s, o, z, _)| c * s * o + z * o),
            (Class::ScaleShared, "scales are multiplied by global_zero_point too", |(c, s, _, z, p)| c * s * p + z * p),
            (Class::ZpCorrection, "zero points have the other sign", |(c, s, o, z, p)| c * s * o - z * p),
            (Class::ZpCorrection, "zero points are not added", |(c, s, o, _, _)| c * s * o),
            (Class::ScaleOmitted, "zero points lack their second level", |(c, s, o, z, _)| c * s * o + z),
            (Class::ZpCorrection, "zero points are multiplied by the scale too", |(c, s, o, z, p)| (c + z * p) * s * o),
        ];
        let made =
            |way: Way, all: &[usize]| all.iter().filter(|at| self.is(**at, way(of(at)))).count() as f64 / all.len() as f64;
        let (class, words, _) = ways.iter().find(|w| made(w.2, &self.wrong) > SHARE && made(w.2, &inside) > SHARE)?;
        Some((*class, "a.levels", format!("{words}{place}")))
    }

    /// The zero point that each group was given, where these are other numbers.
    fn zero_points(&self) -> Option<Named> {
        let Zero::Integer(stored) = self.q.zero() else { return None };
        // One for every group, from its first element that says one.
        let mut used: Vec<Option<f64>> = vec![None; stored.len()];
        for (at, (low, high)) in self.cells.iter().enumerate() {
            let g = self.group(at);
            let unit = self.q.affine(g).unit;
            if used[g].is_none() && unit != 0.0 && unit.is_finite() && low.is_finite() && high.is_finite() {
                let (z, off) = (self.value(at) - 0.5 * (low + high) / unit, 0.5 * ((high - low) / unit).abs());
                used[g] = Some(z.round()).filter(|whole| off < 0.25 && (z - whole).abs() <= off + 1e-3);
            }
        }
        let grid = self.q.granularity().grid(self.q.rows(), self.q.cols());
        let scales: Vec<f64> = (0..stored.len()).map(|g| self.q.affine(g).unit).collect();
        let stored: Vec<f64> = stored.iter().map(|z| f64::from(*z)).collect();
        let made = |zero: &[f64]| {
            let is = |at: &usize| {
                let g = self.group(*at);
                self.is(*at, (self.value(*at) - zero[g]) * scales[g])
            };
            (0..self.actual.len()).filter(is).count() as f64 >= SHARE * self.actual.len() as f64
        };
        zero_index::explain(&zero_index::Zeros { grid, stored: &stored, scales: &scales, used: &used, made: &made })
    }

    /// Codes of few bits whose bits are those of other places.
    fn of_layouts(&self) -> Option<Named> {
        self.q.format().is_integer().then_some(())?;
        let own = |at: usize| self.value(at) as i64;
        let shown = |at: usize| {
            let (affine, (low, high)) = (self.q.affine(self.group(at)), self.cells[at]);
            let (c, off) =
                ((0.5 * (low + high) - affine.plus) / affine.unit + affine.minus, (0.5 * (high - low) / affine.unit).abs());
            (off < 0.25 && (c - c.round()).abs() <= off + 1e-4).then(|| c.round() as i64)
        };
        let (count, cols, wrong) = (self.actual.len(), self.q.cols(), &self.wrong[..]);
        bit_layouts::explain(&bit_layouts::Seen { count, cols, wrong, own: &own, shown: &shown })
    }

    /// Codes that are widened in words of several, with the bits of a neighbour left in.
    fn of_words(&self) -> Option<Named> {
        // Of most formats there are none.
        widened::is_widened(self.q.format()).then_some(())?;
        let (inside, place) = self.place();
        let cols = self.q.cols();
        let made = |of: &dyn Fn(u8, u8) -> f64, other: &dyn Fn(usize) -> Option<usize>, lane: &dyn Fn(usize) -> bool| {
            let is = |at: &&usize| {
                let (row, j) = (**at / cols * cols, **at % cols);
                let other = if lane(j) { other(j).filter(|o| *o < cols).map(|o| self.q.codes()[row + o]) } else { None };
                let v = other.map_or_else(|| self.value(**at), |other| of(self.q.codes()[**at], other));
                self.is(**at, self.q.affine(self.group(**at)).value(v))
            };
            let share = |all: &[usize]| all.iter().filter(is).count() as f64 >= SHARE * all.len() as f64;
            let few: Vec<usize> = self.wrong.iter().copied().step_by(self.wrong.len().div_ceil(64)).collect();
            share(&few) && share(&self.wrong) && share(&inside)
        };
        let words = widened::explain(self.q.format(), &made)?;
        let place = if inside.len() == self.actual.len() { String::new() } else { place };
        Some((Class::BitsReinterpreted, "a.neighbour_bits", format!("{words}{place}")))
    }

    /// The value that each code was given.
    fn table(&self) -> Option<Named> {
        let f = self.q.format();
        let (inside, place) = self.place();
        let mut table = vec![Entry::NONE; 1 << f.bits()];
        for at in &inside {
            let (affine, y) = (self.q.affine(self.group(*at)), self.actual[*at]);
            if affine.unit == 0.0 || !affine.unit.is_finite() || !affine.plus.is_finite() {
                continue;
            }
            let entry = &mut table[self.code(*at)];
            match (y.is_nan(), y.is_infinite()) {
                (true, _) => entry.nan += 1,
                (_, true) => entry.inf += 1,
                _ => {
                    let ends = [self.cells[*at].0, self.cells[*at].1].map(|y| (y - affine.plus) / affine.unit + affine.minus);
                    entry.take((ends[0].min(ends[1]), ends[0].max(ends[1])));
                }
            }
        }
        let value = |c: usize| f.decode(c as u32);
        consistent(&table).then_some(())?;
        let used: Vec<usize> = (0..table.len()).filter(|c| table[*c].count() > 0).collect();
        let wrong: Vec<usize> = used.iter().copied().filter(|c| !table[*c].holds(value(*c))).collect();
        (!wrong.is_empty()).then_some(())?;
        // One factor for all is no table.
        let told = |c: &&usize| table[**c].finite > 0 && value(**c) != 0.0;
        let factor = wrong.iter().filter(told).fold((f64::NEG_INFINITY, f64::INFINITY), |(low, high), c| {
            let ends = [table[*c].low / value(*c), table[*c].high / value(*c)];
            (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])))
        });
        if factor.0 <= factor.1 && wrong.len() > 4 && wrong.iter().filter(told).count() == wrong.len() {
            return None;
        }
        let other = FORMATS
            .iter()
            .map(|spec| spec.format)
            .find(|g| *g != f && g.bits() == f.bits() && used.iter().all(|c| table[*c].holds(g.decode(*c as u32))));
        if let Some(g) = other {
            return Some((Class::BitsReinterpreted, "a.table", format!("codes of {f} are decoded as {g}{place}")));
        }
        let shown = |c: &usize| format!("{c:#x} is {} instead of {}", table[*c].words(), digits::apart([value(*c)])[0]);
        let step = wrong.len().div_ceil(SHOWN);
        let some: Vec<String> = wrong.iter().step_by(step).map(shown).collect();
        let set = which(f, &wrong, &used);
        let words =
            format!("{} of {} codes are decoded to other values: {}{set}{place}", wrong.len(), used.len(), some.join(", "));
        let class = if 2 * wrong.len() > used.len() { Class::BitsReinterpreted } else { Class::CodecEdge };
        Some((class, "a.table", words))
    }

    /// The scale that each group was given: a function of the one stored, or another's.
    fn scales(&self) -> Option<Named> {
        self.zero.is_empty().then_some(())?;
        let n = self.q.scale_inv().len();
        let mut groups = vec![Entry::NONE; n];
        for at in 0..self.actual.len() {
            let g = self.group(at);
            let (by, y) = (self.value(at) - self.q.affine(g).minus, self.actual[at]);
            if by == 0.0 || !by.is_finite() {
                continue;
            }
            match (y.is_nan(), y.is_infinite()) {
                (true, _) => groups[g].nan += 1,
                (_, true) => groups[g].inf += 1,
                _ => {
                    let ends = [self.cells[at].0 / by, self.cells[at].1 / by];
                    groups[g].take((ends[0].min(ends[1]), ends[0].max(ends[1])));
                }
            }
        }
        consistent(&groups).then_some(())?;
        let unit = |g: usize| self.q.affine(g).unit;
        let wrong: Vec<usize> = (0..n).filter(|g| groups[*g].count() > 0 && !groups[*g].holds(unit(*g))).collect();
        (!wrong.is_empty()).then_some(())?;
        // Another place of the grid.
        let grid = self.q.granularity().grid(self.q.rows(), self.q.cols());
        let all = shortest_ways(grid.0, grid.1);
        let far = |g: &&usize| (unit(**g) / unit(0) - 1.0).abs() > 1e-3;
        if (0..n).collect::<Vec<_>>().iter().filter(far).count() >= LEAST
            && let Some(way) = all.iter().find(|w| (0..n).all(|g| groups[g].holds(unit((w.map)(g / grid.1, g % grid.1)))))
        {
            let words = format!("the scale of group (r, c) of the {}×{} grid is that of {}", grid.0, grid.1, way.words);
            return Some((way.kind.class(), "a.index", words));
        }
        let known: Vec<usize> = (0..n).filter(|g| groups[*g].count() > 0).collect();
        let holds = |g: usize, s: f64| groups[g].holds(s);
        if let Some(found) = swizzled::explain(self.q, grid, &known, &holds) {
            return Some(found);
        }
        let solved: Vec<Option<(f64, f64)>> = groups.iter().map(|e| (e.finite > 0).then_some((e.low, e.high))).collect();
        if let Some(found) = packed_scales::explain(&solved, &(0..n).map(unit).collect::<Vec<_>>(), grid.1) {
            return Some(found);
        }
        if let Some(found) = scale_offset::explain(&solved, &(0..n).map(unit).collect::<Vec<_>>()) {
            return Some(found);
        }
        if let Some(found) = over_places::explain(self.q, grid, &known, &holds) {
            return Some(found);
        }
        if let Some(found) = cut_scales::explain(&solved, self.q, grid.1) {
            return Some(found);
        }
        // One stored scale is one factor.
        let mut by_scale: std::collections::BTreeMap<u32, (f32, Entry, usize)> = std::collections::BTreeMap::new();
        for g in (0..n).filter(|g| groups[*g].count() > 0) {
            let s = self.q.scale_inv()[g];
            let over = f64::from(self.q.over(g).0);
            let (_, entry, count) = by_scale.entry(s.to_bits()).or_insert((s, Entry::NONE, 0));
            *count += 1;
            match (groups[g].is_nan(), groups[g].is_inf()) {
                (true, _) => entry.nan += 1,
                (_, true) => entry.inf += 1,
                _ => entry.take((groups[g].low / over, groups[g].high / over)),
            }
        }
        let table: Vec<Entry> = by_scale.values().map(|e| e.1).collect();
        let again = by_scale.values().map(|e| e.2 - 1).sum::<usize>();
        // A scale of its own for every group says nothing of a function.
        (again >= LEAST || self.q.scale_format().bits() <= 8).then_some(())?;
        consistent(&table).then_some(())?;
        let wrong: Vec<&(f32, Entry, usize)> = by_scale.values().filter(|(s, e, _)| !e.holds(f64::from(*s))).collect();
        (!wrong.is_empty() && 10 * wrong.len() <= 9 * by_scale.len() || again >= LEAST).then_some(())?;
        let shown = |(s, e, _): &&(f32, Entry, usize)| format!("{} is {}", digits::apart([f64::from(*s)])[0], e.words());
        let some: Vec<String> = wrong.iter().step_by(wrong.len().div_ceil(SHOWN).max(1)).map(shown).collect();
        let words = format!(
            "{} of {} different scales are decoded to other values, the same wherever they stand: {}",
            wrong.len(),
            by_scale.len(),
            some.join(", ")
        );
        let class = if 2 * wrong.len() > by_scale.len() { Class::BitsReinterpreted } else { Class::CodecEdge };
        Some((class, "a.scale_table", words))
    }
}

/// Whether entries contradict themselves nowhere, but for a few elements.
fn consistent(table: &[Entry]) -> bool {
    let (count, against) = table.iter().fold((0, 0), |(n, a), e| (n + e.count(), a + e.against()));
    count >= LEAST && against as f64 <= (1.0 - SHARE) * count as f64
}

/// What codes have in common that no other used one has, in words.
fn which(f: Format, wrong: &[usize], used: &[usize]) -> String {
    let is =
        |of: &dyn Fn(usize) -> bool| wrong.iter().all(|c| of(*c)) && used.iter().filter(|c| of(**c)).count() == wrong.len();
    let value = |c: usize| f.decode(c as u32);
    if f.is_integer() {
        return if is(&|c| value(c) < 0.0) { "; they are the negative ones".into() } else { String::new() };
    }
    let mantissa = f.spec().mantissa;
    let exponent = |c: usize| (c & ((1 << (f.bits() - 1)) - 1)) >> mantissa;
    let top = (1usize << (f.bits() - 1 - mantissa)) - 1;
    let sets: [(&str, &dyn Fn(usize) -> bool); 6] = [
        ("those of the top exponent", &|c| exponent(c) == top),
        ("those of the top exponent that are numbers", &|c| exponent(c) == top && value(c).is_finite()),
        ("the subnormal ones and zero", &|c| exponent(c) == 0),
        ("the subnormal ones", &|c| exponent(c) == 0 && value(c) != 0.0),
        ("zeros", &|c| value(c) == 0.0),
        ("the negative ones", &|c| c >> (f.bits() - 1) == 1),
    ];
    sets.iter().find(|(_, of)| is(of)).map_or(String::new(), |(words, _)| format!("; they are {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_where_its_elements_meet() {
        let of = |ranges: &[(f64, f64)], nan: usize, inf: usize| {
            let mut entry = Entry { nan, inf, ..Entry::NONE };
            ranges.iter().for_each(|r| entry.take(*r));
            entry
        };
        let two = of(&[(1.0, 3.0), (2.0, 4.0)], 0, 0);
        assert_eq!((two.low, two.high, two.count(), two.against()), (2.0, 3.0, 2, 0));
        assert_eq!([1.9, 2.0, 2.5, 3.0, 3.1].map(|x| two.holds(x)), [false, true, true, true, false]);
        // Another place: it is left where it was.
        let three = of(&[(1.0, 3.0), (5.0, 6.0), (2.0, 4.0)], 0, 0);
        assert_eq!((three.low, three.high, three.count(), three.against()), (2.0, 3.0, 3, 1));
        assert!(!three.is_nan() && !three.is_inf());
        // What most of them are.
        let nan = of(&[(1.0, 3.0)], 2, 1);
        assert!(nan.is_nan() && !nan.is_inf() && nan.holds(f64::NAN) && !nan.holds(2.0));
        assert_eq!((nan.count(), nan.against()), (4, 2));
        let inf = of(&[(1.0, 3.0)], 1, 2);
        assert!(inf.is_inf() && !inf.is_nan() && inf.holds(f64::NEG_INFINITY) && !inf.holds(2.0) && !inf.holds(f64::NAN));
        let even = of(&[(1.0, 3.0), (1.0, 3.0)], 2, 2);
        assert!(!even.is_nan() && !even.is_inf() && even.holds(2.0) && even.against() == 4);
        let words = [
            nan,
            inf,
            two,
            of(&[(-1.0, 2.0)], 0, 0),
            of(&[(0.0, 2.0)], 0, 0),
            of(&[(-2.0, 0.0)], 0, 0),
            of(&[(1.99, 2.02)], 0, 0),
        ];
        assert_eq!(words.map(|e| e.words()), ["NaN", "Inf", "2.5", "0", "0", "0", "2"]);
    }

    #[test]
    fn entries_contradict_themselves_in_two_of_a_hundred_at_most() {
        let of = |right: usize, wrong: usize| {
            let mut entry = Entry::NONE;
            (0..right).for_each(|_| entry.take((1.0, 2.0)));
            (0..wrong).for_each(|_| entry.take((3.0, 4.0)));
            entry
        };
        assert_eq!([of(7, 0), of(8, 0), of(98, 2), of(97, 3)].map(|e| consistent(&[e])), [false, true, true, false]);
        assert_eq!([of(4, 0), of(94, 2)].map(|e| consistent(&[e, of(4, 0)])), [true, true]);
        assert!(!consistent(&[of(94, 2), of(4, 1)]));
    }

    /// Of all codes of e4m3, of which 0x7f and 0xff are NaN.
    #[test]
    fn what_codes_have_in_common_is_told() {
        let said = |f: Format, used: &[usize], is: &dyn Fn(usize) -> bool| {
            which(f, &used.iter().copied().filter(|c| is(*c)).collect::<Vec<_>>(), used)
        };
        let all: Vec<usize> = (0..256).collect();
        let magnitude = |c: usize| c & 0x7f;
        let of = |is: &dyn Fn(usize) -> bool| said(Format::E4m3, &all, is);
        assert_eq!(of(&|c| magnitude(c) >= 0x78), "; they are those of the top exponent");
        assert_eq!(of(&|c| (0x78..0x7f).contains(&magnitude(c))), "; they are those of the top exponent that are numbers");
        assert_eq!(of(&|c| magnitude(c) < 8), "; they are the subnormal ones and zero");
        assert_eq!(of(&|c| (1..8).contains(&magnitude(c))), "; they are the subnormal ones");
        assert_eq!(of(&|c| magnitude(c) == 0), "; they are zeros");
        assert_eq!(of(&|c| c >= 0x80), "; they are the negative ones");
        assert_eq!(of(&|c| magnitude(c) >= 0x70), "");
        assert_eq!(of(&|c| (0x78..0x80).contains(&c)), "");
        // Without NaN, the top exponent has numbers alone.
        let some: Vec<usize> = (0..256).filter(|c| magnitude(*c) != 0x7f).collect();
        assert_eq!(said(Format::E4m3, &some, &|c| magnitude(c) >= 0x78), "; they are those of the top exponent");
        let nibbles: Vec<usize> = (0..16).collect();
        assert_eq!(said(Format::E2m1, &nibbles, &|c| c & 7 >= 6), "; they are those of the top exponent");
        assert_eq!(said(Format::Int4, &nibbles, &|c| c >= 8), "; they are the negative ones");
        assert_eq!([7, 9].map(|n| said(Format::Int4, &nibbles, &|c| c >= n)), ["", ""]);
    }

    /// Weights with scales and zero points of two levels, read back with each mistake in them.
    #[test]
    fn levels_that_are_taken_for_each_other_are_told() {
        let data = (0..6 * 256).map(|at| ((at * 7919 + at / 256 * 53) % 1009) as f32 / 300.0 - 1.2).collect();
        let x = crate::Tensor::rounded(Format::F32, 6, 256, data).unwrap();
        let q = "gguf_q4_k".parse::<crate::recipe::Recipe>().unwrap().quantize(&x).unwrap().q;
        let Zero::Additive { zero, .. } = q.zero() else { panic!("zero points of values") };
        let said = |made: &dyn Fn(f64, f64, f64, f64, f64) -> f64, rows: std::ops::Range<usize>| {
            let value = |at: usize| {
                let g = q.scale_index(at / 256, at % 256);
                let (o, p) = q.over(g);
                let (c, s, z) = (f64::from(q.codes()[at]) - q.affine(g).minus, f64::from(q.scale_inv()[g]), f64::from(zero[g]));
                if rows.contains(&(at / 256)) {
                    made(c, s, o.into(), z, p.into())
                } else {
                    q.affine(g).value(f64::from(q.codes()[at]))
                }
            };
            let actual: Vec<f64> = (0..6 * 256).map(value).collect();
            let cells = actual.iter().map(|y| (y - 1e-9 * y.abs(), y + 1e-9 * y.abs())).collect();
            let mut this = Decoded {
                q: &q,
                actual: &actual,
                cells,
                wrong: Vec::new(),
                zero: zero.iter().map(|z| f64::from(*z)).collect(),
            };
            this.wrong = (0..6 * 256).filter(|at| !this.is(*at, this.right(*at))).collect();
            this.levels().map(|(_, variant, words)| {
                assert_eq!(variant, "a.levels");
                words
            })
        };
        type Way = (&'static str, fn(f64, f64, f64, f64, f64) -> f64);
        let ways: [Way; 9] = [
            ("are exchanged: scales are multiplied by global_zero_point", |c, s, o, z, p| c * s * p + z * o),
            ("scales and zero points are exchanged", |c, s, o, z, p| c * z * p + s * o),
            ("the codes of scales and zero points are exchanged", |c, s, o, z, p| c * z * o + s * p),
            ("zero points are multiplied by global_scale_inv too", |c, s, o, z, _| (c * s + z) * o),
            ("scales are multiplied by global_zero_point too", |c, s, _, z, p| (c * s + z) * p),
            ("zero points have the other sign", |c, s, o, z, p| c * s * o - z * p),
            ("zero points are not added", |c, s, o, _, _| c * s * o),
            ("zero points lack their second level", |c, s, o, z, _| c * s * o + z),
            ("zero points are multiplied by the scale too", |c, s, o, z, p| c * s * o + z * p * s * o),
        ];
        for (words, made) in ways {
            let found = said(&made, 0..6).unwrap_or_default();
            assert!(found.contains(words) && !found.contains(", in "), "{words}: {found}");
            let found = said(&made, 2..5).unwrap_or_default();
            assert!(found.contains(words) && found.ends_with(", in rows 2 … 4"), "{words}: {found}");
        }
        assert_eq!(said(&|c, s, o, z, p| 1.1 * (c * s * o + z * p), 0..6), None);
    }

    /// Every code is less its group's zero point: what a wrong one is given is told without it.
    #[test]
    fn a_table_is_that_of_codes_before_their_zero_points() {
        let codes: Vec<u8> = (0..32 * 16).map(|at| ((at * 7 + at / 16 * 3) % 16) as u8).collect();
        let zero: Vec<i32> = (0..32).map(|i| i * 5 % 13).collect();
        let q = QTensor::new(crate::quant::QTensorParts {
            format: Format::Uint4,
            rows: 32,
            cols: 16,
            codes,
            granularity: crate::Granularity::Row,
            scale_format: Format::F32,
            scale_inv: vec![0.5; 32],
            zero: Zero::Integer(zero.clone()),
            level: None,
        })
        .unwrap();
        let given = |c: u8| if c == 5 { 7.0 } else { f64::from(c) };
        let actual: Vec<f64> = (0..32 * 16).map(|at| 0.5 * (given(q.codes()[at]) - f64::from(zero[at / 16]))).collect();
        let cells = actual.iter().map(|y| (y - 1e-3, y + 1e-3)).collect();
        let mut this = Decoded { q: &q, actual: &actual, cells, wrong: Vec::new(), zero: Vec::new() };
        this.wrong = (0..32 * 16).filter(|at| !this.is(*at, this.right(*at))).collect();
        let (class, variant, words) = this.table().unwrap();
        assert_eq!((class, variant), (Class::CodecEdge, "a.table"));
        assert!(words.starts_with("1 of 16 codes are decoded to other values: 0x5 is 7 instead of 5"), "{words}");
    }
}
