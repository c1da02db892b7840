//! Q4_K by what its source computes, each f32 operation as one in f64 that is rounded once.

use super::exact::{F16, F32, log2_floor, pow2};
use super::law::{Step, Tile, clamp};
use crate::Tensor;

fn r(x: f64) -> f64 {
    F32.rn(x)
}

/// The 23 fraction bits of f + 1.5·2²³, less 2²².
pub(super) fn nearest_int(f: f64) -> f64 {
    let s = r(f + 1.5 * pow2(23)).abs();
    let fraction = if s == 0.0 || s.is_infinite() { 0.0 } else { s / pow2(log2_floor_or(s) - 23) - pow2(23) };
    if f.is_nan() { 0.0 } else { fraction - pow2(22) }
}
fn log2_floor_or(s: f64) -> i32 {
    if s.is_nan() { 0 } else { log2_floor(s) }
}
pub(super) fn four_bits(f: f64) -> f64 {
    clamp(nearest_int(f), 0.0, 15.0)
}

/// Scale and minimum of a group, and what made its codes: `four_bits(inverse · (x − min))`.
#[derive(Clone, Copy)]
struct Fitted {
    scale: f64,
    min: f64,
    inverse: f64,
    from: f64,
}

impl Fitted {
    fn of(x: &[f64]) -> Fitted {
        let total = |terms: &mut dyn Iterator<Item = f64>| terms.reduce(|a, b| r(a + b)).unwrap_or(0.0);
        let rms = r(r(total(&mut x.iter().map(|x| r(x * x))) / x.len() as f64).sqrt());
        let w: Vec<f64> = x.iter().map(|x| r(rms + x.abs())).collect();
        let both = || x.iter().zip(&w);
        let (sum_w, sum_x) = (total(&mut w.iter().copied()), total(&mut both().map(|(x, w)| r(w * x))));
        // A comparison with NaN is false.
        let max = x.iter().copied().reduce(|a, b| if b > a { b } else { a }).unwrap_or(0.0);
        let min = x.iter().copied().reduce(|a, b| if b < a { b } else { a }).unwrap_or(0.0);
        let min = if min > 0.0 { 0.0 } else { min };
        if max == min {
            return Fitted { scale: 0.0, min, inverse: 0.0, from: 0.0 };
        }
        let code = |g: &Fitted, x: f64| four_bits(r(g.inverse * r(x - g.from)));
        let error = |g: &Fitted| {
            total(&mut both().map(|(x, w)| {
                let e = r(r(r(g.scale * code(g, *x)) + g.min) - x);
                r(w * r(e * e))
            }))
        };
        let inverse = r(15.0 / r(max - min));
        let mut best = Fitted { scale: r(1.0 / inverse), min, inverse, from: min };
        for i in 0..21 {
            let from = best.min;
            let steps = r(r(r(F32.rn(0.1) * f64::from(i)) - 1.0) + 15.0);
            let tried = Fitted { inverse: r(steps / r(max - from)), from, ..best };
            let sum = |power: i32| total(&mut both().map(|(x, w)| (0..power).fold(*w, |t, _| r(t * code(&tried, *x)))));
            let (l, l2) = (sum(1), sum(2));
            let xl = total(&mut both().map(|(x, w)| r(r(w * code(&tried, *x)) * x)));
            let d = r(r(sum_w * l2) - r(l * l));
            let scale = r(r(r(sum_w * xl) - r(sum_x * l)) / d);
            let min = r(r(r(l2 * sum_x) - r(l * xl)) / d);
            let (scale, min) = if min > 0.0 { (r(xl / l2), 0.0) } else { (scale, min) };
            let tried = Fitted { scale, min, ..tried };
            if d > 0.0 && error(&tried) < error(&best) {
                best = tried;
            }
        }
        best
    }
}

/// The tiles in the order of the grid, each with what the second level multiplies its scale and its minimum by.
pub(super) fn tiles(x: &Tensor) -> Vec<(Tile, (f64, f64))> {
    let mut all = Vec::new();
    for block in (0..x.rows()).flat_map(|i| x.row(i).chunks(256)) {
        let groups: Vec<Fitted> =
            block.chunks(32).map(|g| Fitted::of(&g.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>())).collect();
        let six = |of: fn(&Fitted) -> f64| {
            let most = groups.iter().map(of).fold(0.0, |a, b| if b > a { b } else { a });
            let inverse = if most > 0.0 { r(63.0 / most) } else { 0.0 };
            // An 8-bit unsigned number wraps before it is capped.
            let bits =
                groups.iter().map(|g| nearest_int(r(inverse * of(g))).rem_euclid(256.0).min(63.0) + 0.0).collect::<Vec<f64>>();
            (bits, F16.rn(r(most / 63.0)))
        };
        let ((scales, d), (minima, dmin)) = (six(|g| g.scale), six(|g| -g.min));
        for ((g, scale), minimum) in groups.iter().zip(scales).zip(minima) {
            let (d1, least) = (r(d * scale), r(dmin * minimum));
            let step = match d1 == 0.0 {
                true => Step::Gguf { inverse: g.inverse, min: g.from },
                false => Step::GgufAgain { least, step: d1 },
            };
            all.push((Tile { scale_inv: scale, zero: Some(minimum), step }, (d, -dmin)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fraction bits of f + 1.5·2²³ as they lie in memory, also where the sum is 0 or infinite.
    #[test]
    fn the_nearest_integer_is_that_of_the_bits() {
        let bits = |f: f32| f64::from(((f + 12_582_912.0).to_bits() & 0x7f_ffff) as i32 - 0x40_0000);
        for f in [0.0, 0.5, 1.5, -2.5, 7.49, 15.0, -12_582_912.0, f32::INFINITY, f32::NEG_INFINITY, 3e30] {
            assert_eq!(nearest_int(f64::from(f)), bits(f), "{f}");
        }
    }
}
