//! OpenAI's API: chat, completions, embeddings and ranking, by any model that answers one of them.
//!
//! A model with a handler of an endpoint gets the body as it is, and makes the answer, whole or while it is sent. For a model that only
//! takes tensors, the setting `parameters.extra.openai` names those that the texts become, and those that the answer is made of.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::errors::RequestError;
use super::event_stream::{self, data};
use super::respond;
use super::route::RouteSpec;
use super::streamed::Streamed;
use super::{Answer, Call, Handled, body, forward};
use crate::access::Scope::{Infer, Read};
use crate::inference::{InferenceError, ModelTarget};
use crate::registry::{CompletionTensors, EmbeddingTensors, NotFound, OpenAiTensors, RegisteredModel, RerankTensors};
use crate::server::exchange::{Exchange, new_id};
use crate::server::payload;
use crate::types::json::openai::{
    self, OpenAiError, OpenAiHead, OutputError, VectorOptions, write_completion, write_completion_chunk,
    write_embeddings, write_rerank,
};
use crate::types::{
    BytesElements, Datatype, InferenceRequest, InferenceResponse, OpenAiApi, Parameters, RequestedOutput, Tensor,
    TensorData,
};

/// The prefix of the templates below, and of the paths unless the setting `openai_route_prefix` says otherwise.
pub(super) const PREFIX: &str = "/openai";

pub(super) const ROUTES: &[RouteSpec] = &[
    RouteSpec::post("/openai/v1/chat/completions", Infer, chat_completions).openai(),
    RouteSpec::post("/openai/v1/completions", Infer, completions).openai(),
    RouteSpec::post("/openai/v1/embeddings", Infer, embeddings).openai(),
    RouteSpec::post("/openai/v1/rerank", Infer, rerank).openai(),
    RouteSpec::get("/openai/v1/models", Read, models).openai(),
    // A version may follow the name, so the handler checks which model the caller may see.
    RouteSpec::get("/openai/v1/models/{model}", Read, model).openai(),
];

/// The id of a request, which clients show in their errors.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id of a client that is kept, in bytes.
const LONGEST_ID: usize = 128;

/// The end of a stream.
const DONE: &[u8] = b"[DONE]";

/// Returns the path of the table for a path of a client; `None` if the server serves none there.
pub(super) fn canonical<'p>(prefix: &str, path: &'p str) -> Option<Cow<'p, str>> {
    if prefix == PREFIX {
        return Some(Cow::Borrowed(path));
    }
    if let Some(rest) = path.strip_prefix(prefix)
        && ROUTES
            .iter()
            .any(|route| route.template.strip_prefix(PREFIX).is_some_and(|wanted| is_below(wanted, rest, prefix)))
    {
        return Some(Cow::Owned(format!("{PREFIX}{rest}")));
    }
    let is_of_default = path.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('/'));
    (!is_of_default).then_some(Cow::Borrowed(path))
}

/// Reports whether a template has a path. Without a prefix, KServe's V1 protocol has those of models.
fn is_below(template: &str, path: &str, prefix: &str) -> bool {
    if prefix.is_empty() && template.starts_with("/v1/models") {
        return false;
    }
    match template.strip_suffix("{model}") {
        Some(before) => path.strip_prefix(before).is_some_and(|name| !name.is_empty() && !name.contains('/')),
        None => template == path,
    }
}

/// Sets the id of a request, unless the client has set a usable one, and returns it.
pub(super) fn identify(headers: &mut HeaderMap) -> HeaderValue {
    let is_usable = |id: &HeaderValue| !id.is_empty() && id.len() <= LONGEST_ID && id.to_str().is_ok();
    if let Some(id) = headers.get(REQUEST_ID).filter(|id| is_usable(id)) {
        return id.clone();
    }
    let id = HeaderValue::try_from(new_id()).expect("an id consists of hexadecimal digits and hyphens");
    headers.insert(REQUEST_ID, id.clone());
    id
}

