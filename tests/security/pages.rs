//! Web pages of other sites, and the audit records of those who change something.

use std::fs;

use http::Method;
use mlserver::access::KeyHash;
use serde_json::{Value, json};

use crate::support::grpc::{Http2, framed};
use crate::support::python::with_python;
use crate::support::{Answer, Folder, ServerBuilder, TestServer};

const V2: &str = "/v2/models/echo/infer";
const BODY: &str = r#"{"inputs":[{"name":"x","shape":[2],"datatype":"INT32","data":[1,2]}]}"#;
const INSTANCES: &str = r#"{"instances":[1]}"#;
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const JSON: (&str, &str) = ("content-type", "application/json");

fn serve(settings: &Value) -> TestServer {
    TestServer::start(Folder::new().with_identity("echo").settings(settings))
}

/// What a page may send, and the content type.
fn requests() -> [(&'static str, (&'static str, &'static str), &'static str); 8] {
    [
        (V2, JSON, BODY),
        ("/v2/models/echo/versions/1/infer", JSON, BODY),
        ("/v1/models/echo:predict", FORM, INSTANCES),
        ("/v2/models/echo/infer_stream", JSON, BODY),
        ("/v2/models/echo/generate", JSON, BODY),
        ("/v2/repository/index", JSON, "{}"),
        ("/v2/repository/models/echo/load", JSON, ""),
        ("/a/route/of/a/model", JSON, ""),
    ]
}

fn send(server: &TestServer, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    server.request(&Method::POST, path, headers, body.as_bytes())
}

#[test]
fn pages_of_other_sites_may_not_send_requests() {
    let server = serve(&json!({}));
    let foreign: [&[(&str, &str)]; 4] = [
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")],
    ];
    let own = format!("http://{}", server.http);
    for (path, content_type, body) in requests() {
        for page in foreign {
            let message = send(&server, path, &[page, &[content_type]].concat(), body).error(403);
            assert!(message.contains("`cors_settings.allow_origins`"), "{path}: {message}");
        }
        let without = send(&server, path, &[content_type], body).status;
        for page in [("origin", own.as_str()), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none")] {
            assert_eq!(send(&server, path, &[content_type, page], body).status, without, "{path} {page:?}");
        }
        assert_ne!(without, 403, "{path}");
    }
    // Reading is what links do.
    let linked = [("sec-fetch-site", "cross-site")];
    assert_eq!(server.request(&Method::GET, "/v2", &linked, b"").status, 200);
    assert_eq!(server.request(&Method::GET, "/v2/docs", &linked, b"").status, 200);
}

#[test]
fn pages_that_cors_allows_may_send_requests() {
    let server = serve(&json!({"cors_settings": {"allow_origins": ["http://page.example"]}}));
    let page = [("origin", "http://page.example"), ("sec-fetch-site", "cross-site"), JSON];
    send(&server, V2, &page, BODY).ok();
    send(&server, V2, &[("origin", "http://other.example"), JSON], BODY).error(403);
    let any = serve(&json!({"cors_settings": {"allow_origins": ["*"]}}));
    send(&any, V2, &[("origin", "null"), ("sec-fetch-site", "cross-site"), JSON], BODY).ok();
}

#[test]
fn loopback_server_refuses_pages_of_rebound_names() {
    let server = serve(&json!({}));
    let of = |host: &str| {
        let origin = format!("http://{host}");
        let headers = [("host", host), ("origin", origin.as_str()), ("sec-fetch-site", "same-origin"), JSON];
        send(&server, V2, &headers, BODY)
    };
    let message = of("evil.example:8080").error(403);
    assert!(message.contains("the host `evil.example:8080` is refused"), "{message}");
    of("localhost:8080").ok();
    of("[::1]:8080").ok();
    // Other clients may use any name, as through a tunnel.
    send(&server, V2, &[("host", "models.example"), JSON], BODY).ok();
}

#[test]
fn other_transfer_codings_than_chunked_answer_501() {
    let server = serve(&json!({}));
    for coding in ["identity, chunked", "gzip, chunked", "chunked\r\ntransfer-encoding: chunked"] {
        let mut connection = server.connect();
        connection.write(format!(
            "POST {V2} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {coding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\nGET /v2 HTTP/1.1\r\nhost: a\r\n\r\n"
        ));
        let answer = connection.answer();
        assert_eq!(answer.error(501), "only the transfer coding `chunked` is supported", "{coding}");
        assert_eq!(answer.header("connection"), "close");
        assert_eq!(connection.rest(), "", "{coding}");
    }
}

/// Serves `echo` with a key for each of the names, which has the scope of the same name.
fn with_keys(names: &[&str]) -> TestServer {
    let entry = |name: &&str| json!({"name": name, "hash": KeyHash::of(format!("{name}-key").as_bytes()).to_string(), "scopes": [name]});
    let keys: Value = names.iter().map(entry).collect::<Vec<_>>().into();
    let settings = json!({"api_keys_file": "keys.json"});
    let folder = Folder::new().with_identity("echo").file("keys.json", keys.to_string()).settings(&settings);
    ServerBuilder::new(folder).start()
}

