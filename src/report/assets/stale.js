"use strict";
// The filter of stale.html: words that must occur in a scenario's name, class, policy or law. A place that is linked to is unfolded.
(() => {
  const field = document.getElementById("filter"), count = document.getElementById("count");
  const rows = [...document.querySelectorAll("tr[data-story]")], stories = [...document.querySelectorAll("section[data-story]")];
  const texts = new Map();
  for (const at of [...rows, ...stories]) texts.set(at.dataset.story, (texts.get(at.dataset.story) ?? "") + " " + at.textContent.toLowerCase());
  const select = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set([...texts].filter(([, text]) => words.every((w) => text.includes(w))).map(([name]) => name));
    for (const at of [...rows, ...stories]) at.hidden = !wanted.has(at.dataset.story);
    count.textContent = `${wanted.size} of ${texts.size} scenarios`;
  };
  const unfold = () => {
    const at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = at?.querySelector("details");
    if (folded) { folded.open = true; at.scrollIntoView(); }
  };
  field.oninput = select;
  addEventListener("hashchange", unfold);
  select();
  unfold();
})();
