//! Partial sums of another line: threads share K by lanes, and some lanes' sums in shared memory are already, or still, those of a line beside.
//!
//! ```text
//! out = Σ_{k mod p < p/2} a(i, k)·b(j, k) + Σ_{k mod p ≥ p/2} a(i, k)·b(j + d, k)          or the other half; the same of a
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// How far the other line is.
const FAR: [isize; 10] = [1, -1, 8, -8, 16, -16, 32, -32, 64, -64];

/// Of both operands.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let mut periods: Vec<usize> = (1..16).map(|n| 1 << n).filter(|p| 2 * p <= s.k).collect();
    // The halves of K.
    periods.push(s.k);
    let mut all = Vec::new();
    for side in s.sides().iter().copied() {
        let (g, name) = (s.given(side), side.name());
        for (period, upper, by) in
            periods.iter().flat_map(|p| [true, false].into_iter().flat_map(move |u| FAR.map(|by| (*p, u, by))))
        {
            if by.unsigned_abs() >= g.rows {
                continue;
            }
            let (half, which) = (period / 2, if upper { "upper" } else { "lower" });
            let of = if period == s.k { "K".to_string() } else { format!("every {period} of K") };
            let line = if by < 0 { format!("row r − {}", -by) } else { format!("row r + {by}") };
            let words = format!(
                "the partial sums of the {which} half of {of} are those of {line} of {name}: they are read before they are written, or after \
                 they were overwritten"
            );
            let bits = 6.0 + cost(period) + cost(by.unsigned_abs());
            let mut t = Theory::new(Class::Race, "out", "out.partial_sums", words).bits(bits);
            let (values, k_all, rows) = (g.values.clone(), g.k, g.rows);
            let from = move |i: usize, k: usize| {
                let row = if (k % period >= half) == upper { i.checked_add_signed(by).filter(|r| *r < rows) } else { Some(i) };
                row.map(|r| r * k_all + k)
            };
            // Sums of codes meet the scale of the line that they land in.
            if g.q.is_some() && g.grid.0 > 1 {
                let mut own = t.clone();
                own.side(side).code = Some(Arc::new(from));
                all.push(own);
            }
            t.side(side).value = Some(Arc::new(move |i, k| from(i, k).map_or(0.0, |at| values[at])));
            all.push(t);
        }
    }
    all
}
