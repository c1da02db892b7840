//! K summed a second time, further on in memory: splits of K that are laid out for more than there is, and run on into the rows behind.
//!
//! ```text
//! out[i, j] = Σ_k a(i, k)·b(j, k) + Σ_k a(i + d, k)·code(j + p, k)·scale(j + q, k)       nothing behind the last row; p and q differ in shuffled layouts
//! ```

use super::given::Given;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Rows further on: those of blocks of a shuffled layout.
const FAR: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Wrong elements that have to agree, at least and at most.
const LEAST: usize = 8;
const LOOKS: usize = 24;

/// One operand further on: rows of codes, and of scales.
type Step = (usize, usize);

/// The first distances that make the wrong elements.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let wrong = |(i, j): &&(usize, usize)| s.is_wrong[i * s.cols + j] && s.actual[i * s.cols + j].is_finite();
    let looks: Vec<(usize, usize)> = s.probes.iter().filter(wrong).take(LOOKS).copied().collect();
    if looks.len() < LEAST {
        return Vec::new();
    }
    let (a, b) = (steps(&s.a), steps(&s.b));
    let makes = |a: Step, b: Step, (i, j): (usize, usize)| {
        let at = i * s.cols + j;
        more(s, a, b, i, j).is_some_and(|(sum, size)| s.may(i, j, s.ideal[at] - s.bias.at(i, j) + sum, s.magnitude(at) + size))
    };
    for (a, b) in a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b))) {
        // The same codes by the same scales are K twice, which has its own name.
        if (a, b) != ((0, 0), (0, 0)) && looks.iter().all(|p| makes(a, b, *p)) {
            return vec![theory(s, a, b)];
        }
    }
    Vec::new()
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

/// What is summed besides, and its magnitude. `None`: nothing lies there.
fn more(s: &System, a: Step, b: Step, i: usize, j: usize) -> Option<(f64, f64)> {
    let inside = |g: &Given, x: usize, d: Step| x + d.0.max(d.1) < g.rows;
    (inside(&s.a, i, a) && inside(&s.b, j, b)).then_some(())?;
    let value = |g: &Given, x: usize, d: Step, k: usize| {
        let v = g.values[(x + d.0) * g.k + k];
        if d.0 == d.1 { v } else { v / g.step(x + d.0, k) * g.step(x + d.1, k) }
    };
    let (mut sum, mut size) = (0.0, 0.0);
    for k in 0..s.k {
        let p = value(&s.a, i, a, k) * value(&s.b, j, b, k);
        (sum, size) = (sum + p, size + p.abs());
    }
    Some((sum, size))
}

fn theory(s: &System, a: Step, b: Step) -> Theory {
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
    let found: Vec<(f64, f64)> =
        (0..s.rows * s.cols).map(|at| more(s, a, b, at / s.cols, at % s.cols).unwrap_or((0.0, 0.0))).collect();
    let sizes: Vec<f64> = (0..found.len()).map(|at| s.magnitude(at) + found[at].1).collect();
    let (cols, bias) = (s.cols, s.bias.clone());
    t.size = Some(Arc::new(move |i, j| sizes[i * cols + j]));
    t.finish = Some(Arc::new(move |i, j, v| v + found[i * cols + j].0 + bias.at(i, j)));
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
