//! Charts as SVG text: tables, lines, scatter, stacked bars, maps. Draws what it is given and computes nothing but positions.
//!
//! Lines and letters are drawn in one sentinel colour that `finish` turns into `currentColor`, so that a chart inside a
//! page follows its light or dark mode. Sizes are CSS pixels.

use super::slim;
use crate::order::Order as _;
use maud::{Markup, PreEscaped, html};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A number in a coloured cell; becomes `currentColor` too, but black on a page that cannot be known.
pub(super) const CELL: RGBColor = RGBColor(2, 2, 2);
/// What lies under coloured cells: nothing, but white on a page that cannot be known.
pub(super) const UNDER: RGBColor = RGBColor(3, 3, 3);
/// Text and axes; becomes `currentColor`.
pub(super) const INK: RGBColor = RGBColor(1, 1, 1);

/// What must not be: over a bound, not finite.
pub(super) const BAD: RGBColor = RGBColor(0xe0, 0x31, 0x31);

/// Series colours, legible on white and on dark grey (Tableau 10).
pub(super) const PALETTE: [RGBColor; 10] = [
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

/// Where a chart is read.
#[derive(Clone, Copy, PartialEq)]
pub enum Room {
    /// On a page that is wide enough for a legend beside the chart.
    Wide,
    /// On a phone: as wide as its window, letters of full size, labels above and the legend below.
    Phone,
}

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
#[derive(Default)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// The case of each point, where a point is one; empty otherwise.
    pub cases: Vec<String>,
}

impl Series {
    /// Points that are no single cases.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, cases: Vec::new() }
    }

    /// Where its points are on these axes, without those that an axis cannot hold, and their cases.
    fn placed(&self, x: Scale, y: Scale) -> Drawing<'_> {
        let case = |i: usize| self.cases.get(i).map_or("", String::as_str);
        let all = self.points.iter().enumerate().map(|(i, (a, b))| ((forward(*a, x), forward(*b, y)), case(i)));
        let (points, cases) = all.filter(|((a, b), _)| a.is_finite() && b.is_finite()).unzip();
        (&self.name, points, cases)
    }
}

/// Name, points and cases of a series as it is drawn.
type Drawing<'a> = (&'a str, Vec<(f64, f64)>, Vec<&'a str>);

/// A place of a chart that is a case: what a reader points at and clicks.
pub(super) struct Place {
    /// Left, top, width, height.
    pub(super) at: [i32; 4],
    pub(super) case: String,
    /// What it says beside the case.
    pub(super) tip: String,
}

/// A chart with its places, which a page's script makes links.
pub(super) fn with_places(svg: String, places: &[Place]) -> String {
    let place = |p: &Place| {
        let ([x, y, w, h], case, tip) = (p.at, html! { (p.case) }.into_string(), html! { (p.tip) }.into_string());
        // An attribute's quotes end it.
        let (case, tip) = (case.replace('"', "&quot;"), tip.replace('"', "&quot;"));
        format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"transparent\" data-case=\"{case}\" data-tip=\"{tip}\"/>\n"
        )
    };
    let places: String = places.iter().map(place).collect();
    svg.replacen("</svg>", &format!("{places}</svg>"), 1)
}

/// A chart inside a page with a name, and described by the element `id`.
pub(super) fn named(svg: &str, name: &str, id: &str) -> String {
    let name = html! { (name) }.into_string().replace('"', "&quot;");
    svg.replacen("role=\"img\"", &format!("role=\"img\" aria-label=\"{name}\" aria-describedby=\"{id}\""), 1)
}

/// A chart and what a phone shows in its place.
pub(super) fn both([wide, slim]: [&str; 2], name: &str, id: &str) -> Markup {
    html! {
        div.charts {
            figure.broad tabindex="0" { (PreEscaped(named(wide, name, id))) }
            figure.slim { (PreEscaped(named(slim, name, id))) }
        }
    }
}

pub(super) type Root<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub(super) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The ink, as dense as given.
pub(super) fn ink(density: f64) -> RGBAColor {
    INK.mix(density)
}

/// The colour of the i-th series.
pub(super) fn palette(i: usize) -> RGBColor {
    PALETTE[i % PALETTE.len()]
}

/// Draws into a fresh SVG of `size` pixels. Drawing into a string does not fail; a failure would be a mistake of this file.
pub(super) fn draw(size: (i32, i32), paint: impl FnOnce(&Root) -> Drawn) -> String {
    let size = (size.0 as u32, size.1 as u32);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        paint(&root).expect("drawing into a string");
        root.present().expect("drawing into a string");
    }
    finish(&svg, size)
}

