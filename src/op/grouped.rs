//! Grouped products in f64: one product a group, by the cumulative end rows `offs`.

use super::gemm::{finished, operand_b, product};
use super::{Args64, Defined};
use crate::{Error, Result};
use ndarray::{Array2, s};
use std::borrow::Cow;

/// The end rows of the groups, checked: present, ascending (equal ends are empty groups), not beyond `rows`.
pub fn check_offs(offs: Option<&[usize]>, rows: usize) -> Result<&[usize]> {
    let want = format!("cumulative end rows, ascending, at most {rows}");
    let offs = offs.filter(|o| !o.is_empty()).ok_or_else(|| Error::shape("offs", "none", &want))?;
    let mut last = 0;
    for (e, end) in offs.iter().enumerate() {
        if *end < last || *end > rows {
            return Err(Error::value(format!("offs[{e}]"), format!("{end} after {last}"), want));
        }
        last = *end;
    }
    Ok(offs)
}

/// Forward and grad_A: rows `offs[e−1]..offs[e]` of a times rows `e·N..(e+1)·N` of b, transposed. `[M,K] × [E·N,K] → [M,N]`;
/// rows from the last of `offs` on are zero. (grad_A: dY `[M,N]` with b `[E·K,N]`.) A bias `[E·N]` is added: to row i of group e
/// `w[i]·bias[e·N + j]`, w its `row_weights` or 1. Errors: no b or offs, offs not ascending or beyond M, shapes that do not fit.
pub fn by_rows(args: &Args64) -> Result<Defined> {
    let (m, k) = args.a.dim();
    let (b, offs) = (operand_b(args)?, check_offs(args.offs.as_deref(), m)?);
    let groups = offs.len();
    if b.ncols() != k || b.nrows() % groups != 0 {
        let found = format!("{}×{}", b.nrows(), b.ncols());
        return Err(Error::shape("operand b of a grouped product", found, format!("{groups}·N × {k}")));
    }
    let n = b.nrows() / groups;
    let length =
        |what: &str, of: &Option<Vec<f64>>, count: usize| match of.as_ref().map(Vec::len).filter(|found| *found != count) {
            Some(found) => Err(Error::shape(format!("{what} of a grouped product"), format!("{found} values"), count)),
            None => Ok(()),
        };
    length("bias", &args.bias, b.nrows())?;
    length("weights of rows", &args.row_weights, m)?;
    let (mut d, mut magnitude) = (Array2::zeros((m, n)), Array2::zeros((m, n)));
    let mut from = 0;
    for (e, &to) in offs.iter().enumerate() {
        let (x, y) = (args.a.slice(s![from..to, ..]), b.slice(s![e * n..(e + 1) * n, ..]));
        let (mut sums, mut sizes) = product(x, y, None, args.accelerator);
        if let Some(bias) = &args.bias {
            let weight = |i: usize| args.row_weights.as_ref().map_or(1.0, |w| w[from + i]);
            for ((i, j), sum) in sums.indexed_iter_mut() {
                let (x, y) = (x.row(i), y.row(j));
                let all = (
                    x.to_slice().map_or_else(|| x.to_vec().into(), Cow::Borrowed),
                    y.to_slice().map_or_else(|| y.to_vec().into(), Cow::Borrowed),
                );
                (*sum, sizes[(i, j)]) = finished((*sum, sizes[(i, j)]), &all.0, &all.1, weight(i) * bias[e * n + j]);
            }
        }
        d.slice_mut(s![from..to, ..]).assign(&sums);
        magnitude.slice_mut(s![from..to, ..]).assign(&sizes);
        from = to;
    }
    Ok(Defined { magnitude: Some(magnitude), accelerator: args.accelerator, ..Defined::plain(d) })
}

