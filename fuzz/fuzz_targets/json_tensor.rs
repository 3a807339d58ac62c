//! Request bodies: reading any bytes returns a request or an error, and a request that was read can be written and read
//! back to the same tensors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlserver::types::InferenceResponse;
use mlserver::types::json::{JsonRequest, WriteOptions, read_request, write_response};

fuzz_target!(|text: &[u8]| {
    let Ok(JsonRequest { request, .. }) = read_request(text, None) else { return };
    let response = InferenceResponse { outputs: request.inputs.clone(), ..InferenceResponse::default() };
    let written = write_response(&response, &WriteOptions::default()).expect("text that was read is UTF-8");
    let written = String::from_utf8(written.json).expect("JSON is UTF-8");
    let again = written.replacen("\"outputs\"", "\"inputs\"", 1);
    let again = read_request(again.as_bytes(), None).expect("our own output is readable");
    for (first, second) in request.inputs.iter().zip(&again.request.inputs) {
        assert_eq!((&first.name, first.datatype, &first.shape), (&second.name, second.datatype, &second.shape));
        // NaN and infinities are written as null, so only the lengths of floats are compared.
        assert_eq!(first.byte_len(), second.byte_len());
    }
});
