//! Native models in processes of their own (`parameters.isolate`): the same answers as in the server, and what becomes of the
//! server, of their neighbors and of their requests when such a process ends.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::frames::{
    ANSWER, ERROR, HELLO, LOAD, LOADED, PING, PREDICT, READY, ReadFrame, STOP, frame, read_frame,
};
use crate::support::goldens::{golden_archives, sklearn_golden};
use crate::support::grpc::{inference_client, raw_request};
use crate::support::worker_models::{children, has_ended};
use crate::support::{Folder, TestServer, mlserver_command, repository_path, run_mlserver, wait_until};

const SKLEARN: &str = "mlserver_sklearn.SKLearnModel";
const XGBOOST: &str = "mlserver_xgboost.XGBoostModel";
const LIGHTGBM: &str = "mlserver_lightgbm.LightGBMModel";
const CATBOOST: &str = "mlserver_catboost.CatboostModel";
const IDENTITY: &str = "mlserver_identity.IdentityModel";
const MLFLOW: &str = "mlserver_mlflow.MLflowRuntime";

/// Adds a model that is served by the server, and the same as `NAME-isolated` in a process of its own.
fn twice(folder: Folder, name: &str, implementation: &str, file: &str, artifact: impl AsRef<[u8]>) -> Folder {
    let add = |folder: Folder, name: &str, isolate: bool| {
        let uri = format!("./{file}");
        let parameters = json!({"uri": uri, "isolate": isolate});
        let settings = json!({"name": name, "implementation": implementation, "parameters": parameters});
        folder
            .file(&format!("{name}/{file}"), &artifact)
            .file(&format!("{name}/model-settings.json"), settings.to_string())
    };
    let folder = add(folder, name, false);
    add(folder, &format!("{name}-isolated"), true)
}

fn quickstart(model: &str, file: &str) -> Vec<u8> {
    fs::read(repository_path(&format!("examples/quickstart/{model}/{file}"))).unwrap()
}

/// A server with a model of each family that has golden cases of a single file.
fn families() -> TestServer {
    let archives = golden_archives("catboost");
    let newest = archives.iter().rfind(|archive| archive.name == "1.2.10").unwrap();
    let case = newest
        .names()
        .find(|name| Path::new(name).extension().is_some_and(|extension| extension == "cbm"))
        .unwrap()
        .to_owned();
    let mut folder =
        twice(Folder::new(), "labels", SKLEARN, "m.joblib", sklearn_golden("1.5.2/linear/labels_text.joblib"));
    folder = twice(folder, "texts", SKLEARN, "m.skops", sklearn_golden("1.9.1/texts/text_bernoulli.skops"));
    folder = twice(folder, "iris", XGBOOST, "model.json", quickstart("iris-xgboost", "model.json"));
    folder = twice(folder, "cancer", LIGHTGBM, "model.bst", quickstart("breast-cancer-lightgbm", "model.bst"));
    folder = twice(folder, "catboost", CATBOOST, "model.cbm", newest.file(&case));
    TestServer::start(folder)
}

/// The body without the id and the name of the model, which differ.
fn body(server: &TestServer, model: &str, path: &str, request: &str) -> (u16, Value) {
    let answer = server.post(&format!("/{}", path.replace("MODEL", model)), request);
    let mut value: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    if let Some(object) = value.as_object_mut() {
        object.remove("id");
        object.remove("model_name");
    }
    (answer.status, value)
}

