// The page of a model: its numbers, its metadata, a form for requests, and snippets for other clients.

import { describe, hasKey, json, modelPath, ROOT } from "./api.js";
import { showAnswer } from "./answer.js";
import { button, el, facts, replace, table } from "./dom.js";
import { duration, short, time, tone } from "./format.js";
import { backend, changeModel, hits } from "./overview.js";
import { bars, spark } from "./plot.js";
import { arrange, columnsOf, curlSnippet, grpcSnippet, pythonSnippet, readCsv, rowsOf, withRows } from "./tensors.js";

/** How many rows the table of the editor shows. More are kept, and sent. */
const SHOWN_ROWS = 50;

/** How long the page waits for a prediction, in milliseconds. */
const PATIENCE = 120000;

/** How many steps of a graph have a bar for their time. */
const MOST_STEPS = 50;

/** What the form begins with if the model does not say what it takes. */
const GENERIC = { inputs: [{ name: "x", shape: [1, 1], datatype: "FP32", data: [0] }] };

function tensors(title, list) {
  if (list.length === 0) return null;
  const rows = list.map(({ name, datatype, shape }) =>
    el("tr", {}, el("td", { class: "name" }, name), el("td", {}, datatype), el("td", {}, `[${shape.join(", ")}]`)),
  );
  const columns = [{ title: "Name", kind: "name" }, { title: "Datatype" }, { title: "Shape" }];
  return [el("h3", {}, title), el("div", { class: "scroll" }, table(columns, rows, { class: "fit", "aria-label": title }))];
}

/** Shows the drawing of a graph. It is an image, so that it can neither run scripts nor change the page. */
function drawing(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const done = () => URL.revokeObjectURL(url);
  const alt = `Drawing of the graph ${name}. Its steps are in the metadata.`;
  return el("div", { class: "scroll" }, el("img", { src: url, alt, onload: done, onerror: done }));
}

