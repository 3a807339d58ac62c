//! Request bodies: whatever the bytes are, reading ends in a request or an error, and a request that was read can be
//! written and read again to the same tensors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlserver::types::InferenceResponse;
use mlserver::types::json::{read_request, write_response};

fuzz_target!(|text: &[u8]| {
    let Ok((request, _)) = read_request(text) else { return };
    let response = InferenceResponse { outputs: request.inputs.clone(), ..InferenceResponse::default() };
    let written = write_response(&response).expect("text that was read is UTF-8");
    let written = String::from_utf8(written).expect("JSON is UTF-8");
    let (again, _) = read_request(written.replacen("\"outputs\"", "\"inputs\"", 1).as_bytes()).expect("what we write we read");
    for (first, second) in request.inputs.iter().zip(&again.inputs) {
        assert_eq!((&first.name, first.datatype, &first.shape), (&second.name, second.datatype, &second.shape));
        // NaN and infinities are written as null, so only lengths are compared of floats.
        assert_eq!(first.byte_len(), second.byte_len());
    }
});
