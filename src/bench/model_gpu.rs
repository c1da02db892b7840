//! How fast the device model is on this GPU, and whether our wgmma kernel returns what it says, output for output.

use crate::job::{Data, Job, Operand, Operands, OutSpec};
use crate::kernel::Kernel;
use crate::kernel::cuda::fp8_gemm::Fp8Gemm;
use crate::kernel::cuda::launch::gpu;
use crate::kernel::cuda::model::{Codes, Sums, mismatches};
use crate::kernel::cuda::timed::{Timed, normals, time};
use crate::op::{Op, Params};
use crate::quant::QTensorParts;
use crate::{Format, Granularity, QTensor, Result, Zero};

/// One shape of one accumulator.
#[derive(Clone, Debug)]
pub struct ModelRow {
    pub name: String,
    /// M = N = K.
    pub size: usize,
    pub seconds: f64,
    /// Outputs that the fast kernel and its definition disagree on; the definition runs on the smallest shape only.
    pub against_definition: Option<u64>,
    /// Outputs that our wgmma kernel returned with other bits.
    pub against_wgmma: u64,
}

impl ModelRow {
    /// 10¹² products a second.
    pub fn rate(&self) -> f64 {
        (self.size as f64).powi(3) / self.seconds / 1e12
    }
}

const SIZES: [usize; 3] = [1024, 4096, 8192];

/// Measures e4m3 without and with promotion. Errors: no GPU, or none that has wgmma.
pub fn bench_model() -> Result<Vec<ModelRow>> {
    let cases = SIZES.into_iter().flat_map(|n| [(n, "hopper_wgmma"), (n, "hopper_wgmma@128")]);
    cases.map(|(n, accumulator)| row(n, accumulator)).collect()
}

fn row(n: usize, accumulator: &str) -> Result<ModelRow> {
    let gpu = gpu()?;
    let format = Format::E4m3;
    let (a, b) = (normals(format, n * n, 1)?, normals(format, n * n, 2)?);
    let returned = {
        let tensor = |codes: &[u8]| {
            QTensor::new(QTensorParts {
                format,
                rows: n,
                cols: n,
                codes: codes.to_vec(),
                granularity: Granularity::Tensor,
                scale_format: Format::F32,
                scale_inv: vec![1.0],
                zero: Zero::None,
                level: None,
            })
            .map(Operand::Quantized)
        };
        let operands = Operands::of(tensor(&a)?, Some(tensor(&b)?));
        let accumulator = Some(accumulator.parse()?);
        let job = Job { op: Op::Gemm, params: Params::default(), operands, out: OutSpec::High(Format::F32), accumulator };
        match &Fp8Gemm.run(&job)?.parts[0].d {
            Data::High(t) => gpu.upload_f32(t.data())?,
            Data::Quantized(_) => unreachable!("the job asks for f32"),
        }
    };
    let (a, b) = (Codes::upload(gpu, format, &a, n, n)?, Codes::upload(gpu, format, &b, n, n)?);
    let sums = Sums::new(gpu, a, b, n, accumulator.ends_with("@128"))?;
    let definition = if n == SIZES[0] {
        sums.run_naive(gpu)?;
        Some(gpu.upload(&gpu.download("sums by the definition", &sums.d, 4)?)?)
    } else {
        None
    };
    sums.run(gpu)?;
    let against_wgmma = mismatches(gpu, &sums.d, &returned)?;
    let against_definition = definition.map(|d| mismatches(gpu, &sums.d, &d)).transpose()?;
    let name = format!("{accumulator} {format}");
    let launch = move |_| {
        // SAFETY: the closure owns it, and is dropped after the stream was waited for.
        unsafe { sums.enqueue(gpu) }
    };
    let products = (n as u64).pow(3);
    let mut timed = Timed {
        name: name.clone(),
        shape: format!("{n}x{n}x{n}"),
        bytes: 0,
        ops: 2 * products,
        copies: 1,
        launch: Box::new(launch),
    };
    let seconds = time(gpu, &mut timed)?.median;
    Ok(ModelRow { name, size: n, seconds, against_definition, against_wgmma })
}

/// The rows as an aligned table.
pub fn table(rows: &[ModelRow]) -> String {
    let mut out = format!(
        "{:<24} {:>16} {:>9} {:>12} {:>22} {:>22}\n",
        "accumulator, factors", "shape", "ms", "Tproducts/s", "differ from definition", "wgmma's that differ"
    );
    for r in rows {
        let definition = r.against_definition.map_or("-".to_string(), |n| n.to_string());
        let shape = format!("{0}x{0}x{0}", r.size);
        let (ms, rate) = (r.seconds * 1e3, r.rate());
        out += &format!("{:<24} {shape:>16} {ms:>9.3} {rate:>12.2} {definition:>22} {:>22}\n", r.name, r.against_wgmma);
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_counts_products_and_differences() {
        let row = super::ModelRow {
            name: "hopper_wgmma e4m3".into(),
            size: 1000,
            seconds: 1e-3,
            against_definition: Some(0),
            against_wgmma: 7,
        };
        assert_eq!(row.rate(), 1.0);
        let table = super::table(&[row]);
        assert!(table.contains("1000x1000x1000") && table.trim_end().ends_with('7'), "{table}");
    }
}
