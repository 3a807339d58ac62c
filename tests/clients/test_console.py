"""The web console in a real browser, which cannot reach any other machine."""

import base64
import hashlib
import json
import time
import urllib.parse

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from conftest import PATIENCE, ROOT, SCREENSHOTS, Server, model, quickstart

HOSTILE = "<script>document.title='hacked'</script>"
IMAGE = "<img src=x onerror=\"document.title='hacked'\">"
# The hashes in keys.json of `read-key`, `admin-key` and so on.
SCOPES = {"read": ["read"], "user": ["read", "infer"], "admin": ["read", "infer", "admin"]}


@pytest.fixture(autouse=True)
def no_complaints(request):
    """Fails a test whose page has logged errors, asked other hosts, or run code of a name."""
    yield
    if "browser" not in request.fixturenames:
        return
    browser = request.getfixturevalue("browser")
    # The server of a test may stop while the page is still open.
    expected = (*getattr(request.function, "expects", ()), "ERR_CONNECTION_REFUSED")
    logged = [entry["message"] for entry in browser.get_log("browser")]
    assert [line for line in logged if not any(text in line for text in expected)] == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    allowed = ("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:", "chrome:")
    assert [url for url in urls if not url.startswith(allowed)] == []
    assert browser.title == "mlserver console"


def expects(*texts):
    """Names texts of errors that the browser logs for answers that a test provokes."""

    def mark(test):
        test.expects = texts
        return test

    return mark


