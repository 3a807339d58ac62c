//! Metadata of the server and of models.

use serde::{Deserialize, Serialize};

use super::Parameters;

/// The body of `GET /v2`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerMetadata {
    pub name: String,
    pub version: String,
    pub extensions: Vec<String>,
}

/// The body of `GET /v2/models/{name}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelMetadata {
    pub name: String,
    /// The setting `versions`, which the original documents as versions of dependencies.
    #[serde(default)]
    pub versions: Vec<String>,
    pub platform: String,
    #[serde(default)]
    pub inputs: Vec<TensorMetadata>,
    #[serde(default)]
    pub outputs: Vec<TensorMetadata>,
    #[serde(default)]
    pub parameters: Parameters,
}

/// An input or output of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorMetadata {
    pub name: String,
    /// The name of a datatype, as written in the settings.
    pub datatype: String,
    /// The dimensions; -1 stands for any size.
    pub shape: Vec<i64>,
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
}
