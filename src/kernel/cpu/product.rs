//! What every product kernel does: tiles of outputs on all cores, sums by [`crate::model::bulk`], scales and zero points in f32.

use super::drawn;
use crate::Result;
use crate::job::{Job, Output};
use crate::kernel::Held;
use crate::model::bulk;
use crate::model::gemm::{Epilogue, corrected, store};
use crate::model::product::{FactorRows, Kind, Plan, Problem};
use crate::parallel;
use std::ops::Range;

/// Rows and columns of a tile: its sums stay in the cache while the factors pass by.
const TILE: usize = 128;

/// Runs a product job. Errors: those of [`Plan::of`].
pub fn run(job: &Job) -> Result<Output> {
    let plan = Plan::of(job)?;
    let mut values = vec![0.0f32; plan.rows * plan.cols];
    for p in plan.problems().filter(|p| p.a.k > 0) {
        let from = p.out_row * plan.cols;
        let rows = &mut values[from..from + p.a_rows.len() * plan.cols];
        if rows.is_empty() {
            continue;
        }
        // Bands of rows are cut so that all cores have work, tiles so that they fit the cache.
        let band = p.a_rows.len().div_ceil(rayon::current_num_threads()).clamp(1, TILE);
        let done = parallel::map_chunks(rows, band * plan.cols, |i, out| {
            let first = p.a_rows.start + i * band;
            let rows = first..p.a_rows.end.min(first + band);
            let columns = |t: usize| p.b_rows.start + t * TILE..p.b_rows.end.min(p.b_rows.start + (t + 1) * TILE);
            // Of one row, or a few, there are fewer bands than cores.
            let of = |t: usize| tile(&plan, &p, rows.clone(), columns(t));
            let tiles: Vec<Vec<f32>> =
                parallel::collect(p.b_rows.len().div_ceil(TILE), of).into_iter().collect::<Result<_>>()?;
            for (t, tile) in tiles.iter().enumerate() {
                let (at, width) = (t * TILE, columns(t).len());
                for (out, tile) in out.chunks_mut(plan.cols).zip(tile.chunks(width)) {
                    out[at..at + width].copy_from_slice(tile);
                }
            }
            Ok(())
        });
        done.into_iter().collect::<Result<()>>()?;
    }
    store(job, &plan, values)
}

/// What `output` is held to: the definition, of a large product at drawn rows and columns. Errors: those of [`Plan::of`].
pub fn hold(job: &Job, output: &Output) -> Result<Held> {
    let (model, drawn) = drawn::predict(job, output)?;
    Ok(Held { model: Some(model), drawn })
}

/// The values of one tile before the output rounding.
fn tile(plan: &Plan, p: &Problem, rows: Range<usize>, cols: Range<usize>) -> Result<Vec<f32>> {
    let epilogue = Epilogue::of(plan, p);
    let n = cols.len();
    let (mut y, mut sums) = (vec![0.0f32; rows.len() * n], vec![0.0f32; rows.len() * n]);
    for k in p.blocks() {
        match plan.kind {
            Kind::Integer => integers(p, rows.clone(), cols.clone(), k.clone(), &mut sums),
            _ => bulk::tile(&plan.accumulator, p.a, rows.clone(), p.b, cols.clone(), k.clone(), &mut sums)?,
        }
        let s_b: Vec<f32> = cols.clone().map(|j| p.b.scale_inv(j, k.start)).collect();
        for (i, (y, sums)) in rows.clone().zip(y.chunks_mut(n).zip(sums.chunks(n))) {
            let s_a = p.a.scale_inv(i, k.start);
            for ((y, sum), s_b) in y.iter_mut().zip(sums).zip(&s_b) {
                *y = epilogue.add(*y, *sum, s_a, *s_b);
            }
        }
    }
    for (i, y) in rows.zip(y.chunks_mut(n)) {
        let s_a = p.a.scale_inv(i, 0);
        for (j, y) in cols.clone().zip(y) {
            *y = epilogue.finish(*y, s_a, plan.bias.map(|bias| bias[j]));
        }
    }
    Ok(y)
}

/// Integer products of one block with the terms of the zero points, rounded to f32.
fn integers(p: &Problem, rows: Range<usize>, cols: Range<usize>, k: Range<usize>, out: &mut [f32]) {
    let load = |s: &FactorRows, row: usize| -> Vec<i32> { s.factors(row, k.clone()).iter().map(|x| *x as i32).collect() };
    let total = |x: &[i32]| x.iter().fold(0i32, |sum, x| sum.wrapping_add(*x));
    let b: Vec<(Vec<i32>, i32, i32)> = cols
        .map(|j| {
            let w = load(p.b, j);
            let sum = total(&w);
            (w, sum, p.b.zero(j, k.start))
        })
        .collect();
    for (i, out) in rows.zip(out.chunks_mut(b.len().max(1))) {
        let x = load(p.a, i);
        let (sum_x, zx) = (total(&x), p.a.zero(i, k.start));
        for ((w, sum_w, zw), out) in b.iter().zip(out) {
            let mut sum = 0;
            bulk::int32(&x, w, &mut sum);
            *out = corrected(sum, sum_x, *sum_w, k.len(), zx, *zw) as f32;
        }
    }
}
