//! `mlserver score` as the child of a process that names models by their location, and shares memory: the Python package.

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde_json::{Value, json};

use super::isolated::{hello, score};
use crate::support::frames::{
    ANSWER, CANCEL, DONE, ERROR, HELLO, LOAD, LOADED, PING, PREDICT, READY, ReadFrame, Scorer, UNLOAD, frame,
    read_frame,
};
use crate::support::goldens::sklearn_golden;
use crate::support::process_models::process_models;
use crate::support::python::python;
use crate::support::worker_models::{children, has_ended};
use crate::support::{BREAST_CANCER, Folder, IRIS, mlserver_command, repository_path, wait_until};

/// Irises, and the class that the model predicts for each.
const IRISES: [([f32; 4], i64); 3] = [([5.1, 3.5, 1.4, 0.2], 0), ([6.7, 3.0, 5.2, 2.3], 2), ([5.9, 3.0, 4.2, 1.5], 1)];

/// How long a process may live after its parent, or after its socket has been closed.
const END: Duration = Duration::from_secs(1);

fn irises() -> Vec<u8> {
    IRISES.iter().flat_map(|(row, _)| row).flat_map(|value| value.to_le_bytes()).collect()
}

fn integers(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks::<8>().0.iter().map(|eight| i64::from_le_bytes(*eight)).collect()
}

/// The iris model, loaded.
fn iris() -> (Scorer, Value, Folder) {
    let folder = Folder::iris();
    let mut scorer = Scorer::start(1 << 20);
    let loaded = scorer.load(folder.path(IRIS).to_str().unwrap(), None);
    (scorer, loaded, folder)
}

/// Three irises at an offset, with the region of the answer.
fn at(offset: u64, answer: &Value) -> Value {
    let input = json!({"name": "x", "datatype": "FP32", "shape": [3, 4], "size": 48, "offset": offset});
    json!({"model": 1, "inputs": [input], "answer": answer})
}

#[test]
fn scoring_native_model_reads_and_writes_memory() {
    let (mut scorer, loaded, _folder) = iris();
    assert!(scorer.version.as_str().unwrap().starts_with(env!("CARGO_PKG_VERSION")), "{}", scorer.version);
    assert_eq!(
        (&loaded["name"], &loaded["version"], &loaded["batches"]),
        (&json!(IRIS), &json!("v1.0.0"), &json!(true))
    );
    assert_eq!(loaded["metadata"]["name"], IRIS);
    assert_eq!(loaded["metadata"]["parameters"]["backend"], "native");
    let classes: Vec<i64> = IRISES.iter().map(|(_, class)| *class).collect();
    // From the tail into the tail, and from memory into memory.
    let input = json!({"name": "x", "datatype": "FP32", "shape": [3, 4], "size": 48});
    let answer = scorer.call(PREDICT, &json!({"model": 1, "inputs": [input]}), &irises());
    assert_eq!((answer.kind, &answer.head["outputs"][0]["offset"]), (ANSWER, &Value::Null), "{answer:?}");
    assert_eq!(integers(&answer.tail), classes);
    scorer.write(4096, &irises());
    let answer = scorer.call(PREDICT, &at(4096, &json!({"offset": 8, "size": 100})), b"");
    let output = &answer.head["outputs"][0];
    assert_eq!((answer.kind, &output["offset"], answer.tail.len()), (ANSWER, &json!(8), 0), "{answer:?}");
    assert_eq!(integers(&scorer.output(output)), classes);
    // What does not fit goes to the tail.
    let answer = scorer.call(PREDICT, &at(4096, &json!({"offset": 8, "size": 23})), b"");
    assert_eq!((answer.kind, &answer.head["outputs"][0]["offset"]), (ANSWER, &Value::Null), "{answer:?}");
    assert_eq!(integers(&answer.tail), classes);
    scorer.stop();
}

/// Rows of values from -2 to 10, which are the same in every run.
fn random_rows(count: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let values = (0..count).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f32::from(u16::try_from(state >> 48).unwrap()) / 5461.0 - 2.0
    });
    values.flat_map(f32::to_le_bytes).collect()
}

