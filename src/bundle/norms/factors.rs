//! Numbers of a norm that were solved, in words: an eps, and a factor of sums that are scaled for their number of columns.
//!
//! ```text
//! Σx·c·c, c = 1/√n in few bits           Σx·c, c = 1/n in few bits          right: Σx/n
//! ```

use super::padding;
use super::rounded::through;
use crate::Format;
use crate::compare::digits;

/// What an eps that was solved is. Of an rmsnorm columns of padding that hold ones are the same.
pub fn eps_words(found: f64, eps: f64, n: usize, layer: bool) -> String {
    if let Some(words) = padding::ones(found - eps, n).filter(|_| !layer) {
        return words;
    }
    let n = n as f64;
    let is = |x: f64| (found - x).abs() <= 1e-3 * x.abs();
    let how = [
        (eps / n, "given eps over the number of columns"),
        (eps * n, "given eps times the number of columns"),
        (eps * eps, "given eps squared"),
        (eps.sqrt(), "root of the given eps"),
        (2.0 * eps, "given eps twice"),
    ];
    let how = how.iter().find(|(x, _)| *x > 0.0 && is(*x)).map_or(String::new(), |(_, words)| format!(", the {words}"));
    if found.abs() < 1e-3 * eps {
        return "eps is left out".into();
    }
    format!("eps is {}{how}", digits::apart([found])[0])
}

/// How sums over `n` columns are scaled, where that is a factor of this kind, not of 1.
pub fn scaled(n: usize, is: &dyn Fn(f64) -> bool) -> Option<String> {
    let size = n as f64;
    [Format::Bf16, Format::F16].into_iter().find_map(|f| {
        let [root, whole] = [size.sqrt(), size].map(|by| through(Some(f), 1.0 / by));
        let ways = [
            (root * root * size, format!("sums are multiplied twice by 1/√{n} in {f}, not divided by {n}")),
            (whole * size, format!("sums are multiplied by 1/{n} in {f}, not divided by {n}")),
        ];
        ways.into_iter().find(|(factor, _)| *factor != 1.0 && is(*factor)).map(|w| w.1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, said, square};
    use crate::bundle::by_hand::bf16;
    use crate::op::Op;

    /// A layernorm whose mean and variance are these times the right ones.
    fn by(mean: f64, variance: f64) -> String {
        said(Op::Layernorm, &|rows, i, j| {
            let m = mean * average(&rows[i]);
            (rows[i][j] - m) / (variance * square(&rows[i], m) + EPS).sqrt() * gamma(j) + beta(j)
        })
    }

    #[test]
    fn sums_that_are_scaled_for_their_number_of_columns_are_named() {
        let n = COLS as f64;
        let root = bf16(1.0 / n.sqrt());
        let f = root * root * n;
        let words = by(f, f);
        assert_eq!(
            words,
            format!(
                "the mean is {f:.4} times the right one: sums are multiplied twice by 1/√96 in bf16, not divided by 96; and the variance is, too"
            )
        );
        // A whole number of columns near it, and a factor of nobody's.
        let words = by(96.0 / 97.0, 96.0 / 97.0);
        assert!(words.starts_with("the mean is divided by 97 instead of 96"), "{words}");
        assert_eq!(by(0.99, 0.99), "the mean is 0.9900 times the right one; and the variance is 0.990000 times the right one");
        // So near to a whole number of columns that the words were of that one alone.
        let near = 96.0 / 97.0 * (1.0 + 8e-5);
        assert!(by(near, near).starts_with("the mean is 0.9898 times the right one"), "{}", by(near, near));
    }
}
