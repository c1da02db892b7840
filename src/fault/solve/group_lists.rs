//! Scales of groups along K (gradients of weights) that stand in one list, group after group, and are looked up by another index: of a, of b, of both.
//!
//! ```text
//! scale of group e, line x:  list[x·E + e],  list[e·S + x]          a right kernel: list[e·L + x]; E groups of L lines
//! behind the end:            0; the last; the list of the other operand                S: L padded, or the lines of the other operand
//! ```

use super::decoded::tables;
use super::experts::group_scales;
use super::maps::{self, Kind, cost};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use crate::{QTensor, Zero};
use std::sync::Arc;

/// Lines that a list may be padded to.
const PADDED: [usize; 6] = [4, 8, 16, 32, 64, 128];

/// One way to look up all scales: words, bits, what is read for each place of the list.
type Look = (String, f64, Vec<f64>);

/// Every way of both operands. Nothing of a product whose groups have one scale each.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.parts.len() < 2 || s.alone {
        return Vec::new();
    }
    let lists = [Which::A, Which::B].map(|side| list(s, side));
    let mut all = Vec::new();
    for (side, list, other) in [(Which::A, &lists[0], &lists[1]), (Which::B, &lists[1], &lists[0])] {
        for (words, bits, read) in looks(s.parts.len(), list).into_iter().chain(by_other(s, list, side, other)) {
            let name = side.name();
            let (groups, lines) = (s.parts.len(), list.len() / s.parts.len());
            let words = format!("the scale of {name} of group e, line x is {words} (E = {groups} groups of L = {lines} lines)");
            let t = Theory::new(Class::ScaleLayout, name, format!("{name}.index"), words).bits(bits);
            all.push(finished(s, t, &[(side, ratios(&read, list))]));
        }
    }
    // Codes of an operand that are decoded as another format's, alone and beside it.
    let read: Vec<Theory> = [Which::A, Which::B].into_iter().flat_map(|side| decoders(s, side)).collect();
    let both: Vec<Theory> = read.iter().flat_map(|d| all.iter().filter_map(|t| d.with(t))).collect();
    all.extend(read.into_iter().chain(both));
    let [a, b] = &lists;
    let of_b = looks(s.parts.len(), b);
    for (words, bits, read) in looks(s.parts.len(), a) {
        let Some(other) = of_b.iter().find(|b| b.0 == words) else { continue };
        let words = format!("the scale of a of group e, line x is {words}; of b as well");
        let t = Theory::new(Class::ScaleLayout, "a", "a.index", words).bits(bits + 2.0);
        all.push(finished(s, t, &[(Which::A, ratios(&read, a)), (Which::B, ratios(&other.2, b))]));
    }
    all
}

/// Codes of groups along K that are decoded as those of another format of as many bits.
fn decoders(s: &System, side: Which) -> Vec<Theory> {
    let Some(Operand::Groups(groups)) = operand(s.scene.evidence.job, side).map(Operand::given) else { return Vec::new() };
    let Some(f) = groups.first().map(QTensor::format).filter(|f| f.is_float()) else { return Vec::new() };
    let g = s.given(side).clone();
    if groups.iter().any(|q| !matches!(q.zero(), Zero::None)) || groups.iter().map(QTensor::cols).sum::<usize>() != g.k {
        return Vec::new();
    }
    let Some(scales) = group_scales(s, side).filter(|x| x.iter().all(|x| x.len() == g.rows)) else { return Vec::new() };
    let mut codes = vec![0u8; g.rows * g.k];
    let (mut from, mut group) = (0, Vec::with_capacity(g.k));
    for (e, q) in groups.iter().enumerate() {
        group.resize(from + q.cols(), e);
        for (row, some) in q.codes().chunks(q.cols().max(1)).enumerate().take(g.rows) {
            codes[row * g.k + from..row * g.k + from + some.len()].copy_from_slice(some);
        }
        from += q.cols();
    }
    let (codes, group, scales, name) = (Arc::new(codes), Arc::new(group), Arc::new(scales), side.name());
    let others = tables(f).into_iter().filter(|t| t.1 == "read_as" && t.3 <= 1.0);
    others
        .map(|(class, variant, words, bits, table)| {
            let mut t = Theory::new(class, name, format!("{name}.{variant}"), format!("codes of {name} ({f}) are {words}"));
            t.bits = 2.0 + bits;
            let (codes, group, scales, k_all) = (codes.clone(), group.clone(), scales.clone(), g.k);
            t.side(side).value = Some(Arc::new(move |i, k| table[usize::from(codes[i * k_all + k])] * scales[group[k]][i]));
            t
        })
        .collect()
}

