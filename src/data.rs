//! The data folder: sweeps, scenarios, the list of real bugs, real tensors. They are inside the program (feature `embed`), so that it
//! runs anywhere; a file under `$QASSAY_DATA`, then one under `./data`, comes first. A build without `embed` reads its source tree.

use crate::{Error, Result};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// A file that the program holds.
pub struct Packed {
    pub name: &'static str,
    /// Where it is, and which bytes of that are its own.
    stream: &'static Stream,
    start: usize,
    end: usize,
}

impl Packed {
    const fn new(name: &'static str, stream: &'static Stream, start: usize, end: usize) -> Packed {
        Packed { name, stream, start, end }
    }
    pub fn whole(&'static self) -> &'static [u8] {
        &self.stream.whole()[self.start..self.end]
    }
}

/// Files deflated together. They are unpacked once, by the first who reads one.
struct Stream {
    bytes: &'static [u8],
    size: usize,
    /// Even bytes as they are, before odd ones.
    planes: bool,
    whole: OnceLock<Vec<u8>>,
}

impl Stream {
    const fn new(bytes: &'static [u8], size: usize, planes: bool) -> Stream {
        Stream { bytes, size, planes, whole: OnceLock::new() }
    }
    fn whole(&'static self) -> &'static [u8] {
        self.whole.get_or_init(|| {
            let inflated = |bytes: &[u8], size| {
                miniz_oxide::inflate::decompress_to_vec_with_limit(bytes, size).expect("packed by build.rs")
            };
            if !self.planes {
                return inflated(self.bytes, self.size);
            }
            let (even, odd) = self.bytes.split_at(self.size.div_ceil(2));
            let odd = inflated(odd, self.size / 2);
            let mut whole = vec![0; self.size];
            whole.iter_mut().step_by(2).zip(even).for_each(|(to, from)| *to = *from);
            whole.iter_mut().skip(1).step_by(2).zip(odd).for_each(|(to, from)| *to = from);
            whole
        })
    }
}

/// One file, wherever it was found.
pub struct DataFile {
    /// On disk, or its name in the data folder where it came from the program itself.
    pub path: PathBuf,
    pub bytes: Cow<'static, [u8]>,
}

impl DataFile {
    /// As text. Errors: bytes that are not UTF-8.
    pub fn text(self) -> Result<String> {
        let path = self.path;
        String::from_utf8(self.bytes.into_owned()).map_err(|e| Error::BadFile {
            path,
            found: format!("byte {} is not UTF-8", e.utf8_error().valid_up_to()),
            expected: "text".into(),
        })
    }
}

/// Reads a file of the data folder: `sweeps/smoke.toml`. Errors: it is nowhere; it cannot be read.
pub fn read(relative: &str) -> Result<DataFile> {
    if let Some(path) = find(relative) {
        let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e, "check its permissions"))?;
        return Ok(DataFile { path, bytes: bytes.into() });
    }
    match embedded(relative) {
        Some(bytes) => Ok(DataFile { path: relative.into(), bytes: bytes.into() }),
        None => Err(missing(relative)),
    }
}

/// The text of `FOLDER/NAME.toml` of the data folder, or of the file at `name` when it ends in `.toml`, and where it was. `None`: there
/// is no such name. Errors: there is no such file; it cannot be read.
pub fn text_of(folder: &str, name: &str) -> Result<Option<(PathBuf, String)>> {
    if name.ends_with(".toml") {
        let path = PathBuf::from(name);
        let remedy = match folder {
            "sweeps" => "check the path; `qassay list sweeps` prints the names of built-in sweeps",
            "scenarios" => "check the path; `qassay list scenarios` prints the names of built-in scenarios",
            _ => "check the path and its permissions",
        };
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e, remedy))?;
        return Ok(Some((path, text)));
    }
    let relative = format!("{folder}/{name}.toml");
    if find(&relative).is_none() && embedded(&relative).is_none() {
        return Ok(None);
    }
    let file = read(&relative)?;
    Ok(Some((file.path.clone(), file.text()?)))
}

/// The file on disk, where there is one: it comes before the one in the program.
pub fn find(relative: &str) -> Option<PathBuf> {
    places().into_iter().map(|p| p.join(relative)).find(|p| p.exists())
}

