//! Bodies from strangers: every one is answered, without a panic, and messages repeat little of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
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
    MlflowModel::load(&folder(model), &settings).unwrap().0
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
