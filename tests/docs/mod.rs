//! The repository's own documents and rules, checked against the code.

mod documents;
mod layers;
mod profiles;
mod promises;
mod readme;
mod vocabulary;
