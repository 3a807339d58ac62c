//! `ModelInfer`, and what it shares with streams of it.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

use super::message::{self, Limit};
use super::reply::Reply;
use super::status::Status;
use super::{App, Call};
use crate::inference::Admission;
use crate::registry::RegisteredModel;
use crate::server::priority;
use crate::telemetry::traces::RequestPhase;
use crate::types::protobuf::{self, ProtobufRequest, ResponseEncoder};
use crate::types::{InferenceRequest, InferenceResponse};

/// Messages that need more than this many bytes converted one by one are read and written on the compute pool.
const LONG: usize = 64 * 1024;

/// Headers of HTTP that are no metadata, and would break an answer if a model set them.
const HTTP: [HeaderName; 8] = [CONTENT_TYPE, CONTENT_LENGTH, CONNECTION, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// Answers a call.
pub(super) async fn infer(app: &App, call: Call<'_>, message: Bytes) -> Result<Reply, Status> {
    let Call { headers, until, trace } = call;
    let ProtobufRequest { model_name, model_version, mut request, raw } = read(app, message).await?;
    let target = app.inference.target(&model_name, model_version.as_deref())?.with_deadline(until);
    priority::give(&mut request, headers)?;
    request.trace = trace;
    give_headers(app, &mut request, headers, &target.model);
    let mut admission = Admission::new();
    let mut response = app.inference.infer(&target, request, &mut admission).await?;
    let trailers = trailers(app, &mut response, &target.model);
    let since = trace.map(|_| Instant::now());
    let parts = write(app, response, raw).await?;
    if let Some(since) = since {
        app.inference
            .traces()
            .record_phase(trace, RequestPhase { name: "encode", since, until: Instant::now(), batch: None });
    }
    Ok(Reply { parts, trailers, admission })
}

/// Reads a request, where its size says.
pub(super) async fn read(app: &App, message: Bytes) -> Result<ProtobufRequest, Status> {
    if message.len() <= LONG || protobuf::bytes_to_convert(&message) <= LONG {
        return Ok(protobuf::read_request(&message)?);
    }
    Ok(app.compute.run(move || protobuf::read_request(&message)).await??)
}

/// Writes an answer with what comes before it, where its size says.
pub(super) async fn write(app: &App, response: InferenceResponse, raw: bool) -> Result<Vec<Bytes>, Status> {
    let limit = app.limit;
    if protobuf::bytes_to_copy(&response, raw) <= LONG {
        return encode(&response, raw, limit);
    }
    app.compute.run(move || encode(&response, raw, limit)).await?
}

fn encode(response: &InferenceResponse, raw: bool, limit: Limit) -> Result<Vec<Bytes>, Status> {
    let outgoing = ResponseEncoder::new(response, raw)?;
    let header = message::header(outgoing.len(), limit)?;
    Ok(outgoing.write(header))
}

/// Gives a request the call's metadata, if its model looks at them.
pub(super) fn give_headers(app: &App, request: &mut InferenceRequest, headers: &HeaderMap, model: &RegisteredModel) {
    app.cloud_events.give_headers(request, headers, model);
    remove_transport(&mut request.headers);
}

/// Takes the headers that follow an answer out of it.
pub(super) fn trailers(app: &App, response: &mut InferenceResponse, model: &RegisteredModel) -> HeaderMap {
    let sets_headers = !response.headers.is_empty();
    let mut trailers = app.cloud_events.take_headers(response, model);
    if sets_headers {
        remove_transport(&mut trailers);
    }
    trailers
}

/// Removes what belongs to HTTP and gRPC themselves.
fn remove_transport(headers: &mut HeaderMap) {
    if headers.is_empty() {
        return;
    }
    let of_grpc: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with("grpc-")).cloned().collect();
    for name in of_grpc.iter().chain(&HTTP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_belongs_to_the_transport_is_no_metadata() {
        let mut headers = HeaderMap::new();
        for name in ["content-type", "te", "grpc-timeout", "grpc-status", "x-own", "user-agent", "x-bin"] {
            headers.insert(name, HeaderValue::from_static("a"));
        }
        remove_transport(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["user-agent", "x-bin", "x-own"]);
    }
}
