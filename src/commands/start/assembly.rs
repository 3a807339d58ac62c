//! Putting a server together from its settings: the models' path, and the listeners in front of it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use tracing::warn;

use super::descriptors;
use super::parts::{ConnectionTables, ServerParts};
use super::port_file::ListenerAddresses;
use crate::access::{Access, AccessFiles, AccessMetrics};
use crate::admin::Admin;
use crate::commands::CommandError;
use crate::compute::ComputePool;
use crate::console::Console;
use crate::inference::{BatchingLoader, CacheOptions, Inference, ResponseCache, StreamLimits};
use crate::registry::{BudgetLoader, FetchingLoader, ModelFetcher, Registry, RegistryDirectory, RuntimeLoader};
use crate::repository::Repository;
use crate::runtimes::GraphResources;
use crate::runtimes::python::{self, Python};
use crate::runtimes::workers::WorkerOptions;
use crate::server::grpc::{self, GrpcMetrics, GrpcService};
use crate::server::metrics::MetricsService;
use crate::server::rest::{self, RestMetrics, RestService};
use crate::server::{
    self, ConnectionLimits, ConnectionMetrics, ConnectionTable, DrainStage, ForwardedHeaders, HttpService,
    IncomingBody, Listener, Port, RepositoryAccess, RunningListeners,
};
use crate::settings::env::ENV_TARBALL;
use crate::settings::{CloudEventVariables, Environment, LogLevel, LoggingSettings, ModelSettings, Settings};
use crate::telemetry::graphs::GraphMetrics;
use crate::telemetry::inference::InferenceMetrics;
use crate::telemetry::logging;
use crate::telemetry::memory::{self, MemoryMetrics};
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::telemetry::traces::Traces;
use crate::telemetry::workers::WorkerMetrics;
use crate::tls::{ServerTls, TlsFiles};
use crate::types::{ByteBudget, ForwardedCredentials, ServerMetadata};

/// The binary tensor data extension, as metadata names it.
const BINARY_EXTENSION: &str = "binary_tensor_data";

/// The components of a running server.
pub(super) struct RunningServer {
    pub(super) inference: Inference,
    pub(super) admin: Admin,
    pub(super) python: Python,
    pub(super) listeners: RunningListeners,
    pub(super) addresses: ListenerAddresses,
}

/// Assembles a server whose readiness waits for all of `models`, binds its listeners, and serves.
///
/// # Errors
///
/// Fails if an address cannot be bound, or a setting that is only checked here is invalid. Nothing is served then.
pub(super) async fn start(
    settings: &Settings,
    models: &[ModelSettings],
    repository: Repository,
    python: Python,
    fetcher: ModelFetcher,
    events: CloudEventVariables,
    mut metrics: MetricsRegistry,
) -> Result<RunningServer, CommandError> {
    logging::register(&mut metrics);
    let compute = python.workers().compute().clone();
    let traces = Traces::start(settings.tracing_server.as_deref(), &settings.server_name, &settings.server_version)
        .context("cannot export traces")?;
    let graphs = GraphMetrics::register(&mut metrics);
    let registry = registry(settings, &repository, &python, fetcher.clone(), &traces, graphs.clone(), &mut metrics);
    let workers = Arc::new(python.workers().clone());
    let console = settings.console.then(|| Console::start(registry.clone(), workers, graphs, compute.clone()));
    for model in models {
        registry.announce(model);
    }
    let tls = server_tls(settings, repository.working_directory())?;
    let access = access(settings, repository.working_directory(), &mut metrics)?;
    let admin = Admin::new(registry.clone(), repository).with_fetcher(fetcher);
    let budget = ByteBudget::new(settings.byte_budget());
    memory::register_byte_budget(&mut metrics, budget.clone());
    let streams =
        StreamLimits { max_streams: settings.limits.max_streams, idle_timeout: settings.limits.stream_idle_timeout };
    let mut inference = Inference::new(registry, settings.limits.max_in_flight)
        .with_byte_budget(budget)
        .with_stream_limits(streams)
        .with_server_timing(settings.server_timing)
        .with_strict_tensors(settings.strict_tensors)
        .with_forwarded(to_servers(settings))
        .with_compute(compute.clone())
        .with_traces(traces);
    let joined = Arc::new(AtomicBool::new(false));
    if settings.kafka.enabled && settings.kafka.readiness {
        inference = inference.with_readiness_flag(Arc::clone(&joined));
    }
    if let Some(options) = cache_options(settings) {
        inference = inference.with_cache(ResponseCache::new(options, compute.clone(), &mut metrics));
    }
    let connections = connection_tables(settings, &mut metrics);
    let parts = ServerParts {
        inference: inference.clone(),
        admin: admin.clone(),
        compute,
        connections,
        events,
        tls,
        access,
        console,
    };
    let access_of_metrics = parts.access.clone();
    let tls_of_metrics = parts.tls.clone().filter(|_| settings.tls.metrics);
    let reserved = parts.connections.reserved.clone();
    let rest_metrics = settings.metrics_endpoint.is_some();
    let rest_metrics = rest_metrics.then(|| RestMetrics::register(&mut metrics, &settings.metrics_rest_server_prefix));
    let mut listeners = vec![
        rest_listener(settings, parts.clone(), rest_metrics.clone()).await?,
        grpc_listener(settings, parts.clone(), &mut metrics).await?,
    ];
    let kafka_listener = super::kafka::listener(settings, &parts, joined, &mut metrics)?;
    let admin_listener = admin_listener(settings, parts, rest_metrics).await?;
    // Created last, because the others register their metrics.
    listeners.extend(metrics_listener(settings, metrics, &python, reserved, tls_of_metrics, access_of_metrics).await?);
    listeners.extend(admin_listener);
    let (addresses, mut listeners): (_, Vec<_>) =
        listeners.into_iter().map(|bound| ((bound.name, bound.address), bound.listener)).unzip();
    listeners.extend(kafka_listener);
    let listeners = RunningListeners::start(listeners);
    Ok(RunningServer { inference, admin, python, listeners, addresses: ListenerAddresses(addresses) })
}

