//! Folders of packages without an interpreter, as `pip install --target` makes them.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::interpreter::PythonVersion;

/// The longest file of a package that is read.
const MAX_FILE: u64 = 64 << 10;

/// A package that was built for another version of Python.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IncompatiblePackage {
    /// Name and version.
    pub(super) package: String,
    /// The tags of the package, which list what it was built for.
    pub(super) wanted: String,
}

/// Returns whether packages have been installed into a folder.
pub(super) fn contains_packages(folder: &Path) -> bool {
    installed_packages(folder).next().is_some()
}

/// Returns a package that Python `version` cannot import, if there is one.
pub(super) fn find_incompatible(folder: &Path, version: PythonVersion) -> Option<IncompatiblePackage> {
    installed_packages(folder).find_map(|(package, path)| {
        let mut text = String::new();
        File::open(path.join("WHEEL")).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
        let tags: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("Tag:")).map(str::trim).collect();
        let compatible = tags.is_empty() || tags.iter().any(|tag| is_compatible(tag, version));
        (!compatible).then(|| IncompatiblePackage { package: package.replacen('-', " ", 1), wanted: tags.join(", ") })
    })
}

/// Returns the installed packages: `NAME-VERSION`, and the path of the `dist-info` folder.
fn installed_packages(folder: &Path) -> impl Iterator<Item = (String, std::path::PathBuf)> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| {
        let path = entry.ok()?.path();
        let package = path.file_name()?.to_str()?.strip_suffix(".dist-info")?.to_owned();
        Some((package, path))
    })
}

/// Returns whether a package with a tag `PYTHON-ABI-PLATFORM` can be imported, as far as it depends on the version.
fn is_compatible(tag: &str, version: PythonVersion) -> bool {
    let mut fields = tag.split('-');
    let (Some(python), Some(abi)) = (fields.next(), fields.next()) else { return true };
    let exact = format!("cp{}{}", version.major, version.minor);
    abi == "none" || abi.starts_with("abi") || python == exact || !python.starts_with("cp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_incompatible_returns_package_of_another_python_version() {
        let folder = tempfile::tempdir().unwrap();
        let package = |name: &str, wheel: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("WHEEL"), wheel).unwrap();
        };
        assert!(!contains_packages(folder.path()));
        package("six-1.16.0.dist-info", "Wheel-Version: 1.0\nTag: py2-none-any\nTag: py3-none-any\n");
        package("cryptography-42.0.5.dist-info", "Tag: cp37-abi3-manylinux_2_28_x86_64\n");
        package("odd-1.dist-info", "");
        assert!(contains_packages(folder.path()));
        assert_eq!(find_incompatible(folder.path(), PythonVersion { major: 3, minor: 11 }), None);
        let tag = "cp310-cp310-manylinux_2_17_x86_64";
        package("numpy-1.26.4.dist-info", &format!("Tag: {tag}\n"));
        assert_eq!(find_incompatible(folder.path(), PythonVersion { major: 3, minor: 10 }), None);
        let found = find_incompatible(folder.path(), PythonVersion { major: 3, minor: 11 });
        assert_eq!(found, Some(IncompatiblePackage { package: "numpy 1.26.4".to_owned(), wanted: tag.to_owned() }));
    }
}
