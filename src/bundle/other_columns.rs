//! Codes of a cast that are made of another column of their row, and by another encoder as well or not: a cache of the row that is smaller than it is, a
//! vector that is read in another order.
//!
//! ```text
//! code(r, c) = encoder( x(r, p(c)) / scale_inv(r, c) )          p(c) = c mod P, c + d, c xor m, …
//! ```

use super::encoders::{Cast, ENCODERS, Element, Encoder, Named, nearest};
use crate::fault::Class;
use crate::tensor::round_to;
use crate::{Format, Overflow, Rounding};
use std::collections::BTreeSet;

/// Wrong codes that say something, at least, and different codes among them.
const LEAST: usize = 64;
const CODES: usize = 8;
/// The share of wrong codes, and of all, that has to be made.
const SHARE: f64 = 0.98;
/// Wrong codes that are asked first, and those that are asked before all.
const FIRST: usize = 8;
const FEW: usize = 128;
/// Columns that one may be off.
const FAR: usize = 64;
/// Sizes of a cache that may be any number; beyond they are whole vectors.
const ANY: usize = 512;

/// An encoder as [`ENCODERS`] has them.
type How = (Class, &'static str, &'static str, Encoder);

/// Words, and the column whose value is taken.
type From = (String, Box<dyn Fn(usize) -> usize>);

fn ways(cols: usize) -> Vec<From> {
    let mut all: Vec<From> = Vec::new();
    let sizes = || (1..).map(|n| 1usize << n).take_while(move |p| *p < cols);
    for p in sizes().collect::<Vec<_>>().into_iter().rev() {
        let words = format!("c mod {p} (c & {}), as of a cache of {p} elements", p - 1);
        all.push((words, Box::new(move |c| c % p)));
    }
    for p in (3..cols).filter(|p| !p.is_power_of_two() && (*p <= ANY || p % 8 == 0)) {
        all.push((format!("c mod {p}, as of a cache of {p} elements"), Box::new(move |c| c % p)));
    }
    for d in 1..=FAR.min(cols - 1) {
        all.push((format!("c + {d}, wrapped"), Box::new(move |c| (c + d) % cols)));
        all.push((format!("c − {d}, wrapped"), Box::new(move |c| (c + cols - d) % cols)));
        all.push((format!("c + {d}, or the last where there is none"), Box::new(move |c| (c + d).min(cols - 1))));
        all.push((format!("c − {d}, or the first where there is none"), Box::new(move |c| c.saturating_sub(d))));
    }
    for m in std::iter::once(1).chain(sizes().flat_map(|p| [p, 2 * p - 1])) {
        all.push((format!("c xor {m}"), Box::new(move |c| if c ^ m < cols { c ^ m } else { c })));
    }
    for p in sizes() {
        all.push((format!("c / {p}"), Box::new(move |c| c / p)));
        all.push((format!("(c / {p})·{p}"), Box::new(move |c| c / p * p)));
    }
    all.push(("the last less c".into(), Box::new(move |c| cols - 1 - c)));
    all
}

/// The high byte of an f16.
fn high_byte(e: &Element) -> Option<f64> {
    let half = f64::from(round_to(Format::F16, e.y() as f32));
    let top = e.format.max_finite();
    let code = Format::E5m2.encode(half.clamp(-top, top), Rounding::TowardZero, Overflow::Saturate);
    (e.format == Format::E5m2).then(|| Format::E5m2.decode(code))
}

