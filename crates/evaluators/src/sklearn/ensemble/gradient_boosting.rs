//! Gradient boosting.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::sklearn::error::{LoadError, PredictError, Unexplained};
use crate::sklearn::estimator::{ContributionSpace, Estimator, EstimatorInfo, Evaluate, Explain};
use crate::sklearn::explain::{Contributions, SummedTrees, contribution_cost};
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::numerics::{argmax, expit, softmax};
use crate::sklearn::spec::EstimatorSpec;
use crate::sklearn::tree::{self, LeafKind, Tree, Trees};
use crate::table::{DenseTable, Elements, TableData};
use crate::trees::{EnsembleOutput, NoContributions, PredictedValues, Prediction};

/// How gradient boosting turns sums into predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The sum is the prediction.
    Regression,
    /// Two classes, one sum.
    Binomial,
    /// Two classes, with the exponential loss of `AdaBoost`.
    Exponential,
    /// One sum for each class.
    Multinomial,
}

/// `GradientBoostingClassifier` and `GradientBoostingRegressor`.
#[derive(Debug)]
struct GradientBoosting {
    /// The trees of each sum.
    trees: Vec<Trees>,
    learning_rate: f64,
    start: InitialPrediction,
    loss: Loss,
    labels: Option<Elements<'static>>,
    version: SklearnVersion,
    features: usize,
    contributions: Contributions,
}

/// The initial value of the sums.
#[derive(Debug)]
enum InitialPrediction {
    Zero,
    /// The same values for each row.
    Constant(Vec<f64>),
    /// The predictions of another estimator.
    Estimator(Box<Estimator>),
}

pub(super) fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let labels = fitted.labels("classes_")?;
    let loss = match fitted.text("loss")? {
        "deviance" | "log_loss" if labels.len() == 2 => Loss::Binomial,
        "deviance" | "log_loss" if labels.len() > 2 => Loss::Multinomial,
        "exponential" if labels.len() == 2 => Loss::Exponential,
        _ => return Err(fitted.unsupported("loss")),
    };
    boosting(fitted, loss, Some(labels))
}

pub(super) fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    boosting(fitted, Loss::Regression, None)
}

fn boosting(
    fitted: &FittedObject<'_>,
    loss: Loss,
    labels: Option<Elements<'static>>,
) -> Result<EstimatorSpec, LoadError> {
    let features = fitted.n_features()?;
    let sums = if loss == Loss::Multinomial { labels.as_ref().map_or(1, Elements::len) } else { 1 };
    let estimators = fitted.items("estimators_")?;
    let stages = estimators.chunks_exact(sums);
    fitted.check_count("estimators_", stages.len() * sums, estimators.len())?;
    let mut trees = Vec::with_capacity(sums);
    for sum in 0..sums {
        let own = estimators.iter().copied().skip(sum).step_by(sums);
        let own = Trees::load(fitted, own, features, LeafKind::Values)?;
        fitted.check_count("estimators_", 1, own.width)?;
        trees.push(own);
    }
    let learning_rate = fitted.number("learning_rate")?;
    let start = start(fitted, loss, sums)?;
    let methods = match loss {
        Loss::Regression => MethodSet::PREDICT,
        _ => MethodSet::PREDICT.with(EstimatorMethod::PredictProba).with(EstimatorMethod::DecisionFunction),
    };
    let version = fitted.version();
    let contributions = Contributions::default();
    Ok(EstimatorSpec::new(
        methods,
        features,
        GradientBoosting { trees, learning_rate, start, loss, labels, version, features, contributions },
    ))
}

/// Reads `init_`: a dummy estimator that returns a constant, any other estimator, or `zero`.
fn start(fitted: &FittedObject<'_>, loss: Loss, sums: usize) -> Result<InitialPrediction, LoadError> {
    let init = fitted.require("init_")?;
    if init.as_str() == Some("zero") {
        return Ok(InitialPrediction::Zero);
    }
    let class = init.class().unwrap_or_default();
    if class.starts_with("sklearn.dummy.Dummy") {
        let dummy = fitted.part(init)?;
        let predictions = match loss {
            Loss::Regression => dummy.floats_of("constant_", 1)?,
            _ => dummy.floats("class_prior_")?,
        };
        let wanted = if loss == Loss::Multinomial { sums } else { predictions.len().min(2) };
        fitted.check_count("init_", wanted, predictions.len())?;
        if matches!(loss, Loss::Binomial | Loss::Exponential) {
            fitted.check_count("init_", 2, predictions.len())?;
        }
        return Ok(InitialPrediction::Constant(loss.link(&predictions, fitted.version())));
    }
    let estimator = fitted.estimator(init)?;
    let method = if loss == Loss::Regression { EstimatorMethod::Predict } else { EstimatorMethod::PredictProba };
    if estimator.info.methods.contains(method) {
        Ok(InitialPrediction::Estimator(Box::new(estimator)))
    } else {
        Err(fitted.unsupported("init_"))
    }
}

