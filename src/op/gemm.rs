//! D = A·Bᵀ + bias in f64, and the magnitudes that error bounds are scaled by.

use super::dot::{self, COLS, ROWS};
use super::{Args64, Defined};
use crate::parallel;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `d[i,j] = Σ_k a[i,k]·b[j,k] + bias[j]` with `magnitude[i,j] = Σ_k |a||b| + |bias|`. `[M,K] × [N,K] → [M,N]`
///
/// A plain f64 sum is off by at most `(K+4)·2^-53·magnitude`. Where that could reach 2^-10 of an f32 spacing of the result,
/// `(K+4)·2^-53·magnitude > 2^-34·|d|` (the terms cancel), the element is summed exactly and rounded to f64 once.
/// Errors: no b, shapes that do not fit.
pub fn gemm(args: &Args64) -> Result<Defined> {
    let b = operand_b(args)?;
    let (n, k) = b.dim();
    if args.a.ncols() != k {
        return Err(Error::shape("operand b of gemm", format!("{n}×{k}"), format!("N×{}, K as in a", args.a.ncols())));
    }
    let bias = args.bias.as_deref();
    if let Some(bias) = bias.filter(|bias| bias.len() != n) {
        return Err(Error::shape("bias of gemm", format!("{} values", bias.len()), format!("{n}, one a column")));
    }
    let (d, magnitude) = product(args.a.view(), b.view(), bias, args.accelerator);
    Ok(Defined { magnitude: Some(magnitude), accelerator: args.accelerator, ..Defined::plain(d) })
}

/// Operand b, which every product needs.
pub fn operand_b(args: &Args64) -> Result<&Array2<f64>> {
    args.b.as_ref().ok_or_else(|| Error::shape("operand b of a product", "none", "N×K"))
}

/// The sums and the magnitudes of row-major a (m × k), b (n × k) and a bias, sizes (m, n, k): with the bits of [`gemm`].
pub type Accelerator = fn(&[f64], &[f64], Option<&[f64]>, (usize, usize, usize)) -> Result<(Vec<f64>, Vec<f64>)>;

/// Multiply-adds from which an accelerator is worth its copies.
const LARGE: usize = 1 << 26;

static ACCELERATED: AtomicUsize = AtomicUsize::new(0);

/// Products of this process that an accelerator computed.
pub fn accelerated() -> usize {
    ACCELERATED.load(Ordering::Relaxed)
}

/// The sums and the magnitudes of a·bᵀ + bias; large ones by `accelerator`, whose bits are looked at.
pub fn product(
    a: ArrayView2<f64>,
    b: ArrayView2<f64>,
    bias: Option<&[f64]>,
    accelerator: Option<Accelerator>,
) -> (Array2<f64>, Array2<f64>) {
    let (m, n, k) = (a.nrows(), b.nrows(), a.ncols());
    let (a, b) = (a.as_standard_layout(), b.as_standard_layout());
    let accelerator = accelerator.filter(|_| m * n * k >= LARGE);
    if let (Some(accelerator), Some(x), Some(y)) = (accelerator, a.as_slice(), b.as_slice()) {
        match accelerator(x, y, bias, (m, n, k)) {
            Ok((d, magnitude)) if agrees(x, y, bias, (m, n, k), (&d, &magnitude)) => {
                ACCELERATED.fetch_add(1, Ordering::Relaxed);
                let shaped = |v| Array2::from_shape_vec((m, n), v).expect("an accelerator returns m × n");
                return (shaped(d), shaped(magnitude));
            }
            Ok(_) => tracing::error!("the accelerator's f64 product has other bits than the CPU's, which is used"),
            Err(e) => tracing::warn!("the f64 product is computed on the CPU: {e}"),
        }
    }
    let mut d = Array2::zeros((m, n));
    let mut magnitude = Array2::zeros((m, n));
    if let (Some(x), Some(y), Some(d), Some(magnitude)) =
        (a.as_slice(), b.as_slice(), d.as_slice_mut(), magnitude.as_slice_mut())
        && n > 0
    {
        if m == 1 {
            // A lone row is cut into runs of columns: elements know nothing of each other.
            parallel::chunks_of_both(d, magnitude, RUN, |run, d, magnitude| {
                let (from, count) = (run * RUN, d.len());
                let bias = bias.map(|bias| &bias[from..from + count]);
                rows(x, &y[from * k..(from + count) * k], bias, (count, k), 0, d, magnitude);
            });
        } else {
            parallel::chunks_of_both(d, magnitude, BAND * n, |band, d, magnitude| {
                rows(x, y, bias, (n, k), band * BAND, d, magnitude);
            });
        }
    }
    (d, magnitude)
}

