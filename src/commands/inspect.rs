//! `mlserver inspect`: shows what an artifact contains, without executing it.

use anyhow::Context;

use super::CommandError;
use crate::cli::inspect::InspectArgs;
use crate::evaluators::sklearn::ArtifactReport;
use crate::runtimes;
use crate::ui::Ui;

/// Runs `mlserver inspect`.
pub fn run(args: &InspectArgs, ui: &mut Ui) -> Result<(), CommandError> {
    if args.path.is_dir() || args.path.file_name().is_some_and(|name| name == "MLmodel") {
        return Ok(ui.line(runtimes::inspect_mlflow(&args.path)?)?);
    }
    let bytes = runtimes::read_sklearn(&args.path)?;
    let report = ArtifactReport::read(&bytes.into());
    let report = report.with_context(|| format!("cannot read `{}` as a pickle", args.path.display()))?;
    Ok(ui.line(report)?)
}
