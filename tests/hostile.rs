//! Every reader takes hostile files: no panic, no unbounded memory. Files that were right are cut, flipped, spliced and stuffed with what
//! parsers fear, and read. `QASSAY_FUZZ` is how many files each reader gets; a few thousand unless it says otherwise.

#[path = "common/hostile.rs"]
mod common;

use common::{Counting, Dice, count, spoiled};
use qassay::assay::row;
use qassay::baseline;
use qassay::input::real;
use qassay::run::facts::Facts;
use qassay::run::maps;
use qassay::sweep::Sweep;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Gives `read` spoiled copies of `whole` as a file named `name`; returns how many it accepted.
fn feed(name: &str, whole: &[u8], read: impl Fn(&Path) -> bool) -> usize {
    let n = count();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, whole).unwrap();
    assert!(read(&path), "{name}: the file as it was is refused");
    let (mut dice, mut accepted) = (Dice(whole.len() as u64), 0);
    for i in 0..n {
        let bytes = spoiled(whole, &mut dice);
        std::fs::write(&path, &bytes).unwrap();
        match catch_unwind(AssertUnwindSafe(|| read(&path))) {
            Ok(ok) => accepted += usize::from(ok),
            Err(_) => panic!("{name}: file {i} panicked its reader: {:?}", String::from_utf8_lossy(&bytes)),
        }
    }
    eprintln!("{name}: {n} files, {accepted} accepted");
    accepted
}

fn data(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(relative)
}

/// The first lines of a file.
fn head(path: &Path, lines: usize) -> Vec<u8> {
    let text = std::fs::read_to_string(path).unwrap();
    text.split_inclusive('\n').take(lines).collect::<String>().into_bytes()
}

#[test]
fn sweep_files() {
    let whole = std::fs::read(data("sweeps/smoke.toml")).unwrap();
    feed("sweep.toml", &whole, |p| Sweep::load(&p.display().to_string(), 0).is_ok());
}

#[test]
fn rows_of_a_run() {
    let whole = head(&Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/example/rows.csv"), 12);
    feed("rows.csv", &whole, |p| row::read(p).is_ok() & row::count(p).is_ok());
}

#[test]
fn baselines() {
    let whole = head(&data("baselines/cpu/standard.csv"), 30);
    feed("standard.csv", &whole, |p| std::fs::read_to_string(p).is_ok_and(|text| baseline::parse(p, &text).is_ok()));
    let facts = std::fs::read(data("baselines/cpu/standard.json")).unwrap();
    feed("run.json", &facts, |p| Facts::read_file(p).is_ok());
}

#[test]
fn maps_of_a_run() {
    let whole =
        b"case,why,tile_rows,tile_cols,tile_row,errors_over_bound\nc,w,4,2,0,0.5|0.25\nc,w,4,2,1,NaN|1e3\nd,w,1,1,0,0\n";
    feed("maps.csv", whole, |p| maps::read(p.parent().unwrap()).is_ok());
}

/// A header that claims more than the file has, names twice, offsets backwards.
#[test]
fn tensors_of_a_model() {
    let header = br#"{"__metadata__":{"a":"b"},"w":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},"v":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}}"#;
    let mut whole = (header.len() as u64).to_le_bytes().to_vec();
    whole.extend(header);
    whole.extend([0x3c; 20]);
    feed("model.safetensors", &whole, |p| {
        let listed = real::tensors(p).is_ok();
        let tensor: Result<real::RealTensor, _> = format!("{}#w@1,1", p.display()).parse();
        listed && tensor.is_ok_and(|t| t.window(qassay::Format::F32, 4, 5).is_ok())
    });
}

#[test]
fn a_sweep_of_too_many_cases_is_refused_before_it_is_made() {
    let text = "about = \"x\"\n[[cases]]\nname = \"t\"\nop = [\"cast\"]\nshape = [\"1x1\"]\nseeds = 99999999999\n";
    let e = Sweep::parse(Path::new("x.toml"), text, 0).unwrap_err().to_string();
    assert!(e.starts_with("x.toml:3: table `t`: found 99999999999 cases, expected at most"), "{e}");
}
