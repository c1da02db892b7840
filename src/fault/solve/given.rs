//! One operand as it was given, and the other ways that it may have been read.

use super::system::{At, To};
use crate::job::Operand;
use crate::tensor::round_to;
use crate::{Format, QTensor, Zero};
use std::sync::Arc;

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
    /// The type that dequantized values are rounded to before they are multiplied, where they are.
    pub rounded: Option<Format>,
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
            values,
            q: None,
            table: Vec::new(),
            tile: (rows.max(1), k.max(1)),
            grid: (1, 1),
            global: 1.0,
            zero: None,
            history: history.to_vec(),
            rounded: rounded.filter(|_| matches!(operand, Operand::Quantized(_))),
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

    /// The identity of this many rows: what a dequantization is multiplied by.
    pub fn ones(n: usize) -> Self {
        Self::values(n, n, Vec::new())
    }

    pub fn values(rows: usize, k: usize, values: Vec<f64>) -> Self {
        Self {
            rows,
            k,
            values,
            q: None,
            table: Vec::new(),
            tile: (rows.max(1), k.max(1)),
            grid: (1, 1),
            global: 1.0,
            zero: None,
            history: Vec::new(),
            rounded: None,
        }
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
            value: one(&self.value, &other.value)?,
        })
    }
    /// What the kernel had for element (i, k).
    pub fn at(&self, g: &Given, i: usize, k: usize) -> f64 {
        if self.is_given() {
            return g.values[i * g.k + k];
        }
        let x = self.exact(g, i, k);
        g.rounded.map_or(x, |f| f64::from(round_to(f, x as f32)))
    }

    fn exact(&self, g: &Given, i: usize, k: usize) -> f64 {
        if let Some(f) = &self.value {
            return f(i, k);
        }
        let Some(q) = g.q.as_ref() else { return g.values[i * g.k + k] };
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
