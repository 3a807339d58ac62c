//! Converts the value from a source to the canonical form of its field, exactly as leniently as the original.
//!
//! Booleans may be words or 0 and 1, numbers may be strings, and integers may have a fraction of zero. Strings are strict:
//! a number in place of a string is an error, because it has usually lost something (`1.10` became `1.1`).

use serde_json::{Number, Value};

use super::field::FieldKind;
use super::refusal::Refusal;
use super::topics;

/// Returns the canonical form of a value.
///
/// The fields of nested groups are not converted here, because they have kinds of their own.
pub(super) fn coerce(kind: &FieldKind, value: Value) -> Result<Value, Refusal> {
    match kind {
        FieldKind::Custom(kind) => (kind.read)(&value),
        FieldKind::Properties => topics::properties(&value),
        _ => plain(kind, value.clone()).ok_or_else(|| Refusal::new("", value, &kind.expected())),
    }
}

/// Returns the canonical form of a value, or `None` if the kind does not accept it.
fn plain(kind: &FieldKind, value: Value) -> Option<Value> {
    match kind {
        FieldKind::Bool => lenient_bool(&value).map(Value::from),
        FieldKind::Int { min, max } => integer(&value).filter(|number| (min..=max).contains(&number)).map(Value::from),
        FieldKind::Float { min, max } => {
            float(&value).filter(|number| (min..=max).contains(&number)).and_then(Number::from_f64).map(Value::Number)
        }
        FieldKind::Text => value.is_string().then_some(value),
        FieldKind::NonEmptyText => value.as_str().is_some_and(|text| !text.is_empty()).then_some(value),
        FieldKind::Choice(words) => {
            let text = value.as_str()?;
            words.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| Value::from(*word))
        }
        FieldKind::Route => {
            value.as_str().is_some_and(|path| path.is_empty() || path.starts_with('/')).then_some(value)
        }
        FieldKind::TextList => {
            value.as_array().is_some_and(|items| items.iter().all(Value::is_string)).then_some(value)
        }
        FieldKind::IntList => {
            let items = value.as_array()?;
            let numbers: Option<Vec<i64>> = items.iter().map(integer).collect();
            numbers.map(Value::from)
        }
        FieldKind::Object | FieldKind::Group(_) => value.is_object().then_some(value),
        FieldKind::ObjectList => {
            value.as_array().is_some_and(|items| items.iter().all(Value::is_object)).then_some(value)
        }
        FieldKind::GroupList(_) => value.is_array().then_some(value),
        FieldKind::ObjectOrText => (value.is_object() || value.is_string()).then_some(value),
        FieldKind::Custom(_) | FieldKind::Properties => None,
    }
}

/// Converts a boolean, which may also be a word, or 0 or 1.
pub fn lenient_bool(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Number(number) => match number.as_f64()? {
            0.0 => Some(false),
            1.0 => Some(true),
            _ => None,
        },
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" | "t" | "y" => Some(true),
            "false" | "0" | "no" | "off" | "f" | "n" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Bool(value) => Some(i64::from(*value)),
        Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => {
            let digits = without_separators(text.trim())?;
            let whole_part = match digits.split_once('.') {
                Some((whole_part, zeros)) if zeros.bytes().all(|byte| byte == b'0') => whole_part,
                Some(_) => return None,
                None => &digits,
            };
            whole_part.parse().ok()
        }
        _ => None,
    }
}

/// Converts a float to an integer, or returns `None` if it has a fraction or is not exact.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() != 0.0 || number.abs() > EXACT {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 53 bits fits")]
    Some(number as i64)
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::Number(number) => number.as_f64(),
        Value::String(text) => without_separators(text.trim())?.parse().ok().filter(|number: &f64| number.is_finite()),
        _ => None,
    }
}

