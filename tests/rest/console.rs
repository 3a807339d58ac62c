//! The web console: its page, and the data behind it. `tests/clients/test_console.py` uses it in a browser.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Client, Folder, IRIS, ServerBuilder, TestServer, announced_address, wait_until};

const PAGE: &str = "/v2/console";
const DATA: &str = "/v2/console/data";
const LOG: &str = "/v2/console/log";
const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

fn get(client: &Client, path: &str, headers: &[(&str, &str)]) -> Answer {
    client.request(&Method::GET, path, headers, b"")
}

fn files(page: &Answer) -> Vec<String> {
    let parts = page.text().split("=\"").skip(1).filter_map(|rest| rest.split('"').next());
    parts.filter(|value| value.contains("assets/")).map(str::to_owned).collect()
}

#[test]
fn console_page_has_a_strict_policy_and_cacheable_files() {
    let server = TestServer::iris();
    let page = server.get(PAGE);
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(!policy.contains("unsafe") && policy.contains("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("connect-src 'self'"), "{policy}");
    assert!(!page.text().contains("iris"), "the page holds no data");
    for inline in ["style=", "onclick=", "<style", "http://", "https://"] {
        assert!(!page.text().contains(inline), "{inline}");
    }
    let tag = page.header("etag").to_owned();
    let again = get(&server, PAGE, &[("if-none-match", &tag)]);
    assert_eq!((again.status, again.text()), (304, ""));
    let files = files(&page);
    assert_eq!(files.len(), 2, "{files:?}");
    for file in &files {
        let asset = server.get(&format!("/v2/{file}"));
        assert_eq!((asset.status, asset.header("x-content-type-options")), (200, "nosniff"), "{file}");
        assert_eq!(asset.header("cache-control"), "public, max-age=31536000, immutable", "{file}");
    }
    let main = server.get(&format!("/v2/{}", files.iter().find(|file| file.contains("main.js")).unwrap()));
    let imported: Vec<_> = main.text().split("from \"./").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(imported.len() >= 4, "{imported:?}");
    for module in imported {
        assert_eq!(server.get(&format!("{PAGE}/assets/{module}")).status, 200, "{module}");
    }
    for path in ["main.js", "0-main.js", "%2e%2e%2fpage.html"] {
        server.get(&format!("{PAGE}/assets/{path}")).error(404);
    }
}

#[test]
fn root_is_the_console_for_browsers_only() {
    let server = TestServer::iris();
    let page = get(&server, "/", &[BROWSER]);
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.header("vary").contains("accept") && page.header("content-security-policy").contains("'none'"));
    for file in files(&page) {
        assert_eq!(server.get(&format!("/{file}")).status, 200, "{file}");
    }
    for headers in [vec![], vec![("accept", "*/*")], vec![("accept", "application/json")]] {
        let alive = get(&server, "/", &headers);
        assert_eq!(alive.ok(), json!({"status": "alive"}), "{headers:?}");
        assert!(alive.header("vary").contains("accept"), "{headers:?}");
    }
}

#[test]
fn console_can_be_switched_off() {
    let server = TestServer::start(Folder::iris().settings(&json!({"console": false})));
    for path in [PAGE, DATA, LOG, "/v2/console/assets/x", "/v2/console/models/iris-xgboost"] {
        server.get(path).error(404);
    }
    let alive = get(&server, "/", &[BROWSER]);
    assert_eq!((alive.ok(), alive.header("vary")), (json!({"status": "alive"}), ""));
}

#[test]
fn admin_port_alone_has_the_right_to_change_models() {
    let folder = Folder::new().with_identity("echo").settings(&json!({"admin_port": 0}));
    let server = TestServer::start(folder);
    let line = server.wait_for_log("Admin server running on ");
    let admin = Client::new(announced_address(&(line + "\n"), "Admin").unwrap());
    for client in [&server as &Client, &admin] {
        let page = client.get(PAGE);
        assert_eq!(page.status, 200);
        for file in files(&page) {
            assert_eq!(client.get(&format!("/v2/{file}")).status, 200, "{file}");
        }
        assert_eq!(client.get("/v2/console/models/echo").ok()["model"]["name"], "echo");
    }
    let rights = |client: &Client| client.get(DATA).ok()["rights"].clone();
    assert_eq!(rights(&server), json!({"infer": true, "change": false, "details": true, "log": true}));
    assert_eq!(rights(&admin), json!({"infer": false, "change": true, "details": true, "log": true}));
}

#[test]
fn console_data_counts_requests_of_the_last_ten_minutes() {
    let server = TestServer::iris();
    let body = json!({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]});
    for path in ["/v2/models/iris-xgboost/infer", "/v2/models/iris-xgboost/versions/v1.0.0/infer"] {
        server.post(path, body.to_string()).ok();
    }
    server
        .post(
            "/v2/models/iris-xgboost/infer",
            r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}"#,
        )
        .error(400);
    let model = || server.get(DATA).ok()["models"][0].clone();
    wait_until("a sample has the requests", || model()["requests"] == json!(3));
    let model = model();
    assert_eq!(
        (&model["failures"], &model["state"], &model["backend"]),
        (&json!(1), &json!("READY"), &json!("native"))
    );
    assert_eq!(model["requests_per_second"], json!(3.0 / 60.0));
    let series = |name: &str| model["series"][name].as_array().unwrap().clone();
    assert_eq!(series("requests").len(), 60);
    assert_eq!(series("requests").iter().filter_map(Value::as_u64).sum::<u64>(), 3);
    assert!(model["p50"].as_f64().unwrap() > 0.0 && model["p99"].as_f64().unwrap() < 10.0, "{model}");
    assert!(series("p99").iter().filter(|value| !value.is_null()).count() >= 1);
}

