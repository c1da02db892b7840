//! Which scale_inv did a kernel read? Asked of a product's result beside its operands' codes and scale_inv.
//!
//! A scale_inv that is r times the right one makes the product r times what it should be, for the whole result (tensor), for a row (a row's scale
//! of A) or for a column (B). Every element confines r:
//!
//! ```text
//! cell of d:  low ≤ v ≤ high                what rounds to the element that was returned
//! |v − r·p| ≤ r·β                           p the product in f64 by the stored scale_inv, β the bound of its arithmetic
//! ```
//!
//! Where the intervals of all elements intersect, one factor explains them, and r is inside with the same certainty as the bound's; the widest
//! region that has one is named. scale_inv that differ along K (blocks, groups) sum terms of different r and have no factor: there, and for
//! everything else, [`qassay assay`](crate::bundle::assay) tries its catalogue of faults.

use crate::assay::Built;
use crate::assay::product::bound;
use crate::assay::row::short;
use crate::bundle::assay::{self, build, output, settle};
use crate::bundle::{Bundle, BundleOperand};
use crate::compare::digits::apart;
use crate::compare::{Bound, OutFormat};
use crate::job::{Data, Operand, Part};
use crate::quant::QTensorParts;
use crate::{Granularity, QTensor, Result};
use std::sync::Arc;

/// What shares a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    Tensor,
    /// Rows of D: scales of A.
    Rows,
    /// Columns of D: scales of B.
    Columns,
}

impl Shared {
    pub fn name(self) -> &'static str {
        ["tensor", "row of a", "row of b"][self as usize]
    }
}

/// An earlier scale_inv that explains the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Earlier {
    /// 0 is a, 1 is b.
    pub operand: usize,
    /// How many steps ago, 1 the newest of the history.
    pub steps: usize,
    pub scale_inv: f32,
    /// Its ratio to the stored one.
    pub r: f64,
    /// The device model returns the very bits of the result with it.
    pub exact: bool,
}

/// The answer of [`reading`].
#[derive(Clone, Debug)]
pub struct Reading {
    /// The widest region with one factor; `None` where no factor explains the result.
    pub region: Option<Shared>,
    /// Certain bounds of r of each part of the region; one pair where there is no region, empty (low > high).
    pub r: Vec<(f64, f64)>,
    /// Earlier scale_inv whose ratio to the stored one is inside (tensor scales).
    pub earlier: Vec<Earlier>,
    /// What each element of D is off by because of r: its value (without the bias) minus that divided by the middle of r. 0 where r may be 1.
    pub lost: Vec<f64>,
}

impl Reading {
    /// Whether the stored scale_inv explain the result.
    pub fn belongs(&self) -> bool {
        self.region.is_some() && self.r.iter().all(|r| r.0 <= 1.0 && 1.0 <= r.1)
    }

    /// The answer in one line.
    pub fn words(&self) -> String {
        let far = |r: &&(f64, f64)| if r.0 <= 1.0 && 1.0 <= r.1 { 0.0 } else { middle(**r).ln().abs() };
        let Some((low, high)) = self.r.iter().max_by(|a, b| far(a).total_cmp(&far(b))).copied() else {
            return "nothing was computed".into();
        };
        let Some(region) = self.region else {
            return "no factor of the whole, of rows or of columns explains it: not one stale scale, or scales that differ along K"
                .into();
        };
        let off = self.r.iter().filter(|r| !(r.0 <= 1.0 && 1.0 <= r.1)).count();
        if off == 0 {
            return format!("read as stored (r between {low:.6} and {high:.6})");
        }
        let mut text = match region {
            Shared::Tensor => format!("not read as stored: r of the tensor is between {low:.6} and {high:.6}"),
            _ => format!(
                "not read as stored: r of {off} of {} ({}) is not 1, between {low:.6} and {high:.6} at the worst",
                self.r.len(),
                region.name()
            ),
        };
        for e in &self.earlier {
            let name = ["a", "b"][e.operand];
            let exact = if e.exact { ", and makes every bit of the result" } else { "" };
            let s = if e.steps == 1 { "" } else { "s" };
            let [scale_inv] = apart([e.scale_inv.into()]);
            text += &format!("; the scale_inv of {name} of {} step{s} ago, {scale_inv}, is r = {:.6}{exact}", e.steps, e.r);
        }
        let most = self.lost.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        text + &format!("; an element of the result is off by up to {}", short(most))
    }
}

