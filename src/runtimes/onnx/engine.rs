//! The two ways to evaluate a graph: our own operators, and the engine of networks.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[cfg(feature = "onnx")]
use crate::evaluators::onnx::networks::Network;
use crate::evaluators::onnx::{
    self, ElementType, EvaluateError, GraphInterface, LoadError, ModelInfo, OnnxModel, ReadExternal, Shape, Tensor,
};

/// The estimated time of a network. It is never evaluated on the thread of a connection.
#[cfg(feature = "onnx")]
const NETWORK_COST: Duration = Duration::from_millis(1);

/// The process in which a model is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtimes) enum Place {
    /// A server, where networks are refused, since their memory and time are not bounded.
    Server,
    /// A worker of its own, with the number of threads of a network.
    Worker { threads: usize },
}

/// A loaded graph.
#[derive(Debug)]
pub(super) enum Engine {
    Tables(Box<OnnxModel>),
    #[cfg(feature = "onnx")]
    Network(Box<Network>),
}

/// What it takes to evaluate some outputs.
#[derive(Debug)]
pub(super) enum EnginePlan {
    Tables(onnx::Plan),
    /// The positions of the outputs.
    #[cfg(feature = "onnx")]
    Network(Vec<usize>),
}

impl EnginePlan {
    /// Returns the most bytes that values take, 0 if that is not known.
    pub(super) const fn bytes(&self) -> usize {
        match self {
            Self::Tables(plan) => plan.bytes,
            #[cfg(feature = "onnx")]
            Self::Network(_) => 0,
        }
    }

    pub(super) const fn cost(&self) -> Duration {
        match self {
            Self::Tables(plan) => plan.cost,
            #[cfg(feature = "onnx")]
            Self::Network(_) => NETWORK_COST,
        }
    }
}

/// Calls a method that both engines have.
macro_rules! each {
    ($engine:expr, $model:ident => $body:expr) => {
        match $engine {
            Engine::Tables($model) => $body,
            #[cfg(feature = "onnx")]
            Engine::Network($model) => $body,
        }
    };
}

impl Engine {
    /// Loads a model of tables, or a network if the process may evaluate one.
    pub(super) fn load(file: &[u8], external: ReadExternal<'_>, place: Place) -> Result<Self, LoadError> {
        match (OnnxModel::load(file, external), place) {
            (Ok(model), _) => Ok(Self::Tables(Box::new(model))),
            (Err(error), Place::Worker { threads }) if error.is_refusal() => network(file, external, threads),
            (Err(error), _) => Err(error),
        }
    }

    pub(super) fn info(&self) -> &ModelInfo {
        each!(self, model => model.info())
    }

    pub(super) fn interface(&self) -> &GraphInterface {
        each!(self, model => model.interface())
    }

    pub(super) fn plan(&self, inputs: &[(ElementType, Shape)], outputs: &[usize]) -> Result<EnginePlan, EvaluateError> {
        match self {
            Self::Tables(model) => model.plan(inputs, outputs).map(EnginePlan::Tables),
            #[cfg(feature = "onnx")]
            Self::Network(model) => {
                model.check_inputs(inputs)?;
                Ok(EnginePlan::Network(outputs.to_vec()))
            }
        }
    }

    pub(super) fn evaluate<'v>(
        &'v self,
        plan: &EnginePlan,
        inputs: Vec<Tensor<'v>>,
        stop: &AtomicBool,
    ) -> Result<Vec<Tensor<'v>>, EvaluateError> {
        match (self, plan) {
            (Self::Tables(model), EnginePlan::Tables(plan)) => model.evaluate(plan, inputs, stop),
            #[cfg(feature = "onnx")]
            (Self::Network(model), EnginePlan::Network(outputs)) => model.evaluate(&inputs, outputs, stop),
            #[cfg(feature = "onnx")]
            _ => Err(EvaluateError::Network("the plan is that of another model".to_owned())),
        }
    }
}

#[cfg(feature = "onnx")]
fn network(file: &[u8], external: ReadExternal<'_>, threads: usize) -> Result<Engine, LoadError> {
    Network::load(file, external, threads).map(|network| Engine::Network(Box::new(network)))
}

#[cfg(not(feature = "onnx"))]
fn network(_file: &[u8], _external: ReadExternal<'_>, _threads: usize) -> Result<Engine, LoadError> {
    Err(without_feature())
}

/// Checks whether a file is a network that a worker evaluates, and returns what it takes and gives.
#[cfg(feature = "onnx")]
pub(super) fn check_network(file: &[u8], external: ReadExternal<'_>) -> Result<GraphInterface, LoadError> {
    Network::check(file, external)
}

/// Checks whether a file is a network that a worker evaluates, and returns what it takes and gives.
#[cfg(not(feature = "onnx"))]
pub(super) fn check_network(_file: &[u8], _external: ReadExternal<'_>) -> Result<GraphInterface, LoadError> {
    Err(without_feature())
}

#[cfg(not(feature = "onnx"))]
fn without_feature() -> LoadError {
    LoadError::Network("this executable was built without the feature `onnx`".to_owned())
}
