//! A result that was cleared in part before a kernel added to it: as many bytes as it has elements. What stood behind them is in no file.

use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use std::sync::Arc;

/// Elements that tell it, and the share of those behind that must be wrong.
const LEAST: usize = 1024;
const SHARE: f64 = 0.98;
/// What is added, over the right result, at least and at most.
const SIZE: std::ops::Range<f64> = 0.3..30.0;

/// Right up to exactly a quarter of all elements of f32, in the order of memory, and from there on with numbers besides the right ones: what is there
/// goes with the right result, as a sum with it does and another product alone does not.
pub fn quarter(s: &System) -> Option<Theory> {
    let n = s.rows * s.cols;
    let cut = n / 4;
    let wide = s.out.format() == Format::F32 && !s.out.is_quantized();
    (wide && !s.alone && n.is_multiple_of(4) && n >= LEAST).then_some(())?;
    let wrong = |at: usize| s.is_wrong[at];
    let behind = (cut..n).filter(|at| wrong(*at)).count();
    (!(0..cut).any(wrong) && wrong(cut) && behind as f64 >= SHARE * (n - cut) as f64).then_some(())?;
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for at in cut..n {
        let right = s.ideal[at] - s.bias.at(at / s.cols, at % s.cols);
        let more = s.actual[at] - s.ideal[at];
        (xx, xy, yy) = (xx + more * more, xy + more * right, yy + right * right);
    }
    let ratio = (xx / yy).sqrt();
    // Other numbers instead of the right ones would take these off; what is proportional to them is no other call's.
    let r = xy / (xx * yy).sqrt();
    let chance = 3.0 / ((n - cut) as f64).sqrt();
    (SIZE.contains(&ratio) && r > -chance && r < 0.9).then_some(())?;
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
    use crate::fault::solve::tests::{M, N, codes, found, wide};

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
