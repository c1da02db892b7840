//! The report in headless Chromium: no script error, the table fills, filters, sorts and opens its details.

mod common;

use std::path::Path;
use std::process::Command;

/// What a reader does, written into the page's title; any uncaught error ends there too.
const USE: &str = r##"<script>
"use strict";
const said = [];
window.addEventListener("error", (e) => said.push("error: " + e.message));
window.addEventListener("load", () => {
  const body = document.querySelector("#rows tbody"), head = document.querySelector("#rows thead tr");
  const filter = document.getElementById("filter"), details = document.getElementById("details");
  const key = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const only = (text) => { filter.value = text; filter.dispatchEvent(new Event("input")); return [...body.rows]; };
  const column = (name) => [...head.cells].findIndex((c) => c.textContent === name);
  const numbers = (at) => [...body.rows].map((r) => r.cells[at].textContent).filter((x) => x !== "").map(Number);
  said.push("rows " + body.rows.length);
  const gemms = only("gemm");
  said.push("filtered " + (gemms.length > 0 && gemms.every((r) => r.cells[column("op")].textContent.includes("gemm"))));
  const near = only("op=cast bound_ratio<0.5");
  said.push("conditions " + (near.length > 0 && near.every((r) => r.cells[column("op")].textContent === "cast" && Number(r.cells[column("bound ratio")].textContent) < 0.5)));
  document.querySelector("[data-filter='verdict=pass']").click();
  said.push("verdicts " + (body.rows.length > 0 && [...body.rows].every((r) => r.cells[0].textContent === "pass")));
  only("");
  const at = column("bound ratio");
  head.cells[at].click();
  const down = numbers(at);
  key(head.cells[at], "Enter");
  const up = numbers(at);
  said.push("sorted " + (down.length > 1 && down.every((x, i) => i === 0 || down[i - 1] >= x) && up.every((x, i) => i === 0 || up[i - 1] <= x) && down[0] > up[0]));
  key(body.rows[0], "ArrowDown");
  said.push("arrows " + (document.activeElement === body.rows[1]));
  key(body.rows[1], "Enter");
  said.push("details " + (details.open && /^qassay run \S+ --case '[^']+'$/m.test(details.querySelector("pre").textContent)));
  said.push("injected " + (window.injected === undefined && document.querySelectorAll("b.injected").length === 0));
  said.push("network " + performance.getEntriesByType("resource").length);
  said.push("figures " + document.querySelectorAll("figure svg").length);
  document.title = said.join("; ");
});
</script>"##;

/// What a reader of `stale.html` sees: links that lead somewhere, figures whose words are inside and not on top of each other, a table as
/// wide as the page, rows that have a cell for each column.
const LOOK: &str = r##"<script>
"use strict";
const said = [];
window.addEventListener("error", (e) => said.push("error: " + e.message));
window.addEventListener("load", () => {
  const all = (what, within = document) => [...within.querySelectorAll(what)];
  said.push("links " + all("a[href^='#']").every((a) => document.getElementById(a.getAttribute("href").slice(1))));
  const figures = all("figure svg");
  said.push("figures " + figures.length);
  const bad = [];
  for (const svg of figures) {
    const frame = svg.getBoundingClientRect(), texts = all("text", svg).map((t) => [t, t.getBoundingClientRect()]);
    const out = texts.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1);
    const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    const on = texts.filter(([, a], i) => texts.some(([, b], j) => j < i && over(a, b)));
    for (const [t] of [...out, ...on]) bad.push(svg.closest("section").id + ": " + t.textContent.trim());
  }
  said.push(bad.length === 0 ? "words apart" : "words on words: " + bad.slice(0, 5).join(", "));
  const table = document.querySelector("table.stale"), wide = table.closest(".wide");
  said.push("wide " + (wide.scrollWidth <= wide.clientWidth));
  const cells = (row) => [...row.cells].reduce((n, c) => n + c.colSpan, 0);
  const columns = cells(table.tHead.rows[0]);
  said.push("cells " + [...table.tBodies[0].rows].every((r) => cells(r) === columns - (r.classList.contains("head") ? 0 : 2)));
  said.push("network " + performance.getEntriesByType("resource").length);
  document.title = said.join("; ");
});
</script>"##;

/// A reader opens `page`: what the script says.
/// The words of figures that stand out of their frame.
const INSIDE: &str = r##"<script>
"use strict";
window.addEventListener("load", () => {
  const figures = [...document.querySelectorAll("figure svg, svg[role=img]")], bad = [];
  for (const svg of figures) {
    const frame = svg.getBoundingClientRect();
    for (const t of svg.querySelectorAll("text")) {
      if (t.textContent.trim() === "") continue;
      const b = t.getBoundingClientRect();
      if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1) bad.push(t.textContent.trim());
    }
  }
  document.title = "figures " + figures.length + "; " + (bad.length === 0 ? "inside" : "outside: " + bad.slice(0, 5).join(", "));
});
</script>"##;

