"use strict";
(() => {
  const { columns, count: many, verdicts } = JSON.parse(document.getElementById("data").textContent);
  const cell = (c, i) => ("same" in c ? c.same : c.at ? c.values[c.at[i]] : c.each[i]);
  const rows = Array.from({ length: many }, (_, i) => {
    const row = {};
    for (const c of columns) {
      const value = cell(c, i);
      if (value !== null && value !== undefined) row[c.name] = value;
    }
    row.command = (row.command ?? "").replaceAll("\u0001", row.case);
    return row;
  });
  const byCase = new Map(rows.map((r) => [r.case, r])), byName = new Map(columns.map((c) => [c.name, c]));
  const usual = columns.filter((c) => c.shown !== null).sort((a, b) => a.shown - b.shown).map((c) => c.name);
  const table = document.getElementById("rows"), body = table.tBodies[0], filter = document.getElementById("filter");
  const more = document.getElementById("more"), count = document.getElementById("count"), details = document.getElementById("details");
  const wrong = document.getElementById("wrong"), pick = document.getElementById("pick");
  const texts = columns.filter((c) => c.unit === "" && c.name !== "command").map((c) => c.name);
  const text = new Map(rows.map((r) => [r, texts.map((n) => r[n] ?? "").join(" ").toLowerCase()]));
  // What the address holds: the filter, the column that sorts (− before it: largest first), the columns, the case that is open.
  const state = { filter: "", sort: "", columns: usual, case: "" };
  let visible = rows, limit = 200;

  const show = (v) => {
    if (typeof v !== "number") return String(v ?? "");
    const a = Math.abs(v);
    return v === 0 || (Number.isInteger(v) && a < 1e9) ? String(v) : a >= 1e-3 && a < 1e6 ? String(Number(v.toPrecision(4))) : v.toExponential(2);
  };
  // Long names may end a line behind these signs.
  const breakable = (words) => words.split(/(?<=[_:+./@>])/).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]));
  const element = (tag, content, attributes = {}) => Object.assign(document.createElement(tag), { textContent: content, ...attributes });

  // A word that must occur, or a condition on a column. Throws words for the reader.
  const SIGNS = {
    ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, "<": (a, b) => a < b,
  };
  const condition = (word) => {
    const [, name, sign, wanted] = /^(\w+)(>=|<=|!=|=|<|>|~)(.*)$/.exec(word) ?? [];
    if (!name) return (r) => text.get(r).includes(word);
    if (!byName.has(name)) {
      // Names of cases have such signs too: bf16>bf16.
      if (rows.some((r) => text.get(r).includes(word))) return (r) => text.get(r).includes(word);
      const near = [...byName.keys()].filter((n) => n.includes(name) || name.includes(n) || n.startsWith(name.slice(0, 3)));
      throw `unknown column ${name}; ${near.length ? `near it: ${near.slice(0, 8).join(", ")}` : "a row's details have all columns"}`;
    }
    const of = (r) => String(r[name] ?? "").toLowerCase();
    const same = (r) => of(r) === wanted || (typeof r[name] === "number" && wanted !== "" && r[name] === Number(wanted));
    if (sign === "=") return same;
    if (sign === "!=") return (r) => !same(r);
    if (sign === "~") return (r) => of(r).includes(wanted);
    const number = Number(wanted);
    if (wanted === "" || Number.isNaN(number)) throw `${name}${sign}: found ${wanted || "nothing"}, expected a number`;
    return (r) => typeof r[name] === "number" && SIGNS[sign](r[name], number);
  };

  const remember = () => {
    const parts = Object.entries(state).filter(([k, v]) => (k === "columns" ? v.join() !== usual.join() : v !== ""));
    const hash = parts.map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&");
    // A page inside another has no address of its own.
    try { history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search); } catch { /* nothing is kept */ }
  };
  const rank = (v) => (v === undefined ? 2 : typeof v === "number" ? 0 : 1);
  // Edge cases may lack power: they come after those that pass.
  const worst = (r) => (r.verdict === "no_power" && r.edge === true ? 0.5 : verdicts.indexOf(r.verdict));
  // Empty cells stay last, whichever way. Without a column the worst come first.
  const order = () => {
    const name = state.sort.replace(/^-/, ""), way = state.sort.startsWith("-") ? -1 : 1;
    if (!name) return (a, b) => worst(b) - worst(a) || (b.bound_ratio ?? -1) - (a.bound_ratio ?? -1);
    return (a, b) => {
      const [x, y] = [a[name], b[name]];
      return rank(x) - rank(y) || way * (typeof x === "number" ? x - y : String(x ?? "").localeCompare(String(y ?? "")));
    };
  };
  const draw = () => {
    body.replaceChildren(...visible.slice(0, limit).map((row) => {
      const tr = element("tr", "", { tabIndex: 0 });
      tr.append(...state.columns.map((name) => {
        const words = show(row[name]), kind = name === "verdict" ? row.verdict : typeof row[name] === "number" || /^-?(inf|nan)$/i.test(words) ? "number" : "";
        const td = element("td", "", { className: kind, title: words });
        td.append(...(kind ? [words] : breakable(words)));
        return td;
      }));
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
    wrong.textContent = "";
    let conditions;
    try {
      conditions = state.filter.toLowerCase().split(/\s+/).filter(Boolean).map(condition);
    } catch (e) {
      wrong.textContent = e;
      filter.setAttribute("aria-invalid", "true");
      return;
    }
    filter.removeAttribute("aria-invalid");
    visible = rows.filter((r) => conditions.every((c) => c(r))).sort(order());
    limit = 200;
    draw();
  };
  const head = () => {
    const tr = document.createElement("tr");
    for (const name of state.columns) {
      const c = byName.get(name), sorted = state.sort.replace(/^-/, "") === name;
      const th = element("th", name.replaceAll("_", " "), { title: c.help + (c.unit ? ` [${c.unit}]` : ""), tabIndex: 0, scope: "col", className: c.unit === "" ? "" : "number" });
      if (sorted) th.ariaSort = state.sort.startsWith("-") ? "descending" : "ascending";
      th.onclick = () => {
        // Numbers start with the largest, names with the first letter.
        const down = sorted ? !state.sort.startsWith("-") : c.unit !== "";
        state.sort = (down ? "-" : "") + name;
        remember();
        head();
        select();
        [...table.tHead.rows[0].cells][state.columns.indexOf(name)].focus();
      };
      th.onkeydown = (e) => { if (e.key === "Enter" || e.key === " ") { th.onclick(); e.preventDefault(); } };
      tr.append(th);
    }
    table.tHead.replaceChildren(tr);
  };
  const open = (row) => {
    const list = element("table", "");
    for (const c of columns) {
      if (row[c.name] === undefined || ["case", "command"].includes(c.name)) continue;
      const tr = list.insertRow();
      const unit = c.unit && c.unit !== "1" && typeof row[c.name] === "number" ? " " + c.unit : "";
      tr.append(element("td", c.name), element("td", show(row[c.name]) + unit), element("td", c.help, { className: "see" }));
    }
    const said = [row.finding, row.reason, row.look && "look at: " + row.look].filter(Boolean).map((s) => element("p", s));
    const verdict = element("p", row.verdict.replace("_", " ") + (row.fault ? ": " + row.fault : ""), { className: "verdict " + row.verdict });
    const again = element("div", "", { className: "again" });
    again.append(element("pre", row.command), element("button", "Copy", { className: "copy", type: "button" }));
    const name = element("h2", "");
    name.append(...breakable(row.case));
    details.querySelector("div").replaceChildren(name, verdict, ...said, again, list);
    if (!details.open) details.showModal();
    details.scrollTop = 0;
    state.case = row.case;
    remember();
  };
  details.onclose = () => { state.case = ""; remember(); };
  details.onclick = (e) => { if (e.target === details) details.close(); };

  // The state of the address; a place of the page opens what is folded there.
  const read = () => {
    const hash = location.hash.slice(1);
    if (!hash.includes("=")) {
      const place = hash && document.getElementById(hash)?.querySelector("details");
      if (place) place.open = true;
      return;
    }
    const said = Object.fromEntries(hash.split("&").map((p) => p.split("=")).map(([k, v]) => [k, decodeURIComponent(v ?? "")]));
    state.filter = said.filter ?? "";
    state.sort = byName.has((said.sort ?? "").replace(/^-/, "")) ? said.sort : "";
    state.columns = (said.columns ?? "").split(",").filter((n) => byName.has(n));
    if (state.columns.length === 0) state.columns = usual;
    filter.value = state.filter;
    for (const box of pick.querySelectorAll("input")) box.checked = state.columns.includes(box.value);
    head();
    select();
    if (byCase.has(said.case)) open(byCase.get(said.case));
  };
  const narrow = (words) => {
    state.filter = filter.value = words;
    remember();
    select();
    document.getElementById("cases").scrollIntoView();
  };

  for (const c of columns) {
    const label = element("label", ` ${c.name}`, { title: c.help });
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: c.name, checked: usual.includes(c.name) });
    box.onchange = () => {
      state.columns = box.checked ? [...state.columns, c.name] : state.columns.filter((n) => n !== c.name);
      if (state.columns.length === 0) state.columns = usual;
      remember();
      head();
      draw();
    };
    label.prepend(box);
    pick.append(label);
  }
  document.getElementById("save").onclick = () => {
    // What is shown, in its order: quoted where it must be.
    const field = (v) => (/[",\n\r]/.test(v) ? `"${v.replaceAll('"', '""')}"` : v);
    const lines = [state.columns, ...visible.map((r) => state.columns.map((n) => String(r[n] ?? "")))];
    const csv = lines.map((l) => l.map(field).join(",") + "\n").join("");
    const link = Object.assign(document.createElement("a"), { download: "cases.csv", href: URL.createObjectURL(new Blob([csv], { type: "text/csv" })) });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  filter.oninput = () => { state.filter = filter.value; remember(); select(); };
  more.onclick = () => { limit += 1000; draw(); };
  addEventListener("hashchange", read);

  // Points, cells and links of figures: what they show in a word, and their case.
  const tip = (at, words) => {
    const title = at.querySelector("title") ?? at.appendChild(document.createElementNS(at.namespaceURI, "title"));
    title.textContent = words;
  };
  document.addEventListener("click", (e) => {
    const at = e.target.closest("[data-case], [data-filter]");
    if (!at) return;
    if (at.dataset.filter !== undefined) { e.preventDefault(); narrow(at.dataset.filter); }
    else if (byCase.has(at.dataset.case)) { e.preventDefault(); open(byCase.get(at.dataset.case)); }
  });
  document.addEventListener("pointerover", (e) => {
    const at = e.target.closest("svg [data-case]");
    if (at) tip(at, at.dataset.case + (at.dataset.tip ? "\n" + at.dataset.tip : ""));
  });
  for (const svg of document.querySelectorAll("svg[data-cells]")) {
    const [place, values] = svg.dataset.cells.split("|"), [left, top, size, high, wide] = place.split(" ").map(Number);
    const cells = values.split(";").map((r) => r.split(" "));
    svg.addEventListener("pointermove", (e) => {
      const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
      const i = Math.floor(((e.clientY - frame.top) * scale - top) / size), j = Math.floor(((e.clientX - frame.left) * scale - left) / size);
      const value = cells[i]?.[j];
      const range = (n, each) => (each === 1 ? `${n}` : `${n * each} … ${(n + 1) * each - 1}`);
      tip(svg, value === undefined ? "" : `row ${range(i, high)}, column ${range(j, wide)}: ${value} times the bound`);
    });
  }
  head();
  select();
  read();
})();
