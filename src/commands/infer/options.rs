//! Resolves arguments and environment variables into the options of a run.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::{self, File, Metadata};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::anyhow;
use clap::ValueEnum;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::cli::compare::CompareArgs;
use crate::cli::infer::{InferArgs, InferVariable, InputFormat, Transport, defaults};
use crate::client::{
    Concurrency, InputOrigin, OutputTarget, RequestSpacing, RunOptions, SourceFormat, Tolerance, TopicAddress,
    TopicOptions, has_columns, is_openai_batch, output_files,
};
use crate::commands::{CommandError, USAGE};
use crate::remote::{Endpoint, RetryPolicy, TransportOptions, Verbosity};
use crate::repository::is_store_uri;
use crate::settings::Environment;
use crate::types::{Datatype, RequestedOutput, without_credentials};

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

/// Where requests go.
#[derive(Debug)]
pub(super) enum RunTarget {
    Server(Transport, Box<TransportOptions>),
    /// The options lack the name of the model, which the server tells.
    OnlyModel(Transport, Box<TransportOptions>),
    /// The lines are requests of OpenAI's API. The name of the model is empty unless it overrides theirs.
    OpenAi(Box<TransportOptions>),
    /// Both servers, to compare their answers.
    Servers(Transport, Box<[TransportOptions; 2]>, Tolerance),
    /// The model of a folder, with a name if the folder has several.
    Embedded {
        folder: PathBuf,
        model: Option<String>,
        version: Option<String>,
    },
}

/// Reads arguments and environment variables, and collects their problems.
struct ArgumentReader {
    variables: BTreeMap<String, String>,
    problems: Vec<String>,
}

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

