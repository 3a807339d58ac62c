//! `mlserver keys`: creates, lists and revokes API keys.

use std::path::PathBuf;

use anyhow::{Context, anyhow};

use super::{CommandError, USAGE};
use crate::access::{ApiKey, KeyEditError, KeyEntry, KeyFile, RateLimit, Scope};
use crate::cli::OutputFormat;
use crate::cli::keys::{CreateKeyArgs, KeyFileArgs, KeyScope, KeysArgs, KeysCommand, ListKeysArgs, RevokeKeyArgs};
use crate::settings::{Environment, Settings, SettingsSources};
use crate::ui::Ui;

/// Runs `mlserver keys`.
pub fn run(args: &KeysArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    match &args.command {
        KeysCommand::Create(args) => create(args, environment, ui),
        KeysCommand::List(args) => list(args, environment, ui),
        KeysCommand::Revoke(args) => revoke(args, environment, ui),
    }
}

impl From<KeyScope> for Scope {
    fn from(scope: KeyScope) -> Self {
        match scope {
            KeyScope::Infer => Self::Infer,
            KeyScope::Read => Self::Read,
            KeyScope::Admin => Self::Admin,
            KeyScope::Metrics => Self::Metrics,
        }
    }
}

/// Prints the key alone on standard output, so that it can be piped into a store of secrets.
fn create(args: &CreateKeyArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let path = path(&args.file, environment)?;
    let is_new = !path.exists();
    let key = ApiKey::generate().context("cannot generate random numbers")?;
    // In the order of the documents, each once.
    let given: Vec<Scope> = args.scopes.iter().map(|&scope| scope.into()).collect();
    let scopes = Scope::ALL.into_iter().filter(|scope| given.contains(scope)).collect();
    let rate_limit =
        args.requests_per_second.map(|requests_per_second| RateLimit { requests_per_second, burst: args.burst });
    let entry = KeyEntry {
        name: args.name.clone(),
        hash: key.hash(),
        scopes,
        models: Some(args.models.clone()).filter(|models| !models.is_empty()),
        expires: args.expires.clone(),
        rate_limit,
        max_in_flight: args.max_in_flight,
    };
    KeyFile::edit(&path, |file| {
        file.0.push(entry);
        Ok::<_, KeyEditError>(())
    })?;
    ui.line(key.reveal())?;
    ui.note(format_args!(
        "Added `{}` to `{}`. The key is not shown again; running servers accept it within 10 seconds.",
        args.name,
        path.display()
    ));
    if is_new {
        ui.note(format_args!(
            "`{}` is new, and only the user of this command can read it: a server that runs as another user needs `chown`.",
            path.display()
        ));
    }
    Ok(())
}

fn list(args: &ListKeysArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let file = KeyFile::read(&path(&args.file, environment)?)?;
    if args.format == OutputFormat::Json {
        return Ok(ui.line(file.to_text().trim_end())?);
    }
    for entry in &file.0 {
        let scopes: Vec<&str> = entry.scopes.iter().map(|scope| scope.name()).collect();
        let models = entry.models.as_ref().map_or_else(|| "*".to_owned(), |models| models.join(","));
        let expires = entry.expires.as_deref().unwrap_or("never");
        ui.line(format_args!("{}  scopes {}  models {models}  expires {expires}", entry.name, scopes.join(",")))?;
    }
    Ok(())
}

fn revoke(args: &RevokeKeyArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let path = path(&args.file, environment)?;
    if !path.exists() {
        return Err(anyhow!("cannot revoke `{}`: `{}` does not exist", args.name, path.display()).into());
    }
    KeyFile::edit(&path, |file| {
        let before = file.0.len();
        file.0.retain(|entry| entry.name != args.name);
        if file.0.len() == before {
            return Err(anyhow!("`{}` has no key `{}`", path.display(), args.name));
        }
        Ok(())
    })?;
    ui.note(format_args!(
        "Removed `{}` from `{}`. Running servers reject the key within 10 seconds.",
        args.name,
        path.display()
    ));
    Ok(())
}

/// Returns the path of the file: that of the arguments, or of the settings of the folder.
fn path(args: &KeyFileArgs, environment: &dyn Environment) -> Result<PathBuf, CommandError> {
    let working_directory = environment.working_directory();
    if let Some(file) = &args.file {
        return Ok(working_directory.join(file));
    }
    let sources = SettingsSources::read(environment)?;
    let settings = Settings::load(&args.folder, &sources, false)?.settings;
    let file = settings.access.api_keys_file.ok_or_else(|| {
        let folder = args.folder.display();
        let error = anyhow!("the settings of `{folder}` have no `api_keys_file`: set it, or pass `--file FILE`");
        CommandError { error, code: USAGE }
    })?;
    Ok(working_directory.join(file))
}
