//! Values that are usually empty.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};

use http::HeaderMap;
use serde_json::{Map, Value};

/// A collection that is usually empty: it takes a pointer, and memory of its own once it is written to.
///
/// Requests, responses and tensors are moved through dozens of calls, and most of them have neither headers nor parameters. Clones share
/// the collection until one of them is written to: each step of a graph has the parameters of the request, however large they are.
#[derive(Debug, Clone)]
pub struct Seldom<T>(Option<Arc<T>>);

/// A collection that has a shared empty value.
pub trait Collection: Clone + Default + 'static {
    fn empty() -> &'static Self;
}

impl Collection for HeaderMap {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        &EMPTY
    }
}

impl Collection for Map<String, Value> {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        &EMPTY
    }
}

impl<T: Collection> Seldom<T> {
    /// Returns the collection if it was written to. It may be empty again.
    pub fn written(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(Arc::make_mut)
    }

    pub fn into_inner(self) -> T {
        self.0.map_or_else(T::default, Arc::unwrap_or_clone)
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Collection> Deref for Seldom<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::empty())
    }
}

impl<T: Collection> DerefMut for Seldom<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<T: Collection + PartialEq> PartialEq for Seldom<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Collection + PartialEq> From<T> for Seldom<T> {
    fn from(inner: T) -> Self {
        Self((inner != *T::empty()).then(|| Arc::new(inner)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{InferenceRequest, InferenceResponse, Parameters, Tensor};

    #[test]
    fn seldom_takes_memory_once_it_is_written_to() {
        let mut map = Seldom::<Map<String, Value>>::default();
        assert!(map.is_empty() && map.get("a").is_none() && map.written().is_none());
        map.insert("a".to_owned(), Value::Null);
        assert_eq!((map.len(), map.written().unwrap().len()), (1, 1));
        assert_eq!(map, Seldom::from(map.clone().into_inner()));
        map.clear();
        assert_eq!(map, Seldom::default());
        assert!(Seldom::from(Map::new()).written().is_none());
    }

    /// Each of them is copied many times per request.
    #[test]
    fn requests_and_responses_are_small() {
        let sizes = [
            (size_of::<Parameters>(), 40),
            (size_of::<Tensor>(), 176),
            (size_of::<InferenceRequest>(), 176),
            (size_of::<InferenceResponse>(), 144),
        ];
        for (size, limit) in sizes {
            assert!(size <= limit, "{sizes:?}");
        }
    }
}
