//!

mod version;

pub use version::{compare_versions, default_version};
