//! Conditions: GJSON paths, which match if they exist in a JSON document.
//!
//! A document is walked as text: no tree of values is built. The data of a tensor becomes text only if a path enters it. A [`Walk`]
//! limits the elements and members that the conditions of a node visit, and ends once nobody waits for the result.

mod document;
mod path;

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;
use std::ops::ControlFlow;

use std::sync::atomic::{AtomicBool, Ordering as AtomicOrdering};

use serde::Deserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use document::TensorJson;
pub(super) use document::{Document, document_size};
pub(super) use path::ConditionError;
use path::{Comparison, Likeness, Operand, Operator, PathPart, PathPartKind, Pattern, parse_path, parse_text};

/// A condition.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    text: String,
    path: Vec<PathPart>,
}

/// The most elements and members that the conditions of one node visit for one request.
pub(super) const MAX_VISITED: usize = 1_000_000;

/// How many of them are visited between two looks at whether the caller still waits.
const STOP_INTERVAL: usize = 1024;

/// How many comparisons of a character with a pattern count as one visited element.
const COMPARISONS: usize = 64;

/// Why it is not known whether a condition matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkError {
    /// The conditions visit more than [`MAX_VISITED`] elements and members.
    TooMany,
    /// Nobody waits for the result.
    Stopped,
}

/// The evaluation of the conditions of one node.
pub(super) struct Walk<'s> {
    left: Cell<usize>,
    error: Cell<Option<WalkError>>,
    stop: &'s AtomicBool,
}

impl<'s> Walk<'s> {
    /// Starts an evaluation that ends soon after `stop` is true.
    pub(super) const fn new(stop: &'s AtomicBool) -> Self {
        Self { left: Cell::new(MAX_VISITED), error: Cell::new(None), stop }
    }

