//! Numbers of a norm that are rounded to 16 bits on their way.

use crate::Format;
use crate::tensor::round_to;

/// What is rounded on the way.
#[derive(Clone, Copy, Default)]
pub struct Rounded {
    pub x: Option<Format>,
    pub mean: Option<Format>,
    pub variance: Option<Format>,
    pub square: Option<Format>,
    pub root: Option<Format>,
    /// The values less their mean.
    pub centered: Option<Format>,
    pub normal: Option<Format>,
    pub product: Option<Format>,
}

pub fn through(f: Option<Format>, x: f64) -> f64 {
    f.map_or(x, |f| f64::from(round_to(f, x as f32)))
}

impl Rounded {
    /// All combinations that kernels have, none first.
    pub fn all(layer: bool) -> Vec<Rounded> {
        let mut all = vec![Rounded::default()];
        for f in [Format::Bf16, Format::F16].map(Some) {
            let none = Rounded::default();
            let root = Rounded { root: f, ..none };
            let normal = Rounded { normal: f, ..none };
            let both = Rounded { root: f, normal: f, ..none };
            all.extend([root, normal, both, Rounded { x: f, ..none }, Rounded { product: f, ..none }]);
            all.extend([Rounded { product: f, ..normal }, Rounded { product: f, ..both }, Rounded { x: f, ..both }]);
            let square = Rounded { square: f, ..none };
            all.extend([square, Rounded { square: f, ..root }, Rounded { square: f, ..normal }, Rounded { square: f, ..both }]);
            let variance = Rounded { variance: f, ..none };
            all.extend([variance, Rounded { variance: f, ..root }, Rounded { variance: f, ..normal }]);
            if layer {
                all.extend([Rounded { mean: f, ..square }, Rounded { mean: f, ..variance }]);
                all.extend([Rounded { mean: f, ..none }, Rounded { mean: f, ..root }, Rounded { mean: f, ..normal }]);
                let centered = Rounded { centered: f, ..none };
                all.extend([centered, Rounded { mean: f, ..centered }, Rounded { centered: f, ..root }]);
                all.extend([Rounded { centered: f, ..normal }, Rounded { centered: f, ..both }]);
                all.extend([Rounded { mean: f, ..both }, Rounded { mean: f, product: f, ..both }]);
            }
        }
        all
    }
    /// A divisor whose square is rounded, or its part without eps.
    pub fn divisor(&self, d: f64, eps: f64) -> f64 {
        if self.variance.is_none() && self.square.is_none() {
            return d;
        }
        let square = if self.variance.is_none() { d * d } else { through(self.variance, d * d - eps) + eps };
        through(self.square, square).sqrt()
    }
    pub fn words(&self, layer: bool) -> Vec<String> {
        let parts = [
            (self.x, "the values are"),
            (self.mean, "the mean is"),
            (self.variance, if layer { "the variance is" } else { "the mean square is" }),
            (self.square, "what stands under the root is"),
            (self.root, "the reciprocal of the root is"),
            (self.centered, "the values less their mean are"),
            (self.normal, "the normalized value is"),
            (self.product, "its product with gamma is"),
        ];
        parts.iter().filter_map(|(f, what)| f.map(|f| format!("{what} rounded to {f}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, rows, square, with};
    use crate::bundle::by_hand::{bf16, f16};
    use crate::op::Op;

    /// What is said of a norm whose mean and mean square, each of which may be rounded, are these.
    fn said(op: Op, large: usize, of: &dyn Fn(f64, f64) -> (f64, f64)) -> String {
        let mut rows = rows();
        // The mean squares of these rows are beyond f16.
        for (i, row) in rows.iter_mut().enumerate() {
            row.iter_mut().for_each(|x| *x *= if i % 3 == 1 && i / 3 < large { 4096.0 } else { 8.0 });
        }
        let layer = op == Op::Layernorm;
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let m = if layer { average(&rows[i]) } else { 0.0 };
            let (m, v) = of(m, square(&rows[i], m));
            (rows[i][j] - m) / v.sqrt() * gamma(j) + if layer { beta(j) } else { 0.0 }
        };
        assert!(rows.iter().all(|x| x.len() == COLS));
        with(op, &rows, &made, |norm| norm.explain().unwrap_or_default())
    }

    #[test]
    fn a_variance_that_is_kept_in_16_bits_is_named_with_the_rows_that_it_overflows_in() {
        let of = |op: Op, large: usize| said(op, large, &|m, v| (m, f16(v) + EPS));
        assert_eq!(of(Op::Layernorm, 0), "the variance is rounded to f16");
        let words = "the variance is rounded to f16; Inf in 6 of 24 rows, which come out as beta";
        assert_eq!(of(Op::Layernorm, 6), words);
        let words = "the mean square is rounded to f16; Inf in 6 of 24 rows, which come out as 0";
        assert_eq!(of(Op::Rmsnorm, 6), words);
        let wide = said(Op::Layernorm, 6, &|m, v| (m, bf16(v) + EPS));
        assert_eq!(wide, "the variance is rounded to bf16");
        let both = said(Op::Layernorm, 0, &|m, v| (bf16(m), bf16(v) + EPS));
        assert_eq!(both, "the mean is rounded to bf16; and the variance is rounded to bf16");
        // Rows that are lost beside a variance that is right are not said to overflow.
        let lost = said(Op::Layernorm, 6, &|m, v| (m, if v > 65504.0 { f64::INFINITY } else { v + EPS }));
        assert!(!lost.contains("Inf in"), "{lost}");
    }
}
