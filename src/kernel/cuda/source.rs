//! The embedded sources: one op a `.cu`, and the headers they share.

use crate::{Error, Result};

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

macro_rules! embed {
    ($($name:literal),* $(,)?) => {
        &[$(CudaSource { name: $name, text: include_str!(concat!("../../../kernels/", $name)) }),*]
    };
}

/// Every `.cu` under `kernels/`.
pub const SOURCES: &[CudaSource] = embed![
    "activation.cu",
    "cast.cu",
    "cast_block.cu",
    "cast_mx.cu",
    "cast_row.cu",
    "cast_transpose.cu",
    "dact.cu",
    "fp8_gemm.cu",
    "fp8_gemm_mma.cu",
    "gemm_f64.cu",
    "group_scales.cu",
    "grouped_gemm.cu",
    "inputs.cu",
    "int4_quant.cu",
    "judge.cu",
    "judge_bound.cu",
    "mixed_gemm.cu",
    "mixed_stream.cu",
    "model_int.cu",
    "model_wgmma.cu",
    "norm.cu",
    "reference.cu",
    "scale_inv.cu",
    "w4a8.cu",
    "w4a8_wide.cu",
];

/// Every header under `kernels/common/`, by the name that `#include` uses.
pub const HEADERS: &[CudaSource] = embed![
    "common/act.cuh",
    "common/doubles.cuh",
    "common/elements.cuh",
    "common/eight_rows.cuh",
    "common/fp8_cast.cuh",
    "common/fp8_epilogue.cuh",
    "common/fp8_model.cuh",
    "common/fp8_pipeline.cuh",
    "common/gemm_types.cuh",
    "common/int4.cuh",
    "common/intmma.cuh",
    "common/mbarrier.cuh",
    "common/mixed.cuh",
    "common/narrow.cuh",
    "common/options.cuh",
    "common/pairs.cuh",
    "common/scale_rule.cuh",
    "common/tile.cuh",
    "common/tma.cuh",
    "common/token.cuh",
    "common/wgmma.cuh",
];

/// SHA-256 of all of them.
pub fn digest() -> String {
    let texts: Vec<String> = SOURCES.iter().chain(HEADERS).map(|s| format!("{}\0{}\0", s.name, s.text)).collect();
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
        let files = |folder: &str, extension: &str| -> Vec<String> {
            let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten();
            let paths = entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == extension));
            let mut names: Vec<String> = paths.map(|p| p.strip_prefix(&root).unwrap().display().to_string()).collect();
            names.sort();
            names
        };
        let embedded = |sources: &[CudaSource]| {
            let mut names: Vec<String> = sources.iter().map(|s| s.name.to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(embedded(SOURCES), files("", "cu"));
        assert_eq!(embedded(HEADERS), files("common", "cuh"));
    }
}
