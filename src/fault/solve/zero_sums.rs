//! The sums of one operand that the zero points of the other multiply, solved from what was written.
//!
//! ```text
//! Σ x·(q − z) = Σ x·q − z·Σ x        x: codes less their own zero point
//! ```
//!
//! A kernel makes Σ x aside. How far its own is from the right one is a whole number for each line: one for all, so many times the line's zero
//! point (K·z_a·z_b with another K), or what lanes of a vector lost.

use super::given::Given;
use super::linear::Normal;
use super::segment::spread;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::format::grid::native;
use std::sync::Arc;

/// Lines and elements of each that are looked at.
const LINES: usize = 256;
const EACH: usize = 16;
/// Lines that say more than their unknowns do, at least.
const MORE: usize = 6;
/// Different sums that a type is told by.
const DIFFERENT: usize = 3;
/// Lanes of a vector.
const LANES: [usize; 5] = [4, 8, 16, 32, 64];

/// Theories of the sums that the zero points of this side multiply.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (own, other) = (s.given(side), s.given(side.other()));
    let whole = |g: &Given| g.grid.1 == 1 && g.format().is_some_and(|f| f.is_integer());
    if s.alone || s.parts.len() != 1 || !whole(own) || !whole(other) {
        return Vec::new();
    }
    let Some((zero, None)) = &own.zero else { return Vec::new() };
    let theirs: Vec<f64> = match &other.zero {
        None => vec![0.0; other.grid.0],
        Some((z, None)) => z.clone(),
        Some(_) => return Vec::new(),
    };
    let by_row = side == Which::B;
    // What one of the sum of a line of the other adds to an element.
    let unit = |line: usize, across: usize| -zero[across / own.tile.0] * own.step(across, 0) * other.step(line, 0);
    let (lines, breadth) = if by_row { (s.rows, s.cols) } else { (s.cols, s.rows) };
    let place = |line: usize, across: usize| if by_row { (line, across) } else { (across, line) };
    // How far the sum of each line is off: the least and the most that its elements leave.
    let mut looked: Vec<usize> = (0..lines).collect();
    spread(&mut looked, LINES);
    let off = |line: usize| {
        let inside = |x: &usize| {
            let (i, j) = place(line, *x);
            unit(line, *x) != 0.0 && s.region.as_ref().is_none_or(|r| r.has(i, j))
        };
        let mut across: Vec<usize> = (0..breadth).filter(inside).collect();
        spread(&mut across, EACH);
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for x in across {
            let (i, j) = place(line, x);
            let at = i * s.cols + j;
            let (y, half) = s.written(i, j, s.magnitude(at))?;
            let (more, by) = (y - (s.ideal[at] - s.bias.at(i, j)), unit(line, x));
            let ends = [(more - half) / by, (more + half) / by];
            (low, high) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
        }
        (low <= high && low.is_finite() && high.is_finite()).then_some((line, low, high))
    };
    let known: Vec<(usize, f64, f64)> = looked.into_iter().filter_map(off).collect();
    if known.len() < MORE {
        return Vec::new();
    }
    let (name, they) = (side.name(), side.other().name());
    let of = format!("the sums of {they} that the zero points of {name} multiply");
    let theory = |words: String, bits: f64, off: Vec<f64>| {
        let mut t = Theory::new(Class::ZpCorrection, name, format!("{name}.zero_sums"), words).bits(bits);
        let own: Vec<f64> = (0..own.rows).map(|x| -zero[x / own.tile.0] * own.step(x, 0)).collect();
        let steps: Vec<f64> = off.iter().enumerate().map(|(line, d)| d * other.step(line, 0)).collect();
        let bias = s.bias.clone();
        t.finish = Some(Arc::new(move |i, j, v| {
            let (line, x) = if by_row { (i, j) } else { (j, i) };
            v + steps[line] * own[x] + bias.at(i, j)
        }));
        t
    };
    let mut all = Vec::new();
    // One whole number for all lines, times 1 or the line's zero point.
    let one = |factor: &dyn Fn(usize) -> f64| {
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for (line, from, to) in &known {
            let f = factor(*line);
            let (x, y) = (from / f, to / f);
            if f != 0.0 {
                (low, high) = (low.max(x.min(y)), high.min(x.max(y)));
            } else if *from > 0.0 || *to < 0.0 {
                return None;
            }
        }
        let c = (0.5 * (low + high)).round();
        (low <= c && c <= high && high - low < 1.0 && c != 0.0).then_some(c)
    };
    if let Some(c) = one(&|_| 1.0) {
        let words = format!("{of} are {} too {}", c.abs(), if c > 0.0 { "large" } else { "small" });
        all.push(theory(words, 10.0, vec![c; other.rows]));
    }
    let their = |line: usize| theirs[line / other.tile.0];
    // It is one term of both: told once. Where it is missing or there twice `sums::zero_terms` says so.
    let of_both = if by_row { one(&|line| -their(line)) } else { None };
    if let Some(c) = of_both.map(|c| c + s.k as f64).filter(|c| *c > 0.0 && *c != 2.0 * s.k as f64) {
        let words = format!("the term K·z_a·z_b of both zero points is made with K = {c} instead of {}", s.k);
        let off = (0..other.rows).map(|line| (s.k as f64 - c) * their(line)).collect();
        all.push(theory(words, 8.0, off));
    }
    all.extend(lanes(s, other, &their, &known).map(|(words, bits, off)| theory(format!("{of}: {words}"), bits, off)));
    all.extend(
        misread(other, &known, &s.wrong_lines(by_row))
            .into_iter()
            .map(|(words, bits, off)| theory(format!("{of} {words}"), bits, off)),
    );
    all
}

