//! Describes the content of an artifact: nested estimators, their parameters and what was fitted.

use std::fmt;

use bytes::Bytes;

use super::error::LoadError;
use super::{FittedEstimator, read};
use crate::pickle::{NumpyArray, PickleValue};

/// How many estimators are described. A file may contain any number, and an object may contain itself.
const MAX_PARTS: usize = 200;
/// How deeply nested estimators are followed.
const MAX_DEPTH: usize = 12;
/// The longest text of a parameter that is shown, in characters.
const MAX_TEXT: usize = 60;

/// A description of an artifact of scikit-learn.
#[derive(Debug)]
pub struct ArtifactReport {
    root: ObjectReport,
    /// The model, or why it is not evaluated natively.
    native: Result<FittedEstimator, LoadError>,
}

/// One object of a Python library.
#[derive(Debug)]
struct ObjectReport {
    /// Its attribute or index in the object that contains it.
    place: String,
    class: String,
    version: Option<String>,
    parameters: Vec<(String, String)>,
    fitted: Vec<(String, String)>,
    parts: Vec<Self>,
    /// How many more objects of the same class follow this one in a list.
    alike: usize,
}

impl ArtifactReport {
    /// Reads an artifact.
    ///
    /// # Errors
    ///
    /// Fails if the file is not one that can be read as data.
    pub fn read(file: &Bytes) -> Result<Self, LoadError> {
        let pickle = read(file.clone())?;
        let mut left = MAX_PARTS;
        let root = ObjectReport::of(String::new(), pickle.root(), 0, &mut left);
        Ok(Self { root, native: FittedEstimator::load(file.clone()) })
    }

    /// Returns the version of scikit-learn that wrote the file.
    pub fn version(&self) -> Option<&str> {
        self.root.version.as_deref()
    }

    /// Returns the model, or why it is not evaluated natively.
    pub const fn native(&self) -> Result<&FittedEstimator, &LoadError> {
        self.native.as_ref()
    }

    /// Returns how many features the estimator in the file was fitted with, and their names; those of its first step if it does
    /// not tell itself.
    pub fn fitted_features(file: &Bytes) -> (Option<usize>, Vec<String>) {
        let Ok(pickle) = read(file.clone()) else { return (None, Vec::new()) };
        let mut estimator = pickle.root();
        let mut names = None;
        for _ in 0..MAX_DEPTH {
            names = names.or_else(|| estimator.attribute("feature_names_in_").and_then(texts));
            let count = estimator.attribute("n_features_in_").and_then(PickleValue::as_i64);
            if let Some(count) = count.and_then(|count| usize::try_from(count).ok()) {
                return (Some(count), names.unwrap_or_default());
            }
            let inner = estimator.attribute("best_estimator_").or_else(|| first_part(estimator));
            let Some(inner) = inner else { break };
            estimator = inner;
        }
        (None, names.unwrap_or_default())
    }

    /// Returns a row that the estimator in the file may take: categories that it was fitted with, and zero for numbers.
    pub fn example_row(file: &Bytes, features: usize) -> Vec<ExampleValue> {
        let mut row = vec![ExampleValue::Number(0.0); features];
        if let Ok(pickle) = read(file.clone()) {
            let (_, names) = Self::fitted_features(file);
            let columns: Vec<usize> = (0..features).collect();
            let mut left = MAX_PARTS;
            fill_categories(pickle.root(), &columns, &names, &mut row, (0, &mut left));
        }
        row
    }

    /// Returns whether `predict` of an estimator with one target returns a list of numbers, as nearly all do. The
    /// others were fitted with a column as their target, and their class keeps that shape.
    pub fn predicts_list(file: &Bytes) -> bool {
        let Ok(pickle) = read(file.clone()) else { return true };
        let mut estimator = pickle.root();
        for _ in 0..MAX_DEPTH {
            let inner = estimator.attribute("best_estimator_").or_else(|| {
                let steps = estimator.attribute("steps")?.items()?;
                steps.last()?.items()?.last().copied()
            });
            match inner {
                Some(inner) => estimator = inner,
                None => break,
            }
        }
        let rank = |name| estimator.attribute(name).and_then(PickleValue::as_array).map(|array| array.shape.len());
        estimator.attribute("classes_").is_some() || (rank("coef_") != Some(2) && rank("_y") != Some(2))
    }
}

