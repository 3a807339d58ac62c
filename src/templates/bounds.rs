//! Limits on what a template may take, because Tera has none.
//!
//! Rendering ends within about [`TIME`], and a template may have [`MAX_TEXT`] bytes, a tag [`MAX_TAG`], a value [`MAX_VALUE`]
//! characters or elements, and the result [`MAX_OUTPUT`] bytes. Tera has no hook between two steps, but filters and the output are ours:
//!
//! - [`guard`] appends the filter [`FILTER`] to every expression of `if`, `for` and `set`, and to every printed expression that is more than
//!   a name. The filter checks the clock and the size of the value. All printed text passes through [`Output`], which checks the clock, too.
//!   So nothing but text and the ends of blocks is executed between two checks, and loops that do nothing still evaluate what they loop over.
//! - Between two checks, one expression is evaluated. Tera allows at most 256 terms, of values with checked sizes. The filters that could
//!   multiply sizes (`replace`, `join`, `indent`) are replaced by ones that check the size of their result.
//! - What repeats or collects without such an expression is refused: components, captured blocks, comprehensions, other files.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

use tera::{Error, Kwargs, State, Tera, Value};

/// How long rendering may take. Templates of projects take less than a millisecond.
const TIME: Duration = Duration::from_secs(1);
/// The longest template in bytes.
const MAX_TEXT: usize = 1 << 20;
/// The longest tag in bytes.
const MAX_TAG: usize = 4096;
/// The largest value of an expression: characters of text, elements of lists and maps, and those of their elements.
const MAX_VALUE: usize = 4096;
/// How deeply the lists and maps of a value may be nested.
const MAX_DEPTH: usize = 8;
/// The most `if`, `elif` and `for` inside each other. Each `elif` is an `if` inside the one before it, and Tera recurses.
const MAX_LEVELS: usize = 20;
/// The largest result in bytes.
const MAX_OUTPUT: usize = 16 << 20;
/// The name of the filter that checks limits.
const FILTER: &str = "__limit";
/// Its argument: the variables that `~` joins. Tera takes undefined ones for empty text.
const DEFINED: &str = "defined";

/// Why a template is not rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the template has {found} bytes, more than {MAX_TEXT}")]
    Text { found: usize },
    #[error("line {line}: a tag has more than {MAX_TAG} bytes")]
    Tag { line: usize },
    #[error("line {line}: more than {MAX_LEVELS} `if`, `elif` and `for` are open")]
    Levels { line: usize },
    #[error(
        "line {line}: unsupported tag `{word}`: expected `if`, `for`, `set`, `set_global`, `break`, `continue` or `raw`"
    )]
    Statement { line: usize, word: String },
    #[error("line {line}: unsupported block `{word} {name}`: expected `{word} {name} = VALUE`")]
    Block { line: usize, word: String, name: String },
    #[error("line {line}: unsupported `for` in an expression: use a `for` tag")]
    Comprehension { line: usize },
    #[error("the result has more than {MAX_OUTPUT} bytes")]
    Output,
    #[error("rendering takes longer than {} s", TIME.as_secs())]
    Time,
}

/// The limits of one rendering.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    deadline: Instant,
}

impl Bounds {
    /// Returns limits whose time begins now.
    pub(super) fn new() -> Self {
        Self { deadline: Instant::now() + TIME }
    }

    /// Registers the filters that check them.
    pub(super) fn register(self, tera: &mut Tera) {
        tera.register_filter(FILTER, move |value: Value, arguments: Kwargs, _: &State<'_>| {
            self.check(value, arguments.get::<Value>(DEFINED)?.as_ref())
        });
        tera.register_filter("replace", replace);
        tera.register_filter("join", join);
        tera.register_filter("indent", indent);
    }

    fn in_time(self) -> Result<(), Refusal> {
        if Instant::now() > self.deadline { Err(Refusal::Time) } else { Ok(()) }
    }

    fn check(self, value: Value, joined: Option<&Value>) -> Result<Value, Error> {
        self.in_time().map_err(Error::message)?;
        let undefined =
            joined.and_then(Value::as_map).and_then(|map| map.iter().find(|(_, value)| value.is_undefined()));
        if let Some((name, _)) = undefined {
            return Err(Error::message(format_args!("Variable `{name}` is not defined")));
        }
        if size(&value, MAX_DEPTH).is_none_or(|size| size > MAX_VALUE) {
            return Err(too_large());
        }
        Ok(value)
    }
}

