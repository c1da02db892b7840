//! How fast the GPU's kernels are: ours and the vendor's beside a copy, all in one run.
//!
//! A kernel's time is the median over rounds of graphs of launches whose inputs rotate past the L2 ([`crate::kernel::cuda::timed`]). The
//! limit is the larger of its bytes over the copy's bandwidth measured in the same run, and its operations over the tensor cores'
//! rate at the GPU's highest clock; `share` is limit over time.

mod cast_timed;
mod fp8_timed;
mod kept;
mod list;
pub(crate) mod model_gpu;
pub(crate) mod policies;
pub(crate) mod stale;
mod table;
mod vendor_timed;
mod w4a8_timed;

pub use kept::read;
pub use list::{ENTRIES, Entry, Floor, Unit, products};
pub use table::{csv, floor, terminal};

use crate::kernel::Backend;
use crate::kernel::cuda::launch::Gpu;
use crate::kernel::cuda::timed::{self, Time, Timed};
use crate::kernel::vendor::lt::library;
use crate::{Error, Result};

/// Bytes of the copies whose larger bandwidth is the limit: what an 8192×8192 bf16 cast reads, and twice that.
const COPIES: [usize; 2] = [128 << 20, 256 << 20];

/// One line: a kernel at a shape.
#[derive(Clone, Debug)]
pub struct Row {
    /// What is compared with each other.
    pub group: String,
    /// `copy`, `cuda` (ours), `vendor`.
    pub backend: &'static str,
    pub kernel: String,
    pub shape: String,
    pub bytes: u64,
    /// A multiply-add counts as two.
    pub ops: u64,
    pub time: Time,
    /// Seconds that bytes and operations need at least; `None` for the copy itself.
    pub limit: Option<f64>,
    /// Time of the group's fastest vendor kernel, seconds.
    pub vendor: Option<f64>,
    /// Time that it may take at most by its [`Floor`], seconds.
    pub floor: Option<f64>,
    /// Why it was not timed.
    pub error: Option<String>,
}

impl Row {
    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.time.median
    }
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.time.median
    }
    /// Limit over time.
    pub fn share(&self) -> Option<f64> {
        self.limit.map(|limit| limit / self.time.median)
    }
    /// Vendor's time over this one: above 1 is faster than the vendor.
    pub fn against_vendor(&self) -> Option<f64> {
        self.vendor.map(|v| v / self.time.median)
    }
    /// Whether it is as fast as its floor asks.
    pub fn meets_floor(&self) -> Option<bool> {
        self.floor.map(|floor| self.time.median <= floor)
    }
}

/// What was measured, and the two ceilings.
pub struct Measured {
    pub rows: Vec<Row>,
    /// Bytes a second of the faster copy, read and written.
    pub copy: f64,
    /// Operations a second of the tensor cores at the highest clock, by unit; empty where it is not known for the GPU.
    pub peaks: Vec<(Unit, f64)>,
    /// One `key: value` a line.
    pub provenance: String,
}

