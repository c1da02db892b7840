use super::audit::{Finding, audit};
use super::audited;
use super::data::Moving;
use super::law::judge;
use super::machine::Machine;
use super::run::{With, every, replay};
use super::*;
use crate::bundle::{Bundle, BundleOperand, Codes, Writer};
use crate::input::Source;
use crate::job::Operand;
use crate::kernel::{Backend, cpu};
use crate::recipe::RECIPES;
use crate::run::scenarios::{facts, run};
use crate::{Format, Granularity, Tensor};

const CPU: With = With { seed: 0, backend: Backend::Cpu, kernels: cpu::KERNELS };

/// All scenarios, the long ones cut.
fn all(steps: usize) -> Vec<Scenario> {
    let cut = |n: &String| {
        let mut s = Scenario::load(n).unwrap();
        s.steps = s.steps.min(steps);
        s
    };
    names().unwrap().iter().map(cut).collect()
}

fn text(name: &str) -> String {
    crate::data::read(&format!("scenarios/{name}.toml")).unwrap().text().unwrap()
}

fn parse(text: &str) -> Result<Scenario> {
    Scenario::parse(Path::new("x.toml"), text)
}

/// The smaller form of `qassay stale`.
#[test]
fn every_scenario_behaves_as_its_law_says_and_packaged_scales_are_never_stale() {
    for scenario in all(14) {
        for policy in Policy::ALL {
            let r = replay(&scenario, policy, CPU).unwrap();
            let bad = r.records.iter().find(|r| !r.holds);
            let at = bad.map(|b| format!("step {} {}.{}: {}", b.step, b.product, b.operand, b.why));
            assert!(r.holds(), "{} {policy}: {:?} {at:?}", scenario.name, r.why);
            if scenario.class == Class::Staleness && policy == Policy::Packaged {
                assert_eq!(r.first_shown(), None, "{}", scenario.name);
                assert!(r.records.iter().all(|x| x.r_min == x.r_max || x.granularity != Granularity::Tensor));
            }
            if scenario.class == Class::Staleness && policy == Policy::Shared && scenario.row != 11 {
                assert!(r.bound_notices(), "{}: the bound does not see it", scenario.name);
            }
        }
    }
}

/// The law of bytes that were quantized twice, said of some that were not.
#[test]
fn a_law_that_does_not_hold_is_told() {
    let wrong =
        text("25_quantized_twice").replacen("operand = \"b\", kind = \"twice\"", "operand = \"a\", kind = \"twice\"", 1);
    let scenario = Scenario { steps: 1, ..parse(&wrong).unwrap() };
    let r = replay(&scenario, Policy::Shared, CPU).unwrap();
    let why: Vec<&str> = r.records.iter().filter(|r| !r.holds).map(|r| r.why.as_str()).collect();
    assert!(!r.holds() && why.iter().any(|w| w.contains("half a spacing of both grids")), "{why:?}");
}

#[test]
fn every_row_of_the_catalogue_is_there_with_its_evidence() {
    let all = all(1);
    for row in 1..=28 {
        assert!(all.iter().any(|s| s.row == row), "row {row}");
    }
    assert!(all.iter().all(|s| !s.upstream.is_empty() && !s.about.is_empty()));
    assert!(all.iter().all(|s| !s.laws.is_empty()), "a scenario that predicts nothing cannot fail");
}

/// A law that is wrong by a little is seen to be wrong, and so is a law where nothing happens.
#[test]
fn wrong_laws_break() {
    let good = text("01_update_before_backward");
    let law = "r = \"s(x,n)/s(x,n+1)\"";
    assert!(good.contains(law));
    for wrong in ["r = \"1\"", "r = \"s(x,n+1)/s(x,n)\"", "r = \"1.000001*s(x,n)/s(x,n+1)\"", "kind = \"clipped\""] {
        let r = replay(&parse(&good.replace(law, wrong)).unwrap(), Policy::Shared, CPU).unwrap();
        assert!(!r.holds(), "{wrong}");
    }
    let elsewhere =
        good.replace("policies = [\"shared\"], product = \"wgrad\"", "policies = [\"packaged\"], product = \"wgrad\"");
    assert!(!replay(&parse(&elsewhere).unwrap(), Policy::Packaged, CPU).unwrap().holds());
    let clips = text("16_inference_without_update").replace("kind = \"clipped\"", "kind = \"flushed\"");
    let flushed = replay(&parse(&clips).unwrap(), Policy::Packaged, CPU).unwrap();
    assert!(flushed.records.iter().all(|r| r.r_measured - 1.0 < 1e-6));
}

