//! `LightGBM` text models.

mod evaluator;
mod objective;
mod text;

pub(super) use self::evaluator::{Evaluator, load};
