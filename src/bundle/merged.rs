//! Codes of a cast that were combined with older ones: a register or a byte still holds the codes of the round before when the next ones are or-ed,
//! added or xor-ed into it.
//!
//! ```text
//! written(p) = right(p) ∘ written(p − d)        ∘ of or, and, xor, +;   p in some columns of every period
//! ```

use super::encoders::{Cast, LEAST, Named, SHARE};
use crate::fault::Class;
use crate::fault::solve::segment::lines;
use crate::{Overflow, Rounding};

/// Elements that a distance is refused by.
const FEW: usize = 24;
/// Of those, how many it may not make.
const MISSED: usize = 1;

/// How two codes become one, and its name.
type Merge = (&'static str, fn(u32, u32) -> u32);
const MERGES: [Merge; 4] = [
    ("or-ed into", |x, y| x | y),
    ("added to", |x, y| x.wrapping_add(y)),
    ("xor-ed into", |x, y| x ^ y),
    ("and-ed with", |x, y| x & y),
];

impl Cast<'_> {
    /// The distance and the operation that make every wrong code of what stands that far before or behind it.
    pub fn merged(&self) -> Option<Named> {
        let (f, rows, cols, codes) = (self.q.format(), self.q.rows(), self.q.cols(), self.q.codes());
        let n = rows * cols;
        let mask = (1u32 << f.bits()) - 1;
        let right: Vec<u32> = (0..n)
            .map(|at| {
                let e = self.element(at);
                f.encode(e.y() + e.zero, Rounding::NearestEven, Overflow::Saturate) & mask
            })
            .collect();
        let code = |at: usize| u32::from(codes[at]) & mask;
        // Codes of one number are one: +0 and −0.
        let same = |x: u32, y: u32| x == y || f.decode(x) == f.decode(y);
        let wrong: Vec<usize> = (0..n).filter(|at| !same(code(*at), right[*at])).collect();
        (wrong.len() >= 2 * LEAST).then_some(())?;
        let few: Vec<usize> = wrong.iter().copied().step_by(wrong.len().div_ceil(FEW)).collect();
        let source = |at: usize, d: i64| at.checked_add_signed(d as isize).filter(|x| *x < n);
        let mut is_col = vec![false; cols];
        wrong.iter().for_each(|at| is_col[at % cols] = true);
        let distances = (1..2 * cols as i64).flat_map(|d| [-d, d]);
        for (d, (words, merge)) in distances.flat_map(|d| MERGES.iter().map(move |m| (d, m))) {
            let makes = |at: usize| source(at, d).is_some_and(|x| same(merge(right[at], code(x)) & mask, code(at)));
            if few.iter().filter(|at| !makes(**at)).count() > MISSED {
                continue;
            }
            // All of the columns that have a wrong code, where there is a round before.
            let inside: Vec<usize> = (0..n).filter(|at| is_col[at % cols] && source(*at, d).is_some()).collect();
            let made = |all: &[usize]| all.iter().filter(|at| makes(**at)).count() as f64 >= SHARE * all.len() as f64;
            // What only repeats the code there, such as zeros, is no merge.
            let repeats = wrong.iter().filter(|at| source(**at, d).is_some_and(|x| code(x) == code(**at))).count();
            if 2 * repeats > wrong.len() || !made(&wrong) || !made(&inside) {
                continue;
            }
            let (by, side) = (d.unsigned_abs(), if d < 0 { "before" } else { "behind" });
            let codes = if by == 1 { "code".to_string() } else { format!("{by} codes") };
            let period = self.q.granularity().tile(rows, cols).1;
            let words = format!(
                "codes are {words} those {codes} {side} them, in {}: what held them is not cleared between two rounds",
                columns(&is_col, period)
            );
            return Some((Class::AccState, "out.merged".into(), words));
        }
        None
    }
}