impl Loss {
    /// Converts the predictions of the initial estimator for one row to initial sums.
    fn link(self, predictions: &[f64], version: SklearnVersion) -> Vec<f64> {
        let epsilon = if version < SklearnVersion(1, 6) { f64::from(f32::EPSILON) } else { f64::EPSILON };
        let clip = |probability: f64| probability.clamp(epsilon, 1.0 - epsilon);
        let logit = |probability: f64| (probability / (1.0 - probability)).ln();
        match self {
            Self::Regression => predictions.to_vec(),
            Self::Binomial => predictions.iter().skip(1).map(|&p| logit(clip(p))).collect(),
            Self::Exponential => predictions.iter().skip(1).map(|&p| 0.5 * logit(clip(p))).collect(),
            Self::Multinomial => {
                let mut logs: Vec<f64> = predictions.iter().map(|&p| clip(p).ln()).collect();
                if version >= SklearnVersion(1, 4) {
                    #[expect(clippy::cast_precision_loss, reason = "as NumPy's mean")]
                    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
                    for log in &mut logs {
                        *log -= mean;
                    }
                }
                logs
            }
        }
    }
}

impl GradientBoosting {
    /// Returns the sums of every row.
    fn sums(&self, x: &[f32], rows: usize) -> Result<Vec<f64>, PredictError> {
        let width = self.trees.len();
        let mut sums = match &self.start {
            InitialPrediction::Zero => vec![0.0; rows * width],
            InitialPrediction::Constant(start) => start.repeat(rows),
            InitialPrediction::Estimator(estimator) => self.initial_sums(estimator, x, rows)?,
        };
        if width == 1 {
            self.trees[0].add(x, &mut sums, self.learning_rate);
            return Ok(sums);
        }
        let mut own = vec![0.0; rows];
        for (index, trees) in self.trees.iter().enumerate() {
            own.iter_mut().zip(sums.iter().skip(index).step_by(width)).for_each(|(own, &sum)| *own = sum);
            trees.add(x, &mut own, self.learning_rate);
            sums.iter_mut().skip(index).step_by(width).zip(&own).for_each(|(sum, &own)| *sum = own);
        }
        Ok(sums)
    }

    fn summed(&self) -> SummedTrees<'_, Tree> {
        let (sums, features) = (self.trees.len(), self.features);
        let of_sum = self.trees.iter().enumerate();
        let trees = of_sum.flat_map(|(sum, trees)| trees.all().map(move |tree| (tree, sum))).collect();
        SummedTrees { trees, scale: self.learning_rate, features, sums, width: 1 }
    }

    fn initial_sums(&self, estimator: &Estimator, x: &[f32], rows: usize) -> Result<Vec<f64>, PredictError> {
        let columns = self.features;
        let table = TableData::Table(DenseTable { elements: Elements::F32(x.into()), rows, columns });
        let method =
            if self.loss == Loss::Regression { EstimatorMethod::Predict } else { EstimatorMethod::PredictProba };
        let answer = estimator.call(method, &table)?;
        let class = || Arc::clone(&estimator.info.class);
        let matrix = answer.matrix().ok_or_else(|| PredictError::Text { class: class() })?;
        let wanted = self.labels.as_ref().map_or(1, Elements::len);
        if matrix.columns != wanted {
            return Err(PredictError::Features { class: class(), wanted, found: matrix.columns });
        }
        let predictions = matrix.to_f64();
        Ok(predictions.chunks_exact(matrix.columns).flat_map(|row| self.loss.link(row, self.version)).collect())
    }
}

