//! Two stored numbers that are wrong at once: the whole result is times one factor, which is the product of two that are stored.

use super::system::{System, Theory};
use crate::fault::Class;
use crate::job::OutSpec;
use std::sync::Arc;

/// One stored number that is wrong: class, variant, words, factor, and whether it multiplies the bias too.
type Factor = (Class, String, String, f64, bool);

/// Two stored numbers that are wrong at once, each one number for the whole result: of an earlier step, never applied, applied twice.
pub fn theories(s: &System) -> Vec<Theory> {
    let mut slots: Vec<Vec<Factor>> = Vec::new();
    for g in [("a", &s.a), ("b", &s.b)] {
        let (name, g) = g;
        let Some(own) = g.scales().first().map(|x| f64::from(*x)).filter(|x| g.scales().len() == 1 && *x > 0.0) else {
            continue;
        };
        let mut of: Vec<Factor> = Vec::new();
        for (step, past) in g.history.iter().enumerate() {
            let plural = if step == 0 { "" } else { "s" };
            let words = format!("the scale of {name} of {} step{plural} ago, {past:e}, is used", step + 1);
            of.push((Class::StaleState, format!("{name}.scale_inv"), words, f64::from(*past) / own, false));
        }
        let the = format!("the scale of {name} is");
        of.push((Class::ScaleOmitted, format!("{name}.omitted"), format!("{the} never applied"), 1.0 / own, false));
        of.push((Class::ScaleDoubledInverted, format!("{name}.twice"), format!("{the} applied twice"), own, false));
        slots.push(of);
    }
    if let OutSpec::Scaled { scale, .. } = &s.scene.evidence.job.out
        && let Some(scale) = scale[0].map(f64::from).filter(|x| *x != 1.0)
    {
        let of = |class: Class, word: &str, by: f64| -> Factor {
            (class, "out.scale".into(), format!("the output's scale, {scale}, is {word}"), by, true)
        };
        slots.push(vec![
            of(Class::ScaleOmitted, "never applied", 1.0 / scale),
            of(Class::ScaleDoubledInverted, "applied twice", scale),
            of(Class::ScaleDoubledInverted, "applied as its reciprocal", 1.0 / (scale * scale)),
        ]);
    }
    let mut all = Vec::new();
    for (n, first) in slots.iter().enumerate() {
        for (x, y) in slots[n + 1..].iter().flatten().flat_map(|y| first.iter().map(move |x| (x, y))) {
            let variant = format!("{} + {}:{}", x.1, y.0.name(), y.1);
            let operand = if x.1.starts_with('a') { "a" } else { "b" };
            let mut t = Theory::new(x.0, operand, variant, format!("{}; and {}", x.2, y.2)).bits(12.0);
            let inner = if x.4 { 1.0 } else { x.3 } * if y.4 { 1.0 } else { y.3 };
            let outer = if x.4 { x.3 } else { 1.0 } * if y.4 { y.3 } else { 1.0 };
            let bias = s.bias.clone();
            t.finish = Some(Arc::new(move |i, j, v| (v * inner + bias.at(i, j)) * outer));
            all.push(t);
        }
    }
    all
}
