//! `qassay serve`: judges what another program sends through a pipe. Not for people: `pip install qassay` keeps one.
//!
//! Each request is a line of JSON on standard input, each answer one on standard output, in the same order. A line that has
//! `"bytes": n` is followed by n bytes: a safetensors file. Parts of the file may lie in the memory of a GPU that both processes see: they are not
//! sent, and `shared` lists them (see [`Shared`]). The first line says who answers: `{"qassay": version, "protocol": 1}`.
//!
//! | `word` | request | answer |
//! |---|---|---|
//! | `assay` | a bundle; `label` names it in errors, `seconds` bounds its diagnosis (0: none), `there` asks for what the GPU judges whole or nothing | `answer`: what `qassay assay --json` prints, with `text`, `map`, and where large f64 `products` were computed: cpu or gpu |
//! | `quantize` | `recipe`; a file with `x` | a file with `x.codes`, `x.scale_inv`, … and their metadata |
//! | `cases` | `sweep`, `match` (texts) | `cases`: id, op, family, why it is skipped |
//! | `case` | `sweep`, `id` | its bundle without a result |
//! | `list` | `what`: recipes, faults, sweeps | `names` |
//! | `page` | a bundle | `page`: HTML |
//! | `ping` | | `pong` |
//!
//! What is wrong with a request is `{"error": text}`; shared memory that cannot be read is `{"unread": text}`: send the bytes instead. A panic is `{"panic": text}`: no verdict, and the next request is answered.

use super::status;
use crate::bundle::{Bundle, File, Writer, answer, assay, case};
use crate::job::{Job, Operand};
use crate::op::{Accelerator, accelerated};
use crate::recipe::{RECIPES, Recipe};
use crate::sweep::{Sweep, build};
use crate::{Error, kernel, report};
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Raised when a request or an answer changes its meaning.
const PROTOCOL: u32 = 1;
/// A line longer than this is no request.
const LONGEST: usize = 1 << 20;

/// Answer requests on standard input until it ends.
#[derive(clap::Args)]
pub struct Args {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    word: String,
    bytes: Option<usize>,
    #[serde(default)]
    label: String,
    seconds: Option<f64>,
    #[serde(default)]
    recipe: String,
    #[serde(default)]
    sweep: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    what: String,
    #[serde(default, rename = "match")]
    texts: Vec<String>,
    /// Use the GPU of this machine for the f64 products.
    #[serde(default)]
    gpu: bool,
    /// Answer null unless that GPU judges all of it.
    #[serde(default)]
    there: bool,
    #[serde(default)]
    shared: Vec<Shared>,
}

/// A part of the file that was not sent: `bytes` bytes from byte `at` of the whole file on, which lie `offset` bytes behind the begin of the
/// allocation that `cuIpcGetMemHandle` gave `handle` for, on the GPU of this id (`cuDeviceGetUuid`); both in hexadecimal digits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    at: usize,
    bytes: usize,
    offset: u64,
    handle: String,
    gpu: String,
}

impl Shared {
    fn memory(&self) -> Result<kernel::Elsewhere> {
        Ok(kernel::Elsewhere { handle: digits("handle", &self.handle)?, offset: self.offset, gpu: digits("gpu", &self.gpu)? })
    }
}

/// Bytes of hexadecimal digits. Errors: others, or not N.
fn digits<const N: usize>(what: &str, text: &str) -> Result<[u8; N]> {
    let byte = |i: usize| text.get(2 * i..2 * i + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
    let hexadecimal = text.len() == 2 * N && text.bytes().all(|b| b.is_ascii_hexdigit());
    let all = hexadecimal.then(|| (0..N).map(byte).collect::<Option<Vec<u8>>>()).flatten().and_then(|all| all.try_into().ok());
    all.ok_or_else(|| Error::value(what, text, format!("{} hexadecimal digits", 2 * N)).into())
}

/// The whole file: what was sent, and between it what lies elsewhere. Errors: parts that overlap, do not ascend or lie behind the end; `read`'s.
fn whole(sent: &[u8], shared: &[Shared], read: impl Fn(&Shared, &mut [u8]) -> Result<()>) -> Result<Vec<u8>> {
    let total =
        shared.iter().try_fold(sent.len(), |n, s| n.checked_add(s.bytes)).context("shared: more bytes than memory has")?;
    let mut file: Vec<u8> = Vec::new();
    file.try_reserve_exact(total).with_context(|| format!("shared: {total} bytes"))?;
    let mut from = 0;
    for part in shared {
        let between = part.at.checked_sub(file.len()).filter(|n| *n <= sent.len() - from);
        let Some(between) = between else {
            let left = sent.len() - from;
            anyhow::bail!("shared: a part at byte {}, expected one from {} to {}", part.at, file.len(), file.len() + left);
        };
        file.extend_from_slice(&sent[from..from + between]);
        from += between;
        file.resize(part.at + part.bytes, 0);
        read(part, &mut file[part.at..])?;
    }
    file.extend_from_slice(&sent[from..]);
    Ok(file)
}

/// An answer's line, and the bytes behind it.
type Reply = (Value, Option<Vec<u8>>);

/// What the last panic said, and where.
static PANIC: Mutex<String> = Mutex::new(String::new());

pub fn run(_: Args) -> Result<u8> {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut text) = PANIC.lock() {
            *text = info.to_string();
        }
    }));
    let requests = requests();
    let mut sweeps = HashMap::new();
    send((json!({ "qassay": env!("CARGO_PKG_VERSION"), "protocol": PROTOCOL }), None))?;
    for (line, bytes) in requests {
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| answer(&line, &bytes, &mut sweeps)));
        send(match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(e)) => (json!({ "error": format!("{e:#}") }), None),
            Err(_) => {
                let said = PANIC.lock().map(|text| text.clone()).unwrap_or_default();
                (json!({ "panic": said }), None)
            }
        })?;
    }
    Ok(status::PASSED)
}

