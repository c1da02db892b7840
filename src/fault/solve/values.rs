//! Theories of an operand that lies in memory as values: dequantized first, or never quantized, and then read with other strides. Scales move
//! with what they multiply.
//!
//! ```text
//! X(i, k) = memory[k·N + i],  memory[i·S + k],  memory[i·K + k + d]          right: memory[i·K + k]; N rows of K
//! X(i, k) = memory[(i − r + c)·K + k − c + r]                                 r = i mod t, c = k mod t: tiles of t × t, transposed
//! ```

use super::maps::cost;
use super::system::{System, Theory, To};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// How far a stride, or an offset, is off at most.
const FAR: usize = 256;
/// Tiles that a matrix load transposes.
const TILES: [usize; 4] = [8, 16, 4, 32];

/// Of one operand that has codes with scales of several columns or rows: what has none is told by its codes.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (rows, k_all, n) = (g.rows, g.k, g.rows * g.k);
    if s.alone || g.q.is_none() || g.grid.0 * g.grid.1 < 2 || rows < 2 || k_all < 2 {
        return Vec::new();
    }
    let name = side.name();
    let mut all = Vec::new();
    let mut add = |variant: &str, words: String, bits: f64, to: To| {
        let words = format!("{name} is dequantized first, and its values are read {words}");
        let mut t = Theory::new(Class::Addressing, name, format!("{name}.{variant}"), words).bits(8.0 + bits);
        let values = g.values.clone();
        t.side(side).value = Some(Arc::new(move |i, k| to(i, k).and_then(|at| values.get(at)).copied().unwrap_or(0.0)));
        all.push(t);
    };
    for (variant, words, to) in column_major(s, side) {
        add(variant, words, 0.0, to);
    }
    let experts = s.experts(side);
    let per = rows / experts;
    for t in TILES.into_iter().filter(|t| *t <= per && *t <= k_all) {
        let to: To = Arc::new(move |i, k| {
            let (r, c) = (i % per % t, k % t);
            let (top, left) = (i - r, k - c);
            let whole = i % per - r + t <= per && left + t <= k_all;
            Some(if whole { (top + c) * k_all + left + r } else { i * k_all + k })
        });
        add("values_tile_transposed", format!("with every {t}×{t} tile transposed"), cost(t) - 2.0, to);
    }
    for d in 1..FAR {
        for stride in [k_all + d].into_iter().chain((d < k_all).then(|| k_all - d)) {
            let words = format!("at a row stride of {stride} instead of {k_all}");
            add("values_stride", words, 2.0 + cost(d), Arc::new(move |i, k| Some(i * stride + k)));
        }
        if d < k_all {
            let words = format!("{d} elements further on");
            add("values_offset", words, 3.0 + cost(d), Arc::new(move |i, k| Some(i * k_all + k + d)));
            let words = format!("{d} elements before");
            add("values_offset", words, 3.0 + cost(d), Arc::new(move |i, k| Some((i * k_all + k + n - d) % n)));
        }
    }
    all
}

/// Rows taken for columns: both ways round, of every expert by itself.
fn column_major(s: &System, side: Which) -> Vec<(&'static str, String, To)> {
    let g = s.given(side);
    let k_all = g.k;
    let experts = s.experts(side);
    let per = (g.rows / experts).max(1);
    let names = if side == Which::A { ("[M, K]", "[K, M]") } else { ("[N, K]", "[K, N]") };
    let first = format!("as {} although they are stored as {}", names.1, names.0);
    let back = format!("as {} although they are stored as {}", names.0, names.1);
    vec![
        ("values_column_major", first, Arc::new(move |i, k| Some(i / per * per * k_all + k * per + i % per))),
        (
            "values_column_major_back",
            back,
            Arc::new(move |i, k| {
                let f = i % per * k_all + k;
                Some(i / per * per * k_all + f % per * k_all + f / per)
            }),
        ),
    ]
}

/// A kernel that takes an operand and its result for column-major.
pub fn both_turned(s: &System) -> Vec<Theory> {
    let (rows, cols) = (s.rows, s.cols);
    if s.alone || rows < 2 || cols < 2 {
        return Vec::new();
    }
    let mut all = Vec::new();
    for side in s.sides().iter().copied() {
        let name = side.name();
        for (variant, words, to) in column_major(s, side) {
            let text = format!("{name} is read {words}, and the result is written column by column");
            let mut t = Theory::new(Class::Addressing, name, format!("{name}.{variant}_and_out"), text).bits(8.0);
            let values = s.given(side).values.clone();
            t.side(side).value = Some(Arc::new(move |i, k| to(i, k).and_then(|at| values.get(at)).copied().unwrap_or(0.0)));
            t.from = Some(Arc::new(move |i, j| {
                let f = i * cols + j;
                Some((f % rows, f / rows))
            }));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    /// The tiles of every second fragment of columns alone.
    #[test]
    fn tiles_of_values_that_are_transposed_are_told() {
        let k_all = 96;
        let (a, b) = (wide(M, k_all), codes(Format::Uint4, N, k_all, 32, true, 19));
        let (x, y) = (a.to_f64(), b.dequantize());
        let with = |from: &dyn Fn(usize, usize) -> (usize, usize)| {
            found(&a, &b, None, Format::F16, |i, j, _| {
                sum(k_all, |k| {
                    let (r, c) = if j / 8 % 2 == 1 { from(j % 8, k % 8) } else { (j % 8, k % 8) };
                    x[[i, k]] * y[[j / 8 * 8 + r, k / 8 * 8 + c]]
                })
            })
        };
        let got = with(&|r, c| (c, r));
        assert_eq!(got.0, "addressing:b.values_tile_transposed", "{}", got.1);
        assert!(got.1.contains("every 8×8 tile transposed, in columns 8 … 15 of every 16"), "{}", got.1);
        // Turned by a quarter, they are not transposed.
        let got = with(&|r, c| (7 - c, r));
        assert!(!got.0.contains("transposed"), "{} {}", got.0, got.1);
    }

    #[test]
    fn values_that_are_read_by_columns_take_their_scales_along() {
        let k_all = 96;
        let (a, b) = (wide(M, k_all), codes(Format::Int8, N, k_all, k_all, false, 17));
        let (x, y) = (a.to_f64(), b.dequantize());
        let at = |j: usize, k: usize| (k * N + j) / k_all;
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| sum(k_all, |k| x[[i, k]] * y[[at(j, k), (k * N + j) % k_all]]));
        assert_eq!(got.0, "addressing:b.values_column_major", "{}", got.1);
    }

    #[test]
    fn an_operand_and_the_result_may_both_be_turned() {
        let k_all = 64;
        let (a, b) = (wide(M, k_all), codes(Format::Int8, N, k_all, 16, false, 18));
        let (x, y) = (a.to_f64(), b.dequantize());
        let flat: Vec<f64> = x.iter().copied().collect();
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            let f = i * N + j;
            let (i, j) = (f % M, f / M);
            sum(k_all, |k| flat[k * M + i] * y[[j, k]])
        });
        assert_eq!(got.0, "addressing:a.values_column_major_and_out", "{}", got.1);
    }
}
