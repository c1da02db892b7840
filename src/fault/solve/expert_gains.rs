//! Grouped products whose groups each have a factor of their own: the product of both scales once more, as the second level of a format that the
//! operands do not have, or numbers of another step. The bias may be lost beside it.
//!
//! ```text
//! out[i, j] = g(e)·Σ_k a·b + β·bias(e, j)       e: the group of row i; g(e): what all of its elements allow; β: 1, 0 or g(e)
//! g(e) = sa·sb(e)·c                             c = 1; c = (max_a·max_b) / (448·6)² where alpha is amax_a·amax_b / (448·6)²
//! ```

use super::experts::group_scales;
use super::output::{roundest, short};
use super::segment::spread_of;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use std::sync::Arc;

/// Elements that a group is told by, at least and at most.
const LEAST: usize = 12;
const LOOKS: usize = 256;
/// Half the width of a factor, relative, at most: one that is hardly known makes of anything what was written.
const KNOWN: f64 = 1.0 / 128.0;
/// From here down the bound is that of the sum times the factor.
const TINY: f64 = 1.0 / 16.0;
/// Groups that have numbers of nobody: the fewest that are a rule, and the most.
const FEWEST: usize = 3;
const MOST: usize = 64;
/// The largest value of NVFP4: of its scales, times that of its codes.
const NVFP4: f64 = 448.0 * 6.0;

/// What becomes of the bias.
#[derive(Clone, Copy, PartialEq)]
enum Bias {
    Added,
    Lost,
    Scaled,
}

/// What a group's elements allow: `None` where it has none that say anything.
type Range = Option<(f64, f64)>;

/// Of all groups of a product, with each fate of the bias.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() < 2 {
        return Vec::new();
    }
    let fates: &[Bias] = if s.bias.any() { &[Bias::Added, Bias::Lost, Bias::Scaled] } else { &[Bias::Added] };
    fates.iter().find_map(|bias| of(s, *bias)).into_iter().collect()
}

/// The factor that all elements of a group allow. `None`: they contradict each other; `Some(None)`: they say nothing.
fn range(s: &System, e: usize, bias: Bias) -> Option<Range> {
    let first = s.parts[e].rows.start;
    let (mut low, mut high, mut n) = (f64::NEG_INFINITY, f64::INFINITY, 0);
    for place in spread_of(s.parts[e].rows.len() * s.cols, LOOKS) {
        let (i, j) = (first + place / s.cols, place % s.cols);
        let (at, own) = (i * s.cols + j, s.bias.at(i, j));
        let (x, r) = (s.actual[at], s.certain(at));
        let (v, added) = match bias {
            Bias::Added => (s.ideal[at] - own, own),
            Bias::Lost => (s.ideal[at] - own, 0.0),
            Bias::Scaled => (s.ideal[at], 0.0),
        };
        if !(v.abs() > 8.0 * r) || !x.is_finite() || s.out.is_quantized() && s.out.is_saturated(at, x) {
            continue;
        }
        let (from, to) = s.out.cell(at, x);
        let by = (x - added).abs() / v.abs();
        let slack = r * if by < TINY { by } else { by.max(1.0) } + x.abs() * 2f64.powi(-22);
        let ends = [(from - added - slack) / v, (to - added + slack) / v];
        (low, high) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
        n += 1;
        if !(low <= high) {
            return None;
        }
    }
    let known = n >= LEAST && high - low <= 2.0 * KNOWN * low.abs().max(high.abs()) && low * high > 0.0;
    Some(known.then_some((low, high)))
}

fn of(s: &System, bias: Bias) -> Option<Theory> {
    let filled: Vec<usize> = (0..s.parts.len()).filter(|e| !s.parts[*e].rows.is_empty() && !s.parts[*e].k.is_empty()).collect();
    let ranges: Vec<(usize, Range)> = filled.into_iter().map(|e| range(s, e, bias).map(|r| (e, r))).collect::<Option<_>>()?;
    let known: Vec<(usize, (f64, f64))> = ranges.iter().filter_map(|(e, r)| r.map(|r| (*e, r))).collect();
    let is_one = |r: &(f64, f64)| r.0 <= 1.0 && 1.0 <= r.1;
    let moved = known.iter().filter(|(_, r)| !is_one(r)).count();
    // One factor for all is told elsewhere.
    let common = known.iter().fold((f64::NEG_INFINITY, f64::INFINITY), |m, (_, r)| (m.0.max(r.0), m.1.min(r.1)));
    (moved >= 2 && common.0 > common.1).then_some(())?;
    let mut t = by_formula(s, &known).or_else(|| of_nobody(&known, moved).filter(|_| known.len() == ranges.len()))?;
    match bias {
        Bias::Added => {}
        Bias::Lost => {
            t.0.variant += &format!(" + {}:out.bias", Class::SilentSkip.name());
            t.0.detail += "; and the bias is not added";
            t.0.bits += 4.0;
        }
        Bias::Scaled => {
            t.0.detail += ", the bias with it";
            t.0.bits += 1.0;
        }
    }
    let (part, own, (mut t, gains)) = (s.part.clone(), s.bias.clone(), t);
    t.finish = Some(Arc::new(move |i, j, v| {
        let g = part[i].and_then(|e| gains.get(e)).copied().unwrap_or(1.0);
        match bias {
            Bias::Added => v * g + own.at(i, j),
            Bias::Lost => v * g,
            Bias::Scaled => (v + own.at(i, j)) * g,
        }
    }));
    Some(t)
}

