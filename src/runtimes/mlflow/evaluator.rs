//! The model behind an `MLmodel`: one of the native evaluators.

use std::time::Duration;

use bytes::Bytes;

use super::LoadError;
use super::description::{Class, Description, Flavor};
use super::enforce::Refusal;
use super::signature::Input;
use crate::evaluators::sklearn::{self, DenseTable, Elements, EstimatorMethod, IntType, TableData};
use crate::evaluators::trees::{self, EnsembleOutput, FeatureMatrix, FeatureValues, PredictedValues, WrapperKind};

/// A loaded model.
#[derive(Debug)]
pub(super) enum Evaluator {
    Sklearn {
        model: sklearn::FittedEstimator,
        method: EstimatorMethod,
        /// Its answers of one column are lists of numbers, not of lists.
        flat: bool,
    },
    Trees {
        model: trees::TreeEnsemble,
        flavor: Flavor,
    },
}

/// What a model has answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) elements: Elements<'static>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// It is a list of numbers, not of lists.
    pub(super) flat: bool,
}

impl Evaluator {
    pub(super) fn load(description: &Description, bytes: Vec<u8>) -> Result<Self, LoadError> {
        let evaluator = match description.flavor {
            Flavor::Sklearn | Flavor::Lightgbm(Class::Classifier | Class::Regressor) => {
                let bytes = Bytes::from(bytes);
                let model = sklearn::FittedEstimator::load(bytes.clone()).map_err(LoadError::Estimator)?;
                let method = method(&description.predict_fn, &model)?;
                let flat = method == EstimatorMethod::Predict
                    && match description.signature.output_rank {
                        Some(rank) => rank == 1,
                        None => sklearn::ArtifactReport::predicts_list(&bytes),
                    };
                Self::Sklearn { model, method, flat }
            }
            flavor => {
                if description.predict_fn != "predict" {
                    return Err(LoadError::Refused(format!("`predict_fn` is `{}`", description.predict_fn)));
                }
                let model = match flavor {
                    Flavor::Xgboost(Class::Booster) => trees::TreeEnsemble::load_xgboost_booster(&bytes),
                    Flavor::Xgboost(Class::Classifier) => {
                        trees::TreeEnsemble::load_xgboost_as(&bytes, WrapperKind::Classifier)
                    }
                    Flavor::Xgboost(Class::Regressor) => {
                        trees::TreeEnsemble::load_xgboost_as(&bytes, WrapperKind::Regressor)
                    }
                    _ => trees::TreeEnsemble::load_lightgbm(&bytes),
                };
                Self::Trees { model: model.map_err(LoadError::Trees)?, flavor }
            }
        };
        evaluator.check_features(&description.signature.input)?;
        Ok(evaluator)
    }

    /// Refuses models that their own signature does not fit: what the libraries make of that is up to their version.
    fn check_features(&self, input: &Input) -> Result<(), LoadError> {
        let declared = match input {
            Input::Columns(columns) => columns.len(),
            Input::Tensor { shape, .. } => match shape[..] {
                [_, columns] => usize::try_from(columns).unwrap_or(self.features().unwrap_or_default()),
                _ => {
                    return Err(LoadError::Refused(
                        "its signature has a tensor that has not two dimensions".to_owned(),
                    ));
                }
            },
            Input::Anything => return Ok(()),
        };
        match self.features() {
            Some(features) if features != declared => Err(LoadError::Refused(format!(
                "its signature has {declared} columns, but the model {features} features"
            ))),
            _ => Ok(()),
        }
    }

    fn features(&self) -> Option<usize> {
        match self {
            Self::Sklearn { model, .. } => model.n_features(),
            Self::Trees { model, .. } => Some(model.n_features()),
        }
    }

    /// Estimates how long the answer for so many rows takes on one thread, within a factor of a few.
    pub(super) fn estimate(&self, rows: usize) -> Duration {
        match self {
            Self::Sklearn { model, .. } => model.estimate(rows),
            Self::Trees { model, .. } => model.estimate(rows),
        }
    }

