//! The stores that the usual environment variables describe: their addresses and credentials.

mod amazon;
mod azure;
mod bucket;
mod files;
mod google;
mod hub;
mod mlflow;
mod variables;
mod web;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::clients::{ClientKey, Clients, TlsOptions};
use super::error::CredentialsError;
use super::hub::Hub;
use super::source::Source;
use super::uri::{Location, Remote, StorageService};
use super::web::Web;
use amazon::s3;
use azure::azure;
use google::gcs;
use hub::hub_token;
pub(super) use mlflow::mlflow;
pub use variables::Variables;
pub(super) use variables::is_true;
use web::web_headers;

/// The hub's address, unless `HF_ENDPOINT` names another one.
const HUB: &str = "https://huggingface.co";

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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::storage::transport::RetryPolicy;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        Variables(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn bucket(service: StorageService) -> Location {
        Location::Bucket { service, bucket: "b".to_owned(), key: "k".to_owned(), account: None }
    }

    fn source(location: &Location, pairs: &[(&str, &str)]) -> Result<String, String> {
        match open(location, None, &variables(pairs), &Clients::new(Duration::from_secs(1), 1, RetryPolicy::FETCH)) {
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
}
