//! scikit-learn's artifacts over REST: outputs by name, labels, errors, and rejected loads.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use crate::support::goldens::{framework_models, sklearn_golden};
use crate::support::{Folder, ServerBuilder, TestServer, repository_path, run_mlserver};

const ROW: &str = r#""inputs":[{"name":"x","shape":[1,4],"datatype":"FP64","data":[0,0,0,0]}]"#;

/// A folder with one model from the golden cases, with additional settings.
pub(super) fn folder(case: &str, file: &str, settings: &Value) -> Folder {
    let artifact = sklearn_golden(case);
    let mut all = json!({"name": "m", "implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "."}});
    let parameters = all["parameters"].as_object_mut().unwrap();
    parameters.extend(settings.as_object().unwrap().clone());
    Folder::new().file(&format!("m/{file}"), artifact).file("m/model-settings.json", all.to_string())
}

fn infer(server: &TestServer, body: &str) -> (u16, Value) {
    let answer = server.post("/v2/models/m/infer", body);
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

#[test]
fn sklearn_joblib_file_is_served_natively() {
    let server = TestServer::start(folder("1.5.2/linear/labels_text.joblib", "model.joblib", &json!({})));
    let metadata: Value = serde_json::from_slice(&server.get("/v2/models/m").body).unwrap();
    assert_eq!(metadata["parameters"]["backend"], "native");
    let outputs = r#""outputs":[{"name":"predict"},{"name":"predict_proba"},{"name":"decision_function"}]"#;
    let (status, answer) = infer(&server, &format!("{{{ROW},{outputs}}}"));
    assert_eq!(status, 200, "{answer}");
    let [label, probabilities, scores] = &answer["outputs"].as_array().unwrap()[..] else {
        unreachable!("three outputs")
    };
    assert_eq!((&label["datatype"], &label["shape"]), (&json!("BYTES"), &json!([1, 1])));
    assert_eq!(label["parameters"]["content_type"], "np");
    assert_eq!(label["data"], json!(["yes"]));
    assert_eq!((&probabilities["name"], &probabilities["datatype"]), (&json!("predict_proba"), &json!("FP64")));
    let sum: f64 = probabilities["data"].as_array().unwrap().iter().filter_map(Value::as_f64).sum();
    assert!((sum - 1.0).abs() < 1e-12, "{probabilities}");
    assert_eq!(scores["shape"], json!([1, 3]));
}

/// The same model in both formats has the same metadata and answers under any name of the file.
#[test]
fn sklearn_skops_file_answers_as_its_joblib_file() {
    let frame = r#"{"parameters": {"content_type": "pd"}, "inputs": [
        {"name": "a", "shape": [1], "datatype": "FP64", "data": [0.5]}, {"name": "b", "shape": [1], "datatype": "FP64", "data": [-1]}]}"#;
    let row = format!("{{{ROW},\"outputs\":[{{\"name\":\"predict\"}},{{\"name\":\"predict_proba\"}}]}}");
    let text = r#"{"inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["a red car", "blue"]}]}"#;
    let cases = [
        ("1.5.2/linear/labels_text", "model.skops", row.as_str()),
        ("1.9.1/linear/frame_logistic", "model.joblib", frame),
        ("1.9.1/texts/text_bernoulli", "model.skops", text),
    ];
    for (case, file, body) in cases {
        let answers = |extension: &str, file: &str| {
            let server = TestServer::start(folder(&format!("{case}.{extension}"), file, &json!({})));
            let (status, mut answer) = infer(&server, body);
            answer["id"].take();
            (server.get("/v2/models/m").ok(), status, answer)
        };
        let (metadata, status, answer) = answers("skops", file);
        assert_eq!(metadata["parameters"]["backend"], "native");
        assert_eq!((metadata, status, answer), answers("joblib", "model.joblib"), "{case}");
    }
}

/// A node that is not known is left to Python, and a damaged archive is not.
#[test]
fn sklearn_unreadable_skops_files_are_rejected_by_name() {
    let failing = |artifact: Vec<u8>| {
        let settings = json!({"name": "m", "implementation": "mlserver_sklearn.SKLearnModel",
            "parameters": {"uri": "model.skops", "extra": {"backend": "native"}}});
        let folder = Folder::new().file("m/model.skops", artifact).file("m/model-settings.json", settings.to_string());
        let ended = ServerBuilder::new(folder).run();
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        ended.stdout + &ended.stderr
    };
    let good = sklearn_golden("1.5.2/linear/labels_text.skops");
    let mut cut = good.clone();
    cut.truncate(good.len() - 30);
    assert!(failing(cut).contains("the zip archive is damaged: it has no end"));
    let mut changed = good;
    changed[60] ^= 1;
    assert!(failing(changed).contains("in the archive is damaged: its checksum is wrong"));
}

#[test]
fn sklearn_output_comes_from_request_or_settings() {
    let settings = json!({"extra": {"predict_fn": "predict_proba"}});
    let server = TestServer::start(folder("0.24.2/linear/logistic_2.joblib", "model.pkl", &settings));
    let (status, answer) = infer(&server, &format!("{{{ROW}}}"));
    assert_eq!((status, &answer["outputs"][0]["name"]), (200, &json!("predict_proba")), "{answer}");
    let (_, answer) = infer(&server, &format!(r#"{{{ROW},"outputs":[{{"name":"predict"}}]}}"#));
    assert_eq!(answer["outputs"][0]["datatype"], "INT64");

    let unknown = infer(&server, &format!(r#"{{{ROW},"outputs":[{{"name":"foo"}}]}}"#));
    let wanted = "SKLearnModel only supports 'predict', 'predict_proba' and 'transform' as outputs (foo was received)";
    assert_eq!(unknown, (400, json!({"error": wanted})));
    let without = infer(&server, &format!(r#"{{{ROW},"outputs":[{{"name":"transform"}}]}}"#));
    let wanted = "<class 'sklearn.linear_model._logistic.LogisticRegression'> models do not support 'transform";
    assert_eq!(without, (400, json!({"error": wanted})));
}

#[test]
fn sklearn_unsuitable_inputs_are_rejected() {
    let server = TestServer::start(folder("1.9.1/linear/frame_logistic.joblib", "model.pickle", &json!({})));
    let error = |inputs: Value, content_type: Option<&str>| {
        let parameters = content_type.map_or_else(|| json!({}), |name| json!({"content_type": name}));
        let (status, answer) = infer(&server, &json!({"inputs": inputs, "parameters": parameters}).to_string());
        assert_eq!(status, 400, "{answer}");
        answer["error"].as_str().unwrap().to_owned()
    };
    let narrow = error(json!([{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]), None);
    assert_eq!(narrow, "`LogisticRegression` takes 4 features, but each row has 2");
    let missing = error(json!([{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, null, 4]}]), None);
    assert_eq!(missing, "`LogisticRegression` does not accept missing or infinite values");
    let column = |name: &str| json!({"name": name, "shape": [1], "datatype": "FP64", "data": [0.5]});
    let swapped = error(json!(["a", "b", "d", "ü c"].map(column)), Some("pd"));
    assert_eq!(swapped, "column 2 is `d`, but `LogisticRegression` was fitted with `ü c` in that position");
}

/// A reader of JSON accepts one plain string for a BYTES tensor of any shape, as the original's tutorials send it. An
/// evaluator that believed such a shape would allocate what the client declares, or index beyond the one element.
#[test]
fn sklearn_declared_shape_without_its_elements_is_rejected() {
    let case = "1.9.1/encode/one_hot_str.joblib";
    let settings = json!({"extra": {"predict_fn": "transform"}});
    let server = TestServer::start(folder(case, "model.joblib", &settings));
    for shape in ["[1,3]", "[2,3]", "[50000000,3]", "[4000000000000000,3]", "[0,3]", "[3]"] {
        for content_type in ["np", "pd"] {
            let body = format!(
                r#"{{"parameters":{{"content_type":"{content_type}"}},"inputs":[{{"name":"x","shape":{shape},"datatype":"BYTES","data":"a"}}]}}"#
            );
            let answer = server.post("/v2/models/m/infer", &body);
            assert_eq!(answer.status, 400, "{shape} {content_type}: {}", answer.text());
        }
    }
    assert_eq!(server.get("/v2/health/ready").status, 200);
}

fn people(cities: &str, content_type: &str) -> String {
    format!(
        r#"{{"parameters":{{"content_type":"{content_type}"}},"inputs":[
            {{"name":"city","shape":[3,1],"datatype":"BYTES","data":{cities}}},
            {{"name":"grade","shape":[3,1],"datatype":"INT64","data":[1,2,3]}},
            {{"name":"size","shape":[3],"datatype":"FP64","data":[170,160,180]}},
            {{"name":"member","shape":[3],"datatype":"BYTES","data":["yes","no",null]}}]}}"#
    )
}

#[test]
fn sklearn_null_in_a_column_of_texts_is_a_missing_value() {
    let transform = json!({"extra": {"predict_fn": "transform"}});
    let server = TestServer::start(folder("1.9.1/encode/people_imputed.joblib", "model.joblib", &transform));
    // From scikit-learn, with a NaN in place of each null.
    let wanted: Value = serde_json::from_str(concat!(
        "[0,1,0,0,1,0,0,0,0.24385066671258085,-0.5773502691896258,0,0,0,1,0,1,0,0,-0.8991993335026459,",
        "-0.5773502691896258,0,0,0,0,0,0,1,0,1.3869006669278077,-0.5773502691896258]"
    ))
    .unwrap();
    for cities in [r#"["Oslo",null,"nowhere"]"#, r#"[["Oslo"],[null],["nowhere"]]"#] {
        let (status, answer) = infer(&server, &people(cities, "pd"));
        assert_eq!(status, 200, "{answer}");
        let [found, wanted] = [&answer["outputs"][0]["data"], &wanted]
            .map(|data| data.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect::<Vec<_>>());
        assert_eq!(found.len(), wanted.len());
        assert!(found.iter().zip(&wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-12), "{found:?}");
    }
    let refused = |body: String| {
        let (status, answer) = infer(&server, &body);
        assert_eq!(status, 400, "{body}: {answer}");
        answer["error"].as_str().unwrap().to_owned()
    };
    let element = "input `city`: element 1 is not a valid BYTES: expected a string";
    for cities in [r#"["Oslo",1,null]"#, r#"["Oslo",{"a":1},"b"]"#, r#"["Oslo",null]"#, r#"["Oslo",null,"b","c"]"#] {
        assert_eq!(refused(people(cities, "pd")), element, "{cities}");
    }
    let array = r#"{"inputs":[{"name":"city","shape":[2,1],"datatype":"BYTES","data":["Oslo",null]}]}"#;
    assert_eq!(refused(array.to_owned()), element, "an array of NumPy has no missing texts");

    let server = TestServer::start(folder("1.9.1/encode/people_filled.joblib", "model.joblib", &transform));
    let (status, answer) = infer(&server, &people(r#"["Oslo",null,"nowhere"]"#, "pd"));
    let wanted = "`SimpleImputer` does not accept missing or infinite values";
    assert_eq!((status, &answer["error"]), (400, &json!(wanted)));
}

#[test]
fn sklearn_unsupported_estimator_fails_the_load() {
    let pickle = b"cnowhere\nModel\n)\x81}b.";
    let settings = json!({
        "name": "m",
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "model.pkl", "extra": {"backend": "native"}},
    });
    let folder = Folder::new().file("m/model.pkl", pickle).file("m/model-settings.json", settings.to_string());
    let ended = ServerBuilder::new(folder).run();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let reason = "expected a scikit-learn estimator, found `nowhere.Model`";
    assert!(ended.stdout.contains(reason), "{}", ended.stdout);
}

#[test]
fn sklearn_texts_are_served_natively() {
    let server = TestServer::start(folder("1.5.2/texts/text_logistic.joblib", "model.joblib", &json!({})));
    let ask = |shape: &str| {
        let input = format!(
            r#"{{"name":"x","shape":{shape},"datatype":"BYTES","parameters":{{"content_type":"str"}},"data":["good","bad apple"]}}"#
        );
        infer(
            &server,
            &format!(r#"{{"inputs":[{input}],"outputs":[{{"name":"predict"}},{{"name":"predict_proba"}}]}}"#),
        )
    };
    for shape in ["[2]", "[2,1]"] {
        let (status, answer) = ask(shape);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["outputs"][0]["datatype"], "BYTES");
        assert!(answer["outputs"][0]["data"][0].as_str().unwrap().starts_with("label "), "{answer}");
        assert_eq!(answer["outputs"][1]["shape"], json!([2, 3]));
    }
    let (status, answer) = infer(&server, &format!("{{{ROW}}}"));
    assert_eq!((status, &answer["error"]), (400, &json!("`TfidfVectorizer` takes one text per row")));
}

#[test]
fn sklearn_data_frame_columns_match_by_name() {
    let case = "1.5.2/encode/people_scalar_logistic.joblib";
    let server = TestServer::start(folder(case, "model.joblib", &json!({"content_type": "pd"})));
    let column = |name: &str, datatype: &str, data: Value| json!({"name": name, "shape": [2], "datatype": datatype, "data": data});
    let member = column("member", "BYTES", json!(["yes", "never seen"]));
    let (size, grade) = (column("size", "FP64", json!([170.0, 180.5])), column("grade", "INT64", json!([1, 3])));
    let (status, answer) = infer(&server, &json!({"inputs": [size, member, grade]}).to_string());
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["outputs"][0]["shape"], json!([2, 1]));
    let (status, answer) = infer(&server, &json!({"inputs": [size, grade]}).to_string());
    assert_eq!(status, 400);
    let error = "`ColumnTransformer` needs the column `member`, which is missing";
    assert_eq!(answer["error"], error);
}

#[test]
fn sklearn_sparse_output_is_sent_dense() {
    let settings = json!({"extra": {"predict_fn": "transform"}});
    let server = TestServer::start(folder("1.5.2/encode/one_hot_int64.joblib", "model.joblib", &settings));
    let input = r#""inputs":[{"name":"x","shape":[1,3],"datatype":"INT64","data":[0,7,-2]}]"#;
    let (status, answer) = infer(&server, &format!("{{{input}}}"));
    assert_eq!(status, 200, "{answer}");
    let output = &answer["outputs"][0];
    assert_eq!((&output["datatype"], &output["shape"]), (&json!("FP64"), &json!([1, 15])));
    let ones: Vec<_> = (0..15).filter(|&at| output["data"][at] == 1.0).collect();
    assert_eq!(ones, [2, 10], "{output}");
}

#[test]
fn sklearn_text_output_content_type_from_metadata_or_request() {
    let output = json!({"name": "predict", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "str"}});
    let artifact = sklearn_golden("1.5.2/linear/labels_text.joblib");
    let settings = json!({"name": "m", "implementation": "mlserver_sklearn.SKLearnModel", "outputs": [output]});
    let folder = Folder::new().file("m/model.joblib", artifact).file("m/model-settings.json", settings.to_string());
    let server = TestServer::start(folder);
    let sent = |outputs: Value| {
        let (status, answer) = infer(&server, &format!(r#"{{{ROW},"outputs":{outputs}}}"#));
        assert_eq!((status, &answer["outputs"][0]["data"]), (200, &json!(["yes"])), "{answer}");
        answer["outputs"][0]["parameters"]["content_type"].clone()
    };
    assert_eq!(sent(json!([])), "str");
    for wanted in ["np", "zzz"] {
        assert_eq!(sent(json!([{"name": "predict", "parameters": {"content_type": wanted}}])), "np");
    }
    let probabilities = json!([{"name": "predict_proba", "parameters": {"content_type": "base64"}}]);
    let error = "output `predict_proba` cannot be sent as `base64`: expected `np`, or `str` for a column of texts";
    assert_eq!(infer(&server, &format!(r#"{{{ROW},"outputs":{probabilities}}}"#)), (400, json!({"error": error})));
}

/// A request, and the answer of MLServer 1.7.1; see `tests/frameworks`.
#[derive(serde::Deserialize)]
struct Case {
    name: String,
    path: String,
    body: Option<Value>,
    answer: Value,
    /// Our answer, if it differs on purpose.
    ours: Option<Value>,
}

/// Cases that the library rejects with its own message, or for a reason that does not apply to the server.
const NATIVE_ANSWERS: [(&str, Expected); 4] = [
    ("iris: too few columns", Expected::Error("`LogisticRegression` takes 4 features, but each row has 2")),
    (
        "iris: no input",
        Expected::Error(
            "the request has no inputs: send one tensor of shape [rows, columns] in `inputs`, or with the content type `pd` \
             one for each column",
        ),
    ),
    ("clusters: another precision", Expected::AnswerTo("clusters: predict")),
    ("margins: another method asked for", Expected::AnswerTo("margins: another method by default")),
];

enum Expected {
    Error(&'static str),
    AnswerTo(&'static str),
}

#[test]
fn sklearn_answers_match_the_original() {
    let models = framework_models("sklearn");
    let mut folder = Folder::new();
    // Models in `frame` are not evaluated natively: see `sklearn_pandas_output_needs_python`.
    for name in models.names().filter(|name| !name.starts_with("frame/")) {
        let mut content = models.file(name).to_vec();
        if name.ends_with("/model-settings.json") {
            let mut settings: Value = serde_json::from_slice(&content).unwrap();
            settings["parameters"]["extra"]["backend"] = json!("native");
            content = settings.to_string().into_bytes();
        }
        folder = folder.file(name, content);
    }
    let server = TestServer::start(folder);
    let cases = fs::read(repository_path("tests/frameworks/goldens/sklearn/cases.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&cases).unwrap();
    let answer_to = |name: &str| cases.iter().find(|case| case.name == name).unwrap().answer.clone();
    let mut differences = String::new();
    for case in &cases {
        if case.name.starts_with("frame: ") {
            continue;
        }
        let answer = match &case.body {
            Some(body) => server.post(&case.path, body.to_string()),
            None => server.get(&case.path),
        };
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
        if case.body.is_none() {
            // The name of the backend is our addition.
            assert_eq!(body["parameters"]["backend"].take(), "native");
            body["parameters"].as_object_mut().unwrap().remove("backend");
        }
        let found = json!({"status": answer.status, "body": body});
        let expected = match NATIVE_ANSWERS.iter().find(|(name, _)| *name == case.name) {
            Some((_, Expected::Error(error))) => json!({"status": 400, "body": {"error": error}}),
            Some((_, Expected::AnswerTo(other))) => answer_to(other),
            None => case.ours.clone().unwrap_or_else(|| case.answer.clone()),
        };
        // If the library worded the error, only the status is compared.
        let alike = found["status"] == expected["status"]
            && expected.get("body").is_none_or(|expected| alike(expected, &found["body"]));
        if !alike {
            writeln!(differences, "{}\n  expected {expected}\n  found    {found}", case.name).unwrap();
        }
    }
    assert_eq!(differences, "");
}

#[test]
fn sklearn_pandas_output_needs_python() {
    let artifact = framework_models("sklearn").file("frame/model.joblib").to_vec();
    let parameters = json!({"uri": ".", "extra": {"backend": "native"}});
    let settings =
        json!({"name": "m", "implementation": "mlserver_sklearn.SKLearnModel", "parameters": parameters}).to_string();
    let ended =
        ServerBuilder::new(Folder::new().file("m/model.joblib", artifact).file("m/model-settings.json", settings))
            .run();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let reason = "StandardScaler` with `set_output` = `pandas` is not evaluated natively";
    assert!(ended.stdout.contains(reason), "{}", ended.stdout);
}

/// Returns whether two answers agree; numbers to a relative difference of 1e-6.
fn alike(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            expected.len() == found.len()
                && expected.iter().all(|(key, value)| found.get(key).is_some_and(|found| alike(value, found)))
        }
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len() && expected.iter().zip(found).all(|(expected, found)| alike(expected, found))
        }
        (Value::Number(expected), Value::Number(found)) => {
            let (expected, found) = (expected.as_f64().unwrap(), found.as_f64().unwrap());
            (expected - found).abs() <= 1e-6 * expected.abs().max(found.abs())
        }
        (expected, found) => expected == found,
    }
}

/// Runs `mlserver inspect` on a golden case.
fn inspect(case: &str) -> String {
    let file = case.rsplit('/').next().unwrap();
    let folder = Folder::new().file(file, sklearn_golden(case));
    let output = run_mlserver(folder.root(), &["inspect", file]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn sklearn_inspect_prints_the_same_of_skops_files() {
    for case in ["1.5.2/linear/labels_text", "1.9.1/encode/one_hot_str", "1.9.1/texts/text_bernoulli"] {
        let report = |extension: &str| {
            let text = inspect(&format!("{case}.{extension}"));
            // The estimate of the memory depends on the size of the file.
            let lines = text.lines().filter(|line| !line.starts_with("memory:"));
            lines.map(|line| line.replace(extension, "file")).collect::<Vec<_>>()
        };
        assert_eq!(report("skops"), report("joblib"), "{case}");
    }
}

#[test]
fn sklearn_inspect_prints_the_estimators() {
    let pipeline = inspect("1.5.2/compose/pipeline_forest.joblib");
    for line in [
        "sklearn.pipeline.Pipeline (scikit-learn 1.5.2)\n",
        "  steps[minmaxscaler]: sklearn.preprocessing._data.MinMaxScaler\n",
        "    estimators_[0]: sklearn.tree._classes.DecisionTreeClassifier, and 4 more like it\n",
        "    n_estimators = 5\n",
        "features: 4\nwritten by: scikit-learn 1.5.2\noutputs: predict, predict_proba\nserved natively: yes\n",
    ] {
        assert!(pipeline.contains(line), "{line}{pipeline}");
    }
}
