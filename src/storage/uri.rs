//! URIs of models in object stores.

use std::path::PathBuf;

use super::FileFilter;
use super::mlflow_reference::MlflowReference;
use crate::http_client::Url;
use crate::types::{Secret, without_credentials};

/// A service that keeps objects in buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageService {
    S3,
    Gcs,
    Azure,
}

impl StorageService {
    pub const fn title(self) -> &'static str {
        match self {
            Self::S3 => "S3",
            Self::Gcs => "Google Cloud Storage",
            Self::Azure => "Azure Blob Storage",
        }
    }
}

impl StorageService {
    /// Returns the scheme of its URIs.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }
}

/// Where objects are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Objects of a bucket, or of a container of Azure: the one with this key, or those below it.
    Bucket { service: StorageService, bucket: String, key: String, account: Option<AzureAccount> },
    /// Files of a repository of Hugging Face's hub. `revision` is a branch, a tag or a commit.
    Hub { repository: String, revision: Option<String>, key: String },
    /// One file of an HTTP server.
    Http(Url),
    /// What MLflow's registry or tracking server knows by this name.
    Mlflow(MlflowReference),
    /// A file or folder of this machine.
    Local(PathBuf),
}

/// The account that a URI of Azure names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureAccount {
    pub name: String,
    /// The service's address, if the URI has another one than the account's usual one.
    pub endpoint: Option<String>,
    /// The shared access signature in the query.
    pub signature: Option<Secret>,
}

/// A configured remote of rclone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    /// What its variables begin with, such as `RCLONE_CONFIG_S3_`.
    pub(super) prefix: String,
    pub(super) service: StorageService,
}

/// A URI of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageUri {
    pub location: Location,
    /// The SHA-256 that the only file must have, in lower-case hexadecimal digits.
    pub sha256: Option<String>,
    /// Which files are fetched. Only URIs of the hub have patterns, since a repository often has a model in several formats.
    pub(super) filter: FileFilter,
    /// The remote of rclone that the URI names.
    pub(super) remote: Option<Remote>,
    /// The URI as it may be shown: without credentials and signatures.
    shown: String,
}

/// Why a text is not the URI of a model.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    #[error(
        "unsupported scheme `{scheme}` in `{uri}`: expected s3, gs, az, abfs, hf, https, http, models, runs, mlflow-artifacts or file (also \
         s3a, gcs, abfss, azure, pvc)"
    )]
    Scheme { scheme: String, uri: String },
    #[error("`{uri}`: {reason}")]
    Refused { uri: String, reason: &'static str },
    #[error("`{uri}` has no {what}: expected {form}")]
    Missing { uri: String, what: &'static str, form: &'static str },
    #[error("invalid URL `{uri}`: {reason}")]
    Url { uri: String, reason: String },
    #[error("invalid pin in `{uri}`: expected `#sha256=` and 64 hexadecimal digits (a `#` in a name is written `%23`)")]
    Pin { uri: String },
}

/// The ends of the hosts of Azure's blob service.
const AZURE_HOSTS: [&str; 2] = [".blob.core.windows.net", ".blob.storage.azure.net"];
const AZURE_LAKE: &str = ".dfs.core.windows.net";
const MOUNTED_VOLUME: &str = "/mnt/pvc";

