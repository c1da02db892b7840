//! One line for all scales, α·stored + β: two unknowns for the whole result.

use super::linear::Normal;
use super::solved::LINE;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::collections::HashSet;
use std::sync::Arc;

/// One line for all scales, α·stored + β: two unknowns for the whole result, where single cells say too little.
pub fn line(s: &System, side: Which) -> Option<Theory> {
    let g = s.given(side);
    (!s.alone && g.q.is_some() && g.scales().len() >= 8).then_some(())?;
    // The same with a scale of one: what is added to all of them.
    let mut ones = Theory::right();
    let unit = g.global;
    ones.side(side).scale = Some(Arc::new(move |_, _| unit));
    let right = Theory::right();
    let mut system = Normal::new(2);
    let mut n = 0;
    let mut met = HashSet::new();
    for (i, j) in s.probes.iter().filter(|(i, j)| s.region.as_ref().is_none_or(|r| r.has(*i, *j))) {
        let ((own, size), (one, _)) = (s.sum(&right, *i, *j), s.sum(&ones, *i, *j));
        if let Some((y, half)) = s.written(*i, *j, size) {
            system.add(&[own, one], y, 1.0 / (half * half));
            n += 1;
            let row = s.lines(*i, *j).map(|(a, b, _)| if side == Which::A { a } else { b })? / g.tile.0;
            met.extend(g.scales()[row * g.grid.1..(row + 1) * g.grid.1].iter().map(|x| x.to_bits()));
        }
    }
    // Two numbers are always in a line.
    (n >= 12 && met.len() > 2).then_some(())?;
    let (v, within) = system.solve_within()?;
    let spread = g.scales().iter().fold((f64::INFINITY, 0.0f64), |m, x| (m.0.min(f64::from(*x)), m.1.max(f64::from(*x))));
    let (mut by, plus) = (v[0], v[1]);
    let mean = g.scales().iter().map(|x| f64::from(*x)).sum::<f64>() / g.scales().len() as f64;
    // A factor alone is no line, and scales that are all the same say none.
    (spread.1 > 1.1 * spread.0
        && plus.abs() > 16.0 * within[1]
        && plus.abs() > 0.01 * mean.abs()
        && by.abs() > 16.0 * within[0])
        .then_some(())?;
    // Numbers that are known no better say whatever they are asked.
    let off = within[0] + within[1] / mean.abs().max(1e-300);
    if (by - 1.0).abs() <= 4.0 * within[0] {
        by = 1.0;
    }
    let natural = by == 1.0 && (plus + mean).abs() <= 4.0 * within[1];
    (natural || off <= LINE).then_some(())?;
    let plus = if natural { -mean } else { plus };
    let who = side.name();
    let how = match (natural, by == 1.0) {
        (true, _) => "lack their mean".to_string(),
        (_, true) => format!("have {plus:.5e} added"),
        _ => format!("are {by:.5} times the stored ones plus {plus:.5e}"),
    };
    let words = format!("the scales of {who} {how}: an offset or a scale of scales that is not applied");
    let mut t = Theory::new(Class::ScaleOmitted, who, format!("{who}.offset"), words).bits(26.0);
    t.fitted = !natural;
    t.freedom = 2;
    t.slack = if natural { 0.0 } else { off };
    let (scales, tile, cols): (Vec<f64>, _, _) = (g.scales().iter().map(|x| f64::from(*x)).collect(), g.tile, g.grid.1);
    t.side(side).scale = Some(Arc::new(move |i, k| (by * scales[i / tile.0 * cols + k / tile.1] + plus) * unit));
    Some(t)
}