/// Rows of the result that one thread computes before it takes others.
const BAND: usize = 32;
/// Columns of a lone row.
const RUN: usize = 64;
/// Bytes of B's rows that stay in the cache while the rows of a band pass by.
const CACHED: usize = 1 << 19;

/// The rows of a band from `first` on.
fn rows(
    a: &[f64],
    b: &[f64],
    bias: Option<&[f64]>,
    (n, k): (usize, usize),
    first: usize,
    d: &mut [f64],
    magnitude: &mut [f64],
) {
    let of_a = |i: usize| &a[(first + i) * k..(first + i + 1) * k];
    let of_b = |j: usize| &b[j * k..(j + 1) * k];
    let block = (CACHED / (8 * k.max(1))).clamp(COLS, n.max(COLS)) / COLS * COLS;
    let count = d.len() / n;
    let mut sums = [[(0.0, 0.0); COLS]; ROWS];
    for from in (0..n).step_by(block) {
        for i in (0..count).step_by(ROWS) {
            // Beyond the last row or column the last one is computed again.
            let x = std::array::from_fn(|r| of_a((i + r).min(count - 1)));
            for j in (from..n.min(from + block)).step_by(COLS) {
                let y = std::array::from_fn(|c| of_b((j + c).min(n - 1)));
                dot::tile(x, y, &mut sums);
                for (r, sums) in sums.iter().enumerate().take(count - i) {
                    for (c, sums) in sums.iter().enumerate().take(n - j) {
                        let at = (i + r) * n + j + c;
                        (d[at], magnitude[at]) = finished(*sums, x[r], y[c], bias.map_or(0.0, |bias| bias[j + c]));
                    }
                }
            }
        }
    }
}

/// Whether an accelerator's result has the CPU's bits on some rows, spread over the columns.
fn agrees(
    a: &[f64],
    b: &[f64],
    bias: Option<&[f64]>,
    (m, n, k): (usize, usize, usize),
    (d, magnitude): (&[f64], &[f64]),
) -> bool {
    let looked_at = looked_at(m);
    !parallel::any(looked_at.len(), &|r| {
        let i = looked_at[r];
        let row = |of: &'_ [f64]| of[i * n..(i + 1) * n].to_vec();
        !row_agrees(r, &a[i * k..(i + 1) * k], &|j| Cow::Borrowed(&b[j * k..(j + 1) * k]), bias, (&row(d), &row(magnitude)))
    })
}

/// The rows of a result of `m` rows that are looked at where it was made elsewhere.
pub(crate) fn looked_at(m: usize) -> [usize; 4] {
    std::array::from_fn(|r| r * (m - 1) / 3)
}

/// Whether row `r` of those has the CPU's bits, at places spread over its columns: of factors `a`, and `b(j)` of column j.
pub(crate) fn row_agrees<'b>(
    r: usize,
    a: &[f64],
    b: &(dyn Fn(usize) -> Cow<'b, [f64]> + Sync),
    bias: Option<&[f64]>,
    (d, magnitude): (&[f64], &[f64]),
) -> bool {
    // Each asks for a row of b, which may lie elsewhere: fewer where rows are long.
    const FACTORS: usize = 1 << 17;
    let columns = (FACTORS / a.len().max(1)).clamp(32, 128);
    let n = d.len();
    let same = |x: f64, y: f64| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    !parallel::any(columns.min(n), &|c| {
        let j = (c * (n / columns.min(n)) + r) % n;
        let expected = element(a, &b(j), bias.map_or(0.0, |bias| bias[j]));
        !(same(d[j], expected.0) && same(magnitude[j], expected.1))
    })
}

/// Whether the rounding of a plain sum of `k` products could show in an f32 of the result.
fn cancels(d: f64, magnitude: f64, k: usize) -> bool {
    let error = (k as f64 + 4.0) * f64::EPSILON / 2.0 * magnitude;
    error > 2f64.powi(-34) * d.abs() && magnitude.is_finite()
}

/// One element and its magnitude.
fn element(a: &[f64], b: &[f64], bias: f64) -> (f64, f64) {
    finished(dot::dot(a, b), a, b, bias)
}

