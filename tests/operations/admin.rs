//! The repository API without a transport, and with runtimes that the test controls.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use mlserver::admin::{Admin, AdminError, IndexEntry, MAX_OPERATIONS};
use mlserver::registry::{LoadError, ModelState, RegisteredModel, Registry};
use mlserver::repository::Repository;
use mlserver::runtimes::RuntimeError;
use mlserver::settings::env::MapEnvironment;
use mlserver::settings::{ModelSettings, SettingsSources};
use mlserver::telemetry::inference::InferenceMetrics;
use mlserver::telemetry::metrics::{self, Registry as MetricsRegistry};
use mlserver::types::{InferenceRequest, InferenceResponse, RequestErrorKind};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::support::{FnLoader, FnRuntime};

/// Loads panic if `extra.panic` is set, fail if `extra.fail` is, and wait for the gate if `extra.wait` is. The runtime answers `extra.answer`.
#[derive(Debug, Clone, Default)]
struct ControlledLoader {
    gate: Arc<Notify>,
    /// The number of loads that have started.
    begun: Arc<Mutex<Vec<String>>>,
}

impl ControlledLoader {
    fn loader(&self) -> FnLoader {
        let Self { gate, begun } = self.clone();
        FnLoader::new(move |settings| {
            let label = format!("{}:{}", settings.name, settings.version().unwrap_or("-"));
            begun.lock().unwrap().push(label);
            let gate = Arc::clone(&gate);
            async move {
                let extra = &settings.parameters.extra;
                if extra.contains_key("wait") {
                    gate.notified().await;
                }
                assert!(!extra.contains_key("panic"), "injected");
                if extra.contains_key("fail") {
                    return Err(LoadError::Remote { uri: "s3://remote".to_owned() });
                }
                Ok(fixed_answer(extra["answer"].as_i64().unwrap()))
            }
        })
    }
}

/// Fails on a request for the output `bad`.
fn fixed_answer(number: i64) -> FnRuntime {
    FnRuntime::new(move |request| {
        let is_bad = request.outputs.iter().any(|output| output.name == "bad");
        let answer = InferenceResponse { id: number.to_string(), ..InferenceResponse::default() };
        std::future::ready(if is_bad { Err(RuntimeError::no_request()) } else { Ok(answer) })
    })
}

struct Harness {
    folder: TempDir,
    registry: Registry,
    admin: Admin,
    loader: ControlledLoader,
    metrics: MetricsRegistry,
}

impl Harness {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let loader = ControlledLoader::default();
        let mut metrics = MetricsRegistry::default();
        let registry = Registry::new(loader.loader(), InferenceMetrics::register(&mut metrics));
        let sources = SettingsSources::read(&MapEnvironment::new(folder.path())).unwrap();
        let admin = Admin::new(registry.clone(), Repository::new(folder.path(), sources, false));
        Self { folder, registry, admin, loader, metrics }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path).join("model-settings.json");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Puts the settings of `m` into a folder.
    fn put(&self, folder: &str, version: Option<&str>, extra: &Value) {
        self.put_with(folder, version, extra, &json!([]));
    }

    fn put_with(&self, folder: &str, version: Option<&str>, extra: &Value, warmup: &Value) {
        let parameters = json!({"version": version, "extra": extra});
        let settings = json!({"name": "m", "implementation": "a.B", "parameters": parameters, "warmup": warmup});
        self.write(folder, &settings.to_string());
    }

    fn take(&self, folder: &str) {
        fs::remove_dir_all(self.folder.path().join(folder)).unwrap();
    }

    /// Sends a request to a version of `m`, or its default.
    async fn ask(&self, version: Option<&str>) -> Result<String, String> {
        let model = self.registry.find("m", version).map_err(|error| error.to_string())?;
        answer(&model).await
    }

    async fn index(&self) -> Vec<String> {
        let entries = self.admin.index(false).await.unwrap();
        let line = |entry: IndexEntry| {
            let version = entry.version.map(|version| format!(":{version}")).unwrap_or_default();
            let reason = entry.reason.replace(self.folder.path().to_str().unwrap(), "[DIR]");
            format!("{}{version} {} {reason}", entry.name, entry.state.name()).trim_end().to_owned()
        };
        entries.into_iter().map(line).collect()
    }

    fn label_sets(&self) -> usize {
        let text = metrics::text(&self.metrics).unwrap();
        text.lines().filter(|line| line.starts_with("model_infer_request_success_total{")).count()
    }

    async fn until(&self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            tokio::task::yield_now().await;
        }
    }
}

