//! The steps of a request: requests to other models, within its admission and its deadline.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Admission, Inference, InferenceError, ModelTarget};
use crate::registry::RegisteredModel;
use crate::runtimes::{
    BoxFuture, CallReply, MAX_STEP_DEPTH, MAX_STEPS, ModelMemory, Progress, RemoteCall, RequestStream, ResponseStream,
    RuntimeError, StepModel, Steps,
};
use crate::telemetry::traces::Span;
use crate::types::json::{NonFinite, read_v1_request, write_v1_response};
use crate::types::{
    ByteReservation, CustomCall, CustomReply, InferenceRequest, InferenceResponse, Priority, RequestErrorKind,
    StepDepth, TokenUsage, TraceContext,
};

/// The status of requests whose steps lead too far.
const LOOP_DETECTED: u16 = 508;

/// What the steps of a request have of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepOrigin<'a> {
    pub(super) priority: Priority,
    pub(super) trace: Option<TraceContext>,
    /// Say how many requests on other servers led to it.
    pub(super) headers: Option<&'a HeaderMap>,
    pub(super) deadline: Option<Instant>,
    pub(super) is_stream: bool,
}

impl<'a> StepOrigin<'a> {
    pub(super) fn of(request: &'a InferenceRequest) -> Self {
        Self { priority: request.priority, trace: request.trace, headers: Some(&request.headers), ..Self::default() }
    }
}

/// Answers the steps of one request.
#[derive(Debug)]
pub(super) struct StepScope {
    inference: Inference,
    /// Shares the slot of the request. Holds the bytes of all responses of its steps until the request ends.
    admission: Mutex<Admission>,
    deadline: Option<Instant>,
    priority: Priority,
    trace: Option<TraceContext>,
    /// How many requests this one is a step of, itself included.
    depth: usize,
    /// How many steps the request, or the one that it is a step of, has had. Those of each message of a stream count for themselves.
    steps: Option<Arc<AtomicUsize>>,
    /// The model of the request, which asks only the steps of its description.
    model: Arc<RegisteredModel>,
    /// Whether the request has been answered or cancelled.
    has_ended: AtomicBool,
    /// Whether steps run on after the answer.
    is_detached: AtomicBool,
}

impl StepScope {
    /// Creates the scope of a request to `target`.
    pub(super) fn new(
        inference: &Inference,
        target: &ModelTarget,
        admission: &mut Admission,
        origin: StepOrigin<'_>,
    ) -> Arc<Self> {
        let StepOrigin { priority, trace, headers, deadline, is_stream } = origin;
        let depth = headers.map(StepDepth::of).unwrap_or_default();
        Arc::new(Self {
            inference: inference.clone(),
            admission: Mutex::new(admission.nested()),
            deadline,
            priority,
            trace,
            depth: target.depth.max(depth.0).saturating_add(1),
            steps: (!is_stream).then(|| target.steps.clone().unwrap_or_default()),
            model: Arc::clone(&target.model),
            has_ended: AtomicBool::new(false),
            is_detached: AtomicBool::new(false),
        })
    }

    /// Gives the slot and the bytes of the request back, even if the model's code still runs.
    pub(super) fn end(&self) {
        if self.is_detached.load(Ordering::Acquire) {
            return;
        }
        self.has_ended.store(true, Ordering::Release);
        drop(std::mem::take(&mut *self.admission.lock()));
    }

    /// Keeps the scope until all of a reply has been sent or dropped.
    pub(super) fn until_end_of(self: Arc<Self>, reply: CallReply) -> CallReply {
        self.is_detached.store(true, Ordering::Release);
        reply.holding(EndOfScope(self))
    }

    fn check_running(&self) -> Result<(), RuntimeError> {
        if self.has_ended() {
            return Err(RuntimeError::exception("the request that this step belongs to has ended"));
        }
        Ok(())
    }

    /// Checks whether the request may have another step, and counts it.
    fn check_step(&self) -> Result<(), RuntimeError> {
        self.check_running()?;
        if let Some(steps) = &self.steps {
            steps.fetch_add(1, Ordering::Relaxed);
        }
        self.check_limits()
    }