impl StorageUri {
    /// Reads a URI, or a path.
    ///
    /// # Errors
    ///
    /// Fails if the scheme is not supported, or a part is missing or invalid.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let shown = without_credentials(text);
        if let Some(reference) = MlflowReference::parse(text) {
            let missing = |(what, form)| UriError::Missing { uri: shown.clone(), what, form };
            return Ok(Self::new(Location::Mlflow(reference.map_err(missing)?), None, shown));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::new(Location::Local(text.into()), None, shown));
        };
        let scheme = scheme.to_ascii_lowercase();
        let (rest, sha256) = split_pin(rest, &shown)?;
        if scheme == "hf" {
            return hub(rest, sha256, &shown);
        }
        let location = match scheme.as_str() {
            "s3" | "s3a" => bucket(StorageService::S3, rest, &shown)?,
            "gs" | "gcs" => bucket(StorageService::Gcs, rest, &shown)?,
            "az" | "azure" => bucket(StorageService::Azure, rest, &shown)?,
            "abfs" | "abfss" => lake(rest, &shown)?,
            "http" | "https" => web(&scheme, rest, &shown)?,
            "file" => Location::Local(rest.find('/').map_or("", |start| &rest[start..]).into()),
            "pvc" => {
                let path = rest.split_once('/').map_or("", |(_, path)| path);
                Location::Local(PathBuf::from(MOUNTED_VOLUME).join(path))
            }
            "oci" => {
                let reason = "models in OCI images (KServe's model cars) are mounted by the cluster, and have no registry client here; use \
                              the mounted folder";
                return Err(UriError::Refused { uri: shown, reason });
            }
            "hdfs" | "webhdfs" => {
                let reason = "HDFS is not supported; copy the model to an object store or a volume";
                return Err(UriError::Refused { uri: shown, reason });
            }
            _ => return Err(UriError::Scheme { scheme, uri: shown }),
        };
        Ok(Self::new(location, sha256, shown))
    }

    pub(super) fn new(location: Location, sha256: Option<String>, shown: String) -> Self {
        Self { location, sha256, filter: FileFilter::default(), remote: None, shown }
    }

    /// Returns what the URI is known by in the cache, where it is only seen as a hash. The query of a URL may name a file; a signature of
    /// Azure does not.
    pub(super) fn cache_key(&self) -> &str {
        match &self.location {
            Location::Http(url) => url.as_str(),
            _ => &self.shown,
        }
    }

    /// Returns the URI of a file or folder below this one; this one for an empty path. URLs of single files have nothing below them.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        let mut below = self.clone();
        if path.is_empty() {
            return below;
        }
        match &mut below.location {
            Location::Bucket { key, .. } | Location::Hub { key, .. } => {
                *key = if key.is_empty() { path.to_owned() } else { format!("{key}/{path}") };
            }
            Location::Local(folder) => *folder = folder.join(path),
            Location::Mlflow(reference) => reference.descend(path),
            Location::Http(_) => {}
        }
        let (base, query) = self.shown.find('?').map_or((self.shown.as_str(), ""), |at| self.shown.split_at(at));
        let path = path.replace("%23", "%2523").replace('#', "%23");
        below.shown = format!("{}/{path}{query}", base.trim_end_matches('/'));
        below
    }

    /// Returns the URI as it may be shown.
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

/// Splits a pin off. In a URL, a `#` begins a fragment, which no server sees; elsewhere it may only begin a pin.
pub(super) fn split_pin<'a>(rest: &'a str, shown: &str) -> Result<(&'a str, Option<String>), UriError> {
    let Some((rest, pin)) = rest.split_once('#') else { return Ok((rest, None)) };
    let pin = read_pin(pin).ok_or_else(|| UriError::Pin { uri: shown.to_owned() })?;
    Ok((rest, Some(pin)))
}

fn read_pin(pin: &str) -> Option<String> {
    let digits = pin.strip_prefix("sha256=")?;
    let valid = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    valid.then(|| digits.to_ascii_lowercase())
}

/// Splits a bucket from a key, in which only `%23` stands for another letter.
pub(super) fn bucket(service: StorageService, rest: &str, shown: &str) -> Result<Location, UriError> {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        let reason = "credentials do not belong in a URI; set the environment variables of the service";
        return Err(UriError::Refused { uri: shown.to_owned(), reason });
    }
    if bucket.is_empty() {
        let (what, form) = match service {
            StorageService::S3 => ("bucket", "s3://BUCKET/PATH"),
            StorageService::Gcs => ("bucket", "gs://BUCKET/PATH"),
            StorageService::Azure => ("container", "az://CONTAINER/PATH"),
        };
        return Err(UriError::Missing { uri: shown.to_owned(), what, form });
    }
    Ok(Location::Bucket { service, bucket: bucket.to_owned(), key: literal(key), account: None })
}

