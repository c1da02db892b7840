//! The judgement of a case: three errors, one bound, one verdict, one sentence that says where and how much.

use super::digits::{allowed, apart};
use super::judged::bands;
use super::{Bound, Check, ErrorStats, Judged, Power, PowerInput, Scales, ZeroPoints};
use crate::quant::QTensor;
use crate::stage::timed;
use crate::tensor::Tensor;
use crate::{Error, Result};
use std::ops::Range;

/// What a case's outcome is called, in CSV, JSON and reports. In order: the later the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The combination is impossible; the reason is in the row.
    Skipped,
    /// Every element within its certain bound (and bit-exact where a model exists), and the data could have shown a fault.
    Pass,
    /// Nothing wrong seen, and nothing could have been: the data hide the op's faults.
    NoPower,
    /// Within the certain bound but outside the probable one: listed, does not fail the run.
    Suspect,
    /// A certain bound, a model's bits or an exact side output is violated: a bug.
    Fail,
    /// The kernel or the harness failed before a result could be judged.
    Error,
}

impl Verdict {
    /// As tables list them: what was judged, then what was not.
    pub const ALL: [Verdict; 6] =
        [Verdict::Pass, Verdict::Suspect, Verdict::Fail, Verdict::NoPower, Verdict::Error, Verdict::Skipped];

    /// A kernel that is wrong, or that gave no result.
    pub fn is_failure(self) -> bool {
        self >= Verdict::Fail
    }
    /// The name in words: without underscores.
    pub fn words(self) -> String {
        self.as_str().replace('_', " ")
    }
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Suspect => "suspect",
            Verdict::Fail => "fail",
            Verdict::NoPower => "no_power",
            Verdict::Error => "error",
            Verdict::Skipped => "skipped",
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Verdict {
    type Err = crate::Error;
    fn from_str(s: &str) -> crate::Result<Self> {
        let known = || Verdict::ALL.map(Verdict::as_str);
        Verdict::ALL.into_iter().find(|v| v.as_str() == s).ok_or_else(|| crate::Error::unknown("verdict", s, known()))
    }
}

/// Results that differ from the device model's bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mismatches {
    pub count: usize,
    /// Row-major index of the first, and the model's value there.
    pub first: Option<(usize, f64)>,
}

impl Mismatches {
    /// Elements of `actual` whose stored bits are not those of `model`, NaNs as a class. Errors when shapes or dtypes differ.
    pub fn of_tensors(model: &Tensor, actual: &Tensor) -> Result<Self> {
        let shape = |t: &Tensor| format!("{} {}×{}", t.dtype(), t.rows(), t.cols());
        if shape(model) != shape(actual) {
            return Err(Error::shape("result against the device model", shape(actual), shape(model)));
        }
        let (m, a) = (model.data(), actual.data());
        Ok(Self::of(m.len(), |i| m[i].to_bits() != a[i].to_bits() && !(m[i].is_nan() && a[i].is_nan()), |i| f64::from(m[i])))
    }

    /// Codes that are not those of `model`, NaN values as a class: a NaN scale makes every code of its block equal. Scales are judged
    /// as side outputs. Errors when shapes or formats differ.
    pub fn of_codes(model: &QTensor, actual: &QTensor) -> Result<Self> {
        let shape = |q: &QTensor| format!("{} {}×{}", q.format(), q.rows(), q.cols());
        if shape(model) != shape(actual) {
            return Err(Error::shape("codes against the device model", shape(actual), shape(model)));
        }
        let (m, a) = (model.codes(), actual.codes());
        let value = |q: &QTensor, i: usize| q.value(i / q.cols(), i % q.cols());
        let nan = |i: usize| value(model, i).is_nan() && value(actual, i).is_nan();
        Ok(Self::of(m.len(), |i| m[i] != a[i] && !nan(i), |i| value(model, i)))
    }

