//! Conditions: GJSON paths, which match if they exist in a JSON document.
//!
//! Supported are keys with wildcards and escapes, indexes, `#`, queries, `|`, `@this`, and multipaths (`[a,b]`, `{a,b}`) at the start of a
//! path. All other paths are errors. The document is walked as text: no tree of values is built, and no part of it is visited more
//! than once per component of the path and per selector of a multipath.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::ControlFlow;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The maximum length of a path, in bytes.
const MAX_PATH: usize = 1024;
/// The maximum depth of queries and multipaths inside of each other.
const MAX_NESTED: usize = 8;
/// The maximum number of selectors in the multipaths of a path. A path may repeat the document once for each selector of each multipath.
const MAX_SELECTORS: usize = 8;

/// A condition.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    text: String,
    path: Vec<PathPart>,
}

/// Why a path is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConditionError {
    #[error("invalid GJSON path: {0}")]
    Malformed(&'static str),
    #[error("{0} of GJSON are not supported")]
    Unsupported(&'static str),
    #[error(
        "the path has more than {MAX_PATH} bytes, more than {MAX_SELECTORS} selectors in multipaths, or queries nested deeper than \
         {MAX_NESTED}"
    )]
    TooLong,
}

const EMPTY_COMPONENT: ConditionError = ConditionError::Malformed("a component is empty");
const UNCLOSED: ConditionError = ConditionError::Malformed("a bracket or a quote is not closed");
const AFTER_BRACKET: ConditionError =
    ConditionError::Malformed("expected `.`, `|` or the end after `#` or a closing bracket");
const LAST_ESCAPE: ConditionError = ConditionError::Malformed("nothing follows a `\\`");

/// A component of a path.
#[derive(Debug, Clone)]
struct PathPart {
    /// Whether the component follows a `|`, and so is applied to the result of those before it.
    is_piped: bool,
    kind: PathPartKind,
}

#[derive(Debug, Clone)]
enum PathPartKind {
    Key(Pattern),
    /// `#`: each element, or the number of elements.
    Elements,
    /// `#(...)`, or `#(...)#` for all matches.
    Query {
        path: Vec<PathPart>,
        comparison: Option<Comparison>,
        all: bool,
    },
    /// `@this`
    This,
    /// `[a,b]`: an array of the values that exist.
    Array(Vec<Vec<PathPart>>),
    /// `{a,b}`: an object of the values that exist.
    Object(Vec<(String, Vec<PathPart>)>),
}

/// The right side of a query.
#[derive(Debug, Clone)]
struct Comparison {
    operator: Operator,
    operand: Operand,
}

#[derive(Debug, Clone)]
enum Operand {
    Text {
        text: String,
        /// The number that a number is compared with.
        number: f64,
        /// The pattern of `%` and `!%`.
        pattern: Pattern,
    },
    /// `~true` and the like. The value is first converted to whether it is like that.
    Like(Likeness),
}

/// What a value is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Likeness {
    True,
    False,
    Null,
    Existing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Like,
    NotLike,
}

/// The operators, longer ones before their prefixes.
const OPERATORS: [(&str, Operator); 9] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("!%", Operator::NotLike),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("%", Operator::Like),
];

/// A text with wildcards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Pattern {
    items: Vec<PatternItem>,
    has_escapes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternItem {
    Char(char),
    /// `?`
    One,
    /// `*`
    Many,
}

