//! OpenAI's API: by models that take tensors, and by methods of models in Python. `tests/clients` has its clients.

use std::fs;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use mlserver::access::KeyHash;
use serde_json::{Value, json};

use crate::support::goldens::sklearn_golden;
use crate::support::python::{python, with_python};
use crate::support::{Answer, Client, Connection, Folder, ServerBuilder, TestServer, pause, repository_path};

/// A model that makes 32 numbers of each text, for `/embeddings`, and scores of them would not fit `/rerank`.
pub(crate) fn hashing(openai: &Value) -> Folder {
    let settings = json!({
        "name": "hashing",
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./model.joblib", "extra": {"predict_fn": "transform", "openai": openai}},
    });
    Folder::new()
        .file("hashing/model.joblib", sklearn_golden("1.5.2/texts/hashing.joblib"))
        .file("hashing/model-settings.json", settings.to_string())
}

pub(crate) fn embedding() -> Value {
    json!({"embeddings": {"input": "text", "output": "transform"}})
}

fn python_models(models: &[(&str, &str)]) -> Folder {
    let source = fs::read(repository_path("tests/fixtures/workers/openai.py")).unwrap();
    models.iter().fold(Folder::new(), |folder, (name, class)| {
        let settings = json!({"name": name, "implementation": format!("models.{class}")});
        folder
            .file(&format!("{name}/models.py"), &source)
            .file(&format!("{name}/model-settings.json"), settings.to_string())
    })
}

fn llm(settings: &Value) -> Option<TestServer> {
    Some(with_python(python_models(&[("llm", "Llm")]).settings(settings))?.start())
}

fn chat(content: &str, others: &Value) -> String {
    let mut body = json!({"model": "llm", "messages": [{"role": "user", "content": content}]});
    body.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
    body.to_string()
}

const CHAT: &str = "/openai/v1/chat/completions";

/// Checks the form of an error, and returns it.
fn error(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_ne!(answer.header("x-request-id"), "");
    let error = answer.json()["error"].clone();
    let fields: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["message", "type", "param", "code"]);
    error
}

fn kind(answer: &Answer, status: u16) -> Value {
    let error = error(answer, status);
    json!([error["type"], error["param"], error["code"]])
}

#[test]
fn openai_embeddings_of_a_native_model_are_numbers_and_base64() {
    let server = TestServer::start(hashing(&embedding()));
    let body = json!({"model": "hashing", "input": ["good fine", "bad"]});
    let answer = server.post("/openai/v1/embeddings", body.to_string());
    let whole = answer.ok();
    assert_eq!((&whole["object"], &whole["model"]), (&json!("list"), &json!("hashing")));
    assert_eq!(whole["usage"], json!({"prompt_tokens": 0, "total_tokens": 0}));
    let request = json!({
        "inputs": [{"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": ["good fine", "bad"]}],
        "outputs": [{"name": "transform"}],
    });
    let expected = server.post("/v2/models/hashing/infer", request.to_string()).ok();
    let numbers: Vec<f64> = serde_json::from_value(expected["outputs"][0]["data"].clone()).unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "embeddings are FP32")]
    let numbers: Vec<f32> = numbers.into_iter().map(|number| number as f32).collect();
    let rows: Vec<Vec<f32>> =
        (0..2).map(|index| serde_json::from_value(whole["data"][index]["embedding"].clone()).unwrap()).collect();
    assert_eq!(rows.concat(), numbers);
    let text = json!({"model": "hashing", "input": "good fine", "encoding_format": "base64"});
    let coded = server.post("/openai/v1/embeddings", text.to_string()).ok();
    let bytes = BASE64.decode(coded["data"][0]["embedding"].as_str().unwrap()).unwrap();
    assert_eq!(bytes, rows[0].iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>());
    let metrics = server.scrape();
    let series = "path=\"/openai/v1/embeddings\",status_code=\"200\"} 2";
    assert!(metrics.text().contains(series), "{}", metrics.text());
    assert!(metrics.text().contains("model_infer_request_success_total{model=\"hashing\",version=\"None\"} 3"));
}

