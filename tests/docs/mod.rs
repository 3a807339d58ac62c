//! The repository's own documents and rules, checked against the code.

mod layers;
mod readme;
mod vocabulary;