    fn target(&self, model: &StepModel) -> Result<ModelTarget, RuntimeError> {
        self.check_step()?;
        if !self.model.steps().contains(model) {
            return Err(RuntimeError::exception(format!(
                "the model may not call `{model}`, because it has not declared it"
            )));
        }
        check_depth(self.depth)?;
        // Requests in flight finish during a shutdown, so their steps are not rejected.
        let registry = self.inference.registry();
        let found = registry.find(&model.name, model.version.as_deref()).map_err(InferenceError::from);
        Ok(ModelTarget {
            model: found.map_err(step_error)?,
            with_version: model.version.is_some(),
            deadline: self.deadline,
            traces: self.inference.traces().clone(),
            depth: self.depth,
            steps: self.steps.clone(),
        })
    }

    fn admission(&self) -> Admission {
        self.admission.lock().nested()
    }

    /// Keeps the bytes of a response that a later step may still use.
    fn keep(&self, mut admission: Admission) {
        self.admission.lock().reservation.merge(std::mem::take(&mut admission.reservation));
    }

    fn span(&self, step: impl fmt::Display) -> Option<Span> {
        self.inference.traces().step(self.trace, || format!("step {step}"))
    }

    fn prepare(&self, request: &mut InferenceRequest, span: Option<&Span>) {
        request.priority = self.priority;
        request.trace = span.map(Span::context);
    }

    /// Removes the credentials of the caller that a model must not pass on to other servers.
    fn hide_credentials(&self, model: &RegisteredModel, headers: &mut HeaderMap) {
        if model.asks_servers {
            self.inference.forwarded.remove_others(headers);
        }
    }

    async fn answer_v1(
        &self,
        target: &ModelTarget,
        mut headers: HeaderMap,
        body: Bytes,
        span: Option<&Span>,
        admission: &mut Admission,
    ) -> Result<CustomReply, RuntimeError> {
        let (inference, model) = (&self.inference, &target.model);
        self.hide_credentials(model, &mut headers);
        if let Some(handlers) = model.v1_handlers() {
            let path = format!("/v1/models/{}:predict", model.name);
            let (parameters, query) = (Vec::new(), String::new());
            let call = CustomCall { method: Method::POST, path, parameters, query, headers, body };
            let reply = inference.call_as_request(target, handlers.predict, call, admission).await;
            // A reply that is sent while it is made holds the admission itself.
            let reserve = |bytes| Ok(admission.reservation.grow(bytes)?);
            let whole = async { reply?.whole(reserve).await };
            return whole.await.map_err(step_error);
        }
        let rule = inference.tensor_rule(model);
        let declared = Arc::clone(model);
        let size = body.len();
        let read = move || read_v1_request(&body, &declared.metadata.inputs, rule);
        let read = inference.compute.run_sized(size, self.priority, read).await?;
        let mut request = read.map_err(RuntimeError::invalid_request)?;
        self.prepare(&mut request, span);
        request.headers = headers.into();
        let response = inference.infer(target, request, admission).await.map_err(step_error)?;
        let size = response.outputs.iter().map(|output| 2 * output.byte_len()).sum();
        let write = move || write_v1_response(&response, NonFinite::Null);
        let written = inference.compute.run_sized(size, self.priority, write).await?;
        let body = Bytes::from(written.map_err(|error| RuntimeError::exception(error.to_string()))?);
        let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))].into_iter().collect();
        Ok(CustomReply { status: StatusCode::OK, headers, body })
    }
}

/// Ends a scope when it is dropped.
struct EndOfScope(Arc<StepScope>);

impl Drop for EndOfScope {
    fn drop(&mut self) {
        self.0.is_detached.store(false, Ordering::Release);
        self.0.end();
    }
}

