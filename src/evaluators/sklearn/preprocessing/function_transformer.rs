//! `FunctionTransformer` of the common functions of NumPy.

use std::sync::Arc;

use crate::evaluators::sklearn::classes::Family;
use crate::evaluators::sklearn::concatenate;
use crate::evaluators::sklearn::data::{Data, Frame, Table};
use crate::evaluators::sklearn::error::{LoadError, PredictError};
use crate::evaluators::sklearn::estimator::{About, Evaluate, Method, Methods};
use crate::evaluators::sklearn::fitted::Fitted;
use crate::evaluators::sklearn::numpy_functions::Function;
use crate::evaluators::sklearn::sparse::Numeric;
use crate::pickle::Value;

#[derive(Debug)]
struct Transformer {
    /// Without a function the input passes.
    function: Option<Function>,
    /// Whether the input has to be finite numbers.
    checks: bool,
}

pub(super) fn function_transformer(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let function = match fitted.get("func") {
        None => None,
        Some(value) => Some(Function::named(value).ok_or_else(|| fitted.unsupported("func"))?),
    };
    if fitted.get("kw_args").and_then(Value::entries).is_some_and(|entries| !entries.is_empty()) {
        return Err(fitted.unsupported("kw_args"));
    }
    let checks = fitted.flag("validate")?;
    let features = if fitted.get("n_features_in_").is_some() { Some(fitted.size("n_features_in_")?) } else { None };
    // Without validation any number of columns passes.
    let features = features.filter(|_| checks);
    let family = Family::composed(Methods::TRANSFORM, features, None, Transformer { function, checks });
    Ok(if checks { family } else { family.without_names() })
}

impl Evaluate for Transformer {
    fn call(&self, _: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let checked;
        let data = if self.checks && !matches!(data, Data::Sparse(_)) {
            about.finite(data)?;
            checked = concatenate::beside(std::slice::from_ref(data), data.rows());
            &checked
        } else {
            data
        };
        let Some(function) = self.function else { return Ok(data.clone().into_static()) };
        let text = || PredictError::Text { class: Arc::clone(&about.class) };
        Ok(match data {
            Data::Table(Table { elements, rows, columns }) => {
                let elements = function.elements(elements).ok_or_else(text)?;
                Data::Table(Table { elements, rows: *rows, columns: *columns })
            }
            Data::Frame(frame) => {
                let columns = frame.columns.iter().map(|column| function.elements(column));
                let columns = columns.collect::<Option<_>>().ok_or_else(text)?;
                let names = frame.names.iter().map(|name| name.clone().into_owned().into()).collect();
                Data::Frame(Frame { names, columns, rows: frame.rows })
            }
            Data::Sparse(sparse) => {
                // What makes something of nothing has no sparse result.
                if function.of(0.0) != 0.0 {
                    return Err(PredictError::NotDense { class: Arc::clone(&about.class) });
                }
                Data::Sparse(sparse.map(sparse.numeric().with(Numeric::F32), |value| function.of(value)))
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
