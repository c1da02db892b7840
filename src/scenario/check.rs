//! From a scenario file to a [`Scenario`]: every name exists, every event finds what it needs, and what is wrong has a line and a
//! remedy.

use super::data::Moving;
use super::events::{Known, event, walk};
use super::expr::Expr;
use super::file::{LawTable, Name, ScenarioFile, StateTable, TensorTable};
use super::law::{Law, LawKind};
use super::{Act, Class, Event, Policy, Scenario, StateSpec};
use crate::input::Source;
use crate::model::Accumulator;
use crate::recipe::Recipe;
use crate::recipe::delayed::{AmaxAlgo, UpdateRule};
use crate::sweep::file::{TomlText, line_of};
use crate::{Error, Format, Result};
use std::path::Path;

/// Checks a file.
pub fn check(path: &Path, text: &str, file: ScenarioFile) -> Result<Scenario> {
    let place = TomlText { path, text };
    let class = place.one_of("class", &file.class, &Class::ALL)?;
    let steps = *file.steps.get_ref();
    if !(1..=100_000).contains(&steps) {
        let line = line_of(text, file.steps.span().start);
        return Err(place.bad(line, format!("found {steps} steps, expected 1 to 100000")));
    }
    let accumulator: Accumulator = match &file.accumulator {
        Some(name) => place.parse(name)?,
        None => "hopper_wgmma@128".parse()?,
    };
    let tensors = tensors(&place, &file.tensor)?;
    let states = file.state.iter().map(|s| state(&place, s)).collect::<Result<Vec<_>>>()?;
    let names: Vec<&Name> = file.state.iter().map(|s| &s.name).collect();
    distinct(&place, "state", &names)?;
    let known = Known {
        tensors: tensors.iter().map(|t| t.name.clone()).collect(),
        delayed: states.iter().filter(|s| s.is_delayed()).map(|s| s.name.clone()).collect(),
        states: states.iter().map(|s| s.name.clone()).collect(),
        ..Known::default()
    };
    let events = file.event.iter().map(|e| event(&place, e, &known)).collect::<Result<Vec<_>>>()?;
    walk(&place, &events, steps, known.clone())?;
    let laws = file.law.iter().map(|l| law(&place, l, &events, &known)).collect::<Result<Vec<_>>>()?;
    Ok(Scenario {
        name: String::new(),
        about: file.about.trim().to_string(),
        row: file.row,
        class,
        upstream: file.upstream.trim().to_string(),
        digest: String::new(),
        steps,
        accumulator,
        tensors,
        states,
        events,
        laws,
    })
}

fn distinct(place: &TomlText, what: &str, names: &[&Name]) -> Result<()> {
    for (i, name) in names.iter().enumerate() {
        if names[..i].iter().any(|n| n.get_ref() == name.get_ref()) {
            let text = format!("{what} `{}` is there twice; rename one", name.get_ref());
            return Err(place.bad(place.line(name), text));
        }
    }
    Ok(())
}

/// Tensors, those `from` another resolved. Errors: a cycle, an unknown name.
fn tensors(place: &TomlText, tables: &[TensorTable]) -> Result<Vec<Moving>> {
    let names: Vec<&Name> = tables.iter().map(|t| &t.name).collect();
    distinct(place, "tensor", &names)?;
    let find = |name: &Name| {
        let unknown = || Error::unknown("tensor", name.get_ref(), names.iter().map(|n| n.get_ref().as_str()));
        let found = tables.iter().position(|t| t.name.get_ref() == name.get_ref());
        found.ok_or_else(|| place.bad(place.line(name), unknown()))
    };
    let mut all = Vec::new();
    for t in tables {
        let mut root = t;
        let mut way = vec![t.name.get_ref().clone()];
        while let Some(from) = &root.from {
            root = &tables[find(from)?];
            way.push(root.name.get_ref().clone());
            if way[..way.len() - 1].contains(root.name.get_ref()) {
                let text = format!("a cycle: {}; give one of them a `source`", way.join(" from "));
                return Err(place.bad(place.line(from), text));
            }
        }
        let missing = |what: &str| {
            place.bad(
                place.line(&t.name),
                format!("tensor `{}` has no {what}; give it, or `from` a tensor that has it", t.name.get_ref()),
            )
        };
        let source: Source = match (&t.source, &root.source) {
            (Some(s), _) if t.from.is_some() => {
                return Err(place.bad(place.line(s), "found both `source` and `from`, expected one of them"));
            }
            (_, Some(s)) => place.parse(s)?,
            _ => return Err(missing("source")),
        };
        let dtype = t.dtype.as_ref().or(root.dtype.as_ref());
        let dtype: Format = dtype.map_or(Ok(Format::Bf16), |d| place.parse(d))?;
        all.push(Moving {
            name: t.name.get_ref().clone(),
            source,
            rows: t.rows.or(root.rows).filter(|n| *n > 0).ok_or_else(|| missing("rows"))?,
            cols: t.cols.or(root.cols).filter(|n| *n > 0).ok_or_else(|| missing("cols"))?,
            weight: t.weight || root.weight,
            gain: t.gain,
            drift: t.drift,
            wobble: t.wobble,
            spike: t.spike.clone(),
            spike_by: t.spike_by,
            inf: t.inf.clone(),
            dtype,
            stream: 32 + find(&root.name)? as u32,
        });
    }
    Ok(all)
}

