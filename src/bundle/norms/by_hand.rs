//! Norms with mistakes in their gamma, mean, divisor and roundings, each written by hand, and what they are called.

use super::{Each, Line, NEAR, Norm, Rounded, Weights};
use crate::bundle::by_hand::{bf16, f16};
use crate::op::Op;

const ROWS: usize = 24;
pub(in crate::bundle) const COLS: usize = 96;
pub(in crate::bundle) const EPS: f64 = 0.02;

/// Values of both signs, not centred, rows of different sizes.
pub(in crate::bundle) fn rows() -> Vec<Vec<f64>> {
    let one = |at: usize| ((at * 7919 + 101) % 1009) as f64 / 1009.0 - 0.4;
    let size = |i: usize| 0.1 + 0.15 * ((i * 5 % ROWS) as f64);
    (0..ROWS).map(|i| (0..COLS).map(|j| f64::from((one(i * COLS + j) * size(i)) as f32)).collect()).collect()
}

pub(in crate::bundle) fn gamma(j: usize) -> f64 {
    f64::from((0.6 + ((j * 37 + 5) % 89) as f64 / 89.0) as f32)
}

pub(in crate::bundle) fn beta(j: usize) -> f64 {
    f64::from((((j * 53 + 11) % 83) as f64 / 83.0 - 0.3) as f32)
}

