//! Which module may use which: every path into their own crate that the sources contain is checked against the table of modules in
//! `ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::support::repository_path;

/// The layers by name, and the other layers that each may use: the table of modules in `ARCHITECTURE.md`.
///
/// A layer is a folder or file in [`CRATES`]; if several match a file, the longest counts. Permission to use a layer covers
/// everything inside it that has no row of its own.
type LayerTable = BTreeMap<String, Vec<String>>;

/// The sources of each crate, and its name in the table. The main crate has none.
const CRATES: [(&str, &str); 2] = [("src", ""), ("crates/evaluators/src", "evaluators")];

fn layers() -> LayerTable {
    let document = fs::read_to_string(repository_path("ARCHITECTURE.md")).unwrap();
    let (_, section) = document.split_once("\n## Modules\n").expect("ARCHITECTURE.md has a section `Modules`");
    let rows = section.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with('|'));
    let names = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let layers: LayerTable = rows
        .map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
            let [module, _, uses] = cells[..] else { unreachable!("a row needs three cells: {row}") };
            (names(module).remove(0), names(uses))
        })
        .collect();
    assert!(layers.len() > 20, "{layers:?}");
    layers
}

#[test]
fn layers_modules_use_only_lower_layers() {
    let layers = layers();
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, module) in sources() {
        let user = part(&layers, &module).unwrap_or_else(|| unreachable!("{} is in no layer", file.display()));
        for path in paths_into_the_crate(&fs::read_to_string(&file).unwrap(), &module) {
            let Some(target) = part(&layers, &path) else {
                violations.push(format!("{}: `{path}` is in no layer", file.display()));
                continue;
            };
            if target != user && !layers[user].iter().any(|allowed| allowed == target) {
                violations.push(format!("{}: {user} may not use {target} (`{path}`)", file.display()));
            }
            seen.insert((user.to_owned(), target.to_owned()));
        }
    }
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    let unused: Vec<_> = layers
        .iter()
        .flat_map(|(user, targets)| targets.iter().map(|target| (user.clone(), target.clone())))
        .filter(|pair| !seen.contains(pair))
        .collect();
    assert!(unused.is_empty(), "allowed but not used, so take it out: {unused:?}");
}

#[test]
fn layers_table_has_no_cycles() {
    // The layers that a layer may use never lead back to it.
    fn visit<'a>(layers: &'a LayerTable, part: &'a str, above: &mut Vec<&'a str>) -> Result<(), String> {
        if above.contains(&part) {
            return Err(format!("{above:?} -> {part}"));
        }
        above.push(part);
        for target in &layers[part] {
            visit(layers, target, above)?;
        }
        above.pop();
        Ok(())
    }
    let layers = layers();
    for part in layers.keys() {
        visit(&layers, part, &mut Vec::new()).unwrap();
    }
}

/// The circles of files that import each other: the first file of each, and how many files it has.
const CIRCLES: [(&str, usize); 14] = [
    ("archives::read", 2),
    ("evaluators::onnx::networks::plan", 2),
    ("evaluators::pickle::calls", 2),
    ("evaluators::pickle::dtype", 2),
    ("registry::routes", 2),
    ("runtimes::workers::model", 2),
    ("runtimes::workers::output", 2),
    ("server::connection::table", 2),
    ("server::kafka::assignment", 3),
    ("server::kafka::committer", 6),
    ("settings::arguments", 8),
    ("telemetry::exposition", 2),
    ("types::json::decimal", 2),
    ("types::json::v1", 2),
];

#[test]
fn circles_of_files_are_those_of_the_list() {
    let sources = sources();
    let modules: BTreeSet<&str> = sources.iter().map(|(_, module)| module.as_str()).collect();
    // A front page, such as `mod.rs`, may use its files, which may use it: only other paths count.
    let is_inside = |one: &str, other: &str| one.is_empty() || other.starts_with(&format!("{one}::"));
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, module) in &sources {
        let source = fs::read_to_string(file).unwrap();
        let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for path in paths_into_the_crate(code, module) {
            let mut above = path.as_str();
            while !modules.contains(above) && !above.is_empty() {
                above = above.rsplit_once("::").map_or("", |(above, _)| above);
            }
            let target = modules.get(above).copied().unwrap_or_default();
            if !target.is_empty() && target != module && !is_inside(target, module) && !is_inside(module, target) {
                uses.entry(module).or_default().insert(target);
            }
        }
    }
    let reach = |from: &str| -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut next: Vec<&str> = uses.get(from).into_iter().flatten().copied().collect();
        while let Some(module) = next.pop() {
            if found.insert(module) {
                next.extend(uses.get(module).into_iter().flatten());
            }
        }
        found
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = modules.iter().map(|module| (*module, reach(module))).collect();
    let mut circles: Vec<Vec<&str>> = Vec::new();
    for module in &modules {
        let circle = reached[module].iter().filter(|other| reached[*other].contains(module));
        let circle: Vec<&str> = circle.copied().collect();
        if !circle.is_empty() && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    let found: Vec<(&str, usize)> = circles.iter().map(|circle| (circle[0], circle.len())).collect();
    assert_eq!(found, CIRCLES, "{circles:#?}");
}

