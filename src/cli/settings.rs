//! The arguments that change settings of the server for one command.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Command};

const HEADING: &str = "Settings";

/// Settings from the command line, which take precedence over all other sources.
#[derive(Debug, Default, Clone, PartialEq, Eq, Args)]
pub struct SettingArgs {
    /// Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set
    /// access, TLS, addresses and ports
    #[arg(long = "settings", help_heading = HEADING, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON.
    /// `mlserver config list` prints all settings
    #[arg(long = "set", help_heading = HEADING, value_name = "KEY=VALUE", value_parser = Assignment)]
    pub assignments: Vec<(String, String)>,

    /// Address to listen on, like `--set host=ADDRESS`
    #[arg(long, help_heading = HEADING, value_name = "ADDRESS")]
    pub host: Option<String>,

    /// Port of the REST server; 0 means any free port
    #[arg(long, help_heading = HEADING, value_name = "PORT")]
    pub http_port: Option<u16>,

    /// Port of the gRPC server; 0 means any free port
    #[arg(long, help_heading = HEADING, value_name = "PORT")]
    pub grpc_port: Option<u16>,

    /// Port of the metrics server; 0 means any free port
    #[arg(long, help_heading = HEADING, value_name = "PORT")]
    pub metrics_port: Option<u16>,

    /// Log at debug level, including an access log
    #[arg(long, help_heading = HEADING, action = ArgAction::SetTrue, overrides_with = "no_debug")]
    pub debug: bool,

    /// Do not log at debug level, even if the settings do
    #[arg(long, help_heading = HEADING, action = ArgAction::SetTrue, overrides_with = "debug", hide = true)]
    pub no_debug: bool,

    /// Lowest severity of log lines to write
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "LEVEL",
        ignore_case = true,
        value_parser = PossibleValuesParser::new(["debug", "info", "warning", "error"]).map(|level| level.to_uppercase())
    )]
    pub log_level: Option<String>,

    /// Worker processes per pool of Python models; 0 means one worker that runs plain functions inline
    #[arg(long, help_heading = HEADING, value_name = "N")]
    pub parallel_workers: Option<u32>,
}

/// Reads `KEY=VALUE`. Errors do not repeat the text, which may be a secret.
#[derive(Debug, Clone)]
struct Assignment;

impl TypedValueParser for Assignment {
    type Value = (String, String);

    fn parse_ref(&self, command: &Command, _argument: Option<&Arg>, text: &OsStr) -> Result<Self::Value, clap::Error> {
        let assignment = text.to_str().and_then(|text| text.split_once('=')).filter(|(key, _)| !key.is_empty());
        let (key, value) = assignment.ok_or_else(|| {
            let message = "invalid value for '--set <KEY=VALUE>': expected KEY=VALUE, for example `http_port=8000`";
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })?;
        Ok((key.to_owned(), value.to_owned()))
    }
}
