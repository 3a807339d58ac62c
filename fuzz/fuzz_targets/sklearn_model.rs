//! Any bytes are a pickle of a model or are refused, and what is a model can answer.
//!
//! `cargo +nightly fuzz run sklearn_model CORPUS -- -malloc_limit_mb=512`, with golden models as the corpus
//! (`tests/goldens/archive.py unpack`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlserver::evaluators::sklearn::{Data, Elements, Method, Model, Table};

/// Wide enough for every golden model, and cheap.
const FEATURES: usize = 64;
const ROWS: usize = 7;

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = Model::load(bytes.to_vec().into()) else { return };
    let columns = model.n_features().unwrap_or(4);
    if columns > FEATURES {
        return;
    }
    let numbers: Vec<f64> = (0..ROWS * columns).map(|at| at as f64 / 7.0 - 9.0).collect();
    let data = Data::Table(Table { elements: Elements::F64(numbers.into()), rows: ROWS, columns });
    for method in Method::ALL {
        // Refusing is an answer.
        drop(model.call(method, &data));
    }
});