/// Returns the layer of a path: the longest that matches.
fn part<'a>(layers: &'a LayerTable, path: &str) -> Option<&'a str> {
    let holds = |part: &&String| path == **part || path.starts_with(&format!("{part}::"));
    layers.keys().filter(holds).max_by_key(|part| part.len()).map(String::as_str)
}

/// Returns the source files and their module paths.
fn sources() -> Vec<(PathBuf, String)> {
    let mut folders = CRATES.map(|(sources, name)| (repository_path(sources), PathBuf::from(name))).to_vec();
    let mut files = Vec::new();
    while let Some((folder, module)) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_owned();
            if path.is_dir() {
                folders.push((path, module.join(name)));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                // The main crate's `lib` has a row of its own.
                let is_front = name == "mod" || (name == "lib" && !module.as_os_str().is_empty());
                let module = if is_front { module.clone() } else { module.join(name) };
                let names: Vec<_> = module.iter().map(|name| name.to_str().unwrap()).collect();
                files.push((path, names.join("::")));
            }
        }
    }
    files.sort();
    files
}

/// Finds every path that starts with `crate::`, `mlserver::` (in the executable) or `super::`, expands groups, and
/// returns paths as in the table.
///
/// Code behind `#[cfg(test)]` counts too: a test module is part of its module, one level further down.
fn paths_into_the_crate(source: &str, module: &str) -> BTreeSet<String> {
    let code = without_comments_and_strings(source);
    let mut found = BTreeSet::new();
    let is_start = |index: usize| {
        let before = code[..index].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
    };
    let first = module.split("::").next();
    let own = CRATES.into_iter().find(|(_, name)| first == Some(name)).map_or("", |(_, name)| name);
    for (prefix, base) in [("crate::", own), ("mlserver::", "")] {
        for (index, _) in code.match_indices(prefix).filter(|(index, _)| is_start(*index)) {
            expand(&code[index + prefix.len()..], base, &mut found);
        }
    }
    let tests = code.find("#[cfg(test)]").unwrap_or(code.len());
    for (index, _) in code.match_indices("super::").filter(|(index, _)| is_start(*index)) {
        // In a test module, the first `super` is the module itself.
        let mut base: Vec<&str> = module.split("::").collect();
        if index > tests {
            base.push("tests");
        }
        let mut rest = &code[index..];
        while let Some(after) = rest.strip_prefix("super::") {
            base.pop();
            rest = after;
        }
        expand(rest, &base.join("::"), &mut found);
    }
    found
}

/// Adds the paths of a use tree, such as `a::{b, c::d}`, below `base`.
fn expand(tree: &str, base: &str, found: &mut BTreeSet<String>) {
    let join = |base: &str, name: &str| if base.is_empty() { name.to_owned() } else { format!("{base}::{name}") };
    let name_end = tree.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(tree.len());
    let (name, rest) = tree.split_at(name_end);
    if name.is_empty() {
        let Some(group) = rest.strip_prefix('{') else { return };
        let mut depth = 0_usize;
        let mut start = 0;
        for (index, character) in group.char_indices() {
            match character {
                '{' => depth += 1,
                '}' | ',' if depth == 0 => {
                    expand(group[start..index].trim(), base, found);
                    start = index + 1;
                    if character == '}' {
                        return;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
        return;
    }
    let path = if name == "self" { base.to_owned() } else { join(base, name) };
    match rest.strip_prefix("::") {
        Some(after) if after.starts_with(|c: char| c.is_alphabetic() || c == '{' || c == '_') => {
            expand(after, &path, found);
        }
        _ if path.is_empty() => {}
        _ => drop(found.insert(path)),
    }
}

/// Blanks comments and strings. Does not support nested block comments, which this repository does not use.
fn without_comments_and_strings(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    for line in source.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("//") {
            continue;
        }
        let mut in_string = false;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '"' => in_string = !in_string,
                '\\' if in_string => drop(characters.next()),
                '\'' if !in_string && characters.peek() == Some(&'"') => drop(characters.next()),
                '/' if !in_string && characters.peek() == Some(&'/') => break,
                other if !in_string => code.push(other),
                _ => {}
            }
        }
        code.push('\n');
    }
    code
}

#[test]
fn layers_finds_paths_in_every_form() {
    let source = r#"
        //! crate::comment
        use crate::types::{self, json::{Read, write}, Tensor};
        use super::{sibling, below::deep};
        pub use super::super::upper;
        fn f() -> crate::ui::Ui { let s = "crate::string"; xcrate::no(); crate::a::b::<T>() }
        #[cfg(test)]
        mod tests {
            use super::Own;
        }
    "#;
    let found = paths_into_the_crate(source, "server::rest::infer");
    let expected = [
        "a::b",
        "server::rest::below::deep",
        "server::rest::infer::Own",
        "server::rest::sibling",
        "server::upper",
        "types",
        "types::Tensor",
        "types::json::Read",
        "types::json::write",
        "ui::Ui",
    ];
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    let found = paths_into_the_crate("use crate::table::Elements;", "evaluators::trees");
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), ["evaluators::table::Elements"]);
}