/// A file of its own needs it, a chart inside a page does not.
const NAMESPACE: &str = " xmlns=\"http://www.w3.org/2000/svg\"";

const IN_CELL: &str = "class=\"cell\" fill=\"currentColor\"";
const UNDER_CELLS: &str = "class=\"under\" fill=\"none\"";

/// Makes the sentinels follow the page, and the size the window: a chart shrinks to 600 px, below that it scrolls.
fn finish(svg: &str, (w, h): (u32, u32)) -> String {
    // What SVG takes for granted is left out: a map has a thousand cells.
    let svg = [NAMESPACE, " opacity=\"1\"", " stroke=\"none\" stroke-width=\"1\"", " stroke=\"none\""]
        .iter()
        .fold(svg.to_string(), |svg, granted| svg.replace(granted, ""));
    let svg = svg.replace("fill=\"#020202\"", IN_CELL).replace("fill=\"#030303\"", UNDER_CELLS);
    svg.replace("#010101", "currentColor").replacen(
        &format!("width=\"{w}\" height=\"{h}\""),
        &format!("width=\"{w}\" style=\"max-width:100%;min-width:{}px;height:auto\" role=\"img\"", w.min(600)),
        1,
    )
}

/// A chart as a file of its own, with a name and a description: dark ink on white.
pub fn standalone(svg: &str, name: &str, description: &str) -> String {
    let svg = styled(svg, "color:#222;background:#fff");
    let words = html! { title { (name) } desc { (description) } }.into_string();
    let end = svg.find('>').expect("made by finish") + 1;
    format!("{}{words}{}", &svg[..end], &svg[end..])
}

/// A chart as an image that cannot know the page it stands on: ink with a contrast of 4.5 to white and 4.6 to black, on nothing. No such
/// ink can be read on a coloured cell: numbers in cells are black, and the cells lie on white.
#[cfg(feature = "notebook")]
pub fn on_any_page(svg: &str) -> String {
    let svg = svg.replace(IN_CELL, "fill=\"#1d2126\"").replace(UNDER_CELLS, "fill=\"#fff\"");
    styled(&svg, "color:#767676")
}

/// A file with this style in place of that of a chart inside a page.
fn styled(svg: &str, style: &str) -> String {
    let end = svg.find("\" role=").expect("made by finish");
    let start = svg[..end].rfind("style=\"").expect("made by finish") + 7;
    format!("{}{style}{}", &svg[..start], &svg[end..]).replacen("<svg", &format!("<svg{NAMESPACE}"), 1)
}

/// Letters `px` high. Plotters writes a size divided by 1.24.
pub(super) fn font(px: i32) -> TextStyle<'static> {
    ("sans-serif", f64::from(px) * 1.24).into_font().color(&INK)
}

/// About as wide as `text` is in letters `px` high; a little more, so that nothing is clipped where sans-serif is a wide face.
pub(super) fn wide(text: &str, px: i32) -> i32 {
    let em = |c: char| match c {
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '→' | '×' | '=' | '≤' | '_' => 0.95,
        'A'..='Z' => 0.72,
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | ' ' | '.' | ',' | ':' | '(' | ')' => 0.42,
        _ => 0.64,
    };
    (text.chars().map(em).sum::<f64>() * f64::from(px)).ceil() as i32
}

/// The widest of some texts.
pub(super) fn widest<'a>(texts: impl IntoIterator<Item = &'a str>, px: i32) -> i32 {
    texts.into_iter().map(|t| wide(t, px)).max().unwrap_or(0)
}

pub(super) fn at(h: HPos, v: VPos) -> Pos {
    Pos::new(h, v)
}

/// Writes `text` at a point.
pub(super) fn say(root: &Root, text: &str, point: (i32, i32), style: TextStyle) -> Drawn {
    root.draw(&Text::new(text.to_string(), point, style))?;
    Ok(())
}

/// Position of a value along an axis.
fn forward(x: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Linear => x,
        Scale::Log10 => x.log10(),
        Scale::Log2 => x.log2(),
    }
}

