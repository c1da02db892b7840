//! One operand as it was given, and the other ways that it may have been read.

use super::address::gcd;
use super::system::{At, Past, To};
use crate::job::Operand;
use crate::parallel;
use crate::quant::Level;
use crate::tensor::round_to;
use crate::{Format, QTensor, Zero};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// One operand as it was given.
#[derive(Clone)]
pub struct Given {
    pub rows: usize,
    pub k: usize,
    /// Right values, row-major; shared by all that reads them.
    pub values: Arc<Vec<f64>>,
    /// Codes with their scales, where it has some; scales of two levels as one.
    pub q: Option<QTensor>,
    /// The tensor as it was given, where its scales have a second level of several numbers.
    pub deep: Option<QTensor>,
    /// Value of every code.
    pub table: Vec<f64>,
    pub tile: (usize, usize),
    pub grid: (usize, usize),
    pub global: f64,
    /// Zero points, one a scale, and what is subtracted from every code of additive ones.
    pub zero: Option<(Vec<f64>, Option<f64>)>,
    pub history: Vec<f32>,
    /// The type that dequantized values are rounded to before they are multiplied, where they are.
    pub rounded: Option<Format>,
}

/// Scales of two levels as one, in f32: products of both, which Q4_K's are exactly. As it is, where the second level is one number.
pub fn flat(q: &QTensor) -> Cow<'_, QTensor> {
    if q.level().is_none_or(Level::is_whole) {
        return Cow::Borrowed(q);
    }
    let steps: Vec<(f32, f32)> = (0..q.scale_inv().len()).map(|s| q.steps(s)).collect();
    let mut p = q.clone().into_parts();
    p.scale_inv = steps.iter().map(|s| s.0).collect();
    (p.scale_format, p.level) = (Format::F32, None);
    if let Zero::Additive { zero, .. } = &mut p.zero {
        *zero = steps.iter().map(|s| s.1).collect();
    }
    QTensor::new(p).map_or(Cow::Borrowed(q), Cow::Owned)
}

impl Given {
    pub fn of(operand: &Operand, history: &[f32], rounded: Option<Format>) -> Self {
        let operand = operand.given();
        let (rows, k) = (operand.rows(), operand.cols());
        let values: Vec<f64> = match operand {
            Operand::Quantized(q) => {
                q.dequantize_fast().into_iter().map(|x| rounded.map_or(x, |f| f64::from(round_to(f, x as f32)))).collect()
            }
            other => other.to_f64().into_iter().collect(),
        };
        let mut given = Self {
            rows,
            k,
            values: Arc::new(values),
            q: None,
            deep: None,
            table: Vec::new(),
            tile: (rows.max(1), k.max(1)),
            grid: (1, 1),
            global: 1.0,
            zero: None,
            history: history.to_vec(),
            rounded: rounded.filter(|_| matches!(operand, Operand::Quantized(_))),
        };
        if let Operand::Quantized(q) = operand {
            let one_level = flat(q);
            if matches!(one_level, Cow::Owned(_)) {
                given.deep = Some(q.clone());
            }
            let q: &QTensor = &one_level;
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

    /// The identity of this many rows: what a dequantization is multiplied by.
    pub fn ones(n: usize) -> Self {
        Self::values(n, n, Vec::new())
    }

    pub fn values(rows: usize, k: usize, values: Vec<f64>) -> Self {
        Self {
            rows,
            k,
            values: Arc::new(values),
            q: None,
            deep: None,
            table: Vec::new(),
            tile: (rows.max(1), k.max(1)),
            grid: (1, 1),
            global: 1.0,
            zero: None,
            history: Vec::new(),
            rounded: None,
        }
    }

    /// What a kernel reads of row i behind the end of K.
    pub fn past(&self, past: Past, i: usize, k: usize) -> f64 {
        let flat = match past {
            Past::NextGroup(rows) => (i + rows) * self.k + k - self.k,
            Past::Stage(back) => i * self.k + k - back,
            _ => i * self.k + k,
        };
        let (Some(q), Past::Next | Past::NextBare | Past::Zero | Past::ZeroOn) = (&self.q, past) else {
            return if matches!(past, Past::Zero | Past::ZeroOn) { 0.0 } else { self.values.get(flat).copied().unwrap_or(0.0) };
        };
        let code = if matches!(past, Past::Zero | Past::ZeroOn) { 0 } else { q.codes().get(flat).copied().unwrap_or(0) };
        if past == Past::NextBare {
            return self.table[usize::from(code)];
        }
        // The last group of the row, or what follows it.
        let last = if past == Past::ZeroOn { usize::MAX } else { self.grid.1 - 1 };
        let cell = i / self.tile.0 * self.grid.1 + (k / self.tile.1).min(last);
        if cell >= self.grid.0 * self.grid.1 {
            return 0.0;
        }
        let value = self.decoded(code, cell);
        self.rounded.map_or(value, |f| f64::from(round_to(f, value as f32)))
    }

    /// A code by the scale and zero point of a cell of the grid.
    pub fn decoded(&self, code: u8, cell: usize) -> f64 {
        self.worth(self.table[usize::from(code)], cell)
    }

    /// What a decoded code is worth by the scale and zero point of a cell of the grid.
    pub fn worth(&self, x: f64, cell: usize) -> f64 {
        let s = self.scales().get(cell).map_or(1.0, |s| f64::from(*s)) * self.global;
        match &self.zero {
            None => x * s,
            Some((z, None)) => (x - z[cell]) * s,
            Some((z, Some(mid))) => (x - mid) * s + z[cell],
        }
    }

    /// The value at a place of memory; 0 behind the end.
    fn beyond(&self, at: usize) -> f64 {
        self.values.get(at).copied().unwrap_or(0.0)
    }

    pub fn format(&self) -> Option<Format> {
        self.q.as_ref().map(QTensor::format)
    }
    pub fn scales(&self) -> &[f32] {
        self.q.as_ref().map_or(&[], QTensor::scale_inv)
    }
    /// What one step of the code is worth: the scale, 1 where there is none.
    pub fn step(&self, i: usize, k: usize) -> f64 {
        let cell = i / self.tile.0 * self.grid.1 + k / self.tile.1;
        self.q.as_ref().map_or(1.0, |q| f64::from(q.scale_inv()[cell]) * self.global)
    }
}

/// The nearest bf16 to a number, ties to even.
fn bf16(x: f32) -> f64 {
    let bits = x.to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000))
}

