//! Scales of lines that are looked up by another index of the element: along the other axis of its tile, or beside its own by where a lane's
//! register is.

use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Sides of a tile that takes the vector of its scales along the other axis.
const TILES: [usize; 8] = [256, 128, 64, 32, 16, 8, 4, 2];
/// Elements beside each other that a lane has.
const BESIDE: [usize; 5] = [2, 4, 8, 16, 32];

/// The line whose scale is read, of the line's own number and that across.
type Of = fn(usize, usize, usize) -> usize;

/// What is read behind the last scale.
#[derive(Clone, Copy, PartialEq)]
enum Behind {
    /// Nothing is: no index is so large.
    Never,
    Zero,
    Last,
    Wraps,
}

/// Theories of the scales of one side, one number a line.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    if s.alone || s.parts.len() != 1 || g.tile != (1, g.k) || g.scales().is_empty() {
        return Vec::new();
    }
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x)).collect());
    if scales.contains(&0.0) {
        return Vec::new();
    }
    let name = side.name();
    let (one, other) = if side == Which::A { ("row", "column") } else { ("column", "row") };
    let breadth = if side == Which::A { s.cols } else { s.rows };
    let tile: Of = |own, across, tile| own / tile * tile + across % tile;
    let beside: Of = |own, across, wide| own + across % wide;
    let along: Of = |_, across, _| across;
    let mut ways: Vec<(String, f64, Of, usize)> =
        vec![(format!("by the {other} of an element, not by its {one}"), 2.0, along, 1)];
    for t in TILES.into_iter().filter(|t| *t < 2 * scales.len()) {
        let words =
            format!("by the {other} within every {t}, not by the {one}: the {t} scales of a tile lie along its other axis");
        ways.push((words, 5.0, tile, t));
    }
    for wide in BESIDE.into_iter().filter(|w| *w <= breadth) {
        let words = format!("at {one} + ({other} mod {wide}): as if each of {wide} {other}s beside each other had its own");
        ways.push((words, 6.0, beside, wide));
    }
    let mut all = Vec::new();
    for (words, bits, of, by) in ways {
        // None reaches further than the last line's.
        let reaches = (0..breadth).any(|x| of(scales.len() - 1, x, by) >= scales.len());
        let behind: &[Behind] = if reaches { &[Behind::Zero, Behind::Last, Behind::Wraps] } else { &[Behind::Never] };
        for past in behind {
            let more = match past {
                Behind::Never => "",
                Behind::Zero => "; 0 behind the last",
                Behind::Last => "; the last one behind it",
                Behind::Wraps => "; the first again behind the last",
            };
            let words = format!("the scales of {name} are read {words}{more}");
            let mut t = Theory::new(Class::ScaleLayout, name, format!("{name}.by_{other}"), words).bits(bits);
            let (scales, bias, past) = (scales.clone(), s.bias.clone(), *past);
            t.finish = Some(Arc::new(move |i, j, v| {
                let (own, across) = if side == Which::A { (i, j) } else { (j, i) };
                let at = of(own, across, by);
                let read = match past {
                    Behind::Last => at.min(scales.len() - 1),
                    Behind::Wraps => at % scales.len(),
                    _ => at,
                };
                v * (scales.get(read).copied().unwrap_or(0.0) / scales[own]) + bias.at(i, j)
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
    use crate::job::Operand;

    #[test]
    fn scales_by_the_place_of_an_element_are_named() {
        let k = 64;
        let (a, b) = (codes(Format::E4m3, M, k, k, false, 71), codes(Format::E4m3, N, k, k, false, 72));
        let (x, y) = (a.dequantize(), b.dequantize());
        let scale = |i: usize| a.scale_inv().get(i).map_or(0.0, |s| f64::from(*s));
        let of = |at: &dyn Fn(usize, usize) -> usize| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::Bf16, |i, j, _| {
                sum(k, |k| x[[i, k]] * y[[j, k]]) / scale(i) * scale(at(i, j))
            })
        };
        let got = of(&|i, j| i / 16 * 16 + j % 16);
        assert!(got.0 == "scale_layout:a.by_column" && got.1.contains("by the column within every 16"), "{got:?}");
        let got = of(&|i, j| i + j % 4);
        assert!(got.1.contains("at row + (column mod 4)") && got.1.contains("0 behind the last"), "{got:?}");
        let got = of(&|i, j| (i + j % 4).min(M - 1));
        assert!(got.1.contains("the last one behind it"), "{got:?}");
        // And those of b by the row.
        let a = wide(M, k);
        let (x, scale) = (a.to_f64(), |j: usize| f64::from(b.scale_inv()[j]));
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            sum(k, |k| x[[i, k]] * y[[j, k]]) / scale(j) * scale(j / 8 * 8 + i % 8)
        });
        assert!(got.0 == "scale_layout:b.by_row" && got.1.contains("by the row within every 8"), "{got:?}");
    }
}
