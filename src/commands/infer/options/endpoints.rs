//! Where rows come from and where their answers go: files, objects of stores, and topics.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::reader::{ArgumentReader, parse};
use crate::cli::infer::{InferArgs, InferVariable, defaults};
use crate::client::{InputOrigin, OutputTarget, TopicAddress, TopicOptions, output_files};
use crate::repository::is_store_uri;
use crate::types::without_credentials;

/// Reports whether an output is a folder, which has the answers to each input in a file of its own.
pub(in crate::commands::infer) fn is_folder(output: &Path) -> bool {
    output.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Returns what is wrong with several inputs.
pub(super) fn problem_of_several(
    first: Option<&InputOrigin>,
    others: &[InputOrigin],
    output: &OutputTarget,
) -> Option<String> {
    if others.is_empty() {
        return None;
    }
    let is_file = |input: &InputOrigin| matches!(input, InputOrigin::File(path) if path != Path::new("-"));
    if !first.into_iter().chain(others).all(is_file) {
        return Some("--input-data-path: of several inputs, each is a file or objects of a store".to_owned());
    }
    let is_folder = matches!(output, OutputTarget::File(path) if is_folder(path));
    let problem =
        "--output-data-path: several inputs need a folder, with `/` at its end, for a file of answers to each";
    (!is_folder).then(|| problem.to_owned())
}

/// Returns what is wrong with an input and an output together.
pub(super) fn conflicts(resume: bool, input: Option<&InputOrigin>, output: &OutputTarget) -> Vec<String> {
    let mut problems = Vec::new();
    if resume && matches!(input, None | Some(InputOrigin::File(_))) {
        let output = match output {
            OutputTarget::Stdout => "standard output",
            OutputTarget::Topic(_) => "a topic",
            OutputTarget::File(_) => "",
        };
        if !output.is_empty() {
            let problem = "cannot resume a run that reads a file and writes to";
            problems.push(format!("--resume: {problem} {output}; set --output-data-path to a file"));
        }
    }
    if let (Some(InputOrigin::Topic(input)), OutputTarget::Topic(output)) = (input, output)
        && input.is_same(output)
    {
        let problem = "is both input and output; choose another topic for the answers";
        problems.push(format!("`{input}` {problem}"));
    }
    if let (Some(InputOrigin::File(input)), OutputTarget::File(output)) = (input, output)
        && input == output
        && is_store_uri(&input.to_string_lossy())
    {
        let shown = without_credentials(&input.to_string_lossy());
        problems.push(format!("`{shown}` is both input and output; choose another object for the answers"));
    }
    if let Some(InputOrigin::File(input)) = input
        && let Some(file) = same_file(input, output)
    {
        let input =
            if input == Path::new("-") { "standard input".to_owned() } else { format!("`{}`", input.display()) };
        problems.push(format!(
            "{input} is the same file as the output {file}: it is both input and output; choose another file for the answers"
        ));
    }
    problems
}

/// Returns the file of the output that is also an input, even if its names differ.
fn same_file(input: &Path, output: &OutputTarget) -> Option<String> {
    let identity = |file: &Metadata| file.is_file().then(|| (file.dev(), file.ino()));
    let of_path = |path: &Path| fs::metadata(path).ok().and_then(|file| identity(&file));
    let of_stream = |stream: BorrowedFd<'_>| {
        let file = File::from(stream.try_clone_to_owned().ok()?);
        file.metadata().ok().and_then(|file| identity(&file))
    };
    let stream = Path::new("-");
    let input = if input == stream { of_stream(io::stdin().as_fd()) } else { of_path(input) }?;
    let output = match output {
        OutputTarget::Stdout => {
            return (of_stream(io::stdout().as_fd()) == Some(input)).then(|| "(standard output)".to_owned());
        }
        OutputTarget::Topic(_) => return None,
        OutputTarget::File(output) => output,
    };
    let mut files = output_files(output).into_iter();
    files.find(|file| of_path(file) == Some(input)).map(|file| format!("`{}`", file.display()))
}

impl ArgumentReader {
    pub(super) fn input(&mut self, path: Option<PathBuf>) -> Option<InputOrigin> {
        let path = path?;
        match TopicAddress::of_path(&path) {
            Some(address) => self.topic(address, "--input-data-path").map(InputOrigin::Topic),
            None => Some(InputOrigin::File(path)),
        }
    }

    pub(super) fn output(&mut self, path: Option<PathBuf>) -> Option<OutputTarget> {
        let path = path?;
        match TopicAddress::of_path(&path) {
            Some(address) => self.topic(address, "--output-data-path").map(OutputTarget::Topic),
            None if path == Path::new("-") => Some(OutputTarget::Stdout),
            None => Some(OutputTarget::File(path)),
        }
    }

    fn topic(&mut self, address: Result<TopicAddress, String>, flag: &str) -> Option<TopicAddress> {
        self.checked(address.map_err(|problem| format!("{flag}: {problem}")))
    }

    /// Reads how to connect to topics. No message has the value of a property, which may be secret.
    pub(super) fn kafka(&mut self, args: &InferArgs) -> TopicOptions {
        let group = self.value(args.kafka_group.clone(), &InferVariable::KAFKA_GROUP, parse);
        let mut properties = BTreeMap::new();
        if let Some(text) = self.variable(&InferVariable::KAFKA_CONFIG) {
            let read =
                read_properties(text).map_err(|problem| format!("{}: {problem}", InferVariable::KAFKA_CONFIG.name));
            properties.extend(self.checked(read).unwrap_or_default());
        }
        for entry in &args.kafka_config {
            let pair = entry.split_once('=').filter(|(name, _)| !name.trim().is_empty());
            match pair {
                Some((name, value)) => drop(properties.insert(name.trim().to_owned(), value.to_owned())),
                None => self.problems.push("--kafka-config: expected NAME=VALUE".to_owned()),
            }
        }
        // A wrong time has been reported with the target, if that is a server.
        let timeout =
            args.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(defaults::TIMEOUT);
        TopicOptions { group: group.unwrap_or_else(|| defaults::KAFKA_GROUP.to_owned()), properties, timeout }
    }
}

