//! Merges the sources of a group, field by field, into one object of canonical values.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::coerce::coerce;
use super::env::Sources;
use super::field::{Availability, Field, Group, Kind, Null, Unknown};
use super::nearest::nearest;
use super::problem::{Problem, SettingsError, Warning};
use super::source::{Entry, Source};

/// The key under which a group's unknown keys reach its struct.
pub(super) const EXTRAS: &str = "extras";

/// An object of values and the source which holds it.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) object: Map<String, Value>,
    pub(super) source: Source,
}

/// Settings with the source of every value and what an operator should know about them.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    pub settings: T,
    /// Every effective value, in the order of the tables.
    pub entries: Vec<Entry>,
    pub warnings: Vec<Warning>,
}

impl<T> Loaded<T> {
    /// Replaces the value that is shown for a key.
    pub(super) fn show(&mut self, key: &str, value: impl Into<Value>, source: Source) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == key) {
            entry.value = value.into();
            entry.source = source;
        }
    }
}

/// Collects values, and everything that is wrong with them, from all sources of a group.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    sources: &'a Sources,
    strict: bool,
    entries: Vec<Entry>,
    warnings: Vec<Warning>,
    problems: Vec<Problem>,
}

/// A value that a source offers for a field.
struct Candidate {
    raw: Raw,
    source: Source,
}

enum Raw {
    Json(Value),
    /// The text of an environment variable.
    Text(String),
}

impl<'a> Resolver<'a> {
    pub(super) fn new(sources: &'a Sources, strict: bool) -> Self {
        Self { sources, strict, entries: Vec::new(), warnings: Vec::new(), problems: Vec::new() }
    }

    /// Notes a problem that was found before the fields were looked at.
    pub(super) fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(super) fn warn(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        self.warnings.extend(warnings);
    }

    /// Resolves a group from its layers, the winner first, and the variables below them.
    pub(super) fn finish<T: DeserializeOwned>(
        mut self,
        group: &'static Group,
        layers: &[Layer],
    ) -> Result<Loaded<T>, SettingsError> {
        let values = self.group(group, "", layers);
        if !self.problems.is_empty() {
            return Err(SettingsError { problems: self.problems });
        }
        let settings =
            T::deserialize(Value::Object(values)).expect("the tables and the structs agree, as a test checks");
        Ok(Loaded { settings, entries: self.entries, warnings: self.warnings })
    }

    fn group(&mut self, group: &'static Group, prefix: &str, layers: &[Layer]) -> Map<String, Value> {
        let mut values = Map::new();
        for field in group.fields {
            let key = format!("{prefix}{}", field.name);
            let candidates = self.candidates(group, field, layers);
            let value = match field.kind {
                Kind::Group(inner) => self.nested(inner, field, &key, candidates),
                Kind::GroupList(inner) => self.list(inner, field, &key, candidates),
                _ if candidates.is_empty() => self.preset(group, field, &key, layers),
                _ => self.plain(field, &key, candidates),
            };
            if let Some(value) = value {
                values.insert(field.name.to_owned(), value);
            }
        }
        match group.unknown {
            Unknown::Warn => self.refuse_unknown(group, prefix, layers),
            Unknown::Keep => {
                values.insert(EXTRAS.to_owned(), self.keep_unknown(group, prefix, layers));
            }
        }
        values
    }

    /// Returns what every source offers for a field, the winner first.
    fn candidates(&self, group: &Group, field: &Field, layers: &[Layer]) -> Vec<Candidate> {
        let in_layers = layers.iter().filter_map(|layer| {
            let value = layer.object.get(field.name)?;
            Some(Candidate { raw: Raw::Json(value.clone()), source: layer.source.clone() })
        });
        let mut candidates: Vec<Candidate> = in_layers.collect();
        if let Some(name) = group.env_name(field) {
            candidates.extend(
                self.sources.lookup(&name).map(|(text, source)| Candidate { raw: Raw::Text(text.to_owned()), source }),
            );
        }
        candidates
    }

    fn preset(&mut self, group: &Group, field: &'static Field, key: &str, layers: &[Layer]) -> Option<Value> {
        if let Some(value) = field.preset.value(self.sources.working_directory()) {
            self.record(key, &value, Source::Default);
            return Some(value);
        }
        self.problems.push(Problem::Missing {
            key: key.to_owned(),
            file: layers.iter().find_map(|layer| match &layer.source {
                Source::File(path) => Some(path.to_path_buf()),
                _ => None,
            }),
            variable: group.env_name(field),
        });
        None
    }

    fn plain(&mut self, field: &'static Field, key: &str, candidates: Vec<Candidate>) -> Option<Value> {
        let Candidate { raw, source } = candidates.into_iter().next()?;
        let value = self.accept(field, key, raw, &source)?;
        self.note_availability(field, key, &value, &source);
        self.record(key, &value, source);
        Some(value)
    }

