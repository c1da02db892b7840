//! Products whose operands come from SplitMix64 of (seed, stream, index), for what cuBLASLt returned on an H200.

#[path = "words.rs"]
mod words;

use qassay::job::{Data, Job, Operand, Operands, OutSpec, Output};
use qassay::op::{Op, Params};
use qassay::quant::{Granularity, QTensorParts, Zero};
use qassay::{Format, QTensor, Tensor};
use std::collections::HashMap;
use words::{positive, word};

/// One product: a line of `data/golden/h200/vendor.csv`.
#[derive(Clone, Debug)]
pub struct Product {
    pub a: String,
    pub b: String,
    /// none, tensor, row, 1x128, 1x128_128x128, 128x128_1x128.
    pub scale: String,
    pub fast: bool,
    pub out: String,
    pub bias: bool,
    pub n: usize,
    pub k: usize,
    pub seed: u64,
}

fn signed(seed: u64, stream: u64, i: usize) -> f32 {
    let x = positive(seed, stream, i);
    if word(seed, stream + 100, i as u64) & 1 == 1 { -x } else { x }
}

impl Product {
    /// From a line's fields.
    pub fn of(fields: &HashMap<String, String>) -> Self {
        let text = |name: &str| fields[name].clone();
        let number = |name: &str| fields[name].parse::<usize>().unwrap();
        Self {
            a: text("a"),
            b: text("b"),
            scale: text("scale"),
            fast: fields["fast"] == "true",
            out: text("out"),
            bias: fields["bias"] == "true",
            n: number("n"),
            k: number("k"),
            seed: number("seed") as u64,
        }
    }
    fn format(&self, side: u64) -> Format {
        if side == 0 { self.a.parse().unwrap() } else { self.b.parse().unwrap() }
    }
    /// The first `rows` rows of operand `side` (0: a, 1: b).
    fn operand(&self, side: u64, rows: usize) -> Operand {
        let (k, seed, format) = (self.k, self.seed, self.format(side));
        if format.is_high() {
            let data = (0..rows * k).map(|i| signed(seed, side, i)).collect();
            return Operand::High(Tensor::rounded(format, rows, k, data).unwrap());
        }
        let granularity = match (self.scale.as_str(), side) {
            ("tensor", _) => Granularity::Tensor,
            ("row", _) => Granularity::Row,
            ("1x128_128x128", 1) | ("128x128_1x128", 0) => Granularity::Block { rows: 128, cols: 128 },
            _ => Granularity::Group(128),
        };
        let code = |i: usize| {
            let x = (word(seed, side, i as u64) >> 56) as u8;
            match format {
                Format::Int8 => x,
                Format::E5m2 => x & 0x8f | 0x30,
                _ => (x & 0x9f) | 0x20,
            }
        };
        let (grid_rows, grid_cols) = granularity.grid(rows, k);
        let parts = QTensorParts {
            format,
            rows,
            cols: k,
            codes: (0..rows * k).map(code).collect(),
            granularity,
            scale_format: Format::F32,
            scale_inv: (0..grid_rows * grid_cols).map(|i| positive(seed, 2 + side, i)).collect(),
            zero: Zero::None,
            level: None,
        };
        Operand::Quantized(QTensor::new(parts).unwrap())
    }
    /// The job of the first `rows` rows.
    pub fn job(&self, rows: usize) -> Job {
        let out: Format = self.out.parse().unwrap();
        let (n, seed) = (self.n, self.seed);
        let bias_format = if out.is_high() { out } else { Format::Bf16 };
        let bias = self.bias.then(|| (0..n).map(|i| signed(seed, 4, i)).collect());
        let accumulator = match (self.format(0), self.fast) {
            (Format::Int8, _) => "int32",
            (f, false) if f.is_fp8() => "hopper_wgmma@128",
            _ => "hopper_wgmma",
        };
        Job {
            op: Op::Gemm,
            params: Params::default(),
            operands: Operands {
                bias: bias.map(|b| Tensor::rounded(bias_format, 1, n, b).unwrap()),
                ..Operands::of(self.operand(0, rows), Some(self.operand(1, n)))
            },
            out: match out.is_fp8() {
                true => OutSpec::Scaled { format: out, scale: vec![Some(positive(seed, 6, 0) / 512.0)] },
                false => OutSpec::High(out),
            },
            accumulator: Some(accumulator.parse().unwrap()),
        }
    }
}

/// Bits of the first `rows` rows of an output.
pub fn bits(output: &Output, rows: usize) -> Vec<u8> {
    match &output.parts[0].d {
        Data::High(t) => t.rows_range(0, rows).bits(),
        Data::Quantized(q) => q.codes()[..rows * q.cols()].to_vec(),
    }
}
