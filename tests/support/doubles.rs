//! The doubles of the unit tests: the library contains them only when it is compiled for its own tests.

use mlserver::registry::{LoadError, Loader, RuntimeFuture};
use mlserver::runtimes::{
    BoxFuture, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError, RuntimeStatus,
};
use mlserver::settings::ModelSettings;
use mlserver::types::{CustomCall, CustomReply, InferenceRequest, InferenceResponse};

#[expect(dead_code, reason = "unit tests use the rest")]
#[path = "../../src/registry/fn_loader.rs"]
mod fn_loader;
#[expect(dead_code, reason = "unit tests use the rest")]
#[path = "../../src/runtimes/fn_runtime.rs"]
mod fn_runtime;

pub(crate) use fn_loader::FnLoader;
pub(crate) use fn_runtime::FnRuntime;