/// How one operand was read: `None` is as given.
#[derive(Clone, Default)]
pub struct Side {
    /// Index into the codes, or into the values of an operand without; `None` reads nothing: 0.
    pub code: Option<To>,
    pub table: Option<Arc<Vec<f64>>>,
    pub scale: Option<At>,
    pub zero: Option<At>,
    /// Scale and zero stay the same within every so many of K; 0: nobody says so.
    pub every: usize,
    /// Instead of all of these.
    pub value: Option<At>,
    /// All values that this reads, where they were written down.
    pub all: Option<Arc<Vec<f64>>>,
}

impl Side {
    pub fn is_given(&self) -> bool {
        self.code.is_none() && self.table.is_none() && self.scale.is_none() && self.zero.is_none() && self.value.is_none()
    }
    /// With these scales, the same within every so many of K.
    pub fn scaled(&mut self, every: usize, scale: At) {
        (self.scale, self.every) = (Some(scale), every);
    }
    /// With these zero points, the same within every so many of K.
    pub fn zeroed(&mut self, every: usize, zero: At) {
        (self.zero, self.every) = (Some(zero), every);
    }
    /// Whether it has scales or zero points of its own.
    fn asks(&self) -> bool {
        self.scale.is_some() || self.zero.is_some()
    }
    /// Both changes, where they change different things.
    pub fn and(&self, other: &Self) -> Option<Self> {
        fn one<T: Clone>(a: &Option<T>, b: &Option<T>) -> Option<Option<T>> {
            if a.is_some() && b.is_some() { None } else { Some(a.clone().or_else(|| b.clone())) }
        }
        // Values stand for all the rest.
        if self.value.is_some() && !other.is_given() || other.value.is_some() && !self.is_given() {
            return None;
        }
        Some(Self {
            code: one(&self.code, &other.code)?,
            table: one(&self.table, &other.table)?,
            scale: one(&self.scale, &other.scale)?,
            zero: one(&self.zero, &other.zero)?,
            every: match (self.asks(), other.asks()) {
                (true, true) => gcd(self.every, other.every),
                (true, false) => self.every,
                _ => other.every,
            },
            value: one(&self.value, &other.value)?,
            all: None,
        })
    }

    /// The same with all values written down: for what is summed for many elements.
    pub fn written(&self, g: &Given) -> Self {
        if self.is_given() {
            return self.clone();
        }
        let all = parallel::collect(g.rows, |i| self.row(g, i, 0..g.k).into_owned()).concat();
        Self { all: Some(Arc::new(all)), ..self.clone() }
    }

    /// What the kernel had for element (i, k).
    pub fn at(&self, g: &Given, i: usize, k: usize) -> f64 {
        if self.is_given() {
            return g.values[i * g.k + k];
        }
        let x = self.exact(g, i, k);
        g.rounded.map_or(x, |f| f64::from(round_to(f, x as f32)))
    }

