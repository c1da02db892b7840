//! Real tensors: windows of matrices in safetensors files.

use crate::{Error, Format, Result, Tensor};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Collections that are in `data/real`: prefix, file, what it is.
pub const COLLECTIONS: &[(&str, &str, &str)] = &[(
    "minilm",
    "real/minilm/minilm_l6_ffn.safetensors",
    "all-MiniLM-L6-v2: feed-forward weights and activations, layers 0 and 5",
)];

/// `s` begins with the prefix of a collection.
pub(super) fn is_collection(s: &str) -> bool {
    s.split_once(':').is_some_and(|(prefix, _)| COLLECTIONS.iter().any(|c| c.0 == prefix))
}

/// One tensor of a safetensors file and where in it a window begins. Spelled `minilm:<tensor>` or
/// `file.safetensors#<tensor>`, either with `@row,col`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RealTensor {
    /// The prefix of a collection, or a path.
    file: TensorFile,
    tensor: String,
    row: usize,
    col: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TensorFile {
    Collection(&'static str, &'static str),
    File(PathBuf),
}

impl std::str::FromStr for RealTensor {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let bad = || Error::value("real tensor", s, "minilm:<tensor> or <file>.safetensors#<tensor>, then perhaps @row,col");
        let (file, rest) = match s.split_once('#') {
            Some((path, rest)) => (TensorFile::File(path.into()), rest),
            None => {
                let (prefix, rest) = s.split_once(':').ok_or_else(bad)?;
                let c = COLLECTIONS.iter().find(|c| c.0 == prefix).ok_or_else(bad)?;
                (TensorFile::Collection(c.0, c.1), rest)
            }
        };
        let (tensor, row, col) = match rest.rsplit_once('@') {
            None => (rest, 0, 0),
            Some((tensor, at)) => {
                let (row, col) = at.split_once(',').ok_or_else(bad)?;
                (tensor, row.parse().map_err(|_| bad())?, col.parse().map_err(|_| bad())?)
            }
        };
        if tensor.is_empty() || file == TensorFile::File("".into()) {
            return Err(bad());
        }
        Ok(Self { file, tensor: tensor.to_string(), row, col })
    }
}

impl std::fmt::Display for RealTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match &self.file {
            TensorFile::Collection(prefix, _) => format!("{prefix}:{}", self.tensor),
            TensorFile::File(path) => format!("{}#{}", path.display(), self.tensor),
        };
        match (self.row, self.col) {
            (0, 0) => f.pad(&name),
            (row, col) => f.pad(&format!("{name}@{row},{col}")),
        }
    }
}