fn literal(key: &str) -> String {
    key.trim_matches('/').replace("%2523", "\0").replace("%23", "#").replace('\0', "%23")
}

/// Reads `abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH`, or `abfs://CONTAINER/PATH`.
fn lake(rest: &str, shown: &str) -> Result<Location, UriError> {
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let Some((container, host)) = authority.split_once('@') else {
        return bucket(StorageService::Azure, rest, shown);
    };
    let mut hosts = [AZURE_LAKE].into_iter().chain(AZURE_HOSTS);
    let name = hosts.find_map(|end| host.strip_suffix(end)).unwrap_or_default();
    if container.is_empty() || name.is_empty() {
        let form = "abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH";
        return Err(UriError::Missing { uri: shown.to_owned(), what: "container or account", form });
    }
    let account = AzureAccount { name: name.to_owned(), endpoint: None, signature: None };
    Ok(Location::Bucket {
        service: StorageService::Azure,
        bucket: container.to_owned(),
        key: literal(key),
        account: Some(account),
    })
}

/// Reads `hf://ORG/REPO[:REVISION]`, and `hf://ORG/REPO@REVISION/FOLDER`, with patterns behind `?include=` and `&exclude=`.
fn hub(rest: &str, sha256: Option<String>, shown: &str) -> Result<StorageUri, UriError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut filter = FileFilter::default();
    for (name, pattern) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "include" => filter.include.push(pattern.into_owned()),
            "exclude" => filter.exclude.push(pattern.into_owned()),
            _ => {
                let reason = "the query of a URI of the hub has `include=PATTERN` and `exclude=PATTERN` only";
                return Err(UriError::Refused { uri: shown.to_owned(), reason });
            }
        }
    }
    let location = hub_location(rest, shown)?;
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    Ok(StorageUri { filter, ..StorageUri::new(location, sha256, format!("hf://{rest}{query}")) })
}

fn hub_location(rest: &str, shown: &str) -> Result<Location, UriError> {
    let mut parts = rest.splitn(3, '/');
    let (organization, name, key) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
    let (organization, name) = (organization.unwrap_or_default(), name.unwrap_or_default());
    let (name, revision) = match name.split_once([':', '@']) {
        Some((name, revision)) => (name, Some(revision)),
        None => (name, None),
    };
    if organization.is_empty() || name.is_empty() || revision == Some("") {
        let (what, form) = ("repository or revision", "hf://ORGANIZATION/REPOSITORY[:REVISION]");
        return Err(UriError::Missing { uri: shown.to_owned(), what, form });
    }
    let repository = format!("{organization}/{name}");
    let legal = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if !legal(organization) || !legal(name) {
        let reason = "names of Hugging Face's hub consist of letters, digits, `.`, `_` and `-`";
        return Err(UriError::Refused { uri: shown.to_owned(), reason });
    }
    Ok(Location::Hub { repository, revision: revision.map(literal), key: literal(key) })
}

