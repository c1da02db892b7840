//! Solves gamma and beta of every column of a norm from rows whose mean and divisor are right: which stored element each is, or what
//! function of one.

use super::norms::{NEAR, Norm, SHARE};
use crate::compare::digits;
use crate::fault::solve::segment::lines;

/// Rows that a column is solved from, at least and at most.
const LEAST: usize = 6;
const MOST: usize = 512;
/// Columns of another gamma or beta, at least.
const WRONG: usize = 8;
const SIGMAS: f64 = 5.0;
/// What is said of a vector whose numbers are of no place that is known.
pub const VECTOR: &str = "is another vector, the same in every row";

/// A number of a column, and how far it may be off.
type Solved = (f64, f64);

/// What each wrong column was multiplied by and what was added, in words. `None`: it is no such thing.
pub fn explain(norm: &Norm) -> Option<String> {
    explain_by(norm, &|x| (norm.center(x), norm.divisor(x)))
}

/// The same where every row has this mean and this divisor.
pub fn explain_by(norm: &Norm, of: &(dyn Fn(&[f64]) -> (f64, f64) + Sync)) -> Option<String> {
    let (columns, unwritten) = norm.written();
    let n = norm.gamma.len();
    let step = norm.sampled.len().div_ceil(MOST);
    let rows: Vec<usize> = norm.sampled.iter().copied().step_by(step).collect();
    (rows.len() >= LEAST && columns.len() >= WRONG).then_some(())?;
    let moments: Vec<(f64, f64)> = rows.iter().map(|i| of(&norm.rows[*i])).collect();
    let mut solved: Vec<Option<(Solved, Solved)>> = vec![None; n];
    let (mut made, mut count) = (0usize, 0usize);
    for j in &columns {
        let terms = rows.iter().zip(&moments).filter_map(|(i, (m, d))| {
            let (low, high) = (norm.cell)(i * n + j);
            let y = 0.5 * (low + high);
            // Where a product and beta cancel, what is left is off by their rounding.
            let half = 0.5 * (high - low) + NEAR * (4.0 * y.abs() + norm.beta[*j].abs()) + 1e-30;
            (y.is_finite() && half.is_finite()).then(|| ((norm.rows[*i][*j] - m) / d, y, half))
        });
        let terms: Vec<(f64, f64, f64)> = terms.collect();
        let known = norm.beta[*j];
        let (g, b) = if norm.layer() { line(&terms)? } else { (slope(&terms, known)?, (known, 0.0)) };
        count += terms.len();
        made += terms.iter().filter(|(z, y, half)| (g.0 * z + b.0 - y).abs() <= 1.5 * half).count();
        solved[*j] = Some((g, b));
    }
    (made as f64 >= SHARE * count as f64).then_some(())?;
    let part = |what: &str, stored: &[f64], of: &dyn Fn(&(Solved, Solved)) -> Solved| -> Option<Option<String>> {
        let found: Vec<Option<Solved>> = solved.iter().map(|s| s.as_ref().map(of)).collect();
        let is = |j: usize, x: f64| found[j].is_none_or(|(v, off)| (v - x).abs() <= off + 4.0 * NEAR * x.abs());
        let wrong: Vec<usize> = columns.iter().copied().filter(|j| !is(*j, stored[*j])).collect();
        if wrong.len() < WRONG {
            return (wrong.len() * 50 <= columns.len()).then_some(None);
        }
        let flags: Vec<bool> = (0..n).map(|j| wrong.contains(&j)).collect();
        let place = if 10 * wrong.len() > 9 * n { String::new() } else { format!(", in columns {}", lines(&flags)) };
        let factor = || if what == "gamma" { one_factor(&wrong, stored, &found, &is) } else { None };
        let words = index(&wrong, stored, &is).or_else(factor).unwrap_or_else(|| {
            let shown = |j: &usize| {
                let [found, right] = digits::apart([found[*j].map_or(f64::NAN, |f| f.0), stored[*j]]);
                format!("{found} instead of {right} in column {j}")
            };
            let some: Vec<String> = wrong.iter().step_by(wrong.len().div_ceil(3)).map(shown).collect();
            format!("{what} {VECTOR}: {}", some.join(", "))
        });
        Some(Some(format!("{}{place}", words.replace("{}", what))))
    };
    let gamma = part("gamma", norm.gamma, &|s| s.0)?;
    let beta = if norm.layer() { part("beta", norm.beta, &|s| s.1)? } else { None };
    let words: Vec<String> = [gamma, beta, unwritten].into_iter().flatten().collect();
    (words.len() > usize::from(columns.len() < n)).then(|| words.join("; and "))
}

