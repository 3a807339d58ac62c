//! Linear and quadratic discriminant analysis.

use super::decomposition::Projection;
use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::linear_model;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{argmax, softmax};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, TableData};

pub(super) const CLASSES: ClassTable = &[
    ("discriminant_analysis.LinearDiscriminantAnalysis", linear_discriminant),
    ("discriminant_analysis.QuadraticDiscriminantAnalysis", quadratic),
];

/// A linear classifier that can also transform.
#[derive(Debug)]
struct LinearDiscriminant {
    classifier: linear_model::Classifier,
    projection: Option<Projection>,
}

fn linear_discriminant(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let (classifier, methods, features) = linear_model::discriminant(fitted)?;
    let solver = fitted.text("solver")?;
    let projection = if solver == "lsqr" {
        None
    } else {
        let scalings = fitted.matrix("scalings_")?;
        fitted.check_count("scalings_", features, scalings.rows)?;
        if scalings.columns == 0 {
            return Err(fitted.unexpected("scalings_", "at least one direction"));
        }
        let mean = if solver == "svd" { Some(fitted.floats_of("xbar_", features)?) } else { None };
        let outputs = fitted.size("_max_components")?.min(scalings.columns);
        Some(Projection::through(&scalings.values, scalings.columns, outputs, mean))
    };
    let methods = methods.with_if(projection.is_some(), EstimatorMethod::Transform);
    Ok(EstimatorSpec::new(methods, features, LinearDiscriminant { classifier, projection }))
}

impl Evaluate for LinearDiscriminant {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        match &self.projection {
            Some(projection) if method == EstimatorMethod::Transform => projection.apply(data, info),
            _ => self.classifier.call(method, data, info),
        }
    }

    fn cost(&self) -> u64 {
        self.classifier.cost()
    }
}

#[derive(Debug)]
struct QuadraticDiscriminant {
    classes: Vec<ClassDistribution>,
    labels: Elements<'static>,
    features: usize,
}

#[derive(Debug)]
struct ClassDistribution {
    mean: Vec<f64>,
    /// The principal axes, divided by the square roots of their variances, one row for each feature.
    axes: Vec<f64>,
    columns: usize,
    /// The sum of the logarithms of the variances.
    spread: f64,
    prior: f64,
}

fn quadratic(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let means = fitted.matrix("means_")?;
    let labels = fitted.labels("classes_")?;
    let (count, features) = (means.rows, means.columns);
    fitted.check_count("classes_", count, labels.len())?;
    let priors = fitted.floats_of("priors_", count)?;
    let (rotations, scalings) = (fitted.items("rotations_")?, fitted.items("scalings_")?);
    fitted.check_count("rotations_", count, rotations.len())?;
    fitted.check_count("scalings_", count, scalings.len())?;
    if means.values.is_empty() || count < 2 {
        return Err(fitted.unexpected("means_", "at least two classes"));
    }
    let mut classes = Vec::with_capacity(count);
    for index in 0..count {
        let rotation = fitted.matrix_of("rotations_", rotations[index])?;
        let variances = fitted.matrix_of("scalings_", scalings[index])?.values;
        fitted.check_count("scalings_", rotation.columns, variances.len())?;
        fitted.check_count("rotations_", features, rotation.rows)?;
        let columns = variances.len();
        let scales: Vec<f64> = variances.iter().map(|variance| variance.powf(-0.5)).collect();
        let axes = rotation.values.chunks_exact(columns.max(1));
        let axes = axes.flat_map(|row| row.iter().zip(&scales).map(|(value, scale)| value * scale)).collect();
        classes.push(ClassDistribution {
            mean: means.values[index * features..(index + 1) * features].to_vec(),
            axes,
            columns,
            spread: variances.iter().map(|variance| variance.ln()).sum(),
            prior: priors[index].ln(),
        });
    }
    let methods = MethodSet::PREDICT.with(EstimatorMethod::PredictProba).with(EstimatorMethod::DecisionFunction);
    Ok(EstimatorSpec::new(methods, features, QuadraticDiscriminant { classes, labels, features }))
}

impl ClassDistribution {
    fn score(&self, row: &[f64]) -> f64 {
        let mut projected = vec![0.0; self.columns];
        for ((x, mean), axes) in row.iter().zip(&self.mean).zip(self.axes.chunks_exact(self.columns.max(1))) {
            let difference = x - mean;
            projected.iter_mut().zip(axes).for_each(|(sum, axis)| *sum += difference * axis);
        }
        let squares: f64 = projected.iter().map(|value| value * value).sum();
        -0.5 * (squares + self.spread) + self.prior
    }
}

impl Evaluate for QuadraticDiscriminant {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let classes = self.classes.len();
        let values = x.to_f64();
        let rows = values.chunks_exact(self.features);
        let mut scores: Vec<f64> =
            rows.flat_map(|row| self.classes.iter().map(move |class| class.score(row))).collect();
        Ok(TableData::Table(match method {
            EstimatorMethod::DecisionFunction if classes == 2 => {
                DenseTable::of_f64(scores.chunks_exact(2).map(|pair| pair[1] - pair[0]).collect(), 1)
            }
            EstimatorMethod::DecisionFunction => DenseTable::of_f64(scores, classes),
            EstimatorMethod::PredictProba => {
                scores.chunks_exact_mut(classes).for_each(softmax);
                DenseTable::of_f64(scores, classes)
            }
            _ => DenseTable::of_column(self.labels.take(scores.chunks_exact(classes).map(argmax))),
        }))
    }

    fn cost(&self) -> u64 {
        50 + self.classes.iter().map(|class| class.axes.len() as u64).sum::<u64>()
    }
}
