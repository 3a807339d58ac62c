//! Random forests and extremely randomized trees.

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{Estimator, EstimatorInfo, Evaluate};
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::sklearn::tree::{self, LeafKind, Trees};
use crate::table::{DenseTable, Elements, IntType, TableData};

/// Loads `RandomForestClassifier` and `ExtraTreesClassifier`.
pub(super) fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    forest(fitted, true)
}

/// Loads `RandomForestRegressor` and `ExtraTreesRegressor`.
pub(super) fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    forest(fitted, false)
}

fn forest(fitted: &FittedObject<'_>, classifier: bool) -> Result<EstimatorSpec, LoadError> {
    tree::mean(fitted, fitted.items("estimators_")?, classifier, takes_missing(fitted)?)
}

/// Returns whether all trees accept missing values.
fn takes_missing(fitted: &FittedObject<'_>) -> Result<bool, LoadError> {
    let estimators = fitted.items("estimators_")?;
    let first = estimators.first().ok_or_else(|| fitted.unexpected("estimators_", "at least one tree"))?;
    Ok(tree::takes_missing(&fitted.part(*first)?, SklearnVersion(1, 6), SklearnVersion(1, 4)))
}

/// `RandomTreesEmbedding`: a column for each leaf, which is 1 for rows that end there.
#[derive(Debug)]
struct LeafColumns {
    trees: Trees,
    /// Makes columns of the numbers of leaves.
    encoder: Estimator,
    missing: bool,
}

/// Loads `RandomTreesEmbedding`.
pub(super) fn embedding(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let features = fitted.n_features()?;
    let trees = Trees::load(fitted, fitted.items("estimators_")?, features, LeafKind::Values)?;
    let encoder = fitted.estimator(fitted.require("one_hot_encoder_")?)?;
    fitted.check_count("one_hot_encoder_", trees.count(), encoder.info.features.unwrap_or_default())?;
    let missing = takes_missing(fitted)?;
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, LeafColumns { trees, encoder, missing }))
}

impl Evaluate for LeafColumns {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = tree::rows(data, info, self.missing)?;
        let (rows, columns) = (data.rows(), self.trees.count());
        let mut leaves = vec![0; rows * columns];
        self.trees.write_leaves(&x, &mut leaves, [columns, 1]);
        let elements = Elements::Int(leaves.into_iter().map(i64::from).collect(), IntType::I64);
        self.encoder.call(method, &TableData::Table(DenseTable { elements, rows, columns }))
    }

    fn cost(&self) -> u64 {
        self.trees.cost().saturating_add(self.encoder.evaluate.cost())
    }
}
