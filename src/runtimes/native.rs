//! The runtime of models that the server evaluates itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;

use super::{
    Asked, BoxFuture, CallReply, Description, ModelMemory, Progress, RequestStream, ResponseStream, Runtime,
    RuntimeError, RuntimeStatus, answer_first, ready,
};
use crate::compute::{ComputeError, ComputePool, LONG_WORK};
use crate::types::{CustomCall, CustomReply, InferenceRequest, InferenceResponse, Priority};

/// Predictions that are estimated to take no longer run on the thread of the connection: handing them to another thread takes
/// up to as long, and the other work of a connection can wait that long.
pub(super) const INLINE: Duration = Duration::from_micros(50);

/// A flag that is never set, for evaluations on the thread of the request.
pub(super) static NEVER: AtomicBool = AtomicBool::new(false);

/// What differs between the models that [`Native`] serves: how a request is checked, and how it is answered.
pub(super) trait NativeModel: fmt::Debug + Send + Sync + 'static {
    /// What is read from a request before it is answered.
    type Prepared<'r>;

    /// Whether every request of a stream is answered, not only the first.
    const ANSWERS_STREAMS: bool = false;

    /// How many times the memory of a large answer is needed while it is computed: results of blocks are joined, or converted.
    const COPIES: usize = 1;

    /// Returns a request that is answered before any other, which would otherwise be slower than those after it.
    fn sample(&self) -> Option<InferenceRequest> {
        None
    }

    /// Checks a request, and estimates what its answer takes.
    ///
    /// Takes time in proportion to the number of inputs, not of rows.
    fn plan<'r>(&self, request: &'r InferenceRequest) -> Result<Plan<Self::Prepared<'r>>, RuntimeError>;

    /// Returns whether the answer first prepares what then stays in memory with the model.
    fn is_unprepared(&self, _prepared: &Self::Prepared<'_>) -> bool {
        false
    }

    /// Returns how many bytes of memory that takes. Takes about as long as preparing it.
    fn preparation_bytes(&self) -> usize {
        0
    }

    /// Answers a request with what [`Self::plan`] has prepared. Stops at the next block of rows after `stop` is set.
    fn answer(
        &self,
        request: &InferenceRequest,
        prepared: Self::Prepared<'_>,
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError>;

    /// Estimates how long [`Self::call`] takes.
    fn call_cost(&self, _route: usize, _call: &CustomCall) -> Duration {
        Duration::ZERO
    }

    /// Answers a call of one of the routes in the description; see [`Runtime::call`]. Reserves from `progress` what is only known once the
    /// body has been read.
    fn call(
        &self,
        route: usize,
        _call: &CustomCall,
        _progress: &dyn Progress,
        _stop: &AtomicBool,
    ) -> Result<CustomReply, RuntimeError> {
        Err(RuntimeError::no_route(route))
    }
}

/// What the answer to a request takes.
#[derive(Debug)]
pub(super) struct Plan<P> {
    /// The estimated time on one thread.
    pub(super) cost: Duration,
    /// The memory to reserve, in bytes: at least the size of the tensors in the response. Texts are estimated. 0 if it is not known, or
    /// if the request will be rejected.
    pub(super) bytes: usize,
    pub(super) prepared: P,
}

/// Returns the bytes to reserve for an answer of this size: large ones are copied while they are computed.
pub(super) fn with_copies(bytes: usize, copies: usize) -> usize {
    if bytes < LONG_WORK { bytes } else { bytes.saturating_mul(copies) }
}

/// Serves a model: short predictions on the thread of the connection, and others on the pool.
#[derive(Debug)]
pub(super) struct Native<M> {
    model: Arc<M>,
    description: Description,
    compute: ComputePool,
}

