//! Compiles a raw model, and evaluates it like the library's scikit-learn wrapper.

use super::linear::LinearBooster;
use super::objective::{Link, argmax, softmax};
use super::raw::{RawBooster, RawModel, XgboostVersion};
use super::trees::compile;
use crate::contributions::ContributionTable;
use crate::trees::WrapperKind;
use crate::trees::data::{FeatureMatrix, FeatureValues, PredictedValues, Prediction};
use crate::trees::error::{LoadError, quote};
use crate::trees::forest::Forest;
use crate::trees::scalar::Scalar;

/// A compiled model.
#[derive(Debug)]
pub(in crate::trees) struct Evaluator {
    booster: Booster,
    /// The initial sum of each output.
    base: Vec<f32>,
    /// Whether the trees are summed from zero and the base is added afterwards.
    base_last: bool,
    link: Link,
    version: XgboostVersion,
    /// At least 2.
    classes: usize,
    kind: WrapperKind,
}

#[derive(Debug)]
enum Booster {
    Trees(Box<Forest<f32>>),
    Linear(LinearBooster),
}

impl Evaluator {
    /// Returns the version of the library that wrote the file.
    pub(in crate::trees) fn version(&self) -> XgboostVersion {
        self.version
    }

    /// Compiles a model that was read from a file of `size` bytes.
    pub(in crate::trees) fn new(model: &RawModel, size: usize) -> Result<Self, LoadError> {
        let link = Link::of(&model.objective)?;
        let kind = match model.attributes.estimator_type.as_deref() {
            None | Some("regressor") => WrapperKind::Regressor,
            Some("classifier") => WrapperKind::Classifier,
            Some(other) => {
                return Err(LoadError::Unsupported { what: "estimator type", name: quote(other) });
            }
        };
        let outputs = model.num_class.max(model.num_target).max(1);
        // Each output takes some bytes of the file, so a larger number is false and would cost memory.
        if outputs > size {
            return Err(LoadError::TooLarge { what: "outputs", count: outputs, limit: size });
        }
        let version = model.version;
        let mut base: Vec<f32> = model.base_score.iter().map(|score| link.margin(*score, version)).collect();
        if base.len() != 1 && base.len() != outputs {
            return Err(LoadError::Count { field: "base_score", wanted: outputs, found: base.len() });
        }
        base.resize(outputs, base[0]);
        let booster = match &model.booster {
            RawBooster::Trees(trees) => Booster::Trees(Box::new(compile(model, trees, &base)?)),
            RawBooster::Linear { weights } => {
                Booster::Linear(LinearBooster::new(weights.clone(), model.num_feature, outputs, base[0])?)
            }
        };
        let base_last = model.adds_base_last();
        Ok(Self { booster, base, base_last, link, version, classes: model.num_class.max(2), kind })
    }

    /// Returns the number of sums that a row has.
    pub(in crate::trees) fn n_outputs(&self) -> usize {
        self.base.len()
    }

    pub(in crate::trees) fn kind(&self) -> WrapperKind {
        self.kind
    }

    pub(in crate::trees) fn set_kind(&mut self, kind: WrapperKind) {
        self.kind = kind;
    }

    pub(in crate::trees) fn cost(&self, rows: usize) -> usize {
        match &self.booster {
            Booster::Trees(forest) => forest.cost(rows),
            Booster::Linear(linear) => linear.cost().saturating_mul(rows),
        }
    }

    /// Returns the sums of all trees, in single precision.
    pub(in crate::trees) fn margins(&self, rows: FeatureMatrix<'_>) -> Prediction {
        let outputs = self.base.len();
        let mut margins = if self.base_last { vec![0.0; rows.rows() * outputs] } else { self.base.repeat(rows.rows()) };
        match (&self.booster, rows.values()) {
            (Booster::Trees(forest), FeatureValues::F32(values)) => {
                forest.add(&rows.input(values, f32::from_f32), &mut margins);
            }
            (Booster::Trees(forest), FeatureValues::F64(values)) => {
                forest.add(&rows.input(values, f32::from_f64), &mut margins);
            }
            (Booster::Linear(linear), values) => {
                for (index, margins) in margins.chunks_exact_mut(outputs).enumerate() {
                    if index.is_multiple_of(64) && rows.is_stopped() {
                        break;
                    }
                    let range = index * rows.columns()..(index + 1) * rows.columns();
                    match values {
                        FeatureValues::F32(values) => linear.margins(&values[range], f32::from_f32, margins),
                        FeatureValues::F64(values) => {
                            linear.margins(&values[range], f32::from_f64, margins);
                        }
                    }
                }
            }
        }
        if self.base_last {
            for margins in margins.chunks_exact_mut(outputs) {
                for (margin, base) in margins.iter_mut().zip(&self.base) {
                    *margin += base;
                }
            }
        }
        Prediction { values: PredictedValues::F32(margins), columns: outputs }
    }

    /// Returns the trees, or the linear booster in their place.
    pub(in crate::trees) fn forest(&self) -> Result<&Forest<f32>, &LinearBooster> {
        match &self.booster {
            Booster::Trees(forest) => Ok(forest),
            Booster::Linear(linear) => Err(linear),
        }
    }

