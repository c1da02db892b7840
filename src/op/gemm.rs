//! D = A·Bᵀ + bias in f64, and the magnitudes that error bounds are scaled by.

use super::elementwise::exact_sum;
use super::{Args64, Defined};
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use std::sync::OnceLock;

/// Partial sums of a dot product: lane l holds Σ over k ≡ l mod LANES, so that the order of additions, and with it every
/// bit of the result, is the same on every machine.
const LANES: usize = 16;

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
    let (d, magnitude) = product(args.a.view(), b.view(), bias);
    Ok(Defined { magnitude: Some(magnitude), ..Defined::plain(d) })
}

/// Operand b, which every product needs.
pub fn operand_b(args: &Args64) -> Result<&Array2<f64>> {
    args.b.as_ref().ok_or_else(|| Error::shape("operand b of a product", "none", "N×K"))
}

/// The sums and the magnitudes of row-major a (m × k), b (n × k) and a bias, sizes (m, n, k): with the bits of [`gemm`].
pub type Accelerator = fn(&[f64], &[f64], Option<&[f64]>, (usize, usize, usize)) -> Result<(Vec<f64>, Vec<f64>)>;

static ACCELERATOR: OnceLock<Accelerator> = OnceLock::new();

/// Has large products computed by `accelerator` from now on; the first one given stays.
pub fn accelerate(accelerator: Accelerator) {
    let _ = ACCELERATOR.set(accelerator);
}

/// Multiply-adds from which an accelerator is worth its copies.
const LARGE: usize = 1 << 30;

/// The sums and the magnitudes of a·bᵀ + bias.
pub fn product(a: ArrayView2<f64>, b: ArrayView2<f64>, bias: Option<&[f64]>) -> (Array2<f64>, Array2<f64>) {
    let (m, n, k) = (a.nrows(), b.nrows(), a.ncols());
    let (a, b) = (a.as_standard_layout(), b.as_standard_layout());
    let accelerator = ACCELERATOR.get().filter(|_| m * n * k >= LARGE);
    if let (Some(accelerator), Some(x), Some(y)) = (accelerator, a.as_slice(), b.as_slice()) {
        match accelerator(x, y, bias, (m, n, k)) {
            Ok((d, magnitude)) if agrees(x, y, bias, (m, n, k), (&d, &magnitude)) => {
                let shaped = |v| Array2::from_shape_vec((m, n), v).expect("an accelerator returns m × n");
                return (shaped(d), shaped(magnitude));
            }
            Ok(_) => tracing::error!("the accelerator's f64 product has other bits than the CPU's, which is used"),
            Err(e) => tracing::warn!("the f64 product is computed on the CPU: {e}"),
        }
    }
    let row = |x: &ArrayView2<f64>, i: usize| -> Vec<f64> { x.row(i).to_vec() };
    let (a, b) = (a.view(), b.view());
    let mut both = Array2::from_elem((m, n), (0.0, 0.0));
    if let Some(both) = both.as_slice_mut().filter(|x| !x.is_empty()) {
        both.par_chunks_mut(n).enumerate().for_each(|(i, out)| {
            let a = row(&a, i);
            for (j, out) in out.iter_mut().enumerate() {
                let b = b.row(j);
                let b = b.as_slice().expect("standard layout");
                *out = element(&a, b, bias.map_or(0.0, |bias| bias[j]));
            }
        });
    }
    (both.mapv(|x| x.0), both.mapv(|x| x.1))
}

/// Whether an accelerator's result has the CPU's bits on some rows, spread over the columns.
fn agrees(
    a: &[f64],
    b: &[f64],
    bias: Option<&[f64]>,
    (m, n, k): (usize, usize, usize),
    (d, magnitude): (&[f64], &[f64]),
) -> bool {
    const ROWS: usize = 4;
    const COLUMNS: usize = 512;
    let same = |x: f64, y: f64| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    (0..ROWS).into_par_iter().all(|r| {
        let i = r * (m - 1) / (ROWS - 1);
        (0..COLUMNS.min(n)).into_par_iter().all(|c| {
            let j = (c * (n / COLUMNS.min(n)) + r) % n;
            let bias = bias.map_or(0.0, |bias| bias[j]);
            let expected = element(&a[i * k..(i + 1) * k], &b[j * k..(j + 1) * k], bias);
            same(d[i * n + j], expected.0) && same(magnitude[i * n + j], expected.1)
        })
    })
}

