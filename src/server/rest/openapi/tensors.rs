//! A model's inputs and outputs in its document: schemas, and an example request that works.

use serde_json::{Value, json};

use crate::types::{Datatype, ModelMetadata, TensorMetadata};

/// The most elements, over all inputs, of an example request.
const MAX_EXAMPLE: usize = 4096;

/// Adds the inputs and outputs that a model declares to its document. Undeclared ones keep the generic description.
pub(super) fn describe(document: &mut Value, model: &ModelMetadata) {
    if !model.inputs.is_empty() {
        document["components"]["schemas"]["RequestInput"] = one_of(&model.inputs, request_input);
        set_example(document, example(&model.inputs));
    }
    if !model.outputs.is_empty() {
        let names: Vec<&str> = model.outputs.iter().map(|output| output.name.as_str()).collect();
        document["components"]["schemas"]["RequestOutput"]["properties"]["name"]["enum"] = json!(names);
        document["components"]["schemas"]["ResponseOutput"] = one_of(&model.outputs, response_output);
    }
}

/// Replaces the example of a JSON request, or removes it.
fn set_example(document: &mut Value, example: Option<Value>) {
    let content = &mut document["components"]["requestBodies"]["InferenceRequest"]["content"]["application/json"];
    match (content.as_object_mut(), example) {
        (Some(content), Some(example)) => drop(content.insert("example".to_owned(), example)),
        (Some(content), None) => drop(content.shift_remove("example")),
        (None, _) => {}
    }
}

fn one_of(tensors: &[TensorMetadata], schema: fn(&TensorMetadata) -> Value) -> Value {
    match tensors {
        [tensor] => schema(tensor),
        // Not `oneOf`, because a model may declare two tensors alike.
        _ => json!({ "anyOf": tensors.iter().map(schema).collect::<Vec<_>>() }),
    }
}

fn request_input(tensor: &TensorMetadata) -> Value {
    let element = element(&tensor.datatype);
    let nested = json!({ "type": "array", "description": "The elements of a further dimension.", "items": {} });
    let elements = if tensor.shape.len() < 2 { element } else { json!({ "anyOf": [element, nested] }) };
    let mut data = json!({ "type": "array", "items": elements });
    if tensor.datatype == Datatype::Bytes.name() {
        data = json!({ "anyOf": [data, { "type": "string" }] });
    }
    self::tensor(tensor, -1, &data)
}

fn response_output(tensor: &TensorMetadata) -> Value {
    self::tensor(tensor, 0, &json!({ "type": "array", "items": element(&tensor.datatype) }))
}

fn tensor(tensor: &TensorMetadata, smallest: i64, data: &Value) -> Value {
    let rank = tensor.shape.len();
    let dimensions = json!({ "type": "integer", "format": "int64", "minimum": smallest });
    let shape = json!({
        "type": "array", "items": dimensions, "minItems": rank, "maxItems": rank, "example": sizes(tensor),
        "description": format!("{:?}, where -1 stands for any size.", tensor.shape),
    });
    json!({
        "type": "object",
        "title": tensor.name,
        "description": format!("{} {:?}", tensor.datatype, tensor.shape),
        "required": ["name", "shape", "datatype", "data"],
        "properties": {
            "name": { "type": "string", "enum": [tensor.name] },
            "shape": shape,
            "datatype": { "type": "string", "enum": [tensor.datatype] },
            "parameters": { "$ref": "#/components/schemas/Parameters" },
            "data": data,
        },
    })
}

/// Returns the schema of one element.
fn element(datatype: &str) -> Value {
    let integer = |bits: u32, signed: bool| {
        // Many clients read JSON numbers with a precision of 53 bits, so wider limits would be wrong.
        if bits == 64 {
            return if signed {
                json!({ "type": "integer", "format": "int64" })
            } else {
                json!({ "type": "integer", "minimum": 0 })
            };
        }
        let (low, high) =
            if signed { (-(1_i64 << (bits - 1)), (1_i64 << (bits - 1)) - 1) } else { (0, (1_i64 << bits) - 1) };
        json!({ "type": "integer", "minimum": low, "maximum": high })
    };
    match datatype.parse() {
        Ok(Datatype::Bool) => json!({ "type": "boolean" }),
        Ok(Datatype::Uint8) => integer(8, false),
        Ok(Datatype::Uint16) => integer(16, false),
        Ok(Datatype::Uint32) => integer(32, false),
        Ok(Datatype::Uint64) => integer(64, false),
        Ok(Datatype::Int8) => integer(8, true),
        Ok(Datatype::Int16) => integer(16, true),
        Ok(Datatype::Int32) => integer(32, true),
        Ok(Datatype::Int64) => integer(64, true),
        Ok(Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64) => {
            let number = json!({ "type": "number", "nullable": true, "description": "`null` stands for NaN." });
            json!({ "anyOf": [number, { "type": "string", "enum": ["NaN", "Infinity", "-Infinity"] }] })
        }
        Ok(Datatype::Bytes) => json!({ "type": "string" }),
        // A name from the settings that is not a datatype.
        Err(_) => json!({}),
    }
}

