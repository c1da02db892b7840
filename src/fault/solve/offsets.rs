//! Effective zero points held against the stored ones: off by whole steps, one number for all, those of other places.

use super::effective::{Ask, Cells, Grid, solve};
use super::given::Given;
use super::segment::lines;
use super::system::{System, Theory};
use crate::Zero;
use crate::fault::edit::Which;
use crate::fault::{Class, whereabouts};
use std::sync::Arc;

/// Theories of the zero points of one side on top of `base`, which has them right.
pub fn offsets(s: &System, base: &Theory, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let mut all = vec![Grid::of(s, side, g.tile)];
    let rows = Grid::of(s, side, (1, g.k));
    if !all.contains(&rows) {
        all.push(rows);
    }
    all.iter()
        .filter_map(|grid| {
            let cells = solve(s, base, grid, Ask::Offset)?;
            cells.value.iter().any(|d| *d != 0.0).then_some(())?;
            offset(s, base, grid, &cells)
        })
        .take(1)
        .collect()
}

fn offset(s: &System, base: &Theory, grid: &Grid, cells: &Cells) -> Option<Theory> {
    let g: &Given = s.given(grid.side);
    let who = grid.side.name();
    g.q.as_ref()?;
    // In steps of the code; whole ones, all but those that nothing says.
    let whole: Vec<f64> = cells.value.iter().map(|d| d.round()).collect();
    let sure = |c: usize| {
        !cells.within[c].is_finite() || (cells.within[c] < 0.3 && (cells.value[c] - whole[c]).abs() <= cells.within[c] + 1e-3)
    };
    (0..whole.len()).all(sure).then_some(())?;
    let changed: Vec<usize> = (0..whole.len()).filter(|c| whole[*c] != 0.0).collect();
    let first = *changed.first()?;
    let own = g.grid == (grid.rows, grid.cols);
    let zero: Option<Vec<f64>> = match (&g.zero, own) {
        (Some((z, None)), true) => Some(z.clone()),
        _ => None,
    };
    let same = changed.iter().all(|c| whole[*c] == whole[first]);
    let every = changed.len() == (0..whole.len()).filter(|c| cells.within[*c].is_finite()).count();
    let size = whole[first].abs();
    let direction = if whole[first] > 0.0 { "large" } else { "small" };
    let which: Vec<bool> = whole.iter().map(|d| *d != 0.0).collect();
    // Rows and groups of the grid, where they hold no cell that would have shown; else the cells by their numbers.
    let in_place = |would: &dyn Fn(usize) -> bool| {
        let hidden: Vec<usize> =
            (0..whole.len()).filter(|c| whole[*c] == 0.0 && cells.within[*c].is_finite() && would(*c)).collect();
        let found = whereabouts::place((grid.rows, grid.cols), ["rows", "groups"], &changed, &hidden);
        let of_grid = |place: String| format!("{place} of the {}×{} grid", grid.rows, grid.cols);
        found.filter(|p| !p.is_empty()).map_or_else(|| format!(" in cells {} of the grid", lines(&which)), of_grid)
    };
    let mut t = Theory::new(Class::ZpOffset, who, format!("{who}.offset"), String::new());
    t.bits = 8.0 + 2.0 * changed.len() as f64;
    t.freedom = changed.len();
    t.detail = match &zero {
        _ if same && every => format!("the zero points of {who} are {size} too {direction}"),
        Some(z) if same && changed.iter().all(|c| z[*c] == z[first]) => {
            format!("the zero points of {who} that are {} are {size} too {direction}", z[first])
        }
        Some(z) if changed.iter().all(|c| whole[*c] + z[*c] == whole[first] + z[first]) => {
            t.class = Class::ZpCorrection;
            let place = if every { String::new() } else { in_place(&|c| z[c] != whole[first] + z[first]) };
            format!("{} is used instead of the zero points of {who}{place}", whole[first] + z[first])
        }
        Some(z) if changed.iter().all(|c| z.contains(&(whole[*c] + z[*c]))) && !same => {
            t.class = Class::ZpCorrection;
            t.variant = format!("{who}.zero_index");
            format!("the zero points of {who} are taken from other places: cells {} of the grid", lines(&which))
        }
        _ if same => format!("the zero points of {who} are {size} too {direction}{}", in_place(&|_| true)),
        _ => format!(
            "the zero points of {who} are off by whole steps: {} in cell {first}, … (cells {})",
            whole[first],
            lines(&which)
        ),
    };
    if same {
        t.bits = 10.0;
    }
    let (grid, own_tile, own_cols) = (*grid, g.tile, g.grid.1);
    let lowered = whole[first];
    let shift = move |i: usize, k: usize| whole[grid.cell(i, k)];
    match &g.zero {
        Some((z, mid)) => {
            let z = z.clone();
            let additive = mid.is_some();
            let steps: Vec<f64> =
                g.q.as_ref().map_or_else(Vec::new, |q| q.scale_inv().iter().map(|x| f64::from(*x) * g.global).collect());
            t.side(grid.side).zero = Some(Arc::new(move |i, k| {
                let cell = i / own_tile.0 * own_cols + k / own_tile.1;
                let step = if additive { -steps[cell] } else { 1.0 };
                z[cell] + step * shift(i, k)
            }));
        }
        None => {
            matches!(g.q.as_ref()?.zero(), Zero::None).then_some(())?;
            // Half the codes' range: signed codes that were made unsigned.
            let half = f64::from(1u32 << (g.q.as_ref()?.format().bits() - 1));
            let why = match same && lowered == -half {
                true => format!(
                    ": {half} is added to its codes, which makes them unsigned, and {half} times the sum of what they multiply is not taken off again there"
                ),
                false => String::new(),
            };
            t.detail = format!("{}, where none are stored{why}", t.detail);
            let right = g.values.clone();
            let columns = g.k;
            let steps: Vec<f64> = g.q.as_ref()?.scale_inv().iter().map(|x| f64::from(*x) * g.global).collect();
            t.side(grid.side).value = Some(Arc::new(move |i, k| {
                right[i * columns + k] - shift(i, k) * steps[i / own_tile.0 * own_cols + k / own_tile.1]
            }));
        }
    }
    let t = if base.is_plain() { t } else { base.with(&t)? };
    Some(t)
}
