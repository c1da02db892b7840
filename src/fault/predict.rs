//! What a fault would have written beside what was written: how much of the error it explains, and whether rounding is all that
//! remains.

use super::inject::{Set, canary, read, unrounded, written};
use super::subset::{self, Sample};
use super::{Evidence, Fault, How, Origin, Shape};
use crate::assay::evidence::values;
use crate::job::{Data, Job, Output};
use crate::kernel::Backend;
use crate::model::Inner;
use crate::op::{self, Args64};
use crate::order::Order as _;
use crate::parallel;
use crate::{Result, Tensor};
use std::sync::OnceLock;

/// Errors count in steps of the output, up to this many.
const CAP: f64 = 1e4;
/// A prediction this much smaller than the right result is held to a bound that is as much smaller.
const TINY: f64 = 1.0 / 16.0;

/// How well a prediction fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Share of the error's energy that is gone when the prediction is right.
    pub share: f64,
    /// Elements, and values beside the result, that rounding cannot explain.
    pub outside: usize,
    /// Share of elements that differ from the prediction, and the share that rounding lets differ.
    pub misses: f64,
    pub allowed: f64,
    /// Everything equals the prediction.
    pub exact: bool,
    /// What is left, in bits: of every element log2(1 + steps of the output that it is off).
    pub bits: f64,
}

impl Fit {
    /// Whether what remains is rounding, and most of the error is explained.
    pub fn accepted(&self) -> bool {
        self.is_rounding() && self.share >= 0.75
    }
    /// Whether what remains is rounding.
    pub fn is_rounding(&self) -> bool {
        self.outside == 0 && self.misses <= self.allowed
    }
}

/// One vector of what was written.
pub struct Component {
    name: &'static str,
    values: Vec<f64>,
}

/// What a kernel would have written: of the sampled elements, and beside them.
pub type Prediction = Vec<Component>;

/// Everything that stays the same while faults are tried.
pub struct Scene<'a> {
    pub evidence: Evidence<'a>,
    pub sample: Sample,
    pub shape: Shape,
    actual: Prediction,
    clean: Prediction,
    /// Largest bound of the right result over the magnitude of its sum (products).
    relative: f64,
    /// How much of that bound a replay in the kernel's own arithmetic, or one in f64 of sums in f32, may need: 1 but where the bound is that
    /// of a device's unit whose bits are known.
    tight: f64,
    /// The part that theories in f64 are held to: of a device's unit the probable bound, until its replay tells them apart.
    loose: f64,
    /// Bound of every sampled element of all parts, and which part and element it is.
    radius: Vec<f64>,
    places: Vec<(usize, usize)>,
    /// √(Σa²b²) of every sampled element: how large partial sums get.
    partial: OnceLock<Vec<f64>>,
    /// Which elements of the whole first part are wrong.
    wrong: OnceLock<Vec<bool>>,
    bits_tell: OnceLock<bool>,
}

/// What a device's unit errs by, of its bound.
pub const NOISE: f64 = 1.0 / 128.0;
/// Right elements with the bits of a model, at least, that make it the kernel's.
const LEAST_BITS: usize = 16;

/// Multiply-adds of a product that is computed whole for each fault.
const SMALL: usize = 4 << 20;

impl<'a> Scene<'a> {
    /// Errors: those of the right kernel on the job.
    pub fn new(evidence: Evidence<'a>) -> Result<Self> {
        Self::of_lines(evidence, None)
    }

    /// The worst elements of a product with so many lines of the rest: what refuses most faults before all of it is asked. `None`: a small one, or
    /// more than the product is written.
    pub fn few(&self, lines: usize) -> Option<Self> {
        let (job, parts) = (self.evidence.job, &self.evidence.output.parts);
        let alone = parts.len() == 1 && parts[0].amax.is_none() && parts[0].transpose.is_none();
        let work = self.shape.rows * self.shape.cols * crate::assay::product::inner(job);
        (job.op.is_product() && alone && self.sample.whole && work > SMALL / 8).then_some(())?;
        Self::of_lines(self.evidence, Some(lines)).ok().filter(|few| !few.sample.whole)
    }

