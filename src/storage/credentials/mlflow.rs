//! MLflow's servers.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64_STANDARD;

use super::files::ini_section;
use super::variables::Variables;
use crate::http_client::{HttpOptions, Url, take_credentials};
use crate::storage::clients::TlsOptions;
use crate::storage::error::CredentialsError;
use crate::storage::mlflow::Mlflow;
use crate::storage::transport::{MAX_ANSWER, Retries, Transport};
use crate::types::Secret;

/// The variable with the address of MLflow's tracking server.
const TRACKING: &str = "MLFLOW_TRACKING_URI";

/// Reads the addresses of MLflow's servers and their credentials: those that MLflow's own client reads, in its order.
///
/// # Errors
///
/// Fails if no tracking server is set, or its address does not begin with `http://` or `https://`.
pub(in crate::storage) fn mlflow(
    variables: &Variables,
    idle: Duration,
    retries: Retries,
) -> Result<Mlflow, CredentialsError> {
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
    let transport = Transport::new(options, retries);
    Ok(Mlflow { transport, tracking, registry, authorization, credentials: credentials.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::transport::RetryPolicy;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        Variables(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn servers_of_mlflow_come_from_the_environment() {
        let retries = || Retries::new(RetryPolicy::FETCH);
        let of = |pairs: &[(&str, &str)]| mlflow(&variables(pairs), Duration::from_secs(1), retries());
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
}
