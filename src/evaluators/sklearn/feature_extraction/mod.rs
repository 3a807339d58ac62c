//! Texts as counts of their terms, and counts as weights.

mod text;
mod tokenizing;

pub(super) use self::text::CLASSES;
