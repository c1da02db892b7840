//! What only a device can show, as it was seen: the order of two streams, a graph replayed on other buffers, the cost of each policy.
//!
//! `bench::stale` and `bench::policies` measure, this names, judges and writes.

use crate::assay::row::number;
use crate::{Error, Result};
use std::path::Path;

/// Names on the command line beside the scenarios of `data/scenarios`; they need `--backend cuda`.
pub const DEVICE: [(&str, &str); 3] = [
    ("device_streams", "an FP8 GEMM's result is read on another stream before the small kernel has written its scale_inv"),
    ("device_graphs", "a captured graph is replayed after its buffers have moved"),
    ("device_costs", "what each policy costs the forward of a linear layer"),
];

/// What a read of bytes and scale_inv returned, to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The new bytes with their scale_inv.
    Healthy,
    /// What the law of the story says: bytes and scale_inv of two times.
    Stale,
    /// The bytes of the step before, with theirs.
    Previous,
    /// Each element healthy or stale: blocks of the kernel read at different times.
    Mixed,
    /// None of these.
    Torn,
}

/// What must be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Must {
    /// Every read is of this kind.
    All(Read),
    /// Nothing orders the two: each element healthy or stale, never anything else.
    Either,
    /// Nothing is promised.
    Any,
}

impl Must {
    fn name(self) -> &'static str {
        match self {
            Must::All(Read::Healthy) => "healthy",
            Must::All(Read::Stale) => "stale",
            Must::All(Read::Previous) => "previous",
            Must::All(Read::Mixed) => "mixed",
            Must::All(Read::Torn) => "torn",
            Must::Either => "healthy or stale",
            Must::Any => "no promise",
        }
    }
}

/// One way of doing it, many times.
#[derive(Clone, Debug)]
pub struct Seen {
    /// One of [`DEVICE`].
    pub scenario: &'static str,
    /// What is done, in words.
    pub way: &'static str,
    pub must: Must,
    /// How often each of [`Read`] was seen, in its order.
    pub reads: [usize; 5],
    /// Of the stale read whose r = s·scale_inv′ is farthest from 1: r, and the least-squares gain of what came back; 1 where none was.
    pub r_predicted: f64,
    pub gain_measured: f64,
}

impl Seen {
    pub fn new(scenario: &'static str, way: &'static str, must: Must) -> Self {
        Self { scenario, way, must, reads: [0; 5], r_predicted: 1.0, gain_measured: 1.0 }
    }

    /// Counts a read. `could` are the results healthy, stale, previous; `r` is s·scale_inv′ of a stale one, whose bytes return `own` with
    /// the scale_inv that belongs to them.
    pub fn count(&mut self, got: &[f32], could: [&[f32]; 3], r: f64, own: &[f32]) {
        let bits = |x: &[f32], i: usize| x.get(i).map(|v| v.to_bits());
        let same = |x: &[f32]| x.len() == got.len() && (0..got.len()).all(|i| bits(x, i) == bits(got, i));
        let found = [Read::Healthy, Read::Stale, Read::Previous].into_iter().zip(could).find(|k| same(k.1));
        let mixed = || (0..got.len()).all(|i| could[..2].iter().any(|x| bits(x, i) == bits(got, i)));
        let read = found.map_or_else(|| if mixed() { Read::Mixed } else { Read::Torn }, |k| k.0);
        self.reads[read as usize] += 1;
        if read == Read::Stale && r.ln().abs() > self.r_predicted.ln().abs() {
            let wide = |x: &[f32]| x.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
            (self.r_predicted, self.gain_measured) = (r, super::law::gain(&wide(own), &wide(got)));
        }
    }

    pub fn times(&self) -> usize {
        self.reads.iter().sum()
    }

    /// Whether what was seen is what must be.
    pub fn holds(&self) -> bool {
        let r_as_read = (self.gain_measured / self.r_predicted - 1.0).abs() <= 1e-6;
        let either = [Read::Healthy, Read::Stale, Read::Mixed].map(|r| self.reads[r as usize]).iter().sum::<usize>();
        self.times() > 0
            && r_as_read
            && match self.must {
                Must::All(read) => self.reads[read as usize] == self.times(),
                Must::Either => either == self.times(),
                Must::Any => true,
            }
    }

    /// The cells of its row under [`SEEN`].
    pub fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.scenario.to_string(), self.way.to_string(), self.must.name().to_string()];
        cells.extend(self.reads.iter().map(usize::to_string));
        cells.extend([number(self.r_predicted), number(self.gain_measured), self.holds().to_string()]);
        cells
    }
}

/// Columns of `device.csv`.
pub const SEEN: [&str; 11] =
    ["scenario", "way", "must", "healthy", "stale", "previous", "mixed", "torn", "r_predicted", "gain_measured", "holds"];

