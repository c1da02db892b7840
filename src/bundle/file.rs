//! The bytes of a bundle: a safetensors file with its metadata and tensors, and each tensor's elements as codes, values, scales or
//! integers.

use crate::format::FORMATS;
use crate::format::pack::{NibbleOrder, unpack4};
use crate::{Error, Format, Result, Tensor};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A safetensors file, mapped where it can be: never read whole, and no larger than the file, whatever its header claims.
#[derive(Clone, Debug)]
pub struct File {
    pub path: PathBuf,
    pub metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, Raw>,
}

/// One tensor as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Raw {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Bytes,
}

/// A part of a file: of the map of it, or of its bytes in memory.
#[derive(Clone)]
pub struct Bytes {
    file: Arc<Whole>,
    range: Range<usize>,
}

enum Whole {
    Mapped(memmap2::Mmap),
    Read(Vec<u8>),
}

impl Deref for Whole {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Whole::Mapped(map) => map,
            Whole::Read(bytes) => bytes,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }
}
impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl Raw {
    /// A tensor in memory.
    pub(super) fn of(dtype: Dtype, shape: Vec<usize>, bytes: Vec<u8>) -> Raw {
        let range = 0..bytes.len();
        Raw { dtype, shape, bytes: Bytes { file: Arc::new(Whole::Read(bytes)), range } }
    }
}

impl File {
    /// Puts a tensor in the place of the one of this name.
    pub(super) fn put(&mut self, name: &str, raw: Raw) {
        self.tensors.insert(name.to_string(), raw);
    }
    pub(super) fn remove(&mut self, name: &str) {
        self.tensors.remove(name);
    }

    /// Maps a file; one that cannot be mapped, a pipe, is read. Errors: it cannot be read, or is no whole safetensors file.
    pub fn read(path: &Path) -> Result<File> {
        let io = |e| Error::io(path, e, "give the path of a bundle, a safetensors file");
        let file = std::fs::File::open(path).map_err(io)?;
        // SAFETY: the map is read only. A file that another process truncates meanwhile ends this one (SIGBUS), as for every reader of
        // maps; no invariant of ours rests on the bytes: what is checked of them is checked of a copy.
        let map = unsafe { memmap2::Mmap::map(&file) }.map(Whole::Mapped);
        let whole = map.or_else(|_| std::fs::read(path).map(Whole::Read)).map_err(io)?;
        File::of(path, whole)
    }

