//! Takes the files of Swagger UI out of the crate that carries them, so that nothing is downloaded.

use std::error::Error;
use std::io::{Cursor, Read};
use std::path::Path;
use std::{env, fs};

use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::ZipArchive;

#[expect(clippy::disallowed_methods, reason = "cargo tells build scripts in the environment where to write")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR")?;
    swagger_ui(Path::new(&out))
}

/// Writes `NAME.gz` for each file that the documentation pages need.
///
/// Archive and gzip hold the same compressed stream, so it goes from one to the other as it is.
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
