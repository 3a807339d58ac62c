//! Scores that become probabilities: calibrated classifiers, and isotonic regression by itself.

use std::sync::Arc;

use super::classes::{Classes, Family};
use super::data::{Data, Elements, Table};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Estimator, Evaluate, Method, Methods};
use super::fitted::{Fitted, Version};
use super::members;
use super::numerics::{argmax, divide, expit, softmax};
use crate::pickle::Value;

pub(super) const CLASSES: Classes =
    &[("calibration.CalibratedClassifierCV", classifier), ("isotonic.IsotonicRegression", isotonic)];

/// A function of straight pieces.
#[derive(Debug)]
struct Isotonic {
    /// In ascending order.
    x: Vec<f64>,
    y: Vec<f64>,
    single: bool,
    outside: Outside,
}

/// What becomes of numbers that are not between the first and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    Clip,
    Missing,
    Refuse,
}

impl Isotonic {
    fn load(fitted: &Fitted<'_>) -> Result<Self, LoadError> {
        let x = fitted.matrix("X_thresholds_")?;
        let y = fitted.floats_of("y_thresholds_", x.values.len())?;
        if x.values.is_empty() || !x.values.is_sorted() {
            return Err(fitted.unexpected("X_thresholds_", "ascending numbers"));
        }
        let outside = match fitted.text("out_of_bounds")? {
            "clip" => Outside::Clip,
            "nan" => Outside::Missing,
            "raise" => Outside::Refuse,
            _ => return Err(fitted.unsupported("out_of_bounds")),
        };
        // The numbers are those of the file, which may be of single precision.
        Ok(Self { x: x.values, y, single: x.single, outside })
    }

    /// The value at a finite number, or nothing outside of the range.
    fn at(&self, number: f64) -> Option<f64> {
        let (first, last) = (self.x[0], self.x[self.x.len() - 1]);
        let number = if self.outside == Outside::Clip { number.clamp(first, last) } else { number };
        let number = if self.single { f64::from(super::data::to_f32(number)) } else { number };
        if self.x.len() == 1 {
            return Some(self.y[0]);
        }
        if number < first || number > last {
            return None;
        }
        let after = self.x.partition_point(|&x| x <= number);
        let before = after.saturating_sub(1);
        if after == self.x.len() {
            return Some(self.y[before]);
        }
        let slope = (self.y[after] - self.y[before]) / (self.x[after] - self.x[before]);
        Some(slope * (number - self.x[before]) + self.y[before])
    }

    fn of(&self, numbers: &[f64], class: &Arc<str>) -> Result<Vec<f64>, PredictError> {
        let value = |&number: &f64| {
            if !number.is_finite() {
                return Err(PredictError::NotFinite { class: Arc::clone(class) });
            }
            match self.at(number) {
                Some(value) => Ok(value),
                None if self.outside == Outside::Missing => Ok(f64::NAN),
                None => Err(PredictError::Range { class: Arc::clone(class) }),
            }
        };
        numbers.iter().map(value).collect()
    }
}

fn isotonic(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    Ok(Family::new(Methods::PREDICT.and(Method::Transform), 1, Isotonic::load(fitted)?))
}

impl Evaluate for Isotonic {
    fn call(&self, _: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let x = about.finite(data)?;
        let values = self.of(&x.to_f64(), &about.class)?;
        Ok(members::table(values, (x.rows, 1), self.single))
    }

    fn cost(&self) -> u64 {
        20 + 2 * u64::from(self.x.len().ilog2())
    }
}

/// What makes a probability of a score.
#[derive(Debug)]
enum Calibrator {
    Sigmoid { slope: f64, offset: f64 },
    Isotonic(Isotonic),
}

/// What makes probabilities of the scores of one classifier.
#[derive(Debug)]
enum Calibration {
    /// One for each score.
    Each(Vec<Calibrator>),
    /// All scores times one number, which become probabilities together.
    Temperature(f64),
}

/// A classifier and what was found about its scores.
#[derive(Debug)]
struct Calibrated {
    estimator: Estimator,
    calibration: Calibration,
}

/// `CalibratedClassifierCV`: the mean over calibrated classifiers.
#[derive(Debug)]
struct Ensemble {
    members: Vec<Calibrated>,
    labels: Elements<'static>,
    version: Version,
}

