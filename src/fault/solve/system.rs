//! A product as a linear system: what the kernel read on either side, which K it summed, what it did to the sum and where it put it.
//!
//! ```text
//! out[i, j] = round( finish( Σ_k c(k) · A(i, k) · B(j, k) ) )
//! A(i, k)   = (table[code(i, k)] − zero(i, k)) · scale(i, k)          additive: (table[code] − mid) · scale + zero
//! ```
//!
//! Each part can be read in another way ([`Side`] and [`Theory`]); a theory predicts single elements in f64, so that a wrong one is refused
//! after one or two.

use crate::compare::OutFormat;
use crate::fault::edit::{self, Side as Which};
use crate::fault::predict::Scene;
use crate::job::Operand;
use crate::op::Op;
use crate::{Format, QTensor, Zero};
use std::ops::Range;
use std::sync::Arc;

/// A number for each element (row, k) of an operand.
pub type At = Arc<dyn Fn(usize, usize) -> f64 + Send + Sync>;
/// A place for each element.
pub type To = Arc<dyn Fn(usize, usize) -> Option<usize> + Send + Sync>;
/// A number for each (row, column, sum without bias) of the result.
pub type Finish = Arc<dyn Fn(usize, usize, f64) -> f64 + Send + Sync>;
/// Source of an element of the result.
pub type From = Arc<dyn Fn(usize, usize) -> Option<(usize, usize)> + Send + Sync>;

/// One operand as it was given.
pub struct Given {
    pub rows: usize,
    pub k: usize,
    /// Right values, row-major.
    pub values: Vec<f64>,
    /// Codes with their scales, where it has some.
    pub q: Option<QTensor>,
    /// Value of every code.
    pub table: Vec<f64>,
    pub tile: (usize, usize),
    pub grid: (usize, usize),
    pub global: f64,
    /// Zero points, one a scale, and what is subtracted from every code of additive ones.
    pub zero: Option<(Vec<f64>, Option<f64>)>,
    pub history: Vec<f32>,
}

impl Given {
    fn of(operand: &Operand, history: &[f32]) -> Self {
        let operand = operand.given();
        let (rows, k) = (operand.rows(), operand.cols());
        let values: Vec<f64> = match operand {
            Operand::Quantized(q) => q.dequantize_fast().into_iter().collect(),
            other => other.to_f64().into_iter().collect(),
        };
        let mut given = Self {
            rows,
            k,
            values,
            q: None,
            table: Vec::new(),
            tile: (rows.max(1), k.max(1)),
            grid: (1, 1),
            global: 1.0,
            zero: None,
            history: history.to_vec(),
        };
        if let Operand::Quantized(q) = operand {
            given.table = (0..1u32 << q.format().bits()).map(|c| q.format().decode(c)).collect();
            given.tile = q.granularity().tile(rows, k);
            given.grid = q.granularity().grid(rows, k);
            given.global = q.global_scale_inv().map_or(1.0, f64::from);
            given.zero = match q.zero() {
                Zero::None => None,
                Zero::Integer(z) => Some((z.iter().map(|z| f64::from(*z)).collect(), None)),
                Zero::Additive { zero, mid } => Some((zero.iter().map(|z| f64::from(*z)).collect(), Some(f64::from(*mid)))),
            };
            given.q = Some(q.clone());
        }
        given
    }

    pub fn format(&self) -> Option<Format> {
        self.q.as_ref().map(QTensor::format)
    }
    pub fn scales(&self) -> &[f32] {
        self.q.as_ref().map_or(&[], QTensor::scale_inv)
    }
    /// Row and column of the scale grid of an element.
    pub fn cell(&self, i: usize, k: usize) -> (usize, usize) {
        (i / self.tile.0, k / self.tile.1)
    }
}

/// How one operand was read: `None` is as given.
#[derive(Clone, Default)]
pub struct Side {
    /// Index into the codes; `None` reads nothing: 0.
    pub code: Option<To>,
    pub table: Option<Arc<Vec<f64>>>,
    pub scale: Option<At>,
    pub zero: Option<At>,
    /// Instead of all of these.
    pub value: Option<At>,
}

