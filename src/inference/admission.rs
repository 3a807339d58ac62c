//! Admission: how many requests may be in the server at once, and how many bytes they may take.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::InferenceError;
use crate::types::byte_budget::HeldBytes;
use crate::types::{ByteBudget, ByteReservation};

/// The right of one request to be in the server.
///
/// It is empty at first, and takes a slot of the server when the request is about to be predicted: at once or not at all by
/// default, or after [`Inference::wait_for_slot`](super::Inference::wait_for_slot), as consumers of queues want. The
/// transport keeps it until the response has been sent or dropped, so that responses that nobody reads count, too.
///
/// It also holds the bytes of the request and its response, from the first byte of the body on: before the request has a slot.
#[derive(Debug, Default)]
pub struct Admission {
    slot: AdmissionSlot,
    /// The memory of the request: of its body, then of its tensors, then also of its response.
    pub reservation: ByteReservation,
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
    /// Returns an admission that has no slot yet, and whose bytes have no limit: for requests of the process itself.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an admission that holds bytes, and has no slot yet.
    pub const fn holding(reservation: ByteReservation) -> Self {
        Self { slot: AdmissionSlot::None, reservation }
    }

    /// Returns the admission of a step of this request, such as a node of an inference graph.
    ///
    /// It shares the slot. So a request that has been admitted can always finish, however many steps it takes.
    #[must_use]
    pub fn nested(&mut self) -> Self {
        let shared = match std::mem::take(&mut self.slot) {
            AdmissionSlot::None => return Self { slot: AdmissionSlot::None, reservation: self.reservation.sibling() },
            AdmissionSlot::Owned(permit) => Arc::new(permit),
            AdmissionSlot::Shared(permit) => permit,
        };
        self.slot = AdmissionSlot::Shared(Arc::clone(&shared));
        Self { slot: AdmissionSlot::Shared(shared), reservation: self.reservation.sibling() }
    }

    /// Reports whether the request has been admitted.
    pub const fn has_slot(&self) -> bool {
        !matches!(self.slot, AdmissionSlot::None)
    }

    /// Attaches the admission to the last bytes of a response, so that it ends when they have been sent or dropped.
    pub fn attach(self, bytes: Bytes) -> Bytes {
        let holds = self.has_slot() || self.reservation.bytes() > 0;
        if holds { Bytes::from_owner(HeldBytes { bytes, _held: self }) } else { bytes }
    }
}

/// The slots of the server, and the bytes that requests may take. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct AdmissionSlots {
    semaphore: Arc<Semaphore>,
    limit: usize,
    budget: Option<ByteBudget>,
}

impl AdmissionSlots {
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { semaphore: Arc::new(Semaphore::new(limit)), limit, budget: None }
    }

    /// Limits the bytes that requests and their responses may take.
    pub(super) fn with_budget(self, budget: ByteBudget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// Returns an admission that has no slot and no bytes yet.
    pub(super) fn admission(&self) -> Admission {
        let reservation = self.budget.as_ref().map(ByteBudget::reservation).unwrap_or_default();
        Admission { slot: AdmissionSlot::None, reservation }
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
