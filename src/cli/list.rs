//! `qassay list`: what can be named.

use super::{print, status, table};
use crate::assay::row::Row;
use crate::assay::table::Line;
use anyhow::{Result, bail};
use clap::ValueEnum;

/// List what can be named: formats, recipes, ops, kernels, metrics, distributions, sweeps, scenarios, models, faults, gates, and columns
/// of rows.csv.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  qassay list recipes\n  qassay list faults scale_shared b\n  qassay list columns --json")]
pub struct Args {
    /// What to list; without it, what there is to list.
    what: Option<What>,
    /// Only lines that contain all of these texts.
    #[arg(value_name = "TEXT")]
    filter: Vec<String>,
    /// As a JSON array of objects.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Formats of elements: e4m3, int4, nf4, …
    Formats,
    /// How scales and zero points are chosen: te_current, te_mxfp8, …
    Recipes,
    /// What a kernel computes: gemm, cast, rmsnorm, …
    Ops,
    /// The kernels that are in qassay.
    Kernels,
    /// The numbers that an error is described by.
    Metrics,
    /// Where the numbers of a case come from.
    Distributions,
    /// Lists of cases for `run`, `check` and `power`.
    Sweeps,
    /// Stories for `stale`: how scale and data go out of step.
    Scenarios,
    /// The arithmetic of devices, to the bit.
    Models,
    /// Known ways for a kernel to be wrong.
    Faults,
    /// The checks of other projects.
    Gates,
    /// The columns of rows.csv.
    Columns,
}

pub fn run(args: Args) -> Result<u8> {
    let (header, mut rows) = args.what.map_or_else(kinds, lines)?;
    let wanted: Vec<String> = args.filter.iter().map(|t| t.to_lowercase()).collect();
    rows.retain(|row| wanted.iter().all(|t| row.iter().any(|cell| cell.to_lowercase().contains(t))));
    if rows.is_empty() {
        let (_, all) = args.what.map_or_else(kinds, lines)?;
        let meant = crate::error::meant(&args.filter.join(" "), all.iter().map(|r| r[0].as_str()));
        let meant = meant.map_or_else(String::new, |m| format!("; did you mean `{m}`?"));
        let what = args.what.map_or_else(String::new, name);
        bail!("no line of `qassay list {what}` has {}{meant}", args.filter.join(" and "));
    }
    if args.json {
        let objects: Vec<_> = rows
            .iter()
            .map(|r| {
                serde_json::Value::Object(header.iter().zip(r).map(|(h, v)| ((*h).to_string(), v.as_str().into())).collect())
            })
            .collect();
        print(&(serde_json::to_string_pretty(&objects)? + "\n"));
    } else {
        // The ids of bugs are for programs: data/bugs.csv says what they are.
        let shown = header.iter().position(|h| *h == "bugs").unwrap_or(header.len());
        rows.iter_mut().for_each(|row| row.truncate(shown));
        print(&table::text(&header[..shown], &rows));
    }
    Ok(status::PASSED)
}

/// The word for a kind on the command line.
fn name(what: What) -> String {
    what.to_possible_value().map_or_else(String::new, |v| v.get_name().to_string())
}

/// What there is to list, how many of each, and what it is for.
fn kinds() -> Result<Table> {
    let row = |what: &What| {
        let help = what.to_possible_value().and_then(|v| v.get_help().map(ToString::to_string)).unwrap_or_default();
        Ok(vec![name(*what), lines(*what)?.1.len().to_string(), help])
    };
    Ok((vec!["name", "lines", "what"], What::value_variants().iter().map(row).collect::<Result<_>>()?))
}

