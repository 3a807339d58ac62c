//! Conditions: GJSON paths, which match if they exist in a JSON document.
//!
//! Supported are keys with wildcards and escapes, indexes, `#`, queries, `|`, `@this` and `[@this]`. The document is walked as text:
//! no tree of values is built, and no part of it is visited more than once per component of the path.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::ControlFlow;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The maximum length of a path, in bytes.
const MAX_PATH: usize = 1024;
/// The maximum depth of queries inside of queries.
const MAX_QUERIES: usize = 8;

/// A condition.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    text: String,
    /// `None` if the path is malformed. It then never matches.
    path: Option<Vec<PathPart>>,
}

/// Why a path is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConditionError {
    #[error("the path is malformed")]
    Malformed,
    #[error("{0} of GJSON are not supported")]
    Unsupported(&'static str),
    #[error("the path has more than {MAX_PATH} bytes, or queries nested deeper than {MAX_QUERIES}")]
    TooLong,
}

/// A component of a path.
#[derive(Debug, Clone)]
struct PathPart {
    /// Whether the component follows a `|`.
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
        comparison: Option<(Operator, String)>,
        all: bool,
    },
    /// `@this`
    This,
    /// `[@this]`
    ThisInArray,
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
struct Pattern(Vec<PatternItem>);

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
    Number(usize),
}

impl Condition {
    /// Parses a path. A malformed path is accepted but never matches, see [`Self::is_malformed`].
    ///
    /// # Errors
    ///
    /// Fails if the path is too long, or uses parts of GJSON that are not supported.
    pub(super) fn parse(text: &str) -> Result<Self, ConditionError> {
        let too_long = text.len() > MAX_PATH;
        let path = if too_long { Err(ConditionError::TooLong) } else { parse_path(text, MAX_QUERIES) };
        let path = match path {
            Ok(path) => Some(path),
            Err(ConditionError::Malformed) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { text: text.to_owned(), path })
    }

    pub(super) const fn is_malformed(&self) -> bool {
        self.path.is_none()
    }

