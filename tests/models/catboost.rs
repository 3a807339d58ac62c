//! `CatBoost`'s models: golden cases that the library answered, and damaged files.

#![expect(clippy::unwrap_used, reason = "a test that finds its files damaged has failed")]
#![expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "expectations are read as `f64`")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mlserver::evaluators::catboost::{CatBoostModel, CatBoostOutput, PredictError};
use mlserver::evaluators::table::{DataFrame, DenseTable, Elements, IntType, TableData};
use serde::Deserialize;
use serde_json::Value;

use crate::support::damage::Damage;
use crate::support::goldens::{GoldenArchive, golden_archives};

static NEVER: AtomicBool = AtomicBool::new(false);

#[derive(Deserialize)]
struct Case {
    models: Vec<String>,
    columns: Vec<Column>,
    expect: Expected,
    /// What the library answers for the `.json` file, if that is another model.
    expect_json: Option<Expected>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    datatype: String,
    data: Vec<Value>,
}

#[derive(Deserialize)]
struct Expected {
    raw: Tensor,
    predict: Tensor,
    predict_proba: Option<Tensor>,
    leaf: Tensor,
    #[serde(default)]
    contributions: Contributions,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Contributions {
    /// Archives of earlier versions do not have them.
    #[default]
    #[serde(skip)]
    Unknown,
    /// `null`
    Refused(()),
    Known(Tensor),
    /// It is only known that they add up to the raw value.
    Additive(String),
}

#[derive(Deserialize)]
struct Tensor {
    datatype: String,
    shape: Vec<usize>,
    data: Vec<Value>,
}

impl Column {
    fn elements(&self, rows: Range<usize>) -> Elements<'static> {
        let data = &self.data[rows];
        match self.datatype.as_str() {
            "FP32" => Elements::F32(data.iter().map(|value| number(value) as f32).collect()),
            "INT64" => Elements::Int(data.iter().map(|value| value.as_i64().unwrap()).collect(), IntType::I64),
            _ => Elements::Text(data.iter().map(|value| value.as_str().unwrap().into()).collect()),
        }
    }
}

impl Case {
    fn rows(&self) -> usize {
        self.columns[0].data.len()
    }

    /// Returns some rows as a frame.
    fn frame(&self, rows: &Range<usize>) -> TableData<'static> {
        let names = self.columns.iter().map(|column| column.name.clone().into()).collect();
        let columns = self.columns.iter().map(|column| column.elements(rows.clone())).collect();
        TableData::Frame(DataFrame::new(names, columns, rows.len()).unwrap())
    }

    /// Returns some rows as an array: of numbers, or of texts if some columns have no numbers.
    fn array(&self, rows: &Range<usize>) -> TableData<'static> {
        let width = self.columns.len();
        let cells = rows.clone().flat_map(|row| self.columns.iter().map(move |column| (column, &column.data[row])));
        let elements = if self.columns.iter().all(|column| column.datatype == "FP32") {
            Elements::F64(cells.map(|(_, value)| number(value)).collect())
        } else {
            let text = |(_, value): (&Column, &Value)| match value {
                Value::Null => "nan".into(),
                Value::String(text) => Arc::from(text.as_str()),
                other => other.to_string().into(),
            };
            Elements::Text(cells.map(text).collect())
        };
        TableData::Table(DenseTable::new(elements, rows.len(), width).unwrap())
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

/// Returns the cases of an archive.
fn golden_cases(archive: &GoldenArchive) -> impl Iterator<Item = Case> {
    archive
        .names()
        .filter(|name| name.ends_with(".case.json"))
        .map(|name| serde_json::from_slice(archive.file(name)).unwrap_or_else(|error| unreachable!("{name}: {error}")))
}

/// Returns whether the library's own reader would make another model of an export, so that it is refused.
fn is_refused_export(file: &str, error: &str) -> bool {
    file.starts_with("random_") && is_json(file) && error.ends_with("is not supported")
}

/// Returns whether a file is an export as JSON.
fn is_json(file: &str) -> bool {
    std::path::Path::new(file).extension().is_some_and(|extension| extension == "json")
}

