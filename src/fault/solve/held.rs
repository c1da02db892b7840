//! Lines of an operand that are never loaded: what is multiplied instead is the same for every tile of K, whatever it is.
//!
//! ```text
//! out[i, j] = Σ_u x(i, u) · Σ_t b[j, t·w + u]          w unknowns a line, solved; an equation for each column
//! ```

use super::linear::Normal;
use super::segment::{lines, spread};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::sync::Arc;

/// Widths of tiles of K, the narrowest first; equations for each unknown.
const WIDTHS: [usize; 4] = [16, 32, 64, 128];
const EQUATIONS: f64 = 1.5;
/// How far the solved numbers may make a sum be off, relative to its magnitude.
const SLACK: f64 = 1.0 / 256.0;
/// Lines at most.
const LINES: usize = 256;

/// Of a where only rows are wrong, of b where only columns are.
pub fn theories(s: &System) -> Vec<Theory> {
    let Some(region) = s.region.as_ref().filter(|r| r.tiles.is_empty()) else { return Vec::new() };
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    [(Which::A, &region.rows), (Which::B, &region.cols)].into_iter().filter_map(|(side, hit)| theory(s, side, hit)).collect()
}

fn theory(s: &System, side: Which, hit: &[bool]) -> Option<Theory> {
    let which: Vec<usize> = (0..hit.len()).filter(|x| hit[*x]).collect();
    (!which.is_empty() && which.len() < hit.len() && which.len() <= LINES).then_some(())?;
    let width = WIDTHS.into_iter().filter(|w| 2 * w <= s.k).find(|w| line(s, side, which[0], *w).is_some())?;
    let solved: Vec<(usize, Vec<f64>)> =
        parallel::every(which.len(), |n| line(s, side, which[n], width).map(|v| (which[n], v)))?;
    let name = side.name();
    let words = format!(
        "rows {} of {name} are never loaded: instead the same {width} numbers are multiplied for every tile of {width} of K",
        lines(hit)
    );
    let mut t = Theory::new(Class::SilentSkip, name, format!("{name}.not_loaded"), words).bits(40.0 + which.len() as f64);
    (t.fitted, t.slack, t.freedom) = (true, SLACK, which.len() * width);
    let mut held = vec![None; s.given(side).rows];
    solved.into_iter().for_each(|(x, v)| held[x] = Some(v));
    let (values, k_all) = (s.given(side).values.clone(), s.k);
    t.side(side).value = Some(Arc::new(move |i, k| held[i].as_ref().map_or_else(|| values[i * k_all + k], |v| v[k % width])));
    Some(t)
}

/// What is multiplied for one line. `None`: too few equations, or they contradict each other.
fn line(s: &System, side: Which, line: usize, width: usize) -> Option<Vec<f64>> {
    let other = s.given(side.other());
    let mut places: Vec<usize> = (0..other.rows).collect();
    spread(&mut places, 3 * width + 16);
    let mut system = Normal::new(width);
    let mut rows: Vec<(Vec<f64>, f64, f64)> = Vec::new();
    for y in places {
        let (i, j) = if side == Which::A { (line, y) } else { (y, line) };
        let mut x = vec![0.0; width];
        other.values[y * s.k..(y + 1) * s.k].iter().enumerate().for_each(|(k, v)| x[k % width] += v);
        let Some((written, half)) = s.written(i, j, 0.0) else { continue };
        let half = half + s.certain(i * s.cols + j);
        system.add(&x, written, 1.0 / (half * half));
        rows.push((x, written, half));
    }
    (rows.len() as f64 >= EQUATIONS * width as f64).then_some(())?;
    let v = system.solve()?;
    let fits = |(x, y, half): &(Vec<f64>, f64, f64)| {
        let sum: f64 = x.iter().zip(&v).map(|(x, v)| x * v).sum();
        (sum - y).abs() <= 2.0 * half
    };
    rows.iter().all(fits).then_some(v)
}
