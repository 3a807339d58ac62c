//! The repository's own documents and rules, checked against the code.

mod documents;
mod layers;
mod promises;
mod readme;
mod vocabulary;
