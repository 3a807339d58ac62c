//! The vocabulary of `CONTRIBUTING.md`: the terms that it replaces occur in no file of the repository.

use std::fs;
use std::process::Command;

use crate::support::{repository_path, skipped};

/// Files that may contain the replaced terms: facts of other projects, and the history of this one.
const EXCLUDED: [&str; 4] =
    ["CHANGELOG.md", "Cargo.lock", "proto/", "crates/evaluators/src/sklearn/feature_extraction/stop_words.txt"];

/// A term that must not be used, and the one to use instead.
#[derive(Debug, PartialEq)]
struct ReplacedTerm {
    words: Vec<String>,
    /// Whether the term is an identifier, so that the same words in a sentence are fine.
    is_identifier: bool,
    preferred: String,
}

/// A word of a text: a part of an identifier counts as a word.
#[derive(Debug, PartialEq)]
struct Word<'a> {
    text: &'a str,
    line: usize,
    /// The text between the previous word and this one.
    gap: &'a str,
}

/// Returns the section's first and last byte: from its heading up to the next one.
fn vocabulary_section(contributing: &str) -> std::ops::Range<usize> {
    let start = contributing.find("## Vocabulary\n").expect("CONTRIBUTING.md has a vocabulary");
    let end = contributing[start + 1..].find("\n## ").map_or(contributing.len(), |end| start + 1 + end);
    start..end
}

/// Returns the texts in backticks that are words or identifiers, and not paths.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let is_term = |term: &&str| term.chars().all(|c| c.is_ascii_alphabetic() || c == ' ' || c == '_');
    text.split('`').skip(1).step_by(2).filter(is_term)
}

/// Reads the last column of the section's table, and the paragraphs below the table.
fn replaced_terms(section: &str) -> Vec<ReplacedTerm> {
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let columns = rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    let below = section.rsplit_once("|\n").map_or("", |(_, below)| below);
    let in_table = columns.flat_map(|columns| {
        let preferred = (*columns.first().unwrap()).to_owned();
        quoted(columns.last().unwrap()).map(move |term| (term, preferred.clone())).collect::<Vec<_>>()
    });
    let in_paragraph = quoted(below).map(|term| (term, "a plainer wording".to_owned()));
    in_table
        .chain(in_paragraph)
        .map(|(term, preferred)| {
            let words = words(term).into_iter().map(|word| word.text.to_lowercase()).collect();
            ReplacedTerm { words, is_identifier: term.contains('_'), preferred }
        })
        .collect()
}

/// Takes a text apart into words, and `snake_case` and `CamelCase` into theirs.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let (mut line, mut end_of_last, mut start) = (1, 0, None);
    let characters: Vec<(usize, char)> = text.char_indices().collect();
    for (position, &(at, c)) in characters.iter().enumerate() {
        let next = characters.get(position + 1).map(|(_, next)| *next);
        if c == '\n' {
            line += 1;
        }
        if !c.is_alphanumeric() {
            continue;
        }
        let start_of_word = *start.get_or_insert(at);
        let ends = match next {
            None => true,
            Some(next) if !next.is_alphanumeric() => true,
            Some(next) if c.is_lowercase() && next.is_uppercase() => true,
            // The last capital of `HTTPServer` begins the next word.
            Some(next) => {
                let after = characters.get(position + 2).map(|(_, after)| *after);
                c.is_uppercase() && next.is_uppercase() && after.is_some_and(char::is_lowercase)
            }
        };
        if ends {
            let end = at + c.len_utf8();
            words.push(Word { text: &text[start_of_word..end], line, gap: &text[end_of_last..start_of_word] });
            (end_of_last, start) = (end, None);
        }
    }
    words
}

