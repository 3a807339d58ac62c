//! The files in `templates/`, which are embedded in the executable, and their rendering with Tera.
//!
//! Templates of users come from strangers, so that rendering has limits: see [`bounds`].

mod bounds;

use serde::Serialize;
use tera::{Context, ErrorKind, Tera};

use bounds::{Bounds, Output, Refusal};

/// Files with this suffix are rendered, and lose it; all others are copied unchanged.
pub const SUFFIX: &str = ".tera";
/// The suffix of earlier versions, which templates of users may still have.
pub const FORMER_SUFFIX: &str = ".jinja";

/// The path of each file, and its content. Sorted.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/templates.rs"));

/// Why a template could not be rendered.
#[derive(Debug, thiserror::Error)]
#[error("cannot render the template `{name}`{}", place.as_ref().map(|place| format!(" at `{place}`")).unwrap_or_default())]
pub struct TemplateError {
    name: String,
    /// The expression that failed, such as an unknown variable.
    place: Option<String>,
    source: Cause,
}

/// What is wrong in a template.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("line {line}: {message}")]
    Line { line: usize, message: String },
    #[error(transparent)]
    Tera(Box<tera::Error>),
    #[error(transparent)]
    Refused(#[from] Refusal),
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

/// Renders the text of a Tera template. Errors call it `name`. Nothing is escaped.
///
/// # Errors
///
/// Fails if the text is not a template, uses a variable that `values` does not have, or exceeds a limit.
pub fn render(name: &str, text: &str, values: &impl Serialize) -> Result<String, TemplateError> {
    let failed = |place, source| TemplateError { name: name.to_owned(), place, source };
    let guarded = bounds::guard(text).map_err(|refusal| failed(None, refusal.into()))?;
    let bounds = Bounds::new();
    let mut tera = Tera::new();
    tera.autoescape_on(Vec::<&str>::new());
    bounds.register(&mut tera);
    let mut output = Output::new(bounds);
    let result = tera
        .add_raw_template(name, &guarded.text)
        .and_then(|()| Context::from_serialize(values))
        .and_then(|context| tera.render_to(name, &context, &mut output));
    output.finish(result).map_err(|failure| match failure {
        Err(refusal) => failed(None, refusal.into()),
        Ok(error) => match error.kind() {
            ErrorKind::SyntaxError(report) | ErrorKind::RenderingError(report) => {
                let place = guarded.part(&report.span().range).map(str::to_owned);
                let (line, message) = (report.span().start_line, report.message().to_owned());
                failed(place, Cause::Line { line, message })
            }
            _ => failed(None, Cause::Tera(Box::new(error))),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    fn message(error: &TemplateError) -> String {
        format!("{error}: {}", error.source().unwrap())
    }

    #[test]
    fn render_does_not_escape_values() {
        let text = "{% if files %}COPY {% for file in files %}{{ file }} {% endfor %}{% endif %}";
        for name in ["t", "index.html"] {
            assert_eq!(render(name, text, &json!({"files": ["a&b", "'c'"]})).unwrap(), "COPY a&b 'c' ");
        }
        assert_eq!(render("t", text, &json!({"files": []})).unwrap(), "");
    }

    #[test]
    fn render_supports_the_language() {
        let values = json!({"name": "churn-model", "version": "1.8.0", "model": {"inputs": null, "native": true}});
        let cases = [
            ("# {{ name }}\n", "# churn-model\n"),
            ("a \n{%- if name %}\n b\n{%- endif -%}\n c", "a\n bc"),
            (
                r#"{% set package = name | replace(from="-", to="_") %}{{ package }}.{{ package ~ '!' }}"#,
                "churn_model.churn_model!",
            ),
            ("{% for i in range(end=3) %}{{ i * 2 }},{% if i == 1 %}{% break %}{% endif %}{% endfor %}", "0,2,"),
            (
                "{% for part in name | split(pat='-') %}{{ loop.index }}{{ part }} {% else %}-{% endfor %}",
                "1churn 2model ",
            ),
            ("{% for k, v in {'b': 1} %}{{ k }}={{ v }}{% endfor %}", "b=1"),
            ("{{ [name, version] | join(sep=', ') }}", "churn-model, 1.8.0"),
            ("{{ 'a\n\nb' | indent(width=2, first=true) }}", "  a\n\n  b"),
            ("{% if model.inputs %}x{% elif other and model.native %}y{% else %}z{% endif %}", "z"),
            ("{{ nmae | default(value='none') }}", "none"),
            ("{{ nmae | default(value='-') ~ name | upper ~ '.' ~ version }}", "-CHURN-MODEL.1.8.0"),
            ("{{ nmae ~ name if nmae else 'none' }}", "none"),
            ("{% raw %}{{ name }} {% if %}{% endraw %}{# {% for #}{{ '}}' }}{{ \"%}\" }}", "{{ name }} {% if %}}}%}"),
            ("{{ 'b' if (model.native) else 'c' }}{{ name[0:5] }}", "bchurn"),
            ("{% set_global a = 1 %}{% for i in [1, 2] %}{% set_global a = a + i %}{% endfor %}{{ a }}", "4"),
        ];
        for (text, expected) in cases {
            assert_eq!(render("t", text, &values).as_deref().map_err(message), Ok(expected), "{text}");
        }
        // As much nesting as is allowed, on the stack of a thread.
        let expression = format!("{{{{ {}1{} + {} }}}}", "(".repeat(36), ")".repeat(36), ["1"; 100].join(" + "));
        let nested = (0..10)
            .fold(expression, |inner, _| format!("{{% if nmae %}}{{% elif nmae %}}{{% else %}}{inner}{{% endif %}}"));
        assert_eq!(render("t", &nested, &values).as_deref().map_err(message), Ok("101"));
    }

    #[test]
    fn render_unknown_variable_is_named() {
        let cases = [
            (
                "# {{ nmae }}",
                "cannot render the template `README.md` at `nmae`: line 1: Variable `nmae` is not defined",
            ),
            ("\n{{ nmae | upper }}", "at `nmae`: line 2: "),
            ("\n\n{{ (nmae) }}", "line 3: Tried to render a variable that is undefined"),
            ("{% for x in nmae %}{% endfor %}", "at `nmae`: line 1: Iteration not possible on type `undefined`"),
            ("{{ model.nmae }}", "Field `nmae` is not defined"),
            ("{{ name ~ nmae }}", "at `name ~ nmae`: line 1: Variable `nmae` is not defined"),
            ("{% set a = nmae ~ (name | upper) %}", "Variable `nmae` is not defined"),
        ];
        for (text, expected) in cases {
            let error = render("README.md", text, &json!({"name": "m", "model": {"a": 1}})).unwrap_err();
            assert!(message(&error).contains(expected), "{text}: {}", message(&error));
        }
    }

    #[test]
    fn render_invalid_template_names_the_line() {
        for (text, expected) in [
            ("a\n{% if name %}", "Unexpected end"),
            ("a\n{{ name", ""),
            ("a\n{{ 'b }}", "line 2: String opened"),
            ("a\n{% raw %}", "line 2: unexpected end of raw block"),
            ("a\n{# b", "line 2: Closing comment tag"),
            ("a\n{{ name | nope }}", "Unknown filter `nope`"),
            ("a\n{% if name) or (name %}{% endif %}", "line 2: Found `)`"),
            ("a\n{% include 'b' %}", "line 2: unsupported tag `include`"),
            ("a\n{% component a() %}{% endcomponent %}", "line 2: unsupported tag `component`"),
            ("a\n{% set a %}b{% endset %}", "line 2: unsupported block `set a`"),
            ("a\n{{ [x for x in [1, 2]] }}", "line 2: unsupported `for` in an expression"),
        ] {
            let error = render("README.md", text, &json!({"name": "m"})).unwrap_err();
            assert!(message(&error).contains(expected), "{text}: {}", message(&error));
        }
    }

    /// Loops over loops, with a body that does nothing.
    fn nested(source: &str, depth: usize) -> String {
        let loops: Vec<_> = (0..depth).map(|level| format!("{{% for i{level} in {source} %}}")).collect();
        loops.concat() + &"{% endfor %}".repeat(depth)
    }

    #[test]
    fn render_of_an_endless_template_fails_in_time() {
        let double = "{% set a = a ~ a %}".repeat(64);
        let lists = "{% set_global a = [a, a] %}".repeat(64);
        let squares = "{% set a = a | replace(from='x', to=a) %}".repeat(20);
        let long = format!("{{% if {} %}}{{% endif %}}", ["a"; 120].join("~"));
        let cases = [
            nested("range(end=4000)", 6),
            format!("{{% set r = range(end=4000) %}}{}", nested("r", 6)),
            nested("'abcdefghijklmnopqrstuvwxyz'", 9),
            nested("range(end=4000)", 2).replacen("{% endfor %}", "x{% endfor %}", 1),
            nested("range(end=4000)", 3).replacen("{% endfor %}", "{% if true %}{% endif %}{% endfor %}", 1),
            "{% for i in range(end=1000000000) %}{% endfor %}".to_owned(),
            format!("{{% set a = 'x' %}}{double}"),
            format!("{{% set a = 'x' %}}{{% for i in range(end=100) %}}{}{{% endfor %}}", "{% set_global a = a ~ a %}"),
            format!("{{% set a = 'x' %}}{lists}{{{{ a }}}}"),
            format!("{{% set a = 'xxxx' %}}{squares}"),
            "{% set a = 1 %}{% for i in range(end=4000) %}{% set_global a = [a] %}{% endfor %}".to_owned(),
            format!(
                "{{% set a = 'x' | indent(width=900, first=true) %}}{}",
                long.repeat(100).as_str().to_owned() + &nested("range(end=4000)", 3).replacen("{% endfor %}", &long, 1)
            ),
            "{{ ['x', 'x', 'x'] | join(sep=('x' | indent(width=1000, first=true)) | replace(from=' ', to='yyyyyyyyyyyyyyy')) }}"
                .repeat(2000),
            "{% if true %}".repeat(5000),
            format!("{{% if false %}}{}{{% endif %}}", "{% elif false %}".repeat(60_000)),
            format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000)),
            format!("{{{{ {} }}}}", vec!["1"; 50_000].join("+")),
            "a".repeat(20_000_000),
        ];
        for text in cases {
            let started = Instant::now();
            let error = render("README.md", &text, &json!({})).unwrap_err();
            let start: String = text.chars().take(60).collect();
            assert!(started.elapsed() < Duration::from_secs(2), "{:?} for {start}: {error}", started.elapsed());
            assert!(message(&error).len() < 1000, "{start}: {}", message(&error));
        }
    }
}
