//! Codes at some places of every word, or in a tail of K, that are decoded by another table: what each code becomes there is solved by least squares.
//!
//! ```text
//! out[i, j] − right = Σ_c D(c) · Σ_{k a lane, code(k) = c} s·other          D: how far the value of each code is off there, nothing elsewhere
//! ```

use super::decoded::tables;
use super::decoded_ranges::ranges;
use super::lanes::{Is, lanes};
use super::linear::Normal;
use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use super::table::plainest;
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::sync::Arc;

/// Equations for each unknown, and more than unknowns that refuse lanes before all are summed.
const EQUATIONS: usize = 3;
const MORE: usize = 6;
/// Codes that a table may have.
const CODES: usize = 64;
/// Standard errors that a value may be off; the least step of a format that it is known to.
const SIGMAS: f64 = 4.0;
const KNOWN: f64 = 0.25;
/// Codes that are told one by one.
const TOLD: usize = 5;

/// Of both operands.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    s.sides().iter().flat_map(|side| of(s, *side)).collect()
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let Some(q) = g.q.as_ref().filter(|_| g.table.len() <= CODES) else { return Vec::new() };
    let mut is_used = vec![false; g.table.len()];
    q.codes().iter().for_each(|c| is_used[usize::from(*c)] = true);
    let codes: Vec<usize> = (0..g.table.len()).filter(|c| is_used[*c]).collect();
    let n = codes.len();
    let mut places: Vec<usize> = (0..s.rows * s.cols).collect();
    spread(&mut places, EQUATIONS * n);
    if n < 2 || places.len() < EQUATIONS * n || codes.iter().any(|c| !g.table[*c].is_finite()) {
        return Vec::new();
    }
    let mut all: Vec<(String, f64, Is)> = lanes();
    all.extend((0..16).map(|lane| -> (String, f64, Is) {
        (format!("codes k mod 16 = {lane}"), cost(16) + cost(lane), Arc::new(move |k| k % 16 == lane))
    }));
    all.extend(ranges(s.k).into_iter().map(|(range, words, bits)| -> (String, f64, Is) {
        (format!("codes {words}"), bits, Arc::new(move |k| range.contains(&k)))
    }));
    let found = |lane: &(String, f64, Is)| {
        let (off, within) = solve(s, side, &places, &codes, &lane.2)?;
        named(s, side, &codes, &off, &within, lane)
    };
    parallel::flat(&all, |lane| found(lane))
}

/// How far each code's value is off at these k, and how far that may be from the true one. `None`: they are not what is wrong.
fn solve(s: &System, side: Which, places: &[usize], codes: &[usize], is: &Is) -> Option<(Vec<f64>, Vec<f64>)> {
    let g = s.given(side);
    let (q, other, n) = (g.q.as_ref()?.codes(), s.given(side.other()), codes.len());
    let mut number = vec![0; g.table.len()];
    codes.iter().enumerate().for_each(|(at, c)| number[*c] = at);
    let lanes: Vec<usize> = (0..s.k).filter(|k| is(*k)).collect();
    let mut system = Normal::new(n);
    let mut rows: Vec<(Vec<f64>, f64, f64)> = Vec::new();
    let fits = |v: &[f64], rows: &[(Vec<f64>, f64, f64)]| {
        rows.iter().all(|(x, y, half)| {
            let sum: f64 = x.iter().zip(v).map(|(x, v)| x * v).sum();
            (y - sum).abs() <= 2.0 * half
        })
    };
    for at in places {
        let (i, j) = (at / s.cols, at % s.cols);
        let Some((ra, rb, _)) = s.lines(i, j) else { continue };
        let (line, across) = if side == Which::A { (ra, rb) } else { (rb, ra) };
        let Some((y, half)) = s.written(i, j, s.magnitude(*at)) else { continue };
        let mut x = vec![0.0; n];
        for k in &lanes {
            x[number[usize::from(q[line * g.k + k])]] += other.values[across * other.k + k] * g.step(line, *k);
        }
        let y = y - (s.ideal[*at] - s.bias.at(i, j));
        system.add(&x, y, 1.0 / (half * half));
        rows.push((x, y, half));
        if rows.len() == n + MORE && !fits(&system.clone().solve()?, &rows) {
            return None;
        }
    }
    (rows.len() >= EQUATIONS * n - MORE).then_some(())?;
    let (v, e) = system.solve_within()?;
    fits(&v, &rows).then(|| (v, e.into_iter().map(|e| SIGMAS * e).collect()))
}

