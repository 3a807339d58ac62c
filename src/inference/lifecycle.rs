//! The phases of the server, and its readiness.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Inference;
use crate::registry::RegisteredModel;

/// The phases of the server, in order.
pub(super) mod phase {
    pub(in crate::inference) const SERVING: u8 = 0;
    /// Requests are still answered, but the server is not ready.
    pub(in crate::inference) const SHUTTING_DOWN: u8 = 1;
    pub(in crate::inference) const STOPPING: u8 = 2;
}

impl Inference {
    /// Announces the shutdown: from now on the server is not ready, but still answers requests.
    pub fn announce_shutdown(&self) {
        self.enter(phase::SHUTTING_DOWN);
    }

    /// Rejects new requests from now on; those in flight continue.
    pub fn stop(&self) {
        self.enter(phase::STOPPING);
    }

    fn enter(&self, phase: u8) {
        self.phase.fetch_max(phase, Ordering::AcqRel);
        self.registry.announce_change();
    }

    /// Reports whether [`Inference::announce_shutdown`] or [`Inference::stop`] has been called, after which the server is not
    /// ready.
    pub fn is_shutting_down(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= phase::SHUTTING_DOWN
    }

    /// Reports whether the server can answer: every model that it was started with is ready, and it is not shutting down.
    pub fn is_ready(&self) -> bool {
        !self.is_shutting_down() && self.has_joined() && self.registry.is_ready()
    }

    /// Reports whether the flag of [`Inference::with_readiness_flag`] is set, or there is none.
    pub fn has_joined(&self) -> bool {
        self.joined.as_ref().is_none_or(|joined| joined.load(Ordering::Acquire))
    }

    /// Reports whether a model can answer, and the server is not shutting down.
    pub fn is_model_ready(&self, model: &RegisteredModel) -> bool {
        !self.is_shutting_down() && model.state.is_ready()
    }

    /// Reports whether a model can answer, as [`Inference::is_model_ready`] does, and its own code agrees.
    pub async fn is_model_ready_now(&self, model: &Arc<RegisteredModel>) -> bool {
        self.is_model_ready(model) && self.own_obstacle(model).await.is_none()
    }

    /// Reports whether the server can answer, as [`Inference::is_ready`] does, and the code of its models agrees.
    pub async fn is_ready_now(&self) -> bool {
        self.is_ready() && self.own_obstacles().await.is_empty()
    }

    /// Reports whether [`Inference::stop`] has been called.
    pub fn is_stopping(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= phase::STOPPING
    }
}
