//! Loading any archive as a skops file succeeds or fails cleanly, and a loaded model can predict.
//!
//! An input that begins as an archive does is one. Others are the entries of an archive, with a separator between them: the schema,
//! and files that it calls `1`, `2` and so on. So that the fuzzer need not find checksums.
//!
//! `cargo +nightly fuzz run skops_model CORPUS -- -malloc_limit_mb=512`
#![no_main]

use flate2::Crc;
use libfuzzer_sys::fuzz_target;
use mlserver::evaluators::sklearn::{EstimatorMethod, FittedEstimator};
use mlserver::evaluators::table::{DenseTable, Elements, TableData};

/// Enough for every golden model, and cheap.
const FEATURES: usize = 64;
const ROWS: usize = 7;
const SEPARATOR: &[u8] = b"\n--\n";

fuzz_target!(|bytes: &[u8]| {
    let file = if bytes.starts_with(b"PK") { bytes.to_vec() } else { archive(&entries(bytes)) };
    let Ok(model) = FittedEstimator::load(file.into()) else { return };
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
});

fn entries(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut entries = Vec::new();
    while let Some(end) = bytes.windows(SEPARATOR.len()).position(|window| window == SEPARATOR) {
        entries.push(&bytes[..end]);
        bytes = &bytes[end + SEPARATOR.len()..];
    }
    entries.push(bytes);
    entries
}

/// Writes an archive of entries that are not compressed.
fn archive(entries: &[&[u8]]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    let count = entries.len() as u16;
    for (number, content) in entries.iter().enumerate() {
        let name = if number == 0 { "schema.json".to_owned() } else { number.to_string() };
        let mut checksum = Crc::new();
        checksum.update(content);
        let size = (content.len() as u32).to_le_bytes();
        let common = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &checksum.sum().to_le_bytes(), &size, &size].concat();
        let length = (name.len() as u16).to_le_bytes();
        let offset = (file.len() as u32).to_le_bytes();
        directory.extend([b"PK\x01\x02\x14\0", &common[..], &length, &[0; 12], &offset, name.as_bytes()].concat());
        file.extend([b"PK\x03\x04", &common[..], &length, &[0; 2], name.as_bytes(), content].concat());
    }
    let (start, size) = (file.len() as u32, directory.len() as u32);
    file.extend(directory);
    let count = count.to_le_bytes();
    file.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count, &size.to_le_bytes(), &start.to_le_bytes(), &[0; 2]].concat());
    file
}
