//! The stores that the usual environment variables describe: their addresses and credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::MultipartStore;
use object_store::{ObjectStore, RetryConfig};
use serde_json::{Map, Value};

use super::clients::{ClientKey, Clients, TlsOptions};
use super::error::CredentialsError;
use super::google_uploads::GoogleUploads;
use super::hub::Hub;
use super::mlflow::Mlflow;
use super::source::{Bucket, Source, Uploads};
use super::transport::{MAX_ANSWER, Transport};
use super::uri::{AzureAccount, Location, Remote, StorageService};
use super::web::Web;
use crate::http_client::{HttpOptions, Url, take_credentials};
use crate::types::Secret;

/// The variable with the address of MLflow's tracking server.
const TRACKING: &str = "MLFLOW_TRACKING_URI";
/// The hub's address, unless `HF_ENDPOINT` names another one.
const HUB: &str = "https://huggingface.co";
/// Google's address, unless `STORAGE_EMULATOR_HOST` names another one.
const GOOGLE: &str = "https://storage.googleapis.com";
/// The host of Google's metadata server.
const METADATA_HOST: &str = "metadata.google.internal:80";
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest file with credentials, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// What the crate knows by the names of the variables: web identity, ECS, EKS, and the like.
const S3_VARIABLES: [&str; 9] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
    "AWS_REQUEST_PAYER",
];
/// The variables with credentials of Google, and what the crate calls them.
const GOOGLE_VARIABLES: [(&str, GoogleConfigKey); 5] = [
    ("GOOGLE_APPLICATION_CREDENTIALS", GoogleConfigKey::ApplicationCredentials),
    ("GOOGLE_SERVICE_ACCOUNT", GoogleConfigKey::ServiceAccount),
    ("GOOGLE_SERVICE_ACCOUNT_PATH", GoogleConfigKey::ServiceAccount),
    ("GOOGLE_SERVICE_ACCOUNT_KEY", GoogleConfigKey::ServiceAccountKey),
    ("GOOGLE_BEARER_TOKEN", GoogleConfigKey::BearerToken),
];

/// The variables of the environment, which are never shown.
#[derive(Clone, Default)]
pub struct Variables(pub BTreeMap<String, String>);

impl fmt::Debug for Variables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

impl Variables {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn first<'a>(&'a self, names: &[&'static str]) -> Option<(&'static str, &'a str)> {
        names.iter().find_map(|&name| Some((name, self.get(name)?)))
    }

    fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(is_true)
    }

    fn home(&self) -> Option<&Path> {
        self.get("HOME").map(Path::new)
    }
}

pub(super) fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

fn is_false(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "0" | "false" | "no" | "off")
}

/// Opens the store of a location, with the client that its bucket has already, if any, or with the variables of a remote of rclone.
///
/// # Errors
///
/// Fails if the environment's credentials cannot be read.
///
/// # Panics
///
/// Panics if the location is a path of this machine, or has to be looked up in MLflow.
pub(super) fn open(
    location: &Location,
    remote: Option<&Remote>,
    variables: &Variables,
    clients: &Clients,
) -> Result<Source, CredentialsError> {
    let Location::Bucket { service, bucket, key, account } = location else {
        return create(location, variables, clients);
    };
    let client =
        ClientKey { service: *service, bucket: bucket.clone(), account: account.clone(), remote: remote.cloned() };
    if let Some(found) = clients.find(&client, key) {
        return Ok(Source::Bucket(found));
    }
    let mut created = match remote {
        Some(remote) => create(location, &remote.variables(variables)?, clients)?,
        None => create(location, variables, clients)?,
    };
    if let Source::Bucket(bucket) = &mut created {
        if let Some(remote) = remote {
            bucket.credentials = remote.credentials();
        }
        clients.keep(client, bucket);
    }
    Ok(created)
}