#[test]
fn console_data_is_selected_and_limited_by_the_query() {
    let mut folder = Folder::new();
    for name in ["a", "b", "B2", "c", "<script>alert(1)</script>"] {
        folder = folder.with_identity(name);
    }
    let server = TestServer::start(folder);
    let names = |query: &str| {
        let data = server.get(&format!("{DATA}?{query}")).ok();
        let names = data["models"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap().to_owned());
        (data["total"].as_u64().unwrap(), names.collect::<Vec<_>>())
    };
    assert_eq!(names("").0, 5);
    assert_eq!(names("filter=b"), (2, vec!["B2".to_owned(), "b".to_owned()]));
    assert_eq!(names("filter=%3Cscript").1, ["<script>alert(1)</script>"]);
    assert_eq!(names("offset=1&limit=1&sort=state").1.len(), 1);
    assert_eq!(names("offset=99").1, [""; 0]);
    for bad in ["limit=201", "limit=x", "sort=size", "offset=-1"] {
        let error = server.get(&format!("{DATA}?{bad}")).error(400);
        assert!(error.starts_with("invalid `"), "{error}");
    }
    let described = server.get("/v2/console/models/a").ok();
    assert_eq!(described["metadata"]["name"], "a");
    server.get("/v2/console/models/missing").error(404);
}

#[test]
fn console_example_of_a_model_works() {
    let server = TestServer::quickstart();
    for model in ["iris-xgboost", "breast-cancer-lightgbm"] {
        let described = server.get(&format!("/v2/console/models/{model}")).ok();
        let example = &described["example"];
        assert!(example.is_object(), "{described}");
        server.post(&format!("/v2/models/{model}/infer"), example.to_string()).ok();
    }
    server.get("/v2/console/models/iris-xgboost?model_version=v1.0.0").ok();
    server.get("/v2/console/models/iris-xgboost?model_version=v9").error(404);
}