pub(super) fn average(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

pub(super) fn square(x: &[f64], m: f64) -> f64 {
    x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / x.len() as f64
}

/// All rows of a norm.
pub(in crate::bundle) type Rows<'x> = &'x [Vec<f64>];

/// What is seen of a norm whose element (i, j) is this.
pub(super) fn with<R>(op: Op, rows: Rows, made: &dyn Fn(Rows, usize, usize) -> f64, see: impl FnOnce(&Norm) -> R) -> R {
    let layer = op == Op::Layernorm;
    let (g, b): (Vec<f64>, Vec<f64>) = (0..COLS).map(|j| (gamma(j), if layer { beta(j) } else { 0.0 })).unzip();
    let half = |y: f64| y.abs() * 2f64.powi(-22) + 1e-12;
    let actual: Vec<f64> = (0..rows.len() * COLS).map(|at| made(rows, at / COLS, at % COLS)).collect();
    let ideal = |at: usize| {
        let (x, j) = (&rows[at / COLS], at % COLS);
        let m = if layer { average(x) } else { 0.0 };
        (x[j] - m) / (square(x, m) + EPS).sqrt() * g[j] + b[j]
    };
    let right: Vec<bool> = (0..rows.len() * COLS).map(|at| (actual[at] - ideal(at)).abs() <= half(actual[at])).collect();
    let cell = |at: usize| (actual[at] - half(actual[at]), actual[at] + half(actual[at]));
    let sampled: Vec<usize> = (0..rows.len()).collect();
    let norm = Norm {
        op,
        rows,
        sampled: &sampled,
        gain: "gamma",
        gamma: &g,
        beta: &b,
        eps: EPS,
        actual: &actual,
        cell: &cell,
        right: &right,
    };
    see(&norm)
}

/// What is said of it.
pub(in crate::bundle) fn said(op: Op, made: &dyn Fn(Rows, usize, usize) -> f64) -> String {
    with(op, &rows(), made, |norm| norm.explain().unwrap_or_default())
}

/// The right means of rows.
fn each(centers: &[f64]) -> Each {
    Each { words: String::new(), of: centers.to_vec() }
}

/// A layernorm by this mean of row `i` and this divisor, from the row and its mean.
fn layernorm(mean: &dyn Fn(Rows, usize) -> f64, divisor: &dyn Fn(Rows, usize, f64) -> f64) -> String {
    said(Op::Layernorm, &|rows, i, j| {
        let m = mean(rows, i);
        (rows[i][j] - m) / divisor(rows, i, m) * gamma(j) + beta(j)
    })
}

#[test]
fn means_are_named() {
    let own = |rows: &[Vec<f64>], i: usize| average(&rows[i]);
    type Mean<'x> = Box<dyn Fn(&[Vec<f64>], usize) -> f64 + 'x>;
    let ways: Vec<(&str, Mean)> = vec![
        ("", Box::new(own)),
        ("the mean is 1.2500 times the right one", Box::new(|r, i| 1.25 * own(r, i))),
        ("0.375 is added to the mean", Box::new(|r, i| 0.375 + own(r, i))),
        ("the mean is that of the first 40 columns", Box::new(|r, i| average(&r[i][..40]))),
        (
            "the mean is the sum over the first 40 columns, divided by 96",
            Box::new(|r, i| r[i][..40].iter().sum::<f64>() / 96.0),
        ),
        ("the mean is that of the last 40 columns", Box::new(|r, i| average(&r[i][56..]))),
        ("the mean is the sum over the last 40 columns, divided by 96", Box::new(|r, i| r[i][56..].iter().sum::<f64>() / 96.0)),
        ("the mean is that of row i − 3, wrapped", Box::new(|r, i| own(r, (i + ROWS - 3) % ROWS))),
        ("the mean is that of row i + 3, wrapped", Box::new(|r, i| own(r, (i + 3) % ROWS))),
        ("the mean is that of row (i / 4)·4", Box::new(|r, i| own(r, i - i % 4))),
        ("the mean is that of row i mod 4", Box::new(|r, i| own(r, i % 4))),
        ("the mean is that of all rows", Box::new(|r, _| r.iter().flatten().sum::<f64>() / (ROWS * COLS) as f64)),
    ];
    for (words, mean) in &ways {
        let found = layernorm(mean, &|r, i, m| (square(&r[i], m) + EPS).sqrt());
        assert_eq!(found.split(", in rows").next().unwrap(), *words);
    }
    let subtracted = said(Op::Rmsnorm, &|r, i, j| {
        let m = own(r, i);
        (r[i][j] - m) / (square(&r[i], m) + EPS).sqrt() * gamma(j)
    });
    assert_eq!(subtracted, "the mean is subtracted, as in a layernorm");
}

#[test]
fn divisors_are_named() {
    type Divisor<'x> = Box<dyn Fn(f64) -> f64 + 'x>;
    // Of the variance; and what has to be said of it.
    let eps = |e: f64| -> Divisor { Box::new(move |v| (v + e).sqrt()) };
    let ways: Vec<(&str, Divisor)> = vec![
        ("", eps(EPS)),
        ("eps is 0.03", eps(0.03)),
        ("eps is left out", eps(0.0)),
        ("the given eps over the number of columns", eps(EPS / COLS as f64)),
        ("the given eps times the number of columns", eps(EPS * COLS as f64)),
        ("the given eps squared", eps(EPS * EPS)),
        ("the root of the given eps", eps(EPS.sqrt())),
        ("the given eps twice", eps(2.0 * EPS)),
        ("0.05 is added to the root, not under it", Box::new(|v| v.sqrt() + 0.05)),
        ("the sum of squares is divided by 95 instead of 96", Box::new(|v| (v * 96.0 / 95.0 + EPS).sqrt())),
        ("the variance is 1.30", Box::new(|v| (v * 1.3 + EPS).sqrt())),
        ("the variance and eps are together at least 0.2", Box::new(|v| (v + EPS).max(0.2).sqrt())),
        ("the variance is at least 0.2", Box::new(|v| v.max(0.2).sqrt())),
        ("the sum of squares is divided by 128 instead of 96; and eps is 0.07", Box::new(|v| (v * 0.75 + 0.07).sqrt())),
        ("the variance is 1.307", Box::new(|v| (v * 1.3072 + 0.07).sqrt())),
        ("the root is not taken: values are divided by the variance", Box::new(|v| v + EPS)),
        ("values are multiplied by the root, not divided", Box::new(|v| 1.0 / (v + EPS).sqrt())),
    ];
    for (words, divisor) in &ways {
        let found = layernorm(&|r, i| average(&r[i]), &|r, i, m| divisor(square(&r[i], m)));
        assert!(if words.is_empty() { found.is_empty() } else { found.contains(words) }, "{words}: {found}");
    }
}

/// What is wrong with the columns that are written, and that the others are not.
#[test]
fn columns_that_are_not_written_are_told() {
    for (left, words) in [(0.0, "are 0: they are not written"), (3.0, "are the same in every row: they are not written")] {
        let found = said(Op::Layernorm, &|r, i, j| {
            let m = average(&r[i]);
            if j < 90 { (r[i][j] - m) / (square(&r[i], m) + 0.5).sqrt() * gamma(j) + beta(j) } else { left }
        });
        assert!(found.contains("eps is 0.5") && found.contains("columns 90 … 95") && found.contains(words), "{found}");
    }
}

#[test]
fn weights_and_roundings_are_named() {
    type Weight = (&'static str, fn(f64) -> f64);
    let gammas: [Weight; 7] = [
        ("", |g| g),
        ("gamma is not applied", |_| 1.0),
        ("1 is not added to gamma", |g| g - 1.0),
        ("1 is added to gamma", |g| 1.0 + g),
        ("gamma is applied twice", |g| g.powi(2)),
        ("gamma is rounded to bf16", bf16),
        ("gamma is stored as gamma − 1 in bf16, and 1 is added again", |g| 1.0 + bf16(g - 1.0)),
    ];
    type Shift = (&'static str, fn(f64, f64) -> f64);
    // Of beta and of the gamma that is applied.
    let betas: [Shift; 6] = [
        ("", |b, _| b),
        ("beta is not added", |_, _| 0.0),
        ("beta is multiplied by gamma too", |b, g| g * b),
        ("beta is subtracted", |b, _| 0.0 - b),
        ("beta is added twice", |b, _| b + b),
        ("gamma is added where beta belongs", |_, g| g),
    ];
    for ((of_gamma, g), (of_beta, b)) in gammas.into_iter().flat_map(|g| betas.map(|b| (g, b))) {
        let found = said(Op::Layernorm, &|r, i, j| {
            let (m, by) = (average(&r[i]), g(gamma(j)));
            (r[i][j] - m) / (square(&r[i], m) + 0.5).sqrt() * by + b(beta(j), by)
        });
        // Times 1 changes nothing.
        let of_beta = if of_gamma == "gamma is not applied" { of_beta.replace(betas[2].0, "") } else { of_beta.into() };
        let words: Vec<&str> = [of_gamma, &of_beta, "eps is 0.5"].into_iter().filter(|w| !w.is_empty()).collect();
        assert_eq!(found, words.join("; and "));
    }
    // What is rounded: the values, the mean, the reciprocal, the normalized value, its product with gamma.
    let kernels =
        ["00100", "00010", "00110", "10000", "00001", "00011", "00111", "10110", "01000", "01100", "01010", "01110", "01111"];
    for (name, round) in [("bf16", bf16 as fn(f64) -> f64), ("f16", f16)] {
        for kernel in kernels {
            let step = |n: usize, y: f64| if &kernel[n..=n] == "1" { round(y) } else { y };
            let found = said(Op::Layernorm, &|r, i, j| {
                let m = average(&r[i]);
                let root = step(2, 1.0 / (square(&r[i], m) + EPS).sqrt());
                let normal = step(3, (step(0, r[i][j]) - step(1, m)) * root);
                step(4, normal * gamma(j)) + beta(j)
            });
            let what = [
                "the values are",
                "the mean is",
                "the reciprocal of the root is",
                "the normalized value is",
                "its product with gamma is",
            ];
            let words: Vec<String> =
                (0..5).filter(|n| &kernel[*n..=*n] == "1").map(|n| format!("{} rounded to {name}", what[n])).collect();
            assert_eq!(found, words.join("; and "), "{kernel}");
        }
        // What stands under the root, alone and with its reciprocal and the normalized value.
        for (by_root, by_normal) in [(false, false), (true, false), (false, true), (true, true)] {
            let when = |is: bool, y: f64| if is { round(y) } else { y };
            let found = said(Op::Layernorm, &|r, i, j| {
                let m = average(&r[i]);
                let root = when(by_root, 1.0 / round(square(&r[i], m) + EPS).sqrt());
                when(by_normal, (r[i][j] - m) * root) * gamma(j) + beta(j)
            });
            let parts = [
                (true, "what stands under the root is"),
                (by_root, "the reciprocal of the root is"),
                (by_normal, "the normalized value is"),
            ];
            let words: Vec<String> =
                parts.iter().filter(|p| p.0).map(|(_, what)| format!("{what} rounded to {name}")).collect();
            assert_eq!(found, words.join("; and "));
        }
    }
}

/// A number of columns that fits is said, and no second mistake beside it.
#[test]
fn a_sum_that_is_divided_by_another_number_is_all_that_is_said() {
    let found = layernorm(&|r, i| average(&r[i]), &|r, i, m| (square(&r[i], m) * 96.0 / 95.0 + EPS).sqrt());
    assert_eq!(found, "the sum of squares is divided by 95 instead of 96");
}

/// Lines of all rows by these statistics, solved to seven digits.
fn solved(rows: Rows, mean: &dyn Fn(usize) -> f64, divisor: &dyn Fn(usize) -> f64) -> Vec<(usize, Line)> {
    let line = |i: usize| {
        let p = 1.0 / divisor(i);
        Line { p, mean: mean(i), off_p: 1e-7 * p, off_mean: 1e-7 / p, made: (1.0, 1.0) }
    };
    (0..rows.len()).map(|i| (i, line(i))).collect()
}

/// What is a row's own in three rows only is no mean of all.
#[test]
fn means_have_to_be_those_of_nearly_all_rows() {
    let mut rows = rows();
    for x in &mut rows[..3] {
        let m = average(x);
        x.iter_mut().for_each(|x| *x -= m);
    }
    let right = |rows: Rows, i: usize, j: usize| {
        let m = average(&rows[i]);
        (rows[i][j] - m) / (square(&rows[i], m) + EPS).sqrt() * gamma(j) + beta(j)
    };
    let divisor = |i: usize| (square(&rows[i], average(&rows[i])) + EPS).sqrt();
    let words = |mean: &dyn Fn(usize) -> f64| {
        with(Op::Layernorm, &rows, &right, |norm| {
            norm.means(&solved(&rows, mean, &divisor)).into_iter().map(|m| m.words).collect::<Vec<_>>()
        })
    };
    let not = "the mean is not subtracted".to_string();
    let own = words(&|i| average(&rows[i]));
    assert!(own[0].is_empty() && !own.contains(&not), "{own:?}");
    assert!(words(&|_| 0.0).contains(&not));
}

/// Reciprocals that are small numbers are no nearer to each other.
#[test]
fn divisors_are_compared_by_their_own_size() {
    let rows: Vec<Vec<f64>> = rows().into_iter().map(|x| x.into_iter().map(|x| 30_000.0 * x).collect()).collect();
    let right = |rows: Rows, i: usize, j: usize| {
        let m = average(&rows[i]);
        (rows[i][j] - m) / (square(&rows[i], m) + EPS).sqrt() * gamma(j) + beta(j)
    };
    let centers: Vec<f64> = rows.iter().map(|x| average(x)).collect();
    let words = |divisor: &dyn Fn(f64) -> f64| {
        let by = |i: usize| divisor(square(&rows[i], centers[i]));
        with(Op::Layernorm, &rows, &right, |norm| {
            let found = norm.divisors(&each(&centers), &solved(&rows, &|i| centers[i], &by));
            found.into_iter().map(|d| d.words).collect::<Vec<_>>()
        })
    };
    let squared = "the root is not taken: values are divided by the variance".to_string();
    assert!(words(&|v| (v + EPS).sqrt())[0].is_empty());
    assert!(words(&|v| v + EPS).contains(&squared));
    assert!(words(&|v| v.powf(0.75)).is_empty());
    // As far off as f32 may be.
    assert!(words(&|v| (v + EPS) * (1.0 + 1.5 * NEAR)).contains(&squared));
    assert!(!words(&|v| (v + EPS) * (1.0 + 60.0 * NEAR)).contains(&squared));
}

/// One in fifty columns may have another gamma by chance, where all have another beta.
#[test]
fn a_beta_is_told_beside_one_other_gamma_and_not_beside_two() {
    let of = |wrong: usize| {
        let made = |rows: Rows, i: usize, j: usize| {
            let m = average(&rows[i]);
            let g = if j < wrong { 2.0 * gamma(j) } else { gamma(j) };
            (rows[i][j] - m) / (square(&rows[i], m) + EPS).sqrt() * g + 1.7 * beta(j) + 0.4
        };
        with(Op::Layernorm, &rows(), &made, crate::bundle::weights::explain)
    };
    for wrong in [0, 1] {
        assert!(of(wrong).is_some_and(|words| words.starts_with("beta is another vector")), "{wrong}: {:?}", of(wrong));
    }
    assert_eq!(of(2), None);
}

/// Another gamma of some columns, and another beta: eight columns of 96 at least, and where they are unless they are nine in ten.
#[test]
fn weights_of_columns_are_solved_from_their_rows() {
    let of = |op: Op, count: usize, g: &dyn Fn(usize) -> f64, b: &dyn Fn(usize) -> f64| {
        let made = |rows: Rows, i: usize, j: usize| {
            let m = if op == Op::Layernorm { average(&rows[i]) } else { 0.0 };
            (rows[i][j] - m) / (square(&rows[i], m) + EPS).sqrt() * g(j) + if op == Op::Layernorm { b(j) } else { 0.0 }
        };
        with(op, &rows()[..count], &made, crate::bundle::weights::explain)
    };
    let twice = |n: usize| move |j: usize| if j < n { 2.0 * gamma(j) } else { gamma(j) };
    for op in [Op::Layernorm, Op::Rmsnorm] {
        let told = |n: usize| of(op, ROWS, &twice(n), &beta);
        assert_eq!([0, 7].map(told), [None, None]);
        assert_eq!(told(8).unwrap(), "gamma is applied twice as large, in columns 0 … 7");
        assert_eq!(told(86).unwrap(), "gamma is applied twice as large, in columns 0 … 85");
        assert_eq!([87, 96].map(told), [0; 2].map(|_| Some("gamma is applied twice as large".to_string())));
        assert_eq!(of(op, 5, &twice(8), &beta), None, "five rows");
        assert_eq!(of(op, 6, &twice(8), &beta).unwrap(), "gamma is applied twice as large, in columns 0 … 7");
        let moved = |j: usize| if (20..60).contains(&j) { gamma(j + 4) } else { gamma(j) };
        assert_eq!(of(op, ROWS, &moved, &beta).unwrap(), "column j takes gamma[j + 4], wrapped, in columns 20 … 59");
        let factor = of(op, ROWS, &|j| gamma(j) / 0.73, &beta).unwrap();
        assert_eq!(factor, "every row is divided by 0.73000 times the right divisor");
        let any = |j: usize| if j < 40 { gamma(j) * (1.2 + (j % 7) as f64 / 10.0) } else { gamma(j) };
        let words = of(op, ROWS, &any, &beta).unwrap();
        assert!(
            words.starts_with("gamma is another vector, the same in every row: ") && words.ends_with(", in columns 0 … 39"),
            "{words}"
        );
        assert_eq!(words.matches(" in column ").count(), 3, "{words}");
    }
    let both = of(Op::Layernorm, ROWS, &twice(10), &|j| if j > 90 { beta(j) } else { -beta(j) });
    assert_eq!(both.unwrap(), "gamma is applied twice as large, in columns 0 … 9; and beta has the other sign");
}

/// Values three around 1000 by a gamma of 64: a mean in f32 is off by more than what is left of them is.
#[test]
fn values_near_a_large_mean_may_be_off_by_its_rounding() {
    let rows: Vec<Vec<f64>> = vec![(0..COLS).map(|j| 1000.0 + (j as f64 - 47.5) / 16.0).collect(); ROWS];
    let weights = Weights { words: Vec::new(), gamma: vec![64.0; COLS], beta: vec![0.0; COLS] };
    let columns: Vec<usize> = (0..COLS).collect();
    let made = |off: f64| {
        let y = |rows: Rows, i: usize, j: usize| 64.0 * (rows[i][j] - 1000.0) + 4.0 * NEAR * off;
        with(Op::Layernorm, &rows, &y, |norm| {
            norm.made(3, &columns, &weights, &[1000.0; ROWS], &[1.0; ROWS], &Rounded::default())
        })
    };
    // A hundredth of γμ/σ is 640; of the values themselves twice 192 at most.
    assert_eq!([made(0.0), made(600.0), made(-600.0)], [COLS; 3]);
    assert_eq!([made(1100.0), made(-1100.0)], [0; 2]);
}

/// Every row is divided by the root of eps: its sum of squares is not divided by infinity.
#[test]
fn a_variance_of_zero_is_no_sum_over_a_number_of_columns() {
    let rows = rows();
    let right = |rows: Rows, i: usize, j: usize| (rows[i][j] - average(&rows[i])) / EPS.sqrt() * gamma(j) + beta(j);
    let centers: Vec<f64> = rows.iter().map(|x| average(x)).collect();
    let found = with(Op::Layernorm, &rows, &right, |norm| {
        norm.divisors(&each(&centers), &solved(&rows, &|i| centers[i], &|_| EPS.sqrt()))
    });
    let words: Vec<String> = found.into_iter().map(|d| d.words).collect();
    assert!(!words.iter().any(|w| w.contains("inf")), "{words:?}");
}

/// 26 columns of −0.7 behind every row, whichever way squares are summed and whatever they are divided by.
#[test]
fn padding_that_is_summed_is_solved() {
    let (p, c, n) = (26.0, -0.7, COLS as f64);
    let sums = |x: &[f64]| (x.iter().sum::<f64>() + p * c, x.iter().map(|x| x * x).sum::<f64>() + p * c * c);
    for divisor in [n, n + p] {
        let both = |rows: Rows, i: usize, j: usize| {
            let (sum, squares) = sums(&rows[i]);
            let m = sum / divisor;
            (rows[i][j] - m) / (squares / divisor - m * m + EPS).sqrt() * gamma(j) + beta(j)
        };
        let words = said(Op::Layernorm, &both);
        let told = ["26 columns of padding, each -0.7", &format!("Σx² is divided by {divisor}")];
        assert!(told.iter().all(|t| words.contains(t)), "{divisor}: {words}");
        let twice = |rows: Rows, i: usize, j: usize| {
            let m = sums(&rows[i]).0 / divisor;
            let v = (square(&rows[i], m) * n + p * (c - m) * (c - m)) / divisor;
            (rows[i][j] - m) / (v + EPS).sqrt() * gamma(j) + beta(j)
        };
        let words = said(Op::Layernorm, &twice);
        // Over all columns the two are one: Σ(x − μ)² = Σx² − N·μ².
        let squares = if divisor > n { "Σx²" } else { "Σ(x − μ)²" };
        let told = ["26 columns of padding, each -0.7", &format!("{squares} is divided by {divisor}")];
        assert!(told.iter().all(|t| words.contains(t)), "{divisor}: {words}");
        let rms = |rows: Rows, i: usize, j: usize| rows[i][j] / (sums(&rows[i]).1 / divisor + EPS).sqrt() * gamma(j);
        let words = said(Op::Rmsnorm, &rms);
        // What is added to all sums of squares is an eps: of padding no second number tells.
        let told = match divisor > n {
            true => "the sum of squares is divided by 122 instead of 96; and eps is 0.1244",
            false => "eps is 0.1527",
        };
        assert!(words.contains(told), "{divisor}: {words}");
    }
}

/// Six rows tell their means to a thousandth, eighteen to a tenth and lie off by nearly that.
#[test]
fn rows_that_tell_their_means_better_count_more() {
    let mut rows = rows();
    for (i, x) in rows.iter_mut().enumerate() {
        let m = average(x);
        x.iter_mut().for_each(|x| *x += 1.0 + (i % 2) as f64 - m);
    }
    let line = |i: usize| {
        let (off_mean, by) = if i < 6 { (1e-3, 0.0) } else { (0.1, 0.098) };
        (i, Line { p: 1.0, mean: 1.25 * average(&rows[i]) + by, off_p: 1e-7, off_mean, made: (1.0, 1.0) })
    };
    let known: Vec<(usize, Line)> = (0..ROWS).map(line).collect();
    let right = |rows: Rows, i: usize, j: usize| (rows[i][j] - average(&rows[i])) * gamma(j) + beta(j);
    let words = with(Op::Layernorm, &rows, &right, |norm| norm.means(&known).into_iter().map(|m| m.words).collect::<Vec<_>>());
    assert!(words.contains(&"the mean is 1.2500 times the right one".to_string()), "{words:?}");
}

/// Rows are longer by padding, and not shorter.
#[test]
fn padding_is_more_columns_than_there_are() {
    let rows = rows();
    let right = |rows: Rows, i: usize, j: usize| (rows[i][j] - average(&rows[i])) * gamma(j) + beta(j);
    let of = |divisor: f64| {
        let mean = |i: usize| (rows[i].iter().sum::<f64>() + 7.0) / divisor;
        let see = |norm: &Norm| super::padding::means(norm, &solved(&rows, &mean, &|_| 1.0));
        with(Op::Layernorm, &rows, &right, see).map(|found| found.words)
    };
    assert_eq!(of(100.0).unwrap(), "4 columns of padding, each 1.75, are summed too in the mean");
    assert_eq!(of(92.0), None);
}

#[test]
fn a_square_for_a_root_and_eps_beside_an_unbiased_root_are_solved() {
    let layer = |divisor: &dyn Fn(f64) -> f64| {
        let made = |rows: Rows, i: usize, j: usize| {
            let m = average(&rows[i]);
            (rows[i][j] - m) / divisor(square(&rows[i], m)) * gamma(j) + beta(j)
        };
        said(Op::Layernorm, &made)
    };
    let words = layer(&|v| (v + EPS).powi(2));
    assert!(words.contains("(variance + eps)²"), "{words}");
    let words = layer(&|v| (v * 96.0 / 95.0).sqrt() + EPS);
    assert!(words.contains("the sum of squares is divided by 95, and 0.02 is added to the root"), "{words}");
    let words = layer(&|v| (v * 96.0 / 8192.0 + EPS).sqrt());
    assert!(words.contains("the sum of squares is divided by 8192 instead of 96"), "{words}");
    // Another number of columns is no factor.
    let made = |rows: Rows, i: usize, j: usize| {
        let m = average(&rows[i]) * 96.0 / 128.0;
        (rows[i][j] - m) / (square(&rows[i], m) + EPS).sqrt() * gamma(j) + beta(j)
    };
    let words = said(Op::Layernorm, &made);
    assert!(words.contains("the mean is divided by 128 instead of 96"), "{words}");
}