    fn of(n: usize, differs: impl Fn(usize) -> bool + Sync, value: impl Fn(usize) -> f64) -> Self {
        let band = |band: Range<usize>| {
            let mut differing = band.filter(|i| differs(*i));
            let first = differing.next();
            (usize::from(first.is_some()) + differing.count(), first)
        };
        let both = |a: (usize, Option<usize>), b: (usize, Option<usize>)| (a.0 + b.0, a.1.or(b.1));
        let (count, first) = bands(n, band).into_iter().fold((0, None), both);
        Self { count, first: first.map(|i| (i, value(i))) }
    }
}

/// Everything that is known of one case when it is judged.
#[derive(Clone, Copy, Debug)]
pub struct CaseEvidence<'a> {
    /// Columns of the result.
    pub cols: usize,
    /// f64 on the unquantized inputs; absent where only quantized operands exist.
    pub exact: Option<&'a [f64]>,
    /// The allowed kernel error about the unrounded ideal.
    pub bound: &'a Bound,
    /// The values of what the kernel wrote, in its own scale_inv.
    pub actual: &'a [f64],
    /// Against the device model, where there is one.
    pub mismatches: Option<Mismatches>,
    /// amax, scale_inv, dbias, transposed copies, norm statistics.
    pub checks: &'a [Check],
    /// Whether the output has only one correct code an element: casts, dequantize, or a device model.
    pub bit_exact: bool,
    /// Length of the sum, for products; groups along K with a scale of their own.
    pub k: Option<usize>,
    pub groups: usize,
    /// Scales and zero points whose faults this op can have.
    pub scales: &'a [Scales<'a>],
    pub zero_points: &'a [ZeroPoints<'a>],
}

/// A judged case.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// ideal − exact; absent without exact.
    pub quantization: Option<ErrorStats>,
    /// actual − ideal.
    pub kernel: ErrorStats,
    /// actual − exact; absent without exact.
    pub total: Option<ErrorStats>,
    pub mismatches: Option<usize>,
    /// Largest error over the certain, and the probable, bound: see [`Judged`].
    pub bound_ratio_certain: f64,
    pub bound_ratio_probable: f64,
    /// Row and column of the largest ratio.
    pub worst: Option<(usize, usize)>,
    pub judged: Judged,
    pub power: Power,
    pub verdict: Verdict,
    /// Where, what was found, what was expected; empty for a plain pass.
    pub reason: String,
}

/// How large a result's errors are beside those of right sums of the same data, where no bits decide.
#[derive(Clone, Debug)]
pub struct ErrorSize {
    /// In words.
    pub words: String,
    /// Why they are larger than those of right sums, where they are.
    pub larger: Option<String>,
    /// A gain of the whole result from which they would be.
    pub gain: f64,
}

impl Comparison {
    /// What is inside its certain bound becomes suspect when its errors are larger than any right sum makes them. Where the bound is too wide to
    /// have power, their size has it.
    pub fn told_by(&mut self, size: &ErrorSize) {
        let inside = matches!(self.verdict, Verdict::Pass | Verdict::Suspect | Verdict::NoPower);
        match &size.larger {
            Some(why) if inside => {
                let already = self.verdict == Verdict::Suspect && !self.reason.is_empty();
                self.reason = if already { format!("{why}; {}", self.reason) } else { why.clone() };
                self.verdict = Verdict::Suspect;
            }
            None if self.power.no_power.as_ref().is_some_and(|np| np.wide)
                && self.verdict == Verdict::NoPower
                && size.gain < 2.0f64.min(self.power.scale_contrast) =>
            {
                let gain = size.gain;
                self.verdict = Verdict::Pass;
                self.reason = format!(
                    "the bound is wider than the result, so the size of the errors decides: right sums make errors of this size, and a gain of ×{gain:.4} would be caught"
                );
            }
            _ => {}
        }
    }
}

