//! Which objects a URI selects, and where they lie below the folder. Pure functions.

use std::collections::BTreeMap;

/// The most objects of a model.
pub(super) const MAX_OBJECTS: usize = 10_000;
/// The most objects of a repository of models.
pub const MAX_REPOSITORY_OBJECTS: usize = 100_000;
/// The longest path of a file, in bytes: that of Linux.
const MAX_PATH: usize = 4096;
/// How many other objects an error names.
const MAX_SIBLINGS: usize = 5;

/// A hash of a file's content that the store tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentHash {
    Md5([u8; 16]),
    Sha256([u8; 32]),
    /// The SHA-1 of a blob of Git: of the text `blob`, a space, the length, a zero byte, and the content.
    GitBlob([u8; 20]),
}

/// An object as a store lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// The name in the store.
    pub key: String,
    /// The path below the destination, with `/`.
    pub path: String,
    /// In bytes; `None` if the server does not tell.
    pub size: Option<u64>,
    /// The entity tag by which a change is noticed.
    pub etag: Option<String>,
    pub hash: Option<ContentHash>,
}

impl RemoteFile {
    /// Reports whether the tag is of these very bytes, so that parts of one tag fit together. Weak tags and times of web servers are not.
    pub(super) fn continues(&self) -> bool {
        self.etag.as_deref().is_some_and(|tag| !tag.starts_with("W/") && !tag.ends_with(" GMT"))
    }
}

/// Why a selection is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    #[error("no object has the key `{key}`, or is below `{key}/`{}", listed(siblings))]
    Nothing { key: String, siblings: Vec<String> },
    #[error("it selects more than {MAX_OBJECTS} objects")]
    TooMany,
    #[error("it has more than {MAX_REPOSITORY_OBJECTS} objects, the most of a repository; pass a folder of it")]
    TooManyInRepository,
    #[error("it selects {found} bytes, but `storage_max_bytes` is {limit}")]
    TooLarge { found: u64, limit: u64 },
    #[error("the key `{key}` {reason}")]
    Key { key: String, reason: &'static str },
    #[error("the keys `{one}` and `{other}` cannot both be files: one is a folder of the other")]
    Conflict { one: String, other: String },
    #[error("the patterns to include and exclude leave none of its {listed} files")]
    Filtered { listed: usize },
    #[error("none of its {listed} objects has a name like `{pattern}` (names that start with `_` or `.` are skipped)")]
    Pattern { pattern: String, listed: usize },
    #[error("the object `{key}` is empty")]
    Empty { key: String },
}

fn listed(siblings: &[String]) -> String {
    if siblings.is_empty() { String::new() } else { format!("; the bucket has {}", siblings.join(", ")) }
}

/// Returns the files of objects below `prefix`, with their paths below it, in the order of their paths.
///
/// Keys that end with `/` and empty objects are skipped, since they stand for folders, except empty objects whose name has an
/// extension, such as `__init__.py`.
///
/// # Errors
///
/// Fails if a key is not a safe path, two of them conflict, or the number of objects is 0 or too large.
pub(super) fn select(prefix: &str, objects: Vec<RemoteFile>) -> Result<Vec<RemoteFile>, SelectionError> {
    let mut files = BTreeMap::new();
    for mut object in objects {
        let Some(path) = path_below(prefix, &object) else { continue };
        check_path(path).map_err(|reason| SelectionError::Key { key: object.key.clone(), reason })?;
        let path = path.to_owned();
        object.path.clone_from(&path);
        files.insert(path, object);
        if files.len() > MAX_OBJECTS {
            return Err(SelectionError::TooMany);
        }
    }
    let is_folder = |path: &str| {
        let folder = format!("{path}/");
        files
            .range(folder.clone()..)
            .next()
            .filter(|(other, _)| other.starts_with(&folder))
            .map(|(other, _)| other.clone())
    };
    let mut markers = Vec::new();
    for (path, file) in &files {
        match is_folder(path) {
            // An empty object of the folder's name, which has a dot.
            Some(_) if file.size == Some(0) => markers.push(path.clone()),
            Some(other) => return Err(SelectionError::Conflict { one: path.clone(), other }),
            None => {}
        }
    }
    for marker in markers {
        files.remove(&marker);
    }
    if files.is_empty() {
        return Err(SelectionError::Nothing { key: prefix.to_owned(), siblings: Vec::new() });
    }
    Ok(files.into_values().collect())
}

/// Returns the path of an object below a prefix, or `None` if it is not below it, or stands for a folder.
fn path_below<'a>(prefix: &str, object: &'a RemoteFile) -> Option<&'a str> {
    let key = object.key.as_str();
    let below = if prefix.is_empty() { Some(key) } else { key.strip_prefix(prefix)?.strip_prefix('/') };
    let path = below.filter(|path| !path.is_empty() && !path.ends_with('/'))?;
    (object.size != Some(0) || has_extension(path)).then_some(path)
}

