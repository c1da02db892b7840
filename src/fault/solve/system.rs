//! A product as a linear system: what the kernel read on either side, which K it summed, what it did to the sum and where it put it.
//!
//! ```text
//! out[i, j] = round( finish( Σ_k c(k) · A(i, k) · B(j, k) ) )
//! A(i, k)   = (table[code(i, k)] − zero(i, k)) · scale(i, k)          additive: (table[code] − mid) · scale + zero
//! ```
//!
//! Each part can be read in another way ([`Side`](super::given::Side) and [`Theory`]); a theory predicts single elements in f64, so that a wrong one is refused
//! after one or two.

use super::given::Given;
use super::memo::Memo;
pub use super::theory::{Added, At, Finish, From, Kept, Narrow, Over, Past, Patch, Region, Rounds, Theory, To, Units};
use crate::compare::OutFormat;
use crate::fault::edit::{self, Which};
use crate::fault::predict::{NOISE, Scene};
use crate::job::Operand;
use crate::op::Biases;
use crate::op::Op;
use crate::parallel;
use crate::tensor::round_to;
use crate::{Format, Overflow, Rounding};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// From here on a factor of a product may be beyond f32.
const OVERFLOWS: f64 = (1u128 << 96) as f64;

/// From here down what a theory sums is held to its own bound, and not to that of the right sum.
const TINY: f64 = 1.0 / 16.0;

/// Multiply-adds of a product that is computed again for operands that are rounded.
const ROUNDED: usize = 1 << 28;

/// The rows of a result that one product makes.
#[derive(Clone)]
pub struct Part {
    pub rows: Range<usize>,
    /// First row of a, first row of b, and K.
    pub a: usize,
    pub b: usize,
    pub k: Range<usize>,
}

/// A product (or a dequantization: one by the identity) and what was written.
#[derive(Clone)]
pub struct System<'s> {
    pub scene: &'s Scene<'s>,
    /// Operands; theories keep them.
    pub a: Arc<Given>,
    pub b: Arc<Given>,
    pub rows: usize,
    pub cols: usize,
    pub k: usize,
    /// No product: element (i, j) is that of a alone, a dequantization's codes or the right result.
    pub alone: bool,
    pub parts: Vec<Part>,
    /// Which part a row of the result belongs to.
    pub part: Vec<Option<usize>>,
    pub bias: Biases,
    pub actual: &'s [f64],
    pub ideal: Cow<'s, [f64]>,
    pub out: &'s OutFormat,
    /// The part of the bound that theories are held to: that of sums in f32 first, then all of it.
    pub part_of_bound: f64,
    /// That part, over the magnitude.
    pub relative: f64,
    pub is_wrong: Vec<bool>,
    /// Elements that theories are tried on: the worst first, then wrong and right ones over rows and columns.
    pub probes: Vec<(usize, usize)>,
    /// The wrong region, where it is not everything.
    pub region: Option<Arc<Region>>,
    /// Whether enough wrong elements are numbers to tell a theory by: what leaves f32 is then Inf or NaN.
    pub overflows: bool,
    /// What numbered theories sum of these operands.
    pub memo: Option<Arc<Memo>>,
    /// The right sums, once they are asked for.
    pub right: Arc<OnceLock<Arc<Vec<f64>>>>,
}

impl<'s> System<'s> {
    /// Not held to any bound yet. `None`: no product, or one without a result.
    pub fn new(scene: &'s Scene<'s>) -> Option<Self> {
        Self::with(scene, None, 1.0)
    }

    /// Held to this part of the bound. `None`: nothing is wrong.
    pub fn held_to(mut self, part: f64) -> Option<Self> {
        (self.part_of_bound, self.relative) = (part, self.scene.relative() * part);
        if part > 1.0 {
            self.is_wrong = self.wrong();
        }
        self.look()
    }

