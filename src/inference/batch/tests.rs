//! Batches from the perspective of their callers, with a paused clock.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::HeaderValue;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::runtimes::FnRuntime;
use crate::types::{BytesElements, Datatype, Parameters, RequestedOutput, Tensor, TensorData, TokenUsage};

/// Requests in which an element begins with this byte fail.
const POISON: u8 = 13;

/// Predicts row by row: returns every input inverted or reversed, with its parameters.
#[derive(Debug, Default)]
struct RowByRow {
    /// How long a prediction takes.
    service: Duration,
    /// How many predictions have begun and are in flight, and how many rows the first input of each had.
    begun: AtomicUsize,
    running: AtomicUsize,
    rows: Mutex<Vec<usize>>,
    width: usize,
}

/// Counts a prediction until it ends or is cancelled.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RowByRow {
    fn runtime(self: &Arc<Self>) -> FnRuntime {
        let state = Arc::clone(self);
        let predict = move |request: InferenceRequest| {
            let state = Arc::clone(&state);
            async move {
                state.begun.fetch_add(1, Ordering::SeqCst);
                state.running.fetch_add(1, Ordering::SeqCst);
                let _counted = Counted(&state.running);
                state.rows.lock().push(request.inputs.first().and_then(Tensor::rows).unwrap_or(0));
                tokio::time::sleep(state.service).await;
                turn(&request)
            }
        };
        FnRuntime::new(predict).parallelism(self.width)
    }
}

fn turn(request: &InferenceRequest) -> Result<InferenceResponse, RuntimeError> {
    let exception = |message: String| RuntimeError::exception(message);
    if request.inputs.iter().any(is_poisoned) {
        return Err(exception("poison".to_owned()));
    }
    let find = |wanted: &RequestedOutput| {
        let input = request.inputs.iter().find(|input| input.name == wanted.name);
        input.map(turned).ok_or_else(|| exception(format!("no `{}`", wanted.name)))
    };
    let outputs = if request.outputs.is_empty() {
        request.inputs.iter().map(turned).collect()
    } else {
        request.outputs.iter().map(find).collect::<Result<_, _>>()?
    };
    Ok(InferenceResponse { parameters: request.parameters.clone(), outputs, ..InferenceResponse::default() })
}

fn is_poisoned(input: &Tensor) -> bool {
    match &input.data {
        TensorData::Fixed(bytes) => {
            bytes.chunks(input.datatype.width().unwrap()).any(|element| element.first() == Some(&POISON))
        }
        TensorData::Variable(elements) => elements.iter().any(|element| element.first() == Some(&POISON)),
        TensorData::Irregular(_) => false,
    }
}

fn turned(input: &Tensor) -> Tensor {
    let data = match &input.data {
        TensorData::Fixed(bytes) => TensorData::Fixed(bytes.iter().map(|byte| !byte).collect::<Vec<_>>().into()),
        TensorData::Variable(elements) => {
            let turned = elements.iter().map(|element| element.iter().rev().copied().collect::<Vec<_>>());
            TensorData::Variable(turned.collect::<BytesElements>().with_text(elements.is_text()))
        }
        TensorData::Irregular(data) => TensorData::Irregular(data.clone()),
    };
    Tensor { data, ..input.clone() }
}

fn batched(runtime: &Arc<RowByRow>, size: usize, time: Duration) -> Arc<Batched> {
    batch(runtime.runtime(), size, time)
}