/// Returns the declared shape, with size 1 for dimensions of any size.
fn sizes(tensor: &TensorMetadata) -> Vec<usize> {
    tensor.shape.iter().map(|&size| usize::try_from(size).unwrap_or(1)).collect()
}

/// Creates a request that the model can answer. `None` if it would be too long.
pub(super) fn example(inputs: &[TensorMetadata]) -> Option<Value> {
    let mut remaining = MAX_EXAMPLE;
    let inputs = inputs
        .iter()
        .map(|input| {
            let shape = sizes(input);
            let count = shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size))?;
            remaining = remaining.checked_sub(count)?;
            let mut example = json!({ "name": input.name, "shape": shape, "datatype": input.datatype });
            if !input.parameters.is_empty() {
                example["parameters"] = json!(input.parameters);
            }
            example["data"] = vec![value(input); count].into();
            Some(example)
        })
        .collect::<Option<Vec<_>>>()?;
    Some(json!({ "inputs": inputs }))
}

/// Returns an element that suits a tensor's datatype and content type.
fn value(tensor: &TensorMetadata) -> Value {
    match (tensor.datatype.parse(), tensor.parameters.content_type()) {
        (Ok(Datatype::Bool), _) => true.into(),
        (Ok(Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64), _) => json!(0.5),
        (Ok(Datatype::Bytes), Some("base64")) => "dGV4dA==".into(),
        (Ok(Datatype::Bytes), Some("datetime")) => "2026-01-31T12:00:00Z".into(),
        (Ok(Datatype::Bytes), _) => "text".into(),
        _ => 1.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Parameters;

    fn declared(datatype: &str, shape: &[i64], content_type: Option<&'static str>) -> TensorMetadata {
        let parameters = content_type.map(Parameters::with_content_type).unwrap_or_default();
        TensorMetadata { name: "x".to_owned(), datatype: datatype.to_owned(), shape: shape.to_vec(), parameters }
    }

    #[test]
    fn openapi_example_matches_datatype_and_content_type() {
        let data = |datatype, content_type| {
            let example = example(&[declared(datatype, &[-1], content_type)]).unwrap();
            example["inputs"][0]["data"].clone()
        };
        assert_eq!(data("BOOL", None), json!([true]));
        assert_eq!(data("UINT8", None), json!([1]));
        assert_eq!(data("BF16", None), json!([0.5]));
        assert_eq!(data("BYTES", Some("str")), json!(["text"]));
        assert_eq!(data("BYTES", Some("base64")), json!(["dGV4dA=="]));
        assert_eq!(data("BYTES", Some("datetime")), json!(["2026-01-31T12:00:00Z"]));
        assert_eq!(data("unknown", None), json!([1]));
        let example = example(&[declared("BYTES", &[1, -1], Some("str"))]).unwrap();
        assert_eq!(example["inputs"][0]["parameters"], json!({ "content_type": "str" }));
    }

    #[test]
    fn openapi_example_has_declared_shape_unless_too_long() {
        let shape = |shape: &[i64]| Some(example(&[declared("FP32", shape, None)])?["inputs"][0]["shape"].clone());
        assert_eq!(shape(&[]), Some(json!([])));
        assert_eq!(shape(&[-1, 0, 3]), Some(json!([1, 0, 3])));
        assert_eq!(shape(&[-7]), Some(json!([1])));
        assert_eq!(shape(&[64, 64]), Some(json!([64, 64])));
        assert_eq!(shape(&[64, 65]), None);
        assert_eq!(shape(&[i64::MAX, i64::MAX]), None);
        let half = declared("FP32", &[2048], None);
        assert!(example(&[half.clone(), half.clone()]).is_some());
        assert!(example(&[half.clone(), half.clone(), declared("FP32", &[], None)]).is_none(), "over all inputs");
    }

    #[test]
    fn openapi_integer_limits_match_datatype() {
        let limits = |datatype| {
            let element = element(datatype);
            (element["minimum"].as_i64(), element["maximum"].as_i64())
        };
        assert_eq!(limits("INT8"), (Some(-128), Some(127)));
        assert_eq!(limits("UINT32"), (Some(0), Some(4_294_967_295)));
        assert_eq!(limits("UINT64"), (Some(0), None));
        assert_eq!(limits("INT64"), (None, None));
    }
}
