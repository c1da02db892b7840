//! The sums of one operand that the zero points of the other multiply, made in 16 bits: of a few elements beside each other at a time, or as a
//! running sum.
//!
//! ```text
//! S(g) = Σ of parts of w: round(round(x0 + x1) + x2) …          each addition of a part rounded; the parts are added in f32; or in pairs
//! S(g) = round( … round(round(p0) + p1) … )                     the running sum of parts p of w, which are summed in f32
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::format::grid::native;
use std::sync::Arc;

/// Elements of a part.
const PARTS: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, 256];

/// How a part, or the sum of parts, is made.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// One after the other, each sum rounded.
    Each,
    /// Neighbours first, then their sums.
    Pairs,
    /// What was summed so far is rounded behind each part.
    Running,
}

fn made(x: &[f64], wide: usize, how: How, f: Format) -> f64 {
    let round = |x: f64| native(f).nearest(x);
    match how {
        How::Each => x.chunks(wide).map(|p| p.iter().fold(0.0, |s, x| round(s + x))).sum(),
        How::Pairs => x
            .chunks(wide)
            .map(|p| {
                let mut part = p.to_vec();
                while part.len() > 1 {
                    part = part.chunks(2).map(|two| round(two.iter().sum())).collect();
                }
                part[0]
            })
            .sum(),
        How::Running => x.chunks(wide).fold(0.0, |s, p| round(s + p.iter().sum::<f64>())),
    }
}

/// Of the zero points of one side, and an operand that has none.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, other) = (s.given(side), s.given(side.other()));
    let (name, they) = (side.name(), side.other().name());
    let Some((zero, mid)) = g.zero.as_ref().filter(|_| !s.alone && other.zero.is_none()) else { return Vec::new() };
    // Codes are summed as codes, of one scale.
    if s.parts.iter().any(|p| p.k.len() != s.k) || other.q.is_some() && other.grid.1 > 1 {
        return Vec::new();
    }
    let (groups, wide, tall, k_all) = (g.grid.1, g.tile.1, g.tile.0, g.k);
    let step = |c: usize| g.step(c / groups * tall, c % groups * wide);
    let by: Vec<f64> = (0..g.grid.0 * groups).map(|c| if mid.is_some() { zero[c] } else { -zero[c] * step(c) }).collect();
    let units: Vec<f64> = (0..other.rows).map(|i| if other.q.is_some() { other.step(i, 0) } else { 1.0 }).collect();
    if units.iter().any(|u| !(u.is_finite() && *u != 0.0)) {
        return Vec::new();
    }
    let lines: Vec<Option<(usize, usize)>> = (0..s.rows).map(|i| s.lines(i, 0).map(|(a, b, _)| (a, b))).collect();
    let (numbers, values) = (Arc::new((by, units, lines)), other.values.clone());
    let mut all = Vec::new();
    for (f, how) in [Format::Bf16, Format::F16].into_iter().flat_map(|f| [How::Each, How::Pairs, How::Running].map(|h| (f, h)))
    {
        for part in
            PARTS.into_iter().filter(|w| *w <= wide && (how != How::Pairs || *w > 2) && (how != How::Running || *w < wide))
        {
            let what = match how {
                How::Each => {
                    format!("in parts of {part} beside each other, each addition rounded to {f}, which are added in f32")
                }
                How::Pairs => format!(
                    "in parts of {part} beside each other, in pairs, each addition rounded to {f}, which are added in f32"
                ),
                How::Running => format!("of {part} at a time, and rounded to {f} behind each"),
            };
            let words =
                format!("the sums of {they} over each group, which the zero points of {name} multiply, are made {what}");
            let bits = 5.0 + cost(part) + if how == How::Each { 0.0 } else { 1.0 };
            let mut t = Theory::new(Class::LowprecAcc, name, format!("{name}.zero_sums"), words).bits(bits);
            let (numbers, values, bias) = (numbers.clone(), values.clone(), s.bias.clone());
            t.finish = Some(Arc::new(move |i, j, v| {
                let (by, units, lines) = &*numbers;
                let Some((a, b)) = lines[i] else { return v + bias.at(i, j) };
                let (own, theirs) = if side == Which::A { (a, b + j) } else { (b + j, a) };
                let (unit, row) = (units[theirs], &values[theirs * k_all..(theirs + 1) * k_all]);
                let off = |(c, x): (usize, &[f64])| {
                    let x: Vec<f64> = x.iter().map(|x| x / unit).collect();
                    (made(&x, part, how, f) - x.iter().sum::<f64>()) * unit * by[own / tall * groups + c]
                };
                v + row.chunks(wide).enumerate().map(off).sum::<f64>() + bias.at(i, j)
            }));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, noise, sum, wide};
    use crate::quant::QTensorParts;
    use crate::tensor::round_to;
    use crate::{Format, QTensor, Zero};

    const K: usize = 128;

    /// What is found where the sum of 32 elements is this.
    fn of(made: impl Fn(&[f32]) -> f32) -> (String, String) {
        let q = codes(Format::Uint4, N, K, 32, true, 71);
        let zero: Vec<f32> = (0..N * 4).map(|c| 0.2 * (noise(c) as f32 - 0.5)).collect();
        let b = QTensor::new(QTensorParts { zero: Zero::Additive { zero: zero.clone(), mid: 0 }, ..q.into_parts() }).unwrap();
        let a = wide(M, K);
        let (x, y) = (a.to_f64(), b.dequantize());
        found(&a, &b, None, Format::F32, |i, j, _| {
            let more = sum(4, |g| {
                let part: Vec<f32> = (0..32).map(|k| x[[i, g * 32 + k]] as f32).collect();
                let right: f64 = part.iter().map(|x| f64::from(*x)).sum();
                f64::from(zero[j * 4 + g]) * (f64::from(made(&part)) - right)
            });
            sum(K, |k| x[[i, k]] * y[[j, k]]) + more
        })
    }
    fn bf16(x: f32) -> f32 {
        round_to(Format::Bf16, x)
    }

    #[test]
    fn sums_of_a_few_that_are_rounded_are_told() {
        let got = of(|x| x.chunks(4).map(|p| bf16(bf16(bf16(p[0] + p[1]) + p[2]) + p[3])).sum());
        assert_eq!(got.0, "lowprec_acc:b.zero_sums", "{}", got.1);
        assert!(
            got.1.contains("in parts of 4 beside each other, each addition rounded to bf16, which are added in f32"),
            "{}",
            got.1
        );
        let got = of(|x| x.chunks(4).map(|p| bf16(bf16(p[0] + p[1]) + bf16(p[2] + p[3]))).sum());
        assert!(got.1.contains("in parts of 4 beside each other, in pairs,"), "{} {}", got.0, got.1);
        let got = of(|x| x.chunks(8).fold(0.0, |s, p| bf16(s + p.iter().sum::<f32>())));
        assert!(got.1.contains("made of 8 at a time, and rounded to bf16 behind each"), "{} {}", got.0, got.1);
    }

    #[test]
    fn sums_of_other_elements_are_not_called_so() {
        let got = of(|x| (0..8).map(|n| bf16(bf16(x[n] * 1.25) + x[n + 16])).sum());
        assert!(!got.1.contains("are made"), "{} {}", got.0, got.1);
    }
}
