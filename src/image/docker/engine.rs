//! A client of the Docker engine's API. Docker's command line is not needed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bollard::auth::DockerCredentials;
use bollard::models::{BuildInfoAux, ImageInspect, PushImageInfo};
use bollard::query_parameters::{BuildImageOptions, BuilderVersion, PushImageOptions};
use bollard::{Docker, body_try_stream};
use futures_util::StreamExt;
use serde::Serialize;

use super::context::{BuildContext, DOCKERFILE};
use super::credentials::{CredentialsError, ImageRegistry};
use super::endpoint::{EndpointError, engine_addresses};
use super::progress::{BuildFailure, BuildProgress};

/// How long an engine may take to respond. Build steps may be silent for a long time.
const TIMEOUT: Duration = Duration::from_hours(6);
/// How long an engine may take to tell its version.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the progress of a push is reported.
const PUSH_INTERVAL: Duration = Duration::from_secs(5);
/// The limit on the number of layers whose progress is followed. An image has at most 127.
const MAX_LAYERS: usize = 256;

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

/// An image that has been built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BuiltImage {
    pub id: String,
    /// The size with all layers, in bytes.
    pub size: u64,
    pub tags: Vec<String>,
}

/// Why a request to an engine failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no Docker engine responds at {}: start one, or set `DOCKER_HOST`", quoted(hosts))]
    Unreachable { hosts: Vec<String>, source: Box<dyn std::error::Error + Send + Sync> },
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
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
    /// Connects to the first engine that responds, of those to which `variables` and Docker's configuration lead. Credentials are
    /// looked up later, for the registries that are used.
    ///
    /// # Errors
    ///
    /// Fails if Docker's configuration cannot be read, or no engine responds.
    pub async fn connect(variables: &HashMap<String, String>) -> Result<Self, EngineError> {
        let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty());
        let folder = variable("DOCKER_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| variable("HOME").map(|home| Path::new(home).join(".docker")));
        let hosts = engine_addresses(variables, folder.as_deref())?;
        let mut failure = None;
        for host in &hosts {
            match connect_to(host).await {
                Ok(docker) => return Ok(Self { docker, config: folder.map(|folder| folder.join("config.json")) }),
                // The first one is the one that users expect.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let source = failure.unwrap_or_else(|| "there is no address to try".into());
        Err(EngineError::Unreachable { hosts, source })
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

    /// Returns an image's id, tags, and size with all its layers.
    ///
    /// # Errors
    ///
    /// Fails if the image does not exist.
    pub async fn inspect(&self, tag: &str) -> Result<BuiltImage, EngineError> {
        let not_found = |error| EngineError::NoImage { tag: tag.to_owned(), source: Box::new(error) };
        let ImageInspect { id, size, repo_tags, .. } = self.docker.inspect_image(tag).await.map_err(not_found)?;
        let size = size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default();
        Ok(BuiltImage { id: id.unwrap_or_default(), size, tags: repo_tags.unwrap_or_default() })
    }

    /// Pushes an image to the registry in its tag, and reports its progress every few seconds.
    ///
    /// # Errors
    ///
    /// Fails with the registry's message.
    pub async fn push(&self, tag: &str, mut report: impl FnMut(String)) -> Result<(), EngineError> {
        let (name, version) = split_tag(tag);
        let options = PushImageOptions { tag: Some(version.to_owned()), ..PushImageOptions::default() };
        let credentials = self.credentials(&[tag.to_owned()]).await?.into_values().next();
        let mut stream = self.docker.push_image(name, Some(options), Some(credentials.unwrap_or_default()));
        let mut progress = PushProgress::default();
        let mut reported = Instant::now();
        while let Some(pushed) = stream.next().await {
            let info = pushed.map_err(|error| EngineError::Push { tag: tag.to_owned(), source: Box::new(error) })?;
            let is_new = progress.add(&info);
            if is_new || reported.elapsed() >= PUSH_INTERVAL {
                report(progress.to_string());
                reported = Instant::now();
            }
        }
        Ok(())
    }
}

/// The progress of a push.
#[derive(Debug, Default)]
struct PushProgress {
    layers: usize,
    done: usize,
    /// How much of each layer has been sent, by the layer's size: bollard does not pass on the layers' ids.
    sent: BTreeMap<i64, i64>,
}

impl PushProgress {
    /// Adds a message of the engine. Returns whether a layer was completed.
    fn add(&mut self, info: &PushImageInfo) -> bool {
        match info.status.as_deref().unwrap_or_default() {
            "Preparing" => self.layers += 1,
            "Pushing" => {
                let detail = info.progress_detail.as_ref();
                let known = detail.and_then(|detail| detail.total.zip(detail.current));
                if let Some((total, current)) = known
                    && (self.sent.len() < MAX_LAYERS || self.sent.contains_key(&total))
                {
                    self.sent.insert(total, current.clamp(0, total.max(0)));
                }
            }
            status if status == "Pushed" || status == "Layer already exists" || status.starts_with("Mounted from") => {
                self.done += 1;
                return true;
            }
            _ => {}
        }
        false
    }
}

impl fmt::Display for PushProgress {
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, total) =
            self.sent.iter().fold((0, 0), |(sent, total), (size, current)| (sent + current, total + size));
        write!(f, "Pushed {} of {} layers", self.done, self.layers.max(self.done))?;
        if total > 0 {
            write!(f, ", {:.1} of {:.1} MB", sent as f64 / 1e6, total as f64 / 1e6)?;
        }
        Ok(())
    }
}

