//! Nearest-neighbor models.

mod outlier_factor;
mod screening;
mod search;

pub(super) use self::search::{FittedRows, Metric, Neighbor};
use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::{FittedObject, SklearnVersion};
use super::method::{EstimatorMethod, MethodSet};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, FloatMatrix, TableData, to_f32};

use super::numerics::{argmax, divide, pairwise_sum, softmax};

pub(super) const CLASSES: ClassTable = &[
    ("neighbors.KNeighborsClassifier", classifier),
    ("neighbors.KNeighborsRegressor", regressor),
    ("neighbors.LocalOutlierFactor", outlier_factor::outlier_factor),
    ("neighbors.NearestCentroid", centroids),
    ("neighbors.RadiusNeighborsClassifier", classifier),
    ("neighbors.RadiusNeighborsRegressor", regressor),
];

/// Which rows of the fit are neighbors.
#[derive(Debug, Clone, Copy)]
enum Neighborhood {
    /// This many nearest rows.
    Count(usize),
    /// All rows within this distance.
    Radius(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NeighborWeights {
    Uniform,
    /// The inverse of the distance.
    Distance,
}

#[derive(Debug)]
struct Classifier {
    points: FittedRows,
    neighborhood: Neighborhood,
    weights: NeighborWeights,
    /// The class of each row of the fit.
    classes: Vec<usize>,
    labels: Elements<'static>,
    /// The label of rows without neighbors: one of the classes, or another label.
    outlier: Option<Elements<'static>>,
}

#[derive(Debug)]
struct Regressor {
    points: FittedRows,
    neighborhood: Neighborhood,
    weights: NeighborWeights,
    /// The targets of each row of the fit.
    targets: Vec<f64>,
    outputs: usize,
    /// Whether targets, and therefore their unweighted averages, have single precision.
    single: bool,
}

fn read(fitted: &FittedObject<'_>) -> Result<(FittedRows, Neighborhood, NeighborWeights), LoadError> {
    let points = FittedRows::read(fitted)?;
    let weights = match fitted.text_if("weights") {
        Some("uniform") => NeighborWeights::Uniform,
        Some("distance") => NeighborWeights::Distance,
        None if fitted.get("weights").is_none() => NeighborWeights::Uniform,
        _ => return Err(fitted.unsupported("weights")),
    };
    if fitted.get("n_neighbors").is_none() {
        return Ok((points, Neighborhood::Radius(fitted.number("radius")?), weights));
    }
    let count = fitted.size("n_neighbors")?;
    if count == 0 || count > points.len() {
        return Err(fitted.unexpected("n_neighbors", "at most as many neighbors as rows of the fit"));
    }
    Ok((points, Neighborhood::Count(count), weights))
}

fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let (points, neighborhood, weights) = read(fitted)?;
    if fitted.flag("outputs_2d_")? {
        return Err(fitted.unsupported("outputs_2d_"));
    }
    let labels = fitted.labels("classes_")?;
    let classes = fitted.sizes("_y", points.len())?;
    if classes.iter().any(|&class| class >= labels.len()) {
        return Err(fitted.unexpected("_y", "indices of `classes_`"));
    }
    let outlier = match neighborhood {
        Neighborhood::Radius(_) => outlier(fitted)?,
        Neighborhood::Count(_) => None,
    };
    let methods = MethodSet::PREDICT.with(EstimatorMethod::PredictProba);
    let features = points.features();
    Ok(EstimatorSpec::new(methods, features, Classifier { points, neighborhood, weights, classes, labels, outlier }))
}

/// Reads the label of rows without neighbors, if the model has one.
fn outlier(fitted: &FittedObject<'_>) -> Result<Option<Elements<'static>>, LoadError> {
    let Some(label) = fitted.get("outlier_label_") else { return Ok(None) };
    let label = label.items().and_then(|items| items.first().copied()).unwrap_or(label);
    if label.is_none() {
        return Ok(None);
    }
    let labels = fitted.labels("classes_")?;
    // A label of another type than the classes would change the type of all predictions.
    let outlier = match (&labels, label.as_i64(), label.as_str()) {
        (Elements::Int(_, kind), Some(label), _) => Elements::Int(vec![label].into(), *kind),
        (Elements::Text(_), _, Some(label)) => Elements::Text(vec![label.into()]),
        _ => return Err(fitted.unsupported("outlier_label_")),
    };
    Ok(Some(outlier))
}

fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let (points, neighborhood, weights) = read(fitted)?;
    let targets = fitted.matrix("_y")?;
    // Targets of one dimension read as one row.
    let outputs = if targets.values.len() == points.len() { 1 } else { targets.columns };
    fitted.check_count("_y", points.len() * outputs, targets.values.len())?;
    let features = points.features();
    let regressor =
        Regressor { points, neighborhood, weights, targets: targets.values, outputs, single: targets.single };
    Ok(EstimatorSpec::new(MethodSet::PREDICT, features, regressor))
}

impl Neighborhood {
    /// Calls `visit` with the neighbors of each row of `x`, nearest first.
    fn find(self, points: &FittedRows, x: &[f64], visit: impl FnMut(&[Neighbor])) {
        match self {
            Self::Count(count) => points.nearest(x, count, visit),
            Self::Radius(radius) => points.within(x, radius, visit),
        }
    }

