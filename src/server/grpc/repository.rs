//! The model repository API: index, load, unload.
//!
//! The messages of the deprecated service have the same layout, so both services share these.

use super::App;
use super::status::Status;
use crate::admin::IndexEntry;
use crate::types::protobuf::messages::repository_index_response::ModelIndex;
use crate::types::protobuf::messages::{
    RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelLoadRequest, RepositoryModelLoadResponse,
    RepositoryModelUnloadRequest, RepositoryModelUnloadResponse,
};

pub(super) async fn index(app: &App, request: &RepositoryIndexRequest) -> Result<RepositoryIndexResponse, Status> {
    let entries = app.admin.index(request.ready).await?;
    Ok(RepositoryIndexResponse { models: entries.into_iter().map(model_index).collect() })
}

fn model_index(entry: IndexEntry) -> ModelIndex {
    let IndexEntry { name, version, state, reason } = entry;
    ModelIndex { name, version: version.unwrap_or_default(), state: state.name().to_owned(), reason }
}

pub(super) async fn load(
    app: &App,
    request: &RepositoryModelLoadRequest,
) -> Result<RepositoryModelLoadResponse, Status> {
    app.admin.load(&request.model_name).await?;
    Ok(RepositoryModelLoadResponse {})
}

pub(super) async fn unload(
    app: &App,
    request: &RepositoryModelUnloadRequest,
) -> Result<RepositoryModelUnloadResponse, Status> {
    app.admin.unload(&request.model_name).await?;
    Ok(RepositoryModelUnloadResponse {})
}
