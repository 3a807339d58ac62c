//! Models on disk: which ones a folder holds, where their artefacts are, and which version answers by default.
//!

mod artefact;
mod version;

pub use artefact::{Artefact, ArtefactError, well_known_names};
pub use version::{compare_versions, default_version};
