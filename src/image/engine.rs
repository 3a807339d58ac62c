//! A Docker engine, asked through its API: no command line of Docker's is needed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bollard::auth::DockerCredentials;
use bollard::models::{BuildInfoAux, ImageInspect};
use bollard::query_parameters::{BuildImageOptions, BuilderVersion, PushImageOptions};
use bollard::{Docker, body_try_stream};
use futures_util::StreamExt;
use serde_json::Value;

use super::context::{Context, DOCKERFILE};
use super::progress::{BuildFailure, Progress};

/// Where engines listen unless `DOCKER_HOST` says otherwise.
const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";
/// How long an engine may take to answer: steps of a build may be silent for long.
const PATIENCE: Duration = Duration::from_hours(6);

/// A connection to an engine.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(super) docker: Docker,
    credentials: HashMap<String, DockerCredentials>,
}

/// What to build, beside the context.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub tag: String,
    pub no_cache: bool,
    pub platform: Option<String>,
    pub arguments: HashMap<String, String>,
    /// The network of the build's commands, the engine's default if none is named.
    pub network: Option<String>,
    /// Asks the classic builder rather than BuildKit.
    pub classic: bool,
}

/// Why an engine did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no Docker engine answers at `{host}`: start one, or name another in `DOCKER_HOST`")]
    Unreachable { host: String, source: Box<bollard::errors::Error> },
    #[error(transparent)]
    Build(#[from] BuildFailure),
    #[error("cannot push `{tag}`")]
    Push { tag: String, source: Box<bollard::errors::Error> },
    #[error("the engine does not {what}")]
    Refused { what: &'static str, source: Box<bollard::errors::Error> },
    #[error("cannot read the credentials in `{}`", path.display())]
    Credentials { path: PathBuf, reason: String },
}

impl Engine {
    /// Connects to the engine that `variables` name, with the credentials that Docker's own client has saved.
    ///
    /// # Errors
    ///
    /// Fails when no engine answers, or the file of credentials cannot be understood.
    pub async fn connect(variables: &HashMap<String, String>) -> Result<Self, EngineError> {
        let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty());
        let host = variable("DOCKER_HOST").map_or(DEFAULT_HOST, String::as_str);
        let unreachable = |error| EngineError::Unreachable { host: host.to_owned(), source: Box::new(error) };
        let docker = Docker::connect_with_host(host).map_err(unreachable)?.with_timeout(PATIENCE);
        // The engine may be older than this client.
        let docker = docker.negotiate_version().await.map_err(unreachable)?;
        let folder = variable("DOCKER_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| variable("HOME").map(|home| Path::new(home).join(".docker")));
        let credentials =
            folder.map_or_else(|| Ok(HashMap::new()), |folder| credentials(&folder.join("config.json")))?;
        Ok(Self { docker, credentials })
    }

    /// Builds an image, and tells each step as it begins and ends.
    ///
    /// # Errors
    ///
    /// A failed step comes with its own last words.
    pub async fn build(
        &self,
        request: &Request,
        context: Context,
        mut tell: impl FnMut(String),
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
        let body = body_try_stream(context.into_stream());
        let mut progress = Progress::default();
        let mut stream = self.docker.build_image(options, Some(self.credentials.clone()), Some(body));
        while let Some(info) = stream.next().await {
            let info = match info {
                Ok(info) => info,
                Err(error) => return Err(progress.failure(&words(&error)).into()),
            };
            if let Some(message) = info.error_detail.and_then(|detail| detail.message) {
                return Err(progress.failure(&message).into());
            }
            let lines = match (info.aux, info.stream) {
                (Some(BuildInfoAux::BuildKit(status)), _) => progress.kit(status),
                (_, Some(text)) => progress.classic(&text),
                _ => Vec::new(),
            };
            lines.into_iter().for_each(&mut tell);
        }
        Ok(())
    }

    /// Returns how large an image is, in bytes, with all its layers.
    ///
    /// # Errors
    ///
    /// Fails when there is no such image.
    pub async fn size(&self, tag: &str) -> Result<u64, EngineError> {
        let refused = |error| EngineError::Refused { what: "know the image", source: Box::new(error) };
        let ImageInspect { size, .. } = self.docker.inspect_image(tag).await.map_err(refused)?;
        Ok(size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default())
    }

    /// Sends an image to the registry that its tag names.
    ///
    /// # Errors
    ///
    /// Fails with the registry's words.
    pub async fn push(&self, tag: &str) -> Result<(), EngineError> {
        let (name, version) = split_tag(tag);
        let options = PushImageOptions { tag: Some(version.to_owned()), ..PushImageOptions::default() };
        let credentials = self.credentials.get(registry(name)).cloned();
        let mut stream = self.docker.push_image(name, Some(options), Some(credentials.unwrap_or_default()));
        while let Some(pushed) = stream.next().await {
            pushed.map_err(|error| EngineError::Push { tag: tag.to_owned(), source: Box::new(error) })?;
        }
        Ok(())
    }
}

/// Returns what an engine says, without this client's words around it.
pub(super) fn words(error: &bollard::errors::Error) -> String {
    match error {
        bollard::errors::Error::DockerStreamError { error } => error.clone(),
        bollard::errors::Error::DockerResponseServerError { message, .. } => message.clone(),
        other => {
            let mut text = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(error) = cause {
                // What a stream failed with is at the end of the chain.
                text = error.to_string();
                cause = error.source();
            }
            text
        }
    }
}

/// Splits an image's name from its version, `latest` if there is none.
fn split_tag(tag: &str) -> (&str, &str) {
    match tag.rsplit_once(':') {
        // The colon of a registry's port is before a slash.
        Some((name, version)) if !version.contains('/') => (name, version),
        _ => (tag, "latest"),
    }
}

/// Returns the registry that an image's name leads to, as Docker's client writes it into its file.
fn registry(name: &str) -> &str {
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "https://index.docker.io/v1/",
    }
}

