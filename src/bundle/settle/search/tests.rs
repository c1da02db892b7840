//! Where a result is looked at, in which order ways are tried, and what makes one of them its own.

use super::super::super::assay::{build, output};
use super::super::emulated::{Emulated, T, read};
use super::super::runnable;
use super::*;
use crate::assay::Built;
use safetensors::Dtype;

/// The case of a result in f32.
fn with<R>(o: &Emulated, out: &[f32], see: impl FnOnce(&Case, &Built) -> R) -> R {
    let bundle = read(&o.bundle(out, Dtype::F32, ""));
    let (built, output) = (build(&bundle).unwrap(), output(&bundle).unwrap());
    let job = runnable(&built.job);
    see(&Case::of(&job, &output).unwrap(), &built)
}

fn zeros(o: &Emulated) -> Vec<f32> {
    vec![0.0; o.m * o.n]
}

#[test]
fn places_hold_every_element_once_and_a_large_result_is_asked_in_part() {
    let o = Emulated::new(31, (256, 300, 2), false);
    with(&o, &zeros(&o), |case, _| {
        let ranges = |places: Vec<Place>| places.into_iter().map(|(_, r, c)| (r, c)).collect::<Vec<_>>();
        let (top, bottom) = (0..128, 128..256);
        let tiles = [&top, &bottom].map(|rows| [0..128, 128..256, 256..300].map(|cols| (rows.clone(), cols))).concat();
        assert_eq!(ranges(case.regions()), tiles);
        for (most, count) in
            [(0, 0), (1, 1), (1 << 14, 1), ((1 << 14) + 1, 2), (2 << 14, 2), ((2 << 14) + 1, 3), (usize::MAX, 6)]
        {
            assert_eq!(ranges(case.enough(most)), tiles[..count], "{most}");
        }
        let high = |count: usize| bands(&case.regions()[0], count).iter().map(|b| b.1.clone()).collect::<Vec<_>>();
        assert_eq!(high(3), [0..43, 43..86, 86..128]);
        assert_eq!((high(1), high(200).len()), (vec![0..128], 128));
        // Beside one element, in its row: aligned, and no further than the row.
        let around = |at: usize, count: usize| {
            let region = case.around(at, count).unwrap();
            assert!((0..region.elements()).any(|i| region.at(i) == at), "{at}");
            (region.rows.clone(), region.cols.clone())
        };
        assert_eq!(around(2 * 300 + 37, 32), (2..3, 32..64));
        assert_eq!(around(2 * 300 + 299, 32), (2..3, 288..300));
        assert_eq!(around(255 * 300, 1), (255..256, 0..1));
        assert!(case.around(256 * 300, 1).is_none());
        // Four of 32 × 10 places of 8 × 30.
        let way = Way::plain(Chain::Exact);
        let first = |pieces: Vec<Piece>| pieces.iter().map(|p| (p[0].0 / 300, p[0].0 % 300, p.len())).collect::<Vec<_>>();
        let spread = first(case.spread(&way, 4, (8, 30)).unwrap().unwrap());
        assert_eq!(spread, [(0, 0, 240), (64, 30, 240), (128, 60, 240), (192, 90, 240)]);
        // Six places are twice three, and not twice four.
        assert_eq!(first(case.spread(&way, 3, (128, 128)).unwrap().unwrap()).len(), 3);
        assert!(case.spread(&way, 4, (128, 128)).unwrap().is_none());
        assert_eq!(case.first_values(&way, 1).unwrap().len(), 1 << 14);
    });
}

/// As many columns as a vector has lanes, in the rows with the fewest zeros; another look is elsewhere.
#[test]
fn few_elements_are_looked_at_where_there_are_numbers() {
    let few = |o: &Emulated, out: &[f32], nth: usize| {
        with(o, out, |case, _| {
            let few = case.few(nth).unwrap();
            (few.rows.clone(), few.cols.clone())
        })
    };
    let wide = Emulated::new(32, (6, 80, 4), false);
    let mut out = vec![1.0f32; 480];
    assert_eq!([few(&wide, &out, 0), few(&wide, &out, 1), few(&wide, &out, 2)], [(0..1, 0..32), (2..3, 32..64), (4..5, 0..32)]);
    // A zero, a negative zero, a NaN: none says anything.
    (out[5], out[80], out[160]) = (0.0, -0.0, f32::NAN);
    assert_eq!(few(&wide, &out, 0), (3..4, 0..32));
    out[240] = 0.0;
    out[241] = 0.0;
    out[6] = 0.0;
    out[320..480].fill(0.0);
    assert_eq!(few(&wide, &out, 0), (1..2, 0..32));
    // Of few columns more rows.
    let narrow = Emulated::new(33, (6, 8, 4), false);
    assert_eq!(few(&narrow, &[1.0; 48], 0), (0..4, 0..8));
    let small = Emulated::new(34, (2, 8, 4), false);
    assert_eq!(few(&small, &[1.0; 16], 0), (0..2, 0..8));
}

