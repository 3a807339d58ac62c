//! The server inside the test's process, with a runtime that the test defines.

use std::net::SocketAddr;
use std::path::Path;

use mlserver::admin::Admin;
use mlserver::compute::ComputePool;
use mlserver::inference::{BatchingLoader, Inference};
use mlserver::registry::Registry;
use mlserver::repository::Repository;
use mlserver::runtimes::Runtime;
use mlserver::server::{
    self, ConnectionLimits, ConnectionMetrics, ConnectionTable, ForwardedHeaders, Port, RepositoryAccess, grpc, rest,
};
use mlserver::settings::env::MapEnvironment;
use mlserver::settings::{ModelSettings, Settings, SettingsSources};
use mlserver::telemetry::inference::InferenceMetrics;
use mlserver::telemetry::metrics::Registry as MetricsRegistry;
use mlserver::telemetry::traces::Traces;
use mlserver::types::ServerMetadata;
use tokio_util::sync::CancellationToken;

use super::{Client, FnLoader};

/// A server that runs until the test's async runtime ends.
#[derive(Clone)]
pub(crate) struct EmbeddedServer {
    pub(crate) inference: Inference,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
}

impl EmbeddedServer {
    /// Serves one model, `m`.
    pub(crate) async fn serve(runtime: impl Runtime) -> Self {
        Self::serve_as(runtime, |_| {}).await
    }

    /// Serves one model, `m`, with changed settings.
    pub(crate) async fn serve_as(runtime: impl Runtime, change: impl FnOnce(&mut ModelSettings)) -> Self {
        let settings = Settings::default();
        let compute = ComputePool::for_this_machine();
        let metrics = InferenceMetrics::register(&mut MetricsRegistry::default());
        let registry =
            Registry::new(BatchingLoader::new(FnLoader::fixed(runtime), metrics.clone(), Traces::default()), metrics);
        let mut model = ModelSettings::new("m", "tests.Model");
        change(&mut model);
        registry.load(model).await.unwrap();
        let inference = Inference::new(registry, settings.limits.max_in_flight);
        let metadata = ServerMetadata { name: "test".to_owned(), version: "0".to_owned(), extensions: Vec::new() };
        let environment = MapEnvironment::new(Path::new("/"));
        let repository = Repository::new(Path::new("nowhere"), SettingsSources::read(&environment).unwrap(), false);
        let admin = Admin::new(inference.registry().clone(), repository);
        let connections =
            ConnectionTable::start(ConnectionLimits::new(&settings.limits, 1024), ConnectionMetrics::default());

        let options = grpc::GrpcOptions {
            metadata: metadata.clone(),
            max_message_length: settings.grpc_max_message_length,
            repository: RepositoryAccess::Served,
            access: None,
            forward_headers: ForwardedHeaders::default(),
        };
        let app = grpc::GrpcService::new(inference.clone(), admin.clone(), compute.clone(), None, options);
        let listener = Port::bind("gRPC", "127.0.0.1", 0, None).await.unwrap();
        let grpc = listener.address().unwrap();
        tokio::spawn(server::serve(listener, app, connections.clone(), CancellationToken::new()));

        let options = rest::RestOptions {
            metadata,
            root_path: String::new(),
            openai_prefix: "/openai".to_owned(),
            max_body_bytes: settings.limits.http_max_body_bytes.get(),
            gzip: true,
            cors: None,
            host: "127.0.0.1".to_owned(),
            repository: RepositoryAccess::Served,
            non_finite: settings.non_finite_json,
            overload_as_429: false,
            events: mlserver::settings::CloudEventVariables::default(),
            access: None,
            forward_headers: ForwardedHeaders::default(),
            console: None,
        };
        let app = rest::RestService::new(inference.clone(), admin, compute, None, options);
        let listener = Port::bind("HTTP", "127.0.0.1", 0, None).await.unwrap();
        let http = listener.address().unwrap();
        tokio::spawn(server::serve(listener, app, connections, CancellationToken::new()));
        Self { inference, http, grpc }
    }

    /// Returns a blocking client of the REST server.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.http)
    }
}
