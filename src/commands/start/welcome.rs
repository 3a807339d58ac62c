//! The last line of a start on a terminal: where a person goes from there.

use std::fmt::Write;
use std::path::PathBuf;

use super::port_file::ListenerAddresses;
use crate::commands::shell_quoted;
use crate::families::{ModelFamily, NativeEvaluator};
use crate::inference::Inference;
use crate::registry::ModelState;
use crate::settings::{MODEL_SETTINGS_FILE, ModelSettings, Settings};

/// A model of which `mlserver inspect` may print an example request.
#[derive(Debug)]
pub(super) struct ExampleModel {
    name: String,
    folder: PathBuf,
}

impl ExampleModel {
    /// Returns the model of some settings, if its runtime evaluates files of which there are examples.
    pub(super) fn of(model: &ModelSettings) -> Option<Self> {
        let evaluator = ModelFamily::of(&model.implementation)?.native?;
        let source = model.source.as_ref().filter(|source| source.ends_with(MODEL_SETTINGS_FILE))?;
        // There are none of networks, which are files of ONNX, too.
        let has_example = !matches!(
            evaluator,
            NativeEvaluator::Identity | NativeEvaluator::Graph | NativeEvaluator::Step | NativeEvaluator::Onnx
        );
        // Other names would have to be encoded in a URL.
        let is_plain = model.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        (has_example && is_plain).then_some(Self { name: model.name.clone(), folder: source.parent()?.to_owned() })
    }

    /// Reports whether the model has been loaded, and is not served in Python.
    pub(super) fn is_native(&self, inference: &Inference) -> bool {
        inference.registry().find(&self.name, None).is_ok_and(
            |model| matches!(&model.state, ModelState::Ready(runtime) if runtime.description().backend == "native"),
        )
    }
}

/// Returns the addresses of the server's pages, and a command that sends a request. `None` if no HTTP server runs.
pub(super) fn welcome(
    addresses: &ListenerAddresses,
    settings: &Settings,
    example: Option<&ExampleModel>,
) -> Option<String> {
    let address = addresses.reachable("http")?;
    let scheme = if settings.tls.certificate.is_some() { "https" } else { "http" };
    let base = format!("{scheme}://{address}{}", settings.root_path.trim_end_matches('/'));
    let console = if settings.console { format!("Console: {base}/v2/console  ") } else { String::new() };
    let mut line = format!("{console}Documentation: {base}/v2/docs");
    if let Some(ExampleModel { name, folder }) = example {
        let folder = shell_quoted(&folder.display().to_string());
        let url = shell_quoted(&format!("{base}/v2/models/{name}/infer"));
        let key = if settings.access.api_keys_file.is_some() { " --header \"authorization: Bearer $KEY\"" } else { "" };
        // Writing to a `String` never fails.
        let _ = write!(
            line,
            "  Example: mlserver inspect {folder} --example | curl --silent{key} --header content-type:application/json --data @- {url}"
        );
    }
    Some(line)
}
