//! The native evaluator of the model that an `MLmodel` describes.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;

use super::LoadError;
use super::description::{Flavor, ModelDescription, TreeModelClass};
use super::enforce::InputError;
use super::signature::InputSchema;
use crate::evaluators::catboost::{self, CatBoostModel, CatBoostOutput};
use crate::evaluators::sklearn::{self, ContributionSpace, EstimatorExplanation, EstimatorMethod};
use crate::evaluators::table::{Elements, IntType, TableData};
use crate::evaluators::trees::{self, EnsembleOutput, FeatureMatrix, FeatureValues, PredictedValues, WrapperKind};
use crate::runtimes::catboost::evaluated;
use crate::runtimes::describe;

/// A loaded model.
#[derive(Debug)]
pub(super) enum Evaluator {
    Sklearn {
        model: sklearn::FittedEstimator,
        method: EstimatorMethod,
        /// Whether predictions of one column are a list of numbers, not of lists.
        flat: bool,
    },
    Trees {
        model: trees::TreeEnsemble,
        flavor: Flavor,
    },
    CatBoost {
        model: Box<CatBoostModel>,
        output: CatBoostOutput,
    },
}

/// The prediction of a model.
#[derive(Debug)]
pub(super) struct Prediction {
    pub(super) elements: Elements<'static>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) nesting: Nesting,
}

/// How the values of a prediction are nested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nesting {
    /// One value, of one row.
    Scalar,
    List,
    Lists,
}

impl Nesting {
    const fn new(is_list: bool) -> Self {
        if is_list { Self::List } else { Self::Lists }
    }
}

impl Prediction {
    /// Returns what the library returns if its input is a list in place of a list of one list.
    pub(super) fn of_list(self) -> Self {
        match self.nesting {
            Nesting::Lists => Self { rows: self.columns, columns: 1, nesting: Nesting::List, ..self },
            Nesting::List | Nesting::Scalar => Self { nesting: Nesting::Scalar, ..self },
        }
    }
}

impl Evaluator {
    pub(super) fn load(description: &ModelDescription, bytes: &Bytes) -> Result<Self, LoadError> {
        let evaluator = match description.flavor {
            Flavor::Sklearn | Flavor::Lightgbm(TreeModelClass::Classifier | TreeModelClass::Regressor) => {
                let model = sklearn::FittedEstimator::load(bytes.clone()).map_err(LoadError::Estimator)?;
                let method = method(&description.predict_fn, &model)?;
                let flat = method == EstimatorMethod::Predict
                    && match description.signature.output_rank {
                        Some(rank) => rank == 1,
                        None => sklearn::ArtifactReport::predicts_list(bytes),
                    };
                Self::Sklearn { model, method, flat }
            }
            Flavor::Catboost(class) => {
                let model = Box::new(CatBoostModel::load(bytes).map_err(LoadError::Trees)?);
                let output = catboost_output(class, &model)?;
                Self::CatBoost { model, output }
            }
            flavor => {
                if description.predict_fn != "predict" {
                    return Err(LoadError::Refused(format!("`predict_fn` is `{}`", description.predict_fn)));
                }
                let model = match flavor {
                    Flavor::Xgboost(TreeModelClass::Booster) => trees::TreeEnsemble::load_xgboost_booster(bytes),
                    Flavor::Xgboost(TreeModelClass::Classifier) => {
                        trees::TreeEnsemble::load_xgboost_as(bytes, WrapperKind::Classifier)
                    }
                    Flavor::Xgboost(TreeModelClass::Regressor) => {
                        trees::TreeEnsemble::load_xgboost_as(bytes, WrapperKind::Regressor)
                    }
                    _ => trees::TreeEnsemble::load_lightgbm(bytes),
                };
                Self::Trees { model: model.map_err(LoadError::Trees)?, flavor }
            }
        };
        evaluator.check_features(&description.signature.input)?;
        Ok(evaluator)
    }

    /// Refuses models whose signature has another number of columns than the model has features: how the libraries handle
    /// this depends on their version.
    fn check_features(&self, input: &InputSchema) -> Result<(), LoadError> {
        let declared = match input {
            InputSchema::Columns(columns) => columns.len(),
            InputSchema::Tensor { shape, .. } => match shape[..] {
                [_, columns] => usize::try_from(columns).unwrap_or(self.features().unwrap_or_default()),
                _ => {
                    return Err(LoadError::Refused(
                        "its signature has a tensor without exactly two dimensions".to_owned(),
                    ));
                }
            },
            InputSchema::Any => return Ok(()),
        };
        match self.features() {
            Some(features) if features != declared => Err(LoadError::Refused(format!(
                "its signature has {declared} columns, but the model has {features} features"
            ))),
            _ => Ok(()),
        }
    }

