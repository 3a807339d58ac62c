//! Bodies of OpenAI's API: any bytes are a request or an error. Only JSON is a request, and its texts are those of the body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlserver::types::OpenAiApi;
use mlserver::types::json::openai::{read_head, read_rerank, read_texts};

fuzz_target!(|bytes: &[u8]| {
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    for api in OpenAiApi::ALL {
        let Ok(head) = read_head(api, bytes) else { continue };
        assert!(is_json, "only JSON is a request");
        assert!(head.model.len() <= bytes.len() && head.dimensions != Some(0));
        match api {
            OpenAiApi::ChatCompletions => {}
            OpenAiApi::Completions | OpenAiApi::Embeddings => {
                // Lists of tokens are a request for models with a method.
                if let Ok(texts) = read_texts(api, bytes) {
                    assert!(!texts.is_empty() && texts.size() <= bytes.len());
                }
            }
            OpenAiApi::Rerank => {
                let texts = read_rerank(bytes).expect("the head has been read");
                assert!(!texts.documents.is_empty() && texts.documents.size() <= bytes.len());
            }
        }
    }
});
