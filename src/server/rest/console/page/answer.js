// The answer of a model: tables, bars of probabilities, and contributions.

import { el, replace, table } from "./dom.js";
import { bars } from "./plot.js";

/** How much of an answer is shown; the rest is in its JSON. */
const MOST_ROWS = 100;
const MOST_COLUMNS = 30;
const MOST_BARS = 20;
const LONGEST_CELL = 200;
const LONGEST_JSON = 100000;

/** Splits an output into rows of numbers or texts. */
function rowsOf({ shape, data }) {
  const flat = data.flat(Infinity);
  const rows = shape.length === 0 ? 1 : shape[0];
  const width = rows > 0 ? flat.length / rows : 0;
  return Array.from({ length: rows }, (_, row) => flat.slice(row * width, (row + 1) * width));
}

function isProbabilities(name, rows) {
  const isDistribution = (row) =>
    row.length > 1 && row.every((value) => typeof value === "number" && value >= 0 && value <= 1) && Math.abs(row.reduce((sum, value) => sum + value, 0) - 1) < 0.01;
  return /prob/i.test(name) ? rows.every((row) => row.every((value) => typeof value === "number")) : rows.length > 0 && rows.every(isDistribution);
}

function text(value) {
  const full = typeof value === "string" ? value : JSON.stringify(value);
  return full.length > LONGEST_CELL ? `${full.slice(0, LONGEST_CELL)}…` : full;
}

function asTable({ name, datatype, shape }, rows) {
  const width = Math.min(rows[0]?.length ?? 0, MOST_COLUMNS);
  const columns = [{ title: "Row", kind: "number" }];
  for (let column = 0; column < width; column += 1) columns.push({ title: width === 1 ? name : String(column) });
  const shown = rows.slice(0, MOST_ROWS).map((row, index) =>
    el("tr", {}, el("td", { class: "number" }, String(index + 1)), row.slice(0, width).map((value) => el("td", { class: "name" }, text(value)))),
  );
  const isCut = rows.length > MOST_ROWS || (rows[0]?.length ?? 0) > MOST_COLUMNS;
  return [
    el("h3", {}, name, " ", el("span", { class: "muted" }, `${datatype} [${shape.join(", ")}]`)),
    el("div", { class: "scroll" }, table(columns, shown, { class: "fit", "aria-label": name })),
    isCut && el("p", { class: "muted" }, `The first ${Math.min(rows.length, MOST_ROWS)} rows and ${width} columns are shown.`),
  ];
}

/** The largest numbers by magnitude, with their names. */
function largest(numbers, names) {
  const pairs = numbers.map((value, index) => [names(index), value]);
  return pairs.sort(([, one], [, other]) => Math.abs(other) - Math.abs(one)).slice(0, MOST_BARS);
}

function probabilities({ name }, rows, row) {
  const numbers = rows[row].filter((value) => typeof value === "number");
  const pairs = numbers.slice(0, MOST_BARS).map((value, index) => [String(index), value]);
  return [el("h3", {}, name), bars(pairs, `Probabilities of row ${row + 1}`)];
}

function contributions({ shape }, rows, row, features) {
  const groups = shape.length === 3 ? shape[1] : 1;
  const width = rows[row].length / groups;
  const plots = [];
  for (let group = 0; group < Math.min(groups, MOST_BARS); group += 1) {
    const numbers = rows[row].slice(group * width, (group + 1) * width).map((value) => (typeof value === "number" ? value : 0));
    const named = (index) => (index === width - 1 ? "bias" : (features?.[index] ?? `feature ${index}`));
    const caption = `Contributions to ${groups > 1 ? `group ${group} of ` : ""}row ${row + 1}, the largest first`;
    plots.push(bars(largest(numbers, named), caption));
  }
  return [el("h3", {}, "contributions"), plots];
}

/** Shows an answer. `features` are the names of the model's features, if they are known. */
export function showAnswer(target, answer, features) {
  const outputs = answer.outputs.map((output) => [output, Array.isArray(output.data) ? rowsOf(output) : []]);
  const count = Math.max(1, ...outputs.map(([, rows]) => rows.length));
  const plots = el("div", {});
  const choice = el("input", { type: "number", min: 1, max: count, value: 1, "aria-label": "Row of the plots" });
  const draw = () => {
    const row = Math.min(Math.max(1, Math.trunc(Number(choice.value)) || 1), count) - 1;
    const drawn = outputs.map(([output, rows]) => {
      if (row >= rows.length || rows[row].length === 0) return null;
      if (output.name === "contributions") return contributions(output, rows, row, features);
      return isProbabilities(output.name, rows) ? probabilities(output, rows, row) : null;
    });
    replace(plots, drawn.flat(3));
    chooser.hidden = count < 2 || plots.childElementCount === 0;
  };
  const chooser = el("label", {}, "Row of the plots", choice);
  choice.addEventListener("input", draw);
  draw();
  const tables = outputs.filter(([{ name }]) => name !== "contributions").map(([output, rows]) => asTable(output, rows));
  let json = JSON.stringify(answer, null, 1);
  if (json.length > LONGEST_JSON) json = `${json.slice(0, LONGEST_JSON)}\n… (${json.length} characters)`;
  const whole = el("details", {}, el("summary", {}, "The whole answer as JSON"), el("pre", { tabindex: 0 }, json));
  replace(target, tables.flat(3), chooser, plots, el("p", {}), whole);
}
