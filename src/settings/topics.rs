//! Reads the settings of Kafka whose values have rules of their own: topics, models by topic, and properties of the client.

use serde_json::{Map, Value};

use super::field::CustomKind;
use super::refusal::Refusal;
use crate::types::LONGEST_TOPIC;

/// The name of a topic.
pub(super) static TOPIC: CustomKind = CustomKind { expected: "a topic", is_json: |_| false, read: topic };

/// Topics to subscribe to: text, or a list.
pub(super) static TOPICS: CustomKind = CustomKind {
    expected: "topics, separated by commas or as a list, or a regular expression that begins with `^`",
    is_json: |text| text.trim_start().starts_with('['),
    read: topics,
};

/// An object of the names of models by topic.
pub(super) static TOPIC_MODELS: CustomKind =
    CustomKind { expected: "an object of models by topic", is_json: |_| true, read: topic_models };

/// Reads the name of a topic.
fn topic(value: &Value) -> Result<Value, Refusal> {
    let expected = match value.as_str() {
        Some(name) => match topic_rule(name) {
            None => return Ok(value.clone()),
            Some(expected) => expected,
        },
        None => "a topic",
    };
    Err(Refusal::new("", value.clone(), expected))
}

/// Returns the rule that the name of a topic breaks, if any.
fn topic_rule(name: &str) -> Option<&'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() {
        Some("the name of a topic, which is not empty")
    } else if !name.bytes().all(is_allowed) {
        Some("a topic of letters, digits, `.`, `_` and `-`")
    } else if name.len() > LONGEST_TOPIC {
        Some("a topic of at most 249 characters")
    } else if matches!(name, "." | "..") {
        Some("a topic other than `.` and `..`")
    } else {
        None
    }
}

/// Reads topics to subscribe to, into a list: one, several with commas between them, or a list. What begins with `^` is a regular
/// expression, and is kept whole.
fn topics(value: &Value) -> Result<Value, Refusal> {
    // As the SDK's settings write the text of a variable into a file.
    if let Value::String(text) = value
        && text.trim_start().starts_with('[')
        && let Ok(list @ Value::Array(_)) = serde_json::from_str(text)
    {
        return topics(&list);
    }
    let topics: Vec<(String, Value)> = match value {
        Value::String(text) if is_pattern(text) => return Ok(Value::from(vec![text.trim()])),
        Value::String(text) => text.split(',').map(|name| (String::new(), Value::from(name.trim()))).collect(),
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().map(|(index, item)| (format!("[{index}]"), item.clone())).collect()
        }
        Value::Array(_) => return Err(Refusal::new("", value.clone(), "at least one topic")),
        _ => return Err(Refusal::new("", value.clone(), "a topic, or a list of topics")),
    };
    let mut read: Vec<Value> = Vec::new();
    for (inside, name) in topics {
        let name = if name.as_str().is_some_and(is_pattern) {
            name
        } else {
            topic(&name).map_err(|refusal| Refusal { inside, ..refusal })?
        };
        if !read.contains(&name) {
            read.push(name);
        }
    }
    Ok(Value::from(read))
}

/// Reports whether a text is a regular expression for topics.
fn is_pattern(text: &str) -> bool {
    text.trim_start().starts_with('^')
}

/// Reads the names of models by topic.
fn topic_models(value: &Value) -> Result<Value, Refusal> {
    let Value::Object(models) = value else {
        return Err(Refusal::new("", value.clone(), "an object of models by topic"));
    };
    for (name, model) in models {
        if let Some(expected) = topic_rule(name) {
            return Err(Refusal::new("", Value::from(name.as_str()), expected));
        }
        if model.as_str().is_none_or(str::is_empty) {
            return Err(Refusal::new(&format!(".{name}"), model.clone(), "the name of a model"));
        }
    }
    Ok(value.clone())
}

