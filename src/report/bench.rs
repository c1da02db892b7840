//! The folder of a GPU bench: `bench.csv`, `provenance.txt`, `roofline.svg`, `shares.svg`, `index.html`.

use super::head;
use super::page::{fact, ran};
use super::plot::{self, Room, Series};
use super::roofline::{Bar, Ceiling, bars, roofline, slim_bars};
use crate::bench::{self, Measured, Row};
use crate::{Error, Result};
use maud::{DOCTYPE, html};
use std::path::{Path, PathBuf};

/// Writes the folder; returns the page's path. Errors: it cannot be written.
pub fn write(out: &Path, measured: &Measured) -> Result<PathBuf> {
    let folder = |e| Error::io(out, e, "make room, or choose another folder with --out");
    std::fs::create_dir_all(out).map_err(folder)?;
    let save = |name: &str, text: &str| save(out, name, text);
    save("bench.csv", &bench::csv(measured))?;
    save("provenance.txt", &measured.provenance)?;
    draw(out, measured)
}

/// Draws the page and the figures of a folder; returns the page's path. Errors: they cannot be written.
pub fn draw(out: &Path, measured: &Measured) -> Result<PathBuf> {
    let [roof, slim_roof] = [Room::Wide, Room::Phone].map(|room| roof(measured, room));
    let all = shares(measured);
    let shares = bars(&all, &KINDS, LIMIT);
    let save = |name: &str, text: &str| save(out, name, text);
    save(
        "roofline.svg",
        &plot::standalone(&roof, "Roofline", "Speed of each product against operations a byte, under the copy and the peaks"),
    )?;
    save("shares.svg", &plot::standalone(&shares, "Share of the limit", "How near each kernel is to its limit"))?;
    save("index.html", &page(measured, [&roof, &slim_roof], [&shares, &slim_bars(&all, &KINDS, LIMIT)]))
}

fn save(out: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = out.join(name);
    std::fs::write(&path, text).map_err(|e| Error::io(&path, e, "make room, or choose another folder with --out"))?;
    Ok(path)
}

/// What a point or bar is drawn as.
fn kind(row: &Row) -> usize {
    usize::from(row.backend == "vendor") + 2 * usize::from(row.backend == "copy")
}

const KINDS: [&str; 3] = ["ours", "vendor", "copy"];

fn timed(measured: &Measured) -> impl Iterator<Item = &Row> {
    measured.rows.iter().filter(|r| r.time.median.is_finite())
}

fn roof(measured: &Measured, room: Room) -> String {
    let point = |r: &Row| (r.ops as f64 / r.bytes as f64, r.rate() * 1e-12);
    let of = |k: usize| timed(measured).filter(move |r| r.ops > 0 && kind(r) == k).map(point).collect();
    let series: Vec<Series> = (0..2).map(|k| Series::new(KINDS[k], of(k))).collect();
    let mut ceilings: Vec<Ceiling> = Vec::new();
    for (unit, rate) in &measured.peaks {
        let (name, rate) = (unit.name().to_string(), rate * 1e-12);
        match ceilings.iter_mut().find(|c| c.rate == rate) {
            Some(c) => c.name = format!("{}, {name}", c.name),
            None => ceilings.push(Ceiling { name, rate }),
        }
    }
    roofline(measured.copy * 1e-12, &ceilings, &series, room)
}

/// What the length of a bar is.
const LIMIT: &str = "share of the limit: the larger of bytes / copy and operations / peak, over time";

fn shares(measured: &Measured) -> Vec<Bar> {
    let mut group = "";
    let mut all = Vec::new();
    for row in timed(measured) {
        let head = (row.group != group).then(|| row.group.clone());
        group = &row.group;
        let share = row.share().unwrap_or_else(|| row.bandwidth() / measured.copy);
        let note = match row.ops {
            0 => format!("{:.2} TB/s", row.bandwidth() * 1e-12),
            _ => format!(
                "{:.2} µs, {:.0} TFLOP/s, {:.2} TB/s",
                row.time.median * 1e6,
                row.rate() * 1e-12,
                row.bandwidth() * 1e-12
            ),
        };
        all.push(Bar { label: row.kernel.clone(), share, kind: kind(row), note, head });
    }
    all
}

/// What the bench says in a sentence or two: against the vendor's library where both are timed, and how near the limit of bytes what is
/// bound by them is.
fn answer(measured: &Measured) -> String {
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    let against: Vec<f64> = timed(measured).filter(|r| kind(r) == 0).filter_map(Row::against_vendor).collect();
    let bytes = timed(measured).filter(|r| kind(r) == 0 && r.ops == 0).filter_map(Row::share).collect();
    let mut said = Vec::new();
    if !against.is_empty() {
        let faster = against.iter().filter(|x| **x >= 1.0).count();
        said.push(format!("{faster} of our {} products are faster than the vendor's.", against.len()));
    }
    if let Some(share) = median(bytes) {
        said.push(format!("Kernels that only move bytes reach {:.0} % of the speed of a copy (median).", 100.0 * share));
    }
    said.join(" ")
}

