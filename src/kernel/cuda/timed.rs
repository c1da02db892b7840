//! How long a launch takes: events around replays of a captured graph, inputs rotated past the L2, the median of rounds.
//!
//! A graph holds many launches, so the host's time to start each is not in the number. All of it happens on [`Gpu::stream`].

use super::launch::{Buffer, Gpu};
use crate::format::Overflow;
use crate::format::fast::Encoder;
use crate::input::{Distribution, generate};
use crate::{Format, Result};
use cudarc::driver::{result, sys};

/// What a graph holds at least, seconds of work: an event's resolution is about 0.5 µs.
const SPAN: f64 = 4e-3;
/// Replayed before the first measurement, seconds: clocks rise.
const WARM_UP: f64 = 0.1;
const ROUNDS: usize = 15;
/// Launches a graph holds at most.
const LONGEST: usize = 4096;

/// A launch that can be timed.
pub struct Timed {
    /// Kernel and variant: `cast bf16>e4m3 delayed`.
    pub name: String,
    /// `8192x8192`; of a GEMM `m x n x k`.
    pub shape: String,
    /// Bytes that one call must move: each input read once, each output written once.
    pub bytes: u64,
    /// Operations of one call, a multiply-add counted as two; 0 where only bytes count.
    pub ops: u64,
    /// Input sets that `launch` rotates through ([`rotation`]).
    pub copies: usize,
    /// `launch(i)` enqueues one call on input set `i % copies` on [`Gpu::stream`], by [`Gpu::enqueue`]; no synchronization, no
    /// allocation, no copy from the host.
    pub launch: Box<dyn FnMut(usize) -> Result<()>>,
}

/// Seconds a call, over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Launches that each round averages.
    pub launches: usize,
}

/// Times `timed`. Errors: a launch's; the driver's.
pub fn time(gpu: &Gpu, timed: &mut Timed) -> Result<Time> {
    // Uploads are on the default stream, which this one does not wait for.
    gpu.synchronize(&timed.name)?;
    for i in 0..timed.copies.max(2) {
        (timed.launch)(i)?;
    }
    gpu.synchronize(&timed.name)?;
    let first = Graph::capture(gpu, timed.copies.max(1), &mut timed.launch)?;
    let estimate = first.seconds(1)?.min(first.seconds(1)?);
    let launches = launches(estimate, timed.copies);
    let graph = Graph::capture(gpu, launches, &mut timed.launch)?;
    let once = graph.seconds(1)?;
    graph.seconds((WARM_UP / once).ceil().clamp(1.0, 1000.0) as usize)?;
    let mut rounds: Vec<f64> =
        (0..ROUNDS).map(|_| graph.seconds(1).map(|s| s / launches as f64)).collect::<Result<Vec<f64>>>()?;
    rounds.sort_by(f64::total_cmp);
    Ok(Time { median: rounds[ROUNDS / 2], min: rounds[0], max: rounds[ROUNDS - 1], launches })
}

/// Launches of one graph when one takes `estimate` seconds: [`SPAN`] of work, whole rotations, at most [`LONGEST`].
fn launches(estimate: f64, copies: usize) -> usize {
    let wanted = (SPAN / estimate.max(1e-9)).ceil().min(LONGEST as f64) as usize;
    wanted.max(1).next_multiple_of(copies.max(1))
}

/// How many input sets of `bytes` each (inputs and outputs of one call) exceed twice the L2: a set is gone from it when its turn
/// comes again.
pub fn rotation(gpu: &Gpu, bytes: u64) -> usize {
    (2 * gpu.info.l2 as u64 / bytes.max(1) + 1) as usize
}

/// `copies` buffers that each hold `bytes`. Errors: out of memory.
pub fn uploads(gpu: &Gpu, bytes: &[u8], copies: usize) -> Result<Vec<Buffer>> {
    (0..copies).map(|_| gpu.upload(bytes)).collect()
}

/// `n` normal values as the device reads them: f32, bf16, f16 of variance 1, or codes of an 8-bit or smaller format, one a byte, of
/// values whose standard deviation is a quarter of the format's largest. 2²⁰ − 3 are drawn, then repeated; zeros would time a GPU
/// that saves power.
pub fn normals(dtype: Format, n: usize, seed: u64) -> Result<Vec<u8>> {
    let drawn = n.min((1 << 20) - 3);
    let of = if dtype.is_high() { dtype } else { Format::F32 };
    let values = generate(Distribution::NormalIid, of, 1, drawn, seed, 0)?;
    let bytes = if dtype.is_high() {
        values.bits()
    } else {
        let mut codes = vec![0; drawn];
        let scale = (dtype.max_finite() / 4.0) as f32;
        Encoder::new(dtype, Overflow::Saturate)?.encode_slice(values.data(), scale, &mut codes)?;
        codes
    };
    let total = n * (bytes.len() / drawn.max(1));
    let mut all = Vec::with_capacity(total);
    while all.len() < total {
        all.extend_from_slice(&bytes[..bytes.len().min(total - all.len())]);
    }
    Ok(all)
}

