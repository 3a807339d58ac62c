//! Any bytes are a LightGBM model or are refused, and what is a model can answer.
//!
//! `cargo +nightly fuzz run lightgbm_model CORPUS -- -malloc_limit_mb=256`, with golden models as the corpus
//! (`tests/goldens/archive.py unpack`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlserver::evaluators::trees::{Matrix, Model, Output, Values};

/// Wide enough for every golden model, and cheap.
const FEATURES: usize = 64;
/// More than one block.
const ROWS: usize = 70;

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = Model::load_lightgbm(bytes) else { return };
    let columns = model.n_features();
    if columns > FEATURES {
        return;
    }
    let numbers: Vec<f32> =
        (0..ROWS * columns).map(|at| if at % 11 == 0 { f32::NAN } else { at as f32 / 7.0 - 9.0 }).collect();
    let matrix = Matrix::new(Values::F32(&numbers), ROWS, columns).expect("there are so many");
    for output in [Output::Predict, Output::Margin] {
        model.predict(matrix, output).expect("the shape is the model's");
    }
});
