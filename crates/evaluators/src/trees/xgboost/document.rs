//! The common interface of the two document formats, JSON and UBJSON.

use crate::trees::error::LoadError;

/// The limit on nested objects and arrays. Models need 9.
pub(super) const DEPTH: usize = 64;

/// A document that is read from front to back.
///
/// Every method reads one value. A visitor that is called with a key must read the value of that key with one of the
/// methods.
pub(super) trait Document {
    /// Reads an object, key by key.
    fn object(&mut self, visit: &mut dyn FnMut(&mut Self, &str) -> Result<(), LoadError>) -> Result<(), LoadError>;

    /// Reads an array, element by element.
    fn array(&mut self, visit: &mut dyn FnMut(&mut Self) -> Result<(), LoadError>) -> Result<(), LoadError>;

    /// Reads a string. A number or boolean is returned as its text.
    fn text(&mut self) -> Result<String, LoadError>;

    /// Reads an array of integers; booleans count as 0 and 1.
    fn integers(&mut self) -> Result<Vec<i64>, LoadError>;

    /// Reads an array of numbers.
    fn floats(&mut self) -> Result<Vec<f32>, LoadError>;

    /// Skips the next value.
    fn skip(&mut self) -> Result<(), LoadError>;
}
