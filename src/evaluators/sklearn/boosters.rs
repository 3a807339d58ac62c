//! `XGBoost`'s and `LightGBM`'s wrappers for scikit-learn: the boosters that they hold are evaluated by `trees`.
//!
//! A pickled `XGBoost` booster is its model as JSON or UBJSON, a `LightGBM` one is its model as text.

use std::borrow::Cow;
use std::sync::Arc;

use super::classes::{Classes, Family};
use super::data::{Data, Elements, Floats, Int, Table};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Evaluate, Method, Methods};
use super::fitted::Fitted;
use super::numerics::argmax;
use crate::evaluators::trees::{Kind, Matrix, Model, Output, Prediction, Scores, Values};
use crate::pickle::Value;

pub(super) const CLASSES: Classes = &[
    ("lightgbm.LGBMClassifier", lightgbm_classifier),
    ("lightgbm.LGBMRanker", lightgbm_regressor),
    ("lightgbm.LGBMRegressor", lightgbm_regressor),
    ("xgboost.XGBClassifier", xgboost_classifier),
    ("xgboost.XGBRanker", xgboost_regressor),
    ("xgboost.XGBRFClassifier", xgboost_classifier),
    ("xgboost.XGBRFRegressor", xgboost_regressor),
    ("xgboost.XGBRegressor", xgboost_regressor),
];

/// The largest models take many times the memory of their text, and are checked by their own loader.
#[derive(Debug)]
struct Booster {
    model: Model,
    answers: Answers,
    /// What a number is that sparse rows do not have.
    absent: f64,
}

/// What a wrapper makes of the booster's predictions.
#[derive(Debug)]
enum Answers {
    /// They are the answer.
    Values,
    /// `XGBoost`'s evaluator knows the wrapper; classes are numbers, or, in old files, the places of labels.
    Classes(Option<Elements<'static>>),
    /// A probability for each class, of two classes that of the second one.
    Probabilities(Elements<'static>),
}

fn xgboost_classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let labels = match fitted.get("_le") {
        Some(encoder) => Some(fitted.part(encoder)?.labels("classes_")?),
        None => None,
    };
    let methods = Methods::PREDICT.and(Method::PredictProba);
    xgboost(fitted, Kind::Classifier, methods, Answers::Classes(labels))
}

fn xgboost_regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    xgboost(fitted, Kind::Regressor, Methods::PREDICT, Answers::Values)
}

fn xgboost(fitted: &Fitted<'_>, kind: Kind, methods: Methods, answers: Answers) -> Result<Family, LoadError> {
    if fitted.get("missing").and_then(Value::as_f64).is_some_and(|missing| !missing.is_nan()) {
        return Err(fitted.unsupported("missing"));
    }
    let booster = fitted.part(fitted.need("_Booster")?)?;
    let bytes = booster.need("handle")?.as_bytes().ok_or_else(|| booster.unexpected("handle", "a model as bytes"))?;
    fitted.spend(bytes.len())?;
    let model = Model::load_xgboost_as(bytes, kind).map_err(|error| fitted.booster(error))?;
    let names = model.feature_names().map(<[String]>::to_vec);
    let features = model.n_features();
    Ok(Family::composed(methods, Some(features), None, Booster { model, answers, absent: f64::NAN }).with_names(names))
}

fn lightgbm_classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let labels = fitted.part(fitted.need("_le")?)?.labels("classes_")?;
    // With an objective of its own it answers with something else.
    fitted.text("_objective")?;
    // Scores came with 4.7; what its files have and those of 4.5 have not came with 4.6.
    let scores = fitted.value().attribute("_fitted_with_feature_names").is_some();
    let methods = Methods::PREDICT.and(Method::PredictProba).and_if(scores, Method::DecisionFunction);
    lightgbm(fitted, methods, Answers::Probabilities(labels))
}

fn lightgbm_regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    lightgbm(fitted, Methods::PREDICT, Answers::Values)
}

