//! Tiles of 128×128: `kernels/common/tile.cuh`.

use super::launch::LaunchShape;
use super::options::define;

/// Rows, and columns, of a tile.
pub const TILE: usize = 128;

/// A block of 256 threads a tile, at least one.
pub fn tiles(rows: usize, cols: usize) -> LaunchShape {
    LaunchShape::new((rows.div_ceil(TILE) * cols.div_ceil(TILE)).max(1), 2 * TILE)
}

/// Whether no piece of a tile is cut.
pub fn is_whole(rows: usize, cols: usize) -> bool {
    rows.is_multiple_of(16) && cols.is_multiple_of(8)
}

/// Option WHOLE.
pub fn whole(rows: usize, cols: usize) -> String {
    define("WHOLE", is_whole(rows, cols))
}
