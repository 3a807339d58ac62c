//! Models that come and go, behind the registry's interface and on a clock that does not wait.

use super::*;
use crate::registry::FnLoader;
use crate::runtimes::FnRuntime;
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::types::RequestErrorKind;
use std::sync::atomic::AtomicBool;

/// The state that the models of a test share.
#[derive(Debug, Default)]
struct TestState {
    /// Models in memory, and their maximum so far.
    live: AtomicUsize,
    most: AtomicUsize,
    loads: AtomicUsize,
    fails: AtomicBool,
    /// Calls that run on a model that has been dropped.
    running: AtomicUsize,
}

impl TestState {
    fn add_live(&self) {
        let live = self.live.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(live, Ordering::SeqCst);
    }
}

/// Loads models that take a while to load and to answer.
fn slow(world: &Arc<TestState>) -> FnLoader {
    let world = Arc::clone(world);
    FnLoader::new(move |_| {
        let world = Arc::clone(&world);
        async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if world.fails.load(Ordering::SeqCst) {
                return Err(LoadError::Remote { uri: "s3://gone".to_owned() });
            }
            world.loads.fetch_add(1, Ordering::SeqCst);
            world.add_live();
            let model = InMemory { world, calls: Arc::default() };
            Ok(FnRuntime::new(move |request| {
                let (calls, world) = (Arc::clone(&model.calls), Arc::clone(&model.world));
                async move {
                    calls.fetch_add(1, Ordering::SeqCst);
                    world.running.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    world.running.fetch_sub(1, Ordering::SeqCst);
                    calls.fetch_sub(1, Ordering::SeqCst);
                    Ok(InferenceResponse { id: request.id, ..InferenceResponse::default() })
                }
            }))
        }
    })
}

#[derive(Debug)]
struct InMemory {
    world: Arc<TestState>,
    calls: Arc<AtomicUsize>,
}

impl Drop for InMemory {
    fn drop(&mut self) {
        assert_eq!(self.calls.load(Ordering::SeqCst), 0, "it was evicted while in use");
        self.world.live.fetch_sub(1, Ordering::SeqCst);
    }
}

fn loader(world: &Arc<TestState>, bytes: u64) -> BudgetLoader {
    let metrics = MemoryMetrics::register(&mut MetricsRegistry::default());
    BudgetLoader::new(slow(world), bytes, PathBuf::from("/"), metrics)
}

fn settings(bytes: u64, pinned: bool) -> ModelSettings {
    let mut settings = ModelSettings::new("m", "tests.Model");
    (settings.parameters.memory_bytes, settings.parameters.pinned) = (Some(bytes), pinned);
    settings
}

fn is_evicted(model: &Arc<dyn Runtime>) -> bool {
    matches!(model.status(), RuntimeStatus::Available { remark: Some(remark) } if remark.starts_with("evicted"))
}

fn request(id: &str) -> InferenceRequest {
    InferenceRequest { id: id.to_owned(), ..InferenceRequest::default() }
}

#[tokio::test(start_paused = true)]
async fn budget_for_five_models_serves_twenty() {
    let world = Arc::new(TestState::default());
    let loader = loader(&world, 50);
    let loads = (0..20).map(|_| loader.load(settings(10, false)));
    let models: Vec<_> = futures_util::future::join_all(loads).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(world.loads.load(Ordering::SeqCst), 20, "each has been loaded once");
    let started = Instant::now();
    let callers = (0..40_usize).map(|caller| {
        let models = models.clone();
        tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            for call in 0..50 {
                // Some models are requested all the time, others rarely; each caller has its own order.
                let which = (caller * 31 + call * call * 7 + call) % 20;
                let which = if call % 3 == 0 { caller % 4 } else { which };
                let asked = Instant::now();
                let id = format!("{caller}-{call}");
                assert_eq!(models[which].predict(request(&id), Arc::new(())).await.unwrap().id, id);
                longest = longest.max(asked.elapsed());
            }
            longest
        })
    });
    let mut longest = Duration::ZERO;
    for caller in callers.collect::<Vec<_>>() {
        longest = longest.max(caller.await.unwrap());
    }
    assert!(world.most.load(Ordering::SeqCst) <= 5);
    // All other models get their turn first: each stays for a second, five at a time.
    assert!(longest < Duration::from_secs(10), "{longest:?} of {:?}", started.elapsed());
    drop((models, loader));
    assert_eq!(world.live.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn budget_load_is_shared_by_waiting_callers() {
    let world = Arc::new(TestState::default());
    let loader = loader(&world, 10);
    let [a, b] = [loader.load(settings(10, false)).await.unwrap(), loader.load(settings(10, false)).await.unwrap()];
    assert!(is_evicted(&a) && !is_evicted(&b));
    let callers = (0..30).map(|_| a.predict(request("x"), Arc::new(())));
    for answer in futures_util::future::join_all(callers).await {
        answer.unwrap();
    }
    assert_eq!(world.loads.load(Ordering::SeqCst), 3);
    assert!(is_evicted(&b));
}

#[tokio::test(start_paused = true)]
async fn budget_cancelled_callers_release_their_claims() {
    let world = Arc::new(TestState::default());
    let loader = loader(&world, 10);
    let [a, b] = [loader.load(settings(10, false)).await.unwrap(), loader.load(settings(10, false)).await.unwrap()];
    let mut busy = b.predict(request("busy"), Arc::new(()));
    assert!(futures_util::poll!(&mut busy).is_pending());
    let left = tokio::time::timeout(Duration::from_millis(5), a.predict(request("left"), Arc::new(()))).await;
    assert!(left.is_err());
    busy.await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.loads.load(Ordering::SeqCst), 2, "no caller waits for it");
    assert!(!is_evicted(&b));
}