/// Removes the underscores of Python's `1_000`, which may only stand between digits.
fn without_separators(text: &str) -> Option<String> {
    let groups: Vec<&str> = text.split('_').collect();
    let separated = groups.windows(2).all(|pair| {
        pair[0].ends_with(|last: char| last.is_ascii_digit())
            && pair[1].starts_with(|first: char| first.is_ascii_digit())
    });
    separated.then(|| groups.concat())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const INT: FieldKind = FieldKind::Int { min: -5, max: 5000 };
    const FLOAT: FieldKind = FieldKind::Float { min: 0.0, max: 10.0 };

    fn coerce(kind: &FieldKind, value: Value) -> Option<Value> {
        super::coerce(kind, value).ok()
    }

    #[test]
    fn booleans_are_words_or_bits() {
        for yes in [json!(true), json!(1), json!(1.0), json!("1"), json!("true"), json!("TRUE")] {
            assert_eq!(coerce(&FieldKind::Bool, yes.clone()), Some(json!(true)), "{yes}");
        }
        for word in ["yes", "Yes", "on", "t", "y", "T", "Y"] {
            assert_eq!(coerce(&FieldKind::Bool, json!(word)), Some(json!(true)), "{word}");
        }
        for word in ["0", "false", "no", "off", "f", "n", "OFF"] {
            assert_eq!(coerce(&FieldKind::Bool, json!(word)), Some(json!(false)), "{word}");
        }
        for bad in [json!(2), json!("maybe"), json!(""), json!(" true"), json!(null), json!([])] {
            assert_eq!(coerce(&FieldKind::Bool, bad.clone()), None, "{bad}");
        }
    }

    #[test]
    fn integers_may_be_text_but_not_fractions() {
        let cases = [
            (json!(7), Some(7)),
            (json!(7.0), Some(7)),
            (json!(true), Some(1)),
            (json!("7"), Some(7)),
            (json!(" 7 "), Some(7)),
            (json!("+7"), Some(7)),
            (json!("-5"), Some(-5)),
            (json!("1_000"), Some(1000)),
            (json!("7.00"), Some(7)),
            (json!("7."), Some(7)),
            (json!(7.5), None),
            (json!("7.5"), None),
            (json!("1__0"), None),
            (json!("_1"), None),
            (json!("7e1"), None),
            (json!(""), None),
            (json!(-6), None),
            (json!(5001), None),
            (json!(1e300), None),
            (json!(u64::MAX), None),
            (json!("99999999999999999999"), None),
            (json!(null), None),
            (json!([1]), None),
        ];
        for (value, expected) in cases {
            assert_eq!(coerce(&INT, value.clone()), expected.map(Value::from), "{value}");
        }
    }

    #[test]
    fn numbers_may_be_text_and_are_finite() {
        let cases = [
            (json!(1), Some(1.0)),
            (json!(0.5), Some(0.5)),
            (json!("0.5"), Some(0.5)),
            (json!(" 1e0 "), Some(1.0)),
            (json!(false), Some(0.0)),
            (json!("inf"), None),
            (json!("nan"), None),
            (json!(-0.1), None),
            (json!(10.1), None),
            (json!("fast"), None),
        ];
        for (value, expected) in cases {
            assert_eq!(coerce(&FLOAT, value.clone()), expected.map(Value::from), "{value}");
        }
    }

    #[test]
    fn text_is_strict() {
        assert_eq!(coerce(&FieldKind::Text, json!("1")), Some(json!("1")));
        for bad in [json!(1), json!(true), json!(null), json!({})] {
            assert_eq!(coerce(&FieldKind::Text, bad.clone()), None, "{bad}");
        }
        assert_eq!(coerce(&FieldKind::NonEmptyText, json!("x")), Some(json!("x")));
        assert_eq!(coerce(&FieldKind::NonEmptyText, json!("")), None);
        assert_eq!(coerce(&FieldKind::TextList, json!(["a"])), Some(json!(["a"])));
        assert_eq!(coerce(&FieldKind::TextList, json!(["a", 1])), None);
        assert_eq!(coerce(&FieldKind::TextList, json!("a")), None);
    }

    #[test]
    fn routes_start_with_a_slash() {
        let choice = FieldKind::Choice(&["a", "b"]);
        assert_eq!(coerce(&choice, json!("b")), Some(json!("b")));
        assert_eq!(coerce(&choice, json!("B")), Some(json!("b")));
        for bad in [json!("ab"), json!(""), json!(null), json!(0)] {
            assert_eq!(coerce(&choice, bad.clone()), None, "{bad}");
        }
        assert_eq!(coerce(&FieldKind::Route, json!("/metrics")), Some(json!("/metrics")));
        assert_eq!(coerce(&FieldKind::Route, json!("")), Some(json!("")));
        assert_eq!(coerce(&FieldKind::Route, json!("metrics")), None);
    }

    #[test]
    fn lists_of_integers_are_lenient_per_item() {
        assert_eq!(coerce(&FieldKind::IntList, json!([-1, "3", 2.0])), Some(json!([-1, 3, 2])));
        assert_eq!(coerce(&FieldKind::IntList, json!([1, "x"])), None);
    }
}
