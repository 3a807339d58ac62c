//! Settings from the command line: `--set KEY=VALUE`, and shorthands such as `--http-port`.
//!
//! A key is a server setting; those of nested objects are separated by dots (`cors_settings.max_age`). Values are read as those of
//! environment variables are: lists and objects are JSON, and `null` is JSON if the setting may be null.

use std::fmt;

use serde_json::{Map, Value};

use super::field::{FieldKind, NullHandling, SettingField, SettingGroup};
use super::problem::SettingsProblem;
use super::resolve::{Layer, suggestion};
use super::source::SettingSource;
use crate::types::HIDDEN;

/// A setting given on the command line.
#[derive(Clone, PartialEq, Eq)]
pub struct SettingArgument {
    /// The argument that set it, as the help spells it: `--set` or `--http-port`.
    pub argument: &'static str,
    pub key: String,
    pub value: String,
}

/// Without the value, which may be a secret.
impl fmt::Debug for SettingArgument {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}={HIDDEN}", self.argument, self.key)
    }
}

/// Returns a layer for each argument, in descending precedence: of several for the same key, the last one counts.
///
/// Arguments with an unknown key or a value that is not JSON are returned as problems instead.
pub(super) fn layers(
    arguments: &[SettingArgument],
    group: &'static SettingGroup,
) -> (Vec<Layer>, Vec<SettingsProblem>) {
    let mut layers = Vec::new();
    let mut problems = Vec::new();
    for argument in arguments.iter().rev() {
        match layer(argument, group) {
            Ok(layer) => layers.push(layer),
            Err(problem) => problems.insert(0, *problem),
        }
    }
    (layers, problems)
}

fn layer(argument: &SettingArgument, group: &'static SettingGroup) -> Result<Layer, Box<SettingsProblem>> {
    let source = SettingSource::Argument(argument.argument);
    let field = find(&argument.key, group).map_err(|nearest| {
        let (key, source_of) = (argument.key.clone(), source.clone());
        Box::new(SettingsProblem::UnknownKey { key, nearest, source_of })
    })?;
    let value = read(argument, field).map_err(|error| {
        let (key, text, expected) = (argument.key.clone(), field.shown_text(&argument.value), field.kind.expected());
        Box::new(SettingsProblem::InvalidJson { key, text, expected, error, source_of: source.clone() })
    })?;
    let names = argument.key.rsplit('.');
    let nested = names.fold(value, |value, name| Value::Object(Map::from_iter([(name.to_owned(), value)])));
    let Value::Object(object) = nested else { unreachable!("a key has at least one name") };
    Ok(Layer { object, source })
}

/// Finds the field of a key, or returns the key that was probably meant.
fn find(key: &str, group: &'static SettingGroup) -> Result<&'static SettingField, Option<String>> {
    let (name, rest) = key.split_once('.').map_or((key, None), |(name, rest)| (name, Some(rest)));
    match (group.field(name), rest) {
        (Some(field), None) => Ok(field),
        (Some(SettingField { kind: FieldKind::Group(inner), .. }), Some(rest)) => {
            find(rest, inner).map_err(|nearest| nearest.map(|nearest| format!("{name}.{nearest}")))
        }
        (Some(_), Some(_)) => Err(Some(name.to_owned())),
        (None, _) => Err(suggestion(group, name)),
    }
}

fn read(argument: &SettingArgument, field: &SettingField) -> Result<Value, serde_json::Error> {
    let text = &argument.value;
    match field.kind {
        kind if kind.is_json(text) => serde_json::from_str(text),
        _ if text == "null" && field.null != NullHandling::Refused => Ok(Value::Null),
        FieldKind::ObjectOrText => Ok(serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()))),
        _ => Ok(Value::from(text.as_str())),
    }
}