/// Sets a flag when it is dropped, which happens if a client disconnects or a request times out.
#[derive(Debug, Default)]
pub(super) struct CancelOnDrop(pub(super) Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<M: NativeModel> Native<M> {
    pub(super) fn new(model: M, description: Description, compute: ComputePool) -> Self {
        Self { model: Arc::new(model), description, compute }
    }

    /// Plans the answer to a request, and returns whether it is unprepared.
    fn plan<'r>(&self, request: &'r InferenceRequest) -> Result<(Plan<M::Prepared<'r>>, bool), RuntimeError> {
        let plan = self.model.plan(request)?;
        let is_unprepared = self.model.is_unprepared(&plan.prepared);
        Ok((plan, is_unprepared))
    }

    /// Reports whether a planned answer is computed on the thread of the connection.
    fn is_short(cost: Duration, bytes: usize, is_unprepared: bool) -> bool {
        // To fill the memory of a wide answer takes time, too.
        bytes < LONG_WORK && cost <= INLINE && !is_unprepared
    }

    /// Waits until the model may take the memory of what it prepares for the answer.
    async fn grow(&self, priority: Priority, memory: &dyn ModelMemory) -> Result<(), RuntimeError> {
        let bytes = self.on_pool(priority, || {}, |model, _| model.preparation_bytes()).await?;
        memory.grow(bytes).await
    }

    /// Answers a request on the pool, and calls `begin` once there is a thread for it.
    async fn answer_on_pool(
        &self,
        request: InferenceRequest,
        begin: impl FnOnce(),
    ) -> Result<InferenceResponse, RuntimeError> {
        let priority = request.priority;
        let work = move |model: &M, stop: &AtomicBool| {
            // What an earlier plan has prepared borrowed from the request, so it could not move here.
            let prepared = model.plan(&request)?.prepared;
            model.answer(&request, prepared, stop)
        };
        self.on_pool(priority, begin, work).await?
    }

    /// Runs `work` on the pool. It stops soon after the future is dropped.
    async fn on_pool<T: Send + 'static>(
        &self,
        priority: Priority,
        begin: impl FnOnce(),
        work: impl FnOnce(&M, &AtomicBool) -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        let cancel = CancelOnDrop::default();
        let (model, stop) = (Arc::clone(&self.model), Arc::clone(&cancel.0));
        self.compute.run_after(priority, begin, move || work(&model, &stop)).await
    }
}

