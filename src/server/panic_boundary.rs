//! The boundary for panics: each becomes an error of one request.

use futures_util::FutureExt;
use tracing::error;

use crate::shutdown::catch_panic;

/// A request whose handling panicked. The transport answers it with an internal error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server failed while handling the request; the log has the details")]
pub(super) struct RequestPanicked;

/// Handles a request, or one step of a stream, on `route`. A panic is logged and ends only this request.
pub(super) fn contain<T>(
    route: &str,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, RequestPanicked>> {
    catch_panic(work).map(move |result| {
        result.map_err(|reason| {
            error!(route, reason, "A request panicked. This is a bug in mlserver.");
            RequestPanicked
        })
    })
}
