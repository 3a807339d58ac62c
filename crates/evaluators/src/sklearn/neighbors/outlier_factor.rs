//! `LocalOutlierFactor`, which compares the density around a row with that around its neighbors.

use super::search::{FittedRows, Neighbor};
use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::numerics::pairwise_sum;
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DenseTable, Elements, IntType, TableData};

#[derive(Debug)]
struct OutlierFactor {
    points: FittedRows,
    neighbors: usize,
    /// The distance of each row of the fit to the last of its neighbors.
    reach: Vec<f64>,
    densities: Vec<f64>,
    offset: f64,
}

/// Loads `LocalOutlierFactor`, which predicts only with `novelty`.
pub(super) fn outlier_factor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    if !fitted.flag("novelty")? {
        return Err(fitted.unsupported("novelty"));
    }
    let points = FittedRows::read(fitted)?;
    let neighbors = fitted.size("n_neighbors_")?;
    if neighbors == 0 || neighbors > points.len() {
        return Err(fitted.unexpected("n_neighbors_", "at most as many neighbors as rows of the fit"));
    }
    let distances = fitted.double_matrix("_distances_fit_X_")?;
    fitted.check_count("_distances_fit_X_", points.len(), distances.rows)?;
    if distances.columns < neighbors {
        return Err(fitted.unexpected("_distances_fit_X_", "a distance for each neighbor"));
    }
    let reach = distances.values.chunks_exact(distances.columns).map(|row| row[neighbors - 1]).collect();
    let densities = fitted.floats_of("_lrd", points.len())?;
    let (features, offset) = (points.features(), fitted.number("offset_")?);
    let factor = OutlierFactor { points, neighbors, reach, densities, offset };
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::DecisionFunction), features, factor))
}

impl OutlierFactor {
    #[expect(clippy::cast_precision_loss, reason = "a count of neighbors")]
    fn mean(&self, values: impl Iterator<Item = f64>) -> f64 {
        pairwise_sum(&values.collect::<Vec<_>>()) / self.neighbors as f64
    }

    fn decision(&self, neighbors: &[Neighbor]) -> f64 {
        let reach = |neighbor: &Neighbor| neighbor.distance.max(self.reach[neighbor.row]);
        let density = 1.0 / (self.mean(neighbors.iter().map(reach)) + 1e-10);
        let ratio = |neighbor: &Neighbor| self.densities[neighbor.row] / density;
        -self.mean(neighbors.iter().map(ratio)) - self.offset
    }
}

impl Evaluate for OutlierFactor {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let mut decisions = Vec::with_capacity(x.rows);
        self.points.nearest(&x.to_f64(), self.neighbors, |neighbors| decisions.push(self.decision(neighbors)));
        Ok(TableData::Table(if method == EstimatorMethod::Predict {
            let inside = decisions.iter().map(|&decision| if decision < 0.0 { -1 } else { 1 }).collect();
            DenseTable::of_column(Elements::Int(inside, IntType::I64))
        } else {
            DenseTable::of_f64(decisions, 1)
        }))
    }

    fn cost(&self) -> u64 {
        self.points.nearest_cost()
    }
}
