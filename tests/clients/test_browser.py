"""The documentation pages in a real browser, which cannot reach any other machine."""

import json

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from conftest import PATIENCE, SCREENSHOTS, Server, model, quickstart

@pytest.fixture(scope="module", params=["", "/pre"])
def pages(request, tmp_path_factory):
    """The server's address with and without a prefix in front of every path."""
    server = Server(quickstart(tmp_path_factory.mktemp("models")), MLSERVER_ROOT_PATH=request.param)
    yield server.wait_until_ready().url + request.param
    server.stop()


class Page:
    """A documentation page."""

    def __init__(self, browser, url):
        self.browser = browser
        browser.get_log("performance")
        browser.get(url)

    def find(self, selector):
        """Waits for an element and returns it."""
        wait = WebDriverWait(self.browser, PATIENCE)
        return wait.until(lambda browser: browser.find_element(By.CSS_SELECTOR, selector))

    def scroll_to(self, element):
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)

    def click(self, selector):
        element = self.find(selector)
        self.scroll_to(element)
        element.click()

    def show(self, name):
        """Saves a screenshot of the page for manual review."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.browser.save_screenshot(str(SCREENSHOTS / f"{name}.png"))

    def check(self, base):
        """Checks that the page has requested only this server, and that the browser logged no errors."""
        messages = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        assert urls
        assert [url for url in urls if not url.startswith((f"{base}/", "data:"))] == []
        assert self.browser.get_log("browser") == []


def test_try_it_out_calls_the_model(browser, pages):
    page = Page(browser, f"{pages}/v2/models/iris-xgboost/docs")
    title = page.find(".info .title").text
    assert title.startswith("Data Plane for Model iris-xgboost"), title
    assert browser.title == "MLServer API Docs - iris-xgboost"
    block = "#operations-inference-model-infer"
    page.click(f"{block} .opblock-summary-control")
    page.click(f"{block} .try-out__btn")
    example = json.loads(page.find(f"{block} textarea").get_attribute("value"))
    assert example["inputs"][0]["name"] == "input-0"
    page.click(f"{block} .execute")
    answer = json.loads(page.find(f"{block} .live-responses-table .response-col_description code").text)
    assert page.find(f"{block} .live-responses-table .response .response-col_status").text.strip() == "200"
    assert page.find(f"{block} .request-url pre").text == f"{pages}/v2/models/iris-xgboost/infer"
    assert answer["model_name"] == "iris-xgboost"
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["data"]) == ("predict", "INT64", [0])
    page.scroll_to(page.find(f"{block} .live-responses-table"))
    page.show("try-it-out" + ("-under-a-prefix" if pages.endswith("/pre") else ""))
    page.check(pages)


@pytest.mark.parametrize("path", ["/v2/docs", "/v2/models/breast-cancer-lightgbm/versions/v1.0.0/docs"])
def test_pages_show_every_operation(browser, pages, path):
    page = Page(browser, pages + path)
    page.find(".opblock")
    shown = browser.find_elements(By.CSS_SELECTOR, ".opblock-summary-path")
    fetch = "const [url, done] = arguments; fetch(url).then(answer => answer.json()).then(done)"
    document = browser.execute_async_script(fetch, f"{pages}{path}/dataplane.json")
    assert {element.get_attribute("data-path") for element in shown} == set(document["paths"])
    page.show(path.strip("/").replace("/", "-"))
    page.check(pages)


def test_pages_content_security_policy_blocks_other_hosts(browser, pages):
    """Also shows that the other tests would notice a blocked request."""
    Page(browser, f"{pages}/v2/docs").find(".opblock")
    fetch = "const [url, done] = arguments; fetch(url).then(() => done('asked'), () => done('refused'))"
    assert browser.execute_async_script(fetch, "http://127.0.0.1:9/") == "refused"
    complaints = [entry["message"] for entry in browser.get_log("browser")]
    assert any("connect-src 'self'" in complaint for complaint in complaints), complaints


STEPS = ["encoder", "<script>", "long-name-of-a-model-that-detects-drift", "a & b", "decoder"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A server with a graph of five steps, one of which has the name of an element."""
    folder = tmp_path_factory.mktemp("graph")
    for step in STEPS:
        model(folder, step)
    encoder, script, drift, both, decoder = STEPS
    steps = [
        {"name": encoder},
        {"name": script, "inputs": [f"{encoder}.outputs.tokens"]},
        {"name": drift, "inputs": [encoder]},
        {"name": both, "inputs": [script], "triggers": [encoder]},
        {"name": decoder, "inputs": [both, f"{encoder}.outputs.<i>"]},
    ]
    manifest = {
        "apiVersion": "mlops.seldon.io/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": "pipeline"},
        "spec": {"steps": steps, "output": {"steps": [decoder]}},
    }
    model(folder, "pipeline", implementation="mlserver.Graph", parameters={"uri": "./graph.json"})
    (folder / str(len(STEPS)) / "graph.json").write_text(json.dumps(manifest))
    server = Server(folder)
    yield server.wait_until_ready().url
    server.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_of_a_graph_draws_its_steps(browser, graph, scheme):
    feature = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
    page = Page(browser, f"{graph}/v2/models/pipeline/docs")
    page.find(".opblock")
    steps = browser.find_elements(By.CSS_SELECTOR, "svg.graph .graph-step")
    read = "return arguments[0].querySelector('title').textContent"
    assert sorted(browser.execute_script(read, step) for step in steps) == sorted(STEPS)
    sizes = [(step.rect["width"], step.rect["height"]) for step in steps]
    assert all(width > 0 and height > 0 for width, height in sizes), sizes
    name = browser.find_element(By.CSS_SELECTOR, "svg.graph .graph-step text")
    dark = name.value_of_css_property("fill") == "rgb(228, 228, 228)"
    assert dark == (scheme == "dark")
    labels = browser.find_elements(By.CSS_SELECTOR, "svg.graph .graph-label")
    assert {label.text for label in labels} >= {"tokens", "trigger", "<i>"}
    page.show(f"graph-{scheme}")
    page.check(graph)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
