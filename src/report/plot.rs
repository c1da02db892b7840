//! Charts as SVG text: heat maps, lines, scatter, stacked bars. Draws what it is given and computes nothing but positions.
//!
//! Lines and letters are drawn in one sentinel colour that [`finish`] turns into `currentColor`, so that a chart inside a
//! page follows its light or dark mode.

use plotters::prelude::*;
use plotters::style::colors::colormaps::ViridisRGB;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Text and axes; becomes `currentColor`.
const INK: RGBColor = RGBColor(1, 1, 1);

/// Series colours, legible on white and on dark grey (Tableau 10).
const PALETTE: [RGBColor; 10] = [
    RGBColor(0x4e, 0x79, 0xa7),
    RGBColor(0xf2, 0x8e, 0x2b),
    RGBColor(0xe1, 0x57, 0x59),
    RGBColor(0x59, 0xa1, 0x4f),
    RGBColor(0xb0, 0x7a, 0xa1),
    RGBColor(0x76, 0xb7, 0xb2),
    RGBColor(0xd3, 0xa8, 0x1d),
    RGBColor(0xff, 0x9d, 0xa7),
    RGBColor(0x9c, 0x75, 0x5f),
    RGBColor(0x8c, 0x8c, 0x8c),
];

/// How an axis is labelled and spaced.
#[derive(Clone, Copy, PartialEq)]
pub enum Scale {
    Linear,
    Log10,
    Log2,
}

/// One axis.
pub struct Axis<'a> {
    /// What it shows, with its unit.
    pub label: &'a str,
    pub scale: Scale,
}

/// Named points.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

type Root<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws into a fresh SVG of `size` pixels. Drawing into a string does not fail; a failure would be a mistake of this file.
fn draw(size: (u32, u32), paint: impl FnOnce(&Root) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        paint(&root).expect("drawing into a string");
        root.present().expect("drawing into a string");
    }
    finish(&svg, size)
}

/// Makes the sentinel follow the page and the size follow the window.
fn finish(svg: &str, (w, h): (u32, u32)) -> String {
    svg.replace("#010101", "currentColor").replacen(
        &format!("width=\"{w}\" height=\"{h}\""),
        &format!("width=\"{w}\" style=\"max-width:100%;height:auto\" role=\"img\""),
        1,
    )
}

fn ink(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn forward(x: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Linear => x,
        Scale::Log10 => x.log10(),
        Scale::Log2 => x.log2(),
    }
}

/// The tick of an axis whose positions are already transformed.
fn tick(x: f64, scale: Scale) -> String {
    match scale {
        Scale::Linear if x != 0.0 && x.abs() < 0.01 => format!("{x:.0e}"),
        Scale::Linear => format!("{}", (x * 1000.0).round() / 1000.0),
        Scale::Log2 => format!("{}", x.exp2().round()),
        Scale::Log10 if x.fract() == 0.0 && (-3.0..4.0).contains(&x) => format!("{}", 10f64.powf(x)),
        Scale::Log10 if x.fract() == 0.0 => format!("1e{x}"),
        Scale::Log10 => format!("{:.0e}", 10f64.powf(x)),
    }
}

/// The span of the transformed values, a little wider; whole decades on a log axis.
fn span(values: impl Iterator<Item = f64>, scale: Scale) -> (f64, f64) {
    let (lo, hi) = values.filter(|v| v.is_finite()).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    match (lo <= hi, scale) {
        (false, _) => (0.0, 1.0),
        (true, Scale::Log10) => (lo.floor(), (hi + 1e-9).ceil().max(lo.floor() + 1.0)),
        (true, _) => {
            let pad = ((hi - lo) * 0.04).max(if hi > lo { 0.0 } else { 0.5 });
            (lo - pad, hi + pad)
        }
    }
}

