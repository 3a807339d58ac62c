//! scikit-learn's estimators: golden cases that the library answered, and damaged files.

#![expect(clippy::unwrap_used, reason = "a test that finds its files damaged has failed")]
#![expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "expectations are read as `f64`")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mlserver::evaluators::sklearn::{EstimatorMethod, FittedEstimator, PredictError};
use mlserver::evaluators::table::{DataFrame, DenseTable, Elements, IntType, TableData};
use mlserver::evaluators::trees::EnsembleOutput;
use serde::Deserialize;
use serde_json::Value;

use crate::support::damage::Damage;
use crate::support::goldens::golden_archives;

/// The allowed relative difference of a score, with and without single precision involved.
const SINGLE: f64 = 1e-6;
const DOUBLE: f64 = 1e-9;
/// The rounding error of a sum that should be zero, as a multiple of the precision times the largest value of the
/// answer.
const ROUNDING: f64 = 4.0;

#[derive(Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    model: String,
    /// Whether single precision is involved, although answers may be doubles.
    #[serde(default)]
    single: bool,
    /// A part of the message, if the model is left to Python.
    pub(super) refused: Option<String>,
    pub(super) asked: Vec<Asked>,
}

#[derive(Deserialize)]
pub(super) struct Asked {
    pub(super) input: Input,
    expect: BTreeMap<String, Option<Answer>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Input {
    Frame { frame: Vec<Column> },
    Array(Tensor),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Frame { frame: Vec<Column> },
    Array(Tensor),
}

#[derive(Deserialize)]
pub(super) struct Column {
    name: String,
    #[serde(flatten)]
    tensor: Tensor,
}

#[derive(Deserialize)]
pub(super) struct Tensor {
    datatype: String,
    shape: Vec<usize>,
    data: Vec<Value>,
}

impl Tensor {
    fn numbers(&self) -> Vec<f64> {
        self.data.iter().map(number).collect()
    }

    fn elements(&self) -> Elements<'static> {
        let integers = |kind| {
            let integer = |value: &Value| value.as_i64().or(value.as_bool().map(i64::from)).unwrap();
            Elements::Int(self.data.iter().map(integer).collect(), kind)
        };
        match self.datatype.as_str() {
            "FP32" => Elements::F32(self.numbers().iter().map(|&number| number as f32).collect()),
            "FP64" => Elements::F64(self.numbers().into()),
            "BOOL" => integers(IntType::Bool),
            "INT8" => integers(IntType::I8),
            "INT16" => integers(IntType::I16),
            "INT32" => integers(IntType::I32),
            "INT64" => integers(IntType::I64),
            "UINT8" => integers(IntType::U8),
            "BYTES" => Elements::Text(self.data.iter().map(|text| Arc::from(text.as_str().unwrap())).collect()),
            other => unreachable!("{other}"),
        }
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

impl Input {
    /// Returns `count` rows, beginning with `start`.
    pub(super) fn data(&self, start: usize, count: usize) -> TableData<'static> {
        match self {
            Self::Array(tensor) => {
                let columns = tensor.shape[1];
                let data = tensor.data[start * columns..(start + count) * columns].to_vec();
                let part = Tensor { datatype: tensor.datatype.clone(), shape: vec![count, columns], data };
                TableData::Table(DenseTable::new(part.elements(), count, columns).unwrap())
            }
            Self::Frame { frame } => {
                let part = |column: &Column| {
                    let data = column.tensor.data[start..start + count].to_vec();
                    Tensor { datatype: column.tensor.datatype.clone(), shape: vec![count, 1], data }.elements()
                };
                let names = frame.iter().map(|column| Cow::Owned(column.name.clone())).collect();
                TableData::Frame(DataFrame::new(names, frame.iter().map(part).collect(), count).unwrap())
            }
        }
    }

    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Array(tensor) => tensor.shape[0],
            Self::Frame { frame } => frame[0].tensor.data.len(),
        }
    }
}

/// A case and its model file.
pub(super) struct CaseWithModel {
    pub(super) version: String,
    pub(super) family: String,
    pub(super) case: Case,
    pub(super) model: Vec<u8>,
}

/// Returns the cases of every version and family.
pub(super) fn golden_cases() -> Vec<CaseWithModel> {
    let mut found = Vec::new();
    for archive in golden_archives("sklearn") {
        for name in archive.names() {
            let Some(family) = name.strip_suffix("/cases.jsonl") else { continue };
            let lines = std::str::from_utf8(archive.file(name)).unwrap().lines();
            found.extend(lines.map(|line| {
                let case: Case = serde_json::from_str(line).unwrap();
                let model = archive.file(&format!("{family}/{}", case.model)).to_vec();
                CaseWithModel { version: archive.name.clone(), family: family.to_owned(), case, model }
            }));
        }
    }
    assert!(!found.is_empty(), "no golden cases in tests/goldens/sklearn");
    found
}