fn too_large() -> Error {
    Error::message(format_args!(
        "a value has more than {MAX_VALUE} characters or elements, or more than {MAX_DEPTH} levels"
    ))
}

/// Returns the characters and elements of a value; elements that are shared count each time. `None` if it is nested more deeply than
/// `depth`. Stops soon after [`MAX_VALUE`].
fn size(value: &Value, depth: usize) -> Option<usize> {
    let add = |sum: usize, value: &Value| {
        if sum > MAX_VALUE { Some(sum) } else { Some(sum + 1 + size(value, depth.checked_sub(1)?)?) }
    };
    if let Some(elements) = value.as_array() {
        return elements.iter().try_fold(0, add);
    }
    if let Some(map) = value.as_map() {
        return map.iter().try_fold(0, |sum, (key, value)| add(sum + key.as_str().map_or(1, str::len), value));
    }
    Some(value.as_str().map_or(1, str::len))
}

/// Tera's filter of the same name.
#[expect(clippy::needless_pass_by_value, reason = "Tera passes them by value")]
fn replace(text: &str, arguments: Kwargs, _: &State<'_>) -> Result<String, Error> {
    let (from, to) = (arguments.must_get::<&str>("from")?, arguments.must_get::<&str>("to")?);
    let added = text.matches(from).count().saturating_mul(to.len());
    if text.len().saturating_add(added) > MAX_VALUE {
        return Err(too_large());
    }
    Ok(text.replace(from, to))
}

/// Tera's filter of the same name.
#[expect(clippy::needless_pass_by_value, reason = "Tera passes them by value")]
fn join(values: &[Value], arguments: Kwargs, _: &State<'_>) -> Result<String, Error> {
    let separator = arguments.get::<&str>("sep")?.unwrap_or_default();
    let mut text = String::new();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text += separator;
        }
        if text.len() > MAX_VALUE || size(value, MAX_DEPTH).is_none_or(|size| size > MAX_VALUE) {
            return Err(too_large());
        }
        write!(text, "{value}").map_err(|error| Error::message(error.to_string()))?;
    }
    Ok(text)
}

/// Tera's filter of the same name.
#[expect(clippy::needless_pass_by_value, reason = "Tera passes them by value")]
fn indent(text: &str, arguments: Kwargs, _: &State<'_>) -> Result<String, Error> {
    let width = arguments.get::<usize>("width")?.unwrap_or(4);
    let character = arguments.get::<&str>("indentation")?.unwrap_or(" ");
    let first = arguments.get::<bool>("first")?.unwrap_or(false);
    let blank = arguments.get::<bool>("blank")?.unwrap_or(false);
    if character.chars().count() != 1 {
        return Err(Error::message("the argument `indentation` must be one character"));
    }
    let lines = text.lines().count();
    if width.saturating_mul(character.len()).saturating_mul(lines).saturating_add(text.len()) > MAX_VALUE {
        return Err(too_large());
    }
    let indentation = character.repeat(width);
    let indented = text.lines().enumerate().map(|(index, line)| {
        let is_indented = if index == 0 { first } else { blank || !line.is_empty() };
        if is_indented { format!("{indentation}{line}") } else { line.to_owned() }
    });
    Ok(indented.collect::<Vec<_>>().join("\n"))
}

/// Collects what a template prints.
#[derive(Debug)]
pub(super) struct Output {
    bounds: Bounds,
    bytes: Vec<u8>,
    refusal: Option<Refusal>,
}

