//! The term that the zero points of one operand add, made otherwise than the rest: times a constant, or with one scale of the other operand for all of
//! its groups.
//!
//! ```text
//! out[i, j] = Σ_k s·q·y  +  c · T(i, j)          T = − Σ_k s·z·y, additive: Σ_k z·y;   c: what all elements allow, 1 in a right kernel
//! T'(i, j)  = the same with y = code · one scale of the other operand's row: the first, the last, their mean, none
//! ```

use super::given::Given;
use super::output::{roundest, short};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Elements that say the constant, at least, and how well they do.
const LOOKS: usize = 48;
const LEAST: usize = 8;
const KNOWN: f64 = 1.0 / 32.0;
/// How many elements have to refuse a constant next to it: those whose term is much of what they sum.
const TERM: f64 = 4.0;

/// Of both operands.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone {
        return Vec::new();
    }
    let one = |side: &Which| constant(s, *side).into_iter().chain(one_scale(s, *side));
    s.sides().iter().flat_map(one).collect()
}

/// Which scale of a row of the other operand its codes have in the term.
#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Own,
    First,
    Last,
    Mean,
    None,
}

impl Scale {
    fn of(self, g: &Given, line: usize, cell: usize) -> f64 {
        let row = &g.scales()[line * g.grid.1..(line + 1) * g.grid.1];
        g.global
            * match self {
                Scale::Own => f64::from(row[cell]),
                Scale::First => f64::from(row[0]),
                Scale::Last => f64::from(row[row.len() - 1]),
                Scale::Mean => row.iter().map(|x| f64::from(*x)).sum::<f64>() / row.len() as f64,
                Scale::None => 1.0 / g.global,
            }
    }
}

/// The term of an element, as all that is read.
struct Term {
    own: Arc<Given>,
    other: Arc<Given>,
    by_row: bool,
    /// Rows of both operands of the first element of each row of the result, and its K.
    lines: Vec<Option<(usize, usize, std::ops::Range<usize>)>>,
}

impl Term {
    fn of(s: &System, side: Which) -> Option<Self> {
        let own = s.given(side).clone();
        (own.zero.is_some() && own.q.is_some()).then_some(())?;
        let lines = (0..s.rows).map(|i| s.lines(i, 0)).collect();
        Some(Self { own, other: s.given(side.other()).clone(), by_row: side == Which::A, lines })
    }

    fn at(&self, i: usize, j: usize, scale: Scale) -> f64 {
        let (Some((a, b, ks)), Some((zero, mid))) = (&self.lines[i], &self.own.zero) else { return 0.0 };
        let (x, y) = if self.by_row { (*a, b + j) } else { (b + j, *a) };
        let (g, o) = (&self.own, &self.other);
        let line = x / g.tile.0 * g.grid.1;
        let value = |k: usize| match (&o.q, scale) {
            (None, _) | (_, Scale::Own) => o.values[y * o.k + k],
            (Some(q), _) => {
                let cell = k / o.tile.1;
                let code = o.table[usize::from(q.codes()[y * o.k + k])];
                let off = o.zero.as_ref().map_or(0.0, |z| z.1.unwrap_or(z.0[y / o.tile.0 * o.grid.1 + cell]));
                (code - off) * scale.of(o, y / o.tile.0, cell)
            }
        };
        let one = |k: usize| {
            let z = zero[line + k / g.tile.1];
            if mid.is_some() { z * value(k) } else { -z * g.step(x, k) * value(k) }
        };
        ks.clone().map(one).sum()
    }
}

/// The term of a side's zero points times one constant.
fn constant(s: &System, side: Which) -> Option<Theory> {
    let term = Term::of(s, side)?;
    let (mut low, mut high, mut told) = (f64::NEG_INFINITY, f64::INFINITY, 0);
    for (i, j) in s.wrong_probes(LOOKS) {
        let at = i * s.cols + j;
        let by = term.at(i, j, Scale::Own);
        let Some((y, half)) = s.written(i, j, s.magnitude(at)).filter(|_| by != 0.0) else { continue };
        let more = y - (s.ideal[at] - s.bias.at(i, j));
        let half = half + s.relative * more.abs();
        let ends = [1.0 + (more - half) / by, 1.0 + (more + half) / by];
        (low, high) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
        if !(low <= high) {
            return None;
        }
        told += usize::from(more.abs() > TERM * half);
    }
    (told >= LEAST && high - low <= KNOWN * low.abs().max(high.abs())).then_some(())?;
    // Missing, turned, twice: told elsewhere.
    let inside = |x: f64| low <= x && x <= high;
    (![-1.0, 0.0, 1.0, 2.0].into_iter().any(inside)).then_some(())?;
    let name = side.name();
    let (c, why) = match (inside(1.875), inside(2f64.powi(-7))) {
        (true, _) => (1.875, ", what the bits of 1 in bf16 are as f16"),
        (_, true) => (2f64.powi(-7), ", what the bits of 1 in f16 are as bf16"),
        _ => (roundest(low, high), ""),
    };
    let words =
        format!("the term of the zero points of {name} is multiplied by {}{why}; all else is right", short(c, high - low));
    let mut t = Theory::new(Class::ZpCorrection, name, format!("{name}.zero_gain"), words).bits(14.0);
    t.fitted = why.is_empty();
    let bias = s.bias.clone();
    t.finish = Some(Arc::new(move |i, j, v| v + (c - 1.0) * term.at(i, j, Scale::Own) + bias.at(i, j)));
    Some(t)
}

