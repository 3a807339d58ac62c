//! `ColumnTransformer` and `TransformedTargetRegressor`.

mod column_transformer;
mod transformed_target;

use super::spec::ClassTable;

pub(super) const CLASSES: ClassTable = &[
    ("compose.ColumnTransformer", column_transformer::column_transformer),
    ("compose.TransformedTargetRegressor", transformed_target::transformed_target),
];