/// One scale of each group. `None`: it has several.
fn scales(s: &System, side: Which) -> Option<Vec<f64>> {
    let same = |v: &[f64]| v.first().copied().filter(|x| v.iter().all(|y| y == x));
    if let Some(groups) = group_scales(s, side) {
        return groups.iter().map(|g| same(g)).collect();
    }
    let g = s.given(side);
    (g.q.is_some() && g.deep.is_none() && g.grid.1 == 1).then_some(())?;
    let of = |p: &super::system::Part| {
        let lines = if side == Which::A { p.a..p.a + p.rows.len() } else { p.b..p.b + s.cols };
        let steps: Vec<f64> = lines.map(|x| g.step(x, 0)).collect();
        if steps.is_empty() { Some(1.0) } else { same(&steps) }
    };
    s.parts.iter().map(of).collect()
}

/// The largest value of the codes of an operand.
fn largest(s: &System, side: Which) -> Option<f64> {
    let format = match operand(s.scene.evidence.job, side)?.given() {
        Operand::Quantized(q) => q.format(),
        Operand::Groups(groups) => groups.first()?.format(),
        _ => return None,
    };
    Some(format.max_finite())
}

/// A factor that both scales make, for all groups.
fn by_formula(s: &System, known: &[(usize, (f64, f64))]) -> Option<(Theory, Vec<f64>)> {
    let (a, b) = (scales(s, Which::A)?, scales(s, Which::B)?);
    let both = |e: usize| a[e] * b[e];
    let fits = |c: f64| {
        known.iter().all(|(e, (low, high))| {
            let g = both(*e) * c;
            low - 1e-6 * low.abs() <= g && g <= high + 1e-6 * high.abs()
        })
    };
    let alpha = largest(s, Which::A).zip(largest(s, Which::B)).map(|(x, y)| x * y / (NVFP4 * NVFP4));
    let once = "the product of both scales of the group is applied once more".to_string();
    let (words, bits, c, slack) = if fits(1.0) {
        (once, 6.0, 1.0, 0.0)
    } else if let Some(c) = alpha.filter(|c| fits(*c)) {
        let of = short(1.0 / c, 1e-3 / c);
        (
            format!(
                "{once}, over {of}: as the alpha of NVFP4, amax_a·amax_b / (448·6)², which the operands' own scales stand beside"
            ),
            8.0,
            c,
            0.0,
        )
    } else {
        // One number of all groups, which are enough to say so.
        (known.len() >= FEWEST).then_some(())?;
        let of = |m: (f64, f64), (e, r): &(usize, (f64, f64))| (m.0.max(r.0 / both(*e)), m.1.min(r.1 / both(*e)));
        let (low, high) = known.iter().fold((f64::NEG_INFINITY, f64::INFINITY), of);
        (low <= high && low > 0.0).then_some(())?;
        let c = roundest(low, high);
        (format!("{once}, times {}", short(c, high - low)), 28.0, c, (high - low) / high)
    };
    let mut t = Theory::new(Class::ScaleDoubledInverted, "out", "out.expert_alpha", words).bits(bits);
    // A number that was taken from the result.
    let fitted = slack > 0.0;
    (t.fitted, t.freedom, t.slack) = (fitted, usize::from(fitted), slack);
    Some((t, (0..a.len()).map(|e| both(e) * c).collect()))
}

