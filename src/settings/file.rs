//! Reads settings files, up to a maximum size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::{Map, Value};

use super::problem::FileError;
use crate::types::text;

/// The maximum size of a settings file in bytes; a larger file is probably not one.
const LIMIT: u64 = 16 << 20;

/// Reads a file that contains one JSON object, or returns `None` if there is no such file.
pub(super) fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, FileError> {
    let Some(bytes) = read(path)? else {
        return Ok(None);
    };
    let text = text::without_mark(&bytes).map_err(|error| FileError::Text { path: path.to_owned(), error })?;
    let value = serde_json::from_slice(text).map_err(|error| FileError::Syntax { path: path.to_owned(), error })?;
    match value {
        Value::Object(object) => Ok(Some(object)),
        other => {
            let found = match other {
                Value::Array(_) => "a list",
                Value::String(_) => "a string",
                Value::Number(_) => "a number",
                Value::Bool(_) => "true or false",
                Value::Null | Value::Object(_) => "null",
            };
            Err(FileError::NotAnObject { path: path.to_owned(), found })
        }
    }
}

/// Reads a regular file within the limit, or returns `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let unreadable = |error| FileError::Read { path: path.to_owned(), error };
    // Checked before it is opened, because opening a pipe would block until it has a writer.
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(unreadable(io::Error::other("not a regular file"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LIMIT {
        return Err(FileError::TooLarge { path: path.to_owned(), limit: LIMIT });
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn read_object_rejects_files_over_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        let file = File::create(&path).unwrap();
        file.set_len(LIMIT + 1).unwrap();
        assert!(matches!(read_object(&path), Err(FileError::TooLarge { .. })));
    }

    #[test]
    fn read_object_fails_unless_the_file_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read_object(&folder.path().join("none.json")), Ok(None)));
        assert!(matches!(read_object(folder.path()), Err(FileError::Read { .. })));
        let list = folder.path().join("list.json");
        fs::write(&list, "[1]").unwrap();
        assert!(matches!(read_object(&list), Err(FileError::NotAnObject { .. })));
        let broken = folder.path().join("broken.json");
        fs::write(&broken, "{\"debug\": tru}").unwrap();
        let problem = read_object(&broken).unwrap_err().to_string();
        assert!(problem.contains("line 1 column"), "{problem}");
    }
}
