//! Checks whether a model could be imported, without running its code: for `mlserver doctor`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use super::environment::run_program;
use super::{Python, PythonLoadError, sdk};
use crate::families::ModelFamily;
use crate::runtimes::workers::WorkerLoadError;
use crate::settings::ModelSettings;

/// How long an interpreter may take to look for a model's modules.
const TIMEOUT: Duration = Duration::from_mins(1);
/// What the script writes in front of its answer.
const MARK: &str = "mlserver-static-checks";

/// What keeps a model from working as its author meant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StaticFinding {
    pub level: StaticFindingLevel,
    pub text: String,
}

/// Whether the model would fail to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StaticFindingLevel {
    Problem,
    Warning,
    /// The model loads, but its code may expect what the server does differently than MLServer 1.7.1.
    Note,
}

impl Python {
    /// Looks for the class of a model, for the modules that its code imports, for its framework, and for the packages of its
    /// `requirements.txt`, with the interpreter that would run it. Also looks for the names of `hidden_headers` in its code, which models
    /// do not see. Runs no code of the model.
    ///
    /// # Errors
    ///
    /// Fails if there is no interpreter, or if it does not answer.
    pub async fn check(
        &self,
        settings: &ModelSettings,
        hidden_headers: &[&str],
    ) -> Result<Vec<StaticFinding>, PythonLoadError> {
        let options = &self.0.options;
        let environment = self.0.environments.of(settings, options).await?;
        let sdk = self.0.sdk.get_or_try_init(|| sdk::install(&options.variables)).await?;
        let family = ModelFamily::of_package(&settings.implementation);
        let requirements: Vec<PathBuf> = settings
            .folder()
            .map(Path::to_owned)
            .into_iter()
            .chain(options.workers.paths.iter().cloned())
            .map(|folder| folder.join("requirements.txt"))
            .filter(|path| path.is_file())
            .collect();
        let mut distinct = requirements;
        distinct.dedup();
        let question = json!({
            "implementation": settings.implementation,
            "folder": settings.folder(),
            "paths": options.workers.paths,
            "modules": family.map_or(&[] as &[&str], |family| family.modules),
            "requirements": distinct,
            "hidden_headers": hidden_headers,
        });
        let mut command = Command::new(&environment.interpreter);
        command.arg(sdk.join("mlserver/_worker/static_checks.py")).arg(question.to_string());
        for (name, value) in environment.variables(sdk, options, 1) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let interpreter = || environment.interpreter.clone();
        let failed = |message: String| PythonLoadError::Worker(WorkerLoadError::Failed { message, status: 500 });
        let ran = run_program(&mut command, TIMEOUT).await;
        let ran = ran.map_err(|source| WorkerLoadError::Start { program: interpreter(), source: source.into() })?;
        let Some(ran) = ran else {
            let seconds = TIMEOUT.as_secs();
            let shown = environment.interpreter.display();
            return Err(failed(format!("`{shown}` did not find the modules of the model within {seconds} s")));
        };
        let answer = ran.output().rsplit_once(MARK).and_then(|(_, answer)| serde_json::from_str(answer.trim()).ok());
        answer.ok_or_else(|| {
            failed(format!(
                "`{}` cannot look for the modules of the model: it {ran}",
                environment.interpreter.display()
            ))
        })
    }
}