fn middle((low, high): (f64, f64)) -> f64 {
    if high.is_finite() && low > 0.0 { (low * high).sqrt() } else { low.max(f64::MIN_POSITIVE) }
}

/// Judges which scale_inv made the result of a bundle; `None` where it is no product of codes. Errors: those of
/// [`crate::bundle::assay::assay`].
pub fn reading(b: &Bundle) -> Result<Option<Reading>> {
    if !b.meta.op.is_product() || b.a.codes.is_none() || b.b.codes.is_none() {
        return Ok(None);
    }
    let (mut built, result) = (build(b)?, output(b)?);
    built.job.accumulator = Some(settle(&b.meta, &mut built, &result)?.accumulator);
    let Some(Part { d, .. }) = result.parts.first() else { return Ok(None) };
    let (values, out) = match d {
        Data::High(t) => (t.data().iter().map(|x| f64::from(*x)).collect::<Vec<f64>>(), OutFormat::high(t.dtype())),
        Data::Quantized(q) => (q.dequantize().into_iter().collect(), OutFormat::quantized(q, None)),
    };
    let ideal = &built.ideal[0];
    let around = bound(&built.job, ideal, &out)?;
    let cols = ideal.d.ncols();
    let bias: Vec<f64> = (0..values.len()).map(|at| built.job.bias_at(at / cols.max(1), at % cols.max(1))).collect();
    let mut found = of(&around, (cols, &bias), &values, [&b.a, &b.b]);
    for e in &mut found.earlier {
        let mut job = built.job.clone();
        if let Some(Operand::Quantized(q)) = job.operands.get_mut(e.operand) {
            *q = QTensor::new(QTensorParts { scale_inv: vec![e.scale_inv], ..q.clone().into_parts() })?;
        }
        let mut built = Built::of(job, vec![]);
        built.ideal.push(Arc::new(assay::ideal(&built.job, None)?));
        let model = settle(&b.meta, &mut built, &result)?.model;
        e.exact = model.is_some_and(|m| same(&m.parts[0].d, d));
    }
    Ok(Some(found))
}

/// Whether two results have the same bits, NaNs as a class.
fn same(a: &Data, b: &Data) -> bool {
    match (a, b) {
        (Data::High(a), Data::High(b)) => {
            let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
            a.data().len() == b.data().len() && a.data().iter().zip(b.data()).all(same)
        }
        (Data::Quantized(a), Data::Quantized(b)) => a.codes() == b.codes(),
        _ => false,
    }
}

/// The factors of `values` over the ideal of a bound, `cols` a row; a bias, of all elements or of one row for all, is added after the scales.
fn of(around: &Bound, (cols, bias): (usize, &[f64]), values: &[f64], sides: [&BundleOperand; 2]) -> Reading {
    let added = |i: usize| bias.get(i % bias.len().max(1)).copied().unwrap_or(0.0);
    let element = |i: usize| interval(around, i, values[i], added(i));
    let meet = |all: &mut dyn Iterator<Item = usize>| {
        all.map(element).fold((0.0f64, f64::INFINITY), |m, e| (m.0.max(e.0), m.1.min(e.1)))
    };
    let n = values.len();
    let rows = n.checked_div(cols).unwrap_or(0);
    let by = |region: Shared| -> Vec<(f64, f64)> {
        match region {
            Shared::Tensor => vec![meet(&mut (0..n))],
            Shared::Rows => (0..rows).map(|i| meet(&mut (i * cols..(i + 1) * cols))).collect(),
            Shared::Columns => (0..cols).map(|j| meet(&mut (0..rows).map(|i| i * cols + j))).collect(),
        }
    };
    let whole = |r: &[(f64, f64)]| r.iter().all(|r| r.0 <= r.1);
    let fits = |region: &Shared| whole(&by(*region));
    let region = [Shared::Tensor, Shared::Rows, Shared::Columns].into_iter().find(fits);
    let r = by(region.unwrap_or(Shared::Tensor));
    let mut earlier = Vec::new();
    for (operand, side) in sides.into_iter().enumerate() {
        let stored = side.whole().filter(|q| q.granularity() == Granularity::Tensor).map(|q| q.scale_inv()[0]);
        if let (Some(stored), Some(Shared::Tensor)) = (stored, region) {
            let named = side.history.iter().enumerate().map(|(k, h)| Earlier {
                operand,
                steps: k + 1,
                scale_inv: *h,
                r: f64::from(*h) / f64::from(stored),
                exact: false,
            });
            earlier.extend(named.filter(|e| r[0].0 <= e.r && e.r <= r[0].1));
        }
    }
    let part = |i: usize| match region {
        Some(Shared::Rows) => r[i / cols],
        Some(Shared::Columns) => r[i % cols],
        _ => r[0],
    };
    let off = |r: (f64, f64)| region.is_some() && !(r.0 <= 1.0 && 1.0 <= r.1);
    let lost =
        (0..n).map(|i| if off(part(i)) { (values[i] - added(i)) * (1.0 - 1.0 / middle(part(i))) } else { 0.0 }).collect();
    Reading { region, r, earlier, lost }
}

