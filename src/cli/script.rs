//! Scripts as targets of `mlserver start`: which arguments are the script's.

use std::ffi::{OsStr, OsString};

use clap::ArgAction;

/// Inserts `--` in front of the arguments of a script: `mlserver start model.py --http_port 8080` passes the script the
/// same arguments as `python model.py --http_port 8080`. The first argument after the script that is not an option of `start`, and all that
/// follow, are the script's. Options of `start` have no underscores, unlike those of KServe.
pub(super) fn separate(arguments: &[OsString], program: &clap::Command) -> Vec<OsString> {
    let mut separated = arguments.to_vec();
    if let Some(index) = first_of_script(arguments, program) {
        separated.insert(index, OsString::from("--"));
    }
    separated
}

/// Returns the index of the first argument of a script. Returns `None` if the target is not a script, if the script gets no arguments, or
/// if `--` separates them already.
fn first_of_script(arguments: &[OsString], program: &clap::Command) -> Option<usize> {
    let start = program.find_subcommand("start")?;
    let mut index = 1;
    let mut seen_start = false;
    let mut seen_script = false;
    while let Some(argument) = arguments.get(index) {
        let length = match own_option(argument, &[program, start]) {
            Some(length) => length,
            None if !seen_start => {
                seen_start = true;
                start.get_name_and_visible_aliases().iter().any(|name| argument == *name).then_some(1)?
            }
            None if argument == "--" => return None,
            None if seen_script => return Some(index),
            None => {
                seen_script = true;
                is_script(argument).then_some(1)?
            }
        };
        index += length;
    }
    None
}

/// Returns whether a target is a Python script.
pub fn is_script(target: &OsStr) -> bool {
    std::path::Path::new(target).extension().is_some_and(|extension| extension == "py")
}

/// Returns how many arguments an option of `start` takes, including its name. Returns `None` for other arguments.
fn own_option(argument: &OsStr, commands: &[&clap::Command]) -> Option<usize> {
    let text = argument.to_str()?;
    if ["-h", "--help"].contains(&text) {
        return Some(1);
    }
    let (name, value) = match text.strip_prefix("--")?.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text.strip_prefix("--")?, None),
    };
    let option =
        commands.iter().flat_map(|command| command.get_arguments()).find(|option| option.get_long() == Some(name))?;
    let takes_value = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
    Some(if takes_value && value.is_none() { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separated(line: &str) -> String {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let separated = separate(&arguments, &crate::cli::command());
        separated.iter().map(|argument| argument.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn arguments_behind_a_script_are_the_scripts_from_the_first_unknown_one() {
        let cases = [
            ("mlserver start model.py --http_port 8080", "mlserver start model.py -- --http_port 8080"),
            ("mlserver start model.py --http_port=8080 --debug", "mlserver start model.py -- --http_port=8080 --debug"),
            ("mlserver start model.py --model_name m", "mlserver start model.py -- --model_name m"),
            (
                "mlserver start model.py --workers 2 --http-port 1",
                "mlserver start model.py -- --workers 2 --http-port 1",
            ),
            (
                "mlserver start model.py --http-port 1 --workers 2",
                "mlserver start model.py --http-port 1 -- --workers 2",
            ),
            ("mlserver start model.py --http-port=1 -x", "mlserver start model.py --http-port=1 -- -x"),
            ("mlserver start --debug model.py data.csv", "mlserver start --debug model.py -- data.csv"),
            ("mlserver start --set a=b.py model.py --x", "mlserver start --set a=b.py model.py -- --x"),
            ("mlserver --color never start model.py x", "mlserver --color never start model.py -- x"),
            ("mlserver start model.py --color never x", "mlserver start model.py --color never -- x"),
            ("mlserver start a/b.py -", "mlserver start a/b.py -- -"),
            ("mlserver serve model.py --x", "mlserver serve model.py -- --x"),
        ];
        for (line, expected) in cases {
            assert_eq!(separated(line), expected);
        }
    }

    #[test]
    fn other_command_lines_are_not_changed() {
        let lines = [
            "mlserver start model.py",
            "mlserver start model.py --http-port 1",
            "mlserver start model.py --debug -- --http_port 1",
            "mlserver start model.py --help",
            "mlserver start --http_port 8080 model.py",
            "mlserver start . --model_name m",
            "mlserver start model.json model.py --x",
            "mlserver start --http-port",
            "mlserver start",
            "mlserver",
            "mlserver inspect model.py --x",
            "mlserver init model.py --x",
        ];
        for line in lines {
            assert_eq!(separated(line), line);
        }
    }
}
