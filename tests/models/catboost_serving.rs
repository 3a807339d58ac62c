//! `CatBoost`'s models over REST and gRPC: outputs by name, categories, columns and errors.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of JSON are read as `f64`")]

use mlserver::types::protobuf::messages::InferTensorContents;
use mlserver::types::protobuf::messages::model_infer_request::InferRequestedOutputTensor;
use serde_json::{Value, json};

use crate::support::goldens::golden_archives;
use crate::support::grpc::{floats, infer_request, inference_client};
use crate::support::{Folder, TestServer, run_mlserver};

/// A golden case of the newest version.
struct Case {
    folder: Folder,
    columns: Vec<Value>,
    expect: Value,
}

/// Makes a folder with the model of a golden case, in `file`.
fn case(name: &str, extension: &str, file: &str, uri: &str) -> Case {
    let archives = golden_archives("catboost");
    let newest = archives.iter().rfind(|archive| archive.name == "1.2.10").unwrap();
    let case: Value = serde_json::from_slice(newest.file(&format!("{name}.case.json"))).unwrap();
    let settings = json!({
        "name": "m", "implementation": "mlserver_catboost.CatboostModel", "parameters": {"uri": uri},
    });
    let folder = Folder::new()
        .file(&format!("m/{file}"), newest.file(&format!("{name}.{extension}")))
        .file("m/model-settings.json", settings.to_string());
    Case { folder, columns: case["columns"].as_array().unwrap().clone(), expect: case["expect"].clone() }
}

impl Case {
    /// Returns the first rows of each column as an input.
    fn inputs(&self, rows: usize) -> Vec<Value> {
        let input = |column: &Value| {
            let mut input = column.clone();
            input["shape"] = json!([rows, 1]);
            input["data"] = json!(column["data"].as_array().unwrap()[..rows]);
            if input["datatype"] == "BYTES" {
                input["parameters"] = json!({"content_type": "str"});
            }
            input
        };
        self.columns.iter().map(input).collect()
    }

    /// Returns the first expected values of an output.
    fn expected(&self, output: &str, values: usize) -> Vec<Value> {
        self.expect[output]["data"].as_array().unwrap()[..values].to_vec()
    }
}

/// Returns a request of columns.
fn frame(inputs: &[Value]) -> Value {
    json!({"parameters": {"content_type": "pd"}, "inputs": inputs})
}

fn infer(server: &TestServer, body: &Value) -> Value {
    server.post("/v2/models/m/infer", body.to_string()).ok()
}

#[test]
fn catboost_model_is_served_natively_with_every_output() {
    let case = case("labels_text", "cbm", "model.cbm", ".");
    let inputs = case.inputs(20);
    let expected = ["predict", "predict_proba", "raw", "leaf"].map(|output| case.expect[output]["data"].clone());
    let server = TestServer::start(case.folder);
    assert_eq!(server.get("/v2/models/m").json()["parameters"]["backend"], "native");
    let mut body = frame(&inputs);
    let plain = infer(&server, &body);
    let predict = &plain["outputs"][0];
    assert_eq!((plain["outputs"].as_array().unwrap().len(), &predict["name"]), (1, &json!("predict")), "{plain}");
    assert_eq!((&predict["datatype"], &predict["shape"]), (&json!("BYTES"), &json!([20, 1])));
    assert_eq!(predict["parameters"]["content_type"], "np");
    assert_eq!(predict["data"].as_array().unwrap()[..], expected[0].as_array().unwrap()[..20]);

    body["outputs"] =
        json!([{"name": "leaf"}, {"name": "raw"}, {"name": "predict_proba"}, {"name": "foo"}, {"name": "raw"}]);
    let answer = infer(&server, &body);
    let [leaf, raw, probabilities] = &answer["outputs"].as_array().unwrap()[..] else { unreachable!("{answer}") };
    assert_eq!((&leaf["name"], &leaf["datatype"], &leaf["shape"]), (&json!("leaf"), &json!("INT32"), &json!([20, 3])));
    assert_eq!(leaf["data"].as_array().unwrap()[..], expected[3].as_array().unwrap()[..60]);
    assert_eq!((&raw["name"], &raw["datatype"], &raw["shape"]), (&json!("raw"), &json!("FP64"), &json!([20, 1])));
    assert_eq!(raw["data"].as_array().unwrap()[..], expected[2].as_array().unwrap()[..20]);
    assert_eq!((&probabilities["datatype"], &probabilities["shape"]), (&json!("FP64"), &json!([20, 2])));
    let probability = probabilities["data"][1].as_f64().unwrap();
    assert!((probability - expected[1][1].as_f64().unwrap()).abs() < 1e-15);
}