/// A value of a feature.
#[derive(Debug, Clone, PartialEq)]
pub enum ExampleValue {
    Number(f64),
    Text(String),
}

/// Sets the values of columns that an estimator reads as categories to the first that it knows. The depth and the number of
/// estimators are bounded, since an object may contain itself.
fn fill_categories(
    estimator: PickleValue<'_>,
    columns: &[usize],
    names: &[String],
    row: &mut [ExampleValue],
    (depth, left): (usize, &mut usize),
) {
    if depth == MAX_DEPTH || *left == 0 {
        return;
    }
    *left -= 1;
    for name in ["best_estimator_", "estimator_"] {
        if let Some(inner) = estimator.attribute(name) {
            fill_categories(inner, columns, names, row, (depth + 1, &mut *left));
        }
    }
    let parts = |name| {
        let parts = estimator.attribute(name).and_then(PickleValue::items).unwrap_or_default();
        parts.into_iter().filter_map(|part| part.items()?.get(1).copied())
    };
    for part in parts("transformer_list") {
        fill_categories(part, columns, names, row, (depth + 1, &mut *left));
    }
    // The steps of a pipeline see the columns until one of them makes others.
    for (index, part) in parts("steps").enumerate() {
        let count = part.attribute("n_features_in_").and_then(PickleValue::as_i64);
        let sees_columns = count.and_then(|count| usize::try_from(count).ok()) == Some(columns.len());
        if index > 0 && !sees_columns {
            break;
        }
        fill_categories(part, columns, names, row, (depth + 1, &mut *left));
        if part.attribute("transformers_").is_some() {
            break;
        }
    }
    for part in estimator.attribute("transformers_").and_then(PickleValue::items).unwrap_or_default() {
        let items = part.items().unwrap_or_default();
        if let [_, inner, selected, ..] = items.as_slice() {
            let selected = selected_columns(*selected, columns, names);
            fill_categories(*inner, &selected, names, row, (depth + 1, &mut *left));
        }
    }
    let categories = estimator.attribute("categories_").and_then(PickleValue::items).unwrap_or_default();
    for (column, known) in columns.iter().zip(categories) {
        if let (Some(value), Some(first)) = (row.get_mut(*column), first_category(known)) {
            *value = first;
        }
    }
}