/// Requests, read on a thread of its own that ends the process with the input: whoever asked is gone, and so is the use of what is being
/// computed.
fn requests() -> Receiver<(String, Vec<u8>)> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            match request(&mut input) {
                Ok(Some(request)) => {
                    if sender.send(request).is_err() {
                        std::process::exit(i32::from(status::PASSED));
                    }
                }
                Ok(None) => std::process::exit(i32::from(status::PASSED)),
                Err(e) => {
                    eprintln!("qassay: {e:#}");
                    std::process::exit(i32::from(status::USAGE));
                }
            }
        }
    });
    receiver
}

/// The next line and its bytes; `None` at the end of the input.
fn request(input: &mut impl BufRead) -> Result<Option<(String, Vec<u8>)>> {
    let mut line = String::new();
    if BufRead::read_line(&mut input.by_ref().take(LONGEST as u64), &mut line).context("standard input")? == 0 {
        return Ok(None);
    }
    anyhow::ensure!(line.ends_with('\n'), "a request that does not end within {LONGEST} bytes, expected one line of JSON");
    let head: Value = serde_json::from_str(&line).context("a request that is no JSON")?;
    let mut bytes = Vec::new();
    if let Some(n) = head.get("bytes").and_then(Value::as_u64) {
        // As they come: a false length costs no memory.
        let read = input.take(n).read_to_end(&mut bytes).context("standard input")?;
        anyhow::ensure!(read as u64 == n, "{read} bytes after a request, expected {n}");
    }
    Ok(Some((line, bytes)))
}

fn send((mut line, bytes): Reply) -> Result<()> {
    if let Some(bytes) = &bytes {
        line["bytes"] = bytes.len().into();
    }
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    out.write_all(&bytes.unwrap_or_default())?;
    Ok(out.flush()?)
}

fn answer(line: &str, bytes: &[u8], sweeps: &mut HashMap<String, Sweep>) -> Result<Reply> {
    let request: Request = serde_json::from_str(line).context("request")?;
    debug_assert!(request.bytes.is_none_or(|n| n == bytes.len()));
    let read = |part: &Shared, into: &mut [u8]| Ok(kernel::read_elsewhere(&part.memory()?, into)?);
    let joined = match &request.shared[..] {
        [] => None,
        shared => match whole(bytes, shared, read) {
            Ok(file) => Some(file),
            Err(e) => return Ok((json!({ "unread": format!("{e:#}") }), None)),
        },
    };
    let bytes = joined.as_deref().unwrap_or(bytes);
    let accelerator = if request.gpu { kernel::of_this_machine() } else { None };
    let label = Path::new(if request.label.is_empty() { "bundle" } else { &request.label });
    match request.word.as_str() {
        "ping" => Ok((json!({ "pong": true }), None)),
        "assay" if request.there => there(label, bytes).map(|a| (json!({ "answer": a }), None)),
        "assay" => judge(label, bytes, request.seconds, accelerator).map(|a| (json!({ "answer": a }), None)),
        "page" => page(label, bytes, accelerator).map(|p| (json!({ "page": p }), None)),
        "quantize" => quantize(&request.recipe, label, bytes),
        "cases" => {
            let cases = sweep(sweeps, &request.sweep)?.cases.iter();
            let kept = cases.filter(|c| {
                let id = c.id();
                request.texts.iter().all(|t| id.contains(t.as_str()) || c.family.contains(t.as_str()))
            });
            let list: Vec<Value> = kept
                .map(|c| json!({ "id": c.id(), "op": c.op.name(), "family": &*c.family, "edge": c.edge, "skip": c.skip.as_deref() }))
                .collect();
            Ok((json!({ "cases": list }), None))
        }
        "case" => input(sweep(sweeps, &request.sweep)?, &request.id),
        "list" => list(&request.what).map(|names| (json!({ "names": names }), None)),
        other => Err(Error::unknown("word", other, ["assay", "case", "cases", "list", "page", "ping", "quantize"]).into()),
    }
}

