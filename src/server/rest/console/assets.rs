//! The files of the page, as they are embedded.

use std::sync::LazyLock;

use crate::server::rest::openapi::checksum;

/// A file that the page loads.
#[derive(Debug)]
pub(super) struct ConsoleAsset {
    /// The name under which it is served. It contains a checksum of all files, so that the content of a name never changes.
    name: String,
    pub(super) content_type: &'static str,
    pub(super) content: String,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const PAGE: &str = include_str!("page/page.html");

const FILES: [(&str, &str, &str); 10] = [
    ("style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("api.js", SCRIPT, include_str!("page/api.js")),
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("format.js", SCRIPT, include_str!("page/format.js")),
    ("plot.js", SCRIPT, include_str!("page/plot.js")),
    ("overview.js", SCRIPT, include_str!("page/overview.js")),
    ("model.js", SCRIPT, include_str!("page/model.js")),
    ("answer.js", SCRIPT, include_str!("page/answer.js")),
    ("tensors.js", SCRIPT, include_str!("page/tensors.js")),
];

/// The checksum in the names.
static CHECKSUM: LazyLock<String> = LazyLock::new(|| {
    let all: Vec<u8> = FILES.iter().flat_map(|(_, _, content)| content.bytes()).collect();
    format!("{:08x}-", checksum(&all))
});

static ASSETS: LazyLock<Vec<ConsoleAsset>> = LazyLock::new(|| {
    let asset = |(name, content_type, content): (&str, &'static str, &str)| ConsoleAsset {
        name: format!("{}{name}", *CHECKSUM),
        content_type,
        // Modules import each other by the names under which they are served.
        content: content.replace("from \"./", &format!("from \"./{}", *CHECKSUM)),
    };
    FILES.into_iter().map(asset).collect()
});

/// Returns the page. `base` is where its files are, relative to the page.
pub(super) fn page(base: &str) -> String {
    PAGE.replace("{files}", &format!("{base}assets/{}", *CHECKSUM))
}

/// Returns the file that is served under `name`.
pub(super) fn find(name: &str) -> Option<&'static ConsoleAsset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts() -> impl Iterator<Item = (&'static str, &'static str)> {
        FILES.into_iter().filter(|(_, kind, _)| *kind == SCRIPT).map(|(name, _, content)| (name, content))
    }

    #[test]
    fn console_page_and_modules_refer_to_files_that_exist() {
        let references = |text: &str, before: &str| -> Vec<String> {
            text.split(before).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
        };
        let page = page("console/");
        let of_page = references(&page, "\"console/assets/");
        assert_eq!(of_page.len(), 2, "{page}");
        for name in &of_page {
            assert!(find(name).is_some(), "{name}");
        }
        for asset in ASSETS.iter().filter(|asset| asset.content_type == SCRIPT) {
            for name in references(&asset.content, "from \"./") {
                assert!(find(&name).is_some(), "{}: {name}", asset.name);
            }
        }
        assert!(find("main.js").is_none());
    }

    /// Everything from the server is text. These are the ways to make elements of it.
    #[test]
    fn console_scripts_never_make_html_of_text() {
        const WAYS: [&str; 9] = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "Function(",
            "setHTMLUnsafe",
            "createContextualFragment",
        ];
        for (name, content) in scripts() {
            for way in WAYS {
                assert!(!content.contains(way), "{name}: {way}");
            }
            for kept in ["localStorage", "sessionStorage", "indexedDB", "document.cookie"] {
                assert!(!content.contains(kept), "{name}: keys are kept in memory only, not in {kept}");
            }
        }
    }

    #[test]
    fn console_scripts_have_at_most_2000_lines() {
        let lines: usize = scripts().map(|(_, content)| content.lines().count()).sum();
        assert!(lines <= 2000, "{lines}");
    }
}
