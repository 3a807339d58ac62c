//! Multi-layer perceptrons, and restricted Boltzmann machines.

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{affine, argmax, expit, softmax, transpose};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, TableData, to_f32};

pub(super) const CLASSES: ClassTable = &[
    ("neural_network.BernoulliRBM", boltzmann),
    ("neural_network.MLPClassifier", classifier),
    ("neural_network.MLPRegressor", regressor),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activation {
    Identity,
    Logistic,
    Tanh,
    Relu,
    Softmax,
}

impl Activation {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "identity" => Self::Identity,
            "logistic" => Self::Logistic,
            "tanh" => Self::Tanh,
            "relu" => Self::Relu,
            "softmax" => Self::Softmax,
            _ => return None,
        })
    }

    fn apply(self, values: &mut [f64], columns: usize) {
        match self {
            Self::Identity => {}
            Self::Logistic => values.iter_mut().for_each(|value| *value = expit(*value)),
            Self::Tanh => values.iter_mut().for_each(|value| *value = value.tanh()),
            Self::Relu => values.iter_mut().for_each(|value| *value = value.max(0.0)),
            Self::Softmax => values.chunks_exact_mut(columns).for_each(softmax),
        }
    }
}

/// One layer. Its weights have one row for each input.
#[derive(Debug)]
struct Layer {
    weights: Vec<f64>,
    intercept: Vec<f64>,
    inputs: usize,
    activation: Activation,
}

#[derive(Debug)]
struct Network {
    layers: Vec<Layer>,
    labels: Option<Elements<'static>>,
    outputs: usize,
    /// Whether the weights have single precision; if the input has it too, results are returned in single precision.
    single: bool,
}

/// Loads `BernoulliRBM`, whose `transform` returns the means of its hidden units: a layer.
fn boltzmann(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let components = fitted.matrix("components_")?;
    if components.values.is_empty() {
        return Err(fitted.unexpected("components_", "components"));
    }
    let (outputs, inputs, single) = (components.rows, components.columns, components.single);
    let intercept = fitted.floats_of("intercept_hidden_", outputs)?;
    let weights = transpose(&components.values, outputs, inputs);
    let layers = vec![Layer { weights, intercept, inputs, activation: Activation::Logistic }];
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, inputs, Network { layers, labels: None, outputs, single }))
}

fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    network(fitted, MethodSet::PREDICT, None)
}

fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let binarizer = fitted.part(fitted.require("_label_binarizer")?)?;
    if binarizer.text_if("y_type_").is_some_and(|kind| kind.starts_with("multilabel")) {
        return Err(binarizer.unsupported("y_type_"));
    }
    network(fitted, MethodSet::PREDICT.with(EstimatorMethod::PredictProba), Some(binarizer.labels("classes_")?))
}

fn network(
    fitted: &FittedObject<'_>,
    methods: MethodSet,
    labels: Option<Elements<'static>>,
) -> Result<EstimatorSpec, LoadError> {
    let activation =
        |attribute| Activation::parse(fitted.text(attribute)?).ok_or_else(|| fitted.unsupported(attribute));
    let (hidden, last) = (activation("activation")?, activation("out_activation_")?);
    let coefficients = fitted.items("coefs_")?;
    let intercepts = fitted.items("intercepts_")?;
    fitted.check_count("intercepts_", coefficients.len(), intercepts.len())?;
    let mut layers: Vec<Layer> = Vec::with_capacity(coefficients.len());
    let mut single = true;
    for (index, (&coefficients, &intercept)) in coefficients.iter().zip(&intercepts).enumerate() {
        let coefficients = fitted.matrix_of("coefs_", coefficients)?;
        let intercept = fitted.matrix_of("intercepts_", intercept)?;
        if coefficients.values.is_empty() {
            return Err(fitted.unexpected("coefs_", "layers that are not empty"));
        }
        let before = layers.last().map_or(coefficients.rows, |layer| layer.intercept.len());
        fitted.check_count("coefs_", before, coefficients.rows)?;
        fitted.check_count("intercepts_", coefficients.columns, intercept.values.len())?;
        single &= coefficients.single;
        let activation = if index + 1 == intercepts.len() { last } else { hidden };
        layers.push(Layer {
            weights: coefficients.values,
            intercept: intercept.values,
            inputs: coefficients.rows,
            activation,
        });
    }
    let (Some(first), Some(end)) = (layers.first(), layers.last()) else {
        return Err(fitted.unexpected("coefs_", "at least one layer"));
    };
    let (features, outputs) = (first.inputs, end.intercept.len());
    if let Some(labels) = &labels {
        if labels.len() < 2 {
            return Err(fitted.unexpected("_label_binarizer", "at least two classes"));
        }
        fitted.check_count("coefs_", if labels.len() == 2 { 1 } else { labels.len() }, outputs)?;
    }
    Ok(EstimatorSpec::new(methods, features, Network { layers, labels, outputs, single }))
}

impl Evaluate for Network {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let mut values = x.to_f64().into_owned();
        for layer in &self.layers {
            values = affine(&values, layer.inputs, &layer.weights, &layer.intercept);
            layer.activation.apply(&mut values, layer.intercept.len());
        }
        let (values, columns) = match &self.labels {
            Some(labels) if method == EstimatorMethod::Predict && self.outputs == 1 => {
                let positive = values.iter().map(|&value| usize::from(value > 0.5));
                return Ok(TableData::Table(DenseTable::of_column(labels.take(positive))));
            }
            Some(labels) if method == EstimatorMethod::Predict => {
                let best = values.chunks_exact(self.outputs).map(argmax);
                return Ok(TableData::Table(DenseTable::of_column(labels.take(best))));
            }
            Some(_) if self.outputs == 1 => (values.iter().flat_map(|&value| [1.0 - value, value]).collect(), 2),
            _ => (values, self.outputs),
        };
        if self.single && x.is_single() {
            let elements = Elements::F32(values.into_iter().map(to_f32).collect());
            return Ok(TableData::Table(DenseTable { elements, rows: x.rows, columns }));
        }
        Ok(TableData::Table(DenseTable::of_f64(values, columns)))
    }

    fn cost(&self) -> u64 {
        50 + self.layers.iter().map(|layer| layer.weights.len() as u64).sum::<u64>()
    }
}