/// Whether just the lines that are off are wrong, and enough are and are not.
fn lines_tell(off: &[f64], is_wrong: &[bool]) -> bool {
    let hit = off.iter().filter(|x| **x != 0.0).count();
    let just = off.iter().zip(is_wrong).all(|(x, wrong)| (*x != 0.0) == *wrong);
    hit >= MORE && off.len() - hit >= MORE && just
}

/// Sums of codes that are read as another type, or that end in one: in words, with bits and how far each line is off. `is_wrong`: of each line.
fn misread(other: &Given, known: &[(usize, f64, f64)], is_wrong: &[bool]) -> Vec<(String, f64, Vec<f64>)> {
    let (Some(q), Some(f)) = (&other.q, other.format()) else { return Vec::new() };
    let whole = f64::from(1u32 << f.bits());
    let signed = f.min_finite() < 0.0;
    let codes = q.codes();
    // What a sum of codes as they are, or of each as it is read, becomes in the end.
    let sums = |of: &dyn Fn(f64) -> f64| -> Vec<f64> {
        codes.chunks(other.k.max(1)).map(|row| row.iter().map(|c| of(other.table[usize::from(*c)])).sum()).collect()
    };
    let right = sums(&|x| x);
    let wraps = |bits: i32| move |x: f64| (x + 2f64.powi(bits - 1)).rem_euclid(2f64.powi(bits)) - 2f64.powi(bits - 1);
    let ends = |of: &dyn Fn(f64) -> f64| -> Vec<f64> { right.iter().map(|x| of(*x)).collect() };
    let half = |f: Format| move |x: f64| native(f).nearest(x);
    let mut ways: Vec<(String, f64, Vec<f64>)> = vec![
        ("wrap at 16 bits".into(), 8.0, ends(&wraps(16))),
        ("wrap at 16 bits without a sign".into(), 9.0, ends(&|x| x.rem_euclid(65536.0))),
        ("wrap at 8 bits".into(), 9.0, ends(&wraps(8))),
        ("are clamped at 16 bits".into(), 8.5, ends(&|x| x.clamp(-32768.0, 32767.0))),
        ("are rounded to f16".into(), 8.0, ends(&half(Format::F16))),
        ("are rounded to bf16".into(), 8.0, ends(&half(Format::Bf16))),
        ("are those of the codes' magnitudes".into(), 9.0, sums(&f64::abs)),
    ];
    if signed {
        let words = format!("are those of codes without a sign: each negative one counts {whole} too much");
        ways.push((words, 7.0, sums(&|x| if x < 0.0 { x + whole } else { x })));
    } else {
        let words = format!("are those of codes with a sign: each from {} on counts {whole} too little", 0.5 * whole);
        ways.push((words, 7.0, sums(&|x| if x >= 0.5 * whole { x - whole } else { x })));
    }
    ways.retain_mut(|(_, _, made)| {
        made.iter_mut().zip(&right).for_each(|(x, r)| *x -= r);
        let of = |line: &usize| made[*line];
        let mut seen: Vec<u64> = known.iter().map(|(line, ..)| of(line).to_bits()).filter(|x| *x << 1 != 0).collect();
        seen.sort_unstable();
        seen.dedup();
        // One number alone, as of sums that wrap once, tells by which lines have it.
        let told = seen.len() >= DIFFERENT || lines_tell(made, is_wrong);
        told && known.iter().all(|(line, low, high)| *low <= of(line) && of(line) <= *high)
    });
    ways
}