/// A value of the document, or a result made of several.
#[derive(Debug, Clone)]
enum Json<'a> {
    Text(&'a str),
    List(Vec<Self>),
    Object(Vec<(&'a str, Self)>),
    Number(usize),
}

impl Condition {
    /// Parses a path.
    ///
    /// # Errors
    ///
    /// Fails if the path is too long, is malformed, or uses parts of GJSON that are not supported.
    pub(super) fn parse(text: &str) -> Result<Self, ConditionError> {
        if text.len() > MAX_PATH {
            return Err(ConditionError::TooLong);
        }
        let path = PathParser { selectors: 0 }.path(text, 0)?;
        Ok(Self { text: text.to_owned(), path })
    }

    /// Returns whether the path exists in a document, which must be valid JSON.
    pub(super) fn matches(&self, document: &str) -> bool {
        get(Json::Text(document.trim()), &self.path).is_some()
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads a path.
struct PathParser {
    /// The number of selectors so far.
    selectors: usize,
}

impl PathParser {
    /// Reads a path inside of as many queries and multipaths as `depth`.
    fn path(&mut self, text: &str, depth: usize) -> Result<Vec<PathPart>, ConditionError> {
        if depth > MAX_NESTED {
            return Err(ConditionError::TooLong);
        }
        let mut parts: Vec<PathPart> = Vec::new();
        let mut rest = text;
        let mut is_piped = false;
        loop {
            let (kind, after) = self.part(rest, parts.is_empty(), depth)?;
            if matches!(kind, PathPartKind::This) && !parts.is_empty() && !is_piped {
                return Err(ConditionError::Unsupported("`@this` after a `.`"));
            }
            let consumed = &rest[..rest.len() - after.len()];
            if matches!(kind, PathPartKind::Query { .. }) && consumed.contains('|') && parts.iter().any(is_of_several) {
                return Err(ConditionError::Unsupported("`|` in queries after `#`, other queries or wildcards"));
            }
            parts.push(PathPart { is_piped, kind });
            let mut left = after.chars();
            match left.next() {
                None => return Ok(parts),
                Some('.') => is_piped = false,
                Some('|') => is_piped = true,
                Some(_) => return Err(AFTER_BRACKET),
            }
            if is_piped {
                check_pipe(&parts)?;
            }
            rest = left.as_str();
        }
    }

    /// Reads a component, and returns the text after it.
    fn part<'a>(
        &mut self,
        text: &'a str,
        is_first: bool,
        depth: usize,
    ) -> Result<(PathPartKind, &'a str), ConditionError> {
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(['.', '|']);
        if let Some(rest) = text.strip_prefix("@this").filter(|rest| ends(rest)) {
            return Ok((PathPartKind::This, rest));
        }
        match text.as_bytes().first() {
            None | Some(b'.' | b'|') => return Err(EMPTY_COMPONENT),
            Some(b'@') => return Err(ConditionError::Unsupported("modifiers other than `@this`")),
            Some(b'[' | b'{') if is_first => return self.multipath(text, depth),
            Some(b'[' | b'{') => return Err(ConditionError::Unsupported("multipaths after the start of a path")),
            Some(b'!') => return Err(ConditionError::Unsupported("literals")),
            _ => {}
        }
        if let Some(rest) = text.strip_prefix("#(") {
            let end = outside(rest, |c| c == ')').ok_or(UNCLOSED)?;
            let (query, rest) = (&rest[..end], &rest[end + 1..]);
            let (all, rest) = rest.strip_prefix('#').map_or((false, rest), |rest| (true, rest));
            return Ok((self.query(query, all, depth)?, rest));
        }
        if let Some(rest) = text.strip_prefix('#') {
            return if ends(rest) { Ok((PathPartKind::Elements, rest)) } else { Err(AFTER_BRACKET) };
        }
        let end = unescaped(text, |c| c == '.' || c == '|').unwrap_or(text.len());
        Ok((PathPartKind::Key(Pattern::key(&text[..end])?), &text[end..]))
    }

    fn query(&mut self, text: &str, all: bool, depth: usize) -> Result<PathPartKind, ConditionError> {
        let (path, comparison) = match outside(text, |c| "!=<>%".contains(c)) {
            Some(start) => {
                let found = OPERATORS.iter().find(|(name, _)| text[start..].starts_with(name));
                let Some((name, operator)) = found else {
                    return Err(ConditionError::Malformed("expected `!=` or `!%` instead of `!`"));
                };
                let operand = Operand::parse(trimmed(&text[start + name.len()..]), *operator)?;
                (&text[..start], Some(Comparison { operator: *operator, operand }))
            }
            None => (text, None),
        };
        let path = trimmed(path);
        if path.is_empty() && comparison.is_none() {
            return Err(ConditionError::Malformed("a query is empty"));
        }
        let path = if path.is_empty() { Vec::new() } else { self.path(path, depth + 1)? };
        Ok(PathPartKind::Query { path, comparison, all })
    }

    /// Reads `[a,b]` or `{a,"name":b}`, and returns the text after it.
    fn multipath<'a>(&mut self, text: &'a str, depth: usize) -> Result<(PathPartKind, &'a str), ConditionError> {
        let is_object = text.starts_with('{');
        let mut rest = &text[1..];
        let mut selectors = Vec::new();
        loop {
            self.selectors += 1;
            if self.selectors > MAX_SELECTORS {
                return Err(ConditionError::TooLong);
            }
            let end = outside_of_all(rest, |c| ",)]}".contains(c)).ok_or(UNCLOSED)?;
            let selector = &rest[..end];
            let colon = outside_of_all(selector, |c| c == ':');
            let is_of_modifier = |colon: usize| [".@", "|@"].iter().any(|start| selector[..colon].contains(start));
            if colon.is_some_and(is_of_modifier) {
                return Err(ConditionError::Unsupported("modifiers other than `@this`"));
            }
            let (name, path) = match colon {
                Some(colon) => (Some(&selector[..colon]), &selector[colon + 1..]),
                None => (None, selector),
            };
            let name = match name {
                None => name_of_last(path).to_owned(),
                Some(name) if name.starts_with('"') => {
                    let text =
                        parse_text(name).ok_or(ConditionError::Malformed("the name of a selector is invalid"))?;
                    text.into_owned()
                }
                Some("") => return Err(ConditionError::Malformed("the name of a selector is empty")),
                Some(name) => name.to_owned(),
            };
            selectors.push((name, self.path(path, depth + 1)?));
            let after = &rest[end + 1..];
            match rest.as_bytes()[end] {
                b',' => rest = after,
                b'}' if is_object => return Ok((PathPartKind::Object(selectors), after)),
                b']' if !is_object => {
                    return Ok((PathPartKind::Array(selectors.into_iter().map(|(_, path)| path).collect()), after));
                }
                _ => return Err(UNCLOSED),
            }
        }
    }
}

/// Returns whether the components after this one may be applied to several values.
fn is_of_several(part: &PathPart) -> bool {
    is_of_elements(part) || matches!(&part.kind, PathPartKind::Key(pattern) if pattern.is_wild())
}

fn is_of_elements(part: &PathPart) -> bool {
    matches!(part.kind, PathPartKind::Elements | PathPartKind::Query { .. })
}

/// Checks that a `|` after these components is applied to the result of all of them. GJSON does not see some of those that follow
/// the elements of an array.
fn check_pipe(parts: &[PathPart]) -> Result<(), ConditionError> {
    let start = parts.iter().rposition(|part| part.is_piped).unwrap_or_default();
    let (last, before) = parts[start..].split_last().expect("a `|` follows a component");
    let of_all = |part: &PathPart| matches!(part.kind, PathPartKind::Query { all: true, .. });
    let is_hidden = matches!(last.kind, PathPartKind::Elements) && before.iter().any(is_of_elements);
    if is_hidden || before.iter().any(of_all) {
        return Err(ConditionError::Unsupported("`|` after `#.…#` and after `#(…)#.…`"));
    }
    Ok(())
}

/// Returns the name that a selector without a name has in an object.
fn name_of_last(path: &str) -> &str {
    let is_separator = |&(index, c): &(usize, char)| matches!(c, '.' | '|') && !path[..index].ends_with('\\');
    let start = path.char_indices().rev().find(is_separator).map_or(0, |(index, _)| index + 1);
    let name = &path[start..];
    let is_simple = !name.chars().any(|c| c < ' ' || "[]{}()#|!".contains(c));
    if is_simple { name } else { "_" }
}

/// Returns the position of the first character that is not escaped and fulfills the condition.
fn unescaped(text: &str, condition: impl Fn(char) -> bool) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(index, c)| {
        let is_found = !is_escaped && condition(c);
        is_escaped = !is_escaped && c == '\\';
        is_found.then_some(index)
    })
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ')
}

