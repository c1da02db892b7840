//! K summed a second time, further on in memory: splits of K that are laid out for more than there is, and run on into the rows behind.
//!
//! ```text
//! out[i, j] = Σ_k a(i, k)·b(j, k) + Σ_k a(i + d, k)·code(j + p, k)·scale(j + q, k)       nothing behind the last row; p and q differ in shuffled layouts
//! ```

use super::given::Given;
use super::maps::cost;
use super::system::{System, Theory};
use super::theory::last_kept;
use crate::fault::Class;
use crate::parallel;
use std::sync::Arc;

/// Rows further on: those of blocks of a shuffled layout.
const FAR: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Wrong elements that have to agree, at least and at most.
const LEAST: usize = 8;
const LOOKS: usize = 24;
/// Multiply-adds of all ways for one element: most are refused by the first.
const WORK: usize = 1 << 27;

/// One operand further on: rows of codes, and of scales.
type Step = (usize, usize);

/// The first distances that make the wrong elements.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let looks = s.wrong_probes(LOOKS);
    if looks.len() < LEAST {
        return Vec::new();
    }
    // The same codes by the same scales are K twice, which has its own name.
    let (a, b) = (steps(&s.a), steps(&s.b));
    let ways: Vec<(Step, Step)> =
        a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b))).filter(|way| *way != ((0, 0), (0, 0))).collect();
    if ways.len().saturating_mul(s.k) > WORK {
        return Vec::new();
    }
    let read = Arc::new(Read { a: Rows::of(&s.a), b: Rows::of(&s.b) });
    let makes = |(a, b): (Step, Step), (i, j): (usize, usize)| {
        let at = i * s.cols + j;
        let more = read.more(a, b, i, j);
        more.is_some_and(|(sum, size)| s.may(i, j, s.ideal[at] - s.bias.at(i, j) + sum, s.magnitude(at) + size))
    };
    parallel::find(&ways, |way| looks.iter().all(|p| makes(*way, *p)).then(|| theory(s, &read, *way))).into_iter().collect()
}

fn steps(g: &Given) -> Vec<Step> {
    let far = || std::iter::once(0).chain(FAR.into_iter().filter(|d| *d < g.rows));
    // Values take their scales along.
    let scaled = g.q.is_some() && g.zero.is_none() && g.tile.0 == 1;
    let mut all: Vec<Step> = far().map(|d| (d, d)).collect();
    if scaled {
        all.extend(far().flat_map(|p| far().filter(move |q| *q != p).map(move |q| (p, q))));
    }
    all
}

/// The values of an operand, and the scale of every row and block.
struct Rows {
    values: Arc<Vec<f64>>,
    steps: Vec<f64>,
    blocks: usize,
    every: usize,
    rows: usize,
    k: usize,
}

impl Rows {
    fn of(g: &Given) -> Self {
        let (blocks, every) = (g.grid.1, g.tile.1);
        // Only scales of single rows are read without their values.
        let n = if g.q.is_some() && g.tile.0 == 1 { g.rows * blocks } else { 0 };
        let steps = (0..n).map(|x| g.step(x / blocks, x % blocks * every)).collect();
        Self { values: g.values.clone(), steps, blocks, every, rows: g.rows, k: g.k }
    }

    fn row(&self, x: usize) -> &[f64] {
        &self.values[x * self.k..(x + 1) * self.k]
    }

    /// What the codes of this block `d.0` rows on are multiplied by, over their own scale.
    fn by(&self, x: usize, d: Step, k: usize) -> f64 {
        let step = |row: usize| self.steps[row * self.blocks + k / self.every];
        if d.0 == d.1 { 1.0 } else { step(x + d.1) / step(x + d.0) }
    }
}

struct Read {
    a: Rows,
    b: Rows,
}

impl Read {
    /// What is summed besides, and its magnitude. `None`: nothing lies there.
    fn more(&self, a: Step, b: Step, i: usize, j: usize) -> Option<(f64, f64)> {
        let inside = |g: &Rows, x: usize, d: Step| x + d.0.max(d.1) < g.rows;
        (inside(&self.a, i, a) && inside(&self.b, j, b)).then_some(())?;
        let (x, y) = (self.a.row(i + a.0), self.b.row(j + b.0));
        let (mut sum, mut size, mut from) = (0.0, 0.0, 0);
        // Both scales stay the same up to the next end of a block.
        while from < self.a.k {
            let to = (from / self.a.every + 1) * self.a.every;
            let to = to.min((from / self.b.every + 1) * self.b.every).min(self.a.k);
            let by = self.a.by(i, a, from) * self.b.by(j, b, from);
            let products = x[from..to].iter().zip(&y[from..to]);
            let (part, most) = products.fold((0.0, 0.0), |(s, m), (x, y)| (s + x * y, m + (x * y).abs()));
            (sum, size, from) = (sum + part * by, size + most * by.abs(), to);
        }
        Some((sum, size))
    }
}

fn theory(s: &System, read: &Arc<Read>, (a, b): (Step, Step)) -> Theory {
    let one = |name: &str, d: Step| match d {
        (0, 0) => format!("of the same row of {name}"),
        (p, q) if p == q => format!("of {name} {p} rows on"),
        (p, q) => format!("of {name} codes {p} rows on by scales {q} rows on"),
    };
    let words = format!(
        "K is summed a second time, further on in memory: {} and {}, nothing behind the last row (splits of K laid out for twice of it, or more)",
        one("a", a),
        one("b", b)
    );
    let bits = |d: Step| cost(d.0) + if d.0 == d.1 { 0.0 } else { 1.0 + cost(d.1) };
    let mut t = Theory::new(Class::Addressing, "out", "k.ran_on", words).bits(6.0 + bits(a) + bits(b));
    let (read, bias) = (read.clone(), s.bias.clone());
    let more = last_kept(move |i, j| {
        let (sum, size) = read.more(a, b, i, j).unwrap_or((0.0, 0.0));
        let right: f64 = read.a.row(i).iter().zip(read.b.row(j)).map(|(a, b)| (a * b).abs()).sum();
        (sum, right + size)
    });
    let sized = more.clone();
    t.size = Some(Arc::new(move |i, j| sized(i, j).1));
    t.finish = Some(Arc::new(move |i, j, v| v + more(i, j).0 + bias.at(i, j)));
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn splits_that_run_on_into_shuffled_blocks_are_told() {
        const K: usize = 64;
        let (a, b) = (wide(M, K), codes(Format::E4m3, N, K, 16, false, 59));
        let (x, y) = (a.to_f64(), b.dequantize());
        let scale = |j: usize, k: usize| f64::from(b.scale_inv()[j * 4 + k / 16]);
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            let own = sum(K, |k| x[[i, k]] * y[[j, k]]);
            let on = |k: usize| x[[i + 1, k]] * y[[j + 8, k]] / scale(j + 8, k) * scale(j + 16, k);
            own + if i + 1 < M && j + 16 < N { sum(K, on) } else { 0.0 }
        });
        assert_eq!(got.0, "addressing:k.ran_on", "{}", got.1);
        assert!(got.1.contains("of a 1 rows on and of b codes 8 rows on by scales 16 rows on"), "{}", got.1);
    }
}
