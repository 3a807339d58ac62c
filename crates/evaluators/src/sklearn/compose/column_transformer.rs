//! `ColumnTransformer`.

use std::sync::Arc;

use crate::sklearn::concatenate;
use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{Estimator, EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::table::TableData;

use crate::pickle::{self, PickleValue};
use crate::sklearn::pipeline::{is_passthrough, named_steps};

/// Transformers that are applied to some of the columns each.
#[derive(Debug)]
struct ColumnTransformer {
    parts: Vec<(Option<Estimator>, ColumnSelection)>,
    /// The column names of the fit, if it had names.
    names: Option<Vec<String>>,
    /// The number of columns of the fit.
    features: usize,
}

/// Which columns a transformer receives.
#[derive(Debug)]
enum ColumnSelection {
    Places(Vec<usize>),
    Names(Vec<String>),
}

pub(super) fn column_transformer(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let features = fitted.size("n_features_in_")?;
    let mut parts = Vec::new();
    for (_, step, all) in named_steps(fitted, "transformers_")? {
        let &[_, _, columns, ..] = &all[..] else {
            return Err(fitted.unexpected("transformers_", "names, transformers and columns"));
        };
        let selection = ColumnSelection::read(columns, features, fitted)?;
        if step.as_str() == Some("drop") || selection.is_empty() {
            continue;
        }
        let part = if is_passthrough(step) || is_identity(step) { None } else { Some(fitted.estimator(step)?) };
        if part.as_ref().is_some_and(|part| !part.info.methods.contains(EstimatorMethod::Transform)) {
            return Err(fitted.unexpected("transformers_", "transformers"));
        }
        parts.push((part, selection));
    }
    let names = match fitted.get("feature_names_in_") {
        Some(_) => {
            let names = fitted.texts("feature_names_in_")?;
            fitted.check_count("feature_names_in_", features, names.len())?;
            Some(names)
        }
        None => None,
    };
    let by_name = names.is_some() || parts.iter().any(|(_, selection)| matches!(selection, ColumnSelection::Names(_)));
    let wanted = features;
    // If columns are found by name, additional columns are allowed.
    let features = if by_name { None } else { Some(features) };
    Ok(EstimatorSpec::composed(
        MethodSet::TRANSFORM,
        features,
        None,
        ColumnTransformer { parts, names, features: wanted },
    )
    .without_names())
}

/// Returns whether a transformer has no function, or one that only checks its input, so that the columns pass
/// unchanged.
fn is_identity(step: PickleValue<'_>) -> bool {
    let looks = |function: PickleValue<'_>| {
        let partial = function.class() == Some("functools.partial");
        partial && function.arguments().first().and_then(|inner| inner.global()) == Some(CHECK)
    };
    step.class().is_some_and(|class| class.ends_with(".FunctionTransformer"))
        && step.attribute("func").is_none_or(|function| function.is_none() || looks(function))
}

/// The function that histogram gradient boosting applies to numeric columns in its own pipeline.
const CHECK: &str = "sklearn.utils.validation.check_array";

impl ColumnSelection {
    fn read(columns: PickleValue<'_>, features: usize, fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let wanted = || fitted.unexpected("transformers_", "columns by name, index or mask");
        // Some versions wrap the columns of the remainder in a list subclass.
        let columns = columns.attribute("data").unwrap_or(columns);
        if let Some(name) = columns.as_str() {
            return Ok(Self::Names(vec![name.to_owned()]));
        }
        let place = |place: i64| {
            let place = if place < 0 { place.checked_add(i64::try_from(features).ok()?)? } else { place };
            usize::try_from(place).ok().filter(|&place| place < features)
        };
        if columns.class() == Some("builtins.slice") {
            return Self::slice(&columns.arguments(), features).ok_or_else(wanted);
        }
        let items = columns.items().map(|items| items.into_iter().collect::<Vec<_>>());
        if let Some(items) = items {
            if items.iter().all(|item| item.as_bool().is_some()) && items.len() == features && features > 0 {
                let chosen = items.iter().enumerate().filter(|(_, item)| item.as_bool() == Some(true));
                return Ok(Self::Places(chosen.map(|(index, _)| index).collect()));
            }
            if let Some(names) = items.iter().map(|item| item.as_str().map(str::to_owned)).collect() {
                return Ok(if items.is_empty() { Self::Places(Vec::new()) } else { Self::Names(names) });
            }
            let places = items.iter().map(|item| item.as_i64().and_then(place)).collect::<Option<_>>();
            return places.map(Self::Places).ok_or_else(wanted);
        }
        let array = columns.as_array().ok_or_else(wanted)?;
        if let Some(names) = array.texts() {
            return Ok(Self::Names(names));
        }
        let numbers = array.numbers().ok_or_else(wanted)?;
        let integers = numbers.to_i64().ok_or_else(wanted)?;
        if numbers.kind() == pickle::ElementKind::Bool && integers.len() == features {
            let chosen = integers.iter().enumerate().filter(|(_, flag)| **flag != 0);
            return Ok(Self::Places(chosen.map(|(index, _)| index).collect()));
        }
        integers.into_iter().map(place).collect::<Option<_>>().map(Self::Places).ok_or_else(wanted)
    }

