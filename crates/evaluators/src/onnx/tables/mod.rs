//! The operators that are evaluated natively, by domain and name.

mod broadcast;
mod cast;
mod elementwise;
mod features;
mod layout;
mod linear;
mod matrix;
mod number;
mod pick;
mod reduce;
mod scatter;
mod scores;
mod sums;
mod svm;
mod text;
mod trees;

use super::error::NodeFault;
use super::node::{Built, NodeSpec};

/// Makes an operator of a node, or says why it cannot.
pub(super) type Constructor = fn(&NodeSpec<'_, '_>) -> Result<Built, NodeFault>;

/// The operators of a file, by their names.
type Table = &'static [(&'static str, Constructor)];

/// The tables of each domain.
const DOMAINS: &[(&str, &[Table])] = &[
    (
        "",
        &[
            elementwise::OPERATORS,
            cast::OPERATORS,
            reduce::OPERATORS,
            layout::OPERATORS,
            pick::OPERATORS,
            scatter::OPERATORS,
            matrix::OPERATORS,
            text::OPERATORS,
        ],
    ),
    ("ai.onnx.ml", &[features::OPERATORS, linear::OPERATORS, svm::OPERATORS, trees::OPERATORS]),
    ("com.microsoft", &[text::MICROSOFT]),
];

/// Returns the constructor of an operator.
pub(super) fn find(domain: &str, operator: &str) -> Option<Constructor> {
    let (_, tables) = DOMAINS.iter().find(|(name, _)| *name == domain)?;
    tables
        .iter()
        .flat_map(|table| table.iter())
        .find(|(name, _)| *name == operator)
        .map(|(_, constructor)| *constructor)
}
