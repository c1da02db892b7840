//! Theories of a persistent kernel that does not clear its accumulator: a block takes every n-th tile, and each tile is added to those that the
//! block had before.

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Sides of tiles, and blocks of a grid at most.
const SIDES: [usize; 7] = [16, 32, 48, 64, 96, 128, 256];
const BLOCKS: usize = 264;
/// Elements that have to agree, of them wrong.
const LOOKS: usize = 24;

/// Tiles of a result, counted along rows or along columns.
#[derive(Clone, Copy)]
struct Tiles {
    high: usize,
    wide: usize,
    down: usize,
    across: usize,
    by_column: bool,
}

impl Tiles {
    fn index(&self, i: usize, j: usize) -> usize {
        let (x, y) = (i / self.high, j / self.wide);
        if self.by_column { y * self.down + x } else { x * self.across + y }
    }
    /// The element of tile `t` at the place in its tile that (i, j) has.
    fn same_place(&self, t: usize, i: usize, j: usize) -> (usize, usize) {
        let (x, y) = if self.by_column { (t % self.down, t / self.down) } else { (t / self.across, t % self.across) };
        (x * self.high + i % self.high, y * self.wide + j % self.wide)
    }
}

/// All of them that make the first wrong elements.
pub fn theories(s: &System) -> Vec<Theory> {
    let finite = |at: usize| s.actual[at].is_finite() && s.ideal[at].is_finite();
    let wrong = |(i, j): &&(usize, usize)| s.is_wrong[i * s.cols + j] && finite(i * s.cols + j);
    let probes: Vec<(usize, usize)> = s.probes.iter().filter(wrong).take(LOOKS).copied().collect();
    if s.alone || s.parts.len() != 1 || probes.len() < 8 {
        return Vec::new();
    }
    // What an accumulator holds has no scales yet, where they go with all of K.
    let step = |g: &super::given::Given, i: usize| if g.q.is_some() && g.grid.1 == 1 { g.step(i, 0) } else { 1.0 };
    let (rows, cols) = (s.rows, s.cols);
    let unit: Arc<Vec<f64>> = Arc::new(
        (0..rows * cols)
            .map(|at| s.lines(at / cols, at % cols).map_or(1.0, |(a, b, _)| step(&s.a, a) * step(&s.b, b)))
            .collect(),
    );
    let sums: Arc<Vec<f64>> = Arc::new((0..rows * cols).map(|at| s.ideal[at] - s.bias.at(at / cols, at % cols)).collect());
    // What is held is as far off as sums of its size are.
    let sizes: Arc<Vec<f64>> = Arc::new((0..rows * cols).map(|at| s.magnitude(at)).collect());
    let mut found = Vec::new();
    for (high, wide) in SIDES.iter().flat_map(|h| SIDES.iter().map(move |w| (*h, *w))) {
        let (down, across) = (rows.div_ceil(high), cols.div_ceil(wide));
        for (blocks, by_column, scaled) in (1..(down * across).min(BLOCKS))
            .flat_map(|b| [(b, false, true), (b, true, true), (b, false, false), (b, true, false)])
        {
            if by_column && (down == 1 || across == 1) {
                continue;
            }
            let tiles = Tiles { high, wide, down, across, by_column };
            let held = |sums: &Arc<Vec<f64>>| {
                let (sums, unit) = (sums.clone(), unit.clone());
                move |i: usize, j: usize| -> f64 {
                    let (mut t, mut sum) = (tiles.index(i, j), 0.0);
                    while t >= blocks {
                        t -= blocks;
                        let (x, y) = tiles.same_place(t, i, j);
                        // Behind an edge there is nothing.
                        if x < rows && y < cols {
                            let at = x * cols + y;
                            sum += sums[at] / if scaled { unit[at] } else { 1.0 };
                        }
                    }
                    sum * if scaled { unit[i * cols + j] } else { 1.0 }
                }
            };
            let (held, size) = (held(&sums), held(&sizes));
            let fits = |(i, j): &(usize, usize)| {
                let at = i * cols + j;
                let more = s.actual[at] - s.bias.at(*i, *j) - sums[at];
                let (held, off) = (held(*i, *j), s.certain(at) + s.relative * size(*i, *j));
                (more - held).abs() <= s.out.spacing(at, s.actual[at]) + 4.0 * off + 1e-3 * (held.abs() + sums[at].abs())
            };
            if !probes.iter().all(fits) {
                continue;
            }
            let order = if by_column { "column" } else { "row" };
            let words = format!(
                "the accumulator is not cleared between the tiles of a persistent block: tiles of {high}×{wide}, {order} after {order}, also hold the tiles {blocks}, {}, … before them",
                2 * blocks
            );
            let mut t = Theory::new(Class::AccState, "out", "out.persistent", words)
                .bits(10.0 + cost(high) + cost(wide) + cost(blocks) + f64::from(u8::from(by_column)));
            // Each sum that is held was rounded as a sum of its own size.
            t.slack = 1e-6;
            let own = sizes.clone();
            t.size = Some(Arc::new(move |i, j| own[i * cols + j] + size(i, j)));
            let bias = s.bias.clone();
            t.finish = Some(Arc::new(move |i, j, v| v + held(i, j) + bias.at(i, j)));
            if probes.iter().all(|(i, j)| s.fits(&t, *i, *j)) {
                found.push(t);
                if found.len() >= 4 {
                    return found;
                }
            }
        }
    }
    found
}