#[test]
fn scoring_long_requests_answer_as_short_ones() {
    let folder = Folder::quickstart().file("labels.joblib", sklearn_golden("1.5.2/linear/labels_text.joblib"));
    // These are evaluated in two pieces if they are in memory: the first has 160 KiB.
    for (model, rows, columns, outputs) in [
        (IRIS, 10_301, 4, &["predict", "predict_proba", "contributions", "margin", "leaf"][..]),
        (BREAST_CANCER, 1_401, 30, &["predict", "contributions"]),
        ("labels.joblib", 10_301, 4, &["predict", "predict_proba", "decision_function"]),
    ] {
        let mut scorer = Scorer::start(64 << 20);
        let loaded = scorer.load(folder.path(model).to_str().unwrap(), None);
        assert_eq!((&loaded["batches"], loaded["features"].is_array()), (&json!(true), model == BREAST_CANCER));
        let data = random_rows(rows * columns);
        let mut input = json!({"name": "x", "datatype": "FP32", "shape": [rows, columns], "size": data.len()});
        let outputs: Vec<_> = outputs.iter().map(|name| json!({"name": name})).collect();
        let head = |input: &Value| json!({"model": 1, "inputs": [input], "outputs": outputs});
        let short = scorer.call(PREDICT, &head(&input), &data);
        assert_eq!(
            (short.kind, short.head["outputs"].as_array().unwrap().len()),
            (ANSWER, outputs.len()),
            "{}",
            short.head
        );
        scorer.write(8, &data);
        input["offset"] = json!(8);
        let long = scorer.call(PREDICT, &head(&input), b"");
        assert_eq!((&long.head, long.tail == short.tail), (&short.head, true), "{model}");
        // An error is that of the whole request.
        input["shape"] = json!([rows * columns, 1]);
        let error = scorer.error(PREDICT, &head(&input));
        input["offset"].take();
        let whole = scorer.call(PREDICT, &head(&input), &data).head;
        assert_eq!(error, format!("bad_request: {}", whole["message"].as_str().unwrap()));
        scorer.stop();
    }
}

/// A graph of ONNX: `y` has the sums of each column of `x` `[n, 3]` up to each row.
const SUMS_OVER_ROWS: &[u8] = b"\x08\x08\x12\x01t:L\n\x11\n\x01x\n\x01a\x12\x01y\"\x06CumSum\x12\x01g*\x08\x10\x07:\x01\x00B\x01aZ\x14\n\x01x\
\x12\x0f\n\r\x08\x01\x12\t\n\x03\x12\x01n\n\x02\x08\x03b\x14\n\x01y\x12\x0f\n\r\x08\x01\x12\t\n\x03\x12\x01n\n\x02\x08\x03B\x04\n\x00\x10\x11";

#[test]
fn scoring_evaluates_rows_that_depend_on_each_other_as_one() {
    let folder = Folder::new().file("sums.onnx", SUMS_OVER_ROWS);
    let mut scorer = Scorer::start(64 << 20);
    scorer.load(folder.path("sums.onnx").to_str().unwrap(), None);
    let (rows, last) = (30_000, 30_000_f32);
    scorer.write(0, &1_f32.to_le_bytes().repeat(rows * 3));
    let input = json!({"name": "x", "datatype": "FP32", "shape": [rows, 3], "size": rows * 12, "offset": 0});
    let answer = scorer.call(PREDICT, &json!({"model": 1, "inputs": [input]}), b"");
    assert_eq!(answer.kind, ANSWER, "{}", answer.head);
    assert_eq!(answer.tail[rows * 12 - 4..rows * 12], last.to_le_bytes(), "{}", answer.head);
    scorer.stop();
}

