//! Reads pickles as data.
//!
//! A pickle is a program that names Python functions and calls them. Here nothing is called. The machine understands
//! the opcodes of protocols 0 to 5 and creates a graph of inert objects. It implements the few functions that only
//! build data (NumPy's arrays and dtypes, sets, ordered dicts), keeps instances of classes as a class name with a
//! state, and rejects a call of anything else by name (`calls`). It also reads joblib's format: arrays between the
//! opcodes of the pickle, in files that may be compressed.
//!
//! Files are untrusted. Reading one returns a [`Pickle`] or a [`PickleError`], with time and memory in proportion to
//! its size; the decompressed size is limited as well (`container`), and so are the objects for each compressed byte. Lengths in the file are checked against the
//! remaining bytes before anything is allocated. Arrays are slices of the file.

mod calls;
mod container;
mod dtype;
mod error;
mod graph;
mod machine;
mod reader;

use bytes::Bytes;

use self::machine::{FileState, PickleMachine};

pub use self::container::CompressionFormat;
pub use self::dtype::{ArrayNumbers, Dtype, DtypeField, ElementKind, NumpyArray};
pub use self::error::PickleError;
pub use self::graph::{Pickle, PickleValue};

pub(crate) use self::calls::canonical;
pub(crate) use self::graph::{NodeId, PickleNode, PickleObject};

/// Reads a file that `pickle` or `joblib` wrote. As in Python, what follows the pickle is ignored.
///
/// # Errors
///
/// Returns a [`PickleError`] if the file is damaged, or contains something that is not data.
pub fn read(file: Bytes) -> Result<Pickle, PickleError> {
    let compressed = file.len();
    let (file, _) = container::open(file)?;
    let bytes = file.len();
    let mut shared = FileState::new(file, compressed);
    let root = match PickleMachine::new(&mut shared, 0).run() {
        Ok(root) => root,
        Err(error) if error.is_damage() => {
            return Err(shared.reader.text_at_start().map_or(error, |start| PickleError::Text { start }));
        }
        Err(error) => return Err(error),
    };
    Ok(Pickle::new(shared.nodes, root, bytes))
}

#[cfg(test)]
mod tests;