impl Steps for StepScope {
    fn infer(
        self: Arc<Self>,
        model: &StepModel,
        mut request: InferenceRequest,
    ) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>> {
        let checked = self.target(model).and_then(|target| {
            // Data from clients and models in Python may be irregular.
            let rule = self.inference.tensor_rule(&target.model);
            rule.check(&request.inputs).map_err(RuntimeError::invalid_request)?;
            Ok(target)
        });
        let target = match checked {
            Ok(target) => target,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let mut span = self.span(model);
        self.prepare(&mut request, span.as_ref());
        if let Some(headers) = request.headers.written() {
            self.hide_credentials(&target.model, headers);
        }
        Box::pin(async move {
            let mut admission = self.admission();
            let result = self.inference.infer(&target, request, &mut admission).await;
            if result.is_err()
                && let Some(span) = &mut span
            {
                span.fail();
            }
            self.keep(admission);
            result.map_err(step_error)
        })
    }

    fn infer_remote(
        self: Arc<Self>,
        step: String,
        mut request: InferenceRequest,
        call: RemoteCall,
    ) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>> {
        Box::pin(async move {
            self.check_step()?;
            // The messages of a stream have headers of their own.
            let depth = self.depth.max(StepDepth::of(&request.headers).0.saturating_add(1));
            check_depth(depth)?;
            let mut admission = self.admission();
            let mut span = self.span(&step);
            self.prepare(&mut request, span.as_ref());
            StepDepth(depth).set(&mut request.headers);
            let result = call(request, self.deadline, admission.reservation.sibling()).await.map(|(response, held)| {
                admission.reservation.merge(held);
                response
            });
            if result.is_err()
                && let Some(span) = &mut span
            {
                span.fail();
            }
            self.keep(admission);
            result
        })
    }

    fn infer_stream(self: Arc<Self>, model: StepModel, requests: RequestStream) -> ResponseStream {
        let opened = async move {
            let target = self.target(&model)?;
            let admission = self.admission();
            let span = self.span(&model);
            let scope = Arc::clone(&self);
            let trace = span.as_ref().map(Span::context);
            let rule = self.inference.tensor_rule(&target.model);
            let is_regular = move |request: &InferenceRequest| std::future::ready(rule.check(&request.inputs).is_ok());
            let model = Arc::clone(&target.model);
            let requests = requests.take_while(is_regular).map(move |mut request| {
                if let Some(headers) = request.headers.written() {
                    scope.hide_credentials(&model, headers);
                }
                (request.priority, request.trace) = (scope.priority, trace);
                request
            });
            let responses = self.inference.infer_step_stream(&target, requests, admission).map_err(step_error)?;
            // The span ends with the stream.
            let mut span = span;
            Ok::<_, RuntimeError>(responses.map(move |response| {
                response.map_err(|error| {
                    if let Some(span) = &mut span {
                        span.fail();
                    }
                    step_error(error)
                })
            }))
        };
        let responses = opened.map(|opened| match opened {
            Ok(responses) => responses.left_stream(),
            Err(error) => stream::iter([Err(error)]).right_stream(),
        });
        Box::pin(responses.flatten_stream())
    }

    fn predict_v1(
        self: Arc<Self>,
        model: StepModel,
        headers: HeaderMap,
        body: Bytes,
    ) -> BoxFuture<'static, Result<CustomReply, RuntimeError>> {
        Box::pin(async move {
            let target = self.target(&model)?;
            let mut admission = self.admission();
            let mut span = self.span(&model);
            let result = self.answer_v1(&target, headers, body, span.as_ref(), &mut admission).await;
            if result.is_err()
                && let Some(span) = &mut span
            {
                span.fail();
            }
            self.keep(admission);
            result
        })
    }

    fn status(&self, error: &RuntimeError) -> u16 {
        error.kind().http_status().as_u16()
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn detach(&self) {
        self.is_detached.store(true, Ordering::Release);
    }

    fn reports_timing(&self) -> bool {
        self.inference.server_timing
    }

    fn check_limits(&self) -> Result<(), RuntimeError> {
        let count = self.steps.as_ref().map_or(0, |steps| steps.load(Ordering::Relaxed));
        if count > MAX_STEPS {
            let reason =
                format!("the request has more than {MAX_STEPS} steps; use fewer, or graphs that are nested less");
            return Err(RuntimeError::rejected(LOOP_DETECTED, reason));
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(step_error(InferenceError::Deadline));
        }
        Ok(())
    }

    fn reservation(&self) -> ByteReservation {
        self.admission.lock().reservation.sibling()
    }
}

/// Checks whether a step of this depth may run: on this server or on another one.
fn check_depth(depth: usize) -> Result<(), RuntimeError> {
    if depth >= MAX_STEP_DEPTH {
        let reason = format!("models that call other models are nested more than {MAX_STEP_DEPTH} levels deep");
        return Err(RuntimeError::rejected(LOOP_DETECTED, reason));
    }
    Ok(())
}

/// Returns the error of a step as that of the model that asked it, with the same kind. The step has logged it.
pub(super) fn step_error(error: InferenceError) -> RuntimeError {
    let kind = match error.kind() {
        RequestErrorKind::BadRepository | RequestErrorKind::LoadFailed => RequestErrorKind::Unavailable,
        // The model that asked is available itself, and has not exceeded the budget.
        RequestErrorKind::Unavailable => RequestErrorKind::WorkerLost,
        RequestErrorKind::OverBudget => RequestErrorKind::Overloaded,
        kind => kind,
    };
    RuntimeError::new(kind, error).logged()
}

/// Leads a stream to its steps; its progress is not reported.
#[derive(Debug)]
pub(super) struct StreamProgress(pub(super) Option<Arc<StepScope>>);

impl Progress for StreamProgress {
    fn begin(&self) {}

