//! The double of a loader of the unit tests: the library contains it only when it is compiled for its own tests.

use mlserver::registry::{LoadError, Loader, RuntimeFuture};
use mlserver::runtimes::{FnRuntime, Runtime};
use mlserver::settings::ModelSettings;

#[expect(dead_code, reason = "unit tests use the rest")]
#[path = "../../src/registry/fn_loader.rs"]
mod fn_loader;

pub(crate) use fn_loader::FnLoader;
