//! Arithmetics that are wrong although their results can hide in a wide bound: accumulators of 16 bits or of too few, a rounding too many,
//! a result that is cut off.
//!
//! **When the bits prove it.** The result has every bit of a wrong arithmetic W and not those of any right one that is known. A right kernel
//! that is not known errs nearly as some known right arithmetic R does: it may share W's instruction, or the part of K that makes most of
//! the error, so how far W is from the ideal proves nothing where R is as far. Where W is d steps from the nearest of R, the ideal and the
//! exact sum of the factors that W sums (which may be rounded where the ideal's are not), the kernel has the value of W with
//! probability at most 1/(2d+1): its error is as likely of either sign and no more likely far than near. A step is the spacing of the output, or of the sums
//! where much cancels: β/K², which is no more than an error of f32 in one product. So all elements agree by chance with
//! probability Π 1/(2d+1) over the elements that are of different values; those of one value, or of one but for a power of two, are one (equal rows,
//! constant data). Where W loses bits before the scales, elements whose sums are equal before their scales are one: the same bits are lost. R is the known right arithmetic, cut as W or not cut, for which that is most likely. What was tried multiplies it.
//! Below 10⁻⁹ it is proved, above it may be chance: that is said, and is no verdict.

use super::super::arithmetic::Arithmetic;
use super::cuts::{Cut, Join};
use super::search::{Case, Way, Ways};
use super::ways::{Bias, Chain, Chunk, Ending, Extra, Promote};
use crate::compare::Bound;
use crate::fault::Class;
use crate::model::mma::{Dest, Step};
use crate::model::product::{FactorRows, Kind};
use crate::model::table::{self, Unit};
use crate::order::Order as _;
use crate::{Format, Result};
use std::collections::{HashMap, HashSet};

const SIXTEEN: [Format; 2] = [Format::F16, Format::Bf16];
/// Products whose bits are compared: elements times K. More of one result prove no more.
const MOST: usize = 1 << 28;
/// Elements on which chance is counted: every right arithmetic is computed there.
const COUNTED: usize = 4096;
/// Parts that are tried with wrong arithmetics, and equal ones.
const PARTS: usize = 8;
const MANY: usize = 64;

/// The wrong arithmetic that gives every bit, and whether that proves it. `bound` holds the ideal.
pub fn find(case: &Case, arithmetic: &Arithmetic, bound: &Bound) -> Result<Option<(Way, bool)>> {
    let k = case.k();
    let most = (MOST / k.max(1)).max(64);
    let right = arithmetic.promoted(k);
    let plain = case.endings(false);
    let split = case.endings(true);
    let mut few: Vec<Cut> = Cut::usual(k).into_iter().filter(|c| c.parts(k).len() <= PARTS).collect();
    for cut in Cut::equal(k, PARTS) {
        if !few.iter().any(|f| f.parts(k) == cut.parts(k)) {
            few.push(cut);
        }
    }
    let once = |chains: &[(Chain, Option<Promote>)]| chains.iter().filter(|c| c.1.is_none()).copied().collect::<Vec<_>>();
    let whole = || vec![Cut::Whole];
    let mut tries: Vec<Ways> = Vec::new();
    // Sums that lose too much.
    let lossy = chains(case, arithmetic, k);
    tries.push(Ways { chains: lossy.clone(), cuts: whole(), endings: plain.clone() });
    // A rounding too many.
    tries.push(Ways { chains: right.clone(), cuts: whole(), endings: extra(&plain, case, false) });
    // The same of parts, which a kernel that stores them may cut anywhere.
    tries.push(Ways { chains: once(&lossy), cuts: few.clone(), endings: plain.clone() });
    let others = Cut::all(k).into_iter().filter(|c| c.parts(k).len() <= PARTS && !few.contains(c)).collect::<Vec<_>>();
    let stored = extra(&split, case, true);
    tries.push(Ways { chains: once(&right), cuts: [few, others].concat(), endings: stored.clone() });
    let many = Cut::equal(k, MANY).into_iter().filter(|c| c.parts(k).len() > PARTS).collect();
    tries.push(Ways { chains: once(&right), cuts: many, endings: stored });
    for ways in &tries {
        if let Some(way) = case.find(ways, most)? {
            // On every device a kernel may sum in f32 without its tensor cores.
            let in_f32 = [Chain::Exact, Chain::Sequential, Chain::Pairwise].map(|c| (c, None)).to_vec();
            if case.find(&Ways { chains: in_f32, cuts: Cut::usual(k), endings: case.endings(true) }, most)?.is_some() {
                return Ok(None);
            }
            let tried: usize = tries.iter().map(|w| w.chains.len() * w.cuts.len() * w.endings.len()).sum();
            let needed = (1e9 * tried as f64).log2();
            let proves = surprise(case, &way, &right, bound, most.min(COUNTED))? >= needed;
            return Ok(Some((way, proves)));
        }
    }
    Ok(None)
}

