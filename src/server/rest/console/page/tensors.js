// Requests as tables: which requests are tables, reading CSV, and snippets for other clients.

/** The largest table of the editor. */
export const MOST_ROWS = 1000;
export const MOST_COLUMNS = 256;

/** Returns the columns of a request whose inputs have one row for each row of a table. `null` if it is not one. */
export function columnsOf(request) {
  const inputs = request?.inputs;
  if (!Array.isArray(inputs) || inputs.length === 0) return null;
  const rows = inputs[0].shape?.[0];
  const columns = [];
  for (const [position, input] of inputs.entries()) {
    const { name, shape, datatype, data } = input;
    const isTable = Array.isArray(shape) && (shape.length === 1 || shape.length === 2) && shape[0] === rows;
    const width = shape?.[1] ?? 1;
    if (!isTable || !Array.isArray(data) || data.flat(Infinity).length !== rows * width) return null;
    for (let column = 0; column < width; column += 1) {
      columns.push({ input: position, column, datatype, name: width === 1 ? name : `${name}[${column}]` });
    }
    if (columns.length > MOST_COLUMNS) return null;
  }
  return rows >= 1 && rows <= MOST_ROWS && columns.length > 0 ? columns : null;
}

/** Returns the cells of a request, as text, row by row. */
export function rowsOf(request, columns) {
  const flat = request.inputs.map(({ data }) => data.flat(Infinity));
  const widths = request.inputs.map(({ shape }) => shape[1] ?? 1);
  const cell = (row, { input, column }) => text(flat[input][row * widths[input] + column]);
  return Array.from({ length: request.inputs[0].shape[0] }, (_, row) => columns.map((column) => cell(row, column)));
}

function text(value) {
  if (value === null) return "";
  return typeof value === "string" ? value : String(value);
}

/** Reads a cell as an element of a datatype. Throws an `Error` that says what is wrong. */
function element(cell, datatype, where) {
  if (datatype === "BYTES") return cell;
  const trimmed = cell.trim();
  if (datatype === "BOOL") {
    if (/^(true|1)$/i.test(trimmed)) return true;
    if (/^(false|0)$/i.test(trimmed)) return false;
    throw new Error(`${where}: expected true or false, found "${cell}"`);
  }
  const isFloat = datatype.startsWith("FP") || datatype === "BF16";
  if (isFloat && /^(|nan|null|na)$/i.test(trimmed)) return null;
  const number = Number(trimmed);
  if (trimmed === "" || !Number.isFinite(number) || (!isFloat && !Number.isSafeInteger(number))) {
    const expected = isFloat ? "a number, or nothing for NaN" : "an integer of at most 53 bits";
    throw new Error(`${where}: expected ${expected}, found "${cell}"`);
  }
  return number;
}

/** Returns the request with the rows of a table instead of its own. */
export function withRows(request, columns, rows) {
  const inputs = request.inputs.map((input, position) => {
    const own = columns.map((column, index) => [column, index]).filter(([{ input: of }]) => of === position);
    const data = rows.flatMap((cells, row) =>
      own.map(([{ datatype, name }, index]) => element(cells[index] ?? "", datatype, `Row ${row + 1}, ${name}`)),
    );
    const shape = input.shape.length === 1 ? [rows.length] : [rows.length, input.shape[1]];
    return { ...input, shape, data };
  });
  return { ...request, inputs };
}

/** Reads CSV (RFC 4180), with commas, semicolons or tabs. */
export function readCsv(source) {
  const first = source.slice(0, source.search(/\r?\n|$/));
  const separator = ["\t", ";", ","].find((one) => first.includes(one)) ?? ",";
  const rows = [];
  let cells = [];
  let cell = "";
  let isQuoted = false;
  const endCell = () => {
    cells.push(cell);
    cell = "";
  };
  const endRow = () => {
    endCell();
    if (cells.length > 1 || cells[0] !== "") rows.push(cells);
    cells = [];
  };
  for (let at = 0; at < source.length && rows.length <= MOST_ROWS + 1; at += 1) {
    const char = source[at];
    if (isQuoted) {
      if (char !== '"') cell += char;
      else if (source[at + 1] === '"') {
        cell += '"';
        at += 1;
      } else isQuoted = false;
    } else if (char === '"' && cell === "") isQuoted = true;
    else if (char === separator) endCell();
    else if (char === "\n") endRow();
    else if (char !== "\r") cell += char;
  }
  if (isQuoted) throw new Error("The CSV has a quoted cell without an end.");
  endRow();
  return rows;
}