    fn features(&self) -> Option<usize> {
        match self {
            Self::Sklearn { model, .. } => model.n_features(),
            Self::Trees { model, .. } => Some(model.n_features()),
            Self::CatBoost { model, .. } => Some(model.n_columns()),
        }
    }

    /// Estimates how long the prediction of `rows` rows takes on one thread, within a factor of a few.
    pub(super) fn estimate(&self, rows: usize) -> Duration {
        match self {
            Self::Sklearn { model, .. } => model.estimate(rows),
            Self::Trees { model, .. } => model.estimate(rows, EnsembleOutput::Predict),
            Self::CatBoost { model, output } => model.estimate(rows, *output),
        }
    }

    /// Returns the size of a row in a response, in bytes, or `None` if the model rejects the columns.
    pub(super) fn row_bytes(&self, data: &TableData<'_>) -> Option<usize> {
        match self {
            Self::Sklearn { model, method, .. } => model.row_bytes(*method, data),
            Self::Trees { model, .. } => model.row_bytes(EnsembleOutput::Predict),
            Self::CatBoost { model, output } => model.columns(*output).map(|columns| columns.saturating_mul(8)),
        }
    }

    /// Returns the names of the columns, if the model has some, and those that a data frame may lack. `file` is the artifact.
    pub(super) fn columns(&self, file: &Bytes) -> (Vec<String>, Vec<String>) {
        match self {
            Self::Sklearn { model, .. } => (describe::sklearn_columns(model, file), model.unread_columns()),
            Self::Trees { model, .. } => (model.feature_names().unwrap_or_default().to_vec(), Vec::new()),
            Self::CatBoost { model, .. } => (describe::catboost_columns(model), Vec::new()),
        }
    }

    /// Returns the names of the features, if the library takes the columns of a frame by position.
    pub(super) fn features_by_position(&self) -> Option<&[String]> {
        match self {
            Self::Trees { model, flavor } if !matches!(flavor, Flavor::Xgboost(_)) => model.feature_names(),
            Self::Trees { .. } | Self::CatBoost { .. } => None,
            Self::Sklearn { model, .. } => model.features_by_position(),
        }
    }

    /// Sets how many bytes the contributions may be prepared with.
    pub(super) fn set_contribution_limit(&mut self, bytes: usize) {
        match self {
            Self::Sklearn { model, .. } => model.set_contribution_limit(bytes),
            Self::Trees { model, .. } => model.set_contribution_limit(bytes),
            Self::CatBoost { model, .. } => model.set_contribution_limit(bytes),
        }
    }

    /// Returns whether contributions have been prepared, or are known not to exist.
    pub(super) fn has_prepared_contributions(&self) -> bool {
        match self {
            Self::Sklearn { model, .. } => model.has_prepared_contributions(),
            Self::Trees { model, .. } => model.has_prepared_contributions(),
            Self::CatBoost { model, .. } => model.has_prepared_contributions(),
        }
    }

    /// Returns how many bytes contributions take once they are prepared, 0 if the model has none.
    pub(super) fn contribution_bytes(&self) -> usize {
        match self {
            Self::Sklearn { model, .. } => model.contribution_bytes(),
            Self::Trees { model, .. } => model.contribution_bytes(),
            Self::CatBoost { model, .. } => model.contribution_bytes(),
        }
    }

    /// Returns how predictions are explained, if they are.
    pub(super) fn explanation(&self) -> Option<EstimatorExplanation> {
        match self {
            Self::Sklearn { model, .. } => model.explanation().ok(),
            Self::Trees { model, flavor } => Some(EstimatorExplanation {
                space: ContributionSpace::Margin,
                features: model.n_features(),
                sums: model.n_outputs(),
                leaves: model.row_bytes(EnsembleOutput::Leaf).map(|bytes| [bytes / size_of::<i32>(), 1]),
                is_single: matches!(flavor, Flavor::Xgboost(_)),
            }),
            Self::CatBoost { model, .. } => Some(EstimatorExplanation {
                space: ContributionSpace::Margin,
                features: model.n_columns(),
                sums: model.n_outputs(),
                leaves: model.columns(CatBoostOutput::Leaf).map(|trees| [trees, 1]),
                is_single: false,
            }),
        }
    }

    /// Returns whether the model may have contributions, as far as that is known before they are prepared.
    pub(super) fn has_contributions(&self) -> bool {
        match self {
            Self::Sklearn { model, .. } => model.check_contributions().is_ok(),
            Self::Trees { model, .. } => model.check_contributions().is_ok(),
            Self::CatBoost { model, .. } => model.check_contributions().is_ok(),
        }
    }

