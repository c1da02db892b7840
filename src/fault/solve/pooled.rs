//! Scales that are one number for several: the mean, the largest or the smallest of those of all experts, of a tile of rows, of K or of the tensor.

use super::maps::cost;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// How many numbers become one: words, bits.
const POOLS: [(&str, f64); 4] = [("mean", 0.0), ("largest", 0.5), ("smallest", 1.0), ("geometric mean", 2.0)];
/// Rows of the grid that one number serves.
const TALL: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Which of the pools a scale is in.
type In = Arc<dyn Fn(usize, usize) -> usize + Send + Sync>;

struct Way {
    words: String,
    bits: f64,
    /// How many pools, and the one of each scale.
    pools: usize,
    of: In,
    /// Whether `readings` has the mean of these.
    has_mean: bool,
}

fn ways((rows, cols): (usize, usize), experts: usize) -> Vec<Way> {
    let mut ways: Vec<Way> = Vec::new();
    let mut add = |words: String, bits: f64, pools: usize, has_mean: bool, of: In| {
        ways.push(Way { words, bits, pools, of, has_mean });
    };
    let per = rows / experts;
    if experts > 1 && per * experts == rows {
        add("all experts, row by row".into(), 0.0, per * cols, false, Arc::new(move |r, c| r % per * cols + c));
        add("each expert".into(), 1.0, experts, false, Arc::new(move |r, _| r / per));
    }
    if cols > 1 && rows > 1 {
        add("all of K of each row".into(), 1.0, rows, true, Arc::new(|r, _| r));
        add("all rows, group by group".into(), 2.0, cols, true, Arc::new(|_, c| c));
    }
    if cols > 2 {
        let wide = cols.div_ceil(2);
        add("two neighbouring groups of K".into(), 2.0, rows * wide, false, Arc::new(move |r, c| r * wide + c / 2));
    }
    for tall in TALL.into_iter().filter(|t| *t < rows) {
        let n = rows.div_ceil(tall) * cols;
        add(format!("every {tall} rows of them"), 1.0 + cost(tall), n, false, Arc::new(move |r, c| r / tall * cols + c));
    }
    add("the whole tensor".into(), 1.0, 1, true, Arc::new(|_, _| 0));
    ways
}

/// Of the scales of one side.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (rows, cols) = g.grid;
    if g.q.is_none() || rows * cols < 3 {
        return Vec::new();
    }
    let scales: Vec<f64> = g.scales().iter().map(|x| f64::from(*x)).collect();
    let experts = if side == Which::B && s.parts.len() > 1 { s.parts.len() } else { 1 };
    let name = side.name();
    let (tile, global) = (g.tile, g.global);
    let mut all = Vec::new();
    for way in ways(g.grid, experts) {
        for ((what, bits), one) in POOLS.into_iter().zip(pooled(&scales, cols, &way)) {
            let of = way.of.clone();
            let same = || (0..rows * cols).all(|f| one[of(f / cols, f % cols)] == scales[f]);
            if way.has_mean && what == "mean" || one.iter().any(|x| !x.is_finite()) || same() {
                continue;
            }
            let words = format!(
                "the scales of {name} are the {what} of those of {}, though the codes were made with their own",
                way.words
            );
            let mut t = Theory::new(Class::ScaleShared, name, format!("{name}.pooled"), words).bits(5.0 + bits + way.bits);
            // A number for each pool, not one for each scale: there may be a million.
            let at: At = Arc::new(move |i, k| one[of(i / tile.0, k / tile.1)] * global);
            t.side(side).scaled(tile.1, at);
            all.push(t);
        }
    }
    all
}

/// What each pool becomes, in the order of [`POOLS`].
fn pooled(scales: &[f64], cols: usize, way: &Way) -> [Vec<f64>; 4] {
    let n = way.pools;
    let (mut count, mut sum, mut logs) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
    let (mut most, mut least) = (vec![f64::NEG_INFINITY; n], vec![f64::INFINITY; n]);
    for (f, x) in scales.iter().enumerate() {
        let p = (way.of)(f / cols, f % cols);
        (count[p], sum[p], logs[p]) = (count[p] + 1.0, sum[p] + x, logs[p] + x.ln());
        (most[p], least[p]) = (x.max(most[p]), x.min(least[p]));
    }
    let over = |v: Vec<f64>| v.into_iter().zip(&count).map(|(x, n)| x / n).collect::<Vec<f64>>();
    let geometric = over(logs).into_iter().map(f64::exp).collect();
    [over(sum), most, least, geometric]
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
