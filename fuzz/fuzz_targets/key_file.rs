//! Files of API keys: any file is accepted or rejected, and an accepted one is the same after it has been written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlserver::access::{KeyFile, ModelPatterns};

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = KeyFile::parse(bytes) else { return };
    assert_eq!(KeyFile::parse(file.to_text().as_bytes()).expect("a file that was written"), file);
    for entry in &file.0 {
        entry.expires_at();
        let patterns = ModelPatterns::new(entry.models.clone());
        assert!(entry.models.is_some() || patterns.matches(&entry.name));
        patterns.matches(&entry.name);
    }
});