/// The scales of all groups, one after the other. Empty, where no group has several.
fn list(s: &System, side: Which) -> Vec<f64> {
    let groups = group_scales(s, side).unwrap_or_default();
    let differ = |g: &Vec<f64>| g.iter().any(|x| *x != g[0]);
    if groups.iter().any(differ) { groups.concat() } else { Vec::new() }
}

fn looks(groups: usize, list: &[f64]) -> Vec<Look> {
    let n = list.len();
    let lines = n / groups;
    let mut all: Vec<Look> = Vec::new();
    if n == 0 {
        return all;
    }
    for way in maps::of_experts(lines, groups).into_iter().filter(|w| w.kind == Kind::Layout) {
        let words = match way.words.as_str() {
            "[E, N] read as [N, E]" => "looked up at x·E + e, as if they stood line by line, though they stand group by group",
            "[N, E] read as [E, N]" => "looked up at e·L + x, though they stand line by line, at x·E + e",
            other => other,
        };
        all.push((words.to_string(), 4.0 + way.bits, (0..n).map(|f| list[(way.map)(f, 0)]).collect()));
    }
    let mut strides: Vec<usize> = PADDED.iter().flat_map(|p| [lines.next_multiple_of(*p), lines / p * p]).collect();
    strides.sort_unstable();
    strides.dedup();
    for to in strides.into_iter().filter(|to| *to != lines && *to > 0) {
        let at = |f: usize| list.get(f).copied().unwrap_or(0.0);
        let words = format!(
            "read {to} lines on for each group instead of {lines}{}",
            if to > lines { ", 0 behind the last" } else { "" }
        );
        all.push((words, 5.0 + cost(to.abs_diff(lines)), (0..n).map(|f| at(f / lines * to + f % lines)).collect()));
        if to < lines {
            continue;
        }
        let stored = |f: usize| if f % to < lines { list[f / to * lines + f % to] } else { 0.0 };
        let words = format!("read {lines} lines on for each group, though they stand {to} lines apart, 0 between them");
        all.push((words, 5.0 + cost(to - lines), (0..n).map(stored).collect()));
    }
    all.dedup_by(|x, y| x.2 == y.2);
    all.retain(|x| x.2 != list);
    all
}

/// Groups that begin as many lines apart as the other operand has.
fn by_other(s: &System, list: &[f64], side: Which, other: &[f64]) -> Vec<Look> {
    let (n, groups) = (list.len(), s.parts.len());
    let (name, far) = match side {
        Which::A => ("b", s.cols),
        Which::B => ("a", s.rows / groups),
    };
    let lines = n / groups;
    if n == 0 || far == lines {
        return Vec::new();
    }
    let at = |f: usize| f / lines * far + f % lines;
    let words = format!("read {far} lines on for each group, the lines of {name}, instead of {lines}");
    let ends: [(&str, &dyn Fn(usize) -> f64); 3] = [
        ("0", &|_| 0.0),
        ("the last", &|_| list[n - 1]),
        ("the scales of the other operand", &|behind| other.get(behind).copied().unwrap_or(0.0)),
    ];
    let runs_over = at(n - 1) >= n;
    let all = ends.into_iter().take(if runs_over { 3 } else { 1 }).map(|(end, value)| {
        let read = (0..n).map(|f| list.get(at(f)).copied().unwrap_or_else(|| value(at(f) - n))).collect();
        (if runs_over { format!("{words}, {end} behind the last") } else { words.clone() }, 5.0, read)
    });
    let mut all: Vec<Look> = all.collect();
    all.dedup_by(|x, y| x.2 == y.2);
    all.retain(|x| x.2 != list);
    all
}

