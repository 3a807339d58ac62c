//! `mlserver init`: creates a project from a template.

use std::path::{Path, PathBuf};

use crate::cli::init::InitArgs;
use crate::scaffold::{Project, TEMPLATES};
use crate::settings::Environment;
use crate::ui::Ui;

use super::CommandError;

/// The name of a project without another one.
const DEFAULT_NAME: &str = "my-model";

/// Runs `mlserver init`, and prints the paths of the files it wrote.
pub fn run(args: &InitArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    if args.list {
        for template in TEMPLATES {
            ui.line(format_args!("{:<11} {}", template.name, template.about))?;
        }
        return Ok(());
    }
    let working_directory = environment.working_directory();
    let name = args.name.clone().or_else(|| name_of(&working_directory.join(args.folder.as_ref()?)));
    let name = name.unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let project = Project::new(&args.template, &name)?;
    let folder = args.folder.clone().unwrap_or_else(|| PathBuf::from(&name));
    project.write(&folder, args.force)?;
    for path in project.paths() {
        ui.line(folder.join(path).display())?;
    }
    ui.note(format_args!(
        "Created `{name}`. Serve it with `mlserver start {}`; see its README.md for more",
        folder.display()
    ));
    Ok(())
}

/// Returns the name of a folder, which need not exist. Resolves `.` and `..` in its path.
fn name_of(folder: &Path) -> Option<String> {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.components().collect());
    Some(absolute.file_name()?.to_string_lossy().into_owned())
}
