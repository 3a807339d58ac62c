//! The environment variables that the server reads, and the only place where they are read.
//!
//! The variables of settings are derived from the tables in `table`: `MLSERVER_` and the upper-case name of a server
//! setting, or `MLSERVER_MODEL_` and that of a model setting or parameter. Their names are case-insensitive, and lists and
//! objects are JSON. All other variables that start with `MLSERVER_` are listed here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::arguments::SettingArgument;
use super::field::SettingField;
use super::file;
use super::nearest::nearest;
use super::problem::{FileError, SettingsError, SettingsProblem, SettingsWarning};
use super::resolve::Layer;
use super::source::SettingSource;
use super::table::{GROUPS, MODEL_PREFIX, SERVER_PREFIX};
use super::{dotenv, field::SettingGroup};
use crate::types::text;

/// The folder of the models, in the start command of a container.
pub const MODELS_DIR: &str = "MLSERVER_MODELS_DIR";
/// The folder of the models, as KServe's runtimes set it.
pub const KSERVE_MODELS_DIR: &str = "MODELS_DIR";
/// The source of the CloudEvents that answer others, as KServe's containers set it.
const CE_SOURCE: &str = "CE_SOURCE";
/// Their type.
const CE_TYPE: &str = "CE_TYPE";
/// Whether they keep the attributes of the request.
const CE_MERGE: &str = "CE_MERGE";
/// The prefix of the routes of OpenAI's API, as KServe's containers set it.
const KSERVE_OPENAI_ROUTE_PREFIX: &str = "KSERVE_OPENAI_ROUTE_PREFIX";
/// The packed environment to activate, in the start command of a container.
pub const ENV_TARBALL: &str = "MLSERVER_ENV_TARBALL";
/// The folder with the settings that were baked into an image, as `mlserver dockerfile` and `mlserver build` set it.
pub const DEFAULTS_DIR: &str = "MLSERVER_DEFAULTS_DIR";
/// The settings file of the operator, above the `settings.json` of the served folder. Not read from a `.env` file, which may be beside
/// the models.
pub const SETTINGS_FILE_VARIABLE: &str = "MLSERVER_SETTINGS_FILE";
/// The argument that names the same file, with precedence over the variable.
const SETTINGS_FILE_ARGUMENT: &str = "--settings";
/// The folder of the server, in the start command of a container.
pub const PATH: &str = "MLSERVER_PATH";

/// How many threads do I/O, as in every server on tokio.
const TOKIO_WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// What KServe's templates write for a label that an `InferenceService` does not have, such as `{{.Labels.modelClass}}`.
const NO_VALUE: &str = "<no value>";
/// The argument that sets the name of the model.
const MODEL_NAME_ARGUMENT: &str = "--model-name";

/// Variables that are read elsewhere: by containers, `mlserver infer`, and runtimes with settings of their own.
const FOREIGN: [&str; 10] = [
    MODELS_DIR,
    DEFAULTS_DIR,
    SETTINGS_FILE_VARIABLE,
    ENV_TARBALL,
    PATH,
    "MLSERVER_INFER_",
    "MLSERVER_MODEL_HUGGINGFACE_",
    "MLSERVER_MODEL_ALIBI_DETECT_",
    "MLSERVER_MODEL_ALIBI_EXPLAIN_",
    "MLSERVER_MODEL_ONNX_",
];

/// The attributes of the CloudEvents that answer others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudEventVariables {
    pub source: Option<String>,
    pub kind: Option<String>,
    pub merge: bool,
}

impl CloudEventVariables {
    /// Reads `CE_SOURCE`, `CE_TYPE` and `CE_MERGE`; empty ones count as absent.
    pub fn read(environment: &dyn Environment) -> Self {
        let variables = environment.variables();
        let value = |wanted: &str| {
            let found = variables.iter().find(|(name, value)| name == wanted && !value.is_empty());
            found.map(|(_, value)| value.clone())
        };
        let merge = value(CE_MERGE).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        Self { source: value(CE_SOURCE), kind: value(CE_TYPE), merge }
    }
}

