//! The repository's own documents and rules, held against the code.

mod layers;
mod readme;
