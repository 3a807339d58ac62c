//! Isolation forests.

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate};
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::sklearn::tree;
use crate::table::{DenseTable, Elements, IntType, TableData};

/// `IsolationForest`: rows that few splits isolate are outliers.
#[derive(Debug)]
struct IsolationForest {
    paths: tree::Trees,
    /// The expected path length, summed over all trees.
    expected: f64,
    offset: f64,
    version: SklearnVersion,
}

pub(super) fn isolation_forest(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let features = fitted.n_features()?;
    let estimators = fitted.items("estimators_")?;
    let subsets = fitted.items("estimators_features_")?;
    fitted.check_count("estimators_features_", estimators.len(), subsets.len())?;
    let subsets = subsets.into_iter().map(|subset| fitted.indices("estimators_features_", subset, features));
    let subsets: Vec<Vec<usize>> = subsets.collect::<Result<_, _>>()?;
    let name = if fitted.get("_max_samples").is_some() { "_max_samples" } else { "max_samples_" };
    #[expect(clippy::cast_precision_loss, reason = "as NumPy multiplies")]
    let expected = estimators.len() as f64 * tree::average_path_length(fitted.number(name)?);
    let paths = tree::Trees::paths(fitted, estimators, &subsets, features)?;
    let (offset, version) = (fitted.number("offset_")?, fitted.version());
    let methods = MethodSet::PREDICT.with(EstimatorMethod::DecisionFunction);
    Ok(EstimatorSpec::new(methods, features, IsolationForest { paths, expected, offset, version }))
}

impl Evaluate for IsolationForest {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = if self.version >= SklearnVersion(1, 6) {
            tree::unchecked(data, info)?
        } else {
            tree::rows(data, info, false)?
        };
        let mut depths = vec![0.0; data.rows()];
        self.paths.add(&x, &mut depths, 1.0);
        let score = |depth: f64| {
            let ratio = if self.expected == 0.0 { 1.0 } else { depth / self.expected };
            -(-ratio).exp2() - self.offset
        };
        let scores = depths.into_iter().map(score);
        if method == EstimatorMethod::DecisionFunction {
            return Ok(TableData::Table(DenseTable::of_f64(scores.collect(), 1)));
        }
        let inside = scores.map(|score| if score < 0.0 { -1 } else { 1 }).collect();
        Ok(TableData::Table(DenseTable::of_column(Elements::Int(inside, IntType::I64))))
    }

    fn cost(&self) -> u64 {
        self.paths.cost()
    }
}
