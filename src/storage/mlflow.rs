//! MLflow: where its registry keeps a model, and the artifacts that its server serves.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::FetchError;
use super::hub::PATH;
use super::mlflow_reference::{MlflowReference, ModelVersion};
use super::part::Part;
use super::selection::{MAX_OBJECTS, RemoteFile, SelectionError, select, select_one, siblings};
use super::transport::{MAX_ANSWER, Transport};
use super::uri::{Location, StorageUri};
use super::web::{follow, read_part};
use crate::http_client::{HttpStream, Url};
use crate::types::{Secret, without_credentials};

const API: &str = "/api/2.0/mlflow/";
const ARTIFACTS: &str = "/api/2.0/mlflow-artifacts/artifacts";
/// How often the location of a model may be another URI of MLflow.
const MAX_STEPS: usize = 4;
/// The longest error of the server, in bytes.
const MAX_ERROR: usize = 64 << 10;
/// The file that describes a model. Each logged model has another one.
const DESCRIPTION: &str = "MLmodel";
const MAX_DESCRIPTION: u64 = 1 << 20;

/// The servers of MLflow.
#[derive(Debug, Clone)]
pub(super) struct Mlflow {
    pub transport: Transport,
    pub tracking: Url,
    pub registry: Url,
    /// The value of the header `Authorization`.
    pub authorization: Option<Secret>,
    /// Where the credentials come from, for errors.
    pub credentials: String,
}

/// Artifacts that the tracking server serves.
#[derive(Debug)]
pub(super) struct MlflowArtifacts {
    mlflow: Mlflow,
    path: String,
}

#[derive(Deserialize)]
struct DownloadUri {
    artifact_uri: String,
}

#[derive(Deserialize)]
struct AliasedVersion {
    model_version: VersionNumber,
}

#[derive(Deserialize)]
struct VersionNumber {
    version: Value,
}

#[derive(Deserialize)]
struct LatestVersions {
    #[serde(default)]
    model_versions: Vec<VersionNumber>,
}

#[derive(Deserialize)]
struct FoundRun {
    run: Described<RunInfo>,
}

#[derive(Deserialize)]
struct FoundModel {
    model: Described<DownloadUri>,
}

#[derive(Deserialize)]
struct FoundModels {
    #[serde(default)]
    models: Vec<Described<DownloadUri>>,
}

#[derive(Deserialize)]
struct Described<T> {
    info: T,
}

#[derive(Deserialize)]
struct RunInfo {
    artifact_uri: String,
    experiment_id: String,
}

#[derive(Deserialize)]
struct ArtifactList {
    #[serde(default)]
    files: Vec<ArtifactEntry>,
}

#[derive(Deserialize)]
struct ArtifactEntry {
    /// Relative to the listed folder.
    path: String,
    #[serde(default)]
    is_dir: bool,
    file_size: Option<Value>,
}

impl Mlflow {
    /// Returns where the artifacts of a reference are: in a bucket, on a disk, or at the tracking server.
    pub(super) async fn locate(&self, reference: &MlflowReference) -> Result<Location, FetchError> {
        let mut reference = reference.clone();
        for _ in 0..MAX_STEPS {
            let (uri, path) = match &reference {
                MlflowReference::Artifact { server, .. } => {
                    self.check_server(server.as_deref())?;
                    return Ok(Location::Mlflow(reference));
                }
                MlflowReference::Registered { name, version, path } => {
                    (self.registered(name, version).await?, path.as_str())
                }
                MlflowReference::Logged { id, path } => {
                    let found: FoundModel = self.ask(&self.tracking, &format!("logged-models/{id}"), &[]).await?;
                    (found.model.info.artifact_uri, path.as_str())
                }
                MlflowReference::Run { id, path } => self.of_run(id, path).await?,
            };
            let uri = if path.is_empty() { uri } else { format!("{}/{path}", uri.trim_end_matches('/')) };
            reference = match self.location(&uri)? {
                Location::Mlflow(next) => next,
                location => return Ok(location),
            };
        }
        Err(registry_error("its location is a URI of MLflow, again and again"))
    }

