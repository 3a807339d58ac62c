//! Loading any bytes as a pickled model succeeds or fails cleanly, and a loaded model can predict and explain.
//!
//! `cargo +nightly fuzz run sklearn_model CORPUS -- -malloc_limit_mb=512`, with golden models as the corpus
//! (`tests/goldens/archive.py unpack`).
#![no_main]

use std::sync::atomic::AtomicBool;

use libfuzzer_sys::fuzz_target;
use mlserver::evaluators::sklearn::{EstimatorMethod, FittedEstimator};
use mlserver::evaluators::table::{DenseTable, Elements, TableData};
use mlserver::evaluators::trees::EnsembleOutput;

/// Enough for every golden model, and cheap.
const FEATURES: usize = 64;
const ROWS: usize = 7;
/// The memory for contributions, below the limit of the fuzzer.
const CONTRIBUTION_BYTES: usize = 64 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut model) = FittedEstimator::load(bytes.to_vec().into()) else { return };
    model.set_contribution_limit(CONTRIBUTION_BYTES);
    let columns = model.n_features().unwrap_or(4);
    if columns > FEATURES {
        return;
    }
    let numbers: Vec<f64> = (0..ROWS * columns).map(|at| at as f64 / 7.0 - 9.0).collect();
    let data = TableData::Table(DenseTable::new(Elements::F64(numbers.into()), ROWS, columns).expect("as many numbers as cells"));
    for method in EstimatorMethod::ALL {
        // An error is a valid result.
        drop(model.call(method, &data));
    }
    for output in [EnsembleOutput::Contributions, EnsembleOutput::Margin, EnsembleOutput::Leaf] {
        drop(model.explain(output, &data, &AtomicBool::new(false)));
    }
});
