//! What a kernel finds that reads stored numbers as numbers of another width: four bits where two are stored, the nibbles of a float.
//!
//! ```text
//! memory:  the numbers one after the other, each in S bits (whole ones, or the bits of a float), the first lowest
//! read:    whole numbers of R bits, one after the other
//! ```

use super::super::given::Given;
use super::super::lanes::bits_of;
use crate::Format;
use std::sync::Arc;

/// Numbers as they are found, one after the other.
#[derive(Clone)]
pub struct View {
    /// Behind the operand's name; empty: as they are stored.
    pub words: String,
    pub bits: f64,
    pub numbers: Arc<Vec<f64>>,
}

/// Fields of `read` bits of numbers that have `stored` each.
fn fields(words: &[u32], stored: u32, read: u32) -> Vec<f64> {
    let mask = |bits: u32| if bits >= 32 { u32::MAX } else { (1 << bits) - 1 };
    if read <= stored {
        return words.iter().flat_map(|w| (0..stored / read).map(move |n| f64::from(w >> (n * read) & mask(read)))).collect();
    }
    let join = |part: &[u32]| part.iter().enumerate().map(|(n, w)| (w & mask(stored)) << (n as u32 * stored)).sum::<u32>();
    words.chunks((read / stored) as usize).map(|part| f64::from(join(part))).collect()
}

/// Zero points as they are stored, and as numbers of other widths where they are whole.
pub fn of_zeros(z: &[f64]) -> Vec<View> {
    let mut all = vec![View { words: String::new(), bits: 0.0, numbers: Arc::new(z.to_vec()) }];
    let whole = |x: &f64| x.fract() == 0.0 && (0.0..f64::from(u16::MAX)).contains(x);
    if !z.iter().all(whole) {
        return all;
    }
    let most = z.iter().fold(0.0f64, |m, x| m.max(*x)) as u32;
    let words: Vec<u32> = z.iter().map(|x| *x as u32).collect();
    let mut add = |what: String, words: &[u32], stored: u32, bits: f64| {
        for read in [4u32, 8, 2].into_iter().filter(|r| *r != stored) {
            all.push(View {
                words: format!(", stored {what}, read as whole numbers of {read} bits"),
                bits: bits + if read == 4 { 0.0 } else { 0.5 },
                numbers: Arc::new(fields(words, stored, read)),
            });
        }
    };
    for stored in [4u32, 8, 2, 16, 32].into_iter().filter(|s| *s >= 16 || most >> s == 0) {
        add(format!("in {stored} bits each"), &words, stored, 3.0);
    }
    for f in [Format::F16, Format::Bf16, Format::F32] {
        let words: Vec<u32> = z.iter().map(|x| bits_of(f, *x)).collect();
        add(format!("as {f}"), &words, f.bits(), 3.5);
    }
    all
}

/// Scales as they are stored, and as floats of another width.
pub fn of_scales(g: &Given) -> Vec<View> {
    let own: Vec<f64> = g.scales().iter().map(|x| f64::from(*x)).collect();
    let mut all = Vec::new();
    let Some(f) = g.q.as_ref().map(|q| q.scale_format()) else { return all };
    let global = g.global;
    let by = |x: Vec<f64>| Arc::new(x.into_iter().map(|x| x * global).collect::<Vec<f64>>());
    all.push(View { words: String::new(), bits: 0.0, numbers: by(own.clone()) });
    let floats = [Format::F32, Format::F16, Format::Bf16];
    if !floats.contains(&f) {
        return all;
    }
    let bits: Vec<u32> = own.iter().map(|x| bits_of(f, *x)).collect();
    for other in floats.into_iter().filter(|o| *o != f) {
        let read: Vec<f64> = fields(&bits, f.bits(), other.bits()).into_iter().map(|x| other.decode(x as u32)).collect();
        // What is hardly ever a number is none of these.
        if read.iter().filter(|x| x.is_finite()).count() * 2 > read.len() {
            let numbers = read.into_iter().map(|x| if x.is_finite() { x } else { 0.0 }).collect();
            all.push(View { words: format!(", stored as {f}, read as {other}"), bits: 3.0, numbers: by(numbers) });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{fields, of_zeros};

    #[test]
    fn fields_are_those_of_memory() {
        assert_eq!(fields(&[1, 2, 3, 0], 2, 4), [9.0, 3.0]);
        assert_eq!(fields(&[0xab, 0x10], 8, 4), [11.0, 10.0, 0.0, 1.0]);
        // 1 in f16 is 0x3c00.
        let views = of_zeros(&[1.0, 2.0]);
        let half = views.iter().find(|v| v.words.contains("as f16, read as whole numbers of 4 bits")).unwrap();
        assert_eq!(**half.numbers, [0.0, 0.0, 12.0, 3.0, 0.0, 0.0, 0.0, 4.0]);
        // Numbers that do not fit are not stored so; others are only what they are.
        assert!(!of_zeros(&[9.0]).iter().any(|v| v.words.contains("in 2 bits")));
        assert_eq!(of_zeros(&[0.5, 3.0]).len(), 1);
    }
}
