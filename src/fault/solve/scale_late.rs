//! Scales (and zero points) of the step of K before, or behind: staged scales that are read before they are there. Where there is no such step, 0.
//!
//! ```text
//! s(r, c − d), 0 for c < d          or s(r, c + d), 0 behind the last group
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Steps, at most.
const FAR: usize = 8;

/// Of one operand; the lines that suffer it are the wrong region's.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let (tile, cols, global) = (g.tile, g.grid.1, g.global);
    if g.q.is_none() || cols < 2 {
        return Vec::new();
    }
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * global).collect());
    let zeros = g.zero.as_ref().map(|z| Arc::new(z.0.clone()));
    let mut all = Vec::new();
    for (d, late) in (1..cols.min(FAR + 1)).flat_map(|d| [(d, true), (d, false)]) {
        let from = move |i: usize, k: usize| {
            let c = k / tile.1;
            let c = if late { c.checked_sub(d) } else { Some(c + d).filter(|c| *c < cols) };
            c.map(|c| i / tile.0 * cols + c)
        };
        let place = if late {
            format!("c − {d}, 0 where there is none: of a step of K before")
        } else {
            format!("c + {d}, 0 behind the last")
        };
        for with_zeros in [false, true] {
            if with_zeros && zeros.is_none() {
                continue;
            }
            let what = if with_zeros { "scale and zero point" } else { "scale" };
            let words = format!("the {what} of {name} in group c of K are those of group {place}");
            let words = if with_zeros { words } else { words.replace("are those", "is that") };
            let bits = 5.0 + cost(d) + f64::from(u8::from(!late));
            let mut t = Theory::new(Class::ScaleIndex, name, format!("{name}.late"), words).bits(bits);
            let held = scales.clone();
            t.side(side).scaled(tile.1, Arc::new(move |i, k| from(i, k).map_or(0.0, |at| held[at])));
            if let Some(zeros) = zeros.clone().filter(|_| with_zeros) {
                t.side(side).zeroed(tile.1, Arc::new(move |i, k| from(i, k).map_or(0.0, |at| zeros[at])));
            }
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, sum, wide};

    #[test]
    fn scales_of_the_step_before_in_some_columns_are_told() {
        let (n, k_all) = (96, 192);
        let (a, b) = (wide(M, k_all), codes(Format::Int8, n, k_all, 32, false, 101));
        let x = a.to_f64();
        let scale = |j: usize, c: usize| f64::from(b.scale_inv()[j * 6 + c]);
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            let of = |k: usize| match k / 32 {
                c if j % 48 < 32 => scale(j, c),
                0 => 0.0,
                c => scale(j, c - 1),
            };
            sum(k_all, |k| x[[i, k]] * f64::from(b.codes()[j * k_all + k] as i8) * of(k))
        });
        assert_eq!(got.0, "scale_index:b.late", "{}", got.1);
        assert!(got.1.contains("c − 1, 0 where there is none") && got.1.contains("columns 32 … 47 of every 48"), "{}", got.1);
    }
}
