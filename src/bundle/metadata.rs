//! The metadata of a bundle: every key, its values and defaults.

use super::File;
use crate::error::hint;
use crate::format::FORMATS;
use crate::format::pack::NibbleOrder;
use crate::model::Accumulator;
use crate::op::{Act, Clamp, Op, Params};
use crate::quant::{SCALE_FORMATS, ZeroKind};
use crate::recipe::{Dtype as Stored, Recipe};
use crate::{Format, Granularity, Result};
use safetensors::Dtype;
use std::str::FromStr;

/// Ops a bundle can hold. `activation` with a gated `fn` is [`Op::Gated`]; `cast` with `out.transpose` is [`Op::CastTranspose`].
pub const OPS: [Op; 8] =
    [Op::Cast, Op::Dequantize, Op::Activation, Op::Layernorm, Op::Rmsnorm, Op::Gemm, Op::GroupedGemm, Op::GroupedGemmWgrad];

/// What operands are stored in: all but the scales' own and what only an instruction has.
fn formats() -> Vec<Format> {
    let all = FORMATS.iter().map(|f| f.format);
    all.filter(|f| !matches!(f, Format::E8m0 | Format::Uint6 | Format::Tf32)).collect()
}

/// `fn`: name, activation, gated. The clamped ones with the constants of gpt-oss.
pub const FUNCTIONS: [(&str, Act, bool); 14] = [
    ("gelu", Act::Gelu, false),
    ("silu", Act::Silu, false),
    ("relu", Act::Relu, false),
    ("qgelu", Act::Qgelu, false),
    ("srelu", Act::Srelu, false),
    ("gelu_erf", Act::GeluErf, false),
    ("geglu", Act::Gelu, true),
    ("swiglu", Act::Silu, true),
    ("reglu", Act::Relu, true),
    ("qgeglu", Act::Qgelu, true),
    ("sreglu", Act::Srelu, true),
    ("geglu_erf", Act::GeluErf, true),
    ("swiglu_oai", Act::SwigluOai(Clamp::OAI), true),
    ("swiglu_limit", Act::SwigluLimit(Clamp::new(1.0, 7.0)), true),
];

/// Keys of the whole bundle, and of each of `a`, `b`, `out`.
pub const KEYS: [&str; 13] = [
    "qassay.bundle",
    "op",
    "recipe",
    "fn",
    "alpha",
    "limit",
    "eps",
    "zero_centered_gamma",
    "device_model",
    "promote_every",
    "kernel",
    "device",
    "note",
];
pub const OPERAND_KEYS: [&str; 6] = ["format", "granularity", "scale_format", "packing", "zero", "global_granularity"];

/// What the metadata say of `a`, `b` or `out`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// `None`: from the dtype of the tensor.
    pub format: Option<Format>,
    pub granularity: Granularity,
    /// `None`: from the dtype of the tensor.
    pub scale_format: Option<Format>,
    /// `None`: one code a byte.
    pub packing: Option<NibbleOrder>,
    pub zero: ZeroKind,
    /// Which scales share one of the second level, over the grid of scales.
    pub global: Granularity,
}

impl Default for Spec {
    fn default() -> Self {
        let (granularity, global) = (Granularity::Tensor, Granularity::Tensor);
        Spec { format: None, granularity, scale_format: None, packing: None, zero: ZeroKind::None, global }
    }
}

/// All metadata of a bundle.
#[derive(Clone, Debug)]
pub struct Meta {
    pub op: Op,
    pub params: Params,
    pub a: Spec,
    pub b: Spec,
    pub out: Spec,
    /// Of operand a (of the result, where the op quantizes it) and of operand b. `recipe` is one name for all, or `A+B` with
    /// `none` for an operand that has none.
    pub recipe: Option<(Option<Recipe>, Option<Recipe>)>,
    /// `device_model` as it was given, without promotion.
    pub model: Option<Accumulator>,
    pub promote_every: Option<usize>,
    pub kernel: Option<String>,
    pub device: Option<String>,
    pub note: Option<String>,
}

impl Meta {
    /// What is known of a kernel that no bundle describes: everything at its default.
    pub fn plain(op: Op) -> Meta {
        let (a, b, out) = (Spec::default(), Spec::default(), Spec::default());
        let (kernel, device, note) = (None, None, None);
        Meta { op, params: Params::default(), a, b, out, recipe: None, model: None, promote_every: None, kernel, device, note }
    }

