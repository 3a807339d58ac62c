//! Merges the sources of a group, field by field, into one object of canonical values.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::coerce::coerce;
use super::env::SettingsSources;
use super::field::{Availability, FieldKind, NullHandling, SettingField, SettingGroup, SettingRow, UnknownKeys};
use super::nearest::nearest;
use super::problem::{SettingsError, SettingsProblem, SettingsWarning};
use super::refusal::Refusal;
use super::source::{SettingEntry, SettingSource};
use crate::types::with_hidden_credentials;

/// The key under which a group's struct receives unknown keys.
pub(super) const EXTRAS: &str = "extras";

/// An object of values and its source.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) object: Map<String, Value>,
    pub(super) source: SettingSource,
}

/// Settings with the source of every value, and warnings about them.
#[derive(Debug, Clone)]
pub struct LoadedSettings<T> {
    pub settings: T,
    /// Every effective value, in the order of the tables.
    pub entries: Vec<SettingEntry>,
    pub warnings: Vec<SettingsWarning>,
}

impl<T> LoadedSettings<T> {
    /// Replaces the value that is displayed for a key.
    pub(super) fn show(&mut self, key: &str, value: impl Into<Value>, source: SettingSource) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == key) {
            entry.value = value.into();
            entry.source = source;
        }
    }
}

/// Collects the values of a group from all its sources, with all problems and warnings.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    sources: &'a SettingsSources,
    strict: bool,
    entries: Vec<SettingEntry>,
    warnings: Vec<SettingsWarning>,
    problems: Vec<SettingsProblem>,
}

/// A value that a source offers for a field.
struct Candidate {
    raw: Raw,
    source: SettingSource,
}

enum Raw {
    Json(Value),
    /// The text of an environment variable.
    Text(String),
}

impl<'a> Resolver<'a> {
    pub(super) fn new(sources: &'a SettingsSources, strict: bool) -> Self {
        Self { sources, strict, entries: Vec::new(), warnings: Vec::new(), problems: Vec::new() }
    }

    /// Adds a problem that was found before the fields are resolved.
    pub(super) fn problem(&mut self, problem: SettingsProblem) {
        self.problems.push(problem);
    }

    pub(super) fn warn(&mut self, warnings: impl IntoIterator<Item = SettingsWarning>) {
        self.warnings.extend(warnings);
    }

    /// Resolves a group from its layers, in descending precedence, and from variables, which have the lowest precedence.
    pub(super) fn finish<T: DeserializeOwned>(
        mut self,
        group: &'static SettingGroup,
        layers: &[Layer],
    ) -> Result<LoadedSettings<T>, SettingsError> {
        let values = self.group(group, "", layers);
        if !self.problems.is_empty() {
            return Err(SettingsError { problems: self.problems });
        }
        let settings = T::deserialize(Value::Object(values))
            .expect("the structs hold every value that the tables accept, as a test checks");
        Ok(LoadedSettings { settings, entries: self.entries, warnings: self.warnings })
    }

    fn group(&mut self, group: &'static SettingGroup, prefix: &str, layers: &[Layer]) -> Map<String, Value> {
        let mut values = self.rows(group.rows, group, prefix, layers);
        match group.unknown {
            UnknownKeys::Warn => self.refuse_unknown(group, prefix, layers),
            UnknownKeys::Keep => {
                values.insert(EXTRAS.to_owned(), self.keep_unknown(group, prefix, layers));
            }
        }
        values
    }

    /// Resolves rows of a group into an object that a struct is read from.
    fn rows(
        &mut self,
        rows: &'static [SettingRow],
        group: &'static SettingGroup,
        prefix: &str,
        layers: &[Layer],
    ) -> Map<String, Value> {
        let mut values = Map::new();
        for row in rows {
            let (member, value) = match row {
                SettingRow::Group { member, rows } => {
                    (member, Some(Value::Object(self.rows(rows, group, prefix, layers))))
                }
                SettingRow::Setting(field) => (&field.member, self.field(field, group, prefix, layers)),
            };
            values.extend(value.map(|value| ((*member).to_owned(), value)));
        }
        values
    }

