//! Tree ensembles: golden cases that the libraries answered, and damaged model files.

#![expect(clippy::unwrap_used, reason = "a test that finds its files damaged has failed")]
#![expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "expectations are read as `f64`")]

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use mlserver::evaluators::trees::{
    EnsembleOutput, FeatureMatrix, FeatureValues, PredictError, PredictedValues, TreeEnsemble,
};
use serde::Deserialize;
use serde_json::Value;

use crate::support::damage::Damage;
use crate::support::goldens::{GoldenArchive, golden_archives};
use crate::support::{BREAST_CANCER, repository_path};

/// The allowed relative difference of a score.
const TOLERANCE: f64 = 1e-6;

#[derive(Deserialize)]
struct Case {
    library: String,
    /// Files of the same model, which must give the same answers.
    models: Vec<String>,
    input: Tensor,
    /// The rows of contributions and leaves.
    explained_rows: Vec<usize>,
    expect: Expected,
}

#[derive(Deserialize)]
struct Expected {
    predict: Tensor,
    predict_proba: Option<Tensor>,
    margin: Option<Tensor>,
    contributions: Option<Tensor>,
    leaf: Option<Tensor>,
    predict_proba_error: bool,
}

#[derive(Deserialize)]
struct Tensor {
    datatype: String,
    shape: Vec<usize>,
    data: Vec<Value>,
}

impl Tensor {
    /// Returns the elements, rounded to single precision if that is their datatype.
    fn numbers(&self) -> Vec<f64> {
        let round = |number| if self.datatype == "FP32" { f64::from(number as f32) } else { number };
        self.data.iter().map(number).map(round).collect()
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Null => f64::NAN,
        Value::Bool(flag) => f64::from(u8::from(*flag)),
        Value::String(text) => text.parse().unwrap(),
        other => other.as_f64().unwrap(),
    }
}

#[test]
fn trees_golden_cases_agree() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for archive in golden_archives("trees") {
        for (name, case) in golden_cases(&archive) {
            count += 1;
            for file in &case.models {
                let answers = load(&case.library, archive.file(file)).and_then(|model| check(&model, &case));
                if let Err(difference) = answers {
                    failures.push(format!("{file} of {}/{name}: {difference}", archive.name));
                }
            }
        }
    }
    assert!(count > 0, "no golden cases in tests/goldens/trees");
    assert!(failures.is_empty(), "{} of {count} cases:\n{}", failures.len(), failures.join("\n"));
}

fn load(library: &str, bytes: &[u8]) -> Result<TreeEnsemble, String> {
    let loaded =
        if library == "xgboost" { TreeEnsemble::load_xgboost(bytes) } else { TreeEnsemble::load_lightgbm(bytes) };
    loaded.map_err(|error| error.to_string())
}

/// Returns the cases of an archive, with the names of their files.
fn golden_cases(archive: &GoldenArchive) -> impl Iterator<Item = (&str, Case)> {
    archive.names().filter(|name| name.ends_with(".case.json")).map(|name| {
        let case = serde_json::from_slice(archive.file(name)).unwrap_or_else(|error| unreachable!("{name}: {error}"));
        (name, case)
    })
}

/// Returns small model files of every library, version and format.
fn small_models() -> Vec<(String, Vec<u8>)> {
    let mut small = Vec::new();
    for archive in golden_archives("trees") {
        let mut models: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (_, case) in golden_cases(&archive) {
            for file in case.models {
                let format = file.rsplit('.').next().unwrap().to_owned();
                models.entry(format).or_default().push((archive.file(&file).len(), case.library.clone(), file));
            }
        }
        for mut models in models.into_values() {
            models.sort();
            // The very smallest have no trees worth damaging.
            let chosen = models.into_iter().skip(3).step_by(5).take(4);
            small.extend(chosen.map(|(_, library, file)| (library, archive.file(&file).to_vec())));
        }
    }
    small
}