    /// [`Side::at`] for every k of a row: what stays the same along it is looked up once.
    pub fn row<'g>(&'g self, g: &'g Given, i: usize, ks: Range<usize>) -> Cow<'g, [f64]> {
        let given = || Cow::Borrowed(&g.values[i * g.k + ks.start..i * g.k + ks.end]);
        if self.is_given() {
            return given();
        }
        if let Some(all) = &self.all {
            return Cow::Borrowed(&all[i * g.k + ks.start..i * g.k + ks.end]);
        }
        let mut row: Vec<f64> = match (&self.value, &g.q) {
            (Some(f), _) => ks.map(|k| f(i, k)).collect(),
            (None, None) => match &self.code {
                Some(f) => ks.map(|k| f(i, k).map_or(0.0, |at| g.beyond(at))).collect(),
                None => return given(),
            },
            (None, Some(q)) => self.dequantized(g, q, i, ks),
        };
        match g.rounded {
            // The usual one, without a call for every value.
            Some(Format::Bf16) if row.iter().all(|x| x.is_finite()) => row.iter_mut().for_each(|x| *x = bf16(*x as f32)),
            Some(f) => row.iter_mut().for_each(|x| *x = f64::from(round_to(f, *x as f32))),
            None => {}
        }
        Cow::Owned(row)
    }

    fn dequantized(&self, g: &Given, q: &QTensor, i: usize, ks: Range<usize>) -> Vec<f64> {
        let (codes, scales) = (q.codes(), q.scale_inv());
        let table = self.table.as_ref().map_or(&g.table, |t| &**t);
        let cells = i / g.tile.0 * g.grid.1;
        let mut row = Vec::with_capacity(ks.len());
        let mut from = ks.start;
        // What stays the same is asked for once.
        while from < ks.end {
            let cell = cells + from / g.tile.1;
            let mut to = (from / g.tile.1 + 1) * g.tile.1;
            if self.asks() {
                let every = self.every.max(1);
                to = to.min((from / every + 1) * every);
            }
            let to = to.min(ks.end);
            let s = self.scale.as_ref().map_or_else(|| f64::from(scales[cell]) * g.global, |f| f(i, from));
            let (off, plus) = match &g.zero {
                None => (0.0, 0.0),
                Some((z, mid)) => {
                    let z = self.zero.as_ref().map_or_else(|| z[cell], |f| f(i, from));
                    mid.map_or((z, 0.0), |mid| (mid, z))
                }
            };
            let value = |code: u8| match &g.zero {
                None => table[usize::from(code)] * s,
                Some((_, None)) => (table[usize::from(code)] - off) * s,
                Some(_) => (table[usize::from(code)] - off) * s + plus,
            };
            match &self.code {
                Some(f) => row.extend((from..to).map(|k| f(i, k).map_or(0.0, |at| value(codes[at])))),
                None => row.extend(codes[i * g.k + from..i * g.k + to].iter().map(|c| value(*c))),
            }
            from = to;
        }
        row
    }

    fn exact(&self, g: &Given, i: usize, k: usize) -> f64 {
        if let Some(f) = &self.value {
            return f(i, k);
        }
        let Some(q) = g.q.as_ref() else {
            let at = self.code.as_ref().map_or(Some(i * g.k + k), |f| f(i, k));
            return at.map_or(0.0, |at| g.beyond(at));
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity};

    #[test]
    fn a_row_is_its_elements() {
        let (rows, k) = (3, 21);
        let q = QTensor::new(QTensorParts {
            format: Format::Int8,
            rows,
            cols: k,
            codes: (0..rows * k).map(|n| (n * 7 + 3) as u8).collect(),
            granularity: Granularity::Block { rows: 2, cols: 8 },
            scale_inv: (0..6).map(|n| 0.37 + n as f32).collect(),
            zero: Zero::Integer((0..6).map(|n| n - 2).collect()),
            scale_format: Format::F32,
            level: None,
        })
        .unwrap();
        let sides = [
            Side::default(),
            Side { code: Some(Arc::new(move |i, c| (c != 4).then_some(i * k + (c + 1) % k))), ..Side::default() },
            Side { scale: Some(Arc::new(|i, k| 0.1 * (i + k) as f64)), ..Side::default() },
            Side { zero: Some(Arc::new(|i, k| (i * k) as f64)), ..Side::default() },
            Side { table: Some(Arc::new((0..256).map(f64::from).collect())), ..Side::default() },
            Side { value: Some(Arc::new(|i, k| (i as f64 - 0.3) / (k as f64 + 1.0))), ..Side::default() },
            Side { scale: Some(Arc::new(|i, k| 0.1 * (i + k / 3) as f64)), every: 3, ..Side::default() },
            Side { zero: Some(Arc::new(|i, k| (i * (k / 16)) as f64)), every: 16, ..Side::default() },
        ];
        for rounded in [None, Some(Format::Bf16)] {
            let g = Given::of(&Operand::Quantized(q.clone()), &[], rounded);
            for (n, side) in sides.iter().enumerate() {
                for (i, ks) in (0..rows).flat_map(|i| [0..k, 5..19, 8..8].map(|ks| (i, ks))) {
                    let one: Vec<f64> = ks.clone().map(|c| side.at(&g, i, c)).collect();
                    assert_eq!(&*side.row(&g, i, ks), one, "side {n}, row {i}, {rounded:?}");
                }
            }
        }
    }
}
