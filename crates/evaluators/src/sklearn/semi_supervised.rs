//! `SelfTrainingClassifier`, and propagation of labels to similar rows.

use super::delegate::{Delegate, classifier_methods};
use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::kernels::{Kernel, KernelRows};
use super::method::{EstimatorMethod, MethodSet};
use super::neighbors::FittedRows;
use super::numerics::{affine, argmax, normalize};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, TableData};

pub(super) const CLASSES: ClassTable = &[
    ("semi_supervised.LabelPropagation", propagation),
    ("semi_supervised.LabelSpreading", propagation),
    ("semi_supervised.SelfTrainingClassifier", self_training),
];

/// Loads `SelfTrainingClassifier`, which has no `transform` even if the estimator inside of it has one.
fn self_training(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let name = if fitted.get("estimator_").is_some() { "estimator_" } else { "base_estimator_" };
    let estimator = fitted.estimator(fitted.require(name)?)?;
    let methods = classifier_methods(&estimator);
    let features = estimator.info.features;
    Ok(EstimatorSpec::composed(methods, features, None, Delegate { estimator }))
}

/// Labels that have spread over the rows of a fit.
#[derive(Debug)]
struct Propagation {
    similar: Similar,
    /// The distribution of the classes of each row of the fit.
    distributions: Vec<f64>,
    labels: Elements<'static>,
    features: usize,
}

/// Which rows of the fit share their labels with a row.
#[derive(Debug)]
enum Similar {
    /// All, weighted by the kernel.
    All(KernelRows),
    /// The nearest.
    Nearest(FittedRows, usize),
}

fn propagation(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let rows = fitted.double_matrix("X_")?;
    let similar = match fitted.text_if("kernel") {
        Some("rbf") => Similar::All(KernelRows::new(Kernel::Rbf { gamma: fitted.number("gamma")? }, &rows)),
        Some("knn") => {
            let neighbors = fitted.inner(fitted.require("nn_fit")?)?;
            let points = FittedRows::read(&neighbors)?;
            neighbors.check_count("_fit_X", rows.rows, points.len())?;
            let count = neighbors.size("n_neighbors")?;
            if count == 0 || count > points.len() || points.features() != rows.columns {
                return Err(neighbors.unexpected("n_neighbors", "at most as many neighbors as rows of the fit"));
            }
            Similar::Nearest(points, count)
        }
        _ => return Err(fitted.unsupported("kernel")),
    };
    let labels = fitted.labels("classes_")?;
    let distributions = fitted.double_matrix("label_distributions_")?;
    fitted.check_count("label_distributions_", rows.rows, distributions.rows)?;
    fitted.check_count("label_distributions_", labels.len(), distributions.columns)?;
    let features = rows.columns;
    let propagation = Propagation { similar, distributions: distributions.values, labels, features };
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::PredictProba), features, propagation))
}

impl Propagation {
    /// Returns the share of each class among similar rows.
    fn shares(&self, x: &[f64]) -> Vec<f64> {
        let classes = self.labels.len();
        let zeros = vec![0.0; classes];
        let mut all = Vec::with_capacity(x.len() / self.features * classes);
        match &self.similar {
            Similar::All(rows) => {
                for row in x.chunks_exact(self.features) {
                    all.extend(affine(&rows.of(row), rows.len(), &self.distributions, &zeros));
                }
            }
            Similar::Nearest(points, count) => points.nearest(x, *count, |neighbors| {
                let first = all.len();
                all.extend(&zeros);
                for neighbor in neighbors {
                    let own = &self.distributions[neighbor.row * classes..(neighbor.row + 1) * classes];
                    all[first..].iter_mut().zip(own).for_each(|(sum, share)| *sum += share);
                }
            }),
        }
        // Rows that are similar to no row of the fit have NaN, as in the original.
        all.chunks_exact_mut(classes).for_each(normalize);
        all
    }
}

impl Evaluate for Propagation {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let shares = self.shares(&info.finite(data)?.to_f64());
        let classes = self.labels.len();
        Ok(TableData::Table(if method == EstimatorMethod::PredictProba {
            DenseTable::of_f64(shares, classes)
        } else {
            DenseTable::of_column(self.labels.take(shares.chunks_exact(classes).map(argmax)))
        }))
    }

    fn cost(&self) -> u64 {
        let own = self.distributions.len() as u64;
        match &self.similar {
            Similar::All(rows) => rows.cost() + own,
            Similar::Nearest(points, _) => points.nearest_cost() + own,
        }
    }
}