/// The prefix of the routes of OpenAI's API, unless a setting or a variable says otherwise.
const OPENAI_ROUTE_PREFIX: &str = "/openai";

/// Returns the prefix of the routes of OpenAI's API, which may be empty: the setting, or else KServe's variable.
pub fn openai_route_prefix(setting: Option<&str>, environment: &dyn Environment) -> String {
    let variable = || {
        let found = environment.variables().into_iter().find(|(name, _)| name == KSERVE_OPENAI_ROUTE_PREFIX);
        found.map(|(_, prefix)| prefix)
    };
    let prefix = setting.map(str::to_owned).or_else(variable).unwrap_or_else(|| OPENAI_ROUTE_PREFIX.to_owned());
    let path = prefix.trim_matches('/');
    if path.is_empty() { String::new() } else { format!("/{path}") }
}

/// The most threads that `TOKIO_WORKER_THREADS` may ask for.
const MAX_WORKER_THREADS: usize = 1024;

/// Reads `TOKIO_WORKER_THREADS`, the number of threads that do I/O: as many as there are cores if it is absent or empty.
///
/// # Errors
///
/// Fails if it is not a number from 1 to 1024.
pub fn worker_threads(environment: &dyn Environment) -> Result<usize, String> {
    let variables = environment.variables();
    match variables.iter().find(|(name, value)| name == TOKIO_WORKER_THREADS && !value.is_empty()) {
        None => Ok(std::thread::available_parallelism().map_or(1, NonZero::get)),
        Some((_, text)) => {
            let threads = text.parse().ok().filter(|threads| (1..=MAX_WORKER_THREADS).contains(threads));
            threads.ok_or_else(|| {
                format!(
                    "environment variable `{TOKIO_WORKER_THREADS}`: expected a number from 1 to {MAX_WORKER_THREADS}, found `{}`",
                    text.chars().take(40).collect::<String>()
                )
            })
        }
    }
}

/// The environment in which a process is started.
pub trait Environment: Sync {
    /// Returns all variables whose name and value are UTF-8.
    fn variables(&self) -> Vec<(String, String)>;

    /// Returns the folder against which relative paths are resolved.
    fn working_directory(&self) -> PathBuf;
}

/// The environment of this process.
#[derive(Debug, Clone, Copy)]
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    fn variables(&self) -> Vec<(String, String)> {
        let text = |value: OsString| value.into_string().ok();
        std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
    }

    fn working_directory(&self) -> PathBuf {
        std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."))
    }
}

/// An environment with the given variables, for tests and for commands that ignore the real one.
#[derive(Debug, Clone, Default)]
pub struct MapEnvironment {
    pub variables: Vec<(String, String)>,
    pub working_directory: PathBuf,
}

impl MapEnvironment {
    /// Creates an environment without variables in the given working directory.
    pub fn new(working_directory: impl Into<PathBuf>) -> Self {
        Self { variables: Vec::new(), working_directory: working_directory.into() }
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Environment for MapEnvironment {
    fn variables(&self) -> Vec<(String, String)> {
        self.variables.clone()
    }

    fn working_directory(&self) -> PathBuf {
        self.working_directory.clone()
    }
}

/// A variable that sets a field.
#[derive(Debug)]
pub struct Variable {
    pub name: String,
    pub field: &'static SettingField,
}

/// Returns the variables of all settings, in the order of the tables.
pub fn variables() -> impl Iterator<Item = Variable> {
    GROUPS.into_iter().flat_map(|group: &'static SettingGroup| {
        group.fields().filter_map(|field| {
            let name = group.env_name(field)?;
            Some(Variable { name, field })
        })
    })
}

/// A snapshot of the sources that do not change while the server runs: the environment and the `.env` file.
///
/// Also the settings of the command line. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SettingsSources {
    snapshot: Arc<Snapshot>,
    arguments: Arc<[SettingArgument]>,
    settings_file: Option<Arc<Path>>,
    model_name: Option<Arc<str>>,
    script: Option<(Arc<Path>, Map<String, Value>)>,
}