/// What one element says of r: nothing where its product may be 0.
fn interval(around: &Bound, i: usize, d: f64, bias: f64) -> (f64, f64) {
    const ANY: (f64, f64) = (0.0, f64::INFINITY);
    let (p, beta) = (around.ideal()[i] - bias, around.certain()[i]);
    if !(beta < p.abs()) || !p.is_finite() {
        return ANY;
    }
    if !d.is_finite() {
        return (f64::INFINITY, 0.0);
    }
    let (low, high) = around.out().cell(i, d);
    let (low, high) = (low - bias, high - bias);
    let (low, high) = if p < 0.0 { (-high, -low) } else { (low, high) };
    // One rounding more, where a factor that the reference applied is another f32.
    let slack = p.abs() * 2f64.powi(-22);
    ((low / (p.abs() + beta + slack)).max(0.0), high / (p.abs() - beta - slack).max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(name: &str) -> Reading {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/bundles").join(name).with_extension("safetensors");
        reading(&Bundle::read(&path).unwrap()).unwrap().expect("a product of codes")
    }

    /// What torch's kernels read on an H200, healthy and not.
    #[test]
    fn the_bundles_that_torch_wrote_are_read_as_they_were_made() {
        for healthy in ["tensor", "tensor_fast", "tensor_f32", "row", "row_fast", "block_f32", "int8"] {
            let r = read(healthy);
            assert!(r.belongs(), "{healthy}: {}", r.words());
            assert!(r.lost.iter().all(|x| *x == 0.0));
        }
        // make.py: scale_a is history[2] of 1, 0.71, 1.37, 0.93 times the right one, which is the second of scale_history.
        let stale = read("bug_scale_stale");
        assert_eq!(stale.region, Some(Shared::Tensor));
        assert!(!stale.belongs() && stale.r[0].0 <= 1.37 && 1.37 <= stale.r[0].1, "{}", stale.words());
        let named: Vec<(usize, usize)> = stale.earlier.iter().map(|e| (e.operand, e.steps)).collect();
        assert_eq!(named, [(0, 2)], "{}", stale.words());
        assert!((stale.earlier[0].r - 1.37).abs() < 1e-6 && stale.earlier[0].exact, "{}", stale.words());
        let lost = stale.lost.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        assert!(lost > 0.0, "{}", stale.words());
        // The scale where scale_inv is meant: r = s·s.
        let inverted = read("bug_scale_inverted");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/bundles/bug_scale_inverted.safetensors");
        let stored = f64::from(Bundle::read(&path).unwrap().a.whole().unwrap().scale_inv()[0]);
        let squared = (stored * stored).recip();
        assert!(inverted.r[0].0 <= squared && squared <= inverted.r[0].1 && !inverted.belongs(), "{}", inverted.words());
        // One wrong factor a row.
        let turned = read("bug_scale_transposed");
        assert!(turned.region == Some(Shared::Rows) && !turned.belongs(), "{}", turned.words());
        // No factor explains what is lost of K, or block scales in another order.
        for none in ["bug_k_tail", "bug_block_scales_transposed"] {
            let r = read(none);
            assert!(r.region.is_none() && !r.belongs(), "{none}: {}", r.words());
        }
    }

    /// A result is that of an earlier scale to the bit or it is not.
    /// A product of 1 with a radius of 1 may be 0, and then any r gives the result.
    #[test]
    fn a_product_that_may_be_zero_says_nothing_of_its_scale() {
        let out = crate::compare::OutFormat::high(crate::Format::F32);
        let said = |radius: f64, d: f64| {
            let around = Bound::from_radii(vec![1.0], vec![radius], vec![radius], &out).unwrap();
            interval(&around, 0, d, 0.0)
        };
        assert_eq!([said(1.0, 0.5), said(1.5, 0.5)], [(0.0, f64::INFINITY); 2]);
        let (low, high) = said(0.5, 3.0);
        assert!(1.9 < low && low < 2.0 && 6.0 < high && high < 6.1, "{low} {high}");
    }

    #[test]
    fn results_are_the_same_by_their_bits() {
        let t = |data: &[f32]| Data::High(crate::Tensor::new(crate::Format::F32, 1, data.len(), data.to_vec()).unwrap());
        assert!(same(&t(&[1.0, f32::NAN]), &t(&[1.0, -f32::NAN])));
        for other in [&[1.0, 2.0][..], &[f32::from_bits(0x3f80_0001), f32::NAN], &[1.0]] {
            assert!(!same(&t(&[1.0, f32::NAN]), &t(other)), "{other:?}");
        }
        assert!(!same(&t(&[0.0]), &t(&[-0.0])));
    }

    /// Healthy products raise no alarm, and a factor on a scale that the stored one does not have is found: of the tensor, of one row.
    #[test]
    fn drawn_products_are_read_as_stored_or_by_their_factor() {
        use super::super::audited::OfBundle;
        use crate::Format;
        use crate::bundle::case;
        use crate::input::Source;
        use crate::job::{Job, Operands, OutSpec};
        use crate::kernel::{Backend, cpu, find};
        use crate::op::{Op, Params};
        let accumulator: crate::model::Accumulator = "hopper_wgmma".parse().unwrap();
        let mut source: Source = "minilm:layer0.ffn_in_input".parse().unwrap();
        for i in 0..240usize {
            let (recipe, rows) = [("te_current", false), ("float8_rowwise", true), ("te_current:e5m2", false)][i % 3];
            let out = [Format::F32, Format::Bf16, Format::F16][i / 3 % 3];
            if let Source::Real(r) = &source {
                source = Source::Real(r.moved(5, 3));
            }
            let quantize = |seed, stream| {
                let x = source.tensor(Format::Bf16, 8, 96, seed, stream).unwrap();
                recipe.parse::<crate::recipe::Recipe>().unwrap().quantize(&x).unwrap().q
            };
            let (a, b) = (quantize(i as u64, 1), quantize(i as u64 + 7, 2));
            // What the kernel reads: the stored scale_inv, or 3 and 0.4 times it, of all or of row 5.
            let factor = [1.0, 3.0, 0.4][i / 9 % 3];
            let mut used = a.clone().into_parts();
            let tile = if rows { 5 } else { 0 };
            used.scale_inv[tile] *= factor;
            let job = |a: QTensor| Job {
                op: Op::Gemm,
                params: Params::default(),
                operands: Operands::of(Operand::Quantized(a), Some(Operand::Quantized(b.clone()))),
                out: OutSpec::High(out),
                accumulator: Some(accumulator),
            };
            let read = job(QTensor::new(used).unwrap());
            let result = find(cpu::KERNELS, &read, Backend::Cpu).unwrap().run(&read).unwrap();
            let stored = job(a.clone());
            let mut w = case::input(&stored).unwrap();
            w.meta("device_model", accumulator);
            case::output(&mut w, &stored, &result).unwrap();
            let bundle = Bundle::parse(Path::new("drawn.safetensors"), &w.to_bytes().unwrap()).unwrap();
            let found = reading(&bundle).unwrap().unwrap();
            let at = format!("draw {i}, {recipe}, {out}, factor {factor}: {}", found.words());
            assert_eq!(found.belongs(), factor == 1.0, "{at}");
            assert!(found.lost.iter().any(|l| *l != 0.0) == (factor != 1.0), "{at}");
            let region = if rows && factor != 1.0 { Shared::Rows } else { Shared::Tensor };
            assert_eq!(found.region, Some(region), "{at}");
            let r = found.r[if region == Shared::Rows { tile } else { 0 }];
            assert!(r.0 <= f64::from(factor) && f64::from(factor) <= r.1, "{at}");
            // The audit's table says so of each.
            let parts = found.r.len();
            let table = OfBundle { tensors: Vec::new(), read: Some(found), cols: 8 }.scales();
            let of = |finding: &str| table.iter().filter(|row| row.last().is_some_and(|cell| cell == finding)).count();
            let stale = usize::from(factor != 1.0);
            assert_eq!((of("belongs"), of("stale")), (parts - stale, stale), "{at}");
        }
    }

    /// The geometric middle; of an interval without an end, or from 0, its low end.
    #[test]
    fn the_middle_of_an_interval_is_geometric() {
        assert_eq!([middle((2.0, 8.0)), middle((3.0, f64::INFINITY)), middle((0.0, 8.0))], [4.0, 3.0, f64::MIN_POSITIVE]);
    }

    /// 3 with a radius of 1 and a bias of 1 was made of 2 ± 1: r is between cell/(|p| ± β).
    #[test]
    fn an_element_says_between_which_numbers_r_is() {
        let of = |ideal: f64, certain: f64, d: f64, bias: f64| {
            let bound = Bound::from_radius(vec![ideal], vec![certain], &OutFormat::high(crate::Format::F32)).unwrap();
            interval(&bound, 0, d, bias)
        };
        let slack = |p: f64| p * 2f64.powi(-22);
        let (low, high) = OutFormat::high(crate::Format::F32).cell(0, 5.0);
        let (s, any) = (slack(2.0), (0.0, f64::INFINITY));
        assert_eq!(of(3.0, 1.0, 5.0, 1.0), ((low - 1.0) / (3.0 + s), (high - 1.0) / (1.0 - s)));
        // Of a negative product the ends change places.
        let (low, high) = OutFormat::high(crate::Format::F32).cell(0, -5.0);
        assert_eq!(of(-2.0, 1.0, -5.0, 0.0), (-high / (3.0 + s), -low / (1.0 - s)));
        // Of the other sign r is no more than 0.
        assert_eq!(of(2.0, 1.0, -5.0, 0.0).0, 0.0);
        // Nothing where the product may be 0; none where the result is not a number.
        assert_eq!([of(2.0, 2.0, 5.0, 0.0), of(2.0, f64::INFINITY, 5.0, 0.0), of(f64::NAN, 0.0, 5.0, 0.0)], [any; 3]);
        assert_eq!(of(2.0, 1.0, f64::NAN, 0.0), (f64::INFINITY, 0.0));
    }

    #[test]
    fn the_answer_says_which_parts_are_not_read_as_stored() {
        let of = |region: Option<Shared>, r: &[(f64, f64)]| {
            let earlier = Vec::new();
            Reading { region, r: r.to_vec(), earlier, lost: vec![0.5, -2.0] }.words()
        };
        let right = (0.9, 1.1);
        assert_eq!(of(Some(Shared::Rows), &[right, (1.0, 1.0)]), "read as stored (r between 1.000000 and 1.000000)");
        assert_eq!(of(Some(Shared::Rows), &[]), "nothing was computed");
        assert!(of(None, &[right]).starts_with("no factor of the whole"));
        let one = of(Some(Shared::Rows), &[right, (1.9, 2.1), (0.2, 0.3)]);
        assert!(one.starts_with("not read as stored: r of 2 of 3 (") && one.contains("between 0.200000 and 0.300000"), "{one}");
        assert!(one.ends_with("an element of the result is off by up to 2"), "{one}");
        assert!(of(Some(Shared::Tensor), &[(1.5, 1.6)]).starts_with("not read as stored: r of the tensor is between 1.500000"));
    }

    /// Products that a known factor multiplied before the bias: by tensor, by row, by column, the factor is read back, and what is lost is
    /// what it changed.
    #[test]
    fn the_factor_of_every_region_is_read_back() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/bundles/tensor.safetensors");
        let bundle = Bundle::read(&path).unwrap();
        let (rows, cols) = (5, 7);
        let product = |at: usize| (1.0 + (at * 5 % 11) as f64) * if at.is_multiple_of(3) { -1.0 } else { 1.0 };
        let factors = [1.5, 0.75, 2.0, 1.25, 3.0, 0.5, 1.75];
        let bias: Vec<f64> = (0..cols).map(|j| j as f64 - 2.5).collect();
        let ideal: Vec<f64> = (0..rows * cols).map(|at| product(at) + bias[at % cols]).collect();
        let radius = vec![1e-5; rows * cols];
        let around = Bound::from_radii(ideal.clone(), radius.clone(), radius, &OutFormat::high(crate::Format::F32)).unwrap();
        type Place<'p> = &'p dyn Fn(usize) -> usize;
        let regions: [(Shared, usize, Place); 3] =
            [(Shared::Tensor, 1, &|_| 0), (Shared::Rows, rows, &|at| at / cols), (Shared::Columns, cols, &|at| at % cols)];
        for (region, count, of_place) in regions {
            let values: Vec<f64> = (0..rows * cols).map(|at| product(at) * factors[of_place(at)] + bias[at % cols]).collect();
            let found = of(&around, (cols, &bias), &values, [&bundle.a, &bundle.b]);
            assert_eq!((found.region, found.r.len()), (Some(region), count));
            for ((low, high), factor) in found.r.iter().zip(factors) {
                assert!(low <= &factor && &factor <= high && high - low < 1e-3, "{region:?}: {low} … {high} of {factor}");
            }
            for (at, lost) in found.lost.iter().enumerate() {
                let changed = values[at] - ideal[at];
                assert!((lost - changed).abs() < 1e-3, "{region:?}, {at}: {lost} of {changed}");
            }
        }
        // A factor of its own in every row and column is none of a region.
        let values: Vec<f64> =
            (0..rows * cols).map(|at| product(at) * factors[at / cols] * factors[at % cols] + bias[at % cols]).collect();
        let found = of(&around, (cols, &bias), &values, [&bundle.a, &bundle.b]);
        assert!(found.region.is_none() && found.lost.iter().all(|lost| *lost == 0.0));
    }

    /// Of a product of values and codes there is no scale of both that could be another.
    #[test]
    fn a_product_with_values_on_one_side_is_not_read() {
        use crate::Format;
        use crate::bundle::case;
        use crate::input::Source;
        use crate::job::{Job, Operands, OutSpec};
        use crate::kernel::{Backend, cpu, find};
        use crate::op::{Op, Params};
        let source: Source = "minilm:layer0.ffn_in_input".parse().unwrap();
        let x = |seed| source.tensor(Format::Bf16, 8, 96, seed, 1).unwrap();
        let q = "affine_asym:int8".parse::<crate::recipe::Recipe>().unwrap().quantize(&x(7)).unwrap().q;
        let job = Job {
            op: Op::Gemm,
            params: Params::default(),
            operands: Operands::of(Operand::High(x(1)), Some(Operand::Quantized(q))),
            out: OutSpec::High(Format::Bf16),
            accumulator: Some("f32_sequential".parse().unwrap()),
        };
        let result = find(cpu::KERNELS, &job, Backend::Cpu).unwrap().run(&job).unwrap();
        let mut w = case::input(&job).unwrap();
        case::output(&mut w, &job, &result).unwrap();
        let bundle = Bundle::parse(Path::new("drawn.safetensors"), &w.to_bytes().unwrap()).unwrap();
        assert!(bundle.a.codes.is_none() && bundle.b.codes.is_some());
        assert!(reading(&bundle).unwrap().is_none());
    }
}
