//! What evaluates models: one module per family of artefacts.

pub mod trees;
