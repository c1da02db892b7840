//! One scale a line that a kernel looks up again for every block of K, as if there were groups: each block has its own number, and one of them the right
//! one.
//!
//! ```text
//! out[i, j] = Σ_b s(j, b) · Σ_{k in block b} codes            s(j, b): that of line j + b·d of those stored; else solved, a number for each line and block
//! ```

use super::linear::Normal;
use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::{self, Which};
use crate::job::Operand;
use crate::parallel;
use std::sync::Arc;

/// The longest first: shorter ones say the same with more numbers.
const BLOCKS: [usize; 5] = [512, 256, 128, 64, 32];
/// Blocks at most; equations for each unknown; multiply-adds.
const MOST: usize = 32;
const EQUATIONS: usize = 3;
const WORK: usize = 1 << 28;
/// Lines that refuse a length before all are solved.
const FIRST: usize = 3;
/// Equations beyond the unknowns of all lines, where each has hardly more than its own.
const SPARE: usize = 48;
/// How far a gain of 1 may be off; what a dequantized value that is rounded to 16 bits errs by.
const ONE: f64 = 0.02;
const ROUNDED: f64 = 1.0 / 2048.0;

/// Of both operands, where a scale goes with all of K.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    s.sides().iter().copied().flat_map(|side| of(s, side)).collect()
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    if g.q.is_none() || g.grid.1 != 1 || g.grid.0 < 2 || g.tile.0 != 1 || g.zero.is_some() {
        return Vec::new();
    }
    let stored = stepped(s, side);
    let lengths = || BLOCKS.into_iter().filter(|b| (2..=MOST).contains(&s.k.div_ceil(*b)));
    let found = lengths().find_map(|b| solved(s, side, b)).or_else(|| lengths().find_map(|b| thin(s, side, b)));
    stored.into_iter().chain(found).collect()
}

/// Stored scales that are stepped through with K.
fn stepped(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let steps: Arc<Vec<f64>> = Arc::new((0..g.rows).map(|r| g.step(r, 0)).collect());
    let n = g.rows;
    let mut all = Vec::new();
    for block in BLOCKS.into_iter().filter(|b| *b < s.k) {
        for (d, ends) in
            [1usize, 2, 4, 8, 16, 32, 64, 128].into_iter().filter(|d| *d < n).flat_map(|d| [(d, 0), (d, 1), (d, 2)])
        {
            let steps = steps.clone();
            let how = ["wrapped", "the last behind the end", "0 behind the end"][ends];
            let words = format!(
                "the one scale of each row of {name} is looked up again for every {block} of K, {d} further on each time: that of row r + {d}·(k / {block}), \
                 {how}"
            );
            let mut t = Theory::new(Class::ScaleIndex, name, format!("{name}.k_blocks"), words)
                .bits(5.0 + cost(block) + cost(d) + 0.5 * ends as f64);
            t.side(side).scaled(
                block,
                Arc::new(move |i, k| match (i + k / block * d, ends) {
                    (at, 0) => steps[at % n],
                    (at, 1) => steps[at.min(n - 1)],
                    (at, _) => steps.get(at).copied().unwrap_or(0.0),
                }),
            );
            all.push(t);
        }
    }
    all
}

/// A number for every line and block that nobody stored.
fn solved(s: &System, side: Which, block: usize) -> Option<Theory> {
    let (g, other) = (s.given(side), s.given(side.other()));
    let n = s.k.div_ceil(block);
    let most = EQUATIONS * n + 16;
    (other.rows >= 2 * n + 4 && g.rows * most * (s.k + n * n) <= WORK).then_some(())?;
    let mut few: Vec<usize> = (0..g.rows).collect();
    spread(&mut few, FIRST);
    let first: Vec<Vec<f64>> = few.iter().map(|x| line(s, side, *x, block, most)).collect::<Option<_>>()?;
    // The block that is right in all of them, and others that are not.
    let is_one = |v: &[f64], b: usize| (v[b] - 1.0).abs() <= ONE;
    let right = (0..n).find(|b| first.iter().all(|v| is_one(v, *b)))?;
    first.iter().all(|v| (0..n).any(|b| !is_one(v, b))).then_some(())?;
    let all: Vec<Vec<f64>> = parallel::every(g.rows, |x| line(s, side, x, block, most).filter(|v| is_one(v, right)))?;
    named(s, side, block, right, &all)
}

