//! The scikit-learn wrappers of `XGBoost` and `LightGBM`, and boosters of `LightGBM` without one. The boosters are evaluated by `trees`.
//!
//! `XGBoost` pickles a booster as JSON or UBJSON, `LightGBM` as its text format.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::error::{LoadError, PredictError, Unexplained};
use super::estimator::{ContributionSpace, EstimatorInfo, Evaluate, Explain};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::argmax;
use super::spec::{ClassTable, EstimatorSpec};
use crate::pickle::PickleValue;
use crate::table::{DenseTable, Elements, FloatValues, IntType, TableData};
use crate::trees::{
    self, EnsembleOutput, FeatureMatrix, FeatureValues, NoContributions, PredictedValues, Prediction, TreeEnsemble,
    WrapperKind,
};

pub(super) const CLASSES: ClassTable = &[
    ("lightgbm.Booster", lightgbm_booster),
    ("lightgbm.LGBMClassifier", lightgbm_classifier),
    ("lightgbm.LGBMRanker", lightgbm_regressor),
    ("lightgbm.LGBMRegressor", lightgbm_regressor),
    ("xgboost.XGBClassifier", xgboost_classifier),
    ("xgboost.XGBRanker", xgboost_regressor),
    ("xgboost.XGBRFClassifier", xgboost_classifier),
    ("xgboost.XGBRFRegressor", xgboost_regressor),
    ("xgboost.XGBRegressor", xgboost_regressor),
];

/// A booster inside a wrapper. The largest models take many times the memory of their text; their own loader checks
/// that.
#[derive(Debug)]
struct Booster {
    model: TreeEnsemble,
    output_kind: WrapperOutput,
    /// The value of a cell that a sparse row does not store.
    absent: f64,
    is_lightgbm: bool,
}

/// How a wrapper turns the booster's predictions into its own.
#[derive(Debug)]
enum WrapperOutput {
    /// The predictions are returned unchanged.
    Values,
    /// The evaluator of `XGBoost` knows the wrapper. Classes are numbers or, in old files, indices of labels.
    Classes(Option<Elements<'static>>),
    /// A probability for each class or, if there are two, the probability of the second class.
    Probabilities(Elements<'static>),
}

fn xgboost_classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let labels = match fitted.get("_le") {
        Some(encoder) => Some(fitted.part(encoder)?.labels("classes_")?),
        None => None,
    };
    let methods = MethodSet::PREDICT.with(EstimatorMethod::PredictProba);
    xgboost(fitted, WrapperKind::Classifier, methods, WrapperOutput::Classes(labels))
}

fn xgboost_regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    xgboost(fitted, WrapperKind::Regressor, MethodSet::PREDICT, WrapperOutput::Values)
}

fn xgboost(
    fitted: &FittedObject<'_>,
    kind: WrapperKind,
    methods: MethodSet,
    output_kind: WrapperOutput,
) -> Result<EstimatorSpec, LoadError> {
    if fitted.get("missing").and_then(PickleValue::as_f64).is_some_and(|missing| !missing.is_nan()) {
        return Err(fitted.unsupported("missing"));
    }
    let booster = fitted.part(fitted.require("_Booster")?)?;
    let bytes =
        booster.require("handle")?.as_bytes().ok_or_else(|| booster.unexpected("handle", "a model as bytes"))?;
    fitted.spend(bytes.len())?;
    let model = TreeEnsemble::load_xgboost_as(bytes, kind).map_err(|error| fitted.booster(error))?;
    let names = model.feature_names().map(<[String]>::to_vec);
    let features = model.n_features();
    Ok(EstimatorSpec::composed(
        methods,
        Some(features),
        None,
        Booster { model, output_kind, absent: f64::NAN, is_lightgbm: false },
    )
    .with_names(names))
}

fn lightgbm_classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let labels = fitted.part(fitted.require("_le")?)?.labels("classes_")?;
    // A model with a custom objective returns something else.
    fitted.text("_objective")?;
    // Scores came with 4.7. The attribute came with 4.6, so that only files of 4.5 and earlier are recognized.
    let scores = fitted.value().attribute("_fitted_with_feature_names").is_some();
    let methods =
        MethodSet::PREDICT.with(EstimatorMethod::PredictProba).with_if(scores, EstimatorMethod::DecisionFunction);
    lightgbm(fitted, methods, WrapperOutput::Probabilities(labels))
}