/// Reports whether an output is a folder, which has the answers to each input in a file of its own.
pub(super) fn is_folder(output: &Path) -> bool {
    output.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Returns what is wrong with several inputs.
fn problem_of_several(first: Option<&InputOrigin>, others: &[InputOrigin], output: &OutputTarget) -> Option<String> {
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
fn conflicts(resume: bool, input: Option<&InputOrigin>, output: &OutputTarget) -> Vec<String> {
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

impl From<InputFormat> for SourceFormat {
    fn from(format: InputFormat) -> Self {
        match format {
            InputFormat::Requests => Self::Requests,
            InputFormat::Openai => Self::OpenAi,
            InputFormat::Rows => Self::Objects,
            InputFormat::Csv => Self::Delimited(b','),
            InputFormat::Tsv => Self::Delimited(b'\t'),
            InputFormat::Npy => Self::Npy,
            InputFormat::Parquet => Self::Parquet,
        }
    }
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse::<T>().map_err(|error| error.to_string())
}

/// Resolves the target of the run, with warnings. The target is `None` if a problem was recorded.
fn target(args: &InferArgs, reader: &mut ArgumentReader) -> (Option<RunTarget>, Vec<String>) {
    let model: Option<String> = reader.value(args.model_name.clone(), &InferVariable::MODEL_NAME, parse);
    let version = reader.value(args.model_version.clone(), &InferVariable::MODEL_VERSION, parse);
    if let Some(folder) = args.embedded.clone() {
        return (Some(RunTarget::Embedded { folder, model, version }), Vec::new());
    }
    let transport = reader.value(args.transport, &InferVariable::TRANSPORT, |text| Transport::from_str(text, true));
    let transport = transport.unwrap_or_default();
    let use_ssl = reader.flag(args.use_ssl, args.no_use_ssl, &InferVariable::USE_SSL);
    let insecure = reader.flag(args.insecure, args.no_insecure, &InferVariable::INSECURE);
    let url: Option<String> = reader.value(args.url.clone(), &InferVariable::URL, parse);
    let url = url.unwrap_or_else(|| match transport {
        Transport::Rest => defaults::URL.to_owned(),
        Transport::Grpc => defaults::GRPC_URL.to_owned(),
    });
    let endpoint = reader.checked(Endpoint::parse(&url, use_ssl).map_err(|error| format!("--url: {error}")));
    let (mut headers, warnings) = reader.headers(&args.request_headers);
    if let Some(authorization) = reader.token(args.token.as_deref()) {
        // A header that is given overrides it, as it overrides the credentials of the address.
        headers.entry(AUTHORIZATION).or_insert(authorization);
    }
    let timeout = reader.seconds(args.timeout, "--timeout", &InferVariable::CONNECTION_TIMEOUT);
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        reader.problems.push("--timeout: invalid duration `0`: expected more than 0 seconds".to_owned());
    }
    let timeout = timeout.unwrap_or(defaults::TIMEOUT);
    let binary = reader.flag(args.binary_data, args.no_binary_data, &InferVariable::BINARY_DATA);
    let http2 = reader.flag(args.http2, args.no_http2, &InferVariable::HTTP2);
    let ca = reader.value(args.ca.clone(), &InferVariable::CA, parse);
    let certificate = reader.value(args.cert.clone(), &InferVariable::CERT, parse);
    let key: Option<PathBuf> = reader.value(args.key.clone(), &InferVariable::KEY, parse);
    if key.is_some() && certificate.is_none() {
        reader.problems.push("--key: the certificate of the key is missing: set --cert".to_owned());
    }
    let target = match endpoint {
        Some(endpoint) => {
            let is_named = model.is_some();
            let options = TransportOptions {
                endpoint,
                model: model.unwrap_or_default(),
                version,
                headers,
                binary,
                timeout,
                insecure,
                ca,
                certificate,
                key,
                http2,
            };
            let options = Box::new(options);
            Some(if is_named {
                RunTarget::Server(transport, options)
            } else {
                RunTarget::OnlyModel(transport, options)
            })
        }
        None => None,
    };
    (target, warnings)
}

impl fmt::Display for RunTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |model: &str, version: &Option<String>| match version {
            Some(version) => format!("model `{model}`, version `{version}`,"),
            None => format!("model `{model}`"),
        };
        let protocol = |transport: &Transport| match transport {
            Transport::Rest => "REST",
            Transport::Grpc => "gRPC",
        };
        match self {
            Self::Servers(transport, servers, _) => {
                let ([first, second], transport) = (&**servers, protocol(transport));
                let model = named(&first.model, &first.version);
                let (first, second) = (first.endpoint.shown(), second.endpoint.shown());
                write!(f, "{model} of the servers at {first} and {second} ({transport})")
            }
            Self::Server(transport, options) => {
                let transport = protocol(transport);
                let model = named(&options.model, &options.version);
                write!(f, "{model} of the server at {} ({transport})", options.endpoint.shown())
            }
            Self::OpenAi(options) => {
                let models = match &*options.model {
                    "" => "the models that the lines name,".to_owned(),
                    model => format!("model `{model}`"),
                };
                write!(f, "{models} of the server at {} (OpenAI's API)", options.endpoint.shown())
            }
            Self::OnlyModel(transport, options) => {
                write!(f, "the only model of the server at {} ({})", options.endpoint.shown(), protocol(transport))
            }
            Self::Embedded { folder, model, version } => {
                let model = model.as_ref().map_or_else(|| "the model".to_owned(), |model| named(model, version));
                let kind = if folder.is_file() { "file" } else { "folder" };
                write!(f, "{model} of the {kind} `{}`, in this process", folder.display())
            }
        }
    }
}

