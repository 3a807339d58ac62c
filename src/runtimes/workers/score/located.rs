//! Models that the parent names by their location instead of their settings: any that the server can load.

use std::fmt;
use std::sync::Arc;

use crate::compute::ComputePool;
use crate::runtimes::BoxFuture;
use crate::types::{InferenceRequest, InferenceResponse, ModelMetadata, RequestErrorKind, TensorRule};

/// A model as the parent names it.
#[derive(Debug, Clone)]
pub struct ModelLocation {
    /// A folder, a model file, or the URI of either.
    pub location: String,
    /// The model, if the folder has several.
    pub name: Option<String>,
    pub version: Option<String>,
}

/// Opens models. This process gets it from its caller, because loading a model takes what is above runtimes.
pub trait ModelOpener: fmt::Debug + Send + Sync {
    /// Loads a model, which evaluates natively on the threads of `compute`.
    ///
    /// # Errors
    ///
    /// Fails with all reasons, as a message for the user.
    fn open(
        &self,
        location: ModelLocation,
        compute: ComputePool,
    ) -> BoxFuture<'_, Result<Arc<dyn LocatedModel>, String>>;
}

/// A model that has been opened.
pub trait LocatedModel: fmt::Debug + Send + Sync {
    /// Returns what the parent gets to know of the model.
    fn description(&self) -> &LocatedDescription;

    /// Answers a request. Dropping the future cancels it.
    fn predict(&self, request: InferenceRequest) -> BoxFuture<'_, Result<InferenceResponse, PredictionFailure>>;

    /// Unloads the model, and stops the workers of one in Python.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What does not change while a model is open.
#[derive(Debug, Clone)]
pub struct LocatedDescription {
    pub metadata: ModelMetadata,
    /// The version, if the settings have one.
    pub version: Option<String>,
    /// Which tensors it takes.
    pub tensor_rule: TensorRule,
    /// Whether several requests may have the rows of one.
    pub splits_rows: bool,
    /// Whether it is known that rows which are evaluated together do not depend on each other. A graph of ONNX may compute over all of
    /// them, and so may code in Python.
    pub has_independent_rows: bool,
    /// How many predictions run at the same time.
    pub threads: usize,
    /// The names of the features of a row, in order, if its file has them.
    pub features: Option<Arc<[String]>>,
}

/// Why a prediction failed.
#[derive(Debug, Clone)]
pub struct PredictionFailure {
    pub kind: RequestErrorKind,
    pub message: String,
}
