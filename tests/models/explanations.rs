//! Contributions, margins and leaves of tree models, over every protocol. What the libraries answer is in the golden cases.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of JSON are read as `f64`")]
#![expect(clippy::float_cmp, reason = "the same numbers come in several ways")]

use mlserver::types::protobuf::messages::model_infer_request::InferRequestedOutputTensor;
use serde_json::{Value, json};

use super::sklearn_serving;
use crate::support::grpc::{floats, infer_request, inference_client, raw_request};
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

/// A server of a golden model of scikit-learn with these further settings, and the answer to two rows.
fn sklearn(case: &str, extra: &Value) -> TestServer {
    TestServer::start(sklearn_serving::folder(case, "model.joblib", &json!({"extra": extra})))
}

fn two_rows(outputs: &[&str]) -> Value {
    let outputs: Vec<_> = outputs.iter().map(|name| json!({"name": name})).collect();
    let data = [0.3, -1.2, 0.5, 2.0, -0.4, 0.1, 1.7, -2.5];
    json!({"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP64", "data": data}], "outputs": outputs})
}

#[test]
fn explanations_of_scikit_learn_add_up_to_its_predictions() {
    for (case, space, equal, shape, leaf) in [
        ("1.9.1/trees/forest_3.joblib", "probability", Some("predict_proba"), json!([2, 3, 5]), Some(json!([2, 7]))),
        ("1.9.1/trees/tree_regressor.joblib", "prediction", Some("predict"), json!([2, 5]), Some(json!([2, 1]))),
        (
            "1.9.1/trees/boosting_3.joblib",
            "margin",
            Some("decision_function"),
            json!([2, 3, 5]),
            Some(json!([2, 6, 3])),
        ),
        ("1.9.1/trees/boosting_regressor.joblib", "margin", Some("predict"), json!([2, 5]), Some(json!([2, 6]))),
        ("1.9.1/trees/histogram_2.joblib", "margin", Some("decision_function"), json!([2, 5]), None),
        ("1.9.1/wrappers/lgbm_3.joblib", "margin", Some("decision_function"), json!([2, 3, 5]), Some(json!([2, 12]))),
        ("1.9.1/wrappers/xgb_3.joblib", "margin", None, json!([2, 3, 5]), Some(json!([2, 12]))),
    ] {
        let server = sklearn(case, &json!({}));
        assert_eq!(server.get("/v2/models/m").ok()["parameters"]["contributions"], space, "{case}");
        let mut names = vec!["contributions", "margin"];
        names.extend(equal);
        let answer = infer(&server, "m", &two_rows(&names));
        let outputs = answer["outputs"].as_array().unwrap();
        let found: Vec<_> = outputs.iter().map(|output| output["name"].as_str().unwrap()).collect();
        assert_eq!(found, names);
        let datatype = if case.contains("xgb") { "FP32" } else { "FP64" };
        assert_eq!((&outputs[0]["shape"], &outputs[0]["datatype"]), (&shape, &json!(datatype)), "{case}");
        let twice = infer(&server, "m", &two_rows(&["contributions", "contributions"]));
        assert_eq!(twice["outputs"], json!([outputs[0], outputs[0]]));
        assert_eq!(outputs[0]["parameters"]["content_type"], "np");
        check_sums(&numbers(&outputs[0]), &numbers(&outputs[1]), 4);
        if equal.is_some() {
            for (margin, equal) in numbers(&outputs[1]).iter().zip(numbers(&outputs[2])) {
                assert!((margin - equal).abs() < 1e-12, "{case}: {margin} instead of {equal}");
            }
        }
        let leaves = server.post("/v2/models/m/infer", two_rows(&["leaf"]).to_string());
        match leaf {
            Some(shape) => {
                let answer = leaves.ok();
                assert_eq!(
                    (&answer["outputs"][0]["shape"], &answer["outputs"][0]["datatype"]),
                    (&shape, &json!("INT32"))
                );
            }
            None => assert!(leaves.error(400).contains("has no numbers of leaves"), "{case}"),
        }
        let rows = json!({"instances": [[0.3, -1.2, 0.5, 2.0], [-0.4, 0.1, 1.7, -2.5]]});
        let explained = server.post("/v1/models/m:explain", rows.to_string()).ok();
        let biases = explained["explanations"]["bias"].as_array().unwrap().len();
        assert_eq!(biases, if shape.as_array().unwrap().len() == 3 { 3 } else { 1 }, "{case}");
        let mut request = two_rows(&["contributions", "predict"]);
        request["parameters"] = json!({"contributions_top": 2});
        let answer = infer(&server, "m", &request);
        let found: Vec<_> = answer["outputs"].as_array().unwrap().iter().map(|output| output["name"].clone()).collect();
        assert_eq!(found, ["contributions_index", "contributions_value", "predict"]);
        assert_eq!(infer(&server, "m", &two_rows(&[]))["outputs"][0]["name"], "predict");
    }
}

