//! `mlserver init`: creates a project from a template, or around a model file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::{Value, json};

use crate::cli::OutputFormat;
use crate::cli::dockerfile::{DEFAULT_SERVER, DockerfileArgs};
use crate::cli::init::InitArgs;
use crate::registry::chain;
use crate::runtimes::FileDescription;
use crate::scaffold::{ModelOfFile, Project, TEMPLATES};
use crate::settings::Environment;
use crate::ui::Ui;

use super::inspect::{InspectedModel, answer};
use super::{CommandError, USAGE};

/// The name of a project without another one.
const DEFAULT_NAME: &str = "my-model";

/// How deeply the folders of a model are copied.
const MAX_DEPTH: usize = 16;

/// Runs `mlserver init`, and prints the paths of the files it wrote.
pub fn run(args: &InitArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    if args.list {
        return list(args.format, ui);
    }
    if let Some(url) = args.folder.as_deref().and_then(Path::to_str).filter(|folder| folder.contains("://")) {
        let error = anyhow!("FOLDER is the URL `{url}`: pass it with --template, and a folder for the project");
        return Err(CommandError { error, code: USAGE });
    }
    let model = args.from.as_deref().map(|path| InspectedModel::find(path, environment)).transpose()?;
    let working_directory = environment.working_directory();
    let name = args.name.clone().or_else(|| name_of(&working_directory.join(args.folder.as_ref()?)));
    let name = name.or_else(|| model.as_ref().map(|model| model.name.clone()));
    let name = name.unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let folder = args.folder.clone().unwrap_or_else(|| PathBuf::from(&name));
    if working_directory.join(&folder).is_file() {
        let shown = folder.display();
        return Err(anyhow!(
            "cannot create a project in `{shown}`: it is a file; `--from FILE` creates a project from a model file"
        )
        .into());
    }
    let project = if let Some(model) = &model {
        around(model, &name, &folder, args.force, ui)?
    } else {
        let project = Project::new(&args.template, &name)?;
        project.write(&folder, args.force)?;
        if let Some(path) = project.former_suffix() {
            ui.warning(format!(
                "rendered `{}` of the template as Tera, which has most of the syntax of Jinja: rename such files to `.tera`",
                path.display()
            ));
        }
        project
    };
    for path in project.paths() {
        ui.line(folder.join(path).display())?;
    }
    if args.dockerfile {
        let dockerfile = DockerfileArgs {
            folder: folder.clone(),
            output: None,
            include_dockerignore: true,
            force: args.force,
            base: None,
            python: None,
            server: DEFAULT_SERVER.to_owned(),
        };
        super::dockerfile::run(&dockerfile, environment, ui)?;
    }
    ui.note(format_args!(
        "Created `{name}`. Serve it with `mlserver start {}`; see its README.md for more",
        folder.display()
    ));
    Ok(())
}

/// Writes a project from a model file, of which it gets a copy.
fn around(
    model: &InspectedModel,
    name: &str,
    folder: &Path,
    force: bool,
    ui: &mut Ui,
) -> Result<Project, CommandError> {
    let description = describe(model)?;
    let artifact = folder.join(&description.artifact);
    if artifact.symlink_metadata().is_ok() && !force {
        return Err(anyhow!("`{}` already exists; overwrite with --force", artifact.display()).into());
    }
    if is_inside(folder, &model.artifact) {
        return Err(anyhow!(
            "the project `{}` must not be inside the model `{}`: pass another folder",
            folder.display(),
            model.artifact.display()
        )
        .into());
    }
    let project = Project::around(&description, name)?;
    project.write(folder, force)?;
    copy(&model.artifact, &artifact, MAX_DEPTH)
        .with_context(|| format!("cannot copy `{}` to `{}`", model.artifact.display(), artifact.display()))?;
    ui.line(artifact.display())?;
    Ok(project)
}

fn list(format: OutputFormat, ui: &mut Ui) -> Result<(), CommandError> {
    match format {
        OutputFormat::Text => {
            for template in TEMPLATES {
                ui.line(format_args!("{:<11} {}", template.name, template.about))?;
            }
        }
        OutputFormat::Json => {
            let templates = TEMPLATES.map(|template| json!({"name": template.name, "about": template.about}));
            ui.line(format_args!("{:#}", Value::from(templates.to_vec())))?;
        }
    }
    Ok(())
}

/// Describes a model file for the project around it, with a request that it answers if it is native.
fn describe(model: &InspectedModel) -> Result<ModelOfFile, CommandError> {
    let family = model.family;
    let mut native = family.native.is_some();
    let mut example = None;
    if native {
        let description =
            FileDescription::read(family, &model.artifact).map_err(|error| anyhow!("{}", chain(&error)))?;
        native = description.not_native.is_none();
        if native {
            example = answer(family, &model.artifact, &description.examples)?.ok();
        }
    }
    let artifact = if model.artifact.is_dir() {
        "model".to_owned()
    } else {
        let name = model.artifact.file_name().map(|name| name.to_string_lossy().into_owned());
        name.ok_or_else(|| anyhow!("`{}` has no file name", model.artifact.display()))?
    };
    let inputs = example.as_ref().map(|example| {
        let inputs = example
            .inputs
            .iter()
            .map(|input| json!({"name": input.name, "datatype": input.datatype, "shape": input.shape}));
        Value::from(inputs.collect::<Vec<_>>()).to_string()
    });
    Ok(ModelOfFile {
        library: family.title,
        implementation: family.implementations[0],
        artifact,
        extra: family.extra.unwrap_or_default(),
        native,
        inputs,
        example: example
            .map(|example| (format!("{:#}", example.request), format!("{:#}", json!({"outputs": example.answer})))),
    })
}

/// Reports whether a folder, which need not exist, is inside of another one.
fn is_inside(folder: &Path, outer: &Path) -> bool {
    let existing = folder.ancestors().find_map(|ancestor| {
        let ancestor = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        ancestor.canonicalize().ok()
    });
    outer.is_dir() && existing.zip(outer.canonicalize().ok()).is_some_and(|(folder, outer)| folder.starts_with(outer))
}

/// Copies a file, or a folder with what is in it.
fn copy(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    if !from.is_dir() {
        // Never through a link that is there.
        if to.symlink_metadata().is_ok() {
            fs::remove_file(to)?;
        }
        return fs::copy(from, to).map(drop);
    }
    let below = depth.checked_sub(1).ok_or_else(|| io::Error::other("its folders are nested too deeply"))?;
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), below)?;
    }
    Ok(())
}

/// Returns the name of a folder, which need not exist. Resolves `.` and `..` in its path.
fn name_of(folder: &Path) -> Option<String> {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.components().collect());
    Some(absolute.file_name()?.to_string_lossy().into_owned())
}
