//! Google Cloud Storage.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

use super::bucket::{no_retries, store_error};
use super::variables::Variables;
use crate::storage::error::CredentialsError;
use crate::storage::google_uploads::GoogleUploads;
use crate::storage::source::{Bucket, Source, Uploads};
use crate::storage::transport::Transport;

/// Google's address, unless `STORAGE_EMULATOR_HOST` names another one.
const GOOGLE: &str = "https://storage.googleapis.com";
/// The host of Google's metadata server.
const METADATA_HOST: &str = "metadata.google.internal:80";
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
/// The variables with credentials of Google, and what the crate calls them.
const GOOGLE_VARIABLES: [(&str, GoogleConfigKey); 5] = [
    ("GOOGLE_APPLICATION_CREDENTIALS", GoogleConfigKey::ApplicationCredentials),
    ("GOOGLE_SERVICE_ACCOUNT", GoogleConfigKey::ServiceAccount),
    ("GOOGLE_SERVICE_ACCOUNT_PATH", GoogleConfigKey::ServiceAccount),
    ("GOOGLE_SERVICE_ACCOUNT_KEY", GoogleConfigKey::ServiceAccountKey),
    ("GOOGLE_BEARER_TOKEN", GoogleConfigKey::BearerToken),
];

pub(super) fn gcs(
    bucket: &str,
    key: &str,
    variables: &Variables,
    transport: Transport,
) -> Result<Source, CredentialsError> {
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
