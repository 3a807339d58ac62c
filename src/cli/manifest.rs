//! The arguments of `mlserver manifest`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Print a manifest that runs an image of a folder
#[derive(Debug, Args)]
pub struct ManifestArgs {
    /// Folder that the image was made of
    pub folder: PathBuf,

    /// Image to run
    #[arg(long)]
    pub image: String,

    /// Kind of the manifest
    #[arg(long, value_enum, default_value_t)]
    pub kind: ManifestKind,

    /// Name of what it makes [default: the folder's]
    #[arg(long)]
    pub name: Option<String>,

    /// How many copies run
    #[arg(long, default_value_t = 1)]
    pub replicas: u16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ManifestKind {
    /// Deployment and Service of plain Kubernetes
    #[default]
    Kubernetes,
    /// InferenceService of KServe
    Kserve,
    /// SeldonDeployment of Seldon Core 1
    Seldon,
}