/// The verdict on a bundle, as `qassay assay --json` prints it and with what a reader of one result wants besides.
fn judge(label: &Path, bytes: &[u8], seconds: Option<f64>, accelerator: Option<Accelerator>) -> Result<Value> {
    let bundle = Bundle::parse(label, bytes)?;
    let time = match seconds {
        None => crate::fault::DIAGNOSIS,
        Some(s) => Duration::try_from_secs_f64(s).context("seconds")?,
    };
    let before = accelerated();
    let mut found = assay::assay_by(&bundle, time, accelerator)?;
    crate::scenario::audited::beside(&bundle, &mut found);
    told(&bundle, &found, accelerated() > before)
}

/// What a GPU says of all of a bundle; null where it is not to say.
fn there(label: &Path, bytes: &[u8]) -> Result<Value> {
    let bundle = Bundle::parse(label, bytes)?;
    kernel::of_this_machine().and_then(|_| assay::there(&bundle)).map_or(Ok(Value::Null), |found| told(&bundle, &found, true))
}

fn told(bundle: &Bundle, found: &assay::Answer, gpu: bool) -> Result<Value> {
    let mut value = answer::json(bundle, found);
    let gpu = gpu || found.measured.is_some();
    let on = if gpu { "  products     f64, on the GPU\n" } else { "" };
    value["products"] = if gpu { "gpu" } else { "cpu" }.into();
    value["text"] = (answer::text(bundle, found, answer::WIDTH) + on).into();
    let map = answer::map(bundle, found)?;
    // A ratio that is not finite is null: NaN and Inf are both no number that a bound was met by.
    let cell = |r: &f64| if r.is_finite() { json!(r) } else { Value::Null };
    let cells: Vec<Vec<Value>> = map.cells.iter().map(|row| row.iter().map(cell).collect()).collect();
    value["map"] = json!({ "tile_rows": map.tile_rows, "tile_cols": map.tile_cols, "cells": cells });
    Ok(value)
}

fn page(label: &Path, bytes: &[u8], accelerator: Option<Accelerator>) -> Result<String> {
    let bundle = Bundle::parse(label, bytes)?;
    let mut found = assay::assay_by(&bundle, crate::fault::DIAGNOSIS, accelerator)?;
    crate::scenario::audited::beside(&bundle, &mut found);
    let locations: Vec<_> = found.diagnosis.iter().map(|d| (label.display().to_string(), d.location.clone())).collect();
    let map = answer::map(&bundle, &found)?;
    let provenance = format!("qassay: {}\ndate: {}\n", env!("CARGO_PKG_VERSION"), crate::run::provenance::now());
    Ok(report::page(vec![answer::row(&bundle, &found)], &[map], &locations, &provenance))
}

/// `x` by a recipe, as operand `x` of a bundle.
fn quantize(recipe: &str, label: &Path, bytes: &[u8]) -> Result<Reply> {
    let recipe: Recipe = recipe.parse()?;
    let x = File::parse(label, bytes)?.tensor("x")?;
    let q = recipe.quantize(&x)?.q;
    let mut w = Writer::default();
    w.codes("x", &q, None, None)?;
    Ok((json!({ "recipe": recipe.to_string() }), Some(w.to_bytes()?)))
}

/// A sweep, expanded once.
fn sweep<'a>(sweeps: &'a mut HashMap<String, Sweep>, name: &str) -> Result<&'a Sweep> {
    if !sweeps.contains_key(name) {
        sweeps.insert(name.into(), Sweep::load(name, 0)?);
    }
    Ok(&sweeps[name])
}

/// What a kernel is given for a case, with the values that its operands were quantized from.
fn input(sweep: &Sweep, id: &str) -> Result<Reply> {
    let known = || sweep.cases.iter().map(|c| c.id()).take(8).collect::<Vec<_>>();
    let Some(case) = sweep.cases.iter().find(|c| c.id() == id) else {
        return Err(Error::unknown("case", id, known().iter().map(String::as_str)).into());
    };
    let built = build::build(case)?;
    let mut w = case::input(&built.job)?;
    for (x, operand, experts) in operands(&built.job) {
        let Operand::Quantized(q) = operand else { continue };
        if let Some((_, t)) = built.quantized.iter().find(|(of, _)| of == q) {
            let rows = t.rows() / experts.unwrap_or(1).max(1);
            let shape: Vec<usize> = experts.into_iter().chain([rows, t.cols()]).collect();
            w.values(x, &shape, t);
        }
    }
    let shape = case::out_shape(&built.job);
    Ok((json!({ "id": id, "op": case.op.name(), "out_shape": shape }), Some(w.to_bytes()?)))
}

