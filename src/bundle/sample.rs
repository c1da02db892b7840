//! A sample of a large product: whole rows and columns of the result, each an exact part of it, cut from the file before anything is
//! computed. The file is mapped: what is not drawn is never read.

use super::file::{File, Raw};
use crate::input::philox::Stream;
use crate::order::Order as _;
use crate::{Granularity, Result};

/// How much of a product is judged.
#[derive(Clone, Copy, Debug)]
pub enum Sample {
    /// So many rows and so many columns.
    Each(usize),
    /// As many as can be judged, and a failure diagnosed, in so many bytes.
    Memory(u64),
}

/// Rows are drawn in runs of so many, so that what is wrong with a tile stays together.
const RUN: usize = 16;
/// Bytes that an element of the result and one of an operand take while they are judged and diagnosed, at most: measured.
const RESULT: u64 = 180;
const OPERAND: u64 = 40;

impl Sample {
    fn each(self, k: usize) -> usize {
        match self {
            Sample::Each(each) => each,
            Sample::Memory(bytes) => {
                // RESULT·n² + 2·OPERAND·k·n = bytes.
                let half = (OPERAND * k as u64) as f64 / RESULT as f64;
                ((half * half + bytes as f64 / RESULT as f64).sqrt() - half) as usize
            }
        }
    }
}

/// The part of a gemm's bundle that is drawn, and what was drawn in words. `None`: the sample is the whole. Errors: another op, scales that
/// do not lie along the rows; tensors that the bundle lacks are found when it is read.
pub fn gemm(file: &File, sample: Sample) -> Result<Option<(File, String)>> {
    let op = file.metadata.get("op").map_or("", String::as_str);
    if op != "gemm" {
        let expected = "op `gemm`: rows of other results are not products of their own; judge it whole".into();
        return Err(file.bad(format!("op `{op}`, of which no sample can be taken"), expected));
    }
    let first = |names: [&str; 2]| names.iter().find_map(|n| file.get(n).map(|raw| (raw, n.to_string())));
    let (Some((a, _)), Some((b, _)), Some((_, out))) =
        (first(["a", "a.codes"]), first(["b", "b.codes"]), first(["out", "out.codes"]))
    else {
        return Ok(None);
    };
    let ([m, _], [n, _]) = (&a.shape[..], &b.shape[..]) else { return Ok(None) };
    let k = file.get("a").or_else(|| file.get("a.codes")).map_or(1, |raw| raw.shape[1]);
    let each = sample.each(k);
    let (rows, cols) = (draw(*m, each, block(file, "a")?, 0), draw(*n, each, block(file, "b")?, 1));
    if rows.len() == *m && cols.len() == *n {
        return Ok(None);
    }
    let mut cut = file.clone();
    for (x, lines, count) in [("a", &rows, *m), ("b", &cols, *n)] {
        let block = block(file, x)?;
        let blocks: Vec<usize> = lines.iter().filter(|i| *i % block == 0).map(|i| i / block).collect();
        for name in [x.to_string(), format!("{x}.codes")] {
            replace(&mut cut, &name, lines, count)?;
        }
        if granularity(file, x)? != Granularity::Tensor {
            for name in ["scale_inv", "zero_point"].map(|part| format!("{x}.{part}")) {
                replace(&mut cut, &name, &blocks, count.div_ceil(block))?;
            }
        }
        let second = format!("{x}.global_granularity");
        if file.metadata.get(&second).is_some_and(|g| g != "tensor") {
            for name in ["global_scale_inv", "global_zero_point"].map(|part| format!("{x}.{part}")) {
                replace(&mut cut, &name, &blocks, count.div_ceil(block))?;
            }
        }
    }
    replace(&mut cut, "bias", &cols, *n)?;
    replace(&mut cut, &out, &rows, *m)?;
    columns(&mut cut, &out, &cols, *n)?;
    // Of all rows: the largest magnitude, and what a recipe makes of it.
    for name in ["out.amax", "out.transpose"] {
        cut.remove(name);
    }
    cut.metadata.remove("recipe");
    let words = format!(
        "{} of {m} rows and {} of {n} columns, in runs of {RUN}; places are those of the sample; operands are not checked against a recipe",
        rows.len(),
        cols.len()
    );
    Ok(Some((cut, words)))
}

fn granularity(file: &File, x: &str) -> Result<Granularity> {
    file.metadata.get(&format!("{x}.granularity")).map_or(Ok(Granularity::Tensor), |text| text.parse())
}

/// Rows that share a scale.
fn block(file: &File, x: &str) -> Result<usize> {
    Ok(match granularity(file, x)? {
        Granularity::Block { rows, .. } => rows,
        _ => 1,
    })
}

