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
}
