//! The issuer of tokens: its current keys, and the principals of tokens that have been verified.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, Method, StatusCode};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, Semaphore, watch};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::limits::PrincipalLimits;
use super::principal::TOKEN_PREFIX;
use super::{
    AccessMetrics, KeyHash, ModelPatterns, Principal, RateLimit, Refusal, TokenError, TokenKeySet, TokenRules,
    verify_token,
};
use crate::http_client::{BodyChunks, HttpClient, HttpError, HttpOptions, Url};
use crate::shutdown::spawn_supervised;

/// The most tokens that are remembered, and the most senders whose limits are.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// Keys are fetched at most once in this time, however many tokens name keys that are not known.
const BETWEEN_FETCHES: Duration = Duration::from_secs(10);
/// How often keys are fetched without need, so that those that the issuer has withdrawn are forgotten.
const REFRESH: Duration = Duration::from_mins(10);
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests may wait for keys at once, and for how long. Other requests are told to try again.
const MAX_WAITERS: usize = 8;
const MAX_WAIT: Duration = Duration::from_secs(2);
/// The most bytes of a set of keys.
pub(super) const MAX_JWKS: u64 = 1 << 20;

/// The issuer of tokens.
pub(super) struct Issuer {
    rules: TokenRules,
    default_rate: Option<RateLimit>,
    keys: ArcSwap<IssuerKeys>,
    /// The limits of senders, which last longer than their tokens.
    limits: Mutex<LruCache<String, Arc<PrincipalLimits>>>,
    metrics: AccessMetrics,
    /// Is told when the keys have changed.
    changes: watch::Sender<()>,
    source: Option<KeySource>,
    /// The last attempt to fetch the keys. Locked during the next one.
    last: Arc<tokio::sync::Mutex<Option<Attempt>>>,
    waiters: Semaphore,
}

/// An attempt to fetch keys that has ended.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    ended: Instant,
    failed: bool,
}

/// The keys of an issuer, and the tokens that they have verified.
struct IssuerKeys {
    set: TokenKeySet,
    verified: Mutex<LruCache<KeyHash, Arc<Principal>>>,
}

/// Where keys are fetched from.
pub(super) struct KeySource {
    url: Url,
    client: HttpClient,
}

/// Why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the issuer answered with {0}")]
    Status(StatusCode),
    #[error("{0}")]
    Keys(String),
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Issuer").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl IssuerKeys {
    fn new(set: TokenKeySet) -> Self {
        Self { set, verified: Mutex::new(LruCache::new(REMEMBERED)) }
    }
}

impl Attempt {
    /// Returns the last attempt, if it is too early for another one.
    fn recent(last: Option<Self>) -> Option<Self> {
        last.filter(|attempt| attempt.ended.elapsed() < BETWEEN_FETCHES)
    }
}

impl KeySource {
    /// Prepares to fetch keys.
    pub(super) fn new(url: Url) -> Result<Self, HttpError> {
        let options = HttpOptions::new(TIMEOUT, usize::try_from(MAX_JWKS).unwrap_or(usize::MAX));
        Ok(Self { client: HttpClient::new(&url, &options)?, url })
    }

    async fn fetch(&self) -> Result<TokenKeySet, FetchError> {
        let response = self.client.send(Method::GET, &self.url, HeaderMap::new(), BodyChunks::default()).await?;
        if response.status != StatusCode::OK {
            return Err(FetchError::Status(response.status));
        }
        TokenKeySet::parse(&response.body).map_err(FetchError::Keys)
    }
}

impl Issuer {
    pub(super) fn new(
        rules: TokenRules,
        default_rate: Option<RateLimit>,
        keys: TokenKeySet,
        source: Option<KeySource>,
        metrics: AccessMetrics,
        changes: watch::Sender<()>,
    ) -> Self {
        Self {
            rules,
            default_rate,
            keys: ArcSwap::from_pointee(IssuerKeys::new(keys)),
            limits: Mutex::new(LruCache::new(REMEMBERED)),
            metrics,
            changes,
            source,
            last: Arc::default(),
            waiters: Semaphore::new(MAX_WAITERS),
        }
    }