/// The same of a few rows of the other operand, hardly more than a line has blocks: with the block that is right as given, all lines together tell.
fn thin(s: &System, side: Which, block: usize) -> Option<Theory> {
    let (g, other) = (s.given(side), s.given(side.other()));
    let n = s.k.div_ceil(block);
    let enough = n > 2 && other.rows > n && other.rows < 2 * n + 4;
    (enough && g.rows * (other.rows + 1 - n) >= SPARE && g.rows * other.rows * (s.k + n * n) <= WORK).then_some(())?;
    let mut few: Vec<usize> = (0..g.rows).collect();
    spread(&mut few, 2 * FIRST);
    let gains = |x: usize, right: usize| {
        let v = beside(equations(s, side, x, block, other.rows), right, rounding(s, side))?;
        v.iter().all(|v| *v >= 0.0).then_some(v)
    };
    let right = (0..n).find(|right| few.iter().all(|x| gains(*x, *right).is_some()))?;
    let all: Vec<Vec<f64>> = parallel::every(g.rows, |x| gains(x, right))?;
    named(s, side, block, right, &all)
}

fn named(s: &System, side: Which, block: usize, right: usize, all: &[Vec<f64>]) -> Option<Theory> {
    let (g, name) = (s.given(side), side.name());
    let n = s.k.div_ceil(block);
    let others = || all.iter().flat_map(|v| (0..n).filter(|b| *b != right).map(|b| v[b]));
    let (low, high) = others().fold((f64::INFINITY, 0.0f64), |m, x| (m.0.min(x), m.1.max(x)));
    // One number for all, or a sign, is another fault.
    (low >= 0.0 && high > 1.2 * low).then_some(())?;
    let words = format!(
        "the one scale of each row of {name} is looked up again for every {block} of K: right for k = {} … {}, and for the others numbers that are stored \
         nowhere, {low:.2} … {high:.2} of the right ones: other memory, as at the offset of a group where there is only one",
        right * block,
        ((right + 1) * block).min(s.k) - 1
    );
    let mut t = Theory::new(Class::ScaleIndex, name, format!("{name}.k_blocks"), words).bits(40.0 + cost(block));
    (t.fitted, t.freedom) = (true, g.rows * (n - 1));
    // Solved numbers err as what was written is rounded.
    t.slack = ROUNDED;
    let steps: Vec<f64> = (0..g.rows).map(|r| g.step(r, 0)).collect();
    let all = all.to_vec();
    t.side(side).scaled(block, Arc::new(move |i, k| if k / block == right { steps[i] } else { steps[i] * all[i][k / block] }));
    Some(t)
}

/// One element.
struct Equation {
    /// Σ of the right products of each block, and of their squares.
    x: Vec<f64>,
    squares: Vec<f64>,
    /// What was written, and half the width of what it may have been.
    y: f64,
    half: f64,
}

fn equations(s: &System, side: Which, line: usize, block: usize, most: usize) -> Vec<Equation> {
    let (g, other) = (s.given(side), s.given(side.other()));
    let n = s.k.div_ceil(block);
    let mut places: Vec<usize> = (0..other.rows).collect();
    spread(&mut places, most);
    let own = &g.values[line * s.k..(line + 1) * s.k];
    let mut rows = Vec::new();
    for y in places {
        let (i, j) = if side == Which::A { (line, y) } else { (y, line) };
        let (mut x, mut squares, mut size) = (vec![0.0; n], vec![0.0; n], 0.0);
        for (k, (u, v)) in own.iter().zip(&other.values[y * s.k..(y + 1) * s.k]).enumerate() {
            let p = u * v;
            x[k / block] += p;
            squares[k / block] += p * p;
            size += p.abs();
        }
        if let Some((written, half)) = s.written(i, j, size) {
            rows.push(Equation { x, squares, y: written, half });
        }
    }
    rows
}

/// What a kernel may err by that rounds what it dequantizes to the type of the other operand, of one.
fn rounding(s: &System, side: Which) -> f64 {
    let operand = edit::operand(s.scene.evidence.job, side.other());
    let bf16 = operand.is_some_and(|o| matches!(o.given(), Operand::High(x) if x.dtype() == Format::Bf16));
    if bf16 { 1.0 / 512.0 } else { ROUNDED }
}