fn ratios(read: &[f64], right: &[f64]) -> Vec<f64> {
    read.iter().zip(right).map(|(x, y)| x / y).collect()
}

/// Each element times what its line has instead of its own scale.
fn finished(s: &System, mut t: Theory, by: &[(Which, Vec<f64>)]) -> Theory {
    let (part, bias, per, groups) = (s.part.clone(), s.bias.clone(), s.rows / s.parts.len(), s.parts.len());
    let by = by.to_vec();
    t.finish = Some(Arc::new(move |i, j, v| {
        let Some(e) = part[i] else { return v + bias.at(i, j) };
        let ratio = |(side, all): &(Which, Vec<f64>)| {
            let line = if *side == Which::A { i - e * per } else { j };
            all[e * (all.len() / groups) + line]
        };
        v * by.iter().map(ratio).product::<f64>() + bias.at(i, j)
    }));
    t
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, groups_found, sum};
    use crate::{Format, QTensor};

    /// A list whose groups are as far apart as whole tiles of their lines, beside codes of one operand that are decoded as the other's format.
    #[test]
    fn a_stride_that_is_rounded_down_beside_another_decoder_is_told() {
        let (m, n, ends) = (22, 18, [20usize, 44, 60]);
        let start = |e: usize| if e == 0 { 0 } else { ends[e - 1] };
        let tokens = |e: usize| ends[e] - start(e);
        let of = |f: Format, rows: usize, seed: usize| -> Vec<QTensor> {
            let group = |e: usize| {
                let mut p = codes(f, rows, tokens(e), tokens(e), false, seed + 1000 * e).into_parts();
                // None that is Inf or NaN in either format.
                p.codes.iter_mut().filter(|c| **c & 0x7c == 0x7c).for_each(|c| *c &= 0xbf);
                QTensor::new(p).unwrap()
            };
            (0..3).map(group).collect()
        };
        let (a, b) = (of(Format::E5m2, m, 171), of(Format::E4m3, n, 172));
        let list: Vec<f64> = a.iter().flat_map(|q| q.scale_inv().iter().map(|x| f64::from(*x))).collect();
        let y: Vec<_> = b.iter().map(QTensor::dequantize).collect();
        let got = |decoder: Format, place: &dyn Fn(usize, usize) -> usize| {
            groups_found(&a, &b, &ends, |i, j| {
                let (e, row) = (i / m, i % m);
                let code = |k: usize| decoder.decode(u32::from(a[e].codes()[row * tokens(e) + k]));
                sum(tokens(e), |k| code(k) * y[e][[j, k]]) * list[place(e, row)]
            })
        };
        let one = got(Format::E5m2, &|e, row| 16 * e + row);
        assert_eq!(one.0, "scale_layout:a.index", "{}", one.1);
        assert!(one.1.contains("read 16 lines on for each group instead of 22 (E = 3 groups of L = 22 lines)"), "{}", one.1);
        let two = got(Format::E4m3, &|e, row| 16 * e + row);
        assert!(two.0.contains("scale_layout:a.index") && two.0.contains("bits_reinterpreted:a."), "{two:?}");
        let words = "read 16 lines on for each group instead of 22";
        assert!(two.1.contains(words) && two.1.contains("read as e4m3"), "{}", two.1);
        let decoder = got(Format::E4m3, &|e, row| 22 * e + row);
        assert_eq!(decoder.0, "bits_reinterpreted:a.read_as", "{}", decoder.1);
        // Places by no stride.
        let none = got(Format::E5m2, &|e, row| (e * 31 + row * 17) % 66);
        assert!(!none.1.contains("lines on for each group"), "{none:?}");
    }
}