/// Loads a file that may be a model. If it is one, it must answer.
fn load_and_predict(library: &str, bytes: &[u8]) {
    let Ok(model) = load(library, bytes) else { return };
    let columns = model.n_features();
    if columns > 1000 {
        return;
    }
    let rows = 70;
    let values: Vec<f32> =
        (0..rows * columns).map(|at| if at % 11 == 0 { f32::NAN } else { at as f32 / 7.0 - 9.0 }).collect();
    let matrix = FeatureMatrix::new(FeatureValues::F32(&values), rows, columns).unwrap();
    for output in [EnsembleOutput::Predict, EnsembleOutput::Margin] {
        model.predict(matrix, output).unwrap();
    }
    for output in [EnsembleOutput::Contributions, EnsembleOutput::Leaf] {
        // Refused by name, or found.
        let _ = model.predict(matrix, output);
    }
}

#[test]
fn trees_truncated_models_are_rejected() {
    for (library, bytes) in small_models() {
        let step = (bytes.len() / 200).max(1);
        for length in (0..bytes.len()).step_by(step) {
            load_and_predict(&library, &bytes[..length]);
        }
        // The part after the trees of a LightGBM file is not needed, and its last line may have no line break.
        let needed = bytes.windows(12).position(|line| line == b"end of trees").unwrap_or(bytes.len() - 1);
        for length in (0..needed).rev().step_by(step) {
            assert!(load(&library, &bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn trees_damaged_models_never_panic() {
    let mut damage = Damage::new(b"0123456789-.eE[]{},\"=");
    for (library, bytes) in small_models() {
        for _ in 0..100 {
            load_and_predict(&library, &damage.damaged(&bytes));
        }
    }
}

/// Compares the model with every answer of the case, for all rows together and for the first ones one by one.
fn check(model: &TreeEnsemble, case: &Case) -> Result<(), String> {
    let numbers = case.input.numbers();
    let [rows, columns] = case.input.shape[..] else { return Err("input is no matrix".to_owned()) };
    let expected = [
        (EnsembleOutput::Predict, Some(&case.expect.predict)),
        (EnsembleOutput::PredictProba, case.expect.predict_proba.as_ref()),
        (EnsembleOutput::Margin, case.expect.margin.as_ref()),
    ];
    // Integers and booleans of any width are cast to single precision before they reach a model.
    let singles: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
    let double = case.input.datatype == "FP64";
    for (output, expected) in expected {
        let Some(expected) = expected else { continue };
        let wanted = expected.numbers();
        let width = wanted.len() / rows.max(1);
        for (start, count) in std::iter::once((0, rows)).chain((0..rows.min(20)).map(|row| (row, 1))) {
            let range = start * columns..(start + count) * columns;
            let values = if double { FeatureValues::F64(&numbers[range]) } else { FeatureValues::F32(&singles[range]) };
            let matrix = FeatureMatrix::new(values, count, columns).unwrap();
            let found = model.predict(matrix, output).map_err(|error| format!("{output:?}: {error}"))?;
            let stop = AtomicBool::new(true);
            if model.predict(matrix.until(&stop), output).err() != Some(PredictError::Cancelled) {
                return Err(format!("{output:?} does not stop"));
            }
            let shape = [count, found.columns];
            let size = match &found.values {
                PredictedValues::I32(values) => size_of_val(&values[..]),
                PredictedValues::I64(values) => size_of_val(&values[..]),
                PredictedValues::F32(values) => size_of_val(&values[..]),
                PredictedValues::F64(values) => size_of_val(&values[..]),
            };
            let bytes = model.row_bytes(output).map(|bytes| bytes * count);
            if bytes != Some(size) {
                return Err(format!("{output:?}: {bytes:?} bytes are expected, {size} found"));
            }
            let wanted = &wanted[start * width..(start + count) * width];
            compare(&found.values, shape, expected, wanted)
                .map_err(|difference| format!("{output:?} of {count} rows from {start}: {difference}"))?;
        }
    }
    check_explanations(model, case, &numbers, &singles)?;
    if case.expect.predict_proba_error {
        let matrix = FeatureMatrix::new(FeatureValues::F64(&numbers), rows, columns).unwrap();
        let error = model.predict(matrix, EnsembleOutput::PredictProba).err();
        if error != Some(PredictError::NoProbabilities { kind: model.kind() }) {
            return Err(format!("PredictProba: {error:?}"));
        }
    }
    Ok(())
}

/// Compares contributions and leaves, for all rows together and one by one.
fn check_explanations(model: &TreeEnsemble, case: &Case, numbers: &[f64], singles: &[f32]) -> Result<(), String> {
    let columns = case.input.shape[1];
    let is_double = case.input.datatype == "FP64";
    let rows = &case.explained_rows;
    let of_row = |row: &usize| row * columns..(row + 1) * columns;
    let numbers: Vec<f64> = rows.iter().flat_map(|row| numbers[of_row(row)].to_vec()).collect();
    let singles: Vec<f32> = rows.iter().flat_map(|row| singles[of_row(row)].to_vec()).collect();
    let expected =
        [(EnsembleOutput::Contributions, &case.expect.contributions), (EnsembleOutput::Leaf, &case.expect.leaf)];
    for (output, expected) in expected {
        let Some(expected) = expected else { continue };
        let wanted = expected.numbers();
        let width = wanted.len() / rows.len().max(1);
        let largest = wanted.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        for (start, count) in std::iter::once((0, rows.len())).chain((0..rows.len()).map(|row| (row, 1))) {
            let range = start * columns..(start + count) * columns;
            let values =
                if is_double { FeatureValues::F64(&numbers[range]) } else { FeatureValues::F32(&singles[range]) };
            let matrix = FeatureMatrix::new(values, count, columns).unwrap();
            let found = model.predict(matrix, output).map_err(|error| format!("{output:?}: {error}"))?;
            let (tolerance, found_numbers): (f64, Vec<f64>) = match &found.values {
                PredictedValues::I32(values) => (0.0, values.iter().map(|value| f64::from(*value)).collect()),
                PredictedValues::F32(values) => (1e-5, values.iter().map(|value| f64::from(*value)).collect()),
                PredictedValues::F64(values) => (1e-10, values.clone()),
                PredictedValues::I64(_) => unreachable!("{output:?} is not INT64"),
            };
            let bytes = model.row_bytes(output);
            let size = if matches!(found.values, PredictedValues::F64(_)) { 8 } else { 4 };
            if (found.columns, bytes) != (width, Some(width * size)) {
                return Err(format!("{output:?}: {} columns of {bytes:?} bytes instead of {width}", found.columns));
            }
            let wanted = &wanted[start * width..(start + count) * width];
            let is_off = |(found, wanted): (&f64, &f64)| {
                !((found - wanted).abs() <= tolerance * largest || found.is_nan() && wanted.is_nan())
            };
            if let Some(at) = found_numbers.iter().zip(wanted).position(is_off) {
                let (found, wanted) = (found_numbers[at], wanted[at]);
                return Err(format!("{output:?} of {count} rows: value {at} is {found} instead of {wanted}"));
            }
            if output == EnsembleOutput::Contributions {
                check_sums(model, matrix, &found_numbers)?;
            }
        }
    }
    Ok(())
}

/// The library takes missing constants of linear leaves for 0.
#[test]
fn lightgbm_linear_leaves_without_constants_have_the_constant_zero() {
    let archives = golden_archives("trees");
    let archive = archives.iter().find(|archive| archive.name.starts_with("lightgbm-4.7.0")).unwrap();
    let text = String::from_utf8(archive.file("linear_tree.txt").to_vec()).unwrap();
    let load = |zeros: bool| {
        let zero = |line: &str| match line.strip_prefix("leaf_const=") {
            Some(constants) if zeros => {
                let constants: Vec<_> = constants.split_ascii_whitespace().map(|_| "0").collect();
                Some(format!("leaf_const={}\n", constants.join(" ")))
            }
            Some(_) => None,
            None => Some(format!("{line}\n")),
        };
        TreeEnsemble::load_lightgbm(text.lines().filter_map(zero).collect::<String>().as_bytes()).unwrap()
    };
    let (zero, missing) = (load(true), load(false));
    let rows: Vec<f64> = (0..40 * zero.n_features()).map(|at| (at * 7 % 23) as f64 / 4.0 - 3.0).collect();
    let matrix = FeatureMatrix::new(FeatureValues::F64(&rows), 40, zero.n_features()).unwrap();
    let [zero, missing] = [zero, missing].map(|model| model.predict(matrix, EnsembleOutput::Predict).unwrap().values);
    assert_eq!(zero, missing);
    assert!(
        matches!(zero, PredictedValues::F64(values) if values.iter().any(|value| (value - values[0]).abs() > 0.01))
    );
}

/// Contributions add up to the margin.
fn check_sums(model: &TreeEnsemble, rows: FeatureMatrix<'_>, contributions: &[f64]) -> Result<(), String> {
    let margins: Vec<f64> = match model.predict(rows, EnsembleOutput::Margin).unwrap().values {
        PredictedValues::F32(values) => values.into_iter().map(f64::from).collect(),
        PredictedValues::F64(values) => values,
        other => unreachable!("margins are {other:?}"),
    };
    for (contributions, margin) in contributions.chunks_exact(rows.columns() + 1).zip(margins) {
        let sum: f64 = contributions.iter().sum();
        let scale = contributions.iter().fold(1.0_f64, |most, value| most.max(value.abs()));
        if (sum - margin).abs() > 2e-6 * scale {
            return Err(format!("contributions add up to {sum} instead of {margin}"));
        }
    }
    Ok(())
}

fn compare(found: &PredictedValues, shape: [usize; 2], expected: &Tensor, wanted: &[f64]) -> Result<(), String> {
    let (datatype, numbers): (_, Vec<f64>) = match found {
        PredictedValues::I32(values) => ("INT32", values.iter().map(|value| f64::from(*value)).collect()),
        PredictedValues::I64(values) => ("INT64", values.iter().map(|value| *value as f64).collect()),
        PredictedValues::F32(values) => ("FP32", values.iter().map(|value| f64::from(*value)).collect()),
        PredictedValues::F64(values) => ("FP64", values.clone()),
    };
    if (datatype, shape[1]) != (&expected.datatype, expected.shape[1]) {
        let (wanted, shape_wanted) = (&expected.datatype, &expected.shape);
        return Err(format!("{datatype} {shape:?} instead of {wanted} {shape_wanted:?}"));
    }
    let exact = datatype.starts_with("INT");
    let close = |(found, wanted): (&f64, &f64)| {
        let alike = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
        alike || !exact && (found - wanted).abs() <= TOLERANCE * found.abs().max(wanted.abs())
    };
    match numbers.iter().zip(wanted).position(|pair| !close(pair)) {
        Some(at) => Err(format!("value {at} is {} instead of {}", numbers[at], wanted[at])),
        None => Ok(()),
    }
}

/// The library treats its files as bytes: names and parameters are in the encoding of the program that wrote them.
#[test]
fn lightgbm_model_in_another_encoding_loads() {
    let model =
        std::fs::read_to_string(repository_path("examples/quickstart").join(BREAST_CANCER).join("model.bst")).unwrap();
    let plain = load("lightgbm", model.as_bytes()).unwrap();
    let first = plain.feature_names().unwrap()[0].clone();
    let (before, after) = model.split_once(&first).unwrap();
    let odd =
        [before.as_bytes(), b"na\xefve", after.as_bytes(), b"\n[data: C:\\\xce\xe1\xf3\xf7\\train.csv]\n"].concat();
    let odd = load("lightgbm", &odd).unwrap();
    assert_eq!(odd.feature_names().unwrap()[0], "na\u{fffd}ve");
    assert_eq!(odd.feature_names().unwrap()[1..], plain.feature_names().unwrap()[1..]);
}

/// What becomes of an unusual file: it is read, left to the library, or damaged for both.
#[derive(Debug, PartialEq, Eq)]
enum Reading {
    Read,
    LeftToPython,
    Damaged,
}

fn reading(library: &str, bytes: &[u8]) -> Reading {
    let loaded =
        if library == "xgboost" { TreeEnsemble::load_xgboost(bytes) } else { TreeEnsemble::load_lightgbm(bytes) };
    match loaded {
        Ok(_) => Reading::Read,
        Err(error) if error.is_refusal() => Reading::LeftToPython,
        Err(_) => Reading::Damaged,
    }
}

/// What LightGBM 4.7.0 and XGBoost 3.2.0 read is read, or left to them.
#[test]
fn trees_that_the_libraries_read_are_not_damaged() {
    let examples = repository_path("examples/quickstart");
    let text = std::fs::read_to_string(examples.join(BREAST_CANCER).join("model.bst")).unwrap();
    let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    let without = |key: &str| text.replacen(&(line(key) + "\n"), "", 1);
    let first = |key: &str, value: &str| {
        let line = line(key);
        let (start, rest) = line.split_once('=').unwrap();
        let rest = rest.split_once(' ').map_or(String::new(), |(_, rest)| format!(" {rest}"));
        text.replacen(&line, &format!("{start}={value}{rest}"), 1)
    };
    let names = line("feature_names");
    let cases = [
        ("unchanged", text.clone(), Reading::Read),
        ("a tab in a name", text.replacen(&names, &names.replacen(' ', "\t0 ", 1), 1), Reading::Read),
        ("an unknown line", text.replacen("num_class=", "new=1\nnum_class=", 1), Reading::Read),
        ("without an end", text.replacen("end of trees", "", 1), Reading::LeftToPython),
        ("fewer sizes", first("tree_sizes", ""), Reading::LeftToPython),
        ("more sizes", first("tree_sizes", "1 2"), Reading::Damaged),
        ("no trees per iteration", without("num_tree_per_iteration"), Reading::LeftToPython),
        (
            "a float for the last feature",
            text.replacen("max_feature_idx=", "max_feature_idx=0.", 1),
            Reading::LeftToPython,
        ),
        ("a word for the last feature", text.replacen("max_feature_idx=", "max_feature_idx=x", 1), Reading::Damaged),
        ("another kind of linear leaves", text.replacen("is_linear=0", "is_linear=2", 1), Reading::LeftToPython),
        ("NaN of Windows", first("leaf_value", "-nan(ind)"), Reading::LeftToPython),
        ("infinity of Windows", first("leaf_value", "1.#INF"), Reading::LeftToPython),
        ("a word for a leaf", first("leaf_value", "abc"), Reading::Damaged),
        ("a float for a feature", first("split_feature", "1.5"), Reading::LeftToPython),
        ("a wide decision", first("decision_type", "258"), Reading::LeftToPython),
        ("an unknown rule for missing values", first("decision_type", "14"), Reading::LeftToPython),
        ("no decisions", without("decision_type"), Reading::LeftToPython),
        ("no leaves", without("leaf_value"), Reading::Damaged),
    ];
    for (what, text, wanted) in cases {
        assert_eq!(reading("lightgbm", text.as_bytes()), wanted, "LightGBM: {what}");
    }
    let json = std::fs::read_to_string(examples.join("iris-xgboost/model.json")).unwrap();
    let document: Value = serde_json::from_str(&json).unwrap();
    let edited = |edit: &dyn Fn(&mut Value)| {
        let mut document = document.clone();
        edit(&mut document);
        document.to_string()
    };
    let cases = [
        ("unchanged", json.clone(), Reading::Read),
        ("bytes behind the document", json.clone() + "\0\n{", Reading::Read),
        ("no version", edited(&|model| drop(model.as_object_mut().unwrap().remove("version"))), Reading::LeftToPython),
        (
            "fewer names",
            edited(&|model| model["learner"]["feature_names"] = serde_json::json!(["a"])),
            Reading::LeftToPython,
        ),
        ("no learner", edited(&|model| drop(model.as_object_mut().unwrap().remove("learner"))), Reading::Damaged),
    ];
    for (what, text, wanted) in cases {
        assert_eq!(reading("xgboost", text.as_bytes()), wanted, "XGBoost: {what}");
    }
}
