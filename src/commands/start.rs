//! `mlserver start`: serve the models of a folder until a signal.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::custom_repository::InPython;
use super::{CommandError, FAILURE, FORCED, USAGE};
use crate::admin::Admin;
use crate::cli::start::StartArgs;
use crate::compute::ComputePool;
use crate::inference::{BatchingLoader, CacheOptions, Inference, ResponseCache};
use crate::registry::{BudgetLoader, Registry, RuntimeLoader, chain};
use crate::repository::{Discovery, Repository};
use crate::runtimes::python::{self, Python};
use crate::server::grpc::{self, GrpcMetrics};
use crate::server::rest::{self, RestMetrics};
use crate::server::{self, bind};
use crate::settings::env::{ENV_TARBALL, KSERVE_MODELS_DIR, MODELS_DIR};
use crate::settings::{
    Environment, Loaded, LoggingSettings, ModelSettings, Settings, Sources, SystemEnvironment, Warning,
};
use crate::shutdown::Signals;
use crate::telemetry::inference::InferenceMetrics;
use crate::telemetry::logging::{self, LogFormat};
use crate::telemetry::memory::MemoryMetrics;
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::telemetry::traces::Traces;
use crate::telemetry::workers::WorkerMetrics;
use crate::types::ServerMetadata;

/// What metadata calls the binary tensor data extension.
const BINARY_EXTENSION: &str = "binary_tensor_data";

/// What to start.
struct Start {
    folder: PathBuf,
    strict: bool,
}

impl Start {
    /// Takes the folder from the arguments, else from the variables that images set.
    fn new(args: &StartArgs, environment: &dyn Environment) -> Result<Self, CommandError> {
        let variables = environment.variables();
        let variable = |name: &str| variables.iter().find(|(n, value)| n == name && !value.is_empty());
        let of_image = || variable(MODELS_DIR).or_else(|| variable(KSERVE_MODELS_DIR)).map(|(_, path)| path.into());
        let Some(folder) = args.folder.clone().or_else(of_image) else {
            let error = anyhow!("no FOLDER is given, and neither `{MODELS_DIR}` nor `{KSERVE_MODELS_DIR}` names one");
            return Err(CommandError { error, code: USAGE });
        };
        Ok(Self { folder, strict: args.strict })
    }
}

/// Runs `mlserver start`.
pub fn run(args: &StartArgs, environment: &dyn Environment) -> Result<(), CommandError> {
    let args = &Start::new(args, environment)?;
    let sources = Sources::read(environment)?;
    let loaded = Settings::load(&args.folder, &sources, args.strict)?;
    logging::start(LogFormat { structured: loaded.settings.use_structured_logging, debug: loaded.settings.debug });
    let repository = Repository::new(&args.folder, sources, args.strict);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let outcome = runtime.block_on(serve(loaded, repository, args));
    // What still computes has been given up already; nobody waits for it.
    runtime.shutdown_background();
    outcome
}

/// Finds the models, and says what is odd about their settings and the server's.
async fn discover(
    repository: &Repository,
    settings: &Settings,
    warnings: &[Warning],
    args: &Start,
) -> Result<Vec<ModelSettings>, CommandError> {
    let discovery = match repository.custom() {
        _ if !settings.load_models_at_startup => Discovery::default(),
        Some(custom) => repository.read(custom.list().await?),
        None => repository.discover(),
    };
    let of_models = discovery.models.iter().flat_map(|model| &model.warnings);
    let mut reported = Vec::new();
    for warning in warnings.iter().chain(of_models) {
        let message = warning.to_string();
        if !reported.contains(&message) {
            warn!("{message}");
            reported.push(message);
        }
    }
    for problem in &discovery.errors {
        error!("{}", chain(problem));
    }
    if args.strict && !discovery.errors.is_empty() {
        return Err(anyhow!("not every model in `{}` can be read", args.folder.display()).into());
    }
    if discovery.models.is_empty() && settings.load_models_at_startup {
        let reason = if args.folder.exists() { "holds no model settings" } else { "does not exist" };
        warn!("`{}` {reason}: no model is served.", args.folder.display());
    }
    Ok(discovery.models.into_iter().map(|model| model.settings).collect())
}

/// The parts of a server that is up.
struct Up {
    inference: Inference,
    admin: Admin,
    python: Python,
    /// Ends the listeners that answer requests, then the one that tells about them.
    stop_requests: CancellationToken,
    stop_metrics: CancellationToken,
    requests: JoinSet<()>,
    metrics: Option<JoinHandle<()>>,
}