impl Evaluate for GradientBoosting {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = tree::rows(data, info, false)?;
        let mut sums = self.sums(&x, data.rows())?;
        let width = self.trees.len();
        let Some(labels) = &self.labels else { return Ok(TableData::Table(DenseTable::of_f64(sums, width))) };
        Ok(TableData::Table(match (method, self.loss) {
            (EstimatorMethod::DecisionFunction, _) => DenseTable::of_f64(sums, width),
            (EstimatorMethod::PredictProba, Loss::Multinomial) => {
                sums.chunks_exact_mut(width).for_each(softmax);
                DenseTable::of_f64(sums, width)
            }
            (EstimatorMethod::PredictProba, loss) => {
                let scale = if loss == Loss::Exponential { 2.0 } else { 1.0 };
                let both = sums.iter().map(|sum| expit(scale * sum)).flat_map(|positive| [1.0 - positive, positive]);
                DenseTable::of_f64(both.collect(), 2)
            }
            (_, Loss::Multinomial) => DenseTable::of_column(labels.take(sums.chunks_exact(width).map(argmax))),
            // A sum of zero was the first class until 1.3, and has been the second class since.
            _ if self.version < SklearnVersion(1, 4) => {
                DenseTable::of_column(labels.take(sums.iter().map(|&sum| usize::from(sum > 0.0))))
            }
            _ => DenseTable::of_column(labels.take(sums.iter().map(|&sum| usize::from(sum >= 0.0)))),
        }))
    }

    fn cost(&self) -> u64 {
        let start = match &self.start {
            InitialPrediction::Estimator(estimator) => estimator.evaluate.cost(),
            InitialPrediction::Zero | InitialPrediction::Constant(_) => 0,
        };
        start + self.trees.iter().map(Trees::cost).sum::<u64>()
    }

    fn explained<'a>(&'a self, info: &'a EstimatorInfo) -> Result<(&'a dyn Explain, &'a EstimatorInfo), Unexplained> {
        match &self.start {
            InitialPrediction::Estimator(estimator) => {
                Err(Unexplained::Start { class: estimator.info.class.to_string() })
            }
            InitialPrediction::Zero | InitialPrediction::Constant(_) => Ok((self, info)),
        }
    }

    fn limit_contributions(&mut self, bytes: usize) {
        self.contributions.limit = bytes;
    }
}

impl Explain for GradientBoosting {
    fn space(&self) -> ContributionSpace {
        ContributionSpace::Margin
    }

    fn features(&self) -> usize {
        self.features
    }

    fn sums(&self) -> usize {
        self.trees.len()
    }

    fn leaves(&self) -> Option<[usize; 2]> {
        Some([self.trees[0].count(), self.trees.len()])
    }

    fn check(&self) -> Result<(), NoContributions> {
        self.trees.iter().try_for_each(Trees::check_covers)
    }

    fn is_prepared(&self) -> bool {
        self.contributions.is_prepared()
    }

    fn contribution_bytes(&self) -> usize {
        if self.check().is_ok() { self.contributions.bytes(&self.summed()) } else { 0 }
    }

    fn cost(&self) -> u64 {
        contribution_cost(self.trees.iter().flat_map(Trees::sizes), self.features, 1)
    }

    fn explain(
        &self,
        output: EnsembleOutput,
        data: &TableData<'_>,
        info: &EstimatorInfo,
        stop: &AtomicBool,
    ) -> Result<Prediction, PredictError> {
        let sums = self.trees.len();
        let x = tree::rows(data, info, false)?;
        Ok(match output {
            EnsembleOutput::Leaf => {
                let columns = sums * self.trees[0].count();
                let mut found = vec![0; data.rows() * columns];
                for (sum, trees) in self.trees.iter().enumerate() {
                    let own = found.get_mut(sum..).unwrap_or_default();
                    trees.write_leaves(&x, own, [columns, sums]);
                }
                Prediction { values: PredictedValues::I32(found), columns }
            }
            EnsembleOutput::Contributions => {
                self.check().map_err(|error| info.no_contributions(error))?;
                let start = match &self.start {
                    InitialPrediction::Constant(start) => start.clone(),
                    InitialPrediction::Zero | InitialPrediction::Estimator(_) => vec![0.0; sums],
                };
                self.contributions.predict(&self.summed(), &x, &start, (info, stop))?
            }
            _ => Prediction { values: PredictedValues::F64(self.sums(&x, data.rows())?), columns: sums },
        })
    }
}
