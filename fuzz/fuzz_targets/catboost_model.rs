//! Loading any bytes as a CatBoost model succeeds or fails cleanly, and a loaded model can predict.
//!
//! `cargo +nightly fuzz run catboost_model CORPUS -- -malloc_limit_mb=256`, with golden models as the corpus
//! (`tests/goldens/archive.py unpack`).
#![no_main]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use libfuzzer_sys::fuzz_target;
use mlserver::evaluators::catboost::{CatBoostModel, CatBoostOutput};
use mlserver::evaluators::table::{DenseTable, Elements, TableData};

/// Enough for every golden model, and cheap.
const COLUMNS: usize = 64;
/// More than one block.
const ROWS: usize = 70;

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = CatBoostModel::load(&bytes.to_vec().into()) else { return };
    let columns = model.n_columns();
    if columns > COLUMNS || model.columns(CatBoostOutput::Raw) > Some(COLUMNS) {
        return;
    }
    let never = AtomicBool::new(false);
    let texts = (0..ROWS * columns).map(|at| Arc::from((at % 9).to_string())).collect();
    let numbers = (0..ROWS * columns).map(|at| if at % 11 == 0 { f32::NAN } else { at as f32 / 7.0 - 9.0 });
    for elements in [Elements::Text(texts), Elements::F32(numbers.collect())] {
        let table = DenseTable::new(elements, ROWS, columns).expect("the table has this many values");
        let table = TableData::Table(table);
        for output in [CatBoostOutput::Predict, CatBoostOutput::Probability, CatBoostOutput::Leaf] {
            // Columns of categories take no floating-point numbers.
            drop(model.predict(&table, output, &never));
        }
    }
});
