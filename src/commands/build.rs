//! `mlserver build`: builds an image of a model folder with a Docker engine.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::cli::OutputFormat;
use crate::cli::build::{BaseImages, BuildArgs};
use crate::image::docker::{
    self, BuildContext, BuildRequest, BuiltImage, CHECK_LABEL, CheckError, CheckSample, DockerEngine, EngineError,
    ImageCheck,
};
use crate::image::{self, BaseImage, DockerfileOptions, IgnoreRules, ImagePlan, ProjectPython, remote_models};
use crate::registry::{FetchedModel, ModelFetcher};
use crate::repository::Repository;
use crate::settings::env::MapEnvironment;
use crate::settings::{Environment, Settings, SettingsSources};
use crate::shutdown::Signals;
use crate::types::without_credentials;
use crate::ui::Ui;

use super::offline_models::OfflineModels;
use super::{CommandError, USAGE, async_runtime, exit_code};

/// The sample request of a model, next to its settings.
const SAMPLE: &str = "request.json";
/// The name of the base images, unless `--tag` sets another one.
const BASE_REPOSITORY: &str = "mlserver";

/// An image to build.
struct ImageBuild {
    request: BuildRequest,
    context: BuildContext,
    /// What the image contains, and why.
    why: String,
    /// The version of Python, if the project decides it.
    python: Option<ProjectPython>,
    check: Option<ImageCheck>,
    /// Keep the models of the context in the cache.
    _fetched: Vec<FetchedModel>,
}

/// Reports progress on standard error, unless the mode is quiet.
struct BuildReport<'a> {
    ui: &'a mut Ui,
    quiet: bool,
}

impl BuildReport<'_> {
    fn note(&mut self, message: impl Display) {
        if !self.quiet {
            self.ui.note(message);
        }
    }
}

/// Runs `mlserver build`. Reports the build's progress on standard error, and prints the names of the images, or what is known
/// about them as JSON.
///
/// # Errors
///
/// Fails if a step of the build, the check or the push fails, or at a signal. No container is left behind then.
pub fn run(args: &BuildArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let runtime = async_runtime(environment)?;
    let builds = match (args.base_images, &args.folder, &args.tag) {
        (Some(images), ..) => base_images(args, images, ui)?,
        (None, Some(folder), Some(tag)) => {
            let offline = runtime.block_on(offline_models(args, folder, environment, ui))?;
            vec![folder_image(args, folder, tag, offline, environment, ui)?]
        }
        (None, ..) => {
            return Err(CommandError { error: anyhow!("missing FOLDER and `--tag`, or `--base-images`"), code: USAGE });
        }
    };
    let outcome = runtime.block_on(until_signal(args, environment, builds, ui));
    // A credential helper may still be running.
    runtime.shutdown_background();
    outcome
}

/// Builds the images, or stops at a signal: the engine cancels what it does for a client that disconnects.
async fn until_signal(
    args: &BuildArgs,
    environment: &dyn Environment,
    builds: Vec<ImageBuild>,
    ui: &mut Ui,
) -> Result<(), CommandError> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let stop = CancellationToken::new();
    let work = build_all(args, environment, builds, ui, &stop);
    tokio::pin!(work);
    let signal = tokio::select! {
        outcome = &mut work => return outcome,
        signal = signals.next() => signal,
    };
    stop.cancel();
    // The check still has to remove its container. A second signal does not wait for it.
    let left = tokio::select! {
        outcome = work => outcome.err().map(|error| error.error).filter(is_left_behind),
        _ = signals.next() => args.check.then(|| {
            anyhow!("the container of the check may still exist: `docker ps --all --filter label={CHECK_LABEL}` lists it")
        }),
    };
    let code = exit_code(signal);
    let message = format!("interrupted by {signal}");
    Err(CommandError {
        error: left.map_or_else(|| anyhow!(message.clone()), |error| error.context(message.clone())),
        code,
    })
}

/// Reports whether an error means that the container of a check still exists.
fn is_left_behind(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(CheckError::Remove { .. }))
}

