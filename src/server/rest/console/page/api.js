// Requests to the server that the page comes from.

/** The address of the server, with the prefix of a proxy. The files are three levels below it. */
export const ROOT = new URL("../../../", import.meta.url);

/** How long the page waits for an answer, in milliseconds. Loading a model may take longer. */
const PATIENCE = 15000;
const LOAD_PATIENCE = 600000;

// The key of the login form. It is kept in this variable only, so it is gone when the page is closed or loaded again.
let key = "";

export function setKey(text) {
  key = text;
}

export function hasKey() {
  return key !== "";
}

/** An answer that is not a success. `status` is 0 if there was none. */
export class RequestFailure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function reason(status, text) {
  try {
    const { error } = JSON.parse(text);
    if (typeof error === "string") return error;
  } catch {
    // A proxy may answer with a page.
  }
  return `the server answered with status ${status}`;
}

/** Sends a request, and returns the text of the answer. */
export async function send(method, path, body, patience = PATIENCE) {
  const headers = {};
  if (key !== "") headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  let text;
  try {
    const signal = AbortSignal.timeout(patience);
    const options = { method, headers, body, signal, cache: "no-store", credentials: "same-origin", redirect: "error" };
    response = await fetch(new URL(path, ROOT), options);
    text = await response.text();
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new RequestFailure(0, late ? `no answer within ${patience / 1000} s` : "the server does not answer");
  }
  if (!response.ok) throw new RequestFailure(response.status, reason(response.status, text));
  return text;
}

export async function json(method, path, body, patience) {
  const text = await send(method, path, body === undefined ? undefined : JSON.stringify(body), patience);
  return text === "" ? null : JSON.parse(text);
}

/** Returns the path of a model, as part of an address. */
export function modelPath(name, version) {
  const base = `v2/models/${encodeURIComponent(name)}`;
  return version === null || version === undefined ? base : `${base}/versions/${encodeURIComponent(version)}`;
}

/** Returns the models and, if the caller may see them, the workers. */
export function overview({ filter, sort, offset, limit }) {
  return json("GET", `v2/console/data?${new URLSearchParams({ filter, sort, offset, limit })}`);
}

export function describe(name, version) {
  const query = version === null || version === undefined ? "" : `?${new URLSearchParams({ model_version: version })}`;
  return json("GET", `v2/console/models/${encodeURIComponent(name)}${query}`);
}

/** Returns the last lines of the log. */
export function log() {
  return json("GET", "v2/console/log");
}

/** Lists the models on disk. */
export function index() {
  return json("POST", "v2/repository/index", {});
}

/** Loads, reloads (`load`) or unloads a model. */
export function change(name, action) {
  return json("POST", `v2/repository/models/${encodeURIComponent(name)}/${action}`, undefined, LOAD_PATIENCE);
}