/// About `most` of `count` indices: whole runs and blocks, the first and the last among them, where kernels err at the edge.
fn draw(count: usize, most: usize, block: usize, purpose: u32) -> Vec<usize> {
    let run = block.max(1) * RUN.div_ceil(block.max(1));
    let runs = count.div_ceil(run);
    let wanted = (most / run).clamp(2, runs.max(2));
    let mut middle: Vec<usize> = (1..runs.saturating_sub(1)).collect();
    let stream = Stream::new(0x5a3d, purpose);
    middle.order_by_key(|i| stream.words(0, *i as u64)[0]);
    let mut chosen: Vec<usize> = [0, runs.saturating_sub(1)].into_iter().chain(middle.into_iter().take(wanted - 2)).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen.into_iter().flat_map(|r| r * run..((r + 1) * run).min(count)).collect()
}

/// Lines `lines` of the `count` that a tensor has along its first axis that is longer than 1. A tensor of one line is that of all.
fn replace(file: &mut File, name: &str, lines: &[usize], count: usize) -> Result<()> {
    let Some(raw) = file.get(name) else { return Ok(()) };
    let elements: usize = raw.shape.iter().product();
    if count == 0 || !elements.is_multiple_of(count) || !raw.bytes.len().is_multiple_of(count) {
        let found = format!("shape {:?}", raw.shape);
        return Err(file.bad_tensor(name, found, format!("{count} lines of the same length, to take a sample of")));
    }
    let bytes = raw.bytes.len() / count;
    let taken = lines.iter().flat_map(|i| raw.bytes[i * bytes..(i + 1) * bytes].iter().copied()).collect();
    let each = elements / count;
    let shape = if raw.shape.len() > 1 { vec![lines.len(), each] } else { vec![lines.len() * each] };
    file.put(name, Raw::of(raw.dtype, shape, taken));
    Ok(())
}

