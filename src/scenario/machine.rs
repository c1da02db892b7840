//! The events, one after the other, on explicit state.

use super::data::Moving;
use super::product::{self, Outcome};
use super::run::With;
use super::state::{Buffer, Made, Slot};
use super::{Act, How, Part, Policy, Product, ProductKind, Read, Scenario};
use crate::kernel::Backend;
use crate::quant::QTensorParts;
use crate::recipe::delayed::State;
use crate::{Error, Format, Granularity, QTensor, Result, Tensor};
use std::collections::BTreeMap;

/// A checkpoint.
#[derive(Clone, Debug)]
struct Saved {
    state: Option<(String, State, Vec<f32>)>,
    buffer: Option<(String, Buffer)>,
}

/// A scenario being run under one policy.
pub struct Machine<'a> {
    pub scenario: &'a Scenario,
    pub policy: Policy,
    pub step: usize,
    with: With<'a>,
    slots: BTreeMap<&'a str, Slot>,
    buffers: BTreeMap<String, Buffer>,
    amaxes: BTreeMap<String, f32>,
    saved: BTreeMap<String, Saved>,
    graphs: BTreeMap<String, f32>,
    /// Sizes of the optimizer's steps of each weight.
    changes: BTreeMap<String, Vec<f64>>,
}

impl<'a> Machine<'a> {
    pub fn new(scenario: &'a Scenario, policy: Policy, with: With<'a>) -> Result<Self> {
        let slots = scenario.states.iter().map(|s| Ok((s.name.as_str(), Slot::new(s)?))).collect::<Result<_>>()?;
        Ok(Self {
            scenario,
            policy,
            step: 0,
            with,
            slots,
            buffers: BTreeMap::new(),
            amaxes: BTreeMap::new(),
            saved: BTreeMap::new(),
            graphs: BTreeMap::new(),
            changes: BTreeMap::new(),
        })
    }

    /// Runs the next step and hands over its products. Errors carry the event's line.
    pub fn step(&mut self, each: &mut dyn FnMut(&Machine, Outcome) -> Result<()>) -> Result<()> {
        self.slots.values_mut().for_each(|s| s.begin = s.version());
        let (scenario, step) = (self.scenario, self.step);
        for event in scenario.events.iter().filter(|e| e.when.holds(step)) {
            let outcome = self.act(&event.act).map_err(|e| Error::BadLine {
                path: format!("{}.toml", self.scenario.name).into(),
                line: event.line,
                what: format!("step {}: {e}", self.step),
            })?;
            if let Some(outcome) = outcome {
                each(self, outcome)?;
            }
        }
        self.step += 1;
        Ok(())
    }

    pub fn backend(&self) -> Backend {
        self.with.backend
    }
    pub fn seed(&self) -> u64 {
        self.with.seed
    }
    pub fn slot(&self, name: &str) -> Result<&Slot> {
        self.slots.get(name).ok_or_else(|| Error::unknown("state", name, self.slots.keys().copied()))
    }
    fn slot_mut(&mut self, name: &str) -> Result<&mut Slot> {
        let known: Vec<&str> = self.slots.keys().copied().collect();
        self.slots.get_mut(name).ok_or_else(|| Error::unknown("state", name, known))
    }
    pub fn buffer(&self, name: &str) -> Result<&Buffer> {
        self.buffers
            .get(name)
            .ok_or_else(|| Error::unknown("buffer at this step", name, self.buffers.keys().map(String::as_str)))
    }
    fn tensor(&self, name: &str) -> Result<Tensor> {
        let known = || self.scenario.tensors.iter().map(|t| t.name.as_str());
        let spec: &Moving =
            self.scenario.tensors.iter().find(|t| t.name == name).ok_or_else(|| Error::unknown("tensor", name, known()))?;
        let changes = self.changes.get(name).map_or(&[][..], Vec::as_slice);
        spec.at(if spec.weight { changes.len() } else { self.step }, self.with.seed, changes)
    }

