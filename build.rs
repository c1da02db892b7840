//! Packs the data files that are part of the program (feature `embed`) and the CUDA sources (feature `cuda`), and writes down what it was
//! built from: revision, compiler, digest of the CPU kernels' source.

use std::fmt::Write;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What of `data/` is inside: baselines and golden outputs stay files, they are written and compared. Of `tests/`, the generator of right
/// results that `qassay power --clean` runs: numpy, which shares nothing with the judge.
const FILES: [&str; 1] = ["bugs.csv"];
const FOLDERS: [(&str, &str); 2] = [("sweeps", "toml"), ("scenarios", "toml")];
const TENSORS: (&str, &str) = ("real/minilm", "safetensors");
const CLEAN: &str = "tests/clean";
/// What `qassay helper` prints: the format of bundles, and the Python file.
const HELPER: [&str; 2] = ["data/bundles/README.md", "python/qassay/_bundle.py"];
/// What decides the bits that a CPU kernel returns.
const KERNELS: [&str; 9] = ["format", "tensor.rs", "quant", "recipe", "input", "op", "job", "model", "kernel/cpu"];

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let (data, out) = (root.join("data"), PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")));
    let feature = |name: &str| std::env::var_os(format!("CARGO_FEATURE_{name}")).is_some();
    // The program lies at one address: 0.4 MB smaller, the table of places that would have to be moved.
    if ["OS=linux", "ENV=gnu", "ARCH=x86_64"].iter().all(|is| {
        let (what, value) = is.split_once('=').expect("as written");
        std::env::var(format!("CARGO_CFG_TARGET_{what}")).is_ok_and(|v| v == value)
    }) {
        println!("cargo:rustc-link-arg-bins=-no-pie");
        // Functions of the same machine code are one: Rust's own linker, which is what this target has, does that.
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
    let mut text = String::new();
    let mut files = Vec::new();
    if feature("EMBED") {
        files.extend(FILES.map(String::from));
        files.extend(FOLDERS.into_iter().chain([TENSORS]).flat_map(|(folder, extension)| within(&data, folder, extension)));
        files.sort();
    }
    text += &table("FILES", &data, &files, &out);
    text += &table("HELPER", &root, &HELPER.map(String::from), &out);
    text += &table("CLEAN", &root.join(CLEAN), &within(&root.join(CLEAN), "", "py"), &out);
    if feature("CUDA") {
        let kernels = root.join("kernels");
        text += &table("CUDA", &kernels, &within(&kernels, "", "cu"), &out);
        text += &table("CUDA_HEADERS", &kernels, &within(&kernels, "common", "cuh"), &out);
    }
    // A change of any source: the revision is that of the last build that compiled something.
    println!("cargo:rerun-if-changed={}", root.join("src").display());
    let revision = packaged(&root).or_else(|| checked_out(&root));
    let compiler = said(&root, &std::env::var("RUSTC").expect("cargo sets it"), &["--version"]).unwrap_or_default();
    writeln!(text, "pub const REVISION: Option<&str> = {revision:?};").expect("a string grows");
    writeln!(text, "pub const COMPILER: &str = {compiler:?};").expect("a string grows");
    let mut digest = 0xcbf2_9ce4_8422_2325;
    KERNELS.iter().for_each(|part| add(&root.join("src").join(part), &mut digest));
    writeln!(text, "pub const KERNELS: &str = \"{digest:016x}\";").expect("a string grows");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", root.join("Cargo.toml").display());
    let out = out.join("embedded.rs");
    std::fs::write(&out, text).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}

/// A table of files with their names below `root`. Texts are deflated together, because they are alike; each tensor by itself.
fn table(table: &str, root: &Path, names: &[String], out: &Path) -> String {
    let (mut streams, mut rows, mut texts) = (String::new(), String::new(), Vec::new());
    for (i, name) in names.iter().enumerate() {
        let from = root.join(name);
        println!("cargo:rerun-if-changed={}", from.display());
        let bytes = std::fs::read(&from).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        let (stream, start) = if name.ends_with(TENSORS.1) {
            let (stream, size) = (format!("{table}_{i}"), bytes.len());
            // The even bytes, then the odd ones: in 16-bit floats these hold sign and exponent and pack to 68 %; the others do not pack.
            let plane = |odd: usize| bytes.iter().skip(odd).step_by(2).copied().collect::<Vec<u8>>();
            let at = saved(out, &stream, &plane(0), &plane(1));
            writeln!(streams, "static {stream}: Stream = Stream::new(include_bytes!({at:?}), {size}, true);")
                .expect("a string grows");
            (stream, 0)
        } else {
            texts.extend_from_slice(&bytes);
            (format!("{table}_TEXTS"), texts.len() - bytes.len())
        };
        let end = start + bytes.len();
        writeln!(rows, "    Packed::new({name:?}, &{stream}, {start}, {end}),").expect("a string grows");
    }
    if !texts.is_empty() {
        let (stream, size) = (format!("{table}_TEXTS"), texts.len());
        let at = saved(out, &stream, &[], &texts);
        writeln!(streams, "static {stream}: Stream = Stream::new(include_bytes!({at:?}), {size}, false);")
            .expect("a string grows");
    }
    format!("{streams}pub static {table}: [Packed; {}] = [\n{rows}];\n", names.len())
}

/// Writes `plain` and, deflated as small as that goes, `bytes` to a file, and gives its path. Seconds of work: not where they are there from an
/// earlier build.
fn saved(out: &Path, stream: &str, plain: &[u8], bytes: &[u8]) -> String {
    let to = out.join(stream);
    let there = std::fs::read(&to).unwrap_or_default();
    let before = there.strip_prefix(plain).and_then(|packed| miniz_oxide::inflate::decompress_to_vec(packed).ok());
    if before.is_none_or(|before| before != bytes) {
        let options = zopfli::Options { iteration_count: NonZeroU64::new(3).expect("not zero"), ..Default::default() };
        let mut encoder = zopfli::DeflateEncoder::new(options, zopfli::BlockType::Dynamic, plain.to_vec());
        zopfli::Write::write_all(&mut encoder, bytes).expect("memory takes all");
        let packed = encoder.finish().expect("memory takes all");
        std::fs::write(&to, packed).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
    }
    to.display().to_string()
}

/// Files of a folder with this extension, by their names below `root`, sorted. A missing folder ends the build: the program would lack what
/// its verbs need.
fn within(root: &Path, folder: &str, extension: &str) -> Vec<String> {
    let place = root.join(folder);
    // The folder too: a new file changes its time.
    println!("cargo:rerun-if-changed={}", place.display());
    let entries = std::fs::read_dir(&place).unwrap_or_else(|e| panic!("{}: {e}; build without feature embed", place.display()));
    let paths = entries.map(|e| e.expect("a readable folder").path());
    let named = paths.filter(|p| p.extension().is_some_and(|e| e == extension));
    let name = |p: PathBuf| p.strip_prefix(root).expect("below it").to_str().expect("a name in ASCII").to_string();
    let mut names: Vec<String> = named.map(name).collect();
    names.sort();
    names
}

/// The revision that `cargo package` wrote down.
fn packaged(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join(".cargo_vcs_info.json")).ok()?;
    let hash = text.split("\"sha1\": \"").nth(1)?.split('"').next()?;
    (hash.len() == 40).then(|| hash[..12].to_string())
}

/// The revision of the repository whose root this is, with `+` when it has changes.
fn checked_out(root: &Path) -> Option<String> {
    let git = |arguments: &[&str]| said(root, "git", arguments);
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    // A crate inside somebody else's repository has no revision of its own.
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(git(&["rev-parse", "--short=12", "HEAD"])? + if changes.is_empty() { "" } else { "+" })
}

/// What a program prints, run in `folder`; `None` where it is not there or fails.
fn said(folder: &Path, program: &str, arguments: &[&str]) -> Option<String> {
    let out = Command::new(program).args(arguments).current_dir(folder).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
}

/// FNV-1a over the names and bytes of a file, or of all below a folder, in the order of their names.
fn add(path: &Path, digest: &mut u64) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("a readable folder").path()).collect();
        paths.sort();
        return paths.iter().for_each(|p| add(p, digest));
    }
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let name = path.file_name().expect("a file").as_encoded_bytes();
    for byte in name.iter().chain(&bytes) {
        *digest = (*digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
}
