//! Elements of a result that hold the bytes of an operand as it lies in memory: a late copy landed where results were staged, or one buffer is used
//! twice.
//!
//! ```text
//! bytes of a run of wrong elements of one row  =  bytes of an operand's row, from some byte on
//! ```

use super::Bundle;
use super::operand::{BundleOperand, Codes};
use crate::Format;
use crate::assay::Judgement;
use crate::fault::solve::segment::lines;
use crate::fault::{Class, Finding};
use crate::format::pack::{NibbleOrder, pack4};
use crate::job::Data;
use crate::op::Op;
use std::collections::HashMap;

/// Bytes that are looked up, and bytes that one run has to have at least: chance finds four in a megabyte once in 4000 runs, eight never.
const KEY: usize = 8;
type Key = [u8; KEY];
/// Wrong elements that have to be found, at least, and their share; wrong elements at most.
const LEAST: usize = 16;
const SHARE: f64 = 0.95;
const MOST: usize = 1 << 16;

/// What the wrong elements hold. `None`: no operand's bytes, or too few.
pub fn explain(bundle: &Bundle, judged: &Judgement) -> Option<Finding> {
    let Data::High(out) = &bundle.out.d else { return None };
    let (rows, cols) = (out.rows(), out.cols());
    (judged.actual.len() == rows * cols && cols > 0).then_some(())?;
    let is_wrong = |at: &usize| {
        let (low, high) = judged.bound.allowed(*at);
        !(low <= judged.actual[*at] && judged.actual[*at] <= high)
    };
    let wrong: Vec<usize> = (0..rows * cols).filter(is_wrong).collect();
    (LEAST..=MOST).contains(&wrong.len()).then_some(())?;
    let result = out.bits();
    let wide = result.len() / (rows * cols);
    let key = |at: usize| result.get(at * wide..at * wide + KEY).and_then(|k| Key::try_from(k).ok());
    // Zeros and repeated numbers lie everywhere.
    let varied = |k: &Key| (0..KEY).filter(|n| !k[..*n].contains(&k[*n])).count() >= 4;
    let mut places: HashMap<Key, Option<(usize, usize)>> =
        wrong.iter().filter_map(|at| key(*at)).filter(varied).map(|k| (k, None)).collect();
    let memory: Vec<(&str, Vec<u8>)> =
        [("a", &bundle.a), ("b", &bundle.b)].into_iter().filter_map(|(name, side)| Some((name, bytes_of(side)?))).collect();
    for (which, (_, bytes)) in memory.iter().enumerate() {
        for (from, k) in bytes.windows(KEY).enumerate() {
            if let Some(place) = places.get_mut(k) {
                place.get_or_insert((which, from));
            }
        }
    }
    // Every element of the run around a key: a NaN keeps no bytes of its own, any that makes one is the same.
    let is = |at: usize, (which, from): (usize, usize)| {
        let theirs: Option<&[u8]> = memory[which].1.get(from..from + wide);
        theirs.is_some_and(|t| *t == result[at * wide..][..wide] || out.data()[at].is_nan() && is_nan(out.dtype(), t))
    };
    let mut source: HashMap<usize, (usize, usize)> = HashMap::new();
    for at in &wrong {
        if source.contains_key(at) {
            continue;
        }
        let Some((which, from)) = key(*at).and_then(|k| places.get(&k).copied().flatten()) else { continue };
        let (left, right) = (at % cols, cols - at % cols);
        let behind = (0..right).map(|n| (at + n, (which, from + n * wide)));
        let before = (1..=left.min(from / wide)).map(|n| (at - n, (which, from - n * wide)));
        for (at, from) in behind.take_while(|(at, from)| is(*at, *from)).chain(before.take_while(|(at, from)| is(*at, *from))) {
            source.entry(at).or_insert(from);
        }
    }
    let (mut is_row, mut is_col) = (vec![false; rows], vec![false; cols]);
    let found: Vec<(usize, usize)> = wrong.iter().filter_map(|at| source.get(at).copied()).collect();
    wrong.iter().filter(|at| source.contains_key(at)).for_each(|at| (is_row[at / cols], is_col[at % cols]) = (true, true));
    (found.len() >= LEAST && found.len() as f64 >= SHARE * wrong.len() as f64).then_some(())?;
    // What stands where its own input stands was let through as it is.
    let width = bundle.a.high.as_ref().map_or(0, |x| x.cols());
    let through = |at: &usize| source.get(at).is_none_or(|from| *from == (0, (at / cols * width + at % cols) * wide));
    if matches!(bundle.meta.op, Op::Activation | Op::Gated | Op::Layernorm | Op::Rmsnorm) && wrong.iter().all(through) {
        let words = format!(
            "{} of {} wrong elements, in rows {}, columns {}, are those of a itself: nothing is applied to them",
            found.len(),
            wrong.len(),
            lines(&is_row),
            lines(&is_col)
        );
        return Some(Finding::solved(Class::SilentSkip, "out.let_through", words));
    }
    let of: Vec<&str> = (0..memory.len()).filter(|m| found.iter().any(|f| f.0 == *m)).map(|m| memory[m].0).collect();
    let words = format!(
        "{} of {} wrong elements, in rows {}, columns {}, hold the bytes of {} as it lies in memory (from byte {} on): a copy of it landed \
         where results were staged",
        found.len(),
        wrong.len(),
        lines(&is_row),
        lines(&is_col),
        of.join(" and of "),
        found[0].1
    );
    Some(Finding::solved(Class::Race, "out.operand_bytes", words))
}

