//! Messages of gRPC: reading any bytes as a `ModelInferRequest` returns a request or an error, in a request every shape is
//! that of its data, and what must be converted is known without reading.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mlserver::types::InferenceResponse;
use mlserver::types::protobuf::{ProtobufRequest, ResponseEncoder, bytes_to_convert, read_request};

fuzz_target!(|message: &[u8]| {
    let message = Bytes::copy_from_slice(message);
    assert!(bytes_to_convert(&message) <= message.len());
    let Ok(ProtobufRequest { request, raw, .. }) = read_request(&message) else { return };
    for input in &request.inputs {
        input.check().expect("shapes are checked when they are read");
    }
    // A part of the message, and at most ten bytes of memory for each of its bytes: a number may take one byte.
    assert!(request.inputs.iter().map(|input| input.byte_len()).sum::<usize>() <= 16 * message.len());
    let response = InferenceResponse { outputs: request.inputs, ..InferenceResponse::default() };
    drop(ResponseEncoder::new(&response, raw));
});
