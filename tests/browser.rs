//! The report in headless Chromium: no script error, the table fills, filters, sorts and opens its details.

mod common;
#[path = "common/kept.rs"]
mod kept;

use std::path::Path;
use std::process::Command;

/// What a reader does, written into the page's title; any uncaught error ends there too.
const USE: &str = r##"<script>
"use strict";
const said = [];
window.addEventListener("error", (e) => said.push("error: " + e.message));
window.addEventListener("load", () => {
  const body = document.querySelector("#rows tbody");
  const filter = document.getElementById("filter"), details = document.getElementById("details");
  const key = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const only = (text) => { filter.value = text; filter.dispatchEvent(new Event("input")); return [...body.rows]; };
  const heads = () => [...document.querySelectorAll("#rows thead th")];
  const column = (name) => heads().findIndex((c) => c.textContent === name);
  const wrong = () => document.getElementById("wrong").textContent;
  const numbers = (at) => [...body.rows].map((r) => r.cells[at].textContent).filter((x) => x !== "").map(Number);
  said.push("rows " + body.rows.length);
  const gemms = only("gemm");
  said.push("filtered " + (gemms.length > 0 && gemms.every((r) => r.cells[column("op")].textContent.includes("gemm"))));
  const near = only("op=cast bound_ratio<0.5");
  said.push("conditions " + (near.length > 0 && near.every((r) => r.cells[column("op")].textContent === "cast" && Number(r.cells[column("bound ratio")].textContent) < 0.5)));
  const signs = [["bound_ratio>=0.5", (x) => x >= 0.5], ["bound_ratio<=0.5", (x) => x <= 0.5], ["bound_ratio>0.5", (x) => x > 0.5]];
  said.push("signs " + signs.every(([text, is]) => { const rows = only(text), at = column("bound ratio"); return rows.length > 0 && rows.every((r) => is(Number(r.cells[at].textContent))); }));
  const many = (text) => { only(text); return Number(document.getElementById("count").textContent.split(" ")[0]); };
  const [gemm, other, every] = ["op=gemm", "op!=gemm", ""].map(many);
  said.push("not " + (gemm > 0 && other > 0 && gemm + other === every));
  const has = only("recipe_a~te_");
  said.push("has " + (has.length > 0 && has.every((r) => r.cells[column("recipe a")].textContent.includes("te_"))));
  only("verdikt=pass");
  said.push("unknown " + (wrong().includes("unknown column verdikt") && wrong().includes("verdict") && filter.hasAttribute("aria-invalid")));
  only("bound_ratio>much");
  said.push("number " + wrong().includes("expected a number"));
  only("bf16>bf16");
  said.push("names " + (wrong() === "" && body.rows.length > 0));
  only("op=cast");
  said.push("address " + (location.hash === "#filter=op%3Dcast"));
  const box = document.querySelector("#pick input[value=rows]") ?? document.querySelector("#pick input:not(:checked)"), before = heads().length;
  box.click();
  said.push("columns " + (heads().length === before + 1 && body.rows[0].cells.length === before + 1 && location.hash.includes("columns=")));
  box.click();
  let saved = "";
  const make = URL.createObjectURL;
  URL.createObjectURL = (blob) => { saved = blob.size; return make(blob); };
  document.getElementById("save").click();
  said.push("saved " + (saved > 100));
  const point = document.querySelector("svg [data-case]");
  point.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  point.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  said.push("points " + (details.open && details.querySelector("h2").textContent === point.dataset.case && point.querySelector("title").textContent.includes(point.dataset.case)));
  details.close();
  document.querySelector("[data-filter='verdict=pass']").click();
  said.push("verdicts " + (body.rows.length > 0 && [...body.rows].every((r) => r.cells[0].textContent === "pass")));
  only("");
  const at = column("bound ratio");
  heads()[at].click();
  const down = numbers(at);
  key(heads()[at], "Enter");
  const up = numbers(at);
  said.push("sorted " + (down.length > 1 && down.every((x, i) => i === 0 || down[i - 1] >= x) && up.every((x, i) => i === 0 || up[i - 1] <= x) && down[0] > up[0]));
  key(body.rows[0], "ArrowDown");
  said.push("arrows " + (document.activeElement === body.rows[1]));
  key(body.rows[1], "Enter");
  said.push("details " + (details.open && /^qassay run \S+ --case '[^']+'$/m.test(details.querySelector("pre").textContent)));
  // Copied, or selected where a page may not copy.
  const copy = details.querySelector(".again > pre + .copy");
  copy.click();
  setTimeout(() => {
    said.push("copy " + (copy.textContent === "Copied" || (copy.textContent === "Selected" && getSelection().toString().startsWith("qassay run"))));
    document.title = said.join("; ");
  }, 400);
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
  const folded = all("details:not([open])");
  for (const d of folded) d.open = true;
  for (const svg of figures) {
    const frame = svg.getBoundingClientRect(), texts = all("text", svg).map((t) => [t, t.getBoundingClientRect()]);
    const out = texts.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1);
    const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    const on = texts.filter(([, a], i) => texts.some(([, b], j) => j < i && over(a, b)));
    for (const [t] of [...out, ...on]) bad.push(svg.closest("section").id + ": " + t.textContent.trim());
  }
  for (const d of folded) d.open = false;
  said.push(bad.length === 0 ? "words apart" : "words on words: " + bad.slice(0, 5).join(", "));
  const tall = document.documentElement.scrollHeight;
  said.push(tall < 8000 ? "short" : "tall " + tall);
  const filter = document.getElementById("filter");
  filter.value = "checkpoint";
  filter.dispatchEvent(new Event("input"));
  const shown = (what) => all(what).filter((e) => !e.hidden).length;
  said.push("filtered " + (shown("section.story") > 0 && shown("section.story") < all("section.story").length && shown("tr[data-story]") < all("tr[data-story]").length));
  filter.value = "";
  filter.dispatchEvent(new Event("input"));
  for (const d of all("details")) d.open = true;
  const table = document.querySelector("table.stale"), wide = table.closest(".wide");
  said.push("wide " + (wide.scrollWidth <= wide.clientWidth));
  const cells = (row) => [...row.cells].reduce((n, c) => n + c.colSpan, 0);
  const columns = cells(table.tHead.rows[0]);
  said.push("cells " + [...table.tBodies[0].rows].every((r) => cells(r) === columns - (r.classList.contains("head") ? 0 : 2)));
  said.push("network " + performance.getEntriesByType("resource").length);
  document.title = said.join("; ");
});
</script>"##;