/// A number of each group that nothing makes.
fn of_nobody(known: &[(usize, (f64, f64))], moved: usize) -> Option<(Theory, Vec<f64>)> {
    (moved >= FEWEST && known.len() <= MOST && known.iter().all(|(_, r)| r.0 > 0.0)).then_some(())?;
    let mut gains = vec![1.0; known.iter().map(|(e, _)| e + 1).max()?];
    let mut slack = 0.0f64;
    for (e, (low, high)) in known {
        gains[*e] = if *low <= 1.0 && 1.0 <= *high { 1.0 } else { 0.5 * (low + high) };
        slack = slack.max((high - low) / high);
    }
    let some: Vec<String> =
        known.iter().take(6).map(|(e, r)| format!("{} for group {e}", short(gains[*e], r.1 - r.0))).collect();
    let more = if known.len() > 6 { ", …" } else { "" };
    let words = format!(
        "each group's sums are multiplied by a number of its own that nothing stored makes: {}{more}: scales of groups that are those of another step, or of \
         other experts",
        some.join(", ")
    );
    let mut t = Theory::new(Class::StaleState, "out", "out.expert_gain", words).bits(8.0 + 16.0 * known.len() as f64);
    (t.fitted, t.freedom, t.slack) = (true, moved, slack);
    Some((t, gains))
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, grouped_biased_found, grouped_found, noise, sum};
    use crate::job::Operand;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, QTensor};

    const N: usize = 24;
    const K: usize = 96;
    const ENDS: [usize; 4] = [13, 13, 30, 41];

    fn expert(i: usize) -> usize {
        ENDS.iter().filter(|end| **end <= i).count()
    }
    /// One scale of all of a, one of each expert of b.
    fn operands(format: Format) -> (QTensor, QTensor) {
        let with = |q: QTensor, granularity, scale_inv| {
            QTensor::new(QTensorParts { granularity, scale_inv, ..q.into_parts() }).unwrap()
        };
        let a = with(codes(format, 41, K, K, false, 71), Granularity::Tensor, vec![0.0213]);
        let of_b = (0..4).map(|e| 0.003 * (1.0 + 2.0 * noise(e + 7)) as f32).collect();
        let b = with(codes(format, 4 * N, K, K, false, 72), Granularity::Block { rows: N, cols: K }, of_b);
        (a, b)
    }
    fn right(a: &QTensor, b: &QTensor) -> impl Fn(usize, usize) -> f64 {
        let (x, y) = (a.dequantize(), b.dequantize());
        move |i, j| sum(K, |k| x[[i, k]] * y[[expert(i) * N + j, k]])
    }

    #[test]
    fn an_alpha_that_the_scales_stand_beside_is_told() {
        for (format, over, words) in [
            (Format::E4m3, 36.0, "over 36: as the alpha of NVFP4"),
            (Format::Int8, (2688.0f64 / 127.0).powi(2), "over 447.97"),
            (Format::E4m3, 5.0, "times 0.2"),
        ] {
            let (a, b) = operands(format);
            let of = right(&a, &b);
            let by = |e: usize| f64::from(a.scale_inv()[0]) * f64::from(b.scale_inv()[e]) / over;
            let got = grouped_found(&Operand::Quantized(a.clone()), &b, &ENDS, Format::Bf16, |i, j| of(i, j) * by(expert(i)));
            assert_eq!(got.0, "scale_doubled_inverted:out.expert_alpha", "{over}: {}", got.1);
            assert!(got.1.contains(words), "{over}: {}", got.1);
        }
    }

    #[test]
    fn factors_of_nobody_are_told_and_those_of_rows_are_not() {
        let (a, b) = operands(Format::E4m3);
        let of = right(&a, &b);
        let bias: Vec<f32> = (0..4 * N).map(|x| (noise(x + 900) - 0.5) as f32).collect();
        let stored = bias.clone();
        let found = |gain: &dyn Fn(usize) -> f64, kept: f64| {
            grouped_biased_found(&Operand::Quantized(a.clone()), &b, &ENDS, bias.clone(), Format::Bf16, |i, j| {
                of(i, j) * gain(i) + kept * f64::from(stored[expert(i) * N + j])
            })
        };
        let gain = |i: usize| [1.489, 1.0, 0.926, 2.145][expert(i)];
        let got = found(&gain, 1.0);
        assert_eq!(got.0, "stale_state:out.expert_gain", "{}", got.1);
        assert!(got.1.contains("1.49 for group 0") || got.1.contains("1.489 for group 0"), "{}", got.1);
        let got = found(&gain, 0.0);
        assert_eq!(got.0, "stale_state:out.expert_gain + silent_skip:out.bias", "{}", got.1);
        // A factor of each row is none of groups.
        let got = found(&|i| 0.5 + noise(i + 33), 1.0);
        assert!(!got.0.contains("expert_"), "{} {}", got.0, got.1);
    }
}