/// Points, joined by lines when `joined`. A legend stands right of the plot. Values a log axis cannot hold (≤ 0) are left out.
pub fn xy(x: &Axis, y: &Axis, series: &[Series], joined: bool) -> String {
    let size = (900, 420.max(60 + 18 * series.len() as u32));
    draw(size, |root| {
        let points = |s: &Series| -> Vec<(f64, f64)> {
            let all = s.points.iter().map(|(a, b)| (forward(*a, x.scale), forward(*b, y.scale)));
            all.filter(|(a, b)| a.is_finite() && b.is_finite()).collect()
        };
        let all: Vec<(f64, f64)> = series.iter().flat_map(&points).collect();
        let (x0, x1) = span(all.iter().map(|p| p.0), x.scale);
        let (y0, y1) = span(all.iter().map(|p| p.1), y.scale);
        let (plot, legend) = root.split_horizontally(680);
        let mut chart =
            ChartBuilder::on(&plot).margin(8).x_label_area_size(44).y_label_area_size(72).build_cartesian_2d(x0..x1, y0..y1)?;
        let ticks = |lo: f64, hi: f64, scale| if scale == Scale::Linear { 7 } else { ((hi - lo) as usize + 1).clamp(2, 12) };
        chart
            .configure_mesh()
            .axis_style(INK.mix(0.6))
            .bold_line_style(INK.mix(0.12))
            .light_line_style(TRANSPARENT)
            .label_style(ink(13))
            .axis_desc_style(ink(14))
            .x_desc(x.label)
            .y_desc(y.label)
            .x_labels(ticks(x0, x1, x.scale))
            .y_labels(ticks(y0, y1, y.scale))
            .x_label_formatter(&|v| tick(*v, x.scale))
            .y_label_formatter(&|v| tick(*v, y.scale))
            .draw()?;
        for (i, s) in series.iter().enumerate() {
            let color = PALETTE[i % PALETTE.len()];
            let points = points(s);
            if joined {
                chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
            }
            let alpha = if joined { 1.0 } else { 0.55 };
            // The second ten series are hollow, so that no two look alike.
            let style = if i < PALETTE.len() { color.mix(alpha).filled() } else { color.mix(alpha).stroke_width(1) };
            chart.draw_series(points.iter().map(|p| Circle::new(*p, if joined { 4 } else { 3 }, style)))?;
        }
        key(&legend, series.iter().map(|s| s.name.as_str()))
    })
}

/// Names beside their colours, top to bottom.
fn key<'a>(area: &Root, names: impl Iterator<Item = &'a str>) -> Drawn {
    for (i, name) in names.enumerate() {
        let (top, color) = (14 + 18 * i as i32, PALETTE[i % PALETTE.len()]);
        let style = if i < PALETTE.len() { color.filled() } else { color.stroke_width(1) };
        area.draw(&Circle::new((10, top), 5, style))?;
        area.draw(&Text::new(name.to_string(), (22, top), ink(13).pos(Pos::new(HPos::Left, VPos::Center))))?;
    }
    Ok(())
}

/// Horizontal bars, each a stack of shares that sum to its total; one bar a label.
pub fn stacked(labels: &[String], parts: &[&str], values: &[Vec<f64>], x_label: &str) -> String {
    let size = (900, 70 + 22 * labels.len() as u32);
    draw(size, |root| {
        let (left, right, bottom) = (250, 690, 30 + 22 * labels.len() as i32);
        let most = values.iter().map(|v| v.iter().sum::<f64>()).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let at = |v: f64| left + ((right - left) as f64 * v / most) as i32;
        for (i, (label, row)) in labels.iter().zip(values).enumerate() {
            let top = 8 + 22 * i as i32;
            root.draw(&Text::new(label.clone(), (left - 8, top + 9), ink(13).pos(Pos::new(HPos::Right, VPos::Center))))?;
            let mut sum = 0.0;
            for (j, v) in row.iter().enumerate().filter(|(_, v)| **v > 0.0) {
                root.draw(&Rectangle::new(
                    [(at(sum), top), (at(sum + v).max(at(sum) + 1), top + 17)],
                    PALETTE[j % PALETTE.len()].filled(),
                ))?;
                sum += v;
            }
        }
        root.draw(&PathElement::new(vec![(left, bottom), (right, bottom)], INK.mix(0.6)))?;
        for i in 0..=4 {
            let v = most * f64::from(i) / 4.0;
            let text = Text::new(tick(v, Scale::Linear), (at(v), bottom + 5), ink(12).pos(Pos::new(HPos::Center, VPos::Top)));
            root.draw(&text)?;
        }
        let middle = ((left + right) / 2, bottom + 22);
        root.draw(&Text::new(x_label.to_string(), middle, ink(13).pos(Pos::new(HPos::Center, VPos::Top))))?;
        key(&root.clone().shrink((705, 0), (195, size.1)), parts.iter().copied())
    })
}

/// A colour between dark blue and yellow (viridis), for a share in 0 … 1.
fn shade(share: f64) -> RGBColor {
    let c = ViridisRGB.get_color(share.clamp(0.0, 1.0));
    RGBColor(c.0, c.1, c.2)
}

/// Black or white, whichever reads better on `c`.
fn on(c: RGBColor) -> RGBColor {
    let luminance = 0.299 * f64::from(c.0) + 0.587 * f64::from(c.1) + 0.114 * f64::from(c.2);
    if luminance > 140.0 { BLACK } else { WHITE }
}

