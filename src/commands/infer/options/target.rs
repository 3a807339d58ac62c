//! Where requests go.

use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use http::header::AUTHORIZATION;

use super::reader::{ArgumentReader, parse};
use crate::cli::infer::{InferArgs, InferVariable, Transport, defaults};
use crate::client::{OutputTarget, Tolerance, has_columns};
use crate::commands::embedded::shown;
use crate::remote::{Endpoint, TransportOptions};

/// Where requests go.
#[derive(Debug)]
pub(in crate::commands::infer) enum RunTarget {
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

/// Resolves the target of the run, with warnings. The target is `None` if a problem was recorded.
pub(super) fn target(args: &InferArgs, reader: &mut ArgumentReader) -> (Option<RunTarget>, Vec<String>) {
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
                write!(f, "{model} of the {kind} `{}`, in this process", shown(folder))
            }
        }
    }
}

impl ArgumentReader {
    /// Returns the target for a batch of OpenAI's API.
    pub(super) fn openai(&mut self, target: RunTarget, output: Option<&OutputTarget>) -> Option<RunTarget> {
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
}