/// grad_B: the columns (tokens) `offs[e−1]..offs[e]` of a = dYᵀ times those of b = Aᵀ. `[N,M] × [K,M] → [E·N,K]`; an empty group
/// gives zeros. Errors: as [`by_rows`].
pub fn by_columns(args: &Args64) -> Result<Defined> {
    let (n, tokens) = args.a.dim();
    let (b, offs) = (operand_b(args)?, check_offs(args.offs.as_deref(), tokens)?);
    let (k, groups) = (b.nrows(), offs.len());
    if b.ncols() != tokens {
        let found = format!("{k}×{}", b.ncols());
        return Err(Error::shape("operand b of a grouped weight gradient", found, format!("K × {tokens} tokens")));
    }
    let (mut d, mut magnitude) = (Array2::zeros((groups * n, k)), Array2::zeros((groups * n, k)));
    let mut from = 0;
    for (e, &to) in offs.iter().enumerate() {
        let (sums, sizes) = product(args.a.slice(s![.., from..to]), b.slice(s![.., from..to]), None, args.accelerator);
        d.slice_mut(s![e * n..(e + 1) * n, ..]).assign(&sums);
        magnitude.slice_mut(s![e * n..(e + 1) * n, ..]).assign(&sizes);
        from = to;
    }
    Ok(Defined { magnitude: Some(magnitude), accelerator: args.accelerator, ..Defined::plain(d) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn args(a: Array2<f64>, b: Array2<f64>, offs: Vec<usize>) -> Args64 {
        Args64 { a, b: Some(b), offs: Some(offs), ..Args64::default() }
    }

    #[test]
    fn forward_by_hand_with_an_empty_group_and_unwritten_rows() {
        let a = array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]];
        // Three experts, N = 1: the second is empty, row 3 belongs to nobody.
        let b = array![[1.0, 0.0], [100.0, 100.0], [0.0, -1.0]];
        let d = by_rows(&args(a, b, vec![2, 2, 3])).unwrap();
        assert_eq!(d.d, array![[1.0], [3.0], [-6.0], [0.0]]);
        assert_eq!(d.magnitude.unwrap(), array![[1.0], [3.0], [6.0], [0.0]]);
    }

    /// w·(sum + bias), the bias that of the row's expert; row 3 belongs to nobody.
    #[test]
    fn a_bias_is_that_of_the_expert_and_has_the_weight_of_the_row() {
        let a = || array![[1.0, 2.0], [6.0, 8.0], [2.5, 3.0], [7.0, 8.0]];
        let b = || array![[1.0, 0.0], [0.0, 1.0], [100.0, 100.0], [7.0, 7.0], [0.0, -1.0], [1.0, 0.0]];
        let bias = Some(vec![10.0, -20.0, 5.0, 5.0, 3.0, -4.0]);
        let of = |row_weights: Option<Vec<f64>>| {
            let found = by_rows(&Args64 { bias: bias.clone(), row_weights, ..args(a(), b(), vec![2, 2, 3]) }).unwrap();
            (found.d, found.magnitude.unwrap())
        };
        let (d, magnitude) = of(None);
        assert_eq!(d, array![[11.0, -18.0], [16.0, -12.0], [0.0, -1.5], [0.0, 0.0]]);
        assert_eq!(magnitude, array![[11.0, 22.0], [16.0, 28.0], [6.0, 6.5], [0.0, 0.0]]);
        // Rows of a come with their weights.
        let (d, magnitude) = of(Some(vec![1.0, 2.0, 0.5, 9.0]));
        assert_eq!(d, array![[11.0, -18.0], [26.0, -32.0], [-1.5, 0.5], [0.0, 0.0]]);
        assert_eq!(magnitude.row(1).to_vec(), [26.0, 48.0]);
        let short = |bias, row_weights| by_rows(&Args64 { bias, row_weights, ..args(a(), b(), vec![2, 2, 3]) }).unwrap_err();
        assert!(short(Some(vec![0.0; 2]), None).to_string().contains("2 values"));
        assert!(short(bias.clone(), Some(vec![0.0; 3])).to_string().contains("3 values"));
    }

    #[test]
    fn weight_gradient_by_hand() {
        // N = 1, K = 2, four tokens in groups of 1, 0 and 2; the last token belongs to nobody.
        let dy = array![[2.0, 3.0, 4.0, 1000.0]];
        let a = array![[1.0, 10.0, 100.0, 1.0], [-1.0, 1.0, 2.0, 1.0]];
        let d = by_columns(&args(dy, a, vec![1, 1, 3])).unwrap();
        assert_eq!(d.d, array![[2.0, -2.0], [0.0, 0.0], [430.0, 11.0]]);
        assert_eq!(d.magnitude.unwrap()[(0, 1)], 2.0);
    }

    #[test]
    fn bad_offs_and_shapes_are_refused() {
        let x = || Array2::<f64>::zeros((4, 2));
        for (offs, what) in [(vec![], "none"), (vec![3, 2], "2 after 3"), (vec![2, 5], "5 after 2")] {
            let e = by_rows(&args(x(), x(), offs)).unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        }
        assert!(by_rows(&args(x(), x(), vec![1, 2, 3])).unwrap_err().to_string().contains("3·N × 2"));
        assert!(by_columns(&args(x(), Array2::zeros((4, 3)), vec![1])).unwrap_err().to_string().contains("2 tokens"));
    }
}