fn lightgbm(fitted: &Fitted<'_>, methods: Methods, answers: Answers) -> Result<Family, LoadError> {
    let booster = fitted.part(fitted.need("_Booster")?)?;
    let name = if booster.get("_handle").is_some() { "_handle" } else { "handle" };
    let text = booster.text(name)?;
    fitted.spend(text.len())?;
    // The text has all rounds, also those after the best one.
    let best = booster.get("best_iteration").and_then(Value::as_i64);
    let rounds = best.and_then(|best| usize::try_from(best).ok()).filter(|&best| best > 0);
    let model = Model::load_lightgbm_until(text.as_bytes(), rounds).map_err(|error| fitted.booster(error))?;
    let features = model.n_features();
    Ok(Family::composed(methods, Some(features), None, Booster { model, answers, absent: 0.0 }).without_names())
}

impl Booster {
    fn ask(&self, output: Output, data: &Data<'_>, about: &About) -> Result<Prediction, PredictError> {
        let (rows, columns) = (data.rows(), data.columns());
        // Both libraries read arrays of integers in single precision.
        let floats = match data {
            Data::Table(Table { elements: Elements::Int(values, _), .. }) => {
                Floats::F32(values.iter().map(|&value| to_f32(value)).collect::<Vec<_>>().into())
            }
            _ => about.unchecked(data)?.floats.into_owned(),
        };
        let values = match &floats {
            Floats::F32(values) => Values::F32(values),
            Floats::F64(values) => Values::F64(values),
        };
        let inconsistent = || PredictError::Features {
            class: Arc::clone(&about.class),
            wanted: self.model.n_features(),
            found: columns,
        };
        let matrix = Matrix::new(values, rows, columns).map_err(|_| inconsistent())?;
        self.model.predict(matrix, output).map_err(|_| inconsistent())
    }
}

impl Evaluate for Booster {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let output = match (&self.answers, method) {
            (Answers::Classes(_), Method::PredictProba) => Output::PredictProba,
            (_, Method::DecisionFunction) => Output::Margin,
            _ => Output::Predict,
        };
        let prediction = self.ask(output, data, about)?;
        let (rows, columns) = (data.rows(), prediction.columns);
        let whole = |elements| Ok(Data::Table(Table { elements, rows, columns }));
        match (&self.answers, method, prediction.values) {
            (Answers::Classes(Some(labels)), Method::Predict, Scores::I64(places)) => {
                let known = |&place: &i64| usize::try_from(place).ok().filter(|&place| place < labels.len());
                let places: Option<Vec<usize>> = places.iter().map(known).collect();
                let places = places.ok_or_else(|| PredictError::Label { class: Arc::clone(&about.class) })?;
                whole(labels.take(places.into_iter()))
            }
            (Answers::Probabilities(labels), Method::Predict | Method::PredictProba, Scores::F64(values)) => {
                let (values, columns) = if columns == 1 {
                    (values.into_iter().flat_map(|positive| [1.0 - positive, positive]).collect(), 2)
                } else {
                    (values, columns)
                };
                if columns != labels.len() {
                    return Err(PredictError::Part {
                        class: Arc::clone(&about.class),
                        wanted: labels.len(),
                        found: columns,
                    });
                }
                Ok(Data::Table(match method {
                    Method::PredictProba => Table::of_f64(values, columns),
                    _ => Table::of_column(labels.take(values.chunks_exact(columns).map(argmax))),
                }))
            }
            (_, _, Scores::F32(values)) => whole(Elements::F32(values.into())),
            (_, _, Scores::F64(values)) => whole(Elements::F64(values.into())),
            (_, _, Scores::I64(values)) => whole(Elements::Int(values.into(), Int::I64)),
            (_, _, Scores::I32(values)) => whole(Elements::Int(values.into_iter().map(i64::from).collect(), Int::I32)),
        }
    }

    fn absent(&self) -> f64 {
        self.absent
    }

    fn cost(&self) -> u64 {
        u64::try_from(self.model.estimate(1).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Floats<'_> {
    fn into_owned(self) -> Floats<'static> {
        match self {
            Self::F32(values) => Floats::F32(Cow::Owned(values.into_owned())),
            Self::F64(values) => Floats::F64(Cow::Owned(values.into_owned())),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "as both libraries read integers")]
const fn to_f32(integer: i64) -> f32 {
    integer as f32
}
