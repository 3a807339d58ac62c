//! `TransformedTargetRegressor`.

use std::sync::Arc;

use crate::evaluators::sklearn::classes::Family;
use crate::evaluators::sklearn::data::Data;
use crate::evaluators::sklearn::error::{LoadError, PredictError};
use crate::evaluators::sklearn::estimator::{About, Estimator, Evaluate, Method, Methods};
use crate::evaluators::sklearn::fitted::Fitted;
use crate::evaluators::sklearn::numpy_functions::Function;

/// What undoes the transformation of a target.
#[derive(Debug)]
enum Inverse {
    Function(Function),
    Transformer(Estimator),
}

#[derive(Debug)]
struct TransformedTarget {
    regressor: Estimator,
    inverse: Inverse,
}

pub(super) fn transformed_target(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let regressor = fitted.estimator(fitted.need("regressor_")?)?;
    let transformer = fitted.need("transformer_")?;
    let inverse = if transformer.class().is_some_and(|class| class.ends_with(".FunctionTransformer")) {
        let transformer = fitted.part(transformer)?;
        match transformer.get("inverse_func") {
            None => Inverse::Function(Function::IDENTITY),
            Some(function) => {
                let function = Function::named(function).ok_or_else(|| transformer.unsupported("inverse_func"))?;
                Inverse::Function(function)
            }
        }
    } else {
        let transformer = fitted.estimator(transformer)?;
        if transformer.evaluate.inverse().is_none() {
            let (class, value) = (fitted.class().to_owned(), transformer.about.path.to_string());
            return Err(LoadError::Parameter { class, parameter: "transformer", value });
        }
        Inverse::Transformer(transformer)
    };
    let features = regressor.about.features;
    Ok(Family::composed(Methods::PREDICT, features, None, TransformedTarget { regressor, inverse }))
}

impl Evaluate for TransformedTarget {
    fn call(&self, method: Method, data: &Data<'_>, _: &About) -> Result<Data<'static>, PredictError> {
        let mut answer = self.regressor.numbers(method, data)?;
        match &self.inverse {
            Inverse::Function(function) => {
                answer.values.iter_mut().for_each(|value| *value = function.of(*value));
            }
            Inverse::Transformer(transformer) => {
                let (about, class) = (&transformer.about, || Arc::clone(&transformer.about.class));
                if let Some(wanted) = about.features.filter(|&wanted| wanted != answer.columns) {
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
