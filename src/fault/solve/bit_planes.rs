//! Codes whose bits are packed apart, such as the fifth of 5-bit codes: some bits of a code come from another place of K, the others from its own.
//!
//! ```text
//! bit β of the code at k  =  bit β of the code at base + π(k − base)      base: where the period of p codes begins
//! ```
//!
//! A dequantization shows its codes, and π is solved for each bit; a product is tried with every p × q order of each split of the bits.

use super::given::Given;
use super::maps::cost;
use super::related;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Elements whose codes are looked at.
const MOST: usize = 1 << 18;
/// Codes that tell of one place of a period, at least.
const LEAST: usize = 32;
/// Periods: vectors, words, blocks, super-blocks.
const PERIODS: [usize; 11] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];
/// Longest list of places in words.
const FIRST: usize = 8;

/// What is tried only where nothing else explains a result.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone {
        return solved(s).into_iter().collect();
    }
    // A plane that is another lane's leaves the other bits: most of the right sums.
    let turned = !related::is_unlike(s);
    s.sides().iter().flat_map(|side| splits(s, *side, turned)).collect()
}

/// Codes as numbers from 0 on, as they are packed: those with a sign from their smallest.
#[derive(Clone)]
pub struct Packed {
    pub codes: Vec<u16>,
    /// Code of a format for each packed one.
    back: Vec<Option<u8>>,
    pub bits: u32,
}

impl Packed {
    pub fn of(g: &Given) -> Option<Self> {
        let q = g.q.as_ref()?;
        let n = g.table.len();
        let signed = q.format().is_integer()
            && q.format().min_finite() < 0.0
            && q.codes().iter().any(|c| g.table[usize::from(*c)] < 0.0);
        let most = q.codes().iter().map(|c| g.table[usize::from(*c)].abs()).fold(0.0, f64::max);
        // The fewest bits of a signed number that hold them all.
        let below = if signed { (1..).map(|b| 1usize << b).find(|h| most <= *h as f64)? } else { 0 };
        let to = |c: u8| if signed { (g.table[usize::from(c)] + below as f64) as u16 } else { u16::from(c) };
        let codes: Vec<u16> = q.codes().iter().map(|c| to(*c)).collect();
        let bits = u16::BITS - codes.iter().max()?.leading_zeros();
        let mut back = vec![None; 1 << bits];
        for c in 0..n {
            let c = c as u8;
            if let Some(x) = back.get_mut(usize::from(to(c))).filter(|_| !signed || -g.table[usize::from(c)] <= below as f64) {
                *x = Some(c);
            }
        }
        Some(Self { codes, back, bits })
    }

    /// What a packed code is worth at a place of the operand.
    pub fn value(&self, g: &Given, code: u16, i: usize, k: usize) -> f64 {
        let cell = i / g.tile.0 * g.grid.1 + k / g.tile.1;
        self.back[usize::from(code)].map_or(f64::NAN, |c| g.decoded(c, cell))
    }
}

/// Orders of a period that have words: p × q, transposed, backwards, xored.
fn formulas(period: usize) -> Vec<(String, f64, Vec<usize>)> {
    let mut all = Vec::new();
    for q in (1..).map(|b| 1usize << b).take_while(|q| 2 * q <= period).filter(|q| period.is_multiple_of(*q)) {
        let p = period / q;
        let words = format!("that of the code at (x mod {q})·{p} + x / {q}, x the place in every {period} of K");
        all.push((words, cost(q) + cost(period), (0..period).map(|x| x % q * p + x / q).collect()));
    }
    let words = format!("that of the code at {} − x, x the place in every {period} of K", period - 1);
    all.push((words, cost(period), (0..period).map(|x| period - 1 - x).collect()));
    // What stays within a half has a shorter period.
    for m in period / 2..period {
        let words = format!("that of the code at k xor {m}");
        if m.is_power_of_two() || (m + 1).is_power_of_two() {
            all.push((words, cost(m) + 1.0, (0..period).map(|x| if x ^ m < period { x ^ m } else { x }).collect()));
        }
    }
    all
}

/// Each place that of one so many further on.
fn turns(period: usize) -> Vec<(String, f64, Vec<usize>)> {
    let by = (0..).map(|b| 1usize << b).take_while(|by| 2 * by < period).flat_map(|by| [by, period - by]);
    by.map(|by| {
        let words = format!("that of the code at (x + {by}) mod {period}, x the place in every {period} of K");
        (words, cost(by) + cost(period), (0..period).map(|x| (x + by) % period).collect())
    })
    .collect()
}

/// Bits in words: one, or a run.
pub fn bits_in_words(bits: &[u32]) -> String {
    match bits {
        [one] => format!("bit {one}"),
        [first, .., last] => format!("bits {first} … {last}"),
        [] => String::new(),
    }
}

