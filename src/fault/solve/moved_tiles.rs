//! A last tile that is moved back to the end, so that it is whole, while its scales or its bias are read from where it was.
//!
//! ```text
//! line x ≥ N − t:  s(min(x + d, N − 1))  or 0 behind the end          t: lines of a tile, d = t − N mod t
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

const TILES: [usize; 7] = [8, 16, 32, 64, 96, 128, 256];

/// The scales of one operand whose lines have one each.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let (n, cols, global) = (g.rows, g.grid.1, g.global);
    if s.alone || s.parts.len() != 1 || g.q.is_none() || g.tile.0 != 1 || n < 2 {
        return Vec::new();
    }
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * global).collect());
    let wide = g.tile.1;
    let mut all = Vec::new();
    for (tile, clamped) in TILES.into_iter().filter(|t| *t < n && !n.is_multiple_of(*t)).flat_map(|t| [(t, true), (t, false)]) {
        let (from, d) = (n - tile, tile - n % tile);
        let behind = if clamped { "the last one's" } else { "0" };
        let words = format!(
            "the last tile of {tile} rows of {name} is moved back to row {from}, but the scales of {name} are read from row {} on, behind the end {behind}",
            from + d
        );
        let mut t = Theory::new(Class::MnEdge, name, format!("{name}.moved_tile"), words).bits(4.0 + cost(tile));
        let held = scales.clone();
        let at = move |i: usize, k: usize| {
            let row = if i < from { i } else { i + d };
            let row = if clamped { row.min(n - 1) } else { row };
            if row < n { held[row * cols + k / wide] } else { 0.0 }
        };
        t.side(side).scaled(wide, Arc::new(at));
        all.push(t);
    }
    all
}

/// The bias of the last tile of columns.
pub fn of_bias(s: &System) -> Vec<Theory> {
    let n = s.cols;
    if s.alone || !s.bias.any() {
        return Vec::new();
    }
    let tiles = TILES.into_iter().filter(|t| *t < n && !n.is_multiple_of(*t)).flat_map(|t| [(t, true), (t, false)]);
    let theory = |(tile, clamped): (usize, bool)| {
        let (from, d) = (n - tile, tile - n % tile);
        let behind = if clamped { "the last one" } else { "none" };
        let words = format!(
            "the last tile of {tile} columns is moved back to column {from}, but its bias is read from column {} on, behind the end {behind}",
            from + d
        );
        let mut t = Theory::new(Class::MnEdge, "out", "out.moved_bias", words).bits(5.0 + cost(tile));
        let bias = s.bias.clone();
        t.finish = Some(Arc::new(move |i, j, v| match if j < from { j } else { j + d } {
            at if at < n => v + bias.at(i, at),
            _ if clamped => v + bias.at(i, n - 1),
            _ => v,
        }));
        t
    };
    tiles.map(theory).collect()
}

/// Pairs of lines that lanes of a quad, or registers of a lane, exchange: where one bit of the line is set, another is turned.
pub fn exchanged(s: &System) -> Vec<Theory> {
    const BITS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
    let mut all = Vec::new();
    for (axis, n) in [("row", s.rows), ("column", s.cols)].into_iter().filter(|_| !s.alone) {
        let bits = BITS.into_iter().flat_map(|x| BITS.map(|y| (x, y))).filter(|(x, y)| x != y && *x < n && *y < n);
        for ((turned, tested), set) in bits.flat_map(|b| [(b, true), (b, false)]) {
            let (part, when) = (2 * turned.max(tested), if set { "set" } else { "not set" });
            let words = format!(
                "{axis}s are exchanged in every {part}, where bit {tested} of the {axis} is {when}: {axis} x holds {axis} x xor {turned}, as lanes that store each other's registers"
            );
            let mut t =
                Theory::new(Class::Addressing, "out", format!("out.{axis}s"), words).bits(5.0 + cost(turned) + cost(tested));
            let to = move |x: usize| if (x & tested != 0) == set && (x ^ turned) < n { x ^ turned } else { x };
            let by_row = axis == "row";
            t.from = Some(Arc::new(move |i, j| Some(if by_row { (to(i), j) } else { (i, to(j)) })));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, noise, sum, wide};

    const K: usize = 96;
    const COLS: usize = 72;

    #[test]
    fn scales_and_bias_of_a_tile_that_was_moved_are_told() {
        let (a, b) = (wide(M, K), codes(Format::Int8, COLS, K, K, false, 45));
        let (x, y) = (a.to_f64(), b.dequantize());
        // Tiles of 32: the last one is moved from 64 to 40.
        let with = |of: &dyn Fn(usize) -> usize| {
            found(&a, &b, None, Format::F32, |i, j, _| {
                let step = |j: usize| f64::from(b.scale_inv()[j]);
                sum(K, |k| x[[i, k]] * y[[j, k]]) / step(j) * step(of(j))
            })
        };
        let got = with(&|j| if j < 40 { j } else { (j + 24).min(COLS - 1) });
        assert_eq!(got.0, "mn_edge:b.moved_tile", "{}", got.1);
        assert!(
            got.1.contains("the last tile of 32 rows of b is moved back to row 40") && got.1.contains("from row 64 on"),
            "{}",
            got.1
        );
        let got = with(&|j| if j < 40 { j } else { (noise(j) * 72.0) as usize });
        assert!(!got.0.contains("moved_tile"), "{} {}", got.0, got.1);
        let bias: Vec<f32> = (0..COLS).map(|j| 5.0 * noise(j) as f32).collect();
        let got = found(&a, &b, Some(bias.clone()), Format::F32, |i, j, right| {
            let at = if j < 40 { j } else { (j + 24).min(COLS - 1) };
            right[i * COLS + j] - f64::from(bias[j]) + f64::from(bias[at])
        });
        assert_eq!(got.0, "mn_edge:out.moved_bias", "{}", got.1);
    }

    #[test]
    fn pairs_that_some_lanes_exchange_are_told_beside_scales_of_a_moved_tile() {
        let (a, b) = (wide(M, K), codes(Format::Int8, COLS, K, K, false, 46));
        let (x, y) = (a.to_f64(), b.dequantize());
        let step = |j: usize| f64::from(b.scale_inv()[j]);
        let to = |j: usize| if j & 4 != 0 { j ^ 2 } else { j };
        let got = found(&a, &b, None, Format::F32, |i, j, right| right[i * COLS + to(j)]);
        assert_eq!(got.0, "addressing:out.columns", "{}", got.1);
        assert!(got.1.contains("where bit 4 of the column is set: column x holds column x xor 2"), "{}", got.1);
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let j = to(j);
            let at = if j < 40 { j } else { (j + 24).min(COLS - 1) };
            sum(K, |k| x[[i, k]] * y[[j, k]]) / step(j) * step(at)
        });
        assert!(got.0.contains("addressing:out.columns") && got.0.contains("mn_edge:b.moved_tile"), "{} {}", got.0, got.1);
    }
}
