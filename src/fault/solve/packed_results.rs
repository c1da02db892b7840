//! Results of 8 or 16 bits that an epilogue packs into words with OR, with a wrong shift or without a mask.
//!
//! ```text
//! out[i, j] = decode( lane j mod n of the word of codes of out[i, ⌊j / n⌋·n …] )          the word: see `packing`
//! ```
//!
//! A value near a half-way point has two codes. Where they make two words, either may have been written.

use super::packing::Packing;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::{Format, Overflow, Rounding};
use std::sync::Arc;

/// Wrong elements that a way has to make before all codes are written down, at least and at most.
const LEAST: usize = 8;
const LOOKS: usize = 24;
/// Words that the codes of one may make, at most.
const CHOICES: usize = 256;

/// The codes that one element may have: from below, as it is, from above.
type Codes = [u32; 3];

/// What a result is stored in.
struct Store {
    format: Format,
    unit: f64,
}

impl Store {
    fn of(s: &System) -> Option<Self> {
        let format = s.out.format();
        let n = s.rows * s.cols;
        if !s.out.is_quantized() {
            return (format.bits() == 16).then_some(Self { format, unit: 1.0 });
        }
        let (first, last) = (s.out.range(0), s.out.range(n - 1));
        // One scale, and no zero point.
        let plain = first == last && s.out.round(0, 0.0) == 0.0 && first.1 > 0.0 && first.1.is_finite();
        let unit = first.1 / format.max_finite();
        (plain && format.bits() == 8 && -first.0 >= format.max_finite() * unit).then_some(Self { format, unit })
    }

    fn code(&self, s: &System, at: usize, x: f64) -> u32 {
        let v = s.out.round(at, x);
        // Zero has the sign of what was rounded, where there are two.
        if v == 0.0 && x < 0.0 && !self.format.decode(self.format.sign_bit()).is_nan() && !self.format.is_integer() {
            return self.format.sign_bit();
        }
        self.format.encode(v / self.unit, Rounding::NearestEven, Overflow::Saturate)
    }

    fn codes(&self, s: &System, at: usize) -> Codes {
        let (x, r) = (s.ideal[at], s.certain(at));
        [x - r, x, x + r].map(|x| self.code(s, at, x))
    }

    /// What is read from lane `place` of a word: what was written, where one of its words has that, else that of the codes as they are.
    fn read(&self, packing: Packing, place: usize, word: &[Codes], written: f64) -> f64 {
        let of = |pick: &dyn Fn(usize) -> u32| {
            let code = packing.lane(place, |n| if n < word.len() { pick(n) } else { 0 });
            self.format.decode(code) * self.unit
        };
        let same = |v: f64| v.is_nan() && written.is_nan() || (v - written).abs() <= 1e-6 * written.abs();
        let nominal = of(&|n| word[n][1]);
        let lists: Vec<Vec<u32>> = word.iter().map(|c| between(*c)).collect();
        let choices = lists.iter().fold(1usize, |n, l| n.saturating_mul(l.len()));
        if same(nominal) || choices == 1 || choices > CHOICES {
            return if same(nominal) && !written.is_nan() { written } else { nominal };
        }
        for mut choice in 0..choices {
            let picked: Vec<u32> = (lists.iter())
                .map(|l| {
                    let code = l[choice % l.len()];
                    choice /= l.len();
                    code
                })
                .collect();
            if same(of(&|n| picked[n])) {
                return if written.is_nan() { f64::NAN } else { written };
            }
        }
        nominal
    }
}

/// The codes of an element, each once.
fn between([low, own, high]: Codes) -> Vec<u32> {
    let mut all = vec![own];
    all.extend(Some(low).filter(|c| *c != own));
    all.extend(Some(high).filter(|c| *c != own && *c != low));
    all
}

