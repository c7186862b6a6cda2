// What a page looks like, as faults: text that overlaps or is cut, and boxes wider than the screen.
(() => {
  const faults = [], wide = document.documentElement.clientWidth;
  const visible = (node) => node.getClientRects().length > 0 && getComputedStyle(node).visibility !== "hidden";
  if (document.documentElement.scrollWidth > wide) faults.push("the page is " + document.documentElement.scrollWidth + " wide");
  for (const node of document.querySelectorAll("main *")) {
    if (!visible(node) || node.closest("thead, svg, .tip")) continue;
    const box = node.getBoundingClientRect();
    if (box.width > 0 && (box.right > wide + 1 || box.left < -1)) faults.push(node.tagName + "." + node.className + " reaches " + Math.round(box.right) + " of " + wide);
    if (node.tagName === "TABLE" && node.scrollWidth > node.clientWidth + 1) faults.push("table scrolls: " + node.caption.textContent.slice(0, 40));
  }
  const name = (text) => "“" + text.slice(0, 30) + "”";
  const cross = (boxes) => {
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const [a, s] = boxes[i], [b, t] = boxes[j];
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (x > 1.5 && y > 3) faults.push(name(s) + " and " + name(t) + " overlap by " + x.toFixed(1) + " × " + y.toFixed(1));
    }
  };
  for (const svg of document.querySelectorAll("main svg")) {
    if (!visible(svg)) continue;
    const texts = [...svg.querySelectorAll("text")].filter((node) => visible(node) && node.textContent.trim());
    cross(texts.map((node) => [node.getBoundingClientRect(), node.textContent]));
    for (const node of texts) {
      const box = node.getBoundingClientRect();
      if (box.left < -1 || box.right > wide + 1) faults.push(name(node.textContent) + " leaves the screen");
    }
  }
  const blocks = [...document.querySelectorAll("main p, main li, main dt, main dd, main td, main th, main h2, main h3, main figcaption, main caption, main summary")];
  cross(blocks.filter((node) => visible(node) && !node.closest("thead") && node.textContent.trim() && !node.querySelector("p, li, dt, dd, td, th")).map((node) => [node.getBoundingClientRect(), node.textContent]));
  return faults;
})()
