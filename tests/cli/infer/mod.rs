//! `mlserver infer`, against real servers and scripted ones that misbehave.

mod embedded;
mod engine;
mod faults;
mod flow;
mod network;
mod openai;
mod resume;
mod tables;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
#[cfg(feature = "parquet")]
use std::path::Path;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use mlserver::cli::infer::InferVariable;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{IRIS, TestServer};

/// Irises, and the class that the model predicts for each.
const IRISES: [([f64; 4], i64); 3] = [([5.1, 3.5, 1.4, 0.2], 0), ([6.7, 3.0, 5.2, 2.3], 2), ([5.9, 3.0, 4.2, 1.5], 1)];

/// A command in its own folder.
pub(crate) struct InferCommand {
    folder: TempDir,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

/// The exit code and output of a command.
#[derive(Debug)]
pub(crate) struct InferExit {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The content of the output file; empty if there is none.
    pub(crate) output: String,
}

impl InferCommand {
    /// Sends requests to the model `m` of a server, from `in.jsonl` to `out.jsonl`.
    pub(crate) fn of(server: SocketAddr, input: impl AsRef<[u8]>) -> Self {
        Self::new(input).flags(&["-u", &server.to_string(), "-m", "m", "-i", "in.jsonl", "-o", "out.jsonl"])
    }

    pub(crate) fn new(input: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("in.jsonl"), input).unwrap();
        Self { folder, arguments: vec!["infer".to_owned()], variables: Vec::new() }
    }

    /// Compares the answers of two servers to `in.jsonl`.
    pub(crate) fn compare(servers: [SocketAddr; 2], input: impl AsRef<[u8]>) -> Self {
        let mut command = Self::new(input);
        command.arguments = vec!["compare".to_owned()];
        let [first, second] = servers.map(|server| server.to_string());
        command.flags(&["-u", &first, "-u", &second, "in.jsonl"])
    }

    pub(crate) fn flags(mut self, flags: &[&str]) -> Self {
        self.arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlserver"));
        command.args(&self.arguments).current_dir(self.folder.path()).env_clear();
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn spawn(&self) -> Child {
        self.command().spawn().unwrap()
    }

    /// Runs the command with this standard input.
    pub(crate) fn run_with_stdin(&self, stdin: &[u8]) -> InferExit {
        let mut child = self.command().stdin(Stdio::piped()).spawn().unwrap();
        // The command may exit before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        self.ended(child)
    }

    pub(crate) fn run(&self) -> InferExit {
        self.ended(self.spawn())
    }

    pub(crate) fn ended(&self, child: Child) -> InferExit {
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let file = fs::read_to_string(self.path("out.jsonl")).unwrap_or_default();
        InferExit { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr), output: file }
    }

    /// Returns the answers that an unfinished run has written so far.
    pub(crate) fn partial(&self) -> String {
        fs::read_to_string(self.path("out.jsonl.partial")).unwrap_or_default()
    }
}

impl InferExit {
    /// Checks the exit code and that each output line has the index of its position, and returns the lines.
    #[track_caller]
    pub(crate) fn lines(&self, code: i32) -> Vec<Value> {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        lines(&self.output)
    }
}

/// Parses answers, each of which must have the index of its position.
#[track_caller]
pub(crate) fn lines(text: &str) -> Vec<Value> {
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["parameters"]["batch_index"], index, "{line}");
    }
    lines
}

/// A request with one number, which the scripted models return.
pub(crate) fn number(id: usize, value: i64) -> String {
    json!({"id": format!("id-{id}"), "inputs": [{"name": "x", "shape": [1, 1], "datatype": "INT64", "data": [value]}]})
        .to_string()
        + "\n"
}

pub(crate) fn numbers(count: usize) -> String {
    (0..count).map(|index| number(index, i64::try_from(index).unwrap())).collect()
}

/// Returns the first number of each answer, or `None` for an error.
pub(crate) fn values(lines: &[Value]) -> Vec<Option<i64>> {
    lines.iter().map(|line| line["outputs"][0]["data"][0].as_i64()).collect()
}

/// Returns the rows of a Parquet file as text.
#[cfg(feature = "parquet")]
pub(crate) fn parquet_rows(path: &Path) -> Vec<String> {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect()
}

fn iris(row: usize) -> String {
    let (data, _) = IRISES[row % 3];
    let input = json!({"name": "input-0", "shape": [1, 4], "datatype": "FP32", "data": data});
    json!({"id": format!("iris {row}"), "inputs": [input]}).to_string() + "\n"
}

fn irises(count: usize) -> String {
    (0..count).map(iris).collect()
}

fn without_inference_id(mut line: Value) -> Value {
    let id = line["parameters"].as_object_mut().unwrap().remove("inference_id");
    assert!(id.is_some_and(|id| id.as_str().is_some_and(|id| !id.is_empty())), "{line}");
    line
}

