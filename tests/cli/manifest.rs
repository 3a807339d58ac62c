//! `mlserver manifest`: names, and settings that are of no use in a cluster. `tests/clients` checks the manifests themselves.

use serde_json::{Value, json};

use crate::support::{Folder, run_mlserver};

/// Returns the exit code, and the manifest or the error.
fn manifest(folder: &Folder, below: &str, flags: &[&str]) -> (Option<i32>, String) {
    let path = folder.path(below);
    let arguments = [&["manifest", path.to_str().unwrap(), "--image", "r.io/m:1"], flags].concat();
    let output = run_mlserver(".", &arguments);
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn manifest_name_that_starts_with_a_digit_has_a_prefix() {
    let folder = Folder::new().file("2024-churn/settings.json", "{}");
    let (code, text) = manifest(&folder, "2024-churn", &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\n  name: m-2024-churn\n") && !text.contains("name: 2024"), "{text}");
}

#[test]
fn manifest_empty_image_is_rejected() {
    let output = run_mlserver(Folder::new().root(), &["manifest", ".", "--image", ""]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("a value is required for '--image <IMAGE>'"));
}

#[test]
fn manifest_invalid_name_is_rejected_with_a_valid_one() {
    let folder = Folder::new();
    let long = "a".repeat(60);
    let cases = [
        (
            ["--name", "2024-churn", "--kind", "kubernetes"],
            "invalid resource name `2024-churn`",
            "`--name m-2024-churn`",
        ),
        (["--name", "Churn_1", "--kind", "kubernetes"], "invalid resource name `Churn_1`", "`--name churn-1`"),
        (["--name", "churn-", "--kind", "seldon"], "no `-` last", "`--name churn`"),
        // KServe appends to it.
        (["--name", &long, "--kind", "kserve"], "expected at most 53 lowercase letters", "`--name aaaa"),
    ];
    for (flags, expected, hint) in cases {
        let (code, text) = manifest(&folder, ".", &flags);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(expected) && text.contains(hint), "{text}");
    }
    let (code, text) = manifest(&Folder::new().file("模型/settings.json", "{}"), "模型", &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no resource name can be derived from folder `模型`: set one with `--name`"), "{text}");
}

#[test]
fn manifest_settings_that_no_pod_can_use_are_rejected() {
    let cases: [(Value, &str); 2] = [
        (json!({"http_port": 0}), "`http_port` is 0 in the folder's settings"),
        (json!({"host": "127.0.0.1"}), "`host` is `127.0.0.1` in the folder's settings"),
    ];
    for (settings, expected) in cases {
        let (code, text) = manifest(&Folder::new().settings(&settings), ".", &["--name", "m"]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn manifest_invalid_quantity_is_a_usage_error() {
    for flags in [["--cpu", "0"], ["--memory", "2GB"], ["--memory", "-1Gi"]] {
        let (code, text) = manifest(&Folder::new(), ".", &[&["--name", "m"], &flags[..]].concat());
        assert_eq!(code, Some(2), "{text}");
    }
}
