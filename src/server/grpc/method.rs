//! The calls of the gRPC server: one table.

use crate::server::scope::Scope;

/// The services that count as the server itself: their health is its own.
pub(super) const INFERENCE: &str = "inference.GRPCInferenceService";
pub(super) const REPOSITORY: &str = "inference.model_repository.ModelRepositoryService";
const HEALTH: &str = "grpc.health.v1.Health";

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    ServerLive,
    ServerReady,
    ModelReady,
    ServerMetadata,
    ModelMetadata,
    ModelInfer,
    ModelStreamInfer,
    Index,
    Load,
    Unload,
    HealthCheck,
    HealthWatch,
}

/// The kinds of calls, as metrics name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    Unary,
    ServerStreaming,
    BidiStreaming,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct MethodSpec {
    pub(super) service: &'static str,
    pub(super) name: &'static str,
    pub(super) action: Action,
    pub(super) kind: CallKind,
    pub(super) scope: Scope,
    /// Whether probes call it all the time, so that the access log leaves it out.
    pub(super) is_probe: bool,
}

/// Declares a call of one message in each direction.
const fn unary(service: &'static str, name: &'static str, action: Action, scope: Scope) -> MethodSpec {
    MethodSpec { service, name, action, kind: CallKind::Unary, scope, is_probe: false }
}

/// Declares a health check of one message in each direction.
const fn probe(service: &'static str, name: &'static str, action: Action) -> MethodSpec {
    MethodSpec { is_probe: true, ..unary(service, name, action, Scope::Open) }
}

/// The number of calls.
pub(super) const METHODS: usize = 15;

/// Every call.
pub(super) static TABLE: [MethodSpec; METHODS] = [
    unary(INFERENCE, "ModelInfer", Action::ModelInfer, Scope::Infer),
    MethodSpec {
        kind: CallKind::BidiStreaming,
        ..unary(INFERENCE, "ModelStreamInfer", Action::ModelStreamInfer, Scope::Infer)
    },
    probe(INFERENCE, "ServerLive", Action::ServerLive),
    probe(INFERENCE, "ServerReady", Action::ServerReady),
    unary(INFERENCE, "ModelReady", Action::ModelReady, Scope::Open),
    unary(INFERENCE, "ServerMetadata", Action::ServerMetadata, Scope::Read),
    unary(INFERENCE, "ModelMetadata", Action::ModelMetadata, Scope::Read),
    unary(INFERENCE, "RepositoryIndex", Action::Index, Scope::Read),
    unary(INFERENCE, "RepositoryModelLoad", Action::Load, Scope::Admin),
    unary(INFERENCE, "RepositoryModelUnload", Action::Unload, Scope::Admin),
    // The deprecated service, whose messages have other names and the same form.
    unary(REPOSITORY, "RepositoryIndex", Action::Index, Scope::Read),
    unary(REPOSITORY, "RepositoryModelLoad", Action::Load, Scope::Admin),
    unary(REPOSITORY, "RepositoryModelUnload", Action::Unload, Scope::Admin),
    probe(HEALTH, "Check", Action::HealthCheck),
    MethodSpec { kind: CallKind::ServerStreaming, ..probe(HEALTH, "Watch", Action::HealthWatch) },
];

/// A call of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method {
    /// The row's index, below [`METHODS`].
    pub(super) index: usize,
    pub(super) spec: &'static MethodSpec,
}

impl Method {
    /// Finds the call of a path.
    pub(super) fn find(path: &str) -> Option<Self> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        let found = |(_, spec): &(usize, &MethodSpec)| spec.name == name && spec.service == service;
        TABLE.iter().enumerate().find(found).map(|(index, spec)| Self { index, spec })
    }

    /// Reports whether the call's messages hold tensors, so that the limit on messages is the configured one.
    pub(super) const fn is_inference(self) -> bool {
        matches!(self.spec.action, Action::ModelInfer | Action::ModelStreamInfer)
    }
}

impl CallKind {
    /// Returns the label of metrics.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Unary => "UNARY",
            Self::ServerStreaming => "SERVER_STREAMING",
            Self::BidiStreaming => "BIDI_STREAMING",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grpc_method_is_found_by_its_path() {
        for (index, spec) in TABLE.iter().enumerate() {
            let found = Method::find(&format!("/{}/{}", spec.service, spec.name)).unwrap();
            assert_eq!(found.index, index);
        }
        for path in
            ["", "/", "/inference.GRPCInferenceService", "/inference.GRPCInferenceService/Check", "/x/ModelInfer"]
        {
            assert!(Method::find(path).is_none(), "{path}");
        }
    }
}