#[derive(Debug)]
struct Snapshot {
    environment: Variables,
    dotenv: Variables,
    dotenv_path: Arc<Path>,
    bad_dotenv_lines: Vec<usize>,
    working_directory: PathBuf,
}

/// Name as written and value, by lower-case name.
type Variables = BTreeMap<String, (String, String)>;

impl SettingsSources {
    /// Takes a snapshot of the environment and of the `.env` file in its working directory.
    pub fn read(environment: &dyn Environment) -> Result<Self, SettingsError> {
        let working_directory = environment.working_directory();
        let mut variables = environment.variables();
        variables.retain(|(_, value)| value != NO_VALUE);
        let dotenv_path: Arc<Path> = working_directory.join(".env").into();
        let dotenv = if dotenv_path.is_file() {
            read_dotenv(&dotenv_path, &variables).map_err(SettingsProblem::File)?
        } else {
            dotenv::Dotenv::default()
        };
        Ok(Self::of(Snapshot {
            environment: by_lower_name(variables),
            dotenv: by_lower_name(dotenv.variables),
            dotenv_path,
            bad_dotenv_lines: dotenv.bad_lines,
            working_directory,
        }))
    }

    /// Creates sources that set nothing.
    pub fn empty() -> Self {
        Self::of(Snapshot {
            environment: Variables::new(),
            dotenv: Variables::new(),
            dotenv_path: Path::new(".env").into(),
            bad_dotenv_lines: Vec::new(),
            working_directory: PathBuf::new(),
        })
    }

    fn of(snapshot: Snapshot) -> Self {
        Self {
            snapshot: Arc::new(snapshot),
            arguments: Arc::default(),
            settings_file: None,
            model_name: None,
            script: None,
        }
    }

    /// Adds settings of the server from the command line, which take precedence over all other sources.
    #[must_use]
    pub fn with_arguments(self, arguments: Vec<SettingArgument>) -> Self {
        Self { arguments: arguments.into(), ..self }
    }

    /// Sets the settings file of the operator, with precedence over `MLSERVER_SETTINGS_FILE`.
    #[must_use]
    pub fn with_settings_file(self, path: Option<&Path>) -> Self {
        Self { settings_file: path.map(Arc::from), ..self }
    }

    /// Sets the name of a model that has none in its settings file, with precedence over `MLSERVER_MODEL_NAME`.
    #[must_use]
    pub fn with_model_name(self, name: Option<&str>) -> Self {
        Self { model_name: name.map(Arc::from), ..self }
    }

    /// Adds settings of the server that a script sets, below all other sources.
    #[must_use]
    pub fn with_script(self, script: &Path, settings: Map<String, Value>) -> Self {
        Self { script: Some((script.into(), settings)), ..self }
    }

    /// Returns the settings that the script sets.
    pub(super) fn script_layer(&self) -> Option<Layer> {
        let (path, object) = self.script.as_ref()?;
        Some(Layer { object: object.clone(), source: SettingSource::Script(Arc::clone(path)) })
    }

    /// Returns the settings file of the operator and what named it.
    pub(super) fn settings_file(&self) -> Option<(PathBuf, &'static str)> {
        let argument = self.settings_file.as_deref().map(|path| (path, SETTINGS_FILE_ARGUMENT));
        let variable = self.environment_variable(SETTINGS_FILE_VARIABLE);
        let variable = variable.map(|path| (Path::new(path), SETTINGS_FILE_VARIABLE));
        let (path, origin) = argument.or(variable)?;
        Some((self.working_directory().join(path), origin))
    }

