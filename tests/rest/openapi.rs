//! The documentation: pages, their assets, and the `OpenAPI` documents, as browsers and client generators fetch them.
//!
//! `tests/clients` checks the documents against real responses.

use std::io::Read;

use flate2::read::GzDecoder;
use http::Method;
use serde_json::json;

use crate::support::{Answer, Folder, TestServer};

const IRIS_DOCS: &str = "/v2/models/iris-xgboost/docs";
const VERSION_DOCS: &str = "/v2/models/iris-xgboost/versions/v1.0.0/docs";

/// Returns the URLs that a page refers to, except data URLs.
fn links(page: &Answer) -> Vec<String> {
    let attributes = ["src=\"", "href=\""];
    let starts = attributes.into_iter().flat_map(|attribute| page.text().split(attribute).skip(1));
    let links = starts.filter_map(|rest| rest.split('"').next()).filter(|link| !link.starts_with("data:"));
    links.map(str::to_owned).collect()
}

/// Resolves a relative URL as a browser does.
fn resolve(base: &str, link: &str) -> String {
    let mut segments: Vec<&str> = base.split('/').collect();
    segments.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(segments.pop()),
            "." => {}
            part => segments.push(part),
        }
    }
    segments.join("/")
}

#[test]
fn openapi_pages_are_titled_by_model() {
    let odd = r#"a "b" <c>&{start.js}"#;
    let server = TestServer::start(Folder::iris().with_iris("odd", &json!({"name": odd})));
    let title = |path: &str| {
        let page = server.get(path);
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"), "{path}");
        let (_, rest) = page.text().split_once("<title>").unwrap();
        rest.split_once("</title>").unwrap().0.to_owned()
    };
    assert_eq!(title("/v2/docs"), "MLServer API Docs");
    assert_eq!(title(IRIS_DOCS), "MLServer API Docs - iris-xgboost");
    assert_eq!(title(VERSION_DOCS), "MLServer API Docs - iris-xgboost (v1.0.0)");
    assert_eq!(title(&format!("{IRIS_DOCS}?model_version=v1.0.0")), "MLServer API Docs - iris-xgboost (v1.0.0)");
    let path = "/v2/models/a%20%22b%22%20%3Cc%3E%26%7Bstart.js%7D/docs";
    assert_eq!(title(path), "MLServer API Docs - a &quot;b&quot; &lt;c&gt;&amp;{start.js}");
}

#[test]
fn openapi_page_of_a_graph_draws_its_steps() {
    let step = r#"<script>alert("1")</script>&{start.js}{drawing}"#;
    let manifest = json!({
        "apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "p"},
        "spec": {"steps": [{"name": step}, {"name": "plain", "inputs": [step]}], "output": {"steps": ["plain"]}},
    });
    let name = "{drawing}{graph.css}";
    let settings = json!({"name": name, "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.json"}});
    let odd = json!({"name": step, "implementation": "mlserver_identity.IdentityModel"});
    let folder = Folder::new().with_identity("plain").file("odd/model-settings.json", odd.to_string());
    let folder =
        folder.file("graph/graph.json", manifest.to_string()).file("graph/model-settings.json", settings.to_string());
    let server = TestServer::start(folder.settings(&json!({"root_path": "/pre"})));
    let path = "/pre/v2/models/%7Bdrawing%7D%7Bgraph.css%7D/docs";
    let page = server.get(path);
    let text = page.text();
    assert_eq!(text.matches("<script").count(), 2, "the scripts of Swagger UI: {text}");
    assert!(text.contains("<title>MLServer API Docs - {drawing}{graph.css}</title>"), "{text}");
    let (_, section) = text.split_once("<section").unwrap();
    let (drawing, _) = section.split_once("</section>").unwrap();
    assert!(
        drawing.contains("<title>&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;{start.js}{drawing}</title>"),
        "{drawing}"
    );
    assert!(drawing.contains(">plain</text>") && !drawing.contains("style="), "{drawing}");
    let style = links(&page).into_iter().find(|link| link.ends_with("-graph.css")).unwrap();
    let style = server.get(&resolve(path, &style));
    assert_eq!((style.status, style.header("content-type")), (200, "text/css; charset=utf-8"));
    assert!(style.text().contains("prefers-color-scheme: dark"));
    assert!(!server.get("/v2/models/plain/docs").text().contains("<section"), "only graphs have a drawing");
}

#[test]
fn openapi_works_under_any_prefix() {
    let server = TestServer::start(Folder::iris().settings(&json!({"root_path": "/pre"})));
    for prefix in ["", "/pre"] {
        for page in ["/v2/docs", IRIS_DOCS, VERSION_DOCS] {
            let base = format!("{prefix}{page}");
            let links = links(&server.get(&base));
            assert_eq!(links.len(), 4, "a style, a document and two scripts: {links:?}");
            for link in links {
                let path = resolve(&base, &link);
                assert!(path.starts_with(&format!("{prefix}/v2/")), "{path}");
                assert_eq!(server.get(&path).status, 200, "{path}");
            }
            let document = format!("{base}/dataplane.json");
            let address = server.get(&document).ok()["servers"][0]["url"].as_str().unwrap().to_owned();
            assert_eq!(resolve(&document, &address), prefix);
        }
    }
    assert_eq!(
        resolve("/pre/openapi.json", server.get("/openapi.json").ok()["servers"][0]["url"].as_str().unwrap()),
        "/pre"
    );
}

