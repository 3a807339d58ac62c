//! Packed environments: any file is unpacked or rejected, and nothing is written outside its folder.
//!
//! `cargo +nightly fuzz run archive -- -rss_limit_mb=512 -malloc_limit_mb=256`, with archives of `tests/fixtures/environments` as
//! the corpus.
#![no_main]

use std::fs;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use mlserver::runtimes::python::fuzzing::unpack;

fuzz_target!(|bytes: &[u8]| {
    // A file system in memory, if there is one.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.unwrap();
    let (archive, root) = (folder.path().join("archive"), folder.path().join("root"));
    fs::write(&archive, bytes).unwrap();
    fs::create_dir(&root).unwrap();
    unpack(&archive, &root);
    let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["archive", "root"]);
    assert_eq!(fs::read(&archive).unwrap(), bytes);
});