    /// Parses bytes; `path` names them in errors. The header is checked against the bytes: lengths, offsets, shapes.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<File> {
        File::of(path, Whole::Read(bytes.to_vec()))
    }

    fn of(path: &Path, whole: Whole) -> Result<File> {
        let file = Arc::new(whole);
        let bytes: &[u8] = &file;
        let bad = |found: String| Error::BadFile {
            path: path.to_path_buf(),
            found,
            expected: "a whole safetensors file (8 bytes of header length, the header, the data); write it again".into(),
        };
        let broken = |e| bad(format!("{} bytes ({e})", bytes.len()));
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
        let metadata = header.metadata().clone().unwrap_or_default().into_iter().collect();
        let views = SafeTensors::deserialize(bytes).map_err(broken)?;
        let mut tensors = BTreeMap::new();
        for (name, view) in views.iter() {
            let start = view.data().as_ptr().addr() - bytes.as_ptr().addr();
            let bytes = Bytes { file: file.clone(), range: start..start + view.data().len() };
            let raw = Raw { dtype: view.dtype(), shape: view.shape().to_vec(), bytes };
            tensors.insert(name.to_string(), raw);
        }
        Ok(File { path: path.to_path_buf(), metadata, tensors })
    }

    /// The names of its tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }
    pub fn get(&self, name: &str) -> Option<&Raw> {
        self.tensors.get(name)
    }

    /// A matrix of values. Errors: it is not there, is no matrix with elements, or is not of f16, bf16 or f32.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let expected = "a matrix [rows, K] of dtype F16, BF16 or F32, both at least 1";
        let raw = self.get(name).ok_or_else(|| self.bad(format!("no tensor `{name}`"), expected.into()))?;
        match raw.shape[..] {
            [rows, cols] if rows > 0 && cols > 0 => {
                let (dtype, data) = self.values(name, raw)?;
                Tensor::new(dtype, rows, cols, data)
            }
            _ => Err(self.bad_tensor(name, format!("shape {:?}", raw.shape), expected)),
        }
    }

    pub(super) fn bad(&self, found: String, expected: String) -> Error {
        Error::BadFile { path: self.path.clone(), found, expected }
    }
    pub(super) fn bad_tensor(&self, name: &str, found: impl std::fmt::Display, expected: impl Into<String>) -> Error {
        self.bad(format!("tensor `{name}` of {found}"), expected.into())
    }
    fn bad_dtype(&self, name: &str, raw: &Raw, expected: &str) -> Error {
        self.bad_tensor(name, format!("dtype {:?}", raw.dtype), expected)
    }

    /// A tensor of exactly this shape, where it is there. Errors: another shape.
    pub(super) fn shaped(&self, name: &str, shape: &[usize], why: &str) -> Result<Option<&Raw>> {
        match self.get(name) {
            Some(raw) if raw.shape != shape => {
                Err(self.bad_tensor(name, format!("shape {:?}", raw.shape), format!("{shape:?}: {why}")))
            }
            found => Ok(found),
        }
    }

    /// A tensor of this shape but for axes of length 1, where it is there: `[]`, `[1, 1]` for `[1]`, `[M, 1]`, `[1, M]` for `[M]`. The
    /// elements lie in the same order. Errors: another shape.
    pub(super) fn squeezed(&self, name: &str, shape: &[usize], why: &str) -> Result<Option<&Raw>> {
        let long = |shape: &[usize]| shape.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>();
        match self.get(name) {
            Some(raw) if long(&raw.shape) == long(shape) => Ok(Some(raw)),
            _ => self.shaped(name, shape, why),
        }
    }

    /// Values of an f16, bf16 or f32 tensor.
    pub(super) fn values(&self, name: &str, raw: &Raw) -> Result<(Format, Vec<f32>)> {
        match floats(raw) {
            Some(found) => Ok(found),
            None => Err(self.bad_dtype(name, raw, "dtype F16, BF16 or F32: values before quantization")),
        }
    }

    /// The format a tensor's dtype stands for, as codes or as values.
    pub(super) fn format_of(raw: &Raw) -> Option<Format> {
        Some(match raw.dtype {
            Dtype::F32 => Format::F32,
            Dtype::F16 => Format::F16,
            Dtype::BF16 => Format::Bf16,
            Dtype::F8_E4M3 => Format::E4m3,
            Dtype::F8_E5M2 => Format::E5m2,
            Dtype::F8_E4M3FNUZ => Format::E4m3Fnuz,
            Dtype::F8_E5M2FNUZ => Format::E5m2Fnuz,
            Dtype::F8_E8M0 => Format::E8m0,
            Dtype::I8 => Format::Int8,
            Dtype::F4 => Format::E2m1,
            _ => return None,
        })
    }

    /// Codes of `format`, one a byte, in the low bits. Errors: a dtype that cannot hold them, a code beyond the format's width.
    /// The dtype F4 holds two e2m1 codes a byte, the first in the low nibble where `packing` does not say otherwise.
    pub(super) fn codes(&self, name: &str, raw: &Raw, format: Format, packing: Option<NibbleOrder>) -> Result<Vec<u8>> {
        if raw.dtype == Dtype::F4 {
            return match format {
                Format::E2m1 => Ok(unpack4(&raw.bytes, packing.unwrap_or(NibbleOrder::LowFirst))),
                _ => Err(self.bad_dtype(name, raw, &format!("dtype U8: codes of {format}; F4 holds e2m1"))),
            };
        }
        if let Some(order) = packing {
            if format.bits() != 4 {
                let found = format!("format {format} with packing {}", order.name());
                let four: Vec<_> = FORMATS.iter().filter(|f| f.bits == 4).map(|f| f.name).collect();
                return Err(self.bad_tensor(name, found, format!("packing of a 4-bit format: {}", four.join(", "))));
            }
            return match raw.dtype {
                Dtype::U8 => Ok(unpack4(&raw.bytes, order)),
                _ => Err(self.bad_dtype(name, raw, "dtype U8: two 4-bit codes a byte")),
            };
        }
        let own = File::format_of(raw);
        let codes: Vec<u8> = match (raw.dtype, format) {
            (Dtype::I8, Format::Int8) => raw.bytes.to_vec(),
            (Dtype::I8, Format::Int4) => match raw.bytes.iter().find(|b| !(-8..8).contains(&(**b as i8))) {
                Some(b) => return Err(self.bad_tensor(name, format!("int4 code {}", *b as i8), "codes -8 to 7")),
                None => raw.bytes.iter().map(|b| b & 15).collect(),
            },
            (Dtype::U8, f) if f.bits() <= 8 => raw.bytes.to_vec(),
            (_, f) if f.bits() == 8 && own == Some(f) => raw.bytes.to_vec(),
            _ => {
                let own = match format {
                    Format::E4m3 => "F8_E4M3 or U8",
                    Format::E5m2 => "F8_E5M2 or U8",
                    Format::E4m3Fnuz => "F8_E4M3FNUZ or U8",
                    Format::E5m2Fnuz => "F8_E5M2FNUZ or U8",
                    Format::Int8 | Format::Int4 => "I8 or U8",
                    _ => "U8",
                };
                return Err(self.bad_dtype(name, raw, &format!("dtype {own}: codes of {format}, one a byte")));
            }
        };
        match codes.iter().find(|c| u32::from(**c) >= 1 << format.bits()) {
            Some(c) => Err(self.bad_tensor(name, format!("code {c:#x}"), format!("{format} codes of {} bits", format.bits()))),
            None => Ok(codes),
        }
    }

    /// Scales with the format they are stored in: the metadata's, else the dtype's. Errors: a dtype that contradicts it.
    pub(super) fn scales(&self, name: &str, raw: &Raw, format: Option<Format>) -> Result<(Format, Vec<f32>)> {
        let own = File::format_of(raw)
            .filter(|f| matches!(f, Format::F32 | Format::F16 | Format::Bf16 | Format::E8m0 | Format::E4m3));
        let format = match (format, own, raw.dtype) {
            (Some(f), Some(own), _) if f == own => f,
            (Some(f), None, Dtype::U8) if f.bits() <= 8 => f,
            (None, Some(own), _) => own,
            (Some(f), ..) => {
                let dtype = match f {
                    Format::F16 => "F16",
                    Format::Bf16 => "BF16",
                    Format::E8m0 => "F8_E8M0 or U8",
                    Format::E4m3 => "F8_E4M3 or U8",
                    Format::F32 => "F32",
                    _ => "U8",
                };
                return Err(self.bad_dtype(name, raw, &format!("dtype {dtype}: scales of format {f}")));
            }
            (None, None, _) => {
                return Err(self.bad_dtype(name, raw, "dtype F32, F16, BF16, F8_E8M0 or F8_E4M3, or U8 with a `scale_format`"));
            }
        };
        let values = floats(raw).map(|f| f.1);
        Ok((format, values.unwrap_or_else(|| raw.bytes.iter().map(|c| format.decode(u32::from(*c)) as f32).collect())))
    }

    /// Zero points that are integers: of an integer dtype, or of a float dtype that holds integers. Errors: another dtype, a value
    /// that is no integer or beyond 32 bits.
    pub(super) fn whole_numbers(&self, name: &str, raw: &Raw) -> Result<Vec<i32>> {
        let Some((_, values)) = floats(raw) else {
            return self.integers(
                name,
                raw,
                &[Dtype::I32, Dtype::I8, Dtype::U8, Dtype::I16, Dtype::I64, Dtype::F32, Dtype::F16, Dtype::BF16],
            );
        };
        let whole = |x: &f32| {
            // 2^31 is the first f32 beyond an i32; a NaN is no integer.
            let inside = x.fract() == 0.0 && (-2_147_483_648.0..2_147_483_648.0).contains(x);
            inside
                .then_some(*x as i32)
                .ok_or_else(|| self.bad_tensor(name, format!("value {x}"), "integers of 32 bits: `zero` is `integer`"))
        };
        values.iter().map(whole).collect()
    }

    /// Integers of an integer dtype. Errors: another dtype, a value beyond 32 bits.
    pub(super) fn integers(&self, name: &str, raw: &Raw, dtypes: &[Dtype]) -> Result<Vec<i32>> {
        let b = &raw.bytes;
        let wide: Vec<i64> = match raw.dtype {
            d if !dtypes.contains(&d) => {
                let names = dtypes.iter().map(|d| format!("{d:?}")).collect::<Vec<_>>().join(", ");
                return Err(self.bad_dtype(name, raw, &format!("dtype {names}")));
            }
            Dtype::U8 => b.iter().map(|x| i64::from(*x)).collect(),
            Dtype::I8 => b.iter().map(|x| i64::from(*x as i8)).collect(),
            Dtype::I16 => chunks(b, i16::from_le_bytes).map(i64::from).collect(),
            Dtype::I32 => chunks(b, i32::from_le_bytes).map(i64::from).collect(),
            _ => chunks(b, i64::from_le_bytes).collect(),
        };
        let narrow = |x: i64| i32::try_from(x).map_err(|_| self.bad_tensor(name, format!("value {x}"), "integers of 32 bits"));
        wide.into_iter().map(narrow).collect()
    }

    /// A float tensor of one element. Errors: another shape, a dtype that is not one of `formats`.
    pub(super) fn scalar(&self, name: &str, formats: &[Format]) -> Result<Option<f32>> {
        let Some(raw) = self.squeezed(name, &[1], "one value")? else { return Ok(None) };
        match floats(raw) {
            Some((f, v)) if formats.contains(&f) => Ok(Some(v[0])),
            _ => {
                let names = formats.iter().map(|f| f.name().to_uppercase()).collect::<Vec<_>>().join(", ");
                Err(self.bad_dtype(name, raw, &format!("dtype {names}")))
            }
        }
    }
}

