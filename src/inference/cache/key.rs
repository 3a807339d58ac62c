//! The identity of requests: a cryptographic hash over everything that may change the response.
//!
//! Every part is preceded by its length or its kind, so that no two different requests feed the hash the same bytes. The
//! order of an object's members does not matter, as in JSON. Ids and headers are not included, except for credentials that the model
//! sees: its answer may be for their owner only.

use blake3::Hasher;
use serde_json::{Map, Value};

use crate::types::{AsSent, InferenceRequest, Parameters, Tensor, TensorData};

/// A hash of 256 bits, which makes collisions infeasible.
pub(super) type CacheKey = [u8; 32];

/// Starts the key of a request for one load of a model.
pub(super) fn of_model(name: &str, version: Option<&str>, generation: u64) -> Hasher {
    let mut hasher = Hasher::new();
    add_text(&mut hasher, name);
    add_option(&mut hasher, version);
    hasher.update(&generation.to_le_bytes());
    hasher
}

/// Adds the content of the request.
pub(super) fn add_request(hasher: &mut Hasher, request: &InferenceRequest) {
    add_parameters(hasher, &request.parameters);
    add_length(hasher, request.inputs.len());
    for input in &request.inputs {
        add_tensor(hasher, input);
    }
    for (name, value) in request.credentials() {
        hasher.update(&[2]);
        add_text(hasher, name);
        add_bytes(hasher, value.as_bytes());
    }
    hasher.update(&[u8::from(request.has_outputs)]);
    add_length(hasher, request.outputs.len());
    for output in &request.outputs {
        add_text(hasher, &output.name);
        add_parameters(hasher, &output.parameters);
    }
}

fn add_tensor(hasher: &mut Hasher, tensor: &Tensor) {
    add_text(hasher, &tensor.name);
    add_text(hasher, tensor.datatype.name());
    add_length(hasher, tensor.shape.len());
    for &dimension in &tensor.shape {
        add_length(hasher, dimension);
    }
    add_parameters(hasher, &tensor.parameters);
    hasher.update(&[u8::from(tensor.nested)]);
    add_as_sent(hasher, tensor.as_sent.as_deref());
    match &tensor.data {
        TensorData::Fixed(bytes) => {
            hasher.update(&[0]);
            add_bytes(hasher, bytes);
        }
        TensorData::Variable(elements) => {
            // Python models see `str` or `bytes`.
            hasher.update(&[1 + u8::from(elements.is_text())]);
            add_length(hasher, elements.len());
            for element in elements.iter() {
                add_bytes(hasher, element);
            }
        }
        TensorData::Irregular(data) => {
            hasher.update(&[3]);
            add_bytes(hasher, data.json());
        }
    }
}

fn add_as_sent(hasher: &mut Hasher, as_sent: Option<&AsSent>) {
    let Some(AsSent { shape, data, doubles }) = as_sent else {
        hasher.update(&[0]);
        return;
    };
    hasher.update(&[1]);
    let shape = shape.as_deref().unwrap_or_default();
    add_length(hasher, shape.len());
    for dimension in shape {
        hasher.update(&dimension.to_le_bytes());
    }
    for part in [data, doubles] {
        hasher.update(&[u8::from(part.is_some())]);
        add_bytes(hasher, part.as_deref().unwrap_or_default());
    }
}

fn add_parameters(hasher: &mut Hasher, parameters: &Parameters) {
    hasher.update(&[u8::from(parameters.is_absent())]);
    add_option(hasher, parameters.content_type());
    add_object(hasher, &parameters.others);
}

fn add_object(hasher: &mut Hasher, object: &Map<String, Value>) {
    add_length(hasher, object.len());
    let mut members: Vec<_> = object.iter().collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    for (key, value) in members {
        add_text(hasher, key);
        add_value(hasher, value);
    }
}

