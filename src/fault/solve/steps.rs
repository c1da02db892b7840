//! Theories of single steps of the sum: the last tile of K not masked, products rounded, the zero points' term in other units.

use super::given::Given;
use super::maps::cost;
use super::system::{Added, Over, Past, System, Theory, Units};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Tiles of K that kernels load.
const TILES: [usize; 8] = [16, 32, 64, 128, 256, 8, 512, 1024];

/// All of them.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone {
        return Vec::new();
    }
    let mut all = unmasked(s);
    all.extend(residue_first(s));
    all.extend([Which::A, Which::B].into_iter().filter_map(|side| ended(s, side)));
    for format in [Format::F16, Format::Bf16] {
        for (units, words) in [(Units::Values, "every product"), (Units::Codes, "every product of codes")] {
            let words = format!("{words} is rounded to {format} before it is summed");
            let mut t = Theory::new(Class::LowprecAcc, "out", "out.product_rounded", words).bits(5.0);
            t.product = Some((format, units));
            all.push(t);
        }
        if s.a.q.is_some() && s.b.q.is_some() {
            let words = format!("the product of the scales of a and of b is rounded to {format} before it multiplies anything");
            let mut t = Theory::new(Class::LowprecAcc, "out", "out.scales_rounded", words).bits(5.0);
            t.product = Some((format, Units::Scales));
            all.push(t);
        }
    }
    let fp8 = |g: &Given| g.format().is_some_and(|f| f.is_float() && f.bits() == 8);
    for format in [Format::E4m3, Format::E5m2].into_iter().filter(|_| fp8(&s.a) && fp8(&s.b)) {
        let words = format!("every product of codes is rounded to {format} before it is summed");
        let mut t = Theory::new(Class::LowprecAcc, "out", "out.product_rounded", words).bits(6.0);
        t.product = Some((format, Units::Codes));
        all.push(t);
    }
    all.extend(products_of_scales(s));
    for side in [Which::A, Which::B] {
        all.extend(corrections(s, side));
    }
    all
}

/// The product of two block scales in a narrow type: the sum of two e8m0 codes in 8 bits, a product that is an FP8 number again.
fn products_of_scales(s: &System) -> Vec<Theory> {
    let stored = |g: &Given| g.q.as_ref().map(|q| q.scale_format());
    let (Some(a), Some(b)) = (stored(&s.a), stored(&s.b)) else { return Vec::new() };
    let blocks = s.a.grid.1 > 1 || s.b.grid.1 > 1;
    if a != b || !blocks || s.a.deep.is_some() || s.b.deep.is_some() {
        return Vec::new();
    }
    let theory = |class: Class, variant: &str, words: String, bits: f64, (format, units): (Format, Units)| {
        let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(bits);
        t.product = Some((format, units));
        t
    };
    let mut all = Vec::new();
    if a == Format::E8m0 {
        let sum = "the e8m0 codes of the scales of a and of b are added";
        let product = "the product of the scales of a and of b";
        for (how, bits, class, added) in [
            (format!("{sum} in 8 bits that wrap, before their biases are taken off"), 4.0, Class::OverflowWrap, Added::Wraps),
            (
                format!("{sum} in 8 bits and stop at 255, before their biases are taken off: no product of scales is above 2"),
                4.0,
                Class::RangeRule,
                Added::Stops,
            ),
            (
                "the exponents of the scales of a and of b are added in 8 bits with a sign that wrap".into(),
                5.0,
                Class::OverflowWrap,
                Added::SignedWraps,
            ),
            (
                "the exponents of the scales of a and of b are added in 8 bits with a sign and stop at -128 and 127".into(),
                5.0,
                Class::RangeRule,
                Added::SignedStops,
            ),
            (format!("{product} is an e8m0 code again, of 8 bits that wrap"), 5.0, Class::OverflowWrap, Added::CodeWraps),
            (
                format!("{product} is an e8m0 code again, and stops at 2^-127 and 2^127"),
                5.0,
                Class::RangeRule,
                Added::CodeStops,
            ),
            (
                format!("{product} is made as the exponent field of an f32: 0 from 2^-127 down, Inf from 2^128 up"),
                5.0,
                Class::CodecEdge,
                Added::Field,
            ),
        ] {
            all.push(theory(class, "scales_added", how, bits, (Format::E8m0, Units::Exponents(added))));
        }
    }
    // What is rounded with its second level is another number.
    let second = s.a.global * s.b.global != 1.0;
    let fp8 = [Format::E4m3, Format::E5m2].map(|f| (f, Units::Blocks));
    let wide = [Format::Bf16, Format::F16].into_iter().filter(|_| second).map(|f| (f, Units::Blocks));
    for (format, units) in fp8.into_iter().filter(|_| a == Format::E4m3).chain(wide) {
        let words =
            format!("the product of the block scales of a and of b is rounded to {format} before it multiplies anything");
        all.push(theory(Class::LowprecAcc, "scales_rounded", words, 5.5, (format, units)));
    }
    all
}

