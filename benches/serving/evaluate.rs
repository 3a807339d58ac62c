//! Times the native evaluators on the models and matrices that `evaluate.py` wrote, and checks the answers.
//!
//! Usage: `cargo run --profile dist --example evaluate -- FOLDER`. Prints a line of JSON for one row and one for all rows of
//! each case; the time is the median over repetitions, in nanoseconds of processor time a call.
#![expect(clippy::print_stdout, reason = "the report goes to standard output")]

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mlserver::evaluators::catboost::{CatBoostModel, CatBoostOutput};
use mlserver::evaluators::onnx::{Buffer, ElementType, Elements as OnnxElements, OnnxModel, Shape, Tensor};
use mlserver::evaluators::table::{DenseTable, Elements, TableData};
use mlserver::evaluators::trees::{EnsembleOutput, FeatureMatrix, FeatureValues, PredictedValues, TreeEnsemble};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::json;

/// How long each measurement takes.
const BUDGET: Duration = Duration::from_secs(1);
/// How long a group of calls takes that is timed at once, because reading the clock takes longer than a short call.
const GROUP: Duration = Duration::from_millis(1);
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
    /// The labels of all rows, for a classifier of ONNX.
    #[serde(default)]
    labels: Option<String>,
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
    let model = match case.library.as_str() {
        "catboost" => return run_catboost(folder, case, bytes),
        "onnx" => return run_onnx(folder, case, &bytes),
        "xgboost" => TreeEnsemble::load_xgboost(&bytes)?,
        "lightgbm" => TreeEnsemble::load_lightgbm(&bytes)?,
        other => bail!("unknown library {other}"),
    };
    let data = Data::read(&folder.join(&case.input), &case.dtype)?;
    let output = if case.contributions { EnsembleOutput::Contributions } else { EnsembleOutput::Predict };
    check(&model.predict(data.rows(case, case.rows)?, output)?.values, &folder.join(&case.expected), case.tolerance())?;
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
    check(&PredictedValues::F64(found.into_owned()), &folder.join(&case.expected), case.tolerance())?;
    for rows in [1, case.rows] {
        let rows_of = table(rows)?;
        let median = median(|| model.predict(&rows_of, output, &never).map(drop))?;
        report(case, rows, median, model.estimate(rows, output));
    }
    Ok(())
}

/// Times a graph of ONNX: the plan and the evaluation of all outputs, of which the last one has the scores.
fn run_onnx(folder: &Path, case: &Case, bytes: &[u8]) -> Result<()> {
    let model = OnnxModel::load(bytes, &|_| Err("the model has no other files".to_owned()))?;
    let Data::F32(values) = Data::read(&folder.join(&case.input), &case.dtype)? else {
        bail!("expected a matrix of single precision")
    };
    let never = AtomicBool::new(false);
    let all: Vec<usize> = (0..model.interface().outputs.len()).collect();
    let call = |rows: usize| -> Result<(Duration, Vec<Tensor<'_>>)> {
        let values = values.get(..rows * case.cols).context("the matrix file is too short")?;
        let shape = Shape::of_matrix(rows, case.cols).context("the matrix is too large")?;
        let input = Tensor::new(shape, OnnxElements::F32(Buffer::Borrowed(values))).context("creating the input")?;
        let plan = model.plan(&[(ElementType::F32, shape)], &all)?;
        Ok((plan.cost, model.evaluate(&plan, vec![input], &never)?))
    };
    let (_, found) = call(case.rows)?;
    let Some(OnnxElements::F32(scores)) = found.last().map(Tensor::elements) else { bail!("expected scores") };
    check(&PredictedValues::F32(scores.to_vec()), &folder.join(&case.expected), case.tolerance())?;
    if let Some(labels) = &case.labels {
        let expected: Vec<i64> =
            fs::read(folder.join(labels))?.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        let Some(OnnxElements::I64(found)) = found.first().map(Tensor::elements) else { bail!("expected labels") };
        ensure!(found[..] == expected[..], "some labels are not those of the library");
    }
    for rows in [1, case.rows] {
        let (estimate, _) = call(rows)?;
        let median = median(|| call(rows).map(drop))?;
        report(case, rows, median, estimate);
    }
    Ok(())
}

/// Prints a measurement.
fn report(case: &Case, rows: usize, median: u128, estimate: Duration) {
    let estimate = estimate.as_nanos();
    println!("{}", json!({"case": case.name, "rows": rows, "median_ns": median, "estimate_ns": estimate}));
}

/// The difference that a number may have.
#[derive(Clone, Copy)]
enum Tolerance {
    OfNumber(f64),
    OfLargest(f64),
}

impl Case {
    fn tolerance(&self) -> Tolerance {
        if self.contributions {
            Tolerance::OfLargest(CONTRIBUTION_TOLERANCE)
        } else if self.library == "onnx" {
            // The order of sums in single precision differs.
            Tolerance::OfLargest(TOLERANCE)
        } else {
            Tolerance::OfNumber(TOLERANCE)
        }
    }
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
fn check(scores: &PredictedValues, path: &Path, tolerance: Tolerance) -> Result<()> {
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
        let allowed = match tolerance {
            Tolerance::OfNumber(share) => share * expected.abs(),
            Tolerance::OfLargest(share) => share * largest,
        };
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

/// The median processor time of a call, in nanoseconds. Short calls are timed in groups.
fn median<E>(mut call: impl FnMut() -> Result<(), E>) -> Result<u128, E> {
    call()?;
    let before = processor_time();
    call()?;
    let single = processor_time().saturating_sub(before).as_nanos().max(1);
    let group = (GROUP.as_nanos() / single).clamp(1, 10_000);
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < BUDGET || times.len() < 5 {
        let before = processor_time();
        for _ in 0..group {
            call()?;
        }
        times.push(processor_time().saturating_sub(before).as_nanos() / group);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}