async fn build_all(
    args: &BuildArgs,
    environment: &dyn Environment,
    builds: Vec<ImageBuild>,
    ui: &mut Ui,
    stop: &CancellationToken,
) -> Result<(), CommandError> {
    let variables: HashMap<String, String> = environment.variables().into_iter().collect();
    let interrupted = || CommandError::from(anyhow!("interrupted"));
    let connecting = DockerEngine::connect(&variables);
    let engine = stop.run_until_cancelled(connecting).await.ok_or_else(interrupted)??;
    for build in builds {
        let tag = build.request.tag.clone();
        let mut report = BuildReport { ui, quiet: args.quiet };
        report.note(format_args!("Building `{tag}`: {}", build.why));
        let building = engine.build(&build.request, build.context, |line| report.note(line));
        let outcome = stop.run_until_cancelled(building).await.ok_or_else(interrupted)?;
        outcome.map_err(|error| with_python_hint(error, build.python.as_ref()))?;
        let built = stop.run_until_cancelled(engine.inspect(&tag)).await.ok_or_else(interrupted)??;
        #[expect(clippy::cast_precision_loss, reason = "a size for people")]
        let size = built.size as f64 / 1e6;
        report.note(format_args!("Built `{tag}`, {size:.1} MB"));
        if let Some(check) = &build.check {
            // Not cancelled, because it removes its container itself.
            engine.check(check, stop).await?;
            let open = if check.arguments.is_empty() { "" } else { " (without TLS and access control)" };
            let answered = check.samples.len();
            report.note(format_args!("Checked: the image is ready{open}; sample requests answered: {answered}"));
        }
        if args.push {
            let pushing = engine.push(&tag, |line| report.note(line));
            stop.run_until_cancelled(pushing).await.ok_or_else(interrupted)??;
            report.note(format_args!("Pushed `{tag}`"));
        }
        print(args.format, &tag, &built, ui)?;
    }
    Ok(())
}

/// Adds how to choose another Python if pip has failed: pinned packages may have no distribution for this one.
fn with_python_hint(error: EngineError, python: Option<&ProjectPython>) -> anyhow::Error {
    let step = match &error {
        EngineError::Build(failure) => failure.step.as_deref(),
        _ => None,
    };
    match python.filter(|_| step.is_some_and(|step| step.contains("pip install"))) {
        Some(python) => {
            let hint = "if a package has no distribution for it, choose another with `--python VERSION`, or an image with `--base IMAGE`";
            anyhow!("{error}\nhint: the packages were installed for {python}; {hint}")
        }
        None => error.into(),
    }
}

fn print(format: OutputFormat, tag: &str, built: &BuiltImage, ui: &mut Ui) -> Result<(), CommandError> {
    match format {
        OutputFormat::Text => ui.line(tag)?,
        OutputFormat::Json => ui.line(serde_json::to_string(built)?)?,
    }
    Ok(())
}

/// Fetches the models of a folder that are in object stores, if the arguments want them in the image; otherwise says where they stay.
async fn offline_models(
    args: &BuildArgs,
    folder: &Path,
    environment: &dyn Environment,
    ui: &mut Ui,
) -> Result<OfflineModels, CommandError> {
    if !args.offline_models {
        let mut report = BuildReport { ui, quiet: args.quiet };
        let remote = remote_models(folder)?;
        for model in &remote {
            let uri = without_credentials(model.parameters.uri.as_deref().unwrap_or_default());
            report.note(format_args!(
                "Model `{}` stays in `{uri}`, and is fetched by each container; `--offline-models` puts it into the image",
                model.name
            ));
        }
        return Ok(OfflineModels { stay: !remote.is_empty(), ..OfflineModels::default() });
    }
    let settings = Settings::load(Path::new("."), &SettingsSources::read(environment)?, false)?.settings;
    let fetcher = ModelFetcher::new(&settings.storage, environment.variables().into_iter().collect());
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    tokio::select! {
        biased;
        signal = signals.next() => {
            Err(CommandError { error: anyhow!("interrupted by {signal}"), code: exit_code(signal) })
        }
        models = OfflineModels::fetch(folder, &fetcher, ui) => models,
    }
}

