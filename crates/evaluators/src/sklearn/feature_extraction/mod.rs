//! Text feature extraction: texts as counts of terms, and counts as TF-IDF weights.

mod text;
mod tokenizing;

pub(super) use self::text::CLASSES;