    fn act(&mut self, act: &'a Act) -> Result<Option<Outcome>> {
        match act {
            Act::Quantize { tensor, state, into, transposed, groups, experts, null } => {
                let x = turned(&self.tensor(tensor)?, *transposed, *experts)?;
                let policy = self.policy;
                let slot = self.slot_mut(state)?;
                let version = slot.version();
                let buffer = if *null {
                    let valid = slot.quantize_with(&x, 1.0)?;
                    let made = if policy == Policy::Packaged { None } else { Some(nothing(&valid)?) };
                    let intended = valid.q.clone();
                    let buffer = Buffer::new(made.unwrap_or(valid), x, state, version, *transposed);
                    Buffer { intended: Some(intended), ..buffer }
                } else {
                    Buffer::new(slot.quantize(&x, *groups)?, x, state, version, *transposed)
                };
                self.buffers.insert(into.clone(), buffer);
            }
            Act::Recompute { tensor, state, into } => {
                let x = self.tensor(tensor)?;
                let slot = self.slot_mut(state)?;
                let version = slot.version();
                let made = slot.quantize(&x, 1)?;
                let cloned = self.buffer(into)?.cloned.clone();
                self.buffers.insert(into.clone(), Buffer { cloned, ..Buffer::new(made, x, state, version, false) });
            }
            Act::Replay { graph, tensor, state, into } => {
                let x = self.tensor(tensor)?;
                let known: Vec<String> = self.graphs.keys().cloned().collect();
                let scale = self.graphs.get(graph).copied();
                let scale = scale.ok_or_else(|| Error::unknown("graph", graph, known.iter().map(String::as_str)))?;
                let slot = self.slot_mut(state)?;
                let version = slot.version();
                let made = slot.quantize_with(&x, scale)?;
                self.buffers.insert(into.clone(), Buffer::new(made, x, state, version, false));
            }
            Act::Skip { buffer, fresh } => {
                let mut held = self.buffer(buffer)?.clone();
                if let Some(garbage) = fresh {
                    held.packaged = vec![*garbage; held.packaged.len()];
                }
                self.buffers.insert(buffer.clone(), held);
            }
            Act::Requantize { from, state, into, transposed } => {
                let source = self.buffer(from)?;
                let first = if *transposed { transposed_copy(from, source)? } else { source.clone() };
                let values = first.q.dequantize_f32();
                let again = Tensor::new(Format::F32, values.nrows(), values.ncols(), values.into_iter().collect())?;
                let slot = self.slot_mut(state)?;
                let version = slot.version();
                let made = slot.quantize(&again, 1)?;
                let x = first.x.clone();
                let buffer = Buffer::new(made, x, state, version, *transposed);
                self.buffers.insert(into.clone(), Buffer { first: Some(Box::new(first)), ..buffer });
            }
            Act::Product(p) => return self.product(p).map(Some),
            Act::Update { state, fused, reduced, keep } => {
                let reduced = reduced.as_ref().map(|r| self.amaxes.insert(r.clone(), 0.0).unwrap_or(0.0));
                self.slot_mut(state)?.update(*fused, reduced, *keep);
            }
            Act::Refresh { state } => self.slot_mut(state)?.refresh(),
            Act::Reduce { states, into } => {
                let mut largest = 0f32;
                for s in states {
                    largest = largest.max(self.slot(s)?.delayed.history[0]);
                }
                self.amaxes.insert(into.clone(), largest);
            }
            Act::Copy { from, into } => {
                let copy = self.buffer(from)?.clone();
                self.buffers.insert(into.clone(), copy);
            }
            Act::Optimizer { tensor, rate } => self.changes.entry(tensor.clone()).or_default().push(*rate),
            Act::Gather { sources, into, state, cols } => {
                let parts = sources.iter().map(|s| self.buffer(s)).collect::<Result<Vec<_>>>()?;
                let gathered = gather(&parts, state, *cols)?;
                // What the reader's recipe knows: its own scale_inv (delayed), or all of them, one rank behind the other.
                let all: Vec<f32> = parts.iter().flat_map(|p| p.packaged.clone()).collect();
                let slot = self.slot_mut(state)?;
                if !slot.spec.is_delayed() {
                    slot.live = all;
                }
                self.buffers.insert(into.clone(), gathered);
            }
            Act::Save { state, buffer, into } => {
                let state = state.as_ref().map(|s| self.slot(s).map(|x| (s.clone(), x.delayed.clone(), x.live.clone())));
                let buffer = buffer.as_ref().map(|b| self.buffer(b).map(|x| (b.clone(), x.clone())));
                self.saved.insert(into.clone(), Saved { state: state.transpose()?, buffer: buffer.transpose()? });
            }
            Act::Restore { from, parts, history } => self.restore(from, parts, *history)?,
            Act::Transpose { from, into } => {
                let copy = transposed_copy(from, self.buffer(from)?)?;
                self.buffers.insert(into.clone(), copy);
            }
            Act::Capture { state, tensor, into } => {
                let scale = match tensor {
                    None => self.slot(state)?.delayed.scale,
                    Some(t) => {
                        let x = self.tensor(t)?;
                        let made = self.slot(state)?.spec.recipe.quantize(&x)?;
                        made.scale.map_or(1.0 / made.q.scale_inv()[0], |s| s[0])
                    }
                };
                self.graphs.insert(into.clone(), scale);
            }
            Act::Swap { a, b } => {
                let (first, second) = (self.buffer(a)?.clone(), self.buffer(b)?.clone());
                // The bytes move, and what is packaged with them; the recipe's index stays with the place.
                let states = (first.state.clone(), second.state.clone());
                self.buffers.insert(a.clone(), Buffer { state: states.0, ..second });
                self.buffers.insert(b.clone(), Buffer { state: states.1, ..first });
            }
        }
        Ok(None)
    }