#[test]
fn sklearn_golden_cases_agree() {
    let mut failures = Vec::new();
    let cases = golden_cases();
    let count = cases.len();
    for CaseWithModel { version, case, model, .. } in cases {
        let loaded = FittedEstimator::load(model.into()).map_err(|error| error.to_string());
        let checked = match (&case.refused, loaded) {
            (Some(reason), Err(message)) if message.contains(reason) => Ok(()),
            (Some(reason), Ok(_)) => Err(format!("is loaded, but should be refused: {reason}")),
            (_, loaded) => loaded.and_then(|model| check(&model, &case)),
        };
        if let Err(difference) = checked {
            failures.push(format!("{} of {version}: {difference}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases:\n{}", failures.len(), failures.join("\n"));
}

/// The same models in files of skops, which give the answers of the pickles.
#[test]
fn sklearn_skops_files_agree() {
    let archives = golden_archives("sklearn/skops");
    let (mut failures, mut count) = (Vec::new(), 0);
    for CaseWithModel { version, family, case, .. } in golden_cases() {
        let Some(archive) = archives.iter().find(|archive| archive.name == version) else { continue };
        let file = format!("{family}/{}.skops", case.name);
        if !archive.has(&file) || case.refused.is_some() {
            continue;
        }
        let model = FittedEstimator::load(archive.file(&file).to_vec().into());
        let checked = model.map_err(|error| error.to_string()).and_then(|model| check(&model, &case));
        if let Err(difference) = checked {
            failures.push(format!("{file} of {version}: {difference}"));
        }
        count += 1;
    }
    assert!(failures.is_empty(), "{} of {count} files:\n{}", failures.len(), failures.join("\n"));
    assert!(count >= 300, "{count} files");
}

/// Returns small files of every family, version and format, decompressed: damage to a compressed stream would mostly be
/// found by the decompression.
fn files() -> Vec<Vec<u8>> {
    let plain = |bytes: Vec<u8>| match bytes.first() {
        Some(0x78) => {
            let mut inner = Vec::new();
            flate2::read::ZlibDecoder::new(&bytes[..]).read_to_end(&mut inner).unwrap();
            inner
        }
        _ => bytes,
    };
    let models = golden_cases().into_iter().step_by(7).map(|case| plain(case.model));
    models.filter(|bytes| bytes.len() < 1 << 16).collect()
}

/// Python calls what an instance has in place of a method of its class. Such a model is left to Python: as a whole, and if it is a step, or
/// a wrapper of another library.
#[test]
fn sklearn_models_whose_instances_replace_methods_are_refused() {
    let attribute = |name: &str, value: &[u8]| {
        let length = u32::try_from(name.len()).unwrap().to_le_bytes();
        [b"X", &length[..], name.as_bytes(), value].concat()
    };
    let partial: &[u8] = b"cfunctools\npartial\n(cnumpy\nsum\ntR}(X\x04\x00\x00\x00axisK\x01ub";
    let added = [
        attribute("predict", b"cnumpy\nnegative\n"),
        attribute("transform", partial),
        attribute("_raw_predict", partial),
        attribute("_decision_function", b"c__main__\nfunction\n"),
        attribute("_decision_function", b"c__builtin__\ngetattr\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00lowertR"),
        attribute("_predict", b"cnumpy.core\n_ufunc_reconstruct\n(X\x05\x00\x00\x00numpyX\x08\x00\x00\x00negativetR"),
    ];
    let harmless = attribute("note", b"X\x01\x00\x00\x00a");
    let (mut classes, mut inner) = (std::collections::BTreeSet::new(), 0);
    for (number, bytes) in files().into_iter().filter(|bytes| bytes[0] == 0x80).enumerate() {
        let Ok(model) = FittedEstimator::load(bytes.clone().into()) else { continue };
        let with = |place: usize, more: &[u8]| {
            let (before, after) = bytes.split_at(place);
            FittedEstimator::load([before, more, after].concat().into())
        };
        let places = || (0..bytes.len() - 2).filter(|&place| bytes[place..].starts_with(b"ub"));
        let Some(last) = places().next_back().filter(|last| bytes[last + 2..].starts_with(b".")) else { continue };
        with(last, &harmless).expect("another attribute changes nothing");
        for more in &added {
            let error = with(last, more).expect_err("Python calls the attribute").to_string();
            assert!(error.contains("which replaces a method of the class"), "{error}");
        }
        classes.insert(model.class_path().to_owned());
        // Those of other objects, such as steps.
        let more = &added[number % added.len()];
        inner += places()
            .filter(|place| *place != last)
            .filter(|place| with(*place, more).is_err_and(|error| error.to_string().contains("replaces a method")))
            .count();
    }
    let libraries: Vec<_> = ["sklearn.", "xgboost.", "lightgbm."]
        .into_iter()
        .filter(|library| classes.iter().any(|class| class.starts_with(library)))
        .collect();
    assert_eq!(libraries.len(), 3, "{classes:?}");
    assert!(classes.len() > 20 && inner > 20, "{} classes, {inner} parts of others", classes.len());
}

/// Loads a file that may be a model. If it is one, it must answer or return an error.
fn load_and_predict(bytes: Vec<u8>) {
    let Ok(model) = FittedEstimator::load(bytes.into()) else { return };
    let columns = model.n_features().unwrap_or(4);
    if columns > 1000 {
        return;
    }
    let rows = 3;
    let numbers: Vec<f64> = (0..rows * columns).map(|at| at as f64 / 7.0 - 2.0).collect();
    let table = DenseTable::new(Elements::F64(numbers.clone().into()), rows, columns).unwrap();
    for output in [EnsembleOutput::Contributions, EnsembleOutput::Margin, EnsembleOutput::Leaf] {
        drop(model.explain(output, &TableData::Table(table.clone()), &AtomicBool::new(false)));
    }
    for method in EstimatorMethod::ALL {
        for elements in [Elements::F64(numbers.clone().into()), Elements::Text(vec![Arc::from("a"); rows * columns])] {
            drop(model.call(method, &TableData::Table(DenseTable::new(elements, rows, columns).unwrap())));
        }
    }
}

#[test]
fn sklearn_truncated_files_are_rejected() {
    // The last bytes of a compressed file may not be needed: the compressed data may end before them.
    for bytes in files().into_iter().filter(|bytes| bytes[0] == 0x80) {
        let step = (bytes.len() / 100).max(1);
        for length in (0..bytes.len()).rev().step_by(step) {
            assert!(
                FittedEstimator::load(bytes[..length].to_vec().into()).is_err(),
                "{length} of {} bytes",
                bytes.len()
            );
        }
    }
}

#[test]
fn sklearn_damaged_files_never_panic() {
    let mut damage = Damage::new(b"(.0123NRabcdeghijlopqrstu)]}\x80\x81\x85\x86\x87\x88\x8c\x90\x93\x94");
    for bytes in files() {
        for _ in 0..60 {
            load_and_predict(damage.damaged(&bytes));
        }
    }
}

/// Compares the model with every answer of the case, for all rows together and one by one.
fn check(model: &FittedEstimator, case: &Case) -> Result<(), String> {
    for asked in &case.asked {
        let rows = asked.input.rows();
        for method in EstimatorMethod::ALL {
            let Some(expected) = asked.expect.get(method.name()) else {
                if model.methods().contains(method) {
                    return Err(format!("has {method}, which the original has not"));
                }
                continue;
            };
            if !model.methods().contains(method) {
                return Err(format!("lacks {method}"));
            }
            let Some(expected) = expected else { continue };
            let whole = asked.input.data(0, rows);
            let blocks = model.call_in_blocks(method, &whole, 2, &AtomicBool::new(false));
            let blocks = blocks.map_err(|error| format!("{method} in blocks: {error}"))?;
            compare(&blocks, expected, 0, rows, case.single)
                .map_err(|difference| format!("{method} in blocks: {difference}"))?;
            let stopped = model.call_in_blocks(method, &whole, 2, &AtomicBool::new(true));
            if rows > 2 && stopped != Err(PredictError::Cancelled) {
                return Err(format!("{method} does not stop"));
            }
            for (start, count) in std::iter::once((0, rows)).chain((0..rows).map(|row| (row, 1))) {
                let found = model.call(method, &asked.input.data(start, count));
                let found = found.map_err(|error| format!("{method}: {error}"))?;
                let bytes = model.row_bytes(method, &asked.input.data(start, count));
                if count > 0 && bytes.map(|bytes| bytes * count) != Some(size(&found)) {
                    return Err(format!("{method}: {bytes:?} bytes a row are expected, {} for {count}", size(&found)));
                }
                compare(&found, expected, start, count, case.single)
                    .map_err(|difference| format!("{method} of {count} rows from {start}: {difference}"))?;
            }
        }
    }
    Ok(())
}

/// Returns the size of a response with these values, in bytes; texts count as 64 bytes.
fn size(found: &TableData<'_>) -> usize {
    let of = |elements: &Elements<'_>| {
        let width = match elements {
            Elements::Text(_) | Elements::PartialText(_) => 64,
            Elements::F64(_) => 8,
            Elements::F32(_) => 4,
            Elements::Int(_, kind) => match kind {
                IntType::Bool | IntType::I8 | IntType::U8 => 1,
                IntType::I16 | IntType::U16 => 2,
                IntType::I32 | IntType::U32 => 4,
                IntType::I64 | IntType::U64 => 8,
            },
        };
        elements.len() * width
    };
    match found {
        TableData::Table(table) => of(table.elements()),
        TableData::Frame(frame) => frame.columns().iter().map(of).sum(),
        TableData::Sparse(sparse) => of(sparse.to_table(usize::MAX).unwrap().elements()),
    }
}

fn compare(found: &TableData<'_>, expected: &Answer, start: usize, count: usize, single: bool) -> Result<(), String> {
    match (found, expected) {
        (TableData::Table(found), Answer::Array(expected)) => {
            let columns = expected.shape[1..].iter().product();
            if (found.rows(), found.columns()) != (count, columns) {
                return Err(format!("{} x {} instead of {count} x {columns}", found.rows(), found.columns()));
            }
            alike(found.elements(), expected, start * columns, single)
        }
        (TableData::Sparse(found), Answer::Array(_)) => {
            let dense = found.to_table(usize::MAX).unwrap();
            compare(&TableData::Table(dense), expected, start, count, single)
        }
        (TableData::Frame(found), Answer::Frame { frame }) => {
            let names: Vec<_> = frame.iter().map(|column| column.name.as_str()).collect();
            if found.names() != names {
                return Err(format!("columns {:?} instead of {names:?}", found.names()));
            }
            found
                .columns()
                .iter()
                .zip(frame)
                .try_for_each(|(found, wanted)| alike(found, &wanted.tensor, start, single))
        }
        _ => Err("a table instead of a frame, or the reverse".to_owned()),
    }
}

fn alike(found: &Elements<'_>, expected: &Tensor, start: usize, single: bool) -> Result<(), String> {
    let (datatype, numbers): (_, Vec<f64>) = match found {
        Elements::F32(values) => ("FP32", values.iter().map(|&value| f64::from(value)).collect()),
        Elements::F64(values) => ("FP64", values.to_vec()),
        Elements::Int(values, kind) => {
            let datatype = match kind {
                IntType::Bool => "BOOL",
                IntType::I8 => "INT8",
                IntType::I16 => "INT16",
                IntType::I32 => "INT32",
                IntType::I64 => "INT64",
                IntType::U8 => "UINT8",
                IntType::U16 => "UINT16",
                IntType::U32 => "UINT32",
                IntType::U64 => "UINT64",
            };
            (datatype, values.iter().map(|&value| value as f64).collect())
        }
        Elements::PartialText(_) => return Err("missing texts, which no case has".to_owned()),
        Elements::Text(values) => {
            let wanted: Vec<_> = expected.data[start..start + values.len()].iter().map(Value::as_str).collect();
            let same = values.iter().map(|text| Some(&**text)).eq(wanted.iter().copied());
            return if same { Ok(()) } else { Err(format!("{values:?} instead of {wanted:?}")) };
        }
    };
    if datatype != expected.datatype {
        return Err(format!("{datatype} instead of {}", expected.datatype));
    }
    let (tolerance, rounding) = match datatype {
        "FP32" | "FP64" if single || datatype == "FP32" => (SINGLE, ROUNDING * f64::from(f32::EPSILON)),
        "FP64" => (DOUBLE, ROUNDING * f64::EPSILON),
        _ => (0.0, 0.0),
    };
    let wanted: Vec<f64> = expected.data[start..start + numbers.len()].iter().map(number).collect();
    let largest =
        expected.data.iter().map(number).filter(|number| number.is_finite()).fold(0.0, |a: f64, b| a.max(b.abs()));
    let floor = rounding * largest;
    let close = |(found, wanted): (&f64, &f64)| {
        let same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
        same || (found - wanted).abs() <= tolerance * found.abs().max(wanted.abs()) + floor
    };
    match numbers.iter().zip(&wanted).position(|pair| !close(pair)) {
        Some(at) => Err(format!("value {at} is {} instead of {}", numbers[at], wanted[at])),
        None => Ok(()),
    }
}