/// Connects to an engine, and agrees on a version of the API, which may be older than ours.
async fn connect_to(host: &str) -> Result<Docker, Box<dyn std::error::Error + Send + Sync>> {
    let docker = Docker::connect_with_host(host)?.with_timeout(TIMEOUT);
    match tokio::time::timeout(CONNECT_TIMEOUT, docker.negotiate_version()).await {
        Ok(negotiated) => Ok(negotiated?),
        Err(_) => Err(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()).into()),
    }
}

fn quoted(hosts: &[String]) -> String {
    hosts.iter().map(|host| format!("`{host}`")).collect::<Vec<_>>().join(" or ")
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

    /// The time is paused, so nothing is waited for.
    #[tokio::test(start_paused = true)]
    async fn engine_connect_silent_host_times_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let _silent = tokio::net::UnixListener::bind(&path).unwrap();
        let variables = HashMap::from([("DOCKER_HOST".to_owned(), format!("unix://{}", path.display()))]);
        let error = DockerEngine::connect(&variables).await.unwrap_err();
        let EngineError::Unreachable { source, .. } = error else { unreachable!("{error}") };
        assert_eq!(source.to_string(), "no answer within 10 s");
    }

    #[tokio::test]
    async fn engine_connect_tries_every_socket() {
        let folder = tempfile::tempdir().unwrap();
        // Nobody listens at the first one.
        drop(tokio::net::UnixListener::bind(folder.path().join("docker.sock")).unwrap());
        std::fs::create_dir(folder.path().join("podman")).unwrap();
        super::super::scripted::ScriptedEngine::new(204).await.start(&folder.path().join("podman/podman.sock"));
        let runtime_folder = folder.path().to_str().unwrap().to_owned();
        let variables = HashMap::from([("XDG_RUNTIME_DIR".to_owned(), runtime_folder)]);
        DockerEngine::connect(&variables).await.unwrap();
    }

    #[test]
    fn push_progress_counts_layers_and_bytes() {
        let info = |status: &str, current: i64, total: i64| PushImageInfo {
            status: Some(status.to_owned()),
            progress_detail: Some(bollard::models::ProgressDetail { current: Some(current), total: Some(total) }),
            ..PushImageInfo::default()
        };
        let mut progress = PushProgress::default();
        for _ in 0..3 {
            assert!(!progress.add(&info("Preparing", 0, 0)));
        }
        assert!(!progress.add(&info("Pushing", 1_000_000, 4_000_000)));
        assert!(!progress.add(&info("Pushing", 2_000_000, 4_000_000)));
        assert!(progress.add(&info("Layer already exists", 0, 0)));
        assert_eq!(progress.to_string(), "Pushed 1 of 3 layers, 2.0 of 4.0 MB");
        assert!(progress.add(&info("Pushed", 0, 0)));
        assert!(!progress.add(&info("1: digest: sha256:00 size: 1", 0, 0)));
        assert_eq!(progress.to_string(), "Pushed 2 of 3 layers, 2.0 of 4.0 MB");
    }
}
