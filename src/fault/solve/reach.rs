//! Theories of intermediates that leave the range of f16: where the result is Inf or NaN exactly where one of them does, and the rest is what
//! f16 left of it.
//!
//! ```text
//! P(g)  = f16 sum of the products of a group of K, scaled by none, one or both of the scales, rounded after every few of them
//! out   = join over g of P(g) · what is left of the scales             in f32 or f16, each step by itself
//! ```

use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::format::grid::native;
use crate::order::Order as _;
use crate::parallel;
use std::sync::Arc;

/// Elements that have to be finite just where they are, and multiply-adds of all theories.
const LOOKS: usize = 192;
const WORK: usize = 1 << 29;
/// Products between two roundings, inside a group.
const CHAIN: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// Theories that are kept, and the f16 steps that a result may be off by sums that fall the other way.
const KEPT: usize = 3;
const STEPS: f64 = 4.0;

/// What becomes of a group's sum.
#[derive(Clone, Copy, PartialEq)]
enum Join {
    /// Scaled and added in f32.
    Wide,
    /// Added in f16, scaled behind the sum.
    Before,
    /// Scaled, and added in f16.
    After,
    /// Each scale multiplied in f16, b's or a's first, and added in f16 or f32.
    Steps { b_first: bool, narrow: bool },
    /// The first scale multiplied in f16, the rest in f32.
    First { b: bool },
}

const JOINS: [Join; 9] = [
    Join::Wide,
    Join::Before,
    Join::After,
    Join::First { b: true },
    Join::First { b: false },
    Join::Steps { b_first: true, narrow: true },
    Join::Steps { b_first: true, narrow: false },
    Join::Steps { b_first: false, narrow: true },
    Join::Steps { b_first: false, narrow: false },
];

fn half(x: f64) -> f64 {
    native(Format::F16).nearest(x)
}

/// One way to compute: which scales products have already, groups of K, products between roundings, and the join.
#[derive(Clone, Copy, PartialEq)]
struct Way {
    pre: (bool, bool),
    group: usize,
    chain: usize,
    join: Join,
}

/// Codes and scales of both operands.
struct Numbers {
    a: Vec<f64>,
    b: Vec<f64>,
    sa: Vec<f64>,
    sb: Vec<f64>,
    k: usize,
}

impl Numbers {
    fn of(s: &System) -> Self {
        let one = |g: &super::given::Given| -> (Vec<f64>, Vec<f64>) {
            let step: Vec<f64> = (0..g.rows * g.k).map(|at| g.step(at / g.k, at % g.k)).collect();
            let raw = g.values.iter().zip(&step).map(|(v, s)| if *s == 0.0 { 0.0 } else { v / s }).collect();
            (raw, step)
        };
        let ((a, sa), (b, sb)) = (one(&s.a), one(&s.b));
        Self { a, b, sa, sb, k: s.k }
    }

    /// What comes of rows `i` of a and `j` of b, and the largest number that f16 held, as much as it is in the result.
    fn result(&self, w: &Way, i: usize, j: usize) -> (f64, f64) {
        let (i, j) = (i * self.k, j * self.k);
        let (mut acc, mut most) = (0.0, 0.0f64);
        for from in (0..self.k).step_by(w.group) {
            let to = (from + w.group).min(self.k);
            let (sa, sb) = (self.sa[i + from], self.sb[j + from]);
            let (ra, rb) = (if w.pre.0 { 1.0 } else { sa }, if w.pre.1 { 1.0 } else { sb });
            let mut p = 0.0;
            for at in (from..to).step_by(w.chain) {
                let one = |k: usize| {
                    let x = self.a[i + k] * if w.pre.0 { self.sa[i + k] } else { 1.0 };
                    x * self.b[j + k] * if w.pre.1 { self.sb[j + k] } else { 1.0 }
                };
                p = half(p + (at..(at + w.chain).min(to)).map(one).sum::<f64>());
                most = most.max((p * ra * rb).abs());
            }
            let (first, second) =
                if matches!(w.join, Join::First { b: true } | Join::Steps { b_first: true, .. }) { (rb, ra) } else { (ra, rb) };
            acc = match w.join {
                Join::Wide => acc + p * ra * rb,
                Join::Before => half(acc + p),
                Join::After => half(acc + p * ra * rb),
                Join::First { .. } => acc + half(p * half(first)) * second,
                Join::Steps { narrow, .. } => {
                    let x = half(half(p * half(first)) * half(second));
                    if narrow { half(acc + x) } else { acc + x }
                }
            };
            most = most.max(if w.join == Join::Before { acc * ra * rb } else { acc }.abs());
        }
        if w.join == Join::Before {
            let (sa, sb) = (self.sa[i], self.sb[j]);
            acc *= if w.pre.0 { 1.0 } else { sa } * if w.pre.1 { 1.0 } else { sb };
        }
        (acc, most)
    }
}