/// The last, partial tile of K is summed whole.
fn unmasked(s: &System) -> Vec<Theory> {
    if s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let mut all: Vec<Theory> = Vec::new();
    // Weights of experts that are stored by K: behind it the next expert's begin.
    let group = (s.parts.len() > 1).then(|| Past::NextGroup(s.b.rows / s.parts.len()));
    let by_experts = group.into_iter().flat_map(|g| [(Past::Next, g), (Past::NextScaled, g)]);
    let ways: Vec<(Past, Past)> = [
        (Past::Next, Past::Next),
        (Past::NextScaled, Past::NextScaled),
        (Past::Next, Past::Zero),
        (Past::Zero, Past::Next),
        (Past::Next, Past::ZeroOn),
        (Past::ZeroOn, Past::Next),
        (Past::NextBare, Past::NextBare),
    ]
    .into_iter()
    .chain(by_experts)
    .collect();
    for tile in TILES.into_iter().filter(|t| !s.k.is_multiple_of(*t)) {
        let by = tile - s.k % tile;
        // What one operand's memory still holds of an earlier tile, where the other is loaded on.
        let earlier = [1usize, 2, 3, 4, 8].into_iter().map(|n| n * tile).filter(|d| *d <= s.k).flat_map(|d| {
            [Past::Next, Past::NextScaled].into_iter().flat_map(move |x| [(x, Past::Stage(d)), (Past::Stage(d), x)])
        });
        for (a, b) in ways.iter().copied().chain(earlier) {
            // Code 0 is the value 0 where there is no zero point: then nothing is added.
            let nothing = |past, g: &Given| match past {
                Past::Zero => g.zero.is_none(),
                // Where the tile ends within the last group nothing follows.
                Past::ZeroOn => g.zero.is_none() || g.tile.0 > 1 || (g.k + by - 1) / g.tile.1 < g.grid.1,
                // Values have no scale, and zero points have one.
                Past::NextBare => g.q.is_none() || g.zero.is_some(),
                _ => false,
            };
            let over = Over { by, a, b, apart: false };
            // What lies behind the last row is not known: there have to be others.
            let few = |past, g: &Given| !matches!(past, Past::Zero | Past::Stage(_)) && g.rows < 2;
            let impossible = nothing(a, &s.a) || nothing(b, &s.b) || few(a, &s.a) || few(b, &s.b);
            if impossible || all.iter().any(|t| t.over == Some(over)) {
                continue;
            }
            let whose = |past| match past {
                Past::Next => "the start of its next row".to_string(),
                Past::NextScaled => "the start of its next row with that row's scale".into(),
                Past::NextGroup(_) => "the start of the same row of the next group".into(),
                Past::NextBare => "the codes at the start of its next row by a scale of 1, as padding has".into(),
                Past::Zero => "code 0".into(),
                Past::ZeroOn => "code 0 by the scales and zero points that follow, of the next row's first groups".into(),
                Past::Stage(back) => {
                    format!("what the tile still holds of K {} … {}, {back} earlier", s.k - back, s.k + by - back - 1)
                }
            };
            let words = format!(
                "the last tile of {tile} of K is not masked: {by} elements past the end are summed, of a {}, of b {}",
                whose(a),
                whose(b)
            );
            let back = |past| if let Past::Stage(d) = past { 2.0 + cost(d / tile) } else { 0.0 };
            let mut t = Theory::new(Class::KTail, "out", "k.unmasked", words).bits(3.0 + cost(tile) + back(a) + back(b));
            t.bits += if a == Past::ZeroOn || b == Past::ZeroOn { 1.0 } else { 0.0 };
            t.over = Some(over);
            if s.parts.len() > 1 && a == b {
                let mut apart = t.clone();
                apart.detail += "; behind the last row of a group 0";
                (apart.bits, apart.over) = (t.bits + 1.0, Some(Over { apart: true, ..over }));
                all.push(apart);
            }
            all.push(t);
        }
    }
    all
}

