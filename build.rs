//! Compiles `proto/` (messages for the library, clients for its tests, descriptors for reflection), and extracts the files of Swagger
//! UI from the crate that contains them. Nothing is downloaded.

use std::error::Error;
use std::io::{Cursor, Read};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use protox::prost::Message;
use tonic_prost_build::{FileDescriptorSet, configure};
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::ZipArchive;

const PROTO_FILES: [&str; 2] = ["dataplane.proto", "model_repository.proto"];

#[expect(clippy::disallowed_methods, reason = "cargo passes the output folder in the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rustc-env=MLSERVER_VERSION={}{}", env::var("CARGO_PKG_VERSION")?, commit());
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    let descriptors = protox::compile(PROTO_FILES, ["proto"])?;
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    messages(&out.join("messages"), descriptors.clone())?;
    clients(&out.join("clients"), descriptors)?;
    swagger_ui(out)
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

fn messages(out: &Path, descriptors: FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out)?;
    let builder = configure().build_client(false).build_server(false).out_dir(out);
    // Ordered maps, so that equal messages have equal bytes.
    builder.bytes(".").btree_map(".").disable_comments(["."]).compile_fds(descriptors)?;
    Ok(())
}

fn clients(out: &Path, descriptors: FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out)?;
    let messages = "::mlserver::types::protobuf::messages";
    let builder = configure().build_server(false).out_dir(out).disable_comments(["."]);
    // The more specific package comes first: the first matching path is used.
    let builder = builder.extern_path(".inference.model_repository", format!("{messages}::model_repository"));
    builder.extern_path(".inference", messages).compile_fds(descriptors)?;
    Ok(())
}

/// Writes `NAME.gz` for each file that the documentation pages need.
///
/// Archive and gzip have the same compressed stream, so it is copied unchanged.
fn swagger_ui(out: &Path) -> Result<(), Box<dyn Error>> {
    let mut archive = ZipArchive::new(Cursor::new(SWAGGER_UI_VENDORED))?;
    for name in ["swagger-ui-bundle.js", "swagger-ui.css"] {
        let end = format!("/dist/{name}");
        let index = archive.file_names_raw().position(|path| path.ends_with(end.as_bytes()));
        let index = index.ok_or_else(|| format!("there is no {end} in the archive"))?;
        let mut file = archive.by_index_raw(index)?;
        // No flags, no time, an unknown system (RFC 1952, section 2.3).
        let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        file.read_to_end(&mut gzip)?;
        gzip.extend(file.crc32().to_le_bytes());
        gzip.extend(u32::try_from(file.size())?.to_le_bytes());
        fs::write(out.join(format!("{name}.gz")), gzip)?;
    }
    Ok(())
}