    /// Returns the names of the features that contribute, if the file has them.
    pub(super) fn explained_names(&self) -> Option<Vec<String>> {
        match self {
            Self::Sklearn { model, .. } => model.explained_names().map(<[String]>::to_vec),
            Self::Trees { model, .. } => model.feature_names().map(<[String]>::to_vec),
            Self::CatBoost { model, .. } => model.feature_names(),
        }
    }

    /// Estimates how long an output of explanations takes for `rows` rows on one thread.
    pub(super) fn estimate_explained(&self, rows: usize, output: EnsembleOutput) -> Duration {
        match self {
            Self::Sklearn { model, .. } => model.estimate_explained(rows, output),
            Self::Trees { model, .. } => model.estimate(rows, output),
            Self::CatBoost { model, .. } => model.estimate(rows, evaluated(output)),
        }
    }

    /// Evaluates contributions, margins or leaves, and stops soon after `stop` is set.
    pub(super) fn explain(
        &self,
        output: EnsembleOutput,
        data: &TableData<'_>,
        stop: &AtomicBool,
    ) -> Result<trees::Prediction, InputError> {
        match self {
            Self::Sklearn { model, .. } => {
                model.explain(output, data, stop).map_err(|error| InputError::Model(error.to_string()))
            }
            Self::Trees { model, flavor } => predict_trees(model, *flavor, data, output, stop),
            Self::CatBoost { model, .. } => {
                let failed = |error: catboost::PredictError| InputError::Model(error.to_string());
                let found = model.predict(data, evaluated(output), stop).map_err(failed)?;
                let values = match found.elements {
                    Elements::F64(values) => PredictedValues::F64(values.into_owned()),
                    Elements::Int(values, _) => PredictedValues::I32(
                        // The numbers of leaves were counted in 32 bits.
                        values.iter().map(|leaf| i32::try_from(*leaf).unwrap_or(i32::MAX)).collect(),
                    ),
                    _ => return Err(InputError::Model("explanations are no numbers".to_owned())),
                };
                Ok(trees::Prediction { values, columns: found.columns })
            }
        }
    }

    /// Predicts all rows, and stops soon after `stop` is set.
    pub(super) fn predict(&self, data: &TableData<'_>, stop: &AtomicBool) -> Result<Prediction, InputError> {
        match self {
            Self::Sklearn { model, method, flat } => {
                if data.rows() == 0 {
                    return Err(InputError::Model("it takes at least one row".to_owned()));
                }
                let failed = |error: sklearn::PredictError| match error {
                    // The library converts strings of digits to numbers.
                    sklearn::PredictError::Text { .. } => InputError::NotNative(error.to_string()),
                    error => InputError::Model(error.to_string()),
                };
                match model.call_until(*method, data, stop).map_err(failed)? {
                    TableData::Table(table) => {
                        let (rows, columns) = (table.rows(), table.columns());
                        let nesting = Nesting::new(*flat && columns == 1);
                        Ok(Prediction { elements: table.into_elements(), rows, columns, nesting })
                    }
                    TableData::Sparse(_) | TableData::Frame(_) => {
                        Err(InputError::NotNative(format!("`{method}` returns no array")))
                    }
                }
            }
            Self::Trees { model, flavor } => {
                let prediction = predict_trees(model, *flavor, data, EnsembleOutput::Predict, stop)?;
                let elements = match prediction.values {
                    PredictedValues::F32(values) => Elements::F32(values.into()),
                    PredictedValues::F64(values) => Elements::F64(values.into()),
                    PredictedValues::I64(values) => Elements::Int(values.into(), IntType::I64),
                    PredictedValues::I32(values) => {
                        Elements::Int(values.into_iter().map(i64::from).collect(), IntType::I32)
                    }
                };
                let columns = prediction.columns;
                Ok(Prediction { elements, rows: data.rows(), columns, nesting: Nesting::new(columns == 1) })
            }
            Self::CatBoost { model, output } => {
                let failed = |error: catboost::PredictError| InputError::Model(error.to_string());
                let prediction = model.predict(data, *output, stop).map_err(failed)?;
                let (rows, nesting) = (data.rows(), Nesting::new(model.predicts_list(*output)));
                Ok(Prediction { elements: prediction.elements, rows, columns: prediction.columns, nesting })
            }
        }
    }
}

/// Returns what `predict` of a class of the library computes.
fn catboost_output(class: TreeModelClass, model: &CatBoostModel) -> Result<CatBoostOutput, LoadError> {
    let wanted = match class {
        TreeModelClass::Booster => return Ok(CatBoostOutput::Raw),
        TreeModelClass::Classifier => true,
        TreeModelClass::Regressor => false,
    };
    if model.is_classifier() == wanted {
        return Ok(CatBoostOutput::Predict);
    }
    Err(LoadError::Refused("its class is not that of its loss function".to_owned()))
}