/// The term with one scale of each row of the other operand, where that has one for each group.
fn one_scale(s: &System, side: Which) -> Vec<Theory> {
    let other = s.given(side.other());
    if other.q.is_none() || other.grid.1 < 2 {
        return Vec::new();
    }
    let Some(term) = Term::of(s, side).map(Arc::new) else { return Vec::new() };
    let (name, they) = (side.name(), side.other().name());
    let ways = [
        (Scale::First, "by the scale of the first group alone", 2.0),
        (Scale::Last, "by the scale of the last group alone", 3.0),
        (Scale::Mean, "by the mean of the row's scales", 3.0),
        (Scale::None, "without their scales", 2.5),
    ];
    let one = |(scale, how, bits): (Scale, &str, f64)| {
        let words = format!(
            "the zero points of {name} multiply sums of all codes of a row of {they} {how}, not of each group by its own"
        );
        let mut t = Theory::new(Class::ZpCorrection, name, format!("{name}.zero_term_scale"), words).bits(4.0 + bits);
        let (term, bias) = (term.clone(), s.bias.clone());
        t.sums(s.right_sums(), s.cols, {
            let right = s.right_sums();
            let cols = s.cols;
            move |i, j| {
                let (new, old) = (term.at(i, j, scale), term.at(i, j, Scale::Own));
                let v = right[i * cols + j] + new - old;
                (v + bias.at(i, j), v.abs().max(new.abs()).max(old.abs()))
            }
        });
        t
    };
    ways.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, noise, sum, wide};
    use crate::job::Operand;
    use crate::quant::QTensorParts;
    use crate::{Format, QTensor, Zero};

    const K: usize = 96;

    /// What is found where the term of zero points is this many times its own.
    fn times(by: impl Fn(usize) -> f64) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::Uint4, N, K, 32, true, 43));
        let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        found(&a, &b, None, Format::F32, |i, j, _| {
            sum(K, |k| {
                let cell = j * 3 + k / 32;
                let weight = f64::from(b.codes()[j * K + k]) - by(i) * f64::from(z[cell]);
                x[[i, k]] * weight * f64::from(b.scale_inv()[cell])
            })
        })
    }

    #[test]
    fn a_term_of_zero_points_times_a_constant_is_told() {
        let got = times(|_| 1.875);
        assert_eq!(got.0, "zp_correction:b.zero_gain", "{}", got.1);
        assert!(got.1.contains("is multiplied by 1.875, what the bits of 1 in bf16 are as f16"), "{}", got.1);
        let got = times(|_| 0.6);
        assert!(got.0 == "zp_correction:b.zero_gain" && got.1.contains("multiplied by 0.6"), "{got:?}");
        // Another one for each row is no constant.
        let got = times(|i| 1.5 + noise(i));
        assert!(!got.0.contains("zero_gain"), "{got:?}");
    }

    #[test]
    fn a_term_of_zero_points_by_one_scale_is_told() {
        let q = codes(Format::Int8, M, K, K, false, 61);
        let zero = Zero::Integer((0..M).map(|x| (x * 7 % 23) as i32 - 9).collect());
        let a = QTensor::new(QTensorParts { zero: zero.clone(), ..q.into_parts() }).unwrap();
        let b = codes(Format::Int4, N, K, 16, false, 62);
        let Zero::Integer(z) = zero else { panic!("whole zero points") };
        let (x, y) = (a.dequantize(), b.dequantize());
        let step = |j: usize, c: usize| f64::from(b.scale_inv()[j * 6 + c]);
        let of = |by: &dyn Fn(usize, usize) -> f64| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
                let unit = -f64::from(z[i]) * f64::from(a.scale_inv()[i]);
                sum(K, |k| x[[i, k]] * y[[j, k]] + unit * y[[j, k]] * (by(j, k / 16) / step(j, k / 16) - 1.0))
            })
        };
        let got = of(&|j, _| step(j, 0));
        assert_eq!(got.0, "zp_correction:a.zero_term_scale", "{}", got.1);
        assert!(got.1.contains("of b by the scale of the first group alone"), "{}", got.1);
        let got = of(&|j, c| step(j, c) * (1.0 + noise(7 * j + c)));
        assert!(!got.0.contains("zero_term_scale"), "{got:?}");
    }
}