#[tokio::test]
async fn isolated_models_answer_as_in_the_server() {
    let server = families();
    let numbers = |count: usize, outputs: &[&str]| {
        let outputs: Vec<_> = outputs.iter().map(|name| json!({"name": name})).collect();
        let input = json!({"name": "x", "shape": [2, count], "datatype": "FP32", "data": vec![0.5; 2 * count]});
        json!({"inputs": [input], "outputs": outputs}).to_string()
    };
    let text = r#"{"inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["a red car", null]}]}"#;
    let explained = ["predict", "contributions", "margin", "leaf"];
    let infer = "v2/models/MODEL/infer";
    let requests = [
        ("labels", infer, numbers(4, &["predict", "predict_proba", "decision_function"])),
        ("labels", infer, numbers(3, &[])),
        ("labels", infer, numbers(4, &["foo"])),
        ("labels", "v1/models/MODEL:predict", r#"{"instances": [[1, 2, 3, 4]]}"#.to_owned()),
        ("texts", infer, text.replace("null", "\"blue\"")),
        ("texts", infer, text.to_owned()),
        ("iris", infer, numbers(4, &explained)),
        ("iris", "v1/models/MODEL:explain", r#"{"instances": [[1, 2, 3, 4]]}"#.to_owned()),
        ("cancer", infer, numbers(30, &["predict", "contributions"])),
        ("catboost", infer, numbers(1, &["predict", "raw", "contributions"])),
        ("catboost", infer, "{".to_owned()),
    ];
    for (model, path, request) in requests {
        let (inside, isolated) =
            (body(&server, model, path, &request), body(&server, &format!("{model}-isolated"), path, &request));
        assert_eq!(inside, isolated, "{model}: {request}");
    }
    for model in ["labels", "iris", "catboost"] {
        let metadata = |model: &str| server.get(&format!("/v2/models/{model}")).json()["parameters"].clone();
        assert_eq!(metadata(model), metadata(&format!("{model}-isolated")));
    }
    let row: Vec<u8> = [6.2_f32, 2.8, 4.8, 1.8].iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut client = inference_client(server.grpc).await;
    let mut answers = Vec::new();
    for model in ["iris", "iris-isolated"] {
        answers.push(client.model_infer(raw_request(model, "FP32", &[1, 4], row.clone())).await.unwrap().into_inner());
    }
    assert_eq!(
        (&answers[0].outputs, &answers[0].raw_output_contents),
        (&answers[1].outputs, &answers[1].raw_output_contents)
    );
    server.terminate();
}

#[test]
fn isolated_mlflow_model_answers_its_routes() {
    let source = repository_path("tests/goldens/mlflow");
    let names = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path());
    let model = names.filter(|path| path.join("model/MLmodel").exists()).min().unwrap();
    let serve = |isolate: bool| {
        let parameters = json!({"uri": "./model", "isolate": isolate, "extra": {"backend": "native"}});
        let settings = json!({"name": "m", "implementation": MLFLOW, "parameters": parameters});
        let mut folder = Folder::new().file("m/model-settings.json", settings.to_string());
        for entry in fs::read_dir(model.join("model")).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap().to_owned();
            folder = folder.file(&format!("m/model/{file}"), fs::read(path).unwrap());
        }
        TestServer::start(folder)
    };
    let answers = |isolate: bool| {
        let server = serve(isolate);
        let requests =
            ["{", r#"{"inputs": [[1, 2, 3, 4]]}"#, r#"{"dataframe_split": {"columns": ["a"], "data": [[1]]}}"#];
        let posted = requests.map(|request| {
            let answer = server.post("/invocations", request);
            (answer.status, answer.text().to_owned())
        });
        let got = server.get("/ping");
        (posted, (got.status, got.text().to_owned()))
    };
    assert_eq!(answers(false), answers(true));
}

/// Returns the process of the only native worker of a server.
fn worker(server: &TestServer) -> Pid {
    let is_worker = |pid: &Pid| {
        let listed =
            Command::new("ps").args(["-o", "args=", "-p", &pid.as_raw_nonzero().to_string()]).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).split_whitespace().nth(1) == Some("score")
    };
    children(server.process_id()).into_iter().find(is_worker).unwrap()
}

/// A server with an identity model in a process of its own.
fn identity(parameters: &Value) -> TestServer {
    let mut all = json!({"isolate": true});
    all.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
    let settings = json!({"name": "m", "implementation": IDENTITY, "parameters": all});
    TestServer::start(Folder::new().with_identity("neighbor").file("m/model-settings.json", settings.to_string()))
}

fn echo(server: &TestServer, model: &str) -> u16 {
    let request = r#"{"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [7]}]}"#;
    server.post(&format!("/v2/models/{model}/infer"), request).status
}

#[test]
fn killed_native_worker_is_started_again() {
    let server = identity(&json!({}));
    assert_eq!(echo(&server, "m"), 200);
    let first = worker(&server);
    kill_process(first, Signal::KILL).unwrap();
    wait_until("it answers again", || echo(&server, "m") == 200);
    assert_eq!(echo(&server, "neighbor"), 200);
    assert_ne!(worker(&server), first);
    server.wait_for_log("A worker was terminated by SIGKILL.");
    server.terminate();
}

#[test]
fn native_worker_over_its_memory_limit_ends_alone() {
    let server = identity(&json!({"worker_memory_limit": 90 << 20}));
    assert_eq!(echo(&server, "m"), 200);
    let values = 15_usize << 20;
    let header = json!({"inputs": [{"name": "x", "shape": [values], "datatype": "FP32",
        "parameters": {"binary_data_size": 4 * values}}]});
    let mut body = header.to_string().into_bytes();
    let length = body.len().to_string();
    body.resize(body.len() + 4 * values, 0);
    let answer = server.post_with("/v2/models/m/infer", &[("inference-header-content-length", &length)], body);
    let error = answer.error(503);
    assert!(error.contains("it used more than 90 MiB of memory (`worker_memory_limit`)"), "{error}");
    wait_until("it answers again", || echo(&server, "m") == 200);
    assert_eq!(echo(&server, "neighbor"), 200);
    server.terminate();
}