    fn reserve(&self, _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn yielded(&self) {}

    fn wait_again(&self) {}

    fn joined(&self, _: TraceContext) {}

    fn used(&self, _: TokenUsage) {}

    fn steps(&self) -> Option<Arc<dyn Steps>> {
        self.0.clone().map(|scope| scope as Arc<dyn Steps>)
    }

    fn memory(&self) -> Option<Arc<dyn ModelMemory>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{FnLoader, Registry};
    use crate::runtimes::{Description, FnRuntime, Progress};
    use crate::settings::ModelSettings;
    use crate::telemetry::inference::InferenceMetrics;
    use crate::telemetry::metrics::Registry as MetricsRegistry;
    use crate::types::Tensor;
    use std::num::NonZeroUsize;
    use std::time::Duration;

    /// Asks the models in `parameters.extra.steps` at the same time, and joins their answers. Without steps, it answers with its inputs,
    /// after `delay` milliseconds.
    fn asks(steps: Vec<StepModel>, delay: Option<Duration>) -> FnRuntime {
        let (models, first) = (Arc::new(steps.clone()), steps.first().cloned());
        let predict = move |request: InferenceRequest, progress: Arc<dyn Progress>| {
            let models = Arc::clone(&models);
            async move {
                progress.begin();
                if let Some(delay) = delay {
                    tokio::time::sleep(delay).await;
                }
                let Some(steps) = progress.steps() else { return Ok(echo(request)) };
                let answers = models.iter().map(|model| {
                    let inputs = request.inputs.clone();
                    Arc::clone(&steps).infer(model, InferenceRequest { inputs, ..InferenceRequest::default() })
                });
                let answers = futures_util::future::try_join_all(answers).await?;
                let outputs = answers.into_iter().flat_map(|answer| answer.outputs).collect();
                Ok(InferenceResponse { outputs, ..InferenceResponse::default() })
            }
        };
        let stream = move |requests: RequestStream, progress: Arc<dyn Progress>| match (progress.steps(), &first) {
            (Some(steps), Some(first)) => steps.infer_stream(first.clone(), requests),
            _ => Box::pin(requests.map(|request| Ok(echo(request)))),
        };
        FnRuntime::with_progress(predict).stream(stream).description(Description { steps, ..Description::native() })
    }

    fn echo(request: InferenceRequest) -> InferenceResponse {
        InferenceResponse { outputs: request.inputs, ..InferenceResponse::default() }
    }

    fn asking_loader() -> FnLoader {
        FnLoader::new(|settings| {
            let extra = &settings.parameters.extra;
            let names = extra.get("steps").and_then(|steps| steps.as_array()).into_iter().flatten();
            let steps = names.filter_map(|name| name.as_str()).map(StepModel::new).collect();
            let delay = extra.get("delay").and_then(serde_json::Value::as_u64).map(Duration::from_millis);
            std::future::ready(Ok(asks(steps, delay)))
        })
    }

    fn settings(name: &str, steps: &[&str], delay: Option<u64>) -> ModelSettings {
        let mut settings = ModelSettings::new(name, "tests.Asks");
        settings.parameters.extra.insert("steps".to_owned(), steps.into());
        if let Some(delay) = delay {
            settings.parameters.extra.insert("delay".to_owned(), delay.into());
        }
        settings
    }

    async fn serve(max_in_flight: usize, models: &[(&str, &[&str], Option<u64>)]) -> Inference {
        let metrics = InferenceMetrics::register(&mut MetricsRegistry::default());
        let registry = Registry::new(asking_loader(), metrics);
        for (name, steps, delay) in models {
            registry.load(settings(name, steps, *delay)).await.unwrap();
        }
        Inference::new(registry, NonZeroUsize::new(max_in_flight).unwrap())
    }

    async fn ask(inference: &Inference, name: &str) -> Result<InferenceResponse, InferenceError> {
        let target = inference.target(name, None)?;
        let inputs = vec![Tensor::from_elements("x", vec![1], &[1_i64]).unwrap()];
        let request = InferenceRequest { id: "r".to_owned(), inputs, ..InferenceRequest::default() };
        inference.infer(&target, request, &mut inference.admission()).await
    }

    #[tokio::test]
    async fn nested_steps_need_one_slot() {
        let models = [("leaf", &[][..], None), ("pair", &["leaf", "leaf"], None), ("top", &["pair", "leaf"], None)];
        let inference = serve(1, &models).await;
        let response = ask(&inference, "top").await.unwrap();
        assert_eq!((response.outputs.len(), response.model_name.as_str(), response.id.as_str()), (3, "top", "r"));
        assert_eq!(inference.in_flight(), 0);
    }

    #[tokio::test]
    async fn step_error_keeps_its_kind_and_is_not_logged_again() {
        let inference = serve(4, &[("top", &["missing"], None)]).await;
        let error = ask(&inference, "top").await.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (RequestErrorKind::NotFound, "Model missing not found".to_owned())
        );
        assert!(error.of_runtime().is_some_and(RuntimeError::is_logged));
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_of_the_request_ends_its_steps() {
        let inference = serve(4, &[("leaf", &[], Some(60_000)), ("top", &["leaf"], None)]).await;
        let target = inference.target("top", None).unwrap();
        let deadline = Instant::now() + Duration::from_millis(100);
        let target = target.with_deadline(Some(deadline));
        let error = inference.infer(&target, InferenceRequest::default(), &mut Admission::new()).await.unwrap_err();
        assert_eq!(error.kind(), RequestErrorKind::Timeout);
        assert_eq!(Instant::now(), deadline);
        assert_eq!(inference.in_flight(), 0);
    }

    #[tokio::test]
    async fn request_in_flight_finishes_its_steps_during_shutdown() {
        let inference = serve(4, &[("leaf", &[], None), ("top", &["leaf"], Some(20))]).await;
        let request = tokio::spawn({
            let inference = inference.clone();
            async move { ask(&inference, "top").await }
        });
        while inference.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        inference.stop();
        assert!(ask(&inference, "leaf").await.is_err());
        request.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn models_nested_deeper_than_the_limit_fail() {
        let names: Vec<String> = (0..=MAX_STEP_DEPTH).map(|level| format!("level-{level}")).collect();
        let mut models = vec![("level-0", Vec::new())];
        models.extend((1..=MAX_STEP_DEPTH).map(|level| (names[level].as_str(), vec![names[level - 1].as_str()])));
        // Each before its steps, so that no load finds all levels below it.
        let models: Vec<_> = models.iter().rev().map(|(name, steps)| (*name, steps.as_slice(), None)).collect();
        let inference = serve(4, &models).await;
        ask(&inference, &names[MAX_STEP_DEPTH - 1]).await.unwrap();
        let error = ask(&inference, &names[MAX_STEP_DEPTH]).await.unwrap_err();
        assert!(error.to_string().contains("more than 16 levels"), "{error}");
    }

    #[tokio::test]
    async fn stream_of_a_step_needs_no_second_slot() {
        let inference = serve(1, &[("leaf", &[], None), ("top", &["leaf"], None)]).await;
        let inference = inference.with_stream_limits(crate::inference::StreamLimits {
            max_streams: NonZeroUsize::MIN,
            ..crate::inference::StreamLimits::default()
        });
        let target = inference.target("top", None).unwrap();
        let requests = stream::iter([InferenceRequest::default(), InferenceRequest::default()]);
        let responses = inference.infer_stream(&target, "s".to_owned(), requests, inference.admission()).unwrap();
        let responses: Vec<_> = responses.map(|response| response.unwrap().id).collect().await;
        assert_eq!(responses, ["s", "s"]);
    }

    #[tokio::test]
    async fn v1_step_of_tensors_answers_predictions() {
        let inference = serve(1, &[("leaf", &[], None), ("top", &["leaf"], None)]).await;
        let target = inference.target("top", None).unwrap();
        let mut admission = inference.admission();
        inference.slots.admit(&mut admission).unwrap();
        let scope = StepScope::new(&inference, &target, &mut admission, StepOrigin::default());
        let ask = |body: &'static [u8]| {
            Arc::clone(&scope).predict_v1(StepModel::new("leaf"), HeaderMap::new(), Bytes::from_static(body))
        };
        let reply = ask(br#"{"instances": [[1, 2], [3, 4]]}"#).await.unwrap();
        assert_eq!(reply.body, r#"{"predictions":[[1,2],[3,4]]}"#);
        let error = ask(br#"{"instances": 1}"#).await.unwrap_err();
        assert_eq!(error.kind(), RequestErrorKind::BadRequest);
    }
}
