//! Contributions, margins and leaves of tree models, over every protocol. What the libraries answer is in the golden cases.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of JSON are read as `f64`")]
#![expect(clippy::float_cmp, reason = "the same numbers come in several ways")]

use mlserver::types::protobuf::messages::model_infer_request::InferRequestedOutputTensor;
use serde_json::{Value, json};

use crate::support::grpc::{floats, infer_request, inference_client};
use crate::support::{BREAST_CANCER, Folder, IRIS, TestServer, repository_path};

const ROWS: [[f64; 4]; 3] = [[6.2, 2.8, 4.8, 1.8], [5.1, 3.5, 1.4, 0.2], [5.9, 3.0, 4.2, 1.5]];

/// A request of rows of irises with these outputs.
fn irises(rows: &[[f64; 4]], outputs: &[&str]) -> Value {
    let outputs: Vec<_> = outputs.iter().map(|name| json!({"name": name})).collect();
    let input = json!({"name": "x", "shape": [rows.len(), 4], "datatype": "FP32", "data": rows.concat()});
    json!({"inputs": [input], "outputs": outputs})
}

fn infer(server: &TestServer, model: &str, request: &Value) -> Value {
    server.post(&format!("/v2/models/{model}/infer"), request.to_string()).ok()
}

fn numbers(output: &Value) -> Vec<f64> {
    output["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Contributions of several classes add up to the margins.
fn check_sums(contributions: &[f64], margins: &[f64], features: usize) {
    assert_eq!(contributions.len(), margins.len() * (features + 1));
    for (contributions, margin) in contributions.chunks_exact(features + 1).zip(margins) {
        let sum: f64 = contributions.iter().sum();
        assert!((sum - margin).abs() < 1e-5, "{contributions:?} add up to {sum} instead of {margin}");
        assert!(contributions.iter().any(|value| value.abs() > 1e-3));
    }
}

#[tokio::test]
async fn explanations_are_outputs_over_rest_and_grpc() {
    let server = TestServer::quickstart();
    let names = ["contributions", "margin", "leaf", "predict", "predict_proba"];
    let answer = infer(&server, IRIS, &irises(&ROWS, &names));
    let outputs = answer["outputs"].as_array().unwrap();
    let found: Vec<_> = outputs.iter().map(|output| output["name"].as_str().unwrap()).collect();
    assert_eq!(found, names);
    let of_output = |index: usize| (outputs[index]["datatype"].clone(), outputs[index]["shape"].clone());
    assert_eq!(of_output(0), (json!("FP32"), json!([3, 3, 5])));
    assert_eq!(of_output(1), (json!("FP32"), json!([3, 3])));
    let (datatype, shape) = of_output(2);
    let trees = shape[1].as_u64().unwrap();
    assert!(datatype == "INT32" && shape[0] == 3 && trees >= 3 && trees.is_multiple_of(3), "{shape}");
    check_sums(&numbers(&outputs[0]), &numbers(&outputs[1]), 4);

    let values: Vec<f32> = ROWS.concat().into_iter().map(|value| value as f32).collect();
    let mut request = infer_request(IRIS, "FP32", &[3, 4], floats(&values));
    let requested = |name: &str| InferRequestedOutputTensor { name: name.to_owned(), ..Default::default() };
    request.outputs = names.map(requested).into();
    let over_grpc = inference_client(server.grpc).await.model_infer(request).await.unwrap().into_inner();
    let floats = |index: usize| -> Vec<f64> {
        over_grpc.outputs[index]
            .contents
            .as_ref()
            .unwrap()
            .fp32_contents
            .iter()
            .map(|value| f64::from(*value))
            .collect()
    };
    let rounded =
        |index: usize| -> Vec<f64> { numbers(&outputs[index]).iter().map(|value| f64::from(*value as f32)).collect() };
    assert_eq!((floats(0), floats(1)), (rounded(0), rounded(1)));
    let leaves = &over_grpc.outputs[2].contents.as_ref().unwrap().int_contents;
    assert_eq!(leaves.iter().map(|leaf| f64::from(*leaf)).collect::<Vec<_>>(), numbers(&outputs[2]));

    // One group: no dimension for it. LightGBM computes in double precision, and ignores other outputs.
    let input = json!({"name": "x", "shape": [2, 30], "datatype": "FP64", "data": vec![1.5; 60]});
    let ask = |names: &[&str]| {
        let outputs: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        infer(&server, BREAST_CANCER, &json!({"inputs": [input], "outputs": outputs}))
    };
    let answer = ask(&["margin", "contributions"]);
    let outputs = answer["outputs"].as_array().unwrap();
    assert_eq!((&outputs[1]["datatype"], &outputs[1]["shape"]), (&json!("FP64"), &json!([2, 31])));
    check_sums(&numbers(&outputs[1]), &numbers(&outputs[0]), 30);
    assert_eq!(ask(&["predict_proba"])["outputs"][0]["name"], "predict");
}

#[test]
fn explanations_do_not_change_what_is_not_asked_for() {
    let server = TestServer::quickstart();
    let answer = infer(&server, IRIS, &irises(&ROWS, &[]));
    assert_eq!(answer["outputs"].as_array().unwrap().len(), 1);
    assert_eq!(answer["outputs"][0]["name"], "predict");
    let metadata = server.get(&format!("/v2/models/{IRIS}")).ok();
    assert_eq!(metadata["parameters"]["contributions"], "margin");
    assert_eq!(metadata["outputs"].as_array().unwrap().len(), 2, "outputs are those of the settings");
    let wrong = server.post(&format!("/v2/models/{IRIS}/infer"), irises(&ROWS, &["shap"]).to_string());
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("'contributions'"), "{}", wrong.text());
}

#[test]
fn explanations_over_v1_have_bias_names_and_margin() {
    let server = TestServer::quickstart();
    let answer = server.post(&format!("/v1/models/{IRIS}:explain"), json!({"instances": ROWS}).to_string()).ok();
    let explanations = &answer["explanations"];
    let over_v2 = infer(&server, IRIS, &irises(&ROWS, &["contributions", "margin"]));
    let contributions = numbers(&over_v2["outputs"][0]);
    for (row, wanted) in contributions.chunks_exact(15).enumerate() {
        for (group, wanted) in wanted.chunks_exact(5).enumerate() {
            assert_eq!(explanations["contributions"][row][group], json!(wanted[..4]));
            assert_eq!(explanations["bias"][group], json!(wanted[4]));
        }
    }
    assert_eq!(explanations["bias"].as_array().unwrap().len(), 3);
    assert_eq!(explanations["margin"][2], json!(numbers(&over_v2["outputs"][1])[6..]));
    assert_eq!(explanations["feature_names"], Value::Null);
    let answer =
        server.post(&format!("/v1/models/{BREAST_CANCER}:explain"), json!({"instances": [vec![1.5; 30]]}).to_string());
    let explanations = &answer.ok()["explanations"];
    assert_eq!(explanations["feature_names"].as_array().unwrap().len(), 30);
    assert_eq!(explanations["contributions"][0].as_array().unwrap().len(), 30);
    assert_eq!(explanations["bias"].as_array().unwrap().len(), 1);
    assert_eq!(explanations["margin"].as_array().unwrap().len(), 1);
}

#[test]
fn explanations_of_the_largest_contributions() {
    let server = TestServer::quickstart();
    let top = |count: Value, outputs: &[&str]| {
        let mut request = irises(&ROWS, outputs);
        request["parameters"] = json!({"contributions_top": count});
        server.post(&format!("/v2/models/{IRIS}/infer"), request.to_string())
    };
    let all = numbers(&infer(&server, IRIS, &irises(&ROWS, &["contributions"]))["outputs"][0]);
    for (outputs, first) in [(&["predict", "contributions"][..], 1), (&["contributions"], 0), (&[], 0)] {
        let answer = top(json!(2), outputs).ok();
        let [indexes, values] = [&answer["outputs"][first], &answer["outputs"][first + 1]];
        assert_eq!((&indexes["name"], &values["name"]), (&json!("contributions_index"), &json!("contributions_value")));
        assert_eq!((&indexes["shape"], &indexes["datatype"]), (&json!([3, 3, 2]), &json!("INT32")));
        let (indexes, values) = (numbers(indexes), numbers(values));
        for ((group, indexes), values) in all.chunks_exact(5).zip(indexes.chunks_exact(2)).zip(values.chunks_exact(2)) {
            assert!(values[0].abs() >= values[1].abs());
            for (index, value) in indexes.iter().zip(values) {
                assert_eq!(group[*index as usize], *value);
            }
            let larger = group[..4].iter().filter(|value| value.abs() > values[1].abs()).count();
            assert!(larger <= 1, "{group:?}, {values:?}");
        }
    }
    assert_eq!(top(json!(100), &["contributions"]).ok()["outputs"][0]["shape"], json!([3, 3, 4]));
    for (count, outputs, said) in [
        (json!(0), &["contributions"][..], "from 1"),
        (json!(-1), &["contributions"], "from 1"),
        (json!("all"), &["contributions"], "contributions_top"),
        (json!(2), &["predict"], "not among the requested outputs"),
    ] {
        let answer = top(count, outputs);
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains(said), "{}", answer.text());
    }
}

