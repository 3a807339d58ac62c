//! Bodies of V1 and CloudEvents: any bytes are a request, an event or an error. JSON that is invalid is rejected, tensors have the elements
//! of their shapes, and an event that was read can be written and read back. The first byte chooses what the model declares.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlserver::types::json::{EventData, NonFinite, read_event, read_v1_request, write_event, write_v1_response};
use mlserver::types::{Datatype, InferenceResponse, TensorMetadata, TensorRule};

fn declared(choice: u8) -> Vec<TensorMetadata> {
    let tensor = |name: &str, datatype, shape: &[i64]| TensorMetadata {
        name: name.to_owned(),
        datatype,
        shape: shape.to_vec(),
        ..TensorMetadata::default()
    };
    match choice & 3 {
        0 => Vec::new(),
        1 => vec![tensor("x", Datatype::Fp32, &[-1, 2])],
        2 => vec![tensor("a", Datatype::Int64, &[-1]), tensor("b", Datatype::Bytes, &[-1])],
        _ => vec![tensor("x", Datatype::Bool, &[-1, -1, 3])],
    }
}

fn requests(choice: u8, text: &[u8]) {
    let rule = if choice & 4 == 0 { TensorRule::Strict } else { TensorRule::AsSent };
    let Ok(request) = read_v1_request(text, &declared(choice), rule) else { return };
    assert!(serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok(), "only JSON is a request");
    let response = InferenceResponse { outputs: request.inputs, ..InferenceResponse::default() };
    // Tensors of different lengths are no table.
    if let Ok(written) = write_v1_response(&response, NonFinite::Null) {
        assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&written).is_ok(), "our own answer is JSON");
    }
}

fn events(text: &[u8]) {
    let Ok(Some(event)) = read_event(text) else { return };
    assert!(event.attributes.len() <= 64);
    let (binary, json) = match &event.data {
        EventData::Binary(binary) => (Some(&binary[..]), None),
        EventData::Json(range) => (None, Some(&text[range.clone()])),
    };
    let (mut written, end) = write_event(&event.attributes, binary);
    written.extend_from_slice(json.unwrap_or_default());
    written.extend_from_slice(end);
    let again = read_event(&written).expect("our own event is valid").expect("it has a version");
    assert_eq!(event.attributes, again.attributes);
    match (&event.data, &again.data) {
        (EventData::Binary(first), EventData::Binary(second)) => assert_eq!(first, second),
        (EventData::Json(_), EventData::Json(range)) => assert_eq!(json, Some(&written[range.clone()])),
        (first, second) => panic!("{first:?} became {second:?}"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_first() else { return };
    requests(*choice, text);
    events(text);
});
