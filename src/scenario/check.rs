//! From a scenario file to a [`Scenario`]: every name exists, every event finds what it needs, and what is wrong has a line and a
//! remedy.

use super::data::Moving;
use super::expr::Expr;
use super::file::{EventTable, LawTable, Name, ScenarioFile, StateTable, TensorTable};
use super::law::{Law, LawKind};
use super::{Act, Class, Event, How, Part, Policy, Product, ProductKind, Read, Scenario, StateSpec, When};
use crate::input::Source;
use crate::model::Accumulator;
use crate::recipe::Recipe;
use crate::recipe::delayed::{AmaxAlgo, Rule};
use crate::sweep::file::line_of;
use crate::{Error, Format, Result};
use std::collections::BTreeSet;
use std::path::Path;

/// The file being checked.
struct Place<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Place<'_> {
    fn line(&self, name: &Name) -> usize {
        line_of(self.text, name.span().start)
    }
    fn bad(&self, line: usize, what: impl ToString) -> Error {
        Error::BadLine { path: self.path.to_path_buf(), line, what: what.to_string() }
    }
    /// Parses a name; its error gets the line.
    fn parse<T: std::str::FromStr<Err = Error>>(&self, name: &Name) -> Result<T> {
        name.get_ref().parse().map_err(|e: Error| self.bad(self.line(name), e))
    }
    /// One of a list of names.
    fn one_of<T: Copy>(&self, what: &'static str, name: &Name, known: &[(T, &'static str)]) -> Result<T> {
        let found = known.iter().find(|k| k.1 == name.get_ref()).map(|k| k.0);
        let unknown = || Error::unknown(what, name.get_ref(), known.iter().map(|k| k.1));
        found.ok_or_else(|| self.bad(self.line(name), unknown()))
    }
}

/// What exists at a point of the sequence.
#[derive(Clone, Default)]
struct Known {
    tensors: Vec<String>,
    states: Vec<String>,
    delayed: BTreeSet<String>,
    buffers: BTreeSet<String>,
    amaxes: BTreeSet<String>,
    saved: BTreeSet<String>,
    graphs: BTreeSet<String>,
}

/// Checks a file.
pub fn check(path: &Path, text: &str, file: ScenarioFile) -> Result<Scenario> {
    let place = Place { path, text };
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

fn distinct(place: &Place, what: &str, names: &[&Name]) -> Result<()> {
    for (i, name) in names.iter().enumerate() {
        if names[..i].iter().any(|n| n.get_ref() == name.get_ref()) {
            let text = format!("{what} `{}` is there twice; rename one", name.get_ref());
            return Err(place.bad(place.line(name), text));
        }
    }
    Ok(())
}

/// Tensors, those `from` another resolved. Errors: a cycle, an unknown name.
fn tensors(place: &Place, tables: &[TensorTable]) -> Result<Vec<Moving>> {
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

fn state(place: &Place, t: &StateTable) -> Result<StateSpec> {
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
        rule: Rule { format: aim, margin: t.margin, algo },
        late: t.late,
    })
}

/// The keys of an event, taken one by one.
struct Keys<'a> {
    place: &'a Place<'a>,
    table: &'a EventTable,
    known: &'a Known,
}

