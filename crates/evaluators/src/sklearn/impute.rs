//! Imputers, which replace missing values.

use std::sync::Arc;

use super::concatenate;
use super::error::{LoadError, PredictError};
use super::estimator::{Estimator, EstimatorInfo, Evaluate};
use super::fitted::{FittedObject, SklearnVersion};
use super::method::{EstimatorMethod, MethodSet};
use super::spec::{ClassTable, EstimatorSpec};
use crate::pickle::PickleValue;
use crate::table::{DataFrame, DenseTable, Elements, IntType, NumericType, SparseRows, TableData};

pub(super) const CLASSES: ClassTable = &[
    ("impute.IterativeImputer", iterative),
    ("impute.KNNImputer", nearest),
    ("impute.MissingIndicator", indicator),
    ("impute.SimpleImputer", simple),
];

/// The value that counts as missing.
#[derive(Debug, Clone)]
enum MissingValue {
    Nan,
    Number(f64),
    Text(Arc<str>),
}

impl MissingValue {
    fn read(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let Some(value) = fitted.get("missing_values") else { return Err(fitted.unsupported("missing_values")) };
        match (value.as_f64(), value.as_str()) {
            (Some(number), _) if number.is_nan() => Ok(Self::Nan),
            (Some(number), _) => Ok(Self::Number(number)),
            (_, Some(text)) => Ok(Self::Text(text.into())),
            _ => Err(fitted.unsupported("missing_values")),
        }
    }

    fn is(&self, value: f64) -> bool {
        match self {
            Self::Nan => value.is_nan(),
            Self::Number(missing) => value.total_cmp(missing).is_eq() || value == 0.0 && *missing == 0.0,
            Self::Text(_) => false,
        }
    }

    /// Returns which values of a column are missing.
    fn mask(&self, column: &Elements<'_>) -> Vec<bool> {
        match (column, self) {
            (Elements::Text(values), Self::Text(missing)) => values.iter().map(|value| value == missing).collect(),
            (Elements::Text(values), _) => vec![false; values.len()],
            (Elements::PartialText(values), Self::Nan) => values.iter().map(Option::is_none).collect(),
            (Elements::PartialText(values), Self::Text(missing)) => {
                values.iter().map(|value| value.as_ref() == Some(missing)).collect()
            }
            (Elements::PartialText(values), Self::Number(_)) => vec![false; values.len()],
            _ => column.floats().unwrap_or_default().iter().map(|&value| self.is(value)).collect(),
        }
    }

    /// Checks that all numbers are finite, except for those that are missing.
    fn check(&self, column: &Elements<'_>, info: &EstimatorInfo) -> Result<(), PredictError> {
        let fine = |value: f64| value.is_finite() || value.is_nan() && matches!(self, Self::Nan);
        let finite = match column {
            Elements::F32(values) => values.iter().all(|&value| fine(value.into())),
            Elements::F64(values) => values.iter().all(|&value| fine(value)),
            Elements::Int(..) | Elements::Text(_) => true,
            Elements::PartialText(_) => matches!(self, Self::Nan),
        };
        if finite { Ok(()) } else { Err(PredictError::NotFinite { class: Arc::clone(&info.class) }) }
    }
}

/// Adds columns that flag missing values.
#[derive(Debug)]
struct MissingIndicator {
    missing: MissingValue,
    features: Vec<usize>,
    /// Whether a missing value is an error in a feature that had none in the fit.
    strict: bool,
    sparse: bool,
}

impl MissingIndicator {
    fn read(fitted: &FittedObject<'_>, columns: usize) -> Result<Self, LoadError> {
        let missing = MissingValue::read(fitted)?;
        let wanted = || fitted.unexpected("features_", "indices of features");
        let features = fitted.integers("features_")?;
        let place = |place: i64| usize::try_from(place).ok().filter(|&place| place < columns);
        let features = features.into_iter().map(place).collect::<Option<_>>().ok_or_else(wanted)?;
        let strict = fitted.text("features")? == "missing-only" && fitted.flag("error_on_new")?;
        let sparse = fitted.get("sparse").and_then(PickleValue::as_bool) == Some(true);
        Ok(Self { missing, features, strict, sparse })
    }

