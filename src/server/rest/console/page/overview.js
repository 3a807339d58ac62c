// The overview: models, models that are not loaded, and workers.

import { change, index, log, overview } from "./api.js";
import { button, el, replace, table } from "./dom.js";
import { bytes, duration, short, since, time, tone } from "./format.js";
import { spark } from "./plot.js";

const LIMIT = 50;
const MOST_UNLOADED = 100;

const ORDERS = [
  ["name", "name"],
  ["state", "not ready first"],
  ["requests", "most requests"],
  ["p99", "slowest"],
  ["failures", "most errors"],
];

const COLUMNS = [
  { title: "Model", kind: "name" },
  { title: "State" },
  { title: "Backend" },
  { title: "Requests/s", kind: "number" },
  { title: "Last 10 min" },
  { title: "p50", kind: "number" },
  { title: "p99", kind: "number" },
  { title: "Errors", kind: "number" },
  { title: "Queue", kind: "number" },
  { title: "Batch", kind: "number" },
  { title: "Cache hits", kind: "number" },
];

/** Returns the address of a model's page. */
export function modelLink(name, version) {
  const base = `#/model/${encodeURIComponent(name)}`;
  return version === null ? base : `${base}/${encodeURIComponent(version)}`;
}

/** Returns what evaluates a model. */
export function backend({ graph, backend, remote }) {
  const kind = graph ? "graph" : backend;
  return remote && kind !== null ? `${kind}, asks other servers` : kind;
}

/** Returns the memory of the workers that have a model. Models without workers are in the memory of the server. */
export function memory(name, workers) {
  const own = (workers ?? []).filter(({ models, resident_bytes: size }) => size !== null && models.includes(name));
  if (own.length === 0) return null;
  const total = own.reduce((sum, worker) => sum + worker.resident_bytes, 0);
  const others = new Set(own.flatMap(({ models }) => models).filter((one) => one !== name));
  const shared = others.size === 0 ? "" : `, with ${others.size} other ${others.size === 1 ? "model" : "models"}`;
  const processes = own.length === 1 ? "1 process" : `${own.length} processes`;
  return el("div", { class: "muted", title: `${processes}${shared}` }, bytes(total), shared && ", shared");
}

export function hits({ cache_hits: found, cache_misses: missed }) {
  if (found === null || found + missed === 0) return null;
  return `${short((found / (found + missed)) * 100)} %`;
}

/** Loads or unloads a model, and shows what came of it. Buttons of a model are disabled in the meantime. */
export async function changeModel(name, action, busy, { tell, refresh, changed }) {
  const question = `Unload all versions of model ${name}? Requests for it will fail until it is loaded again.`;
  if (action === "unload" && !confirm(question)) return;
  busy.set(name, action);
  tell("");
  refresh();
  try {
    await change(name, action);
  } catch (error) {
    tell(`Cannot ${action} model ${name}: ${error.message}`);
  }
  busy.delete(name);
  changed?.();
  refresh();
}