/// Elements that are not the nearest to the ideal are asked first where no more than a quarter is so: sixteen of them.
#[test]
fn elements_that_tell_ways_apart_are_those_that_are_not_the_nearest() {
    let o = Emulated::new(35, (16, 64, 32), false);
    let nearest: Vec<f32> = with(&o, &zeros(&o), |_, built| built.ideal[0].d.iter().map(|x| *x as f32).collect());
    let telling = |o: &Emulated, nearest: &[f32], wrong: &dyn Fn(usize) -> bool| {
        let next = |(at, x): (usize, &f32)| if wrong(at) { x.next_up() } else { *x };
        let out: Vec<f32> = nearest.iter().enumerate().map(next).collect();
        let bundle = read(&o.bundle(&out, Dtype::F32, ""));
        let (built, output) = (build(&bundle).unwrap(), output(&bundle).unwrap());
        Case::of(&runnable(&built.job), &output).unwrap().telling(&built.ideal[0]).telling
    };
    assert_eq!(telling(&o, &nearest, &|_| false), [0usize; 0]);
    assert_eq!(telling(&o, &nearest, &|at| at % 500 == 7), [7, 507, 1007]);
    // Forty: every second of the first 32.
    let second = (0..16).map(|i| 3 + 50 * i).collect::<Vec<_>>();
    assert_eq!(telling(&o, &nearest, &|at| at % 25 == 3 && at < 1003), second);
    // 256 of 1024, and one more.
    assert_eq!(telling(&o, &nearest, &|at| at < 256), (0..16).map(|i| 16 * i).collect::<Vec<_>>());
    assert_eq!(telling(&o, &nearest, &|at| at < 257), [0usize; 0]);
    // 512 elements are no more than a first look has.
    let small = Emulated::new(35, (8, 64, 32), false);
    let nearest: Vec<f32> = with(&small, &zeros(&small), |_, built| built.ideal[0].d.iter().map(|x| *x as f32).collect());
    assert_eq!(telling(&small, &nearest, &|at| at == 7), [0usize; 0]);
}

/// A result with the exact bits but for some: those have the bits of one sum after the other.
fn partly_sequential(o: &Emulated, same: usize) -> Option<(Vec<f32>, usize)> {
    with(o, &zeros(o), |case, _| {
        let [own, mut out] = [Chain::Sequential, Chain::Exact].map(|c| case.values(&Way::plain(c)).unwrap());
        let others: Vec<usize> = (0..out.len()).filter(|i| own[*i].to_bits() != out[*i].to_bits()).collect();
        others.iter().take(same).for_each(|i| out[*i] = own[*i]);
        (others.len() >= same).then_some((out, others.len()))
    })
}

/// Three quarters of those that no exact sum gives, and sixteen at least.
#[test]
fn bits_tell_an_order_where_most_of_those_apart_from_exact_sums_have_them() {
    let tells = |o: &Emulated, same: usize, chain: Chain| {
        let (out, _) = partly_sequential(o, same).unwrap();
        with(o, &out, |case, _| case.tells(&Way::plain(chain)).unwrap())
    };
    let o = Emulated::new(36, (6, 24, 64), false);
    let others = partly_sequential(&o, 0).unwrap().1;
    assert!(others > 40, "{others}");
    let enough = (3 * others).div_ceil(4);
    assert_eq!([tells(&o, enough, Chain::Sequential), tells(&o, enough - 1, Chain::Sequential)], [true, false]);
    assert!(!tells(&o, others, Chain::Exact), "exact sums are in no order");
    let small = (40..).map(|seed| Emulated::new(seed, (1, 24, 64), false));
    let small = small.take(40).find(|o| (16..=20).contains(&partly_sequential(o, 0).unwrap().1)).unwrap();
    assert_eq!([tells(&small, 16, Chain::Sequential), tells(&small, 15, Chain::Sequential)], [true, false]);
}

