//! The report in headless Chromium: no script error, the table fills, filters, sorts and opens its details.

mod common;

use std::process::Command;

/// What a reader does, written into the page's title; any uncaught error ends there too.
const USE: &str = r##"<script>
"use strict";
const said = [];
window.addEventListener("error", (e) => said.push("error: " + e.message));
window.addEventListener("load", () => {
  const body = document.querySelector("#rows tbody"), head = document.querySelector("#rows thead tr");
  said.push("rows " + body.rows.length);
  const filter = document.getElementById("filter");
  filter.value = "gemm"; filter.oninput();
  const ops = [...body.rows].map((r) => r.cells[1].textContent);
  said.push("filtered " + (ops.length > 0 && ops.every((o) => o.includes("gemm"))));
  filter.value = ""; filter.oninput();
  const at = [...head.cells].findIndex((c) => c.textContent.startsWith("bound ratio"));
  head.cells[at].click(); head.cells[at].click();
  const ratios = [...body.rows].map((r) => Number(r.cells[at].textContent)).filter((x) => !Number.isNaN(x));
  said.push("sorted " + (ratios.length > 1 && ratios.every((x, i) => i === 0 || ratios[i - 1] >= x)));
  body.rows[0].click();
  const details = document.getElementById("details");
  said.push("details " + (details.open && details.textContent.includes("qassay run")));
  said.push("figures " + document.querySelectorAll("figure svg").length);
  document.title = said.join("; ");
});
</script>"##;

#[test]
fn the_report_works_in_a_browser() {
    if Command::new("chromium").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no chromium on this machine; scripts/setup.sh installs it where apt-get can");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    common::qassay().args(["run", "smoke", "--quiet", "--out"]).arg(&run).assert().success();
    let page = std::fs::read_to_string(run.join("index.html")).unwrap();
    let probe = dir.path().join("probe.html");
    std::fs::write(&probe, page.replacen("<head>", &format!("<head>{USE}"), 1)).unwrap();
    let out = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .args(["--disable-component-update", "--disable-sync", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("file://{}", probe.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&out.stdout);
    let title = dom.split("<title>").nth(1).and_then(|t| t.split("</title>").next()).unwrap_or("no title");
    assert!(!title.contains("error"), "{title}");
    for done in ["filtered true", "sorted true", "details true"] {
        assert!(title.contains(done), "`{done}` is not in `{title}`");
    }
    let figures: usize = title.split("figures ").nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    assert!(figures >= 8, "{title}");
    assert!(!page.contains("http://") && !page.contains("https://"), "the page must not name a host");
}