#[test]
fn openapi_assets_are_compressed_and_immutable() {
    let server = TestServer::start(Folder::iris());
    for link in links(&server.get("/v2/docs")).iter().filter(|link| link.contains("assets")) {
        let path = resolve("/v2/docs", link);
        let plain = server.get(&path);
        assert_eq!(plain.header("cache-control"), "public, max-age=31536000, immutable", "{path}");
        assert_eq!(plain.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(plain.header("content-encoding"), "", "{path}");
        let kind = if path.contains(".css") { "text/css; charset=utf-8" } else { "text/javascript; charset=utf-8" };
        assert_eq!(plain.header("content-type"), kind);
        if path.ends_with("-start.js") {
            continue;
        }
        let mut connection = server.connect();
        connection.write(format!("GET {path} HTTP/1.1\r\nhost: test\r\naccept-encoding: gzip\r\n\r\n"));
        let short = connection.answer();
        assert_eq!((short.header("content-encoding"), short.header("vary")), ("gzip", "accept-encoding"), "{path}");
        let mut text = Vec::new();
        GzDecoder::new(short.body.as_slice()).read_to_end(&mut text).unwrap();
        assert!(text == plain.body, "{path}: compressed and plain differ");
    }
    assert_eq!(server.get("/v2/docs/assets/0-start.js").error(404), "no such path: /v2/docs/assets/0-start.js");
}

#[test]
fn openapi_etag_avoids_resending() {
    let server = TestServer::start(Folder::iris());
    for path in ["/v2/docs", IRIS_DOCS, "/openapi.json", "/v2/models/iris-xgboost/docs/dataplane.json"] {
        let answer = server.get(path);
        assert_eq!(answer.header("cache-control"), "no-cache", "{path}");
        let tag = answer.header("etag");
        let asked = |known: &str| server.request(&Method::GET, path, &[("if-none-match", known)], b"");
        for known in [tag, &format!("\"other\", {}", tag.trim_start_matches("W/")), "*"] {
            let answer = asked(known);
            assert_eq!((answer.status, answer.body.len(), answer.header("etag")), (304, 0, tag), "{path} {known}");
        }
        assert_eq!(asked("\"other\"").body, answer.body, "{path}");
    }
}

#[test]
fn openapi_pages_load_nothing_external() {
    let server = TestServer::start(Folder::iris());
    let page = server.get("/v2/docs");
    assert!(!page.text().contains("//"), "{}", page.text());
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
}

#[test]
fn openapi_unknown_model_or_version_answers_404() {
    let server = TestServer::start(Folder::iris());
    for suffix in ["docs", "docs/dataplane.json"] {
        assert_eq!(server.get(&format!("/v2/models/nope/{suffix}")).error(404), "Model nope not found");
        let other = server.get(&format!("/v2/models/iris-xgboost/versions/2/{suffix}"));
        assert_eq!(other.error(404), "Model iris-xgboost with version 2 not found");
    }
    assert_eq!(server.post("/v2/docs", "").error(405), "/v2/docs does not support POST");
}

#[test]
fn openapi_model_document_shows_inputs_and_outputs() {
    let server = TestServer::start(Folder::iris());
    let document = server.get("/v2/models/iris-xgboost/docs/dataplane.json").ok();
    let body = &document["components"]["requestBodies"]["InferenceRequest"]["content"]["application/json"]["example"];
    let answer = server.post("/v2/models/iris-xgboost/infer", body.to_string());
    assert_eq!(answer.ok()["outputs"][0]["name"], "predict", "the example works");
    let schemas = &document["components"]["schemas"];
    assert_eq!(document["info"]["title"], "Data Plane for Model iris-xgboost");
    assert_eq!(
        *body,
        json!({ "inputs": [{ "name": "input-0", "shape": [1, 4], "datatype": "FP32", "data": [0.5, 0.5, 0.5, 0.5] }] })
    );
    let input = &schemas["RequestInput"];
    assert_eq!((&input["title"], &input["description"]), (&json!("input-0"), &json!("FP32 [-1, 4]")));
    assert_eq!(input["properties"]["name"]["enum"], json!(["input-0"]));
    assert_eq!(input["properties"]["datatype"]["enum"], json!(["FP32"]));
    let shape = &input["properties"]["shape"];
    assert_eq!((&shape["minItems"], &shape["maxItems"]), (&json!(2), &json!(2)));
    assert_eq!(schemas["RequestOutput"]["properties"]["name"]["enum"], json!(["predict", "predict_proba"]));
    let outputs = schemas["ResponseOutput"]["anyOf"].as_array().unwrap();
    let described: Vec<_> = outputs.iter().map(|output| output["description"].as_str().unwrap()).collect();
    assert_eq!(described, ["INT64 [-1, 1]", "FP32 [-1, 3]"]);
}
