//! Results of nothing: no rows, no columns, or sums over K = 0. Frameworks call kernels with them.
//!
//! A result without elements is right. An empty sum is 0, to the bit, and with a bias it is the bias. Both are judged as the product of
//! zeros that stands for them, so that formats, biases and FP8 results follow the same rules as everywhere.

use super::file::{File, Raw};
use super::metadata::{Meta, OPERAND_KEYS};
use super::{Bundle, ends, known_tensors, needs, order};
use crate::op::Op;
use crate::op::grouped::check_offs;
use crate::{Format, Result};
use safetensors::Dtype;

/// What was empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Empty {
    pub op: Op,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// The op and its shapes, as they were.
    pub words: String,
    /// Why the verdict is what it is.
    pub why: String,
    /// What the kernel wrote beside the result, and must not have.
    pub wrong: Option<String>,
}

impl Bundle {
    /// The bundle of a result of nothing. `None`: there is something to judge. Errors: shapes that contradict each other; tensors and keys
    /// that nobody knows.
    pub(super) fn of_nothing(file: &File) -> Result<Option<Bundle>> {
        let zero = |name: &str| file.get(name).map(|raw| raw.shape.contains(&0));
        let sides = ["a", "b"].map(|x| (zero(x), zero(&format!("{x}.codes"))));
        // Values beside codes of another size are a mistake.
        if !sides.iter().any(|s| s.0.or(s.1) == Some(true))
            || sides.iter().any(|s| s.0.is_some() && s.1.is_some() && s.0 != s.1)
        {
            return Ok(None);
        }
        let meta = Meta::of(file)?;
        known_tensors(file, &meta)?;
        let Some(found) = shapes(file, &meta)? else { return Ok(None) };
        let (stand_in, empty) = if found.out.contains(&0) { nothing(file, &found)? } else { sums(file, &found) };
        Ok(Some(Bundle { empty: Some(empty), ..Bundle::of_tensors(&stand_in)? }))
    }
}

/// Shapes in elements.
struct Shapes {
    op: Op,
    a: Vec<usize>,
    b: Vec<usize>,
    out: Vec<usize>,
    groups: Option<usize>,
}

impl Shapes {
    fn empty(&self, why: String, wrong: Option<String>) -> Empty {
        let by = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join("×");
        let second = if self.b.is_empty() { String::new() } else { format!(" by {}", by(&self.b)) };
        let words = format!("{} {}{second}", self.op.name(), by(&self.a));
        let [.., m, n] = self.out[..] else { unreachable!("a result has two axes or three") };
        let (m, k) =
            (self.groups.filter(|_| self.out.len() == 3).unwrap_or(1) * m, if self.b.is_empty() { 0 } else { self.a[1] });
        Empty { op: self.op, m, n, k, words, why, wrong }
    }
}

/// The shapes of an op with an empty operand. `None`: not even the number of axes is right.
fn shapes(file: &File, meta: &Meta) -> Result<Option<Shapes>> {
    let op = meta.op;
    let of = |x: &str, packed: bool| {
        let (name, raw) = [x.to_string(), format!("{x}.codes")].into_iter().find_map(|n| file.get(&n).map(|raw| (n, raw)))?;
        let twice = packed && name.ends_with(".codes") && raw.dtype != Dtype::F4;
        let mut shape = raw.shape.clone();
        shape.last_mut().filter(|_| twice).into_iter().for_each(|last| *last *= 2);
        Some((name, shape))
    };
    let Some((_, a)) = of("a", meta.a.packing.is_some()).filter(|a| a.1.len() == 2) else { return Ok(None) };
    let groups = match op {
        Op::GroupedGemm | Op::GroupedGemmWgrad => Some(ends(file, op)?),
        _ => None,
    };
    let mut b = Vec::new();
    if matches!(op, Op::Gemm | Op::GroupedGemm | Op::GroupedGemmWgrad) {
        let experts = groups.as_ref().filter(|_| op == Op::GroupedGemm).map(Vec::len);
        let (name, shape) = of("b", meta.b.packing.is_some()).ok_or_else(|| needs(file, op, "`b` or `b.codes`"))?;
        let right = match (experts, &shape[..]) {
            (Some(e), [lead, _, k]) => *lead == e && *k == a[1],
            (None, [_, k]) => *k == a[1],
            _ => false,
        };
        if !right {
            let lead = experts.map_or(String::new(), |e| format!("{e}, "));
            return Err(file.bad_tensor(&name, format!("shape {shape:?}"), format!("[{lead}N, {}] with K as in a", a[1])));
        }
        b = shape;
    }
    let along = if op == Op::GroupedGemmWgrad { a[1] } else { a[0] };
    if let Some(ends) = &groups {
        check_offs(Some(ends), along)?;
    }
    let groups = groups.map(|g| g.len());
    let out = match (op, groups) {
        (Op::Gemm, _) => vec![a[0], b[0]],
        (Op::GroupedGemm, _) => vec![a[0], b[1]],
        (Op::GroupedGemmWgrad, Some(e)) => vec![e, a[0], b[0]],
        (Op::Gated, _) => vec![a[0], a[1] / 2],
        _ => a.clone(),
    };
    let mut stored = out.clone();
    let packed = meta.out.packing.is_some() && file.get("out.codes").is_some_and(|raw| raw.dtype != Dtype::F4);
    stored.last_mut().filter(|_| packed).into_iter().for_each(|last| *last /= 2);
    let why = format!("the result of op {}", op.name());
    if file.shaped("out", &stored, &why)?.is_none() && file.shaped("out.codes", &stored, &why)?.is_none() {
        return Err(file.bad("no tensor `out` or `out.codes`".into(), "one of them, with what the kernel wrote".into()));
    }
    Ok(Some(Shapes { op, a, b, out, groups }))
}