#[test]
fn catboost_columns_are_found_by_name() {
    let case = case("ctr_borders", "json", "churn.json", "./churn.json");
    let inputs = case.inputs(6);
    let expected = json!(case.expected("predict", 6));
    let category = case.columns.iter().position(|column| column["name"] == "c0").unwrap();
    let server = TestServer::start(case.folder);
    let reversed: Vec<_> = inputs.iter().rev().cloned().collect();
    assert_eq!(infer(&server, &frame(&reversed))["outputs"][0]["data"], expected);

    let mut further = reversed.clone();
    further.push(
        json!({"name": "further", "shape": [6, 1], "datatype": "BOOL", "data": [true, true, true, false, true, true]}),
    );
    for _ in 0..2 {
        assert_eq!(infer(&server, &frame(&further))["outputs"][0]["data"], expected);
    }
    let log = server.wait_for_log("Further columns are ignored");
    assert_eq!(log.matches("Further columns are ignored").count(), 1, "{log}");

    let reject = |inputs: &[Value]| server.post("/v2/models/m/infer", frame(inputs).to_string()).error(400);
    let error = reject(&inputs[..2]);
    assert!(error.starts_with("the request lacks the columns `"), "{error}");
    let mut wrong = inputs.clone();
    wrong[category] = json!({"name": "c0", "shape": [6, 1], "datatype": "FP64", "data": [1, 2, 3, 4, 5, 6]});
    let error = reject(&wrong);
    assert!(error.starts_with("column `c0` has floating-point numbers"), "{error}");
    wrong[category] = json!({
        "name": "c0", "shape": [6, 1], "datatype": "BYTES", "data": ["a", null, "b", "c", "d", "e"],
        "parameters": {"content_type": "str"},
    });
    let error = reject(&wrong);
    assert!(error.starts_with("column `c0` has a missing value"), "{error}");
}

#[test]
fn catboost_arrays_of_texts_and_integers_are_categories() {
    let case = case("ctr_borders", "cbm", "model.bin", ".");
    let expected = json!(case.expected("predict", 6));
    let texts = (0..6).flat_map(|row| {
        case.columns.iter().map(move |column| match &column["data"][row] {
            Value::Null => json!("nan"),
            Value::String(text) => json!(text),
            other => json!(other.to_string()),
        })
    });
    let texts: Vec<Value> = texts.collect();
    let width = case.columns.len();
    // The hash of an integer is that of its text.
    let as_text = case.inputs(6).into_iter().map(|mut input| {
        if input["datatype"] == "INT64" {
            input["datatype"] = json!("BYTES");
            let texts: Vec<_> = input["data"].as_array().unwrap().iter().map(Value::to_string).collect();
            input["data"] = json!(texts);
        }
        input
    });
    let as_text: Vec<_> = as_text.collect();
    let inputs = case.inputs(6);
    let server = TestServer::start(case.folder);
    let array = |columns: usize, texts: &[Value]| json!({"inputs": [{"name": "x", "shape": [texts.len() / columns, columns], "datatype": "BYTES", "data": texts}]});
    assert_eq!(infer(&server, &array(width, &texts))["outputs"][0]["data"], expected);
    assert_eq!(infer(&server, &frame(&as_text))["outputs"][0]["data"], expected);
    // Booleans are the categories 0 and 1, as in the library.
    let bits = |datatype: &str, data: Value| {
        let mut inputs = inputs.clone();
        for input in inputs.iter_mut().filter(|input| input["datatype"] == "INT64") {
            (input["datatype"], input["data"]) = (json!(datatype), data.clone());
        }
        assert!(inputs.iter().any(|input| input["datatype"] == datatype));
        let mut request = frame(&inputs);
        request["outputs"] = json!([{"name": "raw"}]);
        infer(&server, &request)["outputs"][0]["data"].clone()
    };
    let as_numbers = bits("INT64", json!([1, 0, 0, 1, 1, 0]));
    assert_eq!(bits("BOOL", json!([true, false, false, true, true, false])), as_numbers);
    let reject = |body: Value| server.post("/v2/models/m/infer", body.to_string()).error(400);
    assert_eq!(reject(array(2, &texts)), format!("the request has 2 columns, but this model expects {width}"));
    let mut wrong = texts.clone();
    let number = case.columns.iter().position(|column| column["datatype"] == "FP32").unwrap();
    wrong[number] = json!("five");
    let error = reject(array(width, &wrong));
    assert!(error.contains("has `five`, but this model was trained with numbers in it"), "{error}");
}

