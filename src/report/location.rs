//! Where an error lives, as a figure: the share of wrong elements along each axis that an error can lie along.

use super::cells::{cell as coloured, diverging, ramp, under};
use super::figures::{Figure, csv};
use super::plot::{at, draw, font, say, wide, widest};
use crate::fault::locate::Location;
use plotters::style::text_anchor::{HPos, VPos};

/// Bands that an axis is drawn in.
const BANDS: usize = 16;

/// The axes of a location: its name and the share of each of at most [`BANDS`] bands, in percent.
fn axes(l: &Location) -> Vec<(&'static str, Vec<f64>)> {
    let all = [
        ("rows", &l.rows),
        ("columns", &l.cols),
        ("slice of K: share of the error", &l.k),
        ("magnitude, small to large", &l.magnitudes),
        ("right code, in order", &l.codes),
        ("negative, positive", &l.signs.to_vec()),
    ];
    all.into_iter().filter(|(_, v)| !v.is_empty()).map(|(name, v)| (name, bands(v))).collect()
}

/// Means of neighbours, so that at most [`BANDS`] are left.
fn bands(v: &[f64]) -> Vec<f64> {
    let n = v.len().min(BANDS);
    let band = |i: usize| &v[i * v.len() / n..(i + 1) * v.len() / n];
    (0..n).map(|i| 100.0 * band(i).iter().sum::<f64>() / band(i).len() as f64).collect()
}

/// Percentages in strips, each below its name: as narrow as a phone.
fn strips(all: &[(&str, Vec<f64>)], unit: &str) -> String {
    let (left, cell, line) = (4, 20, 44);
    let longest = widest(all.iter().map(|s| s.0), 13);
    let most = all.iter().map(|s| s.1.len() as i32).max().unwrap_or(0);
    let (from, to) = (left + 14, left + 136);
    let size = ((left + cell * most).max(left + longest).max(to + 34 + wide(unit, 12)) + 4, line * all.len() as i32 + 30);
    draw(size, |root| {
        for (i, (name, percent)) in all.iter().enumerate() {
            let y = line * i as i32;
            say(root, name, (left, y + 10), font(13).pos(at(HPos::Left, VPos::Center)))?;
            under(root, [left, y + 19, left + cell * percent.len() as i32 - 1, y + 38])?;
            for (j, v) in percent.iter().enumerate() {
                let x = left + cell * j as i32;
                // Three digits would touch their neighbours.
                let px = if *v < 99.5 { 11 } else { 9 };
                let color = diverging(-v / 2.0, 50.0);
                coloured(root, [x, y + 19, x + cell - 1, y + 38], color, (&format!("{v:.0}"), px))?;
            }
        }
        ramp(root, ["0", &format!("100 {unit}")], (from, size.1 - 20), |share| diverging(-50.0 * share, 50.0))
    })
}

/// One chart a failed result; none where nothing failed.
pub fn figure(locations: &[(String, Location)]) -> Option<Figure> {
    let drawn: Vec<_> = locations.iter().filter(|(_, l)| !l.rows.is_empty()).collect();
    let chart = |(name, l): &&(String, Location)| (format!("{name}: {}", l.words), strips(&axes(l), "percent wrong"));
    let lines = drawn.iter().flat_map(|(name, l)| {
        axes(l).into_iter().flat_map(move |(axis, v)| {
            v.into_iter()
                .enumerate()
                .map(move |(i, x)| [name.clone(), axis.to_string(), (i + 1).to_string(), format!("{x:.3}")])
        })
    });
    (!drawn.is_empty()).then(|| Figure {
        id: "location",
        slim: None,
        title: "Where the error lives",
        see: "The percentage of elements that are wrong: in each band of rows, in each band of columns, and by magnitude, code and sign of the \
              right value. For a product, also the percentage of the error that each slice of K explains: the squared correlation of the error with \
              the slice's partial sum."
            .into(),
        charts: drawn.iter().map(chart).collect(),
        data: csv(["result", "axis", "band", "percent"], lines),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside the margins of a page of 360 pixels.
    #[test]
    fn the_figure_is_no_wider_than_a_phone() {
        let half = vec![0.5; 40];
        let location = Location {
            words: "everywhere".into(),
            rows: half.clone(),
            cols: half.clone(),
            k: half.clone(),
            magnitudes: half.clone(),
            codes: half,
            signs: [1.0, 0.0],
            ..Location::default()
        };
        let figure = figure(&[("a".into(), location)]).unwrap();
        let width =
            |svg: &str| svg.split("viewBox=\"0 0 ").nth(1).and_then(|v| v.split(' ').next()?.parse::<u32>().ok()).unwrap();
        assert!(width(&figure.charts[0].1) <= 334, "{}", width(&figure.charts[0].1));
        let cells = vec![vec![2.0; 64]; 64];
        let map = crate::assay::map::ErrorMap { case: "c".into(), why: "w".into(), tile_rows: 128, tile_cols: 128, cells };
        let map = super::super::grids::error_maps(&[map]).unwrap();
        assert!(width(&map.charts[0].1) <= 334, "{}", width(&map.charts[0].1));
    }

    #[test]
    fn each_axis_has_its_bands_and_its_data() {
        let rows = (0..64).map(|i| f64::from(u8::from(i < 4))).collect();
        let location = Location { words: "4 of 64 rows".into(), rows, signs: [0.25, 0.0], ..Location::default() };
        let figure = figure(&[("a".into(), location)]).unwrap();
        assert!(figure.data.contains("a,rows,1,100.000") && figure.data.contains("a,rows,2,0.000"), "{}", figure.data);
        assert!(figure.data.contains("a,rows,16,0.000") && !figure.data.contains("a,rows,17"), "{}", figure.data);
        assert!(figure.data.contains("\"negative, positive\",1,25.000"), "{}", figure.data);
        assert!(figure.charts[0].0.contains("4 of 64 rows"));
        assert!(super::figure(&[("right".into(), Location::default())]).is_none());
    }
}
