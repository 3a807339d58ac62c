//! Collects the problems of a manifest, and reads fields.

use http::Uri;
use serde_json::{Map, Value};

use super::super::graph::{ModelReference, Step, nearest};
use super::{GraphOptions, ManifestProblem};
use crate::types::short;

/// The maximum number of problems, of warnings and of ignored fields that are reported.
const MAX_REPORTED: usize = 100;
/// The maximum length of the names of steps, models and tensors, in bytes.
const MAX_NAME: usize = 256;
/// The maximum length of any other text that is kept, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// The maximum length of a URL, in bytes.
const MAX_URL: usize = 2048;

/// The fields of an object: those that are read, and those that only make sense in a cluster.
pub(super) struct KnownFields {
    pub(super) read: &'static [&'static str],
    pub(super) cluster: &'static [&'static str],
}

/// The metadata of every Kubernetes object.
const METADATA: KnownFields = KnownFields {
    read: &[
        "name",
        "namespace",
        "labels",
        "annotations",
        "generateName",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "selfLink",
    ],
    cluster: &[],
};

const ROOT: KnownFields = KnownFields { read: &["apiVersion", "kind", "metadata", "spec"], cluster: &["status"] };

/// The problems of a manifest.
pub(super) struct Report {
    file: String,
    problems: ProblemList,
    warnings: ProblemList,
    ignored: Vec<String>,
}

/// Problems, of which only the first are kept.
#[derive(Default)]
struct ProblemList {
    first: Vec<ManifestProblem>,
    more: usize,
}

impl ProblemList {
    fn push(&mut self, problem: ManifestProblem) {
        if self.first.contains(&problem) {
            return;
        }
        if self.first.len() < MAX_REPORTED { self.first.push(problem) } else { self.more += 1 }
    }

    fn finish(mut self, file: &str) -> Vec<ManifestProblem> {
        if self.more > 0 {
            let message = format!("{} more problems", self.more);
            self.first.push(ManifestProblem { file: file.to_owned(), path: String::new(), message });
        }
        self.first
    }
}