/// A code from the bits of its own place and, where `mask` has them, of another. A last period that is short is right, or has 0 behind its end (`padded`).
fn mixed((p, g): (Arc<Packed>, Arc<Given>), mask: u16, period: usize, order: Arc<Vec<usize>>, padded: bool) -> At {
    Arc::new(move |i, k| {
        let (base, x) = (k / period * period, k % period);
        let other = if padded || base + period <= g.k { base + order[x] } else { k };
        let bits = if other < g.k { p.codes[i * g.k + other] } else { 0 };
        let code = p.codes[i * g.k + k] & !mask | bits & mask;
        p.value(&g, code, i, k)
    })
}

/// Every split of the bits of a product's codes: those from `b` on, or those below, from the places of every order with words.
fn splits(s: &System, side: Which, turned: bool) -> Vec<Theory> {
    let g = s.given(side);
    let Some(p) = Packed::of(g).filter(|p| p.bits > 1 && !s.parts.iter().any(|p| p.k.len() != s.k)) else { return Vec::new() };
    // Codes of eight bits are bytes: nothing of them is packed apart.
    if p.bits > 7 {
        return Vec::new();
    }
    let (name, most) = (side.name(), p.bits);
    let read = (Arc::new(p), g.clone());
    let mut all = Vec::new();
    for period in PERIODS.into_iter().filter(|p| *p <= g.k) {
        for (words, bits, order) in formulas(period).into_iter().chain(if turned { turns(period) } else { Vec::new() }) {
            let order = Arc::new(order);
            for mask in parts_of(most) {
                let which: Vec<u32> = (0..most).filter(|x| mask >> x & 1 == 1).collect();
                let words =
                    format!("of the codes of {name}, {} of each is {words}; the other bits are its own", bits_in_words(&which));
                let words = if which.len() > 1 { words.replace(" of each is that", " of each are those") } else { words };
                for padded in if g.k.is_multiple_of(period) { &[false][..] } else { &[false, true] } {
                    let end = if *padded { format!("; 0 behind K = {}", g.k) } else { String::new() };
                    let mut t = Theory::new(Class::PackPermute, name, format!("{name}.bit_order"), format!("{words}{end}"));
                    t.bits = 6.0
                        + bits
                        + f64::from(which.len().min(most as usize - which.len()) as u32)
                        + 0.5 * f64::from(u8::from(*padded));
                    t.side(side).value = Some(mixed(read.clone(), mask, period, order.clone(), *padded));
                    all.push(t);
                }
            }
        }
    }
    all
}

