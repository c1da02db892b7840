//! Every boundary ±2 ulp of every format, four roundings, both overflow rules, f32 and f64 sources, against a search of the
//! sorted values: another way to say what rounding is, which shares no code with encode.

use qassay::format::{FORMATS, FormatSpec, Special};
use qassay::{Format, Overflow, Rounding};

/// What a format's finite values are, sorted, one entry a value: code of the non-negative one. Negative values mirror them
/// (floats) or are listed (integers, tables).
struct Table {
    spec: &'static FormatSpec,
    /// (value, code), increasing, non-negative for floats.
    values: Vec<(f64, u32)>,
    /// The value that the code after the largest would have.
    beyond: f64,
}

impl Table {
    fn new(spec: &'static FormatSpec, codes: impl Iterator<Item = u32>) -> Self {
        let f = spec.format;
        let mut values: Vec<(f64, u32)> = codes.map(|c| (f.decode(c), c)).filter(|(x, _)| x.is_finite()).collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (last, before) = (values[values.len() - 1].0, values[values.len() - 2].0);
        // The gap stays, or (where each value is a binade of its own) doubles.
        let beyond = if f == Format::E8m0 { 2.0 * last } else { last + (last - before) };
        Self { spec, values, beyond }
    }

    fn search(&self, x: f64, rounding: Rounding, overflow: Overflow) -> u32 {
        let negative = x.is_sign_negative() && self.spec.format != Format::E8m0;
        if !self.spec.format.is_float() {
            return self.search_sorted(x, false, rounding, Overflow::Saturate);
        }
        let code = self.search_sorted(x.abs(), negative, rounding, overflow);
        let sign = if negative { 1 << (self.spec.bits - 1) } else { 0 };
        match self.spec.special {
            Special::NegativeZeroNan if code == 0 => 0,
            _ => code | sign,
        }
    }

    /// `mirrored`: x is the magnitude of a negative number.
    fn search_sorted(&self, x: f64, mirrored: bool, rounding: Rounding, overflow: Overflow) -> u32 {
        let (first, last) = (self.values[0], self.values[self.values.len() - 1]);
        let outside = match (overflow, self.spec.special) {
            (Overflow::Native, Special::Ieee | Special::NanOnly) => last.1 + 1,
            (Overflow::Native, Special::NegativeZeroNan) => 1 << (self.spec.bits - 1),
            _ => last.1,
        };
        if x.is_infinite() {
            return if x > 0.0 { outside } else { first.1 };
        }
        if x <= first.0 {
            return first.1;
        }
        let i = self.values.partition_point(|v| v.0 < x);
        if x >= self.beyond {
            // Only a direction that may not grow in magnitude brings it back.
            let back = rounding == Rounding::TowardZero || (rounding == Rounding::Up && mirrored);
            return if back { last.1 } else { outside };
        }
        let above = self.values.get(i).copied().unwrap_or((self.beyond, outside));
        if above.0 == x {
            return above.1;
        }
        let below = self.values[i - 1];
        let middle = below.0 + (above.0 - below.0) / 2.0;
        // Toward zero: for a negative integer the value above.
        let (inner, outer) = if x < 0.0 { (above, below) } else { (below, above) };
        match rounding {
            Rounding::NearestEven if x != middle => {
                if x < middle {
                    below.1
                } else {
                    above.1
                }
            }
            Rounding::NearestEven if self.spec.format == Format::E8m0 => above.1,
            Rounding::NearestEven => {
                if below.1.is_multiple_of(2) {
                    below.1
                } else {
                    above.1
                }
            }
            Rounding::TowardZero => inner.1,
            Rounding::Up => {
                if mirrored {
                    below.1
                } else {
                    above.1
                }
            }
            Rounding::Stochastic(bits) => {
                let fraction = (x - inner.0).abs() / (above.0 - below.0);
                if f64::from(bits) / 4_294_967_296.0 < fraction { outer.1 } else { inner.1 }
            }
        }
    }
}

const ROUNDINGS: [Rounding; 7] = [
    Rounding::NearestEven,
    Rounding::TowardZero,
    Rounding::Up,
    Rounding::Stochastic(0),
    Rounding::Stochastic(u32::MAX),
    Rounding::Stochastic(1 << 31),
    Rounding::Stochastic(0x4000_0001),
];

fn check(table: &Table, x: f64) {
    for x in [x, -x] {
        for rounding in ROUNDINGS {
            for overflow in [Overflow::Saturate, Overflow::Native] {
                let (found, want) = (table.spec.format.encode(x, rounding, overflow), table.search(x, rounding, overflow));
                // Only the code of an overflow to NaN may carry either sign.
                let f = table.spec.format;
                let nan = f.decode(found).is_nan() && f.decode(want).is_nan();
                assert!(found == want || nan, "{f} {x:e} {rounding:?} {overflow:?}: {found:#x}, search {want:#x}");
            }
        }
    }
}

/// y and two neighbours on each side, in f64 and in f32.
fn around(y: f64) -> impl Iterator<Item = f64> {
    let (up, down) = (y.next_up(), y.next_down());
    let z = y as f32;
    let (single_up, single_down) = (z.next_up(), z.next_down());
    let singles = [z, single_up, single_up.next_up(), single_down, single_down.next_down()];
    [y, up, up.next_up(), down, down.next_down()].into_iter().chain(singles.map(f64::from))
}

