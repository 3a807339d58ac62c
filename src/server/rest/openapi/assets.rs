//! The files that the pages load: Swagger UI as released, the script that starts it, and the style of drawings.

use std::io::Read;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::read::GzDecoder;

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
#[derive(Debug, Clone, Copy)]
pub(super) enum AssetContent {
    Plain(&'static [u8]),
    Gzip(&'static [u8]),
}

static ASSETS: LazyLock<[Asset; 4]> = LazyLock::new(|| {
    let (script, style) = ("text/javascript; charset=utf-8", "text/css; charset=utf-8");
    let bundle = include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-bundle.js.gz"));
    let css = include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui.css.gz"));
    [
        Asset::new("swagger-ui-bundle.js", script, AssetContent::Gzip(bundle)),
        Asset::new("swagger-ui.css", style, AssetContent::Gzip(css)),
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
        let (AssetContent::Plain(bytes) | AssetContent::Gzip(bytes)) = content;
        Self { original, name: format!("{:08x}-{original}", super::checksum(bytes)), content_type, content }
    }
}

/// Decompresses one of our own files, for clients that do not accept gzip.
pub(super) fn decompress(gzip: &'static [u8]) -> Bytes {
    let mut content = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut content).expect("build.rs writes whole gzip files, and a test reads them");
    content.into()
}
