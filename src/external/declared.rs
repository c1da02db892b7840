//! How a user's CUDA kernel is called, as a comment of its source or `--signature` declares it.
//!
//! ```text
//! // qassay: my_gemm(a.codes: e4m3, a.scale_inv: row, b.codes: e4m3, b.scale_inv: row, bias: f32, out: bf16, m, n, k)
//! //         grid=n/16,m/16 block=16,16 smem=0 promote_every=128
//! ```
//!
//! The name is the entry's, `extern "C" __global__`. Its arguments follow in order: a pointer for each tensor, by the tensor's name in
//! a bundle (`data/bundles/README.md`), and numbers. The declaration goes on over the comment lines that follow it.
//!
//! | argument | passed as |
//! |---|---|
//! | `a.codes: e4m3`, `b.codes: int4 low_first` | pointer to the codes, of this format (and packing); one a byte without a packing |
//! | `a: bf16`, `b: f16` | pointer to unquantized values of this type |
//! | `a.scale_inv: row`, `b.scale_inv: group:128 e8m0` | pointer to what codes are multiplied by, of this granularity and format (f32) |
//! | `a.scale: row` | pointer to their reciprocals, rounded to f32 |
//! | `a.zero_point: integer` (i32), `: additive` (f32); `a.global_scale_inv` | pointers, shaped as in a bundle |
//! | `bias: f32`, `gamma`, `beta` | pointers; null where the case has none |
//! | `offs` | pointer to the i32 cumulative ends of the groups |
//! | `out: bf16`, `out.codes: e4m3`, `out.scale_inv`, `out.zero_point`, `out.global_scale_inv` | pointers to what the kernel writes |
//! | `out.scale` | pointer to the given f32 scale of an FP8 result |
//! | `out.amax` | pointer to an f32 that holds 0 before |
//! | `m`, `n`, `k`, `e` | rows of a, rows of b (columns of the result where there is no b), columns of a, groups: `int`; `k: i64` is `long long` |
//! | `a.stride`, `b.stride`, `out.stride`, `a.scale_stride`, `b.scale_stride` | elements from one row to the next: `int` or `i64` |
//! | `eps`, `zero_centered_gamma` | `float`, `int` |
//!
//! `grid` and `block` are one to three products of numbers and `m n k e`, x first; `/` rounds up, from left to right. `smem` is the
//! dynamic shared memory in bytes. `device_model` and `promote_every` say how a product is accumulated, as in a bundle.
//! Cases that the signature does not fit (another format, granularity, tensors it has no argument for) are skipped.

use crate::model::Accumulator;
use crate::{Error, Result};

/// One argument of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A pointer, by the tensor's name in a bundle, with what the case has to have: format, packing, granularity.
    Tensor { name: String, words: Vec<String> },
    /// A number: its name, and whether it is `long long`.
    Number { name: String, wide: bool },
}

/// A product of numbers and sizes; `/` rounds up.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    text: String,
    first: Factor,
    rest: Vec<(char, Factor)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Factor {
    Number(u64),
    Named(String),
}

/// The call of one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    pub entry: String,
    pub arguments: Vec<Argument>,
    pub grid: [Size; 3],
    pub block: [Size; 3],
    pub shared: Size,
    pub device_model: Option<Accumulator>,
    pub promote_every: Option<usize>,
}

/// Tensors a kernel reads, and those it writes.
pub const READ: [&str; 16] = [
    "a",
    "a.codes",
    "a.scale_inv",
    "a.scale",
    "a.zero_point",
    "a.global_scale_inv",
    "b",
    "b.codes",
    "b.scale_inv",
    "b.scale",
    "b.zero_point",
    "b.global_scale_inv",
    "bias",
    "gamma",
    "beta",
    "offs",
];
pub const WRITTEN: [&str; 6] = ["out", "out.codes", "out.scale_inv", "out.zero_point", "out.global_scale_inv", "out.amax"];
const SIZES: [&str; 4] = ["m", "n", "k", "e"];
const NUMBERS: [&str; 7] =
    ["a.stride", "b.stride", "out.stride", "a.scale_stride", "b.scale_stride", "eps", "zero_centered_gamma"];