    /// Reads `slice(start, stop, step)` of positions. Slices of names are not supported.
    fn slice(arguments: &[PickleValue<'_>], features: usize) -> Option<Self> {
        let &[first, end, stride] = arguments else { return None };
        let count = i64::try_from(features).ok()?;
        let bound = |value: PickleValue<'_>, default: i64| match value.as_i64() {
            Some(bound) if bound < 0 => Some(bound.saturating_add(count).max(0)),
            Some(bound) => Some(bound.min(count)),
            None => value.is_none().then_some(default),
        };
        let stride = if stride.is_none() { 1 } else { stride.as_i64().filter(|&stride| stride > 0)? };
        let places = (bound(first, 0)?..bound(end, count)?).step_by(usize::try_from(stride).ok()?);
        places.map(|place| usize::try_from(place).ok()).collect::<Option<_>>().map(Self::Places)
    }

    const fn is_empty(&self) -> bool {
        match self {
            Self::Places(places) => places.is_empty(),
            Self::Names(names) => names.is_empty(),
        }
    }
}

impl Evaluate for ColumnTransformer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let mut blocks = Vec::with_capacity(self.parts.len());
        let by_name = self.names.is_some() && data.is_named();
        let by_place = self.parts.iter().any(|(_, selection)| matches!(selection, ColumnSelection::Places(_)));
        if by_place && !by_name && data.columns() != self.features {
            let (class, wanted) = (Arc::clone(&info.class), self.features);
            return Err(PredictError::Features { class, wanted, found: data.columns() });
        }
        for (part, selection) in &self.parts {
            let selected = match (selection, &self.names, data) {
                (ColumnSelection::Names(names), _, _) => data.select(&positions(data, names, &info.class)?),
                // The columns of a frame with the names of the fit may be in any order.
                (ColumnSelection::Places(places), Some(names), TableData::Frame(_)) if data.is_named() => {
                    let names: Vec<String> = places.iter().map(|&place| names[place].clone()).collect();
                    data.select(&positions(data, &names, &info.class)?)
                }
                (ColumnSelection::Places(places), _, _) => data.select(places),
            };
            blocks.push(match part {
                Some(part) => part.call(EstimatorMethod::Transform, &selected)?,
                None => concatenate::hstack(&[selected], data.rows()),
            });
        }
        Ok(concatenate::hstack(&blocks, data.rows()))
    }

    fn unread_columns(&self) -> Vec<String> {
        let names = self.names.iter().flatten().enumerate();
        let is_read = |place: usize, name: &String| {
            self.parts.iter().any(|(_, selection)| match selection {
                ColumnSelection::Places(places) => places.contains(&place),
                ColumnSelection::Names(names) => names.contains(name),
            })
        };
        names.filter(|(place, name)| !is_read(*place, name)).map(|(_, name)| name.clone()).collect()
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        200 + self.parts.iter().flat_map(|(part, _)| part).map(|part| part.evaluate.cost()).sum::<u64>()
    }
}

/// Returns the positions of the columns with these names. Fails for arrays, whose columns have no names.
fn positions(data: &TableData<'_>, names: &[String], class: &Arc<str>) -> Result<Vec<usize>, PredictError> {
    let Some(frame) = data.named() else { return Err(PredictError::NotFrame { class: Arc::clone(class) }) };
    let place = |name: &String| {
        let place = frame.names.iter().position(|found| found == name);
        place.ok_or_else(|| PredictError::MissingColumn { class: Arc::clone(class), name: name.clone() })
    };
    names.iter().map(place).collect()
}
