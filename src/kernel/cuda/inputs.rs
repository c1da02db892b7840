//! Synthetic inputs on the GPU (`kernels/inputs.cu`): the bits of [`crate::input::generate`], for tensors too large for the CPU.

use super::afar;
use super::contract::{Contract, Pointer, arguments};
use super::launch::{LaunchShape, gpu};
use crate::input::{Distribution, Drawing};
use crate::tensor::There;
use crate::{Error, Format, Result, Tensor};
use std::sync::Arc;

arguments! {
    /// Contract draw.
    Arguments = "inputs.cu" "draw" {
        values: Pointer, row_gains: Pointer, column_gains: Pointer, rows: usize, cols: usize, seed: u64, stream: usize, kind: usize,
        dtype: usize, largest: f32,
    }
}

/// Elements of bf16 from which they stay on the device until somebody asks for them.
const STAYS: usize = 1 << 20;

/// The values of a tensor, row-major; the device keeps them for its references. Errors: a distribution that the kernel does not have; no GPU; out of device memory.
pub fn draw(of: &Drawing) -> Result<Tensor> {
    let refuse = |what: String| Error::unsupported("inputs made on the GPU", what);
    let kind = match of.dist {
        // An outlier's gain is its column's.
        Distribution::Normal | Distribution::OutlierChannels => 0,
        Distribution::NormalIid => 1,
        Distribution::Uniform => 2,
        Distribution::LogNormal => 3,
        Distribution::StudentT => 4,
        other => return Err(refuse(format!("{other} is made on the CPU"))),
    };
    let dtype = match of.dtype {
        Format::F32 => 0,
        Format::Bf16 => 1,
        Format::F16 => 2,
        other => return Err(refuse(format!("values of {other}"))),
    };
    let largest = i32::MAX as usize;
    if of.rows > largest || of.cols > largest || of.stream > i32::MAX as u32 {
        return Err(refuse(format!("{}×{} of stream {}", of.rows, of.cols, of.stream)));
    }
    let gpu = gpu()?;
    let values = gpu.filled(of.rows * of.cols * 4, 0)?;
    let (row_gains, column_gains) = (gpu.upload_all(&of.row_gains)?, gpu.upload_all(&of.column_gains)?);
    let arguments = Arguments {
        values: (&values).into(),
        row_gains: (&row_gains).into(),
        column_gains: (&column_gains).into(),
        rows: of.rows,
        cols: of.cols,
        seed: of.seed,
        stream: of.stream as usize,
        kind,
        dtype,
        largest: of.dtype.max_finite() as f32,
    };
    let shape = LaunchShape::new(gpu.info.multiprocessors * 8, 256);
    // SAFETY: values are rows × cols, gains one a row and one a column.
    unsafe { gpu.launch(arguments.launch(&[], shape))? };
    if of.dtype == Format::Bf16 && of.rows * of.cols >= STAYS {
        return afar::tensor(values, (of.rows, of.cols));
    }
    let data = gpu.download_whole("inputs", &values)?;
    Tensor::new(of.dtype, of.rows, of.cols, data).map(|t| t.held(There::with(Arc::new(values))))
}

#[cfg(test)]
mod tests {
    use crate::input::math::{CENTRE, LN2_HIGH, LN2_LOW, MIDDLE, TAIL};

    const SOURCE: &str = include_str!("../../../kernels/inputs.cu");

    /// The numbers of a table of the source, in its order.
    fn table(name: &str) -> Vec<f64> {
        let (_, rest) = SOURCE.split_once(&format!("const double {name}[2][8] = ")).expect("a table of this name");
        let (text, _) = rest.split_once(';').expect("its end");
        let numbers = text.split(|c: char| "{}, \n".contains(c)).filter(|t| !t.is_empty());
        numbers.map(|t| t.parse().unwrap_or_else(|e| panic!("{t}: {e}"))).collect()
    }

    /// f64 of a hexadecimal float such as `0x1.8p-1`.
    fn hexadecimal(text: &str) -> f64 {
        let (digits, exponent) = text.strip_prefix("0x1.").and_then(|t| t.split_once('p')).expect("0x1.…p…");
        let mantissa = u64::from_str_radix(&format!("{digits:0<13}"), 16).expect("hexadecimal digits");
        f64::from_bits((1023 + exponent.parse::<i64>().expect("an exponent")) as u64 * (1 << 52) + mantissa)
    }

    #[test]
    fn the_source_has_the_constants_of_the_cpu() {
        for (name, rational) in [("CENTRE", CENTRE), ("MIDDLE", MIDDLE), ("TAIL", TAIL)] {
            let want: Vec<u64> = rational.0.iter().chain(&rational.1).map(|x| x.to_bits()).collect();
            assert_eq!(table(name).iter().map(|x| x.to_bits()).collect::<Vec<_>>(), want, "{name}");
        }
        for (name, want) in [("LN2_HIGH", LN2_HIGH), ("LN2_LOW", LN2_LOW)] {
            let (_, rest) = SOURCE.split_once(&format!("{name} = ")).expect("a constant of this name");
            let text = rest.split([',', ';']).next().expect("its value");
            assert_eq!(hexadecimal(text).to_bits(), want.to_bits(), "{name}");
        }
        for (text, want) in [("1.4142135623730951", std::f64::consts::SQRT_2), ("1.4426950408889634", std::f64::consts::LOG2_E)]
        {
            assert!(SOURCE.contains(text) && text.parse::<f64>().unwrap().to_bits() == want.to_bits());
        }
    }
}