/// The label at a position that [`forward`] gave.
pub(super) fn tick(x: f64, scale: Scale) -> String {
    match scale {
        Scale::Linear if x != 0.0 && x.abs() < 0.01 => format!("{x:.0e}"),
        Scale::Linear => format!("{}", (x * 1000.0).round() / 1000.0),
        Scale::Log2 => format!("{}", x.exp2().round()),
        Scale::Log10 if (-3.0..4.0).contains(&x.round()) => format!("{}", 10f64.powf(x.round())),
        Scale::Log10 => format!("1e{}", x.round()),
    }
}

/// The span of the transformed values, a little wider; whole decades on a decimal log axis.
pub(super) fn span(values: impl Iterator<Item = f64>, scale: Scale) -> (f64, f64) {
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

/// Where an axis over `lo … hi` has its ticks: steps of 1, 2 or 5 times a power of ten; whole powers on a log axis.
pub(super) fn ticks(lo: f64, hi: f64, scale: Scale) -> Vec<f64> {
    let raw = (hi - lo) / 7.0;
    let decade = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * decade).find(|s| *s >= raw).unwrap_or(1.0);
    let step = if scale == Scale::Linear { step } else { step.ceil().max(1.0) };
    let first = (lo / step).ceil() as i64;
    (first..).map(|i| i as f64 * step).take_while(|v| *v <= hi + step * 1e-9).collect()
}

/// Ticks where the data is, as far as they do not touch: the first and the last, and those between with `room` before them.
fn data_ticks(values: impl Iterator<Item = f64>, room: f64) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    let Some(last) = all.last().copied() else { return Vec::new() };
    let mut kept: Vec<f64> = Vec::new();
    for v in all {
        if v == last || kept.last().is_none_or(|k| v - k >= room) && last - v >= room {
            kept.push(v);
        }
    }
    kept.dedup();
    kept
}

/// An axis of transformed values with its ticks where they are wanted.
pub(super) struct Ruler {
    pub lo: f64,
    pub hi: f64,
    pub ticks: Vec<f64>,
    pub scale: Scale,
}

impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * (value - self.lo) / (self.hi - self.lo)).round() as i32
    }
    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.ticks.clone()
    }
    fn range(&self) -> std::ops::Range<f64> {
        self.lo..self.hi
    }
}

impl ValueFormatter<f64> for Ruler {
    fn format_ext(&self, value: &f64) -> String {
        tick(*value, self.scale)
    }
}

/// The axes, each a ruler, with faint lines at their ticks. `labels` stand along them where there is room.
pub(super) fn axes<'a>(
    plot: &Root<'a>,
    x: Ruler,
    y: Ruler,
    labels: Option<(&str, &str)>,
) -> Result<ChartContext<'a, SVGBackend<'a>, Cartesian2d<Ruler, Ruler>>, Box<dyn std::error::Error>> {
    let (below, left) = if labels.is_some() { (48, 70) } else { (24, 46) };
    let mut chart =
        ChartBuilder::on(plot).margin(10).x_label_area_size(below).y_label_area_size(left).build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    mesh.axis_style(INK.mix(0.6))
        .bold_line_style(INK.mix(0.14))
        .light_line_style(TRANSPARENT)
        .label_style(font(12))
        .axis_desc_style(font(13));
    if let Some((x, y)) = labels {
        mesh.x_desc(x).y_desc(y);
    }
    mesh.draw()?;
    Ok(chart)
}

/// A chart with axes and a legend.
pub(super) struct Frame<'a> {
    pub room: Room,
    /// Height of the chart where there is room.
    pub height: i32,
    /// Labels of the axes.
    pub x: &'a str,
    pub y: &'a str,
    /// Names of the series.
    pub names: &'a [&'a str],
    /// Name of the dashed line.
    pub diagonal: Option<&'a str>,
}

