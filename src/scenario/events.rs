//! The events of a scenario file: each finds what it needs, and what is wrong has a line and a remedy.

use super::file::{EventTable, Name};
use super::{Act, Event, How, Part, Product, ProductKind, Read, When};
use crate::sweep::file::TomlText;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// What exists at a point of the sequence.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub tensors: Vec<String>,
    pub states: Vec<String>,
    pub delayed: BTreeSet<String>,
    pub buffers: BTreeSet<String>,
    pub amaxes: BTreeSet<String>,
    /// Checkpoints: whether they hold a state, and a buffer.
    pub saved: BTreeMap<String, (bool, bool)>,
    pub graphs: BTreeSet<String>,
}

/// The keys of an event, taken one by one.
struct Keys<'a> {
    place: &'a TomlText<'a>,
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

/// One event: its keys, and names that exist whenever it happens.
pub(super) fn event(place: &TomlText, t: &EventTable, known: &Known) -> Result<Event> {
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
        "save" if t.state.is_none() && t.from.is_none() => {
            return Err(k.bad("`save` needs the key `state`, `from` or both; add what it keeps"));
        }
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
pub(super) fn walk(place: &TomlText, events: &[Event], steps: usize, mut known: Known) -> Result<()> {
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
                Act::Save { state, buffer: b, into } => {
                    b.iter().try_for_each(|b| buffer(&known, b))?;
                    known.saved.insert(into.clone(), (state.is_some(), b.is_some()));
                }
                Act::Restore { from, parts, .. } => {
                    let Some((state, bytes)) = known.saved.get(from) else {
                        return Err(lacking("checkpoint", from, "save it before"));
                    };
                    if parts.contains(&Part::Bytes) && !bytes {
                        return Err(place.bad(e.line, format!("checkpoint `{from}` holds no bytes; save them with `from`")));
                    }
                    if parts.iter().any(|p| *p != Part::Bytes) && !state {
                        return Err(place.bad(e.line, format!("checkpoint `{from}` holds no state; save it with `state`")));
                    }
                }
                Act::Capture { into, .. } => drop(known.graphs.insert(into.clone())),
                Act::Swap { a, b } => {
                    buffer(&known, a)?;
                    buffer(&known, b)?;
                }
                Act::Optimizer { .. } | Act::Refresh { .. } => {}
            }
        }
    }
    Ok(())
}
