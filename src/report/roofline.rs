//! Two charts of speed: the roofline, and each kernel's share of its limit.

use super::plot::{
    Drawn, Frame, INK, PALETTE, Room, Root, Ruler, Scale, Series, at, axes, dot, draw, font, key, say, span, ticks, wide,
    widest,
};
use super::slim;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Where along the slope its name is tried.
const SHARES: [f64; 7] = [0.35, 0.5, 0.25, 0.6, 0.15, 0.7, 0.8];

/// A ceiling of operations a second.
pub struct Ceiling {
    pub name: String,
    /// TFLOP/s.
    pub rate: f64,
}

/// Points (operations a byte, TFLOP/s) under the roof: the slope of `bandwidth` (TB/s) and the flat ceilings. Both axes logarithmic.
pub fn roofline(bandwidth: f64, ceilings: &[Ceiling], series: &[Series], room: Room) -> String {
    let points = || series.iter().flat_map(|s| &s.points);
    let knees = || ceilings.iter().map(|c| c.rate / bandwidth);
    let (x0, x1) = span(points().map(|p| p.0).chain(knees()).map(f64::log10), Scale::Log10);
    let (y0, y1) = span(points().map(|p| p.1).chain(ceilings.iter().map(|c| c.rate)).map(f64::log10), Scale::Log10);
    let names: Vec<&str> = series.iter().map(|s| s.name.as_str()).collect();
    let (x, y) = ("operations a byte of device memory", "TFLOP/s");
    let frame = Frame { room, height: 440, x, y, names: &names, diagonal: None };
    frame.draw(|root, plot, labels| {
        let xr = Ruler { lo: x0, hi: x1, ticks: ticks(x0, x1, Scale::Log10), scale: Scale::Log10 };
        let yr = Ruler { lo: y0, hi: y1, ticks: ticks(y0, y1, Scale::Log10), scale: Scale::Log10 };
        let mut chart = axes(plot, xr, yr, labels)?;
        // The slope stops at the highest ceiling, or at the edge.
        let top = ceilings.iter().map(|c| c.rate.log10()).fold(f64::NEG_INFINITY, f64::max).min(y1);
        let top = if top.is_finite() { top } else { y1 };
        let slope = bandwidth.log10();
        let (from, to) = (x0.max(y0 - slope), (top - slope).min(x1));
        chart.draw_series(LineSeries::new([(from, from + slope), (to, to + slope)], INK.mix(0.7).stroke_width(2)))?;
        // The name of the slope stands right of it, where no point is in its way.
        let name = format!("copy {bandwidth:.2} TB/s");
        let beside = |share: f64| {
            let x = from + (to - from) * share;
            let (x, y) = chart.backend_coord(&(x, x + slope));
            (x + 8, y + 4)
        };
        let dots: Vec<(i32, i32)> = points().map(|p| chart.backend_coord(&(p.0.log10(), p.1.log10()))).collect();
        let free = |(x, y): (i32, i32)| {
            !dots.iter().any(|d| d.0 > x - 8 && d.0 < x + wide(&name, 12) + 8 && d.1 > y - 8 && d.1 < y + 20)
        };
        let place = SHARES.into_iter().map(beside).find(|p| free(*p)).unwrap_or(beside(SHARES[0]));
        say(root, &name, place, font(12).pos(at(HPos::Left, VPos::Top)))?;
        for c in ceilings {
            let (level, knee) = (c.rate.log10(), (c.rate / bandwidth).log10());
            chart.draw_series(LineSeries::new([(knee, level), (x1, level)], INK.mix(0.7).stroke_width(2)))?;
            let place = chart.backend_coord(&(x1, level));
            // On a phone the label of the axis says the unit.
            let unit = if room == Room::Wide { " TFLOP/s" } else { "" };
            let text = format!("{} {:.0}{unit}", c.name, c.rate);
            // Points gather just above the lower ceilings.
            let (down, anchor) = if level < top { (4, VPos::Top) } else { (-4, VPos::Bottom) };
            say(root, &text, (place.0 - 4, place.1 + down), font(12).pos(at(HPos::Right, anchor)))?;
        }
        for (i, s) in series.iter().enumerate() {
            let style = dot(i, PALETTE[i % PALETTE.len()].mix(0.85));
            chart.draw_series(s.points.iter().map(|p| Circle::new((p.0.log10(), p.1.log10()), 5, style)))?;
        }
        Ok(())
    })
}

/// One bar.
pub struct Bar {
    pub label: String,
    /// 1 is the limit.
    pub share: f64,
    /// Colour and legend: an index into the kinds.
    pub kind: usize,
    /// Written behind the bar.
    pub note: String,
    /// The first of its group: a gap and the group's name stand above.
    pub head: Option<String>,
}