/// An element and its magnitude from the sums of its products.
pub(super) fn finished((sum, magnitude): dot::Sums, a: &[f64], b: &[f64], bias: f64) -> (f64, f64) {
    let (d, magnitude) = (sum + bias, magnitude + bias.abs());
    if cancels(d, magnitude, a.len()) {
        return (dot::exact(a, b, bias), magnitude);
    }
    (d, magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn args(a: Array2<f64>, b: Array2<f64>, bias: Option<Vec<f64>>) -> Args64 {
        Args64 { a, b: Some(b), bias, ..Args64::default() }
    }

    /// (1 + 2^-30)·(1 − 2^-30) − 1 = −2^-60, of which a plain sum in f64 leaves nothing.
    #[test]
    fn two_products_that_cancel_are_summed_exactly() {
        let small = 2f64.powi(-30);
        for (a, b) in [([1.0 + small, 1.0], [1.0 - small, -1.0]), ([1.0, 1.0 + small], [-1.0, 1.0 - small])] {
            let (a, b) = (Array2::from_shape_vec((1, 2), a.into()).unwrap(), Array2::from_shape_vec((1, 2), b.into()).unwrap());
            assert_eq!(product(a.view(), b.view(), None, None).0[(0, 0)], -small * small);
        }
    }

    #[test]
    fn an_accelerator_with_one_other_bit_is_found_out() {
        let (m, n, k) = (9, 33, 50);
        let values =
            |count: usize, seed: usize| (0..count).map(|i| ((i * 37 + seed) % 101) as f64 - 50.25).collect::<Vec<f64>>();
        let (a, b) = (
            Array2::from_shape_vec((m, k), values(m * k, 1)).unwrap(),
            Array2::from_shape_vec((n, k), values(n * k, 2)).unwrap(),
        );
        let (d, magnitude) = product(a.view(), b.view(), None, None);
        let check = |d: &Array2<f64>, magnitude: &Array2<f64>| {
            let (d, magnitude) = (d.as_slice().unwrap(), magnitude.as_slice().unwrap());
            agrees(a.as_slice().unwrap(), b.as_slice().unwrap(), None, (m, n, k), (d, magnitude))
        };
        assert!(check(&d, &magnitude));
        // The first, an inner and the last row are looked at.
        for row in [0, 2, 8] {
            let mut other = d.clone();
            other[[row, 7]] = other[[row, 7]].next_up();
            assert!(!check(&other, &magnitude), "row {row}");
            let mut other = magnitude.clone();
            other[[row, 32]] = other[[row, 32]].next_down();
            assert!(!check(&d, &other), "row {row}");
        }
    }

    /// A NaN is right where the CPU has one, and nowhere else.
    #[test]
    fn an_accelerator_with_another_nan_is_found_out() {
        let check = |a: f64, d: f64| agrees(&[a], &[3.0], None, (1, 1, 1), (&[d], &[(3.0 * a).abs()]));
        assert!(check(2.0, 6.0) && check(f64::NAN, -f64::NAN));
        assert!(!check(2.0, f64::NAN) && !check(f64::NAN, 6.0));
    }

    /// An accelerator is asked where its copies are worth it: by how many products there are, not by how many elements.
    #[test]
    fn an_accelerator_is_asked_for_large_products() {
        thread_local!(static ASKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });
        fn zeros(_: &[f64], _: &[f64], _: Option<&[f64]>, (m, n, _): (usize, usize, usize)) -> Result<(Vec<f64>, Vec<f64>)> {
            ASKED.set(ASKED.get() + 1);
            Ok((vec![0.0; m * n], vec![0.0; m * n]))
        }
        for (m, n, k, asked) in [(16, 16, 16, 0), (2, 2, LARGE >> 11, 0), (1 << 9, 1 << 9, LARGE >> 18, 1)] {
            ASKED.set(0);
            let (d, _) = product(Array2::zeros((m, k)).view(), Array2::zeros((n, k)).view(), None, Some(zeros));
            assert_eq!((ASKED.get(), d.dim()), (asked, (m, n)), "{m}×{n}×{k}");
        }
    }

    #[test]
    fn by_hand() {
        let a = array![[1.0, 2.0, -3.0], [0.5, 0.0, 4.0]];
        let b = array![[1.0, 1.0, 1.0], [2.0, -1.0, 0.25]];
        let d = gemm(&args(a, b, Some(vec![10.0, -20.0]))).unwrap();
        assert_eq!(d.d, array![[10.0, -20.75], [14.5, -18.0]]);
        assert_eq!(d.magnitude.unwrap(), array![[16.0, 24.75], [14.5, 22.0]]);
    }

    #[test]
    fn cancelling_sums_are_exact() {
        // 1 + 2^-52 squared is 1 + 2^-51 + 2^-104: the last bit is lost by the product's rounding.
        let x = 1.0 + 2f64.powi(-52);
        let a = array![[x, 1.0, 1.0, 1e16, 1.0, -1e16]];
        let b = array![[x, -1.0, -(2f64.powi(-51)), 1.0, 0.0, 1.0]];
        let d = gemm(&args(a, b, None)).unwrap();
        assert_eq!(d.d[(0, 0)], 2f64.powi(-104));
    }

    #[test]
    fn every_length_and_the_order_of_lanes() {
        for k in [0, 1, 15, 16, 17, 33, 100] {
            let a = Array2::from_shape_fn((3, k), |(i, j)| (i * k + j) as f64 - 20.0);
            let b = Array2::from_shape_fn((2, k), |(i, j)| ((i + 3) * j % 7) as f64 - 3.0);
            let d = gemm(&args(a.clone(), b.clone(), None)).unwrap();
            assert_eq!(d.d, a.dot(&b.t()), "K = {k}");
        }
    }

    /// Tiles, bands and blocks of columns leave no trace: every element is its own definition.
    #[test]
    fn every_element_is_its_own_sum_whatever_the_shape() {
        for (m, n, k) in [(1, 1, 5), (1, 200, 33), (4, 3, 16), (5, 4, 100), (70, 50, 33), (33, 130, 2000), (3, 7, 0)] {
            let value = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 2003) as f64 * 0.37 - 370.0;
            let (a, b) =
                (Array2::from_shape_fn((m, k), |(i, j)| value(i, j)), Array2::from_shape_fn((n, k), |(i, j)| value(j, i)));
            let bias: Vec<f64> = (0..n).map(|j| j as f64 - 3.5).collect();
            let (d, magnitude) = product(a.view(), b.view(), Some(&bias), None);
            for i in 0..m {
                for j in 0..n {
                    let (x, y) = (a.row(i).to_vec(), b.row(j).to_vec());
                    assert_eq!((d[(i, j)], magnitude[(i, j)]), element(&x, &y, bias[j]), "({i}, {j}) of {m}×{n}×{k}");
                }
            }
        }
    }

    #[test]
    fn non_finite_values_pass_through() {
        let d = gemm(&args(array![[1.0, f64::NAN], [f64::INFINITY, 1.0]], array![[1.0, 1.0], [0.0, 1.0]], None)).unwrap();
        assert!(d.d[(0, 0)].is_nan() && d.d[(0, 1)].is_nan());
        assert!(d.d[(1, 0)] == f64::INFINITY && d.d[(1, 1)].is_nan());
    }

    #[test]
    fn shapes_are_checked() {
        let zeros = |m, n| Array2::zeros((m, n));
        assert!(gemm(&Args64 { a: zeros(2, 3), ..Args64::default() }).unwrap_err().to_string().contains("operand b"));
        assert!(gemm(&args(zeros(2, 3), zeros(2, 4), None)).unwrap_err().to_string().contains("2×4"));
        assert!(gemm(&args(zeros(2, 3), zeros(2, 3), Some(vec![0.0]))).unwrap_err().to_string().contains("bias"));
    }

    /// The rounding of a plain sum of four products is 2^-50 of its magnitude: it could show from 2^-16 of it down.
    #[test]
    fn a_sum_that_is_small_beside_its_magnitude_is_summed_anew() {
        let small = 2f64.powi(-16);
        assert_eq!(
            [small, small.next_down(), -small, -small.next_down(), 0.0].map(|d| cancels(d, 1.0, 4)),
            [false, true, false, true, true]
        );
        assert!(!cancels(small, 1.0, 4) && cancels(small, 1.0, 5) && !cancels(0.0, f64::INFINITY, 4) && !cancels(0.0, 0.0, 4));
    }

    #[test]
    fn rows_and_columns_that_are_looked_at_are_spread() {
        assert_eq!([looked_at(1), looked_at(2), looked_at(10)], [[0; 4], [0, 0, 0, 1], [0, 3, 6, 9]]);
        // 128 of 300 columns: every second from that of the row on.
        let b = |j: usize| Cow::Owned(vec![j as f64]);
        let right: Vec<f64> = (0..300).map(|j| 2.0 * j as f64 + 1.0).collect();
        let agrees = |r: usize, d: &[f64], magnitude: &[f64]| row_agrees(r, &[2.0], &b, Some(&[1.0; 300]), (d, magnitude));
        let seen = |r: usize, j: usize| {
            let mut wrong = right.clone();
            wrong[j] += 1.0;
            (agrees(r, &wrong, &right), agrees(r, &right, &wrong))
        };
        assert!(agrees(0, &right, &right) && agrees(3, &right, &right));
        assert_eq!([seen(0, 0), seen(0, 254), seen(1, 1), seen(3, 257)], [(false, false); 4]);
        assert_eq!([seen(0, 1), seen(0, 256), seen(1, 0)], [(true, true); 3]);
        // 32 of 300 columns where a row has 4096 factors: every ninth.
        let b = |j: usize| Cow::Owned([vec![j as f64], vec![0.0; 4095]].concat());
        let a = [vec![2.0], vec![0.0; 4095]].concat();
        let long = |j: usize| {
            let mut wrong = right.clone();
            wrong[j] += 1.0;
            row_agrees(0, &a, &b, Some(&[1.0; 300]), (&wrong, &right))
        };
        assert_eq!([long(9), long(279), long(8), long(288)], [false, false, true, true]);
    }
}
