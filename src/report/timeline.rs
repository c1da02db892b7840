//! A scenario over its steps: scales, errors, and the events that move state.

use super::plot::{Series, at, draw, font, ink, palette, say, widest};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// What a timeline shows.
pub struct Timeline {
    pub steps: usize,
    /// Title and lines of each panel, from above: values on a logarithmic axis, zero at the bottom, what is not finite at the top. The
    /// first line of a panel is the widest, so that lines on top of each other are all seen.
    pub panels: Vec<(&'static str, Vec<Series>)>,
    /// Name of an event and the steps at which it happens.
    pub events: Vec<(String, Vec<usize>)>,
}

const WIDTH: i32 = 620;
const PANEL: i32 = 150;
const LEFT: i32 = 74;
/// More steps than this are drawn without dots.
const LONG: usize = 40;

/// Decades of a panel's axis. Of a long one, the largest and smallest hundredth are left out, and drawn at its ends: the first step's
/// scale of 1 would flatten all others.
fn span(series: &[Series], long: bool) -> (f64, f64) {
    let mut logs: Vec<f64> = series.iter().flat_map(|s| &s.points).map(|p| p.1.log10()).filter(|v| v.is_finite()).collect();
    logs.sort_by(f64::total_cmp);
    let out = if long { logs.len() / 100 } else { 0 };
    match (logs.get(out), logs.get(logs.len().wrapping_sub(1 + out))) {
        (Some(lo), Some(hi)) => (lo.floor(), hi.ceil().max(lo.floor() + 1.0)),
        _ => (-1.0, 0.0),
    }
}

/// Draws it.
pub fn timeline(t: &Timeline) -> String {
    let names: Vec<&str> = t.panels.iter().flat_map(|p| &p.1).map(|s| s.name.as_str()).collect();
    let below = t.panels.len() as i32 * (PANEL + 14) + 16;
    let events = t.events.iter().map(|e| e.0.as_str());
    let right = LEFT + WIDTH;
    let size = (right + 40 + widest(names.iter().copied().chain(events), 12), below + 42 + 16 * t.events.len() as i32);
    draw(size, |root| {
        let x = |step: f64| LEFT + 6 + (f64::from(WIDTH - 12) * step / (t.steps.max(2) - 1) as f64).round() as i32;
        let mut color = 0;
        for (panel, (title, series)) in t.panels.iter().enumerate() {
            let top = 12 + panel as i32 * (PANEL + 14);
            let (lo, hi) = span(series, t.steps > LONG);
            let y = |v: f64| top + PANEL - (f64::from(PANEL) * ((v - lo) / (hi - lo)).clamp(0.0, 1.0)).round() as i32;
            let every = (((hi - lo) / 5.0).ceil() as i64).max(1);
            for decade in (lo as i64..=hi as i64).step_by(every as usize) {
                let at_y = y(decade as f64);
                root.draw(&PathElement::new(vec![(LEFT, at_y), (right, at_y)], ink(0.14)))?;
                let label =
                    if (-2..4).contains(&decade) { format!("{}", 10f64.powi(decade as i32)) } else { format!("1e{decade}") };
                say(root, &label, (LEFT - 6, at_y), font(11).pos(at(HPos::Right, VPos::Center)))?;
            }
            let side = font(12).transform(FontTransform::Rotate270).pos(at(HPos::Center, VPos::Top));
            say(root, title, (4, top + PANEL / 2), side)?;
            for (i, s) in series.iter().enumerate() {
                let c = palette(color);
                color += 1;
                // What is not finite is at the top, what is zero at the bottom.
                let height = |v: f64| {
                    if v == 0.0 {
                        y(lo)
                    } else if v.is_finite() {
                        y(v.log10())
                    } else {
                        y(hi)
                    }
                };
                let points: Vec<(i32, i32)> = s.points.iter().map(|p| (x(p.0), height(p.1))).collect();
                let width = 2 + 2 * (series.len() - 1 - i) as u32;
                root.draw(&PathElement::new(points.clone(), c.stroke_width(width)))?;
                if t.steps <= LONG {
                    for p in points {
                        root.draw(&Circle::new(p, 2 + width as i32 / 2, c.filled()))?;
                    }
                }
                let line = top + 8 + 18 * i as i32;
                root.draw(&Circle::new((right + 14, line), 5, c.filled()))?;
                say(root, &s.name, (right + 26, line), font(12).pos(at(HPos::Left, VPos::Center)))?;
            }
        }
        let top = below;
        for (i, (name, steps)) in t.events.iter().enumerate() {
            let y = top + 16 * i as i32;
            say(root, name, (right + 26, y), font(12).pos(at(HPos::Left, VPos::Center)))?;
            root.draw(&PathElement::new(vec![(LEFT, y), (right, y)], ink(0.1)))?;
            for step in steps {
                root.draw(&Rectangle::new([(x(*step as f64) - 1, y - 5), (x(*step as f64) + 1, y + 5)], ink(0.75).filled()))?;
            }
        }
        let bottom = top + 16 * t.events.len() as i32;
        let every = [1, 2, 5, 10, 20, 50, 100].into_iter().find(|e| t.steps / e <= 14).unwrap_or(500);
        for step in (0..t.steps).step_by(every) {
            say(root, &step.to_string(), (x(step as f64), bottom), font(11).pos(at(HPos::Center, VPos::Top)))?;
        }
        say(root, "step", (right + 26, bottom + 6), font(12).pos(at(HPos::Left, VPos::Center)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_flatten_a_long_line() {
        let points = (0..200).map(|i| (f64::from(i), if i == 0 { 1.0 } else { 2e-4 })).collect();
        let line = [Series::new("scale_inv", points)];
        assert_eq!(span(&line, true), (-4.0, -3.0));
        assert_eq!(span(&line, false), (-4.0, 0.0));
        assert_eq!(span(&[], true), (-1.0, 0.0));
        let zeros = [Series::new("r", vec![(0.0, 0.0), (1.0, f64::INFINITY)])];
        assert_eq!(span(&zeros, false), (-1.0, 0.0));
    }
}