/// Creates the registry, whose loaders wrap each other: native and Python runtimes, batching, the memory budget.
fn registry(
    settings: &Settings,
    repository: &Repository,
    python: &Python,
    fetcher: ModelFetcher,
    traces: &Traces,
    graphs: GraphMetrics,
    metrics: &mut MetricsRegistry,
) -> Registry {
    let compute = python.workers().compute();
    let working_directory = repository.working_directory().to_owned();
    let directory = RegistryDirectory::default();
    let loader = RuntimeLoader {
        compute: compute.clone(),
        loading: ComputePool::for_this_machine(),
        working_directory: working_directory.clone(),
        python: python.clone(),
        graphs: GraphResources::new(Arc::new(directory.clone()), graphs, compute.clone(), to_servers(settings)),
        is_reserved: rest::is_reserved,
        is_openai: rest::is_openai,
        openai_prefix: settings.openai_route_prefix.clone().unwrap_or_default(),
    };
    let inference_metrics = InferenceMetrics::register(metrics);
    let loader = BatchingLoader::new(loader, inference_metrics.clone(), traces.clone());
    let registry = match settings.models_max_bytes {
        None => Registry::new(FetchingLoader::new(loader, fetcher), inference_metrics),
        Some(bytes) => {
            let metrics = MemoryMetrics::register(metrics);
            let loader = BudgetLoader::new(loader, bytes, working_directory, metrics);
            // The size of an artifact is known once it is here.
            Registry::new(FetchingLoader::new(loader, fetcher), inference_metrics)
        }
    };
    directory.connect(&registry);
    registry
}

/// Returns the credentials of callers that other servers get. An unknown name is an error of the listeners.
fn to_servers(settings: &Settings) -> ForwardedCredentials {
    ForwardedHeaders::of(&settings.access, &settings.tls).map(ForwardedHeaders::to_servers).unwrap_or_default()
}

/// Raises the limit on open files, and creates the tables of connections that fit into it.
fn connection_tables(settings: &Settings, metrics: &mut MetricsRegistry) -> ConnectionTables {
    let files = descriptors::raise_limit();
    let limits = ConnectionLimits::new(&settings.limits, descriptors::default_connections(files));
    descriptors::check(limits.max_connections, files);
    let metrics = ConnectionMetrics::register(metrics);
    ConnectionTables {
        requests: ConnectionTable::start(limits, metrics.clone()),
        reserved: ConnectionTable::start(limits.reserved(), metrics),
    }
}

/// Reads the files of TLS, if the settings name some.
fn server_tls(settings: &Settings, folder: &Path) -> Result<Option<ServerTls>, CommandError> {
    Ok(TlsFiles::new(&settings.tls, folder)?.map(ServerTls::start).transpose()?)
}

/// Sets up access control, if the settings ask for it.
fn access(settings: &Settings, folder: &Path, metrics: &mut MetricsRegistry) -> Result<Option<Access>, CommandError> {
    let Some(files) = AccessFiles::new(&settings.access, &settings.tls, folder)? else {
        warn_if_exposed(settings);
        return Ok(None);
    };
    Ok(Some(files.start(AccessMetrics::register(metrics))?))
}