    /// Returns whether the path exists in a document, which must be valid JSON.
    pub(super) fn matches(&self, document: &str) -> bool {
        self.path.as_ref().is_some_and(|path| get(Json::Text(document.trim()), path).is_some())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse_path(text: &str, queries: usize) -> Result<Vec<PathPart>, ConditionError> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut is_piped = false;
    loop {
        let (kind, after) = parse_part(rest, queries)?;
        parts.push(PathPart { is_piped, kind });
        let mut left = after.chars();
        match left.next() {
            None => return Ok(parts),
            Some('.') => is_piped = false,
            Some('|') => is_piped = true,
            Some(_) => return Err(ConditionError::Malformed),
        }
        rest = left.as_str();
    }
}

/// Parses a component, and returns the text after it.
fn parse_part(text: &str, queries: usize) -> Result<(PathPartKind, &str), ConditionError> {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(['.', '|']);
    for (name, kind) in [("@this", PathPartKind::This), ("[@this]", PathPartKind::ThisInArray)] {
        if let Some(rest) = text.strip_prefix(name).filter(|rest| ends(rest)) {
            return Ok((kind, rest));
        }
    }
    match text.as_bytes().first() {
        None | Some(b'.' | b'|') => return Err(ConditionError::Malformed),
        Some(b'@') => return Err(ConditionError::Unsupported("modifiers other than `@this`")),
        Some(b'[' | b'{') => return Err(ConditionError::Unsupported("multipaths other than `[@this]`")),
        Some(b'!') => return Err(ConditionError::Unsupported("literals")),
        _ => {}
    }
    if let Some(rest) = text.strip_prefix("#(") {
        let end = closing(rest).ok_or(ConditionError::Malformed)?;
        let (query, rest) = (&rest[..end], &rest[end + 1..]);
        let (all, rest) = rest.strip_prefix('#').map_or((false, rest), |rest| (true, rest));
        return Ok((parse_query(query, all, queries)?, rest));
    }
    if let Some(rest) = text.strip_prefix('#') {
        return if ends(rest) { Ok((PathPartKind::Elements, rest)) } else { Err(ConditionError::Malformed) };
    }
    let end = unescaped(text, |c| c == '.' || c == '|').unwrap_or(text.len());
    Ok((PathPartKind::Key(Pattern::parse(&text[..end])?), &text[end..]))
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

/// Scans a query up to the first position outside of quotes and brackets at which `stop` returns true.
fn outside(text: &str, stop: impl Fn(&str) -> bool) -> Option<usize> {
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for (index, c) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        if !is_quoted && depth == 0 && stop(&text[index..]) {
            return Some(index);
        }
        match c {
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '(' | '[' | '{' if !is_quoted => depth += 1,
            ')' | ']' | '}' if !is_quoted => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Returns the position of the parenthesis that closes a query.
fn closing(text: &str) -> Option<usize> {
    outside(text, |rest| rest.starts_with(')'))
}

fn parse_query(text: &str, all: bool, queries: usize) -> Result<PathPartKind, ConditionError> {
    let queries = queries.checked_sub(1).ok_or(ConditionError::TooLong)?;
    let operator = |rest: &str| OPERATORS.iter().find(|(name, _)| rest.starts_with(name)).copied();
    let start = outside(text, |rest| operator(rest).is_some());
    let (path, comparison) = match start.and_then(|start| Some((start, operator(&text[start..])?))) {
        Some((start, (name, operator))) => {
            (&text[..start], Some((operator, parse_operand(text[start + name.len()..].trim())?)))
        }
        None => (text, None),
    };
    let path = path.trim();
    if path.is_empty() && comparison.is_none() {
        return Err(ConditionError::Malformed);
    }
    let path = if path.is_empty() { Vec::new() } else { parse_path(path, queries)? };
    Ok(PathPartKind::Query { path, comparison, all })
}

/// Parses the right side of a comparison: a quoted string, or any other text.
fn parse_operand(text: &str) -> Result<String, ConditionError> {
    if text.starts_with('~') {
        return Err(ConditionError::Unsupported("comparisons with `~`"));
    }
    let Some(quoted) = text.strip_prefix('"') else {
        return if text.is_empty() { Err(ConditionError::Malformed) } else { Ok(text.to_owned()) };
    };
    let end = unescaped(quoted, |c| c == '"').ok_or(ConditionError::Malformed)?;
    if end + 1 < quoted.len() {
        return Err(ConditionError::Malformed);
    }
    // Other escapes are kept, for the wildcards of patterns.
    let mut operand = String::new();
    let mut chars = quoted[..end].chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.next_if(|next| c == '\\' && matches!(next, '"' | '\\'));
        operand.push(next.unwrap_or(c));
    }
    Ok(operand)
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut items = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            items.push(match c {
                '\\' => PatternItem::Char(chars.next().ok_or(ConditionError::Malformed)?),
                '?' => PatternItem::One,
                '*' => PatternItem::Many,
                c => PatternItem::Char(c),
            });
        }
        Ok(Self(items))
    }

    /// Returns the pattern as an index of an array.
    fn index(&self) -> Option<usize> {
        self.0.iter().try_fold(0_usize, |index, item| {
            let PatternItem::Char(c) = item else { return None };
            index.checked_mul(10)?.checked_add(usize::try_from(c.to_digit(10)?).ok()?)
        })
    }

    fn matches(&self, text: &str) -> bool {
        let items = &self.0;
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
fn get<'a>(value: Json<'a>, path: &[PathPart]) -> Option<Json<'a>> {
    let Some((part, rest)) = path.split_first() else { return Some(value) };
    match &part.kind {
        PathPartKind::This => get(value, rest),
        PathPartKind::ThisInArray => get(Json::List(vec![value]), rest),
        PathPartKind::Key(pattern) => get(member(&value, pattern)?, rest),
        PathPartKind::Query { path, comparison, all: false } => {
            let mut found = None;
            for_each(&value, |element| {
                if fulfills(&element, path, comparison.as_ref()) {
                    found = Some(element);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            get(found?, rest)
        }
        PathPartKind::Elements if rest.first().is_none_or(|next| next.is_piped) => {
            let mut count = 0;
            for_each(&value, |_| {
                count += 1;
                ControlFlow::Continue(())
            })?;
            get(Json::Number(count), rest)
        }
        PathPartKind::Elements => get_each(&value, rest, |_| true),
        PathPartKind::Query { path, comparison, all: true } => {
            get_each(&value, rest, |element| fulfills(element, path, comparison.as_ref()))
        }
    }
}

/// Applies a path up to its next `|` to each element, and the rest to the list of the results.
fn get_each<'a>(value: &Json<'a>, path: &[PathPart], filter: impl Fn(&Json<'a>) -> bool) -> Option<Json<'a>> {
    let end = path.iter().position(|part| part.is_piped).unwrap_or(path.len());
    let mut results = Vec::new();
    for_each(value, |element| {
        if filter(&element) {
            results.extend(get(element, &path[..end]));
        }
        ControlFlow::Continue(())
    })?;
    get(Json::List(results), &path[end..])
}

/// Returns whether an element fulfills a query.
fn fulfills(element: &Json<'_>, path: &[PathPart], comparison: Option<&(Operator, String)>) -> bool {
    let Some(value) = get(element.clone(), path) else { return false };
    let Some((operator, operand)) = comparison else { return true };
    let operand = operand.as_str();
    let number = match &value {
        Json::Text(text) => match text.as_bytes().first() {
            Some(b'"') => return parse_text(text).is_some_and(|text| compare_texts(&text, *operator, operand)),
            // `false` is less than `true`.
            Some(b't' | b'f') => {
                let other = operand.parse::<bool>().ok();
                return operator.holds(other.map(|other| text.starts_with('t').cmp(&other)));
            }
            Some(b'-' | b'0'..=b'9') => text.parse::<f64>().ok(),
            _ => None,
        },
        Json::Number(number) => number.to_string().parse().ok(),
        Json::List(_) => None,
    };
    let Some(number) = number else { return false };
    let order = operand.parse::<f64>().ok().and_then(|other| number.partial_cmp(&other));
    operator.holds(order)
}

impl Operator {
    /// Returns whether a comparison holds for an order of its sides, or for sides that cannot be compared.
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Equal => order.is_some_and(Ordering::is_eq),
            Self::NotEqual => order.is_none_or(Ordering::is_ne),
            Self::Less => order.is_some_and(Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order.is_some_and(Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
            Self::Like | Self::NotLike => false,
        }
    }
}

fn compare_texts(text: &str, operator: Operator, operand: &str) -> bool {
    let is_like = || Pattern::parse(operand).is_ok_and(|pattern| pattern.matches(text));
    match operator {
        Operator::Like => is_like(),
        Operator::NotLike => !is_like(),
        _ => operator.holds(Some(text.cmp(operand))),
    }
}

fn parse_text(json: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    serde_json::from_str::<Text<'_>>(json).ok().map(|text| text.0)
}

/// Returns a member of an object, or an element of an array.
fn member<'a>(value: &Json<'a>, pattern: &Pattern) -> Option<Json<'a>> {
    let text = match value {
        Json::Text(text) if text.starts_with('{') => text,
        Json::Text(_) | Json::List(_) => {
            let mut index = pattern.index()?;
            let mut found = None;
            for_each(value, |element| {
                if index == 0 {
                    found = Some(element);
                    return ControlFlow::Break(());
                }
                index -= 1;
                ControlFlow::Continue(())
            })?;
            return found;
        }
        Json::Number(_) => return None,
    };
    let mut found = None;
    let visitor = Members(|key: &str, value| {
        if found.is_none() && pattern.matches(key) {
            found = Some(Json::Text(value));
        }
    });
    serde_json::Deserializer::from_str(text).deserialize_map(visitor).ok()?;
    found
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
        Json::Text(_) | Json::Number(_) => None,
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
            Json::Number(number) => Value::from(*number),
        }
    }

    fn value(path: &str) -> Option<Value> {
        let condition = Condition::parse(path).unwrap();
        let value = get(Json::Text(DOCUMENT), condition.path.as_ref()?).map(|value| json(&value));
        assert_eq!(value.is_some(), condition.matches(DOCUMENT), "{path}");
        value
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
            r#"friends.#(age>"abc")"#,
        ] {
            assert_eq!(value(path), None, "{path}");
        }
    }

