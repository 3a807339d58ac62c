//! Models on disk: the models of a folder, their artifacts, and the default version.
//!
//! Nothing is cached: every search walks the folder again, so that an index is up to date. All functions block on the file
//! system; call them from a blocking thread.

mod artifact;
mod custom;
mod discovery;
mod source;
mod state;
mod steps;
mod unconfigured;
mod version;

pub use artifact::{
    Artifact, ArtifactError, SpecialFileError, check_on_disk, is_mlflow_uri, is_store_uri, path_of_file_uri,
};
pub use custom::{CustomError, CustomRepository, Listed};
pub use discovery::{Discovery, DiscoveryError, Repository};
pub use source::FolderSource;
pub use state::disk_state;
pub use unconfigured::{UnconfiguredError, UnconfiguredModel};
pub use version::{compare_versions, default_version};