    /// Counts what is visited. After an error, nothing is visited.
    fn visit(&self, count: usize) -> ControlFlow<()> {
        if self.error.get().is_some() {
            return ControlFlow::Break(());
        }
        let left = self.left.get();
        let Some(rest) = left.checked_sub(count) else {
            self.error.set(Some(WalkError::TooMany));
            return ControlFlow::Break(());
        };
        self.left.set(rest);
        if left / STOP_INTERVAL != rest / STOP_INTERVAL && self.stop.load(AtomicOrdering::Relaxed) {
            self.error.set(Some(WalkError::Stopped));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// A value of the document, or a result made of several.
#[derive(Debug, Clone)]
enum Json<'a> {
    Text(&'a str),
    Document(&'a Document<'a>),
    Tensors(&'a [TensorJson<'a>]),
    Tensor(&'a TensorJson<'a>),
    /// The data of a tensor, which becomes text when it is entered.
    Data(&'a TensorJson<'a>),
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

    /// Returns whether the path exists in a document.
    ///
    /// # Errors
    ///
    /// Fails if the walk has visited too much, or was stopped.
    pub(super) fn matches(&self, document: &Document<'_>, walk: &Walk<'_>) -> Result<bool, WalkError> {
        self.exists(Json::Document(document), walk)
    }

    /// Returns whether the path may enter the data of a tensor, which then takes memory as text.
    pub(super) fn may_enter_data(&self) -> bool {
        path::may_enter(&self.path, "data")
    }

    fn exists(&self, value: Json<'_>, walk: &Walk<'_>) -> Result<bool, WalkError> {
        let is_found = walk.get(value, &self.path).is_some();
        walk.error.get().map_or(Ok(is_found), Err)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The result of a search: the value, or `None` if it is missing and no other place is searched.
struct Found<'a>(Option<Json<'a>>);

impl Walk<'_> {
    /// Returns the value of a path.
    fn get<'a>(&self, value: Json<'a>, path: &'a [PathPart]) -> Option<Json<'a>> {
        let Some((first, rest)) = path.split_first() else { return Some(value) };
        match &first.kind {
            PathPartKind::This => return self.get(value, rest),
            PathPartKind::Array(paths) => {
                let values = paths.iter().filter_map(|path| self.get(value.clone(), path));
                return self.get(Json::List(values.collect()), rest);
            }
            PathPartKind::Object(paths) => {
                let members =
                    paths.iter().filter_map(|(name, path)| Some((name.as_str(), self.get(value.clone(), path)?)));
                return self.get(Json::Object(members.collect()), rest);
            }
            _ => {}
        }
        let (before, after) = path.split_at(1 + rest.iter().position(|part| part.is_piped).unwrap_or(rest.len()));
        self.get(self.search(&value, before)?.0?, after)
    }

    /// Searches a value for a path without pipes. Returns `None` if another place may have the value.
    fn search<'a>(&self, value: &Json<'a>, path: &'a [PathPart]) -> Option<Found<'a>> {
        let found = |value| Some(Found(Some(value)));
        let Some((part, rest)) = path.split_first() else { return found(value.clone()) };
        match &part.kind {
            PathPartKind::Key(pattern) => self.search_key(value, |key| pattern.matches(key), pattern.index(), rest),
            PathPartKind::Elements if self.is_object(value) => self.search_key(value, |key| key == "#", None, rest),
            PathPartKind::Elements if rest.is_empty() => {
                let mut count = 0;
                self.for_each(value, |_| {
                    count += 1;
                    ControlFlow::Continue(())
                })?;
                found(Json::Number(count))
            }
            PathPartKind::Elements => found(self.get_each(value, rest, |_| true)?),
            PathPartKind::Query { path, comparison, all: true } => {
                found(self.get_each(value, rest, |element| self.fulfills(element, path, comparison.as_ref()))?)
            }
            PathPartKind::Query { path, comparison, all: false } => {
                let mut first = None;
                self.for_each(value, |element| {
                    if self.fulfills(&element, path, comparison.as_ref()) {
                        first = Some(element);
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                })?;
                first.map(|element| Found(self.get(element, rest)))
            }
            PathPartKind::This | PathPartKind::Array(_) | PathPartKind::Object(_) => {
                Some(Found(self.get(value.clone(), path)))
            }
        }
    }

    /// Searches the members of an object whose keys match, or an element of an array.
    fn search_key<'a>(
        &self,
        value: &Json<'a>,
        matches: impl Fn(&str) -> bool,
        index: Option<usize>,
        rest: &'a [PathPart],
    ) -> Option<Found<'a>> {
        let mut found = None;
        let mut visit = |value: Json<'a>| {
            if rest.is_empty() || self.is_container(&value) {
                found = self.search(&value, rest);
            }
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if self.is_object(value) {
            self.for_each_member(
                value,
                |key, value| if matches(key) { visit(value) } else { ControlFlow::Continue(()) },
            )?;
        } else {
            let mut left = index?;
            self.for_each(value, |element| {
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
    fn get_each<'a>(
        &self,
        value: &Json<'a>,
        path: &'a [PathPart],
        filter: impl Fn(&Json<'a>) -> bool,
    ) -> Option<Json<'a>> {
        let mut results = Vec::new();
        self.for_each(value, |element| {
            if filter(&element) {
                results.extend(self.get(element, path));
            }
            ControlFlow::Continue(())
        })?;
        Some(Json::List(results))
    }

    /// Returns whether an element fulfills a query.
    fn fulfills<'a>(&self, element: &Json<'a>, path: &'a [PathPart], comparison: Option<&Comparison>) -> bool {
        let is_container = self.is_container(element);
        if !path.is_empty() && !is_container {
            return false;
        }
        let value = if path.is_empty() && is_container {
            self.search_key(element, str::is_empty, None, path).and_then(|found| found.0)
        } else {
            self.get(element.clone(), path)
        };
        let Some(Comparison { operator, operand }) = comparison else { return value.is_some() };
        match operand {
            Operand::Like(likeness) => {
                compare_bool(likeness.is_of(value.is_some(), self.scalar(value.as_ref()).as_ref()), *operator, "true")
            }
            Operand::Text { text, number, pattern } => {
                let value = self.scalar(value.as_ref());
                if let Some(Scalar::Text(value)) = &value
                    && self.visit(value.len().saturating_mul(pattern.len()) / COMPARISONS).is_break()
                {
                    return false;
                }
                value.is_some_and(|value| compare(value, *operator, text, *number, pattern))
            }
        }
    }

    /// Returns the text of a value that is one, or becomes one now.
    fn text<'a>(&self, value: &Json<'a>) -> Option<&'a str> {
        match value {
            Json::Text(text) => Some(text),
            Json::Data(tensor) => tensor.data(self.left.get()).unwrap_or_else(|_| {
                let _ = self.visit(usize::MAX);
                None
            }),
            _ => None,
        }
    }

    fn is_object(&self, value: &Json<'_>) -> bool {
        matches!(value, Json::Object(_) | Json::Document(_) | Json::Tensor(_))
            || self.text(value).is_some_and(|text| text.starts_with('{'))
    }

    fn is_container(&self, value: &Json<'_>) -> bool {
        match value {
            Json::Text(_) | Json::Data(_) => self.text(value).is_some_and(|text| text.starts_with(['{', '['])),
            Json::List(_) | Json::Object(_) | Json::Document(_) | Json::Tensors(_) | Json::Tensor(_) => true,
            Json::Number(_) => false,
        }
    }

    fn scalar<'a>(&self, value: Option<&Json<'a>>) -> Option<Scalar<'a>> {
        let value = value?;
        if let Json::Number(number) = value {
            return number.to_string().parse().ok().map(Scalar::Number);
        }
        let text = self.text(value)?;
        match text.as_bytes().first()? {
            b'"' => parse_text(text).map(Scalar::Text),
            b't' => Some(Scalar::Bool(true)),
            b'f' => Some(Scalar::Bool(false)),
            b'n' => Some(Scalar::Null),
            b'-' | b'0'..=b'9' => text.parse().ok().map(Scalar::Number),
            _ => None,
        }
    }

    /// Calls a function with each member of an object, or returns `None` if the value is not an object.
    fn for_each_member<'a>(
        &self,
        value: &Json<'a>,
        mut f: impl FnMut(&str, Json<'a>) -> ControlFlow<()>,
    ) -> Option<()> {
        let mut f = |key: &str, value: Json<'a>| {
            self.visit(1)?;
            f(key, value)
        };
        // Returns whether the function asks for more.
        let mut of_text = |text: &'a str| {
            let mut flow = ControlFlow::Continue(());
            let members = Members(|key: &str, value| {
                flow = f(key, Json::Text(value));
                flow
            });
            // An error only ends the walk: the text is valid.
            let _ = serde_json::Deserializer::from_str(text).deserialize_map(members);
            flow
        };
        match value {
            Json::Object(members) => {
                let _ = members.iter().try_for_each(|(key, value)| f(key, value.clone()));
            }
            Json::Document(document) => {
                if of_text(document.head()).is_continue() {
                    let _ = f(document.list(), Json::Tensors(document.tensors()));
                }
            }
            Json::Tensor(tensor) => {
                if of_text(tensor.head()).is_continue() {
                    let _ = f("data", Json::Data(tensor));
                }
            }
            _ => {
                let text = self.text(value).filter(|text| text.starts_with('{'))?;
                let _ = of_text(text);
            }
        }
        Some(())
    }

    /// Calls a function with each element of an array, or returns `None` if the value is not an array.
    fn for_each<'a>(&self, value: &Json<'a>, mut f: impl FnMut(Json<'a>) -> ControlFlow<()>) -> Option<()> {
        let mut f = |element| {
            self.visit(1)?;
            f(element)
        };
        match value {
            Json::List(elements) => {
                let _ = elements.iter().cloned().try_for_each(f);
            }
            Json::Tensors(tensors) => {
                let _ = tensors.iter().map(Json::Tensor).try_for_each(f);
            }
            _ => {
                let text = self.text(value).filter(|text| text.starts_with('['))?;
                let elements = Elements(|element| f(Json::Text(element)));
                // An error only ends the walk: the text is valid.
                let _ = serde_json::Deserializer::from_str(text).deserialize_seq(elements);
            }
        }
        Some(())
    }
}