    fn restore(&mut self, from: &str, parts: &[Part], history: Option<usize>) -> Result<()> {
        let known: Vec<String> = self.saved.keys().cloned().collect();
        let saved = self.saved.get(from).cloned();
        let saved = saved.ok_or_else(|| Error::unknown("checkpoint", from, known.iter().map(String::as_str)))?;
        if let Some((name, state, live)) = saved.state {
            let slot = self.slot_mut(&name)?;
            // A program that starts anew.
            let mut fresh = Slot::new(&slot.spec)?;
            let length = history.unwrap_or(slot.spec.history);
            fresh.delayed = State::new(length)?;
            if parts.contains(&Part::Scale) {
                fresh.delayed.scale = state.scale;
            }
            if parts.contains(&Part::ScaleInv) {
                fresh.live = live;
            }
            if parts.contains(&Part::History) {
                // The newest entries that fit; the running one is at 0.
                let newest = state.history.iter().skip(1).rev();
                fresh.delayed.history.iter_mut().skip(1).rev().zip(newest).for_each(|(to, from)| *to = *from);
                fresh.delayed.history[0] = state.history[0];
            }
            (slot.delayed, slot.live) = (fresh.delayed, fresh.live);
            slot.moved();
        }
        if let Some((name, buffer)) = saved.buffer.filter(|_| parts.contains(&Part::Bytes)) {
            self.buffers.insert(name, Buffer { cloned: None, ..buffer });
        }
        Ok(())
    }

    /// The scale_inv that belongs to a buffer by the policy: packaged, or that of its recipe, as the last forward cloned it or as it
    /// is now. A forward clones anew.
    fn kept(&self, buffer: &Buffer, kind: ProductKind) -> Result<Vec<f32>> {
        Ok(match (self.policy, &buffer.cloned) {
            (Policy::Packaged, _) => buffer.packaged.clone(),
            (Policy::Cloned, Some(cloned)) if kind != ProductKind::Forward => cloned.clone(),
            _ => self.slot(&buffer.state)?.live.clone(),
        })
    }