    /// The same, held to another part of the bound.
    pub fn held_again(&self, part: f64) -> Option<Self> {
        let mut s = self.clone();
        (s.part_of_bound, s.relative) = (part, self.scene.relative() * part);
        s.is_wrong = s.wrong();
        s.is_wrong.contains(&true).then_some(())?;
        s.look()
    }

    /// Which elements are outside the bound that theories are held to.
    pub fn wrong(&self) -> Vec<bool> {
        let one = |at: usize| match (self.actual[at].is_nan(), self.ideal[at].is_nan()) {
            (false, false) => !self.is_right(at, self.actual[at]),
            (x, d) => x != d,
        };
        parallel::numbers(self.rows * self.cols, one)
    }
    /// The bound of an element that theories are held to.
    pub fn certain(&self, at: usize) -> f64 {
        self.scene.certain(at) * self.part_of_bound
    }

    /// The same where a kernel rounds what it dequantizes to the 16 bits of the other operand, or does not (`round`) although the result was held to
    /// weights that are. `None`: there is none, or the product is too large to be computed again.
    pub fn rounded(scene: &'s Scene<'s>, part: f64, round: bool) -> Option<Self> {
        let job = scene.evidence.job;
        let (a, b) = (edit::operand(job, Which::A)?, edit::operand(job, Which::B)?);
        let wide = match (a.given(), b.given()) {
            (Operand::High(x), Operand::Quantized(_)) | (Operand::Quantized(_), Operand::High(x)) => x.dtype(),
            (Operand::Weighted(w), Operand::Quantized(_)) => w.x().dtype(),
            _ => return None,
        };
        let to = Some(wide).filter(|f| round && matches!(f, Format::Bf16 | Format::F16));
        let mut s = Self::with(scene, to, part)?;
        (s.is_rounded() == round).then_some(())?;
        (s.rows * s.cols * s.k <= ROUNDED).then_some(())?;
        let right = Theory::right();
        let one = |at: usize| s.sum(&right, at / s.cols, at % s.cols).0 + s.bias.at(at / s.cols, at % s.cols);
        let ideal: Vec<f64> = parallel::collect(s.rows * s.cols, one);
        let other = |at: usize| !((ideal[at] - s.ideal[at]).abs() <= 1e-3 * s.certain(at));
        (round || (0..ideal.len()).any(other)).then_some(())?;
        s.ideal = Cow::Owned(ideal);
        s.is_wrong = s.wrong();
        s.is_wrong.contains(&true).then_some(())?;
        s.look()
    }

    fn with(scene: &'s Scene<'s>, rounded: Option<Format>, part_of_bound: f64) -> Option<Self> {
        let e = scene.evidence;
        let job = e.job;
        let alone = !job.op.is_product();
        let j = e.judged.first()?;
        let (n, cols) = (j.actual.len(), j.cols.max(1));
        let rows = n / cols;
        (j.bound.ideal().len() == n).then_some(())?;
        let history = e.history.cloned().unwrap_or_default();
        let a = match edit::operand(job, Which::A)? {
            // What is no product and reads no codes: the right result itself.
            _ if alone && job.op != Op::Dequantize => Given::values(rows, cols, j.bound.ideal().to_vec()),
            operand => Given::of(operand, &history.a, rounded),
        };
        let b = if alone { Given::ones(a.k) } else { Given::of(edit::operand(job, Which::B)?, &history.b, rounded) };
        let k = a.k;
        (n > 0 && k > 0 && b.k == k).then_some(())?;
        let parts = parts(job.op, job.operands.offs.as_deref(), &a, &b)?;
        let mut part = vec![None; rows];
        for (p, x) in parts.iter().enumerate() {
            part.get_mut(x.rows.clone())?.fill(Some(p));
        }
        let bias = Biases::of(job, (rows, cols));
        let is_wrong = scene.wrong().to_vec();
        Some(Self {
            scene,
            a: Arc::new(a),
            b: Arc::new(b),
            rows,
            cols,
            k,
            alone,
            parts,
            part,
            bias,
            actual: &j.actual,
            ideal: Cow::Borrowed(j.bound.ideal()),
            out: j.bound.out(),
            part_of_bound,
            relative: scene.relative() * part_of_bound,
            is_wrong,
            probes: Vec::new(),
            region: None,
            overflows: false,
            memo: None,
            right: Arc::default(),
        })
    }

