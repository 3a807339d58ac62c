//! Bodies of KServe's V1 protocol that are made to cause harm, to native models and to a `kserve.Model`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::python::{python, with_python};
use crate::support::{Answer, Folder, TestServer};

/// How long any of the requests may take in a debug build on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// How much memory all of the requests may have taken at the same time, in KiB. The longest body has 4 MiB.
const LITTLE: u64 = 96 * 1024;

/// The same for a worker, in which JSON becomes objects of Python.
const OF_PYTHON: u64 = 256 * 1024;

const JSON: &str = "application/json";
const EVENT: &str = "application/cloudevents+json";

/// Returns its instances, or the worker's peak memory in KiB.
const ECHO: &str = r#"
import resource

from kserve import Model


class Echo(Model):
    def __init__(self, name):
        super().__init__(name)
        self.ready = True

    def predict(self, payload, headers=None):
        if payload["instances"] == ["peak"]:
            return {"predictions": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
        return {"predictions": payload["instances"]}

    explain = predict
"#;

fn repeated(count: usize, part: &str) -> String {
    vec![part; count].join(",")
}

fn keys(count: usize) -> String {
    (0..count).map(|key| format!(r#""k{key}":1"#)).collect::<Vec<_>>().join(",")
}

fn instances(value: impl AsRef<[u8]>) -> Vec<u8> {
    [br#"{"instances":"#, value.as_ref(), b"}"].concat()
}

/// Bodies that are not JSON, or nested too deeply.
fn unreadable() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("open lists", instances("[".repeat(1_000_000))),
        ("closed lists", instances("[".repeat(200_000) + &"]".repeat(200_000))),
        ("open objects", instances("[".to_owned() + &r#"{"a":"#.repeat(200_000))),
        ("objects in an unknown key", r#"{"x":"#.repeat(300_000).into_bytes()),
        ("a long integer", instances(format!("[{}]", "9".repeat(1_000_000)))),
        ("invalid UTF-8", instances(b"[\"\xff\xfe\"]")),
        ("an invalid UTF-8 key", instances(b"[{\"\xff\":1}]")),
        ("overlong UTF-8", instances(b"[\"\xc0\x80\"]")),
        ("a surrogate in UTF-8", instances(b"[\"\xed\xa0\x80\"]")),
        ("bytes before the object", [b"\xff\xfe", &instances("[1]")[..]].concat()),
        ("UTF-16", r#"{"instances":[1]}"#.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("a lone surrogate", instances(r#"["\ud800"]"#)),
        ("surrogates in the wrong order", instances(r#"["\udc00\ud800"]"#)),
        ("a surrogate in a key", instances(r#"[{"\uDfff":1}]"#)),
        ("NaN", instances("[NaN]")),
        ("Infinity", instances("[Infinity]")),
        ("-Infinity", instances("[1,-Infinity]")),
        ("a truncated literal", instances("[nul]")),
        ("a truncated list", br#"{"instances":[[1,2"#.to_vec()),
        ("a truncated text", br#"{"instances":["a"#.to_vec()),
        ("a truncated escape", br#"{"instances":["\u00"#.to_vec()),
        ("a truncated object", br#"{"instances":[1]"#.to_vec()),
        ("two objects", [instances("[1]"), instances("[1]")].concat()),
        ("a line break in a text", instances("[\"a\nb\"]")),
        ("a NUL byte", vec![0]),
        ("nothing", Vec::new()),
        ("a text of instances", instances(r#""word""#)),
        ("an object of instances", instances(r#"{"a":1}"#)),
        ("null instances", instances("null")),
    ]
}

/// Valid JSON that does not fit tensors.
fn no_tensors() -> Vec<(&'static str, Vec<u8>)> {
    let columns = format!("[{{{}}}]", keys(70_000));
    vec![
        ("ragged rows", instances("[[1,2],[3]]")),
        ("ragged inner rows", instances("[[[1],[2]],[[3]]]")),
        ("mixed elements", instances(r#"[1,"a",[2]]"#)),
        ("many columns", instances(columns)),
        ("other columns in each object", instances(format!("[{}]", repeated(50_000, r#"{"a":1},{"b":1}"#)))),
        ("nested objects", instances(format!("[{}]", repeated(10_000, r#"{"a":{"b":{"c":1}}}"#)))),
        ("empty objects", instances(format!("[{}]", repeated(100_000, "{}")))),
        ("a number beyond FP64", instances("[1e999]")),
        ("a number with a long exponent", instances(format!("[1e{}]", "9".repeat(1000)))),
        ("characters that are not base64", instances(r#"[{"b64":"!!!!"}]"#)),
        ("base64 of a wrong length", instances(r#"[{"b64":"a"}]"#)),
        ("base64 and a number", instances(r#"[{"b64":"aGk="},1]"#)),
    ]
}

/// Valid bodies that take work or memory.
fn laborious() -> Vec<(&'static str, Vec<u8>)> {
    let unknown = format!("{{{},\"instances\":[1]}}", keys(200_000));
    vec![
        ("unknown keys", unknown.into_bytes()),
        ("one key many times", format!("{{{}}}", repeated(100_000, r#""instances":[1]"#)).into_bytes()),
        ("one column many times", instances(format!("[{{{}}}]", repeated(100_000, r#""a":1"#)))),
        ("a long fraction", instances(format!("[0.{}]", "1".repeat(1_000_000)))),
        ("a number near zero", instances("[1e-99999999]")),
        ("a surrogate pair", instances(r#"["\ud83d\ude00"]"#)),
        ("spaces", instances(format!("[{}1]", " ".repeat(4_000_000)))),
        ("backslashes", instances(format!("[\"{}\"]", r"\\".repeat(1_000_000)))),
        ("base64", instances(format!(r#"[{{"b64":"{}"}}]"#, "A".repeat(1_000_000)))),
        ("empty lists", instances(format!("[{}]", repeated(500_000, "[]")))),
        ("nulls", instances(format!("[{}]", repeated(500_000, "null")))),
    ]
}

/// Events that cannot be read, beside those whose data cannot.
fn unreadable_events() -> Vec<(&'static str, Vec<u8>)> {
    const ATTRIBUTES: &str = r#""specversion":"1.0","id":"a","source":"b","type":"c""#;
    let event = |rest: &str| format!("{{{ATTRIBUTES}{rest}").into_bytes();
    vec![
        ("no data", event("}")),
        ("data that is not base64", event(r#","data_base64":"!!"}"#)),
        ("many attributes", event(&format!(r#",{},"data":{{"instances":[1]}}}}"#, keys(200_000)))),
        ("a long attribute", event(&format!(r#","x":"{}","data":{{"instances":[1]}}}}"#, "a".repeat(1_000_000)))),
        ("a truncated event", event("")),
        ("data in objects", event(&format!(r#","data":{}"#, r#"{"data":"#.repeat(200_000)))),
    ]
}

fn event_of(data: &[u8]) -> Vec<u8> {
    [br#"{"specversion":"1.0","id":"a","source":"b","type":"c","data":"#, data, b"}"].concat()
}

/// Sends a body and returns the response, which must come soon.
#[track_caller]
fn send(server: &TestServer, path: &str, content_type: &str, body: &[u8], what: &str) -> Answer {
    let started = Instant::now();
    let answer = server.post_with(path, &[("content-type", content_type)], body);
    assert!(started.elapsed() < SOON, "{what} to {path} took {:?}", started.elapsed());
    answer
}

#[track_caller]
fn assert_rejected(server: &TestServer, paths: &[&str], content_type: &str, body: &[u8], what: &str) {
    for path in paths {
        let answer = send(server, path, content_type, body, what);
        let reason = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(
            answer.status == 400 && !reason.is_empty(),
            "{what} as {content_type} to {path}: {} {reason}",
            answer.status
        );
        assert!(reason.len() < 500, "{what} to {path}: {reason}");
    }
}

/// Sends all bodies to `paths`, whose models get JSON, or only tensors, and checks that `predict` still works.
fn attack(server: &TestServer, paths: &[&str], predict: &str, takes_json: bool) {
    for (what, body) in unreadable() {
        assert_rejected(server, paths, JSON, &body, what);
        assert_rejected(server, paths, EVENT, &event_of(&body), what);
    }
    for (what, body) in unreadable_events() {
        assert_rejected(server, paths, EVENT, &body, what);
    }
    for (what, body) in no_tensors() {
        if takes_json {
            assert_eq!(send(server, predict, JSON, &body, what).status, 200, "{what}");
        } else {
            assert_rejected(server, paths, JSON, &body, what);
            assert_rejected(server, paths, EVENT, &event_of(&body), what);
        }
    }
    for (what, body) in laborious() {
        for content_type in [JSON, EVENT] {
            assert_eq!(send(server, predict, content_type, &body, what).status, 200, "{what}");
        }
    }
    assert_eq!(server.post(predict, r#"{"instances":[[1,2],[3,4]]}"#).ok(), json!({"predictions": [[1, 2], [3, 4]]}));
    assert_eq!(server.get("/v2/health/ready").status, 200);
}

#[test]
fn v1_hostile_bodies_leave_native_models_working() {
    // The model explains itself, so that its `:explain` reads bodies, too.
    let settings = json!({
        "name": "id",
        "implementation": "mlserver_identity.IdentityModel",
        "parameters": {"extra": {"explainer": "id"}}
    });
    let server = TestServer::start(Folder::new().file("id/model-settings.json", settings.to_string()));
    assert_eq!(server.post("/v1/models/id:explain", r#"{"instances":[1]}"#).status, 200);
    let before = server.peak_memory();
    attack(&server, &["/v1/models/id:predict", "/v1/models/id:explain"], "/v1/models/id:predict", false);
    let taken = server.peak_memory() - before;
    assert!(taken < LITTLE, "{taken} KiB");
}

#[test]
fn v1_hostile_bodies_leave_kserve_models_working() {
    let Some(_) = python() else { return };
    let folder = Folder::new()
        .file("models.py", ECHO)
        .file("model-settings.json", json!({"name": "echo", "implementation": "models.Echo"}).to_string());
    let Some(server) = with_python(folder) else { return };
    let server = server.start();
    let worker_peak = || {
        let answer = server.post("/v1/models/echo:predict", r#"{"instances":["peak"]}"#).ok();
        answer["predictions"].as_u64().unwrap()
    };
    let (before, worker_before) = (server.peak_memory(), worker_peak());
    attack(&server, &["/v1/models/echo:predict", "/v1/models/echo:explain"], "/v1/models/echo:predict", true);
    let (taken, worker_taken) = (server.peak_memory() - before, worker_peak() - worker_before);
    assert!(taken < LITTLE && worker_taken < OF_PYTHON, "{taken} KiB, and in the worker {worker_taken} KiB");
    assert!(!server.log().contains("A worker "), "{}", server.log());
}

#[test]
fn v1_content_types_that_are_not_json_are_rejected() {
    let server = TestServer::start(Folder::new().with_identity("id"));
    let long = "a".repeat(5000);
    let types =
        [("text/plain", 422), ("application/xml", 422), ("multipart/form-data; boundary=x", 422), (long.as_str(), 422)];
    let events = [("application/cloudevents-batch+json", 415), ("application/cloudevents+xml", 422)];
    for (content_type, status) in types.into_iter().chain(events) {
        for verb in ["predict", "explain"] {
            let path = format!("/v1/models/id:{verb}");
            let answer = send(&server, &path, content_type, br#"{"instances":[1]}"#, content_type);
            assert!(!answer.error(status).is_empty());
        }
    }
    for content_type in ["application/json; charset=utf-16", "application/json;charset=nope"] {
        let answer = send(&server, "/v1/models/id:predict", content_type, br#"{"instances":[1]}"#, content_type);
        assert_eq!(answer.status, 200, "parameters are ignored");
    }
}
