//! `ModelInfer`, and what it shares with `ModelStreamInfer`.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName};

use super::message::{self, MessageLimit};
use super::reply::Reply;
use super::status::Status;
use super::{App, Call};
use crate::compute::LONG_WORK;
use crate::inference::Admission;
use crate::registry::RegisteredModel;
use crate::server::exchange::Exchange;
use crate::server::model_headers;
use crate::types::protobuf::{self, ProtobufRequest, ReadError, ResponseEncoder};
use crate::types::{ByteReservation, InferenceRequest, InferenceResponse, TensorRule};

/// HTTP headers that are not metadata.
const HTTP_HEADERS: [HeaderName; 8] =
    [CONTENT_TYPE, CONTENT_LENGTH, CONNECTION, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// How many bytes of data take as long to encode as an output without its data.
const OUTPUT_HEAD: usize = 64;

/// Handles a `ModelInfer` call.
///
/// `admission` holds the bytes of the message.
pub(super) async fn infer(
    app: &App,
    call: Call<'_>,
    message: Bytes,
    mut admission: Admission,
) -> Result<Reply, Status> {
    let Call { headers, until, trace, grant, .. } = call;
    let mut exchange = Exchange::new(&app.inference, &app.compute, headers, until, trace)?;
    let ProtobufRequest { model_name, model_version, mut request, raw } =
        read(&exchange, message, &mut admission.reservation).await?;
    let request_bytes = admission.reservation.bytes();
    app.check_model(grant, &model_name)?;
    let target = exchange.target(&model_name, model_version.as_deref())?;
    check_tensors(app, &request, &target.model)?;
    exchange.prepare(&mut request);
    set_request_headers(app, &mut request, headers, &target.model);
    let infer = app.inference.infer(&target, request, &mut admission);
    let mut response = infer.await.map_err(|error| Status::of_inference(&error, &target.model))?;
    let trailers = trailers(app, &mut response, &target.model);
    let chunks = write(app, &mut exchange, response, raw).await?;
    // Outputs may be slices of the request.
    admission.reservation.resize(request_bytes.max(chunks.iter().map(Bytes::len).sum()))?;
    Ok(Reply { chunks, trailers, admission })
}

/// Decodes a request. `reservation` holds the bytes of the message, then of the request.
pub(super) async fn read(
    exchange: &Exchange<'_>,
    message: Bytes,
    reservation: &mut ByteReservation,
) -> Result<ProtobufRequest, Status> {
    let length = message.len();
    let converted = if length < LONG_WORK { length } else { protobuf::bytes_to_convert(&message) };
    let read = move || protobuf::read_request_with(&message, TensorRule::AsSent);
    let mut read = exchange.read(converted, read).await??;
    read.request.from_grpc = true;
    // Raw contents are slices of the message.
    reservation.resize(length.max(read.request.memory_bytes()))?;
    Ok(read)
}

/// Checks that the model takes the tensors of a request, which is read before the model is known.
pub(super) fn check_tensors(app: &App, request: &InferenceRequest, model: &RegisteredModel) -> Result<(), Status> {
    Ok(app.inference.tensor_rule(model).check(&request.inputs).map_err(ReadError::from)?)
}

/// Encodes a response with its message header.
pub(super) async fn write(
    app: &App,
    exchange: &mut Exchange<'_>,
    response: InferenceResponse,
    raw: bool,
) -> Result<Vec<Bytes>, Status> {
    let limit = app.limit;
    let copied = protobuf::bytes_to_copy(&response, raw) + OUTPUT_HEAD * response.outputs.len();
    exchange.write(copied, move || encode(&response, raw, limit)).await?
}

fn encode(response: &InferenceResponse, raw: bool, limit: MessageLimit) -> Result<Vec<Bytes>, Status> {
    let outgoing = ResponseEncoder::new(response, raw)?;
    let header = message::header(outgoing.len(), limit)?;
    Ok(outgoing.write(header))
}

/// Sets a request's headers to the metadata of the call, if its model reads headers.
pub(super) fn set_request_headers(
    app: &App,
    request: &mut InferenceRequest,
    headers: &HeaderMap,
    model: &RegisteredModel,
) {
    app.cloud_events.set_request_headers(request, headers, model);
    if let Some(headers) = request.headers.written() {
        remove_transport(headers);
    }
}

/// Takes the headers out of a response, which are sent as trailers.
pub(super) fn trailers(app: &App, response: &mut InferenceResponse, model: &RegisteredModel) -> HeaderMap {
    let sets_headers = !response.headers.is_empty();
    let mut trailers = app.cloud_events.take_response_headers(response, model);
    trailers.remove(CONTENT_TYPE);
    if sets_headers {
        model_headers::remove_matching(&mut trailers, |name| name.starts_with("grpc-"));
    }
    trailers
}

/// Removes the headers that belong to HTTP and gRPC themselves.
fn remove_transport(headers: &mut HeaderMap) {
    for name in &HTTP_HEADERS {
        headers.remove(name);
    }
    model_headers::remove_matching(headers, |name| name.starts_with("grpc-"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn transport_headers_are_removed_from_metadata() {
        let mut headers = HeaderMap::new();
        for name in ["content-type", "te", "grpc-timeout", "grpc-status", "x-own", "user-agent", "x-bin"] {
            headers.insert(name, HeaderValue::from_static("a"));
        }
        remove_transport(&mut headers);
        let mut kept: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["user-agent", "x-bin", "x-own"]);
    }
}