impl Output {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, bytes: Vec::new(), refusal: None }
    }

    /// Returns the text, or why there is none: Tera's error, or the limit that was exceeded.
    pub(super) fn finish(self, result: Result<(), Error>) -> Result<String, Result<Error, Refusal>> {
        if let Some(refusal) = self.refusal {
            return Err(Err(refusal));
        }
        result.map_err(Ok)?;
        String::from_utf8(self.bytes).map_err(|error| Ok(Error::message(error.to_string())))
    }

    fn refuse(&mut self, refusal: Refusal) -> io::Error {
        self.refusal = Some(refusal.clone());
        io::Error::other(refusal)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT {
            return Err(self.refuse(Refusal::Output));
        }
        self.bounds.in_time().map_err(|refusal| self.refuse(refusal))?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A template with checks in its expressions. It has the same lines.
#[derive(Debug)]
pub(super) struct Guarded<'a> {
    pub(super) text: String,
    /// Where each tag ends, and its expression as its author wrote it.
    expressions: Vec<(usize, &'a str)>,
}

impl Guarded<'_> {
    /// Returns the part of the template at a range of bytes; the whole expression instead of the check behind it.
    pub(super) fn part(&self, range: &Range<usize>) -> Option<&str> {
        let part = self.text.get(range.clone())?;
        if !part.starts_with(FILTER) {
            return Some(part);
        }
        self.expressions.iter().find(|(end, _)| *end > range.start).map(|(_, expression)| *expression)
    }
}

/// Returns the template with checks in its expressions.
///
/// What is not a template is left to Tera, which names the mistake.
///
/// # Errors
///
/// Fails if the template uses what has no limits, or exceeds one.
pub(super) fn guard(text: &str) -> Result<Guarded<'_>, Refusal> {
    if text.len() > MAX_TEXT {
        return Err(Refusal::Text { found: text.len() });
    }
    let mut guarded = String::with_capacity(text.len() * 2);
    let mut scanner = Scanner { text, position: 0 };
    let mut expressions = Vec::new();
    let mut levels: Vec<usize> = Vec::new();
    while let Some(piece) = scanner.next_piece() {
        let line = || 1 + text[..scanner.position].matches('\n').count();
        let Piece::Tag { start, content, end, is_statement } = piece else {
            guarded += piece.text();
            continue;
        };
        if content.len() > MAX_TAG {
            return Err(Refusal::Tag { line: line() });
        }
        let checked = if is_statement { statement(content) } else { printed(content) };
        let checked = checked.map_err(|mistake| mistake.at(line()))?;
        match checked.word {
            "if" | "for" => levels.push(1),
            "elif" => levels.last_mut().into_iter().for_each(|level| *level += 1),
            "endif" | "endfor" => drop(levels.pop()),
            _ => {}
        }
        if levels.iter().sum::<usize>() > MAX_LEVELS {
            return Err(Refusal::Levels { line: line() });
        }
        for part in [start, checked.before, &checked.expression, end] {
            guarded += part;
        }
        expressions.push((guarded.len(), content[checked.before.len()..].trim()));
    }
    Ok(Guarded { text: guarded, expressions })
}

/// A tag with a check in its expression.
struct Checked<'a> {
    /// The first word, if it is a statement.
    word: &'a str,
    before: &'a str,
    expression: String,
}

/// What a tag may not have, without its line.
enum Mistake<'a> {
    Statement(&'a str),
    Block(&'a str, &'a str),
    Comprehension,
}

impl Mistake<'_> {
    fn at(self, line: usize) -> Refusal {
        match self {
            Self::Statement(word) => Refusal::Statement { line, word: word.to_owned() },
            Self::Block(word, name) => Refusal::Block { line, word: word.to_owned(), name: name.to_owned() },
            Self::Comprehension => Refusal::Comprehension { line },
        }
    }
}

/// Checks `{{ content }}`.
fn printed(content: &str) -> Result<Checked<'_>, Mistake<'_>> {
    let expression = if is_path(content.trim()) { content.to_owned() } else { checked(content)? };
    Ok(Checked { word: "", before: "", expression })
}