#[test]
fn native_workers_end_with_the_server() {
    let server = identity(&json!({}));
    assert_eq!(echo(&server, "m"), 200);
    let pid = worker(&server);
    server.signal(Signal::KILL);
    wait_until("the worker ends", || has_ended(pid));
}

#[test]
fn isolated_model_that_cannot_be_loaded_says_why() {
    let settings = json!({"name": "m", "implementation": SKLEARN,
        "parameters": {"uri": "./m.joblib", "isolate": true, "extra": {"backend": "native"}}});
    let folder = Folder::new().file("m/model-settings.json", settings.to_string()).file("m/m.joblib", "damaged");
    let exit = crate::support::ServerBuilder::new(folder).env("MLSERVER_PARALLEL_WORKERS", "1").run();
    let log = format!("{}{}", exit.stdout, exit.stderr);
    assert!(log.contains("is not a model that can be served natively"), "{log}");
}

/// Starts `mlserver score` with one end of a socket as its standard input.
pub(super) fn score() -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = mlserver_command(".", &["score"]);
    let child = command.stdin(OwnedFd::from(theirs)).stderr(Stdio::piped()).spawn().unwrap();
    (child, ours)
}

pub(super) fn hello() -> Vec<u8> {
    frame(HELLO, 0, &json!({"protocol": 2, "parent": std::process::id(), "threads": 1}).to_string(), b"")
}

