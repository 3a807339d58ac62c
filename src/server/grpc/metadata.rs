//! The metadata and the readiness of the server and its models.

use super::status::Status;
use super::{App, Call};
use crate::inference::InferenceError;
use crate::registry::RegisteredModel;
use crate::types::protobuf::messages::model_metadata_response::TensorMetadata;
use crate::types::protobuf::messages::{
    ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ServerMetadataResponse,
};
use crate::types::protobuf::parameters_to_map;
use crate::types::{self, ModelMetadata};

pub(super) fn server(app: &App) -> ServerMetadataResponse {
    let types::ServerMetadata { name, version, extensions } = app.metadata.clone();
    ServerMetadataResponse { name, version, extensions }
}

pub(super) fn model(
    app: &App,
    call: Call<'_>,
    request: &ModelMetadataRequest,
) -> Result<ModelMetadataResponse, Status> {
    app.check_model(call.grant, &request.name)?;
    let model = find(app, &request.name, &request.version)?;
    let ModelMetadata { name, versions, platform, inputs, outputs, parameters } = &model.metadata;
    Ok(ModelMetadataResponse {
        name: name.clone(),
        versions: versions.clone(),
        platform: platform.clone(),
        inputs: inputs.iter().map(tensor).collect(),
        outputs: outputs.iter().map(tensor).collect(),
        parameters: parameters_to_map(parameters),
    })
}

pub(super) async fn model_ready(
    app: &App,
    call: Call<'_>,
    request: &ModelReadyRequest,
) -> Result<ModelReadyResponse, Status> {
    app.check_model(call.grant, &request.name)?;
    let model = find(app, &request.name, &request.version)?;
    Ok(ModelReadyResponse { ready: app.inference.is_model_ready_now(&model).await })
}

fn find(app: &App, name: &str, version: &str) -> Result<std::sync::Arc<RegisteredModel>, Status> {
    let version = Some(version).filter(|version| !version.is_empty());
    Ok(app.inference.registry().find(name, version).map_err(InferenceError::from)?)
}

fn tensor(tensor: &types::TensorMetadata) -> TensorMetadata {
    let types::TensorMetadata { name, datatype, shape, parameters } = tensor;
    TensorMetadata {
        name: name.clone(),
        datatype: datatype.clone(),
        shape: shape.clone(),
        parameters: parameters_to_map(parameters),
    }
}