impl Frame<'_> {
    /// `paint` draws the chart into its part of the whole, with these labels along its axes.
    pub fn draw(&self, paint: impl FnOnce(&Root, &Root, Option<(&str, &str)>) -> Drawn) -> String {
        let words: Vec<&str> = self.names.iter().copied().chain(self.diagonal).collect();
        if self.room == Room::Wide {
            let rows = self.names.len() as i32 + i32::from(self.diagonal.is_some());
            let size = (680 + 40 + widest(words.iter().copied(), 13), self.height.max(60 + 20 * rows));
            return draw(size, |root| {
                let (plot, legend) = root.split_horizontally(680);
                paint(root, &plot, Some((self.x, self.y)))?;
                words.iter().enumerate().try_for_each(|(i, _)| self.entry(&legend, i, (12, 18 + 20 * i as i32), 13))
            });
        }
        let (above, below) = (slim::lines(self.y), slim::lines(self.x));
        let (places, legend) = slim::places(&words);
        let top = 17 * above.len() as i32 + 2;
        let bottom = top + 280;
        let under = bottom + 17 * below.len() as i32;
        draw((slim::WIDTH, under + legend), |root| {
            slim::write(root, &above, 0)?;
            paint(root, &root.clone().shrink((0, top), (slim::WIDTH, 280)), None)?;
            slim::write(root, &below, bottom)?;
            places.iter().enumerate().try_for_each(|(i, (x, y))| self.entry(root, i, (x + 6, under + y + 7), 12))
        })
    }

    /// The i-th entry of the legend: its dot, or the dashes of the diagonal, and its name.
    fn entry(&self, root: &Root, i: usize, (x, y): (i32, i32), px: i32) -> Drawn {
        let left = if self.room == Room::Wide { x + 12 } else { x + 11 };
        let Some(name) = self.names.get(i) else {
            root.draw(&PathElement::new(vec![(x - 8, y), (x - 1, y)], INK.mix(0.7)))?;
            root.draw(&PathElement::new(vec![(x + 2, y), (x + 9, y)], INK.mix(0.7)))?;
            return say(root, self.diagonal.unwrap_or_default(), (left, y), font(px).pos(at(HPos::Left, VPos::Center)));
        };
        root.draw(&Circle::new((x, y), 5, dot(i, PALETTE[i % PALETTE.len()])))?;
        say(root, name, (left, y), font(px).pos(at(HPos::Left, VPos::Center)))
    }
}

/// A dot of the i-th series. The second ten series are hollow, so that no two look alike.
pub(super) fn dot(i: usize, color: impl Color) -> ShapeStyle {
    if i < PALETTE.len() { color.filled() } else { color.stroke_width(2) }
}

/// Points, or lines with their points when `joined`, the lines of the legend in the order of their ends.
/// `diagonal` names the line of equal values, where there is to be one. Values that a log axis cannot hold (≤ 0) are left out.
pub fn xy(x: &Axis, y: &Axis, series: &[Series], joined: bool, diagonal: Option<&str>, room: Room) -> String {
    let mut drawn: Vec<Drawing> = series.iter().map(|s| s.placed(x.scale, y.scale)).collect();
    if joined {
        let end = |p: &[(f64, f64)]| p.last().map_or(f64::NEG_INFINITY, |p| p.1);
        drawn.order_by(|a, b| end(&b.1).total_cmp(&end(&a.1)));
    }
    let mut places = Vec::new();
    let (x0, x1) = span(drawn.iter().flat_map(|s| s.1.iter().map(|p| p.0)), x.scale);
    let (y0, y1) = span(drawn.iter().flat_map(|s| s.1.iter().map(|p| p.1)), y.scale);
    // Decades are round numbers; data between them has none on a decimal axis.
    let x_ticks = if joined && x.scale != Scale::Log10 {
        let most = if room == Room::Wide { 18.0 } else { 9.0 };
        data_ticks(drawn.iter().flat_map(|s| s.1.iter().map(|p| p.0)), (x1 - x0) / most)
    } else {
        ticks(x0, x1, x.scale)
    };
    let names: Vec<&str> = drawn.iter().map(|s| s.0).collect();
    let frame = Frame { room, height: 420, x: x.label, y: y.label, names: &names, diagonal };
    let svg = frame.draw(|_, plot, labels| {
        let xr = Ruler { lo: x0, hi: x1, ticks: x_ticks, scale: x.scale };
        let yr = Ruler { lo: y0, hi: y1, ticks: ticks(y0, y1, y.scale), scale: y.scale };
        let mut chart = axes(plot, xr, yr, labels)?;
        if diagonal.is_some() {
            let (lo, hi) = (x0.max(y0), x1.min(y1));
            // By hand: plotters' dashes need `hypotf` of glibc 2.35, and nothing else here is so new.
            let at = |share: f64| (lo + (hi - lo) * share, lo + (hi - lo) * share);
            let dash = |i: i32| [f64::from(i), f64::from(i) + 0.6].map(|x| at(x / 60.0)).to_vec();
            chart.draw_series((0..60).map(|i| PathElement::new(dash(i), INK.mix(0.7).stroke_width(1))))?;
        }
        for (i, (_, points, cases)) in drawn.iter().enumerate() {
            let color = PALETTE[i % PALETTE.len()];
            if joined {
                chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
            }
            let style = dot(i, color.mix(if joined { 1.0 } else { 0.7 }));
            chart.draw_series(points.iter().map(|p| Circle::new(*p, 4, style)))?;
            for (p, case) in points.iter().zip(cases).filter(|(_, case)| !case.is_empty()) {
                let (x, y) = chart.backend_coord(p);
                places.push(Place { at: [x - 5, y - 5, 10, 10], case: case.to_string(), tip: names[i].to_string() });
            }
        }
        Ok(())
    });
    with_places(svg, &places)
}