/// What is wrong with a wrong arithmetic.
pub fn class(way: &Way) -> Class {
    match way.ending.extra {
        Extra { truncated: true, .. } => Class::Rounding,
        Extra { sum: None, scaled: None, value: None, .. } => Class::LowprecAcc,
        _ => Class::RoundOrder,
    }
}

/// `Σ log2(2d + 1)` of the elements beside the right arithmetic that makes it least; see the module.
fn surprise(case: &Case, way: &Way, right: &[(Chain, Option<Promote>)], bound: &Bound, most: usize) -> Result<f64> {
    let (ideal, out, k) = (bound.rounded_ideal(), bound.out(), case.k().max(1) as f64);
    // Nothing of the wrong arithmetic but its factors, its cut and the order of its scales.
    let ending = Ending { extra: Extra::default(), ..way.ending };
    let exact = Way { chain: Chain::Exact, promote: None, cut: Cut::Whole, join: Join::Order(vec![0]), ending };
    let mut counted = case.first_values(&exact, most)?;
    let mut seen = HashSet::new();
    counted.retain(|(i, _)| seen.insert(bound.ideal()[*i].to_bits() & ((1 << 52) - 1)));
    if before_scales(way) {
        let unscaled: HashMap<usize, Vec<u32>> = case.first_unscaled(most)?.into_iter().collect();
        let mut seen = HashSet::new();
        counted.retain(|(i, _)| seen.insert(like(&unscaled[i])));
    }
    let stored = |value: f32| case.store.value(case.store.bits(value, false));
    let far = |i: usize, right: f64| {
        let step = out.spacing(i, ideal[i]).max(bound.certain()[i] / (k * k));
        (case.store.value(case.bits[i]) - right).abs() / step
    };
    let from_exact: Vec<f64> = counted.iter().map(|(i, v)| far(*i, ideal[*i]).min(far(*i, stored(*v)))).collect();
    let bits = |d: f64| if d.is_finite() { (2.0 * d.round() + 1.0).log2() } else { 0.0 };
    let mut least: f64 = from_exact.iter().copied().map(bits).sum();
    for whole in [true, false] {
        for (chain, promote) in right {
            let (cut, join) = if whole { (exact.cut, exact.join.clone()) } else { (way.cut, way.join.clone()) };
            let values = case.first_values(&Way { chain: *chain, promote: *promote, cut, join, ending }, most)?;
            let values: HashMap<usize, f32> = values.into_iter().collect();
            let beside = |((i, _), d): (&(usize, f32), &f64)| bits(d.min(far(*i, stored(values[i]))));
            least = least.min(counted.iter().zip(&from_exact).map(beside).sum());
        }
        if way.cut == Cut::Whole {
            break;
        }
    }
    Ok(least)
}

/// Whether all that is lost is lost before a sum meets its scales.
fn before_scales(way: &Way) -> bool {
    let (x, scaled) = (&way.ending.extra, way.ending.blocks.is_some());
    if matches!(way.chain, Chain::Dequantized { .. }) || x.truncated || x.scaled.is_some() || x.value.is_some() {
        return false;
    }
    let joined = x.joined.is_some() || x.sum.is_some() || x.scaled_part.is_some();
    !(x.part.is_some() && scaled || joined && (scaled || way.ending.each))
}