/** Creates the form. `data` is the description of the model. `answered` is called after each answer. */
function requestForm(name, version, data, answered) {
  let request = data.example ?? GENERIC;
  const explains = data.metadata.parameters?.contributions !== undefined;
  const predicted = (data.metadata.outputs ?? []).map((output) => output.name).filter((of) => !["contributions", "margin", "leaf"].includes(of));
  let view = columnsOf(request) === null ? "json" : "table";
  const editor = el("div", { class: "editor" });
  const problem = el("p", { class: "error", role: "alert", hidden: true });
  const answer = el("div", { class: "answer", "aria-live": "polite" });
  const text = el("textarea", { rows: 12, spellcheck: "false", "aria-label": "Request as JSON" });
  const explain = el("input", { type: "checkbox", id: "explain" });
  const snippets = el("div", {});
  let rows = [];
  let columns = null;

  function complain(message) {
    problem.hidden = message === "";
    problem.textContent = message;
  }

  /** Reads what has been edited. Throws an `Error` that says what is wrong with it. */
  function read() {
    if (view === "table") request = withRows(request, columns, rows);
    else {
      try {
        request = JSON.parse(text.value);
      } catch (error) {
        throw new Error(`The request is not JSON: ${error.message}`);
      }
    }
    if (!explains) return request;
    const { outputs, ...rest } = request;
    const names = predicted.length > 0 ? predicted : ["predict"];
    return explain.checked ? { ...rest, outputs: [...names, "contributions"].map((of) => ({ name: of })) } : request;
  }

  /** Does something with what has been edited, or says what is wrong with it. */
  function attempt(action) {
    try {
      complain("");
      return action();
    } catch (error) {
      complain(error.message);
      return undefined;
    }
  }

  function cell(row, column) {
    const input = el("input", { "aria-label": `Row ${row + 1}, ${columns[column].name}`, spellcheck: "false" });
    input.value = rows[row][column];
    input.addEventListener("input", () => {
      rows[row][column] = input.value;
      showSnippets();
    });
    return el("td", {}, input);
  }

  function showTable() {
    const titles = [...columns.map(({ name: of, datatype }) => ({ title: `${of} (${datatype})` })), { title: "" }];
    const shown = rows.slice(0, SHOWN_ROWS).map((cells, row) => {
      const remove = button("Remove", () => {
        rows.splice(row, 1);
        showTable();
      }, { disabled: rows.length === 1, "aria-label": `Remove row ${row + 1}` });
      return el("tr", {}, cells.map((_, column) => cell(row, column)), el("td", {}, remove));
    });
    const add = button("Add a row", () => {
      rows.push([...rows.at(-1)]);
      showTable();
    }, { "data-key": "add" });
    const csv = el("textarea", { rows: 4, "aria-label": "CSV", placeholder: "5.1,3.5,1.4,0.2" });
    const use = button("Use the CSV", () => attempt(() => {
      rows = arrange(readCsv(csv.value), columns);
      showTable();
    }));
    const paste = el("details", {}, el("summary", {}, "Paste CSV"), el("p", { class: "muted" }, "With or without a first row of names."), csv, el("p", {}), use);
    replace(
      editor,
      el("div", { class: "scroll" }, table(titles, shown, { class: "grid-editor", "aria-label": "Rows of the request" })),
      rows.length > SHOWN_ROWS && el("p", { class: "muted" }, `The first ${SHOWN_ROWS} of ${rows.length} rows are shown. All are sent.`),
      el("p", {}, add),
      paste,
    );
    showSnippets();
  }

  function show() {
    tab.table.setAttribute("aria-pressed", String(view === "table"));
    tab.json.setAttribute("aria-pressed", String(view === "json"));
    if (view === "table") showTable();
    else {
      text.value = JSON.stringify(request, null, 1);
      replace(editor, text);
      showSnippets();
    }
  }

  function turn(to) {
    attempt(() => {
      if (view === "table") request = withRows(request, columns, rows);
      else request = JSON.parse(text.value);
      const found = columnsOf(request);
      if (to === "table" && found === null) throw new Error("This request is not a table: its inputs need one row each for every row.");
      [columns, view] = [found, to];
      rows = to === "table" ? rowsOf(request, columns) : [];
      show();
    });
  }

  function showSnippets() {
    let sent;
    try {
      sent = read();
    } catch {
      return;
    }
    const url = new URL(`${modelPath(name, version)}/infer`, ROOT).href.replaceAll("'", "%27");
    const isShort = JSON.stringify(sent).length <= 20000;
    const all = isShort && [
      ["curl", curlSnippet(url, sent, hasKey())],
      ["Python", pythonSnippet(url, sent, hasKey())],
      Array.isArray(sent.inputs) && sent.inputs.every(({ data: of }) => Array.isArray(of)) && ["gRPC, in Python", grpcSnippet(location.hostname, name, version, sent, hasKey())],
    ];
    const open = [...snippets.querySelectorAll("details")].map((one) => one.open);
    const parts = (all || []).filter(Boolean).map(([title, code], position) =>
      el("details", { open: open[position] }, el("summary", {}, title), el("pre", { tabindex: 0 }, code)),
    );
    replace(snippets, parts.length > 0 ? parts : el("p", { class: "muted" }, "The request is too long to be shown."));
  }

  async function submit(event) {
    event.preventDefault();
    const sent = attempt(read);
    if (sent === undefined) return;
    send.disabled = true;
    replace(answer, el("p", { class: "muted" }, "Waiting for the answer…"));
    const began = performance.now();
    try {
      const got = await json("POST", `${modelPath(name, version)}/infer`, sent, PATIENCE);
      const took = (performance.now() - began) / 1000;
      const shown = el("div", {});
      showAnswer(shown, got, data.feature_names);
      replace(answer, el("h2", {}, "Answer ", el("span", { class: "muted" }, `after ${duration(took)}`)), shown);
      answered();
    } catch (error) {
      replace(answer, el("p", { class: "error", role: "alert" }, error.message));
    }
    send.disabled = false;
  }

  const tab = { table: button("Table", () => turn("table")), json: button("JSON", () => turn("json")) };
  text.addEventListener("input", showSnippets);
  explain.addEventListener("change", showSnippets);
  const send = el("button", { class: "main", type: "submit" }, "Predict");
  columns = columnsOf(request);
  rows = columns === null ? [] : rowsOf(request, columns);
  const form = el(
    "form",
    { onsubmit: submit },
    el("div", { class: "row spread" }, el("h2", {}, "Try it"), el("div", { class: "row", role: "group", "aria-label": "Form of the request" }, tab.table, tab.json)),
    data.example === null && el("p", { class: "muted" }, "The model does not declare its inputs. Change the request to what it takes."),
    data.example_answered === false && el("p", { class: "muted" }, "The model does not answer these values. Change them to what it takes."),
    editor,
    explains && el("p", {}, el("label", { for: "explain" }, explain, "Explain the prediction")),
    problem,
    send,
  );
  show();
  return [el("section", { class: "card", "aria-label": "Try it" }, form, answer), el("section", { class: "card", "aria-label": "Other clients" }, el("h2", {}, "From other clients"), snippets)];
}