#[test]
fn infer_every_transport_gives_the_same_lines() {
    let server = TestServer::quickstart();
    let (http, grpc) = (server.http.to_string(), server.grpc.to_string());
    let ways: [&[&str]; 7] = [
        &["-u", &http],
        &["-u", &http, "-s", "7"],
        &["-u", &http, "-s", "100", "-b"],
        &["-u", &http, "-s", "3", "--http2", "--model-version", "v1.0.0"],
        &["-u", &grpc, "-t", "grpc", "-s", "7"],
        &["-u", &grpc, "-t", "grpc", "-s", "100", "-b"],
        &["-u", &grpc, "-t", "grpc", "--model-version", "v1.0.0", "-w", "1"],
    ];
    let mut first = None;
    for way in ways {
        let infer = InferCommand::new(irises(100)).flags(way).flags(&["-m", IRIS, "-i", "in.jsonl", "-o", "out.jsonl"]);
        let lines: Vec<Value> = infer.run().lines(0).into_iter().map(without_inference_id).collect();
        assert_eq!(lines.len(), 100);
        for (row, line) in lines.iter().enumerate() {
            assert_eq!(
                (&line["id"], &line["model_version"]),
                (&json!(format!("iris {row}")), &json!("v1.0.0")),
                "{way:?}"
            );
            let output = &line["outputs"][0];
            assert_eq!((&output["shape"], &output["data"][0]), (&json!([1, 1]), &json!(IRISES[row % 3].1)), "{way:?}");
        }
        assert_eq!(first.get_or_insert(lines.clone()), &lines, "{way:?}");
        assert!(!infer.path("out.jsonl.partial").exists());
    }
}

#[test]
fn infer_bad_lines_fail_alone() {
    let server = TestServer::quickstart();
    let wrong_type = r#"{"id":"t","inputs":[{"name":"a","shape":[1],"datatype":"INT99","data":[1]}]}"#;
    let wrong_shape = r#"{"id":"s","inputs":[{"name":"a","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
    let bare = r#"[{"name":"input-0","shape":[1,4],"datatype":"FP32","data":[5.1,3.5,1.4,0.2]}]"#;
    let (good, bad) = ([iris(0), iris(1), iris(2)], ["{\"inputs\": \n", "\n", wrong_type, "\n"]);
    let more = [&good[1], wrong_shape, "\n\u{0}\n", bare, "\n", good[2].trim_end()];
    let input = [good[0].clone(), bad.concat(), more.concat()].concat();
    for size in ["1", "100"] {
        let http = server.http.to_string();
        let infer = InferCommand::new(&input).flags(&[
            "-u",
            &http,
            "-m",
            IRIS,
            "-i",
            "in.jsonl",
            "-o",
            "out.jsonl",
            "-s",
            size,
        ]);
        let ran = infer.run();
        let lines = ran.lines(4);
        let shown: Vec<_> = lines.iter().map(|line| line["outputs"][0]["data"][0].as_i64()).collect();
        assert_eq!(shown, [Some(0), None, None, None, Some(2), None, None, Some(0), Some(1)], "{size}: {}", ran.stderr);
        let error = |row: usize| {
            (lines[row]["error"]["status"].as_str().unwrap(), lines[row]["error"]["msg"].as_str().unwrap())
        };
        let preprocessing = "preprocessing error";
        assert_eq!(error(1), (preprocessing, "invalid JSON at byte 10: expected a JSON value"));
        assert_eq!(error(2), (preprocessing, "the line is empty"));
        assert_eq!((error(3).0, &lines[3]["id"]), (preprocessing, &json!("t")));
        assert_eq!(
            (error(5).0, &lines[5]["id"], &lines[5]["error"]["code"]),
            ("inference error", &json!("s"), &json!("400"))
        );
        assert_eq!(error(5).1, "input `a` has the shape [1, 2], but this model expects [rows, 4]");
        assert!(ran.stderr.contains("warning: row 2: the line is empty\n"), "{}", ran.stderr);
        assert!(ran.stderr.ends_with("error: 5 of 9 rows failed; the output has a line for each\n"), "{}", ran.stderr);
    }
}

#[test]
fn infer_too_long_line_is_rejected() {
    let server = TestServer::quickstart();
    let http = server.http.to_string();
    let long = format!("{}{}\n{}", iris(0), " ".repeat(100_000_000), iris(1));
    let infer = InferCommand::new(long).flags(&["-u", &http, "-m", IRIS, "-i", "in.jsonl", "-o", "out.jsonl"]);
    let lines = infer.run().lines(4);
    assert_eq!(values(&lines), [Some(0), None, Some(2)]);
    let message = "the line has 100000001 bytes, over the limit of 33554432";
    assert_eq!(lines[1]["error"]["msg"], message);
}

