//! Contributions of features to the sum of a tree ensemble (SHAP values), exactly.
//!
//! A leaf of value v contributes to the sum of a row if the row passes every split on the leaf's path. Splits on one feature are
//! joined: o is 1 if the row passes all of them, else 0, and z is the product of their cover ratios, the part of the training rows
//! that passes them. With features 1 to D on the path, the Shapley value of feature i is
//!
//! v (oᵢ - zᵢ) ∫₀¹ ∏_{j≠i} (t oⱼ + (1 - t) zⱼ) dt
//!
//! which is exact with Gauss-Legendre quadrature of ⌈D/2⌉ points, since the integrand is a polynomial of degree D - 1. The sum over
//! the leaves is taken in a depth-first search: each edge multiplies the products of its path by its factor at every point, and on
//! the way back the sums of the leaves below it give what the edge contributes to its feature. An edge whose feature was split
//! above replaces that factor, and takes back what the edge above will count for the leaves below. An edge is so visited once,
//! however many leaves are below it, and rows are side by side in the lanes of vector registers.
//!
//! These are the values of `pred_contribs` of `XGBoost`, `pred_contrib` of `LightGBM` and the path-dependent `TreeExplainer` of
//! `shap`, in double precision. Splits are tested by the model's own evaluator, so a row takes the leaf that it takes there.
//!
//! S. M. Lundberg et al.: From local explanations to global understanding with explainable AI for trees, 2020.
//! P. Yu et al.: Linear `TreeSHAP`, 2022.

mod kernel;
mod quadrature;
mod rows;
mod table;

pub(crate) use self::rows::ExplainedRows;
pub use self::table::TableError;
pub(crate) use self::table::{ContributionTable, ExplainedTrees, TableExtent};

/// How many rows are evaluated side by side, if there are enough.
pub(crate) const LANES: usize = 8;

#[cfg(test)]
mod tests;