/// Reads the credentials that `docker login` has saved; there may be none.
fn credentials(path: &Path) -> Result<HashMap<String, DockerCredentials>, EngineError> {
    let failed = |reason: String| EngineError::Credentials { path: path.to_owned(), reason };
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(error) => return Err(failed(error.to_string())),
    };
    let config: Value = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
    let Some(registries) = config.get("auths").and_then(Value::as_object) else { return Ok(HashMap::new()) };
    let mut found = HashMap::new();
    for (registry, entry) in registries {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let Some(auth) = text("auth") else { continue };
        let decoded = BASE64.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = decoded.as_deref().and_then(|pair| pair.split_once(':'));
        let (user, password) =
            pair.ok_or_else(|| failed(format!("`auth` of `{registry}` is not user and password")))?;
        found.insert(
            registry.clone(),
            DockerCredentials {
                username: Some(user.to_owned()),
                password: Some(password.to_owned()),
                identitytoken: text("identitytoken").map(str::to_owned),
                serveraddress: Some(registry.clone()),
                ..DockerCredentials::default()
            },
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_split_behind_the_registry_s_port() {
        for (tag, expected, host) in [
            ("m", ("m", "latest"), "https://index.docker.io/v1/"),
            ("m:1", ("m", "1"), "https://index.docker.io/v1/"),
            ("user/m:1", ("user/m", "1"), "https://index.docker.io/v1/"),
            ("localhost:5000/m", ("localhost:5000/m", "latest"), "localhost:5000"),
            ("r.io/a/m:2.0", ("r.io/a/m", "2.0"), "r.io"),
        ] {
            assert_eq!(split_tag(tag), expected);
            assert_eq!(registry(expected.0), host);
        }
    }

    #[test]
    fn saved_credentials_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        assert!(credentials(&path).unwrap().is_empty());
        let text = r#"{"auths": {"r.io": {"auth": "dXNlcjpwYXNz"}, "helper.io": {}}, "credsStore": "x"}"#;
        std::fs::write(&path, text).unwrap();
        let found = credentials(&path).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found["r.io"].username.as_deref(), found["r.io"].password.as_deref()),
            (Some("user"), Some("pass"))
        );
        for broken in ["{", r#"{"auths": {"r.io": {"auth": "%%"}}}"#, r#"{"auths": {"r.io": {"auth": "dXNlcg=="}}}"#] {
            std::fs::write(&path, broken).unwrap();
            let error = credentials(&path).unwrap_err().to_string();
            assert!(error.starts_with("cannot read the credentials in `"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_named() {
        let variables = HashMap::from([("DOCKER_HOST".to_owned(), "unix:///no/such/engine.sock".to_owned())]);
        let error = Engine::connect(&variables).await.unwrap_err().to_string();
        assert!(error.starts_with("no Docker engine answers at `unix:///no/such/engine.sock`"), "{error}");
    }
}