/// The header, and the cells of each line.
type Table = (Vec<&'static str>, Vec<Vec<String>>);

fn lines(what: What) -> Result<Table> {
    let s = |x: &dyn ToString| x.to_string();
    Ok(match what {
        What::Formats => (
            vec!["name", "bits", "max", "min normal", "min subnormal", "what"],
            crate::format::FORMATS
                .iter()
                .map(|f| {
                    let float = |x: f64| if !f.format.is_float() { String::new() } else { crate::assay::row::number(x) };
                    let normal = 2f64.powi(f.format.min_exponent());
                    let sub = 2f64.powi(f.format.min_exponent() - f.mantissa as i32);
                    vec![
                        s(&f.name),
                        s(&f.bits),
                        crate::assay::row::number(f.format.max_finite()),
                        float(normal),
                        float(sub),
                        s(&f.help),
                    ]
                })
                .collect(),
        ),
        What::Recipes => (
            vec!["name", "formats", "group", "what", "source"],
            crate::recipe::RECIPES
                .iter()
                .map(|r| {
                    let formats: Vec<&str> = r.formats.iter().map(|f| f.name()).collect();
                    vec![s(&r.name), formats.join(" "), s(&if r.free_group() { "gN" } else { "" }), s(&r.help), s(&r.source)]
                })
                .collect(),
        ),
        What::Ops => (vec!["name", "what"], crate::op::OPS.iter().map(|o| vec![s(&o.name), s(&o.help)]).collect()),
        What::Kernels => (
            vec!["name", "ops", "what", "source"],
            crate::kernel::cpu::KERNELS
                .iter()
                .map(|k| {
                    let ops: Vec<&str> = k.spec().ops.iter().map(|o| o.name()).collect();
                    vec![s(&k.spec().name), ops.join(" "), s(&k.spec().help), s(&k.spec().source)]
                })
                .collect(),
        ),
        What::Metrics => (
            vec!["name", "unit", "what"],
            crate::compare::METRICS.iter().map(|m| vec![s(&m.name), s(&m.unit), s(&m.help)]).collect(),
        ),
        What::Distributions => (
            vec!["name", "edge", "what"],
            crate::input::DISTRIBUTIONS
                .iter()
                .map(|d| vec![s(&d.name), s(&if d.edge { "edge" } else { "" }), s(&d.help)])
                .chain(real_tensors()?)
                .collect(),
        ),
        What::Sweeps => (
            vec!["name", "cases", "what"],
            crate::sweep::names()?
                .into_iter()
                .map(|(name, about)| Ok(vec![name.clone(), s(&crate::sweep::Sweep::load(&name, 0)?.cases.len()), about]))
                .collect::<crate::Result<_>>()?,
        ),
        What::Scenarios => (
            vec!["name", "row", "class", "steps", "what"],
            crate::scenario::names()?
                .into_iter()
                .map(|name| {
                    let x = crate::scenario::Scenario::load(&name)?;
                    let about = x.about.lines().next().unwrap_or_default().to_string();
                    Ok(vec![name, s(&x.row), s(&x.class.name()), s(&x.steps), about])
                })
                .chain(crate::scenario::device::DEVICE.iter().map(|(name, about)| {
                    let about = format!("with --backend cuda: {about}");
                    Ok(vec![s(name), String::new(), "device".into(), String::new(), about])
                }))
                .collect::<crate::Result<_>>()?,
        ),
        What::Models => (
            vec!["name", "what", "evidence"],
            crate::model::table::MODELS.iter().map(|m| vec![s(&m.name), s(&m.help), s(&m.evidence)]).collect(),
        ),
        What::Faults => (vec!["name", "what", "applies to", "bugs"], faults()?),
        What::Gates => (
            vec!["name", "rule", "source"],
            crate::compare::gates::GATES.iter().map(|g| vec![s(&g.name), s(&g.help), s(&g.source)]).collect(),
        ),
        What::Columns => (
            vec!["name", "unit", "what"],
            Row::columns().iter().map(|c| vec![c.name.clone(), s(&c.unit), c.help.clone()]).collect(),
        ),
    })
}

/// Every fault with the real bugs of its class: how many, and the ids in data/bugs.csv of three.
fn faults() -> Result<Vec<Vec<String>>> {
    let bugs = crate::fault::class::bugs()?;
    let row = |f: &crate::fault::Fault| {
        let of_class: Vec<&str> = bugs.iter().filter(|b| b.fault_class == f.class.name()).map(|b| b.id.as_str()).collect();
        let some = of_class.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        let class = f.class.spec();
        vec![f.name(), f.help.to_string(), class.applies.to_string(), format!("{}: {some}", of_class.len())]
    };
    Ok(crate::fault::faults().map(row).collect())
}

/// The tensors of the collections in data/real.
fn real_tensors() -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    for (prefix, file, _) in crate::input::real::COLLECTIONS {
        for (name, dtype, shape) in crate::input::real::tensors_of(file)? {
            let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
            rows.push(vec![
                format!("{prefix}:{name}"),
                String::new(),
                format!("real tensor, {} {}", shape.join("×"), dtype.to_lowercase()),
            ]);
        }
    }
    Ok(rows)
}