    /// The same with other wrong elements: all else is taken for right.
    pub fn of_wrong(&self, is_wrong: Vec<bool>) -> Option<Self> {
        let mut s = self.clone();
        s.is_wrong = is_wrong;
        s.look()
    }

    /// Where it is wrong, and which elements decide.
    fn look(mut self) -> Option<Self> {
        for at in super::segment::strays(&self) {
            self.is_wrong[at] = false;
        }
        self.region = super::segment::region(&self).map(Arc::new);
        self.probes = super::segment::probes(&self);
        let number = |(i, j): &&(usize, usize)| self.is_wrong[i * self.cols + j] && self.actual[i * self.cols + j].is_finite();
        self.overflows = self.probes.iter().filter(number).count() >= 16;
        (!self.probes.is_empty()).then_some(self)
    }

    /// Whether operands are rounded before they are multiplied.
    pub fn is_rounded(&self) -> bool {
        self.a.rounded.is_some() || self.b.rounded.is_some()
    }

    /// The operands that a kernel read.
    pub fn sides(&self) -> &'static [Which] {
        if self.alone { &[Which::A] } else { &[Which::A, Which::B] }
    }

    pub fn given(&self, side: Which) -> &Arc<Given> {
        match side {
            Which::A => &self.a,
            Which::B => &self.b,
        }
    }

    /// How many experts' rows lie one behind the other in an operand: those of weights. Where K is tokens, all experts share the rows.
    pub fn experts(&self, side: Which) -> usize {
        let n = self.parts.len().max(1);
        let stacked = side == Which::B && self.parts.iter().all(|p| p.k.len() == self.k);
        if stacked && self.given(side).rows.is_multiple_of(n) { n } else { 1 }
    }

    /// Every product that a theory sums for an element: `f(k, product)`. No rows of an operand: it is nobody's.
    pub fn products(&self, t: &Theory, i: usize, j: usize, mut f: impl FnMut(usize, f64)) -> Option<()> {
        let part = match &t.expert {
            Some(map) => map[i],
            None => self.part[i],
        };
        let part = &self.parts[part?];
        let home = self.part[i].map_or(part, |p| &self.parts[p]);
        let (ra, rb) = (home.a + i - home.rows.start, part.b + j);
        let coefficients = t.k.as_ref();
        if self.alone {
            f(j, t.a.at(&self.a, ra, j));
            return Some(());
        }
        let range = match &t.cut {
            Some(cut) => self.part[i].map_or(0..0, |p| cut[p].clone()),
            None => part.k.clone(),
        };
        let (x, y) = (t.a.row(&self.a, ra, range.clone()), t.b.row(&self.b, rb, range.clone()));
        for ((k, x), y) in range.zip(&*x).zip(&*y) {
            let c = coefficients.map_or(1.0, |c| c[k]);
            if c != 0.0 {
                f(k, c * t.product.map_or(x * y, |p| self.rounded_product(p, (ra, rb, k), x * y)));
            }
        }
        if let Some(over) = t.over {
            // The rows of both that follow in the group.
            let left = (home.a + home.rows.len() - 1 - ra, part.b + self.cols - 1 - rb);
            for k in self.k..self.k + over.by {
                let on = k / self.k;
                if !over.apart || on <= left.0 && on <= left.1 {
                    f(self.k - 1, self.a.past(over.a, ra, k) * self.b.past(over.b, rb, k));
                }
            }
        }
        Some(())
    }

    fn rounded_product(&self, (format, units): (Format, Units), (i, j, k): (usize, usize, usize), x: f64) -> f64 {
        let unit = if units == Units::Values { 1.0 } else { self.a.step(i, k) * self.b.step(j, k) };
        let round = |x: f64| match format {
            Format::F16 | Format::Bf16 | Format::F32 => f64::from(round_to(format, x as f32)),
            f => f.decode(f.encode(x, Rounding::NearestEven, Overflow::Saturate)),
        };
        match units {
            _ if unit == 0.0 => x,
            Units::Scales => x / unit * round(unit),
            Units::Blocks => {
                let over = self.a.global * self.b.global;
                x / unit * round(unit / over) * over
            }
            Units::Exponents(added) => x / unit * added.of(unit),
            _ => round(x / unit) * unit,
        }
    }

    /// The lines of a and b that make an element, and its K. `None`: it is nobody's.
    pub fn lines(&self, i: usize, j: usize) -> Option<(usize, usize, Range<usize>)> {
        let part = &self.parts[self.part[i]?];
        Some((part.a + i - part.rows.start, part.b + j, part.k.clone()))
    }

    /// Whether a sum of this magnitude, nothing else wrong, may have been written for an element.
    pub fn may(&self, i: usize, j: usize, sum: f64, size: f64) -> bool {
        let at = i * self.cols + j;
        let r = self.relative * (size + self.bias.at(i, j).abs()) + sum.abs() * 2f64.powi(-23);
        let v = sum + self.bias.at(i, j);
        self.holds(at, self.actual[at], (v, v - r, v + r))
    }

    /// [`System::sum`] where every product counts once and is added as it is.
    fn dot(&self, t: &Theory, i: usize, j: usize) -> Option<(f64, f64)> {
        const LANES: usize = 8;
        let plain = t.k.is_none() && t.product.is_none() && t.over.is_none() && t.kept.is_none();
        (plain && t.expert.is_none() && t.cut.is_none() && !self.alone).then_some(())?;
        let (ra, rb, ks) = self.lines(i, j)?;
        let (x, y) = (t.a.row(&self.a, ra, ks.clone()), t.b.row(&self.b, rb, ks));
        let (mut sums, mut sizes) = ([0.0; LANES], [0.0; LANES]);
        for (x, y) in x.chunks(LANES).zip(y.chunks(LANES)) {
            for (n, (x, y)) in x.iter().zip(y).enumerate() {
                let p = x * y;
                sums[n] += p;
                sizes[n] += p.abs();
            }
        }
        Some((sums.iter().sum(), sizes.iter().sum()))
    }

    /// The magnitude of the right sum of element `at`, as its bound tells it.
    pub fn magnitude(&self, at: usize) -> f64 {
        self.certain(at) / self.relative.max(1e-300)
    }

    /// The right sums of all elements, without bias.
    pub fn right_sums(&self) -> Arc<Vec<f64>> {
        let one = |at: usize| self.ideal[at] - self.bias.at(at / self.cols, at % self.cols);
        self.right.get_or_init(|| Arc::new(parallel::numbers(self.rows * self.cols, one))).clone()
    }

    /// Sum and magnitude of an element, without bias.
    pub fn sum(&self, t: &Theory, i: usize, j: usize) -> (f64, f64) {
        match &self.memo {
            Some(memo) if t.id != 0 => memo.get(t.id, (i, j), || self.summed(t, i, j)),
            _ => self.summed(t, i, j),
        }
    }

    fn summed(&self, t: &Theory, i: usize, j: usize) -> (f64, f64) {
        if let Some(found) = self.dot(t, i, j) {
            return found;
        }
        let (mut sum, mut size) = (0.0, 0.0);
        let Some(kept) = t.kept else {
            self.products(t, i, j, |_, p| {
                sum += p;
                size += p.abs();
            });
            return (sum, size);
        };
        let unit = |k: usize| match (kept.units, self.lines(i, j)) {
            (Units::Codes | Units::Scales, Some((a, b, _))) => self.a.step(a, k) * self.b.step(b, k),
            _ => 1.0,
        };
        let within = if kept.within == 0 { usize::MAX } else { kept.within };
        let (mut part, mut slice, mut segment, mut by, mut acc) = (0.0, 0, 0, unit(0), 0.0);
        let keep = |acc: f64, part: f64, by: f64| {
            let x = part / by;
            match kept.of {
                Rounds::Sum => kept.how.of(acc + x),
                Rounds::Parts => acc + kept.how.of(x),
                Rounds::Both => kept.how.of(acc + kept.how.of(x)),
            }
        };
        self.products(t, i, j, |k, p| {
            if k / kept.every != slice || k / within != segment {
                acc = keep(acc, part, by);
                (part, slice) = (0.0, k / kept.every);
            }
            if k / within != segment {
                sum += acc * by;
                (acc, segment, by) = (0.0, k / within, unit(k));
            }
            part += p;
            size += p.abs();
        });
        (sum + keep(acc, part, by) * by, size)
    }

    /// What was written for an element less its bias, and half the width of what its sum of this magnitude may have been: rounding of the
    /// output and the bound. `None`: it says nothing (not finite, saturated).
    pub fn written(&self, i: usize, j: usize, size: f64) -> Option<(f64, f64)> {
        let at = i * self.cols + j;
        let x = self.actual[at];
        if !x.is_finite() || self.out.is_quantized() && self.out.is_saturated(at, x) {
            return None;
        }
        let r = self.relative * (size + self.bias.at(i, j).abs()) + x.abs() * 2f64.powi(-23);
        let (low, high) = self.out.cell(at, x);
        let half = 0.5 * (high - low) + r;
        (low.is_finite() && high.is_finite() && half > 0.0).then(|| (0.5 * (low + high) - self.bias.at(i, j), half))
    }

    /// What theory `t` says of an element before it is stored: its value and the interval that it may be in.
    pub fn value(&self, t: &Theory, i: usize, j: usize) -> Option<(f64, f64, f64)> {
        self.within(t, i, j, 1.0)
    }

    /// [`System::value`] with a part of the bound.
    pub fn within(&self, t: &Theory, i: usize, j: usize, part: f64) -> Option<(f64, f64, f64)> {
        let t = t.at(i, j);
        let (i, j) = match &t.from {
            Some(from) => from(i, j)?,
            None => (i, j),
        };
        if i >= self.rows || j >= self.cols {
            return None;
        }
        let plain = t.sums_right();
        let at = i * self.cols + j;
        let (sum, r) = if plain {
            // A theory that only moves or finishes the sum is held to no less than one that makes it.
            let size = match &t.size {
                Some(size) => size(i, j),
                None if self.alone => 0.0,
                None => {
                    let size = || self.summed(t, i, j).1;
                    self.memo.as_ref().map_or_else(size, |memo| memo.size(at, size))
                }
            };
            let own = self.relative * (size + self.bias.at(i, j).abs());
            // What sums next to nothing errs by next to nothing: the right sum's bound would leave room for anything small.
            let nothing = t.size.is_some() && size <= TINY * self.magnitude(at);
            let r = if nothing { own } else { self.certain(at).max(own) };
            (self.ideal[at] - self.bias.at(i, j), r + t.slack * self.ideal[at].abs())
        } else {
            let (sum, size) = self.sum(t, i, j);
            (sum, self.relative * (size + self.bias.at(i, j).abs()) + t.slack * size)
        };
        let r = r * part + sum.abs() * 2f64.powi(-23);
        let end = |v: f64| t.finish.as_ref().map_or_else(|| v + self.bias.at(i, j), |f| f(i, j, v));
        let (v, x, y) = (end(sum), end(sum - r), end(sum + r));
        Some((v, x.min(y), x.max(y)))
    }

    /// Whether `t` reads what nobody knows for element (i, j): what lies in memory behind the last row.
    pub fn is_unknown(&self, t: &Theory, i: usize, j: usize) -> bool {
        let behind = |past: Past, row: usize, g: &Given| match past {
            Past::Zero | Past::Stage(_) => false,
            Past::NextGroup(rows) => row + rows >= g.rows,
            _ => row + 1 == g.rows,
        };
        if t.unseen.as_ref().is_some_and(|of| of(i, j)) {
            return true;
        }
        t.over
            .filter(|o| !o.apart)
            .zip(self.lines(i, j))
            .is_some_and(|(o, (a, b, _))| behind(o.a, a, &self.a) || behind(o.b, b, &self.b))
    }

    /// Whether element (i, j) is what `t` says it is, to rounding.
    pub fn fits(&self, t: &Theory, i: usize, j: usize) -> bool {
        self.fit(t, i, j).is_some()
    }

    /// Whether `t` makes a wrong element, and not only as the right result would: a bound may be wider than an error.
    pub fn makes(&self, t: &Theory, i: usize, j: usize) -> bool {
        let at = i * self.cols + j;
        let (x, right) = (self.actual[at], self.out.round(at, self.ideal[at]));
        match self.fit(t, i, j) {
            Some(Some(v)) if (x + right + v).is_finite() => (x - self.out.round(at, v)).abs() <= 0.5 * (x - right).abs(),
            found => found.is_some(),
        }
    }

    /// What `t` says of an element that fits: a number, where it says one. `None`: it does not fit.
    fn fit(&self, t: &Theory, i: usize, j: usize) -> Option<Option<f64>> {
        let t = t.at(i, j);
        let at = i * self.cols + j;
        let x = self.actual[at];
        if t.region.as_ref().is_some_and(|r| !r.has(i, j)) {
            return (!self.is_wrong[at]).then_some(None);
        }
        if self.is_unknown(t, i, j) {
            return Some(None);
        }
        match self.value(t, i, j) {
            Some(v) => self.holds(at, x, v).then_some(Some(v.0)),
            None => (x == 0.0 || x.is_nan()).then_some(None),
        }
    }

    /// Whether `x` may be written for a value in this interval.
    pub fn holds(&self, at: usize, x: f64, (v, low, high): (f64, f64, f64)) -> bool {
        if !v.is_finite() {
            return x.is_nan() || x == v || (self.out.is_quantized() && self.out.is_saturated(at, x));
        }
        // Sums and what they are made of leave f32: Inf, or NaN where two of them meet.
        if self.overflows && !x.is_finite() && low.abs().max(high.abs()) > OVERFLOWS {
            return true;
        }
        let slack = v.abs() * 2f64.powi(-23);
        let (low, high) = (self.out.round(at, low - slack), self.out.round(at, high + slack));
        low <= x && x <= high
    }
    /// Whether `x` may be written for the right value of element `at`.
    pub fn is_right(&self, at: usize, x: f64) -> bool {
        let (d, r) = (self.ideal[at], self.certain(at));
        self.holds(at, x, (d, d - r, d + r))
    }

    /// Whether `t` explains every probe; the wrong elements come first.
    pub fn explains(&self, t: &Theory) -> bool {
        self.tried(t).is_ok()
    }

    /// Whether `t` explains every probe; else the one that it does not, or none where it leaves most of the error: a bound that is wider than the
    /// error refuses nothing.
    fn tried(&self, t: &Theory) -> Result<(), Option<(usize, usize)>> {
        const LOOKS: usize = 24;
        const FEW: usize = 4;
        const LEFT: f64 = 0.8;
        let (mut left, mut all, mut looked) = (0.0, 0.0, 0);
        let noise = if self.scene.bits_tell() { 0.0 } else { NOISE };
        for (i, j) in self.probes.iter().copied() {
            let Some(v) = self.fit(t, i, j) else { return Err(Some((i, j))) };
            let at = i * self.cols + j;
            let (x, right) = (self.actual[at], self.out.round(at, self.ideal[at]));
            if let Some(v) = v.filter(|v| self.is_wrong[at] && looked < LOOKS && (x + right + v).is_finite()) {
                let unit = self.out.spacing(at, right).max(self.out.spacing(at, x)).max(f64::MIN_POSITIVE);
                let unit = unit.max(noise * self.certain(at));
                left += ((x - self.out.round(at, v)) / unit).powi(2).min(1e8);
                all += ((x - right) / unit).powi(2).min(1e8);
                looked += 1;
                // What leaves most of the first few leaves most of all: the worst come first.
                if looked % FEW == 0 && left > LEFT * all {
                    return Err(None);
                }
            }
        }
        if self.is_known(t) && super::chance::is_evident(self, t) { Ok(()) } else { Err(None) }
    }

    /// Whether `t` says what most wrong elements are, of those where it sums on behind the end of K: what lies in unknown memory may be anything.
    fn is_known(&self, t: &Theory) -> bool {
        let reads_on = |t: &Theory| t.over.is_some() || t.unseen.is_some();
        if !reads_on(t) && !t.patch.as_ref().is_some_and(|p| reads_on(&p.1)) {
            return true;
        }
        let of = |(i, j): &&(usize, usize)| self.is_wrong[i * self.cols + j] && reads_on(t.at(*i, *j));
        let unknown = |(i, j): &&(usize, usize)| self.is_unknown(t.at(*i, *j), *i, *j);
        2 * self.probes.iter().filter(of).filter(unknown).count() <= self.probes.iter().filter(of).count()
    }

    /// Whether `t` makes the first wrong elements: what does not explains nothing, in a region or everywhere.
    pub fn may_explain(&self, t: &Theory) -> bool {
        const FIRST: usize = 3;
        let wrong = |(i, j): &&(usize, usize)| self.is_wrong[i * self.cols + j];
        self.probes.iter().filter(wrong).take(FIRST).all(|(i, j)| self.fits(t, *i, *j))
    }

    /// `t` as it is, or in the wrong region only, where it explains every probe.
    pub fn accept(&self, t: &Theory) -> Option<Theory> {
        let failed = match self.tried(t) {
            Ok(()) => return Some(t.clone()),
            Err(failed) => failed?,
        };
        let region = self.region.clone().filter(|_| t.region.is_none())?;
        // What fails in the region fails there alone too.
        (!region.has(failed.0, failed.1)).then_some(())?;
        // What moves nothing into the region only says that it is empty.
        let moves = |from: &From| self.probes.iter().any(|(i, j)| region.has(*i, *j) && from(*i, *j).is_some());
        t.from.as_ref().is_none_or(moves).then_some(())?;
        let mut t = t.clone();
        t.detail = format!("{}, in {}", t.detail, region.words);
        t.bits += region.bits();
        t.region = Some(region);
        self.explains(&t).then_some(t)
    }
}

fn parts(op: Op, offs: Option<&[usize]>, a: &Given, b: &Given) -> Option<Vec<Part>> {
    if !op.is_product() {
        return Some(vec![Part { rows: 0..a.rows, a: 0, b: 0, k: 0..a.k }]);
    }
    let starts = |o: &[usize]| std::iter::once(0).chain(o.iter().copied()).collect::<Vec<_>>();
    Some(match op {
        Op::Gemm => vec![Part { rows: 0..a.rows, a: 0, b: 0, k: 0..a.k }],
        Op::GroupedGemm | Op::GroupedGemmDgrad => {
            let offs = offs?;
            let n = b.rows / offs.len().max(1);
            let from = starts(offs);
            (0..offs.len()).map(|e| Part { rows: from[e]..offs[e], a: from[e], b: e * n, k: 0..a.k }).collect()
        }
        Op::GroupedGemmWgrad => {
            let offs = offs?;
            let from = starts(offs);
            (0..offs.len()).map(|e| Part { rows: e * a.rows..(e + 1) * a.rows, a: 0, b: 0, k: from[e]..offs[e] }).collect()
        }
        _ => return None,
    })
}
