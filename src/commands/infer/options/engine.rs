//! What a job of an engine does: the arguments of our application in Python.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::ValueEnum;

use super::reader::{ArgumentReader, parse};
use crate::cli::infer::{InferArgs, InferEngine, InferVariable, InputFormat};
use crate::commands::{CommandError, USAGE};
use crate::settings::Environment;

/// The arguments of `ray job submit` that the command sets or relies on.
const TAKEN_BY_RAY: [&str; 5] = ["--submission-id", "--job-id", "--no-wait", "--runtime-env", "--runtime-env-json"];

/// A job, with arguments that have been checked.
#[derive(Debug)]
pub(in crate::commands::infer) struct EngineJob {
    pub(in crate::commands::infer) engine: InferEngine,
    /// The folder, file or URI of the model.
    pub(in crate::commands::infer) location: String,
    pub(in crate::commands::infer) output: String,
    /// The arguments of our application, besides the location.
    pub(in crate::commands::infer) arguments: Vec<String>,
    /// The arguments of the engine's command.
    pub(in crate::commands::infer) engine_args: Vec<String>,
}

/// Resolves the arguments of a job.
///
/// # Errors
///
/// Fails with all problems at once.
pub(in crate::commands::infer) fn resolve_engine(
    engine: InferEngine,
    args: &InferArgs,
    environment: &dyn Environment,
) -> Result<EngineJob, CommandError> {
    let variables = environment.variables().into_iter().collect();
    let mut reader = ArgumentReader { variables, problems: Vec::new() };
    let location: Option<String> = reader.value(args.model_name.clone(), &InferVariable::MODEL_NAME, parse);
    let location = reader.required(location, "--model-name", &InferVariable::MODEL_NAME);
    let version: Option<String> = reader.value(args.model_version.clone(), &InferVariable::MODEL_VERSION, parse);
    let first = reader.value(args.input_data_path.first().cloned(), &InferVariable::INPUT_DATA_PATH, parse);
    let first: Option<PathBuf> = reader.required(first, "--input-data-path", &InferVariable::INPUT_DATA_PATH);
    let output = reader.value(args.output_data_path.clone(), &InferVariable::OUTPUT_DATA_PATH, parse);
    let output: Option<PathBuf> = reader.required(output, "--output-data-path", &InferVariable::OUTPUT_DATA_PATH);
    let inputs: Vec<String> = first.iter().chain(args.input_data_path.iter().skip(1)).map(|path| text(path)).collect();
    let output = output.as_deref().map(text);
    let format = reader.engine_format(engine, args, &inputs);
    for (path, is_input) in inputs.iter().map(|input| (input, true)).chain(output.iter().map(|output| (output, false)))
    {
        reader.problems.extend(problem_of_path(path, is_input));
    }
    if args.resume && format == Some(InputFormat::Catalog) {
        reader
            .problems
            .push("--resume: only files have names that the output keeps, and the input is a table".to_owned());
    }
    for (flag, names) in [("--keep", &args.keep), ("--columns", &args.columns), ("--partition-by", &args.partition_by)]
    {
        if names.iter().any(|name| name.trim().is_empty()) {
            reader.problems.push(format!("{flag}: expected names of columns, separated by commas, but one is empty"));
        }
    }
    reader.problems.extend(match engine {
        InferEngine::Spark => problem_of_spark(&args.engine_args),
        InferEngine::Ray => problem_of_ray(&args.engine_args),
    });
    let (Some(location), Some(output), Some(format), []) = (location, output, format, &*reader.problems) else {
        return Err(CommandError { error: anyhow!("{}", reader.problems.join("\n")), code: USAGE });
    };
    let mut arguments = vec![format!("--format={}", name_of(format)), format!("--output={output}")];
    arguments.extend(inputs.iter().map(|input| format!("--input={input}")));
    arguments.extend(version.map(|version| format!("--model-version={version}")));
    for (flag, names) in [
        ("--outputs", &args.outputs),
        ("--columns", &args.columns),
        ("--keep", &args.keep),
        ("--partition-by", &args.partition_by),
    ] {
        arguments.extend(names.iter().map(|name| format!("{flag}={}", name.trim())));
    }
    arguments.extend(args.overwrite.then(|| "--overwrite".to_owned()));
    arguments.extend(args.resume.then(|| "--resume".to_owned()));
    Ok(EngineJob { engine, location, output, arguments, engine_args: args.engine_args.clone() })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn name_of(format: InputFormat) -> String {
    format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl ArgumentReader {
    /// Returns the format of the inputs: the given one, or the one of their names. Records a problem if an engine does not read it.
    fn engine_format(&mut self, engine: InferEngine, args: &InferArgs, inputs: &[String]) -> Option<InputFormat> {
        let given =
            self.value(args.input_format, &InferVariable::INPUT_FORMAT, |text| InputFormat::from_str(text, true));
        let format = given.or_else(|| inputs.first().map(|input| format_of(input)))?;
        let other = inputs.iter().find(|input| given.is_none() && format_of(input) != format);
        if let Some(other) = other {
            self.problems.push(format!(
                "`{other}` has another format than the first input, which is {}: set --input-format",
                name_of(format)
            ));
        }
        match format {
            InputFormat::Requests | InputFormat::Openai | InputFormat::Npy => {
                let name = name_of(format);
                self.problems.push(format!("--input-format: the input of an engine is a table, and not `{name}`"));
            }
            InputFormat::Catalog if engine == InferEngine::Ray => {
                let input = inputs.first().map_or("", String::as_str);
                self.problems.push(format!(
                    "`{input}` is the name of a table, and Ray has no catalog: name a file or a folder, or use --engine spark"
                ));
            }
            _ => {}
        }
        Some(format)
    }
}

/// Returns the format of an input: by its extension, otherwise a folder of Parquet, or a table of the catalog if it is no path.
fn format_of(input: &str) -> InputFormat {
    let name = input.strip_suffix(".gz").unwrap_or(input);
    match Path::new(name).extension().and_then(|extension| extension.to_str()) {
        Some("csv") => InputFormat::Csv,
        Some("tsv") => InputFormat::Tsv,
        Some("jsonl" | "ndjson" | "json") => InputFormat::Rows,
        Some("orc") => InputFormat::Orc,
        Some("npy") => InputFormat::Npy,
        Some("parquet" | "pq") => InputFormat::Parquet,
        _ if input.contains('/') || Path::new(input).exists() => InputFormat::Parquet,
        _ => InputFormat::Catalog,
    }
}

fn problem_of_path(path: &str, is_input: bool) -> Option<String> {
    let flag = if is_input { "--input-data-path" } else { "--output-data-path" };
    if path == "-" || path.starts_with("kafka://") {
        return Some(format!("{flag}: `{path}` has no effect with --engine: name files, a folder or a table"));
    }
    let format = format_of(path.trim_end_matches('/'));
    let is_other = !is_input && !matches!(format, InputFormat::Parquet | InputFormat::Catalog);
    is_other.then(|| format!("{flag}: `{path}`: the output of an engine is a folder of Parquet: name a folder"))
}

/// The summary is a file of this machine, where a driver in the cluster cannot write it.
fn problem_of_spark(given: &[String]) -> Option<String> {
    let is_cluster = |index: usize, argument: &String| {
        let next = given.get(index + 1).map_or("", String::as_str);
        argument == "--deploy-mode=cluster"
            || (argument == "--deploy-mode" && next == "cluster")
            || argument.ends_with("spark.submit.deployMode=cluster")
    };
    let found = given.iter().enumerate().any(|(index, argument)| is_cluster(index, argument));
    found.then(|| {
        "--engine-arg: the summary is written by the driver, which has to run on this machine: use --deploy-mode=client"
            .to_owned()
    })
}

fn problem_of_ray(given: &[String]) -> Option<String> {
    let taken = given.iter().find_map(|argument| {
        let name = argument.split('=').next().unwrap_or_default();
        TAKEN_BY_RAY.contains(&name).then_some(name)
    })?;
    Some(format!("--engine-arg: `{taken}` is set by this command, or would take its summary away: leave it out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_formats_follow_from_names() {
        for (input, format) in [
            ("s3a://b/in/", InputFormat::Parquet),
            ("in/part-*.parquet", InputFormat::Parquet),
            ("hdfs://h/in.csv.gz", InputFormat::Csv),
            ("in.tsv", InputFormat::Tsv),
            ("in.jsonl", InputFormat::Rows),
            ("in.orc", InputFormat::Orc),
            ("lake.events", InputFormat::Catalog),
        ] {
            assert_eq!(format_of(input), format, "{input}");
        }
    }
}
