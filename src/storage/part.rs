//! The bytes of a part of an object, from any store.

use std::error::Error;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::error::FetchError;
use super::selection::ContentHash;
use crate::http_client::{HttpError, HttpStream};

/// The bytes of a part of an object.
pub(super) struct Part {
    /// The hash of the whole object, if the store tells it.
    pub(super) hash: Option<ContentHash>,
    /// Bytes that have been read and come before the others.
    pub(super) kept: Option<Bytes>,
    pub(super) bytes: PartBytes,
}

pub(super) enum PartBytes {
    Store(BoxStream<'static, object_store::Result<Bytes>>),
    Http(Box<HttpStream>),
}

impl Part {
    /// Waits for the next bytes.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        if let Some(kept) = self.kept.take() {
            return Ok(Some(kept));
        }
        match &mut self.bytes {
            PartBytes::Store(stream) => stream.next().await.transpose().map_err(|error| store_error(&error, "")),
            PartBytes::Http(stream) => Ok(stream.next().await?),
        }
    }

    /// Reads and drops bytes of a server that has no ranges. A later attempt starts a new request, so what follows is complete.
    pub(super) async fn skip(&mut self, mut bytes: u64) -> Result<(), FetchError> {
        while bytes > 0 {
            let Some(mut data) = self.next().await? else { return Ok(()) };
            if data.len() as u64 > bytes {
                let start = usize::try_from(bytes).unwrap_or(data.len());
                self.kept = Some(data.split_off(start));
                return Ok(());
            }
            bytes -= data.len() as u64;
        }
        Ok(())
    }
}

/// Converts an error of the crate: what failed at the server, without the address, whose query may be signed.
pub(super) fn store_error(error: &object_store::Error, credentials: &str) -> FetchError {
    let mut last: &(dyn Error + 'static) = error;
    while let Some(cause) = last.source() {
        if let Some(http) = cause.downcast_ref::<HttpError>() {
            return FetchError::Http(http.clone());
        }
        last = cause;
    }
    let message = last.to_string();
    let reason = shortened(&message);
    // Of a listing, the crate only tells the status in words.
    let is_denied = ["code: 401", "code: 403"].iter().any(|status| message.contains(status));
    match error {
        _ if is_denied => FetchError::Denied { credentials: credentials.to_owned(), reason },
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            FetchError::Denied { credentials: credentials.to_owned(), reason }
        }
        _ => FetchError::Store(reason),
    }
}

/// Returns the first line of a message, and of XML the code and the message.
pub(super) fn shortened(message: &str) -> String {
    const MAX: usize = 300;
    let tag = |name: &str| {
        let (_, rest) = message.split_once(&format!("<{name}>"))?;
        rest.split_once("</").map(|(text, _)| text.trim())
    };
    let text = match (tag("Code"), tag("Message")) {
        (Some(code), Some(text)) => format!("{code}: {}", text.lines().next().unwrap_or_default()),
        (Some(code), None) => code.to_owned(),
        _ => message.lines().next().unwrap_or_default().to_owned(),
    };
    text.chars().take(MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_stores_are_shortened() {
        let xml = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>\
                   <Message>Access Denied\nmore</Message><RequestId>1</RequestId></Error>";
        assert_eq!(shortened(xml), "AccessDenied: Access Denied");
        assert_eq!(shortened("<Error><Code>NoSuchBucket</Code></Error>"), "NoSuchBucket");
        assert_eq!(shortened("one\ntwo"), "one");
        assert_eq!(shortened(&"x".repeat(1000)).len(), 300);
    }
}