/// Returns the first estimator of a pipeline or union.
fn first_part(estimator: PickleValue<'_>) -> Option<PickleValue<'_>> {
    let parts = estimator.attribute("steps").or_else(|| estimator.attribute("transformer_list"))?.items()?;
    parts.first()?.items()?.get(1).copied()
}

/// Returns the columns that a column transformer passes to one of its parts, by name or number.
fn selected_columns(selected: PickleValue<'_>, columns: &[usize], names: &[String]) -> Vec<usize> {
    let by_name = |name: &str| names.iter().position(|known| known == name);
    let by_number = |number: i64| {
        let from_end = i64::try_from(columns.len()).unwrap_or(i64::MAX).saturating_add(number);
        usize::try_from(if number < 0 { from_end } else { number }).ok()
    };
    if let Some(name) = selected.as_str() {
        return by_name(name).into_iter().collect();
    }
    if let Some(number) = selected.as_i64() {
        return by_number(number).into_iter().collect();
    }
    if let Some(names) = texts(selected) {
        return names.iter().filter_map(|name| by_name(name)).collect();
    }
    if let Some(numbers) = selected.as_array().and_then(|array| array.numbers()?.to_i64()) {
        return numbers.into_iter().filter_map(by_number).collect();
    }
    let items = selected.items().unwrap_or_default();
    items.into_iter().filter_map(|item| by_number(item.as_i64()?)).collect()
}

/// Returns the texts of a list, or of an array.
fn texts(value: PickleValue<'_>) -> Option<Vec<String>> {
    if let Some(texts) = value.as_array().and_then(NumpyArray::texts) {
        return Some(texts);
    }
    let items = value.items().filter(|items| !items.is_empty())?;
    items.into_iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

fn first_category(known: PickleValue<'_>) -> Option<ExampleValue> {
    if let Some(text) = texts(known).and_then(|texts| texts.into_iter().next()) {
        return Some(ExampleValue::Text(text));
    }
    if let Some(numbers) = known.as_array().and_then(NumpyArray::numbers) {
        return numbers.to_f64().first().copied().map(ExampleValue::Number);
    }
    let first = known.items()?.into_iter().next()?;
    first.as_str().map(|text| ExampleValue::Text(text.to_owned())).or_else(|| first.as_f64().map(ExampleValue::Number))
}

impl ObjectReport {
    fn of(place: String, value: PickleValue<'_>, depth: usize, left: &mut usize) -> Self {
        *left = left.saturating_sub(1);
        let mut part = Self {
            place,
            class: value.describe().to_owned(),
            version: value.attribute("_sklearn_version").and_then(PickleValue::as_str).map(str::to_owned),
            parameters: Vec::new(),
            fitted: Vec::new(),
            parts: Vec::new(),
            alike: 0,
        };
        if depth == MAX_DEPTH {
            return part;
        }
        for (name, value) in value.attributes() {
            if name.starts_with('_') {
                continue;
            }
            // By convention, names of fitted attributes end in an underscore.
            let shown = if name.ends_with('_') { &mut part.fitted } else { &mut part.parameters };
            if let Some(text) = show(value) {
                shown.push((name.to_owned(), text));
            } else {
                part.add(name, value, depth, left);
            }
        }
        part
    }

    /// Adds the estimators that an attribute holds.
    fn add(&mut self, name: &str, value: PickleValue<'_>, depth: usize, left: &mut usize) {
        if *left == 0 {
            return;
        }
        if value.class().is_some() {
            self.parts.push(Self::of(name.to_owned(), value, depth + 1, left));
            return;
        }
        for (index, item) in value.items().unwrap_or_default().into_iter().enumerate() {
            if *left == 0 {
                return;
            }
            // A step is a name followed by its estimator.
            let named = item.items().unwrap_or_default();
            let estimator = named.iter().copied().find(|part| part.class().is_some());
            match (item.class(), estimator, named.first().and_then(|name| name.as_str())) {
                (Some(class), ..) => match self.parts.last_mut() {
                    Some(last) if index > 0 && last.class == class => last.alike += 1,
                    _ => self.parts.push(Self::of(format!("{name}[{index}]"), item, depth + 1, left)),
                },
                (_, Some(estimator), Some(step)) => {
                    self.parts.push(Self::of(format!("{name}[{step}]"), estimator, depth + 1, left));
                }
                _ => {}
            }
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        write!(f, "{indent}")?;
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        write!(f, "{}", self.class)?;
        if let Some(version) = self.version.as_ref().filter(|_| depth == 0) {
            write!(f, " (scikit-learn {version})")?;
        }
        if self.alike > 0 {
            write!(f, ", and {} more like it", self.alike)?;
        }
        writeln!(f)?;
        for (name, value) in self.parameters.iter().chain(&self.fitted) {
            writeln!(f, "{indent}  {name} = {value}")?;
        }
        self.parts.iter().try_for_each(|part| part.write(f, depth + 1))
    }
}

/// Formats a value on one line. Returns `None` if it is or contains an estimator.
fn show(value: PickleValue<'_>) -> Option<String> {
    if let Some(array) = value.as_array() {
        let objects = value.items().is_some_and(|items| items.iter().any(|item| item.class().is_some()));
        return (!objects).then(|| format!("{} {:?}", array.dtype.name(), array.shape));
    }
    if let Some(text) = value.as_str() {
        let shortened: String = text.chars().take(MAX_TEXT).flat_map(char::escape_debug).collect();
        return Some(format!("'{shortened}'"));
    }
    if let Some(flag) = value.as_bool() {
        return Some(if flag { "True" } else { "False" }.to_owned());
    }
    if let Some(integer) = value.as_i64() {
        return Some(integer.to_string());
    }
    if let Some(number) = value.as_f64() {
        return Some(number.to_string());
    }
    if value.is_none() || value.global().is_some() {
        return Some(value.describe().to_owned());
    }
    if let Some(items) = value.items() {
        let simple = items.iter().all(|item| item.class().is_none() && item.items().is_none());
        return simple.then(|| format!("{} of {}", value.describe(), items.len()));
    }
    value.entries().map(|entries| format!("dict of {}", entries.len()))
}

impl fmt::Display for ArtifactReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.write(f, 0)?;
        if let Ok(model) = &self.native
            && let Some(features) = model.n_features()
        {
            write!(f, "features: {features}")?;
        }
        Ok(())
    }
}
