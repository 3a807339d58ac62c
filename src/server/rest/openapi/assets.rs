//! The files that the pages load: Swagger UI as released, the script that starts it, and the style of drawings.

use std::io::{Cursor, Read};
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::read::GzDecoder;
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::ZipArchive;
use zip::result::ZipResult;

/// A file that pages load.
#[derive(Debug)]
pub(super) struct Asset {
    pub(super) original: &'static str,
    /// The name under which it is served. It contains a checksum, so that the content of a name never changes.
    pub(super) name: String,
    pub(super) content_type: &'static str,
    pub(super) content: AssetContent,
}

/// The content of a file.
#[derive(Debug, Clone)]
pub(super) enum AssetContent {
    Plain(&'static [u8]),
    Gzip(Bytes),
}

static ASSETS: LazyLock<[Asset; 4]> = LazyLock::new(|| {
    let (script, style) = ("text/javascript; charset=utf-8", "text/css; charset=utf-8");
    [
        Asset::new("swagger-ui-bundle.js", script, AssetContent::of_swagger("swagger-ui-bundle.js")),
        Asset::new("swagger-ui.css", style, AssetContent::of_swagger("swagger-ui.css")),
        Asset::new("graph.css", style, AssetContent::Plain(include_bytes!("graph.css"))),
        Asset::new("start.js", script, AssetContent::Plain(include_bytes!("start.js"))),
    ]
});

/// Returns every file.
pub(super) fn all() -> &'static [Asset] {
    &*ASSETS
}

/// Returns the file that is served under `name`.
pub(super) fn find(name: &str) -> Option<&'static Asset> {
    all().iter().find(|asset| asset.name == name)
}

impl Asset {
    fn new(original: &'static str, content_type: &'static str, content: AssetContent) -> Self {
        let bytes = match &content {
            AssetContent::Plain(bytes) => bytes,
            AssetContent::Gzip(bytes) => bytes.as_ref(),
        };
        Self { original, name: format!("{:08x}-{original}", super::checksum(bytes)), content_type, content }
    }
}

impl AssetContent {
    /// Returns a file of the archive of Swagger UI.
    fn of_swagger(name: &str) -> Self {
        let gzip =
            ZipArchive::new(Cursor::new(SWAGGER_UI_VENDORED)).and_then(|mut archive| read_gzip(&mut archive, name));
        Self::Gzip(gzip.expect("the archive is part of the executable, and tests read these files").into())
    }
}

/// Reads a file as gzip. Archive and gzip have the same compressed stream, so it is copied unchanged.
fn read_gzip(archive: &mut ZipArchive<Cursor<&[u8]>>, name: &str) -> ZipResult<Vec<u8>> {
    let end = format!("/dist/{name}");
    let index = archive.file_names_raw().position(|path| path.ends_with(end.as_bytes()));
    let mut file = archive.by_index_raw(index.unwrap_or(usize::MAX))?;
    // No flags, no time, an unknown system (RFC 1952, section 2.3).
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    file.read_to_end(&mut gzip)?;
    gzip.extend(file.crc32().to_le_bytes());
    // The size modulo 2^32, as the format requires.
    gzip.extend(&file.size().to_le_bytes()[..4]);
    Ok(gzip)
}

/// Decompresses one of our own files, for clients that do not accept gzip.
pub(super) fn decompress(gzip: &[u8]) -> Bytes {
    let mut content = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut content).expect("tests decompress every file");
    content.into()
}
