//! Pickles, read as data.
//!
//! A pickle is a program: it names functions of Python and calls them. Here nothing is called. The machine understands the
//! opcodes of protocols 0 to 5 and makes a graph of inert objects; the few functions that only build data (NumPy's arrays and
//! dtypes, sets, ordered dicts) it knows by name, instances of classes it keeps as a class name with a state, and a call of
//! anything else it refuses by name (`calls`). Joblib's form is understood too: arrays that interrupt the pickle, in files
//! compressed or not.
//!
//! Files are untrusted. Reading one ends in a [`Pickle`] or in a [`PickleError`], with time and memory in proportion to its
//! size; how far a compressed file may grow is bounded as well (`container`). Lengths in the file are held against the bytes
//! that are there before anything is allocated. Arrays are slices of the file.

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

/// Reads a file that `pickle` or `joblib` wrote. What follows the pickle in it is ignored, as Python does.
///
/// # Errors
///
/// [`PickleError`] says where the file is damaged, or what it asks for that is not data.
pub fn read(file: Bytes) -> Result<Pickle, PickleError> {
    let (file, _) = container::open(file)?;
    let bytes = file.len();
    let mut shared = FileState::new(file);
    let root = PickleMachine::new(&mut shared, 0).run()?;
    Ok(Pickle { nodes: shared.nodes, root, bytes })
}

#[cfg(test)]
mod tests;
