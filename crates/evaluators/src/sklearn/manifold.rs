//! Rows among those of an embedding.

use std::sync::Arc;

use super::decomposition;
use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::{FittedMatrix, FittedObject};
use super::kernels::{KernelCentering, is_precise};
use super::method::{EstimatorMethod, MethodSet};
use super::neighbors::{FittedRows, Neighbor};
use super::numerics::{affine, dot, solve_positive};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, TableData, to_f32};

pub(super) const CLASSES: ClassTable =
    &[("manifold.Isomap", isomap), ("manifold.LocallyLinearEmbedding", locally_linear)];

/// How many neighbors may be weighted: the time of a row grows with the third power.
const MOST_WEIGHTED: usize = 1000;

/// Reads the rows of a fit, and how many of them are neighbors.
fn neighbors(
    fitted: &FittedObject<'_>,
    count: &FittedObject<'_>,
    most: usize,
) -> Result<(FittedRows, usize), LoadError> {
    let points = FittedRows::read(fitted)?;
    let neighbors = count.size("n_neighbors")?;
    if neighbors == 0 || neighbors > points.len().min(most) {
        return Err(count.unexpected("n_neighbors", "at most as many neighbors as rows of the fit"));
    }
    Ok((points, neighbors))
}

/// `Isomap`: kernels of the shortest ways to the rows of the fit, through neighbors.
#[derive(Debug)]
struct Isomap {
    points: FittedRows,
    neighbors: usize,
    /// The length of the way from each row of the fit to each.
    ways: FittedMatrix,
    centering: KernelCentering,
    weights: Vec<f64>,
    outputs: usize,
}

fn isomap(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    if fitted.get("n_neighbors").is_none() {
        return Err(fitted.unsupported("n_neighbors"));
    }
    let inner = fitted.inner(fitted.require("nbrs_")?)?;
    let (points, neighbors) = neighbors(&inner, &inner, usize::MAX)?;
    let ways = fitted.double_matrix("dist_matrix_")?;
    fitted.check_count("dist_matrix_", points.len(), ways.rows)?;
    fitted.check_count("dist_matrix_", points.len(), ways.columns)?;
    let components = fitted.inner(fitted.require("kernel_pca_")?)?;
    let (name, weights, centering) = decomposition::kernel_weights(&components)?;
    let outputs = weights.len() / points.len();
    components.check_count(name, outputs.max(1).saturating_mul(points.len()), weights.len())?;
    if !is_precise(&ways, &weights, outputs, |ways| kernels(ways.to_vec(), &centering)) {
        return Err(components.unexpected(name, "smaller numbers: these cancel each other, and lose digits"));
    }
    let features = points.features();
    Ok(EstimatorSpec::new(
        MethodSet::TRANSFORM,
        features,
        Isomap { points, neighbors, ways, centering, weights, outputs },
    ))
}

/// Returns the centered kernels of ways.
fn kernels(mut ways: Vec<f64>, centering: &KernelCentering) -> Vec<f64> {
    for way in &mut ways {
        *way = -0.5 * (*way * *way);
    }
    centering.apply(&mut ways);
    ways
}

impl Isomap {
    /// Returns the shortest way to each row of the fit.
    fn shortest(&self, neighbors: &[Neighbor]) -> Vec<f64> {
        let count = self.points.len();
        let mut shortest = vec![f64::INFINITY; count];
        for neighbor in neighbors {
            let ways = &self.ways.values[neighbor.row * count..(neighbor.row + 1) * count];
            shortest.iter_mut().zip(ways).for_each(|(shortest, way)| *shortest = shortest.min(way + neighbor.distance));
        }
        shortest
    }
}

