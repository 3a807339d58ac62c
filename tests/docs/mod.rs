//! The repository's own documents and rules, checked against the code.

mod kserve;
mod layers;
mod readme;
mod vocabulary;