#[test]
fn scoring_takes_bytes_from_memory() {
    let folder = Folder::new().with_identity("m");
    let mut scorer = Scorer::start(1 << 16);
    scorer.load(folder.root().to_str().unwrap(), Some("m"));
    let bytes = b"\0\0\0\0\x02\0\0\0\x05\0\0\0abcde";
    scorer.write(64, bytes);
    let text = json!({"name": "t", "datatype": "BYTES", "shape": [2], "count": 2, "size": bytes.len(), "offset": 64});
    let number = json!({"name": "n", "datatype": "INT16", "shape": [2], "size": 4});
    let head = json!({"model": 1, "inputs": [text, number], "answer": {"offset": 0, "size": 20}});
    let answer = scorer.call(PREDICT, &head, b"\x01\0\x02\0");
    let outputs = answer.head["outputs"].as_array().unwrap();
    assert_eq!(
        (&outputs[0]["count"], &outputs[0]["offset"], &outputs[1]["offset"]),
        (&json!(2), &json!(0), &Value::Null)
    );
    assert_eq!((scorer.output(&outputs[0]), &answer.tail[..4]), (bytes.to_vec(), &b"\x01\0\x02\0"[..]));
    // A declared length of elements that goes beyond the tensor.
    scorer.write(64, b"\0\0\0\0\xff\xff\xff\xff");
    let error = scorer.error(PREDICT, &head);
    assert!(error.starts_with("request: output `t` is longer than its frame"), "{error}");
    scorer.stop();
}

#[test]
fn scoring_checks_regions() {
    let (mut scorer, _, _folder) = iris();
    let length = 1_u64 << 20;
    let answer = json!({"offset": 8192, "size": 4096});
    let cases = [
        (at(4, &answer), "offset 4 in the memory file is not a multiple of 8"),
        (at(length - 40, &answer), "48 bytes at offset 1048536 exceed the memory file, which has 1048576 bytes"),
        (at(u64::MAX - 7, &answer), "48 bytes at offset 18446744073709551608 exceed the memory file"),
        (at(8152, &answer), "an input and the region of the answer overlap at offset 8152 of the memory file"),
        (at(4096, &json!({"offset": 12, "size": 8})), "cannot write the answer: offset 12"),
        (
            at(4096, &json!({"offset": 8192, "size": u64::MAX})),
            "cannot write the answer: 18446744073709551615 bytes at",
        ),
        (at(4096, &json!({"offset": 8192, "size": length})), "cannot write the answer: 1048576 bytes at offset 8192"),
        (at(4096, &json!({"offset": -8, "size": 8})), "cannot read the head"),
    ];
    for (head, reason) in cases {
        let error = scorer.error(PREDICT, &head);
        assert!(error.starts_with("request: ") && error.contains(reason), "{error}");
    }
    let tensor = |size: u64| json!({"name": "x", "datatype": "UINT8", "shape": [size], "size": size, "offset": 0});
    let error = scorer.error(PREDICT, &json!({"model": 1, "inputs": [tensor(u64::MAX >> 1)]}));
    assert!(error.contains("the inputs have more than 4294967296 bytes in the memory file"), "{error}");
    // Many views of the same bytes are no way to make the child allocate more than the limit.
    let views: Vec<_> = (0..5000).map(|_| tensor(1 << 20)).collect();
    let error = scorer.error(PREDICT, &json!({"model": 1, "inputs": views}));
    assert!(error.contains("the inputs have more than 4294967296 bytes"), "{error}");
    // The parent shortens the file while it is used.
    scorer.memory.set_len(4096).unwrap();
    let error = scorer.error(PREDICT, &at(4096, &json!({"offset": 0, "size": 64})));
    assert!(error.contains("48 bytes at offset 4096 exceed the memory file, which has 4096 bytes"), "{error}");
    scorer.stop();
}

