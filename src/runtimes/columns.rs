//! The columns of requests to models that take them by position, such as those of `LightGBM`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use super::RuntimeError;
use crate::codecs::{CodecError, ColumnOrder, DecodedInputs};
use crate::types::{InferenceRequest, short};

/// Puts columns into the order of a model's features. Clones share whether they have warned.
#[derive(Debug, Clone)]
pub(super) struct ColumnArranger {
    /// The name of the model.
    model: Arc<str>,
    has_warned: Arc<AtomicBool>,
}

impl ColumnArranger {
    pub(super) fn new(model: &str) -> Self {
        Self { model: model.into(), has_warned: Arc::default() }
    }

    /// Returns a request with the columns of its frame in the order of `features`, if the model takes them by position.
    ///
    /// # Errors
    ///
    /// See [`ColumnOrder::of`].
    pub(super) fn arrange<'r>(
        &self,
        decoded: DecodedInputs<'r>,
        features: Option<&[String]>,
        request: &InferenceRequest,
    ) -> Result<DecodedInputs<'r>, RuntimeError> {
        let (DecodedInputs::Frame(columns), Some(features)) = (&decoded, features) else { return Ok(decoded) };
        let names = columns.iter().map(|column| column.name.as_str());
        Ok(match self.order(names, features, request.parameters.has_named_columns())? {
            Some(order) => DecodedInputs::Frame(order.into_iter().map(|index| columns[index]).collect()),
            None => decoded,
        })
    }

    /// Returns the index of the column of each feature, or `None` if the columns stay as they are.
    ///
    /// # Errors
    ///
    /// See [`ColumnOrder::of`].
    pub(super) fn order<'n>(
        &self,
        columns: impl ExactSizeIterator<Item = &'n str> + Clone,
        features: &[String],
        are_named: bool,
    ) -> Result<Option<Vec<usize>>, CodecError> {
        match ColumnOrder::of(columns, features, are_named)? {
            ColumnOrder::ByName(order) => Ok(Some(order)),
            ColumnOrder::Sent => Ok(None),
            ColumnOrder::ByPosition => {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    let first = features.first().map_or("", |name| short(name));
                    warn!(
                        model = &*self.model,
                        "The columns of a request have other names than the features of this model, such as `{first}`, and are taken in \
                         their order. Name them as the features, and their order does not matter. This is logged once."
                    );
                }
                Ok(None)
            }
        }
    }
}