/// Warns if anybody on the network may load and unload models.
fn warn_if_exposed(settings: &Settings) {
    let host = settings.host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    // Client certificates keep others out.
    if settings.repository_api && !is_loopback && settings.tls.client_ca.is_none() {
        warn!(
            "Anyone who can reach {host} can load and unload models: set `api_keys_file` (`mlserver keys create` creates a key), \
             `repository_api` to false, or `host` to 127.0.0.1."
        );
    }
}

/// A listener with its address.
struct BoundListener {
    /// The name in the port file.
    name: &'static str,
    address: SocketAddr,
    listener: Listener,
}

/// A port that serves HTTP, and its names.
struct HttpPort {
    /// The name in the port file. The setting is called the same, with `_port` behind it.
    name: &'static str,
    /// The name in messages, and at the start of a line.
    purpose: &'static str,
    title: &'static str,
    port: u16,
    tls: Option<ServerTls>,
    connections: ConnectionTable,
    stage: DrainStage,
}

impl HttpPort {
    /// Binds the port, and creates the listener that serves `app` on it. `path` is announced, too.
    async fn listener(
        self,
        settings: &Settings,
        path: Option<&str>,
        app: impl HttpService<IncomingBody>,
    ) -> Result<BoundListener, CommandError> {
        let Self { name, purpose, title, port, tls, connections, stage } = self;
        let socket = bind_port(purpose, name, &settings.host, port, tls).await?;
        let address = socket.address().context("cannot read the address of a listener")?;
        let scheme = socket.scheme();
        let mut announcements = vec![format!("{title} server running on {scheme}://{address}")];
        announcements.extend(
            path.map(|path| format!("Prometheus scraping endpoint can be accessed on {scheme}://{address}{path}")),
        );
        let serve = move |stop| server::serve(socket, app, connections, stop);
        Ok(BoundListener { name, address, listener: Listener::new(purpose, stage, announcements, serve) })
    }
}

async fn rest_listener(
    settings: &Settings,
    parts: ServerParts,
    metrics: Option<RestMetrics>,
) -> Result<BoundListener, CommandError> {
    let options = rest_options(settings, repository_access(settings), parts.events, parts.access, parts.console)?;
    let app = RestService::new(parts.inference, parts.admin, parts.compute, metrics, options);
    let port = HttpPort {
        name: "http",
        purpose: "HTTP",
        title: "HTTP",
        port: settings.http_port,
        tls: parts.tls,
        connections: parts.connections.requests,
        stage: DrainStage::Requests,
    };
    port.listener(settings, None, app).await
}

/// Creates the listener for the repository API, if it has a port of its own.
async fn admin_listener(
    settings: &Settings,
    parts: ServerParts,
    metrics: Option<RestMetrics>,
) -> Result<Option<BoundListener>, CommandError> {
    let Some(port) = settings.admin_port.filter(|_| settings.repository_api) else { return Ok(None) };
    let options = rest_options(settings, RepositoryAccess::Only, parts.events, parts.access, parts.console)?;
    let app = RestService::new(parts.inference, parts.admin, parts.compute, metrics, options);
    let port = HttpPort {
        name: "admin",
        purpose: "admin",
        title: "Admin",
        port,
        tls: parts.tls,
        connections: parts.connections.reserved,
        stage: DrainStage::Requests,
    };
    port.listener(settings, None, app).await.map(Some)
}

/// Returns whether the ports of requests serve the repository API.
const fn repository_access(settings: &Settings) -> RepositoryAccess {
    match settings.admin_port {
        _ if !settings.repository_api => RepositoryAccess::Off,
        Some(_) => RepositoryAccess::OnAdminPort,
        None => RepositoryAccess::Served,
    }
}

fn rest_options(
    settings: &Settings,
    repository: RepositoryAccess,
    events: CloudEventVariables,
    access: Option<Access>,
    console: Option<Console>,
) -> Result<rest::RestOptions, CommandError> {
    Ok(rest::RestOptions {
        metadata: metadata(settings),
        root_path: settings.root_path.clone(),
        openai_prefix: settings.openai_route_prefix.clone().unwrap_or_default(),
        max_body_bytes: settings.limits.http_max_body_bytes.get(),
        gzip: settings.gzip_enabled,
        cors: settings.cors_settings.as_ref().map(rest::Cors::new).transpose()?,
        host: settings.host.clone(),
        repository,
        non_finite: settings.non_finite_json,
        overload_as_429: settings.overload_as_429,
        events,
        access,
        forward_headers: ForwardedHeaders::of(&settings.access, &settings.tls)?,
        console,
    })
}

