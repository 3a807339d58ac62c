//! Bodies from strangers: every one is answered, without a panic, and messages repeat little of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;

use super::signature::{ColumnSpec, ColumnType};
use super::*;
use crate::evaluators::table::IntType;
use crate::runtimes::native::NEVER;
use crate::types::{BytesElements, Datatype, RequestedOutput, TensorData};

/// Models with a tensor, with columns, with columns of texts, and without a signature.
const MODELS: [&str; 6] = ["linear", "column", "pipeline", "plain", "lightgbm_booster", "xgboost_classifier"];

/// The longest error, in bytes. The signature of a model and what it repeats of a body are far shorter.
const LONGEST_ERROR: usize = 32 << 10;

fn folder(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/mlflow").join(model).join("model")
}

fn load(model: &str) -> MlflowModel {
    let settings = ModelSettings::new(model, "mlserver_mlflow.MLflowRuntime");
    let (description, LoadedModel::Table(evaluator), _) = read_model(&folder(model)).unwrap() else {
        panic!("{model} is a graph")
    };
    MlflowModel::new(&folder(model), &settings, description, evaluator).unwrap().0
}

fn models() -> Vec<MlflowModel> {
    MODELS.iter().map(|model| load(model)).collect()
}

fn invoke(model: &MlflowModel, content_type: &'static str, body: &str) -> (u16, String) {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let call = CustomCall {
        method: Method::POST,
        path: "/invocations".to_owned(),
        parameters: Vec::new(),
        query: String::new(),
        headers,
        body: Bytes::copy_from_slice(body.as_bytes()),
    };
    let reply = model.invocations(&call, &NEVER);
    (reply.status.as_u16(), String::from_utf8(reply.body.to_vec()).unwrap())
}

fn check_answer(model: &MlflowModel, content_type: &'static str, body: &str) {
    let start = || body.chars().take(500).collect::<String>();
    let (status, answer) = invoke(model, content_type, body);
    assert!([200, 400].contains(&status), "{status} {}", start());
    assert!(status == 200 || answer.len() < LONGEST_ERROR, "{} bytes for {}", answer.len(), start());
}

