//! Splits texts into terms, as scikit-learn's vectorizers do.

use std::collections::HashSet;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{canonical_combining_class, is_combining_mark};

use crate::pickle::PickleValue;
use crate::sklearn::error::LoadError;
use crate::sklearn::fitted::FittedObject;

/// The stop words of `stop_words="english"`.
const ENGLISH: &str = include_str!("stop_words.txt");

/// Splits a text into terms.
#[derive(Debug)]
pub(super) struct Analyzer {
    lowercase: bool,
    accents: Accents,
    unit: Unit,
    least: usize,
    most: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accents {
    Keep,
    Ascii,
    Unicode,
}

/// The units that terms consist of.
#[derive(Debug)]
enum Unit {
    Word {
        pattern: Pattern,
        stop: HashSet<String>,
    },
    Character,
    /// Characters within one word at a time.
    CharacterInWord,
}

/// The token pattern of words.
#[derive(Debug, Clone, Copy)]
enum Pattern {
    /// At least this many letters, digits and underscores.
    Letters(usize),
    /// At least this many characters other than white space.
    Visible(usize),
}

impl Analyzer {
    pub(super) fn read(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        for function in ["preprocessor", "tokenizer"] {
            if fitted.get(function).is_some() {
                return Err(fitted.unsupported(function));
            }
        }
        if fitted.text("input")? != "content" {
            return Err(fitted.unsupported("input"));
        }
        let accents = match fitted.text_if("strip_accents") {
            None if fitted.get("strip_accents").is_none() => Accents::Keep,
            Some("ascii") => Accents::Ascii,
            Some("unicode") => Accents::Unicode,
            _ => return Err(fitted.unsupported("strip_accents")),
        };
        let unit = match fitted.text_if("analyzer") {
            Some("word") => Unit::Word { pattern: Pattern::read(fitted)?, stop: stop_words(fitted)? },
            Some("char") => Unit::Character,
            Some("char_wb") => Unit::CharacterInWord,
            _ => return Err(fitted.unsupported("analyzer")),
        };
        let range = fitted.items("ngram_range")?;
        let size = |place: usize| {
            let size = range.get(place).and_then(|size| size.as_i64()).and_then(|size| usize::try_from(size).ok());
            size.filter(|&size| size > 0).ok_or_else(|| fitted.unsupported("ngram_range"))
        };
        let (least, most) = (size(0)?, size(1)?);
        Ok(Self { lowercase: fitted.flag("lowercase")?, accents, unit, least, most })
    }

    /// Calls `visit` with each term of a text, once for each occurrence.
    pub(super) fn terms(&self, text: &str, mut visit: impl FnMut(&str)) {
        let lower;
        let mut text = text;
        if self.lowercase {
            lower = text.to_lowercase();
            text = &lower;
        }
        let stripped;
        if !text.is_ascii() && self.accents != Accents::Keep {
            stripped = match self.accents {
                Accents::Ascii => text.nfkd().filter(char::is_ascii).collect::<String>(),
                _ => text.nfkd().filter(|&c| canonical_combining_class(c) == 0).collect(),
            };
            text = &stripped;
        }
        match &self.unit {
            Unit::Word { pattern, stop } => {
                let words: Vec<&str> = pattern.words(text).filter(|word| !stop.contains(*word)).collect();
                self.word_terms(&words, &mut visit);
            }
            Unit::Character => self.character_terms(&collapse(text), &mut visit),
            Unit::CharacterInWord => self.terms_in_words(text, &mut visit),
        }
    }

    fn word_terms(&self, words: &[&str], visit: &mut impl FnMut(&str)) {
        for size in self.least..=self.most.min(words.len()) {
            if size == 1 {
                for word in words {
                    visit(word);
                }
                continue;
            }
            for window in words.windows(size) {
                visit(&window.join(" "));
            }
        }
    }

    fn character_terms(&self, text: &str, visit: &mut impl FnMut(&str)) {
        let starts = starts(text);
        let count = starts.len() - 1;
        for size in self.least..=self.most.min(count) {
            for start in 0..=count - size {
                visit(&text[starts[start]..starts[start + size]]);
            }
        }
    }

