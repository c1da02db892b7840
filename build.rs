//! Writes the list of the data files that are part of the program (feature `embed`), and the git revision of a packaged source.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What of `data/` is inside: baselines and golden outputs stay files, they are written and compared. Of `tests/`, the generator of right
/// results that `qassay power --clean` runs: numpy, which shares nothing with the judge.
const FILES: [&str; 1] = ["bugs.csv"];
const FOLDERS: [(&str, &str); 3] = [("sweeps", "toml"), ("scenarios", "toml"), ("real/minilm", "safetensors")];
const CLEAN: &str = "tests/clean";

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let data = root.join("data");
    let mut names: Vec<String> = Vec::new();
    if std::env::var_os("CARGO_FEATURE_EMBED").is_some() {
        names.extend(FILES.map(String::from));
        for (folder, extension) in FOLDERS {
            // The folder too: a new file changes its time.
            println!("cargo:rerun-if-changed={}", data.join(folder).display());
            names.extend(stems(&data.join(folder), extension).into_iter().map(|n| format!("{folder}/{n}")));
        }
        names.sort();
    }
    let mut text = list("FILES", names.into_iter().map(|n| (n.clone(), data.join(n))).collect());
    let clean = root.join(CLEAN);
    println!("cargo:rerun-if-changed={}", clean.display());
    let mut generator = stems(&clean, "py");
    generator.sort();
    text += &list("CLEAN", generator.into_iter().map(|n| (n.clone(), clean.join(n))).collect());
    writeln!(text, "pub const REVISION: Option<&str> = {:?};", packaged(&root)).expect("a string grows");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", root.join("Cargo.toml").display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("embedded.rs");
    std::fs::write(&out, text).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}

/// A table of names and contents.
fn list(table: &str, files: Vec<(String, PathBuf)>) -> String {
    let mut text = format!("pub static {table}: &[(&str, &[u8])] = &[\n");
    for (name, path) in files {
        println!("cargo:rerun-if-changed={}", path.display());
        writeln!(text, "    ({name:?}, include_bytes!({:?})),", path.display().to_string()).expect("a string grows");
    }
    text + "];\n"
}

/// File names with this extension. A missing folder ends the build: the program would lack what its verbs need.
fn stems(folder: &Path, extension: &str) -> Vec<String> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}; build without feature embed", folder.display()));
    let paths = entries.map(|e| e.expect("a readable folder").path());
    let named = paths.filter(|p| p.extension().is_some_and(|e| e == extension));
    named.map(|p| p.file_name().expect("a file").to_str().expect("a name in ASCII").to_string()).collect()
}

/// The revision that `cargo package` wrote down.
fn packaged(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join(".cargo_vcs_info.json")).ok()?;
    let hash = text.split("\"sha1\": \"").nth(1)?.split('"').next()?;
    (hash.len() == 40).then(|| hash[..12].to_string())
}