const EXAMPLE: &str = "`// qassay: my_gemm(a.codes: e4m3, a.scale_inv: row, out: bf16, m, n, k) grid=n/16,m/16 block=16,16`";

impl Size {
    /// `n/128*m`. Errors: anything but factors joined by `*` and `/`.
    fn parse(text: &str) -> std::result::Result<Size, String> {
        let bad = || format!("`{text}`, expected numbers and m, n, k, e joined by `*` and `/` (which rounds up)");
        let factor = |s: &str| match s.trim() {
            s if SIZES.contains(&s) => Ok(Factor::Named(s.into())),
            s => s.parse().ok().filter(|n: &u64| *n < 1 << 32).map(Factor::Number).ok_or_else(bad),
        };
        let mut rest = Vec::new();
        let mut from = text.find(['*', '/']).unwrap_or(text.len());
        let first = factor(&text[..from])?;
        while from < text.len() {
            let sign = text[from..].chars().next().unwrap_or('*');
            let to = text[from + 1..].find(['*', '/']).map_or(text.len(), |i| from + 1 + i);
            rest.push((sign, factor(&text[from + 1..to])?));
            from = to;
        }
        if rest.iter().any(|(sign, f)| *sign == '/' && *f == Factor::Number(0)) {
            return Err(bad());
        }
        Ok(Size { text: text.into(), first, rest })
    }

    /// Its value for a case whose m, n, k, e are these. Errors: a size of 0 divides; no number of 32 bits.
    pub fn of(&self, sizes: &[u64; 4]) -> Result<u32> {
        let value = |f: &Factor| match f {
            Factor::Number(n) => *n,
            Factor::Named(name) => SIZES.iter().zip(sizes).find(|s| s.0 == name).map_or(0, |s| *s.1),
        };
        let step = |x: u64, (sign, f): &(char, Factor)| match (sign, value(f)) {
            ('/', 0) => None,
            ('/', d) => Some(x.div_ceil(d)),
            (_, f) => x.checked_mul(f),
        };
        let found = self.rest.iter().try_fold(value(&self.first), step).and_then(|x| u32::try_from(x).ok());
        let [m, n, k, e] = sizes;
        found.ok_or_else(|| {
            Error::value(format!("`{}` of m={m}, n={n}, k={k}, e={e}", self.text), "no such number", "a number of 32 bits")
        })
    }
}

/// The text of the declaration of `entry` in a source: what stands behind `qassay:` in its comments. Errors: there is none.
pub fn in_source(path: &str, source: &str, entry: &str) -> Result<String> {
    let comment = |line: &str| line.trim_start().strip_prefix("//").map(|l| l.trim_start_matches(['/', '!']).to_string());
    let mut found: Vec<String> = Vec::new();
    let mut open = false;
    for line in source.lines() {
        match comment(line) {
            None => open = false,
            Some(text) => match (text.trim_start().strip_prefix("qassay:"), found.last_mut()) {
                (Some(start), _) => {
                    found.push(start.trim().into());
                    open = true;
                }
                (None, Some(last)) if open && !text.trim().is_empty() => {
                    last.push(' ');
                    last.push_str(text.trim());
                }
                _ => open = false,
            },
        }
    }
    let name = |text: &str| text.split('(').next().unwrap_or_default().trim().to_string();
    let names: Vec<String> = found.iter().map(|t| name(t)).collect();
    found.into_iter().zip(&names).find(|(_, n)| *n == entry).map(|(t, _)| t).ok_or_else(|| {
        let found = match names.is_empty() {
            true => "no comment `// qassay:`".to_string(),
            false => format!("declarations of {}", names.join(", ")),
        };
        Error::value(path, found, format!("one of entry {entry} that says how it is called: {EXAMPLE}; or give --signature"))
    })
}

