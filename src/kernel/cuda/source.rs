//! The embedded sources: one op a `.cu`, and the headers they share.

use crate::data::{self, Packed};
use crate::{Error, Result};
use std::sync::LazyLock;

/// A source file: its name under `kernels/`, and its text.
pub struct CudaSource {
    pub name: &'static str,
    pub text: &'static str,
}

impl CudaSource {
    /// The names after `#ifndef` in its text and in the headers it includes: the options it has.
    fn options(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.text.lines().filter_map(|line| line.strip_prefix("#ifndef ")).map(str::trim).collect();
        for line in self.text.lines() {
            let included = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
            names.extend(HEADERS.iter().filter(|h| Some(h.name) == included).flat_map(CudaSource::options));
        }
        names
    }
    /// Whether products and sums may be fused where the source does not say: not in one whose first lines say how it is compiled.
    pub fn fuses(&self) -> bool {
        !self.text.contains("\n// compiled with --fmad=false\n")
    }
    /// Errors: an option (`-DNAME=VALUE`) that the source does not read, which would leave its own at the default.
    pub fn knows(&self, defines: &[String]) -> Result<()> {
        let options = self.options();
        let name = |define: &String| define.trim_start_matches("-D").split('=').next().unwrap_or_default().to_string();
        match defines.iter().map(name).find(|name| !options.contains(&name.as_str())) {
            Some(name) => Err(Error::unknown("option of a CUDA source", &format!("{name} of {}", self.name), options)),
            None => Ok(()),
        }
    }
}

/// Every `.cu` under `kernels/`.
pub static SOURCES: LazyLock<Vec<CudaSource>> = LazyLock::new(|| texts(&data::CUDA));

/// Every header under `kernels/common/`, by the name that `#include` uses.
pub static HEADERS: LazyLock<Vec<CudaSource>> = LazyLock::new(|| texts(&data::CUDA_HEADERS));

fn texts(files: &'static [Packed]) -> Vec<CudaSource> {
    let text = |file: &'static Packed| std::str::from_utf8(file.whole()).expect("a source is text");
    files.iter().map(|file| CudaSource { name: file.name, text: text(file) }).collect()
}

/// SHA-256 of all of them.
pub fn digest() -> String {
    let texts: Vec<String> = SOURCES.iter().chain(HEADERS.iter()).map(|s| format!("{}\0{}\0", s.name, s.text)).collect();
    crate::compare::sha256(texts.concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_a_source_does_not_read_is_refused() {
        let source = |name: &str| SOURCES.iter().find(|s| s.name == name).expect("embedded");
        let defines = |all: &[&str]| all.iter().map(|d| format!("-D{d}=1")).collect::<Vec<_>>();
        source("cast_block.cu").knows(&defines(&["IN", "FORMAT", "RULE", "POW2", "BLOCKS", "SQUARE", "WHOLE"])).unwrap();
        source("fp8_gemm.cu").knows(&defines(&["OUT", "SCALES", "A_E5M2", "TILE_N", "CLUSTER"])).unwrap();
        let e = source("cast.cu").knows(&defines(&["IN", "FORMATS"])).unwrap_err().to_string();
        assert!(e.contains("FORMATS") && e.contains("cast.cu"), "{e}");
    }

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let mut count = 0;
        for (folder, extension, sources) in [("", "cu", &SOURCES), ("common", "cuh", &HEADERS)] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|e| e == extension) {
                    let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
                    let inside = sources.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{name} is not inside"));
                    assert_eq!(inside.text, std::fs::read_to_string(&path).unwrap(), "{name}");
                    count += 1;
                }
            }
        }
        assert_eq!(count, SOURCES.len() + HEADERS.len());
        assert!(count > 40, "{count}");
    }
}
