//! Calibrated classifiers: scores that become probabilities.

use super::error::{LoadError, PredictError};
use super::estimator::{Estimator, EstimatorInfo, Evaluate};
use super::fitted::{FittedObject, SklearnVersion};
use super::isotonic::Isotonic;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{argmax, divide, expit, softmax};
use super::spec::{ClassTable, EstimatorSpec};
use super::sub_estimators;
use crate::pickle::PickleValue;
use crate::table::{DenseTable, Elements, TableData};

pub(super) const CLASSES: ClassTable = &[("calibration.CalibratedClassifierCV", classifier)];

/// Maps a score to a probability.
#[derive(Debug)]
enum Calibrator {
    Sigmoid { slope: f64, offset: f64 },
    Isotonic(Isotonic),
}

/// Maps the scores of one classifier to probabilities.
#[derive(Debug)]
enum Calibration {
    /// One for each score.
    Each(Vec<Calibrator>),
    /// Multiplies all scores by one number; softmax turns them into probabilities.
    Temperature(f64),
}

/// A classifier and the calibration of its scores.
#[derive(Debug)]
struct Calibrated {
    estimator: Estimator,
    calibration: Calibration,
}

/// `CalibratedClassifierCV`: the mean over calibrated classifiers.
#[derive(Debug)]
struct CalibratedClassifierCv {
    members: Vec<Calibrated>,
    labels: Elements<'static>,
    version: SklearnVersion,
}

fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let labels = fitted.labels("classes_")?;
    if labels.len() < 2 {
        return Err(fitted.unexpected("classes_", "at least two classes"));
    }
    let all = fitted.items("calibrated_classifiers_")?;
    let members: Vec<_> = all.into_iter().map(|one| calibrated(fitted, one, &labels)).collect::<Result<_, _>>()?;
    let first = members.first().ok_or_else(|| fitted.unexpected("calibrated_classifiers_", "at least one"))?;
    let features = first.estimator.info.features;
    let methods = MethodSet::PREDICT.with(EstimatorMethod::PredictProba);
    Ok(EstimatorSpec::composed(
        methods,
        features,
        None,
        CalibratedClassifierCv { members, labels, version: fitted.version() },
    ))
}

fn calibrated<'a>(
    outer: &FittedObject<'a>,
    value: PickleValue<'a>,
    classes: &Elements<'_>,
) -> Result<Calibrated, LoadError> {
    let fitted = outer.part(value)?;
    let name = if fitted.get("estimator").is_some() { "estimator" } else { "base_estimator" };
    let value = fitted.require(name)?;
    let estimator = fitted.estimator(value)?;
    // A fold that lacks a class follows different rules, which changed between versions.
    let own = sub_estimators::labels(&fitted, value);
    let same = own.as_ref().and_then(|own| sub_estimators::positions(own, classes));
    // For temperature scaling, text labels may have been replaced by numbers.
    let places = same.or_else(|| sub_estimators::numbered_labels(&fitted, own, classes.len()));
    if places.is_none_or(|places| !places.into_iter().eq(0..classes.len())) {
        return Err(fitted.unexpected(name, "a classifier of all classes"));
    }
    if estimator.scoring() == EstimatorMethod::Predict {
        return Err(fitted.unexpected(name, "a classifier with scores"));
    }
    let parts = fitted.items("calibrators")?;
    let scores = if classes.len() == 2 { 1 } else { classes.len() };
    let calibration = match fitted.text("method")? {
        "temperature" => {
            fitted.check_count("calibrators", 1, parts.len())?;
            Calibration::Temperature(fitted.part(parts[0])?.number("beta_")?)
        }
        "sigmoid" | "isotonic" => {
            fitted.check_count("calibrators", scores, parts.len())?;
            let calibrator = |part: PickleValue<'a>| {
                let part = fitted.part(part)?;
                match part.class().rsplit('.').next() {
                    Some("_SigmoidCalibration") => {
                        Ok(Calibrator::Sigmoid { slope: part.number("a_")?, offset: part.number("b_")? })
                    }
                    Some("IsotonicRegression") => Isotonic::load(&part).map(Calibrator::Isotonic),
                    _ => Err(LoadError::Class { found: part.class().to_owned() }),
                }
            };
            Calibration::Each(parts.into_iter().map(calibrator).collect::<Result<_, _>>()?)
        }
        _ => return Err(fitted.unsupported("method")),
    };
    Ok(Calibrated { estimator, calibration })
}

