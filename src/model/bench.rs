//! How fast the device models are on this machine: the bulk path on all cores, the obvious one on one.

use super::accumulate::accumulate;
use super::product::FactorRows;
use super::{Accumulator, bulk};
use crate::input::philox::Stream;
use crate::parallel;
use crate::quant::QTensorParts;
use crate::{Format, Granularity, QTensor, Result, Tensor, Zero};
use std::time::Instant;

/// One accumulator of one pair of formats.
#[derive(Clone, Debug)]
pub struct ModelRow {
    pub name: String,
    /// 10⁹ products a second: all cores in bulk, one core by the definition.
    pub bulk: f64,
    pub obvious: f64,
}

const CASES: &[(&str, Format)] = &[
    ("hopper_wgmma", Format::E4m3),
    ("hopper_wgmma@128", Format::E4m3),
    ("ada_mma", Format::E4m3),
    ("hopper_mma", Format::E4m3),
    ("blackwell_tcgen05", Format::E4m3),
    ("hopper_wgmma", Format::F16),
    ("hopper_wgmma", Format::Bf16),
    ("f32_sequential", Format::E4m3),
    ("f32_pairwise", Format::E4m3),
    ("exact", Format::E4m3),
    ("exact", Format::F16),
];

/// M = N of the measured product, and its K.
const SIZE: (usize, usize) = (512, 1024);

/// Measures every case: the best of three runs each.
pub fn bench_model() -> Result<Vec<ModelRow>> {
    CASES.iter().map(|(name, format)| row(&name.parse()?, *format)).collect()
}

fn row(acc: &Accumulator, format: Format) -> Result<ModelRow> {
    let (n, k) = SIZE;
    let (a, b) = (Factors::random(format, n, k, 1)?, Factors::random(format, n, k, 2)?);
    let (a, b) = (a.side(), b.side());
    let best = |work: &dyn Fn() -> Result<usize>| -> Result<f64> {
        let mut best = 0.0f64;
        for _ in 0..3 {
            let start = Instant::now();
            let products = work()?;
            best = best.max(products as f64 / start.elapsed().as_secs_f64() / 1e9);
        }
        Ok(best)
    };
    let bulk = best(&|| {
        let mut out = vec![0.0f32; n * n];
        let tile =
            |band: usize, out: &mut [f32]| bulk::tile(acc, &a, band * 128..band * 128 + out.len() / n, &b, 0..n, 0..k, out);
        parallel::map_chunks(&mut out, 128 * n, tile).into_iter().collect::<Result<Vec<_>>>()?;
        Ok(std::hint::black_box(&out).len() * k)
    })?;
    let (x, y) = (a.factors(0, 0..k), b.factors(0, 0..k));
    let obvious = best(&|| {
        let few = 100;
        for _ in 0..few {
            std::hint::black_box(accumulate(acc, format, format, std::hint::black_box(&x), &y)?);
        }
        Ok(few * k)
    })?;
    Ok(ModelRow { name: format!("{acc} {format}"), bulk, obvious })
}

enum Factors {
    Codes(QTensor),
    Values(Tensor),
}

impl Factors {
    /// Gaussian-like factors: every code from the sum of random bits, near zero most often.
    fn random(format: Format, rows: usize, k: usize, seed: u64) -> Result<Self> {
        let stream = Stream::new(seed, 1);
        let value = |i: usize| {
            let w = stream.words(0, i as u64);
            let sum: f64 = w.iter().map(|w| f64::from(*w as i32)).sum();
            sum / 2f64.powi(31)
        };
        if format.is_high() {
            let data = (0..rows * k).map(|i| value(i) as f32).collect();
            return Tensor::rounded(format, rows, k, data).map(Factors::Values);
        }
        let code = |i| format.encode(value(i) * 64.0, crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8;
        QTensor::new(QTensorParts {
            format,
            rows,
            cols: k,
            codes: (0..rows * k).map(code).collect(),
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        })
        .map(Factors::Codes)
    }
    fn side(&self) -> FactorRows<'_> {
        match self {
            Factors::Codes(q) => FactorRows::codes(std::borrow::Cow::Borrowed(q)),
            Factors::Values(t) => FactorRows::values(t.dtype(), t),
        }
    }
}

/// The rows as an aligned table.
pub fn table(rows: &[ModelRow]) -> String {
    let mut out = format!("{:<28} {:>16} {:>20}\n", "accumulator, factors", "bulk Gprod/s", "definition Gprod/s");
    for r in rows {
        out += &format!("{:<28} {:>16.3} {:>20.4}\n", r.name, r.bulk, r.obvious);
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_names_every_case() {
        let row = super::ModelRow { name: "hopper_wgmma e4m3".into(), bulk: 1.0, obvious: 0.1 };
        assert!(super::table(&[row]).contains("hopper_wgmma e4m3"));
        for (name, _) in super::CASES {
            name.parse::<super::Accumulator>().unwrap();
        }
    }
}