/// One factor of all of gamma: the divisor of every row is another.
fn one_factor(wrong: &[usize], stored: &[f64], found: &[Option<Solved>], is: &dyn Fn(usize, f64) -> bool) -> Option<String> {
    let n = stored.len() as f64;
    let told = |j: &&usize| stored[**j] != 0.0 && found[**j].is_some();
    let mut ratios: Vec<f64> = wrong.iter().filter(told).map(|j| found[*j].map_or(0.0, |f| f.0) / stored[*j]).collect();
    ratios.sort_by(f64::total_cmp);
    let by = *ratios.get(ratios.len() / 2)?;
    let holds = |by: f64| wrong.iter().filter(|j| is(**j, by * stored[**j])).count() as f64 >= SHARE * wrong.len() as f64;
    // All of the row has it, or it is no divisor.
    (wrong.len() as f64 >= SHARE * n && by > 0.0).then_some(())?;
    if holds(((n - 1.0) / n).sqrt()) {
        return Some(format!("the variance is divided by {} − 1", stored.len()));
    }
    holds(by).then(|| format!("every row is divided by {:.5} times the right divisor", 1.0 / by))
}

/// Least squares of `y = g·z + b`, each with how far it may be off.
pub fn line(terms: &[(f64, f64, f64)]) -> Option<(Solved, Solved)> {
    let (mut w, mut z1, mut zz, mut y1, mut zy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (z, y, half) in terms {
        let by = 1.0 / (half * half);
        (w, z1, zz, y1, zy) = (w + by, z1 + by * z, zz + by * z * z, y1 + by * y, zy + by * z * y);
    }
    let det = w * zz - z1 * z1;
    (terms.len() >= LEAST && det > 1e-12 * w * zz).then(|| {
        let off = |c: f64| SIGMAS * (c / det / 3.0).sqrt();
        (((w * zy - z1 * y1) / det, off(w)), ((zz * y1 - z1 * zy) / det, off(zz)))
    })
}

/// Least squares of `y − b = g·z`.
fn slope(terms: &[(f64, f64, f64)], b: f64) -> Option<Solved> {
    let (mut zz, mut zy) = (0.0, 0.0);
    for (z, y, half) in terms {
        let by = 1.0 / (half * half);
        (zz, zy) = (zz + by * z * z, zy + by * z * (y - b));
    }
    (terms.len() >= LEAST && zz > 0.0).then(|| (zy / zz, SIGMAS * (1.0 / zz / 3.0).sqrt()))
}

/// The element of the stored vector that each wrong column took, in words with `{}` for its name; or the number that all took.
fn index(wrong: &[usize], stored: &[f64], is: &dyn Fn(usize, f64) -> bool) -> Option<String> {
    let n = stored.len();
    let all = |of: &dyn Fn(usize) -> f64| {
        let few = wrong.iter().step_by(wrong.len().div_ceil(8));
        few.clone().filter(|j| is(**j, of(**j))).count() * 8 >= few.count() * 7
            && wrong.iter().filter(|j| is(**j, of(**j))).count() as f64 >= SHARE * wrong.len() as f64
    };
    let at = |map: &dyn Fn(usize) -> usize| all(&|j| stored[map(j).min(n - 1)]);
    for d in 1..n {
        if at(&|j| (j + d) % n) {
            return Some(if d <= n / 2 {
                format!("column j takes {{}}[j + {d}], wrapped")
            } else {
                format!("column j takes {{}}[j − {}], wrapped", n - d)
            });
        }
    }
    for d in 1..n {
        for (words, map) in [
            (format!("column j takes {{}}[j mod {d}]"), &(|j: usize| j % d) as &dyn Fn(usize) -> usize),
            (format!("column j takes {{}}[(j / {d})·{d}]"), &|j| j / d * d),
            (format!("column j takes {{}}[j / {d}]"), &|j| j / d),
            (format!("column j takes {{}}[{d}·j], wrapped"), &|j| j * d % n),
            (format!("column j takes {{}}[j xor {d}]"), &|j| j ^ d),
            (format!("column j takes {{}}[j + {d}]"), &|j| j + d),
            (format!("column j takes {{}}[j − {d}]"), &|j| j.saturating_sub(d)),
            (format!("column j takes {{}}[j mod {d} · {0} + j / {d}]: it is transposed as {d} wide", n.div_ceil(d)), &|j| {
                j % d * n.div_ceil(d) + j / d
            }),
        ] {
            if at(map) {
                return Some(words);
            }
        }
    }
    // Lanes that take strides where vectors were meant, or vectors where strides were, in each so many columns.
    for w in (4..n).filter(|w| n.is_multiple_of(*w)) {
        for d in (2..=w / 2).filter(|d| w.is_multiple_of(*d)) {
            if at(&|j| j / w * w + j % d * (w / d) + j % w / d) {
                return Some(format!(
                    "column j of each {w} takes {{}}[j mod {d} · {} + j / {d}] of them: they are transposed as {d} wide",
                    w / d
                ));
            }
        }
    }
    if at(&|j| n - 1 - j) {
        return Some("{} is read backwards".into());
    }
    type Change = (&'static str, fn(f64) -> f64);
    let changes: [Change; 8] = [
        ("0 is used instead of {}", |_| 0.0),
        ("1 is used instead of {}", |_| 1.0),
        ("1 is added to {}", |g| g + 1.0),
        ("1 is subtracted from {}", |g| g - 1.0),
        ("{} has the other sign", |g| -g),
        ("{} is squared", |g| g * g),
        ("{} is replaced by its magnitude", f64::abs),
        ("{} is applied twice as large", |g| 2.0 * g),
    ];
    changes.iter().find(|(_, f)| all(&|j| f(stored[j]))).map(|(words, _)| (*words).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All columns have to agree, not those that are looked at first.
    #[test]
    fn a_place_that_few_columns_took_is_not_named() {
        let stored: Vec<f64> = (0..64).map(|j| f64::from(j * 37 % 64) + 1.0).collect();
        let wrong: Vec<usize> = (0..64).collect();
        let named = |taken: &dyn Fn(usize) -> f64| index(&wrong, &stored, &|j, v| v == taken(j));
        assert_eq!(named(&|j| stored[(j + 3) % 64]).unwrap(), "column j takes {}[j + 3], wrapped");
        assert_eq!(named(&|j| stored[j / 4 * 4]).unwrap(), "column j takes {}[(j / 4)·4]");
        let lanes = named(&|j| stored[j / 32 * 32 + j % 2 * 16 + j % 32 / 2]).unwrap();
        assert!(lanes.starts_with("column j of each 32 takes {}[j mod 2 · 16 + j / 2] of them"), "{lanes}");
        assert_eq!(named(&|j| if j % 8 == 0 { stored[(j + 3) % 64] } else { 0.5 + j as f64 }), None);
    }

    #[test]
    fn what_becomes_of_every_number_is_said() {
        let stored: Vec<f64> = (0..24).map(|j| (f64::from(j * 7 % 24) - 9.5) * 0.25).collect();
        let wrong: Vec<usize> = (0..24).collect();
        let named = |f: &dyn Fn(f64) -> f64| index(&wrong, &stored, &|j, v| (v - f(stored[j])).abs() < 1e-12);
        assert_eq!(named(&|g| g * g).unwrap(), "{} is squared");
        assert_eq!(named(&|g| -g).unwrap(), "{} has the other sign");
        assert_eq!(named(&|g| 2.0 * g).unwrap(), "{} is applied twice as large");
        assert_eq!(named(&|_| 1.0).unwrap(), "1 is used instead of {}");
        assert_eq!(named(&|g| 3.0 * g * g), None);
    }

    #[test]
    fn a_factor_of_known_points_is_solved() {
        let of = |n: i32| f64::from(n) / 7.0 - 2.0;
        let terms: Vec<(f64, f64, f64)> = (0..40).map(|n| (of(n), 1.75 * of(n) + 0.5, 1e-3)).collect();
        let (g, off) = slope(&terms, 0.5).unwrap();
        assert!((g - 1.75).abs() < 1e-12 && 0.0 < off && off < 1e-2, "{g} ± {off}");
        // z = ±1 with a rounding of ±1/2 each: a deviation of 1/√12 over the root of their number.
        let ones: Vec<(f64, f64, f64)> = (0..48).map(|n| [(1.0, 3.0, 0.5), (-1.0, -3.0, 0.5)][n % 2]).collect();
        let (g, off) = slope(&ones, 0.0).unwrap();
        assert!((g - 3.0).abs() < 1e-12 && (off - SIGMAS / 12f64.sqrt() / 48f64.sqrt()).abs() < 1e-12, "{g} ± {off}");
        let ((g, _), (b, off)) = line(&ones).unwrap();
        assert!((g - 3.0).abs() < 1e-12 && b.abs() < 1e-12, "{g}, {b}");
        assert!((off - SIGMAS / 12f64.sqrt() / 48f64.sqrt()).abs() < 1e-12, "± {off}");
        assert!(slope(&terms[..LEAST - 1], 0.5).is_none(), "too few");
        assert!(slope(&[(0.0, 1.0, 1e-3); 40], 0.5).is_none(), "nothing that a factor moves");
        // What a line is told of has to lie apart by more than a millionth.
        let apart = |by: f64| line(&(0..40).map(|n| (1.0 + by * f64::from(n), 1.0, 1e-3)).collect::<Vec<_>>());
        assert!(apart(2e-8).is_none() && apart(2e-6).is_some());
    }

    /// A gamma of 0 says nothing of a factor, however many there are; 1.5 times gamma is a divisor of 2/3.
    #[test]
    fn one_factor_is_told_beside_weights_that_are_zero() {
        let stored: Vec<f64> = (0..40).map(|j| if j % 5 < 3 { 0.0 } else { f64::from(j) / 8.0 }).collect();
        let wrong: Vec<usize> = (0..40).collect();
        let of = |by: f64| {
            let found: Vec<Option<Solved>> = stored.iter().map(|g| Some((by * g, 1e-9))).collect();
            one_factor(&wrong, &stored, &found, &|j, x| (x - by * stored[j]).abs() < 1e-12)
        };
        assert_eq!(of(1.5).unwrap(), "every row is divided by 0.66667 times the right divisor");
        assert_eq!(of((39.0f64 / 40.0).sqrt()).unwrap(), "the variance is divided by 40 − 1");
        assert_eq!(of(-1.5), None);
        assert_eq!(of(0.0), None, "no divisor makes zeros");
    }

    #[test]
    fn a_vector_that_is_read_in_steps_goes_round() {
        let stored: Vec<f64> = (0..64).map(|j| f64::from(j * 37 % 64) + 1.0).collect();
        let wrong: Vec<usize> = (1..64).collect();
        let named = index(&wrong, &stored, &|j, v| v == stored[3 * j % 64]);
        assert_eq!(named.as_deref(), Some("column j takes {}[3·j], wrapped"));
    }
}