/// Times every one of `entries` of `backends` whose group or kernel contains `filter`. An entry that cannot run is a row with the reason.
/// Errors: no entry matches; the copy fails.
pub fn run(
    gpu: &'static Gpu,
    entries: &[Entry],
    backends: &[Backend],
    filter: &str,
    progress: &dyn Fn(&Row),
) -> Result<Measured> {
    let wanted: Vec<&Entry> = entries.iter().filter(|e| backends.contains(&e.backend) && e.group.contains(filter)).collect();
    if wanted.is_empty() {
        return Err(Error::unknown("bench", filter, entries.iter().map(|e| &*e.group)));
    }
    let mut rows = Vec::new();
    for bytes in COPIES {
        let mut copy = timed::copy(gpu, bytes)?;
        let time = timed::time(gpu, &mut copy)?;
        let row = made("copy", "copy", &copy, time);
        progress(&row);
        rows.push(row);
    }
    let copy = rows.iter().map(Row::bandwidth).fold(0.0, f64::max);
    let peaks = peaks(gpu)?;
    for entry in &wanted {
        let measured = entry.timed(gpu).and_then(|mut t| timed::time(gpu, &mut t).map(|time| (t, time)));
        let row = match measured {
            Ok((t, time)) => {
                let peak = entry.unit.and_then(|u| peaks.iter().find(|p| p.0 == u)).map(|p| p.1);
                let limit = limit(t.bytes, t.ops, copy, peak);
                Row { limit: Some(limit), ..made(&entry.group, entry.backend.name(), &t, time) }
            }
            Err(e) => Row {
                group: entry.group.to_string(),
                backend: entry.backend.name(),
                kernel: String::new(),
                shape: String::new(),
                bytes: 0,
                ops: 0,
                time: Time { median: f64::NAN, min: f64::NAN, max: f64::NAN, launches: 0 },
                limit: None,
                vendor: None,
                floor: None,
                error: Some(e.to_string()),
            },
        };
        progress(&row);
        rows.push(row);
    }
    compare(&mut rows[COPIES.len()..], &wanted);
    let provenance = provenance(gpu, copy, &peaks);
    Ok(Measured { rows, copy, peaks, provenance })
}

/// What the bench ran on, one `key: value` a line.
fn provenance(gpu: &Gpu, copy: f64, peaks: &[(Unit, f64)]) -> String {
    let info = &gpu.info;
    let (major, minor) = info.capability;
    let library = library().map_or("not here".into(), |l| l.version.to_string());
    let mut lines = vec![
        format!("qassay: {}", env!("CARGO_PKG_VERSION")),
        format!("revision: {}", crate::run::provenance::revision()),
        format!("date: {}", crate::run::provenance::now()),
        format!("command: {}", crate::run::provenance::command()),
        format!("device: {}, compute capability {major}.{minor}, {} multiprocessors", info.name, info.multiprocessors),
        format!("l2: {} bytes", info.l2),
        format!("driver: CUDA {}", info.driver),
        format!("cublaslt: {library}"),
        format!("copy: {:.1} GB/s, read and written, the limit of bytes", copy * 1e-9),
    ];
    for (unit, rate) in peaks {
        lines.push(format!("peak {}: {:.0} TFLOP/s at the highest clock, the limit of operations", unit.name(), rate * 1e-12));
    }
    lines.join("\n") + "\n"
}

fn made(group: &str, backend: &'static str, t: &Timed, time: Time) -> Row {
    Row {
        group: group.into(),
        backend,
        kernel: t.name.clone(),
        shape: t.shape.clone(),
        bytes: t.bytes,
        ops: t.ops,
        time,
        limit: None,
        vendor: None,
        floor: None,
        error: None,
    }
}

/// Seconds that bytes and operations need at least.
fn limit(bytes: u64, ops: u64, copy: f64, peak: Option<f64>) -> f64 {
    (bytes as f64 / copy).max(peak.map_or(0.0, |peak| ops as f64 / peak))
}

/// Gives each of our rows its group's fastest vendor time, and the time of its floor. `entries`: of the rows, one each.
fn compare(rows: &mut [Row], entries: &[&Entry]) {
    let vendor: Vec<(&str, Option<Unit>, f64)> = rows
        .iter()
        .zip(entries)
        .filter(|(r, e)| e.backend == Backend::Vendor && r.time.median.is_finite())
        .map(|(r, e)| (&*e.group, e.unit, r.time.median))
        .collect();
    let fastest = |group: &str, unit: Option<Unit>| {
        let same = |v: &&(&str, Option<Unit>, f64)| v.0 == group && (unit.is_none() || v.1 == unit);
        vendor.iter().filter(same).map(|v| v.2).min_by(f64::total_cmp)
    };
    for (row, entry) in rows.iter_mut().zip(entries).filter(|(_, e)| e.backend == Backend::Cuda) {
        row.vendor = fastest(&entry.group, None);
        row.floor = entry.floor.and_then(|floor| match floor {
            Floor::Bandwidth(rate) => Some(row.bytes as f64 / rate),
            Floor::Faster(unit) => fastest(&entry.group, Some(unit)),
            Floor::Share(share) => row.vendor.map(|v| v / share),
        });
    }
}

