//! The f64 references of a large product on the GPU: which rows meet, exact and ideal, and the CPU's word on some of their rows.

use super::super::launch::{Buffer, Gpu, gpu};
use super::super::reference::{Product, Side, product};
use super::bound::largest;
use crate::job::Operand;
use crate::kernel::{Factors, LargeOperands, LargeReferences};
use crate::op::Op;
use crate::op::gemm::{looked_at, row_agrees};
use crate::stage::timed;
use crate::{Error, QTensor, Result, Tensor};
use std::ops::Range;

/// op(x), op(dequantize(q)), `[rows, cols]`.
pub struct References {
    /// `None` where the unquantized operands are not known.
    pub exact: Option<Buffer>,
    pub ideal: Product,
    /// Doubles.
    pub bias: Option<Buffer>,
}

/// One dense product: rows and factors of both sides, and its first row in the result.
#[derive(Debug, PartialEq)]
struct Dense {
    a: Range<usize>,
    b: Range<usize>,
    k: Range<usize>,
    row: usize,
}

/// The rows and columns of the result of a product of a `[rows, k]` and b, and what it is made of: all at once; the rows up to each end with the rows of b of
/// its expert; the factors (tokens) up to each end.
fn dense(op: Op, offs: Option<&[usize]>, a: (usize, usize), b: usize) -> Result<((usize, usize), Vec<Dense>)> {
    let (m, k) = a;
    let offs = offs.unwrap_or_default();
    let groups = || offs.iter().enumerate().map(|(e, to)| (e, if e > 0 { offs[e - 1] } else { 0 }..*to));
    let fits = |most: usize| !offs.is_empty() && offs.is_sorted() && offs.iter().all(|to| *to <= most);
    match op {
        Op::Gemm => Ok(((m, b), vec![Dense { a: 0..m, b: 0..b, k: 0..k, row: 0 }])),
        Op::GroupedGemm | Op::GroupedGemmDgrad if fits(m) && b.is_multiple_of(offs.len()) => {
            let n = b / offs.len();
            let of = |(e, rows): (usize, Range<usize>)| Dense { row: rows.start, a: rows, b: e * n..(e + 1) * n, k: 0..k };
            Ok(((m, n), groups().map(of).collect()))
        }
        Op::GroupedGemmWgrad if fits(k) => {
            let of = |(e, tokens): (usize, Range<usize>)| Dense { a: 0..m, b: 0..b, k: tokens, row: e * m };
            Ok(((offs.len() * m, b), groups().map(of).collect()))
        }
        _ => Err(Error::unsupported("the f64 reference on the GPU", format!("{} of {m}×{k} with ends {offs:?}", op.name()))),
    }
}

/// One side's codes: of the whole, or of each group of tokens.
fn codes(operand: Option<&Operand>) -> Result<Vec<&QTensor>> {
    match operand {
        Some(Operand::Quantized(q)) => Ok(vec![q]),
        Some(Operand::Groups(groups)) => Ok(groups.iter().collect()),
        _ => Err(Error::unsupported("the f64 reference on the GPU", "operands are quantized tensors, or groups of them")),
    }
}

/// [`crate::kernel::ProductJudge`]'s. Errors: no GPU; operands that are not for it; bits that are not the CPU's; out of device memory.
pub fn references(of: &LargeOperands) -> Result<LargeReferences> {
    let gpu = gpu()?;
    let there = timed("references", || References::of(gpu, of))?;
    Ok(LargeReferences { largest: timed("references", || largest(gpu, &there.ideal.d))?, there: Box::new(there) })
}