#[test]
fn the_nearest_way_is_the_first_of_those_with_the_fewest_other_bits() {
    let o = Emulated::new(37, (6, 40, 256), false);
    let sequential = with(&o, &zeros(&o), |case, _| case.values(&Way::plain(Chain::Sequential)).unwrap());
    with(&o, &sequential, |case, _| {
        let ways = |chains: &[Chain]| Ways {
            chains: chains.iter().map(|c| (*c, None)).collect(),
            cuts: vec![Cut::Whole, Cut::At(64)],
            endings: case.endings(true),
        };
        let of = |chains: &[Chain]| case.nearest(&ways(chains)).unwrap().unwrap();
        assert_eq!(of(&[Chain::Exact, Chain::Pairwise, Chain::Sequential]), Way::plain(Chain::Sequential));
        assert_eq!(of(&[Chain::Sequential, Chain::Exact]), Way::plain(Chain::Sequential));
        let none = Ways { chains: Vec::new(), ..ways(&[]) };
        assert_eq!(case.nearest(&none).unwrap(), None);
    });
    // Endings that need several parts are no way of one.
    let o = Emulated::new(37, (6, 40, 256), true);
    with(&o, &zeros(&o), |case, _| {
        let endings: Vec<Ending> = case.endings(true).into_iter().filter(|e| e.each).collect();
        assert_eq!(endings.len(), 3);
        let ways = Ways { chains: vec![(Chain::Exact, None)], cuts: vec![Cut::Whole], endings };
        assert_eq!(case.nearest(&ways).unwrap(), None);
    });
}

#[test]
fn endings_are_every_order_of_scales_and_bias() {
    let scales = [ScalesMeet::AFirst, ScalesMeet::BFirst, ScalesMeet::Both];
    let endings = |o: &Emulated, parts: bool| {
        with(o, &zeros(o), |case, _| {
            let all = case.endings(parts);
            assert!(all.iter().all(|e| e.blocks.is_none() && !e.plus_zero && e.extra == Extra::default()));
            all.iter().map(|e| (e.scales, e.each, e.bias)).collect::<Vec<_>>()
        })
    };
    let plain = Emulated::new(38, (3, 5, 32), false);
    for parts in [false, true] {
        assert_eq!(endings(&plain, parts), [(ScalesMeet::AFirst, false, Bias::None)]);
    }
    let scaled = || Emulated::new(38, (3, 5, 32), true);
    assert_eq!(endings(&scaled(), false), scales.map(|s| (s, false, Bias::None)));
    let both = scales.map(|s| [false, true].map(|each| (s, each, Bias::None))).concat();
    assert_eq!(endings(&scaled(), true), both);
    let biased = scales.map(|s| [Bias::Added, Bias::Fused].map(|b| (s, false, b))).concat();
    assert_eq!(endings(&scaled().with_bias(3), false), biased);
    // In the first part only where the parts have met their scales.
    let all = [Bias::Added, Bias::Fused, Bias::First];
    let of = |s: ScalesMeet, each: bool| all[..if each { 3 } else { 2 }].iter().map(move |b| (s, each, *b)).collect::<Vec<_>>();
    let split = scales.map(|s| [of(s, false), of(s, true)].concat()).concat();
    assert_eq!(endings(&scaled().with_bias(3), true), split);
    let plain_biased = Emulated::new(38, (3, 5, 32), false).with_bias(3);
    assert_eq!(endings(&plain_biased, true), all.map(|b| (ScalesMeet::AFirst, false, b)));
    let of = |o: &Emulated| with(o, &zeros(o), |case, _| (case.has_scales(), case.blocked(), case.k()));
    assert_eq!((of(&plain), of(&scaled())), ((false, false, 32), (true, false, 32)));
}

/// A sum that is cut into other parts than its order names: four parts in pairs are a tree where there are three.
#[test]
fn a_shorter_sum_has_fewer_parts_in_the_order_that_is_left() {
    let o = Emulated::new(39, (3, 20, 96), false);
    with(&o, &zeros(&o), |case, _| {
        let place = case.regions().remove(0);
        let values = |join: Join, runs: &[Run]| {
            let (p, rows, cols) = place.clone();
            let way = Way { join, ..Way::plain(Chain::Sequential) };
            let (mut region, mut all) = (Region::new(&case.plan, p, rows, cols), Vec::new());
            let see = |at: usize, value: f32| {
                all.push((at, value.to_bits()));
                true
            };
            assert!(case.each_of(&mut region, &way, runs, see).unwrap());
            all
        };
        let (three, four) = (Cut::Even { tile: 32, parts: 3 }.parts(96), Cut::Even { tile: 24, parts: 4 }.parts(96));
        let order = |o: &[usize]| Join::Order(o.to_vec());
        let pairs = || Join::Pairs([0, 2, 1, 3]);
        assert_eq!(values(pairs(), &three), values(Join::Tree, &three));
        assert_eq!(values(order(&[3, 2, 1, 0]), &three), values(order(&[0, 1, 2]), &three));
        // Each of these says something of its own where the parts are as many.
        assert_ne!(values(pairs(), &four), values(Join::Tree, &four));
        assert_ne!(values(order(&[2, 1, 0]), &three), values(order(&[0, 1, 2]), &three));
        // What is seen ends where `see` says so.
        let (p, rows, cols) = place.clone();
        let (mut region, mut seen) = (Region::new(&case.plan, p, rows, cols), 0);
        let stop = |at: usize, _: f32| {
            seen += 1;
            at < 2
        };
        assert!(!case.each(&mut region, &Way::plain(Chain::Exact), stop).unwrap());
        assert_eq!(seen, 3);
    });
}