/// Plans the image of a folder.
fn folder_image(
    args: &BuildArgs,
    folder: &Path,
    tag: &str,
    offline: OfflineModels,
    environment: &dyn Environment,
    ui: &mut Ui,
) -> Result<ImageBuild, CommandError> {
    let plan = ImagePlan::with_models(folder, &offline.artifacts)?;
    let ignore = IgnoreRules::of_folder(folder)?;
    let variables = environment.variables().into_iter().collect();
    let python = ProjectPython::of(folder, args.python.as_deref(), plan.packed(), &variables);
    let python = python.map_err(|error| CommandError { error: error.into(), code: USAGE })?;
    let options = DockerfileOptions {
        base: args.base.clone(),
        python,
        server: args.server.clone(),
        classic: args.classic,
        in_parts: true,
        settings: image::contains_settings(folder, &ignore),
    };
    let dockerfile = image::dockerfile(&plan, &options)?;
    if plan.omits_packages(folder) {
        ui.warning("every model is native, so no packages are installed; set `parameters.extra.backend` to `python` to install them");
    }
    if folder.join("Dockerfile").is_file() {
        ui.warning("ignoring the `Dockerfile` in the folder");
    }
    let server = if args.server.is_some() { Vec::new() } else { own_files()? };
    let OfflineModels { stay: with_cache, added, replaced, fetched, .. } = offline;
    let folder_of_context = Some(folder.to_owned());
    let context = BuildContext {
        dockerfile,
        folder: folder_of_context,
        ignore,
        with_cache,
        added,
        replaced,
        files: Vec::new(),
        server,
    };
    let arguments = args.build_args.iter().cloned().collect();
    let check = args.check.then(|| image_check(args, folder, tag)).transpose()?;
    let python = plan.follows_project(&options).then_some(options.python);
    let mut why = plan.to_string();
    if let Some(python) = &python {
        let _ = write!(why, ", in {python}");
    }
    Ok(ImageBuild { request: request(args, tag, arguments), context, why, python, check, _fetched: fetched })
}

/// Plans the base images, in the order in which they are built.
fn base_images(args: &BuildArgs, images: BaseImages, ui: &mut Ui) -> Result<Vec<ImageBuild>, CommandError> {
    let repository = args.tag.as_deref().unwrap_or(BASE_REPOSITORY);
    if repository.rsplit_once(':').is_some_and(|(_, version)| !version.contains('/')) {
        let error = anyhow!(
            "invalid name `{repository}` for base images: their versions are `{}`, `{}` and `{}`; leave out the version",
            BaseImage::Slim.tag("").trim_start_matches(':'),
            BaseImage::Python.tag("").trim_start_matches(':'),
            BaseImage::Full.tag("").trim_start_matches(':')
        );
        return Err(CommandError { error, code: USAGE });
    }
    let requirements = args.requirements.as_ref();
    let requirements = requirements
        .map(|path| fs::read(path).with_context(|| format!("cannot read `{}`", path.display())))
        .transpose()?;
    if docker::is_dynamic().context("cannot read this executable")? {
        ui.warning("this executable is linked dynamically: images that copy it need a C library at least as new as this machine's");
    }
    let wanted: &[BaseImage] = match images {
        BaseImages::All => &[BaseImage::Slim, BaseImage::Python, BaseImage::Full],
        BaseImages::Slim => &[BaseImage::Slim],
        BaseImages::Python => &[BaseImage::Slim, BaseImage::Python],
    };
    let builds = wanted.iter().map(|image| {
        let mut arguments = image.arguments(repository, args.base.as_deref());
        arguments.extend(args.build_args.iter().cloned());
        let context = BuildContext {
            dockerfile: image.dockerfile(args.base.as_deref()),
            folder: None,
            ignore: IgnoreRules::default(),
            with_cache: false,
            added: Vec::new(),
            replaced: BTreeMap::new(),
            files: image.files(requirements.clone()),
            server: if image.needs_server() { own_files()? } else { Vec::new() },
        };
        let why = match image {
            BaseImage::Slim => "the server",
            BaseImage::Python => "the server and Python",
            BaseImage::Full => "the server, Python and its packages",
        };
        let request = request(args, &image.tag(repository), arguments);
        Ok(ImageBuild { request, context, why: why.to_owned(), python: None, check: None, _fetched: Vec::new() })
    });
    builds.collect()
}

fn own_files() -> Result<Vec<(PathBuf, PathBuf)>, CommandError> {
    Ok(docker::executable().context("cannot find this executable's files")?)
}

fn request(args: &BuildArgs, tag: &str, arguments: HashMap<String, String>) -> BuildRequest {
    BuildRequest {
        tag: tag.to_owned(),
        no_cache: args.no_cache,
        platform: args.platform.clone(),
        arguments,
        network: args.network.clone(),
        classic: args.classic,
    }
}