/// Sums of blocks that are the same but for one sign and one power of two are alike.
fn like(sums: &[u32]) -> Vec<u32> {
    let Some(first) = sums.iter().find(|s| **s & 0x7fff_ffff != 0) else { return Vec::new() };
    let (sign, exponent) = (first & 0x8000_0000, first & 0x7f80_0000);
    let relative = |s: &u32| if s & 0x7fff_ffff == 0 { 0 } else { (s ^ sign).wrapping_sub(exponent) };
    sums.iter().map(relative).collect()
}

/// Accumulators of 16 bits, of fewer bits than the device's, and f32 sums kept in 16 bits between promotions.
fn chains(case: &Case, arithmetic: &Arithmetic, k: usize) -> Vec<(Chain, Option<Promote>)> {
    if case.plan.kind == Kind::Integer {
        return Vec::new();
    }
    let Some((fa, fb)) = case.plan.problems().next().map(|p| (p.a.format, p.b.format)) else { return Vec::new() };
    let mut all: Vec<(Chain, Option<Promote>)> = Vec::new();
    let mut units: Vec<Unit> = Vec::new();
    for model in table::MODELS {
        if let Ok(unit) = model.unit(fa, fb) {
            let f16 = matches!(unit, Unit::Step(s) | Unit::Lowered(s) if s.dest == Dest::F16);
            if f16 && !units.contains(&unit) {
                units.push(unit);
                let every = [None, Some(128), Some(64), Some(256), Some(32)];
                all.extend(every.map(|e| (Chain::Unit(model.name), e.filter(|e| *e < k).map(Promote::f32))));
            }
        }
    }
    for format in SIXTEEN {
        all.extend([true, false].map(|fused| (Chain::Sixteen { format, fused }, None)));
        for chain in &arithmetic.chains {
            // All of K at once is the sum rounded.
            for every in [16, 32, 64, 128, 256, 512].into_iter().filter(|e| *e < k) {
                all.extend([Chunk::Added, Chunk::Rounded].map(|chunk| (*chain, Some(Promote { every, main: format, chunk }))));
                if matches!(chain, Chain::Unit(_) | Chain::Sequential) {
                    all.push((*chain, Some(Promote { every, main: format, chunk: Chunk::Carried })));
                }
            }
        }
    }
    // Fewer bits than any instruction of the device keeps; at least those of a product, which the block step needs.
    let step = |chain: &Chain| match chain {
        Chain::Unit(name) => match table::find(name).and_then(|m| m.unit(fa, fb)) {
            Ok(Unit::Step(Step { w, f, dest: Dest::F32 { fraction }, .. })) => Some((w, f, fraction)),
            _ => None,
        },
        _ => None,
    };
    // A unit that takes the scales of blocks itself cuts products by the scaled sum: which bits it keeps of a block is not known here.
    let takes_scales = |s: &FactorRows| s.scales().is_some_and(|q| matches!(q.scale_format(), Format::E8m0 | Format::E4m3));
    if case.plan.problems().next().is_some_and(|p| takes_scales(p.a) && takes_scales(p.b)) {
        return sorted(all);
    }
    let steps: Vec<(usize, u32, u32)> = arithmetic.chains.iter().filter_map(step).collect();
    let product = (fa.spec().mantissa + fb.spec().mantissa).max(8);
    let least_f = steps.iter().map(|s| s.1).min().unwrap_or(0);
    let least_fraction = steps.iter().map(|s| s.2).min().unwrap_or(0);
    for (w, f, fraction) in steps {
        let fewer = |f: u32, fraction: u32| (Chain::Narrowed { w, f, fraction }, None);
        all.extend([7, 10, 11, 12, 13].into_iter().filter(|o| *o < least_fraction).map(|o| fewer(f, o)));
        all.extend((product..least_f).flat_map(|f| [fewer(f, fraction), fewer(f, f.min(fraction))]));
    }
    sorted(all)
}