async fn answer(model: &RegisteredModel) -> Result<String, String> {
    match &model.state {
        ModelState::Ready(runtime) => Ok(runtime.predict(InferenceRequest::default(), Arc::new(())).await.unwrap().id),
        other => Err(other.name().to_owned()),
    }
}

#[tokio::test]
async fn load_replaces_the_model_with_the_one_on_disk() {
    let harness = Harness::new();
    assert_eq!(harness.index().await, [""; 0]);
    assert_eq!(harness.admin.load("m").await.unwrap_err().to_string(), "Model m not found");
    harness.put("one", Some("1"), &json!({"answer": 1}));
    harness.put("two", Some("2"), &json!({"answer": 2}));
    assert_eq!(harness.index().await, ["m:1 UNAVAILABLE", "m:2 UNAVAILABLE"]);
    harness.admin.load("m").await.unwrap();
    assert_eq!(harness.index().await, ["m:1 READY", "m:2 READY"]);
    assert_eq!((harness.ask(None).await, harness.ask(Some("1")).await), (Ok("2".to_owned()), Ok("1".to_owned())));

    // Another answer, an added version, a removed version.
    harness.put("one", Some("1"), &json!({"answer": 10}));
    harness.put("ten", Some("10"), &json!({"answer": 100}));
    harness.take("two");
    let expected = ["m:1 READY", "m:10 UNAVAILABLE", "m:2 READY its settings file no longer exists"];
    assert_eq!(harness.index().await, expected);
    assert_eq!(harness.ask(Some("1")).await, Ok("1".to_owned()), "nothing changes before the load");
    harness.admin.load("m").await.unwrap();
    assert_eq!(harness.index().await, ["m:1 READY", "m:10 READY"]);
    assert_eq!((harness.ask(None).await, harness.ask(Some("1")).await), (Ok("100".to_owned()), Ok("10".to_owned())));
    assert_eq!(harness.ask(Some("2")).await.unwrap_err(), "Model m with version 2 not found");

    harness.take("one");
    harness.take("ten");
    let error = harness.admin.load("m").await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (RequestErrorKind::NotFound, "Model m not found"));
    assert_eq!(harness.ask(None).await, Ok("100".to_owned()), "what is gone from disk serves until it is unloaded");
    harness.admin.unload("m").await.unwrap();
    assert_eq!(harness.admin.unload("m").await.unwrap_err().to_string(), "Model m not found");
    assert_eq!((harness.index().await.len(), harness.label_sets()), (0, 0));
}

#[tokio::test]
async fn first_load_is_listed_and_does_not_delay_readiness() {
    let harness = Harness::new();
    harness.put("m", None, &json!({"answer": 1, "wait": true}));
    let admin = harness.admin.clone();
    let load = tokio::spawn(async move { admin.load("m").await });
    harness.until(|harness| !harness.loader.begun.lock().unwrap().is_empty()).await;
    assert_eq!(harness.index().await, ["m LOADING"]);
    assert_eq!(harness.ask(None).await.unwrap_err(), "LOADING");
    assert!(harness.registry.is_ready());
    harness.loader.gate.notify_one();
    load.await.unwrap().unwrap();
    assert_eq!((harness.index().await, harness.ask(None).await), (vec!["m READY".to_owned()], Ok("1".to_owned())));
}