    /// Returns the indicator that an imputer adds to its result, if it has one.
    fn of(fitted: &FittedObject<'_>, columns: usize) -> Result<Option<Self>, LoadError> {
        match fitted.get("indicator_") {
            Some(indicator) => Self::read(&fitted.part(indicator)?, columns).map(Some),
            None => Ok(None),
        }
    }

    fn columns(&self, masks: &[Vec<bool>], rows: usize) -> TableData<'static> {
        let width = self.features.len();
        let mut values = vec![0; rows * width];
        for (index, &feature) in self.features.iter().enumerate() {
            let slots = values.iter_mut().skip(index).step_by(width);
            slots.zip(&masks[feature]).for_each(|(slot, &missing)| *slot = i64::from(missing));
        }
        TableData::Table(DenseTable { elements: Elements::Int(values.into(), IntType::Bool), rows, columns: width })
    }
}

fn indicator(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let columns = fitted.size("n_features_in_")?;
    let indicator = MissingIndicator::read(fitted, columns)?;
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, columns, indicator))
}

impl Evaluate for MissingIndicator {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let mut masks = Vec::with_capacity(data.columns());
        for place in 0..data.columns() {
            let column = data.column(place);
            self.missing.check(&column, info)?;
            let mask = self.missing.mask(&column);
            if self.strict && mask.contains(&true) && !self.features.contains(&place) {
                return Err(PredictError::NewMissing { class: Arc::clone(&info.class), column: place });
            }
            masks.push(mask);
        }
        let dense = self.columns(&masks, data.rows());
        if !self.sparse {
            return Ok(dense);
        }
        let mut sparse = SparseRows::new(self.features.len(), NumericType::Int(IntType::Bool));
        let values = dense.matrix().map(|matrix| matrix.to_f64().into_owned()).unwrap_or_default();
        for row in values.chunks_exact(self.features.len().max(1)) {
            sparse.push_row(row.iter().copied().enumerate());
        }
        Ok(TableData::Sparse(sparse))
    }

    fn cost(&self) -> u64 {
        50 + 5 * self.features.len() as u64
    }
}

/// Replaces missing values by one value for each column.
#[derive(Debug)]
struct SimpleImputer {
    missing: MissingValue,
    /// The replacements. Columns without one are dropped.
    fills: Vec<Option<Fill>>,
    /// Whether numbers of any type become floats.
    floats: bool,
    /// Whether the fit had an array of objects, so that columns keep their types.
    objects: bool,
    indicator: Option<MissingIndicator>,
}

#[derive(Debug, Clone)]
enum Fill {
    Number(f64),
    Text(Arc<str>),
}

fn simple(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let missing = MissingValue::read(fitted)?;
    let strategy = fitted.text("strategy")?;
    let floats = match strategy {
        "mean" | "median" => true,
        "most_frequent" | "constant" => false,
        _ => return Err(fitted.unsupported("strategy")),
    };
    let keeps =
        fitted.flag("keep_empty_features")? || strategy == "constant" && fitted.version() < SklearnVersion(1, 8);
    let statistics = fitted.require("statistics_")?;
    let wanted = || fitted.unexpected("statistics_", "a number or text for each column");
    let number = |number: f64| (keeps || !number.is_nan()).then_some(Fill::Number(number));
    let fill = |value: PickleValue<'_>| {
        let text = || value.as_str().map(|text| Some(Fill::Text(text.into())));
        value.as_f64().map(number).or_else(text).ok_or_else(wanted)
    };
    let (fills, objects): (Vec<_>, _) = if let Some(items) = statistics.items() {
        fitted.spend(items.len())?;
        (items.into_iter().map(fill).collect::<Result<_, _>>()?, strategy != "constant")
    } else {
        (fitted.floats("statistics_")?.into_iter().map(number).collect(), false)
    };
    // A constant is always an object, so the dtype of the fit decides.
    let objects = objects || fitted.is_object_dtype("_fit_dtype");
    let columns = fills.len();
    let indicator = MissingIndicator::of(fitted, columns)?;
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, columns, SimpleImputer { missing, fills, floats, objects, indicator }))
}

