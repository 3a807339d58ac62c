//! A script that ends in `kserve.ModelServer().start([...])`, as the target of `mlserver start`.

use std::path::PathBuf;

use anyhow::Context;
use futures_util::future::{self, BoxFuture, FutureExt};
use serde_json::{Map, Value, json};
use tracing::{info, warn};

use crate::commands::CommandError;
use crate::repository::{CustomError, CustomRepository, Listed};
use crate::runtimes::python::{Python, SCRIPT_IMPLEMENTATION, ScriptDescription};

/// The options of KServe's `ModelServer` that are settings here.
const SETTINGS: [(&str, &str); 6] = [
    ("http_port", "http_port"),
    ("grpc_port", "grpc_port"),
    ("workers", "parallel_workers"),
    ("grace_period", "shutdown_grace_period"),
    ("timeout_keep_alive", "http_keep_alive_timeout"),
    // Of `CORSMiddleware`.
    ("cors_settings", "cors_settings"),
];

/// How options begin that name what a script does with KServe's `app`.
const APP: &str = "app: ";

/// What replaces the other options.
const REPLACEMENTS: [(&str, &str); 10] = [
    ("max_threads", "a model's parameter `threads` sets how many calls of a plain `predict` run at a time"),
    ("max_asyncio_workers", "a model's parameter `threads` sets how many calls of a plain `predict` run at a time"),
    ("enable_grpc", "gRPC is always served, on `--grpc-port`"),
    ("enable_docs_url", "the documentation of the API is always served, at `/v2/docs`"),
    ("enable_latency_logging", "the metrics contain the latencies, and `--debug` logs every request"),
    ("access_log_format", "`--debug` logs every request"),
    ("event_loop", "each worker has an event loop for its models"),
    ("exception_handler", "exceptions that no task handles are logged"),
    ("ssl_certfile", "set `tls_certificate` and `tls_key`"),
    ("ssl_keyfile", "set `tls_certificate` and `tls_key`"),
];

/// A script, and its arguments.
#[derive(Debug, Clone)]
pub(super) struct Script {
    /// The path as it was typed.
    pub(super) path: PathBuf,
    pub(super) absolute: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// The models that a script starts.
#[derive(Debug)]
pub(super) struct ScriptModels {
    script: Script,
    names: Vec<String>,
}

impl Script {
    /// Runs the script to find its models, and the settings that its options are. Logs the options that have no effect.
    ///
    /// # Errors
    ///
    /// Fails if the script cannot be run, or does not start models.
    pub(super) async fn describe(&self, python: &Python) -> Result<(ScriptModels, Map<String, Value>), CommandError> {
        let shown = self.path.display();
        info!("Running `{shown}` to find its models.");
        let described = python.describe_script(&self.absolute, &self.arguments).await;
        let ScriptDescription { models, options } = described.with_context(|| format!("cannot serve `{shown}`"))?;
        let listed = models.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        info!("`{shown}` starts {listed}.");
        let (settings, ignored) = settings_of(options);
        for option in ignored {
            warn!("`{shown}` sets `{option}`, which has no effect: {}.", replacement(&option));
        }
        Ok((ScriptModels { script: self.clone(), names: models }, settings))
    }
}

/// Splits options into settings of the server, and those that are not.
fn settings_of(options: Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let mut settings = Map::new();
    let mut ignored = Vec::new();
    for (option, value) in options {
        match SETTINGS.iter().find(|(name, _)| *name == option) {
            Some((_, setting)) => drop(settings.insert((*setting).to_owned(), value)),
            None => ignored.push(option),
        }
    }
    (settings, ignored)
}

fn replacement(option: &str) -> &'static str {
    if option.starts_with(APP) {
        return "of KServe's `app`, this server has the routes, if FastAPI is installed, and `CORSMiddleware`";
    }
    REPLACEMENTS
        .iter()
        .find(|(name, _)| *name == option)
        .map_or("`mlserver config list` prints the settings of this server", |(_, text)| text)
}

impl ScriptModels {
    fn listed(&self, name: &str) -> Listed {
        let Script { absolute, arguments, .. } = &self.script;
        let extra = json!({"script": absolute.to_string_lossy(), "name": name, "arguments": arguments});
        let settings: [(&str, Value); 3] = [
            ("name", name.into()),
            ("implementation", SCRIPT_IMPLEMENTATION.into()),
            ("parameters", json!({"extra": extra})),
        ];
        let settings: Map<String, Value> = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Listed { settings, source: None }
    }
}

impl CustomRepository for ScriptModels {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, CustomError>> {
        future::ready(Ok(self.names.iter().map(|name| self.listed(name)).collect())).boxed()
    }

    fn find<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, CustomError>> {
        let found = self.names.iter().any(|known| known == name).then(|| self.listed(name));
        future::ready(Ok(found.into_iter().collect())).boxed()
    }
}
