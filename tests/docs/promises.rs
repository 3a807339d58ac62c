//! The tests that `docs/hardening.md` names: they exist, and run.

use std::fs;
use std::path::Path;

use crate::support::repository_path;

/// The tests of the repository.
struct Tests {
    /// The names of all test functions that are not ignored.
    functions: Vec<String>,
    /// The paths of all files, without their extension and with `::`, such as `tests::security::polls`.
    modules: Vec<String>,
}

impl Tests {
    fn of_repository() -> Self {
        let mut tests = Self { functions: Vec::new(), modules: Vec::new() };
        for folder in ["src", "crates", "tests", "python/tests", "fuzz/fuzz_targets"] {
            tests.add(&repository_path(folder), folder);
        }
        tests
    }

    fn add(&mut self, folder: &Path, name: &str) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, file) = (entry.path(), entry.file_name().into_string().unwrap());
            let name = format!("{name}::{file}");
            if path.is_dir() {
                self.add(&path, &name);
            } else if let Some(stem) = name.strip_suffix(".rs").or_else(|| name.strip_suffix(".py")) {
                self.modules.push(stem.strip_suffix("::mod").unwrap_or(stem).replace('/', "::"));
                let text = fs::read_to_string(&path).unwrap();
                // The tests of a module are at its end.
                let is_test_file = !name.starts_with("src") && !name.starts_with("crates") || file == "tests.rs";
                let tests = if is_test_file {
                    &text[..]
                } else {
                    text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests)
                };
                self.functions.extend(functions(tests));
            }
        }
    }

    /// Reports whether a name is that of a module, or the beginning of that of a test.
    fn has(&self, name: &str) -> bool {
        let suffix = format!("::{}", name.trim_end_matches(".py").replace('/', "::"));
        self.functions.iter().any(|function| function.starts_with(name))
            || self.modules.iter().any(|module| module.ends_with(&suffix) || module == &suffix[2..])
    }
}

/// Returns the names of functions that are not ignored.
fn functions(text: &str) -> Vec<String> {
    let mut is_ignored = false;
    let mut names = Vec::new();
    for line in text.lines().map(str::trim) {
        is_ignored |= line.starts_with("#[ignore");
        let line = line.strip_prefix("async ").unwrap_or(line);
        let Some(rest) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("def ")) else { continue };
        if !std::mem::take(&mut is_ignored) {
            names.push(rest.chars().take_while(|&letter| letter.is_alphanumeric() || letter == '_').collect());
        }
    }
    names
}

#[test]
fn hardening_names_only_tests_that_exist() {
    let tests = Tests::of_repository();
    assert!(!tests.has("no_test_has_this_name") && !tests.has("security::nothing"));
    assert_eq!(functions("#[ignore = \"slow\"]\n#[test]\nfn a() {\n}\nasync fn b() {}\ndef c(x):\n"), ["b", "c"]);
    let text = fs::read_to_string(repository_path("docs/hardening.md")).unwrap();
    let (mut in_table, mut rows, mut missing) = (false, 0, Vec::new());
    for line in text.lines() {
        in_table = line == "| promise | limit | test |" || in_table && line.starts_with('|');
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        if !in_table || line.starts_with("|---") || line.starts_with("| promise") {
            continue;
        }
        rows += 1;
        let column = cells.last().unwrap();
        let names: Vec<&str> = column.split('`').skip(1).step_by(2).collect();
        assert!(cells.len() == 3 || cells.len() == 2 && line.contains("| |"), "{line}");
        assert!(!names.is_empty(), "a promise without a test: {line}");
        missing.extend(names.into_iter().filter(|name| !tests.has(name)).map(str::to_owned));
    }
    assert!(rows > 50, "{rows} rows");
    assert!(missing.is_empty(), "no test has these names: {missing:?}");
}