impl Side {
    pub fn is_given(&self) -> bool {
        self.code.is_none() && self.table.is_none() && self.scale.is_none() && self.zero.is_none() && self.value.is_none()
    }
    /// Both changes, where they change different things.
    fn and(&self, other: &Self) -> Option<Self> {
        fn one<T: Clone>(a: &Option<T>, b: &Option<T>) -> Option<Option<T>> {
            if a.is_some() && b.is_some() { None } else { Some(a.clone().or_else(|| b.clone())) }
        }
        Some(Self {
            code: one(&self.code, &other.code)?,
            table: one(&self.table, &other.table)?,
            scale: one(&self.scale, &other.scale)?,
            zero: one(&self.zero, &other.zero)?,
            value: one(&self.value, &other.value)?,
        })
    }
    /// What the kernel had for element (i, k).
    pub fn at(&self, g: &Given, i: usize, k: usize) -> f64 {
        if let Some(f) = &self.value {
            return f(i, k);
        }
        let Some(q) = g.q.as_ref().filter(|_| !self.is_given()) else { return g.values[i * g.k + k] };
        let code = match &self.code {
            Some(f) => match f(i, k) {
                Some(at) => q.codes()[at],
                None => return 0.0,
            },
            None => q.codes()[i * g.k + k],
        };
        let x = self.table.as_ref().map_or(&g.table, |t| &**t)[usize::from(code)];
        let cell = i / g.tile.0 * g.grid.1 + k / g.tile.1;
        let s = self.scale.as_ref().map_or_else(|| f64::from(q.scale_inv()[cell]) * g.global, |f| f(i, k));
        match &g.zero {
            None => x * s,
            Some((z, mid)) => {
                let z = self.zero.as_ref().map_or_else(|| z[cell], |f| f(i, k));
                mid.map_or((x - z) * s, |mid| (x - mid) * s + z)
            }
        }
    }
}

/// A place in the result, where all theories that have one are told apart from the right.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    pub rows: Vec<bool>,
    pub cols: Vec<bool>,
    pub words: String,
}

/// What a kernel may have done. The parts that are `None` were done right.
#[derive(Clone)]
pub struct Theory {
    pub class: crate::fault::Class,
    /// `b.scale`, `k`, `out`, … : what is read wrong.
    pub variant: String,
    pub operand: &'static str,
    /// In a sentence, with its parameters.
    pub detail: String,
    /// Bits of its parameters.
    pub bits: f64,
    /// Whether a number in it was fitted to the result.
    pub fitted: bool,
    pub a: Side,
    pub b: Side,
    /// Coefficient of every k.
    pub k: Option<Arc<Vec<f64>>>,
    /// What becomes of the sum, bias not added; adds it itself.
    pub finish: Option<Finish>,
    pub from: Option<From>,
    /// Which group a row of the result belongs to (grouped products).
    pub expert: Option<Arc<Vec<Option<usize>>>>,
    pub region: Option<Arc<Region>>,
}

impl Theory {
    pub fn new(
        class: crate::fault::Class,
        operand: &'static str,
        variant: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            class,
            variant: variant.into(),
            operand,
            detail: detail.into(),
            bits: 0.0,
            fitted: false,
            a: Side::default(),
            b: Side::default(),
            k: None,
            finish: None,
            from: None,
            expert: None,
            region: None,
        }
    }
    pub fn bits(mut self, bits: f64) -> Self {
        self.bits = bits;
        self
    }
    pub fn side(&mut self, which: Which) -> &mut Side {
        match which {
            Which::A => &mut self.a,
            Which::B => &mut self.b,
        }
    }
    /// Both, where they change different things.
    pub fn and(&self, other: &Self) -> Option<Self> {
        fn one<T: Clone>(a: &Option<T>, b: &Option<T>) -> Option<Option<T>> {
            if a.is_some() && b.is_some() { None } else { Some(a.clone().or_else(|| b.clone())) }
        }
        Some(Self {
            variant: self.variant.clone(),
            detail: format!("{}; and {}", self.detail, other.detail),
            bits: self.bits + other.bits + 4.0,
            fitted: self.fitted || other.fitted,
            a: self.a.and(&other.a)?,
            b: self.b.and(&other.b)?,
            k: one(&self.k, &other.k)?,
            finish: one(&self.finish, &other.finish)?,
            from: one(&self.from, &other.from)?,
            expert: one(&self.expert, &other.expert)?,
            region: if self.region.is_some() || other.region.is_some() { return None } else { None },
            ..self.clone()
        })
    }
    pub fn name(&self) -> String {
        format!("{}:{}", self.class.name(), self.variant)
    }
}

