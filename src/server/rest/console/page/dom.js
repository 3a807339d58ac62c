// Elements. Everything from the server becomes text here, never markup.

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  // Strings become text nodes.
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** Creates an element. Attributes whose names begin with `on` are listeners; children are elements and texts. */
export function el(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
}

/** Creates an element of SVG. */
export function svg(name, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, name), attributes, children);
}

/** Creates a button. */
export function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, text);
}

/** Replaces the content of an element. The control with the same `data-key` keeps the focus, and a table its position. */
export function replace(element, ...children) {
  const left = element.querySelector(".scroll")?.scrollLeft ?? 0;
  const key = element.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  if (left > 0) element.querySelector(".scroll")?.scrollTo({ left });
  if (key !== null) {
    const same = [...element.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === key);
    if (same) same.focus({ preventScroll: true });
  }
}

/** Creates a table of `columns`, each with a title, and a class for its cells. */
export function table(columns, rows, attributes = {}) {
  const titles = columns.map(({ title, kind }) => el("th", { scope: "col", class: kind }, title));
  return el("table", attributes, el("thead", {}, el("tr", {}, titles)), el("tbody", {}, rows));
}

/** Creates a list of terms and what they are. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el("dl", { class: "facts" }, known.map(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]));
}