impl Fill {
    /// Returns a column with its missing values replaced.
    fn fill(
        &self,
        column: &Elements<'_>,
        mask: &[bool],
        info: &EstimatorInfo,
    ) -> Result<Elements<'static>, PredictError> {
        let misfit = || PredictError::Text { class: Arc::clone(&info.class) };
        if !mask.contains(&true) {
            return Ok(column.clone().into_static());
        }
        match (column, self) {
            (Elements::Text(values), Self::Text(text)) => {
                let filled = values.iter().zip(mask).map(|(value, &missing)| if missing { text } else { value });
                Ok(Elements::Text(filled.cloned().collect()))
            }
            (Elements::PartialText(values), Self::Text(text)) => {
                Ok(Elements::Text(values.iter().map(|value| value.as_ref().unwrap_or(text)).cloned().collect()))
            }
            (Elements::Text(_) | Elements::PartialText(_), Self::Number(_)) | (_, Self::Text(_)) => Err(misfit()),
            (_, Self::Number(number)) => {
                let values = column.floats().ok_or_else(misfit)?;
                let numeric = column.numeric().ok_or_else(misfit)?;
                let filled = values.iter().zip(mask).map(|(&value, &missing)| if missing { *number } else { value });
                Ok(numeric.elements(filled.collect()))
            }
        }
    }
}

impl Evaluate for SimpleImputer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let rows = data.rows();
        let array;
        let data = if self.floats {
            let matrix = info.unchecked(data)?;
            array = TableData::Table(DenseTable::of_matrix(&matrix));
            &array
        } else if self.objects {
            data
        } else {
            array = concatenate::hstack(std::slice::from_ref(data), rows);
            &array
        };
        let (mut masks, mut columns) = (Vec::with_capacity(self.fills.len()), Vec::new());
        for (place, fill) in self.fills.iter().enumerate() {
            let column = data.column(place);
            self.missing.check(&column, info)?;
            let mask = self.missing.mask(&column);
            if let Some(fill) = fill {
                columns.push(fill.fill(&column, &mask, info)?);
            }
            masks.push(mask);
        }
        let mut blocks = vec![combine_columns(columns, rows, self.objects)];
        if let Some(indicator) = &self.indicator {
            blocks.push(indicator.columns(&masks, rows));
        }
        Ok(concatenate::hstack(&blocks, rows))
    }

    fn cost(&self) -> u64 {
        50 + 20 * self.fills.len() as u64
    }
}

/// Combines columns into one array. Columns of objects keep their types.
fn combine_columns(columns: Vec<Elements<'static>>, rows: usize, objects: bool) -> TableData<'static> {
    let frame = TableData::Frame(DataFrame { names: Vec::new(), columns, rows });
    let text = (0..frame.columns()).any(|place| matches!(frame.column(place), Elements::Text(_)));
    if objects && !text { frame } else { concatenate::hstack(&[frame], rows) }
}

/// Replaces missing values by the average of the nearest rows that have the value.
#[derive(Debug)]
struct KnnImputer {
    missing: MissingValue,
    /// The rows of the fit, with NaN for missing values.
    rows: Vec<f64>,
    features: usize,
    /// Which features had any value in the fit.
    valid: Vec<bool>,
    keeps_empty: bool,
    count: usize,
    by_distance: bool,
    indicator: Option<MissingIndicator>,
}

fn nearest(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let missing = MissingValue::read(fitted)?;
    let fit = fitted.matrix("_fit_X")?;
    let features = fit.columns;
    let mask = fitted.floats_of("_mask_fit_X", fit.values.len())?;
    // Features without any value in the fit are dropped.
    let valid = |feature: usize| mask.iter().skip(feature).step_by(features.max(1)).any(|mask| *mask == 0.0);
    let valid: Vec<bool> = (0..features).map(valid).collect();
    let by_distance = match fitted.text_if("weights") {
        Some("uniform") => false,
        Some("distance") => true,
        _ => return Err(fitted.unsupported("weights")),
    };
    if fitted.text_if("metric") != Some("nan_euclidean") {
        return Err(fitted.unsupported("metric"));
    }
    let count = fitted.size("n_neighbors")?;
    if features == 0 || count == 0 {
        return Err(fitted.unexpected("_fit_X", "at least one feature and neighbor"));
    }
    let rows = fit.values.into_iter().zip(mask).map(|(value, mask)| if mask == 0.0 { value } else { f64::NAN });
    let indicator = MissingIndicator::of(fitted, features)?;
    let rows = rows.collect();
    let keeps_empty = fitted.flag("keep_empty_features")?;
    let imputer = KnnImputer { missing, rows, features, valid, keeps_empty, count, by_distance, indicator };
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, imputer))
}