fn operands(job: &Job) -> impl Iterator<Item = (&'static str, &Operand, Option<usize>)> {
    let experts = matches!(job.op, crate::op::Op::GroupedGemm | crate::op::Op::GroupedGemmDgrad)
        .then(|| job.operands.offs.as_ref().map_or(1, Vec::len));
    job.operands.get(0).map(|a| ("a", a, None)).into_iter().chain(job.operands.b().map(|b| ("b", b, experts)))
}

fn list(what: &str) -> Result<Vec<String>> {
    Ok(match what {
        "recipes" => RECIPES.iter().map(|r| r.name.to_string()).collect(),
        "faults" => crate::fault::faults().map(|f| f.variant.to_string()).collect(),
        "sweeps" => crate::data::names("sweeps", "toml")?,
        other => return Err(Error::unknown("list", other, ["recipes", "faults", "sweeps"]).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_line_and_its_bytes() {
        let mut input = &b"{\"word\":\"ping\",\"bytes\":3}\nabc{\"word\":\"ping\"}\n"[..];
        assert_eq!(request(&mut input).unwrap().unwrap().1, b"abc");
        assert_eq!(request(&mut input).unwrap().unwrap().0, "{\"word\":\"ping\"}\n");
        assert!(request(&mut input).unwrap().is_none());
        for (bad, why) in [("{\"bytes\":9}\nabc", "3 bytes"), ("nonsense\n", "no JSON"), ("{}", "does not end")] {
            let e = format!("{:#}", request(&mut bad.as_bytes()).unwrap_err());
            assert!(e.contains(why), "{e}");
        }
    }

    /// A file of "ab" [123] "c" [45] "" whose bytes in brackets lie elsewhere.
    #[test]
    fn what_lies_elsewhere_has_its_place_in_the_file() {
        let part = |at: usize, bytes: usize, digits: usize| Shared {
            at,
            bytes,
            offset: at as u64,
            handle: "0f".repeat(digits),
            gpu: "a0".repeat(16),
        };
        let read = |part: &Shared, into: &mut [u8]| {
            into.copy_from_slice(&b"..123.45"[part.offset as usize..][..part.bytes]);
            Ok(())
        };
        assert_eq!(whole(b"abc", &[part(2, 3, 64), part(6, 2, 64)], read).unwrap(), b"ab123c45");
        assert_eq!(whole(b"abc", &[], read).unwrap(), b"abc");
        for bad in
            [[part(2, 3, 64), part(4, 2, 64)], [part(2, 3, 64), part(7, 1, 64)], [part(2, usize::MAX, 64), part(6, 2, 64)]]
        {
            assert!(format!("{:#}", whole(b"abc", &bad, read).unwrap_err()).contains("shared: "));
        }
        let memory = part(2, 3, 64).memory().unwrap();
        assert_eq!((memory.handle, memory.gpu, memory.offset), ([15; 64], [160; 16], 2));
        assert!(part(2, 3, 63).memory().err().unwrap().to_string().contains("128 hexadecimal digits"));
        assert!(digits::<1>("handle", "+1").is_err() && digits::<1>("handle", "é").is_err());
    }

    /// Where there is no GPU nothing can be read, and the request says so in a word of its own.
    #[test]
    fn shared_memory_that_cannot_be_read_is_no_error_of_the_request() {
        let part =
            format!("{{\"at\":0,\"bytes\":8,\"offset\":0,\"handle\":\"{}\",\"gpu\":\"{}\"}}", "00".repeat(64), "00".repeat(16));
        let line = format!("{{\"word\":\"assay\",\"bytes\":0,\"shared\":[{part}]}}");
        let (said, bytes) = answer(&line, b"", &mut HashMap::new()).unwrap();
        assert!(said["unread"].as_str().is_some_and(|text| !text.is_empty()) && bytes.is_none(), "{said}");
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let mut sweeps = HashMap::new();
        let said = |line: &str, sweeps: &mut HashMap<String, Sweep>| format!("{:#}", answer(line, b"", sweeps).unwrap_err());
        assert!(said("{\"word\":\"judge\"}", &mut sweeps).contains("known: assay"));
        assert!(said("{\"word\":\"ping\",\"color\":1}", &mut sweeps).contains("color"));
        assert!(said("{\"word\":\"case\",\"sweep\":\"smoke\",\"id\":\"x\"}", &mut sweeps).contains("unknown case `x`"));
        assert!(said("{\"word\":\"assay\",\"label\":\"assert_gemm\"}", &mut sweeps).starts_with("assert_gemm: found"));
        assert!(sweeps.contains_key("smoke"));
    }
}