/// What the machine's delayed scaling does is the closed form: s(t) = M / max of the L amaxes before t.
#[test]
fn scales_follow_the_closed_form() {
    let mut s = parse(&text("01_update_before_backward")).unwrap();
    s.steps = 9;
    let x = &s.tensors[0];
    let amax: Vec<f32> = (0..9).map(|t| x.at(t, 0, &[]).unwrap().data().iter().fold(0f32, |m, v| m.max(v.abs()))).collect();
    let mut machine = Machine::new(&s, Policy::Packaged, CPU).unwrap();
    for t in 0..9usize {
        let scale = machine.slot("x").unwrap().delayed.scale;
        let window = &amax[t.saturating_sub(3)..t];
        let want = if t == 0 { 1.0 } else { 448.0 / window.iter().fold(0f32, |m, v| m.max(*v)) };
        assert_eq!(scale, want, "step {t}");
        machine.step(&mut |_, _| Ok(())).unwrap();
    }
}

#[test]
fn bad_files_are_refused_with_line_and_remedy() {
    let good = text("01_update_before_backward");
    let cases: &[(&str, &str, &[&str])] = &[
        ("steps = 10", "steps = 0", &["x.toml:7:", "1 to 100000"]),
        ("steps = 10", "stops = 10", &["x.toml:7:", "stops"]),
        ("class = \"staleness\"", "class = \"stale\"", &["x.toml:5:", "unknown class `stale`", "staleness"]),
        ("do = \"update\", state = \"x\"", "do = \"update\", state = \"z\"", &["unknown state `z`", "declare it in [[state]]"]),
        ("do = \"update\", state = \"x\"", "do = \"upgrade\", state = \"x\"", &["unknown event `upgrade`", "update"]),
        ("do = \"forward\", a = \"xq\"", "do = \"forward\", a = \"xp\"", &["there is no buffer `xp` yet", "quantize into it"]),
        ("a = \"xq\", b = \"wq\" }", "a = \"xq\" }", &["`forward` needs the key `b`; add it"]),
        ("tensor = \"dy\", state", "tensor = \"dx\", state", &["unknown tensor `dx`", "x, w, dy"]),
        ("te_delayed:e5m2", "te_late:e5m2", &["unknown recipe `te_late`"]),
        ("product = \"wgrad\"", "product = \"vgrad\"", &["unknown product `vgrad`", "forward, dgrad, wgrad"]),
        ("s(x,n+1)", "s(y,n+1)", &["unknown state `y`"]),
        ("s(x,n+1)", "s(x,n+", &["law", "at its end"]),
        ("grad = \"input\"", "grad = \"output\"", &["found grad `output`", "input or weight"]),
        ("source = \"normal\"", "from = \"dy\"", &["a cycle: dy from dy", "give one of them a `source`"]),
        ("source = \"normal\"", "from = \"v\"", &["unknown tensor `v`"]),
        ("name = \"w\", source", "name = \"x\", source", &["tensor `x` is there twice"]),
        ("into = \"xq\" }", "into = \"xq\", first = 2 }", &["step 0: there is no buffer `xq` yet", "first"]),
        (
            "b = \"wq\" }",
            "b = \"wq\", read_a = \"columns\" }",
            &["found `columns`", "expected state:NAME, roll:K, turn:RxC, scale or rows"],
        ),
        ("b = \"wq\" }", "b = \"wq\", read_a = \"state:v\" }", &["unknown state `v`"]),
    ];
    for (from, to, want) in cases {
        assert!(good.contains(from), "{from}");
        let e = parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(e.starts_with("x.toml:"), "{e}");
        for w in *want {
            assert!(e.contains(w), "{to}: {e}");
        }
    }
    // What a checkpoint does not hold cannot come back.
    let good = text("09_checkpoint_without_scale_inv");
    for (from, to, want) in [
        (
            "do = \"save\", state = \"w\", from = \"wq\",",
            "do = \"save\", from = \"wq\",",
            "holds no state; save it with `state`",
        ),
        (
            "do = \"save\", state = \"w\", from = \"wq\",",
            "do = \"save\", state = \"w\",",
            "holds no bytes; save them with `from`",
        ),
        ("do = \"save\", state = \"w\", from = \"wq\",", "do = \"save\",", "`save` needs the key `state`, `from` or both"),
        ("do = \"restore\", from = \"", "do = \"restore\", from = \"other ", "there is no checkpoint `other "),
    ] {
        assert!(good.contains(from), "{from}");
        let e = parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(e.starts_with("x.toml:") && e.contains(want), "{to}: {e}");
    }
    // An amax that no step reduces into is no amax of a later step.
    let good = text("08_reduction_buffer_zero");
    let e = parse(&good.replacen("reduced = \"amax1\"", "reduced = \"amax2\"", 1)).unwrap_err().to_string();
    assert!(e.starts_with("x.toml:") && e.contains("`amax2`") && e.contains("reduce into it"), "{e}");
    let e = Scenario::load("01_update_before").unwrap_err().to_string();
    assert!(e.contains("unknown scenario `01_update_before`") && e.contains("01_update_before_backward"), "{e}");
}