/// Returns the first position in a query outside of quotes and brackets whose character fulfills the condition.
fn outside(text: &str, stop: impl Fn(char) -> bool) -> Option<usize> {
    outside_of(text, "([", ")]", stop)
}

/// Returns the first position in a multipath outside of quotes and brackets whose character fulfills the condition.
fn outside_of_all(text: &str, stop: impl Fn(char) -> bool) -> Option<usize> {
    outside_of(text, "([{", ")]}", stop)
}

fn outside_of(text: &str, open: &str, close: &str, stop: impl Fn(char) -> bool) -> Option<usize> {
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for (index, c) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        if !is_quoted && depth == 0 && stop(c) {
            return Some(index);
        }
        match c {
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            c if !is_quoted && open.contains(c) => depth += 1,
            c if !is_quoted && close.contains(c) => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

impl Operand {
    /// Parses the right side of a comparison: a quoted string, or any other text.
    fn parse(text: &str, operator: Operator) -> Result<Self, ConditionError> {
        if let Some(name) = text.strip_prefix('~') {
            let likeness = match name {
                "true" => Likeness::True,
                "false" => Likeness::False,
                "null" => Likeness::Null,
                "*" => Likeness::Existing,
                _ => return Err(ConditionError::Malformed("expected `~true`, `~false`, `~null` or `~*`")),
            };
            return Ok(Self::Like(likeness));
        }
        if text.is_empty() {
            return Err(ConditionError::Malformed("a comparison has no right side"));
        }
        let text = if text.starts_with('"') {
            let invalid = ConditionError::Malformed("the text in quotes is not a JSON string");
            parse_text(text).ok_or(invalid)?.into_owned()
        } else {
            text.to_owned()
        };
        if text.starts_with('~') {
            return Err(ConditionError::Unsupported("texts in quotes that begin with `~`"));
        }
        let unsigned = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
        if unsigned.starts_with("0x") && unsigned.contains('p') {
            return Err(ConditionError::Unsupported("hexadecimal numbers"));
        }
        // A text that is not a number is compared as 0.
        let number = text.parse().unwrap_or_default();
        if text.contains('_') && text.replace('_', "").parse::<f64>().is_ok() {
            return Err(ConditionError::Unsupported("numbers with `_`"));
        }
        let is_pattern = matches!(operator, Operator::Like | Operator::NotLike);
        let pattern = if is_pattern { Pattern::parse(&text)? } else { Pattern::default() };
        Ok(Self::Text { text, number, pattern })
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut items = Vec::new();
        let mut chars = text.chars();
        let mut has_escapes = false;
        while let Some(c) = chars.next() {
            items.push(match c {
                '\\' => {
                    has_escapes = true;
                    PatternItem::Char(chars.next().ok_or(LAST_ESCAPE)?)
                }
                '?' => PatternItem::One,
                '*' => PatternItem::Many,
                c => PatternItem::Char(c),
            });
        }
        Ok(Self { items, has_escapes })
    }

    /// Parses a component of a path. GJSON would take its escaped wildcards for wildcards if it has others.
    fn key(text: &str) -> Result<Self, ConditionError> {
        let pattern = Self::parse(text)?;
        let is_special = |item: &PatternItem| matches!(item, PatternItem::Char('*' | '?' | '\\'));
        if pattern.is_wild() && pattern.items.iter().any(is_special) {
            return Err(ConditionError::Unsupported("escaped wildcards beside other wildcards"));
        }
        // In arrays, it ends the component at an escaped separator.
        let ends = |separator| text.split(separator).skip(1).any(|rest| rest.starts_with(['@', '[', '{', '!']));
        if ends("\\.") || ends("\\|") {
            return Err(ConditionError::Unsupported("escaped separators before `@`, `[`, `{` and `!`"));
        }
        Ok(pattern)
    }

    fn is_wild(&self) -> bool {
        self.items.iter().any(|item| matches!(item, PatternItem::One | PatternItem::Many))
    }

    /// Returns the pattern as an index of an array.
    fn index(&self) -> Option<usize> {
        let items = if self.has_escapes || self.items.is_empty() { return None } else { &self.items };
        items.iter().try_fold(0_usize, |index, item| {
            let PatternItem::Char(c) = item else { return None };
            index.checked_mul(10)?.checked_add(usize::try_from(c.to_digit(10)?).ok()?)
        })
    }

    fn matches(&self, text: &str) -> bool {
        let items = &self.items;
        let mut chars = text.chars();
        let mut item = 0;
        // The last `*`, and the text that it has not covered yet.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let mut ahead = chars.clone();
            match (items.get(item), ahead.next()) {
                (None, None) => return true,
                (Some(PatternItem::Many), _) => {
                    retry = Some((item, chars.clone()));
                    item += 1;
                    continue;
                }
                (Some(PatternItem::One), Some(_)) => {
                    (chars, item) = (ahead, item + 1);
                    continue;
                }
                (Some(PatternItem::Char(wanted)), Some(c)) if *wanted == c => {
                    (chars, item) = (ahead, item + 1);
                    continue;
                }
                _ => {}
            }
            let Some((star, left)) = &mut retry else { return false };
            if left.next().is_none() {
                return false;
            }
            (item, chars) = (*star + 1, left.clone());
        }
    }
}

/// Returns the value of a path.
fn get<'a>(value: Json<'a>, path: &'a [PathPart]) -> Option<Json<'a>> {
    let Some((first, rest)) = path.split_first() else { return Some(value) };
    let (value, path) = match &first.kind {
        PathPartKind::This => return get(value, rest),
        PathPartKind::Array(paths) => {
            let values = paths.iter().filter_map(|path| get(value.clone(), path));
            return get(Json::List(values.collect()), rest);
        }
        PathPartKind::Object(paths) => {
            let members = paths.iter().filter_map(|(name, path)| Some((name.as_str(), get(value.clone(), path)?)));
            return get(Json::Object(members.collect()), rest);
        }
        _ => (value, path),
    };
    let (before, after) = path.split_at(1 + rest.iter().position(|part| part.is_piped).unwrap_or(rest.len()));
    get(search(&value, before)?.0?, after)
}

/// The result of a search: the value, or `None` if it is missing and no other place is searched.
struct Found<'a>(Option<Json<'a>>);

