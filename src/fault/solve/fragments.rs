//! Fragments of an operand that are those of another step of K: a load did not wait, in some places, and was always the same number of steps off.
//!
//! ```text
//! out[i, j] − right = Σ_t x(block of j, t) · Σ_{k in step t} a[i, k] · (b[j, k − n·w] − b[j, k])          x is 0 or 1
//! ```
//!
//! For every distance n the x of each block of lines are unknowns of one linear system.

use super::linear::Normal;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::sync::Arc;

/// K of a step, lines of a block, steps that are skipped.
const STEPS: [usize; 3] = [16, 32, 64];
const BLOCKS: [usize; 5] = [128, 64, 32, 16, 8];
const FAR: usize = 8;
/// Steps of K at most.
const MOST: usize = 64;
/// How far an unknown may be from 0 or 1.
const NEAR: f64 = 0.2;

/// What is asked of a block.
#[derive(Clone, Copy)]
struct Ask {
    side: Which,
    step: usize,
    /// Steps off; of codes alone, or of values.
    off: i64,
    codes: bool,
}

/// Fragments of a, or of b.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let mut asked = Vec::new();
    for side in [Which::B, Which::A] {
        let g = s.given(side);
        for step in STEPS.into_iter().filter(|w| s.k.is_multiple_of(*w) && (4..=MOST).contains(&(s.k / w))) {
            for off in (1..=FAR.min(s.k / step - 1) as i64).flat_map(|n| [n, -n]) {
                asked.push(Ask { side, step, off, codes: false });
                if g.q.is_some() && g.grid.1 > 1 {
                    asked.push(Ask { side, step, off, codes: true });
                }
            }
        }
    }
    for block in BLOCKS {
        let blocks = [Which::A, Which::B].map(|side| blocks(s, side, block));
        let of =
            |ask: &Ask| blocks[usize::from(ask.side == Which::B)].as_ref().and_then(|places| theory(s, *ask, block, places));
        let found: Vec<Theory> = parallel::flat(&asked, of);
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// Elements of a block of lines in an order that jumps over it, as many as any step needs; none of a block that is right.
type Places = Vec<(usize, usize)>;

/// The blocks of one side. `None`: there is one that is twice as tall as the operand.
fn blocks(s: &System, side: Which, block: usize) -> Option<Vec<Places>> {
    let (lines, across) = if side == Which::B { (s.cols, s.rows) } else { (s.rows, s.cols) };
    (block < 2 * lines).then_some(())?;
    let of = |x: usize| -> Places {
        let from = x * block;
        let count = (block.min(lines - from)) * across;
        let place = |n: usize| {
            let (line, o) = (from + n / across, n % across);
            if side == Which::B { (o, line) } else { (line, o) }
        };
        if !(0..count).map(place).any(|(i, j)| s.is_wrong[i * s.cols + j] && s.actual[i * s.cols + j].is_finite()) {
            return Places::new();
        }
        let finite: Places = (0..count).map(place).filter(|(i, j)| s.actual[i * s.cols + j].is_finite()).collect();
        super::segment::spread_of(finite.len(), 3 * MOST + 16).into_iter().map(|n| finite[n]).collect()
    };
    Some((0..lines.div_ceil(block)).map(of).collect())
}

/// The value that a step holds where it is another's.
fn moved(s: &System, ask: Ask, line: usize, k: usize) -> Option<f64> {
    let g = s.given(ask.side);
    let from = usize::try_from(k as i64 - ask.off * ask.step as i64).ok().filter(|x| *x < s.k)?;
    Some(match &g.q {
        Some(q) if ask.codes => g.decoded(q.codes()[line * s.k + from], line / g.tile.0 * g.grid.1 + k / g.tile.1),
        _ => g.values[line * s.k + from],
    })
}

fn theory(s: &System, ask: Ask, block: usize, blocks: &[Places]) -> Option<Theory> {
    let n = s.k / ask.step;
    (blocks.len() * n <= 4096).then_some(())?;
    let mut stale = vec![false; blocks.len() * n];
    for (x, places) in blocks.iter().enumerate().filter(|(_, places)| !places.is_empty()) {
        (places.len() >= 2 * n).then_some(())?;
        let found = solved(s, ask, n, &places[..places.len().min(3 * n + 16)])?;
        stale[x * n..(x + 1) * n].copy_from_slice(&found);
    }
    let hit = stale.iter().filter(|x| **x).count();
    (hit > 0 && 2 * hit <= stale.len()).then_some(())?;
    let name = ask.side.name();
    let some: Vec<String> =
        (0..stale.len()).filter(|x| stale[*x]).take(4).map(|x| format!("K {} of block {}", x % n * ask.step, x / n)).collect();
    let rows = if ask.side == Which::B { "columns" } else { "rows" };
    let when = if ask.off > 0 { "before" } else { "behind" };
    let words = format!(
        "{hit} of {} fragments of {name} ({} of K by {block} {rows}) are those of {} steps {when}{}: {}, …",
        stale.len(),
        ask.step,
        ask.off.abs(),
        if ask.codes { " (codes, not their scales)" } else { "" },
        some.join(", ")
    );
    let mut t = Theory::new(Class::Race, name, format!("{name}.fragments"), words)
        .bits(12.0 + 6.0 * hit as f64 + cost(ask.off.unsigned_abs() as usize));
    t.freedom = hit;
    // The lines of one group are the lines of the operand.
    let (g, k_all, step) = (s.given(ask.side).clone(), s.k, ask.step);
    let is_stale = move |line: usize, k: usize| stale[line / block * n + k / step];
    let off = ask.off * step as i64;
    let from = move |line: usize, k: usize| if is_stale(line, k) { (k as i64 - off) as usize } else { k };
    if g.q.is_some() && (ask.codes || g.grid.1 == 1) {
        t.side(ask.side).code = Some(Arc::new(move |line, k| Some(line * k_all + from(line, k))));
    } else {
        t.side(ask.side).value = Some(Arc::new(move |line, k| g.values[line * k_all + from(line, k)]));
    }
    Some(t)
}

/// Which steps of one block are another's. `None`: the elements say something else.
fn solved(s: &System, ask: Ask, n: usize, places: &[(usize, usize)]) -> Option<Vec<bool>> {
    let mut rows: Vec<(Vec<f64>, f64, f64)> = Vec::with_capacity(places.len());
    for (i, j) in places {
        let (ra, rb, _) = s.lines(*i, *j)?;
        let (own, other) = if ask.side == Which::A { (ra, rb) } else { (rb, ra) };
        let theirs = &s.given(ask.side.other()).values[other * s.k..(other + 1) * s.k];
        let mine = &s.given(ask.side).values[own * s.k..(own + 1) * s.k];
        let mut x = vec![0.0; n];
        for k in 0..s.k {
            if let Some(v) = moved(s, ask, own, k) {
                x[k / ask.step] += theirs[k] * (v - mine[k]);
            }
        }
        let at = i * s.cols + j;
        let (y, half) = s.written(*i, *j, 0.0)?;
        rows.push((x, y - (s.ideal[at] - s.bias.at(*i, *j)), half + 2.0 * s.certain(at)));
        // What a few more elements than unknowns refuse, more do.
        if rows.len() == n + 6 && places.len() > n + 6 {
            answer(&rows, n)?;
        }
    }
    answer(&rows, n)
}

fn answer(rows: &[(Vec<f64>, f64, f64)], n: usize) -> Option<Vec<bool>> {
    let mut system = Normal::new(n);
    rows.iter().for_each(|(x, y, half)| system.add(x, *y, 1.0 / (half * half)));
    let v = system.solve()?;
    let whole = |v: &f64| v.abs() < NEAR || (v - 1.0).abs() < NEAR;
    v.iter().all(whole).then_some(())?;
    let stale: Vec<bool> = v.iter().map(|v| *v > 0.5).collect();
    let fits = |(x, y, half): &(Vec<f64>, f64, f64)| {
        let sum: f64 = x.iter().zip(&stale).filter(|(_, on)| **on).map(|(x, _)| x).sum();
        (sum - y).abs() <= 2.0 * half
    };
    rows.iter().all(fits).then_some(stale)
}
