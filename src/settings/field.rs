//! The building blocks of the tables of settings: fields, the values they accept, and their defaults.

use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};

/// A named set of fields that are read from one object, and from environment variables with one prefix.
#[derive(Debug)]
pub struct SettingGroup {
    /// The name of the group in messages.
    pub title: &'static str,
    /// The prefix of its environment variables; if `None`, the group is read only from files.
    pub env_prefix: Option<&'static str>,
    /// The fields, in display order.
    pub fields: &'static [SettingField],
    /// How unknown keys are handled.
    pub unknown: UnknownKeys,
}

/// How keys that are not in the table are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownKeys {
    /// They are ignored with a warning, and rejected in strict mode.
    Warn,
    /// They are kept for the runtime, under `extras`.
    Keep,
}

/// One setting.
#[derive(Debug)]
pub struct SettingField {
    pub name: &'static str,
    pub kind: FieldKind,
    pub preset: FieldDefault,
    pub null: NullHandling,
    pub help: &'static str,
    pub availability: Availability,
    pub original: Original,
}

/// The kind of values that a field accepts.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    Bool,
    Int {
        min: i64,
        max: i64,
    },
    Float {
        min: f64,
        max: f64,
    },
    Text,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// The path of an HTTP route; the empty string disables the route.
    Route,
    TextList,
    IntList,
    Object,
    ObjectList,
    /// A path, or an object in its place.
    ObjectOrText,
    /// A nested object with fields of its own.
    Group(&'static SettingGroup),
    /// A list of such objects.
    GroupList(&'static SettingGroup),
}

/// The value of a field that no source sets.
#[derive(Debug, Clone, Copy)]
pub enum FieldDefault {
    /// There is no default: a source must set the field.
    Required,
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'static str),
    TextList(&'static [&'static str]),
    EmptyObject,
    /// A path relative to the working directory.
    InWorkingDirectory(&'static str),
}

/// How an explicit `null` is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullHandling {
    Refused,
    Allowed,
    /// It is the same as omitting the field.
    UseDefault,
}

/// Whether a value has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Supported,
    /// The value is read and checked, but not supported yet. Holds what happens instead.
    NotYet(&'static str),
    /// The field is accepted but has no effect. Holds the reason.
    NoEffect(&'static str),
}

/// What a setting means in MLServer 1.7.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Original {
    /// The same as here.
    Same,
    /// It does not exist there.
    Absent,
    /// Something else.
    Different(&'static str),
}

impl SettingField {
    pub(super) const fn new(name: &'static str, kind: FieldKind, preset: FieldDefault, help: &'static str) -> Self {
        let null = match preset {
            FieldDefault::Null => NullHandling::Allowed,
            _ => NullHandling::Refused,
        };
        Self { name, kind, preset, null, help, availability: Availability::Supported, original: Original::Same }
    }

    /// Accepts an explicit `null`.
    pub(super) const fn nullable(mut self) -> Self {
        self.null = NullHandling::Allowed;
        self
    }

    /// Reads an explicit `null` as the default.
    pub(super) const fn null_is_preset(mut self) -> Self {
        self.null = NullHandling::UseDefault;
        self
    }

    /// Marks a setting that MLServer 1.7.1 does not have.
    pub(super) const fn new_here(mut self) -> Self {
        self.original = Original::Absent;
        self
    }

    /// Says what the setting means in MLServer 1.7.1, if that is not the same.
    pub(super) const fn in_original(mut self, difference: &'static str) -> Self {
        self.original = Original::Different(difference);
        self
    }

    pub(super) const fn not_yet(mut self, instead: &'static str) -> Self {
        self.availability = Availability::NotYet(instead);
        self
    }

    pub(super) const fn no_effect(mut self, reason: &'static str) -> Self {
        self.availability = Availability::NoEffect(reason);
        self
    }
}

impl SettingGroup {
    /// Returns the field's environment variable in upper case, or `None` if the group is read only from files.
    pub fn env_name(&self, field: &SettingField) -> Option<String> {
        self.env_prefix.map(|prefix| format!("{prefix}{}", field.name.to_uppercase()))
    }

    /// Returns the field with the given name.
    pub fn field(&self, name: &str) -> Option<&'static SettingField> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl FieldKind {
    /// Describes the values that the kind accepts.
    pub fn expected(&self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Int { min, max } => match (*min > i64::MIN, *max < i64::MAX) {
                (true, true) => format!("an integer from {min} to {max}"),
                (true, false) => format!("an integer of at least {min}"),
                (false, _) => "an integer".to_owned(),
            },
            Self::Float { min, max } => {
                if min.is_finite() {
                    format!("a number from {min} to {max}")
                } else {
                    format!("a number up to {max}")
                }
            }
            Self::Text => "a string".to_owned(),
            Self::Choice(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                format!("one of {}", words.join(", "))
            }
            Self::Route => "a path that starts with `/`, or an empty string".to_owned(),
            Self::TextList => "a list of strings".to_owned(),
            Self::IntList => "a list of integers".to_owned(),
            Self::Object | Self::Group(_) => "an object".to_owned(),
            Self::ObjectOrText => "a path or an object".to_owned(),
            Self::GroupList(_) | Self::ObjectList => "a list of objects".to_owned(),
        }
    }

    /// Returns whether an environment variable of this kind contains JSON.
    pub fn is_json_in_environment(&self) -> bool {
        matches!(
            self,
            Self::TextList | Self::IntList | Self::Object | Self::ObjectList | Self::Group(_) | Self::GroupList(_)
        )
    }
}

impl fmt::Display for Original {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "the same",
            Self::Absent => "does not exist",
            Self::Different(difference) => difference,
        })
    }
}

/// Displays the default as documents show it.
impl fmt::Display for FieldDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required => f.write_str("required"),
            Self::InWorkingDirectory(name) => write!(f, "\"./{name}\""),
            other => match other.value(Path::new("")) {
                Some(value) => write!(f, "{value}"),
                None => Ok(()),
            },
        }
    }
}

impl FieldDefault {
    /// Returns the default as a value, or `None` if a source must set the field.
    pub(super) fn value(&self, working_directory: &Path) -> Option<Value> {
        Some(match *self {
            Self::Required => return None,
            Self::Null => Value::Null,
            Self::Bool(value) => Value::from(value),
            Self::Int(value) => Value::from(value),
            Self::Float(value) => Value::from(value),
            Self::Text(value) => Value::from(value),
            Self::TextList(values) => Value::from(values),
            Self::EmptyObject => Value::Object(Map::new()),
            Self::InWorkingDirectory(name) => Value::from(working_directory.join(name).to_string_lossy().into_owned()),
        })
    }
}
