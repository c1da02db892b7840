//! An amax of groups of a row that also covers elements beside the group: lanes past its end, or before its start, read on in memory without a mask.
//!
//! ```text
//! used[g] = max(amax[g], |x| of the e elements behind g)       e: enough for what shows, and too few for what does not
//! ```

use crate::Tensor;

/// Groups whose scale is too large, at least, and how near an amax is to an element's magnitude, relative.
const LEAST: usize = 6;
const NEAR: f64 = 1.0 / (1u64 << 19) as f64;

/// The elements beside each group that its amax also covers; `used` is what the scale of each group is of, `amax` its own.
pub fn explain(x: &Tensor, (height, width): (usize, usize), used: &[f64], amax: &[f64]) -> Option<String> {
    if used.contains(&f64::INFINITY) {
        return infinite(x, (height, width), used, amax);
    }
    let (rows, cols) = (x.rows(), x.cols());
    let across = cols.div_ceil(width.max(1));
    (height == 1 && width > 1 && used.len() == rows * across && amax.len() == used.len()).then_some(())?;
    let larger: Vec<usize> = (0..used.len()).filter(|g| used[*g] > amax[*g] * (1.0 + NEAR)).collect();
    let smaller = used.iter().zip(amax).any(|(u, a)| *u < a * (1.0 - NEAR));
    (larger.len() >= LEAST && !smaller).then_some(())?;
    for (before, by_row) in [(false, false), (false, true), (true, false), (true, true)] {
        // What lies beside a group, the nearest first; nobody knows what lies outside of the tensor.
        let beside = |g: usize| {
            let (row, c) = (g / across * cols, g % across * width);
            let (start, end) = (row + c, row + (c + width).min(cols));
            let (low, high) = if by_row { (row, row + cols) } else { (0, rows * cols) };
            let count = 2 * width;
            let places = if before { start.saturating_sub(count).max(low)..start } else { end..(end + count).min(high) };
            let all = x.data()[places].iter();
            let all: Box<dyn Iterator<Item = &f32>> = if before { Box::new(all.rev()) } else { Box::new(all) };
            all.map(|v| f64::from(v.abs()))
        };
        let known = |g: usize| by_row || beside(g).count() == 2 * width;
        let reached = |g: usize| {
            let (n, v) = beside(g).enumerate().find(|(_, v)| *v >= used[g] * (1.0 - NEAR))?;
            (v <= used[g] * (1.0 + NEAR)).then_some(n + 1)
        };
        let told: Vec<usize> = larger.iter().copied().filter(|g| known(*g) || reached(*g).is_some()).collect();
        let Some(least) = told.iter().try_fold(0, |m: usize, g| Some(m.max(reached(*g)?))) else { continue };
        if told.len() < LEAST || 2 * told.len() < larger.len() {
            continue;
        }
        let within = |g: usize| beside(g).position(|v| v > used[g] * (1.0 + NEAR)).unwrap_or(2 * width);
        let most = (0..used.len()).map(within).min()?;
        if least > most {
            continue;
        }
        // Of all that fit lanes of a power of two, else the roundest.
        let lanes = (least..=most).find(|e| (width + e).is_power_of_two());
        let e = lanes.or_else(|| (least..=most).max_by_key(|e| e.trailing_zeros()))?;
        let (which, side) = if before { ("last", "before") } else { ("first", "behind") };
        let over = match (by_row, before) {
            (true, _) => ", within its row",
            (false, false) => ", behind the last of a row those of the next row",
            (false, true) => ", before the first of a row those of the row before",
        };
        let why = match lanes {
            Some(_) => format!("{} lanes read a group of {width} without a mask", width + e),
            None => "they are not masked".into(),
        };
        return Some(format!(
            "amax of a group also covers the {which} {e} elements {side} it{over}: {why}; {} of {} scales are too large",
            larger.len(),
            used.len()
        ));
    }
    None
}

/// An amax that is infinite though no value is: of the last, short group of every row, whose lanes past the end bring an infinity, or of others.
fn infinite(x: &Tensor, (height, width): (usize, usize), used: &[f64], amax: &[f64]) -> Option<String> {
    let (rows, cols) = (x.rows(), x.cols());
    let across = cols.div_ceil(width.max(1));
    (used.len() == rows.div_ceil(height.max(1)) * across && amax.len() == used.len()).then_some(())?;
    let wrong: Vec<usize> = (0..used.len()).filter(|g| used[*g] == f64::INFINITY && amax[*g].is_finite()).collect();
    let others = (0..used.len()).all(|g| used[g] == f64::INFINITY || (used[g] - amax[g]).abs() <= NEAR * amax[g]);
    (!wrong.is_empty() && others).then_some(())?;
    let short = cols % width.max(1);
    let ends = short > 0 && wrong.len() * across == used.len() && wrong.iter().all(|g| g % across == across - 1);
    let which = match ends {
        true => format!(
            "of the last, short group of every row: the {} lanes past its end bring an infinity, as from the start of a maximum",
            width - short
        ),
        false => format!("of {} of {} groups, whose values are all finite", wrong.len(), used.len()),
    };
    Some(format!("amax is infinite, and with it the scale, {which}"))
}

/// Short groups at the end of rows whose scale is too large, at least, for the start of their row.
const WRAPPED: usize = 3;