/// Searches a value for a path without pipes. Returns `None` if another place may have the value.
fn search<'a>(value: &Json<'a>, path: &'a [PathPart]) -> Option<Found<'a>> {
    let found = |value| Some(Found(Some(value)));
    let Some((part, rest)) = path.split_first() else { return found(value.clone()) };
    match &part.kind {
        PathPartKind::Key(pattern) => search_key(value, |key| pattern.matches(key), pattern.index(), rest),
        PathPartKind::Elements if value.is_object() => search_key(value, |key| key == "#", None, rest),
        PathPartKind::Elements if rest.is_empty() => {
            let mut count = 0;
            for_each(value, |_| {
                count += 1;
                ControlFlow::Continue(())
            })?;
            found(Json::Number(count))
        }
        PathPartKind::Elements => found(get_each(value, rest, |_| true)?),
        PathPartKind::Query { path, comparison, all: true } => {
            found(get_each(value, rest, |element| fulfills(element, path, comparison.as_ref()))?)
        }
        PathPartKind::Query { path, comparison, all: false } => {
            let mut first = None;
            for_each(value, |element| {
                if fulfills(&element, path, comparison.as_ref()) {
                    first = Some(element);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            first.map(|element| Found(get(element, rest)))
        }
        PathPartKind::This | PathPartKind::Array(_) | PathPartKind::Object(_) => Some(Found(get(value.clone(), path))),
    }
}

/// Searches the members of an object whose keys match, or an element of an array.
fn search_key<'a>(
    value: &Json<'a>,
    matches: impl Fn(&str) -> bool,
    index: Option<usize>,
    rest: &'a [PathPart],
) -> Option<Found<'a>> {
    let mut found = None;
    let mut visit = |value: Json<'a>| {
        if rest.is_empty() || value.is_container() {
            found = search(&value, rest);
        }
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    if value.is_object() {
        for_each_member(value, |key, value| if matches(key) { visit(value) } else { ControlFlow::Continue(()) })?;
    } else {
        let mut left = index?;
        for_each(value, |element| {
            if left == 0 {
                let _ = visit(element);
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        })?;
    }
    found
}

/// Returns the values of a path in those elements that pass a filter.
fn get_each<'a>(value: &Json<'a>, path: &'a [PathPart], filter: impl Fn(&Json<'a>) -> bool) -> Option<Json<'a>> {
    let mut results = Vec::new();
    for_each(value, |element| {
        if filter(&element) {
            results.extend(get(element, path));
        }
        ControlFlow::Continue(())
    })?;
    Some(Json::List(results))
}

