"use strict";
(() => {
  const { columns, rows } = JSON.parse(document.getElementById("data").textContent);
  const shown = columns.filter((c) => c.shown);
  const table = document.getElementById("rows"), body = table.tBodies[0], filter = document.getElementById("filter");
  const more = document.getElementById("more"), count = document.getElementById("count"), details = document.getElementById("details");
  const text = new Map(rows.map((r) => [r, columns.filter((c) => c.unit === "").map((c) => r[c.name] ?? "").join(" ").toLowerCase()]));
  let sorted = { name: null, down: false }, visible = rows, limit = 200;

  const show = (v) => {
    if (typeof v !== "number") return v ?? "";
    const a = Math.abs(v);
    return v === 0 || Number.isInteger(v) ? String(v) : a >= 1e-3 && a < 1e6 ? String(Number(v.toPrecision(4))) : v.toExponential(2);
  };
  const element = (tag, content, attributes = {}) => Object.assign(document.createElement(tag), { textContent: content, ...attributes });

  const draw = () => {
    body.replaceChildren(...visible.slice(0, limit).map((row) => {
      const tr = element("tr", "", { tabIndex: 0 });
      tr.append(...shown.map((c) => element("td", show(row[c.name]), {
        className: c.name === "verdict" ? row.verdict : typeof row[c.name] === "number" ? "number" : "", title: String(row[c.name] ?? "") })));
      tr.onclick = () => open(row);
      tr.onkeydown = (e) => { if (e.key === "Enter") open(row); };
      return tr;
    }));
    count.textContent = `${visible.length} of ${rows.length} cases`;
    more.hidden = visible.length <= limit;
  };
  const select = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    visible = rows.filter((r) => words.every((w) => text.get(r).includes(w)));
    if (sorted.name) {
      const key = (r) => r[sorted.name] ?? "";
      const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : typeof a === typeof b ? String(a).localeCompare(String(b)) : typeof a === "number" ? -1 : 1);
      visible.sort((a, b) => (sorted.down ? -1 : 1) * order(key(a), key(b)));
    }
    limit = 200;
    draw();
  };
  const open = (row) => {
    const list = element("table", "");
    for (const c of columns) {
      if (row[c.name] === undefined) continue;
      const tr = list.insertRow();
      tr.title = c.help;
      tr.append(element("td", c.name), element("td", show(row[c.name]) + (c.unit && c.unit !== "1" && typeof row[c.name] === "number" ? " " + c.unit : "")));
    }
    details.querySelector("div").replaceChildren(element("h2", row.case), element("p", row.reason ?? ""), element("pre", row.command ?? ""), list);
    details.showModal();
  };
  const head = table.tHead.insertRow();
  for (const c of shown) {
    const th = element("th", c.name.replaceAll("_", " "), { title: c.help + (c.unit ? ` [${c.unit}]` : ""), tabIndex: 0 });
    th.onclick = () => {
      sorted = { name: c.name, down: sorted.name === c.name && !sorted.down };
      for (const other of head.cells) other.textContent = other.textContent.replace(/ [▲▼]$/, "");
      th.textContent += sorted.down ? " ▼" : " ▲";
      select();
    };
    th.onkeydown = (e) => { if (e.key === "Enter") th.onclick(); };
    head.append(th);
  }
  filter.oninput = select;
  more.onclick = () => { limit += 1000; draw(); };
  draw();
})();