impl Keys<'_> {
    fn verb(&self) -> &str {
        self.table.what.get_ref()
    }
    fn bad(&self, what: impl ToString) -> Error {
        self.place.bad(self.place.line(&self.table.what), what)
    }
    fn need<'b, T>(&self, key: &str, value: &'b Option<T>) -> Result<&'b T> {
        value.as_ref().ok_or_else(|| self.bad(format!("`{}` needs the key `{key}`; add it", self.verb())))
    }
    fn name(&self, key: &str, value: &Option<Name>) -> Result<String> {
        self.need(key, value).map(|n| n.get_ref().clone())
    }
    fn of(&self, what: &'static str, name: &Name, known: &[String]) -> Result<String> {
        let unknown = || Error::unknown(what, name.get_ref(), known.iter().map(String::as_str));
        if !known.contains(name.get_ref()) {
            return Err(self.place.bad(self.place.line(name), format!("{}; declare it in [[{what}]]", unknown())));
        }
        Ok(name.get_ref().clone())
    }
    fn tensor(&self) -> Result<String> {
        self.of("tensor", self.need("tensor", &self.table.tensor)?, &self.known.tensors)
    }
    fn state(&self) -> Result<String> {
        self.of("state", self.need("state", &self.table.state)?, &self.known.states)
    }
    fn delayed(&self) -> Result<String> {
        let state = self.state()?;
        if !self.known.delayed.contains(&state) {
            let text = format!("`{}` needs a state of delayed scaling; `{state}` has no scale that stays", self.verb());
            return Err(self.bad(text));
        }
        Ok(state)
    }
    fn how(&self, name: &Option<Name>) -> Result<How> {
        let Some(name) = name else { return Ok(How::Own) };
        let grammar = "expected state:NAME, roll:K, turn:RxC, scale or rows";
        let bad = || self.place.bad(self.place.line(name), format!("found `{}`, {grammar}", name.get_ref()));
        let number = |s: &str| s.parse::<usize>().map_err(|_| bad());
        match name.get_ref().split_once(':') {
            None if name.get_ref() == "scale" => Ok(How::Scale),
            None if name.get_ref() == "rows" => Ok(How::Rows),
            Some(("state", s)) if self.known.states.iter().any(|k| k == s) => Ok(How::State(s.into())),
            Some(("state", s)) => {
                let unknown = Error::unknown("state", s, self.known.states.iter().map(String::as_str));
                Err(self.place.bad(self.place.line(name), unknown))
            }
            Some(("roll", k)) => Ok(How::Roll(number(k)?)),
            Some(("turn", rc)) => {
                let (r, c) = rc.split_once('x').ok_or_else(bad)?;
                Ok(How::Turn(number(r)?, number(c)?))
            }
            _ => Err(bad()),
        }
    }
    fn product(&self, kind: ProductKind, default: &str) -> Result<Act> {
        let t = self.table;
        Ok(Act::Product(Product {
            name: t.name.as_ref().map_or_else(|| default.to_string(), |n| n.get_ref().clone()),
            kind,
            a: Read { buffer: self.name("a", &t.a)?, how: self.how(&t.read_a)? },
            b: Read { buffer: self.name("b", &t.b)?, how: self.how(&t.read_b)? },
            into: t.into.as_ref().map(|n| n.get_ref().clone()),
            out_state: t.out_state.as_ref().map(|s| self.of("state", s, &self.known.states)).transpose()?,
            offs: t.offs.clone().unwrap_or_default(),
        }))
    }
}

fn event(place: &Place, t: &EventTable, known: &Known) -> Result<Event> {
    let k = Keys { place, table: t, known };
    let yes = |b: Option<bool>| b.unwrap_or(false);
    let act = match k.verb() {
        "quantize" => Act::Quantize {
            tensor: k.tensor()?,
            state: k.state()?,
            into: k.name("into", &t.into)?,
            transposed: yes(t.transposed),
            groups: t.groups.unwrap_or(1).max(1),
            experts: t.experts.unwrap_or(1).max(1),
            null: yes(t.null),
        },
        "recompute" => Act::Recompute { tensor: k.tensor()?, state: k.state()?, into: k.name("into", &t.into)? },
        "replay" => Act::Replay {
            graph: k.name("from", &t.from)?,
            tensor: k.tensor()?,
            state: k.state()?,
            into: k.name("into", &t.into)?,
        },
        "skip" => Act::Skip { buffer: k.name("into", &t.into)?, fresh: t.fresh.map(|x| x as f32) },
        "requantize" => Act::Requantize {
            from: k.name("from", &t.from)?,
            state: k.state()?,
            into: k.name("into", &t.into)?,
            transposed: yes(t.transposed),
        },
        "forward" => k.product(ProductKind::Forward, "forward")?,
        "backward" => match k.need("grad", &t.grad)? {
            g if g.get_ref() == "input" => k.product(ProductKind::GradInput, "dgrad")?,
            g if g.get_ref() == "weight" => k.product(ProductKind::GradWeight, "wgrad")?,
            g => return Err(place.bad(place.line(g), format!("found grad `{}`, expected input or weight", g.get_ref()))),
        },
        "update" => Act::Update {
            state: k.delayed()?,
            fused: match &t.rule {
                None => true,
                Some(rule) => place.one_of("rule", rule, &[(true, "fused"), (false, "unfused")])?,
            },
            reduced: t.reduced.as_ref().map(|r| r.get_ref().clone()),
            keep: yes(t.keep),
        },
        "refresh" => Act::Refresh { state: k.delayed()? },
        "reduce" => {
            let states = k.need("states", &t.states)?;
            let states = states.iter().map(|s| k.of("state", s, &known.states)).collect::<Result<_>>()?;
            Act::Reduce { states, into: k.name("into", &t.into)? }
        }
        "cache_weight" | "use_cached" => Act::Copy { from: k.name("from", &t.from)?, into: k.name("into", &t.into)? },
        "optimizer" => Act::Optimizer { tensor: k.tensor()?, rate: t.rate.unwrap_or(0.0) },
        "gather" => Act::Gather {
            sources: k.need("sources", &t.sources)?.iter().map(|s| s.get_ref().clone()).collect(),
            into: k.name("into", &t.into)?,
            state: k.state()?,
            cols: match &t.axis {
                None => false,
                Some(axis) => place.one_of("axis", axis, &[(false, "rows"), (true, "cols")])?,
            },
        },
        "save" => Act::Save {
            state: t.state.as_ref().map(|_| k.state()).transpose()?,
            buffer: t.from.as_ref().map(|b| b.get_ref().clone()),
            into: k.name("into", &t.into)?,
        },
        "restore" => {
            const PARTS: [(Part, &str); 4] =
                [(Part::Scale, "scale"), (Part::ScaleInv, "scale_inv"), (Part::History, "history"), (Part::Bytes, "bytes")];
            let parts = k.need("parts", &t.parts)?;
            let parts = parts.iter().map(|p| place.one_of("part", p, &PARTS)).collect::<Result<_>>()?;
            Act::Restore { from: k.name("from", &t.from)?, parts, history: t.history }
        }
        "transpose" => Act::Transpose { from: k.name("from", &t.from)?, into: k.name("into", &t.into)? },
        "capture" => Act::Capture {
            state: k.state()?,
            tensor: t.tensor.as_ref().map(|_| k.tensor()).transpose()?,
            into: k.name("into", &t.into)?,
        },
        "swap" => Act::Swap { a: k.name("a", &t.a)?, b: k.name("b", &t.b)? },
        verb => {
            let known = [
                "quantize",
                "recompute",
                "replay",
                "skip",
                "requantize",
                "forward",
                "backward",
                "update",
                "refresh",
                "reduce",
                "cache_weight",
                "use_cached",
                "optimizer",
                "gather",
                "save",
                "restore",
                "transpose",
                "capture",
                "swap",
            ];
            return Err(k.bad(Error::unknown("event", verb, known)));
        }
    };
    let when = When {
        at: t.at.clone(),
        first: t.first.unwrap_or(0),
        last: t.last.unwrap_or(usize::MAX),
        every: t.every.unwrap_or(1).max(1),
    };
    Ok(Event { line: place.line(&t.what), when, act })
}

