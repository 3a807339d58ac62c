//! Files with credentials.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::storage::error::CredentialsError;

/// The longest file with credentials, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Reads a section of an INI file. `None` if the file or the section does not exist.
pub(super) fn ini_section(path: &Path, name: &str) -> Result<Option<BTreeMap<String, String>>, CredentialsError> {
    let Some(text) = read_small(path)? else { return Ok(None) };
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            let header = header.trim();
            let is_it = header == name || header.strip_prefix("profile ").is_some_and(|header| header.trim() == name);
            if is_it {
                found.get_or_insert_with(BTreeMap::new);
            } else if found.is_some() {
                break;
            }
        } else if let (Some(section), Some((key, value))) = (&mut found, line.split_once('='))
            && !line.starts_with(['#', ';'])
        {
            section.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    Ok(found)
}

/// Reads a short text file. `None` if it does not exist.
pub(super) fn read_small(path: &Path) -> Result<Option<String>, CredentialsError> {
    let failed = |source| CredentialsError::Read { path: path.to_owned(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(metadata) if !metadata.is_file() || metadata.len() > MAX_FILE => {
            return Err(failed(io::Error::other("it is not a file of at most 1 MiB")));
        }
        metadata => metadata.map_err(failed)?,
    };
    Ok(Some(fs::read_to_string(path).map_err(failed)?))
}
