//! The README's examples, run as they stand.
//!
//! A block of ```` ```sh ```` right behind a line `<!-- test -->` is run with bash against a quickstart server, whose
//! addresses take the place of `localhost:8080` and `localhost:8082`. When the next block is ```` ```json ```` behind a
//! line `<!-- output -->`, it is what the commands print; a generated `id` is not compared.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{TestServer, repository_path};

/// Commands, and what they print.
#[derive(Debug, PartialEq)]
struct Example {
    line: usize,
    commands: String,
    output: Option<String>,
}

/// Finds the marked blocks.
fn examples(text: &str) -> Vec<Example> {
    let lines: Vec<&str> = text.lines().collect();
    let block = |start: usize| -> String {
        lines[start..].iter().take_while(|line| !line.starts_with("```")).flat_map(|line| [line, "\n"]).collect()
    };
    let mut examples: Vec<Example> = Vec::new();
    for (index, pair) in lines.windows(2).enumerate() {
        match pair {
            ["<!-- test -->", opening] => {
                assert_eq!(*opening, "```sh", "line {}", index + 2);
                examples.push(Example { line: index + 2, commands: block(index + 2), output: None });
            }
            ["<!-- output -->", opening] => {
                assert_eq!(*opening, "```json", "line {}", index + 2);
                let example = examples.last_mut().unwrap();
                assert_eq!(example.output, None, "line {}: a second output", index + 2);
                example.output = Some(block(index + 2));
            }
            _ => {}
        }
    }
    examples
}

fn without_id(text: &str) -> Value {
    let mut value: Value = serde_json::from_str(text).unwrap_or_else(|error| unreachable!("{error} in {text}"));
    if let Some(object) = value.as_object_mut() {
        object.remove("id");
    }
    value
}

#[test]
fn the_readme_tells_the_truth() {
    let path = repository_path("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let examples = examples(&readme);
    assert!(!examples.is_empty(), "no `<!-- test -->` in {}", path.display());
    let server = TestServer::quickstart();
    for Example { line, commands, output } in examples {
        let commands = commands
            .replace("localhost:8080", &server.http.to_string())
            .replace("localhost:8082", &server.metrics.unwrap().to_string());
        let ran = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &commands])
            .current_dir(repository_path("."))
            .env("NO_PROXY", "*")
            .output()
            .unwrap();
        let stdout = String::from_utf8(ran.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "README.md:{line}: {commands}\n{stdout}\n{stderr}");
        if let Some(output) = output {
            assert_eq!(without_id(&stdout), without_id(&output), "README.md:{line}: {commands}");
        }
    }
}

#[test]
fn only_marked_blocks_are_examples() {
    let text = "```sh\nno\n```\n\n<!-- test -->\n```sh\na\nb\n```\ntext\n<!-- output -->\n```json\n{}\n```\n<!-- test -->\n```sh\nc\n```\n";
    let expected = [
        Example { line: 6, commands: "a\nb\n".to_owned(), output: Some("{}\n".to_owned()) },
        Example { line: 16, commands: "c\n".to_owned(), output: None },
    ];
    assert_eq!(examples(text), expected);
}