impl KnnImputer {
    /// Returns the distance over the features that both rows have, scaled up to all features; NaN if they share none.
    fn distance(&self, row: &[f64], other: &[f64]) -> f64 {
        let (mut sum, mut present) = (0.0, 0.0);
        for (x, y) in row.iter().zip(other) {
            if !x.is_nan() && !y.is_nan() {
                sum += (x - y) * (x - y);
                present += 1.0;
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of features")]
        let all = self.features as f64;
        if present == 0.0 { f64::NAN } else { (sum / present * all).sqrt() }
    }

    /// Returns the replacement for a missing value of a row with these distances to the rows of the fit.
    fn value(&self, distances: &[f64], feature: usize) -> f64 {
        let rows = self.rows.chunks_exact(self.features).zip(distances);
        let donors = rows.map(|(row, &distance)| (distance, row[feature])).filter(|(_, value)| !value.is_nan());
        let mut donors: Vec<(f64, f64)> = donors.collect();
        if donors.iter().all(|(distance, _)| distance.is_nan()) {
            #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
            let count = donors.len() as f64;
            return donors.iter().map(|(_, value)| value).sum::<f64>() / count;
        }
        donors.sort_by(|(x, _), (y, _)| x.total_cmp(y));
        donors.truncate(self.count);
        let near = self.by_distance && donors.iter().any(|(distance, _)| *distance == 0.0);
        let weight = |distance: f64| match (distance.is_nan(), self.by_distance, near) {
            (true, ..) => 0.0,
            (_, true, true) => f64::from(u8::from(distance == 0.0)),
            (_, true, false) => 1.0 / distance,
            (_, false, _) => 1.0,
        };
        let (mut sum, mut total) = (0.0, 0.0);
        for (distance, value) in donors {
            sum += weight(distance) * value;
            total += weight(distance);
        }
        sum / total
    }
}

impl Evaluate for KnnImputer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.unchecked(data)?;
        let table = DenseTable::of_matrix(&x);
        self.missing.check(&table.elements, info)?;
        let mut values = x.to_f64().into_owned();
        let mut masks = vec![Vec::with_capacity(x.rows); self.features];
        let mut kept = Vec::with_capacity(values.len());
        for row in values.chunks_exact_mut(self.features) {
            for (value, mask) in row.iter_mut().zip(&mut masks) {
                mask.push(self.missing.is(*value));
                if self.missing.is(*value) {
                    *value = f64::NAN;
                }
            }
            let gaps = |feature: &usize| self.valid[*feature] && row[*feature].is_nan();
            let gaps: Vec<usize> = (0..self.features).filter(gaps).collect();
            if !gaps.is_empty() {
                let distances: Vec<f64> =
                    self.rows.chunks_exact(self.features).map(|other| self.distance(row, other)).collect();
                for feature in gaps {
                    row[feature] = self.value(&distances, feature);
                }
            }
            for (value, &valid) in row.iter().zip(&self.valid) {
                if valid {
                    kept.push(*value);
                } else if self.keeps_empty {
                    kept.push(0.0);
                }
            }
        }
        let numeric = if x.is_single() { NumericType::F32 } else { NumericType::F64 };
        let columns = if self.keeps_empty { self.features } else { self.valid.iter().filter(|&&valid| valid).count() };
        let mut blocks = vec![TableData::Table(DenseTable { elements: numeric.elements(kept), rows: x.rows, columns })];
        if let Some(indicator) = &self.indicator {
            blocks.push(indicator.columns(&masks, x.rows));
        }
        Ok(concatenate::hstack(&blocks, x.rows))
    }

    fn cost(&self) -> u64 {
        100 + self.rows.len() as u64
    }
}

/// Predicts each feature with missing values from all others, one feature after another.
#[derive(Debug)]
struct IterativeImputer {
    initial: Estimator,
    missing: MissingValue,
    /// The features that the initial imputer keeps.
    valid: Vec<usize>,
    rounds: Vec<ImputationStep>,
    low: Vec<f64>,
    high: Vec<f64>,
    indicator: Option<MissingIndicator>,
}

/// One step: predicts one feature from others.
#[derive(Debug)]
struct ImputationStep {
    feature: usize,
    others: Vec<usize>,
    model: Estimator,
}

