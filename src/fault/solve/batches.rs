//! Rows of several batches that meet one weight, whose scales (and zero points) each batch reads further on: their stride of a batch is not 0, as
//! that of the codes is.

use super::system::{Region, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Batches, at most.
const MOST: usize = 16;
/// Rows of a batch, at least.
const LEAST: usize = 4;
/// Rows of scales that the next batch reads further on.
const STEPS: [usize; 4] = [1, 2, 4, 8];

/// Theories of the scales of b.
pub fn theories(s: &System) -> Vec<Theory> {
    let g = &s.b;
    if s.alone || s.parts.len() != 1 || g.grid.0 < 4 || g.scales().is_empty() {
        return Vec::new();
    }
    let counts = (2..=MOST).filter(|n| s.rows.is_multiple_of(*n) && s.rows / n >= LEAST);
    let ways = counts.flat_map(|n| STEPS.into_iter().filter(move |d| d * (n - 1) < g.grid.0).map(move |d| (n, d)));
    ways.flat_map(|(n, d)| [true, false].map(|zeros| (n, d, zeros)))
        .filter(|(.., zeros)| !zeros || g.zero.is_some())
        .map(|(n, d, zeros)| theory(s, n, d, zeros))
        .collect()
}

fn theory(s: &System, batches: usize, step: usize, zeros: bool) -> Theory {
    let (g, tall) = (&s.b, s.rows / batches);
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * g.global).collect());
    let zero: Option<Arc<Vec<f64>>> = g.zero.as_ref().filter(|_| zeros).map(|z| Arc::new(z.0.clone()));
    let ((deep, wide), groups) = (g.tile, g.grid.1);
    let and = if zeros { " and zero points" } else { "" };
    let rows = if step == 1 { "row" } else { "rows" };
    let words = format!(
        "scales{and} of b are read {step} {rows} further on in every next {tall} rows of the result, 0 behind the last"
    );
    let new = || Theory::new(Class::ScaleIndex, "b", "b.batch", words.clone()).bits(8.0 + super::maps::cost(step));
    // Each holds from its batch on, but where the next one does.
    let mut next: Option<Arc<(Arc<Region>, Theory)>> = None;
    for z in (1..batches).rev() {
        let rows = (0..s.rows).map(|i| i / tall >= z).collect();
        let region = Region { rows, cols: vec![true; s.cols], tiles: Vec::new(), words: String::new() };
        let mut t = new();
        let at = move |i: usize, k: usize| (i / deep + z * step) * groups + k / wide;
        let of = scales.clone();
        let side = t.side(Which::B);
        side.scaled(wide, Arc::new(move |i, k| of.get(at(i, k)).copied().unwrap_or(0.0)));
        if let Some(zero) = zero.clone() {
            side.zeroed(wide, Arc::new(move |i, k| zero.get(at(i, k)).copied().unwrap_or(0.0)));
        }
        t.patch = next.take();
        next = Some(Arc::new((Arc::new(region), t)));
    }
    Theory { patch: next, ..new() }
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{N, codes, found, sum, wide};

    #[test]
    fn batches_that_read_scales_further_on_are_named() {
        let (m, k) = (48, 64);
        let (a, b) = (wide(m, k), codes(Format::Uint4, N, k, 16, true, 81));
        let (x, y) = (a.to_f64(), b.dequantize());
        let scale = |j: usize, k: usize| b.scale_inv().get(j * 4 + k / 16).map_or(0.0, |s| f64::from(*s));
        let got =
            found(&a, &b, None, Format::Bf16, |i, j, _| sum(k, |k| x[[i, k]] * y[[j, k]] / scale(j, k) * scale(j + i / 16, k)));
        assert_eq!(got.0, "scale_index:b.batch", "{}", got.1);
        assert!(got.1.contains("scales of b are read 1 row further on in every next 16 rows of the result"), "{}", got.1);
    }
}