/// Names in signatures, and others.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "c", "city", "age", "height", "member", "columns", "data", "index"])
            .prop_map(str::to_owned),
        1 => "[a-zé\"'\\\\\n]{0,4}",
        1 => Just("n".repeat(70_000)),
    ]
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        4 => (-3..4_i64).prop_map(Value::from),
        4 => prop::sample::select(vec![0.5, -1.25, 1e300, -0.0]).prop_map(Value::from),
        2 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        2 => "[a-zé0-9_.\"'\n ]{0,5}".prop_map(Value::from),
        1 => Just(json!("x".repeat(70_000))),
        1 => Just(json!(u64::MAX)),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((name(), inner), 0..5).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn json_body() -> impl Strategy<Value = String> {
    let field = prop::sample::select(vec!["dataframe_records", "dataframe_split", "inputs", "instances", "messages"]);
    let row = vec(prop::sample::select(vec!["1", "0.5", "NaN", "null", "true", "\"a\"", "-Infinity"]), 0..5);
    let rows = vec(row, 0..4).prop_map(|rows| {
        let rows: Vec<_> = rows.into_iter().map(|row| format!("[{}]", row.join(","))).collect();
        format!("[{}]", rows.join(","))
    });
    let value = prop_oneof![3 => json().prop_map(|value| value.to_string()), 1 => rows];
    prop_oneof![
        8 => (field.clone(), value.clone()).prop_map(|(field, value)| format!(r#"{{"{field}":{value}}}"#)),
        1 => value.clone(),
        // Cut off, with a character replaced.
        2 => (field, value, any::<prop::sample::Index>(), any::<char>()).prop_map(|(field, value, at, other)| {
            let body = format!(r#"{{"{field}":{value}}}"#);
            let mut characters: Vec<char> = body.chars().collect();
            let at = at.index(characters.len());
            characters[at] = other;
            characters.into_iter().collect()
        }),
    ]
}

fn csv_body() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c", "city", "age", "height", "member"]).prop_map(str::to_owned),
        6 => prop::sample::select(vec![",", "\n", "\"", "\"\"", "\r\n", "\r", ";", " ", "\u{feff}", "\0"]).prop_map(str::to_owned),
        4 => prop::sample::select(vec!["1", "-0.5", "1e400", "+", "NaN", "True", "9e99999999999", ".", "é", "99999999999999999999"])
            .prop_map(str::to_owned),
        1 => Just("t".repeat(70_000)),
    ];
    let free = vec(token.clone(), 0..30).prop_map(|tokens| tokens.concat());
    let header = prop::sample::select(vec!["a,b,c\n", "city,age,height,member\n", "a,a\n", ",,,\n", "x\n"]);
    prop_oneof![free, (header, vec(token, 0..30)).prop_map(|(header, tokens)| header.to_owned() + &tokens.concat())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_json_body_is_answered(body in json_body()) {
        thread_local!(static LOADED: Vec<MlflowModel> = models());
        LOADED.with(|models| models.iter().for_each(|model| check_answer(model, "application/json", &body)));
    }

    #[test]
    fn any_csv_body_is_answered(body in csv_body()) {
        thread_local!(static LOADED: Vec<MlflowModel> = models());
        LOADED.with(|models| models.iter().for_each(|model| check_answer(model, "text/csv", &body)));
    }
}

#[test]
fn long_texts_and_unclosed_quotes_are_answered() {
    let long = "x".repeat(100_000);
    let bodies = [
        ("text/csv", format!("a,b,c\n1,2,{long}\n")),
        ("text/csv", format!("city,age,height,member\n\"Oslo,30,{long}\n1,2,3\n")),
        ("text/csv", format!("{long},{long}\n")),
        ("text/csv", format!("a,\"{long}\n")),
        ("application/json", format!(r#"{{"dataframe_records":[{{"city":"{long}","x":1}}]}}"#)),
        ("application/json", format!(r#"{{"dataframe_split":{{"columns":["{long}"],"data":[["{long}"]]}}}}"#)),
        ("application/json", format!(r#"{{"dataframe_split":{{"{long}":1}}}}"#)),
        ("application/json", format!(r#"{{"dataframe_split":{{"columns":"{long}","data":[]}}}}"#)),
        ("application/json", format!(r#"{{"inputs":{{"{long}":"{long}"}}}}"#)),
        ("application/json", format!(r#"{{"inputs":"{long}"}}"#)),
        ("application/json", format!(r#"{{"instances":[{{"a":"{long}"}}]}}"#)),
        ("application/json", format!("{{\"{long}\u{1}")),
    ];
    for model in models() {
        for (content_type, body) in &bodies {
            check_answer(&model, content_type, body);
        }
    }
}

#[test]
fn tables_of_mostly_missing_values_are_rejected() {
    let model = load("plain");
    let columns = (0..3000).map(|index| format!("c{index}")).collect::<Vec<_>>();
    let csv = format!("{}\n{}", columns.join(","), "1\n".repeat(3000));
    let (status, answer) = invoke(&model, "text/csv", &csv);
    let reason = "a table of 3000 rows and 3000 columns with 3000 values has too many missing ones";
    assert!(status == 400 && answer.contains(reason), "{answer}");
    let records: Vec<_> = columns.iter().map(|column| format!(r#"{{"{column}":1}}"#)).collect();
    let (status, answer) =
        invoke(&model, "application/json", &format!(r#"{{"dataframe_records":[{}]}}"#, records.join(",")));
    assert!(status == 400 && answer.contains(reason), "{answer}");
    let (status, answer) = invoke(&model, "text/csv", &",".repeat(1 << 18));
    assert!(status == 400 && answer.contains("more than the limit of 131072"), "{answer}");
}

#[test]
fn plan_knows_the_size_of_the_response() {
    let numbers = |rows: usize, columns: usize| {
        let values: Vec<f32> = (0..u8::try_from(rows * columns).unwrap()).map(f32::from).collect();
        Tensor::from_elements("x", vec![rows, columns], &values).unwrap()
    };
    let array = |rows: usize| InferenceRequest {
        parameters: Parameters::with_content_type("np"),
        inputs: vec![numbers(rows, 3)],
        ..InferenceRequest::default()
    };
    let frame = |rows: usize| {
        let column = |name: &str, datatype: Datatype| {
            let bytes = Bytes::from(vec![0; rows * datatype.width().unwrap()]);
            Tensor::from_raw(name, datatype, vec![rows, 1], bytes).unwrap()
        };
        let inputs = vec![column("a", Datatype::Fp64), column("b", Datatype::Fp32), column("c", Datatype::Int32)];
        InferenceRequest { parameters: Parameters::with_content_type("pd"), inputs, ..InferenceRequest::default() }
    };
    let explained = |request: InferenceRequest| {
        let output = |name: &str| RequestedOutput { name: name.to_owned(), parameters: Parameters::new() };
        let outputs = ["contributions", "predict", "margin", "leaf"].map(output).into();
        InferenceRequest { outputs, ..request }
    };
    let (mut checked, mut of_explained) = (0, 0);
    let all = ["linear", "probabilities", "plain", "column", "lightgbm_booster", "lightgbm_three"];
    for name in all.into_iter().chain(["xgboost_booster", "xgboost_classifier", "xgboost_regressor", "xgboost_three"]) {
        let model = load(name);
        for rows in [1, 2, 5] {
            for request in [array(rows), frame(rows), explained(array(rows)), explained(frame(rows))] {
                let Ok(plan) = model.plan(&request) else { continue };
                let Ok(response) = model.answer(&request, plan.prepared, &NEVER) else { continue };
                let size: usize = response.outputs.iter().map(Tensor::byte_len).sum();
                assert_eq!(plan.bytes, size, "{name}");
                checked += 1;
                of_explained += usize::from(!request.outputs.is_empty());
            }
        }
    }
    assert!(checked >= 30 && of_explained >= 15, "{checked}, {of_explained}");
    let data = TensorData::Variable(["Oslo"].iter().collect::<BytesElements>());
    let (name, datatype) = ("city".to_owned(), Datatype::Bytes);
    let wrong =
        Tensor { name, datatype, shape: vec![1], parameters: Parameters::new(), data, nested: false, as_sent: None };
    assert_eq!(load("column").plan(&InferenceRequest { inputs: vec![wrong], ..array(1) }).unwrap().bytes, 0);
}

#[test]
fn invocations_stop_when_nobody_waits() {
    let model = load("lightgbm_booster");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let cells: Vec<f64> = vec![0.5; 3];
    let input = ModelInput::Array(NdArray { shape: vec![1, 3], elements: Elements::F64(cells.into()) });
    let data = enforce::enforce(&input, &InputSchema::Any).unwrap();
    let stopped = model.model.evaluator.predict(&data, &stop).unwrap_err();
    assert_eq!(stopped, InputError::Model("the prediction was cancelled".to_owned()));
}

/// Returns a schema of an integer `i` and a long `l`.
fn integers() -> InputSchema {
    let column = |name: &str, kind| ColumnSpec { name: name.to_owned(), kind };
    InputSchema::Columns(vec![column("i", ColumnType::Integer), column("l", ColumnType::Long)])
}

/// Reads a body, and returns the columns of the frame that it is.
fn columns(content_type: &str, body: &str) -> Result<Vec<ColumnValues>, String> {
    match scoring::read_body(&integers(), content_type, body.as_bytes()) {
        Ok(ModelInput::Frame(frame)) => Ok(frame.columns),
        Ok(other) => panic!("{other} is not a frame"),
        Err(error) => Err(format!("{error:?}")),
    }
}

#[test]
fn floats_beyond_the_integers_of_a_column_become_what_numpy_makes_of_them() {
    // Of each number: JSON, and what a column of 32 and one of 64 bits have of it.
    let cases = [
        ("3e9", i32::MIN, 3_000_000_000),
        ("-3000000000.5", i32::MIN, -3_000_000_000),
        ("4294967297.0", i32::MIN, 4_294_967_297),
        ("2147483648.0", i32::MIN, 2_147_483_648),
        ("2147483647.9", i32::MAX, 2_147_483_647),
        ("-2147483648.9", i32::MIN, -2_147_483_648),
        ("-2147483649.0", i32::MIN, -2_147_483_649),
        ("1e300", i32::MIN, i64::MIN),
        ("-1.5", -1, -1),
    ];
    let records: Vec<_> = cases.iter().map(|(text, ..)| format!(r#"{{"i":{text},"l":{text}}}"#)).collect();
    let body = format!(r#"{{"dataframe_records":[{}]}}"#, records.join(","));
    let of = |kind, values: Vec<i64>| ColumnValues::Typed(Elements::Int(values.into(), kind));
    let expected = [
        of(IntType::I32, cases.iter().map(|(_, short, _)| i64::from(*short)).collect()),
        of(IntType::I64, cases.iter().map(|(.., long)| *long).collect()),
    ];
    assert_eq!(columns("application/json", &body).unwrap(), expected);
    // pandas converts what CSV has only if that is exact.
    let unsafe_cast = "cannot safely convert passed user dtype";
    for row in ["3e9,1", "2147483648.0,1", "1,9.3e18", "1,1e300", "1.5,1"] {
        let error = columns("text/csv", &format!("i,l\n{row}\n")).unwrap_err();
        assert!(error.contains(unsafe_cast), "{row}: {error}");
    }
    let expected = [of(IntType::I32, vec![-2_147_483_648]), of(IntType::I64, vec![3_000_000_000])];
    assert_eq!(columns("text/csv", "i,l\n-2147483648.0,3e9\n").unwrap(), expected);
}

#[test]
fn column_of_the_signature_that_occurs_twice_is_rejected() {
    let split = |names: &str| {
        let body = format!(r#"{{"dataframe_split":{{"columns":{names},"data":[[1,2,3]]}}}}"#);
        let input = scoring::read_body(&integers(), "application/json", body.as_bytes()).unwrap();
        enforce::enforce(&input, &integers()).map(|data| data.columns())
    };
    let Err(InputError::Schema(reason)) = split(r#"["i","l","i"]"#) else { panic!("it is answered") };
    assert!(reason.contains("'i'"), "{reason}");
    assert!(matches!(split(r#"["l","i","l"]"#), Err(InputError::Schema(_))));
    // Columns that are not in the signature may.
    let body = r#"{"dataframe_split":{"columns":["i","x","l","x"],"data":[[1,2,3,4]]}}"#;
    let input = scoring::read_body(&integers(), "application/json", body.as_bytes()).unwrap();
    assert_eq!(enforce::enforce(&input, &integers()).unwrap().columns(), 2);
}

/// A graph that negates a matrix `x` of two columns.
const NEGATION: &[u8] = b"\x08\x08::\n\x0b\n\x01x\x12\x01y\"\x03Neg\x12\x05graphZ\x11\n\x01x\x12\x0c\n\n\x08\x01\x12\x06\n\x00\n\x02\x08\x02b\x11\n\x01y\x12\x0c\n\n\x08\x01\x12\x06\n\x00\n\x02\x08\x02B\x04\n\x00\x10\x0f";

/// A graph that returns a matrix `x` of two columns of FP16.
const HALVES: &[u8] = b"\x08\x08:?\n\x10\n\x01x\x12\x01y\"\x08Identity\x12\x05graphZ\x11\n\x01x\x12\x0c\n\n\x08\n\x12\x06\n\x00\n\x02\x08\x02b\x11\n\x01y\x12\x0c\n\n\x08\n\x12\x06\n\x00\n\x02\x08\x02B\x04\n\x00\x10\x0f";

/// Loads a model of the flavor `onnx`, with further lines of its flavor and of its signature.
fn load_graph(graph: &[u8], flavor: &str, signature: &str) -> Result<OnnxFlavor, String> {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "flavors:\n  onnx:\n    data: model.onnx\n{flavor}  python_function:\n    data: model.onnx\n    loader_module: mlflow.onnx\nmlflow_version: 3.12.0\n{signature}"
    );
    std::fs::write(folder.path().join("MLmodel"), text).unwrap();
    std::fs::write(folder.path().join("model.onnx"), graph).unwrap();
    let settings = ModelSettings::new("graph", "mlserver_mlflow.MLflowRuntime");
    let failed = |error: super::super::LoadError| {
        assert!(error.is_unsupported(), "Python may load it: {error}");
        format!("{:#}", anyhow::Error::from(error))
    };
    let (description, model, _) = read_model(folder.path()).map_err(failed)?;
    let LoadedModel::Graph(graph) = model else { panic!("it is a table") };
    Ok(OnnxFlavor::new(folder.path(), &settings, description, graph).map_err(failed)?.0)
}

/// An output: its name, its shape and its values.
type NamedValues = (String, Vec<usize>, Vec<f32>);

/// Answers a request of the V2 protocol with the content type, the name and the shape of each output, and its values.
fn infer_graph(
    model: &OnnxFlavor,
    content_type: &'static str,
    inputs: Vec<Tensor>,
) -> Result<(String, Vec<NamedValues>), String> {
    let parameters = Parameters::with_content_type(content_type);
    let request = InferenceRequest { parameters, inputs, ..InferenceRequest::default() };
    let plan = model.plan(&request).unwrap();
    let response = model.answer(&request, (), &NEVER).map_err(|error| error.to_string())?;
    let size: usize = response.outputs.iter().map(Tensor::byte_len).sum();
    assert!(plan.bytes >= size, "{} bytes are planned for {size}", plan.bytes);
    let values = |output: &Tensor| output.elements::<f32>().unwrap().into_owned();
    let outputs = response.outputs.iter().map(|output| (output.name.clone(), output.shape.clone(), values(output)));
    Ok((response.parameters.content_type().unwrap().to_owned(), outputs.collect()))
}

#[test]
fn onnx_flavor_leaves_to_python_by_name_what_needs_onnxruntime() {
    let mut network = NEGATION.to_vec();
    let operator = network.windows(3).position(|bytes| bytes == b"Neg").unwrap();
    network[operator..operator + 3].copy_from_slice(b"Nux");
    let signature = |inputs: &str| format!("signature:\n  inputs: '{inputs}'\n");
    let tensor = r#"{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}"#;
    let named = r#"{"type": "tensor", "name": "x", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}"#;
    let cases: [(&[u8], &str, String, &str); 8] = [
        (HALVES, "", String::new(), "input `x` of its graph is of type float16"),
        (&network, "", String::new(), "(Nux, opset 15): the operator is not evaluated natively"),
        (
            NEGATION,
            "    providers:\n    - TensorrtExecutionProvider\n    - CPUExecutionProvider\n",
            String::new(),
            "name `TensorrtExecutionProvider`, for which onnxruntime is needed",
        ),
        (
            NEGATION,
            "    providers:\n    - CPUExecutionProvider\n    - CUDAExecutionProvider\n",
            String::new(),
            "name `CUDAExecutionProvider`",
        ),
        (
            NEGATION,
            "    onnx_session_options:\n      intra_op_num_threads: 1\n",
            String::new(),
            "its flavor `mlflow.onnx` has `onnx_session_options`",
        ),
        (NEGATION, "", signature(&format!("[{named}]")), "its signature has a named tensor, `x`"),
        (NEGATION, "", signature(&format!("[{tensor}, {tensor}]")), "several tensors"),
        (
            NEGATION,
            "",
            signature(r#"[{"type": "tensor", "tensor-spec": {"dtype": "float16", "shape": [-1, 2]}}]"#),
            "its signature has a tensor of `float16`",
        ),
    ];
    for (graph, flavor, signature, reason) in cases {
        let error = load_graph(graph, flavor, &signature).unwrap_err();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    let defaults =
        "    providers:\n    - CUDAExecutionProvider\n    - CPUExecutionProvider\n    onnx_session_options: null\n";
    for flavor in [defaults, "    providers:\n    - CPUExecutionProvider\n    onnx_session_options: {}\n", ""] {
        load_graph(NEGATION, flavor, "").unwrap();
    }
}

#[test]
fn onnx_flavor_answers_arrays_frames_and_dictionaries() {
    let model = load_graph(NEGATION, "", "").unwrap();
    let matrix = |name: &str, columns: usize| {
        let values: Vec<f32> = (1..=2 * u8::try_from(columns).unwrap()).map(f32::from).collect();
        Tensor::from_elements(name, vec![2, columns], &values).unwrap()
    };
    let y = |shape: Vec<usize>, values: &[f32]| vec![("y".to_owned(), shape, values.to_vec())];
    let as_sent = [-1.0, -2.0, -3.0, -4.0];
    for (content_type, name) in [("np", "any"), ("dict", "x")] {
        let answer = infer_graph(&model, content_type, vec![matrix(name, 2)]).unwrap();
        assert_eq!(answer, ("dict".to_owned(), y(vec![2, 2], &as_sent)));
    }
    let columns = || vec![matrix("a", 1), matrix("b", 1)];
    let answer = infer_graph(&model, "pd", columns()).unwrap();
    assert_eq!(answer, ("pd".to_owned(), y(vec![4, 1], &[-1.0, -1.0, -2.0, -2.0])));
    for (content_type, inputs, reason) in [
        ("dict", vec![matrix("y", 2)], "it has no input `y`"),
        ("dict", vec![matrix("x", 3)], "[-1, 2]"),
        ("dict", vec![matrix("x", 2), matrix("x", 2)], "occurs twice"),
        ("dict", Vec::new(), "its input `x` is missing"),
        ("np", columns(), "only supports a single input tensor"),
        (
            "np",
            vec![Tensor::from_elements("x", vec![1, 2], &[1_i64, 2]).unwrap()],
            "takes values of type float, not of type int64",
        ),
        ("str", vec![matrix("x", 2)], "[-1, 2]"),
        ("hg_json", columns(), "expected `np`, `pd` or `dict`"),
    ] {
        let error = infer_graph(&model, content_type, inputs).unwrap_err();
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

/// Records what is reserved, and refuses more than a limit.
#[derive(Debug)]
struct Budget {
    limit: usize,
    reserved: std::sync::atomic::AtomicUsize,
}

impl Progress for Budget {
    fn begin(&self) {}

    fn reserve(&self, bytes: usize) -> Result<(), RuntimeError> {
        self.reserved.store(bytes, std::sync::atomic::Ordering::Relaxed);
        let limit = self.limit;
        if bytes > limit { Err(crate::types::OverBudget::TooLarge { bytes, limit }.into()) } else { Ok(()) }
    }

    fn yielded(&self) {}

    fn wait_again(&self) {}

    fn joined(&self, _: crate::types::TraceContext) {}

    fn used(&self, _: crate::types::TokenUsage) {}

    fn steps(&self) -> Option<Arc<dyn crate::runtimes::Steps>> {
        None
    }

    fn memory(&self) -> Option<Arc<dyn crate::runtimes::ModelMemory>> {
        None
    }
}

#[test]
fn onnx_flavor_reserves_the_memory_of_bodies_as_that_of_v2_requests() {
    let model = load_graph(NEGATION, "", "").unwrap();
    let route = ROUTES.iter().position(|(_, path)| *path == "/invocations").unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let (method, path) = (Method::POST, "/invocations".to_owned());
    let body = Bytes::from(r#"{"inputs":[[1.5,2.5],[3.5,4.5]]}"#);
    let call = CustomCall { method, path, parameters: Vec::new(), query: String::new(), headers, body };
    let x = Tensor::from_elements("x", vec![2, 2], &[1.5_f64, 2.5, 3.5, 4.5]).unwrap();
    let parameters = Parameters::with_content_type("np");
    let request = InferenceRequest { parameters, inputs: vec![x], ..InferenceRequest::default() };
    let planned = model.plan(&request).unwrap().bytes;
    let budget = |limit| Budget { limit, reserved: 0.into() };
    let enough = budget(planned);
    let reply = model.call(route, &call, &enough, &NEVER).unwrap();
    assert_eq!(&reply.body[..], br#"{"predictions": {"y": [[-1.5, -2.5], [-3.5, -4.5]]}}"#);
    assert!(planned > 0);
    assert_eq!(enough.reserved.into_inner(), planned);
    let error = model.call(route, &call, &budget(planned - 1), &NEVER).unwrap_err();
    assert_eq!(error.kind(), crate::types::RequestErrorKind::TooLarge);
}