export function overviewView(context) {
  // The names of models that are being changed, and the action of each.
  const busy = new Map();
  const selection = { filter: "", sort: "name", offset: 0, limit: LIMIT };
  let unloaded = [];
  let data = null;
  // Count the questions, so that a late answer does not replace that of a later one.
  let asked = 0;
  let listed = 0;

  const summary = el("p", { class: "muted", role: "status" });
  const models = el("div", {});
  const pager = el("div", { class: "row" });
  const idle = el("section", { class: "card", "aria-label": "Models that are not loaded", hidden: true });
  const workers = el("section", { class: "card", "aria-label": "Workers", hidden: true });
  const lines = el("pre", { class: "log", tabindex: 0, "aria-label": "The last 200 lines of the log" });
  const journal = el("details", { class: "card", hidden: true, ontoggle: () => showLog() }, el("summary", {}, "Log"), lines);
  const search = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter models by name", maxlength: 60 });
  const order = el(
    "select",
    { "aria-label": "Order of models" },
    ORDERS.map(([value, text]) => el("option", { value }, text)),
  );
  let delay = 0;
  search.addEventListener("input", () => {
    clearTimeout(delay);
    delay = setTimeout(() => select({ filter: search.value.trim(), offset: 0 }), 200);
  });
  order.addEventListener("change", () => select({ sort: order.value, offset: 0 }));

  function select(changes) {
    Object.assign(selection, changes);
    context.refresh();
  }

  function act(name, action) {
    changeModel(name, action, busy, { ...context, changed: list });
  }

  function actions({ name, version }) {
    const working = busy.get(name);
    if (working) return el("span", { class: "muted", role: "status" }, working === "load" ? "Loading…" : "Unloading…");
    const of = (text, action) =>
      button(text, () => act(name, action), { "aria-label": `${text} ${name}`, "data-key": `${text} ${name} ${version}` });
    return [of("Reload", "load"), of("Unload", "unload")];
  }

  function row(model) {
    const link = el("a", { href: modelLink(model.name, model.version), "data-key": `${model.name} ${model.version}` }, model.name);
    const version = model.version !== null && el("div", { class: "muted" }, `version ${model.version}`, !model.default && " (not the default)");
    const { requests, failures } = model.series;
    const label = `${model.requests} requests in the last ten minutes, ${model.failures} of them failed`;
    const drawing = model.requests > 0 ? spark(label, [["requests", requests], ...(model.failures > 0 ? [["failures", failures]] : [])]) : null;
    const cells = [
      [el("span", { class: `state ${tone(model.state)}` }, model.state.toLowerCase()), model.reason && el("div", { class: "reason" }, model.reason)],
      backend(model) && [backend(model), memory(model.name, data.workers)],
      short(model.requests_per_second),
      drawing,
      model.p50 === null ? null : duration(model.p50),
      model.p99 === null ? null : duration(model.p99),
      model.failures || null,
      model.waiting || null,
      model.batch_size === null ? null : short(model.batch_size),
      hits(model),
    ];
    const cell = (content, position) => {
      const { title, kind = "" } = COLUMNS[position + 1];
      const isEmpty = content === null || content === undefined;
      return el("td", { class: `${kind} ${isEmpty ? "empty" : ""}`, "data-label": title }, isEmpty ? "–" : content);
    };
    const buttons = data.rights.change && el("td", { class: "actions", "data-label": "" }, actions(model));
    return el("tr", {}, el("td", { class: "name" }, link, version), cells.map(cell), buttons);
  }

  function showModels() {
    const states = Object.entries(data.states).map(([state, count]) => `${count} ${state.toLowerCase()}`);
    const all = Object.values(data.states).reduce((sum, count) => sum + count, 0);
    const matching = selection.filter === "" ? "" : ` · ${data.total} match the filter`;
    summary.textContent = all === 0 ? "" : `${states.join(", ")}${matching}`;
    if (data.models.length === 0) {
      replace(models, el("p", { class: "muted" }, all === 0 ? "No models are loaded." : "No model matches the filter."));
    } else {
      const columns = data.rights.change ? [...COLUMNS, { title: "Actions" }] : COLUMNS;
      const rows = table(columns, data.models.map(row), { class: "cards", "aria-label": "Models" });
      replace(models, el("div", { class: "scroll" }, rows));
    }
    const [from, to] = [data.offset + 1, data.offset + data.models.length];
    const turn = (text, offset, enabled) => button(text, () => select({ offset }), { disabled: !enabled, "data-key": text });
    const pages = data.total > LIMIT && [
      turn("Previous", Math.max(0, data.offset - LIMIT), data.offset > 0),
      el("span", {}, data.models.length === 0 ? `none of ${data.total}` : `${from} to ${to} of ${data.total}`),
      turn("Next", data.offset + LIMIT, to < data.total && data.models.length > 0),
    ];
    replace(pager, pages || []);
  }

  function showUnloaded() {
    idle.hidden = !data.rights.change || unloaded.length === 0;
    if (idle.hidden) return;
    const wanted = unloaded.filter(({ name }) => name.toLowerCase().includes(selection.filter.toLowerCase()));
    const rows = wanted.slice(0, MOST_UNLOADED).map(({ name, version, reason }) => {
      const action = busy.has(name)
        ? el("span", { class: "muted", role: "status" }, "Loading…")
        : button("Load", () => act(name, "load"), { "aria-label": `Load ${name}`, "data-key": `Load ${name} ${version}` });
      return el(
        "tr",
        {},
        el("td", { class: "name" }, name, version !== undefined && el("div", { class: "muted" }, `version ${version}`)),
        el("td", { class: `reason ${data.rights.details && reason ? "" : "empty"}`, "data-label": "" }, data.rights.details ? reason : ""),
        el("td", { class: "actions", "data-label": "" }, action),
      );
    });
    const rest = wanted.length - rows.length;
    const columns = [{ title: "Model", kind: "name" }, { title: "Reason" }, { title: "Actions" }];
    replace(
      idle,
      el("h2", {}, "Not loaded"),
      rows.length > 0 && el("div", { class: "scroll" }, table(columns, rows, { class: "cards" })),
      rest > 0 && el("p", { class: "muted" }, `${rest} more: filter by name to see them.`),
      rows.length === 0 && el("p", { class: "muted" }, "No model matches the filter."),
    );
  }

  function showWorkers() {
    workers.hidden = !data.workers || data.workers.length === 0;
    if (workers.hidden) return;
    const columns = [
      { title: "Worker", kind: "name" },
      { title: "State" },
      { title: "Process", kind: "number" },
      { title: "Memory", kind: "number" },
      { title: "Ended", kind: "number" },
      { title: "Last end" },
      { title: "Models" },
    ];
    const rows = data.workers.map((worker) => {
      const end = worker.last_end;
      const last = end && [el("div", { class: "muted", title: time(end.at) }, `${since(end.at)} ago`), el("div", { class: "reason" }, end.reason)];
      const names = worker.models.length > 5 ? `${worker.models.slice(0, 5).join(", ")} and ${worker.models.length - 5} more` : worker.models.join(", ");
      const cells = [
        el("span", { class: `state ${tone(worker.state)}` }, worker.state),
        worker.pid,
        worker.resident_bytes === null ? null : bytes(worker.resident_bytes),
        worker.ended || null,
        last,
        names || null,
      ];
      const cell = (content, position) => {
        const { title, kind = "" } = columns[position + 1];
        return el("td", { class: `${kind} ${content === null ? "empty" : ""}`, "data-label": title }, content ?? "–");
      };
      return el("tr", {}, el("td", { class: "name" }, worker.name), cells.map(cell));
    });
    replace(workers, el("h2", {}, "Workers"), el("div", { class: "scroll" }, table(columns, rows, { class: "cards" })));
  }

  /** Shows the end of the log, while it is open. It stays at its end, unless the reader has moved away from it. */
  async function showLog() {
    journal.hidden = !data?.rights.log;
    if (journal.hidden || !journal.open) return;
    try {
      const answer = await log();
      const isAtEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 4;
      lines.textContent = (answer.lines ?? []).join("\n") || "No line has been written since the server started.";
      if (isAtEnd) lines.scrollTop = lines.scrollHeight;
    } catch (error) {
      lines.textContent = `Cannot read the log: ${error.message}`;
    }
  }

  /** Looks for models that are not loaded. The server reads the disk for this, so only when something has changed. */
  async function list() {
    listed += 1;
    const own = listed;
    try {
      const entries = await index();
      if (own !== listed) return;
      unloaded = entries.filter(({ state }) => state === "UNAVAILABLE");
      showUnloaded();
    } catch (error) {
      context.tell(`Cannot list the models on disk: ${error.message}`);
    }
  }

  async function refresh() {
    asked += 1;
    const own = asked;
    const answer = await overview(selection);
    if (own !== asked) return undefined;
    if (answer.models.length === 0 && answer.offset > 0 && answer.total > 0) {
      // The models of the last page are gone.
      selection.offset = 0;
      return refresh();
    }
    data = answer;
    context.showServer(data.server);
    showModels();
    showWorkers();
    if (data.rights.change && listed === 0) list();
    showUnloaded();
    showLog();
    return undefined;
  }

  const controls = el("div", { class: "row spread" }, el("h1", {}, "Models"), el("div", { class: "row" }, search, el("label", {}, "Order", order)));
  const loaded = el("section", { class: "card", "aria-label": "Loaded models" }, controls, summary, models, pager);
  return { element: el("div", {}, loaded, idle, workers, journal), refresh };
}
