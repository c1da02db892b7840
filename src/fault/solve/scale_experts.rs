//! Rows of a grouped product that meet the weights of their own expert and the scales, or the bias, of another: which expert's, row by row, and the
//! list of groups that says so.
//!
//! ```text
//! out[i, j] = Σ_k a·codes(e(i), j) · s(e'(i), j) + bias          e' = e in a right kernel; groups of e' end at other rows
//! ```

use super::segment::{lines, spread};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::op::Biases;
use std::sync::Arc;

/// Columns that tell an expert; rows at most.
const LOOKS: usize = 8;
const ROWS: usize = 8192;

/// Of scales that go with all of K, and of biases.
pub fn theories(s: &System) -> Vec<Theory> {
    let grouped = s.parts.len() > 1 && s.parts.iter().all(|p| p.k.len() == s.k) && !s.alone && s.rows <= ROWS;
    if !grouped || s.out.is_quantized() {
        return Vec::new();
    }
    let g = &s.b;
    let scaled = g.q.is_some() && g.grid.1 == 1 && g.grid.0 > 1 && g.zero.is_none();
    let steps: Arc<Vec<f64>> = Arc::new(if scaled { (0..g.rows).map(|r| g.step(r, 0)).collect() } else { Vec::new() });
    let biased = s.bias.any() && s.bias.experts() > 1;
    let read = |of_bias: bool| Read {
        part: s.part.clone(),
        starts: s.parts.iter().map(|p| p.b).collect(),
        steps: steps.clone(),
        bias: s.bias.clone(),
        of_bias,
    };
    [(scaled, false), (biased, true)].into_iter().filter(|x| x.0).filter_map(|(_, bias)| of(s, read(bias))).collect()
}

/// What rows are made of: their own expert's sums, the scales or the bias of any.
struct Read {
    part: Vec<Option<usize>>,
    /// The first row of b of each expert.
    starts: Vec<usize>,
    steps: Arc<Vec<f64>>,
    bias: Biases,
    of_bias: bool,
}

impl Read {
    /// What an element whose right sum is `v` holds where the scales, or the bias, are those of expert `to`. `None`: a scale of 0 does not say what it
    /// would be by another.
    fn made(&self, i: usize, j: usize, to: usize, v: f64) -> Option<f64> {
        let own = self.part[i]?;
        if self.of_bias {
            return Some(v + self.bias.of_expert(to, j) * self.bias.weight(i));
        }
        if own == to {
            return Some(v + self.bias.at(i, j));
        }
        let (own, other) = (self.steps[self.starts[own] + j], self.steps[self.starts[to] + j]);
        (own != 0.0).then(|| v / own * other + self.bias.at(i, j))
    }
}

fn of(s: &System, read: Read) -> Option<Theory> {
    let bias = read.of_bias;
    let mut looks: Vec<usize> = (0..s.cols).collect();
    spread(&mut looks, LOOKS);
    let fits = |i: usize, to: usize| {
        looks.iter().all(|j| {
            let at = i * s.cols + j;
            let sum = s.ideal[at] - s.bias.at(i, *j);
            let r = s.certain(at) + sum.abs() * 2f64.powi(-22);
            let ends = [sum - r, sum, sum + r].map(|v| read.made(i, *j, to, v));
            let [Some(x), Some(v), Some(y)] = ends else { return false };
            s.holds(at, s.actual[at], (v, x.min(y), x.max(y)))
        })
    };
    let mut from: Vec<Option<usize>> = s.part.clone();
    for i in (0..s.rows).filter(|i| s.part[*i].is_some()) {
        if looks.iter().all(|j| !s.is_wrong[i * s.cols + j]) {
            continue;
        }
        // A second expert that fits says that nothing is known of either.
        let mut fit = (0..s.parts.len()).filter(|e| Some(*e) != s.part[i] && fits(i, *e));
        from[i] = Some(fit.next()?);
        fit.next().is_none().then_some(())?;
    }
    let moved: Vec<bool> = (0..s.rows).map(|i| from[i] != s.part[i]).collect();
    let n = moved.iter().filter(|m| **m).count();
    // One expert for another as a whole is told by formulas.
    let whole = |p: &super::system::Part| p.rows.clone().all(|i| from[i] == from[p.rows.start]);
    (n >= 4 && !s.parts.iter().all(whole)).then_some(())?;
    // Ascending experts are groups that end elsewhere.
    let rows: Vec<usize> = (0..s.rows).filter(|i| from[*i].is_some()).collect();
    let rises = rows.windows(2).all(|w| from[w[0]] <= from[w[1]]);
    let what = if bias { "biases" } else { "scales of b" };
    // What a row's expert, and where a group ends, takes to say.
    let (of_row, of_end) = ((s.parts.len() as f64).log2(), (rows.len() as f64).log2());
    let (rule, bits, freedom) = if rises {
        let runs: Vec<(usize, usize)> = (0..s.parts.len())
            .filter_map(|e| {
                let mut of = rows.iter().filter(|i| from[**i] == Some(e));
                let first = *of.next()?;
                Some((first, of.next_back().copied().unwrap_or(first)))
            })
            .collect();
        let some: Vec<String> = runs
            .iter()
            .take(6)
            .map(|(a, b)| format!("rows {a} … {b} take those of expert {}", from[*a].unwrap_or(0)))
            .collect();
        let n = runs.len();
        let (rule, bits, freedom) = match of_list(s, &from) {
            Some((rule, bits)) => (rule, bits, 0),
            None => ("the groups of rows end elsewhere for them".into(), of_end * n as f64, n),
        };
        (format!("{rule}: {}", some.join(", ")), bits, freedom)
    } else {
        (format!("those of rows {} are another expert's", lines(&moved)), of_row * n as f64, n)
    };
    let words = format!("the {what} are not those of the expert whose weights a row met, which is right; {rule}");
    let (class, variant) = (Class::GroupBoundary, if bias { "out.bias_rows" } else { "b.scale_rows" });
    let mut t = Theory::new(class, if bias { "out" } else { "b" }, variant, words).bits(8.0 + bits);
    t.freedom = freedom;
    t.finish = Some(Arc::new(move |i, j, v| match from[i] {
        Some(to) => read.made(i, j, to, v).unwrap_or(f64::NAN),
        None => v + read.bias.at(i, j),
    }));
    Some(t)
}