#[test]
fn scoring_without_memory_rejects_offsets() {
    let (mut child, mut socket) = score();
    socket.write_all(&hello()).unwrap();
    assert_eq!(read_frame(&mut socket).kind, READY);
    let settings = json!({"name": "m", "implementation": "mlserver_identity.IdentityModel"});
    let load = json!({"model": 1, "settings": settings}).to_string();
    socket.write_all(&frame(LOAD, 1, &load, b"")).unwrap();
    assert_eq!(read_frame(&mut socket).kind, LOADED);
    socket.write_all(&frame(PREDICT, 1, &at(0, &Value::Null).to_string(), b"")).unwrap();
    let error = read_frame(&mut socket).head["message"].as_str().unwrap().to_owned();
    assert_eq!(error, "cannot read input `x`: the parent has sent no memory file with `hello`");
    drop(socket);
    assert!(child.wait().unwrap().success());
    // A memory file that was announced and has not come.
    let (mut child, mut socket) = score();
    let hello = json!({"protocol": 2, "parent": std::process::id(), "memory_file": true}).to_string();
    socket.write_all(&frame(HELLO, 0, &hello, b"")).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn scoring_graph_is_loaded_with_its_steps() {
    let folder = repository_path("examples/graph-ensemble");
    let mut scorer = Scorer::start(1 << 16);
    let loaded = scorer.load(folder.to_str().unwrap(), Some("ensemble"));
    assert_eq!(
        (&loaded["batches"], &loaded["metadata"]["parameters"]["steps"][4]["name"]),
        (&json!(false), &json!("joined"))
    );
    let values = [17.99_f64, 10.38, 122.8, 1001.0, 0.1184];
    scorer.write(0, &values.map(f64::to_le_bytes).concat());
    let input = json!({"name": "input-0", "datatype": "FP64", "shape": [1, 5], "size": 40, "offset": 0});
    let answer =
        scorer.call(PREDICT, &json!({"model": 1, "inputs": [input], "answer": {"offset": 64, "size": 4096}}), b"");
    assert_eq!(answer.kind, ANSWER, "{answer:?}");
    let outputs = answer.head["outputs"].as_array().unwrap();
    assert!(!outputs.is_empty() && outputs.iter().all(|output| output["offset"].is_u64()), "{outputs:?}");
    let error = scorer.error(LOAD, &json!({"model": 2, "location": folder}));
    assert!(error.contains("has several models: choose one with --model-name ("), "{error}");
    scorer.stop();
}

#[test]
fn scoring_load_errors_are_those_of_infer() {
    let folder = Folder::new().file("bad/model.json", "{}").file(
        "bad/model-settings.json",
        r#"{"name": "bad", "implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": "./model.json"}}"#,
    );
    let mut scorer = Scorer::start(4096);
    let at = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    for (location, name, reason) in [
        ("/nowhere".to_owned(), None, "`/nowhere` does not exist: pass the folder of the models, or a model file"),
        (at("bad"), Some("other"), "has no model `other`; it has bad"),
        (at("bad"), None, "cannot load model `bad` of `"),
        (at("bad/model.json"), None, "cannot load model `model` of `"),
    ] {
        let error = scorer.error(LOAD, &json!({"model": 1, "location": location, "name": name}));
        assert!(error.starts_with("model: ") && error.contains(reason), "{error}");
    }
    let error = scorer.error(PREDICT, &json!({"model": 1, "inputs": []}));
    assert_eq!(error, "request: the worker has no model 1");
    scorer.stop();
}

#[test]
fn scoring_mlflow_model_is_loaded_from_its_folder() {
    let source = repository_path("tests/goldens/mlflow");
    let models = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path().join("model/MLmodel"));
    let model = models.filter(|path| path.exists()).min().unwrap();
    let mut scorer = Scorer::start(4096);
    let loaded = scorer.load(model.to_str().unwrap(), None);
    assert_eq!((&loaded["name"], &loaded["batches"]), (&json!("model"), &json!(true)));
    assert!(!loaded["metadata"]["inputs"].as_array().unwrap().is_empty(), "{loaded}");
    scorer.stop();
}

/// A child with a model in Python that reports its process, as one child of a test has it.
fn where_model() -> Option<(Folder, Command)> {
    let interpreter = python()?;
    let folder = process_models(&[("where", json!({}))]);
    let mut command = mlserver_command(".", &["score"]);
    command.env("PATH", "/usr/bin:/bin").env("MLSERVER_PYTHON_EXECUTABLE", interpreter);
    command.env("XDG_CACHE_HOME", repository_path("target/test-cache"));
    Some((folder, command))
}

