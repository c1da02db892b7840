//! Elements of a result that hold the bytes of an operand as it lies in memory: a late copy landed where results were staged, or one buffer is used
//! twice.
//!
//! ```text
//! bytes of a run of wrong elements of one row  =  bytes of an operand's row, from some byte on
//! ```

use super::Bundle;
use super::operand::Codes;
use crate::assay::Judgement;
use crate::fault::solve::segment::lines;
use crate::fault::{Class, Finding};
use crate::job::Data;
use crate::{Format, Overflow, QTensor, Rounding, Tensor};
use std::collections::HashMap;

/// Bytes that are looked up, and bytes that one run has to have at least: chance finds four in a megabyte once in 4000 runs, eight never.
const KEY: usize = 8;
/// Elements that have to be found, at least, and their share of the wrong ones.
const LEAST: usize = 16;
const SHARE: f64 = 0.95;

/// What the wrong elements hold. `None`: no operand's bytes, or too few.
pub fn explain(bundle: &Bundle, judged: &Judgement) -> Option<Finding> {
    let Data::High(out) = &bundle.out.d else { return None };
    let (rows, cols) = (out.rows(), out.cols());
    let bound = &judged.bound;
    let is_wrong = |at: usize| {
        let (low, high) = bound.out().cell(at, judged.actual[at]);
        let (x, r) = (bound.ideal()[at], bound.certain()[at]);
        !(low - r <= x && x <= high + r)
    };
    let wrong: Vec<bool> = (0..judged.actual.len()).map(is_wrong).collect();
    (wrong.len() == rows * cols && cols > 0).then_some(())?;
    let result = of_values(out);
    let wide = result.len() / (rows * cols);
    // Runs of wrong elements within a row; an element between them may be right by chance.
    let mut found = 0;
    let mut told: Vec<(&'static str, usize)> = Vec::new();
    let memory: Vec<(&'static str, Vec<u8>)> = [("a", &bundle.a), ("b", &bundle.b)]
        .into_iter()
        .filter_map(|(name, side)| {
            let bytes = match (&side.codes, &side.high) {
                (Some(Codes::Whole(q)), _) => of_codes(q),
                (None, Some(t)) => of_values(t),
                _ => return None,
            };
            Some((name, bytes))
        })
        .collect();
    let mut places: HashMap<[u8; KEY], (usize, usize)> = HashMap::new();
    for (which, (_, bytes)) in memory.iter().enumerate() {
        for (at, key) in bytes.windows(KEY).enumerate() {
            // Zeros and repeated numbers lie everywhere.
            let plain = key.iter().collect::<std::collections::HashSet<_>>().len() < 4;
            if let (false, Ok(key)) = (plain, key.try_into()) {
                places.entry(key).or_insert((which, at));
            }
        }
    }
    let (mut is_row, mut is_col) = (vec![false; rows], vec![false; cols]);
    let count = wrong.iter().filter(|w| **w).count();
    let mut is_hit = vec![false; wrong.len()];
    for i in 0..rows {
        let mut j = 0;
        while j < cols {
            let bytes = |j: usize| (i * cols + j) * wide;
            let key = if wrong[i * cols + j] { result.get(bytes(j)..bytes(j) + KEY) } else { None };
            let Some(&(which, from)) = key.and_then(|k| <[u8; KEY]>::try_from(k).ok()).and_then(|k| places.get(&k)) else {
                j += 1;
                continue;
            };
            // A NaN keeps no bytes of its own: any that makes one is the same.
            let is = |j: usize, at: usize| {
                let own = &result[bytes(j)..bytes(j + 1)];
                let theirs = memory[which].1.get(at..at + wide);
                theirs.is_some_and(|t| t == own || out.row(i)[j].is_nan() && is_nan(out.dtype(), t))
            };
            let to = j + (j..cols).enumerate().take_while(|(n, j)| is(*j, from + n * wide)).count();
            let before = |n: &usize| *n * wide <= from && wrong[i * cols + j - n] && is(j - n, from - n * wide);
            let first = j - (1..=j).take_while(before).count();
            for x in (first..to).filter(|x| wrong[i * cols + x]) {
                found += usize::from(!is_hit[i * cols + x]);
                (is_hit[i * cols + x], is_row[i], is_col[x]) = (true, true, true);
            }
            told.push((memory[which].0, from));
            j = to.max(j + 1);
        }
    }
    (found >= LEAST && found as f64 >= SHARE * count as f64).then_some(())?;
    let of: Vec<&str> = ["a", "b"].into_iter().filter(|name| told.iter().any(|t| t.0 == *name)).collect();
    let words = format!(
        "{found} of {count} wrong elements, in rows {}, columns {}, hold the bytes of {} as it lies in memory (from byte {} on): a copy of it landed \
         where results were staged",
        lines(&is_row),
        lines(&is_col),
        of.join(" and of "),
        told[0].1
    );
    Some(Finding::solved(Class::Race, "out.operand_bytes", words))
}

fn is_nan(f: Format, bytes: &[u8]) -> bool {
    let mut code = [0; 4];
    code[..bytes.len()].copy_from_slice(bytes);
    if f == Format::F32 { f32::from_le_bytes(code).is_nan() } else { f.decode(u32::from_le_bytes(code)).is_nan() }
}

/// Codes as they are stored: two of four bits a byte, the first in the low half.
fn of_codes(q: &QTensor) -> Vec<u8> {
    match q.format().bits() {
        4 => q.codes().chunks(2).map(|c| c[0] & 15 | c.get(1).map_or(0, |x| x << 4)).collect(),
        _ => q.codes().to_vec(),
    }
}

/// Values in their own type, least significant byte first.
fn of_values(t: &Tensor) -> Vec<u8> {
    let bytes = |x: &f32| match t.dtype() {
        Format::F32 => x.to_bits().to_le_bytes().to_vec(),
        f => {
            let code = f.encode(f64::from(*x), Rounding::NearestEven, Overflow::Native);
            code.to_le_bytes()[..(f.bits() as usize).div_ceil(8)].to_vec()
        }
    };
    t.data().iter().flat_map(bytes).collect()
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
        // The same numbers one bit off are nobody's.
        let near = |v: f64| {
            let code = Format::F16.encode(v, crate::Rounding::NearestEven, Overflow::Native);
            Format::F16.decode(code ^ 1)
        };
        let told = found(&gemm(&a, &b, Format::F16, |i, j| if hit(i, j) { near(staged(i, j)) } else { dot(&x, &y, i, j) }));
        assert_ne!(told.1, "race:out.operand_bytes");
    }
}