/// Returns the line of every use of a term.
fn uses(words: &[Word<'_>], term: &ReplacedTerm) -> Vec<usize> {
    let is_blank = |c: char| c.is_whitespace() || matches!(c, '/' | '!' | '#' | '*' | '>' | '-' | '_');
    let joins = |gap: &str| if term.is_identifier { gap.is_empty() || gap == "_" } else { gap.chars().all(is_blank) };
    let is_use = |found: &&[Word<'_>]| {
        found.iter().zip(&term.words).all(|(word, wanted)| word.text.to_lowercase() == *wanted)
            && found[1..].iter().all(|word| joins(word.gap))
    };
    words.windows(term.words.len()).filter(is_use).map(|found| found[0].line).collect()
}

/// Returns the repository's files that are to be read, or `None` without git.
fn files() -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(repository_path("."));
    let listed = git.output().ok().filter(|output| output.status.success());
    let Some(listed) = listed else {
        assert!(std::env::vars_os().all(|(name, _)| name != "CI"), "CI needs git");
        skipped("git does not list the repository's files");
        return None;
    };
    let text = String::from_utf8(listed.stdout).unwrap();
    let is_read = |path: &&str| {
        let is_excluded = EXCLUDED.iter().any(|excluded| path.starts_with(excluded));
        !path.is_empty() && !is_excluded && !path.split('/').any(|folder| folder == "goldens")
    };
    Some(text.split('\0').filter(is_read).map(str::to_owned).collect())
}

#[test]
fn vocabulary_replaced_terms_occur_nowhere() {
    let contributing = fs::read_to_string(repository_path("CONTRIBUTING.md")).unwrap();
    let section = vocabulary_section(&contributing);
    let terms = replaced_terms(&contributing[section.clone()]);
    assert!(terms.len() > 20, "{terms:?}");
    let mut found = Vec::new();
    for path in files().unwrap_or_default() {
        // Binary files, and files that have been deleted but not yet committed, have no text.
        let Ok(mut text) = fs::read_to_string(repository_path(&path)) else { continue };
        if path == "CONTRIBUTING.md" {
            let blank: String = text[section.clone()].matches('\n').collect();
            text.replace_range(section.clone(), &blank);
        }
        let words = words(&text);
        for term in &terms {
            for line in uses(&words, term) {
                found.push(format!("{path}:{line}: `{}`: use {}", term.words.join(" "), term.preferred));
            }
        }
    }
    assert!(found.is_empty(), "{} replaced terms:\n{}", found.len(), found.join("\n"));
}

#[test]
fn vocabulary_table_and_paragraph_are_read() {
    let document = "# A\n\n## Vocabulary\n\nAs `Example`.\n\n| term | meaning | instead of |\n|---|---|---|\n\
                    | new, newer | `not this` | `old`, `very old` |\n| best | it | `was_good` |\n\n\
                    To avoid: `odd`.\n`tests/a.rs` reads it.\n\n## Next\n`no`\n";
    let terms = replaced_terms(&document[vocabulary_section(document)]);
    let shown: Vec<_> =
        terms.iter().map(|term| (term.words.join(" "), term.is_identifier, term.preferred.as_str())).collect();
    let expected = [
        ("old", false, "new, newer"),
        ("very old", false, "new, newer"),
        ("was good", true, "best"),
        ("odd", false, "a plainer wording"),
    ];
    assert_eq!(shown, expected.map(|(term, is_identifier, preferred)| (term.to_owned(), is_identifier, preferred)));
}

#[test]
fn vocabulary_finds_words_identifiers_and_line_breaks() {
    let term = |text: &str| ReplacedTerm {
        words: words(text).iter().map(|word| word.text.to_owned()).collect(),
        is_identifier: text.contains('_'),
        preferred: String::new(),
    };
    let lines = |text: &str, wanted: &str| uses(&words(text), &term(wanted));
    assert_eq!(lines("Old\nolder OLD_one\nisOld HTTPOld bold", "old"), [1, 2, 3, 3]);
    assert_eq!(lines("/// very\n    /// old. VeryOld very_old very, old", "very old"), [1, 2, 2]);
    assert_eq!(lines("was good wasGood was_good", "was_good"), [1, 1]);
}