/// Horizontal bars of a share of a limit, the limit a line.
pub fn bars(bars: &[Bar], kinds: &[&str], x_label: &str) -> String {
    let left = 16 + widest(bars.iter().map(|b| b.label.as_str()), 13);
    let notes = widest(bars.iter().map(|b| b.note.as_str()), 12) + 12;
    let most = bars.iter().map(|b| b.share).filter(|s| s.is_finite()).fold(1.0, f64::max);
    let (length, top) = (460, 34);
    let heads = bars.iter().filter(|b| b.head.is_some()).count() as i32;
    let bottom = top + 20 * bars.len() as i32 + 26 * heads;
    let across = |share: f64| left + (f64::from(length) * share / most).round() as i32;
    let size = (left + length + notes + 16, bottom + 46);
    let paint = |root: &Root| -> Drawn {
        let mut x = left;
        for (i, kind) in kinds.iter().enumerate() {
            key(root, kind, PALETTE[i], (x, 8))?;
            x += 34 + wide(kind, 12);
        }
        let mut y = top;
        for bar in bars {
            if let Some(head) = &bar.head {
                say(root, head, (8, y + 15), font(13).pos(at(HPos::Left, VPos::Center)))?;
                y += 26;
            }
            say(root, &bar.label, (left - 8, y + 8), font(13).pos(at(HPos::Right, VPos::Center)))?;
            let end = across(bar.share.max(0.0)).max(left + 2);
            root.draw(&Rectangle::new([(left, y), (end, y + 16)], PALETTE[bar.kind].filled()))?;
            // No line goes through words: what would reach the limit stands behind it.
            let limit = across(1.0);
            let note = if end <= limit && end + 6 + wide(&bar.note, 12) >= limit { limit + 6 } else { end + 6 };
            say(root, &bar.note, (note, y + 8), font(12).pos(at(HPos::Left, VPos::Center)))?;
            y += 20;
        }
        root.draw(&PathElement::new(vec![(left, bottom), (across(most), bottom)], INK.mix(0.6)))?;
        root.draw(&PathElement::new(vec![(across(1.0), top), (across(1.0), bottom)], INK.mix(0.5)))?;
        for i in 0..=4 {
            let share = f64::from(i) / 4.0;
            let style = font(12).pos(at(HPos::Center, VPos::Top));
            say(root, &format!("{} %", 100.0 * share), (across(share), bottom + 6), style)?;
        }
        say(root, x_label, (left + length / 2, bottom + 26), font(13).pos(at(HPos::Center, VPos::Top)))
    };
    draw(size, paint)
}

/// [`bars`] for a phone: names, and what is written behind a bar, stand above it.
pub fn slim_bars(bars: &[Bar], kinds: &[&str], x_label: &str) -> String {
    let (left, right) = slim::EDGES;
    let most = bars.iter().map(|b| b.share).filter(|s| s.is_finite()).fold(1.0, f64::max);
    let across = |share: f64| left + (f64::from(right - left) * share / most).round() as i32;
    let words = |bar: &Bar| slim::lines(&format!("{}: {}", bar.label, bar.note));
    let head = |bar: &Bar| bar.head.as_ref().map(|h| slim::lines(h)).unwrap_or_default();
    let height = |bar: &Bar| {
        let heads = head(bar).len() as i32;
        17 * (words(bar).len() as i32 + heads) + 22 + if heads > 0 { 10 } else { 0 }
    };
    let (places, top) = slim::places(kinds);
    let label = slim::lines(x_label);
    let bottom = top + bars.iter().map(height).sum::<i32>();
    draw((slim::WIDTH, bottom + 30 + 17 * label.len() as i32), |root| {
        slim::legend(root, kinds, &places, |i| PALETTE[i])?;
        let mut y = top;
        for bar in bars {
            let (above, words) = (head(bar), words(bar));
            if !above.is_empty() {
                root.draw(&PathElement::new(vec![(0, y + 4), (right, y + 4)], INK.mix(0.3)))?;
                slim::write(root, &above, y + 10)?;
            }
            y += height(bar);
            slim::write(root, &words, y - 22 - 17 * words.len() as i32)?;
            let end = across(bar.share.max(0.0)).max(left + 2);
            root.draw(&Rectangle::new([(left, y - 20), (end, y - 8)], PALETTE[bar.kind].filled()))?;
            root.draw(&PathElement::new(vec![(across(1.0), y - 22), (across(1.0), y - 6)], INK.mix(0.6)))?;
        }
        for i in 0..=4 {
            let style = font(12).pos(at(HPos::Center, VPos::Top));
            say(root, &format!("{} %", 25 * i), (across(f64::from(i) / 4.0), bottom + 4), style)?;
        }
        slim::write(root, &label, bottom + 24)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x of the first text that is `words`.
    fn left_of(svg: &str, words: &str) -> f64 {
        let before = &svg[..svg.find(words).unwrap_or_else(|| panic!("no {words} in {svg}"))];
        let tag = &before[before.rfind("<text").unwrap()..];
        tag.split(" x=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
    }

    #[test]
    fn the_limit_goes_through_no_words() {
        let bar = |share: f64, note: &str| Bar { label: "kernel".into(), share, kind: 0, note: note.into(), head: None };
        let all = [
            bar(0.1, "short"),
            bar(0.9, "nine tenths, 1234 TFLOP/s"),
            bar(0.5, "half, and words that reach farther than the rest of it, 0.50 TB/s"),
            bar(1.0, "all"),
        ];
        let svg = bars(&all, &["ours"], "share");
        let limit = left_of(&svg, "100 %");
        assert!(left_of(&svg, "short") < limit);
        for behind in ["nine tenths", "half, and", "all"] {
            assert!(left_of(&svg, behind) >= limit, "{behind} at {} of {limit}", left_of(&svg, behind));
        }
    }

    #[test]
    fn the_slope_is_named_where_no_point_is() {
        let ceilings = [Ceiling { name: "FP8".into(), rate: 2000.0 }];
        let at = |points: Vec<(f64, f64)>| {
            left_of(&roofline(4.0, &ceilings, &[Series::new("ours", points)], Room::Wide), "copy 4.00")
        };
        let (far, free) = (vec![(1.0, 1.0), (4000.0, 1900.0)], at(vec![(1.0, 1.0), (4000.0, 1900.0)]));
        // A point that stands where the name would be moves it.
        let moved: Vec<f64> =
            (0..40).map(|i| 10f64.powf(f64::from(i) / 10.0)).map(|x| at([far.clone(), vec![(x, 2.0 * x)]].concat())).collect();
        assert!(moved.iter().any(|x| (x - free).abs() > 20.0), "{free} {moved:?}");
    }
}