/// An operand as it lies in memory: codes of four bits two a byte, the first in the low half.
fn bytes_of(side: &BundleOperand) -> Option<Vec<u8>> {
    match (&side.codes, &side.high) {
        (Some(Codes::Whole(q)), _) if q.format().bits() == 4 => pack4(q.codes(), NibbleOrder::LowFirst).ok(),
        (Some(Codes::Whole(q)), _) => Some(q.codes().to_vec()),
        (None, Some(t)) => Some(t.bits()),
        _ => None,
    }
}

fn is_nan(f: Format, bytes: &[u8]) -> bool {
    let mut code = [0; 4];
    code[..bytes.len()].copy_from_slice(bytes);
    if f == Format::F32 { f32::from_le_bytes(code).is_nan() } else { f.decode(u32::from_le_bytes(code)).is_nan() }
}

#[cfg(test)]
mod tests {
    use super::super::named_tests::{ROW, dot, found, gemm, quantized};
    use crate::compare::Verdict;
    use crate::{Format, Overflow};

    #[test]
    fn elements_that_hold_the_bytes_of_an_operand_are_told() {
        let (a, b) = (quantized(ROW, 32, 160, 31), quantized(ROW, 64, 160, 32));
        let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
        // Two codes of a are one f16, in rows 8 … 11 and columns 16 … 31.
        let staged = |i: usize, j: usize| {
            let at = (i - 8) * 160 + 2 * (j - 16);
            Format::F16.decode(u32::from(a.codes()[at]) | u32::from(a.codes()[at + 1]) << 8)
        };
        let hit = |i: usize, j: usize| (8..12).contains(&i) && (16..32).contains(&j);
        let told = found(&gemm(&a, &b, Format::F16, |i, j| if hit(i, j) { staged(i, j) } else { dot(&x, &y, i, j) }));
        assert_eq!((told.0, told.1.as_str()), (Verdict::Fail, "race:out.operand_bytes"), "{}", told.2);
        assert!(told.2.contains("rows 8 … 11, columns 16 … 31, hold the bytes of a"), "{}", told.2);
        // A whole tile is told by its bytes too, and not as a tile that nothing explains.
        let (tall, wide) = (quantized(ROW, 96, 160, 33), quantized(ROW, 96, 160, 34));
        let (x2, y2) = (tall.dequantize_fast(), wide.dequantize_fast());
        let tile = |i: usize, j: usize| {
            let at = (i - 32) * 160 + 2 * (j - 64);
            Format::F16.decode(u32::from(tall.codes()[at]) | u32::from(tall.codes()[at + 1]) << 8)
        };
        let inside = |i: usize, j: usize| (32..64).contains(&i) && (64..96).contains(&j);
        let w = gemm(&tall, &wide, Format::F16, |i, j| if inside(i, j) { tile(i, j) } else { dot(&x2, &y2, i, j) });
        assert_eq!(found(&w).1, "race:out.operand_bytes");
        // The same numbers one bit off are nobody's.
        let near = |v: f64| {
            let code = Format::F16.encode(v, crate::Rounding::NearestEven, Overflow::Native);
            Format::F16.decode(code ^ 1)
        };
        let told = found(&gemm(&a, &b, Format::F16, |i, j| if hit(i, j) { near(staged(i, j)) } else { dot(&x, &y, i, j) }));
        assert_ne!(told.1, "race:out.operand_bytes");
    }

    /// A row whose number is beyond the number of columns is read as any other.
    #[test]
    fn bytes_of_an_operand_are_told_in_rows_beyond_the_number_of_columns() {
        let (a, b) = (quantized(ROW, 96, 160, 35), quantized(ROW, 32, 160, 36));
        let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
        let staged = |i: usize, j: usize| {
            let at = (i - 80) * 160 + 2 * (j - 8);
            Format::F16.decode(u32::from(a.codes()[at]) | u32::from(a.codes()[at + 1]) << 8)
        };
        let hit = |i: usize, j: usize| (80..84).contains(&i) && (8..24).contains(&j);
        let w = gemm(&a, &b, Format::F16, |i, j| if hit(i, j) { staged(i, j) } else { dot(&x, &y, i, j) });
        let bundle = super::Bundle::parse(std::path::Path::new("x"), &w.to_bytes().unwrap()).unwrap();
        let answer = super::super::assay::assay(&bundle).unwrap();
        let told = super::explain(&bundle, answer.judgement()).unwrap();
        assert!(told.detail.contains("rows 80 … 83, columns 8 … 23, hold the bytes of a"), "{}", told.detail);
    }
}
