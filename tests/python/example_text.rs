//! `examples/graph-text`: its steps, one after the other, and its training.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::python::python;
use crate::support::{Folder, ServerBuilder, TestServer, repository_path};

fn start(folder: &str, python: &Path, tokenizer_type: &str) -> TestServer {
    let starting = ServerBuilder::new(Folder::new()).argument(repository_path(folder).to_str().unwrap());
    starting.python(python).env("TOKENIZER_TYPE", tokenizer_type).start()
}

fn infer(server: &TestServer, model: &str, inputs: &Value) -> Value {
    let request = json!({"inputs": inputs}).to_string();
    server.post(&format!("/v2/models/{model}/infer"), request).ok()["outputs"].clone()
}

#[test]
fn example_text_steps_generate_a_continuation() {
    let Some(python) = python() else { return };
    let encoder = start("examples/graph-text", &python, "ENCODER");
    let decoder = start("examples/graph-text/tokenizer", &python, "DECODER");
    let texts = json!(["A storm", "The sailors read", "", "ünknown"]);
    let input = json!([{"name": "text", "shape": [4], "datatype": "BYTES", "data": texts}]);
    let tokens = infer(&encoder, "tokenizer", &input);
    let continued = infer(&encoder, "language-model", &tokens);
    let texts = infer(&decoder, "tokenizer", &continued);
    let expected = json!([
        "A storm is a strong wind that brings rain and high waves.",
        "The sailors read the clouds and know the weather of the next day.",
        " the boats leave the harbor.",
        "ünknown the birds leave the rocks and build their nests.",
    ]);
    assert_eq!(
        (&texts[0]["name"], &texts[0]["datatype"], &texts[0]["data"]),
        (&json!("text"), &json!("BYTES"), &expected)
    );

    let mut prompt = tokens[0].clone();
    prompt["name"] = json!("output_ids");
    let reversed = infer(&decoder, "tokenizer", &json!([prompt]));
    assert_eq!(reversed[0]["data"], input[0]["data"], "decoding reverses encoding");
}

#[test]
fn example_text_graph_generates_a_continuation() {
    let Some(python) = python() else { return };
    let starting = ServerBuilder::new(Folder::new()).argument(repository_path("examples/graph-text").to_str().unwrap());
    let server = starting.python(&python).start();
    // As in the tutorial, the shape may count the characters.
    for shape in [json!([1]), json!([1, 7])] {
        let input = json!([{"name": "text", "shape": shape, "datatype": "BYTES", "data": ["A storm"]}]);
        let texts = infer(&server, "text-generator", &input);
        assert_eq!(texts[0]["data"], json!(["A storm is a strong wind that brings rain and high waves."]));
    }
    let body = json!({"model": "text-generator", "prompt": ["A storm", "The sailors read"]}).to_string();
    let choices = server.post("/openai/v1/completions", body).ok()["choices"].clone();
    assert_eq!(choices[0]["text"], "A storm is a strong wind that brings rain and high waves.");
    assert_eq!(choices[1]["text"], "The sailors read the clouds and know the weather of the next day.");
}

#[test]
fn example_text_files_are_those_that_training_writes() {
    let Some(python) = python() else { return };
    let example = repository_path("examples/graph-text");
    let mut copy = Folder::new().file("tokenizer/pairs.json", "").file("language-model/model.json", "");
    for name in ["train.py", "corpus.txt"] {
        copy = copy.file(name, fs::read(example.join(name)).unwrap());
    }
    let trained = Command::new(python).arg(copy.path("train.py")).output().unwrap();
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    for name in ["tokenizer/pairs.json", "language-model/model.json"] {
        assert_eq!(fs::read(copy.path(name)).unwrap(), fs::read(example.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn example_text_tokenizer_rejects_an_unknown_type() {
    let Some(python) = python() else { return };
    let folder = repository_path("examples/graph-text/tokenizer");
    let starting = ServerBuilder::new(Folder::new()).argument(folder.to_str().unwrap());
    let exit = starting.python(&python).env("TOKENIZER_TYPE", "BOTH").run();
    let log = [exit.stdout, exit.stderr].concat();
    assert!(log.contains("TOKENIZER_TYPE is `BOTH`, expected ENCODER or DECODER"), "{log}");
}
