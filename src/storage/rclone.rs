//! Remotes of rclone, as Seldon describes stores: `NAME:BUCKET/PATH` or `NAME://BUCKET/PATH`, with the variables `RCLONE_CONFIG_NAME_…`.

use super::credentials::{Variables, is_true};
use super::error::{CredentialsError, StorageError};
use super::uri::{Remote, StorageService, StorageUri, bucket, split_pin};
use crate::http_client::Url;
use crate::types::without_credentials;

/// What variables begin with.
const PREFIX: &str = "RCLONE_CONFIG_";
/// The variables of S3 that a remote replaces.
const OF_S3: [&str; 20] = [
    "STORAGE_CONFIG",
    "STORAGE_OVERRIDE_CONFIG",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "S3_ENDPOINT",
    "S3_USE_HTTPS",
    "S3_USE_ACCELERATE",
    "S3_USER_VIRTUAL_BUCKET",
    "awsAnonymousCredential",
    "AWS_ANONYMOUS_CREDENTIAL",
    "AWS_SKIP_SIGNATURE",
    "AWS_SHARED_CREDENTIALS_FILE",
];
/// The variables of Google's store that a remote replaces.
const OF_GCS: [&str; 6] = [
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_BEARER_TOKEN",
    "STORAGE_EMULATOR_HOST",
];
/// The beginnings of the variables of Azure that a remote replaces.
const OF_AZURE: [&str; 2] = ["AZURE_", "AZ_"];

impl StorageUri {
    /// Reads a URI as the environment means it: its beginning may be the name of a remote of rclone.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::parse`] does, and for remotes of other types.
    pub fn find(text: &str, variables: &Variables) -> Result<Self, StorageError> {
        let failed = |source| StorageError::Credentials { service: "rclone", source };
        let Some((remote, rest)) = Remote::find(text, variables).map_err(failed)? else {
            return Ok(Self::parse(text)?);
        };
        let shown = without_credentials(text);
        let (rest, sha256) = split_pin(rest, &shown)?;
        let location = bucket(remote.service, rest, &shown)?;
        let mut uri = Self::new(location, sha256, shown);
        uri.remote = Some(remote);
        Ok(uri)
    }

    /// Reports whether a text names a remote of rclone.
    pub fn is_remote(text: &str, variables: &Variables) -> bool {
        !matches!(Remote::find(text, variables), Ok(None))
    }
}

