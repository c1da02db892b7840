//! Another fault of the bias beside a fault of the sums that has to be solved: a bias that is lost, added more than once, or met by the wrong weights.
//! What all elements have of each bias says which: then it is taken for right, and the other fault is solved as the only one.
//!
//! ```text
//! out[i, j] = X(i, j) + bias'(i, j)          X: sums with any fault; bias': 0, n times the bias, without its weight, with it twice, by a scale of the row
//! t = Σ (out − bias)·d / Σ d²,  d = bias' − bias          1 where it is bias', 0 where it is the bias; X leaves chance
//! ```

use super::given::Given;
use super::maps::cost;
use super::segment::spread_of;
use super::split::best;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::op::Biases;
use crate::order::Order as _;
use std::borrow::Cow;
use std::sync::Arc;

/// Elements that a bias is told by.
const LOOKS: usize = 1 << 16;
/// Standard deviations that t may be off 1, and has to be off 0; how well it has to be known.
const CHANCE: f64 = 3.5;
const CLEAR: f64 = 6.0;
const KNOWN: f64 = 0.15;
/// Other biases that are tried.
const TRIED: usize = 2;
/// Parts that each add the bias.
const TIMES: [usize; 8] = [2, 3, 4, 5, 6, 7, 8, 16];

/// A bias as a kernel may have added it.
struct Law {
    class: Class,
    variant: &'static str,
    words: String,
    bits: f64,
    bias: Biases,
}

fn laws(s: &System) -> Vec<Law> {
    let mut all = Vec::new();
    let mut add = |class: Class, variant: &'static str, words: String, bits: f64, bias: Biases| {
        all.push(Law { class, variant, words, bits, bias });
    };
    let b = &s.bias;
    add(Class::SilentSkip, "out.bias", "the bias is not added".into(), 2.0, b.map(|_| 0.0));
    for n in TIMES {
        let words = format!("the bias is added {n} times");
        add(Class::SilentSkip, "out.bias_times", words, 3.0 + cost(n), b.map(move |x| n as f64 * x));
    }
    add(Class::SilentSkip, "out.bias_negated", "the bias is subtracted".into(), 4.0, b.map(|x| -x));
    if b.is_weighted() {
        let words = "the bias is added behind row_weights, which multiply the sum alone".into();
        add(Class::RoundOrder, "out.bias_unweighted", words, 2.0, b.unweighted());
        let weights: Vec<f64> = (0..s.rows).map(|i| b.weight(i)).collect();
        add(
            Class::ScaleDoubledInverted,
            "out.bias_weighted",
            "row_weights multiply the bias twice".into(),
            4.0,
            b.times(&weights),
        );
    }
    let one = |g: &Given| g.q.is_some() && g.grid.1 == 1 && g.grid.0 > 1 && g.rows == s.rows;
    if one(&s.a) {
        let steps: Vec<f64> = (0..s.rows).map(|i| s.lines(i, 0).map_or(0.0, |x| s.a.step(x.0, 0))).collect();
        let words = "the bias is multiplied by the scale of a".into();
        add(Class::ScaleDoubledInverted, "out.bias_scaled", words, 3.0, b.times(&steps));
    }
    all
}

/// Both faults.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || !s.bias.any() {
        return Vec::new();
    }
    let places: Vec<(usize, usize)> = spread_of(s.rows * s.cols, LOOKS)
        .into_iter()
        .map(|at| (at / s.cols, at % s.cols))
        .filter(|(i, _)| s.part[*i].is_some())
        .collect();
    let mut told: Vec<(f64, Law)> = laws(s).into_iter().filter_map(|law| Some((off(s, &places, &law.bias)?, law))).collect();
    told.order_by(|x, y| x.0.total_cmp(&y.0));
    told.truncate(TRIED);
    told.into_iter().find_map(|(_, law)| solved(s, &law)).into_iter().collect()
}

/// How far t is off 1, in standard deviations of what the columns leave of it. `None`: it is not 1, or too little known.
fn off(s: &System, places: &[(usize, usize)], bias: &Biases) -> Option<f64> {
    let mut columns = vec![(0.0, 0.0); s.cols];
    for (i, j) in places {
        let at = i * s.cols + j;
        let d = bias.at(*i, *j) - s.bias.at(*i, *j);
        let x = s.actual[at] - s.bias.at(*i, *j);
        if x.is_finite() {
            columns[*j] = (columns[*j].0 + x * d, columns[*j].1 + d * d);
        }
    }
    let all: f64 = columns.iter().map(|c| c.1).sum();
    (all > 0.0).then_some(())?;
    let t = columns.iter().map(|c| c.0).sum::<f64>() / all;
    // Sums of a column may have a mean of their own.
    let error = columns.iter().map(|c| (c.0 - t * c.1).powi(2)).sum::<f64>().sqrt() / all;
    let z = (t - 1.0).abs() / error.max(1e-300);
    // NaN fails.
    (error <= KNOWN && z <= CHANCE && t.abs() >= CLEAR * error).then_some(z)
}