/// Returns the file of the output that is the input, too, under whatever names.
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
    fn variable(&self, variable: &InferVariable) -> Option<&str> {
        // An empty variable counts as unset, as in the original.
        self.variables.get(variable.name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the argument, or the value of the environment variable if there is no argument.
    fn value<T>(
        &mut self,
        given: Option<T>,
        variable: &InferVariable,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if given.is_some() {
            return given;
        }
        let text = self.variable(variable)?;
        let value = parse(text).map_err(|error| format!("{}: `{text}`: {error}", variable.name));
        self.checked(value)
    }

    fn checked<T>(&mut self, value: Result<T, String>) -> Option<T> {
        value.map_err(|problem| self.problems.push(problem)).ok()
    }

    fn required<T>(&mut self, value: Option<T>, flag: &str, variable: &InferVariable) -> Option<T> {
        let is_set = self.variable(variable).is_some();
        if value.is_none() && !is_set {
            self.problems.push(format!("{flag} (or {}) is required", variable.name));
        }
        value
    }

    /// Reads a flag that may be given or switched off. Its environment variable has one of the original's words for true and
    /// false.
    fn flag(&mut self, given: bool, is_off: bool, variable: &InferVariable) -> bool {
        let read = |text: &str| match text.trim().to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
            _ => Err("expected true or false".to_owned()),
        };
        self.value((given || is_off).then_some(given), variable, read).unwrap_or(false)
    }

    fn seconds(&mut self, given: Option<f64>, flag: &str, variable: &InferVariable) -> Option<Duration> {
        let seconds = self.value(given, variable, parse)?;
        let time = Duration::try_from_secs_f64(seconds);
        self.checked(time.map_err(|_| format!("{flag}: invalid duration `{seconds}`: expected seconds, 0 or more")))
    }

    fn input(&mut self, path: Option<PathBuf>) -> Option<InputOrigin> {
        let path = path?;
        match TopicAddress::of_path(&path) {
            Some(address) => self.topic(address, "--input-data-path").map(InputOrigin::Topic),
            None => Some(InputOrigin::File(path)),
        }
    }

    fn output(&mut self, path: Option<PathBuf>) -> Option<OutputTarget> {
        let path = path?;
        match TopicAddress::of_path(&path) {
            Some(address) => self.topic(address, "--output-data-path").map(OutputTarget::Topic),
            None if path == Path::new("-") => Some(OutputTarget::Stdout),
            None => Some(OutputTarget::File(path)),
        }
    }

    fn format(&mut self, args: &InferArgs, input: Option<&InputOrigin>) -> SourceFormat {
        let given =
            self.value(args.input_format, &InferVariable::INPUT_FORMAT, |text| InputFormat::from_str(text, true));
        let format = match (given, input) {
            (None, Some(InputOrigin::File(path))) => match SourceFormat::of(path) {
                SourceFormat::Requests if is_openai_batch(path) => SourceFormat::OpenAi,
                format => format,
            },
            (None, _) => SourceFormat::Requests,
            (Some(format), _) => SourceFormat::from(format),
        };
        if matches!(input, Some(InputOrigin::Topic(_))) && format != SourceFormat::Requests {
            self.problems.push("--input-format: the records of a topic are requests".to_owned());
        }
        format
    }

    fn batch_size(
        &mut self,
        args: &InferArgs,
        format: SourceFormat,
        is_embedded: bool,
        warnings: &mut Vec<String>,
    ) -> NonZeroUsize {
        let given = self.value(args.batch_size, &InferVariable::BATCH_SIZE, parse);
        match given {
            Some(size) if format == SourceFormat::OpenAi && size > NonZeroUsize::MIN => {
                let message = "--batch-size has no effect on a batch of OpenAI's API, whose lines are requests";
                warnings.push(message.to_owned());
                NonZeroUsize::MIN
            }
            Some(size) => size,
            None if !format.is_table() => NonZeroUsize::MIN,
            None if is_embedded => defaults::EMBEDDED_BATCH_SIZE,
            None => defaults::TABLE_BATCH_SIZE,
        }
    }

    /// Returns the target for a batch of OpenAI's API.
    fn openai(&mut self, target: RunTarget, output: Option<&OutputTarget>) -> Option<RunTarget> {
        let mut refuse = |what: &str| {
            self.problems.push(format!("{what} (--input-format says if the input is one)"));
            None
        };
        match output {
            Some(OutputTarget::Topic(_)) => return refuse("a batch of OpenAI's API has no topic as output"),
            Some(OutputTarget::File(path)) if has_columns(path) => {
                return refuse(
                    "the answers to a batch of OpenAI's API are JSON Lines: name an output such as answers.jsonl",
                );
            }
            _ => {}
        }
        match target {
            RunTarget::Embedded { .. } => refuse("a batch of OpenAI's API needs a server, and --embedded starts none"),
            RunTarget::Server(Transport::Grpc, _) | RunTarget::OnlyModel(Transport::Grpc, _) => {
                refuse("a batch of OpenAI's API is sent over REST, not gRPC")
            }
            RunTarget::Server(_, mut options) | RunTarget::OnlyModel(_, mut options) => {
                if let Some(version) = options.version.take() {
                    if options.model.is_empty() {
                        return refuse("--model-version of a batch of OpenAI's API needs --model-name");
                    }
                    options.model = format!("{}@{version}", options.model);
                }
                Some(RunTarget::OpenAi(options))
            }
            target => Some(target),
        }
    }

    fn topic(&mut self, address: Result<TopicAddress, String>, flag: &str) -> Option<TopicAddress> {
        self.checked(address.map_err(|problem| format!("{flag}: {problem}")))
    }

    /// Reads how to connect to topics. No message has the value of a property, which may be secret.
    fn kafka(&mut self, args: &InferArgs) -> TopicOptions {
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

    /// Returns the outputs to request for rows and tables.
    fn outputs(&mut self, given: &[String], format: SourceFormat) -> Vec<RequestedOutput> {
        if !given.is_empty() && matches!(format, SourceFormat::Requests | SourceFormat::OpenAi) {
            let message =
                "--outputs applies to rows and tables; lines that are requests name their outputs in `outputs`";
            self.problems.push(message.to_owned());
        }
        if given.iter().any(|name| name.trim().is_empty()) {
            self.problems
                .push("--outputs: expected names of outputs, separated by commas, but one is empty".to_owned());
        }
        let output = |name: &String| RequestedOutput { name: name.trim().to_owned(), ..RequestedOutput::default() };
        given.iter().map(output).collect()
    }

    fn column_types(&mut self, given: &[String], format: SourceFormat) -> Vec<(String, Datatype)> {
        if !(given.is_empty() || matches!(format, SourceFormat::Delimited(_) | SourceFormat::Objects)) {
            let message = "--column-type applies only to the input formats csv, tsv and rows";
            self.problems.push(message.to_owned());
            return Vec::new();
        }
        let read = |entry: &String| {
            let wrong = |reason: &dyn Display| format!("--column-type: `{entry}`: {reason}");
            let (name, datatype) = entry.rsplit_once('=').ok_or_else(|| wrong(&"expected COLUMN=DATATYPE"))?;
            match datatype.parse().map_err(|error| wrong(&error))? {
                Datatype::Fp16 | Datatype::Bf16 => Err(wrong(&"half precision is not supported for text; use FP32")),
                datatype => Ok((name.to_owned(), datatype)),
            }
        };
        given.iter().filter_map(|entry| self.checked(read(entry))).collect()
    }

    /// Reads headers. An invalid one is ignored with a warning, as in the original.
    /// Returns the header with the token. No message has the token.
    fn token(&mut self, given: Option<&str>) -> Option<HeaderValue> {
        let of_variable = self.variable(&InferVariable::TOKEN).map(str::to_owned);
        let token = given.map(str::to_owned).or(of_variable)?;
        let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
        let invalid = |_| "--token: expected printable ASCII characters".to_owned();
        let mut header = self.checked(header.map_err(invalid))?;
        header.set_sensitive(true);
        Some(header)
    }

    fn headers(&mut self, given: &[String]) -> (HeaderMap, Vec<String>) {
        let of_variable: Vec<String>;
        let entries = if given.is_empty() {
            let text = self.variable(&InferVariable::REQUEST_HEADERS).unwrap_or_default();
            of_variable = text.split_whitespace().map(str::to_owned).collect();
            &of_variable
        } else {
            given
        };
        let (mut headers, mut warnings) = (HeaderMap::new(), Vec::new());
        for entry in entries {
            let pair = entry.split_once(':').and_then(|(name, value)| {
                let mut value: HeaderValue = value.trim().parse().ok()?;
                // Tokens are sent but never shown.
                value.set_sensitive(true);
                Some((name.trim().parse::<HeaderName>().ok()?, value))
            });
            // The rest of an invalid header may be a token.
            let shown = entry.split([':', ' ']).next().unwrap_or_default();
            match pair {
                Some((name, value)) => drop(headers.append(name, value)),
                None => warnings.push(format!("ignoring invalid header `{shown}`: expected `NAME: VALUE`")),
            }
        }
        (headers, warnings)
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
    use clap::Args;

    use super::*;
    use crate::settings::env::MapEnvironment;

    fn args() -> InferArgs {
        let path = |name: &str| Some(PathBuf::from(name));
        let (input_data_path, output_data_path) = (vec![PathBuf::from("in")], path("out"));
        InferArgs { model_name: Some("m".to_owned()), input_data_path, output_data_path, ..InferArgs::default() }
    }

    fn environment(variables: &[(&str, &str)]) -> MapEnvironment {
        variables
            .iter()
            .fold(MapEnvironment::new("/"), |all, (name, value)| all.with(&format!("MLSERVER_INFER_{name}"), value))
    }

    fn server(resolved: &ResolvedArgs) -> &TransportOptions {
        let RunTarget::Server(_, options) = &resolved.target else { unreachable!("{resolved:?}") };
        options
    }

    fn problems(args: &InferArgs, variables: &[(&str, &str)]) -> Vec<String> {
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