/// Whether the rounding of a plain sum of `k` products could show in an f32 of the result.
fn cancels(d: f64, magnitude: f64, k: usize) -> bool {
    let error = (k as f64 + 4.0) * f64::EPSILON / 2.0 * magnitude;
    error > 2f64.powi(-34) * d.abs() && magnitude.is_finite()
}

/// One element and its magnitude.
fn element(a: &[f64], b: &[f64], bias: f64) -> (f64, f64) {
    let (sum, magnitude) = dot(a, b);
    let (d, magnitude) = (sum + bias, magnitude + bias.abs());
    if cancels(d, magnitude, a.len()) {
        return (exact_dot(a, b, bias), magnitude);
    }
    (d, magnitude)
}

/// Σ a·b and Σ |a·b|, without FMA, each lane in order, the lanes added pairwise.
fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f")]
        fn wide(a: &[f64], b: &[f64]) -> (f64, f64) {
            lanes(a, b)
        }
        #[target_feature(enable = "avx2")]
        fn middle(a: &[f64], b: &[f64]) -> (f64, f64) {
            lanes(a, b)
        }
        // SAFETY: the processor has the features (asked just before); the functions are ordinary Rust compiled with them.
        if is_x86_feature_detected!("avx512f") {
            return unsafe { wide(a, b) };
        }
        if is_x86_feature_detected!("avx2") {
            return unsafe { middle(a, b) };
        }
    }
    lanes(a, b)
}

#[inline(always)]
fn lanes(a: &[f64], b: &[f64]) -> (f64, f64) {
    let (mut sum, mut size) = ([0.0f64; LANES], [0.0f64; LANES]);
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (rest_a, rest_b) = (a.remainder(), b.remainder());
    for (a, b) in a.zip(b) {
        for l in 0..LANES {
            let p = a[l] * b[l];
            sum[l] += p;
            size[l] += p.abs();
        }
    }
    for (l, (a, b)) in rest_a.iter().zip(rest_b).enumerate() {
        sum[l] += a * b;
        size[l] += (a * b).abs();
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for l in 0..width {
            sum[l] += sum[l + width];
            size[l] += size[l + width];
        }
    }
    (sum[0], size[0])
}

/// Σ a·b + bias, every product split into two f64 (`fma` gives what its rounding lost), summed exactly.
fn exact_dot(a: &[f64], b: &[f64], bias: f64) -> f64 {
    let products = a.iter().zip(b).flat_map(|(a, b)| {
        let p = a * b;
        // A product that is not finite has no lost part.
        [p, if p.is_finite() { a.mul_add(*b, -p) } else { 0.0 }]
    });
    exact_sum(products.chain([bias]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn args(a: Array2<f64>, b: Array2<f64>, bias: Option<Vec<f64>>) -> Args64 {
        Args64 { a, b: Some(b), bias, ..Args64::default() }
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
        let (d, magnitude) = product(a.view(), b.view(), None);
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

    #[test]
    fn compilations_agree() {
        let x: Vec<f64> = (0..1003).map(|i| (f64::from(i) * 0.7).sin()).collect();
        let y: Vec<f64> = (0..1003).map(|i| (f64::from(i) * 0.3).cos()).collect();
        assert_eq!(dot(&x, &y), lanes(&x, &y));
        let exact = exact_dot(&x, &y, 0.0);
        assert!((dot(&x, &y).0 - exact).abs() < 1007.0 * f64::EPSILON / 2.0 * dot(&x, &y).1);
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
}