impl Cast<'_> {
    /// Codes of other columns, by a right encoder or a wrong one.
    pub fn of_other_columns(&self) -> Option<Named> {
        let (cols, finite) = (self.q.cols(), self.finite());
        let wrong: Vec<usize> = finite.iter().copied().filter(|at| !self.right(*at)).collect();
        (cols > 2 && wrong.len() >= LEAST).then_some(())?;
        let own: How = (Class::Rounding, "", "", |e| Some(nearest(e.format, e.y() + e.zero)));
        let high: How =
            (Class::Rounding, "high_byte", "codes are the high byte of an f16: cut toward zero, not rounded", high_byte);
        let encoders: Vec<How> = [own, high].into_iter().chain(ENCODERS.iter().copied()).collect();
        let few: Vec<usize> = wrong.iter().copied().step_by(wrong.len().div_ceil(FEW)).collect();
        let first: Vec<usize> = few.iter().copied().step_by(few.len().div_ceil(FIRST)).collect();
        // Of all that make as much, the first.
        let mut best: Option<(usize, How, String)> = None;
        for (words, from) in ways(cols) {
            let place = |at: usize| at / cols * cols + from(at % cols);
            for how in &encoders {
                let encoder = how.3;
                let is = |at: &usize| self.is_of(*at, place(*at), encoder);
                let share = |all: &[usize]| all.iter().filter(|at| is(at)).count() as f64 >= SHARE * all.len() as f64;
                if !first.iter().all(is) || !share(&few) || !share(&wrong) || !share(&finite) {
                    continue;
                }
                // What a value of its own column makes by this encoder says nothing of another.
                let told: Vec<usize> = wrong.iter().copied().filter(|at| is(at) && !self.is_of(*at, *at, encoder)).collect();
                let codes: BTreeSet<u8> = told.iter().map(|at| self.q.codes()[*at]).collect();
                if told.len() < LEAST || 8 * told.len() < wrong.len() || codes.len() < CODES {
                    continue;
                }
                let missed = finite.iter().filter(|at| !is(at)).count();
                if best.as_ref().is_none_or(|b| missed < b.0) {
                    best = Some((missed, *how, words.clone()));
                }
            }
            // What makes every code is not asked for again.
            if best.as_ref().is_some_and(|b| b.0 == 0) {
                break;
            }
        }
        let (_, (class, variant, how, _), place) = best?;
        let words = format!("the code of column c is that of column {place}, by its own scale");
        if how.is_empty() {
            return Some((Class::Addressing, "out.columns".into(), words));
        }
        let both = format!("out.columns + {}:out.{variant}", class.name());
        Some((Class::Addressing, both, format!("{words}; and {how}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Granularity, QTensor, Tensor, Zero};

    const ROWS: usize = 12;
    const COLS: usize = 150;

    /// What is said of a cast by rows whose column c has the code that `encode` makes of the value of column `from(c)`.
    fn said(format: Format, from: &dyn Fn(usize) -> usize, encode: &dyn Fn(f64) -> u8) -> Option<String> {
        let value = |at: usize| ((at * 7919 + at / COLS * 53) % 2003) as f32 / 700.0 - 1.4;
        let x = Tensor::rounded(Format::Bf16, ROWS, COLS, (0..ROWS * COLS).map(value).collect()).unwrap();
        let scale = |row: usize| 1.5 / format.max_finite() as f32 * (1.0 + row as f32 / 16.0);
        let code = |at: usize| {
            let (r, c) = (at / COLS, at % COLS);
            encode(f64::from(x.row(r)[from(c)]) / f64::from(scale(r)))
        };
        let q = QTensor::new(QTensorParts {
            format,
            rows: ROWS,
            cols: COLS,
            codes: (0..ROWS * COLS).map(code).collect(),
            granularity: Granularity::Row,
            scale_format: Format::F32,
            scale_inv: (0..ROWS).map(scale).collect(),
            zero: Zero::None,
            level: None,
        })
        .unwrap();
        Cast::of(&x, &q)?.of_other_columns().map(|f| f.2)
    }

    #[test]
    fn columns_of_a_cache_and_their_encoder_are_named_together() {
        let round = |f: Format| move |y: f64| f.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8;
        let cut = |f: Format| move |y: f64| f.encode(y, Rounding::TowardZero, Overflow::Saturate) as u8;
        let words = said(Format::E4m3, &|c| c % 64, &round(Format::E4m3)).unwrap();
        assert_eq!(
            words,
            "the code of column c is that of column c mod 64 (c & 63), as of a cache of 64 elements, by its own scale"
        );
        let words = said(Format::E4m3, &|c| c % 96, &cut(Format::E4m3)).unwrap();
        assert!(
            words.contains("c mod 96, as of a cache of 96") && words.ends_with("; and codes are cut toward zero"),
            "{words}"
        );
        let byte = |y: f64| {
            let half = f64::from(round_to(Format::F16, y as f32));
            Format::E5m2.encode(half, Rounding::TowardZero, Overflow::Saturate) as u8
        };
        let words = said(Format::E5m2, &|c| c ^ 1, &byte).unwrap();
        assert!(words.contains("column c xor 1, by") && words.contains("; and codes are the high byte of an f16"), "{words}");
        let words = said(Format::Int8, &|c| (c + 5).min(COLS - 1), &|y| y.floor().clamp(-128.0, 127.0) as i8 as u8).unwrap();
        assert!(words.contains("column c + 5, or the last") && words.ends_with("; and codes are rounded toward −∞"), "{words}");
    }

    #[test]
    fn a_column_of_no_rule_and_one_encoder_alone_are_not_named() {
        let round = |y: f64| Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8;
        let cut = |y: f64| Format::E4m3.encode(y, Rounding::TowardZero, Overflow::Saturate) as u8;
        assert_eq!(said(Format::E4m3, &|c| c * c % COLS, &round), None);
        assert_eq!(said(Format::E4m3, &|c| c, &cut), None);
        assert_eq!(said(Format::E4m3, &|c| c % 64, &|y| round(1.2 * y)), None);
    }
}