fn iterative(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    if fitted.flag("sample_posterior")? {
        return Err(fitted.unsupported("sample_posterior"));
    }
    if fitted.flag("keep_empty_features")? {
        return Err(fitted.unsupported("keep_empty_features"));
    }
    let part = fitted.part(fitted.require("initial_imputer_")?)?;
    if !part.class().ends_with(".SimpleImputer") || part.text("strategy")? == "constant" {
        return Err(fitted.unsupported("initial_strategy"));
    }
    let initial = fitted.estimator(part.value())?;
    let statistics = part.floats("statistics_")?;
    let features = statistics.len();
    let valid: Vec<usize> = (0..features).filter(|&feature| !statistics[feature].is_nan()).collect();
    let (low, high) = (fitted.floats("_min_value")?, fitted.floats("_max_value")?);
    fitted.check_count("_min_value", valid.len(), low.len())?;
    fitted.check_count("_max_value", valid.len(), high.len())?;
    let wanted = || fitted.unexpected("imputation_sequence_", "features and their models");
    let mut rounds = Vec::new();
    for round in fitted.items("imputation_sequence_")? {
        // A named tuple is pickled as an instance with its elements as arguments.
        let parts = round.items().unwrap_or_else(|| round.arguments());
        let [feature, others, model] = parts[..] else { return Err(wanted()) };
        let place = |place: i64| usize::try_from(place).ok().filter(|&place| place < valid.len());
        let feature = feature.as_i64().and_then(place).ok_or_else(wanted)?;
        let others = others.as_array().and_then(|others| others.numbers()?.to_i64()).ok_or_else(wanted)?;
        fitted.spend(others.len())?;
        let others: Vec<usize> = others.into_iter().map(place).collect::<Option<_>>().ok_or_else(wanted)?;
        let model = fitted.estimator(model)?;
        if !model.info.methods.contains(EstimatorMethod::Predict)
            || model.info.features.is_some_and(|n| n != others.len())
        {
            return Err(wanted());
        }
        rounds.push(ImputationStep { feature, others, model });
    }
    let missing = MissingValue::read(fitted)?;
    let indicator = MissingIndicator::of(fitted, features)?;
    let imputer = IterativeImputer { initial, missing, valid, rounds, low, high, indicator };
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, imputer))
}

impl Evaluate for IterativeImputer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.unchecked(data)?;
        let rows = x.rows;
        let table = TableData::Table(DenseTable::of_matrix(&x));
        let masks: Vec<Vec<bool>> = (0..x.columns).map(|place| self.missing.mask(&table.column(place))).collect();
        let filled = self.initial.call(EstimatorMethod::Transform, &table)?;
        let width = self.valid.len();
        let matrix = info.unchecked(&filled)?;
        let mut values = matrix.to_f64().into_owned();
        // If no row has any value, there is nothing to predict from.
        let blank = masks.iter().all(|mask| !mask.contains(&false));
        for ImputationStep { feature, others, model } in self.rounds.iter().filter(|_| !blank) {
            let gaps: Vec<usize> = (0..rows).filter(|&row| masks[self.valid[*feature]][row]).collect();
            if gaps.is_empty() {
                continue;
            }
            let inputs = gaps.iter().flat_map(|row| others.iter().map(move |other| row * width + other));
            let inputs: Vec<f64> = inputs.map(|place| values[place]).collect();
            let answer =
                model.call(EstimatorMethod::Predict, &TableData::Table(DenseTable::of_f64(inputs, others.len())))?;
            let answer = model.info.unchecked(&answer)?.to_f64().into_owned();
            for (row, value) in gaps.into_iter().zip(answer) {
                values[row * width + feature] = value.max(self.low[*feature]).min(self.high[*feature]);
            }
        }
        let numeric = if matrix.is_single() { NumericType::F32 } else { NumericType::F64 };
        let mut blocks =
            vec![TableData::Table(DenseTable { elements: numeric.elements(values), rows, columns: width })];
        if let Some(indicator) = &self.indicator {
            blocks.push(indicator.columns(&masks, rows));
        }
        Ok(concatenate::hstack(&blocks, rows))
    }

    fn cost(&self) -> u64 {
        200 + self.rounds.iter().map(|round| round.model.evaluate.cost() / 4).sum::<u64>()
    }
}
