//! `TransformedTargetRegressor`.

use std::sync::Arc;

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{Estimator, EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::numpy_functions::NumpyFunction;
use crate::sklearn::spec::EstimatorSpec;
use crate::table::TableData;

/// Undoes the transformation of a target.
#[derive(Debug)]
enum TargetInverse {
    Function(NumpyFunction),
    Transformer(Estimator),
}

#[derive(Debug)]
struct TransformedTarget {
    regressor: Estimator,
    inverse: TargetInverse,
}

pub(super) fn transformed_target(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let regressor = fitted.estimator(fitted.require("regressor_")?)?;
    let transformer = fitted.require("transformer_")?;
    let inverse = if transformer.class().is_some_and(|class| class.ends_with(".FunctionTransformer")) {
        let transformer = fitted.part(transformer)?;
        match transformer.get("inverse_func") {
            None => TargetInverse::Function(NumpyFunction::IDENTITY),
            Some(function) => {
                let function = NumpyFunction::named(function).ok_or_else(|| transformer.unsupported("inverse_func"))?;
                TargetInverse::Function(function)
            }
        }
    } else {
        let transformer = fitted.estimator(transformer)?;
        if transformer.evaluate.inverse().is_none() {
            let (class, value) = (fitted.class().to_owned(), transformer.info.path.to_string());
            return Err(LoadError::Parameter { class, parameter: "transformer", value });
        }
        TargetInverse::Transformer(transformer)
    };
    let features = regressor.info.features;
    Ok(EstimatorSpec::composed(MethodSet::PREDICT, features, None, TransformedTarget { regressor, inverse }))
}

impl Evaluate for TransformedTarget {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let mut answer = self.regressor.numbers(method, data)?;
        match &self.inverse {
            TargetInverse::Function(function) => {
                answer.values.iter_mut().for_each(|value| *value = function.of(*value));
            }
            TargetInverse::Transformer(transformer) => {
                let (info, class) = (&transformer.info, || Arc::clone(&transformer.info.class));
                if let Some(wanted) = info.features.filter(|&wanted| wanted != answer.columns) {
                    return Err(PredictError::Features { class: class(), wanted, found: answer.columns });
                }
                if let Some(inverse) = transformer.evaluate.inverse() {
                    inverse.undo(&mut answer.values, answer.columns);
                }
            }
        }
        Ok(answer.table())
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        self.regressor.evaluate.cost()
    }
}
