//! Shapes that are not those of the data, to and from Python models.

use serde_json::json;

use crate::support::Folder;
use crate::support::python::with_python;

const MODEL: &str = r#"
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Shapes(MLModel):
    """Answers with an output of the shape in the parameters, and with the shape of its input."""

    async def predict(self, payload):
        tensor = payload.inputs[0]
        seen = ResponseOutput(name="seen", shape=[1], datatype="BYTES", data=[str(list(tensor.shape))])
        extra = payload.parameters.model_extra if payload.parameters else {}
        shape = extra.get("shape")
        outputs = [seen]
        if shape:
            datatype, data = ("BYTES", ["a"]) if extra.get("text") else ("INT64", [1, 2, 3])
            outputs.append(ResponseOutput(name="odd", shape=shape, datatype=datatype, data=data))
        return InferenceResponse(model_name=self.name, outputs=outputs)
"#;

#[test]
fn python_models_see_any_shape_and_return_consistent_ones() {
    let settings = json!({"name": "m", "implementation": "models.Shapes"});
    let folder = Folder::new().file("m/models.py", MODEL).file("m/model-settings.json", settings.to_string());
    let Some(server) = with_python(folder) else { return };
    let server = server.start();
    let ask = |shape: &str, data: &str, parameters: &str| {
        let input = format!(r#"{{"name":"x","shape":{shape},"datatype":"BYTES","data":{data}}}"#);
        server.post("/v2/models/m/infer", format!(r#"{{"parameters":{parameters},"inputs":[{input}]}}"#))
    };
    for (shape, data, seen) in [
        ("[11]", "\"hello world\"", "[11]"),
        ("[4000000000000000,1]", "\"hello world\"", "[4000000000000000, 1]"),
        ("[3]", "[\"a\",\"b\"]", "[3]"),
        ("[1,1]", "\"hello world\"", "[1, 1]"),
        ("[2]", "[\"a\",\"b\"]", "[2]"),
    ] {
        let answer = ask(shape, data, "{}").ok();
        assert_eq!(answer["outputs"][0]["data"], json!([seen]), "{shape}");
    }

    assert_eq!(ask("[1]", "\"a\"", r#"{"shape":[3]}"#).ok()["outputs"][1]["data"], json!([1, 2, 3]));
    for shape in ["[4,2]", "[2]", "[4000000000000000,2]"] {
        let error = ask("[1]", "\"a\"", &format!(r#"{{"shape":{shape}}}"#)).error(500);
        assert!(error.contains("tensor `odd` of shape"), "{error}");
    }
    // As in the original's manual.
    let one = ask("[1]", "\"a\"", r#"{"shape":[224],"text":true}"#).ok();
    assert_eq!((&one["outputs"][1]["shape"], &one["outputs"][1]["data"]), (&json!([224]), &json!(["a"])));
}