/// Columns in words, those of every period where they are.
fn columns(is_col: &[bool], period: usize) -> String {
    let repeats = period > 1 && 2 * period <= is_col.len() && (period..is_col.len()).all(|c| is_col[c] == is_col[c % period]);
    let all = if repeats { &is_col[..period] } else { is_col };
    if all.iter().all(|x| *x) {
        return "all columns".into();
    }
    let every = if repeats { format!(" of every {period}") } else { String::new() };
    format!("columns {}{every}", lines(all))
}

#[cfg(test)]
mod tests {
    use super::super::{Bundle, Writer, assay::assay};
    use crate::format::pack::{NibbleOrder, pack4};
    use crate::{Format, Overflow, Rounding, Tensor};
    use safetensors::Dtype;
    use std::path::Path;

    /// A cast of int4 in groups of 24 whose codes become `made(right, written before, place)`.
    fn cast(made: impl Fn(u8, &[u8], usize) -> u8) -> (String, String) {
        let (rows, cols) = (20, 48);
        let data: Vec<f32> = (0..rows * cols).map(|x| ((x * 7919 + x * x % 613) % 1009) as f32 / 72.0 - 7.0).collect();
        let x = Tensor::rounded(Format::F32, rows, cols, data).unwrap();
        let mut codes: Vec<u8> = Vec::new();
        for (at, v) in x.data().iter().enumerate() {
            let right = Format::Int4.encode(f64::from(*v), Rounding::NearestEven, Overflow::Saturate) as u8 & 15;
            codes.push(made(right, &codes, at));
        }
        let mut w = Writer::new("cast");
        w.values("a", &[rows, cols], &x).raw(
            "out.codes",
            Dtype::U8,
            &[rows, cols / 2],
            pack4(&codes, NibbleOrder::LowFirst).unwrap(),
        );
        w.meta("out.format", "int4").meta("out.packing", "low_first").meta("out.granularity", "group:24");
        w.f32s("out.scale_inv", &[rows, 2], &vec![1.0; 2 * rows]);
        let found = assay(&Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap()).unwrap();
        let best = found.diagnosis.as_ref().and_then(|d| d.findings.first());
        best.map_or_else(Default::default, |f| (f.fault.clone(), f.detail.clone()))
    }

    #[test]
    fn codes_that_are_put_onto_those_before_are_told() {
        let later = |at: usize| at % 24 >= 12;
        for (merge, words) in [
            (u8::wrapping_add as fn(u8, u8) -> u8, "added to"),
            (|x, y| x | y, "or-ed into"),
            (|x, y| x ^ y, "xor-ed into"),
            (|x, y| x & y, "and-ed with"),
        ] {
            let got = cast(|right, codes, at| if later(at) { merge(right, codes[at - 12]) & 15 } else { right });
            assert_eq!(got.0, "acc_state:out.merged", "{}", got.1);
            assert!(
                got.1.contains(&format!("{words} those 12 codes before them, in columns 12 … 23 of every 24")),
                "{}",
                got.1
            );
        }
    }

    #[test]
    fn foreign_codes_are_none() {
        let got = cast(|right, _, at| if at % 3 == 0 { ((at * at * 31 + at / 7) % 16) as u8 } else { right });
        assert!(!got.0.contains("merged"), "{got:?}");
    }

    #[test]
    fn columns_of_every_period_are_told_as_such() {
        let of =
            |n: usize, period: usize, is: fn(usize) -> bool| super::columns(&(0..n).map(is).collect::<Vec<bool>>(), period);
        assert_eq!(of(12, 4, |c| c % 4 == 1), "columns 1 of every 4");
        assert_eq!(of(8, 4, |c| c % 4 == 1), "columns 1 of every 4");
        // Not twice as wide as a period, or no period at all.
        assert_eq!(
            [of(7, 4, |c| c % 4 == 1), of(12, 1, |c| c == 1), of(12, 4, |c| c == 1)],
            ["columns 1, 5", "columns 1", "columns 1"]
        );
        assert_eq!([of(12, 4, |_| true), of(3, 4, |_| true)], ["all columns", "all columns"]);
    }
}