/// Judges a case.
///
/// | verdict | when |
/// |---|---|
/// | fail | an element outside its certain bound, a bit that is not the model's, or a side output that is wrong |
/// | suspect | else, an element or a side output outside its probable bound |
/// | no_power | else, the data hide the op's faults |
/// | pass | else |
///
/// In the errors, `ideal` is the unrounded f64 result of a high-precision output and the value of the correctly rounded code of
/// a quantized one. Errors when lengths differ.
pub fn judge(e: &CaseEvidence) -> Result<Comparison> {
    let out = e.bound.out();
    let judged = timed("judged", || e.bound.judge(e.actual))?;
    // Codes that are all the nearest are the rounded ideal: what holds of them holds of it.
    let nearest = out.is_quantized() && timed("judged", || e.bound.differing(e.actual))? == 0;
    let rounded: Vec<f64>;
    let ideal = match out.is_quantized() {
        true if nearest => e.actual,
        true => {
            rounded = timed("judged", || e.bound.rounded_ideal());
            &rounded[..]
        }
        false => e.bound.ideal(),
    };
    let against_exact = |what: &[f64]| e.exact.map(|exact| ErrorStats::between(exact, what, out)).transpose();
    let (quantization, total) = timed("statistics", || {
        let total = against_exact(e.actual)?;
        Ok::<_, Error>((if nearest { total.clone() } else { against_exact(ideal)? }, total))
    })?;
    let kernel = timed("statistics", || ErrorStats::between(ideal, e.actual, out))?;
    let input = PowerInput {
        cols: e.cols,
        bound: e.bound,
        actual: e.actual,
        bit_exact: e.bit_exact,
        k: e.k,
        groups: e.groups,
        scales: e.scales,
        zero_points: e.zero_points,
    };
    let power = timed("power", || Power::of(&input));
    let (verdict, reason) = decide(e, &judged, &power);
    Ok(Comparison {
        quantization,
        kernel,
        total,
        mismatches: e.mismatches.map(|m| m.count),
        bound_ratio_certain: judged.ratio_certain,
        bound_ratio_probable: judged.ratio_probable,
        worst: judged.worst.map(|i| place(e, i)),
        judged,
        power,
        verdict,
        reason,
    })
}

fn place(e: &CaseEvidence, index: usize) -> (usize, usize) {
    (index / e.cols.max(1), index % e.cols.max(1))
}

