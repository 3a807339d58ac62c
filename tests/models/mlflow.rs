//! MLflow's folders without Python: both protocols, against the answers of MLflow's own scoring server, and rejected
//! models.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::Method;
use serde_json::{Value, json};

use crate::support::goldens::{framework_models, sklearn_golden};
use crate::support::{Folder, ServerBuilder, TestServer, repository_path};

const IMPLEMENTATION: &str = "mlserver_mlflow.MLflowRuntime";

fn goldens() -> PathBuf {
    repository_path("tests/goldens/mlflow")
}

fn settings(name: &str, backend: &str) -> String {
    let parameters = json!({"uri": "./model", "extra": {"backend": backend}});
    json!({"name": name, "implementation": IMPLEMENTATION, "parameters": parameters}).to_string()
}

/// A folder with one of the models, which must be served natively.
fn native(name: &str) -> Folder {
    copied(&goldens().join(name).join("model"), name, "native")
}

fn copied(source: &Path, name: &str, backend: &str) -> Folder {
    let mut folder = Folder::new().file(&format!("{name}/model-settings.json"), settings(name, backend));
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        folder = folder.file(&format!("{name}/model/{file}"), fs::read(path).unwrap());
    }
    folder
}

/// The error for requests that only Python can convert: values of several types, and texts of digits.
const REFUSED: &str = "The server evaluates this model natively";

/// Returns whether two answers are the same: numbers to the digits that `docs/scikit-learn.md` promises, the rest to
/// the byte.
fn agree(wanted: &str, found: &str) -> bool {
    fn close(wanted: &Value, found: &Value) -> bool {
        match (wanted, found) {
            (Value::Array(wanted), Value::Array(found)) => {
                wanted.len() == found.len() && wanted.iter().zip(found).all(|(wanted, found)| close(wanted, found))
            }
            (Value::Number(wanted), Value::Number(found)) if wanted.is_f64() && found.is_f64() => {
                let (wanted, found) = (wanted.as_f64().unwrap(), found.as_f64().unwrap());
                (wanted - found).abs() <= 1e-9 * wanted.abs().max(1e-3)
            }
            _ => wanted == found,
        }
    }
    let read = |text: &str| serde_json::from_str::<Value>(text).map(|value| value["predictions"].clone());
    wanted == found || matches!((read(wanted), read(found)), (Ok(a), Ok(b)) if a.is_array() && close(&a, &b))
}

#[test]
fn mlflow_answers_match_the_scoring_server() {
    let (answered, refused) = check_scoring(&goldens(), "3.12.0");
    assert!(answered > 415 && refused <= 17, "{answered} were answered, {refused} refused");
}

/// Newer versions of `MLflow` save such files by default.
#[test]
fn mlflow_skops_files_match_the_scoring_server() {
    let (answered, refused) = check_scoring(&goldens().join("skops"), "3.17.2");
    assert!(answered > 100 && refused <= 9, "{answered} were answered, {refused} refused");
}