/// Returns whether an element fulfills a query.
fn fulfills<'a>(element: &Json<'a>, path: &'a [PathPart], comparison: Option<&Comparison>) -> bool {
    if !path.is_empty() && !element.is_container() {
        return false;
    }
    let value = if path.is_empty() && element.is_container() {
        search_key(element, str::is_empty, None, path).and_then(|found| found.0)
    } else {
        get(element.clone(), path)
    };
    let Some(Comparison { operator, operand }) = comparison else { return value.is_some() };
    match operand {
        Operand::Like(likeness) => compare_bool(likeness.is_of(value.as_ref()), *operator, "true"),
        Operand::Text { text, number, pattern } => {
            value.is_some_and(|value| compare(&value, *operator, text, *number, pattern))
        }
    }
}

fn compare(value: &Json<'_>, operator: Operator, text: &str, number: f64, pattern: &Pattern) -> bool {
    match value.scalar() {
        Some(Scalar::Text(value)) => match operator {
            Operator::Like => pattern.matches(&value),
            Operator::NotLike => !pattern.matches(&value),
            _ => operator.holds(Some((*value).cmp(text))),
        },
        Some(Scalar::Bool(value)) => compare_bool(value, operator, text),
        Some(Scalar::Number(value)) => match value.partial_cmp(&number) {
            // Only `!=` holds for NaN.
            None => operator == Operator::NotEqual,
            order => operator.holds(order),
        },
        Some(Scalar::Null) | None => false,
    }
}

/// Compares as GJSON does: `true` is at least anything, and `false` at most anything, but not the other way around.
fn compare_bool(value: bool, operator: Operator, text: &str) -> bool {
    let text_of = |value: bool| if value { "true" } else { "false" };
    match operator {
        Operator::Equal => text == text_of(value),
        Operator::NotEqual => text != text_of(value),
        Operator::Less => !value && text == "true",
        Operator::LessOrEqual => !value,
        Operator::Greater => value && text == "false",
        Operator::GreaterOrEqual => value,
        Operator::Like | Operator::NotLike => false,
    }
}

impl Likeness {
    fn is_of(self, value: Option<&Json<'_>>) -> bool {
        let Some(value) = value else { return matches!(self, Self::False | Self::Null) };
        let parse = |text: &str| match text.to_lowercase().as_str() {
            "1" | "t" | "true" => Some(true),
            "0" | "f" | "false" => Some(false),
            _ => None,
        };
        let truth = match value.scalar() {
            Some(Scalar::Text(text)) => parse(&text),
            Some(Scalar::Bool(value)) => Some(value),
            Some(Scalar::Number(number)) => Some(number != 0.0),
            Some(Scalar::Null) => Some(false),
            None => None,
        };
        match self {
            Self::True => truth == Some(true),
            Self::False => truth == Some(false),
            Self::Null => matches!(value.scalar(), Some(Scalar::Null)),
            Self::Existing => true,
        }
    }
}

impl Operator {
    /// Returns whether a comparison holds for an order of its sides.
    fn holds(self, order: Option<Ordering>) -> bool {
        let Some(order) = order else { return false };
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Like | Self::NotLike => false,
        }
    }
}

/// A value that is neither an array nor an object.
enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(f64),
    Bool(bool),
    Null,
}

