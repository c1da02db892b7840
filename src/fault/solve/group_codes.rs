//! Codes of groups along K (gradients of weights) that are read as another format of 8 bits, by scales of lines that lie at another stride from group to
//! group; each by itself, and both.
//!
//! ```text
//! A(i, k)  =  T'(code(i, k)) · flat[S·e + i]        e: the group of token k; right: T of the codes' own format, S = the lines of a group
//! ```
//!
//! Behind the last scale there is 0.

use super::experts::group_scales;
use super::maps::cost;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use crate::quant::Zero;
use std::sync::Arc;

/// Formats of 8 bits that a descriptor may name.
const FORMATS: [Format; 5] = [Format::E4m3, Format::E5m2, Format::E4m3Fnuz, Format::E5m2Fnuz, Format::Int8];
/// How far a stride may be from the lines of a group.
const FAR: usize = 256;

/// Of one operand: every other format, every other stride, and both.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    of(s, side).unwrap_or_default()
}

fn of(s: &System, side: Which) -> Option<Vec<Theory>> {
    let Operand::Groups(groups) = operand(s.scene.evidence.job, side)?.given() else { return None };
    let own = groups.first()?.format();
    let plain = groups.iter().all(|q| q.format() == own && matches!(q.zero(), Zero::None) && q.level().is_none());
    (plain && own.bits() == 8).then_some(())?;
    let scales = group_scales(s, side)?;
    let (g, name) = (s.given(side), side.name());
    let (lines, k_all) = (g.rows, g.k);
    // Codes as they lie along K, and the group of each token.
    let (mut codes, mut group) = (vec![0u8; lines * k_all], vec![0usize; k_all]);
    let mut from = 0;
    for (e, q) in groups.iter().enumerate() {
        (from + q.cols() <= k_all).then_some(())?;
        group[from..from + q.cols()].fill(e);
        for (i, row) in q.codes().chunks(q.cols().max(1)).enumerate() {
            codes[i * k_all + from..][..row.len()].copy_from_slice(row);
        }
        from += q.cols();
    }
    let (codes, group, flat) = (Arc::new(codes), Arc::new(group), Arc::new(scales.concat()));
    let mut formats: Vec<Option<Format>> = vec![None];
    formats.extend(FORMATS.into_iter().filter(|f| *f != own).map(Some));
    let near = lines.saturating_sub(FAR).max(1)..=lines + FAR;
    let mut strides: Vec<usize> = vec![lines];
    // One scale of a group is no line's; of one group there is no stride.
    if groups.len() > 1 && groups.iter().all(|q| q.scale_inv().len() == lines) {
        strides.extend(near.filter(|s| *s != lines));
    }
    let mut all = Vec::new();
    for format in formats {
        let read = format.unwrap_or(own);
        let table: Arc<Vec<f64>> = Arc::new((0..256).map(|c| read.decode(c)).collect());
        for stride in strides.iter().copied().filter(|s| format.is_some() || *s != lines) {
            let of_codes =
                format.map(|f| (Class::BitsReinterpreted, "read_as", format!("codes of {name} ({own}) are read as {f}")));
            let moved = (stride != lines).then(|| {
                let words = format!(
                    "the scales of {name} of group e begin at e·{stride} instead of e·{lines}: line r takes flat scale e·{stride} + r, 0 behind the last"
                );
                (Class::ScaleLayout, "group_stride", words)
            });
            let parts: Vec<(Class, &str, String)> = of_codes.into_iter().chain(moved).collect();
            let Some((class, variant, _)) = parts.first() else { continue };
            let words: Vec<&str> = parts.iter().map(|p| p.2.as_str()).collect();
            let mut t = Theory::new(*class, name, format!("{name}.{variant}"), words.join("; and "));
            for (class, variant, _) in &parts[1..] {
                t.variant += &format!(" + {}:{name}.{variant}", class.name());
            }
            t.bits = if format.is_some() { 3.0 } else { 0.0 }
                + if stride == lines { 0.0 } else { 4.0 + cost(stride) }
                + if parts.len() > 1 { 4.0 } else { 0.0 };
            let (codes, group, flat, table) = (codes.clone(), group.clone(), flat.clone(), table.clone());
            t.side(side).value = Some(Arc::new(move |i, k| {
                let scale = flat.get(group[k] * stride + i).copied().unwrap_or(0.0);
                table[usize::from(codes[i * k_all + k])] * scale
            }));
            all.push(t);
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, groups_found, noise};
    use crate::{Format, QTensor};

    const M: usize = 40;
    const N: usize = 28;
    const ENDS: [usize; 4] = [24, 30, 61, 90];

    #[test]
    fn formats_and_strides_of_groups_are_told() {
        let tokens = [24, 6, 31, 29];
        let of_a: Vec<QTensor> = tokens.iter().map(|n| codes(Format::E5m2, M, *n, *n, false, 81 + n)).collect();
        let of_b: Vec<QTensor> = tokens.iter().map(|n| codes(Format::E4m3, N, *n, *n, false, 7 + n)).collect();
        // No Inf or NaN of e5m2.
        let of_a: Vec<QTensor> = of_a
            .into_iter()
            .map(|q| {
                let mut p = q.into_parts();
                p.codes.iter_mut().for_each(|c| *c &= 0xbf);
                QTensor::new(p).unwrap()
            })
            .collect();
        let flat: Vec<f64> = of_a.iter().flat_map(|q| q.scale_inv().iter().map(|s| f64::from(*s))).collect();
        let of = |format: Format, place: &dyn Fn(usize, usize) -> usize| {
            groups_found(&of_a, &of_b, &ENDS, |row, j| {
                let (e, i) = (row / M, row % M);
                let (x, y) = (&of_a[e], &of_b[e]);
                let scale = flat.get(place(e, i)).copied().unwrap_or(0.0) * f64::from(y.scale_inv()[j]);
                let code = |q: &QTensor, f: Format, i: usize, k: usize| f.decode(u32::from(q.codes()[i * q.cols() + k]));
                (0..x.cols()).map(|k| code(x, format, i, k) * code(y, Format::E4m3, j, k)).sum::<f64>() * scale
            })
        };
        let got = of(Format::E4m3, &|e, i| e * M + i);
        assert_eq!(got.0, "bits_reinterpreted:a.read_as", "{}", got.1);
        assert!(got.1.contains("codes of a (e5m2) are read as e4m3"), "{}", got.1);
        let got = of(Format::E5m2, &|e, i| e * 32 + i);
        assert_eq!(got.0, "scale_layout:a.group_stride", "{}", got.1);
        let got = of(Format::E4m3, &|e, i| e * 32 + i);
        assert_eq!(got.0, "bits_reinterpreted:a.read_as + scale_layout:a.group_stride", "{}", got.1);
        assert!(got.1.contains("are read as e4m3; and the scales of a of group e begin at e·32 instead of e·40"), "{}", got.1);
        // Scales by no stride.
        let got = of(Format::E4m3, &|e, i| (noise(e * M + i) * flat.len() as f64) as usize);
        assert!(!got.0.contains("group_stride"), "{} {}", got.0, got.1);
    }
}