class Page:
    """The console."""

    def __init__(self, browser, url):
        self.browser = browser
        browser.get_log("performance")
        browser.get_log("browser")
        # A fragment alone would not load the page again.
        browser.get("about:blank")
        browser.get(url)

    def wait(self, question):
        quiet = [StaleElementReferenceException]
        return WebDriverWait(self.browser, PATIENCE, 0.1, quiet).until(lambda _: question())

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def find(self, selector, text=""):
        """Waits for an element with a text, and returns it."""

        def found():
            return next(
                (one for one in self.all(selector) if text in (one.text or one.get_attribute("textContent"))), None
            )

        return self.wait(found)

    def click(self, selector, text=""):
        def clicked():
            element = self.find(selector, text)
            self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return True

        self.wait(clicked)

    def show(self, name):
        """Saves a screenshot of the page for manual review."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.browser.save_screenshot(str(SCREENSHOTS / f"console-{name}.png"))

    def names(self):
        return [cell.text.split("\n")[0] for cell in self.all("table[aria-label=Models] tbody td.name")]


def served(folder, **variables):
    return Server(folder, **variables).wait_until_ready()


@pytest.fixture(scope="module")
def iris(tmp_path_factory):
    with served(quickstart(tmp_path_factory.mktemp("models"))) as server:
        yield server


def appearance(browser, scheme="light", width=None):
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    if width is None:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    else:
        size = {"width": width, "height": 1100, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def predict(server, name="iris-xgboost"):
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]}
    assert server.post(f"/v2/models/{name}/infer", body).status == 200


@pytest.mark.parametrize("path", ["/", "/v2/console"])
def test_overview_lists_the_models(browser, iris, path):
    page = Page(browser, iris.url + path)
    page.find("td.name", "iris-xgboost")
    assert page.names() == ["breast-cancer-lightgbm", "iris-xgboost"]
    assert [state.text for state in page.all(".state")] == ["ready", "ready"]
    page.find("#connection", "Updated")
    assert "mlserver" in page.find("#server", "up for").text


def test_console_works_under_a_prefix(browser, tmp_path):
    with served(quickstart(tmp_path), MLSERVER_ROOT_PATH="/pre") as server:
        for path in ["/pre/", "/pre/v2/console"]:
            page = Page(browser, server.url + path)
            page.click("a", "iris-xgboost")
            page.click("button", "Predict")
            page.find("h2", "Answer")


def test_overview_shows_requests_within_ten_seconds(browser, iris):
    predict(iris)
    page = Page(browser, f"{iris.url}/v2/console")
    drawing = page.find("svg.spark[role=img]")
    assert "requests in the last ten minutes" in drawing.get_attribute("aria-label")
    row = page.find("tbody tr", "iris-xgboost")
    assert "ms" in row.text or "µs" in row.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1000, 1280])
def test_pages_fit_and_have_contrast(browser, iris, scheme, width):
    predict(iris)
    appearance(browser, scheme, width)
    try:
        for view, fragment, ready in [("overview", "#/", "td.name"), ("model", "#/model/iris-xgboost", "button.main")]:
            page = Page(browser, f"{iris.url}/v2/console{fragment}")
            page.find(ready)
            page.find("svg.spark")
            if view == "model":
                page.click("label", "Explain")
                page.click("button", "Predict")
                page.find("h3", "contributions")
            page.browser.execute_script("scrollTo(0, 0)")
            page.show(f"{view}-{scheme}-{width}")
            full = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
            (SCREENSHOTS / f"console-{view}-{scheme}-{width}-full.png").write_bytes(base64.b64decode(full["data"]))
            overflow = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, (view, overflow)
            assert browser.execute_script(CONTRAST) == []
            for control in filter(lambda one: one.is_displayed(), page.all("button:enabled")):
                ActionChains(browser).move_to_element(control).perform()
                assert browser.execute_script(CONTRAST) == []
    finally:
        appearance(browser)


# Returns the texts whose contrast is below 4.5 to 1 (WCAG 2.1, AA).
CONTRAST = """
const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const light = (color) => {
  const [r, g, b] = color.slice(0, 3).map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const back = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const color = parse(getComputedStyle(one).backgroundColor);
    if (color.length === 3 || color[3] > 0) return color;
  }
  return [255, 255, 255];
};
const bad = [];
for (const element of document.querySelectorAll("body *")) {
  const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
  if (!text || element.closest("noscript, svg, :disabled") || !element.getClientRects().length) continue;
  const [one, other] = [light(parse(getComputedStyle(element).color)), light(back(element))].sort((a, b) => b - a);
  const contrast = (one + 0.05) / (other + 0.05);
  if (contrast < 4.5) bad.push(`${text}: ${contrast}`);
}
return bad;
"""


def test_example_of_a_model_is_answered_and_explained(browser, iris):
    page = Page(browser, f"{iris.url}/v2/console#/model/iris-xgboost")
    page.click("button", "Predict")
    page.find("h2", "Answer after")
    page.find("h3", "predict INT64 [1, 1]")
    page.click("label", "Explain the prediction")
    page.click("button", "Predict")
    page.find("caption", "Contributions to group 0 of row 1")
    assert page.find(".bars th", "bias")
    curl = page.find("pre", "curl ")
    assert '"contributions"' in curl.get_attribute("textContent")


def test_table_is_edited_and_filled_from_csv(browser, iris):
    page = Page(browser, f"{iris.url}/v2/console#/model/iris-xgboost")
    page.click("summary", "Paste CSV")
    page.find("textarea[aria-label=CSV]").send_keys("a,b,c,d\n6.2,2.8,4.8,1.8\n5.1,3.5,1.4,0.2\n")
    page.click("button", "Use the CSV")
    page.wait(lambda: len(page.all(".grid-editor tbody tr")) == 2)
    page.click("button", "Add a row")
    page.wait(lambda: len(page.all(".grid-editor tbody tr")) == 3)
    page.click("button", "Predict")
    page.find("h3", "predict INT64 [3, 1]")
    values = [row.text.split() for row in page.all("table[aria-label=predict] tbody tr")]
    assert values == [["1", "2"], ["2", "0"], ["3", "0"]]
    cell = page.find("input[aria-label^='Row 1']")
    cell.clear()
    cell.send_keys("many")
    page.click("button", "Predict")
    assert 'found "many"' in page.find("p.error", "Row 1").text
    cell.clear()
    cell.send_keys("6.2")
    page.click("button", "JSON")
    text = json.loads(page.find("textarea[aria-label='Request as JSON']").get_attribute("value"))
    assert text["inputs"][0]["shape"] == [3, 4]
    page.click("button", "Table")
    page.wait(lambda: len(page.all(".grid-editor tbody tr")) == 3)


@pytest.mark.parametrize(
    ("csv", "complaint"),
    [("1,2\n", "The CSV has 2 columns"), ('"1,2', "without an end"), ("", "no rows"), ("1\n" * 1500, "columns")],
)
def test_wrong_csv_is_explained(browser, iris, csv, complaint):
    page = Page(browser, f"{iris.url}/v2/console#/model/iris-xgboost")
    page.click("summary", "Paste CSV")
    area = page.find("textarea[aria-label=CSV]")
    browser.execute_script("arguments[0].value = arguments[1]", area, csv)
    page.click("button", "Use the CSV")
    assert complaint in page.find("p.error", complaint).text


@expects("400 (Bad Request)")
def test_errors_of_requests_are_shown(browser, iris):
    page = Page(browser, f"{iris.url}/v2/console#/model/iris-xgboost")
    page.click("button", "JSON")
    text = page.find("textarea[aria-label='Request as JSON']")
    text.clear()
    text.send_keys("{")
    page.click("button", "Predict")
    page.find("p.error", "The request is not JSON")
    text.clear()
    text.send_keys('{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}')
    page.click("button", "Predict")
    page.find("p.error", "4")


@expects("404 (Not Found)")
def test_models_are_unloaded_loaded_and_reloaded(browser, tmp_path):
    with served(quickstart(tmp_path)) as server:
        page = Page(browser, f"{server.url}/v2/console")
        page.click("button[aria-label='Reload iris-xgboost']")
        page.find("button[aria-label='Unload iris-xgboost']").click()
        browser.switch_to.alert.accept()
        page.find("section[aria-label='Models that are not loaded'] td.name", "iris-xgboost")
        page.wait(lambda: page.names() == ["breast-cancer-lightgbm"])
        assert server.get("/v2/models/iris-xgboost").status == 404
        page.show("unloaded")
        page.click("button[aria-label='Load iris-xgboost']")
        page.wait(lambda: page.names() == ["breast-cancer-lightgbm", "iris-xgboost"])
        assert server.get("/v2/models/iris-xgboost").status == 200
        # On the page of the model, too.
        page.click("a", "iris-xgboost")
        page.click("button", "Unload")
        browser.switch_to.alert.accept()
        page.wait(lambda: server.get("/v2/models/iris-xgboost").status == 404)


@expects("422 (", "500 (", "400 (")
def test_failed_load_is_reported(browser, tmp_path):
    folder = quickstart(tmp_path)
    with served(folder) as server:
        page = Page(browser, f"{server.url}/v2/console")
        page.find("td.name", "iris-xgboost")
        (folder / "iris-xgboost/model.json").write_text("{")
        page.click("button[aria-label='Reload iris-xgboost']")
        page.find("#notice", "Cannot load model iris-xgboost")
        page.show("failed-load")
        page.click("#notice button", "Close")
        assert not page.find("#notice").is_displayed()
        assert server.get("/v2/models/iris-xgboost").status == 200


def keys(folder, scopes=SCOPES):
    entries = [
        {"name": name, "hash": f"sha256:{hashlib.sha256(f'{name}-key'.encode()).hexdigest()}", "scopes": of}
        for name, of in scopes.items()
    ]
    (folder / "keys.json").write_text(json.dumps(entries))
    (folder / "settings.json").write_text(json.dumps({"api_keys_file": "keys.json"}))
    return folder


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with served(keys(quickstart(tmp_path_factory.mktemp("secured")))) as server:
        yield server


def log_in(page, key):
    field = page.find("#key")
    field.send_keys(key, Keys.ENTER)


@expects("401 (Unauthorized)")
def test_key_is_asked_for_and_kept_in_memory_only(browser, secured):
    page = Page(browser, f"{secured.url}/v2/console")
    page.find("h1", "Log in")
    page.show("login")
    assert "iris" not in page.find("body").text
    log_in(page, "wrong-key")
    page.find("p.error", "The key was refused")
    log_in(page, "schlüssel")
    page.find("p.error", "The key has characters that no key has")
    log_in(page, "admin-key")
    page.find("td.name", "iris-xgboost")
    kept = browser.execute_script(
        "const page = document.documentElement.outerHTML;"
        "return [localStorage.length, sessionStorage.length, document.cookie, location.href, page]"
    )
    assert kept[:3] == [0, 0, ""] and "admin-key" not in kept[3] + kept[4]
    page.click("a", "iris-xgboost")
    page.click("button", "Predict")
    page.find("h2", "Answer after")
    assert "$KEY" in page.find("pre", "curl ").get_attribute("textContent")
    page.click("#log-out")
    page.find("h1", "Log in")
    log_in(page, "admin-key")
    page.find("h2", "Try it")
    browser.refresh()
    page.find("h1", "Log in")


@expects("401 (Unauthorized)")
@pytest.mark.parametrize(("key", "buttons", "form"), [("read", 0, False), ("user", 0, True), ("admin", 4, True)])
def test_page_has_what_the_key_may_do(browser, secured, key, buttons, form):
    page = Page(browser, f"{secured.url}/v2/console")
    log_in(page, f"{key}-key")
    page.find("td.name", "iris-xgboost")
    assert len(page.all("td.actions button")) == buttons
    page.click("a", "iris-xgboost")
    page.find("h2", "Metadata")
    assert (page.all("button.main") != []) == form
    if not form:
        page.find("p", "Requests are not answered at this address, or not with this key.")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    for name in [HOSTILE, IMAGE, "a b/c?d#e%f", "'; rm -rf /; '", "x" * 300]:
        model(folder, name)
    model(folder, "odd-version", parameters={"version": IMAGE})
    with served(folder) as server:
        yield server


@pytest.mark.parametrize("name", [HOSTILE, IMAGE, "a b/c?d#e%f", "'; rm -rf /; '", "x" * 300])
def test_hostile_names_are_text(browser, hostile, name):
    page = Page(browser, f"{hostile.url}/v2/console")
    page.wait(lambda: name in page.names())
    link = next(link for link in page.all("td.name a") if link.text == name)
    link.click()
    page.wait(lambda: page.find("h1").text == name)
    page.click("button", "Predict")
    page.find("h2", "Answer after")
    curl = page.find("pre", "curl ").get_attribute("textContent")
    assert curl.startswith("curl 'http") and "'; rm" not in curl
    assert page.all("main script, main img") == []


def test_hostile_values_are_text(browser, hostile):
    page = Page(browser, f"{hostile.url}/v2/console#/model/{urllib.parse.quote(HOSTILE, safe='')}")
    page.click("button", "JSON")
    text = page.find("textarea[aria-label='Request as JSON']")
    request = {"inputs": [{"name": IMAGE, "shape": [1], "datatype": "BYTES", "data": [HOSTILE]}]}
    browser.execute_script("arguments[0].value = arguments[1]", text, json.dumps(request))
    page.click("button", "Predict")
    page.find("td", HOSTILE)
    page.find("h3", IMAGE)
    assert page.all("main script, main img") == []
    page.show("hostile")


def test_graph_is_drawn_as_an_image(browser, tmp_path):
    for step in ["encoder", HOSTILE]:
        model(tmp_path, step)
    steps = [{"name": "encoder"}, {"name": HOSTILE, "inputs": ["encoder"]}]
    spec = {"steps": steps, "output": {"steps": [HOSTILE]}}
    manifest = {"apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "p"}, "spec": spec}
    model(tmp_path, "pipeline", implementation="mlserver.Graph", parameters={"uri": "./graph.json"})
    (tmp_path / "2/graph.json").write_text(json.dumps(manifest))
    with served(tmp_path) as server:
        page = Page(browser, f"{server.url}/v2/console#/model/pipeline")
        image = page.find("section[aria-label=Graph] img")
        page.wait(lambda: browser.execute_script("return arguments[0].naturalWidth", image) > 100)
        page.find("dd", "graph")
        assert page.all("section[aria-label=Graph] .bars") == []
        page.click("button", "Predict")
        page.find("h2", "Answer after")
        times = page.find("section[aria-label=Graph] .bars", "How long each step took")
        assert "encoder" in times.text and HOSTILE in times.text
        page.show("graph")


def test_log_is_shown_as_text(browser, hostile):
    page = Page(browser, f"{hostile.url}/v2/console")
    page.click("summary", "Log")
    lines = page.find("pre.log", f"Loaded model '{HOSTILE}' successfully.")
    page.wait(lambda: browser.execute_script("const p = arguments[0]; return p.scrollTop + p.clientHeight + 4 >= p.scrollHeight", lines))
    assert page.all("main script, main img") == []


def test_memory_of_workers_is_shown_beside_their_models(browser, tmp_path):
    for name in ["one", "two"]:
        model(tmp_path, name, implementation="mlserver_identity.IdentityModel", parameters={"isolate": True})
    with served(tmp_path) as server:
        page = Page(browser, f"{server.url}/v2/console")
        page.find("#server", "MiB")
        page.find("table[aria-label=Models] td[data-label=Backend]", "MiB")
        page.find("section[aria-label=Workers]", "running")


def test_overview_of_two_thousand_models_has_pages_and_a_filter(browser, tmp_path):
    for number in range(2000):
        folder = tmp_path / f"m{number:04}"
        folder.mkdir()
        settings = {"name": f"model-{number:04}", "implementation": "mlserver_identity.IdentityModel"}
        (folder / "model-settings.json").write_text(json.dumps(settings))
    with served(tmp_path) as server:
        began = time.monotonic()
        page = Page(browser, f"{server.url}/v2/console")
        page.find("td.name", "model-0049")
        assert time.monotonic() - began < 10
        assert len(page.names()) == 50
        page.find("p", "2000 ready")
        page.click("button", "Next")
        page.find("td.name", "model-0050")
        page.find("input[type=search]").send_keys("1999")
        page.wait(lambda: page.names() == ["model-1999"])
        page.show("filtered")
        page.find("input[type=search]").clear()
        page.find("input[type=search]").send_keys("nothing", Keys.ENTER)
        page.find("p", "No model matches the filter")
        Select(page.find("select")).select_by_value("requests")


@expects("ERR_CONNECTION", "Failed to fetch", "ERR_EMPTY", "ERR_SOCKET")
def test_server_that_goes_away_is_noticed_and_found_again(browser, tmp_path):
    quickstart(tmp_path)
    with served(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        page = Page(browser, f"{server.url}/v2/console")
        page.find("td.name", "iris-xgboost")
    page.find("#connection", "does not answer; trying again")
    assert "iris-xgboost" in page.names(), "what was shown stays"
    page.show("gone")
    with served(tmp_path, MLSERVER_HTTP_PORT=port):
        page.find("#connection", "Updated")
        page.wait(lambda: "stale" not in page.find("main").get_attribute("class"))


def test_console_is_used_with_the_keyboard(browser, iris):
    page = Page(browser, f"{iris.url}/v2/console")
    page.find("td.name", "iris-xgboost")
    focused = []
    for _ in range(20):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        focused.append(
            browser.execute_script(
                "return (document.activeElement.textContent || document.activeElement.getAttribute('aria-label') || '').trim()"
            )
        )
    for control in ["Skip to the content", "mlserver", "Filter models by name", "iris-xgboost", "Reload"]:
        assert control in focused, focused
    browser.switch_to.active_element.send_keys(Keys.TAB)
    link = page.find("td.name a", "iris-xgboost")
    link.send_keys(Keys.ENTER)
    page.find("h1", "iris-xgboost")
    assert browser.execute_script("return document.activeElement.id") == "main"


@expects("404 (Not Found)")
def test_model_that_does_not_exist_is_an_error(browser, iris):
    page = Page(browser, f"{iris.url}/v2/console#/model/missing")
    page.find("p.error", "Model missing not found")
    page.click("a", "All models")
    page.find("td.name", "iris-xgboost")