/// The rows of a result that one product makes.
pub struct Part {
    pub rows: Range<usize>,
    /// First row of a, first row of b, and K.
    pub a: usize,
    pub b: usize,
    pub k: Range<usize>,
}

/// A product and what was written.
pub struct System<'s> {
    pub scene: &'s Scene<'s>,
    pub a: Given,
    pub b: Given,
    pub rows: usize,
    pub cols: usize,
    pub k: usize,
    pub parts: Vec<Part>,
    /// Which part a row of the result belongs to.
    pub part: Vec<Option<usize>>,
    pub bias: Vec<f64>,
    pub actual: &'s [f64],
    pub ideal: &'s [f64],
    pub out: &'s OutFormat,
    /// Bound over magnitude, and what is left where that is nothing.
    pub relative: f64,
    pub is_wrong: Vec<bool>,
    /// Elements that theories are tried on: the worst first, then wrong and right ones over rows and columns.
    pub probes: Vec<(usize, usize)>,
    /// The wrong region, where it is not everything.
    pub region: Option<Arc<Region>>,
}

impl<'s> System<'s> {
    /// `None`: no product, or one without a result.
    pub fn of(scene: &'s Scene<'s>) -> Option<Self> {
        let e = scene.evidence;
        let job = e.job;
        let (oa, ob) = (edit::operand(job, Which::A)?, edit::operand(job, Which::B)?);
        let j = e.judged.first()?;
        let (n, cols) = (j.actual.len(), j.cols.max(1));
        let rows = n / cols;
        let history = e.history.cloned().unwrap_or_default();
        let (a, b) = (Given::of(oa, &history.a), Given::of(ob, &history.b));
        let k = a.k;
        (n > 0 && k > 0 && b.k == k).then_some(())?;
        let parts = parts(job.op, job.operands.offs.as_deref(), &a, &b)?;
        let mut part = vec![None; rows];
        for (p, x) in parts.iter().enumerate() {
            part.get_mut(x.rows.clone())?.fill(Some(p));
        }
        let bias = job.operands.bias.as_ref().map_or(vec![0.0; cols], |t| t.data().iter().map(|x| f64::from(*x)).collect());
        let is_wrong = scene.wrong();
        let mut system = Self {
            scene,
            a,
            b,
            rows,
            cols,
            k,
            parts,
            part,
            bias,
            actual: &j.actual,
            ideal: j.bound.ideal(),
            out: j.bound.out(),
            relative: scene.relative(),
            is_wrong,
            probes: Vec::new(),
            region: None,
        };
        system.region = super::segment::region(&system).map(Arc::new);
        system.probes = super::segment::probes(&system);
        (!system.probes.is_empty()).then_some(system)
    }

    pub fn given(&self, side: Which) -> &Given {
        match side {
            Which::A => &self.a,
            Which::B => &self.b,
        }
    }

