//! Times scikit-learn's models in process on the files that `scikit.py` wrote, and checks the answers.
//!
//! Usage: `cargo run --profile dist --example sklearn -- FOLDER`. Prints a line of JSON for one row and one for all rows of each
//! case: the processor time of `predict`, in nanoseconds a call, on one thread.
#![expect(clippy::print_stdout, reason = "the report goes to standard output")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mlserver::evaluators::sklearn::{EstimatorMethod, FittedEstimator};
use mlserver::evaluators::table::{DenseTable, Elements, TableData};
use serde::Deserialize;
use serde_json::json;

/// How long each measurement takes.
const BUDGET: Duration = Duration::from_secs(2);
/// Relative difference that a number may have.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    model: String,
    input: String,
    rows: usize,
    cols: usize,
    expected: String,
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).context("usage: sklearn FOLDER [CASE]")?;
    let only = std::env::args().nth(2);
    let folder = Path::new(&folder);
    let manifest = fs::read(folder.join("manifest.json")).context("reading the manifest")?;
    let cases: Vec<Case> = serde_json::from_slice(&manifest).context("reading the manifest")?;
    for case in cases.iter().filter(|case| only.as_ref().is_none_or(|only| *only == case.name)) {
        run(folder, case).with_context(|| format!("in case {}", case.name))?;
    }
    Ok(())
}

fn run(folder: &Path, case: &Case) -> Result<()> {
    let bytes = fs::read(folder.join(&case.model))?;
    let size = bytes.len();
    let began = Instant::now();
    let model = FittedEstimator::load(bytes.into())?;
    let load = began.elapsed().as_nanos();
    let bytes = fs::read(folder.join(&case.input))?;
    let numbers: Vec<f64> = bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    let table = |rows: usize| -> Result<TableData<'_>> {
        let values = numbers.get(..rows * case.cols).context("the file of rows is too short")?;
        Ok(TableData::Table(DenseTable::new(Elements::F64(values.into()), rows, case.cols)?))
    };
    check(&model.call(EstimatorMethod::Predict, &table(case.rows)?)?, &folder.join(&case.expected))?;
    for rows in [1, case.rows] {
        let data = table(rows)?;
        let time = time(|| model.call(EstimatorMethod::Predict, &data).map(drop))?;
        let estimate = model.estimate(rows).as_nanos();
        let (name, load) = (&case.name, if rows == 1 { Some(load) } else { None });
        let line = json!({"case": name, "rows": rows, "cpu_ns": time, "estimate_ns": estimate, "load_ns": load,
            "file_bytes": size});
        println!("{line}");
    }
    Ok(())
}

/// Compares with what scikit-learn predicts: labels have to be equal, numbers almost.
fn check(found: &TableData<'_>, path: &Path) -> Result<()> {
    let bytes = fs::read(path)?;
    let words = bytes.as_chunks::<8>().0.iter();
    let TableData::Table(table) = found else { bail!("expected a table, found {found:?}") };
    match table.elements() {
        Elements::Int(values, _) => {
            let wanted: Vec<i64> = words.map(|bytes| i64::from_le_bytes(*bytes)).collect();
            ensure!(values.len() == wanted.len(), "{} labels instead of {}", values.len(), wanted.len());
            let wrong = values.iter().zip(&wanted).filter(|(found, wanted)| found != wanted).count();
            ensure!(wrong == 0, "{wrong} of {} labels differ", wanted.len());
        }
        Elements::F64(values) => {
            let wanted: Vec<f64> = words.map(|bytes| f64::from_le_bytes(*bytes)).collect();
            ensure!(values.len() == wanted.len(), "{} numbers instead of {}", values.len(), wanted.len());
            for (row, (found, wanted)) in values.iter().zip(&wanted).enumerate() {
                let close = (found - wanted).abs() <= TOLERANCE * wanted.abs().max(1.0);
                ensure!(close, "number {row} is {found} instead of {wanted}");
            }
        }
        other => bail!("expected labels or numbers, found {other:?}"),
    }
    Ok(())
}

/// The processor time of a call, as the mean over the budget: what else the machine does hardly matters.
fn time<E>(mut call: impl FnMut() -> Result<(), E>) -> Result<u128>
where
    anyhow::Error: From<E>,
{
    call()?;
    let (start, before) = (Instant::now(), on_processor()?);
    let mut calls = 0;
    while start.elapsed() < BUDGET || calls < 3 {
        call()?;
        calls += 1;
    }
    Ok((on_processor()? - before) / calls)
}

/// For how many nanoseconds this thread has run.
fn on_processor() -> Result<u128> {
    let path = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(path).context(path)?;
    text.split_ascii_whitespace().next().and_then(|first| first.parse().ok()).context("schedstat has no number")
}
