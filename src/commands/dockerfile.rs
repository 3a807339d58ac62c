//! `mlserver dockerfile`: writes a Dockerfile for a model folder, for any image builder.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::cli::dockerfile::DockerfileArgs;
use crate::image::{self, DockerfileOptions, ImagePlan};
use crate::ui::Ui;

use super::CommandError;

/// Runs `mlserver dockerfile`, and prints the paths of the files it wrote.
pub fn run(args: &DockerfileArgs, ui: &mut Ui) -> Result<(), CommandError> {
    let plan = ImagePlan::of(&args.folder)?;
    let options = DockerfileOptions {
        base: args.base.clone(),
        server: Some(args.server.clone()),
        ..DockerfileOptions::default()
    };
    let dockerfile = image::dockerfile(&plan, &options)?;
    if plan.omits_packages(&args.folder) {
        ui.warning("every model is native, so no packages are installed; set `parameters.extra.backend` to `python` to install them");
    }
    write(&args.folder.join("Dockerfile"), &dockerfile.text, ui)?;
    if args.include_dockerignore {
        write(&args.folder.join("Dockerfile.dockerignore"), &image::default_ignore(), ui)?;
    }
    ui.note(format_args!("Wrote a Dockerfile: {plan}"));
    Ok(())
}

fn write(path: &Path, text: &str, ui: &mut Ui) -> Result<(), CommandError> {
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(ui.line(path.display())?)
}