#[test]
fn console_example_is_one_that_the_model_has_answered() {
    let declared = |columns: i64| json!([{"name": "x", "datatype": "FP32", "shape": [-1, columns]}]);
    let folder = Folder::new()
        .with_iris("undeclared", &json!({"name": "undeclared"}))
        .with_iris("wrong", &json!({"name": "wrong", "inputs": declared(3)}))
        .with_identity("echo");
    let server = TestServer::start(folder);
    let described = |model: &str| server.get(&format!("/v2/console/models/{model}")).ok();
    for model in ["undeclared", "wrong"] {
        let described = described(model);
        assert_eq!(described["example_answered"], true, "{described}");
        server.post(&format!("/v2/models/{model}/infer"), described["example"].to_string()).ok();
    }
    let echo = described("echo");
    assert_eq!((&echo["example"], &echo["example_answered"]), (&Value::Null, &Value::Null), "it reads no file");
    // Nobody sees that a request was tried.
    let row = |model: &str| described(model)["model"]["in_flight"].clone();
    assert_eq!(row("wrong"), 0);
    assert!(!server.log().contains("wrong\" failed"), "{}", server.log());
}

#[test]
fn console_has_the_end_of_the_log() {
    let server = TestServer::iris();
    let lines = || server.get(LOG).ok()["lines"].as_array().unwrap().clone();
    let has = |text: &str| lines().iter().any(|line| line.as_str().unwrap().contains(text));
    assert!(has("Loaded model 'iris-xgboost' successfully."), "{:?}", lines());
    // Each load writes a line, and its audit record.
    for _ in 0..105 {
        assert_eq!(server.post(&format!("/v2/repository/models/{IRIS}/load"), "").status, 200);
    }
    server.post("/v2/repository/models/missing/load", "").error(404);
    wait_until("the last line is there", || has("Audit: load of model 'missing'"));
    let lines = lines();
    assert_eq!(lines.len(), 200);
    assert!(lines.iter().all(|line| line.as_str().unwrap().len() <= 2500));
}

#[test]
fn console_knows_how_long_the_steps_of_a_graph_took() {
    let spec = json!({"steps": [{"name": "a"}, {"name": "b", "inputs": ["a"]}], "output": {"steps": ["b"]}});
    let manifest =
        json!({"apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "g"}, "spec": spec});
    let settings = json!({"name": "g", "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.json"}});
    let folder = Folder::new().with_identity("a").with_identity("b");
    let folder = folder.file("g/model-settings.json", settings.to_string()).file("g/graph.json", manifest.to_string());
    let server = TestServer::start(folder);
    let times = |model: &str| server.get(&format!("/v2/console/models/{model}")).ok()["step_seconds"].clone();
    assert_eq!((times("g"), times("a")), (json!({}), Value::Null));
    server.post("/v2/models/g/infer", r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}"#).ok();
    let times = times("g");
    for step in ["a", "b"] {
        assert!(times[step].as_f64().is_some_and(|seconds| seconds > 0.0 && seconds < 60.0), "{times}");
    }
}

#[test]
fn details_are_for_clients_on_this_machine_without_access_control() {
    let broken = json!({"name": "broken", "implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": "./gone.json"}});
    let folder = Folder::new().file("broken/model-settings.json", broken.to_string());
    let server = ServerBuilder::new(folder.settings(&json!({"exit_on_load_failure": false}))).listen();
    wait_until("the load has failed", || server.get(DATA).ok()["models"][0]["state"] == "FAILED");
    let seen = |headers: &[(&str, &str)]| {
        let data = get(&server, DATA, headers).ok();
        let log = get(&server, LOG, headers).ok()["lines"].is_array();
        assert_eq!(data["server"]["resident_bytes"].is_u64(), log, "{data}");
        (
            data["models"][0].get("reason").is_some(),
            data["workers"].is_array(),
            data["rights"]["details"] == true && log,
        )
    };
    assert_eq!(seen(&[]), (true, true, true));
    for passed_on in [
        ("x-forwarded-for", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("via", "1.1 proxy"),
        ("host", "evil.example"),
        ("origin", "http://evil.example"),
    ] {
        assert_eq!(seen(&[passed_on]), (false, false, false), "{passed_on:?}");
    }
}
