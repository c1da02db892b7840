//! Rows of a grouped product that meet the weights of the expert of another tile of their cluster: b is loaded once for all tiles of a cluster, although
//! these may be two experts'.
//!
//! ```text
//! tiles of T rows, those of each expert counted from its first row on, one after the other; tile t is of cluster ⌊t / C⌋
//! out[i, j] = Σ_k a(i, k)·b_f(j, k)        f: the expert of tile ⌊t / C⌋·C, or of the last tile of the cluster; scales are of f, or the row's own
//! ```

use super::experts::multiplied;
use super::maps::cost;
use super::system::{System, Theory};
use std::sync::Arc;

/// Rows of a tile, and tiles of a cluster.
const TILES: [usize; 6] = [8, 16, 32, 64, 128, 256];
const CLUSTERS: [usize; 3] = [2, 4, 8];

/// Every size of tiles and clusters that mixes two experts.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() < 2 || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    // One scale of each row of b can be told from its codes.
    let apart = s.b.q.is_some() && s.b.grid.1 == 1 && s.b.zero.is_none();
    let fates: &[bool] = if s.bias.any() && s.bias.experts() > 1 { &[true, false] } else { &[false] };
    let mut all: Vec<(Vec<Option<usize>>, Theory)> = Vec::new();
    for high in TILES {
        // The expert of each tile, and the tile of each row.
        let (mut expert, mut tile) = (Vec::new(), vec![None; s.rows]);
        for (e, p) in s.parts.iter().enumerate() {
            p.rows.clone().for_each(|i| tile[i] = Some(expert.len() + (i - p.rows.start) / high));
            expert.resize(expert.len() + p.rows.len().div_ceil(high), e);
        }
        for (size, last) in CLUSTERS.into_iter().flat_map(|c| [(c, false), (c, true)]) {
            let of = |t: usize| if last { (t / size * size + size).min(expert.len()) - 1 } else { t / size * size };
            let map: Vec<Option<usize>> = tile.iter().map(|t| t.map(|t| expert[of(t)])).collect();
            if map == s.part || all.iter().any(|(m, _)| *m == map) {
                continue;
            }
            for (codes, biased) in [true, false].into_iter().flat_map(|codes| fates.iter().map(move |b| (codes, *b))) {
                if codes && (!apart || biased) {
                    continue;
                }
                let mut t = multiplied(s, map.clone(), biased);
                if codes {
                    own_scales(s, &map, &mut t);
                }
                let what = match (codes, biased || fates.len() == 1) {
                    (true, _) => "the codes of b, not their scales,",
                    (_, true) => "the weights",
                    _ => "the weights, not the bias,",
                };
                let which = if last { "last" } else { "first" };
                t.detail = format!(
                    "{what} are those of the expert of the {which} tile of each cluster of {size} tiles of {high} rows, those of each expert counted from its \
                     first row on: loaded once for the cluster, also where it has tiles of two experts"
                );
                t.bits = 9.0 + cost(high) + cost(size) + f64::from(u8::from(last)) + f64::from(u8::from(codes));
                all.push((map.clone(), t));
            }
        }
    }
    all.into_iter().map(|x| x.1).collect()
}

/// The sums of another expert's rows by the scales of one's own.
fn own_scales(s: &System, map: &[Option<usize>], t: &mut Theory) {
    let steps: Vec<f64> = (0..s.b.rows).map(|row| s.b.step(row, 0)).collect();
    let first: Vec<usize> = s.parts.iter().map(|p| p.b).collect();
    let (part, map, bias) = (s.part.clone(), map.to_vec(), s.bias.clone());
    t.finish = Some(Arc::new(move |i, j, v| {
        let by = part[i].zip(map[i]).map_or(1.0, |(e, f)| steps[first[e] + j] / steps[first[f] + j]);
        v * by + bias.at(i, j)
    }));
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, noise, sum, wide};

    const N: usize = 24;
    const K: usize = 96;
    const ENDS: [usize; 5] = [7, 19, 33, 45, 70];

    /// What is said where row i meets the codes of the expert `of(e, i)`, by its own scales or by theirs.
    fn named(of: &dyn Fn(usize, usize) -> usize, own: bool) -> (String, String) {
        let (a, b) = (wide(70, K), codes(Format::E4m3, 5 * N, K, K, false, 23));
        let x = a.to_f64();
        grouped_found(&a, &b, &ENDS, Format::Bf16, |i, j| {
            let e = ENDS.iter().filter(|end| **end <= i).count();
            let f = of(e, i);
            let value = |k: usize| Format::E4m3.decode(u32::from(b.codes()[(f * N + j) * K + k]));
            let scale = b.scale_inv()[if own { e } else { f } * N + j];
            sum(K, |k| x[[i, k]] * value(k)) * f64::from(scale)
        })
    }

    #[test]
    fn codes_that_a_cluster_shares_are_told() {
        let start = |e: usize| if e == 0 { 0 } else { ENDS[e - 1] };
        // Tiles of 8 rows: 1, 2, 2, 2 and 4 of the experts.
        let before = |e: usize| (0..e).map(|e| (ENDS[e] - start(e)).div_ceil(8)).sum::<usize>();
        let expert = |t: usize| (0..5).rfind(|e| before(*e) <= t).unwrap();
        let first = |e: usize, i: usize| expert((before(e) + (i - start(e)) / 8) / 2 * 2);
        for own in [true, false] {
            let got = named(&first, own);
            assert_eq!(got.0, "group_boundary:rows_of_experts", "{}", got.1);
            // Where the scales are theirs too, groups that end a tile late say the same.
            let words = ["the first tile of each cluster of 2 tiles of 8 rows", "the codes of b, not their scales,"];
            assert!(!own || words.iter().all(|w| got.1.contains(w)), "{}", got.1);
        }
        // Experts of chance are no cluster's.
        let got = named(&|_, i| (noise(i) * 5.0) as usize, true);
        assert!(!got.1.contains("cluster"), "{} {}", got.0, got.1);
    }
}
