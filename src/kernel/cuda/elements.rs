//! What every kernel with FP8 output passes and takes back: elements as they lie in memory, and the words of their types.

use super::launch::{Buffer, Gpu};
use super::options::Type;
use crate::{Format, Result, Tensor, parallel};

/// The format of codes. Errors: the hardware converts to no other.
pub fn fp8(kernel: &str, f: Format) -> Result<Type> {
    let known = &[Format::E4m3, Format::E5m2];
    Type::one_of(known, f, kernel, || format!("it writes e4m3 and e5m2, not {f}: cvt.rn.satfinite has no other"))
}

/// The type of a tensor's elements.
pub fn dtype(x: &Tensor) -> Type {
    Type::of(x.dtype()).filter(|t| t.is_high()).unwrap_or(Type::F32)
}

/// The elements as they lie in memory, little endian; NaN with its payload.
pub fn bytes(x: &Tensor) -> Vec<u8> {
    match x.dtype() {
        Format::F16 => parallel::map(x.data(), |x| half::f16::from_f32(*x).to_bits().to_le_bytes()).into_flattened(),
        Format::Bf16 => parallel::map(x.data(), |x| ((x.to_bits() >> 16) as u16).to_le_bytes()).into_flattened(),
        _ => parallel::map(x.data(), |x| x.to_bits().to_le_bytes()).into_flattened(),
    }
}

/// The elements on the device.
pub fn upload(gpu: &Gpu, x: &Tensor) -> Result<Buffer> {
    gpu.upload(&bytes(x))
}

/// f32 values that a kernel wrote. Errors: those of [`Gpu::download`].
pub fn f32s(gpu: &Gpu, what: &str, buffer: &Buffer) -> Result<Vec<f32>> {
    gpu.download_all(what, buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_16_bit_pattern_is_passed_as_it_is() {
        for (format, value) in [
            (Format::F16, (|b| half::f16::from_bits(b).to_f32()) as fn(u16) -> f32),
            (Format::Bf16, |b| half::bf16::from_bits(b).to_f32()),
        ] {
            let x = Tensor::new(format, 256, 256, (0..=u16::MAX).map(value).collect()).unwrap();
            for (want, found) in (0..=u16::MAX).zip(bytes(&x).chunks_exact(2)) {
                let found = u16::from_le_bytes([found[0], found[1]]);
                // A signalling NaN becomes quiet on its way through f32.
                let quiet = if format == Format::F16 { 0x200 } else { 0x40 };
                assert!(found == want || (value(want).is_nan() && found == want | quiet), "{format} {want:#06x} {found:#06x}");
            }
        }
    }
}