#[test]
fn a_way_is_told_in_words() {
    let way = Way { promote: Some(Promote::f32(128)), cut: Cut::At(64), join: Join::Tree, ..Way::plain(Chain::Sequential) };
    assert_eq!(way.words(), "f32_sequential@128, split in 2 at K = 64, parts added as a tree");
    assert_eq!(Way { cut: Cut::Whole, ..way.clone() }.words(), "f32_sequential@128");
    assert_eq!(Way::plain(Chain::Exact).words(), "exact");
}

/// A whole result is held to its amax, and a part of it to none.
#[test]
fn the_way_has_every_bit_and_the_amax() {
    let o = Emulated::new(40, (5, 40, 64), true);
    let unit = o.product(|a, b| o.chain(T { w: 32, f: 13, o: Some(13) }, a, b), |p, i, j| o.scaled(p, i, j));
    with(&o, &unit, |case, _| {
        let endings = case.endings(false);
        let chains = [Chain::Exact, Chain::Unit("hopper_wgmma")].map(|c| (c, None)).to_vec();
        let ways = Ways { chains, cuts: vec![Cut::Whole], endings };
        let way = case.find(&ways, usize::MAX).unwrap().unwrap();
        assert_eq!(way, Way::plain(Chain::Unit("hopper_wgmma")));
        let largest = unit.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        for (amax, found) in [(largest, true), (largest.next_up(), false)] {
            let case = Case {
                amax: Some(amax),
                bits: case.bits.clone(),
                telling: Vec::new(),
                plan: Plan::of(case.job).unwrap(),
                ..*case
            };
            assert_eq!(case.find(&ways, usize::MAX).unwrap().is_some(), found, "{amax}");
        }
        // What no product writes is zero.
        let case = Case {
            empty_is_zero: false,
            bits: case.bits.clone(),
            telling: Vec::new(),
            plan: Plan::of(case.job).unwrap(),
            ..*case
        };
        assert_eq!(case.find(&ways, usize::MAX).unwrap(), None);
    });
}

/// Codes of FP8 are those of many ways, and an amax that none has refutes each by one element.
#[test]
fn an_amax_of_no_way_is_asked_at_the_largest_element() {
    let o = Emulated::new(41, (5, 40, 64), true);
    let unit = o.product(|a, b| o.chain(T { w: 32, f: 13, o: Some(13) }, a, b), |p, i, j| o.scaled(p, i, j));
    with(&o, &unit, |case, _| {
        let way = Way::plain(Chain::Unit("hopper_wgmma"));
        let at = (0..unit.len()).max_by(|i, j| unit[*i].abs().total_cmp(&unit[*j].abs())).unwrap();
        let asked = |amax: f32, peaks: &[usize]| {
            let case = Case {
                amax: Some(amax),
                bits: case.bits.clone(),
                telling: Vec::new(),
                plan: Plan::of(case.job).unwrap(),
                ..*case
            };
            let mut peaks: Vec<Region> = peaks.iter().filter_map(|at| case.around(*at, 1)).collect();
            let left = case.with_amax(&mut peaks, vec![way.clone()]).unwrap().len();
            (left, matches!(case.confirm(vec![way.clone()], usize::MAX).unwrap(), Confirmed::ButForAmax(_, x) if x == at))
        };
        let largest = unit[at].abs();
        assert_eq!([asked(largest, &[]), asked(largest, &[at]), asked(largest, &[at + 1, at])], [(1, false); 3]);
        assert_eq!(
            [asked(largest.next_up(), &[]), asked(largest.next_up(), &[at]), asked(1e9, &[at])],
            [(1, true), (0, true), (0, true)]
        );
    });
}