/// Reads a URL: a container of Azure, or one file of another server.
fn web(scheme: &str, rest: &str, shown: &str) -> Result<Location, UriError> {
    let invalid = |reason: String| UriError::Url { uri: shown.to_owned(), reason };
    let url = Url::parse(&format!("{scheme}://{rest}")).map_err(|error| invalid(error.to_string()))?;
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    if host.ends_with(".file.core.windows.net") {
        let reason = "Azure file shares are not supported; mount the share, or copy the model to a container";
        return Err(UriError::Refused { uri: shown.to_owned(), reason });
    }
    let Some(name) = AZURE_HOSTS.iter().find_map(|end| host.strip_suffix(end)) else {
        return Ok(Location::Http(url));
    };
    let (host, path) = rest.split_once('?').unwrap_or((rest, "")).0.split_once('/').unwrap_or((rest, ""));
    let Location::Bucket { service, bucket, key, .. } = bucket(StorageService::Azure, path, shown)? else {
        return Err(invalid("it names no container".to_owned()));
    };
    let endpoint = Some(format!("{scheme}://{host}"));
    // Accounts with DNS zones have names such as `account.z1`.
    let name = name.split('.').next().unwrap_or(name).to_owned();
    let account = AzureAccount { name, endpoint, signature: url.query().map(Secret::from) };
    Ok(Location::Bucket { service, bucket, key, account: Some(account) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::HIDDEN;

    fn location(text: &str) -> Location {
        StorageUri::parse(text).unwrap().location
    }

    fn in_bucket(service: StorageService, bucket: &str, key: &str) -> Location {
        Location::Bucket { service, bucket: bucket.to_owned(), key: key.to_owned(), account: None }
    }

    #[test]
    fn uris_name_a_bucket_and_a_key() {
        use StorageService::{Azure, Gcs, S3};
        for (text, expected) in [
            ("s3://b/models/iris", in_bucket(S3, "b", "models/iris")),
            ("S3A://b/models/iris/", in_bucket(S3, "b", "models/iris")),
            ("s3://b", in_bucket(S3, "b", "")),
            ("gs://b/a b/100%/ü", in_bucket(Gcs, "b", "a b/100%/ü")),
            ("gcs://b/a%23b", in_bucket(Gcs, "b", "a#b")),
            ("gcs://b/a%2523b", in_bucket(Gcs, "b", "a%23b")),
            ("az://c/p", in_bucket(Azure, "c", "p")),
            ("abfs://c/p", in_bucket(Azure, "c", "p")),
        ] {
            assert_eq!(location(text), expected, "{text}");
        }
    }

    #[test]
    fn uris_of_azure_name_their_account() {
        let account = |text: &str| match location(text) {
            Location::Bucket { service: StorageService::Azure, bucket, key, account: Some(account) } => {
                (bucket, key, account)
            }
            other => unreachable!("{other:?}"),
        };
        let (container, key, found) = account("abfss://c@me.dfs.core.windows.net/a/b");
        assert_eq!((container.as_str(), key.as_str(), found.name.as_str()), ("c", "a/b", "me"));
        let (container, key, found) = account("https://me.blob.core.windows.net/c/a/b?sv=1&sig=hush");
        assert_eq!((container.as_str(), key.as_str(), found.name.as_str()), ("c", "a/b", "me"));
        assert_eq!(found.endpoint.as_deref(), Some("https://me.blob.core.windows.net"));
        assert_eq!(found.signature.as_deref(), Some("sv=1&sig=hush"));
        let (_, _, found) = account("https://me.z1.blob.storage.azure.net/c/a");
        assert_eq!(found.endpoint.as_deref(), Some("https://me.z1.blob.storage.azure.net"));
        let uri = StorageUri::parse("https://me.blob.core.windows.net/c/a?sig=hush").unwrap();
        assert_eq!(uri.shown(), format!("https://me.blob.core.windows.net/c/a?{HIDDEN}"));
        assert!(!format!("{uri:?}").contains("hush"));
    }

    #[test]
    fn uris_below_a_repository_name_its_models() {
        for (root, path, expected) in [
            ("s3://b", "m", "s3://b/m"),
            ("s3://b/models/", "a/x#1", "s3://b/models/a/x%231"),
            ("gs://b/p", "", "gs://b/p"),
            ("hf://org/repo@main/sub", "m", "hf://org/repo@main/sub/m"),
        ] {
            let below = StorageUri::parse(root).unwrap().below(path);
            assert_eq!(below.location, location(expected), "{root}");
            assert_eq!(below.shown(), expected);
        }
        let below = StorageUri::parse("https://me.blob.core.windows.net/c?sig=hush").unwrap().below("m");
        assert_eq!(below.shown(), format!("https://me.blob.core.windows.net/c/m?{HIDDEN}"));
    }

    #[test]
    fn uris_of_the_hub_have_a_revision() {
        let hub = |text: &str| match location(text) {
            Location::Hub { repository, revision, key } => (repository, revision, key),
            other => unreachable!("{other:?}"),
        };
        let of = |repository: &str, revision: Option<&str>, key: &str| {
            (repository.to_owned(), revision.map(str::to_owned), key.to_owned())
        };
        assert_eq!(hub("hf://org/repo"), of("org/repo", None, ""));
        assert_eq!(hub("hf://org/repo:v1.0"), of("org/repo", Some("v1.0"), ""));
        assert_eq!(hub("hf://org/repo@main/sub/folder"), of("org/repo", Some("main"), "sub/folder"));
    }

    #[test]
    fn uris_of_the_hub_choose_files() {
        let text = "hf://org/repo:v1?include=*.json&include=*.safetensors&exclude=onnx/*";
        let uri = StorageUri::parse(text).unwrap();
        assert_eq!(uri.location, location("hf://org/repo:v1"));
        assert_eq!(uri.filter.include, ["*.json", "*.safetensors"]);
        assert_eq!(uri.filter.exclude, ["onnx/*"]);
        assert_eq!((uri.shown(), uri.cache_key()), (text, text));
        let error = StorageUri::parse("hf://org/repo?token=hush").unwrap_err().to_string();
        assert!(error.contains("`include=PATTERN`") && !error.contains("hush"), "{error}");
    }

    #[test]
    fn uris_of_other_files_have_other_caches() {
        let key = |text: &str| StorageUri::parse(text).unwrap().cache_key().to_owned();
        assert_ne!(key("https://h/get?model=a"), key("https://h/get?model=b"));
        assert_ne!(key("s3://b/a"), key("s3://b/b"));
        let azure = |signature: &str| key(&format!("https://me.blob.core.windows.net/c/a?sig={signature}"));
        assert_eq!(azure("1"), azure("2"));
    }

    #[test]
    fn uris_may_pin_a_hash() {
        let hash = "A".repeat(64);
        let uri = StorageUri::parse(&format!("https://h/m.bin#sha256={hash}")).unwrap();
        assert_eq!(uri.sha256, Some(hash.to_lowercase()));
        assert_eq!(uri.location, Location::Http(Url::parse("https://h/m.bin").unwrap()));
        for text in ["s3://b/k#", "s3://b/k#sha256=1", "s3://b/a#b"] {
            assert!(matches!(StorageUri::parse(text), Err(UriError::Pin { .. })), "{text}");
        }
    }

    #[test]
    fn paths_are_local() {
        for (text, path) in [
            ("file:///mnt/models", "/mnt/models"),
            ("file://localhost/m", "/m"),
            ("pvc://claim/a/b", "/mnt/pvc/a/b"),
            ("/mnt/models", "/mnt/models"),
        ] {
            assert_eq!(location(text), Location::Local(path.into()), "{text}");
        }
    }

    #[test]
    fn other_uris_are_refused_with_the_reason() {
        for (text, part) in [
            ("ftp://h/x", "unsupported scheme `ftp`"),
            ("hdfs://h/x", "HDFS is not supported"),
            ("oci://h/x", "models in OCI images"),
            ("https://me.file.core.windows.net/share/x", "Azure file shares"),
            ("s3:///x", "has no bucket: expected s3://BUCKET/PATH"),
            ("s3://key:hush@b/x", "credentials do not belong in a URI"),
            ("hf://repo", "has no repository"),
            ("hf://org/re po", "names of Hugging Face's hub"),
            ("abfs://@me.dfs.core.windows.net/x", "has no container"),
            ("https://", "invalid URL"),
        ] {
            let error = StorageUri::parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("hush"), "{text}: {error}");
        }
    }
}