/// Returns the files of a repository below `prefix`, in the order of their paths, and how many were left out because their keys are not safe
/// paths. Those of one model are checked when it is fetched.
pub(super) fn select_repository(prefix: &str, objects: Vec<RemoteFile>) -> (Vec<RemoteFile>, usize) {
    let (mut files, mut unsafe_keys) = (BTreeMap::new(), 0);
    for mut object in objects {
        let Some(path) = path_below(prefix, &object).map(str::to_owned) else { continue };
        if check_path(&path).is_err() {
            unsafe_keys += 1;
            continue;
        }
        object.path.clone_from(&path);
        files.insert(path, object);
    }
    (files.into_values().collect(), unsafe_keys)
}

/// Returns the only file of a URI that names an object. Its path is the last part of its key.
///
/// # Errors
///
/// Fails if it is empty, or if its name is not a safe path.
pub(super) fn select_one(mut object: RemoteFile) -> Result<Vec<RemoteFile>, SelectionError> {
    if object.size == Some(0) {
        return Err(SelectionError::Empty { key: object.key });
    }
    object.key.rsplit('/').next().unwrap_or_default().clone_into(&mut object.path);
    match check_path(&object.path) {
        Ok(()) => Ok(vec![object]),
        Err(reason) => Err(SelectionError::Key { key: object.key, reason }),
    }
}

/// Checks the sum of the sizes that are known.
///
/// # Errors
///
/// Fails if it is above `limit`.
pub(super) fn check_size(files: &[RemoteFile], limit: u64) -> Result<(), SelectionError> {
    let found = files.iter().filter_map(|file| file.size).fold(0, u64::saturating_add);
    if found > limit { Err(SelectionError::TooLarge { found, limit }) } else { Ok(()) }
}

/// Returns up to five names beside a key that has no objects: those with the same beginning as its last part first.
pub(super) fn siblings(key: &str, objects: &[String]) -> Vec<String> {
    let (folder, name) = key.rsplit_once('/').map_or(("", key), |(folder, name)| (folder, name));
    let below = |object: &String| {
        let rest =
            if folder.is_empty() { Some(object.as_str()) } else { object.strip_prefix(folder)?.strip_prefix('/') };
        rest.map(|rest| rest.split_inclusive('/').next().unwrap_or_default().to_owned())
    };
    let mut names: Vec<_> = objects.iter().filter_map(below).filter(|name| !name.is_empty()).collect();
    names.sort_by_key(|other| (!other.starts_with(name), other.clone()));
    names.dedup();
    names.truncate(MAX_SIBLINGS);
    names
}

