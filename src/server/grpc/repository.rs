//! The model repository API: index, load, unload.
//!
//! The messages of the deprecated service have the same layout, so both services share these.

use super::status::Status;
use super::{App, Call};
use crate::admin::IndexEntry;
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
    Ok(RepositoryIndexResponse { models: visible.map(model_index).collect() })
}

fn model_index(entry: IndexEntry) -> ModelIndex {
    let IndexEntry { name, version, state, reason } = entry;
    ModelIndex { name, version: version.unwrap_or_default(), state: state.name().to_owned(), reason }
}

pub(super) async fn load(
    app: &App,
    call: Call<'_>,
    request: &RepositoryModelLoadRequest,
) -> Result<RepositoryModelLoadResponse, Status> {
    app.check_model(call.grant, &request.model_name)?;
    app.admin.load(&request.model_name).await?;
    Ok(RepositoryModelLoadResponse {})
}

pub(super) async fn unload(
    app: &App,
    call: Call<'_>,
    request: &RepositoryModelUnloadRequest,
) -> Result<RepositoryModelUnloadResponse, Status> {
    app.check_model(call.grant, &request.model_name)?;
    app.admin.unload(&request.model_name).await?;
    Ok(RepositoryModelUnloadResponse {})
}
