//! Tiles of 128 rows: `kernels/common/tile.cuh`.

use super::launch::LaunchShape;
use super::options::define;

/// Rows, and columns, of a tile.
const TILE: usize = 128;
/// Columns of a narrow one.
pub const NARROW: usize = 64;

/// A block of 256 threads a tile of 128×128, at least one.
pub fn tiles(rows: usize, cols: usize) -> LaunchShape {
    of_width(rows, cols, TILE)
}

/// A block of 128 threads a tile of 128×64, at least one.
pub fn narrow_tiles(rows: usize, cols: usize) -> LaunchShape {
    of_width(rows, cols, NARROW)
}

fn of_width(rows: usize, cols: usize, width: usize) -> LaunchShape {
    LaunchShape::new((rows.div_ceil(TILE) * cols.div_ceil(width)).max(1), 2 * width)
}

/// Whether no piece of a tile is cut.
pub fn is_whole(rows: usize, cols: usize) -> bool {
    rows.is_multiple_of(16) && cols.is_multiple_of(8)
}

/// Option WHOLE.
pub fn whole(rows: usize, cols: usize) -> String {
    define("WHOLE", is_whole(rows, cols))
}
