//! A result that was cleared in part before a kernel added to it: as many bytes as it has elements. What stood behind them is in no file.

use super::memory::is_added;
use super::system::{Region, System, Theory};
use crate::Format;
use crate::fault::Class;
use std::sync::Arc;

/// Elements that tell it, and the share of those behind that must be wrong.
const LEAST: usize = 1024;
const SHARE: f64 = 0.98;

/// Right up to exactly a quarter of all elements of f32, in the order of memory, and from there on with numbers besides the right ones that have nothing
/// to do with these.
pub fn quarter(s: &System) -> Option<Theory> {
    let n = s.rows * s.cols;
    let cut = n / 4;
    let wide = s.out.format() == Format::F32 && !s.out.is_quantized();
    (wide && !s.alone && n.is_multiple_of(4) && n >= LEAST).then_some(())?;
    let wrong = |at: usize| s.is_wrong[at];
    let behind = (cut..n).filter(|at| wrong(*at)).count();
    (!(0..cut).any(wrong) && wrong(cut) && behind as f64 >= SHARE * (n - cut) as f64).then_some(())?;
    // Whole rows of it: nothing that goes with the right numbers, as a part of them that counts twice does.
    let from = cut.div_ceil(s.cols);
    let rows: Vec<bool> = (0..s.rows).map(|i| i >= from).collect();
    let r = Region { rows, cols: vec![true; s.cols], tiles: Vec::new(), words: String::new() };
    let places: Vec<(usize, usize)> = (from * s.cols..n).map(|at| (at / s.cols, at % s.cols)).collect();
    is_added(s, &r, &places).then_some(())?;
    let words = format!(
        "elements 0 … {} are right, exactly a quarter, and numbers that the inputs cannot give, such as those of a call before, are added to all behind: \
         the clear took the count of elements for one of bytes",
        cut - 1
    );
    let mut t = Theory::new(Class::AccState, "out", "out.old_content", words).bits(60.0);
    let (actual, cols, bias) = (s.actual.to_vec(), s.cols, s.bias.clone());
    t.finish = Some(Arc::new(move |i, j, v| if i * cols + j < cut { v + bias.at(i, j) } else { actual[i * cols + j] }));
    t.fitted = true;
    Some(t)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, noise, of_system, wide};

    /// What the inputs do give is none of it: a part of K twice, and noise in proportion to the result.
    #[test]
    fn a_part_that_counts_twice_and_noise_in_proportion_are_no_old_content() {
        let (a, b) = (wide(M, 96), codes(Format::Int8, N, 96, 96, false, 15));
        let (x, y) = (a.to_f64(), b.dequantize());
        let cut = M * N / 4;
        let of = |more: &dyn Fn(usize, f64) -> f64| {
            of_system(
                &a,
                &b,
                Format::F32,
                |i, j, right| {
                    let at = i * N + j;
                    right[at] + if at >= cut { more(at, right[at]) } else { 0.0 }
                },
                |s| super::quarter(s).is_some(),
            )
        };
        let half = |at: usize, _: f64| (0..40).map(|k| x[[at / N, k]] * y[[at % N, k]]).sum::<f64>();
        assert!(!of(&half));
        assert!(!of(&|at, right| 2.0 * right * (noise(at + 7) - 0.5)));
        let other = |at: usize, _: f64| (0..40).map(|k| (noise(at / N * 40 + k) - 0.5) * y[[at % N, k]]).sum::<f64>();
        assert!(of(&other), "those of another call are");
    }

    #[test]
    fn a_clear_of_as_many_bytes_as_elements_is_told() {
        let (a, b) = (wide(M, 96), codes(Format::Int8, N, 96, 96, false, 15));
        let (x, y) = (wide(M, 40).to_f64(), codes(Format::Int8, N, 40, 40, false, 99).dequantize());
        // The call before went over other operands.
        let old = |i: usize, j: usize| (0..40).map(|k| x[[(i * 7 + 3) % M, k]] * y[[j, k]]).sum::<f64>();
        let cut = M * N / 4;
        let got =
            found(&a, &b, None, Format::F32, |i, j, right| right[i * N + j] + if i * N + j >= cut { old(i, j) } else { 0.0 });
        assert_eq!(got.0, "acc_state:out.old_content", "{}", got.1);
        assert!(got.1.contains("0 … 383 are right, exactly a quarter"), "{}", got.1);
    }
}
