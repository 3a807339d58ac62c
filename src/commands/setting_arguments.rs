//! The settings that the command line sets.

use crate::cli::settings::SettingArgs;
use crate::settings::{Environment, SettingArgument, SettingsError, SettingsSources};

/// Reads the sources of settings for a command with arguments.
pub(super) fn sources(args: &SettingArgs, environment: &dyn Environment) -> Result<SettingsSources, SettingsError> {
    let sources = SettingsSources::read(environment)?;
    Ok(sources.with_arguments(setting_arguments(args)).with_settings_file(args.file.as_deref()))
}

/// Returns the settings of the arguments, in their order of precedence: shorthands count more than `--set`.
fn setting_arguments(args: &SettingArgs) -> Vec<SettingArgument> {
    let setting = |argument, key: &str, value: String| SettingArgument { argument, key: key.to_owned(), value };
    let mut settings: Vec<SettingArgument> =
        args.assignments.iter().map(|(key, value)| setting("--set", key, value.clone())).collect();
    let number = |value: Option<u16>| value.map(|value| value.to_string());
    let shorthands = [
        ("--host", "host", args.host.clone()),
        ("--http-port", "http_port", number(args.http_port)),
        ("--grpc-port", "grpc_port", number(args.grpc_port)),
        ("--metrics-port", "metrics_port", number(args.metrics_port)),
        ("--debug", "debug", args.debug.then(|| "true".to_owned())),
        ("--no-debug", "debug", args.no_debug.then(|| "false".to_owned())),
        ("--log-level", "log_level", args.log_level.clone()),
        ("--parallel-workers", "parallel_workers", args.parallel_workers.map(|count| count.to_string())),
    ];
    let shorthands = shorthands.into_iter().filter_map(|(argument, key, value)| Some(setting(argument, key, value?)));
    settings.extend(shorthands);
    settings
}