/// A table of coloured cells with their numbers; `None` is an empty cell. `unit` stands under the colour bar.
pub fn table(columns: &[String], rows: &[String], cells: &[Vec<Option<f64>>], unit: &str) -> String {
    let (left, top, cw, ch) = (210, 120, 58, 20);
    let size = ((left + cw * columns.len() as i32 + 90).max(480) as u32, (top + ch * rows.len() as i32 + 12).max(200) as u32);
    let (lo, hi) = span(cells.iter().flatten().flatten().copied(), Scale::Linear);
    let share = |v: f64| (v - lo) / (hi - lo);
    draw(size, |root| {
        for (j, name) in columns.iter().enumerate() {
            let style = ink(12).transform(FontTransform::Rotate270).pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(name.clone(), (left + cw * j as i32 + cw / 2, top - 6), style))?;
        }
        for (i, name) in rows.iter().enumerate() {
            let y = top + ch * i as i32;
            root.draw(&Text::new(name.clone(), (left - 8, y + ch / 2), ink(13).pos(Pos::new(HPos::Right, VPos::Center))))?;
            for (j, cell) in cells[i].iter().enumerate() {
                let x = left + cw * j as i32;
                let Some(v) = cell.filter(|v| v.is_finite()) else { continue };
                let color = shade(share(v));
                root.draw(&Rectangle::new([(x, y), (x + cw - 2, y + ch - 2)], color.filled()))?;
                let style = ("sans-serif", 12).into_font().color(&on(color)).pos(Pos::new(HPos::Center, VPos::Center));
                root.draw(&Text::new(format!("{v:.1}"), (x + cw / 2, y + ch / 2), style))?;
            }
        }
        bar(root, (left + cw * columns.len() as i32 + 14, top), (lo, hi), unit)
    })
}

/// The colour bar of a heat map.
fn bar(root: &Root, (x, y): (i32, i32), (lo, hi): (f64, f64), unit: &str) -> Drawn {
    for i in 0..60 {
        let color = shade(1.0 - f64::from(i) / 59.0);
        root.draw(&Rectangle::new([(x, y + i), (x + 12, y + i + 1)], color.filled()))?;
    }
    let text = |s: String, y| Text::new(s, (x + 16, y), ink(11).pos(Pos::new(HPos::Left, VPos::Center)));
    root.draw(&text(tick(hi, Scale::Linear), y + 2))?;
    root.draw(&text(tick(lo, Scale::Linear), y + 58))?;
    root.draw(&Text::new(unit.to_string(), (x, y - 12), ink(11).pos(Pos::new(HPos::Left, VPos::Center))))?;
    Ok(())
}

/// A map without numbers: `cells[i][j]` over rows and columns of something; the axes name what they are.
pub fn map(cells: &[Vec<f64>], x_label: &str, y_label: &str, unit: &str) -> String {
    let (rows, cols) = (cells.len().max(1) as i32, cells.first().map_or(1, Vec::len).max(1) as i32);
    let cell = (420 / cols.max(rows)).clamp(3, 26);
    let (left, top) = (34, 26);
    let size = ((left + cell * cols + 110) as u32, (top + cell * rows + 34).max(130) as u32);
    let (lo, hi) = span(cells.iter().flatten().copied(), Scale::Linear);
    let lo = lo.max(0.0);
    draw(size, |root| {
        for (i, row) in cells.iter().enumerate() {
            for (j, v) in row.iter().enumerate() {
                let (x, y) = (left + cell * j as i32, top + cell * i as i32);
                let color = if v.is_finite() { shade((v - lo) / (hi - lo)) } else { RED };
                root.draw(&Rectangle::new([(x, y), (x + cell, y + cell)], color.filled()))?;
            }
        }
        let below = (left + cell * cols / 2, top + cell * rows + 8);
        root.draw(&Text::new(x_label.to_string(), below, ink(13).pos(Pos::new(HPos::Center, VPos::Top))))?;
        let side = ink(13).transform(FontTransform::Rotate270).pos(Pos::new(HPos::Center, VPos::Bottom));
        root.draw(&Text::new(y_label.to_string(), (left - 8, top + cell * rows / 2), side))?;
        bar(root, (left + cell * cols + 14, top), (lo, hi), unit)
    })
}

/// A chart as a file of its own: dark ink on white.
pub fn standalone(svg: &str) -> String {
    svg.replacen("style=\"max-width:100%;height:auto\"", "style=\"color:#222;background:#fff\"", 1)
}