/// A folder of the iris model with these further settings.
fn with_extra(name: &str, extra: &Value, further: &Value) -> Folder {
    let model = std::fs::read(repository_path("examples/quickstart/iris-xgboost/model.json")).unwrap();
    let mut parameters = json!({"uri": "./model.json"});
    parameters["extra"] = extra.clone();
    let mut settings =
        json!({"name": name, "implementation": "mlserver_xgboost.XGBoostModel", "parameters": parameters});
    settings.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    Folder::new().file("m/model.json", model).file("m/model-settings.json", settings.to_string())
}

#[test]
fn explanations_can_be_switched_off_limited_and_made_the_default() {
    let off = TestServer::start(with_extra("off", &json!({"explain": false}), &json!({})));
    let said = "explanations are switched off for this model";
    for answer in [
        off.post("/v2/models/off/infer", irises(&ROWS, &["contributions"]).to_string()),
        off.post("/v1/models/off:explain", json!({"instances": ROWS}).to_string()),
    ] {
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains(said), "{}", answer.text());
    }
    assert_eq!(off.get("/v2/models/off").ok()["parameters"].get("contributions"), None);
    assert_eq!(infer(&off, "off", &irises(&ROWS, &["margin", "leaf"]))["outputs"].as_array().unwrap().len(), 2);
    drop(off);

    let small = TestServer::start(with_extra("small", &json!({"explain_max_bytes": 1000}), &json!({})));
    let answer = small.post("/v2/models/small/infer", irises(&ROWS, &["contributions"]).to_string());
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("more than 1000 bytes"), "{}", answer.text());
    drop(small);

    let server = TestServer::start(with_extra("m", &json!({"predict_fn": "contributions"}), &json!({})));
    assert_eq!(infer(&server, "m", &irises(&ROWS, &[]))["outputs"][0]["name"], "contributions");
    assert_eq!(infer(&server, "m", &irises(&ROWS, &["predict"]))["outputs"][0]["name"], "predict");
}