    /// Returns the contributions to the sums of all trees, in single precision.
    pub(in crate::trees) fn contributions(
        &self,
        forest: &Forest<f32>,
        table: &ContributionTable,
        rows: FeatureMatrix<'_>,
    ) -> Prediction {
        let base: Vec<f64> = self.base.iter().copied().map(f64::from).collect();
        let count = rows.rows();
        let values = match rows.values() {
            FeatureValues::F32(values) => forest.contributions(table, &base, count, &rows.input(values, f32::from_f32)),
            FeatureValues::F64(values) => forest.contributions(table, &base, count, &rows.input(values, f32::from_f64)),
        };
        let values = values.into_iter().map(f32::from_f64).collect();
        Prediction { values: PredictedValues::F32(values), columns: self.base.len() * (rows.columns() + 1) }
    }

    /// Returns the contributions of features to the margins of a linear booster. The result is of no use if it was stopped.
    pub(in crate::trees) fn linear_contributions(linear: &LinearBooster, rows: FeatureMatrix<'_>) -> Prediction {
        let columns = linear.outputs() * (rows.columns() + 1);
        let mut contributions = Vec::with_capacity(rows.rows() * columns);
        for index in 0..rows.rows() {
            if index.is_multiple_of(64) && rows.is_stopped() {
                break;
            }
            let range = index * rows.columns()..(index + 1) * rows.columns();
            match rows.values() {
                FeatureValues::F32(values) => linear.contribute(&values[range], f32::from_f32, &mut contributions),
                FeatureValues::F64(values) => linear.contribute(&values[range], f32::from_f64, &mut contributions),
            }
        }
        Prediction { values: PredictedValues::F32(contributions), columns }
    }

    /// Returns the number of the leaf in each tree.
    pub(in crate::trees) fn leaves(forest: &Forest<f32>, rows: FeatureMatrix<'_>) -> Prediction {
        let values = match rows.values() {
            FeatureValues::F32(values) => forest.leaves(rows.rows(), &rows.input(values, f32::from_f32)),
            FeatureValues::F64(values) => forest.leaves(rows.rows(), &rows.input(values, f32::from_f64)),
        };
        Prediction { values: PredictedValues::I32(values), columns: forest.trees() }
    }

    /// Returns the predictions of the booster: transformed margins.
    fn predictions(&self, rows: FeatureMatrix<'_>) -> (Vec<f32>, usize) {
        let margins = self.margins(rows);
        let columns = margins.columns;
        let PredictedValues::F32(mut values) = margins.values else { unreachable!("margins are in single precision") };
        if self.link == Link::Argmax {
            return (values.chunks_exact(columns).map(|row| as_float(argmax(row))).collect(), 1);
        }
        self.link.apply(&mut values, columns, self.version);
        (values, columns)
    }

    /// Returns what `predict` of the wrapper returns.
    pub(in crate::trees) fn predict(&self, rows: FeatureMatrix<'_>) -> Prediction {
        let (values, columns) = self.predictions(rows);
        if self.kind == WrapperKind::Regressor {
            return Prediction { values: PredictedValues::F32(values), columns };
        }
        if columns > 1 && self.classes != 2 {
            let labels = values.chunks_exact(columns).map(|row| as_label(argmax(row)));
            return Prediction { values: PredictedValues::I64(labels.collect()), columns: 1 };
        }
        if columns > 1 {
            let labels = values.iter().map(|value| if *value > 0.5 { 1.0 } else { 0.0 });
            return Prediction { values: PredictedValues::F64(labels.collect()), columns };
        }
        let values = if self.link == Link::Argmax {
            PredictedValues::I32(values.into_iter().map(truncate).collect())
        } else {
            PredictedValues::I64(values.into_iter().map(|value| i64::from(value > 0.5)).collect())
        };
        Prediction { values, columns: 1 }
    }

    /// Returns what `predict_proba` of the wrapper returns, if the model is a classifier.
    pub(in crate::trees) fn probabilities(&self, rows: FeatureMatrix<'_>) -> Prediction {
        if self.link == Link::Argmax {
            let mut margins = self.margins(rows);
            if let PredictedValues::F32(values) = &mut margins.values {
                values.chunks_exact_mut(margins.columns).for_each(softmax);
            }
            return margins;
        }
        let (values, columns) = self.predictions(rows);
        if columns > 1 {
            return Prediction { values: PredictedValues::F32(values), columns };
        }
        let both = values.into_iter().flat_map(|value| [1.0 - value, value]).collect();
        Prediction { values: PredictedValues::F32(both), columns: 2 }
    }
}

/// Converts a class index to the library's own type of predictions.
#[expect(clippy::cast_precision_loss, reason = "a class index is small, and the library rounds it too")]
fn as_float(class: usize) -> f32 {
    class as f32
}

#[expect(clippy::cast_possible_wrap, reason = "an index into memory fits")]
fn as_label(class: usize) -> i64 {
    class as i64
}

#[expect(clippy::cast_possible_truncation, reason = "the wrapper truncates too")]
fn truncate(class: f32) -> i32 {
    class as i32
}
