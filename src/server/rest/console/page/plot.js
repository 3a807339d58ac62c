// Sparklines and bars.

import { el, svg } from "./dom.js";
import { short } from "./format.js";

/** Returns the path of a series in a box of `values.length - 1` by 20. A null is a gap. */
function line(values, most) {
  let path = "";
  let isDown = false;
  values.forEach((value, index) => {
    if (value === null) {
      isDown = false;
      return;
    }
    const y = most > 0 ? 20 - (value / most) * 18 : 20;
    path += `${isDown ? "L" : "M"}${index} ${y.toFixed(2)}`;
    // A point between gaps is drawn, too.
    if (!isDown && (values[index + 1] ?? null) === null) path += index > 0 ? "h-0.5" : "h0.5";
    isDown = true;
  });
  return path;
}

/** Draws series over one another; `series` has pairs of a class and values. `label` describes the plot to screen readers. */
export function spark(label, series) {
  const all = series.flatMap(([, values]) => values.filter((value) => value !== null));
  const most = Math.max(0, ...all);
  const paths = series.map(([kind, values]) => svg("path", { class: kind, d: line(values, most) }));
  const length = Math.max(...series.map(([, values]) => values.length)) - 1;
  const box = { class: "spark", viewBox: `0 0 ${length} 21`, preserveAspectRatio: "none", role: "img", "aria-label": label };
  return svg("svg", box, paths);
}

/** Draws a bar for each number, with its name and value. Negative ones go to the left. `write` makes texts of the values. */
export function bars(pairs, caption, write = short) {
  const numbers = pairs.map(([, value]) => value);
  const [low, high] = [Math.min(0, ...numbers), Math.max(0, ...numbers)];
  const width = high - low || 1;
  const row = ([name, value]) => {
    const [from, to] = [Math.min(0, value), Math.max(0, value)];
    const shape = { x: ((from - low) / width) * 100, y: 1, width: ((to - from) / width) * 100, height: 14, class: value < 0 ? "negative" : "positive" };
    const zero = (-low / width) * 100;
    const axis = svg("line", { class: "zero", x1: zero, x2: zero, y1: 0, y2: 16 });
    const drawing = svg("svg", { viewBox: "0 0 100 16", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", shape), low < 0 && axis);
    return el("tr", {}, el("th", { scope: "row", class: "name" }, name), el("td", { class: "bar-cell" }, drawing), el("td", { class: "number" }, write(value)));
  };
  return el("table", { class: "bars" }, el("caption", { class: "muted" }, caption), el("tbody", {}, pairs.map(row)));
}
