//! Finds what is wrong with a cast: solves the scales that made its codes from the codes alone, and compares them with the stored
//! scales and with the largest magnitudes of the values.
//!
//! ```text
//! code c of x  ──►  cell(c) / x: the scales that give it  ──►  their intersection over a group: the scale of its codes
//! ```

use super::{Bundle, chosen, copies, part_global, stages, unwritten};
use crate::fault::solve::maps::{shortest_ways, ways};
use crate::fault::{Class, Finding};
use crate::fault::{amax, amax_ahead, amax_of, amax_rows};
use crate::format::grid::ValueGrid;
use crate::job::Data;
use crate::op::Op;
use crate::quant::Zero;
use crate::{Overflow, QTensor, Rounding, Tensor};

/// What division, multiplication and a reciprocal in f32 may be off, relative.
pub const NEAR: f64 = 1.0 / (1u64 << 20) as f64;
/// The share of what is wrong that has to be explained.
const SHARE: f64 = 0.98;
/// How far a scale that is named may be from the one it is said to be, relative: a rounding of bf16.
const SAME: f64 = 1.0 / 256.0;

/// A cast as it was written.
pub struct Cast<'b> {
    pub x: &'b Tensor,
    pub q: &'b QTensor,
    pub grid: (usize, usize),
    pub tile: (usize, usize),
    /// scale_inv as stored, second level included.
    pub stored: Vec<f64>,
    /// Largest magnitude of every group.
    pub amax: Vec<f64>,
    grid_of_codes: ValueGrid,
    /// The value of every code.
    values: Vec<f64>,
}

/// Ties that are not rounded to even, at least.
const TIES: usize = 4;

/// Low and high end of the scale_inv that codes were made with.
pub type Range = (f64, f64);

/// Words, variant, how a number becomes whole.
type Whole = (&'static str, &'static str, fn(f64) -> f64);

