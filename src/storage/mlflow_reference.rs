//! URIs of MLflow: `models:/…`, `runs:/…` and `mlflow-artifacts:/…`.

use super::selection::check_path;

/// What a URI of MLflow names. Each `path` is below it, and empty for all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MlflowReference {
    /// A version of a registered model.
    Registered { name: String, version: ModelVersion, path: String },
    /// A model by its id, as MLflow 3 logs it.
    Logged { id: String, path: String },
    /// An artifact of a run.
    Run { id: String, path: String },
    /// An artifact that the tracking server serves. `server` is the host and port, if the URI has one.
    Artifact { server: Option<String>, path: String },
}

/// Which version of a registered model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelVersion {
    Number(String),
    Alias(String),
    /// The newest version of a stage.
    Stage(String),
    Latest,
}

/// Why a text does not name anything of MLflow: what is missing or refused, and the expected form.
pub(super) type ReferenceProblem = (&'static str, &'static str);

const MODEL_FORM: &str = "models:/NAME/VERSION, models:/NAME@ALIAS, models:/NAME/STAGE or models:/NAME/latest";
const RUN_FORM: &str = "runs:/RUN_ID/PATH";
const ARTIFACT_FORM: &str = "mlflow-artifacts:/PATH";

impl MlflowReference {
    /// Reads a URI; `None` if it has another scheme.
    pub(super) fn parse(text: &str) -> Option<Result<Self, ReferenceProblem>> {
        let (scheme, rest) = text.split_once(":/")?;
        match scheme.to_ascii_lowercase().as_str() {
            "models" => Some(model(rest)),
            "runs" => Some(run(rest)),
            "mlflow-artifacts" => Some(artifact(rest)),
            _ => None,
        }
    }

    /// Goes to a path below.
    pub(super) fn descend(&mut self, below: &str) {
        let (Self::Registered { path, .. }
        | Self::Logged { path, .. }
        | Self::Run { path, .. }
        | Self::Artifact { path, .. }) = self;
        *path = if path.is_empty() { below.to_owned() } else { format!("{path}/{below}") };
    }
}

fn model(rest: &str) -> Result<MlflowReference, ReferenceProblem> {
    if rest.starts_with('/') {
        return Err((
            "name of a model (profiles, such as `models://PROFILE@databricks/…`, are not supported)",
            MODEL_FORM,
        ));
    }
    let (first, after) = split(rest);
    if first.trim().is_empty() {
        return Err(("name of a model", MODEL_FORM));
    }
    if let Some((name, alias)) = first.rsplit_once('@') {
        if name.is_empty() || alias.trim().is_empty() {
            return Err(("name or alias of a model", MODEL_FORM));
        }
        let version = ModelVersion::Alias(alias.to_owned());
        return Ok(MlflowReference::Registered { name: name.to_owned(), version, path: below(after)? });
    }
    let is_id = first
        .strip_prefix("m-")
        .is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_id {
        return Ok(MlflowReference::Logged { id: first.to_owned(), path: below(after)? });
    }
    let (version, after) = split(after);
    let version = match version {
        _ if version.trim().is_empty() => return Err(("version, stage or alias", MODEL_FORM)),
        number if number.bytes().all(|byte| byte.is_ascii_digit()) => ModelVersion::Number(number.to_owned()),
        latest if latest.eq_ignore_ascii_case("latest") => ModelVersion::Latest,
        stage => ModelVersion::Stage(stage.to_owned()),
    };
    Ok(MlflowReference::Registered { name: first.to_owned(), version, path: below(after)? })
}

fn run(rest: &str) -> Result<MlflowReference, ReferenceProblem> {
    if rest.starts_with('/') {
        return Err(("id of a run (profiles, such as `runs://PROFILE@databricks/…`, are not supported)", RUN_FORM));
    }
    let (id, path) = split(rest);
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if id.is_empty() || !id.chars().all(legal) {
        return Err(("id of a run", RUN_FORM));
    }
    match below(path)? {
        path if path.is_empty() => Err(("path", RUN_FORM)),
        path => Ok(MlflowReference::Run { id: id.to_owned(), path }),
    }
}

fn artifact(rest: &str) -> Result<MlflowReference, ReferenceProblem> {
    let (server, path) = match rest.strip_prefix('/') {
        Some(rest) => {
            let (server, path) = split(rest);
            (Some(server.to_owned()).filter(|server| !server.is_empty()), path)
        }
        None => (None, rest),
    };
    match below(path)? {
        path if path.is_empty() => Err(("path", ARTIFACT_FORM)),
        path => Ok(MlflowReference::Artifact { server, path }),
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or((text, ""))
}

/// Reads the path below a model or a run.
fn below(path: &str) -> Result<String, ReferenceProblem> {
    let path = path.trim_matches('/');
    if !path.is_empty() && check_path(path).is_err() {
        return Err((
            "safe path: it has an empty part, `.`, `..`, a backslash or a zero byte",
            "a path below the model or run",
        ));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mlflow_uris_name_models_runs_and_artifacts() {
        let registered = |name: &str, version: ModelVersion, path: &str| MlflowReference::Registered {
            name: name.to_owned(),
            version,
            path: path.to_owned(),
        };
        let id = "m-036da5ea9e224fc8bab8ae607b6e8105".to_owned();
        let artifact = |server: Option<&str>, path: &str| MlflowReference::Artifact {
            server: server.map(str::to_owned),
            path: path.to_owned(),
        };
        for (text, expected) in [
            ("models:/iris/3", registered("iris", ModelVersion::Number("3".to_owned()), "")),
            ("MODELS:/a b/3/sub/x", registered("a b", ModelVersion::Number("3".to_owned()), "sub/x")),
            ("models:/iris@champion", registered("iris", ModelVersion::Alias("champion".to_owned()), "")),
            (
                "models:/iris@champion/MLmodel",
                registered("iris", ModelVersion::Alias("champion".to_owned()), "MLmodel"),
            ),
            ("models:/iris/Production", registered("iris", ModelVersion::Stage("Production".to_owned()), "")),
            ("models:/iris/Latest", registered("iris", ModelVersion::Latest, "")),
            ("models:/m-1/2", registered("m-1", ModelVersion::Number("2".to_owned()), "")),
            (&format!("models:/{id}"), MlflowReference::Logged { id: id.clone(), path: String::new() }),
            ("runs:/ab12/model/", MlflowReference::Run { id: "ab12".to_owned(), path: "model".to_owned() }),
            ("mlflow-artifacts:/0/ab/artifacts/m", artifact(None, "0/ab/artifacts/m")),
            ("mlflow-artifacts://h:5000/0/ab", artifact(Some("h:5000"), "0/ab")),
            ("mlflow-artifacts:///0/ab", artifact(None, "0/ab")),
        ] {
            assert_eq!(MlflowReference::parse(text), Some(Ok(expected)), "{text}");
        }
        assert_eq!(MlflowReference::parse("s3://b/m"), None);
        assert_eq!(MlflowReference::parse("/models:/x"), None);
    }

    #[test]
    fn mlflow_uris_without_a_part_are_refused() {
        for text in [
            "models:/",
            "models:/iris",
            "models:/@a",
            "models:/iris@",
            "models://profile@databricks/iris/1",
            "models:/iris/1/../2",
            "runs:/",
            "runs:/ab",
            "runs:/a b/c",
            "runs:/ab/a//b",
            "mlflow-artifacts:/",
            "mlflow-artifacts:/../x",
        ] {
            assert!(matches!(MlflowReference::parse(text), Some(Err(_))), "{text}");
        }
    }
}
