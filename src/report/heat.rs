//! Maps as SVG text: a cell for each element or tile, coloured by its value.

use super::plot::{BAD, INK, Scale, at, draw, font, say, shade, tick, wide};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// How a map is labelled and coloured.
pub struct Map<'a> {
    /// Rows and columns: what they are, and the label of each that gets one.
    pub x: (&'a str, &'a dyn Fn(usize) -> Option<String>),
    pub y: (&'a str, &'a dyn Fn(usize) -> Option<String>),
    /// What a colour is; `0 … most` is dark to light, above and NaN red.
    pub unit: &'a str,
    pub most: f64,
    /// Logarithmic from here to `most`, with a line around what is above; linear where there is none.
    pub least: Option<f64>,
    /// Pixels of a cell.
    pub cell: i32,
    /// A letter in a cell.
    pub mark: &'a dyn Fn(usize, usize) -> Option<&'static str>,
}

impl Map<'_> {
    /// The colour of a value: in steps, so that neighbours of one colour are drawn at once.
    fn color(&self, v: f64) -> RGBColor {
        const STEPS: f64 = 32.0;
        let share = match self.least {
            _ if !(v <= self.most) => return BAD,
            Some(least) => (v.max(least) / least).log10() / (self.most / least).log10(),
            None => v / self.most,
        };
        shade((share * STEPS).round() / STEPS)
    }
    fn over(&self, v: Option<f64>) -> bool {
        v.is_some_and(|v| !(v <= self.most))
    }
}

/// A map of `cells[i][j]`; `None` is an empty cell with an outline.
pub fn map(cells: &[Vec<Option<f64>>], m: &Map) -> String {
    let (rows, cols) = (cells.len() as i32, cells.first().map_or(0, Vec::len) as i32);
    let label = |i: i32, f: &dyn Fn(usize) -> Option<String>| f(i as usize).unwrap_or_default();
    let left = 30 + (0..rows).map(|i| wide(&label(i, m.y.1), 11)).max().unwrap_or(0);
    let (top, right) = (8, left + m.cell * cols);
    let bottom = top + m.cell * rows;
    let half = wide(m.y.0, 12) / 2 + 4;
    // The colours' legend stands below: beside the map it would be past a phone's edge.
    let (least, most) = (m.least.map_or("0".to_string(), |least| format!("{least:.0e}")), tick(m.most, Scale::Linear));
    let bar = left + wide(&least, 11) + 6;
    let red = bar + 90 + 6 + wide(&most, 11) + 12;
    let any_over = m.least.is_some() && cells.iter().flatten().any(|v| m.over(*v));
    let end = if any_over { red + 16 + wide("over", 11) } else { red };
    let across = [right + 6, end, left + wide(m.unit, 11) + 8, left + wide(m.x.0, 12) + 8].into_iter().max().unwrap_or(right);
    let legend = (bottom + 46).max(2 * half);
    let size = (across, legend + 32);
    draw(size, |root| {
        for (i, row) in cells.iter().enumerate() {
            let y = top + m.cell * i as i32;
            say(root, &label(i as i32, m.y.1), (left - 5, y + m.cell / 2), font(11).pos(at(HPos::Right, VPos::Center)))?;
            let mut j = 0;
            while j < row.len() {
                let color = row[j].map(|v| m.color(v));
                // Neighbours of one colour are one rectangle; an empty cell has an outline of its own.
                let same = row[j..].iter().take_while(|v| v.map(|v| m.color(v)) == color).count();
                let run = if color.is_none() { 1 } else { same };
                let x = left + m.cell * j as i32;
                let end = x + m.cell * run as i32;
                match color {
                    Some(c) => root.draw(&Rectangle::new([(x, y), (end, y + m.cell)], c.filled()))?,
                    None => root.draw(&Rectangle::new([(x + 2, y + 2), (end - 2, y + m.cell - 2)], INK.mix(0.6)))?,
                }
                for j in j..j + run {
                    if let Some(mark) = (m.mark)(i, j) {
                        let ink = color.map_or(INK, on);
                        let style = font(11).color(&ink).pos(at(HPos::Center, VPos::Center));
                        say(root, mark, (left + m.cell * j as i32 + m.cell / 2, y + m.cell / 2), style)?;
                    }
                }
                j += run;
            }
        }
        // The line between what is within and what is over.
        let over = |i: usize, j: usize| m.over(cells[i][j]);
        for (i, row) in cells.iter().enumerate().filter(|_| m.least.is_some()) {
            for j in 0..row.len() {
                let (x, y) = (left + m.cell * j as i32, top + m.cell * i as i32);
                if j > 0 && over(i, j) != over(i, j - 1) {
                    root.draw(&PathElement::new(vec![(x, y), (x, y + m.cell)], INK.stroke_width(2)))?;
                }
                if i > 0 && over(i, j) != over(i - 1, j) {
                    root.draw(&PathElement::new(vec![(x, y), (x + m.cell, y)], INK.stroke_width(2)))?;
                }
            }
        }
        for j in 0..cols {
            let x = left + m.cell * j + m.cell / 2;
            say(root, &label(j, m.x.1), (x, bottom + 5), font(11).pos(at(HPos::Center, VPos::Top)))?;
        }
        say(
            root,
            m.x.0,
            (((left + right) / 2).max(wide(m.x.0, 12) / 2 + 4), bottom + 22),
            font(12).pos(at(HPos::Center, VPos::Top)),
        )?;
        let side = font(12).transform(FontTransform::Rotate270).pos(at(HPos::Center, VPos::Top));
        say(root, m.y.0, (4, ((top + bottom) / 2).max(half)), side)?;
        let beside = |x: i32| (x, legend + 22);
        let start = || font(11).pos(at(HPos::Left, VPos::Center));
        say(root, m.unit, (left, legend + 6), start())?;
        say(root, &least, beside(left), start())?;
        for i in 0..45 {
            let (x, color) = (bar + 2 * i, shade(f64::from(i) / 44.0));
            root.draw(&Rectangle::new([(x, legend + 16), (x + 2, legend + 28)], color.filled()))?;
        }
        say(root, &most, beside(bar + 96), start())?;
        if any_over {
            root.draw(&Rectangle::new([(red, legend + 16), (red + 12, legend + 28)], BAD.filled()))?;
            say(root, "over", beside(red + 16), start())?;
        }
        Ok(())
    })
}

/// A map of the report with its numbers, for what a page's script says where a reader points.
pub(super) fn with_cells(svg: &str, cells: &[Vec<f64>], size: i32, (rows, cols): (usize, usize)) -> String {
    let number = |v: &f64| crate::assay::row::short(*v);
    let values: Vec<String> = cells.iter().map(|r| r.iter().map(number).collect::<Vec<_>>().join(" ")).collect();
    // Where the first cell is drawn: behind the labels of the rows.
    let corner = svg.find("<rect ").map_or("", |at| &svg[at..]);
    let of = |name: &str| corner.split(&format!(" {name}=\"")).nth(1).and_then(|v| v.split('"').next()).unwrap_or("0");
    let place = format!("{} {} {size} {rows} {cols}", of("x"), of("y"));
    svg.replacen("role=\"img\"", &format!("role=\"img\" data-cells=\"{place}|{}\"", values.join(";")), 1)
}

/// Black or white, whichever reads better on `c`.
fn on(c: RGBColor) -> RGBColor {
    let luminance = 0.299 * f64::from(c.0) + 0.587 * f64::from(c.1) + 0.114 * f64::from(c.2);
    if luminance > 140.0 { BLACK } else { WHITE }
}