impl<'a> Json<'a> {
    fn is_object(&self) -> bool {
        matches!(self, Self::Object(_)) || matches!(self, Self::Text(text) if text.starts_with('{'))
    }

    fn is_container(&self) -> bool {
        match self {
            Self::Text(text) => text.starts_with(['{', '[']),
            Self::List(_) | Self::Object(_) => true,
            Self::Number(_) => false,
        }
    }

    fn scalar(&self) -> Option<Scalar<'a>> {
        match self {
            Self::Text(text) => match text.as_bytes().first()? {
                b'"' => parse_text(text).map(Scalar::Text),
                b't' => Some(Scalar::Bool(true)),
                b'f' => Some(Scalar::Bool(false)),
                b'n' => Some(Scalar::Null),
                b'-' | b'0'..=b'9' => text.parse().ok().map(Scalar::Number),
                _ => None,
            },
            Self::Number(number) => number.to_string().parse().ok().map(Scalar::Number),
            Self::List(_) | Self::Object(_) => None,
        }
    }
}

fn parse_text(json: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    serde_json::from_str::<Text<'_>>(json).ok().map(|text| text.0)
}

/// Calls a function with each member of an object, or returns `None` if the value is not an object.
fn for_each_member<'a>(value: &Json<'a>, mut f: impl FnMut(&str, Json<'a>) -> ControlFlow<()>) -> Option<()> {
    match value {
        Json::Text(text) if text.starts_with('{') => {
            let mut done = false;
            let visitor = Members(|key: &str, value| {
                if !done {
                    done = f(key, Json::Text(value)).is_break();
                }
            });
            serde_json::Deserializer::from_str(text).deserialize_map(visitor).ok()
        }
        Json::Object(members) => {
            let _ = members.iter().try_for_each(|(key, value)| f(key, value.clone()));
            Some(())
        }
        Json::Text(_) | Json::List(_) | Json::Number(_) => None,
    }
}

/// Calls a function with each element of an array, or returns `None` if the value is not an array.
fn for_each<'a>(value: &Json<'a>, mut f: impl FnMut(Json<'a>) -> ControlFlow<()>) -> Option<()> {
    match value {
        Json::Text(text) if text.starts_with('[') => {
            let mut done = false;
            let visitor = Elements(|element| {
                if !done {
                    done = f(Json::Text(element)).is_break();
                }
            });
            serde_json::Deserializer::from_str(text).deserialize_seq(visitor).ok()
        }
        Json::List(elements) => {
            let _ = elements.iter().cloned().try_for_each(f);
            Some(())
        }
        Json::Text(_) | Json::Object(_) | Json::Number(_) => None,
    }
}

/// Visits the elements of an array as text.
struct Elements<F>(F);

impl<'de, F: FnMut(&'de str)> Visitor<'de> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&RawValue>()? {
            self.0(element.get());
        }
        Ok(())
    }
}

/// Visits the members of an object as text.
struct Members<F>(F);

