// The page: which view is shown, when it is refreshed, and the login.

import { hasKey, RequestFailure, setKey } from "./api.js";
import { button, el } from "./dom.js";
import { bytes, since } from "./format.js";
import { modelView } from "./model.js";
import { overviewView } from "./overview.js";

const main = document.getElementById("main");
const notice = document.getElementById("notice");
const connection = document.getElementById("connection");
const server = document.getElementById("server");
const logOut = document.getElementById("log-out");

/** How long the page waits until it asks a server again that did not answer, in milliseconds. */
const RETRY = 3000;
const REFRESH = 10000;

let view = null;
let timer = 0;
// Counts the views, so that the answer to a request of a former view changes nothing.
let shown = 0;

/** Shows a message above the view, until the next one or until it is closed. Without text, there is none. */
function tell(text) {
  notice.hidden = !text;
  notice.replaceChildren(...(text ? [el("span", {}, text), " ", button("Close", () => tell(""))] : []));
}

function showServer({ name, version, started, resident_bytes: memory }) {
  server.textContent = `${name} ${version} · up for ${since(started)}${memory === null ? "" : ` · ${bytes(memory)}`}`;
}

async function refresh() {
  clearTimeout(timer);
  const current = shown;
  let wait = REFRESH;
  try {
    await view.refresh();
    if (current !== shown) return;
    connection.textContent = `Updated ${new Date().toLocaleTimeString()}`;
    main.classList.remove("stale");
  } catch (error) {
    if (current !== shown) return;
    if (!(error instanceof RequestFailure)) throw error;
    if (error.status === 401) {
      showLogin(hasKey() ? `The key was refused: ${error.message}` : "");
      return;
    }
    // What was shown stays, and is marked as old.
    main.classList.add("stale");
    connection.textContent = error.status === 0 ? `${capital(error.message)}; trying again` : capital(error.message);
    view.failed?.(error);
    wait = RETRY;
  }
  logOut.hidden = !hasKey();
  timer = setTimeout(refresh, wait);
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Shows the view that the address names: `#/`, or `#/model/NAME` with an optional `/VERSION`. */
function route() {
  shown += 1;
  clearTimeout(timer);
  tell("");
  const parts = location.hash.split("/").slice(1);
  const context = { tell, refresh, showServer };
  try {
    const [page, name, version] = parts.map(decodeURIComponent);
    view = page === "model" && name ? modelView(name, version ?? null, context) : overviewView(context);
  } catch {
    // Not an address of ours: a stray percent sign.
    view = overviewView(context);
  }
  main.replaceChildren(view.element);
  refresh();
}

function showLogin(problem) {
  shown += 1;
  clearTimeout(timer);
  connection.textContent = "";
  server.textContent = "";
  main.classList.remove("stale");
  logOut.hidden = true;
  tell("");
  setKey("");
  const input = el("input", { id: "key", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const submit = (event) => {
    event.preventDefault();
    // A key that was pasted with the end of its line.
    const key = input.value.trim();
    input.value = "";
    if (!/^[\x21-\x7e]+$/.test(key)) {
      showLogin("The key has characters that no key has.");
      return;
    }
    setKey(key);
    route();
  };
  const form = el(
    "form",
    { class: "card login", onsubmit: submit },
    el("h1", {}, "Log in"),
    el("p", {}, "This server asks for a key or a token. The page keeps it in memory until it is closed or loaded again."),
    problem && el("p", { class: "error", role: "alert" }, problem),
    el("label", { for: "key" }, "Key or token"),
    input,
    el("p", {}),
    el("button", { class: "main", type: "submit" }, "Log in"),
  );
  main.replaceChildren(form);
  input.focus();
}

logOut.addEventListener("click", () => {
  setKey("");
  showLogin("");
});
addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
});
document.addEventListener("visibilitychange", () => {
  // A hidden page asks nothing.
  if (document.hidden) clearTimeout(timer);
  else if (view !== null && main.contains(view.element)) refresh();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  // The fragment of the address is the view.
  event.preventDefault();
  main.focus();
});
route();
