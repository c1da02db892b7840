//! Codes of a cast that are a function of the right codes: what a kernel did with codes that it had already, an offset that saturates in a narrower
//! type, a wrong table, a mask.
//!
//! ```text
//! right code  ──►  written code         one for each, wherever the right code stands
//! ```

use super::encoders::{Cast, Named, nearest};
use crate::fault::Class;
use std::collections::BTreeMap;

/// Right codes that have become others, at least, and how often each is seen.
const CHANGED: usize = 2;
const OFTEN: usize = 4;
/// Codes that could have contradicted the table, at least.
const TOLD: usize = 64;
/// Runs of codes that are shown.
const SHOWN: usize = 4;
/// What a reciprocal and a product in f32 may be off, relative.
const NEAR: f64 = 1.0 / (1u64 << 20) as f64;

/// Right codes in a row that have become one code, or codes as far from them each.
struct Run {
    from: i32,
    to: i32,
    /// What the first and the last have become.
    becomes: (i32, i32),
}

impl Cast<'_> {
    /// The table of right codes and what was written for each.
    pub fn tabled(&self) -> Option<Named> {
        let f = self.q.format();
        let number = |v: f64| f.encode(v, crate::Rounding::NearestEven, crate::Overflow::Saturate) as i32;
        // Integers by their value, others by their bits.
        let name = |code: i32| if f.is_integer() { f.decode(code as u32) as i32 } else { code };
        let mut table: BTreeMap<i32, (i32, usize)> = BTreeMap::new();
        for at in self.finite() {
            let e = self.element(at);
            let of = |by: f64| nearest(e.format, e.y() * by + e.zero);
            // Beside a tie either code may have been the right one.
            if of(1.0 - NEAR) != of(1.0 + NEAR) {
                continue;
            }
            let written = name(i32::from(self.q.codes()[at]));
            // −0 of what rounds to it is another code than 0.
            let right = of(1.0);
            let right = if right == 0.0 && e.x < 0.0 && !f.is_integer() { -0.0 } else { right };
            let entry = table.entry(name(number(right))).or_insert((written, 0));
            (entry.0 == written).then_some(())?;
            entry.1 += 1;
        }
        let changed: Vec<(i32, i32)> = table.iter().filter(|(c, e)| **c != e.0).map(|(c, e)| (*c, e.0)).collect();
        let often = table.iter().filter(|(c, e)| **c != e.0 && e.1 >= OFTEN).count();
        let told: usize = table.iter().filter(|(c, e)| **c != e.0).map(|(_, e)| e.1 - 1).sum();
        (often >= CHANGED && told >= TOLD).then_some(())?;
        let runs = runs(&changed, |code| table.contains_key(&code));
        let code = |c: i32| if f.is_integer() { c.to_string().replace('-', "−") } else { format!("{c:#04x}") };
        let one = |run: &Run| {
            let from = if run.from == run.to { code(run.from) } else { format!("{} … {}", code(run.from), code(run.to)) };
            let (first, last) = run.becomes;
            let to = if first == last { code(first) } else { format!("{} … {}", code(first), code(last)) };
            match run.from == run.to {
                true => format!("code {from} becomes {to}"),
                false => format!("codes {from} become {to}"),
            }
        };
        let mut words: Vec<String> = runs.iter().take(SHOWN).map(one).collect();
        if runs.len() > SHOWN {
            words.push(format!("and {} more", runs.len() - SHOWN));
        }
        let words = format!(
            "codes are a function of the right ones, the same wherever they stand: {}; {} of {} codes that are there are changed",
            words.join(", "),
            changed.len(),
            table.len()
        );
        let low = runs.iter().all(|run| run.becomes.0 == run.becomes.1);
        Some((if low { Class::OverflowWrap } else { Class::CodecEdge }, "out.table".into(), words))
    }
}

/// Neighbours that have become one code, or are off by one number: codes that are not there end no run.
fn runs(changed: &[(i32, i32)], there: impl Fn(i32) -> bool) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for (code, becomes) in changed {
        if let Some(run) = all.last_mut()
            && !(run.to + 1..*code).any(&there)
        {
            let one = run.becomes.0 == run.becomes.1 && run.becomes.0 == *becomes;
            let shifted = run.becomes.0 - run.from == becomes - code && run.becomes.1 - run.to == becomes - code;
            if one || shifted {
                (run.to, run.becomes.1) = (*code, *becomes);
                continue;
            }
        }
        all.push(Run { from: *code, to: *code, becomes: (*becomes, *becomes) });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor, Zero};

    const ROWS: usize = 40;
    const COLS: usize = 64;

    /// What is said of a cast by a scale of 1 whose codes are these functions of the right ones and their place.
    fn said(format: Format, of: &dyn Fn(u8, usize) -> u8) -> Option<Named> {
        let largest = format.max_finite();
        let x = |at: usize| (((at * 7919 + 13) % 2551) as f64 / 1275.5 - 1.0) * largest;
        let x: Vec<f32> = (0..ROWS * COLS).map(|at| x(at) as f32).collect();
        let code = |at: usize| of(format.encode(f64::from(x[at]), Rounding::NearestEven, Overflow::Saturate) as u8, at);
        let parts = QTensorParts {
            format,
            rows: ROWS,
            cols: COLS,
            codes: (0..ROWS * COLS).map(code).collect(),
            granularity: Granularity::Row,
            scale_format: Format::F32,
            scale_inv: vec![1.0; ROWS],
            zero: Zero::None,
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, ROWS, COLS, x).unwrap(), QTensor::new(parts).unwrap());
        Cast::of(&x, &q).unwrap().tabled()
    }

    #[test]
    fn codes_that_are_a_function_of_the_right_ones_are_told_by_their_table() {
        // Of 0 … 255 kept in int8, before 128 is taken off again.
        let shifted = said(Format::Int8, &|c, _| (i32::from(c as i8) + 128).min(127).wrapping_sub(128) as i8 as u8).unwrap();
        assert_eq!((shifted.0, shifted.1.as_str()), (Class::OverflowWrap, "out.table"));
        assert!(shifted.2.contains(": codes 0 … 127 become −1; 128 of "), "{shifted:?}");
        let up = said(Format::Int8, &|c, _| if (c as i8) > 100 { c - 100 } else { c }).unwrap();
        assert!(up.2.contains(": codes 101 … 127 become 1 … 27; 27 of "), "{up:?}");
        let nibbles = said(Format::Int8, &|c, _| if (16..48).contains(&c) { c ^ 0x30 } else { c }).unwrap();
        assert!(nibbles.2.contains(": codes 16 … 31 become 32 … 47, codes 32 … 47 become 16 … 31;"), "{nibbles:?}");
        let float = said(Format::E4m3, &|c, _| if c == 0x7a || c == 0x7b { 0x70 } else { c }).unwrap();
        assert!(float.2.contains(": codes 0x7a … 0x7b become 0x70;"), "{float:?}");
    }

    #[test]
    fn codes_that_differ_from_place_to_place_are_no_table() {
        assert_eq!(said(Format::Int8, &|c, _| c), None);
        assert_eq!(said(Format::Int8, &|c, at| if at == 77 { c ^ 1 } else { c }), None);
        assert_eq!(said(Format::Int8, &|c, at| if c as i8 >= 0 && at % 64 < 32 { 0xff } else { c }), None);
        assert_eq!(said(Format::Int8, &|c, _| if c == 5 { 6 } else { c }), None, "one code is changed");
    }
}