    /// Replaces the keys. Tokens that were verified are verified again.
    pub(super) fn replace(&self, keys: TokenKeySet) {
        if self.keys.load().set != keys {
            self.keys.store(Arc::new(IssuerKeys::new(keys)));
            self.changes.send_replace(());
        }
    }

    /// Finds the principal of a token at a time, in seconds since 1970.
    pub(super) fn find(&self, presented: &[u8], now: i64) -> Result<Arc<Principal>, TokenError> {
        let keys = self.keys.load();
        let hash = KeyHash::of(presented);
        if let Some(known) = keys.verified.lock().get(&hash) {
            let is_valid = known.expires.is_some_and(|expires| now < expires);
            return if is_valid { Ok(Arc::clone(known)) } else { Err(TokenError::Expired) };
        }
        let claims = verify_token(presented, &keys.set, &self.rules, now)?;
        let limits = {
            let fresh = || Arc::new(PrincipalLimits::new(self.default_rate, None));
            Arc::clone(self.limits.lock().get_or_insert(claims.subject.clone(), fresh))
        };
        let name = format!("{TOKEN_PREFIX}{}", claims.subject);
        let principal = Arc::new(Principal {
            requests: self.metrics.requests_of(&name),
            name,
            scopes: claims.scopes,
            models: ModelPatterns::All,
            expires: Some(claims.expires),
            limits,
        });
        keys.verified.lock().put(hash, Arc::clone(&principal));
        Ok(principal)
    }

    /// Has the keys fetched, unless that was tried a moment ago, and waits for a short time for the end of the attempt.
    ///
    /// # Errors
    ///
    /// Fails if the keys are not available in time, or if too many requests wait for them.
    pub(super) async fn fetch(self: &Arc<Self>) -> Result<(), Refusal> {
        if self.source.is_none() {
            return Ok(());
        }
        let unavailable = Refusal::KeysUnavailable { retry_after: MAX_WAIT };
        if let Ok(last) = Arc::clone(&self.last).try_lock_owned() {
            if let Some(recent) = Attempt::recent(*last) {
                return if recent.failed { Err(unavailable) } else { Ok(()) };
            }
            let issuer = Arc::clone(self);
            spawn_supervised("a fetch of the keys of tokens", async move {
                if let Err(error) = issuer.attempt(last).await {
                    warn!("Cannot fetch the keys of tokens (`jwks_url`): {error}. The known keys stay in use.");
                }
            });
        }
        let Ok(_waiter) = self.waiters.try_acquire() else { return Err(unavailable) };
        match timeout(MAX_WAIT, self.last.lock()).await {
            Ok(last) if last.is_some_and(|attempt| !attempt.failed) => Ok(()),
            _ => Err(unavailable),
        }
    }

    /// Fetches the keys, unless that was tried a moment ago. Concurrent calls wait for the same attempt.
    async fn try_fetch(&self) -> Result<(), FetchError> {
        let last = Arc::clone(&self.last).lock_owned().await;
        if Attempt::recent(*last).is_some() {
            return Ok(());
        }
        self.attempt(last).await
    }

    async fn attempt(&self, mut last: OwnedMutexGuard<Option<Attempt>>) -> Result<(), FetchError> {
        let Some(source) = &self.source else { return Ok(()) };
        let result = source.fetch().await.map(|keys| self.replace(keys));
        *last = Some(Attempt { ended: Instant::now(), failed: result.is_err() });
        result
    }

    /// Fetches the keys now, and again from time to time.
    pub(super) fn refresh_regularly(self: &Arc<Self>) {
        let issuer = Arc::clone(self);
        spawn_supervised("refreshes of the keys of tokens", async move {
            let mut failed = false;
            loop {
                let result = issuer.try_fetch().await;
                match &result {
                    Ok(()) if failed => info!("Fetched the keys of tokens again."),
                    Err(error) if !failed => {
                        warn!("Cannot fetch the keys of tokens (`jwks_url`): {error}. Retrying until it succeeds.");
                    }
                    _ => {}
                }
                failed = result.is_err();
                tokio::time::sleep(if failed { BETWEEN_FETCHES } else { REFRESH }).await;
            }
        });
    }
}
