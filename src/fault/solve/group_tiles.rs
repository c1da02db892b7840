//! Scales of the lines of a group that are read by a part of their place: the place within a tile without the tile's number, the tile's number
//! alone, or either without the group's first line.
//!
//! ```text
//! line x of group e:  o(e) + x mod T,  o(e) + ⌊x / T⌋,  o(e) + ⌊x / T⌋·T          right: o(e) + x; the same without o(e), and x alone
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Lines of a tile.
const TILES: [usize; 9] = [2, 4, 8, 16, 32, 64, 128, 192, 256];

/// What is read for place x of a group, by T: in words behind the group's first line.
type Of = fn(usize, usize) -> usize;
const WAYS: [(&str, f64, Of); 3] =
    [("(x mod {})", 0.0, |x, t| x % t), ("⌊x / {}⌋", 1.0, |x, t| x / t), ("⌊x / {}⌋·{}", 1.0, |x, t| x / t * t)];

/// Of the scales of one side of a grouped product: rows of tokens, or of an expert's weights.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    if s.alone || s.parts.len() < 2 || g.q.is_none() || g.zero.is_some() || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let (rows, cols) = g.grid;
    // Where the group of each line of the grid begins, in lines.
    let firsts: Vec<usize> = match side {
        Which::A if g.tile.0 == 1 => {
            let mut firsts: Vec<usize> = (0..rows).collect();
            for p in &s.parts {
                firsts[p.a..p.a + p.rows.len()].fill(p.a);
            }
            firsts
        }
        Which::B => {
            let per = g.rows / s.experts(side);
            if s.experts(side) < 2 || !per.is_multiple_of(g.tile.0) {
                return Vec::new();
            }
            (0..rows).map(|r| r - r % (per / g.tile.0)).collect()
        }
        Which::A => return Vec::new(),
    };
    let longest = (0..rows).map(|r| r - firsts[r] + 1).max().unwrap_or(0);
    let firsts = Arc::new(firsts);
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * g.global).collect());
    let (name, (tall, every)) = (side.name(), g.tile);
    let mut all = Vec::new();
    let mut add = |words: String, bits: f64, line: Arc<dyn Fn(usize) -> usize + Send + Sync>| {
        if (0..rows).all(|r| line(r) == r) {
            return;
        }
        let what = if tall == 1 { "row".to_string() } else { format!("block of {tall} rows") };
        let words =
            format!("the scales of {name} of {what} x of its group, which begins at o, are read at {words}, not at o + x");
        let mut t = Theory::new(Class::ScaleShared, name, format!("{name}.tile_of_group"), words).bits(bits);
        let scales = scales.clone();
        t.side(side).scaled(every, Arc::new(move |i, k| scales[line(i / tall) * cols + k / every]));
        all.push(t);
    };
    let own = firsts.clone();
    add("x".into(), 5.0, Arc::new(move |r| r - own[r]));
    for tile in TILES.into_iter().filter(|t| *t < longest) {
        for (words, bits, of) in WAYS {
            let words = words.replace("{}", &tile.to_string());
            let (own, first) = (firsts.clone(), firsts.clone());
            add(format!("o + {words}"), 5.0 + cost(tile) + bits, Arc::new(move |r| own[r] + of(r - own[r], tile)));
            add(words, 6.0 + cost(tile) + bits, Arc::new(move |r| of(r - first[r], tile)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, grouped_found, noise, sum};
    use crate::job::Operand;
    use crate::{Format, QTensor};

    const N: usize = 24;
    const K: usize = 96;
    const ENDS: [usize; 3] = [37, 50, 91];

    fn expert(i: usize) -> usize {
        ENDS.iter().filter(|end| **end <= i).count()
    }
    fn first(i: usize) -> usize {
        if expert(i) == 0 { 0 } else { ENDS[expert(i) - 1] }
    }
    fn operands() -> (QTensor, QTensor) {
        (codes(Format::E4m3, 91, K, 32, false, 61), codes(Format::E4m3, 3 * N, K, 32, false, 62))
    }
    /// Row i of a by the scales of one line, and row j of an expert by those of another; of K below `end`.
    fn found(of_a: impl Fn(usize) -> usize, of_b: impl Fn(usize) -> usize, end: usize) -> (String, String) {
        let (a, b) = operands();
        let (x, y) = (a.clone(), b.clone());
        let code = |q: &QTensor, r: usize, k: usize| Format::E4m3.decode(u32::from(q.codes()[r * K + k]));
        grouped_found(&Operand::Quantized(a), &b, &ENDS, Format::Bf16, |i, j| {
            let row = expert(i) * N + j;
            sum(end, |k| {
                let scales = x.scale_inv()[of_a(i) * 3 + k / 32] * y.scale_inv()[of_b(row) * 3 + k / 32];
                code(&x, i, k) * code(&y, row, k) * f64::from(scales)
            })
        })
    }

    #[test]
    fn scales_without_the_number_of_their_tile_are_told() {
        let got = found(|i| first(i) + (i - first(i)) % 8, |r| r, K);
        assert_eq!(got.0, "scale_shared:a.tile_of_group", "{}", got.1);
        assert!(
            got.1.contains("of row x of its group, which begins at o, are read at o + (x mod 8), not at o + x"),
            "{}",
            got.1
        );
        let got = found(|i| first(i) + (i - first(i)) / 4, |r| r, K);
        assert!(got.1.contains("are read at o + ⌊x / 4⌋, not"), "{} {}", got.0, got.1);
        let got = found(|i| i, |r| r / N * N + r % N % 16, K);
        assert_eq!(got.0, "scale_shared:b.tile_of_group", "{}", got.1);
        assert!(got.1.contains("o + (x mod 16)"), "{}", got.1);
    }

    #[test]
    fn a_range_of_k_that_is_lost_beside_it_is_told() {
        let got = found(|i| first(i) + (i - first(i)) % 16, |r| r, 64);
        assert!(got.0.contains("a.tile_of_group") && got.1.contains("o + (x mod 16)"), "{} {}", got.0, got.1);
        assert!(got.1.contains("the last 32 of K (64 … 95) are left out"), "{} {}", got.0, got.1);
    }

    #[test]
    fn lines_of_no_rule_are_not_called_so() {
        let got = found(|i| (noise(i + 5) * 90.0) as usize, |r| r, K);
        assert!(!got.0.contains("tile_of_group"), "{} {}", got.0, got.1);
    }
}