fn create(location: &Location, variables: &Variables, clients: &Clients) -> Result<Source, CredentialsError> {
    let transport = |options: TlsOptions| clients.transport(options);
    match location {
        Location::Bucket { service: StorageService::S3, bucket, key, .. } => s3(bucket, key, variables, transport),
        Location::Bucket { service: StorageService::Gcs, bucket, key, .. } => {
            gcs(bucket, key, variables, transport(TlsOptions::of(variables)))
        }
        Location::Bucket { service: StorageService::Azure, bucket, key, account } => {
            azure(bucket, key, account.as_ref(), variables, transport(TlsOptions::of(variables)))
        }
        Location::Hub { repository, revision, key } => {
            if variables.is_set("HF_HUB_OFFLINE") {
                return Err(CredentialsError::Offline);
            }
            let endpoint = variables.get("HF_ENDPOINT").unwrap_or(HUB).trim_end_matches('/').to_owned();
            Ok(Source::Hub(Hub {
                transport: transport(TlsOptions::of(variables)),
                endpoint,
                token: hub_token(variables)?,
                repository: repository.clone(),
                revision: revision.clone(),
                key: key.clone(),
                commit: tokio::sync::OnceCell::new(),
            }))
        }
        Location::Http(url) => Ok(Source::Web(Web {
            transport: transport(TlsOptions::of(variables)),
            url: url.clone(),
            headers: web_headers(url, variables)?,
            has_ranges: AtomicBool::new(false),
        })),
        Location::Mlflow(_) | Location::Local(_) => unreachable!("callers open stores only"),
    }
}

impl TlsOptions {
    /// Reads the variables of KServe for a bundle of certificates.
    fn of(variables: &Variables) -> Self {
        let mounted = variables
            .get("CA_BUNDLE_VOLUME_MOUNT_POINT")
            .filter(|_| variables.get("CA_BUNDLE_CONFIGMAP_NAME").is_some());
        Self { ca: mounted.map(|folder| Path::new(folder).join("cabundle.crt")), insecure: false }
    }
}

/// The keys of S3, and where they come from.
#[derive(Default)]
struct S3Keys {
    id: Option<String>,
    secret: Option<Secret>,
    token: Option<Secret>,
    source: String,
}

fn s3(
    bucket: &str,
    key: &str,
    variables: &Variables,
    transport: impl Fn(TlsOptions) -> Transport,
) -> Result<Source, CredentialsError> {
    let config = storage_config(variables)?;
    let of_config = |name: &str| config.get(name).and_then(as_text).filter(|value| !value.is_empty());
    let mut builder = AmazonS3Builder::new().with_bucket_name(bucket);
    for name in S3_VARIABLES {
        if let (Some(value), Ok(key)) = (variables.get(name), AmazonS3ConfigKey::from_str(&name.to_ascii_lowercase())) {
            builder = builder.with_config(key, value);
        }
    }
    let region = of_config("region")
        .or_else(|| variables.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).map(|(_, region)| region.to_owned()));
    builder = builder.with_region(region.unwrap_or_else(|| "us-east-1".to_owned()));
    let endpoint = of_config("endpoint_url").or_else(|| {
        let found = variables.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
        // KServe's variable has no scheme.
        let bare = variables.get("S3_ENDPOINT").map(|host| {
            let scheme = if variables.get("S3_USE_HTTPS").is_some_and(is_false) { "http" } else { "https" };
            format!("{scheme}://{host}")
        });
        found.map(|(_, endpoint)| endpoint.to_owned()).or(bare)
    });
    let accelerated = variables.is_set("S3_USE_ACCELERATE");
    let virtual_hosted = accelerated || variables.is_set("S3_USER_VIRTUAL_BUCKET");
    builder = builder.with_virtual_hosted_style_request(virtual_hosted);
    match endpoint {
        Some(endpoint) => {
            let endpoint = endpoint.trim_end_matches('/');
            let endpoint = match endpoint.split_once("://") {
                Some((scheme, host)) if virtual_hosted => format!("{scheme}://{bucket}.{host}"),
                _ => endpoint.to_owned(),
            };
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        None if accelerated => {
            builder = builder.with_endpoint(format!("https://{bucket}.s3-accelerate.amazonaws.com"));
        }
        None => {}
    }
    let anonymous = of_config("anonymous").as_deref().is_some_and(is_true)
        || ["awsAnonymousCredential", "AWS_ANONYMOUS_CREDENTIAL", "AWS_SKIP_SIGNATURE"]
            .iter()
            .any(|name| variables.is_set(name));
    let keys = if anonymous { None } else { s3_keys(variables, &of_config)? };
    let credentials = match (&keys, anonymous) {
        (_, true) => "no credentials (anonymous)".to_owned(),
        (Some(keys), _) => keys.source.clone(),
        (None, _) if variables.get("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() => {
            "the web identity of `AWS_ROLE_ARN`".to_owned()
        }
        (None, _) => "the role of this machine (no keys in the environment)".to_owned(),
    };
    builder = builder.with_skip_signature(anonymous);
    if let Some(keys) = keys {
        if let Some(id) = keys.id {
            builder = builder.with_access_key_id(id);
        }
        if let Some(secret) = keys.secret {
            builder = builder.with_secret_access_key(&*secret);
        }
        if let Some(token) = keys.token {
            builder = builder.with_token(&*token);
        }
    }
    let mut tls = TlsOptions::of(variables);
    let bundle = of_config("ca_bundle").or_else(|| variables.get("AWS_CA_BUNDLE").map(str::to_owned));
    tls.ca = bundle.map(PathBuf::from).or(tls.ca);
    let verify = of_config("verify_ssl").or_else(|| variables.get("S3_VERIFY_SSL").map(str::to_owned));
    tls.insecure = verify.as_deref().is_some_and(is_false);
    let store = builder
        .with_http_connector(transport(tls))
        .with_retry(no_retries())
        .build()
        .map_err(|error| store_error(&error))?;
    Ok(bucket_source(store, key, credentials))
}

