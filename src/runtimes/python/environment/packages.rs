//! Folders of packages without an interpreter, as `pip install --target` makes them.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::interpreter::Version;

/// The longest file of a package that is read.
const MAX_FILE: u64 = 64 << 10;

/// A package that another Python was meant to import.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Name and version.
    pub(super) package: String,
    /// What it was built for, as its tags say.
    pub(super) wanted: String,
}

/// Tells whether packages have been installed into a folder.
pub(super) fn holds_packages(folder: &Path) -> bool {
    descriptions(folder).next().is_some()
}

/// Returns a package that `version` cannot import, if there is one.
pub(super) fn misfit(folder: &Path, version: Version) -> Option<Misfit> {
    descriptions(folder).find_map(|(package, path)| {
        let mut text = String::new();
        File::open(path.join("WHEEL")).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
        let tags: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("Tag:")).map(str::trim).collect();
        let fits = tags.is_empty() || tags.iter().any(|tag| suits(tag, version));
        (!fits).then(|| Misfit { package: package.replacen('-', " ", 1), wanted: tags.join(", ") })
    })
}

/// Returns the installed packages: `NAME-VERSION`, and the folder that describes them.
fn descriptions(folder: &Path) -> impl Iterator<Item = (String, std::path::PathBuf)> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| {
        let path = entry.ok()?.path();
        let package = path.file_name()?.to_str()?.strip_suffix(".dist-info")?.to_owned();
        Some((package, path))
    })
}

/// Tells whether packages with a tag `PYTHON-ABI-PLATFORM` can be imported, as far as versions decide it.
fn suits(tag: &str, version: Version) -> bool {
    let mut parts = tag.split('-');
    let (Some(python), Some(abi)) = (parts.next(), parts.next()) else { return true };
    let exact = format!("cp{}{}", version.major, version.minor);
    abi == "none" || abi.starts_with("abi") || python == exact || !python.starts_with("cp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_for_another_python_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let package = |name: &str, wheel: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("WHEEL"), wheel).unwrap();
        };
        assert!(!holds_packages(folder.path()));
        package("six-1.16.0.dist-info", "Wheel-Version: 1.0\nTag: py2-none-any\nTag: py3-none-any\n");
        package("cryptography-42.0.5.dist-info", "Tag: cp37-abi3-manylinux_2_28_x86_64\n");
        package("odd-1.dist-info", "");
        assert!(holds_packages(folder.path()));
        assert_eq!(misfit(folder.path(), Version { major: 3, minor: 11 }), None);
        let tag = "cp310-cp310-manylinux_2_17_x86_64";
        package("numpy-1.26.4.dist-info", &format!("Tag: {tag}\n"));
        assert_eq!(misfit(folder.path(), Version { major: 3, minor: 10 }), None);
        let misfit = misfit(folder.path(), Version { major: 3, minor: 11 });
        assert_eq!(misfit, Some(Misfit { package: "numpy 1.26.4".to_owned(), wanted: tag.to_owned() }));
    }
}
