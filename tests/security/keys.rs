//! Keys, scopes, models and limits, over REST, gRPC and the metrics port.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use http::Method;
use mlserver::access::{KeyHash, Scope};
use mlserver::server::{grpc, rest};
use prost::Message;
use serde_json::{Value, json};

use super::authority::Authority;
use crate::support::grpc::{Http2, framed};
use crate::support::python::with_python;
use crate::support::{
    Answer, Client, Connection, Folder, IRIS, ServerBuilder, TestServer, repository_path, run_mlserver, wait_until,
};

/// A request for the iris model.
const IRIS_REQUEST: &str =
    r#"{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]}"#;

/// The entry of a key whose text is its name with `-key` behind it.
fn entry(name: &str, scopes: &[&str]) -> Value {
    json!({"name": name, "hash": KeyHash::of(format!("{name}-key").as_bytes()).to_string(), "scopes": scopes})
}

fn with(mut entry: Value, field: &str, value: Value) -> Value {
    entry[field] = value;
    entry
}

fn bearer(name: &str) -> String {
    format!("Bearer {name}-key")
}

/// Serves the iris model with keys and more settings.
fn serve(keys: &Value, settings: &Value) -> TestServer {
    let mut all = json!({"api_keys_file": "keys.json"});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    ServerBuilder::new(Folder::quickstart().file("keys.json", keys.to_string()).settings(&all)).start()
}

fn send(client: &Client, method: &Method, path: &str, key: Option<&str>) -> Answer {
    let authorization = key.map(bearer);
    let headers: Vec<(&str, &str)> = authorization.iter().map(|value| ("authorization", value.as_str())).collect();
    client.request(method, path, &[&headers[..], &[("content-type", "application/json")]].concat(), b"{}")
}

fn infer(server: &TestServer, model: &str, key: &str) -> Answer {
    let headers = [("authorization", bearer(key)), ("content-type", "application/json".to_owned())];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    server.post_with(&format!("/v2/models/{model}/infer"), &headers, IRIS_REQUEST)
}

/// Keys with one scope each, named like it.
fn one_key_per_scope() -> Value {
    Scope::ALL.map(|scope| entry(scope.name(), &[scope.name()])).to_vec().into()
}

#[test]
fn every_rest_route_needs_exactly_its_scope() {
    let server = serve(&one_key_per_scope(), &json!({}));
    let mut seen = BTreeSet::new();
    let open: Vec<&str> =
        rest::routes().filter(|route| route.2 == Scope::Open).map(|(_, template, _)| template).collect();
    let expected = [
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/{model_name}/ready",
        "/v2/models/{model_name}/versions/{model_version}/ready",
        "/",
        "/v1/models/{model_name}",
        "/v2/console",
        "/v2/console/assets/{file}",
    ];
    assert_eq!(open, expected);
    for (method, template, needed) in rest::routes() {
        let path = template
            .replace("{model_name}", "unknown")
            .replace("{model_version}", "1")
            .replace("{file}", "f")
            .replace("{model}", "m");
        check_route(&server, &method, &path, needed);
        seen.insert(needed.name());
    }
    assert_eq!(seen, BTreeSet::from(["admin", "infer", "open", "read"]));
    // Paths that no route has may be those of models.
    check_route(&server, &Method::GET, "/unknown", Scope::Infer);
    check_route(&server, &Method::POST, "/invocations", Scope::Infer);
    check_route(&server, &Method::GET, "/ping", Scope::Open);
    let metrics = Client::new(server.metrics.unwrap());
    check_route(&metrics, &Method::GET, "/metrics", Scope::Metrics);
    check_route(&metrics, &Method::GET, "/unknown", Scope::Metrics);
}

