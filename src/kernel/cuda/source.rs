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
    /// The text with the kernel `entry` alone: the others are templates of which there is no instance. A source is compiled for each kernel and its
    /// options, and most of its others would be compiled in vain.
    pub fn only(&self, entry: &str) -> String {
        let mut parts = self.text.split(KERNEL);
        let mut text = parts.next().unwrap_or_default().to_string();
        for part in parts {
            text += if declared(part) == Some(entry) { KERNEL } else { "template <int> static __global__" };
            text += part;
        }
        text
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

/// What a kernel's declaration begins with.
const KERNEL: &str = "extern \"C\" __global__";

/// The name that is declared after it: the first before a parenthesis that is no attribute (`__launch_bounds__(…)`).
fn declared(mut text: &str) -> Option<&str> {
    loop {
        text = &text[text.find(|c: char| c.is_alphanumeric() || c == '_')?..];
        let (name, rest) = text.split_at(text.find(|c: char| !c.is_alphanumeric() && c != '_')?);
        text = rest.trim_start();
        if !text.starts_with('(') {
            continue;
        }
        if !name.starts_with("__") {
            return Some(name);
        }
        let mut open = 0;
        let closes = |c: char| {
            open += i32::from(c == '(') - i32::from(c == ')');
            open == 0
        };
        text = &text[text.find(closes)?..];
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
    fn one_kernel_is_left_of_a_source() {
        let text = "extern \"C\" __global__ void a(int x) {}\n#if 1\nextern \"C\" __global__ void __cluster_dims__(2, f(1), 1) __launch_bounds__(32 * (X + 1))\n    b(const u8* w) {}\n#endif\n";
        let source = CudaSource { name: "x.cu", text };
        let template = "template <int> static __global__";
        assert_eq!(source.only("b"), text.replacen(KERNEL, template, 1));
        assert_eq!(source.only("a"), text.replace(KERNEL, template).replacen(template, KERNEL, 1));
        assert_eq!(source.only("c").matches(KERNEL).count(), 0);
        // Of every source, each of the names that its kernels have.
        for source in SOURCES.iter() {
            let names: Vec<&str> = source.text.split(KERNEL).skip(1).filter_map(declared).collect();
            assert_eq!(names.len(), source.text.matches(KERNEL).count(), "{}", source.name);
            for name in &names {
                let own = names.iter().filter(|n| *n == name).count();
                assert_eq!(source.only(name).matches(KERNEL).count(), own, "{name} of {}", source.name);
            }
        }
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