async fn serve(loaded: Loaded<Settings>, repository: Repository, args: &Start) -> Result<(), CommandError> {
    let Loaded { settings, warnings, .. } = loaded;
    let mut metrics = MetricsRegistry::default();
    let python = Python::new(python_options(&settings, &repository, &mut metrics));
    let repository = match &settings.model_repository_implementation {
        Some(class) => {
            let custom = InPython::start(&python, class, &settings).await;
            let custom = custom.with_context(|| format!("cannot use the model repository `{class}`"))?;
            repository.with_custom(Arc::new(custom))
        }
        None => repository,
    };
    let models = discover(&repository, &settings, &warnings, args).await?;
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let patience = Patience { delay: settings.shutdown_delay, grace: settings.shutdown_grace_period };
    let exit_on_load_failure = settings.exit_on_load_failure;
    let up = listen(settings, &models, repository, (python, metrics)).await?;

    let loading = up.admin.load_at_start(models);
    let signal = tokio::select! {
        failed = loading => {
            if failed > 0 {
                error!("Some of the models failed to load during startup!");
                if exit_on_load_failure {
                    end(up, Patience { delay: Duration::ZERO, ..patience }, &mut signals).await?;
                    let error = anyhow!("{failed} of the models failed to load; `exit_on_load_failure` false serves the others");
                    return Err(CommandError { error, code: FAILURE });
                }
            }
            signals.next().await
        }
        signal = signals.next() => signal,
    };
    // Before the log says so.
    up.inference.leave();
    let (delay, grace) = (patience.delay.as_secs_f64(), patience.grace.as_secs_f64());
    if patience.delay.is_zero() {
        info!("Received {signal}: answering the requests under way, for at most {grace} s.");
    } else {
        info!(
            "Received {signal}: not ready, and answering for {delay} s; then the requests under way, for at most {grace} s."
        );
    }
    end(up, patience, &mut signals).await
}

/// Says how models in Python run.
pub(super) fn python_options(
    settings: &Settings,
    repository: &Repository,
    metrics: &mut MetricsRegistry,
) -> python::PythonOptions {
    let working_directory = repository.working_directory().to_owned();
    let folder = working_directory.join(&settings.model_repository_root);
    let variables: BTreeMap<String, String> = SystemEnvironment.variables().into_iter().collect();
    let tarball = variables.get(ENV_TARBALL).filter(|path| !path.is_empty());
    python::PythonOptions {
        workers: settings.parallel_workers,
        stop_timeout: settings.parallel_workers_timeout,
        hang_timeout: settings.worker_hang_timeout,
        interpreter: settings.python_executable.clone(),
        environment_tarball: tarball.map(PathBuf::from),
        environments_dir: settings.environments_dir.clone(),
        paths: vec![folder, working_directory.clone()],
        debug: settings.debug,
        logging: settings.logging_settings.clone().map(|logging| match logging {
            LoggingSettings::File(path) => working_directory.join(path).to_string_lossy().into_owned().into(),
            LoggingSettings::Config(config) => config.into(),
        }),
        working_directory,
        variables,
        metrics: WorkerMetrics::register(metrics),
    }
}