#[tokio::test]
async fn failed_first_load_leaves_only_its_reason() {
    let harness = Harness::new();
    harness.put("one", Some("1"), &json!({"answer": 1}));
    harness.put("two", Some("2"), &json!({"fail": true}));
    let error = harness.admin.load("m").await.unwrap_err();
    let reason = "the artifact `s3://remote` is not on this machine; native runtimes read local files";
    assert_eq!((error.kind(), error.to_string().as_str()), (RequestErrorKind::LoadFailed, reason));
    assert_eq!(harness.index().await, ["m:1 UNAVAILABLE".to_owned(), format!("m:2 UNAVAILABLE {reason}")]);
    assert_eq!(harness.ask(Some("1")).await.unwrap_err(), "Model m with version 1 not found");
    assert!(harness.registry.is_ready() && harness.label_sets() == 0);
    // A reason lasts until a newer load or unload.
    harness.put("two", Some("2"), &json!({"answer": 2}));
    harness.admin.load("m").await.unwrap();
    assert_eq!(harness.index().await, ["m:1 READY", "m:2 READY"]);
    harness.put("two", Some("2"), &json!({"fail": true}));
    harness.admin.load("m").await.unwrap_err();
    harness.admin.unload("m").await.unwrap();
    assert_eq!(harness.index().await, ["m:1 UNAVAILABLE", "m:2 UNAVAILABLE"]);
}

#[tokio::test]
async fn failed_reload_keeps_the_previous_version() {
    let harness = Harness::new();
    harness.put("one", Some("1"), &json!({"answer": 1}));
    harness.put("two", Some("2"), &json!({"answer": 2}));
    harness.admin.load("m").await.unwrap();
    harness.put("one", Some("1"), &json!({"answer": 10}));
    harness.put("two", Some("2"), &json!({"fail": true}));
    harness.put("three", Some("3"), &json!({"answer": 3}));
    let error = harness.admin.load("m").await.unwrap_err().to_string();
    assert!(error.ends_with("read local files; the previous version keeps serving"), "{error}");
    assert_eq!((harness.ask(Some("1")).await, harness.ask(None).await), (Ok("1".to_owned()), Ok("2".to_owned())));
    assert_eq!(harness.ask(Some("3")).await.unwrap_err(), "Model m with version 3 not found");
    let reason = "the artifact `s3://remote` is not on this machine; native runtimes read local files";
    let expected = ["m:1 READY".to_owned(), "m:3 UNAVAILABLE".to_owned(), format!("m:2 READY {reason}")];
    assert_eq!(harness.index().await, expected);
}

#[tokio::test]
async fn warm_up_precedes_ready() {
    let harness = Harness::new();
    let good = json!({"inputs": []});
    harness.put_with("m", None, &json!({"answer": 1}), &json!([good]));
    harness.admin.load("m").await.unwrap();
    for (bad, reason) in [
        (json!({"inputs": [], "outputs": [{"name": "bad"}]}), "the stream of requests is empty: expected at least one"),
        (json!({"inputs": 3}), "the sample is not a valid inference request: `inputs`: expected an array"),
    ] {
        harness.put_with("m", None, &json!({"answer": 2}), &json!([good, bad]));
        let error = harness.admin.load("m").await.unwrap_err().to_string();
        let expected = format!("the model was loaded but does not answer `warmup[1]` of its settings: {reason}; ");
        assert!(error.starts_with(&expected), "{error}");
        assert_eq!(harness.ask(None).await, Ok("1".to_owned()));
    }
}