#[test]
fn healthy_draws_raise_no_alarm() {
    let mut draws = 0;
    let sources: Vec<Source> =
        ["normal", "minilm:layer0.ffn_in_input", "minilm:layer0.ffn_out_weight", "minilm:layer5.ffn_in_weight"]
            .map(|s| s.parse().unwrap())
            .into();
    for (i, spec) in RECIPES.iter().cycle().filter(|r| !r.fitted).enumerate() {
        let mut recipe: crate::recipe::Recipe = spec.name.parse().unwrap();
        recipe.format = spec.formats[i / RECIPES.len() % spec.formats.len()];
        let dtypes = if spec.takes_f16 { [Format::Bf16, Format::F16, Format::F32] } else { [Format::Bf16; 3] };
        let dtype = dtypes[i % 3];
        let source = match &sources[i % sources.len()] {
            Source::Real(r) => Source::Real(r.moved(i * 7, i * 3)),
            s => s.clone(),
        };
        let x = source.tensor(dtype, 3, 128, i as u64, 5).unwrap();
        let q = recipe.quantize(&x).unwrap().q;
        let a = audit(&q, &x, &[]).unwrap();
        assert_eq!(a.finding, Finding::Belongs, "draw {i}: {recipe} of {source} {dtype}: {}", a.words());
        assert!(a.lost.iter().all(|l| *l == 0.0));
        draws += 1;
        if draws == 10_000 {
            return;
        }
    }
}

/// In every history scenario: the audit sees what is stale and nothing else, and names the steps.
#[test]
fn the_audit_names_the_step_in_every_history_scenario() {
    let (mut stale, mut named, mut read) = (0, 0, 0);
    let all = all(12);
    for (scenario, policy) in all.iter().flat_map(|s| [(s, Policy::Cloned), (s, Policy::Shared)]) {
        let mut machine = Machine::new(scenario, policy, CPU).unwrap();
        for _ in 0..scenario.steps {
            machine
                .step(&mut |machine, outcome| {
                    for side in &outcome.sides {
                        let b = &side.buffer;
                        let slot = machine.slot(&b.state)?;
                        // A product's FP8 result was rounded from sums that nobody kept.
                        let healthy_values = b.of.is_none() && b.first.is_none() && b.intended.is_none() && !slot.spec.late;
                        if !slot.spec.is_delayed() || b.q.granularity() != Granularity::Tensor || !healthy_values {
                            continue;
                        }
                        // Earlier scale_inv, newest first: 1/scale of the versions before this one.
                        let history: Vec<f32> = slot.log.iter().rev().skip(1).map(|s| (1.0 / s[0]) as f32).collect();
                        let a = audit(&side.used, &b.x, &history)?;
                        let (made, used) = ((1.0 / b.made[0]) as f32, side.used.scale_inv()[0]);
                        let off = (f64::from(used) / f64::from(made) - 1.0).abs();
                        let at = format!("{} step {} {}: {}", scenario.name, machine.step, side.name, a.words());
                        if off < 1e-6 {
                            assert_eq!(a.finding, Finding::Belongs, "{at}");
                        } else if off > 0.02 {
                            assert_eq!(a.finding, Finding::Stale, "{at}");
                            stale += 1;
                            let (low, high) = a.tiles[0].r();
                            let r = b.made[0] * f64::from(used);
                            assert!(low <= r * 1.00001 && r <= high * 1.00001, "{at}");
                        }
                        let h = &history;
                        let places = |v: f32| (1..=h.len()).filter(move |k| h[k - 1] == v);
                        for k in places(made) {
                            assert!(a.made_by.contains(&k), "{at}: made {k} steps ago");
                            named += usize::from(off > 0.02);
                        }
                        // Nothing else is named, but what the values cannot tell apart.
                        assert!(a.made_by.iter().all(|k| (history[k - 1] / made - 1.0).abs() < 0.03), "{at}");
                        let from: Vec<usize> = places(used).collect();
                        assert_eq!(a.read_from, from, "{at}");
                        read += usize::from(off > 0.02 && !from.is_empty());
                    }
                    Ok(())
                })
                .unwrap();
        }
    }
    assert!(stale > 50 && named > 20 && read > 5, "{stale} stale, {named} named, {read} read from an earlier step");
}

