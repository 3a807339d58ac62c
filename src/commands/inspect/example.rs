//! Examples of requests, each of which the model has answered.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use serde_json::Value;

use crate::commands::CommandError;
use crate::compute::ComputePool;
use crate::families::ModelFamily;
use crate::platform;
use crate::registry::chain;
use crate::runtimes::{self, LoadError, Runtime};
use crate::settings::ModelSettings;
use crate::types::json::{WriteOptions, read_request, write_response};
use crate::types::{Parameters, TensorMetadata};

/// A request that the model has answered.
#[derive(Debug)]
pub(in crate::commands) struct AnsweredExample {
    pub(in crate::commands) request: Value,
    /// The inputs of the request.
    pub(in crate::commands) inputs: Vec<TensorMetadata>,
    /// The outputs of the answer. The number of rows is -1.
    pub(in crate::commands) outputs: Vec<TensorMetadata>,
    /// The outputs of the answer as JSON, for `init --from`.
    pub(in crate::commands) answer: Value,
    /// By how much the memory of this process grows when the model is loaded, in bytes. `None` if it cannot be measured.
    pub(in crate::commands) memory: Option<u64>,
}

/// Why there is no example.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(in crate::commands) enum NoExample {
    #[error("could not derive a request that the model answers from the file")]
    NotAnswered,
    /// A network takes unbounded memory and time, so it is not evaluated in this process.
    #[error("a process of its own evaluates the model, so no request was tried")]
    NotTried,
}

/// Loads a native model and sends it requests until it answers one.
///
/// # Errors
///
/// Fails if the model cannot be loaded.
pub(in crate::commands) fn answer(
    family: &ModelFamily,
    artifact: &Path,
    requests: &[Value],
) -> Result<Result<AnsweredExample, NoExample>, CommandError> {
    let Some(evaluator) = family.native else { return Ok(Err(NoExample::NotAnswered)) };
    let compute = ComputePool::for_this_machine();
    let settings = ModelSettings::new("model", family.implementations[0]);
    let load = || runtimes::load_native(evaluator, &settings, artifact, &compute);
    let failed = |error: LoadError| anyhow!("{}", chain(&error));
    let model = match load() {
        Ok(model) => model,
        Err(error) if error.is_unsupported() => return Ok(Err(NoExample::NotTried)),
        Err(error) => return Err(failed(error).into()),
    };
    // The first load also brings in what all models share.
    let before = resident_bytes();
    let second = load().map_err(failed)?;
    let memory = resident_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
    drop(second);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")?;
    for request in requests {
        if let Some((outputs, answer)) = runtime.block_on(predict(&model, request)) {
            let inputs = request["inputs"].as_array().map(Vec::as_slice).unwrap_or_default();
            let inputs = inputs.iter().filter_map(described).collect();
            return Ok(Ok(AnsweredExample { request: request.clone(), inputs, outputs, answer, memory }));
        }
    }
    Ok(Err(NoExample::NotAnswered))
}

/// Sends a request to a model, and returns the outputs unless it fails.
async fn predict(model: &Arc<dyn Runtime>, request: &Value) -> Option<(Vec<TensorMetadata>, Value)> {
    let request = read_request(request.to_string().as_bytes(), None).ok()?.request;
    let response = model.predict(request, Arc::new(())).await.ok()?;
    let body = write_response(&response, &WriteOptions::default()).ok()?;
    let answer: Value = serde_json::from_slice(&body.json).ok()?;
    let outputs = answer.get("outputs")?.clone();
    let described = outputs.as_array()?.iter().filter_map(described).collect();
    Some((described, outputs))
}

/// Returns the description of a tensor of one row, for any number of rows.
fn described(tensor: &Value) -> Option<TensorMetadata> {
    let mut shape: Vec<i64> = tensor.get("shape")?.as_array()?.iter().filter_map(Value::as_i64).collect();
    if let Some(rows) = shape.first_mut() {
        *rows = -1;
    }
    Some(TensorMetadata {
        name: tensor.get("name")?.as_str()?.to_owned(),
        datatype: tensor.get("datatype")?.as_str()?.to_owned(),
        shape,
        parameters: Parameters::default(),
    })
}

/// Returns the resident memory of this process, in bytes.
fn resident_bytes() -> Option<u64> {
    platform::resident_memory(rustix::process::getpid().as_raw_nonzero().get())
}