/// Reads properties of the client: numbers and booleans become their text.
pub(super) fn properties(value: &Value) -> Result<Value, Refusal> {
    let Value::Object(properties) = value else {
        return Err(Refusal::new("", value.clone(), "an object of properties"));
    };
    let text = |(name, value): (&String, &Value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            other => {
                return Err(Refusal::new(&format!(".{name}"), other.clone(), "a string, a number, true or false"));
            }
        };
        Ok((name.clone(), Value::from(text)))
    };
    let read: Result<Map<String, Value>, Refusal> = properties.iter().map(text).collect();
    read.map(Value::Object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(read: Result<Value, Refusal>) -> (String, Value, String) {
        let Refusal { inside, value, expected } = read.unwrap_err();
        (inside, value, expected)
    }

    #[test]
    fn topics_are_text_with_commas_or_a_list() {
        let cases = [
            (json!("a"), json!(["a"])),
            (json!("a,b"), json!(["a", "b"])),
            (json!(" a , b.c_d-9 "), json!(["a", "b.c_d-9"])),
            (json!("a,a"), json!(["a"])),
            (json!(["a", "b"]), json!(["a", "b"])),
            (json!("^orders-(eu|us),?[0-9]{1,3}"), json!(["^orders-(eu|us),?[0-9]{1,3}"])),
            (json!(" ^a "), json!(["^a"])),
            (json!(["a", "^b{1,2}"]), json!(["a", "^b{1,2}"])),
            (json!(r#"["a", "^b"]"#), json!(["a", "^b"])),
            (json!("a".repeat(249)), json!(["a".repeat(249)])),
        ];
        for (value, expected) in cases {
            assert_eq!(topics(&value).ok(), Some(expected), "{value}");
        }
    }

    #[test]
    fn names_that_kafka_does_not_allow_are_refused() {
        let cases = [
            (json!(""), "", "", "not empty"),
            (json!("a,,b"), "", "", "not empty"),
            (json!("a,b c"), "", "b c", "letters, digits"),
            (json!("ä"), "", "ä", "letters, digits"),
            (json!(["a", "b,c"]), "[1]", "b,c", "letters, digits"),
            (json!("."), "", ".", "other than"),
            (json!("a,.."), "", "..", "other than"),
        ];
        for (value, at, found, rule) in cases {
            let (inside, refused, expected) = refused(topics(&value));
            assert_eq!((inside.as_str(), &refused), (at, &json!(found)), "{value}");
            assert!(expected.contains(rule), "{value}: {expected}");
        }
        assert!(refused(topics(&json!("a".repeat(250)))).2.contains("at most 249"));
        for value in [json!([]), json!(5), json!(null), json!({})] {
            assert_eq!(refused(topics(&value)).1, value);
        }
        assert_eq!(refused(topics(&json!(["a", 1]))).0, "[1]");
        assert_eq!(refused(topic(&json!("a,b"))).1, "a,b");
    }

    #[test]
    fn models_have_topics_and_names() {
        assert!(topic_models(&json!({"a": "iris"})).is_ok());
        assert_eq!(refused(topic_models(&json!({"a b": "iris"}))).1, "a b");
        assert_eq!(refused(topic_models(&json!({"a": ""}))).0, ".a");
        assert_eq!(refused(topic_models(&json!({"a": 1}))).0, ".a");
        assert_eq!(refused(topic_models(&json!("a"))).1, "a");
    }

    #[test]
    fn properties_are_text() {
        let read = properties(&json!({"a": "x", "b": 5, "c": 0.5, "d": true})).ok();
        assert_eq!(read, Some(json!({"a": "x", "b": "5", "c": "0.5", "d": "true"})));
        for value in [json!(null), json!([1]), json!({})] {
            assert_eq!(refused(properties(&json!({"linger.ms": value}))).0, ".linger.ms");
        }
        assert_eq!(refused(properties(&json!("linger.ms=5"))).1, "linger.ms=5");
    }
}