/// Checks `{% content %}`.
fn statement(content: &str) -> Result<Checked<'_>, Mistake<'_>> {
    let text = content.trim_start();
    let name = word(text);
    let rest = &text[name.len()..];
    let unchanged = Checked { word: name, before: content, expression: String::new() };
    let expression = match name {
        "else" | "endif" | "endfor" | "break" | "continue" => return Ok(unchanged),
        "if" | "elif" => rest,
        "set" | "set_global" => {
            let variable = word(rest.trim_start());
            match rest.trim_start()[variable.len()..].trim_start().strip_prefix('=') {
                Some(value) => value,
                None => return Err(Mistake::Block(name, variable)),
            }
        }
        "for" => {
            let mut rest = rest;
            loop {
                let word = word(rest.trim_start());
                rest = &rest.trim_start()[word.len()..];
                match word {
                    "in" => break rest,
                    // Between two names.
                    "" if rest.starts_with(',') => rest = &rest[1..],
                    // Tera names the mistake.
                    "" => return Ok(unchanged),
                    _ => {}
                }
            }
        }
        _ => return Err(Mistake::Statement(if name.is_empty() { content.trim() } else { name })),
    };
    let before = &content[..content.len() - expression.len()];
    Ok(Checked { word: name, before, expression: checked(expression)? })
}

/// Appends the filter to an expression.
fn checked(expression: &str) -> Result<String, Mistake<'_>> {
    let mut depth = 0_usize;
    let mut rest = expression;
    let mut is_complete = !expression.trim().is_empty();
    let mut is_lazy = false;
    let mut joined = BTreeSet::new();
    while let Some(first) = rest.chars().next() {
        let name = word(rest);
        let length = if name.is_empty() { string(rest).unwrap_or(first.len_utf8()) } else { name.len() };
        match first {
            '(' => depth += 1,
            // Otherwise, the filter would only apply to the end.
            ')' if depth == 0 => is_complete = false,
            ')' => depth -= 1,
            '~' => {
                let before = &expression[..expression.len() - rest.len()];
                joined.extend(path_at_end(before).into_iter().chain(path_at_start(&rest[1..])));
            }
            _ if name == "for" => return Err(Mistake::Comprehension),
            _ if ["if", "and", "or"].contains(&name) => is_lazy = true,
            _ => {}
        }
        rest = &rest[length..];
    }
    // Tera refuses what is not an expression.
    if !is_complete || depth > 0 {
        return Ok(expression.to_owned());
    }
    let end = expression.trim_end();
    let mut arguments = String::new();
    // In the others, it depends on values which variables are used.
    if !is_lazy && !joined.is_empty() {
        let names: Vec<_> = joined.iter().map(|path| format!("\"{path}\": {path}")).collect();
        arguments = format!("({DEFINED}={{{}}})", names.join(", "));
    }
    Ok(format!(" ({}) | {FILTER}{arguments}{}", end.trim_start_matches(' '), &expression[end.len()..]))
}

/// Returns the variable that begins an operand, unless it is only part of it.
fn path_at_start(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find(|c: char| !is_of_path(c)).unwrap_or(text.len());
    let is_whole = !text[end..].trim_start().starts_with(['(', '[', '|', '?']);
    Some(&text[..end]).filter(|path| is_whole && is_path(path))
}

/// Returns the variable that ends an operand, unless it is the name of a filter or test, or part of the operand.
fn path_at_end(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let start =
        text.rfind(|c: char| !is_of_path(c)).map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8));
    let before = text[..start].trim_end();
    let is_whole = !before.ends_with(['|', '?', ']', ')', '"', '\'', '`'])
        && !before.ends_with(" is")
        && !before.ends_with(" not");
    Some(&text[start..]).filter(|path| is_whole && is_path(path))
}

fn is_of_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

/// Reports whether a text is the name of a variable, or of one of its fields.
fn is_path(text: &str) -> bool {
    text.split('.').all(|name| !name.is_empty() && word(name) == name)
}