#[test]
fn openai_errors_name_field_type_and_code() {
    let server = TestServer::start(hashing(&embedding()).with_identity("identity"));
    let post = |path: &str, body: &str| server.post(&format!("/openai/v1/{path}"), body);
    let invalid = |param: &str| json!(["invalid_request_error", param, null]);
    assert_eq!(kind(&post("embeddings", "{"), 400), json!(["invalid_request_error", null, null]));
    assert_eq!(kind(&post("embeddings", "{}"), 400), invalid("model"));
    assert_eq!(kind(&post("embeddings", r#"{"model": "hashing"}"#), 400), invalid("input"));
    assert_eq!(kind(&post("embeddings", r#"{"model": "hashing", "input": [1]}"#), 400), invalid("input"));
    let cut = r#"{"model": "hashing", "input": "a", "dimensions": 3}"#;
    assert_eq!(kind(&post("embeddings", cut), 400), invalid("dimensions"));
    let unknown = post("embeddings", r#"{"model": "other", "input": "a"}"#);
    assert_eq!(kind(&unknown, 404), json!(["invalid_request_error", "model", "model_not_found"]));
    let body =
        r#"{"model": "identity", "input": "a", "prompt": "a", "query": "a", "documents": ["a"], "messages": [{}]}"#;
    for (path, name) in [
        ("embeddings", "Embeddings"),
        ("completions", "Completions"),
        ("rerank", "Rerank"),
        ("chat/completions", "Chat Completion"),
    ] {
        let message = error(&post(path, body), 400)["message"].clone();
        assert_eq!(message, format!("Model identity does not support {name} API"));
    }
    assert_eq!(kind(&server.get("/openai/v1/embeddings"), 405), json!(["invalid_request_error", null, null]));
    assert_eq!(server.get("/openai/v1/embeddings").header("allow"), "POST");
    let text = [("content-type", "text/plain")];
    let answer = server.request(&Method::POST, "/openai/v1/embeddings", &text, b"{}");
    assert_eq!(kind(&answer, 400), json!(["invalid_request_error", null, null]));
    let named = [("x-request-id", "req-7")];
    assert_eq!(server.request(&Method::POST, "/openai/v1/embeddings", &named, b"{").header("x-request-id"), "req-7");
}

/// The server reads the bodies of models that take tensors, and Python those of its models.
#[test]
fn openai_bodies_may_begin_with_a_byte_order_mark() {
    let native = TestServer::start(hashing(&embedding()));
    let embeddings = json!({"model": "hashing", "input": "a"}).to_string();
    let Some(python) = llm(&json!({})) else { return };
    for (server, path, body) in
        [(&native, "/openai/v1/embeddings", embeddings), (&python, CHAT, chat("hello", &json!({})))]
    {
        server.post(path, format!("\u{feff}{body}")).ok();
        let wide: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let error = error(&server.post(path, wide), 400);
        let message = error["message"].as_str().unwrap();
        assert!(message.ends_with("it is UTF-16 text: save it as UTF-8"), "{path}: {message}");
    }
}

#[test]
fn openai_models_lists_those_that_answer() {
    let server = TestServer::start(hashing(&embedding()).with_identity("identity"));
    let list = server.get("/openai/v1/models").ok();
    let created = list["data"][0]["created"].as_u64().unwrap();
    let described = json!({"id": "hashing", "object": "model", "created": created, "owned_by": "mlserver"});
    assert_eq!(list, json!({"object": "list", "data": [described]}));
    assert_eq!(server.get("/openai/v1/models/hashing").ok(), described);
    for name in ["identity", "other", "hashing@1"] {
        let answer = server.get(&format!("/openai/v1/models/{name}"));
        assert_eq!(kind(&answer, 404), json!(["invalid_request_error", "model", "model_not_found"]), "{name}");
    }
    assert_eq!(server.get("/v1/models").ok(), json!({"models": ["hashing", "identity"]}));
}

#[test]
fn openai_versions_follow_the_name() {
    let folder = hashing(&embedding());
    let artifact = sklearn_golden("1.5.2/texts/hashing.joblib");
    let settings = json!({
        "name": "org/model", "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {
            "uri": "./model.joblib", "version": "v2",
            "extra": {"predict_fn": "transform", "openai": {"embeddings": {"input": "text", "output": "transform", "dimensions": true}}},
        },
    });
    let folder = folder.file("two/model.joblib", artifact).file("two/model-settings.json", settings.to_string());
    let server = TestServer::start(folder);
    let length = |model: &str| {
        let body = json!({"model": model, "input": "a", "dimensions": 3});
        let answer = server.post("/openai/v1/embeddings", body.to_string());
        let answer = (answer.status == 200).then(|| answer.json())?;
        assert_eq!(answer["model"], model);
        Some(answer["data"][0]["embedding"].as_array().unwrap().len())
    };
    assert_eq!(length("org/model@v2"), Some(3));
    assert_eq!(length("org/model"), Some(3));
    assert_eq!(length("org/model@v3"), None);
    assert_eq!(server.get("/openai/v1/models/org%2Fmodel@v2").ok()["id"], "org/model@v2");
}

#[test]
fn openai_prefix_is_a_setting_and_may_be_empty() {
    let body = json!({"model": "hashing", "input": "a"}).to_string();
    let server = TestServer::start(hashing(&embedding()).settings(&json!({"openai_route_prefix": "llm/"})));
    server.post("/llm/v1/embeddings", &body).ok();
    server.get("/llm/v1/models").ok();
    assert_eq!(server.post("/openai/v1/embeddings", &body).status, 404);
    let document = server.get("/v2/docs/dataplane.json").ok();
    assert!(document["paths"]["/llm/v1/embeddings"].is_object(), "{document}");

    let server = ServerBuilder::new(hashing(&embedding()).with_identity("identity"))
        .env("KSERVE_OPENAI_ROUTE_PREFIX", "")
        .start();
    server.post("/v1/embeddings", &body).ok();
    let list = server.get("/v1/models").ok();
    assert_eq!((&list["object"], &list["models"]), (&json!("list"), &json!(["hashing", "identity"])));
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    let model = server.get("/v1/models/hashing").ok();
    assert_eq!((&model["ready"], &model["id"]), (&json!(true), &json!("hashing")));
    assert_eq!(server.get("/v1/models/identity").ok(), json!({"name": "identity", "ready": true}));
}

#[test]
fn openai_rights_are_checked_for_the_model_of_the_body() {
    let hash = |name: &str| KeyHash::of(name.as_bytes()).to_string();
    let keys = json!([
        {"name": "all", "hash": hash("all"), "scopes": ["infer", "read"]},
        {"name": "one", "hash": hash("one"), "scopes": ["infer"], "models": ["identity"]},
    ]);
    let folder = hashing(&embedding()).with_identity("identity").file("keys.json", keys.to_string());
    let settings = json!({"api_keys_file": "keys.json", "openai_route_prefix": ""});
    let server = TestServer::start(folder.settings(&settings));
    let body = json!({"model": "hashing", "input": "a"}).to_string();
    let post = |key: Option<&str>| {
        let authorization = key.map(|key| format!("Bearer {key}"));
        let headers: Vec<(&str, &str)> = authorization.iter().map(|value| ("authorization", value.as_str())).collect();
        server.request(&Method::POST, "/v1/embeddings", &headers, body.as_bytes())
    };
    assert_eq!(post(Some("all")).status, 200);
    for key in [None, Some("wrong")] {
        assert_eq!(kind(&post(key), 401), json!(["invalid_request_error", null, "invalid_api_key"]));
        assert!(post(key).header("www-authenticate").starts_with("Bearer"));
    }
    assert_eq!(kind(&post(Some("one")), 403), json!(["permission_error", null, null]));
    let list =
        |key: &str| server.request(&Method::GET, "/v1/models", &[("authorization", &format!("Bearer {key}"))], b"");
    assert_eq!(list("all").ok()["data"].as_array().unwrap().len(), 1);
    assert_eq!(list("one").status, 403, "it may not read");
    assert_eq!(server.get("/v1/models/hashing").ok(), json!({"name": "hashing", "ready": true}), "without a key");
}

#[test]
fn openai_setting_is_checked_when_the_model_is_loaded() {
    let folder = hashing(&json!({"embedding": {}}));
    let exit = ServerBuilder::new(folder).run();
    let log = format!("{exit:?}");
    assert!(
        log.contains("invalid setting `parameters.extra.openai`") && log.contains("unknown field `embedding`"),
        "{log}"
    );
}

#[test]
fn openai_output_that_is_no_embedding_is_an_error_of_the_server() {
    let server = TestServer::start(hashing(&json!({
        "embeddings": {"input": "text", "output": "nothing"},
        "completions": {"input": "text", "output": "transform"},
        "rerank": {"query": "query", "documents": "text", "output": "transform"},
    })));
    let post = |path: &str, body: &Value| server.post(&format!("/openai/v1/{path}"), body.to_string());
    let answer = post("completions", &json!({"model": "hashing", "prompt": "a"}));
    assert_eq!(kind(&answer, 500), json!(["server_error", null, null]));
    for (path, body) in [
        ("embeddings", json!({"model": "hashing", "input": "a"})),
        ("rerank", json!({"model": "hashing", "query": "a", "documents": ["b"]})),
    ] {
        let answer = post(path, &body);
        assert!(answer.status == 400 || answer.status == 500, "{}", answer.text());
        error(&answer, answer.status);
    }
}

#[test]
fn openai_hostile_bodies_are_refused_without_memory() {
    let server = TestServer::start(hashing(&json!({
        "embeddings": {"input": "text", "output": "transform", "dimensions": true},
        "completions": {"input": "text", "output": "transform"},
        "rerank": {"query": "query", "documents": "documents", "output": "transform"},
    })));
    let deep = |open: &str, count: usize| open.repeat(count);
    let many = |part: &str, count: usize| vec![part; count].join(",");
    let values: Vec<(&str, String)> = vec![
        ("open lists", deep("[", 500_000)),
        ("closed lists", deep("[", 100_000) + &"]".repeat(100_000)),
        ("open objects", deep("{\"a\":", 200_000)),
        ("empty list", "[]".to_owned()),
        ("list of an empty list", "[[]]".to_owned()),
        ("list of null", "[null]".to_owned()),
        ("list of true", "[true]".to_owned()),
        ("list of objects", "[{}]".to_owned()),
        ("mixed list", "[\"a\",1]".to_owned()),
        ("nested texts", "[[\"a\"]]".to_owned()),
        ("object", "{}".to_owned()),
        ("true", "true".to_owned()),
        ("number", "1".to_owned()),
        ("long number", "1".repeat(5_000)),
        ("exponent", "1e999999999".to_owned()),
        ("many tokens", format!("[{}]", many("1", 1_000_000))),
        ("many lists of tokens", format!("[{}]", many("[1]", 500_000))),
        ("half a character", "\"\\ud800\"".to_owned()),
        ("zero", "\"\\u0000\"".to_owned()),
        ("open text", "\"a".to_owned()),
    ];
    let mut kinds = 0;
    let mut ask = |path: &str, what: &str, body: Vec<u8>| {
        let started = Instant::now();
        let answer = server.request(&Method::POST, &format!("/openai/v1/{path}"), &[], &body);
        assert!(answer.status < 500, "{path} {what}: {} {}", answer.status, answer.text());
        if answer.status != 200 {
            error(&answer, answer.status);
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{path} {what}");
        kinds += 1;
    };
    for (what, value) in &values {
        for (path, field) in [
            ("embeddings", "input"),
            ("completions", "prompt"),
            ("rerank", "documents"),
            ("chat/completions", "messages"),
        ] {
            if path == "completions" && *what == "zero" {
                continue; // It is a text, for which the model has no answer.
            }
            let body = format!("{{\"model\":\"hashing\",\"query\":\"q\",\"{field}\":{value}}}");
            ask(path, what, body.into_bytes());
        }
    }
    for (what, body) in [
        ("nothing", b"".to_vec()),
        ("not UTF-8", b"{\"model\":\"\xff\"}".to_vec()),
        ("UTF-16", "{\"model\":\"hashing\"}".encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("two values", b"{}{}".to_vec()),
        (
            "many fields",
            format!("{{{}}}", (0..200_000).map(|key| format!("\"k{key}\":1")).collect::<Vec<_>>().join(","))
                .into_bytes(),
        ),
        ("long model", format!("{{\"model\":\"{}\",\"input\":\"a\"}}", "m".repeat(1_000_000)).into_bytes()),
        ("version of nothing", b"{\"model\":\"@\",\"input\":\"a\"}".to_vec()),
        ("many versions", format!("{{\"model\":\"{}\",\"input\":\"a\"}}", "@".repeat(100_000)).into_bytes()),
        ("largest dimensions", b"{\"model\":\"hashing\",\"input\":\"a\",\"dimensions\":18446744073709551615}".to_vec()),
        ("larger dimensions", b"{\"model\":\"hashing\",\"input\":\"a\",\"dimensions\":18446744073709551616}".to_vec()),
        (
            "largest top",
            b"{\"model\":\"hashing\",\"query\":\"a\",\"documents\":[1],\"top_n\":18446744073709551615}".to_vec(),
        ),
    ] {
        ask("embeddings", what, body);
    }
    assert!(kinds >= 60, "{kinds}");
    let peak = server.peak_memory();
    assert!(peak < 160 * 1024, "{peak} KiB");
}

#[test]
fn openai_chat_of_a_method_is_completed_counted_and_streamed() {
    let Some(server) = llm(&json!({})) else { return };
    let answer = server.request(&Method::POST, CHAT, &[("x-request-id", "r1")], chat("hello", &json!({})).as_bytes());
    assert_eq!(answer.header("x-request-id"), "r1");
    let answer = answer.ok();
    assert_eq!((&answer["id"], &answer["object"]), (&json!("chatcmpl-r1"), &json!("chat.completion")));
    assert_eq!(answer["choices"][0]["message"]["content"], "hello");
    let streamed = server.post(CHAT, chat("a b", &json!({"stream": true})));
    assert_eq!(streamed.header("content-type"), "text/event-stream; charset=utf-8");
    let events: Vec<&str> = streamed.text().split("\n\n").collect();
    assert_eq!((events.len(), events[4], events[5]), (6, "data: [DONE]", ""));
    assert!(events[1].contains(r#""delta":{"content":"a"}"#), "{}", events[1]);
    assert_eq!(
        server.post("/openai/v1/embeddings", r#"{"model":"llm","input":["a","bc"]}"#).ok()["data"][1]["embedding"],
        json!([2.0, 0.5])
    );
    let metrics = server.scrape();
    for series in [
        "model_infer_tokens_total{kind=\"prompt\",model=\"llm\",version=\"None\"} 4",
        "model_infer_tokens_total{kind=\"completion\",model=\"llm\",version=\"None\"} 9",
        "model_infer_first_chunk_seconds_count{model=\"llm\",version=\"None\"} 1",
        "model_infer_request_success_total{model=\"llm\",version=\"None\"} 3",
        "model_infer_in_flight{model=\"llm\",version=\"None\"} 0",
    ] {
        assert!(metrics.text().contains(series), "{series}: {}", metrics.text());
    }
}

#[test]
fn openai_errors_of_methods_have_their_status_or_end_the_stream() {
    let Some(server) = llm(&json!({})) else { return };
    let answer = server.post(CHAT, chat("fail", &json!({})));
    assert_eq!(kind(&answer, 500), json!(["server_error", null, null]));
    assert_eq!(error(&answer, 500)["message"], "builtins.ValueError: boom");
    assert_eq!(error(&server.post(CHAT, chat("refuse", &json!({}))), 418)["message"], "not this");
    let at_once = server.post(CHAT, chat("fail at once", &json!({"stream": true})));
    assert_eq!(error(&at_once, 500)["message"], "builtins.ValueError: at once");
    let later = server.post(CHAT, chat("a fail-later b", &json!({"stream": true})));
    let events: Vec<&str> = later.text().split("\n\n").collect();
    let last: Value = serde_json::from_str(events[events.len() - 2].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(last["error"]["message"], "builtins.ValueError: later");
    assert!(!later.text().contains("[DONE]"));
}

#[test]
fn openai_stream_ends_with_its_client_and_holds_nothing() {
    let Some(server) = llm(&json!({"parallel_workers": 1, "max_streams": 4})) else { return };
    for number in 1..=20 {
        let mut connection = Connection::open(server.http);
        let body = chat("a wait b", &json!({"stream": true}));
        connection.write(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        connection.wait_for_response();
        let closed = Instant::now();
        drop(connection);
        server.wait_for_log(&format!("closed {number}"));
        assert!(closed.elapsed() < Duration::from_secs(2), "{:?}", closed.elapsed());
    }
    let whole = server.post(CHAT, chat("all free", &json!({"stream": true})));
    assert!(whole.text().ends_with("data: [DONE]\n\n"), "{}", whole.text());
}

#[test]
fn openai_slow_reader_slows_down_the_model() {
    let Some(server) = llm(&json!({})) else { return };
    let mut connection = Connection::open(server.http);
    let body = chat("flood", &json!({"stream": true}));
    connection.write(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
    connection.wait_for_response();
    // A gigabyte would have come by then.
    pause(Duration::from_secs(2));
    let peak = server.peak_memory();
    assert!(peak < 160 * 1024, "{peak} KiB");
}

#[test]
fn openai_idle_stream_ends_with_an_error() {
    let Some(server) = llm(&json!({"stream_idle_timeout": 0.3})) else { return };
    let answer = server.post(CHAT, chat("wait", &json!({"stream": true})));
    let events: Vec<&str> = answer.text().split("\n\n").collect();
    let last: Value = serde_json::from_str(events[events.len() - 2].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((&last["error"]["type"], &last["error"]["code"]), (&json!("server_error"), &json!("timeout")));
}

#[test]
fn own_routes_of_models_take_precedence_and_are_named() {
    let folder = python_models(&[("llm", "Llm"), ("own", "Own")]);
    let Some(python) = python() else { return };
    let server = ServerBuilder::new(folder).python(&python).start();
    assert_eq!(server.post("/openai/v1/completions", "").ok(), json!("mine"));
    assert_eq!(server.post("/v1/chat/completions", "").ok(), json!("mine, too"));
    server.post(CHAT, chat("a", &json!({}))).ok();
    server.wait_for_log("`POST /openai/v1/completions` replaces that of the server");
}

#[test]
fn replies_of_own_routes_are_sent_while_they_are_made() {
    let Some(server) = with_python(python_models(&[("m", "Pieces")])) else { return };
    let server = server.start();
    let answer = server.get("/count/2");
    assert_eq!((answer.status, answer.text()), (200, "data: {\"n\":0}\n\ndata: {\"n\":1}\n\n"));
    // The client sees that the rest is missing.
    let mut connection = Connection::open(server.http);
    connection.write("GET /count/5 HTTP/1.1\r\nhost: a\r\n\r\n");
    let text = connection.rest();
    assert!(text.contains("{\"n\":2}") && !text.ends_with("0\r\n\r\n"), "{text}");
    server.wait_for_log("ValueError: three");
    let client = Client::new(server.http);
    assert_eq!(client.get("/count/1").status, 200);
}
