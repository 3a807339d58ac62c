//! The byte budget: how many bytes all requests in flight, and their responses, may take together.
//!
//! Bytes are reserved when they are there or about to be, never because a client declares them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// A limit on bytes that requests share. Clones share it.
#[derive(Debug, Clone)]
pub struct ByteBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    limit: usize,
    in_use: AtomicUsize,
}

/// The bytes of one request, which are given back when this is dropped.
///
/// The default has no budget, and so no limit: for requests that the process sends to itself.
#[derive(Debug, Default)]
pub struct ByteReservation {
    budget: Option<ByteBudget>,
    bytes: usize,
}

/// A request needs more bytes than are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    #[error(
        "the requests in flight already take {in_use} of the {limit} bytes of `max_request_bytes_in_flight`; \
         try again later"
    )]
    InUse { in_use: usize, limit: usize },
    /// It would not fit if it were alone.
    #[error("the request and its response take {bytes} bytes, more than `max_request_bytes_in_flight` ({limit})")]
    TooLarge { bytes: usize, limit: usize },
}

impl ByteBudget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(BudgetState { limit, in_use: AtomicUsize::new(0) }))
    }

    /// Returns the most bytes that may be reserved.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Returns the bytes that are reserved.
    pub fn in_use(&self) -> usize {
        self.0.in_use.load(Ordering::Relaxed)
    }

    /// Returns an empty reservation.
    pub fn reservation(&self) -> ByteReservation {
        ByteReservation { budget: Some(self.clone()), bytes: 0 }
    }

    /// Returns the error of a request that has `held` bytes and needs `more`.
    fn exceeded(&self, held: usize, more: usize, in_use: usize) -> OverBudget {
        let (bytes, limit) = (held.saturating_add(more), self.0.limit);
        if bytes > limit { OverBudget::TooLarge { bytes, limit } } else { OverBudget::InUse { in_use, limit } }
    }
}

impl ByteReservation {
    /// Returns another empty reservation of the same budget.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self { budget: self.budget.clone(), bytes: 0 }
    }

    /// Returns the bytes that are reserved.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks whether `more` bytes fit now, without reserving them.
    ///
    /// # Errors
    ///
    /// Fails if they do not.
    pub fn check(&self, more: usize) -> Result<(), OverBudget> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let in_use = budget.in_use();
        if more <= budget.0.limit.saturating_sub(in_use) {
            Ok(())
        } else {
            Err(budget.exceeded(self.bytes, more, in_use))
        }
    }

    /// Reserves `more` bytes.
    ///
    /// # Errors
    ///
    /// Fails without reserving any if they do not fit.
    pub fn grow(&mut self, more: usize) -> Result<(), OverBudget> {
        if let Some(budget) = &self.budget {
            // `in_use` cannot overflow: it is at most the limit, plus what concurrent calls add before they take it back.
            let before = budget.0.in_use.fetch_add(more.min(budget.0.limit + 1), Ordering::Relaxed);
            if more > budget.0.limit.saturating_sub(before) {
                budget.0.in_use.fetch_sub(more.min(budget.0.limit + 1), Ordering::Relaxed);
                return Err(budget.exceeded(self.bytes, more, before));
            }
        }
        self.bytes += more;
        Ok(())
    }

    /// Reserves `bytes` in all: more or fewer than now.
    ///
    /// # Errors
    ///
    /// Fails without a change if they do not fit.
    pub fn resize(&mut self, bytes: usize) -> Result<(), OverBudget> {
        if bytes >= self.bytes {
            return self.grow(bytes - self.bytes);
        }
        if let Some(budget) = &self.budget {
            budget.0.in_use.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Splits off `bytes`, or all if there are fewer.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes }
    }

    /// Adds the bytes of another reservation of the same budget.
    pub fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Attaches the reservation to bytes, so that it ends when they have been sent or dropped.
    #[must_use]
    pub fn attach(self, bytes: Bytes) -> Bytes {
        if self.bytes == 0 { bytes } else { Bytes::from_owner(HeldBytes { bytes, _held: self }) }
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget
            && self.bytes > 0
        {
            budget.0.in_use.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A clone of a request reserves nothing: it shares the tensors.
impl Clone for ByteReservation {
    fn clone(&self) -> Self {
        self.sibling()
    }
}

/// Bytes that keep something alive until they have been sent or dropped.
pub(crate) struct HeldBytes<T> {
    pub(crate) bytes: Bytes,
    pub(crate) _held: T,
}

impl<T> AsRef<[u8]> for HeldBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn byte_budget_rejects_what_does_not_fit() {
        let budget = ByteBudget::new(100);
        let (mut first, mut second) = (budget.reservation(), budget.reservation());
        first.grow(60).unwrap();
        assert_eq!(second.check(41), Err(OverBudget::InUse { in_use: 60, limit: 100 }));
        assert_eq!(second.grow(41), Err(OverBudget::InUse { in_use: 60, limit: 100 }));
        second.grow(40).unwrap();
        assert_eq!(second.grow(61), Err(OverBudget::TooLarge { bytes: 101, limit: 100 }));
        assert_eq!(second.grow(usize::MAX), Err(OverBudget::TooLarge { bytes: usize::MAX, limit: 100 }));
        assert_eq!(budget.in_use(), 100);
        drop(first);
        assert_eq!(budget.in_use(), 40);
        second.resize(100).unwrap();
        second.resize(1).unwrap();
        assert_eq!(budget.in_use(), 1);
    }

    #[test]
    fn attached_reservation_ends_with_the_last_bytes() {
        let budget = ByteBudget::new(100);
        let mut reservation = budget.reservation();
        reservation.grow(10).unwrap();
        let bytes = reservation.attach(Bytes::from_static(b"response"));
        let rest = bytes.slice(3..);
        drop(bytes);
        assert_eq!((rest.as_ref(), budget.in_use()), (b"ponse".as_slice(), 10));
        drop(rest);
        assert_eq!(budget.in_use(), 0);
    }

    proptest! {
        #[test]
        fn byte_budget_is_the_sum_of_its_reservations(
            steps in proptest::collection::vec((0..4_usize, 0..4_u8, 0..80_usize), 0..100),
        ) {
            let budget = ByteBudget::new(100);
            let mut all: Vec<_> = (0..4).map(|_| budget.reservation()).collect();
            for (index, action, bytes) in steps {
                let before = all[index].bytes();
                match action {
                    0 => { let _ = all[index].grow(bytes); }
                    1 => { let _ = all[index].resize(bytes); }
                    2 => { let part = all[index].split(bytes); all[(index + 1) % 4].merge(part); }
                    _ => all[index] = budget.reservation(),
                }
                let sum: usize = all.iter().map(ByteReservation::bytes).sum();
                prop_assert_eq!(budget.in_use(), sum);
                prop_assert!(sum <= 100, "{} was {}", index, before);
            }
        }
    }
}
