"use strict";
// Filters the audits of a board; without this script all of them are shown.
(() => {
  const box = document.querySelector(".filters");
  const rows = [...document.querySelectorAll("tr[data-i]")];
  const marks = new Map([...document.querySelectorAll("g[data-i]")].map((mark) => [mark.dataset.i, mark]));
  const figures = [...document.querySelectorAll("figure[data-model]")];
  const fields = [...box.querySelectorAll("[data-filter]")];
  const apply = () => {
    const wanted = fields.map((field) => [field.dataset.filter, field.value]).filter(([, value]) => value !== "");
    const models = new Set();
    let shown = 0;
    for (const row of rows) {
      const fits = wanted.every(([name, value]) => (name === "text" ? row.textContent.toLowerCase().includes(value.toLowerCase()) : row.dataset[name] === value));
      row.classList.toggle("off", !fits);
      marks.get(row.dataset.i).classList.toggle("off", !fits);
      if (fits) {
        shown += 1;
        models.add(row.dataset.model);
      }
    }
    for (const figure of figures) figure.classList.toggle("off", !models.has(figure.dataset.model));
    box.querySelector("[role=status]").textContent = shown + " of " + rows.length + " audits are shown";
  };
  for (const field of fields) field.addEventListener("input", apply);
  box.hidden = false;
  apply();
  document.documentElement.dataset.ready = "yes";
})();