    pub(super) fn predict(&self, data: &TableData<'_>) -> Result<Answer, Refusal> {
        match self {
            Self::Sklearn { model, method, flat } => {
                if data.rows() == 0 {
                    return Err(Refusal::Model("it takes at least one row".to_owned()));
                }
                let failed = |error: sklearn::PredictError| match error {
                    // The library makes numbers of texts of digits.
                    sklearn::PredictError::Text { .. } => Refusal::NotNative(error.to_string()),
                    error => Refusal::Model(error.to_string()),
                };
                match model.call(*method, data).map_err(failed)? {
                    TableData::Table(DenseTable { elements, rows, columns }) => {
                        Ok(Answer { elements, rows, columns, flat: *flat && columns == 1 })
                    }
                    TableData::Sparse(_) | TableData::Frame(_) => {
                        Err(Refusal::NotNative(format!("`{method}` returns no array")))
                    }
                }
            }
            Self::Trees { model, flavor } => predict_trees(model, *flavor, data),
        }
    }
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

fn predict_trees(model: &trees::TreeEnsemble, flavor: Flavor, data: &TableData<'_>) -> Result<Answer, Refusal> {
    let (rows, columns) = (data.rows(), data.columns());
    let failed = |reason: String| Err(Refusal::Model(reason));
    let xgboost = matches!(flavor, Flavor::Xgboost(_));
    let booster = matches!(flavor, Flavor::Xgboost(Class::Booster));
    if columns != model.n_features() {
        return failed(format!("the model takes {} features, but each row has {columns}", model.n_features()));
    }
    if let (true, Some(names)) = (xgboost, model.feature_names()) {
        match data {
            TableData::Frame(frame) if frame.names.iter().zip(names).any(|(found, wanted)| found != wanted) => {
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
            numbers(std::slice::from_ref(&table.elements), table.elements.len(), 1, xgboost, true)
        }
        TableData::Frame(frame) => {
            if rows == 0 && !xgboost {
                return failed("the model takes at least one row".to_owned());
            }
            numbers(&frame.columns, rows, columns, xgboost, false)
        }
        TableData::Sparse(_) => None,
    };
    let Some(values) = values else {
        let reason = "the model takes numbers, but there is text".to_owned();
        // LightGBM makes numbers of an array of digits.
        let made = !xgboost && matches!(data, TableData::Table(_));
        return Err(if made { Refusal::NotNative(reason) } else { Refusal::Model(reason) });
    };
    if booster && matches!(&values, Numbers::F32(values) if values.iter().any(|value| value.is_infinite())) {
        return failed("the model does not take infinite values".to_owned());
    }
    let inconsistent = |error: trees::PredictError| Refusal::Model(error.to_string());
    let values = match &values {
        Numbers::F32(values) => FeatureValues::F32(values),
        Numbers::F64(values) => FeatureValues::F64(values),
    };
    let matrix = FeatureMatrix::new(values, rows, columns).map_err(inconsistent)?;
    let prediction = model.predict(matrix, EnsembleOutput::Predict).map_err(inconsistent)?;
    let elements = match prediction.values {
        PredictedValues::F32(values) => Elements::F32(values.into()),
        PredictedValues::F64(values) => Elements::F64(values.into()),
        PredictedValues::I64(values) => Elements::Int(values.into(), IntType::I64),
        PredictedValues::I32(values) => Elements::Int(values.into_iter().map(i64::from).collect(), IntType::I32),
    };
    Ok(Answer { elements, rows, columns: prediction.columns, flat: prediction.columns == 1 })
}

enum Numbers {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// Puts columns side by side, in the type in which the library reads them; nothing when there is text.
///
/// XGBoost reads everything in single precision. LightGBM reads doubles as they are, and integers of 32 and 64 bits as
/// doubles when they are columns of a frame, but in single precision when they are an array.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as both libraries read numbers")]
fn numbers(columns: &[Elements<'_>], rows: usize, width: usize, single: bool, array: bool) -> Option<Numbers> {
    let wide = |column: &Elements<'_>| match column {
        Elements::F64(_) => true,
        Elements::Int(_, kind) => !array && matches!(kind, IntType::I32 | IntType::I64 | IntType::U32 | IntType::U64),
        Elements::F32(_) | Elements::Text(_) => false,
    };
    if single || !columns.iter().any(wide) {
        let mut cells = vec![0.0_f32; rows * width];
        for (place, column) in columns.iter().enumerate() {
            let slots = cells.iter_mut().skip(place).step_by(width);
            match column {
                Elements::F32(values) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value),
                Elements::F64(values) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value as f32),
                Elements::Int(values, _) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value as f32),
                Elements::Text(_) => return None,
            }
        }
        return Some(Numbers::F32(cells));
    }
    let mut cells = vec![0.0_f64; rows * width];
    for (place, column) in columns.iter().enumerate() {
        let slots = cells.iter_mut().skip(place).step_by(width);
        match column {
            Elements::F32(values) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = f64::from(*value)),
            Elements::F64(values) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value),
            Elements::Int(values, _) => slots.zip(&values[..]).for_each(|(slot, value)| *slot = *value as f64),
            Elements::Text(_) => return None,
        }
    }
    Some(Numbers::F64(cells))
}
