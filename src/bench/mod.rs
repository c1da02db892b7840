//! How fast the GPU's kernels are: ours and the vendor's beside a copy, all in one run.
//!
//! A kernel's time is the median over rounds of graphs of launches whose inputs rotate past the L2 ([`crate::kernel::cuda::timed`]). The
//! limit is the larger of its bytes over the copy's bandwidth measured in the same run, and its operations over the tensor cores'
//! rate at the GPU's highest clock; `share` is limit over time.

mod list;
mod table;

pub use list::{ENTRIES, Entry, Unit};
pub use table::{COLUMNS, csv, terminal};

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

/// Times every entry of `backends` whose group or kernel contains `filter`. An entry that cannot run is a row with the reason. Errors: no
/// entry matches; the copy fails.
pub fn run(gpu: &'static Gpu, backends: &[Backend], filter: &str, progress: &dyn Fn(&Row)) -> Result<Measured> {
    let wanted: Vec<&Entry> = ENTRIES.iter().filter(|e| backends.contains(&e.backend) && e.group.contains(filter)).collect();
    if wanted.is_empty() {
        return Err(Error::unknown("bench", filter, ENTRIES.iter().map(|e| e.group)));
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
    for entry in wanted {
        let measured = (entry.timed)(gpu).and_then(|mut t| timed::time(gpu, &mut t).map(|time| (t, time)));
        let row = match measured {
            Ok((t, time)) => {
                let peak = entry.unit.and_then(|u| peaks.iter().find(|p| p.0 == u)).map(|p| p.1);
                let limit = limit(t.bytes, t.ops, copy, peak);
                Row { limit: Some(limit), ..made(entry.group, entry.backend.name(), &t, time) }
            }
            Err(e) => Row {
                group: entry.group.into(),
                backend: entry.backend.name(),
                kernel: String::new(),
                shape: String::new(),
                bytes: 0,
                ops: 0,
                time: Time { median: f64::NAN, min: f64::NAN, max: f64::NAN, launches: 0 },
                limit: None,
                vendor: None,
                error: Some(e.to_string()),
            },
        };
        progress(&row);
        rows.push(row);
    }
    compare(&mut rows);
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
        format!("revision: {}", crate::sweep::provenance::revision()),
        format!("command: {}", std::env::args().collect::<Vec<_>>().join(" ")),
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
        error: None,
    }
}

/// Seconds that bytes and operations need at least.
fn limit(bytes: u64, ops: u64, copy: f64, peak: Option<f64>) -> f64 {
    (bytes as f64 / copy).max(peak.map_or(0.0, |peak| ops as f64 / peak))
}

/// Gives each of our rows its group's fastest vendor time.
fn compare(rows: &mut [Row]) {
    let vendor: Vec<(String, f64)> = rows
        .iter()
        .filter(|r| r.backend == Backend::Vendor.name() && r.time.median.is_finite())
        .map(|r| (r.group.clone(), r.time.median))
        .collect();
    for row in rows.iter_mut().filter(|r| r.backend == Backend::Cuda.name()) {
        row.vendor = vendor.iter().filter(|v| v.0 == row.group).map(|v| v.1).min_by(f64::total_cmp);
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
        let mut rows = vec![
            row("a", "cuda", 2.0),
            row("a", "vendor", 6.0),
            row("a", "vendor", 4.0),
            row("b", "vendor", 1.0),
            row("c", "cuda", 1.0),
            row("a", "vendor", f64::NAN),
        ];
        compare(&mut rows);
        assert_eq!(rows[0].against_vendor(), Some(2.0));
        assert_eq!(rows[4].against_vendor(), None);
        assert_eq!(rows[1].against_vendor(), None);
        assert_eq!(rows[0].bandwidth(), 50.0);
    }
}