/// Describes the check of the image: its port, and a sample request for each model that has one.
fn image_check(args: &BuildArgs, folder: &Path, tag: &str) -> Result<ImageCheck, CommandError> {
    // In the image, the folder's settings are the only ones.
    let folder = fs::canonicalize(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    let sources = SettingsSources::read(&MapEnvironment::new(&folder))?;
    let settings = Settings::load(&folder, &sources, false)?.settings;
    let samples = samples(&folder, sources)?;
    let (image, network, port) = (tag.to_owned(), args.network.clone(), settings.http_port);
    Ok(ImageCheck { image, network, port, arguments: without_security(&settings), samples })
}

/// Returns the sample requests of the models of a folder, which are sent to its image.
fn samples(folder: &Path, sources: SettingsSources) -> Result<Vec<CheckSample>, CommandError> {
    let mut samples = Vec::new();
    for model in Repository::new(folder, sources, false).discover().models {
        let path = model.settings.folder().map(|folder| folder.join(SAMPLE)).filter(|path| path.is_file());
        if let Some(path) = path {
            let body = image::read_own(folder, &path).with_context(|| format!("cannot read `{}`", path.display()))?;
            let version = model.settings.version().map(str::to_owned);
            samples.push(CheckSample { model: model.settings.name, version, body: Bytes::from(body) });
        }
    }
    Ok(samples)
}

/// Returns the arguments that turn TLS and access control off, for a check of the models: certificates and keys are mounted where the
/// image runs, and are no part of it.
fn without_security(settings: &Settings) -> Vec<String> {
    let off = [
        (settings.tls.certificate.is_some(), "tls_certificate=null"),
        (settings.tls.key.is_some(), "tls_key=null"),
        (settings.tls.client_ca.is_some(), "tls_client_ca=null"),
        (settings.tls.metrics, "tls_metrics=false"),
        (!settings.tls.client_scopes.is_empty(), "tls_client_scopes={}"),
        (settings.access.api_keys_file.is_some(), "api_keys_file=null"),
        (settings.access.jwt_issuer.is_some(), "jwt_issuer=null"),
        (settings.access.jwt_audience.is_some(), "jwt_audience=null"),
        (settings.access.jwks_url.is_some(), "jwks_url=null"),
        (settings.access.jwks_file.is_some(), "jwks_file=null"),
    ];
    let is_on = off.into_iter().filter(|(is_on, _)| *is_on);
    is_on.flat_map(|(_, argument)| ["--set".to_owned(), argument.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::docker::BuildFailure;

    #[test]
    fn check_sends_no_file_from_outside_of_the_folder() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::write(root.join("model-settings.json"), r#"{"name": "m", "implementation": "models.M"}"#).unwrap();
        let read = || {
            let samples = samples(&root, SettingsSources::read(&MapEnvironment::new(&root)).unwrap());
            samples.map(|samples| samples.into_iter().map(|sample| sample.body).collect::<Vec<_>>())
        };
        let refused = |reason: &str| {
            let error = format!("{:#}", read().unwrap_err().error);
            assert!(error.ends_with(reason), "{error}");
        };
        let (sample, secret) = (root.join(SAMPLE), outside.path().join("credentials"));
        fs::write(&secret, "secret").unwrap();
        std::os::unix::fs::symlink(&secret, &sample).unwrap();
        refused("it is a link to a file outside of the folder");
        fs::remove_file(&sample).unwrap();
        fs::File::create(&sample).unwrap().set_len(1 << 40).unwrap();
        refused("it is longer than 67108864 bytes");
        fs::write(root.join("own.json"), "{}").unwrap();
        fs::remove_file(&sample).unwrap();
        std::os::unix::fs::symlink("own.json", &sample).unwrap();
        assert_eq!(read().unwrap(), [Bytes::from("{}")], "links inside of the folder are files of the folder");
    }

    #[test]
    fn build_hint_names_the_flags_only_after_a_failed_pip_step() {
        let failure = |step: Option<&str>| {
            let output = vec!["ERROR: No matching distribution found for numpy==1.22.4".to_owned()];
            EngineError::from(BuildFailure { step: step.map(str::to_owned), reason: "exit code 1".to_owned(), output })
        };
        let python = ProjectPython::of(Path::new("/nonexistent"), None, &[], &HashMap::new()).unwrap();
        let pip = "RUN /opt/environment/bin/python -m pip install --requirement requirements.txt";
        let text = with_python_hint(failure(Some(pip)), Some(&python)).to_string();
        assert!(
            text.contains("numpy==1.22.4\nhint: the packages were installed for Python 3.12 (the default); "),
            "{text}"
        );
        assert!(text.contains("`--python VERSION`") && text.contains("`--base IMAGE`"), "{text}");
        for (step, python) in [(Some(pip), None), (Some("COPY . ."), Some(&python)), (None, Some(&python))] {
            assert!(!with_python_hint(failure(step), python).to_string().contains("hint:"), "{step:?}");
        }
    }
}