/// The other fault, where the bias is added so.
fn solved(s: &System, law: &Law) -> Option<Theory> {
    let mut after = s.clone();
    after.memo = None;
    let n = s.rows * s.cols;
    let more = |at: usize| law.bias.at(at / s.cols, at % s.cols) - s.bias.at(at / s.cols, at % s.cols);
    after.ideal = Cow::Owned((0..n).map(|at| s.ideal[at] + more(at)).collect());
    after.bias = law.bias.clone();
    let is_wrong = after.wrong();
    let after = after.of_wrong(is_wrong)?;
    let second = best(&after, &super::theories(&after))?;
    let with = |t: Theory| -> Theory {
        let bias = law.bias.clone();
        let finish = t.finish.clone().unwrap_or_else(|| Arc::new(move |i, j, v| v + bias.at(i, j)));
        // What it sums was told where the bias is another.
        Theory { id: 0, finish: Some(finish), ..t }
    };
    let patch = second.patch.as_ref().map(|p| Arc::new((p.0.clone(), with(p.1.clone()))));
    let mut t = with(Theory { patch, ..second.clone() });
    if let Some(region) = t.region.take() {
        // Elsewhere the bias alone is another.
        let base = with(Theory::new(second.class, second.operand, second.variant.clone(), second.detail.clone()));
        t.patch.is_none().then_some(())?;
        t = Theory { patch: Some(Arc::new((region, t))), freedom: second.freedom, fitted: second.fitted, ..base };
    }
    t.variant = format!("{} + {}:{}", second.variant, law.class.name(), law.variant);
    t.detail = format!("{}; and {}", second.detail, law.words);
    t.bits = second.bits + law.bits + 4.0;
    s.explains(&t).then_some(t)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, grouped_biased_found, noise, sum, wide};

    const N: usize = 96;
    const K: usize = 64;

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|j| 120.0 * (noise(j + 900) as f32 - 0.5)).collect()
    }

    /// Sums of each row are those of another one by no rule, and the bias of every part of K is there.
    #[test]
    fn a_bias_of_each_part_beside_a_fault_that_is_solved_is_told() {
        let offs = [9usize, 20, 47];
        let (a, b) = (wide(47, K), codes(Format::E4m3, 3 * N, K, K, false, 43));
        let (x, y, bias) = (a.to_f64(), b.dequantize(), numbers(3 * N));
        let home = |i: usize| offs.iter().position(|end| i < *end).unwrap();
        let of = |times: &dyn Fn(usize, usize) -> f64| {
            grouped_biased_found(&a, &b, &offs, bias.clone(), Format::Bf16, |i, j| {
                let row = [1, 0, 2][j / 32] * N + j;
                sum(K, |k| x[[i, k]] * y[[row, k]]) + times(i, j) * f64::from(bias[home(i) * N + j])
            })
        };
        let got = of(&|_, _| 3.0);
        // The tiles by their experts, or the rows that these are.
        assert!(
            got.0.starts_with("group_boundary:") && got.0.ends_with(" + silent_skip:out.bias_times"),
            "{} {}",
            got.0,
            got.1
        );
        let rows = ["columns 0 … 31 those of expert 1", "0 ← 96, 1 ← 97"];
        assert!(rows.iter().any(|words| got.1.contains(words)), "{}", got.1);
        assert!(got.1.contains("and the bias is added 3 times"), "{}", got.1);
        // Of each column another multiple.
        let got = of(&|_, j| (j % 5) as f64);
        assert!(!got.0.contains("bias_times"), "{} {}", got.0, got.1);
    }

    #[test]
    fn a_bias_that_is_right_has_no_law() {
        let (a, b) = (wide(40, K), codes(Format::Int8, N, K, K, false, 44));
        let (x, y, bias) = (a.to_f64(), b.dequantize(), numbers(N));
        // Numbers of nobody's beside it.
        let got = found(&a, &b, Some(bias.clone()), Format::F16, |i, j, _| {
            sum(K, |k| x[[i, (k * (2 * (i + j) + 3)) % K]] * y[[j, k]]) + f64::from(bias[j])
        });
        assert!(!got.0.contains("out.bias"), "{} {}", got.0, got.1);
    }
}
