//! Rows that are divided by a size of their own before their squares are taken, so that eps is added to smaller numbers than it is meant for.
//!
//! ```text
//! x/s / √(mean((x/s)²) + ε)  =  x / √(mean(x²) + ε·s²)          s: the size of the row
//! ```

use super::{Norm, digits, mean};

/// A size of every row, in words.
pub struct Size {
    name: &'static str,
    pub of: Vec<f64>,
}

impl Size {
    /// What is said of it, with the eps where it is not the given one.
    pub fn words(&self, eps: Option<f64>) -> String {
        let eps = eps.map_or(String::new(), |e| format!(" {}", digits::apart([e])[0]));
        let name = self.name;
        format!(
            "rows are divided by {name} before their squares are taken, and eps{eps} is added after that: it counts ({name})² times"
        )
    }
}

/// The sizes that kernels take to keep squares in range.
pub fn sizes(norm: &Norm, centers: &[f64]) -> Vec<Size> {
    let largest = |x: &[f64], m: f64| x.iter().fold(0.0f64, |l, x| l.max((x - m).abs()));
    let size = |name, of: &dyn Fn(usize, &[f64]) -> f64| Size {
        name,
        of: norm.rows.iter().enumerate().map(|(i, x)| of(i, x)).collect(),
    };
    let mut all = vec![
        size("max|x|", &|_, x| largest(x, 0.0)),
        size("mean|x|", &|_, x| mean(x, f64::abs)),
        size("Σ|x|", &|_, x| x.iter().map(|x| x.abs()).sum()),
        size("√Σx²", &|_, x| x.iter().map(|x| x * x).sum::<f64>().sqrt()),
    ];
    if norm.layer() {
        all.push(size("max|x − μ|", &|i, x| largest(x, centers[i])));
        all.push(size("max x − min x", &|_, x| {
            x.iter().copied().fold(f64::NEG_INFINITY, f64::max) - x.iter().copied().fold(f64::INFINITY, f64::min)
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, rows, square, with};
    use super::super::{NEAR, Norm};
    use crate::op::Op;

    /// What is said of a norm that adds this to the mean square of row `i`.
    fn said(op: Op, more: &dyn Fn(usize, &[f64]) -> f64) -> String {
        // The sizes of rows are no multiple of their mean squares.
        let mut rows = rows();
        rows.iter_mut().enumerate().for_each(|(i, x)| x[i * 3 % COLS] = 2.0 + (i * 5 % 7) as f64);
        let layer = op == Op::Layernorm;
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let m = if layer { average(&rows[i]) } else { 0.0 };
            let b = if layer { beta(j) } else { 0.0 };
            (rows[i][j] - m) / (square(&rows[i], m) + more(i, &rows[i])).sqrt() * gamma(j) + b
        };
        with(op, &rows, &made, |norm: &Norm| norm.explain().unwrap_or_default())
    }

    fn largest(x: &[f64], m: f64) -> f64 {
        x.iter().fold(0.0, |l: f64, x| l.max((x - m).abs()))
    }

    #[test]
    fn an_eps_that_is_added_to_rows_of_another_size_is_named() {
        let words = |size: &str, eps: &str| {
            format!(
                "rows are divided by {size} before their squares are taken, and eps{eps} is added after that: it counts ({size})² times"
            )
        };
        for op in [Op::Rmsnorm, Op::Layernorm] {
            let of = |more: &dyn Fn(&[f64]) -> f64| said(op, &|_, x| more(x));
            assert_eq!(of(&|x| EPS * largest(x, 0.0).powi(2)), words("max|x|", ""));
            assert_eq!(of(&|x| EPS * (x.iter().map(|x| x.abs()).sum::<f64>() / COLS as f64).powi(2)), words("mean|x|", ""));
            assert_eq!(of(&|x| EPS * x.iter().map(|x| x * x).sum::<f64>()), words("√Σx²", ""));
            assert_eq!(of(&|x| 0.125 * largest(x, 0.0).powi(2)), words("max|x|", " 0.125"));
        }
        let centered = said(Op::Layernorm, &|_, x| EPS * largest(x, average(x)).powi(2));
        assert_eq!(centered, words("max|x − μ|", ""));
    }

    /// The bound of long rows with one large value is so wide that sums over other numbers of columns lie within it too.
    #[test]
    fn what_is_solved_comes_before_formulas_that_lie_within_a_wide_bound() {
        use crate::bundle::{Writer, named_tests};
        let (m, n) = (32, 1024);
        let value = |i: usize, j: usize| {
            let one = ((i * n + j).wrapping_mul(40503) % 2003) as f32 / 2003.0 - 0.5;
            if j == i * 31 % n { 30.0 + 2.0 * i as f32 } else { 1.7 * one }
        };
        let x: Vec<f32> = (0..m * n).map(|at| value(at / n, at % n)).collect();
        let row = |i: usize| {
            let x: Vec<f64> = x[i * n..(i + 1) * n].iter().map(|x| f64::from(*x)).collect();
            let root = (square(&x, 0.0) + 1e-5 * largest(&x, 0.0).powi(2)).sqrt();
            x.iter().map(|x| (x / root) as f32).collect::<Vec<f32>>()
        };
        let mut w = Writer::new("rmsnorm");
        w.meta("eps", "1e-5").f32s("a", &[m, n], &x).f32s("gamma", &[n], &vec![1.0; n]);
        w.f32s("out", &[m, n], &(0..m).flat_map(row).collect::<Vec<f32>>());
        named_tests::is_named(&w, "other_formula:solved", &["rows are divided by max|x| before their squares are taken"]);
    }

    /// Nothing is said of a row by a number of its own.
    #[test]
    fn an_eps_of_no_size_has_no_such_name() {
        let one = said(Op::Rmsnorm, &|i, _| EPS * (1.0 + ((i * 11) % 13) as f64 / 4.0));
        assert!(!one.contains("divided by max") && !one.contains("it counts"), "{one}");
        assert_eq!(said(Op::Rmsnorm, &|_, _| EPS * (1.0 + NEAR / 64.0)), "");
    }
}
