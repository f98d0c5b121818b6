"use strict";
// Filters of the list of tables. Without this script the page shows everything all the same.
(() => {
  const text = document.getElementById("filter-text");
  const state = document.getElementById("filter-state");
  const troubled = document.getElementById("filter-troubled");
  const shown = document.getElementById("filter-shown");
  const tables = [...document.querySelectorAll("details.table")];
  const apply = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const table of tables) {
      const fits =
        words.every((word) => table.dataset.words.includes(word)) &&
        (!state.value || table.dataset.state === state.value) &&
        (!troubled.checked || table.dataset.troubled === "yes");
      table.classList.toggle("hidden", !fits);
      count += fits ? 1 : 0;
    }
    shown.textContent = count === tables.length ? `${count} tables` : `${count} of ${tables.length} tables`;
  };
  for (const control of [text, state, troubled]) {
    control?.addEventListener("input", apply);
  }
  if (text) apply();
  const reveal = () => {
    const wanted = location.hash && document.getElementById(location.hash.slice(1));
    if (wanted instanceof HTMLDetailsElement) {
      wanted.classList.remove("hidden");
      wanted.open = true;
      wanted.scrollIntoView();
    }
  };
  addEventListener("hashchange", reveal);
  reveal();
  addEventListener("beforeprint", () => tables.forEach((table) => { table.open = true; }));
})();
