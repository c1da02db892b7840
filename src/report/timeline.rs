//! A scenario over its steps: scales, errors, and the events that move state.

use super::plot::{Drawn, Room, Root, Series, at, draw, font, ink, palette, say, widest};
use super::slim;
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

/// Where the lines of a panel are: from the first to the last step, and from above to below.
struct Area {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl Timeline {
    /// x of a step.
    fn x(&self, a: &Area, step: f64) -> i32 {
        let wide = f64::from(a.right - a.left - 12);
        a.left + 6 + (wide * step / (self.steps.max(2) - 1) as f64).round() as i32
    }

    /// The decades and the lines of a panel; its first line has this colour.
    fn panel(&self, root: &Root, a: &Area, series: &[Series], color: usize) -> Drawn {
        let (lo, hi) = span(series, self.steps > LONG);
        let tall = f64::from(a.bottom - a.top);
        let y = |v: f64| a.bottom - (tall * ((v - lo) / (hi - lo)).clamp(0.0, 1.0)).round() as i32;
        let every = (((hi - lo) / 5.0).ceil() as i64).max(1);
        for decade in (lo as i64..=hi as i64).step_by(every as usize) {
            let at_y = y(decade as f64);
            root.draw(&PathElement::new(vec![(a.left, at_y), (a.right, at_y)], ink(0.14)))?;
            let label =
                if (-2..4).contains(&decade) { format!("{}", 10f64.powi(decade as i32)) } else { format!("1e{decade}") };
            say(root, &label, (a.left - 6, at_y), font(11).pos(at(HPos::Right, VPos::Center)))?;
        }
        for (i, s) in series.iter().enumerate() {
            let c = palette(color + i);
            // What is not finite is at the top, what is zero at the bottom.
            let height = |v: f64| match v {
                0.0 => y(lo),
                v if v.is_finite() => y(v.log10()),
                _ => y(hi),
            };
            let points: Vec<(i32, i32)> = s.points.iter().map(|p| (self.x(a, p.0), height(p.1))).collect();
            let width = 2 + 2 * (series.len() - 1 - i) as u32;
            root.draw(&PathElement::new(points.clone(), c.stroke_width(width)))?;
            if self.steps <= LONG {
                for p in points {
                    root.draw(&Circle::new(p, 2 + width as i32 / 2, c.filled()))?;
                }
            }
        }
        Ok(())
    }

    /// The steps at which an event happens, on a line at `y`.
    fn event(&self, root: &Root, a: &Area, steps: &[usize], y: i32) -> Drawn {
        root.draw(&PathElement::new(vec![(a.left, y), (a.right, y)], ink(0.1)))?;
        for step in steps {
            let x = self.x(a, *step as f64);
            root.draw(&Rectangle::new([(x - 1, y - 5), (x + 1, y + 5)], ink(0.75).filled()))?;
        }
        Ok(())
    }

    /// The numbers of the steps, at most this many.
    fn numbers(&self, root: &Root, a: &Area, y: i32, most: usize) -> Drawn {
        let every = [1, 2, 5, 10, 20, 50, 100].into_iter().find(|e| self.steps / e <= most).unwrap_or(500);
        for step in (0..self.steps).step_by(every) {
            say(root, &step.to_string(), (self.x(a, step as f64), y), font(11).pos(at(HPos::Center, VPos::Top)))?;
        }
        Ok(())
    }
}

/// Draws it.
pub fn timeline(t: &Timeline, room: Room) -> String {
    if room == Room::Phone { phone(t) } else { wide(t) }
}

/// Names of lines and events stand at the right.
fn wide(t: &Timeline) -> String {
    const PANEL: i32 = 150;
    const GAP: i32 = 22;
    const LEFT: i32 = 74;
    let names: Vec<&str> = t.panels.iter().flat_map(|p| &p.1).map(|s| s.name.as_str()).collect();
    let below = t.panels.len() as i32 * (PANEL + GAP) + 16;
    let events = t.events.iter().map(|e| e.0.as_str());
    let right = LEFT + 620;
    let size = (right + 40 + widest(names.iter().copied().chain(events), 12), below + 42 + 16 * t.events.len() as i32);
    let area = |top| Area { left: LEFT, right, top, bottom: top + PANEL };
    let beside = || font(12).pos(at(HPos::Left, VPos::Center));
    draw(size, |root| {
        let mut color = 0;
        for (panel, (title, series)) in t.panels.iter().enumerate() {
            let top = 12 + panel as i32 * (PANEL + GAP);
            let side = font(12).transform(FontTransform::Rotate270).pos(at(HPos::Center, VPos::Top));
            say(root, title, (4, top + PANEL / 2), side)?;
            t.panel(root, &area(top), series, color)?;
            for (i, s) in series.iter().enumerate() {
                let line = top + 8 + 18 * i as i32;
                root.draw(&Circle::new((right + 14, line), 5, palette(color + i).filled()))?;
                say(root, &s.name, (right + 26, line), beside())?;
            }
            color += series.len();
        }
        for (i, (name, steps)) in t.events.iter().enumerate() {
            let y = below + 16 * i as i32;
            say(root, name, (right + 26, y), beside())?;
            t.event(root, &area(0), steps, y)?;
        }
        let bottom = below + 16 * t.events.len() as i32;
        t.numbers(root, &area(0), bottom, 14)?;
        say(root, "step", (right + 26, bottom + 6), beside())
    })
}

/// Names of lines stand above their panel, that of an event above its line.
fn phone(t: &Timeline) -> String {
    const PANEL: i32 = 130;
    let area = |top| Area { left: 40, right: slim::WIDTH - 4, top, bottom: top + PANEL };
    let legend = |series: &[Series]| slim::places(&series.iter().map(|s| s.name.as_str()).collect::<Vec<_>>());
    let panels: i32 = t.panels.iter().map(|p| 18 + legend(&p.1).1 + PANEL + 20).sum();
    let height = panels + 34 * t.events.len() as i32 + 40;
    draw((slim::WIDTH, height), |root| {
        let (mut y, mut color) = (0, 0);
        for (title, series) in &t.panels {
            slim::write(root, &[title.to_string()], y)?;
            let (places, tall) = legend(series);
            for (i, (s, (left, top))) in series.iter().zip(places).enumerate() {
                let line = y + 18 + top + 7;
                root.draw(&Circle::new((left + 6, line), 5, palette(color + i).filled()))?;
                say(root, &s.name, (left + 18, line), font(12).pos(at(HPos::Left, VPos::Center)))?;
            }
            y += 18 + tall;
            t.panel(root, &area(y), series, color)?;
            y += PANEL + 20;
            color += series.len();
        }
        for (name, steps) in &t.events {
            slim::write(root, std::slice::from_ref(name), y)?;
            t.event(root, &area(0), steps, y + 24)?;
            y += 34;
        }
        t.numbers(root, &area(0), y, 10)?;
        say(root, "step", (0, y + 6), font(12).pos(at(HPos::Left, VPos::Center)))
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
