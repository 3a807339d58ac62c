//! The metadata of the server and its models.

use super::route::RouteSpec;
use super::{Answer, Call, Handled};
use crate::access::Scope::Read;

pub(super) const ROUTES: &[RouteSpec] = &[
    RouteSpec::get("/v2", Read, server),
    RouteSpec::get("/v2/models/{model_name}", Read, model),
    RouteSpec::get("/v2/models/{model_name}/versions/{model_version}", Read, model),
];

fn server(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move { Ok(Answer::json(&call.app.options.metadata)) })
}

fn model(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move { Ok(Answer::json(&call.find_model()?.metadata)) })
}