/// A dialog on a phone: nothing wider than it, no letters smaller than 12 px.
const PHONE: &str = r##"<script>
"use strict";
window.addEventListener("load", () => {
  const details = document.getElementById("details");
  document.querySelector("#rows tbody tr").click();
  const small = [...details.querySelectorAll("td, p, h2, pre")].filter((e) => parseFloat(getComputedStyle(e).fontSize) < 12 || e.scrollWidth > e.clientWidth + 1);
  const fits = details.scrollWidth <= details.clientWidth && details.getBoundingClientRect().right <= innerWidth && document.documentElement.scrollWidth <= innerWidth;
  top.document.title = "width " + innerWidth + "; dialog " + (details.open && fits) + "; legible " + (small.length === 0 ? "true" : small[0].textContent.slice(0, 60));
});
</script>"##;

/// What axe-core finds that is serious or worse, with everything unfolded and a case open.
const AXE: &str = r##"<script>
"use strict";
window.addEventListener("load", async () => {
  for (const d of document.querySelectorAll("details")) d.open = true;
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const name = (v) => v.id + " " + v.nodes[0].target.join(" ") + " " + (v.nodes[0].any[0]?.message ?? "");
  const look = async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.filter((v) => ["serious", "critical"].includes(v.impact)).map(name);
  const found = await look();
  const row = document.querySelector("#rows tbody tr");
  if (row) { row.click(); found.push(...await look()); }
  top.document.title = scheme + "; serious " + found.length + (found.length ? ": " + found.join(" | ") : "");
});
</script>"##;