    fn cost(self, points: &FittedRows) -> u64 {
        let (rows, features) = (points.len() as u64, points.features() as u64);
        match self {
            Self::Count(_) => points.nearest_cost(),
            Self::Radius(_) => 100 + rows * (3 + features / 8),
        }
    }
}

impl NeighborWeights {
    /// Returns the weight of each neighbor.
    fn of(self, neighbors: &[Neighbor]) -> Vec<f64> {
        match self {
            Self::Uniform => vec![1.0; neighbors.len()],
            Self::Distance => {
                let inverse: Vec<f64> = neighbors.iter().map(|neighbor| 1.0 / neighbor.distance).collect();
                // If some neighbors are at distance zero, only they count.
                if inverse.iter().any(|weight| weight.is_infinite()) {
                    return inverse.iter().map(|weight| f64::from(u8::from(weight.is_infinite()))).collect();
                }
                inverse
            }
        }
    }
}

impl Evaluate for Classifier {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let classes = self.labels.len();
        let mut all = Vec::with_capacity(x.rows * classes);
        let mut without_neighbors = Vec::new();
        let shares = method == EstimatorMethod::PredictProba || matches!(self.neighborhood, Neighborhood::Radius(_));
        self.neighborhood.find(&self.points, &x.to_f64(), |neighbors| {
            let first = all.len();
            if neighbors.is_empty() {
                without_neighbors.push(first / classes);
            }
            all.resize(first + classes, 0.0);
            let votes = &mut all[first..];
            for (neighbor, weight) in neighbors.iter().zip(self.weights.of(neighbors)) {
                votes[self.classes[neighbor.row]] += weight;
            }
            if shares {
                let sum: f64 = votes.iter().sum();
                divide(votes, if sum == 0.0 { 1.0 } else { sum });
            }
        });
        let no_neighbors = || PredictError::NoNeighbors { class: std::sync::Arc::clone(&info.class) };
        if !without_neighbors.is_empty() && self.outlier.is_none() {
            return Err(no_neighbors());
        }
        if method == EstimatorMethod::PredictProba {
            // A label that is one of the classes gets probability one; any other has no column.
            let place = self
                .outlier
                .as_ref()
                .and_then(|outlier| (0..classes).find(|&class| self.labels.take(std::iter::once(class)) == *outlier));
            if let Some(place) = place {
                for row in &without_neighbors {
                    all[row * classes + place] = 1.0;
                }
            }
            return Ok(TableData::Table(DenseTable::of_f64(all, classes)));
        }
        let mut winners: Vec<usize> = all.chunks_exact(classes).map(argmax).collect();
        let Some(outlier) = &self.outlier else {
            return Ok(TableData::Table(DenseTable::of_column(self.labels.take(winners.into_iter()))));
        };
        for row in without_neighbors {
            winners[row] = classes;
        }
        Ok(TableData::Table(DenseTable::of_column(self.labels.followed_by(outlier).take(winners.into_iter()))))
    }

    fn cost(&self) -> u64 {
        self.neighborhood.cost(&self.points)
    }
}

impl Regressor {
    /// Returns the average of the neighbors' targets for each output.
    fn averages(&self, neighbors: &[Neighbor]) -> impl Iterator<Item = f64> {
        let weights = self.weights.of(neighbors);
        let total = pairwise_sum(&weights);
        let average = move |output: usize| {
            let target = |neighbor: &Neighbor| self.targets[neighbor.row * self.outputs + output];
            let terms: Vec<f64> =
                neighbors.iter().zip(&weights).map(|(neighbor, weight)| target(neighbor) * weight).collect();
            // Without any neighbor this is NaN, as in the original.
            pairwise_sum(&terms) / total
        };
        (0..self.outputs).map(average)
    }
}

impl Evaluate for Regressor {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let mut averages = Vec::with_capacity(x.rows * self.outputs);
        self.neighborhood.find(&self.points, &x.to_f64(), |neighbors| averages.extend(self.averages(neighbors)));
        let elements = if self.single && self.weights == NeighborWeights::Uniform {
            Elements::F32(averages.into_iter().map(to_f32).collect())
        } else {
            Elements::F64(averages.into())
        };
        Ok(TableData::Table(DenseTable { elements, rows: x.rows, columns: self.outputs }))
    }

    fn cost(&self) -> u64 {
        self.neighborhood.cost(&self.points)
    }
}