fn compare(value: Scalar<'_>, operator: Operator, text: &str, number: f64, pattern: &Pattern) -> bool {
    match value {
        Scalar::Text(value) => match operator {
            Operator::Like => pattern.matches(&value),
            Operator::NotLike => !pattern.matches(&value),
            _ => operator.holds(Some((*value).cmp(text))),
        },
        Scalar::Bool(value) => compare_bool(value, operator, text),
        Scalar::Number(value) => match value.partial_cmp(&number) {
            // Only `!=` holds for NaN.
            None => operator == Operator::NotEqual,
            order => operator.holds(order),
        },
        Scalar::Null => false,
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
    /// Returns whether a value, if there is one, is like this. `scalar` is the value if it is neither an array nor an object.
    fn is_of(self, exists: bool, scalar: Option<&Scalar<'_>>) -> bool {
        if !exists {
            return matches!(self, Self::False | Self::Null);
        }
        let parse = |text: &str| match text.to_lowercase().as_str() {
            "1" | "t" | "true" => Some(true),
            "0" | "f" | "false" => Some(false),
            _ => None,
        };
        let truth = match scalar {
            Some(Scalar::Text(text)) => parse(text),
            Some(Scalar::Bool(value)) => Some(*value),
            Some(Scalar::Number(number)) => Some(*number != 0.0),
            Some(Scalar::Null) => Some(false),
            None => None,
        };
        match self {
            Self::True => truth == Some(true),
            Self::False => truth == Some(false),
            Self::Null => matches!(scalar, Some(Scalar::Null)),
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

/// Visits the elements of an array as text, until it is told to end.
struct Elements<F>(F);

impl<'de, F: FnMut(&'de str) -> ControlFlow<()>> Visitor<'de> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&RawValue>()? {
            if self.0(element.get()).is_break() {
                return Err(A::Error::custom("ended"));
            }
        }
        Ok(())
    }
}

