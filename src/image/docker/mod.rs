//! Builds images with a Docker engine, pushes them and checks them.

mod check;
mod context;
mod credentials;
mod endpoint;
mod engine;
mod executable;
mod progress;
#[cfg(test)]
mod scripted;

pub use check::{CHECK_LABEL, CheckError, CheckSample, ImageCheck};
pub use context::BuildContext;
pub use credentials::CredentialsError;
pub use endpoint::EndpointError;
pub use engine::{BuildRequest, BuiltImage, DockerEngine, EngineError};
pub use executable::{files as executable, is_dynamic};
pub use progress::BuildFailure;