    fn of_lines(evidence: Evidence<'a>, lines: Option<usize>) -> Result<Self> {
        let job = evidence.job;
        let (rows, cols) = evidence.output.parts.first().map_or((0, 0), |p| p.d.shape());
        let product = job.op.is_product();
        let mut sample = Sample::whole(rows, cols);
        let k = crate::assay::product::inner(job);
        // A decoder's product is few multiply-adds, and many weights to decode.
        if product && (lines.is_some() || rows * cols * k > SMALL || (rows + cols) * k > SMALL / 2) {
            let ratios = evidence.judged[0].bound.ratios(&evidence.judged[0].actual)?;
            let mut worst: Vec<usize> = Vec::new();
            let largest_first = |a: &usize, b: &usize| ratios[*b].total_cmp(&ratios[*a]);
            for i in (0..ratios.len()).filter(|i| !(ratios[*i] <= 1.0)) {
                worst.push(i);
                if worst.len() == 4096 {
                    worst.order_by(largest_first);
                    worst.truncate(16);
                }
            }
            worst.order_by(largest_first);
            let must: Vec<(usize, usize)> = worst.iter().take(16).map(|i| (i / cols, i % cols)).collect();
            // Fewer lines of a deep product.
            let most = ((SMALL / k) as f64).sqrt() as usize;
            let some = Sample::of(rows, cols, lines.unwrap_or(most.clamp(24, 48)), &must);
            if subset::product(job, &some).is_some() {
                sample = some;
            }
        }
        let mut scene = Self {
            evidence,
            shape: Shape { rows, cols },
            actual: Vec::new(),
            clean: Vec::new(),
            relative: 0.0,
            tight: 1.0,
            loose: 1.0,
            radius: Vec::new(),
            places: Vec::new(),
            partial: OnceLock::new(),
            wrong: OnceLock::new(),
            bits_tell: OnceLock::new(),
            sample,
        };
        let (mut relative, magnitude) = (0.0f64, if product { scene.magnitude(job)? } else { Vec::new() });
        for (part, j) in evidence.judged.iter().enumerate() {
            let indices: Vec<usize> =
                if part == 0 { scene.sample.indices(cols).collect() } else { (0..j.actual.len()).collect() };
            for (n, i) in indices.into_iter().enumerate() {
                let r = j.bound.certain()[i];
                scene.radius.push(r);
                scene.places.push((part, i));
                if let Some(m) = magnitude.get(n).filter(|m| **m > 0.0 && r.is_finite()) {
                    relative = relative.max(r / m);
                }
            }
        }
        scene.relative = relative;
        let known = evidence.model.is_some() || evidence.backend == Backend::Cpu;
        if known && relative > 0.0 && matches!(job.accumulator.map(|a| a.inner), Some(Inner::Mma(_))) {
            let f32_sums = (crate::assay::product::inner(job) as f64 + 8.0) * 2f64.powi(-24);
            scene.tight = (f32_sums / relative).min(1.0);
            scene.radius.iter_mut().for_each(|r| *r *= scene.tight);
            let b = &evidence.judged[0].bound;
            let both = b.probable().iter().zip(b.certain()).filter(|(_, c)| **c > 0.0 && c.is_finite());
            scene.loose = both.fold(0.0f64, |m, (p, c)| m.max(p / c)).clamp(scene.tight, 1.0);
        }
        scene.actual = scene.components(evidence.output, true);
        // A result no fault explains is still compared with what a right kernel of ours writes.
        // Where no kernel of ours takes the job, the right values rounded are it.
        scene.clean = match scene.written(&[]) {
            Ok(clean) => {
                let clean = clean.unwrap_or_else(|| evidence.output.clone());
                scene.components(&clean, false)
            }
            Err(crate::Error::Unsupported { .. } | crate::Error::Value { .. }) => scene.rounded(),
            Err(e) => return Err(e),
        };
        Ok(scene)
    }

    /// The right values of the sampled elements, rounded to the output; what stands beside them as it was written.
    fn rounded(&self) -> Prediction {
        let j = &self.evidence.judged[0];
        let mut all = self.components(self.evidence.output, true);
        all[0].values = self.sample.indices(self.shape.cols).map(|i| j.bound.out().round(i, j.bound.ideal()[i])).collect();
        all
    }

    /// Σ|a||b| of every sampled element of a product of this job.
    fn magnitude(&self, job: &Job) -> Result<Vec<f64>> {
        self.sums_of(job, f64::abs)
    }