    /// Resolves an object with fields of its own: each of them is looked for in every source that holds the object.
    fn nested(
        &mut self,
        inner: &'static Group,
        field: &'static Field,
        key: &str,
        candidates: Vec<Candidate>,
    ) -> Option<Value> {
        let mut layers = Vec::new();
        for Candidate { raw, source } in candidates {
            match self.accept(field, key, raw, &source)? {
                Value::Object(object) => layers.push(Layer { object, source }),
                null if layers.is_empty() => {
                    self.record(key, &null, source);
                    return Some(null);
                }
                // An explicit null hides the object in the sources below.
                _ => break,
            }
        }
        if layers.is_empty() && field.null == Null::Allowed {
            self.record(key, &Value::Null, Source::Default);
            return Some(Value::Null);
        }
        let values = self.group(inner, &format!("{key}."), &layers);
        Some(Value::Object(values))
    }

    fn list(
        &mut self,
        inner: &'static Group,
        field: &'static Field,
        key: &str,
        candidates: Vec<Candidate>,
    ) -> Option<Value> {
        let Some(Candidate { raw, source }) = candidates.into_iter().next() else {
            let empty = Value::Array(Vec::new());
            self.record(key, &empty, Source::Default);
            return Some(empty);
        };
        let Value::Array(items) = self.accept(field, key, raw, &source)? else {
            return None;
        };
        let shown = self.entries.len();
        let values = items.into_iter().enumerate().map(|(index, item)| {
            let key = format!("{key}[{index}]");
            let Value::Object(object) = item else {
                self.problems.push(Problem::Invalid {
                    key,
                    value: item,
                    expected: "an object".to_owned(),
                    source_of: source.clone(),
                });
                return Value::Null;
            };
            let layer = Layer { object, source: source.clone() };
            Value::Object(self.group(inner, &format!("{key}."), &[layer]))
        });
        let values = Value::Array(values.collect());
        // The list is shown as one value.
        self.entries.truncate(shown);
        self.record(key, &values, source);
        Some(values)
    }

    /// Returns the canonical form of a value, or notes why there is none.
    fn accept(&mut self, field: &Field, key: &str, raw: Raw, source: &Source) -> Option<Value> {
        let expected = || field.kind.expected();
        let value = match raw {
            Raw::Json(value) => value,
            Raw::Text(text) if field.kind.is_json_in_environment() => match serde_json::from_str(&text) {
                Ok(value) => value,
                Err(error) => {
                    self.problems.push(Problem::InvalidJson {
                        key: key.to_owned(),
                        text,
                        expected: expected(),
                        error,
                        source_of: source.clone(),
                    });
                    return None;
                }
            },
            Raw::Text(text) => match field.kind {
                Kind::ObjectOrText => serde_json::from_str(&text).unwrap_or(Value::String(text)),
                _ => Value::String(text),
            },
        };
        if value.is_null() {
            match field.null {
                Null::Allowed => return Some(Value::Null),
                Null::Preset => return field.preset.value(self.sources.working_directory()),
                Null::Refused => {}
            }
        }
        let canonical = coerce(&field.kind, value.clone());
        if canonical.is_none() {
            self.problems.push(Problem::Invalid {
                key: key.to_owned(),
                value,
                expected: expected(),
                source_of: source.clone(),
            });
        }
        canonical
    }

    /// Warns of a value that asks for something which the server does not do.
    fn note_availability(&mut self, field: &Field, key: &str, value: &Value, source: &Source) {
        let preset = field.preset.value(self.sources.working_directory());
        if preset.as_ref() == Some(value) {
            return;
        }
        let key = key.to_owned();
        let source_of = source.clone();
        match field.availability {
            Availability::Served => {}
            Availability::NotYet(instead) => self.warnings.push(Warning::NotServed { key, instead, source_of }),
            Availability::NoEffect(reason) => self.warnings.push(Warning::NoEffect { key, reason, source_of }),
        }
    }

    fn refuse_unknown(&mut self, group: &'static Group, prefix: &str, layers: &[Layer]) {
        for layer in layers {
            for name in layer.object.keys().filter(|name| group.field(name).is_none()) {
                let key = format!("{prefix}{name}");
                let nearest = suggestion(group, name).map(|found| format!("{prefix}{found}"));
                let source_of = layer.source.clone();
                if self.strict {
                    self.problems.push(Problem::UnknownKey { key, nearest, source_of });
                } else {
                    self.warnings.push(Warning::UnknownKey { key, nearest, source_of });
                }
            }
        }
    }

    fn keep_unknown(&mut self, group: &'static Group, prefix: &str, layers: &[Layer]) -> Value {
        let mut extras = Map::new();
        for layer in layers {
            for (name, value) in &layer.object {
                if group.field(name).is_none() && !extras.contains_key(name) {
                    self.record(&format!("{prefix}{name}"), value, layer.source.clone());
                    extras.insert(name.clone(), value.clone());
                }
            }
        }
        Value::Object(extras)
    }

    fn record(&mut self, key: &str, value: &Value, source: Source) {
        self.entries.push(Entry { key: key.to_owned(), value: value.clone(), source });
    }
}

/// Returns the key that was meant: one that belongs into a nested object, or one that is spelt almost the same.
fn suggestion(group: &'static Group, name: &str) -> Option<String> {
    let inner = group.fields.iter().find_map(|field| match field.kind {
        Kind::Group(inner) => inner.field(name).map(|found| format!("{}.{}", field.name, found.name)),
        _ => None,
    });
    inner.or_else(|| nearest(name, group.fields.iter().map(|field| field.name)).map(str::to_owned))
}
