//! Custom routes of models in Python. Their arguments are tested in `python/tests`.

use std::fs;
use std::sync::mpsc;
use std::thread;

use http::Method;
use serde_json::{Value, json};

use crate::support::python::python;
use crate::support::{Folder, ServerBuilder, TestServer, gzip, repository_path};

/// Creates a folder with models of `tests/fixtures/workers/handlers.py`, by name and class.
fn folder(models: &[(&str, &str)]) -> Folder {
    let source = fs::read(repository_path("tests/fixtures/workers/handlers.py")).unwrap();
    models.iter().fold(Folder::new(), |folder, (name, class)| {
        let settings = json!({"name": name, "implementation": format!("models.{class}")});
        folder
            .file(&format!("{name}/models.py"), &source)
            .file(&format!("{name}/model-settings.json"), settings.to_string())
    })
}

fn starting(folder: Folder, settings: &Value) -> Option<ServerBuilder> {
    let python = python()?;
    Some(ServerBuilder::new(folder.settings(settings)).env("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap()))
}

fn server(models: &[(&str, &str)], settings: &Value) -> Option<TestServer> {
    Some(starting(folder(models), settings)?.start())
}

#[test]
fn custom_route_passes_request_and_response_unchanged() {
    let Some(server) = server(&[("m", "Routes")], &json!({})) else { return };
    let headers = [("x-many", "a"), ("x-many", "b"), ("content-type", "text/plain")];
    let answer = server.request(&Method::PUT, "/echo/a%20b?q=%31&q=2", &headers, b"\x00\xff raw");
    assert_eq!((answer.status, answer.body.as_slice()), (201, b"\x00\xff raw".as_slice()));
    let found: Vec<_> =
        ["content-type", "x-name", "x-query", "x-method", "x-seen"].map(|name| answer.header(name)).into();
    assert_eq!(found, ["application/x-raw", "a b", "q=%31&q=2", "PUT", "a,b"]);
    assert_eq!(server.get("/files/a/b%20c").ok(), json!("a/b c"));
    assert_eq!(server.get("/v2/models/other/own").ok(), json!("m for other"));
    assert_eq!(server.request(&Method::HEAD, "/files/x", &[], b"").status, 200);
    assert_eq!(server.get("/echo/x").error(405), "/echo/x does not support GET");
    assert_eq!(server.get("/echo/x").header("allow"), "PUT");
    assert_eq!(server.get("/echo").error(404), "no such path: /echo");
}

#[test]
fn custom_route_body_is_decompressed_and_limited() {
    let Some(server) = server(&[("m", "Routes")], &json!({"http_max_body_bytes": 100})) else { return };
    let answer = server.request(&Method::PUT, "/echo/x", &[("content-encoding", "gzip")], &gzip(b"compressed"));
    assert_eq!(answer.body, b"compressed");
    server.request(&Method::PUT, "/echo/x", &[], &[0; 101]).error(413);
}

#[test]
fn custom_route_errors_match_inference_errors() {
    let Some(server) = server(&[("m", "Routes")], &json!({})) else { return };
    assert_eq!(server.post("/trouble/refuse", "").error(418), "no tea");
    assert_eq!(server.post("/trouble/fail", "").error(500), "builtins.ValueError: boom");
    server.wait_for_log("ValueError: boom");
    assert!(server.post("/trouble/status", "").error(500).contains("status 42"));
    assert!(server.post("/trouble/header", "").error(500).contains("`x-bad`"));
    assert!(server.post("/trouble/exit", "").error(503).contains("exited with code 3"));
    assert!(server.post("/trouble/none", "").ok().is_number(), "the next worker answers");
    let metrics = server.scrape();
    let series = "rest_server_requests_total{app_name=\"mlserver\",method=\"POST\",path=\"/trouble/{what}\"";
    assert!(metrics.text().contains(&format!("{series},status_code=\"200\"}} 1")), "{}", metrics.text());
    assert!(metrics.text().contains(&format!("{series},status_code=\"418\"}} 1")), "{}", metrics.text());
    assert!(metrics.text().contains("tests_handled_count{model_name=\"m\",model_version=\"\"} 1"));
    let counted = metrics.text().lines().find(|line| line.starts_with("model_infer_request_success_total{model=\"m\""));
    assert!(counted.is_none_or(|line| line.ends_with(" 0")), "{counted:?}: they are no inferences");
}

#[test]
fn custom_route_plain_handler_does_not_block_and_sees_disconnect() {
    let Some(server) = server(&[("m", "Routes")], &json!({})) else { return };
    let client = crate::support::Client::new(server.http);
    let held = thread::spawn(move || client.get("/held").ok());
    server.wait_for_log("the thread is held");
    assert_eq!(server.get("/files/x").ok(), json!("x"), "it is answered while the plain handler runs");
    fs::write(server.folder.path("m/released"), "").unwrap();
    assert_eq!(held.join().unwrap(), json!("held"));
    let mut connection = server.connect();
    connection.write("GET /wait HTTP/1.1\r\nhost: x\r\n\r\n");
    server.wait_for_log("begun");
    drop(connection);
    server.wait_for_log("saw the cancellation");
}

#[test]
fn custom_route_has_the_timeouts_and_the_queue_of_its_model() {
    let source = fs::read(repository_path("tests/fixtures/workers/handlers.py")).unwrap();
    let start = |parameters: Value| {
        let settings = json!({"name": "m", "implementation": "models.Routes", "parameters": parameters});
        let folder = Folder::new().file("m/models.py", &source).file("m/model-settings.json", settings.to_string());
        Some(starting(folder, &json!({}))?.start())
    };
    let Some(server) = start(json!({"predict_timeout": 0.1})) else { return };
    assert_eq!(server.get("/plain").error(504), "`predict_timeout` (0.1 s) exceeded");
    drop(server);
    let Some(server) = start(json!({"request_timeout": 0.1})) else { return };
    assert_eq!(server.get("/plain").error(504), "`request_timeout` (0.1 s) exceeded");
    drop(server);

    let Some(server) = start(json!({"max_queue_requests": 1})) else { return };
    let answer = server.request(&Method::GET, "/plain", &[("request-timeout", "0.1")], b"");
    assert_eq!(answer.error(504), "the client's deadline has passed");
    overload(&server, 503);
    drop(server);
    let settings = json!({"name": "m", "implementation": "models.Routes", "parameters": {"max_queue_requests": 1}});
    let folder = Folder::new().file("m/models.py", &source).file("m/model-settings.json", settings.to_string());
    let Some(starting) = starting(folder, &json!({"overload_as_429": true})) else { return };
    overload(&starting.start(), 429);
}

/// Sends more calls of one route than its model may have waiting, and expects `refusal` for the others.
fn overload(server: &TestServer, refusal: u16) {
    // Plain handlers run one at a time: one of these runs, one waits, and the others are too many.
    let (ended, statuses) = mpsc::channel();
    let statuses: Vec<_> = thread::scope(|scope| {
        for _ in 0..6 {
            let ended = ended.clone();
            scope.spawn(move || {
                let answer = server.get("/held");
                ended.send((answer.status, answer.headers.contains_key("retry-after"))).unwrap();
            });
        }
        drop(ended);
        let first = statuses.recv();
        fs::write(server.folder.path("m/released"), "").unwrap();
        first.into_iter().chain(statuses).collect()
    });
    assert_eq!(statuses[0], (refusal, true), "{statuses:?}: none of the others can end before");
    assert!(statuses.contains(&(200, false)), "{statuses:?}");
    assert!(statuses.iter().all(|answer| [(200, false), (refusal, true)].contains(answer)), "{statuses:?}");
}

#[test]
fn custom_route_follows_load_and_unload() {
    let Some(starting) = starting(folder(&[("a", "Routes"), ("b", "Second")]), &json!({})) else { return };
    let server = starting.start();
    let warning = "`GET /plain` is already served by model";
    server.wait_for_log(warning);
    let log = server.log();
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    let first =
        if log.contains("already served by model 'a'") { ("a", json!("plain")) } else { ("b", json!("second")) };
    assert_eq!(server.get("/plain").ok(), first.1);
    assert_eq!(server.post(&format!("/v2/repository/models/{}/unload", first.0), "").status, 200);
    let second = if first.0 == "a" { json!("second") } else { json!("plain") };
    assert_eq!(server.get("/plain").ok(), second, "what was hidden is there");
    assert_eq!(server.post(&format!("/v2/repository/models/{}/load", first.0), "").status, 200);
    assert_eq!(server.get("/plain").ok(), second, "the one that was there first");
    for model in ["a", "b"] {
        assert_eq!(server.post(&format!("/v2/repository/models/{model}/unload"), "").status, 200);
    }
    server.get("/plain").error(404);
}

#[test]
fn custom_route_conflict_fails_the_load() {
    let cases = [
        ("Collides", "the model's route `/v2/models/{model}/infer` is served by the server itself"),
        ("Reserved", "the model's route `/v1/models/{model}` is served by the server itself"),
        ("NoPath", "cannot serve route `words/{x:slug}` of handler `words`: it does not begin with `/`"),
        ("Unreadable", "cannot read the arguments of handler `other`: name 'Undefined' is not defined"),
    ];
    for (class, reason) in cases {
        let Some(starting) = starting(folder(&[("m", class)]), &json!({})) else { return };
        let ended = starting.run();
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        assert!(ended.stdout.contains(reason), "{class}: {}", ended.stdout);
    }
}
