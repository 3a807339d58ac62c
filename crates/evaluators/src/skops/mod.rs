//! Reads skops files: the format of `skops.io.dump`, which holds scikit-learn's models without pickle.
//!
//! A skops file is a zip archive. Its `schema.json` is a tree of nodes, one for each Python object: a class, the name of the loader
//! that restores it, its content, and an identifier, by which a second occurrence of the object is recognized. Arrays are `.npy`
//! files of the archive, sparse matrices `.npz` files, and bytes `.bin` files. The tree becomes the graph that [`crate::pickle`]
//! makes of a pickle, with the same names and forms, so that the readers of models need not know which file it was (`nodes`).
//! Nothing is ever executed or imported. A node whose loader is not known is rejected by name.
//!
//! Files are untrusted. Reading one returns a [`Pickle`] or a [`SkopsError`], with time and memory in proportion to its size:
//! entries of the archive must not overlap, repeat or leave it (`archive`), what they decompress to is limited as a whole and
//! compared with what they declare, and the values of the schema and the objects are counted (`schema`).

mod archive;
mod error;
mod literal;
mod nodes;
mod npy;
mod schema;
mod sparse;

use bytes::Bytes;

use self::archive::{Archive, Limits};
use self::nodes::GraphBuilder;
use crate::pickle::Pickle;

pub use self::error::SkopsError;

/// The entry that has the tree of nodes.
const SCHEMA: &str = "schema.json";
/// The newest protocol of skops that is known, of its version 0.16.
const NEWEST_PROTOCOL: i64 = 2;

/// Returns whether a file begins as a zip archive does. No pickle does: it would begin with a persistent identifier.
pub fn is_archive(file: &[u8]) -> bool {
    matches!(file, [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..])
}

/// Reads a file that `skops.io.dump` wrote.
///
/// # Errors
///
/// Returns a [`SkopsError`] if the file is damaged, or contains something that is not data.
pub fn read(file: Bytes) -> Result<Pickle, SkopsError> {
    let mut limits = Limits::new(file.len());
    let archive = Archive::open(file)?;
    let bytes = archive.read(SCHEMA, &mut limits)?;
    let schema = schema::parse(&bytes, limits.objects)?;
    GraphBuilder::new(&archive, limits, &schema)?.build(&schema, bytes.len())
}

#[cfg(test)]
mod tests;
