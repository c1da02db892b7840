//! Scales that are multiplied in place: every wave of rows has the scales of the waves before as well.

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Waves of so many rows.
const WAVES: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];

/// The scales of one side, times those of the same place in all waves before.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, name, other) = (s.given(side), side.name(), side.other().name());
    let Some(q) = g.q.as_ref().filter(|_| g.grid.0 > 1 && g.deep.is_none() && !s.alone) else { return Vec::new() };
    let scales: Arc<Vec<f64>> = Arc::new(q.scale_inv().iter().map(|x| f64::from(*x)).collect());
    let (tile, cols, global) = (g.tile, g.grid.1, g.global);
    let mut all = Vec::new();
    // Tiles of rows are waves too.
    let mut waves: Vec<usize> = WAVES.into_iter().chain([tile.0]).filter(|w| *w < g.rows && *w > 1).collect();
    waves.sort_unstable();
    waves.dedup();
    for wave in waves {
        let words = format!(
            "the scales of {name} are multiplied into those of {other} in place: from row {wave} of {name} on each {wave} rows have the scales of those before as well"
        );
        let mut t = Theory::new(Class::ScaleDoubledInverted, name, format!("{name}.in_place"), words).bits(5.0 + cost(wave));
        let scales = scales.clone();
        t.side(side).scale = Some(Arc::new(move |i, k| {
            let one = |w: usize| scales[(w * wave + i % wave) / tile.0 * cols + k / tile.1];
            (0..=i / wave).map(one).product::<f64>() * global
        }));
        all.push(t);
    }
    all
}