fn batch(runtime: FnRuntime, size: usize, time: Duration) -> Arc<Batched> {
    let metrics = InferenceMetrics::register(&mut crate::telemetry::metrics::Registry::default());
    let options = BatchOptions { max_size: NonZeroUsize::new(size).unwrap(), max_time: time };
    Arc::new(Batched::new(Arc::new(runtime), options, metrics.of_batches("m", None), Traces::default()))
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn slow(service: u64) -> Arc<RowByRow> {
    Arc::new(RowByRow { service: milliseconds(service), width: 1, ..RowByRow::default() })
}

/// A request of one input, `x`, with a row for each number.
fn numbers(values: &[i32]) -> InferenceRequest {
    let input = Tensor::from_elements("x", vec![values.len(), 1], values).unwrap();
    InferenceRequest { inputs: vec![input], ..InferenceRequest::default() }
}

fn ask(
    batched: &Arc<Batched>,
    request: InferenceRequest,
) -> tokio::task::JoinHandle<Result<InferenceResponse, String>> {
    let batched = Arc::clone(batched);
    tokio::spawn(async move { batched.predict(request, Arc::new(())).await.map_err(|error| error.to_string()) })
}

fn values(response: &InferenceResponse) -> Vec<i32> {
    response.outputs[0].elements::<i32>().unwrap().iter().map(|value| !value).collect()
}

/// Waits until the runtime has begun `count` predictions. Advances the clock only while no task can run.
async fn begun(runtime: &RowByRow, count: usize) {
    loop {
        for _ in 0..100 {
            if runtime.begun.load(Ordering::SeqCst) >= count {
                return;
            }
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(milliseconds(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn batch_gathers_requests_while_runtime_is_busy() {
    let runtime = slow(20);
    let batched = batched(&runtime, 8, milliseconds(500));
    let start = Instant::now();
    let first = ask(&batched, numbers(&[1]));
    begun(&runtime, 1).await;
    let others: Vec<_> = (2..7).map(|value| ask(&batched, numbers(&[value, value * 10]))).collect();
    assert_eq!(values(&first.await.unwrap().unwrap()), [1]);
    for (value, other) in (2..).zip(others) {
        let response = other.await.unwrap().unwrap();
        assert_eq!(values(&response), [value, value * 10]);
        assert_eq!(response.outputs[0].shape, [2, 1]);
    }
    assert_eq!(*runtime.rows.lock(), [1, 10]);
    // The runtime waits for the first caller, which was present a moment ago, for at most half a prediction.
    assert!(start.elapsed() <= milliseconds(52), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn batch_is_sent_when_full_or_when_runtime_is_free() {
    let runtime = slow(1000);
    let batched = batched(&runtime, 3, milliseconds(50));
    let _busy = ask(&batched, numbers(&[0]));
    begun(&runtime, 1).await;
    let start = Instant::now();
    let _full: Vec<_> = (0..3).map(|value| ask(&batched, numbers(&[value]))).collect();
    begun(&runtime, 2).await;
    assert!(start.elapsed() < milliseconds(2), "a full batch goes at once");
    let _early = ask(&batched, numbers(&[0]));
    tokio::time::sleep(milliseconds(500)).await;
    let _late = ask(&batched, numbers(&[1]));
    begun(&runtime, 3).await;
    assert!(start.elapsed() >= milliseconds(999) && start.elapsed() < milliseconds(1005), "{:?}", start.elapsed());
    assert_eq!(*runtime.rows.lock(), [1, 3, 2]);
}

#[tokio::test(start_paused = true)]
async fn batch_failure_affects_only_the_invalid_request() {
    let runtime = slow(10);
    let batched = batched(&runtime, 8, milliseconds(100));
    let _busy = ask(&batched, numbers(&[0]));
    begun(&runtime, 1).await;
    let asked: Vec<_> = [1, 2, i32::from(POISON), 4].map(|value| (value, ask(&batched, numbers(&[value])))).into();
    for (value, answer) in asked {
        match answer.await.unwrap() {
            Ok(response) => assert_eq!(values(&response), [value]),
            Err(error) => assert_eq!((value, error.as_str()), (i32::from(POISON), "poison")),
        }
    }
    let rows = runtime.rows.lock().clone();
    assert!(
        rows.len() <= 6 && rows.starts_with(&[1, 4, 2]),
        "the batch, its halves, and the requests of one: {rows:?}"
    );
}

/// Sends `requests` that form one batch, and returns their results.
async fn ask_together(
    batched: &Arc<Batched>,
    runtime: &RowByRow,
    requests: impl Iterator<Item = InferenceRequest>,
) -> Vec<Result<InferenceResponse, String>> {
    let before = runtime.begun.load(Ordering::SeqCst);
    let busy = ask(batched, numbers(&[0]));
    begun(runtime, before + 1).await;
    let asked: Vec<_> = requests.map(|request| ask(batched, request)).collect();
    let mut results = Vec::new();
    for asked in asked {
        results.push(asked.await.unwrap());
    }
    busy.await.unwrap().unwrap();
    results
}

#[tokio::test(start_paused = true)]
async fn batch_with_one_invalid_request_is_bisected() {
    for position in 0..64 {
        let runtime = slow(10);
        let batched = batched(&runtime, 64, milliseconds(100));
        let value = |index| if index == position { i32::from(POISON) } else { 1 };
        let requests = (0..64).map(|index| numbers(&[value(index)]));
        let results = ask_together(&batched, &runtime, requests).await;
        for (index, result) in results.into_iter().enumerate() {
            assert_eq!(result.is_ok(), index != position, "{index} of {position}");
        }
        // Those of the first request, and of the whole batch, and at most two of each level.
        let predictions = runtime.rows.lock().len();
        assert!(predictions <= 2 + 2 * 6, "{predictions} for {position}");
    }
}

#[tokio::test(start_paused = true)]
async fn batch_parts_run_in_parallel_up_to_parallelism() {
    let runtime = Arc::new(RowByRow { service: milliseconds(100), width: 2, ..RowByRow::default() });
    let batched = batched(&runtime, 16, milliseconds(10));
    let start = Instant::now();
    let requests = (0..16).map(|_| numbers(&[i32::from(POISON)]));
    let asked: Vec<_> = requests.map(|request| ask(&batched, request)).collect();
    for asked in asked {
        asked.await.unwrap().unwrap_err();
        assert!(runtime.running.load(Ordering::SeqCst) <= 2);
    }
    // At most 31 predictions, two at a time.
    let predictions = u32::try_from(runtime.rows.lock().len()).unwrap();
    assert!(predictions <= 33, "{predictions}");
    assert!(start.elapsed() <= milliseconds(100) * (predictions / 2 + 3), "{:?} for {predictions}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn batch_is_retried_only_if_the_models_code_failed() {
    use RequestErrorKind::{
        BadRequest, Internal, ModelFailed, NotReady, NothingRan, Rejected, Stopping, Unavailable, WorkerLost,
    };
    for (kind, retried) in [
        (ModelFailed, true),
        (Rejected { status: 422 }, true),
        (BadRequest, true),
        (NothingRan, true),
        (NotReady, false),
        (WorkerLost, false),
        (Unavailable, false),
        (Stopping, false),
        (Internal, false),
    ] {
        let predictions = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&predictions);
        let failing = FnRuntime::new(move |request: InferenceRequest| {
            let counted = Arc::clone(&counted);
            async move {
                tokio::time::sleep(milliseconds(10)).await;
                counted.fetch_add(1, Ordering::SeqCst);
                let rows = request.inputs.first().and_then(Tensor::rows);
                if rows == Some(1) { turn(&request) } else { Err(RuntimeError::new(kind, "no luck")) }
            }
        });
        let batched = batch(failing, 8, milliseconds(100));
        let asked: Vec<_> = (0..9).map(|_| ask_kind(&batched, numbers(&[1]))).collect();
        let mut outcomes = Vec::new();
        for asked in asked {
            outcomes.push(asked.await.unwrap());
        }
        // The first is predicted alone.
        for outcome in &outcomes[1..] {
            let expected = if retried { Ok(()) } else { Err((kind, "no luck".to_owned())) };
            assert_eq!(*outcome, expected, "{kind:?}");
        }
        let predictions = predictions.load(Ordering::SeqCst);
        assert!(if retried { predictions > 8 } else { predictions == 2 }, "{predictions} for {kind:?}");
    }
}

fn ask_kind(
    batched: &Arc<Batched>,
    request: InferenceRequest,
) -> tokio::task::JoinHandle<Result<(), (RequestErrorKind, String)>> {
    let batched = Arc::clone(batched);
    tokio::spawn(async move {
        let outcome = batched.predict(request, Arc::new(())).await;
        outcome.map(drop).map_err(|error| (error.kind(), error.to_string()))
    })
}

/// Predicts a batch in a fixed time and some more for each row, one batch at a time.
fn one_at_a_time(fixed: Duration, row: Duration) -> FnRuntime {
    let one = Arc::new(Semaphore::new(1));
    FnRuntime::new(move |request| {
        let one = Arc::clone(&one);
        async move {
            let _turn = one.acquire().await.unwrap();
            let rows = request.inputs.first().and_then(Tensor::rows).unwrap_or(0);
            tokio::time::sleep(fixed + row * u32::try_from(rows).unwrap()).await;
            turn(&request)
        }
    })
}

/// Returns how many requests of 63 callers are answered in a minute, beside one more caller.
async fn answered_beside(other: i32, fixed: u64, row: u64) -> usize {
    let batched = batch(one_at_a_time(milliseconds(fixed), milliseconds(row)), 64, milliseconds(10));
    let answered = Arc::new(AtomicUsize::new(0));
    let end = Instant::now() + Duration::from_mins(1);
    let callers = (0..64_u64).map(|caller| {
        let (batched, answered) = (Arc::clone(&batched), Arc::clone(&answered));
        tokio::spawn(async move {
            for round in 1.. {
                if Instant::now() >= end {
                    break;
                }
                // Callers return after a few milliseconds, in different orders, so that batches are mixed.
                tokio::time::sleep(milliseconds((caller * 31 + round * 17) % 8)).await;
                let value = if caller == 0 { other } else { 1 };
                let outcome = batched.predict(numbers(&[value]), Arc::new(())).await;
                assert_eq!(outcome.is_ok(), value == 1);
                answered.fetch_add(usize::from(caller > 0), Ordering::SeqCst);
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    answered.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn batch_throughput_beside_invalid_requests_is_at_least_half() {
    for (fixed, row) in [(50, 0), (20, 1), (5, 1)] {
        let alone = answered_beside(1, fixed, row).await;
        let beside = answered_beside(i32::from(POISON), fixed, row).await;
        assert!(beside * 2 >= alone, "{beside} beside invalid requests, {alone} without");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// However many urgent requests keep coming, each group is sent within a bounded number of turns.
    #[test]
    fn batch_urgent_requests_do_not_starve_others(
        urgent in 1..24_usize,
        size in 2..6_usize,
        width in 1..3_usize,
        bulk in 1..4_i32,
    ) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        clock.block_on(async {
            let runtime = Arc::new(RowByRow { service: milliseconds(100), width, ..RowByRow::default() });
            let batched = batched(&runtime, size, milliseconds(10));
            for _ in 0..urgent {
                let batched = Arc::clone(&batched);
                tokio::spawn(async move {
                    loop {
                        let request = InferenceRequest { priority: Priority::new(1), ..numbers(&[1]) };
                        batched.predict(request, Arc::new(())).await.unwrap();
                    }
                });
            }
            tokio::time::sleep(milliseconds(1050)).await;
            let before = runtime.begun.load(Ordering::SeqCst);
            // Each has a form of its own, and so a group.
            let asked: Vec<_> = (0..bulk).map(|index| {
                let mut request = InferenceRequest { priority: Priority::LAST, ..numbers(&[1]) };
                request.inputs[0].name = format!("bulk {index}");
                ask(&batched, request)
            }).collect();
            for asked in asked {
                let answer = tokio::time::timeout(Duration::from_mins(1), asked).await;
                prop_assert!(answer.is_ok(), "no answer after {} turns", runtime.begun.load(Ordering::SeqCst) - before);
            }
            let turns = runtime.begun.load(Ordering::SeqCst) - before;
            let bound = (usize::try_from(bulk).unwrap() + 2) * (PriorityScheduler::MAX_SKIPS as usize + 1) + urgent;
            prop_assert!(turns <= bound, "{} turns, {} at most", turns, bound);
            Ok(())
        })?;
    }
}

/// Records the progress of a request.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<&'static str>>);

impl Progress for Told {
    fn reserve(&self, _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn begin(&self) {
        self.0.lock().push("begin");
    }

    fn yielded(&self) {}

    fn wait_again(&self) {
        self.0.lock().push("wait again");
    }

    fn joined(&self, _: TraceContext) {}

    fn used(&self, _: TokenUsage) {}

    fn steps(&self) -> Option<Arc<dyn Steps>> {
        None
    }

    fn memory(&self) -> Option<Arc<dyn ModelMemory>> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn batch_progress_reports_begin_and_retry() {
    let runtime = slow(10);
    let batched = batched(&runtime, 8, milliseconds(100));
    let busy = ask(&batched, numbers(&[0]));
    begun(&runtime, 1).await;
    let told = Arc::new(Told::default());
    let (asked, progress) = (Arc::clone(&batched), Arc::clone(&told) as Arc<dyn Progress>);
    let asked = tokio::spawn(async move { asked.predict(numbers(&[1]), progress).await.map(drop) });
    let poison = ask(&batched, numbers(&[i32::from(POISON)]));
    tokio::time::sleep(milliseconds(5)).await;
    assert!(told.0.lock().is_empty(), "it waits for the runtime");
    busy.await.unwrap().unwrap();
    asked.await.unwrap().unwrap();
    poison.await.unwrap().unwrap_err();
    assert_eq!(*told.0.lock(), ["begin", "wait again", "begin"]);
}

#[tokio::test(start_paused = true)]
async fn batch_continues_when_a_caller_disconnects() {
    let runtime = slow(20);
    let batched = batched(&runtime, 8, milliseconds(500));
    let busy = ask(&batched, numbers(&[0]));
    begun(&runtime, 1).await;
    let asked: Vec<_> = (1..5).map(|value| ask(&batched, numbers(&[value]))).collect();
    tokio::time::sleep(milliseconds(1)).await;
    asked[0].abort();
    tokio::time::sleep(milliseconds(1)).await;
    assert_eq!(batched.batcher.state.lock().policy.waiting(), 3, "its place is free at once");
    busy.await.unwrap().unwrap();
    begun(&runtime, 2).await;
    // The caller that polls the batch now may disconnect, too.
    asked[1].abort();
    asked[2].abort();
    let mut asked = asked.into_iter();
    assert_eq!(values(&asked.nth(3).unwrap().await.unwrap().unwrap()), [4]);
    assert_eq!(*runtime.rows.lock(), [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn batch_is_cancelled_with_its_last_caller() {
    let runtime = slow(10_000);
    let batched = batched(&runtime, 2, milliseconds(500));
    let asked = [ask(&batched, numbers(&[1])), ask(&batched, numbers(&[2])), ask(&batched, numbers(&[3]))];
    begun(&runtime, 2).await;
    for caller in &asked {
        caller.abort();
    }
    tokio::time::sleep(milliseconds(1)).await;
    assert_eq!(runtime.running.load(Ordering::SeqCst), 0);
    let state = batched.batcher.state.lock();
    assert!(state.groups.is_empty() && state.policy.waiting() == 0);
}

#[tokio::test(start_paused = true)]
async fn batch_excludes_large_requests_and_requests_without_rows() {
    let runtime = slow(10);
    let batched = batched(&runtime, 8, milliseconds(100));
    let busy = ask(&batched, numbers(&[0]));
    begun(&runtime, 1).await;
    let start = Instant::now();
    let large = vec![1; MAX_BYTES / 4 + 1];
    let scalar = Tensor::from_elements("x", vec![], &[7]).unwrap();
    let scalar = InferenceRequest { inputs: vec![scalar], ..InferenceRequest::default() };
    let asked =
        [numbers(&large), scalar, InferenceRequest::default(), numbers(&[])].map(|request| ask(&batched, request));
    begun(&runtime, 5).await;
    assert!(start.elapsed() < milliseconds(1));
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
    busy.await.unwrap().unwrap();
    // Together they are too large, so the first is sent when the second arrives.
    let half = vec![1; MAX_BYTES / 8 + 1];
    let asked = [numbers(&[1]), numbers(&half), numbers(&half)].map(|request| ask(&batched, request));
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(runtime.rows.lock()[5..], [1, half.len(), half.len()]);
}

#[tokio::test(start_paused = true)]
async fn batch_response_with_too_few_rows_is_an_error() {
    let one_row = FnRuntime::new(|request| async move {
        tokio::time::sleep(milliseconds(5)).await;
        let sum = request.inputs[0].elements::<i32>().unwrap().iter().sum::<i32>();
        let output = Tensor::from_elements("sum", vec![1], &[sum]).unwrap();
        Ok(InferenceResponse { outputs: vec![output], ..InferenceResponse::default() })
    });
    let batched = batch(one_row, 4, milliseconds(100));
    let asked: Vec<_> = (0..5).map(|value| ask(&batched, numbers(&[value, 1]))).collect();
    for (value, answer) in (0..).zip(asked) {
        let response = answer.await.unwrap().unwrap();
        assert_eq!(response.outputs[0].elements::<i32>().unwrap().as_ref(), [value + 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn batch_splits_output_parameters_for_single_requests_too() {
    let lists = FnRuntime::new(|request| async move {
        tokio::time::sleep(milliseconds(5)).await;
        let mut output = request.inputs[0].clone();
        let names = output.elements::<i32>().unwrap().iter().map(|row| json!(format!("row {row}"))).collect();
        output.parameters.others.insert("names".to_owned(), Value::Array(names));
        output.parameters.others.insert("label".to_owned(), json!("text"));
        Ok(InferenceResponse { outputs: vec![output], ..InferenceResponse::default() })
    });
    let batched = batch(lists, 8, milliseconds(100));
    let cases = [(vec![1], json!("row 1")), (vec![2, 3], json!(["row 2", "row 3"])), (vec![4], json!("row 4"))];
    for round in 0..2 {
        let asked: Vec<_> = cases.iter().map(|(rows, _)| ask(&batched, numbers(rows))).collect();
        for ((_, names), answer) in cases.iter().zip(asked) {
            let parameters = &answer.await.unwrap().unwrap().outputs[0].parameters.others;
            assert_eq!((&parameters["names"], &parameters["label"]), (names, &json!("text")), "{round}");
        }
    }
}

#[test]
fn batch_merging_matches_documentation() {
    let request = |value: &str, header: &'static str| {
        let mut request = numbers(&[1]);
        let parameters = &mut request.inputs[0].parameters;
        *parameters = Parameters::with_content_type("np");
        parameters.others.insert("custom-param".to_owned(), json!(value));
        request.headers.insert("x-tenant", HeaderValue::from_static(header));
        request.headers.insert("x-same", HeaderValue::from_static("same"));
        request.id = value.to_owned();
        request
    };
    let (a, b) = (request("value-1", "a"), request("value-2", "b"));
    let merged = merge::merge(&[&a, &b]).unwrap();
    assert_eq!(merged.inputs[0].shape, [2, 1]);
    assert_eq!(merged.inputs[0].parameters.content_type(), Some("np"));
    assert_eq!(merged.inputs[0].parameters.others["custom-param"], json!(["value-1", "value-2"]));
    assert_eq!((merged.id.as_str(), merged.headers.len()), ("", 1), "nothing of one caller alone");
    assert_eq!(merged.headers["x-same"], "same");

    let mut output = Tensor::from_elements("foo", vec![3, 3], &[1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
    output.parameters = Parameters::with_content_type("np");
    output.parameters.others.insert("foo".to_owned(), json!(["foo_1", "foo_2"]));
    output.parameters.others.insert("bar".to_owned(), json!(["bar_1", "bar_2", "bar_3"]));
    output.parameters.others.insert("all".to_owned(), json!([1, 2, 3, 4]));
    let response = InferenceResponse { outputs: vec![output], ..InferenceResponse::default() };
    let parts = merge::split(&response, &[1, 1, 1]).unwrap();
    let parameters: Vec<_> = parts.iter().map(|part| json!(part.outputs[0].parameters)).collect();
    assert_eq!(
        parameters,
        [
            json!({"content_type": "np", "foo": "foo_1", "bar": "bar_1", "all": [1, 2, 3, 4]}),
            json!({"content_type": "np", "foo": "foo_2", "bar": "bar_2", "all": [1, 2, 3, 4]}),
            json!({"content_type": "np", "bar": "bar_3", "all": [1, 2, 3, 4]}),
        ]
    );
    assert_eq!(parts[1].outputs[0].elements::<i32>().unwrap().as_ref(), [4, 5, 6]);
    let error = merge::split(&response, &[1, 1]).unwrap_err().to_string();
    assert_eq!(error, "output `foo` has the shape [3, 3] and 9 elements, expected 2 rows, as in the batch");
}

#[test]
fn batch_never_mixes_requests_of_different_form() {
    let form = |request: &InferenceRequest| BatchShare::of(request).unwrap().key;
    let base = || numbers(&[1, 2]);
    let changed = |change: fn(&mut InferenceRequest)| {
        let mut request = base();
        change(&mut request);
        form(&request)
    };
    assert_eq!(form(&base()), form(&numbers(&[5])), "rows may differ");
    assert_eq!(form(&base()), changed(|request| request.id = "id".to_owned()));
    let edits: [fn(&mut InferenceRequest); 10] = [
        |request| request.inputs[0].name = "y".to_owned(),
        |request| request.inputs[0].datatype = Datatype::Fp32,
        |request| request.inputs[0].shape = vec![2, 1, 1],
        |request| request.inputs[0].shape = vec![1, 2],
        |request| request.inputs.push(request.inputs[0].clone()),
        |request| request.inputs[0].parameters = Parameters::with_content_type("np"),
        |request| drop(request.inputs[0].parameters.others.insert("k".to_owned(), json!(1))),
        |request| request.parameters = Parameters::with_content_type("np"),
        |request| drop(request.parameters.others.insert("temperature".to_owned(), json!(0.5))),
        |request| request.outputs.push(RequestedOutput { name: "x".to_owned(), ..RequestedOutput::default() }),
    ];
    let forms: Vec<_> = edits.into_iter().map(changed).chain([form(&base())]).collect();
    for (index, one) in forms.iter().enumerate() {
        assert!(!forms[..index].contains(one), "{index}");
    }
}

fn datatype() -> impl Strategy<Value = Datatype> {
    prop_oneof![Just(Datatype::Int32), Just(Datatype::Bytes), Just(Datatype::Bool), Just(Datatype::Fp16)]
}

/// Elements that are rarely poison.
fn tensor(name: &'static str) -> impl Strategy<Value = (Tensor, usize)> {
    let trailing = prop_oneof![3 => Just(vec![2]), 1 => Just(vec![]), 1 => Just(vec![1, 2]), 1 => Just(vec![0])];
    let parameters = (
        proptest::option::of(prop_oneof![4 => Just(json!(1)), 2 => Just(json!("s")), 1 => Just(json!([1]))]),
        any::<bool>(),
    );
    (datatype(), trailing, parameters, any::<u8>(), any::<bool>()).prop_map(move |parts| {
        let (datatype, trailing, (custom, has_type), seed, text) = parts;
        let mut parameters = if has_type { Parameters::with_content_type("np") } else { Parameters::new() };
        parameters.others.extend(custom.map(|value| ("k".to_owned(), value)));
        let data = TensorData::Fixed(Bytes::from(vec![seed]));
        let data = if datatype == Datatype::Bytes && text {
            TensorData::Variable(BytesElements::default().with_text(true))
        } else {
            data
        };
        (
            Tensor { name: name.to_owned(), datatype, shape: trailing, parameters, data, nested: false, as_sent: None },
            usize::from(seed),
        )
    })
}

/// Returns a tensor with `rows` rows and elements for them.
fn filled(tensor: Tensor, seed: usize, rows: usize) -> Tensor {
    let mut shape = vec![rows];
    shape.extend(&tensor.shape);
    let count: usize = shape.iter().product();
    let data = match tensor.datatype {
        Datatype::Bytes => {
            let text = matches!(&tensor.data, TensorData::Variable(elements) if elements.is_text());
            let elements: BytesElements = (0..count).map(|index| format!("{}", seed * index)).collect();
            TensorData::Variable(elements.with_text(text))
        }
        Datatype::Bool => {
            TensorData::Fixed((0..count).map(|index| u8::from((seed + index).is_multiple_of(2))).collect())
        }
        other => {
            let width = other.width().unwrap();
            TensorData::Fixed((0..count * width).map(|index| u8::try_from((seed + index * 7) % 251).unwrap()).collect())
        }
    };
    Tensor { shape, data, ..tensor }
}

fn request() -> impl Strategy<Value = InferenceRequest> {
    let inputs = prop_oneof![
        3 => tensor("a").prop_map(|a| vec![a]),
        1 => (tensor("a"), tensor("b")).prop_map(|(a, b)| vec![a, b]),
        1 => tensor("b").prop_map(|b| vec![b]),
    ];
    let rows = prop_oneof![8 => 1..4_usize, 1 => Just(0)];
    let parameters =
        prop_oneof![4 => Just(json!({})), 1 => Just(json!({"temperature": 1})), 1 => Just(json!({"temperature": 2}))];
    let outputs = prop_oneof![4 => Just(vec![]), 1 => Just(vec!["a"]), 1 => Just(vec!["b", "a"])];
    (inputs, rows, parameters, outputs, any::<bool>()).prop_map(|(inputs, rows, parameters, outputs, ragged)| {
        let last = inputs.len() - 1;
        let tensors = inputs.into_iter().enumerate().map(|(index, (tensor, seed))| {
            // Inputs that differ in their rows.
            let rows = if ragged && index == last && last > 0 { rows + 1 } else { rows };
            filled(tensor, seed, rows)
        });
        let outputs =
            outputs.into_iter().map(|name| RequestedOutput { name: name.to_owned(), ..RequestedOutput::default() });
        let Value::Object(parameters) = parameters else { return InferenceRequest::default() };
        InferenceRequest {
            parameters: parameters.into(),
            inputs: tensors.collect(),
            outputs: outputs.collect(),
            ..InferenceRequest::default()
        }
    })
}

/// A request, when it arrives, and when its caller disconnects, in milliseconds.
fn call() -> impl Strategy<Value = (InferenceRequest, u64, Option<u64>)> {
    (request(), 0..30_u64, proptest::option::weighted(0.1, 0..30_u64))
}

/// Returns the parts of a result that a client can see.
fn seen(outcome: Result<InferenceResponse, String>) -> Result<(Parameters, Vec<(Tensor, bool)>), String> {
    let InferenceResponse { parameters, outputs, .. } = outcome?;
    let is_text = |tensor: &Tensor| matches!(&tensor.data, TensorData::Variable(elements) if elements.is_text());
    Ok((parameters, outputs.into_iter().map(|output| (output.clone(), is_text(&output))).collect()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn batch_results_equal_unbatched_results(
        calls in proptest::collection::vec(call(), 1..40),
        size in 2..10_usize,
        time in 1..40_u64,
        service in 0..15_u64,
        width in 1..3_usize,
    ) {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        clock.block_on(async {
            let runtime = Arc::new(RowByRow { service: milliseconds(service), width, ..RowByRow::default() });
            let batched = batched(&runtime, size, milliseconds(time));
            let asked: Vec<_> = calls.iter().map(|(request, after, leaves)| {
                let (batched, request, after) = (Arc::clone(&batched), request.clone(), milliseconds(*after));
                let patience = leaves.map_or(Duration::from_mins(1), milliseconds);
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    tokio::time::timeout(patience, batched.predict(request, Arc::new(()))).await.ok()
                })
            }).collect();
            for ((request, _, leaves), answer) in calls.iter().zip(asked) {
                let Some(outcome) = answer.await.unwrap() else {
                    prop_assert!(leaves.is_some(), "an answer was lost");
                    continue;
                };
                let outcome = outcome.map_err(|error| error.to_string());
                let mut alone = turn(request).map_err(|error| error.to_string());
                if let (Ok(response), Some(share)) = (&mut alone, BatchShare::of(request)) {
                    merge::split_one(response, share.rows);
                }
                prop_assert_eq!(seen(outcome), seen(alone));
            }
            prop_assert_eq!(runtime.running.load(Ordering::SeqCst), 0);
            prop_assert_eq!(batched.batcher.state.lock().policy.waiting(), 0);
            Ok(())
        })?;
    }
}