impl RealTensor {
    /// The window that begins this many rows and columns further on.
    pub fn moved(&self, rows: usize, cols: usize) -> Self {
        Self { row: self.row + rows, col: self.col + cols, ..self.clone() }
    }
    /// Rows and columns of the stored tensor: a vector of n is 1×n, leading dimensions are rows.
    pub fn shape(&self) -> Result<(usize, usize)> {
        self.read(|_, rows, cols, _| Ok((rows, cols)))
    }
    /// `rows × cols` from the window's corner on, as `dtype` (nearest even where it is narrower than the file's). A window that
    /// runs past the tensor goes on at its other edge. Only the window is read. Errors: file missing, damaged or lying; no
    /// such tensor; a stored dtype other than f16, bf16, f32; an empty tensor; a vector for more than one row.
    pub fn window(&self, dtype: Format, rows: usize, cols: usize) -> Result<Tensor> {
        let len = rows.checked_mul(cols).ok_or_else(|| Error::shape("window", format!("{rows}×{cols}"), "a size that fits"))?;
        self.read(|bytes, have_rows, have_cols, stored| {
            if have_rows == 1 && rows > 1 {
                return Err(Error::shape(
                    format!("{self}"),
                    format!("a vector 1×{have_cols}"),
                    format!("a matrix for {rows}×{cols}"),
                ));
            }
            let element: fn(&[u8], usize) -> f32 = match stored {
                Dtype::F32 => |b, i| f32::from_le_bytes([b[4 * i], b[4 * i + 1], b[4 * i + 2], b[4 * i + 3]]),
                Dtype::F16 => |b, i| f16::from_le_bytes([b[2 * i], b[2 * i + 1]]).to_f32(),
                Dtype::BF16 => |b, i| bf16::from_le_bytes([b[2 * i], b[2 * i + 1]]).to_f32(),
                other => {
                    return Err(Error::value(
                        format!("dtype of {self}"),
                        format!("{other:?}"),
                        "F16, BF16 or F32; convert the file first",
                    ));
                }
            };
            let mut data = Vec::with_capacity(len);
            for i in 0..rows {
                let start = (self.row % have_rows + i) % have_rows * have_cols;
                data.extend((0..cols).map(|j| element(bytes, start + (self.col % have_cols + j) % have_cols)));
            }
            Tensor::rounded(dtype, rows, cols, data)
        })
    }
    /// Hands the tensor's bytes, its rows, columns and dtype to `f`.
    fn read<T>(&self, f: impl FnOnce(&[u8], usize, usize, Dtype) -> Result<T>) -> Result<T> {
        let (path, bytes) = match &self.file {
            TensorFile::Collection(_, file) => collection(file)?,
            TensorFile::File(path) => (path.clone(), Bytes::Mapped(map(path)?)),
        };
        let file = parse(&path, bytes.as_slice())?;
        let view = file.tensor(&self.tensor).map_err(|_| {
            let mut names = file.names();
            names.sort_unstable();
            let (path, found) = (path.clone(), format!("no tensor `{}`", self.tensor));
            Error::BadFile { path, found, expected: format!("one of {}", names.join(", ")) }
        })?;
        let (rows, cols) = match view.shape() {
            [] => (1, 1),
            [lead @ .., last] => (lead.iter().product(), *last),
        };
        if rows == 0 || cols == 0 {
            return Err(Error::shape(format!("{self}"), format!("{:?}", view.shape()), "a tensor with elements"));
        }
        f(view.data(), rows, cols, view.dtype())
    }
}

/// Names, dtypes and shapes of a safetensors file, by name.
pub fn tensors(path: &Path) -> Result<Vec<(String, String, Vec<usize>)>> {
    listed(path, &map(path)?)
}

/// [`tensors`] of a collection's file.
pub fn tensors_of(file: &str) -> Result<Vec<(String, String, Vec<usize>)>> {
    let (path, bytes) = collection(file)?;
    listed(&path, bytes.as_slice())
}

fn listed(path: &Path, bytes: &[u8]) -> Result<Vec<(String, String, Vec<usize>)>> {
    let file = parse(path, bytes)?;
    let mut list: Vec<_> =
        file.tensors().into_iter().map(|(n, v)| (n, format!("{:?}", v.dtype()), v.shape().to_vec())).collect();
    list.sort();
    Ok(list)
}

/// A file's bytes: mapped from disk, or part of the program.
enum Bytes {
    Mapped(memmap2::Mmap),
    Inside(Cow<'static, [u8]>),
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Inside(bytes) => bytes,
        }
    }
}

/// The file of a collection. Errors: it is nowhere.
fn collection(file: &str) -> Result<(PathBuf, Bytes)> {
    if let Some(path) = crate::data::find(file) {
        return map(&path).map(|m| (path, Bytes::Mapped(m)));
    }
    let inside = crate::data::read(file)?;
    Ok((inside.path, Bytes::Inside(inside.bytes)))
}

fn map(path: &Path) -> Result<memmap2::Mmap> {
    let file = File::open(path).map_err(|e| Error::io(path, e, "give the path of a safetensors file"))?;
    // SAFETY: the map is read only and private to this call's caller. A file that another process truncates meanwhile would
    // end this one (SIGBUS), the same as for every memory-mapped reader; no invariant of ours rests on the bytes.
    unsafe { memmap2::Mmap::map(&file) }.map_err(|e| Error::io(path, e, "give a regular, readable file"))
}

