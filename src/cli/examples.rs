//! The examples that the help of each command starts with.

use std::fmt;

/// A command line, and what it does.
#[derive(Debug)]
pub(super) struct Example {
    /// The command line, as it is typed into a shell.
    pub(super) line: &'static str,
    /// A comment behind it; empty if the line speaks for itself.
    comment: &'static str,
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.comment {
            "" => f.write_str(self.line),
            comment => write!(f, "{}  # {comment}", self.line),
        }
    }
}

const fn example(line: &'static str, comment: &'static str) -> Example {
    Example { line, comment }
}

/// The examples by the names of the command; none for the program itself.
static EXAMPLES: &[(&[&str], &[Example])] = &[
    (
        &[],
        &[
            example("mlserver start model.json", "serve a model file"),
            example("mlserver start examples/quickstart", "serve the models of a folder"),
            example("mlserver init churn", "create a project"),
            example("mlserver doctor churn", "find out why it does not start"),
        ],
    ),
    (
        &["start"],
        &[
            example("mlserver start .", ""),
            example("mlserver start churn.joblib", "serve one file as model `churn`"),
            example("mlserver start /mnt/models --model-name churn", "serve the only model file of a folder"),
            example("mlserver start model.py --model_name churn", "serve the models of a KServe script"),
            example("mlserver start . --http-port 9000 --set max_in_flight=64", ""),
            example("mlserver start . --http-port 0 --port-file ports.json", "choose a free port"),
        ],
    ),
    (
        &["infer"],
        &[
            example("mlserver infer -m churn -i rows.csv -o predictions.csv", ""),
            example("mlserver infer -u host:8080 -m churn -i requests.jsonl -o answers.jsonl --resume", ""),
            example("mlserver infer --embedded models/churn -i rows.csv -o predictions.parquet", "without a server"),
            example("mlserver infer -m churn -i kafka://broker:9092/rows -o kafka://broker:9092/answers", "topics"),
        ],
    ),
    (
        &["compare"],
        &[
            example("mlserver compare -u old:8080 -u new:8080 -m churn requests.jsonl", ""),
            example("mlserver compare -u old:8080 -u new:8080 -m churn rows.csv --relative-tolerance 1e-6", ""),
        ],
    ),
    (
        &["init"],
        &[
            example("mlserver init churn", "a Python model"),
            example("mlserver init churn --from churn.joblib", "a project from a model file"),
            example("mlserver init --list", ""),
        ],
    ),
    (
        &["dockerfile"],
        &[
            example("mlserver dockerfile churn", "write churn/Dockerfile"),
            example("mlserver dockerfile churn --server registry.example.com/mlserver:slim", ""),
        ],
    ),
    (
        &["build"],
        &[
            example("mlserver build churn -t registry.example.com/churn:1", ""),
            example("mlserver build churn -t registry.example.com/churn:1 --check --push", ""),
        ],
    ),
    (
        &["manifest"],
        &[
            example("mlserver manifest churn --image registry.example.com/churn:1", ""),
            example("mlserver manifest churn --image registry.example.com/churn:1 --kind kserve", ""),
        ],
    ),
    (&["doctor"], &[example("mlserver doctor .", ""), example("mlserver doctor churn --format json", "for scripts")]),
    (
        &["config"],
        &[
            example("mlserver config show .", "the effective settings and their sources"),
            example("mlserver config explain http_port", ""),
            example("mlserver config list", ""),
        ],
    ),
    (&["config", "show"], &[example("mlserver config show . --format json --set http_port=9000", "")]),
    (&["config", "list"], &[example("mlserver config list --format markdown", "")]),
    (
        &["config", "explain"],
        &[
            example("mlserver config explain http_port", ""),
            example("mlserver config explain MLSERVER_HTTP_PORT", "the setting of a variable"),
        ],
    ),
    (
        &["inspect"],
        &[
            example("mlserver inspect churn.joblib", ""),
            example("mlserver inspect churn.joblib --example", "a request that the model answers"),
        ],
    ),
    (
        &["keys"],
        &[
            example("mlserver keys create --name ci --scope infer --file keys.json", "print a new key"),
            example("mlserver keys list --file keys.json", ""),
            example("mlserver keys revoke ci --file keys.json", ""),
        ],
    ),
    (
        &["keys", "create"],
        &[
            example("mlserver keys create --name ci --scope infer --models iris-* --file keys.json", ""),
            example("mlserver keys create --name ops --scope read --scope admin", "into the file of the settings"),
        ],
    ),
    (&["keys", "list"], &[example("mlserver keys list --file keys.json", "")]),
    (&["keys", "revoke"], &[example("mlserver keys revoke ci --file keys.json", "")]),
    (
        &["graph"],
        &[
            example("mlserver graph show .", "the graphs of a folder"),
            example("mlserver graph show text-generator --format mermaid", "a drawing of one graph"),
        ],
    ),
    (
        &["graph", "show"],
        &[example("mlserver graph show .", ""), example("mlserver graph show . --format json", "for scripts")],
    ),
    (&["completions"], &[example("mlserver completions bash", "")]),
    (&["man"], &[example("mlserver man /usr/local/share/man/man1", "")]),
];

/// Returns the examples of a command, by the names of the subcommands that lead to it.
pub(super) fn of(path: &[String]) -> Option<&'static [Example]> {
    let found = EXAMPLES.iter().find(|(names, _)| names.iter().eq(path.iter()));
    found.map(|(_, examples)| *examples)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use crate::cli::{Cli, command, parse};

    use super::*;

    /// Calls `check` with the names of every command.
    fn for_each_command(command: &clap::Command, path: &mut Vec<String>, check: &mut dyn FnMut(&[String])) {
        check(path);
        for inner in command.get_subcommands() {
            path.push(inner.get_name().to_owned());
            for_each_command(inner, path, check);
            path.pop();
        }
    }

    #[test]
    fn examples_lead_the_help_of_every_command() {
        for_each_command(&<Cli as clap::CommandFactory>::command(), &mut Vec::new(), &mut |path| {
            let examples = of(path).unwrap_or_else(|| unreachable!("{path:?} has no examples"));
            let arguments = [&["mlserver".to_owned()], path, &["--help".to_owned()]].concat();
            let arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
            let help = parse(&arguments).unwrap_err().to_string();
            let (before_usage, _) = help.split_once("Usage:").unwrap();
            for example in examples {
                assert!(before_usage.contains(example.line), "{help}");
            }
        });
    }

    #[test]
    fn examples_are_valid_command_lines() {
        for (path, examples) in EXAMPLES {
            for Example { line, .. } in *examples {
                let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
                assert!(parse(&words).is_ok(), "{line}");
                assert!(line.starts_with(&["mlserver"].iter().chain(*path).copied().collect::<Vec<_>>().join(" ")));
            }
        }
    }

    #[test]
    fn command_line_is_consistent() {
        command().debug_assert();
    }
}