    fn field(
        &mut self,
        field: &'static SettingField,
        group: &'static SettingGroup,
        prefix: &str,
        layers: &[Layer],
    ) -> Option<Value> {
        let key = format!("{prefix}{}", field.name);
        let candidates = self.candidates(group, field, layers);
        match field.kind {
            FieldKind::Group(inner) => self.nested(inner, field, &key, candidates),
            FieldKind::GroupList(inner) => self.list(inner, field, &key, candidates),
            _ if candidates.is_empty() => self.preset(group, field, &key, layers),
            _ => self.plain(field, &key, candidates),
        }
    }

    /// Returns the values of a field in all sources, in descending precedence.
    fn candidates(&self, group: &SettingGroup, field: &SettingField, layers: &[Layer]) -> Vec<Candidate> {
        let in_layer = |layer: &Layer| {
            let value = layer.object.get(field.name)?;
            Some(Candidate { raw: Raw::Json(value.clone()), source: layer.source.clone() })
        };
        let is_of_image = |layer: &&Layer| matches!(layer.source, SettingSource::Image(_));
        let is_of_script = |layer: &&Layer| matches!(layer.source, SettingSource::Script(_));
        let name = group.env_name(field);
        let variables = name.iter().flat_map(|name| self.sources.lookup(name));
        let variables = variables.map(|(text, source)| Candidate { raw: Raw::Text(text.to_owned()), source });
        let (environment, dotenv): (Vec<_>, Vec<_>) =
            variables.partition(|candidate| !matches!(candidate.source, SettingSource::Dotenv { .. }));
        let mut candidates: Vec<Candidate> =
            layers.iter().filter(|layer| !is_of_image(layer) && !is_of_script(layer)).filter_map(in_layer).collect();
        candidates.extend(environment);
        candidates.extend(layers.iter().filter(is_of_image).filter_map(in_layer));
        // Below the image's settings, as it is below the file from which they were copied.
        candidates.extend(dotenv);
        candidates.extend(layers.iter().filter(is_of_script).filter_map(in_layer));
        candidates
    }

    fn preset(
        &mut self,
        group: &SettingGroup,
        field: &'static SettingField,
        key: &str,
        layers: &[Layer],
    ) -> Option<Value> {
        if let Some(value) = field.preset.value(self.sources.working_directory()) {
            self.record(key, &value, SettingSource::Default);
            return Some(value);
        }
        self.problems.push(SettingsProblem::Missing {
            key: key.to_owned(),
            file: layers.iter().find_map(|layer| match &layer.source {
                SettingSource::File(path) => Some(path.to_path_buf()),
                _ => None,
            }),
            variable: group.env_name(field),
        });
        None
    }

    fn plain(&mut self, field: &'static SettingField, key: &str, candidates: Vec<Candidate>) -> Option<Value> {
        let Candidate { raw, source } = candidates.into_iter().next()?;
        let value = self.accept(field, key, raw, &source)?;
        self.note_availability(field, key, &value, &source);
        self.record(key, &field.shown(&value), source);
        Some(value)
    }