    /// Returns a variable of the environment, unless it is empty. A `.env` file, which may be beside the models, does not set it.
    pub(super) fn environment_variable(&self, variable: &str) -> Option<&str> {
        let (_, value) = self.snapshot.environment.get(&variable.to_lowercase())?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns the name of a model that has none in its settings file.
    pub fn model_name(&self) -> Option<&str> {
        self.of_model("NAME")
    }

    /// Returns the artifact of a model that has none in its settings file.
    pub fn model_uri(&self) -> Option<&str> {
        self.of_model("URI")
    }

    /// Returns the runtime of a model that has none in its settings file.
    pub fn model_implementation(&self) -> Option<&str> {
        self.of_model("IMPLEMENTATION")
    }

    /// Returns a setting of models, unless it is empty.
    fn of_model(&self, setting: &str) -> Option<&str> {
        let (value, _) = self.lookup(&format!("{MODEL_PREFIX}{setting}")).next()?;
        Some(value).filter(|value| !value.is_empty())
    }

    /// Returns the settings from the command line, in their order.
    pub(super) fn arguments(&self) -> &[SettingArgument] {
        &self.arguments
    }

    /// Returns the folder against which relative paths are resolved.
    pub fn working_directory(&self) -> &Path {
        &self.snapshot.working_directory
    }

    /// Returns the values of a variable in the environment and the `.env` file, in this order. The name of the command line comes
    /// before that of `MLSERVER_MODEL_NAME`.
    pub(super) fn lookup(&self, variable: &str) -> impl Iterator<Item = (&str, SettingSource)> {
        let name = variable.to_lowercase();
        let snapshot = &self.snapshot;
        let set = snapshot.environment.get(&name).map(|(name, value)| {
            let source = SettingSource::Environment(name.clone());
            (value.as_str(), source)
        });
        let written = snapshot.dotenv.get(&name).map(|(name, value)| {
            let source = SettingSource::Dotenv { path: Arc::clone(&snapshot.dotenv_path), name: name.clone() };
            (value.as_str(), source)
        });
        let is_name = || name.strip_prefix(&MODEL_PREFIX.to_lowercase()) == Some("name");
        let argument = self.model_name.as_deref().filter(|_| is_name());
        let argument = argument.map(|name| (name, SettingSource::Argument(MODEL_NAME_ARGUMENT)));
        argument.into_iter().chain(set).chain(written)
    }

    /// Returns warnings about the variables: invalid lines, and names that resemble that of a setting.
    pub(super) fn warnings(&self) -> Vec<SettingsWarning> {
        let snapshot = &self.snapshot;
        let known: Vec<String> = variables().map(|variable| variable.name).collect();
        let bad_lines = snapshot
            .bad_dotenv_lines
            .iter()
            .map(|line| SettingsWarning::DotenvLine { path: Arc::clone(&snapshot.dotenv_path), line: *line });
        let set = snapshot.environment.values().map(|(name, _)| SettingSource::Environment(name.clone()));
        let written = snapshot
            .dotenv
            .values()
            .map(|(name, _)| SettingSource::Dotenv { path: Arc::clone(&snapshot.dotenv_path), name: name.clone() });
        let misspelt = set.chain(written).filter_map(|source_of| {
            let (SettingSource::Environment(name) | SettingSource::Dotenv { name, .. }) = &source_of else {
                return None;
            };
            let nearest = misspelling(name, &known)?;
            Some(SettingsWarning::UnknownVariable { source_of, nearest })
        });
        bad_lines.chain(misspelt).collect()
    }
}

/// Returns the variable that an unknown name was probably meant to be.
fn misspelling(name: &str, known: &[String]) -> Option<String> {
    let name = name.to_uppercase();
    let own = name.strip_prefix(SERVER_PREFIX)?;
    let foreign =
        FOREIGN.iter().any(|prefix| if prefix.ends_with('_') { name.starts_with(prefix) } else { name == *prefix });
    if foreign || known.contains(&name) {
        return None;
    }
    let candidates = known.iter().filter_map(|known| known.strip_prefix(SERVER_PREFIX));
    nearest(own, candidates).map(|found| format!("{SERVER_PREFIX}{found}"))
}

fn read_dotenv(path: &Path, outer: &[(String, String)]) -> Result<dotenv::Dotenv, FileError> {
    let bytes = file::read(path)?.unwrap_or_default();
    let text = text::utf8(&bytes).map_err(|error| FileError::Text { path: path.to_owned(), error })?;
    Ok(dotenv::parse(text, |wanted| outer.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())))
}