    pub(super) fn artifacts(&self, path: &str) -> MlflowArtifacts {
        MlflowArtifacts { mlflow: self.clone(), path: path.to_owned() }
    }

    /// Reads the location of a model, as the registry tells it.
    fn location(&self, uri: &str) -> Result<Location, FetchError> {
        // Earlier servers have the address of their own artifacts.
        if let Ok(url) = Url::parse(uri)
            && url.origin() == self.tracking.origin()
            && let Some((_, path)) = uri.split_once(&format!("{ARTIFACTS}/"))
        {
            let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
            return Ok(Location::Mlflow(MlflowReference::Artifact { server: None, path }));
        }
        // `file:/a/b` is a form of Python's library.
        let path = uri.strip_prefix("file:").filter(|path| !path.starts_with("//"));
        let shown = || without_credentials(uri);
        let location = if let Some(path) = path {
            Location::Local(path.into())
        } else {
            let invalid = |error| registry_error(&format!("the model's location cannot be used: {error}"));
            StorageUri::parse(uri).map_err(invalid)?.location
        };
        match &location {
            Location::Local(path) if !path.exists() => Err(registry_error(&format!(
                "the model is at `{}` on the disk of the MLflow server, which is not there on this machine (a server with \
                 `--serve-artifacts` sends its files)",
                shown()
            ))),
            _ => Ok(location),
        }
    }

    /// Returns the location of a version of a registered model.
    async fn registered(&self, name: &str, version: &ModelVersion) -> Result<String, FetchError> {
        let number = match version {
            ModelVersion::Number(number) => number.clone(),
            ModelVersion::Alias(alias) => {
                let query = [("name", name), ("alias", alias)];
                let found: AliasedVersion = self.ask(&self.registry, "registered-models/alias", &query).await?;
                number_of(&found.model_version)
            }
            ModelVersion::Stage(stage) => self.newest(name, Some(stage)).await?,
            ModelVersion::Latest => self.newest(name, None).await?,
        };
        let query = [("name", name), ("version", &number)];
        let found: DownloadUri = self.ask(&self.registry, "model-versions/get-download-uri", &query).await?;
        Ok(found.artifact_uri)
    }

    /// Returns the newest version, of a stage or of all.
    async fn newest(&self, name: &str, stage: Option<&str>) -> Result<String, FetchError> {
        let query = [("name", name), ("stages", stage.unwrap_or_default())];
        let query = if stage.is_some() { &query[..] } else { &query[..1] };
        let found: LatestVersions = self.ask(&self.registry, "registered-models/get-latest-versions", query).await?;
        let numbers = found.model_versions.iter().map(number_of);
        let newest = numbers.max_by_key(|number| number.parse::<u64>().unwrap_or(0));
        newest.ok_or_else(|| {
            let stage = stage.map(|stage| format!(" in the stage `{stage}`")).unwrap_or_default();
            registry_error(&format!("the model `{name}` has no version{stage}"))
        })
    }