/// Each chart is one for a page and one for a phone.
fn page(measured: &Measured, roof: [&str; 2], shares: [&str; 2]) -> String {
    let text = |x: Option<f64>, unit: &str, digits: usize| x.map_or(String::new(), |x| format!("{x:.digits$}{unit}"));
    let see_roof = format!(
        "Each point is a product: operations a byte across, speed upwards. The slope is the copy's {:.2} TB/s, measured in this run; the \
         flat lines are the tensor cores at the highest clock. Under the slope, bytes are the limit; under a flat line, operations are.",
        measured.copy * 1e-12
    );
    let heading =
        format!("Speed of {} kernels on {}", measured.rows.len(), fact(&measured.provenance, "device").unwrap_or("a GPU"));
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{heading} · qassay"), "@media (min-width: 641px) { #table th, #table td:first-child { white-space: normal; } #table th { vertical-align: bottom; } } @media (max-width: 640px) { #table td { max-width: none; } #table td:nth-child(-n+2) { white-space: normal; min-width: 7rem; } }"))
            body {
                header { h1 { (heading) } (ran(&["date", "revision", "qassay", "command"].map(|key| (key, fact(&measured.provenance, key).unwrap_or(""))))) p.answer { (answer(measured)) } p { "Each time is the median over the rounds of one run. Inputs rotate, so that the L2 holds none of them." } }
                main {
                    section #shares { h2 { "How near each kernel is to its limit" } p.see #shares-see { "Each bar is a kernel. Its bytes need a time at the speed of a copy, its operations need a time at the peak: the bar is the larger of the two, over the time it took." } (plot::both(shares, "Share of the limit", "shares-see")) }
                    section #roofline { h2 { "Roofline" } p.see #roofline-see { (see_roof) } (plot::both(roof, "Roofline", "roofline-see")) }
                    section #table {
                        h2 { "All numbers" }
                        p.see { "The floor is the time that a kernel of ours has to reach: a share of the copy's speed, or the vendor's fastest kernel in its group." }
                        div.wide tabindex="0" role="region" aria-label="All numbers" { table {
                            thead { tr { @for (i, h) in ["group", "kernel", "shape", "µs", "TB/s", "TFLOP/s", "share of limit", "times the vendor's speed", "floor, µs"].into_iter().enumerate() { th.number[i > 2] scope="col" { (h) } } } }
                            tbody { @for r in &measured.rows { tr {
                                td { (r.group) } td { (r.kernel) @if let Some(e) = &r.error { "not timed: " (e) } } td { (r.shape) }
                                @let there = |x: f64| Some(x).filter(|x| x.is_finite() && *x > 0.0);
                                td.number { (text(there(r.time.median * 1e6), "", 2)) }
                                td.number { (text(there(r.bandwidth() * 1e-12), "", 2)) }
                                td.number { (text(there(r.rate() * 1e-12), "", 0)) }
                                td.number { (text(r.share().map(|s| 100.0 * s), " %", 0)) }
                                td.number { (text(r.against_vendor(), "", 2)) }
                                td.number { (bench::floor(r)) }
                            } } }
                        } }
                    }
                    section #provenance { h2 { "Provenance" } pre { (measured.provenance) } }
                }
            }
        }
    }
    .into_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Unit;
    use crate::kernel::cuda::timed::Time;

    fn row(group: &str, backend: &'static str, ops: u64, median: f64, limit: Option<f64>) -> Row {
        Row {
            group: group.into(),
            backend,
            kernel: format!("a kernel with a long name of {backend}"),
            shape: "8192x8192".into(),
            bytes: 200_000_000,
            ops,
            time: Time { median, min: median, max: median, launches: 9 },
            limit,
            vendor: None,
            floor: None,
            error: None,
        }
    }

    #[test]
    fn the_folder_holds_table_figures_and_page_with_every_row() {
        let mut rows = vec![
            row("copy", "copy", 0, 48e-6, None),
            row("cast", "cuda", 0, 50e-6, Some(48e-6)),
            row("gemm", "cuda", 1_099_511_627_776, 700e-6, Some(520e-6)),
            row("gemm", "vendor", 1_099_511_627_776, 720e-6, Some(520e-6)),
        ];
        rows.push(Row { error: Some("no <library>".into()), ..row("gemm", "vendor", 0, f64::NAN, None) });
        let peaks = vec![(Unit::Fp8, 2.1e15), (Unit::Int8, 2.1e15), (Unit::F16, 1.05e15)];
        let measured = Measured { rows, copy: 4.2e12, peaks, provenance: "device: a GPU\n".into() };
        let dir = tempfile::tempdir().unwrap();
        let page = write(dir.path(), &measured).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("bench.csv").lines().count(), 6);
        assert!(read("provenance.txt").contains("a GPU"));
        let html = std::fs::read_to_string(page).unwrap();
        assert!(html.contains("no &lt;library&gt;") && html.contains("device: a GPU") && html.contains("1571"), "{html}");
        let roof = read("roofline.svg");
        assert!(
            roof.contains("copy 4.20 TB/s") && roof.contains("FP8, int8 2100 TFLOP/s") && roof.contains("f16 1050"),
            "{roof}"
        );
        // Two products, two in the legend.
        assert_eq!(roof.matches("<circle").count(), 4);
        // One bar a timed row, three in the legend.
        assert_eq!(read("shares.svg").matches("<rect").count(), 7);
    }
}