impl Remote {
    /// Returns the remote that a URI begins with, and what follows; `None` if no such remote is configured.
    ///
    /// # Errors
    ///
    /// Fails if its type is not supported.
    pub(super) fn find<'a>(uri: &'a str, variables: &Variables) -> Result<Option<(Self, &'a str)>, CredentialsError> {
        let Some((name, rest)) = uri.split_once(':') else { return Ok(None) };
        let mut names = [name.to_ascii_uppercase(), name.to_ascii_uppercase().replace('-', "_")].into_iter();
        let found = names.find_map(|name| {
            let prefix = format!("{PREFIX}{name}_");
            let kind = variables.get(&format!("{prefix}TYPE"))?;
            Some((prefix, kind))
        });
        let Some((prefix, kind)) = found else { return Ok(None) };
        let service = match kind {
            "s3" => StorageService::S3,
            "google cloud storage" | "gcs" => StorageService::Gcs,
            "azureblob" => StorageService::Azure,
            _ => {
                let reason =
                    format!("the type `{kind}` is not supported: expected s3, google cloud storage or azureblob");
                return Err(CredentialsError::Variable { variable: format!("{prefix}TYPE"), reason });
            }
        };
        Ok(Some((Self { prefix, service }, rest.trim_start_matches('/'))))
    }

    /// Returns what errors call the credentials.
    pub(super) fn credentials(&self) -> String {
        format!("the variables `{}…`", self.prefix)
    }

    /// Returns the variables in which the store's own names have the remote's values.
    ///
    /// # Errors
    ///
    /// Fails if a value cannot be read.
    pub(super) fn variables(&self, variables: &Variables) -> Result<Variables, CredentialsError> {
        let get = |name: &str| variables.get(&format!("{}{name}", self.prefix));
        let takes_environment = get("ENV_AUTH").is_some_and(is_true);
        let mut found = variables.clone();
        let replaced = |name: &str| match self.service {
            StorageService::S3 => OF_S3.contains(&name),
            StorageService::Gcs => OF_GCS.contains(&name),
            StorageService::Azure => OF_AZURE.iter().any(|start| name.starts_with(start)),
        };
        if !takes_environment {
            found.0.retain(|name, _| !replaced(name));
        }
        let mut set = |name: &str, value: &str| {
            found.0.insert(name.to_owned(), value.to_owned());
        };
        let pairs: &[(&str, &str)] = match self.service {
            StorageService::S3 => &[
                ("ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID"),
                ("SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY"),
                ("SESSION_TOKEN", "AWS_SESSION_TOKEN"),
                ("REGION", "AWS_REGION"),
            ],
            StorageService::Gcs => &[
                ("SERVICE_ACCOUNT_FILE", "GOOGLE_APPLICATION_CREDENTIALS"),
                ("SERVICE_ACCOUNT_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT_KEY"),
            ],
            StorageService::Azure => &[
                ("ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"),
                ("KEY", "AZURE_STORAGE_ACCESS_KEY"),
                ("USE_EMULATOR", "AZURE_STORAGE_USE_EMULATOR"),
            ],
        };
        for (from, to) in pairs {
            if let Some(value) = get(from) {
                set(to, value);
            }
        }
        if let Some(endpoint) = get("ENDPOINT") {
            let name = match self.service {
                StorageService::S3 => "AWS_ENDPOINT_URL_S3",
                StorageService::Gcs => "STORAGE_EMULATOR_HOST",
                StorageService::Azure => "AZURE_STORAGE_ENDPOINT",
            };
            let has_scheme = endpoint.contains("://");
            set(name, &if has_scheme { endpoint.to_owned() } else { format!("https://{endpoint}") });
        }
        match self.service {
            StorageService::S3 => {
                // Without keys, rclone does not sign.
                if !takes_environment && get("ACCESS_KEY_ID").is_none() {
                    set("awsAnonymousCredential", "true");
                }
            }
            StorageService::Gcs => {
                if get("TOKEN").is_some() {
                    let reason = "tokens of users are not supported; set `SERVICE_ACCOUNT_CREDENTIALS`".to_owned();
                    return Err(CredentialsError::Variable { variable: format!("{}TOKEN", self.prefix), reason });
                }
            }
            StorageService::Azure => {
                if let Some(url) = get("SAS_URL") {
                    let variable = || format!("{}SAS_URL", self.prefix);
                    let invalid =
                        || CredentialsError::Variable { variable: variable(), reason: "expected a URL".to_owned() };
                    let url = Url::parse(url).map_err(|_| invalid())?;
                    let host = url.host_str().ok_or_else(invalid)?;
                    let account = host.split('.').next().unwrap_or(host);
                    set("AZURE_STORAGE_ACCOUNT_NAME", account);
                    set("AZURE_STORAGE_SAS_TOKEN", url.query().unwrap_or_default());
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        Variables(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn of(uri: &str, pairs: &[(&str, &str)]) -> Variables {
        let variables = variables(pairs);
        Remote::find(uri, &variables).unwrap().unwrap().0.variables(&variables).unwrap()
    }

    #[test]
    fn remotes_are_found_by_their_names() {
        let variables = variables(&[("RCLONE_CONFIG_S3_TYPE", "s3"), ("RCLONE_CONFIG_MY_STORE_TYPE", "azureblob")]);
        for (uri, expected) in [
            ("s3://bucket/a/b", Some((StorageService::S3, "bucket/a/b"))),
            ("s3:bucket/a", Some((StorageService::S3, "bucket/a"))),
            ("my-store:c/a", Some((StorageService::Azure, "c/a"))),
            ("my_store://c/a", Some((StorageService::Azure, "c/a"))),
            ("gs://bucket/a", None),
            ("/mnt/models", None),
        ] {
            let found = Remote::find(uri, &variables).unwrap();
            assert_eq!(found.map(|(remote, rest)| (remote.service, rest)), expected, "{uri}");
        }
    }

    #[test]
    fn remotes_of_other_types_are_refused() {
        let variables = variables(&[("RCLONE_CONFIG_X_TYPE", "sftp")]);
        let error = Remote::find("x:a/b", &variables).unwrap_err().to_string();
        assert!(error.starts_with("invalid `RCLONE_CONFIG_X_TYPE`: the type `sftp` is not supported"), "{error}");
    }

    #[test]
    fn remotes_replace_the_variables_of_their_service() {
        let found = of(
            "s3:b/a",
            &[
                ("RCLONE_CONFIG_S3_TYPE", "s3"),
                ("RCLONE_CONFIG_S3_ACCESS_KEY_ID", "me"),
                ("RCLONE_CONFIG_S3_SECRET_ACCESS_KEY", "hush"),
                ("RCLONE_CONFIG_S3_ENDPOINT", "minio:9000"),
                ("AWS_ACCESS_KEY_ID", "other"),
                ("AWS_SESSION_TOKEN", "other"),
            ],
        );
        assert_eq!(found.get("AWS_ACCESS_KEY_ID"), Some("me"));
        assert_eq!(found.get("AWS_SECRET_ACCESS_KEY"), Some("hush"));
        assert_eq!(found.get("AWS_ENDPOINT_URL_S3"), Some("https://minio:9000"));
        assert_eq!(found.get("AWS_SESSION_TOKEN"), None);
        assert_eq!(found.get("awsAnonymousCredential"), None);
        let anonymous = of("s3:b/a", &[("RCLONE_CONFIG_S3_TYPE", "s3"), ("AWS_ACCESS_KEY_ID", "other")]);
        assert_eq!(anonymous.get("awsAnonymousCredential"), Some("true"));
        let environment =
            [("RCLONE_CONFIG_S3_TYPE", "s3"), ("RCLONE_CONFIG_S3_ENV_AUTH", "true"), ("AWS_ACCESS_KEY_ID", "me")];
        assert_eq!(of("s3:b/a", &environment).get("AWS_ACCESS_KEY_ID"), Some("me"));
        let google =
            [("RCLONE_CONFIG_GS_TYPE", "google cloud storage"), ("RCLONE_CONFIG_GS_SERVICE_ACCOUNT_CREDENTIALS", "{}")];
        assert_eq!(of("gs://b/a", &google).get("GOOGLE_SERVICE_ACCOUNT_KEY"), Some("{}"));
        let azure = [
            ("RCLONE_CONFIG_AZ_TYPE", "azureblob"),
            ("RCLONE_CONFIG_AZ_SAS_URL", "https://acc.blob.core.windows.net/c?sv=1&sig=hush"),
            ("AZURE_STORAGE_ACCESS_KEY", "other"),
        ];
        let found = of("az:c/a", &azure);
        assert_eq!(found.get("AZURE_STORAGE_ACCOUNT_NAME"), Some("acc"));
        assert_eq!(found.get("AZURE_STORAGE_SAS_TOKEN"), Some("sv=1&sig=hush"));
        assert_eq!(found.get("AZURE_STORAGE_ACCESS_KEY"), None);
    }
}
