//! The files in `templates/`, which are embedded in the executable, and their rendering.

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

/// Files with this suffix are rendered, and lose it; all others are copied unchanged.
pub const SUFFIX: &str = ".jinja";

/// How many instructions the rendering of a template may take. Users' templates may contain endless loops.
const MAX_INSTRUCTIONS: u64 = 10_000_000;

/// The path of each file, and its content. Sorted.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/templates.rs"));

/// Why a template could not be rendered. The cause names the line.
#[derive(Debug, thiserror::Error)]
#[error("cannot render the template `{name}`{}", place.as_ref().map(|place| format!(" at `{place}`")).unwrap_or_default())]
pub struct TemplateError {
    name: String,
    /// The expression that failed, such as an unknown variable.
    place: Option<String>,
    source: Box<minijinja::Error>,
}

/// Returns the files below a folder of `templates/` with their paths in it, sorted.
pub fn under(folder: &str) -> impl Iterator<Item = (&'static str, &'static [u8])> {
    FILES.iter().filter_map(move |&(path, data)| Some((path.strip_prefix(folder)?.strip_prefix('/')?, data)))
}

/// Renders one of the templates in `templates/`.
///
/// # Errors
///
/// Fails if the template uses a variable that `values` does not have.
pub fn embedded(path: &str, values: &impl Serialize) -> Result<String, TemplateError> {
    let file = FILES.iter().find(|(name, _)| *name == path);
    render(path, &String::from_utf8_lossy(file.map_or(&[], |(_, data)| data)), values)
}

/// Renders the text of a Jinja template. Errors call it `name`. Nothing is escaped.
///
/// # Errors
///
/// Fails if the text is not a template, uses a variable that `values` does not have, or takes too long to render.
pub fn render(name: &str, text: &str, values: &impl Serialize) -> Result<String, TemplateError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_keep_trailing_newline(true);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(MAX_INSTRUCTIONS));
    environment.set_debug(true);
    let failed = |source: minijinja::Error| {
        let place = source.range().and_then(|range| text.get(range)).map(str::to_owned);
        TemplateError { name: name.to_owned(), place, source: Box::new(source) }
    };
    environment.render_named_str(name, text, values).map_err(failed)
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
        assert_eq!(error.to_string(), "cannot render the template `README.md` at `nmae`");
        assert!(error.source.to_string().contains("README.md:1"), "{}", error.source);
    }

    #[test]
    fn render_of_an_endless_template_fails() {
        let text = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        let error = render("README.md", text, &json!({})).unwrap_err();
        assert!(error.source.to_string().contains("fuel"), "{}", error.source);
        let huge = "{% set a = 'x' * 1000 %}{% set b = a * 1000 %}{% set c = b * 1000 %}{% set d = c * 1000 %}";
        assert!(render("README.md", huge, &json!({})).is_err());
    }
}
