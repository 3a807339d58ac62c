//! The model repository API: index, load, unload.
//!
//! The messages of the deprecated service have the same layout, so both services share these.

use bytes::Bytes;
use prost::Message;
use tonic::Code;

use super::method::MethodAction;
use super::status::{self, Status};
use super::{App, Call};
use crate::access::Scope;
use crate::admin::{AdminError, IndexEntry};
use crate::types::protobuf::messages::repository_index_response::ModelIndex;
use crate::types::protobuf::messages::{
    RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelLoadRequest, RepositoryModelLoadResponse,
    RepositoryModelUnloadRequest, RepositoryModelUnloadResponse,
};

pub(super) async fn index(
    app: &App,
    call: Call<'_>,
    request: &RepositoryIndexRequest,
) -> Result<RepositoryIndexResponse, Status> {
    let entries = app.admin.index(request.ready).await?;
    let visible = entries.into_iter().filter(|entry| call.grant.is_none_or(|grant| grant.allows(&entry.name)));
    let mut models: Vec<ModelIndex> = visible.map(model_index).collect();
    if call.grant.is_some_and(|grant| !grant.has_scope(Scope::Admin)) {
        // They may be exceptions of `load`, with secrets.
        for model in &mut models {
            model.reason.clear();
        }
    }
    Ok(RepositoryIndexResponse { models })
}

fn model_index(entry: IndexEntry) -> ModelIndex {
    let IndexEntry { name, version, state, reason } = entry;
    ModelIndex { name, version: version.unwrap_or_default(), state: state.name().to_owned(), reason }
}

/// Changes a model if the caller may use it, and records that.
async fn change(
    app: &App,
    call: Call<'_>,
    action: &str,
    model: &str,
    operation: impl Future<Output = Result<(), AdminError>>,
) -> Result<(), Status> {
    let record = call.begin_record(app, action, model);
    let result = match app.check_model(call.grant, model) {
        Ok(()) => operation.await.map_err(Status::from),
        Err(refused) => Err(refused),
    };
    let code = result.as_ref().err().map_or(Code::Ok, |status| status.code);
    record.record(status::code_name(code), result.is_ok());
    result
}

/// Records a call that would change a model, but is not served.
pub(super) fn record_refused(app: &App, call: Call<'_>, action: MethodAction, message: Bytes, status: &Status) {
    let action = match action {
        MethodAction::Load => "load",
        MethodAction::Unload => "unload",
        _ => return,
    };
    // Both messages have the name in the same field. One that cannot be read names no model.
    let model = RepositoryModelUnloadRequest::decode(message).map(|request| request.model_name).unwrap_or_default();
    call.begin_record(app, action, &model).record(status::code_name(status.code), false);
}

pub(super) async fn load(
    app: &App,
    call: Call<'_>,
    request: &RepositoryModelLoadRequest,
) -> Result<RepositoryModelLoadResponse, Status> {
    change(app, call, "load", &request.model_name, app.admin.load(&request.model_name)).await?;
    Ok(RepositoryModelLoadResponse {})
}

pub(super) async fn unload(
    app: &App,
    call: Call<'_>,
    request: &RepositoryModelUnloadRequest,
) -> Result<RepositoryModelUnloadResponse, Status> {
    change(app, call, "unload", &request.model_name, app.admin.unload(&request.model_name)).await?;
    Ok(RepositoryModelUnloadResponse {})
}