#[tokio::test(start_paused = true)]
async fn budget_failed_reload_is_reported_and_retried() {
    let world = Arc::new(TestState::default());
    let loader = loader(&world, 10);
    let [a, _b] = [loader.load(settings(10, false)).await.unwrap(), loader.load(settings(10, false)).await.unwrap()];
    world.fails.store(true, Ordering::SeqCst);
    let failed = a.predict(request("x"), Arc::new(())).await.unwrap_err().to_string();
    assert_eq!(failed, "the model cannot be loaded; the log has the reason");
    assert!(a.status().into_reason().unwrap().contains("s3://gone"));
    let asked = Instant::now();
    a.predict(request("x"), Arc::new(())).await.unwrap_err();
    assert_eq!(asked.elapsed(), Duration::ZERO, "it is told at once");
    world.fails.store(false, Ordering::SeqCst);
    tokio::time::sleep(RETRY_INTERVAL * 2).await;
    assert_eq!(a.status(), RuntimeStatus::AVAILABLE, "it has been tried again");
    a.predict(request("x"), Arc::new(())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn budget_rejects_model_that_does_not_fit() {
    let world = Arc::new(TestState::default());
    let loader = loader(&world, 10);
    let error = loader.load(settings(11, false)).await.unwrap_err().to_string();
    assert!(error.starts_with("the model needs 11 bytes"), "{error}");
    let pinned = loader.load(settings(6, true)).await.unwrap();
    loader.load(settings(5, false)).await.unwrap_err();
    world.fails.store(true, Ordering::SeqCst);
    loader.load(settings(4, false)).await.unwrap_err();
    world.fails.store(false, Ordering::SeqCst);
    for _ in 0..5 {
        drop(loader.load(settings(4, false)).await.unwrap());
    }
    assert!(!is_evicted(&pinned));
    assert_eq!(world.live.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn budget_streams_keep_model_in_memory() {
    let world = Arc::new(TestState::default());
    let loader = loader(&world, 10);
    let [a, b] = [loader.load(settings(10, false)).await.unwrap(), loader.load(settings(10, false)).await.unwrap()];
    let requests: RequestStream = Box::pin(stream::iter([request("s")]));
    let mut answers = Arc::clone(&a).predict_stream(requests, Arc::new(()));
    answers.next().await.unwrap().unwrap();
    let mut other = b.predict(request("x"), Arc::new(()));
    assert!(tokio::time::timeout(Duration::from_mins(1), &mut other).await.is_err());
    drop(answers);
    other.await.unwrap();
}

/// Loads models that need as many bytes more for an answer as the id of the request says, and then take a minute for it.
fn grows() -> FnLoader {
    FnLoader::new(|_| {
        let predict = |request: InferenceRequest, progress: Arc<dyn Progress>| async move {
            let memory = progress.memory().unwrap();
            memory.grow(request.id.parse().unwrap()).await?;
            tokio::time::sleep(Duration::from_mins(1)).await;
            Ok(InferenceResponse::default())
        };
        std::future::ready(Ok(FnRuntime::with_progress(predict)))
    })
}

#[tokio::test(start_paused = true)]
async fn budget_counts_memory_that_models_need_for_an_answer() {
    let metrics = MemoryMetrics::register(&mut MetricsRegistry::default());
    let loader = BudgetLoader::new(grows(), 30, PathBuf::from("/"), metrics);
    let [a, b] = [loader.load(settings(10, false)).await.unwrap(), loader.load(settings(10, false)).await.unwrap()];
    let used = || loader.memory.state.lock().ledger.used();
    let ask = |model: &Arc<dyn Runtime>, bytes: &str| {
        let model = Arc::clone(model);
        let request = request(bytes);
        async move { model.predict(request, Arc::new(())).await.map(drop) }
    };
    ask(&a, "10").await.unwrap();
    assert_eq!((used(), is_evicted(&b)), (30, false), "both fit");
    ask(&a, "4").await.unwrap();
    assert_eq!(used(), 30, "it has grown before");
    let refused = ask(&a, "21").await.unwrap_err();
    assert_eq!(refused.kind(), RequestErrorKind::BadRequest);
    assert!(refused.to_string().contains("21 bytes for it beside its own 10"), "{refused}");
    let mut busy = Box::pin(ask(&b, "0"));
    assert!(futures_util::poll!(&mut busy).is_pending());
    let refused = ask(&a, "11").await.unwrap_err();
    assert_eq!((refused.kind(), used()), (RequestErrorKind::Overloaded, 30));
    ask(&a, "9").await.unwrap();
    busy.await.unwrap();
    ask(&a, "11").await.unwrap();
    assert_eq!((used(), is_evicted(&b)), (21, true));
    ask(&b, "0").await.unwrap();
    assert_eq!((used(), is_evicted(&a)), (10, true), "an evicted model has given everything back");
}

/// Loads models whose memory is free some time after they have been unloaded, as in a worker.
fn slow_to_leave(world: &Arc<TestState>) -> FnLoader {
    let world = Arc::clone(world);
    FnLoader::new(move |_| {
        world.add_live();
        let world = Arc::clone(&world);
        let model = FnRuntime::new(|_| std::future::ready(Ok(InferenceResponse::default())));
        let model = model.unload(move || {
            let world = Arc::clone(&world);
            async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                world.live.fetch_sub(1, Ordering::SeqCst);
            }
        });
        std::future::ready(Ok(model))
    })
}

#[tokio::test(start_paused = true)]
async fn budget_waits_until_the_memory_of_evicted_models_is_free() {
    let world = Arc::new(TestState::default());
    let metrics = MemoryMetrics::register(&mut MetricsRegistry::default());
    let loader = BudgetLoader::new(slow_to_leave(&world), 20, PathBuf::from("/"), metrics);
    let mut models = Vec::new();
    for _ in 0..4 {
        models.push(loader.load(settings(10, false)).await.unwrap());
    }
    for round in 0..12 {
        let asked = Instant::now();
        models[round % 4].predict(request("x"), Arc::new(())).await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?} in round {round}", asked.elapsed());
    }
    assert_eq!(world.most.load(Ordering::SeqCst), 2, "two at a time, including those that are being unloaded");
    drop(models);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!((world.live.load(Ordering::SeqCst), loader.memory.state.lock().ledger.used()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn budget_requests_for_resident_models_do_not_visit_all_models() {
    let world = Arc::new(TestState::default());
    let loader = loader(&world, 50);
    let model = loader.load(settings(10, false)).await.unwrap();
    let passes = || loader.memory.state.lock().ledger.passes;
    let before = passes();
    for _ in 0..100 {
        model.predict(request("x"), Arc::new(())).await.unwrap();
    }
    assert_eq!(passes(), before);
    // Loading another one does not visit them either, as long as there is memory.
    let other = loader.load(settings(10, false)).await.unwrap();
    other.predict(request("x"), Arc::new(())).await.unwrap();
    assert_eq!(passes(), before);
}

#[test]
fn artifact_size_is_sum_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("below")).unwrap();
    std::fs::write(folder.path().join("a"), [0; 10]).unwrap();
    std::fs::write(folder.path().join("below/b"), [0; 5]).unwrap();
    assert_eq!(size_of(folder.path(), MAX_DEPTH), 15);
    assert_eq!(size_of(&folder.path().join("a"), MAX_DEPTH), 10);
    assert_eq!(size_of(folder.path(), 1), 10, "depth is limited");
    assert_eq!(size_of(&folder.path().join("none"), MAX_DEPTH), 0);
}