    /// Returns the location of an artifact of a run, and the path below it: a model that the run has logged, or a file beside
    /// the models.
    async fn of_run<'p>(&self, id: &str, path: &'p str) -> Result<(String, &'p str), FetchError> {
        let found: FoundRun = self.ask(&self.tracking, "runs/get", &[("run_id", id)]).await?;
        let RunInfo { artifact_uri, experiment_id } = found.run.info;
        let (name, below) = path.split_once('/').unwrap_or((path, ""));
        // A name with a quote has no filter.
        if !name.contains('\'') {
            let filter = format!("source_run_id = '{id}' AND name = '{name}'");
            let body = json!({"experiment_ids": [experiment_id], "filter": filter, "max_results": 1});
            match self.search(&body).await {
                Ok(FoundModels { models }) => {
                    if let Some(model) = models.into_iter().next() {
                        return Ok((model.info.artifact_uri, below));
                    }
                }
                // Servers before MLflow 3 have no such models.
                Err(FetchError::Status { status, .. }) if status.is_client_error() => {}
                Err(error) => return Err(error),
            }
        }
        Ok((artifact_uri, path))
    }

    async fn search(&self, body: &Value) -> Result<FoundModels, FetchError> {
        let url = api(&self.tracking, &format!("{API}logged-models/search"))?;
        let mut headers = self.headers()?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = self.transport.send(&Method::POST, &url, &headers, &Bytes::from(body.to_string())).await?;
        self.answer(response).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        server: &Url,
        route: &str,
        query: &[(&str, &str)],
    ) -> Result<T, FetchError> {
        let mut url = api(server, &format!("{API}{route}"))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.answer(follow(&self.transport, &Method::GET, &url, &self.headers()?).await?).await
    }

    async fn answer<T: DeserializeOwned>(&self, response: HttpStream) -> Result<T, FetchError> {
        let status = response.status;
        if status.is_success() {
            let body = response.collect(MAX_ANSWER).await?;
            return serde_json::from_slice(&body)
                .map_err(|error| registry_error(&format!("its answer cannot be read: {error}")));
        }
        let body = response.collect(MAX_ERROR).await.unwrap_or_default();
        let message = serde_json::from_slice::<Value>(&body).ok();
        let message =
            message.and_then(|body| Some(body.get("message")?.as_str()?.chars().take(300).collect::<String>()));
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let reason = message.unwrap_or_else(|| status.to_string());
            return Err(FetchError::Denied { credentials: self.credentials.clone(), reason });
        }
        Err(FetchError::Status { status, body: message })
    }

    fn headers(&self) -> Result<HeaderMap, FetchError> {
        let Some(authorization) = &self.authorization else { return Ok(HeaderMap::new()) };
        let mut value = HeaderValue::try_from(&**authorization)
            .map_err(|_| registry_error("the token has letters that no header may have"))?;
        value.set_sensitive(true);
        Ok([(AUTHORIZATION, value)].into_iter().collect())
    }

    /// Refuses another server than the one of `MLFLOW_TRACKING_URI`, which would get its credentials.
    fn check_server(&self, server: Option<&str>) -> Result<(), FetchError> {
        let Some(server) = server else { return Ok(()) };
        let (host, port) = server.split_once(':').map_or((server, None), |(host, port)| (host, Some(port)));
        let is_port = |port: &str| port.parse().ok() == self.tracking.port_or_known_default();
        if self.tracking.host_str() == Some(host) && port.is_none_or(is_port) {
            return Ok(());
        }
        let server = without_credentials(server);
        Err(registry_error(&format!(
            "its artifacts are at `{server}`, which is not the server of `MLFLOW_TRACKING_URI`"
        )))
    }
}

impl MlflowArtifacts {
    /// Returns where the credentials come from.
    pub(super) fn credentials(&self) -> String {
        self.mlflow.credentials.clone()
    }

    pub(super) async fn list(&self) -> Result<Vec<RemoteFile>, FetchError> {
        let mut folders = VecDeque::from([String::new()]);
        let (mut objects, mut listed) = (Vec::new(), 0);
        while let Some(folder) = folders.pop_front() {
            listed += 1;
            for entry in self.entries(&join(&self.path, &folder)).await? {
                let path = join(&folder, &entry.path);
                // A name may not lead elsewhere; the selection checks the other ones.
                if entry.is_dir && !entry.path.is_empty() && entry.path.split('/').all(|part| part != "..") {
                    folders.push_back(path);
                } else if !entry.is_dir {
                    objects.push(self.remote_file(&path, &entry));
                }
            }
            if objects.len() > MAX_OBJECTS || folders.len() + listed > MAX_OBJECTS {
                return Err(SelectionError::TooMany.into());
            }
        }
        if objects.is_empty() {
            return self.list_one().await;
        }
        let mut files = select(&self.path, objects)?;
        let tag = self.state(&files).await?;
        for file in &mut files {
            file.etag.clone_from(&tag);
        }
        Ok(files)
    }

