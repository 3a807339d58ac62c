//! The data of the web console: what each model has done in the last ten minutes, the state of the workers, and the last lines of the log.
//!
//! One task takes a sample every ten seconds, from the metrics that the server keeps anyway. Requests do not know of it.

mod example;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

pub use self::example::Example;
use self::example::Examples;
use crate::compute::ComputePool;
use crate::platform;
use crate::registry::{RegisteredModel, Registry};
use crate::shutdown::spawn_supervised;
use crate::telemetry::graphs::GraphMetrics;
use crate::telemetry::history::{History, HistoryKey, ModelSample, ModelTotals, SAMPLE_INTERVAL, SAMPLES};
use crate::telemetry::inference::ModelMetrics;
use crate::telemetry::logging;
use crate::telemetry::workers::{WorkerReport, WorkerSource};

/// The number of samples, from the last one back, whose requests are averaged: one minute.
const RATE_SAMPLES: usize = 6;

/// The data of the console. Clones share it.
#[derive(Debug, Clone)]
pub struct Console(Arc<ConsoleState>);

#[derive(Debug)]
struct ConsoleState {
    sampler: Sampler,
    workers: Arc<dyn WorkerSource>,
    graphs: GraphMetrics,
    examples: Examples,
    /// When the server started, in seconds since 1970.
    started: u64,
    /// Ends with the console.
    _task: AbortOnDropHandle<()>,
}

/// Takes the samples. Clones share the history.
#[derive(Debug, Clone)]
struct Sampler {
    registry: Registry,
    history: Arc<Mutex<History>>,
    /// The resident memory of this process in bytes. 0 if it is not known.
    resident: Arc<AtomicU64>,
}

/// A version of a model, with the numbers of the last minutes.
#[derive(Debug, Clone)]
pub struct ModelReport {
    pub model: Arc<RegisteredModel>,
    /// Whether it answers requests that name no version.
    pub is_default: bool,
    /// The mean of the last minute.
    pub requests_per_second: f64,
    /// Quantiles of the last ten seconds that had requests, in seconds. `None` if none of the last ten minutes had.
    pub median: Option<f32>,
    pub p99: Option<f32>,
    /// In the last ten minutes.
    pub requests: u64,
    pub failures: u64,
    /// Now.
    pub waiting: u64,
    pub in_flight: u64,
    /// The mean number of requests per batch since the server started. `None` without batches.
    pub batch_size: Option<f64>,
    /// Hits and misses of the cache. `None` if its responses are not cached.
    pub cache: Option<(u64, u64)>,
}

impl Console {
    /// Starts to take samples, and to keep the last lines of the log.
    pub fn start(
        registry: Registry,
        workers: Arc<dyn WorkerSource>,
        graphs: GraphMetrics,
        compute: ComputePool,
    ) -> Self {
        logging::keep_recent();
        let sampler = Sampler { registry, history: Arc::default(), resident: Arc::default() };
        let task = AbortOnDropHandle::new(spawn_supervised("console", sampler.clone().run(compute)));
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self(Arc::new(ConsoleState { sampler, workers, graphs, examples: Examples::default(), started, _task: task }))
    }

    /// Returns when the server started, in seconds since 1970.
    pub fn started(&self) -> u64 {
        self.0.started
    }

    /// Describes the models that `wanted` accepts, by name and version. Takes 1 µs per model.
    pub fn models(&self, wanted: impl Fn(&RegisteredModel) -> bool) -> Vec<ModelReport> {
        let Sampler { registry, history, .. } = &self.0.sampler;
        let models = registry.models();
        let history = history.lock();
        let wanted = models.into_iter().filter(|model| wanted(model));
        wanted.map(|model| report(registry, model, &history)).collect()
    }

    /// Describes one model.
    pub fn model(&self, model: Arc<RegisteredModel>) -> ModelReport {
        let Sampler { registry, history, .. } = &self.0.sampler;
        report(registry, model, &history.lock())
    }

