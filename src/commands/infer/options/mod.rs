//! Resolves arguments and environment variables into the options of a run.

mod endpoints;
mod engine;
mod formats;
mod reader;
mod target;

use std::num::NonZeroUsize;

use anyhow::anyhow;

use crate::cli::compare::CompareArgs;
use crate::cli::infer::{InferArgs, InferVariable, defaults};
use crate::client::{
    Concurrency, InputOrigin, OutputTarget, RequestSpacing, RunOptions, SourceFormat, Tolerance, TopicOptions,
};
use crate::commands::{CommandError, USAGE};
use crate::remote::{RetryPolicy, Verbosity};
use crate::settings::Environment;
use crate::types::Datatype;
use endpoints::{conflicts, problem_of_several};
use reader::{ArgumentReader, parse};
use target::target;

pub(super) use endpoints::is_folder;
pub(super) use engine::{EngineJob, resolve_engine};
pub(super) use target::RunTarget;

/// The resolved arguments.
#[derive(Debug)]
pub(super) struct ResolvedArgs {
    pub(super) target: RunTarget,
    /// At least one.
    pub(super) inputs: Vec<InputOrigin>,
    pub(super) format: SourceFormat,
    /// The format does not follow from a name.
    pub(super) is_format_given: bool,
    /// Datatypes of columns, by name.
    pub(super) column_types: Vec<(String, Datatype)>,
    pub(super) output: OutputTarget,
    pub(super) kafka: TopicOptions,
    pub(super) run: RunOptions,
    pub(super) verbosity: Verbosity,
    /// Problems that do not stop the command.
    pub(super) warnings: Vec<String>,
}

/// The problem of a comparison without a model.
const MODEL_REQUIRED: &str = "--model-name (or MLSERVER_INFER_MODEL_NAME) is required";

