//! Azure Blob Storage.

use std::collections::BTreeMap;

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::bucket::{bucket_source, no_retries, store_error};
use super::variables::Variables;
use crate::storage::error::CredentialsError;
use crate::storage::source::Source;
use crate::storage::transport::Transport;
use crate::storage::uri::AzureAccount;

pub(super) fn azure(
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
