//! Copies this executable into an image, with the libraries that it needs in an empty one.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use crate::platform;

/// The path of the executable in an image.
const TARGET: &str = "/usr/local/bin/mlserver";

/// Returns the executable's file and, unless it is linked statically, those of its libraries and their loader, each with its path
/// in an image.
///
/// # Errors
///
/// Fails if the executable is not one for Linux, or if its files cannot be found or read.
pub fn files() -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let executable = std::env::current_exe()?;
    let mut files = vec![(executable.clone(), PathBuf::from(TARGET))];
    let mut start = Vec::new();
    File::open(&executable)?.take(1 << 20).read_to_end(&mut start)?;
    check_format(&start)?;
    let Some(loader) = interpreter(&start) else { return Ok(files) };
    let loader_file = fs::canonicalize(&loader)?;
    for path in platform::loaded_libraries()? {
        let target = if path == loader_file { loader.clone() } else { path.clone() };
        files.push((path, target));
    }
    Ok(files)
}

/// Fails if a file does not begin as an executable of Linux, such as one of macOS.
fn check_format(start: &[u8]) -> io::Result<()> {
    if start.starts_with(b"\x7fELF") {
        return Ok(());
    }
    let message = "it does not run in an image, which needs an executable for Linux: name one with `--server`";
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}

/// Reports whether the executable needs the libraries of the system on which it was built.
///
/// # Errors
///
/// Fails if the executable cannot be read.
pub fn is_dynamic() -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(std::env::current_exe()?)?.take(1 << 20).read_to_end(&mut start)?;
    Ok(interpreter(&start).is_some())
}

/// Returns the loader of a dynamic executable (ELF, 64 bits, little-endian).
fn interpreter(elf: &[u8]) -> Option<PathBuf> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let at = |at: usize, size: usize| usize::try_from(number(at, size)?).ok();
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, entry_size, entries) = (at(32, 8)?, at(54, 2)?, at(56, 2)?);
    let headers = (0..entries).filter_map(|index| table.checked_add(index.checked_mul(entry_size)?));
    let header = headers.into_iter().find(|header| number(*header, 4) == Some(PT_INTERP))?;
    let (start, size) = (at(header + 8, 8)?, at(header + 32, 8)?);
    let path = elf.get(start..start.checked_add(size)?)?.strip_suffix(b"\0")?;
    Some(PathBuf::from(String::from_utf8_lossy(path).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn executable_of_another_system_is_rejected() {
        check_format(b"\x7fELF\x02\x01").unwrap();
        for start in [&b"\xcf\xfa\xed\xfe"[..], b"MZ", b""] {
            let error = check_format(start).unwrap_err().to_string();
            assert!(error.contains("`--server`"), "{error}");
        }
    }

    #[test]
    fn executable_files_include_its_libraries() {
        let files = files().unwrap();
        assert_eq!(files[0].1, Path::new(TARGET));
        let targets: Vec<_> = files.iter().map(|(_, target)| target.to_string_lossy().into_owned()).collect();
        // The tests are linked dynamically.
        assert!(targets.iter().any(|target| target.contains("/libc.so")), "{targets:?}");
        assert!(targets.iter().any(|target| target.contains("/ld-linux")), "{targets:?}");
        assert!(files.iter().all(|(source, _)| source.is_file()), "{files:?}");
    }

    #[test]
    fn executable_interpreter_ignores_other_files() {
        for bytes in [&b""[..], b"#!/bin/sh", b"\x7fELF\x02\x01", &[0xff; 100]] {
            assert_eq!(interpreter(bytes), None);
        }
        let mut hostile = b"\x7fELF\x02\x01".to_vec();
        hostile.resize(64, 0xff);
        assert_eq!(interpreter(&hostile), None);
    }
}