/// A name: class, variant, words.
pub type Named = (Class, &'static str, String);

/// What explains a cast that failed. `None`: no cast, or nothing known.
pub fn explain(bundle: &Bundle) -> Option<Finding> {
    let Data::Quantized(q) = &bundle.out.d else { return None };
    let x = bundle.a.high.as_ref().filter(|x| (x.rows(), x.cols()) == (q.rows(), q.cols()))?;
    (matches!(bundle.meta.op, Op::Cast | Op::CastTranspose) && matches!(q.zero(), Zero::None)).then_some(())?;
    let found = of_all(bundle, x, q).or_else(|| {
        let (x, q, words) = unwritten::without(x, q).filter(|_| bundle.out.transpose.is_none())?;
        let (class, variant, detail) = of_all(bundle, &x, &q)?;
        Some((class, variant, format!("{detail}; and {words}")))
    });
    let (class, variant, detail) = found?;
    Some(Finding::solved(class, variant, detail))
}

fn of_all(bundle: &Bundle, x: &Tensor, q: &QTensor) -> Option<Named> {
    let cast = Cast::of(x, q);
    let codes = cast.codes(Rounding::NearestEven);
    match &codes {
        Some(ranges) if cast.agree(ranges) => {
            cast.beside(bundle).or_else(|| cast.chosen(ranges)).or_else(|| cast.rounded_otherwise(bundle))
        }
        Some(ranges) => {
            let scales = cast.scales(ranges).or_else(|| cast.part_global(ranges));
            let scales = scales.or_else(|| cast.not_rounded(bundle, ranges)).or_else(|| cast.with_eps(ranges));
            let scales = scales.or_else(|| cast.decoded_otherwise(ranges)).or_else(|| cast.of_other_axis(ranges));
            scales.or_else(|| cast.by_exponent())
        }
        None => {
            let made = cast.transposed().or_else(|| cast.encoded()).or_else(|| cast.signs()).or_else(|| cast.strided());
            made.or_else(|| cast.pitched().or_else(|| cast.cut()))
                .or_else(|| cast.flat())
                .or_else(|| cast.flat_blocks())
                .or_else(|| cast.by_exponent().or_else(|| cast.interleaved()).or_else(|| cast.in_parts()))
                .or_else(|| cast.in_passes())
                .or_else(|| cast.of_neighbours_values())
                .or_else(|| cast.of_one_vector())
                .or_else(|| unwritten::foreign(x, q))
                .or_else(|| cast.unwritten_groups())
        }
    }
}

pub fn center((low, high): Range) -> f64 {
    0.5 * (low + high)
}

pub fn holds((low, high): Range, x: f64) -> bool {
    low * (1.0 - NEAR) <= x && x <= high * (1.0 + NEAR)
}

impl<'b> Cast<'b> {
    pub fn of(x: &'b Tensor, q: &'b QTensor) -> Self {
        let (rows, cols) = (q.rows(), q.cols());
        let (grid, tile) = (q.granularity().grid(rows, cols), q.granularity().tile(rows, cols));
        let global = q.global_scale_inv().map_or(1.0, f64::from);
        let mut amax = vec![0.0f64; grid.0 * grid.1];
        for (at, v) in x.data().iter().enumerate() {
            let g = &mut amax[q.scale_index(at / cols, at % cols)];
            *g = g.max(f64::from(v.abs()));
        }
        let f = q.format();
        Self {
            x,
            q,
            grid,
            tile,
            stored: q.scale_inv().iter().map(|s| f64::from(*s) * global).collect(),
            amax,
            grid_of_codes: ValueGrid::new(f, Overflow::Saturate),
            values: (0..1u32 << f.bits()).map(|c| f.decode(c)).collect(),
        }
    }
    pub fn group(&self, at: usize) -> usize {
        self.q.scale_index(at / self.q.cols(), at % self.q.cols())
    }
    pub fn value(&self, at: usize) -> f64 {
        self.values[usize::from(self.q.codes()[at])]
    }
    /// Whether a number lies between two codes, as far as a division says.
    fn is_tied(&self, y: f64) -> bool {
        self.grid_of_codes.nearest(y * (1.0 - NEAR)) != self.grid_of_codes.nearest(y * (1.0 + NEAR))
    }
    /// The value of the code nearest to a number.
    pub fn nearest(&self, y: f64) -> f64 {
        self.grid_of_codes.nearest(y)
    }
    fn toward_zero(&self, y: f64) -> f64 {
        let f = self.q.format();
        f.decode(f.encode(y, Rounding::TowardZero, Overflow::Saturate))
    }
    pub fn is_pow2(&self) -> bool {
        self.stored.iter().all(|s| *s > 0.0 && s.log2().fract() == 0.0)
    }

    /// The scale_inv that every group's codes say; all that is positive where they say nothing. `None`: some contradict each other.
    fn codes(&self, by: Rounding) -> Option<Vec<Range>> {
        let places = 0..self.q.codes().len();
        self.ranges(places, by, |at| f64::from(self.x.data()[at]), |at| self.group(at), self.stored.len())
    }

    /// Codes that are right by the stored scales, each at the place that the strides of a column-major result give it.
    fn transposed(&self) -> Option<Named> {
        let (rows, cols) = (self.q.rows(), self.q.cols());
        (rows > 1 && cols > 1).then_some(())?;
        let place = |at: usize| at % rows * cols + at / rows;
        let places = 0..self.q.codes().len();
        let x = |at: usize| f64::from(self.x.data()[place(at)]);
        let ranges = self.ranges(places, Rounding::NearestEven, x, |at| self.group(place(at)), self.stored.len())?;
        let words = match rows == cols {
            true => "the codes are those of the transpose, with the scales of the tensor as it is".into(),
            false => format!("the codes are written column by column: element (i, j) at j·{rows} + i"),
        };
        self.agree(&ranges).then_some((Class::Addressing, "out.transposed", words))
    }

    /// Codes that are cut toward zero, by other scales than those stored.
    fn cut(&self) -> Option<Named> {
        let ranges = self.codes(Rounding::TowardZero)?;
        let (class, variant, words) = self.scales(&ranges)?;
        Some((class, variant, format!("{words}; and codes are cut toward zero instead of rounded to nearest")))
    }

    /// The same of some codes, in `n` groups of other values.
    pub fn ranges(
        &self,
        places: std::ops::Range<usize>,
        by: Rounding,
        x: impl Fn(usize) -> f64,
        group: impl Fn(usize) -> usize,
        n: usize,
    ) -> Option<Vec<Range>> {
        let mut values: Vec<f64> = self.values.iter().copied().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let mut ranges: Vec<Range> = vec![(0.0, f64::INFINITY); n];
        for at in places {
            let (x, v) = (x(at), self.value(at));
            if !x.is_finite() || x == 0.0 {
                continue;
            }
            if !v.is_finite() || v * x < 0.0 {
                return None;
            }
            let (x, v) = (x.abs(), v.abs());
            let n = values.partition_point(|y| *y < v);
            let nearest = by != Rounding::TowardZero;
            let low = if v == 0.0 {
                0.0
            } else if nearest {
                0.5 * (values[n - 1] + v)
            } else {
                v
            };
            // int8 stops at −127 or at −128.
            let top = v >= values[values.len() - 1];
            let high = if top {
                f64::INFINITY
            } else if nearest {
                0.5 * (v + values[n + 1])
            } else {
                values[n + 1]
            };
            let r = &mut ranges[group(at)];
            *r = (r.0.max(x / high), if low == 0.0 { r.1 } else { r.1.min(x / low) });
            if r.0 > r.1 * (1.0 + 4.0 * NEAR) {
                return None;
            }
        }
        Some(ranges)
    }

    fn agree(&self, ranges: &[Range]) -> bool {
        self.stored.iter().zip(ranges).all(|(s, r)| holds(*r, *s))
    }

    /// What a factor of all scale_inv is that the second level's own number makes.
    fn by_global(&self, factor: Range) -> Option<&'static str> {
        let g = f64::from(self.q.global_scale_inv()?);
        let ways = [
            (g, "the codes were made without the global scale"),
            (g * g, "the codes were made with the inverse of the global scale"),
            (1.0 / g, "the codes were made with the global scale twice"),
        ];
        ways.into_iter().find(|w| holds(factor, w.0)).map(|w| w.1)
    }

    /// Codes of other scales than those stored.
    fn scales(&self, ranges: &[Range]) -> Option<Named> {
        let n = ranges.len();
        let told = |g: &usize| ranges[*g].1.is_finite() && ranges[*g].0 > 0.0 && self.stored[*g] != 0.0;
        let known: Vec<usize> = (0..n).filter(told).collect();
        (!known.is_empty()).then_some(())?;
        if known.iter().all(|g| holds(ranges[*g], 1.0 / self.stored[*g])) {
            return Some((Class::ScaleDoubledInverted, "out.inverted", "scale is stored where scale_inv belongs".into()));
        }
        if let Some(found) = self.stored_in_sixteen(ranges) {
            return Some(found);
        }
        // One factor.
        let (low, high) = known.iter().fold((0.0f64, f64::INFINITY), |m, g| {
            (m.0.max(self.stored[*g] / ranges[*g].1), m.1.min(self.stored[*g] / ranges[*g].0))
        });
        if low <= high * (1.0 + 2.0 * SAME) && low > 0.0 && !holds((low, high), 1.0) {
            let by = if low <= high { crate::fault::solve::output::roundest(low, high) } else { center((high, low)) };
            let whole = by.log2().round();
            if low <= high && holds((low, high), whole.exp2()) && self.is_pow2() {
                let words = format!("every scale_inv is 2^{whole} times that of its codes: its exponent is off by {whole}");
                return Some((Class::BitsReinterpreted, "out.exponent", words));
            }
            if let Some(words) = self.by_global((low, high)) {
                return Some((Class::ScaleDoubledInverted, "out.global", words.into()));
            }
            if let Some(found) = part_global::another(self.q, (low, high), by) {
                return Some(found);
            }
            let words = format!("the codes were made with other scales: every scale_inv is {by:.4} times that of its codes");
            return Some((Class::StaleState, "out.scale_inv", words));
        }
        // Another place.
        // Codes that saturate say one end, which has to hold too; groups whose own scale does not hold are what is to be explained.
        let told = known.iter().filter(|g| !holds(ranges[**g], self.stored[**g])).count();
        (told > 0).then_some(())?;
        let same = |map: &dyn Fn(usize) -> usize| (0..n).all(|g| holds(ranges[g], self.stored[map(g)]));
        let (rows, cols) = self.grid;
        let all = shortest_ways(rows, cols);
        let Some(way) = all.iter().find(|w| same(&|g| (w.map)(g / cols, g % cols))) else {
            return self.elsewhere(ranges);
        };
        // The codes are those of their own values' amax where the scale that they say is: then the scales stand elsewhere.
        let max = self.q.format().max_finite();
        let of_amax = |g: &usize| {
            let ((low, high), s) = (ranges[*g], self.amax[*g] / max);
            if self.is_pow2() { (0.5..=2.0).contains(&(center(ranges[*g]) / s)) } else { low * 0.999 <= s && s <= high * 1.001 }
        };
        let own = known.iter().filter(|g| of_amax(g)).count();
        let words = if 10 * own > 9 * known.len() {
            format!("scale_inv of group (r, c) of the {rows}×{cols} grid stands at {}", way.words)
        } else {
            format!("the codes of group (r, c) of the {rows}×{cols} grid were made with the scale of {}", way.words)
        };
        let class = way.kind.class();
        Some((class, "out.index", words))
    }

    /// Codes of the scales stored, which are not those of the values: what their amax was taken over.
    pub fn chosen(&self, ranges: &[Range]) -> Option<Named> {
        let max = self.q.format().max_finite();
        let known: Vec<usize> = (0..ranges.len()).filter(|g| self.amax[*g] > 0.0).collect();
        let used: Vec<f64> = self.stored.iter().map(|s| s * max).collect();
        let near = |a: f64, b: f64| (a - b).abs() <= SAME / 4.0 * b.abs();
        let right = |g: &usize| near(used[*g], self.amax[*g]);
        let wrong: Vec<usize> = known.iter().copied().filter(|g| !right(g)).collect();
        (!self.is_pow2() && known.len() >= 4 && wrong.len() >= 2).then_some(())?;
        // The least that a scale is kept at explains the smallest of them, where it is not most of them.
        let least = used.iter().copied().fold(f64::INFINITY, f64::min);
        let few = 4 * known.iter().filter(|g| used[**g] == least).count() <= known.len();
        let is = |of: &[f64]| known.iter().all(|g| near(used[*g], of[*g]) || few && used[*g] == least && of[*g] < least);
        let over = |f: &dyn Fn(usize, f64) -> f64| {
            let mut all = vec![f64::NEG_INFINITY; ranges.len()];
            for (at, v) in self.x.data().iter().enumerate() {
                let g = self.group(at);
                all[g] = all[g].max(f(at, f64::from(*v)));
            }
            all
        };
        let (rows, cols) = (self.x.rows(), self.x.cols());
        let by_sign = |sees: &dyn Fn(usize, f64) -> f64| is(&over(&|at, v| sees(at % cols, v)));
        if let Some(words) = chosen::signed(&by_sign) {
            return Some((Class::AmaxScope, "out.signed", words));
        }
        if rows == cols && self.grid == (rows, 1) {
            let mut of = vec![0.0f64; cols];
            self.x.data().iter().enumerate().for_each(|(at, v)| of[at % cols] = of[at % cols].max(f64::from(v.abs())));
            if is(&of) {
                return Some((Class::AmaxScope, "out.axis", "amax of row i is that of column i".into()));
            }
        }
        let rule: Vec<f64> = self.amax.iter().map(|a| a / max).collect();
        if let Some(words) = chosen::clamped(&self.stored, &rule, &known) {
            return Some((Class::RangeRule, "out.limit", words));
        }
        if let Some(found) = self.of_amax_and_eps() {
            return Some(found);
        }
        if let Some(words) = (self.grid == (rows, 1)).then(|| chosen::of_other_rows(&used, &self.amax)).flatten() {
            return Some((Class::AmaxScope, "out.amax_rows", words));
        }
        if let Some(words) = amax_rows::earlier(self.x, self.tile, &used, &self.amax) {
            return Some((Class::AmaxScope, "out.amax_rows", words));
        }
        if let Some(words) = amax_of::elsewhere(self.grid, &used, &self.amax) {
            return Some((Class::AmaxScope, "out.amax_of", words));
        }
        if let Some(words) = self.part_of_groups(&used, &known) {
            return Some((Class::AmaxScope, "out.amax_part", words));
        }
        if let Some(words) = self.part_of_some(&used, &wrong) {
            return Some((Class::AmaxScope, "out.amax_part", words));
        }
        let (grid_rows, grid_cols) = self.grid;
        let way = ways(grid_rows, grid_cols, 1)
            .into_iter()
            .find(|w| known.iter().all(|g| near(used[*g], self.amax[(w.map)(g / grid_cols, g % grid_cols)])));
        let Some(way) = way else {
            let ahead = amax_ahead::explain(self.x, self.tile, &used, &self.amax);
            if let Some(words) = ahead.or_else(|| amax_ahead::wrapped(self.x, self.tile, &used, &self.amax)) {
                return Some((Class::AmaxScope, "out.amax_over", words));
            }
            let (words, race) = chosen::misses(&used, &self.lanes())?;
            return Some((if race { Class::Race } else { Class::AmaxScope }, "out.amax_lanes", words));
        };
        let words = format!("amax of group (r, c) of the {grid_rows}×{grid_cols} grid is that of {}", way.words);
        Some((Class::AmaxScope, "out.amax_of", words))
    }

    /// The magnitudes of every group with their places in it.
    fn lanes(&self) -> Vec<Vec<(usize, f64)>> {
        let (cols, (height, width)) = (self.x.cols(), self.tile);
        let mut all = vec![Vec::new(); self.stored.len()];
        for (at, v) in self.x.data().iter().enumerate() {
            let lane = at / cols % height * width + at % cols % width;
            all[self.group(at)].push((lane, f64::from(v.abs())));
        }
        all
    }

    /// The columns or the rows at the start or the end of every group whose largest magnitudes these are.
    fn part_of_groups(&self, used: &[f64], known: &[usize]) -> Option<String> {
        let (cols, (height, width)) = (self.x.cols(), self.tile);
        let by_cols = self.part_of_lines(used, known, ("columns", width), |at| at % cols % width);
        by_cols.or_else(|| self.part_of_lines(used, known, ("rows", height), |at| at / cols % height))
    }

    /// The same of lines, by the number of each element's line in its group.
    fn part_of_lines(
        &self,
        used: &[f64],
        known: &[usize],
        (lines, width): (&str, usize),
        line: impl Fn(usize) -> usize,
    ) -> Option<String> {
        let mut largest = vec![0.0f64; used.len() * width];
        for (at, v) in self.x.data().iter().enumerate() {
            let l = &mut largest[self.group(at) * width + line(at)];
            *l = l.max(f64::from(v.abs()));
        }
        for last in [false, true] {
            // So many columns of each group, at least and at most.
            let (mut least, mut most) = (1, width);
            for g in known {
                let (mut m, mut reached, mut within) = (0.0f64, None, 0);
                for n in 1..=width {
                    let c = if last { width - n } else { n - 1 };
                    m = m.max(largest[g * width + c]);
                    if m >= used[*g] * (1.0 - SAME / 4.0) && reached.is_none() {
                        reached = Some(n);
                    }
                    if m <= used[*g] * (1.0 + SAME / 4.0) {
                        within = n;
                    }
                }
                (least, most) = (least.max(reached.unwrap_or(width + 1)), most.min(within));
            }
            if least <= most && most < width {
                // Of all that fit, the roundest.
                let n = (least..=most).max_by_key(|n| n.trailing_zeros())?;
                let (from, to) = if last { (width - n, width) } else { (0, n) };
                return Some(format!("amax is that of {lines} {from} … {} of each group alone", to - 1));
            }
        }
        None
    }

    /// Codes that no scales make: by those stored, rounded or saturated otherwise.
    fn encoded(&self) -> Option<Named> {
        let y = |at: usize| f64::from(self.x.data()[at]) / self.stored[self.group(at)];
        let n = self.q.codes().len();
        let finite = |at: &usize| y(*at).is_finite();
        // A kernel may divide or multiply by a reciprocal: what lies near a tie is either.
        let is =
            |at: usize, of: &dyn Fn(f64) -> f64| [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|f| of(y(at) * f) == self.value(at));
        let nearest = |y: f64| self.grid_of_codes.nearest(y);
        let wrong: Vec<usize> = (0..n).filter(finite).filter(|at| !is(*at, &nearest)).collect();
        (wrong.len() >= 4).then_some(())?;
        let made = |of: &dyn Fn(f64) -> f64| {
            let most = ((1.0 - SHARE) * wrong.len() as f64) as usize;
            let few = |all: &mut dyn Iterator<Item = usize>| all.filter(|at| !is(*at, of)).take(most + 1).count() <= most;
            few(&mut wrong.iter().copied()) && few(&mut (0..n).filter(finite))
        };
        // What a rounding leaves: integers that wrap, or others.
        let rest = |of: &dyn Fn(f64) -> f64, whole: fn(f64) -> f64| -> String {
            let left: Vec<usize> = (0..n).filter(finite).filter(|at| !is(*at, of)).collect();
            let f = self.q.format();
            let span = f64::from(1u32 << f.bits());
            let wrapped = |y: f64| (whole(y) - f.min_finite()).rem_euclid(span) + f.min_finite();
            match left.len() {
                0 => String::new(),
                _ if f.is_integer() && left.iter().all(|at| is(*at, &wrapped)) => {
                    "; and what is beyond the codes is not clamped: it wraps".into()
                }
                more => format!("; this is not all: {more} of {} wrong codes are others", wrong.len()),
            }
        };
        let cut = |y: f64| self.toward_zero(y);
        if made(&cut) {
            let words = "codes are cut toward zero instead of rounded to nearest";
            return Some((Class::Rounding, "out.toward_zero", words.to_string() + &rest(&cut, f64::trunc)));
        }
        let whole: [Whole; 5] = [
            ("rounded toward −∞", "out.down", f64::floor),
            ("rounded toward +∞", "out.up", f64::ceil),
            ("rounded with ties away from zero", "out.half_away", f64::round),
            ("rounded with ties toward +∞", "out.half_up", |y| (y + 0.5).floor()),
            ("cut toward zero after ½ is added, of negative values too,", "out.half_then_cut", |y| (y + 0.5).trunc()),
        ];
        if self.q.format().is_integer() {
            for (words, variant, f) in whole {
                let rounded = |y: f64| nearest(f(y));
                if made(&rounded) {
                    let words = format!("codes are {words} instead of rounded to nearest even{}", rest(&rounded, f));
                    return Some((Class::Rounding, variant, words));
                }
            }
        }
        if let Some(found) =
            self.unsaturated(&y).or_else(|| self.negative_zeros(&wrong, &y)).or_else(|| self.of_format(&wrong, &y))
        {
            return Some(found);
        }
        let top = self.q.format().max_finite();
        let limit = wrong.iter().map(|at| y(*at).abs()).fold(f64::INFINITY, f64::min);
        if made(&|y| if y.abs() >= limit * (1.0 - NEAR) { top * y.signum() } else { nearest(y) }) {
            let all = (0..n).filter(finite).map(|at| y(at).abs());
            let below = all.filter(|y| *y < limit).fold(0.0f64, f64::max);
            let words = format!(
                "values from {} scales on become the largest code, {top}: saturated too early",
                crate::fault::solve::output::roundest(below, limit)
            );
            let early =
                |of: &dyn Fn(f64) -> f64, y: f64| if y.abs() >= limit * (1.0 - NEAR) { top * y.signum() } else { of(y) };
            let left: Vec<usize> = (0..n).filter(finite).filter(|at| !is(*at, &|y| early(&nearest, y))).collect();
            // A code beside a tie is right either way: of those on one it is told which.
            let tied: Vec<usize> = (0..n).filter(finite).filter(|at| self.is_tied(y(*at)) && y(*at).abs() < limit).collect();
            let away = |at: &usize| self.value(*at) == nearest(y(*at) * (1.0 + NEAR));
            let odd = tied.iter().filter(|at| nearest(y(**at)) != self.value(**at)).count();
            let rest = match () {
                () if odd >= TIES && tied.iter().all(away) => "; and ties are rounded away from zero".to_string(),
                () if !left.is_empty() => {
                    format!("; this is not all: {} of {} wrong codes are others", left.len(), wrong.len())
                }
                () => String::new(),
            };
            return Some((Class::CodecEdge, "out.saturated_early", words + &rest));
        }
        None
    }

    /// Every so many rows of the result are the first rows of the values: a stride of another tensor's.
    fn strided(&self) -> Option<Named> {
        let (rows, cols) = (self.x.rows(), self.x.cols());
        (self.grid == (rows, 1) && rows >= 8).then_some(())?;
        let of = |row: usize, from: usize| {
            let x = |at: usize| f64::from(self.x.data()[from * cols + at % cols]);
            self.ranges(row * cols..(row + 1) * cols, Rounding::NearestEven, x, |_| 0, 1)
                .is_some_and(|r| holds(r[0], self.stored[row]))
        };
        let p = (2..=4usize).find(|p| (0..rows).step_by(*p).all(|row| of(row, row / p)))?;
        // The rows between are none of these.
        (!of(1, 1)).then(|| {
            let words = format!(
                "row {p}·i of the result is that of row i of a, and what is between is no row of a: a is read without its row stride"
            );
            (Class::Addressing, "a.stride", words)
        })
    }

    /// Rows that are read one behind the other although they stand further apart: of those that start within the values the codes are right.
    fn pitched(&self) -> Option<Named> {
        let (rows, cols) = (self.x.rows(), self.x.cols());
        (rows > 2).then_some(())?;
        let mut pitches: Vec<usize> =
            [8, 16, 32, 64, 128, 256].iter().flat_map(|p| [cols + p, cols.next_multiple_of(*p)]).collect();
        pitches.extend([cols * 3 / 2, 2 * cols]);
        pitches.extend((1..=64).map(|p| cols + 4 * p));
        pitches.retain(|p| *p > cols);
        pitches.sort_unstable();
        pitches.dedup();
        let n = rows * cols;
        pitches.into_iter().find_map(|pitch| {
            // What lies between the rows nobody knows.
            let x = |at: usize| if at % pitch < cols { f64::from(self.x.data()[at / pitch * cols + at % pitch]) } else { f64::NAN };
            let told = (cols..n).filter(|at| at % pitch < cols && self.value(*at) != 0.0).count();
            let ranges = self.ranges(0..n, Rounding::NearestEven, x, |at| self.group(at), self.stored.len())?;
            (self.agree(&ranges) && 4 * told >= n).then(|| {
                let words = format!(
                    "element (i, j) of the result is that of i·{cols} + j in memory whose rows are {pitch} apart: a is read without its row stride"
                );
                (Class::Addressing, "a.pitch", words)
            })
        })
    }

    /// What stands beside codes that are right: the transposed copy, the reported amax.
    fn beside(&self, bundle: &Bundle) -> Option<Named> {
        if let Some(copy) = &bundle.out.transpose {
            let right = self.q.transposed().ok()?;
            let (rows, cols) = (right.rows(), right.cols());
            let wrong: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != right.codes()[*at]).collect();
            if !wrong.is_empty() {
                return copies::tile(copy, &right, &wrong, (rows, cols)).or_else(|| copies::explain(copy, self.x, self.q));
            }
        }
        let amax = f64::from(bundle.out.amax?);
        let largest = self.amax.iter().copied().fold(0.0, f64::max);
        (amax != largest && amax.is_finite() && largest > 0.0).then_some(())?;
        if let Some(words) = stages::unscaled(largest, self.q.format().max_finite(), true)
            && (amax, &self.stored[..]) == (0.0, &[1.0])
            && bundle.meta.recipe.is_some()
        {
            return Some((Class::AmaxScope, "out.amax_missing", words));
        }
        // Of the values over their scale, as codes are made of them: the largest code, where it is of the group that has the largest.
        let scaled = (0..self.x.data().len()).map(|at| (f64::from(self.x.data()[at]) / self.stored[self.group(at)]).abs());
        let scaled = scaled.filter(|y| y.is_finite()).fold(0.0, f64::max);
        let top = self.q.format().max_finite();
        let of_scaled = [scaled, scaled.min(top)].iter().any(|y| (amax - y).abs() <= NEAR * y);
        let what = match amax::parts_of(self.x, amax as f32).into_iter().next() {
            Some(part) => part.words,
            None if of_scaled => "amax is taken of the values that are already scaled: it is the largest code".into(),
            None if amax == 0.0 => "amax is 0: it is not computed".into(),
            None => "amax is the magnitude of no part of the rows or columns".into(),
        };
        // A scale that is taken from it is as wrong, and what is beyond it ends at the largest code.
        let taken = self.stored.len() == 1 && (self.stored[0] * top - amax).abs() <= SAME / 4.0 * amax;
        let beside = match self.x.data().iter().filter(|v| f64::from(v.abs()) > amax).count() {
            0 => "codes and scales are right".to_string(),
            _ if !taken => "codes and scales are right".to_string(),
            1 => format!("scale_inv is taken from it, and the one value beyond it saturates at {top}"),
            n => format!("scale_inv is taken from it, and the {n} values beyond it saturate at {top}"),
        };
        let words = format!("{what}; it is {:.6} of the largest magnitude; {beside}", amax / largest);
        Some((Class::AmaxScope, "amax", words))
    }
}

#[cfg(test)]
mod by_hand;
