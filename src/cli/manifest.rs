//! The arguments of `mlserver manifest`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Print a Kubernetes manifest for an image
#[derive(Debug, Args)]
pub struct ManifestArgs {
    /// Folder that the image was built from
    pub folder: PathBuf,

    /// Image to run
    #[arg(long)]
    pub image: String,

    /// Type of manifest
    #[arg(long, value_enum, default_value_t)]
    pub kind: ManifestKind,

    /// Name of the resources [default: the folder's name]
    #[arg(long)]
    pub name: Option<String>,

    /// Number of replicas
    #[arg(long, default_value_t = 1)]
    pub replicas: u16,
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
