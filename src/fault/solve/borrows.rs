//! Arithmetic over whole words of packed integers, without guards: a borrow, or a carry, reaches the next lane.
//!
//! ```text
//! w − 0x88888888      a code below 8 lends from the one behind it: that is one less, and a −9 is 7 in four bits
//! w + 0x88888888      the same with a carry: one more where the code before is 8 or more
//! ```

use super::given::Given;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::sync::Arc;

/// What reaches the next lane.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    Borrow,
    Carry,
}

/// Codes that may lend one after the other: so many that are neutral stand in no word.
const CHAIN: usize = 256;

/// The codes of one operand, less their zero points.
struct Codes {
    g: Arc<Given>,
    half: f64,
    /// What one of a lane is worth, where it holds codes times whole scales of a first level: over the scale of both.
    units: Option<Vec<f64>>,
}

/// One way: which code lends to which.
#[derive(Clone, Copy)]
struct Lanes {
    over: Over,
    far: usize,
    /// Steps of `far` in a word; 1: without end.
    every: usize,
}

impl Codes {
    /// What is lent, in values.
    fn unit(&self, i: usize, k: usize) -> f64 {
        self.g.step(i, k) * self.units.as_ref().map_or(1.0, |u| u[self.cell(i, k)])
    }

    fn cell(&self, i: usize, k: usize) -> usize {
        i / self.g.tile.0 * self.g.grid.1 + k / self.g.tile.1
    }

    fn at(&self, i: usize, k: usize) -> f64 {
        let code = self.g.q.as_ref().map_or(0, |q| q.codes()[i * self.g.k + k]);
        let zero = self.g.zero.as_ref().filter(|z| z.1.is_none()).map_or(0.0, |z| z.0[self.cell(i, k)]);
        self.g.table[usize::from(code)] - zero
    }

    /// The least and the most of a row.
    fn ends(&self, i: usize) -> (f64, f64) {
        (0..self.g.k).map(|k| self.at(i, k)).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), x| (l.min(x), m.max(x)))
    }

    /// Whether something is lent to a code. The one before lends where it is negative, or turns so because it is lent to itself: what neither
    /// can happen to ends the way back.
    fn is_lent_to(&self, lanes: Lanes, i: usize, k: usize) -> bool {
        let mut at = k;
        for _ in 0..CHAIN {
            if at < lanes.far || lanes.every > 1 && (at / lanes.far).is_multiple_of(lanes.every) {
                return false;
            }
            at -= lanes.far;
            let x = self.at(i, at);
            let passes_on = if lanes.over == Over::Borrow { x < 1.0 } else { x + 1.0 >= self.half };
            if x < 0.0 || !passes_on {
                return x < 0.0;
            }
        }
        false
    }

    /// Whether a code that something is lent to leaves its bits.
    fn wraps(&self, over: Over, x: f64) -> bool {
        if over == Over::Borrow { x - 1.0 < -self.half } else { x < self.half && x + 1.0 >= self.half }
    }
}

/// One over each scale of the first of two levels, where all are whole and some are not 1: what stands in a byte is then their product with a code.
fn whole_scales(g: &Given) -> Option<Vec<f64>> {
    let deep = g.deep.as_ref()?.scale_inv();
    let whole = |x: &f32| x.fract() == 0.0 && (1.0..256.0).contains(x);
    (deep.iter().all(whole) && deep.iter().any(|x| *x != 1.0)).then(|| deep.iter().map(|x| 1.0 / f64::from(*x)).collect())
}