/// What lanes of a vector lost, and one number that is added instead: in words, with bits and how far each line is off.
fn lanes(
    s: &System,
    other: &Given,
    their: &dyn Fn(usize) -> f64,
    known: &[(usize, f64, f64)],
) -> Option<(String, f64, Vec<f64>)> {
    let codes = other.q.as_ref()?.codes();
    // Lines that say one whole number.
    let told: Vec<(usize, f64)> = known
        .iter()
        .map(|(line, low, high)| (*line, (low.ceil(), high.floor())))
        .filter(|(_, ends)| ends.0 == ends.1)
        .map(|(line, ends)| (line, ends.0))
        .collect();
    let code = |line: usize, k: usize| other.table[usize::from(codes[line * s.k + k])] - their(line);
    LANES.into_iter().find_map(|wide| {
        (told.len() >= wide + 1 + MORE && 2 * wide <= s.k).then_some(())?;
        let row = |line: usize| {
            let mut row = vec![0.0; wide + 1];
            (0..s.k).for_each(|k| row[k % wide] += code(line, k));
            row[wide] = 1.0;
            row
        };
        let mut system = Normal::new(wide + 1);
        told.iter().for_each(|(line, d)| system.add(&row(*line), *d, 1.0));
        let found: Vec<f64> = system.solve()?.iter().map(|x| x.round() + 0.0).collect();
        let off = |line: usize| row(line).iter().zip(&found).map(|(x, c)| x * c).sum::<f64>();
        let all = told.iter().all(|(line, d)| off(*line) == *d);
        let lost = |c: &f64| *c == -1.0 || *c == 0.0;
        (all && found[..wide].iter().all(lost) && found[..wide].contains(&-1.0)).then_some(())?;
        let which: Vec<bool> = found[..wide].iter().map(|c| *c != 0.0).collect();
        let more = if found[wide] == 0.0 { String::new() } else { format!(", and {} is added", found[wide]) };
        let words = format!("lanes {} of every {wide} of K are lost{more}", super::segment::lines(&which));
        Some((words, 12.0, (0..other.rows).map(off).collect()))
    })
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, sum};
    use crate::job::Operand;
    use crate::quant::QTensorParts;
    use crate::{Format, QTensor, Zero};

    const K: usize = 72;

    /// Rows of int8 with a zero point each, or with none.
    fn rows(n: usize, zeros: bool, seed: usize) -> QTensor {
        let q = codes(Format::Int8, n, K, K, false, seed);
        let zero = if zeros { Zero::Integer((0..n).map(|x| (x * 7 % 23) as i32 - 9).collect()) } else { Zero::None };
        QTensor::new(QTensorParts { zero, ..q.into_parts() }).unwrap()
    }

    /// What is found where the sums of a are off by this, for its codes of a row and its zero point.
    fn of(zeros: bool, off: impl Fn(&dyn Fn(usize) -> f64, f64) -> f64) -> (String, String) {
        let (a, b) = (rows(M, zeros, 61), rows(N, true, 62));
        let zero = |q: &QTensor, x: usize| match q.zero() {
            Zero::Integer(z) => f64::from(z[x]),
            _ => 0.0,
        };
        let (x, y) = (a.dequantize(), b.dequantize());
        let step = |q: &QTensor, x: usize| f64::from(q.scale_inv()[x]);
        found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
            let code = |k: usize| x[[i, k]] / step(&a, i);
            let unit = -zero(&b, j) * step(&a, i) * step(&b, j);
            sum(K, |k| x[[i, k]] * y[[j, k]]) + unit * off(&code, zero(&a, i))
        })
    }

    #[test]
    fn sums_of_zero_points_are_solved() {
        let got = of(false, |_, _| -8.0);
        assert!(got.1.contains("the sums of a that the zero points of b multiply are 8 too small"), "{} {}", got.0, got.1);
        let got = of(true, |_, z| (72.0 - 96.0) * z);
        assert!(got.1.contains("K·z_a·z_b of both zero points is made with K = 96 instead of 72"), "{} {}", got.0, got.1);
        let got = of(false, |code, _| -8.0 - sum(K, |k| if k % 16 < 8 { 0.0 } else { code(k).round() }));
        assert!(got.1.contains("lanes 8 … 15 of every 16 of K are lost, and -8 is added"), "{} {}", got.0, got.1);
        assert_eq!(got.0, "zp_correction:b.zero_sums");
        // An unsigned dot product for the sums alone.
        let got = of(true, |code, z| sum(K, |k| if code(k).round() + z < 0.0 { 256.0 } else { 0.0 }));
        assert!(got.1.contains("codes without a sign: each negative one counts 256 too much"), "{} {}", got.0, got.1);
        assert_eq!(got.0, "zp_correction:b.zero_sums");
    }

    /// Sums of some columns alone leave 16 bits, all by the same number.
    #[test]
    fn sums_that_wrap_once_in_some_lines_are_told() {
        const K: usize = 640;
        let n = 40;
        let zeros = Zero::Integer((0..M).map(|x| (x * 5 % 17) as i32 + 1).collect());
        let a = codes(Format::Int8, M, K, K, false, 63);
        let a = QTensor::new(QTensorParts { zero: zeros.clone(), ..a.into_parts() }).unwrap();
        // Codes of rows n mod 4 = 1 are large: their sums are beyond 32767.
        let mut b = codes(Format::Int8, n, K, K, false, 64).into_parts();
        for (at, c) in b.codes.iter_mut().enumerate() {
            *c = if at / K % 4 == 1 { 60 + *c % 40 } else { *c };
        }
        let b = QTensor::new(b).unwrap();
        let Zero::Integer(z) = zeros else { panic!("whole zero points") };
        let (x, y) = (a.dequantize(), b.dequantize());
        let total = |j: usize| sum(K, |k| f64::from(b.codes()[j * K + k] as i8));
        let of = |narrow: &dyn Fn(usize, f64) -> f64| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
                let unit = -f64::from(z[i]) * f64::from(a.scale_inv()[i]) * f64::from(b.scale_inv()[j]);
                sum(K, |k| x[[i, k]] * y[[j, k]]) + unit * (narrow(j, total(j)) - total(j))
            })
        };
        let got = of(&|_, x| (x + 32768.0).rem_euclid(65536.0) - 32768.0);
        assert_eq!(got.0, "zp_correction:a.zero_sums", "{}", got.1);
        assert!(got.1.contains("the sums of b that the zero points of a multiply wrap at 16 bits"), "{}", got.1);
        // The same number in lines that do not leave 16 bits has another cause.
        let got = of(&|j, x| if j % 4 == 2 { x - 65536.0 } else { x });
        assert!(!got.1.contains("wrap at 16 bits"), "{} {}", got.0, got.1);
    }
}