/// Every event finds what it reads: walks the steps as they will happen.
fn walk(place: &Place, events: &[Event], steps: usize, mut known: Known) -> Result<()> {
    for step in 0..steps {
        for e in events.iter().filter(|e| e.when.holds(step)) {
            let lacking = |what: &str, name: &str, remedy: &str| {
                place.bad(e.line, format!("step {step}: there is no {what} `{name}` yet; {remedy}"))
            };
            let buffer = |known: &Known, name: &String| match known.buffers.contains(name) {
                true => Ok(()),
                false => Err(lacking("buffer", name, "quantize into it before, or let this event happen later (`first`)")),
            };
            match &e.act {
                Act::Quantize { into, .. } => drop(known.buffers.insert(into.clone())),
                Act::Recompute { into, .. } => buffer(&known, into)?,
                Act::Skip { buffer: b, .. } => buffer(&known, b)?,
                Act::Replay { graph, into, .. } => {
                    if !known.graphs.contains(graph) {
                        return Err(lacking("graph", graph, "capture it before"));
                    }
                    known.buffers.insert(into.clone());
                }
                Act::Requantize { from, into, .. } | Act::Copy { from, into } | Act::Transpose { from, into } => {
                    buffer(&known, from)?;
                    known.buffers.insert(into.clone());
                }
                Act::Product(p) => {
                    buffer(&known, &p.a.buffer)?;
                    buffer(&known, &p.b.buffer)?;
                    if let Some(into) = &p.into {
                        if p.out_state.is_none() {
                            return Err(place.bad(e.line, "only an FP8 result goes into a buffer; add `out_state`"));
                        }
                        known.buffers.insert(into.clone());
                    }
                }
                Act::Update { reduced, .. } => {
                    if let Some(r) = reduced.as_ref().filter(|r| !known.amaxes.contains(*r)) {
                        let later = events.iter().any(|e| matches!(&e.act, Act::Reduce { into, .. } if into == r));
                        if !later {
                            return Err(lacking("amax buffer", r, "reduce into it"));
                        }
                    }
                }
                Act::Reduce { into, .. } => drop(known.amaxes.insert(into.clone())),
                Act::Gather { sources, into, .. } => {
                    sources.iter().try_for_each(|s| buffer(&known, s))?;
                    known.buffers.insert(into.clone());
                }
                Act::Save { buffer: b, into, .. } => {
                    b.iter().try_for_each(|b| buffer(&known, b))?;
                    known.saved.insert(into.clone());
                }
                Act::Restore { from, .. } if !known.saved.contains(from) => {
                    return Err(lacking("checkpoint", from, "save it before"));
                }
                Act::Capture { into, .. } => drop(known.graphs.insert(into.clone())),
                Act::Swap { a, b } => {
                    buffer(&known, a)?;
                    buffer(&known, b)?;
                }
                Act::Optimizer { .. } | Act::Refresh { .. } | Act::Restore { .. } => {}
            }
        }
    }
    Ok(())
}

fn law(place: &Place, t: &LawTable, events: &[Event], known: &Known) -> Result<Law> {
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