/// A loop whose first tile is the one that is not whole, and whose pointers then advance by a whole tile: what lies between is never read, and the
/// last tile runs on past the end.
fn residue_first(s: &System) -> Vec<Theory> {
    if s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let theory = |(tile, apart): (usize, bool)| {
        let residue = s.k % tile;
        let by = tile - residue;
        let words = format!(
            "the first tile of K is the partial one, its {residue}, and the pointers then advance by {tile}: k = {residue} … {} are never read, and \
             the last tile runs {by} past the end of K, into the next rows{}",
            tile - 1,
            if apart { "; behind the last row of a group 0" } else { "" }
        );
        let mut t = Theory::new(Class::KTail, "out", "k.residue", words).bits(4.0 + cost(tile) + f64::from(u8::from(apart)));
        t.k = Some(Arc::new((0..s.k).map(|k| f64::from(u8::from(k < residue || k >= tile))).collect()));
        t.over = Some(Over { by, a: Past::Next, b: Past::Next, apart });
        t
    };
    let tiles = TILES.into_iter().filter(|t| *t < s.k && !s.k.is_multiple_of(*t));
    let groups: &[bool] = if s.parts.len() > 1 { &[false, true] } else { &[false] };
    tiles.flat_map(|t| groups.iter().map(move |apart| (t, *apart))).map(theory).collect()
}

/// Elements of an operand from one on are read as 0: the first wrong line has lost the end of its K, those behind it all.
fn ended(s: &System, side: Which) -> Option<Theory> {
    let (g, name) = (s.given(side), side.name());
    let region = s.region.as_ref().filter(|r| r.tiles.is_empty() && s.parts.len() == 1)?;
    let (lines, others) = if side == Which::A { (&region.rows, &region.cols) } else { (&region.cols, &region.rows) };
    let first = lines.iter().position(|x| *x)?;
    (lines[first..].iter().all(|x| *x) && others.iter().all(|x| *x)).then_some(())?;
    // The sums of the first k products of some elements of that line, and what was written.
    let step = (others.len() / 8).max(1);
    let mut candidates: Vec<usize> = (0..s.k).collect();
    for other in (0..others.len()).step_by(step) {
        let (i, j) = if side == Which::A { (first, other) } else { (other, first) };
        let (mut sums, mut sum, mut size) = (Vec::with_capacity(s.k), 0.0, 0.0);
        s.products(&Theory::right(), i, j, |_, p| {
            sums.push(sum);
            sum += p;
            size += p.abs();
        })?;
        let (y, half) = s.written(i, j, size)?;
        candidates.retain(|k| (sums[*k] - y).abs() <= half);
    }
    // From the start of a line on it may also not have been computed.
    let end = first * g.k + candidates.first().filter(|k| **k > 0)?;
    let k_all = g.k;
    let words = format!("{name} is read as 0 from its element {end} on: row {first}, k = {}", end % k_all);
    let mut t = Theory::new(Class::Addressing, name, format!("{name}.end"), words).bits(8.0);
    let values = g.values.clone();
    t.side(side).value = Some(Arc::new(move |i, k| if i * k_all + k < end { values[i * k_all + k] } else { 0.0 }));
    Some(t)
}