/// [`crate::kernel::Referrer`]'s. Errors: those of it.
pub fn dense_product(of: Factors, bias: Option<&Tensor>) -> Result<(Vec<f64>, Vec<f64>)> {
    let gpu = gpu()?;
    let (sides, (m, n)) = match of {
        Factors::Values([a, b]) => ([Side::values(gpu, a)?, Side::values(gpu, b)?], (a.rows(), b.rows())),
        Factors::Codes([a, b]) => ([Side::codes(gpu, a)?, Side::codes(gpu, b)?], (a.rows(), b.rows())),
    };
    let bias: Option<Vec<f64>> = bias.map(|t| t.data().iter().map(|x| f64::from(*x)).collect());
    let there = bias.as_ref().map(|bias| gpu.upload_all(bias)).transpose()?;
    let into = Product::zeros(gpu, m * n)?;
    product(gpu, &sides[0], &sides[1], there.as_ref(), &into, 0)?;
    let d: Vec<f64> = gpu.download_whole("f64 product", &into.d)?;
    let magnitude: Vec<f64> = gpu.download_whole("f64 magnitude", &into.magnitude)?;
    let row = |side: usize, i: usize| -> Vec<f64> {
        match of {
            Factors::Values(x) => x[side].some_row(i).iter().map(|x| f64::from(*x)).collect(),
            Factors::Codes(q) => q[side].values_of_row(i, 0..q[side].cols()),
        }
    };
    for (r, i) in looked_at(m).into_iter().enumerate() {
        let found = (&d[i * n..(i + 1) * n], &magnitude[i * n..(i + 1) * n]);
        if !row_agrees(r, &row(0, i), &|j| row(1, j).into(), bias.as_deref(), found) {
            return Err(other_bits(i));
        }
    }
    Ok((d, magnitude))
}

fn other_bits(row: usize) -> Error {
    Error::value("f64 product of the GPU", format!("row {row} with other bits"), "the CPU's")
}

impl References {
    /// Errors: those of [`references`].
    pub fn of(gpu: &Gpu, of: &LargeOperands) -> Result<Self> {
        let missing = || Error::unsupported("the f64 reference on the GPU", "a product has two operands");
        let (x, y) = (of.operands.get(0).ok_or_else(missing)?, of.operands.b().ok_or_else(missing)?);
        let offs = of.operands.offs.as_deref();
        let ((rows, cols), parts) = dense(of.op, offs, (x.rows(), x.cols()), y.rows())?;
        let bias: Option<Vec<f64>> = of.operands.bias.as_ref().map(|t| t.data().iter().map(|x| f64::from(*x)).collect());
        let there = bias.as_ref().map(|bias| gpu.upload_all(bias)).transpose()?;
        let made = |sides: &dyn Fn(usize, &Dense) -> [Side; 2]| -> Result<Product> {
            let into = Product::zeros(gpu, rows * cols)?;
            for (e, p) in parts.iter().enumerate().filter(|(_, p)| !p.a.is_empty() && !p.b.is_empty() && !p.k.is_empty()) {
                let [a, b] = sides(e, p);
                product(gpu, &a, &b, there.as_ref(), &into, p.row)?;
            }
            Ok(into)
        };
        let held = |product: &Product, factors: Row| {
            for (r, i) in looked_at(rows).into_iter().enumerate() {
                let Some(e) = part_of(&parts, i) else { continue };
                let p = &parts[e];
                let row = |from: &Buffer| gpu.download_some::<f64>("row of a reference", from, i * cols, cols);
                let found = (row(&product.d)?, row(&product.magnitude)?);
                let a = factors(0, e, p.a.start + i - p.row, &p.k);
                let b = |j: usize| factors(1, e, p.b.start + j, &p.k).into();
                if !row_agrees(r, &a, &b, bias.as_deref(), (&found.0, &found.1)) {
                    return Err(other_bits(i));
                }
            }
            Ok(())
        };
        let wide = |t: &Tensor, i: usize, k: &Range<usize>| t.some_row(i)[k.clone()].iter().map(|x| f64::from(*x)).collect();
        let of_values = |sources: [&Tensor; 2]| -> Result<Buffer> {
            let sides = [Side::values(gpu, sources[0])?, Side::values(gpu, sources[1])?];
            let exact = made(&|_, p| [sides[0].part(&p.a, &p.k), sides[1].part(&p.b, &p.k)])?;
            held(&exact, &|side, _, i, k| wide(sources[side], i, k))?;
            Ok(exact.d)
        };
        let exact = of.sources.map(of_values).transpose()?;
        let quantized = [codes(of.operands.get(0))?, codes(of.operands.b())?];
        let sides = |all: &[&QTensor]| -> Result<Vec<Option<Side>>> {
            all.iter().map(|q| if q.count() == 0 { Ok(None) } else { Side::codes(gpu, q).map(Some) }).collect()
        };
        let on_device = [sides(&quantized[0])?, sides(&quantized[1])?];
        // Tokens of a group have codes of their own, which begin at 0.
        let own = |all: usize, e: usize, k: &Range<usize>| {
            if all > 1 || of.op == Op::GroupedGemmWgrad { (e, 0..k.len()) } else { (0, k.clone()) }
        };
        let ideal = made(&|e, p| {
            let side = |s: usize, rows: &Range<usize>| {
                let (which, k) = own(on_device[s].len(), e, &p.k);
                on_device[s][which].as_ref().expect("a product has codes").part(rows, &k)
            };
            [side(0, &p.a), side(1, &p.b)]
        })?;
        held(&ideal, &|side, e, i, k| {
            let (which, k) = own(quantized[side].len(), e, k);
            quantized[side][which].values_of_row(i, k)
        })?;
        Ok(Self { exact, ideal, bias: there })
    }
}

