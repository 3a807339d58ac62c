//! The examples that the help of each command starts with.

use clap::builder::StyledStr;

/// Returns the template of a command's help with examples: command lines as they are typed into a shell, each with a comment, or
/// an empty one if the line speaks for itself.
pub(super) fn help(examples: &[(&str, &str)]) -> StyledStr {
    let line = |(line, comment): &(&str, &str)| match *comment {
        "" => format!("  {line}"),
        comment => format!("  {line}  # {comment}"),
    };
    let lines = examples.iter().map(line).collect::<Vec<_>>().join("\n");
    format!("{{about-with-newline}}\nExamples:\n{lines}\n\n{{usage-heading}} {{usage}}\n\n{{all-args}}{{after-help}}")
        .into()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use crate::cli::{command, parse};

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
    fn examples_lead_the_help_of_every_command_and_are_valid() {
        for_each_command(&command(), &mut Vec::new(), &mut |path| {
            let words = [&["mlserver".to_owned()], path].concat();
            let arguments: Vec<OsString> = words.iter().chain([&"--help".to_owned()]).map(OsString::from).collect();
            let help = parse(&arguments).unwrap_err().to_string();
            let (before_usage, _) = help.split_once("Usage:").unwrap();
            let (_, examples) = before_usage.split_once("Examples:\n").unwrap_or_else(|| unreachable!("{help}"));
            for example in examples.trim_end().lines() {
                let line = example.split("  # ").next().unwrap().trim();
                assert!(line.starts_with(&words.join(" ")), "{line}");
                let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
                assert!(parse(&words).is_ok(), "{line}");
            }
        });
    }

    #[test]
    fn command_line_is_consistent() {
        command().debug_assert();
    }
}
