//! `FunctionTransformer`, with the common functions of NumPy.

use std::sync::Arc;

use crate::pickle::PickleValue;
use crate::sklearn::concatenate;
use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::numpy_functions::NumpyFunction;
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DataFrame, DenseTable, NumericType, TableData};

#[derive(Debug)]
struct FunctionTransformer {
    /// `None` passes the input unchanged.
    function: Option<NumpyFunction>,
    /// Whether the input is checked for finite numbers.
    checks: bool,
}

pub(super) fn function_transformer(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let function = match fitted.get("func") {
        None => None,
        Some(value) => Some(NumpyFunction::named(value).ok_or_else(|| fitted.unsupported("func"))?),
    };
    if fitted.get("kw_args").and_then(PickleValue::entries).is_some_and(|entries| !entries.is_empty()) {
        return Err(fitted.unsupported("kw_args"));
    }
    let checks = fitted.flag("validate")?;
    let features = if fitted.get("n_features_in_").is_some() { Some(fitted.size("n_features_in_")?) } else { None };
    // Without validation any number of columns is accepted.
    let features = features.filter(|_| checks);
    let family =
        EstimatorSpec::composed(MethodSet::TRANSFORM, features, None, FunctionTransformer { function, checks });
    Ok(if checks { family } else { family.without_names() })
}

impl Evaluate for FunctionTransformer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let checked;
        let data = if self.checks && !matches!(data, TableData::Sparse(_)) {
            info.finite(data)?;
            checked = concatenate::hstack(std::slice::from_ref(data), data.rows());
            &checked
        } else {
            data
        };
        let Some(function) = self.function else { return Ok(data.clone().into_static()) };
        let text = || PredictError::Text { class: Arc::clone(&info.class) };
        Ok(match data {
            TableData::Table(DenseTable { elements, rows, columns }) => {
                let elements = function.elements(elements).ok_or_else(text)?;
                TableData::Table(DenseTable { elements, rows: *rows, columns: *columns })
            }
            TableData::Frame(frame) => {
                let columns = frame.columns.iter().map(|column| function.elements(column));
                let columns = columns.collect::<Option<_>>().ok_or_else(text)?;
                let names = frame.names.iter().map(|name| name.clone().into_owned().into()).collect();
                TableData::Frame(DataFrame { names, columns, rows: frame.rows })
            }
            TableData::Sparse(sparse) => {
                // If zero is not mapped to zero, the result is not sparse.
                if function.of(0.0) != 0.0 {
                    return Err(PredictError::NotDense { class: Arc::clone(&info.class) });
                }
                TableData::Sparse(sparse.map(sparse.numeric().with(NumericType::F32), |value| function.of(value)))
            }
        })
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        100
    }
}
