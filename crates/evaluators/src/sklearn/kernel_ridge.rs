//! Kernel ridge regression.

use super::error::LoadError;
use super::fitted::FittedObject;
use super::kernels;
use super::method::MethodSet;
use super::spec::{ClassTable, EstimatorSpec};

pub(super) const CLASSES: ClassTable = &[("kernel_ridge.KernelRidge", ridge)];

fn ridge(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let weights = ("dual_coef_", fitted.floats("dual_coef_")?);
    kernels::sums(fitted, MethodSet::PREDICT, "X_fit_", weights, None)
}
