//! `mlserver build`: builds an image of a model folder with a Docker engine.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;

use crate::cli::build::BuildArgs;
use crate::image::{
    self, BuildContext, BuildRequest, CheckSample, DockerEngine, DockerfileOptions, IgnoreRules, ImageCheck, ImagePlan,
};
use crate::repository::Repository;
use crate::settings::env::MapEnvironment;
use crate::settings::{Environment, Settings, SettingsSources};
use crate::ui::Ui;

use super::CommandError;

/// The files with ignore patterns; the first one that exists is used.
const IGNORE_FILES: [&str; 2] = ["Dockerfile.dockerignore", ".dockerignore"];
/// The sample request of a model, next to its settings.
const SAMPLE: &str = "request.json";

/// Runs `mlserver build`. Reports the build's progress on standard error and prints the image's name.
pub fn run(args: &BuildArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let plan = ImagePlan::of(&args.folder)?;
    let options = DockerfileOptions {
        base: args.base.clone(),
        server: args.server.clone(),
        classic: args.classic,
        in_parts: true,
    };
    let dockerfile = image::dockerfile(&plan, &options)?;
    let ignore = ignore(&args.folder)?;
    if plan.omits_packages(&args.folder) {
        ui.warning("every model is native, so no packages are installed; set `parameters.extra.backend` to `python` to install them");
    }
    if args.folder.join("Dockerfile").is_file() {
        ui.warning("ignoring the `Dockerfile` in the folder");
    }
    let server = if args.server.is_some() {
        Vec::new()
    } else {
        image::executable().context("cannot find this executable's files")?
    };
    let context = BuildContext { dockerfile, folder: args.folder.clone(), ignore, server };
    let request = BuildRequest {
        tag: args.tag.clone(),
        no_cache: args.no_cache,
        platform: args.platform.clone(),
        arguments: args.build_args.iter().cloned().collect(),
        network: args.network.clone(),
        classic: args.classic,
    };
    let check = args.check.then(|| image_check(args)).transpose()?;
    ui.note(format_args!("Building `{}`: {plan}", args.tag));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(build(args, environment, &request, context, check.as_ref(), ui))?;
    Ok(ui.line(&args.tag)?)
}

async fn build(
    args: &BuildArgs,
    environment: &dyn Environment,
    request: &BuildRequest,
    context: BuildContext,
    check: Option<&ImageCheck>,
    ui: &mut Ui,
) -> Result<(), CommandError> {
    let variables: HashMap<String, String> = environment.variables().into_iter().collect();
    let engine = DockerEngine::connect(&variables).await?;
    engine.build(request, context, |line| ui.note(line)).await?;
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    let size = engine.size(&args.tag).await? as f64 / 1e6;
    ui.note(format_args!("Built `{}`, {size:.1} MB", args.tag));
    if let Some(check) = check {
        engine.check(check).await?;
        ui.note(format_args!("Checked: the image is ready; sample requests answered: {}", check.samples.len()));
    }
    if args.push {
        engine.push(&args.tag).await?;
        ui.note(format_args!("Pushed `{}`", args.tag));
    }
    Ok(())
}

/// Reads the ignore rules of a folder.
fn ignore(folder: &Path) -> Result<IgnoreRules, CommandError> {
    let own = IGNORE_FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let Some(path) = own else { return Ok(IgnoreRules::parse(&image::default_ignore())?) };
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(IgnoreRules::parse(&text).with_context(|| format!("cannot read `{}`", path.display()))?)
}

/// Describes the check of the image: its port, and a sample request for each model that has one.
fn image_check(args: &BuildArgs) -> Result<ImageCheck, CommandError> {
    // In the image, the folder's settings are the only ones.
    let folder = fs::canonicalize(&args.folder).with_context(|| format!("cannot read `{}`", args.folder.display()))?;
    let sources = SettingsSources::read(&MapEnvironment::new(&folder))?;
    let settings = Settings::load(&folder, &sources, false)?.settings;
    let mut samples = Vec::new();
    for model in Repository::new(&folder, sources, false).discover().models {
        let path = model.settings.folder().map(|folder| folder.join(SAMPLE)).filter(|path| path.is_file());
        if let Some(path) = path {
            let body = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
            samples.push(CheckSample { model: model.settings.name, body: Bytes::from(body) });
        }
    }
    Ok(ImageCheck { image: args.tag.clone(), network: args.network.clone(), port: settings.http_port, samples })
}