/// The ways that make the first wrong elements.
pub fn theories(s: &System) -> Vec<Theory> {
    let Some(store) = Store::of(s).filter(|_| !s.alone) else { return Vec::new() };
    let looks: Vec<(usize, usize)> = s.probes.iter().filter(|(i, j)| s.is_wrong[i * s.cols + j]).take(LOOKS).copied().collect();
    if looks.len() < LEAST {
        return Vec::new();
    }
    let makes = |packing: &Packing| {
        looks.iter().all(|(i, j)| {
            let (first, at) = (j / packing.lanes * packing.lanes, i * s.cols + j);
            let word: Vec<Codes> =
                (first..(first + packing.lanes).min(s.cols)).map(|j| store.codes(s, i * s.cols + j)).collect();
            let v = store.read(*packing, j - first, &word, s.actual[at]);
            v == s.actual[at] || v.is_nan() && s.actual[at].is_nan()
        })
    };
    let mut ways: Vec<Packing> = Packing::ways(store.format.bits(), true);
    ways.retain(makes);
    if ways.is_empty() {
        return Vec::new();
    }
    let n = s.rows * s.cols;
    let codes: Arc<Vec<Codes>> = Arc::new((0..n).map(|at| store.codes(s, at)).collect());
    let (store, written) = (Arc::new(store), Arc::new(s.actual.to_vec()));
    ways.into_iter().map(|packing| theory(s, packing, &store, &codes, &written)).collect()
}

fn theory(s: &System, packing: Packing, store: &Arc<Store>, codes: &Arc<Vec<Codes>>, written: &Arc<Vec<f64>>) -> Theory {
    let words = format!("results ({}) are packed with OR, {}", store.format, packing.words());
    let mut t = Theory::new(Class::BitsReinterpreted, "out", "out.packed_with_or", words).bits(packing.bits());
    let (cols, store, codes, written) = (s.cols, store.clone(), codes.clone(), written.clone());
    t.finish = Some(Arc::new(move |i, j, _| {
        let first = j / packing.lanes * packing.lanes;
        let word = &codes[i * cols + first..i * cols + (first + packing.lanes).min(cols)];
        store.read(packing, j - first, word, written[i * cols + j])
    }));
    t
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, wide};
    use crate::tensor::round_to;
    use crate::{Format, Overflow, Rounding};

    const K: usize = 64;

    /// What is found where codes of the result by 32 are read from the word that `lane` makes of four.
    fn of(format: Format, lane: impl Fn([u32; 4], usize) -> u32) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 53));
        let by = if format.bits() == 8 { 32.0 } else { 1.0 };
        found(&a, &b, None, format, |i, j, right| {
            let code = |n: usize| {
                let x = f64::from((right[i * N + j / 4 * 4 + n] * by) as f32);
                let x = if format == Format::Bf16 { f64::from(round_to(format, x as f32)) } else { x };
                format.encode(x, Rounding::NearestEven, Overflow::Saturate)
            };
            format.decode(lane([0, 1, 2, 3].map(code), j % 4)) / by
        })
    }

    #[test]
    fn codes_that_are_shifted_to_the_wrong_lane_are_told() {
        let got = of(Format::E4m3, |w, lane| if lane < 2 { w[lane] | w[lane + 2] } else { 0 });
        assert_eq!(got.0, "bits_reinterpreted:out.packed_with_or", "{}", got.1);
        let words =
            "results (e4m3) are packed with OR, 4 to a word of 32 bits: code n is shifted by 8·(n mod 2) and not by 8·n";
        assert!(got.1.contains(words), "{}", got.1);
        let got = of(Format::E4m3, |w, lane| if lane < 2 { w[2 * lane] | w[2 * lane + 1] } else { 0 });
        assert!(got.1.contains("code n is shifted by 8·⌊n / 2⌋ and not by 8·n"), "{} {}", got.0, got.1);
    }

    #[test]
    fn halves_that_are_not_masked_are_told() {
        let got = of(Format::Bf16, |w, lane| if lane % 2 == 1 && w[lane - 1] & 0x8000 != 0 { 0xffff } else { w[lane] });
        assert_eq!(got.0, "bits_reinterpreted:out.packed_with_or", "{}", got.1);
        assert!(got.1.contains("2 to a word of 32 bits: each is extended by its sign and not masked"), "{}", got.1);
    }

    #[test]
    fn other_bits_of_a_word_are_not_called_so() {
        let got = of(Format::E4m3, |w, lane| if lane < 2 { w[lane] & w[lane + 2] } else { 0 });
        assert!(!got.0.contains("packed_with_or"), "{} {}", got.0, got.1);
    }
}