fn lightgbm_regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    lightgbm(fitted, MethodSet::PREDICT, WrapperOutput::Values)
}

fn lightgbm(
    fitted: &FittedObject<'_>,
    methods: MethodSet,
    output_kind: WrapperOutput,
) -> Result<EstimatorSpec, LoadError> {
    lightgbm_of(&fitted.part(fitted.require("_Booster")?)?, methods, output_kind)
}

/// Loads a booster without a wrapper.
fn lightgbm_booster(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    lightgbm_of(fitted, MethodSet::PREDICT, WrapperOutput::Values)
}

fn lightgbm_of(
    booster: &FittedObject<'_>,
    methods: MethodSet,
    output_kind: WrapperOutput,
) -> Result<EstimatorSpec, LoadError> {
    let name = if booster.get("_handle").is_some() { "_handle" } else { "handle" };
    let text = booster.text(name)?;
    booster.spend(text.len())?;
    // The text contains all rounds, including those after the best one.
    let best = booster.get("best_iteration").and_then(PickleValue::as_i64);
    let rounds = best.and_then(|best| usize::try_from(best).ok()).filter(|&best| best > 0);
    let model = TreeEnsemble::load_lightgbm_until(text.as_bytes(), rounds).map_err(|error| booster.booster(error))?;
    let features = model.n_features();
    Ok(EstimatorSpec::composed(
        methods,
        Some(features),
        None,
        Booster { model, output_kind, absent: 0.0, is_lightgbm: true },
    )
    .without_names())
}

impl Booster {
    /// Estimates the time of an output of a row in nanoseconds.
    fn cost_of(&self, output: EnsembleOutput) -> u64 {
        u64::try_from(self.model.estimate(1, output).as_nanos()).unwrap_or(u64::MAX)
    }

    fn predict_booster(
        &self,
        output: EnsembleOutput,
        data: &TableData<'_>,
        info: &EstimatorInfo,
        stop: Option<&AtomicBool>,
    ) -> Result<Prediction, PredictError> {
        let (rows, columns) = (data.rows(), data.columns());
        // Both libraries read arrays of integers in single precision.
        let floats = match data {
            TableData::Table(DenseTable { elements: Elements::Int(values, _), .. }) => {
                FloatValues::F32(values.iter().map(|&value| to_f32(value)).collect::<Vec<_>>().into())
            }
            _ => info.unchecked(data)?.floats.into_owned(),
        };
        let values = match &floats {
            FloatValues::F32(values) => FeatureValues::F32(values),
            FloatValues::F64(values) => FeatureValues::F64(values),
        };
        let inconsistent = || PredictError::Features {
            class: Arc::clone(&info.class),
            wanted: self.model.n_features(),
            found: columns,
        };
        let matrix = FeatureMatrix::new(values, rows, columns).map_err(|_| inconsistent())?;
        let matrix = stop.map_or(matrix, |stop| matrix.until(stop));
        self.model.predict(matrix, output).map_err(|error| match error {
            trees::PredictError::NoContributions(error) => info.no_contributions(error),
            trees::PredictError::NoLeaves => PredictError::NoLeaves { class: Arc::clone(&info.class) },
            trees::PredictError::Cancelled => PredictError::Cancelled,
            _ => inconsistent(),
        })
    }
}

