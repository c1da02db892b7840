//! The last columns or rows of a cast whose codes are all 0 although the values are not: they are not written. What is wrong beside them is looked
//! for without them.

use crate::{Granularity, QTensor, Tensor};

/// Steps of a code that values are beyond, which would not be 0.
const LARGE: f64 = 1.0;
/// The fewest of them that tell it.
const LEAST: usize = 8;

/// The tensors without what is not written, and what that is, in words.
pub fn without(x: &Tensor, q: &QTensor) -> Option<(Tensor, QTensor, String)> {
    matches!(q.granularity(), Granularity::Tensor | Granularity::Row).then_some(())?;
    let (rows, cols) = (q.rows(), q.cols());
    let blank = |at: usize| q.format().decode(u32::from(q.codes()[at])) == 0.0;
    let step = |at: usize| f64::from(q.scale_inv()[q.scale_index(at / cols, at % cols)]);
    let large = |at: usize| (f64::from(x.data()[at]) / step(at)).abs() > LARGE;
    let first = |n: usize, is: &dyn Fn(usize) -> bool| n - (0..n).rev().take_while(|l| is(*l)).count();
    let right = first(cols, &|j| (0..rows).all(|i| blank(i * cols + j)));
    let bottom = first(rows, &|i| (0..cols).all(|j| blank(i * cols + j)));
    let (height, width, words) = match (bottom < rows, right < cols) {
        (false, true) => {
            (rows, right, format!("the last {} of {cols} columns are not written: their codes are 0", cols - right))
        }
        (true, false) => {
            (bottom, cols, format!("the last {} of {rows} rows are not written: their codes are 0", rows - bottom))
        }
        _ => return None,
    };
    let outside = (0..rows * cols).filter(|at| at / cols >= height || at % cols >= width);
    (2 * height > rows && 2 * width > cols && outside.filter(|at| large(*at)).count() >= LEAST).then_some(())?;
    let inside = || (0..height).flat_map(|i| i * cols..i * cols + width);
    let mut p = q.clone().into_parts();
    (p.rows, p.cols, p.codes) = (height, width, inside().map(|at| q.codes()[at]).collect());
    if matches!(q.granularity(), Granularity::Row) {
        p.scale_inv.truncate(height);
    }
    let values = inside().map(|at| x.data()[at]).collect();
    Some((Tensor::new(x.dtype(), height, width, values).ok()?, QTensor::new(p).ok()?, words))
}
