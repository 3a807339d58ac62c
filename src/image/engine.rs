//! A client of the Docker engine's API. Docker's command line is not needed.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::auth::DockerCredentials;
use bollard::models::{BuildInfoAux, ImageInspect};
use bollard::query_parameters::{BuildImageOptions, BuilderVersion, PushImageOptions};
use bollard::{Docker, body_try_stream};
use futures_util::StreamExt;

use super::context::{BuildContext, DOCKERFILE};
use super::credentials::{CredentialsError, ImageRegistry};
use super::progress::{BuildFailure, BuildProgress};

/// The address of the engine if `DOCKER_HOST` is not set.
const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";
/// How long an engine may take to respond. Build steps may be silent for a long time.
const TIMEOUT: Duration = Duration::from_hours(6);

/// A connection to an engine.
#[derive(Debug, Clone)]
pub struct DockerEngine {
    pub(super) docker: Docker,
    /// Docker's configuration file, which need not exist. `None` if no variable leads to it.
    config: Option<PathBuf>,
}

/// What to build, besides the context.
#[derive(Debug, Clone, Default)]
pub struct BuildRequest {
    pub tag: String,
    pub no_cache: bool,
    pub platform: Option<String>,
    pub arguments: HashMap<String, String>,
    /// The network for the build's commands. The engine's default if `None`.
    pub network: Option<String>,
    /// Uses the classic builder instead of BuildKit.
    pub classic: bool,
}