/// Reads properties, whose values are strings, numbers or booleans.
fn read_properties(text: &str) -> Result<BTreeMap<String, String>, String> {
    let expected = "expected a JSON object of properties, such as {\"security.protocol\": \"sasl_ssl\"}";
    let object: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|_| expected.to_owned())?;
    let read = |(name, value): (String, Value)| {
        let value = match value {
            Value::String(value) => value,
            value @ (Value::Number(_) | Value::Bool(_)) => value.to_string(),
            _ => return Err(format!("`{name}`: expected a string, a number, true or false")),
        };
        Ok((name, value))
    };
    object.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::super::resolve;
    use super::super::tests::{args, environment, problems};
    use super::*;
    use crate::client::SourceFormat;

    #[test]
    fn infer_output_that_is_the_input_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let check = |input: &str, output: &str| {
            let (input, output) = (Some(path(input)), Some(path(output)));
            let args = InferArgs { input_data_path: input.into_iter().collect(), output_data_path: output, ..args() };
            resolve(&args, &environment(&[])).map(drop).map_err(|failure| failure.error.to_string())
        };
        fs::write(path("in"), "").unwrap();
        fs::hard_link(path("in"), path("hard")).unwrap();
        std::os::unix::fs::symlink(path("in"), path("soft")).unwrap();
        fs::write(path("out.partial"), "").unwrap();
        fs::write(path("other"), "").unwrap();
        for (input, output) in
            [("in", "in"), ("in", "hard"), ("hard", "in"), ("soft", "in"), ("in", "soft"), ("out.partial", "out")]
        {
            let problem = check(input, output).unwrap_err();
            assert!(
                problem.ends_with("both input and output; choose another file for the answers"),
                "{input} {output}: {problem}"
            );
        }
        check("in", "other").unwrap();
        check("in", "out").unwrap();
    }

    #[test]
    fn infer_kafka_properties_are_merged_and_never_shown() {
        let kafka_config = vec!["sasl.password=hush=1".to_owned(), "client.id=flag".to_owned()];
        let args = InferArgs { kafka_config, input_data_path: vec![PathBuf::from("kafka://h/in")], ..args() };
        let variable = r#"{"client.id": "variable", "fetch.max.bytes": 5000, "enable.x": true}"#;
        let resolved = resolve(&args, &environment(&[("KAFKA_CONFIG", variable), ("KAFKA_GROUP", "g")])).unwrap();
        let address = TopicAddress { servers: "h:9092".to_owned(), topic: "in".to_owned() };
        assert_eq!((&resolved.inputs[0], resolved.format), (&InputOrigin::Topic(address), SourceFormat::Requests));
        let properties: Vec<_> =
            resolved.kafka.properties.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected =
            [("client.id", "flag"), ("enable.x", "true"), ("fetch.max.bytes", "5000"), ("sasl.password", "hush=1")];
        assert_eq!((properties, resolved.kafka.group.as_str()), (expected.to_vec(), "g"));
        let shown = format!("{resolved:?}");
        assert!(shown.contains("sasl.password") && !shown.contains("hush"), "{shown}");
        for (flag, variable) in [("hush", "{}"), ("=hush", "{}"), ("a=b", "hush"), ("a=b", r#"{"a": ["hush"]}"#)] {
            let args = InferArgs { kafka_config: vec![flag.to_owned()], ..args_of_topic() };
            let found = problems(&args, &[("KAFKA_CONFIG", variable)]);
            assert!(found.len() == 1 && !found[0].contains("hush"), "{found:?}");
        }
    }

    fn args_of_topic() -> InferArgs {
        InferArgs { input_data_path: vec![PathBuf::from("kafka://h/in")], ..args() }
    }

    #[test]
    fn infer_topics_reject_what_does_not_fit() {
        let path = |name: &str| Some(PathBuf::from(name));
        let same = InferArgs { output_data_path: path("kafka://g,h:9092/in"), ..args_of_topic() };
        let problem = "`kafka://h:9092/in` is both input and output; choose another topic for the answers";
        assert_eq!(problems(&same, &[]), [problem]);
        let format = "--input-format: the records of a topic are requests";
        assert_eq!(problems(&args_of_topic(), &[("INPUT_FORMAT", "csv")]), [format]);
        let wrong = InferArgs { input_data_path: vec![PathBuf::from("kafka://h")], ..args() };
        assert_eq!(problems(&wrong, &[]), ["--input-data-path: `kafka://h`: expected kafka://HOST:PORT/TOPIC"]);
        let resumed = InferArgs { resume: true, output_data_path: path("kafka://h/out"), ..args() };
        let problem =
            "--resume: cannot resume a run that reads a file and writes to a topic; set --output-data-path to a file";
        assert_eq!(problems(&resumed, &[]), [problem]);
        let resumed = InferArgs { resume: true, ..args_of_topic() };
        assert!(resolve(&resumed, &environment(&[])).unwrap().warnings.is_empty());
        let unused = InferArgs { kafka_group: Some("g".to_owned()), ..args() };
        assert_eq!(resolve(&unused, &environment(&[])).unwrap().warnings.len(), 1);
    }
}