    /// Resolves an object with fields of its own. Each of them is looked up in every source that has the object.
    fn nested(
        &mut self,
        inner: &'static SettingGroup,
        field: &'static SettingField,
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
                // An explicit null hides the object in sources of lower precedence.
                _ => break,
            }
        }
        if layers.is_empty() && field.null == NullHandling::Allowed {
            self.record(key, &Value::Null, SettingSource::Default);
            return Some(Value::Null);
        }
        let values = self.group(inner, &format!("{key}."), &layers);
        Some(Value::Object(values))
    }

    fn list(
        &mut self,
        inner: &'static SettingGroup,
        field: &'static SettingField,
        key: &str,
        candidates: Vec<Candidate>,
    ) -> Option<Value> {
        let Some(Candidate { raw, source }) = candidates.into_iter().next() else {
            let empty = Value::Array(Vec::new());
            self.record(key, &empty, SettingSource::Default);
            return Some(empty);
        };
        let Value::Array(items) = self.accept(field, key, raw, &source)? else {
            return None;
        };
        let shown = self.entries.len();
        let values = items.into_iter().enumerate().map(|(index, item)| {
            let key = format!("{key}[{index}]");
            let Value::Object(object) = item else {
                self.problems.push(SettingsProblem::Invalid {
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
        // The list is displayed as one value.
        self.entries.truncate(shown);
        self.record(key, &values, source);
        Some(values)
    }

    /// Returns the canonical form of a value, or records the problem with it and returns `None`.
    fn accept(&mut self, field: &SettingField, key: &str, raw: Raw, source: &SettingSource) -> Option<Value> {
        let value = match raw {
            Raw::Json(value) => value,
            Raw::Text(text) if field.kind.is_json(&text) => match serde_json::from_str(&text) {
                Ok(value) => value,
                Err(error) => {
                    self.problems.push(SettingsProblem::InvalidJson {
                        key: key.to_owned(),
                        text: field.shown_text(&text),
                        expected: field.kind.expected(),
                        error,
                        source_of: source.clone(),
                    });
                    return None;
                }
            },
            Raw::Text(text) => match field.kind {
                FieldKind::ObjectOrText => serde_json::from_str(&text).unwrap_or(Value::String(text)),
                _ => Value::String(text),
            },
        };
        if value.is_null() {
            match field.null {
                NullHandling::Allowed => return Some(Value::Null),
                NullHandling::UseDefault => return field.preset.value(self.sources.working_directory()),
                NullHandling::Refused => {}
            }
        }
        match coerce(&field.kind, value) {
            Ok(canonical) => Some(canonical),
            Err(Refusal { inside, value, expected }) => {
                self.problems.push(SettingsProblem::Invalid {
                    key: format!("{key}{inside}"),
                    value: field.shown_part(&inside, &value),
                    expected,
                    source_of: source.clone(),
                });
                None
            }
        }
    }

    /// Warns if a value differs from the default but has no effect.
    fn note_availability(&mut self, field: &SettingField, key: &str, value: &Value, source: &SettingSource) {
        let preset = field.preset.value(self.sources.working_directory());
        if preset.as_ref() == Some(value) {
            return;
        }
        let key = key.to_owned();
        let source_of = source.clone();
        match field.availability {
            Availability::Supported => {}
            Availability::PositiveHasNoEffect(_) if value.as_i64().is_some_and(|number| number <= 0) => {}
            Availability::NoEffect(reason) | Availability::PositiveHasNoEffect(reason) => {
                self.warnings.push(SettingsWarning::NoEffect { key, reason, source_of });
            }
        }
    }

    fn refuse_unknown(&mut self, group: &'static SettingGroup, prefix: &str, layers: &[Layer]) {
        for layer in layers {
            for name in layer.object.keys().filter(|name| group.field(name).is_none()) {
                let key = format!("{prefix}{name}");
                let nearest = suggestion(group, name).map(|found| format!("{prefix}{found}"));
                let source_of = layer.source.clone();
                if self.strict {
                    self.problems.push(SettingsProblem::UnknownKey { key, nearest, source_of });
                } else {
                    self.warnings.push(SettingsWarning::UnknownKey { key, nearest, source_of });
                }
            }
        }
    }

    fn keep_unknown(&mut self, group: &'static SettingGroup, prefix: &str, layers: &[Layer]) -> Value {
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

    fn record(&mut self, key: &str, value: &Value, source: SettingSource) {
        self.entries.push(SettingEntry { key: key.to_owned(), value: with_hidden_credentials(value), source });
    }
}

/// Returns the key that was probably meant: one of a nested object, or one with a similar spelling.
pub(super) fn suggestion(group: &'static SettingGroup, name: &str) -> Option<String> {
    let inner = group.fields().find_map(|field| match field.kind {
        FieldKind::Group(inner) => inner.field(name).map(|found| format!("{}.{}", field.name, found.name)),
        _ => None,
    });
    inner.or_else(|| nearest(name, group.fields().map(|field| field.name)).map(str::to_owned))
}