/// Horizontal bars of 100 %, one a label, each split into parts that go from dark to light; the last part is one that must not
/// be, and red. `values[i][j]` is how many of label i are in part j. A legend stands above.
pub fn shares(labels: &[String], parts: &[&str], values: &[Vec<f64>], x_label: &str) -> String {
    let legend: i32 = parts.iter().map(|part| 32 + wide(part, 12)).sum();
    let left = 16 + widest(labels.iter().map(String::as_str), 13);
    let (right, top) = (860.max(left + 400).max(legend), 34);
    let bottom = top + 22 * labels.len() as i32;
    draw((right + 24, bottom + 46), |root| {
        let mut x = left.min(right + 16 - legend);
        for (j, part) in parts.iter().enumerate() {
            key(root, part, part_color(j, parts.len()), (x, 8))?;
            x += 32 + wide(part, 12);
        }
        for (i, (label, row)) in labels.iter().zip(values).enumerate() {
            let y = top + 22 * i as i32;
            say(root, label, (left - 8, y + 9), font(13).pos(at(HPos::Right, VPos::Center)))?;
            split_bar(root, row, (left, right), (y, y + 18))?;
        }
        percents(root, (left, right), bottom, x_label)
    })
}

/// The colour of the j-th of `count` parts.
pub(super) fn part_color(j: usize, count: usize) -> RGBColor {
    if j + 1 == count { BAD } else { shade(0.12 + 0.88 * j as f64 / (count - 2) as f64) }
}

/// One entry of a legend above a chart: a square and its words.
pub(super) fn key(root: &Root, words: &str, color: RGBColor, (x, y): (i32, i32)) -> Drawn {
    root.draw(&Rectangle::new([(x, y), (x + 13, y + 13)], color.filled()))?;
    say(root, words, (x + 18, y + 7), font(12).pos(at(HPos::Left, VPos::Center)))
}

/// A bar of 100 % between two edges, split into parts as large as `row` says.
pub(super) fn split_bar(root: &Root, row: &[f64], (left, right): (i32, i32), (top, bottom): (i32, i32)) -> Drawn {
    let across = |share: f64| left + (f64::from(right - left) * share).round() as i32;
    let all: f64 = row.iter().sum();
    let mut sum = 0.0;
    for (j, v) in row.iter().enumerate().filter(|(_, v)| **v > 0.0) {
        // However few they are, they are seen.
        let from = across(sum / all).min(right - 2);
        let to = across((sum + v) / all).max(from + 2);
        root.draw(&Rectangle::new([(from, top), (to, bottom)], part_color(j, row.len()).filled()))?;
        sum += v;
    }
    Ok(())
}

/// The axis under bars of 100 %.
pub(super) fn percents(root: &Root, (left, right): (i32, i32), y: i32, label: &str) -> Drawn {
    root.draw(&PathElement::new(vec![(left, y), (right, y)], INK.mix(0.6)))?;
    for i in 0..=4 {
        let x = left + (f64::from((right - left) * i) / 4.0).round() as i32;
        say(root, &format!("{} %", 25 * i), (x, y + 6), font(12).pos(at(HPos::Center, VPos::Top)))?;
    }
    say(root, label, ((left + right) / 2, y + 26), font(13).pos(at(HPos::Center, VPos::Top)))
}

/// A colour between dark and pale blue, for a share in 0 … 1. No colour of it is an alarm.
pub(super) fn shade(share: f64) -> RGBColor {
    const STOPS: [RGBColor; 4] =
        [RGBColor(0x17, 0x3a, 0x6e), RGBColor(0x2c, 0x6f, 0xb5), RGBColor(0x6a, 0xad, 0xdb), RGBColor(0xc3, 0xde, 0xf2)];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let (i, part) = ((at as usize).min(STOPS.len() - 2), at - at.floor().min((STOPS.len() - 2) as f64));
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * part).round() as u8;
    let (a, b) = (STOPS[i], STOPS[i + 1]);
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}