/// A copy of `bytes` by the driver: what kernels that move bytes are compared with. Errors: out of memory.
pub fn copy(gpu: &'static Gpu, bytes: usize) -> Result<Timed> {
    let copies = rotation(gpu, 2 * bytes as u64);
    let from = uploads(gpu, &normals(Format::F32, bytes / 4, 1)?, copies)?;
    let to = (0..copies).map(|_| gpu.output(bytes)).collect::<Result<Vec<Buffer>>>()?;
    let launch = move |i: usize| {
        let i = i % copies;
        gpu.enqueue_copy(&to[i], &from[i])
    };
    let bytes = 2 * bytes as u64;
    Ok(Timed { name: "copy".into(), shape: format!("{bytes} bytes"), bytes, ops: 0, copies, launch: Box::new(launch) })
}

/// Launches captured once, replayed with events around.
pub(crate) struct Graph<'a> {
    gpu: &'a Gpu,
    exec: sys::CUgraphExec,
    start: sys::CUevent,
    end: sys::CUevent,
}

impl<'a> Graph<'a> {
    /// Captures `launch(0)`, `launch(1)`, … on [`Gpu::stream`]. Errors: a launch's; the driver's.
    pub(crate) fn capture(gpu: &'a Gpu, launches: usize, launch: &mut dyn FnMut(usize) -> Result<()>) -> Result<Self> {
        let failed = |what: &str, e| super::launch::failed(what, e);
        let stream = gpu.stream();
        // SAFETY: the stream lives as long as the process; a capture that began is ended whatever the launches return; graph and
        // events are destroyed once, by drop or here.
        unsafe {
            result::stream::begin_capture(stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)
                .map_err(|e| failed("cuStreamBeginCapture", e))?;
            let launched = (0..launches).try_for_each(launch);
            let graph = result::stream::end_capture(stream);
            launched?;
            let graph = graph.map_err(|e| failed("cuStreamEndCapture", e))?;
            let exec = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = result::graph::destroy(graph);
            let exec = exec.map_err(|e| failed("cuGraphInstantiate", e))?;
            let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(|e| failed("cuEventCreate", e));
            Ok(Self { gpu, exec, start: event()?, end: event()? })
        }
    }

    /// Starts one replay and does not wait.
    pub(crate) fn replay(&self) -> Result<()> {
        // SAFETY: graph and stream are alive.
        unsafe { result::graph::launch(self.exec, self.gpu.stream()) }
            .map_err(|e| super::launch::failed("replay of a graph", e))
    }

    /// Time of `replays` replays.
    fn seconds(&self, replays: usize) -> Result<f64> {
        let failed = |e| super::launch::failed("replay of a graph", e);
        let stream = self.gpu.stream();
        // SAFETY: graph, events and stream are alive; the events are on this stream.
        let milliseconds = unsafe {
            result::event::record(self.start, stream).map_err(failed)?;
            for _ in 0..replays {
                result::graph::launch(self.exec, stream).map_err(failed)?;
            }
            result::event::record(self.end, stream).map_err(failed)?;
            result::event::synchronize(self.end).map_err(failed)?;
            result::event::elapsed(self.start, self.end).map_err(failed)?
        };
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        // SAFETY: each was created by capture and is destroyed once.
        unsafe {
            let _ = result::graph::exec_destroy(self.exec);
            let _ = result::event::destroy(self.start);
            let _ = result::event::destroy(self.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_holds_whole_rotations() {
        assert_eq!(launches(1e-6, 3), 4002);
        assert_eq!(launches(7e-6, 1), 572);
        assert_eq!(launches(1.0, 5), 5);
        assert_eq!(launches(0.0, 1), LONGEST);
    }

    #[test]
    fn drawn_inputs_are_normal_and_repeat_at_an_odd_length() {
        let n = (1 << 20) + 5;
        let bytes = normals(Format::Bf16, n, 7).unwrap();
        assert_eq!(bytes.len(), 2 * n);
        assert_eq!(bytes[..16], bytes[2 * ((1 << 20) - 3)..]);
        let values = bytes.chunks(2).map(|b| f64::from(half::bf16::from_le_bytes([b[0], b[1]]).to_f32()));
        let variance = values.map(|v| v * v).sum::<f64>() / n as f64;
        assert!((variance - 1.0).abs() < 0.01, "{variance}");
        assert!(normals(Format::Int8, n, 0).unwrap().iter().any(|b| *b != 0));
    }
}
