//! Rows of an operand that are gathered from other rows, each found by value, and by what group's weights they are multiplied; columns by other rows
//! of b. What multiplies a row last may be its own: its scale, or the weight that a router gave it.

use super::elsewhere::WORK;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use crate::parallel;
use std::sync::Arc;

/// Parts at most.
const PARTS: usize = 257;

/// What of a row that is read for another one is the other's own.
#[derive(Clone, Copy, PartialEq)]
enum Own {
    Nothing,
    Scale,
    Weight,
}

/// The number of each row that multiplies it last, where rows have one: a router's weight, a second level of scales.
pub fn weights(s: &System, side: Which) -> Option<Vec<f64>> {
    let all: Vec<f64> = match operand(s.scene.evidence.job, side).map(Operand::given) {
        Some(Operand::Weighted(w)) => w.weights().iter().map(|w| f64::from(*w)).collect(),
        _ => {
            let q = s.given(side).deep.as_ref()?;
            (0..q.rows()).map(|i| q.over_row(i).map(f64::from)).collect::<Option<_>>()?
        }
    };
    all.iter().all(|w| w.is_finite()).then_some(all)
}

/// Which lines have a wrong element: rows of the result, or columns of each part.
fn wrong_lines(s: &System, side: Which) -> Vec<bool> {
    let mut wrong = vec![false; if side == Which::A { s.rows } else { s.parts.len() * s.cols }];
    for i in 0..s.rows {
        let Some(p) = s.part[i] else { continue };
        for j in (0..s.cols).filter(|j| s.is_wrong[i * s.cols + j]) {
            wrong[if side == Which::A { i } else { p * s.cols + j }] = true;
        }
    }
    wrong
}

/// Of a, and of b.
pub fn theories(s: &System) -> Vec<Theory> {
    [Which::A, Which::B].into_iter().filter_map(|side| gathered_by(s, side)).collect()
}

fn gathered_by(s: &System, side: Which) -> Option<Theory> {
    let (g, o) = (s.given(side), s.given(side.other()));
    (s.parts.len() <= PARTS && g.rows >= 4 && s.parts.iter().all(|p| p.k.len() == s.k)).then_some(())?;
    let one = g.grid.1 == 1 && g.q.is_some() && g.grid.0 > 1;
    let weights = weights(s, side);
    let owns = [Some(Own::Nothing), one.then_some(Own::Scale), weights.is_some().then_some(Own::Weight)];
    // The budget is that of all ways to multiply, and asked before anything is made for it.
    let is_wrong = wrong_lines(s, side);
    let lines = is_wrong.iter().filter(|x| **x).count() * owns.iter().flatten().count();
    (lines.saturating_mul(g.rows).saturating_mul(s.k) <= 4 * WORK).then_some(())?;
    // Each line of this side, and the elements that it makes.
    let mut wanted: Vec<(usize, Vec<(usize, usize)>)> = Vec::new();
    for (p, part) in s.parts.iter().enumerate() {
        let n = if side == Which::A { part.rows.len() } else { s.cols };
        for x in 0..n {
            let (line, wrong) = if side == Which::A { (part.a + x, part.rows.start + x) } else { (part.b + x, p * s.cols + x) };
            if !is_wrong[wrong] {
                continue;
            }
            let mut places: Vec<(usize, usize)> = match side {
                Which::A => (0..s.cols).map(|j| (part.rows.start + x, j)).collect(),
                Which::B => part.rows.clone().map(|i| (i, x)).collect(),
            };
            places.retain(|(i, j)| s.region.as_ref().is_none_or(|r| r.has(*i, *j)));
            spread(&mut places, 6);
            if places.len() >= 3 && places.iter().any(|(i, j)| s.is_wrong[i * s.cols + j]) {
                wanted.push((line, places));
            }
        }
    }
    (!wanted.is_empty()).then_some(())?;
    // By value; else a code with the scale, or a value with the weight, of its own place.
    let right = Theory::right();
    let by_own = |own: Own, line: usize, from: usize| match (own, &weights) {
        _ if line == from => 1.0,
        (Own::Scale, _) => g.step(line, 0) / g.step(from, 0),
        (Own::Weight, Some(w)) => w[line] / w[from],
        _ => 1.0,
    };
    let find = |own: Own| -> Option<Vec<(usize, usize)>> {
        let source = |n: usize| -> (usize, Option<usize>) {
            let (line, places) = &wanted[n];
            let by = |from: usize| {
                // What a weight or scale of 0 multiplied is not known: padding has such.
                let by = by_own(own, *line, from);
                by.is_finite()
                    && places.iter().all(|(i, j)| {
                        let Some((ra, rb, _)) = s.lines(*i, *j) else { return false };
                        let other = if side == Which::A { rb } else { ra };
                        let (x, y) = (&g.values[from * s.k..(from + 1) * s.k], &o.values[other * s.k..(other + 1) * s.k]);
                        let (mut sum, mut size) = (0.0, 0.0);
                        for (x, y) in x.iter().zip(y) {
                            sum += x * y;
                            size += (x * y).abs();
                        }
                        (sum, size) = (sum * by, size * by.abs());
                        s.may(*i, *j, sum, size)
                    })
            };
            let is_own = places.iter().all(|(i, j)| s.fits(&right, *i, *j));
            (*line, if is_own { Some(*line) } else { (0..g.rows).find(|from| by(*from)) })
        };
        behind(&parallel::collect(wanted.len(), source), g.rows)
    };
    let (found, own) = owns.into_iter().flatten().find_map(|own| find(own).map(|found| (found, own)))?;
    let mut from: Vec<usize> = (0..g.rows).collect();
    found.iter().for_each(|(line, source)| from[*line] = *source);
    let moved: Vec<usize> = (0..g.rows).filter(|x| from[*x] != *x).collect();
    (!moved.is_empty()).then_some(())?;
    let name = side.name();
    let far = |x: usize| from[x] as i64 - x as i64;
    // One distance for each group, or for all.
    let mut by_group: Vec<String> = Vec::new();
    let steady = s.parts.len() > 1
        && s.parts.iter().enumerate().all(|(e, p)| {
            let lines = if side == Which::A { p.a..p.a + p.rows.len() } else { p.b..p.b + s.cols };
            let mut d: Vec<i64> = lines.filter(|x| from[*x] != *x).map(far).collect();
            d.dedup();
            if let [d] = d[..] {
                by_group.push(format!("{d:+} in group {e}"));
            }
            d.len() <= 1
        });
    let some: Vec<String> = moved.iter().take(6).map(|x| format!("{x} ← {}", from[*x])).collect();
    let lost = moved.iter().filter(|x| from[**x] >= g.rows).count();
    let past = if lost > 0 { format!(", {lost} of them behind the last") } else { String::new() };
    let what = match own {
        Own::Nothing => "",
        Own::Scale => ", by their own scales",
        Own::Weight => ", codes with their scales, and multiplied by the weights of their own places",
    };
    let (how, bits) = if steady {
        (by_group.join(", "), 8.0 + 4.0 * by_group.len() as f64)
    } else {
        (some.join(", "), 8.0 + moved.len() as f64 * (g.rows as f64).log2())
    };
    let words = format!("rows of {name} are read from other places{what}{past}: {how}");
    let class = if s.parts.len() > 1 { Class::GroupBoundary } else { Class::Addressing };
    let mut t = Theory::new(class, name, format!("{name}.gathered"), words).bits(bits);
    t.freedom = if steady { by_group.len() } else { moved.len() };
    let (values, k_all, rows) = (g.values.clone(), s.k, g.rows);
    let by: Vec<f64> = (0..g.rows).map(|x| if from[x] < rows { by_own(own, x, from[x]) } else { 1.0 }).collect();
    if side == Which::A && from.iter().any(|x| *x >= rows) {
        // Nobody knows what lies there.
        let lost: Vec<bool> = (0..s.rows).map(|i| s.lines(i, 0).is_some_and(|(a, _, _)| from[a] >= rows)).collect();
        let (actual, cols, bias) = (s.actual.to_vec(), s.cols, s.bias.clone());
        t.finish = Some(Arc::new(move |i, j, v| if lost[i] { actual[i * cols + j] } else { v + bias.at(i, j) }));
    }
    t.side(side).value = Some(Arc::new(move |i, k| if from[i] < rows { values[from[i] * k_all + k] * by[i] } else { 0.0 }));
    Some(t)
}

