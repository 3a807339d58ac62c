//! The order of columns: which column of a request is which feature of a model.

use std::borrow::Cow;
use std::collections::HashMap;

use super::CodecError;

/// How the columns of a request become the features of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnOrder {
    /// As they are: they have the order of the features, or the features have no names.
    Sent,
    /// As they are, because none has the name of a feature.
    ByPosition,
    /// For each feature, the index of its column.
    ByName(Vec<usize>),
}

impl ColumnOrder {
    /// Returns whether the order of columns depends on their names: the features have names that somebody has given to them.
    pub fn is_by_name(features: &[String]) -> bool {
        !features.is_empty() && !are_generated(features)
    }

    /// Finds the columns of a request by the names of a `LightGBM` model's features. `named` says that the names were given to columns
    /// on purpose.
    ///
    /// `LightGBM` itself takes columns by position, so another order would silently be a wrong prediction. It writes `_` for spaces to
    /// files, so both are equal.
    ///
    /// # Errors
    ///
    /// Fails if there is not one column for each feature, and if only some of the names are those of features.
    pub fn of<'n>(
        columns: impl ExactSizeIterator<Item = &'n str> + Clone,
        features: &[String],
        named: bool,
    ) -> Result<Self, CodecError> {
        if columns.len() != features.len() {
            return Err(CodecError::Columns { found: columns.len(), features: features.len() });
        }
        if are_generated(features) || columns.clone().zip(features).all(|(column, feature)| is_same(column, feature)) {
            return Ok(Self::Sent);
        }
        let mut positions: HashMap<Cow<'_, str>, usize> =
            columns.clone().enumerate().map(|(index, name)| (written(name), index)).collect();
        let found: Vec<Option<usize>> = features.iter().map(|feature| positions.remove(&written(feature))).collect();
        if let Some(order) = found.iter().copied().collect() {
            return Ok(Self::ByName(order));
        }
        if !named && found.iter().all(Option::is_none) {
            return Ok(Self::ByPosition);
        }
        let mut unknown: Vec<(usize, &str)> =
            columns.enumerate().filter(|(_, name)| positions.contains_key(&written(name))).collect();
        unknown.sort_unstable();
        let missing =
            features.iter().zip(&found).find(|(_, found)| found.is_none()).map(|(feature, _)| feature.clone());
        let (index, name) = unknown.first().copied().unwrap_or_default();
        Err(CodecError::UnknownColumn { index, found: name.to_owned(), missing: missing.unwrap_or_default() })
    }
}

/// Returns whether the names are those that `LightGBM` gives to features without names.
fn are_generated(features: &[String]) -> bool {
    features
        .iter()
        .enumerate()
        .all(|(index, name)| name.strip_prefix("Column_").is_some_and(|rest| rest == index.to_string()))
}

fn is_same(column: &str, feature: &str) -> bool {
    column == feature || written(column) == written(feature)
}

/// Returns a name as `LightGBM` writes it.
fn written(name: &str) -> Cow<'_, str> {
    if name.contains(' ') { name.replace(' ', "_").into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(columns: &[&str], features: &[&str], named: bool) -> Result<ColumnOrder, String> {
        let features: Vec<String> = features.iter().map(|name| (*name).to_owned()).collect();
        ColumnOrder::of(columns.iter().copied(), &features, named).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_found_by_name() {
        for named in [false, true] {
            assert_eq!(order(&["a", "b c"], &["a", "b_c"], named), Ok(ColumnOrder::Sent));
            assert_eq!(order(&["b c", "a"], &["a", "b_c"], named), Ok(ColumnOrder::ByName(vec![1, 0])));
            assert_eq!(order(&["c", "a", "b"], &["a", "b", "c"], named), Ok(ColumnOrder::ByName(vec![1, 2, 0])));
            assert_eq!(order(&["x", "y"], &["Column_0", "Column_1"], named), Ok(ColumnOrder::Sent));
            assert_eq!(
                order(&["b", "x"], &["a", "b"], named).unwrap_err(),
                "column 1 is `x`, which this model does not have: expected its features by name, of which `a` is missing"
            );
            assert_eq!(
                order(&["a"], &["a", "b"], named).unwrap_err(),
                "the request has 1 columns, but this model expects 2"
            );
        }
        assert_eq!(order(&["x", "y"], &["a", "b"], false), Ok(ColumnOrder::ByPosition));
        assert!(order(&["x", "y"], &["a", "b"], true).unwrap_err().starts_with("column 0 is `x`"));
        assert!(order(&["a b", "a_b"], &["a_b", "c"], false).is_err(), "the names are equal");
    }
}