fn named(
    s: &System,
    side: Which,
    codes: &[usize],
    off: &[f64],
    within: &[f64],
    (lane, cost_of_lane, is): &(String, f64, Is),
) -> Option<Theory> {
    let (g, name) = (s.given(side).clone(), side.name());
    let (f, q) = (g.format()?, Arc::new(g.q.clone()?));
    let unit = g.table.iter().filter(|x| x.is_finite() && **x != 0.0).fold(f64::INFINITY, |m, x| m.min(x.abs()));
    let is_known = |n: usize| within[n] <= KNOWN * unit.max(g.table[codes[n]].abs());
    let wrong: Vec<usize> = (0..codes.len()).filter(|n| off[*n].abs() > within[*n] && within[*n].is_finite()).collect();
    (!wrong.is_empty() && wrong.iter().all(|n| is_known(*n))).then_some(())?;
    let holds =
        |t: &[f64]| (0..codes.len()).all(|n| (t[codes[n]] - g.table[codes[n]] - off[n]).abs() <= within[n] + 1e-6 * unit);
    let known = tables(f).into_iter().find(|t| holds(&t.4));
    let (class, variant, what, bits, table) = match known {
        Some((class, variant, words, bits, table)) => (class, variant, words, bits, table),
        None => {
            let mut table = g.table.clone();
            for n in &wrong {
                let v = g.table[codes[*n]] + off[*n];
                table[codes[*n]] = plainest(v, within[*n]).unwrap_or(v);
            }
            let some: Vec<String> = (wrong.iter().take(TOLD))
                .map(|n| format!("0x{:02x} as {} instead of {}", codes[*n], table[codes[*n]], g.table[codes[*n]]))
                .collect();
            let more = if wrong.len() > TOLD { format!(" and {} more", wrong.len() - TOLD) } else { String::new() };
            let words = format!("decoded by another table: {}{more}", some.join(", "));
            (Class::BitsReinterpreted, "lane_table", words, 8.0 + 3.0 * wrong.len() as f64, table)
        }
    };
    let words = format!("of {name} ({f}), {lane} are {what}; all others are right");
    let mut t = Theory::new(class, name, format!("{name}.{variant}"), words).bits(4.0 + bits + cost_of_lane);
    t.freedom = wrong.len();
    let is = is.clone();
    t.side(side).value = Some(Arc::new(move |i, k| {
        let cell = i / g.tile.0 * g.grid.1 + k / g.tile.1;
        if is(k) { g.worth(table[usize::from(q.codes()[i * g.k + k])], cell) } else { g.values[i * g.k + k] }
    }));
    Some(t)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, noise, sum, wide};

    const K: usize = 96;

    fn of(value: impl Fn(usize, u8) -> f64) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::Uint4, N, K, 32, false, 79));
        let x = a.to_f64();
        found(&a, &b, None, Format::F32, |i, j, _| {
            sum(K, |k| x[[i, k]] * value(k, b.codes()[j * K + k]) * f64::from(b.scale_inv()[j * 3 + k / 32]))
        })
    }

    #[test]
    fn a_table_of_some_lanes_is_solved() {
        let other = |c: u8| f64::from(c ^ (c >> 1));
        let got = of(|k, c| if k % 8 == 6 { other(c) } else { f64::from(c) });
        assert_eq!(got.0, "bits_reinterpreted:b.lane_table", "{}", got.1);
        assert!(got.1.contains("codes k mod 8 = 6 are decoded by another table: 0x02 as 3 instead of 2"), "{}", got.1);
        // Each k by a table of its own.
        let got =
            of(|k, c| if k % 8 == 6 { f64::from(c) + (4.0 * noise(k * 16 + usize::from(c))).floor() } else { f64::from(c) });
        assert!(!got.0.contains("lane_table"), "{got:?}");
    }
}