#[tokio::test]
async fn catboost_grpc_answers_texts_and_numbers() {
    let case = case("loss_multilogloss", "cbm", "model.cbm", ".");
    let expected = case.expected("predict", 6);
    let texts = (0..2).flat_map(|row| {
        case.columns.iter().map(move |column| match &column["data"][row] {
            Value::Null => "nan".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    });
    let contents = InferTensorContents {
        bytes_contents: texts.map(|text| text.into_bytes().into()).collect(),
        ..InferTensorContents::default()
    };
    let server = TestServer::start(case.folder);
    let mut client = inference_client(server.grpc).await;
    let request = infer_request("m", "BYTES", &[2, 3], contents);
    let answer = client.model_infer(request).await.unwrap().into_inner();
    let output = &answer.outputs[0];
    assert_eq!((output.name.as_str(), output.datatype.as_str(), &output.shape[..]), ("predict", "INT64", &[2, 3][..]));
    let found = output.contents.as_ref().unwrap().int64_contents.iter().map(|label| json!(label));
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let error = client.model_infer(infer_request("m", "FP32", &[1, 3], floats(&[1.0; 3]))).await.unwrap_err();
    assert!(error.message().contains("has floating-point numbers"), "{error}");
}

#[test]
fn catboost_boolean_labels_and_regressors_have_their_own_types() {
    let labels = case("labels_bool", "cbm", "model.cbm", ".");
    let (inputs, expected) = (labels.inputs(5), labels.expected("predict", 5));
    let server = TestServer::start(labels.folder);
    let answer = infer(&server, &frame(&inputs));
    assert_eq!((&answer["outputs"][0]["datatype"], &answer["outputs"][0]["data"]), (&json!("BOOL"), &json!(expected)));

    let numbers = case("loss_rmsewithuncertainty", "cbm", "model.cbm", ".");
    let inputs = numbers.inputs(5);
    let server = TestServer::start(numbers.folder);
    let mut body = frame(&inputs);
    assert_eq!(infer(&server, &body)["outputs"][0]["shape"], json!([5, 2]));
    body["outputs"] = json!([{"name": "predict_proba"}]);
    let error = server.post("/v2/models/m/infer", body.to_string()).error(400);
    assert_eq!(error, "CatBoostRegressor models do not support 'predict_proba");
}

#[test]
fn infer_reads_categories_from_tables_and_lines() {
    let case = case("ctr_borders", "cbm", "model.cbm", ".");
    let expected = case.expected("predict", 12);
    let names: Vec<_> = case.columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
    let row = |row: usize| {
        let values = case.columns.iter().map(|column| column["data"][row].clone());
        names.iter().map(|name| (*name).to_owned()).zip(values).collect::<serde_json::Map<_, _>>()
    };
    let lines: String = (0..12).map(|index| json!(row(index)).to_string() + "\n").collect();
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => format!("\"{text}\""),
        other => other.to_string(),
    };
    let csv = (0..12).map(|index| row(index).values().map(cell).collect::<Vec<_>>().join(",") + "\n");
    let csv = names.join(",") + "\n" + &csv.collect::<String>();
    let folder = case.folder.file("in.ndjson", lines).file("in.csv", csv);
    for input in ["in.ndjson", "in.csv"] {
        let answers = format!("{input}.jsonl");
        let output = run_mlserver(folder.root(), &["infer", "--embedded", "m", "-i", input, "-o", &answers]);
        assert_eq!(output.status.code(), Some(0), "{input}: {}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(folder.path(&answers)).unwrap();
        let found =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["outputs"][0]["data"][0].clone());
        assert_eq!(found.collect::<Vec<_>>(), expected, "{input}");
    }
}

#[test]
fn catboost_json_file_is_recognized_by_its_content() {
    let found = case("labels_bool", "json", "x.json", ".");
    let bytes = std::fs::read(found.folder.path("m/x.json")).unwrap();
    let folder = Folder::new().file("churn.json", bytes);
    let output = run_mlserver(folder.root(), &["inspect", "churn.json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("CatBoost classifier\nwritten by: CatBoost 1.2.10\n"), "{text}");
    assert!(text.contains("outputs: predict, predict_proba, raw, leaf\n"), "{text}");
}

/// Returns the numbers of an output.
fn numbers(output: &Value) -> Vec<f64> {
    output["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[tokio::test]
async fn catboost_contributions_are_an_output_over_every_protocol() {
    let case = case("contributions_deep", "cbm", "model.cbm", ".");
    let rows: Vec<Vec<Value>> =
        (0..4).map(|row| case.columns.iter().map(|column| column["data"][row].clone()).collect()).collect();
    let values: Vec<f32> =
        rows.concat().iter().map(|value| value.as_f64().map_or(f32::NAN, |value| value as f32)).collect();
    let (inputs, wanted) = (case.inputs(4), case.expected("contributions", 4 * 3 * 6));
    let wanted: Vec<f64> = wanted.iter().map(|value| value.as_f64().unwrap()).collect();
    let names: Vec<Value> = case.columns.iter().map(|column| column["name"].clone()).collect();
    let server = TestServer::start(case.folder);
    assert_eq!(server.get("/v2/models/m").ok()["parameters"]["contributions"], "margin");

    let mut body = frame(&inputs);
    body["outputs"] = json!([{"name": "contributions"}, {"name": "margin"}, {"name": "raw"}]);
    let answer = infer(&server, &body);
    let [contributions, margin, raw] = &answer["outputs"].as_array().unwrap()[..] else { unreachable!("{answer}") };
    assert_eq!((&contributions["datatype"], &contributions["shape"]), (&json!("FP64"), &json!([4, 3, 6])));
    assert_eq!((&margin["name"], &margin["data"]), (&json!("margin"), &raw["data"]));
    let found = numbers(contributions);
    let largest = wanted.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!((found - wanted).abs() <= 1e-10 * largest, "{found} instead of {wanted}");
    }

    let mut request = infer_request("m", "FP32", &[4, 5], floats(&values));
    request.outputs = vec![InferRequestedOutputTensor { name: "contributions".to_owned(), ..Default::default() }];
    let over_grpc = inference_client(server.grpc).await.model_infer(request).await.unwrap().into_inner();
    assert_eq!(over_grpc.outputs[0].contents.as_ref().unwrap().fp64_contents, found);

    let explained = server.post("/v1/models/m:explain", json!({"instances": [rows[0]]}).to_string()).ok();
    let explanations = &explained["explanations"];
    for (group, found) in found[..18].chunks_exact(6).enumerate() {
        assert_eq!(explanations["contributions"][0][group], json!(found[..5]));
        assert_eq!(explanations["bias"][group], json!(found[5]));
    }
    assert_eq!(
        (&explanations["feature_names"], &explanations["margin"][0]),
        (&json!(names), &json!(numbers(raw)[..3]))
    );

    body["outputs"] = json!([{"name": "contributions"}]);
    body["parameters"]["contributions_top"] = json!(2);
    let answer = infer(&server, &body);
    let [indexes, values] = &answer["outputs"].as_array().unwrap()[..] else { unreachable!("{answer}") };
    assert_eq!((&indexes["datatype"], &indexes["shape"]), (&json!("INT32"), &json!([4, 3, 2])));
    for ((group, index), value) in
        found.chunks_exact(6).zip(numbers(indexes).iter().step_by(2)).zip(numbers(values).iter().step_by(2))
    {
        let most = group[..5].iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        assert_eq!((group[*index as usize], value.abs()), (*value, most));
    }
}

#[test]
fn catboost_contributions_that_are_refused_say_why() {
    for (name, extra, said) in [
        ("one_hot", json!({}), "it was trained with categories"),
        ("contributions_scaled", json!({}), "its raw values have the scale 2"),
        ("contributions_uncertain", json!({}), "`RMSEWithUncertainty`"),
        ("contributions_empty_leaves_rmse", json!({}), "has a value, but no training rows"),
        ("contributions_deep", json!({"explain_max_bytes": 1000}), "more than 1000 bytes"),
        ("contributions_deep", json!({"explain": false}), "explanations are switched off"),
    ] {
        let Case { folder, columns, .. } = case(name, "cbm", "model.cbm", ".");
        let settings = json!({
            "name": "m", "implementation": "mlserver_catboost.CatboostModel", "parameters": {"uri": ".", "extra": extra},
        });
        let server = TestServer::start(folder.file("m/model-settings.json", settings.to_string()));
        let inputs: Vec<Value> = columns
            .iter()
            .map(|column| {
                let mut input = column.clone();
                input["shape"] = json!([1, 1]);
                input["data"] = json!([column["data"][0]]);
                input
            })
            .collect();
        let mut body = frame(&inputs);
        body["outputs"] = json!([{"name": "contributions"}]);
        let error = server.post("/v2/models/m/infer", body.to_string()).error(400);
        assert!(error.contains(said), "{name}: {error}");
        body["outputs"] = json!([{"name": "margin"}, {"name": "leaf"}]);
        assert_eq!(infer(&server, &body)["outputs"].as_array().unwrap().len(), 2, "{name}");
    }
}

#[test]
fn catboost_contributions_may_be_the_default_output() {
    let case = case("contributions_symmetrictree", "cbm", "model.cbm", ".");
    let inputs = case.inputs(2);
    let settings = json!({
        "name": "m", "implementation": "mlserver_catboost.CatboostModel",
        "parameters": {"uri": ".", "extra": {"predict_fn": "contributions"}},
    });
    let server = TestServer::start(case.folder.file("m/model-settings.json", settings.to_string()));
    let answer = infer(&server, &frame(&inputs));
    assert_eq!(
        (&answer["outputs"][0]["name"], &answer["outputs"][0]["shape"]),
        (&json!("contributions"), &json!([2, 6]))
    );
}