    /// Sum and magnitude of an element, without bias.
    pub fn sum(&self, t: &Theory, i: usize, j: usize) -> (f64, f64) {
        let part = match &t.expert {
            Some(map) => map[i],
            None => self.part[i],
        };
        let Some(part) = part.map(|p| &self.parts[p]) else { return (0.0, 0.0) };
        let home = self.part[i].map_or(part, |p| &self.parts[p]);
        let (ra, rb) = (home.a + i - home.rows.start, part.b + j);
        let (mut sum, mut size) = (0.0, 0.0);
        let coefficients = t.k.as_ref();
        for k in part.k.clone() {
            let c = coefficients.map_or(1.0, |c| c[k]);
            if c == 0.0 {
                continue;
            }
            let p = c * t.a.at(&self.a, ra, k) * t.b.at(&self.b, rb, k);
            sum += p;
            size += p.abs();
        }
        (sum, size)
    }

    /// What theory `t` says of an element before it is stored: its value and the interval that it may be in.
    pub fn value(&self, t: &Theory, i: usize, j: usize) -> Option<(f64, f64, f64)> {
        self.within(t, i, j, 1.0)
    }

    /// [`System::value`] with a part of the bound.
    pub fn within(&self, t: &Theory, i: usize, j: usize, part: f64) -> Option<(f64, f64, f64)> {
        let (i, j) = match &t.from {
            Some(from) => from(i, j)?,
            None => (i, j),
        };
        if i >= self.rows || j >= self.cols {
            return None;
        }
        let plain = t.a.is_given() && t.b.is_given() && t.k.is_none() && t.expert.is_none();
        let at = i * self.cols + j;
        let (sum, r) = if plain {
            (self.ideal[at] - self.bias[j], self.scene.certain(at))
        } else {
            let (sum, size) = self.sum(t, i, j);
            (sum, self.relative * (size + self.bias[j].abs()))
        };
        let r = r * part + sum.abs() * 2f64.powi(-23);
        let end = |v: f64| t.finish.as_ref().map_or_else(|| v + self.bias[j], |f| f(i, j, v));
        let (v, x, y) = (end(sum), end(sum - r), end(sum + r));
        Some((v, x.min(y), x.max(y)))
    }

    /// Whether element (i, j) is what `t` says it is, to rounding.
    pub fn fits(&self, t: &Theory, i: usize, j: usize) -> bool {
        let at = i * self.cols + j;
        let x = self.actual[at];
        if t.region.as_ref().is_some_and(|r| !(r.rows[i] && r.cols[j])) {
            return !self.is_wrong[at];
        }
        self.value(t, i, j).map_or(x == 0.0 || x.is_nan(), |v| self.holds(at, x, v))
    }

    /// Whether `x` may be written for a value in this interval.
    pub fn holds(&self, at: usize, x: f64, (v, low, high): (f64, f64, f64)) -> bool {
        if !v.is_finite() {
            return x.is_nan() || x == v || (self.out.is_quantized() && self.out.is_saturated(at, x));
        }
        let slack = v.abs() * 2f64.powi(-23);
        let (low, high) = (self.out.round(at, low - slack), self.out.round(at, high + slack));
        low <= x && x <= high
    }
    /// Whether `x` may be written for the right value of element `at`.
    pub fn is_right(&self, at: usize, x: f64) -> bool {
        let (d, r) = (self.ideal[at], self.scene.certain(at));
        self.holds(at, x, (d, d - r, d + r))
    }

    /// Whether `t` explains every probe; the wrong elements come first.
    pub fn explains(&self, t: &Theory) -> bool {
        self.probes.iter().all(|(i, j)| self.fits(t, *i, *j))
    }

    /// `t` as it is, or in the wrong region only, where it explains every probe.
    pub fn accept(&self, t: &Theory) -> Option<Theory> {
        if self.explains(t) {
            return Some(t.clone());
        }
        let region = self.region.clone().filter(|_| t.region.is_none())?;
        let mut t = t.clone();
        t.detail = format!("{}, in {}", t.detail, region.words);
        t.bits += 12.0;
        t.region = Some(region);
        self.explains(&t).then_some(t)
    }
}

fn parts(op: Op, offs: Option<&[usize]>, a: &Given, b: &Given) -> Option<Vec<Part>> {
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