#[test]
fn the_audit_tells_orders_other_values_and_losses_apart() {
    let x = "minilm:layer0.ffn_in_weight".parse::<Source>().unwrap().tensor(Format::F32, 24, 128, 0, 0).unwrap();
    let q = "affine_symnc:int4:g32".parse::<crate::recipe::Recipe>().unwrap().quantize(&x).unwrap().q;
    let with = |place: &dyn Fn(usize) -> usize| {
        let mut parts = q.clone().into_parts();
        parts.scale_inv = (0..parts.scale_inv.len()).map(|i| q.scale_inv()[place(i)]).collect();
        audit(&crate::QTensor::new(parts).unwrap(), &x, &[]).unwrap()
    };
    let n = q.scale_inv().len();
    assert_eq!(with(&|i| i).finding, Finding::Belongs);
    let rolled = with(&|i| (i + 5) % n);
    assert_eq!((rolled.finding, rolled.order.as_deref()), (Finding::Stale, Some("roll 5")));
    let turned = with(&|i| super::expr::turned(i, 24, 4));
    assert_eq!((turned.finding, turned.order.as_deref()), (Finding::Stale, Some("transposed")));
    assert!(turned.lost.iter().any(|l| *l != 0.0));
    assert!(turned.words().contains("; an element is off by up to "), "{}", turned.words());
    // Bytes of other values.
    let mut other = x.data().to_vec();
    other.reverse();
    let other = Tensor::new(Format::F32, 24, 128, other).unwrap();
    assert_eq!(audit(&q, &other, &[]).unwrap().finding, Finding::OtherValues);
    assert!(audit(&q, &x.transposed(), &[]).is_err());
    // One bit of scale_inv is not seen, one percent is.
    let q = "te_current".parse::<crate::recipe::Recipe>().unwrap().quantize(&x).unwrap().q;
    let scaled = |f: f32| {
        let parts = q.clone().into_parts();
        let scale_inv = parts.scale_inv.iter().map(|s| s * f).collect();
        audit(&crate::QTensor::new(crate::quant::QTensorParts { scale_inv, ..parts }).unwrap(), &x, &[]).unwrap()
    };
    // What is lost by a scale_inv that is twice too large is each element's own value.
    for (i, lost) in scaled(2.0).lost.iter().enumerate() {
        let value = q.value(i / 128, i % 128);
        assert!((lost - value).abs() <= 0.1 * value.abs(), "{i}: {lost} of {value}");
    }
    // Elements that became 0 by the scale are counted.
    let mut data = x.data().to_vec();
    data[5..8].fill(1e-20);
    let small = Tensor::new(Format::F32, 24, 128, data).unwrap();
    let made = "te_current".parse::<crate::recipe::Recipe>().unwrap().quantize(&small).unwrap().q;
    let zeros = made.codes().iter().zip(small.data()).filter(|(c, x)| **c & 0x7f == 0 && **x != 0.0).count();
    let seen = audit(&made, &small, &[]).unwrap();
    assert!((seen.clipped, seen.flushed) == (0, zeros) && zeros >= 3, "{} of {zeros}", seen.flushed);
    assert!(seen.words().ends_with(&format!("0 elements are clipped, {zeros} became zero")), "{}", seen.words());
    // Elements beyond the largest number of the format are counted too: three of 900 and more, with a scale of 1.
    let data: Vec<f32> = (0..61).map(|i| 4.0 * (i + 1) as f32).chain([900.0, -1000.0, 1200.0]).collect();
    let wide = Tensor::new(Format::F32, 1, 64, data).unwrap();
    let encode = |x: &f32| Format::E4m3.encode(f64::from(*x), crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8;
    let codes = wide.data().iter().map(encode).collect();
    let parts = crate::quant::QTensorParts { rows: 1, cols: 64, codes, scale_inv: vec![1.0], ..made.into_parts() };
    let seen = audit(&crate::QTensor::new(parts).unwrap(), &wide, &[]).unwrap();
    assert_eq!((seen.finding, seen.clipped, seen.flushed), (Finding::Belongs, 3, 0));
    // A code of the other sign belongs to no scale.
    let mut parts = q.clone().into_parts();
    parts.codes[x.data().iter().position(|x| *x < -1e-3).unwrap()] ^= 0x80;
    assert_eq!(audit(&crate::QTensor::new(parts).unwrap(), &x, &[]).unwrap().finding, Finding::OtherValues);
    assert_eq!(scaled(1.0 + f32::EPSILON).finding, Finding::Belongs);
    assert_eq!(scaled(1.01).finding, Finding::Stale);
    assert_eq!(scaled(f32::NAN).finding, Finding::Stale);
}

#[test]
fn a_run_resumes_to_the_same_bytes_and_refuses_another() {
    let scenarios = [Scenario::load("01_update_before_backward").unwrap()];
    let jobs = every(&scenarios, &Policy::ALL);
    let facts = facts(&jobs, CPU, "a").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let go = |resume| run(&jobs, CPU, (dir.path(), &facts, resume), &mut |_| {}).map(|r| r.len());
    assert_eq!(go(false).unwrap(), 3);
    let path = dir.path().join("rows.csv");
    let whole = std::fs::read(&path).unwrap();
    assert!(go(false).unwrap_err().to_string().contains("found a run"));
    for cut in [0, whole.len() / 3, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        go(true).unwrap();
        assert!(std::fs::read(&path).unwrap() == whole, "cut at {cut}");
    }
    let other = facts_of_seed(&facts);
    let e = run(&jobs, CPU, (dir.path(), &other, true), &mut |_| {}).map(|r| r.len()).unwrap_err();
    assert!(e.to_string().contains("seed"), "{e}");
}

fn facts_of_seed(facts: &crate::run::facts::Facts) -> crate::run::facts::Facts {
    let mut other = facts.clone();
    other.0.insert("seed".into(), "9".into());
    other
}

#[test]
fn expressions_read_and_compute() {
    use super::expr::{Expr, Index, ScaleVersions, Vector};
    struct Two;
    impl ScaleVersions for Two {
        fn scale(&self, state: &str, index: Index) -> Option<Vec<f64>> {
            match (state, index) {
                ("x", Index::Now(0)) => Some(vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
                ("x", Index::Now(-1)) => Some(vec![3.0]),
                ("x", Index::Version(2)) => Some(vec![5.0]),
                _ => None,
            }
        }
        fn made(&self) -> Vec<f64> {
            vec![10.0, 20.0]
        }
    }
    let eval = |t: &str| t.parse::<Expr>().unwrap().eval(&Two).unwrap();
    assert_eq!(eval("made / s(x,n-1) * 3"), Vector::Tiles(vec![10.0, 20.0]));
    assert_eq!(eval("s(x,2)*1e-1"), Vector::Tiles(vec![0.5]));
    assert_eq!(eval("roll(s(x,n),2)"), Vector::Tiles(vec![4.0, 8.0, 16.0, 32.0, 1.0, 2.0]));
    // Written as 2 × 3, read as if it were 3 × 2: place (r, c) is at c·2 + r.
    assert_eq!(eval("turn(s(x,n),2,3)"), Vector::Tiles(vec![1.0, 4.0, 16.0, 2.0, 8.0, 32.0]));
    assert_eq!(eval("cat(s(x,2),made)"), Vector::Tiles(vec![5.0, 10.0, 20.0]));
    assert!((eval("made/rows(s(x,n-1))").at(1, 0) - 20.0 / 3.0).abs() < 1e-12);
    for bad in ["", "s(x)", "made made", "s(x,m)", "roll(made)", "made/", "twice(made)", "made^2"] {
        let e = bad.parse::<Expr>().unwrap_err().to_string();
        assert!(e.contains("law"), "{bad}: {e}");
    }
    assert!("s(y,n)".parse::<Expr>().unwrap().eval(&Two).is_err());
}

/// Which scenarios the CUDA kernels take is known before anything runs, and without a GPU.
#[cfg(feature = "cuda")]
#[test]
fn what_no_cuda_kernel_takes_is_named_beforehand() {
    use super::run::refused;
    let cuda = With { backend: Backend::Cuda, kernels: crate::kernel::cuda::KERNELS, ..CPU };
    let why = |name: &str, policy| refused(&Scenario::load(name).unwrap(), policy, cuda).unwrap();
    for taken in ["01_update_before_backward", "14_gathered_block_scales", "22_group_scales_transposed", "training_grouped"] {
        assert_eq!(why(taken, Policy::Shared), None);
    }
    // MX and NVFP4 have no wgmma; row scales of a transposed copy are no scales of rows, in the healthy product at least.
    for (name, product) in
        [("13_columnwise_scale", "forward: "), ("13_columnwise_nvfp4", "forward: "), ("20_row_scales_transposed", "wgrad: ")]
    {
        for policy in Policy::ALL {
            let why = why(name, policy).unwrap_or_default();
            assert!(why.starts_with(product) && why.contains("cuda/fp8_gemm"), "{name} {policy}: {why}");
        }
    }
    let mut scenario = Scenario::load("13_columnwise_scale").unwrap();
    assert_eq!(refused(&scenario, Policy::Shared, CPU).unwrap(), None);
    // Products of a step that never comes need no kernel.
    let steps = scenario.steps;
    for event in scenario.events.iter_mut().filter(|e| matches!(e.act, Act::Product(_))) {
        event.when.first = steps;
    }
    assert_eq!(refused(&scenario, Policy::Shared, cuda).unwrap(), None);
}

/// r is a factor: the middle of 2 and 8 is 4. Where it has no upper end, or may be 0, it is the lower end.
#[test]
fn the_middle_of_a_range_of_factors_is_geometric() {
    let middle =
        |low: f64, high: f64| super::audit::Tile { finding: Finding::Stale, scale_inv: 2.0, low, high, slack: 0.0 }.r_middle();
    assert_eq!([middle(1.0, 4.0), middle(1.0, f64::INFINITY), middle(0.0, 4.0)], [4.0, 2.0, 0.0]);
}

/// The scale that is told is the one that is furthest off, by its factor: 4 is further from 1 than 1.25 and than 1/2.
#[test]
fn the_words_of_an_audit_tell_the_worst_scale() {
    use super::audit::{Audit, Tile};
    let stale = |r: f64| Tile { finding: Finding::Stale, scale_inv: 1.0, low: r, high: r, slack: 0.0 };
    let tiles = [1.25, 4.0, 0.5].map(stale).into_iter().chain([Tile { finding: Finding::Belongs, ..stale(1.0) }]).collect();
    let (read_from, made_by, lost) = (Vec::new(), Vec::new(), Vec::new());
    let audit = Audit { finding: Finding::Stale, tiles, read_from, made_by, order: None, clipped: 0, flushed: 0, lost };
    assert_eq!(
        audit.words(),
        "stale: 3 of 4 scales are not those of their codes; r between 4.000000 and 4.000000 at the worst"
    );
}

/// The codes of each group of columns are audited against its own values; an empty group has none.
#[test]
fn groups_of_a_bundle_are_audited_one_by_one() {
    let values = |rows: usize, cols: usize| {
        let source: Source = "normal".parse().unwrap();
        source.tensor(Format::F32, rows, cols, rows as u64, 0).unwrap()
    };
    let offs = [4, 4, 9];
    let mut w = Writer::new("grouped_gemm_wgrad");
    for (name, rows) in [("a", 3), ("b", 5)] {
        let x = values(rows, 9);
        let Operand::Groups(groups) = Operand::by_groups(&x, &offs, &"float8_rowwise".parse().unwrap()).unwrap() else {
            unreachable!()
        };
        w.side(
            name,
            &BundleOperand { high: Some(x), codes: Some(Codes::Groups(groups)), ..BundleOperand::default() },
            None,
            None,
        )
        .unwrap();
    }
    w.i32s("offs", &[3], &[4, 4, 9]).values("out", &[3, 3, 5], &values(9, 5));
    let found = audited::of(&Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap();
    let said: Vec<_> = found.tensors.iter().map(|t| (t.name.as_str(), t.audit.finding)).collect();
    assert_eq!(said, ["a, group 0", "a, group 2", "b, group 0", "b, group 2"].map(|name| (name, Finding::Belongs)));
}

/// Without wobble or drift a tensor is its gain times its source.
#[test]
fn a_gain_is_a_gain() {
    let source: Source = "normal".parse().unwrap();
    let moving = Moving {
        name: "x".into(),
        source: source.clone(),
        rows: 2,
        cols: 8,
        weight: false,
        gain: 4.0,
        drift: 1.0,
        wobble: 0.0,
        spike: Vec::new(),
        spike_by: 1.0,
        inf: Vec::new(),
        dtype: Format::F32,
        stream: 0,
    };
    let plain = source.tensor(Format::F32, 2, 8, 7, 0).unwrap();
    let gained: Vec<f32> = plain.data().iter().map(|x| 4.0 * x).collect();
    assert_eq!(moving.at(0, 7, &[]).unwrap().data(), gained);
}

/// After the spike the scale is too small for most values: what became zero shows at every step of the law.
#[test]
fn values_that_become_zero_show() {
    let r = replay(&Scenario::load("17_amax_spike").unwrap(), Policy::Packaged, CPU).unwrap();
    let under: Vec<_> = r.records.iter().filter(|r| r.law.starts_with("flushed")).collect();
    assert_eq!(under.iter().map(|r| r.step).collect::<Vec<_>>(), [6, 7, 8, 9]);
    assert!(under.iter().all(|r| r.flushed_share > 0.0 && r.flushed_share < 1.0 && r.shows));
}

/// A program that starts anew from a checkpoint has the bytes, and no forward of it has cloned a scale_inv yet.
#[test]
fn a_checkpoint_holds_no_clone() {
    let text = text("09_checkpoint_without_scale_inv");
    let forward = "do = \"forward\", a = \"xq\", b = \"wq\"";
    assert!(text.contains(forward));
    let s = parse(&text.replace(forward, &format!("{forward}, last = 5"))).unwrap();
    let mut machine = Machine::new(&s, Policy::Cloned, CPU).unwrap();
    for step in 0..=6 {
        machine.step(&mut |_, _| Ok(())).unwrap();
        assert_eq!(machine.buffer("wq").unwrap().cloned.is_some(), step < 6, "step {step}");
    }
}

/// A NaN is healthy where the healthy result has one, whatever its bits, and nowhere else.
#[test]
fn a_nan_of_one_result_is_not_healthy() {
    let s = Scenario::load("01_update_before_backward").unwrap();
    let mut machine = Machine::new(&s, Policy::Packaged, CPU).unwrap();
    let mut products = 0;
    let mut each = |_: &Machine, mut outcome: super::product::Outcome| {
        assert!(outcome.is_healthy());
        outcome.actual[3] = f64::NAN;
        assert!(!outcome.is_healthy());
        outcome.healthy[3] = -f64::NAN;
        assert!(outcome.is_healthy());
        outcome.actual[3] = 1.0;
        assert!(!outcome.is_healthy());
        products += 1;
        Ok(())
    };
    machine.step(&mut each).unwrap();
    assert!(products > 0);
}

/// Every step of an optimizer adds its rate times the weight's root mean square, along a direction of its own.
#[test]
fn an_optimizer_moves_a_weight_by_its_rates() {
    let source: Source = "normal".parse().unwrap();
    let scenario = Scenario::load("01_update_before_backward").unwrap();
    let spec =
        Moving { rows: 4, cols: 64, gain: 1.0, drift: 1.0, wobble: 0.0, dtype: Format::F32, ..scenario.tensors[0].clone() };
    let weight = Moving { source: source.clone(), weight: true, spike: Vec::new(), inf: Vec::new(), stream: 3, ..spec };
    let drawn = |seed, stream| source.tensor(Format::F32, 4, 64, seed, stream).unwrap();
    let at = |changes: &[f64]| weight.at(changes.len(), 7, changes).unwrap();
    let (start, moved) = (at(&[]), at(&[0.5, 0.25]));
    let rms = (start.data().iter().map(|w| f64::from(*w).powi(2)).sum::<f64>() / 256.0).sqrt();
    let directions = [(0.5, drawn(8, 1003)), (0.25, drawn(9, 1003))];
    for (i, w) in start.data().iter().enumerate() {
        let want = f64::from(*w) + rms * directions.iter().map(|(rate, n)| rate * f64::from(n.data()[i])).sum::<f64>();
        assert!((f64::from(moved.data()[i]) - want).abs() < 1e-6, "{i}: {} {want}", moved.data()[i]);
    }
}

/// e4m3 has 224, 240 and 256: 1 becomes 240 by a scale from 232 to 248, and by one that f32 arithmetic leaves a little outside.
#[test]
fn a_code_confines_its_scale_to_half_a_step_and_roundings_of_f32() {
    let parts = crate::quant::QTensorParts {
        format: Format::E4m3,
        rows: 1,
        cols: 1,
        codes: vec![0x77],
        granularity: Granularity::Tensor,
        scale_format: Format::F32,
        scale_inv: vec![1.0 / 240.0],
        zero: crate::Zero::None,
        level: None,
    };
    let q = crate::QTensor::new(parts).unwrap();
    let tile = audit(&q, &Tensor::new(Format::F32, 1, 1, vec![1.0]).unwrap(), &[]).unwrap().tiles[0];
    let near = |x: f64, y: f64| (x / y - 1.0).abs() < 1e-9;
    let slack = 2f64.powi(-20);
    assert!(near(tile.low, 232.0 * (1.0 - slack)) && near(tile.high, 248.0 * (1.0 + slack)), "{tile:?}");
}

/// No law has a scale that is read as NaN, nor an element a tenth of its products' magnitudes further.
#[test]
fn no_law_holds_for_a_nan_or_for_another_element() {
    let s = Scenario::load("01_update_before_backward").unwrap();
    let mut machine = Machine::new(&s, Policy::Shared, CPU).unwrap();
    let mut by_law = 0;
    let mut each = |machine: &Machine, mut outcome: super::product::Outcome| {
        let mut parts = outcome.sides[0].used.clone().into_parts();
        parts.scale_inv[0] = f32::NAN;
        let used = std::mem::replace(&mut outcome.sides[0].used, crate::QTensor::new(parts)?);
        let [side, _] = judge(machine, &outcome)?.sides;
        assert!(!side.holds && side.why.contains("is read with r = NaN, the law says"), "{}", side.why);
        outcome.sides[0].used = used;
        outcome.actual[0] += 0.1 * outcome.ideal.magnitude.as_ref().unwrap()[(0, 0)];
        let found = judge(machine, &outcome)?;
        assert!(!found.holds, "{}", outcome.product);
        by_law += usize::from(found.why.starts_with("element 0 is") && found.why.contains("the law allows"));
        Ok(())
    };
    (0..3).for_each(|_| machine.step(&mut each).unwrap());
    assert!(by_law > 0);
}

#[test]
fn the_command_of_a_row_has_its_seed() {
    let s = Scenario { steps: 1, ..Scenario::load("01_update_before_backward").unwrap() };
    let command = |seed| replay(&s, Policy::Packaged, With { seed, ..CPU }).unwrap().records[0].command.clone();
    let plain = "qassay stale 01_update_before_backward --policy packaged";
    assert_eq!([command(0), command(3)], [plain.to_string(), format!("{plain} --seed 3")]);
}
