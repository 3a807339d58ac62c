//! `mlserver manifest`: prints a Kubernetes manifest that runs an image.

use std::fs;

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::CommandError;
use crate::cli::manifest::{ManifestArgs, ManifestKind};
use crate::settings::env::MapEnvironment;
use crate::settings::{Settings, SettingsSources};
use crate::templates;
use crate::ui::Ui;

/// The limit on the length of a Service's name.
const LONGEST_NAME: usize = 63;

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
    /// In seconds, rounded up.
    grace_period: u64,
}

/// Runs `mlserver manifest`. Ports and paths come from the folder's settings.
pub fn run(args: &ManifestArgs, ui: &mut Ui) -> Result<(), CommandError> {
    let folder = fs::canonicalize(&args.folder).with_context(|| format!("cannot read `{}`", args.folder.display()))?;
    let settings = Settings::load(&folder, &SettingsSources::read(&MapEnvironment::new(&folder))?, false)?.settings;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => dns_label(&folder.file_name().unwrap_or_default().to_string_lossy()),
    };
    if name.is_empty() || name.len() > LONGEST_NAME || dns_label(&name) != name {
        return Err(anyhow!(
            "invalid resource name `{name}`: expected at most {LONGEST_NAME} lowercase letters, digits and `-`; set another one with --name"
        )
        .into());
    }
    let values = ManifestValues {
        name: &name,
        image: serde_json::to_string(&args.image)?,
        replicas: args.replicas,
        http_port: settings.http_port,
        grpc_port: settings.grpc_port,
        metrics_port: settings.metrics_endpoint.is_some().then_some(settings.metrics_port),
        metrics_path: serde_json::to_string(&settings.metrics_endpoint)?,
        grace_period: (settings.shutdown_delay + settings.shutdown_grace_period).as_secs() + 1,
    };
    let template = match args.kind {
        ManifestKind::Kubernetes => "manifests/kubernetes.yaml.tera",
        ManifestKind::Kserve => "manifests/kserve.yaml.tera",
        ManifestKind::Seldon => "manifests/seldon.yaml.tera",
    };
    Ok(ui.line(templates::embedded(template, &values)?.trim_end())?)
}

/// Returns a valid resource name that is close to `text`.
fn dns_label(text: &str) -> String {
    let lower = text.to_lowercase();
    let kept = lower.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit()).filter(|part| !part.is_empty());
    kept.collect::<Vec<_>>().join("-")
}