impl<M: NativeModel> Runtime for Native<M> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn status(&self) -> RuntimeStatus {
        RuntimeStatus::AVAILABLE
    }

    fn parallelism(&self) -> usize {
        self.compute.width()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let Some(request) = self.model.sample() else { return ready(Ok(())) };
        Box::pin(async move { self.answer_on_pool(request, || {}).await.map(drop) })
    }

    fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        Box::pin(async move {
            let (Plan { cost, bytes, prepared }, is_unprepared) = self.plan(&request)?;
            progress.reserve(with_copies(bytes, M::COPIES))?;
            if Self::is_short(cost, bytes, is_unprepared) {
                progress.begin();
                return self.model.answer(&request, prepared, &NEVER);
            }
            drop(prepared);
            // In a box of its own, so that the futures of short predictions stay small.
            let answer: BoxFuture<'_, _> = Box::pin(async {
                if let Some(memory) = progress.memory().filter(|_| is_unprepared) {
                    self.grow(request.priority, memory.as_ref()).await?;
                }
                self.answer_on_pool(request, || progress.begin()).await
            });
            answer.await
        })
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream {
        if !M::ANSWERS_STREAMS {
            return answer_first(self, requests, progress);
        }
        Box::pin(requests.then(move |request| {
            let runtime = Arc::clone(&self);
            async move { runtime.predict(request, Arc::new(())).await }
        }))
    }

    fn answers_at_once(&self, asked: Asked<'_>) -> bool {
        match asked {
            // An invalid request is refused at once.
            Asked::Request(request) => self
                .plan(request)
                .map_or(true, |(plan, is_unprepared)| Self::is_short(plan.cost, plan.bytes, is_unprepared)),
            Asked::Call(route, call) => self.model.call_cost(route, call) <= INLINE,
        }
    }

    fn unload(self: Arc<Self>) -> BoxFuture<'static, ()> {
        drop(self);
        ready(())
    }

    fn call(
        &self,
        route: usize,
        call: CustomCall,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<CallReply, RuntimeError>> {
        Box::pin(async move {
            progress.begin();
            if self.model.call_cost(route, &call) <= INLINE {
                return Ok(self.model.call(route, &call, progress.as_ref(), &NEVER)?.into());
            }
            let work = move |model: &M, stop: &AtomicBool| model.call(route, &call, progress.as_ref(), stop);
            Ok(self.on_pool(Priority::default(), || {}, work).await??.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::thread::{self, ThreadId};

    use parking_lot::Mutex;

    use super::*;
    use crate::runtimes::Steps;
    use crate::types::{OverBudget, RequestErrorKind, TokenUsage, TraceContext};

    const LONG: Duration = Duration::from_micros(51);

    /// What happens, in order.
    type Events = Arc<Mutex<Vec<String>>>;

    /// How the answers of a model end.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Ends {
        WithResponse,
        WithError,
        /// When it is stopped, as a model between two blocks of rows.
        OnceStopped,
    }

    /// A model whose answers have 8 bytes.
    #[derive(Debug)]
    struct Fake {
        cost: Duration,
        ends: Ends,
        caller: ThreadId,
        events: Events,
    }

    impl Fake {
        fn runtime(cost: Duration, ends: Ends, compute: &ComputePool) -> (Arc<Native<Self>>, Events) {
            let events = Events::default();
            let model = Self { cost, ends, caller: thread::current().id(), events: Arc::clone(&events) };
            (Arc::new(Native::new(model, Description::native(), compute.clone())), events)
        }

        fn compute<T: Default>(&self, what: &str, stop: &AtomicBool) -> Result<T, RuntimeError> {
            let place = if thread::current().id() == self.caller { "here" } else { "on the pool" };
            self.events.lock().push(format!("{what} {place}"));
            match self.ends {
                Ends::WithResponse => Ok(T::default()),
                Ends::WithError => Err(RuntimeError::invalid_request("no luck")),
                Ends::OnceStopped => {
                    while !stop.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                    self.events.lock().push("stop".to_owned());
                    Err(RuntimeError::invalid_request("the prediction was cancelled"))
                }
            }
        }
    }

    impl NativeModel for Fake {
        type Prepared<'r> = &'r str;

        fn sample(&self) -> Option<InferenceRequest> {
            Some(InferenceRequest { id: "sample".to_owned(), ..InferenceRequest::default() })
        }

        fn plan<'r>(&self, request: &'r InferenceRequest) -> Result<Plan<&'r str>, RuntimeError> {
            Ok(Plan { cost: self.cost, bytes: 8, prepared: &request.id })
        }

        fn answer(&self, _: &InferenceRequest, id: &str, stop: &AtomicBool) -> Result<InferenceResponse, RuntimeError> {
            self.compute(id, stop)
        }
    }

    /// Records what a runtime reports. At most `limit` bytes are free.
    #[derive(Debug)]
    struct Recorder {
        limit: usize,
        events: Events,
    }

    impl Progress for Recorder {
        fn begin(&self) {
            self.events.lock().push("begin".to_owned());
        }

        fn reserve(&self, bytes: usize) -> Result<(), RuntimeError> {
            self.events.lock().push(format!("reserve {bytes}"));
            if bytes > self.limit { Err(OverBudget::TooLarge { bytes, limit: self.limit }.into()) } else { Ok(()) }
        }

        fn yielded(&self) {}

        fn wait_again(&self) {}

        fn joined(&self, _: TraceContext) {}

        fn used(&self, _: TokenUsage) {}

        fn steps(&self) -> Option<Arc<dyn Steps>> {
            None
        }

        fn memory(&self) -> Option<Arc<dyn ModelMemory>> {
            None
        }
    }

    fn pool() -> ComputePool {
        ComputePool::new(NonZeroUsize::MIN)
    }

    async fn ask(runtime: &Native<Fake>, events: &Events, limit: usize) -> Result<InferenceResponse, RuntimeError> {
        let request = InferenceRequest { id: "answer".to_owned(), ..InferenceRequest::default() };
        runtime.predict(request, Arc::new(Recorder { limit, events: Arc::clone(events) })).await
    }

    #[tokio::test]
    async fn native_answers_short_requests_on_the_thread_of_the_caller() {
        let (runtime, events) = Fake::runtime(INLINE, Ends::WithResponse, &pool());
        ask(&runtime, &events, 8).await.unwrap();
        assert_eq!(*events.lock(), ["reserve 8", "begin", "answer here"]);
    }

    #[test]
    fn native_answers_only_short_requests_at_once() {
        let answers = |cost| {
            let (runtime, _) = Fake::runtime(cost, Ends::WithResponse, &pool());
            runtime.answers_at_once(Asked::Request(&InferenceRequest::default()))
        };
        assert!(answers(INLINE) && !answers(LONG));
    }

    #[tokio::test]
    async fn native_answers_long_requests_on_the_pool_once_there_is_a_thread() {
        let compute = pool();
        let (runtime, events) = Fake::runtime(LONG, Ends::WithResponse, &compute);
        let (release, released) = std::sync::mpsc::channel();
        let mut busy = Box::pin(compute.run(move || released.recv().unwrap()));
        assert!(futures_util::poll!(&mut busy).is_pending());
        let mut asked = Box::pin(ask(&runtime, &events, 8));
        assert!(futures_util::poll!(&mut asked).is_pending());
        assert_eq!(*events.lock(), ["reserve 8"], "it waits for the thread");
        release.send(()).unwrap();
        busy.await.unwrap();
        asked.await.unwrap();
        assert_eq!(*events.lock(), ["reserve 8", "begin", "answer on the pool"]);
    }

    #[tokio::test]
    async fn native_computes_nothing_if_the_response_is_over_budget() {
        for cost in [INLINE, LONG] {
            let (runtime, events) = Fake::runtime(cost, Ends::WithResponse, &pool());
            let error = ask(&runtime, &events, 7).await.unwrap_err();
            assert_eq!(error.kind(), RequestErrorKind::TooLarge);
            assert_eq!(*events.lock(), ["reserve 8"]);
        }
    }

    #[tokio::test]
    async fn native_stops_when_its_future_is_dropped() {
        let compute = pool();
        let (runtime, events) = Fake::runtime(LONG, Ends::OnceStopped, &compute);
        let asked = tokio::spawn({
            let (runtime, events) = (Arc::clone(&runtime), Arc::clone(&events));
            async move { ask(&runtime, &events, 8).await.map(drop) }
        });
        while !events.lock().contains(&"answer on the pool".to_owned()) {
            tokio::task::yield_now().await;
        }
        asked.abort();
        // The only thread is free again.
        compute.run(|| ()).await.unwrap();
        assert_eq!(events.lock().last().unwrap(), "stop");
    }

    #[tokio::test]
    async fn native_passes_errors_of_the_model_to_the_caller() {
        for cost in [INLINE, LONG] {
            let (runtime, events) = Fake::runtime(cost, Ends::WithError, &pool());
            let error = ask(&runtime, &events, 8).await.unwrap_err();
            assert_eq!((error.kind(), error.to_string()), (RequestErrorKind::BadRequest, "no luck".to_owned()));
        }
    }

    #[tokio::test]
    async fn native_warms_up_on_the_pool() {
        let (runtime, events) = Fake::runtime(INLINE, Ends::WithResponse, &pool());
        runtime.warm_up().await.unwrap();
        assert_eq!(*events.lock(), ["sample on the pool"]);
        let (runtime, _) = Fake::runtime(INLINE, Ends::WithError, &pool());
        assert_eq!(runtime.warm_up().await.unwrap_err().to_string(), "no luck");
    }
}