fn state(place: &TomlText, t: &StateTable) -> Result<StateSpec> {
    let recipe: Recipe = place.parse(&t.recipe)?;
    let algo = match &t.algo {
        None => AmaxAlgo::Max,
        Some(name) => place.one_of("algo", name, &[(AmaxAlgo::Max, "max"), (AmaxAlgo::MostRecent, "most_recent")])?,
    };
    let aim: Format = t.aim.as_ref().map_or(Ok(recipe.format), |a| place.parse(a))?;
    let history = t.history.as_ref().map_or(16, |h| *h.get_ref());
    if history == 0 {
        return Err(place.bad(place.line(&t.name), "found a history of 0, expected at least 1"));
    }
    Ok(StateSpec {
        name: t.name.get_ref().clone(),
        recipe,
        history,
        rule: UpdateRule { format: aim, margin: t.margin, algo },
        late: t.late,
    })
}

fn law(place: &TomlText, t: &LawTable, events: &[Event], known: &Known) -> Result<Law> {
    let products: Vec<&str> =
        events.iter().filter_map(|e| if let Act::Product(p) = &e.act { Some(p.name.as_str()) } else { None }).collect();
    if !products.contains(&t.product.get_ref().as_str()) {
        let unknown = Error::unknown("product", t.product.get_ref(), products);
        return Err(place.bad(place.line(&t.product), unknown));
    }
    let policies = match &t.policies {
        None => Policy::ALL.to_vec(),
        Some(names) => names.iter().map(|n| place.parse(n)).collect::<Result<_>>()?,
    };
    let state = |at: &Name, s: &str| match known.states.iter().any(|k| k == s) {
        true => Ok(()),
        false => {
            let unknown = Error::unknown("state", s, known.states.iter().map(String::as_str));
            Err(place.bad(place.line(at), unknown))
        }
    };
    let r: Expr = t.r.as_ref().map_or(Ok(Expr::Number(1.0)), |r| place.parse(r))?;
    if let Some(at) = &t.r {
        r.states().into_iter().try_for_each(|s| state(at, s))?;
    }
    let codes = match &t.codes {
        None => None,
        Some(c) => {
            let bad = || place.bad(place.line(c), format!("found `{}`, expected STATE@VERSION", c.get_ref()));
            let (s, version) = c.get_ref().split_once('@').ok_or_else(bad)?;
            state(c, s)?;
            Some((s.to_string(), version.parse().map_err(|_| bad())?))
        }
    };
    let text = match (&t.r, &t.codes) {
        (r, Some(c)) => format!("bytes {}, r = {}", c.get_ref(), r.as_ref().map_or("1", |r| r.get_ref())),
        (r, None) => format!("r = {}", r.as_ref().map_or("1", |r| r.get_ref())),
    };
    Ok(Law {
        line: place.line(&t.product),
        policies,
        product: t.product.get_ref().clone(),
        operand: place.one_of("operand", &t.operand, &[(0, "a"), (1, "b")])?,
        kind: t.kind.as_ref().map_or(Ok(LawKind::Ratio), |k| place.one_of("kind", k, &LawKind::ALL))?,
        r,
        text,
        codes,
        first: t.first.unwrap_or(0),
        last: t.last.unwrap_or(usize::MAX),
    })
}
