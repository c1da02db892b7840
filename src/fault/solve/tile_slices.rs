//! Tiles of the result that each lose, or count twice, slices of K of their own: what a race leaves of a split K, or a schedule that forgets.
//!
//! ```text
//! out[i, j] = Σ_s c[tile(i, j), s] · Σ_{k in s} A(i, k)·B(j, k)          c = 1 in a right kernel; 0 lost, 2 twice
//! ```
//!
//! Every small patch of the result says its own c by least squares. Patches of equal c are the tiles.

use super::linear::Normal;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::parallel;
use std::ops::Range;
use std::sync::Arc;

/// Widths of slices, the fewest unknowns first; slices at most.
const WIDTHS: [usize; 6] = [512, 256, 128, 64, 32, 16];
const SLICES: usize = 32;
/// Rows and columns of a patch: as many elements as tell so many unknowns.
const PATCHES: [(usize, usize, usize); 3] = [(8, 8, 20), (8, 32, 32), (1, 64, 20)];
/// How far a coefficient may be from a whole number.
const NEAR: f64 = 0.2;
/// Multiply-adds of one width, and elements.
const WORK: usize = 1 << 29;
const ELEMENTS: usize = 1 << 22;
/// Tiles that are named.
const NAMED: usize = 4;

/// Slices of one width, patches of one size.
struct Cutting<'s> {
    s: &'s System<'s>,
    width: usize,
    slices: usize,
    height: usize,
    wide: usize,
}

/// What became of each slice.
type Fates = Vec<u8>;