/// Ways in which the ends of the groups may have been made of their lengths, or of the ends themselves: words, bits.
fn of_list(s: &System, from: &[Option<usize>]) -> Option<(String, f64)> {
    let n = s.parts.len();
    let ends: Vec<usize> = s.parts.iter().map(|p| p.rows.end).collect();
    let lengths: Vec<usize> = s.parts.iter().map(|p| p.rows.len()).collect();
    let sums = |of: &dyn Fn(usize) -> usize| -> Vec<usize> {
        (0..n)
            .scan(0, |sum, e| {
                *sum += of(e);
                Some(*sum)
            })
            .collect()
    };
    let mut ways: Vec<(String, f64, Vec<usize>)> = vec![
        (
            "the list of ends is made of lengths of which the second stands for the first too".into(),
            2.0,
            sums(&|e| lengths[e.max(1)]),
        ),
        (
            "the list of ends is made of the lengths of the next groups".into(),
            2.0,
            sums(&|e| lengths.get(e + 1).copied().unwrap_or(0)),
        ),
        (
            "the list of ends is made of the lengths of the groups before".into(),
            2.0,
            sums(&|e| if e == 0 { 0 } else { lengths[e - 1] }),
        ),
        ("the ends of the groups are added up as if they were lengths".into(), 2.0, sums(&|e| ends[e])),
        ("the lengths of the groups are taken for their ends".into(), 2.0, lengths.clone()),
        ("the starts of the groups are taken for their ends".into(), 2.0, s.parts.iter().map(|p| p.rows.start).collect()),
        ("all groups are taken for equally long".into(), 3.0, (1..=n).map(|e| (e * s.rows).div_ceil(n)).collect()),
    ];
    for unit in [8usize, 16, 32, 64, 128, 256] {
        let words = |how: &str| format!("the ends of the groups are taken {how} multiples of {unit}");
        ways.push((words("up to"), 3.0, ends.iter().map(|e| e.next_multiple_of(unit)).collect()));
        ways.push((words("down to"), 3.0, ends.iter().map(|e| e / unit * unit).collect()));
        let padded = sums(&|e| lengths[e].next_multiple_of(unit));
        ways.push((format!("the ends of the groups are those of lengths padded to {unit}"), 3.0, padded));
    }
    for d in 1..=4usize {
        ways.push((format!("every group ends {d} rows late"), 3.0 + d as f64, ends.iter().map(|e| e + d).collect()));
        ways.push((
            format!("every group ends {d} rows early"),
            3.0 + d as f64,
            ends.iter().map(|e| e.saturating_sub(d)).collect(),
        ));
    }
    let rows = (0..s.rows).filter(|i| from[*i].is_some());
    let is = |ends: &[usize]| {
        let of = |i: usize| ends.iter().position(|end| i < *end).unwrap_or(n - 1);
        rows.clone().all(|i| from[i] == Some(of(i)))
    };
    ways.into_iter().find(|w| is(&w.2)).map(|(words, bits, ends)| {
        let list: Vec<String> = ends.iter().take(8).map(usize::to_string).collect();
        (format!("{words} ({}{})", list.join(", "), if n > 8 { ", …" } else { "" }), bits)
    })
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, grouped_found, sum, wide};
    use crate::{Format, QTensor};

    /// What is said where the scales of four experts, of which some share theirs, end at rows 24, 48, 58 and 74.
    fn by_another_list(shared: impl Fn(usize) -> usize) -> (String, String) {
        let (n, k_all, ends) = (32, 64, [6usize, 30, 40, 56]);
        let mut parts = codes(Format::Int8, 4 * n, k_all, k_all, false, 105).into_parts();
        let scales = parts.scale_inv.clone();
        (0..4 * n).for_each(|r| parts.scale_inv[r] = scales[shared(r / n) * n + r % n]);
        let (a, b) = (wide(56, k_all), QTensor::new(parts).unwrap());
        let x = a.to_f64();
        // Lengths 6, 24, 10, 16: the second stands for the first.
        let wrong = [24usize, 48, 58, 74];
        grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
            let of = |ends: &[usize]| ends.iter().filter(|end| **end <= i).count();
            let (e, to) = (of(&ends), of(&wrong));
            let code = |k: usize| f64::from(b.codes()[(e * n + j) * k_all + k] as i8);
            sum(k_all, |k| x[[i, k]] * code(k)) * f64::from(b.scale_inv()[to * n + j])
        })
    }

    #[test]
    fn scales_by_another_list_of_groups_are_told() {
        let got = by_another_list(|e| e);
        assert_eq!(got.0, "group_boundary:b.scale_rows", "{}", got.1);
        let words = "the second stands for the first too (24, 48, 58, 74): rows 0 … 23 take those of expert 0, rows 24 … 47";
        assert!(got.1.contains(words), "{}", got.1);
        // Two experts with one row of scales: whose they are nobody knows.
        let got = by_another_list(|e| e.max(1));
        assert_ne!(got.0, "group_boundary:b.scale_rows", "{}", got.1);
    }
}