/// Sends the golden requests to those of the models that are in a folder, which a version of `MLflow` saved. Returns how many were
/// answered and refused.
#[track_caller]
fn check_scoring(folder: &Path, version: &str) -> (usize, usize) {
    let cases: Vec<Value> = serde_json::from_slice(&fs::read(goldens().join("scoring.json")).unwrap()).unwrap();
    let mut models: Vec<&str> = cases.iter().map(|case| case["model"].as_str().unwrap()).collect();
    models.dedup();
    models.retain(|model| folder.join(model).is_dir());
    let (mut differences, mut refused, mut answered) = (Vec::new(), 0, 0);
    for model in models {
        let server = TestServer::start(copied(&folder.join(model).join("model"), model, "native"));
        for case in cases.iter().filter(|case| case["model"] == model) {
            let body = case["body"].as_str().unwrap();
            let headers = [("content-type", case["content_type"].as_str().unwrap())];
            let method = Method::from_bytes(case["method"].as_str().unwrap().as_bytes()).unwrap();
            let answer = server.request(&method, case["path"].as_str().unwrap(), &headers, body.as_bytes());
            let wanted = &case["answer"];
            let text = if case["path"] == "/version" { version } else { wanted["text"].as_str().unwrap() };
            if answer.status == 400 && answer.text().contains(REFUSED) {
                refused += 1;
                continue;
            }
            answered += 1;
            let same = wanted["status"] == answer.status
                && wanted["content_type"] == answer.header("content-type")
                && agree(text, answer.text());
            if !same {
                differences.push(format!("{model} {body}\n  wanted {text}\n  found  {}", answer.text()));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    (answered, refused)
}

#[test]
fn mlflow_signature_becomes_v2_metadata() {
    let server = TestServer::start(native("pipeline"));
    let metadata = server.get("/v2/models/pipeline").ok();
    let column = |name: &str, datatype: &str, content_type: &str| {
        let parameters = json!({"content_type": content_type});
        json!({"name": name, "datatype": datatype, "shape": [-1, 1], "parameters": parameters})
    };
    assert_eq!(metadata["parameters"], json!({"content_type": "pd", "backend": "native"}));
    let inputs = json!([
        column("city", "BYTES", "str"),
        column("age", "INT64", "np"),
        column("height", "FP64", "np"),
        column("member", "BOOL", "np")
    ]);
    assert_eq!(metadata["inputs"], inputs);
    assert_eq!(metadata["outputs"], json!([column("output-0", "BYTES", "str")]));

    let input = |name: &str, datatype: &str, data: Value| json!({"name": name, "datatype": datatype, "shape": [2, 1], "data": data});
    let age = |datatype| input("age", datatype, json!([30, 61]));
    let others = [
        input("member", "BOOL", json!([true, false])),
        input("height", "FP32", json!([170.5, 182])),
        input("city", "BYTES", json!(["Oslo", "Łódź"])),
    ];
    let infer = |inputs: Vec<Value>| {
        let body = json!({"id": "1", "inputs": inputs, "parameters": {"unknown": 1}}).to_string();
        server.post("/v2/models/pipeline/infer", body)
    };
    let with = |column: Value| infer([&others[..], &[column]].concat());
    let answer = with(age("INT32")).ok();
    let output = json!({"name": "output-1", "shape": [2, 1], "datatype": "BYTES", "parameters": {"content_type": "np"}, "data": ["nej", "ja"]});
    assert_eq!((&answer["outputs"], &answer["parameters"]), (&json!([output]), &json!({"content_type": "np"})));
    assert!(infer(others.to_vec()).error(400).contains("Model is missing inputs ['age']."));
    let float = with(age("FP64")).error(400);
    assert!(float.contains("column age. Can not safely convert float64 to int64."), "{float}");
    let text = with(input("age", "BYTES", json!(["a", "b"]))).error(400);
    assert!(text.contains("column age. Can not safely convert object to int64."), "{text}");
}

#[test]
fn mlflow_tensor_signature_checks_shape_and_datatype() {
    let server = TestServer::start(native("probabilities"));
    let infer = |datatype: &str, shape: Value, count: usize| {
        let input = json!({"name": "any", "datatype": datatype, "shape": shape, "data": vec![0.5; count]});
        server.post("/v2/models/probabilities/infer", json!({"inputs": [input]}).to_string())
    };
    let answer = infer("FP32", json!([2, 3]), 6).ok();
    assert_eq!((&answer["outputs"][0]["shape"], &answer["outputs"][0]["datatype"]), (&json!([2, 3]), &json!("FP64")));
    assert!(infer("FP64", json!([2, 3]), 6).error(400).contains("dtype of input float64 does not match"));
    assert!(infer("FP32", json!([3, 2]), 6).error(400).contains("Shape of input (3, 2) does not match"));
    // Without a signature, the request has to declare its content type.
    let server = TestServer::start(native("plain"));
    let input = json!({"name": "any", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]});
    let silent = server.post("/v2/models/plain/infer", json!({"inputs": [input]}).to_string());
    assert!(silent.error(400).contains("set the request's `content_type`"));
    let body = json!({"inputs": [input], "parameters": {"content_type": "np"}}).to_string();
    assert_eq!(server.post("/v2/models/plain/infer", body).ok()["outputs"][0]["datatype"], "INT64");
}

#[test]
fn mlflow_unreadable_body_is_rejected() {
    let server = TestServer::start(native("linear"));
    let call =
        |content_type: &str, body: &[u8]| server.post_with("/invocations", &[("content-type", content_type)], body);
    let deep = "[".repeat(100_000);
    for (content_type, body) in
        [("application/json", &b"\"\xff\""[..]), ("text/csv", b"\xff"), ("application/json", deep.as_bytes())]
    {
        let answer = call(content_type, body);
        assert_eq!((answer.status, &answer.json()["error_code"]), (400, &json!("INVALID_PARAMETER_VALUE")));
    }
    assert_eq!(call("application/vnd.apache.parquet", b"PAR1").status, 415);
    assert_eq!(call("", b"x").status, 415);
    server.get("/invocations").error(405);
    // Too long to be parsed on the request's own thread.
    let rows: Vec<_> = (0..5000).map(|row| json!([row, 1.5, -2])).collect();
    let answer = call("application/json", json!({"inputs": rows}).to_string().as_bytes()).ok();
    assert_eq!(answer["predictions"].as_array().unwrap().len(), 5000);
}

#[test]
fn mlflow_bodies_take_memory_in_proportion() {
    // What bodies of 1 MB may take.
    const MOST: u64 = 100 * 1024;
    let repeat = |part: &str| part.repeat((1 << 20) / part.len());
    let list = |part: &str| {
        let all = repeat(&format!("{part},"));
        format!("[{}]", all.trim_end_matches(','))
    };
    let names = (0..90_000).map(|index| format!("n{index}")).collect::<Vec<_>>();
    let columns = names.join(",");
    let keys = names.iter().map(|name| format!(r#""{name}":0"#)).collect::<Vec<_>>().join(",");
    // Each record has one of a thousand columns.
    let scattered = (0..75_000).map(|row| format!(r#"{{"n{}":0}}"#, row % 1000)).collect::<Vec<_>>().join(",");
    let json = |field: &str, value: &str| ("application/json", format!(r#"{{"{field}":{value}}}"#));
    let bodies = [
        ("text/csv", format!("{columns}\n{}", "1\n".repeat(200_000))),
        ("text/csv", format!("{columns}\n")),
        ("text/csv", format!("a\n{}", repeat("1\n"))),
        ("text/csv", format!("a\n{}", repeat("\"\"\n"))),
        ("text/csv", format!("a,b\n{}", repeat("x,\n"))),
        ("text/csv", repeat(",")),
        ("text/csv", repeat("\"")),
        json("dataframe_records", &list("{}")),
        json("dataframe_records", &format!("[{scattered}]")),
        json("dataframe_records", &list(r#"{"a":0}"#)),
        json("dataframe_records", &format!("[{{{keys}}},{}]", list("{}").trim_start_matches('['))),
        json("dataframe_split", &format!(r#"{{"data":{}}}"#, list("[]"))),
        json("dataframe_split", &format!(r#"{{"data":{}}}"#, list("0"))),
        json("inputs", &list("0")),
        json("inputs", &list("[0]")),
        json("inputs", &list(r#""""#)),
        json("inputs", &list(r#"{"a":0}"#)),
        json("inputs", &format!("{{{keys}}}")),
        json("instances", &list(r#"{"a":0}"#)),
        json("instances", &format!("[{{{keys}}}]")),
        json("messages", &list("0")),
        ("application/json", list(r#"{"a":0}"#)),
    ];
    for model in ["plain", "column", "linear"] {
        for (content_type, body) in &bodies {
            let server = TestServer::start(native(model));
            server.post_with("/invocations", &[("content-type", content_type)], "");
            let before = server.peak_memory();
            let answer = server.post_with("/invocations", &[("content-type", content_type)], body);
            assert!([200, 400].contains(&answer.status), "{answer:?}");
            let grown = server.peak_memory() - before;
            assert!(grown < MOST, "{model}: {grown} KiB for {} bytes of {content_type}: {body:.60}", body.len());
        }
    }
}

/// Returns the output of a server that cannot load the model.
fn refusal(description: &str) -> String {
    let folder = native("linear").file("linear/model/MLmodel", description);
    let ended = ServerBuilder::new(folder).run();
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    ended.stdout + &ended.stderr
}

#[test]
fn mlflow_unsupported_feature_is_rejected_by_name() {
    let good = fs::read_to_string(goldens().join("linear/model/MLmodel")).unwrap();
    let cases = [
        (
            "loader_module: mlflow.sklearn",
            "loader_module: mlflow.prophet",
            "models of `mlflow.prophet` are not evaluated",
        ),
        ("serialization_format: pickle", "serialization_format: avro", "in the format `avro`"),
        ("predict_fn: predict", "predict_fn: score", "`predict_fn` is `score`"),
        ("model_path: model.pkl", "model_path: ../model.pkl", "is outside of the folder"),
        ("model_path: model.pkl", "model_path: other.pkl", "does not exist"),
        ("params: null", r#"params: '[{"name": "x", "type": "long", "default": 1}]'"#, "its signature has params"),
        ("[-1, 3]", "[-1, 4]", "4 columns, but the model has 3 features"),
        (r#""type": "tensor""#, r#""type": "tensor", "name": "x""#, "a named tensor"),
        ("flavors:", "flavors: [", "MLmodel"),
    ];
    for (part, replacement, reason) in cases {
        assert!(good.contains(part), "{part}");
        let error = refusal(&good.replace(part, replacement));
        assert!(error.contains(reason), "{replacement}: {error}");
    }
    let columns = r#"signature: {inputs: '[{"type": "datetime", "name": "day"}]'}"#;
    let (before, _) = good.split_once("signature:").unwrap();
    assert!(
        refusal(&format!("{before}{columns}")).contains("input `day` of its signature has unsupported type `datetime`")
    );
    let optional = columns.replace("datetime", "long").replace("\"day\"", "\"day\", \"required\": false");
    assert!(refusal(&format!("{before}{optional}")).contains("input `day` of its signature is optional"));
}

#[test]
fn mlflow_inspect_prints_the_signature() {
    let inspect = |path: PathBuf| {
        let output = Command::new(env!("CARGO_BIN_EXE_mlserver")).arg("inspect").arg(path).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let native = inspect(goldens().join("column/model"));
    assert!(native.contains("signature: ['a': double (required), 'b': double (required), 'c': double (required)]"));
    assert!(native.contains("written by: mlflow 3.12.0\noutputs: output-1\nserved natively: yes\n"), "{native}");
    let models = framework_models("mlflow");
    let free = models.names().filter(|name| name.starts_with("free/"));
    let folder = free.fold(Folder::new(), |folder, name| folder.file(name, models.file(name)));
    let python = inspect(folder.path("free/model"));
    let reason = "served natively: no, models of `mlflow.pyfunc.loaders.code_model` are not evaluated natively\n";
    assert!(python.ends_with(reason), "{python}");
}

/// Returns what `inspect` says in JSON about the model in a folder, with its signature or without.
#[track_caller]
fn inspected(folder: &Folder, name: &str, has_signature: bool) -> Value {
    let path = folder.path(&format!("{name}/model"));
    if !has_signature {
        let text = fs::read_to_string(path.join("MLmodel")).unwrap();
        let mut is_signature = false;
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| {
                is_signature = if line.starts_with(' ') { is_signature } else { *line == "signature:" };
                !is_signature
            })
            .collect();
        fs::write(path.join("MLmodel"), lines.join("\n")).unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_mlserver"))
        .arg("inspect")
        .arg(path)
        .args(["--format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["native"], true, "{found}");
    found
}

#[test]
fn mlflow_inspect_lists_the_columns_of_models_without_a_signature() {
    let names = |found: &Value, list: &str| -> Vec<String> {
        let name = |each: &Value| each.as_str().or_else(|| each["name"].as_str()).unwrap().to_owned();
        found[list].as_array().unwrap().iter().map(name).collect()
    };
    let sklearn = ["column", "pipeline", "lightgbm_classifier"];
    let skops = ["skops/column", "skops/pipeline", "skops/lightgbm_classifier"];
    let others = ["xgboost_booster", "xgboost_classifier", "lightgbm_booster", "catboost_cities"];
    for model in sklearn.into_iter().chain(skops).chain(others) {
        let declared = inspected(&native(model), model, true);
        // MLflow itself finds the columns of a signature, and needs all of them.
        assert_eq!((&declared["columns"], &declared["unread_columns"]), (&json!([]), &json!([])), "{model}");
        let inputs = names(&declared, "inputs");
        assert!(inputs.len() > 1, "{model} has a signature of columns: {inputs:?}");
        let found = inspected(&native(model), model, false);
        assert_eq!((names(&found, "columns"), &found["unread_columns"]), (inputs, &json!([])), "{model}");
    }
    for model in ["plain", "skops/plain", "xgboost_regressor", "catboost_classes"] {
        let unnamed = inspected(&native(model), model, false);
        assert_eq!((&unnamed["columns"], &unnamed["unread_columns"]), (&json!([]), &json!([])), "{model}");
    }
}

#[test]
fn mlflow_inspect_lists_the_columns_that_a_pipeline_drops_without_a_signature() {
    let pipeline = sklearn_golden("1.5.2/compose/frame_names.joblib");
    let model = |name: &str| inspected(&native(name).file(&format!("{name}/model/model.pkl"), &pipeline), name, true);
    let free = model("plain");
    assert_eq!(free["columns"], json!(["one", "two", "three", "four", "five"]));
    assert_eq!(free["unread_columns"], json!(["three", "five"]));
    let declared = model("column");
    assert_eq!((&declared["columns"], &declared["unread_columns"]), (&json!([]), &json!([])));
}

const PEOPLE: &str = r#"{"dataframe_split": {"columns": ["city", "age", "height", "member"],
    "data": [["Oslo", 30, 170.5, true], ["Łódź", 61, 182, false]]}}"#;

/// Adds a graph that answers MLflow's protocol if `mlflow` is true.
fn with_graph(folder: Folder, steps: &Value, output: &[&str], mlflow: &Value) -> Folder {
    let manifest = json!({
        "apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "graph"},
        "spec": {"steps": steps, "output": {"steps": output}},
    });
    let parameters = json!({"uri": "./graph.json", "extra": {"mlflow": mlflow}});
    let settings = json!({"name": "graph", "implementation": "mlserver.Graph", "parameters": parameters});
    folder
        .file("graph/graph.json", manifest.to_string())
        .file("graph/model-settings.json", settings.to_string())
        .with_identity("same")
}

fn invocations(server: &TestServer, content_type: &str, body: &str) -> crate::support::Answer {
    server.post_with("/invocations", &[("content-type", content_type)], body)
}

#[test]
fn graph_answers_invocations_of_mlflow() {
    let select = json!({"outputs": [{"name": "answer", "input": "output-1"}]});
    let select = json!({"name": "answer", "implementation": "mlserver.Select", "parameters": {"extra": select}});
    let steps = json!([{"name": "pipeline"}, {"name": "answer", "inputs": ["pipeline"]}]);
    let folder = || native("pipeline").file("answer/model-settings.json", select.to_string());
    let server = TestServer::start(with_graph(folder(), &steps, &["pipeline", "answer"], &json!(true)));
    let record = |text: &str| json!({"output-1": text, "answer": text});
    let predictions = json!({"predictions": [record("nej"), record("ja")]});
    assert_eq!(invocations(&server, "application/json", PEOPLE).ok(), predictions);
    let csv = "city,age,height,member\nOslo,30,170.5,True\nŁódź,61,182,False\n";
    assert_eq!(invocations(&server, "text/csv", csv).ok(), predictions);
    let records = r#"{"dataframe_records": [{"city": "Oslo", "age": 30, "height": 170.5, "member": true}]}"#;
    assert_eq!(invocations(&server, "application/json", records).ok(), json!({"predictions": [record("nej")]}));
    // Errors have MLflow's form, and name the step.
    let missing = invocations(&server, "application/json", r#"{"dataframe_records": [{"city": "Oslo"}]}"#);
    assert_eq!((missing.status, &missing.json()["error_code"]), (400, &json!("BAD_REQUEST")));
    let message = missing.json()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("step \"pipeline\": ") && message.contains("missing inputs"), "{message}");
    let wrong = invocations(&server, "application/json", &PEOPLE.replace("30", "\"x\"")).json()["message"].to_string();
    assert!(wrong.contains("Failed to convert column age"), "the signature of the first step counts: {wrong}");
    assert_eq!(invocations(&server, "text/plain", "x").status, 415);
    assert_eq!(server.get("/ping").text(), "\n");
    let metrics = server.scrape();
    let counted = "graph_step_duration_seconds_count{graph=\"graph\",step=\"answer\"} 3";
    assert!(metrics.text().contains(counted), "{}", metrics.text());

    // Without the setting, the route is the step's own.
    let server = TestServer::start(with_graph(folder(), &steps, &["pipeline", "answer"], &json!(null)));
    assert_eq!(invocations(&server, "application/json", PEOPLE).ok(), json!({"predictions": ["nej", "ja"]}));
    let ended = ServerBuilder::new(with_graph(folder(), &steps, &["answer"], &json!("yes"))).run();
    let expected = "invalid `parameters.extra.mlflow`: expected true or false, found \"yes\"";
    assert!(ended.code == Some(1) && ended.stdout.contains(expected), "{}", ended.stdout);
}

#[test]
fn mlflow_requests_of_its_documents_are_accepted() {
    // MLflow's own server answers 415 or 400 to all of them.
    let records = r#"[{"city": "Oslo", "age": 30, "height": 170.5, "member": true}]"#;
    let csv = "city,age,height,member\nOslo,30,170.5,True\n";
    let cases = [
        ("application/json;", PEOPLE, json!(["nej", "ja"])),
        ("application/json; charset=UTF-8 ; ;", PEOPLE, json!(["nej", "ja"])),
        ("text/csv;", csv, json!(["nej"])),
        ("application/csv", csv, json!(["nej"])),
        ("application/csv; charset=utf-8", csv, json!(["nej"])),
        ("application/json", records, json!(["nej"])),
    ];
    let steps = json!([{"name": "pipeline"}]);
    for folder in [native("pipeline"), with_graph(native("pipeline"), &steps, &["pipeline"], &json!(true))] {
        let server = TestServer::start(folder);
        for (content_type, body, predictions) in &cases {
            let answer = invocations(&server, content_type, body);
            assert_eq!(answer.ok(), json!({"predictions": predictions}), "{content_type}: {body}");
        }
        for (content_type, body, status, expected) in [
            ("application/json; =", PEOPLE, 415, "Unrecognized content type parameters: ."),
            ("application/json;; x=1", PEOPLE, 415, "Unrecognized content type parameters: x."),
            ("application/json", "[]", 400, "Received a list."),
            ("application/json", "[[1, 2]]", 400, "Received a list."),
            ("application/json", r#"[{"age": 30}, 1]"#, 400, "Received a list."),
            ("application/json", r#"[{"age": 30}]"#, 400, "missing inputs"),
        ] {
            let answer = invocations(&server, content_type, body);
            assert!(answer.status == status && answer.text().contains(expected), "{body}: {}", answer.text());
        }
    }
}

#[test]
fn graph_predictions_have_the_shape_of_their_outputs() {
    let same = json!([{"name": "same"}]);
    let server = TestServer::start(with_graph(Folder::new(), &same, &["same"], &json!(true)));
    for (input, predictions) in [
        (json!([[1, 2], [3, 4]]), json!([[1, 2], [3, 4]])),
        (json!([0.5, 1]), json!([0.5, 1.0])),
        (json!([[[true], [false]]]), json!([[[true], [false]]])),
        (json!({"a": [1, 2], "b": ["x", "y"]}), json!([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])),
        (json!({"a": [1, 2], "b": [[1, 2]]}), json!({"a": [1, 2], "b": [[1, 2]]})),
    ] {
        let answer = invocations(&server, "application/json", &json!({"inputs": input}).to_string());
        assert_eq!(answer.ok()["predictions"], predictions, "{input}");
    }
    let deep =
        invocations(&server, "application/json", &format!("{{\"inputs\": {}1{}}}", "[".repeat(40), "]".repeat(40)));
    assert_eq!(deep.status, 400, "{}", deep.text());
    // A signature of one array gives integers its type.
    let server =
        TestServer::start(with_graph(native("linear"), &json!([{"name": "linear"}]), &["linear"], &json!(true)));
    let answer = invocations(&server, "application/json", r#"{"inputs": [[1, 2, 3], [4, 5, 6]]}"#).ok();
    let predictions = answer["predictions"].as_array().unwrap();
    assert!(predictions.len() == 2 && predictions[0].is_f64(), "{answer}");
    // Too long to be read or written on the request's own thread.
    let rows: Vec<_> = (0..20_000).map(|row| json!([row, 1.5, -2])).collect();
    let answer = invocations(&server, "application/json", &json!({"inputs": rows}).to_string()).ok();
    assert_eq!(answer["predictions"].as_array().unwrap().len(), 20_000);
}

/// The outputs of trees are those of the same model without its folder.
#[test]
fn mlflow_models_of_trees_explain_their_predictions() {
    for (name, file, implementation, shape) in [
        ("xgboost_three", "model.json", "mlserver_xgboost.XGBoostModel", json!([2, 3, 4])),
        ("lightgbm_three", "model.lgb", "mlserver_lightgbm.LightGBMModel", json!([2, 3, 4])),
        ("lightgbm_classifier", "model.pkl", "mlserver_sklearn.SKLearnModel", json!([2, 4])),
        ("catboost_classes", "model.cb", "mlserver_catboost.CatboostModel", json!([2, 3, 4])),
        ("catboost_number", "model.cb", "mlserver_catboost.CatboostModel", json!([2, 4])),
        ("catboost_raw", "model.cb", "mlserver_catboost.CatboostModel", json!([2, 4])),
    ] {
        let model = fs::read(goldens().join(name).join("model").join(file)).unwrap();
        let alone =
            json!({"name": "alone", "implementation": implementation, "parameters": {"uri": format!("./{file}")}});
        let folder = native(name).file(&format!("alone/{file}"), model);
        let server = TestServer::start(folder.file("alone/model-settings.json", alone.to_string()));
        let ask = |model: &str, outputs: &[&str], top: Option<usize>| {
            let outputs: Vec<_> = outputs.iter().map(|name| json!({"name": name})).collect();
            let columns = [("a", [0.5, -0.5]), ("b", [-1.0, 1.5]), ("c", [2.0, 0.0])];
            let data = [0.5, -1.0, 2.0, -0.5, 1.5, 0.0];
            let (inputs, content_type) = if ["lightgbm_classifier", "catboost_raw"].contains(&name) {
                let column = |(name, data): (&str, [f64; 2])| json!({"name": name, "shape": [2], "datatype": "FP64", "data": data});
                (columns.map(column).to_vec(), "pd")
            } else {
                (vec![json!({"name": "x", "shape": [2, 3], "datatype": "FP64", "data": data})], "np")
            };
            let parameters = json!({"content_type": content_type});
            let mut request = json!({"inputs": inputs, "outputs": outputs, "parameters": parameters});
            if let Some(top) = top {
                request["parameters"]["contributions_top"] = json!(top);
            }
            server.post(&format!("/v2/models/{model}/infer"), request.to_string())
        };
        let names = ["contributions", "margin", "leaf"];
        let (found, wanted) = (ask(name, &names, None).ok(), ask("alone", &names, None).ok());
        assert_eq!(found["outputs"], wanted["outputs"], "{name}");
        assert_eq!(found["outputs"][0]["shape"], shape, "{name}");
        assert_eq!(ask(name, &[], Some(1)).ok()["outputs"], ask("alone", &[], Some(1)).ok()["outputs"], "{name}");
        let both = ask(name, &["predict", "margin"], None).ok();
        assert_eq!(both["outputs"][0], ask(name, &[], None).ok()["outputs"][0], "{name}");
        assert_eq!(both["outputs"][1], found["outputs"][1], "{name}");
        assert!(ask(name, &["margin", "other"], None).error(400).contains("'contributions'"));
        // Other names alone are ignored, as before.
        assert_eq!(ask(name, &["other"], None).ok()["outputs"][0], both["outputs"][0], "{name}");
        assert_eq!(server.get(&format!("/v2/models/{name}")).ok()["parameters"]["contributions"], "margin");
    }
    let server = TestServer::start(native("linear"));
    let metadata = server.get("/v2/models/linear").ok();
    assert_eq!(metadata["parameters"].get("contributions"), None);
}

/// Models of `CatBoost` without contributions have their other outputs, and an array of one dimension is one row.
#[test]
fn mlflow_models_of_catboost_explain_or_say_why_not() {
    let server = TestServer::start(native("catboost_uncertain"));
    let column = |name: &str| json!({"name": name, "shape": [1], "datatype": "FP64", "data": [0.5]});
    let ask = |output: &str| {
        let inputs: Vec<_> = ["a", "b", "c"].into_iter().map(column).collect();
        let request = json!({"inputs": inputs, "outputs": [{"name": output}]});
        server.post("/v2/models/catboost_uncertain/infer", request.to_string())
    };
    let message = ask("contributions").error(400);
    assert!(message.contains("`RMSEWithUncertainty`"), "{message}");
    assert_eq!(ask("margin").ok()["outputs"][0]["shape"], json!([1, 2]));
    assert_eq!(ask("leaf").ok()["outputs"][0]["datatype"], "INT32");
    let metadata = server.get("/v2/models/catboost_uncertain").ok();
    assert_eq!(metadata["parameters"].get("contributions"), None);

    let server = TestServer::start(native("catboost_number"));
    let ask = |shape: Value| {
        let input = json!({"name": "x", "shape": shape, "datatype": "FP64", "data": [0.5, -1.0, 2.0]});
        let request =
            json!({"inputs": [input], "outputs": [{"name": "contributions"}], "parameters": {"content_type": "np"}});
        server.post("/v2/models/catboost_number/infer", request.to_string()).ok()["outputs"].clone()
    };
    assert_eq!(ask(json!([3])), ask(json!([1, 3])));
}

/// What MLflow's Python model returns for one list, as `python/mlserver_mlflow` encodes it.
#[test]
fn mlflow_catboost_takes_an_array_of_one_dimension_for_one_row() {
    for (model, output) in [
        (
            "catboost_classes",
            json!({"datatype": "INT64", "shape": [1, 1], "data": [1], "parameters": {"content_type": "np"}}),
        ),
        (
            "catboost_word",
            json!({"datatype": "BYTES", "shape": [1, 1], "data": ["nej"], "parameters": {"content_type": "str"}}),
        ),
    ] {
        let server = TestServer::start(native(model));
        let input = json!({"name": "x", "datatype": "FP64", "shape": [3], "data": [1, 2, 3]});
        let body = json!({"parameters": {"content_type": "np"}, "inputs": [input]});
        let answer = server.post(&format!("/v2/models/{model}/infer"), body.to_string()).ok();
        let mut found = answer["outputs"][0].clone();
        found.as_object_mut().unwrap().remove("name");
        assert_eq!(found, output, "{model}");
    }
    let server = TestServer::start(native("catboost_number"));
    let input = |shape: Value| json!({"name": "x", "datatype": "FP64", "shape": shape, "data": [1, 2, 3]});
    let infer = |shape: Value| {
        let body = json!({"parameters": {"content_type": "np"}, "inputs": [input(shape)]});
        server.post("/v2/models/catboost_number/infer", body.to_string()).ok()["outputs"][0].clone()
    };
    let (one, row) = (infer(json!([3])), infer(json!([1, 3])));
    assert_eq!((&one["shape"], &one["data"]), (&json!([1]), &row["data"]));
    assert_eq!(row["shape"], json!([1, 1]));
}
