//! Request bodies with binary data after the JSON: reading any bytes returns a request or an error, and a request that
//! was read can be written as binary data and read back to the same bits.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mlserver::types::InferenceResponse;
use mlserver::types::json::{BinaryOutputs, JsonRequest, WriteOptions, JsonBody, read_request, write_response};

fuzz_target!(|bytes: &[u8]| {
    // The end of the JSON, which comes from a header in real requests.
    let Some((length, body)) = bytes.split_first_chunk() else { return };
    let mut text = Bytes::copy_from_slice(body);
    let binary = text.split_off(usize::from(u16::from_le_bytes(*length)).min(text.len()));
    let Ok(JsonRequest { request, .. }) = read_request(&text, Some(binary)) else { return };
    let response = InferenceResponse { outputs: request.inputs.clone(), ..InferenceResponse::default() };
    let options = WriteOptions { binary: BinaryOutputs::all(true), ..WriteOptions::default() };
    let JsonBody { json, binary } = write_response(&response, &options).expect("elements that were read fit their length prefixes");
    let json = String::from_utf8(json).expect("JSON is UTF-8");
    let again = json.replacen("\"outputs\"", "\"inputs\"", 1);
    let again = read_request(again.as_bytes(), Some(binary.concat().into())).expect("our own output is readable");
    for (first, second) in request.inputs.iter().zip(&again.request.inputs) {
        assert_eq!((&first.name, first.datatype, &first.shape), (&second.name, second.datatype, &second.shape));
        assert_eq!(first.data, second.data);
    }
});