fn decide(e: &CaseEvidence, judged: &Judged, power: &Power) -> (Verdict, String) {
    let n = e.actual.len();
    let element = |i: usize, interval: (f64, f64), may: &str| {
        let (row, col) = place(e, i);
        let [found, right] = allowed(e.actual[i], interval);
        format!("({row}, {col}) got {found}, {may} {right}")
    };
    let side = |c: &Check, outside: usize| {
        let at = c.first.map_or(String::new(), |(i, found, interval)| {
            let [found, right] = allowed(found, interval);
            format!("[{i}] got {found}, may be {right}")
        });
        let count = if c.count > 1 { format!("; {outside} of {} wrong", c.count) } else { String::new() };
        format!("{}{at}{count}", c.name)
    };
    let mut failures = Vec::new();
    let outside = judged.first_violation.map(|i| (i, element(i, e.bound.allowed(i), "may be")));
    let bits = e.mismatches.and_then(|m| Some((m.count, m.first?)));
    match (outside, bits) {
        (Some((i, text)), Some((count, (at, model)))) if i == at => {
            let [_, model] = apart([e.actual[i], model]);
            failures.push(format!(
                "{text}, the device model says {model}; {} of {n} elements outside, {count} with other bits",
                judged.violations
            ));
        }
        (outside, bits) => {
            if let Some((_, text)) = outside {
                failures.push(format!("{text}; {} of {n} elements outside", judged.violations));
            }
            if let Some((count, (at, model))) = bits {
                let (row, col) = place(e, at);
                let [found, model] = apart([e.actual.get(at).copied().unwrap_or(f64::NAN), model]);
                failures.push(format!(
                    "({row}, {col}) got {found}, the device model says {model}; {count} of {n} elements with other bits"
                ));
            }
        }
    }
    let mut wrong = e.checks.iter().filter(|c| !c.passes()).peekable();
    while let Some(check) = wrong.next() {
        let text = side(check, check.violations);
        // An output that is outside its interval and has not the model's bits is wrong once.
        let model = wrong.next_if(|c| {
            let (Some((i, x, interval)), Some((j, y, (low, high)))) = (check.first, c.first) else { return false };
            c.name == check.name && i == j && x == y && interval.0 < interval.1 && low == high
        });
        let says = model.and_then(|c| c.first).map_or(String::new(), |(_, found, (model, _))| {
            let [_, model] = apart([found, model]);
            format!(", the device model says {model}")
        });
        failures.push(text + &says);
    }
    if !failures.is_empty() {
        return (Verdict::Fail, failures.join("; "));
    }
    let mut doubts = Vec::new();
    if let Some(i) = judged.first_improbable {
        let text = element(i, e.bound.likely(i), "is probably");
        doubts.push(format!(
            "{text}; {} of {n} elements outside the probable bound (a correct kernel does this in one of {:.0e} tensors)",
            judged.improbable,
            1.0 / e.bound.delta()
        ));
    }
    doubts.extend(e.checks.iter().filter(|c| c.improbable > 0).map(|c| side(c, c.improbable)));
    if !doubts.is_empty() {
        return (Verdict::Suspect, doubts.join("; "));
    }
    settled(judged, power)
}