/// Opens every listener and serves it. Readiness waits for all of `models`.
async fn listen(
    settings: Settings,
    models: &[ModelSettings],
    repository: Repository,
    (python, mut metrics): (Python, MetricsRegistry),
) -> Result<Up, CommandError> {
    let compute = ComputePool::for_this_machine();
    let working_directory = repository.working_directory().to_owned();
    let loader = RuntimeLoader {
        compute: compute.clone(),
        working_directory: working_directory.clone(),
        python: python.clone(),
        is_reserved: rest::is_reserved,
    };
    let inference_metrics = InferenceMetrics::register(&mut metrics);
    let traces = Traces::start(settings.tracing_server.as_deref(), &settings.server_name, &settings.server_version)
        .context("no traces can be taken")?;
    let loader = BatchingLoader::new(loader, inference_metrics.clone(), traces.clone());
    let registry = match settings.models_max_bytes {
        None => Registry::new(loader, inference_metrics),
        Some(bytes) => {
            let metrics = MemoryMetrics::register(&mut metrics);
            Registry::new(BudgetLoader::new(loader, bytes, working_directory, metrics), inference_metrics)
        }
    };
    for model in models {
        registry.announce(model);
    }
    let admin = Admin::new(registry.clone(), repository);
    let mut inference =
        Inference::new(registry, settings.max_in_flight).with_server_timing(settings.server_timing).with_traces(traces);
    if let Some(options) = cache_options(&settings) {
        inference = inference.with_cache(ResponseCache::new(options, compute.clone(), &mut metrics));
    }
    let (rest_metrics, grpc_metrics) = if settings.metrics_endpoint.is_some() {
        let rest_metrics = RestMetrics::register(&mut metrics, &settings.metrics_rest_server_prefix);
        (Some(rest_metrics), Some(GrpcMetrics::register(&mut metrics)))
    } else {
        (None, None)
    };
    let metadata = ServerMetadata {
        name: settings.server_name,
        version: settings.server_version,
        extensions: extensions(settings.extensions),
    };
    let grpc_options =
        grpc::Options { metadata: metadata.clone(), max_message_length: settings.grpc_max_message_length };
    let cors = settings.cors_settings.as_ref().map(rest::cors_layer).transpose()?;
    let rest_options = rest::Options {
        metadata,
        root_path: settings.root_path,
        max_body_bytes: settings.http_max_body_bytes.get(),
        gzip: settings.gzip_enabled,
        cors,
        non_finite: settings.non_finite_json,
        overload_as_429: settings.overload_as_429,
    };
    let rest_listener = bind("HTTP", &settings.host, settings.http_port).await?;
    let grpc_listener = bind("gRPC", &settings.host, settings.grpc_port).await?;
    let metrics_listener = match &settings.metrics_endpoint {
        Some(endpoint) => Some((bind("metrics", &settings.host, settings.metrics_port).await?, endpoint)),
        None => None,
    };

    let (stop_requests, stop_metrics) = (CancellationToken::new(), CancellationToken::new());
    let header_timeout = settings.http_header_timeout;
    let mut requests = JoinSet::new();
    info!("HTTP server running on http://{}", address(&rest_listener));
    let app = rest::service(inference.clone(), admin.clone(), compute.clone(), rest_metrics, rest_options);
    requests.spawn(server::serve(rest_listener, app, header_timeout, stop_requests.clone()));
    info!("gRPC server running on http://{}", address(&grpc_listener));
    let app = grpc::service(inference.clone(), admin.clone(), compute, grpc_metrics, grpc_options);
    requests.spawn(server::serve(grpc_listener, app, header_timeout, stop_requests.clone()));
    let metrics = metrics_listener.map(|(listener, endpoint)| {
        let address = address(&listener);
        info!("Metrics server running on http://{address}");
        info!("Prometheus scraping endpoint can be accessed on http://{address}{endpoint}");
        let models = python.expositions().clone();
        let metrics = server::metrics::Metrics { registry: metrics, models, source: Arc::new(python.clone()) };
        let app = server::metrics::service(endpoint, metrics);
        tokio::spawn(server::serve(listener, app, header_timeout, stop_metrics.clone()))
    });
    Ok(Up { inference, admin, python, stop_requests, stop_metrics, requests, metrics })
}

/// Returns the extensions of the protocol that are served: ours, and what the settings add.
fn extensions(mut of_settings: Vec<String>) -> Vec<String> {
    let ours = BINARY_EXTENSION.to_owned();
    if !of_settings.contains(&ours) {
        of_settings.insert(0, ours);
    }
    of_settings
}

fn cache_options(settings: &Settings) -> Option<CacheOptions> {
    let entries = NonZeroUsize::new(settings.cache_size).filter(|_| settings.cache_enabled)?;
    Some(CacheOptions { entries, max_bytes: settings.cache_max_bytes, ttl: settings.cache_ttl })
}

fn address(listener: &TcpListener) -> String {
    listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string())
}

/// How long the end may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// While the server answers as ever, but is not ready, so that whoever sends requests notices in time.
    delay: Duration,
    /// For the requests that are under way then.
    grace: Duration,
}

/// Ends the server: not ready, after the delay no new requests, then an answer to those under way.
///
/// # Errors
///
/// A second signal ends it at once, which is a failure of its own because requests may be lost.
async fn end(mut up: Up, patience: Patience, signals: &mut Signals) -> Result<(), CommandError> {
    let inference = up.inference.clone();
    let orderly = async {
        up.inference.leave();
        up.admin.stop();
        tokio::time::sleep(patience.delay).await;
        up.inference.stop();
        up.stop_requests.cancel();
        let drained = async {
            // One fails only when it has panicked, and then there is nothing left to wait for.
            while up.requests.join_next().await.is_some() {}
            up.stop_metrics.cancel();
            if let Some(metrics) = up.metrics {
                let _ = metrics.await;
            }
            up.python.stop().await;
            let traces = up.inference.traces().clone();
            // Fails only when it panics, and then the spans are lost.
            let _ = tokio::task::spawn_blocking(move || traces.end()).await;
        };
        tokio::time::timeout(patience.grace, drained).await
    };
    tokio::select! {
        outcome = orderly => match outcome {
            Ok(()) => info!("Stopped."),
            Err(_) => {
                warn!("Stopped with {} requests under way: `shutdown_grace_period` is over.", inference.in_flight());
            }
        },
        signal = signals.next() => {
            let error = anyhow!("stopped at once by a second signal ({signal}), with {} requests under way", inference.in_flight());
            return Err(CommandError { error, code: FORCED });
        }
    }
    Ok(())
}
