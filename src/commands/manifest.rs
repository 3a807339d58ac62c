//! `mlserver manifest`: prints a Kubernetes manifest that runs an image.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::CommandError;
use crate::cli::manifest::{ManifestArgs, ManifestKind};
use crate::image::PlanError;
use crate::settings::env::MapEnvironment;
use crate::settings::{LoadedSettings, SettingSource, Settings, SettingsSources};
use crate::templates;
use crate::ui::Ui;

/// The limit on the length of a Service's name.
const MAX_NAME: usize = 63;
/// The longest suffix that KServe appends to the name of an `InferenceService`.
const KSERVE_SUFFIX: &str = "-predictor";
/// The prefix of names that would start with a digit.
const PREFIX: &str = "m-";
/// How long to serve after readiness ends, unless the settings say so: how long proxies typically take to notice.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(5);

/// The variables of the templates.
#[derive(Debug, Serialize)]
struct ManifestValues<'a> {
    name: &'a str,
    /// As a YAML string.
    image: String,
    replicas: u16,
    http_port: u16,
    grpc_port: u16,
    /// `None` if metrics are disabled.
    metrics_port: Option<u16>,
    metrics_path: String,
    /// The delay of the shutdown in seconds, if the settings do not set it.
    delay: Option<u64>,
    /// The delay and the grace period of the shutdown in seconds, rounded up.
    termination_seconds: u64,
    /// As YAML strings.
    cpu: String,
    memory: String,
}

/// Runs `mlserver manifest`. Ports, paths and the duration of the shutdown come from the folder's settings.
///
/// # Errors
///
/// Fails if the settings cannot be read or are of no use in a cluster, or the name is invalid.
pub fn run(args: &ManifestArgs, ui: &mut Ui) -> Result<(), CommandError> {
    let folder = fs::canonicalize(&args.folder).with_context(|| format!("cannot read `{}`", args.folder.display()))?;
    if !folder.is_dir() {
        return Err(PlanError::NoFolder { path: args.folder.clone() }.into());
    }
    let loaded = Settings::load(&folder, &SettingsSources::read(&MapEnvironment::new(&folder))?, false)?;
    check_listeners(&loaded)?;
    let name = resource_name(args, &folder)?;
    let sets_delay =
        loaded.entries.iter().any(|entry| entry.key == "shutdown_delay" && entry.source != SettingSource::Default);
    let settings = loaded.settings;
    let delay = if sets_delay { settings.shutdown_delay } else { SHUTDOWN_DELAY };
    let values = ManifestValues {
        name: &name,
        image: serde_json::to_string(&args.image)?,
        replicas: args.replicas,
        http_port: settings.http_port,
        grpc_port: settings.grpc_port,
        metrics_port: settings.metrics_endpoint.is_some().then_some(settings.metrics_port),
        metrics_path: serde_json::to_string(&settings.metrics_endpoint)?,
        delay: (!sets_delay).then_some(delay.as_secs()),
        termination_seconds: (delay + settings.shutdown_grace_period).as_secs() + 1,
        cpu: serde_json::to_string(&args.cpu)?,
        memory: serde_json::to_string(&args.memory)?,
    };
    let template = match args.kind {
        ManifestKind::Kubernetes => "manifests/kubernetes.yaml.tera",
        ManifestKind::Kserve => "manifests/kserve.yaml.tera",
        ManifestKind::Seldon => "manifests/seldon.yaml.tera",
    };
    Ok(ui.line(templates::embedded(template, &values)?.trim_end())?)
}

/// Checks that the listeners have ports, and addresses that other pods can reach.
fn check_listeners(loaded: &LoadedSettings<Settings>) -> Result<(), CommandError> {
    let settings = &loaded.settings;
    let mut ports = vec![("http_port", settings.http_port), ("grpc_port", settings.grpc_port)];
    if settings.metrics_endpoint.is_some() {
        ports.push(("metrics_port", settings.metrics_port));
    }
    if let Some((key, _)) = ports.into_iter().find(|(_, port)| *port == 0) {
        return Err(anyhow!("`{key}` is 0 in the folder's settings: a manifest needs a fixed port").into());
    }
    if ["localhost", "127.0.0.1", "::1"].contains(&settings.host.as_str()) {
        let host = &settings.host;
        return Err(anyhow!(
            "`host` is `{host}` in the folder's settings, which cannot be reached from outside the pod: use `0.0.0.0`"
        )
        .into());
    }
    Ok(())
}

/// Returns the name of the resources: the given one, or one that is derived from the folder's.
fn resource_name(args: &ManifestArgs, folder: &Path) -> Result<String, CommandError> {
    let limit = match args.kind {
        ManifestKind::Kubernetes | ManifestKind::Seldon => MAX_NAME,
        ManifestKind::Kserve => MAX_NAME - KSERVE_SUFFIX.len(),
    };
    let Some(name) = &args.name else {
        let folder = folder.file_name().unwrap_or_default().to_string_lossy();
        return dns_label(&folder, limit).ok_or_else(|| {
            anyhow!("no resource name can be derived from folder `{folder}`: set one with `--name`").into()
        });
    };
    let valid = dns_label(name, limit);
    if valid.as_ref() == Some(name) {
        return Ok(name.clone());
    }
    let hint = valid.map_or_else(String::new, |valid| format!("; for example `--name {valid}`"));
    Err(anyhow!(
        "invalid resource name `{name}`: expected at most {limit} lowercase letters, digits and `-`, a letter first and no `-` last{hint}"
    )
    .into())
}

/// Returns the label of RFC 1035 that is closest to `text`, or `None` if nothing remains.
fn dns_label(text: &str, limit: usize) -> Option<String> {
    let lower = text.to_lowercase();
    let kept: String =
        lower.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }).collect();
    let mut label = kept.trim_matches('-').to_owned();
    if label.starts_with(|c: char| c.is_ascii_digit()) {
        label.insert_str(0, PREFIX);
    }
    label.truncate(limit);
    let label = label.trim_end_matches('-');
    (!label.is_empty()).then(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_label_follows_rfc_1035() {
        let cases = [
            ("churn", Some("churn")),
            ("a--b", Some("a--b")),
            ("My Model_v2", Some("my-model-v2")),
            ("2024-churn", Some("m-2024-churn")),
            ("-x-", Some("x")),
            ("模型", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(dns_label(text, MAX_NAME).as_deref(), expected, "{text}");
        }
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(9));
        assert_eq!(dns_label(&long, MAX_NAME).unwrap(), "a".repeat(62));
    }
}