/// Why a request to an engine failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no Docker engine responds at `{host}`: start one, or set `DOCKER_HOST`")]
    Unreachable { host: String, source: Box<bollard::errors::Error> },
    #[error(transparent)]
    Build(#[from] BuildFailure),
    #[error("cannot push `{tag}`")]
    Push { tag: String, source: Box<bollard::errors::Error> },
    #[error("image `{tag}` not found")]
    NoImage { tag: String, source: Box<bollard::errors::Error> },
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl DockerEngine {
    /// Connects to the engine that `variables` name. Credentials are looked up later, for the registries that are used.
    ///
    /// # Errors
    ///
    /// Fails if no engine responds.
    pub async fn connect(variables: &HashMap<String, String>) -> Result<Self, EngineError> {
        let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty());
        let host = variable("DOCKER_HOST").map_or(DEFAULT_HOST, String::as_str);
        let unreachable = |error| EngineError::Unreachable { host: host.to_owned(), source: Box::new(error) };
        let docker = Docker::connect_with_host(host).map_err(unreachable)?.with_timeout(TIMEOUT);
        // The engine may have an older version of the API.
        let docker = docker.negotiate_version().await.map_err(unreachable)?;
        let folder = variable("DOCKER_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| variable("HOME").map(|home| Path::new(home).join(".docker")));
        Ok(Self { docker, config: folder.map(|folder| folder.join("config.json")) })
    }

    /// Returns the credentials for the registries of images, by the names under which the engine looks them up.
    async fn credentials(&self, images: &[String]) -> Result<HashMap<String, DockerCredentials>, EngineError> {
        let Some(config) = self.config.clone() else { return Ok(HashMap::new()) };
        let images = images.to_vec();
        let lookup = move || {
            let registries: BTreeSet<_> = images.iter().map(|image| ImageRegistry::of_image(image)).collect();
            let mut found = HashMap::new();
            for registry in registries {
                if let Some(credentials) = registry.credentials(&config)? {
                    found.extend(registry.engine_keys().map(|key| (key.to_owned(), credentials.clone())));
                }
            }
            Ok::<_, CredentialsError>(found)
        };
        // Credential helpers are processes, and waiting for them blocks.
        Ok(tokio::task::spawn_blocking(lookup).await.expect("the lookup does not panic")?)
    }

    /// Builds an image, and reports the start and end of each step.
    ///
    /// # Errors
    ///
    /// Fails with the last output of the step that failed.
    pub async fn build(
        &self,
        request: &BuildRequest,
        context: BuildContext,
        mut report: impl FnMut(String),
    ) -> Result<(), EngineError> {
        let version = if request.classic { BuilderVersion::BuilderV1 } else { BuilderVersion::BuilderBuildKit };
        let options = BuildImageOptions {
            dockerfile: DOCKERFILE.to_owned(),
            t: Some(request.tag.clone()),
            nocache: request.no_cache,
            rm: true,
            forcerm: true,
            platform: request.platform.clone().unwrap_or_default(),
            buildargs: Some(request.arguments.clone()),
            networkmode: request.network.clone(),
            version,
            session: (!request.classic).then(|| uuid::Uuid::new_v4().to_string()),
            ..BuildImageOptions::default()
        };
        let credentials = self.credentials(&context.dockerfile.images).await?;
        let body = body_try_stream(context.into_stream());
        let mut progress = BuildProgress::default();
        let mut stream = self.docker.build_image(options, Some(credentials), Some(body));
        while let Some(info) = stream.next().await {
            let info = match info {
                Ok(info) => info,
                Err(error) => return Err(progress.into_failure(&error_text(&error)).into()),
            };
            if let Some(message) = info.error_detail.and_then(|detail| detail.message) {
                return Err(progress.into_failure(&message).into());
            }
            let lines = match (info.aux, info.stream) {
                (Some(BuildInfoAux::BuildKit(status)), _) => progress.add_buildkit(status),
                (_, Some(text)) => progress.add_classic(&text),
                _ => Vec::new(),
            };
            lines.into_iter().for_each(&mut report);
        }
        Ok(())
    }

    /// Returns the size of an image with all its layers, in bytes.
    ///
    /// # Errors
    ///
    /// Fails if the image does not exist.
    pub async fn size(&self, tag: &str) -> Result<u64, EngineError> {
        let not_found = |error| EngineError::NoImage { tag: tag.to_owned(), source: Box::new(error) };
        let ImageInspect { size, .. } = self.docker.inspect_image(tag).await.map_err(not_found)?;
        Ok(size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default())
    }

    /// Pushes an image to the registry in its tag.
    ///
    /// # Errors
    ///
    /// Fails with the registry's message.
    pub async fn push(&self, tag: &str) -> Result<(), EngineError> {
        let (name, version) = split_tag(tag);
        let options = PushImageOptions { tag: Some(version.to_owned()), ..PushImageOptions::default() };
        let credentials = self.credentials(&[tag.to_owned()]).await?.into_values().next();
        let mut stream = self.docker.push_image(name, Some(options), Some(credentials.unwrap_or_default()));
        while let Some(pushed) = stream.next().await {
            pushed.map_err(|error| EngineError::Push { tag: tag.to_owned(), source: Box::new(error) })?;
        }
        Ok(())
    }
}

/// Returns the engine's own message of an error.
pub(super) fn error_text(error: &bollard::errors::Error) -> String {
    match error {
        bollard::errors::Error::DockerStreamError { error } => error.clone(),
        bollard::errors::Error::DockerResponseServerError { message, .. } => message.clone(),
        other => {
            let mut text = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(error) = cause {
                // The cause of a failed stream is at the end of the chain.
                text = error.to_string();
                cause = error.source();
            }
            text
        }
    }
}

/// Splits a tag into the image's name and its version, which defaults to `latest`.
fn split_tag(tag: &str) -> (&str, &str) {
    match tag.rsplit_once(':') {
        // The colon of a registry's port precedes a slash.
        Some((name, version)) if !version.contains('/') => (name, version),
        _ => (tag, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_tag_keeps_the_port_of_the_registry() {
        for (tag, expected) in [
            ("m", ("m", "latest")),
            ("m:1", ("m", "1")),
            ("user/m:1", ("user/m", "1")),
            ("localhost:5000/m", ("localhost:5000/m", "latest")),
            ("r.io/a/m:2.0", ("r.io/a/m", "2.0")),
        ] {
            assert_eq!(split_tag(tag), expected);
        }
    }

    #[tokio::test]
    async fn engine_connect_error_names_the_host() {
        let variables = HashMap::from([("DOCKER_HOST".to_owned(), "unix:///no/such/engine.sock".to_owned())]);
        let error = DockerEngine::connect(&variables).await.unwrap_err().to_string();
        assert!(error.starts_with("no Docker engine responds at `unix:///no/such/engine.sock`"), "{error}");
    }
}