/// Whether the amax of the last, short group of a row also covers the start of its row: columns are counted modulo those that there are.
pub fn wrapped(x: &Tensor, (height, width): (usize, usize), used: &[f64], amax: &[f64]) -> Option<String> {
    let (rows, cols) = (x.rows(), x.cols());
    let across = cols.div_ceil(width.max(1));
    let short = cols % width.max(1);
    (height == 1 && across > 1 && short > 0 && used.len() == rows * across && amax.len() == used.len()).then_some(())?;
    let more = width - short;
    let near = |a: f64, b: f64| (a - b).abs() <= NEAR * b.abs();
    let wrong: Vec<usize> = (0..used.len()).filter(|g| !near(used[*g], amax[*g])).collect();
    let last = |g: &usize| g % across == across - 1;
    (wrong.len() >= WRAPPED && wrong.iter().all(last)).then_some(())?;
    let all = |row: usize| {
        let start = x.row(row)[..more].iter().fold(0f32, |m, v| m.max(v.abs()));
        near(used[row * across + across - 1], amax[row * across + across - 1].max(f64::from(start)))
    };
    (0..rows).all(all).then(|| {
        format!(
            "amax of the last, short group of a row also covers columns 0 … {} of the row: its {width} lanes count columns modulo {cols}; {} of {rows} scales \
             of such groups are too large",
            more - 1,
            wrong.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    const ROWS: usize = 20;
    const COLS: usize = 120;

    /// What is said of groups of 24 whose amax is that of places `of` group g too.
    fn said(of: &dyn Fn(usize) -> std::ops::Range<usize>) -> String {
        let mut word = 19u32;
        let mut next = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f64::from(word >> 8) / 8_388_608.0 - 1.0) as f32
        };
        let x = Tensor::new(Format::F32, ROWS, COLS, (0..ROWS * COLS).map(|_| next()).collect()).unwrap();
        let most = |at: std::ops::Range<usize>| x.data()[at].iter().fold(0f32, |m, v| m.max(v.abs()));
        let groups = 0..ROWS * COLS / 24;
        let amax: Vec<f64> = groups.clone().map(|g| f64::from(most(g * 24..g * 24 + 24))).collect();
        let used: Vec<f64> = groups.map(|g| amax[g].max(f64::from(most(of(g))))).collect();
        explain(&x, (1, 24), &used, &amax).unwrap_or_default()
    }

    #[test]
    fn elements_beside_a_group_are_told() {
        let n = ROWS * COLS;
        let words = said(&|g| (g * 24 + 24).min(n)..(g * 24 + 32).min(n));
        assert!(
            words.starts_with("amax of a group also covers the first 8 elements behind it, behind the last of a row"),
            "{words}"
        );
        assert!(words.contains("32 lanes read a group of 24 without a mask"), "{words}");
        let end = |g: usize| (g / 5 + 1) * COLS;
        let words = said(&|g| (g * 24 + 24).min(end(g))..(g * 24 + 36).min(end(g)));
        assert!(words.contains("the first 12 elements behind it, within its row: they are not masked"), "{words}");
        let words = said(&|g| (g * 24).saturating_sub(4)..g * 24);
        assert!(words.contains("the last 4 elements before it, before the first of a row"), "{words}");
        assert_eq!(said(&|g| g * 24..g * 24 + 24), "");
        assert_eq!(said(&|g| (g * 37 + 300) % (n - 8)..(g * 37 + 300) % (n - 8) + 8), "", "elsewhere");
    }

    #[test]
    fn an_infinite_amax_is_told() {
        let x = Tensor::new(Format::F32, 8, 80, (0..640).map(|n| (n * 7919 % 1009) as f32 / 100.0 - 5.0).collect()).unwrap();
        let amax = [3.0; 24];
        let by = |is: &dyn Fn(usize) -> bool, else_: f64| -> Option<String> {
            let used: Vec<f64> = (0..24).map(|g| if is(g) { f64::INFINITY } else { else_ }).collect();
            explain(&x, (1, 32), &used, &amax)
        };
        assert!(by(&|g| g % 3 == 2, 3.0).unwrap().contains("of the last, short group of every row: the 16 lanes past its end"));
        assert!(by(&|g| g % 3 == 1, 3.0).unwrap().contains("of 8 of 24 groups, whose values are all finite"));
        assert_eq!(by(&|g| g % 3 == 2, 3.5), None, "the others are of another amax too");
    }

    /// Groups of 32 of 80 columns: the last has 16, and 16 lanes more.
    #[test]
    fn a_short_group_that_goes_round_is_told() {
        let x: Vec<f32> = (0..20 * 80).map(|n| (n * 7919 % 1009) as f32 / 100.0 - 5.0).collect();
        let x = Tensor::new(Format::F32, 20, 80, x).unwrap();
        let most = |r: usize, at: std::ops::Range<usize>| x.row(r)[at].iter().fold(0f32, |m, v| m.max(v.abs()));
        let amax: Vec<f64> = (0..60).map(|g| f64::from(most(g / 3, g % 3 * 32..(g % 3 * 32 + 32).min(80)))).collect();
        let also = |e: usize| -> Vec<f64> {
            (0..60).map(|g| if g % 3 == 2 { amax[g].max(f64::from(most(g / 3, 0..e))) } else { amax[g] }).collect()
        };
        let words = wrapped(&x, (1, 32), &also(16), &amax).unwrap();
        assert!(words.contains("also covers columns 0 … 15 of the row: its 32 lanes count columns modulo 80"), "{words}");
        assert_eq!(wrapped(&x, (1, 32), &also(40), &amax), None, "more of the row than lanes");
        assert_eq!(wrapped(&x, (1, 32), &amax, &amax), None);
    }
}