#[test]
fn catboost_golden_cases_agree() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for archive in golden_archives("catboost") {
        for case in golden_cases(&archive) {
            for file in &case.models {
                count += 1;
                let difference = match CatBoostModel::load(&archive.file(file).to_vec().into()) {
                    Ok(model) => {
                        check(&model, &case, is_json(file)).and_then(|()| check_contributions(&model, &case)).err()
                    }
                    Err(error) => Some(error.to_string()).filter(|error| !is_refused_export(file, error)),
                };
                failures.extend(difference.map(|difference| format!("{file} of {}: {difference}", archive.name)));
            }
        }
    }
    assert!(count > 100, "only {count} golden cases in tests/goldens/catboost");
    assert!(failures.is_empty(), "{} of {count} files:\n{}", failures.len(), failures.join("\n"));
}

/// Compares the model with every answer of the case, for all rows together and for the first ones one by one.
fn check(model: &CatBoostModel, case: &Case, is_json: bool) -> Result<(), String> {
    let other = case.expect_json.as_ref().filter(|_| is_json);
    let expect = other.unwrap_or(&case.expect);
    // The library's reader rounds leaves of an export to a neighboring number.
    let is_rounded = other.is_some_and(|other| other.raw.data != case.expect.raw.data);
    let expected = [
        (CatBoostOutput::Raw, Some(&expect.raw)),
        (CatBoostOutput::Predict, Some(&expect.predict)),
        (CatBoostOutput::Probability, expect.predict_proba.as_ref()),
        (CatBoostOutput::Leaf, Some(&expect.leaf)),
    ];
    for (output, expected) in expected {
        let Some(expected) = expected else {
            let error = model.predict(&case.frame(&(0..1)), output, &NEVER).err();
            if error != Some(PredictError::NoProbabilities) {
                return Err(format!("{output:?}: {error:?}"));
            }
            continue;
        };
        let width: usize = expected.shape[1..].iter().product();
        let single = (0..case.rows().min(5)).map(|row| row..row + 1);
        for rows in std::iter::once(0..case.rows()).chain(single) {
            for table in [case.frame(&rows), case.array(&rows)] {
                let found = model.predict(&table, output, &NEVER).map_err(|error| format!("{output:?}: {error}"))?;
                if (found.columns, model.columns(output)) != (width, Some(width)) {
                    return Err(format!("{output:?} has {} columns instead of {width}", found.columns));
                }
                let wanted = &expected.data[rows.start * width..rows.end * width];
                let is_exact = !is_rounded && matches!(output, CatBoostOutput::Raw | CatBoostOutput::Leaf);
                compare(&found.elements, &expected.datatype, wanted, is_exact, is_rounded)
                    .map_err(|difference| format!("{output:?} of rows {rows:?}: {difference}"))?;
            }
        }
        if case.rows() >= 12 {
            let stopped = model.predict(&case.frame(&(0..case.rows())), output, &AtomicBool::new(true)).err();
            if stopped != Some(PredictError::Cancelled) {
                return Err(format!("{output:?} does not stop"));
            }
        }
    }
    Ok(())
}