fn zeros(shape: &[usize]) -> Raw {
    Raw::of(Dtype::F32, shape.to_vec(), vec![0; 4 * shape.iter().product::<usize>()])
}

/// A result without elements: the product 0 of two zeros.
fn nothing(file: &File, found: &Shapes) -> Result<(File, Empty)> {
    let amax = file.scalar("out.amax", &[Format::F32, Format::F16, Format::Bf16])?;
    let wrong = amax.filter(|amax| *amax != 0.0).map(|amax| format!("amax is {amax}; of no values it is 0"));
    let shape = found.out.iter().map(usize::to_string).collect::<Vec<_>>().join("×");
    let empty = found.empty(format!("nothing to judge: the result is {shape}"), wrong);
    let mut stand_in = file.clone();
    let names: Vec<String> = file.names().map(str::to_string).collect();
    names.iter().for_each(|name| stand_in.remove(name));
    stand_in.metadata.retain(|key, _| ["qassay.bundle", "kernel", "device", "note"].contains(&key.as_str()));
    stand_in.metadata.insert("op".into(), Op::Gemm.name().into());
    ["a", "b", "out"].into_iter().for_each(|x| stand_in.put(x, zeros(&[1, 1])));
    Ok((stand_in, empty))
}

/// Sums over K = 0: those over one zero.
fn sums(file: &File, found: &Shapes) -> (File, Empty) {
    let (biased, weighted) = (file.has("bias"), file.has(order::ROW_WEIGHTS));
    let is = match (biased, weighted) {
        (false, _) => "0",
        (true, false) => "the bias",
        (true, true) => "the bias by the weight of its row",
    };
    let empty = found.empty(format!("K is 0: each element is {is}"), None);
    let mut stand_in = file.clone();
    let gone = |name: &str| {
        let operand = |x: &str| name == x || name.strip_prefix(x).is_some_and(|rest| rest.starts_with('.'));
        // A weight of a row changes no 0.
        operand("a") || operand("b") || name == order::ROW_WEIGHTS && !biased
    };
    let names: Vec<String> = file.names().filter(|n| gone(n)).map(str::to_string).collect();
    names.iter().for_each(|name| stand_in.remove(name));
    let known = |key: &String| OPERAND_KEYS.iter().any(|k| *key == format!("a.{k}") || *key == format!("b.{k}"));
    stand_in.metadata.retain(|key, _| !known(key) && !["recipe", "device_model", "promote_every"].contains(&key.as_str()));
    let one = |shape: &[usize]| {
        let mut shape = shape.to_vec();
        shape.last_mut().into_iter().for_each(|k| *k = 1);
        zeros(&shape)
    };
    stand_in.put("a", one(&found.a));
    stand_in.put("b", one(&found.b));
    // Of the gradient of weights K is the tokens: the zero is the last group's.
    if let (Op::GroupedGemmWgrad, Some(groups)) = (found.op, found.groups) {
        let ends = (1..=groups).flat_map(|g| i32::from(g == groups).to_le_bytes()).collect();
        stand_in.put("offs", Raw::of(Dtype::I32, vec![groups], ends));
    }
    (stand_in, empty)
}