fn add_value(hasher: &mut Hasher, value: &Value) {
    match value {
        Value::Null => {
            hasher.update(&[0]);
        }
        Value::Bool(value) => {
            hasher.update(&[1, u8::from(*value)]);
        }
        Value::Number(number) => {
            hasher.update(&[2]);
            add_text(hasher, &number.to_string());
        }
        Value::String(text) => {
            hasher.update(&[3]);
            add_text(hasher, text);
        }
        Value::Array(items) => {
            hasher.update(&[4]);
            add_length(hasher, items.len());
            for item in items {
                add_value(hasher, item);
            }
        }
        Value::Object(object) => {
            hasher.update(&[5]);
            add_object(hasher, object);
        }
    }
}

fn add_option(hasher: &mut Hasher, text: Option<&str>) {
    hasher.update(&[u8::from(text.is_some())]);
    add_text(hasher, text.unwrap_or_default());
}

fn add_text(hasher: &mut Hasher, text: &str) {
    add_bytes(hasher, text.as_bytes());
}

fn add_bytes(hasher: &mut Hasher, bytes: &[u8]) {
    add_length(hasher, bytes.len());
    hasher.update(bytes);
}

fn add_length(hasher: &mut Hasher, length: usize) {
    hasher.update(&(length as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::json::IrregularData;
    use bytes::Bytes;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use crate::types::{BytesElements, Datatype, RequestedOutput};

    /// One load of a model and a request for it.
    type KeyedRequest = (String, Option<String>, u64, InferenceRequest);

    fn key((name, version, generation, request): &KeyedRequest) -> CacheKey {
        let mut hasher = of_model(name, version.as_deref(), *generation);
        add_request(&mut hasher, request);
        hasher.finalize().into()
    }

    fn same(one: &KeyedRequest, two: &KeyedRequest) -> bool {
        let is_text = |tensor: &Tensor| matches!(&tensor.data, TensorData::Variable(elements) if elements.is_text());
        let parts = |request: &InferenceRequest| {
            let texts: Vec<bool> = request.inputs.iter().map(is_text).collect();
            (request.parameters.clone(), request.inputs.clone(), texts, request.outputs.clone())
        };
        (&one.0, &one.1, one.2) == (&two.0, &two.1, two.2) && parts(&one.3) == parts(&two.3)
    }

    /// Few letters and short texts, so that different parts are often alike when they are concatenated.
    fn text() -> impl Strategy<Value = String> {
        "[ab]{0,2}"
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..2_i64).prop_map(Value::from),
            Just(Value::from(1.0)),
            text().prop_map(Value::from),
            Just(Value::from("1")),
        ];
        leaf.prop_recursive(2, 6, 2, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..3).prop_map(Value::from),
                vec((text(), inner), 0..3).prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn parameters() -> impl Strategy<Value = Parameters> {
        let others = vec((text(), value()), 0..2);
        (option::of(text()), others).prop_map(|(content_type, others)| {
            let others: Map<_, _> = others.into_iter().collect();
            Parameters {
                others: others.into(),
                ..content_type.map_or_else(Parameters::new, Parameters::with_content_type)
            }
        })
    }

    fn tensor() -> impl Strategy<Value = Tensor> {
        let fixed = vec(0..2_u8, 0..3).prop_map(|bytes| TensorData::Fixed(Bytes::from(bytes)));
        let variable = (vec(text(), 0..3), any::<bool>())
            .prop_map(|(texts, text)| TensorData::Variable(BytesElements::from_iter(texts).with_text(text)));
        let irregular = vec(0..3_u8, 0..2).prop_map(|values| {
            let json = Bytes::from(format!("{values:?}"));
            TensorData::Irregular(IrregularData::new(json, "").unwrap())
        });
        let data = prop_oneof![fixed, variable, irregular];
        let datatype = prop_oneof![Just(Datatype::Uint8), Just(Datatype::Int8), Just(Datatype::Bytes)];
        (text(), datatype, vec(0..3_usize, 0..3), parameters(), data, any::<bool>()).prop_map(
            |(name, datatype, shape, parameters, data, nested)| Tensor {
                name,
                datatype,
                shape,
                parameters,
                data,
                nested,
                as_sent: None,
            },
        )
    }

    fn keyed_request() -> impl Strategy<Value = KeyedRequest> {
        let output = (text(), parameters()).prop_map(|(name, parameters)| RequestedOutput { name, parameters });
        let request = (parameters(), vec(tensor(), 0..3), vec(output, 0..3));
        (text(), option::of(text()), 0..2_u64, request).prop_map(|(name, version, generation, request)| {
            let (parameters, inputs, outputs) = request;
            (name, version, generation, InferenceRequest { parameters, inputs, outputs, ..InferenceRequest::default() })
        })
    }

    /// Returns `one` with one part of `two`, or with a small mutation.
    fn mutated(one: &KeyedRequest, two: &KeyedRequest, part: u8) -> KeyedRequest {
        let mut keyed_request = one.clone();
        let request = &mut keyed_request.3;
        match part {
            0 => keyed_request.0.clone_from(&two.0),
            1 => keyed_request.1.clone_from(&two.1),
            2 => keyed_request.2 = two.2,
            3 => request.parameters = two.3.parameters.clone(),
            4 => request.inputs.clone_from(&two.3.inputs),
            5 => request.outputs.clone_from(&two.3.outputs),
            6 => request.inputs.reverse(),
            7 => request.outputs.reverse(),
            8 => request.inputs.iter_mut().for_each(|input| input.shape.reverse()),
            9 => request.inputs.iter_mut().for_each(|input| input.datatype = Datatype::Bool),
            10 => {
                if let [first, second, ..] = &mut request.inputs[..] {
                    std::mem::swap(&mut first.data, &mut second.data);
                }
            }
            11 => {
                if let [first, second, ..] = &mut request.inputs[..] {
                    std::mem::swap(&mut first.name, &mut second.name);
                }
            }
            12 => std::mem::swap(&mut keyed_request.0, keyed_request.1.get_or_insert_default()),
            _ => {
                request.id = "another".to_owned();
                request.headers.insert("x", "y".parse().unwrap());
                let members = std::mem::take(&mut request.parameters.others).into_inner();
                request.parameters.others = members.into_iter().rev().collect::<Map<_, _>>().into();
            }
        }
        keyed_request
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn cache_keys_are_equal_only_for_equal_requests(one in keyed_request(), two in keyed_request(), part in 0..14_u8) {
            for other in [mutated(&one, &two, part), two] {
                prop_assert_eq!(key(&one) == key(&other), same(&one, &other), "{:?}\n{:?}", one, other);
            }
        }
    }

    #[test]
    fn cache_key_differs_for_text_and_bytes() {
        let keyed = |text: bool| {
            let data = TensorData::Variable(BytesElements::from_iter(["a"]).with_text(text));
            let (name, datatype) = ("x".to_owned(), Datatype::Bytes);
            let input = Tensor {
                name,
                datatype,
                shape: vec![1],
                parameters: Parameters::new(),
                data,
                nested: false,
                as_sent: None,
            };
            (String::new(), None, 0, InferenceRequest { inputs: vec![input], ..InferenceRequest::default() })
        };
        assert_ne!(key(&keyed(true)), key(&keyed(false)));
        assert_eq!(key(&keyed(true)), key(&keyed(true)));
    }

    #[test]
    fn cache_key_ignores_ids_and_headers_other_than_credentials() {
        let one = (String::new(), None, 0, InferenceRequest::default());
        let mut two = one.clone();
        two.3.id = "another".to_owned();
        two.3.headers.insert("x", "y".parse().unwrap());
        assert_eq!(key(&one), key(&two));
        let with = |name: &'static str, value: &str| {
            let mut request = one.clone();
            request.3.headers.append(name, value.parse().unwrap());
            key(&request)
        };
        let keys = [key(&one), with("authorization", "a"), with("authorization", "b"), with("cookie", "a")];
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }
}