impl Calibrated {
    fn probabilities(
        &self,
        data: &TableData<'_>,
        classes: usize,
        version: SklearnVersion,
    ) -> Result<Vec<f64>, PredictError> {
        let (method, class) = (self.estimator.scoring(), &self.estimator.info.class);
        let scores = if classes == 2 {
            self.estimator.score(method, data)?
        } else {
            self.estimator.numbers_of(method, data, classes)?
        };
        let calibrators = match &self.calibration {
            Calibration::Each(calibrators) => calibrators,
            Calibration::Temperature(beta) => {
                let logits = logits(scores.values, classes, method);
                let mut scaled: Vec<f64> = logits.into_iter().map(|logit| beta * logit).collect();
                scaled.chunks_exact_mut(classes).for_each(softmax);
                scaled.iter_mut().for_each(clip_to_one);
                return Ok(scaled);
            }
        };
        let mut probabilities = vec![0.0; scores.values.len() / scores.columns * classes];
        for (index, calibrator) in calibrators.iter().enumerate() {
            let own: Vec<f64> = scores.values.iter().copied().skip(index).step_by(scores.columns).collect();
            let own = match calibrator {
                Calibrator::Sigmoid { slope, offset } => {
                    own.into_iter().map(|score| expit(-(slope * score + offset))).collect()
                }
                Calibrator::Isotonic(isotonic) => isotonic.of(&own, class)?,
            };
            let place = if classes == 2 { 1 } else { index };
            probabilities.iter_mut().skip(place).step_by(classes).zip(own).for_each(|(slot, value)| *slot = value);
        }
        for row in probabilities.chunks_exact_mut(classes) {
            normalize_probabilities(row, version);
            row.iter_mut().for_each(clip_to_one);
        }
        Ok(probabilities)
    }
}

/// Normalizes the probabilities of the classes so that they sum to one.
#[expect(clippy::cast_precision_loss, reason = "classes are few")]
fn normalize_probabilities(row: &mut [f64], version: SklearnVersion) {
    let uniform = 1.0 / row.len() as f64;
    if let [negative, positive] = row {
        *negative = 1.0 - *positive;
    } else {
        let sum: f64 = row.iter().sum();
        if sum == 0.0 {
            row.fill(uniform);
        } else {
            divide(row, sum);
        }
    }
    // Before 1.0, NaN was replaced only after the normalization.
    if version < SklearnVersion(1, 0) {
        row.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = uniform);
    }
}

/// Replaces values that exceed one because of rounding by one.
fn clip_to_one(value: &mut f64) {
    if 1.0 < *value && *value <= 1.0 + 1e-5 {
        *value = 1.0;
    }
}

/// Converts scores to logits, as the newest versions scale them.
fn logits(scores: Vec<f64>, classes: usize, method: EstimatorMethod) -> Vec<f64> {
    const TINY: f64 = 1e-12;
    if classes == 2 && method == EstimatorMethod::PredictProba {
        return scores.into_iter().flat_map(|score| [(1.0 - score + TINY).ln(), (score + TINY).ln()]).collect();
    }
    if classes == 2 {
        return scores.into_iter().flat_map(|score| [-score, score]).collect();
    }
    // If all rows look like probabilities, they are treated as probabilities.
    let near_one = |row: &[f64]| (row.iter().sum::<f64>() - 1.0).abs() <= 1e-5 + 1e-8;
    let inside = scores.iter().all(|score| (0.0..=1.0).contains(score));
    if inside && scores.chunks_exact(classes).all(near_one) {
        return scores.into_iter().map(|score| (score + TINY).ln()).collect();
    }
    scores
}

impl Evaluate for CalibratedClassifierCv {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let classes = self.labels.len();
        let plain;
        let data = if self.version < SklearnVersion(1, 0) {
            plain = sub_estimators::check_array(data, info)?;
            &plain
        } else {
            data
        };
        let mut means = vec![0.0; data.rows() * classes];
        for member in &self.members {
            let own = member.probabilities(data, classes, self.version)?;
            means.iter_mut().zip(own).for_each(|(mean, own)| *mean += own);
        }
        #[expect(clippy::cast_precision_loss, reason = "as NumPy divides")]
        let count = self.members.len() as f64;
        divide(&mut means, count);
        Ok(TableData::Table(match method {
            EstimatorMethod::PredictProba => DenseTable::of_f64(means, classes),
            _ => DenseTable::of_column(self.labels.take(means.chunks_exact(classes).map(argmax))),
        }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(self.members.iter().map(|member| &member.estimator))
    }
}
