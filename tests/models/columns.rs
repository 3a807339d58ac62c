//! Columns of tables: their names decide, never their order alone. Every family, over every protocol.

use serde_json::{Value, json};

use crate::support::{Folder, TestServer};

const MLMODEL: &str = "flavors:
  lightgbm:
    data: model.lgb
    lgb_version: 4.7.0
    model_class: lightgbm.basic.Booster
    serialization_format: cloudpickle
  python_function:
    data: model.lgb
    loader_module: mlflow.lightgbm
    python_version: 3.11.7
mlflow_version: 3.12.0
";

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/columns").join(name)).unwrap()
}

pub(crate) fn folder() -> Folder {
    let settings = |name: &str, implementation: &str, uri: &str| {
        json!({"name": name, "implementation": implementation, "parameters": {"uri": uri}}).to_string()
    };
    Folder::new()
        .file("lightgbm/model.txt", fixture("lightgbm.txt"))
        .file("lightgbm/model-settings.json", settings("lightgbm", "mlserver_lightgbm.LightGBMModel", "./model.txt"))
        .file("mlflow/model.lgb", fixture("lightgbm.txt"))
        .file("mlflow/MLmodel", MLMODEL)
        .file("mlflow/model-settings.json", settings("mlflow", "mlserver_mlflow.MLflowRuntime", "."))
        .file("xgboost/model.json", fixture("xgboost.json"))
        .file("xgboost/model-settings.json", settings("xgboost", "mlserver_xgboost.XGBoostModel", "./model.json"))
        .file("sklearn/model.joblib", fixture("sklearn.joblib"))
        .file("sklearn/model-settings.json", settings("sklearn", "mlserver_sklearn.SKLearnModel", "./model.joblib"))
}

/// The values of the four features, and the predictions of the real libraries.
const ROW: [(&str, f64); 4] = [("a", 5.1), ("b_b", 3.5), ("c", 1.4), ("d", 0.2)];
const BY_LIGHTGBM: f64 = 16.329_559_2;
/// Of the values in the reverse order, without names.
const REVERSED: f64 = 10.959_462_93;

/// The columns of a request, and what a model that finds them by name does: predict, predict by position, or reject them.
fn cases() -> Vec<(&'static str, Columns, Outcome)> {
    let renamed =
        |names: [&'static str; 4]| names.into_iter().zip(ROW).map(|(name, (_, value))| (name, value)).collect();
    vec![
        ("as trained", ROW.to_vec(), Outcome::Predicted),
        ("with a space", renamed(["a", "b b", "c", "d"]), Outcome::Predicted),
        ("in another order", ROW.into_iter().rev().collect(), Outcome::Predicted),
        ("two swapped", vec![ROW[1], ROW[0], ROW[2], ROW[3]], Outcome::Predicted),
        ("one renamed", renamed(["a", "b_b", "c", "x"]), Outcome::Rejected),
        ("all renamed", renamed(["w", "x", "y", "z"]), Outcome::ByPosition),
        ("one missing", ROW[..3].to_vec(), Outcome::Rejected),
        ("one too many", [ROW.as_slice(), &[("e", 1.0)]].concat(), Outcome::Rejected),
    ]
}

/// Names and values.
type Columns = Vec<(&'static str, f64)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Predicted,
    /// The names are of no feature: rejected if the client has named the columns, else taken in their order.
    ByPosition,
    Rejected,
}

/// Sends columns over a protocol and returns the prediction, or `None` if they are rejected with a 400.
fn ask(server: &TestServer, door: &str, model: &str, columns: &[(&str, f64)]) -> Option<f64> {
    let object: serde_json::Map<_, _> = columns.iter().map(|&(name, value)| (name.to_owned(), json!(value))).collect();
    let inputs =
        columns.iter().map(|(name, value)| json!({"name": name, "shape": [1, 1], "datatype": "FP64", "data": [value]}));
    let names: Vec<_> = columns.iter().map(|(name, _)| name).collect();
    let values: Vec<_> = columns.iter().map(|(_, value)| value).collect();
    let (path, body) = match door {
        "V1" => (format!("/v1/models/{model}:predict"), json!({"instances": [object]})),
        "V2" => (
            format!("/v2/models/{model}/infer"),
            json!({"parameters": {"content_type": "pd"}, "inputs": inputs.collect::<Vec<_>>()}),
        ),
        "records" => ("/invocations".to_owned(), json!({"dataframe_records": [object]})),
        _ => ("/invocations".to_owned(), json!({"dataframe_split": {"columns": names, "data": [values]}})),
    };
    let answer = server.post(&path, body.to_string());
    if answer.status == 400 {
        return None;
    }
    let body: Value = answer.ok();
    let data = body.get("outputs").map_or_else(|| &body["predictions"], |outputs| &outputs[0]["data"]);
    let first = if data[0].is_array() { &data[0][0] } else { &data[0] };
    Some(first.as_f64().unwrap_or_else(|| unreachable!("{body}")))
}

#[test]
fn lightgbm_finds_columns_by_name_over_every_protocol() {
    let server = TestServer::start(folder());
    for (door, model) in
        [("V1", "lightgbm"), ("V2", "lightgbm"), ("records", "mlflow"), ("split", "mlflow"), ("V2", "mlflow")]
    {
        for (name, columns, outcome) in cases() {
            let found = ask(&server, door, model, &columns);
            let expected = match outcome {
                Outcome::Predicted => Some(BY_LIGHTGBM),
                Outcome::ByPosition if door == "V2" => Some(BY_LIGHTGBM),
                Outcome::ByPosition | Outcome::Rejected => None,
            };
            let is_equal = match (found, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-5,
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_equal, "{door} {model} {name}: {found:?} instead of {expected:?}");
        }
    }
    // Values without names, or with those of no feature, are taken as they come.
    let reversed: Vec<_> =
        ["w", "x", "y", "z"].into_iter().zip(ROW.into_iter().rev().map(|(_, value)| value)).collect();
    assert!((ask(&server, "V2", "lightgbm", &reversed).unwrap() - REVERSED).abs() < 1e-5);
    let log = server.log();
    assert_eq!(log.matches("are taken in their order").count(), 2, "once for each model: {log}");
}

#[test]
fn other_families_reject_other_columns() {
    let server = TestServer::start(folder());
    for model in ["xgboost", "sklearn"] {
        for door in ["V1", "V2"] {
            for (name, columns, _) in cases() {
                let found = ask(&server, door, model, &columns);
                assert_eq!(found.is_some(), name == "as trained", "{door} {model} {name}: {found:?}");
            }
        }
    }
}