fn method(name: &str, model: &sklearn::FittedEstimator) -> Result<EstimatorMethod, LoadError> {
    let known =
        [EstimatorMethod::Predict, EstimatorMethod::PredictProba].into_iter().find(|method| method.name() == name);
    let method = known.ok_or_else(|| LoadError::Refused(format!("`predict_fn` is `{name}`")))?;
    if model.methods().contains(method) {
        return Ok(method);
    }
    Err(LoadError::Refused(format!("`{}` has no `{name}`", model.class_path())))
}

fn predict_trees(
    model: &trees::TreeEnsemble,
    flavor: Flavor,
    data: &TableData<'_>,
    output: EnsembleOutput,
    stop: &AtomicBool,
) -> Result<trees::Prediction, InputError> {
    let (rows, columns) = (data.rows(), data.columns());
    let failed = |reason: String| Err(InputError::Model(reason));
    let xgboost = matches!(flavor, Flavor::Xgboost(_));
    let booster = matches!(flavor, Flavor::Xgboost(TreeModelClass::Booster));
    if columns != model.n_features() {
        return failed(format!("the model takes {} features, but each row has {columns}", model.n_features()));
    }
    if let (true, Some(names)) = (xgboost, model.feature_names()) {
        match data {
            TableData::Frame(frame) if frame.names().iter().zip(names).any(|(found, wanted)| found != wanted) => {
                return failed(format!("the model was trained with the columns {names:?}, in that order"));
            }
            TableData::Table(_) if booster => {
                return failed(format!("the model was trained with the columns {names:?}, but an array has no names"));
            }
            _ => {}
        }
    }
    let values = match data {
        TableData::Table(table) => {
            numbers(std::slice::from_ref(table.elements()), table.elements().len(), 1, xgboost, true)
        }
        TableData::Frame(frame) => {
            if rows == 0 && !xgboost {
                return failed("the model takes at least one row".to_owned());
            }
            numbers(frame.columns(), rows, columns, xgboost, false)
        }
        TableData::Sparse(_) => None,
    };
    let Some(values) = values else {
        let reason = "the model takes numbers, but the input has strings".to_owned();
        // LightGBM converts an array of strings of digits to numbers.
        let is_converted = !xgboost && matches!(data, TableData::Table(_));
        return Err(if is_converted { InputError::NotNative(reason) } else { InputError::Model(reason) });
    };
    if booster && matches!(&values, Numbers::F32(values) if values.iter().any(|value| value.is_infinite())) {
        return failed("the model does not take infinite values".to_owned());
    }
    let inconsistent = |error: trees::PredictError| InputError::Model(error.to_string());
    let values = match &values {
        Numbers::F32(values) => FeatureValues::F32(values),
        Numbers::F64(values) => FeatureValues::F64(values),
    };
    let matrix = FeatureMatrix::new(values, rows, columns).map_err(inconsistent)?;
    model.predict(matrix.until(stop), output).map_err(inconsistent)
}

enum Numbers {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// Interleaves columns into rows, in the type in which the library reads them. Returns `None` if a column has strings.
///
/// XGBoost reads everything in single precision. LightGBM reads doubles as they are, and integers of 32 and 64 bits as
/// doubles if they are columns of a frame, but in single precision if they are an array.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as both libraries read numbers")]
fn numbers(columns: &[Elements<'_>], rows: usize, width: usize, single: bool, array: bool) -> Option<Numbers> {
    let wide = |column: &Elements<'_>| match column {
        Elements::F64(_) => true,
        Elements::Int(_, kind) => !array && matches!(kind, IntType::I32 | IntType::I64 | IntType::U32 | IntType::U64),
        Elements::F32(_) | Elements::Text(_) | Elements::PartialText(_) => false,
    };
    if single || !columns.iter().any(wide) {
        let mut cells = vec![0.0_f32; rows * width];
        for (index, column) in columns.iter().enumerate() {
            let slots = cells.iter_mut().skip(index).step_by(width);
            match column {
                Elements::F32(values) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value),
                Elements::F64(values) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value as f32),
                Elements::Int(values, _) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value as f32),
                Elements::Text(_) | Elements::PartialText(_) => return None,
            }
        }
        return Some(Numbers::F32(cells));
    }
    let mut cells = vec![0.0_f64; rows * width];
    for (index, column) in columns.iter().enumerate() {
        let slots = cells.iter_mut().skip(index).step_by(width);
        match column {
            Elements::F32(values) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = f64::from(*value)),
            Elements::F64(values) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value),
            Elements::Int(values, _) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value as f64),
            Elements::Text(_) | Elements::PartialText(_) => return None,
        }
    }
    Some(Numbers::F64(cells))
}