fn id_of<'a>(call: &Call<'a>) -> &'a str {
    call.parts.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn chat_completions(call: Call<'_>) -> Handled<'_> {
    Box::pin(answer(call, OpenAiApi::ChatCompletions))
}

fn completions(call: Call<'_>) -> Handled<'_> {
    Box::pin(answer(call, OpenAiApi::Completions))
}

fn embeddings(call: Call<'_>) -> Handled<'_> {
    Box::pin(answer(call, OpenAiApi::Embeddings))
}

fn rerank(call: Call<'_>) -> Handled<'_> {
    Box::pin(answer(call, OpenAiApi::Rerank))
}

/// Lists the models that answer an endpoint.
fn models(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let registry = call.app.inference.registry();
        let models = registry.models();
        let visible = models.iter().filter(|model| call.grant.is_none_or(|grant| grant.allows(&model.name)));
        Ok(Answer::json(&json!({ "object": "list", "data": listed(visible.map(|model| &**model)) })))
    })
}

/// Describes the models that answer an endpoint, each name once.
pub(super) fn listed<'a>(models: impl Iterator<Item = &'a RegisteredModel>) -> Vec<Value> {
    let mut models: Vec<&RegisteredModel> = models.filter(|model| model.answers_openai()).collect();
    models.sort_by(|a, b| (&a.name, b.created).cmp(&(&b.name, a.created)));
    models.dedup_by(|a, b| a.name == b.name);
    models.into_iter().map(|model| Value::Object(described(model))).collect()
}

/// Describes a model, as clients of the API read it.
pub(super) fn described(model: &RegisteredModel) -> Map<String, Value> {
    let fields: [(&str, Value); 4] = [
        ("id", model.name.as_str().into()),
        ("object", "model".into()),
        ("created", model.created.into()),
        ("owned_by", "mlserver".into()),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Describes one model.
fn model(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let last = call.parts.uri.path().rsplit('/').next().unwrap_or_default();
        let name = percent_decode_str(last).decode_utf8_lossy();
        let exchange = call.exchange()?;
        let target = find(&call, &exchange, &name)?;
        if !target.model.answers_openai() {
            return Err(InferenceError::from(NotFound::Model { name: name.into_owned() }).into());
        }
        let mut fields = described(&target.model);
        fields.insert("id".to_owned(), name.into());
        Ok(Answer::json(&fields))
    })
}

/// Finds the model of a request: a name, or a name and a version after `@`. Only here is it known which one the caller wants.
fn find(call: &Call<'_>, exchange: &Exchange<'_>, wanted: &str) -> Result<ModelTarget, RequestError> {
    let registry = call.app.inference.registry();
    let parts = wanted.rsplit_once('@').filter(|(name, version)| {
        !name.is_empty() && registry.find(wanted, None).is_err() && registry.find(name, Some(version)).is_ok()
    });
    let (name, version) = parts.map_or((wanted, None), |(name, version)| (name, Some(version)));
    if let (Some(access), Some(grant)) = (&call.app.options.access, call.grant) {
        access.check_model(grant, name)?;
    }
    Ok(exchange.target(name, version)?)
}

/// Answers a request of an endpoint.
async fn answer(mut call: Call<'_>, api: OpenAiApi) -> Result<Answer, RequestError> {
    let mut exchange = call.exchange()?;
    payload::check_content_type(&call.parts.headers).map_err(body::BodyError::from)?;
    let body = exchange.receive(|| body::read_any(&mut call)).await??;
    let read = body.clone();
    let head = exchange.read(body.len(), move || openai::read_head(api, &read)).await??;
    let target = find(&call, &exchange, &head.model)?;
    if let Some(handler) = target.model.openai_handler(api) {
        return pass_on(&mut call, &target, handler, body).await;
    }
    let Some(tensors) = target.model.openai_tensors.clone().filter(|tensors| tensors.answers(api)) else {
        if !target.model.state.is_ready() {
            let (name, version) = (target.model.name.clone(), target.model.version.clone());
            return Err(InferenceError::NotReady { name, version }.into());
        }
        return Err(not_supported(&target.model.name, api));
    };
    let OpenAiTensors { embeddings, completions, rerank } = tensors;
    let request = TensorCall { call: &mut call, exchange: &mut exchange, target, head, body };
    match (embeddings, completions, rerank) {
        (Some(tensors), _, _) if api == OpenAiApi::Embeddings => request.embeddings(tensors).await,
        (_, Some(tensors), _) if api == OpenAiApi::Completions => request.completions(tensors).await,
        (_, _, Some(tensors)) if api == OpenAiApi::Rerank => request.rerank(tensors).await,
        _ => Err(not_supported("", api)),
    }
}

/// Creates the error for a model without an endpoint, in the words of KServe.
fn not_supported(model: &str, api: OpenAiApi) -> RequestError {
    let name = match api {
        OpenAiApi::ChatCompletions => "Chat Completion",
        OpenAiApi::Completions => "Completions",
        OpenAiApi::Embeddings => "Embeddings",
        OpenAiApi::Rerank => "Rerank",
    };
    RequestError::other(StatusCode::BAD_REQUEST, format!("Model {model} does not support {name} API"))
}

/// Passes a request on to a handler of the model.
async fn pass_on(
    call: &mut Call<'_>,
    target: &ModelTarget,
    handler: usize,
    body: Bytes,
) -> Result<Answer, RequestError> {
    let request = forward::request(call, &target.model, call.path(), Vec::new(), body);
    let reply = call.app.inference.call_as_request(target, handler, request, call.admission).await?;
    forward::answer(call, &target.model.name, reply, |error, overload_as_429| Some(error.openai_event(overload_as_429)))
}

/// A request for a model that takes tensors.
struct TensorCall<'c, 'a> {
    call: &'c mut Call<'a>,
    exchange: &'c mut Exchange<'a>,
    target: ModelTarget,
    head: OpenAiHead,
    body: Bytes,
}

impl TensorCall<'_, '_> {
    async fn embeddings(mut self, tensors: EmbeddingTensors) -> Result<Answer, RequestError> {
        let EmbeddingTensors { input, output, pooling, normalize, dimensions } = tensors;
        if self.head.dimensions.is_some() && !dimensions {
            let message =
                "the model's vectors are not cut (`parameters.extra.openai.embeddings.dimensions` of its settings)";
            return Err(OpenAiError::of("dimensions", message).into());
        }
        let texts = self.texts(OpenAiApi::Embeddings).await?;
        let count = texts.len();
        let options =
            VectorOptions { pooling, normalize, dimensions: self.head.dimensions, encoding: self.head.encoding };
        let output = self.infer(vec![(input, texts)], &output).await?;
        let model = self.head.model.clone();
        let size = 2 * output.byte_len();
        self.write(size, move || write_embeddings(&output, &options, count, &model)).await
    }

    async fn rerank(mut self, tensors: RerankTensors) -> Result<Answer, RequestError> {
        let RerankTensors { query, documents, output } = tensors;
        let body = self.body.clone();
        let request = self.exchange.read(body.len(), move || openai::read_rerank(&body)).await??;
        let asked = std::iter::once(&request.query).collect::<BytesElements>().with_text(true);
        let inputs = vec![(query, asked), (documents, request.documents.clone())];
        let output = self.infer(inputs, &output).await?;
        let (model, id) = (self.head.model.clone(), id_of(self.call).to_owned());
        let size = 2 * request.documents.size();
        self.write(size, move || write_rerank(&output, &request, &id, &model)).await
    }

    async fn completions(mut self, tensors: CompletionTensors) -> Result<Answer, RequestError> {
        let CompletionTensors { input, output } = tensors;
        let prompts = self.texts(OpenAiApi::Completions).await?;
        let count = prompts.len();
        let (id, created, model) = (format!("cmpl-{}", id_of(self.call)), now(), self.head.model.clone());
        if self.head.stream {
            return self.stream_completions(vec![(input, prompts)], output, count, id).await;
        }
        let output = self.infer(vec![(input, prompts)], &output).await?;
        let size = 2 * output.byte_len();
        self.write(size, move || write_completion(&output, count, &id, created, &model)).await
    }

    /// Sends each response of the model as a chunk.
    async fn stream_completions(
        mut self,
        inputs: Vec<(String, BytesElements)>,
        output: String,
        count: usize,
        id: String,
    ) -> Result<Answer, RequestError> {
        let started = Instant::now();
        let request = self.request(inputs, &output)?;
        let app = Arc::clone(self.call.app);
        let right = self.call.stream_right(&self.target.model.name)?;
        let admission = std::mem::take(self.call.admission);
        let responses =
            app.inference.infer_stream(&self.target, request.id.clone(), stream::iter([request]), admission)?;
        let (created, model) = (now(), self.head.model.clone());
        let write = move |output: Option<&Tensor>| -> Result<Bytes, RequestError> {
            let text = write_completion_chunk(output, count, &id, created, &model).map_err(invalid_output)?;
            let mut reservation = app.inference.admission().reservation;
            let chunk = data(&text);
            reservation.grow(chunk.len())?;
            Ok(reservation.attach(chunk))
        };
        let end = write(None)?;
        let mut chunks = Box::pin(responses.map(move |response| write(Some(&take(response?, &output)?))));
        let first = chunks.next().await.transpose()?;
        self.target.record_first_chunk(started.elapsed());
        let end = stream::iter([Ok(end), Ok(data(DONE))]);
        Ok(Answer::Streamed(Streamed {
            status: StatusCode::OK,
            headers: event_stream::headers(),
            chunks: Box::pin(until_error(stream::iter(first.map(Ok)).chain(chunks).chain(end))),
            right,
            last: |error, overload_as_429| Some(error.openai_event(overload_as_429)),
        }))
    }

    async fn texts(&mut self, api: OpenAiApi) -> Result<BytesElements, RequestError> {
        let body = self.body.clone();
        Ok(self.exchange.read(body.len(), move || openai::read_texts(api, &body)).await??)
    }

    fn request(
        &mut self,
        inputs: Vec<(String, BytesElements)>,
        output: &str,
    ) -> Result<InferenceRequest, RequestError> {
        let tensor = |(name, texts): (String, BytesElements)| Tensor {
            name,
            datatype: Datatype::Bytes,
            shape: vec![texts.len(), 1],
            parameters: Parameters::with_content_type("str"),
            data: TensorData::Variable(texts),
            nested: false,
            as_sent: None,
        };
        let mut request = InferenceRequest {
            id: id_of(self.call).to_owned(),
            inputs: inputs.into_iter().map(tensor).collect(),
            outputs: vec![RequestedOutput { name: output.to_owned(), ..RequestedOutput::default() }],
            ..InferenceRequest::default()
        };
        self.body = Bytes::new();
        self.call.admission.reservation.resize(request.memory_bytes())?;
        self.exchange.prepare(&mut request);
        let app = self.call.app;
        app.cloud_events.set_request_headers(&mut request, &self.call.parts.headers, &self.target.model);
        Ok(request)
    }

    async fn infer(&mut self, inputs: Vec<(String, BytesElements)>, output: &str) -> Result<Tensor, RequestError> {
        let request = self.request(inputs, output)?;
        let response = self.call.app.inference.infer(&self.target, request, self.call.admission).await?;
        take(response, output)
    }

    /// Encodes an answer of about `size` bytes.
    async fn write(
        self,
        size: usize,
        write: impl FnOnce() -> Result<Vec<u8>, OutputError> + Send + 'static,
    ) -> Result<Answer, RequestError> {
        let held = &mut self.call.admission.reservation;
        held.grow(size)?;
        let text = self.exchange.write(size, write).await?.map_err(invalid_output)?;
        held.resize(text.len())?;
        Ok(respond::json_text(StatusCode::OK, HeaderMap::new(), text).into())
    }
}

/// Takes the output that the settings name out of a response.
fn take(response: InferenceResponse, name: &str) -> Result<Tensor, RequestError> {
    let found = response.outputs.into_iter().find(|output| output.name == name);
    found.ok_or_else(|| {
        let message = format!(
            "the model answered without output `{name}`, which `parameters.extra.openai` of its settings names"
        );
        RequestError::other(StatusCode::INTERNAL_SERVER_ERROR, message)
    })
}

fn invalid_output(error: OutputError) -> RequestError {
    match error {
        OutputError::Dimensions { .. } => OpenAiError { message: error.to_string(), param: Some("dimensions") }.into(),
        _ => RequestError::other(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Ends a stream after its first error.
fn until_error<T: Send>(
    items: impl futures_core::Stream<Item = Result<T, RequestError>> + Send,
) -> impl futures_core::Stream<Item = Result<T, RequestError>> + Send {
    items.scan(false, |has_failed, item| {
        let ended = std::mem::replace(has_failed, item.is_err());
        std::future::ready((!ended).then_some(item))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_of_the_setting_replaces_that_of_the_table() {
        let canonical = |prefix: &str, path: &str| canonical(prefix, path).map(Cow::into_owned);
        let own = |path: &str| Some(path.to_owned());
        for path in ["/openai/v1/models", "/v1/models", "/v2"] {
            assert_eq!(canonical("/openai", path), own(path));
        }
        for (path, expected) in [
            ("/llm/v1/chat/completions", own("/openai/v1/chat/completions")),
            ("/llm/v1/models/a%2Fb", own("/openai/v1/models/a%2Fb")),
            ("/llm/v1/models/a/b", own("/llm/v1/models/a/b")),
            ("/llm/v1/other", own("/llm/v1/other")),
            ("/openai/v1/models", None),
            ("/openai", own("/openai")),
            ("/v1/models", own("/v1/models")),
        ] {
            assert_eq!(canonical("/llm", path), expected, "{path}");
        }
        for (path, expected) in [
            ("/v1/embeddings", own("/openai/v1/embeddings")),
            ("/v1/models", own("/v1/models")),
            ("/v1/models/m", own("/v1/models/m")),
            ("/openai/v1/models", None),
        ] {
            assert_eq!(canonical("", path), expected, "{path}");
        }
    }

    #[test]
    fn id_of_the_client_is_kept_if_it_is_usable() {
        let identified = |id: Option<&str>| {
            let mut headers: HeaderMap =
                id.map(|id| (REQUEST_ID, HeaderValue::from_str(id).unwrap())).into_iter().collect();
            let id = identify(&mut headers);
            assert_eq!(headers.get_all(REQUEST_ID).iter().collect::<Vec<_>>(), [&id]);
            id.to_str().unwrap().to_owned()
        };
        assert_eq!(identified(Some("req-1")), "req-1");
        for id in [None, Some(""), Some(&*"x".repeat(LONGEST_ID + 1))] {
            assert_eq!(identified(id).len(), 36, "{id:?}");
        }
    }
}