fn check_boundaries(table: &Table) {
    for pair in table.values.windows(2) {
        let (a, b) = (pair[0].0, pair[1].0);
        [a, a + (b - a) / 2.0, b].into_iter().flat_map(around).for_each(|x| check(table, x));
    }
    let last = table.values[table.values.len() - 1].0;
    let edge = [last, last + (table.beyond - last) / 2.0, table.beyond, 2.0 * table.beyond];
    edge.into_iter().flat_map(around).for_each(|x| check(table, x));
    for x in [0.0, f64::from_bits(1), f64::MIN_POSITIVE, 1e-45, 1e300, f64::MAX, f64::INFINITY, 0.1, 1.0 / 3.0] {
        check(table, x);
    }
}

fn magnitudes(s: &FormatSpec) -> std::ops::Range<u32> {
    0..1 << (s.bits - u32::from(s.signed && !s.integer))
}

#[test]
fn formats_of_at_most_8_bits() {
    for s in FORMATS.iter().filter(|s| s.bits <= 8) {
        check_boundaries(&Table::new(s, magnitudes(s)));
    }
}

#[test]
fn f16_bf16_and_tf32() {
    for s in FORMATS.iter().filter(|s| s.bits > 8 && s.bits < 32) {
        // Windows of codes: the ends, every carry between binades, and a comb in between.
        let top = magnitudes(s).end;
        let wanted = |c: &u32| {
            let fraction = c & ((1 << s.mantissa) - 1);
            *c < 64 || *c + 64 > top || fraction < 3 || fraction + 3 > 1 << s.mantissa || c % 97 < 2
        };
        let all = Table::new(s, magnitudes(s));
        let part: Vec<(f64, u32)> = all.values.iter().copied().filter(|v| wanted(&v.1)).collect();
        for pair in part.windows(2).filter(|p| p[0].1 + 1 == p[1].1) {
            let (a, b) = (pair[0].0, pair[1].0);
            [a, a + (b - a) / 2.0, b].into_iter().flat_map(around).for_each(|x| check(&all, x));
        }
        for x in [all.beyond, f64::INFINITY, f64::from_bits(1), f64::MAX] {
            check(&all, x);
        }
    }
}

/// f32 as a target: the neighbours of one pattern in 65,537, found by the processor's next_up.
#[test]
fn f32_boundaries() {
    let s = Format::F32.spec();
    for bits in (0..f32::MAX.to_bits()).step_by(65_537).chain([0, 1, 0x7f_ffff, 0x80_0000, f32::MAX.to_bits() - 2]) {
        let x = f32::from_bits(bits);
        let four = [x, x.next_up(), x.next_up().next_up()].map(|y| (f64::from(y), y.to_bits()));
        let mut table = Table::new(s, [0, 1, 2].into_iter());
        table.values = four.to_vec();
        table.beyond = f64::from(x.next_up().next_up().next_up());
        let middle = four[0].0 + (four[1].0 - four[0].0) / 2.0;
        around(four[1].0).chain(around(middle)).filter(|y| (four[0].0..=four[2].0).contains(y)).for_each(|y| check(&table, y));
    }
}

/// Values that a detour through f32 (or f16) would round twice, to the wrong neighbour.
#[test]
fn no_double_rounding() {
    let mut traps = 0;
    for s in FORMATS.iter().filter(|s| s.bits <= 16 && s.format != Format::E8m0) {
        let f = s.format;
        let nearest = |x: f64| f.encode(x, Rounding::NearestEven, Overflow::Saturate);
        for code in (0..f.max_code()).step_by(2) {
            let (low, high) = (f.decode(code), f.decode(code + 1));
            let middle = (low + high) / 2.0;
            let trap = middle * (1.0 + f64::EPSILON * 4.0);
            if f64::from(trap as f32) != middle || trap <= middle {
                continue;
            }
            assert_eq!(nearest(trap), code + 1, "{f} just above {middle}");
            assert_eq!(nearest(f64::from(trap as f32)), code, "{f}: the detour is a trap");
            traps += 1;
        }
    }
    assert!(traps > 30_000, "{traps}");
    // bf16 on the way to e4m3: 1.0625 is the tie, 1.0629 is not, but bf16 brings it there.
    let x = 1.0629f32;
    let detour = half::bf16::from_f32(x).to_f64();
    assert_eq!(detour, 1.0625);
    let nearest = |x| Format::E4m3.encode(x, Rounding::NearestEven, Overflow::Saturate);
    assert_eq!((nearest(f64::from(x)), nearest(detour)), (0x39, 0x38));
}

/// The share of stochastic round-ups is the fraction.
#[test]
fn stochastic_rounding_is_unbiased() {
    for (f, x) in
        [(Format::E4m3, 1.03), (Format::E2m1, 4.4), (Format::Int8, -7.3), (Format::E5m2, -1e-5), (Format::E4m3, 300.0)]
    {
        let n = 1 << 16;
        let code = |i: u32| f.encode(x, Rounding::Stochastic(i.wrapping_mul(0x9e37_79b1)), Overflow::Saturate);
        let mean = (0..n).map(|i| f.decode(code(i))).sum::<f64>() / f64::from(n);
        assert!((mean - x).abs() <= 2e-4 * f.ulp(x), "{f} {x}: mean {mean}");
    }
}

#[test]
fn nan_and_its_absence() {
    for s in FORMATS {
        for overflow in [Overflow::Saturate, Overflow::Native] {
            let code = s.format.encode(-f64::NAN, Rounding::NearestEven, overflow);
            let decoded = s.format.decode(code);
            match s.special {
                _ if s.integer => assert_eq!(code, 0),
                Special::None => assert_eq!(decoded, s.format.max_finite(), "{}", s.name),
                _ => assert!(decoded.is_nan(), "{}", s.name),
            }
        }
    }
}
