//! Commands that look at a folder of somebody else: none waits for a pipe, follows a link out of the folder into an image, or
//! reads without a limit.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::json;

use crate::support::Folder;

/// Runs a command, which must end. Returns its standard error and output.
fn run(folder: &Folder, command: &str) -> String {
    let (program, folder) = (env!("CARGO_BIN_EXE_mlserver"), folder.root());
    let mut bounded = Command::new("timeout");
    let output = bounded.args(["60", program, command]).arg(folder).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned();
    assert_ne!(output.status.code(), Some(124), "`{command}` waits:\n{text}");
    text
}

fn make_pipe(folder: &Folder, name: &str) {
    assert!(Command::new("mkfifo").arg(folder.path(name)).status().unwrap().success());
}

fn model(implementation: &str, uri: &str) -> Folder {
    let settings = json!({"name": "m", "implementation": implementation, "parameters": {"uri": uri}});
    Folder::new().file("model-settings.json", settings.to_string())
}

#[test]
fn commands_that_look_at_models_do_not_wait_for_pipes() {
    let artifacts = [("model.json", "mlserver_xgboost.XGBoostModel"), ("graph.yaml", "mlserver.Graph")];
    for (name, implementation) in artifacts {
        let folder = model(implementation, &format!("./{name}"));
        make_pipe(&folder, name);
        for command in ["doctor", "dockerfile"] {
            let text = run(&folder, command);
            assert!(
                text.contains(&format!("{name}` is a pipe or a device, which only `mlserver start` reads")),
                "{text}"
            );
        }
        run(&folder, "inspect");
    }
    let others = ["settings.json", ".env", ".dockerignore", "requirements.txt", ".python-version", "environment.yml"];
    for name in others.into_iter().chain(["model-settings.json", "models.py", "graph.yaml", "request.json"]) {
        let folder = if name == "model-settings.json" { Folder::new() } else { model("models.M", "./x") };
        make_pipe(&folder, name);
        for command in ["doctor", "dockerfile", "inspect", "build"] {
            run(&folder, command);
        }
    }
}

#[test]
fn image_has_no_packages_of_a_file_outside_of_the_folder() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("r.txt"), "numpy").unwrap();
    let folder = model("models.M", "./x");
    symlink(outside.path().join("r.txt"), folder.path("requirements.txt")).unwrap();
    let text = run(&folder, "dockerfile");
    assert!(text.contains("it is a link to a file outside of the folder"), "{text}");
    fs::remove_file(folder.path("requirements.txt")).unwrap();
    fs::File::create(folder.path("requirements.txt")).unwrap().set_len(1 << 40).unwrap();
    let text = run(&folder, "dockerfile");
    assert!(text.contains("it is longer than 67108864 bytes"), "{text}");
}