impl<'de, F: FnMut(&str, &'de str)> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(key) = members.next_key::<Cow<'de, str>>()? {
            self.0(&key, members.next_value::<&RawValue>()?.get());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The document of GJSON's own documentation.
    const DOCUMENT: &str = r#"{
        "name": {"first": "Tom", "last": "Anderson"},
        "age": 37,
        "children": ["Sara", "Alex", "Jack"],
        "fav.movie": "Deer Hunter",
        "friends": [
            {"first": "Dale", "last": "Murphy", "age": 44, "nets": ["ig", "fb", "tw"]},
            {"first": "Roger", "last": "Craig", "age": 68, "nets": ["fb", "tw"]},
            {"first": "Jane", "last": "Murphy", "age": 47, "nets": ["ig", "tw"]}
        ],
        "ok": true, "no": false, "nothing": null, "empty": [], "text": "a\"b\n"
    }"#;

    fn json(value: &Json<'_>) -> Value {
        match value {
            Json::Text(text) => serde_json::from_str(text).unwrap(),
            Json::List(items) => items.iter().map(json).collect(),
            Json::Object(members) => members.iter().map(|(key, value)| ((*key).to_owned(), json(value))).collect(),
            Json::Number(number) => Value::from(*number),
        }
    }

    fn value(path: &str) -> Option<Value> {
        let condition = Condition::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let value = get(Json::Text(DOCUMENT), &condition.path).map(|value| json(&value));
        assert_eq!(value.is_some(), condition.matches(DOCUMENT), "{path}");
        value
    }

    /// What GJSON 1.18 and 1.20 answer.
    #[test]
    fn paths_exist_as_in_gjson() {
        let document = r#"{"tier": "top", "a": {"tier": "gold", "x": 1}, "b": {"x": 2}, "a.b": 7, "list": [{"tier": 1},
            {"tier": "2"}, ["s"], true, false, null, 4, "dog"], "empty": [], "star*": 1, "n": null, "names": {"first": "Tom",
            "last": "Anderson"}, "a": {"late": 1}}"#;
        let exist = [
            "[*.tier]",
            "[*.missing]",
            "*.tier",
            "?.x",
            "*.last",
            "a.late",
            "[tier,missing].0",
            r#"{a.tier,"t":tier}.t"#,
            r#"{a.tier,"t":tier}.tier"#,
            "{list.#}._",
            r#"[@this].#(tier=="top")"#,
            "[a,b].#(x>1).x",
            "[a,b].#(tier)#.0",
            "[list.#.tier].0.1",
            "[[a.x,b.x]].0.1",
            "list.#.tier",
            "list.#.tier|0",
            "list.#(tier)#|#",
            "list.#(tier>=2)",
            "list.#(tier==1)",
            r#"list.#(tier=="2")"#,
            "list.#(==4)",
            r#"list.#(=="dog")"#,
            r#"list.#(%"d?g")"#,
            "list.#(==true)",
            "list.#(<=true)",
            r#"list.#(>="x")"#,
            "list.#(!=dog)",
            "list.#(tier==~true)",
            "list.#(tier==~null)",
            "list.#(==~false)",
            "list.#(>none)",
            "list.07",
            r"star\*",
            r"a\.b",
            r"*\.b",
            "n",
            "empty.#",
            "empty.#.x",
            "empty.#(x)#",
            "@this",
            "@this.tier",
            "names|@this|first",
            "list.2.0",
        ];
        let are_missing = [
            "*.missing",
            "[tier,missing].1",
            "[missing].0",
            "{a.tier,t:tier}.x",
            r"{a\.b}.a\.b",
            "{list.#(tier)}.other",
            "{missing}.missing",
            r#"[@this].#(tier=="gold")"#,
            "[a,b].#.tier|1",
            "list.#.tier|2",
            r#"list.#(!%"*")"#,
            "list.#(tier>=3)",
            "list.-1",
            r"list.\0",
            r"star\?",
            r"a\.b.x",
            "n.x",
            "empty.#(x)",
            "empty.#(x)#|0",
            "names.#",
            "names.first|0",
            "list.2.1",
        ];
        let expected = exist.iter().map(|path| (path, true)).chain(are_missing.iter().map(|path| (path, false)));
        for (path, expected) in expected {
            let condition = Condition::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(condition.matches(document), expected, "{path}");
        }
    }

    #[test]
    fn paths_have_the_values_of_the_documentation() {
        let cases = [
            ("name.last", r#""Anderson""#),
            ("age", "37"),
            ("children", r#"["Sara","Alex","Jack"]"#),
            ("children.0", r#""Sara""#),
            ("children.1", r#""Alex""#),
            ("friends.1.first", r#""Roger""#),
            ("child*.2", r#""Jack""#),
            ("c?ildren.0", r#""Sara""#),
            (r"fav\.movie", r#""Deer Hunter""#),
            ("friends.#", "3"),
            ("friends.#.age", "[44,68,47]"),
            (r#"friends.#(last=="Murphy").first"#, r#""Dale""#),
            (r#"friends.#(last=="Murphy")#.first"#, r#"["Dale","Jane"]"#),
            ("friends.#(age>45)#.last", r#"["Craig","Murphy"]"#),
            (r#"friends.#(first%"D*").last"#, r#""Murphy""#),
            (r#"friends.#(first!%"D*").last"#, r#""Craig""#),
            (r#"children.#(!%"*a*")"#, r#""Alex""#),
            (r#"children.#(%"*a*")#"#, r#"["Sara","Jack"]"#),
            (r#"friends.#(nets.#(=="fb"))#.first"#, r#"["Dale","Roger"]"#),
            ("friends.0.first", r#""Dale""#),
            ("friends|0.first", r#""Dale""#),
            ("friends.0|first", r#""Dale""#),
            ("friends|0|first", r#""Dale""#),
            ("friends|#", "3"),
            (r#"friends.#(last="Murphy")#.0"#, "[]"),
            (r#"friends.#(last="Murphy")#|0.first"#, r#""Dale""#),
            (r#"friends.#(last="Murphy")#.#"#, "[]"),
            (r#"friends.#(last="Murphy")#|#"#, "2"),
            ("friends.#.nets.#", "[3,2,2]"),
            ("friends.#.first|1", r#""Roger""#),
            ("@this.age", "37"),
            ("[@this].#(age==37).name.first", r#""Tom""#),
            ("[@this].#(ok==true).age", "37"),
            ("[@this].#(no<true).age", "37"),
            ("friends.#(age<=44)#.first", r#"["Dale"]"#),
            ("friends.#(age != 44)#.first", r#"["Roger","Jane"]"#),
            ("friends.#(age>=68).first", r#""Roger""#),
            (r#"friends.#(first<"E")#.first"#, r#"["Dale"]"#),
            ("friends.#(nets)#.#(==1)", "[]"),
            (r#"[@this].#(text=="a\"b*").age"#, "absent"),
            (r#"[@this].#(text%"a\"b*").age"#, "37"),
            ("nothing", "null"),
            ("no", "false"),
            ("empty.#(x>1)#", "[]"),
            ("empty.#.x", "[]"),
        ];
        for (path, expected) in cases {
            let expected = (expected != "absent").then(|| serde_json::from_str::<Value>(expected).unwrap());
            assert_eq!(value(path), expected, "{path}");
        }
    }

    #[test]
    fn paths_that_do_not_exist_have_no_value() {
        for path in [
            "missing",
            "name.missing",
            "age.x",
            "age.#",
            "children.3",
            "children.first",
            "children.99999999999999999999999",
            r#"friends.#(last="Murphy")#|first"#,
            "friends.#(age>99)",
            "friends.#(missing==1)",
            "friends.#|x",
            "empty.#(x>1)",
            "empty.0",
            "name.#",
            "friends.#(nets==1)",
            r#"friends.#(age<"abc")"#,
        ] {
            assert_eq!(value(path), None, "{path}");
        }
    }

    #[test]
    fn paths_that_are_not_evaluated_as_in_gjson_are_errors() {
        for path in [
            "",
            ".",
            "a..b",
            "a.",
            "|a",
            "#x",
            "#[a]",
            "a.#(",
            "a.#(b",
            "a.#()",
            "a.#(b==)",
            r#"a.#(b=="c)"#,
            r"a\",
            "a.#(b!c)",
            r#"a.#(b=="\*")"#,
            "a.#(b==~maybe)",
            "[a",
            "[a}",
            "[]",
            "[a,]",
            "{:a}",
            r#"{"a:b}"#,
            "[a]b",
        ] {
            assert!(matches!(Condition::parse(path), Err(ConditionError::Malformed(_))), "{path}");
        }
        for path in [
            "a.@reverse",
            "@pretty:{}",
            "[a.@keys:b]",
            "a.@this",
            "a.[b]",
            "a|{b}",
            r#"!"x""#,
            "a.#(b==1_0)",
            "a.#(b==0x1p4)",
            r#"a.#(b=="~true")"#,
            r"a\**",
            r"a\.@this",
            "a.#(b)#.c|0",
            "a.#.#|0",
            "a*.#(b|c)",
            "#.#(b|c)",
        ] {
            assert!(matches!(Condition::parse(path), Err(ConditionError::Unsupported(_))), "{path}");
        }
        let nested = |depth: usize| format!("{}a{}", "#(".repeat(depth), ")".repeat(depth));
        assert_eq!(Condition::parse(&nested(9)).unwrap_err(), ConditionError::TooLong);
        assert!(Condition::parse(&nested(8)).is_ok());
        assert_eq!(Condition::parse(&"a".repeat(MAX_PATH + 1)).unwrap_err(), ConditionError::TooLong);
        assert_eq!(Condition::parse(&"#(".repeat(500)).unwrap_err(), UNCLOSED);
        assert_eq!(Condition::parse("[a,b,c,d,e,f,g,h,i]").unwrap_err(), ConditionError::TooLong);
        assert!(Condition::parse("[a,b,c,d].#([e,f,g,h].0)").is_ok());
    }

    #[test]
    fn deep_documents_end() {
        let document = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Condition::parse("0.0.0").unwrap().matches(&document));
        assert!(!Condition::parse("a").unwrap().matches(&document));
        assert!(Condition::parse(&format!("0{}", ".0".repeat(300))).unwrap().matches(&document));
    }

    proptest! {
        #[test]
        fn any_path_and_document_end_without_a_panic(
            path in r#"([a-c.|#*?\\"@!%=<>~() 0-9\[\]{}]|\(|\)|#\(|==|"a")[a-c.|#*?\\"@!%=<>~() 0-9\[\]{}é]{0,40}"#,
            document in r#"[a-c{}\[\]":, 0-9\\é]{0,60}"#,
        ) {
            if let Ok(condition) = Condition::parse(&path) {
                condition.matches(&document);
                condition.matches(DOCUMENT);
            }
        }

        #[test]
        fn patterns_match_as_a_recursive_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn matches(pattern: &[u8], text: &[u8]) -> bool {
                match (pattern.first(), text.first()) {
                    (None, _) => text.is_empty(),
                    (Some(b'*'), _) => matches(&pattern[1..], text) || (!text.is_empty() && matches(pattern, &text[1..])),
                    (Some(b'?'), Some(_)) => matches(&pattern[1..], &text[1..]),
                    (Some(wanted), Some(c)) => wanted == c && matches(&pattern[1..], &text[1..]),
                    (Some(_), None) => false,
                }
            }
            let expected = matches(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(Pattern::parse(&pattern).unwrap().matches(&text), expected);
        }
    }
}