impl Report {
    pub(super) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            problems: ProblemList::default(),
            warnings: ProblemList::default(),
            ignored: Vec::new(),
        }
    }

    /// Returns the problems, the warnings and the ignored fields.
    pub(super) fn finish(self) -> (Vec<ManifestProblem>, Vec<ManifestProblem>, Vec<String>) {
        (self.problems.finish(&self.file), self.warnings.finish(&self.file), self.ignored)
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn has_problems(&self) -> bool {
        !self.problems.first.is_empty()
    }

    pub(super) fn problem(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(ManifestProblem { file: self.file.clone(), path: path.to_owned(), message: message.into() });
    }

    pub(super) fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.warnings.push(ManifestProblem { file: self.file.clone(), path: path.to_owned(), message: message.into() });
    }

    /// Reports a name that does not exist, with the nearest one that does.
    pub(super) fn unknown_name<'a>(
        &mut self,
        path: &str,
        what: &str,
        name: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) {
        let hint = nearest(name, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        self.problem(path, format!("unknown {what} `{}`{hint}", plain(name)));
    }

    /// Warns of unknown fields of an object, and lists those that only make sense in a cluster.
    pub(super) fn check_fields(&mut self, object: &Map<String, Value>, path: &str, known: &KnownFields) {
        for name in object.keys().map(String::as_str) {
            let field = field(path, name);
            if known.cluster.contains(&name) {
                self.ignore(field);
            } else if !known.read.contains(&name) {
                let hint = nearest(name, known.read.iter().copied())
                    .map(|name| format!("; did you mean `{name}`?"))
                    .unwrap_or_default();
                self.warn(&field, format!("unknown field{hint}"));
            }
        }
    }

    /// Lists all fields of an object but one as fields that only make sense in a cluster.
    pub(super) fn ignore_all_but(&mut self, object: &Map<String, Value>, path: &str, read: &str) {
        for name in object.keys().filter(|name| *name != read) {
            self.ignore(field(path, name));
        }
    }

    fn ignore(&mut self, field: String) {
        if self.ignored.len() < MAX_REPORTED {
            self.ignored.push(field);
        }
    }

    /// Reads the name and the `spec` of a manifest.
    pub(super) fn head<'a>(
        &mut self,
        root: &'a Map<String, Value>,
        spec: &KnownFields,
    ) -> Option<(&'a str, &'a Map<String, Value>)> {
        self.check_fields(root, "", &ROOT);
        let metadata = self.required(root, "", "metadata").and_then(|metadata| self.object(metadata, "metadata"));
        let name = metadata.and_then(|metadata| {
            self.check_fields(metadata, "metadata", &METADATA);
            self.required_name(metadata, "metadata", "name")
        });
        let fields = self.required(root, "", "spec").and_then(|spec| self.object(spec, "spec"))?;
        self.check_fields(fields, "spec", spec);
        Some((name?, fields))
    }

    pub(super) fn object<'a>(&mut self, value: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
        if let Value::Object(object) = value {
            return Some(object);
        }
        self.problem(path, format!("expected a mapping, found {}", kind(value)));
        None
    }

    /// Returns a field, or `None` if it is missing or `null`, which is a problem.
    pub(super) fn required<'a>(&mut self, object: &'a Map<String, Value>, path: &str, name: &str) -> Option<&'a Value> {
        let value = optional(object, name);
        if value.is_none() {
            self.problem(&field(path, name), "missing field");
        }
        value
    }

    /// Returns the items of a list with their paths, or none if it is missing.
    pub(super) fn list<'a>(
        &mut self,
        object: &'a Map<String, Value>,
        path: &str,
        name: &str,
    ) -> Vec<(String, &'a Value)> {
        let path = field(path, name);
        match optional(object, name) {
            None => Vec::new(),
            Some(Value::Array(items)) => {
                items.iter().enumerate().map(|(index, item)| (format!("{path}[{index}]"), item)).collect()
            }
            Some(other) => {
                self.problem(&path, format!("expected a list, found {}", kind(other)));
                Vec::new()
            }
        }
    }

    pub(super) fn text<'a>(&mut self, value: &'a Value, path: &str) -> Option<&'a str> {
        match value {
            Value::String(text) if text.len() <= MAX_TEXT => Some(text),
            Value::String(text) => {
                self.problem(path, format!("the text has {} bytes, more than the limit of {MAX_TEXT}", text.len()));
                None
            }
            other => {
                self.problem(path, format!("expected a string, found {}", kind(other)));
                None
            }
        }
    }

    pub(super) fn string<'a>(&mut self, object: &'a Map<String, Value>, path: &str, name: &str) -> Option<&'a str> {
        optional(object, name).and_then(|value| self.text(value, &field(path, name)))
    }

    pub(super) fn required_string<'a>(
        &mut self,
        object: &'a Map<String, Value>,
        path: &str,
        name: &str,
    ) -> Option<&'a str> {
        self.required(object, path, name).and_then(|value| self.text(value, &field(path, name)))
    }

    /// Returns a field that is a name: of a step, a node or a model.
    pub(super) fn name<'a>(&mut self, object: &'a Map<String, Value>, path: &str, name: &str) -> Option<&'a str> {
        let text = self.string(object, path, name)?;
        self.is_name(text, &field(path, name)).then_some(text)
    }

    pub(super) fn required_name<'a>(
        &mut self,
        object: &'a Map<String, Value>,
        path: &str,
        name: &str,
    ) -> Option<&'a str> {
        self.required(object, path, name)?;
        self.name(object, path, name)
    }

    /// Checks a name.
    pub(super) fn is_name(&mut self, text: &str, path: &str) -> bool {
        let problem = if text.is_empty() {
            "expected a name, found an empty string".to_owned()
        } else if text.len() > MAX_NAME {
            format!("the name has {} bytes, more than the limit of {MAX_NAME}", text.len())
        } else if text.chars().any(char::is_control) {
            format!("the name `{}` has control characters", plain(text))
        } else {
            return true;
        };
        self.problem(path, problem);
        false
    }

    /// Returns a whole number from 0 to 100.
    pub(super) fn percentage(&mut self, object: &Map<String, Value>, path: &str, name: &str) -> Option<u32> {
        let value = optional(object, name)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number <= 100);
        if number.is_none() {
            self.problem(&field(path, name), format!("expected a whole number from 0 to 100, found {}", kind(value)));
        }
        number
    }

    /// Returns a field that is one of a few values.
    pub(super) fn choice<T: Copy>(
        &mut self,
        object: &Map<String, Value>,
        path: &str,
        name: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let text = self.string(object, path, name)?;
        let choice = choices.iter().find(|(name, _)| *name == text);
        if choice.is_none() {
            let names = choices.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let hint = nearest(text, choices.iter().map(|(name, _)| *name))
                .map(|name| format!("; did you mean `{name}`?"))
                .unwrap_or_default();
            self.problem(&field(path, name), format!("expected one of {names}, found `{}`{hint}", plain(text)));
        }
        choice.map(|(_, choice)| *choice)
    }

    /// Reads a model's name with an optional version: `encoder@v2`.
    pub(super) fn model(&mut self, text: &str, path: &str) -> ModelReference {
        let (name, version) = match text.rsplit_once('@') {
            Some((name, version)) => (name, Some(version.to_owned())),
            None => (text, None),
        };
        if name.is_empty() || version.as_ref().is_some_and(String::is_empty) {
            self.problem(
                path,
                format!("expected a model, or a model and a version like `model@v1`, found `{}`", plain(text)),
            );
        }
        ModelReference { name: name.to_owned(), version }
    }

    /// Creates a step with the options of its name.
    pub(super) fn step(&mut self, name: &str, model: &str, path: &str, options: &GraphOptions) -> Step {
        let own = options.steps.get(name);
        let url = own.and_then(|options| options.url.clone());
        if let Some(url) = &url {
            self.check_url(url, &format!("parameters.extra.steps.{}.url", plain(name)));
            if own.is_some_and(|options| options.folder.is_some()) {
                let message = "`url` and `folder` are set, expected one of them";
                self.problem(&format!("parameters.extra.steps.{}", plain(name)), message);
            }
        }
        Step {
            name: name.to_owned(),
            model: self.model(model, path),
            url,
            folder: own.and_then(|options| options.folder.clone()),
            environment: Vec::new(),
            required: true,
            path: path.to_owned(),
            index: 0,
        }
    }

    pub(super) fn check_url(&mut self, url: &str, path: &str) {
        let is_valid = url.len() <= MAX_URL
            && url.parse::<Uri>().is_ok_and(|uri| {
                let scheme =
                    uri.scheme_str().is_some_and(|scheme| ["http", "https", "grpc", "grpcs"].contains(&scheme));
                scheme && uri.host().is_some_and(|host| !host.is_empty())
            });
        if !is_valid {
            let message = format!(
                "invalid URL `{}`, expected `http://`, `https://`, `grpc://` or `grpcs://` and a host",
                plain(url)
            );
            self.problem(path, message);
        }
    }
}

/// Returns a field that is neither missing nor `null`.
pub(super) fn optional<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// Returns the path of a field.
pub(super) fn field(path: &str, name: &str) -> String {
    let separator = if path.is_empty() { "" } else { "." };
    format!("{path}{separator}{}", plain(name))
}

/// Returns the start of a text for a message, without control characters.
pub(super) fn plain(text: &str) -> String {
    short(text).chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => format!("`{value}`"),
        Value::Number(number) => format!("`{number}`"),
        Value::String(text) => format!("the string `{}`", plain(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}
