//! Block scales of experts in 128×4 atoms, each expert's padded to whole ones, of which the kernel takes those of an expert at another stride: that of rows
//! that are not padded, say.
//!
//! ```text
//! stored: expert e from e·P on, P = ⌈N/128⌉·128 · ⌈G/4⌉·4          read: from e·S on, S = N·G, N·⌈G/4⌉·4, …, in the same atoms
//! ```
//! Behind the rows and the groups of an expert there is nothing: 0. A number of the second level is the expert's own.

use super::atoms::{padded, tall_atoms};
use super::maps::cost;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// The scales of b, of experts that have some rows each.
pub fn theories(s: &System) -> Vec<Theory> {
    let (g, n) = (&s.b, s.experts(Which::B));
    let Some(q) = g.deep.as_ref().or(g.q.as_ref()).filter(|_| !s.alone && n > 1 && g.zero.is_none()) else { return Vec::new() };
    let (rows, cols) = (g.grid.0 / n, g.grid.1);
    let blocks = g.tile.0 == 1 && g.tile.1 <= 32 && cols > 1;
    let own = padded(rows, cols);
    if !blocks || !g.grid.0.is_multiple_of(n) {
        return Vec::new();
    }
    let across = cols.next_multiple_of(4);
    let mut strides = vec![
        (rows * cols, format!("{rows} × {cols}, without padding")),
        (rows * across, format!("{rows} × {across}, without the padding of rows")),
        (own / across * cols, format!("{} × {cols}, without the padding of groups", own / across)),
    ];
    let taller = [32usize, 64, 256].map(|t| rows.next_multiple_of(t));
    strides.extend(taller.map(|t| (t * across, format!("{t} × {across}"))));
    let mut all = Vec::new();
    for (stride, why) in strides {
        if stride == own || all.iter().any(|(x, _)| *x == stride) {
            continue;
        }
        all.push((stride, why));
    }
    let layout = tall_atoms(cols);
    let scales: Arc<Vec<f32>> = Arc::new(q.scale_inv().to_vec());
    let over: Arc<Vec<f64>> = Arc::new((0..scales.len()).map(|c| f64::from(q.over(c).0)).collect());
    let theory = |(stride, why): (usize, String)| {
        let (scales, over, long) = (scales.clone(), over.clone(), g.tile.1);
        let at: At = Arc::new(move |row, k| {
            let (e, r, c) = (row / rows, row % rows, k / long);
            let place = e * stride + layout.at(r, c);
            let (from, (r, c)) = (place / own, layout.cell(place % own));
            let stored = from < n && r < rows && c < cols;
            // Its own number of the second level, whatever the first one's place.
            let by = over[row * cols + k / long];
            if stored { f64::from(scales[(from * rows + r) * cols + c]) * by } else { 0.0 }
        });
        let words = format!(
            "scales of b, {} and padded to {own} places an expert, are read {stride} on for each expert ({why}); 0 where nothing is stored",
            layout.words()
        );
        let mut t = Theory::new(Class::ScaleLayout, "b", "b.expert_stride", words).bits(7.0 + cost(stride.abs_diff(own)));
        t.side(Which::B).scaled(long, at);
        t
    };
    all.into_iter().map(theory).collect()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, sum, wide};

    /// Three experts of 72 rows, in atoms of 128: what is said where those of expert e begin at e·`stride`.
    fn said(stride: usize, mixed: bool) -> (String, String) {
        const K: usize = 192;
        let (n, groups, ends) = (72usize, 6usize, [9usize, 20, 33]);
        let (a, b) = (wide(33, K), codes(Format::E4m3, 3 * n, K, 32, false, 67));
        let x = a.to_f64();
        let own = 128 * 8;
        let scale = |e: usize, r: usize, c: usize| {
            let at = e * stride + c / 4 * 512 + r % 32 * 16 + r / 32 * 4 + c % 4;
            let (from, at) = (at / own, at % own);
            let (r, c) = (at % 512 / 4 % 4 * 32 + at % 512 / 16, at / 512 * 4 + at % 4);
            let r = if mixed { r * 5 % 72 } else { r };
            if from < 3 && r < n && c < groups { f64::from(b.scale_inv()[(from * n + r) * groups + c]) } else { 0.0 }
        };
        grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            let code = |k: usize| Format::E4m3.decode(u32::from(b.codes()[(e * n + j) * K + k]));
            sum(K, |k| x[[i, k]] * code(k) * scale(e, j, k / 32))
        })
    }

    #[test]
    fn scales_of_experts_at_a_stride_without_padding_are_told() {
        for (stride, why) in [(72 * 6, "(72 × 6, without padding)"), (72 * 8, "(72 × 8, without the padding of rows)")] {
            let got = said(stride, false);
            assert_eq!(got.0, "scale_layout:b.expert_stride", "{}", got.1);
            assert!(
                got.1.contains(&format!("padded to 1024 places an expert, are read {stride} on for each expert")),
                "{}",
                got.1
            );
            assert!(got.1.contains(why), "{}", got.1);
        }
        // Another stride, and rows of an order that no atom has.
        for got in [said(700, false), said(72 * 6, true)] {
            assert!(!got.0.contains("expert_stride"), "{} {}", got.0, got.1);
        }
    }
}
