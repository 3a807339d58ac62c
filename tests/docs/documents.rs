//! The examples of `docs/kserve.md`, `docs/graphs.md`, `docs/steps.md`, `docs/security.md` and of READMEs in `examples`, run one after the other in a folder of their own.
//!
//! A block after `<!-- run -->` is run with bash, and what it prints may be compared. One after `<!-- file PATH -->` is written to that file, and without a path to the one that its
//! first line names in a comment.
//! The last line of a block after `<!-- serve -->` starts a server; that of one after `<!-- test -->` is a request to it. What it
//! prints is compared with the next block after `<!-- output -->`; JSON without `id`. Servers use free ports, which replace those of the document: 8080, or
//! that of `--http-port`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::python::python;
use crate::support::{Folder, ServerBuilder, TestServer, repository_path};

/// A marked block of a document: `run`, `file`, `file PATH`, `serve`, `test` or `output`.
struct Block<'a> {
    line: usize,
    kind: &'a str,
    is_json: bool,
    text: String,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let marked = lines.iter().enumerate().filter_map(|(index, line)| {
        let kind = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
        assert!(lines[index + 1].starts_with("```"), "line {}: no block", index + 2);
        let text = lines[index + 2..].iter().take_while(|line| !line.starts_with("```"));
        let is_json = lines[index + 1] == "```json";
        Some(Block { line: index + 2, kind, is_json, text: text.flat_map(|line| [line, "\n"]).collect() })
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
    check_document("docs/kserve.md", Some(&python));
}

#[test]
fn example_ensemble_commands_print_the_documented_output() {
    check_document("examples/graph-ensemble/README.md", None);
}

#[test]
fn example_text_commands_print_the_documented_output() {
    let Some(python) = python() else { return };
    check_document("examples/graph-text/README.md", Some(&python));
}

#[test]
fn graphs_examples_print_the_documented_output() {
    check_document("docs/graphs.md", None);
}

#[test]
fn steps_examples_print_the_documented_output() {
    check_document("docs/steps.md", None);
}

/// The server of this document uses TLS, and its commands run in the server's working directory.
#[test]
fn security_examples_print_the_documented_output() {
    let document = fs::read_to_string(repository_path("docs/security.md")).unwrap();
    let folder = Folder::new();
    let root = folder.root().to_owned();
    symlink(repository_path("examples"), folder.path("examples")).unwrap();
    let (mut folder, mut server, mut answer, mut compared) = (Some(folder), None::<TestServer>, None, 0);
    for Block { line, kind, text, .. } in blocks(&document) {
        let port = server.as_ref().map_or(0, |server| server.http.port());
        let text = text.replace("localhost:8080", &format!("localhost:{port}"));
        match kind.split_once(' ').unwrap_or((kind, "")) {
            ("run", _) => drop(bash(&root, &text)),
            ("file", path) => fs::write(root.join(path), &text).unwrap(),
            ("serve", _) => {
                let target = text.trim_end().strip_prefix("mlserver start ").unwrap();
                let started = ServerBuilder::new(folder.take().unwrap()).argument(target).listen();
                started.wait_for_log("Loaded model 'iris-xgboost'");
                server = Some(started);
            }
            ("test", _) => answer = Some(bash(&root, &text)),
            ("output", _) => {
                assert_eq!(without_id(&answer.take().unwrap()), without_id(&text), "line {line}");
                compared += 1;
            }
            _ => unreachable!("line {line}: {kind}"),
        }
    }
    assert!(compared > 0);
}

fn check_document(name: &str, python: Option<&Path>) {
    let document = fs::read_to_string(repository_path(name)).unwrap();
    let folder = Folder::new();
    symlink(repository_path("examples"), folder.path("examples")).unwrap();
    // By the HTTP port in the document.
    let mut servers: BTreeMap<String, TestServer> = BTreeMap::new();
    let mut answer = None;
    let mut compared = 0;
    for Block { line, kind, is_json, mut text } in blocks(&document) {
        for (port, server) in &servers {
            text = text.replace(&format!("localhost:{port}"), &server.http.to_string());
        }
        match kind.split_once(' ').unwrap_or((kind, "")) {
            ("run", _) => answer = Some(bash(folder.root(), &text)),
            ("file", path) => {
                let named = text.lines().next().unwrap().trim_start_matches(['#', ' ']);
                let path = folder.path(if path.is_empty() { named } else { path });
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, &text).unwrap();
            }
            ("serve", _) => {
                let words = text.lines().last().unwrap().strip_prefix("mlserver start ").unwrap();
                let mut words = words.split_whitespace();
                let target = folder.path(words.next().unwrap());
                // Leaked, because flags live as long as the program.
                let mut flags: Vec<&'static str> = words.map(|word| &*word.to_owned().leak()).collect();
                let mut port = "8080";
                while let Some(index) = flags.iter().position(|flag| flag.ends_with("-port")) {
                    let (flag, given) = (flags.remove(index), flags.remove(index));
                    port = if flag == "--http-port" { given } else { port };
                }
                let starting = ServerBuilder::new(Folder::new()).argument(target.to_str().unwrap()).flags(&flags);
                let starting = match python {
                    Some(python) => starting.python(python),
                    None => starting,
                };
                servers.insert(port.to_owned(), starting.start());
            }
            ("test", _) => {
                assert!(!servers.is_empty(), "{name}:{line}: no server");
                answer = Some(bash(folder.root(), &text));
            }
            ("output", _) => {
                let answer = answer.take().unwrap();
                if is_json {
                    assert_eq!(without_id(&answer), without_id(&text), "{name}:{line}");
                } else {
                    assert_eq!(answer, text, "{name}:{line}");
                }
                compared += 1;
            }
            _ => unreachable!("{name}:{line}: {kind}"),
        }
    }
    assert!(compared > 0);
}