#[test]
fn loads_and_unloads_are_recorded_with_principal_address_and_status() {
    let server = with_keys(&["admin", "read"]);
    let key = |name: &str| format!("Bearer {name}-key");
    let change = |path: &str, name: &str| server.post_with(path, &[("authorization", &key(name))], "").status;
    assert_eq!(change("/v2/repository/models/echo/load", "admin"), 200);
    let line = server.wait_for_log("Audit: load of model 'echo'");
    for part in ["principal=admin", "address=127.0.0.1:", "status=200"] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(change("/v2/repository/models/nothing/unload", "admin"), 404);
    assert!(server.wait_for_log("Audit: unload of model 'nothing'").contains("status=404"));
    assert_eq!(change("/v2/repository/models/echo/unload", "read"), 403);
    let line = server.wait_for_log("`read` does not have the scope `admin`");
    for part in ["principal=read", "address=127.0.0.1:", "path=/v2/repository/models/echo/unload", "WARNING"] {
        assert!(line.contains(part), "{line}");
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let path = "/inference.GRPCInferenceService/RepositoryModelUnload";
        let connection = Http2::connect(server.grpc).await;
        let named = framed(0, b"\x12\x04echo");
        assert_eq!(connection.call(path, &[("authorization", &key("admin"))], &named).await.end().0, 0);
        assert_eq!(connection.call(path, &[], &named).await.end().0, 16);
    });
    let line = server.wait_for_log("Audit: unload of model 'echo'");
    assert!(
        line.contains("principal=admin") && line.contains("status=OK") && line.contains("address=127.0.0.1:"),
        "{line}"
    );
    let line = server.wait_for_log("no credentials");
    assert!(line.contains("path=/inference.GRPCInferenceService/RepositoryModelUnload"), "{line}");

    fs::write(server.folder.path("keys.json"), "[]").unwrap();
    let line = server.wait_for_log("Audit: the keys of `api_keys_file` have changed");
    assert!(line.contains("removed=admin,read"), "{line}");
}

#[test]
fn failed_attempts_are_logged_with_their_address_and_limited() {
    let server = with_keys(&["admin"]);
    for _ in 0..50 {
        assert_eq!(server.post(V2, BODY).status, 401);
    }
    let line = server.wait_for_log("Refused a request: no credentials");
    assert!(line.contains("address=127.0.0.1:") && line.contains(&format!("path={V2}")), "{line}");
    // Others do not keep the calls of administrators out of the log.
    assert_eq!(server.post("/v2/repository/models/echo/unload", "").status, 401);
    server.wait_for_log("path=/v2/repository/models/echo/unload");
    assert_eq!(server.log().matches("Refused a request").count(), 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_changes_without_access_control_are_limited_in_the_log() {
    let server = serve(&json!({}));
    for number in 0..30 {
        assert_eq!(server.post(&format!("/v2/repository/models/nothing-{number}/unload"), "").status, 404);
    }
    // Those that succeed are all recorded, and other names are not a way to fill the log.
    for _ in 0..12 {
        assert_eq!(server.post("/v2/repository/models/echo/load", "").status, 200);
    }
    let path = "/inference.GRPCInferenceService/RepositoryModelUnload";
    let connection = Http2::connect(server.grpc).await;
    // The name has 1000 bytes.
    let message = [&[0x12, 0xe8, 0x07][..], &[b'n'; 1000]].concat();
    for _ in 0..30 {
        assert_eq!(connection.call(path, &[], &framed(0, &message)).await.end().0, 5);
    }
    let log = server.log();
    assert_eq!(log.matches("Audit: unload of model 'nothing-").count(), 10, "{log}");
    assert_eq!(log.matches("Audit: load of model 'echo'").count(), 12);
    assert_eq!(log.matches("Audit: unload of model 'nnn").count(), 10);
    assert!(!log.contains(&"n".repeat(300)));
}

#[test]
fn changes_whose_callers_have_left_are_limited_in_the_log() {
    let model = "import asyncio\nfrom mlserver import MLModel\n\nclass Slow(MLModel):\n    async def load(self):\n        print('loads', flush=True)\n        await asyncio.sleep(600)\n";
    let folder = Folder::new()
        .file("slow/slow.py", model)
        .file("slow/model-settings.json", json!({"name": "slow", "implementation": "slow.Slow"}).to_string())
        .settings(&json!({"load_models_at_startup": false}));
    let Some(server) = with_python(folder).map(ServerBuilder::start) else { return };
    let load = "POST /v2/repository/models/slow/load HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    let mut callers: Vec<_> = (0..30).map(|_| server.connect()).collect();
    for caller in &mut callers {
        caller.write(load);
    }
    server.wait_for_log("loads");
    drop(callers);
    // All of them have been counted, also those that are not in the log.
    let summary = server.wait_for_log("more changes of models failed");
    assert!(summary.contains("Audit: 20 more"), "{summary}");
    let log = server.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("the caller has left")).collect();
    assert_eq!(lines.len(), 10, "{log}");
    for line in lines {
        assert!(line.contains("Audit: load of model 'slow'") && line.contains("address=127.0.0.1:"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_are_not_served_are_recorded() {
    let server = serve(&json!({"repository_api": false}));
    assert_eq!(server.post("/v2/repository/models/echo/unload", "").status, 404);
    assert!(server.wait_for_log("Audit: unload of model 'echo'").contains("status=404"));
    let path = "/inference.GRPCInferenceService/RepositoryModelLoad";
    let answer = Http2::connect(server.grpc).await.call(path, &[], &framed(0, b"\x12\x04echo")).await;
    assert_eq!(answer.end().0, 12, "{answer:?}");
    let line = server.wait_for_log("Audit: load of model 'echo'");
    assert!(line.contains("address=127.0.0.1:") && line.contains("status=UNIMPLEMENTED"), "{line}");
}
