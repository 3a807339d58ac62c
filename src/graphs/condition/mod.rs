//! Conditions: GJSON paths, which match if they exist in a JSON document.
//!
//! The document is walked as text: no tree of values is built, and no part of it is visited more than once per component of the path
//! and per selector of a multipath.

mod path;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::ControlFlow;

use serde::Deserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

pub(super) use path::ConditionError;
use path::{Comparison, Likeness, Operand, Operator, PathPart, PathPartKind, Pattern, parse_path, parse_text};

/// A condition.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    text: String,
    path: Vec<PathPart>,
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
        Ok(Self { text: text.to_owned(), path: parse_path(text)? })
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
    }
}