    /// Returns the samples of a model, the latest last.
    pub fn samples(&self, model: &RegisteredModel) -> [ModelSample; SAMPLES] {
        let history = self.0.sampler.history.lock();
        let mut samples = history.samples(key(model));
        std::array::from_fn(|_| *samples.next().expect("there are as many samples"))
    }

    /// Returns the resident memory of this process as of the last sample.
    pub fn resident_bytes(&self) -> Option<u64> {
        Some(self.0.sampler.resident.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Returns how long each step of a graph took when it last ran, by its name. Steps that have not run are missing.
    pub fn step_times(&self, graph: &str) -> BTreeMap<String, Duration> {
        self.0.graphs.latest(graph)
    }

    /// Returns a request for the form of a model. `declared` is that of the inputs in its metadata, `compute` has the threads for trying.
    pub async fn example(&self, model: &RegisteredModel, declared: Option<Value>, compute: &ComputePool) -> Example {
        self.0.examples.find(model, declared, compute).await
    }

    /// Returns the last 200 lines of the log.
    pub fn log(&self) -> Vec<String> {
        logging::recent()
    }

    /// Describes the processes that run models.
    pub fn workers(&self) -> Vec<WorkerReport> {
        self.0.workers.reports()
    }
}

impl Sampler {
    async fn run(self, compute: ComputePool) {
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        // Two samples in a row would show a pause as a burst.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let sampler = self.clone();
            // On the pool, because 10,000 models take several milliseconds.
            if let Err(error) = compute.run(move || sampler.sample()).await {
                warn!("The console misses a sample of the metrics: {error}");
            }
        }
    }

    fn sample(&self) {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        self.resident.store(platform::resident_memory(own).unwrap_or_default(), Ordering::Relaxed);
        let models = self.registry.models();
        let sampled = models.iter().map(|model| (key(model), totals(&self.registry, model)));
        self.history.lock().record(sampled);
    }
}

fn key(model: &RegisteredModel) -> HistoryKey {
    HistoryKey::new(&model.name, model.version.as_deref())
}

/// Reports whether a model answers the requests that name no version.
fn is_default(registry: &Registry, model: &Arc<RegisteredModel>) -> bool {
    registry.find(&model.name, None).is_ok_and(|default| Arc::ptr_eq(&default, model))
}

/// Adds up the requests that name the version and, for the default version, those that do not.
fn totals(registry: &Registry, model: &Arc<RegisteredModel>) -> ModelTotals {
    let own = model.metrics(true).totals();
    // Without a version, both are the same counters.
    let others = model.version.is_some() && is_default(registry, model);
    if others { own.plus(&model.metrics(false).totals()) } else { own }
}

#[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52")]
fn report(registry: &Registry, model: Arc<RegisteredModel>, history: &History) -> ModelReport {
    let (mut requests, mut failures, mut recent, mut latest) = (0, 0, 0, None);
    let samples = history.samples(key(&model));
    for (index, sample) in samples.enumerate() {
        requests += u64::from(sample.requests);
        failures += u64::from(sample.failures);
        if index >= SAMPLES - RATE_SAMPLES {
            recent += u64::from(sample.requests);
        }
        if sample.requests > 0 {
            latest = Some((sample.median, sample.p99));
        }
    }
    let is_default = is_default(registry, &model);
    let now = totals(registry, &model);
    let with_default = is_default && model.version.is_some();
    let default_metrics = with_default.then(|| model.metrics(false));
    let in_flight = model.metrics(true).in_flight() + default_metrics.map_or(0, ModelMetrics::in_flight);
    let cache = model.metrics(true).cache_counts().map(|(hits, misses)| {
        let (more_hits, more_misses) = default_metrics.and_then(ModelMetrics::cache_counts).unwrap_or_default();
        (hits + more_hits, misses + more_misses)
    });
    ModelReport {
        is_default,
        requests_per_second: recent as f64 / (SAMPLE_INTERVAL.as_secs_f64() * RATE_SAMPLES as f64),
        median: latest.map(|(median, _)| median),
        p99: latest.map(|(_, p99)| p99),
        requests,
        failures,
        waiting: now.waiting,
        in_flight,
        batch_size: registry.mean_batch(&model),
        cache,
        model,
    }
}