#[test]
fn native_worker_answers_its_parent_without_a_page() {
    let (mut child, mut socket) = score();
    socket.write_all(&hello()).unwrap();
    assert_eq!(read_frame(&mut socket).kind, READY);
    let settings = json!({"name": "m", "implementation": IDENTITY});
    let load = json!({"model": 1, "settings": settings, "source": null});
    socket.write_all(&frame(LOAD, 0x100, &load.to_string(), b"")).unwrap();
    let ReadFrame { kind, id, head: loaded, .. } = read_frame(&mut socket);
    assert_eq!((kind, id, &loaded["ready"]), (LOADED, 0x100, &json!(true)), "{loaded}");
    let input = json!({"name": "x", "datatype": "INT8", "shape": [2], "size": 2});
    let predict = |model: u64, input: &Value| json!({"model": model, "inputs": [input]}).to_string();
    socket.write_all(&frame(PREDICT, 0x200, &predict(1, &input), b"\x01\x02")).unwrap();
    let ReadFrame { kind, id, head: answer, .. } = read_frame(&mut socket);
    assert_eq!((kind, id, &answer["outputs"][0]["shape"]), (ANSWER, 0x200, &json!([2])), "{answer}");
    // What its parent must not send is an error of the call.
    let wrong = [
        (predict(9, &input), "the worker has no model 9"),
        (predict(1, &json!({"name": "x", "datatype": "INT8", "shape": [2], "size": 3})), "longer than its frame"),
        (predict(1, &json!({"name": "x", "datatype": "INT8", "shape": [4], "size": 2})), "needs 4 elements"),
        (predict(1, &json!({"name": "x", "datatype": "FP16", "shape": [1], "size": 2, "json": true})), "JSON"),
        (predict(1, &json!({"name": "x", "datatype": "INT9", "shape": [1], "size": 1})), "unknown datatype"),
        ("{\"model\": true}".to_owned(), "cannot read the head"),
    ];
    for (head, reason) in wrong {
        socket.write_all(&frame(PREDICT, 0x300, &head, b"\x01\x02")).unwrap();
        let ReadFrame { kind, head: error, .. } = read_frame(&mut socket);
        assert_eq!(kind, ERROR, "{head}");
        assert!(error["message"].as_str().unwrap().contains(reason), "{error}");
    }
    socket.write_all(&frame(PING, 0x400, "", b"echo")).unwrap();
    assert_eq!(read_frame(&mut socket).head, json!({"open": []}));
    socket.write_all(&frame(STOP, 0, "", b"")).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn native_worker_refuses_strangers() {
    let output = run_mlserver(".", &["score"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("standard input is not a socket"), "{error}");
    let other = frame(HELLO, 0, &json!({"protocol": 1, "parent": std::process::id()}).to_string(), b"");
    let stranger = frame(HELLO, 0, &json!({"protocol": 2, "parent": 1}).to_string(), b"");
    let cases = [
        (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(), "violated the protocol"),
        (frame(PREDICT, 0, "{}", b""), "before it said `hello`"),
        (other, "speaks version 1"),
        (stranger, "before it said `hello`"),
        (hello()[..10].to_vec(), "before it said `hello`"),
    ];
    for (bytes, reason) in cases {
        let (mut child, mut socket) = score();
        socket.write_all(&bytes).unwrap();
        drop(socket);
        assert_eq!(child.wait().unwrap().code(), Some(1), "{reason}");
        let mut error = String::new();
        child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert!(error.contains(reason), "{error}");
    }
    // A frame that violates the protocol ends the process, too.
    let (mut child, mut socket) = score();
    socket.write_all(&hello()).unwrap();
    read_frame(&mut socket);
    socket.write_all(&[200; 64]).unwrap();
    let waited = thread::spawn(move || child.wait().unwrap().code());
    assert_eq!(waited.join().unwrap(), Some(1));
}

/// Networks of ONNX, which the server itself does not evaluate.
#[cfg(feature = "onnx")]
mod networks {
    use flate2::read::GzDecoder;

    use super::*;

    const ONNX: &str = "mlserver_onnx.OnnxModel";

    /// A golden case: the model, its only input without a name, and the values of its first output.
    fn golden(name: &str) -> (Vec<u8>, Value, Vec<f32>) {
        let file = fs::File::open(repository_path("tests/goldens/onnx_networks/networks.jsonl.gz")).unwrap();
        let mut text = String::new();
        GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let mut cases = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let case = cases.find(|case| case["name"] == name).unwrap();
        let bytes = |digits: &Value| -> Vec<u8> {
            let pairs = digits.as_str().unwrap().as_bytes().as_chunks::<2>().0;
            pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
        };
        let floats = |digits: &Value| -> Vec<f32> {
            bytes(digits).as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
        };
        let input = &case["inputs"][0];
        let input = json!({"shape": input["shape"], "datatype": input["datatype"], "data": floats(&input["data"])});
        (bytes(&case["model"]), input, floats(&case["outputs"][0]["data"]))
    }

    fn serve(name: &str, parameters: &Value) -> (TestServer, Value, Vec<f32>) {
        let (model, mut input, wanted) = golden(name);
        let mut all = json!({"uri": "./model.onnx", "extra": {"backend": "native"}});
        all.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
        let settings = json!({"name": "m", "implementation": ONNX, "parameters": all});
        let folder = Folder::new().file("m/model.onnx", model).file("m/model-settings.json", settings.to_string());
        let server = TestServer::start(folder.with_identity("neighbor"));
        input["name"] = server.get("/v2/models/m").json()["inputs"][0]["name"].clone();
        (server, json!({"inputs": [input]}), wanted)
    }

    #[test]
    fn network_is_served_by_a_native_worker() {
        let (server, request, wanted) = serve("unet-False-0", &json!({}));
        let answer = server.post("/v2/models/m/infer", request.to_string()).ok();
        let found: Vec<f64> =
            answer["outputs"][0]["data"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        assert_eq!((found.len(), &answer["outputs"][0]["name"]), (wanted.len(), &json!("predict")));
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!((found - f64::from(*wanted)).abs() <= 1e-4 * f64::from(wanted.abs()).max(1.0));
        }
        assert_eq!(server.get("/v2/models/m").json()["parameters"]["backend"], "native");
        assert!(!has_ended(worker(&server)));
        let error = server.post("/v2/models/m/infer", r#"{"inputs": []}"#).error(400);
        assert!(error.starts_with("Model expects input(s) named"), "{error}");
        server.terminate();
    }

    #[test]
    fn network_is_inspected() {
        let (model, _, _) = golden("lstm-0");
        let folder = Folder::new().file("m.onnx", model);
        let output = run_mlserver(folder.root(), &["inspect", "m.onnx"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("ONNX network, which a process of its own evaluates, of "), "{text}");
        assert!(text.contains("LSTM") && text.contains("\n  tokens INT64 [-1, -1]\n"), "{text}");
        assert!(
            text.contains("served natively: yes") && text.contains("\nno example: a process of its own "),
            "{text}"
        );
    }

    #[test]
    fn network_that_takes_too_much_memory_ends_its_worker_only() {
        let (server, mut request, _) = serve("unet-False-0", &json!({"worker_memory_limit": 80 << 20}));
        assert_eq!(server.post("/v2/models/m/infer", request.to_string()).status, 200);
        // The size of an image is not fixed: its intermediate values take many times its own memory.
        let shape: Vec<usize> = serde_json::from_value(request["inputs"][0]["shape"].clone()).unwrap();
        let shape = [1, shape[1], 1024, 1024];
        let count: usize = shape.iter().product();
        request["inputs"][0] = json!({"name": request["inputs"][0]["name"], "shape": shape, "datatype": "FP32",
            "parameters": {"binary_data_size": 4 * count}});
        let mut body = request.to_string().into_bytes();
        let length = body.len().to_string();
        body.resize(body.len() + 4 * count, 0);
        let answer = server.post_with("/v2/models/m/infer", &[("inference-header-content-length", &length)], body);
        let error = answer.error(503);
        assert!(error.contains("it used more than 80 MiB of memory (`worker_memory_limit`)"), "{error}");
        assert_eq!(echo(&server, "neighbor"), 200);
        server.terminate();
    }
}
