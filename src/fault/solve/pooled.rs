//! Scales that are one number for several: the mean, the largest or the smallest of those of all experts, of a tile of rows, of K or of the tensor.

use super::maps::cost;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// How many numbers become one: words, bits, how.
type Pool = (&'static str, f64, fn(&[f64]) -> f64);

const POOLS: [Pool; 4] = [
    ("mean", 0.0, |v| v.iter().sum::<f64>() / v.len() as f64),
    ("largest", 0.5, |v| v.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    ("smallest", 1.0, |v| v.iter().copied().fold(f64::INFINITY, f64::min)),
    ("geometric mean", 2.0, |v| (v.iter().map(|x| x.ln()).sum::<f64>() / v.len() as f64).exp()),
];
/// Rows of the grid that one number serves.
const TALL: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Of the scales of one side.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (rows, cols) = g.grid;
    if g.q.is_none() || rows * cols < 3 {
        return Vec::new();
    }
    let scales: Vec<f64> = g.scales().iter().map(|x| f64::from(*x)).collect();
    let experts = if side == Which::B && s.parts.len() > 1 { s.parts.len() } else { 1 };
    let per = rows / experts;
    // Which of the pools a scale is in: words, bits, number.
    type In = Box<dyn Fn(usize, usize) -> usize>;
    let mut ways: Vec<(String, f64, In)> = Vec::new();
    if experts > 1 && per * experts == rows {
        ways.push(("all experts, row by row".into(), 0.0, Box::new(move |r, c| r % per * cols + c)));
        ways.push(("each expert".into(), 1.0, Box::new(move |r, _| r / per)));
    }
    if cols > 1 && rows > 1 {
        ways.push(("all of K of each row".into(), 1.0, Box::new(|r, _| r)));
        ways.push(("all rows, group by group".into(), 2.0, Box::new(|_, c| c)));
    }
    if cols > 2 {
        ways.push(("two neighbouring groups of K".into(), 2.0, Box::new(move |r, c| r * cols.div_ceil(2) + c / 2)));
    }
    for tall in TALL.into_iter().filter(|t| *t < rows) {
        ways.push((format!("every {tall} rows of them"), 1.0 + cost(tall), Box::new(move |r, c| r / tall * cols + c)));
    }
    ways.push(("the whole tensor".into(), 1.0, Box::new(|_, _| 0)));
    let name = side.name();
    let (tile, global) = (g.tile, g.global);
    let mut all = Vec::new();
    for (which, more, of) in ways {
        let mut pools: Vec<Vec<f64>> = vec![Vec::new(); rows * cols];
        (0..rows * cols).for_each(|f| pools[of(f / cols, f % cols)].push(scales[f]));
        for (what, bits, pool) in POOLS {
            let one: Vec<f64> = pools.iter().map(|p| pool(p)).collect();
            let read: Vec<f64> = (0..rows * cols).map(|f| one[of(f / cols, f % cols)]).collect();
            if read == scales || read.iter().any(|x| !x.is_finite()) {
                continue;
            }
            let words =
                format!("the scales of {name} are the {what} of those of {which}, though the codes were made with their own");
            let mut t = Theory::new(Class::ScaleShared, name, format!("{name}.pooled"), words).bits(5.0 + bits + more);
            let at: At = Arc::new(move |i, k| read[i / tile.0 * cols + k / tile.1] * global);
            t.side(side).scaled(tile.1, at);
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, grouped_found, sum, wide};

    #[test]
    fn scales_that_are_one_number_for_several_are_told() {
        const K: usize = 64;
        let (n, ends) = (16, [9, 20, 32]);
        let (a, b) = (wide(32, K), codes(Format::Int8, 3 * n, K, K, false, 7));
        let x = a.to_f64();
        let scale = |r: usize| f64::from(b.scale_inv()[r]);
        let got = grouped_found(&a, &b, &ends, Format::F32, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            let mean = (scale(j) + scale(n + j) + scale(2 * n + j)) / 3.0;
            sum(K, |k| x[[i, k]] * f64::from(b.codes()[(e * n + j) * K + k] as i8) * mean)
        });
        assert_eq!(got.0, "scale_shared:b.pooled", "{}", got.1);
        assert!(got.1.contains("are the mean of those of all experts, row by row"), "{}", got.1);
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 9));
        let x = a.to_f64();
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let most = (j / 8 * 8..(j / 8 * 8 + 8).min(N)).map(|r| f64::from(b.scale_inv()[r])).fold(0.0, f64::max);
            sum(K, |k| x[[i, k]] * f64::from(b.codes()[j * K + k] as i8) * most)
        });
        assert!(got.1.contains("are the largest of those of every 8 rows of them"), "{} {}", got.0, got.1);
    }
}