impl Declaration {
    /// Parses `entry(arguments) grid=… block=… …`. Errors say what was found, what was expected.
    pub fn parse(text: &str) -> Result<Declaration> {
        let bad = |found: String, expected: &str| Error::value("declaration of a kernel", found, expected);
        let whole = || bad(format!("`{text}`"), EXAMPLE);
        let (entry, rest) = text.split_once('(').ok_or_else(whole)?;
        let (arguments, options) = rest.split_once(')').ok_or_else(whole)?;
        let entry = entry.trim().to_string();
        if entry.is_empty() || !entry.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(bad(format!("entry `{entry}`"), "a name of C"));
        }
        let arguments = arguments.split(',').map(argument).collect::<Result<Vec<_>>>()?;
        let one = || Size::parse("1").unwrap_or_else(|_| unreachable!("a number"));
        let mut declared = Declaration {
            entry,
            arguments,
            grid: [one(), one(), one()],
            block: [one(), one(), one()],
            shared: Size::parse("0").unwrap_or_else(|_| unreachable!("a number")),
            device_model: None,
            promote_every: None,
        };
        let (mut grid, mut block) = (false, false);
        for option in options.split_whitespace() {
            let known = "grid=…, block=…, smem=…, device_model=…, promote_every=… without blanks inside";
            let (key, value) = option.split_once('=').ok_or_else(|| bad(format!("option `{option}`"), known))?;
            let size = |s: &str| Size::parse(s).map_err(|e| bad(format!("`{key}` of {e}"), "such a product"));
            let three = |to: &mut [Size; 3]| -> Result<()> {
                let parts = value.split(',').map(size).collect::<Result<Vec<_>>>()?;
                if parts.len() > 3 {
                    return Err(bad(format!("`{option}`"), "one to three sizes, x first"));
                }
                to.iter_mut().zip(parts).for_each(|(t, p)| *t = p);
                Ok(())
            };
            match key {
                "grid" => {
                    three(&mut declared.grid)?;
                    grid = true;
                }
                "block" => {
                    three(&mut declared.block)?;
                    block = true;
                }
                "smem" => declared.shared = size(value)?,
                "device_model" => {
                    let model = value.parse::<Accumulator>()?;
                    if model.promote_every.is_some() {
                        return Err(bad(format!("`{option}`"), "promotion as promote_every=N"));
                    }
                    declared.device_model = Some(model);
                }
                "promote_every" => {
                    let every = value.parse().ok().filter(|n: &usize| *n > 0);
                    declared.promote_every = Some(every.ok_or_else(|| bad(format!("`{option}`"), "a number of K elements"))?);
                }
                _ => return Err(bad(format!("option `{option}`"), known)),
            }
        }
        if !grid || !block {
            return Err(bad(format!("`{text}`"), "`grid=…` and `block=…` after the arguments"));
        }
        let written = |a: &Argument| matches!(a, Argument::Tensor { name, .. } if name == "out" || name == "out.codes");
        match declared.arguments.iter().filter(|a| written(a)).count() {
            1 => Ok(declared),
            n => Err(bad(format!("{n} arguments `out` or `out.codes`"), "one of them, which the kernel writes")),
        }
    }

    /// The argument of this tensor: what it has to be.
    pub fn words(&self, tensor: &str) -> Option<&[String]> {
        self.arguments.iter().find_map(|a| match a {
            Argument::Tensor { name, words } if name == tensor => Some(&words[..]),
            _ => None,
        })
    }
}