async fn grpc_listener(
    settings: &Settings,
    parts: ServerParts,
    metrics: &mut MetricsRegistry,
) -> Result<BoundListener, CommandError> {
    let metrics = settings.metrics_endpoint.is_some().then(|| GrpcMetrics::register(metrics));
    let options = grpc::GrpcOptions {
        metadata: metadata(settings),
        max_message_length: settings.grpc_max_message_length,
        repository: repository_access(settings),
        access: parts.access,
        forward_headers: ForwardedHeaders::of(&settings.access, &settings.tls)?,
    };
    let app = GrpcService::new(parts.inference, parts.admin, parts.compute, metrics, options);
    let port = HttpPort {
        name: "grpc",
        purpose: "gRPC",
        title: "gRPC",
        port: settings.grpc_port,
        tls: parts.tls,
        connections: parts.connections.requests,
        stage: DrainStage::Requests,
    };
    port.listener(settings, None, app).await
}

/// Creates the listener for metrics, unless the settings disable it.
async fn metrics_listener(
    settings: &Settings,
    registry: MetricsRegistry,
    python: &Python,
    connections: ConnectionTable,
    tls: Option<ServerTls>,
    access: Option<Access>,
) -> Result<Option<BoundListener>, CommandError> {
    let Some(endpoint) = &settings.metrics_endpoint else { return Ok(None) };
    let models = python.workers().expositions().clone();
    let metrics = server::metrics::Metrics { registry, models, source: Arc::new(python.workers().clone()) };
    let app = MetricsService::new(endpoint, metrics, access);
    let port = HttpPort {
        name: "metrics",
        purpose: "metrics",
        title: "Metrics",
        port: settings.metrics_port,
        tls,
        connections,
        stage: DrainStage::Observers,
    };
    port.listener(settings, Some(endpoint), app).await.map(Some)
}

/// Returns the options of Python models.
pub(in crate::commands) fn python_options(
    settings: &Settings,
    repository: &Repository,
    environment: &dyn Environment,
    metrics: &mut MetricsRegistry,
) -> python::PythonOptions {
    let working_directory = repository.working_directory().to_owned();
    let folder = working_directory.join(&settings.model_repository_root);
    let variables: BTreeMap<String, String> = environment.variables().into_iter().collect();
    let tarball = variables.get(ENV_TARBALL).filter(|path| !path.is_empty());
    let workers = WorkerOptions {
        settings: settings.workers.clone(),
        paths: vec![folder, working_directory.clone()],
        debug: settings.effective_log_level() == LogLevel::Debug,
        logging: settings.logging_settings.clone().map(|logging| match logging {
            LoggingSettings::File(path) => working_directory.join(path).to_string_lossy().into_owned().into(),
            LoggingSettings::Config(config) => config.into(),
        }),
        metrics: WorkerMetrics::register(metrics),
        compute: ComputePool::for_this_machine(),
    };
    python::PythonOptions { workers, environment_tarball: tarball.map(PathBuf::from), working_directory, variables }
}

fn metadata(settings: &Settings) -> ServerMetadata {
    ServerMetadata {
        name: settings.server_name.clone(),
        version: settings.server_version.clone(),
        extensions: extensions(settings.extensions.clone()),
    }
}

/// Returns the extensions of the protocol that are served: ours, and those that the settings add.
fn extensions(mut configured: Vec<String>) -> Vec<String> {
    let ours = BINARY_EXTENSION.to_owned();
    if !configured.contains(&ours) {
        configured.insert(0, ours);
    }
    configured
}

fn cache_options(settings: &Settings) -> Option<CacheOptions> {
    let entries = NonZeroUsize::new(settings.cache_size).filter(|_| settings.cache_enabled)?;
    Some(CacheOptions { entries, max_bytes: settings.cache_max_bytes, ttl: settings.cache_ttl })
}

/// Opens a listener, and says which setting to change if that fails.
async fn bind_port(
    purpose: &'static str,
    name: &str,
    host: &str,
    port: u16,
    tls: Option<ServerTls>,
) -> Result<Port, CommandError> {
    Port::bind(purpose, host, port, tls).await.map_err(|failure| {
        let advice = match failure.error.kind() {
            io::ErrorKind::AddrInUse => format!("stop the process that uses it, or change `{name}_port`"),
            io::ErrorKind::PermissionDenied => format!("change `{name}_port`: ports below 1024 need privileges"),
            _ => "`host` must be an address of this machine".to_owned(),
        };
        anyhow!("{failure}; {advice}").into()
    })
}
