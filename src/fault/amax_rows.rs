//! An amax that is wrong in some rows of blocks alone, and one that also covers what lanes kept of another row.
//!
//! ```text
//! used[i] = max(amax[i], max |x[i − d][a … b]|)          a … b: the columns that hold what shows, and none that would show elsewhere
//! ```

use crate::Tensor;
use crate::order::Order as _;

/// Bits that the choice of some rows costs.
pub const BITS: f64 = 8.0;
/// Periods of rows: warps of a block, rows of a tile.
const PERIODS: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// How far another row may be, wrong groups at least, and how near an amax is to an element's magnitude, relative.
const FAR: usize = 64;
const LEAST: usize = 4;
const NEAR: f64 = 1.0 / (1u64 << 19) as f64;

/// Rows whose number modulo `every` is from `from` to before `to`, or a run of them.
pub struct SomeRows {
    every: usize,
    from: usize,
    to: usize,
    /// How many rows there are.
    n: usize,
}

/// The rows around the wrong ones of `n`, where these are no more than half of all: the fewest first, of as many the shortest period.
pub fn some(wrong: &[usize], n: usize) -> Vec<SomeRows> {
    if wrong.is_empty() {
        return Vec::new();
    }
    let around = |every: usize| {
        let ends = wrong.iter().map(|r| r % every).fold((every, 0), |m, r| (m.0.min(r), m.1.max(r + 1)));
        SomeRows { every, from: ends.0, to: ends.1, n }
    };
    let share = |s: &SomeRows| (s.to - s.from) as f64 / s.every as f64;
    let all = PERIODS.into_iter().filter(|p| 2 * p <= n).chain([n]).map(around);
    let mut all: Vec<SomeRows> = all.filter(|s| 2.0 * share(s) <= 1.0).collect();
    all.order_by(|a, b| share(a).total_cmp(&share(b)));
    all
}

impl SomeRows {
    pub fn has(&self, row: usize) -> bool {
        (self.from..self.to).contains(&(row % self.every))
    }
    pub fn words(&self) -> String {
        let SomeRows { every, from, to, n } = *self;
        match () {
            () if every == n && to == from + 1 => format!("row {from} of blocks"),
            () if every == n => format!("rows {from} … {} of blocks", to - 1),
            () if to == from + 1 => format!("rows {from}, {}, … of blocks, one of every {every}", from + every),
            () => format!("rows {from} … {} of every {every} rows of blocks", to - 1),
        }
    }
}