/// Resolves each option: an argument overrides its environment variable, which overrides the default.
///
/// # Errors
///
/// Fails with all problems at once.
pub(super) fn resolve(args: &InferArgs, environment: &dyn Environment) -> Result<ResolvedArgs, CommandError> {
    let variables = environment.variables().into_iter().collect();
    let mut reader = ArgumentReader { variables, problems: Vec::new() };
    let (target, mut warnings) = target(args, &mut reader);
    let input = reader.value(args.input_data_path.first().cloned(), &InferVariable::INPUT_DATA_PATH, parse);
    let input = reader.required(input, "--input-data-path", &InferVariable::INPUT_DATA_PATH);
    let output = reader.value(args.output_data_path.clone(), &InferVariable::OUTPUT_DATA_PATH, parse);
    let output = reader.required(output, "--output-data-path", &InferVariable::OUTPUT_DATA_PATH);
    let (input, output) = (reader.input(input), reader.output(output));
    let others: Vec<_> =
        args.input_data_path.iter().skip(1).filter_map(|path| reader.input(Some(path.clone()))).collect();
    let has_topics = matches!(&input, Some(InputOrigin::Topic(_))) || matches!(&output, Some(OutputTarget::Topic(_)));
    let kafka = reader.kafka(args);
    if !has_topics && (args.kafka_group.is_some() || !args.kafka_config.is_empty()) {
        warnings
            .push("--kafka-group and --kafka-config have no effect without an input or output at kafka://".to_owned());
    }
    if args.embedded.is_some() && args.timeout.is_some() && !has_topics {
        warnings.push("--timeout has no effect with --embedded".to_owned());
    }
    let workers = reader.value(args.workers, &InferVariable::WORKERS, parse);
    let max_workers = reader.value(args.max_workers, &InferVariable::MAX_WORKERS, parse);
    let attempts = reader.value(args.retries, &InferVariable::RETRIES, parse).unwrap_or(defaults::RETRIES);
    let format = reader.format(args, input.as_ref());
    let target = match target {
        Some(target) if format == SourceFormat::OpenAi => reader.openai(target, output.as_ref()),
        target => target,
    };
    let column_types = reader.column_types(&args.column_types, format);
    let outputs = reader.outputs(&args.outputs, format);
    let is_embedded = matches!(&target, Some(RunTarget::Embedded { .. }));
    let batch_size = reader.batch_size(args, format, is_embedded, &mut warnings);
    let spacing = RequestSpacing {
        interval: reader
            .seconds(args.batch_interval, "--batch-interval", &InferVariable::BATCH_INTERVAL)
            .unwrap_or_default(),
        jitter: reader.seconds(args.batch_jitter, "--batch-jitter", &InferVariable::BATCH_JITTER).unwrap_or_default(),
    };
    let rows_per_second = reader.value(args.rate, &InferVariable::RATE, parse);
    if rows_per_second.is_some_and(|rate: f64| !(rate > 1e-6 && rate.is_finite())) {
        reader.problems.push("--rate: expected a positive number of rows per second".to_owned());
    }
    let is_extra = args.extra_verbose || args.verbose > 1;
    let extra = reader.flag(is_extra, args.no_verbose, &InferVariable::EXTRA_VERBOSE);
    let verbose = reader.flag(args.verbose > 0, args.no_verbose, &InferVariable::VERBOSE);
    if let (Some(workers), Some(max)) = (workers, max_workers)
        && workers > max
    {
        reader.problems.push(format!("--max-workers ({max}) is less than --workers ({workers})"));
    }
    let is_format_given = args.input_format.is_some() || reader.variable(&InferVariable::INPUT_FORMAT).is_some();
    if let Some(output) = &output {
        reader.problems.extend(conflicts(args.resume, input.as_ref(), output));
        for other in &others {
            reader.problems.extend(conflicts(false, Some(other), output));
        }
        reader.problems.extend(problem_of_several(input.as_ref(), &others, output));
    }
    // Each of them is present, or a problem has been recorded.
    let (Some(target), Some(input), Some(output), []) = (target, input, output, &*reader.problems) else {
        return Err(CommandError { error: anyhow!("{}", reader.problems.join("\n")), code: USAGE });
    };
    let (start, most) = match target {
        RunTarget::Server(..) | RunTarget::OnlyModel(..) | RunTarget::OpenAi(_) | RunTarget::Servers(..) => {
            (defaults::WORKERS, defaults::MAX_WORKERS)
        }
        RunTarget::Embedded { .. } => {
            // The next batch is prepared while all cores compute.
            let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).saturating_add(1);
            (cores, cores)
        }
    };
    let most = max_workers.unwrap_or_else(|| workers.unwrap_or(most));
    let verbosity = match (extra, verbose) {
        (true, _) => Verbosity::Extra,
        (false, true) => Verbosity::Verbose,
        (false, false) => Verbosity::Normal,
    };
    Ok(ResolvedArgs {
        target,
        inputs: std::iter::once(input).chain(others).collect(),
        format,
        is_format_given,
        column_types,
        output,
        kafka,
        run: RunOptions {
            batch_size,
            backoff: RetryPolicy { attempts },
            spacing,
            rows_per_second,
            concurrency: Concurrency::new(workers.unwrap_or(start), most),
            outputs,
            only_failures: false,
        },
        verbosity,
        warnings,
    })
}