    fn terms_in_words(&self, text: &str, visit: &mut impl FnMut(&str)) {
        for word in text.split(is_space).filter(|word| !word.is_empty()) {
            let word = format!(" {word} ");
            let starts = starts(&word);
            let count = starts.len() - 1;
            for size in self.least..=self.most {
                // A word that is too short counts once.
                visit(&word[..starts[size.min(count)]]);
                for start in 1..=count.saturating_sub(size) {
                    visit(&word[starts[start]..starts[start + size]]);
                }
                if count <= size {
                    break;
                }
            }
        }
    }
}

/// Returns where each character starts, and where the text ends.
fn starts(text: &str) -> Vec<usize> {
    text.char_indices().map(|(start, _)| start).chain([text.len()]).collect()
}

/// Replaces runs of two or more white-space characters with one space.
fn collapse(text: &str) -> String {
    let mut collapsed = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if is_space(character) && characters.peek().is_some_and(|&next| is_space(next)) {
            while characters.peek().is_some_and(|&next| is_space(next)) {
                characters.next();
            }
            collapsed.push(' ');
        } else {
            collapsed.push(character);
        }
    }
    collapsed
}

/// Returns whether Python's `\s` and `str.split` treat a character as white space.
fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// Returns whether Python's `\w` matches a character: letters, everything numeric and the underscore, but neither marks
/// nor circled letters.
fn is_word(character: char) -> bool {
    let circled = matches!(
        character,
        '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f149}' | '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}'
    );
    character == '_' || character.is_alphanumeric() && !is_combining_mark(character) && !circled
}

impl Pattern {
    fn read(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let pattern = fitted.text_if("token_pattern").unwrap_or_default();
        // These patterns are a class of characters and a length; any other would need a regex engine.
        match pattern.trim_start_matches("(?u)") {
            r"\b\w\w+\b" | r"\w\w+" | r"\b\w{2,}\b" | r"\w{2,}" => Ok(Self::Letters(2)),
            r"\b\w+\b" | r"\w+" => Ok(Self::Letters(1)),
            r"\b\w\w\w+\b" | r"\w\w\w+" | r"\b\w{3,}\b" | r"\w{3,}" => Ok(Self::Letters(3)),
            r"\S+" | r"[^\s]+" => Ok(Self::Visible(1)),
            _ => Err(fitted.unsupported("token_pattern")),
        }
    }

    fn words(self, text: &str) -> impl Iterator<Item = &str> {
        let (inside, least): (fn(char) -> bool, _) = match self {
            Self::Letters(least) => (is_word, least),
            Self::Visible(least) => (|character| !is_space(character), least),
        };
        text.split(move |character| !inside(character)).filter(move |word| word.chars().nth(least - 1).is_some())
    }
}

fn stop_words(fitted: &FittedObject<'_>) -> Result<HashSet<String>, LoadError> {
    let Some(words) = fitted.get("stop_words") else { return Ok(HashSet::new()) };
    if let Some(name) = words.as_str() {
        return match name {
            "english" => Ok(ENGLISH.lines().map(str::to_owned).collect()),
            _ => Err(fitted.unsupported("stop_words")),
        };
    }
    let wanted = || fitted.unexpected("stop_words", "words");
    let items = words.items().ok_or_else(wanted)?;
    fitted.spend(items.len())?;
    items.into_iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(wanted)
}

/// Reads the columns of all terms of a vocabulary.
pub(super) fn vocabulary(fitted: &FittedObject<'_>) -> Result<std::collections::HashMap<Box<str>, u32>, LoadError> {
    let wanted = || fitted.unexpected("vocabulary_", "a dict of terms and columns");
    let entries = fitted.require("vocabulary_")?.entries().ok_or_else(wanted)?;
    fitted.spend(entries.len().saturating_mul(4))?;
    let count = entries.len();
    let entry = |(term, column): (PickleValue<'_>, PickleValue<'_>)| {
        let column = column.as_i64().and_then(|column| u32::try_from(column).ok());
        Some((term.as_str()?.into(), column.filter(|&column| (column as usize) < count)?))
    };
    entries.into_iter().map(entry).collect::<Option<_>>().ok_or_else(wanted)
}

/// Returns the 32-bit `MurmurHash3` of a text as a signed number.
pub(super) fn murmur(text: &str) -> i32 {
    let bytes = text.as_bytes();
    let mix = |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = 0_u32;
    let blocks = bytes.chunks_exact(4);
    let rest = blocks.remainder();
    for block in blocks {
        let block = block.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        hash = (hash ^ mix(block)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !rest.is_empty() {
        hash ^= mix(rest.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte)));
    }
    // Only the lowest 32 bits of the length count.
    #[expect(clippy::cast_possible_truncation, reason = "as in the original")]
    let length = bytes.len() as u32;
    hash ^= length;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    (hash ^ hash >> 16).cast_signed()
}
