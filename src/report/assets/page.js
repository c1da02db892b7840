"use strict";
(() => {
  const { columns, rows: packed } = JSON.parse(document.getElementById("data").textContent);
  const rows = packed.map((values) => {
    const row = {};
    columns.forEach((c, i) => { if (values[i] !== null) row[c.name] = values[i]; });
    row.command = (row.command ?? "").replaceAll("\u0001", row.case);
    return row;
  });
  const shown = columns.filter((c) => c.shown !== null).sort((a, b) => a.shown - b.shown), names = new Set(columns.map((c) => c.name));
  const table = document.getElementById("rows"), body = table.tBodies[0], filter = document.getElementById("filter");
  const more = document.getElementById("more"), count = document.getElementById("count"), details = document.getElementById("details");
  const texts = columns.filter((c) => c.unit === "" && c.name !== "codes" && c.name !== "command").map((c) => c.name);
  const text = new Map(rows.map((r) => [r, texts.map((n) => r[n] ?? "").join(" ").toLowerCase()]));
  let sorted = { name: null, down: false }, visible = rows, limit = 200;

  const show = (v) => {
    if (typeof v !== "number") return v ?? "";
    const a = Math.abs(v);
    return v === 0 || Number.isInteger(v) ? String(v) : a >= 1e-3 && a < 1e6 ? String(Number(v.toPrecision(4))) : v.toExponential(2);
  };
  const element = (tag, content, attributes = {}) => Object.assign(document.createElement(tag), { textContent: content, ...attributes });

  // `column=value`, `column>number`, `column<number`; anything else is a word that must occur.
  const condition = (word) => {
    const [, name, sign, value] = /^(\w+)([=<>])(.*)$/.exec(word) ?? [];
    if (!names.has(name)) return (r) => text.get(r).includes(word);
    if (sign === "=") return (r) => String(r[name] ?? "").toLowerCase() === value;
    return (r) => typeof r[name] === "number" && (sign === ">" ? r[name] > Number(value) : r[name] < Number(value));
  };
  const draw = () => {
    body.replaceChildren(...visible.slice(0, limit).map((row) => {
      const tr = element("tr", "", { tabIndex: 0 });
      tr.append(...shown.map((c) => element("td", show(row[c.name]), {
        className: c.name === "verdict" ? row.verdict : typeof row[c.name] === "number" ? "number" : "", title: String(row[c.name] ?? "") })));
      tr.onclick = () => open(row);
      tr.onkeydown = (e) => {
        if (e.key === "Enter") open(row);
        const next = e.key === "ArrowDown" ? tr.nextElementSibling : e.key === "ArrowUp" ? tr.previousElementSibling : null;
        if (next) { next.focus(); e.preventDefault(); }
      };
      return tr;
    }));
    count.textContent = `${visible.length} of ${rows.length} cases`;
    more.hidden = visible.length <= limit;
  };
  const select = () => {
    const conditions = filter.value.toLowerCase().split(/\s+/).filter(Boolean).map(condition);
    visible = rows.filter((r) => conditions.every((c) => c(r)));
    if (sorted.name) {
      // Empty cells stay last, whichever way.
      const rank = (v) => (v === undefined ? 2 : typeof v === "number" ? 0 : 1), way = sorted.down ? -1 : 1;
      visible.sort((a, b) => {
        const [x, y] = [a[sorted.name], b[sorted.name]];
        return rank(x) - rank(y) || way * (typeof x === "number" ? x - y : String(x ?? "").localeCompare(String(y ?? "")));
      });
    }
    limit = 200;
    draw();
  };
  const open = (row) => {
    const list = element("table", "");
    for (const c of columns) {
      if (row[c.name] === undefined || ["case", "reason", "command"].includes(c.name)) continue;
      const tr = list.insertRow();
      const unit = c.unit && c.unit !== "1" && typeof row[c.name] === "number" ? " " + c.unit : "";
      tr.append(element("td", c.name), element("td", show(row[c.name]) + unit), element("td", c.help, { className: "see" }));
    }
    const verdict = element("p", `${row.verdict.replace("_", " ")}${row.reason ? ": " + row.reason : ""}`, { className: row.verdict });
    details.querySelector("div").replaceChildren(element("h2", row.case), verdict, element("pre", row.command), list);
    details.showModal();
    details.scrollTop = 0;
  };
  const head = table.tHead.insertRow();
  for (const c of shown) {
    const th = element("th", c.name.replaceAll("_", " "), { title: c.help + (c.unit ? ` [${c.unit}]` : ""), tabIndex: 0, scope: "col" });
    th.onclick = () => {
      // Numbers start with the largest, names with the first letter.
      const number = c.unit !== "";
      sorted = { name: c.name, down: sorted.name === c.name ? !sorted.down : number };
      for (const other of head.cells) other.ariaSort = null;
      th.ariaSort = sorted.down ? "descending" : "ascending";
      select();
    };
    th.onkeydown = (e) => { if (e.key === "Enter" || e.key === " ") { th.onclick(); e.preventDefault(); } };
    head.append(th);
  }
  filter.oninput = select;
  for (const link of document.querySelectorAll("[data-filter]")) {
    link.addEventListener("click", () => { filter.value = link.dataset.filter; select(); });
  }
  details.onclick = (e) => { if (e.target === details) details.close(); };
  more.onclick = () => { limit += 1000; draw(); };
  draw();
})();