    #[test]
    fn malformed_paths_never_match() {
        for path in ["", ".", "a..b", "a.", "|a", "#x", "a.#(", "a.#(b", "a.#()", "a.#(b==)", r#"a.#(b=="c)"#, r"a\"] {
            let condition = Condition::parse(path).unwrap();
            assert!(condition.is_malformed(), "{path}");
            assert!(!condition.matches(DOCUMENT), "{path}");
        }
    }

    #[test]
    fn unsupported_paths_are_errors() {
        for path in ["a.@reverse", "@pretty:{}", "{a,b}", "[a,b]", "a.[b]", r#"!"x""#, "a.#(b==~true)"] {
            assert!(matches!(Condition::parse(path), Err(ConditionError::Unsupported(_))), "{path}");
        }
        let nested = format!("{}a{}", "#(".repeat(9), ")".repeat(9));
        assert_eq!(Condition::parse(&nested).unwrap_err(), ConditionError::TooLong);
        assert!(!Condition::parse(&format!("{}a{}", "#(".repeat(8), ")".repeat(8))).unwrap().is_malformed());
        assert_eq!(Condition::parse(&"a".repeat(MAX_PATH + 1)).unwrap_err(), ConditionError::TooLong);
        assert!(Condition::parse(&"#(".repeat(500)).unwrap().is_malformed());
    }

    #[test]
    fn deep_documents_end() {
        let document = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Condition::parse("0.0.0").unwrap().matches(&document));
        assert!(!Condition::parse("a").unwrap().matches(&document));
        assert!(!Condition::parse(&"0.".repeat(300)).unwrap().matches(&document), "malformed");
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