/// Operations a second of the tensor cores: multiprocessors × highest clock × operations a clock. Source: NVIDIA H100 whitepaper, dense
/// FP8 1978.9 TFLOP/s at 1830 MHz × 132 multiprocessors = 8192 a clock.
fn peaks(gpu: &Gpu) -> Result<Vec<(Unit, f64)>> {
    let per_clock: &[(Unit, f64)] = match gpu.info.capability {
        (9, 0) => &[(Unit::Fp8, 8192.0), (Unit::Int8, 8192.0), (Unit::F16, 4096.0)],
        _ => &[],
    };
    let rate = gpu.info.multiprocessors as f64 * gpu.clock()?;
    Ok(per_clock.iter().map(|(unit, ops)| (*unit, ops * rate)).collect())
}

#[cfg(test)]
mod tests {
    use super::list::Work;
    use super::*;

    fn row(group: &str, backend: &'static str, median: f64) -> Row {
        let t = Timed { name: "k".into(), shape: "1".into(), bytes: 100, ops: 1000, copies: 1, launch: Box::new(|_| Ok(())) };
        made(group, backend, &t, Time { median, min: median, max: median, launches: 1 })
    }

    #[test]
    fn the_limit_is_the_larger_need() {
        assert_eq!(limit(100, 1000, 10.0, Some(50.0)), 20.0);
        assert_eq!(limit(100, 1000, 2.0, Some(50.0)), 50.0);
        assert_eq!(limit(100, 1000, 10.0, None), 10.0);
    }

    #[test]
    fn ours_meets_the_fastest_vendor_kernel_of_its_group() {
        let entry = |group: &'static str, backend, unit, floor| Entry {
            group: group.into(),
            backend,
            unit,
            floor,
            work: Work::Listed(|_| unreachable!()),
        };
        let (cuda, vendor, f16, fp8) = (Backend::Cuda, Backend::Vendor, Some(Unit::F16), Some(Unit::Fp8));
        let table = [
            (entry("a", cuda, f16, Some(Floor::Faster(Unit::F16))), 5.0),
            (entry("a", cuda, f16, Some(Floor::Faster(Unit::Fp8))), 5.0),
            (entry("a", cuda, f16, Some(Floor::Share(0.75))), 5.0),
            (entry("a", vendor, f16, None), 6.0),
            (entry("a", vendor, fp8, None), 4.0),
            (entry("b", vendor, f16, None), 1.0),
            (entry("c", cuda, None, Some(Floor::Bandwidth(40.0))), 2.5),
            (entry("c", cuda, None, Some(Floor::Faster(Unit::F16))), 1.0),
            (entry("a", vendor, fp8, None), f64::NAN),
            (entry("c", cuda, None, Some(Floor::Bandwidth(40.0))), f64::NAN),
        ];
        let mut rows: Vec<Row> = table.iter().map(|(e, time)| row(&e.group, e.backend.name(), *time)).collect();
        compare(&mut rows, &table.iter().map(|(e, _)| e).collect::<Vec<_>>());
        assert_eq!((rows[0].against_vendor(), rows[3].against_vendor(), rows[6].against_vendor()), (Some(0.8), None, None));
        let meets: Vec<_> = rows.iter().map(Row::meets_floor).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(
            meets,
            [yes, no, yes, None, None, None, yes, None, None, no],
            "5 < 6; 5 > 4; 5 < 4 / 0.75; 100 bytes / 40; not timed"
        );
        assert_eq!(rows[0].bandwidth(), 20.0);
    }
}