/** Arranges the rows of a CSV for columns: by the names of its first row if it has them all, or else by position. */
export function arrange(csv, columns) {
  if (csv.length === 0) throw new Error("The CSV has no rows.");
  const names = csv[0].map((name) => name.trim());
  let positions = columns.map(({ name }) => names.indexOf(name));
  let rows = csv.slice(1);
  if (positions.includes(-1)) {
    positions = columns.map((_, index) => index);
    // A first row of other names is none of data.
    const isTitle = columns.some(({ datatype }, index) => datatype !== "BYTES" && !isReadable(names[index] ?? "", datatype));
    if (!isTitle) rows = csv;
    const wrong = rows.findIndex((cells) => cells.length !== columns.length);
    if (wrong >= 0) {
      throw new Error(`The CSV has ${rows[wrong].length} columns in row ${wrong + 1}, and the model takes ${columns.length}.`);
    }
  }
  if (rows.length === 0) throw new Error("The CSV has no rows besides the names.");
  if (rows.length > MOST_ROWS) throw new Error(`The CSV has more than ${MOST_ROWS} rows: use mlserver infer for files.`);
  return rows.map((cells) => positions.map((position) => cells[position] ?? ""));
}

function isReadable(cell, datatype) {
  try {
    element(cell, datatype, "");
    return true;
  } catch {
    return false;
  }
}

/** Writes a value as Python does. */
function python(value) {
  if (value === null) return 'float("nan")';
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, of]) => `${JSON.stringify(key)}: ${python(of)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** Quotes a text for a shell. */
function shell(content) {
  return `'${content.replaceAll("'", "'\\''")}'`;
}

export function curlSnippet(url, request, withKey) {
  const key = withKey ? ' \\\n  --header "authorization: Bearer $KEY"' : "";
  return `curl ${shell(url)}${key} \\\n  --json ${shell(JSON.stringify(request))}`;
}

export function pythonSnippet(url, request, withKey) {
  const headers = withKey ? ', headers={"authorization": "Bearer " + os.environ["KEY"]}' : "";
  const imports = withKey ? "import os\n\nimport requests" : "import requests";
  const body = python(request).replaceAll('float("nan")', "None");
  return `${imports}\n\nrequest = ${body}\nanswer = requests.post(${JSON.stringify(url)}, json=request${headers})\nanswer.raise_for_status()\nprint(answer.json()["outputs"])\n`;
}

const NUMPY = { BOOL: "bool_", FP16: "float16", FP32: "float32", FP64: "float64", BYTES: "object_" };

/** Returns a program for tritonclient. `host` is the name of this server; the page does not know the port of gRPC. */
export function grpcSnippet(host, name, version, request, withKey) {
  const lines = withKey ? ["import os", ""] : [];
  lines.push("import numpy as np", "import tritonclient.grpc as triton", "");
  lines.push(`client = triton.InferenceServerClient(${JSON.stringify(`${host}:8081`)})  # the setting grpc_port`, "inputs = []");
  for (const { name: of, shape, datatype, data } of request.inputs) {
    const kind = NUMPY[datatype] ?? datatype.toLowerCase();
    const array = `np.array(${python(data.flat(Infinity))}, dtype=np.${kind}).reshape(${python(shape)})`;
    lines.push(`inputs.append(triton.InferInput(${JSON.stringify(of)}, ${python(shape)}, ${JSON.stringify(datatype)}))`);
    lines.push(`inputs[-1].set_data_from_numpy(${array})`);
  }
  const options = [JSON.stringify(name), "inputs"];
  if (version !== null) options.push(`model_version=${JSON.stringify(version)}`);
  if (request.outputs) {
    const outputs = request.outputs.map(({ name: of }) => `triton.InferRequestedOutput(${JSON.stringify(of)})`);
    options.push(`outputs=[${outputs.join(", ")}]`);
  }
  if (withKey) options.push('headers={"authorization": "Bearer " + os.environ["KEY"]}');
  lines.push(`answer = client.infer(${options.join(", ")})`, "for output in answer.get_response().outputs:", "    print(output.name, answer.as_numpy(output.name))");
  return `${lines.join("\n")}\n`;
}