/// Where nothing is wrong and nothing in doubt.
pub(super) fn settled(judged: &Judged, power: &Power) -> (Verdict, String) {
    match &power.no_power {
        Some(np) => (Verdict::NoPower, format!("{}; would need: {}", np.reason, np.remedy)),
        None if judged.unjudged > 0 => (
            Verdict::Pass,
            format!(
                "{} elements not judged: an intermediate may overflow (f32; a 16-bit accumulator or weight)",
                judged.unjudged
            ),
        ),
        None => (Verdict::Pass, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::NoPower;

    #[test]
    fn other_bits_are_counted_and_the_first_is_told() {
        let n = 40_000;
        let model = Tensor::new(crate::Format::F32, 100, 400, (0..n).map(|i| i as f32).collect()).unwrap();
        let with = |change: &dyn Fn(&mut Vec<f32>)| {
            let mut data = model.data().to_vec();
            change(&mut data);
            let m = Mismatches::of_tensors(&model, &Tensor::new(crate::Format::F32, 100, 400, data).unwrap()).unwrap();
            (m.count, m.first)
        };
        assert_eq!(with(&|_| ()), (0, None));
        // Of two bands.
        let two = with(&|d| (d[39_000], d[20_000], d[20_001]) = (0.5, -1.0, f32::NAN));
        assert_eq!(two, (3, Some((20_000, 20_000.0))));
        assert_eq!(with(&|d| d[0] = -0.0), (1, Some((0, 0.0))));
        let bf16 = Tensor::new(crate::Format::Bf16, 1, 2, vec![1.0, 1.0]).unwrap();
        let f32s = Tensor::new(crate::Format::F32, 1, 2, vec![1.0, 1.0]).unwrap();
        assert!(Mismatches::of_tensors(&bf16, &f32s).is_err());
    }

    /// One element that is right, with what is beside it.
    fn one_with(checks: &[Check]) -> Comparison {
        let bound = Bound::from_radius(vec![1.0], vec![0.0], &crate::compare::OutFormat::high(crate::Format::F32)).unwrap();
        let evidence = CaseEvidence {
            cols: 1,
            exact: None,
            bound: &bound,
            actual: &[1.0],
            mismatches: None,
            checks,
            bit_exact: true,
            k: None,
            groups: 1,
            scales: &[],
            zero_points: &[],
        };
        judge(&evidence).unwrap()
    }

    fn compared(verdict: Verdict, reason: &str, wide: bool) -> Comparison {
        let mut c = one_with(&[]);
        assert_eq!((c.verdict, c.worst, c.quantization.is_none()), (Verdict::Pass, Some((0, 0)), true));
        (c.verdict, c.reason) = (verdict, reason.into());
        c.power.no_power = Some(NoPower { reason: "a".into(), remedy: "b".into(), wide });
        c
    }

    /// Errors that are too large make a doubt of what is inside; errors of the right size pass what only the bound could not judge.
    #[test]
    fn the_size_of_errors_decides_where_the_bound_does_not() {
        let told = |verdict: Verdict, reason: &str, wide: bool, larger: Option<&str>, gain: f64| {
            let mut c = compared(verdict, reason, wide);
            c.power.scale_contrast = 1.5;
            c.told_by(&ErrorSize { words: String::new(), larger: larger.map(Into::into), gain });
            (c.verdict, c.reason)
        };
        let large = |verdict, reason| told(verdict, reason, false, Some("large"), 1.0);
        for verdict in [Verdict::Pass, Verdict::NoPower] {
            assert_eq!(large(verdict, "x"), (Verdict::Suspect, "large".into()));
        }
        assert_eq!(large(Verdict::Suspect, "x"), (Verdict::Suspect, "large; x".into()));
        assert_eq!(large(Verdict::Suspect, ""), (Verdict::Suspect, "large".into()));
        assert_eq!(large(Verdict::Fail, "x"), (Verdict::Fail, "x".into()));
        let right = |verdict, wide, gain| told(verdict, "x", wide, None, gain).0;
        assert_eq!(
            [1.25, 1.5, 3.0].map(|g| right(Verdict::NoPower, true, g)),
            [Verdict::Pass, Verdict::NoPower, Verdict::NoPower]
        );
        assert_eq!([right(Verdict::NoPower, false, 1.25), right(Verdict::Fail, true, 1.25)], [Verdict::NoPower, Verdict::Fail]);
        assert!(told(Verdict::NoPower, "x", true, None, 1.25).1.contains("a gain of ×1.2500 would be caught"));
        // A gain of two is too much whatever the scales are.
        let mut c = compared(Verdict::NoPower, "", true);
        c.power.scale_contrast = f64::INFINITY;
        c.told_by(&ErrorSize { words: String::new(), larger: None, gain: 2.0 });
        assert_eq!(c.verdict, Verdict::NoPower);
    }

    #[test]
    fn verdicts_are_told_in_words_and_two_are_failures() {
        assert_eq!((Verdict::NoPower.words(), format!("{:>5}|", Verdict::Pass)), ("no power".into(), " pass|".into()));
        let failures: Vec<Verdict> = Verdict::ALL.into_iter().filter(|v| v.is_failure()).collect();
        assert_eq!(failures, [Verdict::Fail, Verdict::Error]);
    }

    /// An output outside its interval and its model's bits are one failure; those of two outputs are two, though they hold the same number.
    #[test]
    fn two_outputs_that_hold_the_same_wrong_number_are_both_told() {
        let check = |name: &'static str, allowed: (f64, f64)| Check {
            name,
            count: 1,
            violations: 1,
            improbable: 0,
            first: Some((0, 5.0, allowed)),
            ratio: f64::INFINITY,
        };
        let told = |second: &'static str| one_with(&[check("amax", (1.0, 2.0)), check(second, (3.0, 3.0))]).reason;
        let (one, two) = (told("amax"), told("dbias"));
        assert!(one.contains("the device model says 3") && !one.contains("; "), "{one}");
        assert!(!two.contains("the device model") && two.contains("; dbias[0] got 5"), "{two}");
    }
}
