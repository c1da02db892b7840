//! Results of experts with equally many rows that are stored in one order of axes and read in another: the expert innermost where it is outermost,
//! say.
//!
//! ```text
//! element (e, i, j) of [E, M, N] is written at its place in one order of the three axes and read at its place in another
//! ```

use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// The other orders of three axes, and what each takes to say.
const ORDERS: [([usize; 3], f64); 5] =
    [([1, 2, 0], 2.0), ([1, 0, 2], 2.0), ([2, 0, 1], 3.0), ([0, 2, 1], 3.0), ([2, 1, 0], 4.0)];
const NAMES: [&str; 3] = ["E", "M", "N"];

/// The place of (e, i, j) where the axes stand in this order.
fn place(dims: [usize; 3], order: [usize; 3], at: [usize; 3]) -> usize {
    order.iter().fold(0, |flat, axis| flat * dims[*axis] + at[*axis])
}

/// What stands at a place of this order.
fn element(dims: [usize; 3], order: [usize; 3], mut flat: usize) -> [usize; 3] {
    let mut at = [0; 3];
    for axis in order.iter().rev() {
        (at[*axis], flat) = (flat % dims[*axis], flat / dims[*axis]);
    }
    at
}

/// Every order, written or read. Nothing where experts differ in rows, or one axis alone has a length.
pub fn theories(s: &System) -> Vec<Theory> {
    let experts = s.parts.len();
    let rows = s.parts.first().map_or(0, |p| p.rows.len());
    let equal = s.parts.iter().enumerate().all(|(e, p)| p.rows == (e * rows..(e + 1) * rows)) && experts * rows == s.rows;
    if s.alone || experts < 2 || !equal || (rows < 2 && s.cols < 2) {
        return Vec::new();
    }
    let (dims, cols) = ([experts, rows, s.cols], s.cols);
    let own = [0, 1, 2];
    let mut all = Vec::new();
    for (order, bits) in ORDERS {
        for read in [true, false] {
            let from = move |i: usize, j: usize| {
                let at = [i / rows, i % rows, j];
                let [e, i, j] = match read {
                    true => element(dims, own, place(dims, order, at)),
                    false => element(dims, order, place(dims, own, at)),
                };
                (e * rows + i, j)
            };
            if (0..s.rows).all(|i| (0..cols.min(8)).all(|j| from(i, j) == (i, j))) {
                continue;
            }
            let words = |order: [usize; 3]| order.map(|x| NAMES[x]).join(", ");
            let (written, taken) = if read { (own, order) } else { (order, own) };
            let detail = format!(
                "the result of E = {experts} experts of M = {rows} rows and N = {cols} columns is written as [{}] and read as [{}]",
                words(written),
                words(taken)
            );
            let mut t = Theory::new(Class::Addressing, "out", "out.axes", detail).bits(2.0 + bits + f64::from(u8::from(!read)));
            t.from = Some(Arc::new(move |i, j| Some(from(i, j))));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, noise, sum, wide};

    #[test]
    fn experts_innermost_are_told_and_another_order_is_not() {
        const K: usize = 64;
        let (n, m, experts) = (20, 12, 3);
        let (a, b) = (wide(m * experts, K), codes(Format::E4m3, experts * n, K, K, false, 81));
        let (x, y) = (a.to_f64(), b.dequantize());
        let right = |i: usize, j: usize| sum(K, |k| x[[i, k]] * y[[i / m * n + j, k]]);
        let ends = [m, 2 * m, 3 * m];
        let of = |from: &dyn Fn(usize) -> usize| {
            grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
                let at = from(i * n + j);
                right(at / n, at % n)
            })
        };
        let got = of(&|f| (f % (m * n)) * experts + f / (m * n));
        assert_eq!(got.0, "addressing:out.axes", "{}", got.1);
        assert!(
            got.1.contains("E = 3 experts of M = 12 rows and N = 20 columns is written as [E, M, N] and read as [M, N, E]"),
            "{}",
            got.1
        );
        let got = of(&|f| f % experts * m * n + f / experts);
        assert!(got.0 == "addressing:out.axes" && got.1.contains("is written as [M, N, E] and read as [E, M, N]"), "{got:?}");
        // Places of chance.
        let got = of(&|f| (f + 1 + (noise(f) * 700.0) as usize) % (m * n * experts));
        assert_ne!(got.0, "addressing:out.axes", "{}", got.1);
    }
}
