//! Which calls are served.

/// The services that count as the server itself: their health is its own.
pub(super) const INFERENCE: &str = "inference.GRPCInferenceService";
pub(super) const REPOSITORY: &str = "inference.model_repository.ModelRepositoryService";
const HEALTH: &str = "grpc.health.v1.Health";

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
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
    /// The calls of the deprecated service, whose messages have names of their own and the same form.
    OldIndex,
    OldLoad,
    OldUnload,
    HealthCheck,
    HealthWatch,
}

impl Method {
    /// Every call, each at the place that its discriminant says.
    pub(super) const ALL: [Self; 15] = [
        Self::ServerLive,
        Self::ServerReady,
        Self::ModelReady,
        Self::ServerMetadata,
        Self::ModelMetadata,
        Self::ModelInfer,
        Self::ModelStreamInfer,
        Self::Index,
        Self::Load,
        Self::Unload,
        Self::OldIndex,
        Self::OldLoad,
        Self::OldUnload,
        Self::HealthCheck,
        Self::HealthWatch,
    ];

    pub(super) fn find(path: &str) -> Option<Self> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        Self::ALL.into_iter().find(|method| method.name() == name && method.service() == service)
    }

    /// Tells whether it is asked all the time, and nobody wants to follow it.
    pub(super) const fn is_probe(self) -> bool {
        matches!(self, Self::ServerLive | Self::ServerReady | Self::HealthCheck | Self::HealthWatch)
    }

    pub(super) const fn service(self) -> &'static str {
        match self {
            Self::OldIndex | Self::OldLoad | Self::OldUnload => REPOSITORY,
            Self::HealthCheck | Self::HealthWatch => HEALTH,
            _ => INFERENCE,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ServerLive => "ServerLive",
            Self::ServerReady => "ServerReady",
            Self::ModelReady => "ModelReady",
            Self::ServerMetadata => "ServerMetadata",
            Self::ModelMetadata => "ModelMetadata",
            Self::ModelInfer => "ModelInfer",
            Self::ModelStreamInfer => "ModelStreamInfer",
            Self::Index | Self::OldIndex => "RepositoryIndex",
            Self::Load | Self::OldLoad => "RepositoryModelLoad",
            Self::Unload | Self::OldUnload => "RepositoryModelUnload",
            Self::HealthCheck => "Check",
            Self::HealthWatch => "Watch",
        }
    }

    /// Returns the kind of call, as metrics name it.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::ModelStreamInfer => "BIDI_STREAMING",
            Self::HealthWatch => "SERVER_STREAMING",
            _ => "UNARY",
        }
    }

    pub(super) const fn is_inference(self) -> bool {
        matches!(self, Self::ModelInfer | Self::ModelStreamInfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_found_by_its_path() {
        for (place, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, place);
            assert_eq!(Method::find(&format!("/{}/{}", method.service(), method.name())), Some(method));
        }
        for path in
            ["", "/", "/inference.GRPCInferenceService", "/inference.GRPCInferenceService/Check", "/x/ModelInfer"]
        {
            assert_eq!(Method::find(path), None, "{path}");
        }
    }
}