#[test]
fn explanations_of_scikit_learn_have_the_names_and_settings_of_the_model() {
    let case = "1.9.1/trees/categories_frame.joblib";
    let server = sklearn(case, &json!({"predict_fn": "contributions"}));
    let column = |name: &str, datatype: &str, data: Value| json!({"name": name, "shape": [2], "datatype": datatype, "data": data});
    let inputs = json!([
        column("size", "FP64", json!([0.5, -1.0])),
        column("colour", "BYTES", json!(["red", "blue"])),
        column("shape", "INT64", json!([2, 4])),
        column("weight", "FP64", json!([1.0, 0.0])),
    ]);
    let request = json!({"parameters": {"content_type": "pd"}, "inputs": inputs});
    let answer = infer(&server, "m", &request);
    assert_eq!(
        (&answer["outputs"][0]["name"], &answer["outputs"][0]["shape"]),
        (&json!("contributions"), &json!([2, 3, 5]))
    );
    // The model splits on sizes and shapes, whose places in a row are not those in the trees.
    let found = numbers(&answer["outputs"][0]);
    for (feature, is_split) in [(0, true), (1, false), (2, true)] {
        assert_eq!(found[feature].abs().max(found[15 + feature].abs()) > 0.01, is_split, "{found:?}");
    }
    drop(server);

    let off = sklearn(case, &json!({"explain": false}));
    let mut asked = request.clone();
    asked["outputs"] = json!([{"name": "contributions"}]);
    let error = off.post("/v2/models/m/infer", asked.to_string()).error(400);
    assert!(error.contains("explanations are switched off for this model"), "{error}");
    assert_eq!(off.get("/v2/models/m").ok()["parameters"].get("contributions"), None);
    asked["outputs"] = json!([{"name": "margin"}]);
    assert_eq!(infer(&off, "m", &asked)["outputs"][0]["shape"], json!([2, 3]));
    drop(off);

    let small = sklearn("1.9.1/trees/forest_3.joblib", &json!({"explain_max_bytes": 1000}));
    let error = small.post("/v2/models/m/infer", two_rows(&["contributions"]).to_string()).error(400);
    assert!(error.contains("RandomForestClassifier") && error.contains("more than 1000 bytes"), "{error}");
}

#[test]
fn explanations_of_other_estimators_are_refused_by_name() {
    for (case, said) in [
        (
            "1.9.1/linear/labels_text.joblib",
            "`LogisticRegression` has no output `contributions`: scikit-learn's decision trees",
        ),
        ("1.9.1/ensembles/isolation.joblib", "`IsolationForest` has no output"),
        ("1.9.1/compose/pipeline_forest.joblib", "its last step sees transformed features"),
        ("1.9.1/trees/boosting_logistic_2.joblib", "its sums start with predictions of `LogisticRegression`"),
    ] {
        let server = sklearn(case, &json!({}));
        let error = server.post("/v2/models/m/infer", two_rows(&["contributions"]).to_string()).error(400);
        assert!(error.contains(said), "{case}: {error}");
        assert_eq!(server.get("/v2/models/m").ok()["parameters"].get("contributions"), None, "{case}");
        let rows = json!({"instances": [[0.0, 0.0, 0.0, 0.0]]});
        let answer = server.post("/v1/models/m:explain", rows.to_string());
        assert_eq!(answer.status, 501, "{case}: {}", answer.text());
    }
}