/// Bits of a code that may be packed apart: those from one on, those below it, each alone.
pub fn parts_of(bits: u32) -> Vec<u16> {
    let whole = (1u16 << bits) - 1;
    let mut all: Vec<u16> = (1..bits).flat_map(|b| [whole & !((1 << b) - 1), (1 << b) - 1]).collect();
    for one in (0..bits).map(|b| 1 << b) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// The code that every element of a dequantization shows, packed. `None`: none, or several.
fn shown(s: &System, p: &Packed, rows: usize) -> Vec<Option<u16>> {
    let g = &s.a;
    let known: Vec<(u16, u8)> = p.back.iter().enumerate().filter_map(|(x, c)| Some((x as u16, (*c)?))).collect();
    let one = |at: usize| {
        let (i, k) = (at / g.k, at % g.k);
        let cell = i / g.tile.0 * g.grid.1 + k / g.tile.1;
        let may = |(_, c): &&(u16, u8)| {
            let v = g.decoded(*c, cell);
            s.may(i, k, v, v.abs())
        };
        let mut all = known.iter().filter(may).map(|(x, _)| *x);
        all.next().filter(|_| all.next().is_none())
    };
    (0..rows * g.k).map(one).collect()
}

/// Where each bit of a dequantization's codes comes from: the shortest period in which every place has one source.
fn solved(s: &System) -> Option<Theory> {
    let g = &s.a;
    let p = Packed::of(g).filter(|p| p.bits > 1)?;
    let rows = (MOST / g.k.max(1)).min(g.rows);
    let shown = shown(s, &p, rows);
    // Most elements show a code.
    (2 * shown.iter().flatten().count() > shown.len()).then_some(())?;
    let is_own = |bit: u32| shown.iter().zip(&p.codes).all(|(x, own)| x.is_none_or(|x| (x ^ own) >> bit & 1 == 0));
    let moved: Vec<u32> = (0..p.bits).filter(|b| !is_own(*b)).collect();
    // All of them: whole codes are moved, which others tell.
    (!moved.is_empty() && moved.len() < p.bits as usize).then_some(())?;
    let periods = PERIODS.into_iter().filter(|x| *x <= g.k && g.k.is_multiple_of(*x));
    let (period, order) =
        periods.into_iter().find_map(|period| Some((period, order(&shown, &p, &moved, (rows, g.k), period)?)))?;
    let mask = moved.iter().fold(0u16, |m, b| m | 1 << b);
    let name = Which::A.name();
    let formula = formulas(period).into_iter().chain(turns(period)).find(|f| f.2 == order);
    let (words, bits, freedom) = match formula {
        Some((words, bits, _)) => (words, bits, 0),
        None => {
            let away: Vec<String> =
                (0..period).filter(|x| order[*x] != *x).take(FIRST).map(|x| format!("{x} ← {}", order[x])).collect();
            let many = (0..period).filter(|x| order[*x] != *x).count();
            let words = format!("that of the code at another place of every {period} of K: {}, …", away.join(", "));
            (words, many as f64 * (period as f64).log2(), many)
        }
    };
    let words = format!("of the codes of {name}, {} of each is {words}; the other bits are its own", bits_in_words(&moved));
    let words = if moved.len() > 1 { words.replace(" of each is that", " of each are those") } else { words };
    let mut t = Theory::new(Class::PackPermute, name, format!("{name}.bit_order"), words).bits(6.0 + bits);
    t.freedom = freedom;
    t.a.value = Some(mixed((Arc::new(p), g.clone()), mask, period, Arc::new(order), false));
    Some(t)
}

/// The place of a period that each place takes these bits of: its own where it may be, else the only one. `None`: some have none, or several.
fn order(shown: &[Option<u16>], p: &Packed, bits: &[u32], (rows, k): (usize, usize), period: usize) -> Option<Vec<usize>> {
    let mask = bits.iter().fold(0u16, |m, b| m | 1 << b);
    let starts = || (0..rows * k).step_by(period);
    let one = |x: usize| -> Option<usize> {
        let fits = |from: usize| starts().all(|at| shown[at + x].is_none_or(|c| (c ^ p.codes[at + from]) & mask == 0));
        (starts().filter(|at| shown[at + x].is_some()).count() >= LEAST).then_some(())?;
        if fits(x) {
            return Some(x);
        }
        let mut all = (0..period).filter(|from| fits(*from));
        let first = all.next()?;
        all.next().is_none().then_some(first)
    };
    (0..period).map(one).collect()
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::{Format, Zero};

    #[test]
    fn a_bit_that_is_packed_in_another_order_is_told_by_a_product() {
        let (a, b) = (wide(M, 128), codes(Format::Int4, N, 128, 32, false, 61));
        let x = a.to_f64();
        let code = |j: usize, k: usize| {
            let from = k / 64 * 64 + k % 8 * 8 + k % 64 / 8;
            // As it is packed: from −8 on.
            let of = |k: usize| b.codes()[j * 128 + k] ^ 8;
            f64::from(of(k) & 7 | of(from) & 8) - 8.0
        };
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            sum(128, |k| x[[i, k]] * code(j, k) * f64::from(b.scale_inv()[j * 4 + k / 32]))
        });
        assert_eq!(got.0, "pack_permute:b.bit_order", "{}", got.1);
        assert!(
            got.1.contains("bit 3 of each is that of the code at (x mod 8)·8 + x / 8, x the place in every 64"),
            "{}",
            got.1
        );
    }

    #[test]
    fn a_plane_of_bits_that_a_lane_takes_from_the_next_is_told() {
        // Three lanes and a half of 32 each: behind the last 0.
        const K: usize = 224;
        let (a, b) = (wide(M, K), codes(Format::Uint4, N, K, 32, true, 63));
        let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        let of = |from: &dyn Fn(usize) -> usize| {
            let code = |j: usize, k: usize| {
                let other = if from(k) < K { b.codes()[j * K + from(k)] } else { 0 };
                f64::from(b.codes()[j * K + k] & !4 | other & 4)
            };
            found(&a, &b, None, Format::F32, |i, j, _| {
                let weight = |k: usize| (code(j, k) - f64::from(z[j * 7 + k / 32])) * f64::from(b.scale_inv()[j * 7 + k / 32]);
                sum(K, |k| x[[i, k]] * weight(k))
            })
        };
        let got = of(&|k| k / 64 * 64 + (k + 16) % 64);
        assert_eq!(got.0, "pack_permute:b.bit_order", "{}", got.1);
        let words = "bit 2 of each is that of the code at (x + 16) mod 64, x the place in every 64 of K";
        assert!(got.1.contains(words) && got.1.ends_with("0 behind K = 224"), "{}", got.1);
        // An order without a formula.
        let got = of(&|k| k / 64 * 64 + (k % 64 * 11 + 5) % 61);
        assert!(!got.0.contains("bit_order"), "{got:?}");
    }
}