    /// Σf(a)f(b) of every sampled element of a product of this job.
    fn sums_of(&self, job: &Job, f: fn(f64) -> f64) -> Result<Vec<f64>> {
        let Some(part) = subset::product(job, &self.sample) else { return Ok(Vec::new()) };
        let o = &part.operands;
        let vector = |t: &Option<Tensor>| t.as_ref().map(|t| t.data().iter().map(|x| f(f64::from(*x))).collect());
        let args = Args64 {
            a: o.a().to_f64().mapv(f),
            b: o.b().map(|b| b.to_f64().mapv(f)),
            bias: vector(&o.bias),
            row_weights: o.row_weights.as_ref().map(|w| w.iter().map(|w| f(f64::from(*w))).collect()),
            offs: o.offs.clone(),
            ..Args64::default()
        };
        Ok(op::define(job.op, &job.params, &args)?.d.into_iter().collect())
    }

    /// What a kernel with these faults writes, of the sampled elements.
    fn written(&self, faults: &[Set]) -> Result<Option<Output>> {
        let Some(changed) = read(self.evidence.job, faults) else { return Ok(None) };
        let Some(part) = subset::product(&changed, &self.sample).or_else(|| self.sample.whole.then_some(changed)) else {
            return Ok(None);
        };
        written(&part, faults)
    }

