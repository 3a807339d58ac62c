//! The building blocks of the tables of settings: fields, the values they accept, and their defaults.

use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};

use super::refusal::Refusal;
use crate::types::{HIDDEN, is_secret_property};

/// Why a setting has no effect if the server lacks the feature. Depends on the build, so the reference does not mention it.
pub const WITHOUT_OTEL: &str = "the server was built without the feature `otel`";
pub const WITHOUT_STORAGE: &str = "the server was built without the feature `storage`";

/// A named set of fields that are read from one object, and from environment variables with one prefix.
#[derive(Debug)]
pub struct SettingGroup {
    /// The name of the group in messages.
    pub title: &'static str,
    /// The prefix of its environment variables; if `None`, the group is read only from files.
    pub env_prefix: Option<&'static str>,
    /// What the group consists of, in display order.
    pub(super) rows: &'static [SettingRow],
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

/// One row of a declaration.
#[derive(Debug)]
pub(super) enum SettingRow {
    Setting(SettingField),
    /// Settings that the struct holds in a struct of their own, `member`. Files do not have it.
    Group {
        member: &'static str,
        rows: &'static [Self],
    },
}

/// One setting.
#[derive(Debug)]
pub struct SettingField {
    pub name: &'static str,
    /// The name of the struct's field.
    pub(super) member: &'static str,
    pub kind: FieldKind,
    pub preset: FieldDefault,
    pub null: NullHandling,
    pub help: &'static str,
    pub availability: Availability,
    pub original: Original,
    /// Whether the value is never shown.
    pub secret: bool,
    /// Whether only the operator may set it, if there is a settings file of the operator.
    pub of_operator: bool,
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
    NonEmptyText,
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
    /// An object of properties of a client, some of which are secrets.
    Properties,
    /// A nested object with fields of its own.
    Group(&'static SettingGroup),
    /// A list of such objects.
    GroupList(&'static SettingGroup),
    /// Values with rules of their own.
    Custom(&'static CustomKind),
}

/// Values with rules of their own.
#[derive(Debug)]
pub struct CustomKind {
    pub(super) expected: &'static str,
    /// Returns whether the text of an environment variable is JSON.
    pub(super) is_json: fn(&str) -> bool,
    /// Returns the canonical form of a value.
    pub(super) read: fn(&Value) -> Result<Value, Refusal>,
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
    /// The field is accepted but has no effect. Holds the reason.
    NoEffect(&'static str),
    /// Only numbers up to 0 have an effect. Holds the reason.
    PositiveHasNoEffect(&'static str),
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
    pub(super) const fn new(
        name: &'static str,
        member: &'static str,
        kind: FieldKind,
        preset: FieldDefault,
        help: &'static str,
    ) -> Self {
        let null = match preset {
            FieldDefault::Null => NullHandling::Allowed,
            _ => NullHandling::Refused,
        };
        let (availability, original) = (Availability::Supported, Original::Same);
        Self { name, member, kind, preset, null, help, availability, original, secret: false, of_operator: false }
    }

    /// Never shows the value.
    pub(super) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Keeps files beside the models from setting the field, if there is a settings file of the operator.
    pub(super) const fn of_operator(mut self) -> Self {
        self.of_operator = true;
        self
    }

    /// Returns the form of a value that may be shown.
    pub(super) fn shown(&self, value: &Value) -> Value {
        match value {
            Value::Null => Value::Null,
            _ if self.secret => Value::from(HIDDEN),
            Value::Object(properties) if matches!(self.kind, FieldKind::Properties) => {
                let shown = |(name, value): (&String, &Value)| {
                    (name.clone(), if is_secret_property(name) { Value::from(HIDDEN) } else { value.clone() })
                };
                Value::Object(properties.iter().map(shown).collect())
            }
            _ => value.clone(),
        }
    }

    /// Returns the form of a part of a value that may be shown. `inside` is the part's name, as in [`Refusal`](super::refusal::Refusal).
    pub(super) fn shown_part(&self, inside: &str, value: &Value) -> Value {
        match self.kind {
            // Text in place of properties may contain any of them.
            FieldKind::Properties if is_secret_property(inside) || (inside.is_empty() && !value.is_object()) => {
                Value::from(HIDDEN)
            }
            _ => self.shown(value),
        }
    }

    /// Returns the form of a text that should have been JSON.
    pub(super) fn shown_text(&self, text: &str) -> String {
        let hides = self.secret || matches!(self.kind, FieldKind::Properties);
        if hides { HIDDEN.to_owned() } else { text.to_owned() }
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

    pub(super) const fn positive_has_no_effect(mut self, reason: &'static str) -> Self {
        self.availability = Availability::PositiveHasNoEffect(reason);
        self
    }

    pub(super) const fn no_effect_without_otel(self) -> Self {
        if cfg!(feature = "otel") { self } else { self.no_effect(WITHOUT_OTEL) }
    }

    pub(super) const fn no_effect_without_storage(self) -> Self {
        if cfg!(feature = "storage") { self } else { self.no_effect(WITHOUT_STORAGE) }
    }

    pub(super) const fn no_effect(mut self, reason: &'static str) -> Self {
        self.availability = Availability::NoEffect(reason);
        self
    }
}

impl SettingRow {
    /// Returns the settings of the row in display order.
    fn fields(&'static self) -> Vec<&'static SettingField> {
        match self {
            Self::Setting(field) => vec![field],
            Self::Group { rows, .. } => rows.iter().flat_map(Self::fields).collect(),
        }
    }
}

impl SettingGroup {
    /// Returns the field's environment variable in upper case, or `None` if the group is read only from files.
    pub fn env_name(&self, field: &SettingField) -> Option<String> {
        self.env_prefix.map(|prefix| format!("{prefix}{}", field.name.to_uppercase()))
    }

    /// Returns the field with the given name.
    pub fn field(&self, name: &str) -> Option<&'static SettingField> {
        self.fields().find(|field| field.name == name)
    }

    /// Returns the fields in display order.
    pub fn fields(&self) -> impl Iterator<Item = &'static SettingField> {
        self.rows.iter().flat_map(SettingRow::fields)
    }
}

/// About 30 years, so that adding a duration to a time never overflows.
const MAX_SECONDS: i64 = 1_000_000_000;

/// The kinds that several settings have.
impl FieldKind {
    pub(super) const PORT: Self = Self::int(0, u16::MAX as i64);
    /// An integer without bounds, as in the original.
    pub(super) const ANY_INT: Self = Self::int(i64::MIN, i64::MAX);
    pub(super) const POSITIVE: Self = Self::int(1, i64::MAX);
    /// A number of processes, entries or requests.
    pub(super) const COUNT: Self = Self::int(0, u32::MAX as i64);
    pub(super) const POSITIVE_COUNT: Self = Self::int(1, u32::MAX as i64);
    pub(super) const WHOLE_SECONDS: Self = Self::whole_seconds(0);
    pub(super) const SECONDS: Self = Self::seconds(0.0);
    pub(super) const TIMEOUT: Self = Self::seconds(0.001);

    pub(super) const fn int(min: i64, max: i64) -> Self {
        Self::Int { min, max }
    }

    pub(super) const fn whole_seconds(min: i64) -> Self {
        Self::int(min, MAX_SECONDS)
    }

    #[expect(clippy::cast_precision_loss, reason = "the number of seconds is exact")]
    pub(super) const fn seconds(min: f64) -> Self {
        Self::Float { min, max: MAX_SECONDS as f64 }
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
            Self::NonEmptyText => "a string that is not empty".to_owned(),
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
            Self::Custom(kind) => kind.expected.to_owned(),
            Self::Properties => "an object of strings, numbers and booleans".to_owned(),
        }
    }

    /// Returns whether the text of an environment variable of this kind is JSON.
    pub(super) fn is_json(&self, text: &str) -> bool {
        match self {
            Self::Custom(kind) => (kind.is_json)(text),
            Self::TextList
            | Self::IntList
            | Self::Object
            | Self::ObjectList
            | Self::Group(_)
            | Self::GroupList(_)
            | Self::Properties => true,
            _ => false,
        }
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