/// Factors of a side (0 a, 1 b) of a product, by its number: these of a row.
type Row<'a> = &'a (dyn Fn(usize, usize, usize, &Range<usize>) -> Vec<f64> + Sync);

/// Which product a row of the result belongs to; `None`: to none, or to an empty one.
fn part_of(parts: &[Dense], row: usize) -> Option<usize> {
    parts.iter().position(|p| !p.k.is_empty() && (p.row..p.row + p.a.len()).contains(&row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_meets_what() {
        let all = |op, offs: &[usize], a, b| dense(op, Some(offs), a, b).unwrap();
        assert_eq!(all(Op::Gemm, &[], (3, 8), 5), ((3, 5), vec![Dense { a: 0..3, b: 0..5, k: 0..8, row: 0 }]));
        let experts = |a: Range<usize>, e: usize| Dense { row: a.start, a, b: e * 4..(e + 1) * 4, k: 0..8 };
        let rows = all(Op::GroupedGemm, &[2, 2, 5], (6, 8), 12);
        assert_eq!(rows, ((6, 4), vec![experts(0..2, 0), experts(2..2, 1), experts(2..5, 2)]));
        assert_eq!(all(Op::GroupedGemmDgrad, &[2, 2, 5], (6, 8), 12), rows);
        // Row 5 belongs to nobody, row 2 to the third expert.
        assert_eq!([0, 2, 4, 5].map(|row| part_of(&rows.1, row)), [Some(0), Some(2), Some(2), None]);
        let tokens = |k: Range<usize>, e: usize| Dense { a: 0..6, b: 0..7, k, row: e * 6 };
        let by_tokens = all(Op::GroupedGemmWgrad, &[2, 2, 5], (6, 8), 7);
        assert_eq!(by_tokens, ((18, 7), vec![tokens(0..2, 0), tokens(2..2, 1), tokens(2..5, 2)]));
        assert_eq!([0, 6, 12].map(|row| part_of(&by_tokens.1, row)), [Some(0), None, Some(2)]);
        for (op, offs, a, b) in [
            (Op::GroupedGemm, vec![], (6, 8), 12),
            (Op::GroupedGemm, vec![5, 2], (6, 8), 12),
            (Op::GroupedGemm, vec![7], (6, 8), 12),
            (Op::GroupedGemm, vec![2, 4], (6, 8), 11),
            (Op::GroupedGemmWgrad, vec![9], (6, 8), 7),
            (Op::Cast, vec![], (6, 8), 7),
        ] {
            assert!(dense(op, Some(&offs), a, b).is_err(), "{op:?} {offs:?}");
        }
    }
}