#[test]
fn explanations_pass_through_a_graph() {
    let manifest = |from: &str| {
        let steps = json!([{"name": "iris"}, {"name": "last", "inputs": [from]}]);
        let spec = json!({"steps": steps, "output": {"steps": ["last"]}});
        let metadata = json!({"name": "graph"});
        json!({"apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": metadata, "spec": spec})
            .to_string()
    };
    let settings = |name: &str, manifest: &str| {
        json!({"name": name, "implementation": "mlserver.Graph", "parameters": {"uri": manifest}}).to_string()
    };
    let alone = json!({"steps": [{"name": "iris"}], "output": {"steps": ["iris"]}});
    let alone =
        json!({"apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "g"}, "spec": alone});
    let server = TestServer::start(
        with_extra("iris", &json!({"predict_fn": "contributions"}), &json!({}))
            .with_identity("last")
            .file("ends/graph.yaml", alone.to_string())
            .file("ends/model-settings.json", settings("ends", "./graph.yaml"))
            .file("passes/graph.yaml", manifest("iris.outputs.contributions"))
            .file("passes/model-settings.json", settings("passes", "./graph.yaml")),
    );
    let wanted = infer(&server, "iris", &irises(&ROWS, &["contributions", "margin"]));
    // The last step gets the outputs that the request names, and a step in between returns its default output.
    let ends = infer(&server, "ends", &irises(&ROWS, &["contributions", "margin"]));
    assert_eq!(ends["outputs"], wanted["outputs"]);
    let passes = infer(&server, "passes", &irises(&ROWS, &[]));
    assert_eq!(passes["outputs"][0]["shape"], json!([3, 3, 5]));
    assert_eq!(passes["outputs"][0]["data"], wanted["outputs"][0]["data"]);
}

/// Returns the processor time of a process so far, in hundredths of a second.
fn processor_time(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = status.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[tokio::test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads the processor time from `/proc`")]
async fn explanations_stop_when_the_client_disconnects() {
    let server = TestServer::quickstart();
    let process = server.process_id();
    let request = |rows: usize| {
        let values: Vec<u8> =
            ROWS.concat().iter().cycle().take(rows * 4).flat_map(|value| (*value as f32).to_le_bytes()).collect();
        let mut request = raw_request(IRIS, "FP32", &[i64::try_from(rows).unwrap(), 4], values);
        request.outputs = vec![InferRequestedOutputTensor { name: "contributions".to_owned(), ..Default::default() }];
        request
    };
    let mut client = inference_client(server.grpc).await;
    client.model_infer(request(10)).await.unwrap();
    let before = processor_time(process);
    client.model_infer(request(20_000)).await.unwrap();
    let whole = processor_time(process) - before;
    // Far more work than what is left after the disconnect.
    let rows = 20_000 * (600 / whole.max(1)).clamp(5, 30) as usize;
    let expected = whole * rows as u64 / 20_000;
    let before = processor_time(process);
    let call = tokio::spawn(async move { client.model_infer(request(rows)).await });
    while processor_time(process) - before < expected / 5 {
        assert!(!call.is_finished(), "it was answered");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    call.abort();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let used = processor_time(process) - before;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let later = processor_time(process) - before;
    assert!(used < expected * 4 / 5 && later <= used + 5, "{used}, then {later} of {expected}");
}