/// Compares contributions, side by side and one by one, or checks that they are refused.
fn check_contributions(model: &CatBoostModel, case: &Case) -> Result<(), String> {
    let output = CatBoostOutput::Contributions;
    let expected = match &case.expect.contributions {
        Contributions::Unknown => return Ok(()),
        Contributions::Refused(()) => {
            return match model.predict(&case.frame(&(0..case.rows())), output, &NEVER) {
                Err(PredictError::NoContributions(_)) => Ok(()),
                found => Err(format!("contributions are {found:?}")),
            };
        }
        Contributions::Known(expected) => expected,
        Contributions::Additive(rule) => {
            assert_eq!(rule, "additive");
            return check_sums(model, case);
        }
    };
    check_sums(model, case)?;
    let width: usize = expected.shape[1..].iter().product();
    let wanted: Vec<f64> = expected.data.iter().map(number).collect();
    let largest = wanted.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    let single = (0..case.rows().min(5)).map(|row| row..row + 1);
    for rows in std::iter::once(0..case.rows()).chain(single) {
        let found =
            model.predict(&case.frame(&rows), output, &NEVER).map_err(|error| format!("{output:?}: {error}"))?;
        let Elements::F64(values) = &found.elements else { return Err(format!("{:?}", found.elements)) };
        let wanted = &wanted[rows.start * width..rows.end * width];
        if (found.columns, model.columns(output), values.len()) != (width, Some(width), wanted.len()) {
            return Err(format!("{} contributions instead of {width}", found.columns));
        }
        for (index, (found, wanted)) in values.iter().zip(wanted).enumerate() {
            if (found - wanted).abs() > 1e-10 * largest {
                return Err(format!("contribution {index} of rows {rows:?} is {found:e} instead of {wanted:e}"));
            }
        }
    }
    let stopped = model.predict(&case.frame(&(0..case.rows())), output, &AtomicBool::new(true)).err();
    if stopped == Some(PredictError::Cancelled) { Ok(()) } else { Err(format!("{output:?} do not stop: {stopped:?}")) }
}

/// Checks that contributions add up to the raw values.
fn check_sums(model: &CatBoostModel, case: &Case) -> Result<(), String> {
    let found = model.predict(&case.frame(&(0..case.rows())), CatBoostOutput::Contributions, &NEVER);
    let found = found.map_err(|error| error.to_string())?;
    let Elements::F64(values) = &found.elements else { return Err(format!("{:?}", found.elements)) };
    let raw: Vec<f64> = case.expect.raw.data.iter().map(number).collect();
    let largest = values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    let sums = values.chunks_exact(model.n_columns() + 1).map(|values| values.iter().sum::<f64>());
    for (index, (sum, raw)) in sums.zip(raw).enumerate() {
        if (sum - raw).abs() > 1e-9 * largest {
            return Err(format!("contributions {index} add up to {sum:e} instead of {raw:e}"));
        }
    }
    Ok(())
}

fn compare(
    found: &Elements<'_>,
    datatype: &str,
    wanted: &[Value],
    is_exact: bool,
    is_rounded: bool,
) -> Result<(), String> {
    let integers = |values: &[i64]| values.iter().map(|value| *value as f64).collect();
    let (found_type, numbers): (_, Vec<f64>) = match found {
        Elements::F64(values) => ("FP64", values.to_vec()),
        Elements::Int(values, IntType::I64) => ("INT64", integers(values)),
        Elements::Int(values, IntType::I32) => ("INT32", integers(values)),
        Elements::Int(values, IntType::Bool) => ("BOOL", integers(values)),
        Elements::Text(values) => {
            let is_same =
                datatype == "BYTES" && values.iter().map(|text| Some(&**text)).eq(wanted.iter().map(Value::as_str));
            return if is_same { Ok(()) } else { Err(format!("{values:?} instead of {wanted:?}")) };
        }
        other => return Err(format!("unexpected {other:?}")),
    };
    if found_type != datatype {
        return Err(format!("{found_type} instead of {datatype}"));
    }
    for (index, (found, wanted)) in numbers.iter().zip(wanted.iter().map(number)).enumerate() {
        // The error of the library's exponential function is up to 12 units in the last place, and grows with the exponent.
        let relative = if is_rounded { 1e-12 } else { 4e-16 * wanted.abs().ln().abs().max(12.0) };
        let is_close = (found - wanted).abs() <= (relative * wanted.abs()).max(1e-15);
        let is_same = found.to_bits() == wanted.to_bits();
        if !is_same && (is_exact || datatype != "FP64" || !is_close) {
            return Err(format!("value {index} is {found:e} instead of {wanted:e}"));
        }
    }
    Ok(())
}

/// Returns the files of some cases of each version.
fn some_files() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for archive in golden_archives("catboost").iter().filter(|archive| !archive.name.starts_with("random")) {
        let names = archive.names().filter(|name| !name.ends_with(".case.json"));
        files.extend(names.step_by(6).map(|name| archive.file(name).to_vec()));
    }
    files
}

