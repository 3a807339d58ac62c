//! The README's examples, run as they are written.
//!
//! A block of ```` ```sh ```` right after a line `<!-- serve -->` starts a server of the folder that it ends with. Such
//! a block after `<!-- test -->` is run with bash against that server, whose addresses replace `localhost:8080` and
//! `localhost:8082`. If the next block is ```` ```json ```` after a line `<!-- output -->`, it is the expected output;
//! a generated `id` is not compared.
//!
//! Blocks after `<!-- run -->`, in the README and in `docs/images.md`, are run one after the other in a folder of their
//! own. Those after `<!-- engine -->` need a Docker engine: `tests/image` runs them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::python::python;
use crate::support::{Folder, ServerBuilder, TestServer, repository_path};

/// Commands and their expected output.
#[derive(Debug, PartialEq)]
struct Example {
    line: usize,
    /// The folder that is served during the commands.
    folder: String,
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
    let mut folder = String::new();
    for (index, pair) in lines.windows(2).enumerate() {
        match pair {
            ["<!-- serve -->", opening] => {
                assert_eq!(*opening, "```sh", "line {}", index + 2);
                block(index + 2).rsplit_once(" start ").unwrap().1.trim().clone_into(&mut folder);
            }
            ["<!-- test -->", opening] => {
                assert_eq!(*opening, "```sh", "line {}", index + 2);
                let (folder, commands) = (folder.clone(), block(index + 2));
                examples.push(Example { line: index + 2, folder, commands, output: None });
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

/// Serves a folder of this repository; `None` if it needs an interpreter and there is none.
fn serve(folder: &str) -> Option<TestServer> {
    let starting = ServerBuilder::new(Folder::new()).argument(repository_path(folder).to_str().unwrap());
    let starting = if folder.ends_with("quickstart") { starting } else { starting.python(&python()?) };
    Some(starting.start())
}

#[test]
fn readme_examples_print_the_documented_output() {
    let path = repository_path("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let examples = examples(&readme);
    assert!(!examples.is_empty(), "no `<!-- test -->` in {}", path.display());
    let mut of_server = String::new();
    let mut server = None;
    for Example { line, folder, commands, output } in examples {
        if of_server != folder {
            server = serve(&folder);
            of_server.clone_from(&folder);
        }
        // The models need Python, which is missing.
        let Some(server) = &server else { continue };
        let commands = commands
            .replace("localhost:8080", &server.http.to_string())
            .replace("localhost:8082", &server.metrics.unwrap().to_string());
        // `mlserver` in them is the one under test.
        let folder = Path::new(env!("CARGO_BIN_EXE_mlserver")).parent().unwrap();
        let commands = format!("PATH='{}':$PATH\n{commands}", folder.display());
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

/// Stands in for Kubernetes' command line.
const KUBECTL: &str = "#!/bin/sh
test \"$*\" = 'apply --filename -' && grep --quiet '^kind: InferenceService$'
";

#[test]
fn readme_project_and_image_commands_run() {
    let folder = Folder::new().file("bin/kubectl", KUBECTL);
    fs::set_permissions(folder.path("bin/kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
    let own = Path::new(env!("CARGO_BIN_EXE_mlserver")).parent().unwrap();
    let path = format!("{}:{}:/usr/local/bin:/usr/bin:/bin", folder.path("bin").display(), own.display());
    let mut blocks = 0;
    for document in ["README.md", "docs/images.md"] {
        let text = fs::read_to_string(repository_path(document)).unwrap();
        for (before, after) in
            text.match_indices("<!-- run -->\n```sh\n").map(|(at, found)| text.split_at(at + found.len()))
        {
            let commands = after.split("```").next().unwrap();
            let mut command = Command::new("bash");
            command
                .args(["-euo", "pipefail", "-c", commands])
                .current_dir(folder.root())
                .env_clear()
                .env("PATH", &path);
            let ran = command.output().unwrap();
            let stderr = String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success(), "{document}:{}: {commands}{stderr}", before.lines().count());
            blocks += 1;
        }
    }
    assert_eq!(blocks, 2);
}

#[test]
fn readme_only_marked_blocks_are_examples() {
    let text = "```sh\nno\n```\n\n<!-- serve -->\n```sh\nmlserver start a/b\n```\n\n<!-- test -->\n```sh\na\nb\n```\ntext\n<!-- output -->\n```json\n{}\n```\n<!-- test -->\n```sh\nc\n```\n";
    let folder = "a/b".to_owned();
    let expected = [
        Example { line: 11, folder: folder.clone(), commands: "a\nb\n".to_owned(), output: Some("{}\n".to_owned()) },
        Example { line: 21, folder, commands: "c\n".to_owned(), output: None },
    ];
    assert_eq!(examples(text), expected);
}