/// The words of figures that stand out of their frame, and figures for a phone whose letters are made smaller by a narrow window.
const INSIDE: &str = r##"<script>
"use strict";
window.addEventListener("load", () => {
  for (const d of document.querySelectorAll("details")) d.open = true;
  const figures = [...document.querySelectorAll("figure svg, svg[role=img]")], bad = [];
  for (const svg of figures) {
    const frame = svg.getBoundingClientRect();
    for (const t of svg.querySelectorAll("text")) {
      if (t.textContent.trim() === "") continue;
      const b = t.getBoundingClientRect();
      if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1) bad.push(t.textContent.trim());
    }
  }
  // What is wider than the window would scroll sideways.
  const wide = [...document.querySelectorAll("figure")].filter((f) => f.getClientRects().length > 0 && f.scrollWidth > f.clientWidth + 1);
  if (document.documentElement.scrollWidth > innerWidth) wide.push(document.body);
  const small = figures.filter((svg) => svg.closest(".slim") && svg.clientWidth > 0 && svg.clientWidth < Number(svg.getAttribute("width")));
  const slim = document.querySelector(".slim"), seen = slim === null || (slim.getClientRects().length > 0) === (innerWidth <= 640);
  top.document.title = "figures " + figures.length + "; wide " + wide.length + "; small " + small.length + "; slim " + seen + "; " + (bad.length === 0 ? "inside" : "outside: " + bad.slice(0, 5).join(", "));
});
</script>"##;

/// A reader opens `page`: what the script says.
fn read(dir: &Path, page: &str, script: &str) -> String {
    read_at(dir, page, script, 1280, false)
}

/// The same at a width, light or dark. A window is never narrower than 500 pixels: a narrow page stands in a frame.
fn read_at(dir: &Path, page: &str, script: &str, width: u32, dark: bool) -> String {
    let probe = dir.join("probe.html");
    let page = page.replacen("<head>", &format!("<head>{script}"), 1);
    let frame = || {
        let inside = page.replace('&', "&amp;").replace('"', "&quot;");
        let style = format!("width:{width}px;height:900px;border:0");
        format!(
            "<!doctype html><html lang=\"en\"><head><title>outside</title></head><body><iframe style=\"{style}\" srcdoc=\"{inside}\"></iframe></body></html>"
        )
    };
    std::fs::write(&probe, if width < 500 { frame() } else { page }).unwrap();
    let quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"];
    let out = Command::new("chromium")
        .args(quiet)
        .args(["--disable-background-networking", "--disable-component-update", "--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--window-size={},1000", width.max(500)))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", probe.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&out.stdout);
    // Scripts and figures have titles too: the page's is behind what a browser needs.
    let at = ["initial-scale=1\"><title>", "<head><title>"].into_iter().find_map(|before| dom.split(before).nth(1));
    at.and_then(|t| t.split("</title>").next()).unwrap_or("no title").to_string()
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
        "signs true",
        "not true",
        "has true",
        "unknown true",
        "number true",
        "names true",
        "address true",
        "columns true",
        "saved true",
        "points true",
        "sorted true",
        "arrows true",
        "details true",
        "copy true",
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
    let figures: usize = title.split("figures ").nth(1).and_then(|n| n.split(';').next()?.parse().ok()).unwrap_or(0);
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
        let page_text = std::fs::read_to_string(reports.join(page)).unwrap();
        for width in [1280, 400] {
            let title = read_at(dir.path(), &page_text, INSIDE, width, false);
            let figures: usize = title.split("figures ").nth(1).and_then(|n| n.split(';').next()?.parse().ok()).unwrap_or(0);
            assert!(figures >= 2 && title.ends_with("; wide 0; small 0; slim true; inside"), "{page} at {width}: {title}");
        }
    }
}

/// axe-core, where scripts/setup.sh could fetch it.
fn axe() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = std::fs::read_to_string(root.join(".tools/axe/axe.min.js")).ok();
    if found.is_none() {
        eprintln!("SKIPPED: no .tools/axe; scripts/setup.sh fetches it where there is npm");
    }
    found
}

