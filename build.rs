//! Lists the files that the executable embeds, and adds the commit to its version. Nothing is generated from `proto/` here: a first build
//! need not compile a protobuf compiler, so its output is committed, and `tests/grpc/generated.rs` compares it.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[expect(clippy::disallowed_methods, reason = "cargo passes the folders in the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=MLSERVER_VERSION={}{}", env::var("CARGO_PKG_VERSION")?, commit());
    // The one condition for systems. On Linux, `RUSTFLAGS='--cfg portable'` is the same as the feature, and compiles all dependencies again.
    if env::var("CARGO_CFG_TARGET_OS")? != "linux" || env::var_os("CARGO_FEATURE_PORTABLE").is_some() {
        println!("cargo::rustc-cfg=portable");
    }
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    embed(&root.join("templates"), |path| !path.iter().any(|part| part == "__pycache__"), &out.join("templates.rs"))?;
    embed(&root.join("python"), is_of_sdk, &out.join("sdk.rs"))
}

/// Returns a space and the commit in parentheses, from `MLSERVER_COMMIT` or Git. Empty if neither has one.
///
/// Git is used for release builds only: otherwise, every commit would recompile everything.
#[expect(clippy::disallowed_methods, reason = "cargo and packagers pass build options in the environment")]
fn commit() -> String {
    println!("cargo::rerun-if-env-changed=MLSERVER_COMMIT");
    let named = env::var("MLSERVER_COMMIT").ok().filter(|commit| !commit.is_empty());
    let of_git = || {
        if env::var("PROFILE").is_ok_and(|profile| profile != "release") {
            return None;
        }
        // Changes with every commit, merge and checkout.
        println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
        git(&["rev-parse", "--short=9", "HEAD"])
    };
    named.or_else(of_git).map_or_else(String::new, |commit| format!(" ({commit})"))
}

/// Runs Git in the folder of the manifest. Returns `None` without Git, or in a source archive.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// Reports whether a file below `python/` belongs to the package for models, or to one of the runtimes: not tests and caches.
fn is_of_sdk(path: &Path) -> bool {
    let is_module = path.extension().is_some_and(|extension| extension == "py");
    let package = path.iter().next().and_then(OsStr::to_str).filter(|_| path.iter().count() > 1);
    path == Path::new("mlserver/py.typed") || (is_module && package.is_some_and(|name| name.starts_with("mlserver")))
}

/// Writes a Rust expression: the paths below `folder` that `includes` accepts, sorted, and the content of each file.
fn embed(folder: &Path, includes: fn(&Path) -> bool, list: &Path) -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).map_err(|error| format!("cannot list {}: {error}", next.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let path = entry.path();
            let name = path.strip_prefix(folder)?;
            if includes(name) {
                let text = |path: &Path| path.to_str().map(str::to_owned).ok_or("a file name is not UTF-8");
                files.push((text(name)?, text(&path)?));
            }
        }
    }
    files.sort();
    let mut text = "&[\n".to_owned();
    for (name, path) in files {
        // Not the folder, in which Python writes its caches.
        println!("cargo::rerun-if-changed={path}");
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),")?;
    }
    fs::write(list, text + "]\n")?;
    Ok(())
}
