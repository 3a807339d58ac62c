//! From a model folder to an image: what the folder needs, the Dockerfile that says so, and what goes to the engine.

mod check;
mod context;
mod credentials;
mod engine;
mod executable;
mod ignore;
mod plan;
mod progress;

use serde::Serialize;

use crate::templates::{self, TemplateError};
pub use check::{CheckError, CheckSample, ImageCheck};
pub use context::BuildContext;
pub use credentials::CredentialsError;
pub use engine::{BuildRequest, DockerEngine, EngineError};
pub use executable::files as executable;
pub use ignore::{IgnoreError, IgnoreRules};
pub use plan::{ImagePlan, PlanError, PythonImage, PythonReason};
pub use progress::BuildFailure;

/// The base images for models in Python, and for those of conda, whose environment brings its own Python.
const PYTHON_BASE: &str = "python:3.12-slim";
const CONDA_BASE: &str = "debian:bookworm-slim";
/// Where conda environments are made.
const CONDA: &str = "condaforge/miniforge3:24.11.3-2";
/// The image without anything in it.
const SCRATCH: &str = "scratch";

/// Returns the ignore rules of folders that have none of their own.
pub fn default_ignore() -> String {
    templates::under("image")
        .into_iter()
        .find(|(name, _)| name == "dockerignore")
        .map_or_else(String::new, |(_, data)| String::from_utf8_lossy(&data).into_owned())
}

/// What a Dockerfile may be told beside what the folder needs.
#[derive(Debug, Clone, Default)]
pub struct DockerfileOptions {
    /// The image to start from, in place of the usual one.
    pub base: Option<String>,
    /// The image that the executable comes from; without one, it is part of the context, in `server/`.
    pub server: Option<String>,
    /// Whether the context is a [`BuildContext`], with the folder in `project/`, rather than the folder itself.
    pub in_parts: bool,
    /// Whether the builder lacks mounts: the classic one does.
    pub classic: bool,
}

/// What the template of the Dockerfile may name.
#[derive(Debug, Serialize)]
struct DockerfileValues<'a> {
    version: &'static str,
    why: String,
    base: &'a str,
    python: bool,
    /// Whether packages are to be installed.
    environment: bool,
    environment_base: &'a str,
    conda: Option<&'a str>,
    requirements: bool,
    requirements_name_files: bool,
    server_image: Option<&'a str>,
    /// Whether the server's libraries come with it: there are none in an image that starts from nothing.
    with_libraries: bool,
    executable: &'static str,
    /// Where the folder is in the context, with a slash at the end, or nothing when it is the context.
    project: &'static str,
    mounts: bool,
}

/// A Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    pub text: String,
    /// The images that it is built from.
    pub images: Vec<String>,
}

/// Returns the Dockerfile for a folder.
///
/// # Errors
///
/// Fails when the template is wrong, which is a bug of ours.
pub fn dockerfile(plan: &ImagePlan, options: &DockerfileOptions) -> Result<Dockerfile, TemplateError> {
    let python = match plan {
        ImagePlan::Native(_) => None,
        ImagePlan::Python(python) => Some(python),
    };
    let conda = python.and_then(|python| python.conda.as_deref());
    let server_image = options.server.as_deref();
    let usual_base = match (python, conda) {
        (None, _) => server_image.unwrap_or(SCRATCH),
        (Some(_), None) => PYTHON_BASE,
        (Some(_), Some(_)) => CONDA_BASE,
    };
    let base = options.base.as_deref().unwrap_or(usual_base);
    let requirements = python.is_some_and(|python| python.requirements);
    let environment = requirements || conda.is_some();
    let values = DockerfileValues {
        version: env!("CARGO_PKG_VERSION"),
        why: plan.to_string(),
        base,
        python: python.is_some(),
        environment,
        environment_base: if conda.is_some() { CONDA } else { base },
        conda,
        requirements,
        requirements_name_files: python.is_some_and(|python| python.requirements_name_files),
        server_image,
        with_libraries: base == SCRATCH,
        // Beside the interpreter that is to run the models.
        executable: if environment { "/opt/environment/bin/mlserver" } else { "/usr/local/bin/mlserver" },
        project: if options.in_parts { "project/" } else { "" },
        mounts: !options.classic,
    };
    let text = templates::embedded("image/Dockerfile.tera", &values)?;
    let images = environment.then_some(values.environment_base).into_iter().chain([base]).chain(server_image);
    let images = images.filter(|image| *image != SCRATCH).map(str::to_owned).collect();
    Ok(Dockerfile { text, images })
}