/// Columns `cols` of the `count` that each line of a matrix has.
fn columns(file: &mut File, name: &str, cols: &[usize], count: usize) -> Result<()> {
    let Some(raw) = file.get(name) else { return Ok(()) };
    let [rows, _] = raw.shape[..] else { return Ok(()) };
    let (line, each) = (raw.bytes.len() / rows.max(1), raw.bytes.len() / (rows.max(1) * count));
    if each * count * rows != raw.bytes.len() || raw.shape[1] != count {
        let found = format!("shape {:?}, {} bytes", raw.shape, raw.bytes.len());
        return Err(file.bad_tensor(name, found, format!("[{rows}, {count}] of whole bytes, to take a sample of")));
    }
    let taken = (0..rows)
        .flat_map(|i| cols.iter().map(move |j| i * line + j * each))
        .flat_map(|at| &raw.bytes[at..at + each])
        .copied()
        .collect();
    file.put(name, Raw::of(raw.dtype, vec![rows, cols.len()], taken));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Bundle, Writer, answer, assay::assay};
    use super::*;
    use crate::compare::Verdict;
    use crate::job::Data;
    use crate::recipe::Recipe;
    use crate::{Format, Tensor};
    use std::path::Path;

    const SHAPE: (usize, usize, usize) = (150, 280, 256);

    fn values(rows: usize, cols: usize, seed: u64) -> Tensor {
        let word = |i: usize| Stream::new(seed, 0).words(0, i as u64)[0];
        // Rows differ, so that their scales do.
        let gain = |i: usize| 1.0 + (i / cols % 7) as f64;
        let data = (0..rows * cols).map(|i| gain(i) * (f64::from(word(i)) / f64::from(1u32 << 31) - 1.0));
        Tensor::rounded(Format::Bf16, rows, cols, data.map(|x| x as f32).collect()).unwrap()
    }

    /// A product of two recipes; `wrong` changes its result in f64.
    fn product(recipes: [&str; 2], wrong: impl Fn(usize, usize, f64) -> f64) -> Writer {
        let (m, n, k) = SHAPE;
        let of = |recipe: &str, rows, seed| recipe.parse::<Recipe>().unwrap().quantize(&values(rows, k, seed)).unwrap().q;
        let (a, b) = (of(recipes[0], m, 1), of(recipes[1], n, 2));
        let d = a.dequantize().dot(&b.dequantize().t());
        let out = d.indexed_iter().map(|((i, j), x)| wrong(i, j, *x) as f32).collect();
        let mut w = Writer::new("gemm");
        w.codes("a", &a, None, None).unwrap().codes("b", &b, None, None).unwrap();
        w.values("out", &[m, n], &Tensor::rounded(Format::Bf16, m, n, out).unwrap());
        w
    }

    fn file(w: &Writer) -> File {
        File::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap()
    }

    #[test]
    fn a_sample_is_the_drawn_rows_and_columns_of_the_whole() {
        let (m, n, _) = SHAPE;
        for recipes in
            [["te_current", "te_current"], ["float8_rowwise", "float8_rowwise"], ["te_block_1x128", "te_block_128x128"]]
        {
            let w = product(recipes, |_, _, x| x);
            let whole = Bundle::of(&file(&w)).unwrap();
            let (cut, words) = gemm(&file(&w), Sample::Each(48)).unwrap().unwrap();
            let part = Bundle::of(&cut).unwrap();
            let block = |x| block(&file(&w), x).unwrap();
            let (rows, cols) = (draw(m, 48, block("a"), 0), draw(n, 48, block("b"), 1));
            assert!(rows.len() < m && cols.len() < n && words.contains(&format!("{} of {m} rows", rows.len())), "{words}");
            assert!([rows[0], cols[0], m, n] == [0, 0, rows[rows.len() - 1] + 1, cols[cols.len() - 1] + 1]);
            for (lines, whole, part) in [(&rows, &whole.a, &part.a), (&cols, &whole.b, &part.b)] {
                let (whole, part) = (whole.any().unwrap(), part.any().unwrap());
                for (s, i) in lines.iter().enumerate() {
                    assert!((0..whole.cols()).all(|j| whole.value(*i, j) == part.value(s, j)), "{recipes:?} {i}");
                }
            }
            let (Data::High(whole), Data::High(part)) = (&whole.out.d, &part.out.d) else { panic!("values") };
            for (s, i) in rows.iter().enumerate() {
                let of_part = &part.data()[s * cols.len()..(s + 1) * cols.len()];
                assert!(cols.iter().zip(of_part).all(|(j, x)| whole.data()[i * n + j] == *x), "{recipes:?} {i}");
            }
        }
    }

    #[test]
    fn a_sample_passes_and_fails_as_the_whole_does_where_it_is_drawn() {
        let judged = |wrong: &dyn Fn(usize, usize, f64) -> f64| {
            let w = product(["float8_rowwise", "float8_rowwise"], wrong);
            let (cut, words) = gemm(&file(&w), Sample::Memory(600_000)).unwrap().unwrap();
            let bundle = Bundle { sample: Some(words), ..Bundle::of(&cut).unwrap() };
            let found = assay(&bundle).unwrap();
            assert!(answer::text(&bundle, &found, 100).contains("places are those of the sample"));
            assert!(answer::json(&bundle, &found)["sample"].is_string());
            found.verdict
        };
        assert_eq!(judged(&|_, _, x| x), Verdict::Pass);
        // The last row is always drawn.
        assert_eq!(judged(&|i, _, x| if i == SHAPE.0 - 1 { 2.0 * x } else { x }), Verdict::Fail);
    }

    /// A result of n×n and n rows of each operand are held, and those of n + 1 are not.
    #[test]
    fn as_many_rows_are_drawn_as_the_memory_holds() {
        for (memory, k) in [(600_000u64, 64), (1 << 30, 4096), (1 << 34, 1 << 20)] {
            let n = Sample::Memory(memory).each(k) as u64;
            let needs = |n: u64| RESULT * n * n + 2 * OPERAND * k as u64 * n;
            assert!(n > 0 && needs(n) <= memory && memory < needs(n + 1), "{n} of {memory} bytes, K {k}");
        }
    }

    #[test]
    fn what_is_whole_is_not_cut_and_what_is_no_gemm_is_refused() {
        assert!(gemm(&file(&product(["te_current", "te_current"], |_, _, x| x)), Sample::Each(1000)).unwrap().is_none());
        let x = values(4, 64, 3);
        let mut w = Writer::new("activation");
        w.meta("fn", "silu").values("a", &[4, 64], &x).values("out", &[4, 64], &x);
        let said = gemm(&file(&w), Sample::Each(2)).unwrap_err().to_string();
        assert!(said.contains("`activation`") && said.contains("expected op `gemm`"), "{said}");
    }

    /// Few rows are all taken; the columns are drawn all the same.
    #[test]
    fn one_side_alone_may_be_drawn() {
        let (m, n, k) = (6, 280, 64);
        let of = |rows, seed| "te_current".parse::<Recipe>().unwrap().quantize(&values(rows, k, seed)).unwrap().q;
        let (a, b) = (of(m, 3), of(n, 4));
        let d = a.dequantize().dot(&b.dequantize().t());
        let mut w = Writer::new("gemm");
        w.codes("a", &a, None, None).unwrap().codes("b", &b, None, None).unwrap();
        w.values("out", &[m, n], &Tensor::rounded(Format::Bf16, m, n, d.iter().map(|x| *x as f32).collect()).unwrap());
        let (cut, words) = gemm(&file(&w), Sample::Each(48)).unwrap().unwrap();
        let part = Bundle::of(&cut).unwrap();
        let Data::High(out) = &part.out.d else { panic!("{words}") };
        assert_eq!((out.rows(), out.cols() < n), (m, true), "{words}");
    }
}