/// The columns of another row that the amax of some groups covers too; `used` is what the scale of each group is of, `amax` its own.
pub fn earlier(x: &Tensor, (height, width): (usize, usize), used: &[f64], amax: &[f64]) -> Option<String> {
    let (rows, cols) = (x.rows(), x.cols());
    let across = cols.div_ceil(width.max(1));
    (height == 1 && used.len() == rows * across && amax.len() == used.len()).then_some(())?;
    // Any magnitude is near an infinite one.
    used.iter().all(|u| u.is_finite()).then_some(())?;
    let larger: Vec<bool> = used.iter().zip(amax).map(|(u, a)| *u > a * (1.0 + NEAR)).collect();
    let smaller = used.iter().zip(amax).any(|(u, a)| *u < a * (1.0 - NEAR));
    let count = larger.iter().filter(|l| **l).count();
    (count >= LEAST && !smaller).then_some(())?;
    let distances = (1..=FAR.min(rows.saturating_sub(1)) as isize).flat_map(|d| [-d, d]);
    distances.into_iter().find_map(|d| {
        // Nobody knows what was there before the first row.
        let other = |g: usize| {
            let (row, from) = ((g / across).checked_add_signed(d).filter(|o| *o < rows)?, g % across * width);
            Some(&x.row(row)[from..(from + width).min(cols)])
        };
        // The columns that make what shows; these groups refuse most distances.
        let (mut ends, mut told) = ((width, 0), 0usize);
        for g in (0..used.len()).filter(|g| larger[*g]) {
            let Some(of) = other(g) else { continue };
            let is = |c: &usize| (f64::from(of[*c].abs()) - used[g]).abs() <= NEAR * used[g];
            // Of equal ones that which widens least.
            let near = |c: &usize| (ends.0.saturating_sub(*c)).max((c + 1).saturating_sub(ends.1));
            let c = (0..of.len()).filter(is).min_by_key(near)?;
            (ends, told) = ((ends.0.min(c), ends.1.max(c + 1)), told + 1);
        }
        (2 * told >= count && told >= LEAST).then_some(())?;
        // Columns that would have shown where they do not.
        let mut out = vec![false; width];
        for (g, used) in used.iter().enumerate() {
            for (c, v) in other(g).into_iter().flatten().enumerate() {
                out[c] |= f64::from(v.abs()) > used * (1.0 + NEAR);
            }
        }
        (!out[ends.0..ends.1].contains(&true)).then_some(())?;
        // Of all ends that fit, the roundest.
        let least = (0..=ends.0).rev().take_while(|c| !out[*c]).last()?;
        let most = (ends.1..=width).take_while(|c| *c == ends.1 || !out[c - 1]).last()?;
        let roundest = |a: usize, b: usize| (a..=b).max_by_key(|c| if *c == 0 || *c == width { 64 } else { c.trailing_zeros() });
        let (from, mut to) = (roundest(least, ends.0)?, roundest(ends.1, most)?);
        // Lanes of a power of two that read on past the row's end.
        let lanes = width.next_power_of_two();
        let read_on = d == 1 && from == 0 && across == 1 && (ends.1..=most).contains(&(lanes - width)) && lanes > width;
        if read_on {
            to = lanes - width;
        }
        (to - from < width).then_some(())?;
        let which = if d < 0 { format!("row i − {}", -d) } else { format!("row i + {d}") };
        let why = match read_on {
            true => format!("{lanes} lanes read a row of {width}, and those past its end read on into what follows in memory"),
            false => "lanes bring what they kept of another row".into(),
        };
        Some(format!(
            "amax of a group of row i also covers columns {from} … {} of {which}, where it holds them: {why}, {count} of {} scales are too large",
            to - 1,
            used.len()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    /// 40 rows of 96 whose amax also covers some columns of another row.
    #[test]
    fn columns_of_another_row_are_told() {
        let (rows, cols) = (40, 96);
        let mut word = 77u32;
        let mut next = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f64::from(word >> 8) / 8_388_608.0 - 1.0) as f32
        };
        let x: Vec<f32> = (0..rows * cols).map(|_| next()).collect();
        let x = Tensor::new(Format::F32, rows, cols, x).unwrap();
        let most = |i: usize, from: usize, to: usize| x.row(i)[from..to].iter().fold(0f32, |m, v| m.max(v.abs()));
        let amax: Vec<f64> = (0..rows).map(|i| f64::from(most(i, 0, cols))).collect();
        let said = |of: &dyn Fn(usize) -> f64| {
            let used: Vec<f64> = (0..rows).map(|i| amax[i].max(of(i))).collect();
            earlier(&x, (1, cols), &used, &amax)
        };
        let words = said(&|i| if i < 8 { 0.0 } else { f64::from(most(i - 8, 64, 96)) }).unwrap();
        assert!(words.starts_with("amax of a group of row i also covers columns 64 … 95 of row i − 8"), "{words}");
        let words = said(&|i| if i + 3 < rows { f64::from(most(i + 3, 0, 48)) } else { 0.0 }).unwrap();
        assert!(words.contains("columns 0 … 47 of row i + 3"), "{words}");
        let words = said(&|i| if i + 1 < rows { f64::from(most(i + 1, 0, 32)) } else { 0.0 }).unwrap();
        assert!(words.contains("columns 0 … 31 of row i + 1") && words.contains("128 lanes read a row of 96"), "{words}");
        assert_eq!(said(&|_| 0.0), None);
        assert_eq!(said(&|i| amax[i] * 1.25), None, "no element's");
    }

    #[test]
    fn some_rows_are_those_of_a_period_or_a_run() {
        let words = |wrong: &[usize]| some(wrong, 92).first().map(SomeRows::words);
        assert_eq!(words(&[3, 7, 15, 91]).unwrap(), "rows 3, 7, … of blocks, one of every 4");
        assert_eq!(words(&[1, 3, 7, 9, 15, 91, 29]).unwrap(), "rows 1, 3, … of blocks, one of every 2");
        assert_eq!(words(&[40, 41, 47, 44]).unwrap(), "rows 40 … 47 of blocks");
        assert_eq!(words(&[0, 91, 17, 34, 66, 77]), None);
        assert_eq!(words(&[5]).unwrap(), "row 5 of blocks");
        // Few rows are near each other by chance, too: a period is asked behind the run of them.
        let all: Vec<String> = some(&[3, 7], 92).iter().map(SomeRows::words).collect();
        let one = all.iter().position(|w| w == "rows 3, 7, … of blocks, one of every 4");
        assert!(all[0] == "rows 3 … 7 of blocks" && one.is_some(), "{all:?}");
        assert_eq!(words(&[4, 6, 13, 87]).unwrap(), "rows 4 … 7 of every 8 rows of blocks");
    }
}
