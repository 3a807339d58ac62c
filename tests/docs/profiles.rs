//! The table of profiles in `CONTRIBUTING.md` and `Cargo.toml`, the features of tokio, and the one condition for systems.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::repository_path;

/// The sections of `Cargo.toml` whose names begin with `profile.`, each with its keys and the text of their values.
fn sections() -> BTreeMap<String, BTreeMap<String, String>> {
    let text = fs::read_to_string(repository_path("Cargo.toml")).unwrap();
    let mut sections = BTreeMap::<String, BTreeMap<String, String>>::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(section) = line.strip_prefix('[') {
            section.strip_suffix(']').unwrap().clone_into(&mut name);
        } else if let (true, Some((key, value))) = (name.starts_with("profile."), line.split_once(" = ")) {
            sections.entry(name.clone()).or_default().insert(key.to_owned(), value.to_owned());
        }
    }
    sections
}

/// The value of a setting of this package in a profile, or in one that it inherits. `strip` is not taken from the profile itself if
/// the package has settings of its own.
fn setting(sections: &BTreeMap<String, BTreeMap<String, String>>, profile: &str, key: &str) -> String {
    let own = &sections[&format!("profile.{profile}")];
    let parent = own.get("inherits").map(|parent| parent.trim_matches('"').to_owned());
    let package = sections.get(&format!("profile.{profile}.package")).and_then(|packages| packages.get("mlserver"));
    let of_package = package.and_then(|settings| {
        let mut pairs = settings.trim_matches(['{', '}', ' ']).split(", ").filter_map(|pair| pair.split_once(" = "));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    });
    let found = match (of_package, &parent) {
        (Some(value), _) => Some(value.to_owned()),
        (None, Some(parent)) if key == "strip" => Some(setting(sections, parent, key)),
        (None, None) if key == "strip" => None,
        (None, _) => own.get(key).cloned(),
    };
    match (found, parent) {
        (Some(value), _) => value.trim_matches('"').to_owned(),
        (None, Some(parent)) => setting(sections, &parent, key),
        (None, None) => String::new(),
    }
}

#[test]
fn table_of_profiles_is_that_of_the_manifest() {
    let sections = sections();
    let text = fs::read_to_string(repository_path("CONTRIBUTING.md")).unwrap();
    let mut rows = text.lines().skip_while(|line| !line.starts_with("| profile |"));
    let head: Vec<&str> = rows.next().unwrap().split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(head, ["profile", "for", "`lto`", "`codegen-units`", "`strip`"]);
    let mut profiles = Vec::new();
    for row in rows.skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let profile = cells[1].trim_matches('`');
        profiles.push(profile);
        for (cell, key) in cells[3..].iter().zip(["lto", "codegen-units", "strip"]) {
            assert_eq!(*cell, setting(&sections, profile, key), "`{key}` of the profile `{profile}`");
        }
    }
    assert_eq!(profiles, ["release", "dist", "bench"]);
}

#[test]
fn executables_of_releases_are_stripped() {
    let sections = sections();
    for profile in ["release", "dist"] {
        assert_eq!(setting(&sections, profile, "strip"), "symbols", "{profile}");
    }
}

/// Other crates may enable a feature of tokio that the manifest lacks, until an optional one of them is left out.
#[test]
fn modules_of_tokio_are_enabled_for_the_code_that_uses_them() {
    const MODULES: [&str; 6] = ["fs", "net", "process", "signal", "sync", "time"];
    let manifest = fs::read_to_string(repository_path("Cargo.toml")).unwrap();
    let line = |start: &str| manifest.lines().find(|line| line.starts_with(start)).unwrap();
    let always = line("tokio = ");
    let of_storage = line("storage = ");
    let mut used = 0;
    for (path, text) in sources() {
        let is_storage = path.starts_with(repository_path("src/storage"));
        for module in MODULES.into_iter().filter(|module| text.contains(&format!("tokio::{module}::"))) {
            used += 1;
            let is_enabled = always.contains(&format!("\"{module}\""))
                || (is_storage && of_storage.contains(&format!("\"tokio/{module}\"")));
            assert!(is_enabled, "{} uses `tokio::{module}`, which `Cargo.toml` does not enable for it", path.display());
        }
    }
    assert!(used > 50, "only {used} uses were found");
}

/// Code for one system is chosen by `cfg(portable)` alone, which `build.rs` sets.
#[test]
fn sources_have_one_condition_for_systems() {
    let found: Vec<_> = sources().iter().flat_map(|(path, text)| conditions(path, text)).collect();
    assert!(found.is_empty(), "conditions for systems:\n{}", found.join("\n"));
}

/// Returns the files of Rust of the server and its crates, and their text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![repository_path("src"), repository_path("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    assert!(files.len() > 200, "only {} files were read", files.len());
    files
}

fn conditions(path: &Path, text: &str) -> Vec<String> {
    let is_condition = |line: &&str| line.contains("target_os") || line.contains("cfg(all(portable");
    text.lines().filter(is_condition).map(|line| format!("{}: {}", path.display(), line.trim())).collect()
}