impl Evaluate for Isomap {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        // The original centers kernels of single precision, which loses most of their digits.
        if x.is_single() {
            return Err(PredictError::NotDouble { class: Arc::clone(&info.class) });
        }
        let zeros = vec![0.0; self.outputs];
        let mut values = Vec::with_capacity(x.rows * self.outputs);
        self.points.nearest(&x.to_f64(), self.neighbors, |neighbors| {
            let kernels = kernels(self.shortest(neighbors), &self.centering);
            values.extend(affine(&kernels, kernels.len(), &self.weights, &zeros));
        });
        Ok(TableData::Table(DenseTable::of_f64(values, self.outputs)))
    }

    fn cost(&self) -> u64 {
        self.points.nearest_cost() + ((self.neighbors + self.outputs + 5) * self.points.len()) as u64
    }
}

/// `LocallyLinearEmbedding`: the combination of neighbors that is nearest to a row.
#[derive(Debug)]
struct LocallyLinear {
    points: FittedRows,
    neighbors: usize,
    regularization: f64,
    embedding: FittedMatrix,
}

fn locally_linear(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let inner = fitted.inner(fitted.require("nbrs_")?)?;
    let (points, neighbors) = neighbors(&inner, fitted, MOST_WEIGHTED)?;
    let embedding = fitted.double_matrix("embedding_")?;
    fitted.check_count("embedding_", points.len(), embedding.rows)?;
    let regularization = fitted.number("reg")?;
    // Without it, the weights of neighbors on a line have no single solution.
    if regularization.is_nan() || regularization < 1e-6 {
        return Err(fitted.unsupported("reg"));
    }
    let features = points.features();
    let embedding = LocallyLinear { points, neighbors, regularization, embedding };
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, embedding))
}

impl LocallyLinear {
    /// Returns the weight of each neighbor, or `None` if there is no single solution.
    fn weights(&self, row: &[f64], neighbors: &[Neighbor]) -> Option<Vec<f64>> {
        let difference = |neighbor: &Neighbor| -> Vec<f64> {
            self.points.row(neighbor.row).iter().zip(row).map(|(other, value)| other - value).collect()
        };
        let differences: Vec<Vec<f64>> = neighbors.iter().map(difference).collect();
        let products = |one: &Vec<f64>| differences.iter().map(|other| dot(one, other)).collect::<Vec<_>>();
        let mut matrix: Vec<f64> = differences.iter().flat_map(products).collect();
        let count = neighbors.len();
        let trace: f64 = matrix.iter().step_by(count + 1).sum();
        let added = if trace > 0.0 { self.regularization * trace } else { self.regularization };
        matrix.iter_mut().step_by(count + 1).for_each(|value| *value += added);
        let mut weights = vec![1.0; count];
        let is_solved = solve_positive(&mut matrix, count, &mut weights);
        let sum: f64 = weights.iter().sum();
        is_solved.then(|| weights.into_iter().map(|weight| weight / sum).collect())
    }
}

impl Evaluate for LocallyLinear {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let rows = x.to_f64();
        let columns = self.embedding.columns;
        let mut values = Vec::with_capacity(x.rows * columns);
        let mut each = rows.chunks_exact(self.points.features());
        let mut all_solved = true;
        self.points.nearest(&rows, self.neighbors, |neighbors| {
            let weights = each.next().and_then(|row| self.weights(row, neighbors));
            all_solved &= weights.is_some();
            let first = values.len();
            values.resize(first + columns, 0.0);
            for (neighbor, weight) in neighbors.iter().zip(weights.into_iter().flatten()) {
                let weight = if x.is_single() { f64::from(to_f32(weight)) } else { weight };
                let own = &self.embedding.values[neighbor.row * columns..(neighbor.row + 1) * columns];
                values[first..].iter_mut().zip(own).for_each(|(sum, value)| *sum += weight * value);
            }
        });
        if !all_solved {
            return Err(PredictError::Range { class: Arc::clone(&info.class) });
        }
        Ok(TableData::Table(DenseTable::of_f64(values, columns)))
    }

    fn cost(&self) -> u64 {
        let count = self.neighbors as u64;
        self.points.nearest_cost() + count * count * (self.points.features() as u64 + count / 3 + 1)
    }
}
