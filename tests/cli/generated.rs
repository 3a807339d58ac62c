//! Files in the repository that the executable generates: `MLSERVER_UPDATE=1 cargo test --test main -- generated`
//! updates them.

use std::fs;
use std::process::Command;

use crate::support::{Folder, repository_path, run_mlserver};

/// Checks that a file matches the output of a command, or updates it.
#[track_caller]
fn is_printed_by(path: &str, arguments: &[&str]) {
    let output = run_mlserver(repository_path("."), arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    let file = repository_path(path);
    if std::env::vars_os().any(|(name, _)| name == "MLSERVER_UPDATE") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &printed).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == printed, "{path} is stale: MLSERVER_UPDATE=1 cargo test --test main -- generated");
}

#[test]
fn generated_completions_are_up_to_date() {
    let shells = [
        ("bash", "mlserver.bash"),
        ("zsh", "_mlserver"),
        ("fish", "mlserver.fish"),
        ("powershell", "_mlserver.ps1"),
        ("elvish", "mlserver.elv"),
    ];
    for (shell, file) in shells {
        is_printed_by(&format!("completions/{file}"), &["completions", shell]);
    }
}

#[test]
fn generated_manifests_are_up_to_date() {
    for kind in ["kubernetes", "kserve", "seldon"] {
        let image = "registry.example.com/quickstart:1";
        let arguments = ["manifest", "examples/quickstart", "--image", image, "--kind", kind];
        is_printed_by(&format!("packaging/deploy/{kind}.yaml"), &arguments);
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let folder =
        Folder::new().file("mlserver.bash", run_mlserver(repository_path("."), &["completions", "bash"]).stdout);
    let script = folder.path("mlserver.bash");
    let complete = |words: &str, index: usize| {
        let program = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={index}; _mlserver mlserver \"${{COMP_WORDS[{index}]}}\" \"\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["-c", &program]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("mlserver dock", 1), "dockerfile\n");
    assert_eq!(complete("mlserver build --che", 2), "--check\n");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = Folder::new();
    let path = folder.path("man1");
    let output = run_mlserver(repository_path("."), &["man", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let help = String::from_utf8(run_mlserver(repository_path("."), &["--help"]).stdout).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.split_whitespace().next());
    let commands: Vec<_> = commands.filter(|command| *command != "help").collect();
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        let page = fs::read_to_string(path.join(format!("mlserver-{command}.1"))).unwrap();
        assert!(page.contains(&format!(".TH mlserver-{command} 1")), "{page}");
    }
    assert!(fs::read_to_string(path.join("mlserver.1")).unwrap().contains(".TH mlserver 1"));
}

#[test]
fn generated_settings_reference_is_up_to_date() {
    is_printed_by("docs/reference/settings.md", &["config", "list", "--format", "markdown"]);
}