#[test]
fn infer_stdin_and_stdout_work_like_files() {
    let server = TestServer::quickstart();
    let http = server.http.to_string();
    let infer = InferCommand::new("").flags(&["-u", &http, "-m", IRIS, "-i", "-", "-o", "-", "--summary", "json"]);
    let ran = infer.run_with_stdin(irises(5).as_bytes());
    assert_eq!((ran.code, lines(&ran.stdout).len()), (Some(0), 5));
    let summary: Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["rows"], &summary["failed"], &summary["exit_code"]), (&json!(5), &json!(0), &json!(0)));

    let infer = InferCommand::new("").flags(&[
        "-u",
        &http,
        "-m",
        IRIS,
        "-i",
        "-",
        "-o",
        "out.jsonl",
        "--quiet",
        "--summary",
        "json",
    ]);
    let ran = infer.run_with_stdin(irises(5).as_bytes());
    assert_eq!((ran.lines(0).len(), ran.stderr.as_str()), (5, ""));
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&summary["answered"], &summary["output"], &summary["error"]),
        (&json!(5), &json!("out.jsonl"), &Value::Null)
    );
    let ran = infer.run_with_stdin(b"");
    assert_eq!((ran.code, ran.output.as_str()), (Some(0), ""), "no rows are no failure");
}

#[test]
fn infer_environment_variables_set_flags() {
    let server = TestServer::quickstart();
    let infer = InferCommand::new(irises(3))
        .env("MLSERVER_INFER_URL", &server.http.to_string())
        .env("MLSERVER_INFER_MODEL_NAME", IRIS)
        .env("MLSERVER_INFER_INPUT_DATA_PATH", "in.jsonl")
        .env("MLSERVER_INFER_OUTPUT_DATA_PATH", "out.jsonl")
        .env("MLSERVER_INFER_BATCH_SIZE", "2")
        .env("MLSERVER_INFER_VERBOSE", "true");
    assert_eq!(infer.run().lines(0).len(), 3);
}

#[test]
fn infer_invalid_arguments_open_no_file() {
    let infer = InferCommand::new("").flags(&["-o", "out.jsonl", "--timeout=-1"]).env("MLSERVER_INFER_WORKERS", "many");
    let ran = infer.run();
    assert_eq!(ran.code, Some(2));
    insta::assert_snapshot!(ran.stderr, @r"
    error: --timeout: invalid duration `-1`: expected seconds, 0 or more
    --input-data-path (or MLSERVER_INFER_INPUT_DATA_PATH) is required
    MLSERVER_INFER_WORKERS: `many`: invalid digit found in string
    ");
    assert!(!infer.path("out.jsonl.partial").exists());
}

#[test]
fn infer_help_lists_every_flag_and_variable() {
    let ran = InferCommand::new("").flags(&["--help"]).run();
    assert_eq!(ran.code, Some(0));
    insta::assert_snapshot!("help", ran.stdout);
    for heading in ["Input:", "Output:", "Server:", "Concurrency:", "Reporting:"] {
        assert!(ran.stdout.lines().any(|line| line == heading), "{heading}");
    }
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for variable in InferVariable::ALL {
        assert!(text.contains(variable.name), "{variable:?}");
    }
}

#[test]
fn infer_summary_is_printed_when_a_run_cannot_start() {
    let infer = InferCommand::new("").flags(&["-m", "m", "-i", "nowhere", "-o", "out.jsonl", "--summary", "json"]);
    let ran = infer.run();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&summary["rows"], &summary["exit_code"], &summary["output"]),
        (&json!(0), &json!(1), &json!("out.jsonl"))
    );
    assert!(summary["error"].as_str().unwrap().starts_with("cannot open `nowhere`"), "{summary}");
    let ran = InferCommand::new("").flags(&["-m", "m", "-o", "-", "--summary", "json"]).run();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    let summary: Value = serde_json::from_str(ran.stderr.lines().next().unwrap()).unwrap();
    assert_eq!(summary["exit_code"], 2);
}

#[test]
fn infer_byte_order_mark_is_ignored() {
    let server = TestServer::quickstart();
    let http = server.http.to_string();
    let infer = InferCommand::new(format!("\u{feff}{}", irises(2)));
    let infer = infer.flags(&["-u", &http, "-m", IRIS, "-i", "in.jsonl", "-o", "out.jsonl"]);
    assert_eq!(values(&infer.run().lines(0)), [Some(0), Some(2)]);
}

#[cfg(not(feature = "kafka"))]
#[test]
fn infer_topics_without_the_feature_are_an_error() {
    let server = ["-u", "127.0.0.1:1", "-m", "m"];
    for (input, output) in [("kafka://127.0.0.1:1/in", "out.jsonl"), ("in.jsonl", "kafka://127.0.0.1:1/out")] {
        let ran = InferCommand::new("").flags(&server).flags(&["-i", input, "-o", output, "--kafka-group", "g"]).run();
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("without Kafka support"), "{}", ran.stderr);
    }
}
