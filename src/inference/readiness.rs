//! Asks the code of models whether they are ready: `healthy` and `ready` of KServe's models.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Shared};
use futures_util::{FutureExt, future};
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::Inference;
use crate::registry::{ModelState, RegisteredModel};
use crate::types::CustomCall;

/// How long the code of a model may take to answer whether it is ready.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a model is not ready, or `None` if it is.
type Answer = Shared<BoxFuture<'static, Option<Arc<str>>>>;

/// The questions that models are answering, by the address of the model. Everybody may ask, so concurrent callers share one question: they
/// take one call of the worker, however many they are.
#[derive(Clone, Default)]
pub(super) struct ReadinessQueries(Arc<Mutex<HashMap<usize, Answer>>>);

impl fmt::Debug for ReadinessQueries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadinessQueries").field(&self.0.lock().len()).finish()
    }
}

impl ReadinessQueries {
    /// Returns why a model is not ready.
    async fn ask(&self, model: &Arc<RegisteredModel>, route: usize) -> Option<Arc<str>> {
        // The question holds the model, so that no other one has its address.
        self.share(Arc::as_ptr(model) as usize, question(Arc::clone(model), route)).await
    }

    /// Waits for the open question with this key, or asks `question`.
    async fn share(
        &self,
        key: usize,
        question: impl Future<Output = Option<Arc<str>>> + Send + 'static,
    ) -> Option<Arc<str>> {
        let answer = self.0.lock().entry(key).or_insert_with(|| question.boxed().shared()).clone();
        let found = answer.clone().await;
        let mut open = self.0.lock();
        if open.get(&key).is_some_and(|other| other.ptr_eq(&answer)) {
            open.remove(&key);
        }
        found
    }
}

async fn question(model: Arc<RegisteredModel>, route: usize) -> Option<Arc<str>> {
    let ModelState::Ready(runtime) = &model.state else { return None };
    let call = CustomCall {
        method: Method::GET,
        path: format!("/v1/models/{}", model.name),
        parameters: Vec::new(),
        query: String::new(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let asked = async { runtime.call(route, call, Arc::new(())).await?.whole(|_| Ok(())).await };
    match timeout(TIMEOUT, asked).await {
        Ok(Ok(reply)) if reply.status == StatusCode::OK => None,
        Ok(Ok(reply)) => Some(String::from_utf8_lossy(&reply.body).into()),
        Ok(Err(error)) => Some(error.to_string().into()),
        Err(_) => Some(format!("the model has not answered within {} s whether it is ready", TIMEOUT.as_secs()).into()),
    }
}

impl Inference {
    /// Returns the models that the server was started with and whose own code reports that they are not ready, with the reason.
    pub async fn own_obstacles(&self) -> Vec<(Arc<RegisteredModel>, Arc<str>)> {
        let models = self.registry.models();
        let asked = models.iter().filter(|model| model.required && model.v1_handlers().is_some());
        let ask = |model: &Arc<RegisteredModel>| {
            let model = Arc::clone(model);
            async move { Some((Arc::clone(&model), self.own_obstacle(&model).await?)) }
        };
        future::join_all(asked.map(ask)).await.into_iter().flatten().collect()
    }

    /// Asks the code of a model whether it is ready, and returns the reason if it is not. `None` for models without such code.
    pub async fn own_obstacle(&self, model: &Arc<RegisteredModel>) -> Option<Arc<str>> {
        let route = model.v1_handlers()?.ready?;
        let ModelState::Ready(runtime) = &model.state else { return None };
        if !runtime.status().is_available() {
            return None;
        }
        self.readiness.ask(model, route).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn concurrent_callers_share_one_question() {
        let queries = ReadinessQueries::default();
        let asked = Arc::new(AtomicUsize::new(0));
        for round in 1..=2 {
            let (release, gate) = tokio::sync::watch::channel(());
            let callers = (0..100).map(|_| {
                let (asked, mut gate) = (Arc::clone(&asked), gate.clone());
                queries.share(1, async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    gate.changed().await.ok()?;
                    Some("not healthy".into())
                })
            });
            let mut callers = Box::pin(future::join_all(callers));
            assert!(futures_util::poll!(&mut callers).is_pending(), "all of them wait");
            release.send_replace(());
            assert!(callers.await.iter().all(|found| found.as_deref() == Some("not healthy")));
            assert_eq!(asked.load(Ordering::Relaxed), round, "later callers ask again");
            assert_eq!(format!("{queries:?}"), "ReadinessQueries(0)");
        }
    }
}
