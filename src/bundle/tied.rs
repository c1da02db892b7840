//! Codes of a cast that are right but for values exactly between two of them, which one rule rounds otherwise than the recipe: all of them, or those
//! of some lanes, rows or a tile.
//!
//! ```text
//! tie y of a power of two:  even code, other code      right ≠ found = rule(y): it shows      right = found ≠ rule(y): it would have shown
//! ```

use super::encoders::{Cast, LEAST, Named};
use super::ties::{RULES, by_rule};
use crate::Overflow;
use crate::fault::Class;
use crate::fault::whereabouts::place;
use crate::format::grid::ValueGrid;

impl Cast<'_> {
    /// The rule that makes all codes that are not these.
    pub fn tied(&self, right: &[u8]) -> Option<Named> {
        let (f, rows, cols) = (self.q.format(), self.q.rows(), self.q.cols());
        let grid = ValueGrid::new(f, Overflow::Saturate);
        ((grid.is_float() || grid.is_integer()) && self.zero.is_empty() && right.len() == rows * cols).then_some(())?;
        // The code that a rule of ties takes; `None` of what is no tie.
        let made = |at: usize, further: fn(bool) -> bool| {
            let unit = self.q.affine(self.q.scale_index(at / cols, at % cols)).unit;
            let y = f64::from(self.x.data()[at]) / unit;
            (unit.log2().fract() == 0.0 && grid.is_tie(y)).then(|| by_rule(y, grid.nearest(y), further).copysign(y))
        };
        let wanted = |at: usize| f.decode(u32::from(right[at]));
        let is_wrong = |at: &usize| self.q.codes()[*at] != right[*at] && self.value(*at) != wanted(*at);
        let shows: Vec<usize> = (0..right.len()).filter(is_wrong).collect();
        (shows.len() >= LEAST).then_some(())?;
        let (words, variant, further) =
            RULES.into_iter().find(|(_, _, further)| shows.iter().all(|at| made(*at, *further) == Some(self.value(*at))))?;
        let hides = |at: &usize| made(*at, further).is_some_and(|v| v != self.value(*at));
        let hidden: Vec<usize> = (0..right.len()).filter(hides).collect();
        let place = place((rows, cols), ["rows", "columns"], &shows, &hidden)?;
        let words = format!(
            "values halfway between two codes are rounded {words}{place}: {} of them become another code than the right one, and all other codes are right",
            shows.len()
        );
        Some((Class::Rounding, format!("out.{variant}"), words))
    }
}