/// Resolves the options of a comparison, as [`resolve`] does for each server.
///
/// # Errors
///
/// Fails with all problems at once.
pub(super) fn resolve_comparison(
    args: &CompareArgs,
    environment: &dyn Environment,
) -> Result<ResolvedArgs, CommandError> {
    let usage = |problem: String| CommandError { error: anyhow!("{problem}"), code: USAGE };
    let [first, second] = args.url.as_slice() else {
        let (count, verb) = (args.url.len(), if args.url.len() == 1 { "is" } else { "are" });
        return Err(usage(format!("--url: expected the addresses of two servers, but {count} {verb} given")));
    };
    for (flag, number) in
        [("--absolute-tolerance", args.absolute_tolerance), ("--relative-tolerance", args.relative_tolerance)]
    {
        if !(number >= 0.0 && number.is_finite()) {
            return Err(usage(format!("{flag}: invalid number `{number}`: expected 0 or more")));
        }
    }
    let tolerance = Tolerance { absolute: args.absolute_tolerance, relative: args.relative_tolerance };
    let mut resolved = resolve(&args.infer_args(first), environment)?;
    let other = resolve(&args.infer_args(second), environment)?;
    if matches!(&resolved.inputs[..], [InputOrigin::Topic(_), ..]) {
        return Err(usage("the input of a comparison is a file or standard input, not a topic".to_owned()));
    }
    resolved.target = match (resolved.target, other.target) {
        (RunTarget::Server(transport, first), RunTarget::Server(_, second)) => {
            RunTarget::Servers(transport, Box::new([*first, *second]), tolerance)
        }
        (RunTarget::OnlyModel(..), _) => return Err(usage(MODEL_REQUIRED.to_owned())),
        (RunTarget::OpenAi(_), _) => {
            return Err(usage(
                "the input of a comparison has V2 requests or rows, not those of OpenAI's API".to_owned(),
            ));
        }
        (target, _) => target,
    };
    resolved.run.only_failures = true;
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use clap::Args;
    use http::header::AUTHORIZATION;

    use super::*;
    use crate::remote::{Endpoint, TransportOptions};
    use crate::settings::env::MapEnvironment;

    pub(super) fn args() -> InferArgs {
        let path = |name: &str| Some(PathBuf::from(name));
        let (input_data_path, output_data_path) = (vec![PathBuf::from("in")], path("out"));
        InferArgs { model_name: Some("m".to_owned()), input_data_path, output_data_path, ..InferArgs::default() }
    }

    pub(super) fn environment(variables: &[(&str, &str)]) -> MapEnvironment {
        variables
            .iter()
            .fold(MapEnvironment::new("/"), |all, (name, value)| all.with(&format!("MLSERVER_INFER_{name}"), value))
    }

    fn server(resolved: &ResolvedArgs) -> &TransportOptions {
        let RunTarget::Server(_, options) = &resolved.target else { unreachable!("{resolved:?}") };
        options
    }

    pub(super) fn problems(args: &InferArgs, variables: &[(&str, &str)]) -> Vec<String> {
        let failure = resolve(args, &environment(variables)).unwrap_err();
        assert_eq!(failure.code, USAGE);
        failure.error.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn infer_defaults_match_the_original() {
        let resolved = resolve(&args(), &environment(&[])).unwrap();
        let options = server(&resolved);
        assert_eq!(options.endpoint, Endpoint::parse("localhost:8080", false).unwrap());
        assert_eq!((options.timeout.as_secs(), options.binary, options.headers.len()), (60, false, 0));
        let run = &resolved.run;
        assert_eq!((run.batch_size.get(), run.backoff.attempts.get(), run.concurrency.limit()), (1, 3, 10));
        assert_eq!((run.spacing, run.rows_per_second), (RequestSpacing::default(), None));
        let grpc = resolve(&args(), &environment(&[("TRANSPORT", "grpc")])).unwrap();
        assert_eq!(server(&grpc).endpoint, Endpoint::parse("localhost:8081", false).unwrap());
    }

    #[test]
    fn infer_variables_apply_without_flags() {
        let variables = [
            ("URL", "h:1"),
            ("MODEL_NAME", "other"),
            ("INPUT_DATA_PATH", "-"),
            ("OUTPUT_DATA_PATH", "-"),
            ("WORKERS", "4"),
            ("RETRIES", "7"),
            ("BATCH_SIZE", "9"),
            ("BINARY_DATA", "True"),
            ("EXTRA_VERBOSE", "yes"),
            ("REQUEST_HEADERS", "a:b c:d:e"),
            ("CONNECTION_TIMEOUT", "5"),
            ("BATCH_INTERVAL", "0.5"),
            ("BATCH_JITTER", "0.25"),
            ("USE_SSL", "1"),
            ("INSECURE", "on"),
        ];
        let all = resolve(&InferArgs::default(), &environment(&variables)).unwrap();
        assert_eq!(server(&all).endpoint, Endpoint::parse("h:1", true).unwrap());
        assert_eq!(
            (server(&all).model.as_str(), &all.inputs[0], &all.output),
            ("other", &InputOrigin::File("-".into()), &OutputTarget::Stdout)
        );
        assert_eq!((all.run.backoff.attempts.get(), all.run.batch_size.get(), all.run.concurrency.limit()), (7, 9, 4));
        assert!(server(&all).binary && server(&all).insecure && all.verbosity == Verbosity::Extra);
        assert!(server(&all).headers["a"] == "b" && server(&all).headers["c"] == "d:e");
        assert_eq!(server(&all).timeout.as_secs(), 5);
        let spacing = RequestSpacing { interval: Duration::from_millis(500), jitter: Duration::from_millis(250) };
        assert_eq!(all.run.spacing, spacing);
        let flag = resolve(&args(), &environment(&variables)).unwrap();
        assert_eq!(server(&flag).model, "m");
    }

    #[test]
    fn infer_all_problems_are_reported_at_once() {
        let key = Some(PathBuf::from("key.pem"));
        let wrong = InferArgs { timeout: Some(-1.0), rate: Some(0.0), resume: true, key, ..InferArgs::default() };
        let variables = [("WORKERS", "0"), ("USE_SSL", "maybe"), ("URL", "ftp://h"), ("OUTPUT_DATA_PATH", "-")];
        let expected = [
            "MLSERVER_INFER_USE_SSL: `maybe`: expected true or false",
            "--url: unsupported scheme `ftp` in `ftp://h`: expected `http`, `https`, or none",
            "--timeout: invalid duration `-1`: expected seconds, 0 or more",
            "--key: the certificate of the key is missing: set --cert",
            "--input-data-path (or MLSERVER_INFER_INPUT_DATA_PATH) is required",
            "MLSERVER_INFER_WORKERS: `0`: number would be zero for non-zero type",
            "--rate: expected a positive number of rows per second",
            "--resume: cannot resume a run that reads a file and writes to standard output; set --output-data-path to a file",
        ];
        assert_eq!(problems(&wrong, &variables), expected);
    }

    #[test]
    fn infer_every_variable_has_an_effect_and_its_help() {
        let shown = |variables: &[(&str, &str)]| format!("{:?}", resolve(&args(), &environment(variables)).unwrap());
        let all = |variables: &[(&str, &str)]| {
            format!("{:?}", resolve(&InferArgs::default(), &environment(variables)).unwrap())
        };
        let required = [("MODEL_NAME", "m"), ("INPUT_DATA_PATH", "in"), ("OUTPUT_DATA_PATH", "out")];
        assert_eq!(all(&required), shown(&[]));
        let command = InferArgs::augment_args(clap::Command::new("infer"));
        for variable in InferVariable::ALL {
            let name = variable.name.strip_prefix("MLSERVER_INFER_").unwrap();
            let value = match name {
                "INPUT_FORMAT" => "csv",
                "TRANSPORT" => "grpc",
                "REQUEST_HEADERS" => "a:b",
                "URL" => "h:1",
                "INPUT_DATA_PATH" | "OUTPUT_DATA_PATH" | "MODEL_NAME" | "MODEL_VERSION" | "CA" | "CERT" | "KEY" => {
                    "other"
                }
                "KAFKA_CONFIG" => r#"{"client.id":"mine"}"#,
                "BINARY_DATA" | "USE_SSL" | "INSECURE" | "HTTP2" | "VERBOSE" | "EXTRA_VERBOSE" => "yes",
                _ => "7",
            };
            if let Some(index) = required.iter().position(|(other, _)| *other == name) {
                let mut changed = required;
                changed[index].1 = value;
                assert_ne!(all(&changed), all(&required), "{name}");
            } else if name == "KEY" {
                // A key belongs to a certificate.
                let with_key = shown(&[("CERT", "other"), (name, value)]);
                assert_ne!(with_key, shown(&[("CERT", "other")]), "{name}");
            } else {
                assert_ne!(shown(&[(name, value)]), shown(&[]), "{name}");
            }
            let argument = command.get_arguments().find(|arg| arg.get_id() == variable.argument).unwrap();
            let help = argument.get_help().unwrap().to_string();
            assert!(help.contains(variable.name) && help.contains("[env: MLSERVER_INFER_"), "{help}");
            assert!(!argument.is_hide_set(), "{name}");
        }
        for argument in command.get_arguments() {
            let text = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let has_variable = InferVariable::ALL.iter().any(|variable| argument.get_id() == variable.argument);
            assert_eq!(text.contains("[env:"), has_variable, "{text}");
            assert!(argument.get_help_heading().is_some(), "{text}");
        }
    }

    #[test]
    fn infer_token_is_a_header_that_others_override() {
        let given = |token: &str| InferArgs { token: Some(token.to_owned()), ..args() };
        let sent = |args: &InferArgs, variables: &[(&str, &str)]| {
            let resolved = resolve(args, &environment(variables)).unwrap();
            assert!(!format!("{resolved:?}").contains("secret"), "{resolved:?}");
            server(&resolved).headers[AUTHORIZATION].to_str().unwrap().to_owned()
        };
        assert_eq!(sent(&given("secret"), &[("TOKEN", "secret2")]), "Bearer secret");
        assert_eq!(sent(&args(), &[("TOKEN", " secret2\n")]), "Bearer secret2");
        let header = InferArgs { request_headers: vec!["authorization: Basic secret".to_owned()], ..given("secret3") };
        assert_eq!(sent(&header, &[]), "Basic secret");
        assert_eq!(problems(&given("secret\u{7f}"), &[]), ["--token: expected printable ASCII characters"]);
    }

    #[test]
    fn infer_flags_can_be_switched_off() {
        #[derive(Debug, clap::Parser)]
        struct Parsed {
            #[command(flatten)]
            args: InferArgs,
        }
        let names = ["BINARY_DATA", "USE_SSL", "INSECURE", "HTTP2", "VERBOSE", "EXTRA_VERBOSE"];
        let variables: Vec<_> = names.into_iter().map(|name| (name, "1")).collect();
        let resolved = |flags: &[&str], variables: &[(&str, &str)]| {
            let flags = ["infer", "-m", "m", "-i", "in", "-o", "out"].iter().chain(flags);
            let Parsed { args } = clap::Parser::try_parse_from(flags).unwrap();
            let resolved = resolve(&args, &environment(variables)).unwrap();
            let options = server(&resolved);
            let tls = options.endpoint.is_tls();
            ([options.binary, tls, options.insecure, options.http2], resolved.verbosity)
        };
        let off = ["--no-binary-data", "--no-use-ssl", "--no-insecure", "--no-http2", "--no-verbose"];
        let on = ["--binary-data", "--use-ssl", "--insecure", "--http2", "-vv"];
        assert_eq!(resolved(&[], &variables), ([true; 4], Verbosity::Extra));
        assert_eq!(resolved(&off, &variables), ([false; 4], Verbosity::Normal));
        assert_eq!(resolved(&[off, on].concat(), &[]), ([true; 4], Verbosity::Extra), "the last one counts");
        assert_eq!(resolved(&[on, off].concat(), &variables), ([false; 4], Verbosity::Normal));
    }

    #[test]
    fn infer_embedded_ignores_variables_for_servers() {
        let args = InferArgs { embedded: Some("models".into()), timeout: Some(1.0), ..args() };
        let resolved = resolve(&args, &environment(&[("URL", "ftp://h"), ("USE_SSL", "maybe")])).unwrap();
        assert_eq!(resolved.target.to_string(), "model `m` of the folder `models`, in this process");
        assert_eq!(resolved.warnings, ["--timeout has no effect with --embedded"]);
    }

    #[test]
    fn infer_timeout_of_zero_is_rejected() {
        let problem = "--timeout: invalid duration `0`: expected more than 0 seconds";
        assert_eq!(problems(&InferArgs { timeout: Some(0.0), ..args() }, &[]), [problem]);
        assert_eq!(problems(&args(), &[("CONNECTION_TIMEOUT", "0")]), [problem]);
    }

    #[test]
    fn infer_invalid_headers_are_ignored() {
        let headers = vec!["A: b: c".to_owned(), "nothing".to_owned(), "Authorization Bearer: s3cret".to_owned()];
        let resolved = resolve(&InferArgs { request_headers: headers, ..args() }, &environment(&[])).unwrap();
        assert_eq!(server(&resolved).headers["a"], "b: c");
        let expected = "ignoring invalid header `nothing`: expected `NAME: VALUE`";
        assert_eq!((resolved.warnings.len(), resolved.warnings[0].as_str()), (2, expected));
        assert!(!resolved.warnings[1].contains("s3cret"), "{}", resolved.warnings[1]);
    }
}
