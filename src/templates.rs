//! The files in `templates/`, which are embedded in the executable, and their rendering.

use std::borrow::Cow;

use rust_embed::RustEmbed;
use serde::Serialize;
use tera::{Context, Tera};

/// Files with this suffix are rendered, and lose it; all others are copied unchanged.
pub const SUFFIX: &str = ".tera";

#[derive(RustEmbed)]
#[folder = "templates/"]
struct EmbeddedFiles;

/// Why a template could not be rendered. The cause names line and variable.
#[derive(Debug, thiserror::Error)]
#[error("cannot render the template `{name}`")]
pub struct TemplateError {
    name: String,
    source: Box<tera::Error>,
}

/// Returns the files below a folder of `templates/` with their paths in it, sorted.
pub fn under(folder: &str) -> Vec<(String, Cow<'static, [u8]>)> {
    let prefix = format!("{folder}/");
    let names = EmbeddedFiles::iter().filter_map(|path| Some((path.strip_prefix(&prefix)?.to_owned(), path)));
    let mut files: Vec<_> = names.filter_map(|(name, path)| Some((name, EmbeddedFiles::get(&path)?.data))).collect();
    files.sort();
    files
}

/// Renders one of the templates in `templates/`.
///
/// # Errors
///
/// Fails if the template uses a variable that `values` does not have.
pub fn embedded(path: &str, values: &impl Serialize) -> Result<String, TemplateError> {
    let data = EmbeddedFiles::get(path).map(|file| file.data).unwrap_or_default();
    render(path, &String::from_utf8_lossy(&data), values)
}

/// Renders the text of a template. Errors call it `name`. Nothing is escaped.
///
/// # Errors
///
/// Fails if the text is not a template, or uses a variable that `values` does not have.
pub fn render(name: &str, text: &str, values: &impl Serialize) -> Result<String, TemplateError> {
    let failed = |source| TemplateError { name: name.to_owned(), source: Box::new(source) };
    let context = Context::from_serialize(values).map_err(failed)?;
    Tera::one_off(text, &context, false).map_err(failed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn render_does_not_escape_values() {
        let text = "{% if files %}COPY {% for file in files %}{{ file }} {% endfor %}{% endif %}";
        assert_eq!(render("t", text, &json!({"files": ["a&b", "'c'"]})).unwrap(), "COPY a&b 'c' ");
        assert_eq!(render("t", text, &json!({"files": []})).unwrap(), "");
    }

    #[test]
    fn render_unknown_variable_is_named() {
        let error = render("README.md", "# {{ nmae }}", &json!({"name": "m"})).unwrap_err();
        assert_eq!(error.to_string(), "cannot render the template `README.md`");
        assert!(error.source.to_string().contains("nmae"), "{}", error.source);
    }
}
