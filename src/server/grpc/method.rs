//! The methods of the gRPC server: one table.

use crate::access::Scope;

/// The services whose health is that of the server.
pub(super) const INFERENCE: &str = "inference.GRPCInferenceService";
pub(super) const REPOSITORY: &str = "inference.model_repository.ModelRepositoryService";
const HEALTH: &str = "grpc.health.v1.Health";

/// The action of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MethodAction {
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

/// The kinds of calls, as in the labels of metrics.
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
    pub(super) action: MethodAction,
    pub(super) kind: CallKind,
    pub(super) scope: Scope,
    /// Whether the method is a probe, which is called all the time and therefore not traced.
    pub(super) is_probe: bool,
}

/// Declares a method with one message in each direction.
const fn unary(service: &'static str, name: &'static str, action: MethodAction, scope: Scope) -> MethodSpec {
    MethodSpec { service, name, action, kind: CallKind::Unary, scope, is_probe: false }
}

/// Declares a health check of one message in each direction.
const fn probe(service: &'static str, name: &'static str, action: MethodAction) -> MethodSpec {
    MethodSpec { is_probe: true, ..unary(service, name, action, Scope::Open) }
}

/// The number of methods.
pub(super) const METHODS: usize = 15;

/// Every method.
pub(super) static TABLE: [MethodSpec; METHODS] = [
    unary(INFERENCE, "ModelInfer", MethodAction::ModelInfer, Scope::Infer),
    MethodSpec {
        kind: CallKind::BidiStreaming,
        ..unary(INFERENCE, "ModelStreamInfer", MethodAction::ModelStreamInfer, Scope::Infer)
    },
    probe(INFERENCE, "ServerLive", MethodAction::ServerLive),
    probe(INFERENCE, "ServerReady", MethodAction::ServerReady),
    unary(INFERENCE, "ModelReady", MethodAction::ModelReady, Scope::Open),
    unary(INFERENCE, "ServerMetadata", MethodAction::ServerMetadata, Scope::Read),
    unary(INFERENCE, "ModelMetadata", MethodAction::ModelMetadata, Scope::Read),
    unary(INFERENCE, "RepositoryIndex", MethodAction::Index, Scope::Read),
    unary(INFERENCE, "RepositoryModelLoad", MethodAction::Load, Scope::Admin),
    unary(INFERENCE, "RepositoryModelUnload", MethodAction::Unload, Scope::Admin),
    // The deprecated service, whose messages have other names and the same layout.
    unary(REPOSITORY, "RepositoryIndex", MethodAction::Index, Scope::Read),
    unary(REPOSITORY, "RepositoryModelLoad", MethodAction::Load, Scope::Admin),
    unary(REPOSITORY, "RepositoryModelUnload", MethodAction::Unload, Scope::Admin),
    probe(HEALTH, "Check", MethodAction::HealthCheck),
    MethodSpec { kind: CallKind::ServerStreaming, ..probe(HEALTH, "Watch", MethodAction::HealthWatch) },
];

/// A method of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Method {
    /// The row's index, below [`METHODS`].
    pub(super) index: usize,
    pub(super) spec: &'static MethodSpec,
}

impl Method {
    /// Finds the method of a path.
    pub(super) fn find(path: &str) -> Option<Self> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        let found = |(_, spec): &(usize, &MethodSpec)| spec.name == name && spec.service == service;
        TABLE.iter().enumerate().find(found).map(|(index, spec)| Self { index, spec })
    }

    /// Reports whether the method belongs to the repository API.
    pub(super) const fn is_repository(self) -> bool {
        matches!(self.spec.action, MethodAction::Index | MethodAction::Load | MethodAction::Unload)
    }

    /// Reports whether the method needs no right.
    pub(super) fn is_open(self) -> bool {
        self.spec.scope == Scope::Open
    }

    /// Reports whether the messages hold tensors, so that the configured limit on messages applies.
    pub(super) const fn is_inference(self) -> bool {
        matches!(self.spec.action, MethodAction::ModelInfer | MethodAction::ModelStreamInfer)
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