export function modelView(name, version, context) {
  const busy = new Map();
  const overview = el("section", { class: "card", "aria-label": "State" });
  const metadata = el("section", { class: "card", "aria-label": "Metadata", hidden: true });
  const graph = el("section", { class: "card", "aria-label": "Graph", hidden: true });
  const picture = el("div", {});
  const times = el("div", {});
  graph.append(el("h2", {}, "Graph"), picture, times);
  const form = el("div", {});
  let description = "";
  let formOf = null;

  function showState({ model, rights }) {
    const working = busy.get(name);
    const act = (text, action) => button(text, () => changeModel(name, action, busy, context), { disabled: working !== undefined, "data-key": text });
    const buttons = rights.change && el("div", { class: "actions" }, working && el("span", { class: "muted" }, working === "load" ? "Loading… " : "Unloading… "), act("Reload", "load"), act("Unload", "unload"));
    const { series } = model;
    const plot = (title, now, ...lines) => el("div", {}, el("div", {}, title, " ", el("strong", {}, now)), spark(`${title} in the last ten minutes`, lines));
    replace(
      overview,
      el("div", { class: "row spread" }, el("h1", {}, name), buttons),
      facts([
        ["State", el("span", { class: `state ${tone(model.state)}` }, model.state.toLowerCase())],
        ["Reason", model.reason && el("span", { class: "reason" }, model.reason)],
        ["Version", model.version],
        ["Backend", backend(model)],
        ["Loaded", model.state === "READY" ? time(model.loaded) : null],
        ["In flight", String(model.in_flight)],
        ["Batch size", model.batch_size === null ? null : short(model.batch_size)],
        ["Cache hits", hits(model)],
      ]),
      el("h3", {}, "Last ten minutes"),
      el(
        "div",
        { class: "plots" },
        plot("Requests/s", short(model.requests_per_second), ["requests", series.requests]),
        plot("p50", duration(model.p50), ["p50", series.p50]),
        plot("p99", duration(model.p99), ["p99", series.p99]),
        plot("Errors", String(model.failures), ["failures", series.failures]),
        plot("Queue", String(model.waiting), ["waiting", series.waiting]),
      ),
    );
  }

  function showMetadata(data) {
    const described = JSON.stringify([data.metadata, data.example, data.rights.infer, data.feature_names, data.drawing]);
    // What has been edited stays, unless the model is another one.
    if (described === description) return;
    description = described;
    metadata.hidden = false;
    graph.hidden = data.drawing === null;
    if (!graph.hidden) replace(picture, drawing(data.drawing, name));
    const { platform, inputs = [], outputs = [], parameters = {} } = data.metadata;
    const pairs = Object.entries(parameters).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]);
    replace(metadata, el("h2", {}, "Metadata"), facts([["Platform", platform], ...pairs]), tensors("Inputs", inputs), tensors("Outputs", outputs));
    const isNew = JSON.stringify([data.example, data.metadata, data.rights.infer]);
    if (formOf === isNew) return;
    formOf = isNew;
    replace(form, data.rights.infer ? requestForm(name, version, data, context.refresh) : el("p", { class: "muted" }, "Requests are not answered at this address, or not with this key."));
  }

  /** Shows how long each step took when it last ran, in the order of the steps. */
  function showTimes({ metadata: { parameters = {} }, step_seconds: seconds }) {
    const steps = Array.isArray(parameters.steps) ? parameters.steps : [];
    const known = steps.map(({ name: step }) => [step, (seconds ?? {})[step]]).filter(([, time]) => time !== undefined);
    replace(times, known.length > 0 && bars(known.slice(0, MOST_STEPS), "How long each step took when it last ran", duration));
  }

  async function refresh() {
    const data = await describe(name, version);
    context.showServer(data.server);
    showState(data);
    showMetadata(data);
    showTimes(data);
  }

  function failed(error) {
    if (error.status !== 404 && error.status !== 403) return;
    [description, formOf] = ["", null];
    metadata.hidden = true;
    graph.hidden = true;
    form.replaceChildren();
    replace(overview, el("h1", {}, name), el("p", { class: "error" }, error.message));
  }

  const back = el("p", {}, el("a", { href: "#/" }, "All models"));
  return { element: el("div", {}, back, overview, graph, form, metadata), refresh, failed };
}