    /// As [`Self::written`] where elements are moved and the sample is a part: each is computed where it comes from. `None`: they come from
    /// too many lines.
    fn written_elsewhere(&self, faults: &[Set]) -> Result<Option<Prediction>> {
        let job = self.evidence.job;
        let (places, others): (Vec<Set>, Vec<Set>) = faults.iter().copied().partition(|(f, _)| matches!(f.how, How::Places(_)));
        let [(Fault { how: How::Places(places), .. }, setting)] = places[..] else { return Ok(None) };
        let Some(moves) = places(job, self.shape, setting) else { return Ok(None) };
        let cols = self.shape.cols;
        let sources: Vec<Origin> = self.sample.indices(cols).map(|i| moves(i / cols, i % cols)).collect();
        let lines = |of: fn(&Origin) -> Option<usize>| {
            let mut all: Vec<usize> = sources.iter().filter_map(of).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let rows = lines(|s| if let Origin::From(i, _) = s { Some(*i) } else { None });
        let columns = lines(|s| if let Origin::From(_, j) = s { Some(*j) } else { None });
        if rows.is_empty() || columns.is_empty() || rows.len() * columns.len() > 4 * sources.len() {
            return Ok(None);
        }
        let there = Sample { rows, cols: columns, whole: false };
        let Some(part) = read(job, &others).and_then(|changed| subset::product(&changed, &there)) else { return Ok(None) };
        let Some(output) = written(&part, &others)? else { return Ok(None) };
        let (format, computed) = (self.evidence.judged[0].bound.out().format(), values(&output.parts[0].d));
        let at = |all: &[usize], line: usize| all.partition_point(|x| *x < line);
        let value = |s: &Origin| match s {
            Origin::From(i, j) => computed[at(&there.rows, *i) * there.cols.len() + at(&there.cols, *j)],
            Origin::Zero => 0.0,
            Origin::Unwritten => format.decode(canary(format)),
        };
        let mut all = self.components(&output, false);
        all[0].values = sources.iter().map(value).collect();
        Ok(Some(all))
    }

    /// The vectors of an output: `sampled` says that it is the whole one, to be taken at the sample.
    fn components(&self, o: &Output, take: bool) -> Prediction {
        let mut all = Vec::new();
        let mut add = |name, values: Vec<f64>| all.push(Component { name, values });
        let wide = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let mut d = Vec::new();
        for (i, part) in o.parts.iter().enumerate() {
            let v = values(&part.d);
            match take && i == 0 && !self.sample.whole {
                true => d.extend(self.sample.indices(self.shape.cols).map(|i| v[i])),
                false => d.extend(v),
            }
        }
        add("d", d);
        for part in &o.parts {
            if let Data::Quantized(q) = &part.d {
                add("scale_inv", wide(q.scale_inv()));
            }
            // amax of a sample is not that of the whole.
            if let Some(a) = part.amax.filter(|_| self.sample.whole) {
                add("amax", vec![f64::from(a)]);
            }
            if let Some(t) = &part.transpose {
                add("transpose", t.codes().iter().map(|c| f64::from(*c)).collect());
                add("transpose.scale_inv", wide(t.scale_inv()));
            }
        }
        for (name, v) in [("mean", &o.mean), ("rsigma", &o.rsigma)] {
            if let Some(v) = v {
                add(name, wide(v));
            }
        }
        if let Some(t) = &o.dbias {
            add("dbias", wide(t.data()));
        }
        all
    }

    /// The step of the output at a value of sampled element `n`.
    fn spacing(&self, n: usize, x: f64) -> f64 {
        let (part, i) = self.places[n];
        let step = self.evidence.judged[part].bound.out().spacing(i, x);
        if step.is_finite() { step } else { 0.0 }
    }

    /// Whether the right result is what was written, to rounding.
    pub fn clean_fit(&self) -> Fit {
        self.compare(&self.actual, &self.clean, &self.radius, false)
    }

    /// Whether nobody could tell which of two was written: equal to rounding.
    pub fn alike(&self, a: &Prediction, b: &Prediction) -> bool {
        same(a, b) || self.compare(a, b, &self.radius, false).is_rounding()
    }

    /// How well these faults explain what was written, and what they would have written. `None`: one does not apply, or changes
    /// nothing here. `fitted` says that a number in their settings was taken from the result, so that a rounding may fall the other way.
    pub fn fit(&self, faults: &[Set], fitted: bool) -> Option<(Fit, Prediction)> {
        let places = faults.iter().any(|(f, _)| matches!(f.how, How::Places(_)));
        let predicted = match places && !self.sample.whole {
            true if faults.len() == 1 => self.moved(faults[0])?,
            true => self.written_elsewhere(faults).ok()??,
            false => self.components(&self.written(faults).ok()??, false),
        };
        if same(&predicted, &self.clean) {
            return None;
        }
        let radius = match self.evidence.job.op.is_product() && faults.iter().any(|(f, _)| f.how.is_read()) {
            // The bound grows with what is summed.
            true => {
                self.magnitude(&read(self.evidence.job, faults)?).ok()?.iter().map(|m| m * self.relative * self.tight).collect()
            }
            false => self.radius.clone(),
        };
        let fit = self.compare(&self.actual, &predicted, &self.joined_radius(faults, radius), fitted);
        Some((fit, predicted))
    }

    /// Partial sums kept in a narrow type may each fall the other way; they are as large as the result, or as sums of its terms at random
    /// signs get.
    fn joined_radius(&self, faults: &[Set], mut radius: Vec<f64>) -> Vec<f64> {
        let squares = || self.sums_of(self.evidence.job, |x| x * x).unwrap_or_default();
        for (fault, _) in faults {
            if let How::Sums { ulp, .. } = fault.how
                && ulp > 0.0
                && self.evidence.model.is_none()
            {
                let partial = self.partial.get_or_init(|| squares().into_iter().map(f64::sqrt).collect());
                for (i, (r, d)) in radius.iter_mut().zip(&self.clean[0].values).enumerate() {
                    *r = 2.0 * *r + ulp * d.abs().max(partial.get(i).map_or(0.0, |p| 2.0 * p));
                }
            }
        }
        radius
    }

    /// A result whose elements are moved, from the right values of all of it.
    fn moved(&self, (fault, setting): Set) -> Option<Prediction> {
        let How::Places(places) = fault.how else { return None };
        let moves = places(self.evidence.job, self.shape, setting)?;
        let j = &self.evidence.judged[0];
        let (cols, out) = (self.shape.cols, j.bound.out());
        let value = |i: usize| match moves(i / cols, i % cols) {
            Origin::From(r, c) => out.round(r * cols + c, j.bound.ideal()[r * cols + c]),
            Origin::Zero => 0.0,
            Origin::Unwritten => out.format().decode(canary(out.format())),
        };
        let mut all: Prediction = self.clean.iter().map(|c| Component { name: c.name, values: c.values.clone() }).collect();
        all[0].values = self.sample.indices(cols).map(value).collect();
        Some(all)
    }

    fn compare(&self, actual: &[Component], predicted: &[Component], radius: &[f64], fitted: bool) -> Fit {
        let mut fit = Fit { share: 0.0, outside: 0, misses: 0.0, allowed: 0.0, exact: true, bits: 0.0 };
        let (mut wrong, mut explained, mut elements, mut missed) = (0usize, 0.0, 0usize, 0usize);
        for (a, (p, clean)) in actual.iter().zip(predicted.iter().zip(&self.clean)) {
            if a.name != p.name || a.values.len() != p.values.len() {
                fit.outside += a.values.len().max(1);
                fit.exact = false;
                continue;
            }
            let main = a.name == "d";
            let signs = main && self.bits_known();
            // Beside the result: exact, to f32 rounding where the result is not.
            let loose = radius.iter().any(|r| *r > 0.0);
            let tolerance = |i: usize| match main {
                true => (radius[i], self.spacing(i, p.values[i]).max(self.spacing(i, a.values[i]))),
                false if loose || fitted => (0.0, 1e-5 * p.values[i].abs()),
                false => (0.0, 0.0),
            };
            // A result that is smaller by far errs by as much less: what is right to within a bound that is wider than all of it is not explained.
            let small = if main { size(&p.values) / size(&clean.values) } else { 1.0 };
            let small = if small < TINY { small } else { 1.0 };
            // An arithmetic that is not known errs by itself: what is left of it tells nothing.
            let noise = if self.bits_tell() { 0.0 } else { NOISE / self.tight };
            let (mut before, mut after) = (0.0, 0.0);
            for i in 0..a.values.len() {
                let (x, y) = (a.values[i], p.values[i]);
                let (r, step) = tolerance(i);
                let r = if r.is_finite() { r * small } else { r };
                let unit = if r + step > 0.0 { r + step } else { 1e-6 * clean.values[i].abs().max(1e-30) };
                before += error(x, clean.values[i], unit, signs);
                after += error(x, y, unit, signs);
                let equal = error(x, y, unit, signs) == 0.0;
                let slack = if r > 0.0 || fitted || !main { step } else { 0.0 };
                let near = x == y || equal || r == f64::INFINITY || (x - y).abs() <= 2.0 * r + slack * (1.0 + 1e-9);
                fit.outside += usize::from(!near);
                fit.exact &= equal;
                if !equal {
                    let noise = if main { noise * r } else { 0.0 };
                    let steps = (x - y).abs() / if step > 0.0 { step.max(noise) } else { unit };
                    fit.bits += if steps.is_nan() { 40.0 } else { (1.0 + steps).log2().min(40.0) };
                }
                if main {
                    elements += 1;
                    // A number from the result is known to a few roundings.
                    missed += usize::from(!(equal || (fitted && (x - y).abs() <= 1e-5 * y.abs())));
                    let flips = if step > 0.0 && r.is_finite() { (4.0 * r / step).min(1.0) } else { 1.0 };
                    fit.allowed += if fitted { flips.max(0.02) } else { flips };
                }
            }
            if before > 0.0 {
                wrong += 1;
                explained += 1.0 - after / before;
            } else if after > 0.0 {
                wrong += 1;
            }
        }
        fit.share = if wrong > 0 { explained / wrong as f64 } else { 1.0 };
        let n = elements.max(1) as f64;
        fit.misses = missed as f64 / n;
        fit.allowed = fit.allowed / n + 2.0 / n + 0.002 * f64::from(u8::from(fit.allowed > 0.0));
        fit
    }

    /// Largest bound over magnitude: what theories in f64 are held to.
    pub fn relative(&self) -> f64 {
        if self.relative > 0.0 { self.relative * self.loose } else { 0.0 }
    }
    /// The bound of an element of the whole result that theories in f64 are held to.
    pub fn certain(&self, i: usize) -> f64 {
        self.evidence.judged[0].bound.certain()[i] * self.loose
    }
    /// Multiply-adds (of ops that are no products: elements) of one replay of the sample.
    pub fn work(&self) -> usize {
        let k = if self.evidence.job.op.is_product() { crate::assay::product::inner(self.evidence.job) } else { 16 };
        self.sample.rows.len() * self.sample.cols.len() * k
    }
    /// The part of [`Scene::certain`] that a replay may need.
    pub fn tight(&self) -> f64 {
        self.tight / self.loose
    }

    /// [`Scene::certain`] times this is the whole certain bound.
    pub fn whole(&self) -> f64 {
        1.0 / self.loose
    }

    /// Whether right elements have the bits of a device's unit: it is not one that was assumed of the device, of which the kernel is another.
    pub fn bits_tell(&self) -> bool {
        *self.bits_tell.get_or_init(|| {
            if self.tight == 1.0 {
                return true;
            }
            let Some(model) = self.evidence.model.and_then(|m| m.parts.first()).map(|p| values(&p.d)) else { return true };
            let actual = &self.evidence.judged[0].actual;
            let right = || self.wrong().iter().enumerate().filter(|(_, wrong)| !**wrong).map(|(at, _)| at);
            let same = right().filter(|at| model.get(*at) == actual.get(*at)).count();
            same >= LEAST_BITS && 64 * (right().count() - same) <= right().count()
        })
    }

    /// Which elements of the whole first part are wrong: outside the bound; where a model says the bits, also apart from them by more than
    /// another order of roundings makes.
    pub fn wrong(&self) -> &[bool] {
        self.wrong.get_or_init(|| self.find_wrong())
    }

    fn find_wrong(&self) -> Vec<bool> {
        let j = &self.evidence.judged[0];
        let out = j.bound.out();
        let model = self.evidence.model.and_then(|m| m.parts.first()).map(|p| values(&p.d));
        let near = |i: usize, d: f64| {
            let r = j.bound.certain()[i] * self.tight;
            let (low, high) = (out.round(i, d - r), out.round(i, d + r));
            low <= j.actual[i] && j.actual[i] <= high
        };
        let one = |i: usize| {
            let (x, d) = (j.actual[i], j.bound.ideal()[i]);
            if d.is_nan() || x.is_nan() {
                return d.is_nan() != x.is_nan();
            }
            match model.as_ref().filter(|_| self.tight < 1.0 || j.bound.certain()[i] == 0.0) {
                Some(m) => !(x == m[i] || near(i, d) || near(i, m[i])),
                None => !(x == out.round(i, d) || near(i, d)),
            }
        };
        parallel::numbers(j.actual.len(), one)
    }

    /// How well values predicted for the sampled elements of the first part fit; the rest is as a right kernel has it.
    pub fn fit_values(&self, d: Vec<f64>, fitted: bool) -> (Fit, Prediction) {
        let mut all: Prediction = self.clean.iter().map(|c| Component { name: c.name, values: c.values.clone() }).collect();
        if let Some(first) = all.first_mut() {
            first.values = d;
        }
        (self.compare(&self.actual, &all, &self.radius, fitted), all)
    }
    /// What a kernel that reads this job writes, of the sampled elements.
    pub fn replayed(&self, job: &Job) -> Option<Vec<f64>> {
        let part = subset::product(job, &self.sample)?;
        Some(values(&written(&part, &[]).ok()??.parts.first()?.d))
    }
    /// The right values of the sampled elements, as a right kernel of ours writes them.
    pub fn clean(&self) -> &[f64] {
        &self.clean[0].values
    }

    /// v of the right kernel, where it can be asked for: what gains are fitted on.
    pub fn unrounded(&self) -> Option<Vec<f64>> {
        let v = unrounded(self.evidence.job).ok()??.into_iter().next()?;
        Some(v.into_iter().map(f64::from).collect())
    }

    /// The wrong element that is farthest from right, by row and column of the first part.
    pub fn worst(&self) -> Option<(usize, usize)> {
        let (a, c) = (&self.actual[0].values, &self.clean[0].values);
        let n = self.sample.rows.len() * self.sample.cols.len();
        let signs = self.bits_known();
        let errors = (0..n.min(a.len())).map(|i| error(a[i], c[i], self.spacing(i, c[i]).max(1e-30), signs));
        let (i, e) = errors.enumerate().max_by(|x, y| x.1.total_cmp(&y.1))?;
        (e > 0.0).then(|| (self.sample.rows[i / self.sample.cols.len()], self.sample.cols[i % self.sample.cols.len()]))
    }

    /// Zeros of the other sign are wrong only where every bit is known.
    fn bits_known(&self) -> bool {
        self.evidence.model.is_some()
    }

    /// What was written and what is right of a vector beside the result.
    pub fn beside(&self, name: &str) -> Option<(&[f64], &[f64])> {
        let i = self.actual.iter().position(|c| c.name == name)?;
        Some((&self.actual[i].values, &self.clean.get(i)?.values))
    }
}

/// The root of the sum of squares of what is finite.
fn size(values: &[f64]) -> f64 {
    values.iter().filter(|v| v.is_finite()).map(|v| v * v).sum::<f64>().sqrt()
}

/// A squared error in units, capped; what is not a number where a number belongs counts in full, a zero of the other sign (where
/// `signs` count) as one unit.
fn error(a: f64, p: f64, unit: f64, signs: bool) -> f64 {
    if a == p {
        return f64::from(u8::from(signs && a.is_sign_negative() != p.is_sign_negative()));
    }
    if a.is_nan() && p.is_nan() {
        return 0.0;
    }
    let e = (a - p).abs() / unit;
    if e <= CAP { e * e } else { CAP * CAP }
}

fn same(a: &[Component], b: &[Component]) -> bool {
    let equal = |x: &f64, y: &f64| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.values.len() == b.values.len() && a.values.iter().zip(&b.values).all(|(x, y)| equal(x, y)))
}
