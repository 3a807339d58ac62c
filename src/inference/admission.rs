//! Admission: how many requests may be in the server at once.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::InferenceError;

/// The right of one request to be in the server.
///
/// It is empty at first, and takes a slot of the server when the request is about to be predicted: at once or not at all by
/// default, or after [`Inference::wait_for_slot`](super::Inference::wait_for_slot), as consumers of queues want. The
/// transport keeps it until the response has been sent or dropped, so that responses that nobody reads count, too.
#[derive(Debug, Default)]
pub struct Admission {
    slot: AdmissionSlot,
}

/// The slot of an admission. Most requests have no steps, and need no shared ownership.
#[derive(Debug, Default)]
enum AdmissionSlot {
    #[default]
    None,
    Owned(OwnedSemaphorePermit),
    Shared(Arc<OwnedSemaphorePermit>),
}

impl Admission {
    /// Returns an admission that has no slot yet.
    pub const fn new() -> Self {
        Self { slot: AdmissionSlot::None }
    }

    /// Returns the admission of a step of this request, such as a node of an inference graph.
    ///
    /// It shares the slot. So a request that has been admitted can always finish, however many steps it takes.
    #[must_use]
    pub fn nested(&mut self) -> Self {
        let shared = match std::mem::take(&mut self.slot) {
            AdmissionSlot::None => return Self::new(),
            AdmissionSlot::Owned(permit) => Arc::new(permit),
            AdmissionSlot::Shared(permit) => permit,
        };
        self.slot = AdmissionSlot::Shared(Arc::clone(&shared));
        Self { slot: AdmissionSlot::Shared(shared) }
    }

    /// Reports whether the request has been admitted.
    pub const fn has_slot(&self) -> bool {
        !matches!(self.slot, AdmissionSlot::None)
    }

    /// Attaches the admission to the last bytes of a response, so that it ends when they have been sent or dropped.
    pub fn attach(self, bytes: Bytes) -> Bytes {
        if self.has_slot() { Bytes::from_owner(AdmittedBytes { bytes, _admission: self }) } else { bytes }
    }
}

/// Bytes of a response that keep its admission.
struct AdmittedBytes {
    bytes: Bytes,
    _admission: Admission,
}

impl AsRef<[u8]> for AdmittedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The slots of the server. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct AdmissionSlots {
    semaphore: Arc<Semaphore>,
    limit: usize,
}

impl AdmissionSlots {
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { semaphore: Arc::new(Semaphore::new(limit)), limit }
    }

    /// Returns the number of slots that are taken.
    pub(super) fn in_use(&self) -> usize {
        self.limit - self.semaphore.available_permits()
    }

    /// Gives a request a slot, unless it has one.
    ///
    /// # Errors
    ///
    /// Fails if all slots are taken.
    pub(super) fn admit(&self, admission: &mut Admission) -> Result<(), InferenceError> {
        if !admission.has_slot() {
            let permit = Arc::clone(&self.semaphore).try_acquire_owned();
            let permit = permit.map_err(|_| InferenceError::Overloaded { limit: self.limit })?;
            admission.slot = AdmissionSlot::Owned(permit);
        }
        Ok(())
    }

    /// Gives a request a slot as soon as one is free, in the order of the calls.
    pub(super) async fn wait(&self, admission: &mut Admission) -> Result<(), InferenceError> {
        if !admission.has_slot() {
            let permit = Arc::clone(&self.semaphore).acquire_owned().await;
            admission.slot = AdmissionSlot::Owned(permit.map_err(|_| InferenceError::Stopping)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_without_a_free_slot_is_rejected() {
        let slots = AdmissionSlots::new(1);
        let (mut first, mut second) = (Admission::new(), Admission::new());
        slots.admit(&mut first).unwrap();
        assert!(matches!(slots.admit(&mut second), Err(InferenceError::Overloaded { limit: 1 })));
        assert!(!second.has_slot());
        slots.admit(&mut first).expect("it has a slot");
        assert_eq!(slots.in_use(), 1);
        drop(first);
        slots.admit(&mut second).unwrap();
    }

    #[test]
    fn nested_admission_shares_the_slot() {
        let slots = AdmissionSlots::new(1);
        let mut outer = Admission::new();
        slots.admit(&mut outer).unwrap();
        let mut steps: Vec<_> = (0..3).map(|_| outer.nested()).collect();
        for step in &mut steps {
            slots.admit(step).expect("it runs under the outer admission");
        }
        drop(outer);
        assert_eq!(slots.in_use(), 1, "a step continues");
        drop(steps);
        assert_eq!(slots.in_use(), 0);
    }

    #[tokio::test]
    async fn waiting_admission_takes_the_next_free_slot() {
        let slots = AdmissionSlots::new(1);
        let mut first = Admission::new();
        slots.admit(&mut first).unwrap();
        let mut second = Admission::new();
        let mut waiting = Box::pin(slots.wait(&mut second));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(first);
        waiting.await.unwrap();
        assert!(second.has_slot());
    }

    #[test]
    fn admission_ends_with_the_last_bytes_of_the_response() {
        let slots = AdmissionSlots::new(1);
        let mut admission = Admission::new();
        slots.admit(&mut admission).unwrap();
        let body = admission.attach(Bytes::from_static(b"response"));
        assert_eq!((body.as_ref(), slots.in_use()), (b"response".as_slice(), 1));
        let rest = body.slice(3..);
        drop(body);
        assert_eq!(slots.in_use(), 1);
        drop(rest);
        assert_eq!(slots.in_use(), 0);
    }
}
