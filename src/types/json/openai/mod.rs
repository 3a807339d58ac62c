//! The JSON of OpenAI's API: what the server reads of a request, and the answers of models that only take tensors.

mod answer;
mod request;

pub use answer::{
    OutputError, Pooling, VectorOptions, write_completion, write_completion_chunk, write_embeddings, write_rerank,
};
pub use request::{OpenAiError, OpenAiHead, RerankTexts, VectorEncoding, read_head, read_rerank, read_texts};