/// The term of one operand's zero points, Σ_k other·zero·scale, without the other's scale, or with it twice.
fn corrections(s: &System, side: Which) -> Vec<Theory> {
    let (g, o) = (s.given(side), s.given(side.other()));
    // Signed integers without a zero point may be multiplied as unsigned ones, whose zero point is the middle.
    let middle = g.format().filter(|f| f.is_integer() && f.min_finite() < 0.0).map(|f| 0.5 * f64::from(1u32 << f.bits()));
    let zero: Vec<f64> = match (&g.zero, middle) {
        (Some((zero, None)), _) => zero.clone(),
        (None, Some(middle)) => vec![middle; g.scales().len()],
        _ => return Vec::new(),
    };
    if o.q.is_none() {
        return Vec::new();
    }
    let (name, other) = if side == Which::A { ("a", "b") } else { ("b", "a") };
    let lines: Vec<Option<(usize, usize)>> = (0..s.rows).map(|i| s.lines(i, 0).map(|(a, b, _)| (a, b))).collect();
    let ranges: Vec<std::ops::Range<usize>> = (0..s.rows).map(|i| s.lines(i, 0).map_or(0..0, |l| l.2)).collect();
    let bias = s.bias.clone();
    // zero·scale of one side, values and scales of the other.
    let term: Arc<Vec<f64>> = Arc::new(
        (0..g.rows * g.k)
            .map(|at| {
                let (i, k) = (at / g.k, at % g.k);
                zero[i / g.tile.0 * g.grid.1 + k / g.tile.1] * g.step(i, k)
            })
            .collect(),
    );
    let (values, steps): (Arc<Vec<f64>>, Arc<Vec<f64>>) =
        (o.values.clone(), Arc::new((0..o.rows * o.k).map(|at| o.step(at / o.k, at % o.k)).collect()));
    let (lines, ranges, k_all) = (Arc::new(lines), Arc::new(ranges), s.k);
    [(-1, "is not multiplied by"), (1, "is multiplied twice by")]
        .into_iter()
        .map(|(power, how)| {
            let words = format!("the term of {name}'s zero points {how} the scale of {other}");
            let mut t = Theory::new(Class::ZpCorrection, name, format!("{name}.zero_units"), words).bits(3.0);
            let (term, values, steps) = (term.clone(), values.clone(), steps.clone());
            let (lines, ranges, bias) = (lines.clone(), ranges.clone(), bias.clone());
            t.finish = Some(Arc::new(move |i, j, v| {
                let Some((a, b)) = lines[i] else { return v + bias.at(i, j) };
                let (own, theirs) = if side == Which::A { (a, b + j) } else { (b + j, a) };
                let added: f64 = ranges[i]
                    .clone()
                    .map(|k| {
                        let step = steps[theirs * k_all + k];
                        term[own * k_all + k] * values[theirs * k_all + k] * (step.powi(power) - 1.0)
                    })
                    .sum();
                v - added + bias.at(i, j)
            }));
            t
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::{Format, Zero};

    /// Codes are masked to 0 behind K, and what they multiply and are multiplied by are not: 0 less its zero point is no zero.
    #[test]
    fn a_mask_of_the_codes_alone_is_told() {
        const K: usize = 104;
        let (a, b) = (wide(M, K), codes(Format::Uint4, N, K, 16, true, 88));
        let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
        let (x, y) = (a.to_f64(), b.dequantize());
        let flat: Vec<f64> = x.iter().copied().collect();
        let of = |cell: &dyn Fn(usize, usize) -> usize| {
            found(&a, &b, None, Format::F32, |i, j, _| {
                let weight = |at: usize| z.get(at).map_or(0.0, |z| -f64::from(*z) * f64::from(b.scale_inv()[at]));
                let on = |k: usize| flat.get(i * K + k).copied().unwrap_or(0.0) * weight(cell(j, k));
                sum(K, |k| x[[i, k]] * y[[j, k]]) + (K..128).map(on).sum::<f64>()
            })
        };
        let got = of(&|j, k| j * 7 + k / 16);
        assert_eq!(got.0, "k_tail:k.unmasked", "{}", got.1);
        assert!(
            got.1.contains("of a the start of its next row, of b code 0 by the scales and zero points that follow"),
            "{}",
            got.1
        );
        let got = of(&|j, _| j * 7 + 6);
        assert!(got.0 == "k_tail:k.unmasked" && got.1.ends_with("of b code 0"), "{got:?}");
    }

    /// The last tile of 32 has 16 of K: values are loaded on, weights are those of the tile before.
    #[test]
    fn a_stage_that_is_not_loaded_again_meets_the_next_row() {
        const K: usize = 80;
        let (a, b) = (wide(M, K), codes(Format::Uint4, N, K, 16, true, 83));
        let (x, y) = (a.to_f64(), b.dequantize());
        let flat: Vec<f64> = x.iter().copied().collect();
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let on = |k: usize| flat.get(i * K + k).copied().unwrap_or(0.0) * y[[j, k - 32]];
            sum(K, |k| x[[i, k]] * y[[j, k]]) + (K..K + 16).map(on).sum::<f64>()
        });
        assert_eq!(got.0, "k_tail:k.unmasked", "{}", got.1);
        assert!(got.1.contains("of b what the tile still holds of K 48 … 63, 32 earlier"), "{}", got.1);
    }

    /// Tiles of 32 of 80: the first has 16, the next begins at 32.
    #[test]
    fn a_residue_that_comes_first_and_is_stepped_over_as_a_whole_tile_is_told() {
        const K: usize = 80;
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 84));
        let x: Vec<f64> = a.to_f64().iter().copied().collect();
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let one = |k: usize| {
                let y = b.codes().get(j * K + k).map_or(0.0, |c| f64::from(*c as i8) * f64::from(b.scale_inv()[j]));
                x.get(i * K + k).copied().unwrap_or(0.0) * y
            };
            (0..16).chain(32..96).map(one).sum()
        });
        assert_eq!(got.0, "k_tail:k.residue", "{}", got.1);
        assert!(got.1.contains("k = 16 … 31 are never read, and the last tile runs 16 past the end"), "{}", got.1);
    }

    /// Experts and their tokens are tensors by themselves, with zeros behind each.
    #[test]
    fn a_tail_that_runs_on_in_each_group_alone_is_one_fault() {
        const K: usize = 72;
        let (n, ends) = (24, [10usize, 22, 40]);
        let (a, b) = (wide(40, K), codes(Format::Int8, 3 * n, K, K, false, 85));
        let (x, y) = (a.to_f64(), b.dequantize());
        let got = crate::fault::solve::tests::grouped_found(&a, &b, &ends, Format::F32, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            let right = sum(K, |k| x[[i, k]] * y[[e * n + j, k]]);
            let step = |row: usize| f64::from(b.scale_inv()[row]);
            let on = |k: usize| x[[i + 1, k]] * y[[e * n + j + 1, k]] / step(e * n + j + 1) * step(e * n + j);
            right + if i + 1 < ends[e] && j + 1 < n { sum(56, on) } else { 0.0 }
        });
        assert_eq!(got.0, "k_tail:k.unmasked", "{}", got.1);
        assert!(got.1.contains("the last tile of 64") || got.1.contains("the last tile of 128"), "{}", got.1);
        assert!(got.1.contains("behind the last row of a group 0"), "{}", got.1);
    }
}