/// Returns the name at the start of a text, or "".
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) { "" } else { &text[..end] }
}

/// Returns the length of the string at the start of a text.
fn string(text: &str) -> Option<usize> {
    let quote = *text.as_bytes().first().filter(|byte| b"'\"`".contains(byte))?;
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let is_end = byte == quote && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    Some(end.map_or(text.len(), |end| end + 2))
}

/// A part of a template.
enum Piece<'a> {
    /// Text, a comment, a raw block, or an incomplete tag.
    Text(&'a str),
    Tag {
        /// The delimiter, with the sign that removes white space.
        start: &'a str,
        content: &'a str,
        end: &'a str,
        /// Whether it is `{% … %}`, not `{{ … }}`.
        is_statement: bool,
    },
}

impl<'a> Piece<'a> {
    fn text(&self) -> &'a str {
        match self {
            Self::Text(text) | Self::Tag { content: text, .. } => text,
        }
    }
}

impl fmt::Debug for Piece<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

/// Splits a template as Tera's lexer does.
struct Scanner<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Scanner<'a> {
    fn next_piece(&mut self) -> Option<Piece<'a>> {
        let rest = &self.text[self.position..];
        let is_start = |&(at, _): &(usize, &str)| matches!(rest.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#'));
        let start = rest.match_indices('{').find(is_start).map_or(rest.len(), |(at, _)| at);
        if start > 0 {
            return Some(Piece::Text(self.take(start)));
        }
        if rest.is_empty() {
            return None;
        }
        let opening = if rest[2..].starts_with('-') { 3 } else { 2 };
        if rest.starts_with("{#") {
            let end = rest[opening..].find("#}").map_or(rest.len(), |end| opening + end + 2);
            return Some(Piece::Text(self.take(end)));
        }
        let is_statement = rest.starts_with("{%");
        if is_statement && let Some(length) = raw(&rest[opening..]) {
            return Some(Piece::Text(self.take(opening + length)));
        }
        let Some((content, end)) = tag(&rest[opening..], if is_statement { "%}" } else { "}}" }) else {
            return Some(Piece::Text(self.take(rest.len())));
        };
        self.take(opening + content + end);
        Some(Piece::Tag {
            start: &rest[..opening],
            content: &rest[opening..opening + content],
            end: &rest[opening + content..opening + content + end],
            is_statement,
        })
    }

    fn take(&mut self, length: usize) -> &'a str {
        let start = self.position;
        self.position += length;
        &self.text[start..self.position]
    }
}

/// Returns the lengths of a tag's content and of its end.
fn tag(text: &str, closing: &str) -> Option<(usize, usize)> {
    let mut position = 0;
    while let Some(first) = text[position..].chars().next() {
        let rest = &text[position..];
        if rest.starts_with(closing) {
            return Some((position, closing.len()));
        }
        if first == '-' && rest[1..].starts_with(closing) {
            return Some((position, closing.len() + 1));
        }
        position += string(rest).unwrap_or(first.len_utf8());
    }
    None
}

/// Returns the length of a raw block behind its first delimiter, or the rest of the text if it does not end.
fn raw(text: &str) -> Option<usize> {
    let mut position = only(text, "raw")?;
    while let Some(start) = text[position..].find("{%") {
        position += start + 2;
        if let Some(end) = only(&text[position..], "endraw") {
            return Some(position + end);
        }
    }
    Some(text.len())
}

/// Returns the length of a tag behind its delimiter if it consists of `name`.
fn only(text: &str, name: &str) -> Option<usize> {
    let blank = |c: char| c.is_ascii_whitespace();
    let rest = text.strip_prefix('-').unwrap_or(text).trim_start_matches(blank).strip_prefix(name)?;
    let rest = rest.trim_start_matches(blank);
    let rest = rest.strip_prefix('-').unwrap_or(rest).strip_prefix("%}")?;
    Some(text.len() - rest.len())
}
