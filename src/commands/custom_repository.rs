//! The repository class that `model_repository_implementation` names.
//!
//! It runs in a worker, as the model `mlserver._worker.repository.Repository`, which only this server can reach, and answers over two
//! custom routes. So it is watched and replaced like a model, and its failures affect nothing else.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use crate::registry::chain;
use crate::repository::{CustomError, CustomRepository, Listed};
use crate::runtimes::Runtime;
use crate::runtimes::python::{Python, PythonLoadError};
use crate::settings::{ModelSettings, Settings};
use crate::types::{CustomCall, CustomReply};

/// The implementation that runs the class.
const IMPLEMENTATION: &str = "mlserver._worker.repository.Repository";
/// Its name in the logs.
const NAME: &str = "model repository";

/// A model repository implemented in Python.
#[derive(Debug)]
pub(super) struct PythonRepository(Arc<dyn Runtime>);

impl PythonRepository {
    /// Starts the class that the settings name.
    ///
    /// # Errors
    ///
    /// Fails if the class cannot be imported or instantiated.
    pub(super) async fn start(python: &Python, class: &str, settings: &Settings) -> Result<Self, PythonLoadError> {
        let mut model = ModelSettings::new(NAME, IMPLEMENTATION);
        // A process of its own.
        model.parallel_workers = Some(0);
        model.parameters.inference_pool_gid = Some("repository".to_owned());
        let values = [
            ("implementation", Value::from(class)),
            ("root", json!(settings.model_repository_root)),
            ("args", Value::Object(settings.model_repository_implementation_args.clone())),
        ];
        model.parameters.extra = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Self(python.load(&model, None).await?))
    }

    async fn call(&self, path: &str, name: Option<&str>) -> Result<Vec<Listed>, CustomError> {
        let index = self.0.description().routes.iter().position(|route| route.template.as_str() == path);
        let index =
            index.ok_or_else(|| CustomError { reason: format!("the SDK's repository has no route `{path}`") })?;
        let call = CustomCall {
            method: Method::GET,
            path: path.to_owned(),
            parameters: name.map(|name| ("name".to_owned(), name.to_owned())).into_iter().collect(),
            query: String::new(),
            headers: HeaderMap::new(),
            body: bytes::Bytes::new(),
        };
        let failed = |reason: String| CustomError { reason: format!("the model repository failed: {reason}") };
        let called = async { self.0.call(index, call, Arc::new(())).await?.whole(|_| Ok(())).await };
        let CustomReply { status, body, .. } = called.await.map_err(|error| failed(chain(&error)))?;
        if status != StatusCode::OK {
            return Err(failed(format!("status {status}")));
        }
        serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))
    }
}

impl CustomRepository for PythonRepository {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, CustomError>> {
        self.call("/models", None).boxed()
    }

    fn find<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, CustomError>> {
        self.call("/models/{name:path}", Some(name)).boxed()
    }
}
