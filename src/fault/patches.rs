//! Tiles that hold numbers which the operands cannot make, in a result that is right elsewhere: what a missing barrier or an early store leaves.

use super::Class;
use super::diagnose::Finding;
use super::locate::Location;
use super::predict::Scene;

/// The least side of a tile that a kernel computes.
const LEAST: usize = 16;
/// One tile in so many may be hit: more of them have a cause that repeats.
const RARE: usize = 8;

/// The squared cosine of what two factors of the same values have.
const ALIKE: f64 = 0.9995;

/// The finding, where nothing else was found. A whole row or column of tiles is no race: an edge, a group or a line has its own cause.
pub fn find(scene: &Scene, location: &Location) -> Option<Finding> {
    let (high, wide, hit, all) = location.tiles?;
    (high >= LEAST && wide >= LEAST && RARE * hit <= all).then_some(())?;
    let cols = scene.evidence.judged.first()?.cols.max(1);
    let wrong = scene.wrong();
    let (down, across) = ((wrong.len() / cols).div_ceil(high), cols.div_ceil(wide));
    let mut hits = vec![false; down * across];
    for (at, _) in wrong.iter().enumerate().filter(|(_, wrong)| **wrong) {
        hits[at / cols / high * across + at % cols / wide] = true;
    }
    let row = |x: usize| (0..across).all(|y| hits[x * across + y]);
    let column = |y: usize| (0..down).all(|x| hits[x * across + y]);
    (!(0..down).any(row) && !(0..across).any(column)).then_some(())?;
    // A factor of the right values is no other content.
    let judged = scene.evidence.judged.first()?;
    let multiple = |t: usize| {
        let (top, left) = (t / across * high, t % across * wide);
        let rows = top..(top + high).min(wrong.len() / cols);
        let places = rows.flat_map(|i| (left..(left + wide).min(cols)).map(move |j| i * cols + j));
        let pairs = || places.clone().map(|at| (judged.bound.ideal()[at], judged.actual[at]));
        let sum = |f: &dyn Fn(f64, f64) -> f64| pairs().map(|(d, x)| f(d, x)).sum::<f64>();
        let (dd, dx, xx) = (sum(&|d, _| d * d), sum(&|d, x| d * x), sum(&|_, x| x * x));
        dx * dx > ALIKE * dd * xx
    };
    if (0..hits.len()).filter(|t| hits[*t]).any(multiple) {
        return None;
    }
    let place = |t: usize| format!("({}, {})", t / across * high, t % across * wide);
    let first: Vec<String> = (0..hits.len()).filter(|t| hits[*t]).take(4).map(place).collect();
    let words = format!(
        "{hit} of {all} tiles of {high}×{wide} hold what no operand explains, all else is right: a tile read or written before it was complete, from {}",
        first.join(", ")
    );
    Some(Finding::solved(Class::Race, "out.patches", words))
}