fn check_route(client: &Client, method: &Method, path: &str, needed: Scope) {
    let anonymous = send(client, method, path, None);
    assert_eq!(anonymous.status == 401, needed != Scope::Open, "{method} {path}: {anonymous:?}");
    for scope in Scope::ALL {
        let answer = send(client, method, path, Some(scope.name()));
        if needed == Scope::Open || scope == needed {
            assert!(![401, 403].contains(&answer.status), "{method} {path} {scope:?}: {answer:?}");
        } else {
            let message = if path.starts_with("/openai/") {
                answer.json()["error"]["message"].as_str().unwrap().to_owned()
            } else {
                answer.error(403)
            };
            assert_eq!(message, format!("`{}` does not have the scope `{}`", scope.name(), needed.name()), "{path}");
            let challenge =
                format!("Bearer realm=\"mlserver\", error=\"insufficient_scope\", scope=\"{}\"", needed.name());
            assert_eq!(answer.header("www-authenticate"), challenge);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_grpc_method_needs_exactly_its_scope() {
    let server = tokio::task::spawn_blocking(|| serve(&one_key_per_scope(), &json!({}))).await.unwrap();
    let connection = Http2::connect(server.grpc).await;
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".to_owned();
    let others = [(reflection, Scope::Read), ("/unknown/Method".to_owned(), Scope::Read)];
    let mut seen = BTreeSet::new();
    let open: Vec<String> = grpc::methods()
        .filter(|(_, scope)| *scope == Scope::Open)
        .map(|(path, _)| path.rsplit_once('/').unwrap().1.into())
        .collect();
    assert_eq!(open, ["ServerLive", "ServerReady", "ModelReady", "Check", "Watch"]);
    for (path, needed) in grpc::methods().chain(others) {
        let (unauthenticated, denied) = (Some(16), Some(7));
        let anonymous = connection.head(&path, &[], &framed(0, b"")).await;
        assert_eq!(anonymous == unauthenticated, needed != Scope::Open, "{path}: {anonymous:?}");
        for scope in Scope::ALL {
            let authorization = bearer(scope.name());
            let code = connection.head(&path, &[("authorization", &authorization)], &framed(0, b"")).await;
            if needed == Scope::Open || scope == needed {
                assert!(code != unauthenticated && code != denied, "{path} {scope:?}: {code:?}");
            } else {
                assert_eq!(code, denied, "{path} {scope:?}");
            }
        }
        seen.insert(needed.name());
    }
    assert_eq!(seen, BTreeSet::from(["admin", "infer", "open", "read"]));
}

#[test]
fn key_gives_access_to_its_models_only() {
    let keys = json!([
        with(entry("iris", &["infer", "read", "admin"]), "models", json!(["iris-*"])),
        with(entry("none", &["infer", "read"]), "models", json!([])),
        entry("all", &["infer", "read"]),
    ]);
    let server = serve(&keys, &json!({}));
    assert_eq!(infer(&server, IRIS, "iris").status, 200);
    let other = "breast-cancer-lightgbm";
    for model in [other, "unknown"] {
        let message = infer(&server, model, "iris").error(403);
        assert_eq!(message, format!("`iris` may not use the model `{model}`"), "the same whether it exists or not");
        assert_eq!(send(&server, &Method::GET, &format!("/v2/models/{model}"), Some("iris")).status, 403);
        let unload = format!("/v2/repository/models/{model}/unload");
        assert_eq!(send(&server, &Method::POST, &unload, Some("iris")).status, 403);
        assert_eq!(send(&server, &Method::POST, &format!("/v1/models/{model}:predict"), Some("iris")).status, 403);
    }
    infer(&server, "iris-unknown", "iris").error(404);
    let index = |key: &str| {
        let models = send(&server, &Method::POST, "/v2/repository/index", Some(key)).ok();
        models.as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(index("iris"), [IRIS]);
    assert_eq!(index("none"), [""; 0]);
    assert_eq!(index("all").len(), 2);
    let models = |key: &str| send(&server, &Method::GET, "/v1/models", Some(key)).ok();
    assert_eq!(models("iris"), json!({"models": [IRIS]}));
    assert_eq!(models("none"), json!({"models": []}));
    assert_eq!(server.get(&format!("/v2/models/{other}/ready")).status, 200, "readiness is open");
}

#[test]
fn key_gives_access_to_the_own_routes_of_its_models_only() {
    let source = fs::read(repository_path("tests/fixtures/workers/handlers.py")).unwrap();
    let keys = json!([
        with(entry("own", &["infer"]), "models", json!(["m"])),
        with(entry("other", &["infer"]), "models", json!(["x*"])),
    ]);
    let folder = Folder::new()
        .file("m/models.py", source)
        .file("m/model-settings.json", json!({"name": "m", "implementation": "models.Routes"}).to_string())
        .file("keys.json", keys.to_string())
        .settings(&json!({"api_keys_file": "keys.json"}));
    let Some(starting) = with_python(folder) else { return };
    let server = starting.start();
    assert_eq!(send(&server, &Method::GET, "/files/a", Some("own")).ok(), json!("a"));
    assert_eq!(send(&server, &Method::GET, "/files/a", Some("other")).error(404), "no such path: /files/a");
    assert_eq!(
        send(&server, &Method::GET, "/echo/a", Some("own")).status,
        404,
        "another method, but maybe of another model"
    );
    assert_eq!(send(&server, &Method::GET, "/files/a", None).status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_gives_access_to_its_models_only_over_grpc() {
    use mlserver::types::protobuf::messages::{ModelInferRequest, ModelMetadataRequest, RepositoryModelLoadRequest};
    let keys = json!([with(entry("iris", &["infer", "read", "admin"]), "models", json!(["iris-*"]))]);
    let server = tokio::task::spawn_blocking(move || serve(&keys, &json!({}))).await.unwrap();
    let connection = Http2::connect(server.grpc).await;
    let call = async |method: &str, message: Vec<u8>| {
        let path = format!("/inference.GRPCInferenceService/{method}");
        connection.call(&path, &[("authorization", "bearer iris-key")], &framed(0, &message)).await.end().0
    };
    for model in ["breast-cancer-lightgbm", "unknown"] {
        let request = ModelInferRequest { model_name: model.to_owned(), ..ModelInferRequest::default() };
        assert_eq!(call("ModelInfer", request.encode_to_vec()).await, 7);
        assert_eq!(call("ModelStreamInfer", request.encode_to_vec()).await, 7);
        let request = ModelMetadataRequest { name: model.to_owned(), ..ModelMetadataRequest::default() };
        assert_eq!(call("ModelMetadata", request.encode_to_vec()).await, 7);
        assert_ne!(call("ModelReady", request.encode_to_vec()).await, 7, "readiness is open");
        let request = RepositoryModelLoadRequest { model_name: model.to_owned(), ..Default::default() };
        assert_eq!(call("RepositoryModelLoad", request.encode_to_vec()).await, 7);
        assert_eq!(call("RepositoryModelUnload", request.encode_to_vec()).await, 7);
    }
    let request = ModelMetadataRequest { name: IRIS.to_owned(), ..ModelMetadataRequest::default() };
    assert_eq!(call("ModelMetadata", request.encode_to_vec()).await, 0);
    let index = connection
        .call(
            "/inference.GRPCInferenceService/RepositoryIndex",
            &[("authorization", "Bearer iris-key")],
            &framed(0, b""),
        )
        .await;
    let text = String::from_utf8_lossy(&index.body).into_owned();
    assert!(text.contains(IRIS) && !text.contains("breast-cancer"), "{text}");
}

#[test]
fn wrong_credentials_are_refused_before_the_body_is_read() {
    let keys =
        json!([entry("ci", &["infer"]), with(entry("old", &["infer"]), "expires", json!("2020-01-01T00:00:00Z"))]);
    let server = serve(&keys, &json!({}));
    for (authorization, message) in [
        ("Bearer wrong", "the key is unknown"),
        ("Basic Y2k6Y2kta2V5", "expected one header `authorization` of the form `Bearer KEY`"),
        ("Bearer old-key", "the key `old` has expired"),
    ] {
        let answer = server.post_with("/v2/models/unknown/infer", &[("authorization", authorization)], "{}");
        assert_eq!(answer.error(401), message);
        assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"mlserver\", error=\"invalid_token\"");
    }
    let answer = server.post("/v2/models/unknown/infer", "{}");
    assert_eq!(answer.error(401), "no credentials: send `authorization: Bearer KEY`");
    assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"mlserver\"");
    // The answer comes although the body never does, and the connection is closed.
    let mut connection = Connection::open(server.http);
    connection.write("POST /v2/models/iris/infer HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\n");
    let answer = connection.answer();
    assert_eq!((answer.status, answer.header("connection")), (401, "close"));
    assert_eq!(connection.rest(), "");
    // A short body is discarded, so the connection stays open; it is not waited for very long.
    let mut connection = Connection::open(server.http);
    for body in ["{}", ""] {
        connection
            .write(format!("POST /v2/models/iris/infer HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n{body}"));
        let answer = connection.answer();
        assert_eq!((answer.status, answer.header("connection")), (401, ""));
    }
    assert_eq!(connection.rest(), "");
    let text = scrape(server.metrics.unwrap(), None);
    assert_eq!(text.status, 401, "metrics need a key, too");
}

fn scrape(address: SocketAddr, key: Option<&str>) -> Answer {
    send(&Client::new(address), &Method::GET, "/metrics", key)
}

#[test]
fn refusals_are_counted_and_logged_at_most_ten_times() {
    let server = serve(&json!([entry("ci", &["infer"]), entry("ops", &["metrics"])]), &json!({}));
    for _ in 0..30 {
        infer(&server, IRIS, "secret").error(401);
    }
    infer(&server, IRIS, "ops").error(403);
    assert_eq!(infer(&server, IRIS, "ci").status, 200);
    let text = scrape(server.metrics.unwrap(), Some("ops")).text().to_owned();
    for line in [
        "access_refused_total{reason=\"unknown_key\"} 30",
        "access_refused_total{reason=\"scope\"} 1",
        "access_requests_total{principal=\"ci\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    let log = server.log();
    assert_eq!(log.matches("Refused a request: the key is unknown.").count(), 10);
    assert!(!log.contains("secret-key") && !log.contains("ci-key"), "{log}");
}

#[test]
fn principal_is_in_the_access_log_and_the_key_is_not() {
    let server = serve(&json!([entry("ci", &["infer"])]), &json!({"debug": true}));
    assert_eq!(infer(&server, IRIS, "ci").status, 200);
    let line = server.wait_for_log("status_code=200");
    assert!(line.contains("principal=ci") || line.contains("principal=\"ci\""), "{line}");
    assert!(!server.log().contains("ci-key"));
}

#[test]
fn rate_limit_of_a_key_is_shared_by_rest_and_grpc() {
    let keys = json!([
        with(entry("slow", &["infer", "read"]), "rate_limit", json!({"requests_per_second": 0.01, "burst": 2})),
        entry("preset", &["infer"]),
    ]);
    let server = serve(&keys, &json!({"key_rate_limit": {"requests_per_second": 0.01}}));
    assert_eq!(infer(&server, IRIS, "slow").status, 200);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let call = || {
        runtime.block_on(async {
            let connection = Http2::connect(server.grpc).await;
            let path = "/inference.GRPCInferenceService/ServerMetadata";
            connection.call(path, &[("authorization", "Bearer slow-key")], &framed(0, b"")).await
        })
    };
    assert_eq!(call().end().0, 0);
    let refused = call();
    assert_eq!(refused.end(), (8, "`slow` has exceeded its rate limit".to_owned()));
    assert!((90..=100).contains(&refused.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap()));
    let answer = infer(&server, IRIS, "slow");
    assert_eq!(answer.error(429), "`slow` has exceeded its rate limit");
    assert!((90..=100).contains(&answer.header("retry-after").parse::<u32>().unwrap()));
    assert_eq!(infer(&server, IRIS, "preset").status, 200);
    assert_eq!(infer(&server, IRIS, "preset").status, 429, "`key_rate_limit` is the default");
    assert_eq!(send(&server, &Method::GET, "/v2/models/iris", Some("preset")).status, 403, "rights come before limits");
}

#[test]
fn max_in_flight_of_a_key_counts_until_the_response_is_sent() {
    let keys = json!([with(entry("one", &["infer"]), "max_in_flight", json!(1)), entry("ci", &["infer"])]);
    let server = serve(&keys, &json!({}));
    let mut slow = Connection::open(server.http);
    slow.start_upload_with(
        &format!("/v2/models/{IRIS}/infer"),
        "authorization: Bearer one-key\r\n",
        IRIS_REQUEST.len(),
    );
    assert_eq!(infer(&server, IRIS, "one").error(429), "`one` has 1 requests in flight, which is its limit");
    assert_eq!(infer(&server, IRIS, "ci").status, 200, "others are not affected");
    let over_grpc = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let path = "/inference.GRPCInferenceService/ModelInfer";
        let connection = Http2::connect(server.grpc).await;
        connection.call(path, &[("authorization", "Bearer one-key")], &framed(0, b"")).await.end()
    });
    assert_eq!(over_grpc, (8, "`one` has 1 requests in flight, which is its limit".to_owned()));
    slow.write(IRIS_REQUEST);
    assert_eq!(slow.answer().status, 200);
    wait_until("the slot is free again", || infer(&server, IRIS, "one").status == 200);
}

#[test]
fn key_file_reloads_within_ten_seconds_and_a_bad_one_keeps_the_old() {
    let server = serve(&json!([]), &json!({}));
    assert_eq!(infer(&server, IRIS, "ci").status, 401, "a file without entries refuses everybody");
    let path = server.folder.path("keys.json");
    fs::write(&path, json!([entry("ci", &["infer"])]).to_string()).unwrap();
    let began = Instant::now();
    wait_until("the key is known", || infer(&server, IRIS, "ci").status == 200);
    assert!(began.elapsed() < Duration::from_secs(10));
    fs::write(&path, "[{]").unwrap();
    let warning = server.wait_for_log("WARNING - `api_keys_file`");
    assert!(warning.contains("it is not a JSON list of keys"), "{warning}");
    assert_eq!(infer(&server, IRIS, "ci").status, 200);
    fs::write(&path, "[]").unwrap();
    wait_until("the key is revoked", || infer(&server, IRIS, "ci").status == 401);
}

#[test]
fn bad_access_settings_end_the_start_with_code_1() {
    let run = |settings: Value, keys: &str| {
        let exit = ServerBuilder::new(Folder::iris().file("keys.json", keys).settings(&settings)).run();
        assert_eq!(exit.code, Some(1), "{exit:?}");
        exit.stderr
    };
    let error = run(json!({"api_keys_file": "none.json"}), "[]");
    assert!(error.contains("`api_keys_file`: cannot use `") && error.contains("no such file"), "{error}");
    let error =
        run(json!({"api_keys_file": "keys.json"}), &json!([entry("a", &["infer"]), entry("a", &["read"])]).to_string());
    assert!(error.contains("two keys have the name `a`"), "{error}");
    let error = run(json!({"tls_client_scopes": {"ci": ["infer"]}}), "[]");
    assert!(error.contains("`tls_client_ca` is not set"), "{error}");
    let error = run(json!({"forward_headers": ["x-own"]}), "[]");
    assert!(error.contains("`forward_headers`: expected `authorization` or `cookie`, found `x-own`"), "{error}");
}

#[test]
fn client_certificates_have_scopes_and_a_key_counts_instead() {
    let authority = Authority::new();
    authority.server("server");
    authority.client("client", "ci");
    authority.issue("named", "someone", &["ops.example"], super::authority::Validity::Now);
    authority.client("unknown", "unknown");
    let settings = json!({
        "tls_certificate": authority.text("server.pem"),
        "tls_key": authority.text("server.key"),
        "tls_client_ca": authority.text("ca.pem"),
        "tls_client_scopes": {"ci": ["read"], "ops.example": ["infer"]},
        "api_keys_file": "keys.json",
    });
    let folder = Folder::iris().file("keys.json", json!([entry("key", &["admin"])]).to_string()).settings(&settings);
    let server = ServerBuilder::new(folder).listen();
    let get = |name: &str, key: Option<&str>| {
        let (certificate, private) = (authority.text(&format!("{name}.pem")), authority.text(&format!("{name}.key")));
        let header = format!("authorization: {}", bearer(key.unwrap_or_default()));
        let mut options = vec!["--cert", &certificate, "--key", &private];
        options.extend(key.is_some().then_some(["--header", &header]).into_iter().flatten());
        authority.curl(server.http, "/v2", &options).unwrap()
    };
    assert_eq!(get("client", None).0, 200);
    let (status, body) = get("named", None);
    assert!(status == 403 && body.contains("`certificate:ops.example` does not have the scope `read`"), "{body}");
    let (status, body) = get("unknown", None);
    assert!(status == 401 && body.contains("no entry in the setting `tls_client_scopes`"), "{body}");
    let (status, body) = get("client", Some("key"));
    assert!(status == 403 && body.contains("`key` does not have the scope"), "{body}");
    assert_eq!(get("client", Some("wrong")).0, 401);
}

#[test]
fn cors_preflights_need_no_key() {
    let cors = json!({"cors_settings": {"allow_origins": ["http://page.example"], "allow_methods": ["POST"], "allow_headers": ["authorization"]}});
    let server = serve(&json!([]), &cors);
    let headers = [("origin", "http://page.example"), ("access-control-request-method", "POST")];
    let answer = server.request(&Method::OPTIONS, "/v2/models/m/infer", &headers, b"");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, "http://page.example"));
    let answer = server.request(&Method::POST, "/v2/models/m/infer", &headers[..1], b"{}");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, "http://page.example"));
}

