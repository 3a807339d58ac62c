//! The arguments of `mlserver manifest`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::examples;

/// Print a Kubernetes manifest for an image
#[derive(Debug, Args)]
#[command(help_template = examples::help(&[
    ("mlserver manifest churn --image registry.example.com/churn:1", ""),
    ("mlserver manifest churn --image registry.example.com/churn:1 --kind kserve", ""),
]))]
pub struct ManifestArgs {
    /// Folder that the image was built from
    pub folder: PathBuf,

    /// Image to run
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub image: String,

    /// Type of manifest
    #[arg(long, value_enum, default_value_t)]
    pub kind: ManifestKind,

    /// Name of the resources [default: derived from the folder's name]
    #[arg(long)]
    pub name: Option<String>,

    /// Number of replicas
    #[arg(long, default_value_t = 1)]
    pub replicas: u16,

    /// CPUs to request, such as `2` or `500m`
    #[arg(long, default_value = "1", value_name = "QUANTITY", value_parser = quantity)]
    pub cpu: String,

    /// Memory to request, which is also the limit
    #[arg(long, default_value = "2Gi", value_name = "QUANTITY", value_parser = quantity)]
    pub memory: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ManifestKind {
    /// Plain Kubernetes: Deployment and Service
    #[default]
    Kubernetes,
    /// KServe: InferenceService
    Kserve,
    /// Seldon Core 1: SeldonDeployment
    Seldon,
}

/// Accepts a quantity of Kubernetes, except for exponents: a positive number and a suffix.
fn quantity(text: &str) -> Result<String, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let is_positive = number.parse::<f64>().is_ok_and(|number| number > 0.0);
    let suffixes = ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"];
    if is_positive && number.starts_with(|c: char| c.is_ascii_digit()) && suffixes.contains(&suffix) {
        return Ok(text.to_owned());
    }
    Err("expected a positive number, with a suffix such as `m`, `Mi` or `Gi`".to_owned())
}
