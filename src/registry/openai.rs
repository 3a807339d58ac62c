//! The setting `parameters.extra.openai`: which tensors of a model answer OpenAI's API.

use serde::Deserialize;

use crate::settings::ModelSettings;
use crate::types::OpenAiApi;
use crate::types::json::openai::Pooling;

/// The tensors with which a model that only takes tensors answers endpoints of OpenAI's API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenAiTensors {
    #[serde(default)]
    pub embeddings: Option<EmbeddingTensors>,
    #[serde(default)]
    pub completions: Option<CompletionTensors>,
    #[serde(default)]
    pub rerank: Option<RerankTensors>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingTensors {
    pub input: String,
    pub output: String,
    #[serde(default)]
    pub pooling: Pooling,
    /// Whether vectors are divided by their length.
    #[serde(default)]
    pub normalize: bool,
    /// Whether requests may cut vectors.
    #[serde(default)]
    pub dimensions: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionTensors {
    pub input: String,
    pub output: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RerankTensors {
    pub query: String,
    pub documents: String,
    pub output: String,
}

impl OpenAiTensors {
    /// Reads the setting.
    ///
    /// # Errors
    ///
    /// Fails if it is not an object of known endpoints with the names of their tensors.
    pub fn from_settings(settings: &ModelSettings) -> Result<Option<Self>, serde_json::Error> {
        let setting = settings.parameters.extra.get("openai").filter(|value| !value.is_null());
        setting.map(Self::deserialize).transpose()
    }

    /// Reports whether they answer an endpoint.
    pub const fn answers(&self, api: OpenAiApi) -> bool {
        match api {
            OpenAiApi::ChatCompletions => false,
            OpenAiApi::Completions => self.completions.is_some(),
            OpenAiApi::Embeddings => self.embeddings.is_some(),
            OpenAiApi::Rerank => self.rerank.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn setting_names_tensors_of_endpoints() {
        let read = |value| {
            let mut settings = ModelSettings::new("m", "tests.Model");
            settings.parameters.extra.insert("openai".to_owned(), value);
            OpenAiTensors::from_settings(&settings)
        };
        assert_eq!(OpenAiTensors::from_settings(&ModelSettings::new("m", "tests.Model")).unwrap(), None);
        assert_eq!(read(json!(null)).unwrap(), None);
        let tensors =
            read(json!({"embeddings": {"input": "text", "output": "y", "pooling": "mean"}})).unwrap().unwrap();
        let embeddings = tensors.embeddings.as_ref().unwrap();
        assert_eq!((embeddings.pooling, embeddings.normalize, embeddings.dimensions), (Pooling::Mean, false, false));
        assert!(tensors.answers(OpenAiApi::Embeddings) && !tensors.answers(OpenAiApi::Completions));
        for wrong in [
            json!(1),
            json!({"chat": {}}),
            json!({"embeddings": {"input": "text"}}),
            json!({"embeddings": {"input": "text", "output": "y", "pooling": "max"}}),
            json!({"completions": {"input": "text", "output": "y", "other": 1}}),
            json!({"rerank": {"query": "q", "output": "y"}}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
