//! Ensembles: forests, gradient boosting, `AdaBoost`, bagging, stacking, voting, and isolation forests.

mod bagging;
mod forest;
mod gradient_boosting;
mod hist_gradient_boosting;
mod isolation_forest;
mod stacking;
mod voting;
mod weight_boosting;

use super::spec::ClassTable;

pub(super) const CLASSES: ClassTable = &[
    ("ensemble.AdaBoostClassifier", weight_boosting::classifier),
    ("ensemble.AdaBoostRegressor", weight_boosting::regressor),
    ("ensemble.BaggingClassifier", bagging::classifier),
    ("ensemble.BaggingRegressor", bagging::regressor),
    ("ensemble.ExtraTreesClassifier", forest::classifier),
    ("ensemble.ExtraTreesRegressor", forest::regressor),
    ("ensemble.GradientBoostingClassifier", gradient_boosting::classifier),
    ("ensemble.GradientBoostingRegressor", gradient_boosting::regressor),
    ("ensemble.HistGradientBoostingClassifier", hist_gradient_boosting::classifier),
    ("ensemble.HistGradientBoostingRegressor", hist_gradient_boosting::regressor),
    ("ensemble.IsolationForest", isolation_forest::isolation_forest),
    ("ensemble.RandomForestClassifier", forest::classifier),
    ("ensemble.RandomForestRegressor", forest::regressor),
    ("ensemble.RandomTreesEmbedding", forest::embedding),
    ("ensemble.StackingClassifier", stacking::classifier),
    ("ensemble.StackingRegressor", stacking::regressor),
    ("ensemble.VotingClassifier", voting::classifier),
    ("ensemble.VotingRegressor", voting::regressor),
];