fn chunks<'a, const N: usize, T: 'a>(bytes: &'a [u8], of: fn([u8; N]) -> T) -> impl Iterator<Item = T> + 'a {
    bytes.chunks_exact(N).map(move |c| of(c.try_into().expect("N bytes")))
}

fn floats(raw: &Raw) -> Option<(Format, Vec<f32>)> {
    Some(match raw.dtype {
        Dtype::F32 => (Format::F32, chunks(&raw.bytes, f32::from_le_bytes).collect()),
        Dtype::F16 => (Format::F16, chunks(&raw.bytes, |b| f16::from_le_bytes(b).to_f32()).collect()),
        Dtype::BF16 => (Format::Bf16, chunks(&raw.bytes, |b| bf16::from_le_bytes(b).to_f32()).collect()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_of_values_has_two_sides_of_at_least_one() {
        let mut file = File { path: "x".into(), metadata: Default::default(), tensors: BTreeMap::new() };
        let mut of = |shape: &[usize]| {
            let data: Vec<u8> = (0..shape.iter().product::<usize>()).flat_map(|i| (i as f32).to_le_bytes()).collect();
            file.put("x", Raw::of(Dtype::F32, shape.to_vec(), data));
            file.tensor("x").map(|t| (t.rows(), t.cols(), t.data().to_vec())).map_err(|e| e.to_string())
        };
        assert_eq!(of(&[2, 3]), Ok((2, 3, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0])));
        assert_eq!(of(&[1, 1]), Ok((1, 1, vec![0.0])));
        for shape in [&[0, 3][..], &[2, 0], &[6], &[1, 2, 3]] {
            assert!(of(shape).unwrap_err().contains("both at least 1"), "{shape:?}");
        }
    }
}
