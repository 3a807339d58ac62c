//! The right of a stream, which may last longer than the key that opened it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::sync::watch;

use super::{Access, Grant, Principal, Refusal, Scope, now};

/// The longest wait between two looks at the clock, which may be changed while a stream is open.
const LONGEST_WAIT: i64 = 60;

/// The right of a stream. Its credentials are checked again when keys change, and when they expire.
#[derive(Debug, Clone)]
pub struct StreamRight {
    access: Access,
    principal: Arc<Principal>,
    /// The credentials.
    headers: HeaderMap,
    certificate: Vec<String>,
    scope: Scope,
    model: String,
    /// The address of the client.
    address: Option<SocketAddr>,
    changes: watch::Receiver<()>,
}

impl Access {
    /// Returns the right of a stream, of a model if it is not empty, whose request had a grant with these credentials.
    ///
    /// # Errors
    ///
    /// Fails if the sender has lost the right meanwhile.
    pub fn stream_right(
        &self,
        grant: &Grant,
        headers: &HeaderMap,
        certificate: &[String],
        scope: Scope,
        model: &str,
    ) -> Result<StreamRight, Refusal> {
        let credentials = headers.get_all(AUTHORIZATION).iter().map(|value| (AUTHORIZATION, value.clone()));
        let mut right = StreamRight {
            access: self.clone(),
            principal: Arc::clone(grant.principal()),
            headers: credentials.collect(),
            certificate: certificate.to_vec(),
            scope,
            model: model.to_owned(),
            address: grant.address(),
            changes: self.0.changes.subscribe(),
        };
        // The keys may have changed since the grant.
        right.look_again()?;
        Ok(right)
    }
}

impl StreamRight {
    /// Checks the right. This costs one atomic load if nothing has changed.
    ///
    /// # Errors
    ///
    /// Fails if the sender no longer has it.
    fn check(&mut self) -> Result<(), Refusal> {
        // The sender is in `access`.
        let changed = self.changes.has_changed().unwrap_or(true);
        if changed || self.principal.expires.is_some_and(|expires| now() >= expires) {
            self.changes.mark_unchanged();
            self.look_again()?;
        }
        Ok(())
    }

    /// Checks the right, and takes one message from the rate.
    ///
    /// # Errors
    ///
    /// Fails if the sender no longer has the right, or has exceeded its rate.
    pub fn take_message(&mut self) -> Result<(), Refusal> {
        self.check()?;
        let taken = self.principal.limits.take(|| self.access.0.began.elapsed());
        taken.map_err(|retry_after| {
            let refusal = Refusal::Rate { principal: self.principal.name.clone(), retry_after };
            self.report(&refusal);
            refusal
        })
    }

    /// Checks whether the sender may use another model than that of the stream.
    ///
    /// # Errors
    ///
    /// Fails if not.
    pub fn check_model(&self, model: &str) -> Result<(), Refusal> {
        let grant = Grant::new(Arc::clone(&self.principal), self.scope, self.address)?;
        grant.check_model(model).inspect_err(|refusal| self.report(refusal))
    }

    /// Waits until the sender no longer has the right, and returns the reason.
    pub async fn lost(&mut self) -> Refusal {
        loop {
            if let Err(refusal) = self.check() {
                return refusal;
            }
            let wait = self.principal.expires.map(|expires| (expires - now()).clamp(1, LONGEST_WAIT));
            let wait = wait.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
            let changed = self.changes.changed();
            match wait {
                // The clock decides afterwards.
                Some(wait) => drop(tokio::time::timeout(wait, changed).await),
                None => drop(changed.await),
            }
            self.changes.mark_changed();
        }
    }

    fn report(&self, refusal: &Refusal) {
        self.access.report(refusal, self.scope, None, self.address);
    }

    fn look_again(&mut self) -> Result<(), Refusal> {
        let found = self.access.principal(&self.headers, &self.certificate);
        let decided = found.and_then(|principal| {
            let grant = Grant::new(principal, self.scope, self.address)?;
            if !self.model.is_empty() {
                grant.check_model(&self.model)?;
            }
            Ok(Arc::clone(grant.principal()))
        });
        self.principal = decided.inspect_err(|refusal| self.report(refusal))?;
        Ok(())
    }
}