/// Checks the header: its length against the file, offsets against the data (in order, no hole, no overlap), and each
/// tensor's bytes against its shape and dtype.
fn parse<'a>(path: &Path, map: &'a [u8]) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(map).map_err(|e| Error::BadFile {
        path: path.to_path_buf(),
        found: format!("{} bytes ({e})", map.len()),
        expected: "a whole safetensors file (8 bytes of header length, the header, the data); fetch it again".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Source;
    use std::io::Write;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut f = tempfile::NamedTempFile::new().unwrap();
        f.write_all(bytes).unwrap();
        f
    }
    fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
    }
    fn source(f: &tempfile::NamedTempFile, tensor: &str) -> RealTensor {
        format!("{}#{tensor}", f.path().display()).parse().unwrap()
    }
    fn message(bytes: &[u8]) -> String {
        let f = file(bytes);
        source(&f, "t").window(Format::F32, 2, 2).unwrap_err().to_string()
    }

    #[test]
    fn minilm_is_there_with_its_outliers() {
        let t: Source = "minilm:layer0.ffn_out_weight".parse().unwrap();
        let w = t.tensor(Format::F16, 144, 1536, 0, 0).unwrap();
        let moment = |p: i32| w.data().iter().map(|x| f64::from(*x).powi(p)).sum::<f64>() / w.data().len() as f64;
        let mean = moment(1);
        let central = |p: i32| w.data().iter().map(|x| (f64::from(*x) - mean).powi(p)).sum::<f64>() / w.data().len() as f64;
        let kurtosis = central(4) / central(2).powi(2);
        assert!((kurtosis - 3654.0).abs() < 2.0, "{kurtosis}");
        let list = tensors_of(COLLECTIONS[0].1).unwrap();
        assert_eq!(list.len(), 18);
        for (name, ..) in list {
            let real: RealTensor = format!("minilm:{name}").parse().unwrap();
            let (rows, cols) = real.shape().unwrap();
            assert!(real.window(Format::F32, rows, cols).unwrap().data().iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn windows_move_and_tile() {
        let data: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let header = r#"{"t":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
        let f = file(&with_header(header, &data));
        let real: RealTensor = format!("{}#t@1,2", f.path().display()).parse().unwrap();
        assert_eq!(real.window(Format::F32, 2, 4).unwrap().data(), &[5., 3., 4., 5., 2., 0., 1., 2.]);
        assert_eq!(real.to_string().parse::<RealTensor>().unwrap(), real);
        assert_eq!(source(&f, "t").window(Format::Bf16, 2, 3).unwrap().data(), &[0., 1., 2., 3., 4., 5.]);
        let missing = source(&f, "u").window(Format::F32, 1, 1).unwrap_err().to_string();
        assert!(missing.contains("found no tensor `u`, expected one of t"), "{missing}");
    }

    #[test]
    fn half_formats_are_read_exactly_and_others_refused() {
        let bits: Vec<u8> = [0x3c00u16, 0xc000, 0x0001, 0x7bff].iter().flat_map(|b| b.to_le_bytes()).collect();
        let of = |dtype: &str, bytes: &[u8]| {
            let header = format!(r#"{{"t":{{"dtype":"{dtype}","shape":[2,2],"data_offsets":[0,{}]}}}}"#, bytes.len());
            let f = file(&with_header(&header, bytes));
            source(&f, "t").window(Format::F32, 2, 2)
        };
        assert_eq!(of("F16", &bits).unwrap().data(), &[1.0, -2.0, 5.960_464_5e-8, 65504.0]);
        assert_eq!(of("BF16", &bits).unwrap().data()[0], f32::from_bits(0x3c00_0000));
        for (dtype, size) in [("F64", 32), ("I32", 16), ("U8", 4), ("F8_E4M3", 4)] {
            let e = of(dtype, &vec![0; size]).unwrap_err().to_string();
            assert!(e.contains("F16, BF16 or F32"), "{dtype}: {e}");
        }
    }

    #[test]
    fn damaged_and_lying_files_are_told_apart() {
        let good = with_header(r#"{"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#, &[0; 16]);
        assert!(source(&file(&good), "t").window(Format::F32, 2, 2).is_ok());
        let entry =
            |shape: &str, from: u64, to: u64| format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{from},{to}]}}"#);
        let one = |shape: &str, from, to| with_header(&format!(r#"{{"t":{}}}"#, entry(shape, from, to)), &[0; 16]);
        let two = with_header(&format!(r#"{{"t":{},"u":{}}}"#, entry("[2,2]", 0, 16), entry("[2,2]", 8, 24)), &[0; 24]);
        let max = u64::MAX;
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("empty", vec![]),
            ("shorter than the header length", good[..5].to_vec()),
            ("truncated header", good[..20].to_vec()),
            ("truncated data", good[..good.len() - 1].to_vec()),
            ("bytes after the data", [&good[..], &[0]].concat()),
            ("header length beyond the file", [&(1u64 << 20).to_le_bytes()[..], &good[8..]].concat()),
            ("header length of 2^64-1", [&max.to_le_bytes()[..], &good[8..]].concat()),
            ("offsets beyond the data", one("[2,4]", 0, 32)),
            ("offsets that run backwards", one("[2,2]", 16, 0)),
            ("shape larger than its bytes", one("[4,4]", 0, 16)),
            ("shape overflow", one(&format!("[{max},{max}]"), 0, 16)),
            ("overlapping tensors", two),
            ("unknown dtype", with_header(r#"{"t":{"dtype":"F33","shape":[2,2],"data_offsets":[0,16]}}"#, &[0; 16])),
            ("not JSON", with_header("{\"t\":", &[0; 16])),
            ("not UTF-8", [&4u64.to_le_bytes()[..], &[0xff; 4], &[0; 16]].concat()),
        ];
        for (what, bytes) in cases {
            let e = message(&bytes);
            assert!(e.contains("found") && e.contains("expected a whole safetensors file"), "{what}: {e}");
        }
        let e = message(&one("[0,4]", 0, 0));
        assert!(e.contains("safetensors"), "{e}");
        let empty = with_header(r#"{"t":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}}"#, &[]);
        assert!(message(&empty).contains("a tensor with elements"));
        let vector = with_header(r#"{"t":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#, &[0; 16]);
        assert!(message(&vector).contains("a vector 1×4"));
    }

    #[test]
    fn names_round_trip() {
        for name in ["minilm:a.b", "minilm:a@3,0", "a@2/m.safetensors#t", "C:/m.safetensors#t:u@0,7"] {
            let source: Source = name.parse().unwrap();
            assert!(matches!(source, Source::Real(_)), "{name}");
            assert_eq!(source.to_string(), name);
        }
        assert_eq!("ties:e2m1".parse::<Source>().unwrap(), Source::Synthetic(crate::input::Distribution::Ties(Format::E2m1)));
    }

    #[test]
    fn missing_files_and_bad_names() {
        let e = "nowhere.safetensors#t".parse::<RealTensor>().unwrap().window(Format::F32, 1, 1).unwrap_err().to_string();
        assert!(e.contains("nowhere.safetensors") && e.contains("give the path"), "{e}");
        let e = collection("real/none.safetensors").err().unwrap().to_string();
        assert!(e.contains("tried") && e.contains("QASSAY_DATA"), "{e}");
        for bad in ["minilm:", "other:t", "#t", "f#", "minilm:t@1", "minilm:t@a,b", "minilm:t@-1,0"] {
            assert!(bad.parse::<RealTensor>().is_err(), "{bad}");
        }
    }
}
