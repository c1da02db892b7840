//! Writes the list of the data files that are part of the program (feature `embed`), and what it was built from: revision, compiler,
//! digest of the CPU kernels' source.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What of `data/` is inside: baselines and golden outputs stay files, they are written and compared. Of `tests/`, the generator of right
/// results that `qassay power --clean` runs: numpy, which shares nothing with the judge.
const FILES: [&str; 1] = ["bugs.csv"];
const FOLDERS: [(&str, &str); 2] = [("sweeps", "toml"), ("scenarios", "toml")];
/// The real tensors are packed: as they are, they would be a third of the program.
const TENSORS: (&str, &str) = ("real/minilm", "safetensors");
const CLEAN: &str = "tests/clean";
/// What decides the bits that a CPU kernel returns.
const KERNELS: [&str; 9] = ["format", "tensor.rs", "quant", "recipe", "input", "op", "job", "model", "kernel/cpu"];

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let data = root.join("data");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let (mut names, mut tensors): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    if std::env::var_os("CARGO_FEATURE_EMBED").is_some() {
        names.extend(FILES.map(String::from));
        let of = |(folder, extension): (&str, &str)| {
            // The folder too: a new file changes its time.
            println!("cargo:rerun-if-changed={}", data.join(folder).display());
            stems(&data.join(folder), extension).into_iter().map(|n| format!("{folder}/{n}")).collect::<Vec<_>>()
        };
        names.extend(FOLDERS.into_iter().flat_map(of));
        names.sort();
        tensors = of(TENSORS);
    }
    let mut text = list("FILES", names.into_iter().map(|n| (n.clone(), data.join(n))).collect());
    text += &packed(&data, &out, &tensors);
    let clean = root.join(CLEAN);
    println!("cargo:rerun-if-changed={}", clean.display());
    let mut generator = stems(&clean, "py");
    generator.sort();
    text += &list("CLEAN", generator.into_iter().map(|n| (n.clone(), clean.join(n))).collect());
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

/// A table of names and contents.
fn list(table: &str, files: Vec<(String, PathBuf)>) -> String {
    let mut text = format!("pub static {table}: &[(&str, &[u8])] = &[\n");
    for (name, path) in files {
        println!("cargo:rerun-if-changed={}", path.display());
        writeln!(text, "    ({name:?}, include_bytes!({:?})),", path.display().to_string()).expect("a string grows");
    }
    text + "];\n"
}

/// Packs tensor files: the even bytes, then the odd ones, deflated. In 16-bit floats the odd bytes hold sign and exponent: they pack to 70 %;
/// the others do not pack.
fn packed(data: &Path, out: &Path, names: &[String]) -> String {
    let mut text = format!("pub static PACKED: [Packed; {}] = [\n", names.len());
    for name in names {
        let (from, to) = (data.join(name), out.join(name.replace('/', "-")));
        println!("cargo:rerun-if-changed={}", from.display());
        let bytes = std::fs::read(&from).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        let planes: Vec<u8> = (0..2).flat_map(|odd| bytes.iter().skip(odd).step_by(2)).copied().collect();
        std::fs::write(&to, deflated(&planes)).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
        let (to, size) = (to.display().to_string(), bytes.len());
        writeln!(text, "    Packed::new({name:?}, include_bytes!({to:?}), {size}),").expect("a string grows");
    }
    text + "];\n"
}

/// Of Huffman codes alone: nothing in a mantissa repeats, and it is quick.
fn deflated(bytes: &[u8]) -> Vec<u8> {
    use miniz_oxide::deflate::CompressionLevel::DefaultLevel;
    use miniz_oxide::deflate::core::{
        CompressionStrategy::HuffmanOnly, CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
    };
    let mut compressor = CompressorOxide::new(create_comp_flags_from_zip_params(DefaultLevel as i32, 0, HuffmanOnly as i32));
    // A block that does not pack is stored with a few bytes of header.
    let mut packed = vec![0; bytes.len() + bytes.len() / 100 + 100];
    let (status, _, len) = compress(&mut compressor, bytes, &mut packed, TDEFLFlush::Finish);
    assert!(status == TDEFLStatus::Done, "deflate: {status:?}");
    packed.truncate(len);
    packed
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
