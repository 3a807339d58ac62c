//! Builds images of model folders: what a folder needs, its Dockerfile, and the build by a Docker engine.

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
/// The image that creates conda environments.
const CONDA: &str = "condaforge/miniforge3:24.11.3-2";
/// The empty image.
const SCRATCH: &str = "scratch";

/// Returns the ignore patterns for folders that have none.
pub fn default_ignore() -> String {
    templates::under("image")
        .into_iter()
        .find(|(name, _)| name == "dockerignore")
        .map_or_else(String::new, |(_, data)| String::from_utf8_lossy(&data).into_owned())
}

/// The options of a Dockerfile, besides what the folder needs.
#[derive(Debug, Clone, Default)]
pub struct DockerfileOptions {
    /// The base image, if not the default.
    pub base: Option<String>,
    /// The image to copy the executable from. If `None`, the executable is part of the context, in `server/`.
    pub server: Option<String>,
    /// Whether the context is a [`BuildContext`], with the folder in `project/`, instead of the folder itself.
    pub in_parts: bool,
    /// Whether to support the classic builder, which has no mounts.
    pub classic: bool,
}

/// The variables of the Dockerfile's template.
#[derive(Debug, Serialize)]
struct DockerfileValues<'a> {
    version: &'static str,
    why: String,
    base: &'a str,
    python: bool,
    /// Whether packages have to be installed.
    environment: bool,
    environment_base: &'a str,
    conda: Option<&'a str>,
    requirements: bool,
    requirements_name_files: bool,
    server_image: Option<&'a str>,
    /// Whether to copy the server's libraries, which an empty image does not have.
    with_libraries: bool,
    executable: &'static str,
    /// The path of the folder in the context with a trailing slash, or empty if the folder is the context.
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
/// Fails if the template is invalid, which is a bug in mlserver.
pub fn dockerfile(plan: &ImagePlan, options: &DockerfileOptions) -> Result<Dockerfile, TemplateError> {
    let python = match plan {
        ImagePlan::Native(_) => None,
        ImagePlan::Python(python) => Some(python),
    };
    let conda = python.and_then(|python| python.conda.as_deref());
    let server_image = options.server.as_deref();
    let default_base = match (python, conda) {
        (None, _) => server_image.unwrap_or(SCRATCH),
        (Some(_), None) => PYTHON_BASE,
        (Some(_), Some(_)) => CONDA_BASE,
    };
    let base = options.base.as_deref().unwrap_or(default_base);
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
        // Next to the interpreter that runs the models.
        executable: if environment { "/opt/environment/bin/mlserver" } else { "/usr/local/bin/mlserver" },
        project: if options.in_parts { "project/" } else { "" },
        mounts: !options.classic,
    };
    let text = templates::embedded("image/Dockerfile.tera", &values)?;
    let images = environment.then_some(values.environment_base).into_iter().chain([base]).chain(server_image);
    let images = images.filter(|image| *image != SCRATCH).map(str::to_owned).collect();
    Ok(Dockerfile { text, images })
}