#[test]
fn explanations_of_batches_and_of_the_cache_are_those_of_their_rows() {
    let alone = TestServer::start(Folder::iris());
    let further = json!({"max_batch_size": 8, "max_batch_time": 0.2, "cache_enabled": true});
    let server = TestServer::start(with_extra("batched", &json!({}), &further));
    for names in [&["contributions", "margin"][..], &["leaf"]] {
        let wanted: Vec<Value> =
            ROWS.iter().map(|row| infer(&alone, IRIS, &irises(&[*row], names))["outputs"].clone()).collect();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                for (row, wanted) in ROWS.iter().zip(&wanted) {
                    let server = &server;
                    scope.spawn(move || {
                        assert_eq!(infer(server, "batched", &irises(&[*row], names))["outputs"], *wanted);
                    });
                }
            });
        }
    }
}

#[test]
fn explanations_that_a_file_does_not_allow_say_why() {
    let model =
        std::fs::read_to_string(repository_path("examples/quickstart").join(BREAST_CANCER).join("model.bst")).unwrap();
    let count = model.lines().find(|line| line.starts_with("internal_count=")).unwrap();
    let zeros: Vec<&str> = count.split_whitespace().map(|_| "0").collect();
    let without: String =
        model.lines().filter(|line| !line.starts_with("leaf_count=")).map(|line| line.to_owned() + "\n").collect();
    for (text, said) in [
        (model.replace(count, &format!("internal_count={}", zeros.join(" "))), "has the cover 0"),
        (without, "does not say how many training rows"),
    ] {
        let settings = json!({"name": "m", "implementation": "mlserver_lightgbm.LightGBMModel", "parameters": {"uri": "./model.txt"}});
        let folder = Folder::new().file("m/model.txt", text).file("m/model-settings.json", settings.to_string());
        let server = TestServer::start(folder);
        let input = json!({"name": "x", "shape": [1, 30], "datatype": "FP64", "data": vec![1.5; 30]});
        let ask = |name: &str| {
            let request = json!({"inputs": [input], "outputs": [{"name": name}]});
            server.post("/v2/models/m/infer", request.to_string())
        };
        let answer = ask("contributions");
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains(said), "{}", answer.text());
        assert_eq!(ask("leaf").status, 200);
        assert_eq!(server.post("/v1/models/m:explain", json!({"instances": [vec![1.5; 30]]}).to_string()).status, 400);
    }
}