/// A request that takes so many milliseconds.
fn milliseconds(count: i64) -> Value {
    json!({"model": 1, "inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "size": 8, "offset": count * 8}]})
}

/// The process of a model in Python, from its answer.
fn process(answer: &ReadFrame) -> i32 {
    assert_eq!(answer.kind, ANSWER, "{answer:?}");
    let size = usize::try_from(answer.head["outputs"][0]["size"].as_u64().unwrap()).unwrap();
    let text: Value = serde_json::from_slice(&answer.tail[8..size]).unwrap();
    text["pid"].as_i64().unwrap().try_into().unwrap()
}

/// Waits until a process ends, which takes a second at most on an idle machine.
fn wait_for_end(pid: i32) {
    let started = Instant::now();
    wait_until("the process ends", || has_ended(Pid::from_raw(pid).unwrap()));
    assert!(started.elapsed() < 10 * END, "{:?}", started.elapsed());
}

#[test]
fn scoring_python_model_answers_several_calls_and_cancels() {
    let Some((folder, mut command)) = where_model() else { return };
    let mut scorer = Scorer::of(&mut command, 1 << 16);
    let loaded = scorer.load(folder.root().to_str().unwrap(), None);
    assert_eq!((&loaded["name"], &loaded["metadata"]["parameters"]["backend"]), (&json!("where"), &json!("python")));
    for count in [0_i64, 1, 200, 1000] {
        scorer.write(u64::try_from(8 * count).unwrap(), &count.to_le_bytes());
    }
    let worker = process(&scorer.call(PREDICT, &milliseconds(0), b""));
    let calls = [200, 1].map(|count| scorer.open(PREDICT, &milliseconds(count), b""));
    let mut answered = [scorer.read(), scorer.read()].map(|answer| {
        assert_eq!(process(&answer), worker);
        answer.id
    });
    answered.sort_unstable();
    assert_eq!(answered, calls);
    let cancelled = scorer.open(PREDICT, &milliseconds(1000), b"");
    assert_eq!(scorer.call(PING, &json!({}), b"").head["open"], json!([cancelled]));
    scorer.socket.write_all(&frame(CANCEL, cancelled, "{}", b"")).unwrap();
    let ended = scorer.read();
    assert_eq!((ended.kind, ended.id, &ended.head["kind"]), (ERROR, cancelled, &json!("cancelled")));
    assert_eq!(process(&scorer.call(PREDICT, &milliseconds(0), b"")), worker);
    // More calls than may be open, which wait for the first one.
    let ids: Vec<u64> =
        (0..300).map(|index| scorer.open(PREDICT, &milliseconds(if index == 0 { 200 } else { 0 }), b"")).collect();
    let answers: Vec<ReadFrame> = ids.iter().map(|_| scorer.read()).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.kind == ERROR).collect();
    assert!(!refused.is_empty() && refused.len() <= 44, "{}", refused.len());
    assert_eq!(refused[0].head["message"], "256 calls are open already: wait for an answer");
    assert_eq!(scorer.call(UNLOAD, &json!({"model": 1}), b"").kind, DONE);
    wait_for_end(worker);
    scorer.stop();
}

#[test]
fn scoring_child_ends_with_its_socket() {
    let Some((folder, mut command)) = where_model() else { return };
    let mut scorer = Scorer::of(&mut command, 1 << 16);
    scorer.load(folder.root().to_str().unwrap(), None);
    scorer.write(0, &0_i64.to_le_bytes());
    let worker = process(&scorer.call(PREDICT, &milliseconds(0), b""));
    // A call is open, which would take longer.
    scorer.write(64, &60_000_i64.to_le_bytes());
    scorer.open(PREDICT, &milliseconds(8), b"");
    scorer.socket.shutdown(Shutdown::Both).unwrap();
    wait_for_end(worker);
    assert!(scorer.child.wait().unwrap().success());
}

#[test]
fn scoring_child_ends_with_its_parent() {
    let Some((folder, command)) = where_model() else { return };
    // A shell is the parent, and the test keeps the socket open.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "exec 3<&0; \"$0\" score <&3 & wait"]).arg(command.get_program()).env_clear();
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (socket, theirs) = UnixStream::pair().unwrap();
    let shell = shell.stdin(OwnedFd::from(theirs)).stderr(Stdio::null()).spawn().unwrap();
    let parent = shell.id();
    let mut scorer = Scorer::greet(shell, socket, 1 << 16, parent);
    scorer.load(folder.root().to_str().unwrap(), None);
    scorer.write(0, &0_i64.to_le_bytes());
    let worker = process(&scorer.call(PREDICT, &milliseconds(0), b""));
    let [child] = children(parent)[..] else { unreachable!("the shell has one child") };
    scorer.child.kill().unwrap();
    wait_for_end(child.as_raw_nonzero().get());
    wait_for_end(worker);
}