    /// What a reader of `read` finds: packaged data know how they are to be read, a bare vector does not.
    fn found(&self, read: &Read, kind: ProductKind) -> Result<(Granularity, Vec<f32>)> {
        let buffer = self.buffer(&read.buffer)?;
        let (own, v) = (buffer.q.granularity(), self.kept(buffer, kind)?);
        if self.policy == Policy::Packaged {
            return Ok((own, v));
        }
        Ok(match &read.how {
            How::Own => (own, v),
            How::State(other) => (own, self.slot(other)?.live.clone()),
            How::Roll(k) => (own, (0..v.len()).map(|i| v[(i + k) % v.len()]).collect()),
            How::Turn(rows, cols) => (own, (0..v.len()).map(|i| v[super::expr::turned(i, *rows, *cols) % v.len()]).collect()),
            How::Scale => (own, v.iter().map(|x| 1.0 / x).collect()),
            How::Rows => (Granularity::Row, v),
        })
    }

    fn product(&mut self, p: &Product) -> Result<Outcome> {
        let (found_a, found_b) = (self.found(&p.a, p.kind)?, self.found(&p.b, p.kind)?);
        if p.kind == ProductKind::Forward {
            for read in [&p.a, &p.b] {
                let clone = self.kept(self.buffer(&read.buffer)?, p.kind)?;
                if let Some(b) = self.buffers.get_mut(&read.buffer) {
                    b.cloned = Some(clone);
                }
            }
        }
        let out = p.out_state.as_ref().map(|s| self.slot(s)).transpose()?.map(|s| (s.spec.recipe.format, s.delayed.scale));
        let side = |read: &Read, found: (Granularity, Vec<f32>)| -> Result<product::ReadOperand> {
            let buffer = self.buffer(&read.buffer)?;
            let intended = match (&buffer.intended, &buffer.of) {
                (Some(q), _) => q.clone(),
                (None, Some(source)) => self.buffer(source)?.q.transposed()?,
                _ => buffer.q.clone(),
            };
            Ok(product::ReadOperand {
                name: read.buffer.clone(),
                used: buffer.read_with(found.0, &found.1)?,
                intended,
                buffer: buffer.clone(),
            })
        };
        let sides = [side(&p.a, found_a)?, side(&p.b, found_b)?];
        let outcome = product::run(p, sides, self.scenario.accumulator, out, self.with.backend, self.with.kernels)?;
        if let (Some(into), Some(q)) = (&p.into, &outcome.quantized) {
            let state = p.out_state.as_deref().unwrap_or_default();
            let slot = self.slot_mut(state)?;
            slot.delayed.observe(outcome.amax);
            let (version, scale) = (slot.version(), f64::from(slot.delayed.scale));
            let values = outcome.exact.d.iter().map(|x| *x as f32).collect();
            let x = Tensor::new(Format::F32, q.rows(), q.cols(), values)?;
            let made = Made { q: q.clone(), scale: vec![scale] };
            self.buffers.insert(into.clone(), Buffer::new(made, x, state, version, false));
        }
        Ok(outcome)
    }
}

/// `x`, transposed; with several experts `[E·N, K]` each by itself, `[E·K, N]`.
fn turned(x: &Tensor, transposed: bool, experts: usize) -> Result<Tensor> {
    if !transposed {
        return Ok(x.clone());
    }
    let n = x.rows() / experts.max(1);
    let data = (0..experts.max(1)).flat_map(|e| x.rows_range(e * n, (e + 1) * n).transposed().data().to_vec()).collect();
    Tensor::new(x.dtype(), experts.max(1) * x.cols(), n, data)
}

/// The bytes of `source`, a buffer named `name`, row for column; its scale_inv with them.
fn transposed_copy(name: &str, source: &Buffer) -> Result<Buffer> {
    let (rows, cols) = source.q.granularity().grid(source.q.rows(), source.q.cols());
    let q = source.q.transposed()?;
    let packaged = q.scale_inv().to_vec();
    let made = (0..cols).flat_map(|j| (0..rows).map(move |i| i * cols + j)).map(|i| source.made[i]).collect();
    let x = source.x.transposed();
    Ok(Buffer { q, made, packaged, x, turned: true, of: Some(name.to_string()), ..source.clone() })
}