    /// Reads the metadata of a file. Errors name the file, the key, what was found and what was expected: a key that is not
    /// known, a value that a known key does not have, `qassay.bundle` or `op` missing, an activation without `fn`.
    pub fn of(file: &File) -> Result<Meta> {
        let known = |key: &str| {
            let operand = key.split_once('.').is_some_and(|(x, k)| ["a", "b", "out"].contains(&x) && OPERAND_KEYS.contains(&k));
            KEYS.contains(&key) || operand
        };
        if let Some(key) = file.metadata.keys().find(|k| !known(k)) {
            let operands = OPERAND_KEYS.map(|k| format!("X.{k}")).join(", ");
            let all: Vec<String> = ["a", "b", "out"].iter().flat_map(|x| OPERAND_KEYS.map(|k| format!("{x}.{k}"))).collect();
            let meant = hint(key, KEYS.into_iter().chain(all.iter().map(String::as_str)));
            return Err(file.bad(
                format!("metadata key `{key}`"),
                format!("one of {}, {operands} with X one of a, b, out{meant}", KEYS.join(", ")),
            ));
        }
        match file.metadata.get("qassay.bundle").map(String::as_str) {
            Some("1") => {}
            Some(v) => return Err(file.bad_key("qassay.bundle", v, "1")),
            None => return Err(file.bad("no metadata key `qassay.bundle`".into(), "`1`: the version of the contract".into())),
        }
        let names = || OPS.map(Op::name).join(", ");
        let op = match file.metadata.get("op") {
            None => return Err(file.bad("no metadata key `op`".into(), format!("one of {}", names()))),
            Some(v) => OPS.into_iter().find(|o| o.name() == v).ok_or_else(|| {
                let meant = hint(v, OPS.map(Op::name));
                file.bad_key("op", v, format!("one of {}{meant}", names()))
            })?,
        };
        let function = file.choice("fn", &FUNCTIONS.map(|f| (f.0, (f.1, f.2))))?;
        let params = Params {
            act: constants(file, function.map(|f| f.0))?.filter(|_| op == Op::Activation),
            eps: file.parsed("eps", "a number of at least 0", |e: &f32| e.is_finite() && *e >= 0.0)?.unwrap_or(1e-5),
            zero_centered_gamma: file.choice("zero_centered_gamma", &[("true", true), ("false", false)])?.unwrap_or(false),
        };
        let op = match (op, function) {
            (Op::Activation, None) => {
                let known = FUNCTIONS.map(|f| f.0).join(", ");
                return Err(file.bad("no metadata key `fn`, which activation needs".into(), format!("one of {known}")));
            }
            (Op::Activation, Some((_, true))) => Op::Gated,
            (Op::Layernorm | Op::Rmsnorm | Op::Activation, _) => op,
            (_, Some(_)) => {
                return Err(
                    file.bad(format!("metadata key `fn` for op {}", op.name()), "this key for op activation only".into())
                );
            }
            _ => op,
        };
        let text = |key: &str| file.metadata.get(key).cloned();
        let model = text("device_model").map(|v| {
            let one = v.parse::<Accumulator>().ok().filter(|a| a.promote_every.is_none());
            one.ok_or_else(|| {
                let known = Accumulator::names().collect::<Vec<_>>().join(", ");
                let meant = hint(&v, Accumulator::names());
                file.bad_key("device_model", &v, format!("one of {known} (promotion is `promote_every`){meant}"))
            })
        });
        let recipe = text("recipe").map(|v| recipes(file, &v)).transpose()?;
        let (first, second) = recipe.as_ref().map_or((None, None), |(a, b)| (a.as_ref(), b.as_ref()));
        let (of_operands, of_result) = (op.is_product(), matches!(op, Op::Cast | Op::CastTranspose));
        let by = |x: &str, recipe: Option<&Recipe>, is: bool| {
            spec(file, x).map(|s| match recipe.filter(|_| is) {
                Some(recipe) => by_recipe(file, x, s, recipe),
                None => s,
            })
        };
        Ok(Meta {
            op,
            params,
            a: by("a", first, of_operands || op == Op::Dequantize)?,
            b: by("b", second, of_operands)?,
            out: by("out", first, of_result)?,
            recipe,
            model: model.transpose()?,
            promote_every: file.parsed("promote_every", "a number of K elements, at least 1", |n: &usize| *n > 0)?,
            kernel: text("kernel"),
            device: text("device"),
            note: text("note"),
        })
    }
}