    /// Returns the only file of a path that is not a folder.
    async fn list_one(&self) -> Result<Vec<RemoteFile>, FetchError> {
        let (folder, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let entries = self.entries(folder).await?;
        if let Some(entry) = entries.iter().find(|entry| !entry.is_dir && entry.path == name) {
            return Ok(select_one(RemoteFile { key: self.path.clone(), ..self.remote_file("", entry) })?);
        }
        let beside: Vec<_> = entries.iter().map(|entry| join(folder, &entry.path)).collect();
        Err(SelectionError::Nothing { key: self.path.clone(), siblings: siblings(&self.path, &beside) }.into())
    }

    async fn entries(&self, folder: &str) -> Result<Vec<ArtifactEntry>, FetchError> {
        let mut url = api(&self.mlflow.tracking, ARTIFACTS)?;
        url.query_pairs_mut().append_pair("path", folder);
        let response = follow(&self.mlflow.transport, &Method::GET, &url, &self.mlflow.headers()?).await?;
        Ok(self.mlflow.answer::<ArtifactList>(response).await?.files)
    }

    fn remote_file(&self, path: &str, entry: &ArtifactEntry) -> RemoteFile {
        // The size of an empty file is not told.
        let size = entry.file_size.as_ref().and_then(|size| size.as_u64().or_else(|| size.as_str()?.parse().ok()));
        let size = size.filter(|size| *size > 0);
        RemoteFile { key: join(&self.path, path), path: String::new(), size, etag: None, hash: None }
    }

    /// Returns a tag of the state of a model: its location, and the file that describes it, which differs between logged
    /// models.
    async fn state(&self, files: &[RemoteFile]) -> Result<Option<String>, FetchError> {
        let found = files.iter().find(|file| file.path == DESCRIPTION);
        let Some(file) = found.filter(|file| file.size.is_some_and(|size| size <= MAX_DESCRIPTION)) else {
            return Ok(None);
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.path.as_bytes()).update(&[0]);
        let mut part = self.read(file, None).await?;
        let mut read = 0;
        while let Some(data) = part.next().await? {
            read += data.len() as u64;
            if read > MAX_DESCRIPTION {
                return Err(FetchError::TooLarge { limit: MAX_DESCRIPTION });
            }
            hasher.update(&data);
        }
        Ok(Some(hasher.finalize().to_hex()[..32].to_owned()))
    }

    pub(super) async fn read(&self, file: &RemoteFile, range: Option<Range<u64>>) -> Result<Part, FetchError> {
        let url = api(&self.mlflow.tracking, &format!("{ARTIFACTS}/{}", utf8_percent_encode(&file.key, PATH)))?;
        // The server has no tags.
        let file = RemoteFile { etag: None, ..file.clone() };
        read_part(&self.mlflow.transport, &url, &self.mlflow.headers()?, &file, range).await
    }
}

fn number_of(found: &VersionNumber) -> String {
    found.version.as_str().map_or_else(|| found.version.to_string(), str::to_owned)
}

fn registry_error(reason: &str) -> FetchError {
    FetchError::Registry { reason: reason.to_owned() }
}

/// Returns the address of a route of a server, which may have a path of its own.
fn api(server: &Url, route: &str) -> Result<Url, FetchError> {
    let address = format!("{}{route}", server.as_str().trim_end_matches('/'));
    Url::parse(&address).map_err(|error| registry_error(&format!("invalid address: {error}")))
}

fn join(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", name) => name.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, name) => format!("{folder}/{name}"),
    }
}
