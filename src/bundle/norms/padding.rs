//! Columns of padding that are summed with those of a row, and are not 0.
//!
//! ```text
//! μ = (Σx + p·c)/N,  v = (Σx² + p·c²)/N − μ²  or  (Σ(x − μ)² + p·(c − μ)²)/N          p columns of c; N = n or n + p
//! ```
//!
//! Both are linear in what is solved of a row: `Σx = N·μ − P`, `Σx² = N·(v + μ²) − Q`, with P = p·c and Q = p·c² the same in all rows.

use super::{Each, Line, Norm, digits};

/// Columns of padding, at most.
const MOST: usize = 1024;
/// How near to a whole number a fitted N or p is, relative.
const WHOLE: f64 = 0.01;

/// N, a whole number, and P of `y = N·x − P` by least squares over (x, y, weight).
fn fit(points: &[(f64, f64, f64)]) -> Option<(f64, f64)> {
    let sum = |of: &dyn Fn(&(f64, f64, f64)) -> f64| points.iter().map(|p| p.2 * of(p)).sum::<f64>();
    let (w, x, y) = (sum(&|_| 1.0), sum(&|p| p.0), sum(&|p| p.1));
    let (xx, xy) = (sum(&|p| p.0 * p.0), sum(&|p| p.0 * p.1));
    let det = w * xx - x * x;
    let slope = (w * xy - x * y) / det;
    let whole = slope.round();
    (det > 1e-9 * w * xx && whole >= 1.0 && (slope - whole).abs() <= WHOLE.max(1e-3 * whole)).then_some(())?;
    Some((whole, (whole * x - y) / w))
}

fn words(p: f64, c: f64) -> String {
    format!("{p} columns of padding, each {}, are summed too", digits::apart([c])[0])
}

/// Widths that rows are padded to multiples of.
const WIDTHS: [usize; 9] = [8, 16, 32, 64, 128, 256, 512, 1024, 4];

/// Padding of ones, which adds so much to the mean of squares over `n` columns.
pub fn ones(more: f64, n: usize) -> Option<String> {
    let p = more * n as f64;
    let (columns, near) = (p.round(), 1e-3 * p.abs());
    ((p - columns).abs() <= near && (1.0..=MOST as f64).contains(&columns)).then_some(())?;
    let width = WIDTHS.into_iter().find(|w| n.next_multiple_of(*w) == n + columns as usize)?;
    Some(format!(
        "{columns} columns of padding that hold 1 and not 0, up to the next multiple of {width}, are in the sum of squares, which is divided by {n}: \
         as an eps of {} would make it",
        digits::apart([more])[0]
    ))
}

/// Means of rows that are longer by some columns of one number.
pub fn means(norm: &Norm, known: &[(usize, Line)]) -> Option<Each> {
    let n = norm.cols() as f64;
    let sum = |i: usize| norm.rows[i].iter().sum::<f64>();
    let points: Vec<_> = known.iter().map(|(i, l)| (l.mean, sum(*i), (n * l.off_mean).max(1e-30).powi(-2))).collect();
    let (divisor, more) = fit(&points)?;
    (divisor > n && more != 0.0).then_some(())?;
    let of = (0..norm.rows.len()).map(|i| (sum(i) + more) / divisor).collect();
    Some(Each { words: format!("{} in the mean", words(divisor - n, more / (divisor - n))), of })
}

/// Divisors of such rows of a layernorm about these means: without a mean, padding is told from an eps by nothing.
pub fn divisors(norm: &Norm, centers: &[f64], known: &[(usize, Line)]) -> Vec<Each> {
    let (n, count) = (norm.cols() as f64, norm.rows.len());
    let squares = |i: usize| norm.rows[i].iter().map(|x| x * x).sum::<f64>();
    let sum = |i: usize| norm.rows[i].iter().sum::<f64>();
    let variance = |l: &Line| l.p.powi(-2) - norm.eps;
    let points: Vec<_> = (known.iter())
        .map(|(i, l)| (variance(l) + centers[*i].powi(2), squares(*i), (n * l.off_p / l.p.powi(3)).max(1e-30).powi(-2)))
        .collect();
    let mut all = Vec::new();
    // P, of means that are divided by this.
    let of_means = |divisor: f64| known.iter().map(|(i, _)| divisor * centers[*i] - sum(*i)).sum::<f64>() / known.len() as f64;
    if let Some((divisor, more)) = fit(&points).filter(|f| f.1 > 0.0) {
        let one = of_means(divisor);
        let p = if divisor > n { divisor - n } else { (one * one / more).round() };
        if p >= 1.0 && (one * one / (p * more) - 1.0).abs() < WHOLE {
            let said = format!("{}; Σx² is divided by {divisor}", words(p, more / one));
            let of =
                (0..count).map(|i| ((squares(i) + more) / divisor - centers[i].powi(2) + norm.eps).max(0.0).sqrt()).collect();
            all.push(Each { words: said, of });
        }
    }
    // Squares of what is left of padding and mean: they are no one number.
    for p in (1..=MOST).map(|p| p as f64) {
        for divisor in [n, n + p] {
            let c = of_means(divisor) / p;
            let of = |i: usize| {
                let m = centers[i];
                let of_row: f64 = norm.rows[i].iter().map(|x| (x - m).powi(2)).sum();
                ((of_row + p * (c - m).powi(2)) / divisor + norm.eps).sqrt()
            };
            if known.iter().all(|(i, l)| (of(*i) * l.p - 1.0).abs() <= (2.0 * l.off_p / l.p).max(1e-5)) {
                // Zeros are off by what their sum may be.
                let largest = known.iter().map(|(i, _)| centers[*i].abs()).fold(0.0, f64::max);
                let c = if c.abs() < 1e-3 * largest { 0.0 } else { c };
                let said = format!("{}; Σ(x − μ)² is divided by {divisor}", words(p, c));
                all.push(Each { words: said, of: (0..count).map(of).collect() });
            }
        }
    }
    all
}