/// The activation with its `alpha` and `limit`. Errors: one of them beside an `fn` that has none.
fn constants(file: &File, act: Option<Act>) -> Result<Option<Act>> {
    let alpha = file.parsed("alpha", "a number that is not 0", |x: &f32| x.is_finite() && *x != 0.0)?;
    let limit = file.parsed("limit", "a number above 0", |x: &f32| x.is_finite() && *x > 0.0)?;
    let only = |key: &str, names: &str| Err(file.bad(format!("metadata key `{key}`"), format!("this key for fn {names} only")));
    match act {
        Some(Act::SwigluOai(c)) => {
            let c = Clamp::new(alpha.unwrap_or(c.alpha()), limit.unwrap_or(c.limit()));
            Ok(Some(Act::SwigluOai(c)))
        }
        _ if alpha.is_some() => only("alpha", "swiglu_oai"),
        Some(Act::SwigluLimit(_)) => {
            match limit {
                Some(limit) => Ok(Some(Act::SwigluLimit(Clamp::new(1.0, limit)))),
                None => Err(file
                    .bad("no metadata key `limit`, which fn swiglu_limit needs".into(), "a number above 0, such as 7".into())),
            }
        }
        _ if limit.is_some() => only("limit", "swiglu_oai, swiglu_limit"),
        other => Ok(other),
    }
}

/// The keys of one operand.
pub fn spec(file: &File, x: &str) -> Result<Spec> {
    let key = |k: &str| format!("{x}.{k}");
    let by_name = |formats: &[Format]| formats.iter().map(|f| (f.name(), *f)).collect::<Vec<_>>();
    let packings = [("none", None), ("low_first", Some(NibbleOrder::LowFirst)), ("high_first", Some(NibbleOrder::HighFirst))];
    let zeros = ZeroKind::ALL.map(|z| (z.name(), z));
    let granularity = |k: &str| match file.metadata.get(&key(k)) {
        None => Ok(Granularity::Tensor),
        Some(v) => Granularity::from_str(v)
            .map_err(|_| file.bad_key(&key(k), v, "tensor, row, group:G or block:RxC with G, R, C of at least 1")),
    };
    Ok(Spec {
        format: file.choice(&key("format"), &by_name(&formats()))?,
        granularity: granularity("granularity")?,
        scale_format: file.choice(&key("scale_format"), &by_name(SCALE_FORMATS))?,
        packing: file.choice(&key("packing"), &packings)?.unwrap_or(None),
        zero: file.choice(&key("zero"), &zeros)?.unwrap_or(ZeroKind::None),
        global: granularity("global_granularity")?,
    })
}

/// What a recipe says of codes, where the metadata and the dtypes say nothing: how many elements share a scale, where there are several, and the
/// formats of bytes.
fn by_recipe(file: &File, x: &str, spec: Spec, recipe: &Recipe) -> Spec {
    let codes = file.get(&format!("{x}.codes")).or_else(|| file.get(x).filter(|_| x == "out"));
    let (Some(codes), Some(scales), Ok(rule), Ok(granularity)) =
        (codes, file.get(&format!("{x}.scale_inv")), recipe.spec(), recipe.granularity())
    else {
        return spec;
    };
    let several = scales.shape.iter().product::<usize>() > 1;
    let scale_format = match rule.scale_format {
        Stored::Fixed(f) if scales.dtype == Dtype::U8 && SCALE_FORMATS.contains(&f) => Some(f),
        _ => None,
    };
    Spec {
        granularity: match file.metadata.contains_key(&format!("{x}.granularity")) || !several {
            true => spec.granularity,
            false => granularity,
        },
        format: spec.format.or_else(|| matches!(codes.dtype, Dtype::U8 | Dtype::I8).then_some(recipe.format)),
        scale_format: spec.scale_format.or(scale_format),
        ..spec
    }
}

fn recipes(file: &File, text: &str) -> Result<(Option<Recipe>, Option<Recipe>)> {
    let one = |s: &str| match s {
        "none" => Ok(None),
        s => s
            .parse::<Recipe>()
            .map(Some)
            .map_err(|e| file.bad_key("recipe", text, format!("a recipe, or two joined by `+` ({e})"))),
    };
    match text.split_once('+') {
        Some((a, b)) => Ok((one(a)?, one(b)?)),
        None => Ok((one(text)?, one(text)?)),
    }
}

impl File {
    /// The value of a key that has a list of names.
    pub(super) fn choice<T: Copy>(&self, key: &str, names: &[(&str, T)]) -> Result<Option<T>> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        match names.iter().find(|n| n.0 == value) {
            Some(n) => Ok(Some(n.1)),
            None => {
                Err(self.bad_key(key, value, format!("one of {}", names.iter().map(|n| n.0).collect::<Vec<_>>().join(", "))))
            }
        }
    }
    /// The value of a key that is a number.
    fn parsed<T: FromStr>(&self, key: &str, expected: &str, good: impl Fn(&T) -> bool) -> Result<Option<T>> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        value.parse::<T>().ok().filter(good).map(Some).ok_or_else(|| self.bad_key(key, value, expected))
    }
    pub(super) fn bad_key(&self, key: &str, value: &str, expected: impl Into<String>) -> crate::Error {
        self.bad(format!("metadata `{key}` = `{value}`"), expected.into())
    }
}
