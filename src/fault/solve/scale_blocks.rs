//! Block scales of experts whose rows are no whole number of blocks: every way to address the grid that is stored, ⌈N / T⌉ rows for each expert.
//!
//! Such a grid is written down here by cells of the rows that T and N have in common: formulas of its own rows are none of those cells.

use super::maps::{self, Kind};
use super::system::{System, Theory};
use std::sync::Arc;

/// A grid of blocks as it is stored: experts of so many rows of b, each in blocks of `high` rows, the last of them not whole.
pub struct Stored {
    pub per: usize,
    pub high: usize,
    /// Blocks of an expert, and the cells that one is written down as here.
    pub blocks: usize,
    by: usize,
    cells: usize,
}

impl Stored {
    /// That of b: only it has experts. `None`: its blocks are whole, and the grid here is the one that is stored.
    pub fn of(s: &System) -> Option<Self> {
        let (g, experts) = (&s.b, s.parts.len());
        let (tile, (rows, cols)) = (g.tile, g.grid);
        let grouped = experts > 1 && !s.alone && s.parts.iter().all(|p| p.k.len() == s.k) && g.rows.is_multiple_of(experts);
        (grouped && g.q.is_some() && g.zero.is_none() && tile.0 >= 2).then_some(())?;
        let (per, cells) = (g.rows / experts, rows / experts);
        (rows.is_multiple_of(experts) && cells >= 2 && per.is_multiple_of(tile.0)).then_some(())?;
        // How many cells a block has: all of one block have one scale, and the last block is not whole.
        let line = |e: usize, r: usize| &g.scales()[(e * cells + r) * cols..(e * cells + r + 1) * cols];
        let of_blocks = |by: usize| (0..experts).all(|e| (0..cells).all(|r| line(e, r) == line(e, r / by * by)));
        let by = (2..=cells).find(|by| !per.is_multiple_of(by * tile.0) && of_blocks(*by))?;
        Some(Self { per, high: by * tile.0, blocks: cells.div_ceil(by), by, cells })
    }

    /// The line of blocks that row i of b lies in.
    pub fn line(&self, i: usize) -> usize {
        i / self.per * self.blocks + i % self.per / self.high
    }

    /// The line of cells, as the grid is written down here, that a line of blocks begins with.
    pub fn cell(&self, line: usize) -> usize {
        line / self.blocks * self.cells + line % self.blocks * self.by
    }
}

/// Of b: only it has experts.
pub fn theories(s: &System) -> Vec<Theory> {
    let Some(stored) = Stored::of(s).map(Arc::new) else { return Vec::new() };
    let (g, experts) = (&s.b, s.parts.len());
    let (tile, (rows, cols), global) = (g.tile, g.grid, g.global);
    let Stored { per, high, blocks, .. } = *stored;
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * global).collect());
    let mut all = Vec::new();
    for way in maps::ways(experts * blocks, cols, experts) {
        let map = way.map.clone();
        let (of, grid) = (map.clone(), stored.clone());
        let from = move |r: usize, c: usize| {
            let at = of(grid.line(r * tile.0), c);
            grid.cell(at / cols) * cols + at % cols
        };
        if (0..rows * cols).all(|f| scales[from(f / cols, f % cols)] == scales[f]) {
            continue;
        }
        // Experts as far apart as whole blocks fit into their rows.
        let down = per / high;
        let is_down = way.kind == Kind::Expert && (0..experts).all(|e| map(e * blocks, 0) == e * down * cols);
        let note = if down > 0 && is_down { format!(": N / {high} of N = {per} rounded down") } else { String::new() };
        let words = format!(
            "the scale of b at row r, group c of the {}×{cols} grid of blocks of {high} rows, {blocks} an expert, is read from {}{note}",
            experts * blocks,
            way.words
        );
        let mut t = Theory::new(way.kind.class(), "b", "b.index", words).bits(4.0 + way.bits);
        let held = scales.clone();
        t.b.scaled(tile.1, Arc::new(move |i, k| held[from(i / tile.0, k / tile.1)]));
        all.push(t);
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, grouped_found, sum, wide};
    use crate::{Format, Granularity, QTensor};

    /// 24 rows an expert in blocks of 16: two, the second a half; the pointer steps by one.
    #[test]
    fn experts_whose_blocks_are_counted_rounded_down_are_told() {
        let (n, k_all, ends) = (24, 64, [12usize, 25, 40]);
        let mut p = codes(Format::Int8, 3 * n, k_all, k_all, false, 103).into_parts();
        let block = |e: usize, r: usize, c: usize| (0.01 * (1.0 + 0.37 * (e * 4 + r * 2 + c) as f32)).sqrt();
        p.granularity = Granularity::Block { rows: 8, cols: 32 };
        p.scale_inv = (0..9 * 2).map(|f| block(f / 6, f / 2 % 3 / 2, f % 2)).collect();
        let b = QTensor::new(p).unwrap();
        let a = wide(40, k_all);
        let x = a.to_f64();
        let got = grouped_found(&a, &b, &ends, Format::F32, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            // Row of blocks e + j / 16 of all, two an expert.
            let at = e + j / 16;
            let scale = |k: usize| f64::from(block(at / 2, at % 2, k / 32));
            sum(k_all, |k| x[[i, k]] * f64::from(b.codes()[(e * n + j) * k_all + k] as i8) * scale(k))
        });
        assert_eq!(got.0, "scale_shared:b.index", "{}", got.1);
        let words = "experts that are 1 rows apart instead of 2: N / 16 of N = 24 rounded down";
        assert!(got.1.contains(words), "{}", got.1);
    }
}
