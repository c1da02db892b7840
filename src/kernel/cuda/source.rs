//! The embedded sources: one op a `.cu`, and the headers they share.

/// A source file: its name under `kernels/`, and its text.
pub struct Source {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! embed {
    ($($name:literal),* $(,)?) => {
        &[$(Source { name: $name, text: include_str!(concat!("../../../kernels/", $name)) }),*]
    };
}

/// Every `.cu` under `kernels/`.
pub const SOURCES: &[Source] = embed![
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
    "int4_quant.cu",
    "mixed_gemm.cu",
    "mixed_stream.cu",
    "model_wgmma.cu",
    "norm.cu",
    "scale_inv.cu",
    "w4a8.cu",
    "w4a8_wide.cu",
];

/// Every header under `kernels/common/`, by the name that `#include` uses.
pub const HEADERS: &[Source] = embed![
    "common/act.cuh",
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
    "common/scale_rule.cuh",
    "common/tile.cuh",
    "common/tma.cuh",
    "common/token.cuh",
    "common/wgmma.cuh",
];

#[cfg(test)]
mod tests {
    use super::*;

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
        let embedded = |sources: &[Source]| {
            let mut names: Vec<String> = sources.iter().map(|s| s.name.to_string()).collect();
            names.sort();
            names
        };
        assert_eq!(embedded(SOURCES), files("", "cu"));
        assert_eq!(embedded(HEADERS), files("common", "cuh"));
    }
}
