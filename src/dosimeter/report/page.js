"use strict";
// Shows the value nearest to the pointer, or to the arrow keys, in every chart, and what a word means where it stands.
(() => {
  // Without this script a word is a link to its definition at the end of the page.
  const note = document.createElement("div");
  note.id = "term-tip";
  note.setAttribute("role", "tooltip");
  note.hidden = true;
  document.body.append(note);
  let at = null;
  const close = () => {
    note.hidden = true;
    at = null;
  };
  const explain = (link) => {
    note.textContent = document.getElementById(link.hash.slice(1)).textContent;
    note.hidden = false;
    at = link;
    const box = link.getBoundingClientRect(), wide = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(wide - note.offsetWidth - 8, box.left));
    const above = box.top > note.offsetHeight + 16;
    note.style.left = left + scrollX + "px";
    note.style.top = (above ? box.top - note.offsetHeight - 6 : box.bottom + 6) + scrollY + "px";
  };
  for (const link of document.querySelectorAll("a.term")) {
    link.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && explain(link));
    link.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && close());
    link.addEventListener("focus", () => link.matches(":focus-visible") && explain(link));
    link.addEventListener("blur", close);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      event.stopPropagation();
      if (at === link && event.pointerType !== "mouse") close();
      else explain(link);
    });
  }
  document.addEventListener("click", close);
  document.addEventListener("keydown", (event) => event.key === "Escape" && close());

  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const make = (name) => {
    const node = document.createElement("div");
    node.className = name;
    node.hidden = name !== "reader";
    return node;
  };
  for (const plot of document.querySelectorAll(".plot[data-chart]")) {
    const sets = data[plot.dataset.chart];
    if (sets.wide.length === 0) continue;
    const reader = make("reader"), dot = make("dot"), tip = make("tip");
    plot.append(dot, tip, reader);
    reader.tabIndex = 0;
    reader.setAttribute("role", "slider");
    reader.setAttribute("aria-label", "Values of the chart: " + plot.dataset.name);
    reader.setAttribute("aria-valuemin", "1");
    let index = -1;

    // Only one of the two drawings, wide or narrow, is on display.
    const current = () => {
      const svg = [...plot.querySelectorAll("svg")].find((node) => node.getClientRects().length > 0);
      const box = svg.getBoundingClientRect(), outer = plot.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width;
      return { points: sets[svg.classList.contains("narrow") ? "narrow" : "wide"], scale, left: box.left - outer.left, top: box.top - outer.top, box, outer };
    };
    const describe = (points, at) => {
      reader.setAttribute("aria-valuemax", String(points.length));
      reader.setAttribute("aria-valuenow", String(at + 1));
      reader.setAttribute("aria-valuetext", points[at][2]);
    };
    const show = (at) => {
      const { points, scale, left, top, outer } = current();
      index = Math.max(0, Math.min(points.length - 1, at));
      const [x, y, text] = points[index];
      const px = left + x * scale, py = top + y * scale;
      dot.style.left = px + "px";
      dot.style.top = py + "px";
      tip.textContent = text;
      dot.hidden = tip.hidden = false;
      const width = tip.offsetWidth, height = tip.offsetHeight;
      tip.style.left = Math.max(0, Math.min(outer.width - width, px - width / 2)) + "px";
      tip.style.top = (py - height - 12 < 0 ? py + 14 : py - height - 12) + "px";
      describe(points, index);
    };
    const hide = () => {
      dot.hidden = tip.hidden = true;
    };
    const nearest = (event) => {
      const { points, scale, box } = current();
      const x = (event.clientX - box.left) / scale, y = (event.clientY - box.top) / scale;
      const across = plot.dataset.by === "y" ? 0.05 : 1, down = plot.dataset.by === "x" ? 0.05 : 1;
      let best = 0, least = Infinity;
      points.forEach(([px, py], i) => {
        const far = across * (px - x) ** 2 + down * (py - y) ** 2;
        if (far < least) {
          least = far;
          best = i;
        }
      });
      show(best);
    };
    reader.addEventListener("pointermove", nearest);
    reader.addEventListener("pointerdown", nearest);
    reader.addEventListener("pointerleave", hide);
    reader.addEventListener("blur", hide);
    reader.addEventListener("focus", () => {
      if (reader.matches(":focus-visible")) show(Math.max(index, 0));
    });
    reader.addEventListener("keydown", (event) => {
      const last = current().points.length - 1, page = Math.ceil(last / 10);
      const to = { ArrowRight: index + 1, ArrowDown: index + 1, ArrowLeft: index - 1, ArrowUp: index - 1, PageDown: index + page, PageUp: index - page, Home: 0, End: last }[event.key];
      if (event.key === "Escape") hide();
      if (to === undefined) return;
      event.preventDefault();
      show(to);
    });
    describe(current().points, 0);
  }
  document.documentElement.dataset.ready = "yes";
})();
