//! Times the native evaluators on the models and matrices that `evaluate.py` wrote, and checks the answers.
//!
//! Usage: `cargo run --profile dist --example evaluate -- FOLDER`. Prints a line of JSON for one row and one for all rows of
//! each case; the time is the median over repetitions, in nanoseconds a call.
#![expect(clippy::print_stdout, reason = "the report goes to standard output")]

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mlserver::evaluators::catboost::{CatBoostModel, CatBoostOutput};
use mlserver::evaluators::table::{DenseTable, Elements, TableData};
use mlserver::evaluators::trees::{EnsembleOutput, FeatureMatrix, FeatureValues, PredictedValues, TreeEnsemble};
use serde::Deserialize;
use serde_json::json;

/// How long each measurement takes.
const BUDGET: Duration = Duration::from_secs(1);
/// Relative difference that a score may have.
const TOLERANCE: f64 = 1e-6;
/// Difference that a contribution may have, relative to the largest one: XGBoost computes them in single precision.
const CONTRIBUTION_TOLERANCE: f64 = 1e-5;

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    library: String,
    model: String,
    input: String,
    dtype: String,
    rows: usize,
    cols: usize,
    expected: String,
    /// Whether the contributions of features are computed instead of predictions.
    #[serde(default)]
    contributions: bool,
}

/// The elements of a matrix file.
enum Data {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).context("usage: evaluate FOLDER")?;
    let folder = Path::new(&folder);
    let manifest = fs::read(folder.join("manifest.json")).context("reading the manifest")?;
    let cases: Vec<Case> = serde_json::from_slice(&manifest).context("reading the manifest")?;
    for case in &cases {
        run(folder, case).with_context(|| format!("in case {}", case.name))?;
    }
    Ok(())
}

fn run(folder: &Path, case: &Case) -> Result<()> {
    let bytes = fs::read(folder.join(&case.model))?;
    if case.library == "catboost" {
        return run_catboost(folder, case, bytes);
    }
    let model = match case.library.as_str() {
        "xgboost" => TreeEnsemble::load_xgboost(&bytes)?,
        "lightgbm" => TreeEnsemble::load_lightgbm(&bytes)?,
        other => bail!("unknown library {other}"),
    };
    let data = Data::read(&folder.join(&case.input), &case.dtype)?;
    let output = if case.contributions { EnsembleOutput::Contributions } else { EnsembleOutput::Predict };
    check(
        &model.predict(data.rows(case, case.rows)?, output)?.values,
        &folder.join(&case.expected),
        case.contributions,
    )?;
    for rows in [1, case.rows] {
        let matrix = data.rows(case, rows)?;
        let median = median(|| model.predict(matrix, output).map(drop))?;
        report(case, rows, median, model.estimate(rows, output));
    }
    Ok(())
}

/// Times a model of `CatBoost`: its raw values, or its contributions.
fn run_catboost(folder: &Path, case: &Case, bytes: Vec<u8>) -> Result<()> {
    let model = CatBoostModel::load(&bytes.into())?;
    let Data::F32(values) = Data::read(&folder.join(&case.input), &case.dtype)? else {
        bail!("expected a matrix of single precision")
    };
    let output = if case.contributions { CatBoostOutput::Contributions } else { CatBoostOutput::Raw };
    let never = AtomicBool::new(false);
    let table = |rows: usize| -> Result<TableData<'_>> {
        let values = values.get(..rows * case.cols).context("the matrix file is too short")?;
        Ok(TableData::Table(DenseTable::new(Elements::F32(values.into()), rows, case.cols)?))
    };
    let found = model.predict(&table(case.rows)?, output, &never)?.elements;
    let Elements::F64(found) = found else { bail!("expected numbers, found {found:?}") };
    check(&PredictedValues::F64(found.into_owned()), &folder.join(&case.expected), case.contributions)?;
    for rows in [1, case.rows] {
        let rows_of = table(rows)?;
        let median = median(|| model.predict(&rows_of, output, &never).map(drop))?;
        report(case, rows, median, model.estimate(rows, output));
    }
    Ok(())
}

/// Prints a measurement.
fn report(case: &Case, rows: usize, median: u128, estimate: Duration) {
    let estimate = estimate.as_nanos();
    println!("{}", json!({"case": case.name, "rows": rows, "median_ns": median, "estimate_ns": estimate}));
}

impl Data {
    fn read(path: &Path, dtype: &str) -> Result<Self> {
        let bytes = fs::read(path)?;
        match dtype {
            "float32" => Ok(Self::F32(singles(&bytes))),
            "float64" => Ok(Self::F64(doubles(&bytes))),
            other => bail!("unknown dtype {other}"),
        }
    }

    /// The first rows.
    fn rows(&self, case: &Case, rows: usize) -> Result<FeatureMatrix<'_>> {
        let count = rows * case.cols;
        let values = match self {
            Self::F32(values) => FeatureValues::F32(values.get(..count).context("the matrix file is too short")?),
            Self::F64(values) => FeatureValues::F64(values.get(..count).context("the matrix file is too short")?),
        };
        Ok(FeatureMatrix::new(values, rows, case.cols)?)
    }
}

/// Compares with what the library answered, in the datatype of the answer.
fn check(scores: &PredictedValues, path: &Path, are_contributions: bool) -> Result<()> {
    let bytes = fs::read(path)?;
    let (found, expected): (Vec<f64>, Vec<f64>) = match scores {
        PredictedValues::F32(values) => (widen(values), widen(&singles(&bytes))),
        PredictedValues::F64(values) => (values.clone(), doubles(&bytes)),
        other => bail!("expected scores, found {other:?}"),
    };
    ensure!(found.len() == expected.len(), "{} values instead of {}", found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let difference = (found - expected).abs();
        let allowed = if are_contributions { CONTRIBUTION_TOLERANCE * largest } else { TOLERANCE * expected.abs() };
        ensure!(difference <= allowed, "value {row} is {found} instead of {expected}");
    }
    Ok(())
}

fn singles(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// The median time of a call.
fn median<E>(mut call: impl FnMut() -> Result<(), E>) -> Result<u128, E> {
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < BUDGET || times.len() < 5 {
        let before = Instant::now();
        call()?;
        times.push(before.elapsed().as_nanos());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
