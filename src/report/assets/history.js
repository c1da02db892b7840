"use strict";
// The filter of a history: words that must occur in a testbed's name.
(() => {
  const field = document.getElementById("filter"), count = document.getElementById("count");
  const all = [...document.querySelectorAll("[data-testbed]")], rows = all.filter((e) => e.closest("#matrix"));
  field.oninput = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const e of all) e.hidden = !words.every((w) => e.dataset.testbed.toLowerCase().includes(w));
    count.textContent = `${rows.filter((e) => !e.hidden).length} of ${rows.length} testbeds`;
  };
  field.oninput();
})();