/// A bench of a copy and two products, without a GPU.
fn measured() -> qassay::bench::Measured {
    let row = |group: &str, backend, ops, median| qassay::bench::Row {
        group: group.into(),
        backend,
        kernel: format!("a kernel of {backend}"),
        shape: "8192x8192".into(),
        bytes: 200_000_000,
        ops,
        time: qassay::kernel::cuda::timed::Time { median, min: median, max: median, launches: 9 },
        limit: Some(48e-6),
        vendor: None,
        floor: None,
        error: None,
    };
    let rows = vec![row("copy", "copy", 0, 48e-6), row("gemm", "cuda", 1 << 40, 7e-4), row("gemm", "vendor", 1 << 40, 8e-4)];
    let peaks = vec![(qassay::bench::Unit::Fp8, 2.1e15)];
    qassay::bench::Measured { rows, copy: 4.2e12, peaks, provenance: "device: a GPU\n".into() }
}

/// A history of two machines, one of which changed.
fn history() -> String {
    let kept = kept::Kept::new();
    common::qassay().args(["run", "smoke", "--filter", "gemm", "--quiet", "--out"]).arg(kept.at("part")).assert().success();
    // As if the part were the whole.
    kept.changed("part", "first", &[("filter", "[]")], "", &[]);
    let rows = std::fs::read_to_string(kept.at("first/rows.csv")).unwrap();
    let case =
        rows.lines().filter(|l| l.contains(",pass,")).find_map(|l| l.split(',').find(|c| c.starts_with("gemm/"))).unwrap();
    let other = "1".repeat(64);
    kept.changed("first", "second", &[("compiler", "rustc 9.99.9")], case, &[("sha256", &other)]);
    kept.changed(
        "first",
        "gpu",
        &[("backend", "cuda"), ("device", "NVIDIA H200")],
        case,
        &[("sha256", &other), ("kernel", "cuda/x")],
    );
    kept.accept("first", "the first");
    kept.accept("second", "another <compiler>");
    kept.accept_alone("gpu");
    kept.page()
}

/// The filter of a history's page, and its links.
const FILTER: &str = r##"<script>
"use strict";
window.addEventListener("load", () => {
  const all = (what) => [...document.querySelectorAll(what)], shown = (what) => all(what).filter((e) => !e.hidden).length;
  const said = ["rows " + shown("#matrix tr[data-testbed]")];
  const field = document.getElementById("filter");
  field.value = "cuda";
  field.dispatchEvent(new Event("input"));
  said.push("filtered " + shown("#matrix tr[data-testbed]") + ", " + document.getElementById("count").textContent);
  said.push("links " + all("a[href^='#']").every((a) => document.getElementById(a.getAttribute("href").slice(1))));
  said.push("heads " + all("th").every((h) => h.scope !== ""));
  said.push("focus " + all(".wide").every((e) => e.tabIndex === 0));
  said.push("fits " + (document.documentElement.scrollWidth <= innerWidth) + "; network " + performance.getEntriesByType("resource").length);
  top.document.title = said.join("; ");
});
</script>"##;

#[test]
fn the_history_filters_by_testbed() {
    if no_browser() {
        return;
    }
    let (dir, page) = (tempfile::tempdir().unwrap(), history());
    for width in [1400, 400] {
        let title = read_at(dir.path(), &page, FILTER, width, false);
        assert_eq!(title, "rows 2; filtered 1, 1 of 2 testbeds; links true; heads true; focus true; fits true; network 0");
    }
}

