//! What all commands share: help, colors, formats.

use std::process::Command;

use serde_json::Value;

use crate::support::{Folder, run_mlserver, skipped};

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = Folder::new();
    let output = run_mlserver(folder.root(), arguments);
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn help_of_a_subcommand_is_printed_both_ways() {
    let (code, help, _) = output(&["help", "config", "list"]);
    assert_eq!((code, help), (Some(0), output(&["config", "list", "--help"]).1));
}

#[test]
fn color_is_used_if_asked_for_and_not_in_pipes() {
    let (_, _, plain) = output(&["config", "explain", "nothing"]);
    assert!(plain.starts_with("error: unknown setting `nothing`"), "{plain:?}");
    let (code, _, colored) = output(&["--color", "always", "config", "explain", "nothing"]);
    assert_eq!(code, Some(1));
    assert!(colored.starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m unknown setting"), "{colored:?}");
    let (_, _, usage) = output(&["bogus", "--color=always"]);
    assert!(usage.contains("\u{1b}["), "{usage:?}");
    let (_, _, usage) = output(&["bogus"]);
    assert!(!usage.contains('\u{1b}'), "{usage:?}");
}

#[test]
fn color_on_a_terminal_respects_no_color() {
    let executable = env!("CARGO_BIN_EXE_mlserver");
    // A pseudo terminal of util-linux.
    let on_terminal = |variables: &[(&str, &str)], flags: &str| {
        let line = format!("{executable} {flags} config explain nothing");
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env_clear().env("TERM", "xterm");
        command.envs(variables.iter().copied()).output()
    };
    let Ok(output) = on_terminal(&[], "") else {
        skipped("this machine has no `script` to create a terminal with");
        return;
    };
    assert!(String::from_utf8_lossy(&output.stdout).contains("\u{1b}[31merror:"), "{output:?}");
    for (variables, flags) in [(&[("NO_COLOR", "1")][..], ""), (&[], "--color never")] {
        let output = on_terminal(variables, flags).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("error: unknown setting") && !text.contains('\u{1b}'), "{text:?}");
    }
}

#[test]
fn config_list_has_every_setting_with_its_default() {
    let (code, text, _) = output(&["config", "list"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("\n  http_port [default: 8080] [env: MLSERVER_HTTP_PORT]\n"), "{text}");
    assert!(text.contains("\n  cors_settings.max_age [default: 600] [env: MLSERVER_MAX_AGE]\n"), "{text}");
    assert!(text.contains("\n  parameters.uri [default: null] [env: MLSERVER_MODEL_URI]\n"), "{text}");
    let (_, json, _) = output(&["config", "list", "--format", "json"]);
    let settings: Vec<Value> = serde_json::from_str(&json).unwrap();
    let text_keys = text.lines().filter(|line| line.contains(" [default: ")).count();
    assert_eq!(settings.len(), text_keys);
    let debug = settings.iter().find(|setting| setting["key"] == "debug").unwrap();
    assert_eq!(debug["mlserver_1_7_1"]["difference"], "the default is true");
    assert_eq!(
        settings.iter().find(|setting| setting["key"] == "cache_ttl").unwrap()["mlserver_1_7_1"]["exists"],
        false
    );
}

#[test]
fn config_explain_finds_names_variables_and_typos() {
    let (code, by_name, _) = output(&["config", "explain", "http_port"]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(by_name, @"
    http_port
      Port of the REST server

      type            an integer from 0 to 65535
      default         8080
      file            settings.json
      environment     MLSERVER_HTTP_PORT
      argument        --set http_port=VALUE
      beside models   not allowed if the operator has a settings file
      MLServer 1.7.1  the same
    ");
    assert_eq!(output(&["config", "explain", "mlserver_http_port"]).1, by_name);
    let (_, both, _) = output(&["config", "explain", "cache_enabled"]);
    assert!(both.contains("settings.json") && both.contains("model-settings.json"), "{both}");
    let (_, nested, _) = output(&["config", "explain", "max_queue_requests"]);
    assert!(nested.starts_with("parameters.max_queue_requests\n"), "{nested}");
    let (_, _, error) = output(&["config", "explain", "MLSERVER_HTP_PORT"]);
    assert!(error.contains("(did you mean `MLSERVER_HTTP_PORT`?)"), "{error}");
    let (code, _, error) = output(&["config", "explain", "http_prot"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        error,
        "error: unknown setting `http_prot` (did you mean `http_port`?); `config list` prints all\n"
            .replace("`config", "`mlserver config")
    );
}

#[test]
fn manual_pages_are_listed_as_they_are_written() {
    let folder = Folder::new();
    let output = run_mlserver(folder.root(), &["man", "man1"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.lines().any(|line| line == "man1/mlserver-config-explain.1"), "{printed}");
    for line in printed.lines() {
        assert!(folder.path(line).is_file(), "{line}");
    }
}