/// What a kernel wrote that took a null scale for 0: zeros, beside the scale_inv 1 of the recipe.
fn nothing(valid: &Made) -> Result<Made> {
    let parts = valid.q.clone().into_parts();
    let q = QTensor::new(QTensorParts { codes: vec![0; parts.codes.len()], ..parts })?;
    Ok(Made { q, scale: vec![0.0; valid.scale.len()] })
}

/// Rows (or columns) of all ranks, each with its own scale_inv.
fn gather(parts: &[&Buffer], state: &str, by_cols: bool) -> Result<Buffer> {
    let first = parts[0];
    let (rows, cols) = (first.q.rows(), first.q.cols());
    if parts.iter().any(|p| (p.q.rows(), p.q.cols(), p.q.granularity()) != (rows, cols, first.q.granularity())) {
        return Err(Error::unsupported("gather", "the buffers of all ranks have the same shape and granularity"));
    }
    let (tile_rows, tile_cols) = first.q.granularity().tile(rows, cols);
    let granularity = match first.q.granularity() {
        // One scale a rank is one a slab.
        Granularity::Tensor => Granularity::Block { rows, cols },
        g if by_cols && cols % tile_cols != 0 => {
            return Err(Error::unsupported("gather", format!("{g} tiles of {cols} columns")));
        }
        g if !by_cols && rows % tile_rows != 0 => {
            return Err(Error::unsupported("gather", format!("{g} tiles of {rows} rows")));
        }
        Granularity::Row if by_cols => Granularity::Group(cols),
        g => g,
    };
    fn join<T: Copy>(parts: Vec<&[T]>, width: usize, by_cols: bool) -> Vec<T> {
        if !by_cols {
            return parts.concat();
        }
        let rows = parts[0].len() / width.max(1);
        (0..rows).flat_map(|i| parts.iter().flat_map(move |p| p[i * width..(i + 1) * width].iter().copied())).collect()
    }
    let grid_cols = first.q.granularity().grid(rows, cols).1;
    let n = parts.len();
    let (all_rows, all_cols) = if by_cols { (rows, n * cols) } else { (n * rows, cols) };
    let scale_inv = join(parts.iter().map(|p| p.q.scale_inv()).collect(), grid_cols, by_cols);
    let q = QTensor::new(QTensorParts {
        rows: all_rows,
        cols: all_cols,
        codes: join(parts.iter().map(|p| p.q.codes()).collect(), cols, by_cols),
        granularity,
        scale_inv,
        ..first.q.clone().into_parts()
    })?;
    let made = Made { q, scale: join(parts.iter().map(|p| p.made.as_slice()).collect(), grid_cols, by_cols) };
    let x = join(parts.iter().map(|p| p.x.data()).collect(), cols, by_cols);
    let x = Tensor::new(first.x.dtype(), all_rows, all_cols, x)?;
    Ok(Buffer::new(made, x, state, first.version, false))
}

#[cfg(test)]
mod tests {
    use super::super::state::Made;
    use super::*;

    /// Tiles of 32×32 of 40 rows or columns end within the next rank's.
    #[test]
    fn slabs_are_gathered_where_tiles_end() {
        for (rows, cols, by_cols, fits) in
            [(40, 64, false, false), (40, 64, true, true), (64, 40, false, true), (64, 40, true, false)]
        {
            let x = "normal".parse::<crate::input::Source>().unwrap().tensor(crate::Format::F32, rows, cols, 1, 0).unwrap();
            let q = "te_mxfp8_32x32".parse::<crate::recipe::Recipe>().unwrap().quantize(&x).unwrap().q;
            let scale = q.scale_inv().iter().map(|s| 1.0 / f64::from(*s)).collect();
            let slab = Buffer::new(Made { q, scale }, x, "x", 0, false);
            match gather(&[&slab, &slab], "x", by_cols) {
                Ok(all) => {
                    let twice = if by_cols { (rows, 2 * cols) } else { (2 * rows, cols) };
                    assert!(fits && (all.q.rows(), all.q.cols()) == twice, "{rows}×{cols} by columns {by_cols}");
                }
                Err(e) => assert!(!fits && e.to_string().contains("tiles of 40"), "{rows}×{cols} by columns {by_cols}: {e}"),
            }
        }
    }
}