fn argument(text: &str) -> Result<Argument> {
    let (name, words) = text.split_once(':').unwrap_or((text, ""));
    // A granularity has a colon of its own: the first one ends the name.
    let (name, words) = (name.trim(), words.split_whitespace().map(String::from).collect::<Vec<_>>());
    if SIZES.contains(&name) || NUMBERS.contains(&name) {
        return match &words[..] {
            [] => Ok(Argument::Number { name: name.into(), wide: false }),
            [w] if w == "i64" && !["eps", "zero_centered_gamma"].contains(&name) => {
                Ok(Argument::Number { name: name.into(), wide: true })
            }
            [w] if w == "i32" && name != "eps" => Ok(Argument::Number { name: name.into(), wide: false }),
            _ => Err(Error::value(format!("type of argument `{name}`"), words.join(" "), "i32 (as without) or i64")),
        };
    }
    if READ.contains(&name) || WRITTEN.contains(&name) || name == "out.scale" {
        return Ok(Argument::Tensor { name: name.into(), words });
    }
    let known = [&READ[..], &WRITTEN, &["out.scale"], &SIZES, &NUMBERS].concat().join(", ");
    Err(Error::value("argument of a declared kernel", format!("`{name}`"), format!("one of {known}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "// A product.\n// qassay: mul(a.codes: e4m3, a.scale_inv: group:128 e8m0, b.codes: int4 low_first,\n//    out: bf16, m, n, k: i64, eps) grid=n/16,m/4*2\n//    block=128 smem=1024*2 device_model=hopper_wgmma promote_every=128\n//\n// qassay: not this\nextern \"C\" __global__ void mul() {}\n";

    #[test]
    fn a_declaration_of_several_lines_is_read() {
        let d = Declaration::parse(&in_source("x.cu", SOURCE, "mul").unwrap()).unwrap();
        assert_eq!((d.entry.as_str(), d.arguments.len(), d.promote_every), ("mul", 8, Some(128)));
        assert_eq!(d.words("a.scale_inv").unwrap(), ["group:128", "e8m0"]);
        assert_eq!(d.words("b.codes").unwrap(), ["int4", "low_first"]);
        assert_eq!(d.arguments[6], Argument::Number { name: "k".into(), wide: true });
        let sizes = [17, 33, 64, 1];
        let all = |s: &[Size; 3]| s.iter().map(|s| s.of(&sizes).unwrap()).collect::<Vec<_>>();
        assert_eq!((all(&d.grid), all(&d.block), d.shared.of(&sizes).unwrap()), (vec![3, 10, 1], vec![128, 1, 1], 2048));
        assert!(Size::parse("m/n").unwrap().of(&[4, 0, 1, 1]).is_err());
        assert!(Size::parse("m*4294967295*4294967295").unwrap().of(&[4, 0, 1, 1]).is_err());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let e = in_source("x.cu", SOURCE, "other").unwrap_err().to_string();
        assert!(e.contains("x.cu: found declarations of mul, not this") && e.contains("--signature"), "{e}");
        let e = in_source("x.cu", "void f() {}", "f").unwrap_err().to_string();
        assert!(e.contains("no comment `// qassay:`") && e.contains("grid="), "{e}");
        for (text, words) in [
            ("mul", "found `mul`, expected `// qassay:"),
            ("m-l(out) grid=1 block=1", "entry `m-l`, expected a name of C"),
            ("mul(A, out) grid=1 block=1", "`A`, expected one of a, a.codes"),
            ("mul(a.codes, m) grid=1 block=1", "0 arguments `out` or `out.codes`"),
            ("mul(out, out.codes) grid=1 block=1", "2 arguments"),
            ("mul(out, m: f32) grid=1 block=1", "type of argument `m`: found f32"),
            ("mul(out) block=1", "`grid=…` and `block=…`"),
            ("mul(out) grid=1,2,3,4 block=1", "one to three sizes"),
            ("mul(out) grid=(n+15)/16 block=1", "`(n+15)/16`, expected numbers and m, n, k, e"),
            ("mul(out) grid=n/0 block=1", "which rounds up"),
            ("mul(out) grid=n block=1 threads=3", "option `threads=3`, expected grid"),
            ("mul(out) grid=n block=1 stream", "option `stream`"),
            ("mul(out) grid=n block=1 device_model=h100", "unknown accumulator `h100`"),
            ("mul(out) grid=n block=1 device_model=hopper_wgmma@128", "promote_every=N"),
            ("mul(out) grid=n block=1 promote_every=0", "a number of K elements"),
        ] {
            let e = Declaration::parse(text).unwrap_err().to_string();
            assert!(e.contains(words), "{text}: {e}");
        }
    }
}