impl Cutting<'_> {
    fn grid(&self) -> (usize, usize) {
        (self.s.rows.div_ceil(self.height), self.s.cols.div_ceil(self.wide))
    }

    fn inside(&self, patch: usize) -> (Range<usize>, Range<usize>) {
        let (r, c) = (patch / self.grid().1, patch % self.grid().1);
        let (i, j) = (r * self.height, c * self.wide);
        (i..(i + self.height).min(self.s.rows), j..(j + self.wide).min(self.s.cols))
    }

    /// The sum of every slice, and Σ|ab|.
    fn sums(&self, i: usize, j: usize) -> Option<(Vec<f64>, f64)> {
        let (ra, rb, _) = self.s.lines(i, j)?;
        let k = self.s.k;
        let (a, b) = (&self.s.a.values[ra * k..(ra + 1) * k], &self.s.b.values[rb * k..(rb + 1) * k]);
        let mut size = 0.0;
        let one = |(a, b): (&[f64], &[f64])| {
            a.iter().zip(b).fold(0.0, |sum, (a, b)| {
                size += (a * b).abs();
                sum + a * b
            })
        };
        Some((a.chunks(self.width).zip(b.chunks(self.width)).map(one).collect(), size))
    }

    /// `None`: whole numbers of slices do not make what is written there.
    fn of_patch(&self, patch: usize) -> Option<Fates> {
        let (rows, cols) = self.inside(patch);
        let wrong = rows.clone().any(|i| cols.clone().any(|j| self.s.is_wrong[i * self.s.cols + j]));
        if !wrong {
            return Some(vec![1; self.slices]);
        }
        let mut system = Normal::new(self.slices);
        let mut all = Vec::new();
        for (i, j) in rows.flat_map(|i| cols.clone().map(move |j| (i, j))) {
            let (sums, size) = self.sums(i, j)?;
            let Some((y, half)) = self.s.written(i, j, size) else { continue };
            system.add(&sums, y, 1.0 / (half * half));
            all.push((sums, y, half));
        }
        // The last row of patches may be short: what it cannot tell is not told.
        (all.len() >= self.slices + 4).then_some(())?;
        let c = system.solve()?;
        let is_fate = |c: &f64| (c - c.round()).abs() <= NEAR && (0.0..=2.0).contains(&c.round());
        c.iter().all(is_fate).then_some(())?;
        let c: Vec<f64> = c.iter().map(|c| c.round()).collect();
        let fits = |(sums, y, half): &(Vec<f64>, f64, f64)| {
            let sum: f64 = sums.iter().zip(&c).map(|(x, c)| x * c).sum();
            (sum - y).abs() <= 2.0 * half
        };
        all.iter().all(fits).then(|| c.into_iter().map(|c| c as u8).collect())
    }

    /// Of every patch.
    fn fates(&self) -> Option<Vec<Fates>> {
        let (down, across) = self.grid();
        // One wrong patch refuses most.
        let wrong = self.s.is_wrong.iter().position(|w| *w)?;
        self.of_patch(wrong / self.s.cols / self.height * across + wrong % self.s.cols / self.wide)?;
        parallel::every(down * across, |p| self.of_patch(p))
    }

    /// The largest tiles that are of one kind each, in patches down and across.
    fn tile(&self, fates: &[Fates]) -> (usize, usize) {
        let (down, across) = self.grid();
        let alike = |h: usize, w: usize| {
            (0..down * across).all(|p| fates[p] == fates[p / across / h * h * across + p % across / w * w])
        };
        let mut tile = (1, 1);
        while 2 * tile.0 <= down && alike(2 * tile.0, tile.1) {
            tile.0 *= 2;
        }
        while 2 * tile.1 <= across && alike(tile.0, 2 * tile.1) {
            tile.1 *= 2;
        }
        tile
    }

    fn theory(&self, fates: Vec<Fates>) -> Theory {
        let (down, across) = self.grid();
        let (h, w) = self.tile(&fates);
        let tiles = (down.div_ceil(h), across.div_ceil(w));
        let of_tile = |t: usize| &fates[t / tiles.1 * h * across + t % tiles.1 * w];
        let wrong: Vec<usize> = (0..tiles.0 * tiles.1).filter(|t| of_tile(*t).iter().any(|c| *c != 1)).collect();
        let mut kinds: Vec<&Fates> = wrong.iter().map(|t| of_tile(*t)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let span = |x: usize| format!("{} … {}", x * self.width, ((x + 1) * self.width).min(self.s.k) - 1);
        let of = |t: &usize| {
            let with = |c: u8| (0..self.slices).filter(|x| of_tile(*t)[*x] == c).map(span).collect::<Vec<_>>();
            let (lost, twice) = (with(0), with(2));
            let lost = (!lost.is_empty()).then(|| lost.join(", "));
            let twice = (!twice.is_empty()).then(|| format!("{} twice", twice.join(", ")));
            let what: Vec<String> = lost.into_iter().chain(twice).collect();
            format!("tile ({}, {}) {}", t / tiles.1, t % tiles.1, what.join(" and "))
        };
        let named: Vec<String> = wrong.iter().take(NAMED).map(of).collect();
        let verb = |c: u8| wrong.iter().any(|t| of_tile(*t).contains(&c));
        let verb = match (verb(0), verb(2)) {
            (true, true) => "lost or counted twice",
            (false, true) => "counted twice",
            _ => "lost",
        };
        let words = format!(
            "slices of {} of K are {verb}, by tile of {}×{} others: {}{}",
            self.width,
            h * self.height,
            w * self.wide,
            named.join("; "),
            if wrong.len() > NAMED { format!("; … {} tiles in all", wrong.len()) } else { String::new() }
        );
        let choice = ((kinds.len() + 1) as f64).log2() * wrong.len() as f64;
        let mut t = Theory::new(Class::AccState, "out", "out.tile_slices", words)
            .bits(12.0 + (self.slices as f64 * kinds.len() as f64).min(96.0) + choice);
        let change = |at: usize| {
            let (i, j) = (at / self.s.cols, at % self.s.cols);
            let fates = &fates[i / self.height * across + j / self.wide];
            if fates.iter().all(|c| *c == 1) {
                return 0.0;
            }
            self.sums(i, j).map_or(0.0, |(sums, _)| sums.iter().zip(fates).map(|(x, c)| (f64::from(*c) - 1.0) * x).sum())
        };
        let changes: Vec<f64> = parallel::collect(self.s.rows * self.s.cols, change);
        let (bias, cols) = (Arc::new(self.s.bias.clone()), self.s.cols);
        t.finish = Some(Arc::new(move |i, j, v| v + changes[i * cols + j] + bias.at(i, j)));
        t
    }
}

/// The slices that every tile lost, where patches say different things.
pub fn theories(s: &System) -> Vec<Theory> {
    let elements = s.rows * s.cols;
    if s.alone || s.parts.len() != 1 || elements > ELEMENTS || elements * s.k > WORK {
        return Vec::new();
    }
    let cut = |width: usize| {
        let slices = s.k.div_ceil(width);
        let fits = |(h, w, most): &&(usize, usize, usize)| *h <= s.rows && *w <= s.cols && slices <= *most;
        let (height, wide, _) = *PATCHES.iter().find(fits)?;
        (2..=SLICES).contains(&slices).then_some(Cutting { s, width, slices, height, wide })
    };
    let found = WIDTHS.into_iter().filter_map(cut).find_map(|cut| cut.fates().map(|fates| (cut, fates)));
    let Some((cut, fates)) = found else { return Vec::new() };
    // All alike is a range of K, and said in fewer words.
    if fates.iter().all(|f| *f == fates[0]) { Vec::new() } else { vec![cut.theory(fates)] }
}
