//! The settings of a fault that are worth trying on a result: all it can have, or the gain, place or step that the result shows.

use super::inject::Set;
use super::predict::Scene;
use super::{Class, Fault, On, Setting, edit, place};
use crate::job::OutSpec;
use crate::op::Biases;

/// A setting to try, and whether a number in it was taken from the result.
pub type Trial = (Setting, bool);

/// Gains fitted once for a scene.
pub struct Gains {
    /// Of what is computed before a bias.
    result: Option<f64>,
    /// Of all of it.
    whole: Option<f64>,
    /// Whether every element allows the one of all of it; else it is that of most.
    of_all: bool,
}

impl Gains {
    /// The one gain of v, if there is one, that turns every right value into what was written: the middle of the intersection of
    /// what each element allows; else the median.
    pub fn of(scene: &Scene) -> Self {
        let job = scene.evidence.job;
        let j = scene.evidence.judged.first();
        let bias = j.map(|j| Biases::of(job, (j.actual.len() / j.cols.max(1), j.cols.max(1))));
        let whole = fitted(scene, None);
        Self {
            result: fitted(scene, bias.as_ref()).map(|x| x.0),
            whole: whole.map(|x| x.0),
            of_all: whole.is_some_and(|x| x.1),
        }
    }

    /// Whether this is a constant that some elements do not allow: one of rows or of columns, say.
    pub fn is_of_some(&self, (fault, setting): Set) -> bool {
        !self.of_all && fault.variant == "out.gain" && Some(setting.by) == self.whole
    }
}

/// The gain of what stands beside `bias`, and whether every element allows it.
fn fitted(scene: &Scene, bias: Option<&Biases>) -> Option<(f64, bool)> {
    let j = scene.evidence.judged.first()?;
    let (mut low, mut high, mut all) = (f64::NEG_INFINITY, f64::INFINITY, Vec::new());
    for (i, (a, d)) in j.actual.iter().zip(j.bound.ideal()).enumerate() {
        let b = bias.map_or(0.0, |b| b.at(i / j.cols.max(1), i % j.cols.max(1)));
        let (v, r) = (d - b, j.bound.certain()[i]);
        if !(v.is_finite() && a.is_finite() && r.is_finite())
            || v.abs() <= 8.0 * r
            || v == 0.0
            || *a == 0.0
            || j.bound.out().is_saturated(i, *a)
        {
            continue;
        }
        let (from, to) = j.bound.out().cell(i, *a);
        let ends = [(from - b - 2.0 * r) / v, (to - b + 2.0 * r) / v];
        let (from, to) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        if from.is_nan() || to.is_nan() {
            continue;
        }
        (low, high) = (low.max(from), high.min(to));
        all.push((a - b) / v);
    }
    if all.len() < 2 {
        return None;
    }
    if low <= high && low.is_finite() && high.is_finite() {
        return Some((0.5 * (low + high), true));
    }
    let middle = all.len() / 2;
    Some((*all.select_nth_unstable_by(middle, f64::total_cmp).1, false))
}

/// Every setting of `fault` that this scene suggests.
pub fn of(fault: &Fault, scene: &Scene, gains: &Gains) -> Vec<Trial> {
    let job = scene.evidence.job;
    if place::is_placed(fault) {
        return scene.worst().map(|(i, j)| (place::holding(fault, scene.shape, i, j), false)).into_iter().collect();
    }
    let possible = (fault.settings)(job);
    let fit = |by: Option<f64>| by.filter(|g| g.is_finite() && (g - 1.0).abs() > 1e-6 && *g != 0.0);
    let shown = |by: Option<f64>| fit(by).map(|by| (Setting { at: usize::MAX, by }, true));
    if possible.iter().any(|s| s.by != 1.0) && fault.class != Class::StaleState {
        // Any constant: the one that the result shows. What is far from 1 is no constant that is nearly 1.
        let near = |by: &f64| fault.variant != "out.gain" || (0.8..1.25).contains(by);
        return shown(gains.whole.filter(near)).into_iter().collect();
    }
    if fault.class != Class::StaleState || possible.iter().all(|s| s.by == 1.0) {
        // Scales chosen by another rule: in which order a kernel divides is not known, so a rounding may fall the other way.
        let loose = fault.variant.starts_with("recipe.");
        return possible.into_iter().map(|s| (s, loose)).collect();
    }
    // A stale scale: the history's, else whatever gain shows.
    let history = scene.evidence.history;
    let side = |s, past: &[f32]| -> Vec<f64> {
        let now = edit::quantized(job, s).map(|q| q.scale_inv());
        match now {
            Some([now]) => past.iter().map(|p| f64::from(*p) / f64::from(*now)).collect(),
            _ => Vec::new(),
        }
    };
    let now = match &job.out {
        OutSpec::Scaled { scale, .. } => scale[0].map(f64::from),
        _ => None,
    };
    let ratio = |name: &str| {
        let (actual, right) = scene.beside(name)?;
        Some(actual.first()? / right.first()?)
    };
    let (past, found): (Vec<f64>, Option<f64>) = match (fault.on, fault.variant) {
        (On::A, _) => (history.map_or(Vec::new(), |h| side(edit::Which::A, &h.a)), gains.result),
        (On::B, _) => (history.map_or(Vec::new(), |h| side(edit::Which::B, &h.b)), gains.result),
        (_, "out.scale") => {
            let past = history.zip(now).map_or(Vec::new(), |(h, now)| h.out.iter().map(|p| f64::from(*p) / now).collect());
            (past, gains.result)
        }
        (_, "out.scale_inv") => (Vec::new(), ratio("scale_inv")),
        _ => (Vec::new(), ratio("amax")),
    };
    let steps = past.into_iter().enumerate().map(|(at, by)| (Setting { at, by }, false));
    steps.chain(shown(found)).collect()
}

/// What a setting says, in words; empty for a fault without parameters.
pub fn words(fault: &Fault, scene: &Scene, setting: Setting) -> String {
    let shape = scene.shape;
    if place::is_placed(fault) {
        return match fault.class {
            Class::Race => format!("at the tile that holds {:?}", scene.worst().unwrap_or((0, 0))),
            _ if fault.variant == "row" => format!("row {}", setting.at % shape.rows.max(1)),
            _ => format!("column {}", setting.at % shape.cols.max(1)),
        };
    }
    if setting.by != 1.0 && fault.class != Class::StaleState {
        return format!("gain {:.7}", setting.by);
    }
    if setting.by != 1.0 {
        let step = match setting.at {
            usize::MAX => "no known step of the history has it".to_string(),
            at => format!("the scale of {} step(s) ago", at + 1),
        };
        return format!("gain {:.7}: {step}", setting.by);
    }
    if fault.variant.starts_with("splits.") {
        return format!("{} parts", setting.at);
    }
    if let Some(step) = dropped(fault.variant) {
        return super::k_parts::words(crate::assay::product::inner(scene.evidence.job), step);
    }
    if (fault.settings)(scene.evidence.job).len() > 1 { format!("slice {}", setting.at) } else { String::new() }
}

/// The step of a loop that leaves out what fills none.
pub fn dropped(variant: &str) -> Option<usize> {
    variant.strip_prefix("dropped.")?.parse().ok()
}