/// The forward of a linear layer under one policy: both casts to e4m3, the policy's part, the GEMM.
#[derive(Clone, Debug)]
pub struct Cost {
    pub policy: super::Policy,
    /// tokens, features out, features in.
    pub shape: (usize, usize, usize),
    /// Microseconds a layer, medians: of the device (a replayed graph), of the host to start it, of both until the end of it.
    pub device_us: f64,
    pub host_us: f64,
    pub wall_us: f64,
}

impl Cost {
    /// The cells of its row under [`COSTS`]; `all` holds the packaged policy of the same shape.
    pub fn cells(&self, all: &[Cost]) -> Vec<String> {
        let (m, n, k) = self.shape;
        let packaged = all.iter().find(|c| c.shape == self.shape && c.policy == super::Policy::Packaged);
        let times = |us: f64, of: fn(&Cost) -> f64| packaged.map_or(String::new(), |p| format!("{:.3}", us / of(p)));
        vec![
            format!("{m}x{n}x{k}"),
            self.policy.to_string(),
            format!("{:.2}", self.device_us),
            times(self.device_us, |c| c.device_us),
            format!("{:.2}", self.host_us),
            times(self.host_us, |c| c.host_us),
            format!("{:.2}", self.wall_us),
            times(self.wall_us, |c| c.wall_us),
        ]
    }
}

/// Columns of `costs.csv`: microseconds a layer, and times the packaged policy.
pub const COSTS: [&str; 8] = [
    "shape",
    "policy",
    "device_us",
    "device_times_packaged",
    "host_us",
    "host_times_packaged",
    "wall_us",
    "wall_times_packaged",
];

/// What a device showed.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub seen: Vec<Seen>,
    pub costs: Vec<Cost>,
}

impl Shown {
    /// `device.csv` and `costs.csv` in the folder of a run, where there is something to write. Errors: the disk's.
    pub fn write(&self, out: &Path) -> Result<()> {
        let seen: Vec<Vec<String>> = self.seen.iter().map(Seen::cells).collect();
        let costs: Vec<Vec<String>> = self.costs.iter().map(|c| c.cells(&self.costs)).collect();
        for (name, head, rows) in [("device.csv", &SEEN[..], seen), ("costs.csv", &COSTS[..], costs)] {
            let text = std::iter::once(head.join(",")).chain(rows.iter().map(|r| r.join(","))).collect::<Vec<_>>().join("\n");
            let path = out.join(name);
            if !rows.is_empty() {
                std::fs::write(&path, text + "\n").map_err(|e| Error::io(&path, e, "make room, then run it again"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::*;

    #[test]
    fn costs_are_told_in_microseconds_and_as_times_the_packaged_policy() {
        let cost =
            |policy, us: f64| Cost { policy, shape: (64, 128, 256), device_us: us, host_us: 2.0 * us, wall_us: 3.0 * us };
        let all = [cost(Policy::Cloned, 5.0), cost(Policy::Packaged, 4.0)];
        assert_eq!(all[1].cells(&all)[2..], ["4.00", "1.000", "8.00", "1.000", "12.00", "1.000"]);
        assert_eq!(all[0].cells(&all)[2..], ["5.00", "1.250", "10.00", "1.250", "15.00", "1.250"]);
    }

    #[test]
    fn reads_are_told_apart_to_the_bit_and_judged() {
        let (new, stale, old) = ([1.0f32, -2.0], [1.5f32, -3.0], [0.5f32, 7.0]);
        let could = [&new[..], &stale[..], &old[..]];
        let seen = |must, reads: &[[f32; 2]]| {
            let mut s = Seen::new("device_streams", "a way", must);
            reads.iter().for_each(|r| s.count(r, could, 1.5, &new));
            s
        };
        let torn = [1.0, -2.0000002];
        let mixed = [1.0, -3.0];
        let all = seen(Must::Any, &[new, stale, old, mixed, torn, [0.0, 0.0]]);
        assert_eq!((all.reads, all.holds()), ([1, 1, 1, 1, 2], true));
        assert_eq!((all.r_predicted, all.gain_measured), (1.5, 1.5));
        assert!(seen(Must::Either, &[new, stale, mixed]).holds());
        assert!(!seen(Must::Either, &[new, old]).holds());
        assert!(seen(Must::All(Read::Stale), &[stale, stale]).holds());
        assert!(!seen(Must::All(Read::Stale), &[stale, new]).holds());
        assert!(!seen(Must::All(Read::Healthy), &[mixed]).holds());
        assert!(!seen(Must::Either, &[torn]).holds());
        assert!(!seen(Must::Any, &[]).holds(), "nothing was seen");
        // An r that the result does not have.
        let mut wrong = Seen::new("device_streams", "a way", Must::Any);
        wrong.count(&stale, could, 1.4, &new);
        assert!(!wrong.holds());
        assert_eq!(all.cells().len(), SEEN.len());
    }
}