/// The bytes that are part of the program.
pub fn embedded(relative: &str) -> Option<&'static [u8]> {
    FILES.binary_search_by(|f| f.name.cmp(relative)).ok().map(|i| FILES[i].whole())
}

/// Names, without the extension, of the files of a folder: those on disk and those in the program, sorted.
pub fn names(folder: &str, extension: &str) -> Result<Vec<String>> {
    let inside = FILES.iter().map(|f| Path::new(f.name)).filter(|p| p.parent() == Some(Path::new(folder)));
    let mut found: Vec<PathBuf> = inside.map(PathBuf::from).collect();
    for dir in places().into_iter().map(|p| p.join(folder)).filter(|p| p.is_dir()) {
        let io = |e| Error::io(&dir, e, "check its permissions");
        for entry in std::fs::read_dir(&dir).map_err(io)? {
            found.push(entry.map_err(io)?.path());
        }
    }
    let named = found.iter().filter(|p| p.extension().is_some_and(|e| e == extension)).filter_map(|p| p.file_stem());
    let mut names: Vec<String> = named.map(|s| s.to_string_lossy().into_owned()).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// The folder that baselines and golden outputs are written to and read from: `$QASSAY_DATA`, else the source tree of a build without
/// `embed` that is run elsewhere, else `./data`, there or not.
pub fn folder() -> PathBuf {
    let all = places();
    all.iter().find(|p| p.is_dir()).unwrap_or(&all[0]).clone()
}

/// The git revision of the source that was built: what `cargo package` wrote down, else that of the repository, with `+` when it had changes.
pub(crate) fn revision() -> Option<&'static str> {
    REVISION
}

/// The Rust compiler that built the program.
pub(crate) fn compiler() -> &'static str {
    COMPILER
}

/// Digest of the source of the CPU kernels, and of all that decides their bits.
pub(crate) fn kernels() -> &'static str {
    KERNELS
}

fn places() -> Vec<PathBuf> {
    let given = std::env::var_os("QASSAY_DATA").filter(|v| !v.is_empty()).map(PathBuf::from);
    // A program that has its data inside runs where its source never was.
    let source = (!cfg!(feature = "embed")).then(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("data"));
    given.into_iter().chain(["data".into()]).chain(source).collect()
}

fn missing(relative: &str) -> Error {
    let tried = places().iter().map(|p| p.join(relative).display().to_string()).collect::<Vec<_>>().join(", ");
    let inside = if cfg!(feature = "embed") { " and the program itself" } else { "" };
    let cause = std::io::Error::new(std::io::ErrorKind::NotFound, format!("not found; tried {tried}{inside}"));
    Error::io(relative, cause, "put it under ./data, or set QASSAY_DATA to the folder that has it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "embed")]
    fn every_sweep_scenario_and_collection_of_the_tree_is_inside() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        let mut count = 0;
        for folder in ["sweeps", "scenarios", "real/minilm"] {
            for entry in std::fs::read_dir(tree.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|e| e == "toml" || e == "safetensors") {
                    let relative = path.strip_prefix(&tree).unwrap().to_str().unwrap();
                    assert_eq!(embedded(relative), Some(&std::fs::read(&path).unwrap()[..]), "{relative}");
                    count += 1;
                }
            }
        }
        assert_eq!(embedded("bugs.csv"), Some(&std::fs::read(tree.join("bugs.csv")).unwrap()[..]));
        assert_eq!(FILES.len(), count + 1);
        assert!(FILES.is_sorted_by_key(|f| f.name));
        let mut streams: Vec<&Stream> = FILES.iter().map(|f| f.stream).collect();
        streams.sort_by_key(|s| s.bytes.as_ptr());
        streams.dedup_by_key(|s| s.bytes.as_ptr());
        let (packed, whole) = streams.iter().fold((0, 0), |(packed, whole), s| (packed + s.bytes.len(), whole + s.size));
        assert!(packed * 100 < whole * 85, "they are packed: {packed} of {whole} bytes");
    }

    #[test]
    fn what_is_nowhere_says_where_it_was_looked_for() {
        let e = read("real/none.safetensors").err().unwrap().to_string();
        assert!(e.contains("data/real/none.safetensors") && e.contains("QASSAY_DATA"), "{e}");
        assert!(names("nothing", "toml").unwrap().is_empty());
    }
}