/// Finds the keys of S3: those of KServe's variable, of the environment, or of a profile.
fn s3_keys(
    variables: &Variables,
    of_config: &impl Fn(&str) -> Option<String>,
) -> Result<Option<S3Keys>, CredentialsError> {
    if let Some(id) = of_config("access_key_id") {
        let secret = of_config("secret_access_key").map(|secret| Secret::from(secret.as_str()));
        let source = "the keys of `STORAGE_CONFIG`".to_owned();
        return Ok(Some(S3Keys { id: Some(id), secret, token: None, source }));
    }
    let profile = variables.get("AWS_PROFILE");
    if let Some(id) = variables.get("AWS_ACCESS_KEY_ID") {
        return Ok(Some(S3Keys {
            id: Some(id.to_owned()),
            secret: variables.get("AWS_SECRET_ACCESS_KEY").map(Secret::from),
            token: variables.get("AWS_SESSION_TOKEN").map(Secret::from),
            source: "`AWS_ACCESS_KEY_ID`".to_owned(),
        }));
    }
    let path = match (variables.get("AWS_SHARED_CREDENTIALS_FILE"), variables.home()) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(home)) => home.join(".aws/credentials"),
        (None, None) => return Ok(None),
    };
    let name = profile.unwrap_or("default");
    let Some(section) = ini_section(&path, name)? else {
        return match profile {
            Some(profile) => Err(CredentialsError::NoProfile { profile: profile.to_owned(), path }),
            None => Ok(None),
        };
    };
    let Some(id) = section.get("aws_access_key_id") else {
        let indirect = [
            ("sso_session", "uses single sign-on"),
            ("sso_start_url", "uses single sign-on"),
            ("credential_process", "has a `credential_process`"),
            ("source_profile", "takes a role"),
            ("role_arn", "takes a role"),
        ];
        let found = indirect.into_iter().find(|(key, _)| section.contains_key(*key));
        return match (found, profile) {
            (Some((_, what)), _) => Err(CredentialsError::Profile { profile: name.to_owned(), path, what }),
            (None, Some(profile)) => Err(CredentialsError::NoProfile { profile: profile.to_owned(), path }),
            (None, None) => Ok(None),
        };
    };
    Ok(Some(S3Keys {
        id: Some(id.clone()),
        secret: section.get("aws_secret_access_key").map(|secret| Secret::from(secret.as_str())),
        token: section.get("aws_session_token").map(|token| Secret::from(token.as_str())),
        source: format!("the profile `{name}` of `{}`", path.display()),
    }))
}

