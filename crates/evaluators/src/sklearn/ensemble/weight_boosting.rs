//! `AdaBoost`.

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{Estimator, EstimatorInfo, Evaluate};
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::numerics::{argmax, divide, softmax};
use crate::sklearn::spec::EstimatorSpec;
use crate::sklearn::sub_estimators::{self, NumericAnswer, sub_estimators};
use crate::table::{DenseTable, Elements, TableData};

/// What each estimator adds to the sums of the classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    /// Its weight for the class that it predicts. If `balanced`, a share of the weight is subtracted from the other
    /// classes.
    Votes { balanced: bool },
    /// Its probabilities (`SAMME.R`).
    Probabilities,
}

#[derive(Debug)]
struct Classifier {
    members: Vec<Estimator>,
    weights: Vec<f64>,
    /// The sum of all weights.
    total: f64,
    algorithm: Algorithm,
    labels: Elements<'static>,
}

/// Predicts the weighted median of the estimators' predictions.
#[derive(Debug)]
struct Regressor {
    members: Vec<Estimator>,
    weights: Vec<f64>,
}

/// Reads the weights of the estimators. The file may have more weights than estimators.
fn weights(fitted: &FittedObject<'_>, members: usize) -> Result<Vec<f64>, LoadError> {
    let weights = fitted.floats("estimator_weights_")?;
    if weights.len() < members {
        fitted.check_count("estimator_weights_", members, weights.len())?;
    }
    Ok(weights)
}

pub(super) fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let labels = fitted.labels("classes_")?;
    if labels.len() < 2 {
        return Err(fitted.unexpected("classes_", "at least two classes"));
    }
    let members = sub_estimators(fitted, "estimators_")?;
    let weights = weights(fitted, members.len())?;
    let algorithm = match fitted.text_if("algorithm") {
        Some("SAMME.R") if fitted.version() < SklearnVersion(1, 6) => Algorithm::Probabilities,
        None | Some("SAMME" | "deprecated") => {
            // Fixed in 1.3.1.
            let first = fitted.text_if("_sklearn_version").is_some_and(|version| version.starts_with("1.3.0"));
            Algorithm::Votes { balanced: fitted.version() >= SklearnVersion(1, 3) && !first }
        }
        Some(_) => return Err(fitted.unsupported("algorithm")),
    };
    let wanted =
        if algorithm == Algorithm::Probabilities { EstimatorMethod::PredictProba } else { EstimatorMethod::Predict };
    if members.iter().any(|member| !member.info.methods.contains(wanted)) {
        return Err(fitted.unexpected("estimators_", "classifiers"));
    }
    let total = weights.iter().sum();
    let methods = MethodSet::PREDICT.with(EstimatorMethod::PredictProba).with(EstimatorMethod::DecisionFunction);
    Ok(EstimatorSpec::new(methods, fitted.n_features()?, Classifier { members, weights, total, algorithm, labels }))
}

pub(super) fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let members = sub_estimators(fitted, "estimators_")?;
    let weights = weights(fitted, members.len())?;
    if members.iter().any(|member| !member.info.methods.contains(EstimatorMethod::Predict)) {
        return Err(fitted.unexpected("estimators_", "regressors"));
    }
    Ok(EstimatorSpec::new(MethodSet::PREDICT, fitted.n_features()?, Regressor { members, weights }))
}

impl Classifier {
    #[expect(clippy::cast_precision_loss, reason = "classes are few")]
    fn sums(&self, data: &TableData<'_>) -> Result<NumericAnswer, PredictError> {
        let classes = self.labels.len();
        let others = classes as f64 - 1.0;
        let mut sums = vec![0.0; data.rows() * classes];
        let mut single = self.algorithm == Algorithm::Probabilities;
        for (member, &weight) in self.members.iter().zip(&self.weights) {
            if let Algorithm::Votes { balanced } = self.algorithm {
                let rest = if balanced { -1.0 / others * weight } else { 0.0 };
                for (sums, vote) in sums.chunks_exact_mut(classes).zip(member.predicted_positions(data, &self.labels)?)
                {
                    let add = |class: usize| if class == vote { weight } else { rest };
                    sums.iter_mut().enumerate().for_each(|(class, sum)| *sum += add(class));
                }
                continue;
            }
            let own = member.numbers_of(EstimatorMethod::PredictProba, data, classes)?;
            single &= own.single;
            let least = if own.single { f64::from(f32::EPSILON) } else { f64::EPSILON };
            for (sums, own) in sums.chunks_exact_mut(classes).zip(own.values.chunks_exact(classes)) {
                let logs = own.iter().map(|&probability| probability.max(least).ln());
                let mean = 1.0 / classes as f64 * logs.clone().sum::<f64>();
                sums.iter_mut().zip(logs).for_each(|(sum, log)| *sum += others * (log - mean));
            }
        }
        divide(&mut sums, self.total);
        if classes > 2 {
            return Ok(NumericAnswer { values: sums, columns: classes, single });
        }
        let values = sums.chunks_exact(2).map(|pair| -pair[0] + pair[1]).collect();
        Ok(NumericAnswer { values, columns: 1, single })
    }
}

impl Evaluate for Classifier {
    #[expect(clippy::cast_precision_loss, reason = "classes are few")]
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        info.check(data)?;
        let classes = self.labels.len();
        let sums = self.sums(&sub_estimators::check_array(data, info)?)?;
        Ok(match method {
            EstimatorMethod::DecisionFunction => sums.table(),
            EstimatorMethod::PredictProba => {
                let mut values: Vec<f64> = if classes == 2 {
                    sums.values.iter().flat_map(|sum| [-sum / 2.0, sum / 2.0]).collect()
                } else {
                    sums.values.iter().map(|sum| sum / (classes as f64 - 1.0)).collect()
                };
                values.chunks_exact_mut(classes).for_each(softmax);
                NumericAnswer { values, columns: classes, single: sums.single }.table()
            }
            _ if classes == 2 => {
                let positive = sums.values.iter().map(|&sum| usize::from(sum > 0.0));
                TableData::Table(DenseTable::of_column(self.labels.take(positive)))
            }
            _ => {
                TableData::Table(DenseTable::of_column(self.labels.take(sums.values.chunks_exact(classes).map(argmax))))
            }
        })
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.members)
    }
}

impl Evaluate for Regressor {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        info.check(data)?;
        let data = sub_estimators::check_array(data, info)?;
        let mut single = true;
        let mut predictions = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let answer = member.numbers_of(EstimatorMethod::Predict, &data, 1)?;
            single &= answer.single;
            predictions.push(answer.values);
        }
        let medians = (0..data.rows()).map(|row| {
            let own = predictions.iter().map(|answer| answer[row]);
            let mut own: Vec<(f64, f64)> = own.zip(self.weights.iter().copied()).collect();
            own.sort_by(|one, other| one.0.total_cmp(&other.0));
            median(&own)
        });
        Ok(sub_estimators::table(medians.collect(), data.rows(), 1, single))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.members)
    }
}

/// Returns the first of the ascending numbers at which half of the total weight is reached.
fn median(sorted: &[(f64, f64)]) -> f64 {
    let mut sum = 0.0;
    let sums: Vec<f64> = sorted
        .iter()
        .map(|(_, weight)| {
            sum += weight;
            sum
        })
        .collect();
    let found = sums.iter().position(|&so_far| so_far >= 0.5 * sum).unwrap_or(0);
    sorted.get(found).map_or(f64::NAN, |(value, _)| *value)
}
