//! Tables of numbers whose cells have colours.

use super::plot::{CELL, Drawn, INK, Place, Root, UNDER, at, draw, font, say, wide, widest, with_places};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// Orange below zero, blue above, nothing at zero; full at ±`most`.
pub(super) fn diverging(x: f64, most: f64) -> RGBAColor {
    let color = if x < 0.0 { RGBColor(0xf2, 0x7a, 0x1a) } else { RGBColor(0x3b, 0x82, 0xd6) };
    // No denser: a page's letters, dark on light or light on dark, are to have a contrast of 4.5 on it.
    color.mix((x.abs() / most).min(1.0) * 0.6)
}

/// A coloured cell at its left, top, right and bottom, and the number in it.
pub(super) fn cell(root: &Root, [x, y, right, bottom]: [i32; 4], color: RGBAColor, (text, px): (&str, i32)) -> Drawn {
    root.draw(&Rectangle::new([(x, y), (right, bottom)], color.filled()))?;
    let style = font(px).color(&CELL).pos(at(HPos::Center, VPos::Center));
    say(root, text, ((x + right + 1) / 2, (y + bottom + 1) / 2), style)
}

/// What lies under the cells between these edges.
pub(super) fn under(root: &Root, [x, y, right, bottom]: [i32; 4]) -> Drawn {
    root.draw(&Rectangle::new([(x, y), (right, bottom)], UNDER.filled()))?;
    Ok(())
}

/// The scale of the colours of cells: its ends in words, and colours between them.
pub(super) fn ramp(root: &Root, ends: [&str; 2], (x, y): (i32, i32), color: impl Fn(f64) -> RGBAColor) -> Drawn {
    say(root, ends[0], (x - 6, y + 7), font(12).pos(at(HPos::Right, VPos::Center)))?;
    under(root, [x, y, x + 120, y + 14])?;
    for i in 0..40 {
        let left = x + 3 * i;
        root.draw(&Rectangle::new([(left, y), (left + 3, y + 14)], color(f64::from(i) / 39.0).filled()))?;
    }
    say(root, ends[1], (x + 126, y + 7), font(12).pos(at(HPos::Left, VPos::Center)))
}

/// A table of numbers.
pub struct Table<'a> {
    pub columns: &'a [String],
    pub rows: &'a [String],
    /// Rows where this is true have a line above.
    pub heads: &'a [bool],
    /// `(number, change)`: the number is written, the change colours the cell. `None` is a missing cell.
    pub cells: &'a [Vec<Option<(f64, f64)>>],
    pub scale: Colours<'a>,
    /// The case of each cell that is one, or nothing.
    pub cases: &'a [Vec<Option<String>>],
}

impl Table<'_> {
    /// The colour of a change.
    pub(super) fn color(&self, change: f64) -> RGBAColor {
        diverging(change, self.scale.from.abs().max(self.scale.to.abs()))
    }

    /// The colour of a share of the way from the first to the last.
    pub(super) fn along(&self, share: f64) -> RGBAColor {
        self.color(self.scale.from + (self.scale.to - self.scale.from) * share)
    }

    /// Where a cell leads.
    pub(super) fn place(&self, (i, j): (usize, usize), at: [i32; 4], (v, change): (f64, f64)) -> Option<Place> {
        let case = self.cases.get(i)?.get(j)?.clone()?;
        let [x, y, right, bottom] = at;
        Some(Place { at: [x, y, right - x, bottom - y], case, tip: format!("{v:.1} ({change:+.1})") })
    }

    /// Draws it: names of columns above, names of rows beside.
    pub fn draw(&self) -> String {
        let Table { columns, rows, heads, cells, scale, .. } = self;
        let [low, high] = scale.ends;
        let mut places = Vec::new();
        let numbers = cells.iter().flatten().flatten().map(|c| wide(&format!("{:.1}", c.0), 12)).max().unwrap_or(0);
        let left = 16 + widest(rows.iter().map(String::as_str), 13).max(wide(low, 12) - 26);
        let (top, cw, ch) = (24 + widest(columns.iter().map(String::as_str), 12), (numbers + 8).max(40), 21);
        let (right, bottom) = (left + cw * columns.len() as i32, top + ch * rows.len() as i32);
        let size = ((right + 16).max(left + 174 + wide(high, 12)), bottom + 44);
        let svg = draw(size, |root| {
            under(root, [left, top, right - 1, bottom - 1])?;
            for (j, name) in columns.iter().enumerate() {
                let style = font(12).transform(FontTransform::Rotate270).pos(at(HPos::Left, VPos::Center));
                say(root, name, (left + cw * j as i32 + cw / 2, top - 6), style)?;
            }
            for (i, name) in rows.iter().enumerate() {
                let y = top + ch * i as i32;
                if heads[i] {
                    root.draw(&PathElement::new(vec![(8, y - 1), (right, y - 1)], INK.mix(0.5)))?;
                }
                say(root, name, (left - 8, y + ch / 2), font(13).pos(at(HPos::Right, VPos::Center)))?;
                for (j, cell) in cells[i].iter().enumerate() {
                    let x = left + cw * j as i32;
                    let Some(c) = cell.filter(|c| c.0.is_finite()) else { continue };
                    let at = [x, y, x + cw - 1, y + ch - 1];
                    self::cell(root, at, self.color(c.1), (&format!("{:.1}", c.0), 12))?;
                    places.extend(self.place((i, j), at, c));
                }
            }
            ramp(root, [low, high], (left + 32, bottom + 14), |share| self.along(share))
        });
        with_places(svg, &places)
    }
}

/// The colours of a table's cells: the changes that have the first and the last colour, and the words beside them.
pub struct Colours<'a> {
    pub from: f64,
    pub to: f64,
    pub ends: [&'a str; 2],
}