fn classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let labels = fitted.labels("classes_")?;
    if labels.len() < 2 {
        return Err(fitted.unexpected("classes_", "at least two classes"));
    }
    let all = fitted.items("calibrated_classifiers_")?;
    let members: Vec<_> = all.into_iter().map(|one| calibrated(fitted, one, &labels)).collect::<Result<_, _>>()?;
    let first = members.first().ok_or_else(|| fitted.unexpected("calibrated_classifiers_", "at least one"))?;
    let features = first.estimator.about.features;
    let methods = Methods::PREDICT.and(Method::PredictProba);
    Ok(Family::composed(methods, features, None, Ensemble { members, labels, version: fitted.version() }))
}

fn calibrated<'a>(outer: &Fitted<'a>, value: Value<'a>, classes: &Elements<'_>) -> Result<Calibrated, LoadError> {
    let fitted = outer.part(value)?;
    let name = if fitted.get("estimator").is_some() { "estimator" } else { "base_estimator" };
    let value = fitted.need(name)?;
    let estimator = fitted.estimator(value)?;
    // A fold that lacks a class is answered by rules of its own, which changed.
    let own = members::labels(&fitted, value);
    let same = own.as_ref().and_then(|own| members::positions(own, classes));
    // For temperatures text may have been numbered before.
    let places = same.or_else(|| members::numbered(&fitted, own, classes.len()));
    if places.is_none_or(|places| !places.into_iter().eq(0..classes.len())) {
        return Err(fitted.unexpected(name, "a classifier of all classes"));
    }
    if estimator.scoring() == Method::Predict {
        return Err(fitted.unexpected(name, "a classifier with scores"));
    }
    let parts = fitted.items("calibrators")?;
    let scores = if classes.len() == 2 { 1 } else { classes.len() };
    let calibration = match fitted.text("method")? {
        "temperature" => {
            fitted.count("calibrators", 1, parts.len())?;
            Calibration::Temperature(fitted.part(parts[0])?.number("beta_")?)
        }
        "sigmoid" | "isotonic" => {
            fitted.count("calibrators", scores, parts.len())?;
            let calibrator = |part: Value<'a>| {
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
    fn probabilities(&self, data: &Data<'_>, classes: usize, version: Version) -> Result<Vec<f64>, PredictError> {
        let (method, class) = (self.estimator.scoring(), &self.estimator.about.class);
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
                scaled.iter_mut().for_each(at_most_one);
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
            share(row, version);
            row.iter_mut().for_each(at_most_one);
        }
        Ok(probabilities)
    }
}

/// Makes probabilities of the classes add up to one.
#[expect(clippy::cast_precision_loss, reason = "classes are few")]
fn share(row: &mut [f64], version: Version) {
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
    // The first version looked for what is missing only after that.
    if version < Version(1, 0) {
        row.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = uniform);
    }
}

/// What rounding puts above one is one.
fn at_most_one(value: &mut f64) {
    if 1.0 < *value && *value <= 1.0 + 1e-5 {
        *value = 1.0;
    }
}

/// Scores as the newest versions scale them.
fn logits(scores: Vec<f64>, classes: usize, method: Method) -> Vec<f64> {
    const TINY: f64 = 1e-12;
    if classes == 2 && method == Method::PredictProba {
        return scores.into_iter().flat_map(|score| [(1.0 - score + TINY).ln(), (score + TINY).ln()]).collect();
    }
    if classes == 2 {
        return scores.into_iter().flat_map(|score| [-score, score]).collect();
    }
    // Whatever looks like probabilities in all rows is taken for them.
    let near_one = |row: &[f64]| (row.iter().sum::<f64>() - 1.0).abs() <= 1e-5 + 1e-8;
    let inside = scores.iter().all(|score| (0.0..=1.0).contains(score));
    if inside && scores.chunks_exact(classes).all(near_one) {
        return scores.into_iter().map(|score| (score + TINY).ln()).collect();
    }
    scores
}

impl Evaluate for Ensemble {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let classes = self.labels.len();
        let plain;
        let data = if self.version < Version(1, 0) {
            plain = members::plain(data, about)?;
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
        Ok(Data::Table(match method {
            Method::PredictProba => Table::of_f64(means, classes),
            _ => Table::of_column(self.labels.take(means.chunks_exact(classes).map(argmax))),
        }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        members::cost(self.members.iter().map(|member| &member.estimator))
    }
}
