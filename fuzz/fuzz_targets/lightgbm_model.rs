//! Loading any bytes as a LightGBM model succeeds or fails cleanly, and a loaded model can predict.
//!
//! `cargo +nightly fuzz run lightgbm_model CORPUS -- -malloc_limit_mb=256`, with golden models as the corpus
//! (`tests/goldens/archive.py unpack`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlserver::evaluators::trees::{EnsembleOutput, FeatureMatrix, FeatureValues, TreeEnsemble};

/// Enough for every golden model, and cheap.
const FEATURES: usize = 64;
/// Bytes that are prepared for contributions.
const LIMIT: usize = 16 << 20;
/// More than one block.
const ROWS: usize = 70;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut model) = TreeEnsemble::load_lightgbm(bytes) else { return };
    model.set_contribution_limit(LIMIT);
    let columns = model.n_features();
    if columns > FEATURES {
        return;
    }
    let numbers: Vec<f32> =
        (0..ROWS * columns).map(|at| if at % 11 == 0 { f32::NAN } else { at as f32 / 7.0 - 9.0 }).collect();
    let matrix = FeatureMatrix::new(FeatureValues::F32(&numbers), ROWS, columns).expect("the matrix has this many values");
    for output in [EnsembleOutput::Predict, EnsembleOutput::Margin] {
        model.predict(matrix, output).expect("the shape matches the model");
    }
    // Refused by name, or found.
    for output in [EnsembleOutput::Contributions, EnsembleOutput::Leaf] {
        let _ = model.predict(matrix, output);
    }
});