/// Theories of the codes of one side: the code `far` behind one that lends is one less, or one more.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let Some(q) = g.q.as_ref().filter(|q| q.format().is_integer()) else { return Vec::new() };
    let zeros = g.zero.as_ref().filter(|z| z.1.is_none()).map(|z| &z.0);
    let signed = q.format().min_finite() < 0.0;
    let bits_of = q.format().bits();
    let half = f64::from(1u32 << (bits_of - 1));
    // Nothing lends where no code is negative.
    let units = whole_scales(g);
    let of_bytes = if units.is_some() { ", times its whole scale of the first level," } else { "" };
    let codes = Arc::new(Codes { g: g.clone(), half, units });
    let ends = parallel::collect(g.rows, |i| codes.ends(i));
    let (least, most) = ends.into_iter().fold((0.0f64, 0.0f64), |(l, m), (x, y)| (l.min(x), m.max(y)));
    if least >= 0.0 {
        return Vec::new();
    }
    // Numbers of the lane's own bits, with a sign: what leaves them wraps.
    let own_bits = zeros.map_or(signed, |z| z.iter().all(|z| *z == half));
    let k_all = g.k;
    let mut all = Vec::new();
    let overs: &[Over] = if signed && zeros.is_none() { &[Over::Borrow, Over::Carry] } else { &[Over::Borrow] };
    for over in overs.iter().copied() {
        let by = if over == Over::Borrow { -1.0 } else { 1.0 };
        let may_wrap = own_bits && codes.wraps(over, if over == Over::Borrow { least } else { most });
        for (far, every) in [1usize, 2, 4, 8].into_iter().flat_map(|f| [1usize, 2, 4, 8, 16].map(|e| (f, e))) {
            // Within a word of `every` steps of `far`, or without end; what lends may turn negative by it and borrow itself.
            let lanes = Lanes { over, far, every };
            let some = |is: &(dyn Fn(usize, usize) -> bool + Sync)| {
                parallel::any(g.rows, &|i| (far..k_all).any(|k| is(i, k) && codes.is_lent_to(lanes, i, k)))
            };
            if !some(&|_, _| true) {
                continue;
            }
            let turned = may_wrap && some(&|i, k| codes.wraps(over, codes.at(i, k)));
            let word = if every == 1 { String::new() } else { format!(" of its {every}") };
            let (less, what) = if over == Over::Borrow { ("less", "borrow") } else { ("more", "carry") };
            for kept in if turned { &[false, true][..] } else { &[false] } {
                let end = if *kept { format!(", in {bits_of} bits that wrap") } else { String::new() };
                let words = format!(
                    "of {name}, a code{of_bytes} is one {less} where the one {far} before it{word} is negative: a {what} reaches the next lane{end}"
                );
                let bits =
                    6.0 + cost(far) + cost(every) + f64::from(u8::from(*kept)) + f64::from(u8::from(over == Over::Carry));
                let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.{what}"), words).bits(bits);
                let (codes, kept) = (codes.clone(), *kept);
                t.side(side).value = Some(Arc::new(move |i, k| {
                    let right = codes.g.values[i * k_all + k];
                    if !codes.is_lent_to(lanes, i, k) {
                        return right;
                    }
                    let turn = if kept && codes.wraps(over, codes.at(i, k)) { -2.0 * by * half } else { 0.0 };
                    right + (by + turn) * codes.unit(i, k)
                }));
                all.push(t);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Codes, Given, Lanes, Over};
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, QTensor, Zero};

    const K: usize = 64;

    /// What is found where every word of eight nibbles is computed with as a whole.
    fn of(word: impl Fn(u32) -> u32) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::Int4, N, K, 16, false, 7));
        let x = a.to_f64();
        // As the kernel's words are: without a sign for what subtracts, as they are for what adds.
        let nibble = |j: usize, k: usize| {
            let w = (0..8).map(|l| u32::from(b.codes()[j * K + k / 8 * 8 + l] & 15) << (4 * l)).sum::<u32>();
            f64::from((((word(w) >> (4 * (k % 8)) & 15) << 4) as u8 as i8) >> 4)
        };
        found(&a, &b, None, Format::F32, |i, j, _| {
            sum(K, |k| x[[i, k]] * nibble(j, k) * f64::from(b.scale_inv()[j * 4 + k / 16]))
        })
    }

    /// A code that is neutral and is lent to lends itself; one behind the end of its word is not lent to.
    #[test]
    fn what_lends_is_followed_back_to_the_start_of_its_word() {
        let (codes, k_all) = ([15u8, 0, 0, 3, 0, 0, 9, 0], 8);
        let q = QTensor::new(QTensorParts {
            format: Format::Int4,
            rows: 1,
            cols: k_all,
            codes: codes.to_vec(),
            granularity: Granularity::Row,
            scale_inv: vec![1.0],
            zero: Zero::None,
            scale_format: Format::F32,
            level: None,
        })
        .unwrap();
        let codes =
            Codes { g: std::sync::Arc::new(Given::of(&crate::job::Operand::Quantized(q), &[], None)), half: 8.0, units: None };
        let lent = |every: usize| -> Vec<usize> {
            let lanes = Lanes { over: Over::Borrow, far: 1, every };
            (0..k_all).filter(|k| codes.is_lent_to(lanes, 0, *k)).collect()
        };
        assert_eq!(lent(1), [1, 2, 3, 7]);
        assert_eq!(lent(2), [1, 7]);
        assert!(codes.wraps(Over::Borrow, -8.0) && !codes.wraps(Over::Borrow, -7.0) && codes.wraps(Over::Carry, 7.0));
    }

    /// Bytes hold code times whole scale, and zero point times it is taken off four of them at once.
    #[test]
    fn a_borrow_between_bytes_of_scaled_codes_is_told() {
        use crate::quant::Level;
        let (a, b) = (wide(M, K), codes(Format::Uint4, N, K, 16, true, 9));
        let Zero::Integer(z) = b.zero().clone() else { panic!("whole zero points") };
        let mut p = b.into_parts();
        p.scale_inv = (0..N * 4).map(|x| (1 + x * 5 % 7) as f32).collect();
        let rows: Vec<f32> = (0..N).map(|j| 0.001 * (3 + j * 11 % 17) as f32).collect();
        p.level = Some(Level { granularity: Granularity::Row, format: Format::F32, scale_inv: rows.clone(), zero: None });
        let b = QTensor::new(p).unwrap();
        let x = a.to_f64();
        let byte = |j: usize, k: usize| {
            let cell = j * 4 + k / 16;
            let of = |c: i32| c * b.scale_inv()[cell] as i32;
            (of(i32::from(b.codes()[j * K + k])), of(z[cell]))
        };
        let of = |lends: bool| {
            found(&a, &b, None, Format::F32, |i, j, _| {
                let weight = |k: usize| {
                    let borrow = (k / 4 * 4..k).fold(0, |lent, k| i32::from(byte(j, k).0 - byte(j, k).1 - lent < 0));
                    // Two of them, as nothing does.
                    let lent = if lends { borrow } else { 2 * borrow };
                    byte(j, k).0 - byte(j, k).1 - lent
                };
                sum(K, |k| x[[i, k]] * f64::from(weight(k)) * f64::from(rows[j]))
            })
        };
        let got = of(true);
        assert_eq!(got.0, "bits_reinterpreted:b.borrow", "{}", got.1);
        let words =
            "a code, times its whole scale of the first level, is one less where the one 1 before it of its 4 is negative";
        assert!(got.1.contains(words), "{}", got.1);
        assert!(!of(false).0.contains("borrow"));
    }

    #[test]
    fn borrows_and_carries_of_a_whole_word_are_told() {
        // Codes without a sign, less 8 each.
        let got = of(|w| (w ^ 0x8888_8888).wrapping_sub(0x8888_8888));
        assert_eq!(got.0, "bits_reinterpreted:b.borrow", "{}", got.1);
        assert!(got.1.contains("one less where the one 1 before it of its 8 is negative"), "{}", got.1);
        assert!(got.1.ends_with("in 4 bits that wrap"), "{}", got.1);
        // Codes with a sign, 8 more each, and read without one.
        let got = of(|w| w.wrapping_add(0x8888_8888) ^ 0x8888_8888);
        assert_eq!(got.0, "bits_reinterpreted:b.carry", "{}", got.1);
        assert!(got.1.contains("one more where the one 1 before it of its 8 is negative"), "{}", got.1);
    }
}