/// The row that each line is read from. A few that are none's are read behind the last row, where the line before them has the row before.
fn behind(found: &[(usize, Option<usize>)], rows: usize) -> Option<Vec<(usize, usize)>> {
    let mut all: Vec<(usize, usize)> = Vec::with_capacity(found.len());
    let mut missed = 0;
    for (line, from) in found {
        let next = all.last().filter(|(before, from)| before + 1 == *line && *from + 1 >= rows).map(|(_, from)| from + 1);
        missed += usize::from(from.is_none());
        all.push((*line, from.or(next)?));
    }
    (missed * 8 <= found.len()).then_some(all)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, sum};
    use crate::job::Operand;
    use crate::quant::{Level, QTensorParts};
    use crate::{Granularity, QTensor};

    const K: usize = 96;

    /// What is found where rows of codes are read from other places, their weights from their own.
    fn of(weight: impl Fn(usize) -> f32, from: impl Fn(usize) -> usize) -> (String, String) {
        let (rows, n, ends) = (24, 32, [7, 15, 24]);
        let level = Level {
            granularity: Granularity::Block { rows: 1, cols: 1 },
            format: Format::F32,
            scale_inv: (0..rows).map(&weight).collect(),
            zero: None,
        };
        let q = codes(Format::E4m3, rows, K, K, false, 51);
        let a = QTensor::new(QTensorParts { level: Some(level), ..q.clone().into_parts() }).unwrap();
        let (x, b) = (q.dequantize(), codes(Format::E4m3, 3 * n, K, K, false, 52));
        let y = b.dequantize();
        grouped_found(&Operand::Quantized(a), &b, &ends, Format::F32, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            f64::from(weight(i)) * sum(K, |k| x[[from(i), k]] * y[[e * n + j, k]])
        })
    }

    #[test]
    fn rows_of_other_tokens_with_the_weights_of_their_own_places_are_told() {
        let got = of(|i| 0.25 + (i * 7 % 23) as f32 / 31.0, |i| (i * 5 + i * i % 7) % 24);
        assert_eq!(got.0, "group_boundary:a.gathered", "{}", got.1);
        assert!(got.1.contains("multiplied by the weights of their own places"), "{}", got.1);
    }

    /// The last token is padding.
    #[test]
    fn a_weight_of_0_is_nobodys_source() {
        let weight = |i: usize| if i == 23 { 0.0 } else { 0.25 + (i * 7 % 23) as f32 / 31.0 };
        let got = of(weight, |i| (i * 5 + i * i % 7) % 23);
        assert_eq!(got.0, "group_boundary:a.gathered", "{}", got.1);
        assert!(got.1.contains("multiplied by the weights of their own places"), "{}", got.1);
    }
}