fn sorted(mut all: Vec<(Chain, Option<Promote>)>) -> Vec<(Chain, Option<Promote>)> {
    all.order_by_key(|(_, promote)| promote.is_some());
    all.dedup();
    all
}

/// Endings with one rounding too many, or a truncated result.
fn extra(right: &[Ending], case: &Case, split: bool) -> Vec<Ending> {
    let mut all = Vec::new();
    let none = Extra::default();
    for ending in right {
        let mut with = |extra: Extra| all.push(Ending { extra, ..*ending });
        if split {
            for f in SIXTEEN {
                with(Extra { part: Some(f), ..none });
                with(Extra { joined: Some(f), ..none });
                with(Extra { part: Some(f), joined: Some(f), ..none });
                if ending.each {
                    with(Extra { scaled_part: Some(f), ..none });
                    with(Extra { scaled_part: Some(f), joined: Some(f), ..none });
                }
            }
            continue;
        }
        for f in SIXTEEN {
            with(Extra { sum: Some(f), ..none });
            if ending.bias == Bias::Added {
                with(Extra { scaled: Some(f), ..none });
            }
            if case.store.format != f {
                with(Extra { value: Some(f), ..none });
            }
        }
        if case.store.format != Format::F32 || case.store.scale.is_some() {
            with(Extra { truncated: true, ..none });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::assay::{build, output};
    use super::super::emulated::{Emulated, read};
    use super::super::runnable;
    use super::*;
    use crate::compare::OutFormat;
    use safetensors::Dtype;

    #[test]
    fn a_wrong_arithmetic_is_of_the_class_of_what_it_does_too_much() {
        let of = |extra: Extra| {
            let ending = Ending { extra, ..Ending::PLAIN };
            class(&Way { ending, ..Way::plain(Chain::Exact) })
        };
        let (none, f) = (Extra::default(), Some(Format::Bf16));
        // Sums that lose too much, parts in 16 bits: the accumulator.
        assert_eq!([none, Extra { part: f, ..none }, Extra { joined: f, ..none }].map(of), [Class::LowprecAcc; 3]);
        let rounded = [Extra { sum: f, ..none }, Extra { scaled: f, ..none }, Extra { value: f, ..none }];
        assert_eq!(rounded.map(of), [Class::RoundOrder; 3]);
        assert_eq!(of(Extra { truncated: true, ..none }), Class::Rounding);
    }

    fn with<R>(o: &Emulated, out: &[f32], dtype: Dtype, see: impl FnOnce(&Case) -> R) -> R {
        let bundle = read(&o.bundle(out, dtype, ""));
        let (built, output) = (build(&bundle).unwrap(), output(&bundle).unwrap());
        let job = runnable(&built.job);
        see(&Case::of(&job, &output).unwrap())
    }

    /// Ada's instruction keeps 13 bits of eight-bit products: from 8 to 12 are too few, and sums of 7, 10, 11 or 12.
    #[test]
    fn lossy_chains_keep_fewer_bits_than_the_device() {
        let o = Emulated::new(81, (2, 3, 100), true);
        let (chains, bound) = (vec![Chain::Unit("ada_mma")], crate::model::Inner::AnyUnit);
        let arithmetic = Arithmetic { declared: None, chains, promote_every: None, bound, why: String::new() };
        let all = with(&o, &[0.0; 6], Dtype::F32, |case| super::chains(case, &arithmetic, 100));
        let narrowed = |(chain, promote): &(Chain, Option<Promote>)| match chain {
            Chain::Narrowed { w, f, fraction } => {
                assert_eq!((*w, *promote), (16, None));
                Some((*f, *fraction))
            }
            _ => None,
        };
        let mut fewer = vec![(13, 7), (13, 10), (13, 11), (13, 12)];
        fewer.extend((8..13).flat_map(|f| [(f, 13), (f, f)]));
        assert_eq!(all.iter().filter_map(narrowed).collect::<Vec<_>>(), fewer);
        let sixteen = all.iter().filter(|c| matches!(c.0, Chain::Sixteen { .. })).collect::<Vec<_>>();
        assert!(sixteen.len() == 4 && sixteen.iter().all(|c| c.1.is_none()));
        // Sums of the device in an accumulator of 16 bits, at every interval within K.
        let kept = |c: &&(Chain, Option<Promote>)| c.0 == Chain::Unit("ada_mma");
        let mut kept: Vec<_> = all.iter().filter(kept).map(|c| c.1.unwrap()).map(|p| (p.main, p.every, p.chunk)).collect();
        kept.sort_by_key(|k| (k.0 as usize, k.1, k.2 as usize));
        let mut every = Vec::new();
        for main in SIXTEEN {
            let chunks = [Chunk::Added, Chunk::Rounded, Chunk::Carried];
            every.extend([16, 32, 64].map(|every| chunks.map(|chunk| (main, every, chunk))).concat());
        }
        every.sort_by_key(|k| (k.0 as usize, k.1, k.2 as usize));
        assert_eq!(kept, every);
        // f16 accumulators: promoted where that is before the end.
        let half = all.iter().filter(|c| c.0 == Chain::Unit("ada_mma_f16")).map(|c| c.1.map(|p| p.every)).collect::<Vec<_>>();
        assert_eq!(half, [None, Some(64), Some(32)]);
        let plain = all.iter().take_while(|c| c.1.is_none()).count();
        assert!(all[plain..].iter().all(|c| c.1.is_some()), "those without promotion come first");
    }

    #[test]
    fn one_rounding_too_many_is_of_a_sum_a_value_or_a_part() {
        let of = |o: &Emulated, dtype: Dtype, split: bool| {
            with(o, &[0.0; 6], dtype, |case| {
                let right = case.endings(false);
                let all = extra(&right[..1], case, split);
                assert!(all.iter().all(|e| Ending { extra: Extra::default(), ..*e } == right[0]));
                assert_eq!(extra(&right, case, split).len(), right.len() * all.len());
                all.into_iter().map(|e| e.extra).collect::<Vec<_>>()
            })
        };
        let none = Extra::default();
        let each = |make: fn(Option<Format>) -> Vec<Extra>| SIXTEEN.map(|f| make(Some(f))).concat();
        let sum_and_value = each(|f| vec![Extra { sum: f, ..Extra::default() }, Extra { value: f, ..Extra::default() }]);
        let o = || Emulated::new(82, (2, 3, 8), true);
        assert_eq!(of(&o(), Dtype::F32, false), sum_and_value);
        let cut = Extra { truncated: true, ..none };
        // A result in bf16 is rounded to it anyway, and may be cut.
        let mut narrow = sum_and_value.clone();
        narrow.retain(|e| e.value != Some(Format::Bf16));
        assert_eq!(of(&o(), Dtype::BF16, false), [narrow, vec![cut]].concat());
        let biased = each(|f| {
            let none = Extra::default();
            vec![Extra { sum: f, ..none }, Extra { scaled: f, ..none }, Extra { value: f, ..none }]
        });
        let biased_case = with(&o().with_bias(1), &[0.0; 6], Dtype::F32, |case| {
            let added = case.endings(false).into_iter().find(|e| e.bias == Bias::Added).unwrap();
            extra(&[added], case, false).into_iter().map(|e| e.extra).collect::<Vec<_>>()
        });
        assert_eq!(biased_case, biased);
        let parts = each(|f| {
            let none = Extra::default();
            vec![Extra { part: f, ..none }, Extra { joined: f, ..none }, Extra { part: f, joined: f, ..none }]
        });
        assert_eq!(of(&o(), Dtype::F32, true), parts);
        // Parts that have met their scales.
        let scaled = with(&o(), &[0.0; 6], Dtype::F32, |case| {
            let each = case.endings(true).into_iter().find(|e| e.each).unwrap();
            extra(&[each], case, true).into_iter().map(|e| e.extra).filter(|x| x.scaled_part.is_some()).collect::<Vec<_>>()
        });
        let stored = |f| vec![Extra { scaled_part: f, ..none }, Extra { scaled_part: f, joined: f, ..none }];
        assert_eq!(scaled, SIXTEEN.map(|f| stored(Some(f))).concat());
    }

    #[test]
    fn what_is_lost_before_the_scales_is_one_loss_where_the_sums_are_equal() {
        let none = Extra::default();
        let f = Some(Format::Bf16);
        let of = |extra: Extra, each: bool| {
            before_scales(&Way { ending: Ending { extra, each, ..Ending::PLAIN }, ..Way::plain(Chain::Exact) })
        };
        assert!(
            of(none, false)
                && of(Extra { part: f, ..none }, true)
                && of(Extra { joined: f, ..none }, false)
                && of(Extra { sum: f, ..none }, false)
        );
        let after = [
            Extra { joined: f, ..none },
            Extra { scaled_part: f, ..none },
            Extra { value: f, ..none },
            Extra { scaled: f, ..none },
        ];
        assert!(after.iter().all(|x| !of(*x, true)) && !of(Extra { truncated: true, ..none }, false));
        assert!(!before_scales(&Way::plain(Chain::Dequantized { fused: true })));
        let blocks = Some(super::super::ways::Blocks::ALL[0]);
        let blocked = |extra: Extra| {
            before_scales(&Way { ending: Ending { extra, blocks, ..Ending::PLAIN }, ..Way::plain(Chain::Exact) })
        };
        assert!(blocked(none) && !blocked(Extra { part: f, ..none }) && !blocked(Extra { joined: f, ..none }));
        // One sign and one power of two are the same loss; a sum beside it that is another is not.
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        let alike = |a: &[f32], b: &[f32]| like(&bits(a)) == like(&bits(b));
        assert!(alike(&[3.0, -1.25], &[-12.0, 5.0]) && alike(&[0.0, 2.0], &[0.0, -8.0]) && alike(&[0.0], &[-0.0]));
        assert!(!alike(&[3.0, -1.25], &[-12.0, -5.0]) && !alike(&[3.0, 1.0], &[6.0, 1.0]) && !alike(&[3.0], &[5.0]));
        // Rows of the same codes, with scales of their own: six values, one sum.
        let mut o = Emulated::new(83, (2, 3, 8), true);
        let (a, b) = (o.a[..8].to_vec(), o.b[..8].to_vec());
        o.a = a.repeat(2);
        o.b = b.repeat(3);
        let exact = with(&o, &[0.0; 6], Dtype::F32, |case| case.values(&Way::plain(Chain::Exact)).unwrap());
        let out: Vec<f32> = exact.iter().map(|x| f32::from_bits(x.to_bits() + 4)).collect();
        with(&o, &out, Dtype::F32, |case| {
            let ideal = exact.iter().map(|x| f64::from(*x)).collect();
            let bound = Bound::from_radius(ideal, vec![0.0; 6], &OutFormat::high(Format::F32)).unwrap();
            let of = |extra: Extra| {
                let ending = Ending { extra, ..Ending::PLAIN };
                let way = Way { ending, ..Way::plain(Chain::Sequential) };
                surprise(case, &way, &[], &bound, usize::MAX).unwrap()
            };
            assert_eq!((of(none), of(Extra { value: f, ..none })), (9f64.log2(), 6.0 * 9f64.log2()));
        });
    }

    /// `Σ log2(2d + 1)`, d in spacings of the output or β/K² where that is more; of equal ideals one.
    #[test]
    fn chance_is_counted_in_steps_from_the_nearest_right_value() {
        let o = Emulated::new(83, (2, 3, 8), false);
        let exact = with(&o, &[0.0; 6], Dtype::F32, |case| case.values(&Way::plain(Chain::Exact)).unwrap());
        // Four steps, one, none.
        let steps = [4u32, 1, 0, 0, 0, 0];
        let out: Vec<f32> = exact.iter().zip(steps).map(|(x, d)| f32::from_bits(x.to_bits() + d)).collect();
        with(&o, &out, Dtype::F32, |case| {
            let of = |ideal: Vec<f64>, certain: f64, right: &[Chain]| {
                let bound = Bound::from_radius(ideal, vec![certain; 6], &OutFormat::high(Format::F32)).unwrap();
                let right: Vec<_> = right.iter().map(|c| (*c, None)).collect();
                surprise(case, &Way::plain(Chain::Sequential), &right, &bound, usize::MAX).unwrap()
            };
            let ideal = || exact.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
            let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
            near(of(ideal(), 0.0, &[]), 9f64.log2() + 3f64.log2());
            near(of(ideal(), 0.0, &[Chain::Exact]), 9f64.log2() + 3f64.log2());
            // A step of twice the first spacing: two of it.
            let spacing = f64::from(exact[0].abs().next_up() - exact[0].abs());
            let wide = of(ideal(), 2.0 * spacing * 64.0, &[]);
            let second = f64::from(exact[1].abs().next_up() - exact[1].abs())
                / (2.0 * spacing).max(f64::from(exact[1].abs().next_up() - exact[1].abs()));
            near(wide, 5f64.log2() + (2.0 * second.round() + 1.0).log2());
            // All of one ideal but for a power of two: one of them.
            near(of((0..6).map(|i| f64::from(exact[0]) * 2f64.powi(i)).collect(), 0.0, &[]), 9f64.log2());
            // The ideal itself may be the nearest.
            near(of(out.iter().map(|x| f64::from(*x)).collect(), 0.0, &[]), 0.0);
        });
        // What has the bits of a right arithmetic is no surprise beside it.
        let o = Emulated::new(84, (2, 3, 64), false);
        let sequential = with(&o, &[0.0; 6], Dtype::F32, |case| case.values(&Way::plain(Chain::Sequential)).unwrap());
        with(&o, &sequential, Dtype::F32, |case| {
            let ideal = case.values(&Way::plain(Chain::Exact)).unwrap().iter().map(|x| f64::from(*x)).collect();
            let bound = Bound::from_radius(ideal, vec![0.0; 6], &OutFormat::high(Format::F32)).unwrap();
            let of = |right: &[(Chain, Option<Promote>)], way: &Way| surprise(case, way, right, &bound, usize::MAX).unwrap();
            let right = [(Chain::Exact, None), (Chain::Sequential, None)];
            assert!(of(&right[..1], &Way::plain(Chain::Sequential)) > 3.0);
            assert_eq!(of(&right, &Way::plain(Chain::Sequential)), 0.0);
            // Beside a way that cuts K also those that do not.
            let split = Way { cut: Cut::At(16), join: Join::Order(vec![0, 1]), ..Way::plain(Chain::Sequential) };
            assert_eq!(of(&right, &split), 0.0);
        });
        // And those that cut it alike.
        let split = Way { cut: Cut::At(16), join: Join::Order(vec![0, 1]), ..Way::plain(Chain::Sequential) };
        let cut = with(&o, &[0.0; 6], Dtype::F32, |case| case.values(&split).unwrap());
        assert_ne!(cut, sequential);
        with(&o, &cut, Dtype::F32, |case| {
            let ideal = case.values(&Way::plain(Chain::Exact)).unwrap().iter().map(|x| f64::from(*x)).collect();
            let bound = Bound::from_radius(ideal, vec![0.0; 6], &OutFormat::high(Format::F32)).unwrap();
            let of = |chain: Chain, way: &Way| surprise(case, way, &[(chain, None)], &bound, usize::MAX).unwrap();
            assert_eq!(of(Chain::Sequential, &split), 0.0);
            assert!(of(Chain::Sequential, &Way::plain(Chain::Sequential)) > 3.0);
        });
    }
}