fn read(dir: &Path, page: &str, script: &str) -> String {
    let probe = dir.join("probe.html");
    std::fs::write(&probe, page.replacen("<head>", &format!("<head>{script}"), 1)).unwrap();
    let quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"];
    let out = Command::new("chromium")
        .args(quiet)
        .args(["--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000", "--dump-dom"])
        .arg("--window-size=1280,1000")
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", probe.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&out.stdout);
    dom.split("<title>").nth(1).and_then(|t| t.split("</title>").next()).unwrap_or("no title").to_string()
}

fn no_browser() -> bool {
    let missing = Command::new("chromium").arg("--version").output().is_err();
    if missing {
        eprintln!("SKIPPED: no chromium on this machine; scripts/setup.sh installs it where apt-get can");
    }
    missing
}

fn check(title: &str) {
    assert!(!title.contains("error"), "{title}");
    for done in [
        "filtered true",
        "conditions true",
        "verdicts true",
        "sorted true",
        "arrows true",
        "details true",
        "injected true",
        "network 0",
    ] {
        assert!(title.contains(done), "`{done}` is not in `{title}`");
    }
}

#[test]
fn the_report_works_in_a_browser() {
    if no_browser() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    common::qassay().args(["run", "smoke", "--quiet", "--out"]).arg(&run).assert().success();
    let page = std::fs::read_to_string(run.join("index.html")).unwrap();
    assert!(!page.contains("http://") && !page.contains("https://"), "the page must not name a host");
    let title = read(dir.path(), &page, USE);
    check(&title);
    let figures: usize = title.split("figures ").nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    assert!(figures >= 8, "{title}");
}

/// Committed pages too: names of other backends and kernels are wider than those of a smoke run.
#[test]
fn words_of_figures_are_inside_their_frames() {
    if no_browser() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let reports = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports");
    for page in ["example/index.html", "example-h200/index.html", "example-h200/bench/index.html", "example-torch/index.html"] {
        let title = read(dir.path(), &std::fs::read_to_string(reports.join(page)).unwrap(), INSIDE);
        let figures: usize = title.split("figures ").nth(1).and_then(|n| n.split(';').next()?.parse().ok()).unwrap_or(0);
        assert!(figures >= 2 && title.ends_with("inside"), "{page}: {title}");
    }
}

/// Names that users give are text, wherever they stand: in the page, its data, its figures.
#[test]
fn names_are_escaped() {
    if no_browser() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    common::qassay().args(["run", "smoke", "--quiet", "--out"]).arg(&run).assert().success();
    let evil = "</script><script>window.injected = 1</script><b class='injected'>";
    let rows = std::fs::read_to_string(run.join("rows.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(rows.as_bytes());
    let header = reader.headers().unwrap().clone();
    let mut writer = csv::Writer::from_path(run.join("rows.csv")).unwrap();
    writer.write_record(&header).unwrap();
    for record in reader.records().map(Result::unwrap) {
        let value = |(name, v): (&str, &str)| match name {
            "reason" | "recipe_a" | "dist_a" => format!("{v}{evil}"),
            // One that needs attention, so that its words stand above the table too.
            "verdict" if record.get(3) == Some("dequantize") => "fail".into(),
            _ => v.to_string(),
        };
        writer.write_record(header.iter().zip(&record).map(value)).unwrap();
    }
    writer.flush().unwrap();
    common::qassay().arg("report").arg(&run).assert().success();
    let page = std::fs::read_to_string(run.join("index.html")).unwrap();
    assert!(page.contains("injected"), "the names are not in the page");
    check(&read(dir.path(), &page, USE));
}

#[test]
fn the_page_of_stale_scales_is_whole_in_a_browser() {
    if no_browser() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    common::qassay().args(["stale", "--steps", "14", "--out"]).arg(&run).assert().success();
    let page = std::fs::read_to_string(run.join("stale.html")).unwrap();
    let title = read(dir.path(), &page, LOOK);
    for done in ["links true", "words apart", "wide true", "cells true", "network 0"] {
        assert!(title.contains(done), "`{done}` is not in `{title}`");
    }
    let figures: usize = title.split("figures ").nth(1).and_then(|n| n.split(';').next()?.parse().ok()).unwrap_or(0);
    assert!(figures > 30 && !title.contains("error"), "{title}");
}
