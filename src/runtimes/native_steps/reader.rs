//! Reads the settings of a step, and names the key of everything that is not as it should be.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::StepOutput;
use super::error::SettingProblem;

/// The most items of a list or table.
pub(super) const MAX_ITEMS: usize = 1 << 16;

/// The most outputs of a step.
const MAX_OUTPUTS: usize = 1 << 10;

/// The most bytes of a value that a message repeats.
const MAX_SHOWN: usize = 100;

/// A value in the settings, with its key.
#[derive(Debug, Clone)]
pub(super) struct SettingReader<'a> {
    key: String,
    value: SettingValue<'a>,
}

#[derive(Debug, Clone, Copy)]
enum SettingValue<'a> {
    Object(&'a Map<String, Value>),
    Other(&'a Value),
}

impl<'a> SettingReader<'a> {
    pub(super) fn object(key: &str, object: &'a Map<String, Value>) -> Self {
        Self { key: key.to_owned(), value: SettingValue::Object(object) }
    }

    fn value(key: String, value: &'a Value) -> Self {
        let value = value.as_object().map_or(SettingValue::Other(value), SettingValue::Object);
        Self { key, value }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Returns the value, unless it is an object.
    pub(super) const fn scalar(&self) -> Option<&'a Value> {
        match self.value {
            SettingValue::Object(_) => None,
            SettingValue::Other(value) => Some(value),
        }
    }

    /// Checks that the value is an object without other keys.
    pub(super) fn known(&self, names: &[&str]) -> Result<(), SettingProblem> {
        let expected = || names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let SettingValue::Object(object) = self.value else {
            return Err(self.unexpected(format!("an object with {}", expected())));
        };
        match object.keys().find(|key| !names.contains(&key.as_str())) {
            Some(key) => Err(SettingProblem::Unknown { key: self.key_of(key), expected: expected() }),
            None => Ok(()),
        }
    }

    /// Returns a value of the object, or `None` if it is missing or null.
    pub(super) fn optional(&self, name: &str) -> Option<Self> {
        let SettingValue::Object(object) = self.value else { return None };
        let value = object.get(name).filter(|value| !value.is_null())?;
        Some(Self::value(self.key_of(name), value))
    }

    /// Returns a value of the object.
    pub(super) fn required(&self, name: &str, expected: &str) -> Result<Self, SettingProblem> {
        let missing = || SettingProblem::Missing { key: self.key_of(name), expected: expected.to_owned() };
        self.optional(name).ok_or_else(missing)
    }

    /// Returns the keys and values of an object.
    pub(super) fn entries(&self) -> Option<impl ExactSizeIterator<Item = (&'a str, Self)>> {
        let SettingValue::Object(object) = self.value else { return None };
        Some(object.iter().map(|(key, value)| (key.as_str(), Self::value(self.key_of(key), value))))
    }

    fn key_of(&self, name: &str) -> String {
        format!("{}.{}", self.key, crate::types::short(name))
    }

    /// Returns the error for a value that is not the expected one.
    pub(super) fn unexpected(&self, expected: impl Into<String>) -> SettingProblem {
        let found = match self.value {
            SettingValue::Object(_) => "an object".to_owned(),
            SettingValue::Other(Value::Array(items)) if items.len() > 8 => format!("a list of {} items", items.len()),
            SettingValue::Other(value) => {
                let text = value.to_string();
                match text.floor_char_boundary(MAX_SHOWN) {
                    end if end < text.len() => format!("`{}...`", &text[..end]),
                    _ => format!("`{text}`"),
                }
            }
        };
        SettingProblem::Value { key: self.key.clone(), found, expected: expected.into() }
    }

    /// Reads a text that is not empty.
    pub(super) fn text(&self) -> Result<String, SettingProblem> {
        let text = self.scalar().and_then(Value::as_str).filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| self.unexpected("a text"))
    }

    /// Reads `true` or `false`.
    pub(super) fn flag(&self) -> Result<bool, SettingProblem> {
        self.scalar().and_then(Value::as_bool).ok_or_else(|| self.unexpected("`true` or `false`"))
    }

    /// Reads a position in a list, which may be negative.
    pub(super) fn position(&self) -> Result<i64, SettingProblem> {
        self.scalar().and_then(Value::as_i64).ok_or_else(|| self.unexpected("an integer"))
    }

    /// Reads a finite number.
    pub(super) fn number(&self) -> Result<f64, SettingProblem> {
        let number = self.scalar().and_then(Value::as_f64).filter(|number| number.is_finite());
        number.ok_or_else(|| self.unexpected("a number"))
    }

    /// Reads a list with at least one item.
    pub(super) fn list<T>(
        &self,
        most: usize,
        items: &str,
        read: impl Fn(&Self) -> Result<T, SettingProblem>,
    ) -> Result<Vec<T>, SettingProblem> {
        let list = self.scalar().and_then(Value::as_array).filter(|list| (1..=most).contains(&list.len()));
        let list = list.ok_or_else(|| self.unexpected(format!("a list of 1 to {most} {items}")))?;
        let read = |(index, value)| read(&Self::value(format!("{}[{index}]", self.key), value));
        list.iter().enumerate().map(read).collect()
    }

    /// Reads the setting `outputs`, whose items have different names.
    pub(super) fn outputs(
        &self,
        read: impl Fn(&Self) -> Result<StepOutput, SettingProblem>,
    ) -> Result<Vec<StepOutput>, SettingProblem> {
        let list = self.required("outputs", "a list of outputs")?;
        let outputs = list.list(MAX_OUTPUTS, "outputs", read)?;
        let mut names = HashSet::new();
        match outputs.iter().position(|output| !names.insert(output.name.as_str())) {
            Some(index) => Err(SettingProblem::Value {
                key: format!("{}[{index}].name", list.key),
                found: format!("`{}`, the name of another output", outputs[index].name),
                expected: "a name of its own".to_owned(),
            }),
            None => Ok(outputs),
        }
    }
}