/// Indexes variables by their lower-case name. Of several spellings, the upper-case one wins, or else the last.
fn by_lower_name(variables: Vec<(String, String)>) -> Variables {
    let mut index = Variables::new();
    for (name, value) in variables {
        let key = name.to_lowercase();
        let settled = index.get(&key).is_some_and(|(other, _)| *other != name && *other == other.to_uppercase());
        if !settled {
            index.insert(key, (name, value));
        }
    }
    index
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn sources(environment: &MapEnvironment) -> SettingsSources {
        SettingsSources::read(environment).unwrap()
    }

    fn first<'a>(sources: &'a SettingsSources, name: &str) -> Option<&'a str> {
        sources.lookup(name).next().map(|(value, _)| value)
    }

    #[test]
    fn names_are_matched_in_any_case_and_upper_case_wins() {
        let folder = tempfile::tempdir().unwrap();
        let environment = MapEnvironment::new(folder.path())
            .with("MLSERVER_HOST", "upper")
            .with("mlserver_host", "lower")
            .with("mlserver_http_port", "9");
        let sources = sources(&environment);
        assert_eq!(first(&sources, "MLSERVER_HOST"), Some("upper"));
        assert_eq!(first(&sources, "MLSERVER_HTTP_PORT"), Some("9"));
        assert_eq!(first(&sources, "MLSERVER_GRPC_PORT"), None);
    }

    #[test]
    fn the_environment_beats_the_dotenv_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".env"), "MLSERVER_HOST=file\nmlserver_debug=1\n").unwrap();
        let sources = sources(&MapEnvironment::new(folder.path()).with("MLSERVER_HOST", "set"));
        let hosts: Vec<&str> = sources.lookup("MLSERVER_HOST").map(|(value, _)| value).collect();
        assert_eq!(hosts, ["set", "file"]);
        assert_eq!(first(&sources, "MLSERVER_DEBUG"), Some("1"));
    }

    #[test]
    fn only_names_near_a_setting_are_called_unknown() {
        let known: Vec<String> = variables().map(|variable| variable.name).collect();
        let cases = [
            ("MLSERVER_HTTP_PROT", Some("MLSERVER_HTTP_PORT")),
            ("mlserver_debg", Some("MLSERVER_DEBUG")),
            ("MLSERVER_MODEL_URL", Some("MLSERVER_MODEL_URI")),
            ("MLSERVER_HTTP_PORT", None),
            ("MLSERVER_MODELS_DIR", None),
            ("MLSERVER_DEFAULTS_DIR", None),
            ("MLSERVER_ENV_TARBALL", None),
            ("MLSERVER_PATH", None),
            ("MLSERVER_INFER_URL", None),
            ("MLSERVER_MODEL_HUGGINGFACE_TASK", None),
            // Kubernetes sets these for a service called `mlserver`.
            ("MLSERVER_PORT", None),
            ("MLSERVER_SERVICE_HOST", None),
            ("MLSERVER_PORT_8080_TCP_ADDR", None),
            ("HTTP_PROT", None),
        ];
        for (name, expected) in cases {
            assert_eq!(misspelling(name, &known).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn variables_are_distinct() {
        let mut names: Vec<String> = variables().map(|variable| variable.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        // Server and CORS, and model and parameters, share a prefix; a name in both would set both.
        assert_eq!(names.len(), count);
    }
}
