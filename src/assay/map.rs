//! Where the error lives.

use crate::Result;
use crate::compare::Bound;

/// Largest error over its bound in each tile of a case's result.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorMap {
    /// Name of the case.
    pub case: String,
    /// Why it was chosen.
    pub why: String,
    /// Elements a cell stands for.
    pub tile_rows: usize,
    pub tile_cols: usize,
    pub cells: Vec<Vec<f64>>,
}

impl ErrorMap {
    /// Of a result `actual` with `cols` columns: at most 32×32 cells, each the largest ratio of its tile; a NaN stays NaN. Errors: a length that
    /// is not the bound's.
    pub fn of(case: String, bound: &Bound, actual: &[f64], cols: usize) -> Result<ErrorMap> {
        let rows = actual.len().checked_div(cols).unwrap_or(0);
        let tile = Self::tile(rows, cols);
        Ok(Self::of_largest(case, tile, bound.largest_ratios(actual, cols, tile)?))
    }
    /// Rows and columns of a tile of a result.
    pub(crate) fn tile(rows: usize, cols: usize) -> (usize, usize) {
        const MOST: usize = 32;
        (rows.div_ceil(MOST).max(1), cols.div_ceil(MOST).max(1))
    }
    /// Of the largest ratio of each tile.
    pub(crate) fn of_largest(case: String, (tile_rows, tile_cols): (usize, usize), mut cells: Vec<Vec<f64>>) -> ErrorMap {
        // Four digits are more than a colour can show; upwards, so that what is over 1 stays over it.
        let shown = |v: &mut f64| *v = (*v * 1e4).ceil() / 1e4;
        cells.iter_mut().flatten().for_each(shown);
        ErrorMap { case, why: String::new(), tile_rows, tile_cols, cells }
    }
    /// Sizes of a tile and the cells, rows of them between `/`: [`ErrorMap::parse`] reads it.
    pub fn text(&self) -> String {
        let rows = self.cells.iter().map(|row| row.iter().map(|c| c.to_string()).collect::<Vec<_>>().join(" "));
        format!("{} {}/{}", self.tile_rows, self.tile_cols, rows.collect::<Vec<_>>().join("/"))
    }
    /// What [`ErrorMap::text`] says of a case; none of another text.
    pub fn parse(case: String, text: &str) -> Option<ErrorMap> {
        let (sizes, cells) = text.split_once('/')?;
        let (tile_rows, tile_cols) = sizes.split_once(' ')?;
        let row = |row: &str| row.split(' ').map(|c| c.parse().ok()).collect::<Option<Vec<f64>>>();
        let cells = cells.split('/').map(row).collect::<Option<_>>()?;
        Some(ErrorMap {
            case,
            why: String::new(),
            tile_rows: tile_rows.parse().ok()?,
            tile_cols: tile_cols.parse().ok()?,
            cells,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::OutFormat;

    #[test]
    fn a_map_is_read_as_it_was_written() {
        let out = OutFormat::high(crate::Format::F32);
        let map = |rows: usize, cols: usize| {
            let ideal = vec![1.0; rows * cols];
            let bound = Bound::from_radius(ideal.clone(), vec![0.5; rows * cols], &out).unwrap();
            let actual: Vec<f64> = (0..rows * cols).map(|i| 1.0 + (i % 97) as f64 / 150.0).collect();
            let map = ErrorMap::of("x".into(), &bound, &actual, cols).unwrap();
            let ratios = bound.ratios(&actual).unwrap();
            for (i, cells) in map.cells.iter().enumerate() {
                for (j, cell) in cells.iter().enumerate() {
                    let rows = i * map.tile_rows..rows.min((i + 1) * map.tile_rows);
                    let cols_of = j * map.tile_cols..cols.min((j + 1) * map.tile_cols);
                    let inside = rows.flat_map(|r| cols_of.clone().map(move |c| r * cols + c)).map(|at| ratios[at]);
                    let largest = inside.fold(0.0, f64::max);
                    assert!((largest..largest + 1e-4).contains(cell), "({i}, {j}): {cell}, {largest}");
                }
            }
            map
        };
        let small = map(2, 3);
        assert_eq!(ErrorMap::parse("x".into(), &small.text()), Some(small));
        let large = map(100, 70);
        assert_eq!((large.tile_rows, large.cells.len(), large.cells[0].len()), (4, 25, 24));
        assert_eq!(ErrorMap::parse("x".into(), &large.text()), Some(large));
        assert_eq!(ErrorMap::parse("x".into(), ""), None);
    }
}