#[test]
fn keys_command_creates_lists_and_revokes() {
    let folder = Folder::iris().settings(&json!({"api_keys_file": "secrets.json"}));
    let keys = |arguments: &[&str]| run_mlserver(folder.root(), &[&["keys"], arguments].concat());
    let created = keys(&["create", "--name", "ci", "--scope", "infer", "--scope", "read", "--models", "iris-*"]);
    assert!(created.status.success(), "{created:?}");
    let key = String::from_utf8(created.stdout).unwrap().trim_end().to_owned();
    assert!(key.starts_with("mls_") && key.len() == 47, "{key}");
    assert!(!String::from_utf8_lossy(&created.stderr).contains(&key));
    let path = folder.path("secrets.json");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&key) && text.contains(&KeyHash::of(key.as_bytes()).to_string()), "{text}");
    let again = keys(&["create", "--name", "ci", "--scope", "infer"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("two keys have the name `ci`"));
    assert!(again.stdout.is_empty(), "a key that is not stored is not printed");
    assert_eq!(keys(&["create", "--name", "x"]).status.code(), Some(2), "`--scope` is required");
    assert_eq!(keys(&["create", "--name", "x", "--scope", "open"]).status.code(), Some(2));
    let bad = keys(&["create", "--name", "x", "--scope", "infer", "--expires", "tomorrow"]);
    assert!(String::from_utf8_lossy(&bad.stderr).contains("`expires`: expected a time in UTC"), "{bad:?}");
    let listed = keys(&["list"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "ci  scopes infer,read  models iris-*  expires never\n");
    let listed: Value = serde_json::from_slice(&keys(&["list", "--format", "json"]).stdout).unwrap();
    assert_eq!(listed[0]["scopes"], json!(["infer", "read"]));
    assert_eq!(keys(&["revoke", "other"]).status.code(), Some(1));
    assert!(keys(&["revoke", "ci"]).status.success());
    assert_eq!(keys(&["list"]).stdout, b"");
    let elsewhere = Folder::iris();
    let none = run_mlserver(elsewhere.root(), &["keys", "list"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("have no `api_keys_file`"), "{none:?}");
    let created =
        run_mlserver(elsewhere.root(), &["keys", "create", "--name", "a", "--scope", "admin", "--file", "k.json"]);
    assert!(created.status.success() && elsewhere.path("k.json").is_file());
    let is_new = "is new, and only the user of this command can read it";
    assert!(String::from_utf8_lossy(&created.stderr).contains(is_new), "{created:?}");
    let again =
        run_mlserver(elsewhere.root(), &["keys", "create", "--name", "b", "--scope", "admin", "--file", "k.json"]);
    assert!(again.status.success() && !String::from_utf8_lossy(&again.stderr).contains(is_new), "{again:?}");
}

#[test]
fn created_key_opens_the_server() {
    let folder = Folder::iris().settings(&json!({"api_keys_file": "keys.json"}));
    let created = run_mlserver(folder.root(), &["keys", "create", "--name", "ci", "--scope", "infer"]);
    let key = String::from_utf8(created.stdout).unwrap().trim_end().to_owned();
    let server = ServerBuilder::new(folder).start();
    let authorization = format!("Bearer {key}");
    let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
    assert_eq!(server.post_with(&format!("/v2/models/{IRIS}/infer"), &headers, IRIS_REQUEST).status, 200);
}

#[test]
fn documented_scopes_are_those_of_routes_and_calls() {
    let text = fs::read_to_string(repository_path("docs/security.md")).unwrap();
    let (_, table) = text.split_once("The scopes of all routes and calls").unwrap();
    let row = |scope: Scope| {
        let name = if scope == Scope::Open { "| none |".to_owned() } else { format!("| `{}` |", scope.name()) };
        table.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| unreachable!("no row {name}"))
    };
    for (_, template, scope) in rest::routes() {
        assert!(row(scope).contains(&format!("`{template}`")), "{template} needs {scope:?}");
    }
    for (path, scope) in grpc::methods() {
        let (_, name) = path.rsplit_once('/').unwrap();
        assert!(row(scope).contains(name), "{path} needs {scope:?}");
    }
}