/// The ways that the operands allow.
fn ways(s: &System) -> Vec<Way> {
    let mut all = Vec::new();
    // An operand without scales has them already.
    let none = |g: &super::given::Given| g.q.is_none();
    let sides = |g| if none(g) { vec![true] } else { vec![false, true] };
    for pa in sides(&s.a) {
        for pb in sides(&s.b) {
            let tile = |g: &super::given::Given, pre: bool| if pre || g.grid.1 == 1 { s.k } else { g.tile.1 };
            let unit = tile(&s.a, pa).min(tile(&s.b, pb));
            if !(unit >= s.k || tile(&s.a, pa).is_multiple_of(unit) && tile(&s.b, pb).is_multiple_of(unit)) {
                continue;
            }
            let mut groups = vec![unit];
            if unit == s.k {
                groups.extend([2usize, 4, 8].into_iter().filter(|n| s.k.is_multiple_of(*n)).map(|n| s.k / n));
                groups.extend([32usize, 64, 128, 256, 512].into_iter().filter(|g| *g < s.k));
            }
            groups.sort_unstable();
            groups.dedup();
            for group in groups {
                for chain in std::iter::once(group).chain(CHAIN.into_iter().filter(|c| *c < group)) {
                    for join in JOINS {
                        let left = (!pa, !pb);
                        let makes_sense = match join {
                            Join::Wide => true,
                            Join::Before => unit == s.k && group < s.k,
                            Join::After => group < s.k,
                            Join::First { b } => {
                                if b {
                                    left.1
                                } else {
                                    left.0
                                }
                            }
                            Join::Steps { b_first: true, .. } => (group < s.k || left.0) && left.1,
                            Join::Steps { .. } => left.0 && left.1,
                        };
                        // A narrow join says it all where the chain is one with it.
                        if makes_sense {
                            all.push(Way { pre: (pa, pb), group, chain, join });
                        }
                    }
                }
            }
        }
    }
    all
}

fn words(s: &System, w: &Way) -> String {
    let of = match w.pre {
        (true, true) => "the scaled products",
        (true, false) if s.a.q.is_some() => "products of a's values and b's codes",
        (false, true) if s.b.q.is_some() => "products of a's codes and b's values",
        (false, false) => "products of codes",
        _ => "products without scales",
    };
    let group = if w.group == s.k { "K".to_string() } else { format!("every {} of K", w.group) };
    let chain = if w.chain == w.group { String::new() } else { format!(", after every {}", w.chain) };
    let how = match w.join {
        Join::Wide => "",
        Join::Before => ", and added up in f16 before scales meet them",
        Join::After => ", and added up in f16 behind their scales",
        Join::First { b: true } => ", and multiplied by the scale of b in f16",
        Join::First { b: false } => ", and multiplied by the scale of a in f16",
        Join::Steps { b_first: true, .. } => ", and multiplied by the scale of b in f16 before that of a",
        Join::Steps { .. } => ", and multiplied by the scale of a in f16 before that of b",
    };
    format!("sums of {of} over {group} are kept in f16{chain}{how}: beyond 65504 they are Inf")
}

/// The ways that are Inf or NaN where the result is and nowhere else; those of them with most of its bits.
pub fn theories(s: &System) -> Vec<Theory> {
    let lost = |at: usize| !s.actual[at].is_finite() && s.ideal[at].is_finite();
    let n = s.rows * s.cols;
    let additive = |g: &super::given::Given| matches!(g.zero, Some((_, Some(_)))) || g.deep.is_some();
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k || additive(&s.a) || additive(&s.b) {
        return Vec::new();
    }
    let mut bad: Vec<usize> = (0..n).filter(|at| lost(*at)).collect();
    if bad.len() < 3 || bad.len() == n {
        return Vec::new();
    }
    let mut fine: Vec<usize> = (0..n).filter(|at| s.actual[*at].is_finite()).collect();
    spread(&mut bad, LOOKS / 2);
    spread(&mut fine, LOOKS / 2);
    // In turns: a wrong way is refused soon.
    let mut looks: Vec<usize> = Vec::new();
    for x in 0..LOOKS / 2 {
        looks.extend(bad.get(x).into_iter().chain(fine.get(x)));
    }
    let numbers = Arc::new(Numbers::of(s));
    let mut all = ways(s);
    all.truncate(WORK / (LOOKS * s.k).max(1));
    let score = |w: &Way| -> Option<usize> {
        let mut same = 0;
        for at in &looks {
            let (i, j) = (at / s.cols, at % s.cols);
            let (v, _) = numbers.result(w, i, j);
            let y = v + s.bias.at(i, j);
            let y = if y.is_finite() { s.out.round(*at, y) } else { y };
            if y.is_finite() != s.actual[*at].is_finite() {
                return None;
            }
            same += usize::from(y == s.actual[*at]);
        }
        Some(same)
    };
    let mut found: Vec<(usize, usize, Way)> = parallel::collect(all.len(), |n| score(&all[n]))
        .into_iter()
        .zip(all)
        .enumerate()
        .filter_map(|(n, (x, w))| x.map(|x| (x, n, w)))
        .collect();
    found.order_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let best = found.first().map_or(0, |f| f.0);
    found.retain(|f| f.0 == best);
    found.truncate(KEPT);
    found.into_iter().map(|(_, n, w)| theory(s, &numbers, w, n)).collect()
}

fn theory(s: &System, numbers: &Arc<Numbers>, w: Way, nth: usize) -> Theory {
    let chain = if w.chain == w.group { 0.0 } else { cost(w.chain) };
    let bits = 8.0 + cost(w.group) + chain + 1e-3 * nth as f64;
    let mut t = Theory::new(Class::OverflowWrap, "out", "out.f16_range", words(s, &w)).bits(bits);
    let (bias, cols, right) = (s.bias.clone(), s.cols, s.ideal.to_vec());
    let of = numbers.clone();
    t.finish = Some(Arc::new(move |i, j, v| of.result(&w, i, j).0 + v - (right[i * cols + j] - bias.at(i, j)) + bias.at(i, j)));
    // A sum that lies near a tie may fall the other way.
    let (of, relative) = (numbers.clone(), s.relative);
    t.size = Some(Arc::new(move |i, j| {
        let size: f64 = (0..of.k)
            .map(|k| (of.a[i * of.k + k] * of.sa[i * of.k + k] * of.b[j * of.k + k] * of.sb[j * of.k + k]).abs())
            .sum();
        let most = of.result(&w, i, j).1;
        size + if most.is_finite() { STEPS * 0.5f64.powi(11) * most / relative.max(1e-300) } else { 0.0 }
    }));
    t
}