/// Visits the members of an object as text, until it is told to end.
struct Members<F>(F);

impl<'de, F: FnMut(&str, &'de str) -> ControlFlow<()>> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(key) = members.next_key::<Cow<'de, str>>()? {
            if self.0(&key, members.next_value::<&RawValue>()?.get()).is_break() {
                return Err(A::Error::custom("ended"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::types::{Datatype, Parameters, Tensor};

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
            Json::Document(_) | Json::Tensors(_) | Json::Tensor(_) | Json::Data(_) => {
                unreachable!("the document is a text")
            }
            Json::Text(text) => serde_json::from_str(text).unwrap(),
            Json::List(items) => items.iter().map(json).collect(),
            Json::Object(members) => members.iter().map(|(key, value)| ((*key).to_owned(), json(value))).collect(),
            Json::Number(number) => Value::from(*number),
        }
    }

    fn value(path: &str) -> Option<Value> {
        let condition = Condition::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let value =
            Walk::new(&AtomicBool::new(false)).get(Json::Text(DOCUMENT), &condition.path).map(|value| json(&value));
        assert_eq!(value.is_some(), matches(&condition, DOCUMENT), "{path}");
        value
    }

    fn matches(condition: &Condition, document: &str) -> bool {
        condition.exists(Json::Text(document.trim()), &Walk::new(&AtomicBool::new(false))).unwrap()
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
            assert_eq!(matches(&condition, document), expected, "{path}");
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

    fn found(condition: &str, tensors: &[Tensor], parameters: &Parameters) -> Result<bool, WalkError> {
        let condition = Condition::parse(condition).unwrap();
        condition.matches(&Document::of_request(tensors, parameters), &Walk::new(&AtomicBool::new(false)))
    }

    fn numbers(name: &str, count: usize) -> Tensor {
        let data: Vec<u8> = (0..count).map(|index| u8::from(index == count / 2)).collect();
        Tensor::from_elements(name, vec![count], &data).unwrap()
    }

    #[test]
    fn document_of_a_request_has_its_tensors_and_parameters() {
        let tensors = [numbers("x", 3), numbers("y", 2)];
        let parameters = Parameters::with_content_type("np");
        for path in [
            "id",
            "parameters.content_type",
            "inputs.#(name==y).shape.0",
            "inputs.1.data.#(==1)",
            "inputs.0.data.2",
            "inputs.0.d*.2",
            "inputs.#(data.#(==1)).datatype",
            r#"inputs.#(datatype%"U*")#|1"#,
            "[inputs.0.data].0.2",
            r#"{"z":inputs.0.data}.z.#(>0)"#,
            "inputs.0.data|2",
        ] {
            assert_eq!(found(path, &tensors, &parameters), Ok(true), "{path}");
        }
        for path in
            ["inputs.2", "inputs.0.data.3", "inputs.0.data.#(==2)", "outputs", "inputs.0.parameters", "inputs.data"]
        {
            assert_eq!(found(path, &tensors, &parameters), Ok(false), "{path}");
        }
        let bytes = Tensor::from_raw("b", Datatype::Bytes, vec![1], b"\x01\0\0\0\xff".as_slice().into()).unwrap();
        let floats = Tensor::from_elements("f", vec![2], &[f32::NAN, 1.0]).unwrap();
        let tensors = [bytes, floats];
        let none = Parameters::new();
        assert_eq!(found("inputs.0.data.0", &tensors, &none), Ok(false), "JSON does not have these bytes");
        assert_eq!(found(r#"inputs.1.data.#(=="NaN")"#, &tensors, &none), Ok(true));
    }

    #[test]
    fn paths_that_enter_data_are_known_in_advance() {
        let enters = |path: &str| Condition::parse(path).unwrap().may_enter_data();
        for path in [
            "inputs.0.data.0",
            "inputs.0.*.0",
            "inputs.0.dat?|0",
            "inputs.#(data.0==1)",
            "inputs.#(data==1)",
            "inputs.#(d*==1)",
            "[inputs.0.data].0.0",
            r#"{"z":inputs.0.data}.z"#,
            "inputs.#.data.#",
        ] {
            assert!(enters(path), "{path}");
        }
        for path in [
            "parameters.kind",
            "inputs.#(name==x)",
            "inputs.0.data",
            "inputs.#(data)",
            "inputs.0.shape.#(>3)",
            "[inputs.0.data]",
        ] {
            assert!(!enters(path), "{path}");
        }
    }

    /// Half of a million elements come before the one that is found.
    #[test]
    fn walks_are_limited_and_only_count_what_they_visit() {
        let none = Parameters::new();
        let large = [numbers("flag", 1), numbers("image", MAX_VISITED + 1)];
        assert_eq!(found("inputs.#(name==image).data.0", &large, &none), Err(WalkError::TooMany));
        assert_eq!(found("inputs.#(name==flag).data.0", &large, &none), Ok(true));
        assert_eq!(found("inputs.#(name==image).shape.0", &large, &none), Ok(true));
        assert_eq!(found("inputs.1.data", &large, &none), Ok(true), "it exists, and is not read");
        let fits = [numbers("x", MAX_VISITED * 3 / 4)];
        assert_eq!(found("inputs.0.data.#(==1)", &fits, &none), Ok(true));
        assert_eq!(found("inputs.0.data.#(==2)", &fits, &none), Ok(false));
        let twice = "[inputs.0.data.#(==2),inputs.0.data.#(==3)].0";
        assert_eq!(found(twice, &fits, &none), Err(WalkError::TooMany));
        let mut parameters = Parameters::new();
        parameters.others.insert("list".to_owned(), vec![0; MAX_VISITED + 1].into());
        assert_eq!(found("parameters.list.#(==1)", &[], &parameters), Err(WalkError::TooMany));
        parameters.others.insert("text".to_owned(), "a".repeat(1 << 20).into());
        let pattern = format!(r#"[parameters.text].#(%"*{}b")"#, "a".repeat(200));
        assert_eq!(found(&pattern, &[], &parameters), Err(WalkError::TooMany));
    }

    #[test]
    fn walks_end_when_they_are_stopped() {
        let tensors = [numbers("x", 10 * STOP_INTERVAL)];
        let document = Document::of_request(&tensors, &Parameters::new());
        let condition = Condition::parse("inputs.0.data.#(==2)").unwrap();
        let stop = AtomicBool::new(true);
        assert_eq!(condition.matches(&document, &Walk::new(&stop)), Err(WalkError::Stopped));
        stop.store(false, AtomicOrdering::Relaxed);
        assert_eq!(condition.matches(&document, &Walk::new(&stop)), Ok(false));
    }

    #[test]
    fn deep_documents_end() {
        let document = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches(&Condition::parse("0.0.0").unwrap(), &document));
        assert!(!matches(&Condition::parse("a").unwrap(), &document));
        assert!(matches(&Condition::parse(&format!("0{}", ".0".repeat(300))).unwrap(), &document));
    }

    proptest! {
        #[test]
        fn any_path_and_document_end_without_a_panic(
            path in r#"([a-c.|#*?\\"@!%=<>~() 0-9\[\]{}]|\(|\)|#\(|==|"a")[a-c.|#*?\\"@!%=<>~() 0-9\[\]{}é]{0,40}"#,
            document in r#"[a-c{}\[\]":, 0-9\\é]{0,60}"#,
        ) {
            if let Ok(condition) = Condition::parse(&path) {
                matches(&condition, &document);
                matches(&condition, DOCUMENT);
            }
        }
    }
}