impl Evaluate for Booster {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let output = match (&self.output_kind, method) {
            (WrapperOutput::Classes(_), EstimatorMethod::PredictProba) => EnsembleOutput::PredictProba,
            (_, EstimatorMethod::DecisionFunction) => EnsembleOutput::Margin,
            _ => EnsembleOutput::Predict,
        };
        let prediction = self.predict_booster(output, data, info, None)?;
        let (rows, columns) = (data.rows(), prediction.columns);
        let whole = |elements| Ok(TableData::Table(DenseTable { elements, rows, columns }));
        match (&self.output_kind, method, prediction.values) {
            (WrapperOutput::Classes(Some(labels)), EstimatorMethod::Predict, PredictedValues::I64(places)) => {
                let known = |&place: &i64| usize::try_from(place).ok().filter(|&place| place < labels.len());
                let places: Option<Vec<usize>> = places.iter().map(known).collect();
                let places = places.ok_or_else(|| PredictError::Label { class: Arc::clone(&info.class) })?;
                whole(labels.take(places.into_iter()))
            }
            (
                WrapperOutput::Probabilities(labels),
                EstimatorMethod::Predict | EstimatorMethod::PredictProba,
                PredictedValues::F64(values),
            ) => {
                let (values, columns) = if columns == 1 {
                    (values.into_iter().flat_map(|positive| [1.0 - positive, positive]).collect(), 2)
                } else {
                    (values, columns)
                };
                if columns != labels.len() {
                    return Err(PredictError::Part {
                        class: Arc::clone(&info.class),
                        wanted: labels.len(),
                        found: columns,
                    });
                }
                Ok(TableData::Table(match method {
                    EstimatorMethod::PredictProba => DenseTable::of_f64(values, columns),
                    _ => DenseTable::of_column(labels.take(values.chunks_exact(columns).map(argmax))),
                }))
            }
            (_, _, PredictedValues::F32(values)) => whole(Elements::F32(values.into())),
            (_, _, PredictedValues::F64(values)) => whole(Elements::F64(values.into())),
            (_, _, PredictedValues::I64(values)) => whole(Elements::Int(values.into(), IntType::I64)),
            (_, _, PredictedValues::I32(values)) => {
                whole(Elements::Int(values.into_iter().map(i64::from).collect(), IntType::I32))
            }
        }
    }

    fn absent(&self) -> f64 {
        self.absent
    }

    fn features_by_position(&self) -> Option<&[String]> {
        self.model.feature_names().filter(|_| self.is_lightgbm)
    }

    fn cost(&self) -> u64 {
        self.cost_of(EnsembleOutput::Predict)
    }

    fn explained<'a>(&'a self, info: &'a EstimatorInfo) -> Result<(&'a dyn Explain, &'a EstimatorInfo), Unexplained> {
        Ok((self, info))
    }

    fn limit_contributions(&mut self, bytes: usize) {
        self.model.set_contribution_limit(bytes);
    }
}

impl Explain for Booster {
    fn space(&self) -> ContributionSpace {
        ContributionSpace::Margin
    }

    fn features(&self) -> usize {
        self.model.n_features()
    }

    fn sums(&self) -> usize {
        self.model.n_outputs()
    }

    fn leaves(&self) -> Option<[usize; 2]> {
        let bytes = self.model.row_bytes(EnsembleOutput::Leaf)?;
        Some([bytes / size_of::<i32>(), 1])
    }

    fn is_single(&self) -> bool {
        !self.is_lightgbm
    }

    fn feature_names(&self) -> Option<&[String]> {
        self.model.feature_names()
    }

    fn check(&self) -> Result<(), NoContributions> {
        self.model.check_contributions()
    }

    fn is_prepared(&self) -> bool {
        self.model.has_prepared_contributions()
    }

    fn contribution_bytes(&self) -> usize {
        self.model.contribution_bytes()
    }

    fn cost(&self) -> u64 {
        self.cost_of(EnsembleOutput::Contributions)
    }

    fn explain(
        &self,
        output: EnsembleOutput,
        data: &TableData<'_>,
        info: &EstimatorInfo,
        stop: &AtomicBool,
    ) -> Result<Prediction, PredictError> {
        self.predict_booster(output, data, info, Some(stop))
    }
}

impl FloatValues<'_> {
    fn into_owned(self) -> FloatValues<'static> {
        match self {
            Self::F32(values) => FloatValues::F32(Cow::Owned(values.into_owned())),
            Self::F64(values) => FloatValues::F64(Cow::Owned(values.into_owned())),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "as both libraries read integers")]
const fn to_f32(integer: i64) -> f32 {
    integer as f32
}