/// Loads a file that may be a model. If it is one, it must answer or return an error.
fn load_and_predict(bytes: Vec<u8>) {
    let Ok(model) = CatBoostModel::load(&bytes.into()) else { return };
    let (rows, columns) = (70, model.n_columns());
    if columns > 1000 || model.columns(CatBoostOutput::Raw) > Some(1000) {
        return;
    }
    let texts = (0..rows * columns).map(|at| Arc::from((at % 9).to_string())).collect();
    let numbers = (0..rows * columns).map(|at| if at % 11 == 0 { f32::NAN } else { at as f32 / 7.0 - 9.0 });
    for elements in [Elements::Text(texts), Elements::F32(numbers.collect())] {
        let table = TableData::Table(DenseTable::new(elements, rows, columns).unwrap());
        for output in
            [CatBoostOutput::Predict, CatBoostOutput::Probability, CatBoostOutput::Leaf, CatBoostOutput::Contributions]
        {
            drop(model.predict(&table, output, &NEVER));
        }
    }
}

#[test]
fn catboost_truncated_files_are_rejected() {
    for bytes in some_files() {
        let step = (bytes.len() / 100).max(1);
        // An export ends with a line break.
        for length in (0..bytes.len() - 1).rev().step_by(step) {
            let loaded = CatBoostModel::load(&bytes[..length].to_vec().into());
            assert!(loaded.is_err(), "{length} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn catboost_damaged_files_never_panic() {
    let mut damage = Damage::new(b"\x00\x01\x04\x08\xff0123456789-.eE[]{},\":");
    for bytes in some_files() {
        for _ in 0..100 {
            load_and_predict(damage.damaged(&bytes));
        }
        // Most bytes of a file are its parameters. Offsets and sizes are words.
        for _ in 0..300 {
            let mut damaged = bytes.clone();
            let at = damage.below(damaged.len() / 4) * 4;
            let word = [0, 1, 4, u32::MAX, 1 << 31, damage.below(bytes.len()) as u32][damage.below(6)];
            damaged[at..at + 4].copy_from_slice(&word.to_le_bytes());
            load_and_predict(damaged);
        }
    }
}

#[test]
fn catboost_sizes_that_are_merely_declared_are_rejected() {
    let file = |changed: &dyn Fn(&mut Value)| {
        let archives = golden_archives("catboost");
        let newest = archives.iter().rfind(|archive| archive.name == "1.2.10").unwrap();
        let mut model: Value = serde_json::from_slice(newest.file("labels_bool.json")).unwrap();
        changed(&mut model);
        CatBoostModel::load(&model.to_string().into_bytes().into()).map(|model| model.n_columns())
    };
    assert_eq!(file(&|_| ()).unwrap(), 3);
    let many = |model: &mut Value| {
        model["model_info"]["class_params"]["class_names"] = Value::Array(Vec::new());
        model["model_info"]["class_params"]["classes_count"] = (1_i64 << 40).into();
    };
    assert!(file(&many).unwrap_err().to_string().starts_with("the model is too large: "));
    let far =
        |model: &mut Value| model["features_info"]["float_features"][0]["flat_feature_index"] = (1_u64 << 40).into();
    assert_eq!(file(&far).unwrap(), (1 << 40) + 1, "no memory for features between");
    let twice = |model: &mut Value| model["features_info"]["float_features"][0]["flat_feature_index"] = 1.into();
    assert!(file(&twice).unwrap_err().is_refusal());
    let text = |model: &mut Value| model["features_info"]["text_features"] = serde_json::json!([{}]);
    assert_eq!(file(&text).unwrap_err().to_string(), "kind of features `text` is not supported");
    let own = |model: &mut Value| {
        model["model_info"]["params"]["loss_function"]["type"] = "PythonUserDefinedPerObject".into();
    };
    assert_eq!(file(&own).unwrap_err().to_string(), "loss function `PythonUserDefinedPerObject` is not supported");
    let lost = |model: &mut Value| model["ctr_data"] = Value::Null;
    assert!(!file(&lost).unwrap_err().is_refusal(), "the library crashes");
}
