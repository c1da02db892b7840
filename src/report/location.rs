//! Where an error lives, as a figure: the share of wrong elements along each axis that an error can lie along.

use super::figures::{Figure, csv};
use super::plot;
use crate::fault::locate::Location;

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

/// One chart a failed result; none where nothing failed.
pub fn figure(locations: &[(String, Location)]) -> Option<Figure> {
    let drawn: Vec<_> = locations.iter().filter(|(_, l)| !l.rows.is_empty()).collect();
    let columns: Vec<String> = (1..=BANDS).map(|i| i.to_string()).collect();
    let scale = plot::Colours { from: 0.0, to: -50.0, ends: ["0", "100 percent wrong"] };
    let chart = |(name, l): &&(String, Location)| {
        let axes = axes(l);
        let rows: Vec<String> = axes.iter().map(|a| a.0.to_string()).collect();
        let cell = |v: &Vec<f64>, i: usize| v.get(i).map(|x| (*x, -x / 2.0));
        let cells: Vec<Vec<_>> = axes.iter().map(|a| (0..BANDS).map(|i| cell(&a.1, i)).collect()).collect();
        let svg = plot::table(&columns, &rows, &vec![false; rows.len()], &cells, &scale, &[]);
        (format!("{name}: {}", l.words), svg)
    };
    let lines = drawn.iter().flat_map(|(name, l)| {
        axes(l).into_iter().flat_map(move |(axis, v)| {
            v.into_iter()
                .enumerate()
                .map(move |(i, x)| [name.clone(), axis.to_string(), (i + 1).to_string(), format!("{x:.3}")])
        })
    });
    (!drawn.is_empty()).then(|| Figure {
        id: "location",
        title: "Where the error lives",
        see: "Percent of the elements that are wrong in each band of rows and columns, by magnitude, by the right code and by sign of the right \
              value, first to last; of a product also the squared correlation, in percent, of the error with the partial sum of each slice of K."
            .into(),
        charts: drawn.iter().map(chart).collect(),
        data: csv(["result", "axis", "band", "percent"], lines),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
