//! Scales of a second level that are taken for others of the first: the index of the second level runs along another axis of the grid of scales, or
//! counts another number of them.
//!
//! ```text
//! scale of group g = stored[g]·over[m(g)]        m: the column of the grid, g mod L, g / k, another row's … of L numbers
//! ```

use super::casts::Named;
use crate::QTensor;
use crate::fault::Class;

/// Groups that another number shows in, at least, and how far from its own it is then, relative.
const LEAST: usize = 8;
const APART: f64 = 1.0 / 256.0;
/// Shifts of the index, and groups that one number may be for, at most.
const FAR: usize = 64;

/// Which number of the second level each group has, in words. `holds`: whether a group's scale may be this; `known`: groups that say something.
pub fn explain(
    q: &QTensor,
    (rows, cols): (usize, usize),
    known: &[usize],
    holds: &dyn Fn(usize, f64) -> bool,
) -> Option<Named> {
    let level = q.level().filter(|l| l.scale_inv.len() > 1)?;
    let (tile, across) = (level.granularity.tile(rows, cols), level.granularity.grid(rows, cols).1);
    let (n, down) = (level.scale_inv.len(), level.scale_inv.len() / across.max(1));
    let own = |g: usize| g / cols / tile.0 * across + g % cols / tile.1;
    let scale = |g: usize, t: usize| f64::from(q.scale_inv()[g]) * f64::from(level.scale_inv[t]);
    let is = |map: &dyn Fn(usize) -> usize| {
        let made = |g: &usize| {
            let t = map(*g);
            t < n && holds(*g, scale(*g, t))
        };
        let apart = |g: &&usize| {
            let (a, b) = (scale(**g, map(**g)), scale(**g, own(**g)));
            (a - b).abs() > APART * b.abs()
        };
        known.iter().all(made) && known.iter().filter(apart).count() >= LEAST
    };
    let place = format!(
        "of the {down}×{across} numbers of the second level, group (r, c) of the {rows}×{cols} grid of scales has number "
    );
    let named = |words: String| Some((Class::ScaleIndex, "a.over_index", format!("{place}{words}")));
    let whose = if across == 1 {
        " and not r".to_string() + &if tile.0 > 1 { format!(" / {}", tile.0) } else { String::new() }
    } else {
        String::new()
    };
    let plain: [(String, &dyn Fn(usize) -> usize); 6] = [
        (format!("c{whose}: it is multiplied along the other axis"), &|g| g % cols),
        (format!("c mod {n}{whose}: it is multiplied along the other axis"), &|g| g % cols % n),
        (format!("(r·{cols} + c) mod {n}"), &|g| g % n),
        ("(its own, transposed)".into(), &|g| own(g) % across * down + own(g) / across),
        ("0".into(), &|_| 0),
        (format!("r mod {n}"), &|g| g / cols % n),
    ];
    if let Some((words, _)) = plain.iter().find(|(_, map)| is(*map)) {
        return named(words.clone());
    }
    let counted = (1..=FAR).find(|k| is(&|g| g / k));
    if let Some(k) = counted {
        return named(format!("(r·{cols} + c) / {k}"));
    }
    (1..n.min(FAR)).find(|d| is(&|g| (own(g) + d) % n)).and_then(|d| {
        let (sign, by) = if 2 * d <= n { ('+', d) } else { ('−', n - d) };
        named(format!("its own {sign} {by}, wrapped"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{Level, QTensorParts, Zero};
    use crate::{Format, Granularity};

    /// What is said of 12 rows of 12 groups, one number of the second level a row, where group g has that of another.
    fn said(granularity: Granularity, of: &dyn Fn(usize) -> usize) -> String {
        let (rows, cols, groups) = (12usize, 12usize, 144usize);
        let n = granularity.grid(rows, cols);
        let q = QTensor::new(QTensorParts {
            format: Format::Int8,
            rows,
            cols: cols * 8,
            codes: vec![1; groups * 8],
            granularity: Granularity::Group(8),
            scale_format: Format::F16,
            scale_inv: (0..groups).map(|g| 1.0 + (g * 37 % 61) as f32 / 64.0).collect(),
            zero: Zero::None,
            level: Some(Level {
                granularity,
                format: Format::F32,
                scale_inv: (0..n.0 * n.1).map(|t| 0.25 + (t * 5 % 13) as f32 / 16.0).collect(),
                zero: None,
            }),
        })
        .unwrap();
        let over = |t: usize| f64::from(q.level().unwrap().scale_inv[t]);
        let holds = |g: usize, s: f64| (s - f64::from(q.scale_inv()[g]) * over(of(g))).abs() < 1e-9;
        let known: Vec<usize> = (0..groups).filter(|g| g % 10 != 3).collect();
        explain(&q, (rows, cols), &known, &holds).map(|f| f.2).unwrap_or_default()
    }

    #[test]
    fn a_second_level_along_another_axis_is_named() {
        let rows = Granularity::Group(12);
        let words = said(rows, &|g| g % 12);
        assert!(
            words.ends_with(
                "group (r, c) of the 12×12 grid of scales has number c and not r: it is multiplied along the other axis"
            ),
            "{words}"
        );
        assert!(said(rows, &|g| (g / 12 + 1) % 12).ends_with("has number its own + 1, wrapped"));
        assert!(said(Granularity::Group(6), &|g| g / 8).ends_with("has number (r·12 + c) / 8"));
        assert!(said(Granularity::Group(6), &|g| g / 6 % 2 * 12 + g / 12).ends_with("(its own, transposed)"));
        assert_eq!(said(rows, &|g| g / 12), "", "it is right");
        assert_eq!(said(rows, &|g| (g * 7 + g / 12 * 5) % 12), "", "of no place");
    }
}