/// The gains of these equations' blocks. `None`: they contradict each other.
fn gains_of(rows: &[Equation], rounding: f64) -> Option<Vec<f64>> {
    let mut system = Normal::new(rows.first()?.x.len());
    let half = |e: &Equation, gains: &dyn Fn(usize) -> f64| {
        let squares: f64 = e.squares.iter().enumerate().map(|(b, x)| x * gains(b).powi(2)).sum();
        e.half + rounding * squares.sqrt()
    };
    rows.iter().for_each(|e| system.add(&e.x, e.y, 1.0 / half(e, &|_| 1.0).powi(2)));
    let v = system.solve()?;
    let fits = |e: &Equation| {
        let sum: f64 = e.x.iter().zip(&v).map(|(x, v)| x * v).sum();
        (sum - e.y).abs() <= 2.0 * half(e, &|b| v[b])
    };
    rows.iter().all(fits).then_some(v)
}

/// The gains of one line's blocks. `None`: too few equations, or they contradict each other.
fn line(s: &System, side: Which, line: usize, block: usize, most: usize) -> Option<Vec<f64>> {
    let (rows, n) = (equations(s, side, line, block, most), s.k.div_ceil(block));
    if rows.len() < 2 * n { None } else { gains_of(&rows, rounding(s, side)) }
}

/// The same where the gain of one block is 1, with more equations than unknowns.
fn beside(rows: Vec<Equation>, right: usize, rounding: f64) -> Option<Vec<f64>> {
    (rows.len() >= rows.first()?.x.len()).then_some(())?;
    let less = |mut e: Equation| {
        // What the right block rounds to is known no better.
        e.half += rounding * e.squares.remove(right).sqrt();
        e.y -= e.x.remove(right);
        e
    };
    let mut v = gains_of(&rows.into_iter().map(less).collect::<Vec<_>>(), rounding)?;
    v.insert(right, 1.0);
    // What is 0 comes out as a little less.
    v.iter_mut().filter(|v| (-ONE..0.0).contains(*v)).for_each(|v| *v = 0.0);
    Some(v)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, noise, sum, wide};

    #[test]
    fn scales_that_are_looked_up_again_for_blocks_of_k_are_told() {
        let (m, n, k_all) = (48, 40, 256);
        let (a, b) = (wide(m, k_all), codes(Format::Int8, n, k_all, k_all, false, 107));
        let x = a.to_f64();
        let of = |scale: &dyn Fn(usize, usize) -> f64| {
            found(&a, &b, None, Format::Bf16, |i, j, _| {
                sum(k_all, |k| x[[i, k]] * f64::from(b.codes()[j * k_all + k] as i8) * scale(j, k / 64))
            })
        };
        let stored = |j: usize| f64::from(b.scale_inv()[j]);
        let got = of(&|j, block| stored((j + block) % n));
        assert_eq!(got.0, "scale_index:b.k_blocks", "{}", got.1);
        assert!(got.1.contains("for every 64 of K, 1 further on each time"), "{}", got.1);
        let got = of(&|j, block| if block == 0 { stored(j) } else { 0.02 * (1.0 + noise(900 + 7 * j + block)) });
        assert_eq!(got.0, "scale_index:b.k_blocks", "{}", got.1);
        assert!(got.1.contains("right for k = 0 … 63, and for the others numbers that are stored nowhere"), "{}", got.1);
    }

    /// Six rows for four blocks: no line says much, all of them do.
    #[test]
    fn a_few_rows_tell_together() {
        let (m, n, k_all) = (6, 64, 256);
        let (a, b) = (wide(m, k_all), codes(Format::Int8, n, k_all, k_all, false, 109));
        let x = a.to_f64();
        let of = |gain: &dyn Fn(usize, usize, usize) -> f64| {
            found(&a, &b, None, Format::Bf16, |i, j, _| {
                let code = |k: usize| f64::from(b.codes()[j * k_all + k] as i8) * f64::from(b.scale_inv()[j]);
                sum(k_all, |k| x[[i, k]] * code(k) * gain(i, j, k / 64))
            })
        };
        let got = of(&|_, j, block| if block == 1 { 1.0 } else { 0.5 + 2.0 * noise(900 + 7 * j + block) });
        assert_eq!(got.0, "scale_index:b.k_blocks", "{}", got.1);
        assert!(got.1.contains("for every 64 of K: right for k = 64 … 127, and for the others numbers"), "{}", got.1);
        // Numbers of each element are those of no scale.
        let got = of(&|i, j, block| if block == 1 { 1.0 } else { 0.5 + 2.0 * noise(77 * i + 7 * j + block) });
        assert!(!got.0.contains("k_blocks"), "{got:?}");
    }
}
