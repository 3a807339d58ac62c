//! The files in `templates/`, which the executable carries, and how they are filled in.

use std::borrow::Cow;

use rust_embed::RustEmbed;
use serde::Serialize;
use tera::{Context, Tera};

/// Files with this at the end of their name are filled in, and lose it; all others are copied byte for byte.
pub const SUFFIX: &str = ".tera";

#[derive(RustEmbed)]
#[folder = "templates/"]
struct EmbeddedFiles;

/// Why a template could not be filled in. The cause names line and variable.
#[derive(Debug, thiserror::Error)]
#[error("cannot fill in the template `{name}`")]
pub struct TemplateError {
    name: String,
    source: Box<tera::Error>,
}

/// Returns the files below a folder of `templates/`, by their paths in it, in order.
pub fn under(folder: &str) -> Vec<(String, Cow<'static, [u8]>)> {
    let prefix = format!("{folder}/");
    let names = EmbeddedFiles::iter().filter_map(|path| Some((path.strip_prefix(&prefix)?.to_owned(), path)));
    let mut files: Vec<_> = names.filter_map(|(name, path)| Some((name, EmbeddedFiles::get(&path)?.data))).collect();
    files.sort();
    files
}

/// Fills in one of the templates in `templates/`.
///
/// # Errors
///
/// Fails when the template names what `values` lack.
pub fn embedded(path: &str, values: &impl Serialize) -> Result<String, TemplateError> {
    let data = EmbeddedFiles::get(path).map(|file| file.data).unwrap_or_default();
    render(path, &String::from_utf8_lossy(&data), values)
}

/// Fills in the text of a template, which errors call `name`. Nothing is escaped.
///
/// # Errors
///
/// Fails when the text is no template, or names what `values` lack.
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
    fn values_are_written_as_they_are() {
        let text = "{% if files %}COPY {% for file in files %}{{ file }} {% endfor %}{% endif %}";
        assert_eq!(render("t", text, &json!({"files": ["a&b", "'c'"]})).unwrap(), "COPY a&b 'c' ");
        assert_eq!(render("t", text, &json!({"files": []})).unwrap(), "");
    }

    #[test]
    fn a_variable_that_is_not_there_is_named() {
        let error = render("README.md", "# {{ nmae }}", &json!({"name": "m"})).unwrap_err();
        assert_eq!(error.to_string(), "cannot fill in the template `README.md`");
        assert!(error.source.to_string().contains("nmae"), "{}", error.source);
    }
}
