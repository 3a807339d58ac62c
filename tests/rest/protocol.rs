//! The V2 protocol over HTTP: routes, bodies, headers, CORS, proxies and connections.

use std::fs;
use std::io::Read;

use flate2::read::GzDecoder;
use http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Answer, Folder, ServerBuilder, TestServer, gzip, repository_path, wait_until};

const IRIS: &str = "/v2/models/iris-xgboost";
const INFER: &str = "/v2/models/iris-xgboost/infer";
const ONE_ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;

fn iris_with(settings: &Value) -> TestServer {
    TestServer::start(Folder::iris().settings(settings))
}

fn quickstart_request(name: &str) -> String {
    fs::read_to_string(repository_path("examples/quickstart").join(name)).unwrap()
}

/// A request of `rows` equal rows.
fn rows(rows: usize) -> String {
    let numbers = vec!["6.2,2.8,4.8,1.8"; rows].join(",");
    format!(r#"{{"inputs":[{{"name":"x","shape":[{rows},4],"datatype":"FP32","data":[{numbers}]}}]}}"#)
}

// ------------------------------------------------------------------------------------------------------ routes

#[test]
fn every_get_route_answers_as_documented() {
    let server = TestServer::quickstart();
    let metadata = r#"{"name":"iris-xgboost","versions":[],"platform":"","inputs":[{"name":"input-0","datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"predict","datatype":"INT64","shape":[-1,1]},{"name":"predict_proba","datatype":"FP32","shape":[-1,3]}],"parameters":{"backend":"native","contributions":"margin"}}"#;
    let ready = r#"{"name":"iris-xgboost","ready":true}"#;
    let version = env!("CARGO_PKG_VERSION");
    let expected = [
        ("/v2/health/live", r#"{"live":true}"#),
        ("/v2/health/ready", r#"{"ready":true}"#),
        ("/v2", &format!(r#"{{"name":"mlserver","version":"{version}","extensions":["binary_tensor_data"]}}"#)),
        (IRIS, metadata),
        ("/v2/models/iris-xgboost/versions/v1.0.0", metadata),
        ("/v2/models/iris-xgboost?model_version=v1.0.0", metadata),
        ("/v2/models/iris%2Dxgboost", metadata),
        ("/v2/models/iris-xgboost/ready", ready),
        ("/v2/models/iris-xgboost/versions/v1.0.0/ready", ready),
        ("/v2/models/iris-xgboost/ready?model_version=v1.0.0", ready),
    ];
    for (path, body) in expected {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.text()), (200, body), "{path}");
        assert_eq!(answer.header("content-type"), "application/json", "{path}");
        assert_ne!(answer.header("date"), "", "{path}");
    }
}

#[test]
fn every_infer_route_gives_the_same_answer() {
    let server = TestServer::iris();
    let body = ONE_ROW.replace("{\"inputs\"", "{\"id\":\"i\",\"inputs\"");
    let expected = r#"{"model_name":"iris-xgboost","model_version":"v1.0.0","id":"i","parameters":{},"outputs":[{"name":"predict","shape":[1,1],"datatype":"INT64","parameters":{"content_type":"np"},"data":[2]}]}"#;
    for path in [
        "/infer",
        "/generate",
        "/versions/v1.0.0/infer",
        "/versions/v1.0.0/generate",
        "/infer?model_version=v1.0.0",
        "/infer?unknown=1&model_version=v1.0.0",
        "/infer?unknown=1",
        // The path takes precedence.
        "/versions/v1.0.0/infer?model_version=other",
    ] {
        let answer = server.post(&format!("{IRIS}{path}"), &body);
        assert_eq!((answer.status, answer.text()), (200, expected), "{path}");
    }
}

#[test]
fn unknown_models_and_versions_answer_404() {
    let server = TestServer::iris();
    let get = |path: &str| server.get(path).error(404);
    let infer = |path: &str| server.post(path, ONE_ROW).error(404);
    for suffix in ["", "/ready"] {
        assert_eq!(get(&format!("/v2/models/nope{suffix}")), "Model nope not found");
        assert_eq!(get(&format!("/v2/models/nope/versions/1{suffix}")), "Model nope with version 1 not found");
        assert_eq!(get(&format!("{IRIS}/versions/1{suffix}")), "Model iris-xgboost with version 1 not found");
        let by_query = get(&format!("{IRIS}{suffix}?model_version=1"));
        assert_eq!(by_query, "Model iris-xgboost with version 1 not found");
    }
    assert_eq!(infer("/v2/models/nope/infer"), "Model nope not found");
    assert_eq!(infer("/v2/models/nope/versions/1/infer"), "Model nope with version 1 not found");
    assert_eq!(infer("/v2/models/nope/infer?model_version=1"), "Model nope with version 1 not found");
    assert_eq!(infer(&format!("{INFER}?model_version=")), "Model iris-xgboost with version  not found");
    assert_eq!(infer("/v2/models/a%2Fb%20c/infer"), "Model a/b c not found");
}

#[test]
fn unknown_model_answers_404_before_reading_the_body() {
    let server = TestServer::iris();
    let mut connection = server.connect();
    connection.write("POST /v2/models/nope/infer HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\n");
    assert_eq!(connection.answer().error(404), "Model nope not found");
}

#[test]
fn unknown_paths_answer_404() {
    let server = TestServer::iris();
    for path in ["/docs", "/v2/nothing", "/v1/nothing", "/v2/models/a/b/infer", "/v2//health"] {
        assert_eq!(server.get(path).error(404), format!("no such path: {path}"));
        server.post(path, "{}").error(404);
    }
}

#[test]
fn other_methods_answer_405_with_allow() {
    let server = TestServer::iris();
    let gets = ["/v2", "/v2/health/live", "/v2/health/ready", IRIS, "/v2/models/iris-xgboost/ready"];
    let methods = [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH];
    for path in gets {
        for method in &methods {
            let answer = server.request(method, path, &[], b"");
            assert_eq!(answer.error(405), format!("{path} does not support {method}"));
            assert_eq!(answer.header("allow"), "GET,HEAD");
        }
    }
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let answer = server.request(&method, INFER, &[], b"");
        assert_eq!(answer.error(405), format!("{INFER} does not support {method}"));
        assert_eq!(answer.header("allow"), "POST");
    }
    let head = server.request(&Method::HEAD, "/v2", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn trailing_slash_redirects() {
    let server = TestServer::iris();
    for (path, location) in [
        ("/v2/", "/v2"),
        ("/v2/health/ready/", "/v2/health/ready"),
        ("/v2/models/iris-xgboost/infer/?a=b", "/v2/models/iris-xgboost/infer?a=b"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.header("location"), answer.body.len()), (307, location, 0), "{path}");
    }
    let elsewhere = server.get("//example.org/");
    assert_eq!((elsewhere.status, elsewhere.header("location")), (404, ""), "no redirect to another host");
}

#[test]
fn server_metadata_comes_from_the_settings() {
    let server = iris_with(&json!({"server_name": "mine", "server_version": "7", "extensions": ["a", "b"]}));
    assert_eq!(
        server.get("/v2").text(),
        r#"{"name":"mine","version":"7","extensions":["binary_tensor_data","a","b"]}"#
    );
    let answer = server.post(INFER, ONE_ROW);
    assert_eq!(answer.header("ce-source"), "io.seldon.serving.deployment.mine");
    assert_eq!(answer.header("ce-inferenceservicename"), "mine");
}

#[test]
fn model_metadata_comes_from_the_settings() {
    let settings = json!({
        "platform": "plat",
        "versions": ["a/1"],
        "inputs": [{"name": "in", "datatype": "INT32", "shape": [-1, 3], "parameters": {"content_type": "np"}}],
        "outputs": [{"name": "total", "datatype": "INT32", "shape": [-1, 1]}],
        "parameters": {"content_type": "np", "extra": {"secret": 1}, "own": 2},
    });
    let server = TestServer::start(Folder::new().with_iris("m", &settings));
    assert_eq!(
        server.get("/v2/models/m").text(),
        r#"{"name":"m","versions":["a/1"],"platform":"plat","inputs":[{"name":"in","datatype":"INT32","shape":[-1,3],"parameters":{"content_type":"np"}}],"outputs":[{"name":"total","datatype":"INT32","shape":[-1,1]}],"parameters":{"content_type":"np","backend":"native","contributions":"margin"}}"#
    );
}

// ------------------------------------------------------------------------------------------------------- infer

#[test]
fn quickstart_requests_are_answered() {
    let server = TestServer::quickstart();
    let answer = server.post(INFER, quickstart_request("iris-request.json")).ok();
    assert_eq!(
        answer["outputs"].to_string(),
        r#"[{"name":"predict","shape":[3,1],"datatype":"INT64","parameters":{"content_type":"np"},"data":[2,0,0]},{"name":"predict_proba","shape":[3,3],"datatype":"FP32","parameters":{"content_type":"np"},"data":[0.010120438,0.14140262,0.84847695,0.9923844,0.005218209,0.0023974306,0.9923844,0.005218209,0.0023974306]}]"#
    );
    let body = quickstart_request("breast-cancer-request.json");
    let answer = server.post("/v2/models/breast-cancer-lightgbm/infer", body).ok();
    assert_eq!(
        answer["outputs"].to_string(),
        r#"[{"name":"predict","shape":[2,1],"datatype":"FP64","parameters":{"content_type":"np"},"data":[0.0021666858556207997,0.002280063965770919]}]"#
    );
}

#[test]
fn cloud_event_headers_match_the_original() {
    let server = TestServer::iris();
    let answer = server.post(INFER, ONE_ROW.replace("{\"inputs\"", "{\"id\":\"my-id\",\"inputs\""));
    let mut headers: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("ce-"))
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    headers.sort();
    insta::assert_snapshot!(headers.join("\n"), @r"
    ce-endpoint: iris-xgboost
    ce-id: my-id
    ce-inferenceservicename: mlserver
    ce-modelid: iris-xgboost
    ce-requestid: my-id
    ce-source: io.seldon.serving.deployment.mlserver
    ce-specversion: 0.3
    ce-type: io.seldon.serving.inference.response
    ");
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("content-length"), answer.body.len().to_string());
}

#[test]
fn request_id_is_kept_or_generated() {
    let server = TestServer::iris();
    let with_id = |id: &str| server.post(INFER, ONE_ROW.replace("{\"inputs\"", &format!("{{\"id\":{id},\"inputs\"")));
    let id_of = |answer: &Answer| answer.ok()["id"].as_str().unwrap().to_owned();

    let kept = with_id("\"a b\"");
    assert_eq!((id_of(&kept).as_str(), kept.header("ce-id"), kept.header("ce-requestid")), ("a b", "a b", "a b"));
    for made in [with_id("null"), server.post(INFER, ONE_ROW)] {
        let id = id_of(&made);
        assert_eq!(Uuid::parse_str(&id).unwrap().get_version_num(), 4);
        assert_eq!((made.header("ce-id"), made.header("ce-requestid")), (id.as_str(), id.as_str()));
    }
    let empty = with_id("\"\"");
    assert_eq!((id_of(&empty).as_str(), empty.header("ce-id"), empty.header("ce-requestid")), ("", "", ""));
    assert!(!empty.headers.contains_key("ce-id") && !empty.headers.contains_key("ce-requestid"));
    assert_eq!(empty.header("ce-modelid"), "iris-xgboost");
    // Ids that no header can hold are only in the body.
    let forged = with_id(r#""a\r\nx-forged: 1""#);
    assert_eq!(id_of(&forged), "a\r\nx-forged: 1");
    assert!(!forged.headers.contains_key("ce-id") && !forged.headers.contains_key("x-forged"));
    assert_eq!(with_id("7").error(422), "`id`: expected a string");
}

#[test]
fn requested_outputs_are_answered_in_order() {
    let server = TestServer::iris();
    let ask = |outputs: &str| server.post(INFER, ONE_ROW.replace("]}]}", &format!("]}}],\"outputs\":{outputs}}}")));
    let names = |answer: Answer| -> Vec<String> {
        let outputs = answer.ok()["outputs"].clone();
        outputs.as_array().unwrap().iter().map(|output| output["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(ask("[]")), ["predict"]);
    assert_eq!(names(ask("null")), ["predict"]);
    assert_eq!(names(ask(r#"[{"name":"predict_proba"}]"#)), ["predict_proba"]);
    assert_eq!(names(ask(r#"[{"name":"predict_proba"},{"name":"predict"}]"#)), ["predict_proba", "predict"]);
    assert_eq!(
        ask(r#"[{"name":"nope"}]"#).error(400),
        "XGBoostModel only supports 'predict', 'predict_proba', 'contributions', 'margin' and 'leaf' as outputs (nope was received)"
    );
}

#[test]
fn json_keys_in_any_order_and_unknown_keys_are_accepted() {
    let server = TestServer::iris();
    let body = r#"{"later":{"a":[1]},"inputs":[{"data":[[6.2,2.8],[4.8,1.8]],"extra":null,"shape":[1,4],"parameters":null,"datatype":"FP32","name":"x"}],"id":"z","parameters":{"own":[1,{"b":null}]}}"#;
    let answer = server.post(INFER, body.replace("[[6.2,2.8],[4.8,1.8]]", "[[6.2,2.8,4.8,1.8]]")).ok();
    assert_eq!((&answer["id"], &answer["outputs"][0]["data"]), (&json!("z"), &json!([2])));
    // Nesting that differs from the shape is flattened, as the original does.
    assert_eq!(server.post(INFER, body).ok()["outputs"][0]["data"], json!([2]));
}

#[test]
fn native_model_reads_every_numeric_datatype() {
    let server = TestServer::iris();
    for datatype in ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"] {
        let body = ONE_ROW.replace("FP32", datatype).replace("6.2,2.8,4.8,1.8", "6,3,5,2");
        assert_eq!(server.post(INFER, body).ok()["outputs"][0]["data"], json!([2]), "{datatype}");
    }
    let flags = ONE_ROW.replace("FP32", "BOOL").replace("6.2,2.8,4.8,1.8", "true,false,true,true");
    server.post(INFER, flags).ok();
    let missing = ONE_ROW.replace("2.8", "null");
    server.post(INFER, missing).ok();
}

#[test]
fn shape_with_minus_1_rows_is_accepted() {
    let answer = TestServer::iris().post(INFER, rows(3).replace("[3,4]", "[-1,4]")).ok();
    assert_eq!(answer["outputs"][0]["shape"], json!([3, 1]));
}

#[test]
fn zero_rows_give_zero_answers() {
    let answer =
        TestServer::iris().post(INFER, r#"{"inputs":[{"name":"x","shape":[0,4],"datatype":"FP32","data":[]}]}"#).ok();
    assert_eq!((&answer["outputs"][0]["shape"], &answer["outputs"][0]["data"]), (&json!([0, 1]), &json!([])));
}

#[test]
fn columns_become_a_data_frame() {
    let column =
        |name: &str, value: f32| json!({"name": name, "shape": [2, 1], "datatype": "FP32", "data": [value, value]});
    let inputs = [column("a", 6.2), column("b", 2.8), column("c", 4.8), column("d", 1.8)];
    let body = |content_type: &str| json!({"parameters": {"content_type": content_type}, "inputs": inputs}).to_string();
    let server = TestServer::iris();
    let answer = server.post(INFER, body("pd")).ok();
    assert_eq!((&answer["outputs"][0]["shape"], &answer["outputs"][0]["data"]), (&json!([2, 1]), &json!([2, 2])));
    let refused = "There was an error encoding / decoding the payload: The 'np' codec only supports a single input tensor (4 were received)";
    assert_eq!(server.post(INFER, body("np")).error(400), refused);

    let by_settings = Folder::new().with_iris("m", &json!({"parameters": {"content_type": "pd"}}));
    let server = TestServer::start(by_settings);
    server.post("/v2/models/m/infer", json!({"inputs": inputs}).to_string()).ok();
}

#[test]
fn headers_in_the_body_are_ignored_with_a_warning() {
    let server = TestServer::iris();
    let body = ONE_ROW.replace("{\"inputs\"", r#"{"id":"r1","parameters":{"headers":{"x-forged":"1"}},"inputs""#);
    let answer = server.post(INFER, body);
    assert_eq!(answer.ok()["parameters"], json!({}));
    assert!(!answer.headers.contains_key("x-forged"));
    let line = server.wait_for_log("parameter `headers`");
    assert!(line.contains("[mlserver][iris-xgboost] WARNING - ") && line.contains("request_id=r1"), "{line}");
}

#[test]
fn any_content_type_is_read_as_json() {
    let server = TestServer::iris();
    for content_type in [
        "application/json",
        "application/json; charset=utf-8",
        "application/vnd.x+json",
        "APPLICATION/JSON",
        // tritonclient's asynchronous client labels all bodies so.
        "application/octet-stream",
        "",
    ] {
        server.post_with(INFER, &[("content-type", content_type)], ONE_ROW).ok();
    }
    let mut connection = server.connect();
    let length = ONE_ROW.len();
    connection.write(format!("POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{ONE_ROW}"));
    connection.answer().ok();
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "text/json"] {
        let error = server.post_with(INFER, &[("content-type", content_type)], ONE_ROW).error(422);
        let expected = "is not supported: send application/json or application/octet-stream";
        assert_eq!(error, format!("the content type `{content_type}` {expected}"));
    }
}

#[test]
fn long_request_and_response_pass() {
    let count = 20_000;
    let body = rows(count).replace("]}]}", r#"]}],"outputs":[{"name":"predict"}]}"#);
    assert!(body.len() > 256 * 1024, "long enough for the compute pool");
    let answer = TestServer::iris().post(INFER, body).ok();
    assert_eq!(answer["outputs"][0]["data"].as_array().unwrap().len(), count);
}

// -------------------------------------------------------------------------------------------------------- gzip

#[test]
fn long_response_is_compressed_if_accepted() {
    let server = TestServer::iris();
    let ask = |rows_: usize, accepted: &[(&str, &str)]| {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(accepted);
        // This client shows the bytes on the wire, and does not decompress them.
        let body = rows(rows_);
        let mut connection = server.connect();
        let head = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<Vec<_>>().concat();
        let length = body.len();
        connection.write(format!(
            "POST {INFER} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{head}content-length: {length}\r\n\r\n{body}"
        ));
        connection.answer()
    };
    let accept = [("accept-encoding", "br, gzip")];
    let compressed = ask(500, &accept);
    assert_eq!(compressed.header("content-encoding"), "gzip");
    assert_eq!(compressed.header("vary").to_lowercase(), "accept-encoding");
    let mut text = String::new();
    GzDecoder::new(&compressed.body[..]).read_to_string(&mut text).unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["outputs"][0]["shape"], json!([500, 1]));
    assert_ne!(compressed.header("ce-id"), "");

    let plain = ask(500, &[]);
    assert_eq!((plain.header("content-encoding"), plain.ok()["outputs"][0]["shape"].clone()), ("", json!([500, 1])));
    let refused = ask(500, &[("accept-encoding", "gzip;q=0")]);
    assert_eq!(refused.header("content-encoding"), "");
    let short = ask(1, &accept);
    assert!(short.body.len() < 500);
    assert_eq!(short.header("content-encoding"), "");
}

#[test]
fn response_compression_can_be_disabled() {
    let server = iris_with(&json!({"gzip_enabled": false}));
    let headers = [("content-type", "application/json"), ("accept-encoding", "gzip")];
    let answer = server.post_with(INFER, &headers, rows(500));
    assert_eq!((answer.header("content-encoding"), answer.header("vary")), ("", ""));
    answer.ok();
}

#[test]
fn decompressing_client_reads_the_response() {
    let server = TestServer::iris();
    let agent: ureq::Agent = ureq::Agent::config_builder().proxy(None).build().into();
    let url = format!("http://{}{INFER}", server.http);
    let mut response = agent.post(&url).content_type("application/json").send(rows(500)).unwrap();
    assert_eq!(response.headers()["vary"].to_str().unwrap().to_lowercase(), "accept-encoding");
    let answer: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!(answer["outputs"][0]["shape"], json!([500, 1]));
}

#[test]
fn compressed_requests_are_read() {
    let server = TestServer::iris();
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    server.post_with(INFER, &headers, gzip(ONE_ROW.as_bytes())).ok();
    let many = rows(30_000);
    server.post_with(INFER, &headers, gzip(many.as_bytes())).ok();
    let identity = [("content-type", "application/json"), ("content-encoding", "identity")];
    server.post_with(INFER, &identity, ONE_ROW).ok();

    let mut cut = gzip(ONE_ROW.as_bytes());
    cut.truncate(cut.len() / 2);
    for corrupt in [ONE_ROW.as_bytes(), &cut, b""] {
        let error = server.post_with(INFER, &headers, corrupt).error(400);
        assert!(error.starts_with("the body is not valid gzip: "), "{error}");
    }
    let deflate = [("content-type", "application/json"), ("content-encoding", "deflate")];
    let error = server.post_with(INFER, &deflate, ONE_ROW).error(400);
    assert!(error.starts_with("the body is not valid deflate: "), "{error}");
    let other = [("content-type", "application/json"), ("content-encoding", "br")];
    let error = server.post_with(INFER, &other, ONE_ROW).error(415);
    assert_eq!(error, "the content encoding `br` is not supported: send gzip, deflate or none");
    server.post(INFER, ONE_ROW).ok();
}

// ------------------------------------------------------------------------------------------------------ limits

#[test]
fn too_long_body_is_rejected() {
    let limit = 1000;
    let server = iris_with(&json!({"http_max_body_bytes": limit}));
    let expected = "the body is larger than 1000 bytes (setting `http_max_body_bytes`)";
    let padded = |length: usize| format!("{ONE_ROW}{}", " ".repeat(length - ONE_ROW.len()));
    server.post(INFER, padded(limit)).ok();
    assert_eq!(server.post(INFER, padded(limit + 1)).error(413), expected);

    // Rejected by its length, before any of it is sent.
    let mut connection = server.connect();
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n");
    connection.write(format!("{head}content-length: 99999999999\r\nexpect: 100-continue\r\n\r\n"));
    assert_eq!(connection.answer().error(413), expected);

    // Rejected in chunks, as soon as the limit is exceeded.
    let mut connection = server.connect();
    connection.write(format!("{head}transfer-encoding: chunked\r\n\r\n"));
    let chunk = format!("64\r\n{}\r\n", " ".repeat(100));
    for _ in 0..11 {
        connection.write(&chunk);
    }
    assert_eq!(connection.answer().error(413), expected);

    // Rejected after decompression.
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let bomb = gzip(&vec![b' '; 500_000]);
    assert!(bomb.len() < limit);
    assert_eq!(server.post_with(INFER, &headers, bomb).error(413), expected);
    server.post(INFER, ONE_ROW).ok();
}

#[test]
fn gzip_bomb_memory_is_limited() {
    let megabyte = 1 << 20;
    let server = iris_with(&json!({"http_max_body_bytes": megabyte}));
    server.post(INFER, ONE_ROW).ok();
    let before = server.peak_memory();
    let bomb = gzip(&vec![b' '; 64 * megabyte]);
    assert!(bomb.len() < megabyte);
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    server.post_with(INFER, &headers, bomb).error(413);
    let grown = server.peak_memory() - before;
    assert!(grown < 16 * 1024, "{grown} KiB");
    server.post(INFER, ONE_ROW).ok();
}

#[test]
fn max_in_flight_exceeded_answers_503() {
    let server = iris_with(&json!({"max_in_flight": 1}));
    let body = rows(5000);
    let (most, last) = body.split_at(body.len() - 1);
    // Whether two requests overlap is up to the scheduler, so there are several attempts.
    let met = (0..100).any(|_| {
        let mut uploads: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for upload in &mut uploads {
            upload.start_upload(INFER, body.len());
            upload.write(most);
        }
        for upload in &mut uploads {
            upload.write(last);
        }
        let answers: Vec<Answer> = uploads.iter_mut().map(|upload| upload.answer()).collect();
        let (answered, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
        assert!(!answered.is_empty(), "one is always admitted");
        for refused in &refused {
            assert_eq!(refused.header("retry-after"), "1");
            assert_eq!(
                refused.error(503),
                "the server already has 1 requests in flight (`max_in_flight`); try again later"
            );
        }
        !refused.is_empty()
    });
    assert!(met, "no two requests met");
    // A response counts until the server knows that it has been sent, which may be after the client has read it.
    wait_until("the slot is free again", || server.post(INFER, ONE_ROW).status == 200);
}

// ------------------------------------------------------------------------------------- proxies and browsers

#[test]
fn root_path_is_served_with_and_without_prefix() {
    let server = iris_with(&json!({"root_path": "/pre"}));
    for prefix in ["", "/pre"] {
        assert_eq!(server.get(&format!("{prefix}/v2")).ok()["name"], "mlserver");
        server.post(&format!("{prefix}{INFER}"), ONE_ROW).ok();
        let redirect = server.get(&format!("{prefix}/v2/"));
        assert_eq!((redirect.status, redirect.header("location")), (307, "/pre/v2"));
    }
    server.get("/prefix/v2").error(404);
    server.get("/pre").error(404);
}

fn cors() -> TestServer {
    iris_with(&json!({"cors_settings": {
        "allow_origins": ["https://a.example"],
        "allow_origin_regex": "https://.*\\.b\\.example",
        "allow_methods": ["GET", "POST"],
        "allow_headers": ["x-h"],
        "expose_headers": ["ce-id"],
        "allow_credentials": true,
        "max_age": 30,
    }}))
}

#[test]
fn cors_allowed_preflight_is_granted() {
    let server = cors();
    for origin in ["https://a.example", "https://x.b.example"] {
        let headers =
            [("origin", origin), ("access-control-request-method", "POST"), ("access-control-request-headers", "x-h")];
        let answer = server.request(&Method::OPTIONS, INFER, &headers, b"");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("access-control-allow-origin"), origin);
        assert_eq!(answer.header("access-control-allow-methods"), "GET,POST");
        assert_eq!(answer.header("access-control-allow-credentials"), "true");
        assert_eq!(answer.header("access-control-max-age"), "30");
        assert_eq!(
            answer.header("access-control-allow-headers"),
            "accept,accept-language,content-language,content-type,x-h"
        );
        let vary: Vec<_> = answer.headers.get_all("vary").iter().map(|value| value.to_str().unwrap()).collect();
        assert!(vary.join(",").to_lowercase().contains("origin"), "{vary:?}");
    }
}

#[test]
fn cors_origins_alone_may_post() {
    let server = iris_with(&json!({"cors_settings": {"allow_origins": ["https://a.example"]}}));
    let origin = ("origin", "https://a.example");
    let headers =
        [origin, ("access-control-request-method", "POST"), ("access-control-request-headers", "content-type")];
    let preflight = server.request(&Method::OPTIONS, INFER, &headers, b"");
    assert_eq!(preflight.header("access-control-allow-origin"), "https://a.example");
    assert_eq!(preflight.header("access-control-allow-methods"), "GET,POST");
    assert!(preflight.header("access-control-allow-headers").contains("content-type"));
    let answer = server.post_with(INFER, &[origin, ("content-type", "application/json")], ONE_ROW);
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, "https://a.example"));
    // Only what is asked for.
    let narrow = json!({"cors_settings": {"allow_origins": ["https://a.example"], "allow_methods": ["GET"]}});
    let preflight = iris_with(&narrow).request(&Method::OPTIONS, INFER, &headers, b"");
    assert_eq!(preflight.header("access-control-allow-methods"), "GET");
}

#[test]
fn cors_other_origin_is_not_granted() {
    let server = cors();
    for origin in ["https://evil.example", "https://a.example.evil", "https://x.b.example.evil", "null"] {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        let preflight = server.request(&Method::OPTIONS, INFER, &headers, b"");
        assert!(!preflight.headers.contains_key("access-control-allow-origin"), "{origin}");
        let simple = server.request(&Method::GET, "/v2", &[("origin", origin)], b"");
        assert_eq!(simple.status, 200);
        assert!(!simple.headers.contains_key("access-control-allow-origin"), "{origin}");
    }
}

#[test]
fn cors_simple_request_names_the_allowed_origin() {
    let server = cors();
    let headers = [("origin", "https://a.example"), ("content-type", "application/json")];
    for answer in [server.post_with(INFER, &headers, ONE_ROW), server.post_with(INFER, &headers, "{")] {
        assert_eq!(answer.header("access-control-allow-origin"), "https://a.example");
        assert_eq!(answer.header("access-control-allow-credentials"), "true");
        assert_eq!(answer.header("access-control-expose-headers"), "ce-id");
    }
}

#[test]
fn cors_without_settings_sends_no_headers() {
    let server = TestServer::iris();
    let answer = server.request(&Method::GET, "/v2", &[("origin", "https://a.example")], b"");
    assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")), "{answer:?}");
}

#[test]
fn cors_invalid_settings_fail_the_start() {
    let folder = Folder::iris().settings(&json!({"cors_settings": {"allow_origin_regex": "("}}));
    let ended = ServerBuilder::new(folder).run();
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr, "error: `cors_settings.allow_origin_regex`: `(` is not a regular expression\n");
}

// ------------------------------------------------------------------------------------------------- connections

#[test]
fn connection_carries_many_requests() {
    let server = TestServer::iris();
    let mut connection = server.connect();
    let length = ONE_ROW.len();
    let request = format!(
        "POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{ONE_ROW}"
    );
    for _ in 0..200 {
        connection.write(&request);
        connection.answer().ok();
    }
    // Several concurrent requests, with errors among them.
    let bad = request.replace("FP32", "FP99");
    connection.write(format!("{request}{bad}{request}").repeat(20));
    for _ in 0..20 {
        connection.answer().ok();
        connection.answer().error(422);
        connection.answer().ok();
    }
}

#[test]
fn http_1_0_is_answered_and_closed() {
    let server = TestServer::iris();
    let mut connection = server.connect();
    connection.write("GET /v2/health/live HTTP/1.0\r\n\r\n");
    assert_eq!(connection.answer().status, 200);
    assert_eq!(connection.rest(), "");
}

#[test]
fn many_connections_are_served_concurrently() {
    let server = TestServer::iris();
    std::thread::scope(|scope| {
        for client in 0..16 {
            let server = &server;
            scope.spawn(move || {
                for request in 0..20 {
                    let id = format!("{client}-{request}");
                    let body = ONE_ROW.replace("{\"inputs\"", &format!("{{\"id\":\"{id}\",\"inputs\""));
                    assert_eq!(server.post(INFER, body).ok()["id"], id);
                }
            });
        }
    });
}

#[tokio::test]
async fn http_2_with_prior_knowledge_is_served() {
    let server = TestServer::iris();
    let stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..10 {
        let request = http::Request::post(format!("http://test{INFER}")).header("content-type", "application/json");
        let (answer, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(ONE_ROW.into(), true).unwrap();
        answers.push(answer);
    }
    for answer in answers {
        let answer = answer.await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["ce-modelid"].as_bytes()),
            (200, &b"iris-xgboost".as_slice())
        );
        let mut body = answer.into_body();
        let mut text = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            text.extend_from_slice(&data);
        }
        let answer: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(answer["outputs"][0]["data"], json!([2]));
    }
    drop(client);
    connection.await.unwrap().unwrap();
}

#[test]
fn early_response_keeps_the_connection_usable() {
    let server = TestServer::quickstart();
    let head = |path: &str, length: &str| format!("POST {path} HTTP/1.1\r\nhost: test\r\n{length}\r\n\r\n");
    let known = format!("content-length: {}", ONE_ROW.len());
    let chunked = format!("{:x}\r\n{ONE_ROW}\r\n0\r\n\r\n", ONE_ROW.len());
    // Gives the server time for a response that does not wait for the body.
    let pause = || (0..10).for_each(|_| drop(server.get("/v2/health/live").ok()));
    let mut connection = server.connect();
    for path in ["/v2/models/nope/infer", "/v2/models/nope/infer_stream", "/nothing", "/v2", INFER] {
        connection.write(head(path, &known));
        pause();
        connection.write(ONE_ROW);
        assert_eq!(connection.answer().header("connection"), "", "{path}");
    }
    connection.write(head(INFER, "transfer-encoding: chunked"));
    pause();
    connection.write(chunked);
    assert_eq!(connection.answer().header("connection"), "");

    // The server does not wait for a body that may be long, and announces that it closes the connection.
    for length in ["content-length: 1000000000", "transfer-encoding: chunked"] {
        let mut connection = server.connect();
        connection.write(head("/v2/models/nope/infer", length));
        let answer = connection.answer();
        assert_eq!((answer.error(404).as_str(), answer.header("connection")), ("Model nope not found", "close"));
        assert_eq!(connection.rest(), "");
    }
}

#[test]
fn responses_have_a_content_length() {
    let server = TestServer::start(Folder::iris());
    for answer in [server.get("/v2"), server.get("/v2/nothing"), server.scrape()] {
        assert_eq!(answer.header("content-length"), answer.body.len().to_string());
        assert_eq!(answer.header("transfer-encoding"), "");
    }
}