#[tokio::test]
async fn loads_of_one_name_are_serialized_and_coalesced() {
    let harness = Harness::new();
    harness.put("m", None, &json!({"answer": 1, "wait": true}));
    harness.write("n", &json!({"implementation": "a.B", "parameters": {"extra": {"answer": 7}}}).to_string());
    let load = || {
        let admin = harness.admin.clone();
        tokio::spawn(async move { admin.load("m").await })
    };
    let begun = |count| move |harness: &Harness| harness.loader.begun.lock().unwrap().len() == count;
    let first = load();
    harness.until(begun(1)).await;
    // Loads of another name do not wait.
    harness.admin.load("n").await.unwrap();
    assert_eq!(*harness.loader.begun.lock().unwrap(), ["m:-", "n:-"]);
    // Those that wait become one load, of what is on disk then.
    let waiting: Vec<_> = (0..10).map(|_| load()).collect();
    tokio::task::yield_now().await;
    harness.put("m", None, &json!({"answer": 2, "wait": true}));
    harness.loader.gate.notify_one();
    first.await.unwrap().unwrap();
    harness.until(begun(3)).await;
    harness.loader.gate.notify_one();
    for load in waiting {
        load.await.unwrap().unwrap();
    }
    assert_eq!(harness.loader.begun.lock().unwrap().len(), 3);
    assert_eq!(harness.ask(None).await.unwrap(), "2");

    // A cancelled caller does not cancel its load, an unload waits for its turn, and a load after it is another one.
    let cancelled = load();
    harness.until(begun(4)).await;
    cancelled.abort();
    let admin = harness.admin.clone();
    let unload = tokio::spawn(async move { admin.unload("m").await });
    tokio::task::yield_now().await;
    let last = load();
    harness.loader.gate.notify_one();
    unload.await.unwrap().unwrap();
    harness.until(begun(5)).await;
    harness.loader.gate.notify_one();
    last.await.unwrap().unwrap();
    assert_eq!(harness.index().await, ["m READY", "n READY"]);
    harness.admin.unload("m").await.unwrap();
    assert_eq!(harness.index().await, ["m UNAVAILABLE", "n READY"]);
}

#[tokio::test]
async fn load_that_panics_fails_and_leaves_nothing_loading() {
    let harness = Harness::new();
    harness.put("m", None, &json!({"panic": true}));
    let error = harness.admin.load("m").await.unwrap_err();
    assert_eq!(error.kind(), RequestErrorKind::LoadFailed, "{error}");
    assert_eq!(harness.registry.models().len(), 0);
    assert!(harness.index().await[0].starts_with("m UNAVAILABLE loading ended unexpectedly"));
    let mut settings = ModelSettings::new("m", "a.B");
    settings.parameters.extra.insert("panic".to_owned(), true.into());
    assert_eq!(harness.admin.load_at_start(vec![settings]).await, 1);
    assert!(matches!(harness.registry.find("m", None).unwrap().state, ModelState::Failed { .. }));
}

#[tokio::test]
async fn reload_requests_in_flight_finish_on_the_old_model() {
    let harness = Harness::new();
    harness.put("m", None, &json!({"answer": 1}));
    harness.admin.load("m").await.unwrap();
    let first = harness.registry.find("m", None).unwrap();
    harness.put("m", None, &json!({"answer": 2}));
    harness.admin.load("m").await.unwrap();
    let second = harness.registry.find("m", None).unwrap();
    harness.admin.unload("m").await.unwrap();
    assert_eq!((answer(&first).await, answer(&second).await), (Ok("1".to_owned()), Ok("2".to_owned())));
    assert!(first.generation < second.generation);
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1), "nothing else keeps them");
}