/// Reports whether a path matches one of the patterns, in which `*` is any text and `?` any letter.
pub(super) fn matches_any(patterns: &[String], path: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern.as_bytes(), path.as_bytes()))
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // The last `*`, and where the text after it was tried last.
    let (mut at, mut position, mut star) = (0, 0, None);
    while position < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, position));
                at += 1;
            }
            Some(letter) if *letter == b'?' || *letter == text[position] => {
                at += 1;
                position += 1;
            }
            _ => {
                let Some((last, tried)) = star else { return false };
                star = Some((last, tried + 1));
                at = last + 1;
                position = tried + 1;
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

fn has_extension(path: &str) -> bool {
    path.rsplit('/').next().unwrap_or_default().trim_start_matches('.').contains('.')
}

/// Checks that a path stays in its folder, on every system.
pub(super) fn check_path(path: &str) -> Result<(), &'static str> {
    match () {
        () if path.len() > MAX_PATH => Err("has more than 4096 bytes"),
        () if path.contains('\0') => Err("contains a zero byte"),
        () if path.contains('\\') => Err("contains a backslash"),
        () if path.split('/').any(|part| part == ".." || part == ".") => Err("contains `.` or `..`"),
        () if path.split('/').any(str::is_empty) => Err("is an absolute path, or has an empty part"),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(key: &str, size: u64) -> RemoteFile {
        RemoteFile { key: key.to_owned(), path: String::new(), size: Some(size), etag: None, hash: None }
    }

    fn paths(prefix: &str, objects: &[(&str, u64)]) -> Result<Vec<String>, SelectionError> {
        let objects = objects.iter().map(|(key, size)| object(key, *size)).collect();
        Ok(select(prefix, objects)?.into_iter().map(|file| file.path).collect())
    }

    #[test]
    fn selection_is_what_lies_below_the_prefix() {
        let objects = [
            ("m/a.json", 1),
            ("m/sub/b.bin", 2),
            ("m/sub/", 0),
            ("m/empty", 0),
            ("m/pkg/__init__.py", 0),
            ("m-old/a.json", 1),
            ("m", 3),
        ];
        assert_eq!(paths("m", &objects).unwrap(), ["a.json", "pkg/__init__.py", "sub/b.bin"]);
        assert_eq!(paths("m/sub", &objects).unwrap(), ["b.bin"]);
        assert_eq!(paths("", &[("a", 1), ("b/c", 1)]).unwrap(), ["a", "b/c"]);
        // A folder whose name has a dot.
        assert_eq!(paths("m", &[("m/v1.0", 0), ("m/v1.0/a", 1)]).unwrap(), ["v1.0/a"]);
    }

    #[test]
    fn selection_without_safe_paths_is_refused() {
        for (key, reason) in [
            ("m/../x", "contains `.` or `..`"),
            ("m/a/../../x", "contains `.` or `..`"),
            ("m//etc/passwd", "is an absolute path, or has an empty part"),
            ("m/a\\b", "contains a backslash"),
            ("m/a\0b", "contains a zero byte"),
        ] {
            let expected = SelectionError::Key { key: key.to_owned(), reason };
            assert_eq!(paths("m", &[(key, 1)]), Err(expected), "{key:?}");
        }
        assert!(matches!(paths("m", &[(&format!("m/{}", "x".repeat(5000)), 1)]), Err(SelectionError::Key { .. })));
        let conflict = SelectionError::Conflict { one: "a".to_owned(), other: "a/b".to_owned() };
        assert_eq!(paths("m", &[("m/a", 1), ("m/a/b", 1)]), Err(conflict));
        assert!(matches!(paths("m", &[("m", 1), ("m/", 0)]), Err(SelectionError::Nothing { .. })));
        let many: Vec<_> = (0..=MAX_OBJECTS).map(|number| object(&format!("m/{number}"), 1)).collect();
        assert_eq!(select("m", many), Err(SelectionError::TooMany));
        let files = [object("a", u64::MAX), object("b", 1)];
        assert_eq!(check_size(&files, 10), Err(SelectionError::TooLarge { found: u64::MAX, limit: 10 }));
    }

    #[test]
    fn files_continue_only_with_a_tag_of_their_bytes() {
        let with = |tag: Option<&str>| RemoteFile { etag: tag.map(str::to_owned), ..object("k", 1) };
        assert!(with(Some("\"a\"")).continues() && with(Some("0x8DC")).continues());
        for tag in [None, Some("W/\"a\""), Some("Wed, 21 Oct 2015 07:28:00 GMT")] {
            assert!(!with(tag).continues(), "{tag:?}");
        }
    }

    #[test]
    fn selection_of_one_object_takes_its_name() {
        assert_eq!(select_one(object("a/b/model.json", 1)).unwrap()[0].path, "model.json");
        assert_eq!(select_one(object("m", 0)), Err(SelectionError::Empty { key: "m".to_owned() }));
        assert!(select_one(object("a/..", 1)).is_err());
    }

    #[test]
    fn selection_is_filtered_by_patterns() {
        for (pattern, path, expected) in [
            ("*.json", "a/b.json", true),
            ("*.json", "a/b.jsonl", false),
            ("model-?.bin", "model-1.bin", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**", "", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches_any(&[pattern.to_owned()], path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn selection_names_what_is_beside_a_missing_key() {
        let objects = ["m/churn-old/a", "m/churn-new/a", "m/iris/b", "m/x", "n/y"].map(str::to_owned);
        assert_eq!(siblings("m/churn", &objects), ["churn-new/", "churn-old/", "iris/", "x"]);
        assert_eq!(siblings("o", &objects), ["m/", "n/"]);
        let error = SelectionError::Nothing { key: "m/churn".to_owned(), siblings: siblings("m/churn", &objects) };
        assert!(error.to_string().ends_with("; the bucket has churn-new/, churn-old/, iris/, x"), "{error}");
    }

    proptest! {
        /// Each selected path is relative, stays inside of the folder, and is not a folder of another.
        #[test]
        fn selection_is_safe(keys in prop::collection::vec(("[a./]{0,8}", 0..2_u64), 0..8)) {
            let objects = keys.iter().map(|(key, size)| object(&format!("p/{key}"), *size)).collect();
            if let Ok(files) = select("p", objects) {
                for file in &files {
                    prop_assert_eq!(&file.key, &format!("p/{}", file.path));
                    prop_assert!(file.path.split('/').all(|part| !["", ".", ".."].contains(&part)));
                    let folder = file.path.clone() + "/";
                    prop_assert!(!files.iter().any(|other| other.path.starts_with(&folder)));
                }
            }
        }
    }
}