/// Reads a section of an INI file. `None` if the file or the section does not exist.
fn ini_section(path: &Path, name: &str) -> Result<Option<BTreeMap<String, String>>, CredentialsError> {
    let Some(text) = read_small(path)? else { return Ok(None) };
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            let header = header.trim();
            let is_it = header == name || header.strip_prefix("profile ").is_some_and(|header| header.trim() == name);
            if is_it {
                found.get_or_insert_with(BTreeMap::new);
            } else if found.is_some() {
                break;
            }
        } else if let (Some(section), Some((key, value))) = (&mut found, line.split_once('='))
            && !line.starts_with(['#', ';'])
        {
            section.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    Ok(found)
}

/// Reads a short text file. `None` if it does not exist.
fn read_small(path: &Path) -> Result<Option<String>, CredentialsError> {
    let failed = |source| CredentialsError::Read { path: path.to_owned(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(metadata) if !metadata.is_file() || metadata.len() > MAX_FILE => {
            return Err(failed(io::Error::other("it is not a file of at most 1 MiB")));
        }
        metadata => metadata.map_err(failed)?,
    };
    Ok(Some(fs::read_to_string(path).map_err(failed)?))
}

/// Reads KServe's `STORAGE_CONFIG`, and `STORAGE_OVERRIDE_CONFIG` above it, if their type is S3.
fn storage_config(variables: &Variables) -> Result<Map<String, Value>, CredentialsError> {
    let mut merged = Map::new();
    for variable in ["STORAGE_CONFIG", "STORAGE_OVERRIDE_CONFIG"] {
        let Some(text) = variables.get(variable) else { continue };
        let invalid =
            |reason: &str| CredentialsError::Variable { variable: variable.to_owned(), reason: reason.to_owned() };
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => merged.extend(object),
            _ => return Err(invalid("expected a JSON object")),
        }
    }
    let kind = merged.get("type").and_then(Value::as_str);
    if kind.is_some_and(|kind| kind != "s3") {
        merged.clear();
    }
    Ok(merged)
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

fn gcs(bucket: &str, key: &str, variables: &Variables, transport: Transport) -> Result<Source, CredentialsError> {
    let mut builder = GoogleCloudStorageBuilder::new().with_bucket_name(bucket);
    let (mut credentials, mut base, mut is_anonymous) = (None, GOOGLE.to_owned(), false);
    if let Some(host) = variables.get("STORAGE_EMULATOR_HOST") {
        let host = host.trim_end_matches('/');
        let url = if host.contains("://") { host.to_owned() } else { format!("http://{host}") };
        builder = builder.with_base_url(&url);
        (base, is_anonymous) = (url, true);
        credentials = Some("no credentials (`STORAGE_EMULATOR_HOST`)".to_owned());
    } else if let Some((name, option, value)) =
        GOOGLE_VARIABLES.into_iter().find_map(|(name, option)| Some((name, option, variables.get(name)?)))
    {
        builder = builder.with_config(option, value);
        credentials = Some(format!("`{name}`"));
    } else if let Some(path) =
        variables.home().map(|home| home.join(".config/gcloud/application_default_credentials.json"))
        && path.is_file()
    {
        builder = builder.with_application_credentials(path.to_string_lossy());
        credentials = Some("the credentials of `gcloud auth application-default login`".to_owned());
    }
    let credentials = match credentials {
        Some(credentials) => credentials,
        None if has_metadata_server() => "the service account of this machine".to_owned(),
        None => {
            is_anonymous = true;
            "no credentials (anonymous)".to_owned()
        }
    };
    let builder = builder.with_skip_signature(is_anonymous).with_http_connector(transport.clone());
    let store = builder.with_retry(no_retries()).build().map_err(|error| store_error(&error))?;
    let tokens = (!is_anonymous).then(|| Arc::clone(store.credentials()));
    let uploads = Uploads::Sessions(Arc::new(GoogleUploads::new(&base, bucket, transport, tokens)?));
    Ok(Source::Bucket(Bucket { store: Arc::new(store), uploads, key: key.to_owned(), credentials }))
}

/// Reports whether Google's metadata server answers, which is the case on machines of Google only.
fn has_metadata_server() -> bool {
    let addresses = METADATA_HOST.to_socket_addrs().into_iter().flatten();
    addresses.take(1).any(|address| TcpStream::connect_timeout(&address, METADATA_TIMEOUT).is_ok())
}

fn azure(
    container: &str,
    key: &str,
    account: Option<&AzureAccount>,
    variables: &Variables,
    transport: Transport,
) -> Result<Source, CredentialsError> {
    let connection = connection_string(variables);
    let mut builder = MicrosoftAzureBuilder::new().with_container_name(container);
    let emulated = variables.is_set("AZURE_STORAGE_USE_EMULATOR");
    let name = account.map(|account| account.name.as_str());
    let name = name
        .or_else(|| variables.first(&["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"]).map(|(_, name)| name));
    let name = name.or(connection.get("accountname").map(String::as_str));
    match name {
        Some(name) => builder = builder.with_account(name),
        None if emulated => {}
        None => return Err(CredentialsError::NoAccount),
    }
    let endpoint = account.and_then(|account| account.endpoint.as_deref());
    let endpoint = endpoint.or_else(|| variables.get("AZURE_STORAGE_ENDPOINT"));
    let endpoint = endpoint.or(connection.get("blobendpoint").map(String::as_str));
    if emulated {
        builder = builder.with_use_emulator(true);
        if let Some(url) = variables.get("AZURITE_BLOB_STORAGE_URL") {
            builder = builder.with_endpoint(url.to_owned()).with_allow_http(true);
        }
    } else if let Some(endpoint) = endpoint {
        builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint.to_owned());
    }
    let signature = account.and_then(|account| account.signature.as_deref());
    let in_variables = variables.first(&["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"]);
    let in_connection = connection.get("sharedaccesssignature").map(String::as_str);
    let access_key = variables.first(&["AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"]);
    let value = |names: &[&'static str]| variables.first(names).map(|(_, value)| value);
    let client = value(&["AZURE_CLIENT_ID", "AZ_CLIENT_ID"]);
    let tenant = value(&["AZURE_TENANT_ID", "AZ_TENANT_ID"]);
    let secret = value(&["AZURE_CLIENT_SECRET", "AZ_CLIENT_SECRET"]);
    let federated = variables.get("AZURE_FEDERATED_TOKEN_FILE");
    let identity = value(&["IDENTITY_ENDPOINT", "MSI_ENDPOINT"]);
    let credentials = if let Some(signature) = signature {
        builder = builder.with_config(AzureConfigKey::SasKey, signature);
        "the signature of the URI".to_owned()
    } else if let Some((name, access_key)) = access_key {
        builder = builder.with_access_key(access_key);
        format!("`{name}`")
    } else if let Some((name, signature)) = in_variables {
        builder = builder.with_config(AzureConfigKey::SasKey, signature);
        format!("`{name}`")
    } else if let Some(access_key) = connection.get("accountkey") {
        builder = builder.with_access_key(access_key);
        "`AZURE_STORAGE_CONNECTION_STRING`".to_owned()
    } else if let Some(signature) = in_connection {
        builder = builder.with_config(AzureConfigKey::SasKey, signature);
        "`AZURE_STORAGE_CONNECTION_STRING`".to_owned()
    } else if let (Some(client), Some(tenant), Some(secret)) = (client, tenant, secret) {
        builder = builder.with_client_secret_authorization(client, secret, tenant);
        "the client secret of the environment".to_owned()
    } else if let (Some(client), Some(tenant), Some(file)) = (client, tenant, federated) {
        let options = [
            (AzureConfigKey::ClientId, client),
            (AzureConfigKey::AuthorityId, tenant),
            (AzureConfigKey::FederatedTokenFile, file),
        ];
        builder = options.into_iter().fold(builder, |builder, (option, value)| builder.with_config(option, value));
        "the workload identity of the environment".to_owned()
    } else if emulated {
        "the key of the emulator".to_owned()
    } else if identity.is_some() || client.is_some() {
        let options = [(AzureConfigKey::ClientId, client), (AzureConfigKey::MsiEndpoint, identity)];
        let options = options.into_iter().filter_map(|(option, value)| Some((option, value?)));
        builder = options.fold(builder, |builder, (option, value)| builder.with_config(option, value));
        "the managed identity of this machine".to_owned()
    } else {
        builder = builder.with_skip_signature(true);
        "no credentials (anonymous)".to_owned()
    };
    let store =
        builder.with_http_connector(transport).with_retry(no_retries()).build().map_err(|error| store_error(&error))?;
    Ok(bucket_source(store, key, credentials))
}

/// Reads `AZURE_STORAGE_CONNECTION_STRING`: pairs `NAME=VALUE`, separated by semicolons. Names are in small letters.
fn connection_string(variables: &Variables) -> BTreeMap<String, String> {
    let pairs = variables.get("AZURE_STORAGE_CONNECTION_STRING").into_iter().flat_map(|text| text.split(';'));
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned())).collect()
}

