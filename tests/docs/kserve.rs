//! The examples of `docs/kserve.md`, run one after the other in a folder of their own.
//!
//! A block after `<!-- run -->` is run with bash. One after `<!-- file -->` is written to the file that its first line names in a comment.
//! The last line of a block after `<!-- serve -->` starts a server; that of one after `<!-- test -->` is a request to it, whose answer is
//! compared with the next block after `<!-- output -->`, without `id`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::python::python;
use crate::support::{Folder, ServerBuilder, TestServer, repository_path};

/// A marked block of a document: `run`, `file`, `serve`, `test` or `output`.
struct Block<'a> {
    line: usize,
    kind: &'a str,
    text: String,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let marked = lines.iter().enumerate().filter_map(|(index, line)| {
        let kind = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
        assert!(lines[index + 1].starts_with("```"), "line {}: no block", index + 2);
        let text = lines[index + 2..].iter().take_while(|line| !line.starts_with("```"));
        Some(Block { line: index + 2, kind, text: text.flat_map(|line| [line, "\n"]).collect() })
    });
    marked.collect()
}

fn bash(folder: &Path, commands: &str) -> String {
    let own = Path::new(env!("CARGO_BIN_EXE_mlserver")).parent().unwrap();
    let commands = format!("PATH='{}':$PATH\n{commands}", own.display());
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &commands]).current_dir(folder).env("NO_PROXY", "*");
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{commands}\n{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

fn without_id(text: &str) -> Value {
    let mut value: Value = serde_json::from_str(text).unwrap_or_else(|error| unreachable!("{error} in {text}"));
    if let Some(object) = value.as_object_mut() {
        object.remove("id");
    }
    value
}

#[test]
fn kserve_examples_print_the_documented_output() {
    let Some(python) = python() else { return };
    let document = fs::read_to_string(repository_path("docs/kserve.md")).unwrap();
    let folder = Folder::new();
    symlink(repository_path("examples"), folder.path("examples")).unwrap();
    let mut server: Option<TestServer> = None;
    let mut answer = None;
    let mut compared = 0;
    for Block { line, kind, text } in blocks(&document) {
        match kind {
            "run" => drop(bash(folder.root(), &text)),
            "file" => {
                let name = text.lines().next().unwrap().trim_start_matches(['#', ' ']);
                fs::write(folder.path(name), &text).unwrap();
            }
            "serve" => {
                let words = text.lines().last().unwrap().strip_prefix("mlserver start ").unwrap();
                let mut words = words.split_whitespace();
                let target = folder.path(words.next().unwrap());
                // Leaked, because flags live as long as the program.
                let flags: Vec<&'static str> = words.map(|word| &*word.to_owned().leak()).collect();
                let starting = ServerBuilder::new(Folder::new()).argument(target.to_str().unwrap());
                server = Some(starting.python(&python).flags(&flags).start());
            }
            "test" => {
                let server = server.as_ref().unwrap();
                answer = Some(bash(folder.root(), &text.replace("localhost:8080", &server.http.to_string())));
            }
            "output" => {
                assert_eq!(without_id(&answer.take().unwrap()), without_id(&text), "docs/kserve.md:{line}");
                compared += 1;
            }
            other => unreachable!("docs/kserve.md:{line}: {other}"),
        }
    }
    assert!(compared > 0);
}