/// Every page that is written, light and dark, wide and on a phone: axe-core finds nothing serious, nothing is over 3 MB.
#[test]
fn pages_are_accessible() {
    let Some(axe) = axe().filter(|_| !no_browser()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    common::qassay().args(["run", "smoke", "--quiet", "--out"]).arg(at("run")).assert().success();
    common::qassay().args(["stale", "--steps", "14", "--out"]).arg(at("stale")).assert().success();
    common::qassay().args(["run", "smoke", "--filter", "gemm", "--quiet", "--out"]).arg(at("part")).assert().success();
    common::qassay().arg("diff").args([at("run"), at("part")]).arg("--html").arg(at("drift.html")).assert().code(1);
    let wrong = "data/bundles/bug_scale_inverted.safetensors";
    common::qassay().args(["assay", wrong, "--html"]).arg(at("wrong.html")).assert().code(1);
    common::qassay().args(["power", "smoke", "--filter", "gemm", "--sample", "3", "--out"]).arg(at("power")).assert().success();
    let mut pages = ["run/index.html", "stale/stale.html", "drift.html", "wrong.html", "power/power.html"].map(at).to_vec();
    std::fs::write(at("history.html"), history()).unwrap();
    pages.push(at("history.html"));
    let reports = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports");
    pages.extend(
        ["example/index.html", "example-torch/index.html", "example-h200/index.html", "example-h200/bench/index.html"]
            .map(|p| reports.join(p)),
    );
    pages.push(reports.join("../docs/audit.html"));
    pages.push(qassay::report::bench::write(&at("bench"), &measured()).unwrap());
    for path in pages {
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.len() < 3 << 20, "{}: {} bytes", path.display(), page.len());
        let script = format!("<script>{}</script>{AXE}", axe.replace("</script", "<\\/script"));
        for (width, dark) in [(1280, false), (400, true)] {
            let title = read_at(dir.path(), &page, &script, width, dark);
            let scheme = if dark { "dark" } else { "light" };
            assert_eq!(title, format!("{scheme}; serious 0"), "{} at {width}", path.display());
        }
        // What a phone shows fits it: figures have letters of full size and do not scroll sideways, nor does the page.
        let title = read_at(dir.path(), &page, INSIDE, 400, false);
        assert!(title.ends_with("; wide 0; small 0; slim true; inside"), "{}: {title}", path.display());
    }
}

/// The table of a window that is wide enough: no column is cut, and none but products have a K.
const FITS: &str = r##"<script>
"use strict";
window.addEventListener("load", () => {
  const table = document.getElementById("rows"), wide = table.closest(".wide");
  const heads = [...table.tHead.rows[0].cells].map((th) => th.textContent), [op, k] = [heads.indexOf("op"), heads.indexOf("k")];
  const rows = [...table.tBodies[0].rows], product = (r) => r.cells[op].textContent.includes("gemm");
  const right = rows.filter((r) => (r.cells[k].textContent !== "") === product(r)).length;
  const cut = [...table.querySelectorAll("td")].filter((td) => td.scrollWidth > td.clientWidth + 1);
  top.document.title = "columns " + heads.length + "; fits " + (wide.scrollWidth <= wide.clientWidth) + "; cut " + cut.length + "; k " + (right === rows.length && rows.some(product));
});
</script>"##;

#[test]
fn the_tables_columns_fit_a_window() {
    if no_browser() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    common::qassay().args(["run", "smoke", "--quiet", "--out"]).arg(&run).assert().success();
    let page = std::fs::read_to_string(run.join("index.html")).unwrap();
    for width in [1400, 1280] {
        let title = read_at(dir.path(), &page, FITS, width, false);
        assert_eq!(title, "columns 13; fits true; cut 0; k true", "{width}");
    }
}

#[test]
fn a_dialog_is_legible_on_a_phone() {
    if no_browser() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/example/index.html")).unwrap();
    let title = read_at(dir.path(), &page, PHONE, 400, false);
    assert_eq!(title, "width 400; dialog true; legible true");
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
    for done in ["links true", "words apart", "short", "filtered true", "wide true", "cells true", "network 0"] {
        assert!(title.contains(done), "`{done}` is not in `{title}`");
    }
    let figures: usize = title.split("figures ").nth(1).and_then(|n| n.split(';').next()?.parse().ok()).unwrap_or(0);
    assert!(figures > 30 && !title.contains("error"), "{title}");
}
