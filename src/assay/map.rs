//! Where the error lives.

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
    /// Reduces `ratios` (row-major, `rows × cols`) to at most 32×32 cells, each the largest of its tile; a NaN stays NaN.
    pub fn new(case: String, why: String, rows: usize, cols: usize, ratios: &[f64]) -> ErrorMap {
        const MOST: usize = 32;
        let (tile_rows, tile_cols) = (rows.div_ceil(MOST).max(1), cols.div_ceil(MOST).max(1));
        let mut cells = vec![vec![0.0f64; cols.div_ceil(tile_cols)]; rows.div_ceil(tile_rows)];
        for (index, ratio) in ratios.iter().enumerate() {
            let cell = &mut cells[index / cols / tile_rows][index % cols / tile_cols];
            if !(*ratio <= *cell) && !cell.is_nan() {
                *cell = *ratio;
            }
        }
        // Four digits are more than a colour can show; upwards, so that what is over 1 stays over it.
        let shown = |v: &mut f64| *v = (*v * 1e4).ceil() / 1e4;
        cells.iter_mut().flatten().for_each(shown);
        ErrorMap { case, why, tile_rows, tile_cols, cells }
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

    #[test]
    fn a_map_is_read_as_it_was_written() {
        let ratios = [0.5, 0.1234567, f64::INFINITY, 0.0, 2.0, 1.0];
        let map = ErrorMap::new("x".into(), String::new(), 2, 3, &ratios);
        assert_eq!(ErrorMap::parse("x".into(), &map.text()), Some(map));
        let large = ErrorMap::new("y".into(), String::new(), 100, 70, &vec![0.25; 7000]);
        assert_eq!((large.tile_rows, large.cells.len(), large.cells[0].len()), (4, 25, 24));
        assert_eq!(ErrorMap::parse("y".into(), &large.text()), Some(large));
        assert_eq!(ErrorMap::parse("x".into(), ""), None);
    }
}
