//! Scalers, encoders, discretization, and transformations of features.

mod b_spline;
mod categories;
mod discretization;
mod encoders;
mod function_transformer;
mod polynomial;
mod power_transformer;
mod quantile_transformer;
mod scalers;
mod spline_transformer;

use super::spec::ClassTable;

pub(super) const CLASSES: ClassTable = &[
    ("preprocessing.Binarizer", scalers::binarizer),
    ("preprocessing.FunctionTransformer", function_transformer::function_transformer),
    ("preprocessing.KBinsDiscretizer", discretization::k_bins),
    ("preprocessing.MaxAbsScaler", scalers::max_abs),
    ("preprocessing.MinMaxScaler", scalers::min_max),
    ("preprocessing.Normalizer", scalers::normalizer),
    ("preprocessing.OneHotEncoder", encoders::one_hot),
    ("preprocessing.OrdinalEncoder", encoders::ordinal),
    ("preprocessing.PolynomialFeatures", polynomial::polynomial_features),
    ("preprocessing.PowerTransformer", power_transformer::power_transformer),
    ("preprocessing.QuantileTransformer", quantile_transformer::quantile_transformer),
    ("preprocessing.RobustScaler", scalers::robust),
    ("preprocessing.SplineTransformer", spline_transformer::spline_transformer),
    ("preprocessing.StandardScaler", scalers::standard),
    ("preprocessing.TargetEncoder", encoders::target),
];
