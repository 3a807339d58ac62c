//! Batch files of OpenAI's API.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::InferCommand;
use crate::rest::openai::{embedding, hashing};
use crate::support::scripted::{Received, Reply, ScriptedServer};
use crate::support::{TestServer, pause, wait_until};

/// A line that asks a model for the embedding of a text.
fn row(id: &str, model: &str, text: &str) -> String {
    let body = json!({"model": model, "input": text});
    json!({"custom_id": id, "method": "POST", "url": "/v1/embeddings", "body": body}).to_string() + "\n"
}

/// A command that is told nothing but the server and the files.
fn batch(server: &dyn ToString, input: impl AsRef<[u8]>) -> InferCommand {
    InferCommand::new(input).flags(&["-u", &server.to_string(), "-i", "in.jsonl", "-o", "out.jsonl"])
}

fn parsed(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Answers with what was asked for.
fn echo(request: &Received) -> Reply {
    if request.path.ends_with("/v1/models") {
        return Reply::Answer(200, "", json!({"object": "list", "data": []}).to_string());
    }
    Reply::Answer(200, "", json!({"path": request.path, "input": request.json()["input"]}).to_string())
}

#[test]
fn infer_openai_batch_runs_unchanged() {
    // Two models, so that nothing but the lines can say which one is meant.
    let server = TestServer::start(hashing(&embedding()).with_identity("identity"));
    let mut input = row("a", "hashing", "good fine") + &row("b", "nothing", "x") + "{\n" + &row("c", "hashing", "bad");
    let wrong = [r#""/v1/chat/completions""#, r#""http://h/v1/embeddings""#]
        .map(|url| row("d", "hashing", "x").replace(r#""/v1/embeddings""#, url));
    input.push_str(&wrong.concat());
    input.push_str(&row("e", "hashing", "x").replace(r#""input""#, r#""stream":true,"input""#));
    let ran = batch(&server.http, &input).run();
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    assert!(ran.stderr.contains("the models that the lines name, of the server at http://"), "{}", ran.stderr);
    let lines = parsed(&ran.output);
    let expected =
        |text: &str| server.post("/openai/v1/embeddings", json!({"model": "hashing", "input": text}).to_string());
    for (index, id, text) in [(0, "a", "good fine"), (3, "c", "bad")] {
        let response = &lines[index]["response"];
        assert_eq!((&lines[index]["custom_id"], &lines[index]["error"]), (&json!(id), &Value::Null));
        assert_eq!((&response["status_code"], &response["body"]), (&json!(200), &expected(text).ok()));
        assert_eq!(response["request_id"].as_str().unwrap().len(), 36);
    }
    let unknown = &lines[1]["response"];
    assert_eq!((&unknown["status_code"], &unknown["body"]["error"]["code"]), (&json!(404), &json!("model_not_found")));
    assert_eq!((&lines[2]["custom_id"], &lines[2]["error"]["code"]), (&Value::Null, &json!("invalid_request")));
    // A model without the method.
    assert_eq!(lines[4]["response"]["status_code"], 400);
    let message = |index: usize| lines[index]["error"]["message"].as_str().unwrap();
    assert!(message(5).starts_with("`url`: `http://h/v1/embeddings`: "), "{}", message(5));
    assert_eq!(
        (&lines[6]["custom_id"], message(6)),
        (&json!("e"), "`body.stream`: the answers of a batch are not streamed")
    );
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["id"], format!("batch_req_{index}"));
    }
    // The name of a model overrides those of the lines, and an address may end as clients' addresses do.
    let infer = batch(&format!("{}/openai/v1", server.http), row("b", "gpt", "bad")).flags(&["-m", "hashing"]);
    let ran = infer.run();
    assert_eq!(
        (ran.code, &parsed(&ran.output)[0]["response"]["body"]),
        (Some(0), &expected("bad").ok()),
        "{}",
        ran.stderr
    );
    // Standard input is not read to find out what it is.
    let flags = ["-u", &server.http.to_string(), "-i", "-", "-o", "-", "--input-format", "openai"];
    let ran = InferCommand::new("").flags(&flags).run_with_stdin(row("a", "hashing", "bad").as_bytes());
    assert_eq!(
        (ran.code, &parsed(&ran.stdout)[0]["response"]["body"]),
        (Some(0), &expected("bad").ok()),
        "{}",
        ran.stderr
    );
}

#[test]
fn infer_openai_batch_resumes_after_kill() {
    let server = ScriptedServer::serve(|request| {
        pause(Duration::from_millis(10));
        echo(request)
    });
    let input = (0..300).fold(String::new(), |mut input, index| {
        write!(input, "{}", row(&format!("id {index}"), "m", &index.to_string())).unwrap();
        input
    });
    let infer = batch(&server.address, &input).flags(&["-w", "4"]);
    let mut child = infer.spawn();
    wait_until("no answers", || infer.partial().lines().count() >= 20);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = infer.partial().lines().count();
    let asked = server.received().len();
    let other = input.replace("id 7\"", "id seven\"");
    fs::write(infer.path("in.jsonl"), other).unwrap();
    let infer = infer.flags(&["--resume"]);
    let ran = infer.run();
    let expected =
        "row 7 of `in.jsonl` has the id `id seven`, but was answered with the id `id 7`: is this the same input?";
    assert!(ran.code == Some(1) && ran.stderr.contains(expected), "{}", ran.stderr);
    fs::write(infer.path("in.jsonl"), &input).unwrap();
    let ran = infer.run();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines = parsed(&ran.output);
    assert_eq!(lines.len(), 300);
    for (index, line) in lines.iter().enumerate() {
        let body = json!({"path": "/openai/v1/embeddings", "input": index.to_string()});
        assert_eq!((&line["custom_id"], &line["response"]["body"]), (&json!(format!("id {index}")), &body));
    }
    // One more asks which routes the server has.
    assert_eq!(server.received().len() - asked, 300 - before + 1, "nothing is asked for twice");
}

#[test]
fn infer_openai_batch_repeats_what_may_succeed() {
    // Not a server of ours: its routes have no prefix.
    let server = ScriptedServer::serve(|request| match (&*request.path, request.number) {
        ("/openai/v1/models", _) => Reply::error(404, "no"),
        (_, 1) => Reply::Answer(429, "retry-after: 0", r#"{"error":{"message":"wait"}}"#.to_owned()),
        (_, 2) => Reply::CloseConnection,
        (_, 4) => Reply::Answer(500, "", "<html>".to_owned()),
        (_, 5) => Reply::Answer(200, "", "text".to_owned()),
        _ => echo(request),
    });
    let input: String = ["a", "b", "c", "d"].iter().map(|id| row(id, "m", id)).collect();
    let ran = batch(&server.address, input).flags(&["-w", "1", "--max-workers", "1"]).run();
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    let lines = parsed(&ran.output);
    assert_eq!(lines[0]["response"]["body"], json!({"path": "/v1/embeddings", "input": "a"}));
    let error = |message: &str| json!({"code": "request_failed", "message": message});
    assert_eq!((&lines[1]["response"], &lines[1]["error"]), (&Value::Null, &error("<html>")));
    assert_eq!(lines[2]["error"], error("cannot read the server's response: its body is not JSON"));
    assert_eq!(lines[3]["response"]["body"]["input"], "d");
    let ids: Vec<_> = server.received().iter().map(|request| request.header("x-request-id").to_owned()).collect();
    assert_eq!(ids[1], ids[3], "a request that is repeated keeps its id");
}

#[test]
fn infer_openai_batch_ends_if_no_row_can_be_answered() {
    for (status, path) in [(401, ""), (404, "/wrong")] {
        let server =
            ScriptedServer::serve(move |_| Reply::Answer(status, "", r#"{"error":{"message":"no"}}"#.to_owned()));
        let ran = batch(&format!("{}{path}", server.address), row("a", "m", "x").repeat(5000)).run();
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("no ({status})")), "{}", ran.stderr);
        // On a busy machine, many are sent before the first answer is read.
        assert!(server.received().len() < 5000, "not every row is tried");
    }
}

#[test]
fn infer_openai_batch_rejects_what_it_cannot_do() {
    let input = row("a", "m", "x");
    let usage = |infer: InferCommand, expected: &str| {
        let ran = infer.run();
        assert!(ran.code == Some(2) && ran.stderr.contains(expected), "{}", ran.stderr);
    };
    let of = |flags: &[&str]| InferCommand::new(&input).flags(&["-i", "in.jsonl"]).flags(flags);
    usage(of(&["-t", "grpc", "-o", "out"]), "a batch of OpenAI's API is sent over REST, not gRPC");
    usage(of(&["--embedded", ".", "-o", "out"]), "needs a server, and --embedded starts none");
    usage(of(&["-o", "out.csv"]), "JSON Lines: name an output such as answers.jsonl");
    usage(of(&["-o", "kafka://localhost:1/t"]), "has no topic as output");
    usage(of(&["-o", "out", "--model-version", "1"]), "--model-version of a batch of OpenAI's API needs --model-name");
    usage(
        InferCommand::compare(["127.0.0.1:1".parse().unwrap(); 2], &input).flags(&["-m", "m"]),
        "not those of OpenAI's API",
    );
    let topic = ["-i", "kafka://localhost:1/t", "-o", "out", "--input-format", "openai"];
    usage(InferCommand::new("").flags(&topic), "the records of a topic are requests");
}