/// Predicts the class whose centroid is nearest.
#[derive(Debug)]
struct Centroids {
    centers: Vec<f64>,
    features: usize,
    metric: Metric,
    labels: Elements<'static>,
    /// Prior probabilities and within-class deviations, if the version uses them.
    scores: Option<CentroidScores>,
}

#[derive(Debug)]
struct CentroidScores {
    widths: Vec<f64>,
    priors: Vec<f64>,
    /// Whether `predict` uses the scores. Otherwise, it uses the distances alone.
    decide: bool,
}

fn centroids(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let centers = fitted.matrix("centroids_")?;
    let labels = fitted.labels("classes_")?;
    fitted.check_count("classes_", centers.rows, labels.len())?;
    if centers.values.is_empty() {
        return Err(fitted.unexpected("centroids_", "at least one center"));
    }
    let metric = fitted.text_if("metric").and_then(|name| Metric::of(name, 2.0));
    let metric = metric.ok_or_else(|| fitted.unsupported("metric"))?;
    let euclidean = matches!(metric, Metric::Euclidean);
    let mut scores = None;
    if fitted.version() >= SklearnVersion(1, 6) && euclidean {
        let priors = fitted.floats_of("class_prior_", centers.rows)?;
        let widths = fitted.floats_of("within_class_std_dev_", centers.columns)?;
        #[expect(clippy::cast_precision_loss, reason = "a count of classes")]
        let even = 1.0 / centers.rows as f64;
        // NumPy's `isclose`.
        let decide = priors.iter().any(|prior| (prior - even).abs() > 1e-8 + 1e-5 * even);
        scores = Some(CentroidScores { widths, priors, decide });
    }
    let methods = MethodSet::PREDICT
        .with_if(scores.is_some(), EstimatorMethod::DecisionFunction)
        .with_if(scores.is_some(), EstimatorMethod::PredictProba);
    let features = centers.columns;
    Ok(EstimatorSpec::new(methods, features, Centroids { centers: centers.values, features, metric, labels, scores }))
}

impl Centroids {
    /// Returns the discriminant score of each class.
    fn scores(&self, scores: &CentroidScores, row: &[f64]) -> Vec<f64> {
        let scaled = |value: f64, width: f64| if width == 0.0 { value } else { value / width };
        let score = |(center, prior): (&[f64], &f64)| {
            let terms = row.iter().zip(center).zip(&scores.widths);
            let distance: f64 =
                terms.map(|((&x, &c), &w)| (scaled(x, w) - scaled(c, w)) * (scaled(x, w) - scaled(c, w))).sum();
            -(distance.sqrt() * distance.sqrt()) + 2.0 * prior.ln()
        };
        self.centers.chunks_exact(self.features).zip(&scores.priors).map(score).collect()
    }

    fn all_scores(&self, scores: &CentroidScores, x: &FloatMatrix<'_>) -> Vec<f64> {
        x.to_f64().chunks_exact(self.features).flat_map(|row| self.scores(scores, row)).collect()
    }
}

impl Evaluate for Centroids {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let classes = self.labels.len();
        let nearest = |row: &[f64]| {
            let distances = self.centers.chunks_exact(self.features).map(|center| -self.metric.reduced(row, center));
            argmax(&distances.collect::<Vec<_>>())
        };
        let Some(scores) = &self.scores else {
            let found = x.to_f64().chunks_exact(self.features).map(nearest).collect::<Vec<_>>();
            return Ok(TableData::Table(DenseTable::of_column(self.labels.take(found.into_iter()))));
        };
        let mut all = self.all_scores(scores, &x);
        Ok(TableData::Table(match method {
            EstimatorMethod::DecisionFunction if classes == 2 => {
                DenseTable::of_f64(all.chunks_exact(2).map(|pair| pair[1] - pair[0]).collect(), 1)
            }
            EstimatorMethod::DecisionFunction => DenseTable::of_f64(all, classes),
            EstimatorMethod::PredictProba => {
                all.chunks_exact_mut(classes).for_each(softmax);
                DenseTable::of_f64(all, classes)
            }
            _ if scores.decide => DenseTable::of_column(self.labels.take(all.chunks_exact(classes).map(argmax))),
            _ => {
                let found = x.to_f64().chunks_exact(self.features).map(nearest).collect::<Vec<_>>();
                DenseTable::of_column(self.labels.take(found.into_iter()))
            }
        }))
    }

    fn cost(&self) -> u64 {
        50 + self.centers.len() as u64
    }
}