fn hub_token(variables: &Variables) -> Result<Option<Secret>, CredentialsError> {
    if let Some((_, token)) = variables.first(&["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]) {
        return Ok(Some(Secret::from(token.trim())));
    }
    let cache = variables.get("HF_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(variables.home()?.join(".cache/huggingface")));
    let path = variables.get("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(cache?.join("token")));
    let Some(path) = path else { return Ok(None) };
    Ok(read_small(&path)?.map(|token| Secret::from(token.trim())).filter(|token| !token.is_empty()))
}

/// Reads the headers for a server: KServe's variable `HOST-headers`, a JSON object.
fn web_headers(url: &Url, variables: &Variables) -> Result<HeaderMap, CredentialsError> {
    let variable = format!("{}-headers", url.host_str().unwrap_or_default());
    let Some(text) = variables.get(&variable) else { return Ok(HeaderMap::new()) };
    let invalid = |reason: &str| CredentialsError::Variable { variable: variable.clone(), reason: reason.to_owned() };
    let Ok(Value::Object(object)) = serde_json::from_str(text) else {
        return Err(invalid("expected a JSON object of headers"));
    };
    let mut headers = HeaderMap::new();
    for (name, value) in object {
        let pair = value
            .as_str()
            .and_then(|value| Some((name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?)));
        let (name, mut value) = pair.ok_or_else(|| invalid("it has a header with an invalid name or value"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Reads the addresses of MLflow's servers and their credentials: those that MLflow's own client reads, in its order.
///
/// # Errors
///
/// Fails if no tracking server is set, or its address does not begin with `http://` or `https://`.
pub(super) fn mlflow(variables: &Variables, idle: Duration) -> Result<Mlflow, CredentialsError> {
    let server = |variable: &str| {
        let Some(text) = variables.get(variable) else { return Ok(None) };
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let reason = "expected an address of HTTP (Databricks, databases and folders are not supported)".to_owned();
        url.map(Some).ok_or_else(|| CredentialsError::Variable { variable: variable.to_owned(), reason })
    };
    let mut tracking = server(TRACKING)?.ok_or(CredentialsError::NoTracking)?;
    let of_url = take_credentials(&mut tracking).and_then(|value| Some(Secret::from(value.to_str().ok()?)));
    let registry = server("MLFLOW_REGISTRY_URI")?.unwrap_or_else(|| tracking.clone());
    let (user, password) = (variables.get("MLFLOW_TRACKING_USERNAME"), variables.get("MLFLOW_TRACKING_PASSWORD"));
    let basic = |user: &str, password: &str| {
        Secret::from(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))).as_str())
    };
    let file = || {
        let file = variables.get("MLFLOW_CREDENTIALS_FILE").map(PathBuf::from);
        let file = file.or_else(|| Some(variables.home()?.join(".mlflow/credentials")));
        let section = file.map_or(Ok(None), |file| ini_section(&file, "mlflow"))?.unwrap_or_default();
        let of = |name: &str| section.get(name).filter(|value| !value.is_empty());
        Ok(of("mlflow_tracking_username")
            .zip(of("mlflow_tracking_password"))
            .map(|(user, password)| basic(user, password)))
    };
    let (authorization, credentials) = if let Some((user, password)) = user.zip(password) {
        (Some(basic(user, password)), "`MLFLOW_TRACKING_USERNAME`")
    } else if let Some(of_file) = file()? {
        (Some(of_file), "MLflow's credentials file")
    } else if let Some(token) = variables.get("MLFLOW_TRACKING_TOKEN") {
        (Some(Secret::from(format!("Bearer {token}").as_str())), "`MLFLOW_TRACKING_TOKEN`")
    } else if of_url.is_some() {
        (of_url, "the credentials in `MLFLOW_TRACKING_URI`")
    } else {
        (
            None,
            "no credentials (set `MLFLOW_TRACKING_TOKEN`, or `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`)",
        )
    };
    let path = |name: &str| variables.get(name).map(PathBuf::from);
    let options = HttpOptions {
        ca: path("MLFLOW_TRACKING_SERVER_CERT_PATH").or(TlsOptions::of(variables).ca),
        certificate: path("MLFLOW_TRACKING_CLIENT_CERT_PATH"),
        insecure: variables.is_set("MLFLOW_TRACKING_INSECURE_TLS"),
        ..HttpOptions::new(idle, MAX_ANSWER)
    };
    let transport = Transport::new(options);
    Ok(Mlflow { transport, tracking, registry, authorization, credentials: credentials.to_owned() })
}

/// Retries are those of [`Transport`].
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn bucket_source(store: impl ObjectStore + MultipartStore, key: &str, credentials: String) -> Source {
    let store = Arc::new(store);
    let uploads = Uploads::Parts(Arc::clone(&store) as _);
    Source::Bucket(Bucket { store, uploads, key: key.to_owned(), credentials })
}

fn store_error(error: &object_store::Error) -> CredentialsError {
    CredentialsError::Store(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        Variables(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn bucket(service: StorageService) -> Location {
        Location::Bucket { service, bucket: "b".to_owned(), key: "k".to_owned(), account: None }
    }

    fn source(location: &Location, pairs: &[(&str, &str)]) -> Result<String, String> {
        match open(location, None, &variables(pairs), &Clients::new(Duration::from_secs(1), 1)) {
            Ok(Source::Bucket(bucket)) => Ok(format!("{}; {}", bucket.credentials, bucket.store)),
            Ok(_) => unreachable!(),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn keys_of_s3_come_from_the_environment_or_a_profile() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        let text = "# c\n[default]\naws_access_key_id = A\naws_secret_access_key=hush\n[other]\nsso_session = x\n";
        fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let s3 = bucket(StorageService::S3);
        let of = |pairs: &[(&str, &str)]| source(&s3, pairs).unwrap();
        assert!(
            of(&[("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "hush")]).starts_with("`AWS_ACCESS_KEY_ID`;")
        );
        let profile = of(&[("AWS_SHARED_CREDENTIALS_FILE", file)]);
        assert!(profile.starts_with("the profile `default` of"), "{profile}");
        assert!(of(&[("awsAnonymousCredential", "True")]).starts_with("no credentials"));
        assert!(of(&[]).starts_with("the role of this machine"));
        let config = r#"{"type":"s3","access_key_id":"A","secret_access_key":"hush","endpoint_url":"http://h:1","verify_ssl":false}"#;
        let found = of(&[("STORAGE_CONFIG", config), ("AWS_ACCESS_KEY_ID", "B")]);
        assert!(found.starts_with("the keys of `STORAGE_CONFIG`;"), "{found}");
        assert!(!found.contains("hush"));
        let error = source(&s3, &[("AWS_SHARED_CREDENTIALS_FILE", file), ("AWS_PROFILE", "other")]).unwrap_err();
        assert!(error.contains("uses single sign-on") && error.contains("--profile other"), "{error}");
        let error = source(&s3, &[("AWS_SHARED_CREDENTIALS_FILE", file), ("AWS_PROFILE", "none")]).unwrap_err();
        assert!(error.contains("has no profile `none`"), "{error}");
        assert!(source(&s3, &[("STORAGE_CONFIG", "[]")]).unwrap_err().contains("expected a JSON object"));
    }

    #[test]
    fn accounts_of_azure_come_from_the_environment_or_the_uri() {
        let azure = bucket(StorageService::Azure);
        assert!(source(&azure, &[]).unwrap_err().contains("no account"));
        let of = |pairs: &[(&str, &str)]| source(&azure, pairs).unwrap();
        let name = ("AZURE_STORAGE_ACCOUNT_NAME", "me");
        assert!(of(&[name]).starts_with("no credentials"));
        assert!(of(&[name, ("AZURE_STORAGE_ACCESS_KEY", "aHVzaA==")]).starts_with("`AZURE_STORAGE_ACCESS_KEY`"));
        assert!(of(&[name, ("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=hush")]).starts_with("`AZURE_STORAGE_SAS_TOKEN`"));
        let connection =
            "DefaultEndpointsProtocol=http;AccountName=me;AccountKey=aHVzaA==;BlobEndpoint=http://127.0.0.1:1/me;";
        assert!(
            of(&[("AZURE_STORAGE_CONNECTION_STRING", connection)]).starts_with("`AZURE_STORAGE_CONNECTION_STRING`")
        );
        let client = [name, ("AZ_CLIENT_ID", "c"), ("AZ_TENANT_ID", "t"), ("AZ_CLIENT_SECRET", "hush")];
        assert!(of(&client).starts_with("the client secret"));
    }

    #[test]
    fn google_needs_no_credentials_for_an_emulator() {
        let found = source(&bucket(StorageService::Gcs), &[("STORAGE_EMULATOR_HOST", "127.0.0.1:1")]).unwrap();
        assert!(found.starts_with("no credentials (`STORAGE_EMULATOR_HOST`)"), "{found}");
    }

    #[test]
    fn servers_of_mlflow_come_from_the_environment() {
        let of = |pairs: &[(&str, &str)]| mlflow(&variables(pairs), Duration::from_secs(1));
        assert!(matches!(of(&[]), Err(CredentialsError::NoTracking)));
        for text in ["databricks", "sqlite:///db", "./mlruns"] {
            assert!(of(&[(TRACKING, text)]).unwrap_err().to_string().contains("expected an address of HTTP"), "{text}");
        }
        let tracking = (TRACKING, "http://h:5000/mlflow/");
        let found = of(&[tracking]).unwrap();
        assert!(found.registry == found.tracking && found.authorization.is_none());
        let token = ("MLFLOW_TRACKING_TOKEN", "hush");
        assert_eq!(of(&[tracking, token]).unwrap().authorization.as_deref(), Some("Bearer hush"));
        let basic = [tracking, token, ("MLFLOW_TRACKING_USERNAME", "me"), ("MLFLOW_TRACKING_PASSWORD", "hush")];
        let found = of(&basic).unwrap();
        assert_eq!(found.authorization.as_deref(), Some("Basic bWU6aHVzaA=="));
        assert!(!format!("{found:?}").contains("bWU6"));
        let found = of(&[(TRACKING, "https://me:hush@h/")]).unwrap();
        assert_eq!(
            (found.tracking.as_str(), found.authorization.as_deref()),
            ("https://h/", Some("Basic bWU6aHVzaA=="))
        );
        let registry = of(&[tracking, ("MLFLOW_REGISTRY_URI", "https://r")]).unwrap().registry;
        assert_eq!(registry.as_str(), "https://r/");
    }

    #[test]
    fn headers_and_tokens_are_secrets() {
        let url = Url::parse("https://h.example/x").unwrap();
        let headers = web_headers(&url, &variables(&[("h.example-headers", r#"{"Authorization":"hush"}"#)])).unwrap();
        assert!(headers["authorization"].is_sensitive());
        assert!(web_headers(&url, &variables(&[("h.example-headers", "[]")])).is_err());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "hush\n").unwrap();
        let token = hub_token(&variables(&[("HF_TOKEN_PATH", path.to_str().unwrap())])).unwrap();
        assert_eq!(token.as_deref(), Some("hush"));
        assert_eq!(hub_token(&variables(&[("HF_TOKEN", "own")])).unwrap().as_deref(), Some("own"));
        assert_eq!(hub_token(&variables(&[])).unwrap(), None);
        assert!(!format!("{:?}", variables(&[("A", "hush")])).contains("hush"));
    }
}
