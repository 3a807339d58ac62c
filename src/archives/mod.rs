//! Unpacks archives, which are untrusted: nothing is written outside of the folder, links are created last and only if they stay inside, and
//! entries and bytes have limits.

#[cfg(test)]
pub(crate) mod packing;
mod read;
mod refusal;
mod safe;
mod tar;
#[cfg(test)]
mod tests;
mod tree;

pub use read::{ArchiveEntry, ArchiveLimits, EntryKind, read};
pub use refusal::{Refusal, UnpackError};
pub use safe::is_safe_folder;
pub use tree::{TreeWriter, UnpackedTree};
