//! Codes that have become one constant at some places of every p of K, as where a word is narrowed while it is packed again: solved by least squares,
//! one pair of unknowns for each place.
//!
//! ```text
//! out − right = Σ_r (y_r · U_r − x_r · V_r)      U_r = Σ_{k mod p = r} A·s,  V_r = Σ_{k mod p = r} A·s·code
//!                                                x_r: 1 where the codes of place r are lost, else 0;  y_r: x_r times the constant
//! ```

use super::linear::Normal;
use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::Order as _;
use std::sync::Arc;

/// Lengths of packed words, blocks and pairs of blocks.
const PERIODS: [usize; 4] = [8, 16, 32, 64];
/// Equations for each unknown.
const EQUATIONS: usize = 4;
/// Standard errors that a number may be off, and how far it may be at most.
const SIGMAS: f64 = 4.0;
const WITHIN: f64 = 0.2;

/// Of both operands: the shortest period that explains the result.
pub fn theories(s: &System) -> Vec<Theory> {
    let whole = s.parts.iter().all(|p| p.k.len() == s.k);
    let sides = s.sides().iter().copied().filter(|_| whole);
    sides.filter_map(|side| PERIODS.into_iter().filter(|p| *p <= s.k).find_map(|p| fixed(s, side, p))).collect()
}

/// What each place of a period is: its codes, or a constant.
fn fixed(s: &System, side: Which, period: usize) -> Option<Theory> {
    let g = s.given(side);
    let (q, f) = (g.q.as_ref()?, g.format()?);
    let mut places: Vec<(usize, usize)> = (0..s.rows * s.cols).map(|at| (at / s.cols, at % s.cols)).collect();
    // An element of no product tells of one place.
    spread(&mut places, 2 * period * EQUATIONS * if s.alone { 4 } else { 1 });
    let (mut system, mut n) = (Normal::new(2 * period), 0);
    for (i, j) in places {
        let Some((ra, rb, ks)) = s.lines(i, j) else { continue };
        let (line, other, across) = if side == Which::A { (ra, &s.b, rb) } else { (rb, &s.a, ra) };
        let mut x = vec![0.0; 2 * period];
        let mut size = 0.0;
        for k in if s.alone { j..j + 1 } else { ks } {
            let v = if s.alone { 1.0 } else { other.values[across * g.k + k] };
            let step = v * g.step(line, k);
            x[k % period] += step;
            x[period + k % period] -= step * g.table[usize::from(q.codes()[line * g.k + k])];
            size += (v * g.values[line * g.k + k]).abs();
        }
        let Some((y, half)) = s.written(i, j, size) else { continue };
        let right = s.ideal[i * s.cols + j] - s.bias.at(i, j);
        // A format that has no number for a code says nothing.
        if x.iter().all(|x| x.is_finite()) && right.is_finite() {
            system.add(&x, y - right, 1.0 / (half * half));
            n += 1;
        }
    }
    (n >= 2 * period * EQUATIONS / 2).then_some(())?;
    let (v, e) = system.solve_within()?;
    let near = |at: usize, to: f64| (v[at] - to).abs() <= (SIGMAS * e[at]).max(1e-4) && SIGMAS * e[at] <= WITHIN;
    let mut codes: Vec<Option<usize>> = Vec::with_capacity(period);
    for r in 0..period {
        let code = match (near(period + r, 0.0), near(period + r, 1.0)) {
            (true, _) if near(r, 0.0) => None,
            (_, true) => Some((0..g.table.len()).find(|c| near(r, g.table[*c]))?),
            _ => return None,
        };
        codes.push(code);
    }
    let lost: Vec<usize> = (0..period).filter(|r| codes[*r].is_some()).collect();
    (!lost.is_empty() && lost.len() < period).then_some(())?;
    let mut constants: Vec<usize> = codes.iter().flatten().copied().collect();
    constants.order_by_key(|c| *c);
    constants.dedup();
    // One constant, not a number for each place.
    let [code] = constants[..] else { return None };
    let runs = runs(&lost);
    let some: Vec<String> =
        runs.iter().map(|(from, to)| if from == to { from.to_string() } else { format!("{from} … {to}") }).collect();
    let name = side.name();
    let worth = g.table[code];
    let words = format!(
        "codes of {name} ({f}) at k mod {period} = {} are all read as the code of {worth}, whatever they are",
        some.join(", ")
    );
    let bits = 8.0 + cost(period) + 4.0 * runs.len() as f64;
    let mut t = Theory::new(Class::PackPermute, name, format!("{name}.fixed"), words).bits(bits);
    t.freedom = runs.len();
    let g = g.clone();
    let is_lost: Vec<bool> = codes.iter().map(Option::is_some).collect();
    t.side(side).value = Some(Arc::new(move |i, k| {
        let cell = i / g.tile.0 * g.grid.1 + k / g.tile.1;
        if is_lost[k % period] { g.worth(worth, cell) } else { g.values[i * g.k + k] }
    }));
    Some(t)
}

/// Neighbours together: first and last of each run.
fn runs(at: &[usize]) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> = Vec::new();
    for x in at {
        match all.last_mut() {
            Some(run) if run.1 + 1 == *x => run.1 = *x,
            _ => all.push((*x, *x)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, noise, sum, wide};
    use crate::{Format, Zero};

    /// What is found where the code at k of row j is `of(j, k, code)`.
    fn with(of: impl Fn(usize, usize, u8) -> f64) -> (String, String) {
        let (a, b) = (wide(M, 128), codes(Format::Uint4, N, 128, 32, true, 41));
        let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        found(&a, &b, None, Format::F32, |i, j, _| {
            sum(128, |k| {
                let cell = j * 4 + k / 32;
                x[[i, k]] * (of(j, k, b.codes()[j * 128 + k]) - f64::from(z[cell])) * f64::from(b.scale_inv()[cell])
            })
        })
    }

    #[test]
    fn codes_that_are_lost_in_a_part_of_each_word_are_told() {
        let lost = |k: usize| k % 32 >= 16 && k % 8 >= 2;
        let got = with(|_, k, c| if lost(k) { 0.0 } else { f64::from(c) });
        assert_eq!(got.0, "pack_permute:b.fixed", "{}", got.1);
        assert!(got.1.contains("k mod 32 = 18 … 23, 26 … 31 are all read as the code of 0"), "{}", got.1);
        let got = with(|_, k, c| if [3, 4, 6].contains(&(k % 16)) { 15.0 } else { f64::from(c) });
        assert!(got.1.contains("k mod 16 = 3 … 4, 6 are all read as the code of 15"), "{}", got.1);
    }

    #[test]
    fn codes_that_are_another_number_each_are_no_constant() {
        let lost = |k: usize| k % 32 >= 16 && k % 8 >= 2;
        let got = with(|j, k, c| if lost(k) { (16.0 * noise(91 + 7 * (j * 128 + k))).floor() } else { f64::from(c) });
        assert!(!got.0.contains("fixed"), "{} {}", got.0, got.1);
    }
}
