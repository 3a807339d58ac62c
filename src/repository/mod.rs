//! Models on disk: which ones a folder holds, where their artifacts are, and which version answers by default.
//!
//! Nothing is cached: every look walks the folder again, so that an index shows what is there now. All of it blocks on
//! the file system; call it from a blocking thread.

mod artifact;
mod custom;
mod discovery;
mod version;

pub use artifact::{Artifact, ArtifactError};
pub use custom::{CustomError, CustomRepository, Listed};
pub use discovery::{Discovery, DiscoveryError, Repository};
pub use version::{compare_versions, default_version};