#[tokio::test]
async fn unreadable_settings_unload_nothing() {
    let harness = Harness::new();
    harness.put("a", Some("1"), &json!({"answer": 1}));
    harness.put("b", Some("2"), &json!({"answer": 2}));
    harness.admin.load("m").await.unwrap();
    harness.write("b", "{");
    let broken = "failed to load the model settings at `[DIR]/b/model-settings.json`: \
         `[DIR]/b/model-settings.json` is not valid JSON: EOF while parsing an object at line 1 column 1";
    assert_eq!(harness.index().await, ["m:1 READY".to_owned(), format!("m:2 READY {broken}")]);
    let error = harness.admin.load("m").await.unwrap_err();
    assert_eq!(error.kind(), RequestErrorKind::BadRepository, "{error}");
    assert_eq!((harness.ask(Some("1")).await, harness.ask(Some("2")).await), (Ok("1".to_owned()), Ok("2".to_owned())));
    // Models that were never loaded are found by their folder.
    harness.write("n/1", "{}");
    let error = harness.admin.load("n").await.unwrap_err();
    assert_eq!(error.kind(), RequestErrorKind::BadRepository, "{error}");
    assert!(harness.index().await[2].starts_with("1 UNAVAILABLE failed to load the model settings at "));
    assert_eq!(harness.admin.load("o").await.unwrap_err().kind(), RequestErrorKind::NotFound);
    assert_eq!(harness.admin.index(true).await.unwrap().len(), 2);
}

#[tokio::test]
async fn shutdown_cancels_loads_and_rejects_new_ones() {
    let harness = Harness::new();
    harness.put("m", None, &json!({"answer": 1, "wait": true}));
    let admin = harness.admin.clone();
    let load = tokio::spawn(async move { admin.load("m").await });
    harness.until(|harness| !harness.loader.begun.lock().unwrap().is_empty()).await;
    harness.admin.stop();
    assert!(matches!(load.await.unwrap(), Err(AdminError::Stopping)));
    assert!(matches!(harness.admin.load("m").await, Err(AdminError::Stopping)));
    assert!(matches!(harness.admin.unload("m").await, Err(AdminError::Stopping)));
    assert!(harness.admin.index(false).await.is_ok());
}

#[tokio::test]
async fn repository_operations_are_limited() {
    let harness = Harness::new();
    harness.put("m", None, &json!({"answer": 1, "wait": true}));
    let unload = || {
        let admin = harness.admin.clone();
        tokio::spawn(async move { admin.unload("m").await })
    };
    let admin = harness.admin.clone();
    let mut waiting = vec![tokio::spawn(async move { admin.load("m").await })];
    harness.until(|harness| !harness.loader.begun.lock().unwrap().is_empty()).await;
    waiting.extend((1..MAX_OPERATIONS).map(|_| unload()));
    tokio::task::yield_now().await;
    let error = unload().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), RequestErrorKind::Overloaded, "{error}");
    assert_eq!(harness.admin.index(false).await.unwrap_err().kind(), RequestErrorKind::Overloaded);
    harness.admin.stop();
    for load in waiting {
        assert!(matches!(load.await.unwrap(), Err(AdminError::Stopping)));
    }
    assert_eq!(harness.index().await.len(), 1, "there is room again");
}

#[tokio::test]
async fn startup_models_are_required_and_fail_alone() {
    let harness = Harness::new();
    harness.put("one", Some("1"), &json!({"answer": 1}));
    harness.put("two", Some("2"), &json!({"fail": true}));
    let sources = SettingsSources::read(&MapEnvironment::new(harness.folder.path())).unwrap();
    let found = Repository::new(Path::new("."), sources, false).discover().models;
    let models: Vec<_> = found.into_iter().map(|model| model.settings).collect();
    assert_eq!(harness.admin.load_at_start(models).await, 1);
    let reason = "the artifact `s3://remote` is not on this machine; native runtimes read local files";
    assert_eq!(harness.index().await, ["m:1 READY".to_owned(), format!("m:2 UNAVAILABLE {reason}")]);
    assert!(!harness.registry.is_ready());
    harness.put("two", Some("2"), &json!({"fail": true, "again": true}));
    harness.admin.load("m").await.unwrap_err();
    assert!(!harness.registry.is_ready(), "it is still wanted");
    harness.put("two", Some("2"), &json!({"answer": 2}));
    harness.admin.load("m").await.unwrap();
    assert!(harness.registry.is_ready());
}
